"""
Edits: what may be done to a text, once, at reading.  Each takes texts and gives texts, a text for a text.

    clean.py     nfc, strip_control, fix_newlines
    redact.py    redact_email, redact_ip, redact_phone; the first steps are in emails.py, addresses.py, phones.py
    c4.py        c4_lines, c4_lines_relaxed
    replace.py   how an edit replaces some of the texts it is given

A new edit is a function in a module here, a line in EDITS, and a number in VERSIONS that goes up whenever its output
changes.  They run in the order the manifest names them: fix_newlines before strip_control keeps the lines that NEL
ends.
"""

from collections.abc import Callable, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from datapipe.edits.c4 import c4_lines, c4_lines_relaxed
from datapipe.edits.clean import fix_newlines, nfc, strip_control
from datapipe.edits.redact import redact_email, redact_ip, redact_phone

Edit = Callable[[pa.LargeStringArray], pa.LargeStringArray]
EDITS: dict[str, Edit] = {
    "nfc": nfc,
    "strip_control": strip_control,
    "fix_newlines": fix_newlines,
    "c4_lines": c4_lines,
    "c4_lines_relaxed": c4_lines_relaxed,
    "redact_email": redact_email,
    "redact_ip": redact_ip,
    "redact_phone": redact_phone,
}
VERSIONS: dict[str, int] = {
    "nfc": 1,
    "strip_control": 1,
    "fix_newlines": 1,
    "c4_lines": 1,
    "c4_lines_relaxed": 1,
    "redact_email": 1,
    "redact_ip": 1,
    "redact_phone": 1,
}
# libraries whose version decides what an edit gives
LIBRARIES: dict[str, tuple[str, ...]] = {"redact_phone": ("phonenumbers",)}


def apply(texts: pa.LargeStringArray, names: Sequence[str]) -> tuple[pa.LargeStringArray, dict[str, int]]:
    """Texts after the named edits, in that order, and for each edit the number of texts it changed."""
    counts = dict.fromkeys(names, 0)
    for name in names:
        before, texts = texts, EDITS[name](texts)
        counts[name] += pc.call_function("not_equal", [before, texts]).true_count
    return texts, counts
