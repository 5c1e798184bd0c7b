"""Signals of repetition against counts made by hand, a slow twin, and one document after another for each rule."""

import json
import random
import re
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence

import make_fixtures
import naive
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import ruled
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from datapipe import signals
from datapipe.manifest import presets
from datapipe.signals import measured
from datapipe.signals.repetition import DUP, SIGNALS, TOP

STRIPPED = "".join(naive.WHITE_SPACE) + "\x1c\x1d\x1e\x1f"  # what str.strip takes away
GOPHER = [name for name in SIGNALS if name.endswith("_frac") and "unit" not in name]


# --- the slow twin ---------------------------------------------------------------------------------------------


def twin(text: str) -> dict[str, float | None]:
    """Every signal from its definition, on str, lists and sets."""
    words, units = naive.words(text), naive.units(text)
    paragraphs, lines = re.split(r"\n{2,}", text.strip(STRIPPED)), re.split(r"\n+", text)
    filled = [line for line in text.split("\n") if line.strip(STRIPPED)]
    found = {
        "dup_para_frac": share(*copies(paragraphs)[:1], len(paragraphs)) if text else None,
        "dup_para_char_frac": share(copies(paragraphs)[1], len(text)),
        "dup_line_frac": share(*copies(lines)[:1], len(lines)) if text else None,
        "dup_line_char_frac": share(copies(lines)[1], len(text)),
        "char_dup_ratio": share(copies(filled)[1], len(text.replace("\n", ""))) if filled else None,
        "distinct_unit_ratio": share(len(set(units)), len(units)),
    }
    for n in TOP:
        gram, count = most_frequent(words, n)
        found[f"top_{n}gram_char_frac"] = share(len(" ".join(gram)) * count, len(text))
        gram, count = most_frequent(units, n)
        places = [i for i in range(len(units)) if count > 1 and tuple(units[i : i + n]) == gram]
        found[f"top_{n}gram_unit_frac"] = share(len({i + k for i in places for k in range(n)}), len(units))
    for n in DUP:
        found[f"dup_{n}gram_char_frac"] = share(sum(len("".join(run)) for run in walk(words, n, "".join)), len(text))
        found[f"dup_{n}gram_unit_frac"] = share(n * len(list(walk(units, n, tuple))), len(units))
    return found


def share(part: int, whole: int) -> float | None:
    return part / whole if whole else None


def copies(parts: list[str]) -> tuple[int, int]:
    """Those seen before, and their code points."""
    again = [part for i, part in enumerate(parts) if part in set(parts[:i])]
    return len(again), sum(map(len, again))


def most_frequent(items: Sequence[str], n: int) -> tuple[tuple[str, ...], int]:
    grams = [tuple(items[i : i + n]) for i in range(len(items) - n + 1)]
    return Counter(grams).most_common(1)[0] if grams else ((), 0)


def walk(items: list[str], n: int, name) -> Iterator[list[str]]:
    """Runs of n seen before; behind one the walk goes on."""
    seen, i = set(), 0
    while i + n <= len(items):
        run = items[i : i + n]
        if name(run) in seen:
            yield run
            i += n
        else:
            seen.add(name(run))
            i += 1


def found(texts: Sequence[str]) -> list[dict[str, float | None]]:
    columns = signals.measure(pa.array(["other", *texts], pa.large_string())[1:], list(SIGNALS))
    return [dict(zip(SIGNALS, row, strict=True)) for row in zip(*(c.to_pylist() for c in columns), strict=True)]


def agree(texts: Sequence[str]) -> None:
    for text, values in zip(texts, found(texts), strict=True):
        assert values == twin(text), text


# --- cases by hand ---------------------------------------------------------------------------------------------

