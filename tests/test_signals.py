"""Signals of words and lines against counts made by hand and by a slow twin."""

import json
import math
import unicodedata
from collections.abc import Iterator
from pathlib import Path

import naive
import pyarrow as pa
import pytest
import ruled
from hypothesis import given, settings
from hypothesis import strategies as st

from datapipe import signals
from datapipe.manifest import presets

WORDS = ["word_count", "unit_count", "mean_word_length", "alpha_ratio", "short_line_ratio"]
CASES = [
    ("", [0, 0, None, None, None], "empty: only counts have a meaning"),
    (" \n\u3000\n", [0, 0, None, None, None], "white space only"),
    ("one", [1, 1, 3.0, 1.0, 1.0], "one word"),
    ("- 12 a1 b", [4, 3, 1.5, 0.5, 1.0], "words with a letter: a1 and b"),
    ("été naïve", [2, 2, 4.0, 1.0, 1.0], "lengths are in code points"),
    ("我们是人 ok", [2, 5, 3.0, 1.0, 1.0], "Han: one word, four units"),
    ("a\u00a0b\u2003c\u0085d\x1fe", [4, 5, 1.5, 1.0, 1.0], "white space is White_Space: no separators of ASCII"),
    (
        "x" * 30 + "\n" + "y" * 31 + "\n\n",
        [2, 2, 30.5, 1.0, 0.5],
        "30 code points are short, 31 are not, blank is none",
    ),
    ("é" * 30 + "\n   \n" + "é" * 31, [2, 2, 30.5, 1.0, 0.5], "and the last line may end without a newline"),
    ("½ ① Ⅷ ª", [4, 5, 1.0, 0.25, 1.0], "of these only the ordinal sign is a letter; one half is two units"),
]
# signal, text, its value, why
ONE_BY_ONE = [
    ("max_word_length", "", 0, "no word"),
    ("max_word_length", "a 我们é bb", 3, "in code points"),
    ("non_symbol_word_count", "- -- -a • 。 １ 2 \x01", 3, "a bullet (U+2022) is no punctuation, a full-width one is"),
    ("mean_non_symbol_word_length", "... -ab c —", 2.0, "punctuation in a word counts"),
    ("mean_non_symbol_word_length", "... —", None, "no word of that kind"),
    ("english_stop_words", "the be to of and that have with", 8, "all"),
    ("english_stop_words", "the the the", 1, "distinct ones"),
    ("english_stop_words", "The BE to, (of) band thatch have\u00a0x", 1, "as they stand, as whole words"),
    ("english_stop_words", "éthe théé \x00the \x00\x00\x00\x00\x01the withx", 0, "nothing before, within or behind"),
    ("english_stop_words", "of", 1, "the first and last word"),
    ("hash_ratio", "# a ##b c#", 1.0, "inside of words too"),
    ("hash_ratio", " ", None, "no words"),
    ("ellipsis_ratio", "a... b.. c....... d…… .", 1.0, "seven dots are two, two signs are two"),
    ("ellipsis_ratio", "a..\n. b", 0.0, "not over the end of a line"),
    ("list_ratio", "a b\n\nc\r\nd\u2028e\rf", 0.5, "LF alone, blank lines too"),
    ("bullet_line_ratio", "- a\n  • b\n\nc -\n* d", 0.4, "after white space, blank lines counted"),
    ("bullet_line_ratio", "-a\r\n-b\x0b-c\x0c-d\x1c-e\x85-f\u2028-g\u2029-h\r-i\n", 1.0, "all ends of lines"),
    ("bullet_line_ratio", "\u3000\x1f-a\n\u2023 b\n–c\n\u2022", 0.5, "which white space, which bullets"),
    ("bullet_line_ratio", "", None, "no lines"),
    ("bullet_line_ratio", "\n", 0.0, "one blank line"),
    ("ellipsis_line_ratio", "a...\nb… \u3000\nc..\n...d\n", 0.5, "before white space"),
    ("ellipsis_line_ratio", "...\r\n…", 1.0, "nothing else on the line; CR LF is one end"),
    ("line_punct_ratio", 'a.\nb!\nc?\nd."\ne. \nf.\r\n\ng', 3 / 7, "not stripped: a quote, a blank or CR behind"),
    ("line_punct_ratio", "我。\n你？\nх।\n他：\n…", 0.6, "terminal marks of all scripts, no ellipsis"),
    ("line_punct_ratio", "\x1c\n \n", None, "blank is what str.strip empties"),
    ("short_line_ratio", "x" * 29 + "\r\n" + "x" * 30 + "\r\n" + "é" * 30 + "\n" + "我" * 31, 0.5, "CR counts"),
    ("third_line_length", "a\nbbb\ncc\né", 1, "in code points"),
    ("third_line_length", "aaa\nbb", 0, "fewer lines"),
    ("third_line_length", "aa\n\u2028b\n\ncc\n", 2, "by LF alone"),
    ("sentence_count", "", 0, "none"),
    ("sentence_count", " \n\u2028\t", 0, "nor in white space"),
    ("sentence_count", "one\ntwo\r\nthree\x85four", 4, "a line that is not blank has one"),
    ("sentence_count", "---\n... . !", 2, "of punctuation alone, too, but not more"),
    ("sentence_count", "A. B! C? D", 4, "marks, blanks"),
    ("sentence_count", "3.14 is e.g.this a.b", 1, "no blank after the mark"),
    ("sentence_count", 'He said "Go." (And went.) “Why?” So.', 4, "quotes and brackets close with it"),
    ("sentence_count", "Well... he said . . . no.", 3, "marks alone begin nothing"),
    ("sentence_count", "Hi. — then - no", 2, "a dash belongs to what follows"),
    ("sentence_count", "他说：“好。”然后走了。真的吗？！是｡a", 5, "wide marks need no blank"),
    ("sentence_count", "好。，a。) b", 3, "whatever follows them"),
    ("sentence_count", "वह गया। वह आया॥ ok", 3, "of all scripts"),
    ("lorem_ipsum_lines", "Lorem ipsum\nlorem\nipsum lorem ipsum lorem ipsum\nLOREM  IPSUM", 2, "lines, any case"),
    ("curly_bracket_lines", "{{\n}\na { b\r\n｛\u2028{", 3, "lines, the open one alone"),
]
LINES = list(dict.fromkeys(name for name, *_ in ONE_BY_ONE))
NAMES = list(dict.fromkeys(WORDS + LINES))


