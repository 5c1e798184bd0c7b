"""
What --out writes beside report.json: the tables of an audit in Parquet.  The first two are whole, where the report
shows the first rows; the others have the rows of the report.

    examples.parquet    a row an example and role: suite, id, class, reason, figures
    evidence.parquet    a row each (example, document) that holds something
    sets, sweep, matrix, mirrors, common, repeated, controls, untested, files
    clean/<suite>.txt   ids that were tested and are clean in the training data
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
from pydantic import BaseModel

from datapipe import tables
from datapipe.auditing.report import Report, Role
from datapipe.auditing.sections import Judgement
from datapipe.build_manifest import consumers

REPORT = "report.json"
NAMES = (
    "examples", "evidence", "sets", "sweep", "matrix", "mirrors", "common", "repeated", "controls", "untested", "files",
)  # fmt: skip
NAME = str.maketrans({"/": "_", "\\": "_", "\0": "_"})


def written(folder: Path) -> list[Path]:
    """What --out writes or takes away in its folder, the report first."""
    names = (REPORT, *(f"{name}.parquet" for name in NAMES))
    return [*(folder / name for name in names), *sorted((folder / "clean").glob("*.txt"))]


def write(report: Report, judgements: Mapping[Role, Judgement], folder: Path) -> None:
    """All tables, each written whole."""
    folder.mkdir(parents=True, exist_ok=True)
    for path in written(folder):  # no table of an earlier audit may stand beside new ones
        path.unlink(missing_ok=True)
    whole: dict[Role, dict[str, pa.Table]] = {
        role: _whole(one) for role, one in judgements.items() if role != "retrieved"
    }
    for name in ("examples", "evidence"):
        _put(folder, name, pa.concat_tables([_with_role(role, found[name]) for role, found in whole.items()]))
    sections = [(section.role, section) for section in report.sections]
    rows: dict[str, list[dict[str, Any]]] = {
        "sets": [{"role": role} | _flat(row) for role, one in sections for row in (*one.sets, one.total)],
        "sweep": [{"role": role} | _flat(row) for role, one in sections for row in one.sweep],
        "matrix": [{"role": role} | _flat(row) for role, one in sections for row in one.matrix],
        "mirrors": [{"role": role} | _flat(row) for role, one in sections for row in one.mirrors],
        "common": [{"role": role} | _flat(row) for role, one in sections for row in one.common],
        "repeated": [{"role": role} | _flat(row) for role, one in sections for row in one.repeated],
        "controls": [_flat(row) for row in report.controls.forms],
        "untested": [_flat(row) for row in report.evals.untested],
        "files": [{"corpus": corpus.name, "role": corpus.role} | _flat(file) for corpus in report.scope
                  for file in corpus.files],
    }  # fmt: skip
    for name, found in rows.items():
        if found:
            _put(folder, name, pa.Table.from_pylist(found))
    if "train" in judgements:
        for suite, ids in _clean(judgements["train"]).items():
            data = "".join(f"{one}\n" for one in ids).encode("utf-8", "replace")
            consumers.put(folder / "clean" / f"{suite.translate(NAME)}.txt", data)


def _whole(one: Judgement) -> dict[str, pa.Table]:
    """Every example and every piece of evidence, with names in place of numbers where there are names."""
    examples = one.judged.classes
    evidence = one.judged.evidence
    own = one.eval.suites.examples.take(evidence["example"])
    kept = one.side.kept
    documents = [kept[doc][1].document if doc in kept else None for doc in evidence["doc"].to_pylist()]
    holders = [one.side.holders[doc] for doc in evidence["doc"].to_pylist()]
    columns: dict[str, pa.Array | pa.ChunkedArray] = {
        "suite": own["suite"],
        "id": own["id"],
        "source": pa.array([one.sources[source] for source, _ in holders], pa.string()),
        "copies": pa.array([copies for _, copies in holders], pa.int64()),
        "document": pa.array([each.document or None if each else None for each in documents], pa.string()),
        "path": pa.array([each.path or None if each else None for each in documents], pa.string()),
        "line": pa.array([each.line if each else None for each in documents], pa.int64()),
        "row": pa.array([each.place[2] if each and each.place else None for each in documents], pa.int64()),
    }
    return {"examples": examples, "evidence": pa.table({**{n: evidence[n] for n in evidence.column_names}, **columns})}


def _with_role(role: Role, table: pa.Table) -> pa.Table:
    return table.add_column(0, "role", pa.array([role] * len(table), pa.string()))


def _flat(row: BaseModel) -> dict[str, Any]:
    """A row of the report; what is inside of it goes by name_inner, counts by class as a list of pairs."""
    out: dict[str, Any] = {}
    for name, value in row.model_dump(mode="json").items():
        if isinstance(value, dict) and set(value) == {"found", "of", "share", "low", "high"}:
            out |= {f"{name}_{inner}": each for inner, each in value.items()}
        elif isinstance(value, dict):
            out[name] = [{"name": str(inner), "count": each} for inner, each in value.items()]
        else:
            out[name] = value
    return out


def _clean(one: Judgement) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    names = (one.judged.classes[name].to_pylist() for name in ("suite", "id", "class"))
    for suite, own, cls in zip(*names, strict=True):
        found.setdefault(suite, []).extend([own] if cls == "clean" else ())
    return found


def _put(folder: Path, name: str, table: pa.Table) -> None:
    temporary = folder / f".{name}.parquet.tmp"
    tables.write(temporary, table)
    temporary.replace(folder / f"{name}.parquet")
