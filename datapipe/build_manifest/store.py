"""
Where builds lie: builds/<name>/<version>/, builds/<name>/latest, and how a user names one.

A version is v0003-9f2c41d7a0be: a counter taken under the lock at commit, and 12 hex of dataset_id.
"""

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from datapipe.build_manifest.types import FORMAT_VERSION, BuildManifest
from datapipe.errors import DataError, DriftError, IntegrityError, ManifestError

MANIFEST = "manifest.json"
LATEST = "latest"
# the tables of a build that a limit refused, and what tells of them: a folder that only `show` reads
FAILED_FOLDER, FAILED = "failed", "failed.json"
VERSION = re.compile(r"v(\d{4,})-([0-9a-f]{12})")


@dataclass(frozen=True, order=True)
class Version:
    """A finished version: its counter, 12 hex of its dataset_id, its folder."""

    number: int
    hex: str
    path: Path


def versions(home: Path) -> list[Version]:
    """The finished versions under builds/<name>, oldest first."""
    found: list[Version] = []
    for path in home.glob("v*"):
        match = VERSION.fullmatch(path.name)
        if match and (path / MANIFEST).is_file():
            found.append(Version(int(match[1]), match[2], path))
    return sorted(found)


def next_number(home: Path) -> int:
    """The counter of the next version; call it under the lock.  Folders without manifest.json count as taken."""
    taken = [int(match[1]) for path in home.glob("v*") if (match := VERSION.fullmatch(path.name))]
    return max(taken, default=0) + 1


def load(build: Path) -> BuildManifest:
    """The manifest.json of a build folder (failed.json of a refused one), checked against this version's keys."""
    refused = (build / FAILED).is_file() and not (build / MANIFEST).is_file()
    path = build / (FAILED if refused else MANIFEST)
    return checked(_read(path), str(path))


def checked(record: dict[str, Any], path: str) -> BuildManifest:
    """The manifest.json that holds a JSON object; `path` is what messages call it."""
    written = record.get("format_version")
    if written != FORMAT_VERSION:
        raise DriftError(
            f"{path}: format_version is {written!r}, this version of datapipe reads {FORMAT_VERSION}; "
            "use the version that made the build (key `tool`), or build again"
        )
    try:
        return BuildManifest.model_validate_json(json.dumps(record))
    except ValidationError as error:
        wrong = "; ".join(
            f"{'.'.join(str(part) for part in problem['loc'])}: {problem['msg']}" for problem in error.errors()[:3]
        )
        raise IntegrityError(f"{path} is not as datapipe writes it: {wrong}; build again") from None


def _read(path: Path) -> dict[str, Any]:
    try:
        return parsed(path.read_bytes(), str(path))
    except FileNotFoundError:
        raise DataError(f"{path.parent}: no {MANIFEST}, so this is no finished build") from None


def parsed(data: bytes, path: str) -> dict[str, Any]:
    """The JSON object in the bytes of a manifest.json."""
    try:
        record = json.loads(data)
    except (ValueError, RecursionError):
        raise IntegrityError(f"{path} is not JSON; build again") from None
    if not isinstance(record, dict):
        raise IntegrityError(f"{path} holds no JSON object; build again")
    return record  # pyright: ignore[reportUnknownVariableType]


def find(home: Path, recipe_id: str) -> tuple[Path, BuildManifest] | None:
    """The newest version that this recipe has made, if its files are all there with their sizes."""
    for version in reversed(versions(home)):
        if _read(version.path / MANIFEST).get("recipe_id") == recipe_id:
            manifest = load(version.path)
            if _complete(version.path, manifest):
                return version.path, manifest
    return None


def _complete(build: Path, manifest: BuildManifest) -> bool:
    try:
        return all((build / file.path).stat().st_size == file.bytes for file in manifest.files)
    except FileNotFoundError:
        return False


def resolve(ref: str | None, output: Path = Path("builds"), *, failed: bool = False) -> Path:
    """
    The folder of a build: a path, `name`, `name@3`, `name@v0003`, `name@9f2c`, or None for the newest of all.

    An existing path to a build (its folder, its manifest.json, or builds/<name>) wins.
    failed: the tables of a build that a limit refused will do, too: builds/<name>/failed, `name@failed`
    """
    if ref is None:
        return _newest(output)
    if failed and (refused := _refused(ref, output)):
        return refused
    path = _of_path(Path(ref).expanduser())
    return path or _of_name(ref, output)


def _refused(ref: str, output: Path) -> Path | None:
    name, _, wanted = ref.partition("@")
    named = [output / name / FAILED_FOLDER] if wanted == FAILED_FOLDER and name and "/" not in name else []
    return next((path for path in [Path(ref).expanduser(), *named] if (path / FAILED).is_file()), None)


def _of_path(path: Path) -> Path | None:
    if path.name == MANIFEST and path.is_file():
        return path.parent
    if (path / MANIFEST).is_file():
        return path
    return latest(path) if path.is_dir() and versions(path) else None


def latest(home: Path) -> Path:
    """The version that builds/<name>/latest names; the last one where that file is gone or names none."""
    found = versions(home)
    try:
        named = (home / LATEST).read_text("utf-8").strip()
    except (FileNotFoundError, UnicodeDecodeError):
        named = ""
    return next((version.path for version in found if version.path.name == named), found[-1].path)


def _of_name(ref: str, output: Path) -> Path:
    name, _, wanted = ref.partition("@")
    home = output / name
    found = versions(home) if name and "/" not in name and home.is_dir() else []
    if not found:
        raise ManifestError(f"no build {ref!r}: no such path, and no such name under {output}/; {_known(output)}")
    if not wanted:
        return latest(home)
    fitting = _fitting(found, wanted)
    if len(fitting) == 1:
        return fitting[0].path
    names = ", ".join(version.path.name for version in fitting or found)
    what = "several versions fit" if fitting else "no such version"
    raise ManifestError(f"{ref}: {what}; choose one of {names}")


def _fitting(found: list[Version], wanted: str) -> list[Version]:
    if match := re.fullmatch(r"v?(\d+)", wanted):
        numbered = [version for version in found if version.number == int(match[1])]
        if numbered or wanted.startswith("v"):
            return numbered
    if exact := [version for version in found if version.path.name == wanted]:
        return exact
    # the same data may have been made by several recipes: the newest of equal ones stands for all
    by_hex = {version.hex: version for version in found if version.hex.startswith(wanted.lower())}
    return list(by_hex.values())


def _known(output: Path) -> str:
    names = sorted(home.name for home in output.glob("[!.]*") if home.is_dir() and versions(home))
    return f"there are: {', '.join(names)}" if names else "there is none yet: `datapipe build MANIFEST` makes one"


def _newest(output: Path) -> Path:
    started: list[tuple[str, int, Path]] = []
    for home in output.glob("[!.]*"):
        for version in versions(home):
            run = _read(version.path / MANIFEST).get("run")
            when = run.get("started") if isinstance(run, dict) else None  # pyright: ignore[reportUnknownVariableType, reportUnknownMemberType]
            written = (version.path / MANIFEST).stat().st_mtime_ns  # a second may see several begin
            started.append((str(when), written, version.path))  # pyright: ignore[reportUnknownArgumentType]
    if not started:
        raise ManifestError(f"no build under {output}/: {_known(output)}")
    return max(started)[2]
