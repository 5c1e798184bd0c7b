"""Bytes and seconds of a step against published formulas; bubbles, imbalance, splits; rows of a build."""

from dataclasses import replace

import numpy as np
import pyarrow.parquet as pq
import pytest
import synthetic
from hypothesis import given, settings
from hypothesis import strategies as st

from datapipe.errors import DataError, IntegrityError, ManifestError
from datapipe.estimate import flops, parallel, rows, search
from datapipe.estimate.parallel import Load, Machine
from datapipe.estimate.setup import RECOMPUTE, Setup
from datapipe.estimate.shape import Shape

SHAPE = Shape(8, 512, 8, 2048, 1024, norm="rms", final_norm=False)
SPARSE = Shape(8, 512, 8, 1024, 1024, norm="rms", experts=8, active=2)
MACHINE = Machine(rate=1e14, efficiency=0.5, per_node=8, inside=1e11, between=1e10, latency_inside=0, latency_between=0)

BUBBLES = {  # p, m, v: over the ideal time, of all time
    "Narayanan 2104.04473 section 2.2.1: p = 4, m = 8": ((4, 8, 1), 0.375, 3 / 11),
    "Narayanan 2104.04473 section 2.2.2: p = 4, m = 8, v = 2": ((4, 8, 2), 0.1875, 3 / 19),
    "one stage": ((1, 8, 1), 0, 0),
    "one microbatch": ((4, 1, 1), 3, 0.75),
}


@pytest.mark.parametrize("keys, ideal, share", BUBBLES.values(), ids=BUBBLES)
def test_bubbles(keys, ideal, share):
    assert parallel.bubble(*keys) == ideal
    assert parallel.bubble_share(*keys) == pytest.approx(share)


def test_the_bubble_of_a_step_of_equal_stages():
    """p = 4, m = 8: a step has 3/8 more than its computation, 3/11 of all."""
    load = Load(stages=(1, 1, 1, 1))
    cost = parallel.cost(SHAPE, Setup(pp=4, microbatches=8), MACHINE, load, without=["communication"])
    assert cost.times.value("bubble") / cost.times.value("compute") == pytest.approx(0.375)
    assert cost.times.value("bubble") / cost.seconds == pytest.approx(3 / 11)
    assert cost.times.value("imbalance") == 0
    interleaved = Setup(pp=4, microbatches=8, interleave=2)
    half = parallel.cost(SHAPE, interleaved, MACHINE, load, without=["communication"])
    assert half.times.value("bubble") == pytest.approx(cost.times.value("bubble") / 2)


def test_collectives():
    assert parallel.all_reduce(1, 1e9) == parallel.gather(1, 1e9) == 0
    assert parallel.all_reduce(4, 1e9) == 1.5e9
    assert parallel.gather(4, 1e9) == 0.75e9


def volume(shape: Shape, name: str, **keys) -> float:
    return parallel.cost(shape, Setup(**keys), MACHINE).volumes.value(name)


