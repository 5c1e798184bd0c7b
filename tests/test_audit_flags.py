"""`datapipe audit` on files: what each flag does to what the report says."""

import re
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import worked
from asked import ANSWER, QUESTION, run, write

from datapipe.auditing.policy import MEASURES
from datapipe.auditing.report import Flagged, Report, Role, from_json
from datapipe.contamination.profiles import PROFILES


def units(seed: str, many: int) -> str:
    return " ".join(f"{seed}x{at}th" for at in range(many))


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "eval.jsonl", {"id": "q", "question": QUESTION, "answer": ANSWER},
          {"id": "r", "question": units("other", 20)})  # fmt: skip
    write(tmp_path / "clean.jsonl", {"text": units("clean", 60)})
    return tmp_path


def report(capsys, *args: str, status: int = 0) -> Report:
    got, out, err = run(capsys, *args, "--json")
    assert got == status, err
    return from_json(out)


def found(report: Report, role: Role = "train") -> dict[str, Flagged]:
    section = report.section(role)
    assert section is not None
    return {one.id: one for one in section.flagged}


# --- evidence -------------------------------------------------------------------------------------------------------

COUNTED = (
    "On the quay of Marrowby stand 14 lanterns in a row, and old Perrin lights one more of them every 3 minutes until "
    "the tide comes in and the ferry leaves the harbour for the night."
)


@pytest.mark.parametrize("text, near, longest", [
    # what is equal but for numbers is no match of these: 13 units stand between the two, 15 behind them
    (COUNTED.replace("14", "15").replace("3", "4"), "numbers", 15),
    # all of it stands there as it is, and once more with other numbers, which says nothing
    (f"{COUNTED} {COUNTED.replace('14', '15')}", None, 36),
    (COUNTED, None, 36),
])  # fmt: skip
def test_measures_of_a_match_are_of_what_is_equal(capsys, folder, text, near, longest):
    write(folder / "n.jsonl", {"id": "n", "question": COUNTED})
    write(folder / "t.jsonl", {"text": text})
    (proof,) = found(report(capsys, "--eval", "n.jsonl", "--train", "t.jsonl"))["n"].evidence
    (match,) = proof.matches
    assert (match.near, match.metrics["longest"], match.units) == (near, longest, 36)
    assert match.metrics["longest_ratio"] == pytest.approx(longest / 36)
    own = re.findall(r"\w+", COUNTED)
    cuts = [(re.findall(r"\w+", text[one.start : one.end]), own[one.part_start :][: one.units]) for one in match.spans]
    equal = [len(cut) for cut, there in cuts if cut == there]
    assert max(equal) == longest
    assert ("numbers" in match.metrics) == (len(equal) < len(cuts)) == (near is not None)


# --- controls -------------------------------------------------------------------------------------------------------


def test_controls_of_chats_copy_the_turns_that_are_their_own(capsys, folder):
    """A first turn that every example has, and what was said to it, are no evidence: a copy of them finds nothing."""
    first = [{"role": "user", "content": units("ask", 30)}, {"role": "assistant", "content": units("told", 60)}]
    write(folder / "chats.jsonl", *(
        {"id": f"c{at}", "messages": [
            *first, {"role": "user", "content": units(f"q{at}", 20)},
            {"role": "assistant", "content": units(f"a{at}", 30)},
        ]} for at in range(4)
    ))  # fmt: skip
    forms = report(capsys, "--eval", "chats.jsonl", "--train", "clean.jsonl").controls.forms
    assert len(forms) > 8
    assert {(one.form, one.recall.found, one.recall.of) for one in forms if one.form != "numbers"} == {
        (one.form, 4, 4) for one in forms if one.form != "numbers"
    }


# --- scores ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def scored(folder) -> list[str]:
    """Worked example 20: 100 examples, 40 of them copied whole; 70 right, 34 of them copied."""
    (right, of), (dirty_right, dirty) = worked.ALL, worked.DIRTY
    prompts = [units(f"p{at}q", 12) for at in range(of)]
    evals = write(folder / "hundred.jsonl", *({"id": f"e{at}", "question": own} for at, own in enumerate(prompts)))
    train = write(folder / "train.jsonl", *({"text": f"{units('z', 9)} {own}"} for own in prompts[:dirty]))
    good = {*range(dirty_right), *range(dirty, dirty + right - dirty_right)}
    write(folder / "scores.jsonl", *({"id": f"e{at}", "acc": int(at in good)} for at in range(of)))
    return ["--eval", str(evals), "--train", str(train)]


