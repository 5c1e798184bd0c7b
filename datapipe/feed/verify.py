"""
Are these the shards that were made?

always  build_digest of manifest.json; every shard is there with its size, and no other file beside it; its row_id
        begin where they should, so that no two shards have changed places; checksums of the pages that are read
lazy    and the sha256 of a shard when it is first used
full    and the sha256 of every shard before a row is read
size    none of the two; row_id are read with every row group

What a file of this machine was seen to be holds until its size, inode or time of change differ.
"""

import contextlib
import hashlib
import os
import threading
import warnings
from collections.abc import Generator, Mapping
from pathlib import Path
from typing import Any, Literal, get_args

from datapipe.build_manifest import BuildManifest, digests
from datapipe.build_manifest.store import MANIFEST
from datapipe.build_manifest.types import File
from datapipe.errors import DataError, IntegrityError, MachineError, ManifestError
from datapipe.feed.places import PIECE, Place
from datapipe.units import file_sha256

Mode = Literal["full", "lazy", "size"]
FOLDERS = ("train", "validation")


class Guard:
    """Lets through the files that are what manifest.json says; all others are IntegrityErrors that name them."""

    def __init__(self, place: Place, made: BuildManifest, record: Mapping[str, Any], mode: Mode):
        """`record`: manifest.json as it was read."""
        if mode not in get_args(Mode):
            raise ManifestError(f"verify is {mode!r}, expected one of {', '.join(get_args(Mode))}")
        if made.tokenizer is None:
            raise DataError(
                f"{place.name}: the build has no shards, for its manifest names no `tokenizer`; add that key, "
                "and build again"
            )
        self.place, self.made, self.mode = place, made, mode
        self._seen: dict[str, tuple[int, ...]] = {}
        self._unlocked()
        self._manifest(record, made.tokenizer.sha256)
        named = {file.path: file for file in made.files}
        self.files: dict[str, File] = {}
        for split in (made.splits.train, made.splits.validation):
            for shard in split.shards:
                if shard.path not in named:
                    raise IntegrityError(f"{place.name}/{MANIFEST}: files[] does not name the shard {shard.path}")
                self.files[shard.path] = named[shard.path]
        self._present()
        if mode == "full":
            for file in self.files.values():
                self._whole(file)
        elif mode == "lazy" and place.streams:
            warnings.warn(
                f"{place.name}: without a cache the sha256 of shards are not checked, their sizes and the checksums "
                'of their pages are; name a folder as `cache`, or say verify="size"',
                stacklevel=4,
            )

    def __getstate__(self) -> dict[str, Any]:
        """For a worker process: what was seen of this machine's files stays seen."""
        return {key: value for key, value in self.__dict__.items() if key not in ("_locks", "_lock", "_pid")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._unlocked()

    def _unlocked(self) -> None:
        self._pid = os.getpid()
        self._locks: dict[str, threading.Lock] = {}
        self._lock = threading.Lock()

    def _manifest(self, record: Mapping[str, Any], tokenizer: str) -> None:
        where = f"{self.place.name}/{MANIFEST}"
        if (digest := digests.build_digest(record)) != self.made.build_digest:
            raise IntegrityError(f"{where}: build_digest is {self.made.build_digest}, its content gives {digest}")
        if (dataset_id := digests.dataset_id(tokenizer, self.made.splits.contents())) != self.made.dataset_id:
            raise IntegrityError(f"{where}: dataset_id is {self.made.dataset_id}, its shards give {dataset_id}")

    def _present(self) -> None:
        """Names and sizes."""
        sizes = self.place.sizes(self.files)
        for path, file in self.files.items():
            if path not in sizes:
                raise IntegrityError(f"{self.place.name}/{path}: missing")
            self._sized(file, sizes[path])
        for folder in FOLDERS:
            extra = sorted((self.place.found(folder) or set()) - set(self.files))
            if extra:
                raise IntegrityError(f"{self.place.name}/{extra[0]}: is not in files[] of {MANIFEST}")

    def _sized(self, file: File, size: int | None) -> None:
        if size is not None and size != file.bytes:
            where = f"{self.place.name}/{file.path}"
            raise IntegrityError(f"{where}: {size:,} bytes, recorded were {file.bytes:,}")

    def path(self, file: File) -> Path | None:
        """A shard's file on this machine, checked as the mode says; None where it can only be streamed."""
        if self._pid != os.getpid():  # after a fork locks may be held by threads that are not here
            self._unlocked()
        with self._lock:
            lock = self._locks.setdefault(file.path, threading.Lock())
        with lock, about(f"{self.place.name}/{file.path}"):
            path = self.place.path(file)
            if path is None or self._seen.get(file.path) == _state(path):
                return path
            return self._first(file, path)

    def _first(self, file: File, path: Path) -> Path:
        state = _state(path)
        self._sized(file, path.stat().st_size)
        if self.mode != "size" and file_sha256(path) != file.sha256:
            if not self.place.again(file):
                raise IntegrityError(f"{self.place.name}/{file.path}: sha256 differs from the recorded one")
            again = self.place.path(file)  # the copy in the cache was damaged; this one was checked as it came
            assert again is not None
            path, state = again, _state(again)
        self._seen[file.path] = state
        return path

    def _whole(self, file: File) -> None:
        """sha256 of a shard, now."""
        if self.path(file) is not None:
            return
        sha = hashlib.sha256()
        with self.place.stream(file) as source:
            while piece := source.read(PIECE):
                sha.update(piece)
        if sha.hexdigest() != file.sha256:
            raise IntegrityError(f"{self.place.name}/{file.path}: sha256 differs from the recorded one")


def _state(path: Path) -> tuple[int, ...]:
    """What changes when a file does."""
    found = path.stat()
    return (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns)


@contextlib.contextmanager
def about(where: str) -> Generator[None]:
    """Errors in the block are about this file: damaged bytes are an IntegrityError, the machine's a MachineError."""
    import pyarrow as pa

    try:
        yield
    except FileNotFoundError:
        raise IntegrityError(f"{where}: missing") from None
    except MemoryError:
        raise
    except OSError as error:
        if error.errno is not None:
            raise MachineError(f"{where}: {os.strerror(error.errno)}") from error
        raise IntegrityError(f"{where}: damaged: {_line(error)}") from None
    except (pa.ArrowException, KeyError, IndexError, ValueError) as error:  # a damaged footer names odd columns
        raise IntegrityError(f"{where}: damaged: {_line(error)}") from None


def _line(error: Exception) -> str:
    return (str(error) or type(error).__name__).splitlines()[0]
