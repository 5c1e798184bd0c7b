"""
Admission: which stored documents are documents of the build, and by what name (admit.sql).

Equal records are told apart by n, a sample without a key is drawn by doc_id, and a snapshot keeps one capture of each
key.  What the sample cuts has no row anywhere: the parts it touches are written again without it.
"""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from datapipe import tables, units
from datapipe.documents import Documents, Part, Verdict, Work, sql
from datapipe.keyed import bound, doc_id, keyed_each
from datapipe.manifest import Manifest
from datapipe.read import books
from datapipe.read.result import ReadResult
from datapipe.read.settle import EMPTY
from datapipe.units import Unit

FUNCTION, VERSION = "sample", 1
AT_ONCE = 100_000  # rows that are fetched together


def admit(result: ReadResult, manifest: Manifest, work: Work) -> Documents:
    """
    Fill `documents` and write the books of stage "0:admit".  The books of `result.inputs` get their `repeated`, and
    what the sample cut.
    """
    run = _Statements(work)
    run("tables")
    for part in result.parts:
        run("take", path=str(part.done.path("narrow.parquet")), part=part.number, source=part.source)
    for number, unit in enumerate(result.units):
        run("take_cut", path=str(unit.path("cut.parquet")), number=number)
    _name(result, work, run)
    parts = _sample(result, manifest, work, run)
    _register(
        work, "priorities", source=list(manifest.sources), priority=[s.priority for s in manifest.sources.values()]
    )
    run("documents")
    _captures(manifest, work, run)
    docs = Documents(work, parts)
    docs.apply("admit", 0, Verdict(drops="admit_drops"))
    _clear(work)
    return docs


class _Statements:
    """The named statements of admit.sql."""

    def __init__(self, work: Work):
        self.db = work.db
        pieces = sql("datapipe.read", "admit.sql").split("-- name: ")[1:]
        self.texts = {name.strip(): text for name, _, text in (piece.partition("\n") for piece in pieces)}

    def __call__(self, name: str, **values: object) -> list[tuple]:
        """Run one; its rows, where it gives some."""
        return self.db.execute(self.texts[name], values or None).fetchall()


def _register(work: Work, name: str, **columns: list | pa.Array) -> None:
    """A temporary table of these columns."""
    work.db.register("_given", pa.table(columns))
    work.db.execute(f"create or replace temp table {name} as select * from _given")
    work.db.unregister("_given")


def _clear(work: Work) -> None:
    for name in ("incoming", "set_aside", "repeats", "claims", "renamed", "new_ids", "named", "left_out", "numbers",
                 "priorities", "rules", "captures", "admit_drops"):  # fmt: skip
        work.db.execute(f"drop table if exists {name}")


def _name(result: ReadResult, work: Work, run: _Statements) -> None:
    """`named`: every stored document with its doc_id; n counts the records, cut ones too, that claim one name."""
    run("repeats")
    for (number,) in run("repeated_parts"):
        run("claim", path=str(result.parts[number].done.path("narrow.parquet")), part=number)
    for (number,) in run("repeated_cuts"):
        run("claim", path=str(result.units[number].path("cut.parquet")), part=-1 - number)
    run("renamed")
    found: list[tuple[int, int, str]] = []
    for part in result.parts:
        rows, ns = _renamed(work, part)
        found += _new_ids(part, rows, ns)
        _spread(result, part, rows, "repeated")
    part, row, ids = ([one[at] for one in found] for at in range(3))
    _register(
        work,
        "new_ids",
        part=pa.array(part, pa.int32()),
        row=pa.array(row, pa.int32()),
        doc_id=pa.array(ids, pa.string()),
    )
    run("named")


def _renamed(work: Work, part: Part) -> tuple[np.ndarray, np.ndarray]:
    query = "select row, n from renamed where part = ? order by row"
    found = work.db.execute(query, [part.number]).fetchnumpy()
    return np.asarray(found["row"], np.int32), np.asarray(found["n"], np.int64)


def _new_ids(part: Part, rows: np.ndarray, ns: np.ndarray) -> Iterator[tuple[int, int, str]]:
    """(part, row, doc_id) of rows that are not the first of their name."""
    n = dict(zip(rows.tolist(), ns.tolist(), strict=True))
    for here, table in part.batches(["source", "id", "raw_hash"], rows) if len(rows) else ():
        for row, record in zip(here.tolist(), table.to_pylist(), strict=True):
            yield part.number, row, doc_id(record["source"], record["id"], record["raw_hash"], n[row])


