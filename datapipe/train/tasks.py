"""
Tasks whose answers are known: what a model of 16 symbols has learnt, by stratum, and the data of a positive control.

The cyclic task (the next symbol is the current one + 1 mod 16) can be solved by a table of 16 pairs, so success in it
shows neither use of context nor a rule.  Each stratum asks for something else, and no figure is made of several.

Shapes:  B rows  T positions that a model sees  V vocabulary
"""

import copy
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor, nn

from datapipe.auditing.statistics import wilson
from datapipe.errors import ManifestError
from datapipe.feed import Batch, Rows
from datapipe.train.loss import IGNORE, cross_entropy
from datapipe.train.step import inputs

SYMBOLS = 16
CHANCE = 1 / SYMBOLS  # of a right answer; the loss of whoever knows nothing is ln 16 = 2.7726
# symbol i is written as REMAP[i]; no symbol follows another at a distance of +1, +2, +3 or -1 in this cycle, so no
# pair of it is right, or asked for, in another stratum
REMAP = (12, 3, 7, 11, 8, 1, 6, 15, 13, 9, 2, 10, 5, 14, 4, 0)


@dataclass(frozen=True)
class Stratum:
    """
    Right answers of `of` targets, with the Wilson 95 % interval of their share; loss: nats per target, None of none.

    The targets of the cyclic strata are all that there are, 16 pairs at each position: the interval says how far so
    many answers can be trusted, as if each were a new draw.
    """

    name: str
    right: int
    of: int
    low: float
    high: float
    loss: float | None
    chance: float = CHANCE
    note: str = ""

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def of_json(cls, entry: dict[str, Any]) -> Self:
        """Out of a checkpoint."""
        return cls(**entry)

    @property
    def share(self) -> float | None:
        return self.right / self.of if self.of else None

    @property
    def beats_chance(self) -> bool:
        """The whole interval lies above chance."""
        return self.of > 0 and self.low > self.chance


def stratum(name: str, logits_BTV: Tensor, labels_BT: Tensor, note: str = "") -> Stratum:
    """How often the largest logit is that of the label, where there is one."""
    asked = labels_BT != IGNORE
    of = int(asked.sum())
    right = int(((logits_BTV.argmax(-1) == labels_BT) & asked).sum())
    loss = float(cross_entropy(logits_BTV, labels_BT)) / of if of else None
    low, high = wilson(right, of)
    return Stratum(name, right, of, low, high, loss, note=note)


# --- the cyclic task -------------------------------------------------------------------------------------------


def cycle(step: int, length: int) -> np.ndarray:
    """int64[16, length]: s, s + step, s + 2 step, ... mod 16, from every s."""
    return (np.arange(SYMBOLS)[:, None] + step * np.arange(length)) % SYMBOLS


def remapped(length: int) -> np.ndarray:
    """The cycle of +1 with every symbol written as another one."""
    return np.array(REMAP)[cycle(1, length)]


STRATA: dict[str, tuple[Callable[[int], np.ndarray], str]] = {
    "in distribution": (lambda length: cycle(1, length), "+1, as in training"),
    "reversed": (lambda length: cycle(-1, length), "-1"),
    "remapped": (remapped, "+1 under other names; no pair of training"),
    "step 2": (lambda length: cycle(2, length), "+2"),
    "step 3": (lambda length: cycle(3, length), "+3"),
}


def strata(model: nn.Module, length: int) -> list[Stratum]:
    """
    Success in the cyclic task, each stratum on its own.  length: ids in a row of training, of which T = length - 1 are
    seen; the model is in eval mode.

    ManifestError where the model's symbols are not the 16 of the task.
    """
    check(model)
    found = [_asked(model, name, rows(length), note) for name, (rows, note) in STRATA.items()]
    return [*found, _longer(model, length - 1)]


def check(model: nn.Module) -> None:
    """Is the model's vocabulary that of the task?"""
    vocabulary = _inner(model).token.num_embeddings
    if vocabulary != SYMBOLS:
        raise ManifestError(
            f"the cyclic task has {SYMBOLS} symbols and the build's tokenizer {vocabulary}: its strata belong to the "
            "build of manifests/cyclic16.yaml"
        )


