"""
What must not be, as a user says it with --fail-on, and whether it is.

    condition = [suite "."] measure operator number
    suite     = a name, as the report shows it, in quotes where it holds blanks or operators;
                * each suite on its own, mmlu* each whose name begins so
    measure   = a class (adjacent, solution, prompt, near, variant, short, passage, untested, clean) | flagged | rate
    operator  = > | >= | < | <= | == | !=

rate is that of the report, of what could be tested what flags, or of all examples what flags where that is more: what
could not be tested and flags all the same cannot hide behind the rest.  It is 0 to 1: 1 % is 0.01, and what no rate can
be is refused (rate > 1).  flagged counts all.  Everything else is a number of examples where the number is an integer,
and a share of all examples where it has a point, as for the manifest's limits.  Without a suite it is about all of them
together.  A share of no example is not known, and what is not known does not keep a limit: it violates > and >=.

    gsm8k.adjacent > 0      flagged >= 10      rate > 0.01      *.rate > 0.05      untested > 0.2
"""

import operator
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from datapipe.auditing.report import CLASSES, FLAGGED, Policy, Section, SetRow, Trace
from datapipe.errors import ManifestError
from datapipe.read.streams import bare

MEASURES = (*CLASSES, "flagged", "rate")
OPERATORS: dict[str, Callable[[float, float], bool]] = {
    ">=": operator.ge, "<=": operator.le, "==": operator.eq, "!=": operator.ne, ">": operator.gt, "<": operator.lt,
}  # fmt: skip
EACH = "*"
REPORTED = "validation"  # the role of documents that nobody trains on: told, never judged
_NUMBER = re.compile(r"\d+(\.\d+)?")
_NAME = re.compile(r"[^\s<>=!'\"]+")
_QUOTED = re.compile(r"'([^']*)'|\"([^\"]*)\"")


@dataclass(frozen=True)
class Condition:
    """suite: None for all together, * for each, mmlu* for each that begins so; share: whether `bound` is a share."""

    text: str
    suite: str | None
    measure: str
    operator: str
    bound: float
    share: bool

    def check(self, suites: Sequence[str], failed: Sequence[tuple[str, str]] = ()) -> None:
        """
        ManifestError where the suite is none of these: told before anything is looked through.

        failed: (path, why) of eval files that did not load, among which it may have been
        """
        if self.suite in (None, EACH) or any(map(self._means, suites)):
            return
        error = self._no_suite(suites)
        named = [one for one in failed if self.suite in _names(one[0])] or failed
        if named:
            lines = "".join(f"\n  {path}: {why}" for path, why in named)
            raise ManifestError(f"{error}; did not load, or not whole:{lines}")
        raise error

    def judge(self, sections: Sequence[Section], trace: Trace | None = None) -> Policy:
        """
        Whether it holds in a section of what is trained on or can be retrieved, or of what a trace says was retrieved.
        ManifestError: no such suite.
        """
        figures: dict[str, float] = {}
        violated = False
        judged = {str(one.role): self._rows(one.sets, one.total) for one in sections if one.role != REPORTED}
        if trace and trace.total:  # which may be about some of the suites only
            there = self.suite in (None, EACH) or any(self._means(row.suite) for row in trace.sets)
            judged["retrieved"] = self._rows(trace.sets, trace.total) if there else ()
        for role, rows in judged.items():
            for row in rows:
                value = self.value(row)
                violated |= self.violates(value)
                if value is not None:
                    figures[row.suite if len(judged) == 1 else f"{role}: {row.suite}"] = value
        return Policy(expression=self.text, figures=figures, violated=violated)

    def violates(self, value: float | None) -> bool:
        if value is None:
            return self.operator in (">", ">=")
        return OPERATORS[self.operator](value, self.bound)

    def value(self, row: SetRow) -> float | None:
        """The figure of a suite, None where it is not known."""
        if self.measure == "rate":
            return max(row.rate.share, row.least or 0.0) if row.rate.share is not None else row.least or None
        counts = {str(name): count for name, count in row.classes.items()}
        names = FLAGGED if self.measure == "flagged" else (self.measure,)
        count = sum(counts.get(name, 0) for name in names)
        if not self.share:
            return float(count)
        return count / row.examples if row.examples else None

    def _means(self, suite: str) -> bool:
        asked = self.suite or ""
        return suite == asked or (asked.endswith(EACH) and suite.startswith(asked.removesuffix(EACH)))

    def _rows(self, sets: Sequence[SetRow], total: SetRow) -> Sequence[SetRow]:
        if self.suite is None:
            return [total]
        rows = [row for row in sets if self._means(row.suite)]
        if not rows and self.suite != EACH:
            raise self._no_suite([row.suite for row in sets])
        return rows

    def _no_suite(self, suites: Sequence[str]) -> ManifestError:
        there = ", ".join(suites) or "none"
        return ManifestError(f"--fail-on {self.text!r}: no eval suite {self.suite!r}; there are: {there}")


