"""
What a build would do, before any work: files, bytes, work units, about how many documents, disk and memory.

Records are counted where that is cheap: a text file is one, Parquet says it in its footer, lines are counted.
"""

from pathlib import Path

import pyarrow.parquet as pq

from datapipe.build_manifest import DryRun, SourceInput
from datapipe.keyed import stage_name
from datapipe.manifest import Manifest
from datapipe.read import Input, Plan
from datapipe.read.streams import Damage, Expanded

BASE = 350_000_000  # bytes of a process that has loaded all its libraries
PER_DOCUMENT = 100  # bytes of narrow columns in memory, next to what DuckDB holds
STORED = 0.35  # bytes on disk per byte of text: zstd
PER_TOKEN_BYTE = 0.25  # bytes of packed ids, and again of token units, per byte of text
PER_SIGNATURE = 4 * 128 + 21 * 18  # bytes a document in signatures.parquet and bands.parquet


def dry_run(manifest: Manifest, plan: Plan, recipe_id: str, memory: int, existing: Path | None) -> DryRun:
    """The answer to `datapipe build --dry-run`."""
    counted = [_size(one, manifest.limits.expanded) for one in plan.inputs]
    text = sum(size for size, _ in counted)
    records = None if any(n is None for _, n in counted) else sum(n or 0 for _, n in counted)
    return DryRun(
        name=manifest.name,
        recipe_id=recipe_id,
        sources=tuple(
            SourceInput(name, len(inputs), sum(one.bytes for one in inputs), plan.pins[name])
            for name, inputs in plan.sources.items()
        ),
        units={"read": len(plan.units)},
        stages=tuple(stage_name(place, stage.stage) for place, stage in enumerate(manifest.stages, 1)),
        disk=_disk(manifest, text, records or text // 2000),
        memory=min(BASE + memory, BASE + 2 * text + PER_DOCUMENT * (records or text // 2000)),
        documents=records,
        existing=existing,
    )


def _size(one: Input, limit: int) -> tuple[int, int | None]:
    """Bytes of text and records of an input, about; None where only reading would tell."""
    if one.format == "parquet":
        with pq.ParquetFile(one.path) as file:
            groups = [file.metadata.row_group(n) for n in range(file.num_row_groups)]
            return sum(group.total_byte_size for group in groups), file.metadata.num_rows
    size, newlines, last = 0, 0, b"\n"
    try:
        for chunk in Expanded(one.path, one.codec, limit):
            size, last = size + len(chunk), chunk[-1:] or last
            newlines += chunk.count(b"\n")
    except Damage:
        return size, None
    if one.format == "text":
        return size, 1
    header = one.format == "csv" and size > 0
    return size, newlines + (last != b"\n") - header


def _disk(manifest: Manifest, text: int, documents: int) -> int:
    """The build and what it leaves in the unit store; documents are there once, under two names."""
    stored = STORED * text
    if any(stage.stage == "near_dedup" for stage in manifest.stages):
        stored += 2 * PER_SIGNATURE * documents
    if manifest.tokenizer is not None:
        stored += 2 * PER_TOKEN_BYTE * text
    return int(stored)
