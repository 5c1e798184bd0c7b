"""The collateral table: equal to a count by hand, in a build, a dry run, on the screen and at a limit."""

import gzip
import json
import random
import re
from collections import Counter
from pathlib import Path
from typing import Any

import builders
import pytest
import synthetic
from ruamel.yaml import YAML

import datapipe
from datapipe import cli, collateral, pipeline, stages
from datapipe import manifest as manifests
from datapipe.books import Books, dropped
from datapipe.build_manifest import Built, DryRun, resolve
from datapipe.collateral import Table, percent, sentence, striking, worst
from datapipe.documents import Documents, Work
from datapipe.errors import ManifestError, PolicyError
from datapipe.manifest import Filter
from datapipe.read.planning import Plan, plan
from datapipe.read.sampling import quotas

SOURCES = {"web": ("en", "de", None), "code": (None,), "old": ("zh", "ja")}
KEEP = {"a": {"min": 30}, "b": {"min": 10, "max": 60}, "c": {"max": 70}}
RULES = {
    "a is null": lambda x: x.get("a") is None,
    "a < 30": lambda x: x.get("a") is not None and x["a"] < 30,
    "b is null": lambda x: x.get("b") is None,
    "b < 10": lambda x: x.get("b") is not None and x["b"] < 10,
    "b > 60": lambda x: x.get("b") is not None and x["b"] > 60,
    "c is null": lambda x: x.get("c") is None,
    "c > 70": lambda x: x.get("c") is not None and x["c"] > 70,
}


@pytest.fixture
def work(tmp_path):
    with Work(tmp_path, "made", workers=2, memory=200_000_000) as made:
        yield made


def records(n: int, seed: int = 1) -> list[dict[str, Any]]:
    """Documents of three sources with three numbers each, of which some are missing."""
    chance = random.Random(seed)
    found: list[dict[str, Any]] = []
    for i in range(n):
        source = chance.choice(list(SOURCES))
        numbers = {name: chance.randrange(100) for name in "abc" if chance.random() < 0.95}
        text = " ".join(["word"] * chance.randrange(1, 40)) + f" {i}"
        lang = chance.choice(SOURCES[source])
        found.append({"id": f"d{i}", "source": source, "lang": lang, "text": text, "extra": numbers})
    return found


def by_hand(judged: list[dict[str, Any]]) -> dict[tuple[str, str, str | None], Counter[str]]:
    """The table of a filter with KEEP, a document at a time."""
    found: dict[tuple[str, str, str | None], Counter[str]] = {}
    for record in judged:
        broken = [rule for rule, breaks in RULES.items() if breaks(record["extra"])]
        size = len(record["text"].encode())
        for place, rule in enumerate(broken):
            figures = found.setdefault((rule, record["source"], record["lang"]), Counter())
            figures["documents"] += 1
            figures["bytes"] += size
            if len(broken) == 1:
                figures["alone"] += 1
                figures["alone_bytes"] += size
            if place == 0:
                figures["decides"] += 1
                figures["decides_bytes"] += size
    return found


def apply(docs: Documents, place: int, **keys: object):
    spec = Filter.model_validate({"stage": "filter"} | keys)
    return docs.apply("filter", place, stages.judge(spec, docs))


@pytest.mark.parametrize("only", [None, {"source": ["web", "old"]}, {"lang": ["en", "ja"]}])
def test_the_table_is_what_a_count_by_hand_gives(work, only):
    made = records(600)
    before = {"d": {"min": 0}} if only is None else {"c": {"max": 95}}
    docs = builders.documents(work, [one | {"extra": one["extra"] | {"d": 1}} for one in made], parts=3)
    apply(docs, 1, keep=before)  # what an earlier filter took is not judged
    came = [one for one in made if only is None or one["extra"].get("c", 100) <= 95]
    judged = [one for one in came if all(one[name] in values for name, values in (only or {}).items())]
    report = apply(docs, 2, keep=KEEP, **({"only": only} if only else {}))

    expected = by_hand(judged)
    rows = {(row["rule"], row["source"], row["lang"]): row for row in report.notes["collateral"]}
    assert rows.keys() == expected.keys()
    for key, figures in expected.items():
        assert {name: rows[key][name] for name in collateral.FIGURES} == {n: figures[n] for n in collateral.FIGURES}
    count = Counter((one["source"], one["lang"]) for one in judged)
    assert {(row["source"], row["lang"]): row["documents"] for row in report.notes["judged"]} == count
    assert report.entered == sum(count.values()) + sum(report.not_judged.values())
    for source, rules in report.dropped_by_source.items():
        decides = {rule: sum(rows[key]["decides"] for key in rows if key[:2] == (rule, source)) for rule in rules}
        assert decides == rules, "the deciding rules are all that the stage dropped"


