"""Signals of lines, and of marks that are counted by the word."""

import numpy as np
import pyarrow as pa

from datapipe.kernels import lines, unicode, words
from datapipe.signals.measured import Measured, measured, ratio
from datapipe.signals.words import counts as word_counts


def _counts(batch: Measured) -> np.ndarray:
    """int64[texts, lines.MEASURES]"""
    page, entry, *_ = unicode.tables()
    out = np.empty((len(batch), lines.MEASURES), np.int64)
    lines.measure(*batch.buffers, page, entry, out)
    return out


def _by_words(texts: pa.Array | Measured, count: int) -> pa.Array:
    batch = measured(texts)
    return ratio(batch.of(_counts)[:, count], batch.of(word_counts)[:, words.WORDS])


def _by_lines(texts: pa.Array | Measured, count: int, all_lines: int) -> pa.Array:
    found = measured(texts).of(_counts)
    return ratio(found[:, count], found[:, all_lines])


def hash_ratio(texts: pa.Array | Measured) -> pa.Array:
    """# signs by words; null without words."""
    return _by_words(texts, lines.HASHES)


def ellipsis_ratio(texts: pa.Array | Measured) -> pa.Array:
    """Ellipses (three dots, not overlapping, or U+2026) by words; null without words."""
    return _by_words(texts, lines.ELLIPSES)


def list_ratio(texts: pa.Array | Measured) -> pa.Array:
    """Newlines by words; null without words."""
    return _by_words(texts, lines.NEWLINES)


def bullet_line_ratio(texts: pa.Array | Measured) -> pa.Array:
    """The share of lines, blank ones too, that start after white space with - or U+2022; null without lines."""
    return _by_lines(texts, lines.BULLET_LINES, lines.LINES)


def ellipsis_line_ratio(texts: pa.Array | Measured) -> pa.Array:
    """The share of lines, blank ones too, that end before white space with an ellipsis; null without lines."""
    return _by_lines(texts, lines.ELLIPSIS_LINES, lines.LINES)


def line_punct_ratio(texts: pa.Array | Measured) -> pa.Array:
    """The share of lines by LF that end, untrimmed, with a terminal mark among those not blank; null where all are."""
    return _by_lines(texts, lines.ENDED_LINES, lines.FILLED_LINES)


def short_line_ratio(texts: pa.Array | Measured) -> pa.Array:
    """The share of lines by LF of at most 30 code points among those that are not blank; null where all are."""
    return _by_lines(texts, lines.SHORT_LINES, lines.FILLED_LINES)


def third_line_length(texts: pa.Array | Measured) -> pa.Array:
    """Code points of the third longest line by LF, int64; 0 with fewer lines."""
    batch = measured(texts)
    out = np.empty(len(batch), np.int64)
    lines.third_lengths(*batch.buffers, out)
    return pa.array(out)


def sentence_count(texts: pa.Array | Measured) -> pa.Array:
    """Sentences, int64."""
    batch = measured(texts)
    page, entry, *_ = unicode.tables()
    out = np.empty(len(batch), np.int64)
    lines.sentences(*batch.buffers, page, entry, out)
    return pa.array(out)
