"""What must hold through a whole build: holdout, copies, odd texts, and peers' failing inputs from file to shard."""

import json
import random
from collections import Counter
from pathlib import Path

import naive
import pyarrow.parquet as pq
import pytest
from test_pipeline import asked, build, prose, write_jsonl
from test_tokens import spec, words
from tokenizers import Tokenizer as Library

import datapipe
from datapipe import cli
from datapipe.books import Books, what_if
from datapipe.build_manifest import Built
from datapipe.errors import DataError

EOS = "<eos>"
LAX = {"limits": {"rejected": 100, "quarantined": 100, "removed_per_source": 1.0}}
NO_TOKENS: dict = {"tokenizer": None, "sequences": None, "shards": None}


def fates(built: Built) -> list[dict]:
    return pq.read_table(built.path / "fates.parquet").to_pylist()


def rows(built: Built, split: str = "train") -> list[dict]:
    """Packed sequences in order."""
    return [row for path in sorted((built.path / split).glob("*.parquet")) for row in pq.read_table(path).to_pylist()]


def stored(built: Built) -> dict[tuple[int, int], dict]:
    """Documents by (part, row)."""
    found = {}
    for part, path in enumerate(sorted((built.path / "documents").iterdir())):
        found |= {(part, row): value for row, value in enumerate(pq.read_table(path).to_pylist())}
    return found


def by_id(built: Built) -> dict[str, dict]:
    """Own id -> the document's fate, with its text and the ids of its tokens in each copy."""
    texts, found = stored(built), {}
    for doc, fate in enumerate(fates(built)):
        document = texts[fate["part"], fate["row"]]
        found[document["id"]] = fate | {"doc": doc, "text": document["text"], "ids": ids(built, doc)}
    return found


def ids(built: Built, doc: int) -> list[list[int]]:
    """The tokens of a document in all shards, a list a segment, by where they begin in the document."""
    found = []
    for split in ("train", "validation"):
        for row in rows(built, split):
            at = 0
            for size, whose, start in zip(row["seg_len"], row["seg_doc"], row["seg_start"], strict=True):
                if whose == doc:
                    found.append((start, row["input_ids"][at : at + size]))
                at += size
    return [tokens for _, tokens in sorted(found)]


def plain(folder: Path, pattern: str = "in/*.jsonl", **changes: object) -> Built:
    """A build of `folder` with a tokenizer of every word in it and one stage, `changes` are other keys."""
    record: dict = {"sources": {"web": {"files": [pattern]}}, "stages": [], "sequences": {"length": 8}}
    return build(asked(folder, **record | changes), folder / "out")


def word_tokenizer(folder: Path, texts: list[str]) -> dict:
    """A WordLevel tokenizer of every word of the texts; <unk> is 0, <eos> 1."""
    vocabulary = {"<unk>": 0, EOS: 1} | {w: n for n, w in enumerate(sorted({w for t in texts for w in t.split()}), 2)}
    path = folder / "tokenizer.json"
    made = spec(words(vocabulary), {"type": "WhitespaceSplit"}, added=[(0, "<unk>", True), (1, EOS, True)])
    path.write_text(json.dumps(made), encoding="utf-8")
    return {"file": str(path), "eos": EOS}


# --- holdout -----------------------------------------------------------------------------------------------------

GROUPS = 40


def planted(folder: Path) -> None:
    """A text in one file of `web`; a copy in its other file, one in `books`; near copies there too."""
    texts = {n: prose(n) for n in range(GROUPS)}
    write_jsonl(folder / "in" / "a.jsonl", [{"id": f"{n} original", "text": t} for n, t in texts.items()])
    write_jsonl(
        folder / "in" / "b.jsonl",
        [{"id": f"{n} copy in web", "text": f" {t}\n"} for n, t in texts.items()]
        + [{"id": f"{n} near in web", "text": f"{t} and more"} for n, t in texts.items()],
    )
    write_jsonl(
        folder / "in" / "books" / "c.jsonl",
        [{"id": f"{n} copy in books", "text": t.replace(" ", "  ")} for n, t in texts.items()]
        + [{"id": f"{n} near in books", "text": f"another start {t}"} for n, t in texts.items()],
    )