def test_the_order_of_the_table_is_by_name(work):
    docs = builders.documents(work, records(200))
    notes = apply(docs, 1, keep=KEEP).notes
    keys = [(row["rule"], row["source"], row["lang"] or "") for row in notes["collateral"]]
    assert keys == sorted(keys)
    assert [(row["source"], row["lang"] or "") for row in notes["judged"]] == [
        ("code", ""), ("old", "ja"), ("old", "zh"), ("web", ""), ("web", "de"), ("web", "en"),
    ]  # fmt: skip


def test_rare_languages_are_counted_together(work, monkeypatch):
    monkeypatch.setattr(collateral, "LANGUAGES", 2)
    langs = ["en"] * 5 + ["de"] * 4 + ["fr"] * 3 + ["pl"] * 2 + [None] * 7
    made = [{"id": f"{i}", "lang": lang, "text": f"text {i}", "extra": {"a": 1}} for i, lang in enumerate(langs)]
    notes = apply(builders.documents(work, made), 1, keep={"a": {"min": 2}}).notes
    assert {row["lang"]: row["documents"] for row in notes["judged"]} == {"en": 5, "de": 4, "*": 5, None: 7}
    assert {row["lang"]: row["alone"] for row in notes["collateral"]} == {"en": 5, "de": 4, "*": 5, None: 7}


def test_a_filter_that_meets_nobody(work):
    notes = apply(builders.documents(work, []), 1, keep=KEEP).notes
    assert notes == {"judged": [], "collateral": []}
    with Books(synthetic.build(work.store.folder / "old").path) as books:
        assert books.collateral() == Table(), "a build that did not count it is read all the same"


# --- what is said about it ---------------------------------------------------------------------------------------


def table(*rows: tuple[str, str, str | None, int, int, int]) -> Table:
    """(rule, source, lang, judged, documents, alone)..."""
    made = Table()
    judged = {(source, lang): n for _, source, lang, n, _, _ in rows}
    made.add(
        "1:filter",
        [{"source": source, "lang": lang, "documents": n, "bytes": 10 * n} for (source, lang), n in judged.items()],
        [
            {"rule": rule, "source": source, "lang": lang, "documents": n, "bytes": n, "alone": alone,
             "alone_bytes": alone, "decides": 0, "decides_bytes": 0}
            for rule, source, lang, _, n, alone in rows
        ],
    )  # fmt: skip
    return made


STRIKING = {
    "a large share of a source": (
        [("x > 1", "code", None, 100, 41, 20)],
        ["x > 1 takes 41% of code (41 of 100 judged), 20% alone"],
    ),
    "a small one": ([("x > 1", "code", None, 100, 19, 19)], []),
    "a large share of a handful": ([("x > 1", "code", None, 12, 9, 9)], []),
    "one language of a source": (
        [("x > 1", "web", "zh", 50, 40, 40), ("x > 1", "web", "en", 950, 10, 1)],
        ["x > 1 takes 80% of web in zh (40 of 50 judged), 80% alone"],
    ),
    "of all its languages alike": (
        [("x > 1", "web", "zh", 50, 25, 0), ("x > 1", "web", "en", 50, 25, 0)],
        ["x > 1 takes 50% of web (50 of 100 judged), 0% alone"],
    ),
    "of one of them much more": (
        [("x > 1", "web", "zh", 50, 50, 1), ("x > 1", "web", "*", 150, 0, 0)],
        [
            "x > 1 takes 100% of web in zh (50 of 50 judged), 2.0% alone",
            "x > 1 takes 25% of web (50 of 200 judged), 0.5% alone",
        ],
    ),
    "of the languages that are counted together": (
        [("x > 1", "web", "*", 20, 20, 20), ("x > 1", "web", "en", 980, 0, 0)],
        ["x > 1 takes 100% of web in other languages (20 of 20 judged), 100% alone"],
    ),
}


