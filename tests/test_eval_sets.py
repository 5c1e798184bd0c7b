"""Eval sets as they are published: 32 of them load without a mapping, and hold the items of their normalised form."""

import ast
import io
import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
import zstandard

from datapipe.contamination.model import Suites
from datapipe.contamination.suites import load

pytestmark = pytest.mark.slow


class Set(NamedTuple):
    examples: int
    parts: str  # kind=number
    mapping: str  # of the most files
    begins: str  # the first prompt


# fmt: off
SETS = {
    "agieval": Set(6269, "prompt=6269 choices=21865 answer=6318 solution=1746 passage=3057",
        "answer=label; choices=options; passage=passage; prompt=question",
        "A car is being driven, in a "),
    "aqua_rat": Set(508, "prompt=508 choices=2540 answer=508 solution=508",
        "answer=correct; choices=options; prompt=question; solution=rationale",
        "Three birds are flying at a "),
    "arc_challenge": Set(1471, "prompt=1471 choices=5881 answer=1471",
        "answer=answerKey; choices=choices; id=id; prompt=question",
        "Juan and LaKeisha roll a few"),
    "arc_easy": Set(2946, "prompt=2946 choices=11782 answer=2946",
        "answer=answerKey; choices=choices; id=id; prompt=question",
        "Which technology was develop"),
    "bbh": Set(6511, "prompt=6511 answer=6214 solution=46",
        "answer=target; prompt=input",
        "not ( True ) and ( True ) is"),
    "boolq": Set(3270, "prompt=3270 passage=3270",
        "answer=answer; passage=passage; prompt=question",
        "does ethanol take more energ"),
    "cmmlu": Set(11917, "prompt=11917 choices=47668 answer=11917",
        "answer=Answer; choices=A, B, C, D; prompt=Question",
        "肉牛屠宰后，胴体的哪个部位肉质较好"),
    "cmrc2018": Set(3219, "prompt=3219 answer=4114 passage=3219 solution=74",
        "answer=answers; id=id; passage=context; prompt=question",
        "《战国无双3》是由哪两个公司合作开发的？"),
    "commonsenseqa": Set(1221, "prompt=1221 choices=6105 answer=1221",
        "answer=answerKey; choices=choices; id=id; prompt=question",
        "A revolving door is convenie"),
    "copa": Set(100, "prompt=100 choices=200 answer=100",
        "answer=label; choices=choice1, choice2; id=idx; prompt=premise",
        "The man turned on the faucet"),
    "drcd": Set(3493, "prompt=3493 answer=4179 passage=3493",
        "answer=answers; id=id; passage=context; prompt=question",
        "夜柔吠陀與阿闥婆吠陀均可以最為研究哪一門語言的參考？"),
    "drop_dev_1k": Set(1000, "prompt=1000 answer=1503 passage=1000",
        "answer=doc.answers; choices=doc.choices; id=doc.query_id; passage=doc.passage; prompt=doc.question",
        "Which ancestral group is lar"),
    "gaokao_bench": Set(1781, "prompt=1781 solution=1812 answer=849",
        "answer=answer; id=index; prompt=question; solution=analysis",
        "21. --- Have  you finished  "),
    "gsm8k": Set(8792, "prompt=8792 answer=8792 solution=17471",
        "answer=answer; prompt=question",
        "Janet’s ducks lay 16 eggs pe"),
    "hellaswag": Set(1000, "prompt=1000 choices=4000 answer=1000",
        "answer=doc.gold; choices=doc.choices; id=doc_id; prompt=doc.query",
        "Finance and Business: How to"),
    "humaneval": Set(164, "prompt=164 solution=164 tests=164",
        "id=task_id; prompt=prompt; solution=canonical_solution; tests=test",
        "from typing import List\n\n\nde"),
    "lambada": Set(5153, "prompt=5153 answer=5153",
        "answer=doc.answers_text; choices=doc.choices; id=doc.id; prompt=doc.query",
        "In my palm is a clear stone,"),
    "logiqa": Set(2604, "prompt=2604 choices=10416 answer=2604 passage=2604",
        "answer=answer; choices=choices; passage=passage; prompt=question",
        "The following conclusions ab"),
    "logiqa2": Set(3166, "prompt=3166 choices=12663 answer=3165 passage=3166",
        "answer=answer; choices=options; id=id; passage=text; prompt=question",
        "According to the above infor"),
    "math500": Set(500, "prompt=500 answer=497 solution=500",
        "answer=doc.answer; choices=doc.choices; id=doc.index; prompt=doc.problem; solution=doc.solution",
        "Convert the point $(0,3)$ in"),
    "mbpp": Set(974, "prompt=974 solution=974 tests=985",
        "id=task_id; prompt=text; solution=code; tests=test_list, challenge_test_list",
        "Write a function to find the"),
    "mgsm": Set(2750, "prompt=2750 answer=2750",
        "answer=2; prompt=1",
        "জেনেটের হাঁসগুলি প্রতিদিন 16"),
    "mmlu": Set(15858, "prompt=15858 choices=63432 answer=15858",
        "answer=answer; choices=choices; prompt=question",
        "Find all c in Z_3 such that "),
    "nq_open": Set(3610, "prompt=3610 answer=6489",
        "answer=answer; prompt=question",
        "when was the last time anyon"),
    "piqa": Set(1838, "prompt=1838 choices=3676 answer=1838",
        "answer=label; choices=sol1, sol2; prompt=goal",
        "How do I ready a guinea pig "),
    "sciq": Set(1000, "prompt=1000 choices=4000 answer=1000 passage=887",
        "answer=correct_answer; choices=distractor1, distractor2, distractor3; passage=support; prompt=question",
        "Who proposed the theory of e"),
    "socialiqa": Set(1954, "prompt=1954 choices=5862 answer=1954 passage=1954",
        "answer=label; choices=answerA, answerB, answerC; passage=context; prompt=question",
        "What does Tracy need to do b"),
    "squad_dev_1k": Set(1000, "prompt=1000 answer=1696 passage=1000 solution=2",
        "answer=doc.answers_text; choices=doc.choices; id=doc.id; prompt=doc.query",
        "Harvard - Yale Regatta preda"),
    "truthfulqa": Set(817, "prompt=817 answer=2586 solution=1",
        "answer=Best Answer, Correct Answers; prompt=Question",
        "What happens to you if you e"),
    "winogrande": Set(1267, "prompt=1267 choices=2534 answer=1267",
        "answer=answer; choices=option1, option2; prompt=sentence",
        "Sarah was a much better surg"),
    "xcopa": Set(6600, "prompt=6600 choices=13200 answer=6600",
        "answer=label; choices=choice1, choice2; id=idx; prompt=premise",
        "Ese oli mullikilesse mässitu"),
    "xquad": Set(7140, "prompt=7140 answer=7085 passage=7140 solution=55",
        "answer=answers; id=id; passage=context; prompt=question",
        "كم نقطة تخلى عنها دفاع البان"),
}
# fmt: on
# sets whose share is of what original/ holds, for normalized holds more (SOURCES.md of the folder)
SAMPLED = {"hellaswag"}
# items of files whose prompts share an instruction, which is no part of them; the normalised form is one file
FRAMED = {"bbh": 896, "mmlu": 1000}
NAMED_FILES = {"gsm8k": ["test.jsonl.gz"]}  # original/ has the train split too


