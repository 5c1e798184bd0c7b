"""Decontaminate: which documents leave for which examples, what the books say, and that an audit then finds nothing."""

import gzip
import json
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import builders
import golden
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import datapipe
from datapipe import api, pipeline, stages
from datapipe import manifest as manifests
from datapipe.contamination import classes, holding, scan
from datapipe.contamination.index import Index
from datapipe.contamination.model import Suites
from datapipe.contamination.suites import load
from datapipe.documents import Documents, Work
from datapipe.errors import DataError, ManifestError
from datapipe.manifest import Decontaminate
from datapipe.stages import eval_suites

WORDS = [
    a + b for a in ("ba", "co", "du", "fe", "gi", "lo", "mu", "ne") for b in ("n", "rt", "sh", "ll", "mp", "st", "x")
]
NAMED = ("adjacent", "solution", "prompt", "near", "variant", "short", "passage")


def prose(seed: int, n: int) -> str:
    chance = random.Random(seed)
    return " ".join(chance.choice(WORDS) for _ in range(n))


PROMPT, ANSWER, SOLUTION, PASSAGE = prose(1, 20), prose(2, 3), prose(3, 24), prose(4, 40)
OTHER = prose(5, 20)
ITEMS = [
    {"id": "a", "question": PROMPT, "answer": ANSWER, "solution": SOLUTION},
    {"id": "b", "question": OTHER, "answer": prose(6, 3), "context": PASSAGE},
    {"id": "c", "question": "Which bell rang", "answer": "the blue one"},
]
DOCS = {
    "whole": f"{prose(10, 30)} {PROMPT} {ANSWER}. {prose(11, 30)}",
    "prompt": f"{prose(12, 30)} {PROMPT} {prose(13, 30)}",
    "solution": f"{prose(14, 30)} {SOLUTION} {prose(15, 30)}",
    "both": f"{PROMPT} {ANSWER} {prose(16, 120)} {OTHER}",
    "passage": f"{prose(17, 30)} {PASSAGE}",
    "short": f"{prose(18, 30)} Which bell rang {prose(19, 30)}",
    "none": prose(20, 90),
}
LEAVE = {
    "whole": [("holds suite (adjacent)", "a", True)],
    "prompt": [("holds suite (prompt)", "a", True)],
    "solution": [("holds suite (solution)", "a", True)],
    "both": [("holds suite (adjacent)", "a", True), ("holds suite (prompt)", "b", False)],
}


@pytest.fixture
def work(tmp_path):
    with Work(tmp_path / "builds", "made", workers=2, memory=200_000_000) as made:
        yield made


@pytest.fixture
def items(tmp_path: Path) -> Path:
    path = tmp_path / "evals" / "suite.jsonl"
    path.parent.mkdir()
    path.write_text("".join(json.dumps(item) + "\n" for item in ITEMS))
    return path


def asked(folder: Path, **keys: Any) -> manifests.Manifest:
    entry = {"stage": "decontaminate", "suites": ["evals/*.jsonl"]} | keys
    text = json.dumps({"name": "a", "sources": {"w": {"files": ["x"]}}, "stages": [entry]})
    return manifests.parse(text, folder / "manifest.yaml")


def applied(
    work: Work, folder: Path, records: list[dict], *, parts: int = 1, row_group: int = 2, **keys: object
) -> Documents:
    """The documents after the stage."""
    manifest = asked(folder, **keys)
    docs = builders.documents(work, records, parts=parts, row_group=row_group)
    docs.evals = eval_suites.check(manifest)
    (stage,) = manifest.stages
    docs.apply(stage.stage, 1, stages.judge(stage, docs))
    return docs


def records(**splits: str) -> list[dict]:
    return [{"id": name, "text": text, "split": splits.get(name, "train")} for name, text in DOCS.items()]


def ledger(docs: Documents) -> dict[str, list[tuple[str, str, bool]]]:
    """own id -> [(rule, example, decides)], deciding first."""
    names = builders.ids(docs)
    query = (
        "select replace(d.doc_id::varchar, '-', ''), l.rule, l.evidence, l.decides from ledger l join documents d "
        "using (doc) order by l.doc, l.decides desc, l.rule"
    )
    found: dict[str, list[tuple[str, str, bool]]] = {}
    for doc, rule, evidence, decides in docs.work.db.execute(query).fetchall():
        found.setdefault(names[doc], []).append((rule, json.loads(evidence)["example"], decides))
    return found


