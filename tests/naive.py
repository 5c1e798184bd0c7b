"""
Slow twins of the kernels and of a batch's arrays: the same meanings in obvious code, on str and lists, with Python's
own unicodedata (14.0).
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

TERMINAL = re.compile(  # what may end a sentence, by datatrove 0.10.1
    "[!.?\u0589\u061d-\u061f\u06d4\u0700-\u0702\u07f9\u0837\u0839\u083d\u083e\u0964\u0965\u104a\u104b\u1362"
    "\u1367\u1368\u166e\u1735\u1736\u17d4-\u17d6\u17d9\u17da\u1803\u1809\u1944\u1945\u1aa8-\u1aab\u1b5a\u1b5b"
    "\u1b5e\u1b5f\u1b7d\u1b7e\u1c3b\u1c3c\u1c7e\u1c7f\u203c\u203d\u2047-\u2049\u2e2e\u2e3c\u2e53\u2e54\u3002\ua4ff"
    "\ua60e\ua60f\ua6f3\ua6f7\ua876\ua877\ua8ce\ua8cf\ua92f\ua9c8\ua9c9\uaa5d-\uaa5f\uaaf0\uaaf1\uabeb\ufe52"
    "\ufe56\ufe57\uff01\uff0e\uff1f\uff61\U00010a56\U00010a57\U00010f55-\U00010f59\U00010f86-\U00010f89\U00011047"
    "\U00011048\U000110be-\U000110c1\U00011141-\U00011143\U000111c5\U000111c6\U000111cd\U000111de\U000111df"
    "\U00011238\U00011239\U0001123b\U0001123c\U000112a9\U0001144b\U0001144c\U000115c2\U000115c3\U000115c9-\U000115d7"
    "\U00011641\U00011642\U0001173c-\U0001173e\U00011944\U00011946\U00011a42\U00011a43\U00011a9b\U00011a9c\U00011c41"
    "\U00011c42\U00011ef7\U00011ef8\U00011f43\U00011f44\U00016a6e\U00016a6f\U00016af5\U00016b37\U00016b38\U00016b44"
    "\U00016e98\U0001bc9f\U0001da88]"
)
MARKS = re.compile(  # the rest of its punctuation
    "[\0-\x08\x0b-\x1f\x7f-\x9f\"#$%&'()*+,\\-/:;<=>@\\[\\\\\\]^_`{|}~«»´–—’“”„…∶━►、〈〉《》「」【】％（），１：；～]"
)
CLOSING = set("\"')]}‘’‚‛“”„‟«»‹›〉》」』】〕〗〙〛）］｝｠｣")
WIDE = set("。！？｡")


def normal_form(text: str) -> str:
    """NFC, runs of white space one blank, trimmed."""
    composed = "".join(" " if c in WHITE_SPACE else c for c in unicodedata.normalize("NFC", text))
    return re.sub(" +", " ", composed).strip(" ")


def words(text: str) -> list[str]:
    """Maximal runs of what is not white space."""
    return [word for word in "".join(" " if c in WHITE_SPACE else c for c in text).split(" ") if word]


def punctuation(c: str) -> bool:
    return bool(TERMINAL.match(c) or MARKS.match(c))


def sentences(text: str) -> list[str]:
    """The sentences of a text, line after line, each stripped."""
    found = []
    for line in text.splitlines():
        parts = [""]
        for c in line:
            if _ends_before(c, _ended(parts[-1])):
                parts.append("")
            parts[-1] += c
        found += _joined([part.strip() for part in parts])
    return found


def _ended(part: str) -> str:
    """The terminal marks, quotes and brackets that a part ends with, from its first terminal mark on."""
    end = len(part)
    while end and (part[end - 1] in CLOSING or TERMINAL.match(part[end - 1])):
        end -= 1
    marks = part[end:]
    while marks and not TERMINAL.match(marks[0]):
        marks = marks[1:]
    return marks


def _ends_before(c: str, ended: str) -> bool:
    """Whether a part that ends with these marks ends before c."""
    if not ended or c in CLOSING or TERMINAL.match(c):
        return False
    return c.isspace() or bool(WIDE & set(ended))


def _joined(parts: list[str]) -> list[str]:
    """Parts of a line, those of punctuation alone joined to the one before, or to the first."""
    found: list[str] = []
    for part in parts:
        bare = all(punctuation(c) or c.isspace() for c in part)
        if found and (bare or all(punctuation(c) or c.isspace() for c in found[-1])):
            found[-1] = f"{found[-1]} {part}".strip()
        elif part:
            found.append(part)
    return found


C4_POLICY = ("terms of use", "privacy policy", "cookie policy", "uses cookies", "use of cookies", "use cookies")


def c4_lines(text: str, strict: bool = True) -> tuple[str, dict[str, int]]:
    """The text that C4's rules on lines leave, and the lines, not blank, that each took."""
    kept, taken = [], dict.fromkeys(["long_word", "no_terminal", "few_word", "javascript", "policy"], 0)
    for line in map(str.strip, text.splitlines()):
        bare = re.sub(r"\[(\d*|edit|citation needed)\]", "", line)
        reason = _c4_reason(line, bare, strict)
        if reason is None:
            kept.append(bare)
        elif line:
            taken[reason] += 1
    return "\n".join(kept).strip(), taken


def _c4_reason(line: str, bare: str, strict: bool) -> str | None:
    lower = bare.lower()
    if any(len(word) > 1000 for word in line.split()):
        return "long_word"
    if strict and (bare[-1:] not in tuple(".?!\"'") or bare[-3:] == "..."):
        return "no_terminal"
    if len(line.split()) < 3:
        return "few_word"
    if "lorem ipsum" in lower:
        return None
    if "javascript" in lower:
        return "javascript"
    if "{" in lower:
        return None
    return "policy" if any(phrase in lower for phrase in C4_POLICY) else None


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


def shape(block: bytes) -> tuple[list[tuple[int, int, int]], int, int, bool, int]:
    r"""Start, number, size of lines that are not blank; how many go from { to }; newlines; any \u; bound on nesting."""
    lines, held, objects, start = block.split(b"\n"), [], 0, 0
    for number, line in enumerate(lines):
        if body := line.strip(b" \t\r"):
            held.append((start, number, len(line)))
            objects += body.startswith(b"{") and body.endswith(b"}")
        start += len(line) + 1
    return held, objects, len(lines) - 1, b"\\u" in block, max(map(_nesting, lines))


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


# --- rows of a shard --------------------------------------------------------------------------------------------


def row(ids: list[int], sizes: list[int], sources: list[int], allowed: list[bool] | None = None) -> dict[str, list]:
    """
    Every array of a row of segments of such sizes, token by token; ends: 0, then where each ends, padding as the last.

    allowed: token i may be predicted, None where all may
    """
    length, ends = len(ids), [0]
    segment, position, source = [0] * length, [0] * length, [-1] * length
    for number, (size, kind) in enumerate(zip(sizes, sources, strict=True), 1):
        for i in range(size):
            at = ends[-1] + i
            segment[at], position[at], source[at] = number, i, kind
        ends.append(ends[-1] + size)
    ends += [length] * (ends[-1] < length)
    labels, mask = [-100] * length, [False] * length
    for at in range(length - 1):
        if segment[at] and segment[at] == segment[at + 1] and (allowed is None or allowed[at + 1]):
            mask[at], labels[at] = True, ids[at + 1]
    return {"input_ids": list(ids), "labels": labels, "loss_mask": mask, "position_ids": position,
            "segment_ids": segment, "sources": source, "ends": ends}  # fmt: skip
