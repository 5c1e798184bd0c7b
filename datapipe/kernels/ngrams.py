"""
N-grams that come again, of words and of units.

letters, starts and places are words as joined.join writes them: word i is letters[starts[i]:starts[i + 1]], document d
has the words places[d]:places[d + 1].  All is linear in the text: ordinary positions are sorted out by one look each,
and only those that may come again are hashed for every n asked for.  Equality is that of 64-bit hashes: two that
collide, one pair in 2^64, would make a text look more repetitive than it is.
"""

import numpy as np

from datapipe.kernels.jit import kernel
from datapipe.kernels.joined import EIGHT, ONE, points
from datapipe.kernels.xxh64 import P1, P2, P3, ZERO, load8, rotl, xxh64, xxh64_words

TWO = np.uint64(2)
LEAST = 5  # the smallest n that `walk_words` and `walk_units` are for
REACH = 16  # bytes that are looked at first; at most joined.PAD
SHORT = np.uint64(1)  # a bit of a key: see `sift`
SMALLEST = 4  # bits of the smallest table
MIXED = np.uint64(31)  # bits that the later of two hashes is turned by


# --- sets of hashes --------------------------------------------------------------------------------------------


@kernel
def bits_for(count):
    """Bits of an open-addressed table for so many entries: at most half of it is filled."""
    bits = np.uint64(SMALLEST)
    while ONE << bits < np.uint64(2) * np.uint64(count):
        bits += ONE
    return bits


@kernel
def met(table, bits, key):
    """Whether a set (table[:1 << bits], 0 = empty) holds a hash; it does from now on.  The hash 0 is as good as 1."""
    key += np.uint64(key == ZERO)
    mask, place = (ONE << bits) - ONE, key >> (np.uint64(64) - bits)
    while (table[place] != ZERO) & (table[place] != key):
        place = (place + ONE) & mask
    found = table[place] == key
    table[place] = key
    return found


@kernel
def distinct(places, hashes, out):
    """Into out[d]: distinct ones among hashes[places[d]:places[d + 1]]."""
    table = np.zeros(1 << SMALLEST, np.uint64)
    for doc in range(len(out)):
        first, end = np.uint64(places[doc]), np.uint64(places[doc + 1])
        bits = bits_for(end - first)
        if len(table) < ONE << bits:
            table = np.zeros(ONE << bits, np.uint64)
        else:
            table[: ONE << bits] = ZERO
        count = 0
        for i in range(first, end):
            count += np.int64(not met(table, bits, hashes[i]))
        out[doc] = count


@kernel
def gram_points(letters, starts, tops, n, out):
    """Into out[d]: code points of the most frequent n-gram (tops as `grams` writes them), a blank between its words."""
    for doc in range(len(out)):
        first = tops[doc, 0]
        out[doc] = 0
        if tops[doc, 1] > 0:
            out[doc] = points(letters, np.uint64(starts[first]), np.uint64(starts[first + n])) + n - 1


# --- the most frequent n-gram ----------------------------------------------------------------------------------


@kernel
def grams(places, n, hashes, tops):
    """
    From n-grams of n - 1 to those of n, in place.  hashes[i] is a hash of the one at i, or 0 where it surely comes once
    only (an n-gram around it then does too), and becomes the same for n.  For n = 2, hashes of the words or units.

    Into tops[d] (int64[2]): where the most frequent n-gram of a document is, and how often; the first met of those
    that are equally frequent.  0 times where there are fewer than n words.

    Counts are kept for hashes of hashes first, which is an upper bound; only those n-grams are told apart whose bound
    is no less than what the best of them reaches.
    """
    sketch, wanted = np.zeros(1 << SMALLEST, np.uint32), np.empty(1, np.uint64)
    for doc in range(len(tops)):
        first, end = np.uint64(places[doc]), np.uint64(places[doc + 1])
        tops[doc, 0], tops[doc, 1] = places[doc], 0
        if first + np.uint64(n) > end:
            continue
        end -= np.uint64(n - 1)
        tops[doc, 1] = 1
        if len(wanted) <= end - first:
            wanted = np.empty(end - first + ONE, np.uint64)
        count, left = ZERO, hashes[first]
        for i in range(first, end):
            right = hashes[i + ONE]
            both = (left != ZERO) & (right != ZERO)
            key = (left ^ rotl(right, MIXED) * P2) * P1
            hashes[i] = (key + np.uint64(key == ZERO)) * np.uint64(both)
            wanted[count] = i
            count += np.uint64(both)
            left = right
        hashes[end] = ZERO
        bits = bits_for(count)
        shift = np.uint64(64) - bits
        if len(sketch) < ONE << bits:
            sketch = np.zeros(ONE << bits, np.uint32)
        else:
            sketch[: ONE << bits] = 0
        for j in range(count):
            sketch[hashes[wanted[j]] >> shift] += np.uint32(1)
        bound, among = np.uint32(0), ZERO
        for j in range(count):
            i = wanted[j]
            times = sketch[hashes[i] >> shift]
            hashes[i] = hashes[i] if times > 1 else ZERO
            wanted[among] = i
            among += np.uint64(times > 1)
            bound = max(bound, times)
        if bound > 1:
            where, times = _most(wanted, among, hashes, sketch, shift, bound)
            if times < bound:
                where, times = _most(wanted, among, hashes, sketch, shift, times)
            if times > 1:
                tops[doc, 0], tops[doc, 1] = np.int64(where), np.int64(times)


