"""The text around matches, cut so that a report stays small and a reader sees what matched: pieces, marked and not."""

from collections.abc import Iterator, Sequence
from itertools import pairwise

from datapipe.auditing.gather import Kept
from datapipe.auditing.report import Piece
from datapipe.contamination.model import ORDER

AROUND = 240  # bytes shown on each side of a match
HEAD = 600  # bytes shown of each end of a long piece
Mark = tuple[int, int, str]  # bytes of the document's text, kind of part


def excerpt(kept: Kept, marks: Sequence[Mark], most: int) -> tuple[Piece, ...]:
    """
    The marked pieces of a document and what stands around them, in order; `most`: bytes of text, about.

    Where matches overlap, the kind that comes first in an example is marked.
    """
    found: list[Piece] = []
    shown = 0
    for start, data, low, high in _ranges(kept, marks):
        edges = sorted({low, high, *(edge for mark in marks for edge in mark[:2] if low < edge < high)})
        for first, last in pairwise(edges):
            kinds = [kind for begin, end, kind in marks if begin <= first and last <= end]
            kind = min(kinds, key=ORDER.__getitem__, default=None)
            for piece in _pieces(data[first - start : last - start], first, kind):
                if shown >= most:
                    return (*found[:-1], _skipping(found[-1], kept.size))
                if found and found[-1].end < piece.start:
                    found[-1] = _skipping(found[-1], piece.start)
                found.append(piece)
                shown += piece.end - piece.start
    if found:
        found[-1] = _skipping(found[-1], kept.size)
    return tuple(found)


def _skipping(piece: Piece, until: int) -> Piece:
    return piece.model_copy(update={"skipped": until - piece.end})


def _ranges(kept: Kept, marks: Sequence[Mark]) -> Iterator[tuple[int, bytes, int, int]]:
    """(start of the slice, its bytes, first and last byte to show) for what lies around marks."""
    wide: list[list[int]] = []
    for low, high in sorted((begin - AROUND, end + AROUND) for begin, end, _ in marks):
        if wide and low <= wide[-1][1]:
            wide[-1][1] = max(wide[-1][1], high)
        else:
            wide.append([low, high])
    for start, data in kept.slices:
        for low, high in wide:
            first, last = max(low, start), min(high, start + len(data))
            if first < last:
                yield start, data, start + _border(data, first - start), start + _border(data, last - start)


def _border(data: bytes, at: int) -> int:
    """The beginning of the character that `at` lies in."""
    while 0 < at < len(data) and data[at] & 0xC0 == 0x80:
        at -= 1
    return at


def _pieces(data: bytes, start: int, kind: str | None) -> Iterator[Piece]:
    """A piece; of a long one its two ends."""
    if len(data) <= 2 * HEAD:
        yield _piece(data, start, kind)
        return
    head, tail = _border(data, HEAD), _border(data, len(data) - HEAD)
    yield _piece(data[:head], start, kind)
    yield _piece(data[tail:], start + tail, kind)


def _piece(data: bytes, start: int, kind: str | None) -> Piece:
    return Piece(start=start, end=start + len(data), kind=kind, text=data.decode("utf-8", "replace"))
