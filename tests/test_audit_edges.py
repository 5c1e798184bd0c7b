"""What a sceptical user of `datapipe audit` tries: odd files, wrong flags, places that cannot be written, names."""

import gzip
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from asked import ANSWER, CLEAN, QUESTION, run, write

from datapipe import cli
from datapipe.auditing import keeping, trace
from datapipe.contamination import suites
from datapipe.errors import MachineError

EXAMPLE = {"id": "q", "question": QUESTION, "answer": ANSWER}
LEAK = {"id": "page", "text": f"{CLEAN} {QUESTION} {ANSWER}"}


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    write("eval.jsonl", EXAMPLE)
    write("clean.jsonl", {"text": CLEAN})
    write("leak.jsonl", LEAK)
    write("raw/a/x.jsonl", {"text": CLEAN}, LEAK)
    write("raw/b/x.jsonl", {"text": f"{CLEAN} more"})
    return tmp_path


def report(capsys, *args: str) -> tuple[int, dict]:
    status, out, _ = run(capsys, *args, "--json")
    return status, json.loads(out)


CLEAN_RUN = ["--eval", "eval.jsonl", "--train", "clean.jsonl"]
REFUSED = {
    "an empty --train is not the folder one is in": (["--eval", "eval.jsonl", "--train", ""], "--train '': is empty"),
    "an option without a value": (["--eval", "--train", "leak.jsonl"], "'--eval' requires an argument"),
    "a part mapped twice": ([*CLEAN_RUN, "--fields", "answer=answer", "answer=id"], "answer is given twice"),
    "n-grams that are too long": ([*CLEAN_RUN, "--n", "33"], "33 is not in the range"),
    "a rule of shorter runs than are looked for": ([*CLEAN_RUN, "--profile", "palm", "--n", "13"], "runs of 8 units"),
    "a text field that no record has": ([*CLEAN_RUN, "--text-field", "body"], "the fields that exist: text"),
    "validation and files as the eval side": ([*CLEAN_RUN, "--against-validation"], "takes the place of --eval"),
    "a policy of no suite, before any work": (["--eval", "eval.jsonl", "--train", "leak.jsonl", "--fail-on",
                                               "gsm8k.rate>0"], "no eval suite 'gsm8k'; there are: eval"),
    "--out that is a file": ([*CLEAN_RUN, "--out", "clean.jsonl"], "is a file, expected a folder"),
    "--report that is a folder": ([*CLEAN_RUN, "--report", "raw"], "is a folder, expected a file"),
    "cleaning into what is read": (["--eval", "eval.jsonl", "--train", "raw", "--clean-out", "raw/new"], "lies in raw"),
    "cleaning with a policy": (["--eval", "eval.jsonl", "--train", "raw", "--clean-out", "new", "--fail-on", "rate>0"],
                               "goes without --fail-on"),
    "cleaning with a report": (["--eval", "eval.jsonl", "--train", "raw", "--clean-out", "new", "--report", "p.html"],
                               "goes without --report"),
}  # fmt: skip


@pytest.mark.parametrize("args, says", REFUSED.values(), ids=REFUSED)
def test_what_is_refused(capsys, args, says):
    status, out, err = run(capsys, *args)
    assert (status, out) == (2, "")
    assert says in err
    assert not Path("new").exists()


def test_a_report_never_takes_the_place_of_a_device(capsys):
    assert run(capsys, *CLEAN_RUN, "--report", os.devnull)[0] == 2
    assert Path(os.devnull).is_char_device()


def test_a_place_that_cannot_be_written_is_the_machines(capsys, monkeypatch):
    with pytest.raises(MachineError, match="expected a folder"):
        keeping.check(Path("clean.jsonl/out"), None)

    def full(*_: object) -> None:
        raise OSError(2, "No such file or directory", "somewhere")

    monkeypatch.setattr("datapipe.auditing.tables.write", full)
    status, _, err = run(capsys, *CLEAN_RUN, "--out", "out")
    assert (status, "somewhere: cannot be written" in err) == (8, True)


def test_tables_of_an_earlier_audit_do_not_stay(capsys):
    Path("out/clean").mkdir(parents=True)
    for name in ("mirrors.parquet", "clean/other.txt", "mine.txt"):
        Path("out", name).write_text("old", "utf-8")
    assert run(capsys, *CLEAN_RUN, "--out", "out")[0] == 0
    there = {str(path.relative_to("out")) for path in Path("out").rglob("*") if path.is_file()}
    assert {"mirrors.parquet", "clean/other.txt"}.isdisjoint(there)
    assert there >= {"report.json", "mine.txt", "clean/eval.txt"}


