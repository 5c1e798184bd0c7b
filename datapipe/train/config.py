"""
What a user may write in a train manifest: `train:` at the top, everything else below it.

Read like a build manifest: strict, every mistake at once as `file:line: key: problem`.  The command line may replace
single values (`--set optimizer.lr=1e-3`); they are checked the same way.
"""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import Field, PrivateAttr, ValidationError, model_validator

from datapipe.errors import ManifestError
from datapipe.manifest import files, messages, tree
from datapipe.manifest.entry import Entry
from datapipe.manifest.values import (
    BuildName,
    Count,
    Listed,
    NotNegative,
    PathText,
    Positive,
    Seed,
    Share,
    Switch,
    Text,
    absolute,
    refused,
)


class Data(Entry):
    """Which rows a run sees, and in which order."""

    global_batch_rows: Count = Field(default=16, description="rows of one update of the weights, over all ranks")
    microbatch_rows: Count | None = Field(
        default=None, description="rows of one forward pass; null: all that a rank has of a global batch"
    )
    seed: Seed | None = Field(default=None, description="of the order; null: the run's")
    order: Literal["block-v1", "feistel-v1", "sequential"] = Field(
        default="block-v1", description="how rows are shuffled"
    )
    tail: Literal["drop", "pad", "wrap"] = Field(
        default="drop", description="what becomes of the rows behind an epoch's last whole batch"
    )
    verify: Literal["full", "lazy", "size"] = Field(default="lazy", description="how shards are checked")


