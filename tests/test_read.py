"""From files to parts: plans, units, formats, books, limits."""

import bz2
import gzip
import hashlib
import itertools
import json
import lzma
import os
import zlib
from datetime import UTC, date, datetime
from decimal import Decimal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard
from reading import lines, load, reading, reading_source, same_things

from datapipe import keyed, read, text
from datapipe.errors import DataError, DriftError, PolicyError
from datapipe.read import csv, parquet, part, planning, spec, streams

MANY = [{"id": f"d{n}", "text": f"document {n} " + "word " * (n % 30)} for n in range(150)]


SMALL = (
    (planning, "RANGE", 3000),
    (planning, "GROWTH", 60),  # these texts pack well
    (planning, "ROW_GROUPS", 4000),
    (part, "PART", 3000),
    (part, "ENOUGH", 300),
    (streams, "BLOCK", 700),
    (csv, "ROWS", 700),
    (parquet, "BATCH", 700),
)


@pytest.fixture
def small(monkeypatch):
    """Ranges, parts and blocks of a size that a test can fill."""
    shrink(monkeypatch)


def shrink(monkeypatch) -> None:
    for module, name, size in SMALL:
        monkeypatch.setattr(module, name, size)


def by_id(found) -> list[tuple]:
    return [(row["id"], row["text"], row["line"], row["offset"]) for row in found.documents]


# plans


