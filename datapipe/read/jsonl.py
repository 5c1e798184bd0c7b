"""
JSON lines.  A block goes through pyarrow.json where that provably gives what the exact path would; else line by line.

pyarrow.json reads 300 MB/s and is careless: it takes two objects on a line, invalid UTF-8, a repeated key that
nobody asked for, and dies on a block that begins with null.  So a block is looked at first, and what it gave after.
"""

import itertools
import json
import re

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import json as arrow

from datapipe.errors import DataError
from datapipe.kernels.shape import Shape, shape
from datapipe.read.fields import (
    EXACT,
    LONG,
    LONG_NUMBER,
    MISSING_TEXT,
    NOT_STRING,
    NOT_UTF8,
    NULL_TEXT,
    QUARANTINED,
    REJECTED,
    REPEATED_KEY,
    SURROGATE,
    TOO_DEEP,
    Bad,
    Collector,
    Mapping,
    Path,
    Refused,
    Repeated,
    Rows,
    as_text,
    clean,
    refuse,
)
from datapipe.read.streams import Block, utf_other

BOM = b"\xef\xbb\xbf"
BLANKS = b" \t\r"
DEEPEST = 200  # of a block on the fast path; Python reads five times that before it gives up
SAMPLE = 16  # lines that tell the types of a block
MOST_DIGITS = 4300  # of an integer that Python reads
MISSING = object()
# pyarrow.json also takes Inf and -NaN, and integers of any length: no matter in a field that nobody asked for
NUMBERS = re.compile(r'"(?:[^"\\]|\\.)*"?|-?Inf(?!inity)|-NaN', re.DOTALL)
SYNTAX = {
    "Unterminated string starting at": "string without end",
    "Invalid control character at": "raw control character in a string",
    "Invalid \\escape": "unknown escape",
    "Invalid \\uXXXX escape": "unknown escape",
}


def rows(block: Block, names: Mapping) -> Rows:
    """What a block of JSON lines holds."""
    if block.offset == 0:
        block = _without_mark(block)
    found = fast(block, names)
    return exact(block, names) if found is None else found


def check_encoding(head: bytes, name: str) -> None:
    """DataError where a file's first bytes are of another encoding than UTF-8."""
    if encoding := utf_other(head):
        raise DataError(f"{name}: is {encoding}, expected UTF-8; convert it (iconv -f {encoding} -t UTF-8)")


def _without_mark(block: Block) -> Block:
    """The block without the byte-order mark of a file; it is no content."""
    return Block(block.data[3:], 3, block.line) if block.data.startswith(BOM) else block


# the exact path: a line at a time


def exact(block: Block, names: Mapping) -> Rows:
    """Every line by Python's json, with a reason for each that is no document."""
    out = Collector(names)
    offset, line = block.offset, block.line - 1
    for record in block.data.split(b"\n"):
        line += 1
        at, offset = offset, offset + len(record) + 1
        if offset > block.offset + len(block.data) and not record:
            break  # what split gives behind the last newline
        if record.startswith(BOM):  # a file that was glued to another brought its mark along
            at, record = at + 3, record[3:]
        try:
            found = _document(record, names)
        except Bad as bad:
            out.refused.append(refuse(QUARANTINED, str(bad), line, at, record))
            continue
        match found:
            case None:
                out.blank += 1
            case str():
                out.refused.append(refuse(REJECTED, found, line, at, record))
            case text, others, repaired:
                out.add(text, others, line, at, record)
                out.repaired += repaired
    end = block.offset + len(block.data)
    return out.rows((end, block.line + block.data.count(b"\n")), len(block.data))


def _document(record: bytes, names: Mapping) -> tuple[str, list, bool] | str | None:
    """(text, other fields, repaired) of a line; why it has no text; null for a blank one.  Bad: it is unreadable."""
    body = record.strip(BLANKS)
    if not body:
        return None
    found = parse(body)
    if not isinstance(found, dict):
        raise Bad("not an object")
    text = _get(found, names.text)
    others = [as_text(_value(found, path)) for _, path in names.mapped]
    others += [clean(_value(found, path)) for _, path in names.extra]
    if not isinstance(text, str):
        return MISSING_TEXT if text is MISSING else NULL_TEXT if text is None else NOT_STRING
    if b"\\ud" not in body and b"\\uD" not in body:
        return text, others, False
    text, times = SURROGATE.subn("\ufffd", text)
    return text, others, times > 0


