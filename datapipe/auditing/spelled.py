"""A report as JSON, a piece after the other: at no time are all of its findings there as objects twice."""

import hashlib
import json
from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import BaseModel

from datapipe.keyed import canonical

DEPTH = 2  # of models that are spelled field by field: the report and its sections; what is in their lists is whole


def sha256(value: BaseModel, leave: str) -> str:
    """sha256 of the canonical JSON of all but the field `leave`, in hex."""
    found = hashlib.sha256()
    for piece in _canonical(value, leave, {}, 0):
        found.update(piece)
    return found.hexdigest()


def compact(value: BaseModel, more: Mapping[str, Any]) -> bytes:
    """The canonical JSON of a model and of `more` fields beside its own."""
    return b"".join(_canonical(value, None, more, 0))


def readable(value: BaseModel, more: Mapping[str, Any]) -> bytes:
    """The same for people: fields in the order of the model, each entry of a list on a line."""
    return ("".join(_lines(value, more, 0)) + "\n").encode("utf-8", "surrogatepass")


def _canonical(value: Any, leave: str | None, more: Mapping[str, Any], depth: int) -> Iterator[bytes]:
    if isinstance(value, BaseModel) and depth < DEPTH:
        fields = {name: getattr(value, name) for name in type(value).model_fields if name != leave} | dict(more)
        for at, name in enumerate(sorted(fields)):
            yield (b"," if at else b"{") + canonical(name) + b":"
            yield from _canonical(fields[name], None, {}, depth + 1)
        yield b"}"
    elif _entries(value):
        for at, entry in enumerate(value):
            yield b"," if at else b"["
            yield from _canonical(entry, None, {}, depth)
        yield b"]"
    else:
        yield canonical(_plain(value))


def _lines(value: Any, more: Mapping[str, Any], depth: int, indent: str = "") -> Iterator[str]:
    inner = f"{indent} "
    if isinstance(value, BaseModel) and depth < DEPTH:
        fields = {name: getattr(value, name) for name in type(value).model_fields} | dict(more)
        for at, (name, each) in enumerate(fields.items()):
            yield f"{',' if at else '{'}\n{inner}{json.dumps(name)}: "
            yield from _lines(each, {}, depth + 1, inner)
        yield f"\n{indent}}}"
    elif _entries(value):
        for at, entry in enumerate(value):
            yield f"{',' if at else '['}\n{inner}"
            yield from _lines(entry, {}, depth, inner)
        yield f"\n{indent}]"
    else:
        yield json.dumps(_plain(value), ensure_ascii=False)


def _entries(value: Any) -> bool:
    return isinstance(value, tuple) and bool(value) and isinstance(value[0], BaseModel)


def _plain(value: Any) -> Any:
    return value.model_dump(mode="json") if isinstance(value, BaseModel) else value
