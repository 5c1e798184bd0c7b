"""
Which of several documents stays, and how a drop names it: shared by exact and near dedup.

Both leave a table of drops with the columns of a verdict and `kept` BIGINT, the document that stays: `exact_drops`
and `near_drops`, empty until the stage ran.
"""

from collections.abc import Sequence

from datapipe.documents import DROPS, Work, sql

WAYS = {
    "priority": "d.priority desc nulls last",
    "longest": "d.bytes desc",
    "shortest": "d.bytes",
    "newest": "d.instant desc nulls last",
    "oldest": "d.instant nulls last",
}


def order_of_staying(prefer: Sequence[str]) -> str:
    """
    ORDER BY terms over `documents d`: validation before train, then `prefer`, then (text_hash, doc_id): `doc` is the
    rank of doc_id.
    """
    return ", ".join(["d.split <> 'validation'", *(WAYS[way] for way in prefer), "d.text_hash", "d.doc"])


def prepare(work: Work) -> None:
    """Make the tables of drops that are not there yet."""
    for name in ("exact_drops", "near_drops"):
        work.db.execute(f"create table if not exists {name} ({DROPS}, kept bigint)")


def drop(work: Work, table: str, rule: str, pairs: str) -> None:
    """Fill a table of drops from `pairs` (doc, kept, value double, shown varchar: the value as JSON)."""
    prepare(work)
    work.db.execute(f"delete from {table}")
    work.db.execute(sql("datapipe.stages", "drops.sql").replace("{table}", table).replace("{pairs}", pairs), [rule])


def leak(work: Work, table: str) -> int:
    """Train documents that leave because a validation document has their text, or nearly."""
    query = (
        f"select count(*) from {table} p join documents d on d.doc = p.doc join documents k on k.doc = p.kept "
        "where d.split <> 'validation' and k.split = 'validation'"
    )
    return work.db.execute(query).fetchall()[0][0]


def write_clusters(work: Work) -> None:
    """
    Make the table `clusters` (doc, cluster): every document that a dedup stage dropped, and the one that its evidence
    leads to in the end; and the kept one itself.
    """
    prepare(work)
    work.db.execute(sql("datapipe.stages", "clusters.sql"))
