"""What the manifest's limits say to the documents, once every stage has judged."""

from fractions import Fraction

from datapipe.documents import Documents
from datapipe.manifest import Holdout, Manifest

LEAST = 10  # documents that pass whatever their share is: small sources must not trip an alarm by chance


def over_limits(docs: Documents, manifest: Manifest) -> list[str]:
    """A message for each source that lost more than limits.removed_per_source, and for a holdout out of bounds."""
    return [*_removed(docs, manifest), *_holdout(docs, manifest)]


def _removed(docs: Documents, manifest: Manifest) -> list[str]:
    share = manifest.limits.removed_per_source
    messages = []
    for source, entered, removed in docs.work.db.execute(
        "select source, count(*) filter (place is null or place > 0), count(*) filter (place > 0) "
        "from documents group by source order by source"
    ).fetchall():
        if removed > max(LEAST, Fraction(str(share)) * entered):
            rules = docs.work.db.execute(
                "select rule, count(*) as n from documents where source = ? and place > 0 group by rule "
                "order by n desc, rule limit 3",
                [source],
            ).fetchall()
            most = ", ".join(f"{rule}: {n:,}" for rule, n in rules)
            messages.append(
                f"source {source}: the stages removed {removed:,} of {entered:,} documents (most by {most}), "
                f"limits.removed_per_source lets {share:.0%} go; look at the rules, or raise the limit"
            )
    return messages


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
