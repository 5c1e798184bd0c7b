"""What a train manifest may say, and the words for what it may not."""

from pathlib import Path

import pytest

from datapipe.errors import ManifestError
from datapipe.manifest import shape
from datapipe.train import config, describe

MANIFESTS = Path(__file__).parents[1] / "manifests"
HEAD = "train:\n  name: a\n  build: b\n  steps: 10\n"


def mistakes(tmp_path: Path, text: str, *settings: str) -> list[str]:
    path = tmp_path / "f.yaml"
    path.write_text(text)
    with pytest.raises(ManifestError) as caught:
        config.load(path, settings)
    assert caught.value.status == 2
    return [line.removeprefix(f"{path}:") for line in str(caught.value).splitlines()]


MISTAKES = {
    "a misspelt key": ("  sede: 1", ["5: train.sede: unknown key; did you mean `seed`?"]),
    "all at once": (
        "  clip: -1\n  model: {kind: gtp, widht: 3}",
        ["5: train.clip: found -1, expected a number above 0",
         "6: train.model.kind: found 'gtp', expected one of reference, gpt; did you mean `gpt`?",
         "6: train.model.widht: unknown key; did you mean `width`?"],
    ),
    "a kind": ("  precision: float16", ["5: train.precision: found 'float16', expected one of float32, bfloat16"]),
    "heads": ("  model: {width: 30, heads: 4}", ["5: train.model.heads: width 30 is not a multiple of 4 heads"]),
    "an odd head": ("  model: {width: 12, heads: 4}", ["5: train.model.heads: a head of 3 cannot be turned in pairs"]),
    "shared heads": ("  model: {kv_heads: 3}", ["5: train.model.kv_heads: 4 heads cannot share 3 heads"]),
    "positions of a gpt": ("  model: {positions: 4}", ["5: train.model.positions: belongs to `kind: reference`"]),
    "dropout and other numbers": (
        "  model: {dropout: 0.1, recompute: blocks, preserve_rng_state: false}",
        ["5: train.model.preserve_rng_state: with dropout, recomputed activations would belong to other"],
    ),
    "betas": ("  optimizer: {betas: [0.9]}", ["5: train.optimizer.betas: expected two shares below 1"]),
    "decay of a cosine": ("  schedule: {kind: cosine, decay: 3}", ["5: train.schedule.decay: belongs to `kind: wsd`"]),
    "wsd without decay": ("  schedule: {kind: wsd}", ["5: train.schedule.decay: `kind: wsd` falls in its last"]),
    "floor of a constant": ("  schedule: {floor: 0.1}", ["5: train.schedule.floor: belongs to `kind: cosine`"]),
    "a long warm-up": ("  schedule: {warmup: 11}", ["5: train.schedule: warmup and decay are longer than"]),
    "microbatches": ("  data: {microbatch_rows: 5}", ["5: train.data: 5 microbatch_rows do not divide 16"]),
    "a scale that cannot fall": ("  loss_scale: 8", ["5: train.loss_scale: a scale is found by skipping steps"]),
    "a key twice": ("  seed: 1\n  seed: 2", ["6: train.seed: "]),
    "a build elsewhere": ("  builds: [a]", ["5: train.builds: found a list, expected a path"]),
}  # fmt: skip


@pytest.mark.parametrize("text, expected", MISTAKES.values(), ids=MISTAKES)
def test_mistakes(tmp_path, text, expected):
    found = mistakes(tmp_path, HEAD + text)
    assert len(found) == len(expected), found
    for one, words in zip(found, expected, strict=True):
        assert one.startswith(words)


def test_what_is_required(tmp_path):
    found = mistakes(tmp_path, "train: {}")
    assert [line.split(": ")[1] for line in found] == ["train.build", "train.name", "train.steps"]


def test_a_build_at_a_url(tmp_path):
    (found,) = mistakes(tmp_path, HEAD.replace("build: b", "build: s3://b/c"))
    assert "fetch it first" in found


