"""Classes of examples: a matcher in obvious code, and what it finds, judged."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import naive
import numpy as np
import pyarrow as pa
import pytest
import worked

from datapipe.contamination import nearby
from datapipe.contamination.classes import Judged, judge
from datapipe.contamination.model import CHOICES, CLASSES, EXAMPLES, FILES, FLAGGED, PARTS, Suites
from datapipe.contamination.nearby import Place
from datapipe.contamination.template import dense, side_of, template

N = 8
RUN = worked.RUNS.names
WINDOWS = {"containment": 0.0, "edit": 0.0, "numbers": None, "identifiers": None, "plain": 0.0}

OTHER = [f"filler{i}" for i in range(2000)]


def text(seed: str, units: int = 14) -> str:
    """Units that no text of another seed has."""
    return " ".join(f"{seed}x{place}th" for place in range(units))


def filler(units: int, first: int = 0) -> str:
    return " ".join(OTHER[first : first + units])


@dataclass
class Found:
    runs: pa.Table
    short: pa.Table
    masked: pa.Table
    windows: pa.Table


@dataclass
class Given:
    """An eval side and documents, as (suite, {kind: text or texts}) and texts; windows as rows."""

    examples: Sequence[tuple[str, dict]]
    documents: Sequence[str]
    windows: Sequence[dict] = ()
    common: Sequence[str] = ()
    correct: Sequence[int] = field(default=())  # ordinal of the right choice, an example

    def suites(self) -> Suites:
        examples, parts = [], []
        for row, (suite, kinds) in enumerate(self.examples):
            examples.append({"example": row, "suite": suite, "id": f"e{row}", "file": "f", "row": row + 1,
                             "problem": kinds.get("problem")})  # fmt: skip
            for kind, texts in kinds.items():
                for ordinal, own in enumerate([texts] if isinstance(texts, str) else texts):
                    right = ordinal == self.correct[row] if kind == CHOICES and self.correct else None
                    if kind != "problem":
                        parts.append({"part": len(parts), "example": row, "kind": kind, "ordinal": ordinal,
                                      "correct": right, "text": own})  # fmt: skip
        return Suites(pa.Table.from_pylist(examples, EXAMPLES), pa.Table.from_pylist(parts, PARTS), FILES.empty_table())

    def judged(self) -> Judged:
        suites = self.suites()
        units = [naive.units(own) for own in suites.parts["text"].to_pylist()]
        documents = [naive.units(own) for own in self.documents]
        layout, names = worked.layout_of(units, N)
        runs = worked.runs_of(units, documents, N)
        small = np.array([3 <= len(units[part]) < N for part in runs["part"].to_pylist()], bool)
        masked = [["#" if unit.isdigit() else unit for unit in own] for own in units]
        blurred_documents = [["#" if unit.isdigit() else unit for unit in own] for own in documents]
        blurred = worked.runs_of(masked, blurred_documents, N, layout.same.tolist())
        windows = [WINDOWS | row for row in self.windows]
        schema = pa.schema(
            [("doc", pa.int64()), ("part", pa.int32()), ("doc_unit", pa.int32()), ("length", pa.int32())]
            + [(name, pa.float64()) for name in WINDOWS]
        )
        found = Found(
            runs,  # the tests give every match; a scan gives tiny ones only beside prompts
            runs.filter(pa.array(small)),
            self.differing(blurred, units, documents),
            pa.Table.from_pylist(windows, schema),
        )
        common = np.array([" ".join(name) in self.common for name in names], bool)
        return judge(suites, layout, found, common)

    @staticmethod
    def differing(blurred: pa.Table, units: list, documents: list) -> pa.Table:
        """Masked runs of n units and more in which a number differs, by first part."""
        kept = [
            row
            for row in blurred.to_pylist()
            if row["length"] >= N
            and units[row["part"]][row["start"] : row["start"] + row["length"]]
            != documents[row["doc"]][row["doc_unit"] : row["doc_unit"] + row["length"]]
        ]
        return pa.Table.from_pylist(kept, worked.RUNS)

    def classes(self) -> list[str]:
        return self.judged().classes["class"].to_pylist()


def one(document: str | Sequence[str], **parts) -> str:
    documents = [document] if isinstance(document, str) else document
    correct = [parts.pop("correct")] if "correct" in parts else ()
    return Given([("s", parts)], documents, correct=correct).classes()[0]


PROMPT, ANSWER, SOLUTION, PASSAGE = text("p"), "fortytwo", text("s"), text("c")


def test_worked_example_17_short():
    short = "what is 2 2"
    assert one(f"so {short} no", prompt=short) == "short"
    judged = Given([("s", {"prompt": short})], ["nothing here"]).judged()
    assert judged.classes["class"].to_pylist() == ["untested"]
    assert judged.classes["reason"].to_pylist() == ["short"]


def test_worked_example_16_numbers():
    given = Given(
        [("s", {"prompt": "tom has 12 apples and buys 7 more how many apples"})],
        ["tom has 15 apples and buys 9 more how many apples", filler(20)],
    )
    assert given.classes() == ["variant"]


@pytest.mark.parametrize("about, cls", worked.PAIRS, ids=[about for about, _ in worked.PAIRS])
def test_worked_example_18_pairs(about, cls):
    document = {
        "prompt only": f"{filler(9)} {PROMPT} {filler(9, 50)}",
        "prompt, answer 6 units later": f"{PROMPT} {filler(6)} {ANSWER} {filler(9, 50)}",
        "prompt, answer 500 units later": f"{PROMPT} {filler(500)} {ANSWER}",
        "solution only": f"{filler(9)} {SOLUTION}",
        "passage only": f"{PASSAGE} {filler(9)}",
    }[about]
    assert one(document, prompt=PROMPT, answer=ANSWER, solution=SOLUTION, passage=PASSAGE) == cls


def test_worked_example_18_distance_is_reported():
    given = Given([("s", {"prompt": PROMPT, "answer": ANSWER})], [f"{PROMPT} {filler(6)} {ANSWER}"])
    row = given.judged().classes.to_pylist()[0]
    assert (row["distance"], row["answer"], row["kinds"]) == (6, 1, ["answer", "prompt"])
    nearest = Given(given.examples, [f"{PROMPT} {filler(40)} {ANSWER} {PROMPT} {filler(6)} {ANSWER}"])
    assert nearest.judged().classes["distance"].to_pylist() == [6]


def test_a_long_answer_far_away_is_a_solution():
    assert one(f"{PROMPT} {filler(500)} {SOLUTION}", prompt=PROMPT, answer=SOLUTION) == "solution"


@pytest.mark.parametrize("gap, cls", [(0, "adjacent"), (100, "adjacent"), (101, "prompt")])
def test_window(gap, cls):
    assert one(f"{PROMPT} {filler(gap)} {ANSWER}", prompt=PROMPT, answer=ANSWER) == cls


NEXT = text("next", 14)
TINY = {  # a list of questions: document, answer of the first, suite of the second -> class of the first
    "in front of the next question": (f"{PROMPT} {filler(9)} 48 {NEXT}", "48", "s", "adjacent"),
    "in the next question": (f"{PROMPT} {NEXT} 48", "48", "s", "prompt"),
    "of two words": (f"{PROMPT} {NEXT} the pope", "the pope", "s", "prompt"),
    "of three words": (f"{PROMPT} {NEXT} the old pope", "the old pope", "s", "adjacent"),
    "in the other words that the next question begins with": (
        f"{PROMPT} {filler(2)} 48 {filler(2)} {' '.join(NEXT.split()[5:])}",
        "48",
        "s",
        "prompt",
    ),
    "behind a question of another suite": (f"{PROMPT} {NEXT} 48", "48", "t", "adjacent"),
    "behind the same question": (f"{PROMPT} {PROMPT} 48", "48", "s", "adjacent"),
    "the question before": (f"{NEXT} {PROMPT} 48", "48", "s", "adjacent"),
}


@pytest.mark.parametrize("document, answer, suite, cls", TINY.values(), ids=TINY)
def test_a_tiny_answer_stands_in_front_of_the_next_question(document, answer, suite, cls):
    given = Given([("s", {"prompt": PROMPT, "answer": answer}), (suite, {"prompt": NEXT})], [document])
    assert given.judged().classes["class"].to_pylist()[0] == cls


@pytest.mark.parametrize(
    "document, parts, cls",
    [
        (f"{ANSWER} {PROMPT}", {"answer": ANSWER}, "prompt"),
        (f"{SOLUTION} {filler(5)} {PROMPT}", {"solution": SOLUTION}, "adjacent"),
        (f"{SOLUTION} {' '.join(PROMPT.split()[2:])}", {"solution": SOLUTION}, "adjacent"),
        (f"{SOLUTION} {filler(150)} {PROMPT}", {"solution": SOLUTION}, "solution"),
        (f"{' '.join(PROMPT.split()[:11])} {filler(3)} {ANSWER}", {"answer": ANSWER}, "adjacent"),
        (f"{' '.join(PROMPT.split()[:9])} {filler(5)} {ANSWER}", {"answer": ANSWER}, "clean"),
        (f"{' '.join(PROMPT.split()[:6])} {filler(4)} {ANSWER}", {"answer": ANSWER}, "clean"),
        (f"{PROMPT} fortytwofold", {"answer": ANSWER}, "prompt"),
        (f"{ANSWER} {filler(5)}", {"answer": ANSWER}, "clean"),
        ("four score and seven", {"answer": "four score and seven"}, "clean"),
    ],
    ids=["answer before", "solution before", "solution before the rest of the prompt", "solution far before",
         "most of the prompt", "a phrase of the prompt", "too little of the prompt",
         "no word of its own", "a word alone", "a few words alone"],
)  # fmt: skip
def test_what_lies_beside_a_prompt(document, parts, cls):
    assert one(document, prompt=PROMPT, **parts) == cls


SHORT = "who wrote the iliad"


@pytest.mark.parametrize(
    "answer, gap, cls",
    [
        ("homer", 0, "short"),  # one unit
        ("homer the poet of", 3, "adjacent"),
        ("homer the poet", 3, "short"),  # seven units together
        ("homer the poet of", 120, "short"),
    ],
)
def test_a_short_prompt_with_its_answer(answer, gap, cls):
    assert one(f"{SHORT} {filler(gap)} {answer}", prompt=SHORT, answer=answer) == cls


def test_of_a_chat_the_longest_question_counts():
    parts = {"prompt": ["go on", SHORT], "answer": "homer the poet of"}
    assert one(f"{SHORT} homer the poet of", **parts) == "adjacent"
    assert one(f"{SHORT} homer the poet", **parts | {"answer": "homer the poet"}) == "short"


def test_the_first_place_of_a_short_prompt_is_shown():
    given = Given([("s", {"prompt": SHORT})], [f"{filler(9)} {SHORT} {filler(9)} {SHORT}"])
    row = given.judged().classes.to_pylist()[0]
    assert (row["class"], row["doc_unit"], row["length"]) == ("short", 9, 4)


@pytest.mark.parametrize("found, cls", [(14, "prompt"), (9, "short")])
def test_a_short_prompt_beside_a_piece_of_its_passage(found, cls):
    """A passage makes a prompt whole where it is found itself."""
    assert one(f"{' '.join(PASSAGE.split()[:found])} {SHORT}", prompt=SHORT, passage=PASSAGE) == cls


@pytest.mark.parametrize("units, cls", [(2, "prompt"), (1, "short")])
def test_a_short_prompt_and_its_choices_are_an_n_gram_together(units, cls):
    """Four units of the question, and two choices."""
    choices = [text("k", units), text("l", units)]
    assert one(f"{SHORT} {' '.join(choices)}", prompt=SHORT, choices=choices, correct=0) == cls


@pytest.mark.parametrize("held, cls", [((0, 1), "prompt"), ((0,), "short")])
def test_half_of_the_choices_make_a_short_prompt_whole(held, cls):
    choices = [text(c, 6) for c in "klmo"]
    document = f"{SHORT} {' '.join(choices[at] for at in held)}"
    assert Given([("s", {"prompt": SHORT, "choices": choices})], [document]).classes() == [cls]


CHOICE = [text("k", 5), text("l", 5), text("m", 5), text("o", 5)]


@pytest.mark.parametrize(
    "document, cls",
    [
        (" ".join(CHOICE), "clean"),
        (f"{SHORT} {' '.join(CHOICE)}", "prompt"),
        (f"{SHORT} {CHOICE[0]}", "adjacent"),
        (f"{SHORT} {' '.join(CHOICE)} answer {CHOICE[0]}", "adjacent"),
        (f"{SHORT} {' '.join(CHOICE)} answer {CHOICE[1]}", "prompt"),
        (f"{SHORT} {CHOICE[2]}", "short"),
        (f"{SHORT} {filler(200)} {' '.join(CHOICE)}", "short"),
    ],
    ids=["a list alone", "prompt and list", "prompt and right choice", "list and right choice", "list and wrong choice",
         "a wrong choice", "a list far away"],
)  # fmt: skip
def test_choices(document, cls):
    assert one(document, prompt=SHORT, choices=CHOICE, correct=0) == cls


def test_a_choice_behind_most_of_its_prompt():
    assert one(f"{' '.join(PROMPT.split()[:11])} red", prompt=PROMPT, choices=["red", "blue"], correct=0) == "adjacent"


def test_a_choice_that_is_right_and_wrong_says_nothing():
    assert one(f"{PROMPT} red", prompt=PROMPT, choices=["red", "blue", "red"], correct=0) == "prompt"


def test_a_wrong_choice_is_named_among_what_was_found():
    given = Given([("s", {"prompt": PROMPT, "choices": [text("k"), text("l")]})], [f"{PROMPT} {text('l')}"],
                  correct=[0])  # fmt: skip
    assert given.judged().evidence["kinds"].to_pylist() == [["choices", "prompt"]]


def test_a_list_of_long_choices_is_no_solution():
    choices = [text("k"), text("l"), text("m")]
    assert one(" ".join(choices), prompt=PROMPT, choices=choices, correct=1) == "clean"
    assert one(choices[1], prompt=PROMPT, choices=choices, correct=1) == "solution"
    assert one(f"{PROMPT} {' '.join(choices)}", prompt=PROMPT, choices=choices, correct=1) == "prompt"
    assert one(f"{PROMPT} {' '.join(choices)} {choices[1]}", prompt=PROMPT, choices=choices, correct=1) == "adjacent"
    # the answer given as text of its own as well
    more = {"prompt": PROMPT, "choices": choices, "correct": 1, "answer": choices[1]}
    assert one(f"{PROMPT} {' '.join(choices)}", **more) == "prompt"


def test_a_list_whose_wrong_choices_are_common_is_a_list():
    """Whether a wrong choice stands there is no question of evidence."""
    right, wrong = text("k", 16), text("l", 30)
    broken = [*wrong.split()[:14], "so", "so", *wrong.split()[16:]]
    given = Given(
        [("s", {"prompt": PROMPT, "choices": [right, wrong]})], [f"{right} {' '.join(broken)}"],
        common=grams(wrong, 0, 23), correct=[0],
    )  # fmt: skip
    assert given.classes() == ["clean"]
    assert Given(given.examples, [right], correct=[0]).classes() == ["solution"]


def test_a_long_list_does_not_hide_the_choice_behind_it():
    """The window begins where the list ends."""
    choices = [text(c, 60) for c in "klm"]
    listed = " ".join(choices)
    parts = {"prompt": PROMPT, "choices": choices, "correct": 1}
    assert one(f"{PROMPT} {listed} {filler(9)} {choices[1]}", **parts) == "adjacent"
    assert one(f"{PROMPT} {listed} {filler(9)} {choices[2]}", **parts) == "prompt"


@pytest.mark.parametrize("between, cls", [("homer virgil", "adjacent"), ("homer", "short"), ("virgil", "adjacent")])
def test_only_a_list_of_choices_is_no_distance(between, cls):
    """The right choice alone is no list: it is what stands in any text about the matter."""
    document = f"{SHORT} {filler(90)} {between} {filler(60, 300)} homer the poet of smyrna"
    parts = {"prompt": SHORT, "choices": ["homer", "virgil", "ovid"], "correct": 0}
    assert one(document, answer="homer the poet of smyrna", **parts) == cls


def test_long_choices_between_prompt_and_answer_are_no_distance():
    choices = [text(c, 15) * 1 for c in "klmo"] + [filler(60, 300)]
    answer = "homer the poet of smyrna"
    assert one(
        f"{PROMPT} {' '.join(choices)} {filler(50)} {answer}", prompt=PROMPT, choices=choices, answer=answer
    ) == ("adjacent")


def test_a_short_prompt_behind_its_passage():
    assert one(f"{PASSAGE} {SHORT}", prompt=SHORT, passage=PASSAGE) == "prompt"
    assert one(f"{PASSAGE} {filler(150)} {SHORT}", prompt=SHORT, passage=PASSAGE) == "short"


# --- variants and near duplicates -------------------------------------------------------------------------------

NUMBERS = "a train leaves at 9 with 120 people and 30 get off at each stop how many are left after 3 stops"
ANSWERED = "there are 30 left behind the third of 3 stops since 120 less 90 is 30 of them"


def test_a_number_variant_is_no_copy_even_where_half_is_the_same():
    varied = NUMBERS.replace("3 stops", "4 stops")
    given = Given([("s", {"prompt": NUMBERS, "answer": "30"})], [f"{varied} 30"])
    row = given.judged().classes.to_pylist()[0]
    assert row["longest_ratio"] > 0.5
    assert row["class"] == "variant"
    assert Given([("s", {"prompt": NUMBERS, "answer": "30"})], [f"{NUMBERS} 30", varied]).classes() == ["adjacent"]
    # one document with both holds the item
    assert one(f"{varied} {filler(9)} {NUMBERS} {filler(9, 50)}", prompt=NUMBERS) == "prompt"


def test_beside_a_variant_only_a_solution_counts():
    varied = NUMBERS.replace("120", "90")
    assert one(f"{varied} {ANSWERED}", prompt=NUMBERS, solution=ANSWERED) == "adjacent"
    assert one(f"{varied} {ANSWERED.replace('120', '90')}", prompt=NUMBERS, solution=ANSWERED) == "variant"


def test_beside_a_variant_no_choice_counts():
    varied, right, wrong = NUMBERS.replace("120", "90"), text("k"), text("l")
    listed = f"{varied} {right} {wrong} so {right}"
    assert one(listed, prompt=NUMBERS, choices=[right, wrong], correct=0) == "variant"
    assert one(listed.replace("90", "120"), prompt=NUMBERS, choices=[right, wrong], correct=0) == "adjacent"
    assert one(f"{varied} {right}", prompt=NUMBERS, choices=[right, wrong], correct=0) == "solution"


def test_beside_a_copied_prompt_a_solution_with_other_numbers_is_no_answer():
    varied = ANSWERED.replace("120", "90")
    assert one(f"{PROMPT} {varied}", prompt=PROMPT, solution=ANSWERED) == "prompt"
    assert one(f"{PROMPT} {ANSWERED}", prompt=PROMPT, solution=ANSWERED) == "adjacent"


@pytest.mark.parametrize(
    "window, cls",
    [
        ({"edit": 0.8}, "near"),
        ({"containment": 0.85}, "near"),
        ({"edit": 0.79, "containment": 0.5}, "clean"),
        ({"identifiers": 0.9, "plain": 0.3, "edit": 0.5}, "variant"),
        ({"identifiers": 0.9, "plain": 0.3, "edit": 0.4}, "clean"),
        ({"numbers": 1.0, "plain": 0.0, "edit": 0.3}, "clean"),
        ({"identifiers": 0.7, "plain": 0.3}, "clean"),
        ({"numbers": 0.8, "plain": 0.3, "edit": 0.9}, "variant"),
        ({"numbers": 0.79, "plain": 0.3, "edit": 0.79}, "clean"),
        ({"numbers": 0.7, "plain": 0.7, "edit": 0.9}, "near"),
        ({"numbers": 0.9, "plain": 0.9, "edit": 0.9}, "near"),
    ],
)
def test_windows(window, cls):
    row = {"doc": 0, "part": 0, "doc_unit": 0, "length": 14} | window
    assert Given([("s", {"prompt": PROMPT})], [filler(40)], [row]).classes() == [cls]


@pytest.mark.parametrize(
    "window, cls",
    [
        ({"edit": 0.9}, "near"),
        ({"edit": 0.85}, "clean"),
        ({"numbers": 0.9, "plain": 0.3, "edit": 0.6}, "variant"),
        ({"numbers": 0.85, "plain": 0.3, "edit": 0.6}, "clean"),
        ({"identifiers": 0.9, "plain": 0.3, "edit": 0.6}, "variant"),
        ({"identifiers": 0.85, "plain": 0.3, "edit": 0.6}, "clean"),
    ],
)
def test_windows_are_held_against_what_is_a_texts_own(window, cls):
    """Of 24 units 16 are its own, or straddle: .15 of all are .225 of these."""
    prompts = [f"{text('shared', 15)} {text(own, 9)}" for own in "ab"]
    row = {"doc": 0, "part": 0, "doc_unit": 0, "length": 24} | window
    assert Given([("s", {"prompt": own}) for own in prompts], [filler(40)], [row]).classes() == [cls, "clean"]


@pytest.mark.parametrize("units, edit, cls", [(12, 0.74, "clean"), (12, 0.75, "variant"), (13, 0.5, "variant")])
def test_a_variant_of_few_units_is_mostly_equal(units, edit, cls):
    row = {"doc": 0, "part": 0, "doc_unit": 0, "length": units, "numbers": 0.95, "plain": 0.3, "edit": edit}
    assert Given([("s", {"prompt": text("p", units)})], [filler(40)], [row]).classes() == [cls]


def test_what_stands_there_is_no_variant_by_its_names():
    row = {"doc": 0, "part": 0, "doc_unit": 0, "length": 14, "identifiers": 0.9, "plain": 0.7, "edit": 0.8}
    assert Given([("s", {"prompt": PROMPT})], [" ".join(PROMPT.split()[:11])], [row]).classes() == ["prompt"]
    # with other numbers it is a variant, however few of all units are equal
    row |= {"identifiers": None, "numbers": 0.9, "edit": 0.4}
    assert Given([("s", {"prompt": PROMPT})], [" ".join(PROMPT.split()[:11])], [row]).classes() == ["variant"]


def test_siblings_of_what_stands_there_are_echoes():
    prompts = [f"the sum of {number} and {text(c, 9)}" for c, number in (("a", "12"), ("a", "15"), ("b", "9"))]
    given = Given([("s", {"prompt": own}) for own in prompts], [prompts[0], prompts[1].replace("15", "99")])
    # the second document holds neither of the first two: it is a variant of both
    assert given.judged().evidence.select(["example", "doc", "class"]).to_pylist() == [
        {"example": 0, "doc": 0, "class": "prompt"},
        {"example": 0, "doc": 1, "class": "variant"},
        {"example": 1, "doc": 1, "class": "variant"},
    ]


def test_an_answer_beside_a_near_prompt():
    row = {"doc": 0, "part": 0, "doc_unit": 0, "length": 14, "edit": 0.9}
    given = Given([("s", {"prompt": PROMPT, "answer": ANSWER})], [f"{filler(14)} {ANSWER}"], [row])
    assert given.classes() == ["adjacent"]


def test_a_supplied_variant_is_near():
    assert one(text("v"), prompt=PROMPT, variant=text("v")) == "near"
    assert one(NUMBERS.replace("120", "90"), prompt=PROMPT, variant=NUMBERS) == "near"


# --- what examples share ----------------------------------------------------------------------------------------

SHARED = text("shared", 15)


def test_what_prompts_share_is_no_evidence():
    prompts = [f"{SHARED} {text(c, 9)}" for c in "abc"]
    given = Given([("s", {"prompt": own}) for own in prompts], [SHARED, f"{filler(3)} {prompts[1]}"])
    judged = given.judged()
    assert judged.classes["class"].to_pylist() == ["clean", "prompt", "clean"]
    assert judged.classes["class_all"].to_pylist() == ["prompt"] * 3
    # in another suite each, nothing is shared
    apart = Given([(suite, {"prompt": own}) for suite, own in zip("xyz", prompts, strict=True)], [SHARED])
    assert apart.classes() == ["prompt"] * 3


def test_a_template_with_one_word_of_its_own():
    """Own words with what straddles them are evidence; what all have is none, and a few own words alone are too few."""
    prompts = [f"{SHARED} {word}" for word in ("one", "two", "three")]
    assert Given([("s", {"prompt": own}) for own in prompts], [prompts[0]]).classes() == ["prompt", "clean", "clean"]
    tail = " ".join(prompts[1].split()[-8:])
    assert Given([("s", {"prompt": own}) for own in prompts], [tail]).classes() == ["clean"] * 3
    longer = [f"{SHARED} {text('more', 10)} {word}" for word in ("one", "two")]
    tail = " ".join(longer[1].split()[-8:])
    assert Given([("s", {"prompt": own}) for own in longer], [tail]).classes() == ["clean", "clean"]


@pytest.mark.parametrize(
    "units, held, cls", [(25, 13, "prompt"), (25, 12, "clean"), (14, 11, "prompt"), (14, 10, "clean")]
)
def test_a_short_match_must_hold_most_of_a_text(units, held, cls):
    """Thirteen units are enough for half of a text; fewer may be a phrase, and must hold three quarters."""
    own = text("h", units)
    assert one(" ".join(own.split()[:held]), prompt=own) == cls


@pytest.mark.parametrize("more, cls", [(8, "clean"), (9, "prompt")])
def test_matches_together_must_hold_more_than_half(more, cls):
    """Half is enough for one match alone."""
    own = text("h", 32).split()
    assert one(" ".join([*own[:8], *OTHER[:5], *own[20 : 20 + more]]), prompt=" ".join(own)) == cls
    assert one(" ".join(own[8:24]), prompt=" ".join(own)) == "prompt"


def test_what_six_prompts_of_any_suites_share_is_no_evidence():
    for count, cls in ((5, "prompt"), (6, "clean")):
        prompts = [f"{text(c, 2)} {SHARED}" for c in "abcdef"[:count]]
        given = Given([(suite, {"prompt": own}) for suite, own in zip("stuvwx", prompts, strict=False)], [SHARED])
        assert given.classes() == [cls] * count


def test_a_prompt_inside_another_is_still_found_whole():
    for units, cls in ((13, "prompt"), (12, "untested")):  # a shorter one is a phrase of the other
        prompts = [text("p", units), f"{text('p', units)} {text('q')}"]
        assert Given([("s", {"prompt": own}) for own in prompts], prompts[:1]).classes() == [cls, "clean"]


def test_near_is_held_against_what_is_its_own():
    prompts = [f"{SHARED} {text(c, 4)}" for c in "abc"]
    # the first prompt stands there: the others differ in 4 of 19 units, all their own
    rows = [{"doc": 0, "part": part, "doc_unit": 0, "length": 19, "edit": 15 / 19} for part in (1, 2)]
    given = Given([("s", {"prompt": own}) for own in prompts], [prompts[0]], rows)
    assert given.classes() == ["prompt", "clean", "clean"]


def test_stock_prompts():
    """A text that three examples have, with other choices each, is evidence only with these choices."""
    stock = text("which")
    choices = [[text(f"{row}{c}", 4) for c in "xyz"] for row in "abc"]
    examples = [("s", {"prompt": stock, "choices": own}) for own in choices]
    given = Given(examples, [stock, f"{stock} {' '.join(choices[1])}"], correct=[0, 0, 0])
    judged = given.judged()
    assert judged.classes["class"].to_pylist() == ["untested", "prompt", "untested"]
    assert judged.classes["reason"].to_pylist() == ["template"] * 3  # found or not
    # two such examples are found by the text
    assert Given(examples[:2], [stock], correct=[0, 0]).classes() == ["prompt", "prompt"]


@pytest.mark.parametrize("count, reason", [(2, None), (3, "short")])
def test_a_short_question_that_three_ask_is_not_tested_with_its_choices(count, reason):
    choices = [[text(f"{row}{c}", 4) for c in "xyz"] for row in "abc"]
    examples = [("s", {"prompt": SHORT, "choices": own}) for own in choices[:count]]
    judged = Given(examples, [filler(30)], correct=[0] * count).judged()
    assert judged.classes["reason"].to_pylist() == [reason] * count


def test_a_passage_that_many_questions_are_about_makes_each_whole():
    """What examples share is no evidence, but a passage flags nothing alone."""
    asked = ["who kept the ferry", "when did it sink", "where was the bell"]
    examples = [("s", {"prompt": own, "passage": PASSAGE}) for own in asked]
    assert Given(examples, [f"{PASSAGE} {asked[1]}"]).classes() == ["passage", "prompt", "passage"]
    longer = [("s", {"prompt": own, "passage": f"{PASSAGE} {text(own[:3], 3)}"}) for own in asked]
    assert Given(longer, [f"{longer[1][1]['passage']} {asked[1]}"]).classes() == ["passage", "prompt", "passage"]


def test_short_stock_prompts_are_no_coincidence_to_report():
    examples = [("s", {"prompt": SHORT, "answer": answer}) for answer in ("homer", "virgil", "ovid")]
    assert Given(examples, [SHORT]).classes() == ["untested"] * 3


def test_an_answer_that_quotes_its_question_is_told():
    solution = f"{PROMPT} {text('s', 5)}"
    assert one(PROMPT, prompt=PROMPT, solution=solution) == "prompt"
    assert one(f"{filler(4)} {solution}", prompt=text("q"), solution=solution) == "solution"
    # an answer from the passage says nothing without the question
    assert one(PASSAGE, prompt=PROMPT, passage=PASSAGE, answer=" ".join(PASSAGE.split()[2:12])) == "passage"


# --- common n-grams ---------------------------------------------------------------------------------------------


def grams(own: str, low: int, high: int) -> list[str]:
    units = own.split()
    return [" ".join(units[i : i + N]) for i in range(low, high)]


def test_common_ngrams_are_left_out_and_shown():
    long = " ".join(f"w{i}" for i in range(60))
    units = long.split()
    documents = [" ".join([*units[:20], filler(90), *units[30:45], filler(90, 100), *units[48:58]])]
    judged = Given([("s", {"prompt": long})], documents, common=grams(long, 0, 13)).judged()
    row = judged.classes.to_pylist()[0]
    assert (row["class"], row["class_all"]) == ("prompt", "prompt")  # 15 + 10 of 40 left
    judged = Given([("s", {"prompt": long})], documents, common=grams(long, 0, 13) + grams(long, 30, 38)).judged()
    row = judged.classes.to_pylist()[0]
    assert (row["class"], row["class_all"]) == ("clean", "prompt")
    documents = [" ".join([*units[:20], "x", *units[30:45], "y", *units[48:58]])]  # in their places: a copy, changed
    judged = Given([("s", {"prompt": long})], documents, common=grams(long, 0, 13) + grams(long, 30, 38)).judged()
    assert judged.classes["class"].to_pylist() == ["prompt"]


def test_common_ngrams_count_where_one_match_covers_half():
    every = grams(PROMPT, 0, 7)
    judged = Given([("s", {"prompt": PROMPT})], [PROMPT], common=every).judged()
    assert judged.classes["class"].to_pylist() == ["prompt"]
    assert not judged.excluded.any()
    judged = Given([("s", {"prompt": PROMPT})], [filler(30)], common=every).judged()
    assert judged.classes["reason"].to_pylist() == ["common"]


def test_common_ngrams_count_where_half_of_what_is_its_own_is_copied():
    """More than half of a text stands there in one piece, most of it everybody's; the rest lies at another place."""
    own = f"{text('shared', 15)} {text('a', 30)}"
    units = own.split()
    examples = [("s", {"prompt": own}), ("s", {"prompt": f"{text('shared', 15)} {text('b', 30)}"})]
    pieces = f"{' '.join(units[:23])} {filler(60)} {' '.join(units[30:38])}"
    every = grams(own, 0, 38)
    judged = Given(examples, [pieces], common=every).judged()
    assert judged.classes["class"].to_pylist() == ["untested", "clean"]
    assert judged.classes["reason"].to_pylist() == ["common", None]
    assert Given(examples, [pieces]).classes() == ["prompt", "clean"]
    assert Given(examples, [" ".join(units[:34])], common=every).classes() == ["prompt", "clean"]


