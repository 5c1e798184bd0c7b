"""
What is looked through: corpora, cut into units of work, each read once as batches of texts.

A corpus is a build (built.py: its documents, with what became of them) or files that datapipe did not build
(outside.py).  Whatever it is, it is read to the end or says what it could not read; and a document is known by path,
row and doc_id together, so that files of one name in different folders stay apart.
"""

import glob
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, Protocol

import numpy as np
import pyarrow as pa

from datapipe.auditing.report import Corpus as Scope
from datapipe.auditing.report import Failure, Role
from datapipe.build_manifest import resolve
from datapipe.build_manifest.store import MANIFEST
from datapipe.errors import ManifestError
from datapipe.read.fields import MISSING_TEXT, NOT_STRING, QUARANTINED

BATCH = 8_000_000  # bytes of text that are looked through at once, about


@dataclass(frozen=True)
class Document:
    """
    Which document: as report.Evidence has it.  `place` is (part, row, row of fates) in a build, which is asked for the
    rest by `Corpus.resolve`; null for files, where all is known at once.
    """

    document: str
    source: str
    role: Role
    url: str | None
    path: str
    line: int | None
    offset: int | None
    exposure: int
    place: tuple[int, int, int] | None = None
    fate: str | None = None
    stage: str | None = None
    rule: str | None = None


class Batch(Protocol):
    """Texts of one source and role, without nulls, with the copies of each (int64) in the training data."""

    @property
    def source(self) -> str: ...
    @property
    def role(self) -> Role: ...
    @property
    def texts(self) -> pa.Array: ...
    @property
    def copies(self) -> np.ndarray: ...
    def document(self, row: int) -> Document:
        """Who a row is."""
        ...


class First(NamedTuple):
    """The first of some records that are no documents: line or row (unit "": the file is one), and why it is none."""

    number: int
    unit: str
    reason: str


@dataclass
class Books:
    """What a unit of reading says of itself beside its texts: counts by file, and what it could not read."""

    files: dict[tuple[str, str], dict[str, int]] = field(default_factory=dict)  # (source, path) -> reason -> records
    first: dict[tuple[str, str, str], First] = field(default_factory=dict)  # (source, path, reason)
    damaged: dict[tuple[str, str], str] = field(default_factory=dict)
    names: set[str] = field(default_factory=set)  # own ids that somebody asked for, and that are there

    def count(self, source: str, path: str, what: str, n: int = 1) -> None:
        """Add n to what is counted of a file."""
        mine = self.files.setdefault((source, path), {})
        mine[what] = mine.get(what, 0) + n

    def refuse(self, source: str, path: str, what: str, place: First) -> None:
        """Count a record that is no document; where the first one is will be told."""
        self.count(source, path, what)
        self._first((source, path, what), place)

    def _first(self, key: tuple[str, str, str], place: First) -> None:
        self.first[key] = min(place, self.first.get(key, place))

    def add(self, other: "Books") -> None:
        """Add what another unit said."""
        for (source, path), counts in other.files.items():
            for what, n in counts.items():
                self.count(source, path, what, n)
        for key, place in other.first.items():
            self._first(key, place)
        self.names |= other.names
        for key, why in other.damaged.items():
            self.damaged.setdefault(key, why)


@dataclass(frozen=True)
class Seen:
    """What was looked through of a source in a role."""

    documents: int = 0
    units: int = 0
    bytes: int = 0
    copies: int = 0

    def __add__(self, other: "Seen") -> "Seen":
        return Seen(self.documents + other.documents, self.units + other.units, self.bytes + other.bytes,
                    self.copies + other.copies)  # fmt: skip


class Corpus(Protocol):
    """A build, or files, in a role."""

    @property
    def name(self) -> str: ...
    @property
    def roles(self) -> tuple[Role, ...]: ...
    @property
    def sources(self) -> Sequence[str]:
        """Every source that a batch may name."""
        ...

    @property
    def work(self) -> Sequence[object]:
        """Units of work, in an order that the inputs decide."""
        ...

    def read(self, unit: object, books: Books) -> Iterator[Batch]:
        """The texts of a unit; what cannot be read goes into the books."""
        ...

    def resolve(self, documents: Sequence[Document]) -> list[Document]:
        """The same documents with all that is known of them."""
        ...

    def names(self, wanted: set[str], books: Books) -> set[str]:
        """Which of the names are own ids of its documents."""
        ...

    def scope(self, role: Role, seen: dict[str, Seen], books: Books) -> Scope:
        """What the report says of it in a role; seen: by source."""
        ...

    def close(self) -> None: ...


