"""Training and serving together, repeated data: published rows, optima by brute force, identities, monotonicity."""

import json
import math

import pytest
import synthetic
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from datapipe import cli
from datapipe.build_manifest import load
from datapipe.estimate import lifetime
from datapipe.estimate.constants import PUBLISHED, Constants
from datapipe.estimate.lifetime import R_STAR_D, R_STAR_N, Serving, for_budget, for_loss, needed, worth
from datapipe.estimate.supply import supply

SARDANA, BESIROGLU, MUENNIGHOFF = (PUBLISHED[name] for name in ("sardana", "besiroglu", "muennighoff"))

ROWS = {  # model whose quality is wanted, Dinf: N*, D*/D of Chinchilla, D*/N*, saved
    "Sardana 2401.00448: 7B, 1e11 (6B on 1.18 times)": (SARDANA, 7e9, 1e11, 6.00e9, 1.176, 54, 0.008),
    "Sardana 2401.00448: 13B, 2e12 (7B, 17 %)": (SARDANA, 13e9, 2e12, 6.97e9, 2.165, 179, 0.174),
    "Sardana 2401.00448: 30B, 1e13 (13.6B, 2.84 times, 28 %)": (SARDANA, 30e9, 1e13, 13.6e9, 2.845, 325, 0.280),
    "Sardana 2401.00448: 70B, 2e12 (Chinchilla takes 1.3 % more)": (SARDANA, 70e9, 2e12, 57.9e9, 1.223, 90, 0.013),
    "computed, Besiroglu's constants: 30B, 1e13": (BESIROGLU, 30e9, 1e13, 11.6e9, 4.25, 210.6, 0.427),
    "computed, Hoffmann's as printed: 30B, 1e13": (
        PUBLISHED["hoffmann_rounded"], 30e9, 1e13, 15.9e9, 2.211, 381.5, 0.182,
    ),
}  # fmt: skip


@pytest.mark.parametrize("constants, n, dinf, best, more, ratio, saved", ROWS.values(), ids=ROWS)
def test_published_lifetimes(constants, n, dinf, best, more, ratio, saved):
    d = constants.budget_of(n) / (6 * n)
    found = for_loss(constants, constants.loss(n, d), dinf)
    assert found is not None
    assert found.n == pytest.approx(best, rel=4e-3)
    assert found.d / d == pytest.approx(more, rel=2e-3)
    assert found.d / found.n == pytest.approx(ratio, rel=6e-3)
    before, after = 6 * n * d + 2 * n * dinf, found.compute + 2 * found.n * dinf
    assert 1 - after / before == pytest.approx(saved, abs=1e-3)


def test_sardana_2401_00448_saves_17e21_operations_for_13b():
    n, dinf = 13e9, 2e12
    d = SARDANA.budget_of(n) / (6 * n)
    found = for_loss(SARDANA, SARDANA.loss(n, d), dinf)
    assert found is not None
    assert 6 * n * d + 2 * n * dinf - found.compute - 2 * found.n * dinf == pytest.approx(1.69e22, rel=5e-3)


def test_sardana_2401_00448_70b_chinchilla_takes_more():
    n, dinf = 70e9, 2e12
    d = SARDANA.budget_of(n) / (6 * n)
    found = for_loss(SARDANA, SARDANA.loss(n, d), dinf)
    assert found is not None
    assert (6 * n * d + 2 * n * dinf) / (found.compute + 2 * found.n * dinf) - 1 == pytest.approx(0.013, abs=5e-4)


# --- what has to hold for any constants -------------------------------------------------------------------------------

ANY = st.builds(
    Constants,
    st.just("any"), st.floats(0.5, 2.5), st.floats(10, 5e3), st.floats(10, 2e4),
    st.floats(0.2, 0.6), st.floats(0.2, 0.6), st.just("made"),
)  # fmt: skip
SIZE = st.floats(7, 11.5).map(lambda power: 10.0**power)
SERVED = st.floats(8, 14).map(lambda power: 10.0**power)


@given(ANY, SIZE)
def test_without_serving_it_is_chinchilla(constants, n):
    d = constants.budget_of(n) / (6 * n)
    found = for_loss(constants, constants.loss(n, d))
    assert found is not None
    assert found.n == pytest.approx(n, rel=1e-5)
    assert found.d == pytest.approx(d, rel=1e-4)


