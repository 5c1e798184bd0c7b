"""
Golden digests: what the shipped manifests make, and what each function of a unit writes.

    python tests/golden.py      rewrites tests/golden.json, after a VERSION was raised on purpose

`dataset_id` is promised for every version of the libraries; bytes of files for the versions of constraints.txt alone.
"""

import json
import tempfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from datapipe import edits, pipeline, signals
from datapipe import manifest as manifests
from datapipe.build_manifest import Built
from datapipe.units import SIDECAR, digest

CHECKOUT = Path(__file__).parents[1]
GOLDEN = Path(__file__).with_name("golden.json")
NAMES = ("demo", "cyclic16", "web")


def build(name: str, output: Path, *, workers: int = 2) -> Built:
    """One of the shipped manifests, built below `output`."""
    asked = manifests.load(CHECKOUT / "manifests" / f"{name}.yaml")
    built = pipeline.build(asked, workers=workers, memory=1_000_000_000, output=output)
    assert isinstance(built, Built)
    return built


def unit_digests(store: Path) -> dict[str, dict]:
    """function -> its version, and a digest of all that its units in a store wrote."""
    found: dict[str, dict] = {}
    for sidecar in store.glob(f"*/{SIDECAR}"):
        record = json.loads(sidecar.read_bytes())
        entry = found.setdefault(record["function"], {"version": record["version"], "outputs": []})
        assert entry["version"] == record["version"]
        entry["outputs"].append([file["sha256"] for _, file in sorted(record["files"].items())])
    return {
        name: {"version": entry["version"], "sha256": digest(sorted(entry["outputs"]))}
        for name, entry in sorted(found.items())
    }


def of(built: Built) -> dict:
    """What is compared of a build."""
    record = built.manifest.as_json()
    files = {file["path"]: file["sha256"] for file in record["files"] if file["path"] != "README.md"}
    return {
        "dataset_id": record["dataset_id"],
        "libraries": {name: version for name, version in record["libraries"].items() if name != "python"},
        "files": digest(files),
        "units": unit_digests(built.path.parents[1] / ".units"),
    }


def of_texts() -> dict:
    """What every signal and every edit makes of all texts of the fixtures, with its version."""
    texts = pa.array([text for name in ("web", "wiki", "code", "chinese") for text in _texts(name)], pa.large_string())
    measured = signals.measure(texts, list(signals.SIGNALS))
    edited = {name: edits.EDITS[name](texts).to_pylist() for name in edits.EDITS}
    return {
        "signals": {
            "version": signals.VERSION,
            "sha256": {
                name: digest(column.to_pylist()) for name, column in zip(signals.SIGNALS, measured, strict=True)
            },
        },
        "edits": {name: {"version": edits.VERSIONS[name], "sha256": digest(out)} for name, out in edited.items()},
    }


def _texts(name: str) -> list[str]:
    (path,) = (CHECKOUT / "fixtures/docs").glob(f"{name}.*")
    if path.suffix == ".parquet":
        return pq.read_table(path)["text"].to_pylist()
    texts = []
    with pa.input_stream(str(path)) as file:
        for line in file.read().split(b"\n"):
            try:
                texts.append(json.loads(line)["text"])
            except (ValueError, TypeError, KeyError):
                continue  # the broken records of web
    return [text.encode("utf-8", "replace").decode() for text in texts if isinstance(text, str)]


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        found = {name: of(build(name, Path(folder) / name)) for name in NAMES}
    found["texts"] = of_texts()
    GOLDEN.write_text(json.dumps(found, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
