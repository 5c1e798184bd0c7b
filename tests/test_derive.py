"""A derivation is computed once for each row, ever: later builds add the rows that no unit has yet."""

from pathlib import Path
from typing import Any

import builders
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from datapipe import derive
from datapipe.derive import Derivation
from datapipe.documents import Documents, Verdict, Work

RECORDS = [{"id": str(n), "text": "x" * n} for n in range(1, 21)]


class Lengths:
    """Derives the length of a text, and remembers for which texts it was asked."""

    def __init__(self) -> None:
        self.asked: list[int] = []

    def what(self, **changes: Any) -> Derivation:
        given: dict[str, Any] = {"function": "length", "version": 1, "settings": {}, "libraries": []} | changes
        return Derivation(**given, schema=pa.schema([("n", pa.int64())]), compute=self.compute)

    def compute(self, table: pa.Table) -> list[pa.Array]:
        lengths = pc.call_function("utf8_length", [table["text"]]).cast(pa.int64()).combine_chunks()
        self.asked += lengths.to_pylist()
        return [lengths]


def rows(*numbers: int) -> np.ndarray:
    return np.array(numbers, np.int32)


def lengths_of(docs: Documents, what: Derivation, wanted: np.ndarray) -> dict[int, int]:
    done = derive.derive(what, docs, {0: wanted})[0]
    found = pa.concat_tables(derive.read(done, wanted))
    pairs = list(zip(found["row"].to_pylist(), found["n"].to_pylist(), strict=True))
    assert len(dict(pairs)) == len(pairs), "a row came twice"
    return dict(pairs)


def test_rows_are_computed_once_over_many_builds(tmp_path: Path):
    seen = Lengths()
    for wanted, computed in (
        (rows(1, 3, 5), [2, 4, 6]),
        (rows(1, 3, 5), []),
        (rows(0, 1, 2, 3), [1, 3]),
        (rows(5), []),
        (rows(0, 2, 5, 19), [20]),
    ):
        seen.asked.clear()
        with Work(tmp_path, "build") as work:
            docs = builders.documents(work, RECORDS, row_group=4)
            assert lengths_of(docs, seen.what(), wanted) == {row: row + 1 for row in wanted.tolist()}
        assert seen.asked == computed


@pytest.mark.parametrize("change", [{"version": 2}, {"settings": {"a": 1}}, {"function": "other"}])
def test_another_derivation_shares_nothing(tmp_path: Path, change: dict):
    seen = Lengths()
    with Work(tmp_path, "build") as work:
        docs = builders.documents(work, RECORDS)
        lengths_of(docs, seen.what(), rows(1))
        lengths_of(docs, seen.what(**change), rows(1))
    assert seen.asked == [2, 2]


def test_nothing_wanted_is_nothing_done(tmp_path: Path):
    seen = Lengths()
    with Work(tmp_path, "build") as work:
        docs = builders.documents(work, RECORDS)
        assert derive.derive(seen.what(), docs, {}) == {}
        assert derive.derive(seen.what(), docs, {0: rows()}) == {0: []}
    assert seen.asked == []


def test_books_that_do_not_balance_fail_the_build(tmp_path: Path):
    with Work(tmp_path, "build") as work:
        docs = builders.documents(work, RECORDS)
        row = "0::bigint as doc, 'rule' as rule, 1.0 as value, null::varchar as evidence, true as decides"
        work.db.execute(f"create table twice as select {row} union all select {row}")
        with pytest.raises(AssertionError, match="books of 1:bad do not balance"):
            docs.apply("bad", 1, Verdict(drops="twice"))
