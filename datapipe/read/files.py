"""
Which files a source means: patterns, exclusions, and the name a file has below the source's folder.
"""

import fnmatch
import glob
import os
import re
import stat
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from datapipe.errors import DataError, MachineError
from datapipe.manifest import Manifest
from datapipe.read.streams import SUFFIXES, bare

FORMATS = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".jl": "jsonl",
    ".jsonlines": "jsonl",
    ".ldjson": "jsonl",
    ".json": "jsonl",
    ".parquet": "parquet",
    ".pq": "parquet",
    ".csv": "csv",
    ".tsv": "csv",
}
WILD = re.compile(r"[*?\[]")


class Looked(NamedTuple):
    """
    What the patterns of a source mean.

    files:   (relative path, path), sorted by relative path
    others:  (relative path, why) of what is matched and is neither a file nor a folder: a link to nothing, a pipe
    hidden:  files and folders that begin with a dot, which no pattern asks for
    """

    files: list[tuple[str, Path]]
    others: list[tuple[str, str]]
    hidden: tuple[int, int]


@dataclass
class _Walk:
    """is_out: whether a path is excluded;  hidden: path -> whether it is a folder, of what was passed over."""

    is_out: Callable[[str], bool]
    hidden: dict[str, bool] = field(default_factory=dict[str, bool])


def find(manifest: Manifest, name: str) -> list[tuple[str, Path]]:
    """
    (relative path, path) of every file of a source, sorted by relative path.  DataError for a pattern without a file.
    """
    return _look(manifest, name, others=False).files


def look(manifest: Manifest, name: str) -> Looked:
    """The same, and what is no file: DataError for a pattern without either."""
    return _look(manifest, name, others=True)


def _look(manifest: Manifest, name: str, *, others: bool) -> Looked:
    source = manifest.sources[name]
    patterns = [manifest.pattern(written) for written in source.files]
    root = _common([_prefix(pattern) for pattern in patterns])
    left_out = [_excluded(manifest, written) for written in source.exclude]
    found: dict[str, Path] = {}
    strange: dict[str, str] = {}

    def relative(path: str) -> str:
        return os.path.relpath(path, root).replace(os.sep, "/")

    walk = _Walk(lambda path: _is_out(relative(path), path, left_out))
    for written, pattern in zip(source.files, patterns, strict=True):
        matched = [path for path in _matches(manifest, written, pattern, walk) if not walk.is_out(path)]
        files = [path for path in matched if os.path.isfile(path)]
        no_files = [path for path in matched if others and not os.path.isfile(path) and not os.path.isdir(path)]
        if not files and not no_files:
            raise DataError(_nothing(name, written, pattern))
        found |= {relative(path): Path(path) for path in files}
        strange |= {_as_text(relative(path)): _no_file(path) for path in no_files}
    for path in found.values():
        _check_name(name, path)
    passed = {os.path.realpath(path): folder for path, folder in walk.hidden.items()
              if not walk.is_out(path) and relative(path) not in found}  # fmt: skip
    hidden = list(passed.values())
    return Looked(sorted(found.items()), sorted(strange.items()), (hidden.count(False), hidden.count(True)))


def _no_file(path: str) -> str:
    """Why a path that is there is no file."""
    if os.path.islink(path) and not os.path.exists(path):
        return f"a link to {_as_text(os.readlink(path))}, which leads to no file"
    try:
        mode = os.stat(path).st_mode
    except OSError as error:
        return f"cannot be read: {error.strerror}"
    what = {stat.S_IFIFO: "a pipe", stat.S_IFSOCK: "a socket"}.get(stat.S_IFMT(mode), "a device")
    return f"{what}, expected a file"


def _as_text(path: str) -> str:
    return os.fsencode(path).decode("utf-8", "replace")


def _check_name(source: str, path: Path) -> None:
    """A relative path is part of what names a document, and goes into tables and JSON: it must be text."""
    try:
        str(path).encode()
    except UnicodeEncodeError:
        raise DataError(
            f"source {source}: {os.fsencode(path)!r}: the name is not UTF-8; rename the file, or exclude it"
        ) from None


def _matches(manifest: Manifest, written: str, pattern: str, walk: _Walk) -> list[str]:
    """What a pattern matches, folders too."""
    literal = str(manifest.resolve(written))
    if os.path.isfile(literal):  # a name may hold brackets
        return [literal]
    parts = [part for part in pattern.split(os.sep) if part not in ("", ".")]
    return sorted({os.path.normpath(path) for path in _expand(os.sep, parts, (), walk)})


def _expand(folder: str, parts: Sequence[str], above: tuple[str, ...], walk: _Walk) -> Iterator[str]:
    """
    The paths below a folder that the parts of a pattern match, as Python's glob has it but for two things: a folder
    that cannot be listed is an error and no empty one, and a link to a folder `above` it is not walked in circles.
    """
    if not parts:
        yield folder
        return
    part, *rest = parts
    if part == "**":
        above = above or (os.path.realpath(folder),)
        if rest:
            yield from _expand(folder, rest, above, walk)
        for entry in _listed(folder, "*", walk, folders=bool(rest)):
            if not _is_folder(entry):
                yield from [] if rest else [entry.path]
            elif (real := os.path.realpath(entry.path)) not in above:
                yield from _expand(entry.path, parts, (*above, real), walk)
    elif WILD.search(part):
        for entry in _listed(folder, part, walk, folders=bool(rest)):
            if not rest or _is_folder(entry):
                yield from _expand(entry.path, rest, (), walk)
    elif os.path.lexists(path := os.path.join(folder, part)):
        yield from _expand(path, rest, (), walk)


