"""
Looking through: every unit of every corpus by the same index, in threads, put together in the order of the units.

What is kept of a unit does not grow with its texts: the tables of the scan, who the documents are that hold
something, and the text around what may become evidence.  Documents are numbered (unit << 32) + row, so the numbers and
all that is made from them are the same for any number of workers.
"""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from datapipe import text
from datapipe.auditing.report import Role
from datapipe.auditing.training import Batch, Books, Corpus, Document, Seen, joined
from datapipe.contamination import scan
from datapipe.contamination.index import Index
from datapipe.contamination.scan import Found

UNIT = 32  # bits of a document's number that are its row in the unit
PROMISING = 0.3  # share of a part that one run, or a window, must hold for its text to be kept
AROUND = 300  # bytes of text kept on each side
BEST = 8  # documents a unit keeps text of for a part
MANY = 5  # parts of different examples that make a document one to remember whatever they are


@dataclass(frozen=True)
class Kept:
    """A document that may become evidence: who it is, its bytes, pieces of its text as (first byte, bytes)."""

    document: Document
    size: int
    slices: tuple[tuple[int, bytes], ...]


@dataclass
class Side:
    """
    What one role gave.

    found:   the scan's tables;  holders: document number -> (source number, copies) of all that hold a run
    """

    role: Role
    found: list[Found] = field(default_factory=list)
    holders: dict[int, tuple[int, int]] = field(default_factory=dict)
    kept: dict[int, tuple[int, Kept]] = field(default_factory=dict)  # document number -> (corpus, Kept)
    seen: dict[tuple[int, str], Seen] = field(default_factory=dict)  # (corpus, source)

    def merged(self) -> Found:
        """All tables as one, in canonical order."""
        if len(self.found) != 1:
            self.found = [scan.merge(self.found)]
        return self.found[0]


@dataclass(frozen=True)
class Gathered:
    """By role; the books of each corpus; the names of source numbers."""

    sides: dict[Role, Side]
    books: list[Books]
    sources: list[str]


@dataclass
class _Unit:
    """What a unit of a corpus gave, before it is put together."""

    sides: dict[Role, Side]
    books: Books


def gather(
    corpora: Sequence[Corpus],
    index: Index,
    *,
    workers: int,
    progress: Callable[[str, int, int | None], None] = lambda what, done, total: None,
) -> Gathered:
    """Look through every unit of every corpus.  Memory: a few batches a worker, and what was found."""
    work = [(at, corpus, unit) for at, corpus in enumerate(corpora) for unit in corpus.work]
    sides: dict[Role, Side] = {role: Side(role) for corpus in corpora for role in corpus.roles}
    books = [Books() for _ in corpora]
    sources = sorted({source for corpus in corpora for source in corpus.sources})
    for number, (at, unit) in enumerate(_ordered(work, index, sources, workers)):
        progress("looking through", number + 1, len(work))
        books[at].add(unit.books)
        for role, mine in unit.sides.items():
            _add(sides[role], mine, at)
    return Gathered(sides, books, sources)


def _ordered(
    work: Sequence[tuple[int, Corpus, object]], index: Index, sources: list[str], workers: int
) -> Iterator[tuple[int, _Unit]]:
    """The units in order, some of them ahead in threads."""
    with ThreadPoolExecutor(max_workers=workers) as pool:
        waiting: deque[tuple[int, Future[_Unit]]] = deque()
        try:
            for number, (at, corpus, unit) in enumerate(work):
                waiting.append((at, pool.submit(look, corpus, unit, number, index, sources)))
                if len(waiting) > 2 * workers:
                    first, future = waiting.popleft()
                    yield first, future.result()
            while waiting:
                first, future = waiting.popleft()
                yield first, future.result()
        finally:
            for _, future in waiting:
                future.cancel()


def _add(side: Side, mine: Side, corpus: int) -> None:
    side.found += mine.found
    side.holders |= mine.holders
    side.kept |= {doc: (corpus, kept) for doc, (_, kept) in mine.kept.items()}
    for (_, source), seen in mine.seen.items():
        side.seen[corpus, source] = side.seen.get((corpus, source), Seen()) + seen


