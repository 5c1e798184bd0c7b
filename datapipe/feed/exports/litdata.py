"""
litdata: train/index.json and train/chunk-*.bin, written by litdata itself; a sample is a row of the shards.

Read with litdata.StreamingDataset(".../train"); collating is the reader's, for seg_* have another length in every row.
index.json holds the time of writing, so two exports differ there.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from datapipe.feed.batch import Rows
from datapipe.feed.exports import formats
from datapipe.feed.exports.samples import ARRAYS, samples

ABOUT = "rows as samples of litdata, by its own package"
UNIT = "rows"
LARGEST, PACKAGE, READER = None, ("litdata", "litdata"), "litdata.StreamingDataset(...)"
LOSES: tuple[formats.Lost, ...] = ()
CHUNK = "64MB"


class Writer:
    """One BinaryWriter, which is what litdata.optimize runs in each of its processes."""

    def __init__(self, folder: Path, split: str, target: formats.Target):  # noqa: ARG002  one type for all
        from litdata.streaming.writer import BinaryWriter  # pyright: ignore[reportMissingImports]

        self._binary = BinaryWriter(str(folder / split), chunk_bytes=CHUNK)
        self._count = 0

    def shard(self) -> None:
        """Its chunks are cut by bytes, not as our shards."""

    def write(self, rows: Rows) -> None:
        for sample in samples(rows):
            self._binary.add_item(self._count, sample)
            self._count += 1

    def close(self) -> Mapping[str, Any]:
        self._binary.done()
        self._binary.merge()
        return {"dtype": ARRAYS["input_ids"]}

    def abandon(self) -> None:
        """It holds neither files nor threads between two samples."""
