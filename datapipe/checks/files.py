"""The files of a build against what manifest.json records of them."""

from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from datapipe import tables
from datapipe.build_manifest import BuildManifest, digests
from datapipe.build_manifest.commit import kept
from datapipe.build_manifest.store import MANIFEST
from datapipe.build_manifest.types import File
from datapipe.checks.check import Check, Progress
from datapipe.units import file_sha256


def digested(made: BuildManifest, build: Path) -> Check:
    """build_digest, and dataset_id as far as manifest.json alone decides it."""
    differences: list[str] = []
    if (digest := digests.build_digest(made.as_json())) != made.build_digest:
        differences.append(f"{MANIFEST}: build_digest is {made.build_digest}, its content gives {digest}")
    if made.tokenizer:
        dataset_id = digests.dataset_id(made.tokenizer.sha256, made.splits.contents())
    else:
        there = (build / "fates.parquet").is_file()  # `present` says so where it is not
        dataset_id = digests.dataset_id_of_documents(kept(build) if there else ())
    if dataset_id != made.dataset_id:
        differences.append(f"{MANIFEST}: dataset_id is {made.dataset_id}, its shards give {dataset_id}")
    if not made.version.endswith(f"-{made.dataset_id[:12]}"):
        differences.append(f"{MANIFEST}: version {made.version} does not end in the first 12 digits of dataset_id")
    return Check("digests", 3, differences)


def present(made: BuildManifest, build: Path, workers: int, told: Progress) -> Check:
    """Every file that files[] names has its bytes, and there is no other."""
    differences: list[str] = []
    with ThreadPoolExecutor(max_workers=workers) as pool:
        for number, wrong in enumerate(pool.map(partial(_file, build), made.files), 1):
            differences += wrong
            told("files", number, len(made.files))
    named = {file.path for file in made.files} | {MANIFEST}
    there = {path.relative_to(build).as_posix() for path in build.rglob("*") if not path.is_dir()}
    differences += [f"{path}: is not in files[] of {MANIFEST}" for path in sorted(there - named)]
    named_by_shards = [shard.path for _, split in made.splits.items() for shard in split.shards]
    differences += [f"{path}: a shard that files[] does not name" for path in named_by_shards if path not in named]
    return Check("files", len(made.files), differences)


def _file(build: Path, file: File) -> list[str]:
    path = build / file.path
    if path.is_symlink() or not path.is_file():
        return [f"{file.path}: missing" if not path.is_symlink() else f"{file.path}: is a link, not a file"]
    if (size := path.stat().st_size) != file.bytes:
        return [f"{file.path}: {size:,} bytes, recorded were {file.bytes:,}"]
    return [] if file_sha256(path) == file.sha256 else [f"{file.path}: sha256 differs from the recorded one"]


def schemas(made: BuildManifest, build: Path) -> Check:
    """The columns of every table, and its number of rows."""
    differences: list[str] = []
    seen = 0
    for file in made.files:
        if not file.path.endswith(".parquet"):
            continue
        seen += 1
        try:
            with pq.ParquetFile(build / file.path) as table:
                differences += _schema(made, file.path, table.schema_arrow)
                rows = table.metadata.num_rows
        except (pa.ArrowInvalid, OSError) as error:
            differences.append(f"{file.path}: is no Parquet file: {error}")
            continue
        if rows != file.rows:
            differences.append(f"{file.path}: {rows} rows, recorded were {file.rows}")
    return Check("schemas", seen, differences)


SCHEMAS = {
    "fates.parquet": tables.FATES,
    "ledger.parquet": tables.LEDGER,
    "bands.parquet": tables.BANDS,
    "rejected.parquet": tables.REFUSED,
    "quarantine.parquet": tables.REFUSED,
    "documents": tables.DOCUMENTS,
}


def _schema(made: BuildManifest, path: str, found: pa.Schema) -> list[str]:
    folder = path.split("/", 1)[0]
    expected = SCHEMAS.get(folder)
    if folder in ("train", "validation") and made.tokenizer:
        storage = made.manifest.get("shards", {}).get("storage", "list")
        expected = tables.shard_schema(storage, made.manifest["sequences"]["length"], made.tokenizer.max_id)
    if path == "signatures.parquet":
        kind = found.field("signature").type if "signature" in found.names else None
        size = kind.list_size if kind is not None and pa.types.is_fixed_size_list(kind) else 0
        expected = tables.signatures_schema(size)
    if path.startswith("signals/"):
        wrong = [f.name for f in found if f.type not in (pa.float64(), pa.int64(), pa.int32())]
        return [f"{path}: column {name} is no number" for name in wrong]
    if expected is None:
        return [f"{path}: no table of a build"]
    if found.remove_metadata().equals(expected):
        return []
    ours, theirs = ({f"{field.name} {field.type}" for field in schema} for schema in (expected, found))
    return [f"{path}: columns differ: missing {sorted(ours - theirs)}, unknown {sorted(theirs - ours)}, or their order"]
