"""`datapipe audit` on the command line: statuses, what is said where, what is written."""

import json
from pathlib import Path

import pytest
from asked import ANSWER, CLEAN, QUESTION, run, write

from datapipe.cli import audited


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "eval.jsonl", {"id": "q", "question": QUESTION, "answer": ANSWER})
    write(tmp_path / "clean.jsonl", {"text": CLEAN})
    write(tmp_path / "leak.jsonl", {"id": "page", "text": f"{CLEAN} {QUESTION} {ANSWER}"})
    write(tmp_path / "cut.jsonl", {"text": CLEAN}, '{"text": "cut')
    (tmp_path / "broken.parquet").write_bytes(b"PAR1")
    return tmp_path


STATUS = {
    "nothing found": (["--eval", "eval.jsonl", "--train", "clean.jsonl"], 0, "nothing found: none of 1 tested"),
    "a leak without a policy": (["--eval", "eval.jsonl", "--train", "leak.jsonl"], 0, "adjacent  eval/q in leak"),
    "several files after an option": (["--train", "clean.jsonl", "leak.jsonl", "--eval", "eval.jsonl"], 0, "found: 1"),
    "a policy that is violated": (
        ["--eval", "eval.jsonl", "--train", "leak.jsonl", "--fail-on", "eval.adjacent>0"], 6, "VIOLATED"
    ),
    "a policy that is not": (
        ["--eval", "eval.jsonl", "--train", "clean.jsonl", "--fail-on", "rate>0.5"], 0, "rate>0.5"
    ),
    "nothing found, and a record not read": (
        ["--eval", "eval.jsonl", "--train", "cut.jsonl"], 7, "not seen: cut.jsonl"
    ),
    "nothing found, and an eval set not loaded": (
        ["--eval", "eval.jsonl", "broken.parquet", "--train", "clean.jsonl"], 7, "broken.parquet"
    ),
    "found, and not everything seen": (["--eval", "eval.jsonl", "--train", "cut.jsonl", "leak.jsonl"], 7, "found: 1"),
    "a policy before what was not seen": (
        ["--eval", "eval.jsonl", "--train", "cut.jsonl", "leak.jsonl", "--fail-on", "flagged>=1"], 6, "VIOLATED"
    ),
}  # fmt: skip


@pytest.mark.parametrize("args, status, says", STATUS.values(), ids=STATUS)
def test_statuses(capsys, args, status, says):
    got, out, err = run(capsys, *args)
    assert got == status, err
    assert says in out
    assert "Traceback" not in err


WRONG = {
    "no eval set": (["--train", "clean.jsonl"], 2, "name the eval sets"),
    "no such eval file": (["--eval", "no.jsonl", "--train", "clean.jsonl"], 2, "no.jsonl"),
    "a field that no record has": (
        ["--eval", "eval.jsonl", "--train", "clean.jsonl", "--fields", "answer=target"], 2, "question"
    ),
    "a mapping without =": (["--eval", "eval.jsonl", "--fields", "answer"], 2, "expected part=field"),
    "a profile that is none": (["--eval", "eval.jsonl", "--train", "clean.jsonl", "--profile", "gpt5"], 2, "gpt3"),
    "a policy that is none": (
        ["--eval", "eval.jsonl", "--train", "clean.jsonl", "--fail-on", "rate ~ 3"], 2, "rate ~ 3"
    ),
    "a suite that is none": (
        ["--eval", "eval.jsonl", "--train", "clean.jsonl", "--fail-on", "gsm8k.rate>0.1"], 2, "there are: eval"
    ),
    "no build": (["--eval", "eval.jsonl"], 2, "no build"),
    "validation of files": (["--against-validation", "--train", "clean.jsonl"], 2, "--against-validation"),
    "a word behind": (["--eval=eval.jsonl", "--json", "nonsense"], 2, "nonsense"),
}  # fmt: skip


@pytest.mark.parametrize("args, status, says", WRONG.values(), ids=WRONG)
def test_wrong_flags(capsys, args, status, says):
    got, out, err = run(capsys, *args)
    assert (got, out) == (status, "")
    assert says in err
    assert "Traceback" not in err


def test_json_is_one_object_and_nothing_else(capsys):
    status, out, _ = run(capsys, "--eval", "eval.jsonl", "--train", "leak.jsonl", "--json")
    assert status == 0
    found = json.loads(out)
    assert found["verdict"]["result"] == "found"
    assert found["sections"][0]["total"]["classes"] == {"adjacent": 1}
    assert len(found["digest"]) == 64


