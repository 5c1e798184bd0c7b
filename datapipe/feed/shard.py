"""One shard file, opened: the row groups of its columns."""

import functools
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from datapipe import rows as meaning
from datapipe import tables
from datapipe.build_manifest.types import Shard
from datapipe.errors import IntegrityError
from datapipe.feed import page
from datapipe.feed.batch import Rows
from datapipe.feed.verify import Guard, about

GROUP = tables.SHARD_ROW_GROUP
SEGMENTS = ("seg_len", "seg_doc", "seg_start", "seg_flags", "seg_source")


class ShardFile:
    """A shard whose file has passed the guard.  Several threads may read it."""

    def __init__(self, guard: Guard, shard: Shard, length: int):
        """`length`: ids in a row."""
        self._guard, self._shard, self._length = guard, shard, length
        self._file = guard.files[shard.path]
        self._where = f"{guard.place.name}/{shard.path}"
        self._idle: list[pq.ParquetFile] = []  # one is used by one thread at a time
        self._metadata: Any = None
        with about(self._where), self._parquet() as parquet:
            self._metadata = parquet.metadata
            schema = parquet.schema_arrow.remove_metadata()
            self._binary = tables.id_bytes(schema, length)
            if self._binary is None and not schema.equals(tables.SHARD):
                raise self._damaged("its columns are not those of a shard")
            self._layout()
            self._masked = [not self._all_null(group) for group in range(self._metadata.num_row_groups)]
            self._data = None if guard.place.streams else self._whole_file()
            self._levels: dict[int, bytes] = {}  # of input_ids, by rows of the group
            self._mapped = self._map() if self._binary else None
            self._proven = set[int]()
            if self._mapped is not None:
                self._prove(0)

    def _damaged(self, what: str) -> IntegrityError:
        return IntegrityError(f"{self._where}: {what}")

    @contextmanager
    def _parquet(self) -> Generator[pq.ParquetFile]:
        """A handle of this thread's own; the file passes the guard again, so one that was replaced is seen."""
        try:
            parquet = self._idle.pop()
        except IndexError:
            path = self._guard.path(self._file)
            source = self._guard.place.stream(self._file) if path is None else path
            parquet = pq.ParquetFile(
                source,
                metadata=self._metadata,
                memory_map=path is not None,
                pre_buffer=path is None,
                page_checksum_verification=True,
            )
        yield parquet
        self._idle.append(parquet)  # not after an error

    def _layout(self) -> None:
        """Row groups of GROUP rows, the last may be short; row_id count on from row_start."""
        if self._metadata.num_rows != self._shard.rows:
            raise self._damaged(f"{self._metadata.num_rows:,} rows, recorded were {self._shard.rows:,}")
        for group in range(self._metadata.num_row_groups):
            rows = self._metadata.row_group(group).num_rows
            if rows != self.rows(group):
                raise self._damaged(f"row group {group} has {rows} rows, expected {self.rows(group)}")
            found = self._metadata.row_group(group).column(0).statistics
            first = self._shard.row_start + group * GROUP
            if found is None or not found.has_min_max:
                self._row_ids(group, self._read(group, ["row_id"]))
            elif (found.min, found.max) != (first, first + rows - 1):
                raise self._damaged(f"its rows are {found.min} to {found.max} in row group {group}, not from {first}")

    def _row_ids(self, group: int, table: pa.Table) -> None:
        first = self._shard.row_start + group * GROUP
        if not np.array_equal(table["row_id"].to_numpy(), np.arange(first, first + self.rows(group))):
            raise self._damaged(f"the row_id of row group {group} do not count on from {first}")

    def rows(self, group: int) -> int:
        """How many rows a group has."""
        return min(GROUP, self._shard.rows - group * GROUP)

    @functools.cached_property
    def _columns(self) -> dict[str, int]:
        """The number of each leaf column, by the name of its top one."""
        paths = [self._metadata.row_group(0).column(number).path_in_schema for number in range(len(tables.SHARD))]
        return {path.split(".", 1)[0]: number for number, path in enumerate(paths)}

    def _all_null(self, group: int) -> bool:
        chunk = self._metadata.row_group(group).column(self._columns["loss_mask"])
        return chunk.is_stats_set and chunk.statistics.null_count == self.rows(group)

    def _read(self, group: int, columns: list[str]) -> pa.Table:
        with about(self._where), self._parquet() as parquet:
            return parquet.read_row_group(group, columns=columns, use_threads=False)

    def narrow(self, group: int) -> Rows:
        """All of a row group but the ids."""
        careful, masked = self._guard.mode == "size", self._masked[group]
        names = [*SEGMENTS, *(("loss_mask", "n_targets") if masked else ()), *(("row_id",) * careful)]
        table = self._read(group, names)
        if careful:
            self._row_ids(group, table)
        number, where = len(table), f"row group {group}"
        offsets, columns = np.zeros(0, np.int64), list[np.ndarray]()
        for name in SEGMENTS:
            begin, values = self._list(table[name], name)
            if columns and not np.array_equal(begin, offsets):
                raise self._damaged(f"{where}: {name} has another number of segments than {SEGMENTS[0]}")
            offsets = begin
            columns.append(values)
        ends = np.concatenate(([0], np.cumsum(columns[0], dtype=np.int64)))
        n_tokens = ends[offsets[1:]] - ends[offsets[:-1]]
        if len(columns[0]) and (columns[0].min() < 1 or n_tokens.max() > self._length):
            raise self._damaged(f"{where}: segments do not fit into rows of {self._length}")
        n_targets, mask = n_tokens - np.diff(offsets), None
        if masked:
            n_targets = table["n_targets"].to_numpy()
            mask = self._mask(where, table)
        first = self._shard.row_start + group * GROUP
        return Rows(
            row_ids=np.arange(first, first + number),
            input_ids=np.zeros((number, 0), np.int32),
            offsets=offsets,
            **dict(zip(SEGMENTS, columns, strict=True)),
            mask=mask,
            n_tokens=n_tokens.astype(np.int32),
            n_targets=n_targets.astype(np.int32),
        )

    def _mask(self, where: str, table: pa.Table) -> np.ndarray | None:
        try:
            return meaning.unmasked(_whole(table["loss_mask"]), self._length)
        except ValueError:
            raise self._damaged(f"{where}: a loss_mask that is not of {self._length} bits") from None

    def _list(self, column: pa.ChunkedArray, name: str) -> tuple[np.ndarray, np.ndarray]:
        """int64[rows + 1] offsets and the values of a list column."""
        array = _whole(column)
        if array.null_count or array.values.null_count:
            raise self._damaged(f"{name} has nulls")
        offsets = array.offsets.to_numpy().astype(np.int64)
        return offsets - offsets[0], array.values.to_numpy()[offsets[0] : offsets[-1]]

    def ids(self, group: int) -> np.ndarray:
        """int32 or uint16 [rows, length], decoded."""
        number = self.rows(group)
        found = None if self._binary else self._page_ids(group)
        return (self._decoded(group) if found is None else found).reshape(number, self._length)

    def _decoded(self, group: int) -> np.ndarray:
        """int32[rows x length], by pyarrow."""
        column = _whole(self._read(group, ["input_ids"])["input_ids"])
        if not self._binary:
            offsets, _ = self._list(pa.chunked_array([column]), "input_ids")
            if not np.array_equal(offsets, np.arange(self.rows(group) + 1) * self._length):
                raise self._damaged(f"row group {group}: input_ids are not {self._length} in every row")
        return meaning.ids_of(column, self._length)

    def _page_ids(self, group: int) -> np.ndarray | None:
        """
        The same out of the pages themselves, where their levels are those that pyarrow gave the same values for.

        Row groups of as many rows have the same levels, since all rows are of one length.
        """
        if self._data is None:
            return None
        chunk, rows = self._chunks[group], self.rows(group)
        start = chunk.data_page_offset
        found = page.read(self._data[start : start + chunk.total_compressed_size], rows * self._length)
        if found is None or (known := self._levels.get(rows)) == found.levels:
            return found and found.values
        values = self._decoded(group)
        if known is None and np.array_equal(values, found.values):
            self._levels[rows] = found.levels
        return values

    @property
    def mapped(self) -> bool:
        """Whether single rows are read by memory map."""
        return self._mapped is not None

    def mapped_ids(self, group: int) -> np.ndarray:
        """[rows, length] of a group as they lie in the file, by memory map: pages are not checked again."""
        if self._guard.mode == "size" and group not in self._proven:
            self._prove(group)
        return self._page(group)

    def _whole_file(self) -> memoryview | None:
        path = self._guard.path(self._file)
        return None if path is None else np.memmap(path, np.uint8, "r").data

    def _map(self) -> np.ndarray | None:
        """uint8[bytes of the file], where every row group holds its ids as one plain page."""
        for chunk in self._chunks:
            if chunk.compression != "UNCOMPRESSED" or chunk.has_dictionary_page or "PLAIN" not in chunk.encodings:
                return None
        return None if self._data is None else np.asarray(self._data)

    @functools.cached_property
    def _chunks(self) -> list[Any]:
        """Where each row group has its ids."""
        groups = range(self._metadata.num_row_groups)
        return [self._metadata.row_group(group).column(self._columns["input_ids"]) for group in groups]

    @functools.cached_property
    def _ends(self) -> list[int]:
        return [chunk.data_page_offset + chunk.total_compressed_size for chunk in self._chunks]

    def _page(self, group: int) -> np.ndarray:
        """uint16 or int32 [rows, length]: the values of the one page end where the column's chunk ends."""
        assert self._mapped is not None
        assert self._binary is not None
        stop, rows = self._ends[group], self.rows(group)
        data = self._mapped[stop - rows * self._length * self._binary : stop]
        return data.view("<u2" if self._binary == 2 else "<i4").reshape(rows, self._length)

    def _prove(self, group: int) -> None:
        """The memory map gives what pyarrow reads, which sees the page's checksum."""
        if not np.array_equal(self._decoded(group), self._page(group).reshape(-1)):
            raise self._damaged(f"row group {group}: the ids are not one page")
        self._proven.add(group)


def _whole(column: pa.ChunkedArray) -> Any:
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
