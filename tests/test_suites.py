"""Eval readers: forms, fields, parts, archives, names, what fails and how; every case a small file of its own."""

import bz2
import csv
import gzip
import io
import json
import lzma
import os
import struct
import tarfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard

from datapipe.contamination.model import EXAMPLES, FILES, KINDS, PARTS, Suites
from datapipe.contamination.suites import load, templates
from datapipe.errors import ManifestError

ROWS = [
    {"id": "q1", "question": "Which river flows through Lima?", "answer": "Rímac", "context": "Lima lies on a river."},
    {"id": "q2", "question": "那条河流经利马？", "answer": "里马克河", "context": "利马在一条河上。"},
    {"id": "q3", "question": 'A "quoted", word\twith a tab?', "answer": "yes", "context": "Line one\nline two."},
]
CODECS = {
    "": bytes,
    ".gz": gzip.compress,
    ".zst": zstandard.ZstdCompressor(write_checksum=True).compress,
    ".bz2": bz2.compress,
    ".xz": lzma.compress,
}


def lines(rows: list) -> bytes:
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode()


def cells(rows: list[dict], delimiter: str) -> bytes:
    out = io.StringIO()
    writer = csv.DictWriter(out, list(rows[0]), delimiter=delimiter)
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue().encode()


def parquet(rows: list[dict]) -> bytes:
    out = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(rows), out)
    return out.getvalue()


def arrow(rows: list[dict], new) -> bytes:
    table, out = pa.Table.from_pylist(rows), io.BytesIO()
    with new(out, table.schema) as writer:
        writer.write_table(table)
    return out.getvalue()


def tar(members: dict[str, bytes]) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return out.getvalue()


def squad(rows: list[dict]) -> dict:
    paragraphs = [{"context": row["context"], "qas": [{"id": row["id"], "question": row["question"],
                   "answers": [{"text": row["answer"], "answer_start": 0}] * 2}]} for row in rows]  # fmt: skip
    return {"version": "1.1", "data": [{"title": "Lima", "paragraphs": paragraphs}]}


FORMS = {
    "lines.jsonl": lines(ROWS),
    "lines.json": lines(ROWS),
    "lines.txt": lines(ROWS),
    "no-newline.jsonl": lines(ROWS).rstrip(),
    "blank-lines.jsonl": b"\n" + lines(ROWS).replace(b"\n", b"\r\n\n"),
    "bom.jsonl": b"\xef\xbb\xbf" + lines(ROWS),
    "array.json": json.dumps(ROWS).encode(),
    "indented.json": json.dumps(ROWS, indent=2).encode(),
    "indented.jsonl": json.dumps(ROWS, indent=2).encode(),
    "holding.json": json.dumps({"canary": "x", "examples": ROWS}).encode(),
    "squad.json": json.dumps(squad(ROWS)).encode(),
    "columns.json": json.dumps({name: [row[name] for row in ROWS] for name in ROWS[0]}).encode(),
    "by-id.json": json.dumps({row["id"]: {k: v for k, v in row.items() if k != "id"} for row in ROWS}).encode(),
    "cells.csv": cells(ROWS, ","),
    "semicolons.csv": cells(ROWS, ";"),
    "cells.tsv": cells(ROWS, "\t"),
    "t.parquet": parquet(ROWS),
    "stream.arrow": arrow(ROWS, pa.ipc.new_stream),
    "file.arrow": arrow(ROWS, pa.ipc.new_file),
}


def parts_of(suites: Suites, example: int = 0) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for row in suites.parts_of(example).to_pylist():
        found.setdefault(row["kind"], []).append(row["text"])
    return found


@pytest.fixture
def read(tmp_path):
    """A function that writes bytes, or rows as JSON lines, into files and loads them."""

    def write(content: Any, name: str = "eval.jsonl", **options) -> Suites:
        files = content if isinstance(content, dict) else {name: content}
        for file, data in files.items():
            (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / file).write_bytes(data if isinstance(data, bytes) else lines(data))
        return load([str(tmp_path / file) for file in files], **options)

    return write


# forms


@pytest.mark.parametrize("suffix", CODECS)
@pytest.mark.parametrize("name", FORMS)
def test_every_form_in_every_codec_gives_the_same_parts(read, name, suffix):
    suites = read(CODECS[suffix](FORMS[name]), name + suffix)
    assert suites.failed() == []
    assert suites.names == [name.partition(".")[0]]
    assert suites.examples["id"].to_pylist() == ["q1", "q2", "q3"]
    for example, row in enumerate(ROWS):
        assert parts_of(suites, example) == {
            "prompt": [row["question"]], "answer": [row["answer"]], "passage": [row["context"]],
        }  # fmt: skip
    assert suites.files["bytes"].to_pylist() == [len(CODECS[suffix](FORMS[name]))]


