"""
Batches of a training job: the same global batches for every world size, from any point on.

Global batch g of an epoch holds positions g x G to (g + 1) x G of the epoch's order; rank r takes r, r + world, ... of
them.  A batch is made from (epoch, g) alone, by a thread ahead of the caller; the loader's position moves when a batch
is handed out, not when it is read.
"""

import operator
import pickle
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Literal, Self

import numpy as np
import pyarrow as pa

from datapipe.errors import DriftError, ManifestError
from datapipe.feed import order as orders
from datapipe.feed.ahead import Ahead
from datapipe.feed.batch import TENSORS, Batch, Readable, Tensors
from datapipe.feed.course import Course, plot
from datapipe.feed.mixture import UNITS, Drawn, weighed
from datapipe.feed.state import Mixed, Progress, restore

TAILS = ("drop", "pad", "wrap")
OUTPUTS = ("numpy", "torch", "hf")
PLAN = pa.schema(
    [
        ("step", pa.int64()),  # global batch of the epoch
        ("position", pa.int64()),  # of the row in the epoch: step x G + place in the batch
        ("row_id", pa.int64()),
        ("doc", pa.int64()),  # row of fates.parquet
        ("doc_id", pa.string()),
        ("source", pa.string()),
        ("start", pa.int32()),  # token of the document that the segment begins with
        ("tokens", pa.int32()),
    ]
)


