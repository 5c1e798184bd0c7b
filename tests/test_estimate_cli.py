"""datapipe estimate memory and parallel: statuses, all problems at once, what is shown, JSON."""

import json
import subprocess
import sys

import pytest
import synthetic

from datapipe import cli

LLAMA = {
    "model_type": "llama",
    "hidden_size": 4096,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "intermediate_size": 14336,
    "vocab_size": 128256,
}
TINY = ["--layers", "4", "--width", "256", "--heads", "4", "--vocabulary", "4k"]


@pytest.fixture
def llama(tmp_path):
    path = tmp_path / "config.json"
    path.write_text(json.dumps(LLAMA))
    return path


def run(capsys, *args: object) -> tuple[int, str, str]:
    status = cli.run(["estimate", *map(str, args)])
    said = capsys.readouterr()
    return status, said.out, said.err


def lines_of(text: str) -> list[str]:
    return [line.strip() for line in text.split("\n")]


def test_seven_billion_are_only_the_weights(capsys):
    status, out, err = run(capsys, "memory", "--params", "7e9")
    assert (status, err) == (0, "")
    assert "7.00B x 2 bytes = 14.0 GB is only the weights" in out
    for name in ("weights", "gradients", "optimizer", "activations", "workspace", "total", "assumed", "sources"):
        assert any(line.startswith(name) for line in lines_of(out)), name
    assert "the shape is assumed from the number of parameters" in out
    assert "the largest part is optimizer, 68 %; the largest term optimizer.moments, 45 %" in out
    assert "GiB" in out


@pytest.mark.parametrize("text", ["7B", "7e9", "7_000_000_000", "7000M"])
def test_numbers_as_people_write_them(capsys, text):
    status, out, _ = run(capsys, "memory", "--params", text, "--json")
    assert status == 0
    assert json.loads(out)["model"]["parameters"] == 7e9


def test_sizes_as_people_write_them(capsys, llama):
    for text, size in (("80GB", 80e9), ("80GiB", 80 * 2**30)):
        status, out, _ = run(capsys, "memory", "--model", llama, "--fit", text, "--json")
        assert status == 0
        assert json.loads(out)["fit"] == size


WRONG = {
    "everything at once": (
        [
            "memory",
            "--model",
            "LLAMA",
            "--tp",
            "3",
            "--pp",
            "5",
            "--fit",
            "80B",
            "--dtype",
            "f",
            "--zero",
            "9",
            "--dp",
            "0",
            "--bucket",
            "80GB",
            "--microbatch",
            "-1",
            "--length",
            "7X",
        ],
        [
            "--dtype: found 'f'",
            "--zero: found '9'",
            "--length: found '7X'",
            "--dp: found '0'",
            "--microbatch: found '-1'",
            "--bucket: found '80GB'",
            "--fit: found '80B', which is a count and no size; write 80GB",
            "--tp: 3 does not divide heads 32",
            "--pp: 5 stages do not divide 32 layers",
        ],
    ),
    "no model": (["memory"], ["give --model FILE, --params N alone, or --layers and --width"]),
    "half a model": (["memory", "--layers", "4"], ["--width missing"]),
    "a model that is not there": (["memory", "--model", "nope.json"], ["nope.json: there is no such file"]),
    "devices without --fit": (["memory", *TINY, "--devices", "8"], ["--devices: needs --fit"]),
    "zero devices": (
        ["memory", *TINY, "--fit", "1GB", "--devices", "0"],
        ["--devices: found '0', expected at least 1"],
    ),
    "an unknown term": (
        ["memory", *TINY, "--set", "wieghts=1", "--without", "x"],
        ["--set wieghts=1: there is no term", "--without x"],
    ),
    "a term that only other setups have": (
        ["memory", *TINY, "--without", "communication.ddp_buckets"],
        ["there is no such term"],
    ),
    "measuring flags": (["memory", *TINY, "--measure"], ["--measure: runs the models of datapipe train"]),
    "memory without a search": (["parallel", *TINY, "--memory", "80GB"], ["--memory: needs --search"]),
    "memory that is a count": (
        ["parallel", *TINY, "--search", "--memory", "80B"],
        ["--memory: found '80B', which is a count"],
    ),
    "rates": (
        ["parallel", *TINY, "--flops", "312TB/s", "--bandwidth", "0", "--efficiency", "150%", "--latency", "-1us"],
        [
            "--flops: found '312TB/s'",
            "--bandwidth: found '0', expected more than 0",
            "--efficiency: found '150%'",
            "--latency: found '-1us'",
        ],
    ),
    "loads": (
        ["parallel", *TINY, "--pp", "2", "--stage-costs", "1,2,x", "--expert-loads", "1"],
        ["--stage-costs: found 'x'", "--expert-loads: the model has no experts"],
    ),
    "heads": (
        ["parallel", "--layers", "4", "--width", "250", "--heads", "4"],
        ["--heads: 4 heads do not divide the width 250"],
    ),
    "experts without how many are active": (["memory", *TINY, "--experts", "8"], ["--active: found 0 of 8 experts"]),
}


