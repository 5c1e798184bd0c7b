"""
The mixture: how many copies of each training document go into the data set.

The total of targets is the largest for which no source needs more than its epochs; a source gets its weight's share.
A document gets floor(r) copies, r = copies wanted of its source, and one more iff its own hash is below the rest, so
that documents which are added later move no other.
"""

from fractions import Fraction

import numpy as np
import pyarrow as pa

from datapipe.documents import Documents, sql
from datapipe.errors import DataError
from datapipe.keyed import WHOLE, keyed_each
from datapipe.manifest import Manifest

NO_LIMIT = 2**62
BATCH = 65_536
KEPT = """
select d.doc, hex32(d.doc_id) as doc_id, d.source, d.split = 'train' as train, c.tokens
from documents d join counted c using (doc)
where d.place is null and c.tokens > 0
order by d.doc
"""
REALISED = """
select d.source, sum((least(t.tokens, $limit) - 1) * t.copies)::bigint
from taken t join documents d using (doc)
where d.split = 'train'
group by d.source
order by d.source
"""


def limit(manifest: Manifest) -> int:
    """Tokens that are taken of a document at most."""
    return manifest.sequences.max_document_tokens or NO_LIMIT


def mix(docs: Documents, manifest: Manifest) -> dict[str, dict]:
    """
    Needs the table `counted` (doc, tokens); makes `taken` (doc BIGINT, copies INTEGER, tokens BIGINT) of all documents
    that are alive and have tokens: 0 copies is unused, validation documents have 1, tokens are those of `counted`.

    Gives, for each source: weight (share asked for), epochs, copies_wanted, targets_wanted, targets (realised), share
    and error (share - weight).
    """
    db = docs.work.db
    found = db.execute(sql("datapipe", "mix.sql"), {"limit": limit(manifest)}).fetchall()
    has = dict.fromkeys(sorted(manifest.sources), 0) | {source: targets for source, _, targets in found}
    wanted = _wanted(manifest, has)
    _take(docs, wanted, manifest.seed)
    realised = dict.fromkeys(has, 0) | dict(db.execute(REALISED, {"limit": limit(manifest)}).fetchall())
    return {source: _line(manifest, source, has, wanted[source], realised) for source in has}


def _wanted(manifest: Manifest, has: dict[str, int]) -> dict[str, Fraction]:
    """Copies wanted of each source's documents, exactly."""
    if manifest.mixture is None:
        return dict.fromkeys(has, Fraction(1))
    shares = weights(manifest)
    for source, weight in shares.items():
        if weight and not has[source]:
            raise DataError(
                f"mixture: source {source} has weight {manifest.mixture[source].weight:g} and no targets left; "
                "see which stage dropped its documents, or give it weight 0"
            )
    epochs = {source: Fraction(share.epochs) for source, share in manifest.mixture.items()}
    total = min(epochs[source] * has[source] / weight for source, weight in shares.items() if weight)
    return {source: weight * total / has[source] if weight else Fraction(0) for source, weight in shares.items()}


def weights(manifest: Manifest) -> dict[str, Fraction]:
    """The share of the targets that each source of the mixture is asked for, exactly."""
    assert manifest.mixture is not None
    given = {source: Fraction(share.weight) for source, share in manifest.mixture.items()}
    whole = sum(given.values())
    return {source: weight / whole for source, weight in given.items()}


def _take(docs: Documents, wanted: dict[str, Fraction], seed: int) -> None:
    """Fill `taken`, a batch of documents at a time."""
    db = docs.work.db
    db.execute("create or replace table taken (doc bigint, copies integer, tokens bigint)")
    with db.cursor() as cursor:
        for batch in cursor.sql(KEPT).to_arrow_reader(BATCH):
            copies = pa.array(_copies(batch, wanted, seed))
            docs.work.insert("taken", pa.table({"doc": batch["doc"], "copies": copies, "tokens": batch["tokens"]}))


def _copies(batch: pa.RecordBatch, wanted: dict[str, Fraction], seed: int) -> np.ndarray:
    """int32, one a document of the batch."""
    train = batch["train"].to_numpy(zero_copy_only=False)
    copies = np.ones(len(batch), np.int32)
    sources = batch["source"].dictionary_encode()
    codes = sources.indices.to_numpy()
    for code, source in enumerate(sources.dictionary.to_pylist()):
        here = np.flatnonzero(train & (codes == code))
        whole, rest = divmod(wanted[source], 1)
        copies[here] = whole
        if rest:
            ids = batch["doc_id"].take(pa.array(here)).to_pylist()
            hashes = np.fromiter(keyed_each("copies", seed, ids), np.uint64, len(ids))
            copies[here] += hashes < np.uint64(int(rest * WHOLE))
    return copies


def _line(
    manifest: Manifest, source: str, has: dict[str, int], wanted: Fraction, realised: dict[str, int]
) -> dict[str, float | int]:
    whole = sum(realised.values())
    share = Fraction(realised[source], whole) if whole else Fraction(0)
    weight, epochs = share, 1.0
    if manifest.mixture is not None:
        weight, epochs = weights(manifest)[source], manifest.mixture[source].epochs
    return {
        "weight": float(weight),
        "epochs": epochs,
        "copies_wanted": float(wanted),
        "targets_wanted": int(wanted * has[source]),
        "targets": realised[source],
        "share": float(share),
        "error": float(share - weight),
    }
