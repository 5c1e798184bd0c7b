"""
A finished staging folder becomes a version: files named and digested, the card, manifest.json last, one rename.

Killed before the rename, nothing was made; after it, everything was.
"""

import fcntl
import importlib
import json
import os
import platform
import shutil
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from datapipe import __version__, collateral
from datapipe.build_manifest import card, digests, store
from datapipe.build_manifest.types import (
    BuildManifest,
    Decontaminate,
    File,
    Holdout,
    Input,
    NearDedup,
    Run,
    Snapshot,
    Split,
    Splits,
    Stage,
    Tokenizer,
)
from datapipe.keyed import canonical
from datapipe.units import file_sha256, fsync_folder, library

LIBRARIES = ("datasketch", "duckdb", "numba", "numpy", "phonenumbers", "pyarrow", "tokenizers", "xxhash")


class Report(collateral.Report, Protocol):
    """And what its own part of manifest.json says."""

    @property
    def entered(self) -> int: ...
    @property
    def left(self) -> int: ...
    @property
    def dropped(self) -> Mapping[str, int]: ...
    @property
    def dropped_by_source(self) -> Mapping[str, Mapping[str, int]]: ...
    @property
    def not_judged(self) -> Mapping[str, int]: ...


@dataclass(frozen=True)
class Record:
    """
    What manifest.json says beyond the files of the build, which speak for themselves.

    manifest:  manifest.as_written()
    inputs:    read's book of each input file, in order of source and path
    reports:   docs.reports, admit first; holdout and near dedup are taken from their notes
    tokenizer: tokens.Tokenizer.record(); None without one
    splits:    what shards.write gave; None without a tokenizer: then dataset_id is made of the kept rows of fates
    edits:     source -> edit -> documents changed
    languages: source -> lang -> documents;  models, lists: what classified and what was looked up -> sha256
    """

    name: str
    recipe_id: str
    manifest: Mapping[str, Any]
    inputs: Sequence[Mapping[str, object]]
    reports: Sequence[Report]
    sources: Sequence[str]
    tokenizer: Mapping[str, Any] | None
    splits: Mapping[str, object] | None
    edits: Mapping[str, Mapping[str, int]]
    languages: Mapping[str, Mapping[str, int]] = field(default_factory=dict[str, Mapping[str, int]])
    models: Mapping[str, str] = field(default_factory=dict[str, str])
    lists: Mapping[str, str] = field(default_factory=dict[str, str])
    libraries: Sequence[str] = LIBRARIES


@dataclass(frozen=True)
class Committed:
    """The version that is there now; `existing`: another process had made the same one in the meantime."""

    path: Path
    manifest: BuildManifest
    existing: bool


def commit(
    record: Record, staging: Path, home: Path, run: Callable[[], Mapping[str, object]], workers: int = 1
) -> Committed:
    """
    Make `staging` (on the file system of `home`) the next version under `home` = builds/<name>, and `latest` its name.

    run: asked last, so that its seconds and peak are those of the whole build.
    """
    home.mkdir(parents=True, exist_ok=True)
    draft = _draft(record, staging, _files(staging, workers))
    with _locked(home):
        if found := store.find(home, record.recipe_id):
            return Committed(*found, existing=True)
        version = f"v{store.next_number(home):04d}-{draft['dataset_id'][:12]}"
        made = _finish(draft | {"version": version, "run": _plain(run())}, staging)
        staging.rename(home / version)
        fsync_folder(home)
        _write(home / store.LATEST, f"{version}\n")
    return Committed(home / version, made, existing=False)


def fail(
    staging: Path, home: Path, record: Record | None = None, run: Callable[[], Mapping[str, object]] | None = None
) -> Path:
    """
    No version is made: the tables that show why lie in builds/<name>/failed, which this replaces.

    With a record failed.json says of them what manifest.json says of a version, so that `show` can read them.
    """
    home.mkdir(parents=True, exist_ok=True)
    failed = home / store.FAILED_FOLDER
    if record is not None and run is not None:
        draft = _draft(record, staging, _files(staging, 1))
        draft |= {"version": store.FAILED_FOLDER, "run": _plain(run()), "build_digest": "0" * 64}
        told = BuildManifest.model_validate_json(json.dumps(draft)).as_json()
        _write(staging / store.FAILED, json.dumps(told, indent=1, ensure_ascii=False, allow_nan=False) + "\n")
    with _locked(home):
        shutil.rmtree(failed, ignore_errors=True)
        staging.rename(failed)
    return failed


