"""
The line rules of C4: a text without the lines that they take, and what its lines hold.

Lines, and the white space at their ends, are str.splitlines's and str.strip's (kernels/lines.py); words of a line are
str.split's, which parts at U+001C-U+001F too.
"""

import numpy as np

from datapipe.kernels.jit import given, kernel
from datapipe.kernels.lines import first_of, last_of, line_of, white_byte
from datapipe.kernels.unicode import NUMBER, WHITE, decode, lookup

LONG_WORD = 1000  # code points that a word may have
FEW_WORDS = 3  # words that a line needs
LONG_WORD_LINES, NO_TERMINAL_LINES, FEW_WORD_LINES, SCRIPT_LINES, POLICY_LINES = range(5)  # the rules, in their order
RULES = 5
LOREM, SCRIPT, BRACE, POLICY = 1, 2, 4, 8  # what `held` finds, added up
_LOWER = np.uint8(32)


def _bytes(text: str) -> np.ndarray:
    return given(np.frombuffer(text.encode(), np.uint8))


_LORE, _IPSUM = _bytes("lore"), _bytes("m ipsum")
_TER, _MS_OF_USE = _bytes("ter"), _bytes("ms of use")
_JAVASCRIPT, _PRI, _VACY_POLICY = _bytes("javascript"), _bytes("pri"), _bytes("vacy policy")
_COO, _IE, _IE_POLICY, _IES = _bytes("coo"), _bytes("ie"), _bytes("ie policy"), _bytes("ies")
_USE, _USES, _USE_OF = _bytes("use "), _bytes("uses "), _bytes("use of ")
_EDIT, _NEEDED = _bytes("edit]"), _bytes("citation needed]")
_ANCHOR = np.zeros(256, np.uint8)  # rare bytes, one of which each phrase has; the Kelvin sign (E2 84 AA) is a k
_ANCHOR[list("mMjJvVkK{\u00e2".encode("latin-1"))] = 1
_ANCHOR = given(_ANCHOR)
# the zeros of decimal digits (category Nd, Unicode 14.0): nine more follow each
_ZEROS = (
    "30 660 6f0 7c0 966 9e6 a66 ae6 b66 be6 c66 ce6 d66 de6 e50 ed0 f20 1040 1090 17e0 1810 1946 19d0 1a80 1a90 "
    "1b50 1bb0 1c40 1c50 a620 a8d0 a900 a9d0 a9f0 aa50 abf0 ff10 104a0 10d30 11066 110f0 11136 111d0 112f0 11450 "
    "114d0 11650 116c0 11730 118e0 11950 11c50 11d50 11da0 16a60 16ac0 16b50 1d7ce 1d7d8 1d7e2 1d7ec 1d7f6 1e140 "
    "1e2f0 1e950 1fbf0"
)
_ZEROS = given(np.array([int(zero, 16) for zero in _ZEROS.split()], np.uint32))


@kernel
def _spells(text, at, end, word):
    """Whether text[at:end] begins with a word, whatever the case of its ASCII letters."""
    if np.int64(end - at) < len(word):
        return False
    for i in range(len(word)):
        byte = text[at + np.uint64(i)]
        if byte - np.uint64(65) < np.uint64(26):
            byte |= _LOWER
        if byte != word[i]:
            return False
    return True


@kernel
def _before(text, start, at, word):
    """Whether text[start:at] ends with a word, likewise."""
    size = np.uint64(len(word))
    return at - start >= size and _spells(text, at - size, at, word)


@kernel
def held(text, start, end):
    """
    Which of these text[start:end] holds in lower case, added up: LOREM (lorem ipsum), SCRIPT (javascript), BRACE ({),
    POLICY (terms of use, privacy policy, cookie policy, uses cookies, use of cookies, use cookies).
    """
    found, at, one = 0, start, np.uint64(1)
    while at < end:
        byte, size = text[at], one
        if _ANCHOR[byte] == 0:
            at += one
            continue
        if byte == 123:
            found |= BRACE
        elif byte == 109 or byte == 77:
            if _spells(text, at, end, _IPSUM) and _before(text, start, at, _LORE):
                found |= LOREM
            elif _spells(text, at, end, _MS_OF_USE) and _before(text, start, at, _TER):
                found |= POLICY
        elif byte == 106 or byte == 74:
            if _spells(text, at, end, _JAVASCRIPT):
                found |= SCRIPT
        elif byte == 118 or byte == 86:
            if _spells(text, at, end, _VACY_POLICY) and _before(text, start, at, _PRI):
                found |= POLICY
        else:
            if byte == 0xE2:
                kelvin = end - at > np.uint64(2) and text[at + one] == 0x84 and text[at + np.uint64(2)] == 0xAA
                size = np.uint64(3 if kelvin else 0)
            if size and _before(text, start, at, _COO) and _spells(text, at + size, end, _IE):
                coo = at - np.uint64(3)
                if _spells(text, at + size, end, _IE_POLICY):
                    found |= POLICY
                elif _spells(text, at + size, end, _IES) and (
                    _before(text, start, coo, _USE)
                    or _before(text, start, coo, _USES)
                    or _before(text, start, coo, _USE_OF)
                ):
                    found |= POLICY
        at += one
    return found


@kernel
def _decimal(point):
    """Whether a code point is a decimal digit."""
    low, high = 0, len(_ZEROS)
    while high - low > 1:
        middle = (low + high) // 2
        if _ZEROS[middle] <= point:
            low = middle
        else:
            high = middle
    return point >= _ZEROS[low] and point - _ZEROS[low] < np.uint32(10)