def _pairs(pairs: list[tuple[str, object]]) -> dict:
    found = dict(pairs)
    return found if len(found) == len(pairs) else Repeated(pairs)


def _integer(digits: str) -> object:
    return int(digits) if len(digits) <= MOST_DIGITS else LONG


_scan = json.JSONDecoder(object_pairs_hook=_pairs).scan_once  # pyright: ignore[reportAttributeAccessIssue]
_scan_long = json.JSONDecoder(object_pairs_hook=_pairs, parse_int=_integer).scan_once  # pyright: ignore[reportAttributeAccessIssue]


def parse(body: bytes) -> object:
    """The one JSON value that a line holds; Bad with a short reason where it is none."""
    try:
        text = body.decode("utf-8")
    except UnicodeDecodeError:
        raise Bad(NOT_UTF8) from None
    try:
        try:
            found, end = _scan(text, 0)
        except json.JSONDecodeError:
            raise
        except (ValueError, StopIteration):
            text = NUMBERS.sub(lambda token: token[0] if token[0].startswith('"') else "NaN", text)
            found, end = _scan_long(text, 0)
    except json.JSONDecodeError as error:
        raise Bad(f"not JSON: {SYNTAX.get(error.msg, 'syntax')}") from None
    except StopIteration:
        raise Bad("not JSON: syntax") from None
    except RecursionError:
        raise Bad(TOO_DEEP) from None
    if end != len(text):
        raise Bad("trailing data")
    return found


def _get(found: object, path: Path) -> object:
    """The value at a path, MISSING where there is none; Bad where a key on the way was given twice."""
    for name in path:
        if not isinstance(found, dict):
            return MISSING
        if isinstance(found, Repeated) and name in found.names:
            raise Bad(REPEATED_KEY)
        found = found.get(name, MISSING)
    return found


def _value(found: dict, path: Path) -> object:
    value = _get(found, path)
    if value is LONG:
        raise Bad(LONG_NUMBER)
    return None if value is MISSING else value


# the fast path: a block at a time


def fast(block: Block, names: Mapping) -> Rows | None:
    """The block by pyarrow.json; null where the exact path might see something else in it."""
    lines = shape(block.data)
    if not 0 < len(lines.starts) == lines.objects or lines.deepest >= DEEPEST or not _is_utf8(block.data):
        return None
    types = _types(block.data, names)
    table = None if types is None else _parse(block.data, _schema(names, types), lines.spelled)
    if table is None or table.num_rows != lines.objects:
        return None
    others: list[list] = []
    for _, path in names.others:
        if (column := _values(_column(table, path))) is None:
            return None
        others.append(column)
    return _fast_rows(block, names, _column(table, names.text), others, lines)


def _is_utf8(data: bytes) -> bool:
    offsets = pa.py_buffer(np.array([0, len(data)], np.int64))
    try:
        pa.LargeStringArray.from_buffers(1, offsets, pa.py_buffer(data)).validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


def _types(data: bytes, names: Mapping) -> list[pa.DataType] | None:
    """The type of every field but the text, from the first lines; null where one is an object or a list."""
    seen: list[object] = [None] * len(names.others)
    for record in data[: 1 << 18].split(b"\n", SAMPLE)[:SAMPLE] if names.others else ():
        try:
            found = parse(record.strip(BLANKS))
            for at, (_, path) in enumerate(names.others):
                if seen[at] is None and isinstance(found, dict):
                    seen[at] = _value(found, path)
        except Bad:
            continue  # pyarrow.json will find it, too
        if None not in seen:
            break
    types = [_type(value) for value in seen]
    return None if None in types else types


def _type(value: object) -> pa.DataType | None:
    match value:
        case bool():
            return pa.bool_()
        case int() if abs(value) >= EXACT:
            return pa.int64()
        case int() | float():
            return pa.float64()  # takes integers as well; those that it cannot hold exactly are found later
        case None | str():
            return pa.string()
    return None


