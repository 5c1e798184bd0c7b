"""
Signals of repetition: lines, paragraphs and n-grams that come again.

dup_* and top_*_char_frac are those of Gopher (Rae et al. 2021, arXiv 2112.11446, table A1) as datatrove counts them,
char_dup_ratio is FineWeb's (Penedo et al. 2024, arXiv 2406.17557).  The first of several equal ones is no repetition;
lengths are code points, and denominators the whole text, newlines and blanks too.  The *_unit_frac are the same in
units, which say as much of a language written without blanks.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from datapipe import text
from datapipe.kernels import joined, ngrams, repeats, unicode
from datapipe.signals.measured import Measured, measured, ratio

TOP, DUP = (2, 3, 4), (5, 6, 7, 8, 9, 10)  # n of the most frequent n-gram; of n-grams seen before


# --- lines and paragraphs --------------------------------------------------------------------------------------


def _repeats(batch: Measured) -> np.ndarray:
    """int64[texts, repeats.MEASURES]"""
    page, entry, *_ = unicode.tables()
    out = np.zeros((len(batch), repeats.MEASURES), np.int64)
    repeats.measure(*batch.buffers, page, entry, out)
    return out


def _share(texts: pa.Array | Measured, part: int, whole: int) -> pa.Array:
    counts = measured(texts).of(_repeats)
    return ratio(counts[:, part], counts[:, whole])


def dup_para_frac(texts: pa.Array | Measured) -> pa.Array:
    """The share of paragraphs (of the stripped text, between two newlines or more) seen before; null without text."""
    return _share(texts, repeats.SAME_PARAGRAPHS, repeats.PARAGRAPHS)


def dup_para_char_frac(texts: pa.Array | Measured) -> pa.Array:
    """Their code points, as a share of the text; null without text."""
    return _share(texts, repeats.SAME_PARAGRAPH_POINTS, repeats.POINTS)


def dup_line_frac(texts: pa.Array | Measured) -> pa.Array:
    """
    The share of lines (between newlines, however many) seen before; null without text.  As in datatrove, newlines at
    the beginning and at the end have an empty line before and after them.
    """
    return _share(texts, repeats.SAME_LINES, repeats.LINES)


def dup_line_char_frac(texts: pa.Array | Measured) -> pa.Array:
    """Their code points, as a share of the text; null without text."""
    return _share(texts, repeats.SAME_LINE_POINTS, repeats.POINTS)


def char_dup_ratio(texts: pa.Array | Measured) -> pa.Array:
    """
    Code points of lines seen before that are not blank, as a share of the text without newlines; null where all lines
    are blank.
    """
    counts = measured(texts).of(_repeats)
    wholes = (counts[:, repeats.POINTS] - counts[:, repeats.BREAKS]) * counts[:, repeats.FILLED]
    return ratio(counts[:, repeats.SAME_FILLED_POINTS], wholes)


# --- n-grams of words ------------------------------------------------------------------------------------------


class _Words(NamedTuple):
    """Word i is letters[starts[i]:starts[i + 1]]; text d has the words places[d]:places[d + 1]."""

    letters: np.ndarray
    starts: np.ndarray
    places: np.ndarray


class _Kept(NamedTuple):
    """Positions that may begin a run seen before: as ngrams.narrow_words writes them."""

    kept: np.ndarray
    places: np.ndarray


def _words(batch: Measured) -> _Words:
    data, offsets = batch.buffers
    page, entry, *_ = unicode.tables()
    size = int(offsets[-1] - offsets[0])
    letters = np.empty(size + joined.PAD, np.uint8)
    starts, places = np.empty((size + len(batch)) // 2 + 2, np.int64), np.empty(len(batch) + 1, np.int64)
    joined.join(data, offsets, page, entry, letters, starts, places)
    return _Words(letters, starts[: places[-1] + 1], places)


def _kept_words(batch: Measured, n: int) -> _Kept:
    letters, starts, places = batch.of(_words)
    if n == DUP[0]:
        kept, kept_places = _room(places, len(starts))
        ngrams.narrow_words(letters, starts, places, kept, kept_places)
    else:
        before = batch.of(_KEPT_WORDS[n - 1])
        kept, kept_places = _room(places, len(before.kept))
        ngrams.narrower(letters, starts, places, before.kept, before.places, n, kept, kept_places)
    return _Kept(kept[: kept_places[-1]], kept_places)


def _room(places: np.ndarray, most: int) -> tuple[np.ndarray, np.ndarray]:
    return np.empty(most + 1, np.int64), np.empty(len(places), np.int64)


def _word_tops(batch: Measured) -> dict[int, np.ndarray]:
    """n -> code points of the most frequent n-gram of each text, times its count."""
    letters, starts, places = batch.of(_words)
    hashes = np.empty(len(starts) - 1, np.uint64)
    joined.word_hashes(letters, starts, hashes)
    found: dict[int, np.ndarray] = {}
    for n in TOP:
        tops, out = np.empty((len(batch), 2), np.int64), np.empty(len(batch), np.int64)
        ngrams.grams(places, n, hashes, tops)
        ngrams.gram_points(letters, starts, tops, n, out)
        found[n] = out * tops[:, 1]
    return found


def _points(batch: Measured) -> np.ndarray:
    return batch.of(_repeats)[:, repeats.POINTS]


def _top_char(texts: pa.Array | Measured, n: int) -> pa.Array:
    """
    Code points of the most frequent n-gram of words, a blank between them, times its count, as a share of the text; 0
    where there are fewer than n words, null without text.  Of n-grams that are equally frequent, the first met.
    """
    batch = measured(texts)
    return ratio(batch.of(_word_tops)[n], _points(batch))


def _dup_char(texts: pa.Array | Measured, n: int) -> pa.Array:
    """
    Code points of the n-grams of words seen before, as a share of the text; null without text.  n-grams are equal when
    their words joined without blanks are; the walk goes on behind one that was seen, and else at the next word.
    """
    batch = measured(texts)
    out = np.empty(len(batch), np.int64)
    letters, starts, _ = batch.of(_words)
    kept, kept_places = batch.of(_KEPT_WORDS[n])
    ngrams.walk_words(letters, starts, kept, kept_places, n, out)
    return ratio(out, _points(batch))


# --- n-grams of units ------------------------------------------------------------------------------------------


class _Units(NamedTuple):
    """Text d has the units places[d]:places[d + 1]."""

    places: np.ndarray
    hashes: np.ndarray

    @property
    def counts(self) -> np.ndarray:
        return np.diff(self.places)


def _units(batch: Measured) -> _Units:
    places, hashes, _, _ = text.units(batch.texts)
    return _Units(places, np.maximum(hashes, 1))


def _unit_tops(batch: Measured) -> dict[int, np.ndarray]:
    """n -> units in the most frequent n-gram of each text."""
    places, units = batch.of(_units)
    hashes = units.copy()
    found: dict[int, np.ndarray] = {}
    for n in TOP:
        tops, found[n] = np.empty((len(batch), 2), np.int64), np.empty(len(batch), np.int64)
        ngrams.grams(places, n, hashes, tops)
        ngrams.covered(places, n, hashes, tops, found[n])
    return found


def _kept_units(batch: Measured) -> _Kept:
    places, hashes = batch.of(_units)
    kept, kept_places = _room(places, len(hashes))
    ngrams.narrow_units(hashes, places, kept, kept_places)
    return _Kept(kept[: kept_places[-1]], kept_places)


def _top_unit(texts: pa.Array | Measured, n: int) -> pa.Array:
    """
    The share of units that lie in an occurrence of the most frequent n-gram (the first met of equals); 0 where no
    n-gram comes twice, null without units.
    """
    batch = measured(texts)
    return ratio(batch.of(_unit_tops)[n], batch.of(_units).counts)


def _dup_unit(texts: pa.Array | Measured, n: int) -> pa.Array:
    """The share of units in n-grams seen before, by the walk of dup_*_char_frac; null without units."""
    batch = measured(texts)
    units, (kept, kept_places) = batch.of(_units), batch.of(_kept_units)
    out = np.empty(len(batch), np.int64)
    ngrams.walk_units(units.hashes, units.places, kept, kept_places, n, out)
    return ratio(out, units.counts)


def distinct_unit_ratio(texts: pa.Array | Measured) -> pa.Array:
    """Distinct units, as a share of all; null without units."""
    units = measured(texts).of(_units)
    out = np.empty(len(units.places) - 1, np.int64)
    ngrams.distinct(units.places, units.hashes, out)
    return ratio(out, units.counts)


_KEPT_WORDS: Mapping[int, Callable[[Measured], _Kept]] = {n: partial(_kept_words, n=n) for n in DUP}

SIGNALS: Mapping[str, Callable[[pa.Array | Measured], pa.Array]] = {
    "dup_para_frac": dup_para_frac,
    "dup_para_char_frac": dup_para_char_frac,
    "dup_line_frac": dup_line_frac,
    "dup_line_char_frac": dup_line_char_frac,
    **{f"top_{n}gram_char_frac": partial(_top_char, n=n) for n in TOP},
    **{f"dup_{n}gram_char_frac": partial(_dup_char, n=n) for n in DUP},
    "char_dup_ratio": char_dup_ratio,
    **{f"top_{n}gram_unit_frac": partial(_top_unit, n=n) for n in TOP},
    **{f"dup_{n}gram_unit_frac": partial(_dup_unit, n=n) for n in DUP},
    "distinct_unit_ratio": distinct_unit_ratio,
}
