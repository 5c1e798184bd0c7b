"""Tokenizers: text is text, control tokens come from the manifest, and chunks give the ids of whole texts."""

import itertools
import json

import numpy as np
import pyarrow as pa
import pytest
from builders import documents, read_jsonl
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer as Library

from datapipe import derive, pieces, tokens
from datapipe.documents import Work
from datapipe.errors import DataError, ManifestError
from datapipe.keyed import keyed
from datapipe.manifest import Manifest, TokenizerFile

SAMPLE = [
    "the cat sat on the mat, don't you think?",
    "def f(x):\n    return x['key'] + 12345\n",
    "你好，世界。 naïve café",
]


def control(eos=None, bos=None, pad=None) -> TokenizerFile:
    return TokenizerFile(file="tokenizer.json", eos=eos, bos=bos, pad=pad)


def spec(model, pre, *, added=(), **rest) -> dict:
    """A tokenizer.json."""
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    entries = [{"id": number, "content": text, "special": special} | flags for number, text, special in added]
    empty = dict.fromkeys(("truncation", "padding", "normalizer", "post_processor", "decoder"))
    return {"version": "1.0", **empty, "added_tokens": entries, "pre_tokenizer": pre, "model": model} | rest


def words(vocab, unknown="<unk>") -> dict:
    return {"type": "WordLevel", "vocab": vocab, "unk_token": unknown}


def made(file: dict, **names) -> tokens.Tokenizer:
    return tokens.load(json.dumps(file).encode(), control(**names), "toy.json")


def lists(found: tuple[np.ndarray, np.ndarray]) -> list[list[int]]:
    offsets, ids = found
    assert offsets.dtype == np.int64
    assert ids.dtype == np.int32
    return [ids[a:b].tolist() for a, b in itertools.pairwise(offsets)]


@pytest.fixture(scope="module")
def bpe() -> bytes:
    """A byte-level BPE of 400 entries."""
    return tokens.train(SAMPLE * 3, 400, ["<|endoftext|>"])


def variants(bpe: bytes) -> dict[str, dict]:
    """A tokenizer.json for each kind of border that is known, and one for which none is."""
    file = json.loads(bpe)
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}

    def split(pattern):
        first = {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}
        return {"type": "Sequence", "pretokenizers": [first, byte_level]}

    vocab = {"<unk>": 0} | {word: n for n, word in enumerate(("a", "b", "ab", "a_b", "'", "1", "é", "  ", "a1"), 1)}
    return {
        "gpt2": file,
        "gpt2 with NFC": file | {"normalizer": {"type": "NFC"}},
        "gpt2 spelt out": file | {"pre_tokenizer": split(pieces.GPT2)},
        "cl100k": file | {"pre_tokenizer": split(pieces.CL100K)},
        "qwen2": file | {"pre_tokenizer": split(pieces.QWEN2)},
        "words": spec(words(vocab), {"type": "Whitespace"}),
        "blanks": spec(words(vocab), {"type": "WhitespaceSplit"}),
        "none": file | {"pre_tokenizer": byte_level | {"add_prefix_space": True, "use_regex": True}},
    }


KINDS = ("gpt2", "gpt2 with NFC", "gpt2 spelt out", "cl100k", "qwen2", "words", "blanks", "none")
# what borders hang on: letters, digits, marks, apostrophes and contractions, white space of all sorts, combining marks,
# characters beyond ASCII that are letters, digits, marks, white space, and long runs that are never kept
TEXTS = st.lists(
    st.sampled_from(
        [*"ab19 _'.,(<=-/\n\r\t\x0b\x0c\0\x1c\x85\xa0\u1680\u180e\u2003\u2028\u3000\ufeff\u200b\u0301\u0338",
         *"éß٣你。，😀ſ", "'s", "'ll", "'S", "  ", "\r\n", "the", "The", "don't", " (", "123", "x" * 70, " " * 70]
    ),
    max_size=40,
).map("".join)  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_chunks_give_the_ids_of_whole_texts(kind, bpe):
    file = variants(bpe)[kind]
    ours = made(file)
    library = Library.from_str(json.dumps(file))
    library.encode_special_tokens = True
    assert (pieces.borders(file) is None) == (kind == "none")

    @given(st.lists(TEXTS, max_size=4))
    @settings(deadline=None, max_examples=150)
    def check(texts):
        expected = [library.encode(text, add_special_tokens=False).ids for text in texts]
        assert lists(ours.encode(texts)) == expected
        assert lists(ours.encoder.plain(texts)) == expected

    check()


