"""
Attention of packed rows: a token sees those before it in its own segment, and no other.

segment_ids are a batch's [b, length]; padding (0) is a segment of its own, so that every token sees at least itself.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch.nn.attention import flex_attention


def sdpa_mask(segment_ids: torch.Tensor) -> torch.Tensor:
    """bool[b, 1, length, length], True where query (third) may see key (last): attn_mask of SDPA."""
    length = segment_ids.shape[1]
    same = segment_ids[:, None, :, None] == segment_ids[:, None, None, :]
    return same & torch.ones(length, length, dtype=torch.bool, device=segment_ids.device).tril()


def mask_mod(segment_ids: torch.Tensor) -> Callable[..., torch.Tensor]:
    """The same as a mask_mod of FlexAttention."""

    def visible(batch: torch.Tensor, _head: torch.Tensor, query: torch.Tensor, key: torch.Tensor) -> torch.Tensor:
        return (segment_ids[batch, query] == segment_ids[batch, key]) & (query >= key)

    return visible


def block_mask(segment_ids: torch.Tensor, **options: Any) -> flex_attention.BlockMask:
    """The same as a BlockMask of FlexAttention; options: those of create_block_mask (BLOCK_SIZE)."""
    rows, length = segment_ids.shape
    device = str(segment_ids.device)
    return flex_attention.create_block_mask(mask_mod(segment_ids), rows, None, length, length, device=device, **options)
