"""--fail-on: the grammar, its errors, and what conditions say of a report; intervals and bounds of shares."""

import math
import re
from typing import Any, cast

import hypothesis.strategies as st
import pytest
import worked
from hypothesis import given

from datapipe.auditing.policy import EACH, MEASURES, OPERATORS, parse
from datapipe.auditing.report import Rate, Section, SetRow, Trace
from datapipe.auditing.statistics import Rates, rates, rule_of_three, wilson
from datapipe.contamination.model import FLAGGED
from datapipe.errors import ManifestError


def unfound(classes: dict[str, int]) -> Rates:
    """Where nothing was found of what could not be tested."""
    return rates(classes, {"untested": classes["untested"]} if "untested" in classes else {})


def row(suite: str, **classes: int) -> SetRow:
    own, counts = unfound(classes), cast(Any, classes)
    return SetRow(
        suite=suite, examples=own.examples, tested=own.tested, classes=counts, flagged=own.flagged,
        rate=Rate(found=own.found, of=own.tested, share=own.share, low=own.low, high=own.high),
        least=own.least, most=own.most, zero=own.zero, without_exclusion=own.flagged,
    )  # fmt: skip


def section(role: str, *rows: SetRow) -> Section:
    total: dict[Any, int] = {}
    for own in rows:
        for name, count in own.classes.items():
            total[name] = total.get(name, 0) + count
    return Section.model_construct(role=role, sets=rows, total=row("*", **total))


GSM = row("gsm8k", adjacent=2, prompt=3, near=1, clean=84, untested=10)
MMLU = row("mmlu.test", solution=1, passage=4, clean=95)
TRAIN = section("train", GSM, MMLU)


@pytest.mark.parametrize(
    "text, figures, violated",
    [
        ("gsm8k.adjacent > 0", {"gsm8k": 2}, True),
        ("gsm8k.adjacent>2", {"gsm8k": 2}, False),
        ("  gsm8k.adjacent  >=  2 ", {"gsm8k": 2}, True),
        ("mmlu.test.adjacent > 0", {"mmlu.test": 0}, False),
        ("'mmlu.test'.solution == 1", {"mmlu.test": 1}, True),
        ('"gsm8k".near != 1', {"gsm8k": 1}, False),
        ("flagged >= 7", {"*": 7}, True),
        ("flagged > 0.04", {"*": 7 / 200}, False),
        ("rate > 0.01", {"*": 7 / 190}, True),
        ("rate >= 1.0", {"*": 7 / 190}, False),
        ("rate <= 1", {"*": 7 / 190}, True),
        ("gsm8k.rate >= 0.0667", {"gsm8k": 6 / 90}, False),
        ("*.rate > 0.05", {"gsm8k": 6 / 90, "mmlu.test": 0.01}, True),
        ("gsm*.rate > 0.05", {"gsm8k": 6 / 90}, True),
        ("mmlu.*.solution > 1", {"mmlu.test": 1}, False),
        ("untested > 0.2", {"*": 0.05}, False),
        ("gsm8k.untested > 9", {"gsm8k": 10}, True),
        ("clean < 180", {"*": 179}, True),
        ("clean <= 178", {"*": 179}, False),
    ],
)
def test_conditions(text, figures, violated):
    found = parse(text).judge([TRAIN])
    assert found.expression == text
    assert found.figures == pytest.approx(figures)
    assert found.violated is violated


@pytest.mark.parametrize(
    "text, place, expected",
    [
        ("", 1, "a measure"),
        ("gsm8k.adjacent", 15, "one of >="),
        ("gsm8k.adjacnt > 0", 7, "a measure: adjacent, solution"),
        ("gsm8k > 0", 1, "a measure"),
        ("rate = 0.1", 6, "one of >="),
        ("rate >", 7, "a number"),
        ("rate > -1", 8, "a number"),
        ("rate > 1%", 9, "the end"),
        ("rate > 0.1 and flagged > 1", 12, "the end"),
        ("rate > 2", 8, "a share, 0 to 1"),
        ("rate > 1", 8, "a share, 0 to 1, where 1 % is 0.01"),  # no rate is: it would pass whatever is found
        ("rate>1.0", 6, "a share, 0 to 1, where 1 % is 0.01"),
        ("gsm8k.rate >= 1", 15, "a share, 0 to 1, where 1 % is 0.01 and all of them 1.0"),
        ("flagged > 1.0", 11, "a share, 0 to 1"),
        ("flagged > 1.5", 11, "a share, 0 to 1"),
        ("'gsm8k' > 0", 8, ". and a measure"),
        (".rate > 0.1", 1, "the name of a suite"),
        ("__import__('os').system('x')", 1, "a measure"),
        ("rate > 1e5", 9, "the end"),
    ],
)
def test_what_is_no_condition(text, place, expected):
    with pytest.raises(ManifestError) as error:
        parse(text)
    assert f"at character {place}: expected {expected}" in str(error.value)
    assert error.value.status == 2