P = SHAPE.counted
SBH = 2 * 2048 * 512  # bytes of a stream of 2,048 tokens
VOLUMES = {
    "ring: data parallel, 2P numbers a step": (SHAPE, "dp", {"dp": 4}, 2 * 0.75 * 2 * P),
    "ZeRO 1910.02054 section 7: Pos the same": (SHAPE, "dp", {"dp": 4, "zero": 1}, 2 * 0.75 * 2 * P),
    "ZeRO 1910.02054 section 7: Pos+g the same": (SHAPE, "dp", {"dp": 4, "zero": 2}, 2 * 0.75 * 2 * P),
    "ZeRO 1910.02054 section 7: Pos+g+p 3P": (SHAPE, "dp", {"dp": 4, "zero": 3}, 3 * 0.75 * 2 * P),
    "ZeRO-3, weights gathered for each of 5 passes": (
        SHAPE,
        "dp",
        {"dp": 4, "zero": 3, "microbatches": 5},
        11 * 0.75 * 2 * P,
    ),
    "ZeRO-3, weights gathered once": (
        SHAPE,
        "dp",
        {"dp": 4, "zero": 3, "microbatches": 5, "regather": False},
        3 * 0.75 * 2 * P,
    ),
    "one rank sends nothing": (SHAPE, "dp", {}, 0),
    "Korthikanti section 4.1: four all-reduces of sbh a layer": (SHAPE, "tp", {"tp": 4}, 4 * 8 * 1.5 * SBH),
    "Korthikanti section 4.2: sequences send as much": (
        SHAPE,
        "tp",
        {"tp": 4, "sequence_parallel": True},
        4 * 8 * 1.5 * SBH,
    ),
    "full recompute does two more": (SHAPE, "tp", {"tp": 4, "recompute": "full"}, 6 * 8 * 1.5 * SBH),
    "and each pass again": (SHAPE, "tp", {"tp": 4, "microbatches": 3}, 3 * 4 * 8 * 1.5 * SBH),
    "Narayanan section 2.2: sbh a boundary and pass each way": (SHAPE, "pp", {"pp": 4, "microbatches": 8}, 2 * 8 * SBH),
    "Narayanan section 2.2.2: interleaving sends v times as much": (
        SHAPE,
        "pp",
        {"pp": 4, "microbatches": 8, "interleave": 2},
        2 * 2 * 8 * SBH,
    ),
    "one stage sends nothing": (SHAPE, "pp", {}, 0),
    "GShard: four all-to-alls of sbhk (E - 1)/E": (SPARSE, "ep", {"dp": 4, "ep": 4}, 4 * 8 * 0.75 * 2 * SBH),
    "experts on every rank send no tokens": (SPARSE, "ep", {"dp": 4}, 0),
    "experts of all ranks need no all-reduce": (SPARSE, "dp_experts", {"dp": 4, "ep": 4}, 0),
    "experts of half the ranks": (SPARSE, "dp_experts", {"dp": 4, "ep": 2}, 2 * 0.5 * 2 * 8 * 8 * 2 * 512 * 1024 / 2),
}


@pytest.mark.parametrize("shape, name, keys, expected", VOLUMES.values(), ids=VOLUMES)
def test_volumes(shape, name, keys, expected):
    assert volume(shape, name, **keys) == pytest.approx(expected)


def test_seconds_are_volume_over_bandwidth_and_latency():
    slow = replace(MACHINE, latency_inside=1e-3)
    fast, late = (parallel.cost(SHAPE, Setup(tp=4), m).times.value("communication.tp") for m in (MACHINE, slow))
    assert fast == pytest.approx(4 * 8 * 1.5 * SBH / 1e11)
    assert late - fast == pytest.approx(4 * 8 * 2 * 3 * 1e-3)
    inside, between = (parallel.cost(SHAPE, Setup(dp=n), MACHINE).times.value("communication.dp") for n in (8, 16))
    assert inside == pytest.approx(2 * 7 / 8 * 2 * P / 1e11)
    assert between == pytest.approx(2 * 15 / 16 * 2 * P / 1e10)


def test_computation_is_operations_over_rate():
    one = parallel.cost(SHAPE, Setup(microbatch=2, microbatches=3), MACHINE)
    assert one.seconds == pytest.approx(6 * flops.exact(SHAPE, 2048) / 5e13)
    assert one.mfu == pytest.approx(0.5)
    assert one.tokens_per_second == pytest.approx(6 * 2048 / one.seconds)
    assert one.bottleneck()[0] == "compute"
    assert one.lost() is None


def test_full_recompute_is_about_8_nd_for_6_nd():
    shape = Shape(32, 4096, 32, 16384, 100)  # a head that does not count
    none, full = (parallel.cost(shape, Setup(recompute=r), MACHINE).seconds for r in ("none", "full"))
    assert full / none == pytest.approx(8 / 6, rel=1e-3)


def test_selective_recompute_does_the_core_again():
    """Its forward pass costs s/(18h) of the products: s/(6h) is the whole core (Korthikanti 2205.05198)."""
    shape = Shape(96, 12288, 96, 4 * 12288, 51200)
    keys = {"fused": False, "recompute": "selective"}
    cost = parallel.cost(shape, Setup(**keys), MACHINE)
    products = cost.times.value("compute.attention_products") + cost.times.value("compute.mlp_products")
    assert cost.times.value("compute.recompute") / products == pytest.approx(2048 / (18 * 12288))
    assert cost.times.value("compute.attention_core") / products == pytest.approx(2048 / (6 * 12288))


# --- imbalance ------------------------------------------------------------------------------------------------------


