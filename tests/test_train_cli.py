"""datapipe train on the command line: what it prints, how it ends, and what works without torch."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
import training

from datapipe import cli

MANIFESTS = Path(__file__).parents[1] / "manifests"


@pytest.fixture(autouse=True, scope="module")
def _one_thread():
    torch.set_num_threads(1)


@pytest.fixture(scope="module")
def builds(tmp_path_factory):
    return training.builds(tmp_path_factory.mktemp("train"))


def run(capsys, *arguments: object) -> tuple[int, str, str]:
    status = cli.run([str(each) for each in ("train", *arguments)])
    said = capsys.readouterr()
    return status, said.out, said.err


def test_the_published_experiment(builds, tmp_path, capsys):
    """The shipped manifest on shards that `datapipe build` wrote."""
    file = MANIFESTS / "train-cyclic16.yaml"
    status, out, err = run(capsys, file, "--output", tmp_path, "--set", f"builds={builds}")
    assert status == 0, err
    assert "18,320 parameters, 100 updates on cyclic16@v0001" in out
    assert "in distribution: 192 of 192 right" in out
    assert "nothing about texts" in out
    facts = json.loads((tmp_path / "cyclic16/run.json").read_text())
    assert facts["model"]["parameters"] == 18_320
    assert abs(facts["loss"]["first_window"] - 2.8468) < 1e-4
    assert facts["loss"]["sample_after"] == pytest.approx(0.00345, rel=0.05)
    strata = {one["name"]: one for one in facts["looks"][-1]["strata"]}
    assert strata["in distribution"]["right"] == strata["in distribution"]["of"] == 192
    assert facts["config"]["seed"] == 17
    assert "step 100 of 100" in err
    status, out, err = run(capsys, file, "--output", tmp_path, "--set", f"builds={builds}")
    assert (status, out) == (6, "")
    assert "a finished run; --resume with more --steps goes on with it" in err
    status, out, err = run(
        capsys, file, "--output", tmp_path, "--set", f"builds={builds}", "--resume", "--steps", 102, "--json"
    )
    assert status == 0, err
    assert json.loads(out)["counters"]["steps"] == 102
    status, out, err = run(
        capsys, file, "--output", tmp_path, "--set", f"builds={builds}", "optimizer.lr=1e-4", "--resume"
    )
    assert status == 5
    assert "optimizer.lr: 0.006 in the checkpoint, 0.0001 now" in err


def test_a_build_alone(builds, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(builds.parent)
    model = "model={width: 16, heads: 2, layers: 1, hidden: 24}"
    status, out, err = run(capsys, "packed", "--steps", 4, "--output", tmp_path, "--set", model)
    assert status == 0, err
    assert "4 updates on packed@v0001" in out
    assert (tmp_path / "packed/curve.png").is_file()


@pytest.mark.parametrize("arguments, status, words", [
    (["nothing"], 2, "no build 'nothing'"),
    (["nothing.yaml"], 2, "nothing.yaml: there is no such file"),
    ([MANIFESTS / "cyclic16.yaml"], 2, "says how to build data"),
    ([MANIFESTS / "train-demo.yaml", "--set", "optimizer.rl=3"], 2, "train.optimizer.rl: unknown key; known are `lr`"),
    ([MANIFESTS / "train-cyclic16.yaml", "--ranks", "0"], 2, "--ranks"),
])  # fmt: skip
def test_what_is_wrong(capsys, tmp_path, monkeypatch, arguments, status, words):
    monkeypatch.chdir(tmp_path)
    found, out, err = run(capsys, *arguments)
    assert (found, out) == (status, "")
    assert words in err


def test_the_words_are_kept_apart(capsys):
    status, out, _ = run(capsys, "--help")
    assert status == 0
    for word in ("Recompute: ", "Checkpoint: ", "Resume: "):
        assert word in out


def test_stopped_says_how_to_go_on(builds, tmp_path):
    keys = {"name": "stopped", "output": str(tmp_path), "steps": 100_000, "checkpoint": {"every": 5}}
    file = training.written(tmp_path / "f.yaml", builds, **keys)
    command = [sys.executable, "-m", "datapipe", "train", str(file)]
    with subprocess.Popen(command, env=training.environment(), stderr=subprocess.PIPE) as process:
        try:
            training.wait(lambda: any((tmp_path / "stopped").glob("checkpoints/step-*")))
            os.kill(process.pid, signal.SIGTERM)
            said = process.communicate(timeout=240)[1].decode()
        finally:
            process.kill()
    assert process.returncode == 128 + signal.SIGTERM
    assert said.splitlines()[-1] == "stopped; --resume goes on from the newest checkpoint, if there is one"


# --- without torch ---------------------------------------------------------------------------------------------

BLOCKED = """
import sys
for name in ("torch", "torchdata", "safetensors", "matplotlib"):
    sys.modules[name] = None  # importing it raises ImportError
from datapipe import cli
for arguments in {arguments!r}:
    print("status", cli.run(arguments), flush=True)
"""


def without_torch(*arguments: Sequence[object], cwd: Path) -> subprocess.CompletedProcess[str]:
    code = BLOCKED.format(arguments=[list(map(str, each)) for each in arguments])
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=cwd,
                          env=training.environment(), timeout=300)  # fmt: skip


def test_train_says_which_extra(builds):
    helped = [[name, "--help"] for name in cli.COMMANDS]
    done = without_torch(*helped, ["train", "cyclic16"], cwd=builds.parent)
    statuses = [line for line in done.stdout.splitlines() if line.startswith("status")]
    assert statuses == ["status 0"] * len(cli.COMMANDS) + ["status 2"]
    assert done.stderr == (
        "error: training needs torch, safetensors, matplotlib: pip install 'datapipe[train]'; no other command does\n"
    )


@pytest.mark.slow
def test_every_other_command_works_without_torch(builds, tmp_path):
    (tmp_path / "a.jsonl").write_text('{"id": "a", "text": "words of a text"}\n')
    done = without_torch(
        ["build", MANIFESTS / "cyclic16.yaml", "--output", "builds"], ["show", "cyclic16"], ["verify", "cyclic16"],
        ["export", "cyclic16", "--to", "nanogpt", "--out", "out"], ["clean"], ["init", "a.jsonl", "--out", "m.yaml"],
        ["audit", "--eval", MANIFESTS.parent / "fixtures/evals/planted.jsonl"],
        cwd=tmp_path,
    )  # fmt: skip
    statuses = [line for line in done.stdout.splitlines() if line.startswith("status")]
    assert statuses[:6] == ["status 0"] * 6, done.stderr
    assert statuses[6] in {"status 0", "status 7"}, done.stderr
