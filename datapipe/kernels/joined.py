"""
The words of texts as one run of bytes: a run of n words "joined without blanks" is then a run of bytes there.

White space is White_Space, and a word is a maximal run of anything else, as in words.py.
"""

import numpy as np

from datapipe.kernels.jit import kernel
from datapipe.kernels.unicode import WHITE, decode, lookup
from datapipe.kernels.xxh64 import P3, ZERO, finish, load8, xxh64

ONE, EIGHT = np.uint64(1), np.uint64(8)
ONES, TOPS, BLANKS = np.uint64(0x0101010101010101), np.uint64(0x8080808080808080), np.uint64(0x2121212121212121)
PAD = 16  # bytes that are read, and written, beyond the last word


@kernel
def join(text, offsets, page, entry, letters, starts, places):
    """
    Writes the words of all documents end to end to `letters` (uint8, PAD more than the text has bytes), where each
    begins there to `starts` (uint32, or uint64 for texts that need it), and the number of the first word of each
    document to `places` (int64[documents + 1]).
    Word i, the last one too, is letters[starts[i]:starts[i + 1]].  Room in starts: (bytes + documents) / 2 + 2.
    """
    filled, words = ZERO, ZERO
    for doc in range(len(places) - 1):
        at, end = np.uint64(offsets[doc]), np.uint64(offsets[doc + 1])
        places[doc] = np.int64(words)
        outside = True
        while at < end:
            byte = text[at]
            if np.uint8(byte - np.uint8(33)) < 95:  # printing ASCII: as many as there are, eight bytes a step
                starts[words] = np.int64(filled)
                words += np.uint64(outside)
                outside = False
                size = EIGHT
                while size == EIGHT and at + EIGHT <= end:
                    word = load8(text, at)
                    store8(letters, filled, word)
                    size = first_of((~((word | TOPS) - BLANKS) | word) & TOPS)
                    at += size
                    filled += size
                if size < EIGHT:
                    continue
            while at < end and (at + EIGHT > end or np.uint8(text[at] - np.uint8(33)) >= 95):
                byte = text[at]
                white = byte == 32 or np.uint8(byte - np.uint8(9)) < 5
                if byte == 0xC2 or np.uint8(byte - np.uint8(0xE1)) < 3:  # all that is white beyond ASCII begins so
                    point, size = decode(text, at, end)
                    white = lookup(page, entry, point) >> np.uint32(WHITE) & np.uint32(1) != 0
                    at += size - ONE if white else ZERO
                at += ONE
                letters[filled] = byte
                starts[words] = np.int64(filled)
                words += np.uint64(outside and not white)
                filled += np.uint64(not white)
                outside = white
    places[len(places) - 1] = np.int64(words)
    starts[words] = np.int64(filled)


@kernel
def word_hashes(letters, starts, out):
    """Into out[i]: a hash of word i, never 0."""
    for i in range(np.uint64(len(out))):
        at, end = np.uint64(starts[i]), np.uint64(starts[i + ONE])
        size = end - at
        if size <= np.uint64(8):
            word = load8(letters, at) & ~ZERO >> (np.uint64(64) - (size << np.uint64(3)))
            hashed = finish(word + size * P3)
        else:
            hashed = xxh64(letters, at, end, 0)
        out[i] = hashed + np.uint64(hashed == ZERO)


@kernel
def points(text, start, end):
    """Code points that begin in text[start:end]."""
    count = np.uint64(0)
    for i in range(start, end):
        count += np.uint64(text[i] & np.uint8(0xC0) != 0x80)
    return np.int64(count)


@kernel
def same(letters, other, start, stop):
    """Whether letters[start:stop] are the bytes from `other` on; eight a step."""
    while start + EIGHT <= stop:
        if load8(letters, other) != load8(letters, start):
            return False
        start += EIGHT
        other += EIGHT
    while start < stop and letters[other] == letters[start]:
        start += ONE
        other += ONE
    return start == stop


@kernel
def first_of(tops):
    """The number of the first byte whose top bit is set (the other bits are 0), from the lowest on; 8 for none."""
    below = (tops & (~tops + ONE)) - ONE
    return ((below & ONES) * ONES >> np.uint64(56)) - np.uint64(tops != ZERO)


@kernel
def store8(data, at, word):
    """A word of 64 bits as bytes, little-endian; the compiler makes one store of them."""
    for k in range(8):
        data[at + np.uint64(k)] = np.uint8(word >> np.uint64(8 * k) & np.uint64(255))
