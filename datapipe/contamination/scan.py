"""
Training texts against the index: every maximal match, proved on the text, and how often each gram occurs.

Texts stream in pieces that stay in the cache.  A *run* is a maximal match of units of a document with units of a
part, found from a gram that seeds (index.py), at least n units long.  What is listed is a function of each document
alone, so it does not matter how documents are cut into batches and given to workers: `merge` joins what they found.
"""

import threading
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

import numpy as np
import pyarrow as pa

from datapipe import text
from datapipe.contamination import windows
from datapipe.contamination.index import Index, Units, sample_of, units_of_parts
from datapipe.kernels import grams as kernels
from datapipe.kernels import proof, shingles, unicode
from datapipe.kernels import units as unit_kernels
from datapipe.kernels.grams import SHORT

REACH = 100  # units behind a prompt within which its short and tiny answers are looked for
ALONE = 16  # documents that are named for a short part that stands alone
PIECE = 1 << 22  # bytes of text looked at together

RUNS = pa.schema(
    [
        ("doc", pa.int64()),
        ("part", pa.int32()),  # the first of its twins
        ("start", pa.int32()),  # unit of the part
        ("length", pa.int32()),  # units
        ("doc_unit", pa.int32()),
        ("byte_start", pa.int64()),  # of the document's raw text
        ("byte_end", pa.int64()),
    ]
)
GRAMS = pa.schema([("source", pa.int32()), ("gram", pa.int32()), ("docs", pa.int64()), ("occurrences", pa.int64())])
SEEN = pa.schema([("source", pa.int32()), ("documents", pa.int64()), ("units", pa.int64()), ("bytes", pa.int64())])


_kept = threading.local()


@dataclass(frozen=True)
class Found:
    """
    What a scan found, in one order whatever the order of work.

    runs: RUNS of whole n-grams, and beside a run of a prompt (kind prompt or variant) the short and tiny parts of its
    examples that begin within REACH units after it, with the prompt itself where it is short.
    masked: RUNS by the number mask, only those in which a number differs.
    short: RUNS, the first place in a document of each short part that stands alone, in the ALONE first documents.
    windows: WINDOWS, the second stage.  grams, seen: by source.
    capped: pairs of a document and a part with more than kernels.grams.FEW runs; beyond these only longer ones are in.
    """

    runs: pa.Table
    masked: pa.Table
    short: pa.Table
    windows: pa.Table
    grams: pa.Table
    seen: pa.Table
    capped: int

    @classmethod
    def empty(cls) -> Self:
        runs = RUNS.empty_table()
        return cls(runs, runs, runs, windows.WINDOWS.empty_table(), GRAMS.empty_table(), SEEN.empty_table(), 0)


def scan(
    index: Index, texts: pa.Array, docs: np.ndarray, source: int | np.ndarray = 0, second: bool = True,
    alone: int | None = ALONE,
) -> Found:  # fmt: skip
    """
    texts: string or large_string without nulls; docs: int64[n], a number for each document, no two alike in what is
    merged; source: of all, or int32[n] of each.  second: the second stage too (windows).
    alone: documents of `short` for a part; None: all.
    """
    _, offsets = text.buffers(texts)
    sources = np.broadcast_to(np.asarray(source, np.int32), len(texts))
    work = _Work(index, second, alone)
    for low, high in text.pieces(offsets, PIECE):
        work.piece(texts.slice(low, high - low), docs[low:high], sources[low:high])
    return merge(work.found, alone)


def merge(founds: Iterable[Found], alone: int | None = ALONE) -> Found:
    """Joins what was found in different documents.  Associative, and in any order the same."""
    every = [Found.empty(), *founds]
    runs, masked, short, second = (
        pa.concat_tables([getattr(found, name) for found in every]) for name in ("runs", "masked", "short", "windows")
    )
    return Found(
        _settled(runs), _settled(masked), _settled(_few(short, alone)), _settled(second),
        _summed([found.grams for found in every], ["source", "gram"]),
        _summed([found.seen for found in every], ["source"]),
        sum(found.capped for found in every),
    )  # fmt: skip


def _settled(table: pa.Table) -> pa.Table:
    ordered = table.sort_by([(name, "ascending") for name in table.column_names if name not in windows.MEASURES])
    return ordered.combine_chunks()


def _summed(tables: list[pa.Table], keys: list[str]) -> pa.Table:
    table = pa.concat_tables(tables)
    counts = [name for name in table.column_names if name not in keys]
    summed = table.group_by(keys, use_threads=False).aggregate([(name, "sum") for name in counts])
    summed = summed.select(keys + [f"{name}_sum" for name in counts]).rename_columns(keys + counts)
    return summed.cast(table.schema).sort_by([(key, "ascending") for key in keys]).combine_chunks()


