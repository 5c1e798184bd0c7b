"""
nanoGPT: train.bin and val.bin, ids as uint16, little-endian, without a header, documents end to end.

As karpathy/nanoGPT data/openwebtext/prepare.py writes and train.py reads them (np.memmap of uint16).
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from datapipe.feed.exports import formats
from datapipe.feed.exports.documents import Documents

ABOUT = "train.bin, val.bin: uint16 without borders"
UNIT = "documents"
LARGEST, PACKAGE, READER = 65_535, None, None
LOSES = (
    formats.Lost("borders: {documents:,} documents are one stream, the first token of each predicted from another"),
    formats.MASKS,
    formats.SOURCES,
)
NAMES = {"train": "train.bin", "validation": "val.bin"}
DTYPE = np.dtype("u2")


class Writer(formats.Documentwise):
    """One file a split."""

    def __init__(self, folder: Path, split: str, target: formats.Target):  # noqa: ARG002  one type for all
        super().__init__(folder)
        self._bin = self._open(NAMES[split])

    def write(self, docs: Documents) -> None:
        self._bin.write(formats.little(docs.ids, DTYPE))

    def close(self) -> Mapping[str, Any]:
        self._shut()
        return {"dtype": DTYPE.name}


def read(path: Path, split: str, ask: formats.Ask) -> Iterator[formats.Document]:
    """The whole file as one document by memory map; cut after `eos` where it is named."""
    file = path if path.is_file() else path / NAMES[split]
    return formats.unbounded(formats.mapped(file, DTYPE), None, ask, file)