@pytest.mark.parametrize("value,wanted,case", CASES, ids=[case for _, _, case in CASES])
def test_signals(value: str, wanted: list[float | None], case: str) -> None:
    found = signals.measure(pa.array(["other", value])[1:], WORDS)
    assert [column[0].as_py() for column in found] == wanted, case


@pytest.mark.parametrize("name,value,wanted,case", ONE_BY_ONE, ids=[f"{row[0]}: {row[3]}" for row in ONE_BY_ONE])
def test_one_signal(name: str, value: str, wanted: float | None, case: str) -> None:
    texts = pa.array(["...- the {", value, ". #\n"], pa.large_string())
    assert signals.SIGNALS[name](texts)[1].as_py() == wanted, case
    assert _twin(value)[name] == wanted, "the twin"


PIECES = [
    *" \n\r\x0b\x1c\x1f\x85\u2028\u2029\u2026\u2022-.#?!\"')“”»。！｡，{}é中ж١\U00010a56\u00a0\u3000",
    *["...", "\r\n", "x" * 29, "é" * 29, "the", "of", "Lorem ipsum", "lorem ipsum", "lore", "m ipsum", "a", "b c"],
]


@settings(deadline=None, max_examples=400)
@given(st.lists(st.lists(st.one_of(st.text(max_size=5), st.sampled_from(PIECES)), max_size=30).map("".join)))
def test_signals_of_anything(values: list[str]) -> None:
    texts = pa.array(values, pa.large_string())
    wanted = [_twin(value) for value in values]
    for name in NAMES:
        assert signals.SIGNALS[name](texts).to_pylist() == [twin[name] for twin in wanted], name


def test_signals_of_the_fixtures() -> None:
    values = list(_fixtures())
    assert len(values) > 500
    wanted = [_twin(value) for value in values]
    for name, column in zip(NAMES, signals.measure(pa.array(values, pa.large_string()), NAMES), strict=True):
        assert column.to_pylist() == [twin[name] for twin in wanted], name


def _fixtures() -> Iterator[str]:
    folder = Path(__file__).parents[1]
    for path in sorted(folder.rglob("fixtures/**/*.jsonl")) + sorted(folder.glob("datapipe/**/*.py")):
        if path.suffix == ".py":
            yield path.read_text("utf-8")
            continue
        for line in path.read_text("utf-8", "replace").splitlines():
            try:
                record = json.loads(line)
            except ValueError:
                continue
            if isinstance(record, dict):
                yield from (value for value in record.values() if isinstance(value, str))


def _twin(value: str) -> dict[str, float | None]:
    words = naive.words(value)
    plain = [word for word in words if not all(map(naive.punctuation, word))]
    lettered = [word for word in words if any(unicodedata.category(c)[0] == "L" for c in word)]
    lines, feeds = value.splitlines(), value.split("\n")
    filled = [line for line in feeds if line.strip()]
    bullets = [line for line in lines if line.strip()[:1] in {"-", "•"}]
    trailing = [line for line in lines if line.strip().endswith(("...", "…"))]
    short = [line for line in filled if len(line) <= 30]
    ended = [line for line in filled if naive.TERMINAL.match(line[-1])]
    return {
        "word_count": len(words),
        "unit_count": len(naive.units(value)),
        "mean_word_length": _ratio(sum(map(len, words)), words),
        "max_word_length": max(map(len, words), default=0),
        "alpha_ratio": _ratio(len(lettered), words),
        "non_symbol_word_count": len(plain),
        "mean_non_symbol_word_length": _ratio(sum(map(len, plain)), plain),
        "english_stop_words": len(set(words) & {"the", "be", "to", "of", "and", "that", "have", "with"}),
        "hash_ratio": _ratio(value.count("#"), words),
        "ellipsis_ratio": _ratio(value.count("...") + value.count("…"), words),
        "list_ratio": _ratio(value.count("\n"), words),
        "bullet_line_ratio": _ratio(len(bullets), lines),
        "ellipsis_line_ratio": _ratio(len(trailing), lines),
        "line_punct_ratio": _ratio(len(ended), filled),
        "short_line_ratio": _ratio(len(short), filled),
        "third_line_length": sorted([0, 0, *map(len, feeds)])[-3],
        "sentence_count": len(naive.sentences(value)),
        "lorem_ipsum_lines": sum("lorem ipsum" in line.lower() for line in lines),
        "curly_bracket_lines": sum("{" in line for line in lines),
    }


