"""
Which n-grams are common: so many documents have them that a match says nothing about one example.

That is a gram in at least max(`least`, `share` of its documents) documents of one source, or in at least `over`
documents that lie in `sources` sources or more.  Where one is left out, and where it counts all the same, hits.py says.
"""

from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import pyarrow as pa

from datapipe.contamination.scan import Found

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
    """table: COMMON, in order of gram, rule, source."""

    table: pa.Table

    @property
    def grams(self) -> np.ndarray:
        """int32: the common grams, sorted."""
        return np.unique(self.table["gram"].to_numpy())


def common(found: Found, least: int = 5, share: float = 0.005, over: int = 50, sources: int = 3) -> Common:
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
    return Common(table)
