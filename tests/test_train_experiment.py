"""The experiment: several seeds, strata, the positive control, causality and the mutant that must fail it."""

import json
import math

import pytest

torch = pytest.importorskip("torch")

import training  # noqa: E402
from click.testing import CliRunner  # noqa: E402

from datapipe.cli import cli  # noqa: E402
from datapipe.errors import ManifestError, PolicyError  # noqa: E402
from datapipe.train import config, experiment, tasks  # noqa: E402
from datapipe.train import model as models  # noqa: E402
from datapipe.train.experiment import Causality, Experiment, Result  # noqa: E402
from datapipe.train.tasks import Stratum  # noqa: E402

torch.set_num_threads(1)
SMALL = {"kind": "reference", "width": 16, "heads": 2, "layers": 2, "hidden": 16}


@pytest.fixture(scope="module")
def builds(tmp_path_factory):
    return training.cyclic(tmp_path_factory.mktemp("cyclic"))


def model(**keys):
    torch.manual_seed(3)
    return models.build(config.Model.model_validate(SMALL | keys), 16, 12).eval()


@pytest.mark.parametrize("keys", [{}, {"kind": "gpt"}, {"kind": "gpt", "kv_heads": 1}], ids=str)
def test_causality_holds_to_the_bit_and_the_mutant_fails_it(keys):
    with torch.no_grad():
        whole = model(**keys)
        found, mutant = experiment.causality(whole, 12), experiment.causality(experiment.mutant(whole), 12)
    assert (found.holds, found.broken, found.earlier) == (True, (), 0.0)
    assert found.later > 0
    assert not mutant.holds
    assert mutant.broken == tuple(range(1, 12))  # every edit is seen by tokens before it
    assert whole.causal  # the mutant is a copy


def test_a_leak_of_one_position_is_found_where_it_is():
    """The logit at 4 knows the symbol at 5."""

    def peeping(ids):
        logits = torch.nn.functional.one_hot(ids, 16).float()
        logits[:, 4, 0] += 1e-6 * ids[:, 5]
        return logits

    found = experiment.causality(peeping, 12)
    assert (found.holds, found.broken) == (False, (5,))
    assert 0 < found.earlier < 1e-4


def test_inputs_that_make_no_difference_are_no_success():
    assert not experiment.causality(lambda ids: torch.zeros(*ids.shape, 16), 12).holds


@pytest.mark.parametrize("first, number, expected", [(17, 5, [17, 0, 1, 2, 3]), (1, 4, [1, 0, 2, 3]), (0, 1, [0])])
def test_seeds(first, number, expected):
    assert experiment.seeds(first, number) == expected


@pytest.mark.parametrize("values, mean, sd", [([1.0, 2.0, 3.0], 2.0, 1.0), ([4.0], 4.0, None), ([2.0, 2.0], 2.0, 0.0)])
def test_spread(values, mean, sd):
    assert experiment.spread(values) == {"mean": mean, "sd": sd, "least": min(values), "most": max(values)}


@pytest.fixture(scope="module")
def five(builds):
    """The numbers of training.md's table are those of five seeds; two of them are enough to see that they are met."""
    return experiment.experiment(training.manifest(builds, "steps=100", name="full"), 2)


@pytest.mark.slow
def test_the_published_numbers_by_seed_and_what_they_show(five):
    # measured when this model was found: loss before and after, then the loss of reversed, +2 and +3
    expected = {17: (2.8468, 0.00345, 8.63, 8.86, 8.33), 0: (2.9515, 0.00376, 9.20, 8.89, 8.94)}
    assert [result.seed for result in five.results] == [17, 0]
    for result in five.results:
        first, last, *losses = expected[result.seed]
        assert result.parameters == 18_320
        assert result.first == pytest.approx(first, abs=1e-4)
        assert result.last == pytest.approx(last, rel=0.05)
        assert result.sample.share == 1.0
        found = result.asked
        assert [found[name].loss for name in ("reversed", "step 2", "step 3")] == pytest.approx(losses, rel=0.02)
        for name in experiment.OUTSIDE:
            assert (found[name].right, found[name].of) == (0, 192)
            assert found[name].loss > math.log(16)
        assert found["longer positions"].of == 0
        assert found["remapped, relabelled"].share == found["in distribution"].share == 1.0
        assert found["control, in context"].share > 0.99
        assert found["control, one symbol"].share == 1 / 16
        assert result.causality.holds
        assert not result.mutant.holds
    assert (len(five.shown()), five.failed()) == (4, [])
    assert "no better than chance" in five.not_shown()[0]
    assert "surely wrong" in five.not_shown()[0]


@pytest.mark.slow
def test_what_is_written(five, builds):
    assert {path.name for path in five.folder.iterdir()} == {"experiment.json", "experiment.png"}
    assert five.folder == builds.parent / "runs" / "full-experiment"
    assert (five.folder / "experiment.png").read_bytes().startswith(b"\x89PNG")
    told = json.loads((five.folder / "experiment.json").read_bytes())
    assert told == json.loads(json.dumps(five.as_json()))
    assert [seed["seed"] for seed in told["seeds"]] == [17, 0]
    assert told["columns"]["last"]["mean"] == pytest.approx(sum(each["last"] for each in told["seeds"]) / 2)
    text = five.text()
    assert "18,320 parameters" in text
    for line in ("seed 17", "reversed", "not asked: the model has 12 positions", "by chance 2.773 / 0.0625"):
        assert line in text
    with pytest.raises(PolicyError, match="full-experiment is there already"):
        experiment.experiment(training.manifest(builds, "steps=1", name="full"), 1)


