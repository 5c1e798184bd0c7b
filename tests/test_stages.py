"""Filter, holdout and exact dedup: which documents leave, why, and what the ledger says."""

import json
from pathlib import Path

import builders
import pyarrow.parquet as pq
import pytest

from datapipe import stages
from datapipe.documents import Documents, Work, shown
from datapipe.keyed import bound, keyed
from datapipe.manifest import ExactDedup, Filter, Holdout, NearDedup
from datapipe.manifest.stages import STAGES
from datapipe.scope import condition
from datapipe.stages import holdout, signal_units


@pytest.fixture
def work(tmp_path):
    with Work(tmp_path, "made", workers=2, memory=200_000_000) as made:
        yield made


def applied(docs: Documents, *specs):
    """Apply stages in order; the last report."""
    for spec in specs:
        docs.apply(spec.stage, len(docs.reports) + 1, stages.judge(spec, docs))
    return docs.reports[-1]


def filter_of(keep: dict, **only) -> Filter:
    return Filter.model_validate({"stage": "filter", "keep": keep} | ({"only": only} if only else {}))


def read_case(shared: Path, name: str) -> list[dict]:
    paths = sorted((shared / "cases" / name).glob("*.jsonl"))
    return [record for path in paths for piece in builders.read_jsonl(path) for record in piece]


def test_every_stage_of_a_manifest_has_a_judge():
    assert set(stages.JUDGES) == set(STAGES.values())


# --- filter ------------------------------------------------------------------------------------------------------

SCORED = [
    {"id": "low", "text": "one two", "extra": {"score": 1}},
    {"id": "fine", "text": "one two three", "extra": {"score": 3.5}},
    {"id": "high", "text": "one two three four five", "extra": {"score": 100_001}},
    {"id": "none", "text": "one two three", "extra": {"score": None}},
    {"id": "text", "text": "one two three", "extra": {"score": "7"}},
    {"id": "absent", "text": "one two three"},
]
NULL = ("score is null", None, {"max": 100_000, "min": 2}, True)
FILTERED = {
    "a bound says which end failed, and a number that is none fails every bound": (
        {"score": {"min": 2, "max": 100_000}},
        {
            "low": [("score < 2", 1.0, {"max": 100_000, "min": 2}, True)],
            "high": [("score > 100000", 100_001.0, {"max": 100_000, "min": 2}, True)],
            "none": [NULL],
            "text": [NULL],
            "absent": [NULL],
        },
    ),
    "both ends of a bound belong to it": ({"word_count": {"min": 2, "max": 5}}, {}),
    "every rule that fails is in the ledger, and the first of the manifest decides": (
        {"word_count": {"min": 3, "max": 4}, "score": {"max": 50, "min": 0.5}},
        {
            "low": [("word_count < 3", 2.0, {"max": 4, "min": 3}, True)],
            "high": [
                ("score > 50", 100_001.0, {"max": 50, "min": 0.5}, False),
                ("word_count > 4", 5.0, {"max": 4, "min": 3}, True),
            ],
            "none": [("score is null", None, {"max": 50, "min": 0.5}, True)],
            "text": [("score is null", None, {"max": 50, "min": 0.5}, True)],
            "absent": [("score is null", None, {"max": 50, "min": 0.5}, True)],
        },
    ),
    "the order of the manifest, not of the alphabet": (
        {"score": {"max": 50, "min": 0.5}, "word_count": {"max": 4}},
        {
            "high": [
                ("score > 50", 100_001.0, {"max": 50, "min": 0.5}, True),
                ("word_count > 4", 5.0, {"max": 4}, False),
            ],
            "none": [("score is null", None, {"max": 50, "min": 0.5}, True)],
            "text": [("score is null", None, {"max": 50, "min": 0.5}, True)],
            "absent": [("score is null", None, {"max": 50, "min": 0.5}, True)],
        },
    ),
}


@pytest.mark.parametrize("keep, expected", FILTERED.values(), ids=FILTERED)
def test_filter(work, keep, expected):
    docs = builders.documents(work, SCORED, parts=2, row_group=2)
    report = applied(docs, filter_of(keep))
    rows = [(name, *rest) for name, rules in expected.items() for rest in rules]
    assert builders.ledger(docs) == sorted(rows, key=str)
    assert builders.alive(docs) == sorted({r["id"] for r in SCORED} - set(expected))
    assert report.entered == report.left + len(expected)


