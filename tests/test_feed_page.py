"""Ids read out of their pages, and narrow columns kept in one piece, are those that pyarrow gives."""

from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from feeding import Stub
from hypothesis import given, settings
from hypothesis import strategies as st

from datapipe import tables
from datapipe.build_manifest.types import Shard
from datapipe.errors import IntegrityError
from datapipe.feed import page, shard
from datapipe.feed.narrow import Narrow
from datapipe.shards import OPTIONS

NAME = "shard-00000.parquet"


class Guard:
    """Lets everything through."""

    mode = "lazy"

    def __init__(self, folder):
        self.folder, self.files = folder, {NAME: NAME}
        self.place = type("Place", (), {"name": str(folder), "streams": False})

    def path(self, name):
        return self.folder / name


def write(folder, lists, **options):
    """A shard of these lists, each row one segment."""
    sizes = [len(each) for each in lists]
    one = {name: [[0]] * len(lists) for name in ("seg_doc", "seg_start", "seg_flags", "seg_source")}
    columns = one | {"row_id": range(len(lists)), "input_ids": lists, "seg_len": [[size] for size in sizes],
                     "loss_mask": [None] * len(lists), "n_tokens": sizes, "n_targets": sizes, "n_pad": sizes,
                     "sum_len_sq": sizes}  # fmt: skip
    table = pa.table({name: columns[name] for name in tables.SHARD.names}, schema=tables.SHARD)
    tables.write_stream(folder / NAME, tables.SHARD, table.to_batches(), row_group=64, **(OPTIONS | options))
    entry = Shard(path=NAME, rows=len(lists), row_start=0, tokens=1, targets=1, content_sha256="0" * 64)
    return shard.ShardFile(Guard(folder), entry, sizes[0])  # pyright: ignore[reportArgumentType]  what of a guard it asks


def chunk(folder, group=0):
    """The bytes of a group's ids, and how many there are."""
    where = pq.read_metadata(folder / NAME).row_group(group).column(1)
    data = (folder / NAME).read_bytes()
    return data[where.data_page_offset :][: where.total_compressed_size], where.num_values


def some(rows, length, largest, seed=0):
    return np.random.default_rng(seed).integers(0, largest + 1, (rows, length)).astype(np.int32)


@pytest.mark.parametrize(("rows", "length", "largest"), [
    (200, 16, 255), (200, 16, 65_535), (200, 16, 65_536), (64, 1, 2**31 - 1), (130, 2, 0), (1, 300, 999),
    (140, 9000, 50_256), (140, 9000, 300_000),
])  # fmt: skip
def test_ids_are_those_of_pyarrow(tmp_path, monkeypatch, rows, length, largest):
    ids, asked = some(rows, length, largest), []
    ids[:60] %= 1000  # where there are several pages, the first of them need less room
    file, slow = write(tmp_path, ids.tolist()), shard.ShardFile._decoded
    monkeypatch.setattr(shard.ShardFile, "_decoded", lambda self, group: asked.append(group) or slow(self, group))
    for group, start in enumerate(range(0, rows, 64)):
        for _ in range(2):
            found = file.ids(group)
            assert np.array_equal(found, ids[start : start + 64])
    shapes = {min(64, rows - start) for start in range(0, rows, 64)}
    assert len(asked) == len(shapes), "pyarrow is asked once for each number of rows"


@pytest.mark.parametrize("options", [
    {"compression": "snappy", "compression_level": None}, {"compression": "none", "compression_level": None},
    {"write_page_checksum": False}, {"data_page_version": "2.0"}, {"use_byte_stream_split": False},
    {"use_byte_stream_split": False, "use_dictionary": True},
], ids=str)  # fmt: skip
def test_other_pages_are_left_to_pyarrow(tmp_path, options):
    ids = some(130, 16, 999)
    file = write(tmp_path, ids.tolist(), **options)
    assert page.read(memoryview(chunk(tmp_path)[0]), 64 * 16) is None
    assert [np.array_equal(file.ids(group), ids[64 * group :][:64]) for group in range(3)] == [True] * 3


def test_a_chunk_of_any_bytes_is_read_right_or_not_at_all(tmp_path):
    write(tmp_path, some(64, 16, 999).tolist())
    good, values = chunk(tmp_path)
    whole = page.read(memoryview(good), values)
    assert whole is not None
    expected = whole.values.tolist()
    for at in range(len(good)):
        for bit in (1, 128):
            data = bytearray(good)
            data[at] ^= bit
            found = page.read(memoryview(data), values)
            assert found is None or found.values.tolist() == expected, "statistics in the header may be anything"
        assert page.read(memoryview(good[:at]), values) is None
    assert page.read(memoryview(good + b"x"), values) is None
    assert page.read(memoryview(good), values - 1) is None


def test_lists_of_another_length_are_refused(tmp_path):
    """The second group has as many values as the first, in other rows: its levels differ, and so pyarrow is asked."""
    rows = [[1] * 4] * 64 + [[1] * 4] * 62 + [[1] * 3, [1] * 5]
    file = write(tmp_path, rows)
    assert file.ids(0).tolist() == rows[:64]
    with pytest.raises(IntegrityError, match="row group 1: input_ids are not 4 in every row"):
        file.ids(1)


@given(st.lists(st.lists(st.integers(0, 199), min_size=0, max_size=40), min_size=1, max_size=6),
       st.sampled_from([0, 3000, 10**9]), st.booleans())  # fmt: skip
@settings(max_examples=60, deadline=None)
def test_narrow_columns_of_many_groups(asked, room, masked):
    stub = Stub(200, masked=masked)
    narrow, read = Narrow(room), []

    def group(number):
        read.append(number)
        return stub.narrow(np.arange(64 * number, min(64 * number + 64, 200)))

    for rows in map(np.array, asked):
        rows = rows.astype(np.int64)
        found, expected = narrow.take(rows, (rows // 64).tolist(), rows % 64, group), stub.narrow(rows)
        for name, value in vars(expected).items():
            here = getattr(found, name)
            if name != "mask" or len(rows):
                assert (here is None) == (value is None), name
                assert here is None or (here.dtype == value.dtype and np.array_equal(here, value)), name
    if room == 10**9:
        assert len(read) == len(set(read)), "each group once"


def test_threads_share_narrow_columns():
    stub, narrow = Stub(64 * 50), Narrow(20_000)
    asked = [np.random.default_rng(seed).integers(0, 64 * 50, 30) for seed in range(100)]

    def take(rows):
        return narrow.take(
            rows, (rows // 64).tolist(), rows % 64, lambda n: stub.narrow(np.arange(64 * n, 64 * n + 64))
        )

    with ThreadPoolExecutor(8) as pool:
        for rows, found in zip(asked, pool.map(take, asked), strict=True):
            expected = stub.narrow(rows)
            assert [a == b for a, b in pairwise((found.seg_len.tolist(), expected.seg_len.tolist()))] == [True]
            assert found.offsets.tolist() == expected.offsets.tolist()
            assert found.seg_doc.tolist() == expected.seg_doc.tolist()
