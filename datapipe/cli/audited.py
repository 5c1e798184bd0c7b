"""Audits as a terminal shows them: a screen for a report, evidence of an example, what changed between two."""

from typing import TYPE_CHECKING

from datapipe.cli.text import count, safe, size, table

if TYPE_CHECKING:
    from datapipe.auditing.clean import Cleaned
    from datapipe.auditing.differ import Difference
    from datapipe.auditing.explain import Explained
    from datapipe.auditing.report import Evidence, Flagged, Rate, Report, Section, SetRow

SETS, SHOWN, CHANGES = 12, 8, 30
PART = 300  # characters of a part
HEADS = {
    "train": "training data",
    "validation": "the build's validation split, which is not trained on",
    "retrieval": "what retrieval could show",
    "retrieved": "what was retrieved",
}
SHORT = ("adjacent", "solution", "prompt", "near", "variant", "short", "passage", "untested")


def percent(share: float | None) -> str:
    """What is not zero does not read as zero, what is not all does not read as all."""
    if share is None:
        return ""
    if 0 < share < 0.00005:
        return "<0.01%"
    if 0.9995 <= share < 1:
        return ">99.9%"
    return f"{share:.2%}" if share < 0.1 else f"{share:.1%}"


def cleaned(found: "Cleaned") -> str:
    """What --clean-out wrote, and what the audit of it says."""
    rows = [(suite, cls, n) for suite, classes in found.by.items() for cls, n in classes.items()]
    again = sum(section.total.flagged for section in found.report.sections) if found.report else 0
    lines = [
        (
            f"{count(found.removed, 'document')} of {found.documents:,} left out; {count(found.files, 'file')} in "
            f"{safe(str(found.folder))}, {found.unchanged:,} of them unchanged; "
            f"{count(found.gone, 'file')} left out whole"
        ),
        table(("set", "class", "documents"), rows) if rows else "",
        f"looked through once more: {again:,} examples found",
        *(safe(note) for note in found.notes),
        *(f"not read whole, so not there: {safe(path)}: {safe(why)}" for path, why in found.left_out.items()),
    ]
    return "\n".join(filter(None, lines))


def summary(report: "Report") -> str:
    """One screen: verdict, what was looked through, a table of sets, controls, the first findings, what is not seen."""
    parts = [_head(report)]
    parts += [_section(section) for section in report.sections]
    if report.trace:
        parts.append(_trace(report))
    if report.scores:
        parts.append(_scores(report))
    parts += [_controls(report), "not seen: " + "\n  ".join(safe(line) for line in report.blind)]
    for policy in report.policies:
        state = "VIOLATED" if policy.violated else "holds not"
        figures = ", ".join(f"{name} = {value:.6g}" for name, value in policy.figures.items())
        parts.append(f"--fail-on {safe(policy.expression)}: {state} ({safe(figures)})")
    return "\n\n".join(parts)


def _head(report: "Report") -> str:
    evals = report.evals
    examples = sum(one.examples for one in evals.suites)
    tested = sum(one.tested for one in evals.suites)
    lines = [f"{report.verdict.result}: {safe(report.verdict.sentence)}"]
    lines.append(
        f"  looked for {count(examples, 'example')} of {count(len(evals.suites), 'eval set')}, {tested:,} testable; "
        f"profile {report.detector.profile}, n = {report.detector.n} ({report.detector.n_unspaced} in unspaced scripts)"
    )
    lines += [
        f"  in {one.role} {safe(one.name)}: {count(one.documents, 'document')}, {size(one.bytes)} of text, "
        f"{count(len(one.files), 'file')}"
        for one in report.scope
    ]
    lines += [f"  {safe(one.name)}: {safe(note)}" for one in report.scope for note in one.notes]
    lines += [
        f"  {safe(one.name)}: {count(taken.documents, 'document')} had been taken out by {safe(taken.by)}"
        for one in report.scope for taken in one.receipts
    ]  # fmt: skip
    lines += [f"  ! not seen: {safe(one.path)}: {safe(one.reason)}" for one in report.failures[:SHOWN]]
    if len(report.failures) > SHOWN:
        lines.append(f"  ! and {len(report.failures) - SHOWN:,} more")
    for one in evals.files[:SETS]:
        mapping = ", ".join(f"{part}: {field}" for part, field in one.mapping.items())
        lines.append(f"  eval {safe(one.path)}: {safe(mapping) if not one.failed else '! ' + safe(one.failed)}")
    if len(evals.files) > SETS:
        lines.append(f"  and {len(evals.files) - SETS:,} more eval files")
    return "\n".join(lines)


