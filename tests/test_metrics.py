"""Measures over runs: the worked examples, a twin in obvious code on random parts, and rules of authors."""

import math
from itertools import pairwise

import hypothesis.strategies as st
import numpy as np
import pyarrow as pa
import pytest
import worked
from hypothesis import given, settings
from worked import CASES, Case

from datapipe.contamination import metrics
from datapipe.contamination.intervals import Layout, merged, offsets_of, overlap, union
from datapipe.contamination.metrics import extend, measure
from datapipe.contamination.profiles import PROFILES, decon_score, flagged, gpt3_n, required


def measured(case: Case) -> dict:
    parts, documents = [case.cut(case.part)], [case.cut(text) for text in case.documents]
    layout, names = worked.layout_of(parts, case.n)
    out = {tuple(case.cut(text)) for text in case.excluded}
    excluded = np.array([names[gram] in out for gram in layout.grams], bool) if out else None
    grams = worked.counts_of(names, documents, case.n, case.eval_df, case.examples)
    return measure(layout, worked.runs_of(parts, documents, case.n), grams, excluded).to_pylist()[0]


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.number} {case.about}")
def test_worked_examples(case):
    found = measured(case)
    for name, value in case.expected.items():
        assert found[name] == (value if value is None else pytest.approx(value, abs=5e-5)), name


def test_worked_examples_without_counts_say_the_same_of_runs():
    """Where no n-gram is counted, the runs of all documents are the union."""
    for case in CASES:
        if case.excluded:
            continue
        parts, documents = [case.cut(case.part)], [case.cut(text) for text in case.documents]
        layout, _ = worked.layout_of(parts, case.n)
        found = measure(layout, worked.runs_of(parts, documents, case.n)).to_pylist()[0]
        for name in ("any", "ngram_ratio", "token_ratio", "run_union", "longest_ratio", "best_doc_ratio"):
            if name in case.expected:
                value = case.expected[name]
                assert found[name] == (value if value is None else pytest.approx(value)), (case.number, name)
        assert found["weighted"] is None


def test_worked_example_8_tulu():
    for units, value, flag in worked.TULU:
        layout, _ = worked.layout_of([worked.TWENTY], 8)
        found = measure(layout, worked.runs_of([worked.TWENTY], [units], 8))["best_doc_ratio"].to_numpy()
        assert found[0] == value
        assert bool(PROFILES["tulu3"].flags(found)[0]) is flag


def test_worked_example_9_extension():
    part, document = worked.L12.split(), worked.SUBSTITUTED.split()
    equal = np.array([a == b for a, b in zip(part, document, strict=True)])
    for budget, (span, matched) in worked.EXTENDED.items():
        start, end, units = extend(equal, 0, 4, budget)
        assert (end - start, units) == (span, matched), budget


def test_of_extensions_that_match_as_much_the_shorter_then_the_earlier_is_taken():
    equal = np.array([True, True, False, True, False, False, True, True])
    assert extend(equal, 3, 1, 2) == (0, 4, 3)
    assert extend(equal[::-1], 4, 1, 2) == (4, 8, 3)
    equal = np.array([True, False, True, False, True])
    assert extend(equal, 2, 1, 1) == (0, 3, 2)


def test_worked_example_12_filter(monkeypatch):
    case = next(case for case in CASES if case.number == 12)
    bound, value = worked.RARE
    monkeypatch.setattr(metrics, "RARE", bound)
    assert measured(case)["weighted_rare"] == pytest.approx(value)


def test_worked_example_21_stride():
    n, stride = worked.PROBED_N, worked.STRIDE

    def hit(run: int, offset: int) -> bool:
        return any(offset <= probe and probe + n <= offset + run for probe in range(0, 200, stride))

    assert n + stride - 1 == worked.ALWAYS
    assert all(hit(worked.ALWAYS, offset) for offset in range(stride))
    assert not hit(worked.ALWAYS - 1, worked.MISSED)


