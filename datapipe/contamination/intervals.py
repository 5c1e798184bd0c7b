"""
Parts by their units, runs of units that match, and what runs cover: intervals of units, half-open.

A part has the units 0:L and P = L - n + 1 positions; position i is the n-gram of the units i:i + n.  A *run* is a
maximal contiguous match: the units start:start + length of a part stand in one document from its unit doc_unit on.
An *excluded* position is no evidence; the others are *live*, as are the units of at least one live position.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np
import pyarrow as pa

PIECE = 1 << 18  # positions that are looked at together
RUN = ("doc", "part", "start", "length", "doc_unit")


@dataclass(frozen=True)
class Layout:
    """
    The parts by their units, one row a part.  units, n, same int32[P]; offsets int64[P + 1]; grams int32.

    same:     the lowest part with the same sequence of units, where runs are named; itself for most
    offsets:  the positions of part p are offsets[p]:offsets[p + 1], none where units < n
    grams:    the n-gram of each position
    numeric:  bool of each position, whether all its units are numbers; null where not known
    """

    units: np.ndarray
    n: np.ndarray
    same: np.ndarray
    offsets: np.ndarray
    grams: np.ndarray
    numeric: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.units)

    @cached_property
    def positions(self) -> np.ndarray:
        return np.diff(self.offsets)

    @cached_property
    def owner(self) -> np.ndarray:
        """The part of each position: of a few parts; of ten million positions it is 80 MB."""
        return np.repeat(np.arange(len(self)), self.positions)

    def owners(self, places: np.ndarray) -> np.ndarray:
        """The part of some positions."""
        return np.searchsorted(self.offsets, places, "right") - 1

    def marked(self, flags: np.ndarray) -> np.ndarray:
        """int64 a part: how many of its positions have the flag."""
        out = np.zeros(len(self), np.int64)
        for low, high in self.pieces():
            before = offsets_of(flags[self.offsets[low] : self.offsets[high]])
            out[low:high] = np.diff(before[self.offsets[low : high + 1] - self.offsets[low]])
        return out

    def pieces(self, size: int = PIECE) -> Iterator[tuple[int, int]]:
        """Parts low:high of about `size` positions together: what is made of all of them at once is large."""
        cuts = np.unique(np.searchsorted(self.offsets, np.arange(0, self.offsets[-1], size)))
        yield from pairwise(np.append(cuts, len(self)).tolist())

    def with_n(self, n: int) -> "Layout":
        """The same parts looked at with longer n-grams: positions anew, no grams.  A part's own n is a lower bound."""
        longer = np.maximum(self.n, n).astype(self.n.dtype)
        return Layout(self.units, longer, self.same, offsets_of(np.maximum(self.units - longer + 1, 0)), NO_GRAMS)

    def widened(self, excluded: np.ndarray, longer: "Layout") -> np.ndarray:
        """What is excluded among longer n-grams: those all of whose n-grams are excluded."""
        before = offsets_of(excluded)
        part = longer.owner
        first = self.offsets[part] + np.arange(len(part)) - longer.offsets[part]
        many = (longer.n - self.n)[part] + 1
        return before[first + many] - before[first] == many


NO_GRAMS = np.zeros(0, np.int32)


def offsets_of(counts: np.ndarray) -> np.ndarray:
    """int64[n + 1] from counts."""
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(counts, dtype=np.int64)])


def ratio(many: np.ndarray, of: np.ndarray) -> np.ndarray:
    """many / of, NaN where of is 0."""
    out = np.full(len(of), np.nan)
    return np.divide(many, of, out=out, where=np.asarray(of) > 0)


def nullable(values: np.ndarray) -> pa.Array:
    """A float column with null for NaN."""
    return pa.array(values, pa.float64(), from_pandas=True)


# --- intervals -------------------------------------------------------------------------------------------------


def union(key: np.ndarray, low: np.ndarray, high: np.ndarray, widths: np.ndarray) -> np.ndarray:
    """
    int64[keys]: how much the half-open intervals of each key cover together.  widths[k] bounds the `high` of key k.
    """
    shift = offsets_of(widths)[key]
    order = np.argsort(shift + low, kind="stable")
    low, high = (shift + low)[order], (shift + high)[order]
    seen = np.concatenate([np.zeros(1, np.int64), np.maximum.accumulate(high)[:-1]]) if len(high) else high
    gained = np.maximum(high - np.maximum(low, seen), 0)
    out = np.zeros(len(widths), np.int64)
    np.add.at(out, key[order], gained)
    return out


