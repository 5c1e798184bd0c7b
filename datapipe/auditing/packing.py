"""
Where spans of a build's documents lie in its shards: whole in one row, cut by packing, or dropped with a long tail.

A span is known by bytes, a shard by tokens.  Of a byte-level vocabulary each id stands for so many bytes, so the
document is encoded again and counted; with other tokenizers only whole documents are placed.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pyarrow as pa

from datapipe.auditing.report import ShardPlace
from datapipe.books import Books
from datapipe.books.texts import fetch
from datapipe.manifest import TokenizerFile

How = Literal["whole", "cut", "dropped"]
Spans = Sequence[tuple[int, int]]  # bytes of the text
PIECES = """
select doc, file, row_id, low, low + length as high, flags & 3 = 3 as alone from (
    select file, row_id, unnest(seg_doc) as doc, unnest(seg_start) as low, unnest(seg_len) as length,
           unnest(seg_flags) as flags from shards
) where doc in (select unnest(?::bigint[])) order by doc, file, row_id, low
"""


@dataclass(frozen=True)
class Packed:
    """rows: those that hold a token of the spans; of a document that could not be counted, all that hold some of it."""

    how: How
    rows: tuple[ShardPlace, ...]


@dataclass(frozen=True)
class _Piece:
    """Tokens low:high of a document, with its bos; alone: all of it."""

    file: str
    row: int
    low: int
    high: int
    alone: bool


def packed(books: Books, asked: Mapping[int, Spans]) -> dict[int, Packed]:
    """Row of fates -> where its spans lie; documents that are in no shard are left out."""
    if not asked or not (books.has("train") or books.has("validation")):
        return {}
    pieces: dict[int, list[_Piece]] = {}
    for doc, *rest in books.query(PIECES, [sorted(asked)]):
        pieces.setdefault(doc, []).append(_Piece(*rest))
    rows = books.query("select doc, part, row, copies, tokens from fates where doc in (select unnest(?::bigint[]))",
                       [sorted(pieces)])  # fmt: skip
    cut = [one for one in rows if not all(piece.alone for piece in pieces[one[0]])]
    tokens = _tokens(books, {doc: ((part, row), asked[doc]) for doc, part, row, *_ in cut})
    copies = {doc: max(1, many) for doc, _, _, many, _ in rows}
    length = {doc: many for doc, *_, many in rows}
    return {doc: _place(found, tokens.get(doc), copies[doc], length[doc]) for doc, found in sorted(pieces.items())}


def _place(pieces: Sequence[_Piece], spans: Spans | None, copies: int, length: int | None) -> Packed:
    if all(piece.alone for piece in pieces):
        return Packed("whole", _rows(pieces))
    if spans is None:  # not counted: what is true of the document as a whole
        lost = length is not None and max(piece.high for piece in pieces) < length
        return Packed("dropped" if lost else "cut", _rows(pieces))
    touched = [piece for piece in pieces if any(low < piece.high and piece.low < high for low, high in spans)]
    if any(not any(low < piece.high and piece.low < high for piece in pieces) for low, high in spans):
        return Packed("dropped", _rows(touched))
    whole = all(sum(piece.low <= low and high <= piece.high for piece in pieces) >= copies for low, high in spans)
    return Packed("whole" if whole else "cut", _rows(touched))


def _rows(pieces: Sequence[_Piece]) -> tuple[ShardPlace, ...]:
    return tuple(dict.fromkeys(ShardPlace(file=piece.file, row=piece.row) for piece in pieces))


def _tokens(books: Books, asked: Mapping[int, tuple[tuple[int, int], Spans]]) -> dict[int, Spans]:
    """Row of fates -> its spans in tokens, bos counted; nothing where ids do not spell the bytes of a text."""
    from datapipe import tokens  # the library of tokenizers, which no other part of an audit needs

    spec = books.manifest.manifest.get("tokenizer")
    path = books.build / tokens.FILE
    if not asked or spec is None or not path.is_file():
        return {}
    names = {name: spec.get(name) for name in tokens.CONTROLS}
    tokenizer = tokens.load(path.read_bytes(), TokenizerFile(file=tokens.FILE, **names), str(path))
    widths = tokenizer.widths
    if widths is None:
        return {}
    texts = fetch(books.build, [place for place, _ in asked.values()], ("text",))
    found: dict[int, Spans] = {}
    for (doc, (_, spans)), row in zip(asked.items(), texts, strict=True):
        _, ids = tokenizer.encode(pa.array([row["text"]], pa.large_string()))
        ends = np.cumsum(widths[ids])
        if not len(ends) or ends[-1] != len(row["text"].encode()):
            continue
        shift = int(tokenizer.bos is not None)
        low = np.searchsorted(ends, [start for start, _ in spans], "right") + shift
        high = np.searchsorted(ends, [end for _, end in spans], "left") + 1 + shift
        found[doc] = list(zip(low.tolist(), high.tolist(), strict=True))
    return found
