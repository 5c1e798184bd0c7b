"""The loss does not fall, and why: a healthy run passes, and each planted fault is named by the check meant for it."""

import copy
import json
from collections.abc import Callable
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import training  # noqa: E402
from click.testing import CliRunner  # noqa: E402

from datapipe import feed  # noqa: E402
from datapipe.cli import cli  # noqa: E402
from datapipe.errors import PolicyError  # noqa: E402
from datapipe.feed import Batch  # noqa: E402
from datapipe.train import diagnose, stored  # noqa: E402
from datapipe.train.config import Model  # noqa: E402
from datapipe.train.diagnose import Check, Diagnosis  # noqa: E402

torch.set_num_threads(1)
SETTINGS: dict[str, Any] = {
    "build": "packed",
    "model": training.GPT,
    "optimizer": {"lr": 1e-2},
    "data": {"global_batch_rows": 8},
}
NAMES = [
    "labels", "loss mask", "attention mask", "initial loss", "overfit one batch", "gradients", "update to weight ratio",
    "learning rate", "data order",
]  # fmt: skip


@pytest.fixture(scope="module")
def builds(tmp_path_factory):
    return training.packed(tmp_path_factory.mktemp("packed"))


@pytest.fixture(scope="module")
def dataset(builds):
    with feed.open(builds / "packed") as data:
        yield data


@pytest.fixture(scope="module", params=["gpt", "reference"])
def healthy(request, builds, dataset):
    model = training.GPT if request.param == "gpt" else training.REFERENCE
    keys: dict[str, Any] = SETTINGS | {"model": model}
    return diagnose.subject(training.manifest(builds, **keys), dataset)


def test_a_healthy_run_passes_every_check(healthy):
    told: list[str] = []
    state = torch.get_rng_state()
    found = diagnose.examine(healthy, told.append)
    assert [check.name for check in found.checks] == NAMES
    assert found.failing == []
    found.judge()
    assert all(line.startswith("ok    ") and "(expected: " in line for line in told)
    assert len(told) == len(NAMES)
    assert torch.equal(torch.get_rng_state(), state)


def test_rows_really_have_several_documents_and_padding(dataset):
    """Else the checks of masks would see nothing."""
    sizes = [row.sizes for row in stored.stored(dataset, np.arange(dataset.train.rows))]
    assert sum(len(row) > 1 for row in sizes) > 10
    assert any(sum(row) < 16 for row in sizes)


def test_the_brute_force_view_says_what_the_feed_says(dataset):
    rows = np.arange(dataset.train.rows)[::-1]
    batch = Batch(dataset.train.read(rows))
    truth = stored.stored(dataset, rows)
    assert [row.ids for row in truth] == batch.input_ids.tolist()
    assert [row.labels() for row in truth] == batch.labels[:, :-1].tolist()
    assert [row.segment() for row in truth] == batch.segment_ids.tolist()
    assert stored.stored(dataset, np.array([-1]))[0].labels() == [-100] * 15


@pytest.mark.parametrize(
    "sizes, forbidden, expected",
    [
        ([5], [], [11, 12, 13, 14, -100]),
        ([2, 3], [], [11, -100, 13, 14, -100]),
        ([2, 3], [3], [11, -100, -100, 14, -100]),
        ([1, 1, 4], [0, 2], [-100, -100, 13, 14, 15]),
        ([], [], [-100] * 5),
    ],
)
def test_labels_token_after_token(sizes, forbidden, expected):
    row = stored.Stored(list(range(10, 16)), sizes, [i not in forbidden for i in range(6)])
    assert row.labels() == expected


# --- planted faults ------------------------------------------------------------------------------------------------


class NotShifted(Batch):
    @cached_property
    def labels(self):
        return np.where(self.loss_mask, self.input_ids, -100).astype(np.int32)


class ShiftedTwice(Batch):
    @cached_property
    def labels(self):
        late = np.roll(self.input_ids, -2, axis=1)
        return np.where(self.loss_mask, late, -100).astype(np.int32)


