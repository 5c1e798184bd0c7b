"""Two ranks are one: the same loss, gradients and weights; and a checkpoint of either goes on in the other."""

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import golden
import numpy as np
import pytest
import ranked
import torch
import training

from datapipe.errors import MachineError
from datapipe.train import checkpoint, parallel
from datapipe.train.run import train

pytestmark = pytest.mark.slow
PACKED: dict[str, Any] = {"build": "packed", "model": training.GPT, "steps": 12,
          "data": {"global_batch_rows": 8, "microbatch_rows": 2},
          "optimizer": {"lr": 1e-2}, "checkpoint": {"every": 4}, "evaluate": {"every": 6}}  # fmt: skip


@pytest.fixture(autouse=True, scope="module")
def _one_thread():
    torch.set_num_threads(1)


@pytest.fixture(scope="module")
def builds(tmp_path_factory):
    return training.packed(tmp_path_factory.mktemp("train"))


@pytest.fixture(scope="module")
def taken(tmp_path_factory):
    return ranked.run("taken", tmp_path_factory.mktemp("ranks"))


@pytest.mark.parametrize("objective", ["per_token", "per_document"])
@pytest.mark.parametrize("kind", ranked.KINDS)
def test_two_ranks_are_one(taken, kind, objective):
    one = training.step(f"objective={objective}", "clip=0.5", double=True)
    outcomes = [one.run(window) for window in ranked.windows(0, 1)]
    for rank in taken:
        found = rank[f"{kind} {objective}"]
        assert found["loss"][:2] == pytest.approx([each.loss for each in outcomes[:2]], rel=1e-12)
        assert found["norm"][:2] == pytest.approx([each.norm for each in outcomes[:2]], rel=1e-11)
        assert np.isnan(found["loss"][2])
        assert found["targets"] == [104, 104, 0]
        assert (found["counters"]["steps"], found["counters"]["empty"], found["counters"]["rows"]) == (2, 1, 32)
        for name, tensor in one.model.named_parameters():
            assert np.array(found["weights"][name]) == pytest.approx(tensor.detach().numpy(), rel=1e-9, abs=1e-12), name


@pytest.mark.parametrize("kind", ranked.KINDS)
def test_the_order_of_events_on_each_rank(taken, kind):
    for rank in taken:
        micro = [3, 4]
        expected = [event for number in micro for event in [*training.EVENTS[:4] * number, *training.EVENTS[4:]]]
        assert rank[f"{kind} per_token"]["events"] == [*expected, "counters"]


def test_all_ranks_agree_on_what_is_not_finite(tmp_path):
    one, two = ranked.run("poisoned", tmp_path)
    for kind in ranked.KINDS:
        assert one[kind] == two[kind]
        results = one[kind]["results"]
        assert results[:2] == [True, False]
        assert "after 1 skipped steps in a row" in results[2]
        assert (one[kind]["scale"], one[kind]["same"], one[kind]["skipped"]) == (512, True, 1)


def test_what_ranks_tell_each_other(tmp_path):
    one, two = ranked.run("gathered", tmp_path)
    assert one == two
    assert [each["rank"] for each in one["gather"]] == [0, 1]
    assert [len(each["long"]) for each in one["gather"]] == [1, 501]
    assert (one["sum"], one["maximum"]) == ([3.0, 1.0], 1.0)


# --- through the command line ----------------------------------------------------------------------------------


def started(tmp_path, builds, *more, **keys):
    file = training.written(tmp_path / f"{keys['name']}.yaml", builds, **PACKED | keys)
    return training.datapipe("train", file, *more)


def close(one, two):
    """Weights are: moments of what has next to no gradient are rounding, and Adam makes steps of it."""
    names = [name for name in one if not name.startswith(("exp", "step"))]
    return all(torch.allclose(one[name], two[name], rtol=1e-3, atol=2e-4) for name in names)


@pytest.mark.parametrize("kind", ranked.KINDS)
def test_ranks_of_the_command_line(tmp_path, builds, kind):
    """One rank and two; two then two, bit for bit; two then one, and one then two."""
    runs = builds.parent / "runs"
    single = training.ends(train(training.manifest(builds, **PACKED, name=f"{kind}-one")).folder)
    keys = {"parallel": kind}
    done = started(tmp_path, builds, "--ranks", 2, "--json", **keys, name=f"{kind}-two")
    assert done.returncode == 0, done.stderr
    facts = json.loads(done.stdout)
    assert facts["software"]["ranks"] == 2
    assert facts["consumed"] == json.loads((runs / f"{kind}-one/run.json").read_text())["consumed"]
    double = training.ends(runs / f"{kind}-two")
    assert close(double[0], single[0])
    assert [dict(row)["targets"] for row in double[1]] == [dict(row)["targets"] for row in single[1]]
    losses = [[dict(row)["loss"] for row in rows] for rows in (double[1], single[1])]
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)
    assert double[0].keys() == single[0].keys(), "moments of all parameters"
    halves = {2: runs / f"{kind}-half-two", 1: runs / f"{kind}-half-one"}
    assert started(tmp_path, builds, "--ranks", 2, **keys, steps=8, name=halves[2].name).returncode == 0
    train(training.manifest(builds, **PACKED | keys | {"steps": 8}, name=halves[1].name))
    for first, then in ((2, 2), (2, 1), (1, 2)):
        folder = tmp_path / f"{first}-{then}" / halves[first].name
        shutil.copytree(halves[first], folder)
        more = {**keys, "name": folder.name, "output": str(folder.parent)}
        if then == 2:
            done = started(tmp_path, builds, "--resume", "--ranks", 2, **more)
            assert done.returncode == 0, done.stderr
        else:
            train(training.manifest(builds, **PACKED | more), resume=True)
        (resumed,) = json.loads((folder / "run.json").read_text())["resumed"]
        assert resumed["level"] == ("R3" if first == then else "R2")
        found = training.ends(folder)
        assert close(found[0], single[0])
        if first == then:
            assert training.same(found[0], double[0])
            assert found[1] == double[1]
        saved = checkpoint.load(folder)
        assert saved.state["weights"]["token.weight"].shape == (31, 16), "whole tensors, whoever saved them"
        assert len(saved.facts["random"]) == then


