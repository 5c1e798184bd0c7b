"""
What a row of a shard means to a reader: its ids, its targets; and the books of a shard file.

All of it follows from the columns of tables.SHARD; nothing is guessed from an id such as EOS.  Needs numpy and
pyarrow only, so that training can use it.
"""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from datapipe.errors import IntegrityError

AGAIN = 4  # in seg_flags: the first token is repeated as context
STARTS, ENDS = 1, 2  # in seg_flags
DIGESTED = ("input_ids", "seg_len", "seg_start", "seg_flags", "seg_source", "loss_mask")


def targets(offsets: np.ndarray, sizes: np.ndarray, length: int, allowed: np.ndarray | None = None) -> np.ndarray:
    """
    bool[rows, length]: position i is a target iff token i + 1 lies in the same segment and may be predicted.

    offsets:  int64[rows + 1] into sizes, the seg_len of all rows in one array
    allowed:  bool[rows, length] from loss_mask (`unmasked`), None where all are
    """
    found, last = _stored(offsets, sizes, length), _last(offsets, sizes, length)
    found.reshape(-1)[last] = False
    if allowed is not None:
        found[:, :-1] &= allowed[:, 1:]
    return found


def _stored(offsets: np.ndarray, sizes: np.ndarray, length: int) -> np.ndarray:
    """bool[rows, length]: what is not padding."""
    ends = np.concatenate(([0], np.cumsum(sizes)))
    return np.arange(length) < (ends[offsets[1:]] - ends[offsets[:-1]])[:, None]


def _last(offsets: np.ndarray, sizes: np.ndarray, length: int) -> np.ndarray:
    """int64[segments]: where each segment's last token lies in the rows laid end to end."""
    ends = np.concatenate(([0], np.cumsum(sizes)))
    row = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
    return row * length + ends[1:] - ends[offsets[row]] - 1


