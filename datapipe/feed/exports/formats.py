"""What every format of an export has: what it is told of a build, what writes it, what comes back."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, Protocol

import numpy as np

from datapipe.errors import DataError

INDEX = 1 << 20  # entries of an index that are written at a time


@dataclass(frozen=True)
class Target:
    """
    What a format must know of a build.

    vocabulary: ids are below it;  length: ids in a row;  tokenizer: sha256 of tokenizer.json
    eos:        what ends a document, None where nothing does
    """

    vocabulary: int
    length: int
    tokenizer: str
    eos: int | None
    sources: tuple[str, ...]


class Document(NamedTuple):
    """A document of an export: its ids in the file's type, and bool which may be predicted; None: all, or unknown."""

    ids: np.ndarray
    mask: np.ndarray | None


@dataclass(frozen=True)
class Ask:
    """How to read files that do not say it themselves: the type of ids, the id that ends a document."""

    dtype: np.dtype | None = None
    eos: int | None = None


class Writes(Protocol):
    """Takes the shards of one split, one after the other."""

    def shard(self) -> None:
        """The next shard begins."""

    def write(self, given: Any) -> None:
        """Documents of the shard, or Rows, as UNIT says."""

    def close(self) -> Mapping[str, Any]:
        """All is written; what export.json tells of it."""
        ...

    def abandon(self) -> None:
        """Something went wrong: let go of files and threads."""


class Lost(NamedTuple):
    """What is in the build and not in the files, or not seen by who reads them: said of books whose `when` is not 0."""

    what: str  # a format string of the books
    when: str = "documents"


class Format(Protocol):
    """A module of this folder."""

    ABOUT: str  # in a line
    UNIT: str  # documents or rows
    LARGEST: int | None  # vocabulary that fits
    PACKAGE: tuple[str, str] | None  # what writes it, where that is not this module: its name to import, and to install
    READER: str | None  # what reads it, where that is not this module
    LOSES: tuple[Lost, ...]

    @property
    def Writer(self) -> Callable[[Path, str, Target], Writes]:  # noqa: N802  a class of that name
        """Makes what takes a split."""
        ...

    def read(self, path: Path, split: str, ask: Ask) -> Iterator[Document]:
        """Documents of a file, or of that split of a folder; formats without a READER have it."""
        ...


MASKS = Lost("loss masks: {masked:,} masked tokens are targets like all others", "masked")
SOURCES = Lost("sources, and which document it is")


def by_eos(reader: str) -> Lost:
    """A reader that finds the borders of documents by an id."""
    return Lost(
        f"borders of {{without_eos:,}} documents: {reader} finds them by eos, and these end in none", "without_eos"
    )


class Documentwise:
    """What writers of documents have in common: binary files, opened by name, closed or let go of together."""

    def __init__(self, folder: Path):
        self._folder = folder
        self._files: list[BinaryIO] = []

    def _open(self, name: str) -> BinaryIO:
        path = self._folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        file = open(path, "xb")  # noqa: SIM115  closed by _shut
        self._files.append(file)
        return file

    def _shut(self) -> None:
        while self._files:
            self._files.pop().close()

    def shard(self) -> None:
        """Nothing, where all shards go into one file."""

    def abandon(self) -> None:
        self._shut()


def little(values: np.ndarray, dtype: np.dtype) -> memoryview:
    """The values in that type, little-endian, as bytes."""
    return np.ascontiguousarray(values, dtype.newbyteorder("<")).data.cast("B")


def narrowest(vocabulary: int, *names: str) -> np.dtype:
    """The first of these integer types that holds every id; the last where none does."""
    return np.dtype(next((name for name in names if vocabulary - 1 <= np.iinfo(name).max), names[-1]))


def mapped(path: Path, dtype: np.dtype) -> np.ndarray:
    """A file as an array of that type, by memory map; an empty file as an empty array."""
    try:
        size = path.stat().st_size
        if size % dtype.itemsize:
            raise DataError(f"{path}: {size:,} bytes are no whole number of {dtype.name}; name its type with dtype=")
        little_endian = dtype.newbyteorder("<")
        return np.memmap(path, little_endian, "r") if size else np.zeros(0, little_endian)
    except FileNotFoundError:
        raise DataError(f"{path}: no such file") from None


def sliced(ids: np.ndarray, ends: np.ndarray, mask: np.ndarray | None, where: Path) -> Iterator[Document]:
    """Documents that end at int64[n] places; a DataError where the ends do not rise up to the last id."""
    edges = np.concatenate((np.zeros(1, np.int64), ends.astype(np.int64)))
    if (np.diff(edges) < 0).any() or edges[-1] != len(ids) or (mask is not None and len(mask) != len(ids)):
        raise DataError(f"{where}: {len(ids):,} ids, but its borders or its mask are those of another file")
    for begin, stop in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True):
        yield Document(ids[begin:stop], None if mask is None else mask[begin:stop])


def unbounded(ids: np.ndarray, mask: np.ndarray | None, ask: Ask, where: Path) -> Iterator[Document]:
    """A file without borders: one document, or what `eos` ends where the reader names it."""
    ends = np.flatnonzero(ids == ask.eos) + 1 if ask.eos is not None else np.zeros(0, np.int64)
    if len(ids) and (not len(ends) or ends[-1] != len(ids)):
        ends = np.append(ends, len(ids))
    return sliced(ids, ends, mask, where)


def files(path: Path, split: str, pattern: str) -> list[Path]:
    """A file itself; of a folder, the files of that split (`folder`/`split`/), else those in it."""
    if path.is_file():
        return [path]
    for folder in (path / split, path):
        if found := sorted(folder.glob(pattern)):
            return found
    raise DataError(f"{path}: no {pattern} of the split {split!r}, neither there nor in {split}/")
