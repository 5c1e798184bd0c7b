"""
Every table a build writes: its columns, and the one way it is written.

Parquet is written by pyarrow alone, with one set of options.  Bytes depend on the rows and on how the
calls cut them into row groups, so callers cut by row number, never by batch size.
"""

from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

# documents/part-00000.parquet: written once, at reading.  `text` is after edits.
DOCUMENTS = pa.schema(
    [
        ("source", pa.string()),
        ("path", pa.string()),  # relative to the source's folder
        ("offset", pa.int64()),  # byte offset in the (decompressed) file; null for Parquet
        ("line", pa.int64()),  # 1-based line, or row of a Parquet file
        ("raw_hash", pa.string()),  # xxh3_128 of the text before edits
        ("id", pa.string()),
        ("group", pa.string()),
        ("date", pa.string()),
        ("version", pa.string()),
        ("snapshot", pa.string()),
        ("lang", pa.string()),
        ("extra", pa.string()),  # canonical JSON object of the extra fields
        ("text", pa.large_string()),
    ]
)

# narrow.parquet beside it in the unit store, same rows: what admission and the stages need without the text
NARROW = pa.schema(
    [
        ("own", pa.string()),  # doc_id with n = 0
        ("fields", pa.string()),  # canonical JSON of all mapped and extra fields but the text
        ("key", pa.string()),  # value of snapshot.key, null without one
        ("instant", pa.int64()),  # microseconds since 1970 UTC, null where none or unparsable
        ("version_order", pa.string()),  # sorts by code point as `version` sorts naturally
        ("group", pa.string()),
        ("snapshot", pa.string()),
        ("lang", pa.string()),
        ("text_hash", pa.string()),  # xxh3_128 of the normal form, after edits
        ("bytes", pa.int64()),  # UTF-8 bytes after edits
    ]
)

# cut.parquet: documents that select or a keyed sample cut; they count in the n of doc_id, and nowhere else
CUT = pa.schema([("own", pa.string()), ("fields", pa.string())])

# rejected.parquet and quarantine.parquet
REFUSED = pa.schema(
    [
        ("source", pa.string()),
        ("file", pa.string()),
        ("line", pa.int64()),
        ("offset", pa.int64()),
        ("reason", pa.string()),
        ("length", pa.int64()),
        ("xxh3_128", pa.string()),
        ("raw", pa.binary()),  # first bytes, only where quarantine.raw asks; else null
    ]
)

FATES = pa.schema(
    [
        ("doc_id", pa.string()),
        ("source", pa.string()),
        ("snapshot", pa.string()),
        ("group", pa.string()),
        ("text_hash", pa.string()),
        ("bytes", pa.int64()),
        ("split", pa.string()),  # train | validation
        ("fate", pa.string()),  # kept | dropped | unused
        ("stage", pa.string()),  # null for kept
        ("rule", pa.string()),  # null for kept
        ("copies", pa.int32()),
        ("tokens", pa.int64()),  # with bos and eos, before max_document_tokens; null where never tokenized
        ("part", pa.int32()),
        ("row", pa.int32()),
    ]
)

LEDGER = pa.schema(
    [
        ("doc_id", pa.string()),
        ("stage", pa.string()),  # "2:near_dedup"
        ("rule", pa.string()),
        ("value", pa.float64()),
        ("evidence", pa.string()),  # canonical JSON or null
        ("decides", pa.bool_()),
    ]
)

BANDS = pa.schema([("band", pa.int16()), ("bucket", pa.uint64()), ("doc", pa.int64())])


def signatures_schema(num_perm: int) -> pa.Schema:
    """signatures.parquet: of every document that reached near dedup, by doc_id."""
    return pa.schema(
        [
            ("doc_id", pa.string()),
            ("signature", pa.list_(pa.uint32(), num_perm)),
            ("n_shingles", pa.int32()),
            ("cluster", pa.string()),
        ]
    )


# train/shard-00000.parquet: a row is one packed sequence
SHARD = pa.schema(
    [
        ("row_id", pa.int64()),
        ("input_ids", pa.list_(pa.int32())),
        ("seg_len", pa.list_(pa.int32())),
        ("seg_doc", pa.list_(pa.int64())),  # row of fates.parquet
        ("seg_start", pa.list_(pa.int32())),  # token offset in its document
        ("seg_flags", pa.list_(pa.uint8())),  # 1 starts doc, 2 ends doc, 4 first token repeated as context
        ("seg_source", pa.list_(pa.int16())),  # index into manifest.json's sources[]
        ("loss_mask", pa.binary()),  # bit i: token i may be predicted; null: all
        ("n_tokens", pa.int32()),
        ("n_targets", pa.int32()),
        ("n_pad", pa.int32()),
        ("sum_len_sq", pa.int64()),
    ]
)
SHARD_ROW_GROUP = 64


def shard_schema(storage: str, length: int, max_id: int) -> pa.Schema:
    """
    The columns of a shard.

    Storage `binary`: input_ids are the `length` ids of a row, little-endian, two bytes each where the tokenizer's
    largest id fits into them, else four.
    """
    if storage == "list":
        return SHARD
    return _binary(length, 2 if max_id < 1 << 16 else 4)


def _binary(length: int, width: int) -> pa.Schema:
    return SHARD.set(SHARD.get_field_index("input_ids"), pa.field("input_ids", pa.binary(length * width), False))


def id_bytes(schema: pa.Schema, length: int) -> int | None:
    """Bytes of an id where `schema` is that of a `binary` shard with `length` ids in a row; None where it is not."""
    return next((width for width in (2, 4) if schema.equals(_binary(length, width))), None)


ROW_GROUP = 65_536


def writer(path: Path, schema: pa.Schema, **options) -> pq.ParquetWriter:
    """A Parquet writer with the project's options: zstd, page checksums."""
    options = {"compression": "zstd", "compression_level": 3, "write_page_checksum": True} | options
    return pq.ParquetWriter(path, schema, **options)


def write(path: Path, table: pa.Table, *, row_group: int = ROW_GROUP, **options) -> None:
    """Write a whole table, combined first, so that its chunks do not decide the bytes."""
    with writer(path, table.schema, **options) as out:
        out.write_table(table.combine_chunks(), row_group_size=row_group)


def write_stream(
    path: Path, schema: pa.Schema, batches: Iterable[pa.RecordBatch], *, row_group: int = ROW_GROUP, **options
) -> int:
    """Write batches of any size as row groups of exactly `row_group` rows (the last may be short); rows written."""
    waiting: list[pa.RecordBatch] = []
    held = rows = 0
    with writer(path, schema, **options) as out:
        for batch in batches:
            batch = batch.cast(schema) if batch.schema != schema else batch
            while held + len(batch) >= row_group:
                head = batch.slice(0, row_group - held)
                table = pa.Table.from_batches([*waiting, head], schema).combine_chunks()
                out.write_table(table, row_group_size=row_group)
                batch, waiting, held, rows = batch.slice(len(head)), [], 0, rows + row_group
            if len(batch):
                waiting.append(batch)
                held += len(batch)
        if held or not rows:
            table = pa.Table.from_batches(waiting, schema).combine_chunks()
            out.write_table(table, row_group_size=row_group)
    return rows + held
