"""
`datapipe audit` on a build whose every document is known: where the evidence points, what it is worth, what is kept
secret.  What the report says is looked up in the input files, the stored documents and the shards themselves.
"""

import gzip
import json
import re
import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from asked import run
from tokenizers import Tokenizer

from datapipe import api, tokens
from datapipe.auditing import packing
from datapipe.auditing.report import Evidence, Flagged, Report, Role, from_json
from datapipe.books import Books

SECRETS = ("perrin.lighter@example.org", "81.2.69.142", "+44 20 7946 0958")
TEXTS = {  # question, answer
    "copied": ("Which of the seven lanterns on the quay of Marrowby did old Perrin light before the tide came in?",
               "the third one, whose glass was green"),
    "long": ("How many barrels of pickled herring did the widow Castellan sell to the garrison in the winter of frost?",
             "two hundred and eleven barrels"),
    "dropped": ("What did the surveyor of the northern canal write on the last page of his torn yellow notebook?",
                "that water never forgives a straight line"),
    "secret": ("Whom should visitors of the lighthouse museum ask when the iron door behind the stairs is locked?",
               "the keeper who lives across the yard"),
    "shown": ("Which street of the lower town has neither doors nor windows on the side that faces the river?",
              "the street of the rope makers"),
    "held": ("Why did nobody in the valley of the three mills dare to whistle after the evening bell had rung?",
             "because the old miller would answer"),
    "nowhere": ("Where does the forgotten orchard end when seen from the tower of the abandoned observatory?",
                "at the wall with the blue tiles"),
}  # fmt: skip
EVALS = [{"id": name, "question": asked, "answer": answer} for name, (asked, answer) in TEXTS.items()]
MANIFEST = """
name: made
seed: 3
sources:
  web:
    files: [docs/web.jsonl]
    edits: [redact_email, redact_ip, redact_phone]
  wiki:
    files: [docs/a/pages.jsonl.gz, docs/b/pages.jsonl.gz]
    priority: 5
stages:
  - {stage: filter, keep: {unit_count: {max: 2000}}}
  - {stage: holdout, fraction: 0.2, salt: made-19}
  - {stage: exact_dedup, prefer: [priority, longest]}
mixture:
  web: {weight: 0.15}
  wiki: {weight: 0.85, epochs: 2}
tokenizer: {train: {vocab_size: 400, sample: 50KB}, eos: "<|endoftext|>"}
sequences: {length: 96, packing: best_fit, max_document_tokens: 700}
shards: {tokens: 4000}
"""


def leak(name: str) -> str:
    return " ".join(TEXTS[name])


def filler(seed: int, many: int) -> str:
    """Words that no other text has."""
    return " ".join(f"{'bcdfghjklm'[at % 10]}o{seed}ru{at}" for at in range(many))


def records() -> dict[str, list[dict]]:
    """path -> records.  Text is not ASCII before what is looked for, so that bytes are no characters."""
    plain = {path: [{"id": f"{path[5:-6]}-{at}", "text": filler(100 * number + at, 25)} for at in range(12)]
             for number, path in enumerate(("docs/web.jsonl", "docs/a/pages.jsonl", "docs/b/pages.jsonl"))}  # fmt: skip
    web, a, b = plain.values()
    web.insert(3, {"id": "web-copy", "text": f"Ünïcödé \U0001f600 {leak('copied')}"})
    web.append({"id": "web-secret", "text": f"Écrivez {SECRETS[0]} ou {SECRETS[1]}. {leak('secret')}. "
                                            f"Ring {SECRETS[2]} or write to {SECRETS[0]}."})  # fmt: skip
    web.append({"id": "web-dropped", "text": f"{leak('dropped')} {filler(900, 2100)}"})
    web.append({"id": "web-held", "text": f"{filler(904, 12)} {leak('held')}"})
    a.insert(5, {"id": "a-copy", "text": f"Ünïcödé \U0001f600 {leak('copied')}"})
    a.append({"id": "a-short", "text": f"«é» {leak('copied')}"})
    b.insert(2, {"id": "b-long", "text": f"ﬁrst 中文 {filler(901, 40)} {leak('long')} {filler(902, 30)}"})
    b.append({"id": "b-tail", "text": f"{filler(903, 300)} {TEXTS['long'][0]}"})
    return plain


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """A folder with the build in builds/made, its inputs, the eval set, and what retrieval has."""
    root = tmp_path_factory.mktemp("made")
    for path, rows in records().items():
        data = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode()
        target = root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        if "pages" in path:
            target.with_suffix(".jsonl.gz").write_bytes(gzip.compress(data))
        else:
            target.write_bytes(data)
    (root / "eval.jsonl").write_text("".join(json.dumps(one) + "\n" for one in EVALS), "utf-8")
    (root / "made.yaml").write_text(MANIFEST, "utf-8")
    api.build(api.load(root / "made.yaml"), output=root / "builds", workers=2)
    return root


