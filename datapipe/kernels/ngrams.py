"""
N-grams that come again, of words and of units.

letters, starts and places are words as joined.join writes them: word i is letters[starts[i]:starts[i + 1]], document d
has the words places[d]:places[d + 1].  All is linear in the text: ordinary positions are sorted out by one look each,
and only those that may come again are hashed for every n.  Equality is that of the bytes, of words; of units and of the
most frequent n-grams, that of 64-bit hashes: two that collide, one pair in 2^64, would make a text look more repetitive
than it is.

Scratch is narrow, for one text may be all there is: positions, kept and wanted are uint32 (uint64 for texts that need
it), a table holds positions and no keys, or no more than 2^LARGEST slots and then takes the keys in several passes.
"""

import numpy as np

from datapipe.kernels.jit import kernel
from datapipe.kernels.joined import EIGHT, ONE, points, same
from datapipe.kernels.xxh64 import P1, P2, P3, ZERO, load8, rotl, xxh64, xxh64_words

TWO = np.uint64(2)
LEAST = 5  # the smallest n that `walk_words` and `walk_units` are for
REACH = 16  # bytes that are looked at first; at most joined.PAD
SHORT = np.uint64(1)  # a bit of a key: see `sift`
HALF = np.uint64(32)  # bits of a key that is sifted
SMALLEST, LARGEST = 4, 22  # bits of the smallest table, and of the largest that holds keys or counts
SKETCH = 23  # bits of the largest sketch
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
    """
    Into out[d]: distinct ones among hashes[places[d]:places[d + 1]].  Of more than the table has room for, each pass
    takes those with the same low bits.
    """
    table = np.zeros(1 << SMALLEST, np.uint64)
    for doc in range(len(out)):
        first, end = np.uint64(places[doc]), np.uint64(places[doc + 1])
        bits = min(bits_for(end - first), np.uint64(LARGEST))
        if len(table) < ONE << bits:
            table = np.zeros(ONE << bits, np.uint64)
        room = ONE << bits - ONE
        passes, part, count = ONE, ZERO, ZERO
        while part < passes:
            table[: ONE << bits] = ZERO
            new = ZERO
            for i in range(first, end):
                if hashes[i] & passes - ONE == part:
                    new += np.uint64(not met(table, bits, hashes[i]))
                    if new > room:
                        break
            count, part = count + new, part + ONE
            if new > room:
                count, part, passes = ZERO, ZERO, TWO * passes
        out[doc] = np.int64(count)


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
def grams(places, n, hashes, wanted, tops):
    """
    From n-grams of n - 1 to those of n, in place.  hashes[i] is a hash of the one at i, or 0 where it surely comes once
    only (an n-gram around it then does too), and becomes the same for n.  For n = 2, hashes of the words or units.

    Into tops[d] (int64[2]): where the most frequent n-gram of a document is, and how often; the first met of those
    that are equally frequent.  0 times where there are fewer than n words.

    Counts are kept for hashes of hashes first, which is an upper bound; only those n-grams are told apart whose bound
    is no less than what the best of them reaches.  wanted is scratch, with room for the words of the largest document.
    """
    sketch = np.zeros(1 << SMALLEST, np.uint32)
    for doc in range(len(tops)):
        first, end = np.uint64(places[doc]), np.uint64(places[doc + 1])
        tops[doc, 0], tops[doc, 1] = places[doc], 0
        if first + np.uint64(n) > end:
            continue
        end -= np.uint64(n - 1)
        tops[doc, 1] = 1
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
        bits = min(bits_for(count), np.uint64(SKETCH))
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
    how often it comes.  Of more than the table has room for, each pass takes those with the same low bits.
    """
    left = ZERO
    for j in range(count):
        left += np.uint64(sketch[keys[wanted[j]] >> shift] >= bound)
    bits = min(bits_for(left), np.uint64(LARGEST))
    firsts, counts = np.empty(ONE << bits, wanted.dtype), np.zeros(ONE << bits, np.uint32)
    mask, room = (ONE << bits) - ONE, ONE << bits - ONE
    best, where = np.uint32(0), ZERO
    passes, part = ONE, ZERO
    while part < passes:
        new = ZERO
        for j in range(count):
            i = np.uint64(wanted[j])
            key = keys[i]
            if (sketch[key >> shift] < bound) | (key & passes - ONE != part):
                continue
            slot = key * P3 >> (np.uint64(64) - bits)
            while counts[slot] != 0 and keys[firsts[slot]] != key:
                slot = (slot + ONE) & mask
            if counts[slot] == 0:
                firsts[slot] = i
                new += ONE
                if new > room:
                    break
            counts[slot] += np.uint32(1)
            times, first = counts[slot], np.uint64(firsts[slot])
            if times > best or (times == best and first < where):
                best, where = times, first
        part += ONE
        if new > room:
            part, passes = ZERO, TWO * passes  # what was counted so far is no more than the truth
        if part < passes:
            counts[:] = 0
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
    Writes the words where a run of LEAST or more may come again to `kept` (room for all), those of document d at
    kept_places[d]:kept_places[d + 1].

    Equal runs of REACH bytes or more begin with the same REACH bytes, however they are cut into words.  So a word
    stays whose REACH bytes, by a hash, come again in the document, and one whose LEAST words have fewer.
    """
    sieve, keys = np.zeros(1 << SMALLEST, np.uint8), np.empty(1 << SMALLEST, np.uint32)
    filled = ZERO
    for doc in range(len(places) - 1):
        first, count = np.uint64(places[doc]), np.uint64(max(places[doc + 1] - places[doc] - LEAST + 1, 0))
        sieve, keys = room_to_sift(sieve, keys, count)
        for j in range(count):
            i = first + j
            at = np.uint64(starts[i])
            key = load8(letters, at) * P1 ^ rotl(load8(letters, at + EIGHT) * P2, MIXED)
            key = (key ^ key >> np.uint64(29)) * P3 >> HALF
            keys[j] = key & ~SHORT | np.uint64(np.uint64(starts[i + np.uint64(LEAST)]) - at < np.uint64(REACH))
        kept_places[doc] = np.int64(filled)
        filled = sift(sieve, keys, count, first, kept, filled)
    kept_places[len(places) - 1] = np.int64(filled)


