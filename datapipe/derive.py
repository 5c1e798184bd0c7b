"""
Derived columns: what is computed from a document's text, once for each document, ever.

Signals, signatures and token ids are all such columns.  A derivation is keyed by the documents part and what it
does; a unit holds it for some rows of the part, and a later build that needs further rows adds a unit for those
alone.  So changing a bound computes nothing again, and brings only the documents that no build had yet.
"""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from datapipe import tables, units
from datapipe.documents import Documents, Part
from datapipe.units import Done, Unit

FILE = "derived.parquet"


@dataclass(frozen=True)
class Derivation:
    """
    How columns come from texts.  compute(table with the column `text`) gives arrays, one per field of `schema`, a row
    a document.
    """

    function: str
    version: int
    settings: object
    libraries: Sequence[str]
    schema: pa.Schema
    compute: Callable[[pa.Table], Sequence[pa.Array]]
    row_group: int = 8192


def derive(what: Derivation, docs: Documents, wanted: dict[int, np.ndarray]) -> dict[int, list[Done]]:
    """
    For each part number in `wanted` (sorted int32 rows), the units that together hold the derivation of those rows.
    """
    store = docs.work.store
    found: dict[int, list[Done]] = {}
    tasks: dict[int, Unit] = {}
    for part in docs.parts:
        rows = wanted.get(part.number)
        if rows is None:
            continue
        family = _family(what, part)
        found[part.number] = store.family(family)
        missing = rows
        for done in found[part.number]:
            missing = np.setdiff1d(missing, _rows(done), assume_unique=True)
        if len(missing):
            tasks[part.number] = _unit(what, part, family, missing)
    made = units.run(store, tasks.values(), docs.work.workers)
    for number, done in zip(tasks, made, strict=True):
        found[number].append(done)
    return found


def read(dones: Sequence[Done], rows: np.ndarray, *, limit: int = 8192) -> Iterator[pa.Table]:
    """
    The derivation of `rows` (sorted int32) from the units of their part: tables with a column `row` and those of the
    schema, at most `limit` rows each, in no promised order over units; every row once.
    """
    left = rows
    for done in dones:
        with pq.ParquetFile(done.path(FILE), page_checksum_verification=True) as file:
            for batch in file.iter_batches(limit):
                here = np.isin(batch["row"].to_numpy(), left, assume_unique=True)
                if here.any():
                    yield pa.Table.from_batches([batch]).filter(pa.array(here))
        left = np.setdiff1d(left, _rows(done), assume_unique=True)
    assert len(left) == 0, f"{len(left)} rows were asked for and never derived"


def _family(what: Derivation, part: Part) -> str:
    versions = {name: units.library(name) for name in what.libraries}
    return units.digest([what.function, what.version, what.settings, part.sha256, versions])


def _rows(done: Done) -> np.ndarray:
    return pq.read_table(done.path(FILE), columns=["row"])["row"].to_numpy()


def _unit(what: Derivation, part: Part, family: str, rows: np.ndarray) -> Unit:
    def work(folder: Path) -> dict:
        schema = pa.schema([pa.field("row", pa.int32()), *what.schema])

        def batches() -> Iterator[pa.RecordBatch]:
            for here, table in part.batches(["text"], rows):
                yield pa.record_batch([pa.array(here), *what.compute(table)], schema=schema)

        return {"rows": tables.write_stream(folder / FILE, schema, batches(), row_group=what.row_group)}

    chosen = hashlib.sha256(rows.astype("<i4").tobytes()).hexdigest()
    return Unit(what.function, what.version, what.settings, [part.sha256, chosen], what.libraries, work, family)