@given(ANY, SIZE)
def test_without_serving_the_root_is_the_frontier_in_closed_form(constants, n):
    """The least 6ND of a loss: 6 ((A G^-alpha + B G^beta) / (L - E))^((alpha + beta) / (alpha beta))."""
    a, b, target = constants.alpha, constants.beta, constants.loss(n, constants.budget_of(n) / (6 * n))
    found = for_loss(constants, target)
    assert found is not None
    scale = constants.A * constants.G**-a + constants.B * constants.G**b
    assert found.compute == pytest.approx(6 * (scale / (target - constants.E)) ** ((a + b) / (a * b)), rel=1e-3)


@given(ANY, SIZE, SERVED)
def test_the_condition_holds_and_nothing_near_is_cheaper(constants, n, dinf):
    target = constants.loss(n, constants.budget_of(n) / (6 * n))
    found = for_loss(constants, target, dinf)
    assert found is not None
    assert constants.loss(found.n, found.d) == pytest.approx(target, rel=1e-9)
    left = constants.alpha * constants.A * found.n**-constants.alpha
    right = constants.beta * constants.B * found.d**-constants.beta * (1 + dinf / (3 * found.d))
    assert left == pytest.approx(right, rel=1e-6)
    cost = found.compute + 2 * found.n * dinf
    for times in (0.3, 0.8, 0.99, 1.01, 1.2, 3, 30):  # other sizes of the same loss
        d = constants.tokens_for(found.n * times, target)
        assert 6 * found.n * times * d + 2 * found.n * times * dinf >= cost * (1 - 1e-9)


@given(ANY, SIZE, SERVED, st.floats(1.1, 50))
def test_who_serves_more_trains_a_smaller_model_longer(constants, n, dinf, times):
    target = constants.loss(n, constants.budget_of(n) / (6 * n))
    less, more = for_loss(constants, target, dinf), for_loss(constants, target, dinf * times)
    assert less is not None
    assert more is not None
    assert more.n <= less.n * (1 + 1e-9)
    assert more.d >= less.d * (1 - 1e-9)


@settings(deadline=None, max_examples=25)
@given(ANY, SIZE, SERVED)
def test_search_and_condition_agree_where_nothing_repeats(constants, n, dinf):
    target = constants.loss(n, constants.budget_of(n) / (6 * n))
    root, search = for_loss(constants, target, dinf), for_loss(constants, target, dinf, unique=1e40)
    assert root is not None
    assert search is not None
    assert search.n == pytest.approx(root.n, rel=1e-5)


@settings(deadline=None, max_examples=25)
@given(ANY, SIZE, SERVED)
def test_one_budget_for_both_is_the_same_bargain(constants, n, dinf):
    """Least loss for a cost and least cost for a loss: the same point."""
    target = constants.loss(n, constants.budget_of(n) / (6 * n))
    cheapest = for_loss(constants, target, dinf)
    assert cheapest is not None
    best = for_budget(constants, cheapest.compute + 2 * cheapest.n * dinf, dinf=dinf)
    assert best is not None
    assert best.loss == pytest.approx(target, rel=1e-7)
    assert best.n == pytest.approx(cheapest.n, rel=1e-3)


def test_what_cannot_be_reached_is_none():
    assert for_loss(BESIROGLU, BESIROGLU.E) is None
    assert for_loss(BESIROGLU, 2.0, unique=1e9) is None
    assert for_budget(BESIROGLU, 1e12, dinf=1e12) is None


# --- costs ------------------------------------------------------------------------------------------------------------


def test_costs_follow_rates_and_prices():
    """6ND c/MFU_tr + 2N c (D_in/MFU_in + D_out/MFU_out)."""
    serving = Serving(
        read=3e12, written=1e12, mfu_train=0.5, mfu_read=0.4, mfu_written=0.02,
        price_train=2 / 3600, price_serve=1 / 3600, peak_train=1e15, peak_serve=5e14,
    )  # fmt: skip
    n, d = 7e9, 2e12
    costs = serving.costs(n, d)
    assert costs[0] == pytest.approx(6 * n * d * 2 / 3600 / 1e15 / 0.5)
    assert costs[1] == pytest.approx(2 * n * 3e12 * 1 / 3600 / 5e14 / 0.4)
    assert costs[2] == pytest.approx(2 * n * 1e12 * 1 / 3600 / 5e14 / 0.02)
    assert (costs[1] + costs[2]) / costs[0] == pytest.approx(2 * serving.weight / (6 * d))
    assert Serving(read=1e12, written=2e12).weight == 3e12
    assert Serving(written=1e12, mfu_train=0.5, mfu_read=0.5, mfu_written=0.05).weight == pytest.approx(1e13)