def merged(
    key: np.ndarray, low: np.ndarray, high: np.ndarray, widths: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(key, low, high) of the union's intervals, in order; those that touch are one, those of two keys never."""
    if not len(key):
        return key, low, high
    shift = offsets_of(widths + 1)
    order = np.argsort(shift[key] + low, kind="stable")
    low, high, key = (shift[key] + low)[order], (shift[key] + high)[order], key[order]
    reach = np.maximum.accumulate(high)
    new = np.concatenate([[True], low[1:] > reach[:-1]])
    first = np.flatnonzero(new)
    last = np.concatenate([first[1:] - 1, [len(key) - 1]])
    key = key[first]
    return key, low[first] - shift[key], reach[last] - shift[key]


def spread(low: np.ndarray, high: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(row, value): every integer of each interval, and the row of the interval it is of."""
    counts = np.maximum(high - low, 0)
    row = np.repeat(np.arange(len(low)), counts)
    value = np.arange(len(row))
    value += np.repeat(low - offsets_of(counts)[:-1], counts)
    return row, value


def once(values: np.ndarray) -> np.ndarray:
    """The distinct values, sorted; by sorting, which is ten times faster here than the hashing of np.unique."""
    values = np.sort(values)
    return values[np.concatenate([np.ones(min(len(values), 1), bool), values[1:] != values[:-1]])]


def among(values: np.ndarray, some: np.ndarray) -> np.ndarray:
    """bool of each value: whether it is one of some.  As np.isin, which hashes large numbers slowly."""
    some = once(some)
    if not len(some):
        return np.zeros(len(values), bool)
    return some[np.minimum(np.searchsorted(some, values), len(some) - 1)] == values


def live_segments(layout: Layout, excluded: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
    """(start, end) of the maximal runs of live positions within one part, as places in `grams`, in order."""
    if excluded is None:
        filled = np.flatnonzero(layout.positions)
        return layout.offsets[filled], layout.offsets[filled + 1]
    live = ~excluded
    joined = np.zeros(len(live) + 1, bool)  # a position and the one before it
    np.logical_and(live[1:], live[:-1], out=joined[1:-1])
    joined[layout.offsets] = False
    return np.flatnonzero(live & ~joined[:-1]), np.flatnonzero(live & ~joined[1:]) + 1


def live_units(layout: Layout, excluded: np.ndarray | None) -> np.ndarray:
    """int64[P]: units of at least one live position."""
    if excluded is None:
        return np.where(layout.positions > 0, layout.units, 0).astype(np.int64)
    start, end = live_segments(layout, excluded)
    part = layout.owners(start)
    low, high = start - layout.offsets[part], end - layout.offsets[part] + layout.n[part] - 1
    return union(part, low, high, layout.units)


# --- runs against the layout ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Overlap:
    """
    Runs cut to live positions, and what they cover in each (part, document).

    live, positions:            int64[P], live units and live positions of each part
    row, low, high, pair:       of each piece of a run: the run, its positions low:high in the part, its pair
    part, doc:                  of each pair, sorted by (part, doc)
    covered, longest, best:     of each pair: units covered, most live units of one run, that run's row
    """

    layout: Layout
    live: np.ndarray
    positions: np.ndarray
    row: np.ndarray
    low: np.ndarray
    high: np.ndarray
    pair: np.ndarray
    part: np.ndarray
    doc: np.ndarray
    covered: np.ndarray
    longest: np.ndarray
    best: np.ndarray

    @cached_property
    def covered_ratio(self) -> np.ndarray:
        return ratio(self.covered, self.live[self.part])

    @cached_property
    def longest_ratio(self) -> np.ndarray:
        return ratio(self.longest, self.live[self.part])


def columns(table: pa.Table, names: Sequence[str]) -> list[np.ndarray]:
    return [table[name].combine_chunks().to_numpy(zero_copy_only=False) for name in names]


def overlap(layout: Layout, runs: pa.Table, excluded: np.ndarray | None = None) -> Overlap:
    """
    runs: doc, part, start, length, ...; those shorter than a part's n say nothing here.  excluded: bool, one a
    position of the layout.  Only pairs with a live unit are listed.
    """
    doc, part, start, length = columns(runs, RUN[:4])
    start, length = start.astype(np.int64), length.astype(np.int64)
    kept = np.flatnonzero((length >= layout.n[part]) & (layout.positions[part] > 0))
    first = layout.offsets[part[kept]] + start[kept]
    end = first + length[kept] - layout.n[part[kept]] + 1
    seg_start, seg_end = live_segments(layout, excluded)
    low_seg = np.searchsorted(seg_end, first, "right")
    which, seg = spread(low_seg, np.searchsorted(seg_start, end, "left"))
    row = kept[which]
    owner = part[row].astype(np.int64)
    low = np.maximum(seg_start[seg], first[which]) - layout.offsets[owner]
    high = np.minimum(seg_end[seg], end[which]) - layout.offsets[owner]

    order = np.lexsort((start[row], doc[row], owner))
    row, owner, low, high = row[order], owner[order], low[order], high[order]
    document = doc[row]
    new = (np.diff(owner, prepend=-1) != 0) | (np.diff(document, prepend=-1) != 0)
    pair, heads = np.cumsum(new) - 1, np.flatnonzero(new)
    pair_part, pair_doc = owner[heads], document[heads]
    units_end = high + layout.n[owner] - 1
    covered = union(pair, low, units_end, layout.units[pair_part])
    # live units of each run: its pieces together
    rows, run = np.unique(row, return_inverse=True)
    of_run = union(run, low, units_end, layout.units[part[rows]])
    run_pair = np.zeros(len(rows), np.int64)
    run_pair[run] = pair
    by = np.lexsort((rows, -of_run, run_pair))
    top = by[np.flatnonzero(np.diff(run_pair[by], prepend=-1))] if len(by) else by
    positions = layout.positions if excluded is None else layout.marked(~excluded)
    return Overlap(
        layout, live_units(layout, excluded), positions, row, low, high, pair, pair_part, pair_doc,
        covered, of_run[top], rows[top],
    )  # fmt: skip


def distinct(
    layout: Layout, key: np.ndarray, part: np.ndarray, low: np.ndarray, high: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """(key, gram): the distinct n-grams at the positions low:high of `part`, for each key."""
    if not len(layout.grams) or not len(key):
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    row, place = spread(low, high)
    gram = layout.grams[layout.offsets[part[row]] + place].astype(np.int64)
    size = int(layout.grams.max()) + 1
    both = once(key[row].astype(np.int64) * size + gram)
    return both // size, both % size
