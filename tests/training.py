"""Builds that are small enough to train on in a test, and manifests of runs on them."""

import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import golden
import numpy as np
import pyarrow.parquet as pq
import torch
from safetensors.torch import load_file

from datapipe import manifest as manifests
from datapipe import pipeline
from datapipe.feed.batch import Batch, Rows
from datapipe.train import checkpoint, config, parallel
from datapipe.train.model import build
from datapipe.train.optimizer import adamw
from datapipe.train.step import Step

WORDS = 30
EVENTS = (  # of a step in order; the first four for each microbatch
    "sample", "forward", "loss", "backward",
    "synchronise", "unscale", "finite", "clip", "optimizer", "zero", "counters",
)  # fmt: skip
REFERENCE = {"kind": "reference", "width": 32, "heads": 4, "layers": 2, "hidden": 64}
GPT = {"kind": "gpt", "width": 16, "heads": 4, "kv_heads": 2, "layers": 2, "hidden": 24}


def cyclic(folder: Path) -> Path:
    """builds/ with cyclic16 in it."""
    golden.build("cyclic16", folder / "builds")
    return folder / "builds"


def builds(folder: Path) -> Path:
    """builds/ with both."""
    cyclic(folder)
    return packed(folder)


def packed(folder: Path) -> Path:
    """builds/ with `packed`: two sources, documents of 2 to 24 words in rows of 16, padding, cut ones, a holdout."""
    vocabulary = {"<eos>": 0} | {f"w{n}": n + 1 for n in range(WORDS)}
    model = {"type": "WordLevel", "vocab": vocabulary, "unk_token": "<eos>"}
    added = {"id": 0, "content": "<eos>", "special": True, "single_word": False, "lstrip": False, "rstrip": False}
    tokenizer = {"version": "1.0", "added_tokens": [added | {"normalized": False}],
                 "pre_tokenizer": {"type": "WhitespaceSplit"}, "model": model}  # fmt: skip
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    draw = random.Random(5)
    for source in ("a", "b"):
        texts = [_text(draw, draw.randint(2, 24)) for _ in range(45)]
        lines = [json.dumps({"id": f"{source}{n}", "text": text}) for n, text in enumerate(texts)]
        (folder / f"{source}.jsonl").write_text("\n".join(lines) + "\n")
    (folder / "packed.yaml").write_text(
        "name: packed\nsources: {a: {files: [a.jsonl]}, b: {files: [b.jsonl]}}\n"
        "stages: [{stage: holdout, fraction: 0.2}]\n"
        'tokenizer: {file: tokenizer.json, eos: "<eos>"}\nsequences: {length: 16, packing: best_fit}\n'
    )
    asked = manifests.load(folder / "packed.yaml")
    pipeline.build(asked, workers=1, memory=500_000_000, output=folder / "builds")
    return folder / "builds"


def _text(draw: random.Random, words: int) -> str:
    """A word and the next one mostly: there is something to learn."""
    at, found = draw.randrange(WORDS), []
    for _ in range(words):
        found.append(f"w{at}")
        at = (at + 1) % WORDS if draw.random() < 0.9 else draw.randrange(WORDS)
    return " ".join(found)


def manifest(builds: Path, *settings: str, build: Any = "cyclic16", **keys) -> config.TrainManifest:
    """A run on one of them under runs/ beside builds/; settings as on the command line."""
    raw = {"name": "run", "output": str(builds.parent / "runs"), "builds": str(builds), "build": build, "seed": 17,
           "steps": 12, "model": REFERENCE, "optimizer": {"lr": 6e-3, "decay": "all"}} | keys  # fmt: skip
    return config.TrainManifest.model_validate(config._set({"train": raw}, settings))


def written(path: Path, builds: Path, *settings: str, **keys) -> Path:
    """The same as a file."""
    made = manifest(builds, *settings, **keys)
    path.write_text(json.dumps(made.model_dump(mode="json")))
    return path


