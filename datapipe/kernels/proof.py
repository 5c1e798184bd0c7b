"""
What units are on the text: numbers, characters that are units by themselves, equal in their folded spelling.
"""

import numpy as np

from datapipe.kernels.blocks import move, scratch
from datapipe.kernels.jit import kernel
from datapipe.kernels.unicode import KIND, LETTER, MAPPED, NONE, NUMBER, REST, SIZE, decode, lookup
from datapipe.kernels.unicode import ONE as ALONE
from datapipe.kernels.units import LENGTH, STATE, letter_or_digit, scan

ONE = np.uint64(1)
UNITS = 64  # that are looked at together for signs of markup
NAMES = b"p br hr b i u em strong li ul ol dl dt dd td th tr table tbody div span code pre q sub sup h1 h2 h3 h4 h5 h6"
TAGS = tuple(np.uint64(int.from_bytes(name, "big")) for name in NAMES.split())


@kernel
def mark(text, offsets, bounds, starts, ends, page, entry, spelled, pool, bits, units):
    """
    Makes units of hashes, in place: bit 0 says whether it is a number.  That is a unit all of whose characters fold to
    decimal digits or to other numbers that are no letters.  bits: which of the hash are used (all, but in a test).
    """
    for doc in range(len(offsets) - 1):
        first = np.uint64(offsets[doc])
        for i in range(bounds[doc], bounds[doc + 1]):
            at, end = first + np.uint64(starts[i]), first + np.uint64(ends[i])
            byte = text[at]
            number, beyond = False, byte >= 0xC2 and (byte < 0xE4 or byte > 0xE9)  # Han of the largest block apart
            if np.uint8(byte - np.uint8(48)) < 10:
                here = at + ONE
                while here < end and np.uint8(text[here] - np.uint8(48)) < 10:
                    here += ONE
                number = here == end
                beyond = not number and text[here] >= 128
            elif beyond:  # nearly always a letter, of which none folds to digits
                word = lookup(page, entry, decode(text, at, end)[0])
                beyond = word >> np.uint32(LETTER) & np.uint32(1) == 0
            if beyond:
                number = _number(text, at, end, page, entry, spelled, pool)
            unit = units[i] & bits & ~ONE
            units[i] = unit | ONE if number else max(unit, np.uint64(2))


@kernel
def without_markup(text, offsets, bounds, starts, ends, units):
    """
    Takes the units out that are character references of HTML (&quot; &#39; &#x27;) or bare tags (<p> </li> <br/>), in
    place: an escaped text in paragraphs has the units of the text.  bounds are made anew; gives how many are left.
    """
    filled, begin = bounds[0], bounds[0]
    for doc in range(len(offsets) - 1):
        first, last, end = np.int64(offsets[doc]), np.int64(offsets[doc + 1]), bounds[doc + 1]
        while begin < end:
            some = min(begin + UNITS, end)
            marked = _marked(text, max(first, first + np.int64(starts[begin]) - 2), first + np.int64(starts[some - 1]))
            if not marked:
                if filled != begin:
                    move(starts, filled, begin, some - begin)
                    move(ends, filled, begin, some - begin)
                    move(units, filled, begin, some - begin)
                filled += some - begin
                begin = some
                continue
            for i in range(begin, some):
                if _markup(text, first, last, first + np.int64(starts[i]), first + np.int64(ends[i])):
                    continue
                starts[filled], ends[filled], units[filled] = starts[i], ends[i], units[i]
                filled += 1
            begin = some
        bounds[doc + 1] = filled
    return filled


@kernel
def _marked(text, at, end):
    """Whether text[at:end] has a sign that markup begins with, & or <."""
    found = np.uint8(0)
    for i in range(np.uint64(at), np.uint64(end)):
        found |= np.uint8(text[i] == 38) | np.uint8(text[i] == 60)
    return found != 0


@kernel
def _markup(text, first, last, at, end):
    """Whether the unit text[at:end] of the document text[first:last] is a character reference or a bare tag."""
    if end >= last:
        return False
    sign = text[end]
    if sign == 59:
        return _reference(text, first, at, end)
    return (sign == 62 or (sign == 47 and end + 1 < last and text[end + 1] == 62)) and _tag(text, first, at, end)


@kernel
def _tag(text, first, at, end):
    """Whether text[at:end], a > or /> behind it, is the name in a tag of those that stand bare in running text."""
    begin = at - 2 if at > first and text[at - 1] == 47 else at - 1
    if begin < first or text[begin] != 60 or end - at > 6:
        return False
    name = np.uint64(0)
    for i in range(at, end):
        name = name << np.uint64(8) | np.uint64(text[i] | np.uint8(32))
    for tag in TAGS:
        if name == tag:
            return True
    return False