@kernel
def _most(wanted, count, keys, sketch, shift, bound):
    """
    Of the keys at wanted[:count] that come `bound` times or more by the sketch: where the most frequent is first, and
    how often it comes.
    """
    among, left = np.empty(count + ONE, np.uint64), ZERO
    for j in range(count):
        among[left] = wanted[j]
        left += np.uint64(sketch[keys[wanted[j]] >> shift] >= bound)
    bits = bits_for(left)
    table, counts = np.zeros(ONE << bits, np.uint64), np.zeros(ONE << bits, np.uint32)
    slots = np.empty(left, np.uint64)
    mask = (ONE << bits) - ONE
    for j in range(left):
        key = keys[among[j]]
        slot = key * P3 >> (np.uint64(64) - bits)
        while (table[slot] != ZERO) & (table[slot] != key):
            slot = (slot + ONE) & mask
        table[slot] = key
        counts[slot] += np.uint32(1)
        slots[j] = slot
    best, where = np.uint32(0), ZERO
    for j in range(left):
        times = counts[slots[j]]
        if times > best:
            best, where = times, among[j]
    return where, best


@kernel
def covered(places, n, hashes, tops, out):
    """Into out[d]: units that lie in an occurrence of the most frequent n-gram; 0 where that comes once."""
    for doc in range(len(out)):
        count, last = 0, places[doc] - n
        top = hashes[tops[doc, 0]] if tops[doc, 1] > 1 else ZERO
        for i in range(places[doc], places[doc + 1] if top != ZERO else places[doc]):
            if hashes[i] == top:
                count += min(n, i - last)
                last = i
        out[doc] = count


# --- n-grams seen before ---------------------------------------------------------------------------------------


@kernel
def narrow_words(letters, starts, places, kept, kept_places):
    """
    Writes the words where a run of LEAST or more may come again to `kept` (int64, room for all), those of document d
    at kept_places[d]:kept_places[d + 1].

    Equal runs of REACH bytes or more begin with the same REACH bytes, however they are cut into words.  So a word
    stays whose REACH bytes, by a hash, come again in the document, and one whose LEAST words have fewer.
    """
    sieve, keys = np.zeros(1 << SMALLEST, np.uint8), np.empty(1 << SMALLEST, np.uint64)
    filled = ZERO
    for doc in range(len(places) - 1):
        first, count = np.uint64(places[doc]), np.uint64(max(places[doc + 1] - places[doc] - LEAST + 1, 0))
        sieve, keys = room_to_sift(sieve, keys, count)
        for j in range(count):
            i = first + j
            at = np.uint64(starts[i])
            key = load8(letters, at) * P1 ^ rotl(load8(letters, at + EIGHT) * P2, MIXED)
            key = (key ^ key >> np.uint64(29)) * P3
            keys[j] = key & ~SHORT | np.uint64(starts[i + np.uint64(LEAST)] - starts[i] < REACH)
        kept_places[doc] = np.int64(filled)
        filled = sift(sieve, keys, count, first, kept, filled)
    kept_places[len(places) - 1] = np.int64(filled)


@kernel
def narrow_units(units, places, kept, kept_places):
    """The same of units: those stay whose LEAST units, by a hash, come again."""
    sieve, keys = np.zeros(1 << SMALLEST, np.uint8), np.empty(1 << SMALLEST, np.uint64)
    filled = ZERO
    for doc in range(len(places) - 1):
        first, count = np.uint64(places[doc]), np.uint64(max(places[doc + 1] - places[doc] - LEAST + 1, 0))
        sieve, keys = room_to_sift(sieve, keys, count)
        for j in range(count):
            key = units[first + j]
            for k in range(ONE, np.uint64(LEAST)):
                key = rotl(key, MIXED) * P1 ^ units[first + j + k]
            keys[j] = (key ^ key >> np.uint64(29)) * P2 & ~SHORT
        kept_places[doc] = np.int64(filled)
        filled = sift(sieve, keys, count, first, kept, filled)
    kept_places[len(places) - 1] = np.int64(filled)


@kernel
def room_to_sift(sieve, keys, count):
    """Scratch for `sift`: what there is, or else new, if that is too small for so many keys."""
    size = ONE << sieve_bits(count)
    if len(sieve) < size:
        sieve = np.zeros(size, np.uint8)
    if len(keys) < count:
        keys = np.empty(TWO * count if count < 1 << 20 else count, np.uint64)
    return sieve, keys