def look(corpus: Corpus, unit: object, number: int, index: Index, sources: Sequence[str]) -> _Unit:
    """One unit: its batches are scanned one after the other."""
    made = _Unit({}, Books())
    row = 0
    for batch in joined(corpus.read(unit, made.books)):
        side = made.sides.setdefault(batch.role, Side(batch.role))
        source = sources.index(batch.source)
        docs = (number << UNIT) + np.arange(row, row + len(batch.texts), dtype=np.int64)
        row += len(batch.texts)
        found = scan.scan(index, batch.texts, docs, source)
        _keep(side, found, batch, docs, source, index)
        side.found.append(found)
        del batch, found
    for side in made.sides.values():
        side.found = [scan.merge(side.found)]
    return made


def _keep(side: Side, found: Found, batch: Batch, docs: np.ndarray, source: int, index: Index) -> None:
    """Count the batch, and remember the documents that hold something."""
    seen = found.seen.to_pylist()
    side.seen[0, batch.source] = side.seen.get((0, batch.source), Seen()) + Seen(
        sum(row["documents"] for row in seen), sum(row["units"] for row in seen), sum(row["bytes"] for row in seen),
        int(batch.copies.sum()),
    )  # fmt: skip
    tables = (found.runs, found.masked, found.short, found.windows)
    holders = np.unique(np.concatenate([table["doc"].to_numpy() for table in tables]))
    for doc, copies in zip(holders.tolist(), batch.copies[holders - docs[0]].tolist(), strict=True):
        side.holders[doc] = (source, copies)
    for doc, spans in promising(found, index).items():
        side.kept[doc] = (0, _slices(batch, int(doc - docs[0]), spans))


def promising(found: Found, index: Index) -> dict[int, list[tuple[int, int]]]:
    """Document -> byte ranges: of each part the BEST documents that may be evidence for it, and likely mirrors."""
    parts, doc, low, high, length = (np.concatenate(columns) for columns in zip(
        *(_columns(table) for table in (found.runs, found.masked, found.short, found.windows)), strict=True
    ))  # fmt: skip
    enough = length >= np.maximum(1, PROMISING * index.lengths[parts])
    parts, doc, low, high, length = parts[enough], doc[enough], low[enough], high[enough], length[enough]
    order = np.lexsort((low, doc, -length, parts))
    first = np.flatnonzero(np.diff(parts[order], prepend=-1))
    place = np.arange(len(order)) - np.repeat(first, np.diff(np.append(first, len(order))))
    chosen = set(doc[order[place < 2 * BEST]].tolist())
    pairs = np.unique(np.stack([doc, parts]), axis=1) if len(doc) else np.zeros((2, 0), np.int64)
    names, times = np.unique(pairs[0], return_counts=True)
    chosen |= set(names[times >= MANY].tolist())
    ranges: dict[int, list[tuple[int, int]]] = {}
    for one, start, end in zip(doc.tolist(), low.tolist(), high.tolist(), strict=True):
        if one in chosen:
            ranges.setdefault(one, []).append((start, end))
    return ranges


def _columns(table: pa.Table) -> tuple[np.ndarray, ...]:
    return tuple(table[name].to_numpy() for name in ("part", "doc", "byte_start", "byte_end", "length"))


def _slices(batch: Batch, row: int, spans: list[tuple[int, int]]) -> Kept:
    """The text around the spans; ranges that touch are one."""
    data, offsets = text.buffers(batch.texts)
    start, end = int(offsets[row]), int(offsets[row + 1])
    size = end - start
    wide: list[list[int]] = []
    for low, high in sorted((max(0, low - AROUND), min(size, high + AROUND)) for low, high in spans):
        if wide and low <= wide[-1][1]:
            wide[-1][1] = max(wide[-1][1], high)
        else:
            wide.append([low, high])
    slices = [whole(data, start, end, start + low, start + high) for low, high in wide]
    return Kept(batch.document(row), size, tuple((low - start, data[low:high].tobytes()) for low, high in slices))


def whole(data: np.ndarray, start: int, end: int, low: int, high: int) -> tuple[int, int]:
    """The range widened so that it cuts no character."""
    while low > start and data[low] & 0xC0 == 0x80:
        low -= 1
    while high < end and data[high] & 0xC0 == 0x80:
        high += 1
    return low, high
