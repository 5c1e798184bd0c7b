"""The narrow columns of many row groups, end to end in one set of arrays: rows of many groups are taken at once."""

import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from datapipe.feed.batch import Rows

OF_SEGMENTS = {"seg_len": np.int32, "seg_doc": np.int64, "seg_start": np.int32, "seg_flags": np.uint8,
               "seg_source": np.int16}  # fmt: skip
OF_ROWS = {"begin": np.int64, "count": np.int64, "n_tokens": np.int32, "n_targets": np.int32}


class Narrow:
    """Row groups by their number; when they take more than `room` bytes, all are let go of.  Threads may share it."""

    def __init__(self, room: int):
        self._room, self._lock, self._held = room, threading.Lock(), _Held()

    def take(self, rows: np.ndarray, groups: Sequence[int], at: np.ndarray, read: Callable[[int], Rows]) -> Rows:
        """
        Rows without ids, in that order.

        rows: int64[k], their row ids;  groups: of each;  at: int64[k], place in the group;  read: gives a group
        """
        asked = dict.fromkeys(groups)
        with self._lock:
            if self._held.bytes > self._room:
                self._held = _Held()
            held = self._held
            missing = [group for group in asked if group not in held.first]
        for group in missing:
            found = read(group)
            with self._lock:
                held.add(group, found)  # also where another thread was faster
        return held.take(rows, groups, at)


class _Held:
    """
    first: number of a group -> place of its first row;  masks: of groups that have some, bool[rows, length]

    begin, count: of each row, into the columns of segments.  Arrays only ever grow at their ends.
    """

    def __init__(self) -> None:
        self.first: dict[int, int] = {}
        self.bytes = 0
        self._masks: dict[int, np.ndarray] = {}
        self._columns: dict[str, np.ndarray] = {
            name: np.empty(64, kind) for name, kind in (OF_SEGMENTS | OF_ROWS).items()
        }
        self._rows = self._segments = 0

    def add(self, group: int, rows: Rows) -> None:
        if group in self.first:
            return
        given = vars(rows) | {"begin": rows.offsets[:-1] + self._segments, "count": np.diff(rows.offsets)}
        for names, used in ((OF_ROWS, self._rows), (OF_SEGMENTS, self._segments)):
            for name in names:
                self.bytes += self._put(name, used, given[name])
        if rows.mask is not None:
            self._masks[group] = rows.mask
            self.bytes += rows.mask.nbytes
        self.first[group] = self._rows
        self._rows, self._segments = self._rows + len(rows), self._segments + len(rows.seg_len)

    def _put(self, name: str, used: int, values: np.ndarray) -> int:
        """Behind what is there; the bytes of it."""
        column, end = self._columns[name], used + len(values)
        if end > len(column):
            column = np.empty(2 * end, column.dtype)
            column[:used] = self._columns[name][:used]
        column[used:end] = values
        self._columns[name] = column
        return len(values) * column.itemsize

    def take(self, rows: np.ndarray, groups: Sequence[int], at: np.ndarray) -> Rows:
        place = at + np.fromiter(map(self.first.__getitem__, groups), np.int64, len(groups))
        of_rows: dict[str, Any] = {name: self._columns[name][place] for name in OF_ROWS}
        begin, count = of_rows.pop("begin"), of_rows.pop("count")
        offsets = np.zeros(len(rows) + 1, np.int64)
        np.cumsum(count, out=offsets[1:])
        which = np.arange(offsets[-1]) + np.repeat(begin - offsets[:-1], count)
        segments = {name: self._columns[name][which] for name in OF_SEGMENTS}
        return Rows(row_ids=rows, input_ids=np.empty((len(rows), 0), np.int32), offsets=offsets,
                    mask=self._mask(groups, at), **segments, **of_rows)  # fmt: skip

    def _mask(self, groups: Sequence[int], at: np.ndarray) -> np.ndarray | None:
        """bool[k, length]; None where no group has masks."""
        masked = next((group for group in groups if group in self._masks), None) if self._masks else None
        if masked is None:
            return None
        found = np.ones((len(groups), self._masks[masked].shape[1]), bool)
        for number, (group, row) in enumerate(zip(groups, at.tolist(), strict=True)):
            if group in self._masks:
                found[number] = self._masks[group][row]
        return found
