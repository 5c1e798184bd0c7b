"""
Units of a text and their hashes: what shingles, signatures and n-grams are made of.

A unit is found over NFKC_Casefold: a run of letters, marks and digits, or one character of a script written without
blanks, with the marks after it; everything else separates.  It is hashed (XXH64, seed 0) as the UTF-8 of its
canonically decomposed form with marks in canonical order, so that no composition is ever needed: equal compositions
are equal decompositions.  The one place where composing matters is U+0338 after =, < and their like, which becomes
part of that sign.
"""

import numpy as np

from datapipe.kernels.blocks import AHEAD, BATCH, BRIEF, DONE, SMALL, flags, hash_brief, leading_zeros, trailing_zeros
from datapipe.kernels.jit import kernel
from datapipe.kernels.unicode import (
    CLASS,
    HANGUL,
    KIND,
    MAPPED,
    MARK,
    NONE,
    ONE,
    OPEN,
    OTHER,
    REST,
    SIZE,
    decode,
    lookup,
)
from datapipe.kernels.xxh64 import load8, xxh64

MOST = 32  # room that is kept for the units of one code point: the longest folding (U+FDFA) has 18 code points
EXPANSION = 6  # bytes of a unit for a byte of raw text: at most 5 (U+327C is 3 bytes and folds to 15)
STROKE = 0x338
STANDING = ONE << KIND - SIZE  # kind and size, in the Unicode table, of a unit by itself that folds to itself

# What `state` remembers of the unit that is being read, so that a full output can be emptied in the middle of one.
WITHIN, RAW, LENGTH, START, STOP, LAST, MESSY, OPENED = range(8)
STATE = 8


@kernel
def scan(text, at, first, end, page, entry, spelled, pool, unit, state, hashes, starts, ends, filled, brief):
    """
    Finds units in text[at:end] of a document that begins at byte `first`, and writes their hashes, first bytes and
    end bytes (counted from `first`) at index `filled` and on, until the text or the room is at an end.  Gives where
    it stopped, and how many are filled.

    text: uint8; at, first, end, filled: uint64; page, entry, spelled, pool: unicode.tables(); unit: uint8 scratch,
    EXPANSION x bytes of the document + 64; state: int64[STATE], all 0 at the start of a document;
    brief: blocks.scratch().  The spelling of a text of one unit is left in unit[:state[LENGTH]], but for words of ASCII
    and units that stand as they are; there it is 0.
    """
    room = np.uint64(len(hashes) - MOST)
    sizes, rest = brief
    while at < end and filled < room:
        base, here = filled, min(room, filled + np.uint64(BATCH))
        at, filled = _scan(
            text, at, first, end, page, entry, spelled, pool, unit, state, hashes, starts, ends, base, here, sizes, rest
        )
        hash_brief(hashes[base:], sizes, rest, filled - base)
    return at, filled