def side_by_side(folder: Path, **changes: object) -> Built:
    sources = {
        "web": {"files": ["in/*.jsonl"], "priority": 5},  # train must leave whatever it is worth
        "books": {"files": ["in/books/*.jsonl"]},
    }
    stages = [{"stage": "holdout", "fraction": 0.2, "by": "id"}, {"stage": "exact_dedup"}, {"stage": "near_dedup"}]
    limits = {"removed_per_source": 1.0}
    return build(asked(folder, sources=sources, stages=stages, limits=limits, **changes), folder / "out")


def test_no_copy_of_validation_is_left_in_train_and_the_leak_counts_them(tmp_path: Path):
    """Copies and near copies across files and sources; each document is a group of its own."""
    planted(tmp_path)
    built = side_by_side(tmp_path)
    found = by_id(built)
    apart = {name.split()[0] for name, one in found.items() if one["split"] == "validation"}
    trained = {name.split()[0] for name, one in found.items() if one["split"] == "train" and one["fate"] == "kept"}
    assert apart | trained == {str(n) for n in range(GROUPS)}
    assert not apart & trained
    assert apart
    assert trained

    kept = {one["doc_id"]: one for one in found.values()}
    crossed = Counter()
    for line in pq.read_table(built.path / "ledger.parquet").to_pylist():
        why = kept[json.loads(line["evidence"])["kept"]]
        if kept[line["doc_id"]]["split"] == "train" and why["split"] == "validation":
            crossed[line["stage"]] += 1
        assert not (kept[line["doc_id"]]["split"] == "validation" and why["split"] == "train")
    leak = json.loads((built.path / "manifest.json").read_bytes())["holdout"]["leak"]
    assert (leak["exact"], leak["near"]) == (crossed["2:exact_dedup"], crossed["3:near_dedup"])
    assert min(crossed["2:exact_dedup"], crossed["3:near_dedup"]) > 5
    assert datapipe.verify(str(built.path)).ok


def test_membership_moves_neither_with_the_seed_nor_with_more_documents(tmp_path: Path):
    planted(tmp_path)
    splits = []
    for seed, more in ((1, 0), (2, 0), (1, 20)):
        write_jsonl(tmp_path / "in" / "more.jsonl", [{"id": f"new {n}", "text": prose(1000 + n)} for n in range(more)])
        built = side_by_side(tmp_path, seed=seed)
        splits.append({fate["doc_id"]: fate["split"] for fate in fates(built)})
    assert len(splits[2]) == len(splits[0]) + 20
    assert splits[1] == splits[0]
    assert {doc: splits[2][doc] for doc in splits[0]} == splits[0]


# --- copies ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("packing", ["best_fit", "concat"])
def test_no_row_holds_a_document_twice(tmp_path: Path, packing: str):
    """Short documents of which a small source gives four to five copies each: chance would put two into a row."""
    write_jsonl(tmp_path / "in" / "a.jsonl", [{"id": f"a{n}", "text": prose(n, 4)} for n in range(60)])
    write_jsonl(tmp_path / "in" / "books" / "b.jsonl", [{"id": f"b{n}", "text": prose(100 + n, 30)} for n in range(60)])
    built = plain(
        tmp_path,
        sources={"web": {"files": ["in/*.jsonl"]}, "books": {"files": ["in/books/*.jsonl"]}},
        mixture={"web": {"weight": 0.375, "epochs": 4.5}, "books": {"weight": 0.625}},
        tokenizer=word_tokenizer(tmp_path, [prose(n, 4) for n in range(60)]),
        sequences={"length": 64, "packing": packing},
    )
    held = Counter()
    for row in rows(built):
        assert len(set(row["seg_doc"])) == len(row["seg_doc"])
        held.update(
            doc
            for doc, start, again in zip(row["seg_doc"], row["seg_start"], row["seg_flags"], strict=True)
            if again & 1
        )
    assert held == Counter({doc: fate["copies"] for doc, fate in enumerate(fates(built)) if fate["copies"]})
    assert max(held.values()) >= 4
    assert max(len(row["seg_doc"]) for row in rows(built)) > 4


# --- other bounds ------------------------------------------------------------------------------------------------

FIRST = {"word_count": {"min": 20, "max": 90}, "score": {"min": 5}}


