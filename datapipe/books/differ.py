"""Two texts word by word: what they share, and where they differ."""

import difflib
import re
from dataclasses import dataclass

WORD = re.compile(r"\S+")
CONTEXT = 6  # equal words shown on either side of a difference; differences closer than twice that go together
MOST = 3000  # words compared between the common beginning and end: the comparison is quadratic at worst


@dataclass(frozen=True)
class Run:
    """Words of both sides: the same words, or those that stand in each other's place (either may be empty)."""

    equal: bool
    left: str
    right: str


@dataclass(frozen=True)
class Hunk:
    """A place where two texts differ, equal words around it; line: that of the first difference in the left text."""

    line: int
    runs: list[Run]


def differ(left: str, right: str, *, limit: int = 5) -> tuple[list[Hunk], bool]:
    """The first `limit` places where two texts differ by words, and whether there are (or may be) more."""
    a, b = WORD.findall(left), WORD.findall(right)
    common = _common(a, b)
    start = max(0, common - CONTEXT)
    end = max(0, _common(a[common:][::-1], b[common:][::-1]) - CONTEXT)
    a_middle, b_middle = a[start : len(a) - end], b[start : len(b) - end]
    cut = max(len(a_middle), len(b_middle)) > MOST
    a_middle, b_middle = a_middle[:MOST], b_middle[:MOST]
    matcher = difflib.SequenceMatcher(None, a_middle, b_middle, autojunk=False)
    groups = [group for group in matcher.get_grouped_opcodes(CONTEXT) if any(code[0] != "equal" for code in group)]
    lines = _lines(left)
    hunks = [_hunk(group, a_middle, b_middle, lines[start:]) for group in groups[:limit]]
    return hunks, cut or len(groups) > limit


def _hunk(group: list[tuple[str, int, int, int, int]], a: list[str], b: list[str], lines: list[int]) -> Hunk:
    runs = [Run(tag == "equal", " ".join(a[i:j]), " ".join(b[k:m])) for tag, i, j, k, m in group]
    first = next(code[1] for code in group if code[0] != "equal")
    return Hunk(lines[min(first, len(lines) - 1)] if lines else 1, runs)


def _common(a: list[str], b: list[str]) -> int:
    """How many words two lists share at the beginning."""
    for n, (x, y) in enumerate(zip(a, b, strict=False)):
        if x != y:
            return n
    return min(len(a), len(b))


def _lines(text: str) -> list[int]:
    """The 1-based line of each word."""
    return [number for number, line in enumerate(text.split("\n"), 1) for _ in WORD.finditer(line)]
