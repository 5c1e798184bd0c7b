"""verify finds what is not as it was made, and says what."""

import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import synthetic

import datapipe
from datapipe import tables
from datapipe.build_manifest import digests
from datapipe.checks import Verified, verify

Row = dict[str, Any]


@pytest.fixture(scope="module")
def build(tmp_path_factory) -> Path:
    return synthetic.build(tmp_path_factory.mktemp("builds")).path


@pytest.fixture
def copy(build, tmp_path) -> Path:
    return Path(shutil.copytree(build, tmp_path / build.name))


def differences(found: Verified) -> dict[str, list[str]]:
    return {check.name: check.differences for check in found.checks if check.differences}


def test_a_build_is_what_it_says(build):
    found = verify(build)
    assert differences(found) == {}
    assert found.ok
    assert found.complete
    assert [check.name for check in found.checks] == [
        "digests", "files", "schemas", "records", "fates", "stages", "ledger", "sides", "collateral", "shards",
        "tokens", "signatures", "texts", "similarities",
    ]  # fmt: skip
    json.dumps(found.as_json())


def test_a_build_without_a_tokenizer(tmp_path):
    found = verify(synthetic.build(tmp_path, tokenizer=False).path)
    assert differences(found) == {}
    assert "tokens" not in [check.name for check in found.checks]


def test_a_build_without_a_document_is_complete(tmp_path):
    """Every record was rejected, and the limits let that pass: no text is missing that could be looked at."""
    (tmp_path / "in.jsonl").write_text('{"id": 1}\n' * 20)
    (tmp_path / "m.yaml").write_text(
        "name: empty\nlimits: {rejected: 1.0}\nsources: {web: {files: [in.jsonl]}}\nstages: [{stage: exact_dedup}]\n"
    )
    built = datapipe.build(datapipe.load(tmp_path / "m.yaml"), workers=1, output=tmp_path / "builds")
    found = verify(built.path, everything=True)
    assert differences(found) == {}
    assert found.complete


def test_every_similarity_is_recomputed(build):
    found = {check.name: check for check in verify(build, everything=True).checks}
    assert (found["similarities"].seen, found["similarities"].differences) == (3, [])
    assert (found["texts"].seen, found["texts"].differences) == (10, [])


@pytest.mark.parametrize("stored, texts", [("kept", "dropped"), ("none", "all")])
def test_what_is_not_stored_is_not_possible(tmp_path, stored, texts):
    found = verify(synthetic.build(tmp_path, stored=stored).path, everything=True)
    assert found.ok
    assert not found.complete
    assert {check.name: check.not_possible for check in found.checks if check.not_possible} == {
        "texts": f"the texts of {texts} documents are not stored (documents: {stored})",
        "similarities": f"the texts of dropped documents are not stored (documents: {stored})",
    }


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def link(path: Path) -> None:
    path.rename(path.parent / "../elsewhere")
    path.symlink_to("../elsewhere")


FILES: dict[str, tuple[Callable[[Path], object], str]] = {
    "a flipped bit in a shard": (
        lambda build: flip(build / "train/shard-00000.parquet"),
        "train/shard-00000.parquet: sha256",
    ),
    "a file that is gone": (lambda build: (build / "ledger.parquet").unlink(), "ledger.parquet: missing"),
    "a file that is shorter": (lambda build: (build / "README.md").write_text("#"), "README.md: 1 bytes"),
    "a file too many": (lambda build: (build / "notes.txt").touch(), "notes.txt: is not in files"),
    "a hidden file too many": (lambda build: (build / "train/.x").touch(), "train/.x: is not in files"),
    "a link in place of a file": (lambda build: link(build / "fates.parquet"), "fates.parquet: is a link"),
}


@pytest.mark.parametrize("change, message", FILES.values(), ids=FILES)
def test_files(copy, change, message):
    change(copy)
    (found,) = differences(verify(copy))["files"]
    assert found.startswith(message)


def test_a_manifest_that_was_edited(copy):
    record = json.loads((copy / "manifest.json").read_bytes())
    synthetic.change(copy, edits={"web": {"nfc": 7}}, dataset_id="0" * 64, run=record["run"] | {"seconds": 9.0})
    found = differences(verify(copy))
    assert [difference.split(" is ")[0] for difference in found["digests"]] == [
        "manifest.json: build_digest",
        "manifest.json: dataset_id",
        f"manifest.json: version {record['version']} does not end in the first 12 digits of dataset_id",
    ]


