"""
`datapipe train FILE --experiment`: what the cyclic run shows and what it does not, with several seeds and its controls.

For each seed a run of the manifest's own configuration (in memory: no checkpoints, no books of consumers), then

* success by stratum: what the model does where +1 is not asked for,
* the positive control: the same model and Step on rows that cannot be continued without their context,
* causality: inputs edited from position k on leave the logits before k equal to the bit; the same weights without their
  mask must fail that.
"""

import copy
import json
import math
import statistics
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from datapipe import feed
from datapipe.build_manifest.consumers import put
from datapipe.errors import PolicyError
from datapipe.feed import Dataset
from datapipe.train import checkpoint, evaluate, picture, tasks
from datapipe.train.config import Evaluate, Schedule, Training, TrainManifest
from datapipe.train.model import build
from datapipe.train.optimizer import adamw
from datapipe.train.parallel import Parallel
from datapipe.train.run import Run, begin, windows
from datapipe.train.step import Step, inputs
from datapipe.train.tasks import SYMBOLS, Stratum

RESULT, PICTURE = "experiment.json", "experiment.png"
FORMAT_VERSION = 1
CONTROL_STEPS = 250  # updates of the control, on all of its 256 rows each
OUTSIDE = ("reversed", "remapped", "step 2", "step 3")  # strata that training did not show
Told = Callable[[str], None]


@dataclass(frozen=True)
class Causality:
    """
    Inputs edited from position k on, for every k.

    broken:   positions k whose edit changed a logit before k; none in a causal model
    earlier:  the largest change of a logit before k, 0.0 where all are equal to the bit
    later:    the smallest of the largest changes from k on: > 0 where every edit was seen at all
    """

    positions: int
    broken: tuple[int, ...]
    earlier: float
    later: float

    @property
    def holds(self) -> bool:
        return not self.broken and self.later > 0

    def as_json(self) -> dict[str, Any]:
        return asdict(self) | {"holds": self.holds}


@dataclass(frozen=True)
class Result:
    """
    What one seed gave.

    first, last:    loss on the fixed sample of train, before and after all updates
    sample:         right answers there, after
    control:        of the model that was trained on the positive control
    mutant:         causality of the same weights without a mask, which must not hold
    """

    seed: int
    parameters: int
    first: float
    last: float
    sample: Stratum
    strata: tuple[Stratum, ...]
    relabelled: Stratum
    control: tuple[Stratum, ...]
    causality: Causality
    mutant: Causality

    @property
    def asked(self) -> dict[str, Stratum]:
        """Every stratum by name, those of the controls too."""
        return {one.name: one for one in (*self.strata, self.relabelled, *self.control)}

    def as_json(self) -> dict[str, Any]:
        strata = {name: [one.as_json() for one in getattr(self, name)] for name in ("strata", "control")}
        rest = {name: getattr(self, name).as_json() for name in ("sample", "relabelled", "causality", "mutant")}
        return {"seed": self.seed, "first": self.first, "last": self.last, **strata, **rest}


def experiment(manifest: TrainManifest, number: int, tell: Told = lambda line: None) -> "Experiment":
    """
    The experiment with `number` seeds: the manifest's own, then 0, 1, 2, ... without it.

    Writes runs/<name>-experiment/; PolicyError where that is there already, before anything is trained.
    """
    folder = manifest.output / f"{manifest.train.name}-experiment"
    if folder.exists():
        raise PolicyError(f"{folder} is there already; move it away, or give the run another `name`")
    torch.set_num_threads(manifest.train.threads)
    config = manifest.train
    results: list[Result] = []
    with feed.open(manifest.build, verify=config.data.verify, output=manifest.builds) as dataset:
        for seed in seeds(config.seed, number):
            results.append(one(manifest, dataset, seed, folder))
            tell(f"seed {seed}: loss {results[-1].first:.4f} -> {results[-1].last:.5f}")
        found = Experiment(folder, manifest.train, facts(dataset), tuple(results))
    folder.mkdir(parents=True)
    put(folder / PICTURE, picture.strata([result.asked for result in results], [result.seed for result in results],
                                         f"{config.name}: {counted(len(results))}"))  # fmt: skip
    put(folder / RESULT, (json.dumps(found.as_json(), indent=1, ensure_ascii=False) + "\n").encode())
    return found


def seeds(first: int, number: int) -> list[int]:
    """The manifest's own seed, then the smallest others."""
    return [first, *(seed for seed in range(number + 1) if seed != first)][:number]


def facts(dataset: Dataset) -> dict[str, Any]:
    """The data that were trained on."""
    made = dataset.made
    return {"build": made.name, "version": made.version, "dataset_id": made.dataset_id}