# --- twins, mirrors, reasons ------------------------------------------------------------------------------------


def test_twins_are_named_and_counted_once():
    examples = [("s", {"prompt": PROMPT}), ("s", {"prompt": PROMPT.upper()}), ("t", {"prompt": PROMPT}),
                ("s", {"prompt": PROMPT, "answer": ANSWER}), ("s", {"prompt": text("q")})]  # fmt: skip
    rows = Given(examples, [PROMPT]).judged().classes.to_pylist()
    assert [row["class"] for row in rows] == ["prompt"] * 4 + ["clean"]
    assert [row["twins"] for row in rows] == [[1, 2], [0, 2], [0, 1], [], []]
    assert [row["counted"] for row in rows] == [True, False, True, True, True]
    # twins do not make a text one that many examples have
    twins = [("s", {"prompt": PROMPT, "answer": ANSWER})] * 3
    assert Given(twins, [PROMPT]).classes() == ["prompt"] * 3
    differing = [("s", {"prompt": PROMPT, "answer": answer}) for answer in ("one", "two", "three")]
    assert Given(differing, [PROMPT]).classes() == ["untested"] * 3


def test_mirrors():
    examples = [("s", {"prompt": text(f"p{i}x")}) for i in range(6)] + [("s", {"prompt": text("p0x")})]
    documents = [" ".join(own["prompt"] for _, own in examples[:many]) for many in (4, 5)]
    mirrors = Given(examples, documents).judged().mirrors.to_pylist()
    assert mirrors == [{"doc": 1, "suite": "s", "count": 5, "examples": [0, 1, 2, 3, 4]}]


