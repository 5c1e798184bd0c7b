"""A tiny build, written by hand: what room for doubt there is about a build, it has none about this one."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from datapipe import rows, tables
from datapipe import shards as shard_files
from datapipe.build_manifest import Committed, Record, commit
from datapipe.keyed import canonical, doc_id, text_id

LENGTH = 64  # ids in a row of a shard
EOS = 0
NGRAM = 5


@dataclass
class Doc:
    """A document and what becomes of it; `like` names the place in the list of the one that it is a copy of."""

    text: str
    source: str = "web"
    split: str = "train"
    stage: int | None = None
    rule: str | None = None
    copies: int = 1
    like: int | None = None
    snapshot: str | None = None
    id: str = field(default="", init=False)

    @property
    def words(self) -> list[str]:
        return self.text.split(" ")


def words(seed: int, count: int) -> str:
    """A text of so many words, other ones for every seed."""
    return " ".join(f"w{seed * 100 + i}" for i in range(count))


def story() -> list[Doc]:
    """Two short ones, a copy in train of a validation document, a copy and a near copy, one unused, one twice."""
    return [
        Doc(words(0, 60), snapshot="2024-01"),
        Doc(words(1, 40), split="validation", snapshot="2024-01"),
        Doc(words(1, 40), stage=3, rule="same text", like=1, snapshot="2024-02"),
        Doc(words(0, 60), stage=3, rule="same text", like=0),
        Doc(words(0, 59) + " other", stage=4, rule="jaccard >= 0.8", like=0),
        Doc("too short", stage=1, rule="word_count < 5"),
        Doc("so short", "wiki", stage=1, rule="word_count < 5"),
        Doc(words(2, 30), "wiki", copies=2),
        Doc(words(3, 20), "wiki", copies=0),
        Doc(words(4, 10), "wiki"),
    ]


STAGES: list[dict[str, Any]] = [
    {"stage": "filter", "keep": {"word_count": {"min": 5.0, "max": None}}, "only": None},
    {"stage": "holdout", "fraction": 0.1, "by": None, "salt": "holdout-1"},
    {"stage": "exact_dedup", "prefer": ["priority", "longest", "newest"]},
    {"stage": "near_dedup", "threshold": 0.8, "ngram": NGRAM, "num_perm": 128, "prefer": ["longest"], "against": []},
]


@dataclass(frozen=True)
class Report:
    """As documents.StageReport."""

    stage: str
    place: int
    entered: int
    left: int
    dropped: dict[str, int]
    dropped_by_source: dict[str, dict[str, int]]
    not_judged: dict[str, int]
    notes: dict[str, Any]


TOKENIZER = {
    "sha256": "5" * 64,
    "vocab_size": 1000,
    "max_id": 999,
    "eos": {"token": "<eos>", "id": EOS},
    "bos": None,
    "pad": None,
    "added_tokens": [{"token": "<eos>", "id": EOS, "special": True}],
}


def build(
    output: Path,
    name: str = "tiny",
    docs: list[Doc] | None = None,
    *,
    tokenizer: bool = True,
    stored: str = "all",
    recipe: str = "1",
    started: str = "2026-01-01T00:00:00+00:00",
    storage: str = "list",
    shard_rows: int = 10**9,
    max_id: int = 999,
    masked: bool = False,
) -> Committed:
    """
    A version under `output`/`name`; `stored` is the manifest's `documents`.

    shard_rows: rows in a shard;  masked: in every third row the second token is not to be predicted
    """
    docs = story() if docs is None else docs
    _name(docs)
    staging = output / f".staging-{name}-{recipe}"
    staging.mkdir(parents=True)
    _tables(staging, docs, stored, tokenizer)
    schema = tables.shard_schema(storage, LENGTH, max_id)
    splits = _shards(staging, docs, schema, shard_rows, masked) if tokenizer else None
    record = Record(
        name=name,
        recipe_id=recipe * 64,
        manifest=_manifest(name, tokenizer, stored) | {"shards": {"tokens": LENGTH * shard_rows, "storage": storage}},
        inputs=_inputs(docs),
        reports=_reports(docs),
        sources=["web", "wiki"],
        tokenizer=TOKENIZER | {"max_id": max_id} if tokenizer else None,
        splits=splits,
        edits={"web": {"nfc": 0}},
        libraries=("pyarrow",),
    )
    run = {"started": started, "seconds": 1.5, "workers": 1, "peak_rss_bytes": 1, "throughput": {}, "host": "here"}
    return commit(record, staging, output / name, lambda: run)


def _name(docs: list[Doc]) -> None:
    seen: dict[tuple[str, str], int] = {}
    for doc in docs:
        key = (doc.source, doc.text)
        seen[key] = seen.get(key, -1) + 1
        doc.id = doc_id(doc.source, None, text_id(doc.text.encode()), seen[key])


def _manifest(name: str, tokenizer: bool, stored: str) -> dict[str, Any]:
    return {
        "name": name,
        "output": "builds",
        "documents": stored,
        "sources": {"web": {"licence": "CC0-1.0", "snapshot": {"as_of": "2024-03-01"}}, "wiki": {"snapshot": None}},
        "stages": STAGES,
        "tokenizer": {"file": "tokenizer.json"} if tokenizer else None,
        "sequences": {"length": LENGTH},
    }


def _inputs(docs: list[Doc]) -> list[dict[str, Any]]:
    """One file a source; one record is quarantined, one blank."""
    counts = {source: sum(doc.source == source for doc in docs) for source in ("web", "wiki")}
    return [
        {
            "source": source,
            "path": f"{source}.jsonl",
            "bytes": 1000,
            "sha256": "a" * 64,
            "records": n + 2,
            "documents": n,
            "rejected": {},
            "quarantined": {"not an object": 1},
            "blank": 1,
            "repeated": 0,
            "cut": {},
            "repaired": 0,
            "damaged": None,
            "rows": n,
        }
        for source, n in counts.items()
    ]


def _stage_name(place: int | None) -> str | None:
    return None if place is None else f"{place}:{STAGES[place - 1]['stage']}"


def jaccard(a: str, b: str) -> float:
    """Of word 5-grams; a text of fewer words is one shingle."""
    first, second = (
        {tuple(w[i : i + NGRAM]) for i in range(max(1, len(w) - NGRAM + 1))} for w in (a.split(" "), b.split(" "))
    )
    return len(first & second) / len(first | second)


def _evidence(docs: list[Doc], doc: Doc) -> tuple[float, dict[str, Any]]:
    if doc.like is None:
        return float(len(doc.words)), {"min": 5}
    kept = docs[doc.like]
    value = jaccard(doc.text, kept.text)
    return value, {"jaccard": value, "kept": kept.id}


def _tokens(doc: Doc) -> int | None:
    return len(doc.words) + 1 if doc.stage is None else None


def _fate(doc: Doc, row: int, tokenizer: bool) -> dict[str, Any]:
    unused = doc.stage is None and doc.copies == 0
    return {
        "doc_id": doc.id,
        "source": doc.source,
        "snapshot": doc.snapshot,
        "group": text_id(doc.text.encode()),
        "text_hash": text_id(doc.text.encode()),
        "bytes": len(doc.text),
        "split": doc.split,
        "fate": "dropped" if doc.stage is not None else "unused" if unused else "kept",
        "stage": "mixture" if unused else _stage_name(doc.stage),
        "rule": "copies = 0" if unused else doc.rule,
        "copies": 0 if doc.stage is not None else doc.copies,
        "tokens": _tokens(doc) if tokenizer else None,
        "part": 0,
        "row": row,
    }


def _tables(staging: Path, docs: list[Doc], stored: str, tokenizer: bool) -> None:
    order = sorted(range(len(docs)), key=lambda row: docs[row].id)
    fates = [_fate(docs[row], row, tokenizer) for row in order]
    tables.write(staging / "fates.parquet", pa.Table.from_pylist(fates, tables.FATES))
    ledger = []
    for row in order:
        doc = docs[row]
        if doc.stage is not None:
            value, evidence = _evidence(docs, doc)
            ledger.append(
                {"doc_id": doc.id, "stage": _stage_name(doc.stage), "rule": doc.rule, "value": value,
                 "evidence": canonical(evidence).decode(), "decides": True}
            )  # fmt: skip
    tables.write(staging / "ledger.parquet", pa.Table.from_pylist(ledger, tables.LEDGER))
    (staging / "documents").mkdir()
    tables.write(staging / "documents/part-00000.parquet", _documents(docs, stored))
    (staging / "signals").mkdir()
    counts = pa.table({"word_count": pa.array([len(doc.words) for doc in docs], pa.int64())})
    tables.write(staging / "signals/part-00000.parquet", counts)
    _signatures(staging, docs, order)
    tables.write(staging / "rejected.parquet", tables.REFUSED.empty_table())
    tables.write(
        staging / "quarantine.parquet",
        pa.Table.from_pylist([_quarantined("web"), _quarantined("wiki")], tables.REFUSED),
    )


def _signatures(staging: Path, docs: list[Doc], order: list[int]) -> None:
    """Made-up values: only who is there, in which cluster, and how many bands there are, is looked at."""
    near = len(STAGES)
    here = [docs[row] for row in order if docs[row].stage in (None, near)]
    root = {doc.id: docs[doc.like].id for doc in docs if doc.like is not None} | {
        docs[doc.like].id: docs[doc.like].id for doc in docs if doc.like is not None
    }
    rows = [{"doc_id": doc.id, "signature": [7] * 128, "n_shingles": 1, "cluster": root.get(doc.id)} for doc in here]
    tables.write(staging / "signatures.parquet", pa.Table.from_pylist(rows, tables.signatures_schema(128)))
    rank = {docs[row].id: n for n, row in enumerate(order)}
    bands = [{"band": band, "bucket": 1 << 63, "doc": rank[doc.id]} for band in range(21) for doc in here]
    tables.write(staging / "bands.parquet", pa.Table.from_pylist(bands, tables.BANDS))


def _documents(docs: list[Doc], stored: str) -> pa.Table:
    def text(doc: Doc) -> str | None:
        kept = doc.stage is None and doc.copies > 0
        return doc.text if stored == "all" or (stored == "kept" and kept) else None

    entries = [
        {"source": doc.source, "path": f"{doc.source}.jsonl", "offset": row * 10, "line": row + 1,
         "raw_hash": text_id(doc.text.encode()), "snapshot": doc.snapshot, "extra": "{}", "text": text(doc)}
        for row, doc in enumerate(docs)
    ]  # fmt: skip
    return pa.Table.from_pylist(entries, tables.DOCUMENTS)


def _quarantined(source: str) -> dict[str, Any]:
    return {
        "source": source,
        "file": f"{source}.jsonl",
        "line": 9,
        "offset": 99,
        "reason": "not an object",
        "length": 2,
    }


def _reports(docs: list[Doc]) -> list[Report]:
    reports = []
    left = len(docs)
    for place, stage in enumerate(["admit", *(entry["stage"] for entry in STAGES)]):
        gone = [doc for doc in docs if doc.stage == place]
        dropped: dict[str, int] = {}
        by_source: dict[str, dict[str, int]] = {}
        for doc in gone:
            assert doc.rule is not None
            dropped[doc.rule] = dropped.get(doc.rule, 0) + 1
            ours = by_source.setdefault(doc.source, {})
            ours[doc.rule] = ours.get(doc.rule, 0) + 1
        notes = _notes(stage, docs, gone)
        reports.append(Report(stage, place, left, left - len(gone), dropped, by_source, {}, notes))
        left -= len(gone)
    return reports


def _notes(stage: str, docs: list[Doc], gone: list[Doc]) -> dict[str, Any]:
    leak = sum(doc.like is not None and docs[doc.like].split == "validation" for doc in gone)
    held = sum(doc.split == "validation" for doc in docs)
    found: dict[str, dict[str, Any]] = {
        "holdout": {"before_dedup": True, "by": None, "salt": "holdout-1", "fraction": 0.1, "groups": held,
                    "documents": held},
        "exact_dedup": {"leak": leak},
        "near_dedup": {
            "candidates": 1, "compared": 1, "verified": len(gone), "rejected": 0, "capped": 0, "clusters": 1,
            "largest": [2], "numeric_only": 0, "recall_at_threshold": 0.998, "bands": 21, "rows": 6, "leak": leak,
        },
    }  # fmt: skip
    return found.get(stage, {})


def _shards(staging: Path, docs: list[Doc], schema: pa.Schema, shard_rows: int, masked: bool) -> dict[str, Any]:
    """One row for each copy."""
    rank = {doc.id: row for row, doc in enumerate(sorted(docs, key=lambda doc: doc.id))}
    splits = {}
    for split in ("train", "validation"):
        here = sorted(
            (doc for doc in docs if doc.split == split and doc.stage is None and doc.copies), key=lambda d: d.id
        )
        placed = [doc for doc in here for _ in range(doc.copies)]
        placed_rows = [_row(n, doc, rank, masked and n % 3 == 0) for n, doc in enumerate(placed)]
        shards = _write(staging, split, placed_rows, schema, shard_rows)
        splits[split] = _split(here, placed, placed_rows, shards)
    return splits


def _row(number: int, doc: Doc, rank: dict[str, int], masked: bool) -> dict[str, Any]:
    ids = [int(word.removeprefix("w")) % 999 + 1 if word.startswith("w") else 1 for word in doc.words] + [EOS]
    n = len(ids)
    return {
        "row_id": number,
        "input_ids": ids + [EOS] * (LENGTH - n),
        "seg_len": [n],
        "seg_doc": [rank[doc.id]],
        "seg_start": [0],
        "seg_flags": [3],
        "seg_source": [["web", "wiki"].index(doc.source)],
        "loss_mask": b"\xfd" + b"\xff" * (LENGTH // 8 - 1) if masked else None,
        "n_tokens": n,
        "n_targets": n - 1 - masked,
        "n_pad": LENGTH - n,
        "sum_len_sq": n * n,
    }


def _write(staging: Path, split: str, placed: list[dict[str, Any]], schema: pa.Schema, shard_rows: int) -> list[Any]:
    """The shards of a split: their entries in manifest.json."""
    shards = []
    for first in range(0, len(placed), shard_rows):
        here = placed[first : first + shard_rows]
        path = staging / split / f"shard-{len(shards):05d}.parquet"
        path.parent.mkdir(exist_ok=True)
        ids = rows.id_column(np.array([row["input_ids"] for row in here], np.int32), schema)
        table = pa.Table.from_pylist(here, tables.SHARD).set_column(1, schema.field(1), ids)
        options = shard_files.options(schema)
        tables.write_stream(path, schema, table.to_batches(), row_group=tables.SHARD_ROW_GROUP, **options)
        shards.append(
            {"path": f"{split}/{path.name}", "rows": len(here), "row_start": first,
             "tokens": sum(row["n_tokens"] for row in here), "targets": sum(row["n_targets"] for row in here),
             "content_sha256": rows.recount(path).content_sha256}
        )  # fmt: skip
    return shards


def _split(docs: list[Doc], placed: list[Doc], placed_rows: list[dict[str, Any]], shards: list[Any]) -> dict[str, Any]:
    lengths = sorted(len(doc.words) + 1 for doc in docs) or [0]
    stored = sum(len(doc.words) + 1 for doc in placed)
    targets = sum(row["n_targets"] for row in placed_rows)
    return {
        "documents": len(docs),
        "sequences": len(placed),
        "tokens": {
            "stored": stored, "targets": targets, "last_positions": len(placed),
            "masked": stored - len(placed) - targets, "repeated_context": 0,
            "padding": len(placed) * LENGTH - stored, "dropped": {},
        },
        "by_source": {
            source: _share(number, docs, placed_rows, targets) for number, source in enumerate(("web", "wiki"))
        },
        "lengths": {
            "histogram": {"64": len(docs)}, "p1": lengths[0], "p50": lengths[len(lengths) // 2], "p90": lengths[-1],
            "p99": lengths[-1], "max": lengths[-1], "over_length_share": 0.0,
        },
        "packing": {"fill": stored / (len(placed) * LENGTH) if placed else 0.0, "cut_documents": 0, "cut_tokens": 0},
        "shards": shards,
    }  # fmt: skip


def _share(source: int, docs: list[Doc], placed_rows: list[dict[str, Any]], targets: int) -> dict[str, Any]:
    ours = [row for row in placed_rows if row["seg_source"] == [source]]
    mine = sum(row["n_targets"] for row in ours)
    return {
        "documents": sum(doc.source == ("web", "wiki")[source] for doc in docs),
        "copies": len(ours),
        "tokens": sum(row["n_tokens"] for row in ours),
        "targets": mine,
        "asked": None,
        "realised": mine / targets if targets else 0.0,
    }


def change(build: Path, **keys: Any) -> None:
    """Write other values into manifest.json, and nothing else."""
    path = build / "manifest.json"
    path.write_text(json.dumps(json.loads(path.read_bytes()) | keys, indent=1))
