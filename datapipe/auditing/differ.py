"""What changed between two audits: what was looked at, how, and with what result."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from datapipe.auditing.report import Class, Report, Role, SetRow


@dataclass(frozen=True)
class Moved:
    """An example whose class is another; null: looked for and not found.  Else a class, or why there is none."""

    role: Role
    suite: str
    id: str
    old: str | None
    new: str | None


@dataclass(frozen=True)
class Changed:
    """A figure or a digest that differs."""

    what: str
    old: Any
    new: Any


@dataclass(frozen=True)
class Difference:
    """same: the two reports are equal but for `run`."""

    same: bool
    made: tuple[Changed, ...]  # verdict, scope, evals, detector, controls
    rates: tuple[Changed, ...]  # "role suite class": counts
    examples: tuple[Moved, ...]

    def as_json(self) -> dict[str, Any]:
        return {
            "same": self.same,
            "made": [vars(one) for one in self.made],
            "rates": [vars(one) for one in self.rates],
            "examples": [vars(one) for one in self.examples],
        }


def diff(old: Report, new: Report) -> Difference:
    """What differs; nothing where the digests agree."""
    if old.digest == new.digest:
        return Difference(True, (), (), ())
    return Difference(False, tuple(_made(old, new)), tuple(_rates(old, new)), tuple(_moved(old, new)))


def _made(old: Report, new: Report) -> Iterable[Changed]:
    yield from _changed("tool", old.tool, new.tool)
    yield from _changed("verdict", old.verdict.result, new.verdict.result)
    yield from _changed("complete", old.verdict.complete, new.verdict.complete)
    before, after = ({f"{one.role} {one.name}": one for one in report.scope} for report in (old, new))
    for name in sorted({*before, *after}):
        for what in ("digest", "documents", "bytes"):
            sides = [str(getattr(side[name], what)) if name in side else None for side in (before, after)]
            yield from _changed(f"scope {name}: {what}", *sides)
    files = [{one.path: one.sha256 for one in report.evals.files} for report in (old, new)]
    for path in sorted({*files[0], *files[1]}):
        yield from _changed(f"eval {path}", files[0].get(path), files[1].get(path))
    a, b = (report.detector.model_dump() for report in (old, new))
    for key in a:
        yield from _changed(f"detector {key}", a[key], b[key])
    recalls = [{one.form: one.recall.share for one in report.controls.forms} for report in (old, new)]
    for form in [*recalls[0], *(form for form in recalls[1] if form not in recalls[0])]:
        yield from _changed(f"control {form}: recall", recalls[0].get(form), recalls[1].get(form))


def _changed(what: str, old: Any, new: Any) -> Iterable[Changed]:
    if old != new:
        yield Changed(what, old, new)


def _rates(old: Report, new: Report) -> Iterable[Changed]:
    before, after = (_rows(report) for report in (old, new))
    for role, suite in sorted({*before, *after}):
        sides = [side.get((role, suite)) for side in (before, after)]
        for cls in _classes(sides):
            counts = [row.classes.get(cls, 0) if row else None for row in sides]
            yield from _changed(f"{role} {suite}: {cls}", *counts)


def _rows(report: Report) -> dict[tuple[Role, str], SetRow]:
    return {(section.role, row.suite): row for section in report.sections for row in section.sets}


def _classes(sides: Iterable[SetRow | None]) -> list[Class]:
    return sorted({cls for row in sides if row for cls in row.classes})


def _moved(old: Report, new: Report) -> Iterable[Moved]:
    before, after = _found(old), _found(new)
    unlike = [_not_found(report) for report in (old, new)]
    for key in sorted({*before, *after}):
        if before.get(key) != after.get(key):
            a, b = (told.get(key) or why(key) for told, why in zip((before, after), unlike, strict=True))
            yield Moved(*key, a, b)


def _not_found(report: Report) -> Callable[[tuple[Role, str, str]], str | None]:
    """Why an example is not among those that the report tells of; null: it was looked for and is not there."""
    known = {(one.suite, own) for one in report.evals.suites for own in one.ids}
    untested = {(one.suite, one.id) for one in report.evals.untested}
    sections = {section.role: section for section in report.sections}

    def why(key: tuple[Role, str, str]) -> str | None:
        role, suite, own = key
        section = sections.get(role)
        if (suite, own) not in known:
            return "not looked for"
        if section is None:
            return "not looked through"
        if (suite, own) in untested:
            return "untested"
        return "not told, see --out" if section.flagged_total > len(section.flagged) else None

    return why


def _found(report: Report) -> dict[tuple[Role, str, str], str]:
    return {(section.role, one.suite, one.id): one.cls for section in report.sections for one in section.flagged}