def _spread(result: ReadResult, part: Part, rows: np.ndarray, key: str) -> np.ndarray:
    """Count rows of a part in the books of their inputs; the counts, by span of the part."""
    spans = result.spans[part.number]
    borders = np.cumsum([0] + [n for _, n in spans])
    counts = np.diff(np.searchsorted(rows, borders))
    for (at, _), n in zip(spans, counts.tolist(), strict=True):
        book = result.inputs[at]
        if key == "repeated":
            book["repeated"] += n
        elif n:
            books.count(book["cut"], key, n)
            book["rows"] -= n
    return counts


# sample


def _sample(result: ReadResult, manifest: Manifest, work: Work, run: _Statements) -> list[Part]:
    """The parts without what a sample by doc_id cuts: of documents without a key, for a key is drawn while reading."""
    cut = {part.number: _left_out(manifest, work, part) for part in result.parts}
    if not any(len(rows) for rows in cut.values()):
        return result.parts
    tasks = [_unit(part, cut[part.number]) for part in result.parts if 0 < len(cut[part.number]) < part.rows]
    made = dict(zip((unit.inputs[0] for unit in tasks), units.run(work.store, tasks, work.workers), strict=True))
    parts: list[Part] = []
    numbers: list[int | None] = []
    for part in result.parts:
        rows = cut[part.number]
        _spread(result, part, rows, "sample")
        left = part.rows - len(rows)
        numbers.append(len(parts) if left else None)
        if left:
            done = made[part.sha256] if len(rows) else part.done
            parts.append(replace(part, number=len(parts), done=done, rows=left))
    _register(work, "left_out", part=pa.array([n for n, rows in cut.items() for _ in rows], pa.int32()),
              row=pa.array([row for rows in cut.values() for row in rows.tolist()], pa.int32()))  # fmt: skip
    _register(
        work,
        "numbers",
        part=pa.array([p.number for p in result.parts], pa.int32()),
        new_part=pa.array(numbers, pa.int32()),
    )
    run("sampled")
    return parts


def _left_out(manifest: Manifest, work: Work, part: Part) -> np.ndarray:
    """Rows (int32, sorted) of a part that the sample of its source cuts."""
    share = manifest.sources[part.source].sample
    if share is None:
        return np.empty(0, np.int32)
    below = bound(share)
    query = "select row, hex32(doc_id) from named where part = ? and key is null order by row"
    found: list[int] = []
    reader = work.db.execute(query, [part.number])
    while rows := reader.fetchmany(AT_ONCE):
        drawn = keyed_each("sample", None, (name for _, name in rows))
        found += [row for (row, _), number in zip(rows, drawn, strict=True) if number >= below]
    return np.array(found, np.int32)


def _unit(part: Part, cut: np.ndarray) -> Unit:
    """A part's unit once more, without some rows."""
    gone = np.zeros(part.rows, bool)
    gone[cut] = True

    def work(folder: Path) -> dict:
        for name, schema in (("documents.parquet", tables.DOCUMENTS), ("narrow.parquet", tables.NARROW)):
            _copy(part.done.path(name), folder / name, schema, gone)
        return {"rows": int(part.rows - len(cut))}

    digest = units.digest(cut.tolist())
    return Unit(FUNCTION, VERSION, [], [part.sha256, part.done.sha256("narrow.parquet"), digest], ("pyarrow",), work)


def _copy(source: Path, target: Path, schema: pa.Schema, gone: np.ndarray) -> None:
    """Row group by row group, without the rows that are gone."""
    start = 0
    with pq.ParquetFile(source, page_checksum_verification=True) as file, tables.writer(target, schema) as out:
        for at in range(file.num_row_groups):
            table = file.read_row_group(at)
            kept = table.filter(pa.array(~gone[start : start + len(table)])).combine_chunks()
            start += len(table)
            if len(kept):
                out.write_table(kept, row_group_size=len(kept))


# snapshots


def _captures(manifest: Manifest, work: Work, run: _Statements) -> None:
    """
    `admit_drops`: documents after as_of, all captures of a key but the newest or oldest, and what edits left empty.
    """
    rules = [
        (name, shot.as_of_instant, shot.keep if shot.key else None)
        for name, source in manifest.sources.items()
        if (shot := source.snapshot)
    ]
    name, as_of, keep = ([one[at] for one in rules] for at in range(3))
    _register(
        work,
        "rules",
        source=pa.array(name, pa.string()),
        as_of=pa.array(as_of, pa.int64()),
        keep=pa.array(keep, pa.string()),
    )
    run("captures", emptied=EMPTY)
    run("drops", emptied=EMPTY)
