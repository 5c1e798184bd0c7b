"""What `datapipe audit` makes of its inputs: forms that no name tells, links, hidden files, one thing named twice."""

import bz2
import gzip
import io
import json
import os
import shutil
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard
from asked import CLEAN, run
from reading import load

from datapipe.cli.text import safe
from datapipe.read import opening, plan

ZH = "某商店购进一批苹果共一千二百公斤，第一天卖出三分之一，第二天卖出余下的一半，请问还剩下多少公斤苹果没有卖出？"
LEAK = {"id": "page", "text": f"{CLEAN} {ZH}"}
ROWS = (LEAK, {"text": CLEAN})  # the question is written as \uXXXX, which no text holds


def lines(*records: object) -> bytes:
    return "".join((one if isinstance(one, str) else json.dumps(one)) + "\n" for one in records).encode()


def tar(mode: str = "w", data: bytes = lines(*ROWS)) -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode=mode) as archive:  # pyright: ignore[reportCallIssue, reportArgumentType]
        info = tarfile.TarInfo("a.jsonl")
        info.size = len(data)
        archive.addfile(info, io.BytesIO(data))
    return made.getvalue()


def put(path: str, data: bytes) -> Path:
    made = Path(path)
    made.parent.mkdir(parents=True, exist_ok=True)
    made.write_bytes(data)
    return made


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    put("eval.jsonl", lines({"id": "q", "question": ZH}))
    put("clean.jsonl", lines({"text": CLEAN}))
    put("leak.jsonl", lines(*ROWS))
    return tmp_path


def report(capsys, *train: str) -> tuple[int, dict]:
    status, out, err = run(capsys, "--eval", "eval.jsonl", "--train", *train, "--json")
    assert out, err
    return status, json.loads(out)


# --- forms that no name tells ---------------------------------------------------------------------------------------

PLAIN = lines(*ROWS)
FORMS = {
    **{name: (name, PLAIN, 2, 1) for name in (
        "a.jl", "a.jsonlines", "a.ldjson", "a.jsonl.1", "a.jsonl.bak", "part-00000", "a.txt", "A.LDJSON"
    )},
    "a byte-order mark and blank lines": ("part-0", b"\xef\xbb\xbf\n \n" + PLAIN, 2, 1),
    "one record that has the text": ("part-0", lines(LEAK), 1, 1),
    "a first line that is longer than a look": ("part-0", lines({"text": "y" * 200_000}, *ROWS), 3, 1),
    "gzip of no other name": ("a.gz", gzip.compress(PLAIN), 2, 1),
    "zstd of no other name": ("part-0.zst", zstandard.ZstdCompressor().compress(PLAIN), 2, 1),
    "bz2 of a suffix that is unknown": ("a.log.bz2", bz2.compress(PLAIN), 2, 1),
    # a text stays one document, whatever is in it
    "prose": ("a.txt", f"{CLEAN}\n{ZH}\n".encode(), 1, 1),
    "a line of prose": ("README", f"{{about}} {ZH}".encode(), 1, 1),
    "an object over several lines": ("a.ipynb", json.dumps({"text": ZH}, indent=1, ensure_ascii=False).encode(), 1, 1),
    "one object without the text": ("a.geojson", json.dumps({"about": ZH}, ensure_ascii=False).encode(), 1, 1),
    "an object, then prose": ("a.md", lines({"text": "y"}, ZH), 1, 1),
    "an empty file": ("part-0", b"", 0, 0),
}  # fmt: skip


@pytest.mark.parametrize("name, data, documents, flagged", FORMS.values(), ids=FORMS)
def test_what_a_file_is_when_its_name_does_not_say_it(capsys, name, data, documents, flagged):
    put(f"train/{name}", data)
    _, found = report(capsys, "train", "clean.jsonl")
    (section,) = found["sections"]
    assert (section["documents"] - 1, section["total"]["flagged"]) == (documents, flagged)


def test_lines_without_the_text_are_a_failure_under_any_name(capsys):
    put("train/part-0", lines({"body": CLEAN}, {"body": ZH}))
    status, found = report(capsys, "train", "clean.jsonl")
    reasons = [one["reason"] for one in found["failures"]]
    assert (status, reasons) == (7, ["2 records: missing text, the first in line 1"])


