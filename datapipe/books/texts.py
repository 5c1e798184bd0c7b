"""Documents themselves: what was dropped, which pairs were called duplicates, what became of one."""

import errno
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from datapipe.books.differ import Hunk, differ
from datapipe.books.library import Books
from datapipe.errors import IntegrityError, ManifestError

ORIGIN = ("path", "offset", "line", "id")


@dataclass(frozen=True)
class Pair:
    """A dropped document and the one that stayed; `hunks` is None where a text is not stored."""

    stage: str
    jaccard: float | None
    kept: dict[str, Any]
    dropped: dict[str, Any]
    hunks: list[Hunk] | None
    more: bool


def part_path(build: Path, part: int) -> Path:
    return build / "documents" / f"part-{part:05d}.parquet"


@contextmanager
def stored(path: Path) -> Iterator[pq.ParquetFile]:
    """A part of documents to read from; IntegrityError where it is not there, or its bytes are not what was written."""
    try:
        with pq.ParquetFile(path, page_checksum_verification=True) as file:
            yield file
    except (OSError, pa.ArrowException) as error:
        if isinstance(error, OSError) and error.errno not in (None, errno.ENOENT):  # the machine's, not the file's
            raise
        raise IntegrityError(f"{path}: cannot be read ({error}); `datapipe verify` says more") from error


def fetch(build: Path, places: Sequence[tuple[int, int]], columns: Sequence[str]) -> list[dict[str, Any]]:
    """The columns of documents at (part, row), in the order asked; only the row groups that hold them are read."""
    found: dict[tuple[int, int], dict[str, Any]] = {}
    for part in sorted({part for part, _ in places}):
        rows = np.unique([row for number, row in places if number == part])
        with stored(part_path(build, part)) as file:
            for row, values in _rows(file, rows, list(columns)):
                found[part, row] = values
    return [found[place] for place in places]


def _rows(file: pq.ParquetFile, rows: np.ndarray, columns: list[str]) -> Iterator[tuple[int, dict[str, Any]]]:
    start = 0
    for group in range(file.num_row_groups):
        stop = start + file.metadata.row_group(group).num_rows
        here = rows[(rows >= start) & (rows < stop)]
        if len(here):
            table = file.read_row_group(group, columns=columns).take(pa.array(here - start))
            yield from zip(here.tolist(), table.to_pylist(), strict=True)
        start = stop


def dropped(books: Books, rule: str, limit: int | None, source: str | None = None) -> Iterator[dict[str, Any]]:
    """
    Documents that left by a stage ("near_dedup", "2:near_dedup"), or that broke a rule ("word_count < 50", or what has
    `rule` in it) in the stage that dropped them; `decides` is false where another rule came first.

    In order of doc_id, which is a hash: the first n are a fair sample.  `text` is None where it is not stored.
    """
    if source is not None and source not in books.manifest.sources:
        raise ManifestError(f"--source {source}: no such source; there are: {', '.join(books.manifest.sources)}")
    rules = _matching(books, rule)
    wanted = " or ".join("(stage = ? and rule is not distinct from ?)" for _ in rules)
    rows = books.query(
        f"select doc_id, source, stage, rule, value, evidence, bytes, decides, part, row from ({BROKE}) "
        f"where ({wanted}) and (? is null or source = ?) "
        "qualify row_number() over (partition by doc_id order by decides desc, rule) = 1 order by doc_id limit ?",
        [*(value for pair in rules for value in pair), source, source, limit if limit is not None else 1 << 62],
    )
    names = ("doc_id", "source", "stage", "rule", "value", "evidence", "bytes", "decides")
    for start in range(0, len(rows), 64):
        batch = rows[start : start + 64]
        texts = _texts(books, [(row[8], row[9]) for row in batch])
        for row, text in zip(batch, texts, strict=True):
            entry = dict(zip(names, row, strict=False))
            yield entry | {"evidence": json.loads(row[5]) if row[5] else None} | text


# every rule that a document broke in the stage that dropped it; unused documents have no ledger row
BROKE = """
select f.doc_id, f.source, f.stage, coalesce(l.rule, f.rule) as rule, l.value, l.evidence, f.bytes,
       coalesce(l.decides, true) as decides, f.part, f.row
from fates f left join ledger l on l.doc_id = f.doc_id and l.stage = f.stage
where f.fate <> 'kept'
"""