def test_worked_example_20_scores(capsys, scored):
    made = report(capsys, *scored, "--scores", "scores.jsonl")
    assert made.sections[0].total.flagged == 40
    assert made.scores is not None
    (one,) = made.scores.sets
    rows = {row.name: (row.examples, row.score) for row in (*one.rows, one.all, one.quote)}
    assert rows["all"] == (100, 0.7)
    assert rows["prompt"] == (40, 0.85)
    assert rows["clean"] == (60, pytest.approx(0.6))
    assert one.epg == pytest.approx(worked.EPG)
    assert one.z["clean"] == pytest.approx(worked.Z_CLEAN, abs=0.005)
    assert one.z["dirty"] == pytest.approx(worked.Z_DIRTY, abs=0.005)
    assert one.evidence is True
    assert set(one.clean_ids) == {f"e{at}" for at in range(40, 100)}
    assert (made.scores.scored, made.scores.unknown, made.scores.missing) == (100, 0, 0)
    assert dict(one.epg_curve)[0.5] == pytest.approx(worked.EPG)


def test_scores_on_the_terminal_and_as_lists_of_ids(capsys, scored, folder):
    status, out, _ = run(capsys, *scored, "--scores", "scores.jsonl", "--out", "out")
    assert status == 0
    (row,) = (line for line in out.splitlines() if line.strip().startswith("hundred") and "yes" in line)
    assert [word for word in row.split() if word.startswith("0.7")]
    assert any(word.startswith("10") for word in row.split())
    assert (folder / "out" / "clean" / "hundred.txt").read_text().split() == [f"e{at}" for at in range(40, 100)]


@pytest.mark.parametrize(
    "line, status, says",
    [('{"id": "e1", "points": 3}', 2, "points"), ('{"id": "e1", "score": 7}', 3, "expected 0 to 1")],
)
def test_scores_that_are_none(capsys, scored, folder, line, status, says):
    (folder / "bad.jsonl").write_text(line + "\n", "utf-8")
    got, out, err = run(capsys, *scored, "--scores", "bad.jsonl")
    assert (got, out) == (status, "")
    assert says in err


# --- profiles -------------------------------------------------------------------------------------------------------

COPIED = (15, 20, 21, 31, 32, 40)
FLAGS = {  # of prompts of 40 units: from how many copied units on
    "gpt3": 13, "palm": 31, "llama2": 32, "llama3": 32, "tulu3": 21, "contam": 20, "decon-like": 40,
}  # fmt: skip


@pytest.mark.parametrize("name", PROFILES)
def test_profiles(capsys, folder, name):
    prompts = {many: units(f"p{many}q", 40).split() for many in COPIED}
    write(folder / "forty.jsonl", *({"id": str(many), "question": " ".join(own)} for many, own in prompts.items()))
    write(
        folder / "t.jsonl",
        *({"text": " ".join([*own[:many], *units("z", 9).split()])} for many, own in prompts.items()),
    )
    made = report(capsys, "--eval", "forty.jsonl", "--train", "t.jsonl", "--profile", name)
    assert made.detector.profile == name
    row = made.sections[0].total
    assert row.flagged == sum(many >= FLAGS["contam"] for many in COPIED)
    if name == "contam":
        assert row.by_profile is None
        assert {one.id for one in found(made).values()} == {str(many) for many in COPIED if many >= 20}
    else:
        assert row.by_profile is not None
        assert (row.by_profile.found, row.by_profile.of) == (sum(many >= FLAGS[name] for many in COPIED), len(COPIED))


# --- variants -------------------------------------------------------------------------------------------------------

REWRITE = (
    "At the harbour of Marrowby stand seven lamps in a row; tell me the one that Perrin kindled ahead of high water"
)


def test_variants_that_somebody_supplied(capsys, folder):
    write(folder / "v.jsonl", {"id": "q", "variant": REWRITE})
    write(folder / "t.jsonl", {"id": "page", "text": f"{units('z', 30)} {REWRITE} {units('y', 30)}"})
    args = ("--eval", "eval.jsonl", "--train", "t.jsonl")
    assert found(report(capsys, *args)) == {}
    made = report(capsys, *args, "--variants", "v.jsonl")
    one = found(made)["q"]
    (proof,) = one.evidence
    assert (one.cls, [match.kind for match in proof.matches]) == ("near", ["variant"])
    assert {part.kind for part in one.parts} == {"prompt", "answer", "variant"} or one.parts
    # they are planted among the controls, and what cannot be seen does not say that none was supplied
    assert not any("none was supplied" in line for line in made.blind)
    blind = report(capsys, *args).blind
    assert any("none was supplied" in line for line in blind)
    assert any("base64" in line for line in blind)
    assert any("hamza" in line for line in blind)


