"""
What a loader has delivered, as a small JSON object that is the same on every rank; and where to go on.

It names the data by dataset_id and the order by what decides it.  World size, rank, workers and prefetching are not in
it: they may change at any batch.
"""

import datetime
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import numpy as np
import xxhash
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from datapipe.build_manifest import consumers, resolve
from datapipe.build_manifest import load as load_manifest
from datapipe.errors import DriftError, ManifestError
from datapipe.feed.batch import Rows
from datapipe.rows import targets
from datapipe.units import digest

VERSION = 1
COUNTED = ("rows", "tokens", "targets")
KINDS = ("run", "checkpoint")  # of consumers
Count = Annotated[int, Field(ge=0, lt=1 << 62)]


class _Entry(BaseModel):
    model_config = ConfigDict(strict=True, frozen=True, extra="forbid")


class Data(_Entry):
    """A split that is read."""

    dataset_id: str
    split: str
    rows: Count


class Counts(_Entry):
    """tokens: positions that hold one; of a source, rows in which it has a segment."""

    rows: Count
    tokens: Count
    targets: Count


class Consumed(Counts):
    by_source: dict[str, Counts]


class Mix(_Entry):
    """weights: from which global batch on; positions: (epoch, position) of each split; amounts: since those weights."""

    unit: str
    weights: list[Annotated[tuple[Count, dict[str, Annotated[float, Field(ge=0, allow_inf_nan=False)]]],
                            Field(strict=False)]] = Field(min_length=1)  # fmt: skip
    positions: dict[str, Annotated[tuple[Count, Count], Field(strict=False)]]
    amounts: dict[str, Count]


class State(_Entry):
    """state_dict() of a loader; epoch, batch: the next to be delivered."""

    version: int
    datasets: dict[str, Data]
    order_id: str
    order: str
    seed: int
    global_batch_rows: Count
    tail: str
    mix: Mix | None
    epoch: Count
    batch: Count
    consumed: Consumed
    digest: Annotated[str, Field(pattern="^[0-9a-f]{32}$")]


@dataclass(frozen=True)
class Identity:
    """What does not change while a loader runs: the first half of its state."""

    datasets: Mapping[str, Mapping[str, Any]]
    sources: tuple[str, ...]
    order: str
    seed: int
    global_batch_rows: int
    tail: str
    unit: str | None
    length: int

    @cached_property
    def _named(self) -> dict[str, Any]:
        return {"order": self.order, "seed": self.seed, "global_batch_rows": self.global_batch_rows, "tail": self.tail}

    @cached_property
    def order_id(self) -> str:
        """sha256 of all that decides which rows come when."""
        return digest([VERSION, self.datasets, self.unit, self.length, self._named])

    def as_json(self) -> dict[str, Any]:
        datasets = {name: dict(entry) for name, entry in self.datasets.items()}
        return {"version": VERSION, "datasets": datasets, "order_id": self.order_id, **self._named}


