"""
datatrove: train/part-00000.ds with ids of 2 or 4 bytes, .ds.index with uint64 ends of documents in tokens, .ds.loss
with a bool a token, .ds.metadata with three lines: tokenizer|bytes a token, tokens, tokens for a person.

As huggingface/datatrove pipeline/tokens/tokenizer.py (TokenizedFile) writes and merger.py and utils/dataset.py read
them, all little-endian.  nanotron reads the same files.  Releases without `|` write 2 bytes.
"""

import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from datapipe.errors import DataError
from datapipe.feed.exports import formats
from datapipe.feed.exports.documents import Documents
from datapipe.feed.exports.masked import Masked

ABOUT = "train/*.ds, .ds.index, .ds.loss: ids, borders, loss masks (nanotron too)"
UNIT = "documents"
LARGEST, PACKAGE, READER = None, None, None
LOSES = (
    formats.Lost("the end of a file: DatatroveFileDataset leaves out what does not fill a window of length + 1"),
    formats.SOURCES,
)
END, BOOL = np.dtype("u8"), np.dtype("?")
WIDTHS = {2: np.dtype("u2"), 4: np.dtype("u4")}


class Writer(Masked):
    """A file a shard."""

    def __init__(self, folder: Path, split: str, target: formats.Target):
        super().__init__(folder, split)
        self._tokenizer = target.tokenizer
        self._dtype = formats.narrowest(target.vocabulary, "u2", "u4")

    def name(self, number: int) -> str:
        return f"{self._split}/part-{number:05d}.ds"

    def mask_name(self, number: int) -> str:
        return f"{self.name(number)}.loss"

    def shard(self) -> None:
        self._shut()
        self._tokens.append(0)
        name = self.name(len(self._tokens) - 1)
        self._ids, self._index = self._open(name), self._open(f"{name}.index")

    def write(self, docs: Documents) -> None:
        self._ids.write(formats.little(docs.ids, self._dtype))
        self._index.write(formats.little(docs.offsets[1:] + self._tokens[-1], END))
        self.add(len(docs.ids), docs.mask)

    def close(self) -> Mapping[str, Any]:
        self._shut()
        for number, tokens in enumerate(self._tokens):
            lines = (f"sha256:{self._tokenizer}|{self._dtype.itemsize}", str(tokens), _metric(tokens))
            (self._folder / f"{self.name(number)}.metadata").write_text("\n".join(lines), "utf-8")
        return {"dtype": self._dtype.name, "loss": self.all_masked()}


def _metric(tokens: int) -> str:
    """1.23 kT, as humanize.metric says it."""
    power = math.floor(math.log10(tokens)) if tokens else 0
    unit = ["", "k", "M", "G", "T", "P", "E"][power // 3]
    return f"{tokens / 10 ** (power // 3 * 3):.{2 - power % 3}f} {unit}T"


def read(path: Path, split: str, ask: formats.Ask) -> Iterator[formats.Document]:
    """Documents of a .ds file, or of all in a folder; the width of ids is `dtype`, or what .metadata says."""
    for file in formats.files(path, split, "*.ds"):
        ids = formats.mapped(file, ask.dtype or WIDTHS[_width(file)])
        loss = file.with_name(f"{file.name}.loss")
        mask = formats.mapped(loss, BOOL) if loss.is_file() else None
        index = file.with_name(f"{file.name}.index")
        yield from formats.sliced(ids, formats.mapped(index, END), mask, file)


def _width(file: Path) -> int:
    """Bytes a token, by .ds.metadata."""
    path = file.with_name(f"{file.name}.metadata")
    try:
        first = path.read_text("utf-8").split("\n", 1)[0]
    except FileNotFoundError:
        raise DataError(f"{path}: not there, so the width of ids is not known; name it: dtype='uint16'") from None
    width = first.rpartition("|")[2] if "|" in first else "2"
    if width not in {"2", "4"}:
        raise DataError(f"{path}: {width!r} bytes a token; known are 2 and 4")
    return int(width)
