"""
One step on many devices: bytes that each sends, seconds, the pipeline's bubble, and who waits for whom.

Modelled: volume / bandwidth + messages x latency of ring collectives, operations / rate.  Not modelled: overlap of
communication and computation, contention, stragglers.  So the sum is an upper bound, the largest addend a lower one.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from datapipe.estimate import flops, memory
from datapipe.estimate.activations import Sizes
from datapipe.estimate.quantities import Problems, show
from datapipe.estimate.rows import Work
from datapipe.estimate.setup import Setup
from datapipe.estimate.shape import Shape
from datapipe.estimate.terms import Table, Term

DDP_BUCKET = 25 * 2**20  # bytes: torch's bucket_cap_mb
MODELLED = (
    "modelled: volume / bandwidth + messages x latency of ring collectives, operations / rate",
    "not modelled: that small products are slower, stragglers, contention",
    "not modelled: overlap of communication and computation; the sum is an upper bound, the largest addend a lower one",
)


@dataclass(frozen=True)
class Machine:
    """
    What the devices do: FLOP/s and the share of it that matrix products reach, devices a node, bytes/s that a device
    sends inside a node and between nodes, seconds a message takes.
    """

    rate: float = 312e12
    efficiency: float = 0.5
    per_node: int = 8
    inside: float = 300e9
    between: float = 25e9
    latency_inside: float = 5e-6
    latency_between: float = 15e-6

    def describe(self) -> str:
        return (
            f"{show(self.rate, 'FLOP/s')} a device, {show(self.efficiency, 'share')} of it reached by products; "
            f"{self.per_node} devices a node; {show(self.inside, 'bytes/s')} and "
            f"{show(self.latency_inside, 'seconds')} inside, {show(self.between, 'bytes/s')} and "
            f"{show(self.latency_between, 'seconds')} between nodes"
        )


@dataclass(frozen=True)
class Load:
    """
    Who has more to do: costs of the stages, tokens of each expert, an expert's capacity as a factor of the mean, the
    packed rows of a build; empty where all are equal.
    """

    stages: tuple[float, ...] = ()
    experts: tuple[float, ...] = ()
    capacity: float = 0.0
    rows: Work | None = None

    def check(self, shape: Shape, setup: Setup, problems: Problems) -> None:
        if self.stages and len(self.stages) != setup.pp:
            problems.add("--stage-costs", f"found {len(self.stages)} numbers, expected {setup.pp}, one a stage")
        if self.experts and not shape.experts:
            problems.add("--expert-loads", "the model has no experts")
        elif self.experts and len(self.experts) != shape.experts:
            problems.add(
                "--expert-loads", f"found {len(self.experts)} numbers, expected {shape.experts}, one an expert"
            )
        if self.capacity and not self.experts:
            problems.add("--capacity", "needs --expert-loads")
        for flag, values in (("--stage-costs", self.stages), ("--expert-loads", self.experts)):
            if values and sum(values) <= 0:
                problems.add(flag, "all are 0")
        if self.rows is not None and self.rows.length != setup.length:
            problems.add("--length", f"found {setup.length}, and rows of the build have {self.rows.length}")


@dataclass(frozen=True)
class Transfer:
    """Bytes that a device sends in a step, in how many messages one after the other, over which kind of link."""

    name: str
    volume: float
    messages: float
    between: bool
    formula: str
    source: str

    def seconds(self, machine: Machine) -> float:
        rate, latency = (
            (machine.between, machine.latency_between) if self.between else (machine.inside, machine.latency_inside)
        )
        return self.volume / rate + self.messages * latency


@dataclass(frozen=True)
class Cost:
    """volumes: bytes a device sends in a step; times: seconds; dropped: share of tokens over expert capacity."""

    shape: Shape
    setup: Setup
    machine: Machine
    volumes: Table
    times: Table
    notes: tuple[str, ...]
    dropped: float = 0.0

    @property
    def seconds(self) -> float:
        return self.times.total

    @property
    def tokens_per_second(self) -> float:
        return self.setup.rows * self.setup.length / self.seconds

    @property
    def mfu(self) -> float:
        """Operations of the model (no recompute) in a step over what the devices could do in that time."""
        model = flops.exact(self.shape, self.setup.length) * self.setup.rows
        return model / (self.seconds * self.setup.devices * self.machine.rate)

    def bottleneck(self) -> tuple[str, float]:
        """(the group or transfer that takes longest, its seconds); computation that is useful is one group."""
        parts = {"compute": self.times.value("compute")}
        parts |= {t.name: t.value for t in self.times.terms if t.group != "compute"}
        name = max(parts, key=lambda part: parts[part])
        return name, parts[name]

    def lost(self) -> tuple[str, float] | None:
        """The largest part that is not useful computation."""
        terms = [t for t in self.times.terms if t.group != "compute" or t.name == "compute.recompute"]
        worst = max(terms, key=lambda term: term.value, default=None)
        return None if worst is None or not worst.value else (worst.name, worst.value)


# --- collectives ----------------------------------------------------------------------------------------------------


def all_reduce(ranks: int, size: float) -> float:
    """Bytes each rank sends: 2 (n - 1) / n of them; 0 for one rank."""
    return 2 * gather(ranks, size)


def gather(ranks: int, size: float) -> float:
    """All-gather, reduce-scatter and all-to-all alike: (n - 1) / n."""
    return (ranks - 1) / ranks * size


def bubble(stages: int, microbatches: int, chunks: int = 1) -> float:
    """Idle over ideal time: (p - 1) / (m v); Narayanan et al., sections 2.2.1 and 2.2.2."""
    return (stages - 1) / (microbatches * chunks)


def bubble_share(stages: int, microbatches: int, chunks: int = 1) -> float:
    """Idle over all time: (p - 1) / (m v + p - 1)."""
    return (stages - 1) / (microbatches * chunks + stages - 1)


# --- one step -------------------------------------------------------------------------------------------------------


def cost(
    shape: Shape, setup: Setup, machine: Machine, load: Load | None = None, put: Mapping[str, float] | None = None,
    without: Iterable[str] = (),
) -> Cost:  # fmt: skip
    """
    Bytes and seconds of a step of one device, the one that the others wait for; ManifestError lists what does not fit.

    put, without: values for terms of the times, and those left out.
    """
    load = load or Load()
    problems = Problems()
    shape.check(problems)
    setup.check(shape, problems)
    load.check(shape, setup, problems)
    problems.refuse()
    return unchecked(shape, setup, machine, load, put, without)


def unchecked(
    shape: Shape,
    setup: Setup,
    machine: Machine,
    load: Load,
    put: Mapping[str, float] | None = None,
    without: Iterable[str] = (),
) -> Cost:
    """The same for what is known to fit."""
    moved = [transfer for transfer in transfers(shape, setup, machine) if transfer.volume]
    volumes = Table(
        "bytes that a device sends in a step",
        tuple(Term(t.name, t.volume, "bytes", t.formula, t.source, _link(t)) for t in moved),
    )
    seconds = [*_computation(shape, setup, machine, load)]
    seconds += [
        Term(f"communication.{t.name}", t.seconds(machine), "seconds",
             f"{show(t.volume, 'bytes')} + {t.messages:,.0f} messages", t.source, _link(t))
        for t in moved
    ]  # fmt: skip
    times = Table("seconds of a step", tuple(t for t in seconds if t.value)).changed(put or {}, tuple(without))
    return Cost(shape, setup, machine, volumes, times, tuple(_notes(shape, setup, machine, load)), overflow(load))


def _link(transfer: Transfer) -> str:
    return "between nodes" if transfer.between else "inside a node"


def transfers(shape: Shape, setup: Setup, machine: Machine) -> Iterator[Transfer]:
    """Everything that is sent in a step."""
    sizes = Sizes(shape, setup)
    held = [memory.parameters(shape, setup, number) for number in sorted({0, setup.pp - 1})]
    most = max(held, key=lambda one: one.all)
    yield from _data(setup, "dp", most.dense, setup.dp, setup.tp * setup.dp > machine.per_node, shape.layers / setup.pp)
    if most.experts:
        spans = setup.tp * setup.dp > machine.per_node
        yield from _data(setup, "dp_experts", most.experts, setup.dp // setup.ep, spans, shape.sparse_layers / setup.pp)
    layers = shape.layers / setup.pp * setup.microbatches
    if setup.tp > 1:
        times = 6 if setup.recompute == "full" else 4
        size = sizes.stream * sizes.spread
        how = "all-gather + reduce-scatter" if setup.sequence_parallel else "all-reduce"
        yield Transfer(
            "tp", times * layers * all_reduce(setup.tp, size), times * layers * 2 * (setup.tp - 1),
            setup.tp > machine.per_node,
            f"{times} {how} of e s b h, {layers:g} layers x passes", "Korthikanti",
        )  # fmt: skip
    if setup.pp > 1:
        sent = 2 * setup.microbatches * setup.interleave
        spans = setup.devices > machine.per_node
        yield Transfer("pp", sent * sizes.stream, sent, spans, "2 m v e s b h /t(sp)", "Narayanan")
    if setup.ep > 1:
        passes = 4 * shape.sparse_layers / setup.pp * setup.microbatches
        size = sizes.stream * shape.active
        spans = setup.tp * setup.ep > machine.per_node
        yield Transfer(
            "ep",
            passes * gather(setup.ep, size),
            passes * (setup.ep - 1),
            spans,
            "4 e s b h k (ep - 1)/ep, all-to-all",
            "GShard",
        )


def _data(setup: Setup, name: str, parameters: float, ranks: int, between: bool, layers: float) -> Iterator[Transfer]:
    """Gradients, and the weights where they are sharded, over the ranks that hold the same ones."""
    if ranks < 2 or not parameters:
        return
    gradients, weights, hops = setup.gradients * parameters, setup.weights * parameters, ranks - 1
    if setup.zero == 0:
        buckets = max(1, math.ceil(gradients / DDP_BUCKET))
        yield Transfer(name, all_reduce(ranks, gradients), 2 * hops * buckets, between,
                       f"all-reduce of {setup.gradients} P: 2 (n - 1)/n", "ring")  # fmt: skip
        return
    pieces = layers if setup.zero == 3 else max(1, math.ceil(parameters / setup.bucket))
    scattered = gather(ranks, gradients)
    if setup.zero < 3:
        yield Transfer(name, scattered + gather(ranks, weights), 2 * hops * pieces, between,
                       "reduce-scatter of gradients + all-gather of weights", "ZeRO")  # fmt: skip
        return
    again = setup.microbatches if setup.regather else 1
    formula = f"all-gather of weights x 2{f' x {again} passes' if again > 1 else ''} + reduce-scatter of gradients"
    yield Transfer(
        name, 2 * again * gather(ranks, weights) + scattered, (2 * again + 1) * hops * pieces, between, formula, "ZeRO"
    )


# --- computation ----------------------------------------------------------------------------------------------------


def _computation(shape: Shape, setup: Setup, machine: Machine, load: Load) -> Iterator[Term]:
    rate = machine.rate * machine.efficiency
    tokens = setup.length * setup.microbatch
    share = load.rows.core_share if load.rows else 1.0
    one = {name: value * setup.microbatch / setup.tp for name, value in flops.forward(shape, setup.length).items()}
    one["attention_core"] *= share
    blocks = sum(value for name, value in one.items() if name != "head")
    again = {"none": 0.0, "full": blocks, "selective": one["attention_core"]}[setup.recompute]
    if setup.fused and setup.recompute == "selective":
        again = 0.0  # nothing was dropped
    each = setup.microbatches / setup.pp / rate
    for name, value in one.items():
        made = "2 a product" if name != "attention_core" else f"4 a d s^2 x {share:.3g}" if share < 1 else "4 a d s^2"
        yield Term(f"compute.{name}", 3 * value * each, "seconds", f"3 x {made} / rate", "counted")
    yield Term("compute.recompute", again * each, "seconds", "one forward pass more of what is dropped", "Korthikanti")
    mean = (3 * sum(one.values()) + again) / setup.pp / rate  # of one microbatch and stage
    slowest = mean * unevenness(load.stages or _stage_costs(setup, one, again))
    slow, formula = setup.microbatches * (slowest - mean), "m (slowest - mean stage)"
    yield Term("imbalance.stages", slow, "seconds", formula, "counted" if not load.stages else "you")
    idle = (setup.pp - 1) / setup.interleave * slowest
    yield Term(
        "bubble",
        idle,
        "seconds",
        "(p - 1)/v of the slowest stage",
        "Narayanan",
        f"{bubble(setup.pp, setup.microbatches, setup.interleave):.3g} of ideal",
    )
    if shape.experts:
        met = sum(t.numel // t.copies * shape.active for t in shape.layer(True) if t.part == "expert")
        routed = 6.0 * tokens * met * shape.sparse_layers * shape.scale / setup.tp
        waiting = (expert_factor(setup, load) - 1) * routed * each
        yield Term("imbalance.experts", waiting, "seconds", "(fullest / mean rank - 1) of the experts", "GShard")
    if load.rows is not None and setup.dp > 1:
        waiting = rows_factor(shape, setup, load.rows) - 1
        whole = setup.microbatches * mean
        yield Term(
            "imbalance.rows",
            waiting * whole,
            "seconds",
            "(fullest / mean rank - 1) of the rows",
            "counted",
            "sum_len_sq",
        )


def _stage_costs(setup: Setup, one: Mapping[str, float], again: float) -> Sequence[float]:
    """Equal layers, and the head on the last stage."""
    blocks = 3 * sum(value for name, value in one.items() if name != "head") + again
    costs = [blocks / setup.pp] * setup.pp
    costs[-1] += 3 * one["head"]
    return costs


def unevenness(values: Sequence[float]) -> float:
    """Maximum over mean; 1 where there is nothing to compare."""
    return max(values) * len(values) / sum(values) if values and sum(values) else 1.0


def expert_factor(setup: Setup, load: Load) -> float:
    """How much more the fullest rank of experts has to do than the mean one; a capacity bounds it."""
    if not load.experts or setup.ep == 1:
        return 1.0
    mean = sum(load.experts) / len(load.experts)
    taken = [min(one, load.capacity * mean) if load.capacity else one for one in load.experts]
    each = len(taken) // setup.ep
    return max(sum(taken[n : n + each]) for n in range(0, len(taken), each)) / (mean * each)


def overflow(load: Load) -> float:
    """Share of tokens that experts over their capacity drop."""
    if not load.capacity or not load.experts:
        return 0.0
    most = load.capacity * sum(load.experts) / len(load.experts)
    return sum(max(0.0, one - most) for one in load.experts) / sum(load.experts)


def rows_factor(shape: Shape, setup: Setup, rows: Work) -> float:
    """How much longer the fullest of dp ranks works than the mean one, over the build's rows in stored order."""
    one = flops.forward(shape, setup.length)
    core = one.pop("attention_core")
    return rows.unevenness(setup.dp, setup.rows // setup.dp, sum(one.values()), core / setup.length**2)


def _notes(shape: Shape, setup: Setup, machine: Machine, load: Load) -> Iterator[str]:
    yield from MODELLED
    yield f"the machine: {machine.describe()}"
    yield "ranks of tp are neighbours, then dp, then pp; a group larger than a node uses the link between nodes"
    if setup.pp > 1:
        keys = setup.pp, setup.microbatches, setup.interleave
        yield f"bubble: {bubble(*keys):.3g} of the ideal time, {show(bubble_share(*keys), 'share')} of all"
    if setup.tp > 1:
        yield "of tensor parallelism the collectives of embedding and loss are left out"
    if load.rows is not None:
        yield load.rows.describe(setup.dp, setup.rows // setup.dp)
    if load.capacity:
        yield f"experts over {load.capacity:g} x the mean load drop {show(overflow(load), 'share')} of the tokens"
    yield from shape.assumed