@kernel
def narrow_units(units, places, kept, kept_places):
    """The same of units: those stay whose LEAST units, by a hash, come again."""
    sieve, keys = np.zeros(1 << SMALLEST, np.uint8), np.empty(1 << SMALLEST, np.uint32)
    filled = ZERO
    for doc in range(len(places) - 1):
        first, count = np.uint64(places[doc]), np.uint64(max(places[doc + 1] - places[doc] - LEAST + 1, 0))
        sieve, keys = room_to_sift(sieve, keys, count)
        for j in range(count):
            key = units[first + j]
            for k in range(ONE, np.uint64(LEAST)):
                key = rotl(key, MIXED) * P1 ^ units[first + j + k]
            keys[j] = (key ^ key >> np.uint64(29)) * P2 >> HALF & ~SHORT
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
        keys = np.empty(TWO * count if count < 1 << 20 else count, np.uint32)
    return sieve, keys


@kernel
def sieve_bits(count):
    """Bits of a sieve for so many keys: eight places for each, as far as that is no more than 64 MB."""
    return min(bits_for(np.uint64(4) * count), np.uint64(26))


@kernel
def sift(sieve, keys, count, first, kept, filled):
    """
    Writes first + j to kept[filled] and on for each keys[j] of keys[:count] (the upper half of a hash) that comes again
    or has the bit SHORT, which is no part of it otherwise; and for a few others.  Gives how many are filled then.
    Two sieves without probing: each key marks a place, and stays where it is not alone.
    """
    begin, bits = filled, sieve_bits(count)
    shift = HALF - bits
    sieve[: ONE << bits] = 0
    for j in range(count):
        place = np.uint64(keys[j]) >> shift
        sieve[place] = sieve[place] << np.uint8(1) | np.uint8(1)
    for j in range(count):
        key = np.uint64(keys[j])
        kept[filled] = j
        filled += np.uint64((sieve[key >> shift] > 1) | (key & SHORT != ZERO))
    bits = sieve_bits(filled - begin)  # no more than before
    shift = np.uint64(64) - bits
    sieve[: ONE << bits] = 0
    for k in range(begin, filled):
        place = (np.uint64(keys[np.uint64(kept[k])]) | SHORT) * P1 >> shift
        sieve[place] = sieve[place] << np.uint8(1) | np.uint8(1)
    end, filled = filled, begin
    for k in range(begin, end):
        key = np.uint64(keys[np.uint64(kept[k])])
        kept[filled] = np.uint64(kept[k]) + first
        filled += np.uint64((sieve[(key | SHORT) * P1 >> shift] > 1) | (key & SHORT != ZERO))
    return filled


