"""
The Report: all that an audit says, and all that its page, its tables and its terminal summary are made from.

Strict and frozen, as manifest.json: counts are examples or documents, sizes bytes, shares fractions of 1.  Everything
but `run` is decided by the inputs and the flags; `digest` is of the rest.  A text that was cut says so.
"""

from collections.abc import Mapping
from functools import cached_property
from typing import Any

from pydantic import Field

from datapipe.auditing import spelled
from datapipe.auditing.looked import (
    TEXT,
    THRESHOLDS,
    WHAT,
    Control,
    Controls,
    Corpus,
    Count,
    CountBy,
    Detector,
    Entry,
    EvalFile,
    Evals,
    EvalSuite,
    Failure,
    Figure,
    Negative,
    Rate,
    Receipt,
    Removed,
    Result,
    Role,
    ScopeFile,
    Share,
    SourceScope,
    Untested,
)  # fmt: skip
from datapipe.auditing.shown import Evidence, Flagged, Match, Part, Piece, ShardPlace, Span
from datapipe.contamination.model import CLASSES, FLAGGED, Class

FORMAT_VERSION = 1
__all__ = [
    "CLASSES", "FLAGGED", "FORMAT_VERSION", "TEXT", "THRESHOLDS", "WHAT", "Cell", "Class", "Common",
    "Control", "Controls", "Corpus", "Count", "CountBy", "Detector", "Entry", "EvalFile", "EvalSuite", "Evals",
    "Evidence", "Failure", "Figure", "Flagged", "Match", "Mirror", "Negative", "Part", "Piece", "Policy", "Rate",
    "Receipt", "Removed", "Report", "Result", "Retrieved", "Role", "Run", "ScopeFile", "ScoreRow", "ScoreSet",
    "Scores", "Section", "SetRow", "ShardPlace", "Share", "SourceScope", "Span", "Sweep", "Trace", "Untested",
    "Verdict", "from_json",
]  # fmt: skip

# --- 5-8. what was found -----------------------------------------------------------------------------------------


class SetRow(Entry):
    """
    A suite (or all, as "*") by class.

    examples: those that no earlier one of the suite equals: twins count once; of all suites, that no earlier one of any
    tested:   those that could be looked for, whatever was found: fewer than n units, template, no text are not
    flagged:  FLAGGED, of all: what could not be tested and was found all the same is among them
    rate:     of the tested those that flag: no example enters it for having been found
    least, most:  flagged of all; flagged, short and what could not be tested of all
    zero:     the rate is 0: what is still possible at the measured recall (rule of three); else null
    without_exclusion: flagged, had no n-gram been taken for common or for the template of its suite
    by_profile: flagged by the rule of a profile other than the default, of those that it can test
    """

    suite: str
    examples: Count
    tested: Count
    classes: dict[Class, Count]
    flagged: Count
    rate: Rate
    least: Share
    most: Share
    zero: Share | None
    without_exclusion: Count
    by_profile: Rate | None = None


class Sweep(Entry):
    """Examples of a suite whose metric reaches each of THRESHOLDS; prompt, answer or solution, the largest."""

    suite: str
    metric: str
    n: Count
    exclusion: bool
    flagged: tuple[Count, ...]


class Cell(Entry):
    """
    A source and a suite: examples flagged there, documents by which they are, copies of these.

    classes: of all examples found there, flagged or not
    """

    source: str
    suite: str
    examples: Count
    documents: Count
    exposure: Count
    classes: dict[Class, Count] = Field(default={})


class Mirror(Entry):
    """A document with five or more examples of one suite."""

    document: str
    source: str
    url: str | None
    path: str
    suite: str
    examples: Count


class Common(Entry):
    """An n-gram of examples: documents and occurrences; common: whether it was taken for common, and left out."""

    text: str
    documents: Count
    occurrences: Count
    sources: Count
    examples: Count
    common: bool = True


class Section(Entry):
    """
    What was found in corpora of one role.

    flagged: flagged examples and passages, the clearest first; the first `flagged_shown` of flagged_total have a row,
             `evidence_capped` says what was left out
    """

    role: Role
    corpora: tuple[str, ...]
    documents: Count
    sets: tuple[SetRow, ...]
    total: SetRow
    sweep: tuple[Sweep, ...]
    flagged: tuple[Flagged, ...]
    flagged_total: Count
    evidence_capped: str | None
    matrix: tuple[Cell, ...]
    mirrors: tuple[Mirror, ...]
    mirrors_total: Count
    common: tuple[Common, ...]
    common_total: Count
    repeated: tuple[Common, ...] = ()  # the n-grams that stand in most documents, common or not


