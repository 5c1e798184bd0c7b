"""
What an index of n-grams (grams.py) is made by: keys of all windows, grams in order, places to match from, filters.
"""

import numpy as np

from datapipe.kernels.grams import (
    ONE,
    SHORT,
    M,
    bits_of,
    equal,
    key_of,
    masked,
    mix,
    power,
    shift_of,
    start_of,
    two_bits,
)
from datapipe.kernels.jit import kernel


@kernel
def window_keys(units, offset, count, length, code, by_mask, every, mask, keys, places):
    """
    The keys of the windows of units[offset:offset + count] and where they begin, at the front of keys, places; under
    the number mask, but where `every` is asked for, only of those with numbers, and not more of them than of others.
    code: the length, with SHORT.  Gives how many.
    """
    high, low, times, filled, numbers = np.uint64(0), np.uint64(0), power(length), 0, 0
    for i in range(count):
        unit = units[offset + i]
        numbers += np.int64(unit & ONE)
        high = high * M + (masked(unit) if by_mask else unit)
        if i >= length:
            before = units[offset + i - length]
            low = low * M + (masked(before) if by_mask else before)
            numbers -= np.int64(before & ONE)
        if i >= length - 1 and (not by_mask or every or 0 < 2 * numbers <= length):
            keys[filled] = mix(high - low * times, code, mask)
            places[filled] = offset + i - length + 1
            filled += 1
    return filled


@kernel
def group(keys, order, places, sizes, units, by_mask, fresh):
    """
    Brings grams of one key into order, in place: order (int64, sorts keys; equal keys in any order) so that equal
    grams stand together by place; fresh[k] is set where another gram begins.  sizes: uint8, units of the gram.
    """
    count, at = len(order), 0
    while at < count:
        end = at + 1
        while end < count and keys[order[end]] == keys[order[at]]:
            end += 1
        if end - at > 1:
            order[at:end].sort()
        fresh[at] = True
        start = at
        while start < end:  # nearly always one gram; the others of its key, in a crippled hash, come behind
            one, filled = order[start], start + 1
            for k in range(start + 1, end):
                other = order[k]
                if sizes[other] == sizes[one] and equal(
                    units, places[one], units, places[other], np.int64(sizes[one]) & 63, by_mask
                ):
                    for back in range(k, filled, -1):
                        order[back] = order[back - 1]
                    order[filled] = other
                    filled += 1
            start = filled
            if start < end:
                fresh[start] = True
        at = end


@kernel
def gather(units, starts, sizes, begins, held):
    """Copies units[starts[k]:starts[k] + sizes[k]] to held[begins[k]] and on."""
    for k in range(len(sizes)):
        for i in range(sizes[k]):
            held[begins[k] + i] = units[starts[k] + i]


@kernel
def part_keys(held, begin, count, size, shortest, by_mask, mask, keys, places):
    """The keys and places of the grams of a part; gives how many, and their length (with SHORT)."""
    if count >= size:
        return window_keys(held, begin, count, size, size, by_mask, False, mask, keys, places), size
    if count >= shortest and not by_mask:
        code = count | SHORT
        return window_keys(held, begin, count, count, code, False, False, mask, keys, places), code
    return 0, size


@kernel
def count_keys(held, begins, lengths, sizes, shortest, by_mask, mask, ranges, keys, places, sums):
    """How many grams of all parts have each value of the top `ranges` bits of their keys; keys, places: scratch."""
    top = np.uint64(64 - ranges)
    for part in range(len(lengths)):
        count, size = np.int64(lengths[part]), np.int64(sizes[part])
        filled, _ = part_keys(held, begins[part], count, size, shortest, by_mask, mask, keys, places)
        for k in range(filled):
            sums[keys[k] >> top] += 1


@kernel
def all_keys(
    held, begins, lengths, sizes, shortest, by_mask, mask, ranges, value, keys, places, own, there, codes
):  # fmt: skip
    """Of the grams whose keys begin with the bits `value`, in order of place: keys, places, lengths (with SHORT)."""
    at, top = 0, np.uint64(64 - ranges)
    for part in range(len(lengths)):
        count, size = np.int64(lengths[part]), np.int64(sizes[part])
        filled, code = part_keys(held, begins[part], count, size, shortest, by_mask, mask, keys, places)
        for k in range(filled):
            if keys[k] >> top == np.uint64(value):
                own[at], there[at], codes[at] = keys[k], places[k], code
                at += 1


@kernel
def choose(starts, places, codes, begins, hot, rarest, seeds):
    """
    Sets the bits of the places from which matches are found: those of grams with at most `hot` of them, and of each
    part without any the one whose gram has the fewest.  rarest: int64[parts, 2], places of a gram and the first one.
    """
    for again in range(2):
        for gram in range(len(starts) - 1):
            if codes[gram] & SHORT:
                continue
            count = np.int64(starts[gram + 1]) - np.int64(starts[gram])
            for k in range(starts[gram], starts[gram + 1]):
                place = np.int64(places[k])
                part = np.searchsorted(begins, place, side="right") - 1
                if again == 0:
                    if count < rarest[part, 0] or (count == rarest[part, 0] and place < rarest[part, 1]):
                        rarest[part, 0], rarest[part, 1] = count, place
                elif count <= hot or (place == rarest[part, 1] and rarest[part, 0] > hot):
                    seeds[place >> 3] |= np.uint8(1) << np.uint8(place & 7)


@kernel
def thin(starts, places, hot, seeds):
    """Starts and places without those of hot grams that seed nothing; each gram keeps one, to be compared with."""
    filled = np.uint32(0)
    for gram in range(len(starts) - 1):
        begin, end = np.int64(starts[gram]), np.int64(starts[gram + 1])
        starts[gram] = filled
        first = places[begin]
        for k in range(begin, end):
            place = np.int64(places[k])
            if end - begin <= hot or seeds[place >> 3] >> np.uint8(place & 7) & np.uint8(1):
                places[filled] = places[k]
                filled += np.uint32(1)
        if filled == starts[gram]:
            places[filled] = first
            filled += np.uint32(1)
    starts[len(starts) - 1] = filled
    return starts, places[:filled].copy()


@kernel
def sift(sieve, shift, table, of, length, stride, held, by_mask, mask):
    """
    Puts keys of `length` units (0: all of a short part) into the filter, three bits of one word each: those that begin
    in the first `stride` places of each gram of a length that is in `of` (bool[256], lengths as of Table).
    """
    for gram in range(len(table.lengths)):
        if not of[table.lengths[gram]]:
            continue
        size, code = np.int64(length), np.int64(length)
        if length == 0:
            size, code = np.int64(table.lengths[gram]) & 63, np.int64(table.lengths[gram])
        for i in range(stride):
            key = key_of(held, np.int64(table.places[table.starts[gram]]) + i, size, code, by_mask, mask)
            sieve[key >> shift] |= bits_of(key)


@kernel
def sift_starts(starts, table, held, mask, wanted):
    """
    Sets the bits of `starts` (uint64) by how short parts begin, and those of `wanted` (uint32) by how many units they
    have.
    """
    shift, slots = shift_of(starts), shift_of(wanted)
    for gram in range(len(table.lengths)):
        if table.lengths[gram] & SHORT:
            place = np.int64(table.places[table.starts[gram]])
            start = start_of(held[place], held[place + 1], held[place + 2])
            starts[start >> shift] |= two_bits(start)
            wanted[mix(start, 3, mask) >> slots] |= np.uint32(1) << np.uint32(table.lengths[gram] & (SHORT - 1))