UNSEEN = {
    "a tar archive": ("a.tar", tar(), "a tar archive: unpack it"),
    "of gzip": ("a.tar.gz", tar("w:gz"), "a tar archive: unpack it"),
    "of gzip, in short": ("a.tgz", tar("w:gz"), "a tar archive: unpack it"),
    "of zstd": ("a.tar.zst", zstandard.ZstdCompressor().compress(tar()), "a tar archive: unpack it"),
    "under another name": ("part-0", tar(), "a tar archive: unpack it"),
    "under another name, compressed": ("part-0.gz", tar("w:gz"), "a tar archive: unpack it"),
    "a JSON array": ("a.json", json.dumps(ROWS).encode(), "a JSON array, which is not read as training data: convert"),
    "a JSON array over many lines": ("a.json", json.dumps(ROWS, indent=1).encode(), "a JSON array"),
    "a JSON array of a record a line": ("a.json.gz", gzip.compress(b"[\n" + b",\n".join(PLAIN.split(b"\n")[:2]) + b"]"),
                                        "a JSON array"),
}  # fmt: skip


@pytest.mark.parametrize("name, data, says", UNSEEN.values(), ids=UNSEEN)
def test_what_holds_records_and_is_not_read_is_a_failure(capsys, name, data, says):
    made = put(f"train/{name}", data)
    shutil.copy("clean.jsonl", "train/b.jsonl")
    status, found = report(capsys, "train")
    assert (status, found["sections"][0]["documents"], found["verdict"]["result"]) == (7, 1, "incomplete")
    (failure,) = found["failures"]
    assert (failure["path"], failure["reason"].startswith(says)) == (name, True)
    status, out, err = run(capsys, "--eval", "eval.jsonl", "--train", "train", "--clean-out", "new")
    assert (status, f"not read whole, so not there: {name}: {says}" in out, "it was left out" in err) == (7, True, True)
    assert sorted(path.name for path in Path("new").iterdir()) == [".receipt", "b.jsonl"]
    assert made.read_bytes() == data


def test_a_bad_first_line_makes_no_array(capsys):
    put("train/a.jsonl", lines("[1, 2]", *ROWS))
    status, found = report(capsys, "train")
    assert (status, found["sections"][0]["total"]["flagged"]) == (7, 1)


def test_clean_lines_stay_under_a_name_that_does_not_say_it(capsys):
    put("train/part-0", PLAIN)
    assert run(capsys, "--eval", "eval.jsonl", "--train", "train", "--clean-out", "new")[0] == 0
    assert Path("new/part-0").read_bytes() == lines(ROWS[1])


RECORD = {"text": ZH, "about": "a record " * 9}
RECORDS = json.dumps(RECORD).encode()
SPLIT = "y" * (1 << 20)  # more than is looked at
BESIDE, DOCUMENT = "holds lines of JSON beside others; name it .jsonl", "a JSON document; convert it to JSON lines"
DOUBTFUL = {
    "a first line that is cut": (RECORDS[9:] + b"\n" + PLAIN, BESIDE),
    "a last line that is cut": (lines(RECORD) + RECORDS[:30], BESIDE),
    "a comment first": (b"# made in May\n" + PLAIN, BESIDE),
    "null first": (b"null\n" + PLAIN, BESIDE),
    "half of the lines": (b"prose\n" * (PLAIN.count(b"\n") + (not PLAIN.endswith(b"\n"))) + PLAIN, BESIDE),
    "events": (b"".join(b"data: " + line + b"\n\n" for line in PLAIN.split(b"\n")[:2]), BESIDE),
    "a sequence": (b"".join(b"\x1e" + line + b"\n" for line in PLAIN.split(b"\n")[:2]), BESIDE),
    "a sequence over lines": (b"\x1e" + json.dumps(LEAK, indent=1).encode(), DOCUMENT),
    "objects without a newline": (RECORDS * 3, BESIDE),
    "objects without a newline, and a line": (RECORDS * 2 + b"\n" + PLAIN, BESIDE),
    "an object, then prose": (lines(RECORD, ZH), BESIDE),
    "a comment, then a line longer than a look": (lines("# made in May", {"text": SPLIT}), BESIDE),
    "a part of an array of a record a line": (RECORDS[9:] + b",\n" + RECORDS + b",\n", BESIDE),
    "an indented object": (b"made in May\n  " + RECORDS + b"\n", BESIDE),
    "an array on a line": (json.dumps(ROWS).encode(), DOCUMENT),
    "an array over lines": (json.dumps(ROWS, indent=1).encode(), DOCUMENT),
    "an array of a record a line": (b"[\n" + b",\n".join(PLAIN.split(b"\n")[:2]) + b"]", DOCUMENT),
    "an array of arrays over lines": (json.dumps([[1, ZH]] * 9, indent=1).encode()[:-4], DOCUMENT),
    "an array of texts": (json.dumps([ZH, CLEAN]).encode(), DOCUMENT),
    "an object over lines": (json.dumps(RECORD, indent=1).encode(), DOCUMENT),
    "an object over lines, longer than a look": (json.dumps({"a": SPLIT, "b": ZH}, indent=1).encode(), DOCUMENT),
    "a line longer than a look": (lines({"text": SPLIT}, *ROWS), DOCUMENT),
    "an array longer than a look": (json.dumps([SPLIT, ZH]).encode(), DOCUMENT),
    "one record without the text": (lines({"body": CLEAN}), DOCUMENT),
}


