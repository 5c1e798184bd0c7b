"""
Feed: the shards of a build as batches of a training job, and as files that other trainers read.

    with datapipe.open("web-mix") as data:
        for batch in data.loader("train", global_batch_rows=64, rank=rank, world=world, seed=1):
            ...

places.py     where a build lies: a folder here, or whatever fsspec opens, through a cache
dataset.py    a build, opened: its splits, their rows, their books
reading.py    rows by number, out of Parquet row groups or by memory map
verify.py     are these the files that were made?
batch.py      rows -> ids, labels, positions, segments
attention.py  masks of the segments
order.py      which row comes when
mixture.py    several data sets, by weight
loader.py     batches of each rank; course.py: without a position; ahead.py: made ahead by a thread
state.py      what was delivered, and where to go on
torch.py      the same under torch's DataLoader
exports/      nanoGPT, Megatron, OLMo, datatrove, MDS, litdata

Neither numba nor duckdb is loaded here: a training node wants numpy, pyarrow and pydantic.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from datapipe.feed.batch import Batch, Rows
    from datapipe.feed.dataset import Dataset, Split, open  # noqa: A004  the verb of the API
    from datapipe.feed.exports import export, read_export
    from datapipe.feed.loader import Loader
    from datapipe.feed.mixture import mix
    from datapipe.feed.state import consumed

_ROOMS = {
    "Batch": "batch",
    "Dataset": "dataset",
    "Loader": "loader",
    "Rows": "batch",
    "Split": "dataset",
    "consumed": "state",
    "export": "exports",
    "mix": "mixture",
    "open": "dataset",
    "read_export": "exports",
}
__all__ = ["Batch", "Dataset", "Loader", "Rows", "Split", "consumed", "export", "mix", "open", "read_export"]


def __getattr__(name: str) -> object:
    """Each name from its own file on first use, so that an export loads no loader and a loader no export."""
    if name not in _ROOMS:
        raise AttributeError(f"module 'datapipe.feed' has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(f"datapipe.feed.{_ROOMS[name]}"), name)
