"""Signals of words."""

import numpy as np
import pyarrow as pa

from datapipe import text
from datapipe.kernels import unicode, words
from datapipe.signals.measured import Measured, measured, ratio


def counts(batch: Measured) -> np.ndarray:
    """int64[texts, words.MEASURES]"""
    page, entry, *_ = unicode.tables()
    out = np.empty((len(batch), words.MEASURES), np.int64)
    words.measure(*batch.buffers, page, entry, out)
    return out


def word_count(texts: pa.Array | Measured) -> pa.Array:
    """Words, int64."""
    return pa.array(measured(texts).of(counts)[:, words.WORDS])


def unit_count(texts: pa.Array | Measured) -> pa.Array:
    """Units, int64."""
    return pa.array(text.unit_counts(measured(texts).texts))


def mean_word_length(texts: pa.Array | Measured) -> pa.Array:
    """Code points of a word, on average; null without words."""
    found = measured(texts).of(counts)
    return ratio(found[:, words.POINTS], found[:, words.WORDS])


def max_word_length(texts: pa.Array | Measured) -> pa.Array:
    """Code points of the longest word, int64; 0 without words."""
    return pa.array(measured(texts).of(counts)[:, words.LONGEST])


def alpha_ratio(texts: pa.Array | Measured) -> pa.Array:
    """The share of words with at least one letter (category L); null without words."""
    found = measured(texts).of(counts)
    return ratio(found[:, words.LETTERED], found[:, words.WORDS])


def non_symbol_word_count(texts: pa.Array | Measured) -> pa.Array:
    """Words with at least one code point that is no punctuation, int64."""
    return pa.array(measured(texts).of(counts)[:, words.PLAIN])


def mean_non_symbol_word_length(texts: pa.Array | Measured) -> pa.Array:
    """Code points of such a word, on average; null without any."""
    found = measured(texts).of(counts)
    return ratio(found[:, words.PLAIN_POINTS], found[:, words.PLAIN])


def english_stop_words(texts: pa.Array | Measured) -> pa.Array:
    """How many of the, be, to, of, and, that, have, with are among the words as they stand, int64."""
    return pa.array(np.bitwise_count(measured(texts).of(counts)[:, words.STOP_WORDS]).astype(np.int64))
