"""
Makes unicode.npz, the table of code points behind units, words and normal forms, from Python's unicodedata.

    python3.11 -m datapipe.kernels.make_unicode

It refuses any other Unicode version than the one the package promises: meanings must not move with the interpreter.
The folding of a code point is its NFKC_Casefold (UAX #44), kept canonically decomposed (UAX #15).
"""

import unicodedata
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import numpy as np

from datapipe.kernels import unicode as table

SPACE = 0x140000  # every value four bytes of UTF-8 can spell from a lead byte below 0xF5
ALONE = [  # each character is a unit: Han, kana, Thai, Lao, Khmer, Myanmar
    *[(0x3005, 0x3005), (0x3007, 0x3007), (0x3021, 0x3029), (0x3038, 0x303B), (0x3400, 0x4DBF), (0x4E00, 0x9FFF)],
    *[(0xF900, 0xFAFF), (0x20000, 0x323AF)],
    *[(0x3041, 0x309F), (0x30A1, 0x30FF), (0x31F0, 0x31FF), (0xFF66, 0xFF9D), (0x1AFF0, 0x1B16F)],
    *[(0x0E00, 0x0EFF), (0x1780, 0x17FF), (0x1000, 0x109F), (0xA9E0, 0xA9FF), (0xAA60, 0xAA7F)],
]
IGNORABLE = [  # Default_Ignorable_Code_Point of Unicode 14.0, DerivedCoreProperties.txt
    *[(0xAD, 0xAD), (0x34F, 0x34F), (0x61C, 0x61C), (0x115F, 0x1160), (0x17B4, 0x17B5), (0x180B, 0x180F)],
    *[(0x200B, 0x200F), (0x202A, 0x202E), (0x2060, 0x206F), (0x3164, 0x3164), (0xFE00, 0xFE0F), (0xFEFF, 0xFEFF)],
    *[(0xFFA0, 0xFFA0), (0xFFF0, 0xFFF8), (0x1BCA0, 0x1BCA3), (0x1D173, 0x1D17A), (0xE0000, 0xE0FFF)],
]
WHITE = [  # White_Space, PropList.txt
    *[(0x9, 0xD), (0x20, 0x20), (0x85, 0x85), (0xA0, 0xA0), (0x1680, 0x1680), (0x2000, 0x200A), (0x2028, 0x2029)],
    *[(0x202F, 0x202F), (0x205F, 0x205F), (0x3000, 0x3000)],
]
TERMINAL = [  # what may end a sentence: the set that datatrove 0.10.1 goes by (Sentence_Terminal and three Khmer signs)
    *[(0x21, 0x21), (0x2E, 0x2E), (0x3F, 0x3F), (0x589, 0x589), (0x61D, 0x61F), (0x6D4, 0x6D4), (0x700, 0x702)],
    *[(0x7F9, 0x7F9), (0x837, 0x837), (0x839, 0x839), (0x83D, 0x83E), (0x964, 0x965), (0x104A, 0x104B)],
    *[(0x1362, 0x1362), (0x1367, 0x1368), (0x166E, 0x166E), (0x1735, 0x1736), (0x17D4, 0x17D6), (0x17D9, 0x17DA)],
    *[(0x1803, 0x1803), (0x1809, 0x1809), (0x1944, 0x1945), (0x1AA8, 0x1AAB), (0x1B5A, 0x1B5B), (0x1B5E, 0x1B5F)],
    *[(0x1B7D, 0x1B7E), (0x1C3B, 0x1C3C), (0x1C7E, 0x1C7F), (0x203C, 0x203D), (0x2047, 0x2049), (0x2E2E, 0x2E2E)],
    *[(0x2E3C, 0x2E3C), (0x2E53, 0x2E54), (0x3002, 0x3002), (0xA4FF, 0xA4FF), (0xA60E, 0xA60F), (0xA6F3, 0xA6F3)],
    *[(0xA6F7, 0xA6F7), (0xA876, 0xA877), (0xA8CE, 0xA8CF), (0xA92F, 0xA92F), (0xA9C8, 0xA9C9), (0xAA5D, 0xAA5F)],
    *[(0xAAF0, 0xAAF1), (0xABEB, 0xABEB), (0xFE52, 0xFE52), (0xFE56, 0xFE57), (0xFF01, 0xFF01), (0xFF0E, 0xFF0E)],
    *[(0xFF1F, 0xFF1F), (0xFF61, 0xFF61), (0x10A56, 0x10A57), (0x10F55, 0x10F59), (0x10F86, 0x10F89)],
    *[(0x11047, 0x11048), (0x110BE, 0x110C1), (0x11141, 0x11143), (0x111C5, 0x111C6), (0x111CD, 0x111CD)],
    *[(0x111DE, 0x111DF), (0x11238, 0x11239), (0x1123B, 0x1123C), (0x112A9, 0x112A9), (0x1144B, 0x1144C)],
    *[(0x115C2, 0x115C3), (0x115C9, 0x115D7), (0x11641, 0x11642), (0x1173C, 0x1173E), (0x11944, 0x11944)],
    *[(0x11946, 0x11946), (0x11A42, 0x11A43), (0x11A9B, 0x11A9C), (0x11C41, 0x11C42), (0x11EF7, 0x11EF8)],
    *[(0x11F43, 0x11F44), (0x16A6E, 0x16A6F), (0x16AF5, 0x16AF5), (0x16B37, 0x16B38), (0x16B44, 0x16B44)],
    *[(0x16E98, 0x16E98), (0x1BC9F, 0x1BC9F), (0x1DA88, 0x1DA88)],
]
# the rest of what that set of punctuation holds: ASCII's marks, controls but TAB and LF, and these
MARKS = "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~«»´–—’“”„…∶━►、〈〉《》「」【】％（），１：；～"
STROKE = "\u0338"