def _asked(model: nn.Module, name: str, rows: np.ndarray, note: str, first: int = 0) -> Stratum:
    """Rows of ids; targets are counted from position `first` on."""
    ids = torch.from_numpy(rows)
    labels = ids[:, 1:].clone()
    labels[:, :first] = IGNORE
    with torch.no_grad():
        return stratum(name, model(ids[:, :-1]), labels, note)


def _longer(model: nn.Module, seen: int) -> Stratum:
    """Targets behind the T positions of training, up to as many again; none where the model has no such positions."""
    name, places = "longer positions", getattr(_inner(model), "position", None)
    most = 2 * seen if places is None else min(2 * seen, places.num_embeddings)
    if most <= seen:
        return Stratum(
            name, 0, 0, 0.0, 1.0, None, note=f"the model has {most} positions, and training used all of them"
        )
    note = f"+1, at positions {seen + 1} to {most}; training had {seen}"
    return _asked(model, name, cycle(1, most + 1), note, first=seen)


def _inner(model: nn.Module) -> Any:
    """Without what DDP wraps around it."""
    return getattr(model, "module", model)


def relabelled(model: nn.Module) -> nn.Module:
    """
    A copy whose embedding and head go by the names of `remapped`: it solves that stratum as the model solves the cycle.

    So a failure there comes from names alone, and the way that stratum is counted can see a success.
    """
    other = copy.deepcopy(_inner(model))
    names = torch.tensor(REMAP)
    with torch.no_grad():
        other.token.weight[names] = other.token.weight.clone()
        if other.head.weight is not other.token.weight:
            other.head.weight[names] = other.head.weight.clone()
        if other.head.bias is not None:
            other.head.bias[names] = other.head.bias.clone()
    return other


def relabelled_stratum(model: nn.Module, length: int) -> Stratum:
    """`remapped`, asked of the relabelled copy."""
    return _asked(relabelled(model), "remapped, relabelled", remapped(length), "embedding and head renamed alike")


# --- a task that needs context ---------------------------------------------------------------------------------


def control(length: int) -> Batch:
    """
    256 rows: from every symbol in every step 0 to 15.  The next symbol follows from the last two and, over all rows,
    each of the 16 follows each symbol equally often; so targets begin with the third symbol.
    """
    ids = np.concatenate([cycle(step, length) for step in range(SYMBOLS)])
    allowed = np.ones(ids.shape, bool)
    allowed[:, :2] = False
    return batch(ids, allowed)


def batch(ids: np.ndarray, allowed: np.ndarray | None = None) -> Batch:
    """Rows of ids as the feed gives them, each one segment; allowed: bool like ids, which tokens may be predicted."""
    rows, length = ids.shape
    learnt = length - 1 if allowed is None else allowed[:, 1:].sum(axis=1)
    return Batch(
        Rows(
            row_ids=np.arange(rows), input_ids=ids.astype(np.int32), offsets=np.arange(rows + 1),
            seg_len=np.full(rows, length, np.int32), seg_doc=np.arange(rows), seg_start=np.zeros(rows, np.int32),
            seg_flags=np.full(rows, 3, np.uint8), seg_source=np.zeros(rows, np.int16), mask=allowed,
            n_tokens=np.full(rows, length, np.int32), n_targets=np.full(rows, learnt, np.int32),
        )
    )  # fmt: skip


def control_strata(model: nn.Module, length: int) -> list[Stratum]:
    """
    The control's targets with all that came before them; and the same positions with each symbol as a segment of its
    own, at its old position: what is left when context is taken away.
    """
    ids, labels, _, positions = inputs(control(length))
    alone = torch.arange(1, ids.shape[1] + 1).expand(ids.shape)
    with torch.no_grad():
        return [
            stratum("control, in context", model(ids, None, positions), labels, "the step can be read off"),
            stratum("control, one symbol", model(ids, alone, positions), labels, "context cut away"),
        ]
