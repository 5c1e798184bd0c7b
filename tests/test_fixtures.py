"""The fixtures are what their script makes, and hold what planted.json says."""

import gzip
import json
from collections import Counter
from fractions import Fraction
from itertools import pairwise
from pathlib import Path

import make_fixtures
import pyarrow.parquet as pq
import pytest
import zstandard
from compose.measure import jaccard, normal_form, shingles, similar_pairs
from tokenizers import Tokenizer

FIXTURES = make_fixtures.HERE
SOURCE_OF = {name: source for source, name in make_fixtures.FILES.items()}
PLANTED = json.loads((FIXTURES / "planted.json").read_text(encoding="utf-8"))
MADE = {"README.md", "planted.json", "docs", "evals", "cyclic16", "lists"}


def content(path: Path) -> object:
    """What a file says, whatever library packed it."""
    if path.suffix == ".zst":
        with path.open("rb") as file:
            return zstandard.ZstdDecompressor().stream_reader(file, read_across_frames=True).read()
    if path.suffix == ".gz":
        return gzip.decompress(path.read_bytes())
    return pq.read_table(path) if path.suffix == ".parquet" else path.read_bytes()


def files(folder: Path) -> dict[str, object]:
    """The contents of all files below a folder that the script makes."""
    found = (p for p in folder.rglob("*") if p.is_file() and p.relative_to(folder).parts[0] in MADE)
    return {p.relative_to(folder).as_posix(): content(p) for p in found}


def readable(name: str) -> tuple[list[dict[str, object]], Counter[str]]:
    """Records of a file of documents by the plainest of readers, and what became of every line."""
    if name.endswith(".parquet"):
        rows = pq.read_table(FIXTURES / "docs" / name).to_pylist()
        return rows, Counter(documents=len(rows))
    data = content(FIXTURES / "docs" / name)
    assert isinstance(data, bytes)
    fates = [fate(line) for line in data.split(b"\n")[:-1]]
    return [value for what, value in fates if what == "documents"], Counter(what for what, _ in fates)