def test_variants_of_no_example_are_a_failure(capsys, folder):
    write(folder / "v.jsonl", {"id": "nobody", "variant": REWRITE})
    made = report(capsys, "--eval", "eval.jsonl", "--train", "clean.jsonl", "--variants", "v.jsonl", status=7)
    assert [one.path for one in made.failures] == ["v.jsonl"]


# --- retrieval ------------------------------------------------------------------------------------------------------


def test_retrieval_files_are_apart_from_training(capsys, folder):
    write(folder / "index" / "a.jsonl", {"id": "page", "text": f"{QUESTION} {ANSWER}"})
    args = ("--eval", "eval.jsonl", "--train", "clean.jsonl", "--retrieval", "index")
    made = report(capsys, *args)
    assert found(made) == {}
    assert {name: one.cls for name, one in found(made, "retrieval").items()} == {"q": "adjacent"}
    assert [(one.role, one.documents) for one in made.scope] == [("train", 1), ("retrieval", 1)]
    status, out, _ = run(capsys, *args, "--fail-on", "flagged>0")
    assert status == 6
    assert "retrieval: * = 1" in out


TRACES = {
    "a text that was shown for the question": ({"id": "q", "retrieved": [f"{QUESTION} {ANSWER}"]}, "adjacent", 0),
    "the text of another question": ({"id": "r", "retrieved": [f"{QUESTION} {ANSWER}"]}, None, 0),
    "an id of the index": ({"id": "q", "retrieved": [{"id": "page"}]}, "adjacent", 0),
    "an id of the index that holds nothing": ({"id": "q", "retrieved": [{"id": "empty"}]}, None, 0),
    "an id of the index for another question": ({"id": "r", "retrieved": [{"id": "page"}]}, None, 0),
    "an id that no text is known of": ({"id": "q", "retrieved": [{"id": "lost"}]}, None, 7),
    "a line of no example": ({"id": "nobody", "retrieved": [{"id": "page"}]}, None, 7),
}


@pytest.mark.parametrize("line, cls, status", TRACES.values(), ids=TRACES)
def test_a_trace_says_what_was_really_retrieved(capsys, folder, line, cls, status):
    write(
        folder / "index.jsonl", {"id": "page", "text": f"{QUESTION} {ANSWER}"}, {"id": "empty", "text": units("e", 40)}
    )
    write(folder / "trace.jsonl", line)
    made = report(capsys, "--eval", "eval.jsonl", "--train", "clean.jsonl", "--retrieval", "index.jsonl",
                  "--trace", "trace.jsonl", status=status)  # fmt: skip
    assert made.trace is not None
    assert [(one.id, one.cls) for one in made.trace.flagged] == ([("q", cls)] if cls else [])
    assert made.trace.unknown == (line["id"] == "nobody")
    assert made.trace.missing == (line["retrieved"] == [{"id": "lost"}])
    lost = {"a document without text": 1} if made.trace.missing else {}
    assert made.trace.untested == lost
    assert made.trace.classes.get("clean", 0) == (cls is None and not lost and not made.trace.unknown)


TRACED = {  # --fail-on -> status, of a clean corpus and a trace that shows q and its answer
    "flagged>0": 6, "eval.adjacent>0": 6, "rate>0.9": 6, "rate<0.9": 6, "eval.clean<1": 6, "solution>0": 0,
}  # fmt: skip


@pytest.mark.parametrize("expression, status", TRACED.items())
def test_fail_on_sees_what_was_retrieved(capsys, folder, expression, status):
    write(folder / "trace.jsonl", {"id": "q", "retrieved": [f"{QUESTION} {ANSWER}"]})
    got, out, err = run(capsys, "--eval", "eval.jsonl", "--train", "clean.jsonl", "--trace", "trace.jsonl",
                        "--fail-on", expression)  # fmt: skip
    assert got == status, err
    assert out.startswith("found: 1 of 1 tested examples in retrieved\n")


