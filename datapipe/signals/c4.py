"""Signals of C4: what its rules on documents go by, and the lines that its rules on lines would take."""

import numpy as np
import pyarrow as pa

from datapipe.kernels import c4, unicode
from datapipe.signals.measured import Measured, measured


def _marked(batch: Measured) -> np.ndarray:
    """int64[texts, 3]: lines with lorem ipsum, lines with a curly bracket, whether the former come first."""
    out = np.empty((len(batch), 3), np.int64)
    c4.marked(*batch.buffers, out)
    return out


def _taken(batch: Measured) -> np.ndarray:
    """int64[texts, c4.RULES]: lines that the edit c4_lines takes, by rule."""
    page, entry, *_ = unicode.tables()
    data, offsets = batch.buffers
    out = np.empty(int(offsets[-1] - offsets[0]) + len(batch), np.uint8)
    bounds, counts = np.zeros(len(batch) + 1, np.int64), np.zeros((len(batch), c4.RULES), np.int64)
    c4.clean(data, offsets, page, entry, True, out, bounds, counts)
    return counts


def lorem_ipsum_lines(texts: pa.Array | Measured) -> pa.Array:
    """Lines that hold lorem ipsum in whatever case, int64."""
    return pa.array(measured(texts).of(_marked)[:, 0])


def curly_bracket_lines(texts: pa.Array | Measured) -> pa.Array:
    """Lines that hold {, int64."""
    return pa.array(measured(texts).of(_marked)[:, 1])


def lorem_ipsum_first(texts: pa.Array | Measured) -> pa.Array:
    """1 where a line with lorem ipsum comes before all others with {, so that C4 names it as the reason, else 0."""
    return pa.array(measured(texts).of(_marked)[:, 2])


def c4_long_word_lines(texts: pa.Array | Measured) -> pa.Array:
    """Lines that c4_lines takes for a word of more than 1,000 code points, int64."""
    return pa.array(measured(texts).of(_taken)[:, c4.LONG_WORD_LINES])


def c4_no_terminal_lines(texts: pa.Array | Measured) -> pa.Array:
    """Lines, not blank, that it takes because they end without a terminal mark or with three dots, int64."""
    return pa.array(measured(texts).of(_taken)[:, c4.NO_TERMINAL_LINES])


def c4_few_word_lines(texts: pa.Array | Measured) -> pa.Array:
    """Lines, not blank, that it takes for fewer than three words, int64."""
    return pa.array(measured(texts).of(_taken)[:, c4.FEW_WORD_LINES])


def c4_javascript_lines(texts: pa.Array | Measured) -> pa.Array:
    """Lines that it takes for javascript, int64."""
    return pa.array(measured(texts).of(_taken)[:, c4.SCRIPT_LINES])


def c4_policy_lines(texts: pa.Array | Measured) -> pa.Array:
    """Lines that it takes for words of a policy, int64."""
    return pa.array(measured(texts).of(_taken)[:, c4.POLICY_LINES])
