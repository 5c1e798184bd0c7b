"""Memory of a device against published tables, its own properties, and what torch really keeps."""

import importlib.util
import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from datapipe.errors import ManifestError
from datapipe.estimate import activations, memory, read, search
from datapipe.estimate.parallel import Machine
from datapipe.estimate.setup import OPTIMIZERS, RECOMPUTE, Setup
from datapipe.estimate.shape import Shape, typical

GB = 1e9

# --- states ---------------------------------------------------------------------------------------------------------

ZERO = {  # P, dp: base, Pos, Pos+g, Pos+g+p in GB; the paper prints some of them truncated
    (7.5e9, 64): (120, 31.4, 16.6, 1.88),
    (7.5e9, 4): (120, 52.5, 41.3, 30),
    (7.5e9, 1024): (120, 30.1, 15.1, 0.12),
    (128e9, 16): (2048, 608, 368, 128),
    (128e9, 64): (2048, 536, 284, 32),
    (1e12, 64): (16000, 4187, 2218, 250),
    (1e12, 1024): (16000, 4011, 2013, 15.6),
}


def states(parameters: float, **keys) -> float:
    return sum(term.value for term in memory.states(memory.Held(parameters), Setup(**keys)))


@pytest.mark.parametrize(
    "parameters, dp", ZERO, ids=[f"ZeRO 1910.02054 table 1 (unverified source): {p / 1e9:g}B on {n}" for p, n in ZERO]
)
def test_zero(parameters, dp):
    for stage, printed in enumerate(ZERO[parameters, dp]):
        digit = 10.0 ** -(len(str(printed).partition(".")[2]))
        found = states(parameters, dp=dp, zero=stage) / GB
        assert found == pytest.approx(printed, abs=digit), (
            stage
        )  # rounded or truncated: less than one in the last digit
        formula = (16, 4 + 12 / dp, 2 + 14 / dp, 16 / dp)[stage]
        assert found * GB == pytest.approx(formula * parameters)


BYTES = {  # bytes a parameter
    "ZeRO 1910.02054 section 3.1: mixed AdamW 2 + 2 + 12": (16, {}),
    "float32 AdamW": (16, {"weights": 4, "gradients": 4, "master": False}),
    "Megatron-LM: float32 main gradients": (18, {"gradients": 4}),
    "Megatron-LM: distributed optimizer, 6 + 12/d": (6 + 12 / 8, {"gradients": 4, "dp": 8, "zero": 1}),
    "SGD, float32": (8, {"weights": 4, "gradients": 4, "master": False, "optimizer": "sgd"}),
    "momentum, float32": (12, {"weights": 4, "gradients": 4, "master": False, "optimizer": "momentum"}),
    "Dettmers 2110.02861: two bytes and a scale a block of 2,048": (8 + 2 * (1 + 4 / 2048), {"optimizer": "adamw8bit"}),
}


@pytest.mark.parametrize("size, keys", BYTES.values(), ids=BYTES)
def test_bytes_a_parameter(size, keys):
    assert states(1e9, **keys) == pytest.approx(size * 1e9)


def test_adafactor_keeps_rows_and_columns():
    """Shazeer and Stern 1804.04235: n + m numbers for an n x m matrix."""
    shape = Shape(1, 8, 2, 32, 10, tied=True, norm="rms", final_norm=False)
    table = memory.estimate(shape, Setup(optimizer="adafactor")).worst
    matrices = [(10, 8), *[(8, 8)] * 4, (32, 8), (8, 32)]
    assert table.value("optimizer.moments") == pytest.approx(4 * (sum(map(sum, matrices)) + 2 * 8))


