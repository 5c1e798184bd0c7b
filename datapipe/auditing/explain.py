"""One example's evidence, out of a report."""

import difflib
from dataclasses import dataclass
from typing import Any

from datapipe.auditing.report import Flagged, Report, Role, Untested
from datapipe.errors import ManifestError


@dataclass(frozen=True)
class Explained:
    """
    found:     where it was found, by role;  untested: why it could not be looked for;  neither: it is clean
    twins:     other examples with the same text
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
    """
    example: suite/id, or an id that one suite has alone.  ManifestError where no example of that name is told of, and
    all of that suite are: a report names examples that are not clean; a clean one is known by its suite.
    """
    named: list[tuple[Role, Flagged]] = [(section.role, one) for section in report.sections for one in section.flagged]
    suites = sorted({suite.suite for suite in report.evals.suites}, key=len, reverse=True)
    suite = next((name for name in suites if example.startswith(f"{name}/")), None)
    wanted = example.removeprefix(f"{suite}/") if suite else example
    hits: list[tuple[Role, Flagged]] = [
        (role, one) for role, one in named if one.id == wanted and suite in (None, one.suite)
    ]
    missed = [one for one in report.evals.untested if one.id == wanted and suite in (None, one.suite)]
    owners = sorted({one.suite for _, one in hits} | {one.suite for one in missed})
    if len(owners) > 1:
        names = ", ".join(f"{owner}/{wanted}" for owner in owners)
        raise ManifestError(f"{example}: several suites have it; write one of {names}")
    if not owners:
        return _not_told(report, example, suite, wanted)
    sentence = "; ".join(f"{role}: {one.cls}, {one.why}" for role, one in hits) or f"untested: {missed[0].reason}"
    return Explained(owners[0], wanted, tuple(hits), missed[0] if missed else None, sentence)


def _not_told(report: Report, example: str, suite: str | None, wanted: str) -> Explained:
    there = ", ".join(sorted(one.suite for one in report.evals.suites))
    near = _near(report, example, suite, wanted)
    if suite is None:
        raise ManifestError(
            f"{example}: this report tells of no example of that name{near and f', {near} is near'}; write suite/id, "
            f"as of the suites {there}"
        )
    left = sum(section.flagged_total - len(section.flagged) for section in report.sections)
    more = f"; {near} was found or is untested" if near else ""
    more += f"; {left:,} flagged examples are only in the tables of --out" if left else ""
    left = report.evals.untested_total - len(report.evals.untested)
    more += f"; {left:,} untested ones are only in the tables of --out" if left else ""
    recall = report.controls.recall
    worth = f", at a measured recall of {recall:.1%} or more" if recall is not None else ""
    sentence = f"not among the examples that were found or are untested: clean if {suite} has it{worth}{more}"
    return Explained(suite, wanted, (), None, sentence)


def _near(report: Report, example: str, suite: str | None, wanted: str) -> str:
    """suite/id of the example told of whose name is nearest; empty where none is near."""
    told = {(one.suite, one.id) for section in report.sections for one in section.flagged}
    told |= {(one.suite, one.id) for one in report.evals.untested}
    names: dict[str, str] = {}
    for of, own in sorted(told):
        if suite is None:
            names.setdefault(f"{of}/{own}".casefold(), f"{of}/{own}")
        if suite in (None, of):
            names.setdefault(own.casefold(), f"{of}/{own}")
    near = difflib.get_close_matches((wanted if suite else example).casefold(), names, 1, 0.75)
    return names[near[0]] if near else ""
