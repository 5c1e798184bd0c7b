"""
From the paths that were given to sources: which files belong together, by which patterns, and which are left out.

Files belong together where they lie below one folder, are of one ending, are both code or both not, and each has the
fields that the other mostly has.
"""

import glob
import os
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from datapipe import manifest as manifests
from datapipe.errors import DataError
from datapipe.propose import names
from datapipe.propose.forms import Unreadable, look
from datapipe.propose.judge import Choice, choose
from datapipe.propose.kinds import Texts, texts
from datapipe.propose.patterns import WILD, Pattern, holds, meaning, shared_beginning, suffix
from datapipe.propose.sample import RECORDS, Sample, thin
from datapipe.propose.values import NULL, Record, digest, fields
from datapipe.read import files

FILES = 100  # of a source that are looked at
MOST_RECORDS = 20_000  # of a source
MOSTLY = 0.5  # share of the records of a file from which a field is one of its own
CONTAINERS = (".arrow", ".tar", ".tgz", ".zip", ".warc")  # they hold records, though not as they lie there


@dataclass
class Source:
    """A source to be: its files, and what was found in them."""

    name: str
    folder: Path
    files: list[Path]
    samples: list[Sample]
    choice: Choice
    texts: Texts
    patterns: list[Pattern] = field(default_factory=list)
    exclude: list[Path] = field(default_factory=list)
    format: str = "auto"
    notes: list[str] = field(default_factory=list)

    @property
    def records(self) -> list[Record]:
        return [record for sample in self.samples for record in sample.records]


@dataclass
class Found:
    """What became of the given paths."""

    sources: list[Source] = field(default_factory=list)
    unreadable: list[Unreadable] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)  # about no source in particular


@dataclass
class Unit:
    """Files that may become one source: all below a folder, or those of a pattern or name that was given."""

    name: str
    folder: Path
    files: list[Path]
    deep: bool = False  # the pattern goes into folders below
    named: bool = False  # its files were named, by their names or by a pattern
    child: bool = False  # it lies in a folder below the one that was given
    given: str | None = None  # the pattern as it was given


def find(paths: Sequence[str]) -> Found:
    """The sources of paths as they were given: files, folders, patterns.  DataError where one is not there."""
    found = Found()
    for unit_list in _units(paths):
        _add(found, unit_list)
    _distinct_names(found.sources)
    return found


# units


def _units(paths: Sequence[str]) -> Iterator[list[Unit]]:
    """The units of each path; named files that differ only in digits, as a shell gives those of a pattern, are one."""
    named: dict[tuple[Path, str], list[Path]] = {}
    others: list[list[Unit]] = []
    for path in dict.fromkeys(paths):
        if os.path.isfile(path):
            one = Path(os.path.abspath(path))
            named.setdefault((one.parent, re.sub(r"\d+", "0", one.name)), []).append(one)
        elif os.path.isdir(path):
            others.append(_of_folder(Path(os.path.abspath(path))))
        elif WILD.search(path):
            others.append([_of_pattern(path)])
        else:
            raise DataError(f"{path}: there is no such file or folder; name one that is there, or a pattern in quotes")
    for (folder, _), some in named.items():
        yield [Unit(_stem(some), folder, sorted(some), named=True)]
    yield from others


def _matching(pattern: str) -> list[Path]:
    """The files of a pattern, as a source of it would have them."""
    made = manifests.parse(f"name: init\nsources: {{s: {{files: [{_json(pattern)}]}}}}", Path(os.getcwd()) / "m.yaml")
    return [path for _, path in files.find(made, "s")]


def _json(text: str) -> str:
    from datapipe.propose.write import quoted

    return quoted(text.replace("${", "[$]{"))


def _of_pattern(pattern: str) -> Unit:
    found = _matching(pattern)
    fixed = [part for part in Path(pattern).parts[:-1] if not WILD.search(part)]
    name = fixed[-1] if fixed and fixed[-1] not in ("/", "..", ".") else _stem(found)
    return Unit(name, Path(os.path.abspath(pattern)).parent, found, named=True, given=pattern)


def _of_folder(folder: Path) -> list[Unit]:
    """
    The units of a folder: records that lie in it, and those of each folder below; where there are only text files,
    all of them together.
    """
    found = _matching(f"{glob.escape(str(folder))}/**") if any(folder.iterdir()) else []
    records = [path for path in found if _may_hold_records(path)]
    if not records:
        deep = any(path.parent != folder for path in found)
        return [Unit(folder.name, folder, found, deep)] if found else []
    tops: dict[str, list[Path]] = {}
    for path in found:
        parts = path.relative_to(folder).parts
        tops.setdefault(parts[0] if len(parts) > 1 else "", []).append(path)
    return [
        Unit(top or folder.name, folder / top, some, any(path.parent != folder / top for path in some), child=bool(top))
        for top, some in sorted(tops.items())
    ]