@kernel
def _reference(text, first, at, end):
    """Whether text[at:end], a semicolon behind it, is what a character reference names."""
    size = end - at
    if at > first and text[at - 1] == 38:  # &
        name = np.uint64(0)
        for i in range(at, min(end, at + 5)):
            name = name << np.uint64(8) | np.uint64(text[i])
        if size == 2:
            return name == 0x6C74 or name == 0x6774  # lt, gt
        if size == 3:
            return name == 0x616D70  # amp
        return size == 4 and (name == 0x71756F74 or name == 0x61706F73 or name == 0x6E627370)  # quot, apos, nbsp
    if at < first + 2 or text[at - 1] != 35 or text[at - 2] != 38:  # &#
        return False
    hexadecimal = text[at] == 120 or text[at] == 88
    for i in range(at + hexadecimal, end):
        digit = np.uint8(text[i] - np.uint8(48)) < 10
        letter = np.uint8((text[i] | np.uint8(32)) - np.uint8(97)) < 6
        if not digit and not (hexadecimal and letter):
            return False
    return size > np.int64(hexadecimal)


@kernel
def _number(text, at, end, page, entry, spelled, pool):
    some = False
    while at < end:
        if text[at] < 128:
            if np.uint8(text[at] - np.uint8(48)) >= 10:
                return False
            some = True
            at += ONE
            continue
        point, size = decode(text, at, end)
        at += size
        word = lookup(page, entry, point)
        kind = word >> np.uint32(KIND) & np.uint32(7)
        count = word >> np.uint32(SIZE) & np.uint32(31)
        place = np.uint64(word & np.uint32(0xFFFF))
        if kind == NONE:
            continue
        if kind == MAPPED:
            for k in range(count):
                item = pool[place + np.uint64(k)]
                inner = item >> np.uint32(KIND) & np.uint32(7)
                if inner >= REST and np.uint32((item & np.uint32(0x1FFFFF)) - np.uint32(48)) >= 10:
                    return False
        elif count == 0:
            flags = entry[(np.uint64(page[point >> np.uint32(7)]) << np.uint64(7)) | np.uint64(point & np.uint32(127))]
            if flags >> np.uint32(NUMBER) & np.uint32(1) == 0 or flags >> np.uint32(LETTER) & np.uint32(1) != 0:
                return False
        else:
            for k in range(np.uint64(count)):
                if np.uint8(spelled[place + ONE + np.uint64(k)] - np.uint8(48)) >= 10:
                    return False
        some = True
    return some


@kernel
def unspaced(text, offsets, bounds, starts, page, entry, counts):
    """How many units of each text begin with a character that is a unit by itself: Han, kana, Thai and their like."""
    for doc in range(len(counts)):
        first, end = np.uint64(offsets[doc]), np.uint64(offsets[doc + 1])
        for i in range(bounds[doc], bounds[doc + 1]):
            at = first + np.uint64(starts[i])
            if text[at] >= 128:
                point, _ = decode(text, at, end)
                counts[doc] += np.int64(lookup(page, entry, point) >> np.uint32(KIND) & np.uint32(7) == ALONE)


@kernel
def bare(text, begins, ends, page, entry, out, bounds):
    """
    Of each text[begins[k]:ends[k]] (bytes) its letters (category L) and numerals (str.isnumeric) alone, end to end in
    `out`, which has room for all of it; bounds[k + 1] is where those of k end.
    """
    filled, one = np.uint64(0), np.uint64(1)
    for k in range(len(begins)):
        at, end = np.uint64(begins[k]), np.uint64(ends[k])
        while at < end:
            if text[at] < 128:
                out[filled] = text[at]
                filled += np.uint64(letter_or_digit(text[at]))
                at += one
                continue
            point, size = decode(text, at, end)
            word = lookup(page, entry, point)
            if (word >> np.uint32(LETTER) | word >> np.uint32(NUMBER)) & one != 0:
                for i in range(size):
                    out[filled + i] = text[at + i]
                filled += size
            at += size
        bounds[k + 1] = filled