@contextmanager
def _locked(home: Path) -> Generator[None]:
    """One commit at a time under a name: the counter and `latest` belong to who holds the lock.  It is held briefly."""
    with open(home / ".lock", "ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _draft(record: Record, staging: Path, files: list[File]) -> dict[str, Any]:
    """manifest.json without version, run, build_digest and the card."""
    splits = _splits(record, staging)
    return {
        "name": record.name,
        "recipe_id": record.recipe_id,
        "dataset_id": _dataset_id(record, splits, staging),
        "tool": f"datapipe {__version__}",
        "libraries": {"python": platform.python_version()} | {name: library(name) for name in sorted(record.libraries)},
        "manifest": json.loads(json.dumps(record.manifest)),  # in its own order, which decides: see Manifest.recipe
        "inputs": [_entry(Input, _input(entry)) for entry in record.inputs],
        "snapshots": _snapshots(record, staging),
        "stages": [_entry(Stage, _stage(report)) for report in record.reports],
        "holdout": _holdout(record.reports),
        "near_dedup": _near_dedup(record.reports),
        "decontaminate": _decontaminate(record.reports),
        "tokenizer": _entry(Tokenizer, record.tokenizer),
        "sources": list(record.sources),
        "splits": splits.model_dump(mode="json"),
        "edits": _plain(record.edits),
        "languages": _plain(record.languages),
        "models": _plain(record.models),
        "lists": _plain(record.lists),
        "files": [file.model_dump(mode="json") for file in files],
    }


def _finish(draft: dict[str, Any], staging: Path) -> BuildManifest:
    """The card, the digest, and manifest.json, written last."""
    draft["run"] = Run.model_validate_json(json.dumps(draft["run"])).model_dump(mode="json")
    unsigned = BuildManifest.model_validate_json(json.dumps(draft | {"build_digest": "0" * 64}))
    _write(staging / digests.CARD, card.card(unsigned))
    files = sorted([*unsigned.files, _file(staging, staging / digests.CARD)], key=lambda file: file.path)
    record = unsigned.model_copy(update={"files": tuple(files)}).as_json()
    record["build_digest"] = digests.build_digest(record)
    fsync_folder(staging)
    _write(staging / store.MANIFEST, json.dumps(record, indent=1, ensure_ascii=False, allow_nan=False) + "\n")
    fsync_folder(staging)
    return BuildManifest.model_validate_json(json.dumps(record))


def _splits(record: Record, staging: Path) -> Splits:
    if record.splits is not None:
        return Splits.model_validate_json(json.dumps(_plain(record.splits)))
    counted = Counter(split for _, split in kept(staging))
    return Splits(train=Split.without_tokens(counted["train"]), validation=Split.without_tokens(counted["validation"]))


def _dataset_id(record: Record, splits: Splits, staging: Path) -> str:
    if record.tokenizer is None:
        return digests.dataset_id_of_documents(kept(staging))
    return digests.dataset_id(record.tokenizer["sha256"], splits.contents())


def kept(build: Path) -> Iterator[tuple[str, str]]:
    """(doc_id, split) of every kept document, in order of doc_id."""
    for row in _fates(build, "doc_id", "split", "fate"):
        if row["fate"] == "kept":
            yield row["doc_id"], row["split"]


def _fates(staging: Path, *columns: str) -> Iterator[dict[str, Any]]:
    """The columns of fates.parquet, a document at a time."""
    with _parquet().ParquetFile(staging / "fates.parquet") as file:
        for batch in file.iter_batches(columns=list(columns)):
            yield from batch.to_pylist()


def _snapshots(record: Record, staging: Path) -> dict[str, Any]:
    """What each source's documents say of their snapshot, beside what the manifest asked."""
    counted = Counter((row["source"], row["snapshot"]) for row in _fates(staging, "source", "snapshot"))
    found: dict[str, Any] = {}
    for source in record.sources:
        asked: dict[str, object] = record.manifest["sources"][source].get("snapshot") or {}
        named = {
            name: n for (whose, name), n in sorted(counted.items(), key=str) if whose == source and name is not None
        }
        found[source] = _entry(Snapshot, {**asked, "documents": named, "without": counted[source, None]})
    return found


def _notes(reports: Sequence[Report], stage: str) -> Mapping[str, Any] | None:
    return next((report.notes for report in reports if report.stage == stage), None)


def _holdout(reports: Sequence[Report]) -> Any:
    """The holdout, and what each dedup stage took out of train because of it."""
    notes = _notes(reports, "holdout")
    if notes is None:
        return None
    leaks = [(kind, _notes(reports, f"{kind}_dedup")) for kind in ("exact", "near")]
    return _entry(Holdout, {**notes, "leak": {kind: found["leak"] for kind, found in leaks if found is not None}})


def _near_dedup(reports: Sequence[Report]) -> Any:
    notes = _notes(reports, "near_dedup")
    return _entry(NearDedup, {key: value for key, value in notes.items() if key != "leak"} if notes else None)


def _decontaminate(reports: Sequence[Report]) -> list[Any]:
    named = [report for report in reports if report.stage == "decontaminate"]
    return [_entry(Decontaminate, {**report.notes, "place": report.place}) for report in named]


def _input(book: Mapping[str, Any]) -> dict[str, Any]:
    """The book of an input as types.Input: the reader counts what it refused by reason, here are sums and reasons."""
    entry = {key: value for key, value in book.items() if key != "rows"}
    reasons: dict[str, dict[str, int]] = {key: dict(entry[key]) for key in ("rejected", "quarantined")}
    return entry | {key: sum(found.values()) for key, found in reasons.items()} | {"reasons": reasons}


def _stage(report: Report) -> dict[str, object]:
    return {
        "stage": report.stage,
        "place": report.place,
        "in": report.entered,
        "out": report.left,
        "dropped": dict(report.dropped),
        "dropped_by_source": {source: dict(rules) for source, rules in report.dropped_by_source.items()},
        "not_judged": dict(report.not_judged),
        "judged": report.notes.get("judged", []),
        "collateral": report.notes.get("collateral", []),
    }


def _files(staging: Path, workers: int) -> list[File]:
    """Every file of the folder, on disk for good, sorted by path."""
    paths = sorted(path for path in staging.rglob("*") if path.is_file())
    with ThreadPoolExecutor(max_workers=workers) as pool:
        files = list(pool.map(partial(_file, staging), paths))
    for folder in {path.parent for path in paths}:
        fsync_folder(folder)
    return sorted(files, key=lambda file: file.path)


def _file(staging: Path, path: Path) -> File:
    with open(path, "rb") as file:
        os.fsync(file.fileno())
    rows = _rows(path) if path.suffix == ".parquet" else None
    relative = path.relative_to(staging).as_posix()
    return File(path=relative, bytes=path.stat().st_size, rows=rows, sha256=file_sha256(path))


def _rows(path: Path) -> int:
    with _parquet().ParquetFile(path) as file:
        return int(file.metadata.num_rows)


def _parquet() -> Any:
    """pyarrow.parquet, which ships no types; loaded on call, so that reading a manifest.json does without it."""
    return importlib.import_module("pyarrow.parquet")


def _entry(model: type[Any], entry: Mapping[str, object] | None) -> Any:
    """An entry, checked; as JSON."""
    if entry is None:
        return None
    return model.model_validate_json(json.dumps(_plain(entry))).model_dump(mode="json", by_alias=True)


def _plain(value: Mapping[str, object] | Mapping[str, Mapping[str, int]]) -> dict[str, Any]:
    """A mapping as JSON gives it back: dates as ISO, tuples as lists."""
    return json.loads(canonical(value))


def _write(path: Path, text: str) -> None:
    """A file that is there whole or not at all, and stays.  Only one process writes here: see _locked."""
    temporary = path.with_name(f".{path.name}.tmp")
    with open(temporary, "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
    fsync_folder(path.parent)
