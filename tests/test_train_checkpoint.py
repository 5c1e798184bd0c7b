"""A run that was stopped is, bit for bit, the run that was not; and a checkpoint that is not whole is none."""

import json
import os
import pickle
import re
import shutil
import signal
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
import training

from datapipe.errors import DataError, DriftError, IntegrityError
from datapipe.train import checkpoint, parallel, run
from datapipe.train.run import train

DROPOUT = training.GPT | {"dropout": 0.1}  # so that random numbers matter
PACKED: dict[str, Any] = {"build": "packed", "model": DROPOUT, "steps": 20,
          "data": {"global_batch_rows": 8, "microbatch_rows": 4},
          "optimizer": {"lr": 1e-2}, "checkpoint": {"every": 5}, "evaluate": {"every": 7}}  # fmt: skip


@pytest.fixture(autouse=True, scope="module")
def _one_thread():
    torch.set_num_threads(1)


@pytest.fixture(scope="module")
def builds(tmp_path_factory):
    return training.builds(tmp_path_factory.mktemp("train"))


class Killed(BaseException):
    """As if the process ended there."""


def killed(builds: Path, at: int, *settings: str, **keys) -> Path:
    """The folder of a run that ends after so many updates, whatever it was at."""

    def end(now):
        if now.done == at:
            raise Killed

    with pytest.raises(Killed):
        train(training.manifest(builds, *settings, **keys), progress=end)
    return builds.parent / "runs" / keys["name"]


def resumed(builds: Path, *settings: str, **keys) -> Path:
    return train(training.manifest(builds, *settings, **keys), resume=True).folder


# --- the same bits ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "settings",
    [
        ("schedule={kind: constant, warmup: 15}",),
        ("schedule={kind: cosine, warmup: 3, floor: 0.1}",),
        ("schedule={kind: wsd, warmup: 3, decay: 8}",),
        ("schedule={kind: cosine, unit: targets, warmup: 200}",),
        ("schedule={kind: wsd, unit: targets, warmup: 200, decay: 900}", "objective=per_document"),
        ("precision=bfloat16", "data.tail=pad", "data.global_batch_rows=12"),
        ("model.recompute=blocks", "loss_scale=1024", "non_finite.policy=skip", "data.microbatch_rows=null"),
    ],
    ids=["constant", "cosine", "wsd", "cosine-targets", "wsd-targets", "bfloat16", "recompute"],
)
def test_a_resumed_run_is_the_run(builds, settings):
    whole = train(training.manifest(builds, *settings, **PACKED, name="whole"))
    part = killed(builds, 13, *settings, **PACKED, name="part")  # from 10 on it is done again
    assert [path.name for path in sorted((part / "checkpoints").iterdir())] == ["step-00000005", "step-00000010"]
    facts = train(training.manifest(builds, *settings, **PACKED, name="part"), resume=True).facts
    tensors, rows = training.ends(part)
    expected, steps = training.ends(whole.folder)
    assert training.same(tensors, expected)
    assert rows == steps
    assert facts["resumed"][0] == {"step": 10, "level": "R3", "differs": []}
    assert facts["looks"] == whole.facts["looks"]
    for key in ("counters", "consumed", "seen", "loss", "epochs"):
        assert facts[key] == whole.facts[key], key
    for name in ("whole", "part"):
        shutil.rmtree(builds.parent / "runs" / name)


KILL = """
import os, signal, sys
sys.path.insert(0, {tests!r})
import training
from pathlib import Path
from typing import Any
from datapipe.train.run import train

def end(run):
    if run.done == 57:
        os.kill(os.getpid(), signal.SIGKILL)

train(training.manifest(Path({builds!r}), name="killed", steps=100, checkpoint={{"every": 50}}), progress=end)
"""


def test_100_is_50_and_kill_9_and_50(builds):
    code = KILL.format(tests=str(Path(__file__).parent), builds=str(builds))
    done = subprocess.run([sys.executable, "-c", code], env=training.environment(), check=False, timeout=300)
    assert done.returncode == -signal.SIGKILL
    keys = {"steps": 100, "checkpoint": {"every": 50}}
    whole = train(training.manifest(builds, name="unhurt", **keys))
    part = resumed(builds, name="killed", **keys)
    assert training.same(training.ends(part)[0], training.ends(whole.folder)[0])
    assert training.ends(part)[1] == training.ends(whole.folder)[1]
    assert whole.facts["loss"]["first_window"] == pytest.approx(2.8468, abs=1e-4)
    assert whole.facts["loss"]["sample_after"] == pytest.approx(0.00345, rel=0.05)


