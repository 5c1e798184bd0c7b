"""
Megatron: train.bin with the ids, train.idx with the borders, as megatron/core/datasets/indexed_dataset.py has them.

.idx: b"MMIDIDX\\0\\0", version 1 (u64), code of the ids' type (u8), number of sequences (u64), of document indices
(u64); then int32 lengths in ids and int64 pointers in bytes, one a sequence, and int64 document indices, one more
than documents.  All little-endian.  Here a sequence is a document.  The type is read from the header, never inferred.
"""

import struct
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from datapipe.errors import DataError
from datapipe.feed.exports import formats
from datapipe.feed.exports.documents import Documents

ABOUT = "train.bin, train.idx: ids and borders"
UNIT = "documents"
LARGEST, PACKAGE, READER = None, None, None
LOSES = (formats.MASKS, formats.by_eos("GPTDataset, where it resets masks or positions,"), formats.SOURCES)
MAGIC = b"MMIDIDX\x00\x00"
VERSION = 1
HEAD = struct.Struct("<9sQBQQ")
CODES = {1: "u1", 2: "i1", 3: "i2", 4: "i4", 5: "i8", 6: "f8", 7: "f4", 8: "u2"}
NARROW = 65_500  # below it Megatron's own writer takes uint16, else int32
LENGTH, PLACE = np.dtype("i4"), np.dtype("i8")


class Writer(formats.Documentwise):
    """The ids as they come; lengths wait in a file for the index, which has their number in front."""

    def __init__(self, folder: Path, split: str, target: formats.Target):
        super().__init__(folder)
        self._split = split
        self._code = 8 if target.vocabulary < NARROW else 4
        self._dtype = np.dtype(CODES[self._code])
        self._bin = self._open(f"{split}.bin")
        self._lengths = self._open(f"{split}.lengths")
        self._count = 0

    def write(self, docs: Documents) -> None:
        self._bin.write(formats.little(docs.ids, self._dtype))
        self._lengths.write(formats.little(docs.lengths, LENGTH))
        self._count += len(docs)

    def close(self) -> Mapping[str, Any]:
        self._shut()
        waiting = self._folder / f"{self._split}.lengths"
        lengths = formats.mapped(waiting, LENGTH)
        index = self._open(f"{self._split}.idx")
        index.write(HEAD.pack(MAGIC, VERSION, self._code, self._count, self._count + 1))
        blocks = range(0, self._count, formats.INDEX)
        for first in blocks:
            index.write(formats.little(lengths[first : first + formats.INDEX], LENGTH))
        pointer = 0
        for first in blocks:
            ends = np.cumsum(lengths[first : first + formats.INDEX], dtype=np.int64) * self._dtype.itemsize + pointer
            index.write(formats.little(np.append(pointer, ends[:-1]), PLACE))
            pointer = int(ends[-1])
        for first in range(0, self._count + 1, formats.INDEX):
            index.write(formats.little(np.arange(first, min(first + formats.INDEX, self._count + 1)), PLACE))
        self._shut()
        del lengths
        waiting.unlink()
        return {"dtype": self._dtype.name}


def read(path: Path, split: str, ask: formats.Ask) -> Iterator[formats.Document]:  # noqa: ARG001  it says all itself
    """Documents of a .idx and its .bin: either of them, their name without the ending, or the folder."""
    prefix = path / split if path.is_dir() else path.with_suffix("") if path.suffix in {".bin", ".idx"} else path
    index, data = prefix.with_name(f"{prefix.name}.idx"), prefix.with_name(f"{prefix.name}.bin")
    raw = formats.mapped(index, np.dtype("u1"))
    if len(raw) < HEAD.size:
        raise DataError(f"{index}: {len(raw)} bytes, a header has {HEAD.size}")
    magic, version, code, count, documents = HEAD.unpack(raw[: HEAD.size].tobytes())
    if magic != MAGIC or version != VERSION or code not in CODES:
        raise DataError(f"{index}: is no index of version {VERSION} (magic {magic!r}, version {version}, type {code})")
    modes = count if len(raw) == HEAD.size + 13 * count + 8 * documents else 0  # of multimodal data sets
    if len(raw) != HEAD.size + 12 * count + 8 * documents + modes or not documents:
        raise DataError(f"{index}: {len(raw):,} bytes are not those of {count:,} sequences, {documents:,} indices")
    lengths = raw[HEAD.size : HEAD.size + 4 * count].view("<i4")
    pointers = raw[HEAD.size + 4 * count :][: 8 * count].view("<i8")
    borders = raw[HEAD.size + 12 * count :][: 8 * documents].view("<i8")
    return _documents(formats.mapped(data, np.dtype(CODES[code])), lengths, pointers, borders, index)


def _documents(
    ids: np.ndarray, lengths: np.ndarray, pointers: np.ndarray, borders: np.ndarray, index: Path
) -> Iterator[formats.Document]:
    starts = pointers // ids.itemsize
    if borders[0] != 0 or borders[-1] != len(lengths) or (np.diff(borders) < 0).any():
        raise DataError(f"{index}: the document indices do not rise from 0 to {len(lengths):,}")
    if (pointers % ids.itemsize).any() or (lengths < 0).any() or (starts < 0).any():
        raise DataError(f"{index}: a pointer or a length that no sequence has")
    if len(starts) and (starts + lengths).max() > len(ids):
        raise DataError(f"{index}: points beyond the {len(ids):,} ids of its .bin")
    for first, stop in zip(borders[:-1].tolist(), borders[1:].tolist(), strict=True):
        parts = [ids[starts[n] : starts[n] + lengths[n]] for n in range(first, stop)]
        yield formats.Document(parts[0] if len(parts) == 1 else np.concatenate([ids[:0], *parts]), None)