def test_worked_example_22_decon():
    assert decon_score(**worked.DECON, question_units=20, answer_units=15) is None  # asks for 1 at 20 units
    # with 20 units of question and .9 of it the gate is shut; the score is of the weights, whatever the gate
    assert required(35) == pytest.approx(0.9)
    long = decon_score(**worked.DECON, question_units=31, answer_units=4)
    assert long == pytest.approx(worked.DECON_SCORE, abs=1e-4)
    assert long is not None
    assert long >= PROFILES["decon-like"].threshold
    assert required(30, (0.8 - 0.3) / 0.7) == pytest.approx(worked.DECON_GATE, abs=1e-4)
    assert decon_score(**worked.DECON, question_units=30, answer_units=5) is None


def test_decon_weights():
    assert decon_score(1.0, 30, 60) == 1.0
    assert decon_score(1.0, 30, 60, 1.0, 10, 1.0, 100) == 1.0
    assert decon_score(1.0, 20, 40, 0.0, 20) == pytest.approx(0.75)
    assert decon_score(1.0, 20, 60, None, 0, 0.0, 40) == pytest.approx(0.85)
    # an answer of 1 unit keeps .625 of .2, the passage gets the rest
    assert decon_score(1.0, 20, 60, 0.0, 1, 1.0, 40) == pytest.approx(0.7 + 0.1 + 0.2 * 0.375)


def test_worked_example_23_containment_is_of_the_part():
    own, found, document, containment, jaccard = worked.CONTAINED
    part, other = set(range(own)), set(range(own - found, own - found + document))
    assert len(part & other) == found
    assert len(part & other) / len(part) == containment
    assert len(part & other) / len(part | other) == pytest.approx(jaccard, abs=5e-4)


def test_worked_example_24_the_part_does_not_dilute():
    n, item, block, diluted, own = worked.DILUTED
    part = [f"p{i}" for i in range(item)]
    document = part + [f"d{i}" for i in range(block - item)]
    layout, _ = worked.layout_of([part], n)
    assert measure(layout, worked.runs_of([part], [document], n))["ngram_ratio"][0].as_py() == own
    shared = set(worked.grams_in(part, n))
    assert sum(gram in shared for gram in worked.grams_in(document, n)) / (block - n + 1) == diluted


# --- against a twin in obvious code -----------------------------------------------------------------------------


def slow(part, documents, n, excluded: set, counts: dict | None) -> dict:
    """The measures straight from their definitions: sets of positions and units."""
    size = len(part) - n + 1
    grams = [tuple(part[i : i + n]) for i in range(max(size, 0))]
    live = [i for i in range(size) if grams[i] not in excluded]
    units = {u for i in live for u in range(i, i + n)}
    held = [{tuple(d[i : i + n]) for i in range(len(d) - n + 1)} for d in documents]
    m = [i for i in live if any(grams[i] in h for h in held)]
    covered = {u for i in m for u in range(i, i + n)}
    best = {}
    longest = 0
    for number, document in enumerate(documents):
        mine = {u for i in live if grams[i] in held[number] for u in range(i, i + n)}
        if mine:
            best[number] = len(mine)
        for start, length, _ in worked.match(part, document, n):
            inside = {u for i in live if start <= i <= start + length - n for u in range(i, i + n)}
            longest = max(longest, len(inside)) if size > 0 else 0
    chain = steps = 0
    for i in range(max(size, 0)):
        steps = steps + 1 if i in m else 0
        chain = max(chain, steps + n - 1 if steps else 0)
    if not live:
        return {"any": None, "ngram_ratio": None, "token_ratio": None, "best_doc_ratio": None, "longest": None}
    unique = {grams[i] for i in live}
    return {
        "any": bool(m),
        "ngram_ratio": len(m) / len(live),
        "unique_ratio": len({grams[i] for i in m}) / len(unique),
        "token_ratio": len(covered) / len(units),
        "best_doc_ratio": max(best.values(), default=0) / len(units),
        "longest": longest,
        "longest_ratio": longest / len(units),
        "run_union": chain,
        "documents": len(best),
        "weighted": sum(1 / counts[grams[i]] for i in m) / len(live) if counts is not None else None,
        "idf_train": ratio(  # what nothing matches is 0 whatever it weighs
            sum(math.log((len(documents) + 1) / (df(g, held) + 1)) for g in {grams[i] for i in m}),
            sum(math.log((len(documents) + 1) / (df(g, held) + 1)) for g in unique),
        )
        if m
        else 0.0,
    }


