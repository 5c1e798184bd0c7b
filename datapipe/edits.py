"""
Edits: what may be done to a text, once, at reading.  Each takes texts and gives texts, a text for a text.

A new edit is a function here, a line in EDITS, and a number in VERSIONS that goes up whenever its output changes.
They run in the order the manifest names them: fix_newlines before strip_control keeps the lines that NEL ends.
"""

from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from datapipe import text


def nfc(texts: pa.LargeStringArray) -> pa.LargeStringArray:
    """Canonical composition (NFC of UAX #15), by the package's Unicode version."""
    marks = text.nfc_marks(texts)
    loose = [i for i, mark in enumerate(marks) if mark]
    new = [text.nfc(texts[i].as_buffer().to_pybytes(), marks[i]).decode() for i in loose]
    return _replaced(texts, np.array(marks, bool), pa.array(new, texts.type))


def strip_control(texts: pa.LargeStringArray) -> pa.LargeStringArray:
    """Without control characters (category Cc: C0, DEL, C1), NUL among them; TAB, LF and CR stay, they are layout."""
    return _substituted(texts, r"[\x{00}-\x{08}\x{0b}\x{0c}\x{0e}-\x{1f}\x{7f}-\x{9f}]", "")


def fix_newlines(texts: pa.LargeStringArray) -> pa.LargeStringArray:
    """
    Every line end is LF, for lines are counted by LF alone: CR LF (Windows), CR (old Macs, and what is left of broken
    CR LF), NEL (U+0085, mainframes), LS and PS (U+2028, U+2029).  VT and FF stay: they part pages, not lines.
    """
    return _substituted(texts, r"\r\n|[\r\x{85}\x{2028}\x{2029}]", "\n")


Edit = Callable[[pa.LargeStringArray], pa.LargeStringArray]
EDITS: dict[str, Edit] = {"nfc": nfc, "strip_control": strip_control, "fix_newlines": fix_newlines}
VERSIONS: dict[str, int] = {"nfc": 1, "strip_control": 1, "fix_newlines": 1}


def apply(texts: pa.LargeStringArray, names: Sequence[str]) -> tuple[pa.LargeStringArray, dict[str, int]]:
    """Texts after the named edits, in that order, and for each edit the number of texts it changed."""
    counts = dict.fromkeys(names, 0)
    for name in names:
        before, texts = texts, EDITS[name](texts)
        counts[name] += pc.call_function("not_equal", [before, texts]).true_count
    return texts, counts


def _substituted(texts: pa.LargeStringArray, pattern: str, replacement: str) -> pa.LargeStringArray:
    """Every match of an RE2 pattern replaced; texts without one are only copied, or not even that."""
    options = pc.MatchSubstringOptions(pattern)
    mask = pc.call_function("match_substring_regex", [texts], options).to_numpy(zero_copy_only=False)
    found = texts.filter(pa.array(mask))
    new = pc.call_function("replace_substring_regex", [found], pc.ReplaceSubstringOptions(pattern, replacement))
    return _replaced(texts, mask, new)


def _replaced(texts: pa.LargeStringArray, mask: np.ndarray, new: pa.LargeStringArray) -> pa.LargeStringArray:
    """Texts with those of the mask replaced by the new ones, in order."""
    return pc.call_function("replace_with_mask", [texts, pa.array(mask), new]) if len(new) else texts