@pytest.fixture(autouse=True)
def here(folder, monkeypatch) -> None:
    monkeypatch.chdir(folder)


def audited(capsys, *args: str) -> Report:
    status, out, err = run(capsys, "--eval", "eval.jsonl", *args, "--json")
    assert status == 0, err
    return from_json(out)


def found(report: Report, role: Role = "train") -> dict[str, Flagged]:
    section = report.section(role)
    assert section is not None
    return {one.id: one for one in section.flagged}


@pytest.fixture(scope="module")
def books(folder) -> Iterator[Books]:
    (path,) = (folder / "builds" / "made").glob("v*")
    made = Books(path, memory=200_000_000)
    yield made
    made.close()


@pytest.fixture(scope="module")
def stored(books) -> dict[str, tuple[str, str]]:
    """doc_id -> (own id, documents.text)."""
    parts = {int(path.stem[-5:]): pq.read_table(path, columns=["id", "text"]).to_pylist()
             for path in (books.build / "documents").glob("*.parquet")}  # fmt: skip
    rows = ((doc_id, parts[part][row]) for doc_id, part, row in books.query("select doc_id, part, row from fates"))
    return {doc_id: (row["id"], row["text"]) for doc_id, row in rows}


@pytest.fixture(scope="module")
def tokenizer(books) -> Tokenizer:
    return Tokenizer.from_file(str(books.build / tokens.FILE))


@pytest.fixture(scope="module")
def shards(books) -> dict[str, list[tuple[int, list[int]]]]:
    """doc_id -> each segment of it in train: first token of the document, ids."""
    doc_ids = dict(books.query("select doc, doc_id from fates"))
    found: dict[str, list[tuple[int, list[int]]]] = {}
    for shard in sorted((books.build / "train").glob("*.parquet")):
        for row in pq.read_table(shard).to_pylist():
            at = 0
            for doc, start, size in zip(row["seg_doc"], row["seg_start"], row["seg_len"], strict=True):
                found.setdefault(doc_ids[doc], []).append((start, row["input_ids"][at : at + size]))
                at += size
    return found


def proofs(report: Report) -> list[tuple[Flagged, Evidence]]:
    return [(one, proof) for section in report.sections for one in section.flagged for proof in one.evidence]


def normal(text: str) -> str:
    return " ".join(re.findall(r"\w+", text.casefold()))


# --- evidence -------------------------------------------------------------------------------------------------------


def test_what_is_found_where(capsys):
    report = audited(capsys)
    assert {name: one.cls for name, one in found(report).items()} == {
        "copied": "adjacent", "secret": "adjacent", "long": "adjacent",
    }  # fmt: skip
    assert {name: one.cls for name, one in found(report, "validation").items()} == {"held": "adjacent"}
    assert report.verdict.result == "found"