def test_relative_paths_begin_below_the_deepest_common_folder(tmp_path):
    for name in ("a/x/1.jsonl", "a/x/2.jsonl", "a/y/deep/1.jsonl", "b/1.jsonl"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(lines({"text": name}))
    table = [
        (["a/x/*.jsonl"], ["1.jsonl", "2.jsonl"]),
        (["a/x/1.jsonl"], ["1.jsonl"]),
        (["a/x/1.jsonl", "a/y/**/*.jsonl"], ["x/1.jsonl", "y/deep/1.jsonl"]),
        (["a/*/1.jsonl"], ["x/1.jsonl"]),
        (["**/*.jsonl"], ["a/x/1.jsonl", "a/x/2.jsonl", "a/y/deep/1.jsonl", "b/1.jsonl"]),
        (["a/x/1.jsonl", "a/x/*"], ["1.jsonl", "2.jsonl"]),
    ]
    for files, relative in table:
        found = read.plan(load(tmp_path, {"s": {"files": files}}), workers=2)
        assert [one.relative for one in found.sources["s"]] == relative, files


def test_exclusions_and_names_with_brackets(tmp_path):
    for name in ("keep/a.txt", "draft/b.txt", "x/draft/c.txt", "x[1].txt", "draft.txt"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)

    def relative(**source):
        return [one.relative for one in read.plan(load(tmp_path, {"s": source}), workers=1).inputs]

    assert relative(files=["**/*.txt"], exclude=["**/draft/**"]) == ["draft.txt", "keep/a.txt", "x[1].txt"]
    assert relative(files=["**/*.txt"], exclude=["d*", "k?ep/[ab].txt", "x/**"]) == ["draft/b.txt", "x[1].txt"]
    assert relative(files=["x[1].txt"]) == ["x[1].txt"]


def test_a_pattern_without_a_file_is_an_error_that_names_source_and_pattern(tmp_path):
    (tmp_path / "a.txt").write_text("a")
    (tmp_path / "folder").mkdir()
    with pytest.raises(DataError, match=r"source s: 'b\*.txt' matches no file"):
        read.plan(load(tmp_path, {"s": {"files": ["a.txt", "b*.txt"]}}), workers=1)
    with pytest.raises(DataError, match=r"'folder' is a folder.*write folder/\*\*"):
        read.plan(load(tmp_path, {"s": {"files": ["folder"]}}), workers=1)
    with pytest.raises(DataError, match="matches no file"):
        read.plan(load(tmp_path, {"s": {"files": ["a.txt"], "exclude": ["*.txt"]}}), workers=1)


def test_pins_and_recipe_inputs_are_of_the_bytes(tmp_path):
    (tmp_path / "a.txt").write_bytes(b"abc")
    (tmp_path / "b.txt").write_bytes(b"")
    found = read.plan(load(tmp_path, {"s": {"files": ["*.txt"]}}), workers=2)
    a, b = hashlib.sha256(b"abc").hexdigest(), hashlib.sha256(b"").hexdigest()
    assert found.recipe_inputs == {"s": [["a.txt", a], ["b.txt", b]]}
    told = "".join(sorted([f"{a}  3  a.txt\n", f"{b}  0  b.txt\n"]))
    assert found.pins == {"s": hashlib.sha256(told.encode()).hexdigest()}
    assert found.bytes == 3
    pinned = {"files": ["*.txt"], "pin": found.pins["s"]}
    assert read.plan(load(tmp_path, {"s": pinned}), workers=1).pins == found.pins
    (tmp_path / "a.txt").write_bytes(b"abd")
    with pytest.raises(DriftError, match=f"source s: .*pin is {found.pins['s']}"):
        read.plan(load(tmp_path, {"s": pinned}), workers=1)


def test_a_file_that_changes_after_planning_is_told(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_bytes(lines({"text": "a"}))
    manifest = load(tmp_path, {"s": {"files": ["*.jsonl"]}})
    planned = read.plan(manifest, workers=1)
    os.utime(path, ns=(1, 1))
    with read_work(manifest) as work, pytest.raises(DriftError, match=r"a.jsonl: was changed"):
        read.run(planned, manifest, work)
    path.unlink()
    with read_work(manifest) as work, pytest.raises(DriftError, match=r"a.jsonl: is gone"):
        read.run(planned, manifest, work)


def read_work(manifest):
    from datapipe.documents import Work

    return Work(manifest.output, manifest.name)


# units


def test_ranges_of_a_plain_file_give_what_the_whole_gives(tmp_path, small, monkeypatch):
    data = lines(*MANY[:100], b"", b"broken", {"id": "n"}, *MANY[100:], {"id": "long", "text": "x" * 9000})[:-1]
    (tmp_path / "a.jsonl").write_bytes(data)
    cut = {}
    for size in (3000, 777, 10**9):
        monkeypatch.setattr(planning, "RANGE", size)
        with reading_source(tmp_path, ["a.jsonl"], workers=2) as found:
            book = dict(found.book)
            cut[size] = (by_id(found), book, found.refused("rejected"), found.refused("quarantine"))
            assert len(found.result.plan.units) == max(1, len(data) // size)
    assert cut[3000] == cut[777] == cut[10**9]
    assert cut[777][1]["records"] == 154
    for name, _, line, offset in cut[777][0]:
        assert json.loads(data.split(b"\n")[line - 1])["id"] == name
        assert data[offset:].startswith(b'{"id": "' + name.encode())


@pytest.mark.parametrize("codec", ["gz", "zst"])
def test_members_that_end_inside_lines_are_units_that_give_the_same(tmp_path, small, codec):
    data = lines(*MANY)
    pack = {"gz": gzip.compress, "zst": zstandard.ZstdCompressor().compress}[codec]
    cuts = [0, 1, 3000, 3001, *range(3500, len(data), 1777), len(data)]
    (tmp_path / f"a.jsonl.{codec}").write_bytes(b"".join(pack(data[a:b]) for a, b in itertools.pairwise(cuts)))
    (tmp_path / "plain.jsonl").write_bytes(data)
    with reading_source(tmp_path, [f"a.jsonl.{codec}"], workers=2) as found:
        assert len(found.result.plan.pieces) > 3
        assert all(isinstance(piece, planning.Slice) for piece in found.result.plan.pieces)
        split = by_id(found)
    with reading_source(tmp_path, ["plain.jsonl"]) as found:
        assert by_id(found) == split


@pytest.mark.parametrize("name", ["a.jsonl.gz", "a.jsonl.bz2", "a.jsonl.xz", "a.jsonl.zst", "a.csv"])
def test_a_stream_commits_parts_and_a_stopped_one_goes_on_behind_them(tmp_path, small, monkeypatch, name):
    pack = {"gz": gzip.compress, "bz2": bz2.compress, "xz": lzma.compress, "zst": zstandard.ZstdCompressor().compress}
    table = "id,text\n" + "".join(f'{row["id"]},"{row["text"]}\n,"\n' for row in MANY)
    data = table.encode() if name == "a.csv" else pack[name.split(".")[2]](lines(*MANY))
    (tmp_path / name).write_bytes(data)
    with reading(load(tmp_path, {"s": {"files": [name]}}, output="whole")) as found:
        whole, parts = by_id(found), [p.done.key for p in found.result.parts]
        hashes = [p.sha256 for p in found.result.parts]
        assert len(parts) > 3
        assert [row[0] for row in whole] == [row["id"] for row in MANY]
    manifest = load(tmp_path, {"s": {"files": [name]}}, output="stopped")
    stop_after(monkeypatch, 2)
    with pytest.raises(KeyboardInterrupt), reading(manifest):
        pass
    monkeypatch.undo()
    shrink(monkeypatch)
    with reading(manifest) as found:
        assert (by_id(found), [p.done.key for p in found.result.parts]) == (whole, parts)
        assert [p.sha256 for p in found.result.parts] == hashes
        assert found.work.store.reused["read"] == 2


def stop_after(monkeypatch, units: int) -> None:
    """The process ends when it wants to commit one more unit."""
    from datapipe.units import Store

    commit, done = Store.commit, []

    def counted(self, unit):
        if len(done) == units:
            raise KeyboardInterrupt
        done.append(unit)
        return commit(self, unit)

    monkeypatch.setattr(Store, "commit", counted)


def test_a_second_run_reads_nothing(tmp_path, small):
    (tmp_path / "a.jsonl").write_bytes(lines(*MANY))
    with reading_source(tmp_path, ["a.jsonl"]) as found:
        first = by_id(found)
        assert found.work.store.ran["read"] > 3
    with reading_source(tmp_path, ["a.jsonl"]) as found:
        assert by_id(found) == first
        assert found.work.store.ran == {}


def test_workers_decide_no_byte(tmp_path, small):
    (tmp_path / "a.jsonl").write_bytes(lines(*MANY))
    (tmp_path / "b.jsonl.gz").write_bytes(gzip.compress(lines(*MANY)))
    hashes = []
    for workers in (1, 2, 5):
        manifest = load(tmp_path, {"s": {"files": ["*.jsonl*"], "edits": ["nfc"]}}, output=f"o{workers}")
        with reading(manifest, workers=workers) as found:
            hashes.append([one.files for one in found.result.units])
    assert hashes[0] == hashes[1] == hashes[2]


def test_other_files_in_other_order_hold_the_same_things(tmp_path, small):
    records = [*MANY, *MANY[:7], {"text": "twice"}, {"text": "twice"}, {"id": "d1", "text": "another text"}]
    layouts = [
        [records],
        [records[::-1]],
        [records[1::2], records[::2]],
        [records[100:], records[:50], records[50:100]],
    ]
    found = []
    for at, layout in enumerate(layouts):
        folder = tmp_path / str(at)
        folder.mkdir()
        for number, some in enumerate(layout):
            (folder / f"{number}.jsonl").write_bytes(lines(*some))
        with reading_source(folder, ["*.jsonl"], workers=2) as one:
            found.append(same_things(one))
            assert sum(book["repeated"] for book in one.result.inputs) == 8
    assert all(len(one) == len(records) for one in found)
    assert found[0] == found[1] == found[2] == found[3]


# what a document holds


def test_documents_and_narrow_columns(tmp_path):
    record = {
        "id": 7.0,
        "text": " Caf\u0065\u0301\x00 \n",
        "url": "u",
        "when": "2024-02-10T00:30:00+02:00",
        "v": "v1.10",
        "lang": "fr",
        "x": {"y": 1.0},
        "none": None,
    }
    (tmp_path / "a.jsonl").write_bytes(lines(record))
    fields = {"group": "url", "date": "when", "version": "v", "lang": "lang"}
    with reading_source(
        tmp_path,
        ["a.jsonl"],
        fields=fields,
        extra=["x.y", "none", "gone"],
        edits=["nfc", "strip_control"],
        snapshot={"name": "label", "key": "group"},
    ) as found:
        (row,), (narrow,) = found.documents, found.narrow
        assert found.result.edits == {"s": {"nfc": 1, "strip_control": 1}}
        parts = found.result.parts
    raw = keyed.text_id(record["text"].encode())
    edited = " Caf\u00e9 \n"
    assert row == {
        "source": "s", "path": "a.jsonl", "offset": 0, "line": 1, "raw_hash": raw, "id": "7", "group": "u",
        "date": "2024-02-10T00:30:00+02:00", "version": "v1.10", "snapshot": "label", "lang": "fr",
        "extra": '{"x.y":1}', "text": edited,
    }  # fmt: skip
    instant = datetime(2024, 2, 9, 22, 30, tzinfo=UTC).timestamp() * 10**6
    fields = {"id": "7", "group": "u", "date": record["when"], "version": "v1.10", "lang": "fr", "extra": {"x.y": 1}}
    assert narrow == {
        "own": keyed.doc_id("s", "7", raw, 0), "fields": keyed.canonical(fields).decode(), "key": "u",
        "instant": instant, "version_order": "v000011.0000210", "group": "u", "snapshot": "label", "lang": "fr",
        "text_hash": text.text_hashes(pa.array([edited], pa.large_string()))[0].as_py(), "bytes": len(edited.encode()),
    }  # fmt: skip
    assert [one.number for one in parts] == [0]


def test_a_text_that_an_edit_empties_is_a_document_and_a_blank_one_is_rejected(tmp_path):
    (tmp_path / "a.jsonl").write_bytes(
        lines({"text": "\u0001"}, {"text": " \u2003\n"}, {"text": ""}, {"text": "\u200b"})
    )
    with reading_source(tmp_path, ["a.jsonl"], edits=["strip_control"]) as found:
        assert found.book["rejected"] == {"empty text": 2}
        assert [(row["line"], row["text"]) for row in found.documents] == [(1, ""), (4, "\u200b")]
        rejected = found.refused("rejected")
    assert [(row["line"], row["offset"], row["length"]) for row in rejected] == [(2, 19, 21), (3, 41, 12)]
    assert rejected[1]["xxh3_128"] == keyed.text_id(b'{"text": ""}')
    assert {row["raw"] for row in rejected} == {None}


def test_the_first_bytes_of_refused_records_are_kept_where_asked(tmp_path):
    (tmp_path / "a.jsonl").write_bytes(lines(b"x" * 1000, {"text": None}))
    with reading(load(tmp_path, {"s": {"files": ["a.jsonl"]}}, quarantine={"raw": True})) as found:
        assert [row["raw"] for row in found.refused("quarantine")] == [b"x" * 256]
        assert [row["raw"] for row in found.refused("rejected")] == [b'{"text": null}']


SELECTS = [
    ({"lang": {"in": ["en", "zh"]}}, [0, 1], {"select: lang": 2}),
    ({"stars": {"min": 3}}, [1, 2], {"select: stars": 2}),
    ({"stars": {"max": 3.5, "min": 2}}, [0, 2], {"select: stars": 2}),
    ({"stars": {"in": [2, "ten"]}}, [0, 3], {"select: stars": 2}),
    ({"date": {"min": "2020-01-01", "max": "2020-12-31"}}, [1], {"select: date": 3}),
    ({"date": {"max": "2020-06-01T12:00:00+01:00"}}, [0, 1], {"select: date": 2}),
    ({"version": {"min": 9}}, [2], {"select: version": 3}),
    ({"version": {"min": "1"}}, [0, 1, 2, 3], {}),
    ({"version": {"min": "2020"}}, [3], {"select: version": 3}),
    ({"day": {"min": "2020-06-01T00:00:00+02:00"}}, [1, 2], {"select: day": 2}),
    ({"lang": {"in": ["en"]}, "stars": {"min": 3}}, [], {"select: lang": 3, "select: stars": 1}),
]


@pytest.mark.parametrize("select, kept, cut", SELECTS)
def test_select_compares_numbers_dates_and_texts(tmp_path, select, kept, cut):
    records = [
        {"id": "0", "text": "a", "lang": "en", "stars": 2, "date": "2019-12-31T23:00:00Z", "version": "1"},
        {
            "id": "1",
            "text": "b",
            "lang": "zh",
            "stars": 10,
            "date": "2020-06-01T11:00:00Z",
            "version": "2.5",
            "day": "2020-05-31T22:00Z",
        },
        {"id": "2", "text": "c", "lang": "de", "stars": 3.0, "date": "2021", "version": "10", "day": "2020-06-01"},
        {"id": "3", "text": "d", "day": "2020-05-31", "stars": "ten", "date": "yesterday", "version": "new"},
    ]
    (tmp_path / "a.jsonl").write_bytes(lines(*records))
    fields = {"lang": "lang", "date": "date", "version": "version"}
    with reading_source(tmp_path, ["a.jsonl"], fields=fields, extra=["stars", "day"], select=select) as found:
        assert [int(row["id"]) for row in found.documents] == kept
        assert found.book["cut"] == cut
        assert (found.book["documents"], found.book["rows"]) == (4, len(kept))


def test_numbers_as_json_spells_them():
    table = {"1": 1, "-1": -1, "0": 0, "0.50": 0.5, "1e3": 1000.0, "12345678901234567890": 12345678901234567890}
    assert {word: spec.spelled(word) for word in table} == table
    for word in ("0042", "+1", "1.", ".5", "nan", "inf", "1_0", " 1", "1e999", "", "-", "٣", "0x1"):
        assert spec.spelled(word) is None, word


def test_a_keyed_sample_takes_captures_of_a_key_together(tmp_path):
    records = [{"id": f"{n}-{c}", "text": f"t{n}{c}", "url": f"u{n}"} for n in range(400) for c in range(2)]
    (tmp_path / "a.jsonl").write_bytes(lines(*records))
    with reading_source(
        tmp_path, ["a.jsonl"], extra=["url"], fields={"date": "date"}, sample=0.25, snapshot={"key": "url"}
    ) as found:
        kept = [row["id"].split("-")[0] for row in found.documents]
        cut = found.book["cut"]
    chosen = {str(n) for n in range(400) if keyed.keyed("sample", None, f"u{n}") < keyed.bound(0.25)}
    assert set(kept) == chosen
    assert len(kept) == 2 * len(chosen)
    assert 60 < len(chosen) < 140
    assert cut == {"sample": 800 - len(kept)}


def test_snapshot_names_choose_and_one_that_matches_nothing_is_an_error(tmp_path):
    (tmp_path / "a.jsonl").write_bytes(lines({"text": "a", "dump": "A"}, {"text": "b", "dump": "B"}, {"text": "c"}))
    fields = {"snapshot": "dump"}
    with reading_source(tmp_path, ["a.jsonl"], fields=fields, snapshot={"name": "B"}) as found:
        assert [(row["text"], row["snapshot"]) for row in found.documents] == [("b", "B")]
        assert found.book["cut"] == {"snapshot": 2}
    with (
        pytest.raises(DataError, match="source s: no document is of snapshot 'C'"),
        reading_source(tmp_path, ["a.jsonl"], fields=fields, snapshot={"name": ["A", "C"]}),
    ):
        pass


# formats


def test_csv_with_newlines_in_cells_and_records_that_are_none(tmp_path):
    data = (
        "\ufeffid,text,stars,note\r\n"
        '1,"two\nlines, ""quoted""",4.0,\r\n\r\n2,plain,0042,x\r\n3,short\r\n4,"bad"x,1,\r\n'
        "5,last,,z"
    ).encode()
    (tmp_path / "a.csv").write_bytes(data + b"\n6,\xff,1,\n" + b'7,"no end,1,\n8,a,1,\n')
    with reading_source(tmp_path, ["a.csv"], extra=["stars", "note"]) as found:
        assert [(row["id"], row["text"], row["extra"]) for row in found.documents] == [
            ("1", 'two\nlines, "quoted"', '{"stars":4}'),
            ("2", "plain", '{"note":"x","stars":"0042"}'),
            ("5", "last", '{"note":"z"}'),
        ]
        assert [row["line"] for row in found.documents] == [2, 5, 8]
        assert [(row["line"], row["reason"]) for row in found.refused("quarantine")] == [
            (6, "other number of cells than the header"),
            (7, "not CSV: text behind a closing quote"),
            (9, "not UTF-8"),
            (10, "not CSV: quote without end"),
        ]
        whole = (tmp_path / "a.csv").read_bytes().removeprefix(b"\xef\xbb\xbf")
        assert [whole[row["offset"] :][:1] for row in found.documents] == [b"1", b"2", b"5"]
        assert found.book["blank"] == 1


def test_a_damaged_csv_keeps_its_whole_records(tmp_path, small):
    data = gzip.compress(b"id,text\n" + b"".join(b'%d,"two\nlines %x"\n' % (n, n**9) for n in range(300)))
    data = data[: len(data) // 2]
    (tmp_path / "a.csv.gz").write_bytes(data)
    whole = (zlib.decompressobj(31).decompress(data).count(b"\n") - 1) // 2
    with reading_source(tmp_path, ["a.csv.gz"], tolerant=True) as found:
        assert [row["id"] for row in found.documents] == [str(n) for n in range(whole)]
        assert found.documents[-1]["text"] == f"two\nlines {(whole - 1) ** 9:x}"
        assert (found.book["damaged"], found.book["records"]) == ("truncated", whole)
    assert 50 < whole < 300


def test_tsv_and_a_csv_without_the_text_column(tmp_path):
    (tmp_path / "a.tsv").write_bytes(b"body\tid\nhello, world\t1\n\t2\n")
    with reading_source(tmp_path, ["a.tsv"], fields={"text": "body"}) as found:
        assert [(row["id"], row["text"]) for row in found.documents] == [("1", "hello, world")]
        assert found.book["rejected"] == {"empty text": 1}
    with pytest.raises(DataError, match=r"a.tsv: has no column 'text'.*body, id"), reading_source(tmp_path, ["a.tsv"]):
        pass
    (tmp_path / "b.csv").write_bytes(b"text,text\na,b\n")
    with pytest.raises(DataError, match="'text' stands in the header twice"), reading_source(tmp_path, ["b.csv"]):
        pass


def test_parquet_types_of_texts_and_fields(tmp_path, small):
    n = 50
    texts = [f"text {at} " + "x" * (at % 9) for at in range(n)]
    meta = pa.array([{"lang": "en", "stars": at / 2} if at % 3 else None for at in range(n)])
    stamps = pa.array(
        [datetime(2024, 1, 1, 10, 20, 30, at * 1000, tzinfo=UTC) for at in range(n)], pa.timestamp("ns", "UTC")
    )
    kinds = [pa.string(), pa.large_string(), pa.binary(), pa.large_binary(), pa.dictionary(pa.int32(), pa.string())]
    seen = []
    for at, kind in enumerate(kinds):
        column = pa.array(texts, pa.string()).cast(kind) if at < 4 else pa.array(texts).dictionary_encode()
        table = pa.table(
            {
                "id": list(range(n)),
                "text": column,
                "meta": meta,
                "when": stamps,
                "dec": [Decimal("1.50")] * n,
                "day": [date(2024, 5, 6)] * n,
                "a.b": ["dotted"] * n,
            }
        )
        pq.write_table(table, tmp_path / "a.parquet", row_group_size=7)
        with reading_source(tmp_path, ["a.parquet"], fields={"lang": "meta.lang", "date": "when"},
                            extra=["meta.stars", "dec", "day", "a.b", "gone"]) as found:  # fmt: skip
            assert len(found.result.plan.pieces) > 1 or at == 4
            seen.append([{k: v for k, v in row.items() if k != "path"} for row in found.documents])
    assert all(one == seen[0] for one in seen)
    assert [row["text"] for row in seen[0]] == texts
    assert [row["line"] for row in seen[0]] == list(range(1, n + 1))
    assert seen[0][1] | {"raw_hash": None} == {
        "source": "s", "offset": None, "line": 2, "raw_hash": None, "id": "1", "group": None,
        "date": "2024-01-01 10:20:30.001Z", "version": None, "snapshot": None, "lang": "en",
        "extra": '{"a.b":"dotted","day":"2024-05-06","dec":"1.50","meta.stars":0.5}', "text": texts[1],
    }  # fmt: skip
    assert (seen[0][0]["lang"], seen[0][0]["date"]) == (None, "2024-01-01 10:20:30Z")


def test_parquet_records_that_are_no_documents(tmp_path):
    table = pa.table({
        "text": pa.array([b"good", b"\xff", None, b"", b"also", b"inf"], pa.binary()),
        "x": pa.array([1.0, 2.0, 3.0, 4.0, float("nan"), float("inf")]),
    })  # fmt: skip
    pq.write_table(table, tmp_path / "a.parquet")
    with reading_source(tmp_path, ["a.parquet"], extra=["x"]) as found:
        assert [(row["text"], row["extra"]) for row in found.documents] == [("good", '{"x":1}'), ("also", "{}")]
        assert found.book["rejected"] == {"null text": 1, "empty text": 1}
        assert found.book["quarantined"] == {"not UTF-8": 1, "not a finite number": 1}
        assert [(row["line"], row["length"]) for row in found.refused("quarantine")] == [(2, None), (6, None)]
    for column in ([1, None], [None, None], [["a"], ["b"]]):
        pq.write_table(pa.table({"text": column}), tmp_path / "a.parquet")
        with reading_source(tmp_path, ["a.parquet"]) as found:
            assert sum(found.book["rejected"].values()) == 2, column


def test_parquet_that_is_none_or_damaged_names_the_file(tmp_path):
    pq.write_table(pa.table({"text": ["a" * 100] * 1000, "id": list(range(1000))}), tmp_path / "a.parquet",
                   write_page_checksum=True, compression="none", use_dictionary=False)  # fmt: skip
    data = (tmp_path / "a.parquet").read_bytes()
    for wrong in (b"", data[:-10], b"text"):
        (tmp_path / "a.parquet").write_bytes(wrong)
        with (
            pytest.raises(DataError, match=r"a.parquet: cannot be read as Parquet"),
            reading_source(tmp_path, ["a.parquet"]),
        ):
            pass
    (tmp_path / "a.parquet").write_bytes(data[:5000] + b"X" + data[5001:])
    with pytest.raises(DataError, match=r"a.parquet: damaged"), reading_source(tmp_path, ["a.parquet"]):
        pass
    pq.write_table(pa.table({"body": ["a"]}), tmp_path / "a.parquet")
    with pytest.raises(DataError, match=r"has no column 'text'.*body"), reading_source(tmp_path, ["a.parquet"]):
        pass


def test_a_text_file_is_a_document_named_by_its_path(tmp_path):
    files = {"a/one.txt": b"\xef\xbb\xbfone\r\n", "a/two.py": b"print(2)", "b.txt": b"", "c.txt": b"caf\xe9",
             "d.txt": "text".encode("utf-16"), "e.txt.gz": gzip.compress(b"packed")}  # fmt: skip
    for name, data in files.items():
        (tmp_path / "tree" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "tree" / name).write_bytes(data)
    with reading_source(tmp_path, ["tree/**"]) as found:
        assert [(row["id"], row["path"], row["text"]) for row in found.documents] == [
            ("a/one.txt", "a/one.txt", "one\r\n"),
            ("a/two.py", "a/two.py", "print(2)"),
            ("e.txt.gz", "e.txt.gz", "packed"),
        ]
        assert [(row["file"], row["reason"]) for row in found.refused("quarantine")] == [
            ("c.txt", "not UTF-8"), ("d.txt", "UTF-16LE, not UTF-8"),
        ]  # fmt: skip
        assert [row["file"] for row in found.refused("rejected")] == ["b.txt"]
        assert len(found.result.plan.pieces) == 1
        assert [book["records"] for book in found.result.inputs] == [1] * 6


def test_files_of_all_formats_in_one_source(tmp_path):
    (tmp_path / "a.jsonl").write_bytes(lines({"id": "1", "text": "a"}))
    (tmp_path / "b.csv").write_bytes(b"text\nb\n")
    (tmp_path / "c.txt").write_bytes(b"c")
    pq.write_table(pa.table({"text": ["d"]}), tmp_path / "d.parquet")
    (tmp_path / "e.ndjson").write_bytes(b"")
    (tmp_path / "f.json.bz2").write_bytes(bz2.compress(lines({"text": "f"})))
    with reading_source(tmp_path, ["?.*"]) as found:
        assert [(row["text"], row["id"]) for row in found.documents] == [
            ("a", "1"), ("b", None), ("c", "c.txt"), ("d", None), ("f", None),
        ]  # fmt: skip
    with reading_source(tmp_path, ["a.jsonl"], format="text") as found:
        assert found.documents[0]["text"] == '{"id": "1", "text": "a"}\n'


# damage and limits


def test_damage_ends_the_build_or_is_listed_where_the_source_is_tolerant(tmp_path, small):
    data = gzip.compress(lines(*MANY))
    (tmp_path / "a.jsonl.gz").write_bytes(data[: len(data) // 2])
    with (
        pytest.raises(DataError, match=r"a.jsonl.gz: truncated.*tolerant: true"),
        reading_source(tmp_path, ["a.jsonl.gz"]),
    ):
        pass
    with reading_source(tmp_path, ["a.jsonl.gz"], tolerant=True) as found:
        whole = [row["id"] for row in found.documents]
        assert found.book["damaged"] == "truncated"
    assert whole == [row["id"] for row in MANY[: len(whole)]]
    assert 10 < len(whole) < 150


def test_a_file_that_expands_too_far_is_refused(tmp_path):
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress(lines({"text": "a" * 100_000})))
    manifest = load(tmp_path, {"s": {"files": ["a.jsonl.gz"]}}, limits={"expanded": 50_000})
    with pytest.raises(PolicyError, match=r"a.jsonl.gz: expands to more than 50,000 bytes"), reading(manifest):
        pass


LIMITS = [
    ({}, 10, 0, []),
    ({}, 11, 0, ["11 of 111 records rejected (missing text: 11), limits.rejected lets 10 pass"]),
    ({}, 0, 11, ["11 of 111 records quarantined (not JSON: syntax: 11), limits.quarantined lets 10 pass"]),
    ({"rejected": 0}, 1, 0, ["limits.rejected lets 0 pass"]),
    ({"rejected": 3, "quarantined": 0.5}, 3, 50, []),
    ({"rejected": 0.02}, 2, 0, []),
    ({"rejected": 0.02}, 3, 0, ["limits.rejected lets 2 pass"]),
]


@pytest.mark.parametrize("limits, rejected, quarantined, messages", LIMITS)
def test_limits(tmp_path, limits, rejected, quarantined, messages):
    (tmp_path / "a.jsonl").write_bytes(lines(*MANY[:100], *[{}] * rejected, *[b"{"] * quarantined))
    with reading(load(tmp_path, {"s": {"files": ["a.jsonl"]}}, limits=limits)) as found:
        told = read.over_limits(found.result, found.manifest)
    assert len(told) == len(messages)
    assert all(part in whole for part, whole in zip(messages, told, strict=True)), told


def test_refused_records_of_a_build_are_sorted_by_source_file_line(tmp_path, small):
    for name in ("b/2.jsonl", "b/1.jsonl", "a/3.jsonl"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(lines(*[b"x", {"text": " "}, {}, {"text": "a" * 90}, b"[]", {"text": ""}] * 40))
    sources = {"z": {"files": ["a/*.jsonl"]}, "m": {"files": ["b/*.jsonl"]}}
    with reading(load(tmp_path, sources), workers=2) as found:
        for name in ("rejected", "quarantine"):
            rows = [(row["source"], row["file"], row["line"]) for row in found.refused(name)]
            assert rows == sorted(rows)
            assert len(rows) == {"rejected": 360, "quarantine": 240}[name]


MARK = b"\xef\xbb\xbf"
MARKED = [
    ("one at the start", MARK + b'{"id":"a","text":"x"}\n{"id":"b","text":"y"}\n', ["a", "b"]),
    ("one before every line", MARK + b'{"id":"a","text":"x"}\n' + MARK + b'{"id":"b","text":"y"}\n', ["a", "b"]),
    ("two glued files", 2 * (MARK + b'{"id":"a","text":"x"}\n{"id":"b","text":"y"}\n'), ["a", "b", "a", "b"]),
    ("nothing else", MARK, []),
    ("nothing else on a line", MARK + b'\n{"id":"a","text":"x"}', ["a"]),
]


@pytest.mark.parametrize("data, names", [one[1:] for one in MARKED], ids=[one[0] for one in MARKED])
@pytest.mark.parametrize("pack", [bytes, gzip.compress], ids=["plain", "gz"])
def test_byte_order_marks_are_no_content(tmp_path, data, names, pack):
    name = "a.jsonl.gz" if pack is gzip.compress else "a.jsonl"
    (tmp_path / name).write_bytes(pack(data))
    with reading_source(tmp_path, [name]) as found:
        assert [(row["id"], row["text"]) for row in found.documents] == [(n, "xy"["ab".index(n)]) for n in names]
        assert (found.book["rejected"], found.book["quarantined"]) == ({}, {})


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be", "utf-32-le"])
def test_other_encodings_are_named(tmp_path, encoding):
    (tmp_path / "a.jsonl").write_bytes("\ufeff{}".encode(encoding))
    named = encoding.upper().replace("-LE", "LE").replace("-BE", "BE")
    with pytest.raises(DataError, match=named), reading_source(tmp_path, ["a.jsonl"]):
        pass


# peers' failing inputs


def test_peers_marked_files(tmp_path, shared):
    """B02: byte-order marks at the start, in the middle, alone, and UTF-16."""
    expect = json.loads((shared / "cases/B02/EXPECT.json").read_text())["expect"]
    seen = {}
    for name in ("no_bom", "with_bom", "bom_only", "concat_bom"):
        with reading_source(tmp_path, [str(shared / f"cases/B02/{name}.jsonl")]) as found:
            seen[name] = [(n["own"], n["text_hash"]) for n in found.narrow]
            for row in found.documents:
                assert hashlib.sha256(row["text"].encode()).hexdigest() == expect["text_sha256"][row["id"]]
    assert seen["no_bom"] == seen["with_bom"]
    assert {name: len(rows) for name, rows in seen.items()} == {
        "no_bom": 3,
        "with_bom": 3,
        "bom_only": 0,
        "concat_bom": 6,
    }
    with pytest.raises(DataError, match="UTF-16LE"), reading_source(tmp_path, [str(shared / "cases/B02/utf16.jsonl")]):
        pass


def test_a_line_of_eleven_megabytes(tmp_path, shared):
    """B05: a book on one line between two ordinary documents."""
    expect = json.loads((shared / "cases/B05/EXPECT.json").read_text())["expect"]["h2"]
    with reading_source(tmp_path, [str(shared / "cases/B05/huge_line.jsonl.gz")]) as found:
        _, book, _ = (row["text"] for row in found.documents)
    assert (len(book), len(book.split())) == (expect["chars"], expect["words"])
    assert hashlib.sha256(book.encode()).hexdigest() == expect["sha256"]


def test_peers_texts_that_are_none(tmp_path, shared):
    """B06: a string is text whatever it looks like, and nothing else is."""
    with reading_source(tmp_path, [str(shared / "cases/B06/mixed_types.jsonl")]) as found:
        expect = json.loads((shared / "cases/B06/EXPECT.json").read_text())["expect"]["mixed_types"]
        assert {row["id"]: row["text"] for row in found.documents} == expect["texts"]
        assert found.book["rejected"] == {
            "null text": 1, "missing text": 1, "text is not a string": 4, "empty text": 2,
        }  # fmt: skip
    names = [str(shared / f"cases/B06/{name}.jsonl") for name in ("a_all_null", "b_strings")]
    with reading_source(tmp_path, names) as found:
        assert len(found.documents) == 5
        assert [book["rejected"] for book in found.result.inputs] == [{"null text": 5}, {}]


def test_a_document_of_twenty_megabytes(tmp_path):
    """Blocks and ranges are smaller than it."""
    (tmp_path / "a.jsonl").write_bytes(
        lines({"id": 1, "text": "a"}, {"id": 2, "text": "word " * 4_000_000}, {"id": 3, "text": "b"})
    )
    with reading_source(tmp_path, ["a.jsonl"]) as found:
        assert [(n["bytes"]) for n in found.narrow] == [1, 20_000_000, 1]
        assert [row["line"] for row in found.documents] == [1, 2, 3]


def test_a_part_lost_from_the_middle_of_a_stream_is_read_again_alone(tmp_path, small):
    (tmp_path / "a.jsonl.xz").write_bytes(lzma.compress(lines(*MANY)))
    with reading_source(tmp_path, ["a.jsonl.xz"]) as found:
        whole, parts = by_id(found), found.result.parts
    (parts[1].done.folder / "documents.parquet").write_bytes(b"damaged")
    with reading_source(tmp_path, ["a.jsonl.xz"]) as found:
        assert by_id(found) == whole
        assert [part.sha256 for part in found.result.parts] == [part.sha256 for part in parts]
        assert found.work.store.ran == {"read": 1}


def test_many_small_files_are_one_unit_and_records_without_text_are_not_held(tmp_path, monkeypatch):
    for n in range(30):
        (tmp_path / f"{n:02}.jsonl").write_bytes(lines({"id": n, "text": f"t{n}"}, {"id": n}, b"x"))
    held = []
    flush = part.Writer.flush
    monkeypatch.setattr(part, "ENOUGH", 200)
    monkeypatch.setattr(part.Writer, "flush", lambda self: (held.append(self._held), flush(self))[1])
    with reading_source(tmp_path, ["*.jsonl"]) as found:
        assert len(found.result.units) == 1
        assert [(row["id"], row["path"], row["line"]) for row in found.documents] == [
            (str(n), f"{n:02}.jsonl", 1) for n in range(30)
        ]
        assert [(row["file"], row["line"]) for row in found.refused("rejected")] == [
            (f"{n:02}.jsonl", 2) for n in range(30)
        ]
        assert [(row["file"], row["line"]) for row in found.refused("quarantine")] == [
            (f"{n:02}.jsonl", 3) for n in range(30)
        ]
        assert all(book["records"] == 3 for book in found.result.inputs)
    assert len(held) > 5
    assert max(held) < 300
