"""The judging against its twin in obvious code (judging.py), on what the engine finds in random small corpora."""

import random
from collections.abc import Sequence
from dataclasses import dataclass, field

import judging
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from datapipe.contamination import classes, said, template
from datapipe.contamination.index import Index
from datapipe.contamination.model import EXAMPLES, FILES, PARTS, Suites
from datapipe.contamination.scan import scan

KINDS = ("choices", "answer", "solution", "tests", "passage", "variant")


@dataclass
class Made:
    """examples: (suite, [(kind, correct, text)]);  common: a share of the n-grams, drawn by `seed`."""

    examples: Sequence[tuple[str, Sequence[tuple[str, bool | None, str]]]]
    documents: Sequence[str]
    n: int = 8
    common: float = 0.0
    seed: int = 0
    suites: Suites = field(init=False)

    def __post_init__(self) -> None:
        examples = [
            {"example": row, "suite": suite, "id": f"e{row}", "file": "f", "row": row + 1, "problem": None}
            for row, (suite, _) in enumerate(self.examples)
        ]
        parts = [
            {"example": row, "kind": kind, "ordinal": 0, "correct": correct, "text": text}
            for row, (_, own) in enumerate(self.examples) for kind, correct, text in own
        ]  # fmt: skip
        parts = [{"part": at, **row} for at, row in enumerate(parts)]
        self.suites = Suites(
            pa.Table.from_pylist(examples, EXAMPLES), pa.Table.from_pylist(parts, PARTS), FILES.empty_table()
        )

    def both(self) -> tuple[classes.Judged, judging.Judging, judging.Judging]:
        """(what the tool says, the twin, the twin without exclusions)."""
        index = Index.build(self.suites.parts, self.n, self.n + 4)
        found = scan(index, pa.array(self.documents, pa.large_string()), np.arange(len(self.documents)))
        drawn = np.random.default_rng(self.seed).random(index.n_grams) < self.common
        judged = classes.judge(self.suites, index.layout, found, drawn if self.common else None)
        rows = self.suites.parts.to_pylist()
        parts = judging.parts_of(rows, index.sizes.tolist())
        tables = (table.to_pylist() for table in (found.runs, found.short, found.masked, found.windows))
        seen = judging.seen_of(parts, *tables)
        common = {
            gram
            for at, part in enumerate(parts)
            for gram, number in zip(part.grams(), index.grams(at).tolist(), strict=False)
            if drawn[number] and part.long
        }
        suites = [suite for suite, _ in self.examples]
        return (
            judged,
            judging.Judging(suites, parts, seen, common),
            judging.Judging(suites, parts, seen, set(), share=False),
        )


def same(made: Made) -> judging.Judging:
    """Both say the same; gives the twin."""
    judged, twin, bare = made.both()

    def evidence(table: pa.Table) -> dict:
        names = (table[name].to_pylist() for name in ("example", "doc", "class"))
        return {(example, doc): cls for example, doc, cls in zip(*names, strict=True)}

    assert evidence(judged.evidence) == twin.evidence
    assert evidence(judged.evidence_all) == bare.evidence
    rows = judged.classes.to_pylist()
    problems = made.suites.examples["problem"].to_pylist()
    assert [(row["class"], row["reason"]) for row in rows] == twin.classes(problems)
    assert [row["twins"] for row in rows] == [twin.twins(example) for example in range(len(rows))]
    assert [row["counted"] for row in rows] == [twin.counted(example) for example in range(len(rows))]
    flagged = [
        sum(own == example and cls in classes.FLAGGED for (own, _), cls in twin.evidence.items())
        for example in range(len(rows))
    ]
    assert [row["documents"] for row in rows] == flagged
    mirrors = {(row["doc"], row["suite"]): row["examples"] for row in judged.mirrors.to_pylist()}
    assert mirrors == twin.mirrors()
    return twin


# --- random corpora ------------------------------------------------------------------------------------------------

WORDS = [a + b for a in ("ba", "co", "du", "fe", "gi", "lo", "mu") for b in ("n", "rt", "sh", "ll", "mp", "st")]
LENGTHS = {"prompt": (1, 12), "choices": (1, 6), "answer": (1, 7), "solution": (3, 12), "tests": (4, 9),
           "passage": (4, 14), "variant": (4, 9)}  # fmt: skip
GAPS = (0, 0, 0, 1, 2, 7, 40, 97, 101, 160)


