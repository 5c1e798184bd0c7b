"""
pydantic's errors in our words: what was found, what was expected, what to do.
"""

import difflib
from collections.abc import Iterable, Iterator
from typing import Any, cast

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from datapipe.manifest import shape
from datapipe.manifest.entry import Entry
from datapipe.manifest.shape import Place
from datapipe.manifest.stages import LATER_STAGES, STAGES
from datapipe.manifest.types import Manifest, TokenizerFile, TokenizerTrain
from datapipe.manifest.values import found

LATER = "not in this version"
Problem = tuple[Place, str]


def nearest(word: object, known: Iterable[str]) -> str | None:
    """The known word that a misspelt one most likely meant, None where none is near."""
    close = difflib.get_close_matches(str(word), list(known), n=1, cutoff=0.6)
    return close[0] if close else None


def instead(word: object, known: Iterable[str]) -> str:
    """What to write instead of an unknown word: the nearest known one, or all of them."""
    known = list(known)
    close = nearest(word, known)
    return f"did you mean `{close}`?" if close else "known are " + ", ".join(f"`{each}`" for each in known)


def problems(error: ValidationError, root: type[Entry] = Manifest) -> Iterator[Problem]:
    """All mistakes of a validation of `root`, each place once."""
    details = error.errors(include_url=False)
    misspelt = {(d["loc"][:-1], _meant(d, root)) for d in details if d["type"] == "extra_forbidden"}
    seen: set[Place] = set()
    for detail in details:
        if detail["type"] == "too_short" and detail["input"]:
            continue  # its items are wrong, and pydantic counts the right ones only
        if detail["type"] == "missing" and (detail["loc"][:-1], detail["loc"][-1]) in misspelt:
            continue
        for place, problem in _problem(detail, root):
            if place not in seen:
                seen.add(place)
                yield place, problem


def _meant(detail: ErrorDetails, root: type[Entry]) -> str | None:
    _, _, owner = shape.resolve(root, detail["loc"])
    return nearest(detail["loc"][-1], shape.fields(owner)) if owner else None


def _problem(detail: ErrorDetails, root: type[Entry]) -> Iterator[Problem]:
    place, hint, owner = shape.resolve(root, detail["loc"])
    value = detail["input"]
    match detail["type"]:
        case "refused":
            context = detail.get("ctx", {})
            yield (*place, *([context["key"]] if context["key"] else [])), context["problem"]
        case "extra_forbidden" if owner:
            yield place, _unknown_key(str(place[-1]), owner, root)
        case "missing" if owner:
            field, _ = shape.fields(owner)[str(place[-1])]
            yield place, f"is required: {field.description}"
        case "stage":
            yield _stage(place, value)
        case "tokenizer":
            yield from _tokenizer(place, value)
        case _ if later := _later_value(place, value, owner):
            yield place, later
        case "literal_error":
            yield place, _unknown_value(value, shape.choices(hint), key=detail["loc"][-1] == "[key]")
        case _:
            yield place, f"found {found(value)}, expected {_expected(detail, hint)}{_quotes(value, hint)}"


def _unknown_key(key: str, owner: type[Entry], root: type[Entry]) -> str:
    if key in owner.LATER:
        return f"{LATER} ({owner.LATER[key]})"
    known = list(shape.fields(owner))
    if nearest(key, known) is None and (elsewhere := _elsewhere(key, root)):
        return f"unknown key here; it belongs {elsewhere}"
    return f"unknown key; {instead(key, known)}"


def _elsewhere(key: str, root: type[Entry]) -> str | None:
    """Where in the manifest a key would be right."""
    for path, entry in shape.every_entry(root):
        if key in shape.fields(entry):
            return f"under `{path}`" if path else "at the top level"
    return None


def _unknown_value(value: object, known: tuple[str, ...], *, key: bool) -> str:
    what = "unknown key" if key else f"found {found(value)}, expected one of {', '.join(known)}"
    if key:
        return f"{what}; {instead(value, known)}"
    close = nearest(value, known) if isinstance(value, str) else None
    return f"{what}; did you mean `{close}`?" if close else what


def _stage(place: Place, value: object) -> Problem:
    if not isinstance(value, dict):
        return place, f"found {found(value)}, expected a mapping with the key stage"
    mapping = cast("dict[str, Any]", value)
    if "stage" not in mapping:
        return (*place, "stage"), f"is required: one of {', '.join(STAGES)}"
    name = mapping["stage"]
    if isinstance(name, str) and name in LATER_STAGES:
        return (*place, "stage"), f"`{name}` is {LATER} ({LATER_STAGES[name]})"
    return (*place, "stage"), _unknown_value(name, tuple(STAGES), key=False)


def _tokenizer(place: Place, value: object) -> Iterator[Problem]:
    if not isinstance(value, dict):
        yield place, f"found {found(value)}, expected a mapping with file or train"
        return
    mapping = cast("dict[str, Any]", value)
    known = dict.fromkeys([*shape.fields(TokenizerFile), *shape.fields(TokenizerTrain)])
    unknown = [key for key in mapping if key not in known]
    for key in unknown:
        yield (*place, key), f"unknown key; {instead(key, known)}"
    if "file" in mapping or not unknown:
        yield place, "needs either file (a tokenizer.json) or train (vocab_size, sample)"


def _later_value(place: Place, value: object, owner: type[Entry] | None) -> str | None:
    """A value that has a meaning in a later version, in words; lists are reached through their items, too."""
    keys = [part for part in place if isinstance(part, str)]
    if owner is None or not keys:
        return None
    later = owner.LATER_VALUES.get(keys[-1], {})
    if "*" in later:
        return f"{LATER} ({later['*']}); leave it empty"
    return f"`{value}` is {LATER} ({later[value]})" if isinstance(value, str) and value in later else None


def _expected(detail: ErrorDetails, hint: Any) -> str:
    if detail["type"] == "too_short" and not detail["input"]:
        return "at least one"
    if detail["type"] == "invalid_key":
        return "text as a key"
    return shape.words(hint) if hint is not None else detail["msg"]


def _quotes(value: object, hint: Any) -> str:
    """YAML's own traps: a number or a switch where text was meant, and the other way round."""
    expected = shape.words(hint) if hint is not None else ""
    if isinstance(value, int | float) and expected.startswith(("text", "a name", "a path", "a sha256")):
        return "; put it in quotes"
    number = expected.startswith(("a number", "a whole", "a share"))
    if number and isinstance(value, str) and value.replace(".", "", 1).isdecimal():
        return "; without quotes"
    return ""
