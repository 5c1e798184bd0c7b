"""What a person reads: after a build, of a plan, and of the books of a build."""

from collections.abc import Mapping

from datapipe.books import Books, WhatIf
from datapipe.build_manifest import FAILED_FOLDER, BuildManifest, Built, DryRun, Sampled
from datapipe.cli import collateral
from datapipe.cli.text import count, safe, size, table
from datapipe.collateral import labels, percent

FEW = 8  # lines of a part of the summary; `show` has them all


def summary(built: Built) -> str:
    """One screen: what is there now, how it came about, where it lies."""
    made = built.manifest
    with Books(built.path) as books:
        parts = [
            _head(made, "is there already, nothing new was made" if built.existing else "is built"),
            _funnel(books),
            _drops(books, FEW),
            _striking(books),
            _shares(made),
            _leak(made),
            _evals(made),
            _shards(made),
        ]
    parts += [f"warning: {safe(warning)}" for warning in built.warnings]
    parts.append(_units(built.ran, built.reused))
    parts.append(f"in {built.path}; `datapipe show {made.name}` says what became of what")
    return "\n\n".join(part for part in parts if part)


def overview(books: Books) -> str:
    """All the books, for `datapipe show`."""
    made = books.manifest
    parts = [
        _head(made, f"made at {made.run.started} in {made.run.seconds:.1f} s{_refused(made)}"),
        _inputs(made),
        _funnel(books),
        _drops(books, None),
        collateral.not_judged(books.not_judged(), _labels(made)),
        collateral.collateral(books.collateral(), _labels(made), collateral.ROWS, _whole(books)),
        _leak(made),
        _evals(made),
        _near(books),
        _lengths(books),
        _shares(made),
        _packing(made),
        _shards(made),
        f"in {books.build}",
    ]
    return "\n\n".join(part for part in parts if part)


def collateral_table(books: Books, limit: int | None) -> str:
    """The answer to `datapipe show --collateral`."""
    made, found = books.manifest, books.collateral()
    parts = [
        _head(made, f"made at {made.run.started}{_refused(made)}"),
        collateral.not_judged(books.not_judged(), _labels(made)),
        collateral.collateral(found, _labels(made), limit, "") or "no filter judged anything",
        collateral.by_language(found, _labels(made), None),
    ]
    return "\n\n".join(part for part in parts if part)


def _labels(made: BuildManifest) -> dict[str, str]:
    return labels((stage["stage"], stage.get("preset")) for stage in made.manifest.get("stages") or [])


def _refused(made: BuildManifest) -> str:
    return "; a limit refused it, so this is no version" if made.version == FAILED_FOLDER else ""


def _whole(books: Books) -> str:
    made = books.manifest
    return f": `datapipe show {made.name}@{made.version.split('-')[0]} --collateral`"


def _striking(books: Books) -> str:
    lines = collateral.warnings(books.collateral())
    return "\n".join([f"what filters take{_whole(books)}", *lines]) if lines else ""


def plan(dry: DryRun) -> str:
    """What a build would do."""
    sources = [(one.source, one.files, size(one.bytes), one.pin) for one in dry.sources]
    units = ", ".join(f"{n:,} {name}" for name, n in dry.units.items())
    lines = [
        f"{dry.name}: {dry.files:,} files, {size(dry.bytes)}, recipe {dry.recipe_id[:12]}; nothing was built",
        "",
        table(("source", "files", "bytes", "pin"), sources),
        "",
        f"stages     {', '.join(dry.stages) or 'none'}",
        f"work units {units or 'none'}",
        f"documents  {f'about {dry.documents:,}' if dry.documents is not None else 'not known before reading'}",
        f"disk       about {size(dry.disk)}",
        f"memory     about {size(dry.memory)}",
    ]
    if dry.existing:
        lines.append(f"existing   {dry.existing}: a build would make nothing new")
    return "\n".join(lines + ([f"\n{_sampled(dry.sample)}"] if dry.sample else []))


def _sampled(sample: Sampled) -> str:
    """What the filters take from a sample."""
    rows = [
        (source, records, sample.documents[source], sample.left[source],
         percent(sample.documents[source] - sample.left[source], sample.documents[source]))
        for source, records in sample.records.items()
    ]  # fmt: skip
    edits = [(source, edit, n, percent(n, sample.records[source]))
             for source, found in sample.edits.items() for edit, n in found.items()]  # fmt: skip
    names = sample.labels
    parts = [
        f"sample of {sum(sample.records.values()):,} records\n"
        + table(("source", "records", "documents", "left", "removed"), rows),
        "edits\n" + table(("source", "edit", "changed", "share"), edits) if edits else "",
        f"not simulated: {', '.join(sample.skipped)}" if sample.skipped else "",
        collateral.not_judged(sample.not_judged, names),
        collateral.collateral(sample.collateral, names, collateral.MANY, "; --json has all"),
        collateral.by_language(sample.collateral, names, collateral.RULES),
        *(f"warning: {safe(warning, lines=True)}" for warning in sample.warnings),
    ]
    return "\n\n".join(part for part in parts if part)


