"""
Files that datapipe did not build, read as they are: no edit, no filter, nothing stored.

They go through the readers of datapipe/read by a manifest made in memory.  A file that is damaged is read as far as it
is whole, and is a failure; so is a record that was not understood, for another reader may have understood it.
"""

import glob
import hashlib
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from datapipe import text
from datapipe.auditing import receipt, report
from datapipe.auditing.report import Receipt, Role, ScopeFile, SourceScope
from datapipe.auditing.training import Batch, Books, Document, First, Seen, failures
from datapipe.auditing.unread import records, unread
from datapipe.errors import DataError, MachineError, ManifestError, PolicyError
from datapipe.keyed import doc_id, text_id
from datapipe.manifest import Manifest
from datapipe.read import Input, Piece, Plan, Planned, plan_each, rows_of
from datapipe.read.fields import EMPTY_TEXT, MEND, MISSING_TEXT, QUARANTINED, Rows
from datapipe.read.files import look
from datapipe.read.streams import Damage

NAMED = "name the right one by --text-field"
NUMBERED = re.compile(r"[-_.]\d+([-_.]of[-_.]\d+)?$")


@dataclass(frozen=True)
class Files:
    """
    A corpus of files.

    failed: (source, relative path, why) of files that could not be planned
    notes:  what was not read, or not again, and why that is no failure
    receipts: what --clean-out took out of folders of it
    """

    name: str
    role: Role
    path: str
    plan: Plan
    failed: tuple[tuple[str, str, str], ...]
    notes: tuple[str, ...] = ()
    receipts: tuple[Receipt, ...] = ()
    wanted: set[str] = field(default_factory=set)  # own ids to tell of, filled before reading

    @property
    def roles(self) -> tuple[Role, ...]:
        return (self.role,)

    @property
    def sources(self) -> Sequence[str]:
        return sorted({label(one.relative) for one in self.plan.inputs})

    @property
    def work(self) -> Sequence[Piece]:
        return self.plan.pieces

    def read(self, unit: object, books: Books) -> Iterator[Batch]:
        """The rows of a piece; a damage ends the file, and the next one is read."""
        assert isinstance(unit, Piece)
        (spec,) = self.plan.specs.values()
        for one, rows in rows_of(spec, unit):
            if one.doubt:
                books.damaged[one.source, one.relative] = one.doubt
            try:
                yield from self._batches(one, rows, books)
            except (Damage, DataError, PolicyError, MachineError) as error:
                books.damaged[one.source, one.relative] = _bare(str(error), one.relative)
            except OSError as error:
                books.damaged[one.source, one.relative] = f"cannot be read: {error.strerror}"

    def _batches(self, one: Input, rows: Iterator[Rows], books: Books) -> Iterator[Batch]:
        unit = {"parquet": "row", "text": ""}.get(one.format, "line")
        for block in rows:
            books.count(one.source, one.relative, "records", len(block) + len(block.refused) + block.blank)
            for refused in block.refused:
                what = QUARANTINED if refused.kind == QUARANTINED else refused.reason
                books.refuse(one.source, one.relative, what, First(refused.line, unit, refused.reason))
            full = np.asarray(pc.call_function("binary_length", [block.text]).to_numpy()) > 0
            if len(block) - int(full.sum()):
                books.count(one.source, one.relative, EMPTY_TEXT, len(block) - int(full.sum()))
            books.count(one.source, one.relative, "documents", int(full.sum()))
            if self.wanted:
                books.names |= self.wanted.intersection(block.mapped.get("id", ()))
            if full.any():
                yield FileBatch(one, self.role, block, np.flatnonzero(full))
            del block

    def check(self, books: Books) -> None:
        """ManifestError where no record of any file has the field of the text: nothing was looked through."""
        counts = [books.files.get((one.source, one.relative), {}) for one in self.plan.inputs]
        records = sum(each.get("records", 0) for each in counts)
        failed = [*((path, why) for _, path, why in self.failed), *((at[1], why) for at, why in books.damaged.items())]
        lacking = [(path, why) for path, why in failed if why.endswith(NAMED)]  # of formats with columns
        if len(lacking) < len(failed) or sum(each.get(MISSING_TEXT, 0) for each in counts) < records:
            return
        if lacking:
            path, why = min(lacking)
            raise ManifestError(f"{self.name}: {path}: {why}")
        if not records:
            return
        field = ".".join(next(iter(self.plan.specs.values())).names.text)
        there = ", ".join(_first_fields(self.plan.inputs)) or "none"
        raise ManifestError(
            f"{self.name}: no record has a text under {field!r}; the fields that exist: {there}; {NAMED}"
        )

    def resolve(self, documents: Sequence[Document]) -> list[Document]:
        return list(documents)

    def names(self, wanted: set[str], books: Books) -> set[str]:
        return wanted & books.names

    def scope(self, role: Role, seen: dict[str, Seen], books: Books) -> report.Corpus:
        sources = tuple(
            SourceScope(source=name, documents=one.documents, units=one.units, bytes=one.bytes, copies=one.copies)
            for name, one in sorted(seen.items())
        )
        files = [self._file(one, books) for one in self.plan.inputs]
        for source, path, why in self.failed:
            files.append(ScopeFile(source=source, path=path, bytes=0, sha256=None, records=0, documents=0, damaged=why))
        lines = sorted(f"{file.sha256}  {file.bytes}  {file.path}\n" for file in files)
        return report.Corpus(
            name=self.name,
            role=role,
            kind="files",
            path=self.path,
            digest=hashlib.sha256("".join(lines).encode()).hexdigest(),
            sources=sources,
            files=tuple(sorted(files, key=lambda file: file.path)),
            notes=self.notes + self._unread(),
            failures=failures(self.name, books, self.failed) + self._nothing(books),
            receipts=self.receipts,
        )

    def _file(self, one: Input, books: Books) -> ScopeFile:
        counts = books.files.get((one.source, one.relative), {})
        refused = {what: n for what, n in sorted(counts.items()) if what not in ("records", "documents")}
        return ScopeFile(
            source=one.source, path=one.relative, bytes=one.bytes, sha256=one.sha256,
            records=counts.get("records", 0), documents=counts.get("documents", 0), refused=refused,
            damaged=books.damaged.get((one.source, one.relative)),
        )  # fmt: skip

    def _unread(self) -> tuple[str, ...]:
        """What was not looked through in records that were; of each source its first file tells."""
        firsts = {label(one.relative): one for one in reversed(self.plan.inputs)}
        spec = next(iter(self.plan.specs.values()), None)
        note = unread(reversed(firsts.values()), spec.names.text) if spec else None
        return () if note is None else (note,)

    def _nothing(self, books: Books) -> tuple[report.Failure, ...]:
        """Files that were read, and no document in them: that proves nothing."""
        if not self.plan.inputs or any(counts.get("documents") for counts in books.files.values()):
            return ()
        field = next(iter(self.plan.specs.values())).names.text if self.plan.specs else ("text",)
        return (
            report.Failure(corpus=self.name, path=self.path, reason=f"no record has a text under {'.'.join(field)!r}"),
        )

    def close(self) -> None: ...


