"""
The whole path of an audit: what is looked for, what is looked through, what was found, and what that is worth.

`audit` is the path; what it calls says what happens there.  The report is decided by inputs and flags alone: the same
for any number of workers, but for its `run`.
"""

import datetime
import os
import resource
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa

from datapipe import __version__
from datapipe.auditing import controls, evals, outside, scores, sections, trace
from datapipe.auditing.built import Build
from datapipe.auditing.gather import UNIT, Gathered, gather
from datapipe.auditing.policy import Condition
from datapipe.auditing.report import (
    Controls,
    Detector,
    Failure,
    Report,
    Role,
    Run,
    Scores,
    Section,
    SetRow,
    Verdict,
)  # fmt: skip
from datapipe.auditing.report import Corpus as Scope
from datapipe.auditing.sections import Eval, Judgement, rate
from datapipe.auditing.sweep import of_examples
from datapipe.auditing.training import Asked, Corpus
from datapipe.contamination import classes, common, profiles, scan
from datapipe.contamination.common import Common
from datapipe.contamination.index import LONGEST, N_UNSPACED, Index, N
from datapipe.contamination.intervals import live_units
from datapipe.contamination.model import CHOICES
from datapipe.contamination.scan import Found
from datapipe.errors import ManifestError
from datapipe.kernels import unicode
from datapipe.memory import release

Progress = Callable[[str, int, int | None], None]
# measured on copies of whole items, prompt and answer
ENCODED = (
    "Encoded copies, which are read as they stand: base64 and percent-encoding hide all (found: 0 of 300 of GSM8K); "
    "\\uXXXX and &#NNNN; all that is not in Latin script (0 of 300 of CMRC 2018); a JSON string that was not decoded, "
    "with its \\n, hides code in part (151 of 164 of HumanEval)."
)
MARKS = (
    "Copies that lost the marks of their letters (accents, hamza, vowel signs), where most words have some: found were "
    "66 of 212 short questions of XQuAD in Arabic, 239 of 250 of MGSM in French."
)
LETTERS = (
    "An answer that is the letter of its choice alone: such a copy is its prompt with choices, and told as prompt."
)
UNITS = "runs of letters, marks and digits over NFKC_Casefold; each character of an unspaced script"


@dataclass(frozen=True)
class Question:
    """
    What is asked.  train, retrieval: builds and patterns of files;  against_validation: the eval side is the validation
    split of the first build;  everything: documents that builds left out, too
    """

    evals: Sequence[str]
    train: Asked
    retrieval: Asked | None = None
    trace: Path | None = None
    fields: Mapping[str, str] = field(default_factory=dict[str, str])
    variants: Sequence[str] = ()
    text_field: str = "text"
    profile: str = profiles.DEFAULT
    n: int | None = None
    everything: bool = False
    against_validation: bool = False
    scores: Path | None = None
    fail_on: Sequence[Condition] = ()

    @property
    def sizes(self) -> tuple[int, int]:
        """Units of an n-gram, and of one in unspaced scripts."""
        n = self.n or N
        return n, max(n, N_UNSPACED)


@dataclass(frozen=True)
class Audited:
    """The report, and the judgements that it shows the first rows of."""

    report: Report
    judgements: Mapping[Role, Judgement]


def audit(
    asked: Question, *, workers: int, memory: int, progress: Progress = lambda what, done, total: None
) -> Audited:
    """
    workers: threads;  memory: bytes;  neither decides what the report says.

    ManifestError for what cannot be asked, also where no eval set loads, or a condition names none of them;  DataError
    for a build without texts, and for a trace or scores that cannot be used.  What else cannot be read is a failure in
    the report.
    """
    clock = _Clock(workers)
    _check(asked)
    given = scores.read(asked.scores) if asked.scores else None
    with ExitStack() as stack:
        corpora = _corpora(asked, workers, memory, stack)
        progress("reading eval sets", 0, None)
        suites = evals.of_build(corpora) if asked.against_validation else evals.load(asked)
        for condition in asked.fail_on:
            condition.check(suites.names, suites.failed())
        if given:
            named = (suites.examples[name].to_pylist() for name in ("suite", "id", "row"))
            given = scores.check(given, list(zip(*named, strict=True)))
        progress("indexing", 0, None)
        index = Index.build(suites.parts, *asked.sizes)
        eval_ = Eval(suites, index, profiles.PROFILES[asked.profile])
        traced = trace.read(asked.trace, suites) if asked.trace else None
        for corpus in corpora if traced else ():
            if isinstance(corpus, outside.Files):
                corpus.wanted.update(traced.wanted if traced else ())
        every: list[Corpus] = [*corpora, *([traced] if traced else [])]
        found = gather(every, index, workers=workers, progress=progress)
        for corpus, books in zip(every, found.books, strict=True):
            if isinstance(corpus, outside.Files):
                corpus.check(books)
        if asked.against_validation:
            found.sides.pop("validation", None)

        release()
        progress("judging", 0, None)
        excluded: dict[Role, Common] = {
            role: common.common(found.sides[role].merged()) for role in sections.roles(found)
        }
        judgements: dict[Role, Judgement] = {
            role: sections.judged(eval_, found.sides[role], found.sources, excluded[role])
            for role in sections.roles(found)
        }
        release()
        progress("controls", 0, None)
        main = judgements[sections.roles(found)[0]]
        control = _controls(eval_, main, corpora)
        release()
        made = tuple(
            sections.section(one, found, every, excluded[role], control.recall)
            for role, one in judgements.items()
            if role != "retrieved"
        )
        report = _report(asked, eval_, every, found, judgements, excluded, made, control, traced, given, clock)
        return Audited(report, judgements)


