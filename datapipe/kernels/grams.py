"""
N-grams of an evaluation found in documents: filter, exact table, extension to the maximal match, proof on the text.

A unit is its XXH64 with bit 0 set where it is a number and cleared where not, so that a number needs no second array:
under the number mask two units are equal when they are equal, or both are numbers.  No unit is 0, which stands
between the parts in the index and ends every match there.

The key of a window is the polynomial of its units, P = P * M + unit (mod 2^64), mixed with its length.  Keys only
propose: the units of the window are compared before anything is counted.
"""

from typing import NamedTuple

import numpy as np

from datapipe.kernels.blocks import trailing_zeros
from datapipe.kernels.jit import kernel

M = np.uint64(0x9E3779B97F4A7C15)
MIX = np.uint64(0xD6E8FEB86659FD93)
MASKED = np.uint64(0x5851F42D4C957F2D)  # every number, under the number mask
BLOCK = 1024  # windows looked at together: their keys stay in the first-level cache
FEW = 1024  # runs of one part in one document; beyond them only longer ones, from n-grams that the part has once
SHORT = 64  # a bit of the length of a gram that is all of a part
PLACES = 8  # of one short part behind one prompt: a choice stands in its list, and again as the answer
ONE, LOW = np.uint64(1), np.uint64(63)


class Table(NamedTuple):
    """
    N-grams in order of key.  keys uint32[g]: their low bits; bucket uint32[2^b + 1]: where those with these top bits
    begin; lengths uint8[g]: units, with SHORT where it is all of a short part; starts uint32[g + 1] and places uint32:
    where in the index's units each gram stands; seeds (bits): a match may be found from the gram at this place.
    """

    keys: np.ndarray
    bucket: np.ndarray
    lengths: np.ndarray
    starts: np.ndarray
    places: np.ndarray
    seeds: np.ndarray


@kernel
def mix(value, length, mask):
    """The key of a window of `length` units; mask: which of its bits are used (all, but in a test)."""
    value = (value ^ value >> np.uint64(32)) * MIX + np.uint64(length)
    value = (value ^ value >> np.uint64(29)) * M
    return (value ^ value >> np.uint64(32)) & mask


@kernel
def power(n):
    """M^n."""
    value = ONE
    for _ in range(n):
        value *= M
    return value


@kernel
def masked(unit):
    return MASKED if unit & ONE else unit


@kernel
def same(a, b, by_mask):
    return a == b or (by_mask and a & b & ONE != 0 and b != 0)


@kernel
def equal(a, at, b, place, length, by_mask):
    for k in range(length):
        if not same(a[np.int64(at) + k], b[np.int64(place) + k], by_mask):
            return False
    return True


@kernel
def find(table, shift, units, held, at, length, key, by_mask):
    """The gram at `at` of units with this length (and SHORT) and key, or -1."""
    bucket = key >> shift
    for gram in range(np.int64(table.bucket[bucket]), np.int64(table.bucket[bucket + ONE])):
        if table.keys[gram] == np.uint32(key) and table.lengths[gram] == length:
            if equal(units, at, held, table.places[table.starts[gram]], length & 63, by_mask):
                return gram
    return -1


@kernel
def grams_of(table, shift, units, held, code, mask, out):
    """The gram of each window of units, -1 where there is none.  code: its length, with SHORT."""
    length = code & 63
    high, low, times = np.uint64(0), np.uint64(0), power(length)
    for i in range(len(units)):
        high = high * M + units[i]
        if i >= length:
            low = low * M + units[i - length]
        if i >= length - 1:
            key = mix(high - low * times, code, mask)
            out[i - length + 1] = find(table, shift, units, held, i - length + 1, code, key, False)


# --- the search --------------------------------------------------------------------------------------------------


@kernel
def bits_of(key):
    """The three bits of a key in its word of a filter."""
    return ONE << (key & LOW) | ONE << (key >> np.uint64(6) & LOW) | ONE << (key >> np.uint64(12) & LOW)


@kernel
def key_of(units, at, length, code, by_mask, mask):
    """The key of the window of `length` units at `at`; code: its length, with SHORT."""
    value = np.uint64(0)
    for i in range(np.uint64(at), np.uint64(at) + np.uint64(length)):
        value = value * M + (masked(units[i]) if by_mask else units[i])
    return mix(value, code, mask)


