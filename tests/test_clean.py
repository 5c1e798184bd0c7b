"""--clean-out: files without the documents that hold examples, every other byte as it was, and a receipt."""

import bz2
import csv
import gzip
import io
import json
import lzma
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard
from test_decontaminate import ANSWER, DOCS, ITEMS, PROMPT, SOLUTION, prose

from datapipe import api
from datapipe.auditing import clean, receipt
from datapipe.auditing.audit import Question
from datapipe.auditing.training import Asked
from datapipe.contamination.model import CLASSES
from datapipe.errors import ManifestError

GONE = {"whole", "prompt", "solution", "both"}
PACKED = {
    "": bytes,
    ".gz": gzip.compress,
    ".zst": lambda data: zstandard.ZstdCompressor().compress(data),
    ".bz2": bz2.compress,
    ".xz": lzma.compress,
}
UNPACKED = {
    "": bytes,
    ".gz": gzip.decompress,
    ".zst": lambda data: zstandard.ZstdDecompressor().decompressobj().decompress(data),
    ".bz2": bz2.decompress,
    ".xz": lzma.decompress,
}


@pytest.fixture
def items(tmp_path: Path) -> Path:
    path = tmp_path / "suite.jsonl"
    path.write_text("".join(json.dumps(item) + "\n" for item in ITEMS))
    return path


def cleaned(items: Path, corpus: Path, out: Path, *, workers: int = 2, **keys) -> clean.Cleaned:
    question = Question(evals=[str(items)], train=Asked((), (f"{corpus}/**",)), **keys)
    return clean.clean(question, out, workers=workers, memory=200_000_000)