def test_an_example_with_a_document_that_is_not_there_is_not_clean(capsys, folder):
    """Nor is one that could not be tested; what flags does so all the same."""
    write(folder / "eval.jsonl", {"id": "q", "question": QUESTION, "answer": ANSWER},
          {"id": "r", "question": units("other", 20)}, {"id": "hi", "question": "Hi"})  # fmt: skip
    write(folder / "trace.jsonl", {"id": "q", "retrieved": [f"{QUESTION} {ANSWER}", {"id": "lost"}]},
          {"id": "r", "retrieved": ["a text of something else", {"id": "lost"}]},
          {"id": "hi", "retrieved": ["a text of something else"]})  # fmt: skip
    made = report(capsys, "--eval", "eval.jsonl", "--train", "clean.jsonl", "--trace", "trace.jsonl", status=7)
    trace = made.trace
    assert trace is not None
    assert trace.total is not None
    assert trace.classes == {"adjacent": 1, "untested": 2}
    assert trace.untested == {"a document without text": 1, "short": 1}
    assert (trace.total.tested, trace.total.rate.share, trace.total.flagged) == (0, None, 1)
    out = run(capsys, "--eval", "eval.jsonl", "--train", "clean.jsonl", "--trace", "trace.jsonl")[1]
    assert out.startswith("found: 1 of 3 that could not be tested in retrieved\n")
    assert "untested: 1 a document without text, 1 short" in out


# --- policies -------------------------------------------------------------------------------------------------------

HOLDS = (
    "eval.adjacent>0", "eval.adjacent >= 1", "flagged==1", "rate>0.4", "eval.rate>=0.5", "*.flagged>0",
    "'eval'.clean<=1", "clean!=2",
)  # fmt: skip
NOT = ("eval.adjacent>1", "rate>0.5", "solution>0", "untested>0", "eval.prompt != 0")
BAD = (
    "", "adjacent", "eval.adjacent", "eval.adjacent>", "eval.adjacent>-1", "eval.adjacent>0 or 1", "rate>2",
    "rate=>0.1", "eval..rate>0", "__import__('os').getcwd()", "lambda: 0", "eval.adjacent>0x1",
)  # fmt: skip


@pytest.mark.parametrize(
    "expression, status", [(one, 6) for one in HOLDS] + [(one, 0) for one in NOT] + [(one, 2) for one in BAD]
)
def test_fail_on(capsys, folder, expression, status):
    write(folder / "t.jsonl", {"text": f"{QUESTION} {ANSWER}"})
    got, out, err = run(capsys, "--eval", "eval.jsonl", "--train", "t.jsonl", "--fail-on", expression)
    assert got == status, err
    assert "Traceback" not in err
    if status == 2:
        assert out == ""
    else:
        assert ("VIOLATED" in out) == (status == 6)


PRECEDENCE = {  # (what is found, whether all was seen, whether a policy holds) -> status
    (True, True, True): 6, (True, True, False): 0, (True, False, True): 6, (True, False, False): 7,
    (False, True, True): 6, (False, True, False): 0, (False, False, True): 6, (False, False, False): 7,
}  # fmt: skip


@pytest.mark.parametrize("case", PRECEDENCE)
def test_which_status_comes_first(capsys, folder, case):
    leaks, whole, holds = case
    write(folder / "t.jsonl", {"text": f"{QUESTION} {ANSWER}" if leaks else units("t", 50)})
    if not whole:
        with open(folder / "t.jsonl", "a", encoding="utf-8") as file:
            file.write('{"text": "cut\n')
    policy = "clean<=2" if holds else "untested>5"
    status, out, err = run(capsys, "--eval", "eval.jsonl", "--train", "t.jsonl", "--fail-on", policy)
    assert status == PRECEDENCE[case], err
    verdict = "found" if leaks else "nothing found" if whole else "incomplete"
    assert out.startswith(f"{verdict}:")


def test_every_measure_can_be_asked(capsys, folder):
    made = report(capsys, "--eval", "eval.jsonl", "--train", "clean.jsonl", "--fail-on",
                  *(f"{name}>0.99" if name == "rate" else f"{name}>2" for name in MEASURES))  # fmt: skip
    assert len(made.policies) == len(MEASURES)


