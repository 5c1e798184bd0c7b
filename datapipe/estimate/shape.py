"""
The shape of a causal transformer, and every tensor it has.

What is counted is what a checkpoint holds: embeddings, biases, norms and the router of a mixture of experts too.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Literal

from datapipe.estimate.quantities import Problems

Norm = Literal["layer", "layer-weight", "rms"]  # weight and bias; LayerNorm's weight alone; RMSNorm's weight
Part = Literal["embedding", "attention", "mlp", "expert", "norm", "head"]
Cut = Literal["split", "kv", "whole"]  # by tensor parallelism: evenly, by kv_heads, not at all


@dataclass(frozen=True)
class Tensor:
    """A weight.  shape: without the copies; copies: of equal tensors a layer (experts), or 1."""

    name: str
    shape: tuple[int, ...]
    part: Part
    cut: Cut = "split"
    copies: int = 1

    @property
    def numel(self) -> int:
        return math.prod(self.shape) * self.copies


@dataclass(frozen=True)
class Shape:
    """
    layers, width, heads, hidden, vocabulary: L, h, a, f, V of the papers.

    head_width: of one head; 0: width / heads.  positions: learnt ones, 0 where there are none.
    gated: the MLP has a gate (SwiGLU, GeGLU).  biases: of qkv, out, mlp, norm (by norm's kind), head.
    experts: of a sparse MLP, 0 where it is dense; active: chosen for a token; expert_hidden: 0: hidden.
    shared_hidden: of an expert that every token passes.  dense_layers: layers whose MLP is dense although there are
    experts.  given: the number of parameters that is to be believed instead of the count of the tensors.
    """

    layers: int
    width: int
    heads: int
    hidden: int
    vocabulary: int
    name: str = "flags"
    kv_heads: int = 0
    head_width: int = 0
    positions: int = 0
    gated: bool = False
    norm: Norm = "layer"
    final_norm: bool = True
    tied: bool = False
    qkv_bias: bool = False
    out_bias: bool = False
    mlp_bias: bool = False
    head_bias: bool = False
    joined: bool = False  # queries, keys and values are one tensor
    head_norm: bool = False  # of queries and keys, one weight a head's width
    experts: int = 0
    active: int = 0
    expert_hidden: int = 0
    shared_hidden: int = 0
    shared_gate: bool = False
    dense_layers: int = 0
    given: float = 0.0
    assumed: tuple[str, ...] = ()

    # --- sizes ------------------------------------------------------------------------------------------------------

    @property
    def keys(self) -> int:
        """Heads of keys and values."""
        return self.kv_heads or self.heads

    @property
    def head(self) -> int:
        return self.head_width or self.width // self.heads

    @property
    def query_width(self) -> int:
        return self.heads * self.head

    @property
    def key_width(self) -> int:
        return self.keys * self.head

    @property
    def sparse_layers(self) -> int:
        return self.layers - self.dense_layers if self.experts else 0

    @property
    def expert_width(self) -> int:
        return self.expert_hidden or self.hidden

    # --- tensors ----------------------------------------------------------------------------------------------------

    def outside(self) -> Iterator[Tensor]:
        """Before and behind the layers."""
        yield Tensor("embedding", (self.vocabulary, self.width), "embedding")
        if self.positions:
            yield Tensor("positions", (self.positions, self.width), "embedding", "whole")
        if self.final_norm:
            yield from self._norm("norm", self.width)
        if not self.tied:
            yield Tensor("head", (self.vocabulary, self.width), "head")
        if self.head_bias:
            yield Tensor("head.bias", (self.vocabulary,), "head")

    def layer(self, sparse: bool) -> Iterator[Tensor]:
        """One layer; sparse: its MLP is of experts."""
        yield from self._norm("norm_attention", self.width)
        parts: list[tuple[str, int, Cut]] = [("query", self.query_width, "split")]
        parts.append(("key", self.key_width, "kv"))
        parts.append(("value", self.key_width, "kv"))
        if self.joined and self.keys == self.heads:
            parts = [("qkv", 3 * self.query_width, "split")]
        for name, rows, cut in parts:
            yield Tensor(name, (rows, self.width), "attention", cut)
            if self.qkv_bias:
                yield Tensor(f"{name}.bias", (rows,), "attention", cut)
        yield Tensor("out", (self.width, self.query_width), "attention")
        if self.out_bias:
            yield Tensor("out.bias", (self.width,), "attention", "whole")
        if self.head_norm:
            yield Tensor("query_norm", (self.head,), "norm", "whole")
            yield Tensor("key_norm", (self.head,), "norm", "whole")
        yield from self._norm("norm_mlp", self.width)
        if not sparse:
            yield from self._mlp("", self.hidden, "mlp")
            return
        yield Tensor("router", (self.experts, self.width), "mlp", "whole")
        yield from self._mlp("expert_", self.expert_width, "expert", self.experts)
        if self.shared_hidden:
            yield from self._mlp("shared_", self.shared_hidden, "mlp")
        if self.shared_gate:
            yield Tensor("shared_gate", (1, self.width), "mlp", "whole")

    def _mlp(self, prefix: str, hidden: int, part: Part, copies: int = 1) -> Iterator[Tensor]:
        for name in ("gate", "up") if self.gated else ("up",):
            yield Tensor(prefix + name, (hidden, self.width), part, copies=copies)
            if self.mlp_bias:
                yield Tensor(f"{prefix}{name}.bias", (hidden,), part, copies=copies)
        yield Tensor(f"{prefix}down", (self.width, hidden), part, copies=copies)
        if self.mlp_bias:
            yield Tensor(f"{prefix}down.bias", (self.width,), part, "whole", copies)

    def _norm(self, name: str, width: int) -> Iterator[Tensor]:
        yield Tensor(name, (width,), "norm", "whole")
        if self.norm == "layer":
            yield Tensor(f"{name}.bias", (width,), "norm", "whole")

    def layered(self) -> Iterator[tuple[Tensor, int]]:
        """(tensor of a layer, how many layers have it)."""
        for sparse, count in ((False, self.layers - self.sparse_layers), (True, self.sparse_layers)):
            if count:
                yield from ((tensor, count) for tensor in self.layer(sparse))

    # --- counts -----------------------------------------------------------------------------------------------------

    @property
    def counted(self) -> int:
        """Parameters, by the tensors."""
        return sum(t.numel for t in self.outside()) + sum(t.numel * n for t, n in self.layered())

    @property
    def parameters(self) -> float:
        """The given number, else the counted one."""
        return self.given or self.counted

    @property
    def scale(self) -> float:
        """What each tensor is multiplied by so that they add up to the given number."""
        return self.given / self.counted if self.given else 1.0

    @property
    def active_parameters(self) -> float:
        """Parameters that a token meets: of the experts only the chosen ones."""
        idle = sum(t.numel // t.copies * (t.copies - self.active) * n for t, n in self.layered() if t.part == "expert")
        return self.scale * (self.counted - idle)

    @property
    def outside_blocks(self) -> float:
        """Parameters of embeddings, learnt positions and an untied head: what N of some papers leaves out."""
        return self.scale * sum(t.numel for t in self.outside() if t.part in ("embedding", "head"))

    # --- checks -----------------------------------------------------------------------------------------------------

    def check(self, problems: Problems) -> None:
        """List what cannot be, under the names of the flags."""
        for flag in ("layers", "width", "heads", "hidden", "vocabulary"):
            if getattr(self, flag) < 1:
                problems.add(f"--{flag}", f"found {getattr(self, flag)}, expected at least 1")
        for field in fields(self):
            if field.type in (int, float) and getattr(self, field.name) < 0:
                problems.add(
                    f"--{field.name.replace('_', '-')}", f"found {getattr(self, field.name)}, expected no less than 0"
                )
        if self.heads < 1 or self.width < 1:
            return
        if not self.head_width and self.width % self.heads:
            problems.add("--heads", f"{self.heads} heads do not divide the width {self.width}; give --head-width")
        if self.keys > 0 and self.heads % self.keys:
            problems.add("--kv-heads", f"{self.heads} heads cannot share {self.keys} heads of keys evenly")
        if bool(self.experts) != bool(self.active):
            problems.add("--active", f"found {self.active} of {self.experts} experts; both or neither are given")
        elif self.active > self.experts:
            problems.add("--active", f"found {self.active}, expected at most the {self.experts} experts")
        if self.dense_layers > self.layers:
            problems.add("--dense-layers", f"found {self.dense_layers}, expected at most the {self.layers} layers")


def typical(parameters: float) -> Shape:
    """A llama-like shape of about that many parameters: width 128 a layer (64 below 10^8), hidden 8/3 of the width."""
    head = 128 if parameters >= 1e8 else 64
    vocabulary = 32_000 if parameters >= 1e8 else 8_192 if parameters >= 1e7 else 1_024

    def of(layers: int) -> Shape:
        hidden = math.ceil(8 * head * layers / 3 / 64) * 64
        return Shape(layers, head * layers, layers, hidden, vocabulary, gated=True, norm="rms")

    best = min(map(of, range(1, 400)), key=lambda shape: abs(math.log(shape.counted / parameters)))
    assumed = (
        f"the shape is assumed from the number of parameters: {describe(best)}; give --model, or --layers and --width",
    )
    values = {field.name: getattr(best, field.name) for field in fields(best)}
    return Shape(**values | {"name": "assumed", "given": float(parameters), "assumed": assumed})


def describe(shape: Shape) -> str:
    """One line: 32 layers, width 4,096, 32 heads (8 of keys), hidden 14,336, vocabulary 128,256."""
    keys = f" ({shape.keys} of keys)" if shape.keys != shape.heads else ""
    mlp = f"hidden {shape.hidden:,}" + (" gated" if shape.gated else "")
    if shape.experts:
        mlp = f"{shape.experts} experts of {shape.expert_width:,}, {shape.active} active"
        mlp += f" in {shape.sparse_layers} layers" if shape.dense_layers else ""
    return (
        f"{shape.layers} layers, width {shape.width:,}, {shape.heads} heads{keys}, {mlp}, "
        f"vocabulary {shape.vocabulary:,}{' tied' if shape.tied else ''}"
    )
