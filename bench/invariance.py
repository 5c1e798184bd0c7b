"""
The same bytes whatever happens on the way: workers, layout of files, kills.

    python bench/invariance.py MANIFEST --out DIR [--memory 2GB] [--kills 10] [--seed 1]

Builds MANIFEST with one worker and with two, from its documents dealt anew over other files in another order, and
killed with SIGKILL again and again at random moments until it ends; then compares the builds file by file.
The manifest's sources must be JSONL files, plain or zstd.
"""

import argparse
import hashlib
import json
import os
import random
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import zstandard
from ruamel.yaml import YAML

from datapipe import manifest as manifests
from datapipe.read import files

PER_LAYOUT = {"name", "version", "parents", "run"}  # what two equal builds may differ in


def build(manifest: Path, output: Path, workers: int, memory: str, *, kill_after: float | None = None) -> bool:
    """Run one build; True when it ended by itself."""
    command = [sys.executable, "-m", "datapipe", "build", str(manifest), "--output", str(output),
               "--workers", str(workers), "--memory", memory]  # fmt: skip
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    try:
        _, errors = process.communicate(timeout=kill_after)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGKILL)
        process.communicate()
        return False
    if process.returncode:
        sys.exit(f"the build failed with status {process.returncode}:\n{errors.decode()[-3000:]}")
    return True


def newest(output: Path, name: str) -> Path:
    return output / name / (output / name / "latest").read_text().strip()


def digests(folder: Path) -> dict[str, str]:
    """sha256 of every file of a build; of manifest.json without what two equal builds may differ in."""
    found = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file() and path.name not in ("manifest.json", "README.md"):
            found[str(path.relative_to(folder))] = hashlib.sha256(path.read_bytes()).hexdigest()
    record = json.loads((folder / "manifest.json").read_bytes())
    kept = {key: value for key, value in record.items() if key not in PER_LAYOUT}
    kept["files"] = [entry for entry in record["files"] if entry["path"] != "README.md"]
    found["manifest.json"] = hashlib.sha256(json.dumps(kept, sort_keys=True).encode()).hexdigest()
    return found


def deal_anew(manifest: Path, folder: Path, seed: int, count: int = 7) -> Path:
    """The same documents in other files, in another order; the manifest that names them."""
    yaml = YAML()
    with open(manifest, encoding="utf-8") as file:
        asked = yaml.load(file)
    chance = random.Random(seed)
    for name, source in asked["sources"].items():
        lines: list[bytes] = []
        for _, path in files.find(manifests.load(manifest), name):
            data = path.read_bytes()
            if path.suffix == ".zst":
                data = zstandard.ZstdDecompressor().decompressobj().decompress(data)
            lines += [line for line in data.split(b"\n") if line.strip()]
        chance.shuffle(lines)
        (folder / name).mkdir(parents=True)
        for n in range(count):
            dealt = b"\n".join(lines[n::count]) + b"\n"
            if n % 2:
                (folder / name / f"{n}.jsonl.zst").write_bytes(zstandard.ZstdCompressor().compress(dealt))
            else:
                (folder / name / f"{n}.jsonl").write_bytes(dealt)
        source["files"] = [str(folder / name / "*.jsonl*")]
        source.pop("exclude", None)
    target = folder / "manifest.yaml"
    with open(target, "w", encoding="utf-8") as file:
        yaml.dump(asked, file)
    return target


def compare(label: str, one: dict[str, str], other: dict[str, str]) -> bool:
    different = sorted(name for name in one.keys() | other.keys() if one.get(name) != other.get(name))
    found = f"DIFFERENT: {', '.join(different[:8])}" if different else f"equal, {len(one)} files"
    print(f"{label}: {found}")
    return not different


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("manifest", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--memory", default="2GB")
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    with open(options.manifest, encoding="utf-8") as file:
        name = YAML().load(file)["name"]
    options.out.mkdir(parents=True)

    started = time.monotonic()
    build(options.manifest, options.out / "two", 2, options.memory)
    seconds = time.monotonic() - started
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1e6
    print(f"two workers: {seconds:.0f} s, peak RSS {peak:.2f} GB")
    first = newest(options.out / "two", name)
    expected = digests(first)

    started = time.monotonic()
    build(options.manifest, options.out / "one", 1, options.memory)
    print(f"one worker: {time.monotonic() - started:.0f} s")
    good = compare("one worker and two", expected, digests(newest(options.out / "one", name)))

    chance = random.Random(options.seed)
    kills = 0
    while kills < options.kills:
        if build(options.manifest, options.out / "killed", 2, options.memory,
                 kill_after=chance.uniform(0.01, 0.2) * seconds):  # fmt: skip
            break
        kills += 1
    build(options.manifest, options.out / "killed", 2, options.memory)
    good &= compare(f"killed {kills} times", expected, digests(newest(options.out / "killed", name)))

    dealt = newest_of_dealt(options, name)
    shards = {path: sha for path, sha in expected.items() if path.startswith(("train/", "validation/"))}
    other = {path: sha for path, sha in digests(dealt).items() if path.startswith(("train/", "validation/"))}
    good &= compare("dealt over other files, shards", shards, other)
    ids = [json.loads((folder / "manifest.json").read_bytes())["dataset_id"] for folder in (first, dealt)]
    print(f"dataset_id: {ids[0][:12]} and {ids[1][:12]}")
    sys.exit(0 if good and ids[0] == ids[1] else 1)


def newest_of_dealt(options: argparse.Namespace, name: str) -> Path:
    manifest = deal_anew(options.manifest, Path(os.path.abspath(options.out / "dealt-input")), options.seed)
    build(manifest, options.out / "dealt", 2, options.memory)
    return newest(options.out / "dealt", name)


if __name__ == "__main__":
    main()
