"""
How the files of a source are written: as a user would, with a wildcard where that means just them.
"""

import glob
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from datapipe.read.streams import SUFFIXES

LISTED = 20  # files that are excluded one by one
WILD = re.compile(r"[*?\[]")


class Pattern(NamedTuple):
    """Files of a source: what follows `folder` has wildcards or is a name; without a folder it is as it was given."""

    folder: Path | None
    below: str
    wild: bool


def suffix(name: str) -> str:
    """.jsonl.zst, .parquet: the endings that a pattern goes by."""
    stem, last = os.path.splitext(name)
    return os.path.splitext(stem)[1] + last if last.lower() in SUFFIXES else last


def holds(path: Path) -> str:
    """The suffix that tells what a file holds, without that of its compression; in lower case."""
    found = suffix(path.name).lower()
    return os.path.splitext(found)[0] if path.suffix.lower() in SUFFIXES else found


def shared_beginning(texts: Sequence[str]) -> str:
    """The longest beginning that all of them have."""
    first, last = min(texts), max(texts)
    length = next((at for at, (one, other) in enumerate(zip(first, last, strict=False)) if one != other), len(first))
    return first[:length]


def meaning(folder: Path, deep: bool, mine: Sequence[Path], among: Sequence[Path]) -> tuple[list[Pattern], list[Path]]:
    """
    (patterns, exclusions) that mean `mine` and no other file of `among`.

    deep: files of folders below belong to them; else the folder's other files are looked at, too
    """
    patterns: list[Pattern] = []
    out: list[Path] = []
    for ending in dict.fromkeys(suffix(path.name) for path in sorted(mine)):
        some = sorted(path for path in mine if suffix(path.name) == ending)
        beside = [path for path in (among if deep else _siblings(folder)) if path.name.endswith(ending)]
        more, less = _of_one_suffix(folder, deep, ending, some, [path for path in beside if path not in set(mine)])
        patterns += more
        out += [path for path in less if path not in out]
    return patterns, out


def _of_one_suffix(
    folder: Path, deep: bool, ending: str, mine: Sequence[Path], others: Sequence[Path]
) -> tuple[list[Pattern], list[Path]]:
    literal = [Pattern(path.parent, path.name, False) for path in mine]
    wildcard = Pattern(folder, ("**/*" if deep else "*") + glob.escape(ending), True)
    if len(mine) == 1 or not ending or (folder / wildcard.below).is_file():  # a file may be called *.jsonl
        return literal, []
    if not others:
        return [wildcard], []
    prefix = shared_beginning([path.name for path in mine])
    if len(prefix) > 2 and not deep and not any(path.name.startswith(prefix) for path in others):
        return [Pattern(folder, f"{glob.escape(prefix)}*{glob.escape(ending)}", True)], []
    if len(mine) > len(others) and len(others) <= LISTED:
        return [wildcard], sorted(others)
    return literal, []


def _siblings(folder: Path) -> list[Path]:
    """The files of a folder that a wildcard can match."""
    return [path for path in sorted(folder.iterdir()) if path.is_file() and not path.name.startswith(".")]


def written(pattern: Pattern, folder: Path) -> str:
    """A pattern as the manifest in `folder` has it: relative to it, absolute where only the root is shared."""
    if pattern.folder is None:
        path = os.path.join(glob.escape(str(Path.cwd())), pattern.below)
        return _sayable(_relative(path, glob.escape(str(folder))))
    path = str(pattern.folder / pattern.below)
    if not pattern.wild and "${" not in path:
        return _sayable(_relative(path, str(folder)))
    below = pattern.below if pattern.wild else glob.escape(pattern.below)
    return _sayable(_relative(os.path.join(glob.escape(str(pattern.folder)), below), glob.escape(str(folder))))


def excluded(path: Path, folder: Path) -> str:
    """A file as an exclusion of the manifest in `folder` names it."""
    return written(Pattern(path.parent, glob.escape(path.name), True), folder)


def _relative(path: str, folder: str) -> str:
    return path if os.path.commonpath([path, folder]) == os.sep else os.path.relpath(path, folder)


def _sayable(path: str) -> str:
    """A path in which nothing is taken for a variable or a home folder."""
    path = path.replace("${", "[$]{")
    return f"./{path}" if path.startswith("~") else path
