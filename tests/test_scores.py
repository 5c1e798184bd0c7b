"""Scores on what was in the data and what was not."""

import json

import pytest
import worked

from datapipe.auditing.scores import Example, check, epg, evidence, judge, read, z_score
from datapipe.contamination.model import CLASSES
from datapipe.errors import DataError, ManifestError


def write(tmp_path, content: str, name: str = "scores.jsonl"):
    path = tmp_path / name
    path.write_text(content, "utf-8")
    return path


def lines(*rows: dict) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def given(tmp_path, scores: list[float], suite: str | None = None):
    more = {} if suite is None else {"suite": suite}
    return read(write(tmp_path, lines(*({"id": f"e{i}", "score": score} | more for i, score in enumerate(scores)))))


def test_worked_example_20(tmp_path):
    (right, of), (dirty_right, dirty) = worked.ALL, worked.DIRTY
    scores = [1.0] * dirty_right + [0.0] * (dirty - dirty_right)
    scores += [1.0] * (right - dirty_right) + [0.0] * (of - dirty - right + dirty_right)
    examples = [
        Example("s", f"e{i}", "prompt" if i < dirty else "clean", float(i < dirty), float(i < dirty)) for i in range(of)
    ]
    found = judge(given(tmp_path, scores), examples).sets[0]
    by_name = {row.name: row for row in found.rows}
    assert found.all.score == pytest.approx(0.7)
    assert by_name["clean"].score == pytest.approx(0.6)
    assert found.epg == pytest.approx(worked.EPG)
    assert found.z["clean"] == pytest.approx(worked.Z_CLEAN, abs=0.005)
    assert found.z["dirty"] == pytest.approx(worked.Z_DIRTY, abs=0.005)
    assert found.evidence is True
    assert dict(found.epg_curve)[0.5] == pytest.approx(worked.EPG)
    assert len(found.clean_ids) == 60


def test_the_score_to_publish_leaves_out_what_tells_the_answer(tmp_path):
    classes = ["adjacent", "solution", "near", "variant", "prompt", "short", "passage", "untested", "clean"]
    assert set(classes) == set(CLASSES)
    examples = [Example("s", f"e{i}", cls) for i, cls in enumerate(classes)]
    found = judge(given(tmp_path, [1, 1, 1, 1, 0, 0, 0, 0, 1]), examples).sets[0]
    assert (found.quote.examples, found.quote.score) == (5, 0.2)
    assert [row.name for row in found.rows] == list(CLASSES)
    assert found.z == {"clean": None, "not clean": None, "not dirty": None, "dirty": None}
    assert found.evidence is None


@pytest.mark.parametrize("cls, epg_, quote", [("adjacent", None, None), ("clean", 0.0, 1.0), ("prompt", None, 1.0)])
def test_one_side_only(tmp_path, cls, epg_, quote):
    found = judge(given(tmp_path, [1.0]), [Example("s", "e0", cls, 1.0, 1.0)]).sets[0]
    assert (found.epg, found.quote.score) == (epg_, quote)
    assert set(found.z.values()) == {None}


def test_z_is_never_divided_by_zero():
    assert z_score([], [0, 1]) is None
    assert z_score([0, 1], [0, 1]) is None
    assert z_score([1], [1, 1, 1]) is None
    assert z_score([0], [0, 0]) is None
    assert z_score([], []) is None
    assert epg([], []) is None
    assert evidence([3, -3, 2.5, -2.5]) is True
    assert evidence([3, -3, 2.5, -1.5]) is False
    assert evidence([3, None]) is None


def test_ids_that_name_nothing_or_two(tmp_path):
    path = write(tmp_path, lines(
        {"id": "a", "score": 1}, {"id": "b", "score": 1}, {"id": "zzz", "score": 1},
        {"id": "b", "score": 0, "suite": "t"}, {"id": "c", "score": 0, "suite": "nowhere"},
    ))  # fmt: skip
    examples = [
        Example("s", "a", "clean"),
        Example("s", "b", "clean"),
        Example("t", "b", "clean"),
        Example("t", "c", "clean"),
    ]
    found = judge(read(path), examples)
    assert (found.scored, found.unknown, found.ambiguous, found.missing) == (2, 2, 1, 2)
    assert [(own.suite, own.all.score) for own in found.sets] == [("s", 1.0), ("t", 0.0)]


