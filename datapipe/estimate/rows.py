"""
The rows of a build as work: all have as many positions, attention goes with the squares of their documents' lengths.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from datapipe.build_manifest import load
from datapipe.errors import DataError, IntegrityError, ManifestError
from datapipe.estimate.quantities import show


@dataclass(frozen=True)
class Work:
    """tokens, sum_len_sq: int64 of each row of train, in stored order; length: positions of a row."""

    name: str
    length: int
    tokens: np.ndarray
    sum_len_sq: np.ndarray

    @property
    def core_share(self) -> float:
        """What attention within documents costs, over attention within whole rows."""
        return float(self.sum_len_sq.mean()) / self.length**2

    def unevenness(self, ranks: int, rows: int, fixed: float, square: float) -> float:
        """
        Mean over global batches of ranks x rows of the fullest rank's work over the mean rank's.

        fixed: operations of a row whatever is in it; square: of a unit of sum_len_sq.  Rank r has rows r, r + ranks...
        """
        return _unevenness(fixed + square * self.sum_len_sq.astype(np.float64), ranks, rows)

    def describe(self, ranks: int, rows: int) -> str:
        squares = self.sum_len_sq
        tokens, lengths = _unevenness(self.tokens, ranks, rows), _unevenness(squares, ranks, rows)
        return (
            f"{self.name}: {len(squares):,} rows of {self.length:,}; documents by themselves cost "
            f"{show(self.core_share, 'share')} of attention over whole rows; the fullest of {ranks} ranks has "
            f"{tokens:.3f} x the mean tokens, {lengths:.3f} x the mean of squared lengths (rows in stored order)"
        )


def _unevenness(work: np.ndarray, ranks: int, rows: int) -> float:
    """Mean of maximum over mean of the ranks, over whole global batches; 1 where there is nothing to compare."""
    whole = len(work) // (ranks * rows)
    if ranks < 2 or not whole:
        return 1.0
    each = work[: whole * ranks * rows].astype(np.float64).reshape(whole, rows, ranks).sum(axis=1)
    return float(each.max(axis=1).sum() / each.mean(axis=1).sum())


def read(build: Path) -> Work:
    """The rows of a build's train split; an error says why there are none."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    made = load(build)
    shards = made.splits.train.shards
    length = (made.manifest.get("sequences") or {}).get("length")
    if not shards or length is None:
        raise DataError(f"{build}: has no shards of train: a build without a tokenizer ends after its stages")
    found: list[tuple[np.ndarray, np.ndarray]] = []
    for shard in shards:
        path = build / shard.path
        try:
            table = pq.read_table(path, columns=["n_tokens", "sum_len_sq"])
        except FileNotFoundError:
            raise IntegrityError(f"{path}: is missing; manifest.json names it") from None
        except (pa.ArrowInvalid, OSError) as error:
            raise IntegrityError(f"{path}: cannot be read: {error}") from None
        if len(table) != shard.rows:
            raise IntegrityError(f"{path}: holds {len(table):,} rows, manifest.json says {shard.rows:,}")
        found.append((table["n_tokens"].to_numpy(), table["sum_len_sq"].to_numpy()))
    tokens, squares = (np.concatenate(column) for column in zip(*found, strict=True))
    if not len(squares):
        raise ManifestError(f"{build}: its train split is empty")
    return Work(f"{made.name} {made.version}", int(length), tokens, squares)