def test_twice_stopped_is_once_trained(builds):
    whole = train(training.manifest(builds, **PACKED, name="straight"))
    killed(builds, 7, **PACKED, name="twice")
    with pytest.raises(Killed):
        train(training.manifest(builds, **PACKED, name="twice"), resume=True, progress=_end_at(17))
    part = resumed(builds, **PACKED, name="twice")
    assert training.same(training.ends(part)[0], training.ends(whole.folder)[0])
    assert training.ends(part)[1] == training.ends(whole.folder)[1]


def _end_at(step):
    def end(now):
        if now.done == step:
            raise Killed

    return end


@pytest.fixture(scope="module")
def stopped(builds):
    """(a run that was never stopped, one that ended at 13 of 20) of the same manifest, to be copied."""
    keys = PACKED | {"schedule": {"kind": "cosine", "warmup": 3}}
    whole = train(training.manifest(builds, **keys, name="control"))
    return training.ends(whole.folder), killed(builds, 13, **keys, name="stopped"), keys


def _again(stopped, name, builds):
    """Resume a copy of the stopped run: whether it ends as the other."""
    (expected, steps), folder, keys = stopped
    copy = folder.with_name(name)
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(folder, copy)
    for facts in copy.glob("checkpoints/*/state.json"):
        facts.write_text(facts.read_text().replace('"name": "stopped"', f'"name": "{name}"'))
        digests = facts.with_name("digests.json")
        found = json.loads(digests.read_text())
        digests.write_text(json.dumps(found | {"state.json": checkpoint.file_sha256(facts)}))
    tensors, rows = training.ends(resumed(builds, **keys, name=name))
    return training.same(tensors, expected), rows == steps


def test_the_control_is_the_same(stopped, builds):
    assert _again(stopped, "right", builds) == (True, True)


def _fresh_moments(monkeypatch):
    restore = parallel.restore
    monkeypatch.setattr(run.parallel, "restore", lambda model, optimizer, saved: restore(model, None, saved))


def _schedule_reset(monkeypatch):
    monkeypatch.setattr("datapipe.train.step.Step._rate", _rate_from_nothing)


def _rate_from_nothing(self, targets):
    from datapipe.train.schedule import factor

    lr = self.config.optimizer.lr * factor(self.config.schedule, self.counters.steps - 10, 1, self.whole)
    for group in self.optimizer.param_groups:
        group["lr"] = lr
    return lr


def _random_dropped(monkeypatch):
    monkeypatch.setattr(run.checkpoint, "restore_random", lambda states, rank: True)


def _off_by_one(monkeypatch):
    load = run.Loader.load_state_dict
    monkeypatch.setattr(
        run.Loader, "load_state_dict", lambda self, state: load(self, state | {"batch": state["batch"] + 1})
    )


@pytest.mark.parametrize("harm", [_fresh_moments, _schedule_reset, _random_dropped, _off_by_one])
def test_negative_controls(stopped, builds, monkeypatch, harm):
    harm(monkeypatch)
    assert _again(stopped, f"wrong{harm.__name__}".replace("_", "-"), builds) == (False, False)


# --- levels ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("level, moments, position, random", [
    ("R0", False, (0, 0), False),
    ("R1", True, (0, 0), False),
    ("R2", True, (1, 2), False),
    ("R3", True, (1, 2), True),
])  # fmt: skip
def test_levels(builds, monkeypatch, level, moments, position, random):
    keys = PACKED | {"checkpoint": {"every": 5, "level": level}, "name": f"level-{level.lower()}"}
    folder = killed(builds, 12, **keys)
    saved = checkpoint.load(folder)
    assert bool(saved.state["exp_avg"]) == moments
    seen = {}
    resume = run._resume

    def watch(now):
        resume(now)
        seen.update(
            weights=parallel.state(now.model, now.step.optimizer), position=now.loader.position, done=now.done,
            random=torch.get_rng_state().numpy().tobytes().hex() == saved.facts["random"][0]["torch"], spans=now.spans,
        )  # fmt: skip

    monkeypatch.setattr(run, "_resume", watch)
    report = train(training.manifest(builds, **keys), resume=True)
    assert training.same(seen["weights"]["weights"], saved.state["weights"])
    assert training.same(seen["weights"]["exp_avg"], saved.state["exp_avg"])
    assert (seen["position"], seen["random"], seen["done"]) == (position, random, 10)
    assert report.facts["resumed"] == [{"step": 10, "level": level, "differs": []}]
    assert report.facts["counters"]["steps"] == 20
    spans = [{"from": [0, 0], "to": [1, 2]}, {"from": [0, 0], "to": [1, 2]}]
    assert report.facts["seen"] == (spans if level < "R2" else [{"from": [0, 0], "to": [2, 4]}])