@dataclass(frozen=True)
class FileBatch:
    """Rows of a block of one file that have a text."""

    input: Input
    role: Role
    rows: Rows
    kept: np.ndarray  # int64: which rows of the block

    @property
    def source(self) -> str:
        return label(self.input.relative)

    @cached_property
    def texts(self) -> pa.Array:
        return self.rows.text if len(self.kept) == len(self.rows) else self.rows.text.take(pa.array(self.kept))

    @property
    def copies(self) -> np.ndarray:
        return np.ones(len(self.kept), np.int64)

    def document(self, row: int) -> Document:
        at = int(self.kept[row])
        data, offsets = text.buffers(self.rows.text)
        raw = text_id(data[offsets[at] : offsets[at + 1]].tobytes())
        own = self.rows.mapped.get("id")
        own_id = own[at] if own else None
        return Document(
            document=doc_id(self.source, own_id, raw, 0),  # equal records share it: path and line tell them apart
            source=self.source,
            role=self.role,
            url=own_id,
            path=self.input.relative,
            line=int(self.rows.line[at]),
            offset=None if self.rows.offset is None else int(self.rows.offset[at]),
            exposure=1,
        )


def files(
    option: str, role: Role, patterns: Sequence[str], *, text_field: str = "text", workers: int, once: bool = True
) -> Files:  # fmt: skip
    """
    The corpus that patterns of files stand for, in any order; ManifestError where one matches nothing.

    once: a file that is named twice, by links, is read once
    """
    patterns = sorted(set(patterns))
    made = _manifest(role, patterns, text_field)
    try:
        found = plan_each(made, workers=workers, once=once)
    except DataError as error:
        raise ManifestError(f"{option}: {str(error).removeprefix(f'source {role}: ')}") from None
    reasons = tuple((source, path, _bare(why, path)) for source, path, why in found.failed)
    receipts, odd = _receipts(patterns)
    notes = (*_notes(found), *odd)
    return Files(f"{role} files", role, " ".join(patterns), found.plan, reasons, notes, receipts)