def test_evidence_points_at_the_record_and_at_the_bytes_of_the_stored_text(capsys, folder, stored):
    report = audited(capsys, "--all-read")
    seen = Counter()
    for one, proof in proofs(report):
        own, text = stored[proof.document]
        assert proof.url == own
        assert proof.offset is not None
        assert proof.line is not None
        # the record that begins at that byte of the expanded file, and its line
        (path,) = (folder / "docs").glob(proof.path)
        data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        assert json.loads(data[proof.offset :].split(b"\n")[0])["id"] == own
        assert data[: proof.offset].count(b"\n") == proof.line - 1
        assert data[proof.offset - 1 : proof.offset] in (b"", b"\n")
        # spans and excerpt by bytes of documents.text
        stored_bytes = text.encode()
        assert proof.bytes == len(stored_bytes)
        wanted: dict[str, str] = dict(zip(("prompt", "answer"), TEXTS[one.id], strict=True))
        for match in proof.matches:
            seen[match.kind] += 1
            for span in match.spans:
                cut = stored_bytes[span.start : span.end].decode()
                units = normal(wanted[match.kind]).split()
                assert normal(cut).split() == units[span.part_start : span.part_start + span.units]
        for piece in proof.excerpt:
            assert stored_bytes[piece.start : piece.end].decode() == piece.text
    assert seen["prompt"] >= 6
    assert seen["answer"] >= 5


def test_exposure_is_how_often_the_shards_begin_the_document(capsys, shards):
    begun = {doc: sum(start == 0 for start, _ in segments) for doc, segments in shards.items()}
    report = audited(capsys, "--all-read")
    copies = set()
    for one, proof in proofs(report):
        if proof.role == "train":
            assert proof.exposure == begun.get(proof.document, 0), (one.id, proof.url)
            assert proof.survived == (begun.get(proof.document, 0) > 0)
            copies.add(proof.exposure)
    assert copies >= {0, 1, 2}
    for one in report.sections[0].flagged:
        if one.documents == len(one.evidence):
            assert one.exposure == sum(proof.exposure for proof in one.evidence)


def test_packing_is_what_the_rows_of_the_shards_say(capsys, books, stored, shards, tokenizer):
    """whole: each span stands in a row, once a copy;  dropped: one begins behind all that is in a row;  else cut."""
    hows = set()
    for one, proof in proofs(audited(capsys)):
        if proof.role != "train":
            continue
        text, segments = stored[proof.document][1].encode(), shards[proof.document]
        rows = [tokenizer.decode(ids) for _, ids in segments]
        ids = {start + at: own for start, some in segments for at, own in enumerate(some)}
        kept = len(tokenizer.decode([ids[at] for at in sorted(ids)]).encode())
        spans = [span for match in proof.matches for span in match.spans]
        cuts = [text[span.start : span.end].decode() for span in spans]
        whole = all(sum(cut in row for row in rows) >= proof.exposure for cut in cuts)
        gone = any(span.start >= kept for span in spans)
        expected = "dropped" if gone else "whole" if whole else "cut"
        assert proof.packed == expected, (one.id, proof.url)
        hows.add(proof.packed)
        for place in proof.shards:
            table = pq.read_table(books.build / place.file).to_pylist()
            (row,) = (each for each in table if each["row_id"] == place.row)
            assert proof.document in {doc for (doc,) in books.query(
                "select doc_id from fates where doc in (select unnest(?::bigint[]))", [row["seg_doc"]])}  # fmt: skip
    assert hows == {"whole", "cut", "dropped"}


@pytest.mark.parametrize(
    "pieces, spans, copies, how, rows",
    [
        ([(0, 0, 50), (1, 50, 90)], [(10, 20)], 1, "whole", [0]),
        ([(0, 0, 50), (1, 50, 90)], [(45, 55)], 1, "cut", [0, 1]),
        ([(0, 0, 50), (1, 50, 90)], [(10, 20), (45, 55)], 1, "cut", [0, 1]),
        ([(0, 0, 50), (1, 50, 90)], [(10, 20), (95, 99)], 1, "dropped", [0]),
        ([(0, 0, 50), (1, 50, 90)], [(85, 95)], 1, "cut", [1]),
        ([(0, 0, 90), (1, 0, 15), (2, 15, 90)], [(10, 20)], 2, "cut", [0, 1, 2]),
        ([(0, 0, 90), (1, 0, 15), (2, 15, 90)], [(20, 30)], 2, "whole", [0, 2]),
        ([(0, 0, 90), (1, 0, 15), (2, 15, 90)], [(20, 30), (14, 16)], 2, "cut", [0, 1, 2]),
        ([(0, 0, 50), (1, 50, 90)], [(50, 90)], 1, "whole", [1]),
        ([(0, 0, 50), (1, 50, 90)], None, 1, "cut", [0, 1]),
        ([(0, 0, 50), (1, 50, 80)], None, 1, "dropped", [0, 1]),
    ],
    ids=["in one row", "over two", "one of two cut", "one of two gone", "its end gone", "the second copy cut",
         "both copies", "one span in both copies", "to the edges", "not counted", "not counted, cut off"],
)  # fmt: skip
def test_every_copy_must_be_whole(pieces, spans, copies, how, rows):
    every = [packing._Piece("train/0", row, low, high, False) for row, low, high in pieces]
    found = packing._place(every, spans, copies, 90)
    assert (found.how, [place.row for place in found.rows]) == (how, rows)


