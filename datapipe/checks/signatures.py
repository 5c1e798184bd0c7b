"""signatures.parquet and bands.parquet: of whom they are, and that they agree with fates, ledger and each other."""

from datapipe.books import Books
from datapipe.checks.check import SHOWN, Check

# sentence about a document -> SQL that finds those it is true of; $place is that of near dedup
WRONG = {
    "reached near dedup and has no signature": """
        select f.doc_id from fates f left join signatures s using (doc_id)
        where coalesce(f.place, $place) >= $place and s.doc_id is null""",
    "has a signature and never reached near dedup": """
        select s.doc_id from signatures s left join fates f using (doc_id)
        where f.doc_id is null or f.place < $place""",
    "has two signatures": "select doc_id from signatures group by doc_id having count(*) > 1",
    "is in another cluster than the document that it was dropped for": """
        select s.doc_id from ledger l join signatures s using (doc_id)
        join signatures k on k.doc_id = l.evidence->>'$.kept'
        where l.decides and split_part(l.stage, ':', 2) = 'near_dedup'
        and (s.cluster is null or s.cluster is distinct from k.cluster)""",
    "has not one bucket in each band": """
        select f.doc_id from (select doc, count(distinct band) as bands, count(*) as rows from bands group by doc) b
        join fates f using (doc) where b.rows <> $bands or b.bands <> $bands""",
    "has buckets and no signature": """
        select distinct coalesce(f.doc_id, 'row ' || b.doc::varchar) from bands b left join fates f using (doc)
        left join signatures s using (doc_id) where s.doc_id is null""",
}


def checks(books: Books) -> list[Check]:
    """Nothing where near dedup did not run, unless the files are there all the same."""
    near = books.manifest.near_dedup
    there = [name for name in ("signatures", "bands") if books.has(name)]
    if near is None:
        return [Check("signatures", 0, [f"{name}.parquet: no near dedup ran" for name in there])] if there else []
    missing = [f"{name}.parquet: missing" for name in ("signatures", "bands") if name not in there]
    if missing:
        return [Check("signatures", 0, missing)]
    place = next(stage.place for stage in books.manifest.stages if stage.stage == "near_dedup")
    differences = [
        f"signatures: {doc_id}: {sentence}"
        for sentence, query in WRONG.items()
        for (doc_id,) in books.query(
            query.replace("$place", str(place)).replace("$bands", str(near.bands)) + f" order by 1 limit {SHOWN}"
        )
    ]
    return [Check("signatures", books.query("select count(*) from signatures")[0][0], differences)]
