"""
From bytes to records: each form of a file as a list of objects, or of reasons why a record is none.

A record is a JSON object or what corresponds to it.  Nested publications (SQuAD's articles, paragraphs and questions;
RACE's passages with lists of questions; an object of columns) become one record a question.
"""

import csv
import io
from collections.abc import Iterator
from itertools import chain
from typing import Any, Literal

import pyarrow as pa
import pyarrow.parquet as pq

from datapipe.contamination.suites import names, templates
from datapipe.contamination.suites.opening import form
from datapipe.errors import DataError
from datapipe.read.fields import NOT_UTF8, SURROGATE, Bad
from datapipe.read.jsonl import BLANKS, BOM, check_encoding, parse

Record = dict[str, Any] | str  # a string is why there is none
LONGEST = 2**31 - 1  # bytes of a cell; csv's own limit is 128 kB
ROWS = 1000  # of a table that are made to objects together
NOT_OBJECT = "not an object"
# what pyarrow raises on a damaged file; ValueError and OverflowError of a name that is not UTF-8, of a date beyond ours
TABLE_ERRORS = (pa.ArrowException, OSError, ValueError, OverflowError, KeyError)


class Unreadable(Exception):
    """A file that is not of its form; its text is the reason."""


def records(path: str, data: bytes, cut: bool, expanded: int) -> list[Record]:
    """
    What a file holds; `cut`: the bytes end too early, so that a last line may be half.  Unreadable where it is not of
    its form.
    """
    match _sniffed(path, data):
        case "parquet":
            return list(_parquet(data, expanded))
        case "arrow":
            return list(_arrow(data, expanded))
        case kind:
            try:
                check_encoding(data[:4], path)
            except DataError as error:
                raise Unreadable(str(error).removeprefix(f"{path}: ")) from None
            data = data.removeprefix(BOM)
            if cut:
                data = data[: data.rfind(b"\n") + 1]
            return {"csv": _csv, "tsv": _tsv, "json": _json, "jsonl": _json, "text": _text}[kind](data)


def _sniffed(path: str, data: bytes) -> str:
    """By the first bytes where these tell, else by the name; a .json may hold lines, a .txt may hold JSON."""
    if data.startswith(b"PAR1"):
        return "parquet"
    if data.startswith((b"ARROW1", b"\xff\xff\xff\xff")):
        return "arrow"
    named = form(path) or "text"
    return "jsonl" if named == "text" and data.removeprefix(BOM).lstrip()[:1] in (b"{", b"[") else named


# tables


def _parquet(data: bytes, expanded: int) -> Iterator[Record]:
    try:
        file = pq.ParquetFile(pa.BufferReader(data))
        yield from _rows(file.iter_batches(ROWS), expanded)
    except TABLE_ERRORS as error:
        raise Unreadable(f"not Parquet, or damaged: {_short(error)}") from None


def _arrow(data: bytes, expanded: int) -> Iterator[Record]:
    try:
        if data.startswith(b"ARROW1"):
            file = pa.ipc.open_file(data)
            yield from _rows((file.get_batch(at) for at in range(file.num_record_batches)), expanded)
        else:
            yield from _rows(pa.ipc.open_stream(data), expanded)
    except TABLE_ERRORS as error:
        raise Unreadable(f"not Arrow, or damaged: {_short(error)}") from None


def _rows(batches: Any, expanded: int) -> Iterator[Record]:
    """
    A batch that was compressed may be any size: it is bounded like everything else.  Arrow reads what it is told to
    read, wrong offsets too, so a batch is checked before it is looked at.
    """
    for batch in batches:
        bad = _damage(batch)
        if bad and "UTF8" not in bad:
            raise Unreadable(f"damaged: {bad}")
        expanded -= batch.nbytes
        if expanded < 0:
            raise Unreadable("its columns are too large when expanded")
        for one in [batch] if not bad else [batch.slice(row, 1) for row in range(len(batch))]:
            yield from [NOT_UTF8] * len(one) if bad and _damage(one) else one.to_pylist()


def _damage(batch: pa.RecordBatch) -> str | None:
    """What is wrong with a batch, if something is; "Invalid UTF8" where only a text is."""
    try:
        batch.validate(full=True)
    except pa.ArrowInvalid as error:
        return _short(error)
    return None


def _short(error: Exception) -> str:
    return str(error).splitlines()[0][:100]


def _csv(data: bytes) -> list[Record]:
    head = data.partition(b"\n")[0]
    return _cells(data, ";" if head.count(b";") > head.count(b",") else ",", csv.QUOTE_MINIMAL)


def _tsv(data: bytes) -> list[Record]:
    """Quotes of a TSV are text where every line has as many tabs as the first."""
    tabs = {line.count(b"\t") for line in data.splitlines() if line}
    return _cells(data, "\t", csv.QUOTE_NONE if len(tabs) == 1 else csv.QUOTE_MINIMAL)


