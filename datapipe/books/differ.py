"""
Two texts word by word: what they share, and where they differ.

A character of a script that writes no blanks between words counts as a word here: else a Chinese line is one word, and
one other character marks all of it.
"""

import difflib
import re
from dataclasses import dataclass

# Thai and Lao, Myanmar, Khmer, kana, Han: ranges of a character class
UNSPACED = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
)
WORD = re.compile(rf"[{UNSPACED}]|[^\s{UNSPACED}]+")
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
    a, b = _Words(left), _Words(right)
    common = _common(a.words, b.words)
    start = max(0, common - CONTEXT)
    end = max(0, _common(a.words[common:][::-1], b.words[common:][::-1]) - CONTEXT)
    a_middle, b_middle = a.words[start : len(a.words) - end], b.words[start : len(b.words) - end]
    cut = max(len(a_middle), len(b_middle)) > MOST
    a_middle, b_middle = a_middle[:MOST], b_middle[:MOST]
    matcher = difflib.SequenceMatcher(None, a_middle, b_middle, autojunk=False)
    groups = [group for group in matcher.get_grouped_opcodes(CONTEXT) if any(code[0] != "equal" for code in group)]
    return [_hunk(group, a, b, start) for group in groups[:limit]], cut or len(groups) > limit


class _Words:
    """The words of a text, and where they stand in it."""

    def __init__(self, text: str):
        found = list(WORD.finditer(text))
        self.text = text
        self.words = [one.group() for one in found]
        self._spans = [one.span() for one in found]

    def shown(self, begin: int, stop: int) -> str:
        """Words begin:stop as they stand there, white space as one blank."""
        if begin == stop:
            return ""
        return " ".join(self.text[self._spans[begin][0] : self._spans[stop - 1][1]].split())

    def line(self, word: int) -> int:
        """The 1-based line of a word; after the last one, that of the last."""
        return 1 + self.text.count("\n", 0, self._spans[min(word, len(self.words) - 1)][0]) if self.words else 1


def _hunk(group: list[tuple[str, int, int, int, int]], a: _Words, b: _Words, start: int) -> Hunk:
    """A group of opcodes, of words that are counted from `start`."""
    runs = []
    for tag, i, j, k, m in group:
        left = a.shown(start + i, start + j)
        runs.append(Run(tag == "equal", left, left if tag == "equal" else b.shown(start + k, start + m)))
    first = next(code[1] for code in group if code[0] != "equal")
    return Hunk(a.line(start + first), runs)


def _common(a: list[str], b: list[str]) -> int:
    """How many words two lists share at the beginning."""
    for n, (x, y) in enumerate(zip(a, b, strict=False)):
        if x != y:
            return n
    return min(len(a), len(b))
