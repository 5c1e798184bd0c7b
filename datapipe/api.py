"""The verbs of the command line for Python: load, build, audit, clean_files, show, verify; and open, consumed."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from datapipe import manifest as manifests
from datapipe import pipeline
from datapipe.books import Books
from datapipe.build_manifest import Built, resolve
from datapipe.checks import Verified
from datapipe.checks import verify as check
from datapipe.feed import consumed, open  # noqa: A004  the verb of the API
from datapipe.manifest import Manifest
from datapipe.units import cores

if TYPE_CHECKING:
    from datapipe.auditing.clean import Cleaned
    from datapipe.auditing.report import Report

__all__ = ["audit", "build", "clean_files", "consumed", "load", "open", "show", "verify"]

MEMORY = 4_000_000_000


def load(path: str | Path) -> Manifest:
    """The manifest in a YAML file, validated; a ManifestError lists all that is wrong with it."""
    return manifests.load(Path(path))


def build(manifest: Manifest, *, workers: int | None = None, memory: int = MEMORY, output: Path | None = None) -> Built:
    """
    Build what the manifest describes: a new version, or the one that the same recipe and inputs have made before.

    workers: threads, as many as there are cores to run on by default;  memory: bytes;  neither decides what is made
    output:  where builds lie, in place of the manifest's `output`
    """
    built = pipeline.build(manifest, workers=workers or cores(), memory=memory, output=output)
    assert isinstance(built, Built), "only a dry run answers otherwise"
    return built


def show(build: str | Path | None = None, output: str | Path = "builds") -> Books:
    """The books of a build: a path, `name`, `name@3`, `name@9f2c`, or None for the newest under `output`."""
    return Books(resolve(None if build is None else str(build), Path(output)))


def verify(build: str | Path | None = None, *, everything: bool = False, output: str | Path = "builds") -> Verified:
    """Recompute what can be recomputed of a build; `everything`: each similarity, not 1 %."""
    path = resolve(None if build is None else str(build), Path(output))
    return check(path, everything=everything)


def audit(
    evals: Sequence[str] = (),
    *,
    train: Sequence[str] = (),
    retrieval: Sequence[str] = (),
    trace: Path | None = None,
    fields: Mapping[str, str] | None = None,
    variants: Sequence[str] = (),
    text_field: str = "text",
    profile: str = "contam",
    n: int | None = None,
    all_read: bool = False,
    against_validation: bool = False,
    scores: Path | None = None,
    fail_on: Sequence[str] = (),
    report: Path | None = None,
    out: Path | None = None,
    workers: int | None = None,
    memory: int = MEMORY,
    output: Path = Path("builds"),
    progress: Callable[[str, int, int | None], None] = lambda what, done, total: None,
) -> "Report":
    """
    Could the evaluation have been in the data?  Builds or files of training text are looked through for eval sets.

    evals:   files of eval sets;  fields: part -> where it lies in their records;  variants: files of rewrites
    train, retrieval: builds (under `output`) or files, the newest build by default;  text_field: of records of files
    all_read: what builds left out, too;  against_validation: the build's own validation split is the eval side
    trace:   what was really retrieved;  scores: a score an example;  fail_on: conditions, judged in `policies`
    profile: a rule to count by beside the classes;  n: units of an n-gram, 8 (12 in unspaced scripts) by default
    report, out: where the page, and JSON and tables, are written
    workers: threads;  memory: bytes;  neither decides what the report says

    Errors are those of the command (errors.py), but that a report which is not complete, or in which a condition holds,
    is returned: ask its `verdict` and `policies`.
    """
    from datapipe.auditing import keeping
    from datapipe.auditing.audit import Question
    from datapipe.auditing.audit import audit as made
    from datapipe.auditing.policy import parse
    from datapipe.auditing.training import asked

    question = Question(
        evals=evals,
        train=asked("--train", train, output),
        retrieval=asked("--retrieval", retrieval, output) if retrieval else None,
        trace=trace,
        fields=fields or {},
        variants=variants,
        text_field=text_field,
        profile=profile,
        n=n,
        everything=all_read,
        against_validation=against_validation,
        scores=scores,
        fail_on=tuple(parse(one) for one in fail_on),
    )
    keeping.check(out, report, question)
    found = made(question, workers=workers or cores(), memory=memory, progress=progress)
    builds = [*question.train.builds, *(question.retrieval.builds if question.retrieval else ())]
    keeping.deliver(found, builds, out, report)
    return found.report


def clean_files(
    evals: Sequence[str],
    train: Sequence[str],
    out: Path,
    *,
    fields: Mapping[str, str] | None = None,
    variants: Sequence[str] = (),
    text_field: str = "text",
    n: int | None = None,
    workers: int | None = None,
    memory: int = MEMORY,
    output: Path = Path("builds"),
    progress: Callable[[str, int, int | None], None] = lambda what, done, total: None,
) -> "Cleaned":
    """
    The training files without the documents that hold examples of the eval sets, written into `out`, new or empty.

    evals, train: files;  what is written was looked through once more;  all else as of `audit`

    IncompleteError where an eval set did not load whole; files that could not be read whole are in `left_out`.
    """
    from datapipe.auditing.audit import Question
    from datapipe.auditing.clean import clean
    from datapipe.auditing.training import asked

    question = Question(
        evals=evals, train=asked("--train", train, output), fields=fields or {}, variants=variants,
        text_field=text_field, n=n,
    )  # fmt: skip
    return clean(question, out, workers=workers or cores(), memory=memory, progress=progress)