def df(gram, held):
    return sum(gram in h for h in held)


def ratio(a, b):
    return a / b if b else None


words = st.lists(st.sampled_from("abc"), max_size=14)


@settings(max_examples=300, deadline=None)
@given(st.lists(words, min_size=1, max_size=4), st.lists(words, max_size=4), st.integers(1, 4), st.data())
def test_measures_equal_their_definitions(parts, documents, n, data):
    layout, names = worked.layout_of(parts, n)
    drop = data.draw(st.sets(st.sampled_from(names), max_size=3)) if names else set()
    excluded = np.array([names[gram] in drop for gram in layout.grams], bool)
    grams = worked.counts_of(names, documents, n, {}, 1)
    counts = {name: int(count) for name, count in zip(names, grams.occurrences, strict=True)}
    runs = worked.runs_of(parts, documents, n)
    found = measure(layout, runs, grams, excluded)
    without = measure(layout, runs, None, excluded if drop else None).to_pylist()
    rows = found.to_pylist()
    for part, first in enumerate(layout.same.tolist()):
        expected = slow(parts[part], documents, n, drop, counts)
        for name, value in expected.items():
            wanted = value if value is None else pytest.approx(value)
            assert rows[first][name] == wanted, (part, name)
            if name not in ("unique_ratio", "weighted", "idf_train"):
                assert without[first][name] == wanted, (part, name)
    # the pairs: of each part and document what it covers, and the run that is its longest
    starts = runs.to_pylist()
    o = overlap(layout, runs, excluded)
    pairs = zip(*(column.tolist() for column in (o.part, o.doc, o.best, o.covered_ratio, o.longest)), strict=True)
    for part, doc, best, covered_ratio, longest in pairs:
        assert (starts[best]["part"], starts[best]["doc"]) == (part, doc)
        expected = slow(parts[part], [documents[doc]], n, drop, counts)
        assert covered_ratio == pytest.approx(expected["token_ratio"])
        assert longest == expected["longest"]


@settings(max_examples=200, deadline=None)
@given(st.lists(words, min_size=1, max_size=4), st.lists(words, max_size=3), st.integers(1, 3), st.integers(0, 3))
def test_longer_ngrams_come_from_the_same_runs(parts, documents, n, more):
    layout, names = worked.layout_of(parts, n)
    found = measure(layout.with_n(n + more), worked.runs_of(parts, documents, n)).to_pylist()
    for part, first in enumerate(layout.same.tolist()):
        for name, value in slow(parts[part], documents, n + more, set(), None).items() if names else ():
            if name in ("any", "ngram_ratio", "token_ratio", "best_doc_ratio", "longest", "run_union"):
                assert found[first][name] == (value if value is None else pytest.approx(value)), name


def test_longer_ngrams_are_excluded_when_all_in_them_are():
    layout, names = worked.layout_of([list("abcdef"), list("xy")], 2)
    excluded = np.array(["".join(names[gram]) in ("bc", "cd") for gram in layout.grams])
    longer = layout.with_n(3)
    assert layout.widened(excluded, longer).tolist() == [False, True, False, False]  # abc bcd cde def


def test_a_parts_own_n_is_a_lower_bound():
    """Of an unspaced script, whose n-grams are longer."""
    layout, _ = worked.layout_of([list("abcdef"), list("abcdef")], 2)
    mixed = Layout(layout.units, np.array([2, 4], np.int32), layout.same, offsets_of(np.array([5, 3])), layout.grams)
    assert mixed.with_n(3).n.tolist() == [3, 4]
    assert mixed.with_n(3).positions.tolist() == [4, 3]


intervals = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 9), st.integers(0, 9)), max_size=12)


