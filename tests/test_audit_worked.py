"""Worked examples that are about the whole path, by `datapipe audit` itself; the number stands first in each id."""

from pathlib import Path

import naive
import numpy as np
import pyarrow as pa
import pytest
import worked
from asked import write

from datapipe import cli
from datapipe.auditing.report import Report, from_json
from datapipe.contamination.index import Index
from datapipe.contamination.scan import scan


def units(seed: str, many: int, first: int = 0) -> str:
    return " ".join(f"{seed}x{at}th" for at in range(first, first + many))


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def audited(capsys, *more: str) -> Report:
    status = cli.run(["audit", "--eval", "eval.jsonl", "--train", "train.jsonl", "--json", *more])
    said = capsys.readouterr()
    assert status in (0, 7), said.err  # 7: no example could be tested
    return from_json(said.out)


def figures(report: Report) -> tuple[str, dict[str, float]]:
    (one,) = report.sections[0].flagged
    return one.cls, one.metrics


APPLES = worked.CASES[-3].part
WHOLE = {  # question, text, --n: class, measures; where each character is a unit, n is 12 whatever --n says
    "1 whole": (worked.E10, f"x {worked.E10} y", 4, "prompt", {"ngram_ratio": 1, "token_ratio": 1, "longest": 10}),
    "2 a unit is changed": (worked.E10, "a b c d Z f g h i j", 4, "prompt",
                            {"ngram_ratio": 3 / 7, "token_ratio": 0.9, "run_union": 5, "longest_ratio": 0.5}),
    "13 unspaced": ("中国的首都是哪里", "问：中国的首都是哪里？答：北京", 5, "short", {}),
    "14 compatibility and case": ("Don’t use naïve ﬁlters.", "so DON'T USE NAÏVE filters now", 3, "prompt",
                                  {"ngram_ratio": 1, "token_ratio": 1}),
    "15 wrapped": ("the quick brown fox jumps", "the quick\nbrown fox\njumps", 3, "prompt", {"ngram_ratio": 1}),
    "16 numbers": (APPLES, "tom has 15 apples and buys 9 more how many apples", 5, "variant", {"ngram_ratio": 0}),
    "17 short": ("what is 2 2", "so what is 2 2", 8, "short", {}),
}  # fmt: skip


@pytest.mark.parametrize("question, text, n, cls, expected", WHOLE.values(), ids=WHOLE)
def test_worked_examples_by_the_tool(capsys, question, text, n, cls, expected):
    write("eval.jsonl", {"id": "e", "question": question})
    write("train.jsonl", {"text": text})
    report = audited(capsys, "--n", str(n))
    assert (report.detector.n, report.verdict.complete) == (n, cls != "short")
    got, measures = figures(report)
    assert got == cls
    for name, value in expected.items():
        assert measures[name] == pytest.approx(value), name


def test_worked_example_17_short_and_absent_is_not_clean(capsys):
    write("eval.jsonl", {"id": "e", "question": "what is 2 2"})
    write("train.jsonl", {"text": units("z", 40)})
    status = cli.run(["audit", "--eval", "eval.jsonl", "--train", "train.jsonl", "--json"])
    report = from_json(capsys.readouterr().out)
    assert (status, report.verdict.result) == (7, "incomplete")  # the one example could not be tested
    assert [(one.id, one.reason) for one in report.evals.untested] == [("e", "short")]


def test_worked_example_18_pairs(capsys):
    prompt, solution, passage = (units(name, 14) for name in ("p", "s", "c"))
    write("eval.jsonl", {"id": "e", "question": prompt, "answer": "fortytwo", "solution": solution, "passage": passage})
    before, behind, six, far = (units("f", many, at) for many, at in ((9, 0), (9, 100), (6, 200), (500, 300)))
    documents = {
        "prompt only": f"{before} {prompt} {behind}",
        "prompt, answer 6 units later": f"{prompt} {six} fortytwo {behind}",
        "prompt, answer 500 units later": f"{prompt} {far} fortytwo",
        "solution only": f"{before} {solution}",
        "passage only": f"{passage} {behind}",
    }
    for about, cls in worked.PAIRS:
        write("train.jsonl", {"id": about, "text": documents[about]})
        (one,) = audited(capsys).sections[0].flagged
        assert one.cls == cls, about
        if cls == "adjacent":
            assert one.evidence[0].gap == 6
    write("train.jsonl", *({"id": about, "text": text} for about, text in documents.items()))
    (one,) = audited(capsys).sections[0].flagged
    assert (one.cls, one.evidence[0].url) == ("adjacent", "prompt, answer 6 units later")
    assert set(one.also) == {"solution", "prompt", "passage"}