def one(manifest: TrainManifest, dataset: Dataset, seed: int, folder: Path) -> Result:
    """One seed: the run, its strata and its controls.  ManifestError where the build is not the cyclic one."""
    train = manifest.train.model_copy(update={"seed": seed, "evaluate": Evaluate(strata="cyclic")})
    run = begin(manifest.model_copy(update={"train": train}), dataset, Parallel(), folder)
    length = dataset.train.length
    tasks.check(run.model)
    first = evaluate.look(run).train.loss
    for window in windows(run):
        run.step.run(window)
    look = evaluate.look(run)
    trained = control(train, length)
    with evaluate.still(run.model) as model, evaluate.still(trained):
        return Result(
            seed=seed,
            parameters=sum(parameter.numel() for parameter in run.model.parameters()),
            first=first,
            last=look.train.loss,
            sample=_sample(run, model),
            strata=look.strata,
            relabelled=tasks.relabelled_stratum(model, length),
            control=tuple(tasks.control_strata(trained, length)),
            causality=causality(model, length - 1),
            mutant=causality(mutant(model), length - 1),
        )


def _sample(run: Run, model: nn.Module) -> Stratum:
    """Right answers on global batch 0 of epoch 0, the sample of train that every look takes."""
    ids, labels, segments, positions = inputs(run.loader.batch_at(0, 0))
    return tasks.stratum("sample of train", model(ids, segments, positions), labels)


def control(config: Training, length: int) -> nn.Module:
    """The manifest's model and optimizer, trained by the same Step on rows whose step has to be read off."""
    trained = config.model_copy(update={"steps": CONTROL_STEPS, "schedule": Schedule()})
    torch.manual_seed(config.seed)
    model = build(config.model, SYMBOLS, length - 1)
    step = Step(model, adamw(model, config.optimizer), trained, Parallel(), CONTROL_STEPS)
    batch = tasks.control(length)
    for _ in range(CONTROL_STEPS):
        step.run([batch])
    return model


