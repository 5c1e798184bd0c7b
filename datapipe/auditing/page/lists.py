"""
The long tables of the page, as the JSON that its script sorts, filters and pages.

A list is {columns: [{key, label, kind, ...}], rows: [[cell, ...]], detail: examples in a chunk or null, sorted}.  What
lies behind a flagged example is in chunks of their own, parsed when one of them is opened.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from datapipe.auditing.page import words
from datapipe.auditing.report import (
    CLASSES,
    WHAT,
    Common,
    Corpus,
    Evals,
    Evidence,
    Flagged,
    Match,
    Mirror,
    Section,
    Trace,
)

CHUNK = 100  # examples in one script element
DECIDES = {"variant": ("masked",), "near": ("edit", "containment")}  # measures of classes that no run decides
HEAD = 90  # characters of a prompt in the list
EXAMPLE = (
    "class",
    "also",
    "read from",
    "language",
    "metrics",
    "common kept",
    "documents",
    "exposure",
    "trained on",
    "same text as",
)
DOCUMENT = (
    "class", "doc_id", "url", "source", "origin", "text", "fate", "trained on", "exposure", "packing", "shards", "gap",
)  # fmt: skip
MATCH = ("part", "matched", "of", "how", "bytes in documents.text", "metrics")

Row = Sequence[Any]
List = dict[str, Any]


def meta() -> dict[str, Any]:
    """What the lists have in common: names of the facts, which the rows leave out."""
    return {"classes": CLASSES, "example": EXAMPLE, "document": DOCUMENT, "match": MATCH}


def flagged(section: Section) -> List:
    """A row an example, in the order of the report: the clearest first."""
    columns = [
        _column("set", "set", "name", filter=True),
        _column("id", "example", "name", opens=True),
        _column("class", "class", "class", filter=True, order=CLASSES),
        _column("longest", "longest match", "share", title="longest match over the units of the part"),
        _column(
            "strength",
            "strength",
            "share",
            title="longest match; of variants the match without numbers or "
            "identifiers, of near copies edit similarity or containment",
        ),
        _column("documents", "documents", "number"),
        _column(
            "exposure", "exposure", "number", title="copies in what is trained on, over all documents that hold it"
        ),
        _column("trained", "trained on", "flag", filter=True),
        _column("source", "sources", "name", filter=True),
        _column("prompt", "begins", "words"),
    ]
    rows = [
        [
            example.suite,
            example.id,
            example.cls,
            example.metrics.get("longest_ratio"),
            _strength(example),
            example.documents,
            example.exposure,
            "yes" if example.survived else "no",
            list(example.sources),
            _head(example),
        ]
        for example in section.flagged
    ]
    return _list(columns, rows, detail=CHUNK)


def chunks(section: Section) -> Iterator[list[dict[str, Any]]]:
    """What lies behind the rows of `flagged`, CHUNK at a time, in the same order."""
    for start in range(0, len(section.flagged), CHUNK):
        yield [_behind(example) for example in section.flagged[start : start + CHUNK]]


def _strength(example: Flagged) -> float | None:
    """What is most of it in a document, by the measure that its class goes by."""
    found = [example.metrics[name] for name in DECIDES.get(example.cls, ()) if name in example.metrics]
    return max(found, default=example.metrics.get("longest_ratio"))


def _head(example: Flagged) -> str:
    text = " ".join((example.parts[0].text if example.parts else "")[: 4 * HEAD].split())
    return text if len(text) <= HEAD else text[:HEAD].rstrip() + " …"


def _behind(example: Flagged) -> dict[str, Any]:
    facts = [
        f"{example.cls}: {example.why}",
        ", ".join(example.also),
        f"{example.file} row {example.row:,}",
        example.lang,
        words.metrics(example.metrics),
        words.metrics(example.metrics_without) if example.metrics_without != example.metrics else None,
        example.documents,
        example.exposure,
        "yes" if example.survived else "no",
        ", ".join(example.twins),
    ]
    return {
        "facts": facts,
        "parts": [(part.kind, words.part(part), part.text) for part in example.parts],
        "documents": [_document(found) for found in example.evidence],
    }


def _document(found: Evidence) -> dict[str, Any]:
    facts = [
        f"{found.cls}: {WHAT[found.cls]}",
        found.document,
        found.url,
        f"{found.source} in {found.corpus}",
        words.origin(found),
        words.plural(found.bytes, "byte"),
        words.fate(found),
        "yes" if found.survived else "no",
        found.exposure,
        words.packing(found.packed),
        ", ".join(f"{place.file} row {place.row:,}" for place in found.shards),
        None if found.gap is None else f"{words.plural(found.gap, 'unit')} between prompt and answer",
    ]
    return {"facts": facts, "matches": [_match(match) for match in found.matches], "text": segments(found)}


def _match(match: Match) -> Row:
    part = f"{match.kind} {match.ordinal + 1}" if match.ordinal else match.kind
    return [
        part,
        match.matched,
        match.units,
        match.near or "verbatim",
        words.spans(match),
        words.metrics(match.metrics),
    ]


def segments(found: Evidence) -> list[str | int | tuple[str, str]]:
    """Text, (kind, text) where a part was found, and a number of bytes where text is left out, the ends included."""
    made: list[str | int | tuple[str, str]] = []
    end = 0
    for piece in found.excerpt:
        if piece.start > end:
            made.append(piece.start - end)
        if piece.text:
            made.append((piece.kind, piece.text) if piece.kind else piece.text)
        end = piece.end
    return [*made, found.bytes - end] if found.excerpt and found.bytes > end else made


def mirrors(found: Iterable[Mirror]) -> List:
    """Documents that hold much of a suite."""
    columns = [
        _column("set", "set", "name", filter=True),
        _column("examples", "examples", "number"),
        _column("source", "source", "name", filter=True),
        _column("document", "doc_id", "code"),
        _column("url", "url", "code"),
        _column("path", "path", "code"),
    ]
    return _list(columns, [[m.suite, m.examples, m.source, m.document, m.url, m.path] for m in found])


def common(found: Iterable[Common]) -> List:
    """N-grams of examples in many documents."""
    columns = [
        _column("text", "n-gram", "words"),
        _column("documents", "documents", "number"),
        _column("occurrences", "occurrences", "number"),
        _column("sources", "sources", "number"),
        _column("examples", "examples", "number"),
        _column("common", "common", "flag", filter=True, title="taken for common, and left out"),
    ]
    rows = [
        [gram.text, gram.documents, gram.occurrences, gram.sources, gram.examples, "yes" if gram.common else "no"]
        for gram in found
    ]
    return _list(columns, rows)


def cells(section: Section) -> List:
    """The matrix as rows, with what the heat map leaves out."""
    columns = [
        _column("source", "source", "name", filter=True),
        _column("set", "set", "name", filter=True),
        _column("examples", "examples", "number"),
        _column("documents", "documents", "number", title="documents by which examples are flagged"),
        _column("exposure", "exposure", "number", title="copies of these in what is trained on"),
        _column("classes", "classes", "words", title="of all examples found there, flagged or not"),
    ]
    rows = [
        [
            c.source,
            c.suite,
            c.examples,
            c.documents,
            c.exposure,
            ", ".join(f"{k} {c.classes[k]:,}" for k in CLASSES if c.classes.get(k)),
        ]
        for c in section.matrix
    ]
    return _list(columns, rows)


def untested(evals: Evals) -> List:
    """Examples that could not be looked for."""
    columns = [
        _column("set", "set", "name", filter=True),
        _column("id", "example", "name"),
        _column("reason", "reason", "words", filter=True),
    ]
    return _list(columns, [[example.suite, example.id, example.reason] for example in evals.untested])


def twins(evals: Evals) -> List:
    """Groups of examples with one text."""
    columns = [_column("size", "examples", "number"), _column("group", "same text", "words")]
    return _list(columns, [[len(group), list(group)] for group in evals.twins])


def files(scope: Iterable[Corpus]) -> List:
    """Input files that were looked through."""
    columns = [
        _column("corpus", "corpus", "name", filter=True),
        _column("source", "source", "name", filter=True),
        _column("path", "path", "code"),
        _column("bytes", "bytes", "number"),
        _column("records", "records", "number"),
        _column("documents", "documents", "number"),
        _column("refused", "no document", "words"),
        _column("damaged", "damaged", "words"),
        _column("sha256", "sha256", "code"),
    ]
    rows = [
        [
            corpus.name,
            file.source,
            file.path,
            file.bytes,
            file.records,
            file.documents,
            words.counts(file.refused) or None,
            file.damaged,
            file.sha256,
        ]
        for corpus in scope
        for file in corpus.files
    ]
    return _list(columns, rows)


def retrieved(trace: Trace) -> List:
    """Examples for which the model was shown a document that holds them."""
    columns = [
        _column("set", "set", "name", filter=True),
        _column("id", "example", "name"),
        _column("class", "class", "class", filter=True, order=CLASSES),
        _column("documents", "retrieved", "number"),
        _column("by", "held by", "words"),
    ]
    return _list(columns, [[r.suite, r.id, r.cls, r.documents, list(r.by)] for r in trace.flagged])


def _column(key: str, label: str, kind: str, **more: Any) -> dict[str, Any]:
    """kind: name, words, code, number, share, class, flag; filter: a select of its values; opens: the row's button."""
    return {"key": key, "label": label, "kind": kind, **more}


def _list(columns: Sequence[dict[str, Any]], rows: Sequence[Row], detail: int | None = None) -> List:
    return {"columns": columns, "rows": rows, "detail": detail}
