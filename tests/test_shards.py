"""Shards: books that close, rows that readers read, bytes that no layout and no number of workers changes."""

import hashlib
import json
import struct
from collections import Counter
from pathlib import Path

import datasets
import duckdb
import numpy as np
import polars
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from builders import documents

from datapipe import mix, rows, shards, tables, tokens
from datapipe.build_manifest.types import Split
from datapipe.documents import Documents, Work
from datapipe.errors import IntegrityError
from datapipe.keyed import keyed
from datapipe.manifest import Manifest

VOCABULARY = {"<unk>": 0, "<eos>": 1, "<bos>": 2, "<pad>": 3} | {f"w{n}": n + 4 for n in range(50)}
LISTS = ("seg_len", "seg_doc", "seg_start", "seg_flags", "seg_source")


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory) -> Path:
    """A tokenizer of words w0 to w49."""
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    added = [{"id": VOCABULARY[name], "content": name, "special": True} | flags for name in list(VOCABULARY)[:4]]
    empty = dict.fromkeys(("truncation", "padding", "normalizer", "post_processor", "decoder"))
    model = {"type": "WordLevel", "vocab": VOCABULARY, "unk_token": "<unk>"}
    path = tmp_path_factory.mktemp("tokenizer") / "tokenizer.json"
    file = {
        "version": "1.0",
        **empty,
        "added_tokens": added,
        "pre_tokenizer": {"type": "WhitespaceSplit"},
        "model": model,
    }
    path.write_text(json.dumps(file))
    return path


def asked(tokenizer: Path, *, length=16, packing="best_fit", limit=None, size=300, sources="ab", **rest) -> Manifest:
    control = {"eos": "<eos>", "bos": "<bos>", "pad": "<pad>"} | rest.pop("control", {})
    value = {
        "name": "toy",
        "sources": {name: {"files": ["x"]} for name in sources},
        "tokenizer": {"file": str(tokenizer)} | control,
        "sequences": {"length": length, "packing": packing, "max_document_tokens": limit},
        "shards": {"tokens": size},
    }
    return Manifest.model_validate(value | rest)


def records(number: int = 120, seed: int = 0) -> list[dict]:
    """Documents of 1 to 60 words from sources a and b; every tenth is validation."""
    rng = np.random.default_rng(seed)
    return [
        {
            "id": str(n),
            "source": "ab"[n % 3 == 0],
            "split": "validation" if n % 10 == 0 else "train",
            "text": " ".join(f"w{w}" for w in rng.integers(0, 50, max(1, int(rng.lognormal(2.3, 1)) % 60))),
        }
        for n in range(number)
    ]


def build(work: Work, manifest: Manifest, given: list[dict], folder: Path, *, parts: int = 3) -> tuple[Documents, dict]:
    docs = documents(work, given, parts=parts, row_group=7)
    tokenizer = tokens.check(manifest)
    assert tokenizer is not None
    tokenized = tokens.tokenize(docs, tokenizer)
    docs.apply("tokens", 1, tokenized.verdict)
    mix.mix(docs, manifest)
    return docs, shards.write(docs, tokenized, tokenizer, manifest, folder)


def texts(docs: Documents) -> dict[int, list[int]]:
    """Each document's tokens with bos and eos, by doc."""
    found = {}
    for part in docs.parts:
        query = "select row, doc from documents where part = ? order by row"
        where = dict(docs.work.db.execute(query, [part.number]).fetchall())
        for row, text in enumerate(pq.read_table(part.path, columns=["text"])["text"].to_pylist()):
            found[where[row]] = [2, *(VOCABULARY[word] for word in text.split()), 1]
    return found


def read(folder: Path, split: dict) -> list[dict]:
    return [row for shard in split["shards"] for row in pq.read_table(folder / shard["path"]).to_pylist()]


