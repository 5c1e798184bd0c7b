"""
Decontaminate: training documents that hold examples of eval suites leave; validation documents are counted and stay.

Every part of the stored documents is scanned once (contamination/scan.py), whatever other stages say: another bound
elsewhere scans nothing again.  Then the documents that are alive get a class for each example they hold.  What leaves
is a function of a document and the suites alone, see contamination/holding.py: so an audit of what is left by the same
suites and n finds nothing, however much of it later stages take.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from datapipe import tables, units
from datapipe.contamination import holding
from datapipe.contamination.classes import RANK
from datapipe.contamination.scan import Found
from datapipe.documents import Documents, Part, Verdict, sql
from datapipe.kernels import unicode
from datapipe.keyed import canonical
from datapipe.manifest import Decontaminate
from datapipe.stages.eval_suites import Looked, key
from datapipe.units import Done, Unit

SCAN_VERSION = 1  # raise it when index, scan or windows of contamination find otherwise
LIBRARIES = ("pyarrow", "xxhash")
PER_MATCH = 4_000  # bytes that judging takes for a match, about
MOST = 10  # examples that the notes list

RULES = pa.schema(
    [
        ("doc", pa.int64()),
        ("suite", pa.string()),
        ("class", pa.string()),
        ("rank", pa.int32()),  # of the class
        ("value", pa.float64()),
        ("evidence", pa.string()),
    ]
)
HOLDS = pa.schema([("doc", pa.int64()), ("example", pa.int32()), ("class", pa.string())])
CREATE = """
create or replace table eval_rules (doc bigint, suite varchar, class varchar, rank integer, value double,
    evidence varchar);