def test_a_rate_takes_in_no_example_for_having_been_found(capsys, folder):
    """Of examples whose prompt all have, one is found beside its passage: flagged, in the bounds, in no rate."""
    prompt = units("ask", 12)
    rows = [{"id": str(at), "question": prompt, "context": units(f"c{at}", 20)} for at in range(4)]
    write(folder / "ask.jsonl", *rows, {"id": "own", "question": QUESTION})
    write(folder / "t.jsonl", {"text": f"{rows[1]['context']} {prompt}"})
    made = report(capsys, "--eval", "ask.jsonl", "--train", "t.jsonl", "--fail-on", "rate>0.2", "--out", "out")
    row = made.sections[0].total
    assert (row.examples, row.tested, row.flagged, row.rate.found, row.rate.of) == (5, 1, 1, 0, 1)
    assert (row.rate.share, row.least, row.most) == (0.0, 0.2, 0.8)
    assert row.classes == {"prompt": 1, "untested": 3, "clean": 1}
    assert made.policies[0].figures == {"*": 0.2}  # of all: what flags does not hide behind the rest
    assert made.verdict.sentence == "1 of 4 that could not be tested in train"
    assert made.evals.suites[0].tested == 1
    table = pq.read_table(folder / "out" / "sets.parquet").to_pylist()[0]
    assert (table["tested"], table["flagged"], table["rate_found"], table["rate_of"]) == (1, 1, 0, 1)
    examples = pq.read_table(folder / "out" / "examples.parquet").to_pylist()
    assert [(one["class"], one["reason"]) for one in examples] == [
        ("untested", "template"), ("prompt", "template"), ("untested", "template"), ("untested", "template"),
        ("clean", None),
    ]  # fmt: skip


def test_the_matrix_counts_documents_that_flag(capsys, folder):
    rows = {"id": "q", "question": QUESTION, "context": units("c", 20)}
    write(folder / "one.jsonl", rows)
    write(folder / "t.jsonl", {"text": rows["context"]}, {"text": QUESTION}, {"text": f"{units('d', 30)} {QUESTION}"})
    (cell,) = report(capsys, "--eval", "one.jsonl", "--train", "t.jsonl").sections[0].matrix
    assert (cell.examples, cell.documents, cell.exposure, cell.classes) == (1, 2, 2, {"prompt": 1})


# --- twins, mirrors -------------------------------------------------------------------------------------------------


def test_twins_are_named_and_counted_once(capsys, folder):
    write(folder / "twins.jsonl", {"id": "a", "question": QUESTION}, {"id": "b", "question": QUESTION.lower()},
          {"id": "c", "question": units("c", 20)})  # fmt: skip
    write(folder / "t.jsonl", {"text": QUESTION})
    made = report(capsys, "--eval", "twins.jsonl", "--train", "t.jsonl")
    row = made.sections[0].total
    assert (row.examples, row.tested, row.flagged) == (2, 2, 1)
    assert {name: (one.cls, one.twins) for name, one in found(made).items()} == {
        "a": ("prompt", ("twins/b",)), "b": ("prompt", ("twins/a",)),
    }  # fmt: skip
    assert made.evals.twins == (("twins/a", "twins/b"),)
    assert made.evals.suites[0].twins == 1
    assert "the same text as twins/b" in run(capsys, "explain", "twins/a", "--from", str(keep(folder, made)))[1]


def test_all_suites_together_count_a_twin_once(capsys, folder):
    for name in ("one", "two"):
        write(folder / f"{name}.jsonl", {"id": "a", "question": QUESTION}, {"id": "b", "question": units(name, 20)})
    write(folder / "t.jsonl", {"text": QUESTION})
    section = report(capsys, "--eval", "one.jsonl", "two.jsonl", "--train", "t.jsonl").sections[0]
    assert [(row.examples, row.flagged) for row in (*section.sets, section.total)] == [(2, 1), (2, 1), (3, 1)]


def keep(folder: Path, made: Report) -> Path:
    (folder / "kept.json").write_bytes(made.dumped())
    return folder / "kept.json"


def test_a_document_of_five_examples_is_a_mirror(capsys, folder):
    prompts = [units(f"m{at}q", 15) for at in range(6)]
    write(folder / "many.jsonl", *({"id": str(at), "question": own} for at, own in enumerate(prompts)))
    write(
        folder / "t.jsonl", {"id": "four", "text": " ".join(prompts[:4])}, {"id": "five", "text": " ".join(prompts[1:])}
    )
    made = report(capsys, "--eval", "many.jsonl", "--train", "t.jsonl")
    (mirror,) = made.sections[0].mirrors
    assert (mirror.url, mirror.suite, mirror.examples) == ("five", "many", 5)
    assert "mirror: five" in run(capsys, "--eval", "many.jsonl", "--train", "t.jsonl")[1]