# --- what is looked through -----------------------------------------------------------------------------------------


def test_all_read_shows_what_was_left_out_with_exposure_0(capsys):
    kept, everything = audited(capsys), audited(capsys, "--all-read")
    assert "dropped" not in found(kept)
    one = found(everything)["dropped"]
    (proof,) = one.evidence
    assert (one.exposure, one.survived, proof.exposure, proof.survived) == (0, False, 0, False)
    assert (proof.fate, proof.stage, proof.rule) == ("dropped", "1:filter", "unit_count > 2000")
    rules = {proof.rule for proof in found(everything)["copied"].evidence if proof.fate == "dropped"}
    assert rules == {"same text"}
    left_out = {one.source: one.left_out for one in kept.scope[0].sources}
    assert left_out["web"] >= 2
    assert {one.source: one.left_out for one in everything.scope[0].sources} == {"web": 0, "wiki": 0}


def test_against_validation_looks_for_the_held_out_documents_in_train(capsys, stored, books):
    status, out, err = run(capsys, "--against-validation", "--json")
    assert status == 0, err
    report = from_json(out)
    ((held,),) = books.query("select count(*) from fates where split = 'validation' and fate = 'kept'")
    assert [section.role for section in report.sections] == ["train"]
    assert (report.evals.suites[0].suite, report.evals.suites[0].examples) == ("validation", held)
    assert found(report) == {}
    assert report.verdict.result == "nothing found"


def test_against_validation_finds_a_copy_that_the_holdout_let_through(capsys, folder, tmp_path):
    """What is nearly the same has a side of its own, where nobody looks for near copies."""
    manifest = MANIFEST[: MANIFEST.index("mixture:")].replace("docs/", f"{folder}/docs/")
    text = next(one["text"] for one in records()["docs/web.jsonl"] if one["id"] == "web-held")
    double = "".join(json.dumps({"id": f"twin-{at}", "text": f"copy {at}: {text}"}) + "\n" for at in range(2))
    (tmp_path / "more.jsonl").write_text(double, "utf-8")
    manifest = manifest.replace("web.jsonl]", f"web.jsonl, {tmp_path}/more.jsonl]")
    (tmp_path / "m.yaml").write_text(manifest, "utf-8")
    api.build(api.load(tmp_path / "m.yaml"), output=tmp_path / "builds", workers=1)
    status, out, err = run(capsys, "--against-validation", "--output", str(tmp_path / "builds"), "--json")
    assert status == 0, err
    (one,) = from_json(out).sections[0].flagged
    assert (one.cls, one.documents) == ("prompt", 2)
    assert {proof.url for proof in one.evidence} == {"twin-0", "twin-1"}


