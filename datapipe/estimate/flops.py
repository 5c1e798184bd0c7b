"""
Operations of a training step: a multiplication and an addition are two.

N of 6ND: all parameters that a token meets, embeddings included, unless said otherwise; the difference is shown.
"""

from dataclasses import dataclass

from datapipe.estimate.shape import Shape
from datapipe.estimate.terms import Table, Term


@dataclass(frozen=True)
class Layer:
    """
    Forward operations of one layer and token.

    products: of weights; core: scores and their sum over values at a length, every query with every key.
    """

    products: float
    core: float


def layer(shape: Shape, length: float, sparse: bool) -> Layer:
    """One layer; length: keys that a query meets.  Plain kernels compute the masked half too, so it counts."""
    weights = [t for t in shape.layer(sparse) if len(t.shape) == 2]
    met = sum(t.numel if t.part != "expert" else t.numel // t.copies * shape.active for t in weights)
    return Layer(2.0 * met, 4.0 * shape.query_width * length)


def forward(shape: Shape, length: int) -> dict[str, float]:
    """Forward operations of one sequence; embeddings are looked up.  Products are scaled to given parameters."""
    found = {"attention_products": 0.0, "attention_core": 0.0, "mlp_products": 0.0, "head": 0.0}
    for sparse, count in ((False, shape.layers - shape.sparse_layers), (True, shape.sparse_layers)):
        if count:
            attention = sum(t.numel for t in shape.layer(sparse) if len(t.shape) == 2 and t.part == "attention")
            one = layer(shape, length, sparse)
            found["attention_products"] += shape.scale * count * 2.0 * attention * length
            found["mlp_products"] += shape.scale * count * (one.products - 2.0 * attention) * length
            found["attention_core"] += count * one.core * length
    found["head"] = shape.scale * 2.0 * shape.vocabulary * shape.width * length
    return found


def exact(shape: Shape, length: int) -> float:
    """Training operations of one sequence: the backward pass does every product twice."""
    return 3.0 * sum(forward(shape, length).values())


def six_nd(parameters: float, tokens: float) -> float:
    return 6.0 * parameters * tokens


def palm(shape: Shape, length: int) -> float:
    """Training operations of one sequence: (6N + 12 L a d T) a token, N without learnt positions."""
    learnt = shape.scale * shape.positions * shape.width
    return (6 * (shape.active_parameters - learnt) + 12 * shape.layers * shape.query_width * length) * length


def chinchilla(shape: Shape, length: int) -> float:
    """
    Training operations of one sequence as Hoffmann et al. 2203.15556, appendix F, count them: with the softmax,
    without embeddings and logits (their table A4 leaves both out).
    """
    softmax = 3.0 * shape.layers * shape.heads * length**2
    return exact(shape, length) + 3.0 * (softmax - forward(shape, length)["head"])


def table(shape: Shape, length: int) -> Table:
    """What one sequence costs, and what the short formulas say."""
    formulas = {
        "attention_products": "3 x 2 x (q + k + v + out)", "attention_core": "3 x 4 a d T",
        "mlp_products": "3 x 2 x MLP",
        "head": "3 x 2 h V",
    }  # fmt: skip
    terms = tuple(
        Term(f"flops.{name}", 3.0 * value, "FLOP", formulas[name], "counted")
        for name, value in forward(shape, length).items()
    )
    whole = exact(shape, length)
    short = six_nd(shape.active_parameters, length)
    inner = six_nd(shape.active_parameters - shape.outside_blocks, length)
    return Table(
        f"operations of one sequence of {length:,} tokens, forward and backward",
        terms,
        (
            (
                f"6ND with N = all {'active ' if shape.experts else ''}parameters gives {short / whole:.3f} of this, "
                f"without embeddings and head {inner / whole:.3f}, PaLM's formula {palm(shape, length) / whole:.3f}, "
                f"the count of Hoffmann et al. (softmax, no head) {chinchilla(shape, length) / whole:.3f}"
            ),
            "every query meets every key: kernels that skip the causal half do half of the attention core",
        ),
    )
