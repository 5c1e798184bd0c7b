"""Judgements by the engine and the judge together: what a suite shares, what crowds share, numbers, words, echoes."""

import pytest
from test_judged import Made, same

from datapipe.contamination import said

Part = tuple[str, bool | None, str]


def text(seed: str, many: int = 20) -> str:
    return " ".join(f"{seed}x{at}th" for at in range(many))


def prompt(own: str, *more: Part) -> list[Part]:
    return [("prompt", None, own), *more]


def judged(examples: list[list[Part]], documents: list[str], suites: str = "") -> list[str]:
    """Classes; the twin in obvious code says the same."""
    made = Made([(suite, own) for suite, own in zip(suites or "s" * len(examples), examples, strict=True)], documents)
    return [cls for cls, _ in same(made).classes([None] * len(examples))]


STOCK = text("which", 9)  # a question that everybody asks
NUMBERS = " ".join(str(at) for at in range(1, 21))


def asked(*answers: str) -> list[list[Part]]:
    return [prompt(STOCK, ("answer", None, own)) for own in answers]


# --- numbers --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "own, document, cls",
    [
        (f"{text('a', 6)} {NUMBERS}", NUMBERS, "clean"),
        (f"{text('a', 6)} {NUMBERS}", f"{text('a', 6)} {NUMBERS}", "prompt"),
        (f"{text('a', 12)} {NUMBERS}", f"{text('a', 12)} {text('z', 9)}", "clean"),
        (f"{text('a', 20)} {NUMBERS}", f"{text('a', 20)} {text('z', 9)}", "prompt"),
    ],
    ids=["counting", "words with it", "too few words", "the words alone"],
)
def test_n_grams_of_numbers_alone_are_no_evidence(own, document, cls):
    assert judged([prompt(own)], [document]) == [cls]


def test_an_example_of_nothing_but_numbers_is_found_by_a_whole_copy_alone():
    assert judged([prompt(NUMBERS)], [" ".join(NUMBERS.split()[:15])]) == ["untested"]


# --- what examples share ----------------------------------------------------------------------------------------------

LETTER = "in the letter that the harbour master wrote to the council of {} about the price of the bells and the rope"


def test_an_item_with_another_name_is_another_fact():
    """One word is an item's own, with what straddles it: nearly the same by edits, and nothing of it is there."""
    items = [prompt(LETTER.format(name)) for name in ("Osterness", "Quellin")]
    assert judged(items, [LETTER.format("Marrowby")]) == ["clean", "clean"]
    assert judged(items, [LETTER.format("Quellin")]) == ["clean", "prompt"]
    assert judged(items[:1], [LETTER.format("Marrowby")]) == ["prompt"]  # nobody else has the letter


def test_an_item_inside_another_has_no_variants():
    """Nothing of it is its own; a whole copy is evidence all the same."""
    inside = f"{text('i', 6)} 12 {text('j', 6)} 7 {text('k', 6)}"
    items = [prompt(inside), prompt(f"{inside} {text('more', 20)}")]
    assert judged(items, [inside.replace("12", "15").replace("7", "9")]) == ["untested", "clean"]
    assert judged(items[:1], [inside.replace("12", "15").replace("7", "9")]) == ["variant"]
    assert judged(items, [inside]) == ["prompt", "clean"]


@pytest.mark.parametrize("changed, cls", [((26, 29, 32), "near"), ((26, 29, 32, 35), "clean")])
def test_each_difference_counts_against_what_is_an_items_own(changed, cls):
    """Of 36 units 19 are its own, or straddle: three changes leave more than four fifths of them, four do not."""
    items = [f"{text('shared', 24)} {text(own, 12)}" for own in "ab"]
    document = " ".join("other" if at in changed else unit for at, unit in enumerate(items[0].split()))
    assert judged([prompt(own) for own in items], [document]) == [cls, "clean"]


def test_what_two_right_choices_share_tells_none_apart():
    right = [f"{text('both', 14)} {text(own, 5)}" for own in "ab"]
    example = prompt(text("p"), *(("choices", True, own) for own in right), ("choices", False, text("w", 9)))
    assert judged([example], [text("both", 14)]) == ["clean"]
    assert judged([example], [right[1]]) == ["solution"]
    assert judged([prompt(text("p"), *example[2:])], [text("both", 14)]) == ["solution"]


