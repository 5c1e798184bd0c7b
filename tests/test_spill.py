"""Rows scattered into buckets come back, all of them, from memory or from disk."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest

from datapipe.spill import Spill

SCHEMA = pa.schema([("n", pa.int64()), ("ids", pa.list_(pa.int32()))])


def batch(n: int) -> pa.RecordBatch:
    return pa.record_batch([pa.array([n]), pa.array([[n] * (n % 5)], pa.list_(pa.int32()))], schema=SCHEMA)


@pytest.mark.parametrize("memory", [0, 64 << 20], ids=["chunks on disk", "all in memory until read"])
def test_every_row_comes_back_from_its_bucket(tmp_path: Path, memory: int):
    spill = Spill(tmp_path / "spill", 3, SCHEMA, memory=memory)
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda n: spill.append(n % 3, batch(n)), range(9000)))
    for bucket in range(3):
        table = spill.read(bucket).sort_by("n")
        assert table["n"].to_pylist() == list(range(bucket, 9000, 3))
        assert table["ids"].to_pylist() == [[n] * (n % 5) for n in range(bucket, 9000, 3)]


def test_an_empty_bucket_is_an_empty_table(tmp_path: Path):
    assert Spill(tmp_path / "spill", 2, SCHEMA).read(1) == SCHEMA.empty_table()


def test_dropping_a_bucket_gives_its_disk_back(tmp_path: Path):
    spill = Spill(tmp_path / "spill", 1, SCHEMA)
    spill.append(0, batch(3))
    spill.read(0)
    spill.drop(0)
    assert list((tmp_path / "spill").iterdir()) == []