@pytest.mark.parametrize("suffix", [".tar.gz", ".tgz", ".tar.zst", ".tar.bz2", ".tar.xz", ".tar"])
def test_members_of_an_archive(read, suffix):
    pack = {".tgz": gzip.compress}.get(suffix) or CODECS[suffix.removeprefix(".tar")]
    members = {"dev/a.jsonl": FORMS["lines.jsonl"], "dev/b.csv.gz": gzip.compress(FORMS["cells.csv"]),
               "test/a.jsonl": FORMS["lines.jsonl"], "README.md": b"# nothing", "dev/.hidden.jsonl": b"{"}  # fmt: skip
    suites = read(pack(tar(members)), f"all{suffix}")
    assert suites.names == ["b", "dev/a", "test/a"]
    assert suites.failed() == []
    path = suites.files["path"][0].as_py()
    assert path.endswith(f"all{suffix}/dev/a.jsonl")
    assert {row["file"] for row in suites.examples.to_pylist() if row["suite"] == "dev/a"} == {path}
    assert set(suites.examples["split"].to_pylist()) == {"dev", "test"}


def test_a_folder_is_all_its_eval_files(tmp_path):
    for name in ("a/x.jsonl", "b/y.json.gz", "README.md", ".git/z.jsonl", "b/dataset_info.json"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(gzip.compress(lines(ROWS)) if name.endswith("gz") else lines(ROWS))
    suites = load([str(tmp_path)])
    assert suites.names == ["x", "y"]
    assert len(suites.files) == 2


BLOCKS = """
Question: What is the capital of Peru?
A. Lima
B. Cusco
Answer: A

Q: Who wrote
the play?
A: Nobody knows
"""
LOGIQA = """
b
All cats are grey at night.
What follows?
A.Cats are black.
B.Cats are grey at some time.
C.Cats are not grey.
D.Nothing follows.
"""
CATS = {
    "prompt": ["What follows?"],
    "passage": ["All cats are grey at night."],
    "choices": ["Cats are black.", "Cats are grey at some time.", "Cats are not grey.", "Nothing follows."],
    "answer": ["Cats are grey at some time."],
}


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        (BLOCKS, [{"prompt": ["What is the capital of Peru?"], "choices": ["Lima", "Cusco"], "answer": ["Lima"]},
                  {"prompt": ["Who wrote\nthe play?"], "answer": ["Nobody knows"]}]),
        (LOGIQA, [CATS]),
        (LOGIQA.replace("\n", "\r\n"), [CATS]),
    ],
)  # fmt: skip
def test_blocks_of_text(read, text, parts):
    suites = read(text.encode(), "blocks.txt")
    assert [parts_of(suites, example) for example in range(len(suites.examples))] == [
        {kind: found[kind] for kind in KINDS if kind in found} for found in parts
    ]


def test_cells_without_a_header(read):
    suites = read(b'Two and two?\t4\nThree "and three?\t6\n', "mgsm.tsv")
    assert [parts_of(suites, n) for n in (0, 1)] == [
        {"prompt": ["Two and two?"], "answer": ["4"]}, {"prompt": ['Three "and three?'], "answer": ["6"]},
    ]  # fmt: skip
    suites = read(b'"2 + 2, is?",3,4,5,6,B\nnext?,w,x,y,z,D\n', "mmlu.csv")
    assert parts_of(suites) == {"prompt": ["2 + 2, is?"], "choices": ["3", "4", "5", "6"], "answer": ["4"]}


# fields and parts