@pytest.mark.parametrize("kind", ["gpt2", "cl100k", "words"])
@given(text=st.text(max_size=60))
@settings(deadline=None, max_examples=100)
def test_chunks_of_any_text(kind, bpe, text):
    ours = made(variants(bpe)[kind])
    assert lists(ours.encode([text])) == lists(ours.encoder.plain([text]))


def test_a_full_table_of_chunks_is_begun_anew(bpe, monkeypatch):
    """Tiny limits, so that windows end everywhere and the table is full all the time."""
    for name, value in {"ENTRIES": 64, "STORED": 400, "WINDOW": 7, "WINDOW_BYTES": 90, "LINE": 10}.items():
        monkeypatch.setattr(pieces, name, value)
    ours = made(variants(bpe)["gpt2"])
    texts = [f"{text} {n} {'long' * n}" for n in range(30) for text in SAMPLE]
    for _ in range(2):
        assert lists(ours.encode(texts)) == lists(ours.encoder.plain(texts))


@pytest.mark.parametrize(
    "change, why",
    [
        ({"normalizer": {"type": "Lowercase"}}, "a normalizer that nobody has thought through"),
        ({"added_tokens": [{"id": 1, "content": "b ", "special": False}]}, "an added token may lie across a border"),
        ({"post_processor": {"type": "TemplateProcessing", "single": [{"Sequence": {"id": "A"}}] * 2}}, "text twice"),
        ({"pre_tokenizer": {"type": "Metaspace"}}, "no pattern that is known"),
        ({"pre_tokenizer": None}, "the whole text is a piece"),
    ],
)
def test_other_tokenizers_get_whole_texts(bpe, change, why):
    assert pieces.borders(json.loads(bpe) | change) is None, why


@pytest.mark.slow
def test_chunks_on_the_corpora(shared, bpe):
    for kind in ("gpt2", "cl100k", "words"):
        ours = made(variants(bpe)[kind])
        for path in sorted((shared / "data" / "corpus").glob("*.jsonl.zst")):
            records = next(iter(read_jsonl(path, 100)))
            texts = [record["text"][:20_000] for record in records if record.get("text")]
            found, plain = ours.encode(texts), ours.encoder.plain(texts)
            assert np.array_equal(found[0], plain[0]), path.name
            assert np.array_equal(found[1], plain[1]), path.name


@pytest.mark.parametrize(
    "texts",
    [
        pa.array(["x", "a b", "", "b"], pa.string()).slice(1, 2),
        pa.array(["x", "a b", "", "b"], pa.large_string()).slice(1, 2),
        pa.chunked_array([pa.array(["a b"]), pa.array([""])]),
        pa.chunked_array([], pa.large_string()),
        pa.array([], pa.string()),
        [],
    ],
    ids=["slice", "large slice", "chunks", "no chunks", "empty", "empty list"],
)
@pytest.mark.parametrize("kind", ["gpt2", "none"])
def test_texts_come_as_arrow_or_lists(texts, kind, bpe):
    ours = made(variants(bpe)[kind])
    expected = lists(ours.encoder.plain(["a b", ""])) if len(texts) else []
    assert lists(ours.encode(texts)) == expected