@kernel
def prove(ours, theirs, runs, least, tables, by_mask, out):
    """
    Compares runs on the folded text of their units; writes what is equal, cut where it is not, to `out` (int64[k, 4])
    and gives how many.

    ours, theirs: (text, offsets, bounds, starts, ends, units) of documents and of parts; runs int64[k, 5]: document,
    row of theirs, unit there, unit of the document, length; least int64[k]: shorter pieces are left out; tables:
    unicode.tables().  out: run, units cut off its beginning, length.
    """
    page, entry, spelled, pool = tables
    state, other = np.zeros(STATE, np.int64), np.zeros(STATE, np.int64)
    unit, second = np.empty(64, np.uint8), np.empty(64, np.uint8)
    hashes, starts, ends = np.empty(1, np.uint64), np.empty(1, np.uint32), np.empty(1, np.uint32)
    filled, brief = 0, scratch()
    for run in range(len(runs)):
        doc, row, length = runs[run, 0], runs[run, 1], runs[run, 4]
        a, b = ours[2][doc] + runs[run, 3], theirs[2][row] + runs[run, 2]
        first, begin = np.uint64(ours[1][doc]), np.uint64(theirs[1][row])
        if not by_mask and _bytes(
            ours[0], first + ours[3][a], first + ours[4][a + length - 1],
            theirs[0], begin + theirs[3][b], begin + theirs[4][b + length - 1],
        ):  # fmt: skip
            out[filled, 0], out[filled, 1], out[filled, 2] = run, 0, length
            filled += 1
            continue
        good = 0
        for k in range(length + 1):
            equal = False
            if k < length:
                x, x_end = first + ours[3][a + k], first + ours[4][a + k]
                y, y_end = begin + theirs[3][b + k], begin + theirs[4][b + k]
                numbers = ours[5][a + k] & theirs[5][b + k] & ONE != 0
                equal = (by_mask and numbers) or _letters(ours[0], x, x_end, theirs[0], y, y_end)
                if not equal and not (_plain(ours[0], x, x_end) and _plain(theirs[0], y, y_end)):
                    room = np.int64(max(x_end - x, y_end - y))
                    if len(unit) < 6 * room + 64:
                        unit, second = np.empty(6 * room + 64, np.uint8), np.empty(6 * room + 64, np.uint8)
                        hashes = np.empty(2 * room + 64, np.uint64)
                        starts, ends = np.empty(2 * room + 64, np.uint32), np.empty(2 * room + 64, np.uint32)
                    elif len(hashes) == 1:
                        hashes = np.empty(192, np.uint64)
                        starts, ends = np.empty(192, np.uint32), np.empty(192, np.uint32)
                    one = _spell(
                        ours[0], x, x_end, page, entry, spelled, pool, unit, state, hashes, starts, ends, brief
                    )
                    two = _spell(
                        theirs[0], y, y_end, page, entry, spelled, pool, second, other, hashes, starts, ends, brief
                    )
                    if one < 0 or two < 0:  # a character that is several units: its hash has to do
                        equal = ours[5][a + k] == theirs[5][b + k]
                    else:
                        equal = one == two and _bytes(
                            unit, np.uint64(0), np.uint64(one), second, np.uint64(0), np.uint64(two)
                        )
            if equal:
                good += 1
                continue
            if good >= least[run]:
                out[filled, 0], out[filled, 1], out[filled, 2] = run, k - good, good
                filled += 1
            good = 0
    return filled


@kernel
def unlike(text, offsets, twin, out):
    """Sets out[k] where the bytes of a text are not those of its twin."""
    for k in range(len(twin)):
        a, b = np.int64(k), np.int64(twin[k])
        out[k] = a != b and not _bytes(
            text,
            np.uint64(offsets[a]),
            np.uint64(offsets[a + 1]),
            text,
            np.uint64(offsets[b]),
            np.uint64(offsets[b + 1]),
        )


@kernel
def _bytes(a, at, end, b, place, stop):
    if end - at != stop - place:
        return False
    for k in range(end - at):
        if a[at + k] != b[place + k]:
            return False
    return True


@kernel
def _letters(a, at, end, b, place, stop):
    """Equal bytes but for the case of ASCII letters."""
    if end - at != stop - place:
        return False
    for k in range(end - at):
        x, y = a[at + k], b[place + k]
        if x != y and (x | np.uint8(32) != y | np.uint8(32) or not letter_or_digit(x) or not letter_or_digit(y)):
            return False
    return True


@kernel
def _plain(text, at, end):
    for k in range(end - at):
        if text[at + k] >= 128:
            return False
    return True


@kernel
def _spell(text, at, end, page, entry, spelled, pool, unit, state, hashes, starts, ends, brief):
    """
    Writes what the one unit of text[at:end] folds to (decomposed UTF-8, as it is hashed) to `unit`; gives its length,
    or -1 where it is not one unit.
    """
    if _plain(text, at, end):
        for k in range(end - at):
            unit[k] = text[at + k] | np.uint8(32)
        return np.int64(end - at)
    state[:] = 0
    _, filled = scan(
        text, at, at, end, page, entry, spelled, pool, unit, state, hashes, starts, ends, np.uint64(0), brief
    )
    if filled == 1 and state[LENGTH] == 0:  # as it stands: only of others `scan` leaves the spelling
        for k in range(end - at):
            unit[k] = text[at + k]
        return np.int64(end - at)
    return np.int64(state[LENGTH]) if filled == 1 else np.int64(-1)