def test_filter_judges_only_what_it_is_asked_to(work):
    records = [
        {"id": "a", "text": "x", "source": "web", "lang": "en"},
        {"id": "b", "text": "x", "source": "web", "lang": "it's"},
        {"id": "c", "text": "x", "source": "web"},
        {"id": "d", "text": "x", "source": "wiki", "lang": "it's"},
        {"id": "e", "text": "x", "source": "wiki", "lang": "it's", "snapshot": "2024"},
    ]
    docs = builders.documents(work, records, parts=2)
    report = applied(docs, filter_of({"word_count": {"min": 2}}, source=["web"], lang=["it's"]))
    assert (builders.alive(docs), report.not_judged) == (["a", "c", "d", "e"], {"web": 2, "wiki": 2})
    report = applied(docs, filter_of({"word_count": {"min": 2}}, snapshot=["2024"]))
    assert (builders.alive(docs), report.not_judged) == (["a", "c", "d"], {"web": 2, "wiki": 1})
    report = applied(docs, filter_of({"word_count": {"min": 2}}))
    assert (builders.alive(docs), report.not_judged) == ([], {})


def test_filter_without_documents(work):
    docs = builders.documents(work, [])
    assert applied(docs, filter_of({"word_count": {"min": 2}, "score": {"max": 1}})).left == 0


def test_a_bound_is_shown_as_it_was_written():
    assert [shown(v) for v in (50, 100_000, 1_234_567, 0.3, 3.0, 1e300)] == [
        "50", "100000", "1234567", "0.3", "3", "1e+300"
    ]  # fmt: skip


def test_a_condition_cannot_be_escaped_from():
    spec = filter_of({"word_count": {"min": 1}}, source=["x') or true --"])
    assert condition(spec.only) == "coalesce(source in ('x'') or true --'), false)"


def test_signals_are_computed_once_for_all_bounds(tmp_path):
    def ran(*specs: Filter) -> dict[str, int]:
        with Work(tmp_path, "made", memory=200_000_000) as work:
            docs = builders.documents(work, SCORED, parts=2)
            applied(docs, *specs)
            return {name: n for name, n in work.store.ran.items() if name != "made"}

    assert ran(filter_of({"word_count": {"min": 2}})) == {"signal:word_count": 2}
    assert ran(filter_of({"word_count": {"min": 5}})) == {}
    both = filter_of({"score": {"max": 5}, "word_count": {"min": 2}})
    assert ran(both, filter_of({"unit_count": {"min": 1}})) == {"signal:score": 2, "signal:unit_count": 2}


def test_signals_are_written_for_all_rows(work, tmp_path):
    docs = builders.documents(work, SCORED, parts=2)
    specs = [filter_of({"word_count": {"min": 3}}), filter_of({"score": {"min": 1}, "word_count": {"max": 9}})]
    applied(docs, *specs)
    names = signal_units.names_in_use(specs)
    signal_units.write_signals(docs, names, tmp_path / "signals")
    tables = [pq.read_table(path) for path in sorted((tmp_path / "signals").iterdir())]
    assert names == tables[0].column_names == ["word_count", "score"]
    assert [len(table) for table in tables] == [part.rows for part in docs.parts]
    assert [v for table in tables for v in table["word_count"].to_pylist()] == [2, 3, 5, 3, 3, 3]
    assert [v for table in tables for v in table["score"].to_pylist()] == [1, 3.5, 100_001, None, None, None]


# --- holdout -----------------------------------------------------------------------------------------------------


def split(docs: Documents) -> dict[str, str]:
    names = builders.ids(docs)
    rows = docs.work.db.execute("select replace(doc_id::varchar, '-', ''), split from documents").fetchall()
    return {names[name]: side for name, side in rows}