LINES = ("dup_para_frac", "dup_para_char_frac", "dup_line_frac", "dup_line_char_frac", "char_dup_ratio")
LINE_CASES = [
    ("", (None, None, None, None, None), "nothing"),
    (" ", (0, 0, 0, 0, None), "a blank: one line of white space, which FineWeb does not count"),
    ("a", (0, 0, 0, 0, 0), "one line"),
    ("\n\n", (0, 0, 1 / 2, 0, None), "newlines alone have an empty line before and one after"),
    ("a\nb\na", (0, 0, 1 / 3, 1 / 5, 1 / 3), "the first of two equal lines is none"),
    ("a\n\na\n\n\na", (2 / 3, 2 / 8, 2 / 3, 2 / 8, 2 / 3), "empty lines are no lines, and part of the denominator"),
    ("\na\nb\n", (0, 0, 1 / 4, 0, 0), "an empty line at each end, and the second is a copy of the first"),
    ("a\n \nb\n \nc", (0, 0, 1 / 5, 1 / 9, 0), "blank lines are lines to Gopher, not to FineWeb"),
    ("a\n\x1f\nb\n\x1f\nc", (0, 0, 1 / 5, 1 / 9, 0), "separators of ASCII are blank here, as str.strip has it"),
    ("a\n \n \na", (0, 0, 2 / 4, 2 / 7, 1 / 4), "one blank line between is no border of paragraphs"),
    ("\x1ca\n\nb\n\na\x1f", (1 / 3, 1 / 9, 0, 0, 0), "and they are stripped from paragraphs, not from lines"),
    ("\u3000a\n\nb\n\na\n\n\x85", (1 / 3, 1 / 11, 0, 0, 0), "White_Space beyond ASCII is stripped, too"),
    ("é中\n\né中", (1 / 2, 2 / 6, 1 / 2, 2 / 6, 2 / 4), "code points, not bytes"),
    ("a\r\nb\r\na\r\n", (0, 0, 1 / 4, 2 / 9, 2 / 6), "a carriage return is part of its line"),
    ("x" * 40 + "\n" + "x" * 40 + "y\n" + "x" * 40, (0, 0, 1 / 3, 40 / 123, 40 / 121), "long lines that differ late"),
    ("b\n\na\n\na \n\na", (2 / 4 - 1 / 4, 1 / 11, 1 / 4, 1 / 11, 1 / 5), "a blank at the end of a line inside stays"),
]


@pytest.mark.parametrize("text,wanted,case", LINE_CASES, ids=[case for _, _, case in LINE_CASES])
def test_lines_and_paragraphs(text: str, wanted: tuple[float | None, ...], case: str) -> None:
    (values,) = found([text])
    assert [values[name] for name in LINES] == list(wanted), case


GRAM_CASES = [
    ("", "top_2gram_char_frac", None, "no text"),
    ("a", "top_2gram_char_frac", 0, "fewer words than n"),
    ("one two", "top_2gram_char_frac", 1, "once is enough for Gopher"),
    ("one two", "top_2gram_unit_frac", 0, "not in units: nothing comes again"),
    ("aa bb c d aa bb c d", "top_2gram_char_frac", 10 / 19, "of equally frequent ones the first met, not the longest"),
    ("c d aa bb c d aa bb", "top_2gram_char_frac", 6 / 19, "even where it is the shortest"),
    ("a b  c\na  b", "top_2gram_char_frac", 6 / 11, "joined by one blank, whatever stood there"),
    ("a a a a", "top_2gram_char_frac", 9 / 7, "n-grams overlap: more than all"),
    ("a a a a", "top_2gram_unit_frac", 1, "units do not: they are counted once"),
    ("a a a b", "top_2gram_unit_frac", 3 / 4, "three units in two occurrences"),
    ("A b a B", "top_2gram_unit_frac", 1, "units are folded"),
    ("A b a B", "top_2gram_char_frac", 3 / 7, "words are not"),
    ("ab c a bc", "top_2gram_char_frac", 4 / 9, "words are words here: ab c is not a bc"),
    ("a b c d e a b c d e", "dup_5gram_char_frac", 5 / 19, "joined without blanks"),
    ("ab c d e f a bc d e f", "dup_5gram_char_frac", 6 / 21, "so that ab c is a bc"),
    ("a b c d e " * 3, "dup_5gram_char_frac", 10 / 30, "the walk jumps behind a copy"),
    ("a " * 11, "dup_5gram_char_frac", 10 / 22, "a run of one word: seen at the second, sixth and not at the eleventh"),
    ("a b c d e f g h i j " * 2, "dup_10gram_char_frac", 10 / 40, "ten words"),
    ("a b c d e f g h i j " * 2, "dup_10gram_unit_frac", 10 / 20, "and ten units"),
    ("a b c d", "dup_5gram_unit_frac", 0, "fewer units than n"),
    ("我们是好人，我们是好人。", "dup_5gram_unit_frac", 5 / 10, "Chinese has units where it has no words"),
    ("我们是好人，我们是好人。", "dup_5gram_char_frac", 0, "and one word"),
    ("!?", "dup_5gram_unit_frac", None, "no units"),
    ("a b A c", "distinct_unit_ratio", 3 / 4, "folded units"),
    (
        f"{'a' * 17} b c d e f g h i  {'a ' * 9}{'a' * 8} b c",
        "dup_10gram_char_frac",
        0,
        "equal bytes, not enough words",
    ),
    ("q" * 16 + " a a a a  1 qqqq qqqq qqqq qqqq aaaa", "dup_5gram_char_frac", 20 / 52, "cut otherwise, and long"),
    ("1 2 3 4 567890123456789 x 12 34 5 6789 0123456789", "dup_5gram_char_frac", 19 / 49, "a short run's like is long"),
]


