"""
What a user may write: the manifest, its sources, and what is made of them (the stages are in stages.py).

Every key is a field here, with its type, its default and its meaning; manifests/README.md is generated from them.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self, cast

from pydantic import Discriminator, Field, PrivateAttr, Tag, field_validator, model_validator

from datapipe.manifest.entry import Entry
from datapipe.manifest.stages import STAGES, AnyStage
from datapipe.manifest.values import (
    BuildName,
    Bytes,
    DateText,
    Distinct,
    Int32,
    Limit,
    Listed,
    NotNegative,
    PathText,
    Positive,
    PositiveShare,
    Scalar,
    Seed,
    Sha256,
    SourceName,
    Switch,
    Text,
    Tokens,
    TwoOrMore,
    absolute,
    absolute_pattern,
    instant,
    refused,
)
from datapipe.manifest.values import Share as ShareOf

Ours = Literal["text", "id", "group", "date", "version", "snapshot", "lang"]
FIELDS: tuple[Ours, ...] = ("text", "id", "group", "date", "version", "snapshot", "lang")
DEFAULT_FIELDS: Mapping[Ours, str] = {"text": "text", "id": "id"}
# names of datapipe.edits.EDITS, written here too: a manifest must load without numba and pyarrow
Edit = Literal[
    "nfc", "strip_control", "fix_newlines", "c4_lines", "c4_lines_relaxed", "redact_email", "redact_ip", "redact_phone"
]
LANG_SCORE = "lang_score"  # the extra field that a language model gives
BYTES_OF_BPE = 256  # a byte-level vocabulary begins with every byte


class Limits(Entry):
    """How much may go wrong before the build is refused with status 6."""

    rejected: Limit = Field(
        default=None, description="records without a usable text, per source; null: 0.01 of them or 10, the larger"
    )
    quarantined: Limit = Field(
        default=None, description="unreadable records, per source; null: 0.01 of them or 10, the larger"
    )
    removed_per_source: ShareOf = Field(
        default=0.9, description="share of a source's documents that the stages may drop"
    )
    holdout: Positive = Field(
        default=2.0, description="how many times the holdout's fraction the share of validation documents may reach"
    )
    expanded: Bytes = Field(default=20_000_000_000, description="bytes that one compressed file may expand to")


class Quarantine(Entry):
    """What is kept of unreadable records."""

    raw: Switch = Field(default=False, description="keep the first bytes of each, too")


class Snapshot(Entry):
    """Which state of a source is taken, where it holds several captures of the same thing."""

    name: Text | Distinct[Text] | None = Field(
        default=None,
        description="a label; where `snapshot` is a mapped field, the value or list of values that are taken",
    )
    as_of: DateText | None = Field(
        default=None, description="later documents are left out; a date is its first instant, UTC"
    )
    key: Text | None = Field(
        default=None, description="mapped or extra field that names a thing; one capture of each stays"
    )
    keep: Literal["newest", "oldest"] = Field(
        default="newest", description="which capture of a key stays, by `date`, `version`"
    )

    @property
    def names(self) -> tuple[str, ...]:
        """The name or names, as a tuple; empty without one."""
        if self.name is None:
            return ()
        return (self.name,) if isinstance(self.name, str) else self.name

    @property
    def as_of_instant(self) -> int | None:
        """`as_of` in microseconds since 1970 UTC."""
        return None if self.as_of is None else instant(self.as_of)

    @model_validator(mode="after")
    def _says_something(self) -> Self:
        if self.name == ():
            raise refused("found an empty list, expected at least one name", "name")
        if "keep" in self.model_fields_set and self.key is None:
            raise refused("`keep` chooses among captures of one `key`; name the key", "keep")
        return self


class Select(Entry):
    """Which values of a field are taken; the others are cut before anything is stored."""

    in_: Distinct[Scalar] | None = Field(default=None, alias="in", description="values that are taken")
    min: Scalar | None = Field(default=None, description="the smallest value that is taken")
    max: Scalar | None = Field(default=None, description="the largest value that is taken")

    @model_validator(mode="after")
    def _says_something(self) -> Self:
        if self.in_ == ():
            raise refused("found an empty list, expected at least one value", "in")
        if self.in_ is None and self.min is None and self.max is None:
            raise refused("needs in, min or max")
        if self.min is not None and self.max is not None:
            self._check_order(self.min, self.max)
        return self

    def _check_order(self, low: str | float, high: str | float) -> None:
        first, last = instant(str(low)), instant(str(high))
        if isinstance(low, str) and isinstance(high, str):
            above = low > high if first is None or last is None else first > last
        elif isinstance(low, str) or isinstance(high, str):
            if first is None or last is None:
                raise refused("min and max must both be numbers or both be text", "min")
            above = first > last
        else:
            above = low > high
        if above:
            raise refused(f"min {low} is above max {high}: nothing would be taken", "min")


class Source(Entry):
    """Files of documents that have one origin, and how they are read."""

    LATER: ClassVar[Mapping[str, str]] = {
        "access": "whether the source is open or restricted",
        "expires": "date from which the source may not be used",
    }

    files: Annotated[Listed[PathText], Field(min_length=1)] = Field(
        description="paths and patterns (`*`, `?`, `[..]`, `**`) of files, relative to the manifest"
    )
    exclude: Listed[PathText] = Field(
        default=(),
        description="patterns of files that are left out, by their path below the source's folder or as a whole",
    )
    format: Literal["auto", "jsonl", "parquet", "csv", "text"] = Field(
        default="auto",
        description="`auto` goes by the name, and finds JSON lines under others; `text`: a file is a document",
    )
    tolerant: Switch = Field(
        default=False, description="keep the whole records of a damaged file, and list it as damaged"
    )
    fields: dict[Ours, Text] = Field(
        default_factory=lambda: dict(DEFAULT_FIELDS),
        description="ours -> theirs, nested ones as `a.b`, laid over `{text: text, id: id}`; "
        "null takes one away; ours are " + ", ".join(f"`{name}`" for name in FIELDS),
    )
    extra: Distinct[Text] = Field(
        default=(), description="further fields to carry along; numeric ones can be bounded in filters"
    )
    snapshot: Snapshot | None = Field(default=None, description="which state of the source is taken")
    select: dict[str, Select] = Field(default={}, description="mapped or extra field -> values that are taken")
    sample: PositiveShare | None = Field(
        default=None, description="share of documents that is taken, by hash of the snapshot key, else of doc_id"
    )
    edits: Distinct[Edit] = Field(
        default=(), description="changes to the text, in this order, before anything else is done"
    )
    priority: Int32 = Field(default=0, description="where dedup may choose, the higher stays")
    pin: Sha256 | None = Field(
        default=None, description="digest of the files that were meant; others end with status 5"
    )
    licence: Text | None = Field(default=None, description="recorded in the build")

    @field_validator("fields", mode="before")
    @classmethod
    def _over_defaults(cls, value: object) -> object:
        if not isinstance(value, dict):
            return value
        written: dict[object, object] = {**DEFAULT_FIELDS, **value}
        return {ours: theirs for ours, theirs in written.items() if theirs is not None or ours == "text"}

    @field_validator("select", mode="after")
    @classmethod
    def _dates_are_text(cls, value: dict[str, Select]) -> dict[str, Select]:
        """YAML reads `min: 2020` as a number; of a date it is the text."""
        return {field: _with_texts(select) if field == "date" else select for field, select in value.items()}

    @property
    def names(self) -> tuple[str, ...]:
        """Names of all its fields but the text: mapped, then extra."""
        return (*(name for name in self.fields if name != "text"), *self.extra)


def _with_texts(select: Select) -> Select:
    def text(value: str | float | None) -> str | None:
        return None if value is None else str(value)

    values = None if select.in_ is None else tuple(str(value) for value in select.in_)
    return select.model_copy(update={"in_": values, "min": text(select.min), "max": text(select.max)})


class Share(Entry):
    """A source's part in the mixture."""

    weight: NotNegative = Field(description="share of the targets, relative to the others; 0: unused")
    epochs: Positive = Field(default=1.0, description="how often its tokens may be repeated at most")


