"""
manifests/TRAINING.md from the types: every key of a train manifest.

`python -m datapipe.train.describe manifests` writes it anew.
"""

import sys
from pathlib import Path

from datapipe.manifest import describe, shape
from datapipe.train.config import TrainManifest

FILE = "TRAINING.md"
HEAD = """\
# Train manifests

What `datapipe train` takes: one YAML file with `train:` at the top, beside a build. `train-cyclic16.yaml`,
`train-demo.yaml` and `train-stdlib.yaml` here are such files; `README.md` has the keys of what builds data, and how
values are written.

<!-- written by `python -m datapipe.train.describe manifests`; a test compares it with the types -->

* Required are `name`, `build` and `steps`; every other key has a default. The vocabulary is that of the build's
  tokenizer, and rows are as long as the build made them.
* A key that is not listed here is a mistake; all mistakes are reported at once, as `file:line: key: problem`.
* Paths are relative to the manifest's folder; a `build` with a `/` in it is a path, another one a name under `builds`.
* `--set optimizer.lr=1e-4 steps=200` on the command line replaces values below `train`.
* *recompute* is of activations, in the backward pass; a *checkpoint* is the saved state of a run; *resume* goes on
  from one.
* A resumed run may change `steps`, `checkpoint`, `evaluate`, `data.verify`, and where things lie; also `threads`,
  `parallel`, `data.microbatch_rows` and the number of ranks, which only change how sums are rounded, and end level R3.
  Anything else, or another data set, is refused by name (status 5).
"""


def page() -> str:
    """The whole text."""
    sections = [describe.section(path, entry) for path, entry in shape.every_entry(TrainManifest) if path]
    return HEAD + "\n" + "\n".join(sections)


if __name__ == "__main__":
    (Path(sys.argv[1]) / FILE).write_text(page(), "utf-8")
