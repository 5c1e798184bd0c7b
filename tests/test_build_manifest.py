"""The build manifest: digests, versions, how a build is named, what is refused."""

import fcntl
import hashlib
import json
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import synthetic
from ruamel.yaml import YAML

from datapipe import tables
from datapipe.build_manifest import consumers, digests, fail, find, load, resolve, store
from datapipe.build_manifest.sweep import sweep
from datapipe.errors import DataError, DatapipeError, DriftError, IntegrityError, MachineError, ManifestError
from datapipe.keyed import canonical


def sha256(value: object) -> str:
    return hashlib.sha256(canonical(value)).hexdigest()


def read(build: Path) -> dict[str, Any]:
    return json.loads((build / "manifest.json").read_bytes())


def test_a_build_is_a_version_with_everything_named(tmp_path):
    made = synthetic.build(tmp_path)
    record = read(made.path)

    assert made.path == tmp_path / "tiny" / f"v0001-{record['dataset_id'][:12]}"
    assert (tmp_path / "tiny/latest").read_text() == made.path.name + "\n"
    there = {path.relative_to(made.path).as_posix() for path in made.path.rglob("*") if path.is_file()}
    assert {file["path"] for file in record["files"]} | {"manifest.json"} == there
    for file in record["files"]:
        data = (made.path / file["path"]).read_bytes()
        assert (file["bytes"], file["sha256"]) == (len(data), hashlib.sha256(data).hexdigest())
    assert {file["path"]: file["rows"] for file in record["files"]}["fates.parquet"] == 10
    assert sorted(path.name for path in tmp_path.iterdir()) == ["tiny"], "no staging folder is left"
    assert load(made.path) == made.manifest


def test_the_books_of_the_stages_become_holdout_near_dedup_and_snapshots(tmp_path):
    record = read(synthetic.build(tmp_path).path)

    assert record["holdout"]["leak"] == {"exact": 1, "near": 0, "old": None}
    assert "leak" not in record["near_dedup"]
    assert record["stages"][3]["in"] == 8
    assert record["stages"][3]["out"] == 6
    assert record["snapshots"]["web"]["documents"] == {"2024-01": 2, "2024-02": 1}
    assert record["snapshots"]["web"]["without"] == 3
    assert record["snapshots"]["web"]["as_of"] == "2024-03-01"
    assert record["tokenizer"]["eos"] == {"token": "<eos>", "id": 0}


def test_two_equal_builds_differ_in_name_version_parents_and_run_alone(tmp_path):
    first = synthetic.build(tmp_path / "a", "one", started="2026-01-01T00:00:00+00:00").path
    second = synthetic.build(tmp_path / "b", "two", started="2026-02-02T00:00:00+00:00").path

    one, two = read(first), read(second)
    assert one["build_digest"] == two["build_digest"]
    assert {key for key in one if one[key] != two[key]} <= {"name", "version", "parents", "run", "manifest", "files"}
    files = [{file["path"]: file["sha256"] for file in record["files"]} for record in (one, two)]
    assert {path for path in files[0] if files[0][path] != files[1][path]} == {"README.md"}


def test_build_digest_is_of_everything_else(tmp_path):
    record = read(synthetic.build(tmp_path).path)
    for key in set(record) - {"name", "version", "parents", "run", "build_digest", "manifest", "files"}:
        assert digests.build_digest(record | {key: "other"}) != record["build_digest"], key
    changed = [file | {"sha256": "0" * 64} if file["path"] == "fates.parquet" else file for file in record["files"]]
    assert digests.build_digest(record | {"files": changed}) != record["build_digest"]


def test_dataset_id_is_what_a_trainer_sees():
    shards = {"train": ["a", "b"], "validation": ["c"]}
    assert digests.dataset_id("t", shards) == sha256(["t", {"train": ["a", "b"], "validation": ["c"]}])
    assert digests.dataset_id("t", {"train": ["a"]}) == sha256(["t", {"train": ["a"], "validation": []}])


@pytest.mark.parametrize("kept", [[], [("0a", "train")], [("0a", "train"), ("0b", "validation"), ("1c", "train")]])
def test_dataset_id_without_a_tokenizer_is_of_kept_documents(kept):
    assert digests.dataset_id_of_documents(kept) == sha256([list(pair) for pair in kept])