def test_every_split_divides_once():
    """EleutherAI cookbook: divides stage-3 weights twice, and leaves gradients and optimizer undivided by tp and pp."""
    shape = Shape(8, 256, 8, 1024, 1024, norm="rms", final_norm=False, tied=False)
    one, plain = memory.estimate(shape, Setup()).worst, 2 * (8 * (12 * 256 * 256 + 2 * 256) + 2 * 1024 * 256)
    assert one.value("weights") == plain
    split = memory.estimate(shape, Setup(dp=4, tp=2, pp=2, zero=3)).stages[0]
    blocks, norms, ends = 4 * 12 * 256 * 256 / 2, 4 * 2 * 256, 1024 * 256 / 2
    for name, size in (("weights", 2), ("gradients", 2), ("optimizer.master", 4), ("optimizer.moments", 8)):
        assert split.value(name) == size * (blocks + norms + ends) / 4


def test_experts_are_sharded_over_ep_and_their_states_over_the_rest():
    shape = Shape(2, 64, 4, 128, 100, experts=8, active=2, norm="rms")
    held = memory.parameters(shape, Setup(dp=8, ep=4), 0)
    assert held.experts == 2 * 8 * 2 * 64 * 128 / 4
    one = Setup(dp=8, ep=4, zero=1)
    assert held.over(one, 1) == held.dense / 8 + held.experts / 2
    assert held.over(one, 2) == held.all


# --- activations ----------------------------------------------------------------------------------------------------

# a, h, L, p, interleave, b of Korthikanti 2205.05198 table 3; s = 2,048, t = 8
KORTHIKANTI = {
    "22B": (64, 6144, 48, 1, 1, 4),
    "175B": (96, 12288, 96, 8, 3, 1),
    "530B": (128, 20480, 105, 35, 3, 1),
    "1T": (160, 25600, 128, 64, 1, 1),
}
SCORES = {"22B": 106.7, "175B": 80, "530B": 64, "1T": 64}  # 5as/h
TENSOR = {"22B": 26.33, "175B": 23.0, "530B": 21.0, "1T": 21.0}  # factor of sbh with tp alone
SHARES = {
    "22B": (16.1, 7.6),
    "175B": (18.5, 8.7),
    "530B": (20.2, 9.5),
    "1T": (20.2, 9.5),
}  # % of it: SP+selective, full
SAVES = {"22B": 75.8, "175B": 70, "530B": 65, "1T": 65}  # % that selective saves of none


def layer(name: str, **keys) -> float:
    """Kept bytes of a layer over sbh."""
    heads, width, layers, _, _, rows = KORTHIKANTI[name]
    shape = Shape(layers, width, heads, 4 * width, 51200)
    setup = Setup(**{"fused": False, "dropout": True, "microbatch": rows} | keys)
    return sum(term.value for term in activations.kept(shape, setup)) / (setup.length * rows * width)


@pytest.mark.parametrize(
    "name",
    KORTHIKANTI,
    ids=[f"Korthikanti 2205.05198 table 2, configuration {n} (unverified source)" for n in KORTHIKANTI],
)
def test_korthikanti(name):
    heads, width, *_ = KORTHIKANTI[name]
    scores = 5 * heads * 2048 / width
    assert scores == pytest.approx(SCORES[name], abs=0.05)
    both = {"tp": 8, "sequence_parallel": True}
    assert layer(name) == pytest.approx(34 + scores)
    assert layer(name, tp=8) == pytest.approx(10 + 24 / 8 + scores / 8)
    assert layer(name, tp=8) == pytest.approx(TENSOR[name], abs=0.01)
    assert layer(name, **both) == pytest.approx((34 + scores) / 8)
    assert layer(name, tp=8, recompute="selective") == pytest.approx(10 + 24 / 8)
    assert layer(name, **both, recompute="selective") == pytest.approx(4.25)
    assert layer(name, tp=8, recompute="full") == pytest.approx(2)
    assert layer(name, recompute="full") == pytest.approx(2)
    chosen, full = SHARES[name]
    assert 100 * layer(name, **both, recompute="selective") / layer(name, tp=8) == pytest.approx(chosen, abs=0.06)
    assert 100 * layer(name, recompute="full") / layer(name, tp=8) == pytest.approx(full, abs=0.06)
    assert 100 * (1 - layer(name, recompute="selective") / layer(name)) == pytest.approx(SAVES[name], abs=0.5)