# --- stock prompts --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "document, classes",
    [
        (STOCK, ["untested"] * 3),
        (f"{STOCK} the blue one", ["untested", "adjacent", "untested"]),
        (f"{STOCK} {text('z', 99)} the blue one", ["untested", "adjacent", "untested"]),
        (f"{STOCK} {text('z', 101)} the blue one", ["untested"] * 3),
        (f"the blue one {STOCK}", ["untested"] * 3),
        (f"{STOCK} the blue", ["untested"] * 3),
        ("the blue one", ["untested"] * 3),
    ],
    ids=["alone", "answer", "answer far", "answer too far", "answer before", "half an answer", "answer alone"],
)
def test_a_prompt_that_three_have_is_told_by_its_answer(document, classes):
    assert judged(asked("the red one", "the blue one", "the green one"), [document]) == classes


def test_answers_of_two_units_do_not_tell_which_it_is():
    assert judged(asked("red one", "blue one", "green one"), [f"{STOCK} blue one"]) == ["untested"] * 3


def test_a_long_answer_tells_which_it_is_where_it_is_found_as_it_is():
    solutions = [text(f"{own}s", 24) for own in "abc"]
    nearly = " ".join("other" if at in (8, 16) else unit for at, unit in enumerate(solutions[1].split()))
    examples = [prompt(STOCK, ("solution", None, own)) for own in solutions]
    assert judged(examples, [f"{STOCK} {solutions[1]}"]) == ["clean", "adjacent", "clean"]
    assert judged(examples, [f"{STOCK} {nearly}"]) == ["clean", "near", "clean"]
    assert judged([prompt(text("p"), ("solution", None, solutions[1]))], [f"{text('p')} {nearly}"]) == ["adjacent"]


def test_a_long_choice_tells_which_it_is():
    """One of three: too few of the choices to make the prompt whole."""
    examples = [
        prompt(STOCK, *(("choices", at == 0, text(f"{own}{at}k", 14)) for at in range(3))) for own in "abc"
    ]  # fmt: skip
    assert judged(examples, [f"{STOCK} {text('b0k', 14)}"]) == ["clean", "adjacent", "clean"]
    assert judged(examples, [f"{STOCK} {text('b1k', 14)}"]) == ["clean"] * 3


# --- crowds ---------------------------------------------------------------------------------------------------------


def test_a_text_of_a_crowd_is_looked_for_beside_another_part_of_the_example():
    solutions = [text(f"solution{at}q", 14) for at in range(said.CROWD + 2)]
    examples = [prompt(STOCK, ("solution", None, own)) for own in solutions]
    classes = judged(examples, [f"{STOCK} {solutions[7]}", STOCK])
    assert classes[7] == "adjacent"
    assert set(classes[:7] + classes[8:]) == {"clean"}


def test_a_crowd_is_larger_than_its_bound(monkeypatch):
    """Of a short answer beside the shared prompt the crowd hears nothing; fewer examples do."""
    answers = ["the red one", "the blue one", "the green one"]
    monkeypatch.setattr(said, "CROWD", 3)
    assert judged(asked(*answers), [f"{STOCK} the red one"]) == ["adjacent", "untested", "untested"]
    monkeypatch.setattr(said, "CROWD", 2)
    assert judged(asked(*answers), [f"{STOCK} the red one"]) == ["untested"] * 3


# --- echoes ---------------------------------------------------------------------------------------------------------

ITEM = f"a train with 120 people leaves at 9 and {text('t', 12)} how many are left after 3 stops"


def test_siblings_of_an_item_that_stands_there_are_echoes():
    sibling = ITEM.replace("120", "90").replace("3 stops", "5 stops")
    both = [prompt(ITEM), prompt(sibling)]
    assert judged(both, [f"{text('z', 9)} {ITEM}"], "st") == ["prompt", "clean"]
    assert judged(both, [f"{text('z', 9)} {sibling}"], "st") == ["clean", "prompt"]
    # in a place of its own it is what it is
    other = ITEM.replace("120", "77")
    assert judged([prompt(ITEM)], [f"{text('z', 9)} {other}"], "s") == ["variant"]
    assert judged(both, [f"{ITEM} {text('z', 40)} {other}"], "st")[0] == "prompt"


def test_an_echo_is_where_the_item_is_wherever_its_longest_match_begins():
    item = f"{text('t', 9)} 12 {text('u', 8)} 7 {text('v', 10)}"
    sibling = item.replace(" 12 ", " 15 ").replace(" 7 ", " 9 ")
    assert judged([prompt(item), prompt(sibling)], [f"{text('z', 9)} {item}"], "st") == ["prompt", "clean"]


@pytest.mark.parametrize("own, sibling, cls", [(40, 20, "clean"), (40, 19, "variant"), (20, 40, "clean"),
                                               (20, 41, "variant")])  # fmt: skip
def test_an_echo_has_half_to_twice_the_length_of_the_item(own, sibling, cls):
    there = text("t", 41).split()
    there[5] = "12"
    other = [*there[:5], "15", *there[6:sibling]]
    document = f"{text('z', 9)} {' '.join(there[: max(own, sibling)])} {text('y', 9)}"
    assert judged([prompt(" ".join(there[:own])), prompt(" ".join(other))], [document], "st") == ["prompt", cls]