# records whose text another reader may see, and this one did not; null and empty texts are no texts
UNSEEN = (QUARANTINED, MISSING_TEXT, NOT_STRING)


def failures(corpus: str, books: Books, unread: Sequence[tuple[str, str, str]]) -> tuple[Failure, ...]:
    """Files that could not be opened, that were damaged, or have records that were not understood."""
    found = [Failure(corpus=corpus, path=path, reason=why) for _, path, why in unread]
    found += [Failure(corpus=corpus, path=path, reason=why) for (_, path), why in sorted(books.damaged.items())]
    for (source, path), counts in sorted(books.files.items()):
        for what in (what for what in UNSEEN if counts.get(what)):
            why = _not_understood(counts[what], what, books.first[source, path, what])
            found.append(Failure(corpus=corpus, path=path, reason=why))
    return tuple(found)


def _not_understood(many: int, what: str, first: First) -> str:
    why = "" if first.reason == what else f" ({first.reason})"
    where = f", {'the first ' if many > 1 else ''}in {first.unit} {first.number:,}" if first.unit else ""
    return f"{many:,} record{'' if many == 1 else 's'}: {what}{why}{where}"


class Joined:
    """Batches of one source and role as one: many small files are looked through together."""

    def __init__(self, parts: Sequence[Batch]):
        self.parts = parts
        self._source: str = parts[0].source
        self._role: Role = parts[0].role
        self._texts: pa.Array = pa.concat_arrays([part.texts for part in parts])
        self._copies = np.concatenate([part.copies for part in parts])
        self._ends = np.cumsum([len(part.texts) for part in parts])

    @property
    def texts(self) -> pa.Array:
        return self._texts

    @property
    def copies(self) -> np.ndarray:
        return self._copies

    @property
    def source(self) -> str:
        return self._source

    @property
    def role(self) -> Role:
        return self._role

    def document(self, row: int) -> Document:
        part = int(np.searchsorted(self._ends, row, "right"))
        return self.parts[part].document(row - int(self._ends[part - 1] if part else 0))


def joined(batches: Iterable[Batch], size: int = BATCH) -> Iterator[Batch]:
    """Batches of about `size` bytes of text; one that is larger stays whole."""
    waiting: list[Batch] = []
    held = 0
    for batch in batches:
        if waiting and (held + batch.texts.nbytes > size or _kind(batch) != _kind(waiting[0])):
            yield Joined(waiting) if len(waiting) > 1 else waiting[0]
            waiting, held = [], 0
        waiting.append(batch)
        held += batch.texts.nbytes
        del batch
        if 2 * held > size:  # a large one is not kept while the next is read
            yield Joined(waiting) if len(waiting) > 1 else waiting[0]
            waiting, held = [], 0
    if waiting:
        yield Joined(waiting) if len(waiting) > 1 else waiting[0]


def _kind(batch: Batch) -> tuple[str, Role]:
    return batch.source, batch.role


@dataclass(frozen=True)
class Asked:
    """A value of --train or --retrieval: a build's folder, or patterns of files."""

    builds: tuple[Path, ...]
    files: tuple[str, ...]


def asked(option: str, values: Sequence[str], output: Path) -> Asked:
    """
    Which of the values are builds and which are files: an existing path wins, and a folder that is no build stands for
    all files below it.  No value: the newest build.
    """
    if not values:
        return Asked((resolve(None, output),), ())
    builds: list[Path] = []
    files: list[str] = []
    for value in values:
        if not value:
            raise ManifestError(f"{option} '': is empty, expected a build or files")
        path = Path(value).expanduser()
        if path.is_dir() and not _is_build(path):
            files.append(f"{glob.escape(str(path))}/**")
        elif (path.is_file() and path.name != MANIFEST) or (path.is_symlink() and not path.exists()):
            files.append(str(path))  # a link to nothing is a file that cannot be read
        elif path.exists() or not glob.has_magic(value):
            builds.append(_build(option, value, output))
        else:
            files.append(str(path))
    return Asked(tuple(builds), tuple(files))


def _is_build(path: Path) -> bool:
    return (path / MANIFEST).is_file() or any(path.glob(f"v*/{MANIFEST}"))


def _build(option: str, value: str, output: Path) -> Path:
    try:
        return resolve(value, output)
    except ManifestError as error:
        raise ManifestError(f"{option} {value}: no such file and no such build: {error}") from None