@pytest.mark.parametrize(
    "expressions, first, second",
    [
        (["word_count.min=40"], FIRST | {"word_count": {"min": 40, "max": 90}}, 30),
        (["word_count.min=10", "word_count.max=none"], FIRST | {"word_count": {"min": 10}}, 30),
        (["unit_count.min=55"], FIRST, 55),
        (["word_count.max=50", "unit_count.min=1"], FIRST | {"word_count": {"min": 20, "max": 50}}, 1),
        (["score.min=none", "score.max=70"], FIRST | {"score": {"max": 70}}, 30),
    ],
    ids=["tighter", "looser", "the second filter", "both", "a field that some documents do not have"],
)
def test_what_if_says_what_a_build_with_these_bounds_does(
    tmp_path: Path, expressions: list[str], first: dict, second: int
):
    """Dropped by filter and source, documents lost and gained; filters alone, so nothing is unknown."""
    records = [{"id": f"{n}", "text": prose(n, n)} | ({"score": n} if n % 11 else {}) for n in range(1, 120)]
    write_jsonl(tmp_path / "in" / "a.jsonl", records[::2])
    write_jsonl(tmp_path / "in" / "books" / "b.jsonl", records[1::2])

    def made(bounds: dict, least: int) -> Built:
        return plain(
            tmp_path,
            sources={
                "web": {"files": ["in/*.jsonl"], "extra": ["score"]},
                "books": {"files": ["in/books/*.jsonl"], "extra": ["score"]},
            },
            stages=[
                {"stage": "filter", "keep": bounds},
                {"stage": "filter", "keep": {"unit_count": {"min": least}}, "only": {"source": ["web"]}},
            ],
            **NO_TOKENS,
        )

    before, after = made(FIRST, 30), made(first, second)
    with Books(before.path) as books:
        told = what_if(books, expressions)
    assert not told.unknown
    dropped = {
        (stage.title, source): sum(rules.values())
        for stage in after.manifest.stages
        for source, rules in stage.dropped_by_source.items()
    }
    assert {(one.stage, one.source): one.then for one in told.changes if one.then} == dropped
    kept = [{fate["doc_id"]: fate for fate in fates(built) if fate["fate"] == "kept"} for built in (before, after)]
    gone = Counter(kept[0][name]["source"] for name in kept[0].keys() - kept[1].keys())
    come = Counter(kept[1][name]["source"] for name in kept[1].keys() - kept[0].keys())
    assert {source: lost["documents"] for source, lost in told.lost.items()} == gone
    assert told.arriving == come
    assert gone or come


# --- odd texts ---------------------------------------------------------------------------------------------------

ODD = {
    "no word": (b'{"id": "no word", "text": " \\n\\u3000"}', "empty text"),
    "no text": (b'{"id": "no text", "text": ""}', "empty text"),
    "one word": (b'{"id": "one word", "text": "sun"}', "sun"),
    "one word again": (b'{"id": "one word again", "text": "moon"}', "moon"),
    "n - 1 words": (b'{"id": "n - 1 words", "text": "one two three four"}', "one two three four"),
    "n - 1 others": (b'{"id": "n - 1 others", "text": "one two three five"}', "one two three five"),
    "a lone surrogate": (b'{"id": "a lone surrogate", "text": "a\\ud800b"}', "a\ufffdb"),
    "only a lone surrogate": (b'{"id": "only a lone surrogate", "text": "\\udfff"}', "\ufffd"),
    "a pair the wrong way round": (b'{"id": "a pair the wrong way round", "text": "\\ude00\\ud83d"}', "\ufffd\ufffd"),
    "a pair": (b'{"id": "a pair", "text": "\\ud83d\\ude00"}', "\U0001f600"),
    "NUL": (b'{"id": "NUL", "text": "c\\u0000d"}', "c\0d"),
    "only NUL": (b'{"id": "only NUL", "text": "\\u0000"}', "\0"),
    "combining marks": (
        b'{"id": "combining marks", "text": "cafe\\u0301 o\\u0323\\u0302"}',
        "cafe\u0301 o\u0323\u0302",
    ),
    "only a mark": (b'{"id": "only a mark", "text": "\\u0301"}', "\u0301"),
    "a thousand marks": (
        b'{"id": "a thousand marks", "text": "a' + b"\\u0301" * 1000 + b'"}',
        "a" + "\u0301" * 1000,
    ),
}


