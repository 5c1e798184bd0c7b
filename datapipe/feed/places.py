"""
Where a build lies: a folder of this machine, or whatever fsspec opens, read through a cache or without one.

A cache is a folder of files named by their sha256, so builds and versions share it, and a file that is there is the
file that was meant.  One is downloaded under a name of its own and renamed when its bytes are right: what a killed
process leaves is never taken for a file, and stops nobody.
"""

import contextlib
import fcntl
import hashlib
import importlib.util
import os
import tempfile
import time
from collections.abc import Generator, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from datapipe.build_manifest.store import LATEST, MANIFEST, resolve
from datapipe.build_manifest.types import File
from datapipe.errors import DataError, DatapipeError, IntegrityError, MachineError
from datapipe.units import file_sha256

PIECE = 8 << 20  # bytes fetched at once
STALE = 24 * 3600  # seconds after which a download that nobody finished is taken away
FETCHERS = 16  # requests at once that ask for sizes


class Place(Protocol):
    """A build's folder, wherever it is."""

    @property
    def name(self) -> str:
        """Path or URL, for messages."""
        ...

    @property
    def streams(self) -> bool:
        """Whether its files never come to lie on this machine."""
        ...

    def manifest(self) -> bytes:
        """The bytes of manifest.json; none there is a DataError."""
        ...

    def sizes(self, paths: Iterable[str]) -> dict[str, int | None]:
        """Bytes of the files that are there, of those asked; None where the place does not tell."""
        ...

    def found(self, folder: str) -> set[str] | None:
        """All files below a folder, by path in the build; None where the place cannot list them."""
        ...

    def path(self, file: File) -> Path | None:
        """A file of this machine with those bytes, fetched where need be; None where it can only be streamed."""
        ...

    def stream(self, file: File) -> Any:
        """The file, opened for reading in any order."""
        ...

    def again(self, file: File) -> bool:
        """Forget the bytes that `path` gave; False where there is no other copy to be had."""
        ...


def place(build: str | os.PathLike[str] | None, cache: str | os.PathLike[str] | None, output: str) -> Place:
    """The folder of a build as a user names it: a URL, a path, `name`, `name@3`, or None for the newest."""
    written = None if build is None else os.fspath(build)
    if written is not None and "://" in written:
        return Remote.of(written, None if cache is None else Path(cache).expanduser())
    return Local(resolve(written, Path(output)))


@dataclass(frozen=True)
class Local:
    """A folder of this machine."""

    folder: Path

    @property
    def name(self) -> str:
        return str(self.folder)

    @property
    def streams(self) -> bool:
        return False

    def manifest(self) -> bytes:
        try:
            return (self.folder / MANIFEST).read_bytes()
        except FileNotFoundError:
            raise DataError(f"{self.folder}: no {MANIFEST}, so this is no finished build") from None

    def sizes(self, paths: Iterable[str]) -> dict[str, int | None]:
        there: dict[str, int | None] = {}
        for path in paths:
            with contextlib.suppress(FileNotFoundError, NotADirectoryError):
                there[path] = (self.folder / path).stat().st_size
        return there

    def found(self, folder: str) -> set[str] | None:
        paths = (self.folder / folder).rglob("*")
        return {path.relative_to(self.folder).as_posix() for path in paths if not path.is_dir()}

    def path(self, file: File) -> Path | None:
        return self.folder / file.path

    def stream(self, file: File) -> Any:
        return open(self.folder / file.path, "rb")

    def again(self, file: File) -> bool:  # noqa: ARG002  there is one copy
        return False


