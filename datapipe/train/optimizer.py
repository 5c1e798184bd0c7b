"""
AdamW (Loshchilov and Hutter, 1711.05101), and by name which parameters decay.

torch's decay is coupled to the scheduled rate: a step takes lr x weight_decay of a weight away.  A parameter without a
gradient is not touched, not even decayed; one whose gradient is zero decays.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import torch
from torch import nn

from datapipe.train.config import Optimizer

Decay = Literal["all", "matrices"]


@dataclass(frozen=True)
class Parameter:
    """A line of the table in run.json."""

    name: str
    shape: tuple[int, ...]
    numel: int
    group: str
    decays: bool

    def as_json(self) -> dict[str, Any]:
        return asdict(self) | {"shape": list(self.shape)}


def table(model: nn.Module, decay: Decay) -> list[Parameter]:
    """Every parameter once (tied ones under their first name).  matrices: those of two or more dimensions decay."""
    found: list[Parameter] = []
    for name, parameter in model.named_parameters(remove_duplicate=True):
        decays = decay == "all" or parameter.ndim >= 2
        group = ("decayed" if decays else "kept") if parameter.requires_grad else "frozen"
        decays = decays and parameter.requires_grad
        found.append(Parameter(name, tuple(parameter.shape), parameter.numel(), group, decays))
    return found


def adamw(model: nn.Module, config: Optimizer) -> torch.optim.AdamW:
    """AdamW over the groups `decayed` and `kept`; an empty group is left out."""
    by_name = dict(model.named_parameters(remove_duplicate=True))
    lines = table(model, config.decay)
    groups = [
        {"params": named, "weight_decay": config.weight_decay if group == "decayed" else 0.0, "name": group}
        for group in ("decayed", "kept")
        if (named := _named(by_name, lines, group))
    ]
    return torch.optim.AdamW(groups, lr=config.lr, betas=(config.betas[0], config.betas[1]), eps=config.eps)


def _named(by_name: dict[str, nn.Parameter], lines: Sequence[Parameter], group: str) -> list[nn.Parameter]:
    return [by_name[line.name] for line in lines if line.group == group]