def test_fused_attention_drops_what_grows_with_the_square():
    """Korthikanti: 34 sbh are left; Dao 2205.14135: and a logarithm a head and token."""
    assert layer("22B", fused=True) == pytest.approx(34 + 4 * 64 / 6144)
    assert layer("22B", fused=True, dropout=False) == pytest.approx(32 + 4 * 64 / 6144)
    assert layer("22B", dropout=False) == pytest.approx(32 + 2 * 64 * 2048 / 6144)


IN_FLIGHT = {
    "Korthikanti section 4.2.3: 1F1B, first stage holds L layers' worth": ({"pp": 8, "microbatches": 64}, 0, 8),
    "1F1B, last stage": ({"pp": 8, "microbatches": 64}, 7, 1),
    "fewer microbatches than stages": ({"pp": 8, "microbatches": 3}, 0, 3),
    "Korthikanti section 4.2.3: interleaved, 1 + (p-1)/(pm)": (
        {"pp": 8, "interleave": 3, "microbatches": 64},
        0,
        8 * (1 + 7 / 24),
    ),
    "no pipeline": ({}, 0, 1),
}


@pytest.mark.parametrize("keys, stage, microbatches", IN_FLIGHT.values(), ids=IN_FLIGHT)
def test_microbatches_in_flight(keys, stage, microbatches):
    assert memory.in_flight(Setup(**keys), stage) == pytest.approx(microbatches)


def test_both_ends_of_the_model():
    """Megatron-LM: embedding dropout sbhp/t, head 4sbh(1 + v/h)/t with sequence parallelism."""
    shape, sbh = Shape(8, 512, 8, 2048, 32_000), 2048 * 2 * 512
    one = memory.estimate(shape, Setup(tp=8, sequence_parallel=True, microbatch=2, dropout=True)).worst
    head = one.value("activations.head") + one.value("workspace.logits")
    assert head == pytest.approx(4 * sbh * (1 + 32_000 / 512) / 8)
    several = Setup(tp=8, sequence_parallel=True, microbatch=2, dropout=True, pp=4, microbatches=9)
    first, *_, last = memory.estimate(shape, several).stages
    assert first.value("activations.embedding_dropout") == pytest.approx(sbh * 4 / 8)
    assert first.value("workspace.logits") == 0
    assert last.value("activations.embedding_dropout") == 0
    assert first.value("communication.pp_receive") == 2 * 2 * sbh / 8


BUFFERS = {
    "DeepSpeed: 5e8 numbers a bucket": ({"zero": 1}, {"reduce_bucket": 1e9, "gather_bucket": 1e9}),
    "DeepSpeed ZeRO-3: 1e9 live weights": ({"zero": 3}, {"reduce_bucket": 1e9, "live_parameters": 2e9}),
    "torch DDP: buckets are a second copy of the gradients": ({}, {"ddp_buckets": 2 * 7e9}),
    "torch DDP: gradient_as_bucket_view": ({"bucket_view": True}, {}),
    "one rank": ({"dp": 1, "zero": 3}, {}),
}


@pytest.mark.parametrize("keys, terms", BUFFERS.values(), ids=BUFFERS)
def test_buffers(keys, terms):
    table = memory.estimate(typical(7e9), Setup(**{"dp": 8} | keys)).worst
    found = {t.name.partition(".")[2]: t.value for t in table.terms if t.group == "communication"}
    assert found == pytest.approx(terms)


def test_buckets_are_no_larger_than_what_they_carry():
    table = memory.estimate(SHAPES[1], Setup(dp=2, zero=3)).worst
    assert table.value("communication.reduce_bucket") == 2 * SHAPES[1].counted
    assert table.value("communication.live_parameters") == 2 * SHAPES[1].counted


def test_fsdp_gathers_a_block_and_the_next():
    shape = SHAPES[1]
    table = memory.estimate(shape, Setup(dp=2, zero=3, fsdp=True)).worst
    block = sum(tensor.numel for tensor in shape.layer(sparse=False))
    assert table.value("communication.gathered") == 2 * 2 * block
    assert table.value("communication.unsharded_gradient") == 2 * block


