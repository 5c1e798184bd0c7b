"""Which n-grams are common, and where that is void."""

import numpy as np
import pytest
from test_scan import Part, found_in, parts_of

from datapipe.contamination.common import common
from datapipe.contamination.index import Index
from datapipe.contamination.scan import merge

ITEM = "answer the following question which river flows through old lima city"
TEXT = "please answer the following question what is two plus two"


def counted(text: str, docs: int, others: int = 0, sources: int = 1, **options) -> list[tuple]:
    index = Index.build(parts_of("a b c"), 3, 3)
    texts = [text] * docs + ["x"] * others
    found = found_in(index, texts, source=np.arange(len(texts), dtype=np.int32) % sources)
    table = common(index, found, **options).table
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
    excluded = common(index, found).excluded(0)
    assert excluded.tolist() == [True, True] + [False] * 7


@pytest.mark.parametrize("covered, void", [(5, False), (6, True), (11, True)])
def test_never_inside_a_match_of_half_a_part(covered, void):
    index = Index.build(parts_of(ITEM), 3, 3)
    found = found_in(index, [" ".join(ITEM.split()[:covered])] * 9)
    result = common(index, found)
    assert len(result.grams) == covered - 2
    assert result.void.tolist() == [void]
    assert result.excluded(0).any() != void


def test_two_halves_are_not_one_match():
    index = Index.build(parts_of("a b c d e f g h"), 3, 3)
    found = found_in(index, ["a b c x f g h"] * 9)
    assert common(index, found).void.tolist() == [False]


def test_a_text_of_many_examples_is_a_template():
    index = Index.build(parts_of(*[ITEM] * 5, "another one of the same set", *["given in four items"] * 4), 3, 3)
    found = found_in(index, [ITEM, "another one of the same set", "given in four items"] * 9)
    assert common(index, found).void.tolist() == [False] * 5 + [True] * 5


def test_parts_of_one_example_are_one():
    parts = [Part(ITEM, "choices", 0)] * 9
    index = Index.build(parts_of(*parts), 3, 3)
    assert common(index, found_in(index, [ITEM])).void.tolist() == [True] * 9


def test_short_parts():
    index = Index.build(parts_of("what is it"))
    result = common(index, found_in(index, ["what is it"] * 9))
    assert result.grams.tolist() == index.grams(0).tolist()
    assert result.excluded(0).tolist() == [False]


def test_nothing_found():
    index = Index.build(parts_of())
    result = common(index, found_in(index, []))
    assert result.table.num_rows == 0
    assert len(result.void) == 0