# --- eval files -----------------------------------------------------------------------------------------------------

UNREADABLE = {
    "half a line": '{"id": "x", "question": "half',
    "a list": "[1, 2]",
    "a raw control character": '{"id": "x", "question": "\x01 a"}',
}


@pytest.mark.parametrize("line", UNREADABLE.values(), ids=UNREADABLE)
def test_a_record_of_an_eval_set_that_cannot_be_read_was_not_looked_for(capsys, line):
    write("some.jsonl", EXAMPLE, line)
    status, found = report(capsys, "--eval", "some.jsonl", "--train", "clean.jsonl")
    assert (status, found["verdict"]["result"]) == (7, "incomplete")
    assert "1 of 2 records cannot be read" in found["failures"][0]["reason"]


def test_patterns_that_no_shell_expanded(capsys):
    write("evals/a/test.jsonl", EXAMPLE)
    write("evals/b/test.jsonl", {"id": "other", "question": CLEAN, "answer": "nothing"})
    status, found = report(capsys, "--eval", "evals/*/test.jsonl", "--train", "raw")
    assert status == 0
    assert [one["suite"] for one in found["evals"]["suites"]] == ["a/test", "b/test"]
    status, _, err = run(capsys, "--eval", "evals/*.nothing", "--train", "raw")
    assert (status, "no file matches this pattern" in err) == (2, True)
    suites_found = suites.load(["evals/**/*.jsonl", "evals/*.nothing"])
    assert [why for _, why in suites_found.failed()] == ["no file matches this pattern"]


def test_files_of_one_name_on_both_sides_stay_apart(capsys):
    write("evals/a/x.jsonl", EXAMPLE)
    write("evals/b/x.jsonl", {"id": "q", "question": "How many " + CLEAN.replace("w", "v"), "answer": "nothing"})
    Path("raw/b/x.jsonl.gz").write_bytes(gzip.compress(Path("raw/b/x.jsonl").read_bytes()))
    _, found = report(capsys, "--eval", "evals", "--train", "raw")
    (flagged,) = found["sections"][0]["flagged"]
    assert (flagged["suite"], flagged["id"]) == ("a/x", "q")
    assert [(one["path"], one["line"]) for one in flagged["evidence"]] == [("a/x.jsonl", 2)]
    assert [file["path"] for file in found["scope"][0]["files"]] == ["a/x.jsonl", "b/x.jsonl", "b/x.jsonl.gz"]


THAI = "ชายชราเพอร์รินจุดโคมไฟดวงใดในเจ็ดดวงบนท่าเรือมาร์โรว์บีก่อนน้ำขึ้นในคืนนั้น"
ARABIC = "ما هو عدد الفوانيس السبعة التي أضاءها بيرين العجوز على رصيف ماروبي قبل أن يأتي المد في تلك الليلة"
TEXTS = {
    "right to left": (ARABIC, "prompt"),
    "no blanks": (THAI, "prompt"),
    "scripts mixed": ("请问 Perrin 老人 lit 哪一盏 lantern 在码头 before the tide 来之前 that cold night?", "prompt"),
    "NUL between words": (QUESTION.replace(" ", "\0"), "prompt"),
    "a lone surrogate": (f"{QUESTION} \ud800", "prompt"),
    "emoji alone": ("😀" * 20, None),
    "one character": ("x", None),
}  # fmt: skip


@pytest.mark.parametrize("question, cls", TEXTS.values(), ids=TEXTS)
def test_texts_of_every_kind(capsys, question, cls):
    write("one.jsonl", {"id": "q", "question": question})
    write("train.jsonl", {"text": f"{CLEAN} {question} {CLEAN}"}, {"text": CLEAN})
    status, found = report(capsys, "--eval", "one.jsonl", "--train", "train.jsonl")
    assert [one["cls"] for one in found["sections"][0]["flagged"]] == ([cls] if cls else [])
    assert status == (0 if cls else 7)  # an audit that could test nothing is not clean


# --- traces and scores ----------------------------------------------------------------------------------------------

