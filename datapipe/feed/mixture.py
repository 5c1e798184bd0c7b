"""
Several splits as one stream, by weight: of every prefix each split has its share to within one row.

The amount of a row is its tokens, its documents (those that begin in it) or 1.  Of the splits that have no more than
their share so far, the one comes next that would be the first to have the amount of its next row due: worst-case fair
weighted fair queueing (Bennett and Zhang 1996, WF2Q), where rows are packets and weights are rates.  Their theorem, for
splits that never run dry: after any number of rows, with T the amount of all and A the largest amount of a row,

    weight x T - A  <=  amount of a split  <=  weight x T + (1 - weight) x its own largest

Weights and amounts are whole numbers here, so nothing is rounded.  New weights count from the row they hold from.
"""

import functools
import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from datapipe.errors import ManifestError
from datapipe.feed.batch import Readable, Rows
from datapipe.feed.order import Order
from datapipe.feed.state import Mixed
from datapipe.rows import STARTS

if TYPE_CHECKING:
    from datapipe.feed.loader import Loader

UNITS = ("tokens", "rows", "documents")
CHUNK = 1024  # rows whose amounts are read at a time


def mix(splits: Mapping[str, tuple[Readable, float]], **options: Any) -> "Loader":
    """A loader of several splits by weight: {"web": (web.train, 0.7), ...}; options are those of Loader."""
    from datapipe.feed.loader import Loader

    return Loader(splits, **options)


class Drawn(NamedTuple):
    """
    A global batch, and where a mix stands after it.

    split: int16[rows], number of each row's split;  row_ids: int64[rows], -1: padding
    """

    split: np.ndarray
    row_ids: np.ndarray
    mixed: Mixed | None


def weighed(weights: Mapping[str, float], names: Sequence[str]) -> tuple[float, ...]:
    """Weights in the order of the names; ManifestError where one is missing, unknown, negative, or all are 0."""
    if set(weights) != set(names):
        raise ManifestError(f"weights: are for {', '.join(sorted(weights))}; the mix has {', '.join(sorted(names))}")
    for name, weight in weights.items():
        number = weight.item() if isinstance(weight, np.generic) else weight  # a float32 overflows at the largest float
        if isinstance(number, bool) or not isinstance(number, (int, float)) or not 0 <= number <= sys.float_info.max:
            raise ManifestError(f"weight of {name}: {weight!r} is no finite number of 0 or more")
    if not any(weights.values()):
        raise ManifestError("weights: all are 0; at least one must be more")
    return tuple(float(weights[name]) for name in names)


@functools.lru_cache(maxsize=16)
def whole(weights: tuple[float, ...]) -> tuple[int, ...]:
    """The same weights as whole numbers: 0.7 means 7/10, as it is written."""
    parts = [Fraction(repr(weight)) for weight in weights]
    scale = math.lcm(*(part.denominator for part in parts))
    numbers = [int(part * scale) for part in parts]
    common = math.gcd(*numbers)
    return tuple(number // common for number in numbers)


def choose(weights: Sequence[int], amounts: Sequence[int], coming: Sequence[int]) -> int:
    """Which split comes next; amounts: so far, coming: of the next row of each."""
    total, every = sum(weights), sum(amounts)
    best = -1
    for split, weight in enumerate(weights):
        if not weight or amounts[split] * total > weight * every:
            continue
        due = amounts[split] + coming[split]
        if best < 0 or due * weights[best] < (amounts[best] + coming[best]) * weight:
            best = split
    return best


@dataclass(frozen=True, eq=False)
class Mixture:
    """Draws global batches of G rows out of splits, each in its own order and its own epochs."""

    splits: Sequence[Readable]
    orders: Sequence[Order]
    unit: str
    global_batch_rows: int
    kept: dict

    def start(self, weights: tuple[float, ...]) -> Mixed:
        return Mixed(((0, weights),), tuple((0, 0) for _ in self.splits), tuple(0 for _ in self.splits))

    def draw(self, mixed: Mixed) -> Drawn:
        weights = whole(mixed.weights[-1][1])
        positions, amounts = list(mixed.positions), list(mixed.amounts)
        coming = [self._at(s, at) if weights[s] else (0, 0) for s, at in enumerate(positions)]
        split, row_ids = np.empty(self.global_batch_rows, np.int16), np.empty(self.global_batch_rows, np.int64)
        sizes = [size for _, size in coming]
        for place in range(self.global_batch_rows):
            s = choose(weights, amounts, sizes)
            split[place], row_ids[place] = s, coming[s][0]
            amounts[s] += sizes[s]
            epoch, position = positions[s]
            over = position + 1 == self.splits[s].rows
            positions[s] = (epoch + 1, 0) if over else (epoch, position + 1)
            coming[s] = self._at(s, positions[s])
            sizes[s] = coming[s][1]
        return Drawn(split, row_ids, Mixed(mixed.weights, tuple(positions), tuple(amounts)))

    def _at(self, s: int, at: tuple[int, int]) -> tuple[int, int]:
        """Row id and amount of a split's row at (epoch, position)."""
        epoch, position = at
        number, place = divmod(position, CHUNK)
        found = self.kept.get((s, epoch, number))
        if found is None:
            row_ids = self.orders[s].rows(epoch, number * CHUNK, min((number + 1) * CHUNK, self.splits[s].rows))
            found = row_ids.tolist(), self._amounts(s, row_ids)
            if len(self.kept) >= 4 * len(self.splits):
                self.kept.clear()
            self.kept[s, epoch, number] = found
        return found[0][place], found[1][place]

    def _amounts(self, s: int, row_ids: np.ndarray) -> list[int]:
        if self.unit == "rows":
            return [1] * len(row_ids)
        rows = self.splits[s].narrow(row_ids)
        return rows.n_tokens.tolist() if self.unit == "tokens" else begun(rows).tolist()


def begun(rows: Rows) -> np.ndarray:
    """int64[k]: documents that begin in each row."""
    row = np.repeat(np.arange(len(rows)), np.diff(rows.offsets))
    return np.bincount(row[(rows.seg_flags & STARTS) != 0], minlength=len(rows))
