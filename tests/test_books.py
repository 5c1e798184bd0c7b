"""The books of a finished build: the funnel, what was dropped, other bounds, texts and pairs."""

import json
import shutil
from pathlib import Path

import duckdb
import pytest
import synthetic

from datapipe import manifest as manifests
from datapipe import pipeline
from datapipe.books import Books, dropped, duplicates, life, what_if
from datapipe.books.differ import MOST, differ
from datapipe.build_manifest import Built
from datapipe.errors import IntegrityError, ManifestError


@pytest.fixture(scope="module")
def build(tmp_path_factory) -> Path:
    return synthetic.build(tmp_path_factory.mktemp("builds")).path


@pytest.fixture(scope="module")
def books(build):
    with Books(build) as books:
        yield books


def doc_id(place: int) -> str:
    docs = synthetic.story()
    synthetic._name(docs)
    return docs[place].id


def test_funnel(books):
    steps = [(step.name, step.documents, step.lost, step.estimated) for step in books.funnel()]
    assert steps == [
        ("records", 14, 0, False),
        ("documents", 10, 4, True),
        ("0:admit", 10, 0, True),
        ("1:filter", 8, 2, True),
        ("2:holdout", 8, 0, True),
        ("3:exact_dedup", 6, 2, True),
        ("4:near_dedup", 5, 1, False),
        ("mixture", 4, 1, False),
    ]


def test_tokens_are_exact_where_they_are_known_and_by_the_sources_rate_before(books):
    docs = synthetic.story()
    alive = [d for d in docs if d.stage is None]
    size = {d.source: 0 for d in docs}
    tokens = dict(size)
    for d in alive:
        size[d.source] += len(d.text)
        tokens[d.source] += len(d.words) + 1
    guess = sum(
        round(sum(len(d.text) for d in docs if d.source == s and d.stage) * tokens[s] / size[s]) for s in size
    ) + sum(tokens.values())

    steps = {step.name: step for step in books.funnel()}
    assert steps["4:near_dedup"].tokens == sum(len(d.words) + 1 for d in alive)
    assert steps["mixture"].tokens == sum(len(d.words) + 1 for d in alive if d.copies)
    assert steps["documents"].tokens == guess
    assert steps["documents"].bytes == sum(len(d.text) for d in docs)


def test_without_a_tokenizer_there_are_no_tokens(tmp_path):
    with Books(synthetic.build(tmp_path, tokenizer=False).path) as books:
        assert {(step.tokens, step.estimated) for step in books.funnel()} == {(None, False)}
        assert books.lengths()["web"]["tokens"] is None
        json.dumps(books.as_json())


def test_drops(books):
    assert [(d.stage, d.rule, d.source, d.documents) for d in books.drops()] == [
        ("1:filter", "word_count < 5", "web", 1),
        ("1:filter", "word_count < 5", "wiki", 1),
        ("3:exact_dedup", "same text", "web", 2),
        ("4:near_dedup", "jaccard >= 0.8", "web", 1),
        ("mixture", "copies = 0", "wiki", 1),
    ]


def test_clusters_are_a_kept_document_and_all_that_lead_to_it(books):
    found = [(c["kept"], c["documents"]) for c in books.clusters()]
    assert found == [(doc_id(0), 3), (doc_id(1), 2)]


def test_a_cluster_follows_evidence_over_two_stages(tmp_path):
    docs = synthetic.story()
    docs[3].like = 4  # the exact copy stands for one that near dedup drops later, for the first
    with Books(synthetic.build(tmp_path, docs=docs).path) as books:
        assert [(c["kept"], c["documents"]) for c in books.clusters()] == [(docs[0].id, 3), (docs[1].id, 2)]


def test_lengths_are_of_kept_documents(books):
    lengths = books.lengths()
    assert lengths["wiki"]["tokens"] == {"p1": 11, "p50": 11, "p90": 31, "p99": 31, "max": 31}
    assert lengths["web"]["bytes"]["max"] == len(synthetic.words(0, 60))