# --- who leaves -----------------------------------------------------------------------------------------------------


def test_a_document_leaves_for_each_example_it_holds(work, tmp_path, items):
    docs = applied(work, tmp_path, records())
    assert ledger(docs) == LEAVE
    assert builders.alive(docs) == ["none", "passage", "short"]
    notes = docs.reports[-1].notes
    assert notes["removed"] == {"suite": {"adjacent": 2, "solution": 1, "prompt": 1}}
    assert notes["stays"] == {"suite": {"short": 1, "passage": 1}}
    assert notes["validation"] == {}
    assert notes["most"] == [
        {"suite": "suite", "example": "a", "documents": 4},
        {"suite": "suite", "example": "b", "documents": 1},
    ]
    (suite,) = notes["suites"]
    assert (suite["suite"], suite["examples"], suite["untested"]) == ("suite", 3, {})


def test_the_evidence_names_the_bytes_of_the_stored_text(work, tmp_path, items):
    rows = records()
    rows[0]["text"] = "\u00fcber \U0001f600 " + rows[0]["text"]  # bytes, not characters
    docs = applied(work, tmp_path, rows)
    names, texts = builders.ids(docs), {row["id"]: row["text"].encode() for row in rows}
    query = "select replace(d.doc_id::varchar, '-', ''), evidence, value from ledger join documents d using (doc)"
    wanted = {"a": PROMPT, "b": OTHER}
    for doc, written, value in docs.work.db.execute(query).fetchall():
        evidence = json.loads(written)
        assert written == json.dumps(evidence, sort_keys=True, separators=(",", ":"))
        span = texts[names[doc]][evidence["start"] : evidence["end"]].decode()
        assert span == (SOLUTION if evidence["class"] == "solution" else wanted[evidence["example"]])
        assert (evidence["metric"], value) == ("longest_ratio", 1.0)


def test_validation_is_counted_and_stays(work, tmp_path, items):
    docs = applied(work, tmp_path, records(whole="validation", both="validation"))
    assert ledger(docs) == {name: rows for name, rows in LEAVE.items() if name in ("prompt", "solution")}
    assert docs.reports[-1].notes["validation"] == {"suite": {"adjacent": 2, "prompt": 1}}
    assert {"whole", "both"} <= set(builders.alive(docs))


@pytest.mark.parametrize("named", [*NAMED, NAMED])
def test_only_the_classes_that_are_named_make_a_document_leave(work, tmp_path, items, named):
    named = [named] if isinstance(named, str) else list(named)
    gone = {"adjacent": {"whole", "both"}, "solution": {"solution"}, "prompt": {"prompt", "both"}, "near": set(),
            "variant": set(), "short": {"short"}, "passage": {"passage"}}  # fmt: skip
    docs = applied(work, tmp_path, records(), classes=named)
    assert set(DOCS) - set(builders.alive(docs)) == set().union(*(gone[name] for name in named))


def test_nothing_in_and_nothing_found(work, tmp_path, items):
    docs = applied(work, tmp_path, [])
    assert docs.reports[-1].dropped == {}
    assert docs.reports[-1].notes["removed"] == {}
    assert [suite["untested"] for suite in docs.reports[-1].notes["suites"]] == [{"short": 1}]


def test_a_short_prompt_is_found_in_every_document(work, tmp_path, items):
    """The scan of an audit names a short part in the first 16 documents only."""
    rows = [{"id": str(n), "text": f"{prose(n, 20)} Which bell rang {prose(n + 99, 20)}"} for n in range(40)]
    docs = applied(work, tmp_path, rows, row_group=1000, classes=["short"])
    assert builders.alive(docs) == []


def test_what_is_found_depends_on_no_worker_part_or_batch(tmp_path, items, monkeypatch):
    seen = set()
    for workers, parts, match in ((1, 1, 4_000), (2, 3, 4_000), (2, 7, 1 << 60)):
        monkeypatch.setattr("datapipe.stages.decontaminate.PER_MATCH", match)
        with Work(tmp_path / f"builds-{parts}", "made", workers=workers, memory=200_000_000) as made:
            docs = applied(made, tmp_path, records(both="validation"), parts=parts)
            rows = made.db.execute("select d.doc_id, l.* exclude (doc) from ledger l join documents d using (doc) "
                                   "order by all").fetchall()  # fmt: skip
            seen.add(repr((rows, docs.reports[-1])))
    assert len(seen) == 1


