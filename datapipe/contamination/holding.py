"""
Which documents hold which examples: the answer that documents are removed by.

No n-gram is left out here for being common in the documents.  So the answer is a function of a document and the
suites alone: it is the same whatever else is in the corpus, before or behind other stages, and it can be kept.  Where
an audit leaves common n-grams out, it can only find fewer of these, never another one.
"""

from collections.abc import Iterable

import numpy as np
import pyarrow as pa

from datapipe.contamination import classes, scan
from datapipe.contamination.hits import Bounds
from datapipe.contamination.index import Index
from datapipe.contamination.intervals import columns
from datapipe.contamination.model import Suites
from datapipe.contamination.scan import Found

TABLES = ("runs", "short", "masked", "windows")
HELD = pa.schema(
    [
        ("doc", pa.int64()),
        ("example", pa.int32()),
        ("class", pa.string()),
        ("part", pa.string()),  # the kind of the part that decides
        ("start", pa.int64()),  # bytes of the document's text at which its best match begins and ends
        ("end", pa.int64()),
        ("metric", pa.string()),  # which figure decides
        ("value", pa.float64()),
    ]
)


def look(index: Index, texts: pa.Array, docs: np.ndarray) -> Found:
    """The scan of a batch, with every document that holds a short part."""
    return scan.scan(index, texts, docs, alone=None)


def joined(founds: Iterable[Found]) -> Found:
    """What was found in different documents, each in its own order."""
    every = [Found.empty(), *founds]
    runs, short, masked, windows = (pa.concat_tables([getattr(one, name) for one in every]) for name in TABLES)
    return Found(runs, masked, short, windows, every[0].grams, every[0].seen, sum(one.capped for one in every))


def held(suites: Suites, index: Index, found: Found) -> tuple[pa.Table, dict[int, str]]:
    """
    (HELD: a row for each example and document that holds it, in any class, sorted so;
    example -> why it cannot be looked for, of those that were not found either)
    """
    judged = classes.judge(suites, index.layout, found, None)
    rows = enumerate(zip(*(judged.classes[name].to_pylist() for name in ("class", "reason")), strict=True))
    untested = {example: reason for example, (cls, reason) in rows if cls == "untested"}
    return _held(suites, index, found, judged.evidence), untested


def _held(suites: Suites, index: Index, found: Found, evidence: pa.Table) -> pa.Table:
    if not len(evidence):
        return HELD.empty_table()
    places = _places(index, found, np.unique(evidence["doc"].to_numpy()))
    kinds = suites.parts["kind"].take(evidence["part"])
    rows = evidence.select(["doc", "part", "doc_unit", "length", *MEASURES, "class"]).to_pylist()
    spans = [places.get((row["doc"], int(index.twin[row["part"]]), row["doc_unit"], row["length"])) for row in rows]
    decided = [_decided(row) for row in rows]
    return pa.table(
        [
            evidence["doc"],
            evidence["example"],
            evidence["class"],
            kinds,
            pa.array([span and span[0] for span in spans], pa.int64()),
            pa.array([span and span[1] for span in spans], pa.int64()),
            pa.array([name for name, _ in decided], pa.string()),
            pa.array([value for _, value in decided], pa.float64()),
        ],
        schema=HELD,
    )


MEASURES = ("longest_ratio", "covered_ratio", "containment", "edit", "masked")


def _decided(row: dict) -> tuple[str, float]:
    """(figure, value) that a class is said for; `whole` where a text was found from end to end."""
    bounds = Bounds()
    known = {name: row[name] for name in MEASURES if row[name] is not None}
    if row["class"] == "variant" and "masked" in known:
        return "masked", known["masked"]
    if row["class"] != "near":
        if known.get("longest_ratio", 0.0) >= bounds.longest:
            return "longest_ratio", known["longest_ratio"]
        if known.get("covered_ratio", 0.0) > bounds.best_doc:
            return "best_doc_ratio", known["covered_ratio"]
    alike = (
        max((known[name], name) for name in (*MEASURES[2:4], "") if name in known)
        if known.keys() & MEASURES[2:4]
        else None
    )
    if alike and alike[0] >= bounds.near:
        return alike[1], alike[0]
    if "masked" in known:
        return "masked", known["masked"]
    return "whole", 1.0


def _places(index: Index, found: Found, docs: np.ndarray) -> dict[tuple[int, int, int, int], tuple[int, int]]:
    """(document, text, its unit, units) -> bytes of the match, in these documents."""
    places: dict[tuple[int, int, int, int], tuple[int, int]] = {}
    for name in TABLES:
        table = getattr(found, name)
        names = ("doc", "part", "doc_unit", "length", "byte_start", "byte_end")
        doc, part, unit, length, start, end = columns(table, names)
        if name == "windows":
            length = index.lengths[part]
        kept = np.flatnonzero(np.isin(doc, docs))
        rows = zip(*(column[kept].tolist() for column in (doc, part, unit, length, start, end)), strict=True)
        for *key, low, high in rows:
            places.setdefault(tuple(key), (low, high))
    return places