def test_run_and_name_are_free(copy):
    record = json.loads((copy / "manifest.json").read_bytes())
    synthetic.change(copy, name="other", run=record["run"] | {"host": "elsewhere"})
    assert verify(copy).ok


def rewrite(build: Path, name: str, change: Callable[[list[Row]], object], schema: pa.Schema | None = None) -> None:
    """Change the rows of a table, and let manifest.json say that they were always so."""
    path = build / name
    schema = schema or pq.read_schema(path)
    rows = pq.read_table(path).to_pylist()
    change(rows)
    tables.write(path, pa.Table.from_pylist(rows, schema))
    adopt(build, name, len(rows))


def adopt(build: Path, name: str, count: int, **keys: Any) -> None:
    record = json.loads((build / "manifest.json").read_bytes()) | keys
    for file in record["files"]:
        if file["path"] == name:
            data = (build / name).read_bytes()
            file |= {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest(), "rows": count}
    record["build_digest"] = digests.build_digest(record)
    (build / "manifest.json").write_text(json.dumps(record))


def row_of(rows: list[Row], **values: Any) -> Row:
    return next(row for row in rows if all(row[key] == value for key, value in values.items()))


def set_fate(where: dict[str, Any], to: dict[str, Any]) -> Callable[[list[Row]], object]:
    return lambda rows: row_of(rows, **where).update(to)


TABLES: dict[str, tuple[str, Callable[[list[Row]], object], str, str]] = {
    "a document without its fate": ("fates.parquet", lambda rows: rows.pop(0), "fates", "but its inputs gave"),
    "fates out of order": ("fates.parquet", lambda rows: rows.reverse(), "fates", "does not come after the row before"),
    "a document twice": (
        "fates.parquet",
        lambda rows: rows.__setitem__(1, rows[0]),
        "fates",
        "does not come after the row before",
    ),
    "an unknown fate": ("fates.parquet", set_fate({"fate": "unused"}, {"fate": "lost"}), "fates", "is none of kept"),
    "kept without a copy": ("fates.parquet", set_fate({"fate": "kept"}, {"copies": 0}), "fates", "kept without a copy"),
    "dropped by another rule": (
        "fates.parquet",
        set_fate({"rule": "same text"}, {"rule": "no reason"}),
        "stages",
        "3:exact_dedup: dropped_by_source is",
    ),
    "a kept one that the stages dropped": (
        "fates.parquet",
        set_fate({"rule": "same text"}, {"fate": "kept", "stage": None, "rule": None, "copies": 1, "tokens": 1}),
        "ledger",
        "has rows, but was not dropped",
    ),
    "a copy too many": ("fates.parquet", set_fate({"copies": 2}, {"copies": 3}), "tokens", "its rows hold 62 tokens"),
    "other tokens": (
        "fates.parquet",
        set_fate({"tokens": 41}, {"tokens": 40}),
        "tokens",
        "validation: kept documents have",
    ),
    "a group on both sides": (
        "fates.parquet",
        lambda rows: [row.update(group="g") for row in rows],
        "sides",
        "group 'g' is in train and in validation",
    ),
    "a drop without its row": ("ledger.parquet", lambda rows: rows.pop(), "ledger", "not exactly one row decides"),
    "a drop with two": ("ledger.parquet", lambda rows: rows.append(rows[0]), "ledger", "not exactly one row decides"),
    "a kept one that is gone itself": (
        "ledger.parquet",
        lambda rows: row_of(rows, stage="4:near_dedup").update(
            evidence=json.dumps({"kept": row_of(rows, stage="3:exact_dedup")["doc_id"]})
        ),
        "ledger",
        "was itself gone by then",
    ),
    "a signature too few": ("signatures.parquet", lambda rows: rows.pop(), "signatures", "has no signature"),
    "a band too few": ("bands.parquet", lambda rows: rows.pop(), "signatures", "has not one bucket in each band"),
    "another cluster": (
        "signatures.parquet",
        lambda rows: [row.update(cluster=row["doc_id"]) for row in rows],
        "signatures",
        "is in another cluster",
    ),
    "a refused record too few": (
        "quarantine.parquet",
        lambda rows: rows.pop(),
        "records",
        "1 rows, but the inputs count 2",
    ),
    "a document too few": ("documents/part-00000.parquet", lambda rows: rows.pop(), "fates", "documents/: 9 rows"),
    "a shard with another token": (
        "train/shard-00000.parquet",
        lambda rows: rows[0]["input_ids"].__setitem__(0, 5),
        "shards",
        "content_sha256 is",
    ),
    "a shard with an id that the tokenizer has not": (
        "train/shard-00000.parquet",
        lambda rows: rows[0]["input_ids"].__setitem__(0, 5000),
        "shards",
        "id 5000, the tokenizer's largest is 999",
    ),
    "a shard with another count": (
        "train/shard-00000.parquet",
        lambda rows: rows[0].update(n_targets=1),
        "shards",
        "n_targets is not what",
    ),
    "a shard with another document": (
        "train/shard-00000.parquet",
        lambda rows: rows[0].update(
            seg_doc=next(row["seg_doc"] for row in rows if row["seg_doc"] != rows[0]["seg_doc"])
        ),
        "tokens",
        "its rows hold",
    ),
    "a row of a shard too few": (
        "train/shard-00000.parquet",
        lambda rows: rows.pop(),
        "shards",
        "rows is 4, counted 3",
    ),
}


