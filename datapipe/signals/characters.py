"""Signals of characters: what a text is made of, whatever its language, in code points."""

import numpy as np
import pyarrow as pa

from datapipe.kernels import characters, unicode
from datapipe.signals.measured import Measured, measured, ratio


def counts(batch: Measured) -> np.ndarray:
    """int64[texts, characters.MEASURES]"""
    page, entry, _, pool = unicode.tables()
    out = np.empty((len(batch), characters.MEASURES), np.int64)
    characters.count(*batch.buffers, page, entry, pool, *characters.lanes(), out)
    return out


def char_count(texts: pa.Array | Measured) -> pa.Array:
    """Code points, int64."""
    return pa.array(measured(texts).of(counts)[:, characters.POINTS])


def letter_count(texts: pa.Array | Measured) -> pa.Array:
    """Letters (category L), int64."""
    return pa.array(measured(texts).of(counts)[:, characters.LETTERS])


def latin_letter_count(texts: pa.Array | Measured) -> pa.Array:
    """Letters of the Latin script, int64."""
    return pa.array(measured(texts).of(counts)[:, characters.LATINS])


def _dense(column: int, texts: pa.Array | Measured) -> pa.Array:
    """A class of code points by those that are not white space; null without these."""
    found = measured(texts).of(counts)
    return ratio(found[:, column], found[:, characters.POINTS] - found[:, characters.WHITES])


def _share(column: int, texts: pa.Array | Measured) -> pa.Array:
    """A class of code points by all of them; null without these."""
    found = measured(texts).of(counts)
    return ratio(found[:, column], found[:, characters.POINTS])


def letter_ratio(texts: pa.Array | Measured) -> pa.Array:
    """Letters by code points that are not white space."""
    return _dense(characters.LETTERS, texts)


def unit_char_ratio(texts: pa.Array | Measured) -> pa.Array:
    """
    Code points that units are made of (their folding holds a letter, mark or digit) by those that are not white space.
    """
    return _dense(characters.IN_UNITS, texts)


def digit_ratio(texts: pa.Array | Measured) -> pa.Array:
    """Numeric code points that are no letters (so not the Han numerals) by those that are not white space."""
    return _dense(characters.DIGITS, texts)


def punctuation_ratio(texts: pa.Array | Measured) -> pa.Array:
    """Punctuation (unicode.PUNCTUATION, which has controls too) by code points that are not white space."""
    return _dense(characters.PUNCTUATIONS, texts)


def alnum_ratio(texts: pa.Array | Measured) -> pa.Array:
    """Letters and numbers, as str.isalnum knows them, by all code points: StarCoder's."""
    found = measured(texts).of(counts)
    return ratio(found[:, characters.LETTERS] + found[:, characters.DIGITS], found[:, characters.POINTS])


def newline_char_ratio(texts: pa.Array | Measured) -> pa.Array:
    """Newlines by code points."""
    return _share(characters.NEWLINES, texts)


def replacement_ratio(texts: pa.Array | Measured) -> pa.Array:
    """U+FFFD by code points: what broken decoding leaves behind."""
    return _share(characters.REPLACED, texts)


def control_ratio(texts: pa.Array | Measured) -> pa.Array:
    """Controls (category Cc) other than tab, newline and carriage return, by code points."""
    return _share(characters.CONTROLS, texts)


def mean_line_length(texts: pa.Array | Measured) -> pa.Array:
    """
    Code points of a line without its newline, on average; null for the empty text.  Blank lines are lines, what follows
    the last newline is one unless it is empty, a carriage return is a code point.
    """
    found = measured(texts).of(counts)
    return ratio(found[:, characters.POINTS] - found[:, characters.NEWLINES], found[:, characters.LINES])


def max_line_length(texts: pa.Array | Measured) -> pa.Array:
    """Code points of the longest line (as in mean_line_length), int64; null for the empty text."""
    found = measured(texts).of(counts)
    return pa.array(found[:, characters.LONGEST], mask=found[:, characters.LINES] == 0)


def _by_unit(column: int, texts: pa.Array | Measured) -> pa.Array:
    """A count by units; null without units."""
    found = measured(texts).of(counts)
    return ratio(found[:, column], found[:, characters.UNITS])


def mean_unit_length(texts: pa.Array | Measured) -> pa.Array:
    """Code points that units are made of by units; null without units."""
    return _by_unit(characters.IN_UNITS, texts)


def hash_unit_ratio(texts: pa.Array | Measured) -> pa.Array:
    """# signs by units; null without units."""
    return _by_unit(characters.HASHES, texts)


def ellipsis_unit_ratio(texts: pa.Array | Measured) -> pa.Array:
    """Ellipses (... without overlap, and U+2026) by units; null without units."""
    return _by_unit(characters.ELLIPSES, texts)