class Maker:
    """Examples that share phrases, and documents made of their parts, changed."""

    def __init__(self, seed: int):
        self.chance = random.Random(seed)
        self.filler = 0
        self.n = self.chance.choice((4, 4, 8))
        self.phrases = [self.units(4 + number % 5) for number in range(4)]

    def units(self, many: int) -> list[str]:
        numbers = self.chance.random() < 0.3
        return [
            str(self.chance.randrange(30)) if numbers and self.chance.random() < 0.4 else self.chance.choice(WORDS)
            for _ in range(many)
        ]

    def text(self, kind: str) -> list[str]:
        low, high = LENGTHS[kind]
        own = self.units(self.chance.randint(low, high * self.n // 4))
        if self.chance.random() < 0.3:
            phrase = self.chance.choice(self.phrases)
            own = self.chance.choice((phrase + own, own + phrase, phrase))
        return own

    def example(self, pool: list[list[str]]) -> list[tuple[str, bool | None, str]]:
        parts: list[tuple[str, bool | None, list[str]]] = []
        if self.chance.random() < 0.9:
            parts.append(("prompt", None, self.text("prompt")))
        for kind in self.chance.sample(KINDS, self.chance.choice((0, 1, 1, 2, 3))):
            if kind == "choices":
                right = self.chance.choice((0, 1, None))
                offered = [self.text(kind) for _ in range(3)]
                parts += [(kind, None if right is None else at == right, own) for at, own in enumerate(offered)]
                if self.chance.random() < 0.3:
                    parts.append(("answer", None, offered[right or 0]))
            else:
                parts.append((kind, None, self.text(kind)))
        shared = [
            (kind, correct, self.chance.choice(pool) if pool and self.chance.random() < 0.2 else own)
            for kind, correct, own in parts
        ]
        shared = [(kind, correct, self.quoting(own) if kind == "prompt" else own) for kind, correct, own in shared]
        pool += [own for _, _, own in shared]
        order = {kind: at for at, kind in enumerate(("prompt", "choices", "answer", "solution", "tests", "passage"))}
        shared.sort(key=lambda part: order.get(part[0], 9))
        return [(kind, correct, " ".join(own)) for kind, correct, own in shared]

    def quoting(self, own: list[str]) -> list[str]:
        """With a quotation or two in it, sometimes."""
        own = [unit.strip("“”") for unit in own]
        cuts = sorted(self.chance.sample(range(len(own) + 1), min(4, len(own) + 1)))
        for low, high in zip(cuts[::2], cuts[1::2], strict=False):
            if self.chance.random() < 0.3:
                own[low], own[high - 1] = f"“{own[low]}", own[high - 1]
                own[high - 1] += "”"
        return own

    def changed(self, own: list[str]) -> list[str]:
        own, how = [unit.strip("“”") for unit in own], self.chance.randrange(10)
        if not own:
            return own
        at = self.chance.randrange(len(own))
        if how == 0:
            own[at] = self.chance.choice(WORDS)
        elif how == 1:
            own = [str(self.chance.randrange(30)) if unit.isdigit() else unit for unit in own]
        elif how == 2:
            own = own[: at + 1]
        elif how == 3:
            own = own[at:]
        elif how == 4:
            del own[at]
        elif how == 5:
            own = own[: len(own) // 2]
        return own

    def fill(self, many: int) -> list[str]:
        self.filler += many
        return [f"zz{number}" for number in range(self.filler - many, self.filler)]

    def document(self, examples: list) -> str:
        units: list[str] = []
        parts = [part for _, own in self.chance.sample(examples, min(2, len(examples))) for part in own]
        for _ in range(self.chance.randint(1, 5)):
            if not parts:
                break
            # in their order, most often, so that answers stand behind prompts
            units += self.changed(self.chance.choice(parts)[2].split())
            units += self.fill(self.chance.choice(GAPS))
        if self.chance.random() < 0.4 and parts:
            example = self.chance.choice(examples)[1]
            for _, _, text in example:
                units += self.changed(text.split()) + self.fill(self.chance.choice(GAPS))
        return " ".join(units)

    def made(self, common: float) -> Made:
        pool: list[list[str]] = []
        examples = [(self.chance.choice("sst"), self.example(pool)) for _ in range(self.chance.randint(1, 6))]
        if self.chance.random() < 0.3:  # many ask the same
            asked = " ".join(self.text("prompt"))
            examples = [
                (suite, [("prompt", None, asked), *(part for part in own if part[0] != "prompt")])
                for suite, own in examples
            ]
        if self.chance.random() < 0.3:
            examples.append((self.chance.choice("st"), list(self.chance.choice(examples)[1])))
        documents = [self.document(examples) for _ in range(self.chance.randint(1, 5))]
        return Made(examples, documents, self.n, common, self.chance.randrange(1000))


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 1 << 40), st.sampled_from((0.0, 0.0, 0.3, 0.7)))
def test_classes_equal_their_definitions(seed, common):
    twin = same(Maker(seed).made(common))
    for cls in set(twin.evidence.values()):
        event(cls)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 1 << 40), st.sampled_from((0.0, 0.3)))
def test_classes_equal_their_definitions_in_crowds(seed, common):
    """With bounds so low that a few examples are a crowd, an anywhere, a mirror."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(said, "CROWD", 2)
        patch.setattr(template, "ANYWHERE", 3)
        patch.setattr(classes, "MIRROR", 2)
        same(Maker(seed).made(common))


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 1 << 40), st.sampled_from((0.0, 0.3)), st.integers(1, 64))
def test_some_pairs_are_judged_as_among_all(seed, common, crowd):
    """Asked about one example a document, or about all, `evidence` has the rows of `judge`."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(said, "CROWD", crowd)
        made = Maker(seed).made(common)
        index = Index.build(made.suites.parts, made.n, made.n + 4)
        found = scan(index, pa.array(made.documents, pa.large_string()), np.arange(len(made.documents)), alone=None)
        chance = np.random.default_rng(seed)
        drawn = chance.random(index.n_grams) < common
        only = chance.integers(-1, len(made.examples), len(made.documents))
        every = classes.judge(made.suites, index.layout, found, drawn).evidence.to_pylist()
        known = classes.known(made.suites, index.layout)
        some = classes.evidence(made.suites, index.layout, found, drawn, known, only).to_pylist()
    assert some == [row for row in every if only[row["doc"]] in (-1, row["example"])]


def test_of_many_twins_the_first_are_named(monkeypatch):
    monkeypatch.setattr(template, "TWINS", 2)
    others, counted = template.twins(np.array([0, 0, 2, 0, 0]), np.array([0, 0, 0, 1, 1]))
    assert others.to_pylist() == [[1, 3], [0, 3], [], [0, 1], [0, 1]]
    assert counted.tolist() == [True, False, True, True, False]
