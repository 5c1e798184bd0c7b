"""
What several ranks do, for tests/test_train_ranks.py: `python ranked.py CASE OUT` is one of them.

Ranks find each other as those of `datapipe train --ranks` do, by a file.
"""

import json
import math
import os
import subprocess
import sys
from pathlib import Path

import torch
import training

from datapipe.errors import DataError
from datapipe.train import parallel
from datapipe.train.step import Step

KINDS = ("ddp", "fsdp")


def run(case: str, folder: Path, world: int = 2) -> list[dict]:
    """What each rank of a case found."""
    environment = training.environment(
        WORLD_SIZE=str(world), GLOO_SOCKET_IFNAME="lo", **{parallel.STORE: str(folder / "s")}
    )
    started = [
        subprocess.Popen(
            [sys.executable, __file__, case, str(folder / f"{rank}.json")],
            env=environment | {"RANK": str(rank), "LOCAL_RANK": str(rank)}, stderr=subprocess.PIPE,
        )
        for rank in range(world)
    ]  # fmt: skip
    try:
        said = [process.communicate(timeout=240)[1].decode() for process in started]
    finally:
        for process in started:
            process.kill()
    assert [process.returncode for process in started] == [0] * world, "\n".join(said)
    return [json.loads((folder / f"{rank}.json").read_text()) for rank in range(world)]


def group(kind: str, joined: list[parallel.Group]) -> parallel.Group:
    """A group of that kind; the process joins once."""
    if not joined:
        joined.append(parallel.DDP())
    made = parallel.DDP.__new__(parallel.DDP if kind == "ddp" else parallel.FSDP)
    made.rank, made.world = joined[0].rank, joined[0].world
    return made


def step(
    kind: str, joined: list[parallel.Group], *settings: str, double: bool = True, tell=lambda event, facts: None, **keys
):
    one = training.step(*settings, double=double, **keys)
    ours = group(kind, joined)
    wrapped = ours.wrap(one.model)
    made = Step(wrapped, training.adamw(one.model, one.config.optimizer), one.config, ours, one.whole, tell)
    return one.model, made


def taken(joined: list[parallel.Group]) -> dict:
    """Three updates of each kind on this rank's half of uneven rows; the first window has an empty microbatch."""
    found = {}
    for kind in KINDS:
        for objective in ("per_token", "per_document"):
            told = []
            model, one = step(
                kind, joined, f"objective={objective}", "clip=0.5", tell=lambda event, facts, t=told: t.append(event)
            )
            outcomes = [one.run(window) for window in windows(joined[0].rank, joined[0].world)]
            weights = {
                name: tensor.tolist() for name, tensor in parallel.state(model, one.optimizer)["weights"].items()
            }
            found[f"{kind} {objective}"] = {
                "loss": [each.loss for each in outcomes], "norm": [each.norm for each in outcomes],
                "targets": [each.targets for each in outcomes], "weights": weights, "events": told,
                "counters": one.counters.as_json(),
            }  # fmt: skip
    return found


def windows(rank: int, world: int) -> list[list]:
    """Row r goes to rank r % world.  With two ranks one has only rows of one target in its first microbatch."""
    whole = training.uneven()
    halves = [training.Batch(whole.rows.take(torch.arange(rank, 16, world).numpy())) for _ in range(2)]
    nothing = training.batch([[], []], 13)
    first = [nothing, *halves[0].split(4)] if rank == 0 else [*halves[0].split(4), nothing]
    return [first, halves[1].split(2), [nothing]]


def poisoned(joined: list[parallel.Group]) -> dict:
    """A loss that is not finite on rank 1 alone: every rank leaves the step out, and all raise at the same one."""
    found = {}
    for kind in KINDS:
        model, one = step(kind, joined, "non_finite={policy: skip, most: 1}", "loss_scale=1024", double=False)
        window = [training.uneven()]
        results: list[object] = [one.run(window).taken]
        before = parallel.state(model, one.optimizer)["weights"]
        forward = one.model.forward
        if joined[0].rank == 1:
            one.model.forward = lambda *inputs, forward=forward: forward(*inputs) * math.nan
        results.append(one.run(window).taken)
        scale, same = one.scale.now, training.same(before, parallel.state(model, one.optimizer)["weights"])
        try:
            one.run(window)
        except DataError as error:
            results.append(str(error))
        found[kind] = {"results": results, "scale": scale, "same": same, "skipped": one.counters.skipped}
    return found


def gathered(joined: list[parallel.Group]) -> dict:
    ours = group("ddp", joined)
    return {"gather": ours.gather({"rank": ours.rank, "long": "x" * (1 + 500 * ours.rank)}),
            "sum": ours.sum([1.5, ours.rank]), "maximum": ours.maximum(ours.rank)}  # fmt: skip


if __name__ == "__main__":
    torch.set_num_threads(1)
    joined: list[parallel.Group] = [parallel.DDP()]
    assert int(os.environ["RANK"]) == joined[0].rank
    Path(sys.argv[2]).write_text(
        json.dumps({"taken": taken, "poisoned": poisoned, "gathered": gathered}[sys.argv[1]](joined))
    )
    joined[0].close()
