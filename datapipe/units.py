"""
Work units: pieces of work that are done once, committed whole, and found again by what decides their bytes.

A unit's key is the sha256 of [function, version, settings, inputs, libraries].  Its folder appears under that
name by one rename, with all its files and a sidecar that says what they hold; a folder without a valid sidecar
does not exist.  Builds share the store, so resuming a killed build and starting the next one are the same thing.
"""

import functools
import hashlib
import importlib.metadata
import json
import os
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from datapipe.errors import IntegrityError
from datapipe.keyed import canonical

SIDECAR = "unit.json"


def file_sha256(path: Path) -> str:
    """sha256 of a file's bytes, in hex."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def digest(value: object) -> str:
    """sha256 of the canonical JSON of a value, in hex."""
    return hashlib.sha256(canonical(value)).hexdigest()


@functools.cache
def library(name: str) -> str:
    """The version of a library, or of Python's Unicode tables for `unicodedata`."""
    if name == "unicodedata":
        import unicodedata

        return unicodedata.unidata_version
    return importlib.metadata.version(name)


def cores() -> int:
    """The cores that this process may run on: threads, unless a user says otherwise."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def fsync_folder(path: Path) -> None:
    """Put on the disk which names a folder holds."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def link(source: Path, target: Path) -> None:
    """The same bytes under another name, without a copy where the file system can."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)


@dataclass(frozen=True)
class Done:
    """A committed unit: where it lies, what it counted, what its files are."""

    key: str
    function: str
    folder: Path
    counts: dict
    files: dict[str, dict]  # name -> {bytes, sha256}
    reused: bool

    def path(self, name: str) -> Path:
        return self.folder / name

    def sha256(self, name: str) -> str:
        return self.files[name]["sha256"]


@dataclass(frozen=True)
class Unit:
    """
    A piece of work.  `work(folder)` writes files into the folder and returns counts (JSON).

    function, version:  whose work it is; VERSION is an integer beside the function, raised when its output changes
    settings:           only what the function reads (JSON)
    inputs:             digests of what goes in
    libraries:          names of the libraries whose version decides the bytes
    family:             groups units that a later build may use side by side (see derive.py)
    """

    function: str
    version: int
    settings: object
    inputs: Sequence[str]
    libraries: Sequence[str]
    work: Callable[[Path], dict] = field(compare=False, repr=False)
    family: str | None = None

    @functools.cached_property
    def key(self) -> str:
        versions = {name: library(name) for name in self.libraries}
        return digest([self.function, self.version, self.settings, list(self.inputs), versions])

    def run(self, store: "Store") -> list[Done]:
        return [store.find(self.key) or store.commit(self)]


class Task(Protocol):
    """What `run` runs: a unit, or a chain of units that only one thread can walk (an unsplittable stream)."""

    def run(self, store: "Store") -> list[Done]: ...


class Store:
    """The folder of committed units, `builds/.units/<key>/`."""

    def __init__(self, folder: Path, scratch: Path):
        """`scratch`: where unfinished units lie, on the same file system; it vanishes with the build."""
        self.folder, self.scratch = folder, scratch
        self._checked: dict[str, Done] = {}
        self._lock = threading.Lock()
        self._families: dict[str, list[str]] | None = None
        self.ran: dict[str, int] = {}
        self.reused: dict[str, int] = {}

    def find(self, key: str) -> Done | None:
        """The committed unit of that key if its files are the bytes that were recorded; a damaged one is removed."""
        with self._lock:
            if key in self._checked:
                return self._checked[key]
        done = self._read(key)
        if done is None:
            return None
        if any(not _intact(done.path(name), entry) for name, entry in done.files.items()):
            shutil.rmtree(done.folder, ignore_errors=True)
            return None
        os.utime(done.folder)  # `clean` removes the least recently used first
        self._count(self.reused, done)
        return done

    def family(self, name: str) -> list[Done]:
        """The intact units of a family, by key."""
        with self._lock:
            if self._families is None:
                self._families = {}
                for sidecar in sorted(self.folder.glob(f"*/{SIDECAR}")):
                    record = _record(sidecar)
                    if record and record["family"]:
                        self._families.setdefault(record["family"], []).append(sidecar.parent.name)
            keys = list(self._families.get(name, []))
        return [done for key in sorted(keys) if (done := self.find(key))]

    def commit(self, unit: Unit) -> Done:
        """Run a unit in a temporary folder and make it appear, whole, under its key."""
        folder = Path(tempfile.mkdtemp(prefix="unit-", dir=self.scratch))
        try:
            counts = unit.work(folder)
            files = {}
            for path in sorted(folder.iterdir()):
                with open(path, "rb") as file:
                    sha = hashlib.file_digest(file, "sha256").hexdigest()
                    os.fsync(file.fileno())
                files[path.name] = {"bytes": path.stat().st_size, "sha256": sha}
            record = {"key": unit.key, "function": unit.function, "version": unit.version, "family": unit.family,
                      "counts": counts, "files": files}  # fmt: skip
            with open(folder / SIDECAR, "wb") as file:
                file.write(canonical(record | {"sha256": digest(record)}))
                file.flush()
                os.fsync(file.fileno())
            fsync_folder(folder)
            target = self.folder / unit.key
            try:
                folder.rename(target)
            except OSError:
                # another build committed the same unit first, or a damaged one is in the way
                if (done := self._read(unit.key)) and all(_intact(done.path(n), e) for n, e in done.files.items()):
                    self._count(self.reused, done)
                    return done
                shutil.rmtree(target, ignore_errors=True)
                folder.rename(target)
            fsync_folder(self.folder)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        done = Done(unit.key, unit.function, target, counts, files, reused=False)
        self._count(self.ran, done)
        return done

    def _read(self, key: str) -> Done | None:
        folder = self.folder / key
        record = _record(folder / SIDECAR)
        if record is None:
            return None
        if record["key"] != key:
            raise IntegrityError(f"{folder / SIDECAR}: the sidecar is of unit {record['key']}; remove this folder")
        return Done(key, record["function"], folder, record["counts"], record["files"], reused=True)

    def _count(self, counter: dict[str, int], done: Done) -> None:
        with self._lock:
            self._checked[done.key] = done
            counter[done.function] = counter.get(done.function, 0) + 1


def _record(sidecar: Path) -> dict | None:
    """What a sidecar says, if it says what was written there: the digest in it is of all the rest."""
    try:
        record = json.loads(sidecar.read_bytes())
    except (FileNotFoundError, NotADirectoryError, ValueError, RecursionError):
        return None
    written = record.pop("sha256", None) if isinstance(record, dict) else None
    return record if written is not None and written == digest(record) else None


def _intact(path: Path, entry: dict) -> bool:
    try:
        return path.stat().st_size == entry["bytes"] and file_sha256(path) == entry["sha256"]
    except FileNotFoundError:
        return False


def run(
    store: Store, tasks: Iterable[Task], workers: int, progress: Callable[[int], None] = lambda done: None
) -> list[Done]:
    """
    Run every task that has no valid sidecar yet, in `workers` threads; what was done, in the order of the tasks.

    The first error stops the start of further tasks, waits for the running ones, and is raised.
    """
    with ThreadPoolExecutor(max_workers=workers) as pool:
        futures: list[Future] = [pool.submit(task.run, store) for task in tasks]
        for future in futures:
            future.add_done_callback(lambda _: progress(1))
        try:
            wait(futures, return_when=FIRST_EXCEPTION)
        finally:  # an error, or a signal in this thread: what has not started does not start
            for future in futures:
                future.cancel()
    done: list[Done] = []
    for future in futures:
        if not future.cancelled():
            done.extend(future.result())
    return done