def test_a_part_is_scanned_once_whatever_else_changes(work, tmp_path, items):
    docs = applied(work, tmp_path, records(), parts=2)
    assert work.store.ran["contamination"] == 2
    for keys in ({"classes": ["short"]}, {"suites": [str(items)]}):
        work.db.execute("delete from documents; delete from ledger")
        docs = applied(work, tmp_path, records(), parts=2, **dict[str, Any](keys))
        assert (work.store.ran["contamination"], docs.work is work) == (2, True)
    work.db.execute("delete from documents; delete from ledger")
    applied(work, tmp_path, records(), parts=2, n=10)
    assert work.store.ran["contamination"] == 4


# --- before any work ------------------------------------------------------------------------------------------------


def test_suites_that_cannot_be_looked_for(tmp_path, items):
    cases = {
        "nothing matches": ({"suites": ["none/*.jsonl"]}, None, ManifestError, "'none/*.jsonl' matches no file"),
        "no field of that name": ({"fields": {"prompt": "qustion"}}, None, ManifestError, "question"),
        "a suite beside a good one does not load": ({}, b"\x00\x01", DataError, "bad.jsonl"),
        "one that is cut": ({"suites": ["evals"]}, gzip.compress(items.read_bytes())[:-20], DataError, "bad.jsonl"),
        "the only one does not load": ({"suites": ["evals/bad.jsonl"]}, b"\x00", ManifestError, "bad.jsonl"),
    }
    for name, (keys, written, kind, words) in cases.items():
        bad = tmp_path / "evals" / "bad.jsonl"
        bad.unlink(missing_ok=True)
        if written is not None:
            bad.write_bytes(written)
        with pytest.raises(kind) as caught:
            eval_suites.check(asked(tmp_path, **keys))
        assert words in str(caught.value), name
        assert "stages[0].suites" in str(caught.value), name


def test_examples_that_cannot_be_looked_for_are_said(tmp_path, items):
    whole = items.read_bytes()
    items.write_bytes(whole + b'{"id": "d", "question": "?!"}\n')
    found = eval_suites.check(asked(tmp_path))
    assert eval_suites.warnings(found) == (
        "eval suite suite: 1 of 4 examples cannot be looked for: no words in any part",
    )
    items.write_bytes(whole + b'{"id": "d"\n')  # nobody knows what it is: another reader may
    with pytest.raises(DataError, match="1 of 4 records cannot be read: not JSON"):
        eval_suites.check(asked(tmp_path))


def test_recipe_names_what_is_looked_for_and_no_path(tmp_path, items):
    def named(folder: Path, **keys: object) -> tuple[dict[str, str], dict]:
        manifest = asked(folder, **keys)
        return eval_suites.digests(manifest, eval_suites.check(manifest)), manifest.recipe()

    first = named(tmp_path)
    assert list(first[0]) == ["stages[0].suites suite"]
    assert named(tmp_path, suites=[str(items)]) == first
    elsewhere = tmp_path / "elsewhere" / "evals" / "suite.jsonl"
    elsewhere.parent.mkdir(parents=True)
    elsewhere.write_bytes(items.read_bytes())
    assert named(elsewhere.parents[1]) == first
    elsewhere.write_bytes(items.read_bytes() + b"\n")
    assert named(elsewhere.parents[1]) != first
    assert named(tmp_path, n=9)[1] != first[1]
    assert named(tmp_path, classes=["short"])[1] != first[1]


def test_suites_of_one_name_are_told_apart_without_the_path_of_the_machine(tmp_path, items):
    for name in ("a/test.jsonl", "b/test.jsonl", "b/test.json"):
        path = tmp_path / "evals" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps(ITEMS[0]) + "\n")
    manifest = asked(tmp_path, suites=["evals"])
    (looked,) = eval_suites.check(manifest).values()
    assert all("/tmp" not in name and str(tmp_path)[1:] not in name for name in looked.suites.names)
    assert len(set(looked.suites.names)) == 4


# --- and then an audit finds nothing --------------------------------------------------------------------------------


def built(folder: Path, suites: Path, rows: list[dict], **keys: object) -> pipeline.Built:
    source = folder / "in" / "w.jsonl"
    source.parent.mkdir(parents=True, exist_ok=True)
    source.write_text("".join(json.dumps(row) + "\n" for row in rows))
    entry = {
        "name": "clean", "sources": {"w": {"files": ["in/*.jsonl"]}}, "limits": {"removed_per_source": 1.0},
        "stages": [{"stage": "decontaminate", "suites": [str(suites)], **keys}],
    }  # fmt: skip
    return datapipe.build(manifests.parse(json.dumps(entry), folder / "manifest.yaml"), workers=2)