def test_a_suite_that_is_not_there_is_named_with_those_that_are():
    for name in ("gsm", "sm*", "g*k"):
        said = rf"no eval suite '{re.escape(name)}'; there are: gsm8k, mmlu.test"
        with pytest.raises(ManifestError, match=said):
            parse(f"{name}.rate > 0.1").judge([TRAIN])
        with pytest.raises(ManifestError, match=said):
            parse(f"{name}.rate > 0.1").check(["gsm8k", "mmlu.test"])
    parse("gsm*.rate > 0.1").check(["gsm8k", "mmlu.test"])


FAILED = [("evals/gsm8k.jsonl.gz", "truncated"), ("other.csv", "empty")]


@pytest.mark.parametrize(
    "text, says, not_said",
    [
        ("gsm8k.adjacent > 0", "evals/gsm8k.jsonl.gz: truncated", "other.csv"),
        ("evals/gsm8k.adjacent > 0", "evals/gsm8k.jsonl.gz: truncated", "other.csv"),
        ("mine.adjacent > 0", "other.csv: empty", "no more"),  # which of them it was nobody knows
    ],
)
def test_a_suite_that_did_not_load_is_named_with_the_reason(text, says, not_said):
    with pytest.raises(ManifestError, match="no eval suite") as error:
        parse(text).check(["mmlu"], FAILED)
    assert says in str(error.value)
    assert not_said not in str(error.value)
    parse("mmlu.adjacent > 0").check(["mmlu"], FAILED)


@pytest.mark.parametrize(
    "untestable, value",
    [
        ({"prompt": 200}, 200 / 310),
        ({"prompt": 200, "clean": 100}, 200 / 310),
        ({"clean": 10}, 200 / 300),
        ({}, 200 / 310),
    ],
)
def test_a_rate_hides_nothing_that_flags(untestable, value):
    own = rates({"prompt": 200, "clean": 110}, untestable)
    flagged = row("s", prompt=200, clean=110).model_copy(
        update={"rate": Rate(found=own.found, of=own.tested, share=own.share, low=own.low, high=own.high),
                "least": own.least}
    )  # fmt: skip
    condition = parse("rate > 0.5")
    assert condition.value(flagged) == pytest.approx(value)
    assert condition.judge([section("train", flagged).model_copy(update={"total": flagged})]).violated


def test_what_is_not_known_keeps_no_limit():
    nothing = section("train", row("s", untested=5))
    assert parse("rate > 0.01").judge([nothing]).violated
    assert not parse("rate < 0.01").judge([nothing]).violated
    assert parse("rate > 0.01").judge([nothing]).figures == {}


def test_sections_are_judged_apart_and_validation_not_at_all():
    clean = section("train", row("s", clean=9))
    found = parse("flagged > 0").judge([clean, section("retrieval", row("s", prompt=1)), section("validation", GSM)])
    assert found.figures == {"train: *": 0, "retrieval: *": 1}
    assert found.violated
    assert not parse("flagged > 0").judge([clean, section("validation", GSM)]).violated


def trace(*rows: SetRow) -> Trace:
    return Trace.model_construct(sets=rows, total=section("retrieved", *rows).total)


SHOWN = {  # --fail-on, of a clean corpus, with a trace of gsm8k alone -> figures, whether it is violated
    "flagged > 0": ({"train: *": 0, "retrieved: *": 6}, True),
    "*.adjacent > 1": ({"train: gsm8k": 0, "train: mmlu.test": 0, "retrieved: gsm8k": 2}, True),
    "gsm8k.rate > 0.05": ({"train: gsm8k": 0, "retrieved: gsm8k": 6 / 90}, True),
    "mmlu.test.rate > 0.05": ({"train: mmlu.test": 0}, False),
    "*.rate > 0.1": ({"train: gsm8k": 0, "train: mmlu.test": 0, "retrieved: gsm8k": 6 / 90}, False),
}


@pytest.mark.parametrize("text, expected", SHOWN.items(), ids=SHOWN)
def test_what_a_trace_shows_is_judged_as_what_can_be_retrieved(text, expected):
    clean = section("train", row("gsm8k", clean=9), row("mmlu.test", clean=9))
    found = parse(text).judge([clean], trace(GSM))
    assert (found.figures, found.violated) == (pytest.approx(expected[0]), expected[1])


