"""
Holdout: sets validation documents apart, by group, before any dedup stage looks at them.

Membership is decided by a salt of its own and the group's key alone, so it is the same in all builds: no document
added, no seed and no order of files moves another one.
"""

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from datapipe.documents import Documents, Verdict
from datapipe.keyed import bound, keyed_each
from datapipe.manifest import Holdout
from datapipe.stages.values import field_values

GROUPS = pa.schema([("doc", pa.int64()), ("value", pa.string())])
CHOSEN = pa.schema([("key", pa.string())])


def judge(spec: Holdout, docs: Documents) -> Verdict:
    """
    Marks: `split` of the documents of chosen groups, and `group` where `by` names the field.

    All documents are marked, those that an earlier stage dropped too: a group is never on both sides.
    """
    marks = {}
    if spec.by:
        _read_groups(docs, spec.by)
        marks["group"] = "holdout_groups"
    _choose(docs, spec)
    marks["split"] = "holdout_split"
    groups, documents = docs.work.db.execute(
        "select count(distinct k.key), count(*) from holdout_split s join holdout_keys k using (doc) "
        "join documents d using (doc) where d.place is null"
    ).fetchall()[0]
    notes = {
        "before_dedup": True,
        "by": spec.by,
        "salt": spec.salt,
        "fraction": spec.fraction,
        "groups": groups,
        "documents": documents,
    }
    return Verdict(marks=marks, notes=notes)


def chosen(salt: str, keys: list[str], fraction: float) -> list[bool]:
    """Whether each group is validation."""
    limit = bound(fraction)
    return [number < limit for number in keyed_each("holdout", salt, keys)]


def _choose(docs: Documents, spec: Holdout) -> None:
    """Tables holdout_keys (doc, key) and holdout_split (doc, value 'validation')."""
    db = docs.work.db
    source = "left join holdout_groups g using (doc)" if spec.by else ""
    key = 'coalesce(g.value, d."group")' if spec.by else 'd."group"'
    db.execute(f"create or replace table holdout_keys as select doc, {key} as key from documents d {source}")

    def batches() -> Iterator[pa.RecordBatch]:
        with db.cursor().sql("select distinct key from holdout_keys").to_arrow_reader(65_536) as reader:
            for batch in reader:
                keys = batch.column(0).to_pylist()
                yield batch.filter(pa.array(chosen(spec.salt, keys, spec.fraction), pa.bool_())).cast(CHOSEN)

    # collected before they go back into the database: a query must not wait for another one's rows
    table = pa.Table.from_batches(batches(), CHOSEN)
    cursor = db.cursor()
    cursor.register("chosen", table)
    cursor.execute(
        "create or replace table holdout_split as "
        "select doc, 'validation' as value from holdout_keys semi join chosen using (key)"
    )


def _read_groups(docs: Documents, by: str) -> None:
    """Table holdout_groups (doc, value): the field `by` of every document that has it, read from the parts."""
    db = docs.work.db
    db.execute("create or replace table holdout_groups (doc bigint, value varchar)")
    for part in docs.parts:
        query = "select row, doc from documents where part = ? order by row"
        found = db.execute(query, [part.number]).fetchnumpy()
        rows, names = found["row"].astype(np.int32), found["doc"].astype(np.int64)
        for here, values in field_values(part, by, rows):
            docs_here = names[rows.searchsorted(here)]
            batch = pa.record_batch([pa.array(docs_here), values], schema=GROUPS)
            docs.work.insert("holdout_groups", pa.Table.from_batches([batch.filter(values.is_valid())]))