create or replace table eval_holds (doc bigint, example integer, class varchar);
create or replace table eval_classes (class varchar);
"""
# documents of a split by suite and class
COUNTED = """
select suite, class, count(*) from eval_rules r join documents d using (doc)
where (d.split = 'validation') = ? {more} group by all order by all
"""
STAYS = "and doc not in (select doc from decontaminate_drops)"
REMOVED = """
select r.suite, r.class, count(*) from decontaminate_drops p
join eval_rules r on r.doc = p.doc and r.evidence = p.evidence where p.decides group by all order by all
"""
LARGEST = """
select h.example, count(*) as n from eval_holds h
join (select doc from decontaminate_drops where decides) using (doc)
where h.class in (select class from eval_classes) group by h.example order by n desc, h.example
"""


def judge(spec: Decontaminate, docs: Documents) -> Verdict:
    """Drops: a row for each suite and class by which a training document leaves, naming the strongest example."""
    looked, db = docs.evals[key(spec)], docs.work.db
    index = looked.index  # made once, and not by each thread
    done = units.run(docs.work.store, [_unit(looked, part) for part in docs.parts], docs.work.workers)
    db.execute(CREATE)
    db.executemany("insert into eval_classes values (?)", [[name] for name in spec.classes])
    untested: dict[int, str] | None = None
    for found in _alive(docs, done, max(1, docs.work.memory // PER_MATCH)):
        held, reasons = holding.held(looked.suites, index, found)
        untested = {one: reasons[one] for one in (reasons if untested is None else untested) if one in reasons}
        if len(held):
            docs.work.insert("eval_holds", held.select(HOLDS.names))
            docs.work.insert("eval_rules", _rules(looked, held))
    db.execute(sql("datapipe.stages", "decontaminate.sql"))
    notes = _notes(spec, docs, looked, untested or {})
    for table in ("eval_rules", "eval_holds", "eval_classes"):
        db.execute(f"drop table {table}")
    return Verdict(drops="decontaminate_drops", notes=notes)


# --- what is found in a part ---------------------------------------------------------------------------------------


def _unit(looked: Looked, part: Part) -> Unit:
    """The scan of all documents of a part, dropped ones too; `doc` is the row there."""

    def work(folder: Path) -> dict:
        founds = [
            holding.look(looked.index, table["text"].combine_chunks(), rows.astype(np.int64))
            for rows, table in part.batches(["text"])
            if len(rows)
        ]
        found = holding.joined(founds)
        for name in holding.TABLES:
            tables.write(folder / f"{name}.parquet", getattr(found, name))
        return {"rows": part.rows, "capped": found.capped}

    settings = {"looked": looked.digest, "unicode": unicode.VERSION}
    return Unit("contamination", SCAN_VERSION, settings, [part.sha256], LIBRARIES, work)


def _alive(docs: Documents, done: list[Done], most: int) -> Iterator[Found]:
    """What was found in documents that are alive, about `most` matches together; `doc` is that of `documents`."""
    waiting: list[Found] = []
    held = 0
    for part, unit in zip(docs.parts, done, strict=True):
        found = _of_part(docs, part, unit)
        size = sum(len(getattr(found, name)) for name in holding.TABLES)
        if waiting and held + size > most:
            yield holding.joined(waiting)
            waiting, held = [], 0
        if size:
            waiting.append(found)
            held += size
    yield holding.joined(waiting)


def _of_part(docs: Documents, part: Part, unit: Done) -> Found:
    rows, names = docs.alive(part)
    found: dict[str, pa.Table] = {}
    for name in holding.TABLES:
        table = _read(unit.path(f"{name}.parquet"))
        row = table["doc"].to_numpy()
        at = np.searchsorted(rows, row)
        kept = at < len(rows)
        kept[kept] = rows[at[kept]] == row[kept]
        mine = table.filter(pa.array(kept)) if not kept.all() else table
        place = mine.column_names.index("doc")
        found[name] = mine.set_column(place, mine.field(place), pa.array(names[at[kept]], pa.int64()))
    empty = Found.empty()
    return Found(**found, grams=empty.grams, seen=empty.seen, capped=0)


def _read(path: Path) -> pa.Table:
    with pq.ParquetFile(path, page_checksum_verification=True) as file:
        return file.read()


# --- what is said of it ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Held:
    """A row of HELD, by the names that are shown."""

    doc: int
    example: int
    cls: str
    part: str
    start: int | None
    end: int | None
    metric: str
    value: float
    suite: str
    id: str


def _rules(looked: Looked, held: pa.Table) -> pa.Table:
    """RULES: of the examples of one suite and class in a document, the strongest and how many there are."""
    examples = looked.suites.examples
    names = [examples[name].take(held["example"]).to_pylist() for name in ("suite", "id")]
    rows = [_Held(*row) for row in zip(*held.to_pydict().values(), *names, strict=True)]
    rows.sort(key=lambda row: (row.doc, row.suite, RANK[row.cls], -row.value, row.id, row.example))
    made = []
    for (doc, suite, cls), group in groupby(rows, lambda row: (row.doc, row.suite, row.cls)):
        best, *others = group
        evidence = {"suite": suite, "example": best.id, "class": cls, "part": best.part, "start": best.start,
                    "end": best.end, "metric": best.metric, "examples": 1 + len(others)}  # fmt: skip
        made.append((doc, suite, cls, RANK[cls], best.value, canonical(evidence).decode("ascii")))
    return pa.table([pa.array(column, kind) for column, kind in zip(zip(*made, strict=True), RULES.types, strict=True)],
                    schema=RULES)  # fmt: skip


def _notes(spec: Decontaminate, docs: Documents, looked: Looked, untested: Mapping[int, str]) -> dict:
    """What manifest.json says of the stage, see build_manifest/types.py."""
    db, suites = docs.work.db, looked.suites
    reasons: dict[str, Counter[str]] = {}
    owners = suites.examples["suite"].to_pylist()
    for example, reason in untested.items():
        reasons.setdefault(owners[example], Counter())[reason] += 1
    names = suites.examples.select(["suite", "id"])
    largest = [
        (names.slice(example, 1).to_pylist()[0], n) for example, n in db.execute(f"{LARGEST} limit {MOST}").fetchall()
    ]
    return {
        "n": looked.n,
        "n_unspaced": looked.n_unspaced,
        "classes": list(spec.classes),
        "suites": [
            {"suite": row["suite"], "sha256": row["sha256"], "examples": row["examples"],
             "untested": dict(sorted(reasons.get(row["suite"], Counter()).items()))}
            for row in sorted(suites.files.to_pylist(), key=lambda row: (row["suite"], row["path"]))
        ],
        "removed": _nested(db.execute(REMOVED).fetchall()),
        "stays": _nested(db.execute(COUNTED.format(more=STAYS), [False]).fetchall()),
        "validation": _nested(db.execute(COUNTED.format(more=""), [True]).fetchall()),
        "most": [{"suite": row["suite"], "example": row["id"], "documents": n} for row, n in largest],
    }  # fmt: skip


def _nested(rows: list[tuple[str, str, int]]) -> dict[str, dict[str, int]]:
    """suite -> class -> documents, classes in their order."""
    found: dict[str, dict[str, int]] = {}
    for suite, cls, n in sorted(rows, key=lambda row: (row[0], RANK[row[1]])):
        found.setdefault(suite, {})[cls] = n
    return found