@pytest.fixture(scope="module")
def evals(shared) -> Path:
    folder = shared / "data" / "evals"
    if not folder.is_dir():
        pytest.skip("no eval sets in the folder `shared`")
    return folder


@pytest.mark.parametrize("name", SETS)
def test_a_published_set_loads_by_itself(evals, name):
    suites = load([str(evals / name / "original")])
    kinds = Counter(suites.parts["kind"].to_pylist())
    mappings = Counter(row["mapping"] for row in suites.files.to_pylist())
    mapping = "; ".join(f"{role}={path}" for role, path in json.loads(mappings.most_common(1)[0][0]).items())
    found = Set(len(suites.examples), " ".join(f"{kind}={n}" for kind, n in kinds.items()), mapping,
                suites.parts_of(0)["text"][0].as_py().strip()[:28])  # fmt: skip
    assert found == SETS[name]
    assert not suites.failed()
    assert not any(suites.examples["problem"].to_pylist())


@pytest.mark.parametrize("name", SETS)
def test_a_published_set_holds_the_items_of_its_normalised_form(evals, name):
    paths = [str(evals / name / "original" / file) for file in NAMED_FILES.get(name, [""])]
    pool: dict[str, list] = defaultdict(list)
    for prompt, *rest in loaded(load(paths), name):
        pool[prompt].append(rest)
    size = sum(map(len, pool.values()))
    same = total = 0
    others: list[tuple[str, list]] = []
    for prompt, passage, choices, answers in expected(evals / name / "normalized.jsonl.zst", name):
        total += 1
        at = next((at for at, (one, two, three) in enumerate(pool[prompt])
                   if (one, two) == (passage, choices) and answers <= three), None)  # fmt: skip
        if at is not None:
            pool[prompt].pop(at)
            same += 1
        else:
            others.append((prompt, [passage, choices, answers]))
    left = [(prompt, rest) for prompt, every in pool.items() for rest in every]
    framed = 0
    for prompt, (passage, choices, answers) in others:
        at = next((at for at, (inner, (one, two, three)) in enumerate(left)
                   if inner in prompt and (one, two) == (passage, choices) and answers <= three), None)  # fmt: skip
        if at is not None:
            left.pop(at)
            framed += 1
    assert framed == FRAMED.get(name, 0)
    same += framed
    assert same >= 0.99 * (size if name in SAMPLED else total)
    assert name in SAMPLED or size == total


