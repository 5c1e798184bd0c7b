"""
What is offered to choose from, and which of it is right.

An answer names a choice by its label, text, letter or number; which of these a file means is told by all its answers.
"""

import ast
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from datapipe.contamination.model import ANSWER, CHOICES
from datapipe.contamination.suites import templates
from datapipe.contamination.suites.names import Fields, get, plain
from datapipe.contamination.suites.values import number_of, of_object, strings

INLINE = 10_000  # characters of a cell that may list choices in a line
OPTION = re.compile(r"\s*,?\s*\(?\b[a-jA-J]\s*[).]\s*")
NO_ANSWER = ("true", "false")


@dataclass
class Choices:
    texts: list[str]
    labels: list[str] = field(default_factory=list)  # as published: "A", "1"; none where the place is the label
    correct: set[int] = field(default_factory=set)


def choices_of(record: dict, fields: Fields) -> Choices | None:
    paths = fields.paths.get(CHOICES, ())
    if len(paths) == 1:
        found = _listed(get(record, paths[0]))
    else:
        values = ["\n".join(strings(get(record, path))) for path in paths]
        while values and not values[-1]:
            values.pop()
        found = Choices(values)
    wrong = [body for path in fields.wrong for body in strings(get(record, path))]
    if wrong and not found.texts:
        right = [body for path in fields.paths.get(ANSWER, ())[:1] for body in strings(get(record, path))][:1]
        found = Choices(right + wrong, correct=set(range(len(right))))
    if not found.texts:
        return None
    found.texts, labels = templates.unlabelled(found.texts)
    found.labels = found.labels or labels
    return found


def _listed(value: object) -> Choices:
    """Choices as they are published: a list of texts or objects, an object of lists, label: text or text: 0 or 1."""
    if isinstance(value, str):
        value = _spelled(value)
    if isinstance(value, list):
        if value and all(isinstance(choice, dict) for choice in value):
            lower = [{name.casefold(): inner for name, inner in choice.items()} for choice in value]
            labels = [label for choice in lower if (label := _first(choice, ("label", "key", "id", "letter")))]
            right = {at for at, choice in enumerate(lower)
                     if any(choice.get(name) is True for name in ("correct", "is_correct", "iscorrect"))}  # fmt: skip
            bodies = ["\n".join(of_object(choice)[:1]) for choice in lower]
            return Choices(bodies, labels if len(labels) == len(bodies) else [], right)
        return Choices([str(choice) if isinstance(choice, bool) else "\n".join(strings(choice)) for choice in value])
    if not isinstance(value, dict) or not value:
        return Choices([])
    lower = {name.casefold(): inner for name, inner in value.items()}
    for name in ("text", "texts", "choices", "options"):
        if isinstance(bodies := lower.get(name), list):
            labels = lower.get("label", lower.get("labels", lower.get("key")))
            labels = labels if isinstance(labels, list) and len(labels) == len(bodies) else []
            if labels and all(label in (0, 1) and not isinstance(label, str) for label in labels):
                return Choices(list(map(str, bodies)), [], {at for at, label in enumerate(labels) if label})
            return Choices(list(map(str, bodies)), list(map(str, labels)))
    if all(isinstance(inner, str) for inner in value.values()):
        return Choices([str(inner) for inner in value.values()], [str(name) for name in value])
    if all(inner in (0, 1) for inner in value.values() if isinstance(inner, int | float)):
        return Choices(list(value), [], {at for at, inner in enumerate(value.values()) if inner == 1})
    return Choices([])


def _first(choice: dict, names: Sequence[str]) -> str | None:
    return next((str(choice[name]) for name in names if choice.get(name) is not None), None)


def _spelled(value: str) -> object:
    """A list that CSV holds as a string; ast reads literals only, nothing runs."""
    for read in (json.loads, ast.literal_eval):
        try:
            found = read(value)
        except (ValueError, SyntaxError, RecursionError, MemoryError):
            continue
        if isinstance(found, list | dict):
            return found
    if (lines := value.split("\n")) and len(lines) > 1:
        return [line for line in lines if line.strip()]
    bodies = [body.strip() for body in OPTION.split(value[:INLINE])]
    return bodies[1:] if len(bodies) > 2 and not bodies[0] else []