def test_a_build_without_a_tokenizer_has_no_shards(tmp_path):
    made = synthetic.build(tmp_path, tokenizer=False)
    docs = sorted(([d.id, d.split] for d in _named() if d.stage is None and d.copies), key=lambda pair: pair[0])

    assert made.manifest.dataset_id == sha256(docs)
    assert made.manifest.splits.train.shards == ()
    assert made.manifest.splits.train.documents == 3
    assert not (made.path / "train").exists()
    assert "- config_name: default" not in (made.path / "README.md").read_text()


def _named() -> list[synthetic.Doc]:
    docs = synthetic.story()
    synthetic._name(docs)
    return docs


BASE: dict[str, Any] = {
    "recipe": {"seed": 0},
    "inputs": {"web": [("a", "1"), ("b", "2")]},
    "tokenizer": "t",
    "versions": {"read": 1},
    "unicode": "14.0.0",
}
RECIPES = {
    "another setting": ({"recipe": {"seed": 1}}, False),
    "another file": ({"inputs": {"web": [("a", "1"), ("b", "3")]}}, False),
    "another path of a file": ({"inputs": {"web": [("a", "1"), ("c", "2")]}}, False),
    "a function that changed": ({"versions": {"read": 2}}, False),
    "another tokenizer": ({"tokenizer": "u"}, False),
    "other Unicode tables": ({"unicode": "15.0.0"}, False),
    "a tombstone": ({"tombstones": ["d"]}, False),
    "an expired source": ({"expired": ["web"]}, False),
    "the same files in another order": ({"inputs": {"web": [("b", "2"), ("a", "1")]}}, True),
}


@pytest.mark.parametrize("change, same", RECIPES.values(), ids=RECIPES)
def test_recipe_id(change, same):
    assert (digests.recipe_id(**BASE | change) == digests.recipe_id(**BASE)) == same


def test_versions_count_up_and_latest_follows(tmp_path):
    first = synthetic.build(tmp_path, recipe="1")
    second = synthetic.build(tmp_path, recipe="2", docs=synthetic.story()[:2])

    assert [version.number for version in store.versions(tmp_path / "tiny")] == [1, 2]
    assert resolve("tiny", tmp_path) == second.path != first.path


def test_a_number_is_not_given_twice(tmp_path):
    first = synthetic.build(tmp_path, recipe="1")
    (first.path / "manifest.json").unlink()
    assert synthetic.build(tmp_path, recipe="2").path.name.startswith("v0002-")


def test_commits_at_the_same_time_take_their_turns(tmp_path):
    with ThreadPoolExecutor(4) as pool:
        made = list(pool.map(lambda recipe: synthetic.build(tmp_path, recipe=recipe), "12345678"))
    numbers = sorted(int(one.path.name[1:5]) for one in made)
    assert numbers == list(range(1, 9))
    assert resolve("tiny", tmp_path).name.startswith("v0008-")


@pytest.mark.parametrize("step", ["rename", "replace"])
def test_killed_while_it_commits_is_no_version(tmp_path, monkeypatch, step):
    first = synthetic.build(tmp_path, recipe="1")

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, step, killed)
    with pytest.raises(KeyboardInterrupt):
        synthetic.build(tmp_path, recipe="2")
    monkeypatch.undo()
    assert [version.path for version in store.versions(tmp_path / "tiny")] == [first.path]
    assert resolve("tiny", tmp_path) == first.path


def test_the_same_recipe_makes_nothing_new(tmp_path):
    first = synthetic.build(tmp_path)
    again = synthetic.build(tmp_path)

    assert again.existing
    assert (again.path, again.manifest) == (first.path, first.manifest)
    assert find(tmp_path / "tiny", "1" * 64) == (first.path, first.manifest)
    assert find(tmp_path / "tiny", "2" * 64) is None


def test_a_version_that_lost_a_file_is_built_again(tmp_path):
    first = synthetic.build(tmp_path)
    (first.path / "ledger.parquet").unlink()

    assert find(tmp_path / "tiny", "1" * 64) is None
    assert synthetic.build(tmp_path).path.name.startswith("v0002-")


def test_a_failed_build_leaves_its_tables_and_no_version(tmp_path):
    home = tmp_path / "tiny"
    for n in (1, 2):
        staging = tmp_path / "staging"
        staging.mkdir()
        (staging / f"table{n}").touch()
        assert fail(staging, home) == home / "failed"
    assert [path.name for path in (home / "failed").iterdir()] == ["table2"]
    assert store.versions(home) == []