def _texts(books: Books, places: list[tuple[int, int]]) -> list[dict[str, Any]]:
    """Origin and text of documents; empty where the build has no documents folder."""
    columns = (*ORIGIN, "text")
    return fetch(books.build, places, columns) if books.has("documents") else [dict.fromkeys(columns) for _ in places]


def _matching(books: Books, wanted: str) -> list[tuple[str, str | None]]:
    """The (stage, rule) pairs that a user means: an exact rule, else a stage, else rules that contain the words."""
    there = books.query(f"select distinct stage, rule from ({BROKE}) order by all")
    for fits in (
        [pair for pair in there if pair[1] == wanted],
        [pair for pair in there if wanted in (pair[0], pair[0].split(":")[-1])],
        [pair for pair in there if wanted.lower() in f"{pair[0]} {pair[1]}".lower()],
    ):
        if fits:
            return [(stage, rule) for stage, rule in fits]
    names = "; ".join(f"{stage}: {rule}" for stage, rule in there) or "nothing was dropped"
    raise ManifestError(f"--dropped {wanted}: no document left by such a rule or stage; there are: {names}")


def duplicates(books: Books, limit: int) -> list[Pair]:
    """Pairs that near dedup called duplicates (exact dedup, where no near dedup ran or found any)."""
    for stage in ("near_dedup", "exact_dedup"):
        rows = books.query(
            "select l.stage, l.value, d.doc_id, d.source, d.bytes, d.part, d.row, "
            "k.doc_id, k.source, k.bytes, k.part, k.row "
            "from ledger l join fates d on d.doc_id = l.doc_id join fates k on k.doc_id = l.evidence->>'$.kept' "
            "where l.decides and split_part(l.stage, ':', 2) = ? order by l.doc_id limit ?",
            [stage, limit],
        )
        if rows:
            return [_pair(books, row) for row in rows]
    return []


def _pair(books: Books, row: tuple[Any, ...]) -> Pair:
    stage, value, *both = row
    sides = [dict(zip(("doc_id", "source", "bytes"), both[i : i + 3], strict=True)) for i in (0, 5)]
    texts = _texts(books, [(both[3], both[4]), (both[8], both[9])])
    drop, kept = ({**side, **{key: text[key] for key in ORIGIN}} for side, text in zip(sides, texts, strict=True))
    if texts[0]["text"] is None or texts[1]["text"] is None:
        return Pair(stage, value, kept, drop, None, more=False)
    hunks, more = differ(texts[1]["text"], texts[0]["text"])
    return Pair(stage, value, kept, drop, hunks, more)


def life(books: Books, prefix: str) -> dict[str, Any]:
    """What became of a document, named by the first digits of its doc_id: fate, ledger, origin, shard rows, text."""
    low = prefix.lower()
    found = books.query("select doc_id from fates where starts_with(doc_id, ?) order by doc_id limit 4", [low])
    if len(found) != 1:
        names = ", ".join(row[0] for row in found)
        what = f"several documents begin so ({names}, ...); give more digits" if found else "no document begins so"
        raise ManifestError(f"--document {prefix}: {what}")
    columns = list(books.db.execute("select * from fates limit 0").description or [])
    values = books.query("select * from fates where doc_id = ?", [found[0][0]])[0]
    fate = dict(zip([str(column[0]) for column in columns], values, strict=True))
    ledger = books.query(
        "select stage, rule, value, evidence, decides from ledger where doc_id = ? order by stage, decides desc, rule",
        [fate["doc_id"]],
    )
    names = ("stage", "rule", "value", "evidence", "decides")
    return {
        **fate,
        **_texts(books, [(fate["part"], fate["row"])])[0],
        "ledger": [
            dict(zip(names, row, strict=True)) | {"evidence": json.loads(row[3]) if row[3] else None} for row in ledger
        ],
        "stands_for": [row[0] for row in books.query(STANDS_FOR, [fate["doc_id"]])],
        "shards": _shards(books, fate["doc"]),
    }


STANDS_FOR = "select doc_id from ledger where decides and evidence->>'$.kept' = ? order by doc_id"


def _shards(books: Books, doc: int) -> list[dict[str, Any]]:
    """The rows of shards that hold a piece of the document."""
    if not (books.has("train") or books.has("validation")):
        return []
    rows = books.query("select file, row_id from shards where list_contains(seg_doc, ?) order by file, row_id", [doc])
    return [{"file": file, "row_id": row_id} for file, row_id in rows]
