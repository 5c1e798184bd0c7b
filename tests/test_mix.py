"""The mixture: exact shares of targets, whole and part epochs, and documents that stay where they are."""

from fractions import Fraction

import numpy as np
import pytest

from datapipe import mix
from datapipe.documents import TABLES, Documents, Work
from datapipe.errors import DataError
from datapipe.keyed import WHOLE, keyed
from datapipe.manifest import Manifest


def asked(mixture: dict | None, **rest) -> Manifest:
    sources = mixture or {"a": {}, "b": {}}
    given = {name: {"files": ["x"]} for name in sources}
    tokenizer = {"file": "tokenizer.json"}
    return Manifest.model_validate(
        {"name": "toy", "sources": given, "mixture": mixture, "tokenizer": tokenizer, **rest}
    )


@pytest.fixture
def work(tmp_path):
    with Work(tmp_path, "toy") as found:
        yield found


def counted(work: Work, **sources: list[int] | np.ndarray) -> Documents:
    """Train documents of each source with so many tokens; a source `held` is validation of source a."""
    db = work.db
    db.execute("drop table documents; drop table ledger")
    db.execute(TABLES)
    db.execute("create or replace table counted (doc bigint, tokens bigint)")
    for source, lengths in sources.items():
        split, name = ("validation", "a") if source == "held" else ("train", source)
        db.register("given", {"tokens": np.array(lengths, np.int64)})
        db.execute(
            "insert into documents (doc, doc_id, source, split) select ? + row_number() over () - 1, "
            "md5(? || (row_number() over ())::varchar)::uuid, ?, ? from given",
            [db.sql("select count(*) from documents").fetchall()[0][0], source, name, split],
        )
        first = db.sql("select count(*) from counted").fetchall()[0][0]
        db.execute("insert into counted select ? + row_number() over () - 1, tokens from given", [first])
        db.unregister("given")
    return Documents(work, [])


def copies(work: Work) -> dict[int, int]:
    return dict(work.db.sql("select doc, copies from taken order by doc").fetchall())


def test_without_a_mixture_each_document_is_taken_once(work):
    docs = counted(work, a=[5, 1, 0], b=[9], held=[4])
    report = mix.mix(docs, asked(None))
    assert work.db.sql("select * from taken order by doc").fetchall() == [(0, 1, 5), (1, 1, 1), (3, 1, 9), (4, 1, 4)]
    assert report["a"] == {
        "weight": 1 / 3, "epochs": 1.0, "copies_wanted": 1.0, "targets_wanted": 4, "targets": 4, "share": 1 / 3,
        "error": 0.0,
    }  # fmt: skip


@pytest.mark.parametrize(
    "epochs, weights, has, wanted",
    [
        ((1, 1), (1, 1), (100, 100), (1, 1)),
        ((1, 1), (3, 1), (100, 100), (1, Fraction(1, 3))),
        ((1, 4), (1, 1), (400, 100), (1, 4)),
        ((2, 4), (1, 1), (400, 100), (1, 4)),
        ((1, 1), (1, 0), (100, 100), (1, 0)),
    ],
    ids=["equal", "less of the second", "the second four times", "the first has epochs left", "weight 0"],
)
def test_total_is_the_largest_that_epochs_allow(work, epochs, weights, has, wanted):
    shares = {
        name: {"weight": float(weight), "epochs": float(times)}
        for name, weight, times in zip("ab", weights, epochs, strict=True)
    }
    docs = counted(work, a=[has[0] + 1], b=[has[1] + 1])
    report = mix.mix(docs, asked(shares))
    assert [line["copies_wanted"] for line in report.values()] == [float(one) for one in wanted]
    assert [line["targets_wanted"] for line in report.values()] == [
        int(Fraction(one) * size) for one, size in zip(wanted, has, strict=True)
    ]


