"""
What a text is made of: words, lines, sentences, normal form, units, shingles, signatures.  Each is defined here, once.

* White space is Unicode's White_Space; a *word* is a maximal run of anything else.
* A *line* ends at LF.  C4 and Gopher's rules on bullets and ellipses were published with the lines of str.splitlines,
  which end at LF, CR LF, CR, VT, FF, FS, GS, RS, NEL, LS and PS: they have those.  What makes a line *blank*, and is
  trimmed off its ends, is what str.strip takes: White_Space and U+001C-U+001F.
* *Sentence*, within a line of str.splitlines: it begins with what is neither white space nor punctuation, and ends
  after terminal marks, with the quotes and brackets that close on them, where white space or the end of the line
  follows; after a wide mark (。！？｡) anything may follow.  A line that is not blank has at least one.
* *Normal form* (equality): NFC, runs of white space one blank, trimmed.  text_hash = xxh3_128 of its UTF-8.
* *Unit*: over NFKC_Casefold, a run of letters, marks and digits; each character of Han, kana, Thai, Lao, Khmer and
  Myanmar is a unit, with the marks after it.  Its hash is XXH64 of its canonically decomposed UTF-8.
* *Shingle*: n units in a row, hashed as XXH64 of their hashes; fewer than n units are one shingle, none are none.

All by the tables of one Unicode version (kernels/unicode.py).  Texts are Arrow string or large_string arrays, sliced
and empty ones too, without nulls; scratch memory is sized to the largest text, not to their sum.
"""

import re
import unicodedata
from collections.abc import Iterable
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import xxhash

from datapipe.kernels import shingles, unicode, words
from datapipe.kernels import units as unit_kernels
from datapipe.kernels.jit import given

VERSION = 1
UNICODE = unicode.VERSION
RECALL = 0.99  # of pairs at the threshold, by banding
_ROUND = 1 << 18  # units fetched at a time
_PIECE = 1 << 24  # bytes of text brought to normal form at a time
_NOTHING = given(np.zeros(1, np.uint8))


def buffers(texts: pa.Array | pa.ChunkedArray) -> tuple[np.ndarray, np.ndarray]:
    """
    The bytes (uint8, read-only) of string or large_string texts and their n + 1 offsets (int64), without copying
    text.  The first offset of a slice is not 0.
    """
    array = texts.combine_chunks() if isinstance(texts, pa.ChunkedArray) else texts
    if not (pa.types.is_large_string(array.type) or pa.types.is_string(array.type)):
        raise TypeError(f"texts are {array.type}, expected string or large_string")
    if array.null_count:
        raise ValueError(f"{array.null_count} of {len(array)} texts are null, expected none")
    width = np.dtype(np.int64 if pa.types.is_large_string(array.type) else np.int32)
    _, where, data = array.buffers()
    if len(array) == 0 or where is None:
        return _NOTHING, given(np.zeros(len(array) + 1, np.int64))
    offsets = np.frombuffer(where, width, len(array) + 1, array.offset * width.itemsize).astype(np.int64, copy=False)
    return given(np.frombuffer(data, np.uint8)) if data is not None and data.size else _NOTHING, given(offsets)


# --- normal form -----------------------------------------------------------------------------------------------


def normal_forms(texts: pa.Array) -> pa.Array:
    """The UTF-8 of each text's normal form, as large_binary."""
    return pa.array(list(_normal(texts)), pa.large_binary())


def text_hashes(texts: pa.Array) -> pa.Array:
    """The xxh3_128 of each text's normal form, as a string of 32 hex digits."""
    return pa.array([xxhash.xxh3_128_hexdigest(form) for form in _normal(texts)], pa.string())


def _normal(texts: pa.Array) -> Iterable[memoryview | bytes]:
    for out, ends, marks in _collapsed(texts):
        for i, mark in enumerate(marks):
            form = out[ends[i] : ends[i + 1]]
            yield nfc(form.tobytes(), mark) if mark else form


def _collapsed(texts: pa.Array) -> Iterable[tuple[memoryview, list[int], list[int]]]:
    """
    Piece after piece, so that scratch is no larger than a piece or the largest text: texts with white space collapsed,
    where they end in it, and their marks: not 0 where NFC may have something to do.
    """
    data, offsets = buffers(texts)
    page, entry, *_ = unicode.tables()
    for low, high in pieces(offsets, _PIECE):
        out = np.empty(offsets[high] - offsets[low] + 1, np.uint8)
        bounds, marks = np.zeros(high - low + 1, np.int64), np.zeros(high - low, np.uint8)
        words.collapse(data, given(offsets[low : high + 1]), page, entry, out, bounds, marks)
        yield out.data, bounds.tolist(), marks.tolist()


