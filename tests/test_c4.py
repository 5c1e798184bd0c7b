"""The lines that C4 keeps, and what its rules on lines and documents count."""

import json
from pathlib import Path

import naive
import numpy as np
import pyarrow as pa
import pytest
import ruled
from hypothesis import given, settings
from hypothesis import strategies as st

from datapipe import signals
from datapipe.edits import c4
from datapipe.kernels import c4 as kernels
from datapipe.kernels import unicode
from datapipe.manifest import presets

COUNTS = {
    "long_word": "c4_long_word_lines",
    "no_terminal": "c4_no_terminal_lines",
    "few_word": "c4_few_word_lines",
    "javascript": "c4_javascript_lines",
    "policy": "c4_policy_lines",
}
LONG = "x" * 1000
LINE = "All is well here."
# text, what the strict rules leave, the rule that takes a line (or None), why
CASES = [
    ("", "", None, "empty"),
    (" \n\t\n\u3000", "", None, "blank lines go and are not counted"),
    (f"{LINE}\r\n\n {LINE}\x0b{LINE}\u2028\x1f{LINE}\u00a0", "\n".join([LINE] * 4), None, "trimmed, joined by LF"),
    (f"a b {LONG}.", "", "long_word", "1,001 code points"),
    (f"a b {LONG[1:]}.", f"a b {LONG[1:]}.", None, "1,000 are not too many"),
    (f"a b {'é' * 999}.", f"a b {'é' * 999}.", None, "code points, not bytes"),
    (f"a b {'é' * 999}\x1f.", f"a b {'é' * 999}\x1f.", None, "words by str.split"),
    (f"a b {'é' * 1001} .", "", "long_word", "no mark at fault"),
    (f"a b {LONG}x", "", "long_word", "the first rule counts it"),
    ("Is this well? Yes!", "Is this well? Yes!", None, "? and !"),
    ("He said \"no\"\nand then 'yes'", "He said \"no\"\nand then 'yes'", None, "quotes end a line"),
    ("All is well here", "", "no_terminal", "no mark"),
    ("All is well here...", "", "no_terminal", "three dots"),
    ("All is well here..", "All is well here..", None, "two dots are a dot"),
    ("All is well here…", "", "no_terminal", "nor an ellipsis"),
    ("All is well here.”", "", "no_terminal", "nor other quotes"),
    ("一 二 三。", "", "no_terminal", "nor other scripts"),
    ("Hello there.", "", "few_word", "two words"),
    ("Hello there .", "Hello there .", None, "a mark alone is a word"),
    ("Hello\u2003there\x1f.", "Hello\u2003there\x1f.", None, "white space is str.split's"),
    ("Words [1][23] are[]\u2009here[edit].[citation needed]", "Words  are\u2009here.", None, "citations go"),
    ("Arabic [٣٤] and [１２][४].", "Arabic  and .", None, "digits of all scripts"),
    ("A [a] [1 ] [½] [Edit] [²] [٣x] [edit.", "A [a] [1 ] [½] [Edit] [²] [٣x] [edit.", None, "these are none"),
    ("Once [[1]] is enough.", "Once [] is enough.", None, "what is left is not read again"),
    ("All is well here. [3]", "", "no_terminal", "it leaves a blank at the end"),
    ("Yes [1].", "", "few_word", "two with a citation"),
    ("Yes [1] .", "Yes  .", None, "words are counted with the citations"),
    (f"[1] {LINE}\n[2] {LINE}", f"{LINE}\n {LINE}", None, "the text is trimmed, its lines are not again"),
    ("Please turn JavaScript on.", "", "javascript", "in whatever case"),
    ("The Cookie Policy, see there.", "", "policy", "cookie policy"),
    ("Our Terms of USE apply here.", "", "policy", "terms of use"),
    ("A privacy policy is here.", "", "policy", "privacy policy"),
    ("It uses cookies. We use cookies!\nfor the use of cookies.", "", "policy", "uses, use, use of"),
    ("The COO\u212aIE policy, see there.", "", "policy", "a Kelvin sign is a k in lower case"),
    (
        "Terms  of use, of cookies, used cookies, use of  cookies, private policy.",
        "Terms  of use, of cookies, used cookies, use of  cookies, private policy.",
        None,
        "near misses",
    ),
    ("We javascr\u0130pt a line.", "We javascr\u0130pt a line.", None, "a dotted capital I is two characters"),
    ("Take LOREM Ipsum and JavaScript and { here.", "Take LOREM Ipsum and JavaScript and { here.", None, "lorem first"),
    ("Take JavaScript and { here.", "", "javascript", "javascript before the bracket"),
    ("Terms of use and { here.", "Terms of use and { here.", None, "the bracket before policy"),
    ("lorem ipsum\n{\nlorem { ipsum", "", "no_terminal", "a line that is gone anyway shows nothing"),
    ("A lorem [1]ipsum is here.", "A lorem ipsum is here.", None, "after citations"),
    ("a b \\{ } [edit].", "a b \\{ } .", None, "any open bracket"),
]