@pytest.mark.parametrize("suffix, codec", [("", bytes), (".gz", gzip.compress)], ids=["plain", "gzip"])
@pytest.mark.parametrize("data, says", DOUBTFUL.values(), ids=DOUBTFUL)
def test_text_that_may_hold_records_is_read_and_is_a_failure(capsys, data, says, suffix, codec):
    name = f"part-0{suffix}"
    put(f"train/{name}", codec(data))
    status, found = report(capsys, "train", "clean.jsonl")
    (failure,) = found["failures"]
    (file,) = (one for one in found["scope"][0]["files"] if one["path"].endswith(name))
    assert (failure["path"].split("/")[-1], failure["reason"][: len(says)]) == (name, says)
    assert (status, file["documents"], file["damaged"]) == (7, 1, failure["reason"])
    put("train/b.jsonl", lines({"text": CLEAN}))
    status, out, _ = run(capsys, "--eval", "eval.jsonl", "--train", "train", "--clean-out", "new")
    assert (status, f"not read whole, so not there: {name}: {says}" in out) == (7, True)


PROSE = {
    "braces": "{about} [1] {x} [[a link]]\n{}\n{\n}\n[]\n",
    "notes": "[1] Smith\n[2] Jones\n[1, 2] say so\n",
    "quotes": '["So"] he said\n{"So"} she said\n',
    "links": "[[Marrowby]] is a town\n[a](b)\n",
    "settings": "[lantern]\ncolour = {green}\n",
    "code": "{\n  int a[] = {1, 2};\n}\n",
    "code of tables": 'made = [\n    {"a": 1},\n    {"b": 2},\n]\n',
    "a template": "{{ title }}\n{% if a %}\n",
    "a record that is quoted": "prose\n" * 2 + '{"text": "y"}\n',
    "behind the 100th line": "prose\n" * 100 + '{"text": "y"}\n' * 200,
    "a long line": SPLIT,
    "nothing": "\n",
}


@pytest.mark.parametrize("data", PROSE.values(), ids=PROSE)
def test_prose_with_braces_is_no_failure(capsys, data):
    put("train/a.txt", data.encode())
    status, found = report(capsys, "train", "clean.jsonl")
    assert (status, found["failures"]) == (0, [])


def test_no_line_longer_than_a_look_is_parsed(monkeypatch):
    sizes: list[int] = []
    monkeypatch.setattr(opening, "parse", lambda line: sizes.append(len(line)))
    for data in (lines({"text": SPLIT}, *ROWS), json.dumps([SPLIT]).encode(), lines("# prose", {"text": SPLIT})):
        opening.form(put("a.geojson", data), None, ("text",))
        opening.is_array(put("a.jsonl", data), None)
    assert opening.is_array(put("a.jsonl", json.dumps([SPLIT]).encode()), None)
    assert max(sizes, default=0) <= opening.LOOK


