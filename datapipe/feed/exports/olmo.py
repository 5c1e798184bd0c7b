"""
OLMo-core: train/part-00000.npy, ids of a shard without a header (no numpy file in spite of its name), little-endian.

As allenai/OLMo-core src/olmo_core/data/numpy_dataset.py and utils.py read them: NumpyFSLDataset takes byte ranges of
the type that its config says, by default the first of uint8, uint16, uint32 that holds the vocabulary.
train_label_mask/part-00000.npy: bool, a byte a token, its label_mask_paths (token i may be predicted); written where
the build has masks.  train/part-00000.csv.gz: start, end of each document, as the dolma toolkit writes and
iter_document_indices reads it; then the row of fates.parquet and the source.
"""

import gzip
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from datapipe.errors import DataError
from datapipe.feed.exports import formats
from datapipe.feed.exports.documents import Documents
from datapipe.feed.exports.masked import Masked

ABOUT = "train/*.npy: ids by memory map, label masks, borders in *.csv.gz"
UNIT = "documents"
LARGEST, PACKAGE, READER = None, None, None
LOSES = (
    formats.Lost(
        "borders as such: OLMo-core predicts the first token of {documents:,} documents from another document"
    ),
    formats.by_eos("OLMo-core"),
    formats.Lost("the end of a file: NumpyFSLDataset leaves out what does not fill a sequence"),
)
BOOL = np.dtype("?")


class Writer(Masked):
    """A file of ids and one of borders a shard."""

    def __init__(self, folder: Path, split: str, target: formats.Target):
        super().__init__(folder, split)
        self._sources = target.sources
        self._dtype = formats.narrowest(target.vocabulary, "u1", "u2", "u4")
        self._csv: gzip.GzipFile | None = None

    def name(self, number: int) -> str:
        return f"{self._split}/part-{number:05d}.npy"

    def mask_name(self, number: int) -> str:
        return f"{self._split}_label_mask/part-{number:05d}.npy"

    def shard(self) -> None:
        self._shut()
        self._tokens.append(0)
        name = self.name(len(self._tokens) - 1)
        self._ids, csv = self._open(name), self._open(name.replace(".npy", ".csv.gz"))
        self._csv = gzip.GzipFile("", "wb", 6, csv, mtime=0)  # neither name nor time: equal bytes for equal documents

    def _shut(self) -> None:
        if self._csv:
            self._csv.close()
            self._csv = None
        super()._shut()

    def write(self, docs: Documents) -> None:
        assert self._csv, "shard() comes first"
        self._ids.write(formats.little(docs.ids, self._dtype))
        edges = (docs.offsets + self._tokens[-1]).tolist()
        columns = zip(edges[:-1], edges[1:], docs.doc.tolist(), docs.source.tolist(), strict=True)
        lines = (f"{start},{end},{doc},{self._sources[source]}\n" for start, end, doc, source in columns)
        self._csv.write("".join(lines).encode())
        self.add(len(docs.ids), docs.mask)

    def close(self) -> Mapping[str, Any]:
        self._shut()
        return {"dtype": self._dtype.name, "label_mask": self.all_masked()}


def read(path: Path, split: str, ask: formats.Ask) -> Iterator[formats.Document]:
    """Documents of a .npy file, or of all in a folder; the type of ids is `dtype`, or what export.json says."""
    found = formats.files(path, split, "*.npy")
    if ask.dtype is None:
        raise DataError(f"{path}: a .npy of OLMo-core does not say the type of its ids; name it: dtype='uint32'")
    for file in found:
        ids = formats.mapped(file, ask.dtype)
        beside = file.parent.with_name(f"{file.parent.name}_label_mask") / file.name
        mask = formats.mapped(beside, BOOL) if beside.is_file() else None
        borders = file.with_name(file.name.replace(".npy", ".csv.gz"))
        if borders.is_file():
            yield from formats.sliced(ids, _ends(borders), mask, file)
        else:
            yield from formats.unbounded(ids, mask, ask, file)


def _ends(path: Path) -> np.ndarray:
    """int64[documents]: where each ends; a DataError where the next does not begin there."""
    ends: list[int] = []
    try:
        with gzip.open(path, "rt") as file:
            for line in file:
                start, end = line.split(",", 2)[:2]
                if int(start) != (ends[-1] if ends else 0):
                    raise DataError(f"{path}: line {len(ends) + 1} does not begin where the one before it ends")
                ends.append(int(end))
    except (ValueError, OSError, EOFError) as error:
        raise DataError(f"{path}: is no gzip of lines `start,end,...`: {error}") from None
    return np.array(ends, np.int64)