class Special(Entry):
    """The control tokens that stand around documents; a text that spells one never yields its id."""

    eos: Text | None = Field(default=None, description="token after each document; null: none")
    bos: Text | None = Field(default=None, description="token before each document; null: none")
    pad: Text | None = Field(default=None, description="token in the rest of a row; null: eos, else id 0")


class TokenizerFile(Special):
    """A tokenizer from a file."""

    file: PathText = Field(description="a tokenizer.json of Hugging Face tokenizers")


class Train(Entry):
    """A byte-level BPE trained on the training documents."""

    vocab_size: TwoOrMore = Field(description="entries of the vocabulary: 256 bytes, control tokens, merges")
    sample: Bytes = Field(default=64_000_000, description="bytes of text it is trained on, documents chosen by hash")


class TokenizerTrain(Special):
    """A tokenizer trained in the build."""

    train: Train = Field(description="how it is trained")

    @model_validator(mode="after")
    def _has_room(self) -> Self:
        least = BYTES_OF_BPE + len({self.eos, self.bos, self.pad} - {None})
        if self.train.vocab_size < least:
            raise refused(
                f"vocab_size is {self.train.vocab_size}, expected {least} or more: 256 bytes and the control tokens",
                "train",
            )
        return self


def _tokenizer_tag(value: object) -> str | None:
    if isinstance(value, TokenizerFile | TokenizerTrain):
        return type(value).__name__
    keys = set(cast("dict[str, Any]", value)) if isinstance(value, dict) else set[str]()
    match "file" in keys, "train" in keys:
        case True, False:
            return "TokenizerFile"
        case False, True:
            return "TokenizerTrain"
        case _:
            return None