BUILT = {
    "lines under another name": ("part-0", PLAIN),
    "lines in a text": ("a.txt", PLAIN),
    "prose behind lines": ("readme.md", PLAIN + b"prose\n"),
    "a tar archive": ("a.tar.gz", tar("w:gz")),
    "a tar archive under another name": ("b", tar()),
}


@pytest.mark.parametrize("name, data", BUILT.values(), ids=BUILT)
def test_a_build_goes_by_names(tmp_path, name, data):
    put(name, data)
    put("a.ldjson", PLAIN)
    made = plan(load(tmp_path, {"s": {"files": [name, "a.ldjson"]}}), workers=1)
    assert {one.relative: one.format for one in made.inputs} == {name: "text", "a.ldjson": "jsonl"}


# --- what is no file, and what is not read --------------------------------------------------------------------------


def _dangling(path: Path) -> None:
    path.symlink_to("../blobs/gone")


STRANGE: dict[str, tuple[Callable[[Path], None], str]] = {
    "a link to nothing": (_dangling, "a link to ../blobs/gone, which leads to no file"),
    "a link to itself": (lambda path: path.symlink_to(path.name), "which leads to no file"),
    "a pipe": (os.mkfifo, "a pipe, expected a file"),
}


@pytest.mark.parametrize("train", [["train"], ["train/*.jsonl"], ["train/a.jsonl", "train/b.jsonl"]], ids=str)
@pytest.mark.parametrize("make, says", STRANGE.values(), ids=STRANGE)
def test_what_is_no_file_is_a_failure(capsys, make, says, train):
    shutil.copy(put("train/a.jsonl", lines({"text": CLEAN})), "train/z.jsonl")
    make(Path("train/b.jsonl"))
    if says.startswith("a pipe") and "train/b.jsonl" in train:
        assert run(capsys, "--eval", "eval.jsonl", "--train", *train)[0] == 2  # named itself, it is no input at all
        return
    status, found = report(capsys, *train)
    (failure,) = found["failures"]
    assert (status, failure["path"], says in failure["reason"]) == (7, "b.jsonl", True)


def test_hidden_files_are_counted_and_no_failure(capsys):
    for name in ("a.jsonl", ".b.jsonl", ".c/d.jsonl", ".c/e.jsonl", "f/.g.jsonl"):
        put(f"train/{name}", lines({"text": CLEAN}))
    status, out, _ = run(capsys, "--eval", "eval.jsonl", "--train", "train")
    assert (status, out.count("2 hidden files and 1 hidden folder not read")) == (0, 1)
    assert "1 hidden file not read" in run(capsys, "--eval", "eval.jsonl", "--train", "train/*.jsonl")[1]
    assert "hidden" not in run(capsys, "--eval", "eval.jsonl", "--train", "train/.b.jsonl", "train/a.jsonl")[1]
    out = run(capsys, "--eval", "eval.jsonl", "--train", "train", "--clean-out", "new")[1]
    assert "2 hidden files and 1 hidden folder not read" in out


def test_an_empty_file_of_variants_is_a_failure(capsys):
    for data, says in ((b"", "empty"), (b"\n\n", "no records")):
        put("v.jsonl", data)
        status, out, _ = run(capsys, "--eval", "eval.jsonl", "--train", "clean.jsonl", "--variants", "v.jsonl")
        assert (status, f"not seen: v.jsonl: {says}" in out) == (7, True)


# --- one thing under two names --------------------------------------------------------------------------------------


def test_files_under_two_names_count_once(capsys):
    put("train/d/a.jsonl", PLAIN)
    Path("train/d/b.jsonl").symlink_to("a.jsonl")
    Path("train/c").symlink_to("d")
    _, alone = report(capsys, "train/d/a.jsonl")
    for train in (["train"], ["train/d", "train/c"], ["train/c", "train/d/a.jsonl"]):
        _, found = report(capsys, *train)
        assert found["sections"][0]["documents"] == alone["sections"][0]["documents"] == 2
        assert [one["path"].split("/")[-1] for one in found["scope"][0]["files"]] == ["a.jsonl"]
        assert "read under another name: they count once" in found["scope"][0]["notes"][0]
    assert run(capsys, "--eval", "eval.jsonl", "--train", "train", "--clean-out", "new")[0] == 0
    written = {str(path.relative_to("new")) for path in Path("new").rglob("[ab].jsonl")}
    assert written == {"c/a.jsonl", "c/b.jsonl", "d/a.jsonl", "d/b.jsonl"}  # a folder is written as it was


