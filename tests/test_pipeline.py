"""The whole path: golden digests, the same bytes whatever happens on the way, resume, limits, and what is recorded."""

import gzip
import hashlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import golden
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from ruamel.yaml import YAML

import datapipe
from datapipe import manifest as manifests
from datapipe import pipeline, units
from datapipe.build_manifest import Built, DryRun
from datapipe.errors import ManifestError, PolicyError

WORDS = [f"{a}{b}" for a in ("ba", "co", "du", "fe", "gi", "lo", "mu", "ne", "pa", "ri") for b in
         ("n", "rt", "sh", "ll", "mp", "st", "ck", "x", "ng", "th")]  # fmt: skip


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Built:
    return golden.build("demo", tmp_path_factory.mktemp("demo"))


def files_of(build: Path) -> dict[str, str]:
    """sha256 of every file of a build, and of manifest.json without what two equal builds may differ in."""
    found = {
        str(path.relative_to(build)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(build.rglob("*"))
        if path.is_file() and path.name not in ("manifest.json", "README.md")
    }
    record = json.loads((build / "manifest.json").read_bytes())
    record["files"] = [file for file in record["files"] if file["path"] != "README.md"]
    for key in ("name", "version", "parents", "run"):
        del record[key]
    return found | {"manifest.json": hashlib.sha256(json.dumps(record, sort_keys=True).encode()).hexdigest()}


def prose(seed: int, n: int = 120) -> str:
    chance = random.Random(seed)
    return " ".join(chance.choice(WORDS) for _ in range(n))


def write_jsonl(path: Path, records: list[dict]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")


def asked(folder: Path, **changes: object) -> manifests.Manifest:
    """A small manifest over `folder`/in/*.jsonl; `changes` are its keys."""
    record: dict = {
        "name": "small",
        "sources": {"web": {"files": ["in/*.jsonl"]}},
        "stages": [
            {"stage": "filter", "keep": {"word_count": {"min": 20}}},
            {"stage": "holdout", "fraction": 0.1},
            {"stage": "exact_dedup"},
            {"stage": "near_dedup"},
        ],
        "tokenizer": {"train": {"vocab_size": 400, "sample": "1MB"}, "eos": "<eos>"},
        "sequences": {"length": 64},
        "shards": {"tokens": 4096},
    }
    record |= changes
    path = folder / "manifest.yaml"
    with open(path, "w", encoding="utf-8") as file:
        YAML().dump({key: value for key, value in record.items() if value is not None}, file)
    return manifests.load(path)


def build(manifest: manifests.Manifest, output: Path, *, workers: int = 2, memory: int = 500_000_000) -> Built:
    built = pipeline.build(manifest, workers=workers, memory=memory, output=output)
    assert isinstance(built, Built)
    return built


def corpus(n: int = 60) -> list[dict]:
    """Different texts, exact copies, near copies, short ones."""
    records = [{"id": f"d{i}", "text": prose(i)} for i in range(n)]
    records += [{"id": f"copy{i}", "text": prose(i)} for i in range(5)]
    records += [{"id": f"near{i}", "text": prose(i) + " one more"} for i in range(5, 10)]
    return [*records, {"id": "short", "text": "too short"}]


def golden_of(name: str) -> dict:
    return json.loads(golden.GOLDEN.read_text())[name]


@pytest.mark.parametrize("name", golden.NAMES)
def test_golden_dataset(name: str, demo: Built, tmp_path: Path):
    built = demo if name == "demo" else golden.build(name, tmp_path)
    expected, found = golden_of(name), golden.of(built)
    assert found["dataset_id"] == expected["dataset_id"], "what a trainer sees has changed"
    if found["libraries"] != expected["libraries"]:
        pytest.skip("bytes are promised for the library versions of constraints.txt")
    for function, entry in expected["units"].items():
        assert found["units"][function] == entry, (
            f"the output of {function} has changed: raise its VERSION, then run python tests/golden.py"
        )
    assert found["files"] == expected["files"]


def test_golden_signals_and_edits():
    expected, found = golden_of("texts"), golden.of_texts()
    assert found["edits"] == expected["edits"], "an edit makes another text: raise its VERSION"
    assert found["signals"] == expected["signals"], "a signal gives another number: raise signals.VERSION"


def test_one_worker_and_little_memory_give_the_same_bytes(demo: Built, tmp_path: Path):
    other = pipeline.build(
        manifests.load(golden.CHECKOUT / "manifests" / "demo.yaml"), workers=1, memory=256_000_000, output=tmp_path
    )
    assert isinstance(other, Built)
    assert files_of(other.path) == files_of(demo.path)
    assert other.manifest.build_digest == demo.manifest.build_digest


def test_another_layout_of_the_files_gives_the_same_data_set(tmp_path: Path):
    records = corpus()
    write_jsonl(tmp_path / "one" / "in" / "all.jsonl", records)
    random.Random(1).shuffle(records)
    for n in range(4):
        write_jsonl(tmp_path / "two" / "in" / f"{3 - n}.jsonl", records[n::4])
    one = build(asked(tmp_path / "one"), tmp_path / "out1")
    two = build(asked(tmp_path / "two"), tmp_path / "out2")
    assert one.manifest.dataset_id == two.manifest.dataset_id
    shards = [{k: v for k, v in files_of(b.path).items() if k.startswith(("train", "validation"))} for b in (one, two)]
    assert shards[0] == shards[1]
    assert any(name.startswith("validation/") for name in shards[0])


def test_the_same_recipe_makes_nothing_new(demo: Built):
    again = golden.build("demo", demo.path.parents[1])
    assert again.existing
    assert again.path == demo.path
    assert not again.ran
    assert not again.reused, "it is found by its recipe, before any unit is looked at"


def test_the_first_rule_of_several_decides_so_another_order_of_rules_is_another_recipe(tmp_path: Path):
    write_jsonl(tmp_path / "in" / "all.jsonl", [
        {"text": prose(1), "lang": "ba", "score": 5},
        {"text": prose(2), "lang": "co", "score": 1},
        {"text": "too short", "lang": "ba", "score": 2},
    ])  # fmt: skip
    select = {"lang": {"in": ["ba"]}, "score": {"min": 2}}
    keep = {"word_count": {"min": 20}, "score": {"min": 3}}

    def made(turn: int) -> Built:
        rules = [dict(list(rules.items())[::turn]) for rules in (select, keep)]
        source = {"files": ["in/*.jsonl"], "fields": {"lang": "lang"}, "extra": ["score"], "select": rules[0]}
        stages = [{"stage": "filter", "keep": rules[1]}]
        changes = {"sources": {"web": source}, "stages": stages, "tokenizer": None, "sequences": None, "shards": None}
        return build(asked(tmp_path, **changes), tmp_path / "out")

    one, two = made(1), made(-1)
    assert not two.existing
    assert [b.manifest.inputs[0].cut for b in (one, two)] == [{"select: lang": 1}, {"select: score": 1}]
    assert [b.manifest.stages[1].dropped for b in (one, two)] == [{"word_count < 20": 1}, {"score < 3": 1}]
    assert list(two.manifest.manifest["stages"][0]["keep"]) == ["score", "word_count"]


def test_the_order_of_sources_and_of_the_mixture_decides_nothing(tmp_path: Path):
    names, records = ["a", "b", "c"], corpus()
    for at, name in enumerate(names):
        write_jsonl(tmp_path / "in" / f"{name}.jsonl", records[at::3])
    made = []
    for turn in (1, -1):  # 0.1 + 0.2 + 0.3 is another double than 0.3 + 0.2 + 0.1
        mixture = {name: {"weight": (at + 1) / 10} for at, name in list(enumerate(names))[::turn]}
        sources = {name: {"files": [f"in/{name}.jsonl"]} for name in names[::turn]}
        made.append(build(asked(tmp_path, sources=sources, mixture=mixture), tmp_path / f"out{turn}").manifest)
    assert made[0].recipe_id == made[1].recipe_id
    assert made[0].build_digest == made[1].build_digest
    assert made[0].splits.train.by_source["c"].asked == 0.5


def test_another_bound_reads_and_measures_nothing_again(tmp_path: Path, shared_tokenizer: Path):
    write_jsonl(tmp_path / "in" / "all.jsonl", [*corpus(), {"id": "middle", "text": prose(99, 15)}])
    file = {"tokenizer": {"file": str(shared_tokenizer), "eos": "<eos>"}}
    build(asked(tmp_path, **file), tmp_path / "out")
    lower = [{"stage": "filter", "keep": {"word_count": {"min": 10}}}, *asked_stages()[1:]]
    wider = build(asked(tmp_path, stages=lower, **file), tmp_path / "out")
    assert set(wider.ran) <= {"signatures", "tokens", "normal_form_sha256"}
    added = [unit for unit in store_units(tmp_path / "out") if unit["function"] in ("signatures", "tokens")]
    assert min((unit["function"], unit["counts"]["rows"]) for unit in added) == ("signatures", 1)
    higher = [{"stage": "filter", "keep": {"word_count": {"min": 16}}}, *asked_stages()[1:]]
    narrower = build(asked(tmp_path, stages=higher, **file), tmp_path / "out")
    assert not narrower.ran


def test_with_a_trained_tokenizer_reading_signals_and_signatures_are_reused(tmp_path: Path):
    write_jsonl(tmp_path / "in" / "all.jsonl", [*corpus(), {"id": "middle", "text": prose(99, 30)}])
    build(asked(tmp_path), tmp_path / "out")
    higher = [{"stage": "filter", "keep": {"word_count": {"min": 40}}}, *asked_stages()[1:]]
    again = build(asked(tmp_path, stages=higher), tmp_path / "out")
    assert set(again.ran) == {"train_tokenizer", "tokens"}


@pytest.fixture(scope="module")
def shared_tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from datapipe import tokens

    path = tmp_path_factory.mktemp("tokenizer") / "tokenizer.json"
    path.write_bytes(tokens.train((prose(i) for i in range(20)), 400, ["<eos>"]))
    return path


def asked_stages() -> list[dict]:
    return [
        {"stage": "filter", "keep": {"word_count": {"min": 20}}},
        {"stage": "holdout", "fraction": 0.1},
        {"stage": "exact_dedup"},
        {"stage": "near_dedup"},
    ]


def store_units(output: Path) -> list[dict]:
    return [json.loads(path.read_bytes()) for path in (output / ".units").glob(f"*/{units.SIDECAR}")]


def test_killed_at_any_moment_it_ends_with_the_same_bytes(tmp_path: Path, demo: Built):
    manifest = golden.CHECKOUT / "manifests" / "demo.yaml"
    command = [sys.executable, "-m", "datapipe", "build", str(manifest), "--output", str(tmp_path), "--workers", "2"]
    environment = os.environ | {"PYTHONPATH": str(golden.CHECKOUT)}
    for wait in (0.7, 1.0, 1.3, 1.6, 2.0):
        with subprocess.Popen(
            command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        ) as process:
            time.sleep(wait)
            process.send_signal(signal.SIGKILL)
    assert not list((tmp_path / "demo").glob(".*/manifest.json"))
    last = golden.build("demo", tmp_path)
    assert files_of(last.path) == files_of(demo.path)


def test_every_record_is_accounted_for(demo: Built):
    record = demo.manifest.as_json()
    for book in record["inputs"]:
        assert book["records"] == book["documents"] + book["rejected"] + book["quarantined"] + book["blank"]
    fates = pq.read_table(demo.path / "fates.parquet")
    documents = sum(book["documents"] - sum(book["cut"].values()) for book in record["inputs"])
    assert len(fates) == documents
    kinds = dict(zip(*[column.to_pylist() for column in fates["fate"].value_counts().flatten()], strict=True))
    dropped = sum(sum(stage["dropped"].values()) for stage in record["stages"])
    assert kinds["dropped"] == dropped
    assert fates["doc_id"].to_pylist() == sorted(fates["doc_id"].to_pylist())


def test_documents_and_signals_join_by_part_and_row(demo: Built):
    fates = pq.read_table(demo.path / "fates.parquet").to_pylist()
    for path in sorted((demo.path / "documents").iterdir()):
        part = int(path.stem.split("-")[1])
        texts, signals = pq.read_table(path), pq.read_table(demo.path / "signals" / path.name)
        assert len(texts) == len(signals)
        for fate in [fate for fate in fates if fate["part"] == part][:20]:
            text = texts["text"][fate["row"]].as_py()
            assert len(text.encode()) == fate["bytes"]
            assert signals["word_count"][fate["row"]].as_py() == len(text.split())


@pytest.mark.parametrize(("keep", "texts"), [("all", "every"), ("kept", "kept"), ("none", "no")])
def test_whose_text_stays(tmp_path: Path, keep: str, texts: str):
    write_jsonl(tmp_path / "in" / "all.jsonl", corpus())
    built = build(asked(tmp_path, documents=keep), tmp_path / "out")
    fates = pq.read_table(built.path / "fates.parquet").to_pylist()
    stored = pa.concat_tables(pq.read_table(path) for path in sorted((built.path / "documents").iterdir()))
    has = {row for row, text in enumerate(stored["text"].to_pylist()) if text is not None}
    kept = {fate["row"] for fate in fates if fate["fate"] == "kept"}
    assert has == {"every": {fate["row"] for fate in fates}, "kept": kept, "no": set()}[texts]
    assert datapipe.verify(str(built.path)).ok


def test_without_a_tokenizer_the_build_ends_after_the_stages(tmp_path: Path):
    write_jsonl(tmp_path / "in" / "all.jsonl", corpus())
    built = build(asked(tmp_path, tokenizer=None, sequences=None, shards=None), tmp_path / "out")
    fates = pq.read_table(built.path / "fates.parquet")
    assert set(fates["tokens"].to_pylist()) == {None}
    assert not (built.path / "train").exists()
    assert len(built.manifest.dataset_id) == 64
    assert datapipe.verify(str(built.path)).ok


@pytest.mark.parametrize(
    ("records", "changes", "message"),
    [
        ([{"id": str(i), "text": None} for i in range(11)], {}, "web: 11 of 82 records rejected"),
        (
            [{"id": f"s{i}", "text": f"short {i}"} for i in range(700)],
            {},
            r"removed 711 of 771 documents \(92%\), limits.+ lets 90% go; most by\n  1:filter: word_count < 20 decides",
        ),
        (
            [{"id": f"g{i}", "text": prose(1000 + i), "site": "large"} for i in range(80)],
            {
                "sources": {"web": {"files": ["in/*.jsonl"], "fields": {"group": "site"}}},
                "stages": [{"stage": "holdout", "fraction": 0.1, "salt": "in"}],
            },
            "holdout: ",
        ),
    ],
    ids=["rejected", "removed", "holdout"],
)
def test_a_limit_makes_no_version_and_keeps_the_tables(
    tmp_path: Path, records: list[dict], changes: dict, message: str
):
    write_jsonl(tmp_path / "in" / "all.jsonl", [*corpus(), *records])
    if "fields" in str(changes):
        changes = changes | {"stages": [{"stage": "holdout", "fraction": 0.1, "salt": salt_that_takes("large", 0.1)}]}
    with pytest.raises(PolicyError, match=message):
        build(asked(tmp_path, **changes), tmp_path / "out")
    assert not list((tmp_path / "out" / "small").glob("v*"))
    assert (tmp_path / "out" / "small" / "failed" / "rejected.parquet").exists()


def salt_that_takes(group: str, fraction: float) -> str:
    from datapipe.keyed import bound, keyed

    return next(salt for salt in map(str, range(1000)) if keyed("holdout", salt, group) < bound(fraction))


def test_more_documents_move_no_old_one_over_the_holdout_border(tmp_path: Path):
    records = [{"id": f"d{i}", "text": prose(i)} for i in range(200)]
    write_jsonl(tmp_path / "in" / "a.jsonl", records)
    before = build(asked(tmp_path), tmp_path / "out")
    write_jsonl(tmp_path / "in" / "b.jsonl", [{"id": f"e{i}", "text": prose(1000 + i)} for i in range(20)])
    after = build(asked(tmp_path, seed=99), tmp_path / "out")
    splits = [
        {fate["doc_id"]: fate["split"] for fate in pq.read_table(b.path / "fates.parquet").to_pylist()}
        for b in (before, after)
    ]
    assert {doc: splits[1][doc] for doc in splits[0]} == splits[0]
    assert 5 < sum(split == "validation" for split in splits[0].values()) < 50


def test_a_holdout_after_dedup_is_refused(tmp_path: Path):
    write_jsonl(tmp_path / "in" / "all.jsonl", corpus())
    late = [{"stage": "exact_dedup"}, {"stage": "holdout", "fraction": 0.1}]
    with pytest.raises(ManifestError, match="before"):
        asked(tmp_path, stages=late)


def test_a_moved_build_still_verifies(demo: Built, tmp_path: Path):
    shutil.copytree(demo.path, tmp_path / "moved")
    assert datapipe.verify(str(tmp_path / "moved")).ok


@pytest.mark.parametrize(
    ("name", "data", "records"),
    [
        ("a.jsonl", b'{"text":"a"}\n{"text":"b"}\n', 2),
        ("no newline at the end.jsonl", b'{"text":"a"}\n{"text":"b"}', 2),
        ("empty.jsonl", b"", 0),
        ("packed.jsonl.gz", gzip.compress(b'{"text":"a"}\n' * 3, mtime=0), 3),
        ("torn.jsonl.gz", gzip.compress(b'{"text":"a"}\n' * 3, mtime=0)[:-9], None),
        ("table.csv", b"id,text\n1,a\n2,b\n", 2),
        ("a.txt", b"one\ntwo\n", 1),
    ],
)
def test_a_dry_run_counts_records_and_makes_nothing(tmp_path: Path, name: str, data: bytes, records: int | None):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / name).write_bytes(data)
    manifest = asked(tmp_path, sources={"web": {"files": ["in/*"]}})
    answer = pipeline.build(manifest, workers=1, memory=500_000_000, output=tmp_path / "out", dry_run=True)
    assert isinstance(answer, DryRun)
    assert answer.documents == records
    assert answer.files == 1
    assert not (tmp_path / "out").exists()
