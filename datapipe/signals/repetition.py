"""
Signals of repetition: lines, paragraphs and n-grams that come again.

dup_* and top_*_char_frac are those of Gopher (Rae et al. 2021, arXiv 2112.11446, table A1) as datatrove counts them,
char_dup_ratio is FineWeb's (Penedo et al. 2024, arXiv 2406.17557).  The first of several equal ones is no repetition;
lengths are code points, and denominators the whole text, newlines and blanks too.  The *_unit_frac are the same in
units, which say as much of a language written without blanks.
"""

from collections.abc import Callable, Mapping
from functools import partial

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


def _place_of(size: int) -> type[np.unsignedinteger]:
    """What holds a place among so many."""
    return np.uint32 if size < 1 << 32 else np.uint64


class _Kept:
    """
    Positions of the batch that may begin a run seen before, those of text d kept[places[d]:places[d + 1]]; for runs of
    `n`, 0 as long as nobody asked.
    """

    def __init__(self, count: int, texts: int) -> None:
        self.kept, self.places, self.n = np.empty(count + 1, _place_of(count)), np.empty(texts + 1, np.int64), 0

    def table(self) -> np.ndarray:
        """Scratch for a walk; memory is taken as it is filled."""
        return np.zeros(ngrams.slots_for(np.diff(self.places).max(initial=0)), self.kept.dtype)


class _Words:
    """Word i is letters[starts[i]:starts[i + 1]]; text d has the words places[d]:places[d + 1]."""

    def __init__(self, batch: Measured) -> None:
        data, offsets = batch.buffers
        page, entry, *_ = unicode.tables()
        size = int(offsets[-1] - offsets[0])
        self.letters = np.empty(size + joined.PAD, np.uint8)
        starts = np.empty((size + len(batch)) // 2 + 2, _place_of(size))
        self.places = np.empty(len(batch) + 1, np.int64)
        joined.join(data, offsets, page, entry, self.letters, starts, self.places)
        self.starts = starts[: self.places[-1] + 1]
        self._kept = _Kept(len(self.starts), len(batch))

    def kept(self, n: int) -> _Kept:
        """For runs of n words: narrowed from those for shorter ones, in place."""
        found = self._kept
        if not DUP[0] <= found.n <= n:
            ngrams.narrow_words(self.letters, self.starts, self.places, found.kept, found.places)
            found.n = DUP[0]
        while found.n < n:
            found.n += 1
            ngrams.narrower(self.letters, self.starts, self.places, found.kept, found.places, found.n)
        return found


def _wanted(places: np.ndarray, count: int) -> np.ndarray:
    """Scratch for ngrams.grams."""
    return np.empty(np.diff(places).max(initial=0) + 1, _place_of(count))


def _word_tops(batch: Measured) -> dict[int, np.ndarray]:
    """n -> code points of the most frequent n-gram of each text, times its count."""
    words: _Words = batch.wide(_Words)
    hashes = np.empty(len(words.starts) - 1, np.uint64)
    joined.word_hashes(words.letters, words.starts, hashes)
    wanted = _wanted(words.places, len(hashes))
    found: dict[int, np.ndarray] = {}
    for n in TOP:
        tops, out = np.empty((len(batch), 2), np.int64), np.empty(len(batch), np.int64)
        ngrams.grams(words.places, n, hashes, wanted, tops)
        ngrams.gram_points(words.letters, words.starts, tops, n, out)
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
    words: _Words = batch.wide(_Words)
    runs, out = words.kept(n), np.empty(len(batch), np.int64)
    ngrams.walk_words(words.letters, words.starts, runs.kept, runs.places, n, runs.table(), out)
    return ratio(out, _points(batch))


# --- n-grams of units ------------------------------------------------------------------------------------------


class _Units:
    """Text d has the units places[d]:places[d + 1]; no hash is 0."""

    def __init__(self, batch: Measured) -> None:
        self.places, self.hashes = text.unit_hashes(batch.texts)
        np.maximum(self.hashes, 1, out=self.hashes)
        self._kept = _Kept(len(self.hashes), len(batch))

    def kept(self) -> _Kept:
        """For runs of any n."""
        found = self._kept
        if not found.n:
            ngrams.narrow_units(self.hashes, self.places, found.kept, found.places)
            found.n = DUP[0]
        return found


def _unit_counts(batch: Measured) -> np.ndarray:
    return np.diff(batch.wide(_Units).places)


def _unit_tops(batch: Measured) -> dict[int, np.ndarray]:
    """n -> units in the most frequent n-gram of each text."""
    units, _ = batch.wide(_Units), batch.of(_unit_counts)
    if batch.large:
        batch.forget(_Units)  # its hashes are written over
    hashes = units.hashes if batch.large else units.hashes.copy()
    wanted = _wanted(units.places, len(hashes))
    found: dict[int, np.ndarray] = {}
    for n in TOP:
        tops, found[n] = np.empty((len(batch), 2), np.int64), np.empty(len(batch), np.int64)
        ngrams.grams(units.places, n, hashes, wanted, tops)
        ngrams.covered(units.places, n, hashes, tops, found[n])
    return found


def _top_unit(texts: pa.Array | Measured, n: int) -> pa.Array:
    """
    The share of units that lie in an occurrence of the most frequent n-gram (the first met of equals); 0 where no
    n-gram comes twice, null without units.
    """
    batch = measured(texts)
    return ratio(batch.of(_unit_tops)[n], batch.of(_unit_counts))


def _dup_unit(texts: pa.Array | Measured, n: int) -> pa.Array:
    """The share of units in n-grams seen before, by the walk of dup_*_char_frac; null without units."""
    batch = measured(texts)
    units: _Units = batch.wide(_Units)
    runs, out = units.kept(), np.empty(len(batch), np.int64)
    ngrams.walk_units(units.hashes, units.places, runs.kept, runs.places, n, runs.table(), out)
    return ratio(out, batch.of(_unit_counts))


def distinct_unit_ratio(texts: pa.Array | Measured) -> pa.Array:
    """Distinct units, as a share of all; null without units."""
    batch = measured(texts)
    units, out = batch.wide(_Units), np.empty(len(batch), np.int64)
    ngrams.distinct(units.places, units.hashes, out)
    return ratio(out, batch.of(_unit_counts))


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