@pytest.mark.parametrize("name", ["wild*[a]?", "x=1", "it's", "ünïcode and blanks"])
def test_folders_of_any_name(build, tmp_path, name):
    copy = tmp_path / name / build.name
    shutil.copytree(build, copy)
    with Books(copy) as books:
        assert books.funnel()[1].documents == 10
        assert books.query("select distinct file from shards order by 1")[0] == ("train/shard-00000.parquet",)
        assert len(books.query("describe fates")) == 16, "no column comes from the folder's name"


def test_the_database_reads_nothing_else(books, tmp_path):
    (tmp_path / "secret.csv").write_text("a\n1\n")
    with pytest.raises(duckdb.PermissionException):
        books.query(f"select * from '{tmp_path}/secret.csv'")


@pytest.mark.parametrize("change", [Path.unlink, lambda path: path.write_bytes(b"rubbish, not Parquet")])
def test_a_table_that_cannot_be_read_is_no_bug_of_ours(build, tmp_path, change):
    copy = Path(shutil.copytree(build, tmp_path / "copy"))
    change(copy / "ledger.parquet")
    with pytest.raises(IntegrityError, match=r"ledger cannot be read .*datapipe verify"):
        Books(copy)


SAME = ["word_count.min=5", "1:word_count.min=5", " word_count.min = 5.0 "]


@pytest.mark.parametrize("expression", SAME)
def test_the_same_bounds_change_nothing(books, expression):
    found = what_if(books, [expression])
    assert [(c.source, c.now, c.then, c.added, c.rescued) for c in found.changes] == [
        ("web", 1, 1, 0, 0),
        ("wiki", 1, 1, 0, 0),
    ]
    assert (found.lost, found.arriving, found.unknown) == ({}, {}, [])


def test_a_tighter_bound(books):
    found = what_if(books, ["word_count.min=45"])
    assert [(c.source, c.now, c.then, c.added) for c in found.changes] == [("web", 1, 3, 2), ("wiki", 1, 4, 3)]
    assert found.lost == {
        "web": {"documents": 1, "bytes": len(synthetic.words(1, 40)), "tokens": 41},
        "wiki": {"documents": 3, "bytes": sum(len(synthetic.words(n, k)) for n, k in ((2, 30), (3, 20), (4, 10))),
                 "tokens": 63},
    }  # fmt: skip


def test_a_looser_bound_tells_what_it_cannot_know(books):
    found = what_if(books, ["word_count.min=none"])
    assert [(c.source, c.then, c.rescued) for c in found.changes] == [("web", 0, 1), ("wiki", 0, 1)]
    assert found.arriving == {"web": 1, "wiki": 1}
    assert [sentence.split(";")[0] for sentence in found.unknown] == [
        "2 documents would newly reach 3:exact_dedup and 4:near_dedup",
    ]


def test_another_scope(books):
    found = what_if(books, ["1:only.source=wiki"])
    assert [(c.source, c.now, c.then, c.rescued) for c in found.changes] == [("web", 1, 0, 1), ("wiki", 1, 1, 0)]
    assert found.asked == [("1:filter", "only.source", "all", "wiki")]
    assert what_if(books, ["word_count.min=5", "word_count.max=9"]).asked == [
        ("1:filter", "word_count.min", "5", "5"),
        ("1:filter", "word_count.max", "none", "9"),
    ]
    assert (
        what_if(books, ["only.source=wiki", "only.source=none"]).changes == what_if(books, ["languages=none"]).changes
    )
    assert [c.then for c in what_if(books, ["languages=fr"]).changes] == [1, 1]  # its documents name no language
    assert [c.then for c in what_if(books, ["only.lang=fr"]).changes] == [0, 0]


def test_ways_to_ask(books):
    (gone,) = what_if(books, ["word_count=null"]).asked
    assert gone == ("1:filter", "word_count", "min 5", "none")
    same = [
        what_if(books, [ask]).changes for ask in ("word_count.min=none", "word_count=null", "1:filter.word_count=none")
    ]
    assert same[0] == same[1] == same[2]
    found = what_if(books, ["lang.in=en"])
    assert found.asked == [("1:filter", "lang.in", "all", "en")]
    assert sum(c.then for c in found.changes) > sum(c.now for c in found.changes)  # no document names a language