@pytest.mark.parametrize("args, said", WRONG.values(), ids=WRONG)
def test_wrong_input_is_status_2_and_all_of_it_is_said(capsys, llama, args, said):
    status, out, err = run(capsys, *[llama if arg == "LLAMA" else arg for arg in args])
    assert (status, out) == (2, "")
    for part in said:
        assert part in err
    lines = err.removeprefix("error: ").strip().split("\n")
    assert len(lines) == len(set(lines)) >= len(said)


def test_terms_are_replaced_and_left_out(capsys):
    def total(*args: str) -> float:
        status, out, err = run(capsys, "memory", *TINY, "--json", *args)
        assert status == 0, err
        return json.loads(out)["device"]["total"]

    whole = total()
    assert total("--without", "workspace.gemm") == whole - 32 * 2**20
    assert total("--set", "workspace.gemm=1GiB") == whole + 2**30 - 32 * 2**20
    assert total("--set", "workspace=0", "--set", "activations=1GB") < whole + 1e9
    shown = run(capsys, "memory", *TINY, "--set", "optimizer=2GB")[1]
    assert any(line.startswith("optimizer ") and "2.00 GB" in line and " you " in line for line in lines_of(shown))


@pytest.mark.parametrize("recompute, saved", [("none", 668_388), ("blocks", 115_428)])
def test_a_train_manifest_says_how_it_is_trained(capsys, tmp_path, recompute, saved):
    """Computed, torch 2.13: 668,388 and 115,428 bytes saved, states 293,120 + 4 a tensor."""
    model = f"{{kind: reference, width: 32, heads: 4, layers: 2, hidden: 64, positions: 12, recompute: {recompute}}}"
    (tmp_path / "t.yaml").write_text(f"train: {{name: x, model: {model}}}")
    flags = ["--model", tmp_path / "t.yaml", "--vocabulary", "16", "--microbatch", "16", "--json"]
    groups = json.loads(run(capsys, "memory", *flags)[1])["device"]["groups"]
    assert sum(groups[name] for name in ("weights", "gradients", "optimizer")) == 293_120 + 4 * 26
    again = [] if recompute == "none" else ["--without", "activations.recomputed"]
    found = json.loads(run(capsys, "memory", *flags, *again)[1])["device"]
    logits = next(term["value"] for term in found["terms"] if term["name"] == "workspace.logits")
    assert found["groups"]["activations"] + logits == saved


