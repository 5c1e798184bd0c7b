"""
Spill: rows scattered into buckets on disk, then read back bucket by bucket.

The one way to bring together what lies in many parts (shingle sets of a link group, signatures in order of
doc_id, tokens of a shard) while only a bucket is in memory.  Rows of a bucket come back in no promised order:
readers sort them by a unique key.
"""

import threading
from pathlib import Path

import pyarrow as pa


class Spill:
    """
    `buckets` files in `folder`; each holds Arrow streams of `schema`, appended about a `chunk` of bytes at a time,
    so that thousands of buckets need no thousands of open files.  `append` may be called from many threads.
    """

    def __init__(self, folder: Path, buckets: int, schema: pa.Schema, *, memory: int = 64 << 20):
        folder.mkdir(parents=True)
        self.folder, self.schema, self.buckets = folder, schema, buckets
        self._chunk = max(1 << 16, memory // max(1, buckets))
        self._waiting: list[list[pa.RecordBatch]] = [[] for _ in range(buckets)]
        self._held = [0] * buckets
        self._locks = [threading.Lock() for _ in range(min(buckets, 64))]

    def append(self, bucket: int, rows: pa.RecordBatch) -> None:
        """Add rows of `schema` to a bucket.  The batch must own its memory: pass `take`n rows, not slices."""
        with self._locks[bucket % len(self._locks)]:
            self._waiting[bucket].append(rows)
            self._held[bucket] += rows.nbytes
            if self._held[bucket] >= self._chunk:
                self._write(bucket)

    def read(self, bucket: int) -> pa.Table:
        """All rows of a bucket."""
        with self._locks[bucket % len(self._locks)]:
            if self._waiting[bucket]:
                self._write(bucket)
        path = self._path(bucket)
        tables = []
        if path.exists():
            with pa.OSFile(str(path)) as file:
                while file.tell() < file.size():
                    tables.append(pa.ipc.open_stream(file).read_all())
        return pa.concat_tables(tables) if tables else self.schema.empty_table()

    def drop(self, bucket: int) -> None:
        """Give the disk of a bucket back."""
        self._path(bucket).unlink(missing_ok=True)

    def _path(self, bucket: int) -> Path:
        return self.folder / f"{bucket:06d}.arrows"

    def _write(self, bucket: int) -> None:
        table = pa.Table.from_batches(self._waiting[bucket], self.schema).combine_chunks()
        with pa.OSFile(str(self._path(bucket)), mode="ab") as sink, pa.ipc.new_stream(sink, self.schema) as out:
            out.write_table(table)
        self._waiting[bucket], self._held[bucket] = [], 0
