"""
Which splits of N devices fit, ranked by the time of a step; and what to change first where a setup does not fit.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from datapipe.estimate import memory, parallel
from datapipe.estimate.parallel import Load, Machine
from datapipe.estimate.quantities import Problems
from datapipe.estimate.setup import RECOMPUTE, Setup
from datapipe.estimate.shape import Shape

MOST = 64  # rows of one microbatch that are tried


@dataclass(frozen=True)
class Candidate:
    """bytes: of the stage that needs most; cost: of a step."""

    setup: Setup
    bytes: float
    cost: parallel.Cost

    @property
    def seconds(self) -> float:
        return self.cost.seconds

    def as_json(self) -> dict[str, Any]:
        setup = self.setup
        keys = ("dp", "tp", "pp", "ep", "sequence_parallel", "zero", "recompute", "microbatch", "microbatches")
        found: dict[str, Any] = {key: getattr(setup, key) for key in keys}
        bottleneck, _ = self.cost.bottleneck()
        figures = {"tokens_per_second": self.cost.tokens_per_second, "mfu": self.cost.mfu, "bottleneck": bottleneck}
        return found | {"bytes": self.bytes, "seconds": self.seconds} | figures


@dataclass(frozen=True)
class Change:
    """One change: what it saves, what it costs, and how much more device time a step takes (a share of it)."""

    name: str
    setup: Setup
    bytes: float
    saved: float
    price: str
    longer: float


def peak(shape: Shape, setup: Setup) -> float:
    """Bytes of the fullest stage: the first has most in flight and the embedding, the last the head."""
    return max(memory.stage(shape, setup, number).total for number in {0, setup.pp - 1})


def splits(
    shape: Shape,
    base: Setup,
    devices: int,
    rows: int,
    machine: Machine,
    memory_bytes: float | None,
    load: Load | None = None,
) -> list[Candidate]:
    """
    The best setup of every split (dp, tp, pp, ep) of the devices that fits, fastest first.

    rows: of one update, the same for all, so that a step is the same work.  memory_bytes: of a device; None: any.
    """
    best: dict[tuple[int, ...], Candidate] = {}
    shared = replace(load or Load(), stages=())  # they belong to one number of stages
    for setup in _every(shape, base, devices, rows, machine):
        cost = parallel.unchecked(shape, setup, machine, shared)
        key = (setup.dp, setup.tp, setup.pp, setup.ep)
        if key in best and best[key].seconds <= cost.seconds:
            continue
        need = peak(shape, setup)
        if memory_bytes is None or need <= memory_bytes:
            best[key] = Candidate(setup, need, cost)
    return sorted(best.values(), key=lambda one: (one.seconds, one.bytes))


def _every(shape: Shape, base: Setup, devices: int, rows: int, machine: Machine) -> Iterator[Setup]:
    for tp in _divisors(devices):
        if tp > machine.per_node:
            continue
        for pp in _divisors(devices // tp):
            dp = devices // tp // pp
            if rows % dp:
                continue
            for ep in _divisors(dp) if shape.experts else [1]:
                yield from _inner(shape, replace(base, tp=tp, pp=pp, dp=dp, ep=ep, interleave=1), rows)


def _inner(shape: Shape, base: Setup, rows: int) -> Iterator[Setup]:
    """Shardings, recompute and microbatches of one split, those that fit the model."""
    base = replace(base, sequence_parallel=base.tp > 1 and base.length % base.tp == 0, microbatch=1, microbatches=1)
    problems = Problems()
    base.check(shape, problems)
    if problems.found:
        return
    for micro in _divisors(rows // base.dp):
        if micro > MOST or micro & (micro - 1):
            continue
        several = replace(base, microbatch=micro, microbatches=rows // base.dp // micro)
        for zero in (0, 1, 2, 3) if base.dp > 1 else (0,):
            if zero > 1 and base.pp > 1:
                continue  # gradients and weights of a pipeline's stage would be gathered anew for every microbatch
            for recompute in RECOMPUTE:
                if recompute == "selective" and base.fused:
                    continue
                yield replace(several, zero=zero, fsdp=base.fsdp and zero == 3, recompute=recompute)


def _divisors(number: int) -> list[int]:
    return [n for n in range(1, number + 1) if number % n == 0]


# --- what to change first -------------------------------------------------------------------------------------------


def advice(shape: Shape, setup: Setup, machine: Machine) -> list[Change]:
    """Single changes that save memory, the cheapest first; the batch is cut last."""
    before, seconds = peak(shape, setup), _device_seconds(shape, setup, machine)
    found: list[tuple[int, Change]] = []
    for rank, name, changed, price in _changes(setup):
        problems = Problems()
        changed.check(shape, problems)
        if problems.found:
            continue
        after = peak(shape, changed)
        if after < before * 0.995:
            longer = _device_seconds(shape, changed, machine) / seconds - 1
            found.append((rank, Change(name, changed, after, before - after, price, longer)))
    return [change for _, change in sorted(found, key=lambda item: (item[0], -item[1].saved))]


def _device_seconds(shape: Shape, setup: Setup, machine: Machine) -> float:
    return setup.devices * parallel.unchecked(shape, setup, machine, Load()).seconds


def _changes(setup: Setup) -> Iterator[tuple[int, str, Setup, str]]:
    """(rank of its price, what to write, the setup, the price)"""
    more = setup.microbatches
    if not setup.fused:
        yield 0, "--fused", replace(setup, fused=True), "none: the same result"
    if setup.dp > 1 and setup.zero == 0 and not setup.bucket_view:
        yield 0, "--bucket-view", replace(setup, bucket_view=True), "none: gradients lie in the buckets"
    for zero in (1, 2):
        if setup.dp > 1 and setup.zero < zero:
            yield 0, f"--zero {zero}", replace(setup, zero=zero), "none: the volume of the all-reduce"
    if setup.tp > 1 and not setup.sequence_parallel:
        yield 0, "--sp", replace(setup, sequence_parallel=True), "none: the volume of the all-reduce"
    if setup.recompute == "none" and not setup.fused:
        yield 1, "--recompute selective", replace(setup, recompute="selective"), "the attention core once more"
    if setup.dp > 1 and setup.zero < 3:
        yield 2, "--zero fsdp", replace(setup, zero=3, fsdp=True), "weights gathered twice a pass"
    if setup.recompute != "full":
        yield 3, "--recompute full", replace(setup, recompute="full"), "a forward pass more: 8ND for 6ND"
    if setup.optimizer == "adamw":
        yield (
            4,
            "--optimizer adamw8bit",
            replace(setup, optimizer="adamw8bit"),
            "other numerics: compare on a small run",
        )
    yield 5, f"--tp {2 * setup.tp}", replace(setup, tp=2 * setup.tp, sequence_parallel=True), "twice the devices"
    yield 5, f"--pp {2 * setup.pp}", replace(setup, pp=2 * setup.pp), "twice the devices, a bubble"
    if setup.microbatch > 1:
        half = replace(setup, microbatch=setup.microbatch // 2, microbatches=2 * more)
        yield 6, f"--microbatch {half.microbatch}", half, "smaller products, twice the passes"