@pytest.fixture(scope="module")
def odd(tmp_path_factory: pytest.TempPathFactory) -> Built:
    """Every odd text on a line of its own, between two ordinary ones; byte-level tokens, both dedups."""
    folder = tmp_path_factory.mktemp("odd")
    (folder / "in").mkdir()
    lines = [json.dumps({"id": "first", "text": prose(1)}).encode(), *(line for line, _ in ODD.values())]
    (folder / "in" / "a.jsonl").write_bytes(b"\n".join([*lines, json.dumps({"id": "last", "text": prose(2)}).encode()]))
    stages = [{"stage": "exact_dedup"}, {"stage": "near_dedup"}]
    return build(asked(folder, stages=stages), folder / "out")


@pytest.mark.parametrize("name", ODD)
def test_an_odd_text_through_a_whole_build(odd: Built, name: str):
    """What was read is what is stored, named, tokenized and packed: the ids decode to it."""
    _, text = ODD[name]
    found = by_id(odd)
    if text == "empty text":
        assert name not in found
        return
    one = found[name]
    assert (one["text"], one["bytes"], one["fate"], one["copies"]) == (text, len(text.encode()), "kept", 1)
    library = Library.from_file(str(odd.path / "tokenizer.json"))
    whole = [piece if n == 0 else piece[1:] for n, piece in enumerate(one["ids"])]  # one token is repeated at a cut
    *own, eos = [token for piece in whole for token in piece]
    assert eos == library.token_to_id(EOS)
    assert library.decode(own, skip_special_tokens=False) == text
    assert len(own) + 1 == one["tokens"]


def test_the_books_of_odd_texts(odd: Built):
    refused = sum(text == "empty text" for _, text in ODD.values())
    assert records_of(odd) == {
        "records": len(ODD) + 2, "documents": len(ODD) + 2 - refused, "rejected": refused, "quarantined": 0, "blank": 0,
    }  # fmt: skip
    assert datapipe.verify(str(odd.path), everything=True).ok
    units = {fate["doc_id"] for fate in fates(odd)}
    signed = pq.read_table(odd.path / "signatures.parquet").to_pylist()
    assert {line["doc_id"] for line in signed} == units
    texts = {one["doc_id"]: one["text"] for one in by_id(odd).values()}
    assert {line["doc_id"]: line["n_shingles"] for line in signed} == {
        name: len(naive.shingles(text, 5)) for name, text in texts.items()
    }


def test_a_document_of_20_megabytes_through_a_whole_build(tmp_path: Path):
    """One line of 200,000 words of 100 bytes between two short ones: every token is in a row, none is unknown."""
    names = [f"w{n}é" + "x" * 96 for n in range(9)]
    text = " ".join([*names, *(names[0] for _ in range(199_991))])
    write_jsonl(
        tmp_path / "in" / "a.jsonl",
        [{"id": "a", "text": names[1]}, {"id": "book", "text": text}, {"id": "b", "text": f"{names[3]} {names[4]}"}],
    )
    built = plain(
        tmp_path,
        tokenizer=word_tokenizer(tmp_path, names),
        stages=[{"stage": "exact_dedup"}, {"stage": "near_dedup"}],
        sequences={"length": 4096},
        shards={"tokens": 1_000_000},
    )
    (book,) = [fate for fate in fates(built) if fate["bytes"] > 20_000_000]
    assert (book["bytes"], book["fate"], book["tokens"]) == (len(text.encode()), "kept", 200_001)
    splits = json.loads((built.path / "manifest.json").read_bytes())["splits"]["train"]
    assert splits["tokens"]["stored"] - splits["tokens"]["repeated_context"] == 200_001 + 2 + 3
    assert splits["tokens"]["targets"] == 200_000 + 1 + 2
    held = Counter(token for row in rows(built) for token in row["input_ids"][: row["n_tokens"]])
    assert held[0] == 0
    assert held[1] == 3


# --- peers' failing inputs, from file to shard -------------------------------------------------------------------