@pytest.mark.parametrize(
    "parts, reason",
    [
        ({"problem": "no text in any part"}, "no text in any part"),
        ({"prompt": "too short"}, "short"),
        ({"prompt": SHORT, "passage": PASSAGE}, "short"),
        ({"answer": "word"}, "short"),
        ({"prompt": SHORT, "solution": SOLUTION}, None),
        ({"prompt": SHORT, "choices": CHOICE}, None),
        ({"prompt": "who kept it", "choices": CHOICE}, None),
        ({"prompt": "who did", "choices": CHOICE}, "short"),
        ({"prompt": SHORT, "choices": ["one two", "six ten"]}, None),
        ({"prompt": SHORT, "choices": ["one two", "six"]}, "short"),
        ({"prompt": "?", "choices": CHOICE}, "short"),
    ],
)
def test_untested_says_why(parts, reason):
    judged = Given([("s", parts)], [filler(30)]).judged()
    assert judged.classes["reason"].to_pylist() == [reason]
    assert judged.classes["class"].to_pylist() == ["untested" if reason else "clean"]


def test_the_most_telling_document_decides():
    documents = [PROMPT, f"{PROMPT} {ANSWER}", " ".join(PROMPT.split()[:11])]
    judged = Given([("s", {"prompt": PROMPT, "answer": ANSWER})], documents).judged()
    row = judged.classes.to_pylist()[0]
    assert (row["class"], row["doc"], row["documents"]) == ("adjacent", 1, 3)
    assert judged.evidence.select(["example", "doc", "class"]).to_pylist() == [
        {"example": 0, "doc": 0, "class": "prompt"},
        {"example": 0, "doc": 1, "class": "adjacent"},
        {"example": 0, "doc": 2, "class": "prompt"},
    ]