class Retrieved(Entry):
    """An example of the trace: what was really shown to the model for it."""

    suite: str
    id: str
    documents: Count
    cls: Class
    by: tuple[str, ...]  # names of the documents that hold it


class Trace(Entry):
    """A trace file: questions, and what was retrieved for each."""

    path: str
    sha256: str
    lines: Count
    examples: Count  # of the eval suites that it has
    documents: Count
    unknown: Count  # lines that name no example of these suites
    missing: Count  # documents that it names and whose text is nowhere
    denied: CountBy = Field(default={})  # hosts and repositories that publish eval sets, by documents retrieved
    classes: dict[Class, Count] = Field(default={})
    untested: CountBy = Field(default={})  # examples of which nothing flags and not all could be seen, by reason
    flagged: tuple[Retrieved, ...] = ()
    sets: tuple[SetRow, ...] = ()  # of the suites that it has examples of, these alone
    total: SetRow | None = None


# --- 9. scores, policy, verdict ----------------------------------------------------------------------------------


class ScoreRow(Entry):
    """Examples of one class, or a group of them, and the mean of their scores."""

    name: str
    examples: Count
    score: Figure | None


class ScoreSet(Entry):
    """
    The scores of a suite.

    epg:   score of all minus score of clean, in points of 100;  quote: what to publish, without adjacent, solution,
           variant and near;  z: of each group against chance, evidence needs clean and dirty and both complements > 2
    """

    suite: str
    all: ScoreRow
    rows: tuple[ScoreRow, ...]
    quote: ScoreRow
    epg: Figure | None
    epg_curve: tuple[tuple[Figure, Figure | None], ...] = ()  # (threshold, EPG)
    z: dict[str, Figure | None] = Field(default={})
    evidence: bool | None = None  # whether all |z| are above 2
    clean_ids: tuple[str, ...] = ()


class Scores(Entry):
    path: str
    sha256: str
    scored: Count
    unknown: Count  # ids of the file that name no example
    ambiguous: Count = 0  # ids without a suite that name examples of several
    missing: Count = 0  # examples without a score
    sets: tuple[ScoreSet, ...]


class Policy(Entry):
    """One --fail-on: what it says, the figure it looked at, whether it is violated."""

    expression: str
    figures: dict[str, Figure]
    violated: bool


class Verdict(Entry):
    """
    complete: whether all that was asked for could be seen.  Nothing found and not complete is "incomplete": an error
    never reads as clean.
    """

    result: Result
    complete: bool
    sentence: str
    reasons: tuple[str, ...] = ()


class Run(Entry):
    """When and how long: the one part that two equal audits differ in."""

    started: str
    seconds: Figure
    workers: Count
    peak_rss_bytes: Count


class Report(Entry):
    """An audit."""

    format_version: int = FORMAT_VERSION
    tool: str
    verdict: Verdict
    scope: tuple[Corpus, ...]
    failures: tuple[Failure, ...]
    evals: Evals
    detector: Detector
    controls: Controls
    sections: tuple[Section, ...]  # train first; validation apart
    trace: Trace | None = None
    scores: Scores | None = None
    policies: tuple[Policy, ...] = ()
    blind: tuple[str, ...]  # what this run cannot see
    run: Run

    @cached_property
    def digest(self) -> str:
        """sha256 of the canonical JSON of all but `run`."""
        return spelled.sha256(self, leave="run")

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> "Report":
        """As of every model; the digest is that of the copy."""
        copied = super().model_copy(update=update, deep=deep)
        vars(copied).pop("digest", None)
        return copied

    def section(self, role: Role) -> Section | None:
        """The section of a role, if there was such a corpus."""
        return next((section for section in self.sections if section.role == role), None)

    def as_json(self) -> dict[str, Any]:
        """What json.dumps takes; `digest` is added, and from_json takes it away again."""
        return self.model_dump(mode="json") | {"digest": self.digest}

    def dumped(self) -> bytes:
        """The JSON file: canonical but for `run`, so that equal audits give equal bytes up to there."""
        return spelled.compact(self, {"digest": self.digest})

    def readable(self) -> bytes:
        """The same, for people."""
        return spelled.readable(self, {"digest": self.digest})


def from_json(data: bytes | str) -> Report:
    """A report as it was written; ValueError where it is none."""
    import json

    value = json.loads(data)
    if not isinstance(value, dict):
        raise ValueError("no JSON object")  # noqa: TRY004  pydantic and json raise ValueError too
    value.pop("digest", None)
    return Report.model_validate_json(json.dumps(value))