def test_a_manifest_of_a_build_is_named_as_such(tmp_path):
    found = mistakes(tmp_path, "name: a\nsources: {w: {files: [x]}}\n")
    assert found == [
        f" says how to build data, so `datapipe build {tmp_path / 'f.yaml'}`; a train manifest has `train:` at the top"
    ]


def test_defaults(tmp_path):
    (tmp_path / "f.yaml").write_text(HEAD)
    found = config.load(tmp_path / "f.yaml")
    assert (found.output, found.builds, found.build) == (tmp_path / "runs", tmp_path / "builds", "b")
    assert found.train.model.kind == "gpt"
    assert found.train.checkpoint.level == "R3"


def test_paths_begin_at_the_manifest(tmp_path, monkeypatch):
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep/f.yaml").write_text(HEAD.replace("build: b", "build: ../b/c") + "  output: ../r\n  builds: /x\n")
    monkeypatch.chdir("/")
    found = config.load(tmp_path / "deep/f.yaml")
    assert (found.build, found.output, found.builds) == (str(tmp_path / "b/c"), tmp_path / "r", Path("/x"))
    moved = found.into(tmp_path / "else")
    assert (moved.output, moved.build) == (tmp_path / "else", found.build)


SETTINGS = {
    "a number": ("optimizer.lr=1e-4", lambda t: t.optimizer.lr == 1e-4),
    "an integer": ("steps=20", lambda t: t.steps == 20),
    "null": ("clip=null", lambda t: t.clip is None),
    "a mapping": ("model={kind: reference, width: 32}", lambda t: t.model.kind == "reference" and t.model.heads == 4),
    "a list": ("optimizer.betas=[0.8, 0.9]", lambda t: t.optimizer.betas == (0.8, 0.9)),
    "text": ("name=other", lambda t: t.name == "other"),
}


@pytest.mark.parametrize("setting, holds", SETTINGS.values(), ids=SETTINGS)
def test_settings(tmp_path, setting, holds):
    (tmp_path / "f.yaml").write_text(HEAD)
    assert holds(config.load(tmp_path / "f.yaml", [setting]).train)


@pytest.mark.parametrize("setting, words", [
    ("lr", "--set lr: expected key=value"),
    ("=3", "--set =3: expected key=value"),
    ("clip={a", "'{a' is no value: "),
    ("optimiser.lr=1", "train.optimiser: unknown key; did you mean `optimizer`?"),
])  # fmt: skip
def test_wrong_settings(tmp_path, setting, words):
    assert words in "\n".join(mistakes(tmp_path, HEAD, setting))


@pytest.mark.parametrize("rows, steps, batch", [(1, 4, 1), (16, 4, 16), (1000, 248, 16), (10**6, 1000, 16)])
def test_what_fits_a_build(rows, steps, batch):
    found = config.fitting("builds/Demo@3", rows).train
    assert (found.name, found.steps, found.data.global_batch_rows) == ("builds-demo-3", steps, batch)
    assert config.fitting("demo", rows, ["steps=5"]).train.steps == 5
    with pytest.raises(ManifestError, match=r"--set optimizer\.lr: "):
        config.fitting("demo", rows, ["optimizer.lr=-1"])


@pytest.mark.parametrize("name", ["cyclic16", "demo", "stdlib"])
def test_shipped_manifests(name):
    found = config.load(MANIFESTS / f"train-{name}.yaml")
    assert found.train.name == found.train.build == name
    assert (found.output, found.builds) == (MANIFESTS.parent / "runs", MANIFESTS.parent / "builds")
    assert (MANIFESTS / f"{name}.yaml").is_file()


def test_the_page_is_what_the_types_say():
    assert (MANIFESTS / describe.FILE).read_text("utf-8") == describe.page(), (
        "run: python -m datapipe.train.describe manifests"
    )
    for path, entry in shape.every_entry(config.TrainManifest):
        for key, (field, _) in shape.fields(entry).items():
            assert field.description, f"{path}.{key}"
            assert f"| `{key}` |" in describe.page() or not path
