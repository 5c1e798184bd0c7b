"""
Exact dedup: of documents with the same normal form, the first in order of staying stays.

Documents with one text_hash are candidates.  Their normal forms are confirmed by sha256, so two different texts that
collide in the 128 bits of text_hash, by chance or by design, both stay.
"""

import hashlib
from collections.abc import Iterator

import pyarrow as pa

from datapipe import text
from datapipe.derive import Derivation, derive, read
from datapipe.documents import Documents, Verdict, sql
from datapipe.manifest import ExactDedup
from datapipe.stages.staying import drop, leak, order_of_staying

RULE = "same text"
VERSION = 1
DIGESTS = pa.schema([("doc", pa.int64()), ("digest", pa.binary(32))])
CANDIDATES = """
create or replace table exact_candidates as
select doc, part, row from documents
where place is null
  and text_hash in (select text_hash from documents where place is null group by text_hash having count(*) > 1)
order by part, row
"""


def judge(spec: ExactDedup, docs: Documents) -> Verdict:
    """Drops: every document that is not the first of its text, with the document that stays."""
    db = docs.work.db
    db.execute(CANDIDATES)
    cursor = db.cursor()
    cursor.register("digests", pa.RecordBatchReader.from_batches(DIGESTS, _digests(docs)))
    cursor.execute("create or replace table exact_digests as select doc, digest from digests")
    db.execute(sql("datapipe.stages", "exact_dedup.sql").replace("{staying}", order_of_staying(spec.prefer)))
    drop(docs.work, "exact_drops", RULE, "exact_pairs")
    return Verdict(drops="exact_drops", notes={"leak": leak(docs.work, "exact_drops")})


def _digests(docs: Documents) -> Iterator[pa.RecordBatch]:
    """(doc, sha256 of the normal form) of the candidates."""
    rows, names = {}, {}
    for part in docs.parts:
        query = "select row, doc from exact_candidates where part = ? order by row"
        found = docs.work.db.cursor().execute(query, [part.number]).fetchnumpy()
        if len(found["row"]):
            rows[part.number], names[part.number] = found["row"].astype("int32"), found["doc"].astype("int64")
    done = derive(_derivation(), docs, rows)

    def batches() -> Iterator[pa.RecordBatch]:
        for number, wanted in rows.items():
            for table in read(done[number], wanted):
                at = wanted.searchsorted(table["row"].to_numpy())
                digest = table["digest"].combine_chunks()
                yield pa.record_batch([pa.array(names[number][at]), digest], schema=DIGESTS)

    return batches()


def _derivation() -> Derivation:
    schema = pa.schema([("digest", pa.binary(32))])
    settings = {"text": text.VERSION, "unicode": text.UNICODE}
    return Derivation("normal_form_sha256", VERSION, settings, [], schema, _sha256)


def _sha256(table: pa.Table) -> list[pa.Array]:
    forms = text.normal_forms(table["text"].combine_chunks())
    return [pa.array([hashlib.sha256(form.as_buffer()).digest() for form in forms], pa.binary(32))]
