"""
Edits that clean: the same text, spelled in one way.
"""

import numpy as np
import pyarrow as pa

from datapipe import text
from datapipe.edits.replace import replaced, substituted


def nfc(texts: pa.LargeStringArray) -> pa.LargeStringArray:
    """Canonical composition (NFC of UAX #15), by the package's Unicode version."""
    marks = text.nfc_marks(texts)
    loose = [i for i, mark in enumerate(marks) if mark]
    new = [text.nfc(texts[i].as_buffer().to_pybytes(), marks[i]).decode() for i in loose]
    return replaced(texts, np.array(marks, bool), pa.array(new, texts.type))


def strip_control(texts: pa.LargeStringArray) -> pa.LargeStringArray:
    """Without control characters (category Cc: C0, DEL, C1), NUL among them; TAB, LF and CR stay, they are layout."""
    return substituted(texts, r"[\x{00}-\x{08}\x{0b}\x{0c}\x{0e}-\x{1f}\x{7f}-\x{9f}]", "")


def fix_newlines(texts: pa.LargeStringArray) -> pa.LargeStringArray:
    """
    Every line end is LF, for lines are counted by LF alone: CR LF (Windows), CR (old Macs, and what is left of broken
    CR LF), NEL (U+0085, mainframes), LS and PS (U+2028, U+2029).  VT and FF stay: they part pages, not lines.
    """
    return substituted(texts, r"\r\n|[\r\x{85}\x{2028}\x{2029}]", "\n")
