"""One example's evidence, out of a report."""

import difflib
from dataclasses import dataclass
from typing import Any

from datapipe.auditing.report import Flagged, Report, Role, Untested
from datapipe.errors import ManifestError


@dataclass(frozen=True)
class Explained:
    """
    found:     where it was found, by role;  untested: why it could not be looked for;  neither: it is clean, or the
               report shows the first findings alone and cannot tell
    sentence:  what that means
    """

    suite: str
    id: str
    found: tuple[tuple[Role, Flagged], ...]
    untested: Untested | None
    sentence: str

    def as_json(self) -> dict[str, Any]:
        return {
            "suite": self.suite,
            "id": self.id,
            "sentence": self.sentence,
            "untested": self.untested and self.untested.reason,
            "found": [{"role": role, **one.model_dump(mode="json")} for role, one in self.found],
        }


def explain(report: Report, example: str) -> Explained:
    """example: suite/id, or an id that one suite has alone.  ManifestError where no example has that name."""
    meant = sorted(
        {
            (suite.suite, own)
            for suite in report.evals.suites
            for own in (example, example.removeprefix(f"{suite.suite}/"))
            if own in suite.ids
        }
    )
    exact = [pair for pair in meant if "/".join(pair) == example]
    if not meant:
        raise ManifestError(_nobody(report, example))
    if len(meant) > 1 and len(exact) != 1:
        names = ", ".join("/".join(pair) for pair in meant)
        raise ManifestError(f"{example}: several suites have it; write one of {names}")
    suite, own = exact[0] if exact else meant[0]
    hits: list[tuple[Role, Flagged]] = [
        (section.role, one)
        for section in report.sections
        for one in section.flagged
        if (one.suite, one.id) == (suite, own)
    ]
    missed = next((one for one in report.evals.untested if (one.suite, one.id) == (suite, own)), None)
    told = "; ".join(f"{role}: {one.cls}, {one.why}" for role, one in hits)
    sentence = told or (f"untested: {missed.reason}" if missed else _clean(report))
    return Explained(suite, own, tuple(hits), missed, sentence)


def _clean(report: Report) -> str:
    """What it means that a report shows nothing about an example that was looked for."""
    flagged = sum(section.flagged_total - len(section.flagged) for section in report.sections)
    untested = report.evals.untested_total - len(report.evals.untested)
    capped = [f"{n:,} {what}" for n, what in ((flagged, "flagged examples"), (untested, "untested ones")) if n]
    if capped:
        return f"not among those that this report shows: {' and '.join(capped)} are only in the tables of --out"
    recall = report.controls.recall
    worth = f", at a measured recall of {recall:.1%} or more" if recall is not None else ""
    seen = "" if report.verdict.complete else "; but not everything could be seen (see the failures of the report)"
    return f"clean: looked for and not found{worth}{seen}"


def _nobody(report: Report, example: str) -> str:
    names: dict[str, str] = {}
    for suite in report.evals.suites:
        for own in suite.ids:
            for name in (own, f"{suite.suite}/{own}"):
                names.setdefault(name.casefold(), f"{suite.suite}/{own}")
    near = list(dict.fromkeys(names[one] for one in difflib.get_close_matches(example.casefold(), names, 6, 0.6)))[:3]
    nearest = f"; near: {', '.join(near)}" if near else ""
    there = ", ".join(sorted(one.suite for one in report.evals.suites))
    return f"{example}: no example of that name was looked for{nearest}; write suite/id, as of the suites {there}"