@pytest.mark.parametrize("text,name,wanted,case", GRAM_CASES, ids=[case for *_, case in GRAM_CASES])
def test_ngrams(text: str, name: str, wanted: float | None, case: str) -> None:
    (values,) = found([text])
    assert values[name] == wanted, case
    assert twin(text)[name] == wanted, case


# --- the twin on anything --------------------------------------------------------------------------------------

LONG = ["a" * 17, "ab" * 12, "thequickbrownfoxjumps", "ü" * 9, "a b c d e f g ", "x\n\ny\n\n", " \n", "\U0001f600"]
ATOMS = [*"aab \n\n", *"é中。\u3000\x1f\x85\u2028\xa0—\0\x7f", *LONG]


@settings(deadline=None, max_examples=150)
@given(st.data())
def test_anything(data: st.DataObject) -> None:
    atoms = data.draw(st.lists(st.sampled_from(ATOMS), min_size=1, max_size=6))
    parts = st.lists(st.sampled_from(atoms), max_size=60).map("".join)
    agree(data.draw(st.lists(st.one_of(parts, st.text(max_size=30)), max_size=4)))


def test_texts_that_repeat_themselves_in_part() -> None:
    rng = random.Random(5)
    texts = []
    for _ in range(150):
        atoms = rng.sample(ATOMS, rng.randint(1, 8))
        text = "".join(rng.choices(atoms, k=rng.choice([3, 20, 120])))
        cut = rng.randint(0, len(text))
        texts.append(text[:cut] + rng.choice(["", " ", "\n", "\n\n"]) + text[rng.randint(0, cut) :])
    agree(texts)


def test_fixtures() -> None:
    agree([text[:20000] for text in sorted(fixtures(), key=lambda text: zlib.crc32(text.encode()))[:150]])


def fixtures() -> Iterator[str]:
    folder = make_fixtures.HERE / "docs"
    for line in zstandard.ZstdDecompressor().stream_reader((folder / "web.jsonl.zst").read_bytes()).read().splitlines():
        try:
            record = json.loads(line)
        except ValueError:
            continue
        if isinstance(record, dict):
            yield from (value for value in record.values() if isinstance(value, str) and len(value) > 100)
    for column in pq.read_table(folder / "code.parquet").columns:
        if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
            yield from (value for value in column.to_pylist() if value and len(value) > 100)


def test_every_code_point_is_white_to_words_and_strip_as_it_should_be() -> None:
    every = [*range(0x3100), *range(0x3100, 0xD800, 7), *range(0xE000, 0x110000, 61)]  # white ones are below 0x3001
    points = [c for c in map(chr, every) if c not in "\na"]
    texts = pa.array([f"a{c}b" for c in points] + [f"{c}a\n\na{c}" for c in points], pa.large_string())
    top, paragraphs = signals.measure(texts, ["top_2gram_char_frac", "dup_para_frac"])
    white = {c for c, value in zip(points, top.to_pylist(), strict=False) if value}
    assert white == naive.WHITE_SPACE - {"\n"}
    stripped = {c for c, value in zip(points, paragraphs.to_pylist()[len(points) :], strict=True) if value}
    assert stripped == set(STRIPPED) - {"\n"} == {c for c in points if c.isspace()}


