"""Shares and what is not known about them: intervals, limits where nothing was found, bounds with the untested."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from datapipe.auditing.report import FLAGGED

Z95 = 1.959963984540054  # two sides, 95 %


def wilson(found: int, of: int, z: float = Z95) -> tuple[float, float]:
    """The Wilson score interval of found / of; (0, 1), nothing known, where `of` is 0."""
    _counts(found, of)
    if of == 0:
        return 0.0, 1.0
    share, square = found / of, z * z
    middle = (share + square / (2 * of)) / (1 + square / of)
    half = z / (1 + square / of) * math.sqrt(share * (1 - share) / of + square / (4 * of * of))
    # exact at the ends, where rounding would leave 1e-19
    return 0.0 if found == 0 else max(0.0, middle - half), 1.0 if found == of else min(1.0, middle + half)


def rule_of_three(of: int, recall: float | None = 1.0) -> float | None:
    """
    The rate that 95 % confidence still allows where none of `of` was found by a detector of this recall: 3 / (of x
    recall), at most 1; None where nothing was looked for or nothing could have been found.
    """
    _counts(0, of)
    if recall is not None and not 0 <= recall <= 1:
        raise ValueError(f"a recall of {recall}, expected 0 to 1")
    return min(1.0, 3 / (of * recall)) if of and recall else None


def _counts(found: int, of: int) -> None:
    if not 0 <= found <= of:
        raise ValueError(f"{found} of {of}, expected 0 <= found <= of")


@dataclass(frozen=True)
class Rates:
    """
    An eval set by class.

    tested:       examples that could be looked for, whatever was found of them
    flagged:      of all examples, those too that could not be looked for and were found all the same
    found, share, low, high:  flagged of the tested, their share (None of none), its Wilson interval
    least, most:  flagged of all, and flagged, short and what could not be tested of all; (0, 1) of no example
    zero:         found is 0: the rate that is still possible; else None
    """

    examples: int
    tested: int
    flagged: int
    found: int
    share: float | None
    low: float
    high: float
    least: float
    most: float
    zero: float | None


def rates(classes: Mapping[str, int], untestable: Mapping[str, int], recall: float | None = 1.0) -> Rates:
    """
    Of counts by class.  untestable: of these, the examples that could not be looked for;  recall: of the detector, as
    measured; None where it was not.
    """
    examples = sum(classes.values())
    tested = examples - sum(untestable.values())
    flagged = sum(classes.get(name, 0) for name in FLAGGED)
    found = flagged - sum(untestable.get(name, 0) for name in FLAGGED)
    more = classes.get("short", 0) + sum(n for name, n in untestable.items() if name not in (*FLAGGED, "short"))
    low, high = wilson(found, tested)
    return Rates(
        examples,
        tested,
        flagged,
        found,
        found / tested if tested else None,
        low,
        high,
        flagged / examples if examples else 0.0,
        (flagged + more) / examples if examples else 1.0,
        rule_of_three(tested, recall) if found == 0 else None,
    )
