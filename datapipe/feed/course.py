"""Which rows each global batch holds, and how they are read and counted: a loader without its position."""

import itertools
import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from datapipe.errors import ManifestError
from datapipe.feed.batch import Batch, Readable, Rows
from datapipe.feed.mixture import Drawn, Mixture
from datapipe.feed.order import Order
from datapipe.feed.state import Identity, Progress

log = logging.getLogger("datapipe.feed")


@dataclass(frozen=True, eq=False)
class Course:
    """
    Which rows each global batch holds, and how they are read: all that a thread or worker needs, without a position.

    numbers: for each split int16[its sources], their numbers in identity.sources
    """

    splits: tuple[Readable, ...]
    orders: tuple[Order, ...]
    numbers: tuple[np.ndarray, ...]
    mixture: Mixture | None
    identity: Identity
    rank: int
    world: int

    @property
    def size(self) -> int:
        return self.identity.global_batch_rows

    @property
    def batches(self) -> int:
        """Global batches in an epoch; of a mix, as many as its splits have rows for."""
        rows = sum(split.rows for split in self.splits)
        return rows // self.size if self.mixture or self.identity.tail == "drop" else -(-rows // self.size)

    def draw(self, at: Progress) -> Drawn:
        """The global batch at a position."""
        if self.mixture and at.mixed:
            return self.mixture.draw(at.mixed)
        first, rows = at.batch * self.size, self.splits[0].rows
        found = self.orders[0].rows(at.epoch, first, min(first + self.size, rows))
        if (missing := self.size - len(found)) > 0:
            found = np.concatenate((found, self.filling(at.epoch, missing)))
        return Drawn(np.zeros(self.size, np.int16), found, None)

    def filling(self, epoch: int, missing: int) -> np.ndarray:
        """int64[missing]: what fills the last batch, -1 for padding."""
        if self.identity.tail == "pad":
            return np.full(missing, -1, np.int64)
        rows = self.splits[0].rows
        return np.resize(self.orders[0].rows(epoch, 0, min(missing, rows)), missing)

    def batch(self, at: Progress) -> Batch:
        """This rank's part of the global batch at a position."""
        drawn = self.draw(at)
        mine = slice(self.rank, None, self.world)
        rows = self.read(drawn.split[mine], drawn.row_ids[mine])
        seen = rows if self.world == 1 else self.read(drawn.split, drawn.row_ids, narrow=True)
        return Batch(rows, (at.epoch, at.batch), self._after(at, drawn).counted(seen))

    def passed(self, at: Progress) -> Progress:
        """The position after the next global batch, which somebody else reads."""
        drawn = self.draw(at)
        return self._after(at, drawn).counted(self.read(drawn.split, drawn.row_ids, narrow=True))

    def moved(self, at: Progress) -> Progress:
        """The same without counts."""
        return self._after(at, self.draw(at))

    def _after(self, at: Progress, drawn: Drawn) -> Progress:
        return at.moved(drawn.split, drawn.row_ids, self.batches, drawn.mixed)

    def read(self, split: np.ndarray, row_ids: np.ndarray, *, narrow: bool = False) -> Rows:
        """Rows in that order, sources by this course's numbers; narrow: books alone, without rows of padding."""
        if len(self.splits) == 1 and len(row_ids) and row_ids.min() >= 0:
            return self.splits[0].narrow(row_ids) if narrow else self.splits[0].read(row_ids)
        parts, places = [], []
        for number, each in enumerate(self.splits):
            at = np.flatnonzero((split == number) & (row_ids >= 0))
            if len(at):
                rows = each.narrow(row_ids[at]) if narrow else each.read(row_ids[at])
                parts.append(replace(rows, seg_source=self.numbers[number][rows.seg_source]))
                places.append(at)
        empty = np.flatnonzero(row_ids < 0)
        if not parts or (len(empty) and not narrow):
            length = 0 if narrow else self.identity.length
            parts.append(Rows.empty(0 if narrow else len(empty), length, self.splits[0].pad))
            places.append(empty)
        rows = Rows.concat(parts)
        return rows if len(parts) == 1 else rows.take(np.argsort(np.concatenate(places)))


def plot(
    splits: Mapping[str, Readable], unit: str | None, size: int, rank: int, world: int, seed: int, order: str, tail: str
) -> Course:
    """The course of a loader's options; unit: of a mix, None for a single split."""
    several = tuple(splits.values())
    lengths = {name: split.length for name, split in splits.items() if split.rows}
    if len(set(lengths.values())) > 1:
        told = ", ".join(f"{name} {length}" for name, length in lengths.items())
        raise ManifestError(f"a mix needs rows of one length, these have {told}: build them with one sequences.length")
    _compatible(splits)
    labels = {name: [source if unit is None else f"{name}/{source}" for source in split.sources]
              for name, split in splits.items()}  # fmt: skip
    sources = tuple(label for name in splits for label in labels[name])
    starts = np.cumsum([0, *(len(each) for each in labels.values())])
    numbers = tuple(np.arange(a, b, dtype=np.int16) for a, b in itertools.pairwise(starts))
    orders = tuple(Order(order, seed, each.dataset_id, each.name, each.blocks) for each in several)
    datasets = {
        name: {"dataset_id": split.dataset_id, "split": split.name, "rows": split.rows}
        for name, split in splits.items()
    }
    identity = Identity(datasets, sources, order, seed, size, tail, unit, max(lengths.values(), default=0))
    mixture = None if unit is None else Mixture(several, orders, unit, size, {})
    course = Course(several, orders, numbers, mixture, identity, rank, world)
    rows = sum(split.rows for split in several)
    if not course.batches:
        name = " + ".join(splits)
        hint = " or tail pad or wrap" if unit is None and rows else ""
        raise ManifestError(f"global_batch_rows: {size}, but {name} has {rows} rows, so that no batch is whole: "
                            f"use at most {rows}{hint}" if rows else f"{name} has no rows")  # fmt: skip
    if order == "feistel-v1" and any(split.storage == "list" for split in several):
        log.warning("order feistel-v1 over storage `list` decodes a row group of 64 rows for each row it reads; "
                    "block-v1 reads each once, and so does feistel-v1 over shards.storage: binary")  # fmt: skip
    return course


def _compatible(splits: Mapping[str, Readable]) -> None:
    """Ids of two tokenizers mean different things; a split under two names would give each row twice in a row."""
    tokenizers, data = dict[str, str](), dict[tuple[str, str], str]()
    for name, split in splits.items():
        tokenizers.setdefault(split.tokenizer, name)
        if (other := data.setdefault((split.dataset_id, split.name), name)) != name:
            raise ManifestError(f"{other} and {name} are both {split.name} of data set {split.dataset_id[:12]}: "
                                "name it once, with one weight")  # fmt: skip
    if len(tokenizers) > 1:
        told = ", ".join(f"{name} {sha256[:12]}" for sha256, name in tokenizers.items())
        raise ManifestError(f"a mix needs ids of one tokenizer, these have {told} (sha256): build them with one file")
