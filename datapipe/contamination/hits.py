"""
Which texts of the eval side a document holds, and how: one row for each (text, document) with anything to say.

* *plain*: half of the text in one contiguous match, or more than half of it in matches together, both before and after
  what is no evidence (template, told and common n-grams) is left out; or a verbatim copy of a whole text of its own,
  which may have separators in other places: 1,000 for 1000.
  Matches of fewer than 13 units (of 20 characters of an unspaced script), which may be a phrase that many know, must
  hold three quarters of the text.
* *varied*: the same but for numbers or identifiers, and one of them does differ.  Half of the units must be equal as
  they stand, three quarters of a text of fewer than 13 (20): two tables of numbers are no variants of each other.
* *alike*: nearly the same by containment or edits.  Every difference is held against the units that are the text's
  own, so that two items of one template are not alike for what they share.
* *whole*: a text too short for n-grams, or one that is no evidence alone, found from end to end.

Where a document holds one item plainly, its nearly equal siblings seem to be varied or alike at the same place: these
are *echoes* of the item, and no hits.  So is all but the most alike of several that are varied or alike at one place.

A common n-gram is left out but for a text of whose own units one match covers half, or the matches at one place of a
document three quarters: what is copied most often, whole or with a piece changed, must not excuse itself.  Matches are
at one place where the text would begin within its own length of where the longest has it begin; phrases that lie about
in a document are not.
"""

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import pyarrow as pa

from datapipe.contamination.intervals import (
    RUN,
    Layout,
    Overlap,
    among,
    columns,
    once,
    overlap,
    spread,
    union,
)
from datapipe.contamination.template import Template, dense

SHORTEST = 3  # units of a text that may be evidence alone
SHARES = ("containment", "edit", "numbers", "identifiers", "plain", "letters")  # of windows
PAIRS = 1 << 18  # places of one document that are held against each other together


class Found(Protocol):
    """
    What a scan gives: runs, short and masked of RUNS' columns; windows.  Texts are named by their first part.

    runs:     maximal matches of n units and more; beside prompts whole shorter texts too, known by their length
    short:    whole texts of 3 to n - 1 units
    masked:   maximal matches with numbers masked in which a number differs
    windows:  doc, part, doc_unit, length, containment, edit, plain, numbers?, identifiers?: shares of a text's units;
              letters?: whether all letters and numbers of the text stand there in a row
    """

    @property
    def runs(self) -> pa.Table: ...
    @property
    def short(self) -> pa.Table: ...
    @property
    def masked(self) -> pa.Table: ...
    @property
    def windows(self) -> pa.Table: ...


@dataclass(frozen=True)
class Bounds:
    """At which figures a text counts as found."""

    longest: float = 0.5  # longest_ratio, at least
    best_doc: float = 0.5  # best_doc_ratio, above
    sure: float = 13 / 8  # n-grams' lengths: a shorter match, which may be a common phrase, must hold `most` of a text
    most: float = 0.75
    near: float = 0.8  # containment or edit similarity, at least
    variant: float = 0.8  # units that match with numbers masked, at least: all other differences count against it
    equal: float = 0.5  # edit similarity of a variant, at least
    identifiers: float = 0.8  # the same with identifiers masked: code has idioms
    void: float = 0.5  # of a text, by one match: its common n-grams count
    together: float = 0.75  # the same by all matches at one place of a document: two phrases may be half of a text


@dataclass(frozen=True)
class Hits:
    """Columns by (part, doc), sorted so; ratios NaN where not known; place: row of runs, masked or windows, -1 none."""

    part: np.ndarray
    doc: np.ndarray
    plain: np.ndarray
    varied: np.ndarray
    alike: np.ndarray
    whole: np.ndarray
    start: np.ndarray
    length: np.ndarray
    doc_unit: np.ndarray
    longest: np.ndarray
    longest_ratio: np.ndarray
    covered: np.ndarray
    covered_ratio: np.ndarray
    containment: np.ndarray
    edit: np.ndarray
    masked: np.ndarray
    live: np.ndarray  # int64 a part (not a row): units that are evidence
    void: np.ndarray  # bool a part: its common n-grams count
    there: np.ndarray  # plain, common or not: whether the text stands there, which is no question of evidence
    found: np.ndarray  # int64: units in matches, or of a nearly equal text so many as its figures say
    entire: np.ndarray  # all its units in one match
    quotes: np.ndarray  # of a text that quotes, too little but the quotation was found
    few: np.ndarray  # fewer units found than a phrase may have
    idle: np.ndarray  # too few words found for an answer that stands alone


