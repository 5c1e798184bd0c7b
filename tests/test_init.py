"""datapipe init: which field is what, which files belong together, what cannot be read, and that the manifest loads."""

import bz2
import gzip
import io
import json
import lzma
import os
import random
import tarfile
import zipfile
from functools import cache
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from datapipe import cli, pipeline
from datapipe import manifest as manifests
from datapipe.build_manifest import Built, DryRun
from datapipe.errors import DataError
from datapipe.manifest import Manifest, tree
from datapipe.propose import Proposal, propose, sample, write
from datapipe.propose.forms import Unreadable, look
from datapipe.propose.judge import choose
from datapipe.propose.values import flat
from datapipe.read import files

COMMON = ["the", "of", "and", "to", "that", "with", "have", "be"]
STEMS = ["river", "boat", "tide", "lamp", "garden", "letter", "winter", "market", "stone", "window", "bread", "road"]
ENDINGS = ["", "s", "er", "ing", "ed", "let", "ful", "less", "ly", "ish"]


def prose(n: int, words: int = 80) -> str:
    """An English-like text, different for each n, in which no run of words comes again."""
    some = random.Random(n)
    made = (some.choice(COMMON) if k % 3 == 0 else some.choice(STEMS) + some.choice(ENDINGS) for k in range(words))
    return f"Number {n} " + " ".join(made) + "."


def jsonl(records: list) -> bytes:
    return b"".join(json.dumps(record, ensure_ascii=False).encode() + b"\n" for record in records)


def rows(count: int = 30, **columns) -> list[dict]:
    """Records with a text and an id, and a column more for each function of n."""
    return [{"id": f"d{n}", "text": prose(n)} | {name: of(n) for name, of in columns.items()} for n in range(count)]


