"""
Reading a plan: units in, parts and books out; and what the limits say to them.
"""

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from datapipe import tables, units
from datapipe.documents import Part, Work
from datapipe.errors import DataError
from datapipe.manifest import Manifest
from datapipe.read import books
from datapipe.read.part import task
from datapipe.read.planning import Files, Input, Piece, Plan
from datapipe.units import Done, Store, Task

LEAST = 10  # refused records that are let pass where no limit is written


@dataclass(frozen=True)
class ReadResult:
    """
    What reading gave.

    parts:  the stored documents, numbered in the order of the plan; parts without a document are left out
    inputs: a book for each input in the order of the plan (books.py), with source, path, bytes, sha256
    spans:  part number -> [(index into inputs, rows)], in the order of its rows
    edits:  source -> edit -> documents that it changed
    """

    plan: Plan
    parts: list[Part]
    inputs: list[dict]
    spans: dict[int, list[tuple[int, int]]]
    edits: dict[str, dict[str, int]]
    units: list[Done]


def run(plan: Plan, manifest: Manifest, work: Work, progress: Callable[[int], None] = lambda done: None) -> ReadResult:
    """Read every piece that no unit holds yet.  DataError where a snapshot name matches nothing."""
    tasks = [_Counted(piece, task(plan.specs[_inputs(piece)[0].source], piece)) for piece in plan.pieces]
    done = units.run(work.store, tasks, work.workers, progress)
    pieces = [one.piece for one in tasks for _ in range(one.units)]
    return gathered(plan, manifest, done, pieces)


@dataclass
class _Counted:
    """A task that remembers how many units it gave: a stream gives several."""

    piece: Piece
    what: Task
    units: int = 0

    def run(self, store: Store) -> list[Done]:
        done = self.what.run(store)
        self.units = len(done)
        return done


def _inputs(piece: Piece) -> tuple[Input, ...]:
    return piece.inputs if isinstance(piece, Files) else (piece.input,)


def gathered(
    plan: Plan, manifest: Manifest, done: list[Done], pieces: list[Piece], *, whole: bool = True
) -> ReadResult:
    """What the units of pieces gave; `whole`: of all pieces, so that each snapshot name must have matched."""
    index = {(one.source, one.relative): at for at, one in enumerate(plan.inputs)}
    told = [_head(one) | books.book() for one in plan.inputs]
    parts: list[Part] = []
    spans: dict[int, list[tuple[int, int]]] = {}
    edits: dict[str, dict[str, int]] = {name: dict.fromkeys(manifest.sources[name].edits, 0) for name in plan.specs}
    labels: dict[str, dict[str, int]] = {name: {} for name in plan.specs}
    for unit, piece in zip(done, pieces, strict=True):
        inputs = _inputs(piece)
        source = inputs[0].source
        for one, book in zip(inputs, unit.counts["inputs"], strict=True):
            books.add(told[index[source, one.relative]], book)
        for total, key in ((edits[source], "edits"), (labels[source], "labels")):
            for name, n in unit.counts[key].items():
                total[name] = total.get(name, 0) + n
        if unit.counts["rows"]:
            number = len(parts)
            parts.append(Part(number, source, unit, unit.counts["rows"]))
            spans[number] = [(index[source, one.relative], book["rows"])
                             for one, book in zip(inputs, unit.counts["inputs"], strict=True)]  # fmt: skip
    for name, found in labels.items() if whole else ():
        _check_labels(name, found)
    for one, book in zip(plan.inputs, told, strict=True):
        books.close(book, one.relative)
    return ReadResult(plan, parts, told, spans, edits, done)


def _head(one: Input) -> dict:
    return {"source": one.source, "path": one.relative, "bytes": one.bytes, "sha256": one.sha256}


def _check_labels(source: str, found: dict[str, int]) -> None:
    for label, n in found.items():
        if n == 0:
            raise DataError(
                f"source {source}: no document is of snapshot {label!r}; mend snapshot: name, or the field that "
                "`fields: snapshot` names"
            )


def over_limits(result: ReadResult, manifest: Manifest) -> list[str]:
    """A message for every source of which more records were refused than the limits let pass."""
    messages = []
    for source, mine in _by_source(result):
        records = books.total(mine, "records")
        for kind, limit in (("rejected", manifest.limits.rejected), ("quarantined", manifest.limits.quarantined)):
            n, most = books.total(mine, kind), _most(limit, records)
            if n > most:
                messages.append(
                    f"source {source}: {n:,} of {records:,} records {kind} ({_reasons(mine, kind)}), "
                    f"limits.{kind} lets {most:,} pass; mend the input, or raise the limit"
                )
    return messages


def _by_source(result: ReadResult) -> list[tuple[str, list[dict]]]:
    """The books of each source's inputs."""
    return [(name, [book for book in result.inputs if book["source"] == name]) for name in result.plan.specs]


def _most(limit: int | float | None, records: int) -> int:
    """A count, a share of the records, or where nothing is written the larger of one per cent and ten."""
    if limit is None:
        return max(records // 100, LEAST)
    return limit if isinstance(limit, int) else math.floor(Fraction(str(limit)) * records)


def _reasons(mine: Iterable[dict], kind: str) -> str:
    found: dict[str, int] = {}
    for book in mine:
        for reason, n in book[kind].items():
            books.count(found, reason, n)
    return ", ".join(f"{reason}: {n:,}" for reason, n in sorted(found.items(), key=lambda one: (-one[1], one[0])))


def without_documents(result: ReadResult) -> tuple[str, ...]:
    """A sentence for each source that has records and no document: of a small one no limit says anything."""
    messages = []
    for source, mine in _by_source(result):
        records = books.total(mine, "records")
        if records and books.total(mine, "documents") == books.total(mine, "cut"):
            reasons = [_reasons(mine, kind) for kind in ("rejected", "quarantined", "cut")]
            messages.append(
                f"source {source}: none of its {records:,} records is a document "
                f"({', '.join(filter(None, reasons)) or 'blank'}); look at its `fields`, `format` and `select`"
            )
    return tuple(messages)


def write_refused(result: ReadResult, folder: Path) -> None:
    """rejected.parquet and quarantine.parquet of a build, sorted by source, file, line as the units come."""
    for name in ("rejected.parquet", "quarantine.parquet"):
        tables.write_stream(folder / name, tables.REFUSED, _batches(result.units, name))


def _batches(done: Iterable[Done], name: str) -> Iterator[pa.RecordBatch]:
    for unit in done:
        with pq.ParquetFile(unit.path(name), page_checksum_verification=True) as file:
            yield from file.iter_batches()
