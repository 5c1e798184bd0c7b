"""
The documents of a build while it is made: narrow columns in DuckDB, texts in parts on disk.

`documents` in DuckDB has a row per document that was not cut:

    doc BIGINT          rank of doc_id, the row of fates.parquet; how tables name a document inside a build
    doc_id UUID, source VARCHAR, snapshot VARCHAR, "group" VARCHAR, lang VARCHAR, text_hash UUID, bytes BIGINT,
    instant BIGINT, priority INTEGER, part INTEGER, row INTEGER,
    split VARCHAR       train until a holdout says validation
    place INTEGER       the stage that dropped it (0 = admit), null while it is alive;  rule VARCHAR  its deciding rule

`ledger` has every drop: place INTEGER, doc BIGINT, rule VARCHAR, value DOUBLE, evidence VARCHAR, decides BOOLEAN.
A stage reads these, and answers with a Verdict; `apply` alone writes them.
"""

import fcntl
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import IO, Any, Self

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from datapipe import collateral
from datapipe.errors import MachineError
from datapipe.lists import Lists
from datapipe.units import Done, Store

# what a table of drops holds: every rule that a document failed, one deciding row a dropped document
DROPS = "doc bigint, rule varchar, value double, evidence varchar, decides boolean"
TABLES = f"""
create table documents (
    doc bigint, doc_id uuid, source varchar, snapshot varchar, "group" varchar, lang varchar, text_hash uuid,
    bytes bigint, instant bigint, priority integer, part integer, row integer, split varchar,
    place integer, rule varchar
);
create table ledger (place integer, {DROPS});
-- how a uuid is named outside: doc_id and text_hash as 32 hex digits, without the dashes that DuckDB prints
create or replace macro hex32(id) as replace(id::varchar, '-', '');
"""


class Work:
    """Where a build works: the unit store, a scratch folder and database that vanish with it, and its limits."""

    def __init__(self, output: Path, name: str, *, workers: int = 1, memory: int = 4_000_000_000):
        self.workers, self.memory = workers, memory
        folder = output / ".units"
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise MachineError(f"{folder}: this folder cannot be made: {error.strerror}; see --output") from error
        self._in_use = open_locked(folder / ".lock", fcntl.LOCK_SH)  # `clean` waits for no build, and no build for it
        with open(folder / ".starting", "ab") as starting:
            fcntl.flock(starting, fcntl.LOCK_EX)  # nobody sweeps a scratch folder between its birth and its lock
            remove_stale(folder)
            self.scratch = Path(tempfile.mkdtemp(prefix=f".work-{name}-", dir=folder))
            self._mine = open_locked(self.scratch / ".lock", fcntl.LOCK_EX)
        self.store = Store(folder, self.scratch)
        self.db = duckdb.connect(
            str(self.scratch / "build.duckdb"),
            config={
                "threads": workers,
                "autoinstall_known_extensions": False,
                "autoload_known_extensions": False,
                "python_enable_replacements": False,
            },
        )
        self.db.execute(f"set memory_limit = '{memory // 2_000_000}MB'")
        self.db.execute(f"set temp_directory = {literal(str(self.scratch / 'spill'))}")
        self.db.execute(TABLES)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: object, traceback: object) -> None:
        if isinstance(error, OSError) and error.filename is None:
            error.filename = str(self.store.folder)  # Arrow does not say which disk is full
        self.db.close()
        shutil.rmtree(self.scratch, ignore_errors=True)
        self._mine.close()
        self._in_use.close()

    def folder(self, name: str) -> Path:
        """A new scratch folder's path; `Spill` makes it."""
        return self.scratch / name

    def insert(self, table: str, rows: pa.Table) -> None:
        """Append rows to a table of the database, by the names of their columns."""
        self.db.register("given", rows)
        self.db.execute(f"insert into {table} by name select * from given")
        self.db.unregister("given")


def open_locked(path: Path, how: int) -> IO[bytes]:
    """A lock file, opened and locked (fcntl.LOCK_SH or LOCK_EX) without waiting; closing it, or dying, unlocks it."""
    file = open(path, "ab")  # noqa: SIM115  the lock lives as long as the file is open
    try:
        fcntl.flock(file, how | fcntl.LOCK_NB)
    except OSError:
        file.close()
        raise MachineError(f"{path} is locked by another datapipe process; wait for it to end") from None
    return file


def remove_stale(folder: Path) -> None:
    """Remove what killed builds left in the unit store: scratch folders whose lock nobody holds."""
    for scratch in folder.glob(".work-*"):
        try:
            open_locked(scratch / ".lock", fcntl.LOCK_EX).close()
        except (MachineError, FileNotFoundError):
            continue
        shutil.rmtree(scratch, ignore_errors=True)


def sql(package: str, name: str) -> str:
    """The text of a .sql file beside a module, by the module's package and the file's name."""
    return resources.files(package).joinpath(name).read_text("utf-8")


def literal(text: str) -> str:
    """A text as SQL writes it, where none can be bound: in a view, in a list of a condition."""
    return "'" + text.replace("'", "''") + "'"


