"""
One update of the weights from a window of microbatches.

Its order can be observed: sample, forward, loss, backward for each microbatch; then synchronise (gradients are summed
over ranks in the last backward pass), unscale, finite, clip, optimizer, zero, counters.  What the sum of losses is
divided by is known, over all microbatches and ranks, before the first forward pass.

A window without a target is counted and otherwise left alone.  A step whose numbers are not finite is refused, or left
out: the weights, the optimizer's moments and count, and the schedule stay where they are; the data goes on, `skipped`
counts it, and the loss scale falls.
"""

import math
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils import clip_grads_with_norm_, get_total_norm

from datapipe.errors import DataError
from datapipe.feed import Batch
from datapipe.train import loss
from datapipe.train.config import Training
from datapipe.train.parallel import Parallel
from datapipe.train.schedule import factor

Tell = Callable[[str, dict[str, Any]], None]


@dataclass
class Counters:
    """
    How far a run is.  rows, tokens, targets: delivered, over all ranks;  applied: targets of steps that were taken.
    """

    windows: int = 0  # global batches that were delivered
    micro_steps: int = 0  # of this rank
    steps: int = 0  # updates of the weights
    skipped: int = 0  # updates that were left out: a gradient was not finite
    skipped_in_a_row: int = 0
    empty: int = 0  # windows without a target
    empty_in_a_row: int = 0
    rows: int = 0
    tokens: int = 0
    targets: int = 0
    applied: int = 0

    def as_json(self) -> dict[str, int]:
        return asdict(self)


class Scale:
    """
    What the loss is multiplied by, as torch.amp.GradScaler moves it: halved by a step that is not finite, doubled by
    2,000 in a row that are.  Our own, for GradScaler looks at the gradients of one rank, and knows none that are cut.
    """

    BACK, GROWTH, INTERVAL = 0.5, 2.0, 2000

    def __init__(self, first: float | None):
        self.fixed = first is None
        self.now, self.good = first or 1.0, 0

    def update(self, finite: bool) -> None:
        """After a step."""
        if self.fixed:
            return
        self.good = self.good + 1 if finite else 0
        if not finite:
            self.now *= self.BACK
        elif self.good == self.INTERVAL:
            self.now, self.good = self.now * self.GROWTH, 0

    def as_json(self) -> dict[str, float]:
        return {"now": self.now, "good": self.good}

    def load(self, entry: dict[str, float]) -> None:
        """Out of a checkpoint."""
        self.now, self.good = entry["now"], int(entry["good"])


@dataclass(frozen=True)
class Outcome:
    """
    What a step did.

    loss: of the window, over all ranks;  norm: of the gradient, unclipped;  both nan without targets
    """

    loss: float
    targets: int
    tokens: int
    rows: int
    norm: float
    lr: float
    taken: bool


