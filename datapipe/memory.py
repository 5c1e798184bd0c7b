"""Memory that allocators keep for later: what one stage of a long run was done with is in the way of the next one."""

import ctypes

import pyarrow as pa


def release() -> None:
    """Give back what nothing uses any more: Arrow's pool, and the holes in the heap of glibc."""
    pa.default_memory_pool().release_unused()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
