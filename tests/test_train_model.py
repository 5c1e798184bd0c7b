"""The models: counted, against obvious slow twins, packed against alone, recomputed against kept."""

import math
from pathlib import Path
from typing import Any

import pytest
import torch
import training
from torch.utils.checkpoint import checkpoint

from datapipe.train import model, optimizer
from datapipe.train.config import Model


@pytest.fixture(autouse=True, scope="module")
def _one_thread():
    torch.set_num_threads(1)


def made(kind, vocabulary=16, positions=12, seed=17, **keys) -> Any:
    torch.manual_seed(seed)
    base = training.REFERENCE if kind == "reference" else training.GPT
    return model.build(Model.model_validate(base | keys), vocabulary, positions)


def test_the_reference_has_18320_parameters():
    lines = optimizer.table(made("reference"), "matrices")
    assert sum(line.numel for line in lines) == 18_320
    assert sum(line.numel for line in lines if line.decays) == 17_792
    assert sum(line.numel for line in lines if not line.decays) == 528
    shapes = {line.name: line.shape for line in lines}
    block = {
        "norm_attention.weight": (32,), "norm_attention.bias": (32,), "qkv.weight": (96, 32), "out.weight": (32, 32),
        "norm_mlp.weight": (32,), "norm_mlp.bias": (32,), "up.weight": (64, 32), "up.bias": (64,),
        "down.weight": (32, 64), "down.bias": (32,),
    }  # fmt: skip
    assert shapes == {
        "token.weight": (16, 32), "position.weight": (12, 32),
        **{f"blocks.{n}.{name}": shape for n in (0, 1) for name, shape in block.items()},
        "norm.weight": (32,), "norm.bias": (32,), "head.weight": (16, 32), "head.bias": (16,),
    }  # fmt: skip


def test_the_reference_begins_where_it_should():
    rotations = torch.tensor([[(start + at) % 16 for at in range(13)] for start in range(16)])
    logits = made("reference")(rotations[:, :-1])
    loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), rotations[:, 1:].flatten())
    assert abs(loss.item() - 2.846790) < 1e-4


# --- slow twins ------------------------------------------------------------------------------------------------


def _norm(x, weight, bias, eps):
    if bias is None:
        return x / torch.sqrt((x * x).mean() + eps) * weight
    centred = x - x.mean()
    return centred / torch.sqrt((centred * centred).mean() + eps) * weight + bias


def _turned(x, position):
    """Pairs (d, d + D / 2) as complex numbers, turned by position x 10000 ** (-2 d / D)."""
    half = len(x) // 2
    found = x.clone()
    for d in range(half):
        angle = position * 10_000 ** (-2 * d / len(x))
        turned = complex(float(x[d]), float(x[d + half])) * complex(math.cos(angle), math.sin(angle))
        found[d], found[d + half] = turned.real, turned.imag
    return found


