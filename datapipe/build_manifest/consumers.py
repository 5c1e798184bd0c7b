"""
Who used a build: builds/<name>/consumers/<kind>-<digest>.json, a file each, written whole.

kind: audit, export, run, checkpoint;  digest: 16 hex of what it made.  The record says which version was used, when,
and where what was made lies; the build itself is not touched.
"""

import json
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from datapipe.units import fsync_folder

FOLDER = "consumers"
DIGITS = 16


def path(build: Path, kind: str, digest: str, suffix: str = ".json") -> Path:
    """Where the record of that digest lies, for a build's folder builds/<name>/<version>."""
    return build.resolve().parent / FOLDER / f"{kind}-{digest[:DIGITS]}{suffix}"


def write(build: Path, kind: str, digest: str, record: Mapping[str, Any]) -> Path:
    """Write the record of a consumer; one of the same digest is replaced."""
    entry = {"kind": kind, "digest": digest, "version": build.resolve().name, **record}
    return put(path(build, kind, digest), (json.dumps(entry, indent=1, ensure_ascii=False) + "\n").encode())


def put(target: Path, data: bytes) -> Path:
    """A file that is there whole or not at all."""
    target.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(prefix=f".{target.name}-", dir=target.parent)
    try:
        with open(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o644)
        os.replace(temporary, target)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    fsync_folder(target.parent)
    return target


def read(build: Path, kind: str) -> list[dict[str, Any]]:
    """The records of a kind about that version, newest first; what is not JSON is no record."""
    found: list[tuple[str, int, dict[str, Any]]] = []
    for one in (build.resolve().parent / FOLDER).glob(f"{kind}-*.json"):
        try:
            entry: Any = json.loads(one.read_bytes())
        except ValueError:
            continue
        if isinstance(entry, dict) and entry.get("version") == build.resolve().name:  # pyright: ignore[reportUnknownMemberType]
            # a second may see several begin
            found.append((str(entry.get("started")), one.stat().st_mtime_ns, entry))  # pyright: ignore[reportUnknownMemberType, reportUnknownArgumentType]
    return [entry for *_, entry in sorted(found, key=lambda one: one[:2], reverse=True)]
