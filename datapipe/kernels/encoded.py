"""
Data written as code: runs of base64, bytes in hexadecimal, \\u escapes; and what generators write on top of a file.

All of it is ASCII, so a byte is a code point.  After the basic filters of The Stack v2 (arXiv 2402.19173, 2.1), where
runs are what these expressions match, with \\s and \\b of ASCII:

    [a-zA-Z0-9+/\\n=]{64,}
    (?:(?:\\b|(?=\\\\x))(?:0x|\\\\x)?[0-9a-fA-F]{2}(?:,\\s*|\\b\\s*)){8,}
    (?:\\\\u[0-9a-fA-F]{4}){8,}

The second is the paper's with two holes closed: it had no \\s* behind the comma and wanted a word border before \\x, so
that "0x1f, 0x8b, ..." and "\\x1f\\x8b..." went by.
"""

from functools import cache

import numpy as np

from datapipe.kernels.jit import given, kernel

WORD, HEX, BASE64, WHITE = 1, 2, 4, 8  # what a byte is
LEAST = 64  # code points of a base64 run
TIMES = 8  # bytes or escapes in a row
HEAD = 5  # lines in which a generator's mark counts
ENCODED, LONGEST, MARKS = range(3)
MEASURES = 3


@cache
def classes() -> np.ndarray:
    """uint8[256]: what each byte is."""
    small, capital, digits = b"abcdefghijklmnopqrstuvwxyz", b"ABCDEFGHIJKLMNOPQRSTUVWXYZ", b"0123456789"
    members = {
        WORD: small + capital + digits + b"_",
        HEX: digits + b"abcdefABCDEF",
        BASE64: small + capital + digits + b"+/\n=",
        WHITE: b" \t\n\r\f\v",
    }
    found = np.zeros(256, np.uint8)
    for bit, each in members.items():
        found[list(each)] |= bit
    return given(found)


@kernel
def measure(text, offsets, classes, marks, mark_offsets, anchors, out):
    """
    Into out[d] (int64[MEASURES]) for each document: code points in encoded runs, those of the longest run, and how
    many of the marks its first HEAD lines hold, in small or capital letters.  A mark is marks[mark_offsets[m]:
    mark_offsets[m + 1]], ASCII in small letters, with a g at anchors[m]: a rare letter that is looked for first.
    """
    for doc in range(len(out)):
        first, end = np.int64(offsets[doc]), np.int64(offsets[doc + 1])
        encoded, longest, done = 0, 0, first
        base = _base64(text, first, end, classes)
        pair = _hexes(text, first, end, classes, first)
        escape = _escapes(text, first, end, classes)
        while base[0] < end or pair[0] < end or escape[0] < end:
            if base[0] <= pair[0] and base[0] <= escape[0]:
                start, stop = base
                base = _base64(text, stop, end, classes)
            elif pair[0] <= escape[0]:
                start, stop = pair
                pair = _hexes(text, stop, end, classes, first)
            else:
                start, stop = escape
                escape = _escapes(text, stop, end, classes)
            longest = max(longest, stop - start)
            encoded += max(stop - max(start, done), 0)
            done = max(stop, done)
        out[doc, ENCODED], out[doc, LONGEST] = encoded, longest
        out[doc, MARKS] = _marked(text, first, end, marks, mark_offsets, anchors)


@kernel
def _base64(text, at, end, classes):
    """The first run in text[at:end], (end, end) where there is none: from LEAST bytes on, so looks at few of them."""
    while at + LEAST <= end:
        start = at + LEAST - 1
        while start >= at and classes[text[start]] & BASE64:
            start -= 1
        if start < at:
            stop = at + LEAST
            while stop < end and classes[text[stop]] & BASE64:
                stop += 1
            return at, stop
        at = start + 1
    return end, end


@kernel
def _byte(text, at, end, classes):
    """Where the byte in hexadecimal at text[at], with its separator, ends; `at` where there is none."""
    digit = at
    if at + 1 < end and ((text[at] == 48) | (text[at] == 92)) and text[at + 1] == 120:  # 0x, \x
        digit += 2
    if digit + 1 >= end or not classes[text[digit]] & classes[text[digit + 1]] & HEX:
        return at
    stop = digit + 2
    if stop < end:
        if classes[text[stop]] & WORD:
            return at
        stop += np.int64(text[stop] == 44)
        while stop < end and classes[text[stop]] & WHITE:
            stop += 1
    return stop


@kernel
def _hexes(text, at, end, classes, first):
    """The first run of bytes in hexadecimal from text[at] on, (end, end) where there is none."""
    inside = at > first and classes[text[at - 1]] & WORD != 0
    while at < end:
        kind = classes[text[at]]
        if (kind & HEX != 0 and not inside) or text[at] == 92:
            stop, times = at, 0
            while stop < end:
                following = _byte(text, stop, end, classes)
                if following == stop:
                    break
                stop, times = following, times + 1
            if times >= TIMES:
                return at, stop
            if times:
                at = stop
                inside = classes[text[at - 1]] & WORD != 0
                continue
        inside = kind & WORD != 0
        at += 1
    return end, end


@kernel
def _escapes(text, at, end, classes):
    r"""The first run of \u escapes from text[at] on, (end, end) where there is none."""
    while at < end:
        if text[at] != 92:
            at += 1
            continue
        stop = at
        while stop + 6 <= end and text[stop] == 92 and text[stop + 1] == 117:  # \u
            if not (
                classes[text[stop + 2]]
                & classes[text[stop + 3]]
                & classes[text[stop + 4]]
                & classes[text[stop + 5]]
                & HEX
            ):
                break
            stop += 6
        if stop - at >= 6 * TIMES:
            return at, stop
        at = max(stop, at + 1)
    return end, end


@kernel
def _marked(text, at, end, marks, mark_offsets, anchors):
    """Marks that the first HEAD lines hold."""
    stop, lines, found = at, 0, np.int64(0)
    while stop < end and lines < HEAD:
        lines += np.int64(text[stop] == 10)
        stop += 1
    for here in range(at, stop):
        if text[here] | np.uint8(32) != 103:  # g
            continue
        for mark in range(len(anchors)):
            low, size = mark_offsets[mark], mark_offsets[mark + 1] - mark_offsets[mark]
            start = here - anchors[mark]
            if start < at or start + size > stop:
                continue
            same = 0
            while same < size and _small(text[start + same]) == marks[low + same]:
                same += 1
            if same == size:
                found |= np.int64(1) << mark
    count = 0
    for mark in range(len(anchors)):
        count += found >> mark & 1
    return count


@kernel
def _small(byte):
    """An ASCII capital letter made small, any other byte as it is."""
    return byte | np.uint8(32) if np.uint8(byte - np.uint8(65)) < 26 else byte
