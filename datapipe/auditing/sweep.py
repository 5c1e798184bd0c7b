"""How many examples of each set a measure flags, at each threshold that it could have."""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import numpy as np

from datapipe.auditing.measures import Measures
from datapipe.auditing.report import THRESHOLDS, Sweep
from datapipe.contamination.intervals import columns

if TYPE_CHECKING:
    from datapipe.auditing.sections import Eval, Judgement

LONGER = 13  # units of the other n-gram that is looked at
SWEPT = ("ngram_ratio", "unique_ratio", "token_ratio", "best_doc_ratio", "longest_ratio", "extended_ratio", "idf",
         "idf_train", "weighted", "weighted_rare")  # fmt: skip
WINDOWED = ("containment", "edit", "numbers", "identifiers")  # of windows: whatever n, and nothing is left out there


def sweep(one: "Judgement") -> list[Sweep]:
    """For sets of which an example reaches the first threshold of a measure."""
    n = one.eval.index.n
    looks: list[tuple[int, bool, Callable[[], Measures]]] = [
        (n, True, lambda: one.measured),
        (n, False, lambda: one.bare),
    ]
    if n < LONGER:
        looks += [
            (LONGER, True, lambda: one.longer(LONGER, one.judged.excluded)),
            (LONGER, False, lambda: one.longer(LONGER, None)),
        ]
    found: list[Sweep] = []
    for units, exclusion, look in looks:
        measures = look()
        for metric in SWEPT:
            found += _swept(one, metric, units, exclusion, of_examples(one.eval, measures.of(metric)))
    for metric in WINDOWED:
        found += _swept(one, metric, n, False, of_examples(one.eval, _windowed(one, metric)))
    return found


def _swept(one: "Judgement", metric: str, n: int, exclusion: bool, values: np.ndarray) -> Iterator[Sweep]:
    """values: of each example."""
    counted = one.judged.classes["counted"].to_numpy(zero_copy_only=False)
    there = np.flatnonzero(counted & (values >= THRESHOLDS[0] - 1e-12))
    suites = one.eval.suite_of[there]
    for name in one.eval.suites.names if len(there) else ():
        mine = np.sort(values[there[suites == name]])
        if len(mine):
            reached = tuple(int(len(mine) - np.searchsorted(mine, bound - 1e-12)) for bound in THRESHOLDS)
            yield Sweep(suite=name, metric=metric, n=n, exclusion=exclusion, flagged=reached)


def of_examples(eval_: "Eval", values: np.ndarray) -> np.ndarray:
    """The largest value of the flagging parts of each example, -1 where there is none.  values: of each part."""
    out = np.full(len(eval_.suites.examples), -1.0)
    mine = np.flatnonzero(eval_.flagging & ~np.isnan(values))
    np.maximum.at(out, eval_.suites.example_of[mine], values[mine])
    return out


def _windowed(one: "Judgement", metric: str) -> np.ndarray:
    """float64 a part, NaN where nothing of it was looked at: of its best window; of a part that is there whole, 1."""
    layout = one.eval.layout
    found = np.full(len(layout), -1.0)
    part, values = columns(one.found.windows, ("part", metric))
    np.maximum.at(found, part, np.nan_to_num(values.astype(float), nan=-1.0))
    if metric in ("containment", "edit"):
        part, length = columns(one.found.runs, ("part", "length"))
        found[part[(length == layout.units[part]) & (layout.positions[part] > 0)]] = 1.0
    found[found < 0] = np.nan
    return found[layout.same]
