"""A run as a whole: what it leaves, what it refuses, and that looking at it changes nothing."""

import json
import shutil
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import torch
import training

from datapipe.build_manifest import consumers
from datapipe.errors import DataError, ManifestError, PolicyError
from datapipe.train import checkpoint, evaluate, loss, picture, report
from datapipe.train.run import LOCK, train

PACKED: dict[str, Any] = {"build": "packed", "model": training.GPT | {"dropout": 0.1}, "steps": 6,
          "data": {"global_batch_rows": 8, "microbatch_rows": 4}, "optimizer": {"lr": 1e-2}}  # fmt: skip


@pytest.fixture(autouse=True, scope="module")
def _one_thread():
    torch.set_num_threads(1)


@pytest.fixture(scope="module")
def builds(tmp_path_factory):
    return training.builds(tmp_path_factory.mktemp("train"))


@pytest.fixture(scope="module")
def packed(builds):
    keys = PACKED | {"steps": 20, "evaluate": {"every": 10}, "checkpoint": {"every": 5, "keep": 2}, "name": "packed"}
    return train(training.manifest(builds, **keys))


# --- what it leaves --------------------------------------------------------------------------------------------


def test_what_is_in_the_folder(packed):
    assert {path.name for path in packed.folder.iterdir()} == {
        "run.json",
        "metrics.parquet",
        "curve.png",
        "checkpoints",
        LOCK,
    }
    assert (packed.folder / "curve.png").read_bytes().startswith(b"\x89PNG")
    facts = json.loads((packed.folder / "run.json").read_text())
    assert facts == packed.facts
    assert {"config", "data", "model", "objective", "counters", "consumed", "seen", "loss", "looks", "course",
            "software", "not_shown"} <= facts.keys()  # fmt: skip
    assert facts["config"]["optimizer"]["lr"] == 1e-2
    assert facts["model"]["parameters"] == sum(line["numel"] for line in facts["model"]["table"])
    assert {line["group"] for line in facts["model"]["table"]} == {"decayed", "kept"}
    assert facts["data"]["effective_tokens"] == 994
    assert facts["seen"] == [{"from": [0, 0], "to": [2, 4]}]
    assert facts["epochs"] == facts["consumed"]["targets"] / 994 == facts["counters"]["targets"] / 994
    assert facts["counters"]["tokens"] == facts["consumed"]["tokens"]


def test_the_metrics(packed):
    table = pq.read_table(packed.folder / "metrics.parquet")
    assert table.schema == report.SCHEMA
    rows = table.to_pylist()
    assert [row["step"] for row in rows] == list(range(1, 21))
    assert sum(row["targets"] for row in rows) == packed.facts["counters"]["targets"]
    assert rows[-1]["loss"] < rows[0]["loss"] - 0.5
    assert all(row["taken"] and row["seconds"] > 0 and row["norm"] > 0 for row in rows)


def test_looks_are_sums_over_all_targets(packed, builds):
    first, _, last = packed.facts["looks"]
    import datapipe

    with datapipe.open("packed", output=builds) as data:
        assert last["validation"]["targets"] == data.made.splits.validation.tokens.targets
    assert last["validation"]["loss"] < first["validation"]["loss"]
    assert set(last["sources"]) == {"a", "b"}
    for key in ("nats", "targets"):
        assert sum(one[key] for one in last["sources"].values()) == pytest.approx(last["validation"][key])
    assert all(last["sources"][name]["loss"] < first["sources"][name]["loss"] for name in "ab")


def test_the_report_in_words(packed):
    text = packed.text()
    for words in ("4,912 parameters, 20 updates on packed@v0001", "targets of 994 effective tokens", "targets a second",
                  "norm of the gradient", "learning rate 0.01", "loss of validation", "a: ", "nothing about texts",
                  "⠀"):  # fmt: skip
        assert words in text, words
    assert max(len(line) for line in text.splitlines() if "packed" not in line) < 140


def test_runs_and_checkpoints_are_consumers(packed, builds):
    build = builds / "packed" / packed.facts["data"]["version"]
    (record,) = [one for one in consumers.read(build, "run") if one["path"] == str(packed.folder)]
    assert record["consumed"]["targets"] == packed.facts["counters"]["targets"]
    assert record["notes"] == {"steps": 20, "seen": [{"from": [0, 0], "to": [2, 4]}]}
    ours = [one for one in consumers.read(build, "checkpoint") if one["path"].startswith(str(packed.folder))]
    names = sorted(Path(one["path"]).name for one in ours)
    assert names == ["step-00000015", "step-00000020"], "those that were swept have no record"
    assert sorted(one["notes"]["step"] for one in ours) == [15, 20]


def test_looking_changes_nothing(builds):
    """Neither random numbers nor the loader: with a look at every step, and with none, the same bits."""
    folders = [
        train(training.manifest(builds, **PACKED, evaluate={"every": every}, name=f"look-{every or 0}")).folder
        for every in (None, 1)
    ]
    one, two = map(training.ends, folders)
    assert training.same(one[0], two[0])
    assert one[1] == two[1]


