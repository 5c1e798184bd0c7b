"""Memory that allocators keep for later: what one stage of a long run was done with is in the way of the next one."""

import ctypes
from typing import Any

import pyarrow as pa

LARGE = 4 << 20  # bytes
M_MMAP_THRESHOLD = -3  # of glibc's malloc.h


def steady() -> None:
    """
    From here on this process gives back what is LARGE as soon as it is free.  glibc does so only beyond the largest
    size that was freed before, up to 32 MB: the holes that arrays leave in its heap came to 100 MB of an audit.
    """
    _call("mallopt", M_MMAP_THRESHOLD, LARGE)


def release() -> None:
    """Give back what nothing uses any more: Arrow's pool, and the holes in the heap of glibc."""
    pa.default_memory_pool().release_unused()
    _call("malloc_trim", 0)


def _call(name: str, *values: int) -> None:
    """A function of glibc; other C libraries do not have it, and need it less."""
    function: Any = getattr(ctypes.CDLL(None), name, None)
    if function is not None:
        function(*values)
