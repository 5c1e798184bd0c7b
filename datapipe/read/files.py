"""
Which files a source means: patterns, exclusions, and the name a file has below the source's folder.
"""

import fnmatch
import glob
import os
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from datapipe.errors import DataError, MachineError
from datapipe.manifest import Manifest
from datapipe.read.streams import SUFFIXES

FORMATS = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",
    ".parquet": "parquet",
    ".pq": "parquet",
    ".csv": "csv",
    ".tsv": "csv",
}
WILD = re.compile(r"[*?\[]")


def find(manifest: Manifest, name: str) -> list[tuple[str, Path]]:
    """
    (relative path, path) of every file of a source, sorted by relative path.  DataError for a pattern without a file.
    """
    source = manifest.sources[name]
    patterns = [manifest.pattern(written) for written in source.files]
    root = _common([_prefix(pattern) for pattern in patterns])
    left_out = [_excluded(manifest, written) for written in source.exclude]
    found: dict[str, Path] = {}

    def relative(path: str) -> str:
        return os.path.relpath(path, root).replace(os.sep, "/")

    def is_out(path: str) -> bool:
        return _is_out(relative(path), path, left_out)

    for written, pattern in zip(source.files, patterns, strict=True):
        files = [path for path in _matches(manifest, written, pattern, is_out) if not is_out(path)]
        if not files:
            raise DataError(_nothing(name, written, pattern))
        found |= {relative(path): Path(path) for path in files}
    for path in found.values():
        _check_name(name, path)
    return sorted(found.items())


def _check_name(source: str, path: Path) -> None:
    """A relative path is part of what names a document, and goes into tables and JSON: it must be text."""
    try:
        str(path).encode()
    except UnicodeEncodeError:
        raise DataError(
            f"source {source}: {os.fsencode(path)!r}: the name is not UTF-8; rename the file, or exclude it"
        ) from None


def _matches(manifest: Manifest, written: str, pattern: str, is_out: Callable[[str], bool]) -> list[str]:
    literal = str(manifest.resolve(written))
    if os.path.isfile(literal):  # a name may hold brackets
        return [literal]
    parts = [part for part in pattern.split(os.sep) if part not in ("", ".")]
    found = _expand(os.sep, parts, (), is_out)
    return sorted({os.path.normpath(path) for path in found if os.path.isfile(path)})


def _expand(folder: str, parts: Sequence[str], above: tuple[str, ...], is_out: Callable[[str], bool]) -> Iterator[str]:
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
            yield from _expand(folder, rest, above, is_out)
        for entry in _listed(folder, "*", is_out):
            if not entry.is_dir():
                yield from [] if rest else [entry.path]
            elif (real := os.path.realpath(entry.path)) not in above:
                yield from _expand(entry.path, parts, (*above, real), is_out)
    elif WILD.search(part):
        for entry in _listed(folder, part, is_out):
            if not rest or entry.is_dir():
                yield from _expand(entry.path, rest, (), is_out)
    elif os.path.lexists(path := os.path.join(folder, part)):
        yield from _expand(path, rest, (), is_out)


def _listed(folder: str, part: str, is_out: Callable[[str], bool]) -> list[os.DirEntry[str]]:
    """The entries of a folder that a part of a pattern matches, hidden ones only where it begins with a dot."""
    matches = re.compile(fnmatch.translate(part)).fullmatch
    try:
        with os.scandir(folder) as entries:
            return [entry for entry in entries
                    if matches(entry.name) and (part.startswith(".") or not entry.name.startswith("."))]  # fmt: skip
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        if is_out(os.path.join(folder, "any")):
            return []
        raise MachineError(
            f"{folder}: cannot be listed: {error.strerror}; let it be read, or exclude what is below it"
        ) from None


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


def kind(relative: str, asked: str) -> tuple[str, str | None]:
    """(format, codec) of a file by its name; `asked` is the source's format, `auto` or one that rules."""
    name = relative.rpartition("/")[2].lower()
    codec = SUFFIXES.get(os.path.splitext(name)[1])
    if codec:
        name = os.path.splitext(name)[0]
    found = FORMATS.get(os.path.splitext(name)[1], "text") if asked == "auto" else asked
    return found, None if found == "parquet" else codec
