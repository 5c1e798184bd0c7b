"""What is a document of the build: names, ranks, samples, snapshots."""

import gzip
import json

import pytest
from reading import lines, load, reading, reading_source

from datapipe import keyed
from datapipe.read import planning


def table(docs, columns: str, where: str = "true") -> list[tuple]:
    return docs.work.db.execute(f"select {columns} from documents where {where} order by doc").fetchall()


def hexed(uuid) -> str:
    return uuid.hex


def test_documents_are_ranked_by_doc_id_and_filled(tmp_path):
    (tmp_path / "a.jsonl").write_bytes(lines(*[{"id": str(n), "text": f"text {n}", "lang": "en"} for n in range(20)]))
    (tmp_path / "b.txt").write_text("of another source")
    sources = {"web": {"files": ["a.jsonl"], "fields": {"lang": "lang"}, "priority": 3}, "tree": {"files": ["b.txt"]}}
    with reading(load(tmp_path, sources)) as found:
        docs = found.admit()
        rows = table(
            docs, 'doc, doc_id, source, "group", lang, text_hash, bytes, priority, part, row, split, place, rule'
        )
        assert [row[0] for row in rows] == list(range(21))
        ids = [hexed(row[1]) for row in rows]
        assert ids == sorted(ids)
        by_id = {hexed(row[1]): row for row in rows}
        for n in range(20):
            text = f"text {n}".encode()
            row = by_id[keyed.doc_id("web", str(n), keyed.text_id(text), 0)]
            hash_ = keyed.text_id(text)
            assert (row[2], row[3], row[4], hexed(row[5]), row[6]) == ("web", hash_, "en", hash_, len(text))
            assert row[7:] == (3, 1, n, "train", None, None)
        assert docs.reports[0].dropped == {}
        assert (docs.reports[0].stage, docs.reports[0].place, docs.reports[0].left) == ("admit", 0, 21)


def test_the_group_is_the_group_field_or_the_key_or_the_text_hash(tmp_path):
    (tmp_path / "a.jsonl").write_bytes(lines({"text": "a", "g": "G", "u": 7}, {"text": "b", "u": 7.0}, {"text": "c"}))
    fields = {"group": "g", "date": "d"}
    with reading_source(tmp_path, ["a.jsonl"], fields=fields, extra=["u"], snapshot={"key": "u"}) as found:
        groups = _by_text(found, '"group"')
    assert groups == {"a": "G", "b": "7", "c": keyed.text_id(b"c")}


def _by_text(found, column: str) -> dict:
    docs = found.admit()
    texts = [row["text"] for row in found.documents]
    return {texts[row]: value for row, value in table(docs, f"row, {column}", "part = 0")}


def test_equal_records_are_told_apart_by_their_fields_and_counted(tmp_path):
    """n goes by the canonical JSON of all fields, over files and cut records; it is no matter where a record stands."""
    records = [{"id": "x", "text": "same", "lang": lang} for lang in ("c", "a", "d", "b", "a")]
    raw = keyed.text_id(b"same")
    # in order of fields: a, a, b, c, d are n = 0 to 4, and d is cut
    expected = {"a": {0, 1}, "b": {2}, "c": {3}}
    for at, order in enumerate((records, records[::-1])):
        folder = tmp_path / str(at)
        folder.mkdir()
        for number, record in enumerate(order):
            _append(folder / f"{number % 2}.jsonl", record)
        select = {"lang": {"max": "c"}}
        with reading_source(folder, ["*.jsonl"], fields={"lang": "lang"}, select=select) as found:
            docs = found.admit()
            names = {(lang, hexed(doc)) for lang, doc in table(docs, "lang, doc_id")}
            assert names == {(lang, keyed.doc_id("s", "x", raw, n)) for lang, ns in expected.items() for n in ns}
            assert sum(book["repeated"] for book in found.result.inputs) == 3
            assert sum(book["cut"].get("select: lang", 0) for book in found.result.inputs) == 1


def _append(path, record) -> None:
    with open(path, "ab") as file:
        file.write(lines(record))


def test_the_first_n_may_belong_to_a_record_that_is_cut(tmp_path):
    (tmp_path / "a.jsonl").write_bytes(lines({"text": "t", "k": "b"}, {"text": "t", "k": "a"}))
    with reading_source(tmp_path, ["a.jsonl"], extra=["k"], select={"k": {"in": ["b"]}}) as found:
        docs = found.admit()
        assert [hexed(doc) for (doc,) in table(docs, "doc_id")] == [keyed.doc_id("s", None, keyed.text_id(b"t"), 1)]