def test_what_to_change_and_what_fits(capsys, llama):
    status, out, _ = run(
        capsys,
        "memory",
        "--model",
        llama,
        "--dp",
        "8",
        "--length",
        "4096",
        "--microbatch",
        "4",
        "--fit",
        "80GB",
        "--devices",
        "16",
        "--batch",
        "64",
    )
    assert status == 0
    assert "too much" in out
    assert "80.0 GB (74.5 GiB)" in out
    assert "what to change first" in out
    assert "configurations of 16 devices that fit 80.0 GB (74.5 GiB), 64 rows an update" in out
    assert "ranked without overlap" in out
    first = next(line for line in lines_of(out) if line.startswith("1."))
    assert first.startswith("1.  --")
    json_out = json.loads(
        run(
            capsys,
            "memory",
            "--model",
            llama,
            "--dp",
            "8",
            "--length",
            "4096",
            "--microbatch",
            "4",
            "--fit",
            "80GB",
            "--devices",
            "16",
            "--batch",
            "64",
            "--json",
        )[1]
    )
    assert not json_out["fits"]
    assert all(one["bytes"] <= 80e9 for one in json_out["configurations"])
    assert json_out["changes"][-1]["change"] == "--microbatch 2"


def test_nothing_fits(capsys, llama):
    out = run(capsys, "memory", "--model", llama, "--fit", "1GB")[1]
    assert "none: more devices, fewer rows, or shorter ones" in out


def test_the_worst_stage_is_named(capsys, llama):
    out = run(capsys, "memory", "--model", llama, "--pp", "4", "--microbatches", "8")[1]
    assert "a device of pipeline stage 1 of 4 holds" in out
    assert "stages: 1 " in out


def test_the_bottleneck_comes_first(capsys, llama):
    status, out, _ = run(
        capsys,
        "parallel",
        "--model",
        llama,
        "--dp",
        "4",
        "--tp",
        "2",
        "--pp",
        "4",
        "--microbatches",
        "8",
        "--tokens",
        "1T",
        "--search",
        "--devices",
        "32",
        "--batch",
        "128",
        "--memory",
        "80GB",
    )
    assert status == 0
    assert out.startswith("bottleneck: ")
    for part in (
        "1.00T tokens take",
        "seconds of a step",
        "bytes that a device sends",
        "operations of one sequence",
        "bubble: 0.375 of",
        "not modelled: overlap",
        "splits of 32 devices that fit 80.0 GB (74.5 GiB), 128 rows an update",
    ):
        assert part in out


def test_parallel_in_json(capsys):
    out = run(capsys, "parallel", *TINY, "--dp", "4", "--set", "communication.dp=1ms", "--tokens", "1B", "--json")[1]
    found = json.loads(out)
    assert found["times"]["groups"]["communication"] == 0.001
    assert found["training_seconds"] == pytest.approx(1e9 / found["tokens_per_second"])
    assert {term["name"] for term in found["volumes"]["terms"]} == {"dp"}
    assert "FLOP" in found["flops"]["unit"]


def test_the_rows_of_a_build(capsys, tmp_path):
    built = synthetic.build(tmp_path)
    status, out, err = run(capsys, "parallel", *TINY, "--dp", "2", "--build", built.manifest.name, "--output", tmp_path)
    assert (status, err) == (0, "")
    assert "rows of 64" in out
    assert "x the mean of squared lengths" in out
    assert run(capsys, "parallel", *TINY, "--dp", "2", "--build", built.path)[1] == out
    status, _, err = run(capsys, "parallel", *TINY, "--build", built.path, "--length", "128")
    assert (status, "--length: found 128, and rows of the build have 64" in err) == (2, True)


def test_help_is_light():
    code = (
        "import sys; from datapipe import cli; status = cli.run(['estimate', 'memory', '--help']); "
        "heavy = ('numpy', 'pyarrow', 'torch', 'scipy', 'matplotlib', 'pydantic', 'numba'); "
        "print('loaded', *[m for m in heavy if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split("\n")[-2] == "loaded"


def test_a_misspelt_command(capsys):
    status, _, err = run(capsys, "memroy")
    assert status == 2
    assert "memory" in err