@pytest.mark.parametrize("rows, sentences", STRIKING.values(), ids=STRIKING)
def test_what_no_one_should_miss(rows, sentences):
    assert [sentence(row) for row in striking(table(*rows))] == sentences


def test_the_worst_stands_on_top():
    found = table(("b", "x", None, 10, 5, 1), ("a", "x", None, 10, 5, 1), ("c", "x", None, 10, 5, 2),
                  ("d", "y", None, 100, 60, 0))  # fmt: skip
    assert [row.rule for row in worst(found.rows)] == ["d", "c", "a", "b"]
    assert [row.together for row in found.by_source()] == [60, 3, 4, 4]


PERCENTS = [(0, 5, "0%"), (0, 0, "0%"), (1, 10**6, "0.01%"), (5, 10_000, "0.05%"), (3, 1000, "0.3%"),
            (99, 1000, "9.9%"), (999, 10_000, "10%"), (41, 100, "41%"), (7, 7, "100%")]  # fmt: skip


@pytest.mark.parametrize("part, whole, said", PERCENTS)
def test_shares(part, whole, said):
    assert percent(part, whole) == said


# --- builds and dry runs -----------------------------------------------------------------------------------------

WORDS = ("alpha", "beta", "gamma", "delta", "epsilon", "zeta")
STAGES: list[dict[str, Any]] = [
    {"stage": "filter", "keep": {"word_count": {"min": 20}, "score": {"max": 80}}},
    {"stage": "filter", "keep": {"score": {"min": 10}}, "only": {"source": ["code"]}},
    {"stage": "exact_dedup"},
]


