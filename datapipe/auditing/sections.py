"""From what a scan found in the corpora of one role to a section of the report."""

import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa

from datapipe.auditing.evidence import Finder
from datapipe.auditing.gather import Gathered, Side
from datapipe.auditing.measures import Counts, Measures, counts, held_by, measured, measured_longer
from datapipe.auditing.report import (
    CLASSES,
    FLAGGED,
    Cell,
    Class,
    Common,
    Flagged,
    Rate,
    Role,
    Section,
    SetRow,
)
from datapipe.auditing.statistics import rates, wilson
from datapipe.auditing.sweep import sweep
from datapipe.auditing.training import Corpus
from datapipe.contamination import classes, profiles
from datapipe.contamination.classes import Judged
from datapipe.contamination.common import Common as Excluded
from datapipe.contamination.index import Index
from datapipe.contamination.intervals import Layout
from datapipe.contamination.model import ANSWER, PROMPT, SOLUTION, TESTS, Suites
from datapipe.contamination.profiles import Profile
from datapipe.contamination.scan import Found
from datapipe.contamination.template import Side as EvalSide
from datapipe.contamination.template import Template, names_of

FLAGGING = (PROMPT, ANSWER, SOLUTION, TESTS)
SHOWN = ("longest", "longest_ratio", "best_doc_ratio", "token_ratio", "ngram_ratio", "idf", "weighted", "run_union")
ROWS = 10_000  # flagged examples that a report lists
FULL = 1_000  # of them with several documents each
DOCUMENTS = 3
BYTES, BYTES_AFTER = 3_000, 1_200  # of text shown of a document
MIRRORS, COMMON = 200, 50
TWINS = 20  # named of an example


@dataclass(frozen=True)
class Eval:
    """What is looked for, indexed."""

    suites: Suites
    index: Index
    profile: Profile

    @property
    def layout(self) -> Layout:
        """Positions of the parts of n units and more."""
        return self.index.layout

    @cached_property
    def known(self) -> tuple[EvalSide, Template]:
        """What every judgement asks of the suites."""
        return classes.known(self.suites, self.layout)

    @cached_property
    def names(self) -> list[str]:
        """suite/id of each example."""
        columns = (self.suites.examples[name].to_pylist() for name in ("suite", "id"))
        return [f"{suite}/{own}" for suite, own in zip(*columns, strict=True)]

    @cached_property
    def suite_of(self) -> np.ndarray:
        """The suite of each example."""
        names, suite = names_of(self.suites.examples["suite"])
        return names[suite]

    @cached_property
    def flagging(self) -> np.ndarray:
        """bool a part: one whose measures speak for its example."""
        return self.known[0].of_kind(*FLAGGING)

    @cached_property
    def held(self) -> np.ndarray:
        """int32 a gram: examples that hold it."""
        return held_by(self.suites, self.layout, self.index.n_grams)


@dataclass(frozen=True)
class Judgement:
    """What one role's scan says: tables, common n-grams, classes."""

    eval: Eval
    side: Side
    found: Found
    common: np.ndarray  # bool a gram
    judged: Judged
    documents: int
    sources: Sequence[str]

    @cached_property
    def counts(self) -> Counts:
        """The n-grams that stand in these documents."""
        return counts(self.found, self.eval.index.n_grams)

    @cached_property
    def measured(self) -> Measures:
        return self._measured(self.judged.excluded)

    @cached_property
    def bare(self) -> Measures:
        """Nothing left out."""
        return self._measured(None)

    def longer(self, n: int, excluded: np.ndarray | None) -> Measures:
        """By n-grams of n units."""
        return measured_longer(self.eval.index, self.eval.suites, self.found, n, excluded, self.documents)

    def _measured(self, excluded: np.ndarray | None) -> Measures:
        return measured(self.eval.index, self.found, self.counts, self.eval.held, excluded, self.documents,
                        len(self.eval.suites.examples))  # fmt: skip


def judged(eval_: Eval, side: Side, sources: Sequence[str], common: Excluded) -> Judgement:
    """Classes of what a role gave."""
    found = side.merged()
    documents = sum(seen.documents for seen in side.seen.values())
    excluded = mask(common, eval_.index.n_grams)
    answer = classes.judge(eval_.suites, eval_.layout, found, excluded, before=eval_.known)
    return Judgement(eval_, side, found, excluded, answer, documents, sources)


def mask(common: Excluded, size: int) -> np.ndarray:
    """bool a gram."""
    out = np.zeros(size, bool)
    out[common.grams] = True
    return out