def test_a_text_that_spells_control_tokens(shared):
    """B21: pieces of `<|endoftext|>`, never its id."""
    case = shared / "cases" / "B21"
    expect = json.loads((case / "EXPECT.json").read_bytes())["expect"]
    ours = tokens.load((case / "toy_tokenizer.json").read_bytes(), control(eos="<|endoftext|>", pad="<pad>"), "B21")
    records = [json.loads(line) for line in (case / "literals.jsonl").read_text("utf-8").splitlines()]
    found = lists(ours.encode([record["text"] for record in records]))
    with_eos = {record["id"]: [*ids, expect["eos_id"]] for record, ids in zip(records, found, strict=True)}
    assert with_eos == expect["ids_with_eos"]
    assert (ours.pad_id, ours.around) == (1, 1)


@pytest.mark.parametrize(
    "model, added",
    [
        (words({"<unk>": 0, "<eos>": 1, "a": 2}), [(0, "<unk>", True), (1, "<eos>", True)]),
        (words({"<unk>": 0, "<eos>": 1, "a": 2}), [(1, "<eos>", False)]),
        (words({"<unk>": 0, "<eos>": 1, "a": 2}), []),
        (
            {"type": "Unigram", "unk_id": 0, "vocab": [["<unk>", 0.0], ["<eos>", 0.0], ["a", -1.0]]},
            [(1, "<eos>", True)],
        ),
    ],
    ids=["special token", "ordinary added token", "word of the vocabulary", "unigram piece"],
)
def test_a_vocabulary_that_holds_the_control_token_as_a_word(model, added):
    """The library gives its id, also with encode_special_tokens; text is text."""
    ours = made(spec(model, {"type": "WhitespaceSplit"}, added=added), eos="<eos>")
    assert ours.eos == ("<eos>", 1)
    assert lists(ours.encode(["a <eos> a", "<eos>", "a"])) == [[2, 0, 2], [0], [2]]


def test_a_byte_level_text_that_spells_eos_gives_its_bytes(bpe):
    ours = tokens.load(bpe, control(eos="<|endoftext|>"), "bpe")
    [ids] = lists(ours.encode(["a <|endoftext|> b"]))
    assert ours.eos is not None
    assert ours.eos[1] not in ids
    assert Library.from_str(bpe.decode()).decode(ids) == "a <|endoftext|> b"


def test_control_token_made_of_merges_is_refused(bpe):
    """`the` is a word that BPE builds from text."""
    with pytest.raises(ManifestError, match="bpe: 'the': the tokenizer makes this control token from text"):
        tokens.load(bpe, control(eos="the"), "bpe")


def test_unknown_words_that_would_become_eos_are_an_error():
    ours = made(spec(words({"<eos>": 0, "a": 1}, "<eos>"), {"type": "WhitespaceSplit"}), eos="<eos>")
    assert lists(ours.encode(["a a"])) == [[1, 1]]
    with pytest.raises(DataError, match="a text gives the id of the control token '<eos>'"):
        ours.encode(["a b"])


def test_borders_and_documents_without_tokens(shared, tmp_path):
    """B22: counts with eos and with both; empty texts own no row; a template that adds bos does not add a second."""
    case = shared / "cases" / "B22"
    expect = json.loads((case / "EXPECT.json").read_bytes())["expect"]
    records = [json.loads(line) for line in (case / "docs.jsonl").read_text("utf-8").splitlines()]
    for name in ("tok_plain", "tok_template"):
        for names, total in (({"eos": "<eos>"}, "total_eos_only"), ({"eos": "<eos>", "bos": "<bos>"}, "total_bos_eos")):
            manifest = asked({"file": str(case / f"{name}.json"), **names})
            tokenizer = tokens.check(manifest)
            assert tokenizer is not None
            ids = lists(tokenizer.encode([record["text"] for record in records]))
            assert {record["id"]: one for record, one in zip(records, ids, strict=True) if one} == expect[
                "ids_without_borders"
            ]
            with Work(tmp_path / name / total, "b22") as work:
                docs = documents(work, records, parts=2)
                docs.apply("tokens", 0, tokens.tokenize(docs, tokenizer).verdict)
                assert work.db.sql("select sum(tokens)::bigint from counted").fetchall() == [(expect[total],)]
                assert docs.reports[-1].dropped == {"no tokens": len(expect["empty"])}
    with pytest.raises(ManifestError, match=r"tokenizer\.eos: '<eos>' is not in the vocabulary of .*tok_no_eos\.json"):
        tokens.check(asked({"file": str(case / "tok_no_eos.json"), "eos": "<eos>"}))