AnyTokenizer = Annotated[
    Annotated[TokenizerFile, Tag("TokenizerFile")] | Annotated[TokenizerTrain, Tag("TokenizerTrain")],
    Discriminator(_tokenizer_tag, custom_error_type="tokenizer", custom_error_message="needs one of file, train"),
]


class Sequences(Entry):
    """The rows a trainer sees."""

    length: TwoOrMore = Field(default=2048, description="tokens in a row")
    packing: Literal["best_fit", "concat"] = Field(
        default="best_fit", description="`best_fit` cuts few documents; `concat` fills every row"
    )
    max_document_tokens: TwoOrMore | None = Field(
        default=None, description="tokens taken of a document at most; null: all"
    )


class Shards(Entry):
    """The files that hold the rows."""

    tokens: Tokens = Field(default=16_000_000, description="tokens in a shard, about; at least one row")
    storage: Literal["list", "binary"] = Field(
        default="list",
        description="`list`: token ids as integers, which every reader of Parquet knows; "
        "`binary`: as bytes of fixed width, which are read by memory map, several times faster",
    )


class Language(Entry):
    """A model that says which language a text is in; it wins over a mapped `lang`, which `select` still sees."""

    model: PathText = Field(
        description="a fastText model of languages, such as lid.176.ftz (CC-BY-SA 3.0); needs `datapipe[lang]`"
    )
    sources: Distinct[Text] = Field(default=(), description="the sources whose texts it is shown; empty: all")

    def covers(self, source: str) -> bool:
        """Whether the texts of a source are shown to it."""
        return not self.sources or source in self.sources


class Manifest(Entry):
    """The whole manifest."""

    LATER: ClassVar[Mapping[str, str]] = {
        "allow": "kinds of restricted sources that may be used",
    }

    name: BuildName = Field(description="names the build; its versions lie in `<output>/<name>/`")
    seed: Seed = Field(default=0, description="decides mixture and order; never the holdout or signatures")
    output_as_written: PathText = Field(default="builds", alias="output", description="folder of builds")
    documents: Literal["all", "kept", "none"] = Field(default="all", description="whose text stays in the build")
    limits: Limits = Field(default=Limits(), description="how much may go wrong")
    quarantine: Quarantine = Field(default=Quarantine(), description="what is kept of unreadable records")
    sources: Annotated[dict[SourceName, Source], Field(min_length=1, max_length=32_767)] = Field(
        description="where the documents come from: name -> source"
    )
    language: Language | None = Field(
        default=None, description="a model that gives each document `lang` and `lang_score`; null: the mapped field"
    )
    stages: Listed[AnyStage] = Field(default=(), description="what judges the documents, in this order")
    mixture: dict[str, Share] | None = Field(
        default=None, description="every source -> its share; null: each document once; needs a tokenizer"
    )
    tokenizer: AnyTokenizer | None = Field(
        default=None, description="from a file or trained; null: the build ends after the stages"
    )
    sequences: Sequences = Field(default=Sequences(), description="the rows a trainer sees; needs a tokenizer")
    shards: Shards = Field(default=Shards(), description="the files that hold the rows; needs a tokenizer")

    _path: Path = PrivateAttr(default=Path("manifest.yaml"))

    def model_post_init(self, context: Any) -> None:
        """The file it was read from comes as the context of validation."""
        path = context if isinstance(context, Path) else self._path
        self._path = Path(os.path.realpath(path.parent)) / path.name

    @property
    def path(self) -> Path:
        """The YAML file, absolute."""
        return self._path

    @property
    def folder(self) -> Path:
        """The folder of the YAML file, absolute; relative paths begin here."""
        return self._path.parent

    @property
    def output(self) -> Path:
        """The folder of builds, absolute."""
        return self.resolve(self.output_as_written)

    def resolve(self, written: str) -> Path:
        """A path as written -> an absolute one; `~`, `${VAR}` and `${stdlib}` are replaced."""
        return absolute(written, self.folder)

    def pattern(self, written: str) -> str:
        """A file pattern as written -> an absolute glob; wildcards of folder and variables are escaped."""
        return absolute_pattern(written, self.folder)

    def as_written(self) -> dict[str, Any]:
        """All keys with defaults filled in and paths as written, as JSON values."""
        return self.model_dump(mode="json", by_alias=True)

    def recipe(self) -> dict[str, Any]:
        """
        What decides the bytes: as_written without name, output, files, exclude and every path.

        `select` and `keep` are lists of pairs: canonical JSON sorts keys, and the first rule that fails decides.
        """
        recipe = self.as_written()
        del recipe["name"], recipe["output"]
        for source in recipe["sources"].values():
            del source["files"], source["exclude"]
            source["select"] = list(source["select"].items())
        for stage in recipe["stages"]:
            for key in getattr(STAGES[stage["stage"]], "LISTS", ()):
                del stage[key]  # recipe_id names what the lists hold
            if "keep" in stage:
                stage["keep"] = list(stage["keep"].items())
        for owner, path in ((recipe["tokenizer"], "file"), (recipe["language"], "model")):
            if owner:
                owner.pop(path, None)
        return recipe