LONG = "First add the numbers, then take away what was counted twice, and so on until nothing is left to be added. " * 2
CASES = {
    "names whatever their case": (
        {"Question": "Why is it so?", "Correct Answer": "because", "Task_ID": 7},
        {"prompt": ["Why is it so?"], "answer": ["because"]},
    ),
    "instruction and input": (
        {"instruction": "Translate this.", "input": "Guten Tag", "output": "Good day"},
        {"prompt": ["Translate this.\nGuten Tag"], "answer": ["Good day"]},
    ),
    "premise and hypothesis": (
        {"premise": "It rains now.", "hypothesis": "It is wet.", "label": "entailment"},
        {"prompt": ["It rains now.\nIt is wet."], "answer": ["entailment"]},
    ),
    "a class number is no answer": ({"text": "What a bad film", "label": 1}, {"prompt": ["What a bad film"]}),
    "true is no answer": ({"question": "Is it true?", "answer": True}, {"prompt": ["Is it true?"]}),
    "nor is the word": ({"question": "Is it true?", "answer": "False"}, {"prompt": ["Is it true?"]}),
    "nor a bare letter": ({"question": "Which one of them?", "answer": "(B)"}, {"prompt": ["Which one of them?"]}),
    "a number is": (
        {"question": "How many are left?", "answer": 42},
        {"prompt": ["How many are left?"], "answer": ["42"]},
    ),
    "several answers, each once": (
        {"question": "When was it?", "answers": ["1999", "in 1999", "1999"]},
        {"prompt": ["When was it?"], "answer": ["1999", "in 1999"]},
    ),
    "a letter that the prompt spells out": (
        {"input": "Which one?\nOptions:\n(A) the red\n(B) the blue", "target": "(B)"},
        {"prompt": ["Which one?\nOptions:\n(A) the red\n(B) the blue"], "answer": ["the blue"]},
    ),
    "index from 0": (
        {"question": "Which one?", "choices": ["x1", "y1", "z1"], "answer": 0},
        {"prompt": ["Which one?"], "choices": ["x1", "y1", "z1"], "answer": ["x1"]},
    ),
    "index from 1": (
        {"question": "Which one?", "choices": ["x1", "y1", "z1"], "answer": 3},
        {"prompt": ["Which one?"], "choices": ["x1", "y1", "z1"], "answer": ["z1"]},
    ),
    "letter": (
        {"question": "Which one?", "options": ["x1", "y1", "z1"], "answer": "c"},
        {"prompt": ["Which one?"], "choices": ["x1", "y1", "z1"], "answer": ["z1"]},
    ),
    "several letters": (
        {"question": "Which ones?", "options": ["x1", "y1", "z1"], "answer": "AC"},
        {"prompt": ["Which ones?"], "choices": ["x1", "y1", "z1"], "answer": ["x1", "z1"]},
    ),
    "the text of a choice": (
        {"question": "Which one?", "options": ["x1", "y1"], "target": " y1 "},
        {"prompt": ["Which one?"], "choices": ["x1", "y1"], "answer": ["y1"]},
    ),
    "labels taken off": (
        {"question": "Which one?", "options": ["(A)x1", "(B) y1"], "label": "B"},
        {"prompt": ["Which one?"], "choices": ["x1", "y1"], "answer": ["y1"]},
    ),
    "labels that are no labels": (
        {"question": "Which one?", "options": ["(1) and (2)", "(2) and (3)"], "answer": "A"},
        {"prompt": ["Which one?"], "choices": ["(1) and (2)", "(2) and (3)"], "answer": ["(1) and (2)"]},
    ),
    "choices that are letters": (
        {"question": "Where are they?", "options": ["L", "1/C", "C", "R"], "answer": 1},
        {"prompt": ["Where are they?"], "choices": ["L", "1/C", "C", "R"], "answer": ["1/C"]},
    ),
    "objects of lists": (
        {"question": "Which one?", "choices": {"text": ["x1", "y1"], "label": ["1", "2"]}, "answerKey": "2"},
        {"prompt": ["Which one?"], "choices": ["x1", "y1"], "answer": ["y1"]},
    ),
    "lists of objects": (
        {
            "question": "Which one?",
            "choices": [{"label": "P", "text": "x1"}, {"label": "Q", "text": "y1"}],
            "answerKey": "P",
        },
        {"prompt": ["Which one?"], "choices": ["x1", "y1"], "answer": ["x1"]},
    ),
    "an object by label": (
        {"question": "Which one?", "options": {"A": "x1", "B": "y1"}, "answer_idx": "B", "answer": "y1"},
        {"prompt": ["Which one?"], "choices": ["x1", "y1"], "answer": ["y1"]},
    ),
    "marked choices": (
        {"question": "Which one?", "mc1_targets": {"choices": ["x1", "y1"], "labels": [0, 1]}},
        {"prompt": ["Which one?"], "choices": ["x1", "y1"], "answer": ["y1"]},
    ),
    "columns of choices": (
        {"goal": "Open the tin", "sol1": "with an opener", "sol2": "with a spoon", "label": 0},
        {"prompt": ["Open the tin"], "choices": ["with an opener", "with a spoon"], "answer": ["with an opener"]},
    ),
    "columns that count from 1": (
        {"sentence": "He took the _ with him.", "option1": "dog", "option2": "cat", "answer": "1"},
        {"prompt": ["He took the _ with him."], "choices": ["dog", "cat"], "answer": ["dog"]},
    ),
    "a question of one word": (
        {
            "premise": "The man turned the tap.",
            "question": "effect",
            "choice1": "It ran.",
            "choice2": "It broke.",
            "label": 0,
        },
        {"prompt": ["The man turned the tap."], "choices": ["It ran.", "It broke."], "answer": ["It ran."]},
    ),
    "wrong ones apart": (
        {"question": "Who was it?", "distractor1": "Linnaeus", "distractor2": "Shaw", "correct_answer": "Darwin"},
        {"prompt": ["Who was it?"], "choices": ["Darwin", "Linnaeus", "Shaw"], "answer": ["Darwin"]},
    ),
    "a list in a cell": (
        {"question": "Which one?", "options": "['x1', 'y1']", "answer": "B"},
        {"prompt": ["Which one?"], "choices": ["x1", "y1"], "answer": ["y1"]},
    ),
    "MathQA's list": (
        {"Problem": "How much is it?", "options": "a ) 38 , b ) 27.675 , c ) 30", "correct": "b", "Rationale": "easy"},
        {"prompt": ["How much is it?"], "choices": ["38", "27.675", "30"], "answer": ["27.675"], "solution": ["easy"]},
    ),
    "a long answer": (
        {"question": "How is it done?", "answer": LONG},
        {"prompt": ["How is it done?"], "solution": [LONG]},
    ),
    "an answer of several lines": (
        {"prompt": "def f(x):", "completion": "    y = x\n    return y"},
        {"prompt": ["def f(x):"], "solution": ["    y = x\n    return y"]},
    ),
    "a final answer": (
        {"question": "How many are left?", "answer": "9 * 2 = 18\n#### 18"},
        {"prompt": ["How many are left?"], "answer": ["18"], "solution": ["9 * 2 = 18\n#### 18"]},
    ),
    "shifts that are no calculator's marks": (
        {"text": "Shift it.", "code": "y = 1 << x - 1 >> 2\nreturn y"},
        {"prompt": ["Shift it."], "solution": ["y = 1 << x - 1 >> 2\nreturn y"]},
    ),
    "a calculator's marks": (
        {"question": "How many are left?", "answer": "9 * 2 = $<<9*2=18>>18 << 3\n#### 18"},
        {
            "prompt": ["How many are left?"],
            "answer": ["18"],
            "solution": ["9 * 2 = $<<9*2=18>>18 << 3\n#### 18", "9 * 2 = $18 << 3\n#### 18"],
        },
    ),
    "tests": (
        {
            "text": "Write a sum.",
            "code": "return a + b",
            "test_list": ["assert f(1) == 1", "assert f(2) == 2"],
            "challenge_test_list": [],
        },
        {"prompt": ["Write a sum."], "solution": ["return a + b"], "tests": ["assert f(1) == 1\nassert f(2) == 2"]},
    ),
    "further down": (
        {"question": "How is it?", "answer": "so", "other": {"solution": "see above"}, "meta": {"test": "assert 1"}},
        {"prompt": ["How is it?"], "answer": ["so"], "solution": ["see above"], "tests": ["assert 1"]},
    ),
    "a request of a harness": (
        {
            "doc": {"query": "Question: Which one?\n A. x1\n B. y1\nAnswer:", "choices": ["A", "B"], "gold": 1},
            "request": {"context": "Question: other?\nAnswer: no"},
            "label": 0,
        },
        {"prompt": ["Which one?"], "choices": ["x1", "y1"], "answer": ["y1"]},
    ),
    "a passage in a prompt": (
        {
            "query": "Title: T\nBackground: It was in 1999.\nQuestion: When was it?\nAnswer:",
            "answers_text": ["1999"],
            "choices": ["1999"],
        },
        {"prompt": ["When was it?"], "answer": ["1999"], "passage": ["It was in 1999."]},
    ),
    "examples before the question": (
        {"query": "Question: One?\nAnswer: 1\nQuestion: Two?\nAnswer:", "target": "two"},
        {"prompt": ["Two?"], "answer": ["two"]},
    ),
    "examples whose answers have lines, and the first words of an answer": (
        {"prompt": "Be brief.\n\nQ: One?\nA: It is\n\n1.\n\nQ: Two?\nIt is?\nA: Let us see.", "target": "two"},
        {"prompt": ["Q: Two?\nIt is?\nA: Let us see."], "answer": ["two"], "passage": ["Be brief."]},
    ),
    "examples with passages before a question with one": (
        {"prompt": "Passage: P1.\nQuestion: One?\nAnswer: 1\n\nPassage: P2.\nQuestion: Two?\nAnswer:", "target": "two"},
        {"prompt": ["Two?"], "answer": ["two"], "passage": ["P2."]},
    ),
    "a passage and what was asked of it before": (
        {"prompt": "A story.\n\nQ: One?\nA: 1\nQ: Two?", "target": "two"},
        {"prompt": ["Q: Two?"], "answer": ["two"], "passage": ["A story."]},
    ),
    "examples with choices": (
        {"prompt": "Question: One?\nA. x1\nB. y1\nAnswer: A\n\nQuestion: Two?\nA. x2\nB. y2\nAnswer:", "target": "B"},
        {"prompt": ["Question: Two?\nA. x2\nB. y2\nAnswer:"], "answer": ["y2"]},
    ),
    "choices with blank lines": (
        {"prompt": "Which one?\nA. x1\n\nx\nB. y1\n\ny", "target": "B"},
        {"prompt": ["Which one?\nA. x1\n\nx\nB. y1\n\ny"], "solution": ["y1\n\ny"]},
    ),
    "two questions without answers": (
        {"prompt": "Question: One?\nAnswer:\nQuestion: Two?\nAnswer:", "target": "two"},
        {"prompt": ["Question: One?\nAnswer:\nQuestion: Two?\nAnswer:"], "answer": ["two"]},
    ),
    "a chat": (
        {
            "messages": [
                {"role": "system", "content": "Be kind."},
                {"role": "user", "content": "How are you?"},
                {"role": "assistant", "content": "Well."},
                {"role": "user", "content": [{"type": "text", "text": "And now?"}]},
            ]
        },
        {"prompt": ["How are you?", "And now?"], "answer": ["Well."]},
    ),
    "ShareGPT's chat": (
        {"conversations": [{"from": "human", "value": "How are you?"}, {"from": "gpt", "value": LONG}]},
        {"prompt": ["How are you?"], "solution": [LONG]},
    ),
    "a chat as a prompt": (
        {"prompt": [{"role": "user", "content": "How are you?"}], "answer": "well"},
        {"prompt": ["How are you?"], "answer": ["well"]},
    ),
    "turns": ({"turns": ["How are you?", "And now?"]}, {"prompt": ["How are you?", "And now?"]}),
    "DROP's answers": (
        {
            "passage": "It was so.",
            "qa_pairs": [
                {
                    "question": "When was it?",
                    "answer": {"number": "", "date": {"day": "1", "month": "May", "year": "1999"}, "spans": []},
                }
            ],
        },
        {"prompt": ["When was it?"], "answer": ["1 May 1999"], "passage": ["It was so."]},
    ),
    "a lone surrogate": ({"question": "What is \ud800 this?"}, {"prompt": ["What is \ufffd this?"]}),
    "an index where choices are numbers": (
        {"question": "How much is it?", "choices": ["0", "4", "2", "6"], "answer": 2},
        {"prompt": ["How much is it?"], "choices": ["0", "4", "2", "6"], "answer": ["2"]},
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_parts_of_a_record(read, case):
    record, parts = CASES[case]
    suites = read(json.dumps(record).encode() + b"\n")
    assert parts_of(suites) == parts
    assert suites.failed() == []


INSTRUCTION = (
    "Read what is asked with care, think about it step by step, and give nothing but a number. Mind the units.\n"
)
SHOTS = (
    "Human: Who was it?\nAI: It was the third of them, of all that were there.\n\n"
    "Human: When was it, and who was there?\nAI: Then.\n\n"
)
OWN = ["What is one and one?", "How many are two?", "Which of them is it?"]
FRAMES = {
    "an instruction": (INSTRUCTION, "", OWN, OWN),
    "an instruction on the same line": (INSTRUCTION.replace("\n", " "), "", OWN, OWN),
    "one behind": ("", "\n" + INSTRUCTION, OWN, OWN),
    "around": (INSTRUCTION, "\n\nThink step by step.", OWN, OWN),
    "solved examples in any words": (SHOTS, "", [f"Human: {own}\nAI:" for own in OWN], OWN),
    "words that begin a sentence": (INSTRUCTION[:-18], "", OWN, [INSTRUCTION[:-18] + own for own in OWN]),
    "Chinese": ("请仔细阅读以下问题，并给出正确的答案。", "", OWN, OWN),
    "few words": ("Be brief.\n", "", OWN, [f"Be brief.\n{own}" for own in OWN]),
    "few beside the prompts": (INSTRUCTION, "", [own * 40 for own in OWN], [INSTRUCTION + own * 40 for own in OWN]),
    "two prompts": (INSTRUCTION, "", OWN[:2], [INSTRUCTION + own for own in OWN[:2]]),
    "one that is nothing else": (INSTRUCTION, "", [*OWN, ""], [INSTRUCTION + own for own in OWN] + [INSTRUCTION]),
}  # fmt: skip


@pytest.mark.parametrize("case", FRAMES)
def test_what_all_prompts_of_a_file_have_around_them(read, case):
    front, behind, asked, prompts = FRAMES[case]
    suites = read([{"prompt": f"{front}{own}{behind}", "answer": "so"} for own in asked])
    assert [parts_of(suites, at)["prompt"] for at in range(len(asked))] == [[prompt] for prompt in prompts]


def test_a_chosen_answer_is_marked(read):
    suites = read([{"question": "Which one?", "choices": ["x1", "y1"], "answer": 1}])
    assert suites.parts.select(["kind", "ordinal", "correct"]).to_pylist() == [
        {"kind": "prompt", "ordinal": 0, "correct": None}, {"kind": "choices", "ordinal": 0, "correct": False},
        {"kind": "choices", "ordinal": 1, "correct": True}, {"kind": "answer", "ordinal": 0, "correct": None},
    ]  # fmt: skip


def test_the_questions_of_one_passage(read):
    race = {
        "id": "middle1.txt",
        "article": "A long story.",
        "questions": ["Who is it?", "When is it?"],
        "options": [["x1", "y1"], ["z1", "w1"]],
        "answers": ["B", "A"],
    }
    suites = read([race])
    assert suites.examples["id"].to_pylist() == ["middle1.txt", "middle1.txt#2"]
    assert [parts_of(suites, n)["answer"] for n in (0, 1)] == [["y1"], ["z1"]]
    assert all(parts_of(suites, n)["passage"] == ["A long story."] for n in (0, 1))


def test_requests_for_each_choice_are_one_example(read):
    doc = {"query": "Question: Which one?\n A. x1\n B. y1\nAnswer:", "choices": ["A", "B"], "gold": 1}
    rows = [{"doc": doc | {"id": n}, "request": {"continuation": f" {letter}"}} for n in (1, 2) for letter in "AB"]
    suites = read(rows)
    assert suites.examples["id"].to_pylist() == ["1", "2"]
    assert suites.files["records"].to_pylist() == [4]


def test_the_same_rows_twice_are_two_examples(read):
    suites = read([ROWS[0], ROWS[0]])
    assert suites.examples["id"].to_pylist() == ["q1", "q1#2"]


# what the user says


BODY = [{"body": {"q": "Which river is it?", "text": "A river."}, "a.b": "Lima", "n": 3, "question": "no"}]


def test_fields_rule(read):
    suites = read(BODY, fields={"prompt": "body.q", "answer": "a.b", "passage": "body.text", "id": "n"})
    assert parts_of(suites) == {"prompt": ["Which river is it?"], "answer": ["Lima"], "passage": ["A river."]}
    assert suites.examples["id"].to_pylist() == ["3"]
    assert json.loads(suites.files["mapping"][0].as_py()) == {
        "prompt": "body.q", "answer": "a.b", "passage": "body.text", "id": "n",
    }  # fmt: skip


def test_several_fields_for_a_part(read):
    row = {"one": "It rains today.", "two": "Is it wet?", "x": "yes", "y": "no", "key": "B"}
    suites = read([row], fields={"prompt": "one, two", "choices": "x, y", "answer": "key"})
    assert parts_of(suites) == {"prompt": ["It rains today.\nIs it wet?"], "choices": ["yes", "no"], "answer": ["no"]}


def test_fields_of_one_suite(read):
    files = {"a.jsonl": ROWS, "b.jsonl": BODY}
    suites = read(files, fields={"b:prompt": "body.q"})
    assert parts_of(suites, 3)["prompt"] == ["Which river is it?"]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"prompt": "questoin"}, (r"eval.jsonl: fields: prompt: no record has a field 'questoin', 'question' is near; "
                                  r"the fields that exist: id, question, answer, context")),
        ({"prompt": "context.text"}, r"no record has a field 'context.text'"),
        ({"promt": "question"}, r"'promt' is no part of an example, 'prompt' is near; expected one of prompt, choices"),
        ({"c:prompt": "question"}, r"there is no suite 'c'; the suites are eval"),
    ],
)  # fmt: skip
def test_a_wrong_field_is_named_with_those_that_exist(read, fields, message):
    with pytest.raises(ManifestError, match=message):
        read(ROWS, fields=fields)