@kernel
def sieve_bits(count):
    """Bits of a sieve for so many keys: eight places for each, as far as that is no more than 64 MB."""
    return min(bits_for(np.uint64(4) * count), np.uint64(26))


@kernel
def sift(sieve, keys, count, first, kept, filled):
    """
    Writes first + j to kept[filled] and on for each keys[j] of keys[:count] that comes again or has the bit SHORT,
    which is no part of it otherwise; and for a few others.  Gives how many are filled then.  Two sieves without
    probing: each key marks a place, and stays where it is not alone.
    """
    begin, bits = filled, sieve_bits(count)
    shift = np.uint64(64) - bits
    sieve[: ONE << bits] = 0
    for j in range(count):
        place = keys[j] >> shift
        sieve[place] = sieve[place] << np.uint8(1) | np.uint8(1)
    for j in range(count):
        kept[filled] = np.int64(j)
        filled += np.uint64((sieve[keys[j] >> shift] > 1) | (keys[j] & SHORT != ZERO))
    bits = sieve_bits(filled - begin)  # no more than before
    shift = np.uint64(64) - bits
    sieve[: ONE << bits] = 0
    for k in range(begin, filled):
        place = (keys[np.uint64(kept[k])] | SHORT) * P1 >> shift
        sieve[place] = sieve[place] << np.uint8(1) | np.uint8(1)
    end, filled = filled, begin
    for k in range(begin, end):
        key = keys[np.uint64(kept[k])]
        kept[filled] = kept[k] + np.int64(first)
        filled += np.uint64((sieve[(key | SHORT) * P1 >> shift] > 1) | (key & SHORT != ZERO))
    return filled


@kernel
def narrower(letters, starts, places, kept, kept_places, n, out, out_places):
    """
    Of the positions that `narrow_words` kept for runs of fewer than n words, those that stay for n, by a longer
    reach; to out and out_places likewise.
    """
    reach = REACH + 4 * (n - LEAST)
    sieve, keys = np.zeros(1 << SMALLEST, np.uint8), np.empty(1 << SMALLEST, np.uint64)
    filled = ZERO
    for doc in range(len(places) - 1):
        low, high = np.uint64(kept_places[doc]), np.uint64(kept_places[doc + 1])
        while low < high and kept[high - ONE] + n > places[doc + 1]:
            high -= ONE
        out_places[doc] = np.int64(filled)
        sieve, keys = room_to_sift(sieve, keys, high - low)
        bits = sieve_bits(high - low)
        shift = np.uint64(64) - bits
        sieve[: ONE << bits] = 0
        for j in range(low, high):
            i = kept[j]
            at = np.uint64(starts[i])
            stop = min(at + np.uint64(reach), np.uint64(len(letters)))
            key = xxh64(letters, at, stop, 0)
            keys[j - low] = key & ~SHORT | np.uint64(starts[i + n] - starts[i] < reach)
            sieve[key >> shift] = sieve[key >> shift] << np.uint8(1) | np.uint8(1)
        for j in range(low, high):
            out[filled] = kept[j]
            filled += np.uint64((sieve[keys[j - low] >> shift] > 1) | (keys[j - low] & SHORT != ZERO))
    out_places[len(places) - 1] = np.int64(filled)


@kernel
def walk_words(letters, starts, kept, kept_places, n, out):
    """
    Into out[d]: code points of the runs of n words that were seen before, joined without blanks.  The walk goes on
    after a run that was, and else at the next word.  kept, kept_places: from `narrow_words` or `narrower`, for n.
    """
    table = np.zeros(1 << SMALLEST, np.uint64)
    for doc in range(len(out)):
        low, high = np.uint64(kept_places[doc]), np.uint64(kept_places[doc + 1])
        out[doc], following = 0, 0
        if low == high:
            continue
        bits = bits_for(high - low)
        if len(table) < ONE << bits:
            table = np.zeros(ONE << bits, np.uint64)
        else:
            table[: ONE << bits] = ZERO
        for j in range(low, high):
            i = kept[j]
            if i < following:
                continue
            start, stop = np.uint64(starts[i]), np.uint64(starts[i + n])
            if met(table, bits, xxh64(letters, start, stop, 0)):
                out[doc] += points(letters, start, stop)
                following = i + n


@kernel
def walk_units(units, places, kept, kept_places, n, out):
    """Into out[d]: units in the runs of n that were seen before; the walk is that of `walk_words`."""
    table = np.zeros(1 << SMALLEST, np.uint64)
    for doc in range(len(out)):
        low, high = np.uint64(kept_places[doc]), np.uint64(kept_places[doc + 1])
        out[doc], following, end = 0, 0, places[doc + 1]
        if low == high:
            continue
        bits = bits_for(high - low)
        if len(table) < ONE << bits:
            table = np.zeros(ONE << bits, np.uint64)
        else:
            table[: ONE << bits] = ZERO
        for j in range(low, high):
            i = kept[j]
            if i < following or i + n > end:
                continue
            if met(table, bits, xxh64_words(units, np.uint64(i), np.uint64(n))):
                out[doc] += n
                following = i + n
