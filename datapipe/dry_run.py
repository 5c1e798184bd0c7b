"""
What a build would do, before any work: files, bytes, work units, about how many documents, disk and memory.

Records are counted where that is cheap: a text file is one, Parquet says it in its footer, lines are counted.
A sample of them may be read and shown to the filters, each in its turn: what they would take from which source.
"""

import tempfile
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow.parquet as pq

from datapipe import limits, read, stages
from datapipe.build_manifest import DryRun, Sampled, SourceInput
from datapipe.collateral import Table, labels
from datapipe.documents import Documents, Work
from datapipe.kernels import shape
from datapipe.keyed import stage_name
from datapipe.lists import Lists
from datapipe.manifest import Filter, Manifest, UrlFilter, WordFilter
from datapipe.read import Input, Plan, ReadResult
from datapipe.read.streams import Damage, Expanded
from datapipe.stages import signal_units

FILTERS = (Filter, UrlFilter, WordFilter)  # stages that judge a document by itself, so that a sample tells of all
BASE = 350_000_000  # bytes of a process that has loaded all its libraries
PER_LARGEST = 16  # bytes per byte of the largest document: the text, read, and what signals hold of it at the worst
PER_DOCUMENT = 100  # bytes of narrow columns in memory, next to what DuckDB holds
STORED = 0.35  # bytes on disk per byte of text: zstd
PER_TOKEN_BYTE = 0.25  # bytes of packed ids, and again of token units, per byte of text
PER_SIGNATURE = 4 * 128 + 21 * 18  # bytes a document in signatures.parquet and bands.parquet


@dataclass(frozen=True)
class Trial:
    """About how many records are shown to the filters, what those look up, and with what means."""

    records: int
    lists: Lists
    workers: int
    progress: Callable[[str, int, int | None], None]


def dry_run(
    manifest: Manifest, plan: Plan, recipe_id: str, memory: int, existing: Path | None, trial: Trial | None = None
) -> DryRun:
    """The answer to `datapipe build --dry-run`, with what the filters say to a sample where there is a trial."""
    sizes = {one: _size(one, manifest.limits.expanded) for one in plan.inputs}
    text = sum(size for size, _ in sizes.values())
    records = None if any(n is None for _, n in sizes.values()) else sum(n or 0 for _, n in sizes.values())
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
        memory=PER_LARGEST * _largest(sizes)
        + min(BASE + memory, BASE + 2 * text + PER_DOCUMENT * (records or text // 2000)),
        documents=records,
        existing=existing,
        sample=_sample(manifest, plan, memory, sizes, trial) if trial else None,
    )


def _sample(
    manifest: Manifest, plan: Plan, memory: int, sizes: dict[Input, tuple[int, int | None]], trial: Trial
) -> Sampled:
    """Reads a sample and lets every filter judge it, as a build would, in a folder that is gone afterwards."""
    with (
        tempfile.TemporaryDirectory(prefix="datapipe-sample-") as folder,
        Work(Path(folder), manifest.name, workers=trial.workers, memory=memory) as work,
    ):
        trial.progress("reading a sample", 0, None)
        result = read.sample(plan, manifest, work, trial.records, sizes)
        docs = replace(read.admit(result, manifest, work), lists=trial.lists)
        signal_units.signals_of(docs, signal_units.names_in_use(manifest.stages))  # of all filters in one pass
        for place, stage in enumerate(manifest.stages, 1):
            if isinstance(stage, FILTERS):
                trial.progress(stage_name(place, stage.stage), 0, None)
                docs.apply(stage.stage, place, stages.judge(stage, docs))
        return _sampled(manifest, trial.records, result, docs)


def _sampled(manifest: Manifest, number: int, result: ReadResult, docs: Documents) -> Sampled:
    table = Table.of_reports(docs.reports)
    records = dict.fromkeys(result.plan.specs, 0)
    for book in result.inputs:
        records[book["source"]] += book["records"]
    found = Counter(dict(docs.work.db.execute("select source, count(*) from documents group by source").fetchall()))
    alive = "select source, count(*) from documents where place is null group by source"
    left = Counter(dict(docs.work.db.execute(alive).fetchall()))
    return Sampled(
        asked=number,
        records=records,
        documents={source: found[source] for source in records},
        left={source: left[source] for source in records},
        edits=result.edits,
        not_judged={stage_name(one.place, one.stage): one.not_judged for one in docs.reports if one.not_judged},
        skipped=tuple(
            stage_name(place, stage.stage)
            for place, stage in enumerate(manifest.stages, 1)
            if not isinstance(stage, FILTERS)
        ),
        collateral=table,
        warnings=tuple(limits.over_limits(docs, manifest)),
        labels=labels((stage.stage, getattr(stage, "preset", None)) for stage in manifest.stages),
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
            newlines += shape.newlines(chunk)
    except Damage:
        return size, None
    if one.format == "text":
        return size, 1
    header = one.format == "csv" and size > 0
    return size, newlines + (last != b"\n") - header


def _largest(sizes: dict[Input, tuple[int, int | None]]) -> int:
    """
    Bytes of the largest document that the files tell of: a text file is one.  How long the records of others are, only
    reading tells; their mean is the least that the largest can be.
    """
    return max((size // max(records or 1, 1) for size, records in sizes.values() if records is not None), default=0)


def _disk(manifest: Manifest, text: int, documents: int) -> int:
    """The build and what it leaves in the unit store; documents are there once, under two names."""
    stored = STORED * text
    if any(stage.stage == "near_dedup" for stage in manifest.stages):
        stored += 2 * PER_SIGNATURE * documents
    if manifest.tokenizer is not None:
        stored += 2 * PER_TOKEN_BYTE * text
    return int(stored)