def test_a_field_that_only_a_late_record_has(read):
    rows = [{"question": f"What is number {n}?"} for n in range(6000)] + [{"question": "What?", "gold_text": "late"}]
    assert parts_of(read(rows, fields={"answer": "gold_text"}), 6000)["answer"] == ["late"]


def test_variants_belong_to_their_example(read, tmp_path):
    (tmp_path / "more").mkdir()
    rewrites = [
        {"id": "q1", "variant": "What is the river of Lima?"},
        {"id": "q1", "translation": "Welcher Fluss?"},
        {"id": "q9", "text": "unknown"},
        {"id": "q2", "question": "Which one, then?", "answer": "that one"},
    ]
    (tmp_path / "more" / "v.jsonl").write_bytes(lines(rewrites))
    suites = read(ROWS, variants=[str(tmp_path / "more" / "v.jsonl")])
    assert parts_of(suites, 0)["variant"] == ["What is the river of Lima?", "Welcher Fluss?"]
    assert parts_of(suites, 1)["variant"] == ["Which one, then?", "that one"]
    assert suites.parts["part"].to_pylist() == list(range(len(suites.parts)))
    assert suites.failed() == [
        (str(tmp_path / "more" / "v.jsonl"), "1 of 4 records belong to no example: 'q9' is no id of an example")
    ]


