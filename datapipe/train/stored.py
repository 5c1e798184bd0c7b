"""
Rows of train as the shard files say, read one by one with loops: the slow twin of what the feed gives to a model.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from datapipe import rows
from datapipe.feed import Dataset
from datapipe.train.loss import IGNORE


@dataclass(frozen=True)
class Stored:
    """A row by itself, as its shard says; allowed: which tokens may be predicted."""

    ids: list[int]
    sizes: list[int]
    allowed: list[bool]

    def labels(self) -> list[int]:
        """Token after token: the next one of the same segment, if it may be predicted."""
        found, start = [IGNORE] * (len(self.ids) - 1), 0
        for size in self.sizes:
            for i in range(start, start + size - 1):
                if self.allowed[i + 1]:
                    found[i] = self.ids[i + 1]
            start += size
        return found

    def segment(self) -> list[int]:
        """The number of each token's segment, 0 in padding."""
        numbers = [number for number, size in enumerate(self.sizes, 1) for _ in range(size)]
        return numbers + [0] * (len(self.ids) - len(numbers))


def stored(dataset: Dataset, row_ids: np.ndarray) -> list[Stored]:
    """Rows of train by id, read from the shard files and by no part of the feed; -1 is a row of padding."""
    found: dict[int, Stored] = {-1: Stored([dataset.train.pad] * dataset.train.length, [], [])}
    wanted = sorted({int(row) for row in row_ids} - {-1})
    for shard in dataset.train.shards:
        here = [row for row in wanted if shard.row_start <= row < shard.row_start + shard.rows]
        if here:
            with pq.ParquetFile(Path(dataset.path) / shard.path) as file:
                table = file.read(["row_id", "input_ids", "seg_len", "loss_mask"])
            for part in table.filter(np.isin(table["row_id"], here)).to_batches():
                found |= _rows(part, dataset.train.length)
    return [found[int(row)] for row in row_ids]


def _rows(batch: pa.RecordBatch, length: int) -> dict[int, Stored]:
    ids = rows.ids_of(batch["input_ids"], length).reshape(-1, length).tolist()
    masks, sizes = batch["loss_mask"].to_pylist(), batch["seg_len"].to_pylist()
    found: dict[int, Stored] = {}
    for number, row in enumerate(batch["row_id"].to_pylist()):
        mask = masks[number]
        allowed = [mask is None or bool(mask[i // 8] >> i % 8 & 1) for i in range(length)]
        found[row] = Stored(ids[number], sizes[number], allowed)
    return found