def _section(section: "Section") -> str:
    classes = [cls for cls in SHORT if section.total.classes.get(cls)]  # pyright: ignore[reportArgumentType]
    rows = sorted(section.sets, key=lambda row: (-row.flagged, row.suite))
    shown = rows[:SETS]
    profile = ["by profile"] if section.total.by_profile else []
    kept = any(row.without_exclusion != row.flagged for row in (*section.sets, section.total))
    header = ("set", "examples", "tested", "flagged", *(["common kept"] if kept else []), "rate", "95 %",
              "at least .. most", *profile, *classes)  # fmt: skip
    body = [_row(row, classes, kept=kept) for row in shown]
    if len(section.sets) > 1:
        body.append(_row(section.total, classes, kept=kept))
    lines = [f"{HEADS[section.role]}: {count(section.documents, 'document')}", table(header, body)]
    if len(rows) > len(shown):
        lines.append(f"  and {len(rows) - len(shown):,} more sets; --out and --report have all")
    lines += [
        f"  mirror: {safe(mirror.url or mirror.path)} ({safe(mirror.source)}) has {mirror.examples:,} examples of "
        f"{safe(mirror.suite)}"
        for mirror in section.mirrors[:3]
    ]
    lines += [_finding(one) for one in section.flagged[:SHOWN]]
    if section.flagged_total > SHOWN:
        lines.append(f"  and {section.flagged_total - SHOWN:,} more")
    return "\n".join(lines)


def _row(row: "SetRow", classes: list[str], *, kept: bool) -> tuple[object, ...]:
    """kept: with what would flag had no n-gram been left out."""
    interval = "" if row.rate.share is None else f"{percent(row.rate.low)} .. {percent(row.rate.high)}"
    if row.zero is not None:
        interval = f"under {percent(max(row.zero, 0.0001))}"
    name = "all" if row.suite == "*" else row.suite
    bounds = f"{percent(row.least)} .. {percent(row.most)}"
    counts = [row.classes.get(cls, 0) or None for cls in classes]  # pyright: ignore[reportArgumentType, reportCallIssue]
    profile = [f"{row.by_profile.found:,}/{row.by_profile.of:,}"] if row.by_profile else []
    flagged = [row.flagged, *([row.without_exclusion] if kept else [])]
    return (name, row.examples, row.tested, *flagged, percent(row.rate.share), interval, bounds, *profile, *counts)


def _finding(one: "Flagged") -> str:
    where = one.evidence[0] if one.evidence else None
    place = "" if where is None else f" in {safe(where.source)} {safe(where.path)}" + (
        f":{where.line}" if where.line is not None else "")  # fmt: skip
    share = one.metrics.get("longest_ratio")
    much = f", longest match {min(share, 0.99) if share < 1 else 1:.0%}" if share is not None else ""
    copies = f", {count(one.documents, 'document')}, exposure {one.exposure:,}"
    return f"  {one.cls:<9} {safe(one.suite)}/{safe(one.id)}{place}{much}{copies}"


def _rate(rate: "Rate") -> str:
    return f"{rate.found:,}/{rate.of:,} ({percent(rate.low)} .. {percent(rate.high)})"


def _controls(report: "Report") -> str:
    lines = [f"controls: {count(report.controls.examples, 'example')} planted in this run; found, with 95 % interval"]
    cells = [f"{one.form} {_rate(one.recall)}" for one in report.controls.forms]
    lines += ["  " + "; ".join(cells[at : at + 3]) for at in range(0, len(cells), 3)]
    negative = report.controls.negative
    lines.append(f"  false flags {_rate(negative.false)} in {safe(negative.what)}")
    return "\n".join(lines)


def _trace(report: "Report") -> str:
    trace = report.trace
    assert trace is not None
    found = ", ".join(f"{n:,} {cls}" for cls, n in trace.classes.items())
    lines = [f"retrieved: {count(trace.documents, 'document')} for {count(trace.examples, 'example')}: {found}"]
    if trace.untested:
        why = ", ".join(f"{n:,} {safe(reason)}" for reason, n in trace.untested.items())
        lines.append(f"  untested: {why}")
    if trace.missing or trace.unknown:
        lines.append(f"  ! {trace.missing:,} documents without text, {trace.unknown:,} lines of unknown examples")
    lines += [
        f"  ! {count(n, 'document')} of {safe(name)}, which publishes eval sets" for name, n in trace.denied.items()
    ]
    return "\n".join(lines)


