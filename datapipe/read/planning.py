"""
The plan: which files, which bytes they hold, and the pieces that units of work read.

Files are hashed whole here, before any work; what a piece is follows from the files and the manifest alone, never
from the number of workers.
"""

import hashlib
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from datapipe.errors import DataError, DriftError, MachineError
from datapipe.kernels import shape
from datapipe.language import Language
from datapipe.manifest import Manifest
from datapipe.read import files, opening, parquet
from datapipe.read.fields import Mapping, Quoting
from datapipe.read.parquet import Group
from datapipe.read.spec import Spec, spec
from datapipe.read.streams import CHUNK, Damage, Member, Place, many_members, members

RANGE = 64_000_000  # bytes of a plain file, or of a group of small files, that are one unit
ROW_GROUPS = 256_000_000  # bytes of row groups that are one unit
GROWTH = 6  # how many times its size a compressed file is taken for, until it is read


@dataclass(frozen=True)
class Input:
    """A file of a source as it was when the build was planned."""

    source: str
    path: Path
    relative: str  # below the source's folder, with "/"
    bytes: int
    sha256: str
    stat: tuple[int, int, int]  # size, mtime in ns, inode
    format: str  # jsonl | parquet | csv | text
    codec: str | None  # gzip | zstd | bz2 | xz
    newlines: tuple[int, ...] = field(default=(), repr=False)  # newlines before byte k x RANGE - 1, k = 1, 2, ...
    doubt: str | None = None  # why what is read as text may hold records, where its first lines were asked

    @property
    def weight(self) -> int:
        """Bytes of text, about."""
        return self.bytes * GROWTH if self.codec else self.bytes


@dataclass(frozen=True)
class Files:
    """Small files, read whole, one after the other."""

    inputs: tuple[Input, ...]

    def __str__(self) -> str:
        first = self.inputs[0]
        more = f" and {len(self.inputs) - 1} more" if len(self.inputs) > 1 else ""
        return f"{first.source}: {first.relative}{more}"


@dataclass(frozen=True)
class Slice:
    """The lines of a JSONL file that begin in a range of its text."""

    input: Input
    start: int  # byte in the file at which reading begins
    at: Place  # what is there, in the text
    inside: bool  # it is the middle of a line of the range before
    stop: int | None  # lines that begin here or later belong to the next range

    def __str__(self) -> str:
        stop = "" if self.stop is None else f"{self.stop:,}"
        return f"{self.input.source}: {self.input.relative} bytes {self.at.offset:,}-{stop}"


@dataclass(frozen=True)
class Groups:
    """Row groups first..stop-1 of a Parquet file."""

    input: Input
    groups: tuple[Group, ...] = field(repr=False)
    first: int
    stop: int

    def __str__(self) -> str:
        return f"{self.input.source}: {self.input.relative} row groups {self.first}-{self.stop - 1}"


@dataclass(frozen=True)
class Stream:
    """A file that can only be read from its beginning; it commits a part every now and then."""

    input: Input

    def __str__(self) -> str:
        return f"{self.input.source}: {self.input.relative} as a stream"


Piece = Files | Slice | Groups | Stream


@dataclass(frozen=True)
class Plan:
    """What will be read: sources by name, inputs by relative path, pieces in that order."""

    specs: dict[str, Spec]
    inputs: tuple[Input, ...]
    pieces: tuple[Piece, ...]

    @property
    def sources(self) -> dict[str, list[Input]]:
        """The inputs of each source."""
        found: dict[str, list[Input]] = {name: [] for name in self.specs}
        for one in self.inputs:
            found[one.source].append(one)
        return found

    @property
    def bytes(self) -> int:
        """Bytes of all inputs."""
        return sum(one.bytes for one in self.inputs)

    @property
    def units(self) -> list[str]:
        """A description of each unit, for people; a stream may become several."""
        return [str(piece) for piece in self.pieces]

    @property
    def pins(self) -> dict[str, str]:
        """The pin of each source: sha256 of its lines "sha256  bytes  relative path", sorted, each with a newline."""
        return {name: _pin(inputs) for name, inputs in self.sources.items()}

    @property
    def recipe_inputs(self) -> dict[str, list[list[str]]]:
        """The sorted [relative path, sha256] of each source."""
        return {name: sorted([one.relative, one.sha256] for one in inputs) for name, inputs in self.sources.items()}


