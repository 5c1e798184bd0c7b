"""
Every key of manifest.json, format version 1.  Strict and frozen: a key that is not here is not read.

Counts are documents, records or tokens; sizes are bytes; shares are fractions of 1.
"""

from pathlib import PurePosixPath
from typing import Annotated, Any, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from datapipe.keyed import stage_name

FORMAT_VERSION = 1

WHAT_A_TARGET_IS = (
    "Position i of a row is a target iff token i+1 lies in the same segment and is not masked. "
    "tokens of kept documents x copies = stored - repeated_context + dropped; "
    "stored = targets + last_positions + masked; padding is outside of stored."
)


def _inside(path: str) -> str:
    """A path inside a build's folder: nothing that a manifest names may lead out of it."""
    pure = PurePosixPath(path)
    if not path or pure.is_absolute() or ".." in pure.parts or "\\" in path or "\0" in path:
        raise ValueError(f"{path!r} is no path inside the build's folder")
    return path


Inside = Annotated[str, AfterValidator(_inside)]
Count = Annotated[int, Field(ge=0)]
Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
Figure = Annotated[float, Field(allow_inf_nan=False)]
CountBy = dict[str, Count]


class Entry(BaseModel):
    """What all parts of manifest.json have in common."""

    model_config = ConfigDict(strict=True, frozen=True, extra="forbid", validate_by_name=True, validate_by_alias=True)


class Input(Entry):
    """One input file.  records = documents + rejected + quarantined + blank; rows of fates = documents - cut."""

    source: str
    path: str  # relative to the source's folder, `/`-separated
    bytes: Count
    sha256: Sha256
    records: Count
    documents: Count
    rejected: Count
    quarantined: Count
    blank: Count
    repeated: Count
    cut: CountBy
    reasons: dict[str, CountBy] = {}  # rejected, quarantined -> reason -> records
    damaged: str | None = None  # what is wrong with a damaged file of a tolerant source
    repaired: Count = 0  # texts with lone surrogate escapes


class Snapshot(Entry):
    """Which snapshot each document of a source comes from."""

    name: str | tuple[str, ...] | None = None
    as_of: str | None = None
    key: str | None = None
    keep: str | None = None
    documents: CountBy = {}  # by snapshot, of all documents that were not cut
    without: Count = 0  # documents that name none


class Judged(Entry):
    """What a filter judged of a source in one language (null: documents without one, `*`: the less common ones)."""

    source: str
    lang: str | None
    documents: Count
    bytes: Count


class Collateral(Entry):
    """
    What a rule of a filter takes from a source in one language.

    documents: that break the rule;  alone: and no other rule of the filter, so that they would pass without this one
    decides:   of which it is the first broken rule, in the manifest's order
    """

    rule: str
    source: str
    lang: str | None
    documents: Count
    bytes: Count
    alone: Count
    alone_bytes: Count
    decides: Count
    decides_bytes: Count


class Stage(Entry):
    """The books of one stage: in = out + dropped; the collateral table of a filter."""

    stage: str
    place: Count
    entered: Count = Field(alias="in")
    left: Count = Field(alias="out")
    dropped: CountBy
    dropped_by_source: dict[str, CountBy]
    not_judged: CountBy
    judged: tuple[Judged, ...] = ()
    collateral: tuple[Collateral, ...] = ()

    @property
    def title(self) -> str:
        """How fates and ledger name it."""
        return stage_name(self.place, self.stage)


class Leak(Entry):
    """What train lost because validation has the same or nearly the same text; null where no such stage ran."""

    exact: Count | None = None
    near: Count | None = None
    old: Count | None = None


class Holdout(Entry):
    """Validation, set apart: groups and documents that were alive then; fraction is of groups, as asked."""

    before_dedup: bool
    by: str | None
    salt: str
    fraction: Figure
    groups: Count
    documents: Count
    leak: Leak


class NearDedup(Entry):
    """
    How near dedup came to its drops.

    candidates:  pairs of a document and one that stays and shares a bucket with it
    compared:    of these, exactly: verified (the document leaves) + rejected (below the threshold)
    capped:      documents that had been compared as often as one may be, with candidates left
    clusters:    that near duplicates belong to; largest: documents in each of the ten largest
    numeric_only: drops whose texts differ from the kept one in digits alone
    recall_at_threshold: chance that a pair at the threshold shares one of bands x rows
    """

    candidates: Count
    compared: Count
    verified: Count
    rejected: Count
    capped: Count
    clusters: Count
    largest: tuple[Count, ...]
    numeric_only: Count
    recall_at_threshold: Figure
    bands: Count
    rows: Count


class EvalSuite(Entry):
    """A file of an eval suite that was looked for; untested: examples that cannot be, and were not found, by reason."""

    suite: str
    sha256: Sha256
    examples: Count
    untested: CountBy


class EvalExample(Entry):
    """An example, and how many documents that left hold it."""

    suite: str
    example: str
    documents: Count


class Decontaminate(Entry):
    """
    One stage `decontaminate`.  Counts are documents, by suite and class.

    classes:    for which a training document leaves
    removed:    by what decided;  stays: training documents that hold something of another class alone
    validation: validation documents, which stay; both count a document with each suite and class that it holds
    most:       the ten examples that most of the removed documents hold
    """

    place: Count
    n: Count
    n_unspaced: Count
    classes: tuple[str, ...]
    suites: tuple[EvalSuite, ...]
    removed: dict[str, CountBy]
    stays: dict[str, CountBy]
    validation: dict[str, CountBy]
    most: tuple[EvalExample, ...]


