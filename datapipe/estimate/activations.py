"""
What a layer keeps between its forward and its backward pass, in bytes, for one microbatch on one device.

Letters as in the papers: s length, b rows, h width, a heads, k heads of keys, d width of a head, f hidden, t tp, e
bytes of an activation.  /t: split by tensor parallelism; /t(sp): only with sequence parallelism.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from datapipe.estimate.setup import Setup
from datapipe.estimate.shape import Shape
from datapipe.estimate.terms import Term

SCORES = ("attention_softmax", "attention_softmax_mask", "attention_softmax_dropped")  # what selective recompute drops


@dataclass(frozen=True)
class Sizes:
    """Bytes that the terms are made of: `stream` is e s b h, `scores` a s^2 b (numbers), of one device."""

    shape: Shape
    setup: Setup

    @property
    def tokens(self) -> int:
        return self.setup.length * self.setup.microbatch

    @property
    def spread(self) -> int:
        """t with sequence parallelism, else 1."""
        return self.setup.tp if self.setup.sequence_parallel else 1

    @property
    def stream(self) -> float:
        """e s b h / t(sp)."""
        return self.setup.activations * self.tokens * self.shape.width / self.spread

    @property
    def queries(self) -> float:
        """e s b a d / t."""
        return self.setup.activations * self.tokens * self.shape.query_width / self.setup.tp

    @property
    def keys(self) -> float:
        """e s b k d / t; more ranks than heads of keys hold copies."""
        return self.setup.activations * self.tokens * self.shape.key_width / min(self.setup.tp, self.shape.keys)

    @property
    def scores(self) -> float:
        """a s^2 b / t numbers."""
        return self.shape.heads * self.setup.length * self.tokens / self.setup.tp

    def hidden(self, sparse: bool) -> float:
        """e s b f / t of the MLP that a token passes; of all its experts."""
        width = self.shape.active * self.shape.expert_width + self.shape.shared_hidden if sparse else self.shape.hidden
        return self.setup.activations * self.tokens * width / self.setup.tp


def layer(shape: Shape, setup: Setup, sparse: bool = False) -> tuple[Term, ...]:
    """The terms of one layer that is not recomputed."""
    sizes = Sizes(shape, setup)
    made = _eager(sizes, sparse) if setup.counting == "eager" else _published(sizes, sparse)
    source = "eager" if setup.counting == "eager" else "Korthikanti"
    terms = ((name, value, how.partition(", "), other or source) for name, value, how, other in made if value)
    return tuple(Term(name, value, "bytes", how, source, note) for name, value, (how, _, note), source in terms)


def kept(shape: Shape, setup: Setup, sparse: bool = False) -> tuple[Term, ...]:
    """What is left of a layer after recompute has dropped its part."""
    if setup.recompute == "full":
        value = Sizes(shape, setup).stream
        return (Term("layer_input", value, "bytes", "e s b h /t(sp)", "Korthikanti", "all else is computed again"),)
    terms = layer(shape, setup, sparse)
    return tuple(t for t in terms if t.name not in SCORES) if setup.recompute == "selective" else terms


def recomputed(shape: Shape, setup: Setup) -> float:
    """Bytes that come to life again while one layer goes backward: what recompute dropped, of the larger kind."""
    return max(
        sum(t.value for t in layer(shape, setup, sparse)) - sum(t.value for t in kept(shape, setup, sparse))
        for sparse in ({False, True} if 0 < shape.sparse_layers < shape.layers else {shape.sparse_layers > 0})
    )


_Part = tuple[str, float, str, str]


def _published(z: Sizes, sparse: bool) -> Iterator[_Part]:
    """Section 4 of Korthikanti, each addend by itself; with grouped keys, gates and experts where there are."""
    setup, shape = z.setup, z.shape
    mask = z.tokens * shape.width / z.spread if setup.dropout else 0.0
    yield "attention_norm_input", z.stream, "e s b h /t(sp)", ""
    yield "attention_input", z.stream, "e s b h /t(sp), of q, k, v together", ""
    yield "attention_queries", z.queries, "e s b a d /t", ""
    yield "attention_keys", z.keys, "e s b k d /t", ""
    yield "attention_values", z.keys, "e s b k d /t", ""
    yield from _scores(z)
    yield "attention_output", z.queries, "e s b a d /t, input of the projection", ""
    yield "attention_dropout_mask", mask, "1 s b h /t(sp)", ""
    yield "mlp_norm_input", z.stream, "e s b h /t(sp)", ""
    yield "mlp_input", z.stream, "e s b h /t(sp)", ""
    yield from _routed(z, sparse)
    hidden = z.hidden(sparse)
    if shape.gated:
        yield "mlp_gate", hidden, "e s b f /t, input of the gate's activation", ""
        yield "mlp_activated", hidden, "e s b f /t, the activated gate", ""
    yield "mlp_hidden", hidden, "e s b f /t" + ("" if shape.gated else ", input of the activation"), ""
    yield "mlp_output", hidden, "e s b f /t, input of the last product", ""
    yield "mlp_dropout_mask", mask, "1 s b h /t(sp)", ""


def _scores(z: Sizes) -> Iterator[_Part]:
    """What of attention grows with s^2, or the logarithm of a sum that fused kernels keep in its place."""
    setup = z.setup
    if setup.fused:
        yield "attention_logsumexp", 4.0 * z.scores / setup.length, "4 a s b /t", "Dao"
        return
    yield SCORES[0], setup.activations * z.scores, "e a s^2 b /t", ""
    if setup.dropout:
        yield SCORES[1], z.scores, "1 a s^2 b /t", ""
        yield SCORES[2], setup.activations * z.scores, "e a s^2 b /t", ""


def _routed(z: Sizes, sparse: bool) -> Iterator[_Part]:
    if sparse:
        copies = z.setup.activations * z.tokens * z.shape.width * z.shape.active / z.spread
        yield "mlp_router", 4.0 * z.tokens * z.shape.experts / z.spread, "4 s b E /t(sp), float32", "GShard"
        yield "mlp_routed_input", copies, "e s b h k /t(sp), a copy for each chosen expert", "GShard"


def _eager(z: Sizes, sparse: bool) -> Iterator[_Part]:
    """
    The blocks of datapipe.train.model as torch runs them.

    LayerNorm keeps mean and 1/std, RMSNorm 1/rms and the normalised stream, SDPA on CPU queries, keys, values, its
    result and a logarithm; with dropout it multiplies matrices itself.  The result lies as the queries do: those that
    were turned lie head by head, and the next product needs a copy.
    """
    setup, shape = z.setup, z.shape
    composite = shape.norm == "rms"
    statistics = (4.0 if composite else 8.0) * z.tokens / z.spread
    mask = z.stream if setup.dropout else 0.0  # a factor a number, not a byte
    heads = z.keys if not setup.dropout else z.queries  # grouped keys are copied out where SDPA is not fused
    for part in ("attention", "mlp"):
        yield f"{part}_norm_input", z.stream, "e s b h", ""
        yield f"{part}_norm_statistics", statistics, "4 s b, 1/rms" if composite else "8 s b, mean and 1/std", ""
        if composite:
            yield f"{part}_norm_normalised", z.stream, "e s b h, before the weight", ""
        yield f"{part}_input", z.stream, "e s b h", ""
        if part == "attention":
            yield "attention_queries", z.queries, "e s b a d", ""
            yield "attention_keys", heads, "e s b k d" if not setup.dropout else "e s b a d, copied out", ""
            yield "attention_values", heads, "e s b k d" if not setup.dropout else "e s b a d, copied out", ""
            if setup.dropout:
                yield SCORES[0], setup.activations * z.scores, "e a s^2 b", ""
                yield SCORES[1], setup.activations * z.scores, "e a s^2 b, a factor a score", ""
                yield SCORES[2], setup.activations * z.scores, "e a s^2 b", ""
            else:
                yield "attention_logsumexp", 4.0 * z.scores / setup.length, "4 a s b", ""
                if setup.mask:
                    yield "attention_mask", setup.activations * z.tokens * setup.length, "e s^2 b, of packed rows", ""
            if not setup.dropout:
                yield "attention_result", z.queries, "e s b a d", ""
            if setup.dropout or (not shape.positions and shape.heads > 1 and setup.length > 1):
                yield "attention_output", z.queries, "e s b a d, heads side by side: a copy", ""
        else:
            hidden = z.hidden(sparse)
            yield from _routed(z, sparse)
            if shape.gated:
                yield "mlp_gate", hidden, "e s b f", ""
                yield "mlp_activated", hidden, "e s b f", ""
            yield "mlp_hidden", hidden, "e s b f", ""
            yield "mlp_output", hidden, "e s b f", ""
        yield f"{part}_dropout_mask", mask, "e s b h, a factor a number", ""
