"""Quantities with units: what is understood, what is refused and how, and how they are shown."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from datapipe.errors import ManifestError
from datapipe.estimate.quantities import Problems, QuantityError, both, parse, show

UNDERSTOOD = [
    ("7B", "count", 7_000_000_000),
    ("7e9", "count", 7_000_000_000),
    ("1e9", "count", 10**9),
    ("2k", "count", 2000),
    ("2Ki", "count", 2048),
    ("1.5T", "number", 1.5e12),
    ("124_337_664", "count", 124_337_664),
    ("124,337,664", "count", 124_337_664),
    ("80GB", "bytes", 80 * 10**9),
    ("80GiB", "bytes", 80 * 2**30),
    ("80 GiB", "bytes", 80 * 2**30),
    ("1.5GB", "bytes", 1_500_000_000),
    ("4096", "bytes", 4096),
    ("400Gbit/s", "bytes/s", 50e9),
    ("400Gb/s", "bytes/s", 50e9),
    ("400Gbps", "bytes/s", 50e9),
    ("300GB/s", "bytes/s", 300e9),
    ("312 TFLOP/s", "FLOP/s", 312e12),
    ("312TFLOPS", "FLOP/s", 312e12),
    ("1e21", "FLOP", 1e21),
    ("5.76e23FLOP", "FLOP", 5.76e23),
    ("300 EFLOP", "FLOP", 3e20),
    ("5us", "seconds", 5e-6),
    ("2ms", "seconds", 0.002),
    ("40%", "share", 0.4),
    ("0.4", "share", 0.4),
    (9007199254740993, "count", 9007199254740993),  # above 2^53: no float on the way
]


@pytest.mark.parametrize("text, kind, value", UNDERSTOOD, ids=[f"{t} as {k}" for t, k, _ in UNDERSTOOD])
def test_understood(text, kind, value):
    found = parse(text, kind)
    assert found == value
    assert isinstance(found, int) == (kind in ("count", "bytes"))


REFUSED = [
    ("80B", "bytes", "which is a count and no size; write 80GB"),
    ("80G", "bytes", "which is a count and no size; write 80GB"),
    ("80GB", "count", "which is a size in bytes and no count"),
    ("7B/s", "count", "whose unit is one of bytes/s"),
    ("312TFLOP/s", "bytes/s", "whose unit is one of FLOP/s"),
    ("5GB", "bytes/s", "whose unit is one of bytes"),
    ("-1", "count", "expected at least 0"),
    ("1.5", "count", "not a whole number"),
    ("150%", "share", "at most 1"),
    ("abc", "count", "expected a whole number"),
    ("", "bytes", "expected a size"),
    ("nan", "number", "expected a number"),
    ("inf", "number", "expected a number"),
    ("1e", "count", "expected"),
    ("7 X", "count", "unit X is not known"),
]


@pytest.mark.parametrize("text, kind, said", REFUSED, ids=[f"{t or 'nothing'} as {k}" for t, k, _ in REFUSED])
def test_refused(text, kind, said):
    with pytest.raises(QuantityError, match=said):
        parse(text, kind)


def test_least_and_above():
    with pytest.raises(QuantityError, match="expected at least 1"):
        parse("0", "count", least=1)
    with pytest.raises(QuantityError, match="expected more than 0"):
        parse("0", "bytes", above=True)


def test_all_problems_at_once():
    problems = Problems()
    assert problems.parse("--a", "7B", "count") == 7 * 10**9
    assert problems.parse("--b", None, "count") is None
    assert problems.parse("--c", "7GB", "count") is None
    assert problems.parse("--d", "7B", "bytes") is None
    with pytest.raises(ManifestError) as error:
        problems.refuse()
    assert [line.split(":")[0] for line in str(error.value).split("\n")] == ["--c", "--d"]


SHOWN = [
    (14e9, "bytes", "14.0 GB"),
    (999_600_000, "bytes", "1.00 GB"),
    (0, "bytes", "0 B"),
    (73_280, "bytes", "73.3 kB"),
    (7e9, "count", "7.00B"),
    (4096, "count", "4,096"),
    (312e12, "FLOP/s", "312 TFLOP/s"),
    (50e9, "bytes/s", "50.0 GB/s"),
    (0.375, "share", "37.5 %"),
    (2.08, "seconds", "2.08 s"),
    (5e-6, "seconds", "5.00 us"),
    (0.0112, "seconds", "11.2 ms"),
    (0, "seconds", "0 s"),
    (86400 * 92, "seconds", "92.0 d"),
    (3.2e-8, "seconds", "32.0 ns"),
    (5.76e23, "FLOP", "576 ZFLOP"),
]


@pytest.mark.parametrize("value, kind, text", SHOWN, ids=[text for *_, text in SHOWN])
def test_shown(value, kind, text):
    assert show(value, kind) == text


def test_a_devices_memory_is_shown_in_both_powers():
    assert both(80e9) == "80.0 GB (74.5 GiB)"
    assert both(36.2e6) == "36.2 MB (34.5 MiB)"


@given(st.integers(1000, 10**15))
def test_what_is_shown_is_read_as_nearly_the_same(number):
    for kind in ("bytes", "seconds"):
        assert parse(show(number, kind), kind) == pytest.approx(number, rel=0.006)
