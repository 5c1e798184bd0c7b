"""What the manifest's limits say to the documents, once every stage has judged."""

from fractions import Fraction

from datapipe.collateral import STRIKING, Table, labels, percent
from datapipe.documents import Documents
from datapipe.keyed import stage_name
from datapipe.manifest import Holdout, Manifest

RULES = 3  # that a message names
EMPTIED = "no text after edits"  # the rule of read/admit.sql
REMOVED = f"(place > 0 or rule = '{EMPTIED}')"  # what admission leaves out by snapshot is what was asked
LEAST = 10  # documents that pass whatever their share is: small sources must not trip an alarm by chance


def over_limits(docs: Documents, manifest: Manifest) -> list[str]:
    """A message for each source that lost more than limits.removed_per_source, and for a holdout out of bounds."""
    return [*_removed(docs, manifest), *_holdout(docs, manifest)]


def _removed(docs: Documents, manifest: Manifest) -> list[str]:
    share = manifest.limits.removed_per_source
    messages = []
    for source, entered, removed in docs.work.db.execute(
        f"select source, count(*) filter (place is null or {REMOVED}), count(*) filter ({REMOVED}) "
        "from documents group by source order by source"
    ).fetchall():
        if removed > max(LEAST, Fraction(str(share)) * entered):
            worst = "\n".join(f"  {line}" for line in _worst(docs, manifest, source))
            messages.append(
                f"source {source}: edits and stages removed {removed:,} of {entered:,} documents "
                f"({percent(removed, entered)}), limits.removed_per_source lets {share:.0%} go; most by\n{worst}\n"
                "look at what they take; then scope the filter with `only`, change the bound, or raise the limit"
            )
    return messages


def emptied(docs: Documents) -> tuple[str, ...]:
    """A sentence for each source of which edits left nothing in a striking share of the documents."""
    rows = docs.work.db.execute(
        f"select source, count(*) filter (rule = '{EMPTIED}') as n, count(*) from documents "
        "group by source order by source"
    ).fetchall()
    return tuple(
        f"source {source}: its edits leave no text in {n:,} of {whole:,} documents ({percent(n, whole)}); "
        f"`datapipe show --dropped '{EMPTIED}'` lists them"
        for source, n, whole in rows
        if n >= LEAST and n >= STRIKING * whole
    )


def _worst(docs: Documents, manifest: Manifest, source: str) -> list[str]:
    """The rules that removed the most of a source, and what those of filters take alone and together with others."""
    rows = docs.work.db.execute(
        f"select place, rule, count(*) as n from documents where source = ? and {REMOVED} group by place, rule "
        "order by n desc, place, rule limit ?",
        [source, RULES],
    ).fetchall()
    titles = {report.place: stage_name(report.place, report.stage) for report in docs.reports}
    found = {(row.stage, row.rule): row for row in Table.of_reports(docs.reports).by_source() if row.source == source}
    names = labels((stage.stage, getattr(stage, "preset", None)) for stage in manifest.stages)
    lines = []
    for place, rule, n in rows:
        row = found.get((titles[place], rule))
        more = f", and takes {row.documents:,}: {row.alone:,} alone, {row.together:,} with other rules" if row else ""
        lines.append(f"{names.get(titles[place], titles[place])}: {rule} decides {n:,}{more}")
    return lines


def _holdout(docs: Documents, manifest: Manifest) -> list[str]:
    spec = next((stage for stage in manifest.stages if isinstance(stage, Holdout)), None)
    report = next((report for report in docs.reports if report.stage == "holdout"), None)
    if spec is None or report is None:
        return []
    apart, most = report.notes["documents"], Fraction(str(manifest.limits.holdout)) * Fraction(str(spec.fraction))
    if apart <= max(most * report.entered, Fraction(str(spec.fraction)) * report.entered + LEAST):
        return []
    message = (
        f"holdout: {apart:,} of {report.entered:,} documents are validation, fraction is {spec.fraction:g} and "
        f"limits.holdout lets {manifest.limits.holdout:g} times as many be; some groups are large: "
        "choose another `by` or salt, or raise the limit"
    )
    return [message]
