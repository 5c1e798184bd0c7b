"""Files to tables: every path is opened, its fields are found, its examples numbered."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import PurePosixPath

import pyarrow as pa

from datapipe import memory
from datapipe.contamination.model import EXAMPLES, FILES, ORDER, PARTS, VARIANT, Suites
from datapipe.contamination.suites import forms, names
from datapipe.contamination.suites import variants as variants_of
from datapipe.contamination.suites.opening import EXPANDED, FORMS, Opened, opened
from datapipe.contamination.suites.parts import Item, items
from datapipe.errors import ManifestError
from datapipe.keyed import canonical
from datapipe.read.opening import TAR, TAR_SHORT
from datapipe.read.streams import bare

SPLITS = {"train": "train", "test": "test", "dev": "dev", "val": "validation", "valid": "validation",
          "validation": "validation"}  # fmt: skip
EXAMPLE = pa.schema([EXAMPLES.field(name) for name in ("id", "file", "row", "split", "lang", "problem")])
PART = pa.schema([PARTS.field(name) for name in PARTS.names if name != "part"])


@dataclass
class _File:
    """A row of FILES, the examples of the file, and their parts, which number these from 0."""

    path: str
    bytes: int
    sha256: str | None
    failed: str | None = None
    records: int = 0
    mapping: dict[str, str] = field(default_factory=dict)
    fields: list[str] = field(default_factory=list)
    examples: pa.Table = field(default_factory=EXAMPLE.empty_table)
    parts: pa.Table = field(default_factory=PART.empty_table)
    suite: str | None = None


def load(
    paths: Sequence[str],
    *,
    fields: Mapping[str, str] | None = None,
    variants: Sequence[str] = (),
    expanded: int = EXPANDED,
) -> Suites:
    """
    The eval suites in files and folders.

    fields:   part (or id, split, lang) -> the field of a record that holds it, `a.b` or several with commas between;
              "suite:part" speaks of one suite only
    variants: files of rewrites and translations
    expanded: bytes that a file may have when expanded, or an archive
    A file that does not load, in whole or in part, is a row of `files` with the reason.  ManifestError where nothing
    loads, where a field that `fields` names is in no record of a file, or where a key of it is no part.
    """
    suites = _load(paths, dict(fields or {}), variants, expanded)
    memory.release()  # what parsing took is more than the tables hold
    return suites


def _load(paths: Sequence[str], asked: Mapping[str, str], variants: Sequence[str], expanded: int) -> Suites:
    names.check_roles(asked)
    suites = _names([found.path for found in _peeked(paths, expanded)]) if any(":" in key for key in asked) else {}
    _check_suites(asked, suites)
    files = [_read(found, _asked(asked, suites.get(found.path)), expanded) for found in opened(paths, expanded)]
    loaded = [file for file in files if len(file.examples)]
    if not loaded:
        raise ManifestError(_nothing(files))
    by_path = _names([file.path for file in loaded])
    for file in loaded:
        file.suite = by_path[file.path]
    loaded.sort(key=lambda file: (file.suite or "", file.path))
    examples = _examples(loaded)
    starts = accumulate((len(file.examples) for file in loaded), initial=0)
    tables = [_moved(file.parts, start) for file, start in zip(loaded, starts, strict=False)]
    more, described = _variants(variants, examples, expanded)
    parts = _numbered(pa.concat_tables([*tables, more]), sort=len(more) > 0)
    return Suites(examples, parts, _files([*sorted(files, key=lambda file: file.path), *described]))


def _peeked(paths: Sequence[str], expanded: int) -> list[Opened]:
    return [found._replace(data=b"") for found in opened(paths, expanded) if found.data]


def _check_suites(asked: Mapping[str, str], suites: Mapping[str, str]) -> None:
    for key in asked:
        suite = key.rpartition(":")[0]
        if suite and suite not in suites.values():
            there = ", ".join(sorted(suites.values()))
            raise ManifestError(f"fields: {key!r}: there is no suite {suite!r}; the suites are {there}")


def _asked(asked: Mapping[str, str], suite: str | None) -> dict[str, str]:
    """What `fields` says of one suite; what names it wins."""
    general = {key: path for key, path in asked.items() if ":" not in key}
    own = {key.rpartition(":")[2]: path for key, path in asked.items() if suite and key.rpartition(":")[0] == suite}
    return general | own


def _read(found: Opened, asked: Mapping[str, str], expanded: int) -> _File:
    file = _File(found.path, found.size, found.sha256, found.failed)
    if not found.data:
        file.failed = file.failed or "empty"
        return file
    try:
        records = forms.records(found.path, found.data, found.failed is not None, expanded)
    except forms.Unreadable as error:
        file.failed = file.failed or str(error)
        return file
    objects = [record for record in records if isinstance(record, dict)]
    file.records = len(records)
    if bad := [record for record in records if isinstance(record, str)]:
        file.failed = file.failed or f"{len(bad):,} of {len(records):,} records cannot be read: {bad[0]}"
    if not objects:
        file.failed = file.failed or "no records"
        return file
    where, file.fields = names.find(found.path, objects, asked)
    file.mapping = where.mapping()
    if not where.testable():
        file.failed = names.no_field("", "no field for a prompt was found", file.fields)[2:]
        return file
    file.examples, file.parts = _tables(found.path, items(list(enumerate(records, 1)), where))
    return file


def _tables(path: str, found: Sequence[Item]) -> tuple[pa.Table, pa.Table]:
    """EXAMPLE and PART of a file; an id that occurred before has its row behind it."""
    own: list[str] = []
    taken: set[str] = set()
    for item in found:
        name = item.id or f"row-{item.row}"
        own.append(name if name not in taken else f"{name}#{item.row}")
        taken.add(own[-1])
    named = _split(path)
    examples = pa.table(
        {
            "id": own,
            "file": [path] * len(found),
            "row": [item.row for item in found],
            "split": [item.split or named for item in found],
            "lang": [item.lang for item in found],
            "problem": [item.problem for item in found],
        },
        EXAMPLE,
    )
    numbers = pa.array([at for at, item in enumerate(found) for _ in item.parts], pa.int32())
    columns = [pa.array([part[at] for item in found for part in item.parts], kind)
               for at, kind in enumerate(PART.types[1:])]  # fmt: skip
    return examples, pa.table([numbers, *columns], PART)


def _split(path: str) -> str | None:
    """The split that is a word of a file's name, or its folder's whole name."""
    *_, folder, name = ("", *PurePosixPath(path).parts)
    words = {SPLITS[word] for word in re.findall(r"[a-z]+", name.lower()) if word in SPLITS}
    return words.pop() if len(words) == 1 else SPLITS.get(folder.lower())


def _nothing(files: Sequence[_File]) -> str:
    if not files:
        return "no eval file was named"
    return "no eval file loaded:\n" + "\n".join(f"  {file.path}: {file.failed}" for file in files)


# names


def _names(paths: Sequence[str]) -> dict[str, str]:
    """path -> suite: the stem, with as many folders before it as tell files of one stem apart."""
    groups: dict[str, list[str]] = {}
    for path in paths:
        groups.setdefault(_stems(path)[-1], []).append(path)
    named: dict[str, str] = {}
    for group in groups.values():
        depth = 1
        deepest = max(len(_stems(path)) for path in group)
        while depth < deepest and len({_tail(path, depth) for path in group}) < len(group):
            depth += 1
        short = [_tail(path, depth) for path in group]
        for path, name in zip(group, short, strict=True):  # a/test.jsonl and a/test.csv: only the suffix differs
            named[path] = name if short.count(name) == 1 else path.lstrip("/")
    return named


def _tail(path: str, depth: int) -> str:
    return "/".join(_stems(path)[-depth:])


def _stems(path: str) -> list[str]:
    *folders, name = [part for part in path.replace("\\", "/").split("/") if part not in ("", ".")]
    return [_archive_stem(folder) for folder in folders] + [_stem(name)]


def _stem(name: str) -> str:
    name = bare(name)
    stem, dot, suffix = name.rpartition(".")
    return stem if stem and dot + suffix.lower() in FORMS else name


def _archive_stem(name: str) -> str:
    stem, dot, suffix = bare(name).rpartition(".")
    return stem if stem and dot + suffix.lower() in (TAR, *TAR_SHORT) else name


# tables


def _examples(files: Sequence[_File]) -> pa.Table:
    suites = pa.array([file.suite for file in files for _ in range(len(file.examples))], pa.string())
    table = pa.concat_tables([file.examples for file in files]).combine_chunks()
    numbers = pa.array(range(len(table)), pa.int32())
    return table.add_column(0, "suite", suites).add_column(0, "example", numbers).cast(EXAMPLES)


def _moved(parts: pa.Table, offset: int) -> pa.Table:
    moved = pa.array(parts["example"].to_numpy() + offset, pa.int32())
    return parts.set_column(0, pa.field("example", pa.int32()), moved)


def _numbered(parts: pa.Table, *, sort: bool) -> pa.Table:
    """PARTS of tables that have everything but the running number."""
    if sort:
        place = [ORDER[kind] for kind in parts["kind"].to_pylist()]
        keys = parts.append_column("place", pa.array(place, pa.int8()))
        order = [("example", "ascending"), ("place", "ascending"), ("ordinal", "ascending")]
        parts = keys.sort_by(order).drop_columns("place")
    return pa.table([pa.array(range(len(parts)), pa.int32()), *parts.combine_chunks().columns], PARTS)


def _variants(paths: Sequence[str], examples: pa.Table, expanded: int) -> tuple[pa.Table, list[_File]]:
    known: dict[str, dict[str, int]] = {}
    for suite, own, example in zip(*(examples[name].to_pylist() for name in ("suite", "id", "example")), strict=True):
        known.setdefault(own, {})[suite] = example
    found: list[tuple[int, str]] = []
    files = []
    for source in opened(paths, expanded):
        file = _File(source.path, source.size, source.sha256, source.failed)
        files.append(file)
        try:
            cut = source.failed is not None
            records = forms.records(source.path, source.data, cut, expanded) if source.data else []
        except forms.Unreadable as error:
            file.failed = file.failed or str(error)
            continue
        if not records:
            file.failed = file.failed or ("no records" if source.data else "empty")
            continue
        texts, trouble, file.mapping = variants_of.matched(records, known)
        file.records, found = len(records), found + texts
        file.failed = "; ".join(filter(None, (file.failed, trouble))) or None
    seen: dict[int, dict[str, None]] = {}
    for example, body in found:
        seen.setdefault(example, {}).setdefault(body)
    rows = [(example, VARIANT, at, None, body) for example, bodies in seen.items() for at, body in enumerate(bodies)]
    columns = list(zip(*rows, strict=True)) or [()] * len(PART)
    return pa.table(dict(zip(PART.names, columns, strict=True)), PART), files


def _files(files: Sequence[_File]) -> pa.Table:
    rows = [
        {"path": file.path, "suite": file.suite, "bytes": file.bytes, "sha256": file.sha256, "records": file.records,
         "examples": len(file.examples), "mapping": canonical(file.mapping).decode(), "failed": file.failed}
        for file in files
    ]  # fmt: skip
    return pa.Table.from_pylist(rows, FILES)
