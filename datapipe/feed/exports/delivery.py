"""An export: every document (or row) of the splits asked for, in the files of a format, with books that close."""

import importlib
import importlib.util
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

import numpy as np

from datapipe import __version__
from datapipe.build_manifest import consumers
from datapipe.errors import DataError, ManifestError
from datapipe.feed import dataset
from datapipe.feed.batch import Rows
from datapipe.feed.exports import formats
from datapipe.feed.exports.counting import Books
from datapipe.feed.exports.documents import whole
from datapipe.feed.exports.staging import FILE, refuse, staged
from datapipe.units import digest, file_sha256, fsync_folder

FORMATS = ("nanogpt", "megatron", "olmo", "datatrove", "mds", "litdata")
KIND = "export"
SPLITS = ("train", "validation")
ROWS = 1024  # rows that are read at a time where rows are written

Progress = Callable[[str, int, int | None], None]


@dataclass(frozen=True)
class Exported:
    """
    What was written into `out`; export.json there says the same, but for out and consumer.

    splits:   per split its books (see counting.Books), the build's shards, and what the format says: dtype, ...
    loses:    per split, what is in the build and not in the files, or not seen by who reads them
    files:    {path, bytes, sha256}
    consumer: the record in the build's folder; None where that is not on this machine
    """

    format: str
    build: str
    version: str
    dataset_id: str
    tokenizer: Mapping[str, Any]
    splits: Mapping[str, Mapping[str, Any]]
    loses: Mapping[str, Sequence[str]]
    files: Sequence[Mapping[str, Any]]
    tool: str
    out: str
    consumer: str | None

    def as_json(self) -> dict[str, Any]:
        """What json.dumps takes."""
        return asdict(self)


def export(
    build: str | os.PathLike[str] | None,
    to: str,
    out: str | os.PathLike[str],
    *,
    splits: Sequence[str] | None = None,
    force: bool = False,
    cache: str | os.PathLike[str] | None = None,
    output: str | os.PathLike[str] = "builds",
    progress: Progress = lambda what, done, total: None,
) -> Exported:
    """
    Write a build into the folder `out`, in a format of FORMATS.

    splits: train, validation; by default those that have rows
    force:  an export that lies in `out` is replaced; nothing else ever is

    Shards are checked while they are read, one at a time.  `out` is there whole in the end or not at all, and the
    build's consumers/ have a record of it.
    """
    form = _format(to)
    folder = Path(out).expanduser().resolve()
    with dataset.open(build, cache=cache, output=output) as data:
        target = _target(data)
        _fits(to, form, target)
        chosen = _chosen(data, splits)
        refuse(folder, data.path, force)
        with staged(folder) as staging:
            books = {name: _write(form, data, name, staging, target, progress) for name in chosen}
            made = {
                "format": to,
                "build": data.made.name,
                "version": data.made.version,
                "dataset_id": data.dataset_id,
                "tokenizer": _tokenizer(data),
                "splits": books,
                "loses": {
                    name: [lost.what.format(**b) for lost in form.LOSES if b[lost.when]] for name, b in books.items()
                },
                "files": _settle(staging),
                "tool": f"datapipe {__version__}",
            }
            _put(staging / FILE, made)
            consumer = _register(data, folder, made)
    return Exported(**made, out=str(folder), consumer=consumer)


def read_export(
    to: str,
    path: str | os.PathLike[str],
    *,
    split: str = "train",
    dtype: str | None = None,
    eos: int | None = None,
) -> Iterator[formats.Document]:
    """
    The documents of files in a format: (ids, mask), by memory map where the format lets them; mask None: all, or
    the format has none.

    path:  a file, or a folder with that split, of datapipe's or of another's making
    dtype: of ids, for files that do not say it: uint16, uint32, ...; what export.json beside them says otherwise
    eos:   the id that ends a document, for files without borders, which are else one document each
    """
    form = _format(to)
    if split not in SPLITS:
        raise ManifestError(f"no split {split!r}: there are {' and '.join(SPLITS)}")
    if form.READER:
        raise ManifestError(f"{to}: read it with {form.READER}; its samples are rows, not documents")
    where = Path(path).expanduser()
    said = dtype or _said(where, to, split)
    try:
        kind = np.dtype(said) if said else None
    except TypeError:
        raise ManifestError(f"dtype is {said!r}, expected an integer type of numpy such as uint16") from None
    return form.read(where, split, formats.Ask(kind, eos))


def _format(name: str) -> formats.Format:
    """The module of a format, loaded on call."""
    if name not in FORMATS:
        hint = "; a build's shards are Parquet as they are: load_dataset reads its folder" if name == "parquet" else ""
        raise ManifestError(f"no format {name!r}: there are {', '.join(FORMATS)}{hint}")
    return cast(formats.Format, importlib.import_module(f"datapipe.feed.exports.{name}"))


def _fits(name: str, form: formats.Format, target: formats.Target) -> None:
    """A ManifestError where the format cannot hold the ids, or what writes it is not here."""
    if form.LARGEST is not None and target.vocabulary > form.LARGEST:
        raise ManifestError(
            f"{name}: a vocabulary of {target.vocabulary:,} does not fit into its ids (at most {form.LARGEST:,}); use "
            "--to megatron, olmo or datatrove, whose ids are 32 bits wide then"
        )
    if form.PACKAGE is not None and importlib.util.find_spec(form.PACKAGE[0]) is None:
        package, pip = form.PACKAGE
        raise ManifestError(f"{name}: is written by the package {package}, which is not here: pip install {pip}")