def _check(asked: Question) -> None:
    """Before any work: what cannot be asked."""
    if asked.profile not in profiles.PROFILES:
        raise ManifestError(f"--profile {asked.profile}: no such profile; there are {', '.join(profiles.PROFILES)}")
    if asked.n is not None and not 3 <= asked.n <= LONGEST:
        raise ManifestError(f"--n {asked.n}: expected 3 to {LONGEST} units")
    shortest = profiles.PROFILES[asked.profile].n
    shortest = shortest if isinstance(shortest, int) else min(shortest)
    if asked.n is not None and asked.profile != profiles.DEFAULT and asked.n > shortest:
        raise ManifestError(f"--profile {asked.profile}: counts runs of {shortest} units; give no larger --n")
    if asked.against_validation and asked.evals:
        raise ManifestError("--against-validation takes the place of --eval: give one of them")


def _corpora(asked: Question, workers: int, memory: int, stack: ExitStack) -> list[Corpus]:
    """Every corpus, train before retrieval, builds before files, in an order of their own; closed at the end."""
    found: list[Corpus] = []
    sides: list[tuple[Role, Asked | None, str]] = [
        ("train", asked.train, "--train"),
        ("retrieval", asked.retrieval, "--retrieval"),
    ]
    for role, side, option in sides:
        builds: dict[str, Build] = {}
        for path in sorted(side.builds, key=os.path.realpath) if side else ():
            build = Build(path, role, everything=asked.everything, memory=max(100_000_000, memory // 4))
            stack.callback(build.close)
            if (first := builds.setdefault(build.books.manifest.build_digest, build)) is not build:
                first.notes = ("given more than once: it counts once",)
        found += builds.values()
        if side and side.files:
            found.append(outside.files(option, role, side.files, text_field=asked.text_field, workers=workers))
    return found


def _controls(eval_: Eval, main: Judgement, corpora: Sequence[Corpus]) -> Controls:
    """The same index, common n-grams and classes on made documents."""
    classes = main.judged.classes
    testable = np.array([reason is None for reason in classes["reason"].to_pylist()], bool)
    testable &= classes["counted"].to_numpy(zero_copy_only=False)
    own = live_units(eval_.layout, eval_.known[1].excluded)[eval_.layout.same]
    planted = controls.plant(eval_.suites, eval_.index, testable, own)
    release()
    decoys = controls.decoys(corpora, eval_.index.n)
    release()
    first = len(planted.texts)
    of = np.concatenate([np.array(planted.examples, np.int64), np.full(len(decoys), -1)])
    alone = _alone(eval_, main, (planted.texts, decoys), of)
    forms = controls.positive(planted, alone, eval_.names, rate)
    false = {(example, at - first): cls for (example, at), cls in alone.items() if at >= first}
    without = controls.negative(len(decoys), false, eval_.names, int(testable.sum()), rate)
    return controls.controls(len(set(planted.examples)), forms, without)


def _alone(
    eval_: Eval, main: Judgement, texts: Sequence[pa.Array], of: np.ndarray
) -> dict[tuple[int, int], str]:  # fmt: skip
    """
    (example, row) -> class by that text alone, the rows counted through all arrays.  of: int64 a row, the one example
    that is asked about, -1: all.
    """
    founds: list[Found] = []
    row = 0
    for some in texts:
        docs = np.arange(row, row + len(some), dtype=np.int64)
        founds.append(scan.scan(eval_.index, some, docs, alone=None))
        row += len(some)
    found = scan.merge(founds, alone=None)
    evidence = classes.evidence(eval_.suites, eval_.layout, found, main.common, eval_.known, of)
    return {
        (example, doc): cls
        for example, doc, cls in zip(*(evidence[name].to_pylist() for name in ("example", "doc", "class")), strict=True)
    }


def _report(
    asked: Question, eval_: Eval, corpora: Sequence[Corpus], found: Gathered, judgements: Mapping[Role, Judgement],
    excluded: Mapping[Role, Common], made: tuple[Section, ...], control: Controls, traced: trace.Traced | None,
    given: scores.Given | None, clock: "_Clock",
) -> Report:  # fmt: skip
    scope = tuple(
        corpus.scope(role, {source: seen for (at, source), seen in found.sides[role].seen.items() if at == number},
                     found.books[number])
        for number, corpus in enumerate(corpora) for role in corpus.roles if role in found.sides
    )  # fmt: skip
    main = sections.roles(found)[0]
    recall = control.recall
    described = evals.described(asked, eval_, judgements[main])
    failures = tuple(
        [failure for corpus in scope for failure in corpus.failures]
        + [Failure(corpus="evals", path=one.path, reason=one.failed) for one in described.files if one.failed]
    )
    shown = _retrieved(eval_, traced, judgements, corpora, found, recall) if traced else None
    if traced and shown and shown.missing:
        why = f"{shown.missing:,} documents that it names have no text here"
        failures = (*failures, Failure(corpus="trace", path=str(traced.path), reason=why))
    if traced and traced.unknown:
        why = f"{traced.unknown:,} of {traced.lines:,} lines are about no example of the eval sets"
        failures = (*failures, Failure(corpus="trace", path=str(traced.path), reason=why))
    return Report(
        tool=f"datapipe {__version__}",
        verdict=_verdict(made, shown, failures, control),
        scope=scope,
        failures=failures,
        evals=described,
        detector=_detector(asked, eval_, excluded[main]),
        controls=control,
        sections=made,
        trace=shown,
        scores=_scores(given, eval_, judgements[main]) if given else None,
        policies=tuple(one.judge(made, shown) for one in asked.fail_on),
        blind=tuple(_blind(eval_, scope, described.untested_total, control, found)),
        run=clock.run(),
    )


def _retrieved(
    eval_: Eval, traced: trace.Traced, judgements: Mapping[Role, Judgement], corpora: Sequence[Corpus], found: Gathered,
    recall: float | None,
) -> trace.Trace:  # fmt: skip
    """The trace against what was found in its texts, and in the retrieval corpora under the names it gives."""
    shown_for = {(one.example, at) for at, one in enumerate(traced.with_text)}
    pairs = []
    judged = judgements["retrieved"].judged
    rows = zip(*(judged.evidence[name].to_pylist() for name in ("example", "doc", "class")), strict=True)
    for example, doc, cls in rows:
        at = doc & ((1 << UNIT) - 1)
        if (example, at) in shown_for:
            own = traced.with_text[at]
            pairs.append((example, own.name or own.url or f"line {own.line}", cls))
    named = {(one.example, one.name) for one in traced.shown if one.text is None}
    there: set[str] = set()
    for number, corpus in enumerate(corpora):
        there |= corpus.names(traced.wanted, found.books[number]) if "retrieval" in corpus.roles else set()
    if "retrieval" in judgements and named:
        one = judgements["retrieval"]
        docs = sections.named(one, corpora)
        rows = zip(*(one.judged.evidence[name].to_pylist() for name in ("example", "doc", "class")), strict=True)
        pairs += [(example, docs[doc], cls) for example, doc, cls in rows if (example, docs.get(doc)) in named]
    reasons = judged.classes["reason"].to_pylist()
    return trace.told(traced, eval_.suites, pairs, there, reasons, recall)


def _detector(asked: Question, eval_: Eval, excluded: Common) -> Detector:
    profile = eval_.profile
    thresholds = {profile.metric: float(profile.threshold)}
    if profile.or_best_doc is not None:
        thresholds["best_doc_ratio"] = profile.or_best_doc
    grams, sha = sections.excluded_digest(eval_, excluded)
    return Detector(
        profile=asked.profile, n=eval_.index.n, n_unspaced=eval_.index.n_unspaced, thresholds=thresholds,
        adjacency=scan.REACH, units=UNITS, unicode=unicode.VERSION, grams=eval_.index.n_grams,
        common="in 5 and 0.5 % of a source's documents or more, or in 50 documents of 3 sources or more",
        excluded=grams, excluded_sha256=sha, salt=controls.SALT, versions={"datapipe": __version__},
    )  # fmt: skip


def _scores(given: scores.Given, eval_: Eval, main: Judgement) -> Scores:
    """The scores of a file against the classes of the training data."""
    longest, tokens = (of_examples(eval_, main.measured.of(name)) for name in ("longest_ratio", "token_ratio"))
    rows = zip(*(main.judged.classes[name].to_pylist() for name in ("suite", "id", "class")), strict=True)
    return scores.judge(given, [
        scores.Example(suite, own, cls, float(ratio) if ratio >= 0 else None, float(share) if share >= 0 else None)
        for (suite, own, cls), ratio, share in zip(rows, longest.tolist(), tokens.tolist(), strict=True)
    ])  # fmt: skip


def _verdict(
    made: Sequence[Section], shown: trace.Trace | None, failures: Sequence[Failure], control: Controls
) -> Verdict:
    """Validation documents are not trained on, so what they hold is no leak."""
    counted = [one for one in made if one.role != "validation"]
    rows = {str(one.role): one.total for one in counted} | ({"retrieved": shown.total} if shown and shown.total else {})
    untested = [row.suite for row in counted[0].sets if not row.tested] if counted else []
    reasons = (
        *(f"{one.path}: {one.reason}" for one in failures),
        *(f"{suite}: no example of it could be tested" for suite in untested),
    )
    if not sum(one.documents for one in counted):
        reasons = (*reasons, "no document was looked through")
    if where := "; ".join(f"{_found(row)} in {role}" for role, row in rows.items() if row.flagged):
        return Verdict(result="found", complete=not reasons, sentence=where, reasons=reasons)
    recall = f" at a measured recall of {control.recall:.1%} or more" if control.recall is not None else ""
    if reasons:
        sentence = "nothing found in what could be seen, and not everything could be seen"
        return Verdict(result="incomplete", complete=False, sentence=sentence, reasons=reasons)
    tested = counted[0].total.tested
    kept = max((one.total.without_exclusion for one in counted), default=0)
    more = f"; {kept:,} with common and template n-grams counted" if kept else ""
    return Verdict(result="nothing found", complete=True, sentence=f"none of {tested:,} tested examples{recall}{more}")


def _found(row: SetRow) -> str:
    """What flags: of the tested, and what could not be tested."""
    parts = [f"{row.rate.found:,} of {row.rate.of:,} tested examples"] if row.rate.found else []
    if more := row.flagged - row.rate.found:
        parts.append(f"{more:,} of {row.examples - row.tested:,} that could not be tested")
    return " and ".join(parts)


def _blind(eval_: Eval, scope: Sequence[Scope], untested: int, control: Controls, found: Gathered) -> Iterator[str]:
    """What this run cannot see, in sentences."""
    low = {one.form: one.recall for one in control.forms if one.recall.share is not None and one.recall.share < 0.9}
    yield "Paraphrases and translations that share no runs of words with an example" + (
        "." if "variant" in {one.form for one in control.forms} else ", for none was supplied (--variants)."
    )
    yield f"Copies of fewer than {eval_.index.n} units in a row, unless they are edits of an example or all of it."
    yield ENCODED
    yield MARKS
    if CHOICES in eval_.suites.parts["kind"].unique().to_pylist():
        yield LETTERS
    if low:
        forms = ", ".join(f"{form} ({each.share:.0%} found)" for form, each in low.items() if each.share is not None)
        yield f"Part of the copies of these forms, by the controls: {forms}."
    if untested:
        yield f"{untested:,} examples cannot be tested; the upper bounds count them as if they were found."
    yield "Whether the model learned what it was shown, and texts outside of the files and builds named in the scope."
    if any(one.redacted for one in scope):
        yield "Text of redacting sources was looked through, and is shown, as redacted."
    capped = sum(side.merged().capped for side in found.sides.values())
    if capped:
        yield f"Short matches beyond the first ones in {capped:,} pairs of a document and a part."


@dataclass
class _Clock:
    """What the report says of the run; no digest counts it."""

    workers: int
    started: str = field(default_factory=lambda: datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"))
    start: float = field(default_factory=time.monotonic)

    def run(self) -> Run:
        return Run(
            started=self.started, seconds=round(time.monotonic() - self.start, 3), workers=self.workers,
            peak_rss_bytes=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        )  # fmt: skip
