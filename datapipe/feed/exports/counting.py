"""The books of an export: what was written of a split, and whether that is what the build says it holds."""

from typing import Any

import numpy as np

from datapipe.build_manifest import BuildManifest
from datapipe.errors import IntegrityError
from datapipe.feed.batch import Rows
from datapipe.feed.exports.documents import Documents
from datapipe.feed.exports.formats import Target
from datapipe.rows import AGAIN, STARTS


class Books:
    """
    Of a split: documents (each copy) and their tokens, repeated ones left out; in all, and by source.

    Of documents: tokens = documents (the first token of each) + targets + masked;  without_eos: do not end in it
    Of rows:      rows, targets, masked, padding, as the build counts them
    """

    def __init__(self, target: Target, unit: str):
        self._target = target
        names = ("without_eos",) if unit == "documents" else ("rows", "repeated_context", "padding")
        self._sums: dict[str, int] = dict.fromkeys(("documents", "tokens", "targets", "masked", *names), 0)
        self._by_source = np.zeros((len(target.sources), 2), np.int64)

    def documents(self, docs: Documents, where: str) -> Documents:
        """Count them; an id that the tokenizer does not have is an IntegrityError."""
        self._ids(docs.ids, where)
        lengths = docs.lengths
        ends = docs.ids[docs.offsets[1:] - 1]
        self._add(
            documents=len(docs),
            tokens=len(docs.ids),
            targets=docs.targets,
            masked=len(docs.ids) - len(docs) - docs.targets,
            without_eos=len(docs) if self._target.eos is None else int((ends != self._target.eos).sum()),
        )
        np.add.at(self._by_source, docs.source, np.stack((np.ones_like(lengths), lengths), axis=1))
        return docs

    def rows(self, rows: Rows, where: str) -> Rows:
        """The same of packed rows."""
        self._ids(rows.input_ids, where)
        again = (rows.seg_flags & AGAIN) != 0
        starts = (rows.seg_flags & STARTS) != 0
        stored, targets = int(rows.n_tokens.sum()), int(rows.n_targets.sum())
        self._add(
            documents=int(starts.sum()),
            tokens=stored - int(again.sum()),
            targets=targets,
            masked=stored - targets - len(rows.seg_len),
            rows=len(rows),
            repeated_context=int(again.sum()),
            padding=rows.input_ids.size - stored,
        )
        np.add.at(self._by_source, rows.seg_source, np.stack((starts, rows.seg_len - again), axis=1))
        return rows

    def _ids(self, ids: np.ndarray, where: str) -> None:
        if ids.size and (ids.min() < 0 or ids.max() >= self._target.vocabulary):
            raise IntegrityError(
                f"{where}: an id outside of the vocabulary of {self._target.vocabulary:,}; build again"
            )

    def _add(self, **counts: int) -> None:
        for name, count in counts.items():
            self._sums[name] += count

    def close(self, made: BuildManifest, split: str, where: str) -> dict[str, Any]:
        """The books; an IntegrityError where documents or tokens are not those of manifest.json."""
        told = dict(made.splits.items())[split]
        expected = {
            "documents": sum(share.copies for share in told.by_source.values()),
            "tokens": told.tokens.stored - told.tokens.repeated_context,
        }
        for name, count in expected.items():
            if self._sums[name] != count:
                raise IntegrityError(f"{where}: {split} has {self._sums[name]:,} {name}, manifest.json says {count:,}")
        shares = zip(self._target.sources, self._by_source.tolist(), strict=True)
        by_source = {name: {"documents": number, "tokens": tokens} for name, (number, tokens) in shares if number}
        return self._sums | {"targets_in_rows": told.tokens.targets, "by_source": by_source}
