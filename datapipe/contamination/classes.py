"""
A class for each example: what of it lies in the documents, most telling first.

Each (example, document) with evidence has a class; the example has that of its most telling document, or it is
untested, with the reason, or clean.  RULES below is the whole decision.  What counts as found in a document is in
hits.py, what is no evidence because other examples share it in template.py, distances in nearby.py.

* A choice list alone never flags: choices are no prompt, and the right choice gives the answer away only where the
  wrong ones stand less often.  A prompt too short or too common to be evidence is one together with half of its
  choices, or with its passage.
* A passage alone never flags, nor does an answer of fewer than n units.
* An answer counts beside its prompt when it begins behind the match of the prompt, at most 100 units after the prompt
  and its choices end.  In front of the prompt only a solution that is found for itself counts: a word in front of a
  question is most often the answer to the one before.  With a prompt whose numbers differ only such a solution counts,
  for the number that is the answer is not this example's; with a short prompt, an answer of two units or more that
  makes eight units with it.
* A variant has more different words than half an n-gram has units: all formulas are alike but for numbers.
* What can be tested is known of the examples, not of what was found: `reason` says why one cannot.  One that cannot
  and is found all the same has the class of what was found.  short, passage, untested and clean do not flag.
"""

from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from datapipe.contamination.beside import Beside, answered_or_completed
from datapipe.contamination.hits import SHORTEST, Bounds, Found, Hits, hits
from datapipe.contamination.intervals import Layout, columns, nullable
from datapipe.contamination.model import CHOICES, CLASSES, FLAGGED, KINDS, PROMPT, VARIANT, Suites
from datapipe.contamination.said import (
    ANSWER_ALIKE,
    ANSWER_FOUND,
    ANSWER_VARIED,
    ANSWERED,
    COMPLETED,
    PASSAGE_FOUND,
    PROMPT_ALIKE,
    PROMPT_FOUND,
    PROMPT_PART,
    PROMPT_VARIED,
    PROMPT_WHOLE,
    PROMPTED,
    STATED,
    SUPPLIED,
    said_of,
)
from datapipe.contamination.template import Side, Template, dense, side_of, template, twins
from datapipe.contamination.wording import Wording

MIRROR = 5  # examples of a suite in one document


# the first that holds in a document
RULES: tuple[tuple[str, int], ...] = (
    ("adjacent", ANSWERED),
    ("solution", ANSWER_FOUND),
    ("prompt", PROMPT_FOUND | COMPLETED),
    ("near", PROMPT_ALIKE | ANSWER_ALIKE | SUPPLIED),
    ("variant", PROMPT_VARIED | ANSWER_VARIED),
    ("short", PROMPT_WHOLE),
    ("passage", PASSAGE_FOUND | PROMPT_PART | STATED),
)
RANK = {name: rank for rank, name in enumerate(CLASSES)}


@dataclass(frozen=True)
class Judged:
    """
    classes:   a row an example;  reason: why it could not be tested, found all the same or not; null where it could
    evidence:  a row each (example, document) that has a class, sorted so; evidence_all: nothing left out
    mirrors:   doc, suite, count, examples: documents that hold five or more examples of a suite
    excluded:  bool a position of the layout: template, told, or common where not void
    """

    classes: pa.Table
    evidence: pa.Table
    evidence_all: pa.Table
    mirrors: pa.Table
    template: Template
    excluded: np.ndarray


def known(suites: Suites, layout: Layout) -> tuple[Side, Template]:
    """What `judge` must know of the eval side, whatever was found: for who judges the same suites several times."""
    side = side_of(suites.examples, suites.parts, layout)
    return side, template(side)