def _pin(inputs: Sequence[Input]) -> str:
    lines = sorted(f"{one.sha256}  {one.bytes}  {one.relative}\n" for one in inputs)
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def plan(manifest: Manifest, *, workers: int, language: Language | None = None) -> Plan:
    """
    Find and hash every file, in threads.  DataError where a pattern matches nothing, DriftError where a pin differs.
    """
    names = sorted(manifest.sources)
    specs = {name: spec(manifest, name, language) for name in names}
    found = [(name, relative, path) for name in names for relative, path in files.find(manifest, name)]
    with ThreadPoolExecutor(max_workers=workers) as pool:
        inputs = tuple(pool.map(lambda one: _input(manifest, *one), found))
        cut = list(pool.map(lambda one: _cut_or_say(specs[one.source], one), inputs))
    made = Plan(specs, inputs, tuple(_grouped(inputs, cut)))
    for name, pin in made.pins.items():
        _check_pin(name, manifest.sources[name].pin, pin)
    return made


@dataclass(frozen=True)
class Planned:
    """
    What can be read of a source's files.

    failed:  (source, relative path, why) of each file that cannot
    again:   relative paths of links to files that are read under another name, so they are not read again
    hidden:  files and folders that begin with a dot, and that nobody asked for
    """

    plan: Plan
    failed: tuple[tuple[str, str, str], ...]
    again: tuple[str, ...]
    hidden: tuple[int, int]


def plan_each(manifest: Manifest, *, workers: int, once: bool = True) -> Planned:
    """
    The plan of what can be read of a manifest of one source, for audits: first lines tell what names do not.

    once: a file that has two names is read once
    """
    (name,) = manifest.sources
    mine = spec(manifest, name)
    looked = files.look(manifest, name)
    found, again = _once(looked.files) if once else (looked.files, [])

    def one(relative: str, path: Path) -> tuple[Input, list[Piece] | None] | str:
        try:
            made = _input(manifest, name, relative, path, sniff=True)
            if made.format == "jsonl" and opening.is_array(path, made.codec):
                return "a JSON array, which is not read as training data: convert it to JSON lines, an object a line"
            return made, _cut_or_say(mine, made)
        except (DataError, MachineError, Damage) as error:
            return str(error)
        except OSError as error:
            return f"cannot be read: {error.strerror}"

    with ThreadPoolExecutor(max_workers=workers) as pool:
        planned = list(pool.map(lambda each: one(*each), found))
    good = [each for each in planned if not isinstance(each, str)]
    inputs = tuple(each[0] for each in good)
    failed = [(name, relative, why) for (relative, _), why in zip(found, planned, strict=True) if isinstance(why, str)]
    failed += [(name, relative, why) for relative, why in looked.others]
    made = Plan({name: mine}, inputs, tuple(_grouped(inputs, [each[1] for each in good])))
    return Planned(made, tuple(sorted(failed)), tuple(again), looked.hidden)


def _once(found: Sequence[tuple[str, Path]]) -> tuple[list[tuple[str, Path]], list[str]]:
    """The files under the names that are theirs, or else the first ones; and the other names."""
    named: dict[str, list[str]] = {}
    for relative, path in sorted(found, key=lambda one: (os.path.realpath(one[1]) != os.path.abspath(one[1]), one[0])):
        named.setdefault(os.path.realpath(path), []).append(relative)
    again = {relative for names in named.values() for relative in names[1:]}
    return [one for one in found if one[0] not in again], sorted(again)


def _check_pin(name: str, asked: str | None, found: str) -> None:
    if asked is not None and asked != found:
        raise DriftError(
            f"source {name}: its files are not those that were pinned: pin is {asked}, they give {found}; "
            "bring the pinned files back, or change the pin"
        )


def _input(manifest: Manifest, name: str, relative: str, path: Path, *, sniff: bool = False) -> Input:
    """
    Hash a file, and count its newlines where it is to be split by them.

    sniff: a file whose name does not tell its form is asked for it; DataError for a tar archive
    """
    source = manifest.sources[name]
    (kind, codec), doubt = files.kind(relative, source.format), None
    try:
        if sniff and kind == "text" and source.format == "auto":
            kind, doubt = opening.form(path, codec, tuple(source.fields["text"].split(".")))
        stat = path.stat()
        split = kind == "jsonl" and codec is None and stat.st_size >= 2 * RANGE
        sha256, newlines = _digest(path, RANGE if split else None)
    except OSError as error:
        raise MachineError(f"{path}: cannot be read: {error.strerror}") from error
    known = (stat.st_size, stat.st_mtime_ns, stat.st_ino)
    return Input(name, path, relative, stat.st_size, sha256, known, kind, codec, newlines, doubt)


