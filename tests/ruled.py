"""Documents made for a rule: some that break a bound, some that keep it."""

from collections.abc import Callable, Mapping
from itertools import cycle, islice

import pyarrow as pa

from datapipe import signals

LEAST = 20
# (signal, "min" or "max") -> documents that break that bound, documents that keep it
Cases = Mapping[tuple[str, str], tuple[list[str], list[str]]]
SENTENCE = "We came to the old harbour with a map that somebody had drawn, and all of it was wrong."


def each(count: int, breaks: Callable[[int], str], keeps: Callable[[int], str]) -> tuple[list[str], list[str]]:
    """`count` documents of each kind, made from 0, 1, 2, ..."""
    return [breaks(n) for n in range(count)], [keeps(n) for n in range(count)]


def prose(words: int) -> str:
    """A line of English of so many words."""
    return " ".join(islice(cycle(SENTENCE.split()), words))


def page(n: int) -> str:
    """An English page of 6 + n lines, each a sentence, and a blank line after every third."""
    return "\n".join(SENTENCE + "\n" * (i % 3 == 2) for i in range(6 + n)).strip()


def check(bounds: Mapping[str, Mapping[str, float]], cases: Cases) -> None:
    """Every bound has documents on both sides, at least LEAST, and the signal puts each where it belongs."""
    assert {(signal, side) for signal, bound in bounds.items() for side in bound} == set(cases)
    for (signal, side), (breaking, keeping) in cases.items():
        assert min(len(set(breaking)), len(set(keeping))) >= LEAST, (signal, side)
        limit = bounds[signal][side]
        (values,) = signals.measure(pa.array(breaking + keeping, pa.large_string()), [signal])
        broken = [value is None or (value < limit if side == "min" else value > limit) for value in values.to_pylist()]
        assert broken == [True] * len(breaking) + [False] * len(keeping), (signal, side)