# --- numbers --------------------------------------------------------------------------------------------------------

MONEY = "A shop of Marrowby sold {} lanterns in spring, {} in summer and {} in the fall; how many did it sell in all?"
SPELLED = {  # the numbers of an example, those of its copy -> class; None: too little is equal
    "separators left out": (("1,250", "3,400", "2,100"), ("1250", "3400", "2100"), "adjacent"),
    "separators put in": (("1250", "3400", "2100"), ("1,250", "3,400", "2,100"), "adjacent"),
    "other numbers": (("1,250", "3,400", "2,100"), ("1250", "3500", "2100"), None),
    "digits in other numbers": (("1,250", "3,400", "2,100"), ("1250", "340", "2100"), None),
}


@pytest.mark.parametrize("own, copied, cls", SPELLED.values(), ids=SPELLED)
def test_numbers_are_the_same_whatever_parts_their_digits(capsys, folder, own, copied, cls):
    write(folder / "money.jsonl", {"id": "m", "question": MONEY.format(*own), "answer": "6750 lanterns of glass"})
    write(folder / "t.jsonl", {"text": f"{MONEY.format(*copied)} It sold 6750 lanterns of glass."})
    made = report(capsys, "--eval", "money.jsonl", "--train", "t.jsonl")
    assert [one.cls for one in made.sections[0].flagged] == ([cls] if cls else [])


# --- common n-grams -------------------------------------------------------------------------------------------------


def test_common_n_grams_are_shown_with_and_without(capsys, folder):
    """Phrases that make more than half of an example are in many documents of a source, far apart where both are."""
    phrases = [units(f"ph{at}", 13) for at in range(2)]
    example = " ".join([*phrases, units("own", 10)])
    write(folder / "one.jsonl", {"id": "x", "question": example})
    many = [{"text": f"{units(f'd{at}', 30)} {phrases[at % 2]}"} for at in range(10)]
    both = {"text": f"{phrases[0]} {units('between', 40)} {phrases[1]}"}
    write(folder / "t.jsonl", *many, both)
    made = report(capsys, "--eval", "one.jsonl", "--train", "t.jsonl")
    row = made.sections[0].total
    assert (row.flagged, row.without_exclusion) == (0, 1)
    common = made.sections[0].common
    assert {one.documents for one in common} == {6}
    assert common[0].text.casefold() in " ".join(phrases)
    assert made.detector.excluded == len(common) == 12
    out = run(capsys, "--eval", "one.jsonl", "--train", "t.jsonl")[1]
    assert out.startswith("nothing found: none of 1 tested examples")
    assert "; 1 with common and template n-grams counted\n" in out
    assert re.search(r"flagged +common kept +rate", out)


@pytest.mark.parametrize("many", [1, 4, 5, 60])
def test_more_copies_of_an_example_with_a_changed_middle_are_no_less_evidence(capsys, folder, many):
    head, tail = units("head", 16), units("tail", 16)
    write(folder / "one.jsonl", {"id": "x", "question": f"{head} {units('own', 8)} {tail}"})
    copies = [{"text": f"{units(f'd{at}', 30)} {head} {units(f'other{at}', 9)} {tail}"} for at in range(many)]
    write(folder / "t.jsonl", *copies)
    made = report(capsys, "--eval", "one.jsonl", "--train", "t.jsonl")
    (one,) = made.sections[0].flagged
    assert (one.cls, one.documents) == ("prompt", many)
    assert "common kept" not in run(capsys, "--eval", "one.jsonl", "--train", "t.jsonl")[1]


def test_a_copy_of_half_an_example_is_never_common(capsys, folder):
    """Mirrored by as many documents as one likes: the match that covers half makes the exclusion void."""
    write(folder / "one.jsonl", {"id": "x", "question": QUESTION})
    write(folder / "t.jsonl", *({"text": f"{units(f'd{at}', 30)} {QUESTION}"} for at in range(30)))
    made = report(capsys, "--eval", "one.jsonl", "--train", "t.jsonl")
    row = made.sections[0].total
    assert (row.flagged, row.without_exclusion) == (1, 1)
    assert made.detector.excluded == 0 or made.sections[0].flagged[0].documents == 30
