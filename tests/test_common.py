"""Which n-grams are common."""

import numpy as np
import pytest
from test_scan import found_in, parts_of

from datapipe.contamination.common import common
from datapipe.contamination.index import Index
from datapipe.contamination.scan import merge

ITEM = "answer the following question which river flows through old lima city"
TEXT = "please answer the following question what is two plus two"


def counted(text: str, docs: int, others: int = 0, sources: int = 1, **options) -> list[tuple]:
    index = Index.build(parts_of("a b c"), 3, 3)
    texts = [text] * docs + ["x"] * others
    found = found_in(index, texts, source=np.arange(len(texts), dtype=np.int32) % sources)
    table = common(found, **options).table
    return [tuple(row.values())[1:] for row in table.to_pylist()]


@pytest.mark.parametrize(
    "docs, others, sources, wanted",
    [
        (4, 0, 1, []),
        (5, 0, 1, [("source", 0, 5)]),
        (5, 995, 1, [("source", 0, 5)]),
        (5, 996, 1, []),  # half a percent of 1,001 documents is more than five
        (6, 996, 1, [("source", 0, 6)]),
        (8, 0, 2, []),
        (50, 10_000, 2, []),
        (49, 18_000, 3, []),
        (50, 18_000, 3, [("sources", None, 50)]),
    ],
)
def test_bounds(docs, others, sources, wanted):
    assert counted("a b c", docs, others, sources) == wanted


def test_excluded_positions():
    """Worked example 10: of nine positions two hold common n-grams."""
    index = Index.build(parts_of(ITEM), 3, 3)
    found = merge([found_in(index, [TEXT] * 5)])
    excluded = np.isin(index.grams(0), common(found).grams)
    assert excluded.tolist() == [True, True] + [False] * 7


def test_short_parts():
    index = Index.build(parts_of("what is it"))
    result = common(found_in(index, ["what is it"] * 9))
    assert result.grams.tolist() == index.grams(0).tolist()


def test_nothing_found():
    index = Index.build(parts_of())
    assert common(found_in(index, [])).table.num_rows == 0
