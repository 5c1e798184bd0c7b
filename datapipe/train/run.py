"""
train(): from a train manifest to runs/<name>/, the whole path on one screen.
"""

import fcntl
import json
import math
import random
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from datapipe import feed
from datapipe.build_manifest import consumers
from datapipe.errors import DataError, DriftError, ManifestError, PolicyError
from datapipe.feed import Batch, Dataset, Loader
from datapipe.keyed import keyed
from datapipe.train import checkpoint, evaluate, parallel, report
from datapipe.train.checkpoint import Saved
from datapipe.train.config import Training, TrainManifest
from datapipe.train.model import Transformer, build
from datapipe.train.optimizer import adamw
from datapipe.train.parallel import Parallel
from datapipe.train.step import Counters, Step, Tell

LOCK = ".lock"  # held while a process is at a run

# what a resumed run may change: ROUNDING changes how sums are rounded, and nothing else does anything to the steps to
# come, but for `steps` (the schedule ends there), which is meant
ROUNDING = {"threads", "parallel", "data.microbatch_rows"}
FREE = ROUNDING | {"output", "builds", "build", "steps", "checkpoint", "evaluate", "data.verify"}


@dataclass
class Run:
    """A run between two steps."""

    manifest: TrainManifest
    dataset: Dataset
    parallel: Parallel
    folder: Path
    loader: Loader
    model: Transformer  # the weights by name
    step: Step  # and what moves them
    metrics: report.Metrics
    looks: list[evaluate.Look] = field(default_factory=list)
    resumed: list[dict[str, Any]] = field(default_factory=list)
    seen: list[dict[str, Any]] = field(default_factory=list)  # by processes before this one
    begun: tuple[int, int] = (0, 0)  # where the loader stood when this one began
    started: float = field(default_factory=time.monotonic)

    @property
    def config(self) -> Training:
        return self.manifest.train

    @property
    def done(self) -> int:
        """Updates of the weights so far."""
        return self.step.counters.steps

    @property
    def spans(self) -> list[dict[str, Any]]:
        """The global batches that were seen: (epoch, batch) of the first one, and of the one after the last."""
        return [*self.seen, {"from": list(self.begun), "to": list(self.loader.position)}]

    def line(self, looked: bool) -> str:
        """Where it is, for the terminal; looked: what the last look saw, else what the last step did."""
        head = f"step {self.done:,} of {self.config.steps:,}"
        if not looked:
            last = self.metrics.rows[-1]
            return f"{head}: loss {last['loss'] or math.nan:.4g}, norm {last['norm']:.3g}"
        look = self.looks[-1]
        validation = f", validation {look.validation.loss:.5g}" if look.validation else ""
        return f"{head}: sample of train {look.train.loss:.5g}{validation}"


def train(
    manifest: TrainManifest, *, resume: bool = False, tell: Tell = lambda event, facts: None,
    progress: Callable[[Run], None] = lambda run: None,
) -> report.Report:  # fmt: skip
    """
    Train what the manifest describes.  Under torchrun every rank calls it; the first one writes.

    tell: hears the event of every part of a step;  progress: sees the run after every step and look
    """
    config = manifest.train
    torch.set_num_threads(config.threads)
    group = parallel.start(config.parallel)
    with (
        parallel.together(group),
        feed.open(manifest.build, verify=config.data.verify, output=manifest.builds) as dataset,
        _folder(manifest, group, resume) as folder,
    ):
        run = begin(manifest, dataset, group, folder, tell)
        if resume:
            _resume(run)
        if not run.looks:
            _look(run, progress)
        for window in windows(run):
            begun = time.perf_counter()
            outcome = run.step.run(window)
            run.metrics.add(run.step.counters, run.loader.position, outcome, time.perf_counter() - begun)
            progress(run)
            if outcome.taken and _due(config.evaluate.every, run.done, config.steps):
                _look(run, progress)
            if outcome.taken and _due(config.checkpoint.every, run.done, config.steps):
                _save(run)
        return report.finish(run)


