"""Signals against counts made by hand and by a slow twin."""

import math
import unicodedata

import naive
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from datapipe import signals

CASES = [
    ("", [0, 0, None, None, None], "empty: only counts have a meaning"),
    (" \n\u3000\n", [0, 0, None, None, None], "white space only"),
    ("one", [1, 1, 3.0, 1.0, 1.0], "one word"),
    ("- 12 a1 b", [4, 3, 1.5, 0.5, 1.0], "words with a letter: a1 and b"),
    ("été naïve", [2, 2, 4.0, 1.0, 1.0], "lengths are in code points"),
    ("我们是人 ok", [2, 5, 3.0, 1.0, 1.0], "Han: one word, four units"),
    ("a\u00a0b\u2003c\u0085d\x1fe", [4, 5, 1.5, 1.0, 1.0], "white space is White_Space: no separators of ASCII"),
    (
        "x" * 30 + "\n" + "y" * 31 + "\n\n",
        [2, 2, 30.5, 1.0, 0.5],
        "30 code points are short, 31 are not, blank is none",
    ),
    ("é" * 30 + "\n   \n" + "é" * 31, [2, 2, 30.5, 1.0, 0.5], "and the last line may end without a newline"),
    ("½ ① Ⅷ ª", [4, 5, 1.0, 0.25, 1.0], "of these only the ordinal sign is a letter; one half is two units"),
]


@pytest.mark.parametrize("value,wanted,case", CASES, ids=[case for _, _, case in CASES])
def test_signals(value: str, wanted: list[float | None], case: str) -> None:
    found = signals.measure(pa.array(["other", value])[1:], list(signals.SIGNALS))
    assert [column[0].as_py() for column in found] == wanted, case


@settings(deadline=None)
@given(
    st.lists(st.lists(st.one_of(st.text(max_size=5), st.sampled_from([*" \n\x85\u2028é中", "x" * 29]))).map("".join))
)
def test_signals_of_anything(values: list[str]) -> None:
    texts = pa.array(values, pa.large_string())
    for i, name in enumerate(signals.SIGNALS):
        assert signals.SIGNALS[name](texts).to_pylist() == [_twin(value)[i] for value in values], name


def _twin(value: str) -> list[float | None]:
    words = naive.words(value)
    lines = [line for line in value.split("\n") if naive.words(line)]
    lettered = [word for word in words if any(unicodedata.category(c)[0] == "L" for c in word)]
    short = [line for line in lines if len(line) <= 30]
    return [
        len(words),
        len(naive.units(value)),
        sum(map(len, words)) / len(words) if words else None,
        len(lettered) / len(words) if words else None,
        len(short) / len(lines) if lines else None,
    ]


def test_types_and_empty_arrays() -> None:
    for texts in (pa.array([], pa.string()), pa.array(["a"], pa.large_string())):
        types = [column.type for column in signals.measure(texts, list(signals.SIGNALS))]
        assert types == [pa.int64(), pa.int64(), pa.float64(), pa.float64(), pa.float64()]


EXTRAS = [
    ('{"score":3}', 3.0, "an integer"),
    ('{"score":-2.5e3}', -2500.0, "a float"),
    ('{"score":"3"}', None, "a string is no number"),
    ('{"score":true}', None, "nor is a boolean"),
    ('{"score":null}', None, "null"),
    ('{"score":[1]}', None, "a list"),
    ('{"other":1}', None, "no such field"),
    ("{}", None, "no field at all"),
    (None, None, "no extras"),
    ('{"score":1' + "0" * 400 + "}", math.inf, "more than a double holds is above every bound"),
]


def test_extra_numbers() -> None:
    extra = pa.array([value for value, _, _ in EXTRAS], pa.string())
    (found,) = signals.extra_numbers(extra, ["score"])
    assert found.type == pa.float64()
    assert found.to_pylist() == [wanted for _, wanted, _ in EXTRAS]
    assert [len(column) for column in signals.extra_numbers(extra[:0], ["a", "b"])] == [0, 0]