def _cells(data: bytes, delimiter: str, quoting: Literal[0, 3]) -> list[Record]:
    """A first line without a name that we know is no header: then columns are called 1, 2, ..."""
    csv.field_size_limit(LONGEST)
    text = data.decode("utf-8", "surrogateescape")
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, quoting=quoting)
    found: list[Record] = []
    columns: list[str] | None = None
    try:
        for cells in reader:
            if not any(cell.strip() for cell in cells):
                continue
            if columns is None:
                if any(names.known(cell) for cell in cells):
                    columns = cells
                    continue
                columns = [str(n) for n in range(1, len(cells) + 1)]
            found.append(_object(columns, cells))
    except csv.Error as error:
        found.append(f"not CSV: {error}")
    return found


def _object(columns: list[str], cells: list[str]) -> Record:
    if len(cells) != len(columns):
        return "other number of cells than the first line"
    if any(SURROGATE.search(cell) for cell in cells):
        return NOT_UTF8
    return dict(zip(columns, cells, strict=True))


# JSON


def _json(data: bytes) -> list[Record]:
    """Lines, where the first is a value by itself; else one value."""
    lines = [line for line in data.split(b"\n") if line.strip(BLANKS)]
    if not lines:
        return []
    first = _value(lines[0])
    if len(lines) > 1 and not isinstance(first, Bad):
        return _unnested([first, *map(_value, lines[1:])])
    whole = first if len(lines) == 1 else _value(data.strip(BLANKS + b"\n"))
    if isinstance(whole, Bad):
        found = [_value(line) for line in lines]
        if all(isinstance(value, Bad) for value in found):
            raise Unreadable(str(whole))
        return _unnested(found)
    return _unnested(_listed(whole))


def _value(body: bytes) -> object:
    try:
        return parse(body.strip(BLANKS))
    except Bad as bad:
        return Bad(str(bad))  # without its traceback, which holds all that was read


def _listed(whole: object) -> list:
    """The records of one JSON value: of an array, of an object that holds arrays, columns, or records by their id."""
    if isinstance(whole, list):
        return whole
    if not isinstance(whole, dict):
        raise Unreadable("JSON without records: expected an array or an object")
    arrays = {name: value for name, value in whole.items() if _objects(value) and not names.known(name)}
    if names.nested(whole) or (not arrays and any(names.known(name) for name in whole) and not _columns(whole)):
        return [whole]
    if len(arrays) == 1:
        return next(iter(arrays.values()))
    if arrays:
        return [{"split": name} | row for name, rows in arrays.items() for row in rows if isinstance(row, dict)]
    if columns := _columns(whole):
        return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    if whole and all(isinstance(value, dict) for value in whole.values()):
        if all(set(value) == {str(n) for n in range(len(value))} for value in whole.values()):  # columns of rows
            return _listed({name: list(value.values()) for name, value in whole.items()})
        return [{"id": name} | value for name, value in whole.items()]
    return [whole]


def _objects(value: object) -> bool:
    return isinstance(value, list) and len(value) > 0 and isinstance(value[0], dict)


def _columns(whole: dict) -> dict[str, list] | None:
    """The lists of an object, where there are several, all of one length, and one is of strings."""
    lists = {name: value for name, value in whole.items() if isinstance(value, list)}
    if len(lists) < 2 or len({len(value) for value in lists.values()}) > 1 or len(lists) < len(whole):
        return None
    return lists if any(value and isinstance(value[0], str) for value in lists.values()) else None


def _unnested(values: list) -> list[Record]:
    """One record a question."""
    return list(chain.from_iterable(map(_questions, values)))


def _questions(value: object) -> Iterator[Record]:
    if isinstance(value, Bad):
        yield str(value)
    elif not isinstance(value, dict):
        yield NOT_OBJECT
    elif inner := names.nested(value):
        above = {name: what for name, what in value.items() if name != inner and names.plain(name) != "id"}
        for child in value[inner]:
            yield from _questions(above | child)
    elif several := names.parallel(value):
        above = {name: what for name, what in value.items() if name not in several}
        for at in range(len(value[several[0]])):
            yield above | {name.removesuffix("s"): value[name][at] for name in several}
    else:
        yield value


# text


def _text(data: bytes) -> list[Record]:
    """Blocks of lines with a blank line between them."""
    text = data.decode("utf-8", "surrogateescape").replace("\r\n", "\n")
    found = [templates.block(block) for block in templates.blocks(text)]
    known = sum(isinstance(record, dict) for record in found)
    if found and known * 2 < len(found):
        raise Unreadable("text without the blocks of questions and answers that this reads")
    return [record if isinstance(record, dict) and not SURROGATE.search("".join(map(str, record.values())))
            else NOT_UTF8 if isinstance(record, dict) else record for record in found]  # fmt: skip
