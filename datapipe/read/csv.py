"""
CSV and TSV: a record may run over lines, so a file is one stream, read by Python's csv module (in C).

The first record is the header.  CSV has no null and no types: an empty cell of another field than the text is null,
and an extra field's cell that spells a JSON number (0042 does not) is that number, so that filters can bound it.
"""

import csv
from collections.abc import Iterator
from typing import Self

from datapipe.errors import DataError
from datapipe.read.fields import NOT_UTF8, QUARANTINED, SURROGATE, Collector, Mapping, Path, Rows, no_text, refuse
from datapipe.read.jsonl import BLANKS, BOM, check_encoding
from datapipe.read.spec import spelled
from datapipe.read.streams import Block, Damage, Place, bare

ROWS = 8_000_000  # bytes of records that are worked on together
LONGEST = 2**31 - 1  # bytes of a cell; csv's own limit is 128 kB


class Lines:
    """Physical lines as csv wants them, with the bytes of the record that is being read."""

    def __init__(self, blocks: Iterator[Block]):
        self.record: list[bytes] = []
        self._blocks = blocks
        self._lines: Iterator[bytes] = iter(())

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> str:
        line = next(self._lines, None)
        if line is None:
            block = next(self._blocks)
            self._lines = iter(block.data.splitlines(keepends=True) if b"\r" not in block.data else _lines(block.data))
            line = next(self._lines)
        self.record.append(line)
        # what is not UTF-8 becomes lone surrogates, and the record is quarantined for them
        return line.decode("utf-8", "surrogateescape")

    def take(self) -> bytes:
        """The bytes of the record that csv has just read."""
        record = b"".join(self.record)
        self.record.clear()
        return record


def _lines(data: bytes) -> Iterator[bytes]:
    """Lines ended by a newline only; splitlines would end them at lone carriage returns too."""
    start = 0
    while start < len(data):
        end = data.find(b"\n", start) + 1 or len(data)
        yield data[start:end]
        start = end


def header(blocks: Iterator[Block], tabs: bool, name: str) -> tuple[list[str], Lines, Place]:
    """(column names, the lines behind them, where these begin) of a file; no names where it is empty."""
    lines = Lines(_without_mark(blocks, name))
    try:
        columns = next(reader(lines, tabs), [])
    except csv.Error as error:
        raise DataError(f"{name}:1: the header is not CSV: {error}") from None
    record = lines.take()
    return columns, lines, Place(len(record), 1 + record.count(b"\n"))


def _without_mark(blocks: Iterator[Block], name: str) -> Iterator[Block]:
    for block in blocks:
        if block.offset == 0:
            check_encoding(block.data[:4], name)
            block = Block(block.data.removeprefix(BOM), 0, 1)
        if block.data:
            yield block


def is_tabs(name: str) -> bool:
    """Whether cells are separated by tabs in a file of that name, compressed or not."""
    return bare(name).lower().endswith(".tsv")


def reader(lines: Lines, tabs: bool) -> Iterator[list[str]]:
    """The cells of each record; csv.Error where it is none."""
    csv.field_size_limit(LONGEST)
    return csv.reader(lines, delimiter="\t" if tabs else ",", strict=True)


def rows(columns: list[str], lines: Lines, at: Place, names: Mapping, tabs: bool, name: str) -> Iterator[Rows]:
    """
    The records behind the header, about eight megabytes of them at a time.

    A record of another number of cells, or one that csv cannot read, is quarantined.
    """
    text, others = _places(columns, names, name)
    records = reader(lines, tabs)
    offset, line = at
    out, begun = Collector(names), offset
    while True:
        try:
            cells, reason = next(records, None), None
        except csv.Error as error:
            cells, reason = [], f"not CSV: {_short(str(error))}"
        except Damage:
            yield out.rows((offset, line), offset - begun)  # the whole records before it
            raise
        record = lines.take()
        if cells is None and not record:
            break
        _add(out, cells or [], reason, columns, text, others, len(names.mapped), line, offset, record)
        offset += len(record)
        line += record.count(b"\n")
        if offset - begun >= ROWS:
            yield out.rows((offset, line), offset - begun)
            out, begun = Collector(names), offset
    yield out.rows((offset, line), offset - begun)


def _add(out: Collector, cells: list[str], reason: str | None, columns: list[str], text: int, others: list[int | None],
         mapped: int, line: int, offset: int, record: bytes) -> None:  # fmt: skip
    if reason is None and not record.strip(BLANKS + b"\n"):
        out.blank += 1
        return
    if reason is None and len(cells) != len(columns):
        reason = "other number of cells than the header"
    if not record.isascii() and any(SURROGATE.search(cell) for cell in cells):
        reason = NOT_UTF8
    if reason is not None:
        out.refused.append(refuse(QUARANTINED, reason, line, offset, record))
        return
    values: list = [None if at is None else cells[at] or None for at in others]
    values[mapped:] = [_typed(value) for value in values[mapped:]]
    out.add(cells[text], values, line, offset, record)


def _typed(cell: str | None) -> str | int | float | None:
    if cell is None:
        return None
    number = spelled(cell)
    if isinstance(number, float) and number.is_integer() and abs(number) < 2**53:
        return int(number)
    return cell if number is None else number


def _short(message: str) -> str:
    """A reason that is the same in every version of Python."""
    words = {
        "unexpected end": "quote without end",
        "expected after": "text behind a closing quote",
        "new-line character": "lone carriage return",
    }
    return next((short for part, short in words.items() if part in message), "syntax")


def _places(columns: list[str], names: Mapping, name: str) -> tuple[int, list[int | None]]:
    """Where the text and the other fields stand in a record; a column that is not there gives nulls."""
    repeated = {column for column in columns if columns.count(column) > 1}

    def place(path: Path) -> int | None:
        column = ".".join(path)
        if column in repeated:
            raise DataError(f"{name}: the column {column!r} stands in the header twice; rename one")
        return columns.index(column) if column in columns else None

    text = place(names.text)
    if text is None and columns:
        raise no_text(name, names, columns)
    return text or 0, [place(path) for _, path in names.others]