def case(shared: Path, name: str) -> tuple[Path, dict]:
    folder = shared / "cases" / name
    return folder, json.loads((folder / "EXPECT.json").read_bytes())["expect"]


def records_of(built: Built) -> dict[str, int]:
    """Sums over all inputs."""
    inputs = json.loads((built.path / "manifest.json").read_bytes())["inputs"]
    names = ("records", "documents", "rejected", "quarantined", "blank")
    return {name: sum(book[name] for book in inputs) for name in names}


def test_b08_the_counts_say_what_happened_to_every_line(tmp_path: Path, shared: Path):
    folder, expect = case(shared, "B08")
    built = plain(tmp_path, str(folder / "lines.jsonl"), **LAX, **NO_TOKENS)
    told = records_of(built)
    assert told["records"] == expect["physical_lines"]
    assert told["documents"] + told["rejected"] + told["quarantined"] + told["blank"] == told["records"]
    assert set(expect["must_accept"]) <= {document["id"] for document in stored(built).values()}
    refused = [
        line
        for name in ("rejected", "quarantine")
        for line in pq.read_table(built.path / f"{name}.parquet").to_pylist()
    ]
    assert set(expect["must_reject_lines"]) <= {line["line"] for line in refused}
    assert all(line["file"] == "lines.jsonl" and line["reason"] for line in refused)


def test_b14_short_texts_through_reading_and_both_dedups(tmp_path: Path, shared: Path):
    folder, expect = case(shared, "B14")
    stages = [{"stage": "exact_dedup"}, {"stage": "near_dedup"}]
    built = plain(tmp_path, str(folder / "short.jsonl"), stages=stages, **LAX, **NO_TOKENS)
    told = records_of(built)
    assert (told["records"], told["rejected"] + told["blank"]) == (expect["read"], expect["empty"])
    dropped = {stage.title: sum(stage.dropped.values()) for stage in built.manifest.stages}
    assert (dropped["1:exact_dedup"], dropped["2:near_dedup"]) == (expect["exact_removed"], expect["minhash_removed"])
    kept = sorted(one["text"] for one in by_id(built).values() if one["fate"] == "kept")
    assert kept == sorted(expect["kept_texts"])


SCRIPTS = {
    "Chinese": ("".join(map(chr, range(0x4E00, 0x4F00))), ""),
    "kana": ("".join(map(chr, range(0x3041, 0x3094))), ""),
    "Thai": ("".join(map(chr, range(0x0E01, 0x0E2F))), ""),
    "Arabic": ("".join(map(chr, range(0x0627, 0x064B))), " "),
    "Russian": ("абвгдежзийклмнопрстуфхцчшщъыьэюя", " "),
    "Hindi": ("".join(map(chr, range(0x0915, 0x0939))) + "\u093e\u093f\u0940", " "),
    "Latin": ("abcdefghijklmnopqrstuvwxyz", " "),
}


def test_b15_near_copies_and_strangers_in_every_script(tmp_path: Path):
    """Two unrelated texts a script, and one of them with its last unit changed: that one leaves, and no other."""

    def text(script: str, seed: int, last: str) -> str:
        letters, between = SCRIPTS[script]
        chance = random.Random(f"{script} {seed}")
        pieces = ["".join(chance.choice(letters) for _ in range(5)) for _ in range(60)]
        return between.join([*pieces, last])

    records = []
    for script, (letters, _) in SCRIPTS.items():
        for name, seed, last in (("a", 1, letters[0]), ("b", 2, letters[0]), ("b changed", 2, letters[1])):
            records.append({"id": f"{script} {name}", "text": text(script, seed, last)})
    write_jsonl(tmp_path / "in" / "a.jsonl", records)
    stages = [{"stage": "exact_dedup"}, {"stage": "near_dedup"}]
    built = plain(tmp_path, stages=stages, **NO_TOKENS)
    found = by_id(built)
    kept = {one["doc_id"]: name for name, one in found.items() if one["fate"] == "kept"}
    dropped = {name: one for name, one in found.items() if one["fate"] == "dropped"}
    assert {name.split()[0] for name in dropped} == set(SCRIPTS)
    assert len(kept) == 2 * len(SCRIPTS)
    for line in pq.read_table(built.path / "ledger.parquet").to_pylist():
        assert line["stage"] == "2:near_dedup"
        assert kept[json.loads(line["evidence"])["kept"]].split()[:2] == [
            next(name for name, one in dropped.items() if one["doc_id"] == line["doc_id"]).split()[0],
            "b",
        ]


