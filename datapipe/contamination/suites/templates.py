"""
Texts that hold several parts: labelled choices, a prompt as a harness writes it out, blocks of a text file.
"""

import re
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any, NamedTuple

import pyarrow as pa

from datapipe.text import unit_counts

LABELS = "ABCDEFGHIJKLMNOP"
LABEL = re.compile(
    r"\s*[(（\[]?([A-Pa-p])[)）\].．、:：]\s*"  # (A) A. a)
    r"|\s*(\d{1,2})[.)．、]\s+"  # 1. 2)
    r"|\s*([A-P])[ \u3000]+(?=[^\x00-\x7f])"  # A and Chinese
)
HEADING = re.compile(
    r"(title|passage|background|context|article|question|problem|q|choices|options|answer|a|solution|explanation|"
    r"rationale|问题|問題|答案|题目)[ \t]{0,3}\d{0,4}[ \t]{0,3}[:：][ \t]*",
    re.IGNORECASE,
)
ROLE_OF = {
    "title": "title", "passage": "passage", "background": "passage", "context": "passage", "article": "passage",
    "question": "question", "problem": "question", "q": "question", "问题": "question", "問題": "question",
    "题目": "question", "choices": "choices", "options": "choices", "answer": "answer", "a": "answer",
    "答案": "answer", "solution": "solution", "explanation": "solution", "rationale": "solution",
}  # fmt: skip
ANSWERED = ("answer", "solution")  # roles
FRAMED, UNITS = 3, 16  # prompts of a file, units that all of them have
BREAK = re.compile(r"\n+|(?<=[.!?:])[ \t]+|(?<=[。！？：])")
LETTER = re.compile(r"\W{0,2}([A-Pa-p])\W{0,2}")


class Unfolded(NamedTuple):
    """What a prompt that a harness wrote out is made of."""

    prompt: str
    passage: str | None
    choices: list[str]  # none where it has none


def _mark(match: re.Match[str] | None) -> str:
    return next(filter(None, match.groups())).upper() if match else ""


def unlabelled(texts: Sequence[str]) -> tuple[list[str], list[str]]:
    """(choices without their labels, these labels), where they are labelled from A or 1; else as they are, and none."""
    found = [LABEL.match(text) for text in texts]
    marks = [_mark(match) for match in found]
    bodies = [text[match.end() :] if match else text for text, match in zip(texts, found, strict=True)]
    in_a_row = sorted(marks) in (list(LABELS[: len(texts)]), [str(n + 1) for n in range(len(texts))])
    return (bodies, marks) if len(texts) > 1 and in_a_row and any(bodies) else (list(texts), [])


def labelled(text: str) -> tuple[str, list[str]]:
    """(what is before them, the choices) of a text that ends in lines A, B, C, ...; no choices where it does not."""
    lines = text.split("\n")
    marks = [_mark(LABEL.match(line)) for line in lines]
    if marks.count("A") != 1:
        return text, []
    places = [marks.index("A")]
    while len(places) < len(LABELS) and LABELS[len(places)] in marks[places[-1] + 1 :]:
        places.append(marks.index(LABELS[len(places)], places[-1] + 1))
    if len(places) < 2:
        return text, []
    ends = [*places[1:], len(lines)]
    choices = ["\n".join(lines[at:end]).strip() for at, end in zip(places, ends, strict=True)]
    return "\n".join(lines[: places[0]]).strip(), unlabelled(choices)[0]


def spelled(text: str) -> list[str]:
    """The choices that a prompt spells out, the last without the `Answer:` behind it."""
    lines = text.split("\n")
    *before, (role, _, first) = _headed(lines)
    return labelled("\n".join(lines[:first] if before and role in ANSWERED else lines))[1]


def asked(text: str) -> tuple[str, str | None]:
    """
    (the question itself, what it is about) of a prompt that shows solved examples before it: these are no part of the
    item, and as long as they are they would keep a copy of the question below every bound.  Any other text as it is.
    """
    lines = text.split("\n")
    parts = list(_headed(lines))
    last = max((at for at, (role, *_) in enumerate(parts) if role == "question"), default=0)
    solved = [at for at, (role, body, _) in enumerate(parts[:last]) if role in ANSWERED and body.strip()]
    if not solved:
        return text, None
    own, before = parts[solved[-1] + 1 :], parts[: solved[-1]]
    about = [body.strip() for role, body, _ in before if role == "passage" and body.strip()]
    if not about and before[0][0] is None:  # a story, or an instruction, which all examples have
        about = [before[0][1].strip()]
    passage = about[-1] if about and all(role != "passage" for role, *_ in own) else None
    return "\n".join(lines[own[0][2] :]).strip(), passage or None


