"""
Memory = weights + gradients + optimizer + activations + workspace + communication, of a device at each pipeline stage.

All terms are counted as if alive at once, at the start of the backward pass: an upper bound, not a trace.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from datapipe.estimate import activations
from datapipe.estimate.activations import Sizes
from datapipe.estimate.quantities import Problems, show
from datapipe.estimate.setup import Setup
from datapipe.estimate.shape import Shape, Tensor
from datapipe.estimate.terms import Table, Term

BLOCK = 2048  # numbers that share one float32 scale in an 8-bit optimizer
MOMENTS = {"adamw": 8.0, "adamw8bit": 2 * (1 + 4 / BLOCK), "momentum": 4.0, "sgd": 0.0}  # bytes a parameter
FORMULAS = {
    "adamw": ("2 x 4 P", "ZeRO"), "adamw8bit": (f"2 x (1 + 4/{BLOCK}) P", "Dettmers"), "momentum": ("4 P", "ZeRO"),
    "adafactor": ("4 (rows + columns) of each matrix", "Shazeer"),
}  # fmt: skip


@dataclass(frozen=True)
class Held:
    """Parameters of one device, nothing sharded over dp; factored: rows + columns, as Adafactor keeps them."""

    dense: float
    experts: float = 0.0
    tensors: float = 0.0
    factored: float = 0.0
    block: float = 0.0  # of the largest layer

    @property
    def all(self) -> float:
        return self.dense + self.experts

    def over(self, setup: Setup, stage: int) -> float:
        """Parameters whose states a device keeps if ZeRO shards them from this stage on."""
        if setup.zero < stage:
            return self.all
        return self.dense / setup.dp + self.experts * setup.ep / setup.dp


@dataclass(frozen=True)
class Memory:
    """One table a pipeline stage; equal stages are there once."""

    shape: Shape
    setup: Setup
    stages: tuple[Table, ...]

    @property
    def worst(self) -> Table:
        """The stage that needs most: what a device must have."""
        return max(self.stages, key=lambda table: table.total)

    @property
    def total(self) -> float:
        return self.worst.total


def estimate(shape: Shape, setup: Setup, put: Mapping[str, float] | None = None, without: Iterable[str] = ()) -> Memory:
    """
    The memory of a device at every stage; ManifestError lists all that does not fit together.

    put, without: values for terms or groups, and those left out.
    """
    problems = Problems()
    shape.check(problems)
    setup.check(shape, problems)
    problems.refuse()
    left = tuple(without)
    made = [stage(shape, setup, n).changed(put or {}, left) for n in range(setup.pp)]
    return Memory(shape, setup, tuple(made))


def stage(shape: Shape, setup: Setup, number: int) -> Table:
    """All terms of one stage (from 0) in order."""
    held = parameters(shape, setup, number)
    lasting = [*states(held, setup), *_activations(shape, setup, number), *_workspace(shape, setup, number)]
    moving = list(_communication(shape, setup, held))
    loose = sum(t.value for t in lasting + moving if t.group not in ("weights", "gradients", "optimizer"))
    lost = Term(
        "workspace.fragmentation", setup.fragmentation * loose, "bytes",
        f"{show(setup.fragmentation, 'share')} of activations, workspace, communication", "assumed",
    )  # fmt: skip
    terms = tuple(term for term in [*lasting, lost, *moving] if term.value)
    order = ("weights", "gradients", "optimizer", "activations", "workspace", "communication")
    where = "device" if setup.pp == 1 else f"device of pipeline stage {number + 1} of {setup.pp}"
    return Table(
        where, tuple(sorted(terms, key=lambda term: order.index(term.group))), tuple(_assumptions(shape, setup))
    )


# --- weights, gradients, optimizer ----------------------------------------------------------------------------------


def parameters(shape: Shape, setup: Setup, number: int) -> Held:
    """What a device of a stage holds of every tensor."""
    dense = experts = tensors = factored = 0.0
    blocks: dict[bool, float] = {}
    for tensor, count in [*((t, 1.0) for t in _ends(shape, setup, number)), *_blocks(shape, setup)]:
        own = tensor.numel / _cut(tensor, shape, setup)
        if tensor.part == "expert":
            experts += count * own / setup.ep
        else:
            dense += count * own
        copies = tensor.copies / (setup.ep if tensor.part == "expert" else 1)
        tensors += count * copies
        factored += count * copies * _factored(tensor, _cut(tensor, shape, setup))
    for sparse in {False, True} if 0 < shape.sparse_layers < shape.layers else {shape.sparse_layers > 0}:
        blocks[sparse] = sum(
            t.numel / _cut(t, shape, setup) / (setup.ep if t.part == "expert" else 1) for t in shape.layer(sparse)
        )
    scale = shape.scale
    return Held(dense * scale, experts * scale, tensors, factored * scale, max(blocks.values()) * scale)


def _ends(shape: Shape, setup: Setup, number: int) -> Iterator[Tensor]:
    """Tensors outside the layers that a stage holds; a tied embedding is on both ends of a pipeline."""
    first, last = number == 0, number == setup.pp - 1
    for tensor in shape.outside():
        if (first if tensor.part == "embedding" else last) or (last and shape.tied and tensor.name == "embedding"):
            yield tensor


def _blocks(shape: Shape, setup: Setup) -> Iterator[tuple[Tensor, float]]:
    return ((tensor, count / setup.pp) for tensor, count in shape.layered())


def _cut(tensor: Tensor, shape: Shape, setup: Setup) -> float:
    """By how much tensor parallelism divides a tensor; a vocabulary that does not divide is padded."""
    if setup.tp == 1 or tensor.cut == "whole":
        return 1.0
    if tensor.cut == "kv":
        return float(min(setup.tp, shape.keys))
    if tensor.part in ("embedding", "head"):
        return shape.vocabulary / vocabulary(shape, setup)
    return float(setup.tp)


def vocabulary(shape: Shape, setup: Setup) -> int:
    """Rows of the embedding on one device."""
    return -(-shape.vocabulary // setup.tp)


def _factored(tensor: Tensor, cut: float) -> float:
    return sum(tensor.shape) - tensor.shape[0] * (1 - 1 / cut) if len(tensor.shape) == 2 else tensor.shape[0] / cut


def states(held: Held, setup: Setup) -> Iterator[Term]:
    """Weights, gradients and the optimizer's states, sharded as ZeRO says; each is divided once by each split."""
    for group, size, level in (("weights", setup.weights, 3), ("gradients", setup.gradients, 2)):
        yield Term(group, size * held.over(setup, level), "bytes", f"{size} P{_per(setup, level)}", "ZeRO")
    if setup.master:
        yield Term(
            "optimizer.master", 4 * held.over(setup, 1), "bytes", f"4 P{_per(setup, 1)}", "ZeRO", "float32 weights"
        )
    kind = setup.optimizer
    if kind == "sgd":
        return
    formula, source = FORMULAS[kind]
    if kind == "adafactor":
        value = 4 * held.factored * held.over(setup, 1) / held.all
    else:
        value = MOMENTS[kind] * held.over(setup, 1)
    yield Term("optimizer.moments", value, "bytes", f"{formula}{_per(setup, 1)}", source, kind)
    if kind in ("adamw", "adamw8bit") and held.tensors:
        yield Term("optimizer.steps", 4 * held.tensors, "bytes", "4 a tensor", "eager", "AdamW's own step of each")