@given(intervals)
def test_union_and_merged(rows):
    rows = [(key, min(a, b), max(a, b)) for key, a, b in rows if a != b]
    key, low, high = (np.array([row[i] for row in rows], np.int64) for i in range(3))
    widths = np.full(4, 9)
    units = [{u for k, a, b in rows if k == own for u in range(a, b)} for own in range(4)]
    assert union(key, low, high, widths).tolist() == [len(own) for own in units]
    joined = list(zip(*(values.tolist() for values in merged(key, low, high, widths)), strict=True))
    assert [{u for k, a, b in joined if k == own for u in range(a, b)} for own in range(4)] == units
    assert all(one[0] < two[0] or one[2] < two[1] for one, two in pairwise(joined))


@settings(max_examples=300)
@given(st.lists(st.booleans(), min_size=1, max_size=14), st.data())
def test_extension_is_the_best_span_of_all(equal, data):
    ones = [i for i, e in enumerate(equal) if e]
    if not ones:
        return
    start = data.draw(st.sampled_from(ones))
    end = next((i for i in range(start, len(equal)) if not equal[i]), len(equal))
    length = data.draw(st.integers(1, end - start))
    budget = data.draw(st.integers(0, 4))
    low, high, matched = extend(np.array(equal), start, length, budget)
    assert low <= start
    assert high >= start + length
    assert equal[low]
    assert equal[high - 1]
    assert sum(equal[low:high]) == matched
    spans = [
        sum(equal[a:b])
        for a in range(start + 1)
        for b in range(start + length, len(equal) + 1)
        if equal[a:b].count(False) <= budget
    ]
    assert equal[low:high].count(False) <= budget
    assert matched == max(spans)


# --- tables -----------------------------------------------------------------------------------------------------


def test_nothing_at_all():
    none = np.zeros(0, np.int32)
    layout = Layout(none, none, none, np.zeros(1, np.int64), none)
    assert measure(layout, worked.RUNS.empty_table()).num_rows == 0
    layout, _ = worked.layout_of([["a"], list("abcd")], 2)
    found = measure(layout, worked.RUNS.empty_table()).to_pylist()
    assert [row["ngram_ratio"] for row in found] == [None, 0.0]
    assert [row["bin"] for row in found] == [None, "clean"]


@pytest.mark.parametrize("units, name", [(1, "clean"), (2, "between"), (7, "between"), (8, "dirty")])
def test_bins(units, name):
    layout, _ = worked.layout_of([[f"u{i}" for i in range(10)]], 1)
    runs = worked.runs_of([[f"u{i}" for i in range(10)]], [[f"u{i}" for i in range(units)]], 1)
    assert measure(layout, runs)["bin"].to_pylist() == [name]


def test_best_documents_of_each_part():
    part = [f"u{i}" for i in range(10)]
    documents = [part[:4], part[:8], part[:8], part[:6]]
    layout, _ = worked.layout_of([part], 2)
    found = measure(layout, worked.runs_of([part], documents, 2))
    assert found["best_doc"].to_pylist() == [1]
    assert found["documents"].to_pylist() == [4]


def test_of_equal_documents_the_one_that_has_more_of_the_rest():
    part = [f"u{i}" for i in range(20)]
    layout, _ = worked.layout_of([part], 2)
    # the same longest, more covered; the same covered, a longer one; all the same
    found = measure(layout, worked.runs_of([part], [part[:8], [*part[:8], "x", *part[10:16]]], 2))
    assert found["longest_doc"].to_pylist() == [1]
    found = measure(layout, worked.runs_of([part], [[*part[:4], "x", *part[6:12]], part[:10], part[:10]], 2))
    assert found["best_doc"].to_pylist() == [1]


def test_of_equal_runs_the_first_is_the_best():
    part = [f"u{i}" for i in range(20)]
    layout, _ = worked.layout_of([part], 4)
    runs = worked.runs_of([part], [[*part[12:18], "x", *part[2:8]]], 4)
    assert runs["start"].to_pylist() == [2, 12]
    assert overlap(layout, runs).best.tolist() == [0]