def test_other_rounding_ends_r3_and_says_so(builds):
    keys = PACKED | {"name": "rounding"}
    killed(builds, 12, **keys)
    facts = train(training.manifest(builds, "data.microbatch_rows=2", **keys), resume=True).facts
    assert facts["resumed"] == [
        {"step": 10, "level": "R2", "differs": ["data.microbatch_rows: 4 then, 2 now"]},
    ]  # fmt: skip


# --- what is not whole -----------------------------------------------------------------------------------------


def saved(step: int) -> checkpoint.Saved:
    one = training.step(model=training.GPT)
    one.run([training.uneven()])
    facts = {"level": "R3", "step": step, "random": [checkpoint.random_state()]}
    return checkpoint.Saved(parallel.state(one.model, one.optimizer), facts, run.report.Metrics().table())


FILES = (*checkpoint.FILES, checkpoint.DIGESTS)


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("place", [0.0, 0.5, 0.999])
def test_a_flipped_byte(tmp_path, name, place):
    checkpoint.save(tmp_path, saved(1), 2)
    path = checkpoint.save(tmp_path, saved(2), 2) / name
    data = bytearray(path.read_bytes())
    data[int(place * len(data))] ^= 1
    path.write_bytes(data)
    told = "moments|weights|metrics|state|digests" if name == checkpoint.DIGESTS else name
    with pytest.raises(IntegrityError, match=told):
        checkpoint.read(path.parent)
    with pytest.warns(checkpoint.DamagedCheckpointWarning, match=f"({told}).* looking for an older one"):
        assert checkpoint.load(tmp_path).facts["step"] == 1


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("harm", [lambda path: path.unlink(), lambda path: os.truncate(path, 10)], ids=["gone", "cut"])
def test_a_missing_or_truncated_file(tmp_path, name, harm):
    checkpoint.save(tmp_path, saved(1), 2)
    harm(checkpoint.save(tmp_path, saved(2), 2) / name)
    with pytest.warns(checkpoint.DamagedCheckpointWarning):
        assert checkpoint.load(tmp_path).facts["step"] == 1


@pytest.mark.parametrize("digests", ["[]", "null", "{}", '{"../../x": "1"}'])
def test_digests_of_something_else(tmp_path, digests):
    (checkpoint.save(tmp_path, saved(1), 2) / checkpoint.DIGESTS).write_text(digests)
    with pytest.warns(checkpoint.DamagedCheckpointWarning), pytest.raises(DataError, match="none of its 1 checkpoints"):
        checkpoint.load(tmp_path)


def test_no_checkpoint_at_all(tmp_path):
    with pytest.raises(DataError, match=r"it has no checkpoint yet; start again without --resume$"):
        checkpoint.load(tmp_path)