def write(folder: Path, n: int = 400, files: int = 8) -> None:
    """Two sources, in several files each; code is short, and a fifth of the web is German."""
    chance = random.Random(5)
    for source in ("code", "web"):
        (folder / source).mkdir()
        for number in range(files):
            lines = []
            for i in range(n // files):
                length = chance.randrange(5, 40) if source == "code" else chance.randrange(15, 200)
                text = " ".join(chance.choice(WORDS) for _ in range(length))
                if i % 10 == 0:
                    text = f"e\u0301 {text}"
                record = {"id": f"{source}{number}-{i}", "text": text, "score": chance.randrange(100)}
                if source == "web":
                    record["lang"] = "de" if i % 5 == 0 else "en"
                lines.append(json.dumps(record))
            (folder / source / f"{number}.jsonl").write_text("\n".join(lines) + "\n")


def asked(folder: Path, **changes: object) -> Path:
    source = {"extra": ["score"], "edits": ["nfc"]}
    record: dict[str, Any] = {
        "name": "small",
        "sources": {
            "web": source | {"files": ["web/*.jsonl"], "fields": {"lang": "lang"}},
            "code": source | {"files": ["code/*.jsonl"]},
        },
        "stages": STAGES,
    } | changes
    with open(folder / "manifest.yaml", "w", encoding="utf-8") as file:
        YAML().dump(record, file)
    return folder / "manifest.yaml"


def run(path: Path, **keys: Any) -> Built | DryRun:
    options: dict[str, Any] = {"workers": 2, "memory": 500_000_000, "output": path.parent / "out"} | keys
    return pipeline.build(manifests.load(path), **options)


def build(path: Path) -> Built:
    built = run(path)
    assert isinstance(built, Built)
    return built


def sampled(path: Path, sample: int, **keys: Any):
    dry = run(path, dry_run=True, sample=sample, **keys)
    assert isinstance(dry, DryRun)
    assert dry.sample is not None
    return dry.sample


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    made = tmp_path_factory.mktemp("collateral")
    write(made)
    return made


@pytest.fixture(scope="module")
def built(folder) -> Built:
    return build(asked(folder))


def test_a_sample_of_everything_says_what_the_build_says(folder, built):
    found = sampled(asked(folder), 10_000)
    assert found.records == found.documents == {"code": 400, "web": 400}
    with Books(built.path) as books:
        assert found.collateral == books.collateral()
        assert found.collateral.rows
        assert found.not_judged == books.not_judged()
        left = "select source, count(*) from fates where stage is distinct from '1:filter' group by 1"
        assert books.manifest.stages[2].dropped_by_source.keys() == {"code"}
        passed = dict(books.query(left))
        second = books.manifest.stages[2].dropped_by_source["code"]
        assert found.left == {"web": passed["web"], "code": passed["code"] - sum(second.values())}
    assert found.edits == {"code": {"nfc": 40}, "web": {"nfc": 40}} == built.manifest.edits
    assert found.skipped == ("3:exact_dedup",)


def test_a_sample_is_the_same_whatever_the_machine_and_nothing_is_written(folder, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    output = tmp_path / "out"
    first = sampled(asked(folder), 200, workers=1, memory=300_000_000, output=output)
    second = sampled(asked(folder), 200, workers=3, memory=900_000_000, output=output)
    assert first == second
    assert list(tmp_path.iterdir()) == []
    assert 140 < sum(first.records.values()) < 260
    assert all(n > 20 for n in first.records.values())
    share = {row.rule: row.share for row in first.collateral.by_source() if row.source == "code"}
    assert share["word_count < 20"] == pytest.approx(15 / 35, abs=0.2)


def test_a_source_that_the_manifest_samples_gives_as_many(folder):
    path = asked(folder)
    record = YAML(typ="safe").load(path.read_text())
    record["sources"]["web"]["sample"] = 0.25
    found = sampled(asked(folder, sources=record["sources"]), 100)
    assert found.records["web"] > 2 * found.documents["web"] > 80


def test_a_source_that_a_sample_hardly_meets_is_no_mistake(folder):
    record = YAML(typ="safe").load(asked(folder).read_text())
    record["sources"]["web"]["snapshot"] = {"name": ["en", "de", "tlh"]}
    record["sources"]["web"]["fields"]["snapshot"] = "lang"
    assert sampled(asked(folder, sources=record["sources"]), 50).documents["web"] > 0


QUOTAS = {
    "by bytes, and a quarter evenly": (80, {"a": (9_000, 9_000), "b": (1_000, 1_000)}, {"a": 64, "b": 16}),
    "no more than there are": (1000, {"a": (9_000, 30), "b": (1_000, 10)}, {"a": 30, "b": 10}),
    "what one does not have the other gives": (100, {"a": (9_000, 40), "b": (9_000, 900)}, {"a": 40, "b": 60}),
    "where nothing tells how many": (10, {"a": (9_000, None), "b": (0, 0)}, {"a": 5, "b": 0}),
}


@pytest.mark.parametrize("number, sizes, expected", QUOTAS.values(), ids=QUOTAS)
def test_how_many_of_each_source(tmp_path, number, sizes, expected):
    sources = {}
    for name in sizes:
        (tmp_path / f"{name}.jsonl").write_text(f'{{"text": "{name}"}}\n')
        sources[name] = {"files": [f"{name}.jsonl"]}
    made: Plan = plan(manifests.load(asked(tmp_path, sources=sources, stages=[])), workers=1)
    found = quotas(made, number, {one: sizes[one.source] for one in made.inputs})
    assert found == expected


@pytest.mark.parametrize("form", ["jsonl.zst", "parquet", "csv", "txt"])
def test_every_format_is_sampled(tmp_path, form):
    import pyarrow as pa
    import pyarrow.csv
    import pyarrow.parquet as pq
    import zstandard

    texts = [f"alpha beta {i}" for i in range(300)]
    (tmp_path / "in").mkdir()
    target = tmp_path / "in" / f"all.{form}"
    if form == "parquet":
        pq.write_table(pa.table({"text": texts}), target, row_group_size=50)
    elif form == "csv":
        pyarrow.csv.write_csv(pa.table({"text": texts}), target)
    elif form == "txt":
        for i, text in enumerate(texts):
            (tmp_path / "in" / f"{i}.txt").write_text(text)
    else:
        lines = "".join(json.dumps({"text": text}) + "\n" for text in texts)
        target.write_bytes(zstandard.compress(lines.encode()))
    path = asked(tmp_path, sources={"web": {"files": ["in/*"], "fields": {"id": None}}},
                 stages=[{"stage": "filter", "keep": {"word_count": {"min": 9}}}])  # fmt: skip
    found = sampled(path, 100)
    assert 60 < found.documents["web"] < 140
    assert found.left["web"] == 0


@pytest.mark.parametrize("packed", [False, True], ids=["in ranges", "as a stream"])
def test_a_large_file_is_sampled_without_reading_it_whole(tmp_path, monkeypatch, packed):
    """A range here and there of a file that can be split; the first part of one that can not."""
    monkeypatch.setattr("datapipe.read.planning.RANGE", 40_000)
    monkeypatch.setattr("datapipe.read.streams.BLOCK", 20_000)
    for module in ("part", "sampling"):
        monkeypatch.setattr(f"datapipe.read.{module}.PART", 300_000)
    chance = random.Random(3)
    lines = [json.dumps({"text": chance.randbytes(80).hex(), "n": n}) + "\n" for n in range(6000)]
    data = "".join(lines).encode()
    (tmp_path / ("all.jsonl.gz" if packed else "all.jsonl")).write_bytes(gzip.compress(data) if packed else data)
    path = asked(tmp_path, sources={"web": {"files": ["all.*"], "extra": ["n"], "fields": {"id": None}}},
                 stages=[{"stage": "filter", "keep": {"n": {"max": 1999}}}])  # fmt: skip
    found = sampled(path, 100)
    assert 60 < found.documents["web"] < 140
    if packed:
        assert found.left == found.documents, "300,000 of 1.1 million bytes"
    else:
        assert found.documents["web"] / 6 < found.left["web"] < found.documents["web"] / 1.7, "a third lies before"


def test_a_filter_that_the_build_refuses_is_refused(tmp_path):
    text = "春眠不覺曉處處聞啼鳥夜來風雨聲花落知多少" * 3
    (tmp_path / "zh.jsonl").write_text("".join(json.dumps({"text": f"{text}{i}"}) + "\n" for i in range(30)))
    stage = {"stage": "filter", "keep": {"word_count": {"min": 1}}, "languages": ["en"]}
    path = asked(tmp_path, sources={"poems": {"files": ["zh.jsonl"]}}, stages=[stage])
    with pytest.raises(ManifestError, match="poems"):
        sampled(path, 20)


def test_the_record_is_checked_against_the_ledger(built, tmp_path):
    import shutil

    copy = Path(shutil.copytree(built.path, tmp_path / built.path.name))
    assert datapipe.verify(str(copy)).ok
    record = json.loads((copy / "manifest.json").read_bytes())
    record["stages"][1]["collateral"][0]["alone"] += 1
    synthetic.change(copy, stages=record["stages"])
    (check,) = [check for check in datapipe.verify(str(copy)).checks if check.name == "collateral"]
    assert len(check.differences) == 1
    assert "the ledger says" in check.differences[0]


def test_texts_that_broke_a_rule_where_another_decided(built):
    with Books(built.path) as books:
        rows = list(dropped(books, "score > 80", None, "web"))
        (found,) = [row for row in books.collateral().by_source() if (row.rule, row.source) == ("score > 80", "web")]
        assert (len(rows), sum(row["decides"] for row in rows)) == (found.documents, found.decides)
        assert found.documents > found.decides > 0
        assert {row["source"] for row in rows} == {"web"}
        assert all(row["value"] > 80 for row in rows)
        assert all(row["decides"] for row in dropped(books, "1:filter", None)), "of a stage each, by what decided"
        with pytest.raises(ManifestError, match="there are: code, web"):
            list(dropped(books, "score > 80", None, "nope"))


# --- on the screen -----------------------------------------------------------------------------------------------


def said(capsys, *args: object) -> tuple[int, str, str]:
    status = cli.run([str(arg) for arg in args])
    out = capsys.readouterr()
    return status, out.out, out.err


def test_show(capsys, folder, built):
    output = folder / "out"
    status, out, _ = said(capsys, "show", "small", "--output", output)
    assert status == 0
    assert "! word_count < 20 takes 4" in out
    assert "of code" in out.split("! word_count < 20 takes")[1].split("\n")[0]
    assert f"not judged\n  2:filter: {built.manifest.stages[2].not_judged['web']} of web" in out
    _, out, _ = said(capsys, "show", "small", "--collateral", "--output", output)
    assert "1:filter, web: % of the judged that break a rule / that one alone" in out
    assert "rule             en" in out, "the languages of web, the most common first"
    _, out, _ = said(capsys, "show", "small", "--collateral", "-n", 2, "--output", output)
    assert "and 3 more rows" in out
    found = json.loads(said(capsys, "show", "small", "--collateral", "--json", "--output", output)[1])
    whole = json.loads(said(capsys, "show", "small", "--json", "--output", output)[1])
    assert found["collateral"] == whole["collateral"]
    assert {row["lang"] for row in found["collateral"]} == {None, "de", "en"}


def test_a_dry_run_with_a_sample(capsys, folder):
    path = asked(folder)
    status, out, _ = said(capsys, "build", path, "--dry-run", "--sample", 300, "--output", folder / "other")
    assert status == 0
    for part in ("sample of ", "not simulated: 3:exact_dedup", "not judged\n  2:filter: ", "! word_count < 20 takes",
                 "web     nfc", "1:filter, web: %"):  # fmt: skip
        assert part in out
    args = ("build", path, "--dry-run", "--sample", 300, "--json", "--output", folder / "other")
    found = json.loads(said(capsys, *args)[1])
    assert found["sample"]["asked"] == 300
    assert found["sample"]["judged"]
    assert found["sample"]["collateral"][0]["share"] > 0.2
    assert not (folder / "other").exists()
    assert said(capsys, "build", path, "--sample", 5)[0] == 2, "a build reads everything"


def test_a_limit_names_the_rules_and_shows_what_they_took(capsys, tmp_path):
    write(tmp_path)
    path = asked(tmp_path, limits={"removed_per_source": 0.4})
    with pytest.raises(PolicyError) as refused:
        run(path)
    message = str(refused.value)
    assert "source code: edits and stages removed " in message
    assert "limits.removed_per_source lets 40% go; most by\n  1:filter: word_count < 20 decides " in message
    assert " alone, " in message
    assert "source web" not in message
    (warned,) = sampled(path, 300).warnings
    form = re.compile(
        r"source code: edits and stages removed \d+ of \d+ documents .+ lets 40% go; most by\n  1:filter: word_c"
    )
    assert form.match(warned), "a sample warns in the same words"
    assert form.match(message)

    output = tmp_path / "out"
    failed = output / "small" / "failed"
    assert str(failed) in message
    with Books(failed) as books:
        (row,) = [
            row for row in books.collateral().by_source() if (row.rule, row.source) == ("word_count < 20", "code")
        ]
    assert f"decides {row.decides}, and takes {row.documents}: {row.alone} alone, {row.together} with" in message
    for build_ in (failed, "small@failed"):
        status, out, _ = said(capsys, "show", build_, "--collateral", "--output", output)
        assert status == 0
        assert "a limit refused it, so this is no version" in out
        assert "! word_count < 20 takes" in out
    _, out, _ = said(capsys, "show", failed, "--dropped", "word_count < 20", "--source", "code", "-n", 1)
    assert "code" in out
    assert "  | " in out, "the text"
    _, out, _ = said(capsys, "show", failed, "--what-if", "1:word_count.min=none")
    assert "dropped now" in out
    status, _, _ = said(capsys, "verify", failed, "--output", output)
    assert status == 2, "only show reads what is no version"
    with pytest.raises(ManifestError):
        resolve("small@failed", output)