def test_an_audit_of_the_build_finds_nothing(tmp_path, items):
    made = built(tmp_path, items, records())
    (section,) = made.manifest.decontaminate
    assert section.removed == {"suite": {"adjacent": 2, "solution": 1, "prompt": 1}}
    assert section.classes == ("adjacent", "solution", "prompt", "near", "variant")
    report = api.audit([str(items)], train=[str(made.path)])
    assert [one.total.flagged for one in report.sections] == [0] * len(report.sections)
    assert datapipe.verify(made.path).ok


def test_the_demo_is_clean_afterwards(tmp_path):
    suites = golden.CHECKOUT / "fixtures" / "evals" / "planted.jsonl"
    text = (golden.CHECKOUT / "manifests" / "demo.yaml").read_text()
    stage = f"  - {{stage: decontaminate, suites: [{suites}]}}\n\nmixture:"
    text = text.replace("\nmixture:", stage, 1).replace("../fixtures", str(golden.CHECKOUT / "fixtures"))
    manifest = manifests.parse(text.replace("output: ../builds", "output: builds"), tmp_path / "demo.yaml")
    made = datapipe.build(manifest, workers=2)
    (section,) = made.manifest.decontaminate
    assert section.removed["planted"]["adjacent"] == 8
    assert sum(section.removed["planted"].values()) >= 10
    report = api.audit([str(suites)], train=[str(made.path)])
    assert {one.role: one.total.flagged for one in report.sections}["train"] == 0
    train, validation = report.scope
    (receipt,) = train.receipts
    assert (train.role, validation.role, validation.receipts) == ("train", "validation", ())
    assert (receipt.by, receipt.documents) == ("stage 7:decontaminate", sum(section.removed["planted"].values()))
    by_reason = {one.reason: 0 for one in receipt.removed}
    for one in receipt.removed:
        by_reason[one.reason] += one.documents
    assert by_reason == {f"holds planted ({cls})": n for cls, n in section.removed["planted"].items()}
    assert {one.source for one in receipt.removed} <= set(made.manifest.sources)


T, A, B, C, D = prose(30, 10), prose(31, 20), prose(32, 20), prose(33, 15), prose(36, 30)
LEFT_OUT = {
    "a common n-gram is no evidence, and no reason to divide by less": (
        [{"question": f"{T} {A}"}, {"question": f"{T} {B}"}],
        f"{T} {' '.join(A.split()[:6])} {prose(34, 20)}",
        A.split()[-8:],
    ),
    "a wrong choice stands beside the right one, common or not": (
        [{"question": "Which of these did it", "choices": [A, D], "answer": A}],
        f"{prose(35, 20)} {A} or {' '.join(D.split()[:9])} {C} {' '.join(D.split()[20:29])}",
        D.split(),
    ),
}


@pytest.mark.parametrize("case", LEFT_OUT)
def test_what_is_common_can_only_take_away(tmp_path, case):
    made, text, common = LEFT_OUT[case]
    path = tmp_path / "s.jsonl"
    path.write_text("".join(json.dumps(one) + "\n" for one in made))
    suites = load([str(path)])
    index = Index.build(suites.parts)
    found = holding.look(index, pa.array([text], pa.large_string()), np.arange(1))
    excluded = np.zeros(index.n_grams, bool)
    for part, own in enumerate(suites.parts["text"].to_pylist()):
        for at, gram in enumerate(index.grams(part).tolist()):
            excluded[gram] |= " ".join(own.split()[at : at + 8]) in " ".join(common)
    assert excluded.any()
    for mask in (excluded, None):
        rows = classes.judge(suites, index.layout, found, mask).evidence
        assert [row for row in rows["class"].to_pylist() if row in classes.FLAGGED] == []


units = st.lists(st.sampled_from("abcdefgh"), min_size=1, max_size=24).map(" ".join)
items_of = st.lists(
    st.fixed_dictionaries({"question": units, "answer": units, "choices": st.lists(units, max_size=3)}),
    min_size=1,
    max_size=4,
)


