"""Packed is unpacked (T13): a document learns and is learnt in a packed row as it is alone."""

import numpy as np
import pytest
import torch
from feeding import Stub
from test_feed_batch import rows_of
from torch.nn.attention import flex_attention
from torch.nn.functional import cross_entropy, scaled_dot_product_attention

from datapipe.feed import Batch, Loader
from datapipe.feed.attention import block_mask, mask_mod, sdpa_mask

VOCABULARY, WIDTH, HEADS = 160, 16, 2


@pytest.fixture(scope="module", autouse=True)
def _one_thread():
    """Small tensors: threads of torch would wait for each other."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


class Layer(torch.nn.Module):
    """Attention and MLP, pre-norm."""

    def __init__(self):
        super().__init__()
        self.norm, self.qkv = torch.nn.LayerNorm(WIDTH), torch.nn.Linear(WIDTH, 3 * WIDTH)
        self.out = torch.nn.Linear(WIDTH, WIDTH)
        self.up, self.down = torch.nn.Linear(WIDTH, 4 * WIDTH), torch.nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x, mask):
        parts = self.qkv(self.norm(x)).chunk(3, -1)
        query, key, value = (part.unflatten(-1, (HEADS, -1)).transpose(1, 2) for part in parts)
        seen = scaled_dot_product_attention(query, key, value, attn_mask=mask)
        x = x + self.out(seen.transpose(1, 2).flatten(-2))
        return x + self.down(torch.nn.functional.gelu(self.up(x)))


class Model(torch.nn.Module):
    """Two layers, with positions; float64."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(5)
        self.token, self.place = torch.nn.Embedding(VOCABULARY, WIDTH), torch.nn.Embedding(8, WIDTH)
        self.first, self.second, self.head = Layer(), Layer(), torch.nn.Linear(WIDTH, VOCABULARY)
        self.double()

    def forward(self, ids, positions, mask):
        x = self.token(ids) + self.place(positions)
        return self.head(self.second(self.first(x, mask), mask))


CASES = [
    ([[3, 5], [4, 2, 1], [8], [1, 1, 6]], None),
    ([[3, 5], [4, 2, 1], [8], [1, 1, 6], []], 0x5AD3F0E97C5AD3),
    ([[1], [1, 1, 1, 1], [7]], None),
]


def learn(sizes, mask):
    """(loss summed over targets, gradients) of the rows packed as they are."""
    model, tensors = Model(), Batch(rows_of(sizes, mask)).torch()
    logits = model(tensors["input_ids"], tensors["position_ids"], sdpa_mask(tensors["segment_ids"]))
    loss = cross_entropy(logits.flatten(0, 1), tensors["labels"].flatten(), ignore_index=-100, reduction="sum")
    loss.backward()
    return loss.item(), [weight.grad for weight in model.parameters()], logits.detach()


def alone(sizes, mask):
    """The same, each document in a forward pass of its own with nothing but causal attention."""
    model, rows, total = Model(), rows_of(sizes, mask), 0.0
    for r, row in enumerate(sizes):
        start = 0
        for size in row:
            ids = torch.from_numpy(rows.input_ids[r, start : start + size].astype(np.int64))[None]
            allowed = [True] * size if rows.mask is None else rows.mask[r, start : start + size].tolist()
            labels = torch.tensor(
                [[int(ids[0, i + 1]) if i + 1 < size and allowed[i + 1] else -100 for i in range(size)]]
            )
            causal = torch.ones(size, size, dtype=torch.bool).tril()
            logits = model(ids, torch.arange(size)[None], causal)
            loss = cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=-100, reduction="sum")
            loss.backward()
            total += loss.item()
            start += size
    return total, [weight.grad for weight in model.parameters()]


@pytest.mark.parametrize("sizes, mask", CASES)
def test_t13_loss_and_gradients_are_those_of_each_document_alone(sizes, mask):
    loss, gradients, _ = learn(sizes, mask)
    expected, each = alone(sizes, mask)
    assert loss == pytest.approx(expected, rel=1e-12, abs=1e-12)
    for ours, theirs in zip(gradients, each, strict=True):
        assert ours is not None
        torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-12)


def test_t13_the_mutant_without_boundaries_is_found():
    """Causal attention over the whole row is another loss: the test above can fail."""
    sizes = CASES[0][0]
    tensors = Batch(rows_of(sizes)).torch()
    whole = torch.ones_like(tensors["segment_ids"])
    logits = Model()(tensors["input_ids"], tensors["position_ids"], sdpa_mask(whole))
    loss = cross_entropy(logits.flatten(0, 1), tensors["labels"].flatten(), ignore_index=-100, reduction="sum")
    assert abs(loss.item() - alone(sizes, None)[0]) > 1e-3


@pytest.mark.parametrize("row", range(4))
def test_t13_another_document_does_not_move_a_bit(row):
    """Change the ids of one segment: the logits of all others, after it too, stay bit-equal; its own move."""
    sizes = CASES[0][0]
    model, batch = Model(), Batch(rows_of(sizes))
    tensors = batch.torch()
    mask = sdpa_mask(tensors["segment_ids"])
    for segment in range(1, len(sizes[row]) + 1):
        here = torch.from_numpy(batch.segment_ids == segment)
        here[torch.arange(len(sizes)) != row] = False
        ids = torch.where(here, (tensors["input_ids"] + 9) % VOCABULARY, tensors["input_ids"])
        with torch.no_grad():
            before = model(tensors["input_ids"], tensors["position_ids"], mask)
            after = model(ids, tensors["position_ids"], mask)
        assert torch.equal(before[~here], after[~here])
        assert not torch.equal(before[here], after[here])


def test_the_masks_are_one_mask():
    """SDPA's and FlexAttention's, by position and by block; every token sees itself, padding too."""
    batch = next(iter(Loader(Stub(60, masked=True), global_batch_rows=12, tail="pad")))
    segments = batch.torch()["segment_ids"]
    dense = sdpa_mask(segments)
    rows, length = segments.shape
    assert dense.shape == (rows, 1, length, length)
    flex = flex_attention.create_mask(mask_mod(segments), rows, 1, length, length, device="cpu")
    assert torch.equal(dense, flex)
    for r, i, j in np.ndindex(rows, length, length):
        assert dense[r, 0, i, j] == (j <= i and segments[r, i] == segments[r, j])
    assert dense.diagonal(dim1=2, dim2=3).all()


@pytest.mark.filterwarnings("ignore:.*flex_attention called without torch.compile")
def test_flex_attention_gives_what_sdpa_gives():
    segments = torch.from_numpy(Batch(rows_of(CASES[0][0])).segment_ids).repeat_interleave(16, dim=1)
    torch.manual_seed(1)
    query, key, value = torch.randn(3, *segments.shape[:1], HEADS, segments.shape[1], 16)
    ours = flex_attention.flex_attention(query, key, value, block_mask=block_mask(segments, BLOCK_SIZE=32))
    theirs = scaled_dot_product_attention(query, key, value, attn_mask=sdpa_mask(segments))
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)
    sparse = block_mask(segments, BLOCK_SIZE=16)
    assert sparse.sparsity() > 50