def test_the_order_of_files_decides_nothing(capsys):
    both = [report(capsys, *train)[1] for train in (["clean.jsonl", "leak.jsonl"], ["leak.jsonl", "clean.jsonl"])]
    for one in both:
        one.pop("run")
    assert both[0] == both[1]


# --- what is written never takes the place of what is read ----------------------------------------------------------

TRAIN = ["--eval", "evals/e.jsonl", "--train", "train", "flat/*.jsonl", "x[1].jsonl"]
EVALS = ["--eval", "evals", *TRAIN[2:]]
PLACES = {
    "an eval file": (TRAIN, ["--report", "evals/e.jsonl"]),
    "a file of training": (TRAIN, ["--report", "train/a.jsonl"]),
    "a folder of training": (TRAIN, ["--report", "train/new.html"]),
    "a folder of training, for tables": (TRAIN, ["--out", "train/new"]),
    "a pattern, as a file that is not there yet": (TRAIN, ["--report", "flat/new.jsonl"]),
    "a name with brackets": (TRAIN, ["--report", "x[1].jsonl"]),
    "by a link": (TRAIN, ["--report", "link/new.html"]),
    "a table of an earlier audit": ([*TRAIN, "out/files.parquet"], ["--out", "out"]),
    "a folder of eval files": (["--eval", "evals", "--train", "train"], ["--out", "evals/new"]),
    "a pattern of eval files": (["--eval", "evals/*.jsonl", "--train", "train"], ["--report", "evals/e.jsonl"]),
    "retrieval": ([*TRAIN, "--retrieval", "flat"], ["--report", "flat/r.html"]),
    "scores": ([*TRAIN, "--scores", "s.jsonl"], ["--report", "s.jsonl"]),
    "a trace": ([*TRAIN, "--trace", "s.jsonl"], ["--report", "./s.jsonl"]),
    "variants": ([*TRAIN, "--variants", "s.jsonl"], ["--report", "train/../s.jsonl"]),
    "a build": (TRAIN, ["--out", "builds/b/v0001/train"]),
    "what a link in a folder leads to": (TRAIN, ["--report", "blobs/train"]),
    "what a link of a pattern leads to": (TRAIN, ["--report", "blobs/flat"]),
    "what a link of retrieval leads to": ([*TRAIN, "--retrieval", "other"], ["--report", "blobs/other"]),
    "what a link in a folder of eval files leads to": (EVALS, ["--report", "blobs/eval"]),
    "what a link of a pattern of eval files leads to": (["--eval", "evals/*", *TRAIN[2:]], ["--report", "blobs/eval"]),
    "what a link leads to, for tables": (TRAIN, ["--out", "blobs"]),
    "a list of an earlier audit": (["--eval", "evals/e.jsonl", "--train", "other"], ["--out", "lists"]),
    "a table of this audit": (TRAIN, ["--out", "new", "--report", "new/files.parquet"]),
    "the report of this audit": (TRAIN, ["--out", "new", "--report", "./new/../new/report.json"]),
    "a list of this audit": (TRAIN, ["--out", "new", "--report", "new/clean/e.txt"]),
    "the folder of this audit": (TRAIN, ["--out", "new", "--report", "new"]),
}