def changes(found: WhatIf) -> str:
    """The answer to --what-if."""
    rows = [(c.stage, c.source, c.now, c.then, f"{c.then - c.now:+,}", c.added, c.rescued) for c in found.changes]
    header = ("filter", "source", "dropped now", "then", "change", "would leave", "would pass")
    parts = ["what if\n" + table(("filter", "what", "is", "would be"), found.asked)]
    parts.append("dropped\n" + table(header, rows) if rows else "no filter would drop anything")
    lost = [(source, n["documents"], size(n["bytes"]), n["tokens"]) for source, n in found.lost.items()]
    if lost:
        parts.append(
            "of what is kept or unused now, this would leave\n"
            + table(("source", "documents", "bytes", "tokens"), lost)
        )
    if found.arriving:
        parts.append(
            "this would come through to the end, or to the mixture\n"
            + table(("source", "documents"), found.arriving.items())
        )
    parts += [f"not known: {sentence}" for sentence in found.unknown]
    return "\n\n".join(parts)


def _head(made: BuildManifest, what: str) -> str:
    return f"{made.name} {made.version} {what}\ndataset {made.dataset_id[:12]}, recipe {made.recipe_id[:12]}"


def _inputs(made: BuildManifest) -> str:
    rows = []
    for source in made.sources:
        ours = [entry for entry in made.inputs if entry.source == source]
        counts = [
            sum(getattr(one, key) for one in ours)
            for key in ("records", "rejected", "quarantined", "blank", "repeated")
        ]
        cut = sum(sum(one.cut.values()) for one in ours)
        rows.append((source, len(ours), size(sum(one.bytes for one in ours)), *counts, cut))
    header = ("source", "files", "bytes", "records", "rejected", "quarantined", "blank", "repeated", "cut")
    refused = [
        (entry.source, entry.path, kind, reason, n)
        for entry in made.inputs
        for kind, reasons in entry.reasons.items()
        for reason, n in reasons.items()
    ]
    most = sorted(refused, key=lambda row: -row[4])[:FEW]
    why = [f"most refused\n{table(('source', 'file', 'as', 'reason', 'records'), most)}"] if most else []
    damaged = [f"damaged: {entry.source}: {entry.path}: {entry.damaged}" for entry in made.inputs if entry.damaged]
    return "\n".join(["inputs", table(header, rows), *why, *damaged])


def _funnel(books: Books) -> str:
    rows = [
        (
            step.name,
            step.documents,
            -step.lost if step.lost else None,
            size(step.bytes) if step.bytes is not None else "",
            "" if step.tokens is None else f"{'~' if step.estimated else ''}{step.tokens:,}",
        )
        for step in books.funnel()
        if step.name != "tokens" or step.lost  # documents without tokens are rare
    ]
    return "funnel\n" + table(("after", "documents", "lost", "bytes", "tokens"), rows)


def _drops(books: Books, few: int | None) -> str:
    drops = books.drops()
    if not drops:
        return ""
    shown = drops if few is None else sorted(drops, key=lambda drop: -drop.documents)[:few]
    rows = [(d.stage, d.rule, d.source, d.documents, size(d.bytes), d.failed) for d in shown]
    more = f"\n  and {len(drops) - len(shown)} more" if len(drops) > len(shown) else ""
    return "left out\n" + table(("stage", "rule", "source", "documents", "bytes", "broke it"), rows) + more


def _leak(made: BuildManifest) -> str:
    if made.holdout is None:
        return ""
    held, leak = made.holdout, made.holdout.leak
    kinds = [
        f"{n:,} {name}" for name, n in (("exact", leak.exact), ("near", leak.near), ("old", leak.old)) if n is not None
    ]
    lost = f"train lost {' and '.join(kinds)} copies of them" if kinds else "no dedup ran, so copies may be in train"
    return f"holdout: {count(held.documents, 'document')} in {count(held.groups, 'group')}, before dedup; {lost}"