def _attention(q, k, v, segments, shared):
    """q: [T][H] vectors, k and v: [T][K]; `shared` heads of q look at one of k."""
    found = []
    for t in range(len(q)):
        heads = []
        for h, query in enumerate(q[t]):
            seen = [u for u in range(t + 1) if segments[u] == segments[t]]
            scores = torch.stack([query @ k[u][h // shared] / math.sqrt(len(query)) for u in seen])
            shares = torch.exp(scores - scores.max())
            shares = shares / shares.sum()
            heads.append(sum(share * v[u][h // shared] for share, u in zip(shares, seen, strict=True)))
        found.append(torch.cat(heads))
    return found


def twin(net, ids, segments, positions):
    """Logits of one row, position by position."""
    gpt = isinstance(net, model.GPT)
    heads, width = net.config.heads, net.config.width // net.config.heads
    x = [net.token.weight[i].clone() for i in ids]
    if not gpt:
        x = [one + net.position.weight[p] for one, p in zip(x, positions, strict=True)]
    eps = torch.finfo(torch.float64).eps if gpt else 1e-5  # of nn.RMSNorm and nn.LayerNorm

    def normed(x, layer):
        return [_norm(one, layer.weight, getattr(layer, "bias", None), eps) for one in x]

    for block in net.blocks:
        y = normed(x, block.norm_attention)
        if gpt:
            q, k, v = ([list((layer.weight @ one).split(width)) for one in y] for layer in (block.q, block.k, block.v))
            q, k = (
                [[_turned(head, p) for head in one] for one, p in zip(part, positions, strict=True)] for part in (q, k)
            )
        else:
            q, k, v = (
                [list((block.qkv.weight[n * 32 : (n + 1) * 32] @ one).split(width)) for one in y] for n in range(3)
            )
        y = _attention(q, k, v, segments, heads // len(k[0]))
        x = [one + block.out.weight @ two for one, two in zip(x, y, strict=True)]
        y = normed(x, block.norm_mlp)
        if gpt:
            y = [block.down.weight @ (g * torch.sigmoid(g) * (block.up.weight @ one))
                 for one in y for g in [block.gate.weight @ one]]  # fmt: skip
        else:
            inner = [block.up.weight @ one + block.up.bias for one in y]
            y = [block.down.weight @ (0.5 * z * (1 + torch.erf(z / math.sqrt(2)))) + block.down.bias for z in inner]
        x = [one + two for one, two in zip(x, y, strict=True)]
    return torch.stack([net.head.weight @ one + (0 if gpt else net.head.bias) for one in normed(x, net.norm)])


ROW = {
    "ids": [3, 1, 4, 1, 5, 9, 2, 6, 5],
    "segments": [1, 1, 1, 1, 2, 2, 2, 0, 0],
    "positions": [0, 1, 2, 3, 0, 1, 2, 0, 0],
}


@pytest.mark.parametrize("keys", [{}, {"kv_heads": 1}, {"kv_heads": 4}, {"kv_heads": None}, {"tied": True}])
def test_gpt_is_its_twin(keys):
    check("gpt", keys)


def test_reference_is_its_twin():
    check("reference", {})


def check(kind, keys):
    net = made(kind, **keys).double()
    with torch.no_grad():
        for parameter in net.parameters():  # weights far from where they begin, so that each part matters
            parameter.add_(torch.randn_like(parameter) * 0.3)
        found = net(*(torch.tensor([ROW[name]]) for name in ("ids", "segments", "positions")))[0]
        expected = twin(net, **ROW)
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("kind", ["reference", "gpt"])
def test_packed_documents_are_as_if_alone(kind):
    net = made(kind)
    batch = training.batch([[[3, 1, 4, 1], [5, 9, 2], [6, 5, 3]], [[2, 7], [1, 8, 2, 8, 1]]], 13)
    ids, segments, positions = (
        torch.from_numpy(part[:, :-1].astype("int64"))
        for part in (batch.input_ids, batch.segment_ids, batch.position_ids)
    )
    together = net(ids, segments, positions)
    for row, start, stop in [(0, 0, 4), (0, 4, 7), (0, 7, 10), (1, 0, 2), (1, 2, 7)]:
        alone = net(ids[row : row + 1, start:stop])[0]
        torch.testing.assert_close(together[row, start:stop], alone, rtol=0, atol=2e-6)
    unmasked = net(ids, None, positions)
    assert (unmasked[0, 4:7] - together[0, 4:7]).abs().max() > 1e-4, "the mask does something"


@pytest.mark.parametrize("kind", ["reference", "gpt"])
def test_a_token_sees_none_after_it(kind):
    net, ids = made(kind), torch.randint(0, 16, (4, 12))
    edited = ids.clone()
    edited[:, 7:] = (edited[:, 7:] + 1) % 16
    one, two = net(ids), net(edited)
    assert torch.equal(one[:, :7], two[:, :7])
    assert (one[:, 7:] - two[:, 7:]).abs().max() > 1e-4
    net.causal = False
    assert not torch.equal(net(ids)[:, :7], net(edited)[:, :7]), "the mutant is found"


# --- recompute, types ------------------------------------------------------------------------------------------


def grads(kind, **keys) -> dict[str, torch.Tensor]:
    net = made(kind, **keys)
    torch.manual_seed(5)
    ids = torch.randint(0, 16, (6, 12))
    net(ids).square().mean().backward()
    return {name: parameter.grad for name, parameter in net.named_parameters() if parameter.grad is not None}


@pytest.mark.parametrize("dropout", [0.0, 0.2])
@pytest.mark.parametrize("kind", ["reference", "gpt"])
def test_recomputed_gradients_are_the_same_bits(kind, dropout):
    assert training.same(grads(kind, dropout=dropout), grads(kind, dropout=dropout, recompute="blocks"))


def test_recompute_keeps_less():
    def kept(recompute):
        held = {}
        hooks = torch.autograd.graph.saved_tensors_hooks(
            lambda tensor: held.setdefault(tensor.untyped_storage().data_ptr(), tensor), lambda tensor: tensor
        )
        net = made("reference", recompute=recompute)
        with hooks:
            net(torch.randint(0, 16, (16, 12))).sum()
        return sum(tensor.untyped_storage().nbytes() for tensor in held.values())

    assert kept("blocks") < kept("none") / 2


def test_dropout_recomputed_with_other_numbers_is_wrong_and_refused():
    wrong = {"recompute": "blocks", "dropout": 0.2, "preserve_rng_state": False}
    with pytest.raises(ValueError, match="recomputed activations would belong to other random numbers"):
        Model.model_validate(training.REFERENCE | wrong)
    net = made("reference", dropout=0.2)
    ids = torch.randint(0, 16, (6, 12))
    x, place = net.begin(ids, torch.arange(12).expand(6, 12))
    torch.manual_seed(5)
    net.blocks[0](x, place, None).sum().backward()
    right = net.blocks[0].up.weight.grad.clone()
    net.zero_grad()
    torch.manual_seed(5)
    x, place = net.begin(ids, torch.arange(12).expand(6, 12))
    checkpoint(net.blocks[0], x, place, None, use_reentrant=False, preserve_rng_state=False).sum().backward()
    assert not torch.equal(net.blocks[0].up.weight.grad, right), "why it is refused"
    assert Model.model_validate(training.REFERENCE | wrong | {"dropout": 0.0}).recompute == "blocks"


def test_dropout_rests_in_evaluation():
    net, ids = made("gpt", dropout=0.5), torch.randint(0, 16, (4, 12))
    assert not torch.equal(net(ids), net(ids))
    net.eval()
    assert torch.equal(net(ids), net(ids))


@pytest.mark.parametrize("kind", ["reference", "gpt"])
def test_bfloat16_is_near(kind):
    net, ids = made(kind), torch.randint(0, 16, (4, 12))
    with torch.autocast("cpu", torch.bfloat16):
        half = net(ids)
    assert half.dtype == torch.bfloat16
    torch.testing.assert_close(half.float(), net(ids), rtol=0.1, atol=0.05)


def test_tied_weights_are_one_parameter():
    net = made("gpt", tied=True)
    names = [line.name for line in optimizer.table(net, "all")]
    assert net.head.weight is net.token.weight
    assert "token.weight" in names
    assert "head.weight" not in names
    assert sum(p.numel() for p in net.parameters()) == sum(line.numel for line in optimizer.table(net, "all"))


def test_the_file_is_short():
    assert len(Path(model.__file__).read_text("utf-8").splitlines()) < 300