def edited(edit, *values: str) -> list[str]:
    return edit(pa.array(values, pa.large_string())).to_pylist()


@pytest.mark.parametrize("value,wanted,rule,case", CASES, ids=[case for *_, case in CASES])
def test_lines(value: str, wanted: str, rule: str | None, case: str) -> None:
    assert edited(c4.c4_lines, f"{LINE}\nx", value, LINE) == [LINE, wanted, LINE], case
    found = {rule: signals.SIGNALS[name](pa.array(["x", value, "y"]))[1].as_py() for rule, name in COUNTS.items()}
    assert {name for name, count in found.items() if count} == ({rule} if rule else set())
    assert naive.c4_lines(value) == (wanted, found)


RELAXED = [
    ("All is well\n一 二 三。", "All is well\n一 二 三。", "any end"),
    ("Read on...\nRead on and on...", "Read on and on...", "three words still"),
    ("All is well [3]\nhere and there [4]", "All is well \nhere and there", "what a citation leaves"),
    ("[1] [2] [3]\n[1] [2] [3]\nall is well", "all is well", "lines of citations alone at the beginning"),
    ("all is well\n[1] [2] [3]\nall is well", "all is well\n  \nall is well", "and within"),
    ("Please turn JavaScript on\nterms of use apply\n{ a b\nx", "{ a b", "the other rules hold"),
]


@pytest.mark.parametrize("value,wanted,case", RELAXED, ids=[case for *_, case in RELAXED])
def test_relaxed_lines(value: str, wanted: str, case: str) -> None:
    assert edited(c4.c4_lines_relaxed, LINE, value, "") == [LINE, wanted, ""], case
    assert naive.c4_lines(value, strict=False)[0] == wanted


PIECES = [
    *["\n", "\r\n", "\x1c", "\x1f", "\u2028", "\u3000", " ", ".", "?", '"', "...", "{", "[", "]", "[1]", "[٣]"],
    *["[edit]", "[citation needed]", "a", "é", "中", "lorem ipsum", "Lorem ", "ipsum", "JavaScript", "java"],
    *[
        "script",
        "terms of ",
        "use",
        "uses ",
        "of ",
        "cookie",
        "COO\u212aIES",
        " policy",
        "Privacy",
        " one two three.",
        "x" * 998,
        "é" * 998,
    ],
]
PIECES_OF_TEXT = st.lists(st.one_of(st.text(max_size=3), st.sampled_from(PIECES)), max_size=40).map("".join)


@settings(deadline=None, max_examples=400)
@given(st.lists(PIECES_OF_TEXT, max_size=5))
def test_lines_of_anything(values: list[str]) -> None:
    assert_like_the_twin(values)


def assert_like_the_twin(values: list[str]) -> None:
    strict = [naive.c4_lines(value) for value in values]
    assert edited(c4.c4_lines, *values) == [text for text, _ in strict]
    assert edited(c4.c4_lines_relaxed, *values) == [naive.c4_lines(value, strict=False)[0] for value in values]
    found = signals.measure(pa.array(values, pa.large_string()), list(COUNTS.values()))
    for rule, column in zip(COUNTS, found, strict=True):
        assert column.to_pylist() == [taken[rule] for _, taken in strict], rule


def test_lines_of_the_fixtures_and_the_source() -> None:
    folder = Path(__file__).parents[1]
    paths = [path for suffix in ("*.py", "*.md", "*.yaml") for path in sorted(folder.glob(f"[dtfm]*/**/{suffix}"))]
    values = [path.read_text("utf-8") for path in paths]
    assert len(values) > 100
    assert_like_the_twin(values)


def test_many_texts_in_pieces(monkeypatch) -> None:
    values = [f"{LINE}\n{n}\n{LINE}" for n in range(500)] + [""]
    texts = pa.array(values, pa.large_string())
    monkeypatch.setattr(c4, "_PIECE", 1000)
    assert c4.c4_lines(texts).to_pylist() == [f"{LINE}\n{LINE}"] * 500 + [""]
    assert c4.c4_lines(texts[3:5]).to_pylist() == [f"{LINE}\n{LINE}"] * 2
    assert c4.c4_lines(texts[:0]).to_pylist() == []


def test_lower_case_letters_of_ascii_come_from_ascii_and_two_more() -> None:
    """Python's lower() of anything else holds none: what `held` relies on."""
    assert [cp for cp in range(128, 0x110000) if any(ord(c) < 128 for c in chr(cp).lower())] == [0x130, 0x212A]


