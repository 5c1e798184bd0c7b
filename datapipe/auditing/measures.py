"""
The measures of the parts of which something is in the documents, for n-grams of the detector and for longer ones.

Most parts share nothing with any document.  They have no row here: each of their measures is 0, or null where no
position is left.  Longer n-grams are in no index; what runs cover says how often each stands in the documents.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np
import pyarrow as pa

from datapipe.contamination.index import Index
from datapipe.contamination.intervals import Layout, columns, merged, offsets_of, once, spread
from datapipe.contamination.metrics import Grams, measure
from datapipe.contamination.model import Suites
from datapipe.contamination.scan import Found

PIECE = 250_000  # positions that are looked at together
BASE = np.uint64(0x9E3779B97F4A7C15)  # odd: of the hash of a longer n-gram


@dataclass(frozen=True)
class Counts:
    """The n-grams of the index that stand in documents: gram int64, sorted; documents, occurrences, sources of each."""

    gram: np.ndarray
    docs: np.ndarray
    occurrences: np.ndarray
    sources: np.ndarray
    size: int  # n-grams of the index

    @cached_property
    def there(self) -> np.ndarray:
        """bool a gram of the index."""
        out = np.zeros(self.size, bool)
        out[self.gram] = True
        return out

    def rows(self, grams: np.ndarray) -> np.ndarray:
        """Where each gram stands here, -1 where it does not."""
        at = np.minimum(np.searchsorted(self.gram, grams), max(len(self.gram) - 1, 0))
        return np.where(self.gram[at] == grams, at, -1) if len(self.gram) else np.full(len(grams), -1)


def counts(found: Found, size: int) -> Counts:
    """Over all sources.  size: n-grams of the index."""
    gram, docs, occurrences = columns(found.grams, ("gram", "docs", "occurrences"))
    order = np.argsort(gram, kind="stable")
    gram = gram[order].astype(np.int64)
    first = np.flatnonzero(np.diff(gram, prepend=-1))
    if not len(first):
        return Counts(gram, gram, gram, gram, size)
    docs, occurrences = (np.add.reduceat(values[order], first) for values in (docs, occurrences))
    return Counts(gram[first], docs, occurrences, np.diff(np.append(first, len(gram))), size)


def held_by(suites: Suites, layout: Layout, size: int) -> np.ndarray:
    """int32[size]: the examples that hold each n-gram of the layout."""
    found = np.zeros(size, np.int32)
    for example, places in _pieces(suites, layout):
        np.add.at(found, once((example << 32) + layout.grams[places]) & 0xFFFFFFFF, 1)
    return found


def _pieces(suites: Suites, layout: Layout) -> Iterator[tuple[np.ndarray, slice]]:
    """(example of each position, positions) of some examples; the parts of one stand together, so each is whole."""
    first = layout.offsets[suites.bounds]
    cuts = np.unique(np.searchsorted(first, np.arange(0, first[-1], PIECE)))
    for low, high in pairwise(np.append(cuts, len(first) - 1).tolist()):
        yield np.repeat(np.arange(low, high), np.diff(first[low : high + 1])), slice(int(first[low]), int(first[high]))


@dataclass(frozen=True)
class Measures:
    """
    table: some parts, as metrics.measure gives them;  at: int32 a part, its row there or -1;  live: bool a part,
    whether a position of it is left
    """

    table: pa.Table
    at: np.ndarray
    live: np.ndarray

    @cached_property
    def _unknown(self) -> set[str]:
        """Measures that nobody took."""
        columns = zip(self.table.column_names, self.table.columns, strict=True)
        return {name for name, column in columns if len(column) and column.null_count == len(column)}

    def of(self, metric: str) -> np.ndarray:
        """float64 a part, NaN for null."""
        if metric in self._unknown:
            return np.full(len(self.at), np.nan)
        out = np.where(self.live, 0.0, np.nan)
        there = self.at >= 0
        out[there] = self.table[metric].cast(pa.float64()).to_numpy(zero_copy_only=False)[self.at[there]]
        return out

    def figures(self, part: int, metrics: tuple[str, ...]) -> dict[str, float]:
        """What is known of a part."""
        at = int(self.at[part])
        if at < 0:
            return {name: 0.0 for name in metrics if name not in self._unknown} if self.live[part] else {}
        found = {name: self.table[name][at].as_py() for name in metrics}
        return {name: float(value) for name, value in found.items() if value is not None}


def measured(
    index: Index, found: Found, known: Counts, held: np.ndarray, excluded: np.ndarray | None, documents: int,
    examples: int,
) -> Measures:  # fmt: skip
    """By the n-grams of the index.  held: of held_by;  excluded: bool a position, null: nothing."""
    layout = index.layout
    (shared,) = columns(found.runs, ("part",))
    parts = once(np.concatenate([np.flatnonzero(_any(layout, known.there[layout.grams])), shared.astype(np.int64)]))
    parts = parts[(layout.positions[parts] > 0) & (layout.same[parts] == parts)]
    row, places = spread(layout.offsets[parts], layout.offsets[parts + 1])
    del row
    every = once(layout.grams[places].astype(np.int64))
    some = Layout(
        layout.units[parts], layout.n[parts], np.arange(len(parts), dtype=np.int32),
        offsets_of(layout.positions[parts]), np.searchsorted(every, layout.grams[places]).astype(np.int32),
    )  # fmt: skip
    at = known.rows(every)
    docs, times = (np.where(at >= 0, values[at], 0) if len(values) else np.zeros(len(every), np.int64)
                   for values in (known.docs, known.occurrences))  # fmt: skip
    grams = Grams(docs, times, held[every], documents, examples)
    left = None if excluded is None else excluded[places]
    live = layout.positions > 0 if excluded is None else _any(layout, ~excluded)
    made = measure(some, _runs(found.runs, parts), grams, left, windows=_runs(found.windows, parts))
    return _spread(made, parts, layout.same, live)


def measured_longer(
    index: Index, suites: Suites, found: Found, n: int, excluded: np.ndarray | None, documents: int
) -> Measures:
    """By n-grams of n units.  excluded: bool a position of the index's layout: n-grams all of whose n-grams are."""
    layout = index.layout
    part, length = columns(found.runs, ("part", "length"))
    longer = layout.with_n(n)
    parts = once(part[length >= longer.n[part]].astype(np.int64))
    runs = _runs(found.runs.filter(pa.array(np.isin(part, parts))), parts)
    own = Layout(layout.units[parts], layout.n[parts], np.arange(len(parts), dtype=np.int32),
                 offsets_of(layout.positions[parts]), np.zeros(0, np.int32))  # fmt: skip
    bare = own.with_n(n)
    keys = _keys(index, parts, bare)
    every = once(keys)
    grams = np.searchsorted(every, keys).astype(np.int32)
    some = Layout(bare.units, bare.n, bare.same, bare.offsets, grams)
    docs, times = (np.zeros(len(every), np.int64) for _ in range(2))
    for sums, of_document in ((docs, True), (times, False)):
        np.maximum.at(sums, grams, _covering(some, runs, of_document))
    counted = Grams(docs, times, _held_longer(index, suites, longer, every), documents, len(suites.examples))
    left, live = None, longer.positions > 0
    if excluded is not None:
        _, places = spread(layout.offsets[parts], layout.offsets[parts + 1])
        left = own.widened(excluded[places], some)
        live &= _any(layout, ~excluded)
    return _spread(measure(some, runs, counted, left), parts, layout.same, live)


