"""The stages a manifest may name, in the order they run; each judges documents and says why one leaves."""

import math
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, Self, cast

from pydantic import Discriminator, Field, Tag, model_validator

from datapipe.manifest.entry import Entry
from datapipe.manifest.values import (
    Count,
    Distinct,
    Listed,
    Number,
    OpenShare,
    Permutations,
    PositiveShare,
    Text,
    refused,
)

# names of datapipe.signals.SIGNALS, written here too: a manifest must load without numba and pyarrow
SIGNALS = ("word_count", "unit_count", "mean_word_length", "alpha_ratio", "short_line_ratio")
RECALL = 0.99  # of pairs at the threshold, what the bands of near dedup must reach

Preference = Literal["priority", "longest", "shortest", "newest", "oldest"]
PREFER: tuple[Preference, ...] = ("priority", "longest", "newest")
OPPOSITES = ({"longest", "shortest"}, {"newest", "oldest"})


class Bound(Entry):
    """What a signal must be for a document to stay; both ends belong to it, null lies outside."""

    min: Number | None = Field(default=None, description="the smallest value that stays")
    max: Number | None = Field(default=None, description="the largest value that stays")

    @model_validator(mode="after")
    def _says_something(self) -> Self:
        if self.min is None and self.max is None:
            raise refused("a bound needs min, max or both")
        if self.min is not None and self.max is not None and self.min > self.max:
            raise refused(f"min {self.min:g} is above max {self.max:g}: nothing would stay", "min")
        return self


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

    LATER: ClassVar[Mapping[str, str]] = {"preset": "a published set of bounds by name"}

    stage: Literal["filter"] = Field(description="`filter`")
    keep: Annotated[dict[str, Bound], Field(min_length=1)] = Field(
        description="signal or numeric extra field -> bound; the signals are " + ", ".join(f"`{s}`" for s in SIGNALS)
    )
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


Stage = Filter | Holdout | ExactDedup | NearDedup
STAGES: dict[str, type[Stage]] = {
    "filter": Filter,
    "holdout": Holdout,
    "exact_dedup": ExactDedup,
    "near_dedup": NearDedup,
}
LATER_STAGES = {"decontaminate": "drops documents that hold parts of evaluation suites"}


def _tag(value: object) -> str | None:
    name = cast("dict[str, Any]", value).get("stage") if isinstance(value, dict) else getattr(value, "stage", None)
    kind = STAGES.get(name) if isinstance(name, str) else None
    return kind.__name__ if kind else None


AnyStage = Annotated[
    Annotated[Filter, Tag("Filter")]
    | Annotated[Holdout, Tag("Holdout")]
    | Annotated[ExactDedup, Tag("ExactDedup")]
    | Annotated[NearDedup, Tag("NearDedup")],
    Discriminator(_tag, custom_error_type="stage", custom_error_message="no such stage"),
]
