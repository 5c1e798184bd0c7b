"""Edits: what each changes, what it leaves, and how many texts it counts."""

import unicodedata

import pyarrow as pa
import pytest

from datapipe import edits

CASES = [
    ("nfc", "e\u0301te\u0301", "été", "marks are composed"),
    ("nfc", "\u1112\u1161\u11ab", "한", "jamo are composed"),
    ("nfc", "a\u0301\u0327", "\u00e1\u0327", "marks in the wrong order"),
    ("nfc", "\u2126 \u212b \uf900", "Ω Å 豈", "characters that are another one"),
    ("nfc", "ﬁ ½ Ａ  x\n\ny", "ﬁ ½ Ａ  x\n\ny", "compatibility forms and white space stay"),
    ("nfc", "\u0344\u0958", "\u0308\u0301\u0915\u093c", "what NFC takes apart"),
    ("strip_control", "a\x00b\x1b[0m\x7f\x9cc", "ab[0mc", "NUL, ESC, DEL and C1 go"),
    ("strip_control", "a\tb\r\nc\nd", "a\tb\r\nc\nd", "TAB, CR and LF stay"),
    ("strip_control", "\x0b\x0c\x85", "", "nothing may be left"),
    ("strip_control", "a\u00a0b\u200bc\u00ad", "a\u00a0b\u200bc\u00ad", "blanks and format characters are no controls"),
    ("fix_newlines", "a\r\nb\rc\r\r\nd", "a\nb\nc\n\nd", "CR LF is one line end, CR another"),
    ("fix_newlines", "a\u0085b\u2028c\u2029d", "a\nb\nc\nd", "NEL, LS, PS"),
    ("fix_newlines", "a\x0bb\x0cc\nd", "a\x0bb\x0cc\nd", "VT, FF and LF stay"),
    ("fix_newlines", "中文…\u2027\u202a", "中文…\u2027\u202a", "neighbours of LS and PS stay"),
]


@pytest.mark.parametrize("name,before,after,case", CASES, ids=[f"{name}: {case}" for name, _, _, case in CASES])
def test_edit(name: str, before: str, after: str, case: str) -> None:
    texts = pa.array(["left alone", before, "", "also é中"], pa.large_string())
    found, counts = edits.apply(texts, [name])
    assert found.type == pa.large_string()
    assert found.to_pylist() == ["left alone", after, "", "also é中"], case
    assert counts == {name: int(before != after)}


def test_edits_run_in_the_order_named() -> None:
    texts = pa.array(["a\x85b"], pa.large_string())
    assert edits.apply(texts, ["fix_newlines", "strip_control"])[0].to_pylist() == ["a\nb"]
    assert edits.apply(texts, ["strip_control", "fix_newlines"])[0].to_pylist() == ["ab"]


@pytest.mark.parametrize("name", edits.EDITS)
def test_slices_and_empty_arrays(name: str) -> None:
    values = ["e\u0301", "x\r", "\x00", "é", "e\u0301\x00\r", ""]
    texts = pa.array(values, pa.large_string())
    whole = edits.EDITS[name](texts).to_pylist()
    for low, high in ((0, 0), (2, 2), (1, 4), (4, 6)):
        assert edits.EDITS[name](texts[low:high]).to_pylist() == whole[low:high]
    assert edits.apply(texts[:0], [name])[1] == {name: 0}


def test_nfc_is_unicodedatas_on_every_assigned_letter() -> None:
    values = [f"{chr(cp)}\u0301\u0323" for cp in range(0x3000) if unicodedata.category(chr(cp))[0] in "LM"]
    found, _ = edits.apply(pa.array(values, pa.large_string()), ["nfc"])
    assert found.to_pylist() == [unicodedata.normalize("NFC", value) for value in values]


def test_every_edit_has_a_version() -> None:
    assert edits.VERSIONS.keys() == edits.EDITS.keys()