@kernel
def _scan(text, at, first, end, page, entry, spelled, pool, unit, state, hashes, starts, ends, base, room, sizes, rest):
    """
    The units of `scan` up to index `room`.  Of most, hashes, and sizes and rest from index `base` on, are given as
    blocks.hash_brief takes them.

    One long function, because it is the hottest: numba hands over an array as seven values, and calls with ten
    arrays made Chinese three times as slow.  The unit being read is text[start:stop] as it lies (raw), or else
    unit[:length]; `within` is REST or ONE, or 0 where there is none.
    """
    one, two, three, eight, filled = np.uint64(1), np.uint64(2), np.uint64(3), np.uint64(8), base
    within, raw, length = state[WITHIN], state[RAW], np.uint64(state[LENGTH])
    start, stop = np.uint64(state[START]), np.uint64(state[STOP])
    last, messy, opened = state[LAST], state[MESSY], state[OPENED]
    safe = np.uint64(len(text))
    while at < end and filled < room:
        byte, here = text[at], at
        if byte < 128:
            if within == 0 and at + AHEAD <= safe:  # words of a block that end in it, before what is not ASCII
                words, beyond = flags(text, at)
                count = min(end - at, np.uint64(64), np.uint64(trailing_zeros(beyond)))
                cut = count < np.uint64(64)
                words &= (one << count) - one if cut else ~np.uint64(0)
                begins, stops = words & ~(words << one), ~words & words << one
                if cut and at + count < end:
                    stops &= ~(one << count)
                if begins > stops:  # the last word goes on
                    count = np.uint64(63) - np.uint64(leading_zeros(begins))
                if count > np.uint64(0):
                    while stops != np.uint64(0):
                        start, stop = at + np.uint64(trailing_zeros(begins)), at + np.uint64(trailing_zeros(stops))
                        begins, stops = begins & begins - one, stops & stops - one
                        size = stop - start
                        hashes[filled], rest[filled - base] = (
                            load8(text, start) | SMALL,
                            load8(text, start + eight) | SMALL,
                        )
                        if size >= np.uint64(BRIEF):
                            hashes[filled], size = xxh64(text, start, stop, 32), DONE
                        sizes[filled - base] = size
                        starts[filled], ends[filled] = start - first, stop - first
                        filled += one
                    at += count
                    opened = np.int64(text[at - one] >= 60 and text[at - one] <= 62)  # < = >
                    continue
            letter = letter_or_digit(byte)
            if within == 0 and letter:
                while at < end and letter_or_digit(text[at]):
                    at += one
                opened = 0
                if at == end or text[at] < 128:
                    hashes[filled] = xxh64(text, here, at, 32)
                    starts[filled], ends[filled] = here - first, at - first
                    filled += one
                else:
                    for i in range(at - here):
                        unit[i] = _small(text[here + i])
                    within, raw, length, start, stop, last, messy = REST, 0, at - here, here, at, 0, 0
                continue
            at += one
            if within == 0:
                opened = np.int64(byte >= 60 and byte <= 62)  # < = >
                continue
            kind, word, point = REST if letter else OTHER, np.uint32(0), np.uint32(byte)
            if 60 <= byte <= 62:
                kind = OPEN
        else:
            if within == 0 and byte >> 4 == 14:  # characters of three bytes that are units as they stand, or none
                alone, point, word = False, np.uint32(0), np.uint32(0)
                while at + three <= end and filled < room and text[at] >> 4 == 14:
                    middle = (np.uint32(text[at + one]) & np.uint32(63)) << np.uint32(6)
                    point = (np.uint32(text[at]) & np.uint32(15)) << np.uint32(12) | middle
                    point |= np.uint32(text[at + two]) & np.uint32(63)
                    word = lookup(page, entry, point) >> np.uint32(SIZE) & np.uint32(0xFF)
                    if word != np.uint32(STANDING) and word != np.uint32(OTHER):
                        break
                    alone = word == np.uint32(STANDING)
                    hashes[filled] = np.uint64(text[at]) | np.uint64(text[at + one]) << eight
                    hashes[filled] |= np.uint64(text[at + two]) << np.uint64(16)
                    starts[filled], ends[filled], sizes[filled - base] = at - first, at + three - first, three
                    filled += np.uint64(alone)
                    sizes[filled - base] = DONE
                    at += three
                if at != here:
                    opened = 0
                    if at == end or text[at] < 128 or not alone:
                        continue
                    filled -= one  # what follows may be a mark on the last one
                    sizes[filled - base] = DONE
                    at -= three
                    byte, here = text[at], at
            point, size = decode(text, at, end)
            word = lookup(page, entry, point)
            kind = np.int64(word >> np.uint32(KIND) & np.uint32(7))
            at += size
        if within != 0 and (kind <= OPEN or kind == ONE or (within == ONE and (kind == REST or kind == HANGUL))):
            if messy:
                _order(page, entry, unit, length)
            hashes[filled] = xxh64(text, start, stop, 0) if raw else xxh64(unit, np.uint64(0), length, 0)
            starts[filled], ends[filled] = start - first, stop - first
            filled += one
            within = 0
        if kind <= OPEN:
            opened = np.int64(kind == OPEN)
            continue
        ccc = 0
        if kind == MARK:
            ccc = np.int64(word & np.uint32(0xFF))
            if ccc <= 1 and opened:
                opened = 0
                if point == STROKE:
                    kind = NONE  # it is part of the sign before the unit
        size = word >> np.uint32(SIZE) & np.uint32(31)
        plain = kind <= MARK and size == 0 and (byte < 65 or byte >= 97)
        if within != 0 and raw and (not plain or (ccc != 0 and ccc < last)):
            length = stop - start
            for i in range(length):
                unit[i] = text[start + i]
            raw = 0
        if kind == NONE:
            continue
        if kind == MAPPED:
            state[WITHIN], state[LENGTH], state[START], state[STOP] = within, length, start, stop
            state[LAST], state[MESSY], state[OPENED] = last, messy, opened
            for i in range(size):
                item = pool[np.uint32(word & np.uint32(0xFFFF)) + np.uint32(i)]
                filled = _take(item, here, at, first, page, entry, unit, state, hashes, starts, ends, filled)
            within, raw, length = state[WITHIN], 0, np.uint64(state[LENGTH])
            start, stop = np.uint64(state[START]), np.uint64(state[STOP])
            last, messy, opened = state[LAST], state[MESSY], state[OPENED]
            continue
        if within == 0:
            within = ONE if kind == ONE else REST
            raw, length, start, last, messy = np.int64(plain), np.uint64(0), here, 0, 0
        if kind != MARK:
            opened = 0
        if ccc != 0 and ccc < last:
            messy = 1
        last = ccc
        stop = at
        if raw:
            continue
        if kind == HANGUL:
            length = _jamo(unit, length, point - np.uint32(0xAC00))
        elif size != 0:
            place = np.uint64(word & np.uint32(0xFFFF))
            last = np.int64(spelled[place])
            for i in range(np.uint64(size)):
                unit[length + i] = spelled[place + one + i]
            length += np.uint64(size)
        elif byte < 128:
            unit[length] = _small(byte)
            length += one
        else:
            for i in range(at - here):
                unit[length + i] = text[here + i]
            length += at - here
    if at == end and within != 0 and raw:
        length = stop - start
        for i in range(length):
            unit[i] = text[start + i]
    state[WITHIN], state[RAW], state[LENGTH], state[START], state[STOP] = within, raw, length, start, stop
    state[LAST], state[MESSY], state[OPENED] = last, messy, opened
    if at == end and within != 0:
        filled = _close(first, page, entry, unit, state, hashes, starts, ends, filled)
    return at, filled


