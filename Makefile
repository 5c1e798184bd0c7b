# Needs python3 (3.11 or newer, with venv), git and make.  Everything else goes into .venv, at the versions of constraints.txt.
PYTHON ?= python3
BIN := .venv/bin
# a worker a core; `.venv/bin/python -m pytest tests/test_x.py` is quicker for one file
PYTEST = $(BIN)/python -m pytest --numprocesses logical --maxprocesses 4
TRAINS = $(BIN)/python -c 'import torch, safetensors, matplotlib' 2>/dev/null
INSTALL = $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt

.PHONY: help setup demo test slow lint format fixtures clean
.DEFAULT_GOAL := help

help:  ## this list
	@grep -hE '^[a-z%-]+:.*## ' Makefile | sed -E 's/:[^#]*## /\t/' | expand -t 16

# The build that is trained on comes first: then the newest, which `datapipe audit` without a name is about, is the demo.
demo: .venv/.run  ## build manifests/demo.yaml, show what became of every document, train 18,320 parameters if torch is there
	@if $(TRAINS); then $(BIN)/datapipe build manifests/cyclic16.yaml; fi
	$(BIN)/datapipe build manifests/demo.yaml
	$(BIN)/datapipe show demo
	@if $(TRAINS); then \
	  if test -f runs/cyclic16/run.json; then $(BIN)/datapipe train manifests/train-cyclic16.yaml --resume; \
	  else $(BIN)/datapipe train manifests/train-cyclic16.yaml; fi; \
	else \
	  echo "the demo ends with a small training run where torch is: $(INSTALL) --editable '.[train]' (or make setup), then make demo"; \
	fi

test: .venv/.dev  ## the tests, all but those marked slow
	$(PYTEST)

slow: .venv/.dev  ## the slow tests: the wheel in an empty environment, and the like
	$(PYTEST) -m slow

lint: .venv/.dev  ## format, lint and types, changing nothing
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/pyright --project . --warnings

format: .venv/.dev  ## put the code into its format, mend what can be mended
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

fixtures: .venv/.run  ## make fixtures/ again, from its script and nothing else
	$(BIN)/python fixtures/make_fixtures.py

bench-%: .venv/.dev  ## bench-NAME runs bench/NAME.py (bench-near_dedup ARGS="--size 50MB"); see bench/README.md
	$(BIN)/python bench/$*.py $(ARGS)

setup: .venv/.dev  ## .venv with the development tools

clean:  ## remove .venv, builds and caches
	rm -rf .venv builds runs dist .pytest_cache .ruff_cache .hypothesis

# The demo needs what a user needs; tests and lint need the dev extra too.  A stamp is newer than what it was made from.
.venv/.python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "datapipe needs Python 3.11 or newer: make PYTHON=python3.12 ..." >&2; exit 1; }
	$(PYTHON) -m venv .venv || { echo "$(PYTHON) cannot make a venv (on Debian: apt-get install python3-venv)" >&2; exit 1; }
	@touch $@

.venv/.run: .venv/.python pyproject.toml constraints.txt
	$(INSTALL) --editable .
	@touch $@

.venv/.dev: .venv/.run
	$(INSTALL) --editable '.[dev]'
	@touch $@
