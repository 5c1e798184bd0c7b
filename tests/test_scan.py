"""The index and the scan against nested loops over units, whatever the order, the batches and the hash."""

from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from string import ascii_lowercase
from typing import NamedTuple

import naive
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from datapipe.contamination import index as indexing
from datapipe.contamination import scan as scanning
from datapipe.contamination.index import Index
from datapipe.contamination.model import PARTS
from datapipe.contamination.scan import Found, merge, scan
from datapipe.kernels import grams


class Part(NamedTuple):
    text: str
    kind: str = "prompt"
    example: int | None = None


def parts_of(*parts: str | Part) -> pa.Table:
    rows = [Part(part) if isinstance(part, str) else part for part in parts]
    return pa.table(
        [
            pa.array(range(len(rows)), pa.int32()),
            pa.array([i if part.example is None else part.example for i, part in enumerate(rows)], pa.int32()),
            pa.array([part.kind for part in rows], pa.string()),
            pa.array([0] * len(rows), pa.int32()),
            pa.nulls(len(rows), pa.bool_()),
            pa.array([part.text for part in rows], pa.large_string()),
        ],
        schema=PARTS,
    )


def found_in(index: Index, texts: Sequence[str], **options) -> Found:
    return scan(index, pa.array(texts, pa.large_string()), np.arange(len(texts)), **options)


def rows(table: pa.Table, *names: str) -> list[tuple]:
    return list(zip(*(table[name].to_pylist() for name in names), strict=True))


def spans(table: pa.Table) -> list[tuple]:
    return rows(table, "doc", "part", "start", "length", "doc_unit")


# --- the twin ------------------------------------------------------------------------------------------------------


def number(unit: str) -> bool:
    return all(c.isnumeric() and not c.isalpha() for c in unit)


def masked(units: Sequence[str]) -> list[str]:
    return ["#" if number(unit) else unit for unit in units]


def matches(ours: Sequence[str], theirs: Sequence[str], n: int) -> set[tuple[int, int, int]]:
    """(start in ours, length, start in theirs) of all maximal matches of at least n units."""
    found = set()
    for i in range(len(ours)):
        for j in range(len(theirs)):
            if ours[i] != theirs[j] or (i and j and ours[i - 1] == theirs[j - 1]):
                continue
            k = 0
            while i + k < len(ours) and j + k < len(theirs) and ours[i + k] == theirs[j + k]:
                k += 1
            if k >= n:
                found.add((i, k, j))
    return found


def some_numbers(units: Sequence[str], n: int) -> bool:
    """A window of n units that is looked up under the mask: with numbers, but not more of them than of others."""
    counts = [sum(map(number, units[i : i + n])) for i in range(len(units) - n + 1)]
    return any(0 < 2 * count <= n for count in counts)


def expected(parts: Sequence[str], texts: Sequence[str], n: int) -> tuple[set, set, Counter]:
    """(runs, masked runs, documents of each n-gram) by nested loops."""
    firsts = {tuple(naive.units(part)): i for i, part in reversed(list(enumerate(parts)))}
    runs, by_mask, docs = set(), set(), Counter()
    for doc, value in enumerate(texts):
        theirs = naive.units(value)
        docs.update({tuple(theirs[i : i + n]) for i in range(len(theirs) - n + 1)})
        for ours, part in firsts.items():
            runs |= {(doc, part, *match) for match in matches(ours, theirs, n)}
            for i, k, j in matches(masked(ours), masked(theirs), n):
                if some_numbers(ours[i : i + k], n) and list(ours[i : i + k]) != theirs[j : j + k]:
                    by_mask.add((doc, part, i, k, j))
    return runs, by_mask, docs


WORDS = st.sampled_from(["a", "b", "B", "c", "1", "2", "３", "中", "é", "e\u0301"])
TEXT = st.lists(WORDS, max_size=14).flatmap(
    lambda words: st.sampled_from([" ", ", ", "\n"]).map(lambda blank: blank.join(words))
)


