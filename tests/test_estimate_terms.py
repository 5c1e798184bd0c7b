"""Tables of terms: they add up, terms and groups are replaced and left out, wrong names are listed."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from datapipe.errors import ManifestError
from datapipe.estimate.terms import SOURCES, Table, Term, changes

TERMS = (
    Term("weights", 14e9, "bytes", "2 P", "ZeRO"),
    Term("optimizer.master", 28e9, "bytes", "4 P", "ZeRO"),
    Term("optimizer.moments", 56e9, "bytes", "8 P", "ZeRO"),
    Term("workspace.logits", 1e9, "bytes", "4 s b V", "Megatron"),
)
TABLE = Table("a device", TERMS, ("one",))


def test_sums_of_terms_and_groups():
    assert TABLE.total == 99e9
    assert TABLE.groups() == {"weights": 14e9, "optimizer": 84e9, "workspace": 1e9}
    assert TABLE.value("optimizer") == 84e9
    assert TABLE.value("optimizer.master") == 28e9
    assert TABLE.value("opt") == 0
    assert TABLE.dominant() is TERMS[2]
    assert Table("empty", ()).total == 0
    assert Table("empty", ()).dominant() is None


CHANGED = {
    "another value": ({"weights": 1e9}, (), 86e9),
    "a term of a group": ({"optimizer.master": 0.0}, (), 71e9),
    "a whole group": ({"optimizer": 10e9}, (), 25e9),
    "a term left out": ({}, ("workspace.logits",), 98e9),
    "a group left out": ({}, ("optimizer",), 15e9),
    "both": ({"weights": 7e9}, ("optimizer",), 8e9),
    "left out wins": ({"weights": 7e9}, ("weights",), 85e9),
}


@pytest.mark.parametrize("put, without, total", CHANGED.values(), ids=CHANGED)
def test_changes(put, without, total):
    changed = TABLE.changed(put, without)
    assert changed.total == total
    assert changed.assumptions == TABLE.assumptions
    for name in put:
        if name not in without:
            (term,) = [term for term in changed.terms if term.name == name]
            assert (term.source, term.formula) == ("you", "set")
            assert "instead of" in term.note


def test_settings_of_the_command_line():
    assert changes(["weights=2GB", "optimizer=1GiB"], ["workspace"], TABLE.names(), "bytes") == {
        "weights": 2e9,
        "optimizer": 2.0**30,
    }


def test_all_wrong_settings_at_once():
    with pytest.raises(ManifestError) as error:
        changes(["weights", "weihgts=1", "weights=1B"], ["nothing"], TABLE.names(), "bytes")
    lines = str(error.value).split("\n")
    assert len(lines) == 4
    assert "expected TERM=VALUE" in lines[0]
    assert "there are optimizer, optimizer.master" in lines[1]
    assert "count and no size" in lines[2]
    assert lines[3].startswith("--without nothing")


def test_json_has_formula_and_full_source():
    found = TABLE.as_json()
    assert found["total"] == 99e9
    assert found["terms"][0]["source"] == SOURCES["ZeRO"]
    assert found["terms"][0]["formula"] == "2 P"


names = st.from_regex(r"[a-c](\.[a-d])?", fullmatch=True)


@given(st.lists(st.tuples(names, st.floats(0, 1e15)), unique_by=lambda pair: pair[0]))
def test_terms_add_up(pairs):
    table = Table("t", tuple(Term(name, value, "bytes", "", "you") for name, value in pairs))
    assert table.total == math.fsum(value for _, value in pairs)
    assert math.fsum(table.groups().values()) == pytest.approx(table.total)
    for name, value in pairs:
        assert table.changed({}, [name]).total <= table.total
        assert table.value(name) >= value
