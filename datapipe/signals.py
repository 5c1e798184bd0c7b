"""
Signals: numbers about a text that filters put bounds on.  A signal is null where it has no meaning.

A new signal is a function here and a line in SIGNALS; VERSION goes up whenever the output of any of them changes.
Signals named word_* go by words, unit_* by units, both as text.py defines them.
"""

import json
from collections.abc import Callable, Sequence
from functools import cached_property

import numpy as np
import pyarrow as pa

from datapipe import text
from datapipe.kernels import unicode, words

VERSION = 1


class Measured:
    """A batch of texts and what was counted in it, each count made once however many signals ask for it."""

    def __init__(self, texts: pa.Array) -> None:
        self.texts = texts

    @cached_property
    def counts(self) -> np.ndarray:
        """int64[texts, words.MEASURES]"""
        data, offsets = text.buffers(self.texts)
        page, entry, *_ = unicode.tables()
        out = np.zeros((len(self.texts), words.MEASURES), np.int64)
        words.measure(data, offsets, page, entry, out)
        return out


def word_count(texts: pa.Array | Measured) -> pa.Array:
    """Words, int64."""
    return pa.array(_measured(texts)[:, words.WORDS])


def unit_count(texts: pa.Array | Measured) -> pa.Array:
    """Units, int64."""
    return pa.array(text.unit_counts(texts.texts if isinstance(texts, Measured) else texts))


def mean_word_length(texts: pa.Array | Measured) -> pa.Array:
    """Code points of a word, on average; null without words."""
    counts = _measured(texts)
    return _ratio(counts[:, words.POINTS], counts[:, words.WORDS])


def alpha_ratio(texts: pa.Array | Measured) -> pa.Array:
    """The share of words with at least one letter (category L); null without words."""
    counts = _measured(texts)
    return _ratio(counts[:, words.LETTERED], counts[:, words.WORDS])


def short_line_ratio(texts: pa.Array | Measured) -> pa.Array:
    """The share of lines of at most 30 code points among those that are not blank; null where all are."""
    counts = _measured(texts)
    return _ratio(counts[:, words.SHORT_LINES], counts[:, words.LINES])


Signal = Callable[[pa.Array | Measured], pa.Array]
SIGNALS: dict[str, Signal] = {
    "word_count": word_count,
    "unit_count": unit_count,
    "mean_word_length": mean_word_length,
    "alpha_ratio": alpha_ratio,
    "short_line_ratio": short_line_ratio,
}


def measure(texts: pa.Array, names: Sequence[str]) -> list[pa.Array]:
    """The named signals of texts, counting what they share once."""
    batch = Measured(texts)
    return [SIGNALS[name](batch) for name in names]


def extra_numbers(extra: pa.Array, names: Sequence[str]) -> list[pa.Array]:
    """
    Extra fields as double, for filters: extra is a JSON object a document, or null; a JSON number is its value, and
    anything else (a string, a boolean, null, no such field) is null.
    """
    objects = [json.loads(value) if value else {} for value in extra.to_pylist()]
    return [pa.array([_number(one.get(name)) for one in objects], pa.float64()) for name in names]


def _number(value: object) -> float | None:
    """A JSON number as a float; one that no float can hold is as far out as its sign."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value)
    except OverflowError:
        return float("inf") if value > 0 else float("-inf")


def _measured(texts: pa.Array | Measured) -> np.ndarray:
    return (texts if isinstance(texts, Measured) else Measured(texts)).counts


def _ratio(parts: np.ndarray, wholes: np.ndarray) -> pa.Array:
    """parts / wholes as double, null where wholes are 0."""
    none = wholes == 0
    return pa.array(parts / np.where(none, 1, wholes), pa.float64(), mask=none)