def test_duplicates_of_a_document_that_would_leave_may_come_back(tmp_path):
    docs = synthetic.story()
    docs[4].text += " and more words than the one that stays"
    with Books(synthetic.build(tmp_path, docs=docs).path) as books:
        found = what_if(books, ["word_count.min=61"])
    assert any("1 document" in s and "dropped by 4:near_dedup for one that would leave" in s for s in found.unknown)


WRONG = {
    "no bound": ("word_count=5", "expected SIGNAL.min=NUMBER"),
    "no number": ("word_count.min=many", "many is no number"),
    "not a finite number": ("word_count.min=nan", "nan is no number"),
    "a signal that is not stored": ("alpha_ratio.min=0.5", "there are: word_count"),
    "a scope of a stage that is no filter": ("2:only.source=web", "stage 2 is no filter"),
    "a source that is none": ("only.source=wbe", "no source wbe; there are: web, wiki"),
    "a bound that is not there": ("alpha_ratio=none", "no filter bounds alpha_ratio"),
    "a scope that is none": ("only.licence=MIT", "expected SIGNAL.min=NUMBER"),
    "a stage that is no filter": ("2:word_count.min=5", "stage 2 is no filter"),
}


@pytest.mark.parametrize("expression, message", WRONG.values(), ids=WRONG)
def test_wrong_expressions(books, expression, message):
    with pytest.raises(ManifestError, match=message):
        what_if(books, [expression])


RULES = {
    "an exact rule": ("word_count < 5", 2),
    "a stage": ("exact_dedup", 2),
    "a stage with its place": ("4:near_dedup", 1),
    "part of a rule": ("JACCARD", 1),
    "the mixture": ("mixture", 1),
}


@pytest.mark.parametrize("rule, count", RULES.values(), ids=RULES)
def test_dropped(books, rule, count):
    found = list(dropped(books, rule, None))
    assert len(found) == count
    assert len(list(dropped(books, rule, 1))) == 1
    assert [row["doc_id"] for row in found] == sorted(row["doc_id"] for row in found)


def test_a_dropped_document_has_its_text_origin_and_evidence(books):
    (row,) = dropped(books, "jaccard >= 0.8", None)
    assert row["text"] == synthetic.story()[4].text
    assert (row["path"], row["line"], row["offset"]) == ("web.jsonl", 5, 40)
    assert row["evidence"] == {"jaccard": row["value"], "kept": doc_id(0)}


def test_an_unknown_rule_names_those_that_are_there(books):
    with pytest.raises(ManifestError, match="there are: 1:filter: word_count < 5; 3:exact_dedup: same text"):
        list(dropped(books, "nope", None))


def test_duplicates(books):
    (pair,) = duplicates(books, 5)
    assert (pair.kept["doc_id"], pair.dropped["doc_id"]) == (doc_id(0), doc_id(4))
    assert pair.hunks is not None
    assert [(run.left, run.right) for hunk in pair.hunks for run in hunk.runs if not run.equal] == [("w59", "other")]
    assert pair.jaccard == synthetic.jaccard(synthetic.story()[0].text, synthetic.story()[4].text)


def test_texts_that_are_not_stored(tmp_path):
    with Books(synthetic.build(tmp_path, stored="kept").path) as books:
        assert [row["text"] for row in dropped(books, "word_count", None)] == [None, None]
        assert duplicates(books, 1)[0].hunks is None


def test_life(books):
    found = life(books, doc_id(7)[:8].upper())
    assert (found["fate"], found["copies"], found["tokens"]) == ("kept", 2, 31)
    assert len(found["shards"]) == 2
    assert found["text"] == synthetic.words(2, 30)
    assert life(books, doc_id(0))["stands_for"] == sorted([doc_id(3), doc_id(4)])
    gone = life(books, doc_id(5))
    assert [(row["rule"], row["decides"]) for row in gone["ledger"]] == [("word_count < 5", True)]
    json.dumps(gone)


