"""
Checkpoints of training: written whole or not at all, checked when read, the last good one kept.

runs/<name>/checkpoints/step-00000050/
  weights.safetensors   whole tensors by name
  moments.safetensors   AdamW's moments and each parameter's own step          from R1
  metrics.parquet       the curve so far
  state.json            everything else, as JSON: nothing in a checkpoint can run code
  digests.json          sha256 of the files above; without it there is no checkpoint

Levels (what a run that goes on from it has again; how far it was, and so the schedule, it knows at each):
  R0  weights    R1  and moments    R2  and the exact next batch
  R3  and random numbers: the same bits as a run that was never stopped, with the same software, ranks and threads
"""

import json
import os
import platform
import random
import shutil
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import safetensors
import safetensors.torch
import torch

from datapipe import __version__
from datapipe.errors import DataError, IntegrityError
from datapipe.train.parallel import MOMENTS, State
from datapipe.units import file_sha256, fsync_folder

FOLDER = "checkpoints"
WEIGHTS, OPTIMIZER, METRICS, FACTS, DIGESTS = (
    "weights.safetensors", "moments.safetensors", "metrics.parquet", "state.json", "digests.json",
)  # fmt: skip
FILES = (WEIGHTS, OPTIMIZER, METRICS, FACTS)
LEVELS = ("R0", "R1", "R2", "R3")


class DamagedCheckpointWarning(UserWarning):
    """A checkpoint is not what its digests say; an older one is used."""


@dataclass(frozen=True)
class Saved:
    """
    What a checkpoint holds.

    facts: level, step, config, dataset_id, build, objective, counters, scale, loader, seen, random, software, ...
    """

    state: State
    facts: dict[str, Any]
    metrics: pa.Table


def save(run: Path, saved: Saved, keep: int) -> Path:
    """Write the checkpoint of a step, then sweep all but the newest `keep`."""
    home = run / FOLDER
    home.mkdir(parents=True, exist_ok=True)
    target = home / f"step-{saved.facts['step']:08d}"
    temporary = home / f".{target.name}-{os.getpid()}"
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir()
    written = [_write(temporary / name, data) for name, data in _files(saved)]
    digests = {path.name: file_sha256(path) for path in written}
    _write(temporary / DIGESTS, json.dumps(digests, indent=1).encode())
    fsync_folder(temporary)
    if target.exists():  # a damaged one of the same step, that a resumed run has come to again
        shutil.rmtree(target)
    temporary.rename(target)
    fsync_folder(home)
    _sweep(home, target, keep)
    return target


def _files(saved: Saved) -> list[tuple[str, bytes]]:
    level = LEVELS.index(saved.facts["level"])
    moments = {f"{moment}.{name}": tensor for moment in MOMENTS for name, tensor in saved.state[moment].items()}
    sink = pa.BufferOutputStream()
    pq.write_table(saved.metrics, sink)
    files = [(WEIGHTS, safetensors.torch.save(_plain(saved.state["weights"])))]
    if level >= LEVELS.index("R1"):
        files.append((OPTIMIZER, safetensors.torch.save(_plain(moments))))
    return [*files, (METRICS, sink.getvalue().to_pybytes()), (FACTS, json.dumps(saved.facts, indent=1).encode())]


def _plain(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {name: tensor.contiguous() for name, tensor in tensors.items()}


def _write(path: Path, data: bytes) -> Path:
    with open(path, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    return path


def _sweep(home: Path, newest: Path, keep: int) -> None:
    """
    Remove all but the newest `keep`, and what killed runs left.  What is there of later steps was damaged, else the
    run would have gone on from it: it must not take the place of a good one.
    """
    found = _found(home)
    last = found.index(newest) + 1
    for path in [*found[: max(0, last - keep)], *found[last:], *home.glob(".step-*")]:
        shutil.rmtree(path, ignore_errors=True)


def _found(home: Path) -> list[Path]:
    return sorted(home.glob("step-*"))


def load(run: Path) -> Saved:
    """The newest good checkpoint of a run; damaged ones are named in a warning."""
    found = _found(run / FOLDER)
    for path in reversed(found):
        try:
            return read(path)
        except IntegrityError as error:
            warnings.warn(f"{error}; looking for an older one", DamagedCheckpointWarning, stacklevel=2)
    what = f"none of its {len(found)} checkpoints is whole" if found else "it has no checkpoint yet"
    raise DataError(f"{run}: {what}; start again without --resume" + (", under another `name`" if found else ""))


def read(path: Path) -> Saved:
    """A checkpoint, its files checked; IntegrityError names the one that is not as it was written."""
    try:
        digests = json.loads((path / DIGESTS).read_bytes())
    except (OSError, ValueError):
        digests = None
    if not isinstance(digests, dict) or not {WEIGHTS, METRICS, FACTS} <= digests.keys() <= {*FILES}:
        raise IntegrityError(f"{path / DIGESTS} is missing or not as it was written")
    for name, digest in digests.items():
        if not (path / name).is_file():
            raise IntegrityError(f"{path / name} is missing")
        if file_sha256(path / name) != digest:
            raise IntegrityError(f"{path / name}: its bytes are not those that were written")
    facts = json.loads((path / FACTS).read_bytes())
    state: State = {"weights": safetensors.torch.load((path / WEIGHTS).read_bytes())} | {m: {} for m in MOMENTS}
    if OPTIMIZER in digests:
        for name, tensor in safetensors.torch.load((path / OPTIMIZER).read_bytes()).items():
            moment, _, parameter = name.partition(".")
            state[moment][parameter] = tensor
    return Saved(state, facts, pq.read_table(path / METRICS))


# --- random numbers, and what the same bits depend on ----------------------------------------------------------


def random_state() -> dict[str, Any]:
    """The state of Python's, NumPy's and torch's generators, as JSON."""
    version, words, gauss = random.getstate()
    kind, keys, position, has, cached = np.random.get_state(legacy=True)  # noqa: NPY002  whoever draws from it is put back
    return {
        "python": [version, list(words), gauss],
        "numpy": [kind, [int(key) for key in keys], int(position), int(has), float(cached)],
        "torch": torch.get_rng_state().numpy().tobytes().hex(),
    }


def restore_random(states: Sequence[dict[str, Any]], rank: int) -> bool:
    """Puts a rank's generators back; False where the checkpoint has none for it."""
    if rank >= len(states):
        return False
    found = states[rank]
    version, words, gauss = found["python"]
    random.setstate((version, tuple(words), gauss))
    kind, keys, position, has, cached = found["numpy"]
    np.random.set_state((kind, np.array(keys, np.uint32), position, has, cached))  # noqa: NPY002
    torch.set_rng_state(torch.frombuffer(bytearray.fromhex(found["torch"]), dtype=torch.uint8))
    return True


def software(ranks: int) -> dict[str, Any]:
    """What the same bits depend on beside the numbers in a checkpoint."""
    return {
        "datapipe": __version__,
        "torch": torch.__version__,
        "numpy": np.__version__,
        "python": platform.python_version(),
        "machine": platform.machine(),
        "threads": torch.get_num_threads(),
        "ranks": ranks,
    }