@kernel
def narrower(letters, starts, places, kept, kept_places, n):
    """
    Of the positions that `narrow_words` kept for runs of fewer than n words, leaves those that stay for n, by a longer
    reach, in kept and kept_places.
    """
    reach, run = np.uint64(REACH + 4 * (n - LEAST)), np.uint64(n)
    sieve, keys = np.zeros(1 << SMALLEST, np.uint8), np.empty(1 << SMALLEST, np.uint32)
    filled = ZERO
    for doc in range(len(places) - 1):
        low, high = np.uint64(kept_places[doc]), np.uint64(kept_places[doc + 1])
        while low < high and np.uint64(kept[high - ONE]) + run > np.uint64(places[doc + 1]):
            high -= ONE
        kept_places[doc] = np.int64(filled)
        sieve, keys = room_to_sift(sieve, keys, high - low)
        bits = sieve_bits(high - low)
        shift = HALF - bits
        sieve[: ONE << bits] = 0
        for j in range(low, high):
            i = np.uint64(kept[j])
            at = np.uint64(starts[i])
            key = xxh64(letters, at, min(at + reach, np.uint64(len(letters))), 0) >> HALF
            keys[j - low] = key & ~SHORT | np.uint64(np.uint64(starts[i + run]) - at < reach)
            sieve[key >> shift] = sieve[key >> shift] << np.uint8(1) | np.uint8(1)
        for j in range(low, high):
            key = np.uint64(keys[j - low])
            kept[filled] = kept[j]
            filled += np.uint64((sieve[key >> shift] > 1) | (key & SHORT != ZERO))
    kept_places[len(places) - 1] = np.int64(filled)


@kernel
def walk_words(letters, starts, kept, kept_places, n, table, out):
    """
    Into out[d]: code points of the runs of n words that were seen before, joined without blanks.  The walk goes on
    after a run that was, and else at the next word.  kept, kept_places: from `narrow_words` or `narrower`, for n;
    table: see `slots_for`.
    """
    run, used = np.uint64(n), ZERO
    for doc in range(len(out)):
        low, high = np.uint64(kept_places[doc]), np.uint64(kept_places[doc + 1])
        out[doc], following = 0, ZERO
        if low == high:
            continue
        table[:used] = 0
        used = slots_for(high - low)
        for j in range(low, high):
            i = np.uint64(kept[j])
            if i < following:
                continue
            start, stop = np.uint64(starts[i]), np.uint64(starts[i + run])
            slot = (xxh64(letters, start, stop, 0) >> HALF) * used >> HALF
            while table[slot] != 0:
                other = np.uint64(table[slot]) - ONE
                at = np.uint64(starts[other])
                if np.uint64(starts[other + run]) - at == stop - start and same(letters, at, start, stop):
                    out[doc] += points(letters, start, stop)
                    following = i + run
                    break
                slot = slot + ONE if slot + ONE < used else ZERO
            if following <= i:
                table[slot] = i + ONE


@kernel
def walk_units(units, places, kept, kept_places, n, table, out):
    """Into out[d]: units in the runs of n that were seen before; the walk is that of `walk_words`."""
    run, used = np.uint64(n), ZERO
    for doc in range(len(out)):
        low, high = np.uint64(kept_places[doc]), np.uint64(kept_places[doc + 1])
        out[doc], following, end = 0, ZERO, np.uint64(places[doc + 1])
        if low == high:
            continue
        table[:used] = 0
        used = slots_for(high - low)
        for j in range(low, high):
            i = np.uint64(kept[j])
            if i < following or i + run > end:
                continue
            slot = (xxh64_words(units, i, run) >> HALF) * used >> HALF
            while table[slot] != 0:
                other, k = np.uint64(table[slot]) - ONE, ZERO
                while k < run and units[other + k] == units[i + k]:
                    k += ONE
                if k == run:
                    out[doc] += n
                    following = i + run
                    break
                slot = slot + ONE if slot + ONE < used else ZERO
            if following <= i:
                table[slot] = i + ONE


@kernel
def slots_for(count):
    """
    Slots of a table of so many runs seen, each the position of one, from 1 on (0 = empty): two thirds of it are filled
    at most.  All 0 at the beginning of a walk.
    """
    return np.uint64(count) + np.uint64(count) // TWO + ONE
