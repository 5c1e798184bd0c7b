"""
How much of a part lies in the documents: measures over intervals of units, each as its authors defined it.

A part has the units 0:L and P = L - n + 1 positions; position i is the n-gram of the units i:i + n.  A *run* is a
maximal contiguous match, verified on text: the units start:start + length of a part stand in one document from its
unit doc_unit on.  The positions of a run match.  An *excluded* position (a common n-gram) leaves numerator and
denominator: ratios of positions count those that are left, the *live* ones; ratios of units count the units of at
least one live position, the live units.  A part without live positions has no ratio: null, never 0.

any             1 if a position matches (GPT-3, appendix C)
ngram_ratio     matching / live positions; unique_ratio counts each n-gram once (PaLM)
token_ratio     units of matching positions / live units, all documents together (Llama 2 A.6, Llama 3 5.1.4)
best_doc_ratio  the same of the best single document (Tulu 3)
longest         most units of one run, of one place in one document; longest_ratio over live units (ConTAM 2411.03923)
run_union       units of the longest chain of matching positions, which may chain documents: an upper bound
extended        units that match within a run that was extended over substitutions (`extend`), over L (Llama 2)
idf_decon       sum of ln(N / df) over matched / over all distinct n-grams, df in N examples (allenai/decon)
idf             the same with ln((N + 1) / df), so that a single example has weight
idf_train       the same with ln((T + 1) / (df + 1)), df in T training documents
weighted        sum of 1 / c over matching positions / live positions, c occurrences (HELM); weighted_rare: matching
                positions with c <= 10 / live positions
substr50        1 if 50 letters in a row, one of every 10 starts, lie in a window (windows.py; GPT-4, appendix C)
bin             of token_ratio: clean < 0.2 <= between < 0.8 <= dirty (Llama 2)

Everything counts in integers; a ratio is one division.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from datapipe.contamination.intervals import (
    Layout,
    Overlap,
    columns,
    distinct,
    live_segments,
    merged,
    nullable,
    overlap,
    ratio,
    spread,
    union,
)

CLEAN, DIRTY = 0.2, 0.8  # of token_ratio
RARE = 10  # occurrences, HELM's filter


@dataclass(frozen=True)
class Grams:
    """Counts of each n-gram, int64[G]: training documents, occurrences there, examples that hold it."""

    docs: np.ndarray
    occurrences: np.ndarray
    eval_df: np.ndarray
    documents: int  # scanned
    examples: int


def measure(
    layout: Layout,
    runs: pa.Table,
    grams: Grams | None = None,
    excluded: np.ndarray | None = None,
    windows: pa.Table | None = None,
) -> pa.Table:
    """
    A row a part, with every measure of it.  What all documents hold together is read from the counts of n-grams, which
    are of all documents, where the layout has n-grams; else from the runs, and the weighted ones are null.
    windows: of the scan, for substr50 and extended_ratio.
    """
    o = overlap(layout, runs, excluded)
    size = len(layout)
    if grams is not None and len(layout.grams):
        absent = grams.docs[layout.grams] == 0
        start, end = live_segments(layout, absent if excluded is None else absent | excluded)
        part = layout.owner[start]
        low, high = start - layout.offsets[part], end - layout.offsets[part]
    else:
        part, low, high = merged(o.part[o.pair], o.low, o.high, layout.positions)
    matched, chain = np.zeros(size, np.int64), np.zeros(size, np.int64)
    np.add.at(matched, part, high - low)
    np.maximum.at(chain, part, high - low + layout.n[part] - 1)
    token = union(part, low, high + layout.n[part] - 1, layout.units)
    best_doc, best_covered = _top(o, o.covered, o.longest, size)
    longest_doc, longest = _top(o, o.longest, o.covered, size)
    live = o.positions > 0
    token_ratio = ratio(token, o.live)
    names = np.array(["clean", "between", "dirty"], object)
    where = names[np.searchsorted([CLEAN, DIRTY], np.nan_to_num(token_ratio), "right")]
    table = {
        "part": pa.array(np.arange(size), pa.int32()),
        "units": pa.array(layout.units, pa.int32()),
        "n": pa.array(layout.n, pa.int32()),
        "positions": pa.array(o.positions, pa.int32()),
        "live_units": pa.array(o.live, pa.int32()),
        "documents": pa.array(np.bincount(o.part, minlength=size), pa.int64()),
        "matched": pa.array(matched, pa.int32()),
        "covered": pa.array(token, pa.int32()),
        "any": pa.array(matched > 0, pa.bool_(), mask=~live),
        "ngram_ratio": nullable(ratio(matched, o.positions)),
        "token_ratio": nullable(token_ratio),
        "best_doc": pa.array(best_doc, pa.int64(), mask=best_covered == 0),
        "best_doc_ratio": nullable(ratio(best_covered, o.live)),
        "longest": pa.array(longest, pa.int32(), mask=~live),
        "longest_doc": pa.array(longest_doc, pa.int64(), mask=longest == 0),
        "longest_ratio": nullable(ratio(longest, o.live)),
        "run_union": pa.array(chain, pa.int32(), mask=~live),
        "bin": pa.array(where, pa.string(), mask=~live),
    }
    table |= _weighted(layout, grams, excluded, o, (part, low, high))
    table["extended_ratio"] = nullable(_extended(layout, runs, windows, live))
    table["substr50"] = _substr50(layout, runs, windows)
    return pa.table(table)


def _top(o: Overlap, first: np.ndarray, then: np.ndarray, size: int) -> tuple[np.ndarray, np.ndarray]:
    """Of each part the document with the largest `first` (ties: `then`, lowest document), and that value."""
    doc, value = np.zeros(size, np.int64), np.zeros(size, np.int64)
    order = np.lexsort((o.doc, -then, -first, o.part))
    heads = order[np.flatnonzero(np.diff(o.part[order], prepend=-1))]
    doc[o.part[heads]], value[o.part[heads]] = o.doc[heads], first[heads]
    return doc, value


def _weighted(
    layout: Layout,
    grams: Grams | None,
    excluded: np.ndarray | None,
    o: Overlap,
    matched: tuple[np.ndarray, np.ndarray, np.ndarray],
) -> dict[str, pa.Array]:
    """The columns that ask which n-grams match: unique, idf and 1/count."""
    size = len(layout)
    names = ("unique_ratio", "idf_decon", "idf", "idf_train", "weighted", "weighted_rare")
    if grams is None or not len(layout.grams):
        return {name: pa.nulls(size, pa.float64()) for name in names}
    part, low, high = matched
    hit = distinct(layout, part, part, low, high)
    start, end = live_segments(layout, excluded)
    owner = layout.owner[start]
    among = np.isin(owner, part)  # the other parts have no match: their numerator is 0 whatever the weights
    start, end, owner = start[among], end[among], owner[among]
    every = distinct(layout, owner, owner, start - layout.offsets[owner], end - layout.offsets[owner])
    tested = (o.positions > 0) & (o.live > 0)

    def share(weigh: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
        over, of = np.bincount(hit[0], weigh(hit[1]), size), np.bincount(every[0], weigh(every[1]), size)
        out = ratio(over, of)
        return np.where(tested & (of == 0) & ~np.isin(np.arange(size), part), 0.0, out)

    row, place = spread(low, high)
    gram = layout.grams[layout.offsets[part[row]] + place]
    times = np.maximum(grams.occurrences[gram], 1)

    def rarity(gram: np.ndarray, more: int) -> np.ndarray:
        df = np.maximum(grams.eval_df[gram], 1)
        return np.log((np.maximum(grams.examples, df) + more) / df)

    def rarity_in_training(gram: np.ndarray) -> np.ndarray:
        docs = grams.docs[gram]
        return np.log((np.maximum(grams.documents, docs) + 1) / (docs + 1))

    found = {
        "unique_ratio": share(lambda gram: np.ones(len(gram))),
        "idf_decon": share(lambda gram: rarity(gram, 0)),
        "idf": share(lambda gram: rarity(gram, 1)),
        "idf_train": share(rarity_in_training),
        "weighted": ratio(np.bincount(part[row], 1 / times, size), o.positions),
        "weighted_rare": ratio(np.bincount(part[row], times <= RARE, size), o.positions),
    }
    return {name: nullable(found[name]) for name in names}


# --- extended match ---------------------------------------------------------------------------------------------


def extend(equal: np.ndarray, start: int, length: int, budget: int) -> tuple[int, int, int]:
    """
    (start, end, matched): the span around the exact seed start:start + length of an alignment without gaps that holds
    most matching units with at most `budget` substitutions, both sides together; it begins and ends on a match.

    equal: bool[L], whether unit i of the part equals the unit aligned to it (False beyond the document).  Ties: the
    shorter span, then the earlier one.
    """
    left = _reach(equal[:start][::-1], budget)
    right = _reach(equal[start + length :], budget)
    best = max(
        (
            (gained + more, -(reach + further), reach, further)
            for spent, (reach, gained) in enumerate(left)
            for further, more in [right[budget - spent]]
        ),
    )
    gained, _, before, after = best
    return start - before, start + length + after, length + gained


def _reach(equal: np.ndarray, budget: int) -> list[tuple[int, int]]:
    """For 0..budget substitutions: (units to the last match within reach, matches among them)."""
    missed = np.flatnonzero(~equal)
    found = []
    for spent in range(budget + 1):
        end = int(missed[spent]) if spent < len(missed) else len(equal)
        hits = np.flatnonzero(equal[:end])
        found.append((int(hits[-1]) + 1, len(hits)) if len(hits) else (0, 0))
    return found


def _extended(layout: Layout, runs: pa.Table, windows: pa.Table | None, live: np.ndarray) -> np.ndarray:
    """Most matching units of one extended run, over the units of the part; NaN where no window was looked at."""
    if windows is None:
        return np.full(len(layout), np.nan)
    best = np.zeros(len(layout), np.int64)
    for table, column in ((runs, "length"), (windows, "extended")):
        part, matched = columns(table, ("part", column))
        kept = matched >= layout.n[part]
        np.maximum.at(best, part[kept], matched[kept].astype(np.int64))
    return ratio(best, np.where(live, layout.units, 0))


def _substr50(layout: Layout, runs: pa.Table, windows: pa.Table | None) -> pa.Array:
    """By part: a window holds 50 letters in a row, or a run the whole part; null where no window was looked at."""
    if windows is None:
        return pa.nulls(len(layout), pa.bool_())
    out = np.zeros(len(layout), bool)
    part, held = columns(windows, ("part", "substr50"))
    out[part[held.astype(bool)]] = True
    part, length = columns(runs, ("part", "length"))
    out[part[length == layout.units[part]]] = True
    return pa.array(out, mask=layout.positions == 0)