TRACES = {
    "no line": ("", 3),
    "no example that is known": ('{"id": "nobody", "retrieved": ["some text here"]}', 7),
    "a line that is no JSON": ('{"id": "q", "retrieved": []}\n{', 7),
    "a lone surrogate": (json.dumps({"id": "q", "retrieved": [f"\ud800 {QUESTION} {ANSWER}"]}), 0),
    "a byte order mark": ("\ufeff" + json.dumps({"id": "q", "retrieved": [f"{QUESTION} {ANSWER}"]}), 0),
    "a document that is not there": ('{"id": "q", "retrieved": ["doc-9"]}', 7),
}


@pytest.mark.parametrize("text, status", TRACES.values(), ids=TRACES)
def test_traces(capsys, text, status):
    Path("trace.jsonl").write_text(text, "utf-8")
    assert run(capsys, *CLEAN_RUN, "--trace", "trace.jsonl")[0] == status


NAMES = {"doc-9": True, "https://example.org/a": True, "文档-9": True, THAI: False, "a b": False, "a\nb": False}


@pytest.mark.parametrize("value, name", NAMES.items(), ids=range(len(NAMES)))
def test_a_passage_without_blanks_is_no_name(value, name):
    found = trace._document(value, 0, 1)
    assert (found.name is not None, found.text is not None) == (name, not name)


SCORES = {
    "ids of something else": ('{"id": "zz", "score": 1}', 3, "no score is about an example"),
    "NaN": ('{"id": "q", "score": NaN}', 3, "expected 0 to 1"),
    "an id with its suite": ('{"id": "eval/q", "score": 1}', 0, ""),
    "the mean of two": ('{"id": "q", "score": 1}\n{"id": "q", "score": 0}', 0, ""),
    "a score of no example": ('{"id": "q", "score": 1}\n{"id": "zz", "score": 0}', 0, ""),
}


@pytest.mark.parametrize("text, status, says", SCORES.values(), ids=SCORES)
def test_scores(capsys, text, status, says):
    write("scores.jsonl", text)
    got, out, err = run(capsys, *CLEAN_RUN, "--scores", "scores.jsonl")
    assert got == status
    assert says in err
    if not status:
        assert "scores\n" in out
        assert ("1 score of no example" in out) == ("zz" in text)


def test_scores_that_name_no_suite_and_may_be_of_two(capsys):
    """Figures of nothing would be told."""
    write("more.jsonl", EXAMPLE)
    write("scores.jsonl", {"id": "q", "score": 1})
    both = ("--eval", "eval.jsonl", "more.jsonl", "--train", "clean.jsonl", "--scores", "scores.jsonl")
    got, _, err = run(capsys, *both)
    assert (got, "'q' is an id of 2; add a field 'suite', or write SUITE/q" in err) == (3, True), err
    write("scores.jsonl", {"id": "q", "score": 1, "suite": "more"})
    assert run(capsys, *both)[0] == 0


# --- explain and diff -----------------------------------------------------------------------------------------------


NAMES = {
    "found": ("q", 0, "eval/q: train: adjacent"),
    "found, with its suite": ("eval/q", 0, "eval/q: train: adjacent"),
    "clean": ("eval/c", 0, "eval/c: clean: looked for and not found"),
    "clean, without its suite": ("c", 0, "eval/c: clean"),
    "untested": ("u", 0, "eval/u: untested: "),
    "of two suites": ("b", 2, "several suites have it; write one of eval/b, more/b"),
    "of two suites, named": ("more/b", 0, "more/b: clean"),
    "another suite": ("evl/q", 2, "no example of that name was looked for; near: eval/q"),
    "another case": ("eval/Q", 2, "near: eval/q"),
    "of another suite": ("more/c", 2, "no example of that name"),
    "nobody": ("nobody at all", 2, "was looked for; write suite/id, as of the suites eval, more"),
}


@pytest.mark.parametrize("name, status, says", NAMES.values(), ids=NAMES)
def test_what_is_said_of_an_example(capsys, name, status, says):
    other = CLEAN.replace("w", "v")
    write("eval.jsonl", EXAMPLE, {"id": "c", "question": other}, {"id": "u", "question": "Hi"},
          {"id": "b", "question": other.replace("v", "x")})  # fmt: skip
    write("more.jsonl", {"id": "b", "question": other.replace("v", "y")})
    assert run(capsys, "--eval", "eval.jsonl", "more.jsonl", "--train", "leak.jsonl", "--out", "out")[0] == 0
    got, out, err = run(capsys, "explain", name, "--from", "out")
    assert (got, says in (err if status else out)) == (status, True), out + err