HELD = """
import os, pathlib, sys, time
if rank := os.environ.get("RANK"):
    import datapipe.cli.train

    told = pathlib.Path(__file__).parent
    (told / f"pid-{rank}").write_text(str(os.getpid()))

    def hold(run):
        if rank == "1" and run.done == 25:
            (told / "held").touch()
            time.sleep(600)

    sys.modules["datapipe.cli.train"]._progress = lambda: hold
"""


def test_kill_9_of_a_rank(tmp_path, builds):
    """The other one, which waits for it, ends, too, and says why; then the run goes on, bit for bit."""
    whole = started(tmp_path, builds, "--ranks", 2, steps=60, name="unhurt", checkpoint={"every": 10})
    assert whole.returncode == 0, whole.stderr
    file = training.written(
        tmp_path / "hurt.yaml", builds, **PACKED | {"steps": 60, "name": "hurt", "checkpoint": {"every": 10}}
    )
    command = [sys.executable, "-m", "datapipe", "train", str(file), "--ranks", "2"]
    # held by Python's own hook, for a run of 60 steps may be over before anybody looks
    (tmp_path / "sitecustomize.py").write_text(HELD)
    environment = training.environment(PYTHONPATH=os.pathsep.join([str(tmp_path), str(golden.CHECKOUT)]))
    with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL) as process:
        try:
            training.wait((tmp_path / "held").exists)
            ranks = [int((tmp_path / f"pid-{rank}").read_text()) for rank in (0, 1)]
            os.kill(ranks[1], signal.SIGKILL)
            said = process.communicate(timeout=240)[1].decode()
        finally:
            process.terminate()  # which ends its ranks; nothing where it has ended
    assert process.returncode == 128 + signal.SIGKILL, said
    assert "rank 1 ended with status 137" in said
    assert "this is a bug" not in said
    assert not any(Path(f"/proc/{pid}").exists() for pid in ranks)
    done = training.datapipe("train", file, "--ranks", 2, "--resume")
    assert done.returncode == 0, done.stderr
    one, two = (training.ends(builds.parent / "runs" / name) for name in ("hurt", "unhurt"))
    assert training.same(one[0], two[0])
    assert one[1] == two[1]


def test_torchrun(tmp_path, builds):
    """The launcher of torch itself, on loopback; its store listens at a port that is its own from the start."""
    file = training.written(tmp_path / "torchrun.yaml", builds, **PACKED | {"name": "torchrun"})
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2", "--standalone",
               "--local-addr=127.0.0.1", "-m", "datapipe", "train", str(file), "--json"]  # fmt: skip
    done = subprocess.run(
        command,
        env=training.environment(GLOO_SOCKET_IFNAME="lo"),
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr
    facts = json.loads(done.stdout)
    assert facts["software"]["ranks"] == 2
    assert facts["counters"]["steps"] == 12


@pytest.mark.parametrize("settings, words, status", [
    (("data={global_batch_rows: 9}",), "9 global_batch_rows cannot be dealt to 2 ranks", 2),
    (("data={global_batch_rows: 8, microbatch_rows: 8}",), "in microbatches of 8", 2),
])  # fmt: skip
def test_what_ranks_cannot_share(tmp_path, builds, settings, words, status):
    done = training.datapipe("train", training.written(tmp_path / "x.yaml", builds, *settings, **PACKED), "--ranks", 2)
    assert done.returncode == status
    assert done.stderr.count(words) == 1, done.stderr


def test_another_rank_is_gone_before_this_one_has_joined(monkeypatch):
    """Its own error is to be told, and this one's, which is none of ours, only says what it lost (a race in life)."""

    def closed(*_: object, **__: object) -> None:
        raise RuntimeError("Gloo connectFullMesh failed with [pair.cc:553] Connection closed by peer\nmore")

    monkeypatch.setattr(torch.distributed, "init_process_group", closed)
    for name, value in {"WORLD_SIZE": "2", "RANK": "0", parallel.STORE: "store"}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(MachineError, match=r"rank 0 of 2 lost the others: .* closed by peer; what they say"):
        parallel.start("ddp")


def test_an_environment_that_makes_no_sense(monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "two")
    with pytest.raises(Exception, match="WORLD_SIZE is 'two'"):
        parallel.start("ddp")