def test_extended_and_substring_columns():
    layout, _ = worked.layout_of([worked.L12.split()], 4)
    runs = worked.runs_of([worked.L12.split()], [worked.SUBSTITUTED.split()], 4)
    part = pa.array([0], pa.int32())
    windows = pa.table({"doc": [0], "part": part, "substr50": [True], "extended": pa.array([6], pa.int32())})
    row = measure(layout, runs, windows=windows).to_pylist()[0]
    assert row["extended_ratio"] == 0.5
    assert row["substr50"] is True
    assert measure(layout, runs)["extended_ratio"].to_pylist() == [None]
    # where no window is asked for more, the runs say it: an n-gram, a whole part
    none = windows.slice(0, 0)
    row = measure(layout, runs, windows=none).to_pylist()[0]
    assert (row["extended_ratio"], row["substr50"]) == (pytest.approx(4 / 12), False)
    whole = worked.runs_of([worked.L12.split()], [worked.L12.split()], 4)
    row = measure(layout, whole, windows=none).to_pylist()[0]
    assert (row["extended_ratio"], row["substr50"]) == (1.0, True)


# --- profiles ---------------------------------------------------------------------------------------------------


def rules(prompts: list[list[str]], documents: list[list[str]], **more) -> dict[str, list[bool]]:
    layout, _ = worked.layout_of(prompts, 8)
    runs = worked.runs_of(prompts, documents, 8)
    examples = pa.table({"suite": ["s"] * len(prompts)})
    parts = pa.table({"example": pa.array(range(len(prompts)), pa.int32()), "kind": ["prompt"] * len(prompts)})
    return {name: flagged(rule, examples, parts, layout, runs)[0].tolist() for name, rule in PROFILES.items()}


def test_profiles_by_how_much_is_copied():
    part = [f"u{i}" for i in range(40)]
    found = {many: rules([part], [[*part[:many], "z"]]) for many in (7, 8, 20, 21, 31, 32, 40)}
    assert {name: min((many for many, own in found.items() if own[name][0]), default=None) for name in PROFILES} == {
        "gpt3": 20,  # n is 13, the length's 5th percentile being more
        "palm": 31,  # 24 of 33 positions
        "llama2": 32,
        "llama3": 32,
        "tulu3": 21,  # half is not over half
        "contam": 20,
        "decon-like": 40,  # at 40 units .81 of the n-grams is asked of the question, and .87 of the score
    }


def test_profiles_say_nothing_of_what_is_too_short():
    layout, _ = worked.layout_of([["a", "b"]], 8)
    examples, parts = pa.table({"suite": ["s"]}), pa.table({"example": pa.array([0], pa.int32()), "kind": ["prompt"]})
    for rule in PROFILES.values():
        hit, tested = flagged(rule, examples, parts, layout, worked.runs_of([["a", "b"]], [["a", "b"]], 8))
        assert (hit.tolist(), tested.tolist()) == ([False], [False]), rule.name


def test_profile_of_a_suite_with_its_own_threshold():
    from dataclasses import replace

    part = [f"u{i}" for i in range(40)]
    layout, _ = worked.layout_of([part, part[::-1]], 8)
    runs = worked.runs_of([part, part[::-1]], [part[:16], part[::-1][:16]], 8)
    parts = pa.table({"example": pa.array([0, 1], pa.int32()), "kind": ["prompt", "prompt"]})
    rule = replace(PROFILES["llama3"], suites={"b": 0.4})
    hit, _ = flagged(rule, pa.table({"suite": ["a", "b"]}), parts, layout, runs)
    assert hit.tolist() == [False, True]


@pytest.mark.parametrize("lengths, n", [([], 13), ([3] * 10, 8), ([9] * 100, 9), ([100], 13), ([8, *[50] * 99], 13)])
def test_gpt3_n(lengths, n):
    assert gpt3_n(np.array(lengths)) == n


def test_offsets():
    assert offsets_of(np.array([2, 0, 3])).tolist() == [0, 2, 2, 5]
