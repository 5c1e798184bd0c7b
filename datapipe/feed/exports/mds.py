"""
MDS: train/index.json and train/shard.*.mds, written by mosaicml-streaming itself; a sample is a row of the shards.

Read with streaming.StreamingDataset(local=".../train", batch_size=...); collating is the reader's, for seg_* have
another length in every row.  It checks the hashes in index.json only where validate_hash="sha256" asks for it.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from datapipe.feed.batch import Rows
from datapipe.feed.exports import formats
from datapipe.feed.exports.samples import ARRAYS, MASK, SCALARS, samples

ABOUT = "rows as samples of mosaicml-streaming, by its own package"
UNIT = "rows"
LARGEST, PACKAGE = None, ("streaming", "mosaicml-streaming")
READER = "streaming.StreamingDataset(local=...)"
LOSES: tuple[formats.Lost, ...] = ()
HASHES = ["sha256"]


class Writer:
    """One MDSWriter."""

    def __init__(self, folder: Path, split: str, target: formats.Target):
        from streaming import MDSWriter  # pyright: ignore[reportMissingImports]

        arrays = {name: f"ndarray:{kind}" for name, kind in ARRAYS.items()}
        arrays["input_ids"] += f":{target.length}"
        columns = dict.fromkeys(SCALARS, "int") | arrays | {MASK: "bytes"}
        self._mds = MDSWriter(out=str(folder / split), columns=columns, hashes=HASHES)

    def shard(self) -> None:
        """Its shards are cut by bytes, not as ours."""

    def write(self, rows: Rows) -> None:
        for sample in samples(rows):
            self._mds.write(sample)

    def close(self) -> Mapping[str, Any]:
        self._mds.finish()
        return {"dtype": ARRAYS["input_ids"]}

    def abandon(self) -> None:
        self._mds.executor.shutdown(wait=True, cancel_futures=True)