def test_several_attempts_are_averaged(tmp_path):
    found = read(write(tmp_path, lines({"id": 7, "score": True}, {"id": "7", "score": 0}, {"id": 7.0, "score": 0.5})))
    assert found.scores == {(None, "7"): [1, 0, 0.5]}
    assert judge(found, [Example("s", "7", "clean")]).sets[0].all.score == 0.5


def test_an_example_that_is_named_several_ways_has_the_mean_of_all(tmp_path):
    found = read(write(tmp_path, lines(
        {"id": "q", "score": 1}, {"id": "q", "score": 0, "suite": "s"}, {"id": "s/q", "score": 0.8}
    )))  # fmt: skip
    made = judge(found, [Example("s", "q", "clean")])
    assert (made.scored, made.sets[0].all.score) == (1, pytest.approx(0.6))


NAMED = {  # ids of a file of scores, of examples q, q#2 and q#5 of one suite -> who has the first score, or none
    "the bare id": (["q"], None),
    "the bare id with its suite": (["s/q"], None),
    "the bare id, and the rows of other ids": (["q", "r#2"], None),
    "the first by its row": (["q#1", "q#2"], "q"),
    "another by its row": (["q#5"], "q#5"),
    "as the audit names them": (["q", "q#2", "q#5"], "q"),
    "with their suite": (["s/q#1"], "q"),
    "an id that one example has": (["r"], "r"),
}


@pytest.mark.parametrize("ids, first", NAMED.values(), ids=NAMED)
def test_an_id_that_several_examples_of_a_suite_share(tmp_path, ids, first):
    there = [("s", "q", 1), ("s", "q#2", 2), ("s", "r", 3), ("s", "q#4", 9), ("s", "q#5", 5)]
    file = read(write(tmp_path, lines(*({"id": own, "score": int(not at)} for at, own in enumerate(ids)))))
    if first is None:
        with pytest.raises(ManifestError, match=r"'q' is the id of 3 examples of 's'; .*: q#1, q#2, q#5"):
            check(file, there)
        return
    examples = [Example(suite, own, cls) for (suite, own, _), cls in zip(there, CLASSES, strict=False)]
    classes = {own.id: own.cls for own in examples}
    rows = {one.name: one.score for one in judge(check(file, there), examples).sets[0].rows}
    assert rows[classes[first]] == 1


@pytest.mark.parametrize(
    "name, content",
    [
        ("s.csv", 'task,doc_id,acc\ngsm8k,"a,1",1\ngsm8k,b,0.25\n'),
        ("s.tsv", "task\tdoc_id\tacc\ngsm8k\ta,1\t1\ngsm8k\tb\t0.25\n"),
        (
            "s.jsonl",
            '\n{"task": "gsm8k", "doc_id": "a,1", "acc": true}\n{"task": "gsm8k", "doc_id": "b", "acc": ".25"}',
        ),
    ],
)
def test_formats(tmp_path, name, content):
    assert read(write(tmp_path, content, name)).scores == {("gsm8k", "a,1"): [1.0], ("gsm8k", "b"): [0.25]}


@pytest.mark.parametrize(
    "content, error, message",
    [
        ('{"name": "a", "score": 1}', ManifestError, r"no field for an id \(id, .*it has: name, score"),
        ('{"id": "a", "points": 1}', ManifestError, r"no field for a score .*it has: id, points"),
        ('{"id": "a", "score": 73.5}', DataError, r"s.jsonl:1: a score is 73.5, expected 0 to 1"),
        ('{"id": "a", "score": 1}\n{"id": "b"}', ManifestError, r"s.jsonl:2: no field for a score"),
        ('{"id": "a", "score": null}', DataError, r"s.jsonl:1: a score is None"),
        ('{"id": "a", "score": NaN}', DataError, r"s.jsonl:1: a score is nan"),
        ('{"id": "a", "score": 1' + "0" * 400 + "}", DataError, r"s.jsonl:1: a score is 1"),
        ('{"id": null, "score": 1}', DataError, r"s.jsonl:1: an id is None"),
        ("id,score", DataError, r"s.jsonl:1: no JSON"),
        ("[1]", DataError, r"s.jsonl:1: expected an object"),
        ("", DataError, r"no scores in it"),
    ],
)
def test_what_is_no_score(tmp_path, content, error, message):
    with pytest.raises(error, match=message):
        read(write(tmp_path, content, "s.jsonl"))


def test_no_such_file(tmp_path):
    with pytest.raises(DataError, match="No such file"):
        read(tmp_path / "none.jsonl")