def _per(setup: Setup, level: int) -> str:
    if setup.zero < level or setup.dp == 1:
        return ""
    return " / dp" if setup.ep == 1 else " / dp (experts: / (dp/ep))"


# --- activations and workspace --------------------------------------------------------------------------------------


def in_flight(setup: Setup, number: int) -> float:
    """
    Microbatches whose activations of all its layers a stage (from 0) holds: pp - number with 1F1B; the first stage of
    an interleaved schedule holds pp (1 + (pp - 1) / (pp v)).
    """
    if setup.interleave == 1:
        return min(setup.microbatches, setup.pp - number)
    chunks = 2 * (setup.pp - number - 1) + (setup.interleave - 1) * setup.pp + 1
    return min(setup.microbatches * setup.interleave, chunks) / setup.interleave


def _activations(shape: Shape, setup: Setup, number: int) -> Iterator[Term]:
    waiting = in_flight(setup, number)
    kinds = {sparse: count * waiting / setup.pp for sparse, count in _kinds(shape).items() if count}
    found: dict[str, Term] = {}
    for sparse, copies in kinds.items():
        for term in activations.kept(shape, setup, sparse):
            before = found[term.name].value if term.name in found else 0.0
            found[term.name] = replace(term, value=before + copies * term.value)
    times = f" x {show(sum(kinds.values()), 'number')} layers" + (" in flight" if setup.pp > 1 else "")
    for term in found.values():
        yield replace(term, name=f"activations.{term.name}", formula=term.formula + times)
    if setup.recompute != "none":
        again = activations.recomputed(shape, setup)
        yield Term(
            "activations.recomputed",
            again,
            "bytes",
            "what recompute dropped, of one layer",
            "Korthikanti",
            "one at a time",
        )
    yield from _ends_activations(shape, setup, number)