def test_worked_example_19_set(capsys):
    """200 examples, 50 of them too short, 12 found."""
    long = [{"id": f"e{at}", "question": units(f"q{at}q", 12)} for at in range(150)]
    short = [{"id": f"s{at}", "question": units(f"s{at}s", 5)} for at in range(50)]
    write("eval.jsonl", *long, *short)
    write("train.jsonl", *({"text": f"{own['question']} {units('z', 5)}"} for own in long[:12]))
    row = audited(capsys).sections[0].total
    assert row.classes == worked.SET
    assert (row.examples, row.tested, row.flagged) == (200, 150, 12)
    assert row.rate.share == pytest.approx(worked.SET_RATE)
    assert (row.rate.low, row.rate.high) == pytest.approx(worked.SET_WILSON, abs=5e-5)
    assert (row.least, row.most) == pytest.approx(worked.SET_BOUNDS)
    write("train.jsonl", {"text": units("z", 50)})
    row = audited(capsys).sections[0].total
    assert row.rate.high == pytest.approx(worked.NOTHING_OF_150[0], abs=5e-4)
    assert row.zero is not None
    assert row.zero >= worked.NOTHING_OF_150[1]


def test_worked_example_21_no_run_of_n_units_is_missed():
    """Where a probe every ten positions asks for 14 units, every run of five is found, at any offset."""
    n = worked.PROBED_N
    part = units("p", 40).split()
    parts = pa.table({
        "part": pa.array([0], pa.int32()), "example": pa.array([0], pa.int32()), "kind": ["prompt"],
        "ordinal": pa.array([0], pa.int32()), "correct": pa.array([None], pa.bool_()),
        "text": pa.array([" ".join(part)], pa.large_string()),
    })  # fmt: skip
    index = Index.build(parts, n, n)
    cases = [(offset, run, at) for offset in range(24) for run in (n, n + 1, worked.ALWAYS - 1) for at in (0, 7, 26)]
    texts = [" ".join([*units("f", offset).split(), *part[at : at + run], "end"]) for offset, run, at in cases]
    runs = scan(index, pa.array(texts, pa.large_string()), np.arange(len(texts))).runs
    found = list(zip(*(runs[name].to_pylist() for name in ("doc", "start", "length", "doc_unit")), strict=True))
    assert found == [(doc, at, run, offset) for doc, (offset, run, at) in enumerate(cases)]
    short = [" ".join([*units("f", 9).split(), *part[3 : 3 + n - 1], "end"])]
    assert scan(index, pa.array(short, pa.large_string()), np.arange(1)).runs.num_rows == 0


def test_worked_example_23_containment_in_a_long_document(capsys):
    """Of ten shingles of five units eight are found, whatever the length of the document."""
    own, there, shingles, containment, _ = worked.CONTAINED
    part = units("p", own + 4).split()
    held = part[: there + 4]
    document = [*units("f", (shingles - there) // 2).split(), *held, *units("g", (shingles - there) // 2).split()]
    assert len({*worked.grams_in(naive.units(" ".join(document)), 5)}) >= shingles
    write("eval.jsonl", {"id": "e", "question": " ".join(part)})
    write("train.jsonl", {"text": " ".join(document)})
    _, measures = figures(audited(capsys))
    assert measures["containment"] == pytest.approx(containment)


def test_worked_example_24_what_stands_around_does_not_dilute(capsys):
    n, item, block, diluted, own = worked.DILUTED
    question = units("p", item)
    write("eval.jsonl", {"id": "e", "question": question})
    write("train.jsonl", {"text": f"{question} {units('f', block - item)}"})
    got, measures = figures(audited(capsys, "--n", str(n)))
    assert (got, measures["ngram_ratio"]) == ("prompt", own)
    assert diluted < own
