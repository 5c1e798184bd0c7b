"""
`datapipe train FILE --diagnose`: the loss does not fall, and why?

Checks of what can be observed, in the order in which a fault would show: what the model is given against the columns of
the shards, what it may look at, what it says before it has learnt, whether it can learn at all, then the step, its rate
and the order of data.  Every check works on copies: nothing is trained on, written or registered.
"""

import copy
import math
import statistics
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from datapipe import feed
from datapipe.errors import DataError, PolicyError
from datapipe.feed import Batch, Dataset
from datapipe.train.config import NonFinite, Optimizer, Schedule, Training, TrainManifest
from datapipe.train.loss import IGNORE, cross_entropy
from datapipe.train.optimizer import adamw
from datapipe.train.parallel import Parallel
from datapipe.train.run import begin
from datapipe.train.step import Step, inputs
from datapipe.train.stored import stored

LOOKED = 4  # batches whose rows are compared with the shards
POSITIONS = 2048  # of rows that a probe learns from at once, about
NEAR = 0.15  # how far, of ln V, the loss of a model that knows nothing may lie from ln V
LEARNT = 0.1  # of its first loss, which a model must reach on two rows
OVERFIT = Optimizer(lr=3e-3, weight_decay=0.0)  # known to work; the rate of the run is a later check's business
OVERFIT_STEPS = 200
RATIO = (1e-6, 1.0)  # of an update to its weights: below it is lost in rounding, above it forgets what was there
PROBES = (1e-4, 1e-3, 1e-2)  # rates that are tried beside the run's, a tenth and ten times of it
PROBE_STEPS = 12
FALL = 0.02  # of the loss, which a probe must take away to have fallen
ENOUGH = 0.8  # of what the best rate takes away: the smallest such rate is the one to name
EPOCH = 64  # batches of an epoch whose order is looked at
NEIGHBOURS = 0.5  # share of rows followed by the next one of the shards, above which nothing was shuffled


@dataclass(frozen=True)
class Check:
    """What was found, what was expected, and what to look at where they differ."""

    name: str
    found: str
    expected: str
    passed: bool
    hint: str = ""

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    def text(self) -> str:
        """For the terminal."""
        line = f"{'ok  ' if self.passed else 'FAIL'}  {self.name}: {self.found} (expected: {self.expected})"
        return line if self.passed or not self.hint else f"{line}\n      {self.hint}"


@dataclass(frozen=True)
class Diagnosis:
    """All checks, in order."""

    checks: tuple[Check, ...]

    @property
    def failing(self) -> list[Check]:
        return [check for check in self.checks if not check.passed]

    def as_json(self) -> dict[str, Any]:
        return {"healthy": not self.failing, "checks": [check.as_json() for check in self.checks]}

    def judge(self) -> None:
        """PolicyError by the first check that fails."""
        if not self.failing:
            return
        first, *others = self.failing
        more = f"; after it: {', '.join(check.name for check in others)}" if others else ""
        hint = f"; {first.hint}" if first.hint else ""
        raise PolicyError(f"{first.name}: {first.found}, expected {first.expected}{hint}{more}")


