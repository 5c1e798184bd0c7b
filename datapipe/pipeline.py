"""
The whole path from a manifest to shards.

`build` is the path; what it calls says what happens there.  Everything that decides bytes is in the manifest, the
inputs and the code, so a build that was killed goes on where it was, and one that was made is found again.
"""

import datetime
import os
import platform
import resource
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from datapipe import (
    build_manifest,
    edits,
    language,
    limits,
    lists,
    mix,
    read,
    record,
    shards,
    signals,
    stages,
    text,
    tokens,
    units,
)
from datapipe.build_manifest import Built, DryRun, Record
from datapipe.documents import Documents, Work
from datapipe.dry_run import Trial
from datapipe.dry_run import dry_run as estimate
from datapipe.errors import PolicyError
from datapipe.kernels import unicode
from datapipe.keyed import stage_name
from datapipe.language import Language
from datapipe.lists import Lists
from datapipe.manifest import Manifest, advice
from datapipe.read import Plan, ReadResult
from datapipe.stages import bands, decontaminate, eval_suites, signal_units, word_filter
from datapipe.stages.eval_suites import Evals
from datapipe.tokens import Tokenizer

Progress = Callable[[str, int, int | None], None]

# whatever decides bytes and has no unit of its own; raise the number when its output changes
VERSIONS = {
    "admit": 2,
    "filter": 2,
    "url_filter": 1,
    "word_filter": word_filter.VERSION,
    "holdout": 1,
    "exact_dedup": 1,
    "near_dedup": 1,
    "decontaminate": 1,  # also when eval suites are read, or classes said, otherwise
    "mix": 1,
    "pack": 1,
    "shards": 2,
}


def build(
    manifest: Manifest,
    *,
    workers: int,
    memory: int,
    output: Path | None = None,
    dry_run: bool = False,
    sample: int | None = None,
    progress: Progress = lambda what, done, total: None,
) -> Built | DryRun:
    """
    Manifest to shards: a new version, or the one that the same recipe on the same inputs has made before.

    workers: threads;  memory: bytes;  output: where builds lie.  None of them decides what is made.
    sample:  of a dry run, how many records the filters judge, about
    """
    clock = _Clock(workers)
    asked = _ask(manifest, output, workers)
    found = build_manifest.find(asked.home, asked.recipe_id)
    if dry_run:
        trial = Trial(sample, asked.lists, workers, progress) if sample else None
        return estimate(manifest, asked.plan, asked.recipe_id, memory, found and found[0], trial)
    if found:
        return Built(*found, existing=True)

    with Work(asked.output, manifest.name, workers=workers, memory=memory) as work:
        result = read.run(asked.plan, manifest, work, _steps(progress, "reading", len(asked.plan.units)))
        staging = work.folder("staging")
        staging.mkdir()
        read.write_refused(result, staging)
        _hold(read.over_limits(result, manifest), staging, asked.home)
        docs = replace(read.admit(result, manifest, work), lists=asked.lists, evals=asked.evals)

        for place, stage in enumerate(manifest.stages, 1):
            progress(stage_name(place, stage.stage), 0, None)
            docs.apply(stage.stage, place, stages.judge(stage, docs))
        if messages := limits.over_limits(docs, manifest):
            _refuse(messages, asked, manifest, result, docs, staging, clock)

        tokenizer, splits = _tokens_to_shards(asked, docs, manifest, staging, progress)
        progress("tables", 0, None)
        _tables(docs, manifest, staging)
        made = _record(asked, manifest, result, docs, tokenizer, splits)
        done = build_manifest.commit(made, staging, asked.home, lambda: clock.run(*docs.count("true")), workers)
        told = (
            *_warnings(result), *limits.emptied(docs), *advice.warnings(manifest),
            *lists.warnings(manifest, asked.lists), *eval_suites.warnings(asked.evals),
        )  # fmt: skip
        return Built(done.path, done.manifest, done.existing, told, work.store.ran, work.store.reused)


@dataclass(frozen=True)
class Asked:
    """What is known before work: the plan, the recipe, where it goes."""

    plan: Plan
    output: Path
    home: Path
    recipe_id: str
    # of files, read once: what recipe_id names is what encodes, classifies and is looked up
    tokenizer: Tokenizer | None
    lists: Lists
    evals: Evals
    models: dict[str, str]  # what classifies -> its sha256
    listed: dict[str, str]  # where a list is named -> its sha256


def _ask(manifest: Manifest, output: Path | None, workers: int) -> Asked:
    tokenizer, model, found = tokens.check(manifest), language.check(manifest), lists.check(manifest)
    evals = eval_suites.check(manifest)
    plan = read.plan(manifest, workers=workers, language=model)
    output = output or manifest.resolve(str(manifest.output))
    models = {"language": model.sha256} if model else {}
    listed = lists.digests(manifest, found)
    recipe_id = build_manifest.recipe_id(
        manifest.recipe(), plan.recipe_inputs, tokenizer=tokenizer and tokenizer.sha256,
        versions=_versions(), unicode=unicode.VERSION, libraries=_libraries(manifest, model),
        lists=listed, suites=eval_suites.digests(manifest, evals), models=models,
    )  # fmt: skip
    return Asked(plan, output, output / manifest.name, recipe_id, tokenizer, found, evals, models, listed)


