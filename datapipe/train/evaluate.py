"""
Three separate numbers, never averaged into one: the loss on a fixed sample of train, the loss on validation, and the
success in tasks by stratum (tasks.py).

A loss is the sum of cross-entropies over all targets divided by their number, not a mean of means of batches.  Bits per
byte leave out targets that stand for no bytes, such as eos, in both sums, so they compare across tokenizers.  A look
moves neither the random numbers nor the loader.
"""

import math
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from datapipe.feed import Batch
from datapipe.manifest import TokenizerFile
from datapipe.train import tasks
from datapipe.train.loss import IGNORE
from datapipe.train.step import inputs
from datapipe.train.tasks import Stratum

if TYPE_CHECKING:
    from datapipe.tokens import Tokenizer
    from datapipe.train.run import Run


@dataclass(frozen=True)
class Sums:
    """
    nats: cross-entropies of all targets;  spelt: of those that stand for bytes;  bytes: how many; None where the
    tokenizer does not spell bytes
    """

    nats: float
    targets: int
    spelt: float
    bytes: int | None

    @property
    def loss(self) -> float:
        """Nats per target; nan without targets."""
        return self.nats / self.targets if self.targets else math.nan

    @property
    def bits_per_byte(self) -> float | None:
        return self.spelt / (math.log(2) * self.bytes) if self.bytes else None

    def as_json(self) -> dict[str, Any]:
        loss = self.loss if self.targets else None
        return asdict(self) | {"loss": loss, "bits_per_byte": self.bits_per_byte}

    @classmethod
    def of(cls, entry: dict[str, Any]) -> Self:
        return cls(entry["nats"], entry["targets"], entry["spelt"], entry["bytes"])


@dataclass(frozen=True)
class Look:
    """
    A look after `step` updates.

    train:       global batch 0 of epoch 0, with the weights as they are now
    validation:  all of the split (or `evaluate.batches` of it); None where nothing was held out
    sources:     validation by source;  strata: tasks, where the manifest asks for them
    """

    step: int
    train: Sums
    validation: Sums | None
    sources: dict[str, Sums]
    strata: tuple[Stratum, ...] = ()

    def as_json(self) -> dict[str, Any]:
        return {
            "step": self.step,
            "train": self.train.as_json(),
            "validation": self.validation and self.validation.as_json(),
            "sources": {name: sums.as_json() for name, sums in self.sources.items()},
            "strata": [stratum.as_json() for stratum in self.strata],
        }

    @classmethod
    def of(cls, entry: dict[str, Any]) -> Self:
        """A look out of a checkpoint."""
        return cls(
            entry["step"],
            Sums.of(entry["train"]),
            entry["validation"] and Sums.of(entry["validation"]),
            {name: Sums.of(sums) for name, sums in entry["sources"].items()},
            tuple(Stratum.of_json(stratum) for stratum in entry["strata"]),
        )


def look(run: "Run") -> Look:
    """What the weights are worth now.  Every rank takes part, each with its rows."""
    widths = _widths(run.dataset.path)
    with still(run.step.model) as model:
        train = _summed(run, model, [run.loader.batch_at(0, 0)], widths)[0]
        validation, sources = None, {}
        if run.dataset.validation.rows:
            validation, *each = _summed(run, model, _validation(run), widths)
            sources = {name: sums for name, sums in zip(run.dataset.sources, each, strict=True) if sums.targets}
        strata = tasks.strata(model, run.dataset.train.length) if run.config.evaluate.strata else ()
    return Look(run.done, train, validation, sources, tuple(strata))


@contextmanager
def still(model: nn.Module) -> Iterator[nn.Module]:
    """The model without dropout and gradients; random numbers are as before when it ends."""
    before = model.training
    model.eval()
    try:
        with torch.random.fork_rng(devices=[]), torch.no_grad():
            yield model
    finally:
        model.train(before)


def _validation(run: "Run") -> Iterator[Batch]:
    """This rank's rows; each rank has as many batches, filled up with empty rows."""
    rows = run.config.data.global_batch_rows
    loader = run.dataset.loader(
        "validation", global_batch_rows=rows, rank=run.parallel.rank, world=run.parallel.world, order="sequential",
        tail="pad",
    )  # fmt: skip
    for number, batch in enumerate(loader):
        if number == run.config.evaluate.batches:
            break
        yield batch
    loader.close()


def _summed(run: "Run", model: nn.Module, batches: Iterable[Batch], widths: np.ndarray | None) -> list[Sums]:
    """Of everything, then of each source; over all ranks."""
    sums = np.zeros((1 + len(run.dataset.sources), 4))
    micro = run.config.data.microbatch_rows or run.config.data.global_batch_rows
    for batch in batches:
        for part in batch.split(micro):
            sums += _batch(model, part, widths, len(sums))
    whole = np.array(run.parallel.sum(sums.reshape(-1).tolist())).reshape(sums.shape)
    return [
        Sums(float(nats), int(targets), float(spelt), int(width) if widths is not None else None)
        for nats, targets, spelt, width in whole
    ]


def _batch(model: nn.Module, batch: Batch, widths: np.ndarray | None, rows: int) -> np.ndarray:
    """float64[rows, 4]: nats, targets, nats of targets with bytes, bytes; of all, then of each source."""
    ids, labels, segments, positions = inputs(batch)
    logits = model(ids, segments, positions)
    wide = logits if logits.dtype == torch.float64 else logits.float()
    each = F.cross_entropy(wide.flatten(0, 1), labels.flatten(), ignore_index=IGNORE, reduction="none")
    at = np.flatnonzero(batch.labels[:, :-1].reshape(-1) != IGNORE)
    nats = each.double().numpy()[at]
    width = np.zeros(len(at)) if widths is None else widths[batch.labels[:, :-1].reshape(-1)[at]].astype(float)
    columns = np.stack([nats, np.ones(len(at)), np.where(width > 0, nats, 0.0), width], axis=1)
    found = np.zeros((rows, 4))
    found[0] = columns.sum(axis=0)
    np.add.at(found, 1 + batch.sources[:, :-1].reshape(-1)[at], columns)
    return found


@cache
def _widths(build: str) -> np.ndarray | None:
    """spelt() of a build's tokenizer."""
    from datapipe import tokens
    from datapipe.build_manifest import load

    path = Path(build)
    spec = load(path).manifest["tokenizer"]
    file = path / tokens.FILE
    control = TokenizerFile(file=tokens.FILE, **{name: spec.get(name) for name in tokens.CONTROLS})
    return spelt(tokens.load(file.read_bytes(), control, str(file)))


def spelt(tokenizer: "Tokenizer") -> np.ndarray | None:
    """
    int[max_id + 1]: how many bytes of text each id stands for; None where ids do not spell bytes.

    0 for controls (eos, bos, pad) and special tokens: they have a name, and stand for no text.
    """
    if tokenizer.widths is None:
        return None
    named = [special[1] for special in (tokenizer.eos, tokenizer.bos, tokenizer.pad) if special]
    found = tokenizer.widths.copy()
    found[[*named, *(added["id"] for added in tokenizer.added_tokens if added["special"])]] = 0
    return found
