"""One update of the weights: its order, what it is divided by, what is left alone where nothing can be learnt."""

import math
import warnings
from typing import Any

import pytest
import torch
import training

from datapipe.errors import DataError
from datapipe.train import loss, step

FLOAT64 = {"optimizer": {"lr": 6e-3, "decay": "all"}, "clip": None}
NOTHING = training.batch([[], []], 13)


@pytest.fixture(autouse=True, scope="module")
def _one_thread():
    torch.set_num_threads(1)


def relative(one: dict[str, torch.Tensor], two: dict[str, torch.Tensor]) -> float:
    flat = [torch.cat([each[name].flatten() for name in sorted(each)]) for each in (one, two)]
    return float((flat[0] - flat[1]).norm() / flat[1].norm())


# --- order -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("micro", [1, 3])
def test_the_order_of_events(micro):
    told = []
    one = training.step(tell=lambda event, facts: told.append((event, facts)))
    rows = training.uneven().split(16 // micro)[:micro]
    one.run(rows)
    assert [event for event, _ in told] == [*training.EVENTS[:4] * micro, *training.EVENTS[4:]]
    facts = [facts for event, facts in told if event == "backward"]
    assert [each["last"] for each in facts] == [False] * (micro - 1) + [True]
    divided = {facts["divided_by"] for event, facts in told if event == "loss"}
    assert divided == {sum(int(row.n_targets.sum()) for row in rows)}, "known before the first backward"
    assert told[-1] == ("counters", one.counters.as_json())


def test_what_is_true_at_each_event():
    """Gradients are there from backward to optimizer, clipped in between; weights move at optimizer alone."""
    seen = {}

    def tell(event, facts):
        norm = [float(p.grad.norm()) for p in one.model.parameters() if p.grad is not None]
        seen[event] = (math.hypot(*norm) if norm else None, float(one.model.head.weight.detach().sum()))

    one = training.step("clip=0.01", tell=tell)
    one.run([training.uneven()])
    before = seen["sample"][1]
    assert seen["forward"][0] is None
    assert seen["backward"][0] == pytest.approx(seen["finite"][0])
    assert seen["finite"][0] > 0.01
    assert seen["clip"][0] == pytest.approx(0.01, rel=1e-3)
    assert [seen[event][1] == before for event in ("clip", "optimizer")] == [True, False]
    assert seen["optimizer"][0] is not None
    assert seen["zero"][0] is None


def test_clip_takes_the_global_norm():
    free, bound = (training.step(f"clip={clip}") for clip in ("null", "0.05"))
    (one, two) = (training.gradients(each, [training.uneven()]) for each in (free, bound))
    norm = math.hypot(*(float(grad.norm()) for grad in one.values()))
    assert norm > 0.05
    for name, grad in one.items():
        torch.testing.assert_close(two[name], grad * (0.05 / (norm + 1e-6)))
    assert training.step("clip=0.05").run([training.uneven()]).norm == pytest.approx(norm), "what it was before"
    loose = training.gradients(training.step("clip=1e6"), [training.uneven()])
    assert training.same(loose, one), "a small gradient is left as it is"


# --- what a loss is divided by ---------------------------------------------------------------------------------


@pytest.mark.parametrize("objective", ["per_token", "per_document"])
@pytest.mark.parametrize("rows", [1, 4, 5, 8])
def test_microbatches_are_the_full_batch(rows, objective):
    """8 against 96 targets: to 1e-12 in float64, whatever the cut."""
    whole = training.uneven()
    assert whole.n_targets.tolist() == [1] * 8 + [12] * 8
    keys = FLOAT64 | {"objective": objective}
    expected = training.gradients(training.step(double=True, **keys), [whole])
    found = training.gradients(training.step(double=True, **keys), whole.split(rows))
    assert relative(found, expected) < 1e-12
    assert relative(training.gradients(training.step(**keys), whole.split(rows)),
                    {name: grad.float() for name, grad in expected.items()}) < 1e-5  # fmt: skip


def test_the_mean_of_means_on_the_cycle_is_off_by_759():
    """What dividing each microbatch by its own targets makes of 16 rotations, the first 8 with one target each."""
    rows = [[[(start + at) % 16 for at in range(13)]] for start in range(16)]
    whole = training.batch(rows, 13, masked=[list(range(2, 13))] * 8 + [[]] * 8)
    assert whole.n_targets.tolist() == [1] * 8 + [12] * 8
    one = training.step(double=True, **FLOAT64)
    expected = training.gradients(training.step(double=True, **FLOAT64), [whole])
    for part in whole.split(8):
        ids, labels, segments, positions = step.inputs(part)
        mean = loss.cross_entropy(one.model(ids, segments, positions), labels) / int(part.n_targets.sum())
        (mean / 2).backward()
    wrong = {name: p.grad for name, p in one.model.named_parameters() if p.grad is not None}
    assert relative(wrong, expected) == pytest.approx(0.759, abs=0.02)


def test_per_document_by_hand():
    """The mean of the documents' means."""
    whole = training.batch([[[1, 2, 3, 4, 5], [6, 7]], [[8, 9, 10]]], 13)
    one = training.step("objective=per_document", double=True, **FLOAT64)
    with torch.no_grad():
        ids, labels, segments, positions = step.inputs(whole)
        each = torch.nn.functional.cross_entropy(
            one.model(ids, segments, positions).flatten(0, 1), labels.flatten(), ignore_index=-100, reduction="none"
        ).view(2, 12)
    by_hand = (each[0, :4].mean() + each[0, 5:6].mean() + each[1, :2].mean()) / 3
    assert one.run([whole]).loss == pytest.approx(float(by_hand), rel=1e-12)


def test_the_order_of_microbatches_changes_rounding_alone():
    parts = training.uneven().split(4)
    one = training.gradients(training.step(double=True, **FLOAT64), parts)
    two = training.gradients(training.step(double=True, **FLOAT64), parts[::-1])
    assert relative(two, one) < 1e-13


def test_an_empty_microbatch_adds_nothing():
    whole = training.uneven()
    expected = training.gradients(training.step(double=True, **FLOAT64), [whole])
    for window in ([NOTHING, whole], [whole, NOTHING], [NOTHING, *whole.split(8), NOTHING]):
        assert relative(training.gradients(training.step(double=True, **FLOAT64), window), expected) < 1e-12


def test_a_last_window_that_is_shorter():
    whole = training.uneven()
    parts = whole.split(5)
    assert [len(part) for part in parts] == [5, 5, 5, 1]
    one = training.step()
    found = one.run(parts)
    assert (found.rows, found.targets, one.counters.micro_steps) == (16, 104, 4)


@pytest.mark.parametrize("window", [[NOTHING], [NOTHING, NOTHING], [training.batch([[[1], [2], [3]]], 13)]])
def test_a_window_without_targets_is_counted_and_left_alone(window):
    told = []
    one = training.step("optimizer.weight_decay=0.5", tell=lambda event, facts: told.append(event))
    one.run([training.uneven()])
    told.clear()
    before = {name: tensor.clone() for name, tensor in one.model.state_dict().items()}
    moments = {id(p): dict(state) for p, state in one.optimizer.state.items()}
    found = one.run(window)
    assert not found.taken
    assert math.isnan(found.loss)
    assert told == ["counters"]
    assert training.same(before, one.model.state_dict()), "not even decayed"
    assert all(state == moments[id(p)] for p, state in one.optimizer.state.items())
    assert (one.counters.windows, one.counters.steps, one.counters.empty, one.counters.skipped) == (2, 1, 1, 0)
    assert one.run([training.uneven()]).taken


# --- numbers that are not finite -------------------------------------------------------------------------------


def poisoned(value: float, *settings: str, at: int = 1) -> Any:
    """A step whose gradient holds a value in its `at`-th window, and only there."""
    one = training.step(*settings)
    seen = {"windows": 0}

    def poison(grad):
        seen["windows"] += 1
        return torch.full_like(grad, value) if seen["windows"] == at else grad

    one.model.head.weight.register_hook(poison)
    return one


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_raise(value):
    one = poisoned(value)
    before = {name: tensor.clone() for name, tensor in one.model.state_dict().items()}
    with pytest.raises(DataError, match=r"step 1: the loss is 2\.\d+, the norm of the gradient (nan|inf)"):
        one.run([training.uneven()])
    assert training.same(before, one.model.state_dict())


@pytest.mark.parametrize("value", [math.nan, math.inf])
@pytest.mark.parametrize("scale", ["null", "1024"])
def test_skip_and_what_does_not_advance(value, scale):
    settings = ("non_finite={policy: skip}", f"loss_scale={scale}", "schedule={kind: cosine}", "steps=10")
    one, plain = poisoned(value, *settings, at=2), training.step(*settings)
    window, other = [training.uneven()], [training.batch([[[1, 2, 3]]], 13)]
    first = one.run(window)
    assert first.taken
    before = {name: tensor.clone() for name, tensor in one.model.state_dict().items()}
    counts = [float(state["step"]) for state in one.optimizer.state.values()]
    skipped = one.run(other)
    assert not skipped.taken
    assert not math.isfinite(skipped.norm)
    assert training.same(before, one.model.state_dict())
    assert [float(state["step"]) for state in one.optimizer.state.values()] == counts
    assert all(p.grad is None for p in one.model.parameters())
    counters = one.counters
    assert (counters.windows, counters.steps, counters.skipped, counters.skipped_in_a_row) == (2, 1, 1, 1)
    assert (counters.targets, counters.applied) == (106, 104), "the data goes on, the schedule does not"
    assert one.scale.now == (1 if scale == "null" else 512)
    third = one.run(window)
    assert third.lr == skipped.lr < first.lr
    assert one.counters.skipped_in_a_row == 0
    for _ in range(2):
        plain.run(window)
    assert all(
        torch.allclose(p, q, atol=1e-6) for p, q in zip(one.model.parameters(), plain.model.parameters(), strict=True)
    ), "as if the skipped window had not been"


def test_a_cap_on_skips_in_a_row():
    one = training.step("non_finite={policy: skip, most: 2}")
    with torch.no_grad():
        one.model.head.bias.fill_(math.nan)
    assert [one.run([training.uneven()]).taken for _ in range(2)] == [False, False]
    with pytest.raises(DataError, match=r"after 2 skipped steps in a row, which is non_finite\.most"):
        one.run([training.uneven()])


def test_the_scale_changes_no_gradient():
    """A power of two scales without rounding, and the norm is of what was unscaled."""
    plain = training.step("clip=0.05")
    scaled = training.step("clip=0.05", "loss_scale=1024", "non_finite={policy: skip}")
    one, two = (training.gradients(each, training.uneven().split(4)) for each in (plain, scaled))
    assert training.same(one, two)


def test_the_scale_moves_as_torch_says(monkeypatch):
    """Against torch's GradScaler on one parameter."""
    monkeypatch.setattr(step.Scale, "INTERVAL", 3)
    ours = step.Scale(8.0)
    theirs = torch.amp.GradScaler("cpu", init_scale=8.0, growth_interval=3)
    parameter = torch.nn.Parameter(torch.ones(1))
    moved = torch.optim.SGD([parameter], lr=0.0)
    for finite in (True, True, True, False, True, False, False, True, True, True, True, True, True):
        parameter.grad = torch.tensor([1.0 if finite else math.inf])
        theirs.scale(torch.zeros(1))
        theirs.unscale_(moved)
        theirs.step(moved)
        theirs.update()
        ours.update(finite)
        assert ours.now == theirs.get_scale()
    again = step.Scale(8.0)
    again.load(ours.as_json())
    assert again.as_json() == ours.as_json()


def test_a_scale_that_overflows_falls_until_steps_are_taken():
    one = training.step("loss_scale=1e42", "non_finite={policy: skip, most: 40}", "clip=null")
    taken = [one.run([training.uneven()]).taken for _ in range(16)]
    assert not taken[0]
    assert taken[-1]
    assert taken == sorted(taken)
    assert one.scale.now < 4e38


# --- types, gradients ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("model", [training.REFERENCE, training.GPT], ids=["reference", "gpt"])
def test_bfloat16_learns(model):
    told = {}
    one = training.step("precision=bfloat16", model=model, optimizer={"lr": 1e-2},
                        tell=lambda event, facts: told.update({event: facts}))  # fmt: skip
    losses = [one.run(training.uneven().split(8)).loss for _ in range(30)]
    assert told["forward"]["dtype"] == "torch.bfloat16"
    assert all(p.dtype == torch.float32 for p in one.model.parameters())
    assert losses[-1] < losses[0] - 0.3


def test_a_parameter_without_a_gradient_is_not_touched():
    one = training.step("optimizer.weight_decay=0.5")
    one.model.blocks[0].up.weight.requires_grad_(False)
    before = one.model.blocks[0].up.weight.clone()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        one.run([training.uneven()])
    assert torch.equal(one.model.blocks[0].up.weight, before)


def test_counters():
    one = training.step()
    one.run(training.uneven().split(4))
    one.run([training.batch([[[1, 2, 3], [4, 5]], []], 13)])
    assert one.counters.as_json() == {
        "windows": 2, "micro_steps": 5, "steps": 2, "skipped": 0, "skipped_in_a_row": 0, "empty": 0,
        "empty_in_a_row": 0, "rows": 17, "tokens": 8 * 2 + 8 * 13 + 5, "targets": 104 + 3, "applied": 107,
    }  # fmt: skip