def test_a_tied_embedding_lies_on_both_ends_of_a_pipeline():
    shape = SHAPES[0]
    first, last = (memory.parameters(shape, Setup(pp=2), number).all for number in (0, 1))
    embedding, learnt, norm = 1000 * 512, 8192 * 512, 2 * 512
    assert first + last == shape.counted + embedding
    assert first - last == learnt - norm
    assert memory.parameters(shape, Setup(), 0).all == shape.counted


def test_seven_billion_parameters_are_more_than_fourteen_gigabytes():
    found = memory.estimate(typical(7e9), Setup()).worst
    assert found.value("weights") == 14e9
    assert found.total > 8 * found.value("weights")
    dominant = found.dominant()
    assert dominant is not None
    assert dominant.name == "optimizer.moments"


# --- properties -----------------------------------------------------------------------------------------------------

SHAPES = [
    Shape(8, 512, 8, 2048, 1000, norm="layer", positions=8192, tied=True),
    Shape(8, 512, 8, 1408, 1001, kv_heads=2, gated=True, norm="rms"),
    Shape(8, 512, 8, 1024, 1000, kv_heads=4, gated=True, norm="rms", experts=8, active=2),
]
setups = st.builds(
    Setup,
    length=st.sampled_from([128, 512, 2048]),
    microbatch=st.integers(1, 4),
    microbatches=st.integers(1, 8),
    weights=st.sampled_from([2, 4]),
    gradients=st.sampled_from([2, 4]),
    activations=st.sampled_from([1, 2, 4]),
    optimizer=st.sampled_from(OPTIMIZERS),
    master=st.booleans(),
    dp=st.sampled_from([1, 2, 8]),
    tp=st.sampled_from([1, 2, 4]),
    pp=st.sampled_from([1, 2, 4]),
    zero=st.integers(0, 3),
    fsdp=st.booleans(),
    recompute=st.sampled_from(RECOMPUTE),
    fused=st.booleans(),
    dropout=st.booleans(),
    counting=st.sampled_from(["published", "eager"]),
    bucket=st.sampled_from([1000, 10**9]),
)


@settings(deadline=None)
@given(st.sampled_from(SHAPES), setups)
def test_terms_add_up_and_none_is_negative(shape, setup):
    found = memory.estimate(shape, setup)
    assert len(found.stages) == setup.pp
    for table in found.stages:
        assert all(term.value > 0 and math.isfinite(term.value) for term in table.terms)
        assert table.total == pytest.approx(sum(table.groups().values()))
        assert len({term.name for term in table.terms}) == len(table.terms)
    assert found.total == max(table.total for table in found.stages) == search.peak(shape, setup)


@settings(deadline=None)
@given(st.sampled_from(SHAPES), setups)
def test_more_shards_never_need_more(shape, setup):
    """dp from 2 on (1 to 2 adds buffers), tp with its sequences or without from 2 on, and ep; pp for what lasts."""
    before = memory.estimate(shape, setup).total
    if setup.dp > 1:
        assert memory.estimate(shape, replace(setup, dp=2 * setup.dp)).total <= before * (1 + 1e-9)
    if setup.tp > 1:
        assert memory.estimate(shape, replace(setup, tp=2 * setup.tp)).total <= before * (1 + 1e-9)
        assert memory.estimate(shape, replace(setup, tp=8)).total <= before * (1 + 1e-9)
    for more in ({"zero": setup.zero + 1},) if setup.zero < 3 else ():
        kept = [
            sum(table.value(g) for g in ("weights", "gradients", "optimizer"))
            for table in memory.estimate(shape, setup).stages
        ]
        less = memory.estimate(shape, replace(setup, **more)).stages
        assert all(
            sum(t.value(g) for g in ("weights", "gradients", "optimizer")) <= k + 1e-6
            for t, k in zip(less, kept, strict=True)
        )
    if shape.experts and setup.dp == 8:
        two, four = (memory.estimate(shape, replace(setup, ep=n)).total for n in (2, 4))
        assert four <= two * (1 + 1e-9)