@given(SIZE, SERVED, st.floats(0.01, 1), st.floats(0.01, 1))
def test_the_weighed_optimum_is_the_cheapest(n, dinf, mfu, slow):
    serving = Serving(written=dinf, mfu_train=mfu, mfu_read=mfu, mfu_written=mfu * slow)
    target = BESIROGLU.loss(n, BESIROGLU.budget_of(n) / (6 * n))
    found = for_loss(BESIROGLU, target, serving.weight)
    assert found is not None
    best = sum(serving.costs(found.n, found.d))
    for times in (0.5, 0.9, 1.1, 2):
        d = BESIROGLU.tokens_for(found.n * times, target)
        assert sum(serving.costs(found.n * times, d)) >= best * (1 - 1e-9)


# --- repeats ----------------------------------------------------------------------------------------------------------


def test_muennighoff_2305_16264_repeats():
    """D' = U + U R*(1 - exp(-R/R*)), R* = 15.387756: four passes are worth nearly new data, forty far less."""
    assert (R_STAR_D, R_STAR_N) == (15.387756, 5.309743)
    assert worth(1e9, 1e9) == 1e9
    for passes in (2, 4, 16, 40, 100):
        r = passes - 1
        assert worth(passes * 1e9, 1e9) == pytest.approx(
            1e9 + 1e9 * R_STAR_D * (1 - math.exp(-r / R_STAR_D)), rel=1e-12
        )
    assert worth(4e9, 1e9) / 4e9 == pytest.approx(0.931, abs=2e-3)
    assert worth(1e15, 1e9) == pytest.approx((1 + R_STAR_D) * 1e9)


@given(st.floats(1e6, 1e13), st.floats(0.01, 1000))
def test_repeats_are_never_worth_more_than_new_targets(unique, passes):
    d = unique * passes
    value = worth(d, unique)
    assert value <= d * (1 + 1e-12)
    assert value <= worth(d * 1.1, unique) * (1 + 1e-12)
    assert (value == d) == (passes <= 1 or math.isclose(value, d))
    assume(passes < 100)
    assert needed(value, unique) == pytest.approx(d, rel=1e-6)
    assert math.isinf(needed(unique * (1 + R_STAR_D) * 1.001, unique))


def test_the_search_goes_quietly_where_nothing_is_reached():
    """numpy warned of inf - inf where the best size lies next to sizes that never reach the loss."""
    target = lifetime.loss(SARDANA, 13e9, SARDANA.budget_of(13e9) / (6 * 13e9), 1e11)
    sizes = []
    for i in range(90):
        found = for_loss(SARDANA, target, 5.1e10 * 10 ** (i * 5 / 89), 1e11)
        assert found is not None
        sizes.append(found.n)
    assert sizes == sorted(sizes, reverse=True)


@pytest.mark.parametrize("dinf", [1e13, 1e15, 1e17])
def test_the_edge_of_what_repeats_can_reach(dinf):
    """Who serves much wants the smallest model that few data can still bring to the loss."""
    target, unique = 2.05, 1e11
    found = for_loss(SARDANA, target, dinf, unique)
    assert found is not None
    assert lifetime.loss(SARDANA, found.n, found.d, unique) == pytest.approx(target, rel=1e-8)
    smallest = (SARDANA.A / (target - SARDANA.E - SARDANA.B * (unique * (1 + R_STAR_D)) ** -SARDANA.beta)) ** (
        1 / SARDANA.alpha
    )
    assert found.n > smallest
    cost = found.compute + 2 * found.n * dinf
    for times in (0.99, 0.9999, 1.0001, 1.01, 1.5):
        d = lifetime._tokens(SARDANA, found.n * times, target, unique)
        assert found.n * times * (6 * d + 2 * dinf) >= cost * (1 - 1e-6)


@pytest.mark.parametrize("constants", [BESIROGLU, MUENNIGHOFF], ids=lambda one: one.name)
def test_scarce_data_make_the_best_model_larger(constants):
    budget = 1e22
    plain = for_budget(constants, budget)
    assert plain is not None
    assert for_budget(constants, budget, unique=plain.d * 1.01) == (
        plain if not constants.excess else pytest.approx(plain)
    )
    scarce = for_budget(constants, budget, unique=plain.d / 20)
    assert scarce is not None
    assert scarce.loss > plain.loss
    assert 6 * scarce.n * scarce.d == pytest.approx(budget)
    for times in (0.5, 0.9, 1.1, 2):
        assert lifetime.loss(constants, scarce.n * times, scarce.d / times, plain.d / 20) >= scarce.loss * (1 - 1e-9)
    if constants.excess:
        assert scarce.n < plain.n * 1.5  # parameters beyond the data's optimum are worth less, too
    else:
        assert scarce.n > plain.n


