"""
A build, opened for training.

    with datapipe.open("web-mix") as data:
        print(len(data), data[0].input_ids, data.books()["train"]["targets"])
        for batch in data.loader("train", global_batch_rows=64):
            ...
"""

import os
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from datapipe.build_manifest import BuildManifest
from datapipe.build_manifest.store import MANIFEST, checked, parsed
from datapipe.build_manifest.types import Shard
from datapipe.errors import IntegrityError, ManifestError
from datapipe.feed import ledger
from datapipe.feed.batch import Batch, Rows
from datapipe.feed.fates import Fates
from datapipe.feed.places import place
from datapipe.feed.reading import Reader
from datapipe.feed.verify import Guard, Mode

if TYPE_CHECKING:
    from datapipe.feed.loader import Loader
    from datapipe.feed.order import Blocks


def open(  # noqa: A001  the verb of the API
    build: str | os.PathLike[str] | None = None,
    *,
    verify: Mode = "lazy",
    cache: str | os.PathLike[str] | None = None,
    output: str | os.PathLike[str] = "builds",
) -> "Dataset":
    """
    A build to train from: a path, `name`, `name@3`, `name@9f2c`, None for the newest under `output`, or a URL.

    verify:  full: the sha256 of every shard now; lazy: of each when it is first used; size: sizes, page checksums and
             row numbers alone
    cache:   a folder for the shards of a URL; without one they are streamed, and checked by size and page alone
    """
    where = place(build, cache, os.fspath(output))
    record = parsed(where.manifest(), f"{where.name}/{MANIFEST}")
    made = checked(record, f"{where.name}/{MANIFEST}")
    return Dataset(Guard(where, made, record, verify))


class Split:
    """The rows of one side.  `split[i]`, `split[a:b]` are batches; `read` and `narrow` give rows by number."""

    def __init__(self, name: str, guard: Guard):
        made = guard.made
        self.name, self.dataset_id, self.sources = name, made.dataset_id, made.sources
        self.shards: tuple[Shard, ...] = dict(made.splits.items())[name].shards
        self.length: int = _length(guard)
        self.tokenizer: str = made.tokenizer.sha256 if made.tokenizer else ""
        self.pad: int = _pad(made)
        self.storage: str = _storage(made)
        self._guard = guard
        self._reader = Reader(guard, self.shards, self.length)
        self._fates: Fates | None = None

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_fates": None}

    @property
    def rows(self) -> int:
        return len(self._reader)

    def __len__(self) -> int:
        return len(self._reader)

    def __repr__(self) -> str:
        return f"<{self.name}: {self.rows:,} rows of {self.length} of {self.dataset_id[:12]}>"

    def __getitem__(self, which: int | slice) -> Batch:
        if isinstance(which, slice):
            return Batch(self.read(np.arange(self.rows)[which]))
        number = range(self.rows)[which]  # counts from the end, and knows its bounds
        return Batch(self.read(np.array([number])))

    def read(self, rows: np.ndarray) -> Rows:
        """Rows by number, int64[k], in any order; one may come twice.  The arrays may be read-only."""
        return self._reader.read(rows)

    def narrow(self, rows: np.ndarray) -> Rows:
        """The same without ids: input_ids is [k, 0]."""
        return self._reader.narrow(rows)

    def doc_ids(self, docs: np.ndarray) -> list[str]:
        """doc_id of each of int64[k] documents as seg_doc names them."""
        if self._fates is None:
            self._fates = Fates(self._guard)
        return self._fates.doc_ids(docs)

    @property
    def blocks(self) -> "Blocks":
        """How rows lie in row groups, for the order that reads them together."""
        from datapipe.feed.order import Blocks

        return Blocks.of([shard.rows for shard in self.shards])

    def close(self) -> None:
        self._reader.close()
        self._fates = None


class Dataset:
    """A build whose manifest.json, and names and sizes of shards, are as they were made; see verify.py."""

    def __init__(self, guard: Guard):
        self._guard = guard
        self.path: str = guard.place.name
        self.made: BuildManifest = guard.made
        self.dataset_id: str = self.made.dataset_id
        self.sources: tuple[str, ...] = self.made.sources
        self.train, self.validation = Split("train", guard), Split("validation", guard)

    def split(self, name: str) -> Split:
        """train or validation."""
        if name not in ("train", "validation"):
            raise ManifestError(f"no split {name!r}: there are train and validation")
        return self.train if name == "train" else self.validation

    def __len__(self) -> int:
        return len(self.train)

    def __getitem__(self, which: int | slice) -> Batch:
        return self.train[which]

    def __repr__(self) -> str:
        return f"<Dataset {self.path}: {len(self.train):,} + {len(self.validation):,} rows of {self.train.length}>"

    def loader(self, split: str = "train", **options: Any) -> "Loader":
        """Batches of a split; the options are those of Loader."""
        from datapipe.feed.loader import Loader

        return Loader(self.split(split), **options)

    def books(self) -> dict[str, dict[str, Any]]:
        """
        The tokens of each split, in all and by source and shard, counted from the shards' columns.

        They add up and are what manifest.json says, or this is an IntegrityError.
        """
        return {name: ledger.books(self.path, self.made, name, self.split(name)) for name in ("train", "validation")}

    def close(self) -> None:
        """Let go of files and memory."""
        self.train.close()
        self.validation.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _length(guard: Guard) -> int:
    sequences = guard.made.manifest.get("sequences")
    length = sequences.get("length") if isinstance(sequences, dict) else None
    if not isinstance(length, int):
        raise IntegrityError(f"{guard.place.name}/{MANIFEST}: manifest.sequences.length is no number; build again")
    return length


def _storage(made: BuildManifest) -> str:
    """list or binary; what a shard is shows in its own columns, this is what was asked."""
    shards = made.manifest.get("shards")
    return str(shards.get("storage", "list")) if isinstance(shards, dict) else "list"


def _pad(made: BuildManifest) -> int:
    """What fills the rest of a row: pad, else eos, else 0."""
    special = made.tokenizer and (made.tokenizer.pad or made.tokenizer.eos)
    return special.id if special else 0