def test_b17_the_same_survivors_in_every_layout_of_files(tmp_path: Path, shared: Path):
    folder, expect = case(shared, "B17")
    stages, found = [{"stage": "exact_dedup"}, {"stage": "near_dedup"}], set()
    for number, workers in zip((1, 2, 3), expect["workers"], strict=False):
        manifest = asked(
            tmp_path, sources={"web": {"files": [str(folder / f"layout{number}" / "*.jsonl")]}}, stages=stages,
            **LAX, **NO_TOKENS,
        )  # fmt: skip
        built = build(manifest, tmp_path / f"out{number}", workers=workers)
        kept = tuple(sorted(fate["doc_id"] for fate in fates(built) if fate["fate"] == "kept"))
        assert len(fates(built)) - len(kept) == expect["removed"]
        found.add((kept, built.manifest.dataset_id))
    assert len(found) == 1


@pytest.mark.parametrize("fraction, salt, workers", [(0.1, "x", 1), (0.3, "y", 4), (0.3, "z", 2)])
def test_b19_no_group_is_on_both_sides(tmp_path: Path, shared: Path, fraction: float, salt: str, workers: int):
    """Groups of an original, a copy and a near copy, where the holdout does not know the groups."""
    folder, expect = case(shared, "B19")
    stages = [
        {"stage": "holdout", "fraction": fraction, "salt": salt, "by": "id"},
        {"stage": "exact_dedup"},
        {"stage": "near_dedup"},
    ]
    manifest = asked(tmp_path, sources={"web": {"files": [str(folder / "*.jsonl")]}}, stages=stages, **LAX, **NO_TOKENS)
    built = build(manifest, tmp_path / "out", workers=workers)
    found = by_id(built)
    sides = {
        split: {name[:3] for name, one in found.items() if one["split"] == split and one["fate"] == "kept"}
        for split in ("train", "validation")
    }
    assert len(found) == expect["read"]
    assert not sides["train"] & sides["validation"]
    assert len(sides["train"] | sides["validation"]) == expect["groups"]
    assert {name[:3] for name, one in found.items() if one["split"] == "validation"} == sides["validation"]


def test_b21_eos_stands_once_a_document_and_nowhere_else(tmp_path: Path, shared: Path):
    folder, expect = case(shared, "B21")
    tokenizer = {"file": str(folder / "toy_tokenizer.json"), "eos": "<|endoftext|>", "pad": "<pad>"}
    built = plain(tmp_path, str(folder / "literals.jsonl"), tokenizer=tokenizer, sequences={"length": 16})
    assert {name: one["ids"] for name, one in by_id(built).items()} == {
        name: [wanted] for name, wanted in expect["ids_with_eos"].items()
    }
    everything = [token for row in rows(built) for token in row["input_ids"][: row["n_tokens"]]]
    assert (everything.count(expect["eos_id"]), len(everything)) == (expect["eos_count"], expect["total_tokens"])


@pytest.mark.parametrize("name", ["tok_plain", "tok_template"])
@pytest.mark.parametrize("bos, total", [(None, "total_eos_only"), ("<bos>", "total_bos_eos")])
def test_b22_borders_in_the_shards(tmp_path: Path, shared: Path, name: str, bos: str | None, total: str):
    """Empty texts own no row of a shard and shift no other; a template's own bos is not added to ours."""
    folder, expect = case(shared, "B22")
    tokenizer = {"file": str(folder / f"{name}.json"), "eos": EOS, "bos": bos, "pad": "<pad>"}
    built = plain(tmp_path, str(folder / "docs.jsonl"), tokenizer=tokenizer, sequences={"length": 16})
    around = ([1] if bos else [], [2])
    assert {name: one["ids"] for name, one in by_id(built).items()} == {
        name: [[*around[0], *wanted, *around[1]]] for name, wanted in expect["ids_without_borders"].items()
    }
    assert sum(row["n_tokens"] for row in rows(built)) == expect[total]
    told = records_of(built)
    assert told["rejected"] + told["blank"] == len(expect["empty"])