class Control(Entry):
    """A control token: its text and its id."""

    token: str
    id: Count


class AddedToken(Entry):
    """A token that the tokenizer.json adds to the model's vocabulary."""

    token: str
    id: Count
    special: bool


class Tokenizer(Entry):
    """sha256 of tokenizer.json as used; ids reach up to max_id, and may have gaps."""

    sha256: Sha256
    vocab_size: Count
    max_id: Count
    eos: Control | None
    bos: Control | None
    pad: Control | None
    added_tokens: tuple[AddedToken, ...]


class TokenBooks(Entry):
    """Token positions of a split, in all copies; what holds between them is WHAT_A_TARGET_IS."""

    stored: Count
    targets: Count
    last_positions: Count
    masked: Count
    repeated_context: Count
    padding: Count
    dropped: CountBy


class SourceShare(Entry):
    """A source in a split.  `asked` and `realised` are shares of the split's targets; asked is null without mixture."""

    documents: Count
    copies: Count
    tokens: Count
    targets: Count
    asked: Figure | None
    realised: Figure


class Mixed(Entry):
    """A source in the mixture.  weight and share are of all targets of train; error is share - weight."""

    weight: Figure
    epochs: Figure
    copies_wanted: Figure
    targets_wanted: Count
    targets: Count
    share: Figure
    error: Figure


class Lengths(Entry):
    """Tokens per document: histogram by power of two (key 2^k: 2^(k-1) < tokens <= 2^k), discrete quantiles."""

    histogram: CountBy
    p1: Count
    p50: Count
    p90: Count
    p99: Count
    max: Count
    over_length_share: Figure


class Packing(Entry):
    """fill: share of positions that hold a token; documents (each copy) that lie in several rows, and their tokens."""

    fill: Figure
    cut_documents: Count
    cut_tokens: Count


class Shard(Entry):
    """A shard file: its rows, the row_id of its first, tokens stored, targets, and the digest of its content."""

    path: Inside
    rows: Count
    row_start: Count
    tokens: Count
    targets: Count
    content_sha256: Sha256


class Split(Entry):
    """One side of the data set: distinct documents, sequences (rows), and what they hold."""

    documents: Count
    sequences: Count
    tokens: TokenBooks
    by_source: dict[str, SourceShare]
    mixture: dict[str, Mixed] | None = None  # of train, where there is a tokenizer
    lengths: Lengths
    packing: Packing
    shards: tuple[Shard, ...]

    @classmethod
    def without_tokens(cls, documents: int = 0) -> Self:
        """A split of a build without tokenizer, or one that no document is in."""
        books = TokenBooks(stored=0, targets=0, last_positions=0, masked=0, repeated_context=0, padding=0, dropped={})
        lengths = Lengths(histogram={}, p1=0, p50=0, p90=0, p99=0, max=0, over_length_share=0.0)
        packing = Packing(fill=0.0, cut_documents=0, cut_tokens=0)
        return cls(
            documents=documents, sequences=0, tokens=books, by_source={}, lengths=lengths, packing=packing, shards=()
        )


class Splits(Entry):
    """Both sides; validation is there with zeros where nothing was held out."""

    train: Split
    validation: Split

    def items(self) -> tuple[tuple[str, Split], ...]:
        """(name, split) of both, train first."""
        return (("train", self.train), ("validation", self.validation))

    def contents(self) -> dict[str, list[str]]:
        """content_sha256 of the shards of each split, in order."""
        return {name: [shard.content_sha256 for shard in split.shards] for name, split in self.items()}


class File(Entry):
    """A file of the build but manifest.json; rows are those of Parquet."""

    path: Inside
    bytes: Count
    rows: Count | None
    sha256: Sha256


class Run(Entry):
    """Where and how it ran: the one part, with name, version and parents, that two equal builds differ in."""

    started: str
    seconds: Figure
    workers: Count
    peak_rss_bytes: Count
    throughput: dict[str, Figure]
    host: str


class BuildManifest(Entry):
    """manifest.json of a build."""

    format_version: int = FORMAT_VERSION
    name: str
    version: str
    recipe_id: Sha256
    dataset_id: Sha256
    build_digest: Sha256
    parents: tuple[str, ...] = ()
    tool: str
    libraries: dict[str, str]
    manifest: dict[str, Any]
    inputs: tuple[Input, ...]
    snapshots: dict[str, Snapshot]
    stages: tuple[Stage, ...]
    holdout: Holdout | None
    near_dedup: NearDedup | None
    decontaminate: tuple[Decontaminate, ...] = ()
    tokenizer: Tokenizer | None
    token_definition: str = WHAT_A_TARGET_IS
    sources: tuple[str, ...]
    splits: Splits
    edits: dict[str, CountBy]
    languages: dict[str, CountBy] = {}  # source -> lang -> documents, of all that were not cut and have one
    models: dict[str, Sha256] = {}  # what classified -> sha256 of the model
    lists: dict[str, str] = {}  # where a list is named, and its name -> sha256
    files: tuple[File, ...]
    run: Run

    def as_json(self) -> dict[str, Any]:
        """What json.dumps takes, keys in the order of this file."""
        return self.model_dump(mode="json", by_alias=True)