class Place:
    """Ends the process, as far as files go, at the n-th call of what a save does; half: half of the bytes are there."""

    dies = False

    def __init__(self, monkeypatch, last: int, half: bool = False):
        self.calls, self.last, self.half = 0, last, half
        write, rename, sync = checkpoint._write, Path.rename, checkpoint.fsync_folder

        def writing(path, data):
            self.count(lambda: write(path, data[: len(data) // 2]))
            return write(path, data)

        monkeypatch.setattr(checkpoint, "_write", writing)
        monkeypatch.setattr(Path, "rename", lambda path, to: (self.count(lambda: None), rename(path, to)))
        monkeypatch.setattr(checkpoint, "fsync_folder", lambda path: (self.count(lambda: None), sync(path)))

    def count(self, half):
        self.calls += 1
        if self.calls == self.last:
            if self.half:
                half()
            if self.dies:
                os.kill(os.getpid(), signal.SIGKILL)
            raise Killed


@pytest.mark.parametrize("half", [False, True])
@pytest.mark.parametrize("at", range(1, 10))
def test_killed_at_every_point_of_a_save(tmp_path, monkeypatch, at, half):
    checkpoint.save(tmp_path, saved(1), 1)
    with monkeypatch.context() as patch:
        place = Place(patch, at, half)
        if at < 9:
            with pytest.raises(Killed):
                checkpoint.save(tmp_path, saved(2), 1)
        else:
            checkpoint.save(tmp_path, saved(2), 1)
            assert place.calls == 8, "five files, the folder, its name, the folder above"
    expected = 1 if at < 8 else 2
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert checkpoint.load(tmp_path).facts["step"] == expected
    checkpoint.save(tmp_path, saved(3), 1)
    assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == ["step-00000003"], "nothing is left behind"


@pytest.mark.parametrize("at", range(1, 9))
def test_sigkill_at_every_point_of_a_save(tmp_path, monkeypatch, at):
    """The process itself ends, in the middle of a write, and no line of ours runs any more."""
    checkpoint.save(tmp_path, saved(1), 1)
    if (child := os.fork()) == 0:
        try:
            place = Place(monkeypatch, at, half=True)
            place.dies = True
            checkpoint.save(tmp_path, saved(2), 1)
        finally:
            os._exit(0)  # whatever happens: no second pytest goes on from here
    assert os.WTERMSIG(os.waitpid(child, 0)[1]) == signal.SIGKILL
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert checkpoint.load(tmp_path).facts["step"] == (2 if at == 8 else 1)
    checkpoint.save(tmp_path, saved(3), 1)
    assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == ["step-00000003"], "nothing is left behind"


def test_the_newest_stay_and_damaged_later_ones_do_not_take_their_place(tmp_path):
    for step in (10, 20, 30):
        checkpoint.save(tmp_path, saved(step), 2)
    names = sorted(path.name for path in (tmp_path / "checkpoints").iterdir())
    assert names == ["step-00000020", "step-00000030"]
    (tmp_path / "checkpoints/step-00000030" / checkpoint.WEIGHTS).write_bytes(b"damaged")
    with pytest.warns(checkpoint.DamagedCheckpointWarning):
        assert checkpoint.load(tmp_path).facts["step"] == 20
    checkpoint.save(tmp_path, saved(25), 1)
    assert checkpoint.load(tmp_path).facts["step"] == 25


def test_nothing_is_unpickled(tmp_path, monkeypatch):
    checkpoint.save(tmp_path, saved(1), 1)

    def never(*_: object, **__: object) -> None:
        raise AssertionError("pickle")

    for place, name in [(pickle, "load"), (pickle, "loads"), (pickle, "Unpickler"), (torch, "load")]:
        monkeypatch.setattr(place, name, never)
    assert checkpoint.load(tmp_path).facts["step"] == 1
    for path in Path(checkpoint.__file__).parent.glob("*.py"):
        found = re.findall(r"import pickle|(?<!safetensors\.)torch\.(?:load|save)\(|_object\(", path.read_text("utf-8"))
        assert not found, path.name


def test_what_a_checkpoint_says(builds):
    folder = killed(builds, 12, **PACKED, name="facts")
    facts = checkpoint.load(folder).facts
    assert {"level", "step", "config", "dataset_id", "build", "objective", "counters", "scale", "loader", "seen",
            "looks", "software", "random"} <= facts.keys()  # fmt: skip
    assert facts["objective"] == "per_token"
    assert facts["seen"] == [{"from": [0, 0], "to": [1, 2]}], "8 batches an epoch, 10 were seen"
    assert set(facts["software"]) == {"datapipe", "torch", "numpy", "python", "machine", "threads", "ranks"}
    assert len(facts["random"]) == 1


# --- what may not change ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("setting, words", [
    ("optimizer.lr=0.5", "optimizer.lr: 0.01 in the checkpoint, 0.5 now"),
    ("seed=18", "seed: 17 in the checkpoint, 18 now"),
    ("data.order=sequential", "data.order: block-v1 in the checkpoint, sequential now"),
    ("model.width=32", "model.width: 16 in the checkpoint, 32 now"),
    ("objective=per_document", "objective: per_token in the checkpoint, per_document now"),
    ("precision=bfloat16", "precision: float32 in the checkpoint, bfloat16 now"),
])  # fmt: skip
def test_another_config_is_refused_by_name(builds, setting, words):
    keys = PACKED | {"name": "refused"}
    if not (builds.parent / "runs/refused").exists():
        killed(builds, 6, **keys)
    with pytest.raises(DriftError, match="another name") as caught:
        train(training.manifest(builds, setting, **keys), resume=True)
    assert words in str(caught.value)
    assert caught.value.status == 5


def test_another_data_set_is_refused_by_name(builds):
    killed(builds, 6, **PACKED, name="data")
    with pytest.raises(DriftError, match=r"trained on packed@v0001-\w+, dataset_id \w{12}, and .*cyclic16") as caught:
        train(training.manifest(builds, **PACKED | {"build": "cyclic16"}, name="data"), resume=True)
    assert caught.value.status == 5


def test_a_longer_run_goes_on(builds):
    keys = PACKED | {"name": "longer"}
    train(training.manifest(builds, **keys))
    facts = train(training.manifest(builds, "steps=25", **keys), resume=True).facts
    assert facts["counters"]["steps"] == 25
    assert facts["resumed"] == [{"step": 20, "level": "R3", "differs": []}]
