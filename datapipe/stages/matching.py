"""
Many words looked for in many texts at once, by Arrow's regular expressions (RE2), which need no lock of Python.

RE2 runs at memory speed while its automaton fits its own limit, and a hundred times slower where it does not: 400
words of a list do (565 MB/s), 3,000 do not (9 MB/s).  So a list is looked for in groups.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import pyarrow as pa
import pyarrow.compute as pc

WORDS, LETTERS = 400, 8_000  # of a group, at most; one longer word is a group of its own
# what may not stand beside a word: a letter, mark or digit of any script, and `_`
BORDER = r"[^\pL\pM\pN_]"


@dataclass(frozen=True)
class Matcher:
    """Finds entries (distinct or not, not empty) in texts: as whole words or phrases, or anywhere."""

    entries: Sequence[str]
    match: Literal["word", "substring"]

    def first(self, texts: pa.Array) -> pa.Array:
        """For each text an entry that it holds, null where it holds none; case counts."""
        found = pa.nulls(len(texts), pa.string())
        rows = pa.array(range(len(texts)), pa.int64())
        for pattern in self._patterns:
            hit = pc.call_function("match_substring_regex", [texts], pc.MatchSubstringOptions(pattern))
            if hit.true_count:
                matched = texts.filter(hit)
                words = pc.call_function("extract_regex", [matched], pc.ExtractRegexOptions(pattern)).field("entry")
                found = _put(found, rows.filter(hit), words.cast(pa.string()))
                miss = pc.call_function("invert", [hit])
                texts, rows = texts.filter(miss), rows.filter(miss)
        return found

    @cached_property
    def _patterns(self) -> list[str]:
        around = ("", "") if self.match == "substring" else (f"(?:^|{BORDER})", f"(?:{BORDER}|$)")
        return [f"{around[0]}(?P<entry>{'|'.join(group)}){around[1]}" for group in self._groups()]

    def _groups(self) -> Iterator[list[str]]:
        group: list[str] = []
        held = 0
        for word in sorted(set(self.entries)):
            if group and (len(group) == WORDS or held + len(word) > LETTERS):
                yield group
                group, held = [], 0
            group.append(_quoted(word))
            held += len(word)
        if group:
            yield group


def _quoted(word: str) -> str:
    """A text as RE2 takes it for itself; its own \\Q...\\E ends at an \\E."""
    return re.sub(r"([\x00-/:-@\[-`{-\x7f])", lambda found: f"\\x{{{ord(found[0]):x}}}", word)


def _put(found: pa.Array, rows: pa.Array, values: pa.Array) -> pa.Array:
    """`values` at `rows` (sorted)."""
    mask = pc.call_function("is_in", [pa.array(range(len(found)), pa.int64())], pc.SetLookupOptions(rows))
    return pc.call_function("replace_with_mask", [found, mask, values])