def test_a_line_of_11_mb_is_cut_without_cutting_a_word(shared):
    """B05: 1,785,605 words, no unknown one."""
    expect = json.loads((shared / "cases" / "B05" / "EXPECT.json").read_bytes())["expect"]["h2"]
    ours = tokens.load((shared / "cases" / "B05" / "toy_tokenizer.json").read_bytes(), control(eos="<eos>"), "B05")
    with pa.input_stream(str(shared / "cases" / "B05" / "huge_line.jsonl.gz"), compression="gzip") as file:
        text = json.loads(file.read().splitlines()[1])["text"]
    _, ids = ours.encode([text])
    assert len(ids) == expect["tokens_without_eos"]
    assert (ids == 0).sum() == expect["unk"] == 0


def asked(tokenizer: dict, **rest) -> Manifest:
    return Manifest.model_validate(
        {"name": "toy", "sources": {"web": {"files": ["a"]}}, "tokenizer": tokenizer, **rest}
    )


@pytest.mark.parametrize(
    "content, error, message",
    [
        (b"{", DataError, "is no tokenizer.json"),
        (b"\xff", DataError, "is no tokenizer.json"),
        (b"[]", DataError, "is no tokenizer.json"),
        (None, ManifestError, r"tokenizer\.file: cannot read .*toy\.json: No such file"),
    ],
    ids=["cut off", "not UTF-8", "another JSON", "missing"],
)
def test_a_file_that_is_no_tokenizer(tmp_path, content, error, message):
    path = tmp_path / "toy.json"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(error, match=message):
        tokens.check(asked({"file": str(path)}))


def test_dropout_is_refused(bpe):
    file = json.loads(bpe)
    file["model"]["dropout"] = 0.1
    with pytest.raises(ManifestError, match=r"model\.dropout is 0\.1: ids would be left to chance"):
        made(file)


def test_truncation_and_padding_of_the_file_are_off(bpe):
    file = json.loads(bpe)
    file["truncation"] = {"direction": "Right", "max_length": 2, "strategy": "LongestFirst", "stride": 0}
    file["padding"] = {
        "strategy": {"Fixed": 9}, "direction": "Right", "pad_to_multiple_of": None, "pad_id": 0,
        "pad_type_id": 0, "pad_token": "<|endoftext|>",
    }  # fmt: skip
    assert lists(made(file).encode(["one two three"])) == lists(made(json.loads(bpe)).encode(["one two three"]))


def test_a_word_that_nothing_stands_for(bpe):
    ours = made(spec(words({"a": 0}), {"type": "WhitespaceSplit"}))
    with pytest.raises(DataError, match="cannot encode a text"):
        ours.encode(["a b"])
    assert lists(ours.encode(["a a"])) == [[0, 0]], "a failed call leaves nothing behind"


def test_what_manifest_json_says_of_it(bpe):
    ours = made(
        spec(words({"<unk>": 0, "a": 7}), {"type": "WhitespaceSplit"}, added=[(8, "b c", False), (9, "<pad>", True)]),
        pad="<pad>",
    )
    record = ours.record()
    assert record == {
        "sha256": ours.sha256,
        "vocab_size": 4,
        "max_id": max(Library.from_str(ours.data.decode()).get_vocab().values()),
        "eos": None,
        "bos": None,
        "pad": {"token": "<pad>", "id": ours.pad_id},
        "added_tokens": [{"token": "b c", "id": 8, "special": False}, {"token": "<pad>", "id": 9, "special": True}],
    }


