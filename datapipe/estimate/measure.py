"""
The bundled model run for one step, and what it really kept against what the terms say.

Saved-tensor hooks see every tensor that autograd keeps; each storage counts once, parameters do not count.  What
lives outside of saved tensors (the rotations that a recomputed block is called with) is not seen.  Needs
datapipe[train].
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from datapipe.errors import ManifestError
from datapipe.estimate import memory
from datapipe.estimate.setup import Setup
from datapipe.estimate.shape import Shape
from datapipe.estimate.terms import Table

PARTS = (
    "tokens",
    "norms",
    "linear inputs",
    "attention",
    "mlp",
    "dropout",
    "rotations",
    "head",
    "logits and loss",
    "layer inputs",
)


@dataclass(frozen=True)
class Row:
    """A part of the memory: bytes by the terms, bytes found."""

    name: str
    estimated: float
    measured: float

    @property
    def error(self) -> float:
        """(estimated - measured) / measured; 0 where neither is there, infinity where only the terms have it."""
        if self.measured:
            return self.estimated / self.measured - 1
        return float("inf") if self.estimated else 0.0

    def as_json(self) -> dict[str, Any]:
        error = self.error if self.measured or not self.estimated else None
        return {"name": self.name, "estimated": self.estimated, "measured": self.measured, "error": error}


@dataclass(frozen=True)
class Measured:
    """saved: parts of what autograd keeps; states: weights, gradients, optimizer."""

    saved: tuple[Row, ...]
    states: tuple[Row, ...]

    @property
    def activations(self) -> Row:
        return Row("saved for backward", sum(r.estimated for r in self.saved), sum(r.measured for r in self.saved))

    def as_json(self) -> dict[str, Any]:
        rows = [row.as_json() for row in (*self.states, *self.saved)]
        return {"rows": rows, "saved": self.activations.as_json()}


def measure(model: Mapping[str, Any], shape: Shape, setup: Setup, seed: int = 17) -> Measured:
    """
    One float32 step of the model that keys of a train manifest's `model` describe, on random tokens, on the CPU.

    setup: length, microbatch, mask (packed rows); its types and recompute are taken from the model.
    """
    try:
        import torch

        from datapipe.train import loss, optimizer
        from datapipe.train.config import Model, Optimizer
        from datapipe.train.model import build
    except ImportError as error:
        raise ManifestError(
            f"--measure: runs the bundled model, needs pip install 'datapipe[train]' ({error})"
        ) from None
    config = Model.model_validate(dict(model))
    setup = own(setup, config.recompute != "none", config.dropout > 0)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # spin waits of small products
    try:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            module = build(config, shape.vocabulary, setup.length)
            rows = torch.randint(shape.vocabulary, (setup.microbatch, setup.length + 1))
            ids, labels = rows[:, :-1], rows[:, 1:]
            segments = (
                1 + (torch.arange(setup.length) >= setup.length // 2).long().expand(ids.shape) if setup.mask else None
            )
            adamw = optimizer.adamw(module, Optimizer())
            seen = Seen(module)
            with seen.watching(torch):
                total = loss.cross_entropy(module(ids, segments), labels)
            total.backward()
            gradients = sum(p.grad.numel() * p.grad.element_size() for p in module.parameters() if p.grad is not None)
            adamw.step()
    finally:
        torch.set_num_threads(threads)
    weights = sum(p.numel() * p.element_size() for p in module.parameters())
    kept = sum(
        v.numel() * v.element_size() for s in adamw.state.values() for v in s.values() if isinstance(v, torch.Tensor)
    )
    table = memory.estimate(shape, setup).worst
    states = tuple(
        Row(name, table.value(name), found)
        for name, found in (("weights", weights), ("gradients", gradients), ("optimizer", kept))
    )
    estimated = parts(table)
    names = [name for name in PARTS if estimated.get(name) or seen.bytes.get(name)]
    return Measured(tuple(Row(name, estimated.get(name, 0.0), seen.bytes.get(name, 0.0)) for name in names), states)


def own(setup: Setup, recompute: bool, dropout: bool) -> Setup:
    """How `datapipe train` runs on one CPU: float32 throughout, each operation by itself."""
    return replace(
        setup, weights=4, gradients=4, activations=4, master=False, optimizer="adamw", dp=1, tp=1, pp=1, ep=1, zero=0,
        sequence_parallel=False, interleave=1, microbatches=1, gemm=0, fragmentation=0.0,
        counting="eager", fused=True, dropout=dropout,
        recompute="full" if recompute else "none",
    )  # fmt: skip


def parts(table: Table) -> dict[str, float]:
    """The terms of activations and kept logits as PARTS; what comes back while recomputing is not kept."""
    found: dict[str, float] = {}
    for term in table.terms:
        part = _part(term.name)
        if part is not None:
            found[part] = found.get(part, 0.0) + term.value
    return found


def _part(term: str) -> str | None:
    group, _, name = term.partition(".")
    if term in ("workspace.logits", "activations.loss"):
        return "logits and loss"
    if group != "activations" or name == "recomputed":
        return None
    if name in ("tokens", "rotations", "head"):
        return name
    if name == "layer_input":
        return "layer inputs"
    if "norm" in name:
        return "norms"
    if name.endswith("dropout_mask"):
        return "dropout"
    if name in ("attention_input", "attention_output", "mlp_input", "mlp_output"):
        return "linear inputs"
    return "attention" if name.startswith("attention") else "mlp"


# --- what is seen ---------------------------------------------------------------------------------------------------


@dataclass
class Seen:
    """Bytes of storages that autograd saved, by the module that was at work."""

    module: Any
    bytes: dict[str, float] = field(default_factory=dict[str, float])
    open: list[str] = field(default_factory=list[str])  # modules at work, the innermost last
    done: str = ""  # the module that ended last
    known: set[int] = field(default_factory=set[int])
    alive: list[Any] = field(default_factory=list[Any])  # or a freed storage's address would be seen again

    @contextmanager
    def watching(self, torch: Any) -> Iterator[None]:
        self.known = {p.untyped_storage().data_ptr() for p in self.module.parameters()}
        handles = []
        for name, module in self.module.named_modules():
            handles.append(module.register_forward_pre_hook(lambda _, __, name=name: self.open.append(name)))
            handles.append(module.register_forward_hook(lambda _, __, ___: self._end()))
        try:
            with torch.autograd.graph.saved_tensors_hooks(self._keep, lambda tensor: tensor):
                yield
        finally:
            for handle in handles:
                handle.remove()
            self.alive.clear()

    def _end(self) -> None:
        self.done = self.open.pop()

    def _keep(self, tensor: Any) -> Any:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in self.known:
            self.known.add(storage.data_ptr())
            self.alive.append(tensor)
            part = self._of(tensor)
            self.bytes[part] = self.bytes.get(part, 0.0) + storage.nbytes()
        return tensor

    def _of(self, tensor: Any) -> str:
        if not tensor.is_floating_point():
            return "tokens"
        if not self.open:
            return "logits and loss"
        at, last = self.open[-1], self.done.rpartition(".")[2]
        leaf = at.rpartition(".")[2]
        if at in ("norm", "head"):
            return "head"
        if leaf.startswith("norm"):
            return "norms"
        if not at:
            return "layer inputs"
        if not leaf.isdigit():
            return "linear inputs"
        if last in ("qkv", "q", "k", "v"):
            turns = (
                tensor.dim() == 4
                and not tensor.requires_grad
                and tensor.shape[1] == 1
                and tensor.shape[-1] != tensor.shape[-2]
            )
            return "rotations" if turns else "attention"
        return "dropout" if last in ("out", "down") else "mlp"