def unmasked(loss_mask: pa.Array, length: int) -> np.ndarray | None:
    """bool[rows, length] of the column loss_mask; None where no row has one."""
    if loss_mask.null_count == len(loss_mask):
        return None
    whole = np.full((length + 7) // 8, 255, np.uint8)
    bits = [whole if mask is None else np.frombuffer(mask, np.uint8) for mask in loss_mask.to_pylist()]
    return np.unpackbits(np.stack(bits), axis=1, count=length, bitorder="little").astype(bool)


def id_column(ids: np.ndarray, schema: pa.Schema) -> pa.Array:
    """int32[rows, length] as the column input_ids of a shard's schema: lists, or bytes of fixed width."""
    kind = schema.field("input_ids").type
    rows, length = ids.shape
    if pa.types.is_list(kind):
        offsets = np.arange(0, ids.size + 1, length, dtype=np.int32)
        return pa.ListArray.from_arrays(pa.array(offsets), pa.array(ids.reshape(-1)))
    data = ids.astype("<u2" if kind.byte_width == 2 * length else "<i4")
    return pa.FixedSizeBinaryArray.from_buffers(kind, rows, [None, pa.py_buffer(data)])


def ids_of(column: pa.Array, length: int) -> np.ndarray:
    """int32 of all ids of the column input_ids, with `length` ids in a row where they are bytes."""
    if pa.types.is_list(column.type):
        return column.flatten().to_numpy()
    width = column.type.byte_width
    data = np.frombuffer(column.buffers()[1], np.uint8, len(column) * width, column.offset * width)
    return data.view("<u2" if width == 2 * length else "<i4").astype(np.int32, copy=False)


class Content:
    """
    content_sha256 while it is made: of each column of DIGESTED in order, the int64 count of each row (-1: null), then
    all values, little-endian.
    """

    def __init__(self) -> None:
        self._state = hashlib.sha256()

    def counts(self, counts: np.ndarray) -> None:
        self._state.update(np.ascontiguousarray(counts, "<i8").tobytes())

    def values(self, values: np.ndarray) -> None:
        self._state.update(np.ascontiguousarray(values, values.dtype.newbyteorder("<")).data.cast("B"))

    def column(self, column: pa.Array) -> None:
        """A whole list or binary column."""
        self.counts(_counts(column))
        if pa.types.is_binary(column.type):
            self._state.update(b"".join(value for value in column.to_pylist() if value is not None))
        else:
            self.values(column.flatten().to_numpy())

    def hexdigest(self) -> str:
        return self._state.hexdigest()


def _counts(column: pa.Array) -> np.ndarray:
    counts = [-1 if value is None else len(value) for value in column.to_pylist()] if column.null_count else None
    if counts is not None:
        return np.array(counts, np.int64)
    name = "binary_length" if pa.types.is_binary(column.type) else "list_value_length"
    return pc.call_function(name, [column]).to_numpy().astype(np.int64)


@dataclass(frozen=True)
class Recount:
    """
    The books of one shard, counted from its file alone.

    stored = targets + last_positions + masked; rows x length = stored + padding
    by_source:  number in manifest.json's sources -> (tokens without repeated context, targets)
    documents, tokens:  int64, distinct seg_doc in order, and how many tokens of each are here, repeated ones left out
    """

    rows: int
    length: int
    stored: int
    targets: int
    last_positions: int
    masked: int
    repeated_context: int
    padding: int
    max_id: int
    by_source: dict[int, tuple[int, int]]
    documents: np.ndarray
    tokens: np.ndarray
    content_sha256: str


class _Rows(NamedTuple):
    offsets: np.ndarray
    size: np.ndarray
    doc: np.ndarray
    flags: np.ndarray
    source: np.ndarray
    table: pa.Table


def recount(path: Path) -> Recount:
    """Count a shard's books and its content digest; a file whose columns contradict each other is an IntegrityError."""
    content = Content()
    with pq.ParquetFile(path, page_checksum_verification=True) as file:
        rows = _segments(path, file)
        length, max_id = _ids(path, file, rows, content)
    for name in DIGESTED[1:]:
        content.column(rows.table[name].combine_chunks())
    number = len(rows.offsets) - 1
    per_segment, masked = _count_targets(path, rows, length)
    again = (rows.flags & AGAIN) != 0
    ours = rows.size - again
    documents, at = np.unique(rows.doc, return_inverse=True)
    stored = int(rows.size.sum())
    sums = {
        int(source): (int(ours[here].sum()), int(per_segment[here].sum()))
        for source in np.unique(rows.source)
        if (here := rows.source == source).any()
    }
    return Recount(number, length, stored, int(per_segment.sum()), len(rows.size), masked, int(again.sum()),
                   number * length - stored, max_id, sums, documents, _sums(at, ours, len(documents)),
                   content.hexdigest())  # fmt: skip


def _sums(at: np.ndarray, values: np.ndarray, size: int) -> np.ndarray:
    found = np.zeros(size, np.int64)
    np.add.at(found, at, values)
    return found


def _fail(path: Path, rows: np.ndarray, what: str) -> None:
    """Raise if any of bool[rows] is set."""
    if rows.any():
        raise IntegrityError(f"{path}: row {int(np.flatnonzero(rows)[0])}: {what}")


def _segments(path: Path, file: pq.ParquetFile) -> _Rows:
    """All columns but the ids, with what holds between them."""
    table = file.read(columns=[name for name in file.schema_arrow.names if name != "input_ids"])
    lists = {
        name: table[name].combine_chunks() for name in ("seg_len", "seg_doc", "seg_start", "seg_flags", "seg_source")
    }
    counts = {name: _counts(column) for name, column in lists.items()}
    for name, count in counts.items():
        _fail(path, count != counts["seg_len"], f"{name} has another number of segments than seg_len")
    size, doc, _, flags, source = (column.flatten().to_numpy() for column in lists.values())
    offsets = np.concatenate(([0], np.cumsum(counts["seg_len"])))
    row = np.repeat(np.arange(len(offsets) - 1), counts["seg_len"])
    empty = np.zeros(len(offsets) - 1, bool)
    empty[row[size < 1]] = True
    _fail(path, empty, "a segment without tokens")
    order = np.lexsort((doc, row))
    twice = (np.diff(doc[order]) == 0) & (np.diff(row[order]) == 0)
    empty[row[order][1:][twice]] = True
    _fail(path, empty, "holds a document twice")
    sizes = size.astype(np.int64)
    _fail(path, table["n_tokens"].to_numpy() != _sums(row, sizes, len(empty)), "n_tokens is not the sum of seg_len")
    _fail(path, table["sum_len_sq"].to_numpy() != _sums(row, sizes**2, len(empty)), "sum_len_sq is not that of seg_len")
    return _Rows(offsets, sizes, doc, flags, source, table)


def _ids(path: Path, file: pq.ParquetFile, rows: _Rows, content: Content) -> tuple[int, int]:
    """Digest input_ids, a row group at a time; (ids in each row, the largest id)."""
    n_tokens, n_pad = (rows.table[name].to_numpy() for name in ("n_tokens", "n_pad"))
    lengths = n_tokens.astype(np.int64) + n_pad
    length = int(lengths[0]) if len(lengths) else 0
    _fail(path, lengths != length, f"n_tokens + n_pad is not {length} as in row 0")
    content.counts(lengths)
    largest = start = 0
    for column in _groups(file):
        here = _widths(column, length)
        _fail(path, np.concatenate((np.zeros(start, bool), here != length)), f"input_ids has not {length} ids")
        values = ids_of(column, length)
        if len(values) and values.min() < 0:
            raise IntegrityError(f"{path}: a negative token id in rows {start} to {start + len(here) - 1}")
        largest, start = max(largest, int(values.max(initial=0))), start + len(here)
        content.values(values)
    return length, largest


def _widths(column: pa.Array, length: int) -> np.ndarray:
    """int64[rows]: how many ids each row has."""
    if pa.types.is_list(column.type):
        return _counts(column)
    fits = column.type.byte_width in (2 * length, 4 * length) and not column.null_count
    return np.full(len(column), length if fits else -1)


def _groups(file: pq.ParquetFile) -> Iterator[Any]:
    for group in range(file.num_row_groups):
        yield file.read_row_group(group, columns=["input_ids"])["input_ids"].combine_chunks()


def _count_targets(path: Path, rows: _Rows, length: int) -> tuple[np.ndarray, int]:
    """int64[segments], targets of each; and how many positions are masked."""
    number = len(rows.offsets) - 1
    allowed = unmasked(rows.table["loss_mask"].combine_chunks(), length)
    per_segment = rows.size - 1
    if allowed is not None:
        is_target = targets(rows.offsets, rows.size, length, allowed)
        before = np.concatenate(([0], np.cumsum(is_target)))
        last = _last(rows.offsets, rows.size, length)
        per_segment = before[last + 1] - before[last + 1 - rows.size]
    row = np.repeat(np.arange(number), np.diff(rows.offsets))
    told = rows.table["n_targets"].to_numpy()
    _fail(path, told != _sums(row, per_segment, number), "n_targets is not what seg_len and loss_mask give")
    return per_segment, int((rows.size - 1 - per_segment).sum())