class Loader:
    """
    Batches of one split, or of several by weight: {name: (split, weight)}.

    global_batch_rows  G, rows of all ranks together in a batch
    rank, world        which part of each batch; world divides G, and both may change at any batch
    seed, order        block-v1 | feistel-v1 | sequential, see order.py
    mix_unit           what weights weigh: tokens | rows | documents
    tail               rows beyond an epoch's last whole batch: drop | pad (empty rows) | wrap (the first ones again)
    prefetch           batches read ahead, by a thread of this process; 0: none
    output             numpy: Batch | torch: Batch.torch() | hf: Batch.hf() | names of tensors: those of Batch.torch()

    `for batch in loader` gives the rest of the epoch; then the loader stands at the start of the next one.
    """

    def __init__(
        self,
        data: Readable | Mapping[str, tuple[Readable, float]],
        *,
        global_batch_rows: int,
        rank: int = 0,
        world: int = 1,
        seed: int = 0,
        order: str = "block-v1",
        mix_unit: str = "tokens",
        tail: str = "drop",
        prefetch: int = 2,
        output: Literal["numpy", "torch", "hf"] | Sequence[str] = "numpy",
    ) -> None:
        global_batch_rows = _whole("global_batch_rows", global_batch_rows, 1)
        world, rank = _whole("world", world, 1), _whole("rank", rank, 0)
        seed, prefetch = _whole("seed", seed, None), _whole("prefetch", prefetch, 0)
        if rank >= world:
            raise ManifestError(f"rank: {rank} is not below world {world}")
        if global_batch_rows % world:
            raise ManifestError(f"world: {world} does not divide global_batch_rows {global_batch_rows}")
        whole = isinstance(output, str)
        outputs = [(name, OUTPUTS if whole else TENSORS) for name in ([output] if whole else output)]
        for name, value, known in (("order", order, orders.KINDS), ("tail", tail, TAILS), ("mix_unit", mix_unit, UNITS),
                                   *(("output", *each) for each in outputs)):  # fmt: skip
            if value not in known:
                raise ManifestError(f"{name}: {value!r} is none of {', '.join(known)}")
        given: dict[str, tuple[Readable, float]] | None = None
        if isinstance(data, Mapping):
            given = _pairs(data)
            named = {name: split for name, (split, _) in given.items()}
        else:
            named = {_split(data).name: data}
        if given is not None and tail != "drop":
            raise ManifestError(f"tail: {tail!r}, but a mix has none: each of its splits goes on in its next epoch")
        unit = None if given is None else mix_unit
        self._course = plot(named, unit, global_batch_rows, rank, world, seed, order, tail)
        self._prefetch, self._output = prefetch, output
        start = None
        if given is not None and self._course.mixture:
            weights = weighed({name: weight for name, (_, weight) in given.items()}, tuple(named))
            start = self._course.mixture.start(weights)
            for (name, split), weight in zip(named.items(), weights, strict=True):
                if weight and not split.rows:
                    raise ManifestError(f"weight of {name}: {weight:g}, but its split {split.name} has no rows")
        self._at = Progress.start(self._course.identity, start)
        self._ahead: Ahead | None = None
        self._turn = 0

    @property
    def sources(self) -> tuple[str, ...]:
        """What a batch's `sources` number; in a mix "name/source"."""
        return self._course.identity.sources

    @property
    def position(self) -> tuple[int, int]:
        """(epoch, global batch) that comes next."""
        return self._at.epoch, self._at.batch

    @property
    def epoch(self) -> int:
        return self._at.epoch

    @property
    def progress(self) -> Progress:
        return self._at

    @property
    def course(self) -> Course:
        return self._course

    def __len__(self) -> int:
        """Global batches in an epoch."""
        return self._course.batches

    def __iter__(self) -> Iterator[Any]:
        """The rest of the current epoch.  A loader has one iteration at a time: a new one ends the one before."""
        return self._run(forever=False)

    def forever(self) -> Iterator[Any]:
        """Batches epoch after epoch, without an end."""
        return self._run(forever=True)

    def _run(self, *, forever: bool) -> Iterator[Any]:
        self.close()
        number = None if forever else len(self) - self._at.batch  # from where the first batch is asked for
        turn, ahead = self._turn, Ahead(self._course, self._at, number, self._prefetch, partial(formed, self._output))
        self._ahead = ahead
        try:
            for at, batch in ahead:
                if turn != self._turn:
                    break
                self._at = at
                yield batch
            if turn != self._turn:
                raise RuntimeError("this iteration is over: another began, the loader was closed or moved, or its "
                                   "weights changed; iterate over it again, and it goes on")  # fmt: skip
        finally:
            ahead.close()

    def form(self, batch: Batch) -> Batch | Tensors:
        """A batch as `output` asks."""
        return formed(self._output, batch)

    def move(self, at: Progress) -> None:
        """Stand at a progress of this loader: what another process has delivered."""
        self.close()
        self._at = at

    def batch_at(self, g: int, epoch: int = 0) -> Any:
        """
        Global batch g of an epoch, wherever the loader stands; it has no state, and the loader does not move.

        Of a mix it is found by drawing all batches before it, from the start or from where the loader stands.
        """
        g, epoch = operator.index(g), operator.index(epoch)
        if not 0 <= g < len(self) or epoch < 0:
            raise IndexError(f"batch {g} of epoch {epoch}: an epoch has {len(self)} batches")
        return self.form(replace(self._course.batch(self._reach(epoch, g)), progress=None))

    def _reach(self, epoch: int, g: int) -> Progress:
        at = self._at
        if at.mixed is None:
            return replace(at, epoch=epoch, batch=g)
        if (epoch, g) < (at.epoch, at.batch):
            at = self._beginning(at.mixed)
        return self._until(at, epoch, g, self._at.mixed)

    def _beginning(self, mixed: Mixed | None) -> Progress:
        """Before the first batch, with a history's first weights."""
        start = self._course.mixture.start(mixed.weights[0][1]) if self._course.mixture and mixed else None
        return Progress.start(self._course.identity, start)

    def _until(self, at: Progress, epoch: int, g: int, told: Mixed | None) -> Progress:
        """Draw batches until (epoch, g) comes next, with the changes of weights that `told` knows."""
        while (at.epoch, at.batch) < (epoch, g):
            at = self._course.moved(self._weighted(at, told))
        return self._weighted(at, told)

    def _weighted(self, at: Progress, told: Mixed | None) -> Progress:
        """With the weights that hold from there."""
        history = told.weights if told else ()
        step = at.epoch * len(self) + at.batch
        entry = next((entry for entry in history if entry[0] == step), None)
        return at if entry is None or at.mixed is None or entry in at.mixed.weights else _reweighted(at, entry)

    def plan(self, first: int, stop: int, epoch: int = 0) -> pa.Table:
        """Which documents global batches first to stop of an epoch see (PLAN): all ranks, in order, no ids read."""
        first, stop, epoch = operator.index(first), operator.index(stop), operator.index(epoch)
        if not 0 <= first <= stop <= len(self) or epoch < 0:
            raise IndexError(f"batches {first} to {stop} of epoch {epoch}: an epoch has {len(self)} batches")
        parts, at = [PLAN.empty_table()], self._reach(epoch, first) if first < stop else None
        for step in range(first, stop):
            assert at is not None
            drawn = self._course.draw(at)
            parts.append(self._planned(step, drawn))
            at = self._weighted(self._course.moved(at), self._at.mixed)
        return pa.concat_tables(parts).combine_chunks()

    def _planned(self, step: int, drawn: Drawn) -> pa.Table:
        stored = np.flatnonzero(drawn.row_ids >= 0)
        rows = self._course.read(drawn.split, drawn.row_ids, narrow=True)
        row = np.repeat(np.arange(len(rows)), np.diff(rows.offsets))
        split = drawn.split[stored][row]
        doc_ids = np.empty(len(row), object)
        for number, each in enumerate(self._course.splits):
            if (here := split == number).any():
                doc_ids[here] = each.doc_ids(rows.seg_doc[here])
        columns = [np.full(len(row), step), step * self._course.size + stored[row], rows.row_ids[row], rows.seg_doc,
                   doc_ids, np.array(self.sources, object)[rows.seg_source], rows.seg_start, rows.seg_len]  # fmt: skip
        arrays = [pa.array(column, field.type) for column, field in zip(columns, PLAN, strict=True)]
        return pa.Table.from_arrays(arrays, schema=PLAN)

    def tail_rows(self, epoch: int | None = None) -> np.ndarray:
        """int64[k]: row ids that an epoch drops (drop) or repeats (wrap); -1 for each row of padding (pad)."""
        course, epoch = self._course, self.epoch if epoch is None else epoch
        if course.mixture:
            return np.empty(0, np.int64)
        rows, seen = course.splits[0].rows, len(self) * course.size
        if seen <= rows:
            return course.orders[0].rows(epoch, seen, rows)
        return course.filling(epoch, seen - rows)

    def reweight(self, weights: Mapping[str, float]) -> None:
        """New weights of a mix from the next batch on; the state records from which."""
        if self._at.mixed is None:
            raise ManifestError("weights: this loader reads one split, not a mix")
        names = tuple(self._course.identity.datasets)
        self.close()
        self._at = _reweighted(self._at, (self._at.epoch * len(self) + self._at.batch, weighed(weights, names)))

    def state_dict(self) -> dict[str, Any]:
        """What was delivered (JSON; equal on all ranks): see state.py."""
        return self._at.state()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where a state says; DriftError names the field in which it is of other data or another order."""
        at = restore(state, self._course.identity, len(self))
        if at.mixed and self._at.mixed:
            now, history = self._at.mixed.weights[-1][1], at.mixed.weights
            if now not in (history[0][1], history[-1][1]):
                raise DriftError(f"mix.weights: the state says {history[-1][1]!r}, this loader has {now!r}; "
                                 "load it with the state's weights, then reweight()")  # fmt: skip
        self.close()
        self._at = at

    def verify(self, state: Mapping[str, Any]) -> None:
        """Draw all batches again from the beginning; DriftError where the state's digest is of other rows."""
        told = restore(state, self._course.identity, len(self))
        at = self._until(self._beginning(told.mixed), told.epoch, told.batch, told.mixed)
        if at.digest != told.digest:
            raise DriftError(f"digest: the state says {told.digest}, the rows up to epoch {told.epoch}, "
                             f"batch {told.batch} give {at.digest}")  # fmt: skip

    def close(self) -> None:
        """End the iteration under way and its thread; the position stays."""
        self._turn += 1
        if self._ahead is not None:
            self._ahead.close()
            self._ahead = None

    def copy(self) -> Self:
        """The same loader at the same position, with no file, lock or thread in common."""
        return pickle.loads(pickle.dumps(self))  # noqa: S301  our own bytes

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_ahead": None}