@pytest.fixture
def sampled_folder(tmp_path, monkeypatch):
    """Three hundred documents and five repeated ones in small parts."""
    monkeypatch.setattr(planning, "RANGE", 3000)
    records = [{"id": str(n), "text": f"text {n} " + "w " * 20} for n in range(300)]
    (tmp_path / "a.jsonl").write_bytes(lines(*records[:200]))
    (tmp_path / "b.jsonl.gz").write_bytes(gzip.compress(lines(*records[200:], *records[:5])))
    return tmp_path


def test_a_sample_without_key_is_drawn_by_doc_id_and_leaves_no_row(sampled_folder):
    source = {"files": ["*.jsonl*"], "sample": 0.3}
    with reading(load(sampled_folder, {"s": source | {"sample": 1.0}}, output="all")) as found:
        every = {hexed(doc) for (doc,) in table(found.admit(), "doc_id")}
    chosen = {doc for doc in every if keyed.keyed("sample", None, doc) < keyed.bound(0.3)}
    assert 50 < len(chosen) < 130
    with reading(load(sampled_folder, {"s": source})) as found:
        before = found.result.parts
        docs = found.admit()
        assert {hexed(doc) for (doc,) in table(docs, "doc_id")} == chosen
        assert sum(book["cut"].get("sample", 0) for book in found.result.inputs) == len(every) - len(chosen)
        assert sum(book["rows"] for book in found.result.inputs) == len(chosen)
        assert [part.number for part in docs.parts] == list(range(len(docs.parts)))
        assert sum(part.rows for part in docs.parts) == len(chosen)
        _check_rows(docs)
        keys = [part.done.key for part in docs.parts]
        assert not set(keys) & {part.done.key for part in before}
    with reading(load(sampled_folder, {"s": source}), workers=2) as found:
        assert [part.done.key for part in found.admit().parts] == keys
        assert found.work.store.ran == {}


def _check_rows(docs) -> None:
    """(part, row) of the table leads to the text of that document."""
    for part in docs.parts:
        rows, _ = docs.alive(part)
        names = dict(docs.work.db.execute("select row, doc_id from documents where part = ?", [part.number]).fetchall())
        assert rows.tolist() == list(range(part.rows))
        for here, found in part.batches(["source", "id", "raw_hash"]):
            for row, record in zip(here.tolist(), found.to_pylist(), strict=True):
                ids = {keyed.doc_id(record["source"], record["id"], record["raw_hash"], n) for n in (0, 1)}
                assert hexed(names[row]) in ids


def test_a_sample_that_empties_a_part_takes_it_away(tmp_path):
    (tmp_path / "a.jsonl").write_bytes(lines(*[{"text": f"t{n}"} for n in range(3)]))
    (tmp_path / "b.jsonl").write_bytes(lines(*[{"text": f"b{n}"} for n in range(3)]))
    sources = {"few": {"files": ["a.jsonl"], "sample": 1e-9}, "rest": {"files": ["b.jsonl"]}}
    with reading(load(tmp_path, sources)) as found:
        docs = found.admit()
        assert [(part.number, part.source) for part in docs.parts] == [(0, "rest")]
        assert table(docs, "source, part") == [("rest", 0)] * 3


CAPTURES = [
    # url, date, version, id
    ("u1", "2024-02-10T00:30:00+02:00", None, "u1_a"),  # 22:30Z of the day before
    ("u1", "2024-02-09T23:45:00Z", None, "u1_b"),
    ("u2", "2024-05-01", "v1.9", "u2_a"),
    ("u2", "2024-05-01T00:00:00", "v1.10", "u2_b"),
    ("u3", None, None, "u3_a"),
    ("u3", "1999", None, "u3_b"),
    ("u3", "no date at all", None, "u3_c"),
    ("u4", "2030-01-01", None, "u4_a"),
    ("u4", "2024-01-01", None, "u4_b"),
    (None, "2024-01-01", None, "none_a"),
    (None, "2023-01-01", None, "none_b"),
]
NEWEST = {"u1_a": "older capture", "u2_a": "older capture", "u3_a": "no date", "u3_c": "no date"}
OLDEST = {"u1_b": "newer capture", "u2_b": "newer capture", "u3_a": "no date", "u3_c": "no date"}
RULES = [
    ({"key": "url"}, NEWEST | {"u4_b": "older capture"}),
    ({"key": "url", "keep": "oldest"}, OLDEST | {"u4_a": "newer capture"}),
    ({"key": "url", "as_of": "2024-12-31"}, NEWEST | {"u4_a": "after as_of"}),
    ({"as_of": "2024-02-09T23:00:00Z"}, dict.fromkeys(["u1_b", "u2_a", "u2_b", "u4_a"], "after as_of")),
    ({"as_of": "2024-05-01"}, {"u4_a": "after as_of"}),
]