def _schema(names: Mapping, types: list[pa.DataType]) -> pa.Schema | None:
    """The schema that pyarrow.json is given; null where one path leads through another's value."""
    tree: dict = {}
    for (_, path), kind in zip((("text", names.text), *names.others), (pa.large_string(), *types), strict=True):
        node = tree
        for name in path[:-1]:
            node = node.setdefault(name, {})
            if not isinstance(node, dict):
                return None
        if node.setdefault(path[-1], kind) is not kind:
            return None
    return pa.schema(_fields(tree))


def _fields(tree: dict) -> list[pa.Field]:
    return [pa.field(name, pa.struct(_fields(kind)) if isinstance(kind, dict) else kind) for name, kind in tree.items()]


def _parse(data: bytes, schema: pa.Schema | None, spelled: bool) -> pa.Table | None:
    r"""spelled: whether the data, which is UTF-8, holds \u; of \ud800 comes out what is not."""
    if schema is None or len(data) >= 2**31 - 1:
        return None
    options = arrow.ReadOptions(block_size=len(data) + 1, use_threads=False)
    parsing = arrow.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore")
    try:
        table = arrow.read_json(pa.BufferReader(data), options, parsing)
        if spelled:
            table.validate(full=True)
    except pa.ArrowException:
        return None
    return table.combine_chunks()


def _column(table: pa.Table, path: Path) -> pa.Array:
    """The column at a path; null where a parent is."""
    column = table.column(path[0]).combine_chunks()
    column = column.chunk(0) if isinstance(column, pa.ChunkedArray) else column
    return (
        pc.call_function("struct_field", [column], pc.StructFieldOptions(list(path[1:]))) if len(path) > 1 else column
    )


def _values(column: pa.Array) -> list | None:
    """The canonical values of a column; null where a double may have lost what was written."""
    if not pa.types.is_floating(column.type):
        return column.to_pylist()
    numbers = column.drop_null().to_numpy(zero_copy_only=False)
    if not (np.abs(numbers) < EXACT).all():  # NaN, too
        return None
    return [int(value) if value is not None and value.is_integer() else value for value in column.to_pylist()]


def _fast_rows(block: Block, names: Mapping, text: pa.Array, others: list[list], at: Shape) -> Rows:
    """Rows of what pyarrow.json gave; a line whose text is null or missing is asked again which of the two it is."""
    blank = at.newlines + (block.data[-1] != 10) - len(at.starts)
    refused: list[Refused] = []
    if text.null_count:
        nulls = text.is_null().to_numpy(zero_copy_only=False)
        refused = [_textless(block, names, at, row) for row in np.flatnonzero(nulls).tolist()]
        text = text.drop_null()
        others = [list(itertools.compress(column, ~nulls)) for column in others]
        at = at._replace(starts=at.starts[~nulls], numbers=at.numbers[~nulls], sizes=at.sizes[~nulls])
    mapped = {ours: as_texts(column) for (ours, _), column in zip(names.mapped, others, strict=False)}
    extra = {name: others[len(mapped) + place] for place, (name, _) in enumerate(names.extra)}
    end = block.offset + len(block.data), block.line + at.newlines
    return Rows(text, at.numbers + block.line, at.starts + block.offset, mapped, extra, refused, blank, 0,
                lambda row: _record(block, at, row), end, len(block.data))  # fmt: skip


def _record(block: Block, at: Shape, row: int) -> bytes:
    return block.data[at.starts[row] : at.starts[row] + at.sizes[row]]


def as_texts(column: list) -> list[str | None]:
    """A column of canonical values as texts."""
    return [value if value is None or isinstance(value, str) else as_text(value) for value in column]


def _textless(block: Block, names: Mapping, at: Shape, row: int) -> Refused:
    record = _record(block, at, row)
    line, offset = int(at.numbers[row]) + block.line, int(at.starts[row]) + block.offset
    reason = _document(record, names)
    assert isinstance(reason, str), f"line {line}: pyarrow.json found no text, and there is one"
    return refuse(REJECTED, reason, line, offset, record)