def test_stages_of_unequal_cost():
    cost = parallel.cost(
        SHAPE, Setup(pp=4, microbatches=8), MACHINE, Load(stages=(1, 1, 1, 2)), without=["communication"]
    )
    mean = cost.times.value("compute") / 8
    assert cost.times.value("imbalance.stages") == pytest.approx(8 * mean * 0.6)  # 2 of a mean of 1.25
    assert cost.times.value("bubble") == pytest.approx(3 * mean * 1.6)
    assert cost.seconds == pytest.approx((8 + 3) * mean * 1.6)


def test_the_head_makes_the_last_stage_slow():
    wide = replace(SHAPE, vocabulary=100_000)
    assert parallel.cost(wide, Setup(pp=4, microbatches=8), MACHINE).times.value("imbalance.stages") > 0


EXPERTS = {
    "even": ((1.0,) * 8, 0.0, 1, 0),
    "one has five of twelve": ((5, 1, 1, 1, 1, 1, 1, 1), 0.0, (5 + 1) / 3, 0),
    "a capacity of 1.5 bounds it": ((5, 1, 1, 1, 1, 1, 1, 1), 1.5, (2.25 + 1) / 3, 2.75 / 12),
    "a capacity that nothing reaches": ((5, 1, 1, 1, 1, 1, 1, 1), 4.0, 2, 0),
}


@pytest.mark.parametrize("loads, capacity, factor, dropped", EXPERTS.values(), ids=EXPERTS)
def test_experts_of_unequal_load(loads, capacity, factor, dropped):
    setup, load = Setup(dp=4, ep=4), Load(experts=loads, capacity=capacity)
    assert parallel.expert_factor(setup, load) == pytest.approx(factor)
    cost = parallel.cost(SPARSE, setup, MACHINE, load)
    assert cost.dropped == pytest.approx(dropped)
    routed = 3 * 2 * 2048 * 2 * (2 * 512 * 1024) * 8 / 5e13
    assert cost.times.value("imbalance.experts") == pytest.approx((factor - 1) * routed)
    assert parallel.expert_factor(Setup(dp=4), load) == 1  # every rank has all experts


def test_the_bottleneck_is_named():
    slow = replace(MACHINE, between=1e6, inside=1e6)
    cost = parallel.cost(SHAPE, Setup(dp=4), slow)
    assert cost.bottleneck()[0] == "communication.dp"
    assert cost.lost() == cost.bottleneck()
    bubbly = parallel.cost(SHAPE, Setup(pp=8), MACHINE)
    assert bubbly.bottleneck()[0] == "bubble"


def test_what_is_modelled_is_said():
    said = " ".join(parallel.cost(SHAPE, Setup(dp=2, pp=2, tp=2), MACHINE).notes)
    assert "not modelled: overlap" in said
    assert "volume / bandwidth + messages x latency" in said


WRONG = {
    "stages": (SHAPE, {"pp": 2}, Load(stages=(1, 2, 3)), "--stage-costs: found 3 numbers, expected 2"),
    "experts": (SPARSE, {}, Load(experts=(1, 2)), "--expert-loads: found 2 numbers, expected 8"),
    "no experts": (SHAPE, {}, Load(experts=(1, 2)), "the model has no experts"),
    "capacity alone": (SPARSE, {}, Load(capacity=1.5), "--capacity: needs --expert-loads"),
    "nothing but zeros": (SHAPE, {"pp": 2}, Load(stages=(0, 0)), "--stage-costs: all are 0"),
    "split": (SHAPE, {"tp": 3, "pp": 3}, Load(), "--pp: 3 stages do not divide 8 layers"),
    "rows": (SHAPE, {}, Load(rows=rows.Work("x", 64, np.ones(3), np.ones(3))), "rows of the build have 64"),
}


@pytest.mark.parametrize("shape, keys, load, said", WRONG.values(), ids=WRONG)
def test_what_does_not_fit_is_listed(shape, keys, load, said):
    with pytest.raises(ManifestError) as error:
        parallel.cost(shape, Setup(**keys), MACHINE, load)
    assert said in str(error.value)