def test_the_document_with_most_of_it_decides():
    documents = [" ".join(PROMPT.split()[:11]), PROMPT, " ".join(PROMPT.split()[:12])]
    assert Given([("s", {"prompt": PROMPT})], documents).judged().classes["doc"].to_pylist() == [1]


def test_documents_that_do_not_flag_are_not_counted():
    found = Given([("s", {"prompt": SHORT, "answer": "homer the poet of"})], [SHORT, f"{SHORT} homer the poet of"])
    assert found.judged().classes["documents"].to_pylist() == [1]


@pytest.mark.parametrize(
    "document, parts, cls, part",
    [
        (f"{' '.join(SOLUTION.split()[:11])} {filler(150)} {text('k')}", {"answer": text("k")}, "solution", 2),
        (f"{PASSAGE} {filler(150)} {' '.join(PROMPT.split()[:11])}", {"passage": PASSAGE}, "prompt", 0),
        (f"{' '.join(PROMPT.split()[:11])} {SOLUTION}", {}, "adjacent", 0),
    ],
    ids=["more of the answer", "what makes it the class", "the prompt beside its solution"],
)
def test_the_part_that_is_shown(document, parts, cls, part):
    row = Given([("s", {"prompt": PROMPT, "solution": SOLUTION, **parts})], [document]).judged().classes.to_pylist()[0]
    assert (row["class"], row["part"]) == (cls, part)