def test_with_other_names_and_other_numbers_an_item_is_another_fact():
    """Five units of six are equal, but no n-gram is, but for the numbers."""
    own = text("w", 48).split()
    there = list(own)
    for at in range(5, 48, 6):
        own[at], there[at] = (f"name{at}x", f"other{at}x") if at < 24 else (str(at), str(at + 1))
    assert judged([prompt(" ".join(own))], [" ".join(there)]) == ["clean"]
    assert judged([prompt(" ".join(own))], [" ".join([*own[:9], *there[9:]])]) == ["near"]


def test_of_two_as_near_the_one_with_other_numbers_is_meant():
    """Four units of thirty differ from either: numbers of one, names of the other."""
    there, numbers, names = (text("w", 30).split() for _ in range(3))
    for at in (4, 9, 14, 19):
        there[at], numbers[at], names[at] = str(at), str(at + 1), f"name{at}x"
    both, document = [prompt(" ".join(own)) for own in (numbers, names)], " ".join(there)
    assert judged(both, [document], "st") == ["variant", "clean"]
    assert judged(both[1:], [document]) == ["near"]


# --- words ----------------------------------------------------------------------------------------------------------

FORMULA = "x = ( a + b ) / 2 ; y = ( a - b ) / 3 ; z = x * y + 41 ; r = x / y - 7"


def test_formulas_with_other_numbers_are_no_variants():
    """An answer of hardly any words is like any other; one in words is not."""
    document = FORMULA.replace("41", "17").replace("7", "9")
    assert judged([prompt(text("p"), ("solution", None, FORMULA))], [document]) == ["clean"]
    said_so = f"so {text('so', 6)} 12 of them and {text('then', 6)} 30 more"
    assert judged([prompt(text("p"), ("solution", None, said_so))], [said_so.replace("12", "13")]) == ["variant"]


# --- beside a prompt with other numbers -----------------------------------------------------------------------------

ROWS = [f"{text(f'row{at}q', 5)} {at + 3}" for at in range(5)]
OTHERS = " ".join(f"{text(f'row{at}q', 5)} {at + 30}" for at in range(1, 5))  # without the first units
STEPS = text("step", 24).split()


@pytest.mark.parametrize("gap, cls", [(0, "adjacent"), (100, "adjacent"), (101, "solution")])
def test_a_solution_is_as_far_from_the_matched_end_of_a_prompt(gap, cls):
    """The match begins behind the first units of the prompt, and ends with it."""
    example = prompt(" ".join(ROWS), ("solution", None, " ".join(STEPS)))
    documents = [f"{text('y', 9)} {OTHERS} {text('z', gap)} {' '.join(STEPS)}"]
    assert judged([example], documents) == [cls]
    assert judged([prompt(" ".join(ROWS))], documents) == ["variant"]


def test_a_solution_nearly_the_same_is_another_items_where_the_numbers_are():
    nearly = " ".join("other" if at in (8, 16) else unit for at, unit in enumerate(STEPS))
    example = prompt(" ".join(ROWS), ("solution", None, " ".join(STEPS)))
    assert judged([example], [f"{text('y', 9)} {OTHERS} {nearly}"]) == ["near"]
    assert judged([example], [f"{text('y', 9)} {' '.join(ROWS)} {nearly}"]) == ["adjacent"]


# --- what is copied everywhere --------------------------------------------------------------------------------------


def common(share: float, own: str, documents: list[str]) -> tuple[str, str]:
    made = Made([("s", prompt(own))], documents, common=share)
    twin = same(made)
    _, _, bare = made.both()
    return twin.classes([None])[0][0], bare.classes([None])[0][0]


def test_all_common_is_void_where_half_is_copied():
    own = text("w", 30).split()
    assert common(1.0, " ".join(own), [" ".join(own[:15])]) == ("prompt", "prompt")
    # two pieces of less than half each make more than half, and hide
    pieces = " ".join([*own[:12], text("z", 60), *own[16:28]])
    assert common(1.0, " ".join(own), [pieces]) == ("untested", "prompt")


def test_mirrors_count_an_example_and_its_twin_once():
    prompts = [text(f"m{at}q", 15) for at in range(5)]
    made = Made([("s", prompt(own)) for own in [*prompts, prompts[0]]], [" ".join(prompts), " ".join(prompts[:4])])
    twin = same(made)
    assert twin.mirrors() == {(0, "s"): [0, 1, 2, 3, 4]}
    assert twin.twins(5) == [0]
    assert not twin.counted(5)