def causality(model: Callable[[Tensor], Tensor], seen: int) -> Causality:
    """Edits the T = `seen` inputs of the 16 cyclic rows from each position on: every symbol becomes another."""
    ids = torch.from_numpy(tasks.cycle(1, seen))
    before = model(ids)
    broken, earlier, later = [], 0.0, math.inf
    for k in range(1, seen):
        edited = ids.clone()
        edited[:, k:] = (edited[:, k:] + SYMBOLS // 2 + k % 3) % SYMBOLS
        change = (model(edited) - before).abs()
        earlier, later = max(earlier, float(change[:, :k].max())), min(later, float(change[:, k:].max()))
        if change[:, :k].any():
            broken.append(k)
    return Causality(seen, tuple(broken), earlier, later)


def mutant(model: nn.Module) -> nn.Module:
    """The same weights without a mask: a token sees the ones after it."""
    other = copy.deepcopy(model)
    other.causal = False  # pyright: ignore[reportArgumentType]
    return other


# --- what it says ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Experiment:
    """All seeds, and what they show."""

    folder: Path
    config: Training
    data: dict[str, Any]
    results: tuple[Result, ...]

    def as_json(self) -> dict[str, Any]:
        return {
            "format_version": FORMAT_VERSION,
            "name": self.config.name,
            "config": self.config.model_dump(mode="json"),
            "data": self.data,
            "parameters": self.results[0].parameters,
            "control_steps": CONTROL_STEPS,
            "chance": {"share": tasks.CHANCE, "loss": math.log(SYMBOLS)},
            "seeds": [result.as_json() for result in self.results],
            "columns": {name: spread(values) for name, values in self.columns().items()},
            "reading": {"shown": self.shown(), "not_shown": self.not_shown(), "failed": self.failed()},
            "software": checkpoint.software(1),
        }

    def columns(self) -> dict[str, list[float]]:
        """A value of each seed: losses, and of every stratum that was asked its share of right answers and its loss."""
        found = {
            "first": [result.first for result in self.results],
            "last": [result.last for result in self.results],
            "sample of train: share": [result.sample.share or 0.0 for result in self.results],
        }
        for name in self.results[0].asked:
            each = [result.asked[name] for result in self.results]
            if each[0].of:
                found[f"{name}: share"] = [stratum.share or 0.0 for stratum in each]
                found[f"{name}: loss"] = [stratum.loss or 0.0 for stratum in each]
        return found

    def _beat(self, name: str) -> int:
        """Seeds in which a stratum is better than chance."""
        return sum(result.asked[name].beats_chance for result in self.results)

    def shown(self) -> list[str]:
        """What the figures show, as far as they do."""
        last, control, cut = self.results[-1], self._beat("control, in context"), self._beat("control, one symbol")
        found: list[str] = []
        if all(result.sample.share == 1 for result in self.results):
            found.append("Data, mask, gradients and optimizer work together: every seed learns all of its 16 pairs.")
        if control == len(self.results) and not cut:
            found.append(
                "The positive control: the same model and step do use context where the task needs it; with context "
                "cut to one symbol no seed is better than chance."
            )
        if all(result.relabelled.share == 1 for result in self.results):
            found.append(
                "Remapped is solved once embedding and head are renamed alike: a failure there comes from names, and "
                "the way it is counted can see a success."
            )
        if not self.failed():
            found.append(
                f"No logit depends on a later input: edits from each of {last.causality.positions - 1} positions on "
                "left the logits before equal to the bit, and the same test finds the mutant without a mask."
            )
        return found

    def not_shown(self) -> list[str]:
        """What one might read into them, and should not."""
        better = [name for name in OUTSIDE if self._beat(name)]
        if better:
            outside = (
                f"Out of distribution: better than chance in {', '.join(better)}, in some seeds; look at the table "
                "before anything is concluded."
            )
        else:
            below = all(
                (result.asked[name].loss or 0.0) > math.log(SYMBOLS) for name in OUTSIDE for result in self.results
            )
            outside = (
                f"No generalisation: {', '.join(OUTSIDE)} are no better than chance ({tasks.CHANCE:.2%}) in any seed"
                + (f", with a loss above ln {SYMBOLS} = {math.log(SYMBOLS):.3f}: surely wrong." if below else ".")
            )
        return [
            outside,
            "No rule and no use of context in the run itself: a table of 16 pairs gives the same answers.",
            "Nothing about language, other sizes or other data.",
        ]

    def failed(self) -> list[str]:
        """Tests that did not come out as they must: a bug, whatever the losses say."""
        return [
            *(f"seed {result.seed}: causality is broken at positions {list(result.causality.broken)}"
              for result in self.results if not result.causality.holds),
            *(f"seed {result.seed}: the causality test does not find the mutant without a mask"
              for result in self.results if result.mutant.holds),
        ]  # fmt: skip

    def judge(self) -> None:
        """PolicyError where a test did not come out as it must."""
        if failed := self.failed():
            raise PolicyError("; ".join(failed))

    def text(self) -> str:
        """For the terminal."""
        size = f"{self.results[0].parameters:,} parameters, {self.config.steps:,} updates, {counted(len(self.results))}"
        lines = [
            f"{self.config.name}: {size} on {self.data['build']}@{self.data['version']}",
            f"loss in nats per target / share of right answers; by chance {math.log(SYMBOLS):.3f} / {tasks.CHANCE:.4f}",
            "",
            *_table(self.results, self.columns()),
            "",
            *_causality(self.results[-1]),
        ]
        for head, found in (("shown", self.shown()), ("not shown", self.not_shown()), ("FAILED", self.failed())):
            lines += ["", head, *map(_wrapped, found)] if found else []
        return "\n".join([*lines, "", f"in {self.folder}: {RESULT}, {PICTURE}"])


def counted(number: int) -> str:
    return "1 seed" if number == 1 else f"{number} seeds"


def _wrapped(sentence: str) -> str:
    return textwrap.fill(sentence, 100, initial_indent="  ", subsequent_indent="    ")


def spread(values: Sequence[float]) -> dict[str, float | None]:
    """Mean, standard deviation of a sample (null of one value), smallest and largest."""
    deviation = statistics.stdev(values) if len(values) > 1 else None
    return {"mean": statistics.fmean(values), "sd": deviation, "least": min(values), "most": max(values)}


def _table(results: Sequence[Result], columns: dict[str, list[float]]) -> list[str]:
    """A row a measure, a column a seed, then mean and standard deviation."""
    head = ["", *(f"seed {result.seed}" for result in results), "mean", "sd"]
    rows = [head, _row("loss before", columns["first"]), _row("loss after", columns["last"])]
    rows.append(_row("sample of train", columns["sample of train: share"]))
    for name, first in results[0].asked.items():
        if not first.of:
            rows.append([name, f"not asked: {first.note}"])
            continue
        rows.append(_pairs(name, columns[f"{name}: loss"], columns[f"{name}: share"]))
    wide = [max(len(row[place]) for row in rows if len(row) == len(head)) for place in range(len(head))]
    return ["  ".join(f"{cell:<{wide[0]}}" if place == 0 else f"{cell:>{wide[place]}}"
                      for place, cell in enumerate(row)).rstrip() for row in rows]  # fmt: skip


def _row(name: str, values: Sequence[float]) -> list[str]:
    found = spread(values)
    return [name, *(f"{value:.5g}" for value in [*values, found["mean"]]), _deviation(found["sd"])]


def _pairs(name: str, losses: Sequence[float], shares: Sequence[float]) -> list[str]:
    loss, share = spread(losses), spread(shares)
    cells = [f"{one:.3g} / {other:.3f}" for one, other in zip(losses, shares, strict=True)]
    middle = f"{loss['mean']:.3g} / {share['mean']:.3f}"
    return [name, *cells, middle, f"{_deviation(loss['sd'])} / {_deviation(share['sd'])}"]


def _deviation(value: float | None) -> str:
    return "-" if value is None else f"{value:.2g}"


def _causality(result: Result) -> list[str]:
    """Of the last seed; all seeds are in the file."""
    return [
        f"{name}: largest change of a logit before an edited position {found.earlier:.3g}, "
        f"from it on at least {found.later:.3g}; {'holds' if found.holds else 'broken'}"
        for name, found in (("causality", result.causality), ("mutant without a mask", result.mutant))
    ]
