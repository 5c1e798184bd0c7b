"""The second stage: containment, edits, masks, substrings; and its kernels against slow twins."""

import time
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_scan import Part, found_in, parts_of

from datapipe import text
from datapipe.contamination import metrics, windows
from datapipe.contamination.index import Index
from datapipe.kernels import edit

UNITS = st.lists(st.integers(2, 6), max_size=12).map(lambda values: np.array(values, np.uint64))
ITEM = "a train leaves the station at noon and travels north at a steady speed of sixty miles an hour for three hours"
APPLES = "tom has 12 apples and buys 7 more how many apples does he have in all"


def distance(a: Sequence[int], b: Sequence[int]) -> int:
    row = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        before, row[0] = row[0], i
        for j, y in enumerate(b, 1):
            before, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, before + (x != y))
    return row[-1]


@settings(deadline=None, max_examples=300)
@given(UNITS, UNITS, st.integers(-3, 12))
def test_the_fewest_edits_to_any_run(text, part, start):
    """With a band wider than both, the least distance of the part to any run of the text."""
    low, high, half = 0, len(text), 40
    best, first, last = edit.align(text, low, high, part, 0, len(part), start, half)
    every = [distance(part.tolist(), text[i:j].tolist()) for i in range(high + 1) for j in range(i, high + 1)]
    assert best == min(every)
    assert low <= first <= last <= high
    assert distance(part.tolist(), text[first:last].tolist()) == best


@settings(deadline=None, max_examples=200)
@given(UNITS, UNITS, st.integers(1, 4))
def test_shingles_contained(text, part, n):
    def grams(units: np.ndarray) -> set[tuple[int, ...]]:
        return {tuple(units[i : i + n].tolist()) for i in range(len(units) - n + 1)}

    some, common = edit.contained(text, 0, len(text), part, 0, len(part), n)
    assert (some, common) == (len(grams(part)), len(grams(part) & grams(text)))
    inside = {
        i + k for i in range(len(part) - n + 1) if tuple(part[i : i + n].tolist()) in grams(text) for k in range(n)
    }
    assert edit.within(text, 0, len(text), part, 0, len(part), n, False) == len(inside)


@settings(deadline=None, max_examples=300)
@given(st.lists(st.integers(2, 4), min_size=1, max_size=14), st.lists(st.integers(2, 4), max_size=14), st.data())
def test_a_run_extended_over_substitutions(part, text, data):
    """Against metrics.extend, the definition, on the units that lie on the run's diagonal."""
    start, at = data.draw(st.integers(0, len(part) - 1)), data.draw(st.integers(0, len(text)))
    length = data.draw(st.integers(1, len(part) - start))
    budget = data.draw(st.integers(0, 4))
    places = range(at - start, at - start + len(part))
    equal = np.array([0 <= j < len(text) and text[j] == part[i] for i, j in enumerate(places)], bool)
    equal[start : start + length] = True  # a run is equal by definition
    runs = np.array([[0, 0, len(part), start, length, at]], np.int64)
    units, held = (np.array(values, np.uint64) for values in (text, part))
    found = edit.extended(units, np.array([0, len(text)], np.int64), held, runs, budget)
    assert found.tolist() == [metrics.extend(equal, start, length, budget)[2]]


def test_the_window_has_the_best_extended_run():
    part = "a b c d e f g h i j k l m n o p q r s t"
    (row,) = second(part, part.replace("i", "x").replace("n", "y").replace("t", "z"))
    assert row["extended"] == 17
    (row,) = second(part, "a b c d e f g h 1 2 3 4 5 6 7 q r s t")
    assert row["extended"] == 8
    # from a run that is equal as it stands: two numbers of sixteen units differ
    (row,) = second(APPLES, APPLES.replace("12", "31").replace("7", "9"))
    assert row["extended"] == 14


def second(part: str, value: str, kind: str = "prompt") -> list[dict]:
    return found_in(Index.build(parts_of(Part(part, kind))), [value]).windows.to_pylist()


@pytest.mark.parametrize(
    "change, edits",
    [
        (lambda words: words, None),
        (lambda words: [*words[:10], "X", *words[11:]], 1),
        (lambda words: [*words[:10], *words[11:]], 1),
        (lambda words: [*words[:10], "X", *words[10:]], 1),
        (lambda words: ["X", *words[1:9], "Y", "Z", *words[11:]], 3),
    ],
    ids=["none", "substituted", "deleted", "inserted", "three"],
)
def test_edits_of_an_item(change, edits):
    words = ITEM.split()
    rows = second(ITEM, "before it much else " * 9 + " ".join(change(words)) + " and behind it" * 9)
    if edits is None:
        assert rows == []  # a run of the whole part says it all
    else:
        (row,) = rows
        longer = max(len(words), row["length"])
        assert row["edit"] == 1 - edits / longer
        assert row["containment"] >= 0.4
        assert row["numbers"] is None
        assert row["identifiers"] is None