@dataclass(frozen=True)
class Part:
    """A part of the stored documents: `documents.parquet` and `narrow.parquet` of one unit, row by row the same."""

    number: int
    source: str
    done: Done
    rows: int

    @property
    def path(self) -> Path:
        return self.done.path("documents.parquet")

    @property
    def sha256(self) -> str:
        return self.done.sha256("documents.parquet")

    def batches(self, columns: list[str], rows: np.ndarray | None = None) -> Iterator[tuple[np.ndarray, pa.Table]]:
        """
        (row numbers int32, table of `columns`), a row group at a time: of all rows, or of `rows` (sorted int32).
        """
        start = 0
        with pq.ParquetFile(self.path, page_checksum_verification=True) as file:
            for group in range(file.num_row_groups):
                stop = start + file.metadata.row_group(group).num_rows
                if rows is None:
                    yield np.arange(start, stop, dtype=np.int32), file.read_row_group(group, columns=columns)
                else:
                    here = rows[np.searchsorted(rows, start) : np.searchsorted(rows, stop)]
                    if len(here):
                        table = file.read_row_group(group, columns=columns)
                        yield here, table if len(here) == stop - start else table.take(pa.array(here - start))
                start = stop


@dataclass(frozen=True)
class Verdict:
    """
    What a stage found, as names of DuckDB tables.

    drops: table of the columns DROPS
    marks: column of `documents` -> table (doc, value)
    not_judged: documents that the stage could not or should not judge, by source
    judged: of a filter, SQL over `documents` for those that it judged; its collateral table is counted then
    notes: figures of this stage for manifest.json
    """

    drops: str | None = None
    marks: dict[str, str] = field(default_factory=dict)
    not_judged: dict[str, int] = field(default_factory=dict)
    judged: str | None = None
    notes: dict = field(default_factory=dict)


def shown(bound: float) -> str:
    """A bound as a rule says it: 50, 0.3, 100000; never rounded."""
    return str(int(bound)) if float(bound).is_integer() and abs(bound) < 1 << 53 else repr(bound)


@dataclass(frozen=True)
class StageReport:
    """One stage's books: documents in = out + sum(dropped)."""

    stage: str
    place: int
    entered: int
    left: int
    dropped: dict[str, int]
    dropped_by_source: dict[str, dict[str, int]]
    not_judged: dict[str, int]
    notes: dict


@dataclass
class Documents:
    """All documents of a build: `parts` in order of number, their narrow columns in `work.db`."""

    work: Work
    parts: list[Part]
    reports: list[StageReport] = field(default_factory=list)
    lists: Lists = field(default_factory=dict)  # what the manifest's stages look up
    evals: Mapping[str, Any] = field(default_factory=dict[str, Any])  # and look for: see stages/eval_suites.py

    def alive(self, part: Part, where: str = "true") -> tuple[np.ndarray, np.ndarray]:
        """Rows (int32, sorted) and docs (int64) of a part's documents that no stage dropped; `where` is SQL."""
        query = f"select row, doc from documents where part = ? and place is null and ({where}) order by row"
        found = self.work.db.cursor().execute(query, [part.number]).fetchnumpy()
        return found["row"].astype(np.int32), found["doc"].astype(np.int64)

    def count(self, where: str = "place is null") -> tuple[int, int]:
        """Documents and their bytes."""
        query = f"select count(*), coalesce(sum(bytes), 0)::bigint from documents where {where}"
        return self.work.db.execute(query).fetchall()[0]

    def languages(self) -> dict[str, dict[str, int]]:
        """source -> lang -> documents; those without one count nowhere."""
        found: dict[str, dict[str, int]] = {}
        query = "select source, lang, count(*) from documents where lang is not null group by all order by all"
        for source, lang, n in self.work.db.execute(query).fetchall():
            found.setdefault(source, {})[lang] = n
        return found

    def apply(self, stage: str, place: int, verdict: Verdict) -> StageReport:
        """Write a verdict into the books and close them."""
        db = self.work.db
        entered, _ = self.count()
        for column, table in verdict.marks.items():
            db.execute(f'update documents set "{column}" = m.value from {table} m where documents.doc = m.doc')
        if verdict.drops:
            db.execute(
                f"insert into ledger select {place}, doc, rule, value, evidence, decides from {verdict.drops} "
                "order by doc, decides desc, rule"
            )
            db.execute(
                f"update documents set place = {place}, rule = d.rule from {verdict.drops} d "
                "where documents.doc = d.doc and d.decides and documents.place is null"
            )
        left, _ = self.count()
        rows = db.execute(
            f"select source, rule, count(*) from documents where place = {place} group by all order by all"
        ).fetchall()
        dropped: dict[str, int] = {}
        by_source: dict[str, dict[str, int]] = {}
        for source, rule, n in rows:
            dropped[rule] = dropped.get(rule, 0) + n
            by_source.setdefault(source, {})[rule] = n
        decided = db.execute(f"select count(*) from ledger where place = {place} and decides").fetchall()[0][0]
        assert entered == left + decided == left + sum(dropped.values()), (
            f"the books of {place}:{stage} do not balance: {entered} in, {left} out, {decided} dropped"
        )
        notes = verdict.notes | (collateral.count(db, place, verdict.judged) if verdict.judged is not None else {})
        report = StageReport(stage, place, entered, left, dropped, by_source, verdict.not_judged, notes)
        self.reports.append(report)
        return report
