"""
The line of linked documents, cut into segments that fit a budget of memory.

Linked documents lie in a line: link group after link group, each in order of staying.  A segment is some whole groups;
a group larger than the budget is a segment of its own, whose arrays are files that the system pages.  What a walk
decides depends on the line alone, never on where it was cut.
"""

import itertools
import mmap
from dataclasses import dataclass
from pathlib import Path

import numpy as np


@dataclass(frozen=True)
class Line:
    """
    Linked documents in a line: docs, group and bytes int64 by place (the document, its link group, about what it takes
    in memory), where int64 by doc (its place; -1: not in the line).
    """

    docs: np.ndarray
    where: np.ndarray
    group: np.ndarray
    bytes: np.ndarray


@dataclass(frozen=True)
class Segment:
    """A range of places, made of pieces start, ..., stop of the line that each fit the budget."""

    pieces: range
    borders: np.ndarray  # int64: piece p holds the places borders[p]:borders[p + 1]

    @property
    def start(self) -> int:
        return int(self.borders[self.pieces.start])

    @property
    def stop(self) -> int:
        return int(self.borders[self.pieces.stop])


class Room:
    """Where a segment's arrays are: in memory, or in files of `folder` that are mapped and can be let go of."""

    def __init__(self, folder: Path | None):
        self._folder = folder
        self._maps: list[mmap.mmap] = []
        if folder:
            folder.mkdir()

    def zeros(self, shape: int | tuple[int, int], kind: type[np.generic]) -> np.ndarray:
        """An array of zeros."""
        size = int(np.prod(shape)) * np.dtype(kind).itemsize
        if self._folder is None or size == 0:
            return np.zeros(shape, kind)
        path = self._folder / f"{len(self._maps)}.array"
        with open(path, "wb+") as file:
            file.truncate(size)
            self._maps.append(mmap.mmap(file.fileno(), size))
        path.unlink()  # the mapping holds the file
        return np.frombuffer(self._maps[-1], kind).reshape(shape)

    def relieve(self) -> None:
        """Let go of the pages that were touched; the files keep what is in them."""
        for mapped in self._maps:
            mapped.madvise(mmap.MADV_DONTNEED)


def segments(line: Line, budget: int) -> list[Segment]:
    """Cut the line into segments of whole link groups within the budget; a larger group is one of several pieces."""
    total = np.concatenate([np.zeros(1, np.int64), np.cumsum(line.bytes)])
    ends = np.append(np.flatnonzero(np.diff(line.group)) + 1, len(line.docs)).tolist() if len(line.docs) else []
    borders, counts = [0], []
    held = 0  # first place of the segment that is being filled
    for start, stop in itertools.pairwise([0, *ends]):
        if total[stop] - total[held] <= budget:
            continue
        if start > held:
            borders.append(start)
            counts.append(1)
        held = start
        if total[stop] - total[start] > budget:
            cuts = _cuts(total, start, stop, budget)
            borders.extend(cuts)
            counts.append(len(cuts))
            held = stop
    if ends and held < ends[-1]:
        borders.append(ends[-1])
        counts.append(1)
    firsts = np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)]).astype(int).tolist()
    edges = np.array(borders, np.int64)
    return [Segment(range(a, b), edges) for a, b in itertools.pairwise(firsts)]


def _cuts(total: np.ndarray, start: int, stop: int, budget: int) -> list[int]:
    """Where the pieces of places start:stop end: each within the budget, or a single document."""
    cuts = []
    while start < stop:
        end = int(np.searchsorted(total, total[start] + budget, "right")) - 1
        start = min(max(end, start + 1), stop)
        cuts.append(start)
    return cuts