def pieces(offsets: np.ndarray, size: int) -> Iterable[tuple[int, int]]:
    """Ranges of texts of about `size` bytes together, at least one text each."""
    low, count = 0, len(offsets) - 1
    while low < count:
        high = int(np.searchsorted(offsets, offsets[low] + size, "right")) - 1
        high = min(max(high, low + 1), count)
        yield low, high
        low = high


def nfc(utf8: bytes, mark: int) -> bytes:
    """
    NFC by our Unicode version, whatever the interpreter's: assigned code points never change their forms, and the
    unassigned ones, which a later version may have given one, are borders that nothing composes across.  mark: what
    nfc_marks said of the text.
    """
    if not mark:
        return utf8
    text = utf8.decode("utf-8")
    if mark & words.LONG_TEXT:
        text = _long_run().sub(_in_order, text)
    if mark & words.UNKNOWN_TEXT and unicodedata.unidata_version != UNICODE:
        parts = _unassigned().split(text)
        parts[::2] = [unicodedata.normalize("NFC", part) for part in parts[::2]]
        return "".join(parts).encode()
    return unicodedata.normalize("NFC", text).encode()


def _in_order(run: re.Match[str]) -> str:
    """Marks in canonical order: unicodedata sorts them too, but in quadratic time, hours for a text made of marks."""
    marks = "".join(unicodedata.normalize("NFD", c) for c in run.group())
    return "".join(sorted(marks, key=unicodedata.combining))


@cache
def _long_run() -> re.Pattern[str]:
    """More marks in a row than any script needs."""
    loose = [chr(cp) for cp in np.flatnonzero(_flags(unicode.LOOSE)).tolist()]
    marks = [c for c in loose if unicodedata.combining(unicodedata.normalize("NFD", c)[0])]
    return re.compile(f"[{''.join(marks)}]{{{words.LONG // 2},}}")


@cache
def _unassigned() -> re.Pattern[str]:
    """One code point that is unassigned in our version."""
    edges = np.flatnonzero(np.diff(_flags(unicode.UNKNOWN), prepend=0, append=0)).reshape(-1, 2).tolist()
    return re.compile("([" + "".join(f"{chr(low)}-{chr(high - 1)}" for low, high in edges) + "])")


def _flags(bit: int) -> np.ndarray:
    """A flag of the Unicode table for every code point, int8."""
    page, entry, *_ = unicode.tables()
    return (entry.reshape(-1, 128)[page].ravel()[:0x110000] >> bit & 1).astype(np.int8)


def nfc_marks(texts: pa.Array) -> list[int]:
    """0 for each text that NFC surely leaves as it is, else a mark for `nfc`."""
    return [mark for _, _, marks in _collapsed(texts) for mark in marks]


# --- units and shingles ----------------------------------------------------------------------------------------


def units(texts: pa.Array) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """
    (offsets int64[n + 1], hashes uint64, starts int64, ends int64): text i has the units offsets[i]:offsets[i + 1];
    starts and ends are bytes from the beginning of its raw text.
    """
    counts, found = _units(texts, ("hashes", "starts", "ends"))
    return _offsets(counts), found[0], found[1], found[2]


def unit_hashes(texts: pa.Array) -> tuple[np.ndarray, np.ndarray]:
    """The offsets and hashes of `units`."""
    counts, (hashes,) = _units(texts, ("hashes",))
    return _offsets(counts), hashes


def unit_counts(texts: pa.Array) -> np.ndarray:
    """Units in each text, int64[n]."""
    return _units(texts, ())[0]