def test_digits_of_citations_are_pythons() -> None:
    """All decimal digits of the Unicode version that the table is of (Python 3.11's and later ones' subset)."""
    digits = [chr(cp) for cp in range(0x80, 0x110000) if chr(cp).isnumeric()]
    texts = edited(c4.c4_lines_relaxed, *[f"a b [{c}]c" for c in digits])
    taken = {c for c, text in zip(digits, texts, strict=True) if text == "a b c"}
    assert len(taken) == 650
    assert all(c.isdecimal() for c in taken)


def test_bytes_that_are_no_utf8_stay_inside_their_text() -> None:
    """The kernel never reads beyond a text, whatever the bytes."""
    random = np.random.default_rng(7)
    page, entry, *_ = unicode.tables()
    data = random.choice(np.frombuffer(b'\xe2\x80\xa8\xc2\x85\xf0[]12 .{mMkK\n"\xff', np.uint8), 20_000)
    offsets = np.sort(random.integers(0, len(data) + 1, 300))
    out, bounds = np.empty(len(data) + 300, np.uint8), np.zeros(len(offsets), np.int64)
    counts = np.zeros((len(offsets) - 1, kernels.RULES), np.int64)
    kernels.clean(data, offsets, page, entry, False, out, bounds, counts)
    assert (np.diff(bounds) >= 0).all()
    assert (np.diff(bounds) <= np.diff(offsets)).all()


# --- each rule finds what it is for -------------------------------------------------------------------------------

LOREM = "Here lorem ipsum stands for a text."
BRACE = "We write { and go on with it."
RULES: ruled.Cases = {
    ("lorem_ipsum_first", "max"): ruled.each(20, lambda n: f"{ruled.page(n)}\n{LOREM}\n{BRACE}", ruled.page),
    ("lorem_ipsum_lines", "max"): ruled.each(20, lambda n: f"{ruled.page(n)}\n{BRACE}\n{LOREM}", ruled.page),
    ("curly_bracket_lines", "max"): ruled.each(20, lambda n: f"{BRACE}\n{ruled.page(n)}", ruled.page),
    ("sentence_count", "min"): ruled.each(20, lambda n: f"{LINE} " * (n % 3 + 1) + "word " * n, ruled.page),
}
FIRST = [
    ("", 0), ("x\n{", 0), ("{\nlorem ipsum", 0), ("lorem ipsum", 1), ("a Lorem Ipsum\n{", 1), ("{ lorem ipsum\n{", 1),
    ("lorem\nipsum", 0), ("}\x0clorem ipsum\u2028{", 1), ("{\rlorem ipsum", 0),
]  # fmt: skip


def test_which_mark_comes_first() -> None:
    (found,) = signals.measure(pa.array([text for text, _ in FIRST]), ["lorem_ipsum_first"])
    assert found.to_pylist() == [wanted for _, wanted in FIRST]


LINE_RULES = {
    "long_word": f"a b {LONG}.",
    "no_terminal": "Home and more and about us",
    "few_word": "Read more.",
    "javascript": "Please enable JavaScript for this page.",
    "policy": "This site uses cookies to remember you.",
}


def test_each_rule_of_c4_on_documents() -> None:
    ruled.check(presets.load("c4").keep, RULES)


@pytest.mark.parametrize("rule,line", LINE_RULES.items(), ids=LINE_RULES)
def test_each_rule_of_c4_on_lines(rule: str, line: str) -> None:
    for n in range(20):
        page = ruled.page(n)
        kept = page.replace("\n\n", "\n")
        assert edited(c4.c4_lines, page, f"{line}\n{page}\n{line}") == [kept, kept]
        (counts,) = signals.measure(pa.array([page, f"{line}\n{page}\n{line}"]), [COUNTS[rule]])
        assert counts.to_pylist() == [0, 2]


def test_a_bracket_takes_the_page_that_has_one_and_no_other() -> None:
    """Case B10: of three pages that differ in one sign, the one with an open bracket goes; a closed one stays."""
    path = Path(__file__).parents[2] / "shared" / "cases" / "B10" / "curly.jsonl"
    if not path.exists():
        pytest.skip("the shared cases are not here")
    pages = {record["id"]: record["text"] for record in map(json.loads, path.read_text("utf-8").splitlines())}
    texts = c4.c4_lines(pa.array(pages.values(), pa.large_string()))
    assert texts.to_pylist() == list(pages.values())
    bounds = presets.load("c4").keep
    found = {name: signals.SIGNALS[name](texts).to_pylist() for name in bounds}
    assert found["lorem_ipsum_lines"] == found["lorem_ipsum_first"] == [0, 0, 0]
    assert dict(zip(pages, found["curly_bracket_lines"], strict=True)) == {"plain": 0, "open": 1, "close": 0}
    assert min(found["sentence_count"]) >= bounds["sentence_count"]["min"]