def _may_hold_records(path: Path) -> bool:
    return files.kind(path.name, "auto")[0] != "text"


def _stem(some: Sequence[Path]) -> str:
    """A name for files: the beginning of their names that they share, without suffixes."""
    if len(some) == 1:
        return _without_suffixes(some[0].name)
    stem = shared_beginning([_without_suffixes(path.name) for path in some]).rstrip("-_. 0123456789")
    return stem or _without_suffixes(some[0].name)


def _without_suffixes(name: str) -> str:
    return name.removesuffix(suffix(name)) or name


# from units to sources


def _add(found: Found, units: Sequence[Unit]) -> None:
    made = [(unit, _looked(unit, found)) for unit in units]
    readable = [(unit, samples) for unit, samples in made if samples]
    if len(readable) > 1 and all(unit.child for unit in units):
        readable = _joined(readable, units)
    sources = [source for unit, samples in readable for source in _sources(unit, samples, found)]
    found.sources += _without_copies(sources, found)


def _looked(unit: Unit, found: Found) -> list[Sample]:
    """Looks into the files of a unit, FILES of them; what cannot be read goes to `found`."""
    chosen = _of_one_sort(unit, found)
    some = thin(chosen, FILES)
    if len(some) < len(chosen):
        found.notes.append(f"{unit.name}: {len(some)} of {len(chosen):,} files were looked at")
    most = min(RECORDS, max(RECORDS // 10, MOST_RECORDS // max(1, len(some))))
    samples: list[Sample] = []
    for path in some:
        looked = look(path, most, len(some))
        if isinstance(looked, Unreadable):
            found.unreadable.append(looked)
        else:
            samples.append(looked)
    return samples


def _of_one_sort(unit: Unit, found: Found) -> list[Path]:
    """The files of records where there are such, else the text files of known suffixes, else all."""
    records = [path for path in unit.files if _may_hold_records(path)]
    known = [path for path in unit.files if holds(path) in names.SUFFIXES_OF_CODE | names.SUFFIXES_OF_PROSE]
    chosen = unit.files
    if records and len(records) < len(unit.files) and not unit.named:
        chosen = [path for path in unit.files if path in set(records) or holds(path) in CONTAINERS]
    elif not records and known and not unit.named:
        chosen = known
    out = sorted({path.name for path in unit.files} - {path.name for path in chosen})
    if out:
        kind = "text beside records" if records else "of no known text format"
        shown = ", ".join(out[:3]) + (f" and {len(out) - 3} more" if len(out) > 3 else "")
        found.notes.append(f"{unit.name}: left out {shown} ({kind}); name them to take them")
    return chosen


def _joined(readable: list[tuple[Unit, list[Sample]]], units: Sequence[Unit]) -> list[tuple[Unit, list[Sample]]]:
    """One unit of folders beside each other that hold the same kind of records, as parts of one set."""
    samples = [sample for _, some in readable for sample in some]
    if len(_clusters(samples)) > 1:
        return readable
    folder = units[0].folder.parent
    whole = Unit(folder.name, folder, sorted(path for unit in units for path in unit.files), deep=True)
    return [(whole, samples)]


def _sources(unit: Unit, samples: Sequence[Sample], found: Found) -> Iterator[Source]:
    clusters = _clusters(samples)
    most = next((cluster for cluster in clusters if len(cluster) > len(samples) / 2 and len(cluster) > 1), None)
    if len(clusters) > 1:
        found.notes.append(f"{unit.name}: its files differ in fields, endings or kind, so they are several sources")
    for cluster in clusters:
        records = [record for sample in cluster for record in sample.records]
        paths = [sample.path for sample in cluster]
        choice = choose(records) if records else None
        if choice is None:
            why = "no field that could be the text" if records else "no records"
            if not records and len(clusters) == 1:
                found.unreadable += [Unreadable(path, f"a file with {why}", "look at it") for path in paths]
            elif records:
                fields_seen = ", ".join(fields(records)) or "none"
                found.unreadable += [
                    Unreadable(
                        path, f"a file with {why}", "name the text under fields", (f"its fields: {fields_seen}",)
                    )
                    for path in paths
                ]
            continue
        documents = paths if cluster[0].format == "text" else []
        if documents:
            choice = Choice({"text": "text"})
        name = unit.name if cluster is most or len(clusters) == 1 else _stem(paths)
        source = Source(name, unit.folder, paths, list(cluster), choice, texts(records, choice, documents))
        _write_files(source, unit, every=cluster is most, alone=len(clusters) == 1)
        _note_types(source)
        yield source


def _clusters(samples: Sequence[Sample]) -> list[list[Sample]]:
    """Samples that belong together; one without records goes to the first of its format."""
    clusters: list[list[Sample]] = []
    for sample in sorted(samples, key=lambda one: not one.records):
        for cluster in clusters:
            if not sample.records or _belong(cluster[0], sample):
                cluster.append(sample)
                break
        else:
            clusters.append([sample])
    for cluster in clusters:
        cluster.sort(key=lambda one: str(one.path))
    return clusters


def _belong(one: Sample, other: Sample) -> bool:
    if one.format != other.format:
        return False
    if one.format != "text" and suffix(one.path.name).lower() != suffix(other.path.name).lower():
        return False
    if one.format == "text":
        return (holds(one.path) in names.SUFFIXES_OF_CODE) == (holds(other.path) in names.SUFFIXES_OF_CODE)
    first, second = fields(one.records), fields(other.records)
    for mine, theirs in ((first, second), (second, first)):
        if any(seen.share + seen.nulls / seen.records >= MOSTLY and name not in theirs
               for name, seen in mine.items() if "." not in name):  # fmt: skip
            return False
    return _is_code(one) == _is_code(other)


def _is_code(sample: Sample) -> bool:
    choice = choose(sample.records)
    return choice is not None and texts(sample.records, choice, []).code >= 0.5


def _note_types(source: Source) -> None:
    """Fields whose type is another in other files."""
    if len(source.samples) < 2:
        return
    per_file = [fields(sample.records) for sample in source.samples if sample.records]
    for theirs in (*source.choice.fields.values(), *source.choice.extra):
        types = Counter(seen[theirs].type for seen in per_file if theirs in seen)
        types.pop(NULL, None)
        if len(types) > 1:
            said = ", ".join(f"{kind} in {n}" for kind, n in sorted(types.items()))
            source.notes.append(f"{theirs} is of another type in other files: {said}")


def _without_copies(sources: list[Source], found: Found) -> list[Source]:
    """Sources of one given path but for those whose records all lie in another."""
    kept: list[Source] = []
    digests = [{digest(record) for record in source.records} for source in sources]
    for at, source in enumerate(sources):
        holder = next(
            (other for before, other in enumerate(sources) if other in kept and digests[at] <= digests[before]), None
        )
        if holder is None or not digests[at]:
            kept.append(source)
        else:
            found.notes.append(
                f"{source.name}: left out, for all {len(source.records):,} records looked at lie in {holder.name}, too"
            )
    return kept


def _write_files(source: Source, unit: Unit, *, every: bool, alone: bool) -> None:
    """Patterns, exclusions and format; `every`: also the files that were not looked at are of this source."""
    if any(sample.format != files.kind(sample.path.name, "auto")[0] for sample in source.samples):
        source.format = source.samples[0].format
    mine = {sample.path for sample in source.samples}
    elsewhere = set(thin(unit.files, FILES)) - mine
    if unit.given is not None and alone:
        source.patterns = [Pattern(None, unit.given, True)]
        source.exclude = sorted(elsewhere)
        source.files = sorted(set(unit.files) - elsewhere)
        return
    endings = {suffix(path.name) for path in mine}
    if every or alone:
        mine |= {path for path in unit.files if suffix(path.name) in endings and path not in elsewhere}
    source.files = sorted(mine)
    source.patterns, source.exclude = meaning(unit.folder, unit.deep, source.files, unit.files)


# names


def _distinct_names(sources: Sequence[Source]) -> None:
    """Names that a manifest takes, no two alike: with the folder's name before it, else with a number behind."""
    taken: set[str] = set()
    plain = [source_name(source.name) for source in sources]
    for source, name in zip(sources, plain, strict=True):
        if plain.count(name) > 1:
            name = source_name(f"{_parent(source)}-{source.name}")
        number, base = 2, name
        while name in taken:
            name, number = f"{base}-{number}", number + 1
        taken.add(name)
        source.name = name


def _parent(source: Source) -> str:
    folder = source.folder
    return folder.name if folder.name not in (source.name, "original") else folder.parent.name


def source_name(text: str) -> str:
    """A text as the name of a source."""
    name = re.sub(r"[^\w.-]+", "-", text).strip("-._")
    return name[:80] or "data"


def build_name(text: str) -> str:
    """A text as the name of a build."""
    name = re.sub(r"[^a-z0-9._-]+", "-", text.casefold()).strip("-._")
    return name[:80] or "dataset"