def _units(texts: pa.Array, wanted: tuple[str, ...]) -> tuple[np.ndarray, list[np.ndarray]]:
    """The counts of units, and the wanted ones of hashes, starts and ends, fetched in rounds."""
    data, offsets = buffers(texts)
    page, entry, spelled, pool = unicode.tables()
    counts, place = np.zeros(len(texts), np.int64), np.array([0, offsets[0]], np.int64)
    largest = int(np.diff(offsets).max(initial=0))
    unit = np.empty(unit_kernels.EXPANSION * largest + 64, np.uint8)
    state = np.zeros(unit_kernels.STATE, np.int64)
    size = min(_ROUND, 2 * int(offsets[-1] - offsets[0])) + 2 * unit_kernels.MOST
    scratch = {
        name: np.empty(size, np.uint64 if name == "hashes" else np.int64) for name in ("hashes", "starts", "ends")
    }
    found = [np.empty(int(offsets[-1] - offsets[0] + len(counts)) // 2, scratch[name].dtype) for name in wanted]
    total = 0  # memory is taken as it is filled; only code points that fold to several units need more than this
    while place[0] < len(counts):
        filled = shingles.units_of(
            data, offsets, page, entry, spelled, pool, unit, place, state, counts, *scratch.values()
        )
        for k, name in enumerate(wanted):
            if total + filled > len(found[k]):
                found[k] = np.resize(found[k], 2 * (total + filled))
            found[k][total : total + filled] = scratch[name][:filled]
        total += filled
    return counts, [kept[:total] for kept in found]


def _offsets(counts: np.ndarray) -> np.ndarray:
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(counts, dtype=np.int64)])


def shingle_sets(texts: pa.Array, n: int) -> tuple[np.ndarray, np.ndarray]:
    """(offsets int64[texts + 1], hashes uint64): the distinct shingles of n units of each text, sorted."""
    _ngram(n)
    counts, (hashes,) = _units(texts, ("hashes",))
    sizes, out = np.zeros(len(counts), np.int64), np.empty(len(hashes) + 1, np.uint64)
    shingles.shingles_of(_offsets(counts), hashes, n, sizes, out)
    offsets = _offsets(sizes)
    edges = offsets.tolist()
    for low, high in pairwise(edges):
        out[low:high].sort()  # one call a text: numpy sorts 64-bit integers faster than a kernel does
    shingles.distinct(offsets, out, sizes)
    offsets = _offsets(sizes)
    return offsets, out[: offsets[-1]].copy()


def _ngram(n: int) -> None:
    if n < 1:
        raise ValueError(f"shingles of {n} units, expected at least 1")


# --- signatures ------------------------------------------------------------------------------------------------


@cache
def permutations(num_perm: int) -> tuple[np.ndarray, np.ndarray]:
    """The a and b (uint32[num_perm]) of a * x + b in datasketch.MinHash(num_perm, seed=1, scheme="affine32")."""
    from datasketch import MinHash  # half a second, mostly scipy

    pair: Any = MinHash(num_perm, seed=1, scheme="affine32").permutations
    a, b = pair
    return given(np.asarray(a, np.uint32)), given(np.asarray(b, np.uint32))


def signatures(texts: pa.Array, ngram: int, num_perm: int) -> tuple[np.ndarray, np.ndarray]:
    """
    (signature uint32[n, num_perm], n_shingles int32[n]): what datasketch's MinHash(num_perm, seed=1,
    scheme="affine32") gives for the low 32 bits of the distinct shingles, and how many of these there are.  A text
    without shingles has a signature of 2^32 - 1.
    """
    _ngram(ngram)
    data, offsets = buffers(texts)
    rows = np.full((len(texts), num_perm), 0xFFFFFFFF, np.uint32)
    counts = np.zeros(len(texts), np.int32)
    shingles.signatures(data, offsets, *unicode.tables(), ngram, *permutations(num_perm), rows, counts)
    return rows, counts


def band_buckets(signature: np.ndarray, bands: int, rows: int) -> np.ndarray:
    """uint64[n, bands]: XXH64 of the `rows` values of each band of signature (uint32[n, num_perm]), little-endian."""
    if bands * rows > signature.shape[1]:
        raise ValueError(f"{bands} bands of {rows} rows, expected at most {signature.shape[1]} values")
    out = np.empty((len(signature), bands), np.uint64)
    data = np.ascontiguousarray(signature, "<u4").view(np.uint8)
    shingles.buckets(given(data), bands, 4 * rows, out)
    return out


def bands_for(threshold: float, num_perm: int, recall: float = RECALL) -> tuple[int, int]:
    """
    (bands, rows): as many rows as still propose a share `recall` of the pairs at the threshold, for more rows link
    fewer documents by mistake; and all bands that num_perm has room for.
    """
    for rows in range(num_perm, 1, -1):
        bands = num_perm // rows
        if recall_of(threshold, bands, rows) >= recall:
            return bands, rows
    return num_perm, 1


def recall_of(similarity: float, bands: int, rows: int) -> float:
    """The share of pairs of this similarity that agree in at least one band."""
    return 1 - (1 - similarity**rows) ** bands