def lay(folder: Path, **contents: bytes | list) -> Path:
    """Files by name (`__` stands for a slash, `_DOT_` for a dot); lists become JSON lines."""
    for name, content in contents.items():
        path = folder / name.replace("__", "/").replace("_DOT_", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(jsonl(content) if isinstance(content, list) else content)
    return folder


def load(proposal: Proposal, folder: Path) -> Manifest:
    return manifests.parse(proposal.text, folder / "manifest.yaml")


def proposed(folder: Path, *paths: Path | str) -> tuple[Proposal, Manifest]:
    """What is proposed for paths, and the manifest that it loads as; all the files that it means are there."""
    proposal = propose(paths or [folder], folder=folder)
    made = load(proposal, folder)
    for source in proposal.sources:
        assert {path for _, path in files.find(made, source.name)} == set(source.files)
    return proposal, made


def doubts(proposal: Proposal) -> str:
    return "\n".join(f"{about}: {doubt}" for about, doubt in proposal.doubts)


def judged(records: list[dict]) -> tuple[dict[str, str], list[str], str]:
    """(fields, extra, notes as one text) of records, as JSON lines have them."""
    choice = choose([flat(record, dots=False)[0] for record in records])
    assert choice is not None
    return choice.fields, choice.extra, "\n".join(choice.notes)


# which field is what

TEXTS = {
    "by name": ({"text": prose}, "text"),
    "another name": ({"content": prose}, "content"),
    "raw_content": ({"raw_content": prose, "title": lambda n: f"Title of the page number {n}"}, "raw_content"),
    "in capitals, with blanks": ({"Page Content": prose}, "Page Content"),
    "nested": ({"doc": lambda n: {"body": prose(n), "n": n}}, "doc.body"),
    "the nearer one": ({"text": prose, "meta": lambda n: {"text": prose(n + 1)}}, "text"),
    "text before code": ({"text": lambda n: f"Write function {n}", "code": lambda n: prose(n, 200)}, "text"),
    "code alone": ({"code": lambda n: f"def f{n}(x):\n    return x + {n}\n" * 5, "path": lambda n: f"{n}.py"}, "code"),
    "code that is an abbreviation": ({"code": lambda n: f"C{n}", "notes": prose}, "notes"),
    "document that is a name": ({"document": lambda n: f"{n}.pdf", "extracted": prose}, "extracted"),
    "a question": ({"question": lambda n: f"What is {n} and {n}?", "answer": lambda n: "yes"}, "question"),
    "question before a longer passage": (
        {"question": lambda n: f"Is {n} odd or even, say?", "passage": prose},
        "question",
    ),
    "a question that is always the same": (
        {"question": lambda n: "cause", "premise": lambda n: f"Man {n} ran home."},
        "premise",
    ),
    "prompt": ({"prompt": prose, "canonical_solution": prose}, "prompt"),
    "no name at all": ({"x1": prose, "x2": lambda n: f"k{n}"}, "x1"),
    "not the path, not the url": ({"path": lambda n: "/a/b c/d e/f g/h i/" + str(n), "thing": prose}, "thing"),
    "not what is mostly missing": ({"text": lambda n: prose(n) if n == 0 else None, "body": prose}, "body"),
}


@pytest.mark.parametrize("columns, text", TEXTS.values(), ids=TEXTS)
def test_text(columns, text):
    fields, _, notes = judged([{name: of(n) for name, of in columns.items()} for n in range(30)])
    assert fields["text"] == text
    known = text in ("text", "content", "raw_content", "Page Content", "doc.body", "body", "code")
    assert ("no field is called so" in notes) == (not known)


def test_no_text():
    assert choose([flat({"n": n, "label": n % 2}, dots=False)[0] for n in range(5)]) is None
    assert choose([]) is None


IDS = {
    "id": ({"id": lambda n: f"a{n}"}, "id", ""),
    "_id, an integer": ({"_id": lambda n: n}, "_id", ""),
    "doc_id": ({"doc_id": lambda n: f"a{n}"}, "doc_id", ""),
    "the first of several": ({"question_id": lambda n: n, "id": lambda n: n}, "id", ""),
    "not one that repeats": ({"id": lambda n: n // 2}, None, "id: id repeats (15 values in 30 records)"),
    "another where it repeats": ({"id": lambda n: n // 2, "uuid": lambda n: f"u{n}"}, "uuid", ""),
    "not one that is missing": ({"id": lambda n: n if n % 2 else None}, None, "id: id is missing or null in 50 %"),
    "not a float": ({"id": lambda n: n + 0.5}, None, "id is not always a short text"),
    "a url": ({"url": lambda n: f"https://e.org/{n}"}, "url", "url is distinct in the sample; make sure"),
    "url beside an id": ({"url": lambda n: f"https://e.org/{n}", "id": lambda n: n}, "id", ""),
    "an index": ({"idx": lambda n: n}, "idx", "make sure that it is in all files"),
    "nothing that is only distinct": ({"hash": lambda n: f"{n:032x}"}, None, ""),
}


@pytest.mark.parametrize("columns, name, said", IDS.values(), ids=IDS)
def test_id(columns, name, said):
    fields, _, notes = judged([{"text": prose(n)} | {key: of(n) for key, of in columns.items()} for n in range(30)])
    assert fields.get("id") == name
    assert said in notes
    assert said or "id:" not in notes


def test_an_id_may_repeat_where_the_whole_record_does():
    fields, _, notes = judged(rows(20) + rows(20))
    assert fields["id"] == "id"
    assert "repeats only where a whole record does (20 values in 40 records)" in notes


def day(n: int) -> str:
    return f"2024-01-{n % 28 + 1:02d}"


DATES = {
    "date": ({"date": day}, "date", ""),
    "an instant": ({"crawl_time": lambda n: f"{day(n)}T10:00:00Z"}, "crawl_time", ""),
    "digits of a WARC": ({"timestamp": lambda n: f"202401{n % 28 + 1:02d}100000"}, "timestamp", ""),
    "by its values": ({"when": day}, "when", "taken for its values"),
    "a year": ({"year": lambda n: 1990 + n}, "year", "is a year"),
    "the first of several": ({"updated": day, "date": day}, "date", "also dates: updated"),
    "one of several that is there": (
        {"date": lambda n: None if n else day(n), "updated": day},
        "updated",
        "also dates: date",
    ),
    "sparse, but alone": ({"date": lambda n: None if n % 4 else day(n)}, "date", "missing or null in 73 %"),
    "some are none": (
        {"date": lambda n: day(n) if n % 10 else "last spring"},
        "date",
        "10 % of the values of date are no ISO",
    ),
    "seconds": ({"created_utc": lambda n: 1_700_000_000 + n}, None, "created_utc holds seconds since 1970"),
    "milliseconds": ({"timestamp": lambda n: (1_700_000_000 + n) * 1000}, None, "timestamp holds milliseconds"),
    "another notation": (
        {"published": lambda n: f"{n % 28 + 1}/01/2024"},
        None,
        "published is no ISO 8601 ('1/01/2024')",
    ),
    "words": ({"published": lambda n: f"Mon, {n % 28 + 1} Jan 2024"}, None, "published is no ISO 8601"),
    "a version that is a number": ({"version": lambda n: "2024"}, None, ""),
}


@pytest.mark.parametrize("columns, name, said", DATES.values(), ids=DATES)
def test_date(columns, name, said):
    fields, _, notes = judged(rows(30, **columns))
    assert fields.get("date") == name
    assert said in notes
    assert said or "date:" not in notes


OTHERS = {
    "lang": ({"language": lambda n: "en" if n % 2 else "fr"}, {"lang": "language"}, ""),
    "lang in a nested field": ({"meta": lambda n: {"lang": "en"}}, {"lang": "meta.lang"}, ""),
    "lang that is a sentence": (
        {"language": lambda n: "this text is in English as it seems"},
        {},
        "does not hold names",
    ),
    "lang that is rare": ({"lang": lambda n: None if n else "en"}, {}, "lang has a value in only 2 %"),
    "group": ({"domain": lambda n: f"{n // 2}.org"}, {"group": "domain"}, ""),
    "group that is one": ({"family": lambda n: "a"}, {}, "family makes 1 groups"),
    "group that is rare": ({"family": lambda n: None if n % 10 else f"f{n}"}, {}, "family has a value in only 10 %"),
    "two groups": ({"family": lambda n: f"f{n // 2}", "host": lambda n: f"h{n}"}, {"group": "family"}, "host would be"),
    "version": ({"version": lambda n: f"v{n % 3}"}, {"version": "version"}, ""),
    "snapshot": ({"dump": lambda n: "CC-MAIN-2024-10"}, {"snapshot": "dump"}, ""),
    "snapshot that is no label": ({"crawl": lambda n: f"crawl number {n}"}, {}, ""),
    "types of several kinds": ({"version": lambda n: n if n % 2 else str(n)}, {"version": "version"}, "several types"),
}


@pytest.mark.parametrize("columns, mapped, said", OTHERS.values(), ids=OTHERS)
def test_other_fields(columns, mapped, said):
    fields, _, notes = judged(rows(60, **columns))
    assert fields == {"text": "text", "id": "id"} | mapped
    assert said in notes


def test_extra():
    scores = {"edu_score": lambda n: n / 30, "language_score": lambda n: 0.5, "alpha_ratio": lambda n: 0.5}
    others = {"url": lambda n: f"https://e.org/{n}", "width": lambda n: n, "license": lambda n: f"L{n % 3}"}
    fields, extra, notes = judged(rows(30, **scores, **others))
    assert extra == ["url", "edu_score", "language_score", "license"]
    assert "alpha_ratio is the name of a signal" in notes
    assert fields["id"] == "id"


CAPTURES = {
    "other dates": ({"url": lambda n: f"u{n // 2}", "date": day}, "url"),
    "the same dates": ({"url": lambda n: f"u{n // 2}", "date": lambda n: "2024-01-01"}, None),
    "no dates": ({"url": lambda n: f"u{n // 2}"}, None),
    "no repeated url": ({"url": lambda n: f"u{n}", "date": day}, None),
}


@pytest.mark.parametrize("columns, key", CAPTURES.values(), ids=CAPTURES)
def test_snapshot_key(columns, key, tmp_path):
    lay(tmp_path, a_DOT_jsonl=rows(30, **columns))
    proposal, made = proposed(tmp_path)
    (source,) = made.sources.values()
    assert (source.snapshot.key if source.snapshot else None) == key
    assert ("taken for captures" in proposal.text) == (key is not None)
    assert ("not a key" in proposal.text) == (key is None and "no repeated" not in str(columns) and _repeats(columns))


def _repeats(columns: dict) -> bool:
    return columns["url"](0) == columns["url"](1)


def test_what_is_wrong_with_the_text_is_said():
    records = [*rows(20), {"id": "n", "text": None}, {"id": "m"}, {"id": "i", "text": 4}, {"id": "e", "text": " "}]
    _, _, notes = judged(records)
    assert "not all values of text are strings (1 integer)" in notes
    assert "missing or null in 8 % of the records" in notes
    assert "text is empty in 1 of 24 records" in notes
    assert "every value of text is null" in judged([{"id": n, "text": None} for n in range(3)])[2]
    assert "holds HTML" in judged([{"text": f"<!DOCTYPE html><p>{prose(n)}"} for n in range(3)])[2]
    assert "longer is essay" in judged([{"text": f"number {n}", "essay": prose(n)} for n in range(3)])[2]


# formats


def compressed(data: bytes) -> dict[str, bytes]:
    return {
        "gz": gzip.compress(data),
        "zst": zstandard.ZstdCompressor().compress(data),
        "bz2": bz2.compress(data),
        "xz": lzma.compress(data),
    }


@pytest.mark.parametrize("ending", ["gz", "zst", "bz2", "xz"])
def test_compressed(ending, tmp_path):
    (tmp_path / f"web.jsonl.{ending}").write_bytes(compressed(jsonl(rows()))[ending])
    proposal, made = proposed(tmp_path)
    assert made.sources[tmp_path.name].files == (f"web.jsonl.{ending}",)
    assert "all 30 records" in proposal.text


def test_csv_and_tsv(tmp_path):
    cells = [(f"d{n}", prose(n).replace(",", ""), day(n), n / 7) for n in range(20)]
    for ending, comma in (("csv", ","), ("tsv", "\t")):
        lines = [comma.join(map(str, row)) for row in [("Key", "Body Text", "Date", "score.x"), *cells]]
        (tmp_path / f"t.{ending}").write_text("\ufeff" + "\n".join(lines))
        proposal, made = proposed(tmp_path, tmp_path / f"t.{ending}")
        assert made.sources["t"].fields == {"text": "Body Text", "id": "Key", "date": "Date"}
        assert made.sources["t"].extra == ("score.x",)  # a column may have a dot in its name
        assert "all 20 records" in proposal.text


def test_parquet(tmp_path):
    import datetime

    table = pa.table(
        {
            "raw": pa.array([prose(n) for n in range(3000)], pa.large_string()),
            "uuid": [f"u{n}" for n in range(3000)],
            "fetched": [datetime.datetime(2024, 1, 1 + n % 28, 3, 4, 5, tzinfo=datetime.UTC) for n in range(3000)],
            "meta": [{"lang": "en", "tags": ["a"]} for _ in range(3000)],
        }
    )
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=500)
    proposal, made = proposed(tmp_path)
    (source,) = made.sources.values()
    assert source.fields == {"text": "raw", "id": "uuid", "date": "fetched", "lang": "meta.lang"}
    assert "a sample of 1,000 records" in proposal.text


def test_a_tree_of_texts(tmp_path):
    lay(tmp_path, a_DOT_py=b"x = 1\n" * 20, sub__b_DOT_py=b"y = 2\n" * 20, README_DOT_md=prose(1).encode(),
        more__c_DOT_txt=prose(2).encode(), logo_DOT_png=b"\x89PNG\0\0", Makefile=b"all:\n")  # fmt: skip
    proposal, made = proposed(tmp_path)
    patterns = {name: source.files for name, source in made.sources.items()}
    assert sorted(patterns.values()) == [("**/*.py",), ("README.md", "more/c.txt")]
    assert all(dict(source.fields) == {"text": "text", "id": "id"} for source in made.sources.values())
    assert "left out Makefile, logo.png (of no known text format)" in doubts(proposal)
    assert "each file is one document" in doubts(proposal)


def test_texts_that_hold_json_lines(tmp_path):
    lay(tmp_path, a_DOT_txt=rows(5))
    _, made = proposed(tmp_path)
    assert made.sources[tmp_path.name].format == "jsonl"
    assert made.sources[tmp_path.name].fields["id"] == "id"


def test_texts_beside_records_are_left_out(tmp_path):
    lay(tmp_path, a_DOT_jsonl=rows(), README_DOT_md=b"about", LICENSE=b"free")
    proposal, made = proposed(tmp_path)
    assert list(made.sources) == [tmp_path.name]
    assert "left out LICENSE, README.md (text beside records)" in doubts(proposal)


def test_byte_order_marks_and_blank_lines(tmp_path):
    lay(
        tmp_path,
        a_DOT_jsonl=b"\xef\xbb\xbf" + jsonl(rows(3)) + b"\n  \n\xef\xbb\xbf" + jsonl(rows(5)[3:]),
        b_DOT_jsonl=b"\xef\xbb\xbf",
    )
    proposal, made = proposed(tmp_path)
    assert made.sources[tmp_path.name].files == ("*.jsonl",)
    assert "all 5 records" in proposal.text
    assert "unreadable" not in proposal.text


def test_unreadable_records_and_limits(tmp_path):
    lay(tmp_path, a_DOT_jsonl=jsonl(rows(18)) + b'{"id": 1,\n[1]\n' + jsonl([{"id": "x", "text": None}] * 5))
    proposal, made = proposed(tmp_path)
    assert "2 of 25 records are unreadable, so quarantined (" in doubts(proposal)
    assert "not an object: 1" in doubts(proposal)
    assert made.limits.quarantined == 0.1
    assert made.limits.rejected == 0.24
    assert "5 of 25 records have no usable text: the limit is raised" in proposal.text


def test_a_field_that_a_record_gives_twice(tmp_path):
    lay(tmp_path, a_DOT_jsonl=jsonl(rows(9)) + b'{"id": "x", "id": "y", "n": 1, "n": 2, "text": "once upon a time"}\n')
    proposal, _ = proposed(tmp_path)
    assert "some records give id twice; they are quarantined" in doubts(proposal)


def test_an_id_that_was_not_taken_is_taken_away(tmp_path):
    """Else the manifest's own default would map the field of that name."""
    lay(tmp_path, a_DOT_jsonl=[{"id": "same", "text": prose(n)} for n in range(9)])
    _, made = proposed(tmp_path)
    assert dict(made.sources[tmp_path.name].fields) == {"text": "text"}


def test_code_and_prose_of_the_same_fields_are_two_sources(tmp_path):
    lay(tmp_path, a_DOT_jsonl=[{"text": prose(n), "lang": "en"} for n in range(9)])
    lay(tmp_path, b_DOT_jsonl=[{"text": f"x = {n}", "lang": "code:python"} for n in range(9)])
    _, made = proposed(tmp_path)
    assert {name: source.files for name, source in made.sources.items()} == {"a": ("a.jsonl",), "b": ("b.jsonl",)}


def test_other_endings_are_other_sources(tmp_path):
    lay(tmp_path, web_DOT_jsonl_DOT_gz=gzip.compress(jsonl(rows(5))), wiki_DOT_jsonl=rows(9, note=lambda n: n))
    _, made = proposed(tmp_path)
    assert {name: source.files for name, source in made.sources.items()} == {
        "web": ("web.jsonl.gz",),
        "wiki": ("wiki.jsonl",),
    }


# what cannot be read


def arrow(stream: bool) -> bytes:
    table = pa.table({"question": [f"What is {n} plus {n}?" for n in range(9)], "id": list(range(9))})
    out = io.BytesIO()
    with (pa.ipc.new_stream if stream else pa.ipc.new_file)(out, table.schema) as writer:
        writer.write_table(table)
    return out.getvalue()


def tar(name: str, data: bytes) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as file:
        info = tarfile.TarInfo(name)
        info.size = len(data)
        file.addfile(info, io.BytesIO(data))
    return out.getvalue()


def zipped(name: str, data: bytes) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as file:
        file.writestr(name, data)
    return out.getvalue()


SQUAD = {"data": [{"paragraphs": [{"context": prose(n), "qas": [{"id": f"q{n}", "question": f"Who is {n} and what?"}]}]}
                  for n in range(4)]}  # fmt: skip
UNREADABLE = {
    "a JSON array": (
        "a.json",
        json.dumps(rows(5)).encode(),
        "a JSON array; convert it to JSON lines",
        "text text, id id",
    ),
    "an array over lines": (
        "a.json",
        json.dumps(rows(5), indent=1).encode(),
        "a JSON array",
        "in its objects: text text",
    ),
    "an object over lines": (
        "a.json",
        json.dumps({"x": rows(5)}, indent=1).encode(),
        "one JSON object over",
        "in x[]: text",
    ),
    "one object": (
        "a.json",
        json.dumps(SQUAD).encode(),
        "one JSON object that holds all",
        "data[].paragraphs[]: text context",
    ),
    "questions in it": ("a.json", json.dumps(SQUAD).encode(), "JSON object", "qas[]: text question, id id"),
    "a record over lines": (
        "a.json",
        json.dumps(rows(1)[0], indent=1).encode(),
        "over several lines",
        "text text, id id",
    ),
    "an Arrow stream": ("a.arrow", arrow(True), "an Arrow stream; convert it to Parquet", "text question, id id"),
    "an Arrow file": ("a.arrow", arrow(False), "an Arrow file", "text question, id id"),
    "Arrow in gzip": ("a.arrow.gz", gzip.compress(arrow(True)), "an Arrow stream", "text question"),
    "tar": (
        "a.tar.gz",
        tar("x.json", json.dumps(rows(5)).encode()),
        "a tar archive; unpack it",
        "x.json is a JSON document",
    ),
    "tar of CSV": (
        "a.tar.gz",
        tar("d/x.csv", b"Question,Answer\nWhat is it then and why?,A\n"),
        "tar",
        "text Question",
    ),
    "tar of Arrow": (
        "a.tar.gz",
        tar("x.arrow", arrow(True)),
        "a tar archive",
        "x.arrow is Arrow: in its rows: text question",
    ),
    "zip": ("a.zip", zipped("x.jsonl", jsonl(rows(3))), "a zip archive; unpack it", "x.jsonl has text text, id id"),
    "UTF-16": (
        "a.jsonl",
        json.dumps(rows(1)[0]).encode("utf-16"),
        "UTF-16LE, and no UTF-8",
        "iconv -f UTF-16LE -t UTF-8",
    ),
    "UTF-16 in CSV": ("a.csv", "a,b\n1,2\n".encode("utf-16"), "UTF-16LE", "iconv"),
    "a table without a header": (
        "a.tsv",
        f"{prose(1)}\t12\n".encode(),
        "without a line of column names",
        "column 1 would be",
    ),
    "WARC": ("a.warc.gz", gzip.compress(b"WARC/1.0\r\n"), "WARC; extract", ""),
    "a picture": ("a.jsonl", b"\x89PNG\r\n\x1a\n\0\0", "a picture", ""),
    "gzip without its suffix": ("a.jsonl", gzip.compress(b"{}"), "gzip, and its name does not end so; rename it", ""),
    "no gzip": ("a.jsonl.gz", b'{"text": "x"}\n', "no whole gzip file", ""),
    "nothing in gzip": ("a.jsonl.gz", b"", "an empty file", ""),
    "truncated at once": ("a.jsonl.gz", gzip.compress(jsonl(rows(1)))[:30], "truncated", "get it again"),
    "no Parquet": ("a.parquet", b"PAR1 and then nothing", "damaged", "get it again"),
    "Parquet by another name": ("a.bin", b"PAR1xxxx", "Parquet, and its name", "rename"),
    "no JSON": ("a.jsonl", b"once upon\na time\n", "no JSON lines (not JSON", ""),
    "no text": ("a.jsonl", jsonl([{"n": 1}, {"n": 2}]), "no field that could be the text", "its fields: n"),
    "Latin-1": ("a.txt", "café".encode("latin-1"), "text in another encoding (not UTF-8)", "convert it to UTF-8"),
}


@pytest.mark.parametrize("name, data, form, said", UNREADABLE.values(), ids=UNREADABLE)
def test_forms_that_are_no_source(name, data, form, said, tmp_path):
    lay(tmp_path, **{name.replace(".", "_DOT_"): data})
    with pytest.raises(DataError) as error:
        propose([tmp_path / name])
    assert form in str(error.value)
    assert said in str(error.value)
    # beside a file that can be read it is left out, and the manifest says why
    lay(tmp_path, good_DOT_jsonl=rows())
    proposal, made = proposed(tmp_path, tmp_path)
    assert [path.name for source in proposal.sources for path in source.files] == ["good.jsonl"]
    assert made.name


def test_a_damaged_file_keeps_its_whole_records(tmp_path):
    records = [{"id": f"{n}", "text": os.urandom(300).hex()} for n in range(2000)]
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress(jsonl(records))[:-40_000])
    proposal, _ = proposed(tmp_path)
    assert "a.jsonl.gz is damaged (truncated): get it again, or add `tolerant: true`" in doubts(proposal)


# which files


def test_files_of_other_fields_are_other_sources(tmp_path):
    web = rows(20, url=lambda n: f"u{n}")
    lay(tmp_path, web_0_DOT_jsonl=web, web_1_DOT_jsonl=web[:5], poems_DOT_jsonl=[{"body": prose(n)} for n in range(9)])
    proposal, made = proposed(tmp_path)
    assert {name: source.files for name, source in made.sources.items()} == {
        "poems": ("poems.jsonl",),
        tmp_path.name: ("web_*.jsonl",),
    }
    assert "its files differ in fields, endings or kind, so they are several sources" in doubts(proposal)


def test_what_cannot_be_read_is_excluded(tmp_path):
    lay(tmp_path, a_DOT_jsonl=rows(3), b_DOT_jsonl=rows(6)[3:], c_DOT_jsonl="{}".encode("utf-16"))
    _, made = proposed(tmp_path)
    (source,) = made.sources.values()
    assert source.files == ("*.jsonl",)
    assert source.exclude == ("c.jsonl",)


def test_folders_below(tmp_path):
    lay(
        tmp_path,
        web__a_DOT_jsonl=rows(5, url=lambda n: f"u{n}"),
        code__x_DOT_jsonl=[{"content": "x = 1\n" * 9, "path": "a.py"}] * 3,
    )
    _, made = proposed(tmp_path)
    assert {name: source.files for name, source in made.sources.items()} == {
        "code": ("code/x.jsonl",), "web": ("web/a.jsonl",)
    }  # fmt: skip
    parts = tmp_path / "parts"
    for n in range(3):
        lay(parts, **{f"lang=l{n}__a_DOT_jsonl": [row | {"id": f"{n}-{row['id']}"} for row in rows(3 + n)]})
    _, made = proposed(tmp_path, parts)
    assert made.sources["parts"].files == ("parts/**/*.jsonl",)


def test_a_copy_below_is_left_out(tmp_path):
    lay(tmp_path, a_DOT_jsonl=rows(), old__b_DOT_jsonl=rows(10))
    proposal, made = proposed(tmp_path)
    assert list(made.sources) == [tmp_path.name]
    assert "old: left out, for all 10 records looked at lie in" in doubts(proposal)


def test_named_files_and_patterns(tmp_path):
    lay(
        tmp_path,
        d__part_0_DOT_jsonl=rows(3),
        d__part_1_DOT_jsonl=rows(5)[3:],
        d__other_DOT_jsonl=rows(9, n=lambda n: n),
        d__x_DOT_csv=b"text\na b c\n",
    )
    d = tmp_path / "d"
    _, made = proposed(tmp_path, d / "part_0.jsonl", d / "part_1.jsonl", d / "other.jsonl")
    assert {name: source.files for name, source in made.sources.items()} == {
        "part": ("d/part_*.jsonl",), "other": ("d/other.jsonl",)
    }  # fmt: skip
    _, made = proposed(tmp_path, f"{d}/part_?.jsonl")
    assert {name: source.files for name, source in made.sources.items()} == {"d": ("d/part_?.jsonl",)}


ODD = [
    "no",
    "2024",
    "a b",
    "a: b",
    "#x",
    "[1]",
    "a[b].c",
    "é",
    "文",
    "'q\"",
    "~",
    "${HOME}",
    "-",
    "{a}",
    "a,b",
    "&x",
    "*",
    "!t",
]


@pytest.mark.parametrize("name", ODD)
def test_odd_names_of_files_and_folders(name, tmp_path):
    lay(tmp_path / name, **{f"{name}_DOT_jsonl": rows(3), f"{name}2_DOT_jsonl": rows(6)[3:]})
    proposed(tmp_path / name)
    proposed(tmp_path)  # the folder of the manifest is above
    proposed(tmp_path / name, tmp_path / name / f"{name}.jsonl")
    lay(tmp_path / name, **{f"{name}3_DOT_jsonl": "{}".encode("utf-16")})
    _, made = proposed(tmp_path)
    # where a file is called *.jsonl no pattern means just that, and the files are listed
    assert [len(source.exclude) for source in made.sources.values()] == [0 if name == "*" else 1]


def test_relative_to_the_manifest(tmp_path, monkeypatch):
    lay(tmp_path, data__a_DOT_jsonl=rows(3), data__b_DOT_jsonl=rows(6)[3:], manifests__x=b"")
    monkeypatch.chdir(tmp_path)
    assert "files: [data/*.jsonl]" in propose(["data"]).text
    assert "files: [../data/*.jsonl]" in propose(["data"], folder=tmp_path / "manifests").text
    assert 'files: ["../data/?.jsonl"]' in propose(["data/?.jsonl"], folder=tmp_path / "manifests").text
    assert f"files: [{write.scalar(str(tmp_path))[:5]}" in propose(["data"], folder=Path("/proc")).text


def test_many_files_are_not_all_read(tmp_path, monkeypatch):
    monkeypatch.setattr("datapipe.propose.sources.FILES", 5)
    lay(tmp_path, **{f"a{n:03d}_DOT_jsonl": [{"id": f"{n}", "text": prose(n)}] for n in range(40)})
    proposal, made = proposed(tmp_path)
    assert made.sources[tmp_path.name].files == ("*.jsonl",)
    assert "5 of 40 files were looked at" in doubts(proposal)
    assert "40 files of jsonl" in proposal.text


# bounds of reading


@pytest.mark.parametrize("ending", ["", ".gz"])
def test_reading_is_bounded(ending, tmp_path, monkeypatch):
    monkeypatch.setattr(sample, "ONE", {"gzip": 100_000})
    monkeypatch.setattr(sample, "TEXT", 200_000)
    monkeypatch.setattr(sample, "PIECE", 10_000)
    records = rows(20_000, late=lambda n: "yes" if n > 15_000 else None)
    data = jsonl([{k: v for k, v in record.items() if v is not None} for record in records])
    path = tmp_path / f"a.jsonl{ending}"
    path.write_bytes(gzip.compress(data, 1) if ending else data)
    read = 0
    expanded = sample.Expanded.__iter__

    def counted(self):
        nonlocal read
        for chunk in expanded(self):
            read += len(chunk)
            yield chunk

    monkeypatch.setattr(sample.Expanded, "__iter__", counted)
    found = sample.take(path, "auto")
    assert len(found.records) <= sample.RECORDS
    assert not found.whole
    assert not found.unreadable
    assert read < len(data) or not ending
    assert any("late" in record for record in found.records) == (
        not ending
    )  # plain files are entered at several places


@cache
def late() -> bytes:
    """JSON lines whose second half has a field more."""
    half = [{"id": f"e{n}", "text": prose(n), "late": "yes"} for n in range(1500)]
    return jsonl([*rows(1500), *half])


@pytest.mark.parametrize("ending", ["gz", "zst", "bz2", "xz"])
def test_a_compressed_file_is_looked_at_all_over(ending, tmp_path, monkeypatch):
    monkeypatch.setattr(sample, "PIECE", 20_000)
    path = tmp_path / f"a.jsonl.{ending}"
    path.write_bytes(compressed(late())[ending])
    found = sample.take(path, "auto")
    assert 0.4 < sum("late" in record for record in found.records) / len(found.records) < 0.6
    assert (found.whole, found.first) == (False, None)
    assert len(found.records) > 150
    assert found.records[0]["id"] == "d0"
    assert "it stands for the beginning alone" not in propose([path], folder=tmp_path).text


def test_a_small_compressed_file_is_seen_whole(tmp_path):
    lay(tmp_path, a_DOT_jsonl_DOT_gz=gzip.compress(jsonl(rows(40))))
    found = sample.take(tmp_path / "a.jsonl.gz", "auto")
    assert (len(found.records), found.whole, found.first, found.damage) == (40, True, None, None)


@pytest.mark.parametrize("bound", ["ONE", "ALL", "EXPANDED"])
def test_it_is_said_where_only_the_beginning_was_looked_at(bound, tmp_path, monkeypatch):
    """A file that would take too long to expand, one among many, and one that expands to more than is looked at."""
    monkeypatch.setattr(sample, "PIECE", 20_000)
    monkeypatch.setattr(sample, "TEXT", 100_000)
    data = gzip.compress(late())
    limit = {"ONE": {"gzip": len(data) - 1}, "ALL": {"gzip": len(data) * 2 - 1}, "EXPANDED": 100_000}[bound]
    monkeypatch.setattr(sample, bound, limit)
    (tmp_path / "a.jsonl.gz").write_bytes(data)
    (tmp_path / "b.jsonl.gz").write_bytes(gzip.compress(jsonl(rows(50))))
    found = sample.take(tmp_path / "a.jsonl.gz", "auto", among=2)
    assert not any("late" in record for record in found.records)
    assert 100 < (found.first or 0) < 400
    assert found.first == len(found.records)
    proposal, _ = proposed(tmp_path)
    text = " ".join(line.strip(" #") for line in proposal.text.splitlines())
    assert f"records from the first {found.first:,}, 1 of 2 files: it stands for the beginning alone" in text


def test_a_long_csv_is_looked_at_from_its_beginning(tmp_path, monkeypatch):
    monkeypatch.setattr(sample, "PIECE", 10_000)
    monkeypatch.setattr(sample, "TEXT", 40_000)
    body = "".join(f'd{n},"{prose(n)}"\n' for n in range(500))
    (tmp_path / "a.csv").write_text("id,text\n" + body)
    found = sample.take(tmp_path / "a.csv", "auto")
    assert found.first is not None
    assert len(found.records) <= found.first < 200
    proposal, _ = proposed(tmp_path)
    assert f"from the first {found.first}: it stands for the beginning alone" in proposal.text


@pytest.mark.parametrize("ending", ["", ".gz"])
def test_a_line_longer_than_the_bound(ending, tmp_path, monkeypatch):
    monkeypatch.setattr(sample, "TEXT", 100_000)
    monkeypatch.setattr(sample, "PIECE", 50_000)
    data = jsonl(rows(3)) + b'{"id": "x", "text": "' + os.urandom(1_500_000).hex().encode() + b'"}\n'
    path = tmp_path / f"a.jsonl{ending}"
    path.write_bytes(gzip.compress(data) if ending else data)
    longest = 0
    blocks = sample.blocks

    def measured(chunks, *args, **more):
        nonlocal longest
        for block in blocks(chunks, *args, **more):
            longest = max(longest, len(block.data))
            yield block

    monkeypatch.setattr(sample, "blocks", measured)
    found = look(path, 1000)
    assert not isinstance(found, Unreadable)
    assert len(found.records) == 3
    assert not found.whole
    assert longest < 600_000 or not ending


def test_neighbours_are_looked_at():
    """Four requests for each question lie side by side: a sample of single lines would take their number for an id."""
    some = sample.runs(range(4000), 1000)
    assert len({n // 4 for n in some}) < 500
    assert some[0] == 0
    assert max(some) > 3900


# presets and stages


def filters(made: Manifest) -> list[tuple[str | None, tuple[str, ...], tuple[str, ...]]]:
    found = [stage for stage in made.stages if stage.stage == "filter"]
    return [(stage.preset, stage.only.source, stage.only.lang) for stage in found if stage.only]


def python(n: int) -> str:
    return f"def function_{n}(first, second):\n    return first * {n} + second\n\n" * 12


PRESETS = {
    "English web": (
        rows(url=lambda n: f"u{n}", lang=lambda n: "en"),
        [("gopher_quality", ()), ("gopher_repetition", ())],
    ),
    "mostly English web": (
        rows(url=lambda n: f"u{n}", lang=lambda n: "en" if n % 3 else "de"),
        [("gopher_quality", ()), ("gopher_repetition", ()), ("quality_units", ("de",))],
    ),
    "English, no web": (rows(lang=lambda n: "en"), [("quality_units", ())]),
    "German web": (rows(url=lambda n: f"u{n}", lang=lambda n: "de"), [("quality_units", ())]),
    "web of no named language": (rows(url=lambda n: f"u{n}"), [("quality_units", ())]),
    "code by language": ([{"text": python(n), "lang": "code:python"} for n in range(9)], [("code", ())]),
    "code by name of language": ([{"content": python(n), "lang": "Python"} for n in range(9)], [("code", ())]),
    "code by path": ([{"content": python(n), "path": f"a/b{n}.py"} for n in range(9)], [("code", ())]),
    "code and prose": (
        [{"text": python(n), "lang": "c" if n % 3 else "en"} for n in range(9)],
        [("code", ("c",)), ("quality_units", ("en",))],
    ),
    "short texts": ([{"text": f"line {n}"} for n in range(9)], []),
    "Chinese": (
        [{"text": "春眠不覺曉處處聞啼鳥夜來風雨聲花落知多少" + str(n)} for n in range(9)],
        [("quality_units", ())],
    ),
}


@pytest.mark.parametrize("records, expected", PRESETS.values(), ids=PRESETS)
def test_presets(records, expected, tmp_path):
    lay(tmp_path, s_DOT_jsonl=records)
    proposal, made = proposed(tmp_path, tmp_path / "s.jsonl")
    assert filters(made) == [(preset, ("s",), langs) for preset, langs in expected]
    assert [stage.stage for stage in made.stages][-3:] == ["holdout", "exact_dedup", "near_dedup"]
    code = bool(expected) and expected[0][0] == "code"
    assert made.sources["s"].edits == (() if code else ("nfc", "strip_control", "fix_newlines"))
    if not expected:
        assert "100 % of the texts have fewer than 12 words or signs" in proposal.text


def test_scripts_are_told_and_no_language_is_guessed(tmp_path):
    lay(tmp_path, s_DOT_jsonl=[{"text": "речь о " + prose(n, 1)} for n in range(30)])
    proposal, made = proposed(tmp_path)
    assert "% of the letters are not Latin" in doubts(proposal)
    assert "lang" not in made.sources[tmp_path.name].fields


def test_holdout_by_group(tmp_path):
    lay(
        tmp_path,
        a__a_DOT_jsonl=rows(60, family=lambda n: f"f{n // 3}"),
        b__b_DOT_jsonl=[{"body": prose(n)} for n in range(9)],
    )
    for folder, by in ((tmp_path / "a", "group"), (tmp_path, None)):
        _, made = proposed(tmp_path, folder)
        (holdout,) = [stage for stage in made.stages if stage.stage == "holdout"]
        assert holdout.by == by


# YAML


def from_yaml(text: str) -> object:
    return tree.parse(f"a: [{text}, x]\n{text}: {text}\n").values


@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1))
def test_any_text_survives_as_a_scalar(text):
    bare = write.scalar(text)
    if text != "a":
        assert from_yaml(bare) == {"a": [text, "x"], text: text}


PLAIN = ("text", "raw_content", "meta.lang", "data/web/*.jsonl.zst", "../a/b", "/abs/x", "zh-Hant", "_id")
QUOTED = (
    "no",
    "True",
    "null",
    "2024",
    "1e3",
    "",
    "a: b",
    "*.jsonl",
    "code:c",
    "- x",
    "a b",
    "~",
    ".5",
    "é",
    "<<",
    "=",
    "0x1f",
)


def test_what_is_bare():
    assert [write.scalar(text) for text in PLAIN] == list(PLAIN)
    assert all(write.scalar(text).startswith('"') for text in QUOTED)


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]), min_size=1), min_size=3, max_size=3, unique=True))
def test_any_name_of_a_field_survives(names):
    """As the columns of CSV, in which a name may hold anything; the text is the one with long texts."""
    text, *others = names
    table = {text: [prose(n) for n in range(5)]} | {name: [f"{n}" for n in range(5)] for name in others}
    choice = choose([dict(zip(table, row, strict=True)) for row in zip(*table.values(), strict=True)])
    if choice is None or choice.text != text:
        return  # the name says something else, such as url
    pairs = ", ".join(f"{ours}: {write.scalar(theirs)}" for ours, theirs in choice.fields.items())
    yaml = f"name: x\nsources:\n  s:\n    files: [a]\n    fields: {{{pairs}}}\n"
    made = manifests.parse(yaml)
    assert made.sources["s"].fields["text"] == text
    assert set(choice.fields.items()) <= set(made.sources["s"].fields.items())