@settings(deadline=None)
@given(st.sampled_from(SHAPES), setups)
def test_longer_rows_and_more_rows_never_need_less(shape, setup):
    before = memory.estimate(shape, setup).total
    assert memory.estimate(shape, replace(setup, length=2 * setup.length)).total > before
    assert memory.estimate(shape, replace(setup, microbatch=1 + setup.microbatch)).total > before


@settings(deadline=None)
@given(st.sampled_from(SHAPES), setups)
def test_recompute_keeps_less(shape, setup):
    parts = [
        sum(t.value for t in activations.kept(shape, replace(setup, recompute=r)))
        for r in ("full", "selective", "none")
    ]
    assert parts == sorted(parts)


# --- what does not fit ----------------------------------------------------------------------------------------------

WRONG = {
    "zero devices": ({"dp": 0}, ["--dp: found 0, expected at least 1"]),
    "negative": ({"tp": -1, "microbatch": 0}, ["--tp: found -1", "--microbatch: found 0"]),
    "tp and heads": ({"tp": 3}, ["--tp: 3 does not divide heads 8", "--tp: 3 does not divide hidden 1408"]),
    "tp and heads of keys": ({"tp": 16}, ["--tp: 16 does not divide heads 8"]),
    "layers and stages": ({"pp": 3}, ["--pp: 3 stages do not divide 8 layers"]),
    "interleave": (
        {"pp": 2, "interleave": 3, "microbatches": 3},
        ["--pp: 2 stages x 3 chunks do not divide 8 layers", "to be a multiple of --pp (2)"],
    ),
    "interleave alone": ({"interleave": 2}, ["--interleave: found 2, which needs --pp"]),
    "experts of a dense model": (
        {"ep": 2},
        ["--ep: found 2, and the model has no experts", "2 does not divide --dp 1"],
    ),
    "sequences": ({"sequence_parallel": True}, ["--sp: needs --tp of 2 or more"]),
    "sequences that do not divide": (
        {"sequence_parallel": True, "tp": 2, "length": 7},
        ["--tp 2 does not divide the length 7"],
    ),
    "several": ({"tp": 3, "pp": 5, "ep": 2}, ["--tp: 3", "--pp: 5", "--ep: found 2"]),
}


@pytest.mark.parametrize("keys, said", WRONG.values(), ids=WRONG)
def test_what_does_not_fit_is_listed(keys, said):
    with pytest.raises(ManifestError) as error:
        memory.estimate(SHAPES[1], Setup(**keys))
    for part in said:
        assert part in str(error.value)


def test_rows_longer_than_the_learnt_positions():
    with pytest.raises(ManifestError, match="--length: found 9000, expected at most the 8192 learnt positions"):
        memory.estimate(SHAPES[0], Setup(length=9000))


# --- what fits, what to change --------------------------------------------------------------------------------------


def test_what_fits_fits_and_is_ranked():
    found = search.splits(typical(7e9), Setup(length=4096), 16, 64, Machine(), 80e9)
    assert len(found) > 3
    assert [one.seconds for one in found] == sorted(one.seconds for one in found)
    for one in found:
        assert one.bytes <= 80e9
        assert one.setup.devices == 16
        assert one.setup.rows == 64
        assert memory.estimate(typical(7e9), one.setup).total == pytest.approx(one.bytes)
    assert len({(c.setup.dp, c.setup.tp, c.setup.pp) for c in found}) == len(found)
    assert not search.splits(typical(7e9), Setup(length=4096), 16, 64, Machine(), 1e9)


def test_the_cheapest_change_comes_first_and_the_batch_last():
    setup = Setup(dp=8, microbatch=4, length=4096, fused=False)
    shape = typical(7e9)
    changes = search.advice(shape, setup, Machine())
    names = [change.name for change in changes]
    assert names[0] == "--fused"
    assert names[-1] == "--microbatch 2"
    assert names.index("--recompute selective") < names.index("--recompute full")
    for change in changes:
        assert change.saved > 0
        assert memory.estimate(shape, change.setup).total == pytest.approx(change.bytes)