CASES = {
    "best fit": {},
    "concat": {"packing": "concat"},
    "a limit of tokens": {"limit": 10},
    "a mixture with copies": {"mixture": {"a": {"weight": 0.5, "epochs": 3.5}, "b": {"weight": 0.5, "epochs": 2.0}}},
    "an unused source": {"mixture": {"a": {"weight": 1.0}, "b": {"weight": 0.0}}},
    "rows of two tokens": {"length": 2},
    "one shard": {"size": 10**9},
    "more shards than documents": {"size": 2, "number": 12},
    "no control tokens": {"control": {"eos": None, "bos": None, "pad": None}},
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_every_token_is_where_the_columns_say(tokenizer, tmp_path, case):
    """Rows are rebuilt from the documents' texts and the segment columns alone, and all books are counted anew."""
    number = case.get("number", 60)
    manifest = asked(tokenizer, **{name: value for name, value in case.items() if name != "number"})
    with Work(tmp_path, "toy", workers=2) as work:
        docs, splits = build(work, manifest, records(number), tmp_path / "out")
        whole = texts(docs)
        if case.get("control"):
            whole = {doc: ids[1:-1] for doc, ids in whole.items()}
        taken = dict(work.db.sql("select doc, copies from taken").fetchall())
        split_of = dict(work.db.sql("select doc, split from documents").fetchall())
        source_of = dict(work.db.sql("select doc, source from documents").fetchall())
    pad = 0 if case.get("control") else 3
    limit = case.get("limit") or 10**9
    for name, split in splits.items():
        Split.model_validate_json(json.dumps(split))
        stored: Counter = Counter()
        found = read(tmp_path / "out", split)
        assert [row["row_id"] for row in found] == list(range(split["sequences"]))
        for row in found:
            ids = []
            for doc, start, size, flags, source in zip(
                row["seg_doc"], row["seg_start"], row["seg_len"], row["seg_flags"], row["seg_source"], strict=True
            ):
                ids += whole[doc][:limit][start : start + size]
                ends = start + size == len(whole[doc][:limit])
                again = manifest.sequences.packing == "best_fit" and start > 0
                assert flags == (start == 0) + 2 * ends + 4 * again
                assert "ab"[source] == source_of[doc]
                assert split_of[doc] == name
                stored.update((doc, at) for at in range(start + again, start + size))
            assert row["input_ids"] == ids + [pad] * (manifest.sequences.length - len(ids))
            assert len(row["seg_doc"]) == len(set(row["seg_doc"]))
            assert (row["n_tokens"], row["n_pad"]) == (len(ids), manifest.sequences.length - len(ids))
            assert row["n_targets"] == len(ids) - len(row["seg_len"])
            assert row["sum_len_sq"] == sum(size**2 for size in row["seg_len"])
        kept = {doc: copies for doc, copies in taken.items() if split_of[doc] == name and copies}
        assert stored == {(doc, at): n for doc, n in kept.items() for at in range(len(whole[doc][:limit]))}
        dropped = sum(n * max(0, len(whole[doc]) - limit) for doc, n in kept.items())
        assert split["tokens"]["dropped"] == ({"max_document_tokens": dropped} if dropped else {})
        assert split["documents"] == len(kept)
        assert split["lengths"]["max"] == max(len(whole[doc]) for doc in kept)


def test_books_are_recounted_from_a_shard_alone(tokenizer, tmp_path):
    with Work(tmp_path, "toy") as work:
        _, splits = build(work, asked(tokenizer), records(), tmp_path / "out")
    for split in splits.values():
        counted = [rows.recount(tmp_path / "out" / shard["path"]) for shard in split["shards"]]
        for name in ("stored", "targets", "last_positions", "masked", "repeated_context", "padding"):
            assert sum(getattr(one, name) for one in counted) == split["tokens"][name], name
        for shard, one in zip(split["shards"], counted, strict=True):
            told = (shard["rows"], shard["tokens"], shard["targets"], shard["content_sha256"])
            assert told == (one.rows, one.stored, one.targets, one.content_sha256)
        for number, source in enumerate("ab"):
            sums = [one.by_source.get(number, (0, 0)) for one in counted]
            line = split["by_source"][source]
            assert (sum(a for a, _ in sums), sum(b for _, b in sums)) == (line["tokens"], line["targets"])
        assert (
            sum(int(one.tokens.sum()) for one in counted)
            == split["tokens"]["stored"] - split["tokens"]["repeated_context"]
        )
        assert len(set(np.concatenate([one.documents for one in counted]))) == split["documents"]
        assert counted[0].length == 16
        assert counted[0].max_id <= 53


def test_content_sha256_by_hand(tokenizer, tmp_path):
    """Counts as int64, then values little-endian in their own type, column by column; -1 for a null mask."""
    with Work(tmp_path, "toy") as work:
        _, splits = build(work, asked(tokenizer, size=10**9), records(30), tmp_path / "out")
    [shard] = splits["train"]["shards"]
    found = pq.read_table(tmp_path / "out" / shard["path"]).to_pylist()
    state = hashlib.sha256()
    for name, kind in {"input_ids": "i", "seg_len": "i", "seg_start": "i", "seg_flags": "B", "seg_source": "h"}.items():
        lists = [row[name] for row in found]
        state.update(struct.pack(f"<{len(lists)}q", *map(len, lists)))
        state.update(b"".join(struct.pack(f"<{len(one)}{kind}", *one) for one in lists))
    state.update(struct.pack(f"<{len(found)}q", *[-1] * len(found)))
    assert shard["content_sha256"] == state.hexdigest()


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*.parquet"))}


def test_layout_and_workers_change_no_byte(tokenizer, tmp_path):
    """Other parts, another order of documents, other row groups, one worker or three."""
    mixture = {"a": {"weight": 0.5, "epochs": 3.5}, "b": {"weight": 0.5, "epochs": 2.0}}
    manifest, given, made = asked(tokenizer, mixture=mixture), records(), []
    for name, workers, parts, order in (("x", 1, 1, 1), ("y", 3, 5, 1), ("z", 2, 4, -1)):
        with Work(tmp_path / name, "toy", workers=workers) as work:
            _, splits = build(work, manifest, given[::order], tmp_path / name / "out", parts=parts)
        made.append((files(tmp_path / name / "out"), splits))
    assert made[0] == made[1] == made[2]
    assert len(made[0][0]) > 3


def test_seed_moves_rows_of_train_only(tokenizer, tmp_path):
    made = []
    for seed in (1, 2):
        with Work(tmp_path / str(seed), "toy") as work:
            build(work, asked(tokenizer, seed=seed), records(), tmp_path / str(seed) / "out")
        made.append(files(tmp_path / str(seed) / "out"))
    moved = {name for name in made[0] | made[1] if made[0].get(name) != made[1].get(name)}
    assert moved
    assert all(name.startswith("train/") for name in moved)


def test_order_of_rows_and_place_of_copies(tokenizer, tmp_path):
    """Train rows by hash of their first segment, copies in buckets by hash; validation by smallest document."""
    mixture = {"a": {"weight": 1.0, "epochs": 4.0}, "b": {"weight": 0.0}}
    with Work(tmp_path, "toy") as work:
        docs, splits = build(work, asked(tokenizer, mixture=mixture, seed=9, size=90), records(), tmp_path / "out")
        query = "select doc, replace(doc_id::varchar, '-', '') from documents"
        names = dict(docs.work.db.sql(query).fetchall())
    count = len(splits["train"]["shards"])
    for number, shard in enumerate(splits["train"]["shards"]):
        found = pq.read_table(tmp_path / "out" / shard["path"]).to_pylist()
        hashes = [keyed("row", 9, names[row["seg_doc"][0]], row["seg_start"][0]) for row in found]
        assert hashes == sorted(hashes)
        for doc in {doc for row in found for doc in row["seg_doc"]}:
            first = keyed("bucket", 9, names[doc])
            assert number in {(first + copy * (count // 4)) % count for copy in range(4)}
    smallest = [min(row["seg_doc"]) for row in read(tmp_path / "out", splits["validation"])]
    assert smallest == sorted(smallest)
    assert len(splits["validation"]["shards"]) > 1


def test_readers_read_the_shards(tokenizer, tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with Work(tmp_path, "toy") as work:
        _, splits = build(work, asked(tokenizer), records(), tmp_path / "out")
    expected = [row["input_ids"] for row in read(tmp_path / "out", splits["train"])]
    pattern = str(tmp_path / "out" / "train" / "*.parquet")
    found = datasets.load_dataset("parquet", data_files=pattern, split="train", cache_dir=str(tmp_path / "cache"))
    assert found["input_ids"][:] == expected
    with duckdb.connect() as db:
        ids = db.execute(f"select input_ids from '{pattern}' order by row_id").fetchall()
    assert ids == [(row,) for row in expected]
    assert polars.read_parquet(pattern).sort("row_id")["input_ids"].to_list() == expected


def test_how_a_shard_is_stored(tokenizer, tmp_path):
    """Row groups of 64, the ids split by byte, every page with a checksum."""
    with Work(tmp_path, "toy") as work:
        _, splits = build(work, asked(tokenizer, length=4, size=10**9), records(), tmp_path / "out")
    path = tmp_path / "out" / splits["train"]["shards"][0]["path"]
    with pq.ParquetFile(path) as file:
        assert file.schema_arrow.equals(tables.SHARD)
        groups = [file.metadata.row_group(number) for number in range(file.num_row_groups)]
        assert {group.num_rows for group in groups[:-1]} == {64}
        ids = groups[0].column(1)
        assert ids.path_in_schema == "input_ids.list.element"
        assert "BYTE_STREAM_SPLIT" in ids.encodings
        assert ids.compression == "ZSTD"
        where = ids.data_page_offset + ids.total_compressed_size - 2
    damaged = bytearray(path.read_bytes())
    damaged[where] ^= 1
    path.write_bytes(damaged)
    with pytest.raises(OSError, match="CRC checksum"):
        rows.recount(path)


def test_documents_that_nobody_wants(tokenizer, tmp_path):
    """No validation and no training documents: zeros, and no folder."""
    with Work(tmp_path, "toy") as work:
        _, splits = build(work, asked(tokenizer), [{"text": " ", "source": "a"}], tmp_path / "out")
    for split in splits.values():
        assert (
            Split.model_validate_json(json.dumps(split)).model_copy(update={"by_source": {}}) == Split.without_tokens()
        )
    assert not (tmp_path / "out").exists()


def test_cut_documents_and_lengths(tokenizer, tmp_path):
    """Documents of 4, 4, 9 and 40 tokens in rows of 16, by hand."""
    given = [{"text": " ".join(["w1"] * words), "source": "a", "id": str(n)} for n, words in enumerate((2, 2, 7, 38))]
    with Work(tmp_path, "toy") as work:
        _, splits = build(work, asked(tokenizer), given, tmp_path / "out")
    train = splits["train"]
    # 40 = 16 + 16 + 10 with two tokens repeated; 16 | 16 | 10 + 4 | 9 + 4
    assert train["lengths"] == {
        "histogram": {"4": 2, "16": 1, "64": 1}, "p1": 4, "p50": 4, "p90": 40, "p99": 40, "max": 40,
        "over_length_share": 40 / 57,
    }  # fmt: skip
    assert train["packing"] == {"fill": 59 / 64, "cut_documents": 1, "cut_tokens": 40}
    assert train["tokens"] == {
        "stored": 59, "targets": 53, "last_positions": 6, "masked": 0, "repeated_context": 2, "padding": 5,
        "dropped": {},
    }  # fmt: skip


# two rows of 6: segments of 3 and 2 with a token of padding, and one segment of 6
OFFSETS, SIZES = np.array([0, 2, 3]), np.array([3, 2, 6])
IDS = np.array([[11, 12, 13, 21, 22, 0], [31, 32, 33, 34, 35, 36]], np.int32)


def test_the_last_token_of_a_segment_is_no_target():
    is_target = rows.targets(OFFSETS, SIZES, 6)
    assert is_target.tolist() == [[True, True, False, True, False, False], [True] * 5 + [False]]


def test_masked_tokens_are_no_targets():
    """Bit i of loss_mask: token i may be predicted.  Token 1 of row 0 may not, so position 0 is no target."""
    allowed = rows.unmasked(pa.array([bytes([0b11111101]), None], pa.binary()), 6)
    assert allowed is not None
    assert rows.targets(OFFSETS, SIZES, 6, allowed).tolist() == [
        [False, True, False, True, False, False],
        [True] * 5 + [False],
    ]
    assert rows.unmasked(pa.array([None, None], pa.binary()), 6) is None


def shard(path: Path, **changes) -> Path:
    """The two rows above as a shard, with other columns in place of the right ones."""
    right = {
        "row_id": [0, 1], "input_ids": IDS.tolist(), "seg_len": [[3, 2], [6]], "seg_doc": [[5, 7], [9]],
        "seg_start": [[0, 4], [0]], "seg_flags": [[3, 6], [1]], "seg_source": [[0, 1], [1]], "loss_mask": [None, None],
        "n_tokens": [5, 6], "n_targets": [3, 5], "n_pad": [1, 0], "sum_len_sq": [13, 36],
    }  # fmt: skip
    tables.write(path, pa.table(right | changes, schema=tables.SHARD))
    return path


def test_recount_by_hand(tmp_path):
    found = rows.recount(shard(tmp_path / "a.parquet"))
    assert (found.rows, found.length, found.stored, found.targets, found.last_positions) == (2, 6, 11, 8, 3)
    assert (found.masked, found.repeated_context, found.padding, found.max_id) == (0, 1, 1, 36)
    assert found.by_source == {0: (3, 2), 1: (7, 6)}
    assert (found.documents.tolist(), found.tokens.tolist()) == ([5, 7, 9], [3, 1, 6])
    masked = rows.recount(shard(tmp_path / "b.parquet", loss_mask=[bytes([0b11111101]), None], n_targets=[2, 5]))
    assert (masked.targets, masked.masked, masked.by_source) == (7, 1, {0: (3, 1), 1: (7, 6)})
    assert masked.content_sha256 != found.content_sha256


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"seg_len": [[3, 3], [6]]}, "row 0: n_tokens is not the sum of seg_len"),
        ({"seg_len": [[5, 0], [6]]}, "row 0: a segment without tokens"),
        ({"seg_doc": [[5, 5], [9]]}, "row 0: holds a document twice"),
        ({"seg_doc": [[5, 7], [9, 9]]}, "row 1: seg_doc has another number of segments than seg_len"),
        ({"n_targets": [3, 4]}, "row 1: n_targets is not what seg_len and loss_mask give"),
        ({"n_pad": [1, 2]}, "row 1: n_tokens \\+ n_pad is not 6 as in row 0"),
        ({"sum_len_sq": [13, 35]}, "row 1: sum_len_sq is not that of seg_len"),
        ({"input_ids": [IDS[0].tolist(), IDS[1].tolist()[:5]]}, "row 1: input_ids has not 6 ids"),
        ({"input_ids": [IDS[0].tolist(), [-1] * 6]}, "a negative token id in rows 0 to 1"),
    ],
)
def test_columns_that_contradict_each_other(tmp_path, changes, message):
    with pytest.raises(IntegrityError, match=message):
        rows.recount(shard(tmp_path / "a.parquet", **changes))
