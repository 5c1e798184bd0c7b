"""
Which files a source means: patterns, exclusions, and the name a file has below the source's folder.
"""

import glob
import os
import re
from pathlib import Path

from datapipe.errors import DataError
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
    for written, pattern in zip(source.files, patterns, strict=True):
        files = [
            (os.path.relpath(path, root).replace(os.sep, "/"), path) for path in _matches(manifest, written, pattern)
        ]
        files = [(relative, path) for relative, path in files if not _is_out(relative, path, left_out)]
        if not files:
            raise DataError(_nothing(name, written, pattern))
        found |= {relative: Path(path) for relative, path in files}
    return sorted(found.items())


def _matches(manifest: Manifest, written: str, pattern: str) -> list[str]:
    literal = str(manifest.resolve(written))
    if os.path.isfile(literal):  # a name may hold brackets
        return [literal]
    return [os.path.normpath(path) for path in glob.iglob(pattern, recursive=True) if os.path.isfile(path)]


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
