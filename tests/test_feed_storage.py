"""Storage `binary`: the same data set as `list`, ids at known bytes of the file."""

import shutil
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import synthetic
from test_shards import asked, records
from test_shards import build as packed
from test_shards import tokenizer as tokenizer  # noqa: PLC0414  a fixture
from test_verify import adopt

from datapipe import rows, tables
from datapipe.build_manifest import load
from datapipe.checks import verify
from datapipe.documents import Work
from datapipe.errors import IntegrityError
from datapipe.feed import dataset
from datapipe.shards import options


def made(folder: Path, storage: str, max_id: int = 999) -> Path:
    docs = [synthetic.Doc(synthetic.words(n, 3 + n * 7 % 60), ("web", "wiki")[n % 2]) for n in range(150)]
    docs.append(synthetic.Doc(synthetic.words(999, 30), split="validation"))
    return synthetic.build(folder, storage, docs, storage=storage, shard_rows=100, max_id=max_id, masked=True).path


@pytest.fixture(scope="module", params=[65_535, 65_536])
def both(request, tmp_path_factory) -> tuple[Path, Path, int]:
    """A build of each storage, and the bytes that `binary` takes for an id."""
    folder = tmp_path_factory.mktemp("builds")
    paths = [made(folder, storage, request.param) for storage in ("list", "binary")]
    return paths[0], paths[1], 2 if request.param == 65_535 else 4


def test_one_data_set(both):
    one, other, _ = both
    first, second = load(one), load(other)
    assert first.dataset_id == second.dataset_id
    assert first.splits.contents() == second.splits.contents()
    assert first.build_digest != second.build_digest
    with dataset.open(one) as a, dataset.open(other) as b:
        assert (a.train.storage, b.train.storage) == ("list", "binary")
        asked = np.random.default_rng(1).integers(0, 150, 400)
        for ours, theirs in ((a.train.read(asked), b.train.read(asked)), (a[3:80].rows, b[3:80].rows)):
            for name, value in vars(ours).items():
                np.testing.assert_array_equal(value, getattr(theirs, name), err_msg=name)
                assert value.dtype == getattr(theirs, name).dtype
        assert a.books() == b.books()


def test_verify_says_yes_to_both(both):
    for build in both[:2]:
        found = verify(build, everything=True)
        differences = {check.name: check.differences for check in found.checks if check.differences}
        # these documents are no product of stages: what is asked here is whether the shards are readable and right
        assert not {"digests", "files", "schemas", "shards", "tokens"} & set(differences), differences


def test_verify_sees_another_width(both, tmp_path):
    _, build, width = both
    copy = Path(shutil.copytree(build, tmp_path / build.name))
    name = "train/shard-00000.parquet"
    kind = tables.shard_schema("binary", synthetic.LENGTH, 65_536 if width == 2 else 999)
    ids = rows.id_column(np.zeros((100, synthetic.LENGTH), np.int32), kind)
    tables.write(copy / name, pq.read_table(copy / name).set_column(1, kind.field(1), ids), row_group=64)
    adopt(copy, name, 100)
    found = {check.name: check.differences for check in verify(copy).checks}
    assert any("unknown ['input_ids fixed_size_binary" in line for line in found["schemas"]), found["schemas"]


def test_row_i_lies_at_a_known_byte(both):
    """One plain page a row group, whose values end where the chunk ends; the same bytes that pyarrow reads."""
    _, build, width = both
    path = build / "train/shard-00000.parquet"
    size = synthetic.LENGTH * width
    data = path.read_bytes()
    ids: list[bytes] = []
    with pq.ParquetFile(path, page_checksum_verification=True) as file:
        assert file.schema_arrow.field("input_ids") == pa.field("input_ids", pa.binary(size), nullable=False)
        assert file.schema_arrow.remove(1).equals(tables.SHARD.remove(1))
        for group, count in enumerate((64, 36)):
            chunk = file.metadata.row_group(group).column(1)
            assert (chunk.compression, chunk.has_dictionary_page, chunk.num_values) == ("UNCOMPRESSED", False, count)
            header = chunk.total_compressed_size - count * size
            assert 0 < header < 60, "one page header, without statistics"
            first = chunk.data_page_offset + header
            ids = file.read_row_group(group, columns=["input_ids"])["input_ids"].to_pylist()
            assert [data[first + i * size : first + (i + 1) * size] for i in range(count)] == ids
            others = [file.metadata.row_group(group).column(n).compression for n in range(2, 12)]
            assert set(others) == {"ZSTD"}
    with dataset.open(build) as found:
        assert found.train._reader._file(0).mapped
        kind = np.dtype("<u2" if width == 2 else "<i4")
        assert np.frombuffer(b"".join(ids), kind).reshape(36, -1).tolist() == found[64:100].rows.input_ids.tolist()


