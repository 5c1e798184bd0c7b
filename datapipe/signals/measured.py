"""A batch of texts and what was counted in it, each count made once however many signals ask for it."""

from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from datapipe import text

Count = Callable[["Measured"], Any]


class Measured:
    """Texts (string or large_string, no nulls), and the counts that signals share."""

    def __init__(self, texts: pa.Array) -> None:
        self.texts = texts
        self._made: dict[Count, Any] = {}

    def __len__(self) -> int:
        return len(self.texts)

    @cached_property
    def buffers(self) -> tuple[np.ndarray, np.ndarray]:
        """The bytes of the texts and their n + 1 offsets (text.buffers)."""
        return text.buffers(self.texts)

    def of(self, count: Count) -> Any:
        """What `count(self)` gives, counted at the first asking."""
        if count not in self._made:
            self._made[count] = count(self)
        return self._made[count]


def measured(texts: pa.Array | Measured) -> Measured:
    """Texts as a batch."""
    return texts if isinstance(texts, Measured) else Measured(texts)


def ratio(parts: np.ndarray, wholes: np.ndarray) -> pa.Array:
    """parts / wholes as double, null where wholes are 0."""
    none = wholes == 0
    return pa.array(parts / np.where(none, 1, wholes), pa.float64(), mask=none)
