"""Which exceptions a user can do something about, and what to tell them."""

import errno
import os
import sys
from typing import NamedTuple

from datapipe.errors import DatapipeError, MachineError

MACHINE = {
    errno.ENOSPC: "the disk is full",
    errno.EDQUOT: "the disk quota is used up",
    errno.EACCES: "permission denied",
    errno.EPERM: "not permitted",
    errno.EROFS: "the file system is read-only",
    errno.ENOMEM: "out of memory",
    errno.EMFILE: "too many open files (see ulimit -n)",
    errno.ENFILE: "too many open files",
    errno.ENOTDIR: "a part of this path is a file, expected a folder",
    errno.EXDEV: "builds and their folder .units must lie on one file system",
    errno.EIO: "the disk reports an error",
}


class Status(NamedTuple):
    number: int
    message: str


def known(error: BaseException) -> Status | None:
    """The exit status and message of an error that is no bug, else None."""
    if isinstance(error, DatapipeError):
        return Status(error.status, str(error))
    if isinstance(error, MemoryError):
        return Status(
            MachineError.status, "out of memory; give less --memory or fewer --workers, or use a larger machine"
        )
    if isinstance(error, OSError) and error.errno in MACHINE:
        where = f"{error.filename}: " if error.filename else ""
        return Status(
            MachineError.status, f"{where}{MACHINE[error.errno]}; what is done stays done, run it again after"
        )
    return _duckdb(error)


def _duckdb(error: BaseException) -> Status | None:
    """DuckDB's own words for a full disk or memory; if nothing imported it, it is none of its errors."""
    duckdb = sys.modules.get("duckdb")
    if duckdb is None or not isinstance(error, duckdb.Error):
        return None
    text = str(error).split("\n", 1)[0]
    if isinstance(error, duckdb.OutOfMemoryException):
        return Status(MachineError.status, f"out of memory or disk: {text}; give more --memory")
    if os.strerror(errno.ENOSPC) in text:  # a transaction that cannot be committed, and what follows from that
        return Status(MachineError.status, f"{MACHINE[errno.ENOSPC]}: {text}; what is done stays done, run it again")
    if isinstance(error, duckdb.IOException):  # it reads and writes our own files only
        return Status(MachineError.status, text)
    return None