def test_retrieval_from_a_build_and_a_trace_of_its_ids(capsys, folder, tmp_path):
    """The retrieval corpus is a build; the trace names documents of it by their ids."""
    trace = [
        {"id": "copied", "retrieved": [{"id": "a-copy"}, {"id": "web-1"}]},
        {"id": "eval/secret", "retrieved": [{"id": "web-secret"}, {"id": "no-such"}]},
        {"id": "nowhere", "retrieved": [{"id": "web-2"}, f"as text: {leak('nowhere')}"]},
        {"id": "shown", "retrieved": []},
    ]
    (tmp_path / "trace.jsonl").write_text("".join(json.dumps(one) + "\n" for one in trace), "utf-8")
    train = tmp_path / "train.jsonl"
    train.write_text(json.dumps({"text": filler(77, 80)}) + "\n", "utf-8")
    args = [
        "--eval",
        "eval.jsonl",
        "--train",
        str(train),
        "--retrieval",
        "made",
        "--trace",
        str(tmp_path / "trace.jsonl"),
    ]
    status, out, _ = run(capsys, *args, "--json")
    report = from_json(out)
    assert status == 7  # a document of the trace has no text anywhere
    assert found(report) == {}
    assert {name: one.cls for name, one in found(report, "retrieval").items()} == {
        "copied": "adjacent", "secret": "adjacent", "long": "adjacent", "held": "adjacent",
    }  # fmt: skip
    assert report.trace is not None
    told = {one.id: (one.cls, one.by) for one in report.trace.flagged}
    assert told["secret"] == ("adjacent", ("web-secret",))
    assert told["nowhere"][0] == "adjacent"
    assert (report.trace.lines, report.trace.missing, report.trace.unknown) == (4, 1, 0)
    assert report.verdict.result == "found"


# --- what is kept secret ----------------------------------------------------------------------------------------------


def test_what_a_source_redacts_is_nowhere(capsys, tmp_path):
    out, page = tmp_path / "out", tmp_path / "page.html"
    args = ["--eval", "eval.jsonl", "--all-read", "--out", str(out), "--report", str(page)]
    said = [run(capsys, *args)[1], run(capsys, *args[:3], "--json")[1]]
    said += [run(capsys, "explain", "secret", "--from", str(out), *more)[1] for more in ([], ["--json"])]
    for text in said:
        assert "secret" in text
    written = [path.read_bytes() for path in [page, *out.rglob("*")] if path.is_file()]
    tables = [json.dumps(pq.read_table(path).to_pylist(), default=str) for path in out.glob("*.parquet")]
    assert len(tables) >= 7
    for secret in SECRETS:
        pieces = (secret, secret.split("@")[0], secret.replace(" ", ""))
        for text in (*said, *tables):
            assert [piece for piece in pieces if piece in text] == []
        for data in written:
            assert [piece for piece in pieces if piece.encode() in data] == []
    # the text beside is shown, with what stands in its place
    assert "<EMAIL>" in said[2]
    assert "<IP_ADDRESS>" in said[2]
    report = from_json(said[1])
    assert report.scope[0].redacted == ("web",)
    assert any("redact" in line for line in report.blind)


# --- what is left behind ----------------------------------------------------------------------------------------------


def test_a_consumer_record_names_the_version_and_what_was_looked_for(capsys, folder):
    report = audited(capsys, "--fail-on", "rate>0.99")
    (path,) = (folder / "builds" / "made" / "consumers").glob(f"audit-{report.digest[:16]}.json")
    record = json.loads(path.read_bytes())
    (version,) = (folder / "builds" / "made").glob("v*")
    assert (record["kind"], record["digest"], record["version"]) == ("audit", report.digest, version.name)
    assert (record["verdict"], record["complete"], record["flagged"]) == ("found", True, {"eval": 3})
    (one,) = record["evals"]
    assert (one["suite"], one["sha256"]) == ("eval", report.evals.files[0].sha256)
    # explain reads the newest without being told where
    status, out, _ = run(capsys, "explain", "copied")
    assert status == 0
    assert "eval/copied: train: adjacent" in out


@pytest.mark.parametrize("fails", [["eval.adjacent>0"], ["rate>0.5", "eval.adjacent>=3"]])
def test_a_policy_on_a_build(capsys, fails):
    status, out, _ = run(capsys, "--eval", "eval.jsonl", "--fail-on", *fails)
    assert (status, out.count("VIOLATED")) == (6, 1)
    assert run(capsys, "--eval", "eval.jsonl", "--fail-on", "eval.adjacent>3", "untested>0.5")[0] == 0


def test_diff_of_builds_says_what_moved(capsys, tmp_path):
    for name, more in (("kept", []), ("read", ["--all-read"])):
        assert run(capsys, "--eval", "eval.jsonl", *more, "--out", str(tmp_path / name))[0] == 0
    found = json.loads(run(capsys, "diff", str(tmp_path / "kept"), str(tmp_path / "read"), "--json")[1])
    assert {(one["id"], one["old"], one["new"]) for one in found["examples"]} == {("dropped", None, "adjacent")}
    assert json.loads(run(capsys, "diff", str(tmp_path / "kept"), str(tmp_path / "kept"), "--json")[1])["same"] is True


