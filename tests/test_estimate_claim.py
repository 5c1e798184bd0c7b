"""What "more data, better model" must answer: what builds, audits and runs know of it, and what is named as missing."""

import json
from pathlib import Path
from typing import Any

import pytest
import synthetic

from datapipe import cli
from datapipe.build_manifest import consumers, load
from datapipe.errors import DriftError, IntegrityError, ManifestError
from datapipe.estimate import questions
from datapipe.estimate.claim import Answer, Claim, claim, find, repeats
from datapipe.estimate.lifetime import worth

KEYS = [
    "baseline", "effective_tokens", "repeats", "dedup", "holdout", "contamination", "compute", "deployment", "losses",
    "scope", "strata", "seeds",
]  # fmt: skip


def look(step: int, validation: bool = True, strata: bool = True) -> dict[str, Any]:
    """As run.json has it."""
    sums = {"loss": 3.0 - step / 100, "targets": 10, "bits_per_byte": 1.5}
    asked = {"name": "reversed", "right": 1, "of": 10, "low": 0.018, "high": 0.404, "chance": 0.0625, "loss": 5.0}
    return {
        "step": step, "train": sums, "validation": sums if validation else None, "sources": {"web": sums},
        "strata": [asked | {"note": ""}, {"name": "longer", "of": 0, "note": "too long"}] if strata else [],
    }  # fmt: skip


def run_of(build: Path, **other: Any) -> dict[str, Any]:
    made = load(build)
    targets = made.splits.train.tokens.targets
    facts = {
        "format_version": 1, "name": "first", "finished": "2026-01-02T00:00:00+00:00",
        "config": {"builds": "builds", "seed": 17, "steps": 100, "objective": "per_token", "precision": "float32"},
        "data": {
            "build": made.name, "version": made.version, "dataset_id": made.dataset_id, "tokenizer": "ab" * 32,
            "effective_tokens": targets,
        },
        "model": {"parameters": 18_320},
        "counters": {"targets": 10 * targets, "applied": 9 * targets, "tokens": 11 * targets, "skipped": 2},
        "looks": [look(0), look(100)],
    }  # fmt: skip
    return facts | other


@pytest.fixture
def home(tmp_path) -> Path:
    """builds/tiny and runs/first beside each other."""
    build = synthetic.build(tmp_path / "builds").path
    put(tmp_path, run_of(build))
    return tmp_path


def put(home: Path, facts: object, name: str = "first") -> Path:
    path = home / "runs" / name / "run.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(facts))
    return path


def build_of(home: Path) -> Path:
    return next((home / "builds" / "tiny").glob("v*"))


def asked(home: Path, ref: str | None, **flags: float) -> Claim:
    return claim(find(ref, home / "builds", home / "runs", **flags))


def one(found: Claim, key: str) -> Answer:
    (answer,) = [answer for answer in found.answers if answer.key == key]
    return answer


def test_all_questions_are_asked_of_both(home):
    for ref in ("tiny", "first", None):
        found = asked(home, ref)
        assert [answer.key for answer in found.answers] == KEYS
        for answer in found.answers:
            assert answer.question.endswith("?")
            assert answer.known or answer.missing, answer.key
        assert found.as_json()["open"] == sum(bool(answer.missing) for answer in found.answers)


def test_a_build_alone_knows_its_data(home):
    found, made = asked(home, "tiny"), load(build_of(home))
    books = made.splits.train.tokens
    tokens = one(found, "effective_tokens")
    assert tokens.figures is not None
    assert tokens.figures["effective"] == books.targets
    assert tokens.figures["positions"] == books.stored + books.padding
    assert f"{books.targets:,} targets" in tokens.known[0]
    dropped = {stage.stage: sum(stage.dropped.values()) for stage in made.stages}
    dedup = one(found, "dedup")
    assert dedup.figures is not None
    for stage in ("exact_dedup", "near_dedup"):
        if stage in dropped:
            assert dedup.figures[stage]["dropped"] == dropped[stage]
        else:
            assert any(stage in line for line in dedup.missing)
    for key in ("losses", "scope", "strata", "seeds"):
        assert one(found, key).missing == (questions.NO_RUN,)
    assert one(found, "compute").missing == ("the number of parameters: give a run, or --params",)


def test_a_run_knows_what_was_consumed_and_what_it_cost(home):
    found, made = asked(home, "first"), load(build_of(home))
    targets = made.splits.train.tokens.targets
    figures = one(found, "repeats").figures
    assert figures is not None
    assert figures["consumed"] == 9 * targets  # one tenth was skipped
    assert figures["passes"] == pytest.approx(9 * targets / figures["unique"])
    compute = one(found, "compute").figures
    assert compute is not None
    assert compute["C"] == 6 * 18_320 * 10 * targets
    assert compute["C_positions"] == 6 * 18_320 * 11 * targets
    assert any("outside the range" in line for line in one(found, "compute").known)
    assert one(found, "strata").known[0] == "reversed: 1 of 10 (1.8% .. 40.4%, by chance 6.25%)"
    assert one(found, "strata").missing == ("longer: not asked, too long",)
    assert "at least 5 seeds" in one(found, "seeds").missing[0]
    assert "3 before, 2 after" in one(found, "losses").known[1]