def _scores(report: "Report") -> str:
    assert report.scores is not None
    rows = [
        (one.suite, one.all.examples, one.all.score, one.quote.examples, one.quote.score, one.epg,
         "" if one.evidence is None else "yes" if one.evidence else "no")
        for one in report.scores.sets
    ]  # fmt: skip
    header = ("set", "scored", "score", "to quote on", "score", "EPG", "evidence")
    lines = ["scores", table(header, rows)]
    strange = report.scores.unknown + report.scores.ambiguous
    if strange:
        lines.append(f"  ! {count(strange, 'score')} of no example, or of one id of several sets")
    if report.scores.missing:
        lines.append(f"  {count(report.scores.missing, 'example')} without a score")
    return "\n".join(lines)


def evidence(found: "Explained") -> str:
    """All that a report has about one example."""
    lines = [f"{safe(found.suite)}/{safe(found.id)}: {safe(found.sentence)}"]
    for role, one in found.found:
        lines.append("")
        lines.append(f"{HEADS[role]}: {one.cls} ({safe(one.why)})")
        for part in one.parts:
            more = " ..." if part.cut or len(part.text) > PART else ""
            lines.append(f"  {part.kind}: {safe(' '.join(part.text[:PART].split()))}{more}")
        lines.append("  " + ", ".join(f"{name} {value:.3g}" for name, value in one.metrics.items()))
        lines.append(f"  {count(one.documents, 'document')}, exposure {one.exposure:,}, "
                     f"{'trained on' if one.survived else 'not trained on'}")  # fmt: skip
        if one.twins:
            lines.append(f"  the same text as {safe(', '.join(one.twins))}")
        for document in one.evidence:
            lines += _document(document)
        if one.documents > len(one.evidence):
            lines.append(f"  and {one.documents - len(one.evidence):,} more documents")
    return "\n".join(lines)


def _document(one: "Evidence") -> list[str]:
    line = f":{one.line}" if one.line is not None else ""
    offset = f", byte {one.offset:,}" if one.offset is not None else ""
    fate = (
        ""
        if one.fate is None
        else f"; {one.fate}" + (f" by {safe(one.stage)}: {safe(one.rule or '')}" if one.stage else "")
    )
    packed = "" if one.packed is None else f"; packed {one.packed}"
    lines = ["", f"  {one.document} {safe(one.source)} {safe(one.path)}{line}{offset}",
             f"    {one.cls}, copies {one.exposure:,}{fate}{packed}"]  # fmt: skip
    lines += [f"    in {safe(place.file)}, row {place.row:,}" for place in one.shards[:5]]
    for match in one.matches:
        spans = ", ".join(f"{span.start:,}-{span.end:,}" for span in match.spans[:5])
        lines.append(f"    {match.kind}: {match.matched:,} of {match.units:,} units at bytes {spans}")
    text = "".join(
        (f"[{piece.text}]" if piece.kind else piece.text)
        + (f" ... {piece.skipped:,} bytes ... " if piece.skipped else "")
        for piece in one.excerpt
    )
    lines += [f"    | {line}" for line in safe(text, lines=True).split("\n")]
    return lines


def changes(found: "Difference") -> str:
    """What changed, figures first."""
    if found.same:
        return "the same audit: equal but for when it ran"
    lines = [f"  {safe(one.what)}: {safe(_value(one.old))} -> {safe(_value(one.new))}"
             for one in [*found.made, *found.rates]]  # fmt: skip
    moved = found.examples
    lines.append(f"  {count(len(moved), 'example')} with another class")
    lines += [f"    {safe(one.suite)}/{safe(one.id)} ({one.role}): {one.old or 'not found'} -> {one.new or 'not found'}"
              for one in moved[:CHANGES]]  # fmt: skip
    if len(moved) > CHANGES:
        lines.append(f"    and {len(moved) - CHANGES:,} more")
    return "\n".join(lines)


def _value(value: object) -> str:
    return "nothing" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)