class LossEverywhere(Batch):
    """The next token is learnt across borders and in padding."""

    @cached_property
    def loss_mask(self):
        return np.ones(self.input_ids.shape, bool)

    @cached_property
    def labels(self):
        return np.concatenate((self.input_ids[:, 1:], np.full((len(self), 1), -100)), axis=1).astype(np.int32)


class LossNowhere(Batch):
    @cached_property
    def loss_mask(self):
        return np.zeros(self.input_ids.shape, bool)

    @cached_property
    def labels(self):
        return np.full(self.input_ids.shape, -100, np.int32)


class OneSegment(Batch):
    @cached_property
    def segment_ids(self):
        return np.ones(self.input_ids.shape, np.int32)


class OtherRows(Batch):
    """The rows of the batch before, under the numbers of this one."""

    @property
    def input_ids(self):
        return np.roll(self.rows.input_ids, 1, axis=0)


def given(kind: type[Batch]) -> Callable[[diagnose.Subject], diagnose.Subject]:
    """Batches as a feed with that fault would give them."""

    def plant(subject):
        def batch(epoch, g):
            one = subject.batch(epoch, g)
            return kind(one.rows, one.step, one.progress)

        return replace(subject, batch=batch)

    return plant


def modelled(change) -> Callable[[diagnose.Subject], diagnose.Subject]:
    def plant(subject):
        def make():
            model = subject.make()
            change(model)
            return model

        return replace(subject, make=make)

    return plant


def unmask(model):
    model.causal = False


def detach(model):
    model.blocks[0].register_forward_hook(lambda module, inputs, output: output.detach())


def freeze(model):
    model.blocks[1].up.weight.requires_grad_(False)


def inflate(model):
    with torch.no_grad():
        model.head.weight.mul_(1000)


def leak_infinity(model):
    model.blocks[1].up.weight.register_hook(lambda grad: grad * float("inf"))


def rate(factor: float) -> Callable[[diagnose.Subject], diagnose.Subject]:
    def plant(subject):
        optimizer = subject.config.optimizer
        optimizer = optimizer.model_copy(update={"lr": optimizer.lr * factor})
        return replace(subject, config=subject.config.model_copy(update={"optimizer": optimizer}))

    return plant


def sequential(subject):
    """Rows as they lie in the shards."""
    size = subject.config.data.global_batch_rows
    rows = lambda g: subject.dataset.train.read(np.arange(g * size, (g + 1) * size))  # noqa: E731
    return replace(subject, batch=lambda epoch, g: Batch(rows(g)))


def stuck(subject):
    """The same batch again and again."""
    return replace(subject, batch=lambda epoch, g: subject.batch(epoch, 0))


def every_epoch_alike(subject):
    return replace(subject, batch=lambda epoch, g: subject.batch(0, g))


FAULTS = {
    "labels not shifted": (given(NotShifted), "labels", "labels are not shifted"),
    "labels shifted twice": (given(ShiftedTwice), "labels", "labels are shifted twice"),
    "ids of other rows": (given(OtherRows), "labels", "labels belong to other rows"),
    "a loss mask of ones": (given(LossEverywhere), "loss mask", "borders of documents"),
    "a loss mask of zeros": (given(LossNowhere), "labels", "there is not one label"),
    "an attention mask of ones": (modelled(unmask), "attention mask", "a token sees what comes after it"),
    "documents see each other": (given(OneSegment), "attention mask", "documents in a row see each other"),
    "first weights too large": (modelled(inflate), "initial loss", "the first weights are too large"),
    "a detached layer": (modelled(detach), "gradients", "token.weight"),
    "a frozen tensor": (modelled(freeze), "gradients", "blocks.1.up.weight have none"),
    "a gradient that is not finite": (modelled(leak_infinity), "gradients", "blocks.1.up.weight are not finite"),
    "lr x 1000": (rate(1000), "update to weight ratio", "is too large"),
    "lr / 1000": (rate(1e-3), "learning rate", "at 0.01 it falls by"),
    "lr / 1e6": (rate(1e-6), "update to weight ratio", "is too small"),
    "data not shuffled": (sequential, "data order", "data are not shuffled"),
    "one batch again and again": (stuck, "data order", "rows come again"),
    "the same order in every epoch": (every_epoch_alike, "data order", "every epoch comes in the same order"),
}


