"""
Words and white space: the normal form that equality is judged on, and counts for signals.

White space is Unicode's property White_Space.  A word is a maximal run of anything else.
"""

import string

import numpy as np

from datapipe.kernels.jit import given, kernel
from datapipe.kernels.unicode import LETTER, LOOSE, PUNCTUATION, UNKNOWN, WHITE, decode, lookup

LOOSE_TEXT, UNKNOWN_TEXT, LONG_TEXT = 1, 2, 4  # what `collapse` says of a document, added up
LONG = 64
WORDS, POINTS, LONGEST, LETTERED, PLAIN, PLAIN_POINTS, STOP_WORDS = range(7)
MEASURES = 7
_SPREAD = np.uint64(0xCD613E30D8F16ADF)  # its product with the spelling of a stop word has a place in the upper 4 bits


def _kinds() -> np.ndarray:
    """uint8[256]: of an ASCII byte 4 for punctuation, 3 for a letter, else 1; 0 for white space and bytes beyond."""
    table = np.zeros(256, np.uint8)
    for byte in range(128):
        letter, mark = chr(byte).isalpha(), chr(byte) in string.punctuation or byte < 32 or byte == 127
        table[byte] = 0 if byte == 32 or 9 <= byte < 14 else 4 if mark else 3 if letter else 1
    return given(table)


def _stop_words() -> np.ndarray:
    """uint64[16]: the function words of English that Gopher counts, each at its place: a byte 1 and its bytes."""
    table = np.zeros(16, np.uint64)
    for word in b"the be to of and that have with".split():
        spelled = int.from_bytes(b"\x01" + word)
        table[(spelled * int(_SPREAD) & (1 << 64) - 1) >> 60] = spelled
    return given(table)


_KINDS, _STOP_WORDS = _kinds(), _stop_words()


@kernel
def _ascii_white(byte):
    return byte == 32 or np.uint8(byte - np.uint8(9)) < 5


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
    Into out[d] (int64[MEASURES]) for each document: words, their code points, those of the longest; words with a
    letter (category L); words that are not all punctuation, and their code points; and which of the eight words of
    English that Gopher looks for occur as they stand, a bit each.
    """
    one, two = np.uint64(1), np.uint8(2)
    for doc in range(len(out)):
        at, end = np.uint64(offsets[doc]), np.uint64(offsets[doc + 1])
        words, points, longest, lettered, plain, plain_points, seen = 0, 0, 0, 0, 0, 0, np.uint64(0)
        while at < end:
            begin, tails, has, spelled, size = at, np.uint64(0), np.uint8(0), np.uint64(1), one
            while at < end:
                byte = text[at]
                kind = _KINDS[byte]
                size = one
                if kind == 0:
                    if byte < 128:
                        break
                    point, size = decode(text, at, end)
                    word = lookup(page, entry, point)
                    if word >> np.uint32(WHITE) & np.uint32(1):
                        break
                    letter, mark = word >> np.uint32(LETTER), word >> np.uint32(PUNCTUATION)
                    kind = np.uint8((letter & np.uint32(1)) << np.uint32(1) | ~mark & np.uint32(1))
                    tails += size - one
                has |= kind
                spelled = spelled << np.uint64(8) | np.uint64(byte)
                at += size
            if at > begin:
                length = np.int64(at - begin - tails)
                words += 1
                points += length
                longest = max(longest, length)
                lettered += np.int64((has & two) != 0)
                is_plain = np.int64(has & np.uint8(1))
                plain += is_plain
                plain_points += is_plain * length
                place = spelled * _SPREAD >> np.uint64(60)
                seen |= np.uint64(_STOP_WORDS[place] == spelled and length <= 4) << place
            at += size  # the white space that ended it; behind the end of the text nothing is read
        out[doc, WORDS], out[doc, POINTS], out[doc, LONGEST] = words, points, longest
        out[doc, LETTERED], out[doc, PLAIN], out[doc, PLAIN_POINTS] = lettered, plain, plain_points
        out[doc, STOP_WORDS] = seen
