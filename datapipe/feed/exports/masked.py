"""Files of bool beside files of ids, one byte a token: for all shards of a split, where one of them has a mask."""

from abc import ABC, abstractmethod
from pathlib import Path

import numpy as np

from datapipe.feed.exports.formats import Documentwise

ONES = np.ones(1 << 20, bool)


class Masked(Documentwise, ABC):
    """A writer with a file of ids a shard, and a file of masks for each where any has a mask."""

    def __init__(self, folder: Path, split: str):
        super().__init__(folder)
        self._split = split
        self._tokens: list[int] = []  # of each shard
        self._masks: set[int] = set()  # shards that have a file of masks

    @abstractmethod
    def name(self, number: int) -> str:
        """The file of ids of a shard."""

    @abstractmethod
    def mask_name(self, number: int) -> str:
        """The file of masks of a shard."""

    def add(self, tokens: int, mask: np.ndarray | None) -> None:
        """So many tokens were added to the last shard; of a shard, all come with a mask or none does."""
        number = len(self._tokens) - 1
        self._tokens[number] += tokens
        if mask is not None:
            self._append(number, [mask])

    def all_masked(self) -> bool:
        """Give every shard a file of masks, of ones where it had none, if any has one; whether they have."""
        for number in set(range(len(self._tokens))) - self._masks if self._masks else ():
            tokens = self._tokens[number]
            self._append(number, [ONES[: tokens - first] for first in range(0, tokens, len(ONES))])
        return bool(self._masks)

    def _append(self, number: int, masks: list[np.ndarray]) -> None:
        path = self._folder / self.mask_name(number)
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(path, "ab") as file:
            file.writelines(mask.astype("?").data.cast("B") for mask in masks)
        self._masks.add(number)
