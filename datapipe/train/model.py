"""
Two small causal transformers: `Reference`, of 18,320 parameters on 16 symbols, and `GPT` (RoPE, RMSNorm, SwiGLU).

Both take rows as the feed gives them: ids, segments (0 is padding; None: each row is one segment) and positions.
A token sees the tokens before it in its own segment, so a packed row gives what its documents give alone.

Shapes:  B rows  T positions  V vocabulary  W width  H heads  K heads of keys and values  D width of a head  F hidden
"""

from abc import ABC, abstractmethod

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from datapipe.train.config import Model

THETA = 10_000.0  # of RoPE: Su et al. 2104.09864, section 3.2.2
STD = 0.02  # of the weights of GPT; output projections are narrower: GPT-2, section 2.3


def build(config: Model, vocabulary: int, positions: int) -> "Transformer":
    """The model of a configuration; its weights follow from torch's seed.  positions: T of the rows it will see."""
    if config.kind == "reference":
        return Reference(config, vocabulary, config.positions or positions)
    return GPT(config, vocabulary)


def visible(ids_BT: Tensor, segments_BT: Tensor | None, causal: bool) -> Tensor | None:
    """bool[B, 1, T, T], true where a query may look at a key; None where is_causal says all of it."""
    if segments_BT is None and causal:
        return None
    length = ids_BT.shape[1]
    seen = torch.ones(length, length, dtype=torch.bool, device=ids_BT.device)
    seen_1TT = (seen.tril() if causal else seen)[None]
    if segments_BT is not None:
        seen_1TT = seen_1TT & (segments_BT[:, :, None] == segments_BT[:, None, :])
    return seen_1TT[:, None]


class Transformer(nn.Module, ABC):
    """
    What both have in common: blocks, a norm, a head.

    causal: False is the mutant that the causality test must find; nothing else sets it.
    """

    blocks: nn.ModuleList
    norm: nn.Module
    head: nn.Linear
    causal = True

    def __init__(self, config: Model):
        super().__init__()
        self.config = config

    def forward(self, ids_BT: Tensor, segments_BT: Tensor | None = None, positions_BT: Tensor | None = None) -> Tensor:
        """Logits [B, T, V].  positions: 0, 1, ... in each segment; None: in each row."""
        if positions_BT is None:
            positions_BT = torch.arange(ids_BT.shape[1], device=ids_BT.device).expand(ids_BT.shape)
        x_BTW, place = self.begin(ids_BT, positions_BT)
        mask = visible(ids_BT, segments_BT, self.causal)
        for block in self.blocks:
            x_BTW = self._block(block, x_BTW, place, mask)
        return self.head(self.norm(x_BTW))

    @abstractmethod
    def begin(self, ids_BT: Tensor, positions_BT: Tensor) -> tuple[Tensor, tuple[Tensor, Tensor] | None]:
        """What goes into the first block, and the rotation of every position, where there is one."""

    def _block(self, block: nn.Module, *inputs: object) -> Tensor:
        if self.config.recompute == "blocks" and torch.is_grad_enabled():
            preserve = self.config.preserve_rng_state
            return checkpoint(block, *inputs, use_reentrant=False, preserve_rng_state=preserve)  # pyright: ignore[reportReturnType]
        return block(*inputs)


def attend(q_BHTD: Tensor, k_BKTD: Tensor, v_BKTD: Tensor, mask: Tensor | None, dropout: float) -> Tensor:
    """[B, T, H x D].  A query that may look at nothing gives 0: torch's own convention, forward and backward."""
    x_BHTD = F.scaled_dot_product_attention(
        q_BHTD, k_BKTD, v_BKTD, attn_mask=mask, dropout_p=dropout, is_causal=mask is None,
        enable_gqa=q_BHTD.shape[1] != k_BKTD.shape[1],
    )  # fmt: skip
    return x_BHTD.transpose(1, 2).flatten(2)


# --- the reference ---------------------------------------------------------------------------------------------


class Reference(Transformer):
    """
    Pre-norm, learnt positions, exact GELU, biases in the MLP and the head alone, weights as torch draws them.

    Width 32, 4 heads, 2 layers, hidden 64, 12 positions and 16 symbols make 18,320 parameters.  Modules are made in
    the order in which they are used: that order is part of what a seed means.
    """

    def __init__(self, config: Model, vocabulary: int, positions: int):
        super().__init__(config)
        self.token = nn.Embedding(vocabulary, config.width)
        self.position = nn.Embedding(positions, config.width)
        self.blocks = nn.ModuleList(ReferenceBlock(config) for _ in range(config.layers))
        self.norm = nn.LayerNorm(config.width)
        self.head = nn.Linear(config.width, vocabulary)

    def begin(self, ids_BT: Tensor, positions_BT: Tensor) -> tuple[Tensor, None]:
        return self.token(ids_BT) + self.position(positions_BT), None


