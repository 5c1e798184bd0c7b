"""The unit store grows with every build; this takes away what was not used for longest, and what was left behind."""

import contextlib
import fcntl
import os
import shutil
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path

from datapipe.errors import MachineError
from datapipe.units import SIDECAR


@dataclass(frozen=True)
class Swept:
    """
    kept_bytes:   of the units that stay
    freed_bytes:  what the disk gains;  shared_bytes: of removed units, but a build holds the same files
    """

    removed_units: int
    removed_leftovers: int
    freed_bytes: int
    shared_bytes: int
    kept_units: int
    kept_bytes: int


@dataclass(frozen=True, order=True)
class _Unit:
    used: int  # nanoseconds; the store touches a unit whenever a build uses it
    name: str
    path: Path
    bytes: int
    shared: int


def sweep(output: Path, keep: int, *, dry_run: bool = False) -> Swept:
    """
    Remove the least recently used units of `output`/.units until `keep` bytes are left, and all leftovers.

    While a build runs (it holds a shared lock on the store) this is a MachineError, and removes nothing.
    """
    store = output / ".units"
    if not store.is_dir():
        return Swept(0, 0, 0, 0, 0, 0)
    with _alone(store):
        folders = [path for path in store.iterdir() if path.is_dir()]
        units = sorted((_unit(path) for path in folders if (path / SIDECAR).is_file()), reverse=True)
        leftovers = [_unit(path) for path in folders if not (path / SIDECAR).is_file()]
        kept, gone = _divide(units, keep)
        for one in [] if dry_run else [*gone, *leftovers]:
            shutil.rmtree(one.path)
    removed = [*gone, *leftovers]
    return Swept(
        removed_units=len(gone),
        removed_leftovers=len(leftovers),
        freed_bytes=sum(one.bytes - one.shared for one in removed),
        shared_bytes=sum(one.shared for one in removed),
        kept_units=len(kept),
        kept_bytes=sum(one.bytes for one in kept),
    )


def _divide(units: list[_Unit], keep: int) -> tuple[list[_Unit], list[_Unit]]:
    """Newest first: what fits into `keep` bytes, and, from the first that does not, what goes."""
    total = 0
    for number, unit in enumerate(units):
        total += unit.bytes
        if total > keep:
            return units[:number], units[number:]
    return units, []


def _unit(path: Path) -> _Unit:
    files = [file.lstat() for file in path.rglob("*") if not file.is_dir() or file.is_symlink()]
    return _Unit(
        used=path.stat().st_mtime_ns,
        name=path.name,
        path=path,
        bytes=sum(file.st_size for file in files),
        shared=sum(file.st_size for file in files if file.st_nlink > 1),
    )


@contextlib.contextmanager
def _alone(store: Path) -> Generator[None]:
    """The store to ourselves: builds hold its lock as long as they run."""
    handle = os.open(store / ".lock", os.O_RDWR | os.O_CREAT, 0o666)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError:
        raise MachineError(f"a build is running with {store}: nothing was removed; clean when it has ended") from None
    finally:
        os.close(handle)
