"""A folder that is there whole or not at all."""

import contextlib
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from datapipe.errors import ManifestError
from datapipe.units import fsync_folder

FILE = "export.json"  # written last; a folder that holds it is an export


def refuse(out: Path, build: str, force: bool) -> None:
    """A ManifestError where `out` must not be written."""
    inside = out == Path(build).resolve() or Path(build).resolve() in out.parents
    if inside:
        raise ManifestError(f"--out {out}: lies in the build itself, whose files are recorded; choose another folder")
    if not out.exists():
        return
    if not out.is_dir():
        raise ManifestError(f"--out {out}: is a file, expected a folder that is not there yet")
    if not any(out.iterdir()):
        return
    if not (out / FILE).is_file():
        raise ManifestError(f"--out {out}: is there and is no export (it has no {FILE}), so it is never replaced")
    if not force:
        raise ManifestError(f"--out {out}: an export is there already; --force replaces it")


@contextlib.contextmanager
def staged(out: Path) -> Iterator[Path]:
    """
    A folder beside `out` that takes its name in the end; what an error or a signal leaves of it is removed.

    What a killed process left is removed by the next one; its lock says that it is dead.
    """
    out.parent.mkdir(parents=True, exist_ok=True)
    prefix = f".{out.name}.partial-"
    _sweep(out.parent, prefix)
    staging = Path(tempfile.mkdtemp(prefix=prefix, dir=out.parent))
    lock = _locked(staging)
    try:
        yield staging
        os.chmod(staging, 0o755)  # noqa: S103  mkdtemp's folders are for one user
        _replace(staging, out, prefix)
    finally:
        shutil.rmtree(staging, ignore_errors=True)
        if lock is not None:
            os.close(lock)


def _replace(staging: Path, out: Path, prefix: str) -> None:
    """Give staging the name of `out`; an export that has it makes room, and is removed after."""
    old = None
    if out.exists() and any(out.iterdir()):
        old = Path(tempfile.mkdtemp(prefix=prefix, dir=out.parent))
        os.rename(out, old)
    os.rename(staging, out)
    fsync_folder(out.parent)
    if old:
        shutil.rmtree(old, ignore_errors=True)


def _locked(folder: Path) -> int | None:
    """A handle that locks a folder as long as this process lives; None where another has it or nobody can."""
    try:
        handle = os.open(folder, os.O_RDONLY)
    except OSError:
        return None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(handle)
        return None
    return handle


def _sweep(parent: Path, prefix: str) -> None:
    for left in parent.iterdir():
        if left.name.startswith(prefix) and (lock := _locked(left)) is not None:
            shutil.rmtree(left, ignore_errors=True)
            os.close(lock)
