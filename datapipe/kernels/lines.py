"""
Lines and sentences: where lines end, what stands at their ends, and how many sentences they hold.

Two ends of lines, each for the rules that were published with it: LF alone, and all that str.splitlines knows (LF,
CR LF, CR, VT, FF, FS, GS, RS, NEL, LS, PS).  White space at the ends of a line is what str.strip takes: White_Space
and US, FS, GS, RS (U+001C-U+001F), which are no White_Space.
"""

import numpy as np

from datapipe.kernels.jit import given, kernel
from datapipe.kernels.unicode import PUNCTUATION, TERMINAL, WHITE, decode, lookup

SHORT = 30  # code points of a short line
(HASHES, ELLIPSES, NEWLINES, LINES, BULLET_LINES, ELLIPSIS_LINES, FILLED_LINES, ENDED_LINES, SHORT_LINES) = range(9)
MEASURES = 9


def _table(**kinds: str) -> np.ndarray:
    """uint8[256]: the number of the kind that a byte is of, from 1 on; 0 for the others."""
    table = np.zeros(256, np.uint8)
    for number, members in enumerate(kinds.values(), 1):
        table[list(members.encode("latin-1"))] = number
    return given(table)


_ENDS = _table(end="\n\r\v\f\x1c\x1d\x1e\xc2\xe2")  # bytes that end a line, or begin what does
_MARKS = _table(end="\n\r\v\f\x1c\x1d\x1e\xc2\xe2", dot=".", hash="#")
_DOT, _HASH = 2, 3
# what a byte is to sentences; 0 = it begins or continues one
_OTHER, _END, _BLANK, _TERMINAL, _CLOSING, _MARK, _WIDE = range(7)
_SENTENCE = _table(
    end="\n\r\v\f\x1c\x1d\x1e",
    blank="\t \x1f",
    terminal=".?!",
    closing="\"')]}",
    mark="#$%&(*+,-/:;<=>@[\\^_`{|~\x7f" + "".join(map(chr, [*range(9), *range(14, 28)])),
)
_OUTSIDE, _WITHIN, _ENDED, _ENDED_WIDE = range(4)


@kernel
def white_byte(byte):
    """Whether str.strip takes an ASCII byte."""
    return np.uint8(byte - np.uint8(9)) < 5 or np.uint8(byte - np.uint8(28)) < 5


@kernel
def first_of(text, at, end, page, entry):
    """The first byte of text[at:end] that is not white; end where all is."""
    while at < end:
        byte = text[at]
        if byte < 128:
            if not white_byte(byte):
                break
            at += np.uint64(1)
        else:
            point, size = decode(text, at, end)
            if not lookup(page, entry, point) >> np.uint32(WHITE) & np.uint32(1):
                break
            at += size
    return at


@kernel
def lead_of(text, at, end):
    """Where the code point begins whose last byte is end - 1; not before at."""
    lead, one = end - np.uint64(1), np.uint64(1)
    while lead > at and end - lead < np.uint64(4) and text[lead] & np.uint8(0xC0) == 0x80:
        lead -= one
    return lead


@kernel
def last_of(text, at, end, page, entry):
    """The end of text[at:end] without the white space that it ends with; at where all is white."""
    while at < end:
        byte = text[end - np.uint64(1)]
        if byte < 128:
            if not white_byte(byte):
                break
            end -= np.uint64(1)
        else:
            lead = lead_of(text, at, end)
            point, _ = decode(text, lead, end)
            if not lookup(page, entry, point) >> np.uint32(WHITE) & np.uint32(1):
                break
            end = lead
    return end


@kernel
def wide_end(text, at, end):
    """Bytes of the line end that begins at a byte of the lead bytes of NEL, LS and PS; 0 where none does."""
    left = end - at
    if text[at] == 0xC2:
        return np.uint64(2 if left > np.uint64(1) and text[at + np.uint64(1)] == 0x85 else 0)
    if left > np.uint64(2) and text[at + np.uint64(1)] == 0x80:
        return np.uint64(3 if text[at + np.uint64(2)] & np.uint8(0xFE) == 0xA8 else 0)
    return np.uint64(0)