def test_a_look_moves_no_random_numbers(builds):
    seen = []

    def compare(run):
        if run.done == 2 and not seen:
            before = checkpoint.random_state(), run.loader.state_dict()
            evaluate.look(run)
            after = checkpoint.random_state(), run.loader.state_dict()
            seen.append(before == after)
            assert run.step.model.training

    train(training.manifest(builds, **PACKED, name="still"), progress=compare)
    assert seen == [True]


def test_a_seed_is_a_run(builds):
    ends = {}
    for name, seed in (("seed-a", 5), ("seed-b", 5), ("seed-c", 6)):
        ends[name] = training.ends(train(training.manifest(builds, f"seed={seed}", **PACKED, name=name)).folder)[0]
    assert training.same(ends["seed-a"], ends["seed-b"])
    assert not training.same(ends["seed-a"], ends["seed-c"])


def test_the_seed_of_the_data_is_its_own(builds):
    """Other order, same weights to begin with."""
    reports = [train(training.manifest(builds, f"data.seed={seed}", **PACKED, name=f"data-{seed}")) for seed in (1, 2)]
    one, two = (each.facts for each in reports)
    assert one["looks"][0]["validation"] == two["looks"][0]["validation"]
    assert one["loss"]["last_window"] != two["loss"]["last_window"]


# --- what it refuses -------------------------------------------------------------------------------------------


def test_a_folder_that_is_there(packed, builds):
    with pytest.raises(PolicyError, match=r"packed is there already: a finished run; --resume with more --steps"):
        train(training.manifest(builds, **PACKED, name="packed"))


def test_resume_of_nothing(builds):
    with pytest.raises(ManifestError, match="no such run to resume"):
        train(training.manifest(builds, **PACKED, name="never"), resume=True)
    assert not (builds.parent / "runs/never").exists()


def test_two_processes_at_one_run(builds):
    """The lock is the kernel's: another open file of the same process meets it as another process would."""
    met = []

    def second(run):
        if not met:
            met.append(True)
            with pytest.raises(PolicyError, match="another process is at this run") as caught:
                train(training.manifest(builds, **PACKED, name="busy"), resume=True)
            assert caught.value.status == 6

    train(training.manifest(builds, **PACKED, name="busy"), progress=second)
    assert met


@pytest.mark.parametrize("left", [[], [LOCK], [LOCK, "checkpoints/.step-00000005-77/weights.safetensors"]])
def test_what_a_run_without_a_checkpoint_left_is_no_run(builds, left):
    folder = builds.parent / "runs/begun"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for name in left:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()
    train(training.manifest(builds, **PACKED, name="begun"))
    assert [path.name for path in (folder / "checkpoints").iterdir()] == ["step-00000006"]


@pytest.mark.parametrize("settings, keys, words", [
    ((), {"model": training.REFERENCE | {"positions": 8}}, "model.positions is 8, and rows of the build have 15"),
    (("schedule={unit: targets, warmup: 5000}",), {}, "warmup and decay are longer than the run, "),
    (("build=nothing",), {}, "no build 'nothing'"),
    (("data={global_batch_rows: 500}",), {}, "500"),
])  # fmt: skip
def test_what_cannot_be_is_said_before_any_work_and_may_be_mended(builds, settings, keys, words):
    with pytest.raises(ManifestError, match=words):
        train(training.manifest(builds, *settings, **PACKED | keys, name="mended"))
    train(training.manifest(builds, **PACKED, name="mended"))
    shutil.rmtree(builds.parent / "runs/mended")


def test_an_epoch_without_a_target(builds, monkeypatch):
    monkeypatch.setattr(loss, "weights", lambda labels, segments, objective: (None, 0.0))
    with pytest.raises(DataError, match="an epoch without a single target"):
        train(training.manifest(builds, **PACKED, name="nothing"))


def test_empty_windows_now_and_then_are_borne(builds, monkeypatch):
    """More of them than an epoch has batches, but never an epoch of nothing else."""
    weights, calls = loss.weights, []

    def sometimes(labels, segments, objective):
        calls.append(1)
        return (None, 0.0) if len(calls) % 4 < 2 else weights(labels, segments, objective)

    monkeypatch.setattr(loss, "weights", sometimes)
    facts = train(training.manifest(builds, "data.microbatch_rows=null", "steps=14", **PACKED, name="sometimes")).facts
    assert facts["counters"]["steps"] == 14
    assert facts["counters"]["empty"] > 8


# --- pictures --------------------------------------------------------------------------------------------------


def test_the_curve_in_characters():
    assert picture.text([(at, 4 - at / 10) for at in range(31)], width=10, height=4) == [
        "4 ⠑⠢⡀⠀⠀⠀⠀⠀⠀⠀",
        "  ⠀⠀⠉⠣⢄⠀⠀⠀⠀⠀",
        "  ⠀⠀⠀⠀⠀⠑⢤⡀⠀⠀",
        "1 ⠀⠀⠀⠀⠀⠀⠀⠈⠣⢄",
        "  0       30",
    ]
    assert picture.text([]) == ["nothing to draw"]
    assert len(picture.text([(1, 2.0)])) == 11