def _digest(path: Path, step: int | None) -> tuple[str, tuple[int, ...]]:
    """sha256 of a file, and the newlines before byte k x step - 1 for k = 1, 2, ... where `step` is given."""
    state = hashlib.sha256()
    counts: list[int] = []
    newlines, left = 0, step - 1 if step else 0
    with open(path, "rb") as file:
        while chunk := file.read(min(CHUNK, left) if step else CHUNK):
            state.update(chunk)
            if step:
                newlines += shape.newlines(chunk)
                left -= len(chunk)
                if left == 0:
                    counts.append(newlines)
                    left = step
    return state.hexdigest(), tuple(counts)


def _cut_or_say(spec: Spec, one: Input) -> list[Piece] | None:
    try:
        return _cut(spec, one)
    except Quoting as error:
        raise spec.discreet(error) from None


def _cut(spec: Spec, one: Input) -> list[Piece] | None:
    """The pieces of a large file; null where it is read whole, with others."""
    if one.format == "parquet":
        return _row_groups(spec.names, one)
    if one.weight < 2 * RANGE:
        return None
    if one.format == "jsonl" and one.codec is None:
        return _ranges(one)
    if one.format == "jsonl" and many_members(one.path, one.codec):
        return _members(spec, one) or [Stream(one)]
    return None if one.format == "text" else [Stream(one)]


def _row_groups(names: Mapping, one: Input) -> list[Piece] | None:
    groups = tuple(parquet.groups(one.path, names, str(one.path)))
    if sum(group.bytes for group in groups) < RANGE:
        return None
    pieces: list[Piece] = []
    first, held = 0, 0
    for at, group in enumerate(groups):
        if at > first and held + group.bytes > ROW_GROUPS:
            pieces.append(Groups(one, groups, first, at))
            first, held = at, 0
        held += group.bytes
    return [*pieces, Groups(one, groups, first, len(groups))]


def _ranges(one: Input) -> list[Piece]:
    """Ranges of RANGE bytes.  One begins a byte early: what stands before the first newline is of the range before."""
    pieces: list[Piece] = [Slice(one, 0, Place(0, 1), False, RANGE)]
    for k in range(1, one.bytes // RANGE):
        start = k * RANGE - 1
        pieces.append(Slice(one, start, Place(start, one.newlines[k - 1] + 1), True, (k + 1) * RANGE))
    last = pieces[-1]
    assert isinstance(last, Slice)
    return [*pieces[:-1], Slice(one, last.start, last.at, last.inside, None)]  # what is left over belongs to the last


def _members(spec: Spec, one: Input) -> list[Piece] | None:
    """Groups of members or frames of RANGE bytes of text or more; null where there is only one, or they are damaged."""
    try:
        found, size = members(one.path, one.codec or "", spec.expanded)
    except Damage:
        return None  # the stream will say, or keep what is whole
    starts = [found[0]]
    for member in found[1:]:
        if member.text - starts[-1].text >= RANGE and size - member.text >= RANGE:
            starts.append(member)
    if len(starts) == 1:
        return None
    stops: list[Member | None] = [*starts[1:], None]
    return [
        Slice(one, at.start, Place(at.text, at.line), at.inside, None if stop is None else stop.text)
        for at, stop in zip(starts, stops, strict=True)
    ]


def _grouped(inputs: Sequence[Input], cut: Sequence[list[Piece] | None]) -> Iterator[Piece]:
    """The pieces of all inputs in order; small files of a source that follow each other together."""
    waiting: list[Input] = []
    held = 0
    for one, pieces in zip(inputs, cut, strict=True):
        if waiting and (pieces or one.source != waiting[0].source or held + one.weight > RANGE):
            yield Files(tuple(waiting))
            waiting, held = [], 0
        if pieces:
            yield from pieces
        else:
            waiting.append(one)
            held += one.weight
    if waiting:
        yield Files(tuple(waiting))
