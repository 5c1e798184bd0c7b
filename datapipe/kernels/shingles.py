"""
Shingles of n units, and what is made of them: sets, MinHash signatures, band buckets.

A shingle is hashed as XXH64 (seed 0) of its n unit hashes, little-endian.  A text of fewer units is one shingle of
them all; a text without units has none.
"""

import numpy as np

from datapipe.kernels.blocks import scratch
from datapipe.kernels.jit import kernel
from datapipe.kernels.units import EXPANSION, MOST, STATE, scan
from datapipe.kernels.xxh64 import P2, START_1, START_4, ZERO, finish, merge, stripe, tail, xxh64, xxh64_words

ROOM = 4096  # shingles looked at together: they stay in the first-level cache
LEAST = 1024  # places in the smallest set of shingles


@kernel
def shingle_hashes(units, count, n, out):
    """
    Writes the hashes of the count - n + 1 shingles of units[:count] to `out`.  For n of 4 to 7 (5 is the default) a
    loop over shingles for each step of XXH64, so that the compiler makes vector code of every one.
    """
    size = np.uint64(count - n + 1)
    if n < 4 or n > 7:
        for i in range(size):
            out[i] = xxh64_words(units, i, np.uint64(n))
        return
    base = np.uint64(n) * np.uint64(8)
    for i in range(size):
        v1, v2 = stripe(START_1, units[i]), stripe(P2, units[i + np.uint64(1)])
        v3, v4 = stripe(ZERO, units[i + np.uint64(2)]), stripe(START_4, units[i + np.uint64(3)])
        out[i] = merge(v1, v2, v3, v4) + base
    for k in range(np.uint64(4), np.uint64(n)):
        for i in range(size):
            out[i] = tail(out[i], units[i + k])
    for i in range(size):
        out[i] = finish(out[i])


@kernel
def fmix32(x):
    """MurmurHash3's finaliser, which datasketch's scheme "affine32" puts before its permutations."""
    x = np.uint32(x ^ x >> np.uint32(16)) * np.uint32(0x85EBCA6B)
    x = np.uint32(x)
    x = np.uint32(x ^ x >> np.uint32(13)) * np.uint32(0xC2B2AE35)
    x = np.uint32(x)
    return np.uint32(x ^ x >> np.uint32(16))


@kernel
def _lower(values, count, a, b, row):
    """Lowers a signature (uint32[num_perm]) by values[:count] (uint32); four at a time, to load a and b less often."""
    four = np.uint64(count) // np.uint64(4) * np.uint64(4)
    size = np.uint64(len(row))
    for i in range(np.uint64(0), four, np.uint64(4)):
        w, x, y, z = values[i], values[i + np.uint64(1)], values[i + np.uint64(2)], values[i + np.uint64(3)]
        for p in range(size):
            low = min(np.uint32(a[p] * w + b[p]), np.uint32(a[p] * x + b[p]))
            row[p] = min(row[p], min(low, min(np.uint32(a[p] * y + b[p]), np.uint32(a[p] * z + b[p]))))
    for i in range(four, np.uint64(count)):
        x = values[i]
        for p in range(size):
            row[p] = min(row[p], np.uint32(a[p] * x + b[p]))


@kernel
def _add(seen, capacity, hashes, count, values):
    """
    Puts hashes[:count] into the open-addressed set seen[:capacity + 1] (capacity a power of two; the last place is
    for the hash 0, as an empty place is 0), which must have room; writes the low 32 bits of those it did not hold yet
    to `values`, and gives how many.
    """
    new, mask, one = np.uint64(0), np.uint64(capacity - 1), np.uint64(1)
    for i in range(np.uint64(count)):
        value = hashes[i]
        place = value & mask
        if value == ZERO:
            place, value = np.uint64(capacity), one
        while seen[place] != ZERO and seen[place] != value:
            place = (place + one) & mask
        values[new] = np.uint32(hashes[i])
        new += np.uint64(seen[place] == ZERO)
        seen[place] = value
    return new


@kernel
def _grown(seen, capacity):
    """The same set with twice the capacity."""
    wider = np.zeros(2 * capacity + 1, np.uint64)
    mask, one = np.uint64(2 * capacity - 1), np.uint64(1)
    for i in range(np.uint64(capacity)):
        value = seen[i]
        place = value & mask
        while value != ZERO and wider[place] != ZERO:
            place = (place + one) & mask
        if value != ZERO:
            wider[place] = value
    wider[2 * capacity] = seen[capacity]
    return wider


