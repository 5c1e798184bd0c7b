"""
Lines and paragraphs that come again.

Lines are what lies between runs of newlines; paragraphs, between runs of two or more in the stripped text.  Stripped
is what str.strip takes away: White_Space and the four separators of ASCII, U+001C to U+001F.  So is a blank line.
"""

import numpy as np

from datapipe.kernels.jit import kernel
from datapipe.kernels.joined import EIGHT, ONE, ONES, TOPS, first_of, points
from datapipe.kernels.ngrams import SMALLEST, TWO, bits_for, met
from datapipe.kernels.unicode import WHITE, decode, lookup
from datapipe.kernels.xxh64 import P1, ZERO, load8, xxh64

NEWLINES = np.uint64(0x0A0A0A0A0A0A0A0A)
(
    POINTS,  # code points
    BREAKS,  # newlines
    LINES,
    SAME_LINES,  # lines seen before
    SAME_LINE_POINTS,
    PARAGRAPHS,
    SAME_PARAGRAPHS,
    SAME_PARAGRAPH_POINTS,
    FILLED,  # 1 where a line is not blank
    SAME_FILLED_POINTS,  # code points of lines seen before that are not blank
) = range(10)
MEASURES = 10
AT_FIRST = 1 << 16  # lines and paragraphs that a table has room for before it grows


@kernel
def _space(text, at, end, page, entry):
    """Whether a code point is what str.isspace says, and its length in bytes."""
    byte = text[at]
    if byte < 128:
        return byte == 32 or np.uint8(byte - np.uint8(9)) < 5 or np.uint8(byte - np.uint8(28)) < 4, ONE
    point, size = decode(text, at, end)
    return lookup(page, entry, point) >> np.uint32(WHITE) & np.uint32(1) != 0, size


@kernel
def _after_space(text, at, end, page, entry):
    """The first byte that is no white space."""
    while at < end:
        space, size = _space(text, at, end, page, entry)
        if not space:
            break
        at += size
    return at


@kernel
def _before_space(text, start, end, page, entry):
    """The end of what is left of text[start:end] when white space at its end is taken away."""
    while end > start:
        at = end - ONE
        while at > start and end - at < np.uint64(4) and text[at] & np.uint8(0xC0) == 0x80:
            at -= ONE
        space, size = _space(text, at, end, page, entry)
        if not space or at + size != end:
            break
        end = at
    return end


@kernel
def _newline(text, at, end):
    """The first newline in text[at:end], or end; eight bytes a step."""
    while at + EIGHT <= end:
        word = load8(text, at) ^ NEWLINES
        zeros = (word - ONES) & ~word & TOPS
        if zeros != ZERO:
            return at + first_of(zeros)
        at += EIGHT
    while at < end and text[at] != 10:
        at += ONE
    return at


@kernel
def _grown(table, bits):
    """A set of hashes (see ngrams.met) of twice the size."""
    wider = np.zeros(TWO << bits, np.uint64)
    for key in table[: ONE << bits]:
        if key != ZERO:
            met(wider, bits + ONE, key)
    return wider


@kernel
def measure(text, offsets, page, entry, out):
    """Into out[d] (int64[MEASURES], 0 before) for each document: the counts named above."""
    table = np.zeros(1 << SMALLEST, np.uint64)  # lines and paragraphs, these with P1 in their hashes
    for doc in range(len(out)):
        first, end = np.uint64(offsets[doc]), np.uint64(offsets[doc + 1])
        if first == end:
            continue
        row = out[doc]
        breaks = ZERO
        for i in range(first, end):
            breaks += np.uint64(text[i] == 10)
        row[POINTS], row[BREAKS] = points(text, first, end), np.int64(breaks)
        low = _after_space(text, first, end, page, entry)
        high = _before_space(text, low, end, page, entry)
        row[FILLED] = np.int64(low < end)
        bits = bits_for(min(breaks + breaks // TWO + TWO, np.uint64(AT_FIRST)))
        if len(table) < ONE << bits:
            table = np.zeros(ONE << bits, np.uint64)
        else:
            table[: ONE << bits] = ZERO
        # what lies before a newline at the beginning and after one at the end is an empty line
        opening, closing = np.int64(text[first] == 10), np.int64(text[end - ONE] == 10)
        lines, paragraphs, at, paragraph = 0, 1, first, low
        row[SAME_LINES] = opening & closing
        while at < end:
            different = lines + paragraphs - row[SAME_LINES] - row[SAME_PARAGRAPHS]
            if np.uint64(4 * (different + 2)) > np.uint64(3) << bits:
                table = _grown(table, bits)
                bits += ONE
            stop = _newline(text, at, end)
            if stop > at:
                lines += 1
                if (lines > 1 or stop < end) and met(table, bits, xxh64(text, at, stop, 0)):
                    size = points(text, at, stop)
                    row[SAME_LINES] += 1
                    row[SAME_LINE_POINTS] += size
                    if _after_space(text, at, stop, page, entry) < stop:
                        row[SAME_FILLED_POINTS] += size
            at = stop
            while at < end and text[at] == 10:
                at += ONE
            last = at >= high
            if (at - stop >= np.uint64(2) and stop > low and not last) or (
                last and paragraph < high and paragraphs > 1
            ):
                close = high if last else stop
                if met(table, bits, xxh64(text, paragraph, close, 0) ^ P1):
                    row[SAME_PARAGRAPHS] += 1
                    row[SAME_PARAGRAPH_POINTS] += points(text, paragraph, close)
                paragraphs += np.int64(not last)
                paragraph = high if last else at
        row[LINES], row[PARAGRAPHS] = lines + opening + closing, paragraphs