@pytest.mark.parametrize(
    "name", ["no", "2024", "a: b", "te\nxt", "\u2028", "\x85text", "{x}", "'", '"', "#", "text #1", "\U0001f600 text"]
)
def test_odd_names_of_fields(name, tmp_path):
    lay(tmp_path, a_DOT_jsonl=[{name: prose(n), "k\n#": n} for n in range(5)])
    _, made = proposed(tmp_path)
    assert made.sources[tmp_path.name].fields["text"] == name


def test_names_that_no_manifest_can_say(tmp_path):
    lay(tmp_path, a_DOT_jsonl=[{"text": prose(n), "a.b": 1, "": 2} for n in range(5)])
    proposal, _ = proposed(tmp_path)
    assert 'names that a manifest cannot say: "", "a.b"' in doubts(proposal)


# the command


def run(capsys, *args: object) -> tuple[int, str, str]:
    status = cli.run(["init", *map(str, args)])
    said = capsys.readouterr()
    return status, said.out, said.err


def test_stdout_is_the_manifest(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(lay(tmp_path, a_DOT_jsonl=rows(30, date=lambda n: day(n) if n % 2 else None)))
    status, out, err = run(capsys, "a.jsonl", "--name", "My Set")
    assert status == 0
    assert manifests.parse(out).name == "my-set"
    assert "not sure: a: date: date is missing or null in 50 %" in err
    assert run(capsys, "a.jsonl", "--name", "My Set") == (status, out, err)


def test_out_is_not_overwritten(capsys, tmp_path):
    lay(tmp_path, a_DOT_jsonl=rows())
    out = tmp_path / "m.yaml"
    assert run(capsys, tmp_path, "--out", out)[:2] == (0, "")
    assert manifests.load(out).sources[tmp_path.name].files == ("a.jsonl",)
    out.write_text("mine")
    status, _, err = run(capsys, tmp_path / "a.jsonl", "--out", out)
    assert (status, out.read_text()) == (2, "mine")
    assert "--force" in err
    assert run(capsys, tmp_path / "a.jsonl", "--out", out, "--force")[0] == 0
    assert manifests.load(out).name == "a"
    assert run(capsys, tmp_path / "a.jsonl", "--out", tmp_path / "none" / "m.yaml")[0] == 2


def test_json(capsys, tmp_path):
    lay(tmp_path, a_DOT_jsonl=rows())
    status, out, _ = run(capsys, tmp_path / "a.jsonl", "--json")
    said = json.loads(out)
    assert status == 0
    assert said["sources"]["a"]["fields"] == {"text": "text", "id": "id"}
    assert manifests.parse(said["manifest"]).name == said["name"] == "a"


@pytest.mark.parametrize("paths", [["nothing.jsonl"], ["empty"], ["*.jsonl"], ["a.json"]])
def test_nothing_to_read(paths, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(lay(tmp_path, a_DOT_json=b"[]"))
    (tmp_path / "empty").mkdir()
    status, out, err = run(capsys, *paths)
    assert (status, out) == (3, "")
    assert err.startswith("error: ")
    assert "Traceback" not in err


# and it builds


def build(proposal: Proposal, folder: Path) -> Built:
    made = load(proposal, folder)
    assert isinstance(pipeline.build(made, workers=1, memory=500_000_000, dry_run=True), DryRun)
    built = pipeline.build(made, workers=1, memory=500_000_000)
    assert isinstance(built, Built)
    return built


def test_the_proposal_builds(tmp_path):
    lay(
        tmp_path,
        web__a_DOT_jsonl=rows(30, url=lambda n: f"u{n}", lang=lambda n: "en"),
        code__x_DOT_py=python(1).encode(),
    )
    lay(tmp_path, code__y_DOT_py=python(2).encode(), bad__b_DOT_jsonl=rows(12) + [{"text": 1}] * 20)
    paths = [tmp_path / name for name in ("web", "code", "bad")]
    build(propose(paths, folder=tmp_path), tmp_path)


CASES = {"B02": (12, {"text": "text", "id": "id"}), "B06": (24, {"text": "text", "id": "id"}),
         "B50": (11, {"text": "text", "id": "id", "date": "crawl_time", "snapshot": "snapshot"})}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_cases(case, shared, tmp_path):
    records, fields = CASES[case]
    proposal = propose([shared / "cases" / case], folder=tmp_path)
    (source,) = proposal.sources
    assert source.choice.fields == fields
    assert sum(one.looked for one in source.samples) == records
    assert source.choice.key == ("url" if case == "B50" else None)
    if case == "B02":
        assert "utf16.jsonl: is UTF-16LE, and no UTF-8" in doubts(proposal)
    build(proposal, tmp_path)


# real files: corpus and evaluation sets, path -> (text, id, date); None: a form that is no source, and what it would be

ID = {"text": "question", "id": "id"}
CORPUS = {
    "books": "date", "chinese": "date", "code": "date", "debian_docs": None, "debian_meta": None, "manpages": None,
    "qa_mail": "date", "specs": "date", "web": "date", "web_html": None,
}  # fmt: skip
EVALS = {
    "agieval": {"text": "question"},
    "aqua_rat": {"text": "question"},
    "arc_challenge": {"text": "doc.query"},  # four requests a question: nothing in it names a record
    "arc_easy": {"text": "doc.query"},
    "bbh": "boolean_expressions.json is a JSON document: in examples[]: text input",
    "boolq": "parquet.write_table); in its rows: text question",
    "cmmlu": "dev/agronomy.csv has text Question",
    "cmrc2018": "in data[].paragraphs[]: text context, id id; in data[].paragraphs[].qas[]: text question, id id",
    "commonsenseqa": "in its rows: text question, id id",
    "copa": "in its rows: text premise, id idx",
    "drcd": "data[].paragraphs[]: text context, id id; in data[].paragraphs[].qas[]: text question, id id",
    "drop_dev_1k": {"text": "doc.query", "id": "doc_id"},
    "gaokao_bench": "in example[]: text question, id index, date year",
    "gsm8k": {"text": "question"},
    "hellaswag": {"text": "doc.query"},
    "humaneval": {"text": "prompt", "id": "task_id"},
    "lambada": {"text": "doc.query", "id": "doc_id"},
    "logiqa": {"text": "text"},  # blocks of lines: the file is the document
    "logiqa2": {"text": "text"},
    "math500": {"text": "doc.query", "id": "doc_id"},
    "mbpp": {"text": "text", "id": "task_id"},
    "mgsm": "a table without a line of column names; put one before the first record, 2 names; column 1",
    "mmlu": "abstract_algebra.dev.arrow is Arrow: in its rows: text question",
    "nq_open": "in its rows: text question",
    "piqa": "in its rows: text goal",
    "sciq": "in its rows: text question",
    "socialiqa": "in its rows: text context",
    "squad_dev_1k": {"text": "doc.query", "id": "doc_id"},
    "truthfulqa": {"text": "Question"},
    "winogrande": "in its rows: text sentence",
    "xcopa": {"text": "premise"},
    "xquad": "in data[].paragraphs[]: text context; in data[].paragraphs[].qas[]: text question, id id",
}
MARKED = {"gaokao_bench": {"date": "meta.year"}, "socialiqa": {"text": "passage"}}


@pytest.mark.parametrize("name, date", CORPUS.items(), ids=CORPUS)
def test_corpus(name, date, shared, tmp_path):
    (source,) = propose([shared / "data" / "corpus" / f"{name}.jsonl.zst"], folder=tmp_path).sources
    assert [source.choice.fields.get(ours) for ours in ("text", "id", "date", "lang")] == ["text", "id", date, "lang"]
    assert source.texts.kind == ("code" if name == "code" else "other")


def test_every_corpus_file_and_evaluation_set_is_in_a_table(shared):
    data = shared / "data"
    assert {path.name.partition(".")[0] for path in (data / "corpus").glob("*.zst")} == set(CORPUS)
    assert {path.name for path in (data / "evals").iterdir() if path.is_dir()} == set(EVALS)


@pytest.mark.parametrize("name, expected", EVALS.items(), ids=EVALS)
def test_evaluation_sets_as_they_were_published(name, expected, shared, tmp_path):
    folder = shared / "data" / "evals" / name / "original"
    if isinstance(expected, str):
        with pytest.raises(DataError) as error:
            propose([folder], folder=tmp_path)
        assert expected in str(error.value)
        return
    proposal = propose([folder], folder=tmp_path)
    load(proposal, tmp_path)
    for source in proposal.sources:
        fields = {ours: theirs for ours, theirs in source.choice.fields.items() if ours in ("text", "id", "date")}
        if name == "logiqa2":
            fields.pop("id")
            assert source.format == "jsonl"
        assert fields == expected
    if name.startswith("arc"):
        assert "an Arrow stream; convert it to Parquet" in doubts(proposal)
        assert "in its rows: text question, id id" in doubts(proposal)


@pytest.mark.parametrize("name", EVALS)
def test_normalized_evaluation_sets(name, shared, tmp_path):
    proposal = propose([shared / "data" / "evals" / name / "normalized.jsonl.zst"], folder=tmp_path)
    (source,) = proposal.sources
    assert source.choice.fields == ID | {"lang": "lang"} | MARKED.get(name, {})
    assert "no field is called so" in doubts(proposal)
    load(proposal, tmp_path)
