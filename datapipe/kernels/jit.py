"""
How a kernel is compiled, and where the compiled code is kept.

Numba's cache sees a change in the file of the function it compiled, but not in a kernel called from there, in a
constant of another file, or in an option.  So the folder is named after all kernel sources together: an edit can
never run yesterday's machine code.  The folder lies under the user's cache folder, for the package itself may be
read-only; NUMBA_CACHE_DIR moves it.  Where no folder can be written, kernels are compiled anew in every process.
"""

import hashlib
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast

import numba
import numba.core.config
import numpy as np

F = TypeVar("F", bound=Callable[..., Any])

_config: Any = numba.core.config
_deciding = threading.Lock()


def _digest() -> str:
    """Sixteen hex digits over the kernel sources and the one option of numba's that changes code behind its back."""
    state = hashlib.sha256(str(_config.BOUNDSCHECK).encode())
    for path in sorted(Path(__file__).parent.glob("*.py")):
        state.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return state.hexdigest()[:16]


def _folder() -> str | None:
    """The folder for this state of the sources; None where nothing can be written."""
    own = os.environ.get("NUMBA_CACHE_DIR")
    home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    folder = Path(own) if own else Path(home) / "datapipe"
    folder = folder / f"kernels-{_digest()}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return None
    return str(folder) if os.access(folder, os.W_OK | os.X_OK) else None


FOLDER = _folder()


def kernel(function: F) -> F:
    """
    Compile on first call.  nogil: work units run in threads.  No fastmath and no parallel: same bytes on every machine.
    """
    with _deciding:  # numba settles the cache folder while it decorates; other users of numba keep theirs
        before = _config.CACHE_DIR
        _config.CACHE_DIR = FOLDER or before
        try:
            return cast(F, numba.njit(nogil=True, cache=FOLDER is not None)(function))
        finally:
            _config.CACHE_DIR = before


def given(array: np.ndarray) -> np.ndarray:
    """
    A contiguous read-only view.  A kernel is compiled once for each type of its arguments, and numba takes read-only
    arrays (all of Arrow's) for another type; handing over every input this way keeps it at one compilation.
    """
    view = np.ascontiguousarray(array).view()
    view.flags.writeable = False
    return view