def test_nothing_at_all():
    assert Given([], []).judged().classes.num_rows == 0
    assert Given([("s", {"prompt": PROMPT})], []).classes() == ["clean"]
    assert set(FLAGGED) < set(CLASSES)


# --- places -----------------------------------------------------------------------------------------------------


def place(low: int, high: int, part: int = 0) -> Place:
    return Place(low, high, low, high, part, 0)


@pytest.mark.parametrize(
    "choices, end",
    [([], 10), ([(12, 20), (25, 40)], 40), ([(12, 20), (150, 160)], 20), ([(3, 8)], 10), ([(110, 112)], 112),
     ([(111, 112)], 10)],
)  # fmt: skip
def test_chain(choices, end):
    assert nearby.chain(10, [place(*own) for own in choices]) == end


def test_distances_are_between_projected_ends_and_company_between_matches():
    prompt, answer = Place(150, 170, 120, 180, 0, 0), Place(10, 20, 10, 40, 1, 0)
    assert list(nearby.before([prompt], [answer])) == [(80, answer)]
    behind = Place(200, 210, 190, 220, 1, 0)
    assert list(nearby.beside([prompt], [], [behind])) == [(10, behind)]
    assert nearby.within([prompt], [Place(270, 280, 200, 280, 1, 0)])
    assert not nearby.within([prompt], [Place(271, 280, 200, 280, 1, 0)])