setups = st.builds(
    Setup,
    dp=st.sampled_from([1, 2, 8]),
    tp=st.sampled_from([1, 2, 4]),
    pp=st.sampled_from([1, 2, 4]),
    zero=st.integers(0, 3),
    microbatches=st.integers(1, 8),
    microbatch=st.integers(1, 3),
    recompute=st.sampled_from(RECOMPUTE),
    fused=st.booleans(),
)


@settings(deadline=None)
@given(st.sampled_from([SHAPE, SPARSE]), setups)
def test_properties_of_a_step(shape, setup):
    cost = parallel.cost(shape, setup, MACHINE)
    assert cost.seconds == pytest.approx(sum(cost.times.groups().values()))
    assert all(term.value > 0 for term in (*cost.times.terms, *cost.volumes.terms))
    assert 0 < cost.mfu <= MACHINE.efficiency * (1 + 1e-9)
    assert cost.seconds >= cost.bottleneck()[1]
    assert parallel.cost(shape, replace(setup, length=2 * setup.length), MACHINE).seconds > cost.seconds
    if setup.devices == 1:
        assert not cost.volumes.terms


def test_splits_use_all_devices_and_the_same_rows():
    found = search.splits(SPARSE, Setup(), 8, 16, MACHINE, None)
    assert {one.setup.devices for one in found} == {8}
    assert {one.setup.rows for one in found} == {16}
    assert any(one.setup.ep > 1 for one in found)
    assert [one.seconds for one in found] == sorted(one.seconds for one in found)


# --- the rows of a build --------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def build(tmp_path_factory):
    output = tmp_path_factory.mktemp("builds")
    return synthetic.build(output).path


def test_rows_are_read_from_the_shards(build):
    work = rows.read(build)
    squares = [
        n for path in sorted((build / "train").glob("*.parquet")) for n in pq.read_table(path)["sum_len_sq"].to_pylist()
    ]
    assert work.sum_len_sq.tolist() == squares
    assert work.length == synthetic.LENGTH
    assert work.core_share == pytest.approx(sum(squares) / len(squares) / synthetic.LENGTH**2)
    assert "rows of 64" in work.describe(2, 1)


def test_ranks_wait_for_the_fullest():
    work = rows.Work("x", 8, np.full(4, 8), np.array([64, 16, 64, 16]))
    assert work.unevenness(2, 1, 0, 1) == pytest.approx(64 / 40)  # rank 0 has the whole documents, always
    assert work.unevenness(2, 2, 0, 1) == pytest.approx(64 / 40)
    assert work.unevenness(4, 1, 0, 1) == pytest.approx(64 / 40)
    assert work.unevenness(2, 1, 40, 1) == pytest.approx(104 / 80)
    assert work.unevenness(1, 4, 0, 1) == work.unevenness(8, 1, 0, 1) == 1  # nobody to wait for; no whole batch


def test_packed_rows_in_a_step():
    work = rows.Work("x", 2048, np.full(4, 2048), np.array([2048**2, 2 * 1024**2] * 2))
    cost = parallel.cost(SHAPE, Setup(dp=2), MACHINE, Load(rows=work))
    plain = parallel.cost(SHAPE, Setup(dp=2), MACHINE)
    assert cost.times.value("compute.attention_core") == pytest.approx(
        0.75 * plain.times.value("compute.attention_core")
    )
    one = flops.forward(SHAPE, 2048)
    fixed, core = sum(one.values()) - one["attention_core"], one["attention_core"]
    assert cost.times.value("imbalance.rows") / cost.times.value("compute") == pytest.approx(
        (fixed + core) / (fixed + 0.75 * core) - 1
    )


def test_a_build_without_shards(tmp_path):
    with pytest.raises(DataError, match="has no shards of train"):
        rows.read(synthetic.build(tmp_path, tokenizer=False).path)


def test_a_damaged_shard_is_named(tmp_path):
    build = synthetic.build(tmp_path).path
    shard = min((build / "train").glob("*.parquet"))
    pq.write_table(pq.read_table(shard).slice(1), shard)
    with pytest.raises(IntegrityError, match=rf"{shard.name}: holds"):
        rows.read(build)
    shard.write_bytes(b"PAR1")
    with pytest.raises(IntegrityError, match=rf"{shard.name}: cannot be read"):
        rows.read(build)
    shard.unlink()
    with pytest.raises(IntegrityError, match=rf"{shard.name}: is missing"):
        rows.read(build)