def section(
    one: Judgement, gathered: Gathered, corpora: Sequence[Corpus], common: Excluded | None, recall: float | None
) -> Section:
    """All that a report says of a role."""
    role = one.side.role
    table = one.judged.classes
    order = _order(one)
    finder = Finder(
        one.eval.suites, one.eval.index, one.side, one.found, one.judged.evidence, corpora, gathered.sources
    )
    rows = [
        _flagged(one, finder, example, DOCUMENTS if place < FULL else 1, BYTES if place < FULL else BYTES_AFTER)
        for place, example in enumerate(order[:ROWS])
    ]
    flagged = finder.finish(rows)
    sets = _sets(one, recall)
    mirrors = one.judged.mirrors.sort_by([("count", "descending"), ("doc", "ascending"), ("suite", "ascending")])
    kinds = list(_common(one, common)) if common is not None else []
    names = tuple(dict.fromkeys(corpora[corpus].name for corpus, _ in one.side.seen))
    return Section(
        role=role,
        corpora=names,
        documents=one.documents,
        sets=tuple(sets),
        total=_row(one, "*", _first(table), recall),
        sweep=tuple(sweep(one)),
        flagged=tuple(flagged),
        flagged_total=len(order),
        evidence_capped=_capped(len(order)),
        matrix=tuple(_matrix(one)),
        mirrors=tuple(finder.mirror(row) for row in mirrors.slice(0, MIRRORS).to_pylist()),
        mirrors_total=len(mirrors),
        common=tuple(kinds[:COMMON]),
        common_total=len(kinds),
        repeated=tuple(_repeated(one)),
    )


def _capped(total: int) -> str | None:
    if total <= FULL:
        return None
    least = f"the first {FULL:,} of {total:,} findings show {DOCUMENTS} documents each, the next ones the best alone"
    return least if total <= ROWS else f"{least}, and those after {ROWS:,} are only in the tables of --out"


# --- sets --------------------------------------------------------------------------------------------------------


def _sets(one: Judgement, recall: float | None) -> list[SetRow]:
    suites = one.eval.suite_of
    return [_row(one, name, suites == name, recall) for name in one.eval.suites.names]


def _row(one: Judgement, name: str, mine: np.ndarray, recall: float | None) -> SetRow:
    table = one.judged.classes
    counted = mine & table["counted"].to_numpy(zero_copy_only=False)
    cls, bare, reason = (np.array(table[which].to_pylist(), object) for which in ("class", "class_all", "reason"))
    by_profile = None
    if one.eval.profile.name != profiles.DEFAULT:
        hits, could = _by_profile(one)
        by_profile = rate(int((hits & could & counted).sum()), int((could & counted).sum()))
    without = int(np.isin(bare[counted], FLAGGED).sum())
    return set_row(name, cls[counted], reason[counted] != None, without, recall, by_profile)  # noqa: E711  of each


def set_row(
    name: str, cls: np.ndarray, untestable: np.ndarray, without: int, recall: float | None,
    by_profile: Rate | None = None,
) -> SetRow:  # fmt: skip
    """cls, untestable: of each example;  without: flagged, had nothing been left out"""
    counts: dict[Class, int] = {each: n for each in CLASSES if (n := int((cls == each).sum()))}
    told = rates({str(each): n for each, n in counts.items()}, Counter(cls[untestable].tolist()), recall)
    return SetRow(
        suite=name, examples=told.examples, tested=told.tested, classes=counts, flagged=told.flagged,
        rate=Rate(found=told.found, of=told.tested, share=told.share, low=told.low, high=told.high),
        least=told.least, most=told.most, zero=told.zero, without_exclusion=without, by_profile=by_profile,
    )  # fmt: skip


def _first(classes: pa.Table) -> np.ndarray:
    """bool an example: that no earlier one equals, of whatever suite: all suites together count it once."""
    return np.array([min(twins or [at]) >= at for at, twins in enumerate(classes["twins"].to_pylist())], bool)


def rate(found: int, of: int) -> Rate:
    """With its interval."""
    low, high = wilson(found, of)
    return Rate(found=found, of=of, share=found / of if of else None, low=low, high=high)


def _by_profile(one: Judgement) -> tuple[np.ndarray, np.ndarray]:
    suites = one.eval.suites
    return profiles.flagged(one.eval.profile, suites.examples, suites.parts, one.eval.layout, one.found.runs)


# --- examples ----------------------------------------------------------------------------------------------------


def _order(one: Judgement) -> list[int]:
    """Examples that are not clean or untested, the clearest first: class, longest match, name."""
    table = one.judged.classes
    cls = table["class"].to_pylist()
    share = np.nan_to_num(table["longest_ratio"].to_numpy(zero_copy_only=False).astype(float))
    found = [at for at, name in enumerate(cls) if name not in ("clean", "untested")]
    return sorted(found, key=lambda at: (CLASSES.index(cls[at]), -share[at], one.eval.names[at]))


def _flagged(one: Judgement, finder: Finder, example: int, documents: int, most: int) -> Flagged:
    table = one.judged.classes
    cls, part = table["class"][example].as_py(), table["part"][example].as_py()
    twins = table["twins"][example].values.slice(0, TWINS).to_pylist()
    return finder.flagged(
        example, cls, documents, most,
        metrics=one.measured.figures(part, SHOWN) | _window_figures(table, example),
        without=one.bare.figures(part, SHOWN),
        twins=tuple(one.eval.names[twin] for twin in twins),
    )  # fmt: skip