def test_a_short_prompt_and_an_answer_of_one_unit_are_no_pair():
    short = text("p", 7)
    assert one(f"{short} {ANSWER}", prompt=short, answer=ANSWER) == "short"
    assert one(f"{short} {ANSWER} sheep", prompt=short, answer=f"{ANSWER} sheep") == "adjacent"


@pytest.mark.parametrize(
    "right, wrong",
    [
        ("red", "red and blue"),
        ("red and blue", "red"),
        ("red and blue", "blue"),
        (f"up it goes {text('q', 9)}", f"down it goes {text('q', 9)}"),
        (f"{text('q', 9)} goes up", f"{text('q', 9)} goes down"),
        (f"when {text('q', 9)} goes up", f"if {text('q', 9)} goes down"),
    ],
    ids=["right in wrong", "wrong begins right", "wrong ends right", "equal ends", "equal beginnings", "equal middles"],
)
def test_choices_that_share_words_are_told_apart_by_the_rest(right, wrong):
    """The list has each once, and what they share in each of them."""
    for listed in (f"{right}. {wrong}. green", f"{wrong}. {right}. green"):
        for more, cls in (("", "prompt"), (f" so: {right}", "adjacent"), (f" so: {wrong}", "prompt")):
            document = f"{PROMPT} {listed}{more}"
            assert one(document, prompt=PROMPT, choices=[right, wrong, "green"], correct=0, answer=right) == cls


def test_told_apart():
    prompt, right, wrong = [place(0, 10)], [place(12, 14)], [[place(15, 17)], [place(18, 20)]]
    assert not nearby.told_apart(prompt, right, wrong)
    assert nearby.told_apart(prompt, [*right, place(30, 32)], wrong)
    assert not nearby.told_apart(prompt, [*right, place(30, 32)], [[place(15, 17), place(40, 42)]])
    assert not nearby.told_apart(prompt, [*right, place(300, 302)], wrong)
    assert nearby.told_apart(prompt, right, [])
    assert not nearby.told_apart(prompt, right * 2, wrong)  # one place


def test_dense():
    number, first = dense(np.array([3, 1, 3, 1]), np.array([0, 5, 0, 4]))
    assert number.tolist() == [2, 1, 2, 0]
    assert first.tolist() == [3, 1, 0]


