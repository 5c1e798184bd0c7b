"""A batch of texts and what was counted in it, each count made once however many signals ask for it."""

from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from datapipe import text

Count = Callable[["Measured"], Any]
LARGE = 1 << 23  # bytes of text from which on what signals share is not kept longer than it must be


class Measured:
    """Texts (string or large_string, no nulls), and the counts that signals share."""

    def __init__(self, texts: pa.Array) -> None:
        self.texts = texts
        self._made: dict[Count, Any] = {}
        self._wide: Count | None = None

    def __len__(self) -> int:
        return len(self.texts)

    @cached_property
    def buffers(self) -> tuple[np.ndarray, np.ndarray]:
        """The bytes of the texts and their n + 1 offsets (text.buffers)."""
        return text.buffers(self.texts)

    @cached_property
    def large(self) -> bool:
        offsets = self.buffers[1]
        return bool(offsets[-1] - offsets[0] >= LARGE)

    def of(self, count: Count) -> Any:
        """What `count(self)` gives, counted at the first asking."""
        if count not in self._made:
            self._made[count] = count(self)
        return self._made[count]

    def wide(self, count: Count) -> Any:
        """
        The same for what takes several bytes per byte of text: of a large text only one such thing is kept, until
        another is asked for.
        """
        if self.large and self._wide not in (None, count):
            self._made.pop(self._wide, None)
        self._wide = count
        return self.of(count)

    def forget(self, count: Count) -> None:
        """It is counted anew when it is asked for again."""
        self._made.pop(count, None)


def measured(texts: pa.Array | Measured) -> Measured:
    """Texts as a batch."""
    return texts if isinstance(texts, Measured) else Measured(texts)


def ratio(parts: np.ndarray, wholes: np.ndarray) -> pa.Array:
    """parts / wholes as double, null where wholes are 0."""
    none = wholes == 0
    return pa.array(parts / np.where(none, 1, wholes), pa.float64(), mask=none)
