"""An audit from files or a build to its report: what is found, where, what could not be seen, the same every time."""

import gzip
import json
import re
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import csv

from datapipe import api
from datapipe.auditing.audit import Audited, Question, audit
from datapipe.auditing.differ import diff
from datapipe.auditing.explain import explain
from datapipe.auditing.keeping import load
from datapipe.auditing.looked import Role
from datapipe.auditing.outside import label
from datapipe.auditing.report import FLAGGED, Report, from_json
from datapipe.auditing.trace import publisher
from datapipe.auditing.training import asked
from datapipe.errors import DataError, ManifestError

ROOT = Path(__file__).parents[1]
PLANTED = ROOT / "fixtures" / "evals" / "planted.jsonl"

QUESTION = (
    "Which of the seven lanterns on the quay of Marrowby did old Perrin light before the tide came in that night?"
)
ANSWER = "He lit the third lantern, for its glass was green and his daughter could see it from the ferry at dusk."
FILLER = (
    "Nobody in the harbour office could say when the ledger had been moved, and nobody had asked the night porter. "
)


def jsonl(path: Path, records: list[dict]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(record) + "\n" for record in records), "utf-8")
    return path


def documents(number: int) -> list[dict]:
    """Texts that share no eight words with each other or with the question."""
    return [{"id": f"d{at}", "text": " ".join(f"w{at}x{word}" for word in range(60))} for at in range(number)]


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    other = QUESTION.replace("lanterns", "bells").upper()[::-1]
    jsonl(
        tmp_path / "eval.jsonl", [{"id": "q", "question": QUESTION, "answer": ANSWER}, {"id": "r", "question": other}]
    )
    return tmp_path


def look(train: list[Path] | list[str], evals: list[Path], workers: int = 1, **more) -> Audited:
    question = Question(
        evals=[str(path) for path in evals],
        train=asked("--train", [str(path) for path in train], Path("builds")),
        **more,
    )
    return audit(question, workers=workers, memory=1_000_000_000)


def classes(report: Report, role: Role = "train") -> dict[str, str]:
    section = report.section(role)
    assert section is not None
    return {one.id: one.cls for one in section.flagged}


# --- where an example lies ----------------------------------------------------------------------------------------


def test_evidence_says_where_the_example_lies(folder):
    text = f"{FILLER}\n{QUESTION}\n{ANSWER}\n{FILLER}"
    train = jsonl(folder / "train" / "part-00001.jsonl", [*documents(6), {"id": "leak", "text": text}])
    report = look([train], [folder / "eval.jsonl"]).report
    (one,) = [row for row in report.sections[0].flagged if row.cls in FLAGGED]
    (proof,) = one.evidence
    assert (one.id, one.cls, one.documents, one.exposure) == ("q", "adjacent", 1, 1)
    assert (proof.url, proof.path, proof.line, proof.source) == ("leak", "part-00001.jsonl", 7, "part")
    record = (folder / "train" / "part-00001.jsonl").read_bytes()[proof.offset :].split(b"\n")[0]
    assert json.loads(record)["id"] == "leak"
    data = text.encode()
    prompt, answer = proof.matches
    assert data[prompt.spans[0].start : prompt.spans[0].end].decode() == QUESTION.rstrip("?")
    assert data[answer.spans[0].start : answer.spans[0].end].decode() == ANSWER.rstrip(".")
    for piece in proof.excerpt:
        assert data[piece.start : piece.end].decode() == piece.text
    marked = {piece.kind: piece.text for piece in proof.excerpt if piece.kind}
    assert marked == {"prompt": QUESTION.rstrip("?"), "answer": ANSWER.rstrip(".")}
    assert report.verdict.result == "found"


def test_excerpt_cuts_no_character_and_counts_what_it_skips(folder):
    wall = "潮水退去以后码头上只剩下一盏灯" * 200
    train = jsonl(folder / "t.jsonl", [{"text": f"{wall}{QUESTION}{wall} {ANSWER}{wall}"}])
    (one,) = look([train], [folder / "eval.jsonl"]).report.sections[0].flagged
    (proof,) = one.evidence
    text = f"{wall}{QUESTION}{wall} {ANSWER}{wall}".encode()
    for piece, after in zip(proof.excerpt, (*proof.excerpt[1:], None), strict=True):
        assert text[piece.start : piece.end].decode() == piece.text
        assert piece.end + piece.skipped == (after.start if after else len(text))


