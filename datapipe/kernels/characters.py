"""
Characters of a text by class, its units counted but not read, and its lines as code is measured by: for signals.

A class is a lane of eight bits in a 64-bit number, so that a code point adds to all of its classes at once; the lanes
are emptied every BLOCK bytes, before one can run over.  A line ends at a newline, blank or not; what follows the last
newline is a line unless it is empty.
"""

from functools import cache

import numpy as np

from datapipe.kernels import unicode
from datapipe.kernels.jit import given, kernel
from datapipe.kernels.unicode import KIND, MAPPED, MARK, NONE, ONE, OPEN, OTHER, REST, SIZE, decode, lookup
from datapipe.kernels.units import STROKE

LETTERS, LATINS, DIGITS, PUNCTUATIONS, WHITES, IN_UNITS, CONTROLS, HASHES = range(8)  # lanes, and columns of `out`
LANES = 8
POINTS, UNITS, ELLIPSES, REPLACED, NEWLINES, LINES, LONGEST = range(LANES, LANES + 7)
MEASURES = LANES + 7
BLOCK = 255
DOTS = 0x2E2E2E


@cache
def lanes() -> tuple[np.ndarray, np.ndarray]:
    """
    What a code point adds: uint64[128] by itself where it is ASCII, uint64[2048] by the upper bits of its word in the
    Unicode table (kind and flags), where controls beyond ASCII are left to the kernel.
    """
    word = np.arange(2048, dtype=np.uint64) << np.uint64(KIND)
    kind = word >> np.uint64(KIND) & np.uint64(7)
    letter, latin, number, punctuation, white = (
        word >> np.uint64(bit) & np.uint64(1) != 0
        for bit in (unicode.LETTER, unicode.LATIN, unicode.NUMBER, unicode.PUNCTUATION, unicode.WHITE)
    )
    in_unit = (kind >= REST) & (kind != NONE)
    adds = np.zeros(2048, np.uint64)
    for lane, belongs in enumerate([letter, latin, number & ~letter, punctuation, white, in_unit]):
        adds |= belongs.astype(np.uint64) << np.uint64(8 * lane)
    page, entry, *_ = unicode.tables()
    points = np.arange(128)
    ascii_adds = adds[entry[(int(page[0]) << 7) | points] >> np.uint32(KIND)]
    control = ((points < 32) | (points == 127)) & ~np.isin(points, [9, 10, 13])
    ascii_adds |= control.astype(np.uint64) << np.uint64(8 * CONTROLS)
    ascii_adds[ord("#")] |= np.uint64(1) << np.uint64(8 * HASHES)
    return given(ascii_adds), given(adds)


@kernel
def count(text, offsets, page, entry, pool, ascii_adds, adds, out):
    """
    Into out[d] (int64[MEASURES]) for each document, in code points: letters (category L), letters of the Latin script,
    digits (numeric, and no letters: Han numerals are), punctuation, white space, those that units are made of,
    controls (Cc without tab, newline, carriage return), # signs, all; then units, ellipses (... without overlap, and
    U+2026), U+FFFD, newlines, lines, and the length of the longest line without its newline.
    """
    one = np.uint64(1)
    for doc in range(len(out)):
        at, end = np.uint64(offsets[doc]), np.uint64(offsets[doc + 1])
        row = out[doc]
        for i in range(MEASURES):
            row[i] = 0
        points, line_start, longest = np.uint64(0), np.uint64(0), np.uint64(0)
        within, opened, units = 0, False, 0  # as in units.scan
        recent, ellipses = np.uint32(0), 0  # the last three bytes
        while at < end:
            stop = min(end, at + np.uint64(BLOCK))
            sums = np.uint64(0)
            while at < stop:
                byte = text[at]
                if byte < 128:
                    added = ascii_adds[byte]
                    sums += added
                    letter = np.int64(added >> np.uint64(8 * IN_UNITS) & one)
                    units += letter & np.int64(within != REST)
                    within = REST * letter
                    opened = np.uint8(byte - np.uint8(60)) < 3  # < = >
                    recent = (recent << np.uint32(8) | np.uint32(byte)) & np.uint32(0xFFFFFF)
                    if byte == 10:
                        row[NEWLINES] += 1
                        longest = max(longest, points - line_start)
                        line_start = points + one
                    elif recent == DOTS:
                        ellipses += 1
                        recent = np.uint32(0)
                    at += one
                else:
                    point, size = decode(text, at, end)
                    at += size
                    word = lookup(page, entry, point)
                    sums += adds[word >> np.uint32(KIND)]
                    kind = np.int64(word >> np.uint32(KIND) & np.uint32(7))
                    recent = np.uint32(0)
                    if kind == ONE:
                        units += 1
                        within = ONE
                    elif kind == MAPPED:
                        first = pool[np.uint32(word & np.uint32(0xFFFF))]
                        if np.int64(first >> np.uint32(KIND) & np.uint32(7)) == OPEN:  # = and U+0338 are one sign again
                            sums -= one << np.uint64(8 * IN_UNITS)
                        for i in range(word >> np.uint32(SIZE) & np.uint32(31)):
                            item = pool[np.uint32(word & np.uint32(0xFFFF)) + np.uint32(i)]
                            kind = np.int64(item >> np.uint32(KIND) & np.uint32(7))
                            within, opened, begun = _step(kind, item & np.uint32(0x1FFFFF), within, opened)
                            units += begun
                    else:
                        within, opened, begun = _step(kind, point, within, opened)
                        units += begun
                    if point < 0xA0:
                        sums += one << np.uint64(8 * CONTROLS)
                    elif point == 0x2026:
                        ellipses += 1
                    elif point == 0xFFFD:
                        row[REPLACED] += 1
                points += one
            for lane in range(LANES):
                row[lane] += np.int64(sums >> np.uint64(8 * lane) & np.uint64(255))
        row[POINTS], row[UNITS], row[ELLIPSES] = np.int64(points), units, ellipses
        row[LINES] = row[NEWLINES] + np.int64(points > line_start)
        row[LONGEST] = np.int64(max(longest, points - line_start))


@kernel
def _step(kind, point, within, opened):
    """The state of a reader of units after a code point of a folding, and 1 where a unit begins with it, else 0."""
    if kind == NONE:
        return within, opened, 0
    if kind <= OPEN:
        return OTHER, kind == OPEN, 0
    if kind == MARK:
        if opened and point == STROKE:  # it is part of the sign before it
            return within, False, 0
        return (REST, False, 1) if within == 0 else (within, False, 0)
    own = ONE if kind == ONE else REST
    return own, False, np.int64(own == ONE or within != REST)