def hits(layout: Layout, found: Found, template: Template, common: np.ndarray | None, bounds: Bounds) -> Hits:
    """common: bool a gram."""
    raw = overlap(layout, found.runs)
    own = overlap(layout, found.runs, template.excluded)
    void = np.zeros(len(layout), bool)
    held = (own.longest_ratio >= bounds.void) | (_at_one_place(own, found.runs) >= bounds.together)
    void[own.part[held]] = True
    final = own
    excluded = template.excluded
    if common is not None and common.any():
        excluded = excluded | (common[layout.grams] & ~np.repeat(void, layout.positions))
        final = overlap(layout, found.runs, excluded)

    run_doc, run_part, start, length = columns(found.runs, ("doc", "part", "start", "length"))
    ends = (start == 0) & (length == layout.units[run_part])
    tested = layout.units[run_part] >= layout.n[run_part]
    verbatim = _keys(run_part, run_doc, ends & tested)
    small = _keys(run_part, run_doc, ends & ~tested & (layout.units[run_part] >= SHORTEST))
    short = _keys_of(found.short)
    masked = overlap(layout, pa.concat_tables([t.select(list(RUN)) for t in (found.runs, found.masked)]))
    changed = _keys_of(found.masked)
    seen = _keys_of(found.windows)

    rows = _Rows([(raw.part, raw.doc), small, short, changed, seen])
    part, doc = rows.part, rows.doc
    units, live = layout.units[part].astype(float), np.maximum(own.live[part], 0)
    window = {name: rows.largest(seen, found.windows, name) for name in SHARES}
    spelled = window["letters"] == 1  # a copy but for where its units begin and end
    is_verbatim = rows.marked(verbatim) | spelled
    bare = (template.stock | template.told_whole)[part]
    tested_part = layout.positions[part] > 0

    # what is left out takes flags away and never makes one by dividing by less
    copied = is_verbatim & ~bare
    stands, own_flagged = (rows.marked(_flagged(of, layout, bounds)) for of in (raw, own))
    there = stands & (own_flagged | is_verbatim) | spelled
    plain = (stands & (own_flagged | copied) | (spelled & ~bare)) & (
        rows.marked(_flagged(final, layout, bounds)) | copied
    )

    def of_own(share: np.ndarray) -> np.ndarray:
        """A share of all units as one of the units that are evidence, every difference among these; 0 of none."""
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.where(live > 0, 1 - (1 - share) * units / live, np.where(bare | tested_part, 0.0, share))

    masked_ratio = rows.values((masked.part, masked.doc), masked.covered_ratio)
    numbers = np.fmax(window["numbers"], np.where(rows.marked(changed), masked_ratio, np.nan))
    differs = rows.marked(changed) | (window["numbers"] > window["plain"])
    renamed = (window["identifiers"] > window["plain"]) & (of_own(window["identifiers"]) >= bounds.identifiers)
    enough = np.nan_to_num(window["edit"]) >= np.where(units < bounds.sure * layout.n[part], bounds.most, bounds.equal)
    varied = ~is_verbatim & ((differs & ((of_own(numbers) >= bounds.variant) | plain)) | (renamed & ~plain))
    varied &= enough | plain | ~rows.marked(seen)  # what no window was looked at for is judged by its runs
    alike = of_own(np.fmax(window["containment"], window["edit"])) >= bounds.near
    # of what is its own at least one n-gram, where a run is known: with other numbers and names it is another fact
    known = rows.marked((raw.part, raw.doc)) | rows.marked(changed)
    alike &= (rows.values((own.part, own.doc), own.covered, 0) > 0) | ~known

    places = _places(rows, found, layout, raw)
    plain, alike = plain & ~varied, alike & ~plain & ~varied
    amount = rows.values((raw.part, raw.doc), raw.covered, 0)
    likely = units * np.nan_to_num(
        np.fmax(np.fmax(window["containment"], window["edit"]), np.fmax(numbers, window["identifiers"]))
    )
    amount = np.where(alike | varied, np.fmax(amount, likely), amount)
    nothing = np.zeros(len(part), bool)
    likeness = np.nan_to_num(np.fmax(window["edit"], window["containment"])) + np.nan_to_num(masked_ratio)
    echo = _echoes(doc, layout.units[part].astype(np.int64), places, plain, varied | alike, likeness)
    varied, alike = varied & ~echo, alike & ~echo
    return Hits(
        part, doc, plain, varied, alike,
        rows.marked(small) | rows.marked(short) | (is_verbatim & bare),
        *places,
        rows.values((final.part, final.doc), final.longest, 0).astype(np.int64),
        rows.values((final.part, final.doc), final.longest_ratio),
        rows.values((final.part, final.doc), final.covered, 0).astype(np.int64),
        rows.values((final.part, final.doc), final.covered_ratio),
        window["containment"], window["edit"], np.fmax(numbers, window["identifiers"]), final.live, void, there,
        np.round(amount).astype(np.int64), is_verbatim, nothing, amount < bounds.sure * layout.n[part], nothing,
    )  # fmt: skip