@pytest.mark.parametrize("name, change, check, message", TABLES.values(), ids=TABLES)
def test_tables(copy, name, change, check, message):
    rewrite(copy, name, change)
    found = differences(verify(copy))
    assert any(message in difference for difference in found.get(check, [])), found


def test_a_table_with_another_column(copy):
    schema = tables.LEDGER.append(pa.field("more", pa.string()))
    rewrite(copy, "ledger.parquet", lambda rows: None, schema)
    (found,) = differences(verify(copy))["schemas"]
    assert found.startswith("ledger.parquet: columns differ: missing [], unknown ['more string']")


def test_books_of_the_inputs(copy):
    record = json.loads((copy / "manifest.json").read_bytes())
    record["inputs"][0]["blank"] = 5
    adopt(copy, "", 0, inputs=record["inputs"])
    (found,) = differences(verify(copy))["records"]
    assert found == "web: web.jsonl: 8 records, but 6 documents + 0 rejected + 1 quarantined + 5 blank"


def stage_of(stages: list[dict[str, Any]], place: int) -> dict[str, Any]:
    return next(stage for stage in stages if stage["place"] == place)


BOOKS: dict[str, tuple[Callable[[list[dict[str, Any]]], object], str]] = {
    "one more comes out than went in": (
        lambda stages: (stage_of(stages, 2).update(out=9), stage_of(stages, 3).update({"in": 9})),
        "2:holdout: 8 in, 9 out, 0 dropped",
    ),
    "the next stage did not get all": (
        lambda stages: stage_of(stages, 3).update({"in": 7}),
        "3:exact_dedup: 7 documents in, but 8 came",
    ),
    "a rule with another count": (
        lambda stages: stage_of(stages, 3)["dropped"].update({"same text": 1}),
        "3:exact_dedup: dropped is not the sum of dropped_by_source",
    ),
    "a source with another count": (
        lambda stages: stage_of(stages, 3)["dropped_by_source"]["web"].update({"same text": 3}),
        "3:exact_dedup: dropped_by_source is",
    ),
}


@pytest.mark.parametrize("change, message", BOOKS.values(), ids=BOOKS)
def test_books_of_the_stages(copy, change, message):
    record = json.loads((copy / "manifest.json").read_bytes())
    change(record["stages"])
    adopt(copy, "", 0, stages=record["stages"])
    found = differences(verify(copy))["stages"]
    assert any(message in difference for difference in found), found


CLAIMS: dict[str, tuple[str, dict[str, Any], str]] = {
    "a similarity that the texts do not have": (
        "4:near_dedup",
        {"value": 0.9},
        "is 0.9 in the ledger, its texts give 0.96",
    ),
    "an equal text that is not equal": ("3:exact_dedup", {}, "dropped as the same text"),
}


@pytest.mark.parametrize("stage, change, message", CLAIMS.values(), ids=CLAIMS)
def test_claims_of_dedup(copy, stage, change, message):
    other = row_of(pq.read_table(copy / "fates.parquet").to_pylist(), copies=2)["doc_id"]
    change = change or {"evidence": json.dumps({"kept": other, "jaccard": 1.0})}
    rewrite(copy, "ledger.parquet", lambda rows: row_of(rows, stage=stage).update(change))
    found = differences(verify(copy, everything=True))
    assert [message in difference for difference in found["similarities"]] == [True]


def test_a_text_that_changed(copy):
    rewrite(copy, "documents/part-00000.parquet", lambda rows: rows[7].update(text="other"))
    found = differences(verify(copy, everything=True))
    assert [": its text has 5 bytes" in difference for difference in found["texts"]] == [True]
