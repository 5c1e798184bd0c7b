"""The first half of a report: what was looked through, what was looked for, how, and what the controls say."""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from datapipe.contamination.model import Class

Count = Annotated[int, Field(ge=0)]
Figure = Annotated[float, Field(allow_inf_nan=False)]
Share = Annotated[float, Field(ge=0, le=1)]
CountBy = dict[str, Count]
WHAT: dict[Class, str] = {
    "adjacent": "the prompt, and its answer or solution right behind it, in one document",
    "solution": "the solution or a long answer, without the prompt",
    "prompt": "the prompt alone",
    "near": "nearly the same text, by containment or edits, or a supplied variant",
    "variant": "the same but for numbers or identifiers",
    "short": "an example too short for n-grams, found as a whole: a coincidence is not excluded",
    "passage": "only what stands without the example too: its passage, a quotation, a phrase or a short choice",
    "untested": "cannot be looked for: not known to be clean",
    "clean": "looked for and not found, at the measured recall",
}
Role = Literal["train", "validation", "retrieval", "retrieved"]
Result = Literal["found", "nothing found", "incomplete"]
TEXT = 4000  # characters of a part that a report shows
THRESHOLDS = tuple(round(0.05 * step, 2) for step in range(1, 20))


class Entry(BaseModel):
    """What all parts of a report have in common."""

    model_config = ConfigDict(strict=True, frozen=True, extra="forbid")


class Rate(Entry):
    """found of `of`, with a 95 % Wilson interval; the share is null where `of` is 0."""

    found: Count
    of: Count
    share: Share | None
    low: Share
    high: Share


# --- 1. what was looked through ------------------------------------------------------------------------------


class Failure(Entry):
    """What could not be seen: a file that failed or was cut, records without text, a stage not possible."""

    corpus: str
    path: str
    reason: str


class ScopeFile(Entry):
    """An input file.  bytes and sha256 are of the file; null sha256: it could not be read."""

    source: str
    path: str  # relative to the corpus; two files of one name in different folders are two
    bytes: Count
    sha256: str | None
    records: Count
    documents: Count
    refused: CountBy = {}  # reason -> records that are no document
    damaged: str | None = None


class SourceScope(Entry):
    """The documents of a source that were looked through; copies: how often they are trained on."""

    source: str
    documents: Count
    units: Count
    bytes: Count  # of text
    copies: Count
    left_out: Count = 0  # documents of the build that were not looked through: dropped or unused (see --all-read)


class Removed(Entry):
    """Documents that were taken out; reason: what they held, as the ledger has it."""

    source: str
    reason: str
    documents: Count


class Receipt(Entry):
    """What had been taken out of a corpus before it was looked through, and by what."""

    by: str
    removed: tuple[Removed, ...]

    @property
    def documents(self) -> int:
        return sum(one.documents for one in self.removed)


class Corpus(Entry):
    """
    A build, or files, and the role they play.

    digest: build_digest of a build; of files, sha256 of the sorted lines "sha256  bytes  path"
    notes:  what was not read, or not twice, and is no failure: hidden files, names that lead to one file
    """

    name: str
    role: Role
    kind: Literal["build", "files", "trace"]
    path: str
    digest: str
    redacted: tuple[str, ...] = ()  # sources whose text was redacted when it was read
    sources: tuple[SourceScope, ...]
    files: tuple[ScopeFile, ...]
    notes: tuple[str, ...] = ()
    failures: tuple[Failure, ...] = ()
    receipts: tuple[Receipt, ...] = ()

    @property
    def documents(self) -> int:
        return sum(source.documents for source in self.sources)

    @property
    def bytes(self) -> int:
        return sum(source.bytes for source in self.sources)

    @property
    def units(self) -> int:
        return sum(source.units for source in self.sources)


# --- 2. what was looked for ----------------------------------------------------------------------------------


class EvalFile(Entry):
    """A file of an eval suite; mapping: part -> field it was read from."""

    path: str
    suite: str | None
    bytes: Count
    sha256: str | None
    records: Count
    examples: Count
    mapping: dict[str, str]
    failed: str | None


class EvalSuite(Entry):
    """
    A suite: parts by kind, untested examples by reason, examples by split where they name one; twins: examples that
    another one of the run equals; ids: of all examples, so that a clean one is told from one that is not there.
    """

    suite: str
    examples: Count
    tested: Count
    parts: CountBy
    untested: CountBy
    splits: CountBy = {}
    twins: Count
    ids: tuple[str, ...]


class Untested(Entry):
    suite: str
    id: str
    reason: str


class Evals(Entry):
    """The eval side.  `untested` lists the first of them, untested_total counts all."""

    files: tuple[EvalFile, ...]
    suites: tuple[EvalSuite, ...]
    untested: tuple[Untested, ...]
    untested_total: Count
    twins: tuple[tuple[str, ...], ...] = ()  # groups of "suite/id" with an equal prompt, answer or solution; the first
    twins_total: Count = 0
    fields: dict[str, str] = {}  # the mapping as the user gave it


# --- 3. how ------------------------------------------------------------------------------------------------------


class Detector(Entry):
    """What decides a finding.  excluded_sha256: of the sorted texts of all common n-grams, a line each."""

    profile: str
    n: Count
    n_unspaced: Count
    thresholds: dict[str, Figure]
    adjacency: Count  # units between a prompt and its answer at most
    units: str  # what a unit is
    unicode: str
    grams: Count
    common: str  # the rule by which an n-gram is common
    excluded: Count
    excluded_sha256: str
    salt: str  # of the keyed choices in the controls
    versions: dict[str, str | int]


# --- 4. controls -------------------------------------------------------------------------------------------------


class Control(Entry):
    """Copies of examples put into made documents in one form: how many were found, and as what."""

    form: str
    what: str
    recall: Rate
    classes: CountBy
    missed: tuple[str, ...] = ()  # "suite/id" of the first that were missed


class Negative(Entry):
    """Documents that cannot hold the examples: what flags here flags falsely."""

    what: str
    documents: Count
    false: Rate  # of tested examples
    examples: tuple[str, ...] = ()  # "suite/id: class" of the first


class Controls(Entry):
    """The same detector on planted documents, in the same run."""

    examples: Count  # chosen, by keyed hash
    forms: tuple[Control, ...]
    negative: Negative
    recall: Share | None  # of verbatim copies: the lower end of its interval; what "nothing found" is worth