@dataclass(frozen=True)
class Mixed:
    """
    Where a mix stands: weights[i] from global batch weights[i][0] on; (epoch, position) and the amount since the last
    change of weights of each split.
    """

    weights: tuple[tuple[int, tuple[float, ...]], ...]
    positions: tuple[tuple[int, int], ...]
    amounts: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Progress:
    """
    What was delivered: global batches before (epoch, batch).

    counts: int64[1 + sources, 3], rows, tokens, targets of all and of each source;  digest: of all row ids in order
    """

    identity: Identity
    epoch: int
    batch: int
    counts: np.ndarray
    digest: str
    mixed: Mixed | None

    @classmethod
    def start(cls, identity: Identity, mixed: Mixed | None) -> Self:
        zeros = np.zeros((1 + len(identity.sources), 3), np.int64)
        return cls(identity, 0, 0, zeros, xxhash.xxh3_128_hexdigest(b""), mixed)

    def moved(self, split: np.ndarray, row_ids: np.ndarray, batches: int, mixed: Mixed | None) -> Self:
        """One global batch on, uncounted; split: int16[rows], row_ids: int64[rows]; batches: in an epoch."""
        seen = self.digest.encode() + split.astype("<i2").tobytes() + row_ids.astype("<i8").tobytes()
        over = self.batch + 1 == batches
        return replace(self, epoch=self.epoch + over, batch=0 if over else self.batch + 1, mixed=mixed,
                       digest=xxhash.xxh3_128_hexdigest(seen))  # fmt: skip

    def counted(self, rows: Rows) -> Self:
        """With the rows of a global batch counted in; narrow ones will do."""
        return replace(self, counts=self.counts + count(rows, len(self.identity.sources)))

    def state(self) -> dict[str, Any]:
        identity, (every, *each) = self.identity, self.counts.tolist()
        names = tuple(identity.datasets)
        mix = self.mixed and {
            "unit": identity.unit,
            "weights": [[first, dict(zip(names, weights, strict=True))] for first, weights in self.mixed.weights],
            "positions": {name: list(at) for name, at in zip(names, self.mixed.positions, strict=True)},
            "amounts": dict(zip(names, self.mixed.amounts, strict=True)),
        }
        by_source = {name: dict(zip(COUNTED, row, strict=True))
                     for name, row in zip(identity.sources, each, strict=True)}  # fmt: skip
        consumed = dict(zip(COUNTED, every, strict=True)) | {"by_source": by_source}
        return identity.as_json() | {"mix": mix, "epoch": self.epoch, "batch": self.batch, "consumed": consumed,
                                     "digest": self.digest}  # fmt: skip


def count(rows: Rows, sources: int) -> np.ndarray:
    """int64[1 + sources, 3]: rows, tokens, targets of all and by source; empty rows are not counted."""
    found = np.zeros((1 + sources, 3), np.int64)
    found[0] = int((rows.row_ids >= 0).sum()), int(rows.n_tokens.sum()), int(rows.n_targets.sum())
    counts = np.diff(rows.offsets)
    if sources == 1:
        found[1] = np.count_nonzero(counts), *found[0, 1:]
        return found
    holds = np.zeros((len(rows), sources), bool)
    holds[np.repeat(np.arange(len(rows)), counts), rows.seg_source] = True
    found[1:, 0] = np.count_nonzero(holds, axis=0)
    for column, each in ((1, rows.seg_len), (2, _targets(rows))):
        found[1:, column] = np.bincount(rows.seg_source, each, sources)  # sums of a batch: whole, far below 2^53
    return found


def _targets(rows: Rows) -> np.ndarray:
    """Targets of each segment."""
    if rows.mask is None:
        return rows.seg_len - 1
    length = rows.mask.shape[1]
    before = np.concatenate(([0], np.cumsum(targets(rows.offsets, rows.seg_len, length, rows.mask))))
    row = np.repeat(np.arange(len(rows)), np.diff(rows.offsets))
    ends = np.concatenate(([0], np.cumsum(rows.seg_len, dtype=np.int64)))
    first = row * length + ends[:-1] - ends[rows.offsets[row]]
    return before[first + rows.seg_len] - before[first]


def parse(state: Mapping[str, Any]) -> State:
    """A state as its keys say; DriftError names the first that is not right."""
    if not isinstance(state, Mapping) or state.get("version") != VERSION:
        told = state.get("version") if isinstance(state, Mapping) else type(state).__name__
        raise DriftError(f"version: the state says {told!r}, this loader reads {VERSION}")
    try:
        return State.model_validate(dict(state))
    except ValidationError as error:
        wrong = error.errors()[0]
        raise DriftError(f"{'.'.join(map(str, wrong['loc']))}: not the state of a loader: {wrong['msg']}") from None


