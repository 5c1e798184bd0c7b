"""
Packing: which pieces of which documents share a row of exactly `length` tokens.

`pack` is a pure function of the documents' lengths; nothing here knows tokens, files or seeds.
"""

from dataclasses import dataclass

import numpy as np

from datapipe.kernels import packing

METHODS = {"best_fit": packing.best_fit, "concat": packing.concat}


@dataclass(frozen=True)
class Packed:
    """
    Rows and their segments: row r holds segments offsets[r] to offsets[r + 1], none empty, together at most `length`.

    offsets:   int64[rows + 1]
    document:  int64[segments], number of the document in the lengths that were given
    start:     int64[segments], the token of the document that the segment begins with
    size:      int64[segments], tokens
    again:     bool[segments], the first token is one that the segment before ends with, repeated as context
    ends:      bool[segments], the document ends here
    """

    length: int
    offsets: np.ndarray
    document: np.ndarray
    start: np.ndarray
    size: np.ndarray
    again: np.ndarray
    ends: np.ndarray

    @property
    def rows(self) -> int:
        return len(self.offsets) - 1

    def in_order(self, rows: np.ndarray) -> "Packed":
        """The same rows in another order: rows[0] comes first."""
        counts = np.diff(self.offsets)[rows]
        offsets = np.concatenate(([0], np.cumsum(counts)))
        take = np.arange(offsets[-1]) + np.repeat(self.offsets[rows] - offsets[:-1], counts)
        columns = (self.document, self.start, self.size, self.again, self.ends)
        return Packed(self.length, offsets, *(column[take] for column in columns))


def pack(lengths: np.ndarray, length: int, method: str) -> Packed:
    """
    lengths: tokens of each document, 1 or more, in the order that decides ties; length: tokens of a row, 2 or more.

    best_fit  pieces of at most `length` tokens, longest first, each into the row that it fills best; a document longer
              than a row repeats one token as context at each cut, so that no target is lost
    concat    documents one after the other, cut wherever a row is full; only the last row may have space left
    """
    lengths = np.asarray(lengths, np.int64)
    if length < 2 or (len(lengths) and lengths.min() < 1):
        raise ValueError(f"a row needs 2 tokens or more and a document 1, found {length} and {lengths.min(initial=1)}")
    row, document, start, size = METHODS[method](lengths, length)
    rows = int(row.max(initial=-1)) + 1
    again = (start > 0) if method == "best_fit" else np.zeros(len(start), bool)
    ends = start + size == lengths[document]
    offsets, order = packing.by_row(row, rows)
    return Packed(length, offsets, *(column[order] for column in (document, start, size, again, ends)))
