"""
Signals of all stored documents, a work unit for each signal and part.

A part's text is read once for all its missing signals; each is committed for itself, so another bound, another order
or another set of signals computes nothing again.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from datapipe import signals, tables, units
from datapipe.documents import Documents, Part
from datapipe.units import Done, Store, Unit

VERSION = 1
FILE = "signal.parquet"
LIBRARIES = ("pyarrow",)


@dataclass(frozen=True)
class Measure:
    """The task of one part: the units of `names`, of which the missing ones are computed in one pass."""

    part: Part
    names: Sequence[str]

    def run(self, store: Store) -> list[Done]:
        """The unit of each signal, in the order of `names`."""
        missing: list[str] = []
        columns = cache(lambda: self._compute(missing))
        found = [self._unit(name, columns) for name in self.names]
        missing += [name for name, unit in zip(self.names, found, strict=True) if store.find(unit.key) is None]
        return [done for unit in found for done in unit.run(store)]

    def _unit(self, name: str, columns: Callable[[], dict[str, pa.ChunkedArray]]) -> Unit:
        """The unit of one signal; the first one that has to work computes the columns of all that are missing."""

        def work(folder: Path) -> dict:
            values = columns()[name]
            tables.write(folder / FILE, pa.table({"value": values}))
            return {"rows": len(values)}

        settings = {"signal": name} | ({"signals": signals.VERSION} if name in signals.SIGNALS else {})
        return Unit(f"signal:{name}", VERSION, settings, [self.part.sha256], LIBRARIES, work)

    def _compute(self, names: Sequence[str]) -> dict[str, pa.ChunkedArray]:
        """Signals by name, as double or int64, a row a document of the part."""
        known = [name for name in names if name in signals.SIGNALS]
        extra = [name for name in names if name not in signals.SIGNALS]
        chunks: dict[str, list[pa.Array]] = {name: [] for name in (*known, *extra)}
        for _, table in self.part.batches(["text"] * bool(known) + ["extra"] * bool(extra)):
            if known:
                for name, column in zip(known, signals.measure(table["text"].combine_chunks(), known), strict=True):
                    chunks[name] += column.chunks
            if extra:
                columns = signals.extra_numbers(table["extra"].combine_chunks(), extra)
                for name, column in zip(extra, columns, strict=True):
                    chunks[name].append(column)
        return {name: pa.chunked_array(column) for name, column in chunks.items()}


def signals_of(
    docs: Documents, names: Sequence[str], sources: Collection[str] | None = None
) -> dict[int, dict[str, Done]]:
    """For each part number (of `sources`, else of all), the unit of each signal: all rows, dropped documents too."""
    parts = [part for part in docs.parts if sources is None or part.source in sources]
    tasks = [Measure(part, names) for part in parts] if names else []
    done = units.run(docs.work.store, tasks, docs.work.workers)
    width = len(names)
    return {
        task.part.number: dict(zip(names, done[i * width : (i + 1) * width], strict=True))
        for i, task in enumerate(tasks)
    }


def read_signals(found: dict[str, Done]) -> pa.Table:
    """The signals of a part, a column each, a row a document."""
    columns = {}
    for name, done in found.items():
        with pq.ParquetFile(done.path(FILE), page_checksum_verification=True) as file:
            columns[name] = file.read()["value"]
    return pa.table(columns)


def write_signals(docs: Documents, names: Sequence[str], folder: Path) -> None:
    """signals/part-00000.parquet: the rows of documents/part-00000.parquet, a column for each signal in use."""
    folder.mkdir()
    for number, found in signals_of(docs, names).items():
        tables.write(folder / f"part-{number:05d}.parquet", read_signals(found))


def names_in_use(stages: Sequence[object]) -> list[str]:
    """The signals that the filters of a manifest bound, in order of first use."""
    return list(dict.fromkeys(name for stage in stages for name in getattr(stage, "numbers", ())))
