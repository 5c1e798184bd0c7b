"""
The second stage on candidate windows: which window of a document, how much of a part is in it, how far it was edited.
"""

import numpy as np

from datapipe.kernels.gram_index import window_keys
from datapipe.kernels.jit import kernel

FAR = 1 << 30
WIDEST = 512  # units by which an alignment may leave its diagonal, at most
SMALL = 64  # a part of so many units is aligned whatever it shares with the window


@kernel
def centres(pairs, lengths, diagonals, covered, best):
    """
    Of each pair of a document and a part, whose runs are pairs[k]:pairs[k + 1] sorted by diagonal (unit of the
    document less unit of the part), the diagonal with the most units in runs at most a quarter of the part, `lengths`,
    beside it (the first of equal ones): to best[k].
    """
    for k in range(len(pairs) - 1):
        low, high, total, most = pairs[k], pairs[k], 0, -1
        reach = lengths[k] // 4
        for i in range(pairs[k], pairs[k + 1]):
            while high < pairs[k + 1] and diagonals[high] <= diagonals[i] + reach:
                total += covered[high]
                high += 1
            while diagonals[low] < diagonals[i] - reach:
                total -= covered[low]
                low += 1
            if total > most:
                most, best[k] = total, diagonals[i]


@kernel
def measure(units, bounds, held, pairs, shingle, gate, out):
    """
    pairs int64[k, 5]: document, place of the part in `held`, its units, its n, the diagonal.  Looks at the 2L units
    around the diagonal.  Writes to out (int64[k, 8]): the part's distinct shingles, those that are in the window; its
    units in n-grams that are in the window; the same by number mask, -1 where the part has no number; the least edit
    distance to any run of units near the diagonal, that run's first unit and length, and 1 where it was measured: not
    where of a longer part than SMALL a smaller share of shingles than 1/gate is there, or fewer than half of its units
    near the diagonal.
    """
    for k in range(len(pairs)):
        doc, place, count, n, diagonal = pairs[k]
        low, high = bounds[doc], bounds[doc + 1]
        begin = max(low, low + diagonal - count // 2)
        end = min(high, low + diagonal + count + count // 2)
        out[k, 0], out[k, 1] = contained(units, begin, end, held, place, count, min(shingle, count))
        out[k, 2] = within(units, begin, end, held, place, count, n, False)
        out[k, 3] = -1
        for i in range(count):
            if held[place + i] & np.uint64(1):
                out[k, 3] = within(units, begin, end, held, place, count, n, True)
                break
        out[k, 4], out[k, 5], out[k, 6], out[k, 7] = count, max(0, begin - low), end - begin, 0
        half = min(max(8, count // 4), WIDEST)
        first, last = max(low, low + diagonal - half), min(high, low + diagonal + count + half)
        if count <= SMALL or (
            out[k, 1] * gate >= out[k, 0] and 2 * shared(units[first:last], held[place : place + count]) >= count
        ):
            out[k, 4], first, last = align(units, low, high, held, place, count, low + diagonal, half)
            out[k, 5], out[k, 6], out[k, 7] = first - low, last - first, 1


@kernel
def contained(units, begin, end, held, place, count, shingle):
    """Distinct shingles of held[place:place + count], and how many of them are among those of units[begin:end]."""
    theirs = _set(_keys(units, begin, end - begin, shingle, False))
    ours = _keys(held, place, count, shingle, False)
    seen, some, common = _room(len(ours)), 0, 0
    for key in ours:
        if _put(seen, key):
            some += 1
            common += _holds(theirs, key)
    return some, common


@kernel
def shared(ours, theirs):
    """How many units two texts share at most, in any order."""
    units = _room(len(ours))
    counts, common, mask = np.zeros(len(units), np.int32), 0, np.uint64(len(units) - 1)
    for unit in ours:
        at = unit & mask
        while units[at] != 0 and units[at] != unit:
            at = at + np.uint64(1) & mask
        units[at] = unit
        counts[at] += 1
    for unit in theirs:
        at = unit & mask
        while units[at] != 0 and units[at] != unit:
            at = at + np.uint64(1) & mask
        common += counts[at] > 0
        counts[at] -= counts[at] > 0
    return common


@kernel
def within(units, begin, end, held, place, count, n, by_mask):
    """How many units of held[place:place + count] lie in n-grams that are among those of units[begin:end]."""
    theirs = _set(_keys(units, begin, end - begin, n, by_mask))
    covered, reached, i = 0, 0, 0
    for key in _keys(held, place, count, n, by_mask):
        if _holds(theirs, key):
            covered += i + n - max(reached, i)
            reached = i + n
        i += 1
    return covered


@kernel
def _room(count):
    """An empty open-addressed set for `count` keys; no key is 0."""
    size = 16
    while size < 2 * count:
        size *= 2
    return np.zeros(size, np.uint64)


@kernel
def _set(keys):
    made = _room(len(keys))
    for key in keys:
        _put(made, key)
    return made


@kernel
def _put(held, key):
    """Whether the key is new to the set."""
    mask = np.uint64(len(held) - 1)
    at = key & mask
    while held[at] != 0:
        if held[at] == key:
            return False
        at = at + np.uint64(1) & mask
    held[at] = key
    return True


@kernel
def _holds(held, key):
    mask = np.uint64(len(held) - 1)
    at = key & mask
    while held[at] != 0 and held[at] != key:
        at = at + np.uint64(1) & mask
    return held[at] == key


@kernel
def _keys(units, at, count, n, by_mask):
    """Of the windows of n units, in order; 1 in place of 0."""
    room = max(count - n + 1, 0)
    keys, places = np.empty(room, np.uint64), np.empty(room, np.uint32)
    if room > 0:
        window_keys(units, at, count, n, n, by_mask, True, np.uint64(0xFFFFFFFFFFFFFFFF), keys, places)
        for k in range(room):
            keys[k] = max(keys[k], np.uint64(1))
    return keys


@kernel
def align(units, low, high, held, place, count, start, half):
    """
    (distance, first, last) of the run units[first:last] within units[low:high] that is the fewest insertions,
    deletions and substitutions of units away from held[place:place + count], the first to end of equal ones; of
    alignments that pair unit i of the part with units start + i - half to start + i + half.
    """
    width = 2 * half + 1
    before, after = np.empty(width + 1, np.int32), np.empty(width + 1, np.int32)
    since, then = np.empty(width + 1, np.int64), np.empty(width + 1, np.int64)
    for k in range(width + 1):  # row 0: the window begins at column start - half + k
        column = start - half + k
        before[k] = 0 if k < width and low <= column <= high else FAR
        since[k] = column
    for i in range(1, count + 1):
        unit = held[place + i - 1]
        for k in range(width):
            column = start + i - half + k
            if column < low or column > high:
                after[k], then[k] = FAR, column
                continue
            cost, first = before[k + 1] + 1, since[k + 1]
            if column > low and before[k] < FAR:
                paired = before[k] + np.int32(units[column - 1] != unit)
                if paired <= cost:
                    cost, first = paired, since[k]
            if k > 0 and after[k - 1] + 1 < cost:
                cost, first = after[k - 1] + 1, then[k - 1]
            after[k], then[k] = min(cost, FAR), first
        after[width], then[width] = FAR, 0
        before, after = after, before
        since, then = then, since
    best, first, last = count, start, start
    for k in range(width):
        if before[k] < best:
            best, first, last = np.int64(before[k]), since[k], start + count - half + k
    return best, max(low, min(first, high)), max(low, min(last, high))


@kernel
def extended(units, bounds, held, runs, budget):
    """
    int64[k]: of each run the most units that match in an extension of it on its diagonal with at most `budget`
    substitutions, both sides together.  runs: int64[k, 6], document, place of the part in `held`, its units, first unit
    of the run in it, length, first unit in the document.
    """
    out = np.empty(len(runs), np.int64)
    gains = np.empty((2, budget + 1), np.int64)  # matches on a side for so many substitutions
    for r in range(len(runs)):
        doc, place, size, start, length, at = runs[r]
        low, high = bounds[doc], bounds[doc + 1]
        for side in range(2):
            spent = gained = np.int64(0)
            i, step = (start - 1, -1) if side == 0 else (start + length, 1)
            while spent <= budget and 0 <= i < size:
                there = low + at + i - start
                if low <= there < high and units[there] == held[place + i]:
                    gained += 1
                else:
                    gains[side, spent] = gained
                    spent += 1
                i += step
            gains[side, spent:] = gained
        best = np.int64(0)
        for spent in range(budget + 1):
            best = max(best, gains[0, spent] + gains[1, budget - spent])
        out[r] = length + best
    return out
