"""
Comparing linked documents: their signatures and shingle sets are brought together, segment by segment, and walked.

Texts of linked documents are read once more, their sets scattered into pieces on disk (Spill), and each segment is
walked with only its own in memory, in threads.  A segment larger than the budget lies in mapped files, and its walk
pauses now and then to let go of the pages it has seen.
"""

import shutil
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import xxhash

from datapipe import text
from datapipe.documents import Documents
from datapipe.kernels.jit import given
from datapipe.kernels.walk import WINDOW, number, place, walk
from datapipe.spill import Spill
from datapipe.stages.bands import Banding, Entered, scatter, signatures
from datapipe.stages.segments import Line, Room, Segment

DIGITS = pc.ReplaceSubstringOptions(r"\p{Nd}+", "0")
BLOCK = 1 << 16  # documents whose buckets are computed together
NO_PAUSE = int(np.iinfo(np.int64).max)


@dataclass(frozen=True)
class Rule:
    """
    When a document leaves: at a Jaccard similarity of part / whole or more, among `most` comparisons with those, of
    the first `remember` kept documents of its buckets, whose signatures agree with its own in `least` values.
    """

    part: int
    whole: int
    least: int
    most: int = 64
    remember: int = 64


@dataclass(frozen=True)
class Found:
    """What the walk of a segment found: a row a dropped document, and counts [candidates, compared, capped]."""

    docs: np.ndarray
    kept: np.ndarray
    shared: np.ndarray  # shingles of both
    union: np.ndarray  # shingles of either
    digits: np.ndarray  # bool: the texts are the same, or differ in digits alone
    counts: np.ndarray


@dataclass(frozen=True)
class Arrays:
    """A segment in memory, by place: the sorted set of document i is sets[offsets[i]:offsets[i + 1]]."""

    signature: np.ndarray
    offsets: np.ndarray
    sets: np.ndarray
    masked: np.ndarray  # uint64: hash of the text with every number as 0