@dataclass
class Step:
    """
    The weights, what moves them, and how far it is.

    tell: hears each event as it happens: of each microbatch sample, forward, loss, backward; then synchronise, unscale,
    finite, clip, optimizer, zero, counters
    """

    model: nn.Module
    optimizer: torch.optim.Optimizer
    config: Training
    parallel: Parallel
    whole: float  # the run's length in the schedule's unit
    tell: Tell = lambda event, facts: None
    counters: Counters = field(default_factory=Counters)

    def __post_init__(self) -> None:
        self.scale = Scale(self.config.loss_scale)

    def run(self, window: Sequence[Batch]) -> Outcome:
        """Forward, backward and update on the microbatches of this rank; every rank gives as many."""
        weighed = [loss.weights(one.labels[:, :-1], one.segment_ids[:, :-1], self.config.objective) for one in window]
        seen = [sum(int(value) for value in column) for column in zip(*map(_counts, window), strict=True)]
        total, *seen = self.parallel.sum([sum(whole for _, whole in weighed), *seen])
        rows, tokens, targets = map(int, seen)
        lr = self._rate(targets)
        if total == 0:
            self._count(rows, tokens, targets, len(window), taken=None)
            return Outcome(math.nan, targets, tokens, rows, math.nan, lr, taken=False)
        summed = 0.0
        for number, (batch, (weights, _)) in enumerate(zip(window, weighed, strict=True), start=1):
            summed += self._micro(batch, weights, total, last=number == len(window))
        self.tell("synchronise", {"ranks": self.parallel.world})
        mean = self.parallel.sum([summed])[0]
        norm, taken = self._update(mean)
        self._count(rows, tokens, targets, len(window), taken)
        return Outcome(mean, targets, tokens, rows, norm, lr, taken)

    def _micro(self, batch: Batch, weights: Any, total: float, *, last: bool) -> float:
        """Forward and backward; this microbatch's part of the window's loss."""
        ids, labels, segments, positions = inputs(batch)
        weights_BT = None if weights is None else torch.from_numpy(weights)
        self.tell("sample", {"rows": len(ids), "targets": int(batch.n_targets.sum())})
        with nullcontext() if last else self.parallel.no_sync(self.model):
            with torch.autocast("cpu", torch.bfloat16, enabled=self.config.precision == "bfloat16"):
                logits = self.model(ids, segments, positions)
            self.tell("forward", {"shape": tuple(logits.shape), "dtype": str(logits.dtype)})
            part = loss.cross_entropy(logits, labels, weights_BT) / total
            self.tell("loss", {"loss": part.detach(), "divided_by": total})
            # ranks are averaged by DDP and by FSDP; the loss is a sum
            (part * (self.scale.now * self.parallel.world)).backward()
            self.tell("backward", {"last": last})
        return float(part.detach())

    def _update(self, mean: float) -> tuple[float, bool]:
        """(norm of the gradient, whether the weights were moved)."""
        grads = [p.grad for p in self.model.parameters() if p.grad is not None]
        if self.scale.now != 1:
            for grad in grads:
                grad.div_(self.scale.now)
        self.tell("unscale", {"scale": self.scale.now})
        norm = float(_whole(get_total_norm(grads))) if grads else 0.0
        finite = not self.parallel.maximum(float(not (math.isfinite(norm) and math.isfinite(mean))))
        self.tell("finite", {"norm": norm, "finite": finite})
        if not finite:
            self._refuse(norm, mean)
        elif self.config.clip is not None:
            clip_grads_with_norm_(self.model.parameters(), self.config.clip, torch.tensor(norm))
        self.tell("clip", {"most": self.config.clip, "norm": norm})
        if finite:
            self.optimizer.step()
        self.scale.update(finite)
        self.tell("optimizer", {"taken": finite})
        self.optimizer.zero_grad(set_to_none=True)
        self.tell("zero", {})
        return norm, finite

    def _refuse(self, norm: float, mean: float) -> None:
        policy = self.config.non_finite
        where = f"step {self.counters.steps + 1}: the loss is {mean}, the norm of the gradient {norm}"
        if policy.policy == "raise":
            raise DataError(
                f"{where}; lower optimizer.lr, or skip such steps (non_finite); --diagnose looks for the cause"
            )
        if self.counters.skipped_in_a_row + 1 > policy.most:
            raise DataError(f"{where}, after {policy.most} skipped steps in a row, which is non_finite.most")

    def _rate(self, targets: int) -> float:
        """The learning rate of a step of so many targets, put into the optimizer."""
        schedule, counters = self.config.schedule, self.counters
        progress, size = (counters.steps, 1) if schedule.unit == "steps" else (counters.applied, targets)
        lr = self.config.optimizer.lr * factor(schedule, progress, size, self.whole)
        for group in self.optimizer.param_groups:
            group["lr"] = lr
        return lr

    def _count(self, rows: int, tokens: int, targets: int, micro: int, taken: bool | None) -> None:
        """taken: None where there was nothing to learn from."""
        counters = self.counters
        counters.windows += 1
        counters.micro_steps += micro
        counters.rows += rows
        counters.tokens += tokens
        counters.targets += targets
        if taken is None:
            counters.empty += 1
            counters.empty_in_a_row += 1
        elif taken:
            counters.steps += 1
            counters.applied += targets
            counters.skipped_in_a_row = counters.empty_in_a_row = 0
        else:
            counters.empty_in_a_row = 0
            counters.skipped += 1
            counters.skipped_in_a_row += 1
        self.tell("counters", counters.as_json())


def inputs(batch: Batch) -> tuple[Tensor, Tensor, Tensor | None, Tensor]:
    """
    (ids, labels, segments or None, positions), [B, T] each: a row's ids but the last, and the next token of each.

    Segments are None where every row is one whole segment: attention needs no mask then.
    """
    segments = batch.segment_ids[:, :-1]
    one = bool((segments == 1).all())
    tensors = [_long(values) for values in (batch.input_ids[:, :-1], batch.labels[:, :-1], batch.position_ids[:, :-1])]
    return tensors[0], tensors[1], None if one else _long(segments), tensors[2]


def _long(values: Any) -> Tensor:
    return torch.from_numpy(values.astype("int64"))


def _counts(batch: Batch) -> tuple[int, int, int]:
    return int((batch.row_ids >= 0).sum()), int(batch.n_tokens.sum()), int(batch.n_targets.sum())


def _whole(norm: Any) -> Tensor:
    """FSDP gives a DTensor, of which each rank holds a part."""
    return norm.full_tensor() if hasattr(norm, "full_tensor") else norm