names = st.text(st.characters(blacklist_characters="'", blacklist_categories=["Cs"]), min_size=1, max_size=9)


@given(names, st.sampled_from(MEASURES), st.sampled_from(sorted(OPERATORS)), st.integers(0, 10**6))
def test_what_is_written_is_read(suite, measure, sign, number):
    bound = 0.5 if measure == "rate" else number
    found = parse(f"'{suite}'.{measure}{sign}{bound}")
    assert (found.suite, found.measure, found.operator, found.bound) == (suite, measure, sign, bound)


@given(st.text(max_size=30))
def test_any_text_is_a_condition_or_an_error_of_the_user(text):
    try:
        found = parse(text)
    except ManifestError:
        return
    assert found.measure in MEASURES
    assert found.suite is None or found.suite == EACH or found.suite


# --- statistics -------------------------------------------------------------------------------------------------


def test_worked_example_19_set():
    own = unfound(worked.SET)
    assert (own.examples, own.tested, own.flagged) == (200, 150, 12)
    assert own.share == pytest.approx(worked.SET_RATE)
    assert (own.low, own.high) == pytest.approx(worked.SET_WILSON, abs=5e-5)
    assert (own.least, own.most) == pytest.approx(worked.SET_BOUNDS)
    assert own.zero is None
    nothing = unfound({"clean": 150})
    assert (nothing.high, nothing.zero) == pytest.approx(worked.NOTHING_OF_150, abs=5e-4)
    assert nothing.low == 0.0


CLASSES_FOUND = {"short": 5, "untested": 5, "passage": 5, "prompt": 1, "clean": 4}
UNTESTABLE = {  # of these what could not be tested -> tested, flagged of them, rate, bounds
    "nothing that was found": ({"untested": 5}, (15, 1, 1 / 15, 0.05, 0.55)),
    "the short ones": ({"untested": 5, "short": 5}, (10, 1, 0.1, 0.05, 0.55)),
    "what flags": ({"untested": 5, "prompt": 1}, (14, 0, 0.0, 0.05, 0.55)),
    "passages": ({"untested": 5, "passage": 5}, (10, 1, 0.1, 0.05, 0.8)),
    "all": (CLASSES_FOUND, (0, 0, None, 0.05, 1.0)),
}


@pytest.mark.parametrize("untestable, expected", UNTESTABLE.values(), ids=UNTESTABLE)
def test_a_rate_is_of_what_could_be_tested_whatever_was_found(untestable, expected):
    own = rates(CLASSES_FOUND, untestable)
    assert (own.examples, own.flagged) == (20, 1)
    assert (own.tested, own.found, own.share, own.least, own.most) == pytest.approx(expected)
    assert (own.zero is None) == (bool(own.found) or not own.tested)


def test_rates_of_nothing():
    own = unfound({})
    assert (own.share, own.low, own.high, own.least, own.most, own.zero) == (None, 0.0, 1.0, 0.0, 1.0, None)
    own = unfound({"untested": 3})
    assert (own.share, own.least, own.most) == (None, 0.0, 1.0)


@pytest.mark.parametrize(
    "of, recall, limit",
    [(150, 1.0, 0.02), (150, 0.5, 0.04), (2, 1.0, 1.0), (0, 1.0, None), (150, 0.0, None), (9, None, None)],
)
def test_rule_of_three(of, recall, limit):
    assert rule_of_three(of, recall) == limit


@given(st.integers(0, 500), st.integers(0, 500))
def test_wilson_solves_its_equation(found, more):
    """The ends are the p for which found / of is z standard deviations away."""
    of = found + more
    low, high = wilson(found, of)
    assert 0 <= low <= high <= 1
    if of == 0:
        return
    share = found / of
    assert low <= share <= high
    for end in (low, high):
        if 0 < end < 1:
            assert abs(share - end) / math.sqrt(end * (1 - end) / of) == pytest.approx(1.959963984540054, rel=1e-6)


def test_impossible_counts():
    for call in (lambda: wilson(3, 2), lambda: wilson(-1, 2), lambda: rule_of_three(5, 1.5)):
        with pytest.raises(ValueError, match="expected"):
            call()


def test_the_report_names_the_same_classes():
    from datapipe.auditing import report
    from datapipe.contamination.model import CLASSES

    assert (report.CLASSES, report.FLAGGED) == (CLASSES, FLAGGED)