REFS = {
    "nothing is the newest by start": (None, "b2"),
    "a name is its latest": ("a", "a2"),
    "a number": ("a@1", "a1"),
    "a number as in the folder's name": ("a@v0001", "a1"),
    "the whole folder's name": ("a@{a1}", "a1"),
    "hex of the dataset": ("a@{hex}", "a1"),
    "a path to the folder": ("{tmp}/a/{a1}", "a1"),
    "a path to manifest.json": ("{tmp}/a/{a1}/manifest.json", "a1"),
    "a path to a name's folder": ("{tmp}/b", "b2"),
}


@pytest.fixture(scope="module")
def builds(tmp_path_factory) -> tuple[Path, dict[str, Path]]:
    output = tmp_path_factory.mktemp("builds")
    short = synthetic.story()[:2]
    made = {
        "a1": synthetic.build(output, "a", recipe="1", started="2026-01-01T00:00:00+00:00").path,
        "b1": synthetic.build(output, "b", recipe="1", started="2026-01-02T00:00:00+00:00").path,
        "b2": synthetic.build(output, "b", short, recipe="2", started="2026-01-04T00:00:00+00:00").path,
        "a2": synthetic.build(output, "a", short, recipe="2", started="2026-01-03T00:00:00+00:00").path,
    }
    return output, made


@pytest.mark.parametrize("ref, expected", REFS.values(), ids=REFS)
def test_resolve(builds, ref, expected):
    output, made = builds
    names = {"tmp": output, "a1": made["a1"].name, "hex": made["a1"].name.split("-")[1][:6]}
    assert resolve(ref and ref.format(**names), output) == made[expected]


UNKNOWN = {
    "a name that is not there": ("nope", "no build 'nope'.*there are: a, b"),
    "a version that is not there": ("a@7", "no such version; choose one of v0001-.*, v0002-"),
    "hex that fits several": ("a@", None),
    "a path out of the builds": ("../a", "no build"),
    "an empty name": ("", "no build"),
}


@pytest.mark.parametrize("ref, message", UNKNOWN.values(), ids=UNKNOWN)
def test_unknown_builds(builds, ref, message):
    output, made = builds
    if message is None:
        assert resolve(ref, output) == made["a2"], "nothing after the @ is the latest"
        return
    with pytest.raises(ManifestError, match=message):
        resolve(ref, output)


@pytest.mark.parametrize("later", ["a", "b"])
def test_of_what_began_in_one_second_the_newest_was_written_last(tmp_path, later):
    """Whatever its name is: of builds, and of the records of who used one."""
    made = {name: synthetic.build(tmp_path, name, started="2026-01-01T00:00:00+00:00").path for name in "ab"}
    for name, path in made.items():
        record = consumers.write(made["a"], "audit", name, {"started": "2026-01-01T00:00:00+00:00"})
        for file in (path / "manifest.json", record):
            os.utime(file, ns=(5, 5 + (name == later)))
    assert resolve(None, tmp_path) == made[later]
    assert consumers.read(made["a"], "audit")[0]["digest"] == later


def test_no_build_at_all(tmp_path):
    with pytest.raises(ManifestError, match="none yet"):
        resolve(None, tmp_path)


def test_a_lost_latest_is_the_last_version(tmp_path):
    synthetic.build(tmp_path, recipe="1")
    second = synthetic.build(tmp_path, recipe="2")
    for content in (None, "v9999-000000000000", "../../elsewhere"):
        (tmp_path / "tiny/latest").unlink()
        if content:
            (tmp_path / "tiny/latest").write_text(content)
        else:
            (tmp_path / "tiny/latest").touch()
        assert resolve("tiny", tmp_path) == second.path


def _shard_outside(record: dict[str, Any]) -> dict[str, Any]:
    record["splits"]["train"]["shards"][0]["path"] = "../../secret.parquet"
    return record


def _file_outside(record: dict[str, Any]) -> dict[str, Any]:
    record["files"][0]["path"] = "/etc/passwd"
    return record