def test_variants_of_an_id_in_two_suites_name_the_suite(read, tmp_path):
    (tmp_path / "v.json").write_bytes(
        lines([{"id": "q1", "suite": "b", "text": "right"}, {"id": "q1", "text": "which?"}])
    )
    suites = read({"a.jsonl": ROWS, "b.jsonl": ROWS}, variants=[str(tmp_path / "v.json")])
    assert parts_of(suites, 3)["variant"] == ["right"]
    assert "'q1' is in a, b: name the suite" in suites.failed()[0][1]


# names, numbers, what cannot be tested


def test_tables_have_their_columns_in_their_order(read):
    suites = read(ROWS)
    assert (suites.examples.schema, suites.parts.schema, suites.files.schema) == (EXAMPLES, PARTS, FILES)
    assert suites.examples["example"].to_pylist() == [0, 1, 2]
    assert suites.examples["row"].to_pylist() == [1, 2, 3]
    assert suites.bounds.tolist() == [0, 3, 6, 9]


def test_two_files_of_one_name_in_two_folders(read):
    suites = read({"a/test.jsonl": ROWS, "b/test.jsonl.gz": gzip.compress(lines(ROWS)), "b/c/dev.jsonl": ROWS})
    assert suites.names == ["a/test", "b/test", "dev"]


