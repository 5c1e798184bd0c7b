"""
Slow twins of the kernels: the same meanings in obvious code, on str and lists, with Python's own unicodedata (14.0).
"""

import re
import unicodedata
from functools import cache

import numpy as np
import xxhash

# --- texts -----------------------------------------------------------------------------------------------------

WHITE_SPACE = set("\t\n\v\f\r \x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000") | {chr(c) for c in range(0x2000, 0x200B)}
IGNORABLE = re.compile(  # Default_Ignorable_Code_Point, Unicode 14.0
    "[\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f"
    "\ufeff\uffa0\ufff0-\ufff8\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)
SINGLE = re.compile(  # Han, kana, Thai, Lao, Khmer, Myanmar
    "[\u3005\u3007\u3021-\u3029\u3038-\u303b\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U000323af"
    "\u3041-\u309f\u30a1-\u30ff\u31f0-\u31ff\uff66-\uff9d\U0001aff0-\U0001b16f"
    "\u0e00-\u0eff\u1780-\u17ff\u1000-\u109f\ua9e0-\ua9ff\uaa60-\uaa7f]"
)


def normal_form(text: str) -> str:
    """NFC, runs of white space one blank, trimmed."""
    composed = "".join(" " if c in WHITE_SPACE else c for c in unicodedata.normalize("NFC", text))
    return re.sub(" +", " ", composed).strip(" ")


def words(text: str) -> list[str]:
    """Maximal runs of what is not white space."""
    return [word for word in "".join(" " if c in WHITE_SPACE else c for c in text).split(" ") if word]


@cache
def fold(c: str) -> str:
    """NFKC_Casefold of one character: casefold, NFKC, drop ignorables, until it stays."""
    before, after = "", c
    while before != after:
        before, after = after, IGNORABLE.sub("", unicodedata.normalize("NFKC", after.casefold()))
    return after


@cache
def role(c: str) -> str:
    """What a character of a folded text is: "mark", "single", "run" or "other"."""
    category = unicodedata.category(c)
    if category.startswith("M"):
        return "mark"
    if category.startswith("L") or category == "Nd" or (category == "Nl" and SINGLE.match(c)):
        return "single" if SINGLE.match(c) else "run"
    return "other"


def units(text: str) -> list[str]:
    """The units of a text: folded and composed as a whole, then cut."""
    found: list[str] = []
    open_as = ""  # what the last unit is, while it can still grow
    for c in unicodedata.normalize("NFC", "".join(map(fold, text))):
        is_ = role(c)
        if is_ == "other":
            open_as = ""
        elif open_as and (is_ == "mark" or (is_ == "run" and open_as == "run")):
            found[-1] += c
        else:
            found.append(c)
            open_as = "single" if is_ == "single" else "run"
    return found


def spans(text: str) -> list[tuple[int, int]]:
    """First and end byte of each unit in the UTF-8 of the text; by keeping with every folded character where it was."""
    at, items = 0, []
    for c in text:
        size = len(c.encode())
        items += [(d, at, at + size) for d in unicodedata.normalize("NFD", fold(c))]
        at += size
    found: list[list[int]] = []
    open_as = ""
    for c, start, end in _swallowed(_ordered(items)):
        is_ = role(c)
        if is_ == "other":
            open_as = ""
        elif open_as and (is_ == "mark" or (is_ == "run" and open_as == "run")):
            found[-1] = [min(found[-1][0], start), max(found[-1][1], end)]
        else:
            found.append([start, end])
            open_as = "single" if is_ == "single" else "run"
    return [(start, end) for start, end in found]


def _ordered(items: list) -> list:
    """Canonical order: runs of marks sorted by their class, equal ones as they came."""
    out: list = []
    run: list = []
    for item in [*items, ("", 0, 0)]:
        if item[0] and unicodedata.combining(item[0]):
            run.append(item)
            continue
        out += sorted(run, key=lambda item: unicodedata.combining(item[0]))
        out.append(item)
        run = []
    return out[:-1]


def _swallowed(items: list) -> list:
    """Without the strokes that compose with the sign just before them."""
    out: list = []
    before = ""
    for item in items:
        pair = before + item[0]
        if before and role(before) == "other" and len(unicodedata.normalize("NFC", pair)) == 1:
            before = ""
            continue
        out.append(item)
        before = item[0]
    return out


def unit_hash(unit: str) -> int:
    """XXH64 of the canonically decomposed UTF-8."""
    return xxhash.xxh64_intdigest(unicodedata.normalize("NFD", unit).encode())


def shingles(text: str, n: int) -> set[int]:
    """The hashes of a text's distinct shingles."""
    hashes = [unit_hash(unit) for unit in units(text)]
    runs = [hashes[i : i + n] for i in range(len(hashes) - n + 1)] or [hashes][: len(hashes)]
    return {xxhash.xxh64_intdigest(np.array(run, "<u8").tobytes()) for run in runs}


def shape(block: bytes) -> tuple[int, int, int, int]:
    """Lines that are not blank, those from { to }, newlines, and the bound on nesting."""
    lines = [line.strip(b" \t\r") for line in block.split(b"\n")]
    held = [line for line in lines if line]
    objects = [line for line in held if line.startswith(b"{") and line.endswith(b"}")]
    return len(held), len(objects), block.count(b"\n"), max(map(_nesting, lines))


def _nesting(line: bytes) -> int:
    opened = line.count(b"[") + line.count(b"{")
    if opened <= 128:
        return opened
    bare = re.sub(rb'"(?:[^"\\]|\\.)*("|\\?$)', b"", line, flags=re.DOTALL)
    depth = deepest = 0
    for byte in bare:
        depth += (byte in b"[{") - (byte in b"]}")
        deepest = max(deepest, depth)
    return deepest