BROKEN = {
    "another format": (lambda r: r | {"format_version": 7}, DriftError, "format_version is 7"),
    "no format": (lambda r: {k: v for k, v in r.items() if k != "format_version"}, DriftError, "None"),
    "a key too many": (lambda r: r | {"extra": 1}, IntegrityError, "extra"),
    "a key too few": (lambda r: {k: v for k, v in r.items() if k != "stages"}, IntegrityError, "stages"),
    "a shard outside of the build": (_shard_outside, IntegrityError, "no path inside"),
    "a file outside of the build": (_file_outside, IntegrityError, "no path inside"),
    "a list": (lambda _: [1], IntegrityError, "no JSON object"),
}


@pytest.mark.parametrize("change, error, message", BROKEN.values(), ids=BROKEN)
def test_broken_manifests(builds, tmp_path, change, error, message):
    record = read(builds[1]["a1"])
    (tmp_path / "manifest.json").write_text(json.dumps(change(record)))
    with pytest.raises(error, match=message):
        load(tmp_path)


@pytest.mark.parametrize("data, error", [(b"{", IntegrityError), (b"\xff", IntegrityError), (None, DataError)])
def test_unreadable_manifests(tmp_path, data, error):
    if data is not None:
        (tmp_path / "manifest.json").write_bytes(data)
    with pytest.raises(error) as caught:
        load(tmp_path)
    assert isinstance(caught.value, DatapipeError)


def test_the_card_names_the_files_that_load_dataset_reads(builds):
    text = (builds[1]["a1"] / "README.md").read_text()
    front = YAML(typ="safe").load(text.split("---\n")[1])

    files = {c["config_name"]: {f["split"]: f["path"] for f in c["data_files"]} for c in front["configs"]}
    assert files["default"] == {"train": "train/*.parquet", "validation": "validation/*.parquet"}
    assert files["fates"] == {"fates": "fates.parquet"}
    assert "| web | CC0-1.0 |" in text


def unit(output: Path, name: str, size: int, used: int) -> Path:
    folder = output / ".units" / name
    folder.mkdir(parents=True)
    (folder / "unit.json").write_text("{}")
    (folder / "data").write_bytes(b"x" * (size - 2))
    os.utime(folder, (used, used))
    return folder


def test_clean_takes_what_was_not_used_for_longest(tmp_path):
    old, new, newest = (unit(tmp_path, name, 100, used) for name, used in (("c", 1), ("a", 2), ("b", 3)))
    found = sweep(tmp_path, keep=200)

    assert (old.exists(), new.exists(), newest.exists()) == (False, True, True)
    assert (found.removed_units, found.freed_bytes, found.kept_units, found.kept_bytes) == (1, 100, 2, 200)


def test_clean_tells_what_stays_because_builds_hold_it(tmp_path):
    folder = unit(tmp_path, "a", 100, 1)
    os.link(folder / "data", tmp_path / "in-a-build")
    found = sweep(tmp_path, keep=0)

    assert (found.freed_bytes, found.shared_bytes) == (2, 98)
    assert (tmp_path / "in-a-build").stat().st_size == 98


def test_clean_takes_leftovers_and_a_dry_run_takes_nothing(tmp_path):
    unit(tmp_path, "a", 100, 1)
    for name in (".work-x", ".tmp-y", "without-sidecar"):
        (tmp_path / ".units" / name).mkdir()
        (tmp_path / ".units" / name / "data").write_bytes(b"123")
    dry = sweep(tmp_path, keep=1000, dry_run=True)
    assert len([path for path in (tmp_path / ".units").iterdir() if path.is_dir()]) == 4
    assert sweep(tmp_path, keep=1000) == dry
    assert (dry.removed_units, dry.removed_leftovers, dry.freed_bytes) == (0, 3, 9)
    assert [path.name for path in (tmp_path / ".units").iterdir() if path.is_dir()] == ["a"]


def test_clean_leaves_a_running_build_alone(tmp_path):
    folder = unit(tmp_path, "a", 100, 1)
    with open(tmp_path / ".units/.lock", "ab") as build:
        fcntl.flock(build, fcntl.LOCK_SH)
        with pytest.raises(MachineError, match="a build is running"):
            sweep(tmp_path, keep=0)
    assert folder.exists()
    assert sweep(tmp_path, keep=0).removed_units == 1


def test_clean_without_a_store(tmp_path):
    assert sweep(tmp_path, keep=0).removed_units == 0


def test_schemas_of_tables_are_those_of_the_synthetic_build(builds):
    """The maker of tiny builds writes what a build writes; else these tests would test something else."""
    found = pq.read_schema(builds[1]["a1"] / "fates.parquet")
    assert found.equals(tables.FATES)