@given(items_of, st.lists(units, min_size=1, max_size=5), st.integers(0, 2**32), st.data())
@settings(max_examples=150, deadline=None)
def test_leaving_n_grams_out_finds_nothing_more(tmp_path_factory, made, texts, seed, data):
    """
    What flags with some n-grams left out as common flags without: so whatever an audit counts as common, it finds a
    part of what was removed.
    """
    path = tmp_path_factory.mktemp("suite") / "s.jsonl"
    path.write_text("".join(json.dumps(one | {"id": str(n)}) + "\n" for n, one in enumerate(made)))
    suites: Suites = load([str(path)], fields={"prompt": "question", "answer": "answer"})
    index = Index.build(suites.parts, 3, 12)
    copied = [
        " ".join(data.draw(st.sampled_from([*suites.parts["text"].to_pylist(), *texts])) for _ in range(2))
        for _ in texts
    ]
    documents = pa.array([*texts, *copied], pa.large_string())
    found = holding.look(index, documents, np.arange(len(documents)))
    common = np.random.default_rng(seed).random(index.n_grams) < 0.4

    def flags(excluded: np.ndarray | None) -> set[int]:
        rows = (
            classes.judge(suites, index.layout, found, excluded)
            .evidence.select(["example", "doc", "class"])
            .to_pylist()
        )
        return {row["doc"] for row in rows if row["class"] in classes.FLAGGED}

    assert flags(common) <= flags(None)


@given(items_of, st.lists(units, min_size=2, max_size=6))
@settings(max_examples=60, deadline=None)
def test_a_document_is_judged_by_itself(tmp_path_factory, made, texts):
    path = tmp_path_factory.mktemp("suite") / "s.jsonl"
    path.write_text("".join(json.dumps(one | {"id": str(n)}) + "\n" for n, one in enumerate(made)))
    suites = load([str(path)], fields={"prompt": "question", "answer": "answer"})
    index = Index.build(suites.parts, 3, 12)
    documents = pa.array([*texts, *suites.parts["text"].to_pylist()[:4]], pa.large_string())
    numbers = np.arange(len(documents))
    whole = holding.held(suites, index, holding.look(index, documents, numbers))[0].to_pylist()
    single = [
        row
        for n in numbers.tolist()
        for row in holding.held(suites, index, holding.look(index, documents.slice(n, 1), numbers[n : n + 1]))[
            0
        ].to_pylist()
    ]
    order = ("example", "doc")
    assert sorted(whole, key=lambda row: [row[key] for key in order]) == sorted(
        single, key=lambda row: [row[key] for key in order]
    )
    assert all(row["start"] is not None and row["start"] < row["end"] for row in whole)


def test_scan_and_look_agree_but_for_short_ones():
    parts = pa.table({"part": pa.array([0], pa.int32()), "example": pa.array([0], pa.int32()), "kind": ["prompt"],
                      "ordinal": pa.array([0], pa.int32()), "correct": pa.array([None], pa.bool_()),
                      "text": pa.array([PROMPT], pa.large_string())})  # fmt: skip
    index = Index.build(parts)
    texts = pa.array(list(DOCS.values()), pa.large_string())
    ours, theirs = (each(index, texts, np.arange(len(texts))) for each in (holding.look, scan.scan))
    assert all(getattr(ours, name).equals(getattr(theirs, name)) for name in holding.TABLES)


@pytest.mark.slow
def test_a_planted_corpus_is_clean_afterwards(tmp_path, shared):
    script = shared / "data" / "make_planted.py"
    out = tmp_path / "planted"
    subprocess.run(
        [sys.executable, script, "--out", out, "--size", "5MB", "--eval-rate", "20"], check=True, capture_output=True
    )
    sets = [str(shared / "data" / "evals" / name) for name in ("gsm8k", "arc_challenge", "cmmlu", "humaneval")]
    entry = {
        "name": "planted", "sources": {"w": {"files": ["planted/train-*.jsonl"]}},
        "stages": [{"stage": "decontaminate", "suites": sets}],
    }  # fmt: skip
    made = datapipe.build(manifests.parse(json.dumps(entry), tmp_path / "manifest.yaml"), workers=2)
    assert sum(sum(found.values()) for found in made.manifest.decontaminate[0].removed.values()) > 50
    report = api.audit(sets, train=[str(made.path)], workers=2)
    assert [one.total.flagged for one in report.sections if one.role == "train"] == [0]


def test_the_manifest_entry_says_what_it_takes():
    spec = Decontaminate.model_validate({"stage": "decontaminate", "suites": ["a"]})
    assert spec.classes == classes.FLAGGED
    assert set(NAMED) == set(classes.CLASSES) - {"untested", "clean"}