@kernel
def signatures(text, offsets, page, entry, spelled, pool, n, a, b, rows, counts):
    """
    Of each document text[offsets[d]:offsets[d + 1]], in one pass: the MinHash signature into rows[d] (uint32, all
    bits set by the caller) and the number of distinct shingles into counts[d].

    Work is done in rounds of about ROOM units, so scratch does not grow with the document but for the bytes of one
    unit and the set of its shingles; both are sized to the largest document.
    """
    largest = 0
    for doc in range(len(counts)):
        largest = max(largest, offsets[doc + 1] - offsets[doc])
    unit = np.empty(EXPANSION * largest + 64, np.uint8)
    state, brief = np.zeros(STATE, np.int64), scratch()
    hashes = np.empty(ROOM + n + MOST, np.uint64)
    starts, ends = np.empty(len(hashes), np.int64), np.empty(len(hashes), np.int64)
    shingles, values = np.empty(len(hashes), np.uint64), np.empty(len(hashes), np.uint32)
    seen = np.zeros(LEAST + 1, np.uint64)
    for doc in range(len(counts)):
        first, end = np.uint64(offsets[doc]), np.uint64(offsets[doc + 1])
        capacity = LEAST
        while capacity * 4 < end - first:
            capacity *= 2
        if len(seen) < capacity + 1:
            seen = np.zeros(capacity + 1, np.uint64)
        else:
            seen[: capacity + 1] = 0
        at, filled, held = first, np.uint64(0), 0
        state[:] = 0
        while True:
            at, filled = scan(
                text, at, first, end, page, entry, spelled, pool, unit, state, hashes, starts, ends, filled, brief
            )
            count = np.int64(filled) - n + 1
            if count > 0:
                shingle_hashes(hashes, np.int64(filled), n, shingles)
            elif at == end and filled > 0 and held == 0:
                shingles[0] = xxh64_words(hashes, ZERO, filled)
                count = 1
            if count > 0:
                while 4 * (held + count) > 3 * capacity:
                    seen = _grown(seen, capacity)
                    capacity *= 2
                new = _add(seen, capacity, shingles, count, values)
                for i in range(new):
                    values[i] = fmix32(values[i])
                _lower(values, new, a, b, rows[doc])
                held += np.int64(new)
                for i in range(n - 1):
                    hashes[i] = hashes[count + i]
                filled = np.uint64(n - 1)
            if at == end:
                break
        counts[doc] = held


@kernel
def units_of(text, offsets, page, entry, spelled, pool, unit, place, state, counts, hashes, starts, ends):
    """
    Units of document after document into hashes, starts, ends until they are full; gives how many.  place (int64[2]:
    document, byte; the caller begins with [0, offsets[0]]) and state carry on; counts[d] is raised by the units found.
    """
    filled, room, brief = np.uint64(0), np.uint64(len(hashes) - MOST), scratch()
    while place[0] < len(counts) and filled < room:
        first, end = np.uint64(offsets[place[0]]), np.uint64(offsets[place[0] + 1])
        before, at = filled, np.uint64(place[1])
        at, filled = scan(
            text, at, first, end, page, entry, spelled, pool, unit, state, hashes, starts, ends, filled, brief
        )
        counts[place[0]] += np.int64(filled - before)
        place[1] = np.int64(at)
        if at == end:
            place[0] += 1
            state[:] = 0
    return np.int64(filled)


@kernel
def shingles_of(offsets, units, n, sizes, out):
    """The shingle hashes, repeated ones too, of documents with the unit hashes units[offsets[d]:offsets[d + 1]]."""
    filled = 0
    for doc in range(len(sizes)):
        here, count = units[offsets[doc] : offsets[doc + 1]], offsets[doc + 1] - offsets[doc]
        sizes[doc] = min(count, max(count - n + 1, 1))
        if count >= n:
            shingle_hashes(here, count, n, out[filled:])
        elif count > 0:
            out[filled] = xxh64_words(here, ZERO, np.uint64(count))
        filled += sizes[doc]


@kernel
def distinct(offsets, values, sizes):
    """Moves the distinct ones of sorted values[offsets[d]:offsets[d + 1]] to the front, documents end to end."""
    filled = 0
    for doc in range(len(sizes)):
        before = filled
        for i in range(offsets[doc], offsets[doc + 1]):
            if i == offsets[doc] or values[i] != values[i - 1]:
                values[filled] = values[i]
                filled += 1
        sizes[doc] = filled - before


@kernel
def buckets(signature, bands, width, out):
    """
    XXH64 of each band of each signature (uint8, num_perm x 4 bytes a document): out[d, band] of the `width` bytes
    from width x band on.
    """
    for doc in range(len(out)):
        for band in range(bands):
            start = np.uint64(band * width)
            out[doc, band] = xxh64(signature[doc], start, start + np.uint64(width), 0)