# --- two files of one name, workers -----------------------------------------------------------------------------------


def test_two_files_of_one_name_are_two(folder):
    for name in ("a", "b"):
        jsonl(folder / name / "train.jsonl", [{"id": "x", "text": f"{FILLER}{QUESTION} {ANSWER}"}])
    report = look([folder / "a" / "train.jsonl", folder / "b" / "train.jsonl"], [folder / "eval.jsonl"]).report
    (one,) = report.sections[0].flagged
    assert {(proof.path, proof.line) for proof in one.evidence} == {("a/train.jsonl", 1), ("b/train.jsonl", 1)}
    assert one.documents == one.exposure == 2
    assert {file.path for file in report.scope[0].files} == {"a/train.jsonl", "b/train.jsonl"}


@pytest.mark.parametrize(
    "relative, expected",
    [
        ("books.jsonl.zst", "books"), ("train-00001-of-00032.jsonl", "train"), ("part-00001.parquet", "part"),
        ("00001.jsonl", "00001"), ("web/2024/a.jsonl", "web/2024"), (".hidden", ".hidden"),
    ],
)  # fmt: skip
def test_the_source_of_a_file(relative, expected):
    assert label(relative) == expected


def test_any_number_of_workers_gives_the_same_bytes(folder):
    for at in range(5):
        texts = [*documents(20), {"text": f"{FILLER}{QUESTION} {ANSWER}"}, {"text": f"{FILLER} {ANSWER} {FILLER}"}]
        jsonl(folder / f"t{at}" / "t.jsonl", texts)
    made = [look(["t*/t.jsonl"], [folder / "eval.jsonl"], workers=workers).report for workers in (1, 2, 3)]
    texts = {json.dumps(one.model_dump(mode="json", exclude={"run"})) for one in made}
    assert len(texts) == 1
    assert len({one.digest for one in made}) == 1
    assert diff(made[0], made[1]).same


# --- what could not be seen ---------------------------------------------------------------------------------------