def _spread(made: pa.Table, parts: np.ndarray, same: np.ndarray, live: np.ndarray) -> Measures:
    """Twins have the row of their first."""
    at = np.full(len(same), -1, np.int32)
    at[parts] = np.arange(len(parts))
    return Measures(made, at[same], live[same])


def _any(layout: Layout, flags: np.ndarray) -> np.ndarray:
    """bool a part: whether a position of it has the flag."""
    out = layout.positions > 0
    out[out] = np.logical_or.reduceat(flags, layout.offsets[:-1][out]) if out.any() else False
    return out


def _runs(runs: pa.Table, parts: np.ndarray) -> pa.Table:
    """The runs of some parts, these numbered anew; the others are left out."""
    (part,) = columns(runs, ("part",))
    at = np.minimum(np.searchsorted(parts, part), max(len(parts) - 1, 0))
    mine = parts[at] == part if len(parts) else np.zeros(len(part), bool)
    place = runs.schema.get_field_index("part")
    return runs.set_column(place, "part", pa.array(at, pa.int32())).filter(pa.array(mine))


def _keys(index: Index, parts: np.ndarray, layout: Layout) -> np.ndarray:
    """uint64 a position of the layout, whose rows are the parts: a hash of the units of its n-gram."""
    begins = index.begins[index.rows[parts]]
    row, places = spread(begins, begins + layout.positions)
    sizes = layout.n[row]
    out = np.zeros(len(places), np.uint64)
    least = int(sizes.min()) if len(sizes) else 0
    for step in range(int(sizes.max(initial=0))):
        mine = slice(None) if step < least else np.flatnonzero(sizes > step)
        mixed = (out[mine] ^ (out[mine] >> np.uint64(29))) * BASE
        out[mine] = mixed + index.held[places[mine] + step]
    return out


def _covering(layout: Layout, runs: pa.Table, of_document: bool) -> np.ndarray:
    """int64 a position: the runs that hold its n-gram, or the documents of such runs."""
    part, doc, start, length = (values.astype(np.int64) for values in columns(runs, ("part", "doc", "start", "length")))
    kept = np.flatnonzero(length >= layout.n[part])
    part, low, high = part[kept], start[kept], (start + length)[kept] - layout.n[part[kept]] + 1
    if of_document:
        pairs, pair = np.unique(np.stack([part, doc[kept]]), axis=1, return_inverse=True)
        pair, low, high = merged(pair.ravel(), low, high, layout.positions[pairs[0]])
        part = pairs[0][pair]
    change = np.zeros(len(layout.grams) + 1, np.int64)
    np.add.at(change, layout.offsets[part] + low, 1)
    np.add.at(change, layout.offsets[part] + high, -1)
    return np.cumsum(change)[:-1]


def _held_longer(index: Index, suites: Suites, layout: Layout, every: np.ndarray) -> np.ndarray:
    """int32 of each key: the examples that hold it."""
    found = np.zeros(len(every), np.int32)
    for example, places in _pieces(suites, layout) if len(every) else ():
        low, high = np.searchsorted(layout.offsets, [places.start, places.stop], "left").tolist()
        parts = np.arange(low, high)
        keys = _keys(index, parts, Layout(layout.units[low:high], layout.n[low:high], layout.same[low:high],
                                          layout.offsets[low : high + 1] - places.start, layout.grams))  # fmt: skip
        at = np.minimum(np.searchsorted(every, keys), len(every) - 1)
        mine = every[at] == keys
        np.add.at(found, once((example[mine] << 32) + at[mine]) & 0xFFFFFFFF, 1)
    return found
