"""The tokens of a split, counted from the narrow columns of its shards, and held against manifest.json."""

from typing import TYPE_CHECKING, Any

import numpy as np

from datapipe import rows as meaning
from datapipe.build_manifest import BuildManifest
from datapipe.build_manifest.store import MANIFEST
from datapipe.errors import IntegrityError
from datapipe.feed.batch import Rows

if TYPE_CHECKING:
    from datapipe.feed.dataset import Split

PIECE = 1024  # rows counted at once
KEYS = ("stored", "targets", "last_positions", "masked", "repeated_context")


def books(where: str, made: BuildManifest, name: str, split: "Split") -> dict[str, Any]:
    """
    stored, targets, last_positions, masked, repeated_context, padding, dropped {reason: tokens} of a split, the first
    five also `by_source` {name: ...}, all but dropped also by shard, `shards` [{path, rows, ...}].

    stored = targets + last_positions + masked;  rows x length = stored + padding
    """
    told = dict(made.splits.items())[name]
    by_source = np.zeros((len(made.sources), len(KEYS)), np.int64)
    shards: list[dict[str, Any]] = []
    for shard in split.shards:
        here = np.zeros_like(by_source)
        for first in range(0, shard.rows, PIECE):
            rows = np.arange(first, min(first + PIECE, shard.rows)) + shard.row_start
            _count(split.narrow(rows), split.length, here)
        by_source += here
        sums = _sums(here)
        shards.append({"path": shard.path, "rows": shard.rows, **sums})
        shards[-1]["padding"] = shard.rows * split.length - sums["stored"]
        _same(f"{where}/{shard.path}", sums, {"stored": shard.tokens, "targets": shard.targets})
    padding = sum(shard["padding"] for shard in shards)
    found = {**_sums(by_source), "padding": padding, "dropped": dict(told.tokens.dropped)}
    _same(f"{where}/{MANIFEST}: splits.{name}.tokens", found, told.tokens.model_dump())
    lines = {
        source: dict(zip(KEYS, line.tolist(), strict=True))
        for source, line in zip(made.sources, by_source, strict=True)
    }
    for source, line in lines.items():
        share = told.by_source.get(source)
        expected = {"tokens": share.tokens, "targets": share.targets} if share else {"tokens": 0, "targets": 0}
        counted = {"tokens": line["stored"] - line["repeated_context"], "targets": line["targets"]}
        _same(f"{where}/{MANIFEST}: splits.{name}.by_source.{source}", counted, expected)
    return found | {"by_source": lines, "shards": shards}


def _count(rows: Rows, length: int, by_source: np.ndarray) -> None:
    """Add the books of rows to int64[sources, KEYS]."""
    sizes = rows.seg_len.astype(np.int64)
    targets = sizes - 1
    if rows.mask is not None:
        is_target = meaning.targets(rows.offsets, sizes, length, rows.mask)
        row = np.repeat(np.arange(len(rows)), np.diff(rows.offsets))
        ends = np.cumsum(sizes)
        first = np.concatenate(([0], ends))[rows.offsets[:-1]][row]  # tokens before a segment's row
        stop = row * length + ends - first
        before = np.concatenate(([0], np.cumsum(is_target)))
        targets = before[stop] - before[stop - sizes]
    again = (rows.seg_flags & meaning.AGAIN) != 0
    columns = (sizes, targets, np.ones_like(sizes), sizes - 1 - targets, again)
    np.add.at(by_source, rows.seg_source, np.stack(columns, axis=1).astype(np.int64))


def _sums(by_source: np.ndarray) -> dict[str, int]:
    return dict(zip(KEYS, by_source.sum(axis=0).tolist(), strict=True))


def _same(where: str, found: dict[str, Any], told: dict[str, Any]) -> None:
    for key, value in told.items():
        if found[key] != value:
            raise IntegrityError(f"{where}: {key} is {value}, its shards' columns give {found[key]}")
