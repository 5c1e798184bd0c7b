"""Texts and numbers of a value, however it is published."""

import re
from collections.abc import Mapping

from datapipe.read.fields import Bad, as_text, whole

VALUES = ("text", "value", "content", "answer", "spans", "span", "number", "aliases", "date", "input")


def strings(value: object) -> list[str]:
    """All texts of a value: of a list its elements', of an object its text's; true and false are none."""
    match value:
        case str():
            return [whole(value)] if value.strip() else []
        case bool() | None:
            return []
        case list() | tuple():
            return [body for inner in value for body in strings(inner)]
        case dict():
            return of_object({name.casefold(): inner for name, inner in value.items()})
    try:
        return [as_text(value) or ""]
    except Bad:
        return []


def of_object(value: Mapping) -> list[str]:
    """The texts of an object (its names folded to lower case): of the fields that hold such."""
    if "day" in value and "year" in value:  # DROP's dates
        date = " ".join(body for name in ("day", "month", "year") for body in strings(value.get(name)))
        return [date] if date else []
    return [body for name in VALUES for body in strings(value.get(name))]


def number_of(value: object) -> int | None:
    """A whole number, also one of up to two digits that is written as text."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return value
    return int(value) if isinstance(value, str) and re.fullmatch(r"\s*\d{1,2}\s*", value) else None
