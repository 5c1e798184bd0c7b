"""
The Unicode table: what a code point folds to, and what it is to units, words and normal forms.

Made by make_unicode.py at one fixed version, and shipped, so that a unit means the same under every Python.
`entry[page[cp >> 7] << 7 | cp & 127]` is a word of bits:

    0-15   ccc of a mark that folds to itself, or the place of the folding (in `spelled` or `pool`)
    16-20  size of the folding: code points in `pool` where the kind is MAPPED, else bytes in `spelled`; 0 = itself
    21-23  kind (below), that of the first code point of the folding
    24-27  flags of the code point as it stands: letter, White_Space, NFC may change it, unassigned
    28-31  punctuation (and controls), terminal mark, letter of the Latin script, number

What folds to separators alone is one itself, without a folding.  A folding in `spelled` is the ccc of its last code
point and then its UTF-8.  A word of `pool` holds a code point (bits 0-20), its kind (21-23) and its ccc (24-31).
"""

from functools import cache
from pathlib import Path

import numpy as np

from datapipe.kernels.jit import given, kernel

VERSION = "14.0.0"
FILE = "unicode.npz"

OTHER = 0  # separates units
OPEN = 1  # separates, and composes with a following U+0338, as = does to the one character "not equal"
REST = 2  # letters, digits of a run, and marks after them: a folding is REST where all of it is of one run
ONE = 3  # a unit by itself, with the marks after it
MARK = 4  # joins the unit before it, or begins one
HANGUL = 5  # a syllable: folds to its jamo, by arithmetic
MAPPED = 6  # folds to several things: `pool` says which
NONE = 7  # folds to nothing: a default ignorable

CLASS, SIZE, KIND, LETTER, WHITE, LOOSE, UNKNOWN = 24, 16, 21, 24, 25, 26, 27
PUNCTUATION, TERMINAL, LATIN, NUMBER = 28, 29, 30, 31


@cache
def tables() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """page uint16[10240], entry uint32, spelled uint8, pool uint32; read-only."""
    with np.load(Path(__file__).parent / FILE) as file:
        return given(file["page"]), given(file["entry"]), given(file["spelled"]), given(file["pool"])


@kernel
def lookup(page, entry, cp):
    """The word of a code point below 0x140000."""
    return entry[(np.uint64(page[cp >> np.uint32(7)]) << np.uint64(7)) | np.uint64(cp & np.uint32(127))]


@kernel
def decode(text, at, end):
    """
    The code point at a byte that is not ASCII, and its length in bytes.  Text that is not UTF-8 gives U+FFFF
    (a separator) a byte at a time and is never read beyond its end.
    """
    lead = np.uint32(text[at])
    left = end - at
    one, two, three = np.uint64(1), np.uint64(2), np.uint64(3)
    if lead >= 0xE0 and lead < 0xF0 and left > two:
        middle = (np.uint32(text[at + one]) & np.uint32(63)) << np.uint32(6)
        return (lead & np.uint32(15)) << np.uint32(12) | middle | np.uint32(text[at + two]) & np.uint32(63), three
    if lead >= 0xC2 and lead < 0xE0 and left > one:
        return (lead & np.uint32(31)) << np.uint32(6) | np.uint32(text[at + one]) & np.uint32(63), two
    if lead >= 0xF0 and lead < 0xF5 and left > three:
        high = (lead & np.uint32(7)) << np.uint32(18) | (np.uint32(text[at + one]) & np.uint32(63)) << np.uint32(12)
        low = (np.uint32(text[at + two]) & np.uint32(63)) << np.uint32(6) | np.uint32(text[at + three]) & np.uint32(63)
        return high | low, np.uint64(4)
    return np.uint32(0xFFFF), one