def begin(
    manifest: TrainManifest, dataset: Dataset, group: Parallel, folder: Path, tell: Tell = lambda event, facts: None
) -> Run:
    """A run before its first step: weights drawn, order of data fixed."""
    config = manifest.train
    loader = _loader(config, dataset, group)
    random.seed(config.seed)
    np.random.seed(config.seed % 2**32)  # noqa: NPY002  whoever draws from it must find the same numbers
    torch.manual_seed(config.seed)
    assert dataset.made.tokenizer is not None, "a build without a tokenizer has no loader"
    _fits(config, dataset.train.length - 1, _whole(config, dataset))
    model = build(config.model, dataset.made.tokenizer.max_id + 1, dataset.train.length - 1)
    if group.rank:  # the same weights, other random numbers
        torch.manual_seed(keyed("rank", config.seed, group.rank) >> 1)
    wrapped = group.wrap(model)
    step = Step(wrapped, adamw(model, config.optimizer), config, group, _whole(config, dataset), tell)
    return Run(manifest, dataset, group, folder, loader, model, step, report.Metrics())


def _loader(config: Training, dataset: Dataset, group: Parallel) -> Loader:
    rows, micro = config.data.global_batch_rows, config.data.microbatch_rows
    if rows % group.world or (micro and rows // group.world % micro):
        raise ManifestError(
            f"{rows} global_batch_rows cannot be dealt to {group.world} ranks in microbatches of {micro or 'any size'}"
            "; "
            "choose numbers that divide each other"
        )
    seed = config.seed if config.data.seed is None else config.data.seed
    return dataset.loader(
        "train", global_batch_rows=rows, rank=group.rank, world=group.world, seed=seed, order=config.data.order,
        tail=config.data.tail,
    )  # fmt: skip


def _fits(config: Training, positions: int, whole: float) -> None:
    schedule = config.schedule
    if schedule.warmup + schedule.decay > whole:
        raise ManifestError(f"schedule: warmup and decay are longer than the run, {whole:,.0f} {schedule.unit}")
    if config.model.kind == "reference" and config.model.positions and config.model.positions < positions:
        raise ManifestError(
            f"model.positions is {config.model.positions}, and rows of the build have {positions} to learn from"
        )


def _whole(config: Training, dataset: Dataset) -> float:
    """The length of the run in the schedule's unit: steps, or the targets that so many steps hold on average."""
    split = dataset.made.splits.train
    if config.schedule.unit == "steps":
        return float(config.steps)
    return config.steps * config.data.global_batch_rows * split.tokens.targets / split.sequences


def windows(run: Run) -> Iterator[list[Batch]]:
    """This rank's microbatches of one global batch after the other, across epochs, until the run has its steps."""
    micro = run.config.data.microbatch_rows or run.config.data.global_batch_rows
    if run.done >= run.config.steps:
        return
    for batch in run.loader.forever():
        yield batch.split(micro)
        if run.step.counters.empty_in_a_row >= len(run.loader):
            raise DataError(f"{run.dataset.path}: an epoch without a single target; nothing can be learnt from it")
        if run.done >= run.config.steps:
            return


def _due(every: int | None, done: int, whole: int) -> bool:
    return done == whole or (every is not None and done % every == 0)


def _look(run: Run, progress: Callable[[Run], None]) -> None:
    run.looks.append(evaluate.look(run))
    progress(run)


# --- checkpoints -----------------------------------------------------------------------------------------------


def _save(run: Run) -> None:
    """Every rank takes part; the first one writes."""
    state = parallel.state(run.model, run.step.optimizer)
    randoms = run.parallel.gather(checkpoint.random_state())
    if run.parallel.rank == 0:
        facts = _facts(run) | {"random": randoms}
        path = checkpoint.save(run.folder, Saved(state, facts, run.metrics.table()), run.config.checkpoint.keep)
        feed.consumed(run.dataset.path, run.loader.state_dict(), path, kind="checkpoint", step=run.done, seen=run.spans)
        _forget(Path(run.dataset.path), run.folder)
    run.parallel.barrier()


def _forget(build: Path, folder: Path) -> None:
    """Take the records of a run's checkpoints away that were swept."""
    for file in consumers.path(build, "checkpoint", "*").parent.glob("checkpoint-*.json"):
        where = Path(json.loads(file.read_bytes())["path"])
        if where.is_relative_to(folder.resolve()) and not where.exists():
            file.unlink()


def _facts(run: Run) -> dict[str, Any]:
    return {
        "level": run.config.checkpoint.level,
        "step": run.done,
        "config": run.config.model_dump(mode="json"),
        "dataset_id": run.dataset.dataset_id,
        "build": {"name": run.dataset.made.name, "version": run.dataset.made.version},
        "objective": run.config.objective,
        "counters": run.step.counters.as_json(),
        "scale": run.step.scale.as_json(),
        "loader": run.loader.state_dict(),
        "seen": run.spans,
        "looks": [look.as_json() for look in run.looks],
        "resumed": run.resumed,
        "software": checkpoint.software(run.parallel.world),
    }


def _resume(run: Run) -> None:
    """Goes on from the newest good checkpoint, at its level; what makes the bits differ is recorded."""
    saved = checkpoint.load(run.folder)
    facts, level = saved.facts, checkpoint.LEVELS.index(saved.facts["level"])
    _same_run(run, facts)
    parallel.restore(run.model, run.step.optimizer if level >= checkpoint.LEVELS.index("R1") else None, saved.state)
    run.step.counters = Counters(**facts["counters"])
    run.metrics = report.Metrics.of(saved.metrics)
    run.looks = [evaluate.Look.of(look) for look in facts["looks"]]
    run.seen = facts["seen"]
    if level >= checkpoint.LEVELS.index("R1"):
        run.step.scale.load(facts["scale"])
    if level >= checkpoint.LEVELS.index("R2"):
        run.loader.load_state_dict(facts["loader"])
        *run.seen, last = run.seen  # it goes on
        run.begun = (last["from"][0], last["from"][1])
    differs = _differs(run, facts)
    if facts["level"] == "R3" and not checkpoint.restore_random(facts["random"], run.parallel.rank):
        differs.append("random numbers: none were saved for this rank")
    reached = "R2" if facts["level"] == "R3" and differs else facts["level"]
    run.resumed = [*facts["resumed"], {"step": facts["step"], "level": reached, "differs": differs}]


def _differs(run: Run, facts: dict[str, Any]) -> list[str]:
    """What is other than it was, and makes sums round otherwise."""
    ours, theirs = _flat(run.config.model_dump(mode="json")), _flat(facts["config"])
    here = checkpoint.software(run.parallel.world) | {key: ours[key] for key in ROUNDING}
    then = facts["software"] | {key: theirs[key] for key in ROUNDING}
    return [f"{key}: {was} then, {here.get(key)} now" for key, was in then.items() if here.get(key) != was]


def _same_run(run: Run, facts: dict[str, Any]) -> None:
    if facts["dataset_id"] != run.dataset.dataset_id:
        build = facts["build"]
        raise DriftError(
            f"the checkpoint was trained on {build['name']}@{build['version']}, dataset_id {facts['dataset_id'][:12]}, "
            f"and {run.dataset.path} has {run.dataset.dataset_id[:12]}; name that version in `build`"
        )
    ours, theirs = _flat(run.config.model_dump(mode="json")), _flat(facts["config"])
    wrong = [key for key in ours.keys() | theirs.keys() if ours.get(key) != theirs.get(key) and not _free(key)]
    if wrong:
        lines = [f"{key}: {theirs.get(key)} in the checkpoint, {ours.get(key)} now" for key in sorted(wrong)]
        raise DriftError(
            "a resumed run cannot change these; start another one under another name:\n" + "\n".join(lines)
        )


def _flat(value: dict[str, Any], above: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, inner in value.items():
        name = f"{above}{key}"
        flat |= _flat(inner, f"{name}.") if isinstance(inner, dict) else {name: inner}
    return flat


def _free(key: str) -> bool:
    return key in FREE or key.partition(".")[0] in FREE


# --- the folder ------------------------------------------------------------------------------------------------


@contextmanager
def _folder(manifest: TrainManifest, group: Parallel, resume: bool) -> Generator[Path]:
    """runs/<name>, held by this run alone: a new one, or with resume the one that is there."""
    folder = manifest.output / manifest.train.name
    if group.rank:
        yield folder
        return
    if resume and not folder.is_dir():
        raise ManifestError(f"{folder}: no such run to resume; start it without --resume")
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / LOCK, "ab") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise PolicyError(f"{folder}: another process is at this run") from None
        if not resume and _begun(folder):
            done = (folder / report.RUN).exists()
            raise PolicyError(
                f"{folder} is there already: "
                + (
                    "a finished run; --resume with more --steps goes on with it"
                    if done
                    else "go on with it by --resume"
                )
                + ", or give the run another `name`"
            )
        yield folder


def _begun(folder: Path) -> bool:
    """Whether anything is there that a new run would mix with; what ended before its first checkpoint left nothing."""
    left = {path.name for path in folder.iterdir()} - {LOCK, checkpoint.FOLDER}
    return bool(left) or any((folder / checkpoint.FOLDER).glob("step-*"))
