"""datapipe train"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from datapipe.cli.command import PATH, Command, Several, json_option
from datapipe.cli.text import say

if TYPE_CHECKING:
    from datapipe.train.run import Run


@click.command(cls=Command)
@click.argument("what", metavar="FILE|BUILD")
@click.option("--resume", is_flag=True, help="Go on with the run of that name, from its newest good checkpoint.")
@click.option("--set", "settings", cls=Several, metavar="K=V", help="Replace values below train: optimizer.lr=0.001.")
@click.option("--steps", type=click.IntRange(1), metavar="N", help="The same as --set steps=N.")
@click.option("--ranks", type=click.IntRange(1, 64), metavar="N", help="Start N processes here, as torchrun would.")
@click.option("--experiment", is_flag=True, help="The cyclic task with several seeds, by stratum, and its controls.")
@click.option("--seeds", type=click.IntRange(1, 100), default=5, show_default=True, help="With --experiment.")
@click.option("--diagnose", is_flag=True, help="The loss does not fall: look for the cause, and train nothing.")
@click.option("--output", type=PATH, help="Where runs lie, in place of the manifest's `output`.")
@json_option
def train(what: str, **flags: Any) -> None:
    """
    Train the bundled small language model on a build, and account for every step.

    FILE is a train manifest; a BUILD (name, name@3, a path) is trained on with defaults that fit it.

    Three words are kept apart.  Recompute: a block's activations are computed again in the backward pass
    (model.recompute).  Checkpoint: the saved state of a training run.  Resume: --resume goes on from a checkpoint; a
    build resumes by being started again.
    """
    _torch()
    if flags["experiment"] or flags["diagnose"]:
        _alone(flags)
    if flags["ranks"] and flags["ranks"] > 1:
        _ranks(flags["ranks"])
        return
    steps = [f"steps={flags['steps']}"] if flags["steps"] else []
    manifest = _manifest(what, [*flags["settings"], *steps], flags["output"])
    if flags["experiment"]:
        _experiment(manifest, flags)
    elif flags["diagnose"]:
        _diagnose(manifest, flags)
    else:
        _train(manifest, flags)


def _torch() -> None:
    from importlib.util import find_spec

    from datapipe.errors import ManifestError

    missing = [name for name in ("torch", "safetensors", "matplotlib") if find_spec(name) is None]
    if missing:
        raise ManifestError(
            f"training needs {', '.join(missing)}: pip install 'datapipe[train]'; no other command does"
        )


def _alone(flags: dict[str, Any]) -> None:
    """An experiment and a diagnosis are one process's work, and begin from nothing."""
    import os

    from datapipe.errors import ManifestError

    chosen = [f"--{name}" for name in ("experiment", "diagnose", "resume") if flags[name]]
    if len(chosen) > 1:
        raise ManifestError(f"{' and '.join(chosen)} do not go together; choose one")
    if (flags["ranks"] or 1) > 1 or os.environ.get("WORLD_SIZE", "1") != "1":
        raise ManifestError(f"{chosen[0]} runs in one process; leave --ranks and torchrun out")


def _ranks(number: int) -> None:
    """The same command line in each rank, without --ranks."""
    import sys

    from datapipe.train import ranks

    kept, skip = [], False
    for argument in sys.argv[1:]:
        if skip or argument == "--ranks":
            skip = not skip
        elif not argument.startswith("--ranks="):
            kept.append(argument)
    click.get_current_context().exit(ranks.run(kept, number))


def _manifest(what: str, settings: list[str], output: Path | None) -> Any:
    from datapipe import feed
    from datapipe.train import config

    path = Path(what).expanduser()
    if path.suffix in (".yaml", ".yml"):
        manifest = config.load(path, settings)
    else:
        with feed.open(what, verify="size") as data:
            manifest = config.fitting(what, data.train.rows, settings)
    return manifest.into(output) if output else manifest


def _train(manifest: Any, flags: dict[str, Any]) -> None:
    from datapipe.cli import when_stopped
    from datapipe.train.run import train as run

    when_stopped("stopped; --resume goes on from the newest checkpoint, if there is one")
    report = run(manifest, resume=flags["resume"], progress=_progress())
    if report.rank == 0:
        say(json.dumps(report.facts) if flags["as_json"] else report.text())


def _experiment(manifest: Any, flags: dict[str, Any]) -> None:
    from datapipe.train.experiment import experiment

    found = experiment(manifest, flags["seeds"], lambda line: say(line, err=True))
    say(json.dumps(found.as_json()) if flags["as_json"] else found.text())
    found.judge()


def _diagnose(manifest: Any, flags: dict[str, Any]) -> None:
    """Tells what was found, then fails by the first check that does (status 6)."""
    from datapipe.train.diagnose import diagnose

    found = diagnose(manifest, lambda line: say(line, err=flags["as_json"]))
    if flags["as_json"]:
        say(json.dumps(found.as_json()))
    found.judge()


def _progress() -> "Callable[[Run], None]":
    """A line on stderr at every look, and every ten seconds."""
    import time

    told = {"looks": 0, "at": time.monotonic()}

    def show(run: "Run") -> None:
        if run.parallel.rank:
            return
        now = time.monotonic()
        looked = len(run.looks) > told["looks"]
        if looked or now - told["at"] > 10:
            told["looks"], told["at"] = len(run.looks), now
            say(run.line(looked), err=True)

    return show
