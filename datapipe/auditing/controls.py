"""
Controls: the same detector, in the same run, on documents that are known to hold examples, and on some that cannot.

Positive: copies of chosen examples in forms that leaks take, each in a document of filler.  What is found of them is
the measured recall, which "nothing found" is worth no more than.  Negative: training documents cut into pieces shorter
than an n-gram and put together in another order; what flags there flags falsely.  All choices are keyed by hash.
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pyarrow as pa

from datapipe import text
from datapipe.auditing.report import FLAGGED, Control, Controls, Negative, Rate
from datapipe.auditing.training import Books, Corpus
from datapipe.contamination.index import Index
from datapipe.contamination.model import ANSWER, PROMPT, SOLUTION, TESTS, VARIANT, Suites
from datapipe.keyed import keyed

SALT = "audit-control-1"
EXAMPLES = 200  # chosen at most
SHOWN = 10  # that were missed, or flagged falsely
WORDS = 8  # on a line of a wrapped copy
DOCUMENTS, UNITS, TEXT = 400, 16, 20_000  # of the negative control: documents, units they come from, bytes of each
SYLLABLES = [a + b for a in ("b", "d", "f", "g", "k", "l", "m", "n", "p", "r", "s", "t", "v", "z")
             for b in ("a", "e", "i", "o", "u", "on", "el", "ar")]  # fmt: skip
NUMBER = re.compile(r"\d+")
WORD = re.compile(r"\S+")


@dataclass(frozen=True)
class Copied:
    """The texts of an example that a copy is made of; answer: the solution where there is one, else the answer."""

    example: int
    prompt: str
    answer: str
    variants: tuple[str, ...]
    long_answer: bool  # of n units or more: it can be found without its prompt


@dataclass(frozen=True)
class Form:
    """A form of leak.  make: the text, null where the example has none;  right: classes that count as found."""

    name: str
    what: str
    make: Callable[[Copied], str | None]
    right: tuple[str, ...] = FLAGGED


def _verbatim(one: Copied) -> str:
    return f"{_filler(one, 'before', 40)}\n\n{one.prompt}\n{one.answer}\n\n{_filler(one, 'after', 40)}"


def _wrapped(one: Copied) -> str:
    words = WORD.findall(f"{one.prompt} {one.answer}")
    lines = "\n".join(" ".join(words[at : at + WORDS]) for at in range(0, len(words), WORDS))
    return f"{_filler(one, 'before', 40)}\n\n{lines}\n\n{_filler(one, 'after', 40)}"


def _inline(one: Copied) -> str:
    flat = " ".join(f"{one.prompt} {one.answer}".split())
    return f"{_filler(one, 'before', 200)} {flat} {_filler(one, 'after', 200)}"


def _changed(one: Copied) -> str:
    """Other case, decomposed accents, full-width digits, other punctuation and blanks."""
    loud = unicodedata.normalize("NFD", f"{one.prompt} {one.answer}".upper())
    wide = loud.translate({ord(str(digit)): 0xFF10 + digit for digit in range(10)})
    marks = {"'": "\u2019", '"': "\u201d", "-": "\u2013", " ": "\u00a0", ".": " ... ", ",": ";", "?": " ?"}
    return f"{_filler(one, 'before', 40)}\n{wide.translate(str.maketrans(marks))}\n{_filler(one, 'after', 40)}"


def _edited(times: int) -> Callable[[Copied], str]:
    def make(one: Copied) -> str:
        words = WORD.findall(one.prompt)
        pieces, joint = (words, " ") if len(words) > 2 * WORDS // 3 else (list(one.prompt), "")  # unspaced scripts
        for edit in range(times):
            at = keyed("audit", SALT, one.example, "edit", edit) % len(pieces)
            pieces[at] = _word(one, "edit", edit)
        return f"{_filler(one, 'before', 40)}\n\n{joint.join(pieces)}\n{one.answer}\n\n{_filler(one, 'after', 40)}"

    return make


def _template(one: Copied) -> str | None:
    if not one.answer:
        return None
    between = f"### Response\n{_filler(one, 'between', 20)}:"
    return f"### Instruction\n{one.prompt}\n\n{between}\n{one.answer}\n\n{_filler(one, 'after', 40)}"


def _answer_only(one: Copied) -> str | None:
    if not one.long_answer:
        return None
    return f"{_filler(one, 'before', 40)}\n\n{one.answer}\n\n{_filler(one, 'after', 40)}"


def _prompt_only(one: Copied) -> str:
    return f"{_filler(one, 'before', 40)}\n\n{one.prompt}\n\n{_filler(one, 'after', 40)}"


def _numbers(one: Copied) -> str | None:
    if not NUMBER.search(one.prompt):
        return None

    def other(found: re.Match[str]) -> str:
        digits = keyed("audit", SALT, one.example, "number", found.start()) % 89 + 11
        return str(digits if str(digits) != found[0] else digits + 1)

    return f"{_filler(one, 'before', 40)}\n\n{NUMBER.sub(other, one.prompt)}\n\n{_filler(one, 'after', 40)}"


def _variant(one: Copied) -> str | None:
    if not one.variants:
        return None
    return f"{_filler(one, 'before', 40)}\n\n{one.variants[0]}\n\n{_filler(one, 'after', 40)}"


FORMS = (
    Form("verbatim", "prompt and answer as they are, between other text", _verbatim),
    Form("wrapped", f"the same in lines of {WORDS} words", _wrapped),
    Form("inline", "the same within one long paragraph", _inline),
    Form("changed", "capitals, decomposed accents, full-width digits, other punctuation and blanks", _changed),
    Form("one edit", "one word of the prompt replaced", _edited(1)),
    Form("three edits", "three words of the prompt replaced", _edited(3)),
    Form("template", "an instruction template and 20 words between prompt and answer", _template),
    Form("prompt only", "the prompt without the answer", _prompt_only),
    Form("answer only", "the answer or solution without the prompt", _answer_only),
    Form("numbers", "the prompt with other numbers: right is variant or near", _numbers, ("variant", "near")),
    Form("variant", "a rewrite or translation that was supplied", _variant),
)


def _word(one: Copied, *key: object) -> str:
    """A word that is in no language, in practice."""
    number = keyed("audit", SALT, one.example, *key)
    return "".join(SYLLABLES[(number >> shift) % len(SYLLABLES)] for shift in (0, 16, 32))


def _filler(one: Copied, where: str, words: int) -> str:
    return " ".join(_word(one, where, at) for at in range(words))


# --- positive ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Planted:
    """Made documents: text, form and example of each; their number is their row."""

    texts: pa.Array
    forms: tuple[int, ...]
    examples: tuple[int, ...]


def plant(suites: Suites, index: Index, testable: np.ndarray, own: np.ndarray) -> Planted:
    """Copies of chosen examples in every form that fits them.  testable: bool an example;  own: see chosen."""
    texts: list[str] = []
    forms: list[int] = []
    examples: list[int] = []
    for one in chosen(suites, index, testable, own):
        for number, form in enumerate(FORMS):
            if (made := form.make(one)) is not None:
                texts.append(made)
                forms.append(number)
                examples.append(one.example)
    return Planted(pa.array(texts, pa.large_string()), tuple(forms), tuple(examples))


def chosen(suites: Suites, index: Index, testable: np.ndarray, own: np.ndarray) -> list[Copied]:
    """
    EXAMPLES testable ones with a prompt of n units, by hash of their names.

    own: int64 a part, units that other examples do not share.  Of several prompts (turns of a chat, the first of which
    may be in every example), and of several answers, a copy is made of the one that has most of them.
    """
    names, suite = suites.examples["id"].to_pylist(), suites.examples["suite"].to_pylist()
    order = sorted(np.flatnonzero(testable).tolist(), key=lambda at: keyed("audit", SALT, suite[at], names[at]))
    found: list[Copied] = []
    for example in order:
        one = _copied(suites, index, example, own)
        if one is not None:
            found.append(one)
        if len(found) == EXAMPLES:
            break
    return sorted(found, key=lambda one: one.example)


def _copied(suites: Suites, index: Index, example: int, own: np.ndarray) -> Copied | None:
    by_kind: dict[str, list[tuple[int, str]]] = {}
    for row in suites.parts_of(example).to_pylist():
        by_kind.setdefault(row["kind"], []).append((row["part"], row["text"]))
    prompts = [(part, text) for part, text in by_kind.get(PROMPT, []) if index.lengths[part] >= index.sizes[part]]
    if not prompts:
        return None
    answers = by_kind.get(SOLUTION) or by_kind.get(ANSWER) or by_kind.get(TESTS) or []
    _, prompt = max(prompts, key=lambda one: own[one[0]])  # of equal ones the first
    part, answer = max(answers, key=lambda one: own[one[0]], default=(-1, ""))
    long_answer = part >= 0 and bool(index.lengths[part] >= index.sizes[part])
    return Copied(example, prompt, answer, tuple(text for _, text in by_kind.get(VARIANT, [])), long_answer)


def positive(
    planted: Planted, classes: dict[tuple[int, int], str], names: Sequence[str], wilson: Callable[[int, int], Rate]
) -> tuple[Control, ...]:
    """
    What was found of the copies.  classes: (example, document) -> class by that document alone; an example that has
    none is clean there.
    """
    controls: list[Control] = []
    for number, form in enumerate(FORMS):
        rows = [at for at, one in enumerate(planted.forms) if one == number]
        if not rows:
            continue
        found = [classes.get((planted.examples[at], at), "clean") for at in rows]
        right = [cls in form.right for cls in found]
        missed = tuple(names[planted.examples[at]] for at, hit in zip(rows, right, strict=True) if not hit)
        controls.append(Control(
            form=form.name, what=form.what, recall=wilson(sum(right), len(right)),
            classes=dict(sorted(Counter(found).items())), missed=missed[:SHOWN],
        ))  # fmt: skip
    return tuple(controls)


# --- negative ----------------------------------------------------------------------------------------------------


def decoys(corpora: Sequence[Corpus], n: int) -> pa.Array:
    """Documents of a few units, chosen by hash, in pieces of fewer than n units that were put in another order."""
    work = [(corpus, unit) for corpus in corpora for unit in corpus.work]
    order = sorted(range(len(work)), key=lambda at: keyed("audit", SALT, "unit", at))[:UNITS]
    made: list[str] = []
    each = -(-DOCUMENTS // max(1, len(order)))
    for at in sorted(order):
        for number, one in zip(range(each), _some(*work[at]), strict=False):
            made.append(_shuffled(one, n, (at, number)))
    return pa.array(made, pa.large_string())


def _some(corpus: Corpus, unit: object) -> Iterator[str]:
    for batch in corpus.read(unit, Books()):
        for value in batch.texts:
            yield value.as_py()[:TEXT]


def _shuffled(one: str, n: int, key: tuple[int, int]) -> str:
    """The text in pieces of n // 2 units, in an order that brings no two neighbours together again but by chance."""
    data = one.encode()
    _, _, _, ends = text.units(pa.array([one], pa.large_string()))
    cuts = [0, *ends[n // 2 - 1 :: n // 2].tolist()]
    pieces = [data[low:high].decode(errors="ignore") for low, high in pairwise(cuts)]
    order = sorted(range(len(pieces)), key=lambda at: keyed("audit", SALT, "shuffle", *key, at))
    return " ".join(pieces[at] for at in order)


def negative(
    documents: int, classes: dict[tuple[int, int], str], names: Sequence[str], tested: int,
    wilson: Callable[[int, int], Rate],
) -> Negative:  # fmt: skip
    """Which examples flag in documents that cannot hold them."""
    false = {example: cls for (example, _), cls in sorted(classes.items()) if cls in FLAGGED}
    return Negative(
        what=f"{documents:,} training documents in pieces of fewer units than an n-gram, in another order",
        documents=documents,
        false=wilson(min(len(false), tested), tested),
        examples=tuple(f"{names[example]}: {cls}" for example, cls in list(false.items())[:SHOWN]),
    )


def controls(examples: int, forms: tuple[Control, ...], without: Negative) -> Controls:
    """Both; the recall that a clean result is worth is the lower end of that of verbatim copies."""
    verbatim = next((one.recall for one in forms if one.form == FORMS[0].name), None)
    return Controls(examples=examples, forms=forms, negative=without, recall=verbatim.low if verbatim else None)
