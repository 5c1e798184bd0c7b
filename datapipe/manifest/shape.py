"""
The types as a tree: which entry or kind of value belongs at a place of the manifest.

A hint is a type as written at a field, with its `Annotated` parts; a place is a path of keys and list positions.
"""

import functools
import types
import typing
from collections.abc import Iterator
from typing import Annotated, Any, Literal, get_args, get_origin

from pydantic.fields import FieldInfo

from datapipe.manifest.entry import Entry
from datapipe.manifest.values import Kind

Place = tuple[str | int, ...]


@functools.cache
def fields(entry: type[Entry]) -> dict[str, tuple[FieldInfo, Any]]:
    """key -> (field, hint), as a user writes the key."""
    hints = typing.get_type_hints(entry, include_extras=True)
    return {field.alias or name: (field, hints[name]) for name, field in entry.model_fields.items()}


def bare(hint: Any) -> Any:
    """A hint without its `Annotated` parts."""
    while get_origin(hint) is Annotated:
        hint = get_args(hint)[0]
    return hint


def members(hint: Any) -> list[Any]:
    """What a union is made of, without None; any other hint, and what a Kind describes as a whole, alone."""
    core = bare(hint)
    if get_origin(core) in (types.UnionType, typing.Union) and not any(_kinds(hint)):
        return [member for each in get_args(core) if each is not type(None) for member in members(each)]
    return [hint]


def entries(hint: Any) -> list[type[Entry]]:
    """The entries that a mapping at this hint may be."""
    cores = [bare(member) for member in members(hint)]
    return [core for core in cores if isinstance(core, type) and issubclass(core, Entry)]


def resolve(root: type[Entry], loc: tuple[str | int, ...]) -> tuple[Place, Any, type[Entry] | None]:
    """
    pydantic's location of an error -> (place as the user sees it, its hint, the entry it lies in).

    pydantic also names the member of a union and `[key]`; neither is a key.
    """
    place: list[str | int] = []
    hint: Any = root
    above: Any = None
    owner: type[Entry] | None = None
    for part in loc:
        if part == "[key]":
            return tuple(place), get_args(bare(above))[0], owner
        if len(members(hint)) > 1:
            chosen = next((entry for entry in entries(hint) if entry.__name__ == part), None)
            if chosen is None:
                break
            hint = chosen
            continue
        place.append(part)
        owner = next(iter(entries(hint)), owner)
        above, hint = hint, child(hint, part)
    return tuple(place), hint, owner


def child(hint: Any, part: str | int) -> Any:
    """The hint one step further down, None where there is none."""
    core = bare(members(hint)[0])
    if isinstance(core, type) and issubclass(core, Entry):
        return fields(core)[str(part)][1] if part in fields(core) else None
    if get_origin(core) is dict:
        return get_args(core)[1]
    if get_origin(core) is tuple:
        return get_args(core)[0]
    return None


def words(hint: Any) -> str:
    """What is expected at a hint, to follow "expected"."""
    kind = next(_kinds(hint), None)
    if kind:
        return kind
    each = [_words(bare(member)) if next(_kinds(member), None) is None else words(member) for member in members(hint)]
    return " or ".join(dict.fromkeys(each))


def _kinds(hint: Any) -> Iterator[str]:
    if get_origin(hint) is Annotated:
        yield from (part.words for part in get_args(hint)[1:] if isinstance(part, Kind))
        yield from _kinds(get_args(hint)[0])


def _words(core: Any) -> str:
    match get_origin(core):
        case origin if origin is Literal:
            return "one of " + ", ".join(get_args(core))
        case origin if origin is dict:
            return "a mapping"
        case origin if origin is tuple:
            return f"a list, each {words(get_args(core)[0])}"
        case _:
            return "text" if core is str else "a mapping"


def choices(hint: Any) -> tuple[str, ...]:
    """The values of a Literal, else none."""
    core = bare(members(hint)[0]) if hint is not None else None
    return get_args(core) if get_origin(core) is Literal else ()


def every_entry(root: type[Entry]) -> Iterator[tuple[str, type[Entry]]]:
    """(path of keys, entry) of all entries below and with `root`, top first; `*` stands for any name."""
    yield "", root
    for key, (_, hint) in fields(root).items():
        core, step = bare(members(hint)[0]), key
        while get_origin(core) in (dict, tuple):
            step += ".*" if get_origin(core) is dict else "[]"
            hint = child(core, 0)
            core = bare(members(hint)[0])
        for entry in entries(hint):
            for path, found in every_entry(entry):
                yield f"{step}.{path}" if path else step, found