def test_only_what_is_asked_and_in_any_order() -> None:
    texts = pa.array(["a b c d e f g h i j k " * 3, "", "ab\n\nab", "c " * 50])
    wanted = found(texts.to_pylist())
    for name in reversed(list(SIGNALS)):
        (column,) = signals.measure(texts, [name])
        assert column.type == pa.float64()
        assert column.to_pylist() == [values[name] for values in wanted]
    assert [len(column) for column in signals.measure(texts[:0], list(SIGNALS))] == [0] * len(SIGNALS)


def test_more_n_grams_and_lines_than_a_table_has_room_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables that hold keys are bounded, so that many distinct ones take several passes, and one for lines grows."""
    rng = random.Random(3)
    numbers = [f"{rng.randrange(1 << 30):x}" for _ in range(150_000)]
    many, twice = "\n".join(numbers), "\n\n".join([*numbers, *numbers])
    for text, share in ((many, 0.0), (twice, 0.5)):
        (values,) = found([text])
        assert values["dup_line_frac"] == pytest.approx(share, abs=1e-3)
        assert values["dup_para_frac"] == (pytest.approx(share, abs=1e-3) if share else 0)
        assert values["distinct_unit_ratio"] == len(set(numbers)) / len(text.split())
    monkeypatch.setattr(measured, "LARGE", 1)  # of a large text one count is kept at a time, whatever the order
    texts = pa.array(["a b c d e f g h i j k " * 3 + "b c d e f " * 4, "c " * 50])
    for names in (
        list(SIGNALS),
        [*SIGNALS][::-1],
        ["top_2gram_unit_frac", "dup_5gram_char_frac", "dup_6gram_unit_frac"],
    ):
        for name, column in zip(names, signals.measure(texts, names), strict=True):
            assert column.to_pylist() == [twin(text)[name] for text in texts.to_pylist()]


@pytest.mark.slow
def test_more_distinct_n_grams_than_one_pass_takes() -> None:
    """2.2 million words, all distinct and then all again: the first pair of words comes twice, and is the first met."""
    words = [f"{i:x}" for i in range(2_200_000)]
    (values,) = found([" ".join([*words, *words])])
    points = 2 * sum(map(len, words)) + 2 * len(words) - 1
    assert values["top_2gram_char_frac"] == 2 * len("0 1") / points
    assert values["top_4gram_char_frac"] == 2 * len("0 1 2 3") / points
    assert values["top_2gram_unit_frac"] == 4 / (2 * len(words))
    assert values["distinct_unit_ratio"] == 0.5


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["one word", "one letter", "one line", "all distinct", "numbers", "long words"])
def test_large_texts_take_linear_time(kind: str) -> None:
    size = 4_000_000
    text = {
        "one word": lambda: "word " * (size // 5),
        "one letter": lambda: "a " * (size // 2),
        "one line": lambda: "a line\n\n" * (size // 8),
        "all distinct": lambda: " ".join(f"{i:x}" for i in range(size // 7)),
        "numbers": lambda: " ".join(str(i % 10) for i in range(size // 2)),
        "long words": lambda: " ".join("ab" * 50_000 + str(i) for i in range(size // 100_000)),
    }[kind]()
    (values,) = found([text])
    repeats = kind not in {"all distinct", "long words"}
    assert (values["dup_5gram_char_frac"] or 0) > 0.3 if repeats else values["dup_10gram_char_frac"] == 0


# --- rules -----------------------------------------------------------------------------------------------------


def test_shared_case_b10(shared) -> None:
    with (shared / "cases" / "B10" / "repetition.jsonl").open() as file:
        texts = {record["id"]: record["text"] for record in map(json.loads, file)}
    airy, looped = found([texts["airy"], texts["looped"]])
    assert (airy["dup_line_frac"], airy["dup_para_frac"], looped["dup_line_frac"]) == (0.0, 0.0, 0.4)
    bounds = presets.load("gopher_repetition").keep
    assert not [name for name, bound in bounds.items() if (airy[name] or 0) > bound["max"]]
    assert next(name for name, bound in bounds.items() if (looped[name] or 0) > bound["max"]) == "dup_line_frac"


def babble(seed: int, words: int) -> str:
    """Words of letters by chance, hardly any twice."""
    rng = random.Random(seed)
    return " ".join("".join(rng.choices("abcdefghiklmnopqrstuvwxyz", k=rng.randint(3, 9))) for _ in range(words))


def paragraphs(seed: int, copied: int) -> str:
    """Ten long paragraphs and `copied` of them again."""
    own = [babble(seed * 100 + i, 30) for i in range(10)]
    return "\n\n".join(own + own[:copied])


def lines(seed: int, copied: int) -> str:
    """Twenty lines and `copied` of them again, in paragraphs that differ."""
    own = [babble(seed * 100 + i, 12) for i in range(20)]
    return "\n".join(own + own[:copied])


def woven(seed: int, n: int, times: int, between: int = 10) -> str:
    """A run of n words so many times, with words between that come once."""
    run = babble(seed, n)
    return " ".join(f"{run} {babble(seed * 1000 + i + 1, between)}" for i in range(times)) + " " + babble(seed + 7, 60)


CASES: ruled.Cases = {
    ("dup_para_frac", "max"): ruled.each(24, lambda n: paragraphs(n, 5 + n % 5), lambda n: paragraphs(n, n % 5)),
    ("dup_para_char_frac", "max"): ruled.each(24, lambda n: paragraphs(n, 4 + n % 6), lambda n: paragraphs(n, n % 3)),
    ("dup_line_frac", "max"): ruled.each(24, lambda n: lines(n, 9 + n % 9), lambda n: lines(n, n % 9)),
    ("dup_line_char_frac", "max"): ruled.each(24, lambda n: lines(n, 8 + n % 9), lambda n: lines(n, n % 4)),
    **{
        (f"top_{n}gram_char_frac", "max"): ruled.each(
            24, lambda i, n=n: woven(i, n, 40 + i % 9, 2), lambda i, n=n: woven(i, n, 1 + i % 3)
        )
        for n in TOP
    },
    **{
        (f"dup_{n}gram_char_frac", "max"): ruled.each(
            24, lambda i, n=n: woven(i, n, 20 + i % 9), lambda i, n=n: woven(i, n - 1, 20 + i % 9)
        )
        for n in DUP
    },
}


def test_every_rule_of_gopher_repetition_fires_and_does_not() -> None:
    ruled.check(presets.load("gopher_repetition").keep, CASES)


@pytest.mark.parametrize("name,least", [("fineweb", 3), ("fineweb@datatrove", 1)])
def test_the_rule_of_copied_lines_fires_and_does_not(name: str, least: int) -> None:
    bounds = {"char_dup_ratio": presets.load(name).keep["char_dup_ratio"]}
    cases: ruled.Cases = {
        ("char_dup_ratio", "max"): ruled.each(
            24, lambda n: lines(n, least + n % 9), lambda n: lines(n, 0 if least == 1 else n % 2)
        )
    }
    ruled.check(bounds, cases)


def test_presets_hold_the_published_bounds_in_the_order_of_reasons() -> None:
    bounds = presets.load("gopher_repetition").keep
    assert list(bounds) == GOPHER
    limits = [0.30, 0.20, 0.30, 0.20, 0.20, 0.18, 0.16, 0.15, 0.14, 0.13, 0.12, 0.11, 0.10]
    assert [bound["max"] for bound in bounds.values()] == limits
    assert [list(bound) for bound in bounds.values()] == [["max"]] * len(limits)
    order = ["line_punct_ratio", "short_line_ratio", "char_dup_ratio", "list_ratio"]
    assert list(presets.load("fineweb").keep) == list(presets.load("fineweb@datatrove").keep) == order