def _evals(made: BuildManifest) -> str:
    """What each stage `decontaminate` removed, and what validation holds."""
    lines = []
    for stage in made.decontaminate:
        removed = sum(n for counts in stage.removed.values() for n in counts.values())
        by = [f"{safe(suite)} {sum(counts.values()):,}" for suite, counts in stage.removed.items()]
        more = f" and {len(by) - FEW:,} more suites" if len(by) > FEW else ""
        examples = sum(suite.examples for suite in stage.suites)
        untested = sum(n for suite in stage.suites for n in suite.untested.values())
        lines.append(
            f"{stage.place}:decontaminate: {count(removed, 'document')} removed for {count(examples, 'example')} of "
            f"{count(len(stage.suites), 'eval suite')}" + (f": {', '.join(by[:FEW])}{more}" if by else "")
        )
        if untested:
            lines.append(f"  {count(untested, 'example')} could not be looked for; manifest.json says why")
        if stage.validation:
            pairs = [(suite, name, n) for suite, counts in stage.validation.items() for name, n in counts.items()]
            held = ", ".join(f"{n:,} {safe(suite)} ({name})" for suite, name, n in pairs[:FEW])
            more = f" and {len(pairs) - FEW:,} more" if len(pairs) > FEW else ""
            lines.append(f"  validation documents that hold examples, and stay: {held}{more}")
    return "\n".join(lines)


def _near(books: Books) -> str:
    near = books.manifest.near_dedup
    clusters = books.clusters()
    if near is None and not clusters:
        return ""
    lines = []
    if near is not None:
        lines.append(
            f"near dedup: {near.candidates:,} candidates, {near.compared:,} compared, {near.verified:,} verified, "
            f"{near.rejected:,} rejected, {near.capped:,} capped, {near.clusters:,} clusters; "
            f"{near.bands} bands x {near.rows} rows, recall {near.recall_at_threshold:.4f} at the threshold"
        )
    rows = [(one["kept"], one["source"], one["documents"], one["jaccard"]) for one in clusters]
    if rows:
        lines.append(
            "largest clusters of duplicates\n" + table(("kept", "source", "documents", "least similarity"), rows)
        )
    return "\n".join(lines)


def _lengths(books: Books) -> str:
    rows = []
    for source, found in books.lengths().items():
        rows += [(source, unit, *values.values()) for unit, values in found.items() if values]
    return (
        "lengths of kept documents\n" + table(("source", "in", "p1", "p50", "p90", "p99", "max"), rows) if rows else ""
    )


def _shares(made: BuildManifest) -> str:
    rows = [
        (
            name,
            source,
            share.documents,
            share.copies,
            share.tokens,
            share.targets,
            "" if share.asked is None else f"{share.asked:.2%}",
            f"{share.realised:.2%}",
        )
        for name, split in made.splits.items()
        for source, share in split.by_source.items()
        if share.documents or share.asked
    ]
    header = ("split", "source", "documents", "copies", "tokens", "targets", "asked", "realised")
    return "tokens by source\n" + table(header, rows) if rows else ""


def _packing(made: BuildManifest) -> str:
    rows = [
        (
            name,
            split.sequences,
            split.tokens.stored,
            split.tokens.targets,
            split.tokens.last_positions,
            split.tokens.masked,
            split.tokens.repeated_context,
            split.tokens.padding,
            f"{split.packing.fill:.2%}",
            split.packing.cut_documents,
        )
        for name, split in made.splits.items()
        if split.sequences
    ]
    header = ("split", "rows", "stored", "targets", "last", "masked", "repeated", "padding", "fill", "cut documents")
    return "packing\n" + table(header, rows) if rows else ""


def _shards(made: BuildManifest) -> str:
    if made.tokenizer is None:
        return "no tokenizer, so no shards"
    parts = [
        f"{count(len(split.shards), 'shard')} of {name}: {count(split.sequences, 'row')}, "
        f"{count(split.tokens.targets, 'target')}"
        for name, split in made.splits.items()
        if split.shards
    ]
    return "; ".join(parts) or "no shards: nothing was kept"


def _units(ran: Mapping[str, int], reused: Mapping[str, int]) -> str:
    kinds: dict[str, int] = {}
    for name, n in ran.items():
        kind = name.partition(":")[0]  # a preset has dozens of signals, each a function of its own
        kinds[kind] = kinds.get(kind, 0) + n
    what = ", ".join(f"{n:,} {name}" for name, n in sorted(kinds.items()))
    parts = [f"{count(sum(ran.values()), 'work unit')} ran{f' ({what})' if what else ''}"]
    return ", ".join([*parts, f"{sum(reused.values()):,} reused"])