@kernel
def _citation(text, at, end, page, entry):
    """The end of a citation that begins at the bracket text[at]: digits or none, edit, citation needed; else at."""
    one = np.uint64(1)
    to = at + one
    if _exact(text, to, end, _EDIT):
        return to + np.uint64(len(_EDIT))
    if _exact(text, to, end, _NEEDED):
        return to + np.uint64(len(_NEEDED))
    while to < end:
        byte = text[to]
        if byte == 93:
            return to + one
        if byte < 128:
            if np.uint8(byte - np.uint8(48)) > 9:
                return at
            to += one
        else:
            point, size = decode(text, to, end)
            if not (lookup(page, entry, point) >> np.uint32(NUMBER) & np.uint32(1) and _decimal(point)):
                return at
            to += size
    return at


@kernel
def _exact(text, at, end, word):
    if np.int64(end - at) < len(word):
        return False
    for i in range(len(word)):
        if text[at + np.uint64(i)] != word[i]:
            return False
    return True


@kernel
def _words_of(text, at, end, page, entry, enough):
    """The words of text[at:end] by str.split, counted up to `enough`."""
    words, inside, one = 0, False, np.uint64(1)
    while at < end and words < enough:
        byte = text[at]
        if byte < 128:
            white = white_byte(byte)
            at += one
        else:
            point, size = decode(text, at, end)
            white = lookup(page, entry, point) >> np.uint32(WHITE) & np.uint32(1) != 0
            at += size
        words += np.int64(not (white or inside))
        inside = not white
    return words


@kernel
def _has_long_word(text, at, end, page, entry):
    """Whether a word of text[at:end] by str.split has more than LONG_WORD code points."""
    points, one, most = np.uint64(0), np.uint64(1), np.uint64(LONG_WORD)
    while at < end and end - at + points > most:
        byte = text[at]
        if byte < 128:
            white = white_byte(byte)
            at += one
        else:
            point, size = decode(text, at, end)
            white = lookup(page, entry, point) >> np.uint32(WHITE) & np.uint32(1) != 0
            at += size
        points = np.uint64(0) if white else points + one
        if points > most:
            return True
    return False


@kernel
def _ends_well(text, start, end):
    """Whether a line ends with one of . ? ! " ' and not with three dots."""
    if end == start:
        return False
    byte = text[end - np.uint64(1)]
    if byte == 46:
        dots = end - start > np.uint64(2) and text[end - np.uint64(2)] == 46 and text[end - np.uint64(3)] == 46
        return not dots
    return byte == 63 or byte == 33 or byte == 34 or byte == 39


@kernel
def clean(text, offsets, page, entry, strict, out, bounds, counts):
    """
    Writes each document text[offsets[d]:offsets[d + 1]] to out[bounds[d]:bounds[d + 1]] without the lines that the
    rules take: each line trimmed, citations out of it, the lines joined by LF, white space off both ends.  strict: a
    line must end with a terminal mark.  A line that passed the first three rules and holds lorem ipsum or { stays,
    for rules on documents to see.  out has a byte a document more than all documents; counts int64[documents, RULES],
    0 before: lines that each rule took, the first that took it; blank lines go too and are not counted.
    """
    filled, one = np.uint64(0), np.uint64(1)
    for doc in range(len(counts)):
        next_line, end = np.uint64(offsets[doc]), np.uint64(offsets[doc + 1])
        begin = filled
        while next_line < end:
            at = next_line
            stop, next_line = line_of(text, at, end)
            at = first_of(text, at, stop, page, entry)
            stop = last_of(text, at, stop, page, entry)
            if at == stop:
                continue
            if stop - at > np.uint64(LONG_WORD) and _has_long_word(text, at, stop, page, entry):
                counts[doc, LONG_WORD_LINES] += 1
                continue
            line, copied = filled, at
            for i in range(at, stop):
                if text[i] != 91 or i < copied:
                    continue
                to = _citation(text, np.uint64(i), stop, page, entry)
                if to > np.uint64(i):
                    for k in range(copied, i):
                        out[filled] = text[k]
                        filled += one
                    copied = to
            size = stop - copied
            for k in range(size):
                out[filled + k] = text[copied + k]
            filled += size
            if strict and not _ends_well(out, line, filled):
                counts[doc, NO_TERMINAL_LINES] += 1
                filled = line
                continue
            if _words_of(text, at, stop, page, entry, FEW_WORDS) < FEW_WORDS:
                counts[doc, FEW_WORD_LINES] += 1
                filled = line
                continue
            found = held(out, line, filled)
            if found and not found & LOREM and (found & SCRIPT or not found & BRACE):
                counts[doc, SCRIPT_LINES if found & SCRIPT else POLICY_LINES] += 1
                filled = line
                continue
            if line == begin:  # what a citation leaves at the beginning of the text
                first = first_of(out, line, filled, page, entry)
                if first > line:
                    for k in range(filled - first):
                        out[line + k] = out[first + k]
                    filled -= first - line
            out[filled] = 10
            filled += np.uint64(filled > begin)
        filled = last_of(out, begin, filled, page, entry)
        bounds[doc + 1] = filled


@kernel
def marked(text, offsets, out):
    """
    Into out[d] (int64[3]) for each document: lines that hold lorem ipsum in whatever case, lines that hold {, and 1
    where one of the former comes before all others of the latter.
    """
    for doc in range(len(out)):
        at, end = np.uint64(offsets[doc]), np.uint64(offsets[doc + 1])
        lorem, brace, first = 0, 0, 0
        while at < end:
            stop, after = line_of(text, at, end)
            found = held(text, at, stop)
            first |= np.int64(brace == 0 and found & LOREM != 0)
            lorem += np.int64(found & LOREM != 0)
            brace += np.int64(found & BRACE != 0)
            at = after
        out[doc, 0], out[doc, 1], out[doc, 2] = lorem, brace, first