@dataclass
class Foldings:
    """Foldings end to end, each once."""

    flat: list[int] = field(default_factory=list)
    places: dict[tuple[int, ...], int] = field(default_factory=dict)

    def place(self, items: tuple[int, ...]) -> int:
        """Where these items begin."""
        if items not in self.places:
            self.places[items] = len(self.flat)
            self.flat += items
        assert self.places[items] < 1 << 16
        return self.places[items]


def _set(ranges: list[tuple[int, int]]) -> frozenset[int]:
    return frozenset(cp for low, high in ranges for cp in range(low, high + 1))


_alone, _ignorable, _white = _set(ALONE), _set(IGNORABLE), _set(WHITE)
_terminal = _set(TERMINAL)
_punctuation = _terminal | set(map(ord, MARKS)) | {*range(9), *range(11, 32), *range(127, 160)}


@cache
def folded(text: str) -> str:
    """Casefold, NFKC, no ignorables, until nothing changes."""
    once = unicodedata.normalize("NFKC", text.casefold())
    once = "".join(c for c in once if ord(c) not in _ignorable)
    return text if once == text else folded(once)


@cache
def kind(cp: int) -> int:
    """What a code point of a folded text is to units."""
    category = unicodedata.category(chr(cp))
    if category[0] == "M":
        return table.MARK
    letter = category[0] == "L" or category == "Nd"
    if cp in _alone and (letter or category == "Nl"):
        return table.ONE
    if letter:
        return table.REST
    return table.OPEN if len(unicodedata.normalize("NFC", chr(cp) + STROKE)) == 1 else table.OTHER


def _flags(cp: int) -> int:
    c = chr(cp)
    settled = unicodedata.combining(c) == 0 and cp not in _movable()
    letter, white = unicodedata.category(c)[0] == "L", cp in _white
    unassigned = unicodedata.category(c) == "Cn"
    latin = letter and ("LATIN" in unicodedata.name(c, "").split() or c in "ªº")
    return (
        letter << table.LETTER | white << table.WHITE | (not settled) << table.LOOSE | unassigned << table.UNKNOWN
        | (cp in _punctuation) << table.PUNCTUATION | (cp in _terminal) << table.TERMINAL
        | latin << table.LATIN | c.isnumeric() << table.NUMBER
    )  # fmt: skip


@cache
def _movable() -> frozenset[int]:
    """Starters that NFC may change: their own NFC is another, or a character before them may swallow them."""
    changed = {cp for cp in _scalars() if unicodedata.normalize("NFC", chr(cp)) != chr(cp)}
    pairs = (unicodedata.normalize("NFD", chr(cp)) for cp in _scalars())
    second = {ord(c) for pair in pairs for c in pair[1:]}
    return frozenset(changed | second)