# --- measured -------------------------------------------------------------------------------------------------------

REFERENCE = {"kind": "reference", "width": 32, "heads": 4, "layers": 2, "hidden": 64, "positions": 12}
GPT = {"kind": "gpt", "width": 64, "heads": 4, "kv_heads": 2, "layers": 3, "hidden": 172}
trained = pytest.mark.skipif(
    importlib.util.find_spec("torch") is None or importlib.util.find_spec("datapipe.train") is None,
    reason="runs the models of datapipe.train with torch: one of them is not here",
)
SAVED = {"none": 668_388, "blocks": 115_428}  # counted with saved-tensor hooks, torch 2.13


def estimated(model: dict, vocabulary: int, **keys):
    from datapipe.estimate import measure

    shape = read.of({"model": model, "vocabulary": vocabulary}, "x")
    setup = measure.own(Setup(**keys), model.get("recompute", "none") != "none", bool(model.get("dropout", 0)))
    return shape, setup, memory.estimate(shape, setup).worst


@pytest.mark.parametrize(
    "recompute", SAVED, ids=[f"computed, torch 2.13: the 18,320-parameter model, recompute {r}" for r in SAVED]
)
def test_the_terms_of_the_reference_model(recompute):
    from datapipe.estimate import measure

    _, _, table = estimated(REFERENCE | {"recompute": recompute}, 16, length=12, microbatch=16)
    assert sum(measure.parts(table).values()) == SAVED[recompute]
    assert table.value("weights") == 73_280
    assert sum(map(table.value, ("weights", "gradients", "optimizer"))) == 293_120 + 4 * 26


RUNS = {
    "reference": (REFERENCE, 16, {"length": 12, "microbatch": 16}),
    "reference, recompute": (REFERENCE | {"recompute": "blocks"}, 16, {"length": 12, "microbatch": 16}),
    "reference, dropout": (REFERENCE | {"dropout": 0.1}, 16, {"length": 12, "microbatch": 16}),
    "reference, packed": (REFERENCE, 16, {"length": 12, "microbatch": 16, "mask": True}),
    "gpt, small": (GPT, 100, {"length": 20, "microbatch": 3}),
    "gpt, middle": (
        GPT | {"width": 128, "kv_heads": None, "layers": 4, "hidden": 344},
        512,
        {"length": 128, "microbatch": 4},
    ),
    "gpt, larger": (
        GPT | {"width": 256, "heads": 8, "layers": 2, "hidden": 688},
        2048,
        {"length": 256, "microbatch": 2},
    ),
    "gpt, packed": (GPT, 100, {"length": 20, "microbatch": 3, "mask": True}),
    "gpt, dropout": (GPT | {"dropout": 0.1}, 100, {"length": 20, "microbatch": 3}),
    "gpt, tied, recompute": (GPT | {"tied": True, "recompute": "blocks"}, 100, {"length": 20, "microbatch": 3}),
}


@trained
@pytest.mark.parametrize("model, vocabulary, keys", RUNS.values(), ids=RUNS)
def test_measured_to_the_byte(model, vocabulary, keys):
    from datapipe.estimate import measure

    shape, _, _ = estimated(model, vocabulary, **keys)
    found = measure.measure(model, shape, Setup(**keys))
    assert {row.name: row.estimated for row in found.saved} == {row.name: row.measured for row in found.saved}
    assert {row.name: row.estimated for row in found.states} == {row.name: row.measured for row in found.states}
    if model["kind"] == "reference" and not keys.get("mask") and "dropout" not in model:
        assert found.activations.measured == SAVED[model.get("recompute", "none")]


def test_an_error_of_a_row():
    from datapipe.estimate.measure import Row

    assert Row("x", 110, 100).error == pytest.approx(0.1)
    assert Row("x", 0, 0).error == 0
    assert Row("x", 1, 0).error == math.inf
    assert Row("x", 1, 0).as_json()["error"] is None