def unrepeated(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """A JSON object, if no key stands in it twice."""
    if len(dict(pairs)) < len(pairs):
        raise ValueError("repeated key")
    return dict(pairs)


def fate(line: bytes) -> tuple[str, dict[str, object]]:
    """documents, rejected, quarantined or blank; and the record if it is a document."""
    if not line.strip():
        return "blank", {}
    try:
        value = json.loads(line.decode("utf-8"), object_pairs_hook=unrepeated)
    except ValueError:
        return "quarantined", {}
    if not isinstance(value, dict):
        return "quarantined", {}
    text = value.get("text")
    return ("documents", value) if isinstance(text, str) and text else ("rejected", {})


@pytest.fixture(scope="module")
def texts() -> dict[str, str]:
    """The texts of all documents by id, those of repaired records apart."""
    rows = [row for name in SOURCE_OF for row in readable(name)[0]]
    return {str(row["id"]): str(row["text"]) for row in rows if row["family"] != "broken"}


def plants(kind: str) -> list[dict]:
    """The plants of one kind; there are some."""
    found = [plant for plant in PLANTED["plants"] if plant["kind"] == kind]
    assert found, kind
    return found


def test_the_script_makes_what_is_checked_in(tmp_path):
    make_fixtures.main(tmp_path)
    again, here = files(tmp_path), files(FIXTURES)
    assert sorted(again) == sorted(here)
    assert [name for name in here if again[name] != here[name]] == []


def test_the_documents_are_small():
    assert sum(p.stat().st_size for p in (FIXTURES / "docs").iterdir()) < 1_500_000


@pytest.mark.parametrize("name", SOURCE_OF)
def test_the_books_of_each_file_balance(name):
    counts = PLANTED["counts"][name]
    fates = readable(name)[1]
    kinds = ("documents", "rejected", "quarantined", "blank")
    assert {kind: fates[kind] for kind in kinds} == {kind: counts[kind] for kind in kinds}
    assert counts["records"] == sum(fates.values())


def test_every_document_has_every_field_and_its_own_id(texts):
    fields = {"id", "text", "url", "lang", "date", "family", "edu_score"}
    for name in SOURCE_OF:
        rows = [row for row in readable(name)[0] if row["family"] != "broken"]
        assert all(set(row) == fields and isinstance(row["edu_score"], (int, float)) for row in rows)
    assert len(texts) == sum(c["documents"] - c["repaired"] for c in PLANTED["counts"].values())


def test_exact_copies_are_equal_in_normal_form_and_nothing_else_is(texts):
    groups: dict[str, set[str]] = {}
    for name, text in texts.items():
        groups.setdefault(normal_form(text), set()).add(name)
    repeated = {frozenset(names) for names in groups.values() if len(names) > 1}
    assert repeated == {frozenset(plant["ids"]) for plant in plants("exact")}
    assert PLANTED["exact"] == {"groups": len(repeated), "surplus": len(texts) - len(groups)}
    for plant in plants("exact"):
        assert (len({texts[name] for name in plant["ids"]}) == 1) == (plant["variant"] == "same")


def test_near_copies_are_as_near_as_they_say(texts):
    for plant in plants("near"):
        similarity = jaccard(*(texts[name] for name in plant["ids"]))
        assert plant["jaccard"][:2] == [similarity.numerator, similarity.denominator]
        assert abs(similarity - Fraction(plant["target"])) < 0.01


def test_versions_of_a_chain_are_near_their_neighbours_and_far_from_the_ends(texts):
    for plant in plants("chain"):
        ids = plant["ids"]
        steps = [float(jaccard(texts[a], texts[b])) for a, b in pairwise(ids)]
        assert len(ids) == 8
        assert 0.84 < min(steps) <= max(steps) < 0.95
        assert jaccard(texts[ids[0]], texts[ids[-1]]) < 0.5


def test_pairs_names_every_pair_that_is_alike(texts):
    copies = {name for plant in plants("exact") for name in plant["ids"][1:]}
    pairs = similar_pairs({n: t for n, t in texts.items() if n not in copies}, Fraction(1, 10))
    alike = [[a, b, j.numerator, j.denominator] for a, b, j in pairs if j >= Fraction(3, 10)]
    assert alike == [[*pair["ids"], *pair["jaccard"][:2]] for pair in PLANTED["pairs"]]
    related = [set(p["ids"]) for kind in ("near", "chain", "boilerplate", "licence", "numbers") for p in plants(kind)]
    related += [set(plants("short_same_units")[0]["ids"])]
    assert [(a, b) for a, b, _ in pairs if not any({a, b} <= group for group in related)] == []


def test_evaluation_items_lie_where_they_say_and_nowhere_else(texts):
    lines = (FIXTURES / "evals/planted.jsonl").read_text(encoding="utf-8").splitlines()
    items = {item["id"]: item for item in map(json.loads, lines)}
    planted = {plant["eval_id"]: plant for plant in plants("eval")}
    assert (len(items), len(planted)) == (PLANTED["evals"]["items"], PLANTED["evals"]["planted"]) == (30, 10)
    everything = {shingle: name for name, text in texts.items() for shingle in shingles(text)}
    for name, item in items.items():
        found = [everything.get(shingle) for part in ("question", "answer") for shingle in shingles(item[part])]
        if name not in planted:
            most = 0.5 if name in {p["eval_id"] for p in plants("eval_near_miss")} else 0.1
            assert sum(where is not None for where in found) < most * len(found), name
            continue
        plant = planted[name]
        part = {"question only": "question", "answer only": "answer"}.get(plant["mode"], "question")
        piece = texts[plant["ids"][0]][plant["start"] : plant["end"]]
        assert shingles(item[part]) <= shingles(piece), name


def test_the_cyclic_task_counts_round_sixteen_symbols():
    rows = [json.loads(line) for line in (FIXTURES / "cyclic16/documents.jsonl").read_text().splitlines()]
    tokenizer = Tokenizer.from_file(str(FIXTURES / "cyclic16/tokenizer.json"))
    ids = [tokenizer.encode(row["text"]).ids for row in rows]
    assert tokenizer.get_vocab_size() == len(rows) == 16
    assert ids == [[(k + i) % 16 for i in range(13)] for k in range(16)]
