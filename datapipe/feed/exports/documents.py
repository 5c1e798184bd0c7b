"""
Rows -> whole documents: the pieces that packing cut a document into are put together again.

Nothing is guessed from ids: which piece follows which is in seg_doc and seg_start, and what was repeated as context
is in seg_flags.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from datapipe.errors import IntegrityError
from datapipe.feed.batch import Rows
from datapipe.rows import AGAIN, ENDS, STARTS

BLOCK = 1 << 21  # tokens of the documents that are put together at a time; a longer document is a block alone


@dataclass(frozen=True, eq=False)
class Documents:
    """
    n documents, one behind the other, with bos and eos as they were tokenized.

    ids:     int32[tokens];  offsets: int64[n + 1] into it
    doc:     int64[n], row of fates;  source: int16[n], index into manifest.json's sources
    mask:    bool[tokens], which tokens may be predicted; None: all
    """

    ids: np.ndarray
    offsets: np.ndarray
    doc: np.ndarray
    source: np.ndarray
    mask: np.ndarray | None

    def __len__(self) -> int:
        return len(self.doc)

    @property
    def lengths(self) -> np.ndarray:
        """int64[n], tokens of each."""
        return np.diff(self.offsets)

    @property
    def targets(self) -> int:
        """Tokens that may be predicted from the one before them in their document."""
        if self.mask is None:
            return len(self.ids) - len(self)
        return int(self.mask.sum()) - int(self.mask[self.offsets[:-1]].sum())


@dataclass(frozen=True, eq=False)
class _Pieces:
    """
    Segments without their repeated token, document by document in order of first appearance, each in its own order.

    at:      int64, where in the ids of all rows, end to end, a piece begins;  size: int64, its tokens
    segment: int64, which segment it is
    first:   int64[documents + 1] into them
    """

    at: np.ndarray
    size: np.ndarray
    segment: np.ndarray
    first: np.ndarray


def whole(rows: Rows, where: str) -> Iterator[Documents]:
    """
    The documents of all rows of a shard, in order of first appearance, about BLOCK tokens at a time.

    where: the shard's name, for an IntegrityError if pieces do not fit together
    """
    if not len(rows.seg_len):
        return
    pieces = _pieces(rows, where)
    flat = np.ascontiguousarray(rows.input_ids).reshape(-1)
    allowed = None if rows.mask is None else np.ascontiguousarray(rows.mask).reshape(-1)
    ends = np.cumsum(np.add.reduceat(pieces.size, pieces.first[:-1]))
    begin = done = 0
    while begin < len(ends):
        stop = max(int(np.searchsorted(ends, done + BLOCK, "right")), begin + 1)
        here = slice(pieces.first[begin], pieces.first[stop])
        at, size, segment = pieces.at[here], pieces.size[here], pieces.segment[here]
        starts = np.cumsum(size) - size
        take = np.arange(size.sum()) + np.repeat(at - starts, size)
        ids = flat[take]
        again = np.flatnonzero((rows.seg_flags[segment] & AGAIN) != 0)
        if (flat[at[again] - 1] != ids[starts[again] - 1]).any():
            raise IntegrityError(f"{where}: a token repeated as context is not the one before it; build again")
        heads = segment[pieces.first[begin:stop] - pieces.first[begin]]
        yield Documents(
            ids,
            np.concatenate(([0], ends[begin:stop] - done)),
            rows.seg_doc[heads],
            rows.seg_source[heads],
            None if allowed is None else allowed[take],
        )
        begin, done = stop, int(ends[stop - 1])


def _pieces(rows: Rows, where: str) -> _Pieces:
    again = ((rows.seg_flags & AGAIN) != 0).astype(np.int64)
    ends = np.concatenate((np.zeros(1, np.int64), np.cumsum(rows.seg_len, dtype=np.int64)))
    row = np.repeat(np.arange(len(rows)), np.diff(rows.offsets))
    at = row * rows.length + ends[:-1] - ends[rows.offsets[row]] + again
    start, size = rows.seg_start + again, rows.seg_len - again
    copy = _copies(rows, at)

    order = np.lexsort((start, copy, rows.seg_doc))
    doc, copy, start, size, at = rows.seg_doc[order], copy[order], start[order], size[order], at[order]
    new = np.ones(len(order), bool)
    new[1:] = (np.diff(doc) != 0) | (np.diff(copy) != 0)
    last = np.append(new[1:], True)
    follows = np.append(0, (start + size)[:-1])
    flags = rows.seg_flags[order]
    wrong = (start != np.where(new, 0, follows)) | (size < 0)
    wrong |= (((flags & STARTS) != 0) != new) | (((flags & ENDS) != 0) != last)
    if wrong.any():
        name = int(doc[np.flatnonzero(wrong)[0]])
        raise IntegrityError(f"{where}: the pieces of document {name} do not fit together; build again")

    heads = np.flatnonzero(new)
    group = np.cumsum(new) - 1
    place = np.empty(len(heads), np.int64)
    place[np.argsort(np.minimum.reduceat(at, heads), kind="stable")] = np.arange(len(heads))
    by_place = np.argsort(place[group], kind="stable")
    counts = np.zeros(len(heads), np.int64)
    counts[place] = np.diff(np.append(heads, len(order)))
    return _Pieces(at[by_place], size[by_place], order[by_place], np.append(0, np.cumsum(counts)))


def _copies(rows: Rows, at: np.ndarray) -> np.ndarray:
    """
    int64[segments]: which copy of its document a segment is of.

    Copies lie in different shards; where a shard of another make holds two, they were cut alike, and the n-th piece
    from one start belongs to copy n.
    """
    order = np.lexsort((at, rows.seg_start, rows.seg_doc))
    new = np.ones(len(order), bool)
    new[1:] = (np.diff(rows.seg_doc[order]) != 0) | (np.diff(rows.seg_start[order]) != 0)
    number = np.arange(len(order))
    found = np.empty(len(order), np.int64)
    found[order] = number - np.maximum.accumulate(np.where(new, number, 0))
    return found