def _kinds(shape: Shape) -> dict[bool, int]:
    return {False: shape.layers - shape.sparse_layers, True: shape.sparse_layers}


def _ends_activations(shape: Shape, setup: Setup, number: int) -> Iterator[Term]:
    sizes, eager = Sizes(shape, setup), setup.counting == "eager"
    stream = sizes.stream
    if eager:
        ids = 8 * setup.microbatch * (2 * setup.length + 1) + 8 * setup.length * bool(shape.positions)
        yield Term(
            "activations.tokens",
            ids,
            "bytes",
            "8 b (2 s + 1)" + " + 8 s" * bool(shape.positions),
            "eager",
            "ids and labels",
        )
        if not shape.positions and setup.recompute == "none":
            turned = setup.activations * sizes.tokens * shape.head
            yield Term("activations.rotations", turned, "bytes", "e s b d", "eager", "cosines and sines")
    elif number == 0 and setup.dropout:
        kept = min(setup.microbatches, setup.pp) * sizes.tokens * shape.width / sizes.spread
        yield Term("activations.embedding_dropout", kept, "bytes", "1 s b h p /t(sp)", "Megatron", "mask")
    if number == setup.pp - 1:
        if eager:
            yield Term("activations.loss", 4, "bytes", "4", "eager", "the number of targets")
        rms = shape.norm == "rms"
        value, formula, source = 2 * stream, "2 e s b h /t(sp)", "Megatron"
        if eager:
            value += (4 if rms else 8) * sizes.tokens + rms * stream
            formula, source = "3 e s b h + 4 s b" if rms else "2 e s b h + 8 s b", "eager"
        yield Term("activations.head", value, "bytes", formula, source, "last norm and head")


def _workspace(shape: Shape, setup: Setup, number: int) -> Iterator[Term]:
    if number == setup.pp - 1:
        logits = 4.0 * setup.length * setup.microbatch * vocabulary(shape, setup)
        yield Term("workspace.logits", logits, "bytes", "4 s b V /t, float32", "Megatron")
        yield Term("workspace.logits_gradient", logits, "bytes", "4 s b V /t, float32", "Megatron")
    yield Term("workspace.flat_buffer", 4.0 * setup.flat, "bytes", "4 a number", "ZeRO", "fused copies in float32")
    yield Term("workspace.gemm", setup.gemm, "bytes", "fixed", "torch", "of the matrix library")


# --- communication --------------------------------------------------------------------------------------------------