class ReferenceBlock(nn.Module):
    """x + attention(norm(x)), then x + MLP(norm(x))."""

    def __init__(self, config: Model):
        super().__init__()
        self.heads, self.dropout = config.heads, config.dropout
        self.norm_attention = nn.LayerNorm(config.width)
        self.qkv = nn.Linear(config.width, 3 * config.width, bias=False)
        self.out = nn.Linear(config.width, config.width, bias=False)
        self.norm_mlp = nn.LayerNorm(config.width)
        self.up = nn.Linear(config.width, config.hidden)
        self.down = nn.Linear(config.hidden, config.width)

    def forward(self, x_BTW: Tensor, _: None, mask: Tensor | None) -> Tensor:
        dropout = self.dropout if self.training else 0.0
        qkv = self.qkv(self.norm_attention(x_BTW)).unflatten(-1, (3, self.heads, -1))
        q_BHTD, k_BHTD, v_BHTD = qkv.permute(2, 0, 3, 1, 4)
        x_BTW = x_BTW + F.dropout(self.out(attend(q_BHTD, k_BHTD, v_BHTD, mask, dropout)), dropout)
        return x_BTW + F.dropout(self.down(F.gelu(self.up(self.norm_mlp(x_BTW)))), dropout)


# --- the modern one --------------------------------------------------------------------------------------------


class GPT(Transformer):
    """
    Rotary positions (2104.09864), RMSNorm before each part (1910.07467), SwiGLU (2002.05202), grouped queries
    (2305.13245), no biases.  No learnt positions, so rows of any length.
    """

    def __init__(self, config: Model, vocabulary: int):
        super().__init__(config)
        self.token = nn.Embedding(vocabulary, config.width)
        self.blocks = nn.ModuleList(GPTBlock(config) for _ in range(config.layers))
        self.norm = nn.RMSNorm(config.width)
        self.head = nn.Linear(config.width, vocabulary, bias=False)
        self._draw()
        if config.tied:
            self.head.weight = self.token.weight

    def _draw(self) -> None:
        narrow = STD / (2 * self.config.layers) ** 0.5
        for name, module in self.named_modules():
            if isinstance(module, nn.Linear | nn.Embedding):
                nn.init.normal_(module.weight, std=narrow if name.endswith((".out", ".down")) else STD)

    def begin(self, ids_BT: Tensor, positions_BT: Tensor) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        x_BTW = self.token(ids_BT)
        width = self.config.width // self.config.heads
        return x_BTW, rotation(positions_BT, width, x_BTW.dtype)


class GPTBlock(nn.Module):
    """x + attention(norm(x)), then x + SwiGLU(norm(x))."""

    def __init__(self, config: Model):
        super().__init__()
        self.dropout, self.width = config.dropout, config.width // config.heads
        keys = (config.kv_heads or config.heads) * self.width
        self.norm_attention = nn.RMSNorm(config.width)
        self.q = nn.Linear(config.width, config.width, bias=False)
        self.k = nn.Linear(config.width, keys, bias=False)
        self.v = nn.Linear(config.width, keys, bias=False)
        self.out = nn.Linear(config.width, config.width, bias=False)
        self.norm_mlp = nn.RMSNorm(config.width)
        self.gate = nn.Linear(config.width, config.hidden, bias=False)
        self.up = nn.Linear(config.width, config.hidden, bias=False)
        self.down = nn.Linear(config.hidden, config.width, bias=False)

    def forward(self, x_BTW: Tensor, place: tuple[Tensor, Tensor], mask: Tensor | None) -> Tensor:
        dropout = self.dropout if self.training else 0.0
        y_BTW = self.norm_attention(x_BTW)
        q_BHTD, k_BKTD, v_BKTD = (
            part(y_BTW).unflatten(-1, (-1, self.width)).transpose(1, 2) for part in (self.q, self.k, self.v)
        )
        y_BTW = attend(rotate(q_BHTD, place), rotate(k_BKTD, place), v_BKTD, mask, dropout)
        x_BTW = x_BTW + F.dropout(self.out(y_BTW), dropout)
        y_BTW = self.norm_mlp(x_BTW)
        return x_BTW + F.dropout(self.down(F.silu(self.gate(y_BTW)) * self.up(y_BTW)), dropout)


def rotation(positions_BT: Tensor, width: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Cosines and sines [B, 1, T, D / 2] of every position's angles; computed in float32 whatever the model's type."""
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    rates = THETA ** (-torch.arange(0, width, 2, device=positions_BT.device, dtype=wide) / width)
    angles = positions_BT[:, None, :, None].to(wide) * rates
    return angles.cos().to(dtype), angles.sin().to(dtype)


def rotate(x_BHTD: Tensor, place: tuple[Tensor, Tensor]) -> Tensor:
    """Each pair (d, d + D / 2) turned by its position's angle."""
    cos, sin = place
    first, second = x_BHTD.chunk(2, -1)
    return torch.cat((first * cos - second * sin, first * sin + second * cos), -1)