@pytest.mark.parametrize("snapshot, dropped", RULES)
def test_snapshots_keep_one_capture_of_a_key(tmp_path, snapshot, dropped):
    keys = ("url", "date", "version", "id")
    records = [dict(zip(keys, row, strict=True)) | {"text": f"text {row[3]}"} for row in CAPTURES]
    seen = []
    for order in (records, records[::-1]):
        (tmp_path / "a.jsonl").write_bytes(lines(*order))
        fields = {"date": "date", "version": "version"}
        with reading_source(tmp_path, ["a.jsonl"], fields=fields, extra=["url"], snapshot=snapshot) as found:
            docs = found.admit()
            names = [row["id"] for row in found.documents]
            rules = {names[row]: rule for row, rule in table(docs, "row, rule") if rule}
            assert rules == dropped
            ids = {hexed(doc): names[row] for row, doc in table(docs, "row, doc_id")}
            ledger = docs.work.db.execute(
                "select d.row, l.rule, l.evidence from ledger l join documents d using (doc) where decides order by 1"
            ).fetchall()
            evidence = {names[row]: ids[json.loads(told)["kept"]] if told else None for row, _, told in ledger}
            seen.append(evidence)
            assert docs.count() == (11 - len(dropped), docs.count()[1])
    assert seen[0] == seen[1]
    assert all(kept is None or kept[:2] == name[:2] for name, kept in seen[0].items())


def test_a_tie_of_captures_is_decided_by_the_text(tmp_path):
    records = [{"id": i, "url": "u", "date": "2024", "text": f"text {i}"} for i in "abc"]
    hashes = {i: keyed.text_id(f"text {i}".encode()) for i in "abc"}
    for order in (records, records[::-1]):
        for keep, best in (
            ("newest", max(hashes, key=hashes.__getitem__)),
            ("oldest", min(hashes, key=hashes.__getitem__)),
        ):
            (tmp_path / "a.jsonl").write_bytes(lines(*order))
            snapshot = {"key": "url", "keep": keep}
            with reading_source(
                tmp_path, ["a.jsonl"], fields={"date": "date"}, extra=["url"], snapshot=snapshot
            ) as found:
                docs = found.admit()
                names = [row["id"] for row in found.documents]
                assert [names[row] for (row,) in table(docs, "row", "place is null")] == [best]


def test_peers_snapshots_in_mixed_notations(tmp_path, shared):
    """B50: the latest capture of a page by instant, the same whichever file holds which."""
    kept = []
    for folder in ("cases/B50", "cases/B50/swapped"):
        files = [str(shared / folder / "snap_*.jsonl")]
        fields = {"date": "crawl_time", "snapshot": "snapshot"}
        with reading_source(tmp_path, files, fields=fields, extra=["url"], snapshot={"key": "url"}) as found:
            docs = found.admit()
            names = [row["id"] for row in found.documents]
            kept.append({names[row] for (row,) in table(docs, "row", "place is null")})
            assert docs.reports[0].dropped == {"older capture": 5, "no date": 1}
            assert sum(book["records"] for book in found.result.inputs) == 11
    assert kept[0] == kept[1]
    assert kept[0] - {"u3_a", "u3_b"} == {"u1_c", "u2_b", "u4_a", "u5_b"}
    assert len(kept[0]) == 5


def test_a_build_without_a_document(tmp_path):
    (tmp_path / "a.jsonl").write_bytes(b"\n")
    with reading_source(tmp_path, ["a.jsonl"]) as found:
        docs = found.admit()
        assert (docs.parts, docs.count()) == ([], (0, 0))
