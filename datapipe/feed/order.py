"""
Which row comes at which position of an epoch: a pure function of (dataset_id, split, seed, epoch, kind), in memory that
does not grow with the rows.

sequential  as the rows lie
feistel-v1  one keyed permutation over all rows
block-v1    blocks of 64 rows (a row group of a shard) permuted; windows of 16 blocks, rows permuted within: a reader
            needs 16 row groups at a time

A permutation is a balanced Feistel network over the smallest 4^h >= n, walked along its cycles until a value lies
below n (Black and Rogaway 2002): a bijection for any round function, less than four evaluations on average.
"""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Self

import numpy as np

from datapipe.keyed import keyed
from datapipe.tables import SHARD_ROW_GROUP

KINDS = ("block-v1", "feistel-v1", "sequential")
WINDOW = 16  # blocks
ROUNDS = 8
KEPT = 8  # windows and epochs that are remembered
GOLDEN = 0x9E3779B97F4A7C15
MASK = (1 << 64) - 1


def _mix(x: np.ndarray) -> np.ndarray:
    """The finalizer of splitmix64, in place: every bit of uint64 x decides every bit."""
    x ^= x >> np.uint64(30)
    x *= np.uint64(0xBF58476D1CE4E5B9)
    x ^= x >> np.uint64(27)
    x *= np.uint64(0x94D049BB133111EB)
    x ^= x >> np.uint64(31)
    return x