def test_two_forms_of_one_stem(read):
    suites = read({"a/test.jsonl": ROWS, "a/test.csv": cells(ROWS, ",")})
    assert [name.rpartition("/")[2] for name in suites.names] == ["test.csv", "test.jsonl"]


def test_order_of_the_paths_and_repeats_change_nothing(read, tmp_path):
    one = read({"a/test.jsonl": ROWS, "b/test.jsonl": BODY, "x.jsonl": ROWS})
    paths = [str(tmp_path / name) for name in ("x.jsonl", "b/test.jsonl", "a/test.jsonl", "a/../x.jsonl")]
    other = load(paths)
    assert one.parts.equals(other.parts)
    assert one.examples.drop_columns("file").equals(other.examples.drop_columns("file"))


def test_one_example(read):
    suites = read([{"question": "Is one example enough?"}])
    assert len(suites.examples) == len(suites.parts) == 1
    assert suites.examples["id"].to_pylist() == ["row-1"]


PROBLEMS = [
    ({"question": "", "answer": "yes"}, "no prompt, nothing but an answer"),
    ({"answer": "yes"}, "no prompt, nothing but an answer"),
    ({"question": "??? ---", "answer": "yes"}, "no words in any part"),
    ({"question": "  ", "answer": True}, "no text in any part"),
    (17, "not an object"),
]


