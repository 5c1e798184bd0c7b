"""
Published rules as data: which parts a rule reads, with which n, which measure it bounds, and where.

Each asks one question of an example's measured parts: would these authors have called it contaminated?  Units are
ours (kernels/units.py) where they had tokens or words of their own, so figures are comparable, not equal.  A part
whose script takes longer n-grams keeps them; an n below a part's own cannot be asked of its runs.  Substitutions that
Llama 2 allowed are the measure `extended_ratio`, not part of its rule here.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import pyarrow as pa

from datapipe.contamination.intervals import Layout, columns, overlap, ratio
from datapipe.contamination.metrics import measure

Metric = Literal["any", "ngram_ratio", "token_ratio", "best_doc_ratio", "longest_ratio", "decon"]
WHOLE = ("prompt", "passage", "choices", "answer", "solution")
DEFAULT = "contam"


@dataclass(frozen=True)
class Profile:
    """
    threshold: flags at it or above, with `above` only above it.  or_best_doc: flags above this best_doc_ratio too.
    n: units, or (least, most) around the 5th percentile of an eval set's lengths.  suites: thresholds by suite.
    """

    name: str
    n: int | tuple[int, int]
    metric: Metric
    threshold: float
    reads: tuple[str, ...] = ("prompt",)
    above: bool = False
    or_best_doc: float | None = None
    suites: Mapping[str, float] = field(default_factory=dict)
    about: str = ""

    def at(self, suite: str | None) -> float:
        return self.suites.get(suite or "", self.threshold)

    def flags(self, values: np.ndarray, threshold: np.ndarray | float | None = None) -> np.ndarray:
        """bool of measured values; NaN, which is untested, is no flag."""
        bound = self.threshold if threshold is None else threshold
        with np.errstate(invalid="ignore"):
            return values > bound if self.above else values >= bound


PROFILES = {
    profile.name: profile
    for profile in (
        Profile("gpt3", (8, 13), "any", 1, WHOLE, about="one n-gram in common; n = 5th percentile length, 8 to 13"),
        Profile("palm", 8, "ngram_ratio", 0.7, about="70 % of the 8-grams"),
        Profile("llama2", 11, "token_ratio", 0.8, ("prompt", "passage"), about="80 % of tokens in matches over 10"),
        Profile("llama3", 8, "token_ratio", 0.8, ("prompt", "passage"), about="a share of tokens in 8-grams, by set"),
        Profile("tulu3", 8, "best_doc_ratio", 0.5, above=True, about="over half of the tokens in one document"),
        Profile("contam", 8, "longest_ratio", 0.5, ("prompt", "solution", "answer", "tests"), or_best_doc=0.5,
                about="half in one contiguous match, or more than half in one document"),
        Profile("decon-like", 8, "decon", 0.8, ("prompt", "answer", "solution", "passage"),
                about="weighted n-grams of prompt, answer and passage, more asked of short ones"),
    )
}  # fmt: skip


def gpt3_n(lengths: np.ndarray, least: int = 8, most: int = 13) -> int:
    """The 5th percentile (lower) of the lengths of an eval set's examples in units, within bounds."""
    if not len(lengths):
        return most
    return int(np.clip(np.sort(lengths)[int(0.05 * (len(lengths) - 1))], least, most))


def flagged(
    profile: Profile, examples: pa.Table, parts: pa.Table, layout: Layout, runs: pa.Table
) -> tuple[np.ndarray, np.ndarray]:
    """(flagged, tested): bool of each example, by the rule alone: without exclusions and classes."""
    example, count = columns(parts, ["example"])[0], len(examples)
    kinds = np.array(parts["kind"].to_pylist(), object)
    read = np.isin(kinds, profile.reads)
    suites = np.array(examples["suite"].to_pylist(), object)
    if profile.metric == "decon":
        return _decon(example, kinds, layout, runs, count)
    values = np.full(count, np.nan)
    for n, chosen in _lengths(profile, suites, np.bincount(example[read], layout.units[read], count)):
        longer = layout.with_n(n)
        found = measure(longer, runs)
        mine = read & chosen[example]
        values[chosen] = _of_examples(profile.metric, found, layout.same, example, mine, count)[chosen]
        if profile.or_best_doc is not None:
            best = _of_examples("best_doc_ratio", found, layout.same, example, mine, count)
            over = chosen & (best > profile.or_best_doc)
            values[over] = np.maximum(values[over], 1.0)
    bounds = np.array([profile.at(suite) for suite in suites])
    return profile.flags(values, bounds), ~np.isnan(values)


def _lengths(profile: Profile, suites: np.ndarray, units: np.ndarray) -> list[tuple[int, np.ndarray]]:
    """[(n, bool of the examples that it is asked of)]: one n, or one for each n that suites have."""
    if isinstance(profile.n, int):
        return [(profile.n, np.ones(len(suites), bool))]
    of = {suite: gpt3_n(units[suites == suite], *profile.n) for suite in set(suites)}
    own = np.array([of[suite] for suite in suites], np.int64)
    return [(int(n), own == n) for n in np.unique(own)]


