"""
The tables of a build, written into its folder: documents, signals, fates, ledger, refused records, signatures, bands.

Each is sorted by a unique key, so its bytes depend on what was decided and not on who decided it first.
"""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from datapipe import tables, units
from datapipe.documents import Documents, Part
from datapipe.keyed import stage_name

FATES = """
select hex32(d.doc_id) as doc_id, d.source, d.snapshot, d."group",
       hex32(d.text_hash) as text_hash, d.bytes, d.split,
       case when d.place is not null then 'dropped' when t.copies = 0 then 'unused' else 'kept' end as fate,
       case when d.place is not null then s.name when t.copies = 0 then 'mixture' end as stage,
       case when d.place is not null then d.rule when t.copies = 0 then 'copies = 0' end as rule,
       case when d.place is null then coalesce(t.copies, 1) else 0 end as copies,
       t.tokens, d.part, d.row
from documents d left join taken t using (doc) left join stage_names s using (place)
order by d.doc
"""
LEDGER = """
select hex32(d.doc_id) as doc_id, s.name as stage, l.rule, l.value, l.evidence, l.decides
from ledger l join documents d using (doc) join stage_names s on s.place = l.place
order by l.doc, l.place, l.decides desc, l.rule
"""


def write_fates(docs: Documents, folder: Path) -> None:
    """fates.parquet and ledger.parquet.  Needs the table `taken` (doc, copies, tokens), empty without a tokenizer."""
    names = {report.place: stage_name(report.place, report.stage) for report in docs.reports}
    db = docs.work.db
    db.execute("create or replace table stage_names (place integer, name varchar)")
    for place, name in names.items():
        db.execute("insert into stage_names values (?, ?)", [place, name])
    for query, schema, name in ((FATES, tables.FATES, "fates"), (LEDGER, tables.LEDGER, "ledger")):
        with db.sql(query).to_arrow_reader(tables.ROW_GROUP) as rows:
            tables.write_stream(folder / f"{name}.parquet", schema, rows)


def write_documents(docs: Documents, folder: Path, keep: str) -> None:
    """documents/part-00000.parquet: as read (`all`), or with the text of kept documents only (`kept`), or none."""
    folder.mkdir()
    for part in docs.parts:
        target = folder / f"part-{part.number:05d}.parquet"
        if keep == "all":
            units.link(part.path, target)
        else:
            _write_without_text(docs, part, target, keep)


def _write_without_text(docs: Documents, part: Part, target: Path, keep: str) -> None:
    kept = np.empty(0, np.int32)
    if keep == "kept":
        found = docs.work.db.execute(
            "select row from documents left join taken using (doc) "
            "where part = ? and place is null and coalesce(copies, 1) > 0 order by row",
            [part.number],
        ).fetchnumpy()
        kept = found["row"].astype(np.int32)

    def batches() -> Iterator[pa.RecordBatch]:
        for rows, table in part.batches(tables.DOCUMENTS.names):
            stays = pa.array(np.isin(rows, kept, assume_unique=True))
            text = pc.call_function("if_else", [stays, table["text"], pa.scalar(None, pa.large_string())])
            yield from table.set_column(table.schema.get_field_index("text"), "text", text).to_batches()

    tables.write_stream(target, tables.DOCUMENTS, batches(), row_group=4096)
