"""
What the examples of a suite have in common, which is evidence for none of them.

Instructions, shared passages inside prompts, option templates and quoted questions are found in documents that never
held an example.  So, within a suite and a kind of part:

* an n-gram that the texts of two or more examples hold is *template*.  Texts are counted once however many examples
  have them, so a twin makes no template; two texts of one example make none either, but for choices, where what all
  options say tells none apart.
* a text that three or more examples have which differ otherwise ("Which of the following is true?") is *stock*: it
  is template as a whole.  Of two such examples each is still found by the text.  A text of fewer than 13 units (20
  characters of an unspaced script) all of whose n-grams are template is stock too.
* an n-gram of six or more different prompts, of whatever suites, is template too: suites borrow their phrases.  An item
  has fewer editions, and those of one item must not be template for each other.
* an n-gram of nothing but numbers is *told*: everybody counts.
* of an answer, solution or test, what stands in its own prompt, passage or in the other choices is *told*: finding it
  says nothing that the question alone would not.

Template and told positions leave numerator and denominator, as common n-grams do; a verbatim copy of a whole text that
is neither stock nor told throughout is evidence all the same.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np
import pyarrow as pa

from datapipe.contamination.intervals import PIECE, Layout, among, columns, offsets_of, once, spread
from datapipe.contamination.model import ANSWER, CHOICES, KINDS, PASSAGE, PROMPT, SOLUTION, TESTS

SURE = 13 / 8  # lengths of an n-gram: a text of template from end to end that is shorter is stock
SHARED = 2  # examples whose texts hold an n-gram
STOCK = 3  # examples that have one text and differ otherwise
ANYWHERE = 6  # texts of prompts, of any suites: an item and its editions in other suites are fewer
ANSWERS = (ANSWER, SOLUTION, TESTS)
TWINS = 1000  # equal examples that are named of one: ten thousand of each other are a hundred million


@dataclass(frozen=True)
class Side:
    """
    The eval side in columns, a row a part: example, kind, correct (a choice that is the answer), same (see Layout).

    whole: int64 an example, the first example with the same parts; suite: a number an example.
    """

    example: np.ndarray
    kind: np.ndarray
    correct: np.ndarray
    same: np.ndarray
    suite: np.ndarray
    whole: np.ndarray
    layout: Layout

    @cached_property
    def code(self) -> np.ndarray:
        """int64 a part: its kind as a number."""
        return np.searchsorted(np.array(sorted(KINDS)), self.kind.astype(str)).astype(np.int64)

    @cached_property
    def _of_kind(self) -> dict[str, np.ndarray]:
        return {kind: self.code == number for number, kind in enumerate(sorted(KINDS))}

    def of_kind(self, *kinds: str) -> np.ndarray:
        return np.logical_or.reduce([self._of_kind[kind] for kind in kinds])

    @cached_property
    def answering(self) -> np.ndarray:
        """bool a part: whether it gives the answer away."""
        return self.of_kind(*ANSWERS) | (self.of_kind(CHOICES) & self.correct)


def side_of(examples: pa.Table, parts: pa.Table, layout: Layout) -> Side:
    example = columns(parts, ["example"])[0].astype(np.int64)
    names, code = names_of(parts["kind"])
    correct = np.zeros(len(parts), bool)
    correct[:] = parts["correct"].fill_null(False).to_numpy()
    suites, suite = names_of(examples["suite"])
    rank = np.argsort(np.argsort(suites))
    whole = _wholes(len(examples), example, code, layout.same)
    return Side(example, names[code], correct, layout.same, rank[suite], whole, layout)


def names_of(column: pa.ChunkedArray) -> tuple[np.ndarray, np.ndarray]:
    """(the names, each once, as objects; int64 of each row: its name among them)."""
    found = column.combine_chunks().dictionary_encode()
    return np.array([*found.dictionary.to_pylist(), None], object)[:-1], found.indices.to_numpy().astype(np.int64)


def _wholes(count: int, example: np.ndarray, code: np.ndarray, same: np.ndarray) -> np.ndarray:
    """The first example with the same texts in the same kinds; one without parts is like no other."""
    order = np.lexsort((same, code, example))
    texts = (code * (len(same) + 1) + same)[order]
    bounds = np.searchsorted(example[order], np.arange(count + 1)).tolist()
    seen: dict[bytes, int] = {}
    return np.array([
        seen.setdefault(texts[low:high].tobytes(), row) if low < high else row
        for row, (low, high) in enumerate(pairwise(bounds))
    ], np.int64)  # fmt: skip


@dataclass(frozen=True)
class Template:
    """shared, told: bool a position of the layout; stock, told_whole: bool a part, throughout."""

    shared: np.ndarray
    told: np.ndarray
    stock: np.ndarray
    told_whole: np.ndarray

    @property
    def excluded(self) -> np.ndarray:
        return self.shared | self.told

    def excluded_whole(self, layout: Layout) -> np.ndarray:
        """bool a part: whether it has positions and none is left."""
        return _throughout(layout, self.excluded)

    def shared_in(self, layout: Layout) -> np.ndarray:
        """bool a part: whether another example has an n-gram of it."""
        return layout.marked(self.shared) > 0

    def shared_units(self, layout: Layout, part: int) -> np.ndarray:
        """bool of each unit of a part: whether another example has an n-gram of it that holds the unit."""
        out = np.zeros(int(layout.units[part]), bool)
        for place in np.flatnonzero(self.shared[layout.offsets[part] : layout.offsets[part + 1]]).tolist():
            out[place : place + int(layout.n[part])] = True
        return out

    def without_shared(self) -> "Template":
        """As if no other example held the same: what is told stays told."""
        return Template(np.zeros_like(self.shared), self.told, np.zeros_like(self.stock), self.told_whole)


def template(side: Side, shared: int = SHARED, stock: int = STOCK) -> Template:
    """By representative part: where a text serves several suites, what is template in one of them is template."""
    layout = side.layout
    excluded, stocked = np.zeros(len(layout.grams), bool), np.zeros(len(layout), bool)
    told = np.zeros(len(layout.grams), bool)
    for mine in grouped(side.suite[side.example]):
        for rows in grouped(side.code[mine]):
            rows = mine[rows]
            kind = str(side.kind[rows[0]])
            if kind != PASSAGE:  # a passage flags nothing, so nothing of it need be left out
                stocked[_stock(side, rows, stock)] = True
                _mark(layout, excluded, *_owners(side, rows, kind), shared)
        _tell(side, mine, told)
    prompts = np.unique(side.same[side.of_kind(PROMPT)])
    _mark(layout, excluded, prompts, prompts, ANYWHERE)
    if layout.numeric is not None:
        told |= layout.numeric
    stocked |= _throughout(layout, excluded) & (layout.units < SURE * layout.n)
    reps = np.flatnonzero(stocked)
    _, places = spread(layout.offsets[reps], layout.offsets[reps + 1])
    excluded[places] = True
    return Template(excluded, told, stocked, _throughout(layout, told))


def _stock(side: Side, rows: np.ndarray, least: int) -> np.ndarray:
    """The texts that at least so many different examples have."""
    pairs = np.unique(np.stack([side.same[rows], side.whole[side.example[rows]]]), axis=1)
    texts, times = np.unique(pairs[0], return_counts=True)
    return texts[times >= least]


def _owners(side: Side, rows: np.ndarray, kind: str) -> tuple[np.ndarray, np.ndarray]:
    """(texts, owner of each): the first example that has it; of choices, the text itself."""
    texts, first = np.unique(side.same[rows], return_index=True)
    return texts, texts if kind == CHOICES else side.example[rows[first]]


def _mark(layout: Layout, excluded: np.ndarray, texts: np.ndarray, owners: np.ndarray, least: int) -> None:
    """Mark the positions of the texts whose n-gram has so many owners."""
    row, places = spread(layout.offsets[texts], layout.offsets[texts + 1])
    if not len(places):
        return
    grams, size, owner = layout.grams[places], int(owners.max()) + 1, owners[row]
    del row
    pieces = 1 + len(places) // PIECE
    bounds = np.linspace(0, int(grams.max()) + 1, pieces + 1).astype(np.int64).tolist()
    for low, high in pairwise(bounds):  # some n-grams after others: the keys of all at once are large
        mine = np.flatnonzero((grams >= low) & (grams < high))
        gram = grams[mine].astype(np.int64)
        own = once(gram * size + owner[mine]) // size
        last = own[least - 1 :]
        many = last[last == own[: len(last)]]  # sorted: the least-th of the same n-gram, and those behind it
        excluded[places[mine[among(gram, many)]]] = True


def grouped(keys: np.ndarray) -> list[np.ndarray]:
    """The rows of each key, in order of the keys."""
    order = np.argsort(keys, kind="stable")
    return np.split(order, 1 + np.flatnonzero(np.diff(keys[order]))) if len(keys) else []


def _tell(side: Side, mine: np.ndarray, told: np.ndarray) -> None:
    """Mark, in what gives the answer away, the n-grams that the same example shows with the question."""
    layout, answering = side.layout, side.answering[mine]
    asked = mine[(side.of_kind(PROMPT, PASSAGE) | (side.of_kind(CHOICES) & ~side.correct))[mine]]
    answers = mine[answering]
    if not len(asked) or not len(answers):
        return
    size = int(layout.grams.max(initial=0)) + 1

    def keys(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        text = side.same[rows]
        row, places = spread(layout.offsets[text], layout.offsets[text + 1])
        return side.example[rows[row]] * size + layout.grams[places], places

    shown, (given, places) = keys(asked)[0], keys(answers)
    told[places[among(given, shown)]] = True


def _throughout(layout: Layout, marked: np.ndarray) -> np.ndarray:
    """bool a part: whether it has positions and all are marked."""
    return (layout.marked(marked) == layout.positions) & (layout.positions > 0)


def twins(whole: np.ndarray, suite: np.ndarray) -> tuple[pa.Array, np.ndarray]:
    """
    (list<int32>: other examples with the same parts, of any suite, the first TWINS of them; whether an example is the
    first such of its suite).
    """
    order = np.argsort(whole, kind="stable")
    begins, ends = (np.searchsorted(whole[order], whole, side) for side in ("left", "right"))
    rank = np.empty(len(whole), np.int64)
    rank[order] = np.arange(len(whole))
    many = np.minimum(ends - begins - 1, TWINS)
    offsets, values = offsets_of(many), np.empty(int(many.sum()), np.int32)
    for row in np.flatnonzero(many).tolist():  # all up to itself, and behind itself
        low, own, high = int(begins[row]), int(rank[row]), int(begins[row] + many[row] + 1)
        mine = values[offsets[row] : offsets[row + 1]]
        before = min(own - low, len(mine))
        mine[:before], mine[before:] = order[low : low + before], order[own + 1 : high][: len(mine) - before]
    counted = np.zeros(len(whole), bool)
    counted[dense(whole, suite)[1]] = True
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), pa.array(values)), counted


def dense(*keys: Sequence[int] | np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(number of each row's key, first row of each key): equal keys have equal numbers, in order of the keys."""
    arrays = [np.asarray(key) for key in keys]
    order = np.lexsort(arrays[::-1])
    if not len(order):
        return order, order
    new = np.zeros(len(order), bool)
    new[0] = True
    for array in arrays:
        new[1:] |= np.diff(array[order]) != 0
    number = np.empty(len(order), np.int64)
    number[order] = np.cumsum(new) - 1
    return number, order[new]