def frame(texts: Sequence[str]) -> tuple[int, int]:
    """
    (characters in front, characters behind) that all prompts of a file have around what they ask: an instruction,
    solved examples; whole lines or sentences.  None where they are few units, or few beside the prompts.

    In front of a question and longer than it they would keep a copy of the question below every bound.
    """
    texts = sorted(set(texts))
    if len(texts) < FRAMED:
        return 0, 0
    first = _beginning(texts[0], texts[-1])  # of the first and the last in order: of all
    turned = sorted(text[len(first) :][::-1] for text in texts)
    last = _beginning(turned[0], turned[-1])[::-1]
    front = max((match.end() for match in BREAK.finditer(first)), default=0)
    behind = next((len(last) - match.start() for match in BREAK.finditer(last)), 0)
    middle = sorted(texts, key=len)[len(texts) // 2]
    around = [first[:front], last[len(last) - behind :], middle]
    *shared, units = unit_counts(pa.array(around, pa.large_string())).tolist()
    apart = all(text[front : len(text) - behind].strip() for text in texts)
    return (front, behind) if sum(shared) >= UNITS and 4 * sum(shared) >= units and apart else (0, 0)


def _beginning(one: str, other: str) -> str:
    """What two texts begin with."""
    return one[: next((at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), len(one))]


def unfold(text: str) -> Unfolded | None:
    """The parts of a prompt that ends in `Answer:` or `Solution:`, as a harness writes it; null for any other."""
    parts = list(_headed(text.split("\n")))
    if len(parts) < 2 or parts[-1][0] not in ANSWERED or parts[-1][1].strip():
        return None
    found: dict[str | None, str] = {}
    for role, body, _ in parts[:-1]:
        if role in found:
            return None
        found[role] = body.strip()
    prompt = found.get("question") or found.get(None) or ""
    prompt, choices = labelled(prompt if "choices" not in found else f"{prompt}\n{found['choices']}")
    before, _, last = prompt.rpartition("\n")
    if choices and before and last.rstrip().endswith((":", "：")):  # Options:, Choose the best one:
        prompt = before.strip()
    return Unfolded(prompt, found.get("passage"), choices) if prompt else None


def _headed(lines: Sequence[str]) -> Iterator[tuple[str | None, str, int]]:
    """(role, text, first line) of each run of lines that a heading begins; no role for lines before the first."""
    role: str | None = None
    first = 0
    body: list[str] = []
    lettered = any(re.match(r"\s*B\s*[:：]", line) for line in lines)  # then `A:` is a choice, and no answer
    for at, line in enumerate(lines):
        if (match := HEADING.match(line)) and not (lettered and len(match[1]) == 1):
            if body:
                yield role, "\n".join(body), first
            role, body, first = ROLE_OF[match[1].casefold()], [line[match.end() :]], at
        else:
            body.append(line)
    if body:
        yield role, "\n".join(body), first


def letter(text: str) -> int | None:
    """The place of a choice that a bare letter names: `B`, `(b)`, `B.`; null for any other text."""
    match = LETTER.fullmatch(text.strip())
    return LABELS.index(match[1].upper()) if match else None


# blocks of a text file


def blocks(text: str) -> list[list[str]]:
    """Runs of lines that are not blank."""
    return [list(run) for some, run in groupby(text.split("\n"), key=lambda line: bool(line.strip())) if some]


def block(lines: Sequence[str]) -> dict[str, Any] | str:
    """
    The record of a block, or why it is none.  Two forms: lines with headings (`Question:`, `Q:`, `Answer:`), choices
    labelled; or, as LogiQA is published, the right letter, a passage, the question, labelled choices.
    """
    if letter(lines[0]) is not None:
        return _lettered(lines)
    if not any(HEADING.match(line) for line in lines):
        return "a block that is neither headed nor begins with the letter of its answer"
    found: dict[str, Any] = {}
    for role, body, _ in _headed(lines):
        found[role or "question"] = body.strip()
    if "choices" in found:
        found["choices"] = labelled(found["choices"])[1] or found["choices"].split("\n")
    elif "question" in found:
        question, choices = labelled(found["question"])
        found |= {"question": question, "choices": choices} if choices else {}
    return found if "question" in found else "a block without a question"


def _lettered(lines: Sequence[str]) -> dict[str, Any] | str:
    """LogiQA: seven lines, the last four are choices, their labels at times misplaced; or more from the label A on."""
    first = next((at for at, line in enumerate(lines[2:], 2) if _mark(LABEL.match(line)) == "A"), 0)
    first = len(lines) - 4 if len(lines) == 7 else first
    if first < 2 or len(lines) - first < 2:
        return "a block without a question and labelled choices"
    passage = "\n".join(lines[1 : first - 1])
    choices = list(lines[first:])
    return {"answer": lines[0].strip(), "passage": passage, "question": lines[first - 1], "choices": choices}