@pytest.mark.parametrize("packing", ["best_fit", "concat"])
def test_b25_a_document_over_its_limit_swallows_no_other(tmp_path: Path, shared: Path, packing: str):
    """A has 20 words and may give 8 tokens; B is whole in a segment of its own; where A ends is in the columns."""
    folder, expect = case(shared, "B25")
    tokenizer = {"file": str(folder / "toy_tokenizer.json"), "eos": EOS, "pad": "<pad>"}
    sequences = {"length": 8, "packing": packing, "max_document_tokens": 8}
    built = plain(tmp_path, str(folder / "trunc.jsonl"), tokenizer=tokenizer, sequences=sequences)
    found = by_id(built)
    assert found["B"]["ids"] == [expect["trunc_B_ids"]]
    ((a,),) = [found["A"]["ids"]]
    assert len(a) == 8
    assert found["A"]["tokens"] == 21
    flags = {
        doc: (size, flag)
        for row in rows(built)
        for doc, size, flag in zip(row["seg_doc"], row["seg_len"], row["seg_flags"], strict=True)
    }
    assert flags[found["B"]["doc"]] == (4, 3)
    assert flags[found["A"]["doc"]][0] == 8


def test_b47_mistakes_are_status_2_and_nothing_is_written(tmp_path: Path, capsys: pytest.CaptureFixture):
    """On the command line: no traceback, the file and the line, the nearest key."""
    write_jsonl(tmp_path / "data" / "d.jsonl", [{"text": prose(1)}])
    manifest = tmp_path / "m.yaml"
    manifest.write_text("name: b47\nsources:\n  web: {files: [data/*.jsonl]}\nseeed: 7\n")
    assert cli.run(["build", str(manifest)]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err == f"error: {manifest}:4: seeed: unknown key; did you mean `seed`?\n"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data", "m.yaml"]
    manifest.write_text(manifest.read_text().replace("seeed", "seed"))
    assert cli.run(["build", str(manifest)]) == 0


def test_b50_the_newest_capture_through_a_whole_build(tmp_path: Path, shared: Path):
    folder, expect = case(shared, "B50")
    kept = set()

    def captures(where: Path, **snapshot: str) -> dict:
        fields = {"date": "crawl_time", "snapshot": "snapshot"}
        files = [str(where / "snap_*.jsonl")]
        return {"web": {"files": files, "fields": fields, "extra": ["url"], "snapshot": {"key": "url"} | snapshot}}

    for number, (where, workers) in enumerate(((folder, 1), (folder / "swapped", 2), (folder, 4))):
        manifest = asked(tmp_path, sources=captures(where), stages=[], **NO_TOKENS)
        built = build(manifest, tmp_path / f"out{number}", workers=workers)
        assert built.manifest.stages[0].dropped == {"older capture": 5, "no date": 1}
        kept.add(tuple(sorted(name for name, one in by_id(built).items() if one["fate"] == "kept")))
    ((names),) = kept
    assert len(names) == expect["kept_count"]
    with pytest.raises(DataError, match="S9"):
        build(asked(tmp_path, sources=captures(folder, name="S9"), stages=[], **NO_TOKENS), tmp_path / "out")


@pytest.mark.parametrize(
    "source, reasons",
    [
        ({}, "missing text: 2"),
        ({"fields": {"text": "body", "lang": "tongue"}, "select": {"lang": {"in": ["en"]}}}, "select: lang: 2"),
    ],
    ids=["no text", "everything is cut"],
)
def test_a_source_that_gives_nothing_is_a_warning(tmp_path: Path, source: dict, reasons: str):
    """Two records are below every limit; a build without a document must not look like one that went well."""
    write_jsonl(tmp_path / "in" / "a.jsonl", [{"id": "1", "body": "a b"}, {"id": "2", "body": "c d"}])
    built = plain(tmp_path, sources={"web": {"files": ["in/*.jsonl"]} | source}, **NO_TOKENS)
    assert built.warnings == (
        f"source web: none of its 2 records is a document ({reasons}); look at its `fields`, `format` and `select`",
    )
