"""Builds made of documents' ids and masks, packed as builds are, and what an export of them must hold."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from datapipe import rows, tables
from datapipe.build_manifest import Record, commit
from datapipe.pack import pack
from datapipe.rows import id_column
from datapipe.shards import OPTIONS, PLAIN

SOURCES = ("code", "web")


@dataclass(frozen=True)
class Doc:
    """
    ids:  with bos and eos;  mask: which may be predicted, None: all;  source: place in SOURCES
    copies: each in a shard of its own
    """

    ids: tuple[int, ...]
    mask: tuple[bool, ...] | None = None
    source: int = 0
    split: str = "train"
    copies: int = 1


@dataclass(frozen=True)
class Made:
    """A build, and its documents per split: shard by shard, in order of first appearance."""

    path: Path
    documents: dict[str, list[list[Doc]]]

    def flat(self, split: str = "train") -> list[Doc]:
        return [doc for shard in self.documents[split] for doc in shard]


def some(number: int = 40, *, seed: int = 0, vocabulary: int = 1000, masks: bool = False, longest: int = 60,
         eos: int = 1, bos: int | None = 2) -> list[Doc]:  # fmt: skip
    """Documents of 1 to `longest` ids and bos and eos, of two sources, some twice or three times, a few validation."""
    rng = np.random.default_rng(seed)
    docs = []
    for n in range(number):
        body = rng.integers(3, vocabulary, rng.integers(1, longest)).tolist()
        ids = (*(() if bos is None else (bos,)), *body, eos)
        mask = tuple(bool(bit) for bit in rng.random(len(ids)) < 0.7) if masks and n % 3 else None
        split = "validation" if n % 8 == 5 else "train"
        docs.append(Doc(ids, mask, n % 2, split, 1 + n % 3 if split == "train" else 1))
    return docs


def build(
    output: Path,
    docs: Sequence[Doc],
    *,
    name: str = "made",
    length: int = 16,
    packing: str = "best_fit",
    shards: int = 3,
    vocabulary: int = 1000,
    eos: int | None = 1,
    storage: str = "list",
) -> Made:
    """A version under `output`; the number of a document is its place in `docs`."""
    staging = output / f".staging-{name}"
    staging.mkdir(parents=True)
    schema = tables.shard_schema(storage, length, vocabulary - 1)
    tables.write(staging / "fates.parquet", _fates(docs))
    options = OPTIONS if schema is tables.SHARD else PLAIN | {"data_page_size": 1 << 24}
    documents: dict[str, list[list[Doc]]] = {"train": [], "validation": []}
    splits = {}
    for split, number in (("train", shards), ("validation", 1)):
        written, start = [], 0
        for bucket in range(number):
            here = [n for n, doc in enumerate(docs) if doc.split == split and bucket in _buckets(n, doc, shards)]
            if here:
                path = staging / split / f"shard-{len(written):05d}.parquet"
                path.parent.mkdir(exist_ok=True)
                table = _table(docs, here, length, packing, schema, start, bucket)
                tables.write(path, table, row_group=tables.SHARD_ROW_GROUP, **options)
                written.append((path, start, len(table)))
                start += len(table)
                documents[split].append([docs[n] for n in _appearing(path)])
        splits[split] = _split(written, [doc for doc in docs if doc.split == split])
    record = Record(
        name=name, recipe_id="1" * 64,
        manifest={"name": name, "sources": {source: {} for source in SOURCES}, "sequences": {"length": length},
                  "shards": {"storage": storage}},
        inputs=[], reports=[], sources=SOURCES, edits={}, splits=splits, libraries=("pyarrow",),
        tokenizer={"sha256": "5" * 64, "vocab_size": vocabulary, "max_id": vocabulary - 1,
                   "eos": None if eos is None else {"token": "<eos>", "id": eos}, "bos": None, "pad": None,
                   "added_tokens": []},
    )  # fmt: skip
    run = {"started": "2026-01-01T00:00:00+00:00", "seconds": 1.0, "workers": 1, "peak_rss_bytes": 1,
           "throughput": {}, "host": "here"}  # fmt: skip
    return Made(commit(record, staging, output / name, lambda: run).path, documents)


def _fates(docs: Sequence[Doc]) -> pa.Table:
    entries = [
        {"doc_id": f"{n:032x}", "source": SOURCES[doc.source], "split": doc.split, "fate": "kept", "copies": doc.copies,
         "tokens": len(doc.ids)}
        for n, doc in enumerate(docs)
    ]  # fmt: skip
    return pa.Table.from_pylist(entries, tables.FATES)


def _buckets(number: int, doc: Doc, shards: int) -> list[int]:
    return [0] if doc.split == "validation" else [(number + k) % shards for k in range(doc.copies)]


def _table(
    docs: Sequence[Doc], here: list[int], length: int, packing: str, schema: pa.Schema, start: int, seed: int
) -> pa.Table:
    """The rows of a shard, in an order of their own."""
    packed = pack(np.array([len(docs[n].ids) for n in here]), length, packing)
    packed = packed.in_order(np.random.default_rng(seed).permutation(packed.rows))
    entries: list[dict[str, Any]] = []
    ids = np.zeros((packed.rows, length), np.int32)
    for row in range(packed.rows):
        segments = range(packed.offsets[row], packed.offsets[row + 1])
        numbers = [here[packed.document[s]] for s in segments]
        starts, sizes = ([int(column[s]) for s in segments] for column in (packed.start, packed.size))
        pieces = [docs[n].ids[at : at + size] for n, at, size in zip(numbers, starts, sizes, strict=True)]
        stored = [token for piece in pieces for token in piece]
        ids[row, : len(stored)] = stored
        bits = np.ones(length, bool)
        at = 0
        for n, first, size in zip(numbers, starts, sizes, strict=True):
            bits[at : at + size] = (docs[n].mask or (True,) * len(docs[n].ids))[first : first + size]
            at += size
        allowed = [int(bits[at]) for at in range(1, len(stored))]
        edges = set(np.cumsum(sizes).tolist())
        targets = sum(bit for at, bit in enumerate(allowed, 1) if at not in edges)
        masked = any(docs[n].mask for n in numbers)
        entries.append({
            "row_id": start + row,
            "seg_len": sizes,
            "seg_doc": numbers,
            "seg_start": starts,
            "seg_flags": [
                int(at == 0) + 2 * (at + size == len(docs[n].ids)) + 4 * int(packed.again[s])
                for s, n, at, size in zip(segments, numbers, starts, sizes, strict=True)
            ],
            "seg_source": [docs[n].source for n in numbers],
            "loss_mask": np.packbits(bits, bitorder="little").tobytes() if masked else None,
            "n_tokens": len(stored),
            "n_targets": targets,
            "n_pad": length - len(stored),
            "sum_len_sq": sum(size * size for size in sizes),
        })  # fmt: skip
    narrow = pa.schema([field for field in schema if field.name != "input_ids"])
    table = pa.Table.from_pylist(entries, narrow)
    return table.add_column(1, schema.field("input_ids"), id_column(ids, schema)).cast(schema)


def _appearing(path: Path) -> list[int]:
    """The documents of a shard in the order in which they first appear."""
    return list(dict.fromkeys(n for row in pq.read_table(path)["seg_doc"].to_pylist() for n in row))


def _split(written: list[tuple[Path, int, int]], docs: Sequence[Doc]) -> dict[str, Any]:
    """What manifest.json says of a split, counted from its files."""
    found = [rows.recount(path) for path, _, _ in written]
    names = ("stored", "targets", "last_positions", "masked", "repeated_context", "padding")
    sums = {name: sum(getattr(one, name) for one in found) for name in names}
    by_source = {}
    for number, source in enumerate(SOURCES):
        ours = [doc for doc in docs if doc.source == number]
        tokens, targets = (sum(one.by_source.get(number, (0, 0))[at] for one in found) for at in (0, 1))
        by_source[source] = {"documents": len(ours), "copies": sum(doc.copies for doc in ours), "tokens": tokens,
                             "targets": targets, "asked": None, "realised": 0.0}  # fmt: skip
    shards = [
        {"path": f"{path.parent.name}/{path.name}", "rows": count, "row_start": start, "tokens": one.stored,
         "targets": one.targets, "content_sha256": one.content_sha256}
        for (path, start, count), one in zip(written, found, strict=True)
    ]  # fmt: skip
    quantiles = dict.fromkeys(("p1", "p50", "p90", "p99", "max"), 0)
    return {
        "documents": len(docs), "sequences": sum(one.rows for one in found), "tokens": {**sums, "dropped": {}},
        "by_source": by_source, "lengths": {"histogram": {}, **quantiles, "over_length_share": 0.0},
        "packing": {"fill": 0.0, "cut_documents": 0, "cut_tokens": 0}, "shards": shards,
    }  # fmt: skip
