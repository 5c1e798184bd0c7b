"""Echoes: nearly equal siblings of what a document holds, beside their definition in obvious code."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from datapipe.contamination import hits

ROW = st.tuples(
    st.integers(0, 2), st.integers(1, 12), st.integers(-1, 3), st.integers(-1, 25), st.booleans(), st.booleans(),
    st.sampled_from([0.0, 0.5, 0.9, 1.5]),
)  # fmt: skip


def naive(rows: list[tuple]) -> list[bool]:
    def begin(row: tuple) -> int:
        return row[3] - max(row[2], 0)

    def echoes(row: tuple, other: tuple) -> bool:
        size, long = row[1], other[1]
        shared = min(begin(row) + size, begin(other) + long) - max(begin(row), begin(other))
        more = other[4] or (other[5] and other[6] > row[6])
        return other[0] == row[0] and more and size <= 2 * long <= 4 * size and 2 * shared >= size

    return [row[5] and any(echoes(row, other) for other in rows) for row in rows]


@pytest.mark.parametrize("pairs", [1, 9, hits.PAIRS])
@given(rows=st.lists(ROW, max_size=30))
def test_echoes_are_as_defined(pairs: int, rows: list[tuple]):
    doc, units, start, unit, plain, doubtful, likeness = map(np.array, zip(*rows, strict=True)) if rows else (
        *(np.zeros(0, np.int64),) * 4, *(np.zeros(0, bool),) * 2, np.zeros(0)
    )  # fmt: skip
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(hits, "PAIRS", pairs)
        echo = hits._echoes(doc, units, (start, start, unit), plain, doubtful, likeness)
    assert echo.tolist() == naive(rows)