@pytest.mark.parametrize("args, where", PLACES.values(), ids=PLACES)
def test_what_is_read_is_never_written(capsys, folder, args, where):
    put("evals/e.jsonl", lines({"id": "q", "question": ZH}))
    for name in ("train/a.jsonl", "flat/a.jsonl", "x[1].jsonl", "out/files.parquet", "s.jsonl"):
        put(name, lines({"text": CLEAN}))
    for name in ("manifest.json", "fates.parquet", "train/shard-00000.parquet"):
        put(f"builds/b/v0001/{name}", b"{}")
    Path("link").symlink_to("train")
    for blob, place in (("train", "train/l.jsonl"), ("flat", "flat/l.jsonl"), ("other", "other/l.jsonl"),
                        ("eval", "evals/l.jsonl"), ("sets.parquet", "train/m.jsonl")):  # fmt: skip
        Path("other").mkdir(exist_ok=True)
        Path(place).symlink_to(put(f"blobs/{blob}", lines({"text": CLEAN})).absolute())
    Path("other/c.txt").symlink_to(put("lists/clean/gsm8k.txt", CLEAN.encode()).absolute())
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    status, out, err = run(capsys, *args, *where)
    assert (status, out, "name another place" in err) == (2, "", True), err
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before


def test_places_beside_what_is_read_may_be_written(capsys):
    put("flat/a.jsonl", lines({"text": CLEAN}))
    args = ["--eval", "eval.jsonl", "--train", "flat/*.jsonl"]
    assert run(capsys, *args, "--report", "flat/page.html", "--out", "flat/out")[0] == 0
    assert run(capsys, *args, "--report", "flat/out/page.html", "--out", "flat/out")[0] == 0


# --- what data can do to a terminal ---------------------------------------------------------------------------------

EVIL = "\x1b[31m\x07\x7f\x9b2J\u202e"
SHOWN = "\\x1b[31m\\x07\\x7f\\x9b2J\\u202e"
SAID: dict[str, tuple[list[str], bool]] = {  # arguments, whether what was written is shown
    "a field of training records": (["--eval", "eval.jsonl", "--train", "field.jsonl"], True),
    "a field of eval records": (["--eval", "field.jsonl", "--train", "clean.jsonl"], True),
    "a field of scores": (["--eval", "eval.jsonl", "--train", "clean.jsonl", "--scores", "score.jsonl"], True),
    "a flag": (["--eval", "eval.jsonl", f"--{EVIL}"], True),
    "a value": (["--eval", "eval.jsonl", "--fields", EVIL], True),
    "a path that is not there": (["--eval", "eval.jsonl", "--train", EVIL], True),
    "a path in a summary": (["--eval", "eval.jsonl", "--train", f"in{EVIL}.jsonl"], True),
    "a condition": (["--eval", "eval.jsonl", "--train", "clean.jsonl", "--fail-on", f"'{EVIL}'.rate>0"], False),
    "variants of nobody": (["--eval", "eval.jsonl", "--train", "clean.jsonl", "--variants", "id.jsonl"], False),
    "an example": (["explain", EVIL, "--from", "report.json"], True),
    "a report": (["diff", EVIL, EVIL], True),
}


@pytest.mark.parametrize("args, shown", SAID.values(), ids=SAID)
def test_nothing_that_is_said_speaks_to_the_terminal(capsys, args, shown):
    put("field.jsonl", lines({f"{EVIL}field": CLEAN}))
    put("score.jsonl", lines({"id": "q", f"{EVIL}score": 1}))
    put("id.jsonl", lines({"id": EVIL, "text": CLEAN}))
    put(f"in{EVIL}.jsonl", PLAIN)
    if args[0] == "explain":
        run(capsys, "--eval", "eval.jsonl", "--train", "clean.jsonl", "--out", ".")
    _, out, err = run(capsys, *args)
    assert not set(out + err) & set("\x1b\x07\x7f\x9b\u202e")
    assert (SHOWN in out + err) or not shown, out + err


@pytest.mark.parametrize(
    "text, shown",
    [
        ("plain 中文 é a\u0301 😀", "plain 中文 é a\u0301 😀"),
        ("\x00\x1f\x7f\x80\x9f\xad", "\\x00\\x1f\\x7f\\x80\\x9f\\xad"),
        ("\u202a\u2066\u200f\u2028\ufeff", "\\u202a\\u2066\\u200f\\u2028\\ufeff"),
        ("\U000e0001\ud800", "\\U000e0001\\ud800"),
        ("a\nb\tc", "a\\x0ab\\x09c"),
    ],
)
def test_what_a_terminal_would_obey_is_written_out(text, shown):
    assert safe(text) == shown
    assert safe("a\nb\tc\x1b", lines=True) == "a\nb\tc\\x1b"
