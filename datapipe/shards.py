"""
Shards: taken documents scattered into buckets, packed bucket by bucket, written as rows, and their books closed.

A bucket is a shard.  Train: copy k of c of a document lies in bucket (hash + k x floor(B / c)) mod B, so every bucket
has the same mixture in expectation and no document twice; rows are ordered by hash.  Validation: documents in order
are cut into shards, rows are ordered by their smallest document.  Ids wait on disk; in memory are as many buckets as
there are workers.
"""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from datapipe import derive, tables
from datapipe.documents import Documents, Part, sql
from datapipe.kernels import packing
from datapipe.keyed import keyed, keyed_each
from datapipe.manifest import Manifest
from datapipe.mix import limit, weights
from datapipe.pack import Packed, pack
from datapipe.rows import AGAIN, ENDS, STARTS, Content, id_column
from datapipe.spill import Spill
from datapipe.tokens import ROWS, Special, Tokenized, Tokenizer

SPLITS = ("train", "validation")
HEADS = pa.schema([("doc", pa.int64()), ("doc_id", pa.string()), ("source", pa.int16()), ("tokens", pa.int64())])
BODIES = pa.schema([("doc", pa.int64()), ("ids", pa.list_(pa.int32()))])
LEAVES = [f"{f.name}.list.element" if pa.types.is_list(f.type) else f.name for f in tables.SHARD.remove(1)]
# the leaf's name: the name of the column itself is taken without a word and does nothing
OPTIONS = {"use_dictionary": False, "use_byte_stream_split": ["input_ids.list.element"]}
# storage binary: nothing stands between the memory map and the ids but one page header a row group
PLAIN = {
    "use_dictionary": False,
    "compression": dict.fromkeys(LEAVES, "zstd") | {"input_ids": "none"},
    "compression_level": dict.fromkeys(LEAVES, 3),
    "write_statistics": LEAVES,
}
QUANTILES = {"p1": 1, "p50": 50, "p90": 90, "p99": 99}


@dataclass(frozen=True)
class _Split:
    """What all buckets of a split share."""

    name: str
    docs: Documents
    manifest: Manifest
    buckets: int
    control: tuple[int, int, int]  # ids of bos, eos (-1: none) and pad
    schema: pa.Schema  # of its shards
    heads: Spill
    bodies: Spill

    @property
    def length(self) -> int:
        return self.manifest.sequences.length


class _Bucket(NamedTuple):
    """The documents of a bucket, by doc: doc, source number, tokens taken of each; and its rows in final order."""

    doc: np.ndarray
    source: np.ndarray
    tokens: np.ndarray
    packed: Packed


class _Written(NamedTuple):
    """A shard's entry in manifest.json, and its part of the books."""

    shard: dict
    repeated: int
    by_source: np.ndarray  # int64[sources, 2]: tokens without repeated ones, targets
    segments: int
    cut: tuple[int, int]  # documents that lie in several rows, and their tokens


def write(docs: Documents, tokenized: Tokenized, tokenizer: Tokenizer, manifest: Manifest, folder: Path) -> dict:
    """
    Write `folder`/train and `folder`/validation from the table `taken`; gives manifest.json's `splits`.

    Counts in it: documents are distinct ones; cut_documents, cut_tokens, copies and all tokens count each copy.
    """
    db = docs.work.db
    db.execute("create or replace table source_numbers (source varchar, number smallint)")
    for number, source in enumerate(sorted(manifest.sources)):
        db.execute("insert into source_numbers values (?, ?)", [source, number])
    return {name: _write_split(_open(name, docs, tokenizer, manifest), tokenized, folder / name) for name in SPLITS}


def _write_split(split: _Split, tokenized: Tokenized, folder: Path) -> dict:
    docs = split.docs
    with ThreadPoolExecutor(docs.work.workers) as pool:
        list(pool.map(lambda part: _scatter(split, part, tokenized), docs.parts))
        rows = list(pool.map(lambda bucket: _read_bucket(split, bucket).packed.rows, range(split.buckets)))
        if any(rows):
            folder.mkdir(parents=True)
        starts = np.cumsum([0, *rows])
        numbers = np.cumsum([0, *(n > 0 for n in rows)])  # an empty bucket is no shard
        jobs = [
            partial(_write_shard, split, bucket, folder / f"shard-{numbers[bucket]:05d}.parquet", int(starts[bucket]))
            for bucket in range(split.buckets)
            if rows[bucket]
        ]
        written = list(pool.map(lambda job: job(), jobs))
    return _report(split, written)