class Model(Entry):
    """A causal transformer; the vocabulary is that of the build's tokenizer."""

    kind: Literal["reference", "gpt"] = Field(
        default="gpt", description="`reference`: learnt positions, LayerNorm, GELU; `gpt`: RoPE, RMSNorm, SwiGLU"
    )
    width: Count = Field(default=128, description="of the stream between blocks")
    heads: Count = Field(default=4, description="of attention; they divide the width")
    kv_heads: Count | None = Field(default=None, description="heads of keys and values, of `gpt`; null: as many")
    layers: Count = Field(default=4, description="blocks")
    hidden: Count = Field(default=344, description="width inside a block's MLP")
    positions: Count | None = Field(
        default=None, description="learnt positions, of `reference`; null: a row's length - 1"
    )
    tied: Switch = Field(default=False, description="the head shares the embedding's weights, of `gpt`")
    dropout: Share = Field(default=0.0, description="of attention and of what each part adds")
    recompute: Literal["none", "blocks"] = Field(
        default="none",
        description="`blocks`: keep only the input of a block, compute its activations again (no checkpoint)",
    )
    preserve_rng_state: Switch = Field(default=True, description="recompute with the random numbers of the first time")

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.width % self.heads:
            raise refused(f"width {self.width} is not a multiple of {self.heads} heads", "heads")
        if self.kind == "gpt" and (self.width // self.heads) % 2:
            raise refused(
                f"a head of {self.width // self.heads} cannot be turned in pairs; use an even number", "heads"
            )
        if self.kv_heads and self.heads % self.kv_heads:
            raise refused(f"{self.heads} heads cannot share {self.kv_heads} heads of keys evenly", "kv_heads")
        for key, kind in (("kv_heads", "gpt"), ("tied", "gpt"), ("positions", "reference")):
            if getattr(self, key) and self.kind != kind:
                raise refused(f"belongs to `kind: {kind}`; leave it out", key)
        if self.recompute == "blocks" and self.dropout > 0 and not self.preserve_rng_state:
            raise refused(
                "with dropout, recomputed activations would belong to other random numbers than the loss; "
                "leave it true, or set dropout to 0", "preserve_rng_state",
            )  # fmt: skip
        return self


class Optimizer(Entry):
    """AdamW."""

    lr: Positive = Field(default=1e-3, description="the rate that the schedule multiplies")
    betas: Listed[Share] = Field(default=(0.9, 0.999), description="of the two moments")
    eps: Positive = Field(default=1e-8, description="added to the root of the second moment")
    weight_decay: NotNegative = Field(default=0.01, description="a step takes lr x weight_decay of a weight away")
    decay: Literal["all", "matrices"] = Field(
        default="matrices", description="which parameters decay: all, or those of two or more dimensions"
    )

    @model_validator(mode="after")
    def _two(self) -> Self:
        if len(self.betas) != 2 or max(self.betas) >= 1:
            raise refused("expected two shares below 1, such as [0.9, 0.999]", "betas")
        return self


class Schedule(Entry):
    """What the rate is multiplied by, in the course of a run."""

    kind: Literal["constant", "cosine", "wsd"] = Field(default="constant", description="its form after the warm-up")
    unit: Literal["steps", "targets"] = Field(
        default="steps", description="of warmup and decay: updates of the weights, or targets"
    )
    warmup: NotNegative = Field(default=0, description="units of linear warm-up")
    decay: NotNegative = Field(default=0, description="units of the linear fall at the end, of `wsd`")
    floor: Share = Field(default=0.0, description="where cosine and wsd end")

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.decay and self.kind != "wsd":
            raise refused("belongs to `kind: wsd`; leave it out", "decay")
        if not self.decay and self.kind == "wsd":
            raise refused("`kind: wsd` falls in its last `decay` units; say how many", "decay")
        if self.floor and self.kind == "constant":
            raise refused("belongs to `kind: cosine` and `kind: wsd`; leave it out", "floor")
        return self


class NonFinite(Entry):
    """What a step does whose loss or gradient is not a finite number."""

    policy: Literal["raise", "skip"] = Field(
        default="raise", description="`skip`: leave the weights as they are, and count it"
    )
    most: Count = Field(default=3, description="skipped steps in a row that are borne")  # fmt: skip


class Checkpoint(Entry):
    """When the state of a run is saved (no activations: see recompute)."""

    every: Count | None = Field(default=None, description="updates between two checkpoints; null: at the end alone")
    keep: Count = Field(default=2, description="the newest ones that stay")
    level: Literal["R0", "R1", "R2", "R3"] = Field(
        default="R3",
        description="what a resumed run has again: R0 weights, R1 moments of the optimizer too, R2 the exact next "
        "batch too, R3 all: the same bits as a run that was never stopped",
    )


class Evaluate(Entry):
    """When the validation split is looked at."""

    every: Count | None = Field(default=None, description="updates between two looks; null: before and after alone")
    batches: Count | None = Field(default=None, description="batches of a look; null: all of the split")
    strata: Literal["cyclic"] | None = Field(default=None, description="tasks whose success is counted by stratum")


class Training(Entry):
    """A training run."""

    name: BuildName = Field(description="of the folder under `output`")
    output: PathText = Field(default="runs", description="the folder where runs lie")
    build: Text = Field(description="the build to train on: name, name@3, name@9f2c, or a path")
    builds: PathText = Field(default="builds", description="the folder where builds lie")
    seed: Seed = Field(default=0, description="of the weights and of all that is random in a run")
    data: Data = Field(default=Data(), description="which rows, and in which order")
    model: Model = Field(default=Model(), description="what is trained")
    steps: Count = Field(description="updates of the weights")
    objective: Literal["per_token", "per_document"] = Field(
        default="per_token", description="what weighs alike: each target, or each document's segment"
    )
    optimizer: Optimizer = Field(default=Optimizer(), description="AdamW")
    schedule: Schedule = Field(default=Schedule(), description="of the learning rate")
    clip: Positive | None = Field(default=1.0, description="the largest norm of the gradient; null: any")
    precision: Literal["float32", "bfloat16"] = Field(
        default="float32", description="`bfloat16`: autocast, weights stay float32"
    )
    loss_scale: Positive | None = Field(
        default=None, description="what the loss is multiplied by at first, falling when gradients overflow; null: none"
    )
    non_finite: NonFinite = Field(default=NonFinite(), description="what to do when a number is not finite")
    checkpoint: Checkpoint = Field(default=Checkpoint(), description="when the run is saved")
    evaluate: Evaluate = Field(default=Evaluate(), description="when validation is looked at")
    parallel: Literal["ddp", "fsdp"] = Field(
        default="ddp", description="with several ranks: the whole model on each, or a part of it (fully_shard)"
    )
    threads: Count = Field(default=1, description="threads of torch: the same bits need the same number")

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if "://" in self.build:
            raise refused("a run reads a build of this machine, and leaves a record there; fetch it first", "build")
        rows, micro = self.data.global_batch_rows, self.data.microbatch_rows
        if micro and rows % micro:
            raise refused(f"{micro} microbatch_rows do not divide {rows} global_batch_rows", "data")
        if self.schedule.unit == "steps" and self.schedule.warmup + self.schedule.decay > self.steps:
            raise refused(f"warmup and decay are longer than the {self.steps} steps of the run", "schedule")
        if self.loss_scale and self.non_finite.policy == "raise":
            raise refused(
                "a scale is found by skipping steps that overflow: set `non_finite: {policy: skip}`", "loss_scale"
            )
        return self


class TrainManifest(Entry):
    """A train manifest."""

    train: Training = Field(description="the training run")

    _folder: Path = PrivateAttr(default_factory=Path.cwd)

    def model_post_init(self, context: Any) -> None:
        """`context` is the path of the YAML file: relative paths begin in its folder."""
        if isinstance(context, Path):
            self._folder = context.resolve().parent

    @property
    def output(self) -> Path:
        """Where runs lie."""
        return absolute(self.train.output, self._folder)

    @property
    def build(self) -> str:
        """The build as `open` takes it: a name as it is, a path made absolute."""
        written = self.train.build
        return str(absolute(written, self._folder)) if "/" in written else written

    @property
    def builds(self) -> Path:
        """Where builds lie."""
        return absolute(self.train.builds, self._folder)

    def into(self, output: Path) -> Self:
        """The same with runs lying elsewhere."""
        changed = self.model_copy(update={"train": self.train.model_copy(update={"output": str(output.resolve())})})
        changed._folder = self._folder  # noqa: SLF001  our own
        return changed


def fitting(build: str, rows: int, settings: Sequence[str] = ()) -> TrainManifest:
    """What a build of that many rows of train is trained with where there is no manifest: a small gpt."""
    batch = min(16, rows)
    asked = [setting.partition("=")[2] for setting in settings if setting.startswith("steps=")]
    steps = int(asked[-1]) if asked and asked[-1].isdecimal() else min(1000, 4 * (rows // batch))
    raw: dict[str, Any] = {
        "name": re.sub(r"[^a-z0-9._-]+", "-", build.lower()).strip(".-_") or "run",
        "build": build,
        "steps": steps,
        "data": {"global_batch_rows": batch},
        "optimizer": {"lr": 2e-3, "betas": [0.9, 0.95], "weight_decay": 0.1},
        "schedule": {"kind": "cosine", "warmup": steps // 20, "floor": 0.1},
        "evaluate": {"every": max(1, steps // 10)},
        "checkpoint": {"every": max(1, steps // 4)},
    }
    try:
        return TrainManifest.model_validate(_set({"train": raw}, settings))
    except ValidationError as error:
        lines = [
            f"--set {tree.key_of(place[1:])}: {problem}" for place, problem in messages.problems(error, TrainManifest)
        ]
        raise ManifestError("\n".join(lines)) from None


def load(path: Path, settings: Sequence[str] = ()) -> TrainManifest:
    """The manifest in a YAML file, with `key=value` settings of the command line put in; ManifestError otherwise."""
    return files.load(path, TrainManifest, change=lambda raw: _set(_of_a_run(raw, path), settings))


def _of_a_run(raw: Mapping[str, Any], path: Path) -> Mapping[str, Any]:
    if "train" not in raw and "sources" in raw:
        raise ManifestError(
            f"{path}: says how to build data, so `datapipe build {path}`; a train manifest has `train:` at the top"
        )
    return raw


def _set(raw: Mapping[str, Any], settings: Sequence[str]) -> dict[str, Any]:
    changed = dict(raw)
    for setting in settings:
        key, found, text = setting.partition("=")
        if not found or not key:
            raise ManifestError(f"--set {setting}: expected key=value, such as optimizer.lr=0.001")
        place = changed
        for part in ["train", *key.split(".")[:-1]]:
            inner = place.get(part)
            place[part] = dict(inner) if isinstance(inner, Mapping) else {}
            place = place[part]
        place[key.split(".")[-1]] = files.value(text)
    return changed