@kernel
def next_of(text, at, end, table):
    """The first byte of text[at:end] that a table knows; end where none is."""
    step = np.uint64(8)
    while at + step <= end:
        # eight looks that wait for nothing are faster than one look eight times
        one, two = table[text[at]] | table[text[at + np.uint64(1)]], table[text[at + np.uint64(2)]]
        three, four = table[text[at + np.uint64(3)]], table[text[at + np.uint64(4)]] | table[text[at + np.uint64(5)]]
        if one | two | three | four | table[text[at + np.uint64(6)]] | table[text[at + np.uint64(7)]]:
            break
        at += step
    while at < end and table[text[at]] == 0:
        at += np.uint64(1)
    return at


@kernel
def line_of(text, at, end):
    """The end of the line of str.splitlines that begins at `at`, and where the next begins."""
    one = np.uint64(1)
    while True:
        at = next_of(text, at, end, _ENDS)
        if at >= end:
            return end, end
        byte = text[at]
        if byte < 128:
            both = byte == 13 and at + one < end and text[at + one] == 10
            return at, at + (np.uint64(2) if both else one)
        size = wide_end(text, at, end)
        if size:
            return at, at + size
        at += one


@kernel
def points_of(text, at, end):
    """Code points of text[at:end]."""
    points = 0
    for i in range(at, end):
        points += np.int64(text[i] & np.uint8(0xC0) != 0x80)
    return points


@kernel
def _is_short(text, at, end):
    """Whether text[at:end] has at most SHORT code points."""
    points, one = 0, np.uint64(1)
    if end - at <= np.uint64(SHORT):
        return True
    if end - at > np.uint64(4 * SHORT):
        return False
    while at < end and points <= SHORT:
        points += np.int64(text[at] & np.uint8(0xC0) != 0x80)
        at += one
    return points <= SHORT


@kernel
def _is_terminal(text, at, end, page, entry):
    """Whether the last code point of text[at:end], not empty, is a terminal mark."""
    byte = text[end - np.uint64(1)]
    if byte < 128:
        return byte == 46 or byte == 63 or byte == 33
    point, _ = decode(text, lead_of(text, at, end), end)
    return lookup(page, entry, point) >> np.uint32(TERMINAL) & np.uint32(1) != 0


@kernel
def _is_bullet(text, at, end):
    """Whether text[at:end], not empty, begins with - or a bullet (U+2022)."""
    if text[at] == 0xE2 and end - at > np.uint64(2):
        return text[at + np.uint64(1)] == 0x80 and text[at + np.uint64(2)] == 0xA2
    return text[at] == 45


@kernel
def _is_ellipsis(text, at, end):
    """Whether text[at:end] ends with three dots or an ellipsis (U+2026)."""
    last = text[end - np.uint64(1)]
    if (last != 46 and last != 0xA6) or end - at < np.uint64(3):
        return False
    one, two = text[end - np.uint64(3)], text[end - np.uint64(2)]
    return (one == 46 and two == 46 and last == 46) or (one == 0xE2 and two == 0x80 and last == 0xA6)


@kernel
def measure(text, offsets, page, entry, out):
    """
    Into out[d] (int64[MEASURES]) for each document: # signs; ellipses (three dots, not overlapping, or U+2026); LFs;
    lines of str.splitlines, those that start with a bullet, those that end with an ellipsis; lines by LF that are not
    blank, of them those that end with a terminal mark, and those of at most SHORT code points (white space included).
    """
    one = np.uint64(1)
    for doc in range(len(out)):
        at, end = np.uint64(offsets[doc]), np.uint64(offsets[doc + 1])
        hashes, ellipses, newlines, lines, bullets, trailing = 0, 0, 0, 0, 0, 0
        filled, ended, short = 0, 0, 0
        start = feed = at  # where the line of each kind begins
        while at <= end:
            at, size = next_of(text, at, end, _MARKS), one
            if at < end:
                byte = text[at]
                kind = _MARKS[byte]
                if kind == _HASH:
                    hashes += 1
                    at += one
                    continue
                if kind == _DOT:
                    run = at
                    while at < end and text[at] == 46:
                        at += one
                    ellipses += np.int64(at - run) // 3
                    continue
                if byte >= 128:
                    size = wide_end(text, at, end)
                    if size == 0:
                        if byte == 0xE2 and end - at > np.uint64(2):
                            ellipses += np.int64(text[at + one] == 0x80 and text[at + np.uint64(2)] == 0xA6)
                        at += one
                        continue
            lines += np.int64(at < end or start < end)
            first = first_of(text, start, at, page, entry)
            full = first < at
            if full:
                bullets += np.int64(_is_bullet(text, first, at))
                trailing += np.int64(_is_ellipsis(text, first, last_of(text, first, at, page, entry)))
            newline = at < end and text[at] == 10
            if at < end and text[at] == 13 and at + one < end and text[at + one] == 10:
                newline, at = True, at + one
            newlines += np.int64(newline)
            if newline or at == end:
                if full or (feed < start and first_of(text, feed, at, page, entry) < at):
                    filled += 1
                    ended += np.int64(_is_terminal(text, feed, at, page, entry))
                    short += np.int64(_is_short(text, feed, at))
                feed = at + one
            at += size
            start = at
        out[doc, HASHES], out[doc, ELLIPSES], out[doc, NEWLINES] = hashes, ellipses, newlines
        out[doc, LINES], out[doc, BULLET_LINES], out[doc, ELLIPSIS_LINES] = lines, bullets, trailing
        out[doc, FILLED_LINES], out[doc, ENDED_LINES], out[doc, SHORT_LINES] = filled, ended, short