def paths(patterns: Sequence[str]) -> list[Path]:
    """The files that patterns mean; none where they cannot be found, which `files` will say."""
    try:
        return [path for _, path in look(_manifest("train", sorted(set(patterns)), "text"), "train").files]
    except (DataError, MachineError):
        return []


def _manifest(source: str, patterns: Sequence[str], text_field: str) -> Manifest:
    return Manifest.model_validate(
        {"name": "audit", "sources": {source: {
            "files": patterns, "fields": {"text": text_field, "id": "id"}, "tolerant": True,
        }}},
        context=Path(os.getcwd()) / "audit",
    )  # fmt: skip


def _notes(found: Planned) -> Iterator[str]:
    """What a reader of the report should know of files that are no failure."""
    if found.again:
        first, more = found.again[0], len(found.again) - 1
        also = f" and {more:,} more lead" if more else " leads"
        yield f"{first}{also} to files that are read under another name: they count once"
    files, folders = found.hidden
    counts = [f"{n:,} hidden {what}{'' if n == 1 else 's'}" for n, what in ((files, "file"), (folders, "folder")) if n]
    if counts:
        yield f"{' and '.join(counts)} not read"


def _receipts(patterns: Sequence[str]) -> tuple[tuple[Receipt, ...], list[str]]:
    """What --clean-out left in folders that are read whole; what lies in its place and is none."""
    found: list[Receipt] = []
    odd: list[str] = []
    for folder in sorted({path for one in patterns if one.endswith("/**") for path in glob.glob(one[:-3])}):
        try:
            one = receipt.read(Path(folder), label)
        except ValueError as error:
            odd.append(str(error))
        else:
            found += [one] if one else []
    return tuple(found), odd


def _bare(why: str, path: str) -> str:
    """A reason without the file's own name in front, and with what mends it here."""
    name, colon, rest = why.partition(": ")
    return (rest if colon and name.endswith(path) else why).replace(MEND, NAMED)


def _first_fields(inputs: Sequence[Input]) -> list[str]:
    """The fields of the first record that can be read, those of objects in it too."""
    found = next((record for one in inputs for record in records(one)), {})
    inner = {name: value for name, value in found.items() if isinstance(value, dict)}
    return [*found, *(f"{name}.{key}" for name, value in inner.items() for key in value)]


def label(relative: str) -> str:
    """The source that a file counts for: its folder, or its name without suffixes and the number of a shard."""
    folder, _, name = relative.rpartition("/")
    stem = name.split(".", 1)[0] if not name.startswith(".") else name
    return folder or NUMBERED.sub("", stem) or stem
