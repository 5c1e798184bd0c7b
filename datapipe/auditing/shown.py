"""What a report shows of an example and of the documents that hold it: pieces of text, matches, evidence."""

from datapipe.auditing.looked import Count, Entry, Figure, Role
from datapipe.contamination.model import Class


class Piece(Entry):
    """
    A piece of a document's text, in order.  start, end: bytes in `documents.text`.

    kind: the part of the example that it matches, null for what stands between; skipped: bytes left out behind it
    """

    start: Count
    end: Count
    kind: str | None
    text: str
    skipped: Count = 0


class Span(Entry):
    """A match: bytes in the document's text, units in the part."""

    start: Count
    end: Count
    part_start: Count
    units: Count


class Match(Entry):
    """
    A part of the example in one document: what was measured there, where it lies.

    metrics: longest, longest_ratio, covered_ratio of what is equal; numbers: with numbers masked; others of a window
    spans:   what is equal, or equal but for numbers; of a part that has neither the window
    near:    the largest of the measures that are not of equal text; null where there is none
    """

    kind: str
    ordinal: Count
    units: Count  # of the part
    matched: Count  # of them in spans
    metrics: dict[str, Figure]
    spans: tuple[Span, ...]
    spans_total: Count
    near: str | None = None  # containment, edit, numbers, identifiers


class ShardPlace(Entry):
    """A row of a shard that holds tokens of the document."""

    file: str
    row: Count


class Evidence(Entry):
    """
    A document that holds something of the example.

    path, line, offset: its record in the input, byte offset in the (decompressed) file; url: its own id or url
    exposure: copies in the built mixture; of files 1 a document
    survived: whether it is trained on, and with it the span;  fate, stage, rule: what became of it, in a build
    packed:   "whole" where one row holds each span in every copy, "cut" where packing spread a span over rows,
              "dropped" where one lies in a tail that max_document_tokens cut off; null where nothing was packed
    shards:   the rows that hold the spans, the first ones
    """

    document: str  # doc_id
    corpus: str
    source: str
    role: Role
    cls: Class  # what this document alone says of the example
    url: str | None
    path: str
    line: int | None
    offset: int | None
    bytes: Count
    exposure: Count
    survived: bool
    fate: str | None = None
    stage: str | None = None
    rule: str | None = None
    packed: str | None = None
    shards: tuple[ShardPlace, ...] = ()
    gap: int | None = None  # units between prompt and answer, where both are there
    matches: tuple[Match, ...]
    excerpt: tuple[Piece, ...]


class Part(Entry):
    """A part of an example, its first TEXT characters; cut: there is more."""

    kind: str
    ordinal: Count
    correct: bool | None
    text: str
    cut: bool


class Flagged(Entry):
    """An example that is not clean: documents and exposure of all that hold it, evidence of the best of them."""

    suite: str
    id: str
    file: str
    row: Count
    lang: str | None
    cls: Class
    also: tuple[Class, ...] = ()  # further classes that other documents would give it
    why: str
    parts: tuple[Part, ...]
    metrics: dict[str, Figure]  # the largest over its flagging parts, common n-grams left out
    metrics_without: dict[str, Figure]  # the same, nothing taken for common
    documents: Count
    exposure: Count
    sources: tuple[str, ...]
    survived: bool
    twins: tuple[str, ...] = ()
    evidence: tuple[Evidence, ...]