@dataclass(frozen=True)
class Comparison:
    """Compares the documents of a line.  `budget`: bytes that a segment may take before it lies in files."""

    docs: Documents
    entered: Entered
    how: Banding
    line: Line
    cut: list[Segment]
    rule: Rule
    budget: int
    one_large: threading.Lock = field(default_factory=threading.Lock)

    def run(self) -> Iterator[Found]:
        """What each segment's walk found, in order of the line."""
        folder = self.docs.work.folder("linked")
        sizes = np.zeros(len(self.line.docs), np.int64)
        sets, signed = self._gather(sizes)
        with ThreadPoolExecutor(self.docs.work.workers) as pool:
            yield from pool.map(lambda segment: self._walk(segment, sizes, sets, signed), self.cut)
        shutil.rmtree(folder)

    def _gather(self, sizes: np.ndarray) -> tuple[Spill, Spill]:
        """Scatter the shingle sets and the signatures of linked documents into the pieces; fill their sizes."""
        work, borders = self.docs.work, self.cut[0].borders
        folder, memory, pieces = work.folder("linked"), work.memory // 32, len(borders) - 1
        sets = Spill(folder / "sets", pieces, SETS, memory=memory)
        signed = Spill(folder / "signatures", pieces, _signed(self.how.num_perm), memory=memory)
        parts = {part.number: part for part in self.docs.parts}

        def gather(number: int) -> None:
            where = self.line.where[self.entered.docs[number]]
            linked = where >= 0
            rows, places = self.entered.rows[number][linked], where[linked]
            for here, table in parts[number].batches(["text"], rows):
                at = places[rows.searchsorted(here)]
                batch = _sets(table["text"].combine_chunks(), at, self.how.ngram)
                sizes[at] = np.diff(batch["shingles"].offsets.to_numpy())
                scatter(sets, borders.searchsorted(at, "right") - 1, batch)
            for names, matrix, _ in signatures(self.entered, number, rows):
                at = self.line.where[names]
                values = pa.FixedSizeListArray.from_arrays(pa.array(matrix.ravel()), self.how.num_perm)
                batch = pa.record_batch([pa.array(at), values], schema=signed.schema)
                scatter(signed, borders.searchsorted(at, "right") - 1, batch)

        with ThreadPoolExecutor(work.workers) as pool:
            list(pool.map(gather, self.entered.rows))
        return sets, signed

    def _walk(self, segment: Segment, sizes: np.ndarray, sets: Spill, signed: Spill) -> Found:
        """Decide about the documents of a segment; of those that lie in files one at a time."""
        if int(self.line.bytes[segment.start : segment.stop].sum()) <= self.budget:
            return self._decide(Room(None), NO_PAUSE, self._load(Room(None), segment, sizes, sets, signed), segment)
        with self.one_large:
            room = Room(self.docs.work.folder("linked") / f"mapped-{segment.start}")
            here = self._load(room, segment, sizes, sets, signed)
            return self._decide(room, self.docs.work.memory // 8, here, segment)

    def _decide(self, room: Room, allowance: int, here: Arrays, segment: Segment) -> Found:
        n, rule = segment.stop - segment.start, self.rule
        buckets, first = self._buckets(room, here.signature)
        filled, remembered = room.zeros(len(first) - 1, np.int32), room.zeros(int(first[-1]), np.int32)
        seen, kept, shared = room.zeros(n, np.int32), room.zeros(n, np.int64), room.zeros(n, np.int64)
        windows = np.zeros((2, (max(here.signature.nbytes, here.sets.nbytes) >> WINDOW) + 1), np.int32)
        fixed = given(buckets), given(first), given(here.signature), given(here.offsets), given(here.sets)
        limits = (rule.part, rule.whole, rule.least, rule.most)
        counts, at, pause = np.zeros(3, np.int64), 0, 0
        while at < n:
            pause += 1
            at = walk(at, allowance, pause, windows, *fixed, filled, remembered, seen, *limits, kept, shared, counts)
            room.relieve()
        left = np.flatnonzero(kept >= 0)
        stays, size = kept[left], np.diff(here.offsets)
        names, same = self.line.docs[segment.start : segment.stop], here.masked[left] == here.masked[stays]
        union = size[left] + size[stays] - shared[left]
        return Found(names[left], names[stays], shared[left], union, same, counts)

    def _load(self, room: Room, segment: Segment, sizes: np.ndarray, sets: Spill, signed: Spill) -> Arrays:
        """Put the pieces of a segment into arrays, and give their disk back."""
        n = segment.stop - segment.start
        here = Arrays(
            room.zeros((n, self.how.num_perm), np.uint32),
            room.zeros(n + 1, np.int64),
            room.zeros(int(sizes[segment.start : segment.stop].sum()), np.uint64),
            room.zeros(n, np.uint64),
        )
        np.cumsum(sizes[segment.start : segment.stop], out=here.offsets[1:])
        for piece in segment.pieces:
            for batch in sets.read(piece).to_batches():
                rows, lists = batch["place"].to_numpy() - segment.start, batch["shingles"]
                here.masked[rows] = batch["masked"].to_numpy()
                offsets, values = lists.offsets.to_numpy(), lists.values.to_numpy()
                place(given(rows), given(offsets), given(values), given(here.offsets), here.sets)
            sets.drop(piece)
            for batch in signed.read(piece).to_batches():
                values = batch["signature"].flatten().to_numpy().reshape(len(batch), -1)
                here.signature[batch["place"].to_numpy() - segment.start] = values
            signed.drop(piece)
            room.relieve()
        return here

    def _buckets(self, room: Room, signature: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """
        (buckets int32[bands, n], first int64[m + 1]): numbers of the buckets that hold two documents or more, -1 for
        the others, and where the documents that each bucket remembers begin.  All of a bucket are in one segment.
        """
        n, bands = len(signature), self.how.bands
        keys, buckets = room.zeros((bands, n), np.uint64), room.zeros((bands, n), np.int32)
        for start in range(0, n, BLOCK):
            part = signature[start : start + BLOCK]
            keys[:, start : start + BLOCK] = text.band_buckets(part, bands, self.how.rows).T
            room.relieve()
        first, base = room.zeros(n * bands // 2 + 1, np.int64), 0
        for band in range(bands):
            order = np.argsort(keys[band])
            base = number(given(keys[band]), given(order), self.rule.remember, base, buckets[band], first)
            room.relieve()
        return buckets, first[: base + 1]


SETS = pa.schema([("place", pa.int64()), ("masked", pa.uint64()), ("shingles", pa.large_list(pa.uint64()))])


def _signed(num_perm: int) -> pa.Schema:
    return pa.schema([("place", pa.int64()), ("signature", pa.list_(pa.uint32(), num_perm))])


def _sets(texts: pa.Array, places: np.ndarray, ngram: int) -> pa.RecordBatch:
    """Shingle sets of texts, and hashes that tell whether two differ in digits alone."""
    offsets, hashes = text.shingle_sets(texts, ngram)
    lists = pa.LargeListArray.from_arrays(pa.array(offsets), pa.array(hashes))
    plain = pc.call_function("replace_substring_regex", [texts], DIGITS)
    masked = np.fromiter((xxhash.xxh3_64_intdigest(value.as_buffer()) for value in plain), np.uint64, len(plain))
    return pa.record_batch([pa.array(places), pa.array(masked), lists], schema=SETS)