@dataclass(frozen=True)
class Permutation:
    """A bijection of 0 .. n - 1 that a 64-bit key names; n from 1 to 2^62."""

    n: int
    key: int

    @cached_property
    def _half(self) -> int:
        """Bits of each half."""
        return max(1, ((self.n - 1).bit_length() + 1) // 2)

    @cached_property
    def _rounds(self) -> list[np.uint64]:
        return list(_mix(np.array([(self.key + i * GOLDEN) & MASK for i in range(1, ROUNDS + 1)], np.uint64)))

    def __call__(self, places: np.ndarray) -> np.ndarray:
        """int64[k] in 0 .. n - 1 -> int64[k], where each goes."""
        return self._walk(places, self._forth)

    def inverse(self, values: np.ndarray) -> np.ndarray:
        """int64[k] -> int64[k]: what goes there."""
        return self._walk(values, self._back)

    def _walk(self, places: np.ndarray, step: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
        found = step(np.asarray(places).astype(np.uint64))
        limit = np.uint64(self.n)
        outside = np.flatnonzero(found >= limit)
        while len(outside):
            found[outside] = step(found[outside])
            outside = outside[found[outside] >= limit]
        return found.astype(np.int64)

    def _forth(self, x: np.ndarray) -> np.ndarray:
        half, away = np.uint64(self._half), np.uint64(64 - self._half)
        left, right = x >> half, x & np.uint64((1 << self._half) - 1)
        for key in self._rounds:
            left, right = right, left ^ (_mix(right ^ key) >> away)
        return left << half | right

    def _back(self, x: np.ndarray) -> np.ndarray:
        half, away = np.uint64(self._half), np.uint64(64 - self._half)
        left, right = x >> half, x & np.uint64((1 << self._half) - 1)
        for key in reversed(self._rounds):
            left, right = right ^ (_mix(left ^ key) >> away), left
        return left << half | right


@dataclass(frozen=True, eq=False)
class Blocks:
    """
    The rows of a split in blocks of 64: first the full row groups of all shards, then the rows of their short last
    groups, strung together in the order of the shards.  All blocks but the last are full.

    starts: int64[shards], row_id of each shard's first row;  full: int64[shards], rows in its full groups
    groups: int64[shards + 1], full groups before each shard;  loose: int64[shards + 1], rows of short groups before it
    """

    rows: int
    starts: np.ndarray
    full: np.ndarray
    groups: np.ndarray
    loose: np.ndarray

    @classmethod
    def of(cls, shards: Sequence[int]) -> Self:
        """From the number of rows of each shard, in order."""
        rows = np.asarray(shards, np.int64)
        ends = np.concatenate(([0], np.cumsum(rows)))
        groups, loose = np.divmod(rows, SHARD_ROW_GROUP)
        sums = [np.concatenate((np.zeros(1, np.int64), np.cumsum(counts))) for counts in (groups, loose)]
        return cls(int(ends[-1]), ends[:-1], groups * SHARD_ROW_GROUP, *sums)

    @property
    def number(self) -> int:
        """How many blocks."""
        return -(-self.rows // SHARD_ROW_GROUP)

    @property
    def short(self) -> int:
        """Rows that the last block lacks."""
        return self.number * SHARD_ROW_GROUP - self.rows

    def row_ids(self, places: np.ndarray) -> np.ndarray:
        """int64[k] places (64 x block + row in it) -> int64[k] row ids."""
        whole = int(self.groups[-1]) * SHARD_ROW_GROUP
        found = np.empty(len(places), np.int64)
        here = places < whole
        block, row = np.divmod(places[here], SHARD_ROW_GROUP)
        shard = np.searchsorted(self.groups, block, "right") - 1
        found[here] = self.starts[shard] + (block - self.groups[shard]) * SHARD_ROW_GROUP + row
        rest = places[~here] - whole
        shard = np.searchsorted(self.loose, rest, "right") - 1
        found[~here] = self.starts[shard] + self.full[shard] + rest - self.loose[shard]
        return found


@dataclass(frozen=True, eq=False)
class Order:
    """The order of a split's rows in each epoch."""

    kind: str
    seed: int
    dataset_id: str
    split: str
    blocks: Blocks
    _kept: dict[Hashable, Any] = field(default_factory=dict, repr=False)

    def rows(self, epoch: int, first: int, stop: int) -> np.ndarray:
        """int64[stop - first]: the row ids at positions first to stop of an epoch."""
        epoch, first, stop = int(epoch), int(first), int(stop)
        if not 0 <= first <= stop <= self.blocks.rows:
            raise IndexError(f"positions {first} to {stop} of {self.blocks.rows}")
        if self.kind == "sequential" or first == stop:
            return np.arange(first, stop)
        parts, some = [], self._window if self.kind == "block-v1" else self._stretch
        while first < stop:
            start, window = some(epoch, first)
            parts.append(window[first - start : stop - start])
            first += len(parts[-1])
        return parts[0].copy() if len(parts) == 1 else np.concatenate(parts)

    def _permutation(self, n: int, epoch: int, what: str, number: int = 0) -> Permutation:
        return Permutation(n, keyed("order", self.seed, self.dataset_id, self.split, epoch, self.kind, what, number))

    def _stretch(self, epoch: int, position: int) -> tuple[int, np.ndarray]:
        """The same of feistel-v1, where any stretch will do."""
        size = WINDOW * SHARD_ROW_GROUP
        number = position // size
        if (found := self._kept.get((epoch, number))) is not None:
            return found
        places = np.arange(number * size, min((number + 1) * size, self.blocks.rows))
        found = number * size, self._permutation(self.blocks.rows, epoch, "rows")(places)
        return self._keep((epoch, number), found)

    def _window(self, epoch: int, position: int) -> tuple[int, np.ndarray]:
        """The window that a position lies in: position of its first row, and the row ids of all in order."""
        blocks, size = self.blocks, WINDOW * SHARD_ROW_GROUP
        order, slot = self._blocks(epoch)
        thin = slot // WINDOW
        number = position // size
        if number >= thin:  # windows behind the thin one begin earlier
            number = (position + blocks.short) // size
        if (found := self._kept.get((epoch, number))) is not None:
            return found
        start = number * size - (blocks.short if number > thin else 0)
        here = np.arange(number * WINDOW, min((number + 1) * WINDOW, blocks.number))
        rows = len(here) * SHARD_ROW_GROUP - (blocks.short if number == thin else 0)
        place = self._permutation(rows, epoch, "window", number)(np.arange(rows))
        if number == thin:  # places behind the short block move up by what it lacks
            place[place >= (slot % WINDOW + 1) * SHARD_ROW_GROUP - blocks.short] += blocks.short
        at, row = np.divmod(place, SHARD_ROW_GROUP)
        found = start, blocks.row_ids(order(here)[at] * SHARD_ROW_GROUP + row)
        return self._keep((epoch, number), found)

    def _blocks(self, epoch: int) -> tuple[Permutation, int]:
        """How blocks are permuted, and where the short one comes."""
        if (found := self._kept.get(epoch)) is not None:
            return found
        order = self._permutation(self.blocks.number, epoch, "blocks")
        return self._keep(epoch, (order, int(order.inverse(np.array([self.blocks.number - 1]))[0])))

    def _keep(self, key: Hashable, found: Any) -> Any:
        if len(self._kept) >= KEPT:
            self._kept.clear()
        self._kept[key] = found
        return found
