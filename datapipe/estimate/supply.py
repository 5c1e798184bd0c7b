"""The targets that a build offers: in one pass over its shards, and how many of them are different."""

import math
from dataclasses import dataclass
from typing import Any

from datapipe.build_manifest import BuildManifest


@dataclass(frozen=True)
class Supply:
    """
    effective: targets of one pass over train.  unique: without the further copies of a mixture; of a source whose
    documents lie there c times on average, a c-th.
    """

    build: str
    effective: int
    unique: float

    def as_json(self) -> dict[str, Any]:
        return {"build": self.build, "effective_tokens": self.effective, "unique_targets": self.unique}


def supply(made: BuildManifest) -> Supply:
    """Of train; validation teaches nothing."""
    train = made.splits.train
    unique = math.fsum(
        share.targets * (share.documents / share.copies if share.copies > share.documents else 1)
        for share in train.by_source.values()
    )
    return Supply(f"{made.name}@{made.version}", train.tokens.targets, unique or float(train.tokens.targets))