def judge(
    suites: Suites, layout: Layout, found: Found, common: np.ndarray | None = None, bounds: Bounds | None = None,
    before: tuple[Side, Template] | None = None,
) -> Judged:  # fmt: skip
    """common: bool a gram of the layout, those that document frequency excludes;  before: from `known`."""
    bounds = bounds or Bounds()
    side, shared = before or known(suites, layout)
    final = _worded(hits(layout, found, shared, common, bounds), suites, side, found, shared)
    evidence = _evidence(side, found, final, shared)
    every = shared.without_shared()
    bare = (shared.shared.any() or shared.stock.any()) or (common is not None and common.any())
    final_all = _worded(hits(layout, found, every, None, bounds), suites, side, found, every) if bare else final
    evidence_all = _evidence(side, found, final_all, every) if bare else evidence
    excluded = shared.excluded
    if common is not None:
        excluded = excluded | (common[layout.grams] & ~np.repeat(final.void, layout.positions))
    classes = _classes(suites.examples, side, shared, final, evidence, evidence_all)
    return Judged(classes, evidence, evidence_all, _mirrors(suites.examples, classes, evidence), shared, excluded)


def evidence(
    suites: Suites, layout: Layout, found: Found, common: np.ndarray, before: tuple[Side, Template], only: np.ndarray
) -> pa.Table:
    """
    `judge(...).evidence` of some (example, document): of all made controls each is asked about its own example.  only:
    int64 a document, numbered from 0: the one example that is asked about there, -1: all.
    """
    side, shared = before
    final = _worded(hits(layout, found, shared, common, Bounds()), suites, side, found, shared)
    return _evidence(side, found, final, shared, only)


def _worded(hit: Hits, suites: Suites, side: Side, found: Found, shared: Template) -> Hits:
    """With what the words say that were found: formulas vary in nothing, quotations and idioms are no items."""
    layout = side.layout
    asking, answering = (np.isin(hit.part, side.same[of]) for of in (side.of_kind(PROMPT), side.answering))
    asking &= (hit.plain | hit.alike | hit.varied) & ~hit.entire
    answering &= hit.plain | hit.alike
    rows = np.flatnonzero(asking | answering | hit.varied)
    wording = Wording(layout, suites.parts["text"], found.runs, np.unique(hit.part[rows]), np.unique(hit.doc[rows]))
    varied, quotes, idle = hit.varied.copy(), np.zeros(len(asking), bool), np.zeros(len(asking), bool)
    for row in rows.tolist():
        part, doc, n = int(hit.part[row]), int(hit.doc[row]), int(layout.n[hit.part[row]])
        if varied[row]:  # few words are the same in tables and formulas whatever they are
            varied[row] = 2 * wording.words(part) > n
        if answering[row]:
            held = wording.found(part, doc)
            idle[row] = wording.words(part, held) < min(n, np.count_nonzero(held) / 2)
            if idle[row] and hit.entire[row] and layout.units[part] >= 2 * n:  # idioms are short, or code, or formulas
                idle[row] = wording.words(part) < SHORTEST or wording.is_code(part)
        if asking[row] and wording.quotes(part):
            quoted = wording.quoted(part)
            own = np.count_nonzero((quoted == 0) & ~shared.shared_units(layout, part))
            if own >= SHORTEST and np.count_nonzero(quoted) >= n:
                held = np.bincount(quoted[wording.found(part, doc)], minlength=2)
                quotes[row] = 2 * (held.sum() - held[1:].max()) < n
    return replace(hit, varied=varied, quotes=quotes, idle=idle)


# --- documents ----------------------------------------------------------------------------------------------------


