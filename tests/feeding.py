"""Splits made of arrays, for what is tested without files: every column follows from the number of the row."""

import numpy as np

from datapipe.feed.batch import Rows
from datapipe.feed.order import Blocks


class Stub:
    """
    A split of any number of rows, none of which is kept: row r has segments of 1 to `length` tokens.

    full: rows of one segment without padding;  sources: how many;  masked: every third row has a loss mask
    """

    def __init__(self, rows, *, length=8, name="train", dataset="d" * 64, sources=2, shards=None, full=False,
                 masked=False):  # fmt: skip
        self.name, self.length, self.dataset_id, self.pad, self.storage = name, length, dataset, 0, "binary"
        self.tokenizer = "5" * 64
        self.sources = tuple("abcdefgh"[:sources])
        self.shards = shards or [rows]
        assert sum(self.shards) == rows
        self.rows, self.full, self.masked = rows, full, masked
        self.read_rows = 0

    @property
    def blocks(self):
        return Blocks.of(self.shards)

    def read(self, rows):
        self.read_rows += len(rows)
        return self._rows(rows, self.length)

    def narrow(self, rows):
        return self._rows(rows, 0)

    def doc_ids(self, docs):
        return [f"{doc:032x}" for doc in docs]

    def _rows(self, rows, width):
        rows = np.asarray(rows, np.int64)
        assert len(rows) == 0 or (rows.min() >= 0 and rows.max() < self.rows)
        sizes = [[self.length] if self.full else self.segments(int(r)) for r in rows]
        offsets = np.concatenate(([0], np.cumsum([len(each) for each in sizes]))).astype(np.int64)
        seg_len = np.array([size for each in sizes for size in each], np.int32)
        row = np.repeat(rows, np.diff(offsets))
        place = np.arange(len(row)) - np.repeat(offsets[:-1], np.diff(offsets))
        n_tokens = np.array([sum(each) for each in sizes], np.int32).reshape(-1)
        mask = None
        n_targets = n_tokens - np.diff(offsets).astype(np.int32)
        if self.masked:
            mask = np.ones((len(rows), self.length), bool)
            mask[:, 1] = rows % 3 != 0
            ends = np.array([each[0] for each in sizes])
            n_targets = n_targets - ((rows % 3 == 0) & (ends > 1)).astype(np.int32)
        ids = (rows[:, None] * self.length + np.arange(self.length)) % 50_000
        return Rows(rows, ids[:, :width].astype(np.int32), offsets, seg_len, row * 4 + place,
                    np.zeros(len(row), np.int32), np.full(len(row), 3, np.uint8),
                    (row % len(self.sources)).astype(np.int16), mask, n_tokens, n_targets)  # fmt: skip

    def segments(self, row):
        """One to three segments that leave up to two places free."""
        room = self.length - row % 3
        first = 1 + row * 7 % room
        return [first] if first == room else [first, room - first] if row % 2 else [first, *([1] * (room - first))][:3]


def row_ids(batches):
    """All row ids of batches, one after the other."""
    found = [batch.row_ids for batch in batches]
    return np.concatenate(found) if found else np.empty(0, np.int64)