def test_what_was_learnt_again_is_worth_less():
    assert "none is seen twice" in repeats(1e6, 1e6)
    assert "none is seen twice" in repeats(5e5, 1e6)
    said = repeats(1e7, 1e6)
    assert said.startswith("10.00 passes")
    assert f"{worth(1e7, 1e6) / 1e7:.1%}" in said


def test_audits_are_told_and_their_absence_too(home):
    assert "no audit of this build" in one(asked(home, "tiny"), "contamination").missing[0]
    record = {
        "started": "2026-01-03",
        "verdict": "found",
        "complete": False,
        "flagged": {"gsm8k": 3},
        "detector": {"n": 8},
    }
    consumers.write(build_of(home), "audit", "0123456789abcdef" * 4, record)
    found = one(asked(home, "first"), "contamination")
    assert "gsm8k 3 flagged" in found.known[-1]
    assert "could not see everything" in found.missing[0]
    assert found.figures is not None
    assert found.figures["audits"][0]["flagged"] == {"gsm8k": 3}


def test_deployment_needs_to_know_what_is_served(home):
    assert "--inference-tokens" in one(asked(home, "first"), "deployment").missing[0]
    found = one(asked(home, "tiny", params=7e9, served=2e12), "deployment")
    assert found.missing == ()
    assert found.figures == {"FLOP_per_token": 14e9, "serving": 28e21}


def test_a_run_without_looks_or_strata(home):
    build = build_of(home)
    put(home, run_of(build, looks=[look(0, False, False), look(100, False, False)]))
    found = asked(home, "first")
    assert "validation loss" in one(found, "losses").missing[0]
    assert "evaluate.strata" in one(found, "scope").missing[0]
    assert "evaluate.strata" in one(found, "strata").missing[0]
    put(home, run_of(build, looks=[]))
    assert one(asked(home, "first"), "losses").missing == (questions.NO_RUN,)


def test_the_build_is_found_from_where_the_run_was_started(home, tmp_path_factory):
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    found = find(str(home / "runs" / "first"), elsewhere / "builds", elsewhere / "runs")
    assert found.build is not None
    assert find(str(home / "runs" / "first" / "run.json"), elsewhere, elsewhere).build is not None


def test_a_build_that_is_gone_or_another_is_said(home):
    run = run_of(build_of(home))
    put(home, run | {"data": run["data"] | {"dataset_id": "0" * 64}})
    found = asked(home, "first")
    assert found.subject.build is None
    assert "has dataset_id" in one(found, "dedup").missing[0]
    assert "effective tokens in one pass, by the run's report" in one(found, "effective_tokens").known[0]
    put(home, run | {"data": run["data"] | {"build": "gone"}})
    assert "no build" in one(asked(home, "first"), "holdout").missing[0]


BROKEN = {
    "no JSON": ("{", IntegrityError, "is not JSON"),
    "no object": ("[]", DriftError, "format_version is None"),
    "another version": ('{"format_version": 2}', DriftError, "format_version is 2"),
    "another thing": ('{"format_version": 1}', IntegrityError, "is no report of a run"),
}


@pytest.mark.parametrize("text, error, message", BROKEN.values(), ids=BROKEN)
def test_files_that_are_no_reports(home, text, error, message):
    put(home, {}).write_text(text)
    with pytest.raises(error, match=message):
        asked(home, "first")


def test_neither_a_build_nor_a_run(home):
    with pytest.raises(ManifestError, match="nor is there a run"):
        asked(home, "nothing")


def test_the_command(home, capsys, monkeypatch):
    monkeypatch.chdir(home)
    assert cli.run(["estimate", "claim", "first", "--inference-tokens", "1T"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("run first on tiny@v0001-")
    for number in range(1, len(KEYS) + 1):
        assert f"{number:>2}. " in out
    assert max(map(len, out.splitlines())) <= 120
    assert cli.run(["estimate", "claim", "first", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [answer["key"] for answer in found["questions"]] == KEYS
    assert found["run"]["name"] == "first"
    assert cli.run(["estimate", "claim", "--params", "-1", "--inference-tokens", "80GB"]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert len(said.err.splitlines()) == 2


def test_reports_of_the_trainer_as_it_writes_them(home):
    """Keys that `claim` reads are keys of datapipe.train's report, where that is there."""
    report = pytest.importorskip("datapipe.train.report")
    source = Path(report.__file__).read_text("utf-8")
    for key in ('"data"', '"effective_tokens"', '"dataset_id"', '"counters"', '"looks"', '"model"', '"parameters"'):
        assert key in source
    assert report.FORMAT_VERSION == 1
