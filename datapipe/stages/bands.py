"""
Signatures and bands: which documents could be near duplicates of each other.

Every document that reaches near dedup has a signature, kept in the unit store; its bands are sorted once into
bands.parquet.  Documents that share a bucket are linked; a link group is a component of links.
"""

import json
import shutil
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa

from datapipe import tables, text, units
from datapipe.derive import Derivation, derive, read
from datapipe.documents import Documents
from datapipe.kernels.jit import given
from datapipe.kernels.walk import link, roots
from datapipe.spill import Spill
from datapipe.stages.staying import write_clusters
from datapipe.units import Done

VERSION = 1
SORTED = 1 << 20  # band rows at a time
ROW_GROUP = 1 << 18  # of bands.parquet
SIGNATURE_ROW_GROUP = 1 << 14
NAMES = """
select e.doc, hex32(d.doc_id) as doc_id, hex32(k.doc_id) as cluster
from near_entered e join documents d using (doc)
left join clusters c using (doc) left join documents k on k.doc = c.cluster
where e.doc >= ? and e.doc < ?
order by e.doc
"""


@dataclass(frozen=True)
class Banding:
    """What decides who meets whom: units in a shingle, values in a signature, bands and the rows of each."""

    ngram: int
    num_perm: int
    bands: int
    rows: int


@dataclass(frozen=True)
class Entered:
    """
    The documents that reached near dedup, by part number: rows int32 (sorted), docs int64 beside them, and the units
    that hold their signatures; shingles int32 by doc, -1 for the others.
    """

    rows: dict[int, np.ndarray]
    docs: dict[int, np.ndarray]
    units: dict[int, list[Done]]
    shingles: np.ndarray = field(repr=False)


def banding(threshold: float, ngram: int, num_perm: int) -> Banding:
    return Banding(ngram, num_perm, *text.bands_for(threshold, num_perm))


def sign(docs: Documents, how: Banding) -> Entered:
    """Signatures of all documents that are alive, from the unit store or computed; the table near_entered (doc)."""
    found = {part.number: docs.alive(part) for part in docs.parts}
    rows = {number: rows for number, (rows, _) in found.items() if len(rows)}
    names = {number: found[number][1] for number in rows}
    docs.work.db.execute(
        "create or replace table near_entered as select doc, part, row from documents where place is null order by doc"
    )
    total = docs.count("true")[0]
    return Entered(rows, names, derive(_derivation(how), docs, rows), np.full(total, -1, np.int32))