def test_membership_is_the_hash_of_the_group_and_nothing_else(work):
    groups = ["plain", 'quote " back \\ slash', "é", "猫", "\U0001f600", "new\nline", "", "0", "\u2028"] * 20
    records = [{"id": str(i), "text": f"text {i}", "group": f"{g}{i // 9}"} for i, g in enumerate(groups)]
    docs = builders.documents(work, records, parts=3)
    report = applied(docs, Holdout(stage="holdout", fraction=0.3, salt="s"))
    expected = {r["id"]: "validation" if keyed("holdout", "s", r["group"]) < bound(0.3) else "train" for r in records}
    assert split(docs) == expected
    chosen = [r["group"] for r in records if expected[r["id"]] == "validation"]
    assert report.notes == {
        "before_dedup": True,
        "by": None,
        "salt": "s",
        "fraction": 0.3,
        "groups": len(set(chosen)),
        "documents": len(chosen),
    }
    assert report.dropped == {}


def test_new_documents_and_other_orders_move_nobody(tmp_path):
    records = [{"id": str(i), "text": f"text {i}"} for i in range(300)]
    more = [{"id": f"new {i}", "text": f"more {i}"} for i in range(30)]
    sides = []
    for some in (records, more + records[::-1]):
        with Work(tmp_path, "made", memory=200_000_000) as work:
            docs = builders.documents(work, some, parts=2)
            applied(docs, Holdout(stage="holdout", fraction=0.1))
            sides.append(split(docs))
    assert {name: sides[1][name] for name in sides[0]} == sides[0]
    assert 10 < list(sides[0].values()).count("validation") < 60


def test_the_group_can_be_any_field(work):
    records = [
        {"id": "a", "text": "1", "extra": {"team": "x"}, "group": "own a"},
        {"id": "b", "text": "2", "extra": {"team": "x"}, "group": "own b"},
        {"id": "c", "text": "3", "extra": {"team": 7}, "group": "own c"},
        {"id": "d", "text": "4", "extra": {"team": None}, "group": "own d"},
        {"id": "e", "text": "5", "extra": {"team": {"k": [1]}}, "group": "own e"},
    ]
    docs = builders.documents(work, records, parts=2)
    applied(docs, filter_of({"unit_count": {"max": 0}}))  # everything leaves: membership holds for them too
    report = applied(docs, Holdout(stage="holdout", fraction=0.5, by="team", salt="s"))
    rows = docs.work.db.execute('select "group", split from documents').fetchall()
    expected = ["x", "x", "7", "own d", '{"k":[1]}']
    assert sorted(rows) == sorted(
        (key, "validation" if holdout.chosen("s", [key], 0.5)[0] else "train") for key in expected
    )
    assert (report.notes["groups"], report.notes["documents"]) == (0, 0)


def test_the_group_can_be_a_mapped_field(work):
    docs = builders.documents(work, [{"id": "a", "text": "1", "lang": "en"}, {"id": "b", "text": "2"}])
    applied(docs, Holdout(stage="holdout", fraction=0.5, by="lang"))
    groups = dict(docs.work.db.execute('select lang, "group" from documents').fetchall())
    assert groups["en"] == "en"
    assert len(groups[None]) == 32


def test_no_near_copy_of_validation_stays_in_train(work, shared):
    """B19: twenty groups of an original, a copy and a near copy, spread over files."""
    records = read_case(shared, "B19")
    docs = builders.documents(work, records, parts=3)
    applied(docs, Holdout(stage="holdout", fraction=0.5))
    exact = applied(docs, ExactDedup(stage="exact_dedup"))
    near = applied(docs, NearDedup(stage="near_dedup"))
    sides, stays = split(docs), builders.alive(docs)
    validation = {name[:3] for name in stays if sides[name] == "validation"}
    assert validation
    assert not validation & {name[:3] for name in stays if sides[name] == "train"}
    assert len(stays) == 20
    dropped = [row for row in builders.ledger(docs) if sides[row[0]] == "train"]
    crossed = [row for row in dropped if sides[row[3]["kept"]] == "validation"]
    assert exact.notes["leak"] + near.notes["leak"] == len(crossed) > 0
    assert not [r for r in builders.ledger(docs) if sides[r[0]] == "validation" and sides[r[3]["kept"]] == "train"]


# --- exact dedup -------------------------------------------------------------------------------------------------


