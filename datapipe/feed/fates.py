"""Which documents the rows of fates.parquet are, as shards name them."""

import os
from functools import partial

import numpy as np
import pyarrow.parquet as pq

from datapipe.errors import IntegrityError
from datapipe.feed.kept import Kept
from datapipe.feed.verify import Guard, about

TABLE = "fates.parquet"
KEPT = 16 * 65_536  # doc_ids that are kept: 45 MB


class Fates:
    """doc_id by row number, a row group of the table at a time."""

    def __init__(self, guard: Guard):
        found = [file for file in guard.made.files if file.path == TABLE]
        self._where = f"{guard.place.name}/{TABLE}"
        if not found:
            raise IntegrityError(f"{self._where}: is not in files[] of manifest.json")
        self._guard, self._file = guard, found[0]
        self._reset()
        with self._open() as table:
            groups = range(table.num_row_groups)
            self._starts = np.cumsum([0, *(table.metadata.row_group(group).num_rows for group in groups)])

    def _reset(self) -> None:
        self._pid = os.getpid()
        self._names: Kept[int, np.ndarray] = Kept(KEPT, len)

    def _open(self) -> pq.ParquetFile:
        with about(self._where):
            path = self._guard.path(self._file)
            source = self._guard.place.stream(self._file) if path is None else path
            return pq.ParquetFile(source, memory_map=path is not None, page_checksum_verification=True)

    def doc_ids(self, rows: np.ndarray) -> list[str]:
        """doc_id of each of int64[k] rows of the table."""
        if len(rows) and (rows.min() < 0 or rows.max() >= self._starts[-1]):
            raise IntegrityError(f"{self._where}: {self._starts[-1]:,} rows, but a shard names row {rows.max():,}")
        if self._pid != os.getpid():  # after a fork locks may be held by threads that are not here
            self._reset()
        group = np.searchsorted(self._starts, rows, side="right") - 1
        found = np.empty(len(rows), "S32")
        for number in np.unique(group).tolist():
            names = self._names.get(number, partial(self._read, number))
            here = group == number
            found[here] = names[rows[here] - self._starts[number]]
        return [name.decode("ascii") for name in found.tolist()]

    def _read(self, group: int) -> np.ndarray:
        """The doc_id of a row group, as 32 bytes each."""
        with self._open() as table, about(self._where):
            return np.array(table.read_row_group(group, columns=["doc_id"])["doc_id"].to_pylist(), "S32")