@kernel
def letter_or_digit(byte):
    """Of ASCII."""
    return np.uint8((byte | np.uint8(32)) - np.uint8(97)) < 26 or np.uint8(byte - np.uint8(48)) < 10


@kernel
def _small(byte):
    """An ASCII letter made small, a digit as it is."""
    return byte | np.uint8(32)


@kernel
def _jamo(unit, at, syllable):
    """Writes the two or three jamo of a syllable of Hangul (The Unicode Standard, section 3.12)."""
    at = _append(unit, at, np.uint32(0x1100) + syllable // np.uint32(588))
    at = _append(unit, at, np.uint32(0x1161) + syllable % np.uint32(588) // np.uint32(28))
    final = syllable % np.uint32(28)
    return at if final == 0 else _append(unit, at, np.uint32(0x11A7) + final)


@kernel
def _take(word, here, at, first, page, entry, unit, state, hashes, starts, ends, filled):
    """
    The general case of `scan`: a code point of a folding, from the raw bytes here:at, joins the unit, or closes it and
    begins another, or none.  The unit is in unit[:length].
    """
    kind, ccc = np.int64(word >> np.uint32(KIND) & np.uint32(7)), np.int64(word >> np.uint32(CLASS))
    point = word & np.uint32(0x1FFFFF)
    if kind == MARK:
        if ccc <= 1 and state[OPENED] != 0:
            state[OPENED] = 0
            if point == STROKE:
                return filled
    else:
        if state[WITHIN] != 0 and (kind != REST or state[WITHIN] == ONE):
            filled = _close(first, page, entry, unit, state, hashes, starts, ends, filled)
        state[OPENED] = np.int64(kind == OPEN)
        if kind <= OPEN:
            return filled
    if state[WITHIN] == 0:
        state[WITHIN] = ONE if kind == ONE else REST
        state[START] = np.int64(here)
        state[LENGTH], state[LAST], state[MESSY] = 0, 0, 0
    if ccc != 0 and ccc < state[LAST]:
        state[MESSY] = 1
    state[LAST] = ccc
    state[STOP] = np.int64(at)
    state[LENGTH] = np.int64(_append(unit, np.uint64(state[LENGTH]), point))
    return filled


@kernel
def _append(unit, at, point):
    """Writes the UTF-8 of a code point; gives where it ends."""
    one, two, three, low = np.uint64(1), np.uint64(2), np.uint64(3), np.uint32(63)
    if point < 0x80:
        unit[at] = point
        return at + one
    if point < 0x800:
        unit[at] = np.uint32(0xC0) | point >> np.uint32(6)
        unit[at + one] = np.uint32(0x80) | point & low
        return at + two
    if point < 0x10000:
        unit[at] = np.uint32(0xE0) | point >> np.uint32(12)
        unit[at + one] = np.uint32(0x80) | point >> np.uint32(6) & low
        unit[at + two] = np.uint32(0x80) | point & low
        return at + three
    unit[at] = np.uint32(0xF0) | point >> np.uint32(18)
    unit[at + one] = np.uint32(0x80) | point >> np.uint32(12) & low
    unit[at + two] = np.uint32(0x80) | point >> np.uint32(6) & low
    unit[at + three] = np.uint32(0x80) | point & low
    return at + np.uint64(4)


@kernel
def _close(first, page, entry, unit, state, hashes, starts, ends, filled):
    """Writes the unit that is open."""
    length = np.uint64(state[LENGTH])
    if state[MESSY] != 0:
        _order(page, entry, unit, length)
    hashes[filled] = xxh64(unit, np.uint64(0), length, 0)
    starts[filled], ends[filled] = np.uint64(state[START]) - first, np.uint64(state[STOP]) - first
    state[WITHIN] = 0
    return filled + np.uint64(1)


@kernel
def _order(page, entry, unit, length):
    """
    Brings marks into canonical order: each run of marks with a ccc is sorted by it, stably.  A pass for each ccc in
    the run, for runs may be as long as the document and there are but 55 classes.
    """
    copy = unit[:length].copy()
    at = np.uint64(0)
    while at < length:
        start = at
        low, high = 256, 0
        while at < length:
            ccc, size = _class(page, entry, copy, at, length)
            if ccc == 0:
                break
            low, high = min(low, ccc), max(high, ccc)
            at += size
        out = start
        while low <= high:
            out, low = _gather(page, entry, copy, start, at, low, unit, out)
        if at < length:
            at += _class(page, entry, copy, at, length)[1]


@kernel
def _gather(page, entry, copy, start, end, wanted, unit, out):
    """Copies the marks of one ccc in copy[start:end] to unit[out]; gives where they end, and the next higher ccc."""
    following, at = 256, start
    while at < end:
        ccc, size = _class(page, entry, copy, at, end)
        for i in range(size if ccc == wanted else np.uint64(0)):
            unit[out] = copy[at + i]
            out += np.uint64(1)
        if ccc > wanted:
            following = min(following, ccc)
        at += size
    return out, following


@kernel
def _class(page, entry, text, at, end):
    """The ccc of the code point at a byte, and its length."""
    if text[at] < 128:
        return 0, np.uint64(1)
    point, size = decode(text, at, end)
    word = lookup(page, entry, point)
    mark = word >> np.uint32(KIND) & np.uint32(7) == MARK
    return np.int64(word & np.uint32(0xFF)) if mark else 0, size