@pytest.mark.parametrize(("row", "problem"), PROBLEMS)
def test_what_cannot_be_tested_has_a_reason_and_no_parts(read, row, problem):
    suites = read([*ROWS, row])
    assert suites.examples["problem"].to_pylist() == [None, None, None, problem]
    assert len(suites.parts_of(3)) == 0
    assert bool(suites.failed()) == isinstance(row, int)  # no record at all, not one without a text


def test_a_part_without_words_beside_one_with_words_stays(read):
    suites = read([{"question": "What does it mean?", "answer": "!?"}])
    assert parts_of(suites) == {"prompt": ["What does it mean?"], "answer": ["!?"]}


def test_lines_that_cannot_be_read_are_examples_with_a_problem(read):
    suites = read(lines(ROWS) + b'{"question": "cut\n\xff\xfe\n')
    assert suites.examples["problem"].to_pylist() == [None] * 3 + ["not JSON: string without end", "not UTF-8"]


def test_case_b35_empty_and_missing_questions(shared):
    suites = load([str(shared / "cases" / "B35" / "eval.jsonl")])
    untested = [row["id"] for row in suites.examples.to_pylist() if row["problem"]]
    assert untested == json.loads((shared / "cases" / "B35" / "EXPECT.json").read_text())["expect"]["invalid"]
    assert len(suites.examples) == 6


# what fails

WHOLE = lines([{"id": n, "question": f"What is the number of this line, {n}?"} for n in range(2000)])
GOOD = {"good.jsonl": ROWS}


