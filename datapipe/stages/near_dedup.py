"""
Near dedup: a document leaves if one that stays is as similar to it as the threshold says, by exact Jaccard.

MinHash signatures, cut into bands, propose: documents that share a band's bucket can meet (bands.py).  Then all are
walked in order of staying (compare.py, kernels/walk.py).  Each bucket remembers the first 64 documents that stay; a
document is compared with those that its buckets remember, the best signature agreement first, at most 64 times, and
leaves at the first whose exact similarity reaches the threshold.  So every drop is verified against a document that
stays, chains of versions do not drag each other out, and a bucket of any size takes linear time.

Two short cuts cost nothing: lengths alone can rule a pair out; and a signature agreement that a pair at the threshold
has with a chance below one in a million is not worth a comparison.
"""

import math
from fractions import Fraction

import numpy as np
import pyarrow as pa

from datapipe import text
from datapipe.documents import Documents, Verdict, shown, sql
from datapipe.manifest import NearDedup
from datapipe.stages import bands
from datapipe.stages.compare import Comparison, Found, Rule
from datapipe.stages.segments import Line, segments
from datapipe.stages.staying import drop, leak, order_of_staying, write_clusters

MISSED = 1e-6  # chance that a pair at the threshold agrees too little to be compared
LARGEST = 10  # clusters that the notes list
PAIRS = "(doc bigint, kept bigint, value double, shown varchar, digits boolean)"


def judge(spec: NearDedup, docs: Documents) -> Verdict:
    """Drops: near duplicates, each with the document that stays and the exact similarity."""
    how = bands.banding(spec.threshold, spec.ngram, spec.num_perm)
    entered = bands.sign(docs, how)
    group = bands.write_sorted(docs, entered, how)
    counts = _compare(spec, docs, entered, how, group)
    drop(docs.work, "near_drops", f"jaccard >= {shown(spec.threshold)}", "near_pairs")
    return Verdict(drops="near_drops", notes=_notes(spec, docs, how, counts))


def rule_of(threshold: float, num_perm: int) -> Rule:
    """The threshold as a fraction: 0.8 is 4/5, so no pair is decided by the rounding of a double."""
    exact = Fraction(repr(threshold)).limit_denominator(10**9)
    return Rule(exact.numerator, exact.denominator, least_agreement(threshold, num_perm))


def least_agreement(threshold: float, num_perm: int) -> int:
    """The most agreeing values that a pair at the threshold exceeds but for a chance of MISSED (binomial)."""
    below = 0.0
    for k in range(num_perm + 1):
        below += math.comb(num_perm, k) * threshold**k * (1 - threshold) ** (num_perm - k)
        if below > MISSED:
            return k
    return num_perm


def _compare(
    spec: NearDedup, docs: Documents, entered: bands.Entered, how: bands.Banding, group: np.ndarray
) -> np.ndarray:
    """Walk all linked documents; the table near_pairs, and counts [candidates, compared, capped]."""
    docs.work.db.execute(f"create or replace table near_pairs {PAIRS}")
    counts = np.zeros(3, np.int64)
    line = _line(spec, docs, entered, how, group)
    budget = _budget(docs)
    cut = segments(line, budget)
    if cut:
        comparison = Comparison(docs, entered, how, line, cut, rule_of(spec.threshold, spec.num_perm), budget)
        for found in comparison.run():
            counts += found.counts
            docs.work.insert("near_pairs", _pairs(found))
    return counts


def _budget(docs: Documents) -> int:
    """Bytes of a segment: an eighth of the half that is not DuckDB's, shared by the threads."""
    return max(1 << 16, docs.work.memory // (16 * docs.work.workers))


def _line(spec: NearDedup, docs: Documents, entered: bands.Entered, how: bands.Banding, group: np.ndarray) -> Line:
    """The linked documents by link group and in order of staying."""
    linked = np.flatnonzero(group >= 0)
    cursor = docs.work.db.cursor()
    cursor.register("linked", pa.table({"doc": linked, "group": group[linked]}))
    query = sql("datapipe.stages", "near_dedup.sql").replace("{staying}", order_of_staying(spec.prefer))
    names = cursor.execute(query).fetchnumpy()["doc"].astype(np.int64)
    where = np.full(len(group), -1, np.int64)
    where[names] = np.arange(len(names))
    # a set, a signature, bucket keys and numbers, what buckets remember
    size = 8 * entered.shingles[names].astype(np.int64) + 4 * how.num_perm + 24 * how.bands + 64
    return Line(names, where, group[names], size)


def _pairs(found: Found) -> pa.Table:
    """Rows of near_pairs: similarities as doubles and as JSON writes them."""
    value = found.shared / found.union
    shown = [repr(v) for v in value.tolist()]
    columns = {"doc": found.docs, "kept": found.kept, "value": value}
    return pa.table(columns | {"shown": pa.array(shown, pa.string()), "digits": found.digits})


def _notes(spec: NearDedup, docs: Documents, how: bands.Banding, counts: np.ndarray) -> dict:
    candidates, compared, capped = counts.tolist()
    verified, numeric_only = docs.work.db.execute(
        "select count(*), count(*) filter (p.digits and d.text_hash <> k.text_hash) from near_pairs p "
        "join documents d on d.doc = p.doc join documents k on k.doc = p.kept"
    ).fetchall()[0]
    sizes = _cluster_sizes(docs)
    return {
        "candidates": candidates,
        "compared": compared,
        "verified": verified,
        "rejected": compared - verified,
        "capped": capped,
        "clusters": len(sizes),
        "largest": sizes[:LARGEST],
        "numeric_only": numeric_only,
        "bands": how.bands,
        "rows": how.rows,
        "recall_at_threshold": text.recall_of(spec.threshold, how.bands, how.rows),
        "leak": leak(docs.work, "near_drops"),
    }


def _cluster_sizes(docs: Documents) -> list[int]:
    """Documents in each cluster that a near duplicate belongs to, the largest first."""
    write_clusters(docs.work)
    rows = docs.work.db.execute(
        "select count(*) as n from clusters where cluster in (select kept from near_drops) "
        "group by cluster order by n desc"
    ).fetchnumpy()
    return rows["n"].astype(int).tolist()