@pytest.fixture(scope="module")
def gpt(builds, dataset):
    return diagnose.subject(training.manifest(builds, **SETTINGS), dataset)


@pytest.mark.parametrize("fault", FAULTS)
def test_each_planted_fault_is_named(gpt, fault, monkeypatch):
    plant, name, hint = FAULTS[fault]
    monkeypatch.setattr(diagnose, "CHECKS", diagnose.CHECKS[: NAMES.index(name) + 1])
    found = diagnose.examine(plant(gpt))
    check = found.checks[-1]
    assert (check.name, check.passed) == (name, False)
    assert hint in check.hint
    assert check.text().startswith(f"FAIL  {name}: ")
    # what comes before the fault in the order of checks is not blamed for it, but for a layer that cannot learn
    assert [check.name for check in found.failing[:-1]] in ([], ["overfit one batch"])
    with pytest.raises(PolicyError, match=f"^{found.failing[0].name}: .*expected"):
        found.judge()


def test_checks_work_on_copies(gpt, monkeypatch):
    monkeypatch.setattr(diagnose, "PROBE_STEPS", 1)
    model = gpt.make()
    before = copy.deepcopy(model.state_dict())
    diagnose.examine(replace(gpt, make=lambda: copy.deepcopy(model)))
    assert all(torch.equal(each, before[name]) for name, each in model.state_dict().items())
    assert all(parameter.grad is None for parameter in model.parameters())


def test_a_judgement_names_the_first_and_lists_the_others():
    checks = (Check("a", "1", "1", True), Check("b", "2", "3", False, "look"), Check("c", "4", "5", False))
    with pytest.raises(PolicyError, match=r"^b: 2, expected 3; look; after it: c$"):
        Diagnosis(checks).judge()
    assert Diagnosis(checks).as_json()["healthy"] is False
    assert PolicyError.status == 6


@pytest.mark.parametrize("fault", [[], ["data.order=sequential"], ["optimizer.lr=10"]])
@pytest.mark.parametrize("as_json", [False, True])
def test_the_command(builds, fault, as_json, monkeypatch):
    monkeypatch.setattr(diagnose, "PROBE_STEPS", 3)
    file = training.written(builds.parent / "diagnose.yaml", builds, *fault, **SETTINGS)
    before = sorted(builds.parent.rglob("*"))
    done = CliRunner().invoke(cli, ["train", str(file), "--diagnose", *["--json"] * as_json])
    assert sorted(builds.parent.rglob("*")) == before  # no run, no consumer
    if fault:
        assert isinstance(done.exception, PolicyError)
    else:
        assert (done.exit_code, done.exception) == (0, None)
    if as_json:
        told = json.loads(done.stdout)
        assert told["healthy"] is not bool(fault)
        assert [check["name"] for check in told["checks"]] == NAMES
    else:
        lines = [line for line in done.stdout.splitlines() if not line.startswith("  ")]
        assert len(lines) == len(NAMES)


@pytest.mark.slow
@pytest.mark.parametrize(
    "settings",
    [
        ["precision=bfloat16"],
        ["data.tail=pad", "data.global_batch_rows=24"],
        ["data.tail=wrap", "data.global_batch_rows=24"],
        ["data.global_batch_rows=1000", "data.tail=pad"],
        ["objective=per_document", "model.recompute=blocks"],
        ["model.dropout=0.1"],
        ["model.tied=true"],
    ],
    ids=str,
)
def test_other_healthy_runs(builds, dataset, settings):
    found = diagnose.examine(diagnose.subject(training.manifest(builds, *settings, **SETTINGS), dataset))
    assert found.failing == []


def test_the_model_is_that_of_the_run(builds, dataset):
    keys: dict[str, Any] = SETTINGS | {"model": training.GPT | {"dropout": 0.5}}
    subject = diagnose.subject(training.manifest(builds, **keys), dataset)
    assert subject.make().config == Model.model_validate(training.GPT | {"dropout": 0.5})
    assert subject.make().training
    assert subject.vocabulary == 31
