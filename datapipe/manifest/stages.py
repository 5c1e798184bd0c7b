"""The stages a manifest may name, in the order they run; each judges documents and says why one leaves."""

import math
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, Self, cast

from pydantic import Discriminator, Field, SerializerFunctionWrapHandler, Tag, model_serializer, model_validator

from datapipe.manifest import presets
from datapipe.manifest.entry import Entry
from datapipe.manifest.values import (
    Count,
    Distinct,
    Listed,
    NGram,
    Number,
    OpenShare,
    PathText,
    Permutations,
    PositiveShare,
    Share,
    Text,
    refused,
)

LANG = "lang"  # the one name in `keep` that is no number
RECALL = 0.99  # of pairs at the threshold, what the bands of near dedup must reach

Preference = Literal["priority", "longest", "shortest", "newest", "oldest"]
PREFER: tuple[Preference, ...] = ("priority", "longest", "newest")
OPPOSITES = ({"longest", "shortest"}, {"newest", "oldest"})

Contamination = Literal["adjacent", "solution", "prompt", "near", "variant", "short", "passage"]
FLAGGED: tuple[Contamination, ...] = ("adjacent", "solution", "prompt", "near", "variant")


class Bound(Entry):
    """What a signal must be for a document to stay; both ends belong to it, null lies outside."""

    min: Number | None = Field(default=None, description="the smallest value that stays")
    max: Number | None = Field(default=None, description="the largest value that stays")
    in_: Distinct[Text] | None = Field(default=None, alias="in", description="of `lang` alone: the values that stay")

    @model_validator(mode="after")
    def _says_something(self) -> Self:
        if self.in_ is not None and (self.min is not None or self.max is not None):
            raise refused("`in` goes without min and max", "in")
        if self.in_ == ():
            raise refused("found an empty list, expected at least one value", "in")
        if self.in_ is None and self.min is None and self.max is None:
            raise refused("a bound needs min, max or both")
        if self.min is not None and self.max is not None and self.min > self.max:
            raise refused(f"min {self.min:g} is above max {self.max:g}: nothing would stay", "min")
        return self

    @model_serializer(mode="wrap")
    def _without_in(self, written: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """`in` is for `lang` alone, so no other bound shows it."""
        return {key: value for key, value in written(self).items() if key in ("min", "max") or value is not None}


class Only(Entry):
    """Which documents a filter judges; all the conditions must hold. The others stay, and are counted as not judged."""

    source: Distinct[Text] = Field(default=(), description="names of sources; empty: all")
    lang: Distinct[Text] = Field(default=(), description="values of the mapped field `lang`; empty: all")
    snapshot: Distinct[Text] = Field(default=(), description="names of snapshots; empty: all")

    @model_validator(mode="after")
    def _says_something(self) -> Self:
        if not (self.source or self.lang or self.snapshot):
            raise refused("needs source, lang or snapshot; leave `only` out to judge all documents")
        return self


class Filter(Entry):
    """Drops documents whose signals lie outside the bounds."""

    stage: Literal["filter"] = Field(description="`filter`")
    preset: Text | None = Field(
        default=None, description="a published set of bounds by its name, see below; `datapipe show --preset` prints it"
    )
    keep: dict[str, Bound] = Field(
        default={},
        description="signal, numeric extra field or `lang` -> bound; with a preset it is laid over the preset's, "
        "and null takes a bound away; the signals are listed below",
    )
    languages: Distinct[Text] | None = Field(
        default=None,
        description="languages that the bounds are made for: documents of another `lang` are not judged "
        "(`en` is also `en-GB`); null: those of the preset, empty: all",
    )
    only: Only | None = Field(default=None, description="which documents are judged; null: all")

    @model_validator(mode="before")
    @classmethod
    def _over_preset(cls, value: Any) -> Any:
        """The bounds and languages of the preset, under what is written."""
        if not isinstance(value, dict):
            return cast("object", value)
        written = cast("dict[str, Any]", value)
        name, keep = written.get("preset"), cast("object", written.get("keep") or {})
        if not isinstance(name, str) or not isinstance(keep, dict):
            return written
        if name not in presets.names():
            raise refused(f"no such preset; there are {', '.join(presets.names())}", "preset")
        preset = presets.load(name)
        for key, bound in cast("dict[str, Any]", keep).items():
            if bound is None and key not in preset.keep:
                raise refused(f"{key}: preset {name} has no such bound to take away", "keep")
        laid: dict[str, Any] = {**preset.keep, **cast("dict[str, Any]", keep)}
        languages = written.get("languages")
        return written | {
            "keep": {key: bound for key, bound in laid.items() if bound is not None},
            "languages": list(preset.languages) if languages is None else languages,
        }

    @model_validator(mode="after")
    def _says_something(self) -> Self:
        if not self.keep:
            raise refused("needs bounds in `keep`, or the name of a preset", "keep")
        for name, bound in self.keep.items():
            if (name == LANG) != (bound.in_ is not None):
                what = "`lang` is bounded by `in: [...]`" if name == LANG else "`in` is for `lang` alone"
                raise refused(f"{name}: {what}", "keep")
        return self

    @model_serializer(mode="wrap")
    def _with_what_was_taken_away(self, written: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """A bound of the preset that was taken away is null, as it was written: else it would come back when read."""
        found = written(self)
        gone = [name for name in presets.load(self.preset).keep if name not in self.keep] if self.preset else []
        return found | {"keep": found["keep"] | dict.fromkeys(gone)}

    @property
    def numbers(self) -> dict[str, Bound]:
        """The bounds on signals and extra fields: all but that on `lang`."""
        return {name: bound for name, bound in self.keep.items() if name != LANG}


class UrlFilter(Entry):
    """
    Drops documents by their URL, by lists that you bring.  The rules are asked in the order of the keys; a document
    without a URL is not judged.
    """

    LISTS: ClassVar[tuple[str, ...]] = ("domains", "hosts", "urls", "words", "soft_words", "substrings")

    stage: Literal["url_filter"] = Field(description="`url_filter`")
    field: Text = Field(default="url", description="mapped or extra field that holds the URL")
    domains: Listed[PathText] = Field(
        default=(),
        description="files of domains: a document leaves where its registered domain or its host is listed; "
        "of a folder (UT1) its file `domains`",
    )
    hosts: Listed[PathText] = Field(default=(), description="files of hosts: only the host itself counts")
    urls: Listed[PathText] = Field(
        default=(),
        description="files of URLs, without scheme, port, fragment and last `/`; of a folder (UT1) its file `urls`",
    )
    words: Listed[PathText] = Field(
        default=(), description="files of words, each enough where it is a run of letters and digits of the URL"
    )
    soft_words: Listed[PathText] = Field(default=(), description="files of words of which several must be there")
    soft_words_min: Count = Field(default=2, description="how many different soft words drop a document")
    substrings: Listed[PathText] = Field(
        default=(), description="files of texts that may stand anywhere in the letters and digits of the URL"
    )
    only: Only | None = Field(default=None, description="which documents are judged; null: all")

    @model_validator(mode="after")
    def _says_something(self) -> Self:
        if not any(getattr(self, key) for key in self.LISTS):
            raise refused(f"needs a list: {', '.join(self.LISTS[:-1])} or {self.LISTS[-1]}")
        if self.soft_words_min != type(self).model_fields["soft_words_min"].default and not self.soft_words:
            raise refused("counts words of `soft_words`; name such a list", "soft_words_min")
        return self


class WordFilter(Entry):
    """Drops documents whose text, in lower case, holds a word or phrase of a list."""

    LISTS: ClassVar[tuple[str, ...]] = ("words",)

    stage: Literal["word_filter"] = Field(description="`word_filter`")
    words: Annotated[Listed[PathText], Field(min_length=1)] = Field(
        description="files of words and phrases, one a line; lines that begin with `#` are remarks"
    )
    match: Literal["word", "substring"] = Field(
        default="word",
        description="`word`: no letter, mark, digit or `_` stands beside it; `substring`: anywhere, for texts without "
        "blanks such as Chinese, Japanese and Thai",
    )
    keep_fraction: Share = Field(default=0.0, description="share of these documents that stays, by hash of doc_id")
    only: Only | None = Field(default=None, description="which documents are judged; null: all")


class Holdout(Entry):
    """Sets validation documents apart, by group, before any dedup stage."""

    stage: Literal["holdout"] = Field(description="`holdout`")
    fraction: OpenShare = Field(description="share of groups that become validation")
    by: Text | None = Field(
        default=None,
        description="mapped or extra field whose equal values stay on one side; "
        "null or absent in a document: `group`, else the snapshot key, else the text",
    )
    salt: Text = Field(
        default="holdout-1", description="decides membership, alone: another salt is another validation set"
    )


def _distinct_ways(prefer: tuple[Preference, ...]) -> None:
    for pair in OPPOSITES:
        if pair <= set(prefer):
            first, second = sorted(pair, key=prefer.index)
            raise refused(f"`{second}` can never decide after `{first}`", "prefer")


class ExactDedup(Entry):
    """Of documents with the same normal form, one stays."""

    stage: Literal["exact_dedup"] = Field(description="`exact_dedup`")
    prefer: Distinct[Preference] = Field(default=PREFER, description="which one stays: the first difference decides")

    @model_validator(mode="after")
    def _can_decide(self) -> Self:
        _distinct_ways(self.prefer)
        return self


class NearDedup(Entry):
    """Drops a document that is as similar to one that stays as the threshold says, by exact Jaccard of shingles."""

    LATER_VALUES: ClassVar[Mapping[str, Mapping[str, str]]] = {
        "against": {"*": "builds whose documents count as already there"}
    }

    stage: Literal["near_dedup"] = Field(description="`near_dedup`")
    threshold: PositiveShare = Field(
        default=0.8, description="the exact Jaccard similarity from which a document leaves"
    )
    ngram: Count = Field(default=5, description="units of text in a shingle")
    num_perm: Permutations = Field(default=128, description="values in a signature")
    prefer: Distinct[Preference] = Field(default=PREFER, description="which one stays: the first difference decides")
    against: Annotated[Listed[Text], Field(max_length=0)] = Field(
        default=(), description="builds whose documents count as already there"
    )

    @model_validator(mode="after")
    def _can_reach_recall(self) -> Self:
        _distinct_ways(self.prefer)
        # one row a band is the most that any banding finds: 1 - (1 - threshold)^num_perm
        least = 1 if self.threshold == 1 else math.ceil(math.log(1 - RECALL) / math.log1p(-self.threshold))
        if self.num_perm < least:
            raise refused(
                f"found {self.num_perm}, expected {least} or more: fewer cannot find {RECALL:.0%} of the pairs "
                f"at threshold {self.threshold:g}",
                "num_perm",
            )
        return self


class Decontaminate(Entry):
    """
    Drops training documents that hold examples of eval suites, in part or whole.  Validation documents are counted.
    """

    LISTS: ClassVar[tuple[str, ...]] = ("suites",)

    stage: Literal["decontaminate"] = Field(description="`decontaminate`")
    suites: Annotated[Listed[PathText], Field(min_length=1)] = Field(
        description="files, folders or patterns of eval suites: JSONL, JSON, CSV, TSV, Parquet, Arrow or text, also "
        "gzipped, in zstd or in tar"
    )
    fields: dict[str, Text] = Field(
        default={},
        description="part of an example (`prompt`, `choices`, `answer`, `solution`, `tests`, `passage`, `id`, ...) -> "
        "the field that holds it, where it is not found by itself; `suite:part` speaks of one suite",
    )
    n: NGram = Field(default=8, description="units of text in an n-gram; 12 or more in scripts without blanks")
    classes: Annotated[Distinct[Contamination], Field(min_length=1)] = Field(
        default=FLAGGED,
        description="what makes a document leave: `adjacent` a prompt with its answer beside it, `solution` a solution "
        "or answer alone, `prompt` a prompt alone, `near` one of these nearly, `variant` with other numbers or "
        "identifiers, `short` a prompt of fewer than n units, `passage` a passage alone",
    )


Stage = Filter | UrlFilter | WordFilter | Holdout | ExactDedup | NearDedup | Decontaminate
STAGES: dict[str, type[Stage]] = {
    "filter": Filter,
    "url_filter": UrlFilter,
    "word_filter": WordFilter,
    "holdout": Holdout,
    "exact_dedup": ExactDedup,
    "near_dedup": NearDedup,
    "decontaminate": Decontaminate,
}
LATER_STAGES: dict[str, str] = {}  # stage -> what it will do


def _tag(value: object) -> str | None:
    name = cast("dict[str, Any]", value).get("stage") if isinstance(value, dict) else getattr(value, "stage", None)
    kind = STAGES.get(name) if isinstance(name, str) else None
    return kind.__name__ if kind else None


AnyStage = Annotated[
    Annotated[Filter, Tag("Filter")]
    | Annotated[UrlFilter, Tag("UrlFilter")]
    | Annotated[WordFilter, Tag("WordFilter")]
    | Annotated[Holdout, Tag("Holdout")]
    | Annotated[ExactDedup, Tag("ExactDedup")]
    | Annotated[NearDedup, Tag("NearDedup")]
    | Annotated[Decontaminate, Tag("Decontaminate")],
    Discriminator(_tag, custom_error_type="stage", custom_error_message="no such stage"),
]
