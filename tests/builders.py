"""Documents for tests and benches: made from records, or from batches of them, without the reader."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import xxhash

from datapipe import tables, text
from datapipe.documents import Documents, Part, Work
from datapipe.keyed import canonical, doc_id
from datapipe.units import Unit, digest

ADMITTED = """
insert into documents
select row_number() over (order by doc_id) - 1, doc_id, source, snapshot, "group", lang, text_hash, bytes, instant,
       priority, part, row, split, null, null
from admitted order by doc_id
"""
NARROW = pa.schema(
    [
        ("doc_id", pa.string()),
        ("source", pa.string()),
        ("snapshot", pa.string()),
        ("group", pa.string()),
        ("lang", pa.string()),
        ("text_hash", pa.string()),
        ("bytes", pa.int64()),
        ("instant", pa.int64()),
        ("priority", pa.int32()),
        ("part", pa.int32()),
        ("row", pa.int32()),
        ("split", pa.string()),
    ]
)


def documents(work: Work, records: Sequence[Mapping], *, parts: int = 1, row_group: int = 1000) -> Documents:
    """
    Documents of records {id, text, source, split, group, lang, snapshot, instant, priority, extra, text_hash, date};
    all but text may be left out.  Record i lies in part i * parts // len(records).
    """
    size = max(1, -(-len(records) // parts))
    pieces = [records[start : start + size] for start in range(0, len(records), size)] or [[]]
    return from_pieces(work, pieces, row_group=row_group)


def from_pieces(
    work: Work, pieces: Iterable[Sequence[Mapping]], *, row_group: int = 1000, unique: bool = False
) -> Documents:
    """
    The same with a part for each piece, only one of them in memory at a time; `unique` promises that no two records
    are equal, so that nobody has to remember their names.
    """
    docs = Documents(work, [])
    seen = None if unique else {}
    columns = ", ".join(f'"{column.name}" {_sql_type(column)}' for column in NARROW)
    work.db.execute(f"create table admitted ({columns})")
    cursor = work.db.cursor()
    for number, records in enumerate(pieces):
        stored = _stored(records)
        docs.parts.append(_part(work, number, stored, row_group))
        cursor.register("piece", _narrow(records, stored, number, seen))
        cursor.execute("insert into admitted select * from piece")
        cursor.unregister("piece")
    work.db.execute(ADMITTED)
    work.db.execute("drop table admitted")
    return docs


def _sql_type(column: pa.Field) -> str:
    kinds = {pa.string(): "varchar", pa.int64(): "bigint", pa.int32(): "integer"}
    return "uuid" if column.name in ("doc_id", "text_hash") else kinds[column.type]


def _stored(records: Sequence[Mapping]) -> pa.Table:
    """Rows of documents.parquet."""
    columns: dict[str, list] = {name: [record.get(name) for record in records] for name in tables.DOCUMENTS.names}
    columns["source"] = [record.get("source", "web") for record in records]
    columns["path"] = ["made.jsonl"] * len(records)
    columns["line"] = list(range(1, len(records) + 1))
    columns["raw_hash"] = [xxhash.xxh3_128_hexdigest(record["text"].encode()) for record in records]
    columns["extra"] = [canonical(record.get("extra", {})).decode() for record in records]
    return pa.table(columns, schema=tables.DOCUMENTS)


def _part(work: Work, number: int, stored: pa.Table, row_group: int) -> Part:
    def write(folder: Path) -> dict:
        tables.write(folder / "documents.parquet", stored, row_group=row_group)
        return {"rows": len(stored)}

    ids = digest([stored["raw_hash"].to_pylist(), stored["id"].to_pylist(), stored["extra"].to_pylist()])
    unit = Unit("made", 1, [number, row_group, ids], [], [], write)
    source = stored["source"][0].as_py() if len(stored) else "web"
    return Part(number, source, unit.run(work.store)[0], len(stored))


def _narrow(records: Sequence[Mapping], stored: pa.Table, number: int, seen: dict[str, int] | None) -> pa.Table:
    """Rows of `documents` but for `doc`; n of doc_id counts equal records in the order given."""
    hashes = text.text_hashes(stored["text"].combine_chunks()).to_pylist()
    names = []
    for record, source, raw in zip(records, stored["source"].to_pylist(), stored["raw_hash"].to_pylist(), strict=True):
        own = doc_id(source, record.get("id"), raw, 0)
        n = 0 if seen is None else seen.get(own, -1) + 1
        if seen is not None:
            seen[own] = n
        names.append(own if n == 0 else doc_id(source, record.get("id"), raw, n))
    columns: dict[str, list] = {name: [record.get(name) for record in records] for name in NARROW.names}
    columns["doc_id"] = names
    columns["source"] = stored["source"].to_pylist()
    columns["text_hash"] = [record.get("text_hash", value) for record, value in zip(records, hashes, strict=True)]
    columns["group"] = [r.get("group", h) for r, h in zip(records, columns["text_hash"], strict=True)]
    columns["bytes"] = [len(record["text"].encode()) for record in records]
    columns["priority"] = [record.get("priority", 0) for record in records]
    columns["split"] = [record.get("split", "train") for record in records]
    columns["part"] = [number] * len(records)
    columns["row"] = list(range(len(records)))
    return pa.table(columns, schema=NARROW)


def ids(docs: Documents) -> dict[str, str]:
    """The own id of each document, by doc_id."""
    found = {}
    for part in docs.parts:
        own = pq.read_table(part.path, columns=["id"])["id"].to_pylist()
        query = "select row, replace(doc_id::varchar, '-', '') from documents where part = ?"
        found |= {name: own[row] for row, name in docs.work.db.execute(query, [part.number]).fetchall()}
    return found


def alive(docs: Documents) -> list[str]:
    """Own ids of the documents that no stage dropped, sorted."""
    query = "select replace(doc_id::varchar, '-', '') from documents where place is null"
    names = ids(docs)
    return sorted(names[name] for (name,) in docs.work.db.execute(query).fetchall())


def ledger(docs: Documents) -> list[tuple[str, str, Any, Any, bool]]:
    """(own id, rule, value, evidence with the own id of `kept`, decides) of every row, sorted."""
    names = ids(docs)
    query = (
        "select replace(d.doc_id::varchar, '-', ''), l.rule, l.value, l.evidence, l.decides "
        "from ledger l join documents d using (doc)"
    )
    rows = docs.work.db.execute(query).fetchall()
    return sorted(
        ((names[name], rule, value, _named(evidence, names), decides) for name, rule, value, evidence, decides in rows),
        key=str,
    )


def _named(evidence: str | None, names: Mapping[str, str]) -> dict | None:
    found = json.loads(evidence) if evidence else None
    if found and "kept" in found:
        found["kept"] = names[found["kept"]]
    return found


def read_jsonl(path: Path, size: int = 20_000) -> Iterator[list[dict]]:
    """Records of a JSONL file (also .zst), `size` at a time."""
    with pa.input_stream(str(path), compression="zstd" if path.suffix == ".zst" else None) as file:
        lines: list[dict] = []
        tail = b""
        while block := file.read(1 << 22):
            *whole, tail = (tail + block).split(b"\n")
            lines.extend(json.loads(line) for line in whole if line.strip())
            while len(lines) >= size:
                yield lines[:size]
                lines = lines[size:]
        if tail.strip():
            lines.append(json.loads(tail))
        if lines:
            yield lines