def test_without_stored_text_the_key_is_named(capsys, folder, tmp_path):
    (tmp_path / "none.yaml").write_text(
        f"name: none\ndocuments: none\nsources: {{s: {{files: [{folder}/docs/web.jsonl]}}}}\n", "utf-8"
    )
    api.build(api.load(tmp_path / "none.yaml"), output=tmp_path / "builds", workers=1)
    status, out, err = run(capsys, "--eval", "eval.jsonl", "--output", str(tmp_path / "builds"))
    assert (status, out) == (3, "")
    assert "documents: none" in err
    assert "documents: kept" in err


@pytest.mark.parametrize("damage", ["text", "id", "cut", "gone"])  # a byte of a column's page, or of the whole file
def test_stored_documents_that_are_damaged_are_named(capsys, folder, tmp_path, damage):
    shutil.copytree(folder / "builds", tmp_path / "builds", symlinks=True)
    for part in (tmp_path / "builds" / "made").glob("v*/documents/*.parquet"):
        data, group = bytearray(part.read_bytes()), pq.read_metadata(part).row_group(0)
        for column in map(group.column, range(group.num_columns)):
            if column.path_in_schema == damage:
                data[column.data_page_offset + column.total_compressed_size - 3] ^= 0xFF
        part.unlink()  # a build may share it with others
        if damage != "gone":
            part.write_bytes(data[: len(data) // 2] if damage == "cut" else data)
    status, out, err = run(capsys, "--eval", "eval.jsonl", "--output", str(tmp_path / "builds"))
    assert (status, out, "Traceback" in err) == (4, "", False)
    assert "documents/part-0000" in err


def test_a_build_given_twice_counts_once(capsys, folder, tmp_path):
    shutil.copytree(folder / "builds", tmp_path / "copy", symlinks=True)
    (version,) = (folder / "builds" / "made").glob("v*")
    once = audited(capsys, "--train", "made")
    assert once.scope[0].notes == ()
    for train in (["made", "made"], ["made", str(version)], ["made", str(tmp_path / "copy" / "made")]):
        twice = audited(capsys, "--train", *train)
        assert twice.sections == once.sections
        assert [note for corpus in twice.scope for note in corpus.notes] == ["given more than once: it counts once"]
    both = audited(capsys, "--train", "made", "--retrieval", "made")  # two roles are two questions
    assert [corpus.notes for corpus in both.scope] == [(), (), ()]


@pytest.mark.parametrize("source", ["made", "files"])
def test_any_number_of_workers_writes_the_same_bytes(capsys, monkeypatch, tmp_path, source):
    """--json, the page and the tables; when and how long it ran aside."""
    from datapipe.auditing import audit

    run_of = audit._Clock.run
    monkeypatch.setattr(
        audit._Clock,
        "run",
        lambda clock: run_of(clock).model_copy(
            update={"started": "2026-01-01", "seconds": 1.0, "workers": 1, "peak_rss_bytes": 1}
        ),
    )
    train = [] if source == "made" else ["--train", "docs/**/*.jsonl*"]
    made = []
    for workers in ("1", "2"):
        out, page = tmp_path / workers / "out", tmp_path / workers / "page.html"
        args = [
            "--eval",
            "eval.jsonl",
            *train,
            "--workers",
            workers,
            "--out",
            str(out),
            "--report",
            str(page),
            "--json",
        ]
        status, said, err = run(capsys, *args)
        assert status == 0, err
        files = {str(path.relative_to(out)): path.read_bytes() for path in out.rglob("*") if path.is_file()}
        assert {"report.json", "examples.parquet", "evidence.parquet", "sets.parquet"} <= set(files)
        made.append((said, page.read_bytes(), files))
    one, two = made
    assert one[0] == two[0]
    assert one[1] == two[1]
    assert set(one[2]) == set(two[2])
    for name, data in one[2].items():
        assert data == two[2][name], name