class Reading(NamedTuple):
    """How the answers of a file name choices."""

    base: int  # the number of the first choice
    by_text: bool  # an answer that could be a choice's text or its letter or number is its text


def reading_of(records: Iterable[tuple[int, object]], fields: Fields) -> Reading:
    """
    base: 0 where some answer is 0, 1 where one is the number of choices; where no record tells, 1 for columns that
    count from 1 or A and numbers that are written as text, else 0.  by_text: every answer is the text of a choice.
    """
    texts, by_text, found = False, True, set[int]()
    for _, record in records:
        if not isinstance(record, dict) or not (choices := choices_of(record, fields)):
            continue
        for path in fields.paths.get(ANSWER, ()):
            value = get(record, path)
            if isinstance(value, str) and value.strip():
                texts = True
                by_text &= any(_same(body, value) for body in choices.texts)
            number = number_of(value)
            found |= {0} if number == 0 else {1} if number == len(choices.texts) else set()
    base = 0 if 0 in found else 1 if found else int(texts and fields.numbered)
    return Reading(base, by_text)


def answers_of(
    record: dict, fields: Fields, choices: Choices | None, reading: Reading, prompts: Sequence[str]
) -> list[str]:
    """The texts of the right answers; marks the choices that they are."""
    found: list[str] = []
    several = choices if choices and len(choices.texts) > 1 else None
    for path in fields.paths.get(ANSWER, ()):
        value = get(record, path)
        if several and (places := _resolved(value, several, reading)):
            several.correct |= set(places)
        elif several is None or isinstance(value, str | list | dict):
            if isinstance(value, str) and plain(path.rpartition(".")[2]) == "correctanswers":  # TruthfulQA
                value = [body.strip() for body in value.split(";")]
            found += _as_text(value, prompts, path in fields.labels)
    if several and several.correct:
        found = [several.texts[at] for at in sorted(several.correct)] + found
    return list(dict.fromkeys(found))


def _as_text(value: object, prompts: Sequence[str], label: bool) -> Iterator[str]:
    """Texts that answer by themselves; a bare letter is the choice that the prompt spells out, or nothing."""
    bodies = strings(value)
    for body in bodies:
        if (at := templates.letter(body)) is not None:
            spelled = templates.spelled(prompts[0]) if len(prompts) == 1 and len(bodies) == 1 else []
            if at < len(spelled):
                yield spelled[at]
        elif body.strip().casefold() not in NO_ANSWER and not (label and number_of(body) is not None):
            yield body


def _resolved(value: object, choices: Choices, reading: Reading) -> list[int]:
    """The places of the choices that a value names: by label, text, letter or number; none where it names no choice."""
    if isinstance(value, list):
        flags = [inner for inner in value if isinstance(inner, int) and inner in (0, 1)]
        if len(value) == len(choices.texts) == len(flags) and sum(flags) == 1:
            return [flags.index(1)]
        places = [_resolved(inner, choices, reading) for inner in value]
        return [at for found in places for at in found] if all(places) else []
    if isinstance(value, str):
        value = value.strip()
        by_text = [at for at, body in enumerate(choices.texts) if _same(body, value)][:1]
        by_letter = _by_letter(value, choices)
        if found := (by_text or by_letter) if reading.by_text else by_letter:
            return found
        number = number_of(value)
        at = -1 if number is None else number - reading.base
        return [at] if 0 <= at < len(choices.texts) else by_text
    number = number_of(value)
    at = -1 if number is None else number - reading.base
    return [at] if 0 <= at < len(choices.texts) else []


def _by_letter(value: str, choices: Choices) -> list[int]:
    """By label as published, else by the letters of the places; `AC` and `A, C` are two."""
    for label in (value, value.upper()):
        if label in choices.labels:
            return [choices.labels.index(label)]
    one = templates.letter(value)
    if one is not None:
        mark = templates.LABELS[one]
        at = choices.labels.index(mark) if mark in choices.labels else one
        return [at] if at < len(choices.texts) else []
    marks = re.sub(r"[\s,;、]", "", value)
    places = [templates.LABELS.find(mark) for mark in marks]
    right = len(places) > 1 and places == sorted(set(places)) and places[0] >= 0 and places[-1] < len(choices.texts)
    return places if right else []


def _same(one: str, other: str) -> bool:
    return " ".join(one.split()) == " ".join(other.split())