def test_template_equals_its_definition():
    """Against sets: n-grams of the texts of two examples; of choices, of two texts."""
    rng = np.random.default_rng(3)
    for _ in range(60):
        examples = [
            (str(rng.choice(["s", "t"])), {"prompt": " ".join(rng.choice(list("abc"), rng.integers(8, 14)))})
            for _ in range(rng.integers(1, 6))
        ]
        given = Given(examples, [])
        suites = given.suites()
        units = [naive.units(own) for own in suites.parts["text"].to_pylist()]
        layout, _ = worked.layout_of(units, N)
        found = template(side_of(suites.examples, suites.parts, layout))
        texts = [(suite, tuple(own)) for (suite, _), own in zip(examples, units, strict=True)]
        for part, own in enumerate(units):
            if layout.same[part] != part:
                continue
            places = range(layout.offsets[part], layout.offsets[part + 1])
            for at, gram in zip(places, worked.grams_in(own, N), strict=True):
                mine = {suite for suite, other in texts if other == tuple(own)}
                expected = any(
                    len({other for suite, other in texts if suite == s and gram in worked.grams_in(other, N)}) >= 2
                    for s in mine
                )
                assert bool(found.excluded[at]) == expected


# --- what words say -------------------------------------------------------------------------------------------------

SPEECH = "ask not what your country can do for you but what you can do for your country"
ASKS = "which president of the land said these words"
STATEMENT = "the widow of the last ferryman sold both boats"  # nine units, seven words of two letters and more


@pytest.mark.parametrize("marks", ["“{}”", '"{}"', "«{}»", "「{}」", "《{}》", "‘{}’", "'{}'", "> {}\n", "``{}''"])
def test_a_prompt_found_in_what_it_quotes_is_a_passage(marks):
    prompt = f"{marks.format(SPEECH)} {ASKS}?"
    assert one(f"{filler(9)} {SPEECH} {filler(9, 50)}", prompt=prompt) == "passage"
    assert one(f"{filler(9)} {prompt} {filler(9, 50)}", prompt=prompt) == "prompt"
    for more, cls in ((3, "passage"), (4, "prompt")):  # half an n-gram
        beyond = " ".join(ASKS.split()[:more])
        assert one(f"{filler(9)} {SPEECH} {beyond} {filler(9, 50)}", prompt=prompt) == cls


@pytest.mark.parametrize(
    "prompt",
    [
        f"{SPEECH} {ASKS}",  # no marks
        f'"""{SPEECH}""" {ASKS}',  # a docstring
        f"“{SPEECH}”",  # nothing but a quotation
        f"she said: “{SPEECH[:36]}” and “{SPEECH[37:]}” for long",  # found in both of two
        f"it’s {SPEECH} {ASKS} isn’t it",  # apostrophes
    ],
)
def test_what_is_no_quotation(prompt):
    assert one(f"{filler(9)} {SPEECH} {filler(9, 50)}", prompt=prompt) == "prompt"


def test_quotations_are_long_and_in_any_script():
    short = " ".join(SPEECH.split()[:7])
    assert one(f"{filler(9)} {short} who {filler(9, 50)}", prompt=f"“{short}” who said it?") == "prompt"
    longer = " ".join(SPEECH.split()[:8])
    assert one(f"{filler(9)} {longer} who {filler(9, 50)}", prompt=f"“{longer}” who said it?") == "passage"
    assert one(f"{filler(9)} {longer} {filler(9, 50)}", prompt=f"“{longer}” who said?") == "prompt"  # all but a word
    # a whole copy is found, however little of it is not quoted
    assert one(f"{filler(9)} {SPEECH} who said it {filler(9, 50)}", prompt=f"“{SPEECH}” who said it?") == "prompt"
    assert one(f"{filler(9)} {SPEECH} who said {filler(9, 50)}", prompt=f"“{SPEECH}” who said it?") == "passage"
    speech = SPEECH.replace("o", "ö").replace("a", "ä")
    assert one(f"{filler(9)} {speech} {filler(9, 50)}", prompt=f"“{speech}” {ASKS}?") == "passage"
    asked = "кто из президентов страны сказал эти слова"
    assert one(f"{filler(9)} {SPEECH} {filler(9, 50)}", prompt=f"{asked}: “{SPEECH}”?") == "passage"
    verse = "天地玄黃宇宙洪荒"
    assert one(f"{filler(9)} {verse}谁 {filler(9, 50)}", prompt=f"「{verse}」谁说过") == "passage"


def test_a_quotation_that_begins_before_the_text():
    prompt = f"{SPEECH}'. {ASKS}."
    assert one(f"{filler(9)} {SPEECH} {filler(9, 50)}", prompt=prompt) == "passage"


def test_where_the_rest_is_template_the_quotation_is_the_item():
    rest = "is the argument given above deductively valid or invalid in your view"
    prompts = [f"“{SPEECH}” {rest}", f"“{text('y')}” {rest}"]
    examples = [("s", {"prompt": prompt}) for prompt in prompts]
    assert Given(examples, [f"{filler(9)} {SPEECH} {filler(9, 50)}"]).classes() == ["prompt", "clean"]


def test_a_short_choice_alone_is_a_statement():
    wrong = text("w"), text("v")
    parts = {"prompt": PROMPT, "choices": [STATEMENT, *wrong], "answer": STATEMENT}
    assert one(f"{filler(9)} {STATEMENT}", correct=0, **parts) == "passage"
    assert one(f"{filler(9)} {STATEMENT}", prompt=PROMPT, answer=STATEMENT) == "solution"
    assert one(f"{PROMPT} {filler(4)} {STATEMENT}", correct=0, **parts) == "adjacent"
    longer = f"{STATEMENT} to a man from the other side"
    assert one(f"{filler(9)} {longer}", correct=0, prompt=PROMPT, choices=[longer, *wrong], answer=longer) == "solution"


def test_a_list_with_a_choice_of_many_items_is_a_list():
    """The wrong choice is stock, and says all the same that this is no answer."""
    none = "none of the statements above is true of the river"
    examples = [("s", {"prompt": text(f"p{of}"), "choices": [text(f"{of}k"), none]}) for of in "abc"]
    documents = [f"{text('ak')} {none}", f"{text('pa')} {text('ak')} {none}", text("ak")]
    for document, cls in zip(documents, ["clean", "prompt", "solution"], strict=True):
        assert Given(examples, [document], correct=[0] * 3).classes() == [cls, "clean", "clean"]


@pytest.mark.parametrize(
    "solution, cls",
    [
        ("while b: a, b = b, a % b; return a", "passage"),
        ("(x - 2)(x + 2)(x - 1)(x + 1)(x - 3)(x + 3)(x - 4)(x + 4)", "passage"),
        ("return all(a[i] <= a[i + 1] for i in range(len(a) - 1)) or all(a[i] >= a[i + 1])", "passage"),
        ("import re; text = open(path).read(); names = sorted(set(re.findall(pattern, text)))", "solution"),
        ("return Return RETURN value Value VALUE x y result Result RESULT", "passage"),
        ("open read close write seek 1 2 3 4", "solution"),
        (f"open read close write seek tell join split strip {'x y z w ' * 8}", "solution"),
        ("He runs 3*3=9 times; so he runs 9*60=540 meters 540", "passage"),  # 13 units
        ("He runs 3*3=<<3*3=9>>9 times; so he runs 9*60=<<9*60=540>>540 meters 540", "solution"),
        (f"open read close write seek tell join split {'x y z w ' * 8}", "solution"),
        (f"open read close write seek tell join {'x y z w ' * 8}", "solution"),  # whole, and of two n-grams or more
        ("x = y; z = w; x = y; z = w; x = y; z = w; x = y; z = w; open read", "passage"),
        (f"{'x y z w ' * 2} open read close write seek tell join split", "solution"),
        ("先生把船停在旧桥下面等到天亮才走", "solution"),
    ],
)
def test_an_idiom_alone_is_no_solution(solution, cls):
    assert one(f"{filler(9)} {solution}", prompt=PROMPT, solution=solution) == cls
    assert one(f"{PROMPT} {solution}", prompt=PROMPT, solution=solution) == "adjacent"