def _ratio(part: int, whole: list) -> float | None:
    return part / len(whole) if whole else None


def test_types_and_empty_arrays() -> None:
    counts = {name for name in NAMES if name.endswith(("_count", "_words", "_lines", "_length")) and "mean" not in name}
    for texts in (pa.array([], pa.string()), pa.array(["a"], pa.large_string())):
        for name, column in zip(NAMES, signals.measure(texts, NAMES), strict=True):
            assert column.type == (pa.int64() if name in counts else pa.float64()), name


# --- each rule of the presets finds what it is for ----------------------------------------------------------------


GOPHER: ruled.Cases = {
    ("non_symbol_word_count", "min"): ruled.each(20, lambda n: ruled.prose(30 + n), lambda n: ruled.prose(50 + n)),
    ("non_symbol_word_count", "max"): ruled.each(
        20, lambda n: "word " * (100_001 + n), lambda n: "word " * (100_000 - n)
    ),
    ("mean_non_symbol_word_length", "min"): ruled.each(20, lambda n: "an o " * (60 + n), ruled.page),
    ("mean_non_symbol_word_length", "max"): ruled.each(20, lambda n: "incomprehensibility " * (60 + n), ruled.page),
    ("hash_ratio", "max"): ruled.each(20, lambda n: ruled.prose(60) + " #" * (8 + n), lambda n: ruled.prose(60 + n)),
    ("ellipsis_ratio", "max"): ruled.each(
        20, lambda n: "well… you... know " * (30 + n), lambda n: ruled.page(n) + " and so on..."
    ),
    ("bullet_line_ratio", "max"): ruled.each(
        20, lambda n: "\n".join(["  • a point", "- another"] * (6 + n)), lambda n: "A list:\n- one\n- two\n\n" * (1 + n)
    ),
    ("ellipsis_line_ratio", "max"): ruled.each(
        20, lambda n: "A teaser ...\nof more…\nA line.\n" * (5 + n), lambda n: ruled.page(n) + "\nto be continued..."
    ),
    ("alpha_ratio", "min"): ruled.each(20, lambda n: "table 12 34.5 - " * (20 + n), ruled.page),
    ("english_stop_words", "min"): ruled.each(
        20, lambda n: "der Hund und die Katze gehen of " * (9 + n), lambda n: "the list of all " * (9 + n)
    ),
}
FINEWEB = {
    ("line_punct_ratio", "min"): ruled.each(20, lambda n: "Home\nAbout us\nNews\n" * (4 + n), ruled.page),
    ("short_line_ratio", "max"): ruled.each(20, lambda n: "Home.\nAbout us.\nNews.\n" * (4 + n), ruled.page),
    ("list_ratio", "max"): ruled.each(20, lambda n: "one thing\n\n" * (5 + n), ruled.page),
}


def test_each_rule_of_gopher_quality() -> None:
    ruled.check(presets.load("gopher_quality").keep, GOPHER)


def test_each_rule_of_fineweb_on_lines() -> None:
    bounds = {"line_punct_ratio": {"min": 0.12}, "short_line_ratio": {"max": 0.67}, "list_ratio": {"max": 0.3}}
    ruled.check(bounds, FINEWEB)


EXTRAS = [
    ('{"score":3}', 3.0, "an integer"),
    ('{"score":-2.5e3}', -2500.0, "a float"),
    ('{"score":"3"}', None, "a string is no number"),
    ('{"score":true}', None, "nor is a boolean"),
    ('{"score":null}', None, "null"),
    ('{"score":[1]}', None, "a list"),
    ('{"other":1}', None, "no such field"),
    ("{}", None, "no field at all"),
    (None, None, "no extras"),
    ('{"score":1' + "0" * 400 + "}", math.inf, "more than a double holds is above every bound"),
]


def test_extra_numbers() -> None:
    extra = pa.array([value for value, _, _ in EXTRAS], pa.string())
    (found,) = signals.extra_numbers(extra, ["score"])
    assert found.type == pa.float64()
    assert found.to_pylist() == [wanted for _, wanted, _ in EXTRAS]
    assert [len(column) for column in signals.extra_numbers(extra[:0], ["a", "b"])] == [0, 0]
