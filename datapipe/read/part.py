"""
The unit of reading: files, or a piece of one, become documents.parquet and what stands beside it.

    documents.parquet, narrow.parquet   the stored documents, row by row the same (tables.py)
    cut.parquet                         documents that select, snapshot or a keyed sample cut
    rejected.parquet, quarantine.parquet

The counts of a unit hold a book for each of its inputs, in their order, which is also the order of the rows.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from datapipe import tables
from datapipe.errors import DataError, DriftError
from datapipe.read import books, csv, jsonl, parquet, texts
from datapipe.read.fields import QUARANTINED, REJECTED, Quoting, Refused, Rows
from datapipe.read.planning import Files, Groups, Input, Piece, Slice, Stream
from datapipe.read.settle import Settled, gather, settle
from datapipe.read.spec import Spec
from datapipe.read.streams import Damage, Expanded, Place, blocks, discard
from datapipe.units import Done, Store, Task, Unit

FUNCTION, VERSION = "read", 2
LIBRARIES = ("pyarrow", "xxhash")
PART = 256_000_000  # bytes of text after which a stream that cannot be split commits a part
# 3.3 ms for a MB of text where level 3 takes 6.4, for 13 % more bytes; names and hashes make no dictionary
TEXT = {"compression_level": 1, "use_dictionary": ["source", "path", "group", "snapshot", "lang"]}
ENOUGH = 4_000_000  # bytes of files that make a row group
MOST_FILES = 4096  # small files whose documents share a row group
REFUSED_ROWS = 10_000  # refused records that are written together


class Writer:
    """The files of a unit, written block by block."""

    def __init__(self, folder: Path, spec: Spec, inputs: Sequence[Input]):
        self.spec, self.inputs = spec, inputs
        self.books = [books.book() for _ in inputs]
        self.edits: dict[str, int] = dict.fromkeys(spec.source.edits, 0)
        self.labels: dict[str, int] = dict.fromkeys(spec.labels, 0) if "snapshot" in spec.source.fields else {}
        self._documents = tables.writer(folder / "documents.parquet", tables.DOCUMENTS, **TEXT)
        self._narrow = tables.writer(folder / "narrow.parquet", tables.NARROW)
        self._cut = tables.writer(folder / "cut.parquet", tables.CUT)
        self._refused = {
            kind: tables.writer(folder / name, tables.REFUSED)
            for kind, name in ((REJECTED, "rejected.parquet"), (QUARANTINED, "quarantine.parquet"))
        }
        self._pending: list[tuple[int, Rows]] = []
        self._held = 0  # bytes that they keep in memory
        self._told: dict[str, list[tuple[int, Refused]]] = {REJECTED: [], QUARANTINED: []}

    def add(self, at: int, rows: Rows) -> None:
        """Rows of input number `at`; its refused records too."""
        book = self.books[at]
        book["records"] += len(rows) + len(rows.refused) + rows.blank
        book["blank"] += rows.blank
        book["repaired"] += rows.repaired
        if self._pending and _form(self._pending[0][1]) != _form(rows):
            self.flush()
        self._pending.append((at, rows))
        self._held += max(rows.text.nbytes, rows.size)
        if self._held >= ENOUGH or len(self._pending) >= MOST_FILES:
            self.flush()

    def flush(self) -> None:
        """Settle and write what waits, as one row group."""
        if not self._pending:
            return
        told = [(at, one) for at, rows in self._pending for one in rows.refused]
        rows, inputs = gather(self._pending)
        if len(rows):
            settled = settle(self.spec, rows, inputs, [one.relative for one in self.inputs])
            self._write(settled)
            told += settled.refused
        self._tell(told)
        self._pending, self._held = [], 0

    def _write(self, settled: Settled) -> None:
        for file, table in (
            (self._documents, settled.documents),
            (self._narrow, settled.narrow),
            (self._cut, settled.cut),
        ):
            if len(table):
                file.write_table(table.combine_chunks(), row_group_size=len(table))
        for at, n in enumerate(np.bincount(settled.stored, minlength=len(self.books)).tolist()):
            self.books[at]["rows"] += n
            self.books[at]["documents"] += n
        for (at, rule), n in settled.cut_by.items():
            books.count(self.books[at]["cut"], rule, n)
            self.books[at]["documents"] += n
        for name, n in settled.edited.items():
            books.count(self.edits, name, n)
        for label, n in settled.labels.items():
            if label in self.labels:
                self.labels[label] += n

    def _tell(self, told: list[tuple[int, Refused]], *, all_: bool = False) -> None:
        told.sort(key=lambda one: (one[0], one[1].line))
        for at, one in told:
            books.count(self.books[at][one.kind], one.reason)
            self._told[one.kind].append((at, one))
        for kind, waiting in self._told.items():
            if waiting and (all_ or len(waiting) >= REFUSED_ROWS):
                self._refused[kind].write_table(self._refused_table(waiting))
                waiting.clear()

    def _refused_table(self, told: list[tuple[int, Refused]]) -> pa.Table:
        raw = self.spec.raw
        rows = [(self.spec.name, self.inputs[at].relative, r.line, r.offset, r.reason, r.length, r.xxh3_128,
                 r.raw if raw else None) for at, r in told]  # fmt: skip
        columns = [
            pa.array(column, field.type) for column, field in zip(zip(*rows, strict=True), tables.REFUSED, strict=True)
        ]
        return pa.Table.from_arrays(columns, schema=tables.REFUSED)

    def close(self) -> dict:
        """Finish the files; the counts of the unit."""
        self.flush()
        self._tell([], all_=True)
        for file in (self._documents, self._narrow, self._cut, *self._refused.values()):
            file.close()
        for book, one in zip(self.books, self.inputs, strict=True):
            books.close(book, one.relative)
        rows = sum(book["rows"] for book in self.books)
        return {"rows": rows, "inputs": self.books, "edits": self.edits, "labels": self.labels}


def _form(rows: Rows) -> tuple:
    """Rows of one form can be settled together."""
    return rows.offset is None, tuple(rows.mapped)


# what is read


Thin = Callable[[Input, Rows], Rows]  # some of the rows of an input; for a store that lasts no longer than the sample


def task(spec: Spec, piece: Piece, thin: Thin | None = None) -> Task:
    """The work that a piece of the plan stands for; with `thin` one unit, of the first part of a stream."""
    match piece:
        case Stream() if thin is None:
            return Chain(spec, piece.input)
        case Stream():
            settings = [piece.input.relative, "first", PART]
            return _unit(spec, [piece.input], settings, lambda _: _first_part(spec, piece.input), thin)
        case Files():
            settings = [one.relative for one in piece.inputs]
            return _unit(spec, piece.inputs, settings, lambda at: _whole_file(spec, piece.inputs[at]), thin)
        case Slice():
            settings = [piece.input.relative, piece.start, *piece.at, piece.inside, piece.stop]
            return _unit(spec, [piece.input], settings, lambda _: _slice(spec, piece), thin)
        case Groups():
            settings = [piece.input.relative, piece.first, piece.stop]
            return _unit(spec, [piece.input], settings, lambda _: _groups(spec, piece), thin)


def rows_of(spec: Spec, piece: Piece) -> Iterator[tuple[Input, Iterator[Rows]]]:
    """
    The inputs of a piece, and the rows that it has of each, for who keeps none of them.  An iterator raises Damage or
    DataError where its file cannot be read on.
    """
    match piece:
        case Files():
            yield from ((one, _whole_file(spec, one)) for one in piece.inputs)
        case Slice():
            yield piece.input, _slice(spec, piece)
        case Groups():
            yield piece.input, _groups(spec, piece)
        case Stream():
            yield piece.input, _from(spec, piece.input, Place(0, 1))


def _unit(
    spec: Spec, inputs: Sequence[Input], piece: list, read: Callable[[int], Iterator[Rows]], thin: Thin | None
) -> Unit:
    """A unit that reads input after input by `read(number)`."""

    def work(folder: Path) -> dict:
        out = Writer(folder, spec, inputs)
        for at, one in enumerate(inputs):
            check(one)
            found = read(at)
            while (rows := _next(found, spec, one, out.books[at])) is not None:
                out.add(at, thin(one, rows) if thin else rows)
            check(one)
        return out.close()

    settings = spec.settings() | {"piece": piece, "formats": [[one.format, one.codec] for one in inputs]}
    return Unit(FUNCTION, VERSION, settings, [one.sha256 for one in inputs], [*LIBRARIES, *spec.libraries], work)


def check(one: Input) -> None:
    """DriftError where a file is not what it was when the build was planned."""
    try:
        stat = one.path.stat()
    except FileNotFoundError:
        raise DriftError(f"{one.path}: is gone since the build was planned; put it back, or start again") from None
    if (stat.st_size, stat.st_mtime_ns, stat.st_ino) != one.stat:
        raise DriftError(f"{one.path}: was changed while it was read; start again when nothing writes to it")


def _next(rows: Iterator[Rows], spec: Spec, one: Input, book: dict) -> Rows | None:
    """The next rows; a damage ends the build, or the input where the source is tolerant."""
    try:
        return next(rows, None)
    except Quoting as error:
        raise spec.discreet(error) from None
    except Damage as damage:
        if not spec.source.tolerant:
            raise DataError(
                f"{one.path}: {damage}; get the file again, or set `tolerant: true` for source {spec.name} "
                "to keep its whole records"
            ) from damage
        book["damaged"] = str(damage)
        return None


def _whole_file(spec: Spec, one: Input) -> Iterator[Rows]:
    match one.format:
        case "jsonl" | "csv":
            yield from _from(spec, one, Place(0, 1))
        case "text":
            data = b"".join(Expanded(one.path, one.codec, spec.expanded))
            yield texts.rows(data, one.relative, spec.names)
        case _:
            groups = parquet.groups(one.path, spec.names, str(one.path))
            yield from parquet.rows(one.path, spec.names, str(one.path), groups, 0, len(groups))


def _first_part(spec: Spec, one: Input) -> Iterator[Rows]:
    """What the first unit of a stream reads."""
    for rows in _from(spec, one, Place(0, 1)):
        yield rows
        if rows.end[0] >= PART:
            return


def _from(spec: Spec, one: Input, at: Place) -> Iterator[Rows]:
    """The rows of a JSONL or CSV file that begin at a place."""
    chunks = iter(Expanded(one.path, one.codec, spec.expanded))
    if one.format == "jsonl":
        yield from _lines(spec, one, blocks(discard(chunks, at.offset), at))
        return
    tabs = csv.is_tabs(one.relative)
    columns, lines, behind = csv.header(blocks(chunks, Place(0, 1)), tabs, str(one.path))
    if at.offset:
        chunks = discard(iter(Expanded(one.path, one.codec, spec.expanded)), at.offset)
        lines, behind = csv.Lines(blocks(chunks, at)), at
    yield from csv.rows(columns, lines, behind, spec.names, tabs, str(one.path))


def _lines(spec: Spec, one: Input, found: Iterator) -> Iterator[Rows]:
    for block in found:
        if block.offset == 0:
            jsonl.check_encoding(block.data[:4], str(one.path))
        yield jsonl.rows(block, spec.names)
        del block


def _slice(spec: Spec, piece: Slice) -> Iterator[Rows]:
    one = piece.input
    chunks = iter(Expanded(one.path, one.codec, spec.expanded, piece.start, piece.at.offset))
    return _lines(spec, one, blocks(chunks, piece.at, inside=piece.inside, stop=piece.stop))


def _groups(spec: Spec, piece: Groups) -> Iterator[Rows]:
    one = piece.input
    return parquet.rows(one.path, spec.names, str(one.path), piece.groups, piece.first, piece.stop)


@dataclass
class Chain:
    """
    A stream that cannot be split: parts of about PART bytes of text, each committed when it is there.

    After a stop the committed parts are passed over without parsing: the last one says where the next begins.
    """

    spec: Spec
    input: Input

    def run(self, store: Store) -> list[Done]:
        """Every part, from the store or read now."""
        done: list[Done] = []
        at, rows = Place(0, 1), None
        while not done or not done[-1].counts["last"]:
            unit = self._unit(len(done), at, rows := rows or _from(self.spec, self.input, at))
            if found := store.find(unit.key):
                rows = None  # the next part is read from where this one ends
            done.append(found or store.commit(unit))
            at = Place(*done[-1].counts["end"])
        return done

    def _unit(self, number: int, at: Place, rows: Iterator[Rows]) -> Unit:
        def work(folder: Path) -> dict:
            check(self.input)
            out = Writer(folder, self.spec, [self.input])
            end, last = at, True
            while last and (block := _next(rows, self.spec, self.input, out.books[0])) is not None:
                out.add(0, block)
                end = Place(*block.end)
                last = end.offset - at.offset < PART
            check(self.input)
            return out.close() | {"end": list(end), "last": last}

        settings = self.spec.settings() | {
            "piece": [self.input.relative, "part", number, PART],
            "formats": [[self.input.format, self.input.codec]],
        }
        return Unit(FUNCTION, VERSION, settings, [self.input.sha256], [*LIBRARIES, *self.spec.libraries], work)