def _echoes(
    doc: np.ndarray,
    units: np.ndarray,
    places: tuple[np.ndarray, np.ndarray, np.ndarray],
    plain: np.ndarray,
    doubtful: np.ndarray,
    likeness: np.ndarray,
) -> np.ndarray:
    """
    bool a row: doubtful, and half of its place is that of a text of half to twice its length that is plainly there, or
    doubtful too but more alike.
    """
    start, _, unit = places
    low = unit - np.maximum(start, 0)
    rows = np.flatnonzero((plain | doubtful) & among(doc, doc[doubtful]))
    place, heads = dense(doc[rows], low[rows], units[rows])
    most = np.full(len(heads), -np.inf)  # of the texts that are as long and at one place the likeness of the most alike
    np.fmax.at(most, place, np.where(plain[rows], np.inf, likeness[rows]))
    heads, asked = rows[heads], once(place[doubtful[rows]])
    most = _most_beside(doc[heads], low[heads], units[heads], most, asked)
    echo = np.zeros(len(doc), bool)
    echo[rows] = doubtful[rows] & (most[place] > likeness[rows])
    return echo


def _most_beside(
    doc: np.ndarray, low: np.ndarray, units: np.ndarray, most: np.ndarray, asked: np.ndarray
) -> np.ndarray:
    """
    Of each asked place the most of those of half to twice its length that share half of it, its own among them.
    Places are in order of (doc, low).
    """
    starts = once(low)
    first_key = np.searchsorted(once(doc), doc) * (len(starts) + 1)
    keys = first_key + np.searchsorted(starts, low)
    asked = asked[most[asked] < np.inf]  # of others their own is the most
    # at most twice as long, what shares half of a place begins at most one and a half of it before and half behind
    first, last = low[asked] - 3 * units[asked] // 2, low[asked] + units[asked] // 2
    begins = np.searchsorted(keys, first_key[asked] + np.searchsorted(starts, first, "left"))
    ends = np.searchsorted(keys, first_key[asked] + np.searchsorted(starts, last, "right"))
    out = most.copy()
    cuts = np.flatnonzero(np.diff(np.cumsum(ends - begins) // PAIRS)) + 1
    for these in np.split(np.arange(len(asked)), cuts):
        row, other = spread(begins[these], ends[these])
        own = asked[these[row]]
        size, long = units[own], units[other]
        shared = np.minimum(low[own] + size, low[other] + long) - np.maximum(low[own], low[other])
        beside = (size <= 2 * long) & (long <= 2 * size) & (2 * shared >= size)
        np.fmax.at(out, own[beside], most[other[beside]])
    return out


Keys = tuple[np.ndarray, np.ndarray]  # parts, documents


def _keys_of(table: pa.Table) -> Keys:
    part, doc = columns(table, ("part", "doc"))
    return part, doc


def _keys(part: np.ndarray, doc: np.ndarray, chosen: np.ndarray) -> Keys:
    return part[chosen], doc[chosen]


def _flagged(o: Overlap, layout: Layout, bounds: Bounds) -> Keys:
    chosen = (o.longest_ratio >= bounds.longest) | (o.covered_ratio > bounds.best_doc)
    chosen &= (o.covered >= bounds.sure * layout.n[o.part]) | (o.covered_ratio >= bounds.most)
    return o.part[chosen], o.doc[chosen]


def _at_one_place(o: Overlap, runs: pa.Table) -> np.ndarray:
    """Of each pair: the share of its live units that the runs cover together which lie where its longest run does."""
    start, unit = columns(runs, ("start", "doc_unit"))
    first = unit.astype(np.int64) - start
    part = o.part[o.pair]
    near = np.abs(first[o.row] - first[o.best[o.pair]]) <= o.layout.units[part]
    ends = o.high + o.layout.n[part] - 1
    return union(o.pair[near], o.low[near], ends[near], o.layout.units[o.part]) / o.live[o.part]


class _Rows:
    """All (part, doc) that any source names, each once, in order; columns from sources that name some of them."""

    def __init__(self, sources: list[Keys]):
        part = np.concatenate([keys[0].astype(np.int64) for keys in sources])
        doc = np.concatenate([keys[1].astype(np.int64) for keys in sources])
        self._docs = np.unique(doc)
        self._keys = np.unique(self._key((part, doc)))
        self.part, place = np.divmod(self._keys, max(len(self._docs), 1))
        self.doc = self._docs[place]

    def _key(self, keys: Keys) -> np.ndarray:
        return keys[0].astype(np.int64) * len(self._docs) + np.searchsorted(self._docs, keys[1])

    def at(self, keys: Keys) -> np.ndarray:
        """The row of each key; every key has one."""
        return np.searchsorted(self._keys, self._key(keys))

    def marked(self, keys: Keys) -> np.ndarray:
        out = np.zeros(len(self.part), bool)
        out[self.at(keys)] = True
        return out

    def values(self, keys: Keys, values: np.ndarray, empty: float = np.nan) -> np.ndarray:
        """Of keys that are distinct."""
        out = np.full(len(self.part), empty)
        out[self.at(keys)] = values
        return out

    def largest(self, keys: Keys, table: pa.Table, name: str) -> np.ndarray:
        """The largest value of a column by key, NaN where there is none."""
        out = np.full(len(self.part), np.nan)
        if name in table.column_names and len(table):
            values = table[name].cast(pa.float64()).combine_chunks().to_numpy(zero_copy_only=False)
            np.fmax.at(out, self.at(keys), values)
        return out


def _places(rows: _Rows, found: Found, layout: Layout, raw: Overlap) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """start, length (units of the part), doc_unit of the best place: the longest run, else a masked run or window."""
    start, length, unit = (np.full(len(rows.part), -1, np.int64) for _ in range(3))

    def put(keys: Keys, values: list[np.ndarray]) -> None:
        at = rows.at(keys)
        order = np.lexsort((values[2], -values[1]))[::-1]  # the longest, then the first, is written last
        for column, value in zip((start, length, unit), values, strict=True):
            column[at[order]] = value[order]

    if len(found.windows):
        part, doc, place = columns(found.windows, ("part", "doc", "doc_unit"))
        put((part, doc), [np.zeros(len(part), np.int64), layout.units[part].astype(np.int64), place.astype(np.int64)])
    for table in (found.short, found.masked):
        part, doc, *rest = columns(table, ("part", "doc", "start", "length", "doc_unit"))
        put((part, doc), [value.astype(np.int64) for value in rest])
    part, doc, *rest = columns(found.runs, ("part", "doc", "start", "length", "doc_unit"))
    small = layout.units[part] < layout.n[part]
    small &= layout.units[part] >= SHORTEST
    put((part[small], doc[small]), [value[small].astype(np.int64) for value in rest])
    put((raw.part, raw.doc), [value[raw.best].astype(np.int64) for value in rest])
    return start, length, unit