def test_shares_of_100_000_documents(work):
    """Each within 0.5 % of itself (seed 5; eleven of twelve seeds are), part epochs exactly in what is wanted."""
    rng = np.random.default_rng(1)
    lengths = np.maximum(2, rng.lognormal(6, 0.8, 100_000)).astype(np.int64)
    docs = counted(work, a=lengths[:70_000], b=lengths[70_000:])
    shares = {"a": {"weight": 0.6, "epochs": 9.0}, "b": {"weight": 0.4, "epochs": 1.29}}
    report = mix.mix(docs, asked(shares, seed=5))
    assert all(abs(line["error"]) < 0.005 * line["weight"] for line in report.values())
    assert report["b"]["copies_wanted"] == 1.29
    taken = copies(work)
    assert abs(np.mean([taken[doc] for doc in range(70_000, 100_000)]) - 1.29) < 0.01
    assert set(taken.values()) <= {0, 1, 2}


def test_epochs_of_1_29_come_out_as_1_29(work):
    """Targets of a single source: 1.29 times what it has, within the chance of hashing."""
    docs = counted(work, a=[11] * 100_000)
    report = mix.mix(docs, asked({"a": {"weight": 1.0, "epochs": 1.29}}))["a"]
    assert (report["copies_wanted"], report["targets_wanted"]) == (1.29, 1_290_000)
    assert report["targets"] / 1_000_000 == pytest.approx(1.29, abs=0.005)


def test_copies_follow_from_each_document_alone(work):
    """keyed < frac(r): documents that come later move no other."""
    shares = {"a": {"weight": 1.0, "epochs": 2.25}}
    mix.mix(counted(work, a=[3] * 500), asked(shares, seed=5))
    names = dict(work.db.sql("select doc, replace(doc_id::varchar, '-', '') from documents").fetchall())
    before = copies(work)
    assert before == {doc: 2 + (keyed("copies", 5, name) < WHOLE // 4) for doc, name in names.items()}
    mix.mix(counted(work, a=[3] * 600), asked(shares, seed=5))
    assert {doc: number for doc, number in copies(work).items() if doc < 500} == before


def test_targets_are_counted_after_the_limit(work):
    """101 tokens of which 11 are taken are 10 targets; `taken` keeps the whole count."""
    docs = counted(work, a=[101], b=[11])
    report = mix.mix(
        docs, asked({"a": {"weight": 1.0}, "b": {"weight": 1.0}}, sequences={"length": 8, "max_document_tokens": 11})
    )
    assert [line["targets"] for line in report.values()] == [10, 10]
    assert work.db.sql("select tokens from taken order by doc").fetchall() == [(101,), (11,)]


@pytest.mark.parametrize(
    "epochs, weight, taken", [(3.0, 1.0, {0: 3, 1: 0, 2: 1}), (1.0, 0.0, {0: 0, 1: 1, 2: 1})], ids=["thrice", "never"]
)
def test_validation_is_taken_once_however_often_its_source_is(work, epochs, weight, taken):
    """Documents 0 and 2 are of source a, 2 is validation."""
    shares = {"a": {"weight": weight, "epochs": epochs}, "b": {"weight": 1.0 - weight}}
    mix.mix(counted(work, a=[5], b=[5], held=[1000]), asked(shares))
    assert copies(work) == taken


def test_validation_is_no_part_of_the_mixture(work):
    report = mix.mix(counted(work, a=[5], b=[5], held=[1000]), asked({"a": {"weight": 1.0}, "b": {"weight": 0.0}}))
    assert copies(work) == {0: 1, 1: 0, 2: 1}
    assert [line["targets"] for line in report.values()] == [4, 0]


@pytest.mark.parametrize("lengths", [[], [1, 1]], ids=["no documents", "documents without a target"])
def test_a_source_with_a_weight_and_nothing_left(work, lengths):
    docs = counted(work, a=[5], b=lengths)
    with pytest.raises(DataError, match=r"mixture: source b has weight 0\.5 and no targets left"):
        mix.mix(docs, asked({"a": {"weight": 1.0}, "b": {"weight": 0.5}}))