@kernel
def start_of(a, b, c):
    """A hash of three units in a row, cheaper than a key: units are hashes."""
    return a ^ (b << np.uint64(21) | b >> np.uint64(43)) ^ (c << np.uint64(43) | c >> np.uint64(21))


@kernel
def candidates(units, at, count, sample, length, by_mask, sieves, shifts, mask, keys, words, out):
    """
    Which of the `count` windows of `length` units that begin at `at` and on pass two filters, counted from `at`, in
    order; gives how many.  keys, words: uint64 scratch.

    A window holds sample + stride - 1 units, thus exactly one of the samples (of `sample` units) that begin at each
    stride-th place: only these are looked up in the first filter, and whole windows about those that pass in the
    second.  Filters lie in no near cache, so that all their words are loaded in a loop of its own: together with the
    rest it came four times as slow.
    """
    stride, first, whole = length - sample + 1, sieves[0], sieves[1]
    samples = np.uint64((count + stride - 1) // stride)
    begin = np.uint64(at + stride - 1)
    for i in range(samples):
        keys[i] = key_of(units, begin + i * np.uint64(stride), sample, sample, by_mask, mask)
    for i in range(samples):
        words[i] = first[keys[i] >> shifts[0]]
    passed = np.uint64(0)
    for i in range(samples):
        bits = bits_of(keys[i])
        out[passed] = i
        passed += np.uint64(words[i] & bits == bits)
    some = np.uint64(0)
    for k in range(passed):  # room for all windows behind the samples that passed, which are fewer than these
        begin = out[passed - np.uint64(1) - k] * stride
        for i in range(stride):
            if begin + stride - 1 - i < count:
                some += np.uint64(1)
                keys[np.uint64(len(keys)) - some] = np.uint64(begin + stride - 1 - i)
    for k in range(some):
        out[k] = np.int64(keys[np.uint64(len(keys)) - some + k])
    for k in range(some):
        keys[k] = key_of(units, at + out[k], length, length, by_mask, mask)
    for k in range(some):
        words[k] = whole[keys[k] >> shifts[1]]
    filled = np.uint64(0)
    for k in range(some):
        bits = bits_of(keys[k])
        out[filled] = out[k]
        filled += np.uint64(words[k] & bits == bits)
    return np.int64(filled)


@kernel
def starting(units, at, count, starts, shift, keys, out):
    """Which of the `count` places from `at` on begin as short parts do, by three units; gives how many."""
    begin, filled = np.uint64(at), np.uint64(0)
    for i in range(np.uint64(count)):
        k = begin + i
        keys[i] = start_of(units[k], units[k + np.uint64(1)], units[k + np.uint64(2)])
    for i in range(np.uint64(count)):
        bits = two_bits(keys[i])
        out[filled] = i
        filled += np.uint64(starts[keys[i] >> shift] & bits == bits)
    return np.int64(filled)


@kernel
def shorts(units, at, count, total, wanted, slots, sieve, shift, by_mask, mask, some, words, codes, keys):
    """
    Of some[:count], places from `at` on where short parts may begin, those windows that pass their filter: to keys
    and codes (uint64, place << 8 | length | SHORT), in order; gives how many.  A loop for each step, for what passes
    no processor foresees.
    """
    for c in range(count):
        i = at + some[c]
        words[c] = wanted[mix(start_of(units[i], units[i + 1], units[i + 2]), 3, mask) >> slots]
    asked = np.uint64(0)
    for c in range(count):
        i, sizes = at + some[c], words[c]
        while sizes:
            size = np.int64(trailing_zeros(sizes))
            sizes &= sizes - ONE
            codes[asked] = np.uint64(i) << np.uint64(8) | np.uint64(size | SHORT)
            asked += np.uint64(i + size <= total)
    for k in range(asked):
        code = np.int64(codes[k] & np.uint64(0xFF))
        keys[k] = key_of(units, codes[k] >> np.uint64(8), code & 63, code, by_mask, mask)
    filled = np.uint64(0)
    for k in range(asked):
        bits = bits_of(keys[k])
        codes[filled], key = codes[k], keys[k]
        keys[filled] = key
        filled += np.uint64(sieve[key >> shift] & bits == bits)
    return np.int64(filled)


@kernel
def two_bits(start):
    """The bits of a start in its word."""
    return ONE << (start & LOW) | ONE << (start >> np.uint64(6) & LOW)


@kernel
def segment(units, at, high, most, by_mask):
    """
    (begin, stop): the next windows to look at, from `at` on, at most BLOCK; under the number mask only those that may
    hold a number.  begin = high where there is none.
    """
    if not by_mask:
        return at, min(at + BLOCK, high)
    number = at
    while number < high and not units[number] & ONE:
        number += 1
    if number == high:
        return high, high
    begin, stop = max(at, number - most + 1), number + 1
    while number < high and number < stop + most and number < begin + BLOCK:
        if units[number] & ONE:
            stop = number + 1
        number += 1
    return begin, stop


@kernel
def search(units, bounds, held, table, shift, sieves, shifts, sample, lengths, wanted, by_mask, mask, begins, caps):
    """
    Looks up the windows of documents units[bounds[d]:bounds[d + 1]].

    held: the index's units; lengths: the n of the n-grams (int64), the smaller first; sieves and their shifts: filters
    of the n-grams by samples of their first lengths[0] units, by all of these, of the longer ones, of short parts; and
    bits by start_of of these; sample: units of a sample; wanted: uint32 by such a start, mixed, as bits how long the
    short parts are that may begin so; begins: where the parts begin in `held`; caps int64[parts, 2]: scratch, zeros.
    Gives hits int64[k, 3] (document, gram, unit) and runs int64[k, 4] (document, place in `held`, unit of the
    document, length), and how many (document, part) had more runs than are listed.
    """
    hits, n_hits = np.empty((1024, 3), np.int64), 0
    runs, n_runs = np.empty((256, 4), np.int64), 0
    touched, capped = np.empty(256, np.int64), 0
    most = max(3, lengths[-1])
    slots = shift_of(wanted)
    some = np.empty(BLOCK + 1, np.int64)
    keys, words = np.empty(BLOCK, np.uint64), np.empty(BLOCK, np.uint64)
    codes, short_keys = np.empty(most * BLOCK, np.uint64), np.empty(most * BLOCK, np.uint64)
    total, stop, n_touched = bounds[-1], bounds[0], 0
    doc = short_doc = 0  # of the last n-gram, of the last short part
    while stop < total:
        at, stop = segment(units, stop, total, most, by_mask)
        count = min(stop, total - 3 + 1) - at
        if len(wanted) > 1 and count > 0:
            found = starting(units, at, count, sieves[4], shifts[4], keys, some)
            found = shorts(units, at, found, total, wanted, slots, sieves[3], shifts[3], by_mask, mask, some, words,
                           codes, short_keys)  # fmt: skip
            for c in range(found):
                i, code = np.int64(codes[c] >> np.uint64(8)), np.int64(codes[c] & np.uint64(0xFF))
                while bounds[short_doc + 1] <= i:
                    short_doc += 1
                if i + (code & 63) > bounds[short_doc + 1]:
                    continue
                gram = find(table, shift, units, held, i, code, short_keys[c], by_mask)
                if gram >= 0:
                    if n_hits == len(hits):
                        hits = more(hits)
                    hits[n_hits, 0], hits[n_hits, 1], hits[n_hits, 2] = short_doc, gram, i - bounds[short_doc]
                    n_hits += 1
        count = min(stop, total - lengths[0] + 1) - at
        found = 0
        if count > 0:
            found = candidates(units, at, count, sample, lengths[0], by_mask, sieves, shifts, mask, keys, words, some)
        for c in range(found * len(lengths)):
            i, length = at + some[c // len(lengths)], lengths[c % len(lengths)]
            while bounds[doc + 1] <= i:
                doc += 1
                for k in range(n_touched):
                    caps[touched[k], 0], caps[touched[k], 1] = 0, 0
                n_touched = 0
            low, high = bounds[doc], bounds[doc + 1]
            if i + length > high:
                continue
            key = key_of(units, i, length, length, by_mask, mask)
            if c % len(lengths) and sieves[2][key >> shifts[2]] & bits_of(key) != bits_of(key):
                continue
            gram = find(table, shift, units, held, i, length, key, by_mask)
            if gram < 0:
                continue
            if n_hits == len(hits):
                hits = more(hits)
            hits[n_hits, 0], hits[n_hits, 1], hits[n_hits, 2] = doc, gram, i - low
            n_hits += 1
            begin, end = np.int64(table.starts[gram]), np.int64(table.starts[gram + 1])
            for k in range(begin, end):
                place, left = np.int64(table.places[k]), i
                if not seeded(table.seeds, place):
                    continue
                known = False
                while left > low and same(units[left - 1], held[place - 1], by_mask):
                    left, place = left - 1, place - 1
                    if seeded(table.seeds, place):  # found from there already
                        known = True
                        break
                if known:
                    continue
                part = np.searchsorted(begins, place, side="right") - 1
                if caps[part, 0] >= FEW:
                    if caps[part, 0] == FEW:
                        capped += 1
                        caps[part, 0] += 1
                    if (k > begin and table.places[k - 1] >= begins[part]) or (
                        k + 1 < end and table.places[k + 1] < begins[part + 1]
                    ):
                        continue
                right, there = i + length, np.int64(table.places[k]) + length
                while right < high and same(units[right], held[there], by_mask):
                    right, there = right + 1, there + 1
                if caps[part, 0] > FEW and right - left <= caps[part, 1]:
                    continue
                if by_mask and equal(units, left, held, place, right - left, False):
                    continue
                if caps[part, 0] == 0:
                    if n_touched == len(touched):
                        touched = np.concatenate((touched, touched))
                    touched[n_touched] = part
                    n_touched += 1
                if caps[part, 0] < FEW:
                    caps[part, 0] += 1
                caps[part, 1] = max(caps[part, 1], right - left)
                if n_runs == len(runs):
                    runs = more(runs)
                runs[n_runs, 0], runs[n_runs, 1] = doc, place
                runs[n_runs, 2], runs[n_runs, 3] = left - low, right - left
                n_runs += 1
    for k in range(n_touched):
        caps[touched[k], 0], caps[touched[k], 1] = 0, 0
    return hits[:n_hits], runs[:n_runs], capped


@kernel
def seeded(seeds, place):
    return seeds[place >> 3] >> np.uint8(place & 7) & np.uint8(1) != 0


@kernel
def shift_of(words):
    """By how many bits a key is shifted to its place in an array of 2^b words (or 2^b + 1)."""
    bits, size = 0, len(words)
    while size > 1:
        bits, size = bits + 1, size >> 1
    return np.uint64(64 - bits)


@kernel
def more(rows):
    wider = np.empty((2 * len(rows), rows.shape[1]), np.int64)
    wider[: len(rows)] = rows
    return wider


@kernel
def beside(units, bounds, held, anchors, offsets, places, lengths, reach):
    """
    For each anchor (int64[k, 3]: document, row of `offsets`, unit where it ends) the first PLACES places, at most
    `reach` units on, of each of its parts places[offsets[row]:offsets[row + 1]] of `lengths` units: runs as of
    `search`, and the row of the anchor behind them.
    """
    runs, n_runs = np.empty((64, 5), np.int64), 0
    for a in range(len(anchors)):
        doc, row = anchors[a, 0], anchors[a, 1]
        low, high = bounds[doc], bounds[doc + 1]
        for k in range(offsets[row], offsets[row + 1]):
            length, seen = lengths[k], 0
            for at in range(low + anchors[a, 2], min(low + anchors[a, 2] + reach, high - length) + 1):
                if units[at] == held[places[k]] and equal(units, at, held, places[k], length, False):
                    if n_runs == len(runs):
                        runs = more(runs)
                    runs[n_runs, 0], runs[n_runs, 1] = doc, places[k]
                    runs[n_runs, 2], runs[n_runs, 3], runs[n_runs, 4] = at - low, length, a
                    n_runs, seen = n_runs + 1, seen + 1
                    if seen == PLACES:
                        break
    return runs[:n_runs]