def _names(path: str) -> set[str]:
    """What the suite of a file may be called: its name without suffixes, with folders or without."""
    parts = list(PurePosixPath(path).parts)
    stems = {parts[-1].split(".", 1)[0], PurePosixPath(bare(parts[-1])).stem}
    return {"/".join([*parts[at:-1], stem]) for at in range(len(parts)) for stem in stems}


def parse(text: str) -> Condition:
    """A condition; ManifestError names the place (from 1) and what was expected there."""
    at = _blank(text, 0)
    suite, measure, at = _target(text, at)
    at = _blank(text, at)
    sign = next((sign for sign in OPERATORS if text.startswith(sign, at)), None)
    if sign is None:
        raise _wrong(text, at, f"one of {' '.join(OPERATORS)}")
    at = _blank(text, at + len(sign))
    number = _NUMBER.match(text, at)
    if number is None:
        raise _wrong(text, at, "a number of examples (0, 10) or a share (0.01)")
    end = _blank(text, number.end())
    if end != len(text):
        raise _wrong(text, end, "the end of the condition")
    bound, share = float(number.group()), number.group(1) is not None or measure == "rate"
    if share and bound > 1:
        raise _wrong(text, at, "a share, 0 to 1")
    if share and bound == 1 and (sign == ">" or (sign == ">=" and number.group(1) is None)):
        raise _wrong(text, at, f"a share, 0 to 1, where 1 % is 0.01{' and all of them 1.0' if sign == '>=' else ''}")
    return Condition(text, suite, measure, sign, bound, share)


def _target(text: str, at: int) -> tuple[str | None, str, int]:
    """(suite, measure, where the measure ends): a suite's name may hold dots, a measure holds none."""
    if quoted := _QUOTED.match(text, at):
        suite, dot = quoted.group(1) or quoted.group(2) or "", quoted.end()
        if not text.startswith(".", dot):
            raise _wrong(text, dot, f". and a measure behind the suite's name: {', '.join(MEASURES)}")
        name, start = _NAME.match(text, dot + 1), dot + 1
        measure = name.group() if name else ""
    else:
        name = _NAME.match(text, at)
        before, _, measure = (name.group() if name else "").rpartition(".")
        suite, start = before or None, at + (len(before) + 1 if before else 0)
        if not before and name is not None and name.group().startswith("."):
            raise _wrong(text, at, "the name of a suite in front of the point")
    if measure not in MEASURES:
        raise _wrong(text, start, f"a measure: {', '.join(MEASURES)}")
    return suite, measure, start + len(measure)


def _blank(text: str, at: int) -> int:
    return at + len(text[at:]) - len(text[at:].lstrip())


def _wrong(text: str, at: int, expected: str) -> ManifestError:
    found = repr(text[at : at + 20]) if at < len(text) else "its end"
    return ManifestError(f"--fail-on {text!r}: at character {at + 1}: expected {expected}; found {found}")
