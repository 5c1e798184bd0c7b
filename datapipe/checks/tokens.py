"""The books of tokens, counted from the shards alone."""

from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa

from datapipe.books import Books
from datapipe.build_manifest.types import Shard, Tokenizer
from datapipe.checks.check import SHOWN, Check, Progress
from datapipe.errors import DatapipeError
from datapipe.rows import Recount, recount


def checks(books: Books, workers: int, told: Progress) -> list[Check]:
    """content_sha256 and the token books; the books only where every shard could be counted."""
    made = books.manifest
    if made.tokenizer is None:
        return []
    length = (made.manifest.get("sequences") or {}).get("length")
    shards = [(name, shard) for name, split in made.splits.items() for shard in split.shards]
    counted: dict[str, list[Recount]] = {"train": [], "validation": []}
    differences: list[str] = []
    with ThreadPoolExecutor(max_workers=workers) as pool:
        results = pool.map(partial(_recount, books.build), [shard.path for _, shard in shards])
        for number, ((name, shard), result) in enumerate(zip(shards, results, strict=True), 1):
            told("shards", number, len(shards))
            if isinstance(result, str):
                differences.append(result)
            else:
                counted[name].append(result)
                differences += _shard(shard, result, length, made.tokenizer)
    found = [Check("shards", len(shards), differences)]
    return found if differences else [*found, _tokens(books, counted)]


def _shard(shard: Shard, result: Recount, length: int | None, tokenizer: Tokenizer) -> list[str]:
    """What manifest.json says of a shard against what its file holds."""
    told = {
        "rows": shard.rows,
        "tokens": shard.tokens,
        "targets": shard.targets,
        "content_sha256": shard.content_sha256,
    }
    counted = {
        "rows": result.rows,
        "tokens": result.stored,
        "targets": result.targets,
        "content_sha256": result.content_sha256,
    }
    wrong = [
        f"{shard.path}: {key} is {told[key]}, counted {value}" for key, value in counted.items() if told[key] != value
    ]
    if result.rows and length and result.length != length:
        wrong.append(f"{shard.path}: rows of {result.length} ids, the manifest says {length}")
    if result.max_id > tokenizer.max_id:
        wrong.append(f"{shard.path}: id {result.max_id}, the tokenizer's largest is {tokenizer.max_id}")
    return wrong


def _recount(build: Path, path: str) -> Recount | str:
    try:
        return recount(build / path)
    except (DatapipeError, OSError, pa.ArrowInvalid) as error:
        return f"{path}: {error}"


def _tokens(books: Books, counted: dict[str, list[Recount]]) -> Check:
    """stored = targets + last positions + masked; tokens of kept documents x copies = stored - repeated + dropped."""
    differences: list[str] = []
    for name, split in books.manifest.splits.items():
        told = split.tokens
        keys = ("stored", "targets", "last_positions", "masked", "repeated_context", "padding")
        sums = {key: sum(getattr(part, key) for part in counted[name]) for key in keys}
        differences += [
            f"splits.{name}.tokens.{key} is {getattr(told, key)}, counted {value}"
            for key, value in sums.items()
            if getattr(told, key) != value
        ]
        if sums["stored"] != sums["targets"] + sums["last_positions"] + sums["masked"]:
            differences.append(f"{name}: stored is not targets + last positions + masked: {sums}")
        there = books.query(
            "select coalesce(sum(tokens * copies), 0)::bigint from fates where fate = 'kept' and split = ?", [name]
        )[0][0]
        given = sums["stored"] - sums["repeated_context"] + sum(told.dropped.values())
        if there != given:
            differences.append(
                f"{name}: kept documents have {there} tokens in all copies, the shards hold and drop {given}"
            )
        differences += _placed(books, name, counted[name], sum(told.dropped.values()))
    return Check("tokens", sum(part.stored for parts in counted.values() for part in parts), differences)


def _placed(books: Books, split: str, counted: list[Recount], dropped: int) -> list[str]:
    """Which documents the rows hold, and how many tokens of each: those that fates keep on that side, times copies."""
    docs = np.concatenate([part.documents for part in counted] or [np.empty(0, np.int64)])
    tokens = np.concatenate([part.tokens for part in counted] or [np.empty(0, np.int64)])
    books.db.register("counted", pa.table({"doc": docs, "tokens": tokens}))
    wrong = books.query(
        "with placed as (select doc, sum(tokens)::bigint as tokens from counted group by doc) "
        "select coalesce(f.doc_id, 'row ' || p.doc::varchar), coalesce(p.tokens, 0), coalesce(f.tokens * f.copies, 0) "
        "from placed p full join (select * from fates where fate = 'kept' and split = ?) f using (doc) "
        "where f.doc_id is null or coalesce(p.tokens, 0) > f.tokens * f.copies "
        f"or (? = 0 and coalesce(p.tokens, 0) <> f.tokens * f.copies) order by 1 limit {SHOWN}",
        [split, dropped],
    )
    books.db.unregister("counted")
    return [f"{split}: {doc_id}: its rows hold {here} tokens, fates say {there}" for doc_id, here, there in wrong]