def test_the_best_of_several_windows():
    words = ITEM.split()
    (row,) = second(ITEM, " ".join(words[:8]) + " x" * 200 + " " + " ".join([*words[:15], "X", *words[16:]]))
    assert (row["doc_unit"], row["length"]) == (208, len(words))
    assert row["edit"] == 1 - 1 / len(words)


def test_containment_is_of_the_part():
    """Ten shingles of five units, six of them found in a long document: .6, however long it is."""
    part = " ".join(f"u{i}" for i in range(14))
    (row,) = second(part, "x " * 500 + " ".join(f"u{i}" for i in range(10)) + " y" * 500)
    assert row["containment"] == 0.6
    assert row["plain"] == 10 / 14


@pytest.mark.parametrize("held, seen", [(8, 1), (7, 0)])
def test_a_window_is_looked_at_where_a_whole_n_gram_is(held, seen):
    part = [f"u{i}" for i in range(14)]
    assert len(second(" ".join(part), " ".join(["x", *part[:held], "y"]))) == seen


LONG = ["abcdefghijklm", "nopqrstuvwxyz", "abcnopdefqrst", "ghiuvwjklxyzm", "mlkjihgfedcba"]  # 65 letters
LETTERS = list("bcdfghjklm")


@pytest.mark.parametrize(
    "part, there",
    [
        ([*LONG, *LETTERS], [*LONG, "and", "so", *LETTERS]),
        ([*LETTERS, *LONG], [*LETTERS, "and", "so", *LONG]),
        ([*LONG[:4], "12", *LONG[:4]], [*LONG[:4], "15", *LONG[:4]]),
    ],
    ids=["in front of the run", "behind it", "around a number"],
)
def test_fifty_letters_anywhere_in_the_window(part, there):
    """The window is half a part longer on both sides, for what was put in or left out."""
    (row,) = second(" ".join(part), " ".join(["x"] * 30 + there + ["y"] * 30))
    assert row["substr50"] is True


def test_numbers_by_mask():
    (row,) = second(APPLES, APPLES.replace("12", "31").replace("7", "９"))
    assert row["numbers"] == 1.0
    assert row["plain"] < 0.6
    assert row["edit"] == 1 - 2 / 16


@pytest.mark.parametrize(
    "other, letters",
    [
        ("a shop sold 1250 lanterns by e mail and 3 400 in person to all who asked for them there", True),
        ("a shop sold 1,250 lanterns by e-mail, and 3,400 in person to all who asked for them there!", True),
        ("A shop sold 1,250 lanterns by e-mail, and 3,400 in person to all who asked for them there!", False),
        ("a shop sold 1250 lanterns by email and 3401 in person to all who asked for them there", False),
        ("a shop sold 1250 lanterns by email and 3400 in person to all who asked for them", False),
    ],
)
def test_all_letters_and_digits_in_a_row(other, letters):
    part = "a shop sold 1250 lanterns by email and 3400 in person to all who asked for them there"
    (row,) = second(part, f"before it {other} and behind it")
    assert row["letters"] is letters


@pytest.mark.parametrize(
    "own, theirs, same",
    [
        ("1,234,567 of them", "1234567 of them", True),
        ("1\u202f000'000 e-mails", "1 000 000 emails", True),
        ("sum 12", "sum 123", False),
        ("1.5 of it", "15 of it", False),
        ("12,50 of it", "1,250 of it", False),
        ("1 2", "12", False),
        ("2024-01-15", "20240115", False),
    ],
)
def test_numbers_in_letters_are_those_that_stand_there(own, theirs, same):
    for value in (theirs, f"x {theirs} x"):
        assert (windows.lettered(own) in windows.lettered(value)) is same


CODE = """def total(items, limit):
    result = 0
    for item in items:
        if item.price > limit:
            result += item.price * 2
    return result
"""


def test_identifiers_by_mask():
    renamed = CODE.replace("result", "acc").replace("total", "summed")
    kept = "\n# one two three four five six seven eight"  # what makes it a candidate
    (row,) = second(CODE + kept, renamed + kept, "solution")
    assert row["identifiers"] == 1.0
    assert row["plain"] < 1


def calls(name: str, many: int) -> str:
    return "\n".join(f"{name}{at}();" for at in range(many))


HEAD, TAIL = calls("a", 8), calls("b", 8)