def test_a_truncated_file_is_read_as_far_as_it_is_whole_and_is_a_failure(folder):
    records = [{"text": f"{FILLER}{QUESTION} {ANSWER}"}, *documents(3000)]
    data = gzip.compress("".join(json.dumps(one) + "\n" for one in records).encode())
    (folder / "t.jsonl.gz").write_bytes(data[: len(data) // 2])
    report = look(["t.jsonl.gz"], [folder / "eval.jsonl"]).report
    assert classes(report) == {"q": "adjacent"}
    assert [(one.path, one.reason) for one in report.failures] == [("t.jsonl.gz", "truncated")]
    assert (report.verdict.result, report.verdict.complete) == ("found", False)


def test_nothing_found_in_what_could_be_seen_is_incomplete(folder):
    jsonl(folder / "t.jsonl", documents(3))
    (folder / "u.jsonl").write_text('{"text": "cut', "utf-8")
    report = look(["*.jsonl"], [folder / "eval.jsonl"]).report
    assert (report.verdict.result, report.verdict.complete) == ("incomplete", False)


UNSEEN = {
    "a record of other fields": ('{"body": "x"}', "1 record: missing text, in line 4"),
    "a text that is a number": ('{"text": 5}', "1 record: text is not a string, in line 4"),
    "two of them": ('{"body": "x"}\n\n{"body": "y"}', "2 records: missing text, the first in line 4"),
    "a line that is no JSON": ("{", "1 record: quarantined (not JSON: syntax), in line 4"),
}


@pytest.mark.parametrize("line, reason", UNSEEN.values(), ids=UNSEEN)
def test_records_that_are_not_understood_are_failures(folder, line, reason):
    jsonl(folder / "train" / "t.jsonl", documents(3))
    with open(folder / "train" / "t.jsonl", "a", encoding="utf-8") as file:
        file.write(line + "\n")
    report = look(["train"], [folder / "eval.jsonl"]).report
    assert [one.reason for one in report.failures] == [reason]


def test_null_and_empty_texts_are_no_failure(folder):
    jsonl(folder / "t.jsonl", [*documents(3), {"text": None}, {"text": ""}])
    report = look(["t.jsonl"], [folder / "eval.jsonl"]).report
    assert report.failures == ()
    assert report.scope[0].documents == 3
    assert report.verdict.result == "nothing found"


def test_a_corpus_without_a_text_proves_nothing(folder):
    jsonl(folder / "t.jsonl", [{"body": "x"}])
    with pytest.raises(ManifestError, match="no record has a text under 'text'; the fields that exist: body"):
        look(["t.jsonl"], [folder / "eval.jsonl"])
    (folder / "null.jsonl").write_text('{"text": null}\n', "utf-8")
    report = look(["null.jsonl"], [folder / "eval.jsonl"]).report
    assert report.verdict.result == "incomplete"
    assert "no record has a text under 'text'" in {one.reason for one in report.failures}
    report = look(["t.jsonl"], [folder / "eval.jsonl"], text_field="body").report
    assert report.verdict.result == "nothing found"


@pytest.mark.parametrize("name", ["a.parquet", "a.csv"])
def test_columns_without_a_text_prove_nothing(folder, name):
    made = pa.table({"body": ["x y z", "v"], "title": ["t", "u"]})
    write = pq.write_table if name.endswith("parquet") else csv.write_csv
    write(made, folder / name)
    why = f"{name}: has no column 'text' for the text, its columns are body, title; name the right one by --text-field"
    with pytest.raises(ManifestError, match=re.escape(why)):
        look([name], [folder / "eval.jsonl"])
    jsonl(folder / "t.jsonl", documents(3))  # beside files that were looked through it is a failure of the file
    report = look([name, "t.jsonl"], [folder / "eval.jsonl"]).report
    assert [f"{one.path}: {one.reason}" for one in report.failures] == [why]
    assert report.verdict.result == "incomplete"
    assert look([name], [folder / "eval.jsonl"], text_field="body").report.verdict.result == "nothing found"


ANSWERED = "Twelve words and more of an answer that nobody looked for, as it lies in a field of its own."
UNREAD = {
    "an output": ({"text": FILLER, "output": ANSWERED}, "output"),
    "a chat beside a text": ({"text": FILLER, "messages": [{"role": "user", "content": ANSWERED}]}, "messages.content"),
    "Chinese": ({"text": FILLER, "output": "这是没有人查过的一个很长的回答因为它在另一个字段里"}, "output"),
    "a list": ({"text": FILLER, "choices": ["a", ANSWERED]}, "choices"),
    "names and addresses": ({"text": FILLER, "title": "A title of five words", "url": "http://a.b/c-d-e-f"}, None),
    "nothing else": ({"text": FILLER}, None),
}  # fmt: skip


@pytest.mark.parametrize("case", UNREAD)
@pytest.mark.parametrize("name", ["t.jsonl", "t.parquet", "t.csv"])
def test_text_in_fields_that_were_not_read_is_told(folder, case, name):
    record, field = UNREAD[case]
    if name.endswith("jsonl"):
        jsonl(folder / name, [record])
    elif name.endswith("parquet"):
        pq.write_table(pa.Table.from_pylist([record]), folder / name)
    elif not any(isinstance(value, list) for value in record.values()):
        csv.write_csv(pa.Table.from_pylist([record]), folder / name)
    else:
        return
    (corpus,) = look([name], [folder / "eval.jsonl"]).report.scope
    told = () if field is None else (f"looked through text alone; other fields hold text, too: {field} ({name})",)
    assert corpus.notes == told


def test_a_damaged_file_says_nothing_of_its_fields(folder):
    (folder / "t.jsonl.gz").write_bytes(gzip.compress(b'{"text": "a b c"}\n')[:-9])
    report = look(["t.jsonl.gz"], [folder / "eval.jsonl"]).report
    assert (report.verdict.result, report.scope[0].notes) == ("incomplete", ())


def test_an_eval_set_that_did_not_load_is_a_failure(folder):
    jsonl(folder / "t.jsonl", documents(3))
    (folder / "broken.parquet").write_bytes(b"PAR1 no more")
    report = look(["t.jsonl"], [folder / "eval.jsonl", folder / "broken.parquet"]).report
    assert report.verdict.result == "incomplete"
    assert [one.corpus for one in report.failures] == ["evals"]


WRONG = {
    "no such file": (["nowhere.jsonl"], ManifestError, "no such file and no such build"),
    "a pattern without a file": (["no*.jsonl"], ManifestError, "matches no file"),
}


@pytest.mark.parametrize("train, error, says", WRONG.values(), ids=WRONG)
def test_wrong_paths(folder, train, error, says):
    with pytest.raises(error, match=says):
        look(train, [folder / "eval.jsonl"])


def test_a_suite_of_one_example_and_a_part_without_words(folder):
    jsonl(folder / "one.jsonl", [{"id": "only", "question": QUESTION, "answer": "?!"}])
    train = jsonl(folder / "t.jsonl", [{"text": f"{FILLER}{QUESTION}"}])
    report = look([train], [folder / "one.jsonl"]).report
    assert classes(report) == {"only": "prompt"}
    assert (report.sections[0].total.tested, report.sections[0].total.flagged) == (1, 1)


# --- retrieval ------------------------------------------------------------------------------------------------------


def test_retrieval_and_trace_are_sections_of_their_own(folder):
    jsonl(folder / "t.jsonl", documents(3))
    jsonl(folder / "r.jsonl", [*documents(2), {"id": "page-1", "text": f"{FILLER}{QUESTION} {ANSWER}"}])
    jsonl(folder / "trace.jsonl", [
        {"id": "q", "retrieved": [{"id": "page-1"}, {"id": "gone"}, {"url": "https://hf.co/x", "text": FILLER}]},
        {"id": "r", "retrieved": [f"{QUESTION} {ANSWER}"]},
        {"id": "no such", "retrieved": []},
    ])  # fmt: skip
    report = look(["t.jsonl"], [folder / "eval.jsonl"], trace=folder / "trace.jsonl",
                  retrieval=asked("--retrieval", ["r.jsonl"], Path("builds"))).report  # fmt: skip
    assert [section.role for section in report.sections] == ["train", "retrieval"]
    assert classes(report) == {}
    assert classes(report, "retrieval") == {"q": "adjacent"}
    trace = report.trace
    assert trace is not None
    # what was shown for r holds q, and so says nothing of r
    assert [(one.id, one.cls, one.by) for one in trace.flagged] == [("q", "adjacent", ("page-1",))]
    assert (trace.examples, trace.documents, trace.unknown, trace.missing) == (2, 4, 1, 1)
    assert trace.denied == {"hf.co": 1}
    assert report.verdict.result == "found"


@pytest.mark.parametrize(
    "url, expected",
    [
        ("https://huggingface.co/datasets/x", "huggingface.co"), ("http://www.kaggle.com/y", "kaggle.com"),
        ("https://nothuggingface.co/", None), ("https://[broken", None), (None, None), ("page-1", None),
    ],
)  # fmt: skip
def test_publishers_of_eval_sets(url, expected):
    assert publisher(url) == expected


# --- builds -----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def demo(tmp_path_factory) -> Path:
    """The folder that holds the demo's build."""
    output = tmp_path_factory.mktemp("demo")
    api.build(api.load(ROOT / "manifests" / "demo.yaml"), output=output, workers=2)
    return output


@pytest.mark.slow
def test_the_demo_holds_the_planted_answers_and_nothing_else(demo):
    report = api.audit([str(PLANTED)], output=demo, all_read=True)
    found = {one.id: (one.cls, {proof.url for proof in one.evidence}) for one in report.sections[0].flagged}
    plants = json.loads((ROOT / "fixtures" / "planted.json").read_text("utf-8"))["plants"]
    leaks = {one["eval_id"]: one["ids"][0] for one in plants if one["kind"] == "eval"}
    # what has the template of an item with other names and numbers is no leak of it
    assert {name: urls for name, (_, urls) in found.items()} == {name: {url} for name, url in leaks.items()}
    validation = report.section("validation")
    assert validation
    assert validation.total.flagged == 0
    assert report.controls.negative.false.found == 0
    kept = api.audit([str(PLANTED)], output=demo)
    dropped = [one.id for one in report.sections[0].flagged if one.exposure == 0]
    assert set(classes(kept)) == set(classes(report)) - set(dropped)


@pytest.mark.slow
def test_an_audit_of_a_build_leaves_a_record_that_explain_reads(demo, tmp_path):
    report = api.audit([str(PLANTED)], output=demo, out=tmp_path / "out")
    records = [json.loads(path.read_bytes()) for path in (demo / "demo" / "consumers").glob("audit-*.json")]
    assert report.digest in {record["digest"] for record in records}
    assert load(None, demo).digest in {record["digest"] for record in records}
    assert load(tmp_path / "out", demo) == report == from_json(json.dumps(report.as_json()))
    told = explain(report, "planted/q21")
    ((role, one),) = told.found
    assert (role, one.cls, one.exposure, one.evidence[0].path) == ("train", "adjacent", 2, "wiki.jsonl")
    assert {proof.packed for row in report.sections[0].flagged for proof in row.evidence} <= {"whole", "cut"}
    assert explain(report, "planted/q29").sentence.startswith("clean: looked for and not found, at a measured recall")
    with pytest.raises(ManifestError, match="suite/id"):
        explain(report, "q999")


@pytest.mark.slow
def test_against_validation_is_a_check_of_the_holdout(demo):
    report = api.audit(output=demo, against_validation=True)
    assert [section.role for section in report.sections] == ["train"]
    assert report.sections[0].total.examples + report.evals.suites[0].twins == 35


def test_a_build_without_texts_names_the_key(tmp_path):
    jsonl(tmp_path / "t.jsonl", documents(30))
    for stored, everything, key in (("none", False, "documents: none"), ("kept", True, "documents: kept")):
        (tmp_path / f"{stored}.yaml").write_text(
            f"name: {stored}\ndocuments: {stored}\nsources: {{s: {{files: [t.jsonl]}}}}\n", "utf-8"
        )
        built = api.build(api.load(tmp_path / f"{stored}.yaml"), workers=1)
        with pytest.raises(DataError, match=key):
            api.audit([str(PLANTED)], train=[str(built.path)], all_read=everything)


# --- cases met by peers ---------------------------------------------------------------------------------------------


def test_b33_one_item_in_several_disguises(shared):
    folder = shared / "cases" / "B33"
    expected = json.loads((folder / "EXPECT.json").read_text("utf-8"))["expect"]
    made = look([folder / "train.jsonl"], [folder / "eval.jsonl"])
    section = made.report.sections[0]
    evidence = made.judgements["train"].judged.evidence
    lines = (folder / "train.jsonl").read_text("utf-8").splitlines()
    names = {at: json.loads(line)["id"] for at, line in enumerate(lines)}
    flagged = {names[doc] for doc, cls in zip(*(evidence[n].to_pylist() for n in ("doc", "class")), strict=True)
               if cls in FLAGGED}  # fmt: skip
    assert flagged == set(expected["flagged"])
    assert (section.total.flagged, section.total.examples) == (expected["contaminated_items"], expected["items"])
    assert {proof.path for one in section.flagged for proof in one.evidence} == {"train.jsonl"}


def test_b35_what_could_be_looked_for_is_the_denominator(shared):
    folder = shared / "cases" / "B35"
    expected = json.loads((folder / "EXPECT.json").read_text("utf-8"))["expect"]
    report = look([folder / "train.jsonl"], [folder / "eval.jsonl"]).report
    row = report.sections[0].total
    flagged = [one.id for one in report.sections[0].flagged if one.cls in FLAGGED]
    assert flagged == expected["contaminated"]
    assert (row.flagged, row.tested, row.examples) == (1, 2, expected["items"])
    assert {one.id for one in report.evals.untested} >= set(expected["invalid"])
    shorts = {one.id for one in report.sections[0].flagged if one.cls == "short"}
    assert shorts | {one.id for one in report.evals.untested} == {*expected["too_short"], *expected["invalid"]}