def copies(*changes: dict) -> list[dict]:
    return [{"id": f"d{i}", "text": "same text"} | change for i, change in enumerate(changes)]


STAYS = {
    "validation before train, whatever the manifest prefers": (
        ["priority"], copies({"priority": 9}, {"split": "validation"}), "d1",
    ),
    "the higher priority": (["priority"], copies({"priority": 1}, {"priority": 2}, {"priority": 0}), "d1"),
    "the longest: white space counts as bytes": (["longest"], copies({}, {"text": " same  text "}), "d1"),
    "the shortest": (["shortest"], copies({"text": "same \n text"}, {}), "d1"),
    "the newest, and no date is the oldest": (["newest"], copies({}, {"instant": 5}, {"instant": 7}), "d2"),
    "the oldest, and no date is the newest": (["oldest"], copies({}, {"instant": 7}, {"instant": 5}), "d2"),
    "the first preference that differs decides": (
        ["priority", "longest", "newest"],
        copies({"priority": 1, "instant": 9}, {"priority": 1, "text": "same  text"}, {"text": "same     text"}),
        "d1",
    ),
    "NFC and NFD are the same text": (["shortest"], copies({"text": "caf\u00e9"}, {"text": "cafe\u0301"}), "d0"),
}  # fmt: skip


@pytest.mark.parametrize("prefer, records, stays", STAYS.values(), ids=STAYS)
def test_of_equal_texts_there_stays(work, prefer, records, stays):
    docs = builders.documents(work, records, parts=2)
    report = applied(docs, ExactDedup(stage="exact_dedup", prefer=tuple(prefer)))
    others = sorted(r["id"] for r in records if r["id"] != stays)
    assert builders.alive(docs) == [stays]
    assert builders.ledger(docs) == [(name, "same text", 1.0, {"jaccard": 1.0, "kept": stays}, True) for name in others]
    assert report.dropped == {"same text": len(others)}


def test_without_a_preference_the_smallest_name_stays(work):
    docs = builders.documents(work, copies({}, {}, {}, {}), parts=4)
    applied(docs, ExactDedup(stage="exact_dedup", prefer=()))
    assert builders.alive(docs) == [builders.ids(docs)[min(builders.ids(docs))]]


def test_equal_hashes_of_different_texts_are_no_copies(work):
    records = copies({"text": "one"}, {"text": "two"}, {"text": " two"}, {"text": "one\n"})
    docs = builders.documents(work, [r | {"text_hash": "0" * 32} for r in records], parts=2)
    applied(docs, ExactDedup(stage="exact_dedup"))
    assert builders.alive(docs) == ["d2", "d3"]


def test_validation_loses_only_its_own_copies(work):
    records = copies({"split": "validation"}, {}, {"split": "validation"}, {"priority": 5}, {"text": "other"})
    docs = builders.documents(work, records, parts=2)
    report = applied(docs, ExactDedup(stage="exact_dedup"))
    kept = [name for name in ("d0", "d2") if name in builders.alive(docs)]
    assert len(kept) == 1
    assert builders.alive(docs) == sorted([*kept, "d4"])
    assert report.notes == {"leak": 2}


def test_dropped_documents_keep_nobody_out(work):
    records = copies({"priority": 9, "extra": {"score": 0}}, {"extra": {"score": 1}}, {"extra": {"score": 1}})
    docs = builders.documents(work, records)
    applied(docs, filter_of({"score": {"min": 1}}), ExactDedup(stage="exact_dedup"))
    assert len(builders.alive(docs)) == 1
    assert "d0" not in builders.alive(docs)


def test_evidence_is_canonical_json(work):
    docs = builders.documents(work, copies({}, {}))
    applied(docs, ExactDedup(stage="exact_dedup"))
    ((evidence,),) = docs.work.db.execute("select evidence from ledger").fetchall()
    assert evidence == json.dumps(json.loads(evidence), sort_keys=True, separators=(",", ":"))


def test_no_documents_no_copies(work):
    docs = builders.documents(work, [])
    report = applied(docs, Holdout(stage="holdout", fraction=0.1), ExactDedup(stage="exact_dedup"))
    assert (report.entered, report.dropped, report.notes) == (0, {}, {"leak": 0})