def _listed(folder: str, part: str, walk: _Walk, *, folders: bool) -> list[os.DirEntry[str]]:
    """
    The entries of a folder that a part of a pattern matches, hidden ones only where it begins with a dot; folders:
    more parts follow, so a hidden file was not meant.
    """
    matches = re.compile(fnmatch.translate(part)).fullmatch
    found: list[os.DirEntry[str]] = []
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if not matches(entry.name):
                    continue
                if part.startswith(".") or not entry.name.startswith("."):
                    found.append(entry)
                elif (is_folder := _is_folder(entry)) or not folders:
                    walk.hidden[os.path.normpath(entry.path)] = is_folder
            return found
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        if walk.is_out(os.path.join(folder, "any")):
            return []
        raise MachineError(
            f"{folder}: cannot be listed: {error.strerror}; let it be read, or exclude what is below it"
        ) from None


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # links that lead to each other
        return False


def _nothing(name: str, written: str, pattern: str) -> str:
    folder = glob.escape(pattern) if not WILD.search(pattern) else pattern
    if os.path.isdir(pattern) or os.path.isdir(folder):
        return (
            f"source {name}: {written!r} is a folder, expected files; write {written.rstrip('/')}/** for all below it"
        )
    return f"source {name}: {written!r} matches no file (looked for {pattern}); mend the pattern, or remove it"


def _prefix(pattern: str) -> str:
    """The folder that holds everything a glob can match: its parts before the first wildcard."""
    parts = pattern.split(os.sep)
    fixed: list[str] = []
    for part in parts[:-1]:
        if WILD.search(_unescaped(part)):
            break
        fixed.append(re.sub(r"\[([*?[])\]", r"\1", part))
    return os.sep.join(fixed) or os.sep


def _unescaped(part: str) -> str:
    """The part without what glob.escape put there."""
    return re.sub(r"\[[*?[]\]", "", part)


def _common(folders: list[str]) -> str:
    return os.path.commonpath(folders)


def _excluded(manifest: Manifest, written: str) -> tuple[re.Pattern[str], re.Pattern[str]]:
    """An exclusion as written, for relative paths, and as an absolute pattern."""
    return _regex(written), _regex(manifest.pattern(written))


def _is_out(relative: str, path: str, left_out: list[tuple[re.Pattern[str], re.Pattern[str]]]) -> bool:
    return any(below.fullmatch(relative) or whole.fullmatch(path) for below, whole in left_out)


def _regex(pattern: str) -> re.Pattern[str]:
    """A glob as a regular expression: `**` is any folders, `*` and `?` stay within a name."""
    out, at = "", 0
    while at < len(pattern):
        if pattern.startswith("**/", at) and (at == 0 or pattern[at - 1] == "/"):
            out, at = out + "(?:[^/]+/)*", at + 3
        elif pattern.startswith("**", at):
            out, at = out + ".*", at + 2
        elif pattern[at] == "*":
            out, at = out + "[^/]*", at + 1
        elif pattern[at] == "?":
            out, at = out + "[^/]", at + 1
        elif pattern[at] == "[" and (end := pattern.find("]", at + 2)) > 0:
            inside = pattern[at + 1 : end].replace("\\", "\\\\").replace("[", "\\[")
            out, at = out + "[" + ("^" + inside[1:] if inside[0] == "!" else inside) + "]", end + 1
        else:
            out, at = out + re.escape(pattern[at]), at + 1
    return re.compile(out, re.DOTALL)


def means(pattern: str, path: str) -> bool:
    """Whether a pattern of the folder one is in matches a path, or the place it leads to; neither need be there."""
    if os.path.exists(pattern):  # a name may hold brackets
        pattern = glob.escape(pattern)
    written = os.path.join(glob.escape(os.getcwd()), pattern)
    folder, real = _prefix(written), os.path.realpath(path)
    rest = written.split(os.sep)[len(folder.rstrip(os.sep).split(os.sep)) :]
    led = os.path.join(glob.escape(os.path.realpath(folder)), *rest)
    return any(
        _regex(os.path.normpath(one)).fullmatch(place) for one, place in ((written, os.path.abspath(path)), (led, real))
    )


def kind(relative: str, asked: str) -> tuple[str, str | None]:
    """(format, codec) of a file by its name; `asked` is the source's format, `auto` or one that rules."""
    name = bare(relative.rpartition("/")[2]).lower()
    found = FORMATS.get(os.path.splitext(name)[1], "text") if asked == "auto" else asked
    return found, None if found == "parquet" else SUFFIXES.get(os.path.splitext(relative.lower())[1])