def _versions() -> dict[str, int]:
    """The VERSION of everything that decides bytes."""
    mine = {"read": read.VERSION, "sample": read.SAMPLE_VERSION, "text": text.VERSION, "language": language.VERSION,
            "signals": signals.VERSION, "signatures": bands.VERSION, "tokens": tokens.VERSION,
            "train_tokenizer": tokens.TRAIN_VERSION, "contamination": decontaminate.SCAN_VERSION}  # fmt: skip
    return VERSIONS | mine | {f"edit:{name}": version for name, version in edits.VERSIONS.items()}


def _libraries(manifest: Manifest, model: Language | None) -> dict[str, str]:
    """The libraries, as far as this manifest uses them, whose version decides what a text, a language or a drop is."""
    used = {edit for source in manifest.sources.values() for edit in source.edits}
    names = {name for edit in used for name in edits.LIBRARIES.get(edit, ())}
    names |= {model.library} if model else set()
    names |= {"pyarrow"} if any(stage.stage == "word_filter" for stage in manifest.stages) else set()
    return {name: units.library(name) for name in sorted(names)}


def _tokens_to_shards(
    asked: Asked, docs: Documents, manifest: Manifest, staging: Path, progress: Progress
) -> tuple[Tokenizer | None, dict | None]:
    """From documents that stay to packed sequences; without a tokenizer the build ends before."""
    if manifest.tokenizer:
        progress("tokenizer", 0, None)
    tokenizer = asked.tokenizer or tokens.trained(manifest, docs)
    if tokenizer is None:
        return None, None
    (staging / "tokenizer.json").write_bytes(tokenizer.data)
    progress("tokens", 0, None)
    tokenized = tokens.tokenize(docs, tokenizer)
    docs.apply("tokens", len(manifest.stages) + 1, tokenized.verdict)
    mixture = mix.mix(docs, manifest)
    progress("shards", 0, None)
    splits = shards.write(docs, tokenized, tokenizer, manifest, staging)
    splits["train"]["mixture"] = mixture
    return tokenizer, splits


def _tables(docs: Documents, manifest: Manifest, staging: Path) -> None:
    """Every table of the build but the shards."""
    docs.work.db.execute("create table if not exists taken (doc bigint, copies integer, tokens bigint)")
    record.write_fates(docs, staging)
    record.write_documents(docs, staging / "documents", manifest.documents)
    if names := signal_units.names_in_use(manifest.stages):
        signal_units.write_signals(docs, names, staging / "signals")
    if any(stage.stage == "near_dedup" for stage in manifest.stages):
        bands.write_signatures(docs, staging / "signatures.parquet")
        bands.write_bands(docs, staging / "bands.parquet")


def _hold(messages: list[str], staging: Path, home: Path) -> None:
    """A limit says no: no version is made, and the tables that show why are kept."""
    if messages:
        failed = build_manifest.fail(staging, home)
        raise PolicyError("\n".join([*messages, f"no version was made; the tables lie in {failed}"]))


def _refuse(
    messages: list[str], asked: Asked, manifest: Manifest, result: ReadResult, docs: Documents, staging: Path,
    clock: "_Clock",
) -> None:  # fmt: skip
    """The same once the stages have judged: the books are closed, so `show` can say what they took."""
    _tables(docs, manifest, staging)
    made = _record(asked, manifest, result, docs, None, None)
    failed = build_manifest.fail(staging, asked.home, made, lambda: clock.run(*docs.count("true")))
    look = f"`datapipe show {failed}` reads them, also with --collateral, --dropped RULE and --what-if BOUND"
    raise PolicyError("\n".join([*messages, f"no version was made; the tables lie in {failed}: {look}"]))


def _record(
    asked: Asked, manifest: Manifest, result: ReadResult, docs: Documents, tokenizer: Tokenizer | None,
    splits: dict | None,
) -> Record:  # fmt: skip
    return Record(
        name=manifest.name,
        recipe_id=asked.recipe_id,
        manifest=manifest.as_written(),
        inputs=result.inputs,
        reports=docs.reports,
        sources=sorted(manifest.sources),
        tokenizer=tokenizer and tokenizer.record(),
        splits=splits,
        edits=result.edits,
        languages=docs.languages(),
        models=asked.models,
        lists=asked.listed,
    )


def _warnings(result: ReadResult) -> tuple[str, ...]:
    return tuple(
        f"source {book['source']}: {book['path']} is damaged ({book['damaged']}); its whole records were kept"
        for book in result.inputs
        if book["damaged"]
    ) + read.without_documents(result)


def _steps(progress: Progress, what: str, total: int) -> Callable[[int], None]:
    """Counts what units.run reports, from many threads."""
    lock, done = threading.Lock(), [0]

    def step(n: int) -> None:
        with lock:
            done[0] += n
            progress(what, done[0], total)

    return step


@dataclass
class _Clock:
    """What manifest.json says of the run; no digest counts it."""

    workers: int
    started: str = field(default_factory=lambda: datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"))
    start: float = field(default_factory=time.monotonic)

    def run(self, documents: int, text_bytes: int) -> dict:
        seconds = time.monotonic() - self.start
        return {
            "started": self.started,
            "seconds": round(seconds, 3),
            "workers": self.workers,
            "peak_rss_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
            "throughput": {
                "documents_per_second": round(documents / seconds, 1),
                "megabytes_per_second": round(text_bytes / 1e6 / seconds, 3),
            },
            "host": f"{platform.system()} {platform.machine()}, {os.cpu_count()} CPUs",
        }