def _communication(shape: Shape, setup: Setup, held: Held) -> Iterator[Term]:
    sizes = Sizes(shape, setup)
    if setup.dp > 1:
        yield from _data_parallel(setup, held)
    if setup.pp > 1:
        yield Term(
            "communication.pp_receive", 2 * sizes.stream, "bytes", "2 e s b h /t(sp)", "Narayanan", "one each way"
        )
    if setup.sequence_parallel:
        whole = sizes.stream * setup.tp
        yield Term(
            "communication.sp_gathered", whole, "bytes", "e s b h", "Korthikanti", "the whole length, for one product"
        )
    if setup.ep > 1:
        routed = 2 * sizes.stream * shape.active
        yield Term("communication.ep_buffers", routed, "bytes", "2 e s b h k /t(sp)", "GShard", "sent and received")


def _data_parallel(setup: Setup, held: Held) -> Iterator[Term]:
    bucket = min(setup.bucket, held.all)
    shown = show(setup.bucket, "count")
    if setup.zero == 0 and not setup.bucket_view:
        yield Term("communication.ddp_buckets", setup.gradients * held.all, "bytes", f"{setup.gradients} P", "torch",
                   "a second copy, unless gradient_as_bucket_view")  # fmt: skip
    elif setup.zero and setup.fsdp:
        block = setup.weights * held.block
        yield Term(
            "communication.gathered", 2 * block, "bytes", f"2 x {setup.weights} block", "torch", "a layer and the next"
        )
        whole = setup.gradients * held.block
        yield Term(
            "communication.unsharded_gradient",
            whole,
            "bytes",
            f"{setup.gradients} block",
            "torch",
            "until it is scattered",
        )
    elif setup.zero:
        yield Term(
            "communication.reduce_bucket",
            setup.gradients * bucket,
            "bytes",
            f"{setup.gradients} min({shown}, P)",
            "DeepSpeed",
        )
        if setup.zero == 3:
            live = setup.weights * min(setup.live, held.all)
            yield Term("communication.live_parameters", live, "bytes",
                       f"{setup.weights} min({show(setup.live, 'count')}, P)", "DeepSpeed")  # fmt: skip
        else:
            yield Term(
                "communication.gather_bucket",
                setup.weights * bucket,
                "bytes",
                f"{setup.weights} min({shown}, P)",
                "DeepSpeed",
            )


def letters(shape: Shape, setup: Setup) -> str:
    """What the letters of the formulas are here."""
    experts = f", k {shape.active} experts of E {shape.experts}" if shape.experts else f", k {shape.keys} of keys"
    return (
        f"s {setup.length:,} tokens, b {setup.microbatch} rows, h {shape.width:,}, a {shape.heads} heads "
        f"of d {shape.head}{experts}, f {shape.hidden:,}, V {shape.vocabulary:,}, e {setup.activations} bytes, "
        f"t {setup.tp} (tp), p {setup.pp} (pp), P parameters of the device; (sp): only with sequence parallelism"
    )


def _assumptions(shape: Shape, setup: Setup) -> Iterator[str]:
    yield from shape.assumed
    if shape.given and not shape.assumed:
        yield f"the tensors add up to {shape.counted:,}; all are scaled by {shape.scale:.4f} to the parameters given"
    if setup.tp > 1 and shape.vocabulary % setup.tp:
        padded = vocabulary(shape, setup) * setup.tp
        yield f"the vocabulary is padded from {shape.vocabulary:,} to {padded:,} for tp {setup.tp}"
    if setup.tp > shape.keys:
        yield f"{setup.tp} ranks share {shape.keys} heads of keys: each head has {setup.tp // shape.keys} copies"
    if shape.experts:
        yield "tokens are spread evenly over experts; a fuller expert keeps more"
    if shape.dense_layers and setup.pp > 1:
        yield "dense and sparse layers are spread evenly over the stages"
    if setup.counting == "published":
        yield "activations as Korthikanti et al. count them; plain operations of torch keep more (--counting eager)"
    else:
        yield "activations as torch keeps them operation by operation; fused kernels keep less (--counting published)"
    yield "everything alive at once, at the start of the backward pass: an upper bound"
    if setup.fragmentation:
        yield f"fragmentation of {show(setup.fragmentation, 'share')}: a real run's reserved / allocated replaces it"
    yield "not counted: the driver's context, other processes, data loading"
