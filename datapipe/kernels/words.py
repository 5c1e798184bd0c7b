"""
Words, lines and white space: the normal form that equality is judged on, and counts for signals.

White space is Unicode's property White_Space.  A word is a maximal run of anything else; a line ends at a newline.
"""

import numpy as np

from datapipe.kernels.jit import kernel
from datapipe.kernels.unicode import LETTER, LOOSE, UNKNOWN, WHITE, decode, lookup

LOOSE_TEXT, UNKNOWN_TEXT, LONG_TEXT = 1, 2, 4  # what `collapse` says of a document, added up
LONG = 64
SHORT = 30  # code points of a short line
WORDS, POINTS, LETTERED, LINES, SHORT_LINES = range(5)
MEASURES = 5


@kernel
def _ascii_white(byte):
    return byte == 32 or np.uint8(byte - np.uint8(9)) < 5


@kernel
def _ascii_letter(byte):
    return np.uint8((byte | np.uint8(32)) - np.uint8(97)) < 26


@kernel
def collapse(text, offsets, page, entry, out, bounds, marks):
    """
    Writes each document text[offsets[d]:offsets[d + 1]] to out[bounds[d]:bounds[d + 1]] with every run of white space
    as one blank, and none at either end; out has a byte more than all documents.  marks[d], 0 before, gets 1 where
    NFC might change the document (the quick check of UAX #15, on the safe side), plus 2 where it then holds code
    points that are unassigned in our version, and 4 where more than LONG such doubtful ones stand in a row.
    """
    filled, one = np.uint64(0), np.uint64(1)
    for doc in range(len(marks)):
        at, end = np.uint64(offsets[doc]), np.uint64(offsets[doc + 1])
        begin, blank, flags, row, longest = filled, True, np.uint32(0), np.uint32(0), np.uint32(0)
        while at < end:
            byte = text[at]
            if byte < 128:
                white = _ascii_white(byte)
                out[filled] = np.uint8(32) if white else byte
                filled += np.uint64(not (white and blank))
                at += one
            else:
                point, size = decode(text, at, end)
                word = lookup(page, entry, point)
                white = word >> np.uint32(WHITE) & np.uint32(1) != 0
                flags |= word
                row = (row + np.uint32(1)) * (word >> np.uint32(LOOSE) & np.uint32(1))
                longest = max(longest, row)
                out[filled] = 32
                for i in range(np.uint64(0) if white else size):
                    out[filled + i] = text[at + i]
                filled += np.uint64(not blank) if white else size
                at += size
            blank = white
        filled -= np.uint64(blank and filled > begin)
        bounds[doc + 1] = filled
        if flags >> np.uint32(LOOSE) & np.uint32(1):
            unknown = flags >> np.uint32(UNKNOWN) & np.uint32(1)
            marks[doc] = LOOSE_TEXT | UNKNOWN_TEXT * unknown | LONG_TEXT * np.uint32(longest > LONG)


@kernel
def measure(text, offsets, page, entry, out):
    """
    Into out[d] (int64[MEASURES]) for each document: words, their code points, words with a letter (category L),
    lines that are not blank, and those of at most SHORT code points (white space included, the newline not).
    """
    one = np.uint64(1)
    for doc in range(len(out)):
        at, end = np.uint64(offsets[doc]), np.uint64(offsets[doc + 1])
        words, points, lettered, lines, short = 0, 0, 0, 0, 0
        inside, letter, filled, width = False, False, False, 0
        while at < end:
            byte = text[at]
            if byte < 128:
                at += one
                white, alpha = _ascii_white(byte), _ascii_letter(byte)
            else:
                point, size = decode(text, at, end)
                at += size
                word = lookup(page, entry, point)
                white = word >> np.uint32(WHITE) & np.uint32(1) != 0
                alpha = word >> np.uint32(LETTER) & np.uint32(1) != 0
            if white:
                lettered += np.int64(letter)
                inside = letter = False
            else:
                words += np.int64(not inside)
                points += 1
                inside = filled = True
                letter = letter or alpha
            width += 1
            if byte == 10:
                lines += np.int64(filled)
                short += np.int64(filled and width <= SHORT + 1)
                filled, width = False, 0
        out[doc, WORDS], out[doc, POINTS], out[doc, LETTERED] = words, points, lettered + np.int64(letter)
        out[doc, LINES], out[doc, SHORT_LINES] = lines + np.int64(filled), short + np.int64(filled and width <= SHORT)
