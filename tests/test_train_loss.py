"""Cross-entropy as a sum, what each target weighs; AdamW by hand; which parameters decay."""

import json
import math

import numpy as np
import pytest
import torch
import training
from torch import nn

from datapipe.train import loss, optimizer, step
from datapipe.train.config import Optimizer


@pytest.fixture(autouse=True, scope="module")
def _one_thread():
    torch.set_num_threads(1)


@pytest.mark.parametrize(
    "logits, label, expected",
    [
        ([1000.0, 0.0], 0, 0.0),
        ([1000.0, 0.0], 1, 1000.0),
        ([-1000.0, 0.0], 0, 1000.0),
        ([0.0] * 16, 3, math.log(16)),
        ([1e4] * 16, 3, math.log(16)),
        ([0.0, math.log(3)], 0, math.log(4)),
        ([1000.0, 0.0], loss.IGNORE, 0.0),
    ],
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_goldens(logits, label, expected, dtype):
    tensor = torch.tensor([[logits]], dtype=dtype, requires_grad=True)
    found = loss.cross_entropy(tensor, torch.tensor([[label]]))
    found.backward()
    exact = torch.tensor(logits, dtype=dtype).double()
    expected = expected if label == loss.IGNORE else float(torch.logsumexp(exact, 0) - exact[label])
    assert float(found.detach()) == pytest.approx(expected, rel=1e-6, abs=1e-6)
    assert tensor.grad is not None
    assert torch.isfinite(tensor.grad).all()


def test_the_plain_golden():
    assert float(loss.cross_entropy(torch.zeros(1, 1, 16), torch.tensor([[3]]))) == pytest.approx(2.772588722, abs=1e-6)


def test_all_ignored_is_nothing_not_nan():
    logits = torch.randn(2, 3, 5, requires_grad=True)
    nothing = loss.cross_entropy(logits, torch.full((2, 3), loss.IGNORE))
    nothing.backward()
    assert float(nothing.detach()) == 0.0
    assert logits.grad is not None
    assert float(logits.grad.abs().sum()) == 0.0
    mean = nn.functional.cross_entropy(logits.flatten(0, 1), torch.full((6,), loss.IGNORE))
    assert torch.isnan(mean), "what a mean gives"


def test_a_sum_is_a_sum():
    logits, labels = torch.randn(2, 3, 5), torch.tensor([[1, 2, loss.IGNORE], [0, loss.IGNORE, 4]])
    by_hand = sum(
        float(torch.logsumexp(logits[b, t], 0) - logits[b, t, labels[b, t]])
        for b in range(2) for t in range(3) if labels[b, t] >= 0
    )  # fmt: skip
    assert float(loss.cross_entropy(logits, labels)) == pytest.approx(by_hand, rel=1e-6)


# --- what each target weighs -----------------------------------------------------------------------------------

ROWS = [[[1, 2, 3, 4], [5, 6]], [[7], [8, 9, 10]], []]


def test_per_token():
    batch = training.batch(ROWS, 8)
    assert loss.weights(batch.labels, batch.segment_ids, "per_token") == (None, 3 + 1 + 0 + 2)


def test_per_document():
    """Segments with 3, 1, 0 and 2 targets: three documents count, each for one."""
    batch = training.batch(ROWS, 8)
    weights, total = loss.weights(batch.labels, batch.segment_ids, "per_document")
    assert total == 3
    assert weights is not None
    third, half = 1 / 3, 1 / 2
    assert weights.tolist() == [[third] * 3 + [0, 1.0] + [0] * 3, [0, half, half] + [0] * 5, [0.0] * 8]


def test_per_document_with_a_mask():
    """What may not be predicted leaves its share to the rest of its document; a document without targets is none."""
    batch = training.batch([[[1, 2, 3, 4], [5, 6]]], 8, masked=[[1, 5]])
    weights, total = loss.weights(batch.labels, batch.segment_ids, "per_document")
    assert weights is not None
    assert (weights.tolist(), total) == ([[0, 0.5, 0.5] + [0] * 5], 1)


# --- case B40 --------------------------------------------------------------------------------------------------


def _sums(shared, part):
    return json.loads((shared / "cases/B40/loss_table.json").read_text())[part]


def test_the_mean_is_over_targets_not_over_batches(shared):
    expect = json.loads((shared / "cases/B40/EXPECT.json").read_text())["expect"]
    accumulated, ranks, validation = (_sums(shared, part) for part in ("accumulation", "ranks", "validation"))
    assert divided([accumulated]) == pytest.approx(expect["accumulation"]["right"], abs=1e-6)
    assert divided(ranks) == pytest.approx(expect["ranks"]["right"], abs=1e-6)
    assert divided([validation]) == pytest.approx(expect["validation"]["right"], abs=1e-6)
    assert math.exp(divided([validation])) == pytest.approx(expect["validation"]["perplexity"], abs=1e-3)
    means = [one["loss_sum"] / one["tokens"] for one in accumulated]
    assert sum(means) / len(means) == pytest.approx(expect["accumulation"]["mean_of_means"])


def divided(ranks: list[list[dict]]) -> float:
    """What Step makes of ranks of microbatches with such sums: logits are made to give each."""
    total = sum(one["tokens"] for rank in ranks for one in rank)
    return sum(_part(one) / total for rank in ranks for one in rank)


def _part(one: dict) -> float:
    """cross_entropy of as many targets that give that sum, beside one that is ignored."""
    each = one["loss_sum"] / one["tokens"] if one["tokens"] else 0.0
    logits = torch.zeros(1, one["tokens"] + 1, 2, dtype=torch.float64)
    logits[..., 1] = math.log(math.expm1(each)) if each else 0.0  # label 0 costs log(1 + e ** x) = each
    labels = torch.zeros(1, one["tokens"] + 1, dtype=torch.int64)
    labels[0, -1] = loss.IGNORE
    return float(loss.cross_entropy(logits, labels))


def test_two_rows_are_weighed_by_their_targets(shared):
    expect = json.loads((shared / "cases/B40/EXPECT.json").read_text())["expect"]["valid_targets_two_rows"]
    rows = json.loads((shared / "cases/B40/two_rows.json").read_text())["rows"]
    whole = training.batch([[row] for row in rows], 70)
    keys = {"model": training.GPT, "optimizer": {"lr": 1e-9}}
    torch.manual_seed(1)
    assert whole.n_targets.tolist() == expect
    with torch.no_grad():
        one = training.step(**keys, vocabulary=64)
        ids, labels, segments, positions = step.inputs(whole)
        each = [
            loss.cross_entropy(one.model(ids[n : n + 1], segments if segments is None else segments[n : n + 1],
                                         positions[n : n + 1]), labels[n : n + 1])
            for n in range(2)
        ]  # fmt: skip
    found = one.run(whole.split(1))
    assert found.targets == sum(expect)
    assert found.loss == pytest.approx(float(sum(each)) / sum(expect), rel=1e-6)


# --- AdamW -----------------------------------------------------------------------------------------------------


class Three(nn.Module):
    """A matrix, a bias, and one that nothing uses."""

    def __init__(self):
        super().__init__()
        self.matrix, self.bias = nn.Parameter(torch.ones(1, 1)), nn.Parameter(torch.ones(1))
        self.unused = nn.Parameter(torch.ones(1, 1))


def one_step(decay, grad: float | None) -> Three:
    model = Three()
    moved = optimizer.adamw(model, Optimizer(lr=0.1, weight_decay=0.1, decay=decay))
    for parameter in (model.matrix, model.bias):
        parameter.grad = None if grad is None else torch.full_like(parameter, grad)
    moved.step()
    return model.requires_grad_(False)


def test_one_step_golden():
    assert float(one_step("all", 0.5).matrix) == pytest.approx(0.890000002, abs=1e-7)
    plain = nn.Parameter(torch.ones(1))
    plain.grad = torch.full((1,), 0.5)
    torch.optim.Adam([plain], lr=0.1, weight_decay=0.1).step()
    assert float(plain.detach()) == pytest.approx(0.9000000017, abs=1e-7), "L2 is another thing"


def test_a_gradient_of_none_is_not_a_gradient_of_zero():
    assert float(one_step("all", 0.0).matrix) == pytest.approx(0.99), "decays"
    assert float(one_step("all", None).matrix) == 1.0
    assert float(one_step("all", 0.5).unused) == 1.0


def test_what_decays_by_name():
    assert float(one_step("matrices", 0.0).bias) == 1.0
    assert float(one_step("all", 0.0).bias) == pytest.approx(0.99)
    model = Three()
    model.unused.requires_grad_(False)
    lines = {line.name: (line.group, line.decays) for line in optimizer.table(model, "matrices")}
    assert lines == {"matrix": ("decayed", True), "bias": ("kept", False), "unused": ("frozen", False)}
    found = optimizer.adamw(model, Optimizer(weight_decay=0.1))
    assert [(group["name"], group["weight_decay"], len(group["params"])) for group in found.param_groups] == [
        ("decayed", 0.1, 1), ("kept", 0.0, 1),
    ]  # fmt: skip


def test_adamw_against_its_formula():
    """Ten steps of float64, by hand."""
    parameter = nn.Parameter(torch.tensor([0.3, -1.2], dtype=torch.float64))
    model = nn.Module()
    model.weight = parameter
    moved = optimizer.adamw(model, Optimizer(lr=0.05, betas=(0.9, 0.95), weight_decay=0.2, decay="all"))
    theta, m, v = parameter.detach().numpy().copy(), np.zeros(2), np.zeros(2)
    for t in range(1, 11):
        grad = np.array([math.sin(t), math.cos(3 * t)])
        parameter.grad = torch.from_numpy(grad)
        moved.step()
        theta = theta * (1 - 0.05 * 0.2)
        m, v = 0.9 * m + 0.1 * grad, 0.95 * v + 0.05 * grad**2
        theta = theta - 0.05 * (m / (1 - 0.9**t)) / (np.sqrt(v / (1 - 0.95**t)) + 1e-8)
    assert parameter.detach().numpy() == pytest.approx(theta, rel=1e-12)