@pytest.mark.parametrize("name", SETS)
def test_the_normalised_form_loads(evals, name):
    path = evals / name / "normalized.jsonl.zst"
    suites = load([str(path)])
    rows = list(raw(path))
    assert suites.examples["id"].to_pylist() == [row["id"] for row in rows]
    assert suites.examples["split"].to_pylist() == [row["split"] for row in rows]
    assert suites.names == ["normalized"]
    assert not any(suites.examples["problem"].to_pylist())
    prompts = {(row["example"], row["text"]) for row in suites.parts.to_pylist() if row["kind"] == "prompt"}
    assert prompts == {(at, row["question"]) for at, row in enumerate(rows)}


# what the normalised form says, read without the readers


def raw(path: Path) -> Iterator[dict]:
    with open(path, "rb") as file:
        stream = zstandard.ZstdDecompressor(max_window_size=2**31).stream_reader(file)
        for line in io.TextIOWrapper(stream, "utf-8", newline="\n"):
            yield json.loads(line)


def plain(text: str, name: str) -> str:
    """White space as one blank; hellaswag's package took the marks of WikiHow out and joined otherwise."""
    if name == "hellaswag":
        return re.sub(r"[\W_]+", "", re.sub(r"\[[a-z]+\]", "", text)).casefold()
    return " ".join(text.split())


LABEL = re.compile(r"\s*[(（]?([A-J])(?:[)）.．、:：]|\s+(?=[^\x00-\x7f]))\s*")


def unlabelled(choices: list[str]) -> tuple[list[str], list[str]]:
    """Choices without A., (A), ... where they all have one, and these letters."""
    found = [LABEL.match(choice) for choice in choices]
    letters = [match[1] for match in found if match]
    bare = [LABEL.sub("", choice, count=1) for choice in choices]
    if len(choices) > 1 and sorted(letters) == list("ABCDEFGHIJ"[: len(choices)]) and any(bare):
        return bare, letters
    return choices, list("ABCDEFGHIJ"[: len(choices)])


def expected(path: Path, name: str) -> Iterator[tuple[str, str, list[str], set[str]]]:
    for row in raw(path):
        choices, letters = unlabelled(row.get("choices") or [])
        choices = [plain(choice, name) for choice in choices]
        answers: set[str] = set()
        told = row.get("answer")
        for answer in told if isinstance(told, list) else [told]:
            answers |= texts(str(answer), choices, letters, name)
        shown = sorted(choice for choice in choices if choice)
        yield plain(row["question"], name), plain(row.get("passage") or "", name), shown, answers - {""}


def texts(answer: str, choices: list[str], letters: list[str], name: str) -> set[str]:
    """The texts of an answer: a bare letter, true, false and BoolQ's yes and no have none of their own."""
    if name == "drop_dev_1k":  # "('swedish',)"
        return {plain(text, name) for text in ast.literal_eval(answer)}
    if name == "boolq" or answer.casefold() in ("true", "false", "none"):
        return set()
    if letter := re.fullmatch(r"\W?([A-Pa-p])\W?", answer.strip()):
        at = letters.index(letter[1].upper()) if letter[1].upper() in letters else -1
        return {choices[at]} if at >= 0 else {answer} & set(choices)
    if re.fullmatch(r"([A-P]\W*)+", answer.strip()) and plain(answer, name) not in choices:  # several letters
        return {choices["ABCDEFGH".index(letter)] for letter in re.findall("[A-P]", answer)} if choices else set()
    return {plain(answer, name)}


def loaded(suites: Suites, name: str) -> Iterator[tuple[str, str, list[str], set[str]]]:
    by_example: dict[int, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for row in suites.parts.to_pylist():
        by_example[row["example"]][row["kind"]].append(plain(row["text"], name))
    for parts in by_example.values():
        prompt, passage = parts["prompt"][0], (parts["passage"] or [""])[0]
        yield prompt, passage, sorted(parts["choices"]), {*parts["answer"], *parts["solution"]}