def test_an_idiom_at_the_head_of_a_solution_is_no_solution():
    """Words count where they were found."""
    idiom, more = "x y z w " * 4, "open read close write seek tell join split strip"
    assert one(f"{filler(9)} {idiom} open", prompt=PROMPT, solution=f"{idiom} {more}") == "passage"
    assert one(f"{filler(9)} {idiom} {more}", prompt=PROMPT, solution=f"{idiom} {more}") == "solution"


def test_formulas_are_no_variants():
    formula = "sin 20 cos 10 sin 40 cos 30 sin 50 cos 70"
    assert one(formula.replace("0", "1"), prompt=formula) == "clean"
    named = formula.replace("sin 20", "Simplify now: sin 20")
    assert one(named.replace("0", "1"), prompt=named) == "clean"
    named = formula.replace("sin 20", "Simplify without tables: sin 20")
    assert one(named.replace("0", "1"), prompt=named) == "variant"


def test_names_count_against_a_variant():
    asked = "why did the council of {} refuse the {} bells that {} had brought from the north in 1720"
    prompt = asked.format("Osterness", 12, "Dagny")
    assert one(f"{filler(9)} {asked.format('Osterness', 30, 'Dagny')}", prompt=prompt) == "variant"
    assert one(f"{filler(9)} {asked.format('Quellin', 30, 'Verity')}", prompt=prompt) == "clean"


def test_a_piece_of_a_question_that_others_share_needs_company():
    question = "which one of the following most strengthens the {} argument made"
    about, other = question.format("columnist"), question.format("author")
    examples = [("s", {"prompt": about, "passage": PASSAGE}), ("s", {"prompt": other, "passage": text("d")})]
    found = "most strengthens the columnist argument made"
    judged = Given(examples, [f"{filler(9)} following {found} {filler(9, 50)}"]).judged()
    assert judged.classes["class"].to_pylist()[0] in ("clean", "passage")
    near = Given(examples, [f"{PASSAGE} {about}", f"{filler(9)} {about} {filler(9, 50)}"]).judged()
    assert near.evidence["class"].to_pylist()[:2] == ["prompt", "prompt"]


@pytest.mark.parametrize(
    "own, found, passage, shared, cls",
    [(7, 12, True, True, "passage"), (7, 12, False, True, "prompt"), (7, 12, True, False, "prompt"),
     (10, 13, True, True, "prompt")],
    ids=["a piece", "about nothing else", "shared with none", "long enough"],
)  # fmt: skip
def test_a_piece_of_a_question_is_short_shared_and_about_something(own, found, passage, shared, cls):
    asked = f"{text('shared', 9)} {text('own', own)}"
    other = f"{text('shared' if shared else 'else', 9)} {text('other', own)}"
    about = [{"passage": PASSAGE}, {"passage": text("d")}] if passage else [{}, {}]
    examples = [("s", {"prompt": one, **more}) for one, more in zip((asked, other), about, strict=True)]
    piece = " ".join(asked.split()[-found:])
    assert Given(examples, [f"{filler(9)} {piece} {filler(9, 50)}"]).classes() == [cls, "clean"]
    beside = Given([("s", {**own, "answer": ANSWER}) for _, own in examples], [f"{filler(9)} {piece} {ANSWER}"])
    assert beside.classes() == ["adjacent", "clean"]


def test_a_question_nearly_found_is_no_piece():
    """However little of it one match holds."""
    asked, other = (f"{text('shared', 9)} {text(own, 7)}" for own in "ab")
    examples = [("s", {"prompt": own, "passage": text(f"{own[-3:]}c")}) for own in (asked, other)]
    row = {"doc": 0, "part": 0, "doc_unit": 0, "length": 16, "edit": 15 / 16}
    found = " ".join("other" if at == 5 else unit for at, unit in enumerate(asked.split()))
    assert Given(examples, [found], [row]).classes() == ["near", "clean"]
    assert Given(examples, [found]).classes() == ["clean", "clean"]


def test_a_short_question_with_other_numbers_is_no_piece():
    asked = "how many of the 12 passengers went on by boat then"
    other = "how many of the 12 passengers went on the ferry again"
    examples = [("s", {"prompt": own, "passage": text(f"c{at}c")}) for at, own in enumerate((asked, other))]
    assert Given(examples, [f"{filler(9)} {asked.replace('12', '30')} {filler(9, 50)}"]).classes() == [
        "variant", "clean",
    ]  # fmt: skip
    piece = " ".join(asked.split()[1:])
    assert Given(examples, [f"{filler(9)} {piece} {filler(9, 50)}"]).classes() == ["passage", "clean"]


@pytest.mark.parametrize(
    "kind, window, cls",
    [("solution", {"containment": 0.9}, "near"), ("tests", {"containment": 0.9}, "clean"),
     ("solution", {"numbers": 0.95, "edit": 0.7}, "variant"), ("tests", {"numbers": 0.95, "edit": 0.7}, "clean")],
)  # fmt: skip
def test_tests_speak_only_where_they_are_found_as_they_are(kind, window, cls):
    own = text("t", 20)
    row = {"doc": 0, "part": 1, "doc_unit": 0, "length": 20, **window}
    assert Given([("s", {"prompt": PROMPT, kind: own})], [filler(30)], [row]).classes() == [cls]


@pytest.mark.parametrize("kind, cls", [("solution", "passage"), ("tests", "clean")])
def test_an_idiom_nearly_found_is_no_solution(kind, cls):
    own = " ".join(f"f{at} {at}" for at in range(12))
    row = {"doc": 0, "part": 1, "doc_unit": 0, "length": 24, "containment": 0.9, "edit": 0.9}
    document = " ".join(own.split()[:10])
    assert Given([("s", {"prompt": PROMPT, kind: own})], [f"{document} {filler(9)}"], [row]).classes() == [cls]


def test_an_answer_that_its_passage_tells_is_the_answer_behind_the_prompt():
    told = text("t", 9)
    parts = {"prompt": PROMPT, "passage": f"{PASSAGE} {told}", "answer": told}
    assert one(f"{PASSAGE} {told} {PROMPT} {told}", **parts) == "adjacent"
    assert one(f"{PASSAGE} {told} {PROMPT} {filler(9)}", **parts) == "prompt"