@pytest.mark.parametrize("prefix, message", [("", "several documents"), ("zz", "no document")])
def test_life_of_nobody(books, prefix, message):
    with pytest.raises(ManifestError, match=message):
        life(books, prefix)


DIFFERENCES = {
    "equal": ("a b c", "a b c", []),
    "white space is no difference": ("a  b\nc", "a b c", []),
    "a word": ("a b c", "a x c", [(1, ["a", ("b", "x"), "c"])]),
    "one more at the end": ("a b", "a b c", [(1, ["a b", ("", "c")])]),
    "one less at the start": ("x a b", "a b", [(1, [("x", ""), "a b"])]),
    "on the second line": ("a\nb c", "a\nx c", [(2, ["a", ("b", "x"), "c"])]),
    "empty": ("", "a", [(1, [("", "a")])]),
    "repeated words": ("a a a", "a a", [(1, ["a a", ("a", "")])]),
    "two that are close go together": ("a b c d", "x b c y", [(1, [("a", "x"), "b c", ("d", "y")])]),
    "two that are far apart": (
        "a 1 2 3 4 5 6 7 8 9 10 11 12 13\nb",
        "x 1 2 3 4 5 6 7 8 9 10 11 12 13\ny",
        [(1, [("a", "x"), "1 2 3 4 5 6"]), (2, ["8 9 10 11 12 13", ("b", "y")])],
    ),
    "a Chinese character is a word, and no blank comes between": (
        "今天天气很好\n我们去公园散步", "今天天气很好\n我们去花园散步",
        [(2, ["气很好 我们去", ("公", "花"), "园散步"])],
    ),
    "Thai and Latin in one run": (
        "ab\u0e01\u0e02cd", "ab\u0e01\u0e03cd", [(1, ["ab\u0e01", ("\u0e02", "\u0e03"), "cd"])],
    ),
    "blanks between Chinese characters are no difference": ("今 天 a", "今天 b", [(1, ["今 天", ("a", "b")])]),
    "context is cut": ("1 2 3 4 5 6 7 a 1 2 3 4 5 6 7", "1 2 3 4 5 6 7 b 1 2 3 4 5 6 7",
                       [(1, ["2 3 4 5 6 7", ("a", "b"), "1 2 3 4 5 6"])]),
}  # fmt: skip


@pytest.mark.parametrize("left, right, expected", DIFFERENCES.values(), ids=DIFFERENCES)
def test_differ(left, right, expected):
    hunks, more = differ(left, right)
    shown = [(h.line, [run.left if run.equal else (run.left, run.right) for run in h.runs]) for h in hunks]
    assert shown == expected
    assert all(run.left == run.right for h in hunks for run in h.runs if run.equal)
    assert not more


def test_differ_says_when_there_is_more():
    left = " ".join(f"a{n} {'b ' * 20}" for n in range(20))
    hunks, more = differ(left, left.replace("a", "x"), limit=3)
    assert (len(hunks), more) == (3, True)
    long = " ".join(f"{n}" for n in range(MOST + 1))
    assert differ(long, "other", limit=100)[1]


def test_a_looser_bound_cannot_know_what_lists_say_of_those_who_arrive(tmp_path):
    (tmp_path / "words.txt").write_text("evil\n")
    (tmp_path / "a.jsonl").write_text('{"text": "short evil"}\n{"text": "one two three four five six"}\n')
    (tmp_path / "m.yaml").write_text(
        "name: lists\nsources: {s: {files: [a.jsonl]}}\n"
        "stages:\n- {stage: filter, keep: {word_count: {min: 5}}}\n- {stage: word_filter, words: [words.txt]}\n"
    )
    built = pipeline.build(manifests.load(tmp_path / "m.yaml"), workers=1, memory=200_000_000)
    assert isinstance(built, Built)
    with Books(built.path) as books:
        found = what_if(books, ["word_count.min=1"])
    assert [sentence.split(";")[0] for sentence in found.unknown] == ["1 documents would newly reach 2:word_filter"]
