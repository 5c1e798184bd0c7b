"""
Cross-entropy as a sum, and what each target weighs in it.

The mean of means is not the mean: a loss is a sum over targets divided by their number in *all* microbatches of all
ranks, which is known before the first backward pass.
"""

from typing import Literal

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

IGNORE = -100  # the label of a position that is no target
Objective = Literal["per_token", "per_document"]


def cross_entropy(logits_BTV: Tensor, labels_BT: Tensor, weights_BT: Tensor | None = None) -> Tensor:
    """
    The sum over all targets of (weight x) log-sum-exp(logits) - logit of the label; 0 without targets.

    In float32 at least, the largest logit taken off first, so [1000, 0] gives 0 for label 0 and 1000 for label 1.
    """
    wide = logits_BTV if logits_BTV.dtype == torch.float64 else logits_BTV.float()
    each = F.cross_entropy(wide.flatten(0, -2), labels_BT.flatten(), ignore_index=IGNORE, reduction="none")
    return each.sum() if weights_BT is None else (each * weights_BT.flatten()).sum()


def weights(labels: np.ndarray, segments: np.ndarray, objective: Objective) -> tuple[np.ndarray | None, float]:
    """
    (float64[rows, T] or None where every target weighs 1, what the sum is divided by).

    labels, segments: int[rows, T].  per_token: each target alike.  per_document: each segment that has targets weighs
    alike, and its targets share that; a document that lies in two rows is two segments.
    """
    is_target = labels != IGNORE
    if objective == "per_token":
        return None, float(is_target.sum())
    rows, length = labels.shape
    key = segments.astype(np.int64) + (np.arange(rows) * (length + 1))[:, None]
    each = np.bincount(key[is_target], minlength=rows * (length + 1))
    found = np.zeros(labels.shape)
    found[is_target] = 1.0 / each[key[is_target]]
    return found, float(np.count_nonzero(each))