@dataclass(frozen=True)
class Remote:
    """A folder that fsspec opens."""

    url: str
    cache: Path | None

    @classmethod
    def of(cls, url: str, cache: Path | None) -> "Remote":
        if importlib.util.find_spec("fsspec") is None:
            raise DataError(f"{url}: a build that is not a folder here needs fsspec: install datapipe[remote]")
        if cache is not None:
            with _trouble(cache):
                cache.mkdir(parents=True, exist_ok=True)
            _tidy(cache)
        return cls(url.removesuffix(f"/{MANIFEST}").rstrip("/"), cache).version()

    @property
    def system(self) -> Any:
        """The file system; fsspec keeps one for each process and thread, so none is carried over a fork."""
        return self._opened()[0]

    @property
    def root(self) -> str:
        """The folder as the file system calls it."""
        return self._opened()[1].rstrip("/")

    def _opened(self) -> tuple[Any, str]:
        import fsspec

        try:
            return fsspec.url_to_fs(self.url)
        except (ImportError, ValueError) as error:
            raise DataError(f"{self.url}: cannot be opened: {error}") from None

    def version(self) -> "Remote":
        """The folder builds/<name> stands for the version that `latest` names, as it does on this machine."""
        if self._read(MANIFEST) is not None or (latest := self._read(LATEST)) is None:
            return self
        version = latest.decode("utf-8", "replace").strip()
        return Remote(f"{self.url}/{version}", self.cache)

    @property
    def name(self) -> str:
        return self.url

    @property
    def streams(self) -> bool:
        return self.cache is None

    def manifest(self) -> bytes:
        data = self._read(MANIFEST)
        if data is None:
            raise DataError(f"{self.url}: no {MANIFEST}, so this is no finished build")
        return data

    def _read(self, path: str) -> bytes | None:
        with contextlib.suppress(FileNotFoundError, NotADirectoryError, IsADirectoryError), self._reaching(path):
            return self.system.cat_file(f"{self.root}/{path}")
        return None

    @contextlib.contextmanager
    def _reaching(self, path: str) -> Generator[None]:
        """fsspec's many systems raise as they please; what is not there stays a FileNotFoundError."""
        try:
            yield
        except (DatapipeError, FileNotFoundError, NotADirectoryError, IsADirectoryError):
            raise
        except Exception as error:
            raise MachineError(f"{self.url}/{path}: cannot be read: {type(error).__name__}: {error}") from error

    def sizes(self, paths: Iterable[str]) -> dict[str, int | None]:
        with ThreadPoolExecutor(FETCHERS) as pool:
            asked = list(paths)
            found = zip(asked, pool.map(self._size, asked), strict=True)
            return {path: size for path, size in found if size is not False}

    def _size(self, path: str) -> int | bool | None:
        """False: not there."""
        with contextlib.suppress(FileNotFoundError), self._reaching(path):
            return self.system.info(f"{self.root}/{path}").get("size")
        return False

    def found(self, folder: str) -> set[str] | None:
        protocol = self.system.protocol
        if {"http", "https"} & ({protocol} if isinstance(protocol, str) else set(protocol)):
            return None  # a web server lists what it likes
        with contextlib.suppress(FileNotFoundError), self._reaching(folder):
            return {path[len(self.root) + 1 :] for path in self.system.find(f"{self.root}/{folder}")}
        return set()

    def path(self, file: File) -> Path | None:
        if self.cache is None:
            return None
        target = self.cache / _cached(file)
        if not _there(target, file):
            with _trouble(self.cache), _alone(self.cache, file.sha256):
                if not _there(target, file):  # another process may have fetched it while this one waited
                    self._fetch(file, target)
        return target

    def _fetch(self, file: File, target: Path) -> None:
        sha, size = hashlib.sha256(), 0
        handle, temporary = tempfile.mkstemp(prefix=f".{file.sha256[:16]}-", suffix=".part", dir=target.parent)
        try:
            with open(handle, "wb") as out:
                for piece in self._pieces(file):
                    sha.update(piece)
                    size += len(piece)
                    out.write(piece)
                out.flush()
                os.fsync(out.fileno())
            if size != file.bytes:
                raise IntegrityError(f"{self.url}/{file.path}: {size:,} bytes, recorded were {file.bytes:,}")
            if sha.hexdigest() != file.sha256:
                raise IntegrityError(f"{self.url}/{file.path}: sha256 differs from the recorded one")
            os.chmod(temporary, 0o644)
            os.replace(temporary, target)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise

    def _pieces(self, file: File) -> Generator[bytes]:
        with self.stream(file) as source:
            while True:
                with self._reaching(file.path):
                    piece = source.read(PIECE)
                if not piece:
                    return
                yield piece

    def stream(self, file: File) -> Any:
        with contextlib.suppress(FileNotFoundError), self._reaching(file.path):
            return self.system.open(f"{self.root}/{file.path}", "rb")
        raise IntegrityError(f"{self.url}/{file.path}: missing")

    def again(self, file: File) -> bool:
        if self.cache is None:
            return False
        target = self.cache / _cached(file)
        with _trouble(self.cache), _alone(self.cache, file.sha256):
            if _there(target, file) and file_sha256(target) != file.sha256:  # nobody else has put it right yet
                target.unlink(missing_ok=True)
        return True


def _cached(file: File) -> str:
    return f"{file.sha256}{Path(file.path).suffix}"


def _there(path: Path, file: File) -> bool:
    try:
        return path.stat().st_size == file.bytes
    except FileNotFoundError:
        return False


@contextlib.contextmanager
def _alone(cache: Path, sha256: str) -> Generator[None]:
    """One process fetches a file while others wait; the lock goes with its process, however that ends."""
    locks = cache / ".locks"
    locks.mkdir(exist_ok=True)
    handle = os.open(locks / sha256[:2], os.O_RDWR | os.O_CREAT, 0o666)
    try:
        with contextlib.suppress(OSError):  # a file system without locks: both fetch, and the second rename is harmless
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _tidy(cache: Path) -> None:
    """Take away what killed processes left a day ago."""
    for path in cache.glob(".*.part"):
        with contextlib.suppress(OSError):
            if time.time() - path.stat().st_mtime > STALE:
                path.unlink()


@contextlib.contextmanager
def _trouble(cache: Path) -> Generator[None]:
    try:
        yield
    except OSError as error:
        raise MachineError(f"{cache}: the cache cannot be written: {error.strerror or error}") from error