def _open(name: str, docs: Documents, tokenizer: Tokenizer, manifest: Manifest) -> _Split:
    """The table of a split's kept documents, how many buckets they need, and their place on disk."""
    parameters = {"split": name, "limit": limit(manifest)}
    docs.work.db.execute(f"create or replace table kept_{name} as {sql('datapipe', 'shards.sql')}", parameters)
    selected, copies, last = docs.work.db.execute(
        "select coalesce(sum(tokens * copies), 0)::bigint, coalesce(max(copies), 0), coalesce(max(before), 0) "
        f"from kept_{name}"
    ).fetchall()[0]
    size = manifest.shards.tokens
    buckets = max(copies, -(-selected // size)) if name == "train" else last // size + bool(selected)
    control = (_id(tokenizer.bos), _id(tokenizer.eos), tokenizer.pad_id)
    schema = tables.shard_schema(manifest.shards.storage, manifest.sequences.length, tokenizer.max_id)
    heads = Spill(docs.work.folder(f"heads-{name}"), buckets, HEADS)
    bodies = Spill(docs.work.folder(f"bodies-{name}"), buckets, BODIES)
    return _Split(name, docs, manifest, buckets, control, schema, heads, bodies)


def _id(special: Special | None) -> int:
    return -1 if special is None else special[1]


def _scatter(split: _Split, part: Part, tokenized: Tokenized) -> None:
    """Append a part's documents to the buckets that their copies lie in."""
    query = (
        f"select row, doc, doc_id, source, tokens, copies, before from kept_{split.name} where part = ? order by row"
    )
    with split.docs.work.db.cursor() as cursor:
        found = cursor.sql(query, params=[part.number]).to_arrow_table()
    if not len(found):
        return
    copies = found["copies"].to_numpy().astype(np.int64)
    buckets = _buckets(split, found, copies)
    begin = np.concatenate(([0], np.cumsum(copies)))
    document = np.repeat(np.arange(len(copies)), copies)
    head = pa.Table.from_batches(found.select(HEADS.names).cast(HEADS).combine_chunks().to_batches())
    _append(split.heads, head, document, buckets)
    rows = found["row"].to_numpy().astype(np.int32)
    for table in derive.read(tokenized.dones[part.number], rows, limit=ROWS):
        at = np.searchsorted(rows, table["row"].to_numpy())
        body = pa.table({"doc": found["doc"].take(pa.array(at)), "ids": table["ids"]}, schema=BODIES)
        here = np.repeat(np.arange(len(at)), copies[at])
        which = np.arange(len(here)) + np.repeat(begin[at] - (np.cumsum(copies[at]) - copies[at]), copies[at])
        _append(split.bodies, body, here, buckets[which])


def _buckets(split: _Split, found: pa.Table, copies: np.ndarray) -> np.ndarray:
    """int64: the bucket of each copy of each document."""
    if split.name == "validation":
        return found["before"].to_numpy() // split.manifest.shards.tokens
    ids = found["doc_id"].to_pylist()
    hashes = np.fromiter(keyed_each("bucket", split.manifest.seed, ids), np.uint64, len(ids))
    first = (hashes % np.uint64(split.buckets)).astype(np.int64)
    number = np.arange(copies.sum()) - np.repeat(np.cumsum(copies) - copies, copies)
    return (np.repeat(first, copies) + number * np.repeat(split.buckets // copies, copies)) % split.buckets


def _append(spill: Spill, rows: pa.Table, take: np.ndarray, buckets: np.ndarray) -> None:
    """Append rows[take[i]] to buckets[i]."""
    order = np.argsort(buckets, kind="stable")
    borders = np.flatnonzero(np.diff(buckets[order], prepend=-1))
    for begin, stop in zip(borders, [*borders[1:], len(order)], strict=True):
        chosen = rows.take(pa.array(take[order[begin:stop]])).combine_chunks()
        for batch in chosen.to_batches():
            spill.append(int(buckets[order[begin]]), batch)


def _read_bucket(split: _Split, bucket: int) -> _Bucket:
    """A bucket's documents in order of doc, packed; rows still as they were packed."""
    heads = split.heads.read(bucket).sort_by("doc")
    tokens = heads["tokens"].to_numpy()
    packed = pack(tokens, split.length, split.manifest.sequences.packing)
    return _Bucket(heads["doc"].to_numpy(), heads["source"].to_numpy(), tokens, packed)


def _order(split: _Split, bucket: int, found: _Bucket) -> np.ndarray:
    """int64: the rows in the order in which they are written."""
    packed = found.packed
    if split.name == "validation":
        doc = found.doc[packed.document]
        row = np.repeat(np.arange(packed.rows), np.diff(packed.offsets))
        by_doc = np.lexsort((doc, row))[packed.offsets[:-1]]  # of each row, the segment with the smallest doc
        return np.lexsort((packed.start[by_doc], doc[by_doc]))
    names = split.heads.read(bucket).sort_by("doc")["doc_id"]
    first, start = packed.document[packed.offsets[:-1]], packed.start[packed.offsets[:-1]]
    chosen = names.take(pa.array(first)).to_pylist()
    hashes = [keyed("row", split.manifest.seed, name, at) for name, at in zip(chosen, start.tolist(), strict=True)]
    return np.lexsort((start, first, np.array(hashes, np.uint64)))


def _write_shard(split: _Split, bucket: int, path: Path, row_start: int) -> _Written:
    found = _read_bucket(split, bucket)
    found = found._replace(packed=found.packed.in_order(_order(split, bucket, found)))
    content = Content()
    columns = _columns(found, row_start)
    content.counts(np.full(found.packed.rows, split.length))
    batches = _batches(split, bucket, found, columns, content)
    rows = tables.write_stream(path, split.schema, batches, row_group=tables.SHARD_ROW_GROUP, **options(split.schema))
    for name in ("seg_len", "seg_start", "seg_flags", "seg_source", "loss_mask"):
        content.column(columns[name].combine_chunks())
    split.heads.drop(bucket)
    split.bodies.drop(bucket)
    shard = {
        "path": f"{split.name}/{path.name}",
        "rows": rows,
        "row_start": row_start,
        "tokens": int(found.packed.size.sum()),
        "targets": int((found.packed.size - 1).sum()),
        "content_sha256": content.hexdigest(),
    }
    return _written(split, found, shard)


def _columns(found: _Bucket, row_start: int) -> pa.Table:
    """All columns of a shard but the ids."""
    packed = found.packed
    flags = STARTS * (packed.start == 0) + ENDS * packed.ends + AGAIN * packed.again
    row = np.repeat(np.arange(packed.rows), np.diff(packed.offsets))
    tokens = np.bincount(row, packed.size, packed.rows).astype(np.int64)
    squares = np.zeros(packed.rows, np.int64)
    np.add.at(squares, row, packed.size**2)
    values = {
        "row_id": np.arange(row_start, row_start + packed.rows),
        "seg_len": packed.size,
        "seg_doc": found.doc[packed.document],
        "seg_start": packed.start,
        "seg_flags": flags,
        "seg_source": found.source[packed.document],
        "n_tokens": tokens,
        "n_targets": tokens - np.diff(packed.offsets),
        "n_pad": packed.length - tokens,
        "sum_len_sq": squares,
    }
    arrays = {name: _array(name, value, packed.offsets) for name, value in values.items()}
    arrays["loss_mask"] = pa.nulls(packed.rows, pa.binary())  # nothing of a document is kept from being predicted
    names = [name for name in tables.SHARD.names if name != "input_ids"]
    return pa.table({name: arrays[name] for name in names})


def _array(name: str, values: np.ndarray, offsets: np.ndarray) -> pa.Array:
    kind = tables.SHARD.field(name).type
    if pa.types.is_list(kind):
        return pa.ListArray.from_arrays(pa.array(offsets.astype(np.int32)), pa.array(values).cast(kind.value_type))
    return pa.array(values).cast(kind)


def _batches(
    split: _Split, bucket: int, found: _Bucket, columns: pa.Table, content: Content
) -> Iterator[pa.RecordBatch]:
    """Row groups of a shard, ids filled in."""
    packed = found.packed
    documents = _ids(split, bucket, found)
    for first in range(0, packed.rows, tables.SHARD_ROW_GROUP):
        stop = min(first + tables.SHARD_ROW_GROUP, packed.rows)
        out = np.empty((stop - first, split.length), np.int32)
        segments = (packed.offsets[first : stop + 1], packed.document, packed.start, packed.size)
        packing.fill(documents, segments, split.control, out)
        content.values(out.reshape(-1))
        here = columns.slice(first, stop - first).add_column(1, split.schema.field(1), id_column(out, split.schema))
        yield from here.cast(split.schema).combine_chunks().to_batches()


def options(schema: pa.Schema) -> dict:
    """How a shard is written.  `binary`: the ids of a row group are one page, whatever their size."""
    if schema is tables.SHARD:
        return OPTIONS
    return PLAIN | {"data_page_size": 2 * tables.SHARD_ROW_GROUP * schema.field("input_ids").type.byte_width}


def _ids(split: _Split, bucket: int, found: _Bucket) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The ids of a bucket's documents (int32), and where those of each begin and how many they are, by doc (int64)."""
    bodies = split.bodies.read(bucket)
    place = np.searchsorted(found.doc, bodies["doc"].to_numpy())
    count, begin = np.empty(len(place), np.int64), np.empty(len(place), np.int64)
    sizes = np.concatenate([chunk.value_lengths().to_numpy() for chunk in bodies["ids"].chunks] or [np.empty(0)])
    count[place] = sizes
    begin[place] = np.cumsum(sizes) - sizes
    ids = np.concatenate([chunk.flatten().to_numpy() for chunk in bodies["ids"].chunks])
    return ids, begin, count


def _written(split: _Split, found: _Bucket, shard: dict) -> _Written:
    packed = found.packed
    source = found.source[packed.document]
    sums = np.zeros((len(split.manifest.sources), 2), np.int64)
    np.add.at(sums, source, np.stack((packed.size - packed.again, packed.size - 1), axis=1))
    cut = np.bincount(packed.document, minlength=len(found.doc)) > 1
    return _Written(
        shard, int(packed.again.sum()), sums, len(packed.size), (int(cut.sum()), int(found.tokens[cut].sum()))
    )


def _report(split: _Split, written: list[_Written]) -> dict:
    """The split in manifest.json; its books are closed here."""
    stored, targets, rows = (sum(one.shard[name] for one in written) for name in ("tokens", "targets", "rows"))
    books = {
        "stored": stored,
        "targets": targets,
        "last_positions": sum(one.segments for one in written),
        "masked": 0,
        "repeated_context": sum(one.repeated for one in written),
        "padding": rows * split.length - stored,
        "dropped": {},
    }
    sources = _sources(
        split, sum((one.by_source for one in written), np.zeros((len(split.manifest.sources), 2), np.int64))
    )
    _close(split, books)
    return {
        "documents": sum(line["documents"] for line in sources.values()),
        "sequences": rows,
        "tokens": books,
        "by_source": sources,
        "lengths": _lengths(split),
        "packing": {
            "fill": stored / (rows * split.length) if rows else 0.0,
            "cut_documents": sum(one.cut[0] for one in written),
            "cut_tokens": sum(one.cut[1] for one in written),
        },
        "shards": [one.shard for one in written],
    }


def _close(split: _Split, books: dict) -> None:
    """tokens of kept documents x copies = stored - repeated context + dropped; stored = targets + last + masked."""
    whole, taken = split.docs.work.db.execute(
        "select coalesce(sum(whole * copies), 0)::bigint, coalesce(sum(tokens * copies), 0)::bigint "
        f"from kept_{split.name}"
    ).fetchall()[0]
    if whole > taken:
        books["dropped"]["max_document_tokens"] = whole - taken
    assert whole == books["stored"] - books["repeated_context"] + sum(books["dropped"].values()), (
        f"the books of {split.name} do not balance: documents have {whole} tokens, {books}"
    )
    assert books["stored"] == books["targets"] + books["last_positions"] + books["masked"], f"{split.name}: {books}"


def _sources(split: _Split, sums: np.ndarray) -> dict[str, dict]:
    """by_source: what was asked for and what came of it, as shares of the split's targets."""
    found = split.docs.work.db.execute(
        f"select source, count(*), sum(copies)::bigint, sum(tokens * copies)::bigint from kept_{split.name} "
        "group by source order by source"
    ).fetchall()
    names = sorted(split.manifest.sources)
    counts = {names[number]: rest for number, *rest in found}
    asked = weights(split.manifest) if split.name == "train" and split.manifest.mixture else None
    lines = {}
    for source, (tokens, targets) in zip(names, sums.tolist(), strict=True):
        documents, copies, taken = counts.get(source, (0, 0, 0))
        assert taken == tokens, f"{split.name}: source {source} has {taken} tokens and {tokens} in its shards"
        lines[source] = {
            "documents": documents,
            "copies": copies,
            "tokens": tokens,
            "targets": targets,
            "asked": float(asked[source]) if asked else None,
            "realised": targets / int(sums[:, 1].sum()) if targets else 0.0,
        }
    return lines


def _lengths(split: _Split) -> dict:
    """Tokens of distinct kept documents, before max_document_tokens; quantiles are discrete."""
    found = split.docs.work.db.execute(
        f"select whole, count(*) from kept_{split.name} group by whole order by whole"
    ).fetchall()
    number = sum(count for _, count in found)
    histogram: dict[str, int] = {}
    for tokens, count in found:
        name = str(1 << (tokens - 1).bit_length())
        histogram[name] = histogram.get(name, 0) + count
    over = sum(tokens * count for tokens, count in found if tokens > split.length)
    return {
        "histogram": histogram,
        **{name: _quantile(found, -(-number * percent // 100)) for name, percent in QUANTILES.items()},
        "max": found[-1][0] if found else 0,
        "over_length_share": over / sum(tokens * count for tokens, count in found) if found else 0.0,
    }


def _quantile(found: list[tuple[int, int]], rank: int) -> int:
    """The length of the document of that rank (from 1), 0 without documents."""
    for tokens, count in found:
        rank -= count
        if rank <= 0:
            return tokens
    return 0