def formed(output: str | Sequence[str], batch: Batch) -> Batch | Tensors:
    """A batch as a loader's `output` asks."""
    if output == "numpy":
        return batch
    if output == "hf":
        return batch.hf()
    return batch.torch(names=TENSORS if output == "torch" else output)


def _reweighted(at: Progress, entry: tuple[int, tuple[float, ...]]) -> Progress:
    assert at.mixed is not None
    before = tuple(one for one in at.mixed.weights if one[0] < entry[0])
    return replace(at, mixed=Mixed((*before, entry), at.mixed.positions, tuple(0 for _ in at.mixed.amounts)))


def _pairs(data: Mapping[str, tuple[Readable, float]]) -> dict[str, tuple[Readable, float]]:
    """A mix by name, in the order of names."""
    for name, pair in data.items():
        if not isinstance(name, str):
            raise ManifestError(f"{name!r}: the name of a split in a mix is a string")
        if not isinstance(pair, (tuple, list)) or len(pair) != 2:
            raise ManifestError(f"{name}: expected (split, weight), not {type(pair).__name__}")
        _split(pair[0], f"{name}: ")
    if not data:
        raise ManifestError("a mix needs at least one split")
    return {name: data[name] for name in sorted(data)}


def _split(data: Readable, where: str = "") -> Readable:
    if not all(hasattr(data, name) for name in ("read", "narrow", "blocks", "dataset_id")):
        hint = "; its splits are .train and .validation" if hasattr(data, "train") else ""
        raise ManifestError(f"{where}a loader reads a split of a build, not a {type(data).__name__}{hint}")
    return data


def _whole(name: str, value: int, least: int | None) -> int:
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or (least is not None and value < least):
        raise ManifestError(f"{name}: {value!r} is no whole number" + ("" if least is None else f" of {least} or more"))
    return int(value)