def _target(data: dataset.Dataset) -> formats.Target:
    tokenizer = data.made.tokenizer
    assert tokenizer, "a build without tokenizer is not opened"
    vocabulary = max(tokenizer.vocab_size, tokenizer.max_id + 1)
    eos = tokenizer.eos.id if tokenizer.eos else None
    return formats.Target(vocabulary, data.train.length, tokenizer.sha256, eos, data.sources)


def _tokenizer(data: dataset.Dataset) -> dict[str, Any]:
    """What a reader of headerless files has to be told."""
    tokenizer = data.made.tokenizer
    assert tokenizer
    special = {name: getattr(tokenizer, name) for name in ("bos", "eos", "pad")}
    ids = {name: one.id if one else None for name, one in special.items()}
    return {"sha256": tokenizer.sha256, "vocab_size": tokenizer.vocab_size, "max_id": tokenizer.max_id} | ids


def _chosen(data: dataset.Dataset, asked: Sequence[str] | None) -> list[str]:
    """The splits that are written, in order."""
    for name in asked or ():
        if not data.split(name).rows:
            raise ManifestError(f"{data.path}: {name} has no rows to export")
    chosen = [name for name in SPLITS if (name in asked if asked else data.split(name).rows)]
    if not chosen:
        raise DataError(f"{data.path}: neither split has a row to export")
    return chosen


def _write(
    form: formats.Format, data: dataset.Dataset, name: str, staging: Path, target: formats.Target, progress: Progress
) -> dict[str, Any]:
    """A split's files; its books."""
    split = data.split(name)
    books = Books(target, form.UNIT)
    writer = form.Writer(staging, name, target)
    try:
        for number, shard in enumerate(split.shards):
            progress(f"{name} shards", number, len(split.shards))
            where = f"{data.path}/{shard.path}"
            writer.shard()
            if form.UNIT == "documents":
                (rows,) = _rows(split, number, shard.rows)
                for docs in whole(rows, where):
                    writer.write(books.documents(docs, where))
            else:
                for rows in _rows(split, number, ROWS):
                    writer.write(books.rows(rows, where))
            split.close()  # what it keeps of a shard is not asked for again
        said = writer.close()
    except BaseException:
        writer.abandon()
        raise
    progress(f"{name} shards", len(split.shards), len(split.shards))
    shards = [shard.path for shard in split.shards]
    return books.close(data.made, name, data.path) | {"shards": shards, **said}


def _rows(split: dataset.Split, number: int, step: int) -> Iterator[Rows]:
    """The rows of a shard, `step` at a time."""
    shard = split.shards[number]
    stop = shard.row_start + shard.rows
    for first in range(shard.row_start, stop, step):
        yield split.read(np.arange(first, min(first + step, stop)))


def _settle(staging: Path) -> list[dict[str, Any]]:
    """All files on the disk, with their digests, in order of path."""
    found: list[dict[str, Any]] = []
    for path in sorted(path for path in staging.rglob("*")):
        if path.is_dir():
            fsync_folder(path)
            continue
        with open(path, "rb") as file:
            os.fsync(file.fileno())
        name = path.relative_to(staging).as_posix()
        found.append({"path": name, "bytes": path.stat().st_size, "sha256": file_sha256(path)})
    return found


def _put(path: Path, made: Mapping[str, Any]) -> None:
    with open(path, "w", encoding="utf-8") as file:
        file.write(json.dumps(made, indent=1, ensure_ascii=False) + "\n")
        file.flush()
        os.fsync(file.fileno())
    fsync_folder(path.parent)


def _register(data: dataset.Dataset, folder: Path, made: Mapping[str, Any]) -> str | None:
    """
    The record of the export in the build's consumers/, one for each place; before the export takes its name: a
    record of what was never there misleads nobody who looks, a copy that nobody knows of cannot be taken back.
    """
    build = Path(data.path)
    if not build.is_dir():
        return None
    record = {
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "format": made["format"],
        "where": str(folder),
        "dataset_id": made["dataset_id"],
        "splits": {
            name: {key: books[key] for key in ("documents", "tokens", "targets", "shards")}
            for name, books in made["splits"].items()
        },
        "bytes": sum(file["bytes"] for file in made["files"]),
    }
    return str(consumers.write(build, KIND, digest([made["dataset_id"], made["format"], str(folder)]), record))


def _said(where: Path, to: str, split: str) -> str | None:
    """The type of ids by the export.json that a file or folder belongs to."""
    folder = where if where.is_dir() else where.parent
    for place in (folder, folder.parent):
        try:
            made = json.loads((place / FILE).read_bytes())
        except (FileNotFoundError, NotADirectoryError):
            continue
        except ValueError:
            raise DataError(f"{place / FILE}: is not JSON") from None
        if isinstance(made, dict) and made.get("format") == to:
            splits = made.get("splits", {})
            return splits.get(folder.name, splits.get(split, {})).get("dtype")
    return None
