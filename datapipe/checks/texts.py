"""What was said of texts, recomputed from the stored ones: their hashes, and the similarities that dedup claimed."""

from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from datapipe.books import Books
from datapipe.books.texts import fetch
from datapipe.build_manifest import BuildManifest
from datapipe.checks.check import Check, Progress
from datapipe.keyed import bound, keyed_each

SHARE = 0.01
BATCH_BYTES = 32_000_000  # of text in memory at a time, about
NOT_STORED = "the texts of {} documents are not stored (documents: {})"

DOCUMENTS = """
select doc_id, part, row, bytes, text_hash from fates where {stored} order by part, row
"""
CLAIMS = """
select l.doc_id, f.part, f.row, f.bytes + k.bytes, k.part, k.row, l.stage, l.value, k.doc_id
from ledger l join fates f using (doc_id) join fates k on k.doc_id = l.evidence->>'$.kept'
where l.decides and split_part(l.stage, ':', 2) in ('exact_dedup', 'near_dedup')
order by k.part, k.row, f.part, f.row
"""


def checks(books: Books, everything: bool, told: Progress) -> list[Check]:
    return [hashes(books, everything, told), similarities(books, everything, told)]


def hashes(books: Books, everything: bool, told: Progress) -> Check:
    """bytes and text_hash of a hash-chosen 1 % of the documents whose text is stored, or of each."""
    stored = _stored(books.manifest)
    if not books.query("select 1 from fates limit 1"):
        return Check("texts")  # nothing was read, so nothing is missing
    if stored == "none" or not books.has("documents"):
        return Check("texts", 0, [], NOT_STORED.format("all", stored))
    query = DOCUMENTS.format(stored="fate = 'kept'" if stored == "kept" else "true")
    seen, differences = 0, list[str]()
    for batch in _batches(_chosen(books, query, everything)):
        differences += _hashed(books, batch)
        seen += len(batch)
        told("texts", seen, None)
    return Check("texts", seen, differences, NOT_STORED.format("dropped", stored) if stored == "kept" else None)


def similarities(books: Books, everything: bool, told: Progress) -> Check:
    """What dedup claimed of a hash-chosen 1 % of the documents that it dropped, or of each."""
    if not books.query(f"select 1 from ({CLAIMS}) limit 1"):
        return Check("similarities")
    stored = _stored(books.manifest)
    if stored != "all" or not books.has("documents"):
        return Check("similarities", 0, [], NOT_STORED.format("dropped", stored))
    seen, differences = 0, list[str]()
    for batch in _batches(_chosen(books, CLAIMS, everything)):
        differences += _recomputed(books, batch)
        seen += len(batch)
        told("similarities", seen, None)
    return Check("similarities", seen, differences)


def _stored(made: BuildManifest) -> str:
    """Whose text the build holds: all, kept or none."""
    return str(made.manifest.get("documents", "all"))


def _chosen(books: Books, query: str, everything: bool) -> Iterator[tuple[Any, ...]]:
    """Rows of a query that starts with doc_id: all, or those that the hash chooses."""
    limit = bound(SHARE)
    with books.db.cursor() as cursor:  # of its own: other queries run while this one is read
        cursor.execute(query)
        while rows := cursor.fetchmany(65_536):
            chosen = keyed_each("verify", None, (row[0] for row in rows))
            yield from (row for row, number in zip(rows, chosen, strict=True) if everything or number < limit)


def _batches(rows: Iterator[tuple[Any, ...]]) -> Iterator[list[tuple[Any, ...]]]:
    """Rows whose fourth column is bytes of text, in lists of about BATCH_BYTES of it."""
    batch: list[tuple[Any, ...]] = []
    held = 0
    for row in rows:
        batch.append(row)
        held += row[3]
        if held >= BATCH_BYTES:
            yield batch
            batch, held = [], 0
    if batch:
        yield batch


def _texts(books: Books, places: Sequence[tuple[int, int]]) -> tuple[pa.Array, list[int]]:
    """Each text once, and for each place the number of its text."""
    numbers: dict[tuple[int, int], int] = {}
    at = [numbers.setdefault(place, len(numbers)) for place in places]
    found = fetch(books.build, list(numbers), ["text"])
    return pa.array([entry["text"] or "" for entry in found], pa.large_string()), at


def _hashed(books: Books, rows: list[tuple[Any, ...]]) -> list[str]:
    from datapipe import text  # numba and its kernels, which nothing else here needs

    texts, at = _texts(books, [(row[1], row[2]) for row in rows])
    hashes = text.text_hashes(texts).to_pylist()
    sizes = pc.call_function("binary_length", [texts]).to_pylist()
    return [
        f"{doc_id}: its text has {sizes[i]} bytes and hash {hashes[i]}, fates say {size} and {expected}"
        for (doc_id, _, _, size, expected), i in zip(rows, at, strict=True)
        if (sizes[i], hashes[i]) != (size, expected)
    ]


def _recomputed(books: Books, rows: list[tuple[Any, ...]]) -> list[str]:
    from datapipe import text

    asked = _asked(books.manifest)
    texts, at = _texts(books, [(row[1], row[2]) for row in rows] + [(row[4], row[5]) for row in rows])
    hashes = text.text_hashes(texts).to_pylist()
    sets = {n: text.shingle_sets(texts, n) for n in {stage["ngram"] for stage in asked.values() if "ngram" in stage}}
    differences: list[str] = []
    for (doc_id, *_, stage, value, kept), a, b in zip(rows, at[: len(rows)], at[len(rows) :], strict=True):
        if "ngram" in asked[stage]:
            differences += _similar(doc_id, kept, value, asked[stage], _overlap(*sets[asked[stage]["ngram"]], a, b))
        elif hashes[a] != hashes[b]:
            differences.append(f"{doc_id}: dropped as the same text as {kept}, which it is not")
    return differences


def _asked(made: BuildManifest) -> dict[str, dict[str, Any]]:
    """What the manifest says of each of its stages, by the name that ledger and fates use."""
    written = made.manifest.get("stages") or []
    return {stage.title: written[stage.place - 1] for stage in made.stages if 1 <= stage.place <= len(written)}


def _similar(doc_id: str, kept: str, value: float, stage: dict[str, Any], sizes: tuple[int, int]) -> list[str]:
    """The claim of one drop: value is the exact similarity, and not below the threshold (compared as fractions)."""
    inter, union = sizes
    found = inter / union if union else 0.0
    if found == value and union and Fraction(inter, union) >= Fraction(repr(stage["threshold"])):
        return []
    return [f"{doc_id}: similarity to {kept} is {value} in the ledger, its texts give {found}"]


def _overlap(offsets: np.ndarray, hashes: np.ndarray, a: int, b: int) -> tuple[int, int]:
    """Sizes of intersection and union of two sorted sets."""
    first, second = hashes[offsets[a] : offsets[a + 1]], hashes[offsets[b] : offsets[b + 1]]
    inter = len(np.intersect1d(first, second, assume_unique=True))
    return inter, len(first) + len(second) - inter
