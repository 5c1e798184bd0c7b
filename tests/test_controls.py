"""Controls: copies in every form are what their form says, are chosen by key alone, and are found or told as missed."""

import json
from pathlib import Path

import pyarrow as pa
import pytest

from datapipe import text
from datapipe.auditing import controls
from datapipe.auditing.audit import Question, audit
from datapipe.auditing.controls import FORMS, Copied, decoys
from datapipe.auditing.outside import files
from datapipe.auditing.training import asked

PROMPT = "If 12 ferries carry 340 crates each, and 7 of them turn back at noon, how many crates arrive at Ebbing quay?"
ANSWER = "Five ferries arrive, so 1700 crates stand on the quay, less the one that Joren let fall into the tide."
ONE = Copied(3, PROMPT, ANSWER, ("A rewrite of the same question about boats and boxes in the harbour.",), True)


def units(value: str) -> list[str]:
    """The units of a text as their hashes, which is what the scan compares."""
    return [str(unit) for unit in text.units(pa.array([value], pa.large_string()))[1]]


def within(part: str, whole: str) -> bool:
    small, large = units(part), units(whole)
    return any(large[at : at + len(small)] == small for at in range(len(large) - len(small) + 1))


HELD = {"verbatim", "wrapped", "inline", "changed"}


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.name)
def test_forms_change_what_they_say_and_nothing_else(form):
    made = form.make(ONE)
    assert made == form.make(ONE)  # the same in every run
    assert within(f"{PROMPT} {ANSWER}", made) == (form.name in HELD)
    assert within(PROMPT, made) == (form.name in HELD | {"template", "prompt only"})
    assert within(ANSWER, made) == (form.name in HELD | {"template", "answer only", "one edit", "three edits"})


def test_what_wrapped_and_changed_look_like():
    by_name = {form.name: form.make(ONE) or "" for form in FORMS}
    assert max(len(line.split()) for line in by_name["wrapped"].split("\n\n")[1].split("\n")) == controls.WORDS
    assert "12" not in by_name["changed"]
    assert "FERRIES" in by_name["changed"]
    assert by_name["inline"].count("\n") == 0
    assert "340" not in by_name["numbers"]
    differ = [pair for pair in zip(units(PROMPT), units(by_name["three edits"].split("\n\n")[1]), strict=False)
              if pair[0] != pair[1]]  # fmt: skip
    assert 1 <= len(differ) <= 3


NONE = {
    "no numbers": (Copied(0, "no digits here at all", "a", (), True), {"numbers", "variant"}),
    "a short answer": (Copied(0, PROMPT, "48", (), False), {"answer only", "variant"}),
    "no answer": (Copied(0, PROMPT, "", (), False), {"answer only", "variant", "template"}),
}


@pytest.mark.parametrize("one, missing", NONE.values(), ids=NONE)
def test_forms_that_an_example_does_not_have(one, missing):
    assert {form.name for form in FORMS if form.make(one) is None} == missing


def test_unspaced_prompts_are_edited_too():
    one = Copied(1, "码头上一共停着十二艘渡船每艘装三百四十箱货物请问中午之前有多少箱货物到岸", "一千七百箱", (), False)
    made = next(form for form in FORMS if form.name == "three edits").make(one)
    assert made is not None
    assert not within(one.prompt, made)


# --- in a run -----------------------------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    words = [
        f"{a}{b}" for a in ("ka", "lo", "mi", "nu", "pe", "ra") for b in ("dor", "fen", "gil", "hun", "jas", "kel")
    ]
    evals = [
        {"id": f"e{at}", "question": " ".join(words[(at * 7 + k * (at + 3)) % 36] + str(at) for k in range(16)) + "?",
         "answer": " ".join(words[(at * 5 + k) % 36] + f"a{at}" for k in range(12))}
        for at in range(20)
    ]  # fmt: skip
    train = [{"text": " ".join(f"{words[(at + k * k) % 36]}t{k}" for k in range(120))} for at in range(40)]
    for name, rows in (("eval", evals), ("train", train)):
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    return tmp_path


def test_measured_recall_and_no_false_flags(folder):
    question = Question(evals=["eval.jsonl"], train=asked("--train", ["train.jsonl"], folder))
    report = audit(question, workers=1, memory=1_000_000_000).report
    found = {one.form: (one.recall.found, one.recall.of) for one in report.controls.forms}
    for form in ("verbatim", "wrapped", "inline", "changed", "template", "prompt only", "answer only"):
        assert found[form] == (20, 20), form
    assert report.controls.examples == 20
    recall = report.controls.recall
    assert recall
    assert 0.8 < recall < 1
    assert report.controls.negative.false.found == 0
    assert report.controls.negative.documents == 40
    # nothing found is worth what the controls found, and no more
    assert report.sections[0].total.zero == pytest.approx(3 / (20 * recall))


def test_decoys_hold_no_n_gram_of_their_documents(folder):
    corpus = files("--train", "train", ["train.jsonl"], workers=1)
    made = decoys([corpus], 8).to_pylist()
    texts = [json.loads(line)["text"] for line in (folder / "train.jsonl").read_text("utf-8").splitlines()]
    grams = {tuple(own[at : at + 8]) for one in texts for own in [units(one)] for at in range(len(own) - 7)}
    theirs = [tuple(own[at : at + 8]) for one in made for own in [units(one)] for at in range(len(own) - 7)]
    assert sum(gram in grams for gram in theirs) <= len(theirs) // 100
    assert sorted(map(len, map(units, made))) != [0] * len(made)