@kernel
def third_lengths(text, offsets, out):
    """Into out[d] (int64) for each document: code points of the third longest line by LF; 0 with fewer lines."""
    for doc in range(len(out)):
        at, end = np.uint64(offsets[doc]), np.uint64(offsets[doc + 1])
        longest, second, third = 0, 0, 0
        start = at
        while at <= end:
            if at == end or text[at] == 10:
                if np.int64(at - start) > third:
                    points = points_of(text, start, at)
                    if points > longest:
                        longest, second, third = points, longest, second
                    elif points > second:
                        second, third = points, second
                    elif points > third:
                        third = points
                start = at + np.uint64(1)
            at += np.uint64(1)
        out[doc] = third


@kernel
def _sentence_kind(point, word):
    """What a code point that is not ASCII is to sentences."""
    if word >> np.uint32(WHITE) & np.uint32(1):
        return _END if point == 0x85 or point == 0x2028 or point == 0x2029 else _BLANK
    if word >> np.uint32(TERMINAL) & np.uint32(1):
        return _WIDE if point == 0x3002 or point == 0xFF01 or point == 0xFF1F or point == 0xFF61 else _TERMINAL
    if point == 0xAB or point == 0xBB or point == 0x2039 or point == 0x203A:
        return _CLOSING
    if (point >= 0x2018 and point <= 0x201F) or (
        point >= 0x3008 and point <= 0x301B and point & np.uint32(1) and point != 0x3013
    ):
        return _CLOSING
    if point == 0xFF09 or point == 0xFF3D or point == 0xFF5D or point == 0xFF60 or point == 0xFF63:
        return _CLOSING
    return _MARK if word >> np.uint32(PUNCTUATION) & np.uint32(1) else _OTHER


@kernel
def sentences(text, offsets, page, entry, out):
    """
    Into out[d] (int64) for each document: its sentences.

    A sentence begins with what is neither white space nor punctuation, and ends after terminal marks and the quotes
    and brackets that close on them, where white space or the end of the line follows; after a wide mark (U+3002,
    U+FF01, U+FF1F, U+FF61) anything may.  A line, of str.splitlines, that is not blank has at least one.
    """
    for doc in range(len(out)):
        at, end = np.uint64(offsets[doc]), np.uint64(offsets[doc + 1])
        found, of_line, filled, state = 0, 0, False, _OUTSIDE
        while at < end:
            byte = text[at]
            if byte < 128:
                kind = np.int64(_SENTENCE[byte])
                at += np.uint64(1)
            else:
                point, size = decode(text, at, end)
                kind = np.int64(_sentence_kind(point, lookup(page, entry, point)))
                at += size
            if kind == _OTHER:
                begins = state == _OUTSIDE or state == _ENDED_WIDE
                of_line += np.int64(begins)
                state = _WITHIN
            elif kind == _END:
                found += of_line + np.int64(filled and of_line == 0)
                of_line, filled, state = 0, False, _OUTSIDE
            elif kind == _BLANK:
                state = _WITHIN if state == _WITHIN else _OUTSIDE
            else:
                filled = True
                if state != _OUTSIDE:
                    if kind == _WIDE or (state == _ENDED_WIDE and kind != _MARK):
                        state = _ENDED_WIDE
                    elif kind == _TERMINAL or (state == _ENDED and kind == _CLOSING):
                        state = _ENDED
                    else:
                        state = _OUTSIDE if state == _ENDED_WIDE else _WITHIN
        out[doc] = found + of_line + np.int64(filled and of_line == 0)