def test_a_long_row_is_still_one_page(tmp_path):
    """Pages are cut at a megabyte; not these."""
    length = 40_000
    ids = np.random.default_rng(0).integers(0, 60_000, (130, length)).astype(np.int32)
    schema = tables.shard_schema("binary", length, 60_000)
    whole = {"row_id": np.arange(130), "n_tokens": np.full(130, length), "n_targets": np.full(130, length - 1),
             "n_pad": np.zeros(130, int), "sum_len_sq": np.full(130, length**2), "seg_len": [[length]] * 130,
             "seg_doc": [[n] for n in range(130)], "seg_start": [[0]] * 130, "seg_flags": [[3]] * 130,
             "seg_source": [[0]] * 130, "loss_mask": [None] * 130,
             "input_ids": rows.id_column(ids, schema)}  # fmt: skip
    table = pa.table({name: whole[name] for name in schema.names}, schema=schema)
    path = tmp_path / "shard.parquet"
    tables.write_stream(path, schema, table.to_batches(), row_group=64, **options(schema))
    data = path.read_bytes()
    with pq.ParquetFile(path) as file:
        for group, count in enumerate((64, 64, 2)):
            chunk = file.metadata.row_group(group).column(1)
            stop = chunk.data_page_offset + chunk.total_compressed_size
            found = np.frombuffer(data[stop - count * length * 2 : stop], "<u2").reshape(count, length)
            assert (found == ids[group * 64 : group * 64 + count]).all()
    assert rows.recount(path).max_id == ids.max()


def test_pages_that_are_not_as_expected_are_seen(both, tmp_path):
    """A file of several pages passes every checksum; the memory map is held against what pyarrow reads."""
    build = both[1]
    copy = Path(shutil.copytree(build, tmp_path / build.name))
    path = copy / "train/shard-00000.parquet"
    table = pq.read_table(path)
    cut = options(table.schema) | {"data_page_size": 1, "write_batch_size": 8}
    tables.write_stream(path, table.schema, table.to_batches(), row_group=64, **cut)
    adopt(copy, "train/shard-00000.parquet", 100)
    with dataset.open(copy) as data, pytest.raises(IntegrityError, match="row group 0: the ids are not one page"):
        data.train.read(np.array([0]))


def test_both_storages_out_of_one_packing(tokenizer, tmp_path):
    """shards.write, with cut documents, copies and several shards."""
    splits, out = {}, {}
    for storage in ("list", "binary"):
        manifest = asked(tokenizer, mixture={"a": {"weight": 0.5, "epochs": 3.5}, "b": {"weight": 0.5, "epochs": 2.0}})
        manifest = manifest.model_copy(update={"shards": manifest.shards.model_copy(update={"storage": storage})})
        with Work(tmp_path / storage, "toy", workers=2) as work:
            _, splits[storage] = packed(work, manifest, records(60), tmp_path / storage / "out")
        out[storage] = tmp_path / storage / "out"
    assert splits["list"] == splits["binary"]
    for shard in splits["list"]["train"]["shards"]:
        ours, theirs = (rows.recount(out[storage] / shard["path"]) for storage in ("list", "binary"))
        assert ours.content_sha256 == theirs.content_sha256 == shard["content_sha256"]
        assert (ours.length, ours.max_id, ours.by_source) == (theirs.length, theirs.max_id, theirs.by_source)


def test_other_readers(both):
    """Any reader of Parquet gives the bytes, which are the ids little-endian."""
    one, build, width = both
    kind = "<u2" if width == 2 else "<i4"
    expected = [
        row for path in sorted((one / "train").glob("*")) for row in pq.read_table(path)["input_ids"].to_pylist()
    ]
    with duckdb.connect() as db:
        found = db.execute(f"select input_ids from '{build}/train/*.parquet' order by row_id").fetchall()
    assert [np.frombuffer(ids, kind).tolist() for (ids,) in found] == expected
    found = [
        row for path in sorted((build / "train").glob("*")) for row in pq.read_table(path)["input_ids"].to_pylist()
    ]
    assert [np.frombuffer(ids, kind).tolist() for ids in found] == expected
    card = (build / "README.md").read_text()
    assert f'numpy.frombuffer(rows[0]["input_ids"], "{kind}")' in card
    assert "frombuffer" not in (one / "README.md").read_text()


def test_ids_that_the_width_does_not_fit(tmp_path):
    schema = tables.shard_schema("binary", 6, 65_535)
    assert tables.id_bytes(schema, 6) == 2
    assert tables.id_bytes(schema, 3) == 4
    assert tables.id_bytes(tables.SHARD, 6) is None
    assert tables.shard_schema("binary", 6, 65_536).field("input_ids").type.byte_width == 24
    ids = np.array([[0, 1, 255, 256, 65_535, 7]], np.int32)
    column = rows.id_column(ids, schema)
    assert column.to_pylist() == [bytes([0, 0, 1, 0, 255, 0, 0, 1, 255, 255, 7, 0])]
    assert rows.ids_of(column, 6).tolist() == ids[0].tolist()
    assert rows.ids_of(rows.id_column(np.repeat(ids, 3, axis=0), schema).slice(1, 1), 6).tolist() == ids[0].tolist()
