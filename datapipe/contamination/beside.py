"""
What lies beside a prompt in a document: its answer, or the choices or passage that make it whole.

* An answer counts when it begins behind the match of the prompt, at most 100 units after the prompt and its choices
  end; in front of the prompt, only one of n units or more that is found for itself.
* An answer of n units or more counts where it is found for itself, plainly or nearly: not with other numbers.
* An answer of fewer than three units counts in front of the next prompt of its suite: numbers and single words of one
  question are answers of another.
* An answer that is one of the choices counts where it stands more often than each wrong choice: a list has each once.
* Beside a prompt whose numbers differ only a solution counts that is found plainly, and no choice: the number that is
  the answer there is not this example's, nor is a solution that is nearly the same.
* Beside a prompt of fewer than n units, an answer of two units or more that makes eight units with it.
* Beside a prompt that many examples have, an answer of three units or more tells which of them it is; one of n units
  or more is found plainly.
* A prompt that is too short, or that many examples have, is whole with half of its choices or with its passage.
"""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from datapipe.contamination import nearby
from datapipe.contamination.hits import Found, Hits
from datapipe.contamination.intervals import RUN, among, columns, spread
from datapipe.contamination.model import CHOICES, PASSAGE, PROMPT
from datapipe.contamination.nearby import TINY
from datapipe.contamination.said import (
    ANSWERED,
    COMPLETED,
    PASSAGE_FOUND,
    PROMPT_ALIKE,
    PROMPT_FOUND,
    PROMPT_PART,
    PROMPT_STOCK,
    PROMPT_VARIED,
    PROMPT_WHOLE,
    PROMPTED,
    listed,
)
from datapipe.contamination.template import Side

TOGETHER = 8  # units of a short prompt and its answer
PIECE = 1 << 20  # pairs of an example and a document that are looked at together

Beside = tuple[int, int | None, int | None, tuple[str, ...]]  # bits, answer's part, distance, kinds


def answered_or_completed(
    side: Side, found: Found, hit: Hits, example: np.ndarray, doc: np.ndarray, said: np.ndarray
) -> dict[int, Beside]:
    """For each (example, doc) that has a prompt: whether its answer, its choices or its passage lie beside it."""
    asked = np.flatnonzero(said & PROMPTED)
    if not len(asked):
        return {}
    places = nearby.Places(side.layout, _near_runs(side, found, example[asked], doc[asked]))
    windows = _windows(hit, side)
    asked = asked[_any(side, example[asked], doc[asked], places, windows)]
    parts: dict[int, list[int]] = {row: [] for row in np.unique(example[asked]).tolist()}
    for number in np.flatnonzero(np.isin(side.example, example[asked])).tolist():
        parts[int(side.example[number])].append(number)
    rows = np.flatnonzero((hit.plain | hit.alike) & np.isin(hit.doc, doc[asked]))
    keys = zip(hit.part[rows].tolist(), hit.doc[rows].tolist(), strict=True)
    flagged = dict(zip(keys, hit.plain[rows].tolist(), strict=True))
    asks = side.of_kind(PROMPT)
    begins = nearby.Beginnings(
        side.layout, side.suite[side.example[asks]], side.same[asks], _runs_in(found, doc[asked])
    )
    in_list = listed(side)
    alike = _alike(side, in_list, parts)
    known: dict[tuple[int, int, int, int], tuple[int | None, Beside | None]] = {}  # of examples alike the answer is one
    out: dict[int, Beside] = {}
    for at in asked.tolist():
        own = parts[int(example[at])]
        key = alike[int(example[at])], int(side.suite[example[at]]), int(doc[at]), int(said[at])
        if key not in known:
            beside = _beside(_Case(side, places, begins, windows, flagged, in_list, own, *key[1:]))
            known[key] = (own.index(beside[1]) if beside and beside[1] is not None else None), beside
        place, beside = known[key]
        if beside is not None:
            out[at] = (beside[0], None if place is None else own[place], *beside[2:])
    return out