def _of_examples(
    metric: str, found: pa.Table, same: np.ndarray, example: np.ndarray, mine: np.ndarray, count: int
) -> np.ndarray:
    """The measure of each example, NaN if no part of it was tested: ratios of sums, or the largest of its parts."""
    names = {"ngram_ratio": ("matched", "positions"), "token_ratio": ("covered", "live_units")}
    rows, to = same[mine], example[mine]
    if metric in names:
        over, of = columns(found, names[metric])
        return ratio(np.bincount(to, over[rows], count), np.bincount(to, of[rows], count))
    value = found[metric].cast(pa.float64()).to_numpy(zero_copy_only=False)[rows]
    out = np.full(count, -1.0)
    known = ~np.isnan(value)
    np.maximum.at(out, to[known], value[known])
    return np.where(out < 0, np.nan, out)


# --- decon-like -------------------------------------------------------------------------------------------------

CERTAIN_LENGTH, USUAL_LENGTH, USUAL = 20, 50, 0.8


def required(units: float, usual: float = USUAL) -> float:
    """The score that is asked: 1 up to 20 units, `usual` from 50, a line between."""
    along = np.clip((units - CERTAIN_LENGTH) / (USUAL_LENGTH - CERTAIN_LENGTH), 0, 1)
    return float(1 - (1 - usual) * along)


def decon_score(
    question: float,
    question_grams: int,
    question_units: int,
    answer: float | None = None,
    answer_units: int = 0,
    passage: float | None = None,
    passage_units: int = 0,
) -> float | None:
    """
    The score that flags at 0.8, None where the question alone is too weak for its length.

    question, answer, passage: weighted overlaps, None where the example has no such part.  Weights .7/.2/.1; a short
    question hands weight to the others in proportion, a short answer hands some to the passage.
    """
    gate = required(question_units, (USUAL - 0.3) / 0.7)
    if question < gate:
        return None
    weights = {
        (True, True): (0.7, 0.2, 0.1), (True, False): (0.75, 0.25, 0.0),
        (False, True): (0.85, 0.0, 0.15), (False, False): (1.0, 0.0, 0.0),
    }[answer is not None, passage is not None]  # fmt: skip
    q, a, p = weights
    if a + p > 0:
        sure = 0.5 + 0.5 * min(question_grams / 20, 1)
        a, p, q = a + (1 - sure) * q * a / (a + p), p + (1 - sure) * q * p / (a + p), sure * q
    if a > 0 and p > 0:
        sure = 0.5 + 0.5 * min(answer_units / 4, 1)
        a, p = a * sure, p + a * (1 - sure)
    if min(share for share in (question, answer, passage) if share is not None) >= 1:
        return 1.0
    base = q * question + a * (answer or 0.0) + p * (passage or 0.0)
    return base * USUAL / required(question_units + answer_units + passage_units)


def _decon(
    example: np.ndarray, kinds: np.ndarray, layout: Layout, runs: pa.Table, count: int
) -> tuple[np.ndarray, np.ndarray]:
    """
    The score from the best document of each prompt: overlaps by n-grams there, answer and passage from the same one.
    A part shorter than n is found whole or not at all.
    """
    pairs = _shares(layout, runs)
    parts: dict[int, dict[str, list[int]]] = {}
    for part in np.flatnonzero(np.isin(kinds, ("prompt", "answer", "solution", "passage"))).tolist():
        kind = "answer" if kinds[part] == "solution" else str(kinds[part])
        parts.setdefault(int(example[part]), {}).setdefault(kind, []).append(part)
    hits, tested = np.zeros(count, bool), np.zeros(count, bool)
    for row, own in parts.items():
        for prompt in own.get("prompt", []):
            if not layout.positions[layout.same[prompt]]:
                continue
            tested[row] = True
            for doc, share in pairs.get(int(layout.same[prompt]), {}).items():
                beside = {
                    kind: max((pairs.get(int(layout.same[p]), {}).get(doc, 0.0), int(layout.units[p])) for p in found)
                    for kind, found in own.items()
                    if kind != "prompt"
                }
                answer, passage = beside.get("answer", (None, 0)), beside.get("passage", (None, 0))
                units, grams = int(layout.units[prompt]), int(layout.positions[prompt])
                score = decon_score(share, grams, units, answer[0], answer[1], passage[0], passage[1])
                hits[row] |= score is not None and score >= USUAL
    return hits, tested


def _shares(layout: Layout, runs: pa.Table) -> dict[int, dict[int, float]]:
    """Of each part that is hit, by document: the share of its n-grams; 1 for a short part, which is matched whole."""
    o = overlap(layout, runs)
    size = layout.n[o.part] - 1
    share = np.bincount(o.pair, o.high - o.low, len(o.part)) / layout.positions[o.part] if len(o.part) else size
    found: dict[int, dict[int, float]] = {}
    for part, doc, value in zip(o.part.tolist(), o.doc.tolist(), share.tolist(), strict=True):
        found.setdefault(part, {})[doc] = min(value, 1.0)
    doc, part = columns(runs, ("doc", "part"))
    short = layout.units[part] < layout.n[part]
    for p, d in zip(part[short].tolist(), doc[short].tolist(), strict=True):
        found.setdefault(p, {})[d] = 1.0
    return found