def restore(state: Mapping[str, Any], identity: Identity, batches: int) -> Progress:
    """
    The progress a state describes, if it is of this loader; else DriftError, naming the field and both values.

    batches: global batches in an epoch of this loader
    """
    found, ours = parse(state), identity.as_json()
    for name in ("order", "seed", "global_batch_rows", "tail"):
        _same(name, getattr(found, name), ours[name])
    _same("mix.unit", found.mix and found.mix.unit, identity.unit)
    _same("datasets", sorted(found.datasets), sorted(identity.datasets))
    for name, entry in identity.datasets.items():
        for key, value in entry.items():
            _same(f"datasets.{name}.{key}", getattr(found.datasets[name], key), value)
    _same("order_id", found.order_id, ours["order_id"])
    _same("consumed.by_source", sorted(found.consumed.by_source), sorted(identity.sources))
    if found.batch >= batches:
        raise DriftError(f"batch: the state says {found.batch}, an epoch of this loader has {batches}")
    consumed = [found.consumed, *(found.consumed.by_source[name] for name in identity.sources)]
    counts = np.array([[getattr(entry, key) for key in COUNTED] for entry in consumed], np.int64)
    mixed = found.mix and _mixed(found.mix, identity, found.epoch * batches + found.batch)
    return Progress(identity, found.epoch, found.batch, counts, found.digest, mixed)


def _mixed(mix: Mix, identity: Identity, step: int) -> Mixed:
    names = tuple(identity.datasets)
    for key, held in (
        ("positions", mix.positions),
        ("amounts", mix.amounts),
        *(("weights", w) for _, w in mix.weights),
    ):
        _same(f"mix.{key}", sorted(held), sorted(names))
    for name, (_, position) in mix.positions.items():
        if position >= identity.datasets[name]["rows"]:
            rows = identity.datasets[name]["rows"]
            raise DriftError(f"mix.positions.{name}: the state says {position}, the split has {rows} rows")
    firsts = [first for first, _ in mix.weights]
    if firsts[0] or firsts != sorted(set(firsts)) or firsts[-1] > step:
        raise DriftError(f"mix.weights: begin at batches {firsts}, which do not rise from 0 to at most {step}")
    for first, each in mix.weights:
        if not any(each.values()):
            raise DriftError(f"mix.weights: all are 0 from batch {first} on")
    for name, weight in mix.weights[-1][1].items():
        if mix.amounts[name] and not weight:
            raise DriftError(f"mix.amounts.{name}: the state says {mix.amounts[name]}, at a weight of 0")
    weights = tuple((first, tuple(each[name] for name in names)) for first, each in mix.weights)
    return Mixed(weights, tuple(mix.positions[n] for n in names), tuple(mix.amounts[n] for n in names))


def _same(name: str, told: object, ours: object) -> None:
    if told != ours:
        raise DriftError(f"{name}: the state says {told!r}, this loader has {ours!r}")


def consumed(
    build: str | Path, state: Mapping[str, Any], path: str | Path, *, kind: Literal["run", "checkpoint"] = "run",
    **notes: Any,
) -> Path:  # fmt: skip
    """
    Register a run or checkpoint of any trainer as a consumer of a build; the file of its record.

    path:   where the run or checkpoint lies; a record of the same kind and path is replaced
    notes:  whatever else the record should hold, as JSON
    """
    if kind not in KINDS:
        raise ManifestError(f"kind: {kind!r} is none of {', '.join(KINDS)}")
    if "://" in str(build):
        raise ManifestError(f"{build}: consumers are recorded in the build's folder, which must be one of this machine")
    try:
        json.dumps(notes, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise ManifestError(f"notes: they are kept as JSON: {error}") from None
    seen, folder = parse(state), resolve(str(build))
    dataset_id = load_manifest(folder).dataset_id
    read = {name: entry for name, entry in seen.datasets.items() if entry.dataset_id == dataset_id}
    if not read:
        told = ", ".join(sorted(entry.dataset_id for entry in seen.datasets.values()))
        raise DriftError(f"dataset_id: the state says {told}, {folder} has {dataset_id}")
    where = str(path) if "://" in str(path) else str(Path(path).resolve())
    record = {
        "path": where,
        "dataset_id": dataset_id,
        "splits": sorted({entry.split for entry in read.values()}),
        "registered": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "epoch": seen.epoch,
        "batch": seen.batch,
        "consumed": seen.consumed.model_dump(),
        "state": dict(state),
    }
    return consumers.write(folder, kind, digest([kind, where, dataset_id]), record | {"notes": notes})