def _evidence(side: Side, found: Found, hit: Hits, shared: Template, only: np.ndarray | None = None) -> pa.Table:
    row, part, bits = said_of(side, hit, shared, only)
    example, doc = side.example[part], hit.doc[row]
    pair, first = dense(example, doc)
    said = np.zeros(len(first), np.int64)
    np.bitwise_or.at(said, pair, bits)
    pair_example, pair_doc = example[first], doc[first]
    beside = answered_or_completed(side, found, hit, pair_example, pair_doc, said)
    for at, (more, *_) in beside.items():
        said[at] |= more
    rule = np.full(len(first), len(RULES))
    for rank in reversed(range(len(RULES))):
        rule[(said & RULES[rank][1]) != 0] = rank
    # the part that decides: of those that speak for the class the one with most of its units found
    serves = np.array([mask for _, mask in RULES] + [0])[rule][pair] & bits
    serves |= np.where(np.isin(rule[pair], (RANK["adjacent"], RANK["prompt"])), bits & PROMPTED, 0)
    amount = np.nan_to_num(np.fmax(np.fmax(hit.covered_ratio, hit.masked), np.fmax(hit.containment, hit.edit)))[row]
    order = np.lexsort((part, -amount, serves == 0, pair))
    decides = order[np.flatnonzero(np.diff(pair[order], prepend=-1))] if len(order) else order
    kinds = _kinds(side.code[part], pair, beside, len(first))
    kept = np.flatnonzero(rule < len(RULES))
    at = row[decides][kept]
    parts = part[decides][kept]
    beyond = [beside.get(number, (0, None, None, ()))[1:3] for number in kept.tolist()]
    ints = {name: getattr(hit, name)[at] for name in ("start", "length", "doc_unit", "longest", "covered")}
    ratios = ("longest_ratio", "covered_ratio", "containment", "edit", "masked")
    return pa.table(
        {
            "example": pa.array(pair_example[kept], pa.int32()),
            "doc": pa.array(pair_doc[kept], pa.int64()),
            "class": pa.array([name for name, _ in RULES], pa.string()).take(pa.array(rule[kept])),
            "kinds": kinds.take(pa.array(kept)),
            "part": pa.array(parts, pa.int32()),
            "units": pa.array(side.layout.units[parts], pa.int32()),
            **{name: pa.array(values, pa.int32(), mask=values < 0) for name, values in ints.items()},
            **{name: nullable(getattr(hit, name)[at]) for name in ratios},
            "answer": pa.array([answer for answer, _ in beyond], pa.int32()),
            "distance": pa.array([distance for _, distance in beyond], pa.int32()),
        }
    )


def _kinds(code: np.ndarray, pair: np.ndarray, beside: dict[int, Beside], count: int) -> pa.Array:
    """Of each pair the kinds of what it holds, sorted, and those that lie beside.  code: of the parts' kinds."""
    names: list[str] = sorted(KINDS)
    held = np.zeros(count, np.int64)
    np.bitwise_or.at(held, pair, 1 << code)
    for number, (_, _, _, more) in beside.items():
        held[number] |= sum(1 << names.index(kind) for kind in set(more))
    some, which = np.unique(held, return_inverse=True)
    each = [[name for at, name in enumerate(names) if one >> at & 1] for one in some.tolist()]
    return pa.array(each, pa.list_(pa.string())).take(pa.array(which))


# --- examples -----------------------------------------------------------------------------------------------------


def _classes(
    examples: pa.Table, side: Side, shared: Template, hit: Hits, evidence: pa.Table, evidence_all: pa.Table
) -> pa.Table:
    count = len(examples)
    best, documents = _best(evidence, count)
    best_all, _ = _best(evidence_all, count)
    reasons = _reasons(examples, side, shared, hit)
    names = evidence["class"].to_pylist()
    names_all = evidence_all["class"].to_pylist()

    def named(row: int, own: list[str], why: str | None) -> str:
        return own[row] if row >= 0 else "untested" if why else "clean"

    others, counted = twins(side.whole, side.suite)
    rows = pa.array(best, pa.int64(), mask=best < 0)
    cls = [named(row, names, why) for row, why in zip(best.tolist(), reasons, strict=True)]
    return pa.table(
        {
            "example": pa.array(np.arange(count), pa.int32()),
            "suite": examples["suite"],
            "id": examples["id"],
            "class": pa.array(cls, pa.string()),
            "class_all": [named(row, names_all, why) for row, why in zip(best_all.tolist(), reasons, strict=True)],
            "reason": pa.array(reasons, pa.string()),
            "documents": pa.array(documents, pa.int64()),
            **{name: evidence[name].take(rows) for name in evidence.column_names if name not in ("example", "class")},
            "twins": others,
            "counted": pa.array(counted),
        }
    )


