"""
Ids of a row group of storage `list`, taken out of its data pages: three times as fast as by pyarrow, which builds the
lists from their levels anew.

Only pages as this project writes them are read: zstd, BYTE_STREAM_SPLIT, a checksum.  Any other gives None and is left
to pyarrow.  https://parquet.apache.org/docs/file-format/data-pages/
"""

import zlib
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

DATA_PAGE, BYTE_STREAM_SPLIT = 0, 9
# fields of PageHeader and, in HEAD, of DataPageHeader
TYPE, UNPACKED, PACKED, CRC, HEAD = 1, 2, 3, 4, 5
VALUES, ENCODING = 1, 2


class Column(NamedTuple):
    """
    levels: how the values make up lists, page by page;  values: uint16[n], or int32[n] where one needs it
    """

    levels: bytes
    values: np.ndarray


def read(chunk: memoryview, values: int) -> Column | None:
    """A column chunk of so many int32; None where it has other pages than these, or is damaged."""
    at, levels, streams = 0, b"", list[np.ndarray]()
    try:
        while at < len(chunk):
            head, at = _struct(chunk, at)
            body, told, at = chunk[at : at + head[PACKED]], head[HEAD], at + head[PACKED]
            if (head[TYPE], told[ENCODING]) != (DATA_PAGE, BYTE_STREAM_SPLIT):
                return None
            if len(body) != head[PACKED] or zlib.crc32(body) != head[CRC] & 0xFFFFFFFF:
                return None
            found = pa.Codec("zstd").decompress(body, head[UNPACKED])
            border = found.size - 4 * told[VALUES]
            streams.append(np.frombuffer(found, np.uint8, offset=border).reshape(4, told[VALUES]))
            levels += told[VALUES].to_bytes(8, "little") + found.slice(0, border).to_pybytes()
    except (ValueError, KeyError, IndexError, TypeError, OSError, pa.ArrowException):
        return None
    return Column(levels, _joined(streams)) if sum(each.shape[1] for each in streams) == values else None


def _joined(pages: list[np.ndarray]) -> np.ndarray:
    """The values of all pages, of each uint8[4, n]: the first bytes of all its values, then the second, ..."""
    width = 4 if any(page[2:].any() for page in pages) else 2
    found = np.empty((sum(page.shape[1] for page in pages), width), np.uint8)
    at = 0
    for page in pages:
        for byte in range(width):
            found[at : at + page.shape[1], byte] = page[byte]
        at += page.shape[1]
    return found.view("<i4" if width == 4 else "<u2").reshape(-1)


def _struct(data: memoryview, at: int) -> tuple[dict[int, Any], int]:
    """Whole numbers and structs in it by number of the field, and where it ends; Thrift's compact protocol."""
    found: dict[int, Any] = {}
    field = 0
    while byte := data[at]:
        field, kind, at = field + (byte >> 4), byte & 15, at + 1
        if kind in (4, 5, 6):  # whole numbers
            value, at = _varint(data, at)
            found[field] = value >> 1 ^ -(value & 1)
        elif kind == 8:  # bytes
            size, at = _varint(data, at)
            at += size
        elif kind == 12:
            found[field], at = _struct(data, at)
        elif kind not in (1, 2):  # true, false
            raise ValueError(f"a field of kind {kind}")
    return found, at + 1


def _varint(data: memoryview, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        value, shift, at = value | (data[at] & 127) << shift, shift + 7, at + 1
        if data[at - 1] < 128:
            return value, at