def test_no_checkpoint_and_no_consumer_is_left(builds, monkeypatch):
    monkeypatch.setattr(experiment, "CONTROL_STEPS", 1)
    before = sorted(path for path in builds.rglob("*"))
    file = training.written(builds.parent / "short.yaml", builds, "steps=1", name="short", model=SMALL)
    done = CliRunner().invoke(cli, ["train", str(file), "--experiment", "--seeds", "1"], catch_exceptions=False)
    assert done.exit_code == 0
    assert "not shown" in done.stdout
    assert "every seed learns" not in done.stdout  # nothing was learnt in a step
    assert "do use context" not in done.stdout
    assert sorted(path for path in builds.rglob("*")) == before
    assert [path.name for path in (builds.parent / "runs").glob("short*")] == ["short-experiment"]


def test_a_seed_is_the_run_of_that_seed(builds, monkeypatch):
    from datapipe.train.run import train

    monkeypatch.setattr(experiment, "CONTROL_STEPS", 1)
    found = experiment.experiment(training.manifest(builds, "steps=6", name="six", model=SMALL), 1).results[0]
    report = train(training.manifest(builds, "steps=6", name="ran", model=SMALL))
    looks = report.facts["looks"]
    assert (looks[0]["train"]["loss"], looks[-1]["train"]["loss"]) == (found.first, found.last)


def test_other_builds_are_refused_before_anything_is_trained(tmp_path):
    builds = training.packed(tmp_path)
    with pytest.raises(ManifestError, match="the cyclic task has 16 symbols and the build's tokenizer 31"):
        experiment.experiment(training.manifest(builds, build="packed"), 2)
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("flags", [["--diagnose"], ["--resume"], ["--ranks", "2"]])
def test_flags_that_do_not_go_together(builds, flags):
    file = training.written(builds.parent / "flags.yaml", builds)
    done = CliRunner().invoke(cli, ["train", str(file), "--experiment", *flags])
    assert isinstance(done.exception, ManifestError)


# --- what is read into figures -----------------------------------------------------------------------------------


def result(seed=1, *, outside=0, loss=8.0, control=256, cut=16, causal=True, mutant=False, relabelled=192):
    """A seed's figures; outside: right answers of 192 in `reversed`."""

    def of(name, right, whole=192, nats=loss):
        low, high = tasks.wilson(right, whole)
        return Stratum(name, right, whole, low, high, nats)

    strata = (of("in distribution", 192, nats=0.003), of("reversed", outside), of("remapped", 0), of("step 2", 0),
              of("step 3", 0), Stratum("longer positions", 0, 0, 0.0, 1.0, None, note="none"))  # fmt: skip
    yes, no = Causality(12, (), 0.0, 1.0), Causality(12, (3,), 0.5, 1.0)
    context = (of("control, in context", control, 256, 0.1), of("control, one symbol", cut, 256))
    return Result(
        seed, 18_320, 2.8, 0.003, of("sample of train", 192), strata, of("remapped, relabelled", relabelled), context,
        yes if causal else no, yes if mutant else no,
    )  # fmt: skip


def found(tmp_path, *results):
    train = training.manifest(tmp_path / "builds").train
    return Experiment(tmp_path, train, {"build": "cyclic16", "version": "v1", "dataset_id": "d"}, results)


READ = [
    ({}, ["work together", "do use context", "renamed alike", "No logit depends"], "no better than chance", "wrong"),
    ({"outside": 40}, ["work together"], "better than chance in reversed, in some seeds", "before anything"),
    ({"loss": 2.5}, ["work together"], "no better than chance", "in any seed."),
    ({"control": 20}, ["work together", "renamed alike", "No logit depends"], "no better", "wrong"),
    ({"cut": 200}, ["work together", "renamed alike", "No logit depends"], "no better", "wrong"),
    ({"relabelled": 10}, ["work together", "do use context", "No logit depends"], "no better", "wrong"),
    ({"causal": False}, ["work together", "do use context", "renamed alike"], "no better", "wrong"),
    ({"mutant": True}, ["work together", "do use context", "renamed alike"], "no better", "wrong"),
]


@pytest.mark.parametrize("keys, shown, outside, end", READ, ids=[str(case[0]) for case in READ])
def test_sentences_follow_from_figures(tmp_path, keys, shown, outside, end):
    one = found(tmp_path, result(1), result(2, **keys))
    sentences = one.shown()
    assert all(any(part in sentence for sentence in sentences) for part in shown)
    if len(shown) > 1:
        assert len(sentences) == len(shown)
    assert outside in one.not_shown()[0]
    assert end in one.not_shown()[0]
    if keys.keys() & {"causal", "mutant"}:
        assert "seed 2" in one.failed()[0]
        with pytest.raises(PolicyError, match="seed 2: "):
            one.judge()
        assert "FAILED" in one.text()
    else:
        one.judge()


def test_strata_are_never_averaged_into_one(tmp_path):
    told = found(tmp_path, result(1), result(2, outside=40)).as_json()
    assert {name.partition(":")[0] for name in told["columns"]} == {
        "first", "last", "sample of train", "in distribution", "reversed", "remapped", "step 2", "step 3",
        "remapped, relabelled", "control, in context", "control, one symbol",
    }  # fmt: skip
    assert told["columns"]["reversed: share"]["mean"] == pytest.approx(20 / 192)