def _best(evidence: pa.Table, count: int) -> tuple[np.ndarray, np.ndarray]:
    """(row of evidence, -1 none; documents that flag) of each example: most telling class, most covered, first."""
    example, doc = columns(evidence, ("example", "doc"))
    rank = _ranks(evidence)
    amount = np.nan_to_num(evidence["covered_ratio"].to_numpy(zero_copy_only=False))
    order = np.lexsort((doc, -amount, rank, example))
    heads = order[np.flatnonzero(np.diff(example[order], prepend=-1))] if len(order) else order
    best = np.full(count, -1, np.int64)
    best[example[heads]] = heads
    return best, np.bincount(example[rank < len(FLAGGED)], minlength=count)


def _ranks(evidence: pa.Table) -> np.ndarray:
    """int64 a row: the place of its class in CLASSES."""
    if not len(evidence):
        return np.zeros(0, np.int64)
    names = evidence["class"].combine_chunks().dictionary_encode()
    return np.array([RANK[name] for name in names.dictionary.to_pylist()])[names.indices.to_numpy()]


def _reasons(examples: pa.Table, side: Side, shared: Template, hit: Hits) -> list[str | None]:
    """Why an example could not be tested, so that without evidence it is not known to be clean; None where it could."""
    layout, count = side.layout, len(examples)
    asks = side.of_kind(PROMPT, VARIANT) | side.answering
    text = side.same

    def some(chosen: np.ndarray) -> np.ndarray:
        return np.bincount(side.example[asks & chosen], minlength=count) > 0

    long = layout.positions[text] > 0
    looked = some(long & (hit.live[text] > 0))
    lengthy, stock = some(long), some(long & (shared.excluded_whole(layout))[text])
    # a short prompt with enough choices is looked for as both together
    prompt = side.of_kind(PROMPT) & (layout.units >= 3) & ~shared.stock[text]
    listed = side.of_kind(CHOICES)
    units = np.bincount(side.example[prompt | listed], layout.units[prompt | listed], count)
    least = np.bincount(side.example[prompt], layout.n[prompt], count)
    both = (np.bincount(side.example[prompt], minlength=count) > 0) & (units >= least)
    both &= np.bincount(side.example[listed], minlength=count) > 0
    out: list[str | None] = []
    for row, problem in enumerate(examples["problem"].to_pylist()):
        if problem is not None:
            out.append(problem)
        elif looked[row] or (both[row] and not lengthy[row]):
            out.append(None)
        elif not lengthy[row]:
            out.append("short")
        else:
            out.append("template" if stock[row] else "common")
    return out


def _mirrors(examples: pa.Table, classes: pa.Table, evidence: pa.Table) -> pa.Table:
    names = np.array(examples["suite"].to_pylist(), object).astype(str)
    counted = classes["counted"].to_numpy(zero_copy_only=False)
    flags = _ranks(evidence) < len(FLAGGED)
    example, doc = columns(evidence, ("example", "doc"))
    chosen = flags & counted[example]
    example, doc = example[chosen], doc[chosen]
    suites, suite = np.unique(names[example], return_inverse=True)
    pair, first = dense(doc, suite)
    many = np.bincount(pair, minlength=len(first))
    kept = np.flatnonzero(many >= MIRROR)
    by = np.argsort(pair, kind="stable")
    groups = np.split(example[by], np.cumsum(many)[:-1]) if len(first) else []
    return pa.table(
        {
            "doc": pa.array(doc[first[kept]], pa.int64()),
            "suite": pa.array([str(suites[number]) for number in suite[first[kept]].tolist()], pa.string()),
            "count": pa.array(many[kept], pa.int32()),
            "examples": pa.array([sorted(groups[number].tolist()) for number in kept.tolist()], pa.list_(pa.int32())),
        }
    )