def files_of(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def removed(out: Path) -> list[dict]:
    return [json.loads(line) for line in (out / ".receipt" / "removed.jsonl").read_text().splitlines()]


# lines that are no documents, and ways to write the same one: nothing of it may change
LINES = [
    (b'{"text": "%s", "id": "none", "n": 1.50, "u": "\\u00e9"}\n' % DOCS["none"].encode(), True),
    (b'{ "id" : "whole","text":"%s" }\r\n' % DOCS["whole"].encode(), False),
    (b"\n", True),
    (b"not json at all\n", True),
    (b'{"id": "null", "text": null}\n', True),
    (b'{"id": "prompt", "text": "%s"}\n' % DOCS["prompt"].encode(), False),
    (b'{"id": "passage", "text": "%s"}\n' % DOCS["passage"].encode(), True),
    (b'{"id": "both", "text": "%s"}' % DOCS["both"].encode(), False),
]


@pytest.mark.parametrize("suffix", PACKED)
@pytest.mark.parametrize("block", [8_000_000, 700])
def test_lines_stay_byte_for_byte(tmp_path, items, monkeypatch, suffix, block):
    monkeypatch.setattr("datapipe.read.streams.BLOCK", block)
    corpus, out = tmp_path / "in" / "a", tmp_path / "out"
    corpus.mkdir(parents=True)
    path = corpus / f"d.jsonl{suffix}"
    path.write_bytes(PACKED[suffix](b"".join(line for line, _ in LINES)))
    before = files_of(corpus)
    made = cleaned(items, tmp_path / "in", out)
    assert files_of(corpus) == before
    target = out / "a" / f"d.jsonl{suffix}"
    assert UNPACKED[suffix](target.read_bytes()) == b"".join(line for line, stays in LINES if stays)
    assert [(row["line"], row["id"], row["suite"], row["example"], row["class"]) for row in removed(out)] == [
        (2, "whole", "suite", "a", "adjacent"),
        (6, "prompt", "suite", "a", "prompt"),
        (8, "both", "suite", "a", "adjacent"),
        (8, "both", "suite", "b", "prompt"),
    ]
    assert (made.files, made.unchanged, made.removed, made.documents) == (1, 0, 3, 5)
    assert made.report is not None
    assert sum(section.total.flagged for section in made.report.sections) == 0


def test_a_file_that_loses_nothing_is_copied_and_names_may_repeat(tmp_path, items):
    corpus, out = tmp_path / "in", tmp_path / "out"
    for folder, names in (("a", ["none", "passage"]), ("b", ["none", "whole"])):
        (corpus / folder).mkdir(parents=True)
        lines = "".join(json.dumps({"id": name, "text": DOCS[name]}) + "\n" for name in names)
        (corpus / folder / "part-0.jsonl.gz").write_bytes(gzip.compress(lines.encode()))
    made = cleaned(items, corpus, out)
    assert (out / "a" / "part-0.jsonl.gz").read_bytes() == (corpus / "a" / "part-0.jsonl.gz").read_bytes()
    kept = gzip.decompress((out / "b" / "part-0.jsonl.gz").read_bytes()).decode()
    assert [json.loads(line)["id"] for line in kept.splitlines()] == ["none"]
    assert (made.files, made.unchanged) == (2, 1)
    assert made.by == {"suite": {"adjacent": 1}}


@pytest.mark.parametrize("form", ["csv", "tsv"])
def test_records_of_a_table_in_text(tmp_path, items, form):
    """Records over several lines, quotes, a byte-order mark, a record of another number of cells."""
    corpus, out = tmp_path / "in", tmp_path / "out"
    corpus.mkdir()
    held = io.StringIO()
    writer = csv.writer(held, delimiter="\t" if form == "tsv" else ",", lineterminator="\r\n")
    writer.writerow(["id", "the, text\n", "text"])
    records = []
    for name, text in DOCS.items():
        start = held.tell()
        writer.writerow([name, 'a "quoted"\ncell', f"{text}\nsecond line\n"])
        records.append((name, held.getvalue()[start:]))
    head = held.getvalue()[: held.getvalue().index(records[0][1])]
    data = head + "".join(record for _, record in records) + "odd\r\n"
    (corpus / f"t.{form}").write_bytes(b"\xef\xbb\xbf" + data.encode())
    made = cleaned(items, corpus, out)
    kept = head + "".join(record for name, record in records if name not in GONE) + "odd\r\n"
    assert (out / f"t.{form}").read_bytes() == b"\xef\xbb\xbf" + kept.encode()
    assert {row["id"] for row in removed(out)} == GONE
    assert made.removed == len(GONE)


@pytest.mark.parametrize("compression", ["snappy", "zstd", "none"])
def test_rows_of_parquet(tmp_path, items, compression):
    corpus, out = tmp_path / "in", tmp_path / "out"
    corpus.mkdir()
    names = [*DOCS, "empty"]
    table = pa.table(
        {
            "id": pa.array(names),
            "text": pa.array([*DOCS.values(), None], pa.large_string()),
            "deep": pa.array([{"a": [1, None], "b": name} for name in names]),
            "kind": pa.array(names).dictionary_encode(),
        },
    ).replace_schema_metadata({"huggingface": "{}"})
    pq.write_table(table, corpus / "p.parquet", row_group_size=3, compression=compression)
    cleaned(items, corpus, out)
    made, old = (pq.read_table(folder / "p.parquet") for folder in (out, corpus))
    assert made.schema.equals(old.schema, check_metadata=True)
    assert pq.ParquetFile(out / "p.parquet").schema.equals(pq.ParquetFile(corpus / "p.parquet").schema)
    assert made.equals(old.filter(pa.array([name not in GONE for name in names])))
    columns = [pq.ParquetFile(folder / "p.parquet").metadata.row_group(0).column(1) for folder in (corpus, out)]
    assert columns[0].compression == columns[1].compression
    assert [row["row"] for row in removed(out)] == [names.index(name) + 1 for name in names if name in GONE for _ in
                                                    range(2 if name == "both" else 1)]  # fmt: skip
    assert {row["line"] for row in removed(out)} == {None}


def test_text_files_are_there_or_not(tmp_path, items):
    corpus, out = tmp_path / "in", tmp_path / "out"
    corpus.mkdir()
    for name, text in DOCS.items():
        (corpus / f"{name}.txt").write_text(text)
    made = cleaned(items, corpus, out)
    assert {path.stem for path in out.glob("*.txt")} == set(DOCS) - GONE
    assert (made.gone, made.files) == (len(GONE), len(DOCS) - len(GONE))
    assert {(row["line"], row["row"]) for row in removed(out)} == {(None, None)}


def test_all_files_may_be_gone(tmp_path, items):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.txt").write_text(DOCS["whole"])
    made = cleaned(items, tmp_path / "in", tmp_path / "out")
    assert (made.files, made.report) == (0, None)
    assert list(files_of(tmp_path / "out")) == [".receipt/removed.jsonl", ".receipt/summary.json"]


def test_an_audit_tells_what_had_been_taken_out(tmp_path, items):
    """A document counts once, by the class that tells most, whatever else it holds."""
    corpus, out = tmp_path / "in" / "a", tmp_path / "out"
    corpus.mkdir(parents=True)
    lines = "".join(json.dumps({"id": name, "text": DOCS[name]}) + "\n" for name in DOCS)
    (corpus / "d.jsonl").write_text(lines)
    made = cleaned(items, tmp_path / "in", out)
    assert len({(row["path"], row["line"]) for row in removed(out)}) < len(removed(out))
    (scope,) = api.audit([str(items)], train=[str(out)]).scope
    (told,) = scope.receipts
    assert (told.by, told.documents, made.removed) == (f"--clean-out {out}", len(GONE), len(GONE))
    assert {one.source for one in told.removed} == {"a"}
    strongest = {row["line"]: "" for row in removed(out)}
    for row in sorted(removed(out), key=lambda row: -CLASSES.index(row["class"])):
        strongest[row["line"]] = f"holds suite ({row['class']})"
    assert {one.reason: one.documents for one in told.removed} == Counter(strongest.values())
    assert api.audit([str(items)], train=[f"{out}/a"]).scope[0].receipts == ()


@pytest.mark.parametrize("content", ["not json", '{"path": "a"}', "[1]", '{"path": 1, "class": "no"}'])
def test_a_receipt_of_somebody_else_is_named_and_not_told(tmp_path, items, content):
    (tmp_path / "in" / ".receipt").mkdir(parents=True)
    (tmp_path / "in" / "a.jsonl").write_text(json.dumps({"text": DOCS["none"]}))
    (tmp_path / "in" / ".receipt" / "removed.jsonl").write_text(content)
    (scope,) = api.audit([str(items)], train=[str(tmp_path / "in")]).scope
    assert scope.receipts == ()
    assert any("removed.jsonl is not as --clean-out writes it" in note for note in scope.notes)


def test_a_file_that_cannot_be_read_whole_is_left_out_and_said(tmp_path, items):
    corpus, out = tmp_path / "in", tmp_path / "out"
    corpus.mkdir()
    lines = "".join(json.dumps({"id": name, "text": DOCS[name]}) + "\n" for name in DOCS).encode()
    (corpus / "cut.jsonl.gz").write_bytes(gzip.compress(lines)[:-30])
    (corpus / "no.parquet").write_bytes(b"PAR1 and nothing else")
    (corpus / "good.jsonl").write_bytes(lines)
    made = cleaned(items, corpus, out)
    assert sorted(made.left_out) == ["cut.jsonl.gz", "no.parquet"]
    assert [path.name for path in sorted(out.glob("*"))] == [".receipt", "good.jsonl"]
    assert {row["path"] for row in removed(out)} == {"good.jsonl"}
    assert json.loads((out / ".receipt" / "summary.json").read_text())["left_out"] == made.left_out


def test_the_same_files_for_any_number_of_workers(tmp_path, items):
    corpus = tmp_path / "in"
    corpus.mkdir()
    for at in range(6):
        rows = [
            {"id": f"{at}-{n}", "text": f"{prose(at * 100 + n, 50)} {text}"} for n, text in enumerate(DOCS.values())
        ]
        (corpus / f"{at}.jsonl.zst").write_bytes(
            zstandard.ZstdCompressor().compress("".join(json.dumps(row) + "\n" for row in rows).encode())
        )
    for workers in (1, 2):
        cleaned(items, corpus, tmp_path / f"out{workers}", workers=workers)
    assert files_of(tmp_path / "out1") == files_of(tmp_path / "out2")


def test_a_copy_behind_the_first_sixteen_is_found(tmp_path, items):
    corpus, out = tmp_path / "in", tmp_path / "out"
    corpus.mkdir()
    rows = [{"id": str(n), "text": f"{prose(n, 40)} {PROMPT} {ANSWER} {SOLUTION}"} for n in range(60)]
    rows.append({"id": "none", "text": DOCS["none"]})
    (corpus / "d.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    made = cleaned(items, corpus, out)
    assert made.removed == 60


# --- what is refused, and what is left when it goes wrong -----------------------------------------------------------


def test_what_is_refused(tmp_path, items):
    full, file = tmp_path / "full", tmp_path / "file"
    full.mkdir()
    (full / "a").write_text("a")
    file.write_text("a")
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.txt").write_text(DOCS["whole"])
    for out in (full, file):
        with pytest.raises(ManifestError, match="not an empty folder"):
            cleaned(items, tmp_path / "in", out)
    with pytest.raises(ManifestError, match="is a build"):
        clean.clean(Question(evals=[str(items)], train=Asked((tmp_path,), ())), tmp_path / "o", workers=1, memory=10**8)
    assert not (tmp_path / "o").exists()


def test_nothing_half_written_stays(tmp_path, items, monkeypatch):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.txt").write_text(DOCS["none"])
    out = tmp_path / "new" / "out"

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(receipt, "write", full)
    with pytest.raises(OSError, match="No space"):
        cleaned(items, tmp_path / "in", out)
    assert list(out.parent.iterdir()) == []
    monkeypatch.undo()
    out.mkdir()  # empty: may be there
    assert cleaned(items, tmp_path / "in", out).files == 1