def _beside(case: "_Case") -> Beside | None:
    kind = case.completed() if case.said & (PROMPT_WHOLE | PROMPT_STOCK | PROMPT_PART) else None
    answer = case.answered(whole=kind is not None)
    more = () if kind is None else (kind,)
    if answer is not None:
        return ANSWERED, answer[1], answer[0], (str(case.side.kind[answer[1]]), *more)
    return None if kind is None else (COMPLETED, None, None, more)


def _alike(side: Side, in_list: np.ndarray, parts: dict[int, list[int]]) -> dict[int, int]:
    """Of each of the examples the first whose parts have the same texts and say the same, one by one."""
    columns = (side.code, side.same, side.answering, side.correct, in_list)
    first: dict[bytes, int] = {}
    rows = {example: np.stack([column[own] for column in columns]) for example, own in parts.items()}
    return {example: first.setdefault(own.tobytes(), example) for example, own in rows.items()}


def _any(
    side: Side, example: np.ndarray, doc: np.ndarray, places: nearby.Places,
    windows: dict[tuple[int, int], nearby.Place],
) -> np.ndarray:  # fmt: skip
    """bool of each (example, doc): whether the document has a place of a part that is no prompt; else none counts."""
    beside = np.flatnonzero(side.answering | side.of_kind(CHOICES, PASSAGE))
    names, size = np.unique(doc), len(side.same)
    more = np.array(list(windows) or np.zeros((0, 2)), np.int64)
    texts, docs = np.append(places.texts, more[:, 0]), np.append(places.docs, more[:, 1])
    texts, docs = texts[mine := np.isin(docs, names)], docs[mine]
    have = texts + size * np.searchsorted(names, docs)
    out = np.zeros(len(example), bool)
    begins, ends = (np.searchsorted(side.example[beside], example, how) for how in ("left", "right"))
    for rows in np.array_split(np.arange(len(example)), 1 + len(example) // PIECE):
        row, place = spread(begins[rows], ends[rows])
        text = side.same[beside[place]] + size * np.searchsorted(names, doc[rows[row]])
        out[rows[row[among(text, have)]]] = True
    return out


def _near_runs(side: Side, found: Found, example: np.ndarray, doc: np.ndarray) -> pa.Table:
    """Runs and short texts of these examples in these documents."""
    wanted = np.unique(side.same[np.isin(side.example, example)])
    docs = np.unique(doc)
    tables = []
    for table in (found.runs, found.short):
        part, document = columns(table, ("part", "doc"))
        chosen = np.flatnonzero(np.isin(part, wanted) & np.isin(document, docs))
        tables.append(table.select(list(RUN)).take(pa.array(chosen)))
    return pa.concat_tables(tables)


def _runs_in(found: Found, doc: np.ndarray) -> pa.Table:
    """The runs in some documents."""
    return found.runs.select(list(RUN)).take(pa.array(np.flatnonzero(np.isin(columns(found.runs, ["doc"])[0], doc))))


def _windows(hit: Hits, side: Side) -> dict[tuple[int, int], nearby.Place]:
    """Where a text lies that has no run of its own: the masked run, or the window, it was found in."""
    rows = np.flatnonzero((hit.alike | hit.varied) & (hit.doc_unit >= 0))
    found = {}
    for row in rows.tolist():
        part, low, first = int(hit.part[row]), int(hit.doc_unit[row]), int(hit.doc_unit[row] - hit.start[row])
        last = first + int(side.layout.units[part])
        found[part, int(hit.doc[row])] = nearby.Place(low, low + int(hit.length[row]), first, last, part, -1)
    return found


@dataclass
class _Case:
    """One example in one document that holds its prompt."""

    side: Side
    places: nearby.Places
    begins: nearby.Beginnings
    windows: dict[tuple[int, int], nearby.Place]
    flagged: dict[tuple[int, int], bool]  # texts that are found for themselves: whether plainly
    in_list: np.ndarray
    parts: list[int]
    suite: int
    doc: int
    said: int

    def of(self, *kinds: str) -> list[int]:
        return [part for part in self.parts if self.side.kind[part] in kinds]

    def at(self, part: int) -> list[nearby.Place]:
        text = int(self.side.same[part])
        found = self.places.of(text, self.doc)
        window = self.windows.get((text, self.doc))
        return found or ([window] if window else [])

    def prompts(self) -> list[nearby.Place]:
        return [place for part in self.of(PROMPT) for place in self.at(part)]

    def answered(self, *, whole: bool) -> tuple[int, int] | None:
        """(distance, part) of the nearest answer beside the prompt.  whole: choices or passage lie beside it too."""
        prompts = self.prompts()
        choices = {part: self.at(part) for part in self.of(CHOICES)}
        wrong = [places for part, places in choices.items() if not self.side.correct[part]]
        right = {int(self.side.same[part]) for part in choices if self.side.correct[part]}
        between = [place for places in choices.values() for place in places] if any(wrong) else []
        best: tuple[int, int] | None = None
        for part in self.parts:
            if not self.side.answering[part] or not self._counts(part, whole=whole):
                continue
            places = self.at(part)
            if self.in_list[part]:
                others = [own for own in wrong if own != places] if int(self.side.same[part]) not in right else wrong
                if not nearby.told_apart(prompts, places, others):
                    continue
            found = list(nearby.beside(prompts, between, places, self._before(prompts, part)))
            if self._stands(part):
                found += nearby.before(prompts, places)
            for distance, _ in found:
                if distance <= nearby.WINDOW and (best is None or (distance, part) < best):
                    best = distance, part
        return best

    def _before(self, prompts: list[nearby.Place], part: int) -> list[float] | None:
        """In front of what an answer must begin behind each of the prompts."""
        if self.side.layout.units[part] >= TINY:
            return None
        own = {int(self.side.same[one]) for one in self.of(PROMPT)}
        return [self.begins.next(self.suite, self.doc, prompt.high, own) for prompt in prompts]

    def _counts(self, part: int, *, whole: bool) -> bool:
        """Whether an answer of this length can count beside this prompt."""
        layout = self.side.layout
        units = int(layout.units[part])
        # what the passage tells too is no evidence alone, but from end to end beside its prompt it is the answer
        sure = self.said & (PROMPT_WHOLE | PROMPT_FOUND | PROMPT_ALIKE)
        entire = bool(sure) and any(at.high - at.low == units for at in self.at(part))
        if units >= layout.n[part] and not entire and not self._stands(part):
            return False
        if whole or self.said & (PROMPT_FOUND | PROMPT_ALIKE | PROMPT_PART):
            return True
        if self.said & PROMPT_STOCK and TINY <= units < layout.n[part]:
            return True
        if self.said & (PROMPT_VARIED | PROMPT_STOCK):
            if self.in_list[part] and not self.said & PROMPT_STOCK:
                return False
            return self._stands(part) and self.flagged[int(self.side.same[part]), self.doc]
        prompt = max(int(layout.units[own]) for own in self.of(PROMPT))
        return units >= 2 and units + prompt >= TOGETHER

    def _stands(self, part: int) -> bool:
        """Whether it is an answer of n units or more that is found for itself."""
        long = self.side.layout.units[part] >= self.side.layout.n[part]
        return bool(long) and (int(self.side.same[part]), self.doc) in self.flagged

    def completed(self) -> str | None:
        """choices or passage, where they lie beside a prompt that is no evidence alone and make it n units or more."""
        layout, prompts = self.side.layout, self.prompts()
        prompt = min((int(layout.units[part]) for part in self.of(PROMPT)), default=0)
        least = int(max((layout.n[part] for part in self.of(PROMPT)), default=0))
        passages = self.of(PASSAGE) if self.said & PASSAGE_FOUND else []
        if any(nearby.within(prompts, self.at(part)) for part in passages):
            return PASSAGE
        choices = self.of(CHOICES)
        found = [part for part in choices if nearby.within(prompts, self.at(part))]
        units = sum(int(layout.units[part]) for part in found)
        if 2 * units >= sum(int(layout.units[part]) for part in choices) and found and prompt + units >= least:
            return CHOICES
        return None