@pytest.mark.parametrize(
    "part, there, plain, known",
    [
        ([HEAD, calls("v", 24), TAIL], [TAIL, HEAD, calls("q", 24)], 16 / 40, True),
        ([HEAD, calls("v", 25), TAIL], [TAIL, HEAD, calls("q", 25)], 16 / 41, False),
        ([HEAD, *(f"v{at}();\nu{at}();" for at in range(8))], [HEAD, *(f"q{at}();\nu{at}();" for at in range(8))],
         8 / 24, True),
        ([HEAD, calls("v", 16)], [HEAD, calls("q", 16)], 8 / 24, False),
    ],
    ids=["two fifths in n-grams", "fewer", "two thirds in their order", "a third"],
)  # fmt: skip
def test_names_are_masked_where_a_text_is_close(part, there, plain, known):
    (row,) = second("\n".join(part), "\n".join(there), "solution")
    assert row["plain"] == plain
    assert (row["identifiers"] is not None) is known


@pytest.mark.parametrize(
    "value, wanted",
    [
        (CODE, True), ("int main(void) {\n  return 0;\n}\n", True), (ITEM, False), ("", False),
        ("She has 3 + 4 = 7 apples.\nThen 7 * 2 = 14 apples are left.", False),
        ("The answer is (B).\nIt follows from the passage.", False),
        ("x = 1\nand behind it some words", True), ("x = 1\nand behind it some words\nand more of them", False),
    ],
)  # fmt: skip
def test_what_looks_like_code(value, wanted):
    assert windows.looks_like_code(value) is wanted


def test_code_units():
    units = {sign: unit for unit, sign in windows.SIGN_OF.items()}
    found = windows.code_units('for x_1 in range(10): s += f("a b") # no')
    assert [units.get(sign, sign) for sign in found] == [
        "for", "i", "in", "i", "(", "0", ")", ":", "i", "+=", "i", "(", '""', ")", "#", "i",
    ]  # fmt: skip
    assert windows.code_share("a = b", "c = d") == 0.0  # fewer than an n-gram
    assert windows.code_share("a = b + c", "x = y + z", 5) == 1.0
    assert windows.code_share("a = b + c", "x = y - z", 3) == 0.6
    assert windows.code_share("", "x", 3) == 0.0


@pytest.mark.parametrize(
    "own, theirs, wanted",
    [
        ("x" * 60, "x" * 50, True),
        ("x" * 60, "x" * 49, False),
        ("a, b; c", "0abc0", True),
        ("a, b; c", "a-b", False),
        ("-", "anything", False),
        ("y" * 5 + "z" * 50, "z" * 50, True),  # the last 50, whatever the stride
        ("y" + "z" * 50 + "q" * 9, "z" * 50, False),  # at no start looked at
        ("y" * 5000 + "z" * 50, "y" * 9 + "z" * 50, True),  # the same of a long part
        ("y" * 5003 + "z" * 50, "z" * 50, True),
        ("y" * 5003 + "z" * 50, "z" * 49, False),
    ],
)
def test_substrings_of_fifty(own, theirs, wanted):
    assert windows.substring(*bare(own, theirs)) is wanted


def bare(*texts: str) -> list[str]:
    data, offsets = text.buffers(pa.array(texts, pa.large_string()))
    return windows.bare(data, offsets[:-1], offsets[1:])


@given(st.lists(st.text(st.characters(max_codepoint=0x2FFFF, exclude_categories=["Cs", "Cn"]))))
def test_bare_texts_are_of_letters_and_numerals(texts):
    assert bare(*texts) == ["".join(filter(str.isalnum, one)) for one in texts]


def test_a_candidate_in_a_large_document_is_quick():
    words = ITEM.split()
    part = " ".join(f"{word}{i}" for i in range(100) for word in words)
    index = Index.build(parts_of(part))
    near = part.replace("noon50", "night").replace("speed70 of70", "pace")
    text = pa.array(["lorem ipsum dolor sit amet " * 370_000 + near + " consectetur" * 830_000], pa.large_string())
    found_in(index, [near])
    start = time.process_time()
    (row,) = found_in(index, text.to_pylist()).windows.to_pylist()
    assert time.process_time() - start < 4  # on a busy machine; the second stage alone takes a few hundredths
    assert row["edit"] > 0.99


def test_index_units_and_texts_agree():
    index = Index.build(parts_of("", "naïve Ａ b", "中文"))
    assert index.lengths.tolist() == [0, 3, 2]
    hashes, starts, ends = index.units(1)
    assert len(hashes) == 3
    assert [index.text[1].as_py().encode()[a:b].decode() for a, b in zip(starts, ends, strict=True)] == [
        "naïve",
        "Ａ",
        "b",
    ]