def _scalars() -> list[int]:
    return [*range(0xD800), *range(0xE000, 0x110000)]


def _item(c: str) -> int:
    """One code point of a folding, as it stands in the pool."""
    return ord(c) | kind(ord(c)) << table.KIND | unicodedata.combining(c) << table.CLASS


def _spelling(text: str) -> tuple[int, ...]:
    """The folding as it stands in `spelled`; empty where it is not of one unit, or does not begin with a starter."""
    kinds = [kind(ord(c)) for c in text]
    run = kinds[0] == table.REST and set(kinds) <= {table.REST, table.MARK}
    one = kinds[0] == table.ONE and set(kinds[1:]) <= {table.MARK}
    spelling = (unicodedata.combining(text[-1]), *text.encode())
    return spelling if (run or one) and len(spelling) <= 32 else ()


def _entry(cp: int, spelled: Foldings, pool: Foldings) -> int:
    """The word of one code point; a folding that is not the code point itself is put into `spelled` or `pool`."""
    text = unicodedata.normalize("NFD", folded(chr(cp)))
    if 0xAC00 <= cp <= 0xD7A3:
        return table.HANGUL << table.KIND | _flags(cp)
    if not text:
        return table.NONE << table.KIND | _flags(cp)
    if text == chr(cp):
        return unicodedata.combining(text) | kind(cp) << table.KIND | _flags(cp)
    if all(kind(ord(c)) <= table.OPEN for c in text):  # a wide comma is as good as a comma
        return kind(ord(text[-1])) << table.KIND | _flags(cp)
    if spelling := _spelling(text):
        size, first = len(spelling) - 1, kind(ord(text[0]))
        return spelled.place(spelling) | size << table.SIZE | first << table.KIND | _flags(cp)
    items = tuple(map(_item, text))
    return pool.place(items) | len(items) << table.SIZE | table.MAPPED << table.KIND | _flags(cp)


def _check() -> None:
    """What the kernel takes for granted about canonical composition: it moves no border between units but one."""
    for cp in _scalars():
        pair = unicodedata.normalize("NFD", chr(cp))
        if len(pair) < 2 or folded(chr(cp)) != chr(cp) or kind(cp) == table.OTHER:
            continue
        first, rest = kind(ord(pair[0])), [kind(ord(c)) for c in pair[1:]]
        hangul = 0xAC00 <= cp <= 0xD7A3
        assert first == kind(cp), hex(cp)
        assert hangul or all(k == table.MARK for k in rest), hex(cp)
    for cp in _scalars():
        pair = unicodedata.normalize("NFD", chr(cp))
        if kind(cp) == table.OTHER and len(pair) > 1 and folded(chr(cp)) == chr(cp):
            assert pair[1:] == STROKE, hex(cp)
            assert kind(ord(pair[0])) == table.OPEN, hex(cp)


def make() -> dict[str, np.ndarray]:
    """page: uint16, one per 128 code points; entry: uint32, 128 a page; spelled: uint8 and pool: uint32, foldings."""
    if unicodedata.unidata_version != table.VERSION:
        raise SystemExit(f"Unicode {unicodedata.unidata_version} here, {table.VERSION} is wanted: use Python 3.11")
    _check()
    spelled, pool = Foldings(), Foldings()
    words = np.full(SPACE, table.OTHER << table.KIND, np.uint32)
    for cp in _scalars():
        words[cp] = _entry(cp, spelled, pool)
    entry, page = np.unique(words.reshape(-1, 128), axis=0, return_inverse=True)
    return {
        "page": page.reshape(-1).astype(np.uint16),
        "entry": entry.reshape(-1),
        "spelled": np.array(spelled.flat, np.uint8),
        "pool": np.array(pool.flat, np.uint32),
    }


if __name__ == "__main__":
    arrays = make()
    np.savez_compressed(Path(__file__).parent / table.FILE, **arrays)  # pyright: ignore[reportArgumentType]
    print({name: array.shape for name, array in arrays.items()})