def environment(**more: str) -> dict[str, str]:
    """Of a process of our own, with one thread."""
    return os.environ | {"PYTHONPATH": str(golden.CHECKOUT), "OMP_NUM_THREADS": "1"} | more


def datapipe(*arguments: object, **more: str) -> subprocess.CompletedProcess[str]:
    """The command line in a process of its own."""
    command = [sys.executable, "-m", "datapipe", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment(**more), timeout=300)


def wait(true: Callable[[], object], seconds: float = 240) -> None:
    """Until it is so; AssertionError where it does not become so on a machine however busy."""
    until = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < until
        time.sleep(0.02)


def ends(run: Path) -> tuple[dict[str, torch.Tensor], list[tuple]]:
    """What a run ended with: weights and moments, and every step but its time."""
    last = max((run / checkpoint.FOLDER).glob("step-*"))
    tensors = load_file(last / checkpoint.WEIGHTS) | load_file(last / checkpoint.OPTIMIZER)
    rows = pq.read_table(run / "metrics.parquet").drop_columns(["seconds"]).to_pylist()
    return tensors, [tuple(row.items()) for row in rows]


def same(one: dict[str, torch.Tensor], two: dict[str, torch.Tensor]) -> bool:
    """Bit for bit."""
    return one.keys() == two.keys() and all(torch.equal(one[name], two[name]) for name in one)


def batch(rows: list[list[list[int]]], length: int, masked: list[list[int]] | None = None) -> Batch:
    """A batch of rows, each a list of segments of ids; masked: in each row positions that are not to be predicted."""
    sizes = [[len(segment) for segment in row] for row in rows]
    flat = [size for row in sizes for size in row]
    ids = np.zeros((len(rows), length), np.int32)
    mask = np.ones((len(rows), length), bool)
    for at, row in enumerate(rows):
        joined = [token for segment in row for token in segment]
        ids[at, : len(joined)] = joined
        mask[at, (masked or [[]] * len(rows))[at]] = False
    offsets = np.concatenate(([0], np.cumsum([len(row) for row in sizes]))).astype(np.int64)
    n_tokens = np.array([sum(row) for row in sizes], np.int32)
    rows_ = Rows(np.array([at if row else -1 for at, row in enumerate(rows)], np.int64), ids, offsets,
                 np.array(flat, np.int32), np.arange(len(flat)), np.zeros(len(flat), np.int32),
                 np.full(len(flat), 3, np.uint8), np.zeros(len(flat), np.int16), mask if masked else None,
                 n_tokens, np.zeros(len(rows), np.int32))  # fmt: skip
    n_targets = (Batch(rows_).labels[:, :-1] != -100).sum(axis=1).astype(np.int32)
    return Batch(Rows(**{**rows_.__dict__, "n_targets": n_targets}))


def uneven() -> Batch:
    """16 rows of 13 ids, 8 with one target and 8 with twelve: 8 against 96 targets."""
    draw = np.random.default_rng(3)
    rows = [[draw.integers(0, 16, 2 if at < 8 else 13).tolist()] for at in range(16)]
    return batch(rows, 13)


def step(
    *settings: str,
    double: bool = False,
    tell=lambda event, facts: None,
    positions: int = 12,
    vocabulary: int = 16,
    **keys,
) -> Any:
    """A step of a small model, without a run around it."""
    made = manifest(Path("/nowhere/builds"), *settings, **keys).train
    torch.manual_seed(made.seed)
    model = build(made.model, vocabulary, positions)
    if double:
        model = model.double()
    return Step(model, adamw(model, made.optimizer), made, parallel.Parallel(), float(made.steps), tell)


def gradients(one: Any, window: list[Batch]) -> dict[str, torch.Tensor]:
    """What the optimizer was given for a window."""
    found: dict[str, torch.Tensor] = {}

    def keep(*_: object) -> None:
        for name, parameter in one.model.named_parameters():
            if parameter.grad is not None:
                found[name] = parameter.grad.clone()

    hook = one.optimizer.register_step_pre_hook(keep)
    one.run(window)
    hook.remove()
    return found
