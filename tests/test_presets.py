"""Presets: what their files hold, how a manifest lays its own bounds over them, and whom they judge."""

import json

import builders
import pyarrow as pa
import pytest

from datapipe import edits, signals, stages
from datapipe import manifest as manifests
from datapipe.cli import run
from datapipe.documents import Work
from datapipe.errors import ManifestError
from datapipe.manifest import Filter, advice, presets
from datapipe.scope import condition

NAMES = ("c4", "code", "fineweb", "fineweb@datatrove", "gopher_quality", "gopher_repetition", "quality_units")
HEAD = "name: a\nsources: {w: {files: [x]}}\n"


def filter_of(**keys) -> Filter:
    return Filter.model_validate({"stage": "filter"} | keys)


def test_the_presets_that_are_promised():
    assert presets.names() == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_a_preset_bounds_signals_and_says_what_it_is(name):
    preset = presets.load(name)
    assert preset.keep.keys() <= signals.SIGNALS.keys()
    assert preset.about
    assert set(preset.edits) <= edits.EDITS.keys()
    assert presets.text(name).startswith("# ")
    bounded = filter_of(preset=name)
    assert list(bounded.keep) == list(preset.keep)
    assert bounded.languages == preset.languages


def test_presets_for_english_say_so():
    english = {name for name in NAMES if presets.load(name).languages}
    assert english == {"c4", "fineweb", "fineweb@datatrove", "gopher_quality", "gopher_repetition"}
    assert all(presets.load(name).languages == ("en", "eng") for name in english)


def test_published_and_coded_fineweb_differ_in_one_bound():
    published, coded = presets.load("fineweb"), presets.load("fineweb@datatrove")
    assert published.keep == dict(coded.keep) | {"char_dup_ratio": {"max": 0.1}}
    assert coded.keep["char_dup_ratio"] == {"max": 0.01}


def test_what_is_written_lies_over_the_preset():
    keep = {"alpha_ratio": None, "hash_ratio": {"max": 0.5}, "unit_count": {"min": 3}}
    found = filter_of(preset="gopher_quality", keep=keep).model_dump(mode="json", by_alias=True)
    published = presets.load("gopher_quality").keep
    kept = [name for name in published if name != "alpha_ratio"]
    assert list(found["keep"]) == [*kept, "unit_count", "alpha_ratio"]
    assert found["keep"]["alpha_ratio"] is None
    assert Filter.model_validate(found).model_dump(mode="json", by_alias=True) == found
    assert found["keep"]["hash_ratio"] == {"min": None, "max": 0.5}
    assert found["keep"]["bullet_line_ratio"] == {"min": None, "max": 0.9}
    assert found["languages"] == ["en", "eng"]


def test_languages_can_be_written_for_the_presets():
    assert filter_of(preset="gopher_quality", languages=["en", "de"]).languages == ("en", "de")
    assert filter_of(preset="gopher_quality", languages=[]).languages == ()
    assert filter_of(keep={"word_count": {"min": 1}}).languages is None


def test_a_recipe_holds_the_bounds_and_not_only_the_name():
    loaded = manifests.parse(HEAD + "stages: [{stage: filter, preset: quality_units}]")
    (stage,) = loaded.recipe()["stages"]
    assert [name for name, _ in stage["keep"]] == list(presets.load("quality_units").keep)


def judged(*sources: str, languages: list[str] | None = None, **only) -> str:
    spec = filter_of(
        keep={"word_count": {"min": 1}},
        **({"languages": languages} if languages else {}),
        **({"only": only} if only else {}),
    )
    return condition(spec.only, spec.languages, frozenset(sources))


def test_a_preset_without_its_edits_is_worth_a_word():
    both = (
        "name: a\nsources: {w: {files: [x]}, v: {files: [x], edits: [c4_lines]}, "
        "u: {files: [x], edits: [c4_lines_relaxed]}}\n"
    )
    loaded = manifests.parse(
        both + "stages: [{stage: filter, preset: c4}, {stage: filter, preset: c4, only: {source: [v]}}]"
    )
    assert advice.warnings(loaded) == (
        "1:filter: preset c4 counts on c4_lines, which source w does not have under edits",
    )


def test_whom_a_filter_judges(tmp_path):
    values = [
        ("web", "en"), ("web", "EN-us"), ("web", "en_GB"), ("web", "eng_Latn"), ("web", "english"), ("web", "de"),
        ("web", None), ("code", "code:en"), ("mail", None), ("it's", None),
    ]  # fmt: skip
    records = [{"id": str(n), "text": "x", "source": source, "lang": lang} for n, (source, lang) in enumerate(values)]

    def found(where: str) -> list[int]:
        query = f"select part, row from documents where {where} order by part, row"
        return [part + row for part, row in docs.work.db.execute(query).fetchall()]

    with Work(tmp_path, "made", memory=200_000_000) as work:
        docs = builders.documents(work, records, parts=len(records))
        assert found(judged()) == list(range(10))
        assert found(judged(languages=["en", "eng"])) == [0, 1, 2, 3]
        assert found(judged("mail", "it's", languages=["en", "eng"])) == [0, 1, 2, 3, 8, 9]
        assert found(judged("mail", languages=["en"], source=["web", "mail"])) == [0, 1, 2, 8]
        assert found(judged("mail", languages=["en"], lang=["EN-us"])) == [1]


FOREIGN = [
    {"id": "a", "text": "привет " * 10 + "hello", "source": "mail"},
    {"id": "b", "text": "good words in Latin letters only", "source": "notes"},
    {"id": "c", "text": "café und Straße, in letters that are Latin", "source": "notes"},
    {"id": "d", "text": "日本語" * 20, "source": "web", "lang": "ja"},
]


