"""
Golden digests: what the shipped manifests make, and what each function of a unit writes.

    python tests/golden.py      rewrites tests/golden.json, after a VERSION was raised on purpose

`dataset_id` is promised for every version of the libraries; bytes of files for the versions of constraints.txt alone.
"""

import json
import tempfile
from pathlib import Path

from datapipe import manifest as manifests
from datapipe import pipeline
from datapipe.build_manifest import Built
from datapipe.units import SIDECAR, digest

CHECKOUT = Path(__file__).parents[1]
GOLDEN = Path(__file__).with_name("golden.json")
NAMES = ("demo", "cyclic16")


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


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        found = {name: of(build(name, Path(folder) / name)) for name in NAMES}
    GOLDEN.write_text(json.dumps(found, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
