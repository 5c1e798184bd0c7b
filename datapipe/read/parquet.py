"""
Parquet: row groups are the pieces, batches of rows the blocks, columns the fields (`a.b`: a column, or in a struct).

A record has no bytes of its own, so refused ones are told by their row.  In a float column NaN is how many writers
spell a missing value: it is null here; infinity is none, and quarantined.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path as File

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from datapipe.errors import DataError
from datapipe.read.fields import (
    NOT_STRING,
    NOT_UTF8,
    NULL_TEXT,
    QUARANTINED,
    REJECTED,
    Bad,
    Mapping,
    Path,
    Refused,
    Rows,
    as_text,
    clean,
    no_text,
    refuse,
)
from datapipe.read.streams import Damage

BATCH = 8_000_000  # bytes of the wanted columns that are worked on together
MOST_ROWS = 65_536


@dataclass(frozen=True)
class Group:
    """A row group: its rows, the row before its first, and the bytes of the wanted columns when expanded."""

    rows: int
    start: int
    bytes: int


def groups(path: File, names: Mapping, relative: str) -> list[Group]:
    """The row groups of a file; DataError where it is no Parquet or has no column for the text."""
    try:
        with pq.ParquetFile(path) as file:
            metadata = file.metadata
            wanted = set(_columns(file.schema_arrow, names, relative))
            found, start = [], 0
            for at in range(metadata.num_row_groups):
                group = metadata.row_group(at)
                columns = (group.column(column) for column in range(group.num_columns))
                size = sum(c.total_uncompressed_size for c in columns if _inside(c.path_in_schema, wanted))
                found.append(Group(group.num_rows, start, size))
                start += group.num_rows
            return found
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"{relative}: cannot be read as Parquet, truncated or none at all: {error}") from None


def _inside(leaf: str, wanted: set[str]) -> bool:
    return any(leaf == name or leaf.startswith(f"{name}.") for name in wanted)


def rows(path: File, names: Mapping, relative: str, groups: Sequence[Group], first: int, stop: int) -> Iterator[Rows]:
    """The rows of row groups first..stop-1, in batches that follow from the file alone; Damage ends them."""
    try:
        with pq.ParquetFile(path, page_checksum_verification=True) as file:
            columns = _columns(file.schema_arrow, names, relative)
            for at in range(first, stop):
                group = groups[at]
                row = group.start
                for batch in file.iter_batches(_batch(group), [at], columns=columns, use_threads=False):
                    yield _rows(batch, names, row)
                    row += len(batch)
    except (pa.ArrowException, OSError) as error:
        raise Damage(f"damaged: {error}") from error


def _batch(group: Group) -> int:
    return max(1, min(MOST_ROWS, BATCH * group.rows // max(1, group.bytes)))


def _columns(schema: pa.Schema, names: Mapping, relative: str) -> list[str]:
    """The columns to read: those of the fields that are there."""
    found = {".".join(path): _find(schema, path) for path in (names.text, *(path for _, path in names.others))}
    if found[".".join(names.text)] is None:
        raise no_text(relative, names, schema.names)
    return [name for name, there in found.items() if there]


def _find(schema: pa.Schema, path: Path) -> Path | None:
    """Where a field lies: a column of that very name with its dots, or inside a struct; null where it is not there."""
    name = ".".join(path)
    if name in schema.names:
        return (name,)
    if path[0] not in schema.names:
        return None
    kind = schema.field(path[0]).type
    for part in path[1:]:
        if not pa.types.is_struct(kind) or kind.get_field_index(part) < 0:
            return None
        kind = kind.field(part).type
    return path


def _rows(batch: pa.RecordBatch, names: Mapping, start: int) -> Rows:
    text, reasons = _texts(_field(batch, names.text))
    others, bad = _others(batch, names)
    refused = {row: (QUARANTINED if reason == NOT_UTF8 else REJECTED, reason) for row, reason in reasons.items()}
    refused |= {row: (QUARANTINED, reason) for row, reason in bad.items()}
    lines = np.arange(start + 1, start + 1 + len(batch), dtype=np.int64)
    told: list[Refused] = [refuse(*refused[row], start + 1 + row, None, None) for row in sorted(refused)]
    if refused:
        has = np.ones(len(batch), bool)
        has[list(refused)] = False
        text, lines = text.filter(pa.array(has)), lines[has]
        others = [[value for value, good in zip(column, has, strict=True) if good] for column in others]
    mapped = {
        ours: [as_text(value) for value in column] for (ours, _), column in zip(names.mapped, others, strict=False)
    }
    extra = {name: others[len(mapped) + at] for at, (name, _) in enumerate(names.extra)}
    return Rows(text, lines, None, mapped, extra, told)


def _field(batch: pa.RecordBatch, path: Path) -> pa.Array:
    place = _find(batch.schema, path)
    if place is None:
        return pa.nulls(len(batch))
    column = batch.column(place[0])
    return (
        pc.call_function("struct_field", [column], pc.StructFieldOptions(list(place[1:]))) if len(place) > 1 else column
    )


def _texts(column: pa.Array) -> tuple[pa.Array, dict[int, str]]:
    """The texts as large_string, and the reason of each row that has none."""
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    kind = column.type
    if pa.types.is_null(kind):
        return pa.array([""] * len(column), pa.large_string()), dict.fromkeys(range(len(column)), NULL_TEXT)
    if not (_is_string(kind) or _is_binary(kind)):
        nulls = column.is_null().to_pylist()
        reasons = {row: NULL_TEXT if null else NOT_STRING for row, null in enumerate(nulls)}
        return pa.array([""] * len(column), pa.large_string()), reasons
    reasons = dict.fromkeys(np.flatnonzero(column.is_null().to_numpy(zero_copy_only=False)).tolist(), NULL_TEXT)
    try:
        text = column.cast(pa.large_string())
        text.validate(full=True)
    except pa.ArrowInvalid:
        return _decoded(column.cast(pa.large_binary()), reasons)
    return text, reasons


def _is_string(kind: pa.DataType) -> bool:
    return pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)


def _is_binary(kind: pa.DataType) -> bool:
    return (
        pa.types.is_binary(kind)
        or pa.types.is_large_binary(kind)
        or pa.types.is_fixed_size_binary(kind)
        or pa.types.is_binary_view(kind)
    )


def _decoded(column: pa.Array, reasons: dict[int, str]) -> tuple[pa.Array, dict[int, str]]:
    """Texts of a block in which one is not UTF-8."""
    texts = []
    for row, value in enumerate(column.to_pylist()):
        try:
            texts.append((value or b"").decode("utf-8"))
        except UnicodeDecodeError:
            texts.append("")
            reasons[row] = NOT_UTF8
    return pa.array(texts, pa.large_string()), reasons


def _others(batch: pa.RecordBatch, names: Mapping) -> tuple[list[list], dict[int, str]]:
    """The canonical values of all fields but the text, and the reason of each row that has one that cannot be."""
    columns, bad = [], {}
    for _, path in names.others:
        values = _plain(_field(batch, path)).to_pylist()
        for row, value in enumerate(values):
            try:
                values[row] = None if value != value else clean(value)
            except Bad as error:
                values[row], bad[row] = None, str(error)
        columns.append(values)
    return columns, bad


def _plain(column: pa.Array) -> pa.Array:
    """Time stamps as ISO text (UTC, with as many digits as there are), dictionaries and invalid UTF-8 as values."""
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if pa.types.is_timestamp(column.type):
        zoned = pa.timestamp("us", "UTC")
        column = column.cast(zoned if column.type.tz else pa.timestamp("us"), safe=False).cast(pa.string())
        for pattern, short in ((r"\.0+(Z?)$", r"\1"), (r"(\.\d*[1-9])0+(Z?)$", r"\1\2")):
            options = pc.ReplaceSubstringOptions(pattern, short)
            column = pc.call_function("replace_substring_regex", [column], options)
        return column
    if _is_string(column.type):
        try:
            column.validate(full=True)
        except pa.ArrowInvalid:
            return column.cast(pa.large_string()).cast(pa.large_binary())
    return column