@settings(deadline=None, max_examples=300)
@given(st.lists(TEXT, max_size=4), st.lists(TEXT, max_size=4), st.integers(2, 5))
def test_equals_nested_loops(parts, texts, n):
    index = Index.build(parts_of(*parts), n, n)
    found = found_in(index, texts)
    runs, by_mask, docs = expected(parts, texts, n)
    assert [row for row in spans(found.runs) if row[3] >= n] == sorted(
        runs, key=lambda r: (r[0], r[1], r[2], r[3], r[4])
    )
    assert set(spans(found.masked)) == by_mask
    assert found.capped == 0
    counted = dict(rows(found.grams, "gram", "docs"))
    for part, value in enumerate(parts):
        units = naive.units(value)
        if len(units) >= n:
            wanted = [docs[tuple(units[i : i + n])] for i in range(len(units) - n + 1)]
            assert [counted.get(gram, 0) for gram in index.grams(part).tolist()] == wanted
        elif len(units) >= 3:
            wanted = sum(bool(matches(units, naive.units(text), len(units))) for text in texts)
            assert [counted.get(gram, 0) for gram in index.grams(part).tolist()] == [wanted]


@settings(deadline=None, max_examples=100)
@given(st.lists(TEXT, max_size=4), st.lists(TEXT, max_size=4), st.sampled_from([(64, 3), (3, 64), (3, 2)]))
def test_a_bad_hash_changes_nothing(parts, texts, bits):
    """Few bits of a unit's hash, few bits of a key: the texts decide."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(indexing, "MASKS", tuple(((1 << bit) - 1) << (64 - bit) for bit in bits))
        index = Index.build(parts_of(*parts), 3, 3)
    found = found_in(index, texts, second=False)
    runs, _, _ = expected(parts, texts, 3)
    assert {row for row in spans(found.runs) if row[3] >= 3} == runs


@settings(deadline=None, max_examples=50)
@given(st.lists(TEXT, max_size=4), st.lists(TEXT, min_size=1, max_size=6), st.data())
def test_the_cut_and_the_order_change_nothing(parts, texts, data):
    index = Index.build(parts_of(*parts), 3, 4)
    whole = found_in(index, texts)
    order = data.draw(st.permutations(range(len(texts))))
    cut = data.draw(st.integers(0, len(texts)))
    pieces = [(order[:cut], [texts[i] for i in order[:cut]]), (order[cut:], [texts[i] for i in order[cut:]])]

    def one(piece: tuple) -> Found:
        return scan(index, pa.array(piece[1], pa.large_string()), np.array(piece[0], np.int64))

    with ThreadPoolExecutor(2) as pool:
        assert merge(pool.map(one, pieces)) == whole
    assert merge([merge([one(pieces[1])]), one(pieces[0])]) == whole


def test_pieces_of_any_size(monkeypatch):
    texts = [f"what is {n} and {n + 1}? " * (n % 5) for n in range(50)] + ["", "中" * 40]
    index = Index.build(parts_of("what is 3 and 4? what is 3 and 4?", "what is", "and 8 what", "中" * 14))
    whole = found_in(index, texts)
    assert whole.runs.num_rows
    assert whole.masked.num_rows
    assert whole.short.num_rows
    for size in (1, 100, 1000):
        monkeypatch.setattr(scanning, "PIECE", size)
        assert found_in(index, texts) == whole


# --- worked examples, of the engine -------------------------------------------------------------------------------

ABC = "a b c d e f g h i j"
EXAMPLES = {  # part, texts, n: grams that occur, n-grams, covered, longest of one document, best document
    "1 verbatim": (ABC, [f"x {ABC} y"], 4, (7, 7, 10, 10, 10)),
    "2 one unit changed": (ABC, ["a b c d Z f g h i j"], 4, (3, 7, 9, 5, 9)),
    "3 two documents": ("a b c d e", ["a b c d", "b c d e"], 3, (3, 3, 5, 4, 4)),
    "4 three documents": (
        " ".join(f"u{i}" for i in range(40)),
        [" ".join(f"u{i}" for i in range(at, at + 8)) for at in (0, 15, 30)],
        8,
        (3, 33, 24, 8, 8),
    ),
    "5 one run": (" ".join(f"u{i}" for i in range(20)), [" ".join(f"u{i}" for i in range(4, 13))], 8, (2, 13, 9, 9, 9)),
    "6 repeats": ("ha ha ha ha ha", ["so ha ha ha no"], 3, (3, 3, 5, 3, 5)),
    "7 overlaps": ("a b c d e f g h i j k l", ["a b c d e f", "e f g h"], 4, (4, 9, 8, 6, 6)),
    "9 three changes": ("a b c d e f g h i j k l", ["a b c d X f g Y i j Z l"], 4, (1, 9, 4, 4, 4)),
    "13 Han": ("中国的首都是哪里", ["问：中国的首都是哪里？答：北京"], 5, (4, 4, 8, 8, 8)),
    "14 ligature and case": ("Don’t use naïve ﬁlters.", ["don't use naive filters"], 3, (1, 3, 3, 3, 3)),
    "15 wrapped": ("the quick brown fox jumps", ["the quick\nbrown fox\njumps"], 3, (3, 3, 5, 5, 5)),
    "16 numbers, plain": (
        "tom has 12 apples and buys 7 more how many apples",
        ["tom has 15 apples and buys 9 more how many apples"],
        5,
        (0, 7, 0, 0, 0),
    ),
    "21 any offset": (
        " ".join(f"u{i}" for i in range(6)),
        ["x " + " ".join(f"u{i}" for i in range(6))],
        5,
        (2, 2, 6, 6, 6),
    ),
}


@pytest.mark.parametrize("case", EXAMPLES)
def test_worked_examples(case):
    part, texts, n, (hit, positions, covered, longest, best) = EXAMPLES[case]
    index = Index.build(parts_of(part), n, n)
    found = found_in(index, texts)
    seen = np.isin(index.grams(0), found.grams["gram"].to_numpy())
    units: set[int] = set()
    of_doc: dict[int, set[int]] = {}
    for at in np.flatnonzero(seen).tolist():
        units |= set(range(at, at + n))
    for doc, start, length in rows(found.runs, "doc", "start", "length"):
        of_doc.setdefault(doc, set()).update(range(start, start + length))
    assert (seen.sum(), len(seen), len(units)) == (hit, positions, covered)
    assert max(found.runs["length"].to_pylist(), default=0) == longest
    assert max(map(len, of_doc.values()), default=0) == (best if case[0] != "6" else 5)


@pytest.mark.parametrize(
    ("plain", "other"),
    [("\u8c48", "\uf900"), ("\u66f4", "\uf901"), ("\u30ac", "\uff76\uff9e"), ("\u30ac", "\u30ab\u3099")],
)
@pytest.mark.parametrize("swapped", [False, True])
def test_characters_that_are_spelled_otherwise_are_equal(plain, other, swapped):
    first, second = (f"天地玄黃宇宙洪荒日月{one}盈昃辰宿列張寒來暑往秋" for one in (plain, other))
    part, text = (second, first) if swapped else (first, second)
    assert spans(found_in(Index.build(parts_of(part)), ["前" + text]).runs) == [(0, 0, 0, 22, 1)]


def test_numbers_under_the_mask():
    part = "tom has 12 apples and buys 7 more how many apples"
    index = Index.build(parts_of(part), 5, 5)
    texts = [part.replace("12", "15").replace("7", "9"), part.replace("12", "１５"), part]
    assert spans(found_in(index, texts).masked) == [(0, 0, 0, 11, 0), (1, 0, 0, 11, 0)]
    assert (index.held_of(0) & np.uint64(1)).tolist() == [unit in {"12", "7"} for unit in part.split()]


def test_numbers_alone_are_no_variant():
    index = Index.build(parts_of("1 2 3 4 5 6 a b c 7", "x"), 5, 5)
    assert found_in(index, ["9 9 9 9 9 9 z b c", "7 7 7 7 7"]).masked.num_rows == 0


@pytest.mark.parametrize(
    "value, wanted",
    [
        ("12", True), ("１２", True), ("٣٤", True), ("1\u00ad2", True), ("①", True), ("12a", False), ("½", True),
        ("三", False), ("5\u0301", False), ("²", True), ("०", True),
    ],
)  # fmt: skip
def test_what_a_number_is(value, wanted):
    assert (Index.build(parts_of(value)).held_of(0) & np.uint64(1)).tolist()[:1] == [wanted]


# --- short parts, and what stands beside a prompt -----------------------------------------------------------------


def test_short_parts():
    index = Index.build(parts_of("what is 2 2", "a b", "中国的首都", "one two three"))
    found = found_in(index, ["So: What is 2-2?", "a b", "问中国的首都", "what is 2", "one two, three one two three"])
    assert spans(found.short) == [(0, 0, 0, 4, 1), (2, 2, 0, 5, 1), (4, 3, 0, 3, 0)]
    assert found.runs.num_rows == 0
    assert [len(index.grams(part)) for part in range(4)] == [1, 0, 1, 1]
    assert rows(found.grams, "docs", "occurrences") in (
        [(1, 1), (1, 1), (1, 2)],
        [(1, 1), (1, 2), (1, 1)],
        [(1, 2), (1, 1), (1, 1)],
    )


def test_of_a_short_part_few_documents_are_named():
    index = Index.build(parts_of("one two three"))
    found = merge([found_in(index, ["one two three"] * 50)])
    assert found.short["doc"].to_pylist() == list(range(scanning.ALONE))
    assert found.grams["docs"].to_pylist() == [50]


PROMPT = "how many legs does a horse have in all"


@pytest.mark.parametrize(
    "value, wanted",
    [
        (f"{PROMPT}? four", [0, 1]),
        (f"{PROMPT} {'x ' * 100} four", [0, 1]),
        (f"{PROMPT} {'x ' * 101} four", [0]),
        (f"four {PROMPT}", [0]),
        ("four", []),
        (f"{PROMPT}: forty two", [0, 2]),
        (f"{PROMPT}: forty", [0]),
        (f"{PROMPT}: four, forty-two. four", [0, 1, 1, 2]),
        (f"{PROMPT}:{' four' * 20}", [0] + [1] * 8),
    ],
)
def test_tiny_answers_stand_beside_their_prompt(value, wanted):
    parts = Part(PROMPT, example=0), Part("four", "answer", 0), Part("forty-two", "choices", 0), Part("x", "answer", 1)
    found = found_in(Index.build(parts_of(*parts)), [value])
    assert found.runs["part"].to_pylist() == wanted


def test_a_short_prompt_is_listed_with_its_answer():
    parts = Part("what is 2 2", example=0), Part("4", "answer", 0)
    found = found_in(Index.build(parts_of(*parts)), ["what is 2+2? 4", "what is 2+2"])
    assert spans(found.runs) == [(0, 0, 0, 4, 0), (0, 1, 0, 1, 4)]
    assert spans(found.short) == [(1, 0, 0, 4, 0)]


def test_an_answer_behind_any_place_of_a_short_prompt_is_found():
    parts = Part("what is 2 2", example=0), Part("4", "answer", 0)
    found = found_in(Index.build(parts_of(*parts)), [f"what is 2+2 {'x ' * 150}what is 2+2? 4"])
    assert spans(found.runs) == [(0, 0, 0, 4, 154), (0, 1, 0, 1, 158)]


def test_the_answers_of_twins_are_looked_for_too():
    parts = Part(PROMPT, example=0), Part(PROMPT.upper(), example=1), Part("4", "answer", 0), Part("four", "answer", 1)
    index = Index.build(parts_of(*parts))
    assert index.twin.tolist() == [0, 0, 2, 3]
    assert found_in(index, [f"{PROMPT} four, 4"]).runs["part"].to_pylist() == [0, 2, 3]


# --- edges --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("texts", [[], [""], ["", "no hit"], ["\u3000"]])
@pytest.mark.parametrize("parts", [[], ["..."], ["one two three four five six seven eight"]])
def test_nothing(parts, texts):
    found = found_in(Index.build(parts_of(*parts)), texts)
    assert (found.runs.num_rows, found.masked.num_rows, found.short.num_rows, found.grams.num_rows) == (0, 0, 0, 0)
    assert sum(found.seen["documents"].to_pylist()) == len(texts)


def test_offsets_are_of_the_raw_text_also_of_slices():
    part = "naïve Ａpples are été good for all of us"
    index = Index.build(parts_of(part))
    texts = pa.array(["ignored", "é " + part.upper() + "!"], pa.large_string())
    found = scan(index, texts.slice(1), np.array([7]), source=3)
    ((doc, start, end),) = rows(found.runs, "doc", "byte_start", "byte_end")
    assert doc == 7
    assert texts[1].as_py().encode()[start:end].decode() == part.upper()
    assert rows(found.seen, "source", "documents", "units") == [(3, 1, 10)]


def test_sources_are_counted_apart():
    index = Index.build(parts_of("a b c"), 3, 3)
    texts = ["a b c a b c", "a b c", "x"]
    found = found_in(index, texts, source=np.array([1, 0, 1], np.int32))
    assert found.grams.to_pylist() == [
        {"source": 0, "gram": 0, "docs": 1, "occurrences": 1},
        {"source": 1, "gram": 0, "docs": 1, "occurrences": 2},
    ]
    assert rows(found.seen, "source", "documents") == [(0, 1), (1, 2)]


def test_a_template_costs_one_item_not_ten_thousand():
    template = "which of the following statements about the number is certainly true"
    parts = [f"{template} {a}{b}" for a in ascii_lowercase for b in ascii_lowercase]
    index = Index.build(parts_of(*parts, template))
    found = found_in(index, [f"so {template} zz, {template} indeed"] * 20)
    both = {len(parts) - 1, len(parts)}
    assert set(found.runs["part"].to_pylist()) == both  # the item itself; the text of the template alone
    assert found.runs.num_rows == 20 * 3
    seen = np.isin(index.grams(5), found.grams["gram"].to_numpy())
    assert seen.tolist() == [True] * (len(seen) - 1) + [False]  # hot grams count all the same


def test_a_document_of_nothing_but_hits():
    """A periodic part in a periodic document: the number of runs is bounded, the longest is there."""
    index = Index.build(parts_of("ha " * 50, "ho " * 8))
    found = found_in(index, ["ha " * 200_000 + "he " + "ho " * 100_000])
    assert found.capped == 2
    assert found.runs.num_rows <= 2 * (grams.FEW + 60)
    assert rows(found.runs, "part", "length").count((0, 50)) > 0
    assert max(found.grams["occurrences"].to_pylist()) == 200_000 - 7
    assert found_in(Index.build(parts_of("ha 1 " * 50)), ["ha 2 " * 20_000]).capped == 1  # under the mask


@pytest.mark.parametrize(
    "value",
    [
        "<p>he didn&#x27;t say &quot;a &amp; b&quot; to us, and that is all he said</p>",
        "<li>he didn&#39;t say <b>a</b> &lt; b to us, and<br/>that is all he said</li>",
    ],
)
def test_markup_is_no_unit(value):
    """An escaped text in paragraphs is found by the text; what only looks like markup stays."""
    index = Index.build(parts_of("he didn't say a b to us, and that is all he said"))
    assert [length for *_, length in rows(found_in(index, [value]).runs, "part", "length")] == [14]
    assert rows(found_in(index, ["&nope; x; <unknown> #39; &; p>"]).seen, "units") == [(5,)]