def _window_figures(table: pa.Table, example: int) -> dict[str, float]:
    found = {name: table[name][example].as_py() for name in ("containment", "edit", "masked")}
    return {name: float(value) for name, value in found.items() if value is not None}


# --- tables ------------------------------------------------------------------------------------------------------


def _matrix(one: Judgement) -> list[Cell]:
    """By source and suite: classes of all evidence, documents and copies of what flags."""
    cells: dict[tuple[str, str], tuple[dict[int, str], dict[int, int]]] = {}
    evidence = one.judged.evidence
    for example, doc, cls in zip(*(evidence[name].to_pylist() for name in ("example", "doc", "class")), strict=True):
        source, copies = one.side.holders[doc]
        examples, docs = cells.setdefault((one.sources[source], str(one.eval.suite_of[example])), ({}, {}))
        old = examples.get(example)
        examples[example] = cls if old is None or CLASSES.index(cls) < CLASSES.index(old) else old
        if cls in FLAGGED:
            docs[doc] = copies
    return [
        Cell(
            source=source, suite=suite, examples=sum(cls in FLAGGED for cls in examples.values()), documents=len(docs),
            exposure=sum(docs.values()),
            classes={cls: n for cls in CLASSES if (n := sum(own == cls for own in examples.values()))},
        )
        for (source, suite), (examples, docs) in sorted(cells.items())
    ]  # fmt: skip


def _common(one: Judgement, common: Excluded) -> list[Common]:
    """The n-grams taken for common, most documents first."""
    return _grams(one, common.grams.astype(np.int64), True)


def _repeated(one: Judgement) -> list[Common]:
    """The n-grams of examples that stand in most documents, common or not."""
    found = one.counts
    several = np.flatnonzero((found.docs > 1) & (one.eval.held[found.gram] > 0))  # those of short parts are in no text
    order = np.lexsort((found.gram[several], -one.eval.held[found.gram[several]], -found.docs[several]))
    return _grams(one, found.gram[several[order[:COMMON]]], None)


def _grams(one: Judgement, grams: np.ndarray, common: bool | None) -> list[Common]:
    """Most documents first.  common: what is true of all of them; null: as the judgement has it."""
    texts = gram_texts(one.eval, grams)
    rows = one.counts.rows(grams)
    found = [
        Common(text=texts[gram], documents=int(one.counts.docs[at]), occurrences=int(one.counts.occurrences[at]),
               sources=int(one.counts.sources[at]), examples=int(one.eval.held[gram]),
               common=bool(one.common[gram]) if common is None else common)
        for gram, at in zip(grams.tolist(), rows.tolist(), strict=True) if gram in texts and at >= 0
    ]  # fmt: skip
    return sorted(found, key=lambda each: (-each.documents, -each.examples, each.text))


def excluded_digest(eval_: Eval, common: Excluded) -> tuple[int, str]:
    """How many n-grams were taken for common, and the sha256 of their sorted texts, a line each."""
    chosen = common.grams
    texts = sorted(" ".join(text.split()) for text in gram_texts(eval_, chosen).values())
    return len(chosen), hashlib.sha256("".join(f"{text}\n" for text in texts).encode("utf-8", "replace")).hexdigest()


def named(one: Judgement, corpora: Sequence[Corpus]) -> dict[int, str]:
    """Document number -> its own id, of documents whose text is kept."""
    found: dict[int, str] = {}
    for number, corpus in enumerate(corpora):
        docs = [doc for doc, (at, _) in one.side.kept.items() if at == number]
        known = corpus.resolve([one.side.kept[doc][1].document for doc in docs])
        found |= {doc: each.url for doc, each in zip(docs, known, strict=True) if each.url is not None}
    return found


def gram_texts(eval_: Eval, grams: np.ndarray) -> dict[int, str]:
    """The text of n-grams, as it stands at the first place that has it."""
    layout = eval_.layout
    wanted = np.zeros(eval_.index.n_grams, bool)
    wanted[grams] = True
    places = np.flatnonzero(wanted[layout.grams])
    places = places[np.unique(layout.grams[places], return_index=True)[1]]
    part = layout.owners(places)
    found: dict[int, str] = {}
    for number in np.unique(part).tolist():
        _, starts, ends = eval_.index.units(number)
        data = eval_.suites.parts["text"][number].as_py().encode()
        for place in places[part == number].tolist():
            position = place - int(layout.offsets[number])
            low, high = int(starts[position]), int(ends[position + int(layout.n[number]) - 1])
            found[int(layout.grams[place])] = data[low:high].decode("utf-8", "replace")
    return found


def roles(gathered: Gathered) -> list[Role]:
    """Train first, validation apart."""
    return [role for role in ("train", "validation", "retrieval", "retrieved") if role in gathered.sides]
