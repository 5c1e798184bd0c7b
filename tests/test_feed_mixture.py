"""Mixture: at every prefix each split has its share to within one row, whatever the weights and the rows are."""

import json
from itertools import islice

import numpy as np
import pytest
from feeding import Stub, row_ids
from hypothesis import given, settings
from hypothesis import strategies as st

from datapipe.errors import DriftError, ManifestError
from datapipe.feed import Loader, mix
from datapipe.feed.mixture import choose, whole


@st.composite
def streams(draw):
    """Weights of up to 8 splits, and for each the amounts of its rows, over and over."""
    number = draw(st.integers(1, 8))
    weights = draw(st.lists(st.one_of(st.just(0.0), st.just(1e-6), st.floats(1e-4, 1), st.integers(1, 9).map(float)),
                            min_size=number, max_size=number).filter(any))  # fmt: skip
    amounts = draw(st.lists(st.lists(st.integers(1, 50), min_size=1, max_size=6), min_size=number, max_size=number))
    return weights, amounts


@given(streams())
@settings(max_examples=300, deadline=None)
def test_t11_the_bound_at_every_prefix(stream):
    """WF2Q: weight x T - largest row of all <= amount <= weight x T + (1 - weight) x largest row of its own."""
    weights, rows = stream
    shares = whole(tuple(weights))
    every = sum(shares)
    taken, count = [0] * len(rows), [0] * len(rows)
    largest = max(max(each) for each, share in zip(rows, shares, strict=True) if share)
    for _ in range(400):
        coming = [each[n % len(each)] for each, n in zip(rows, count, strict=True)]
        at = choose(shares, taken, coming)
        taken[at] += coming[at]
        count[at] += 1
        total = sum(taken)
        for share, amount, own in zip(shares, taken, rows, strict=True):  # all times `every`: whole numbers
            assert share * total - largest * every <= amount * every
            assert amount * every <= share * total + (every - share) * max(own)


@pytest.mark.parametrize("weights", [(1.0,), (1.0, 0.0), (1e-6, 1.0), (1e-300, 1.0, 0.0), (1, 1, 1), (1e6, 1e-6)])
def test_t11_extreme_weights(weights):
    """A split of weight 0 never comes, one of 1e-6 once in a million rows."""
    shares = whole(tuple(map(float, weights)))
    taken = [0] * len(shares)
    for _ in range(2000):
        taken[choose(shares, taken, [1] * len(shares))] += 1
    for share, amount in zip(shares, taken, strict=True):
        assert abs(amount - 2000 * share / sum(shares)) <= 1
        assert share or not amount


SPLITS = {"x": (Stub(300, masked=True), 0.7), "y": (Stub(170, dataset="e" * 64, sources=1), 0.2),
          "z": (Stub(64, dataset="f" * 64), 0.1)}  # fmt: skip


def mixed(weights=None, splits=None, **options):
    given = splits or SPLITS
    weights = weights or {name: weight for name, (_, weight) in given.items()}
    return mix({name: (given[name][0], weights[name]) for name in given}, **{"global_batch_rows": 6} | options)


AMOUNTS = {"rows": lambda b: np.ones(len(b)), "tokens": lambda b: b.n_tokens,
           "documents": lambda b: np.diff(b.rows.offsets)}  # fmt: skip


@pytest.mark.parametrize("unit", AMOUNTS)
def test_t11_every_unit_keeps_its_shares(unit):
    loader = mixed(mix_unit=unit)
    batches = list(islice(loader.forever(), 300))
    labels = np.array([label[0] for label in loader.sources])
    names = np.concatenate([labels[b.seg_source[b.rows.offsets[:-1]]] for b in batches])
    amounts = np.concatenate([AMOUNTS[unit](b) for b in batches]).astype(float)
    total = np.cumsum(amounts)
    for name, (_, weight) in SPLITS.items():
        got = np.cumsum(np.where(names == name, amounts, 0))
        assert np.abs(got - weight * total).max() <= amounts.max()


@pytest.mark.parametrize("unit", AMOUNTS)
def test_each_split_has_its_own_epochs(unit):
    """Whatever the weights, a split gives each of its rows once before any comes again."""
    loader = mixed(mix_unit=unit, weights={"x": 0.2, "y": 0.2, "z": 0.6})
    batches = list(islice(loader.forever(), 400))
    labels = np.array([label[0] for label in loader.sources])
    names = np.concatenate([labels[b.seg_source[b.rows.offsets[:-1]]] for b in batches])
    for name, (split, _) in SPLITS.items():
        rows = row_ids(batches)[names == name]
        for start in range(0, len(rows) - split.rows + 1, split.rows):
            assert np.array_equal(np.sort(rows[start : start + split.rows]), np.arange(split.rows))
    epochs = {name: at[0] for name, at in loader.state_dict()["mix"]["positions"].items()}
    assert epochs["z"] > epochs["x"] > 0


def run(loader, until, changes=()):
    """Batches up to that many in all, with new weights before some."""
    batches = []
    steps = {loader.position[0] * len(loader) + loader.position[1], *changes}
    for at in sorted(step for step in steps if step < until):
        if at in dict(changes):
            loader.reweight(dict(changes)[at])
        stop = min([step for step in steps if step > at], default=until)
        batches += list(islice(loader.forever(), min(stop, until) - at))
    return batches


CHANGES = {20: {"x": 0.1, "y": 0.9, "z": 0}, 35: {"x": 1e-6, "y": 0, "z": 1}}