@dataclass
class Subject:
    """
    What is looked at.

    batch:  (epoch, g) -> global batch g of it, as the run gets it;  batches: how many an epoch has
    make:   a model with the run's first weights, a new one each time
    """

    config: Training
    dataset: Dataset
    batch: Callable[[int, int], Batch]
    batches: int
    make: Callable[[], nn.Module]
    vocabulary: int

    def few(self, g: int = 0, positions: int = POSITIONS) -> Batch:
        """Rows of global batch g (counted across epochs): those with most targets, about so many positions in all."""
        batch = self.batch(*divmod(g, self.batches))
        places = np.argsort(-batch.n_targets, kind="stable")[: max(2, positions // batch.length)]
        return type(batch)(batch.rows.take(places), batch.step, batch.progress)

    def step(self, model: nn.Module, optimizer: Optimizer) -> Step:
        """The run's step at a constant rate."""
        config = self.config.model_copy(
            update={"optimizer": optimizer, "schedule": Schedule(), "non_finite": NonFinite(), "loss_scale": None}
        )
        return Step(model, adamw(model, optimizer), config, Parallel(), float(config.steps))

    @contextmanager
    def precision(self) -> Iterator[None]:
        """What the run computes in."""
        with torch.autocast("cpu", torch.bfloat16, enabled=self.config.precision == "bfloat16"):
            yield


def diagnose(manifest: TrainManifest, tell: Callable[[str], None] = lambda line: None) -> Diagnosis:
    """Every check of the run that a manifest describes; tell: hears of each once it is done."""
    config = manifest.train
    torch.set_num_threads(config.threads)
    with (
        feed.open(manifest.build, verify=config.data.verify, output=manifest.builds) as dataset,
        torch.random.fork_rng(devices=[]),
    ):
        return examine(subject(manifest, dataset), tell)


def subject(manifest: TrainManifest, dataset: Dataset) -> Subject:
    """The run, before its first step."""
    run = begin(manifest, dataset, Parallel(), Path())
    return Subject(
        manifest.train,
        dataset,
        batch=lambda epoch, g: run.loader.batch_at(g, epoch),
        batches=len(run.loader),
        make=lambda: copy.deepcopy(run.model),
        vocabulary=run.model.head.out_features,
    )


def examine(subject: Subject, tell: Callable[[str], None] = lambda line: None) -> Diagnosis:
    """All checks, whatever the ones before found."""
    found: list[Check] = []
    for check in CHECKS:
        found.append(check(subject))
        tell(found[-1].text())
    return Diagnosis(tuple(found))


# --- what the model is given -----------------------------------------------------------------------------------


def _given(subject: Subject) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """(ids as stored [b, length], labels as they should be, labels as the model gets them) of some batches."""
    last = subject.batches - 1
    for place in list(dict.fromkeys([(0, 0), (0, last // 2), (0, last), (1, 0)]))[:LOOKED]:
        batch = subject.batch(*place)
        truth = stored(subject.dataset, batch.row_ids)
        ids = np.array([row.ids for row in truth])
        yield ids, np.array([row.labels() for row in truth]), inputs(batch)[1].numpy()


def labels(subject: Subject) -> Check:
    """The label at t is the id at t + 1."""
    right = same = late = of = 0
    for ids, wanted, given in _given(subject):
        asked = (wanted != IGNORE) & (given != IGNORE)
        of += int(asked.sum())
        right += int((given == wanted)[asked].sum())
        same += int((given == ids[:, :-1])[asked].sum())
        late += int((given[:, :-1] == ids[:, 2:])[asked[:, :-1]].sum())
    hint = "labels belong to other rows or ids than the shards say" if of else "there is not one label"
    if same > right and same >= late:
        hint = f"{same:,} of them are the id itself: labels are not shifted, and the model learns to copy"
    elif late > right:
        hint = f"{late:,} of them are the id after the next one: labels are shifted twice"
    return Check(
        "labels", f"{right:,} of {of:,} labels are the next id of their row", "all", right == of > 0, hint
    )  # fmt: skip


def loss_mask(subject: Subject) -> Check:
    """Targets are what lies before a token of the same segment that may be predicted, and nothing else."""
    of = many = missing = 0
    for _, wanted, given in _given(subject):
        of += int((wanted != IGNORE).sum())
        many += int(((wanted == IGNORE) & (given != IGNORE)).sum())
        missing += int(((wanted != IGNORE) & (given == IGNORE)).sum())
    return Check(
        "loss mask", f"{of:,} targets, {many:,} more where none should be, {missing:,} missing", "0 more, 0 missing",
        of > 0 and not many and not missing,
        "padding, borders of documents or masked tokens are learnt from" if many else "targets are left out",
    )  # fmt: skip


def attention_mask(subject: Subject) -> Check:
    """Edits of later tokens, and of tokens of other documents, must not be seen."""
    batch = subject.few()
    ids, _, segments, positions = inputs(batch)
    number = torch.tensor([row.segment() for row in stored(subject.dataset, batch.row_ids)])[:, :-1]
    model, half = subject.make().eval(), ids.shape[1] // 2
    with torch.no_grad():
        before = model(ids, segments, positions)
        later = (model(_edited(subject, ids, torch.arange(ids.shape[1]) >= half), segments, positions) - before).abs()
        odd = number % 2 == 1
        others = (model(_edited(subject, ids, odd), segments, positions) - before).abs()[~odd & (number > 0)]
    leak = float(later[:, :half].max()) if half else 0.0
    across = float(others.max()) if len(others) else 0.0
    seen = float(later[:, half:].max())
    return Check(
        "attention mask",
        f"edits of later tokens change a logit by {leak:.3g}, of other documents by {across:.3g}, "
        f"their own by {seen:.3g}",
        "0, 0 and more than 0", leak == 0 and across == 0 and seen > 0,
        "a token sees what comes after it: the loss falls, and nothing is learnt" if leak
        else "documents in a row see each other" if across else "the inputs make no difference",
    )  # fmt: skip


def _edited(subject: Subject, ids: Tensor, where: Tensor) -> Tensor:
    """Another id at every place of `where`."""
    return torch.where(where, (ids + max(1, subject.vocabulary // 2)) % subject.vocabulary, ids)


# --- what the model does ---------------------------------------------------------------------------------------


def _loss(subject: Subject, model: nn.Module, batch: Batch) -> Tensor:
    """Nats per target."""
    ids, labels, segments, positions = inputs(batch)
    with subject.precision():
        logits = model(ids, segments, positions)
    return cross_entropy(logits, labels) / max(1, int((labels != IGNORE).sum()))


def initial_loss(subject: Subject) -> Check:
    """A model that knows nothing loses ln V."""
    even = math.log(subject.vocabulary)
    with torch.no_grad():
        found = float(_loss(subject, subject.make().eval(), subject.few()))
    return Check(
        "initial loss", f"{found:.4f} nats per target", f"ln {subject.vocabulary} = {even:.4f}, +- {NEAR:.0%}",
        abs(found - even) <= NEAR * even,
        "the first weights are too large, or logits are scaled" if found > even else "the answer leaks into the inputs",
    )  # fmt: skip


def overfit(subject: Subject) -> Check:
    """Two rows can be learnt by heart, at a rate that is known to work."""
    model = subject.make().eval()
    step, batch = subject.step(model, OVERFIT), subject.few(positions=1)
    first, last, number = math.nan, math.inf, 0
    try:
        for number in range(1, OVERFIT_STEPS + 1):
            last = step.run([batch]).loss
            first = last if number == 1 else first
            if not last > LEARNT * first:
                break
    except DataError:
        last = math.nan
    return Check(
        "overfit one batch", f"loss {first:.4f} -> {last:.4f} on 2 rows in {number} steps", f"below {LEARNT:.0%} of it",
        last <= LEARNT * first, "what is seen again and again is not learnt: look at gradients and labels",
    )  # fmt: skip


def gradients(subject: Subject) -> Check:
    """Every tensor gets a gradient: finite, and not all zeros."""
    model = subject.make().eval()
    _loss(subject, model, subject.few()).backward()
    norms = {
        name: math.nan if parameter.grad is None else float(parameter.grad.norm())
        for name, parameter in model.named_parameters()
    }
    none = [name for name, parameter in model.named_parameters() if parameter.grad is None]
    zero = [name for name, norm in norms.items() if norm == 0]
    wild = [name for name, norm in norms.items() if not math.isfinite(norm) and name not in none]
    good = {name: norm for name, norm in norms.items() if math.isfinite(norm) and norm > 0}
    least, most = (min(good, key=good.__getitem__), max(good, key=good.__getitem__)) if good else ("", "")
    span = f", norms {good[least]:.2g} ({least}) to {good[most]:.2g} ({most})" if good else ""
    bad = [(none, "have none"), (zero, "are zero"), (wild, "are not finite")]
    return Check(
        "gradients", f"{len(good)} of {len(norms)} tensors have one{span}", "all, finite and not zero",
        len(good) == len(norms), "; ".join(f"{_names(names)} {what}" for names, what in bad if names),
    )  # fmt: skip


def _names(names: Sequence[str], most: int = 4) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def update_ratio(subject: Subject) -> Check:
    """What one step changes, of what is there, at the highest rate of the run."""
    model = subject.make().eval()
    before = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    lr = subject.config.optimizer.lr
    try:
        subject.step(model, subject.config.optimizer).run([subject.few()])
    except DataError as error:
        return Check("update to weight ratio", f"no step was taken: {error}", "a step", False, "look at the gradients")
    ratios = {
        name: float((parameter.detach() - before[name]).norm() / before[name].norm())
        for name, parameter in model.named_parameters()
        if parameter.ndim >= 2 and before[name].norm() > 0
    }
    middle = statistics.median(ratios.values())
    most = max(ratios, key=ratios.__getitem__)
    low, high = RATIO
    return Check(
        "update to weight ratio",
        f"median {middle:.3g} of {len(ratios)} matrices in a first step at lr {lr:g}, most {ratios[most]:.3g} ({most})",
        f"median {low:g} to {high:g}", low <= middle <= high,
        f"optimizer.lr {lr:g} is too large: a step is larger than the weights" if middle > high
        else f"optimizer.lr {lr:g} is too small: a step is lost in rounding",
    )  # fmt: skip


def learning_rate(subject: Subject) -> Check:
    """A few steps at the run's highest rate lower the loss on rows that were seen; so do rates around it, or not."""
    lr = subject.config.optimizer.lr
    found: dict[float, float] = {}
    for rate in sorted({*PROBES, lr / 10, lr, lr * 10}):
        before, after = _probe(subject, rate)
        found[rate] = 1 - after / before if before else 0.0
    most = max(found.values())
    good = min(rate for rate, fall in found.items() if fall >= ENOUGH * most or fall == most)
    each = ", ".join(f"{rate:.2g}: {_fall(fall)}" for rate, fall in found.items() if rate != lr)
    hint = f"at {good:.2g} it falls by {_fall(found[good])}" if most >= FALL else "no rate makes it fall"
    return Check(
        "learning rate", f"in {PROBE_STEPS} steps at lr {lr:g} the loss falls by {_fall(found[lr])}; at others {each}",
        f"by {FALL:.0%} or more", found[lr] >= FALL, hint,
    )  # fmt: skip


def _fall(share: float) -> str:
    """For the terminal; what grows without bound has no percentage."""
    return f"{share:.1%}" if math.isfinite(share) else "nothing, it diverges"


def _probe(subject: Subject, lr: float) -> tuple[float, float]:
    """The loss on the rows of the first step, before and after all."""
    model = subject.make().eval()
    step = subject.step(model, subject.config.optimizer.model_copy(update={"lr": lr}))
    with torch.no_grad():
        before = float(_loss(subject, model, subject.few()))
    try:
        for number in range(PROBE_STEPS):
            step.run([subject.few(number)])
    except DataError:
        return before, math.inf
    with torch.no_grad():
        after = float(_loss(subject, model, subject.few()))
    return before, after if math.isfinite(after) else math.inf


# --- in which order --------------------------------------------------------------------------------------------


def data_order(subject: Subject) -> Check:
    """No row twice in an epoch, rows in another order than in the shards, and in another one in the next epoch."""
    looked = min(subject.batches, EPOCH)
    order = [np.concatenate([subject.batch(epoch, g).row_ids for g in range(looked)]) for epoch in (0, 1)]
    order = [ids[ids >= 0] for ids in order]
    again = len(order[0]) - len(np.unique(order[0]))
    if subject.config.data.tail == "wrap" and looked == subject.batches:
        again -= max(0, len(order[0]) - subject.dataset.train.rows)
    neighbours = float((np.diff(order[0]) == 1).mean()) if len(order[0]) > 1 else 0.0
    same = len(order[0]) == len(order[1]) and bool((order[0] == order[1]).all())
    shuffled = subject.batches == 1 or (neighbours <= NEIGHBOURS and not same)
    hint = "rows come again before the others have come"
    if not again:
        hint = "data are not shuffled: rows come as they lie in the shards; set data.order to block-v1"
        if neighbours <= NEIGHBOURS:
            hint = "every epoch comes in the same order"
    one = "; a batch is a whole epoch, so order does not matter" if subject.batches == 1 else ""
    found = (
        f"{len(order[0]):,} rows in {looked:,} of {subject.batches:,} batches, {again:,} of them again, "
        f"{neighbours:.0%} followed by their neighbour, next epoch in {'the same' if same else 'another'} order{one}"
    )
    expected = "none again, few neighbours, another order" if subject.batches > 1 else "none again"
    return Check("data order", found, expected, not again and shuffled, hint)


CHECKS: tuple[Callable[[Subject], Check], ...] = (
    labels, loss_mask, attention_mask, initial_loss, overfit, gradients, update_ratio, learning_rate, data_order,
)  # fmt: skip