def _few(table: pa.Table, most: int | None) -> pa.Table:
    """The rows of the first `most` documents of each part; each (document, part) is there once."""
    if most is None:
        return table
    order = np.lexsort((table["doc"].to_numpy(), table["part"].to_numpy()))
    part = table["part"].to_numpy()[order]
    rank = np.arange(len(part)) - np.searchsorted(part, part)
    return table.take(pa.array(order[rank < most]))


def _scratch(size: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Hashes, starts, ends for `size` units, kept for the thread: fresh memory costs as much as the search."""
    found = getattr(_kept, "scratch", None)
    if found is None or len(found[0]) < size or len(found[0]) > 64 * max(size, PIECE):
        size = max(size, 2 * PIECE + 2 * unit_kernels.MOST)
        found = _kept.scratch = np.empty(size, np.uint64), np.empty(size, np.uint32), np.empty(size, np.uint32)
    return found


class _Work:
    """One thread's way through pieces of text."""

    def __init__(self, index: Index, second: bool, few: int | None) -> None:
        self.index, self.second, self.few = index, second, few
        self.found: list[Found] = []
        self.caps = np.zeros((len(index.firsts), 2), np.int64)

    def piece(self, texts: pa.Array, docs: np.ndarray, sources: np.ndarray) -> None:
        ours = self.units_of(texts)
        plain, marked = self.search(ours, False), self.search(ours, True)
        hits, proposed, capped = plain
        lengths = self.index.table.lengths[hits[:, 1]]
        short = self.short(hits[lengths >= SHORT], lengths[lengths >= SHORT] & (SHORT - 1))
        runs = self.proved(ours, proposed, False)
        short = self.proved(ours, short, False)
        near, answered = self.beside(ours, np.concatenate([runs, short]), len(runs))
        runs = _distinct(np.concatenate([runs, short[answered], near]))
        masked = _distinct(self.proved(ours, marked[1], True))
        second = windows.WINDOWS.empty_table()
        if self.second and len(runs) + len(masked):
            second = windows.windows(self.index, ours, docs, runs, masked)
        self.found.append(
            Found(
                self.table(ours, docs, runs), self.table(ours, docs, masked),
                self.table(ours, docs, self.alone(short, runs)), second, _grams(hits, sources), _seen(ours, sources),
                capped + marked[2],
            )
        )  # fmt: skip
        if len(self.found) > 64:
            self.found = [merge(self.found, self.few)]

    def units_of(self, texts: pa.Array) -> Units:
        """In scratch that the next piece overwrites; memory that no unit needed is never touched."""
        data, offsets = text.buffers(texts)
        tables = unicode.tables()
        hashes, starts, ends = _scratch(2 * int(offsets[-1] - offsets[0]) + 2 * unit_kernels.MOST)
        counts, place = np.zeros(len(texts), np.int64), np.array([0, offsets[0]], np.int64)
        unit = np.empty(unit_kernels.EXPANSION * int(np.diff(offsets).max(initial=0)) + 64, np.uint8)
        state = np.zeros(unit_kernels.STATE, np.int64)
        shingles.units_of(data, offsets, *tables, unit, place, state, counts, hashes, starts, ends)
        bounds = np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)])
        proof.without_markup(data, offsets, bounds, starts, ends, hashes)
        proof.mark(data, offsets, bounds, starts, ends, *tables, self.index.masks[0], hashes)
        return Units(data, offsets, bounds, starts, ends, hashes)

    def search(self, ours: Units, by_mask: bool) -> tuple[np.ndarray, np.ndarray, int]:
        index = self.index
        table, sieves = (index.masked, index.masked_sieves) if by_mask else (index.table, index.sieves)
        if len(table.keys) == 0:
            return np.empty((0, 3), np.int64), np.empty((0, 4), np.int64), 0
        lengths = np.unique(np.array([index.n, index.n_unspaced], np.int64))
        wanted = index.wanted[:1] if by_mask else index.wanted
        shifts = tuple(kernels.shift_of(sieve) for sieve in sieves)
        return kernels.search(
            ours.units, ours.bounds, index.held, table, kernels.shift_of(table.bucket), sieves, shifts,
            sample_of(int(lengths[0])), lengths, wanted, by_mask, index.masks[1], index.begins, self.caps,
        )  # fmt: skip

    def short(self, hits: np.ndarray, lengths: np.ndarray) -> np.ndarray:
        """Runs of whole short parts: every place of a prompt that has answers, the first in a document of others."""
        table = self.index.table
        places = table.places[table.starts[hits[:, 1]]].astype(np.int64)
        runs = np.column_stack([hits[:, 0], places, hits[:, 2], lengths.astype(np.int64)])
        part = self.index.firsts[np.searchsorted(self.index.begins, places, side="right") - 1]
        _, first = np.unique(hits[:, 1] << 32 | hits[:, 0], return_index=True)
        kept = self.index.anchors[part] >= 0
        kept[first] = True
        return runs[kept]

    def proved(self, ours: Units, runs: np.ndarray, by_mask: bool) -> np.ndarray:
        """
        Of runs int64[k, 4] (document, place, unit, length) what the texts say: int64[m, 5], (document, part, unit of
        the part, length, unit of the document).
        """
        index = self.index
        if len(runs) == 0:
            return np.empty((0, 5), np.int64)
        row = np.searchsorted(index.begins, runs[:, 1], side="right") - 1
        some, there = np.unique(row, return_inverse=True)
        parts = index.firsts[some]
        theirs = units_of_parts(index, parts)
        start = runs[:, 1] - index.begins[row]
        whole = np.minimum(index.sizes[parts], index.lengths[parts]).astype(np.int64)[there]
        asked = np.column_stack([runs[:, 0], there, start, runs[:, 2], runs[:, 3]])
        out = np.empty((int((runs[:, 3] // (whole + 1) + 1).sum()), 3), np.int64)
        filled = proof.prove(ours, theirs, asked, whole, unicode.tables(), by_mask, out)
        which, cut, length = out[:filled].T
        found = asked[which]
        return np.column_stack([found[:, 0], parts[there[which]], found[:, 2] + cut, length, found[:, 3] + cut])

    def beside(self, ours: Units, runs: np.ndarray, longs: int) -> tuple[np.ndarray, np.ndarray]:
        """Short and tiny parts behind the prompts among the runs; which of the runs from `longs` on have any."""
        index = self.index
        rows = index.anchors[runs[:, 1]]
        which = np.flatnonzero(rows >= 0)
        none = np.empty((0, 5), np.int64), np.empty(0, np.int64)
        if len(which) == 0:
            return none
        asked = np.column_stack([runs[which, 0], rows[which], runs[which, 4] + runs[which, 3]]).astype(np.int64)
        found = kernels.beside(ours.units, ours.bounds, index.held, asked, *index.beside, REACH)
        if len(found) == 0:
            return none
        near = self.proved(ours, found[:, :4], False)
        after = which[found[:, 4]]
        return near, np.unique(after[after >= longs]) - longs

    def alone(self, short: np.ndarray, runs: np.ndarray) -> np.ndarray:
        """The first of each part in each document, without what is among the runs."""
        _, first = np.unique(short[:, 1] << 32 | short[:, 0], return_index=True)
        short = short[first]
        listed = {tuple(row) for row in runs[runs[:, 3] < self.index.sizes[runs[:, 1]]].tolist()}
        return short[[tuple(row) not in listed for row in short.tolist()]] if len(short) else short

    def table(self, ours: Units, docs: np.ndarray, runs: np.ndarray) -> pa.Table:
        at = ours.bounds[runs[:, 0]] + runs[:, 4]
        columns = [docs[runs[:, 0]], runs[:, 1], runs[:, 2], runs[:, 3], runs[:, 4]]
        columns += [ours.starts[at], ours.ends[at + runs[:, 3] - 1]]
        return pa.table([pa.array(column).cast(kind) for column, kind in zip(columns, RUNS.types, strict=True)], RUNS)


def _distinct(rows: np.ndarray) -> np.ndarray:
    """Sorted rows, each once: numpy.unique of rows sorts them as bytes, ten times as slow."""
    rows = rows[np.lexsort(rows.T[::-1])]
    return rows[np.append(np.ones(min(len(rows), 1), np.bool_), np.any(rows[1:] != rows[:-1], axis=1))]


def _grams(hits: np.ndarray, sources: np.ndarray) -> pa.Table:
    tables = [GRAMS.empty_table()]
    for source in np.unique(sources[hits[:, 0]]).tolist():
        of = hits[sources[hits[:, 0]] == source]
        gram, occurrences = np.unique(of[:, 1], return_counts=True)
        _, docs = np.unique(np.unique(of[:, 1] * len(sources) + of[:, 0]) // len(sources), return_counts=True)
        tables.append(pa.table([np.full(len(gram), source, np.int32), gram.astype(np.int32), docs, occurrences], GRAMS))
    return pa.concat_tables(tables)


def _seen(ours: Units, sources: np.ndarray) -> pa.Table:
    some, which = np.unique(sources, return_inverse=True)
    sums = [
        np.bincount(which, weights, len(some)).astype(np.int64)
        for weights in (None, np.diff(ours.bounds), np.diff(ours.offsets))
    ]
    return pa.table([some.astype(np.int32), *sums], SEEN)