@pytest.mark.parametrize("cut", [0, 1, 19, 20, 21, 34, 35, 36, 90])
@pytest.mark.parametrize("world", [1, 3])
def test_weights_change_at_a_recorded_step_without_loss_or_repeat(cut, world):
    whole = run(mixed(), 100, CHANGES)
    first = mixed()
    head = run(first, cut, CHANGES)
    state = json.loads(json.dumps(first.state_dict()))
    ranks = []
    for rank in range(world):
        loader = mixed(rank=rank, world=world)
        loader.load_state_dict(state)
        ranks.append(run(loader, 100, {at: w for at, w in CHANGES.items() if at >= cut}))
    tail = [np.stack([part.row_ids for part in parts], 1).reshape(-1) for parts in zip(*ranks, strict=True)]
    assert np.array_equal(np.concatenate([row_ids(head), *tail]), row_ids(whole))
    assert ranks[-1][-1].state == whole[-1].state
    assert [first for first, _ in whole[-1].state["mix"]["weights"]] == [0, 20, 35]
    first.verify(whole[-1].state)


def test_shares_hold_in_each_stretch_of_weights():
    loader = mixed(mix_unit="tokens")
    batches = run(loader, 100, CHANGES)
    labels = np.array([label[0] for label in loader.sources])
    stretches = [(0, 20, {"x": 0.7, "y": 0.2, "z": 0.1}), (20, 35, CHANGES[20]), (35, 100, CHANGES[35])]
    for first, stop, weights in stretches:
        here = batches[first:stop]
        names = np.concatenate([labels[b.seg_source[b.rows.offsets[:-1]]] for b in here])
        amounts = np.concatenate([b.n_tokens for b in here])
        total = np.cumsum(amounts)
        for name, weight in weights.items():
            got = np.cumsum(np.where(names == name, amounts, 0))
            assert np.abs(got - weight / sum(weights.values()) * total).max() <= 8


def test_any_batch_of_a_mix_again():
    loader = mixed()
    batches = run(loader, 120, CHANGES)
    for g in (119, 0, 20, 57, 88):
        epoch, at = divmod(g, len(loader))
        assert np.array_equal(loader.batch_at(at, epoch).row_ids, batches[g].row_ids)
    plan = loader.plan(30, 34)
    assert sorted(set(plan["row_id"].to_pylist())) == sorted(set(row_ids(batches[30:34]).tolist()))
    assert plan["position"][0].as_py() == 30 * 6


def test_one_split_alone_is_the_loader_of_that_split():
    split = Stub(50)
    alone = row_ids(mix({"a": (split, 3)}, global_batch_rows=5, mix_unit="rows"))
    assert np.array_equal(alone, row_ids(mix({"a": (split, 0.1), "b": (Stub(0, dataset="b" * 64), 0)},
                                             global_batch_rows=5)))  # fmt: skip
    assert np.array_equal(np.sort(alone), np.arange(50))


@pytest.mark.parametrize(
    "weights, message",
    [
        ({"x": -1, "y": 1, "z": 1}, "weight of x: -1"),
        ({"x": float("nan"), "y": 1, "z": 1}, "weight of x: nan"),
        ({"x": float("inf"), "y": 1, "z": 1}, "weight of x: inf"),
        ({"x": "1", "y": 1, "z": 1}, "weight of x: '1'"),
        ({"x": True, "y": 1, "z": 1}, "weight of x: True"),
        ({"x": 0, "y": 0, "z": 0}, "all are 0"),
    ],
)
def test_weights_that_are_none(weights, message):
    with pytest.raises(ManifestError, match=message):
        mixed(weights)
    loader = mixed()
    with pytest.raises(ManifestError, match=message):
        loader.reweight(weights)


def test_what_is_no_mix():
    with pytest.raises(ManifestError, match="one length"):
        mix({"a": (Stub(9), 1), "b": (Stub(9, length=16), 1)}, global_batch_rows=2)
    with pytest.raises(ManifestError, match="at least one split"):
        mix({}, global_batch_rows=2)
    with pytest.raises(ManifestError, match="weight of b: 1, but its split train has no rows"):
        mix({"a": (Stub(9), 1), "b": (Stub(0, dataset="e" * 64), 1)}, global_batch_rows=2)
    with pytest.raises(ManifestError, match="weights: are for x, y; the mix has x, y, z"):
        mixed().reweight({"x": 1, "y": 2})
    with pytest.raises(ManifestError, match="one split, not a mix"):
        Loader(Stub(9), global_batch_rows=3).reweight({"x": 1})


@pytest.mark.parametrize(
    "other, field",
    [
        ({"mix_unit": "rows"}, "mix.unit"),
        ({"weights": {"x": 1, "y": 1, "z": 1}}, "mix.weights"),
        ({"splits": {"x": SPLITS["x"], "y": SPLITS["y"]}}, "datasets"),
        ({"splits": SPLITS | {"z": (Stub(64, dataset="0" * 64), 0.1)}}, "datasets.z.dataset_id"),
        ({"splits": SPLITS | {"z": (Stub(65, dataset="f" * 64), 0.1)}}, "datasets.z.rows"),
    ],
)
def test_t7_a_mix_refuses_the_state_of_another(other, field):
    first = mixed()
    run(first, 5)
    with pytest.raises(DriftError, match=rf"^{field}: "):
        mixed(**other).load_state_dict(first.state_dict())