def signatures(entered: Entered, part: int, rows: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """(docs int64[n], signature uint32[n, num_perm], n_shingles int32[n]) of rows of a part, in small tables."""
    for table in read(entered.units[part], rows):
        at = entered.rows[part].searchsorted(table["row"].to_numpy())
        values = table["signature"].combine_chunks()
        matrix = values.flatten().to_numpy().reshape(len(values), values.type.list_size)
        yield entered.docs[part][at], matrix, table["n_shingles"].to_numpy()


def write_sorted(docs: Documents, entered: Entered, how: Banding) -> np.ndarray:
    """
    Write bands.parquet into the scratch folder; the link group of every document (int64 by doc, -1 without a link),
    named by its smallest document.  Fills entered.shingles.
    """
    parent = np.full(len(entered.shingles), -1, np.int64)
    folder = _folder(docs)
    folder.mkdir(exist_ok=True)
    (folder / "banding.json").write_text(json.dumps(asdict(how)))
    cursor = docs.work.db.cursor()
    cursor.register("rows", pa.RecordBatchReader.from_batches(tables.BANDS, _band_rows(entered, how)))

    def batches() -> Iterator[pa.RecordBatch]:
        ordered = cursor.sql("select band, bucket, doc from rows order by band, bucket, doc")
        last = tables.BANDS.empty_table().to_batches()[:0]
        with ordered.to_arrow_reader(SORTED) as reader:
            for batch in reader:
                joined = pa.Table.from_batches([*last, batch]).combine_chunks()
                band, bucket, doc = (given(joined[name].to_numpy()) for name in tables.BANDS.names)
                link(band, bucket, doc, parent)
                last = [batch.slice(len(batch) - 1)] if len(batch) else last
                yield batch

    options = {"use_dictionary": ["band"], "column_encoding": {"bucket": "DELTA_BINARY_PACKED"}}
    tables.write_stream(folder / "bands.parquet", tables.BANDS, batches(), row_group=ROW_GROUP, **options)
    roots(parent)
    return parent


def _band_rows(entered: Entered, how: Banding) -> Iterator[pa.RecordBatch]:
    """A row a band for every document that has units."""
    band = np.arange(how.bands, dtype=np.int16)
    for part, rows in entered.rows.items():
        for names, matrix, shingles in signatures(entered, part, rows):
            entered.shingles[names] = shingles
            some = shingles > 0
            if not some.any():
                continue
            buckets = text.band_buckets(matrix[some], how.bands, how.rows)
            columns = [np.tile(band, len(buckets)), buckets.ravel(), np.repeat(names[some], how.bands)]
            yield pa.record_batch([pa.array(column) for column in columns], schema=tables.BANDS)


def _derivation(how: Banding) -> Derivation:
    schema = pa.schema([("signature", pa.list_(pa.uint32(), how.num_perm)), ("n_shingles", pa.int32())])

    def compute(table: pa.Table) -> list[pa.Array]:
        matrix, shingles = text.signatures(table["text"].combine_chunks(), how.ngram, how.num_perm)
        values = pa.array(matrix.ravel())
        return [pa.FixedSizeListArray.from_arrays(values, how.num_perm), pa.array(shingles, pa.int32())]

    settings = {"ngram": how.ngram, "num_perm": how.num_perm, "text": text.VERSION, "unicode": text.UNICODE}
    return Derivation("signatures", VERSION, settings, ["datasketch"], schema, compute)


def _folder(docs: Documents) -> Path:
    return docs.work.folder("near_dedup")


def write_bands(docs: Documents, path: Path) -> None:
    """bands.parquet as near dedup sorted it."""
    units.link(_folder(docs) / "bands.parquet", path)


def write_signatures(docs: Documents, path: Path) -> None:
    """signatures.parquet: every document that reached near dedup, in order of doc_id, with the cluster it ended in."""
    how = Banding(**json.loads((_folder(docs) / "banding.json").read_text()))
    write_clusters(docs.work)
    spill, pieces, total = _spill_signatures(docs, how)
    schema = tables.signatures_schema(how.num_perm)

    def batches() -> Iterator[pa.RecordBatch]:
        for piece in range(pieces):
            table = spill.read(piece).combine_chunks().sort_by("doc")
            low, high = (-(-total * p // pieces) for p in (piece, piece + 1))
            names = docs.work.db.sql(NAMES, params=[low, high]).to_arrow_table()
            columns = [names["doc_id"], table["signature"], table["n_shingles"], names["cluster"]]
            yield from pa.table(columns, schema=schema).to_batches()
            spill.drop(piece)

    tables.write_stream(
        path, schema, batches(), row_group=SIGNATURE_ROW_GROUP, use_dictionary=["n_shingles", "cluster"]
    )
    shutil.rmtree(spill.folder)


def _spill_signatures(docs: Documents, how: Banding) -> tuple[Spill, int, int]:
    """Signatures in pieces of equal ranges of doc, each small in memory; (spill, pieces, documents in all)."""
    total = max(1, docs.count("true")[0])
    pieces = -(-total * (4 * how.num_perm + 128) // max(1, docs.work.memory // 32))
    schema = pa.schema(
        [("doc", pa.int64()), ("signature", pa.list_(pa.uint32(), how.num_perm)), ("n_shingles", pa.int32())]
    )
    spill = Spill(docs.work.folder("signatures"), pieces, schema, memory=docs.work.memory // 32)
    entered = _entered(docs, how)
    for part, rows in entered.rows.items():
        for names, matrix, shingles in signatures(entered, part, rows):
            values = pa.FixedSizeListArray.from_arrays(pa.array(matrix.ravel()), how.num_perm)
            batch = pa.record_batch([pa.array(names), values, pa.array(shingles)], schema=schema)
            scatter(spill, names * pieces // total, batch)
    return spill, pieces, total


def _entered(docs: Documents, how: Banding) -> Entered:
    """What `sign` gave, found again after later stages."""
    rows, names = {}, {}
    for part in docs.parts:
        query = "select row, doc from near_entered where part = ? order by row"
        found = docs.work.db.execute(query, [part.number]).fetchnumpy()
        if len(found["row"]):
            rows[part.number], names[part.number] = found["row"].astype(np.int32), found["doc"].astype(np.int64)
    return Entered(rows, names, derive(_derivation(how), docs, rows), np.empty(0, np.int32))


def scatter(spill: Spill, bucket: np.ndarray, batch: pa.RecordBatch) -> None:
    """Append each row of a batch to its bucket."""
    order = np.argsort(bucket, kind="stable")
    ends = np.flatnonzero(np.diff(bucket[order])) + 1
    for start, stop in zip([0, *ends], [*ends, len(order)], strict=True):
        if stop > start:
            spill.append(int(bucket[order[start]]), batch.take(pa.array(order[start:stop])))
