"""Canonical JSON has one spelling, and keyed decisions hit their share without following each other."""

import datetime

import pytest
import xxhash
from hypothesis import given, settings
from hypothesis import strategies as st

from datapipe.keyed import bound, canonical, doc_id, doc_ids, keyed, keyed_each


@pytest.mark.parametrize(
    ("value", "spelling"),
    [
        ({"b": 1, "a": [None, True]}, b'{"a":[null,true],"b":1}'),
        ("é\u2028", b'"\\u00e9\\u2028"'),
        (datetime.date(2024, 3, 1), b'"2024-03-01"'),
        (0.1, b"0.1"),
    ],
)
def test_canonical(value, spelling):
    assert canonical(value) == spelling


@pytest.mark.parametrize("value", [float("nan"), float("inf"), [float("-inf")]])
def test_canonical_json_has_no_nan(value):
    with pytest.raises(ValueError, match="JSON"):
        canonical(value)


def test_a_decision_is_the_hash_of_purpose_salt_and_key():
    assert keyed("holdout", "h1", "a") == xxhash.xxh3_64_intdigest(b'["holdout","h1","a"]')
    assert len({keyed("holdout", "h1", "a"), keyed("sample", "h1", "a"), keyed("holdout", "h2", "a")}) == 3


@settings(max_examples=30)
@given(
    salt=st.one_of(st.none(), st.integers(), st.text()), keys=st.lists(st.text(st.characters(exclude_categories=())))
)
def test_many_keys_at_once_are_keyed(salt, keys):
    assert list(keyed_each("bucket", salt, keys)) == [keyed("bucket", salt, one) for one in keys]


@settings(max_examples=30)
@given(
    source=st.text(), rows=st.lists(st.tuples(st.none() | st.text(), st.from_regex(r"[0-9a-f]{32}", fullmatch=True)))
)
def test_many_names_at_once_are_doc_ids(source, rows):
    ids, raw = [row[0] for row in rows], [row[1] for row in rows]
    assert doc_ids(source, ids, raw) == [doc_id(source, own, text, 0) for own, text in rows]


def test_bounds_are_exact_at_the_ends():
    assert (bound(0.0), bound(1.0), bound(0.5)) == (0, 1 << 64, 1 << 63)


def test_a_fraction_of_the_keys_falls_below_its_bound():
    share = sum(keyed("sample", None, n) < bound(0.1) for n in range(20_000)) / 20_000
    assert abs(share - 0.1) < 0.01


def test_doc_id_names_source_own_id_text_and_repetition():
    names = {doc_id("web", "1", "ab", 0), doc_id("code", "1", "ab", 0), doc_id("web", None, "ab", 0),
             doc_id("web", "1", "cd", 0), doc_id("web", "1", "ab", 1)}  # fmt: skip
    assert len(names) == 5
    assert all(len(name) == 32 for name in names)