def test_clean_in_what_could_be_seen_is_said_so(capsys):
    write("cut.jsonl", {"text": CLEAN}, '{"text": "cut')
    assert run(capsys, "--eval", "eval.jsonl", "--train", "cut.jsonl", "--out", "out")[0] == 7
    assert "not everything could be seen" in run(capsys, "explain", "q", "--from", "out")[1]


def test_a_suite_of_which_nothing_could_be_tested_is_not_clean(capsys):
    write("hi.jsonl", {"id": "h", "question": "Hi"}, {"id": "i", "question": "Ho"})
    got, _, err = run(capsys, "--eval", "eval.jsonl", "hi.jsonl", "--train", "clean.jsonl", "--out", "out")
    assert (got, "hi: no example of it could be tested" in err) == (7, True), err
    write("hi.jsonl", {"id": "h", "question": "Hi"}, EXAMPLE)
    assert run(capsys, "--eval", "eval.jsonl", "hi.jsonl", "--train", "clean.jsonl")[0] == 0


def test_an_example_that_was_not_looked_for_is_not_clean(capsys):
    write("other.jsonl", {"id": "o", "question": CLEAN.replace("w", "v"), "answer": "nothing"})
    assert run(capsys, "--eval", "eval.jsonl", "--train", "leak.jsonl", "--out", "old")[0] == 0
    assert run(capsys, "--eval", "other.jsonl", "--train", "leak.jsonl", "--out", "new")[0] == 0
    assert "eval/q (train): adjacent -> not looked for" in run(capsys, "diff", "old", "new")[1]


# --- clean files ----------------------------------------------------------------------------------------------------


def test_an_eval_set_that_did_not_load_writes_no_clean_files(capsys):
    status, out, err = run(capsys, "--eval", "eval.jsonl", "no.jsonl", "--train", "raw", "--clean-out", "new")
    assert (status, out) == (7, "")
    assert "no.jsonl: no such file" in err
    assert not Path("new").exists()


def test_a_record_that_stays_and_that_nobody_could_read(capsys):
    write("raw/b/x.jsonl", {"text": CLEAN}, f'{{"text": "{QUESTION} {ANSWER}')
    status, out, err = run(capsys, "--eval", "eval.jsonl", "--train", "raw", "--clean-out", "new", "--json")
    assert (status, json.loads(out)["unseen"]) == (7, {"b/x.jsonl": 1})
    assert "b/x.jsonl: 1 record that could not be understood" in err


def test_documents_that_hold_variants_leave_too(capsys):
    rewrite = "On that evening which lamp of all seven along the Marrowby pier was it that Perrin set burning first"
    write("variants.jsonl", {"id": "q", "variant": rewrite})
    write("raw/b/x.jsonl", {"text": f"{CLEAN} {rewrite}"}, {"text": CLEAN})
    both = ["--eval", "eval.jsonl", "--variants", "variants.jsonl"]
    status, out, _ = run(capsys, *both, "--train", "raw", "--clean-out", "new", "--json")
    assert (status, json.loads(out)["removed"]) == (0, 2)
    status, found = report(capsys, *both, "--train", "new")
    assert (status, found["sections"][0]["total"]["flagged"]) == (0, 0)


# --- stopped --------------------------------------------------------------------------------------------------------

LONG = """
import ctypes, signal, sys, time
from datapipe import cli
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job, as these tests may be, ignores it
def slow(args):
    try:
        print("ready", flush=True)
        time.sleep(600)
    except cli.Stopped as stop:
        return cli._say_stopped(stop.number)
cli.run = slow
c = ctypes.CDLL(None)  # a library in C that takes long to unload, when Python's handlers are gone already
c.__cxa_atexit(ctypes.cast(c.sleep, ctypes.c_void_p), ctypes.c_void_p(600), None)
cli.GRACE = 1
cli.main()
"""


def test_a_stopped_run_ends_with_its_status_however_long_the_interpreter_takes_to_end():
    paths = os.pathsep.join([str(Path(cli.__file__).parents[2]), *filter(None, [os.environ.get("PYTHONPATH")])])
    env = {**os.environ, "PYTHONPATH": paths}
    child = subprocess.Popen([sys.executable, "-c", LONG], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=env)
    assert child.stdout
    assert child.stdout.readline() == b"ready\n"
    child.send_signal(signal.SIGINT)
    try:
        child.communicate(timeout=120)  # far less than what it sleeps
    finally:
        child.kill()
    assert child.returncode == 130