def cut(data: bytes) -> bytes:
    return data[: len(data) * 2 // 3]


TAR = tar({"a.jsonl": WHOLE, "b.jsonl": WHOLE})
FAILS = {
    "cut.jsonl.gz": (cut(gzip.compress(WHOLE)), "truncated", True),
    "cut.jsonl.zst": (cut(zstandard.compress(WHOLE)), "truncated", False),
    "cut.jsonl.xz": (cut(lzma.compress(WHOLE)), "truncated", True),
    "crc.jsonl.gz": (gzip.compress(WHOLE)[:-6] + b"\0" * 6, "wrong checksum", True),
    "cut.tar.gz": (cut(gzip.compress(TAR)), "truncated", True),
    "cut.tar": (cut(TAR), "truncated", True),
    "no-end.tar": (TAR[: -(-len(TAR.rstrip(b"\0")) // 512) * 512], "truncated: the archive has no end mark", True),
    "named.jsonl.gz": (WHOLE, "the name says gzip, but the file begins otherwise", False),
    "noise.tar": (b"nothing like an archive" * 100, "not a tar archive", False),
    "empty.jsonl": (b"", "empty", False),
    "empty.tar": (tar({}), "an archive without members", False),
    "nested.tar": (tar({"in.tar.gz": gzip.compress(TAR)}), "an archive in an archive", False),
    "cut.parquet": (cut(parquet(ROWS)), "not Parquet, or damaged", False),
    "cut.arrow": (cut(arrow(ROWS, pa.ipc.new_file)), "not Arrow, or damaged", False),
    "cut.json": (cut(json.dumps(ROWS).encode()), "not JSON", False),
    "wide.jsonl": (
        "\ufeff".encode("utf-16-le") + WHOLE.decode().encode("utf-16-le"),
        "is UTF-16LE, expected UTF-8",
        False,
    ),
    "prose.txt": (b"One paragraph.\n\nAnother one.\n", "text without the blocks", False),
    "INDEX.json": (
        json.dumps([{"name": "gsm8k", "n": 3, "splits": {"test": 3}}]).encode(),
        "no field for a prompt",
        False,
    ),
    "pickle.pkl": (b"\x80\x04K\x01.", "text without the blocks", False),
}


@pytest.mark.parametrize("name", FAILS)
def test_a_file_that_fails_is_named_with_its_reason(read, name):
    data, reason, some = FAILS[name]
    suites = read({**GOOD, name: data})
    (path, failed), = suites.failed()  # fmt: skip
    assert Path(path).name == name or f"/{name}/" in path
    assert reason in failed
    assert (len(suites.examples) > 3) == some
    assert not any(suites.examples["problem"].to_pylist())


def test_where_nothing_loads_the_message_says_why_of_each(read):
    with pytest.raises(ManifestError, match=r"no field for a prompt was found; the fields that exist: n, splits"):
        read([{"n": 3, "splits": 4}])
    with pytest.raises(ManifestError, match="no such file"):
        load(["/nowhere/at/all.jsonl"])


def test_a_missing_file_beside_a_good_one(read, tmp_path):
    read(ROWS)
    suites = load([str(tmp_path / "eval.jsonl"), str(tmp_path / "gone.jsonl")])
    assert suites.failed() == [(str(tmp_path / "gone.jsonl"), "no such file")]


@pytest.mark.parametrize("name", ["big.jsonl", "big.jsonl.gz", "big.jsonl.zst", "big.tar", "big.tar.gz", "in.tar"])
def test_what_expands_to_too_much_fails(read, name):
    data = tar({"a.jsonl": WHOLE}) if ".tar" in name else WHOLE
    if name == "in.tar":
        data = tar({"a.jsonl.gz": gzip.compress(WHOLE * 20)})
    data = CODECS[os.path.splitext(name)[1]](data) if name.endswith(("gz", "zst")) else data
    suites = read({**GOOD, name: data}, expanded=50_000)
    assert "more than 50,000 bytes when expanded" in suites.failed()[0][1]
    assert len(suites.examples) == 3


def test_a_column_that_expands_to_too_much_fails(read):
    bomb = parquet([{"question": "What? " * 10_000}] * 2000)
    assert len(bomb) < 1_000_000
    suites = read({**GOOD, "bomb.parquet": bomb}, expanded=20_000_000)
    assert "too large when expanded" in suites.failed()[0][1]


def test_damage_inside_a_table_is_a_failure_and_no_crash(read):
    data = arrow(ROWS, pa.ipc.new_stream)
    offsets = struct.pack("<4i", 0, 2, 4, 6)  # of the column id, the first with these
    wrong = data.replace(offsets, struct.pack("<4i", 0, 2, 2**31 - 1, 6), 1)
    suites = read({**GOOD, "wrong.arrow": wrong})
    assert wrong != data
    assert suites.failed()[0][1].startswith("damaged: ")
    assert len(suites.examples) == 3


def test_a_text_in_a_table_that_is_not_utf8(read):
    data = arrow(ROWS, pa.ipc.new_stream).replace(b"Which river", b"Which \xffiver")
    suites = read(data, "eval.arrow")
    assert suites.examples["problem"].to_pylist() == ["not UTF-8", None, None]


def test_names_in_an_archive_are_never_paths(read, tmp_path):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for name in ("../../outside.jsonl", "/tmp/absolute.jsonl", "a/../../b.jsonl"):
            info = tarfile.TarInfo(name)
            info.size = len(lines(ROWS))
            archive.addfile(info, io.BytesIO(lines(ROWS)))
        for kind, target in ((tarfile.SYMTYPE, "/etc/passwd"), (tarfile.LNKTYPE, "../x"), (tarfile.FIFOTYPE, "")):
            info = tarfile.TarInfo(f"link{kind.decode()}.jsonl")
            info.type, info.linkname = kind, target
            archive.addfile(info)
    before = sorted(os.listdir(tmp_path))
    suites = read(out.getvalue(), "hostile.tar")
    assert len(suites.examples) == 9
    assert suites.failed() == []
    assert sorted(os.listdir(tmp_path)) == sorted([*before, "hostile.tar"])


def test_a_sparse_member_that_claims_to_be_huge_is_not_made(read):
    header = tarfile.TarInfo("huge.jsonl")
    header.size = 512
    header.pax_headers = {"GNU.sparse.major": "1", "GNU.sparse.minor": "0", "GNU.sparse.name": "huge.jsonl",
                          "GNU.sparse.realsize": str(1 << 50)}  # fmt: skip
    data = header.tobuf(tarfile.PAX_FORMAT) + b"0\n".ljust(512, b"\0") + b"\0" * 10240
    suites = read({**GOOD, "sparse.tar": data})
    assert "more than 1,000,000,000 bytes when expanded" in suites.failed()[0][1]


# texts that hold several parts


@pytest.mark.parametrize(
    ("text", "choices"),
    [
        ("Which?\nA. x1\nB. y1", ["x1", "y1"]),
        ("Which?\n (A) x1\n (B) y1\n (C) z1", ["x1", "y1", "z1"]),
        ("Which?\nA. x1\nand more\nB. y1", ["x1\nand more", "y1"]),
        ("A. x1\nB. y1\nand again\nA. x2\nB. y2", []),
        ("A man went home\nB. went too", []),
        ("Which?\nA. x1", []),
    ],
)
def test_labelled_lines(text, choices):
    assert templates.labelled(text)[1] == choices


@pytest.mark.parametrize(
    ("text", "place"), [("B", 1), ("(b)", 1), ("B.", 1), (" c ", 2), ("AB", None), ("x", None), ("é", None), ("", None)]
)
def test_bare_letters(text, place):
    assert templates.letter(text) == place