def training(work: Work, texts: list[str], *, parts: int, vocab_size: int = 300, sample: int = 600) -> tokens.Tokenizer:
    records = [{"text": text, "split": "validation" if text.startswith("held") else "train"} for text in texts]
    docs = documents(work, records, parts=parts, row_group=5)
    found = tokens.trained(asked({"train": {"vocab_size": vocab_size, "sample": sample}, "eos": "<eos>"}), docs)
    assert found is not None
    return found


def test_training_takes_documents_in_order_of_hash(tmp_path):
    """The same documents in other parts and another order give the same bytes; validation is never seen."""
    texts = [f"document {n} says {n * 7919 % 101} words of its own" for n in range(60)] + ["held out zzzz"] * 20
    with Work(tmp_path / "a", "a") as work:
        first = training(work, texts, parts=1)
        query = "select replace(doc_id::varchar, '-', ''), bytes, part, row from documents where split = 'train'"
        order = sorted(work.db.sql(query).fetchall(), key=lambda row: keyed("tokenizer", None, row[0]))
    chosen, held = [], 0
    for _, size, _, row in order:
        if held >= 600:
            break
        chosen.append(texts[row])
        held += size
    assert first.data == tokens.train(chosen, 300, ["<eos>"])
    assert first.eos == ("<eos>", 0)
    assert "zzz" not in first.data.decode()
    with Work(tmp_path / "b", "b") as work:
        assert training(work, texts[::-1], parts=7).data == first.data
        assert work.store.ran["train_tokenizer"] == 1
    with Work(tmp_path / "b", "b") as work:
        training(work, texts[::-1], parts=7)
        assert work.store.reused["train_tokenizer"] == 1


def test_nothing_to_train_on(tmp_path):
    with Work(tmp_path, "a") as work, pytest.raises(DataError, match="no training document is left to train on"):
        training(work, ["held out"], parts=1)


def test_training_on_a_sample_of_several_buckets(tmp_path, monkeypatch):
    """Texts come back in order of hash when they wait in many buckets on disk."""
    texts = [f"{n} " * 50 for n in range(40)]
    with Work(tmp_path / "a", "a") as work:
        one = training(work, texts, parts=3, sample=100_000)
    monkeypatch.setattr(tokens, "BUCKET_BYTES", 512)
    with Work(tmp_path / "b", "b") as work:
        assert training(work, texts, parts=3, sample=100_000).data == one.data


def test_ids_are_made_once(tmp_path, bpe):
    """A later build with fewer documents encodes nothing, one with more only those; eos is no part of the ids."""
    path = tmp_path / "tokenizer.json"
    path.write_bytes(bpe)
    records = [{"text": f"text {n}", "split": "train"} for n in range(20)]

    def build(names: dict, where: str) -> tuple[dict[str, int], list]:
        with Work(tmp_path, "a") as work:
            docs = documents(work, records, parts=2)
            work.db.execute(f"update documents set place = 1, rule = 'x' where not ({where})")
            tokenizer = tokens.check(asked({"file": str(path), **names}))
            assert tokenizer is not None
            done = tokens.tokenize(docs, tokenizer)
            for part in docs.parts:
                rows, _ = docs.alive(part)
                held = pa.concat_tables(derive.read(done.dones[part.number], rows)).sort_by("row")
                expected = lists(tokenizer.encode([records[10 * part.number + row]["text"] for row in rows]))
                assert held["ids"].to_pylist() == expected
            return work.store.ran, work.db.sql("select count(*), sum(tokens)::bigint from counted").fetchall()

    ran, [(number, total)] = build({"eos": "<|endoftext|>"}, "row % 2 = 0")
    assert (ran.get("tokens"), number) == (2, 10)
    ran, counted = build({}, "row % 4 = 0")
    assert (ran.get("tokens", 0), counted[0][0]) == (0, 6)
    ran, counted = build({}, "row % 2 = 0")
    assert (ran.get("tokens", 0), counted) == (0, [(number, total - number)])
    ran, counted = build({}, "true")
    assert (ran.get("tokens"), counted[0][0]) == (2, 20)