def test_what_is_written(capsys, folder):
    args = ["--eval", "eval.jsonl", "--train", "leak.jsonl", "--out", "out", "--report", "page.html"]
    status, out, _ = run(capsys, *args)
    assert (status, out.splitlines()[-2:]) == (0, ["written: page.html", "written: out"])
    assert (folder / "page.html").read_text("utf-8").startswith("<!doctype html>")
    names = {path.name for path in (folder / "out").iterdir()}
    assert names >= {"report.json", "examples.parquet", "evidence.parquet", "sets.parquet", "controls.parquet"}
    again = run(capsys, *args[:4], "--out", "again")
    assert again[0] == 0
    for path in sorted((folder / "out").glob("*.parquet")):
        assert path.read_bytes() == (folder / "again" / path.name).read_bytes(), path.name


def test_explain_and_diff(capsys):
    assert run(capsys, "--eval", "eval.jsonl", "--train", "leak.jsonl", "--out", "leak")[0] == 0
    assert run(capsys, "--eval", "eval.jsonl", "--train", "clean.jsonl", "--out", "clean")[0] == 0
    status, out, _ = run(capsys, "explain", "q", "--from", "leak")
    assert status == 0
    assert "eval/q: train: adjacent" in out
    assert f"[{QUESTION.rstrip('?')}]" in out.replace("\n    | ", "")
    assert json.loads(run(capsys, "explain", "eval/q", "--from", "clean", "--json")[1])["found"] == []
    assert run(capsys, "explain", "nobody", "--from", "leak")[0] == 2
    status, out, _ = run(capsys, "diff", "clean", "leak")
    assert status == 0
    assert "eval/q (train): not found -> adjacent" in out
    assert "the same audit" in run(capsys, "diff", "leak", "leak/report.json")[1]


NO_REPORT = {"not JSON": "{", "another object": '{"a": 1}', "a list": "[]"}


@pytest.mark.parametrize("text", NO_REPORT.values(), ids=NO_REPORT)
def test_a_file_that_is_no_report(capsys, folder, text):
    (folder / "report.json").write_text(text, "utf-8")
    status, _, err = run(capsys, "diff", "report.json", "report.json")
    assert status == 4
    assert "is no report" in err


def test_a_document_cannot_speak_to_the_terminal(capsys):
    write(Path("hostile.jsonl"), {"id": "\x1b[31m", "text": f"\x1b]0;title\x07 {QUESTION} {ANSWER} \x1b[2J"})
    run(capsys, "--eval", "eval.jsonl", "--train", "hostile.jsonl", "--out", "out")
    _, out, _ = run(capsys, "explain", "q", "--from", "out")
    assert "\x1b" not in out
    assert "\x07" not in out


def test_help_lists_the_commands(capsys):
    status, out, _ = run(capsys, "--help")
    assert status == 0
    assert "explain" in out
    assert "diff" in out
    assert "--fail-on" in out


def test_clean_out(capsys, folder):
    both = ["--eval", "eval.jsonl", "--train", "clean.jsonl", "leak.jsonl"]
    status, out, _ = run(capsys, *both, "--clean-out", "made", "--json")
    found = json.loads(out)
    assert (status, found["removed"], found["documents"], found["audit"]["flagged"]) == (0, 1, 2, 0)
    assert (folder / "made/clean.jsonl").read_bytes() == (folder / "clean.jsonl").read_bytes()
    assert (folder / "made/leak.jsonl").read_bytes() == b""
    assert run(capsys, *both, "--clean-out", "made")[0] == 2  # it is not empty
    assert run(capsys, "--eval", "eval.jsonl", "--clean-out", "other")[0] == 2
    status, out, _ = run(capsys, *both, "--clean-out", "other")
    assert (status, "1 document of 2 left out" in out) == (0, True)


@pytest.mark.parametrize(
    "share, text",
    [
        (0.0, "0.00%"), (0.00004, "<0.01%"), (0.0001, "0.01%"), (0.08, "8.00%"), (0.125, "12.5%"), (0.9996, ">99.9%"),
        (1.0, "100.0%"), (None, ""),
    ],
)  # fmt: skip
def test_percent(share, text):
    assert audited.percent(share) == text


def test_bounds_of_many_examples(capsys, folder):
    """What 3 of 40,000 may be is more than nothing, and a match of all words but one is not all of them."""
    words = [f"v{at}" for at in range(300)]
    write(
        folder / "many.jsonl",
        *({"id": at, "question": " ".join(f"x{at}y{n}" for n in range(9))} for at in range(40_000)),
    )
    write(folder / "long.jsonl", {"id": "long", "question": " ".join(words)})
    write(folder / "most.jsonl", {"text": " ".join(words[1:])})
    _, out, _ = run(capsys, "--eval", "many.jsonl", "long.jsonl", "--train", "most.jsonl")
    rows = [line for line in out.splitlines() if line.split()[:1] == ["many"]]
    assert "under 0.01%" in rows[0]
    assert "longest match 99%" in out
