"""
From a record to the parts of an example.

* *prompt*: the fields of the question, joined by a line break.  Of a chat each turn of the user is a prompt, what the
  assistant says is an answer or a solution, and what the system says is left out: it is the same for every example.
* *choices*: without their labels (`A.`, `(B)`).  An answer that is the letter, label, number or text of a choice makes
  it the correct one, and the answer is the text of that choice.
* *answer*: never a bare letter, a class number, true or false.  `#### 18` at the end of a solution is an answer too.
* *solution*: fields of that name, and an answer of more than LONG bytes or of several lines (code, a worked solution).
  One with a calculator's marks is a second one without.
* A prompt that a harness wrote out (`Question: ... A. ... Answer:`) is taken apart again; solved examples before the
  question, and an instruction around it that all prompts of the file have, are no part of it.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import pyarrow as pa

from datapipe import text as texts_of
from datapipe.contamination.model import ANSWER, CHOICES, ORDER, PASSAGE, PROMPT, SOLUTION, TESTS
from datapipe.contamination.suites import templates
from datapipe.contamination.suites.choices import Choices, Reading, answers_of, choices_of, reading_of
from datapipe.contamination.suites.names import ID, LANG, SAMPLE, SPLIT, Fields, get, is_empty
from datapipe.contamination.suites.values import strings
from datapipe.read.fields import Bad, as_text

LONG = 150  # bytes of an answer, 25 words of English or 50 characters of Chinese; a longer one is a solution
USERS, ASSISTANTS = ("user", "human", "prompter", "question"), ("assistant", "gpt", "model", "chatgpt", "bot", "answer")
# GSM8K's marks for a calculator, 9 * 2 = $<<9*2=18>>18: many copies have none
CALCULATED = re.compile(r"<<[^<>\n]*=[-+\d.,%$ ]*>>")
FINAL = "####"  # stands before the answer of GSM8K and those that follow it
NO_TEXT, NO_PROMPT, NO_WORDS = "no text in any part", "no prompt, nothing but an answer", "no words in any part"


class Part(NamedTuple):
    kind: str
    ordinal: int
    correct: bool | None
    text: str


@dataclass(slots=True)
class Item:
    """An example before it has its number."""

    row: int
    id: str | None = None
    split: str | None = None
    lang: str | None = None
    problem: str | None = None
    parts: list[Part] = field(default_factory=list)


def items(records: Sequence[tuple[int, dict | str]], fields: Fields) -> list[Item]:
    """
    An item for every record, by row; a record that repeats the one before it only in what lies around the example
    (requests of a harness, one a choice) is none of its own.
    """
    reading = reading_of(records[:SAMPLE], fields)
    found: list[Item] = []
    before: object = None
    for row, record in records:
        if isinstance(record, str):
            found.append(Item(row, problem=record))
            continue
        inner = get(record, fields.inside[:-1]) if fields.inside else None
        if inner is not None and inner == before:
            continue
        before = inner
        found.append(_item(row, record, fields, reading))
    _unframe(found)
    _judge(found, fields)
    return found


def _unframe(found: Sequence[Item]) -> None:
    """Takes away what all prompts of a file have around what they ask."""
    every = [[at for at, part in enumerate(item.parts) if part.kind == PROMPT] for item in found]
    single = [(item, at[0]) for item, at in zip(found, every, strict=True) if len(at) == 1]
    front, behind = templates.frame([item.parts[at].text for item, at in single])
    if front or behind:
        for item, at in single:
            text = item.parts[at].text
            item.parts[at] = item.parts[at]._replace(text=text[front : len(text) - behind].strip())


def _item(row: int, record: dict, fields: Fields, reading: Reading) -> Item:
    prompts, spoken = _prompts(record, fields)
    passages = [body for path in fields.paths.get(PASSAGE, ()) for body in strings(get(record, path))]
    choices = choices_of(record, fields)
    if len(prompts) == 1:
        question, about = templates.asked(prompts[0])
        prompts, passages = [question], passages or ([about] if about else [])
    if len(prompts) == 1 and PROMPT not in fields.named and (unfolded := templates.unfold(prompts[0])):
        if choices and unfolded.choices and all(templates.letter(body) is not None for body in choices.texts):
            choices = Choices(unfolded.choices, choices.labels, choices.correct)
            prompts = [unfolded.prompt]
        elif not unfolded.choices:
            prompts = [unfolded.prompt]
        passages = passages or ([unfolded.passage] if unfolded.passage else [])
    solutions = [body for path in fields.paths.get(SOLUTION, ()) for body in strings(get(record, path))]
    answers = [*answers_of(record, fields, choices, reading, prompts), *spoken]
    if choices and len(choices.texts) == 1:  # the one right continuation, not a choice
        answers = answers or ([] if choices.texts[0] in solutions else choices.texts)
        choices = None
    answers += [final for body in [*answers, *solutions] if (final := _final(body))]
    for bodies in (answers, solutions):
        bodies += [bare for body in bodies if (bare := CALCULATED.sub("", body)) != body]
    tests = [body for path in fields.paths.get(TESTS, ()) if (body := "\n".join(strings(get(record, path))))]
    parts = [*_parts(PROMPT, prompts), *_parts(ANSWER, answers), *_parts(SOLUTION, solutions), *_parts(TESTS, tests),
             *_parts(PASSAGE, passages)]  # fmt: skip
    if choices:
        parts += [Part(CHOICES, at, at in choices.correct if choices.correct else None, body)
                  for at, body in enumerate(choices.texts) if body.strip()]  # fmt: skip
    ids = [_one(record, fields.paths.get(role, ())) for role in (ID, SPLIT, LANG)]
    return Item(row, *ids, parts=parts)


def _final(solution: str) -> str | None:
    """What the last line of a solution marks as its answer."""
    line = solution.rstrip().rpartition("\n")[2]
    return line.removeprefix(FINAL).strip() if line.startswith(FINAL) else None


def _parts(kind: str, bodies: Iterable[str]) -> list[Part]:
    return [Part(kind, at, None, body) for at, body in enumerate(dict.fromkeys(bodies)) if body.strip()]


def _one(record: dict, paths: Sequence[str]) -> str | None:
    for path in paths:
        if not is_empty(value := get(record, path)):
            try:
                return as_text(value)
            except Bad:
                return None
    return None


# prompts and chats


def _prompts(record: dict, fields: Fields) -> tuple[list[str], list[str]]:
    """(prompts, what the assistant says)."""
    values = [value for path in fields.paths.get(PROMPT, ()) if not is_empty(value := get(record, path))]
    if len(values) == 1 and isinstance(values[0], list):
        turns = values[0]
        if all(isinstance(turn, dict) for turn in turns):
            said = [(_speaker(turn), "\n".join(strings(turn.get("content", turn.get("value"))))) for turn in turns]
            return ([body for who, body in said if who in USERS and body],
                    [body for who, body in said if who in ASSISTANTS and body])  # fmt: skip
        return strings(turns), []
    joined = "\n".join(body for value in values for body in strings(value))
    return [joined] if joined else [], []


def _speaker(turn: dict) -> str:
    return str(turn.get("role", turn.get("from", ""))).casefold()


# what is long, and what cannot be tested


def _judge(found: Sequence[Item], fields: Fields) -> None:
    """Long answers become solutions, and items of which nothing can be looked for get a problem."""
    flat = [part.text for item in found for part in item.parts]
    counts = iter(texts_of.unit_counts(pa.array(flat, pa.large_string())).tolist())
    for item in found:
        units = [(part, next(counts)) for part in item.parts]
        if ANSWER not in fields.named:
            right = {part.text for part in item.parts if part.kind == CHOICES}
            units = [(part._replace(kind=SOLUTION) if part.text not in right and _is_long(part) else part, n)
                     for part, n in units]  # fmt: skip
        item.problem = item.problem or _problem(units)
        item.parts = [] if item.problem else _ordered(part for part, _ in units)


def _is_long(part: Part) -> bool:
    return part.kind == ANSWER and (len(part.text.encode()) > LONG or "\n" in part.text.strip())


def _problem(units: Sequence[tuple[Part, int]]) -> str | None:
    if not units:
        return NO_TEXT
    asked = [n for part, n in units if part.kind not in (ANSWER, CHOICES)]
    if not asked:
        return NO_PROMPT
    return None if any(asked) else NO_WORDS


def _ordered(parts: Iterable[Part]) -> list[Part]:
    """By kind, numbered anew within each, equal texts once."""
    by_kind: dict[str, dict[str, Part]] = {}
    for part in parts:
        same = part.text if part.kind != CHOICES else f"{part.ordinal}"
        by_kind.setdefault(part.kind, {}).setdefault(same, part)
    kinds = sorted(by_kind, key=ORDER.__getitem__)
    return [part._replace(ordinal=part.ordinal if kind == CHOICES else at)
            for kind in kinds for at, part in enumerate(by_kind[kind].values())]  # fmt: skip
