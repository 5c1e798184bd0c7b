"""
What stands beside what in one document: an answer after its prompt, choices and passages that make a prompt whole.

A place of a part in a document is where a run of it lies; its *projected* ends are where the part would begin and end
there if all of it were copied.  Distances are in units of the document, between projected ends, at least 0.
"""

import bisect
import itertools
import math
from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from datapipe.contamination.intervals import RUN, Layout, columns, spread
from datapipe.contamination.template import dense

WINDOW = 100  # units between a prompt and its answer
TINY = 3  # units below which a text is evidence only beside its prompt


@dataclass(frozen=True, order=True)
class Place:
    """A part in a document: units low:high of the document match; first:last is the whole part, projected."""

    low: int
    high: int
    first: int
    last: int
    part: int = field(compare=False)
    row: int = field(compare=False)  # of the runs


class Beginnings:
    """
    Where the prompts of each suite begin in each document, projected: those whose beginning or half stands there, for
    the tail of one may stand in another.
    """

    def __init__(self, layout: Layout, suite: np.ndarray, text: np.ndarray, runs: pa.Table):
        """suite, text: of prompts, the rows in any order and as often as may be."""
        doc, part, start, length, unit = (values.astype(np.int64) for values in columns(runs, RUN))
        begun = (start == 0) | (2 * length >= layout.units[part])
        doc, part, place = doc[begun], part[begun], (unit - start)[begun]
        _, first = dense(text, suite)
        text, suite = text[first], suite[first]  # sorted by text
        row, at = spread(np.searchsorted(text, part, "left"), np.searchsorted(text, part, "right"))
        keys = zip(suite[at].tolist(), doc[row].tolist(), strict=True)
        self._of: dict[tuple[int, int], list[tuple[int, int]]] = {}
        for key, begin in zip(keys, zip(place[row].tolist(), part[row].tolist(), strict=True), strict=True):
            self._of.setdefault(key, []).append(begin)
        for begins in self._of.values():
            begins.sort()

    def next(self, suite: int, doc: int, after: int, own: Container[int]) -> float:
        """The first from `after` on of a prompt whose text is none of one's own; infinity where there is none."""
        begins = self._of.get((suite, doc), [])
        for place, text in itertools.islice(begins, bisect.bisect_left(begins, (after, -1)), None):
            if text not in own:
                return place
        return math.inf


class Places:
    """The places of texts in documents, looked up by (text, document)."""

    def __init__(self, layout: Layout, runs: pa.Table):
        doc, part, start, length, unit = (values.astype(np.int64) for values in columns(runs, RUN))
        self._order = np.lexsort((start, unit, doc, part))
        self._columns = (part, start, length, unit)
        self._units = layout.units
        part, doc = part[self._order], doc[self._order]
        _, heads = dense(part, doc)
        ends = np.append(heads, len(part))[1:].tolist()
        keys = zip(part[heads].tolist(), doc[heads].tolist(), strict=True)
        self._ranges = dict(zip(keys, zip(heads.tolist(), ends, strict=True), strict=True))
        self.texts, self.docs = part[heads], doc[heads]  # of each pair that has a place

    def of(self, part: int, doc: int) -> list[Place]:
        low, high = self._ranges.get((part, doc), (0, 0))
        found = []
        for row in self._order[low:high].tolist():
            part, start, length, unit = (int(column[row]) for column in self._columns)
            units = int(self._units[part])
            found.append(Place(unit, unit + length, unit - start, unit - start + units, part, row))
        return found


def chain(after: int, places: Iterable[Place], window: int = WINDOW) -> int:
    """Where a list that begins within the window behind `after` ends: of choices, which stand before the answer."""
    for place in sorted(places):
        if place.low <= after + window:
            after = max(after, place.high)
    return after


def beside(
    prompts: Sequence[Place], choices: Sequence[Place], answers: Iterable[Place], before: Sequence[float] | None = None
) -> Iterator[tuple[int, Place]]:
    """
    (distance, answer) of each answer that begins behind the match of a prompt, choices between not counted.  before:
    where it must begin for each prompt; anywhere where it is None.
    """
    ends = [
        (prompt, chain(prompt.last, choices), limit)
        for prompt, limit in zip(prompts, before or [math.inf] * len(prompts), strict=True)
    ]
    for answer in answers:
        behind = [max(0, answer.first - end) for prompt, end, limit in ends if prompt.high <= answer.low < limit]
        if behind:
            yield min(behind), answer


def before(prompts: Sequence[Place], answers: Iterable[Place]) -> Iterator[tuple[int, Place]]:
    """(distance, answer) for each answer that ends in front of the matched beginning of a prompt."""
    for answer in answers:
        ahead = [max(0, prompt.first - answer.last) for prompt in prompts if answer.high <= prompt.low]
        if ahead:
            yield min(ahead), answer


def told_apart(prompts: Sequence[Place], right: Sequence[Place], wrong: Sequence[Sequence[Place]]) -> bool:
    """
    Whether a document says which choice is right: within the window behind the prompt and its list of choices, the
    right one stands more often than each wrong one.  The list alone has each of them once.  What is a piece of another
    choice there, or what two of them share, stands wherever that one does and does not count.
    """
    listed = [*right, *(place for places in wrong for place in places)]
    held = {(place.low, place.high) for place in listed}

    def own(places: Sequence[Place]) -> list[Place]:
        return [
            one for one in places
            if not any(low <= one.low and one.high <= high and (low, high) != (one.low, one.high) for low, high in held)
        ]  # fmt: skip

    right, wrong = own(right), [own(places) for places in wrong]
    for prompt in prompts:
        end = chain(prompt.last, listed) + WINDOW

        def count(places: Sequence[Place], low: int = prompt.high, high: int = end) -> int:
            return len({place.low for place in places if low <= place.low <= high})

        if count(right) > max((count(places) for places in wrong), default=0):
            return True
    return False


def within(one: Sequence[Place], other: Sequence[Place], window: int = WINDOW) -> bool:
    """Whether a place of the one lies within the window of a place of the other, in either order."""
    return any(max(a.low, b.low) - min(a.high, b.high) <= window for a in one for b in other)
