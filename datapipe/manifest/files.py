"""
From a YAML file to an entry of any kind, or to all that is wrong with it as `file:line: key: problem`.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError

from datapipe.errors import MachineError, ManifestError
from datapipe.manifest import messages, tree
from datapipe.manifest.entry import Entry

E = TypeVar("E", bound=Entry)


def read(path: str | Path) -> bytes:
    """The bytes of a manifest; ManifestError or MachineError says why there are none."""
    try:
        return Path(path).read_bytes()
    except FileNotFoundError:
        raise ManifestError(f"{path}: there is no such file") from None
    except IsADirectoryError:
        raise ManifestError(f"{path}: is a folder; name the YAML file in it") from None
    except PermissionError:
        raise MachineError(f"{path}: may not be read; give yourself the permission") from None
    except OSError as error:
        raise ManifestError(f"{path}: cannot be read: {error.strerror}") from None


def document(data: bytes | str, path: str | Path) -> tree.Tree:
    """The YAML of a manifest; ManifestError where it is none."""
    try:
        return tree.parse(tree.decode(data) if isinstance(data, bytes) else data)
    except tree.BrokenError as broken:
        raise ManifestError(f"{path}:{broken.mistake}") from None


def refuse(found: tree.Tree, problems: Iterable[messages.Problem], path: str | Path) -> None:
    """ManifestError with every mistake of a document, a line each; nothing where there is none."""
    mistakes = [*found.mistakes, *_placed(found, problems)]
    if mistakes:
        mistakes.sort(key=lambda mistake: (mistake.line, tree.key_of(mistake.place)))
        raise ManifestError("\n".join(f"{path}:{mistake}" for mistake in mistakes))


def _placed(found: tree.Tree, problems: Iterable[messages.Problem]) -> Iterator[tree.Mistake]:
    """Problems with their lines; what YAML itself got wrong (a tag, a key twice) is not reported a second time."""
    known = {mistake.place for mistake in found.mistakes}
    for place, problem in problems:
        if place not in known:
            yield tree.Mistake(found.line(place), place, problem)


def load(path: Path, root: type[E], change: Callable[[Mapping[str, Any]], Mapping[str, Any]] = lambda raw: raw) -> E:
    """The entry in a file.  change: what the command line puts in before it is checked."""
    found = document(read(path), path)
    try:
        entry = root.model_validate(change(found.values), context=path)
    except ValidationError as error:
        refuse(found, messages.problems(error, root), path)
        raise
    refuse(found, (), path)
    return entry


def value(text: str) -> Any:
    """A value of the command line, as YAML reads it; ManifestError where it is none."""
    try:
        return tree.parse(f"value: {text}").values["value"]
    except tree.BrokenError as broken:
        raise ManifestError(f"{text!r} is no value: {broken.mistake.problem}") from None