def applied(tmp_path, spec: Filter):
    with Work(tmp_path, "made", memory=200_000_000) as work:
        docs = builders.documents(work, FOREIGN, parts=4)
        return docs.apply("filter", 1, stages.judge(spec, docs))


def test_bounds_for_english_refuse_a_source_in_another_script(tmp_path):
    message = "preset gopher_quality is made for en, eng, and source mail names no language: 92% of its letters are not"
    with pytest.raises(ManifestError, match=message):
        applied(tmp_path, filter_of(preset="gopher_quality"))


def test_a_source_that_is_named_is_judged(tmp_path):
    report = applied(tmp_path, filter_of(preset="gopher_quality", only={"source": ["mail", "web"]}))
    assert report.dropped == {"non_symbol_word_count < 50": 1}
    assert report.not_judged == {"notes": 2, "web": 1}


def test_documents_of_other_languages_are_counted_and_stay(tmp_path):
    report = applied(tmp_path, filter_of(keep={"word_count": {"min": 100}}, languages=["fr"]))
    assert report.dropped == {"word_count < 100": 3}  # no language: judged
    assert report.not_judged == {"web": 1}


@pytest.mark.parametrize(
    "text, dropped",
    [("a" * 95 + "я" * 5, {}), ("a" * 94 + "я" * 6, None)],
    ids=["five per cent pass", "six do not"],
)
def test_how_much_may_be_of_another_script(tmp_path, text, dropped):
    records = [{"id": "x", "text": text}]
    with Work(tmp_path, "made", memory=200_000_000) as work:
        docs = builders.documents(work, records)
        spec = filter_of(keep={"word_count": {"min": 1}}, languages=["en"])
        if dropped is None:
            with pytest.raises(ManifestError, match="6% of its letters"):
                stages.judge(spec, docs)
        else:
            assert docs.apply("filter", 1, stages.judge(spec, docs)).dropped == dropped


def test_a_bound_on_lang(tmp_path):
    records = [
        {"id": "a", "text": "x", "lang": "en"},
        {"id": "b", "text": "x", "lang": "de"},
        {"id": "c", "text": "x"},
        {"id": "d", "text": "x y", "lang": "fr"},
    ]
    with Work(tmp_path, "made", memory=200_000_000) as work:
        docs = builders.documents(work, records, parts=2)
        spec = filter_of(keep={"lang": {"in": ["en", "it"]}, "word_count": {"max": 1}})
        docs.apply("filter", 1, stages.judge(spec, docs))
        assert builders.ledger(docs) == [
            ("b", "lang not in en, it", None, {"in": ["en", "it"]}, True),
            ("c", "lang is null", None, {"in": ["en", "it"]}, True),
            ("d", "lang not in en, it", None, {"in": ["en", "it"]}, True),
            ("d", "word_count > 1", 2.0, {"max": 1}, False),
        ]


def test_show_prints_a_preset(capsys):
    assert run(["show", "--preset", "gopher_quality"]) == 0
    printed = capsys.readouterr().out
    assert printed.rstrip() == presets.text("gopher_quality").rstrip()
    assert run(["show", "--preset", "gopher_quality", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["keep"]["hash_ratio"] == {"max": 0.1}
    assert run(["show", "--preset", "gopher"]) == 2
    assert "there are c4, code, fineweb" in capsys.readouterr().err


def test_signals_have_one_type_each():
    texts = pa.array(["", "a b"], pa.large_string())
    for name, column in zip(signals.SIGNALS, signals.measure(texts, list(signals.SIGNALS)), strict=True):
        assert column.type in (pa.int64(), pa.float64()), name


def test_a_source_with_some_languages_is_judged_where_they_are_named(tmp_path):
    records = [
        {"id": "a", "text": "x", "source": "mixed", "lang": "en"},
        {"id": "b", "text": "x", "source": "mixed"},
        {"id": "c", "text": "x", "source": "bare"},
    ]
    with Work(tmp_path, "made", memory=200_000_000) as work:
        docs = builders.documents(work, records, parts=3)
        report = docs.apply(
            "filter", 1, stages.judge(filter_of(keep={"word_count": {"min": 9}}, languages=["en"]), docs)
        )
    assert report.dropped_by_source == {"bare": {"word_count < 9": 1}, "mixed": {"word_count < 9": 1}}
    assert report.not_judged == {"mixed": 1}, "a document without a language, where others have one"


VARIETIES = {
    "en": ["en", "EN-us", "en_GB"],
    "EN": ["en", "EN-us", "en_GB"],
    "en-GB": ["en_GB"],
    "zh_Hant": ["zh-Hant", "zh-Hant-TW"],
    "zh": ["zh", "zh-Hant", "zh-Hant-TW"],
    "eng_Latn": ["eng_Latn"],
    "e": [],
}


@pytest.mark.parametrize("language, expected", VARIETIES.items(), ids=VARIETIES)
def test_a_variety_of_a_language_is_a_language_too(tmp_path, language, expected):
    langs = ["en", "EN-us", "en_GB", "eng_Latn", "zh", "zh-Hant", "zh-Hant-TW", None]
    records = [{"id": str(n), "text": "x", "lang": lang} for n, lang in enumerate(langs)]
    with Work(tmp_path, "made", memory=200_000_000) as work:
        docs = builders.documents(work, records)
        query = f"select lang from documents where {judged(languages=[language])} order by row"
        assert [lang for (lang,) in docs.work.db.execute(query).fetchall()] == expected


@pytest.mark.parametrize("language", ["EN", "en-GB", "eng_Latn"])
def test_bounds_for_any_english_refuse_a_source_in_another_script(tmp_path, language):
    with pytest.raises(ManifestError, match="source mail names no language: 92% of its letters are not"):
        applied(tmp_path, filter_of(keep={"word_count": {"min": 1}}, languages=[language]))
