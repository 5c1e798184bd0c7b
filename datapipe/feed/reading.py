"""
Rows of a split by their number, out of row groups.

Storage `list`: a group's ids are decoded whole, and kept while a window of groups is read from.  Storage `binary` on
this machine: a row's ids lie at a known byte, and are read by memory map.  The narrow columns, a hundredth of the ids,
are kept longer.
"""

import os
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from datapipe.build_manifest.types import Shard
from datapipe.feed.batch import Rows
from datapipe.feed.kept import Kept
from datapipe.feed.narrow import Narrow
from datapipe.feed.shard import GROUP, ShardFile
from datapipe.feed.verify import Guard

KEPT_IDS = 2 * 16 * GROUP  # rows whose decoded ids are kept: two windows of block-v1, for one is read ahead
KEPT_NARROW = 64_000_000  # bytes of narrow columns that are kept
OPEN = 256  # shards open at once
GROUPS = 32  # bits: a row group is known by number of its shard << GROUPS | its number there


class Reader:
    """Rows of one split.  Threads may share it; over a fork or a pickle it goes without files and memory."""

    def __init__(self, guard: Guard, shards: Sequence[Shard], length: int):
        """`length`: ids in a row."""
        self._guard, self._shards, self.length = guard, tuple(shards), length
        self._starts = np.cumsum([0, *(shard.rows for shard in shards)])
        self._reset()

    def _reset(self) -> None:
        self._pid = os.getpid()
        self._open: Kept[int, ShardFile] = Kept(OPEN, lambda _: 1)
        self._ids: Kept[int, np.ndarray] = Kept(KEPT_IDS, len)
        self._narrow = Narrow(KEPT_NARROW)

    def __getstate__(self) -> dict[str, Any]:
        return {"_guard": self._guard, "_shards": self._shards, "length": self.length, "_starts": self._starts}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._reset()

    def __len__(self) -> int:
        return int(self._starts[-1])

    def close(self) -> None:
        """Let go of files and memory; what is read afterwards opens them anew."""
        self._reset()

    def read(self, rows: np.ndarray) -> Rows:
        """Rows in the order asked; one may come twice.  Its arrays may be read-only."""
        rows, groups, at = self._asked(rows)
        books = self._narrow.take(rows, groups, at, self._read_narrow)
        return Rows(**{**vars(books), "input_ids": self._all_ids(groups, at)})

    def narrow(self, rows: np.ndarray) -> Rows:
        """The same without ids: input_ids has no column."""
        return self._narrow.take(*self._asked(rows), self._read_narrow)

    def _asked(self, rows: np.ndarray) -> tuple[np.ndarray, list[int], np.ndarray]:
        """int64[k] rows, the row group of each, int64[k] their places in it."""
        if self._pid != os.getpid():  # after a fork locks may be held by threads that are not here
            self._reset()
        rows = np.array(rows).reshape(-1)
        if len(rows) and rows.dtype.kind not in "iu":  # a mask of truths would be read as rows 0 and 1
            raise IndexError(f"rows are whole numbers, not {rows.dtype}")
        rows = rows.astype(np.int64, copy=False)
        if len(rows) and (rows.min() < 0 or rows.max() >= len(self)):
            raise IndexError(f"row {rows.max() if rows.min() >= 0 else rows.min()} of {len(self)}")
        shard = np.searchsorted(self._starts, rows, side="right") - 1
        group, at = np.divmod(rows - self._starts[shard], GROUP)
        return rows, (shard << GROUPS | group).tolist(), at

    def _all_ids(self, groups: Sequence[int], at: np.ndarray) -> np.ndarray:
        """int32[k, length]."""
        read = {group: self._group(group) for group in dict.fromkeys(groups)}
        if len(read) == 1 and (np.diff(at) == 1).all():
            return read[groups[0]][at[0] : at[-1] + 1].astype(np.int32, copy=False)
        found = np.empty((len(at), self.length), np.int32)
        for number, (group, row) in enumerate(zip(groups, at.tolist(), strict=True)):
            found[number] = read[group][row]
        return found

    def _group(self, group: int) -> np.ndarray:
        """[rows, length] ids of a row group, decoded as int32 or as they lie in the mapped file."""
        file, number = self._file(group >> GROUPS), group & (1 << GROUPS) - 1
        return file.mapped_ids(number) if file.mapped else self._ids.get(group, partial(file.ids, number))

    def _read_narrow(self, group: int) -> Rows:
        return self._file(group >> GROUPS).narrow(group & (1 << GROUPS) - 1)

    def _file(self, number: int) -> ShardFile:
        return self._open.get(number, lambda: ShardFile(self._guard, self._shards[number], self.length))