def test_repeats_in_a_lifetime():
    """The least cost with few data, against every size."""
    for constants in (BESIROGLU, MUENNIGHOFF):
        n = 1e9
        d = constants.budget_of(n) / (6 * n)
        target, unique, dinf = constants.loss(n, d), d / 4, 1e12
        found = for_loss(constants, target, dinf, unique)
        assert found is not None
        assert lifetime.loss(constants, found.n, found.d, unique) == pytest.approx(target, rel=1e-8)
        cost = found.compute + 2 * found.n * dinf
        for times in (0.5, 0.9, 0.99, 1.01, 1.1, 2):
            other = lifetime._tokens(constants, found.n * times, target, unique)
            assert 6 * found.n * times * other + 2 * found.n * times * dinf >= cost * (1 - 1e-7)


# --- the command ------------------------------------------------------------------------------------------------------


def asked(capsys, *args: object) -> dict:
    assert cli.run(["estimate", "scaling", *map(str, args), "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_a_build_says_how_many_targets_there_are(capsys, tmp_path):
    build = synthetic.build(tmp_path).path
    made = load(build)
    found = supply(made)
    assert found.effective == made.splits.train.tokens.targets
    shares = made.splits.train.by_source.values()
    assert found.unique == pytest.approx(sum(x.targets * min(1, x.documents / max(x.copies, 1)) for x in shares))
    answer = asked(capsys, "--build", build, "--params", "1e6")
    assert answer["build"] == found.as_json()
    (plan,) = answer["plans"]
    assert plan["D"] == found.effective
    twice = asked(capsys, "--build", build, "--params", "1e6", "--epochs", 10)["plans"][0]
    assert twice["D"] == 10 * found.effective
    assert twice["D_worth"] == pytest.approx(worth(10 * found.effective, found.unique))
    assert "different targets" in twice["notes"][0]


def test_copies_of_a_mixture_are_repeats(tmp_path):
    build = synthetic.build(tmp_path).path
    splits = json.loads((build / "manifest.json").read_bytes())["splits"]
    share = splits["train"]["by_source"]["web"]
    for other in splits["train"]["by_source"].values():
        other["copies"] = other["documents"]
    share["copies"] = 2 * share["documents"]
    synthetic.change(build, splits=splits)
    found = supply(load(build))
    rest = sum(x["targets"] for name, x in splits["train"]["by_source"].items() if name != "web")
    assert found.unique == pytest.approx(share["targets"] / 2 + rest)


def test_a_lifetime_in_money(capsys):
    flags = ("--params", "13B", "--constants", "sardana", "--input-tokens", "1T", "--output-tokens", "1T")
    plain = asked(capsys, *flags)
    names = [plan["name"] for plan in plain["plans"]]
    assert names == ["optimal D", "lifetime"]
    life = plain["plans"][1]
    assert life["N"] == pytest.approx(6.97e9, rel=2e-3)
    terms = {term["name"]: term["value"] for term in life["cost"]["terms"]}
    assert terms["cost.training"] == pytest.approx(life["C"])
    assert terms["cost.reading"] == terms["cost.writing"] == pytest.approx(2 * life["N"] * 1e12)
    money = asked(capsys, *flags, "--peak", "1PFLOP/s", "--price", 2, "--mfu-train", "50%", "--mfu-output", "1%")
    paid = money["plans"][1]
    assert paid["N"] < life["N"]
    assert paid["cost"]["title"] == "cost of the model's life, money"
    assert paid["cost"]["terms"][0]["value"] == pytest.approx(paid["C"] / 0.5 / 1e15 / 3600 * 2)
    without = asked(capsys, *flags, "--without", "cost.reading", "--set", "cost.writing=5")["plans"][1]["cost"]
    assert without["total"] == pytest.approx(life["C"] + 5)


def test_far_more_tokens_than_runs_ever_had_is_said(capsys):
    assert cli.run(["estimate", "scaling", "--params", "1B", "--tokens", "15T"]) == 0
    out = capsys.readouterr().out
    assert "Sardana et al. 2401.00448, table 1" in out
    assert "outside: " in out
