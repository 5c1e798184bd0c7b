"""
Which n-grams are common: so many documents have them that a match says nothing about one example.

That is a gram in at least max(`least`, `share` of its documents) documents of one source, or in at least `over`
documents that lie in `sources` sources or more.  An example that is itself widely copied must not hide behind this:
for a part that one proved match covers half of, the exclusion is void.  It holds again where SHARED examples have that
very text: then it is a template.
"""

from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np
import pyarrow as pa

from datapipe.contamination.index import Index
from datapipe.contamination.scan import Found

HALF = Fraction(1, 2)
SHARED = 5  # examples that have the same text

COMMON = pa.schema(
    [
        ("gram", pa.int32()),
        ("rule", pa.string()),  # "source" or "sources"
        ("source", pa.int32()),  # null for "sources"
        ("docs", pa.int64()),  # of that source; for "sources" of all
    ]
)


@dataclass(frozen=True)
class Common:
    """table: COMMON, in order of gram, rule, source.  void: bool[parts], twins as their first."""

    table: pa.Table
    void: np.ndarray
    index: Index = field(repr=False)

    def excluded(self, part: int) -> np.ndarray:
        """bool[L - n + 1]: the positions of a part whose grams are left out; none where that is void."""
        grams = self.index.grams(part)
        if self.void[part]:
            return np.zeros(len(grams), np.bool_)
        return np.isin(grams, self.grams)

    @property
    def grams(self) -> np.ndarray:
        """int32: the common grams, sorted."""
        return np.unique(self.table["gram"].to_numpy())


def common(
    index: Index, found: Found, least: int = 5, share: float = 0.005, over: int = 50, sources: int = 3
) -> Common:
    """
    From all that was found (merged).  least, share: documents of a source, the larger of the two; over: documents in
    `sources` sources or more, all counted together.
    """
    gram, source = found.grams["gram"].to_numpy(), found.grams["source"].to_numpy()
    docs = found.grams["docs"].to_numpy()
    documents = dict(zip(found.seen["source"].to_pylist(), found.seen["documents"].to_pylist(), strict=True))
    part = Fraction(str(share))
    bounds = {number: max(least, -(-count * part.numerator // part.denominator)) for number, count in documents.items()}
    bound = np.array([bounds[number] for number in source.tolist()], np.int64)
    inside = docs >= bound
    one = pa.table(
        [gram[inside], pa.array(["source"] * int(inside.sum()), pa.string()), source[inside], docs[inside]], COMMON
    )
    some, which = np.unique(gram, return_inverse=True)
    total = np.bincount(which, docs, len(some)).astype(np.int64)
    wide = (np.bincount(which, minlength=len(some)) >= sources) & (total >= over)
    many = pa.table(
        [
            some[wide], pa.array(["sources"] * int(wide.sum()), pa.string()),
            pa.nulls(int(wide.sum()), pa.int32()), total[wide],
        ],
        COMMON,
    )  # fmt: skip
    table = pa.concat_tables([one, many])
    table = table.sort_by([("gram", "ascending"), ("rule", "ascending"), ("source", "ascending")]).combine_chunks()
    return Common(table, _void(index, found), index)


def _void(index: Index, found: Found) -> np.ndarray:
    """bool[parts]: a proved match covers half of the part, and not too many examples have its text."""
    part, length = found.runs["part"].to_numpy(), found.runs["length"].to_numpy()
    short = found.short["part"].to_numpy()
    covered = np.zeros(len(index.twin), np.bool_)
    covered[part[length * HALF.denominator >= index.lengths[part] * HALF.numerator]] = True
    covered[short] = True
    pairs = np.unique(np.column_stack([index.twin, index.parts["example"].to_numpy()]), axis=0)
    examples = np.bincount(pairs[:, 0], minlength=len(index.twin)) if len(pairs) else np.zeros(0, np.int64)
    return (covered & (examples < SHARED))[index.twin]
