"""
A bounded look into one file: records from its beginning and from places spread over it, as the readers see them.

A plain file is entered at several places, a compressed one is expanded whole where that takes a few seconds, else up
to a bound, of Parquet a few row groups are read.  What a record is, which bytes are its encoding and why one is
unreadable, the readers decide.
"""

import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq

from datapipe.errors import DataError, MachineError
from datapipe.propose.values import Record, flat
from datapipe.read import csv, files, jsonl, texts
from datapipe.read.fields import Bad, Repeated, clean, mapping
from datapipe.read.streams import NO_LIMIT, Block, Damage, Expanded, Place, blocks, utf_other

T = TypeVar("T")

RECORDS = 1000  # of a file
TEXT = 16_000_000  # bytes of text that are looked at in a file
PIECE = 1_000_000  # bytes of text looked at in one place
PLACES = 8  # of a plain file, at least as many of one that is expanded whole
# bytes of compressed files that are expanded whole, all of a source and one: ten seconds and four at most, about
ALL = {"zstd": 256_000_000, "gzip": 256_000_000, "xz": 64_000_000, "bz2": 16_000_000}
ONE = {"zstd": 64_000_000, "gzip": 64_000_000, "xz": 16_000_000, "bz2": 4_000_000}
EXPANDED = 1_000_000_000  # bytes of text of one
GROUPS = 4  # row groups of a Parquet file
RUN = 10  # records that follow each other in a sample
ROWS = 250  # of each
PAGE = 200_000  # bytes of a text file
NOT_AN_OBJECT = "not an object"


@dataclass
class Sample:
    """What was found in a file; `format` is that by which it was read."""

    path: Path
    format: str
    codec: str | None
    bytes: int
    records: list[Record] = field(default_factory=list)
    unreadable: Counter[str] = field(default_factory=Counter)  # reason -> records
    odd: set[str] = field(default_factory=set)  # names of fields that no manifest can say
    repeated: set[str] = field(default_factory=set)  # names that a record gave twice
    columns: Sequence[str] = ()  # of formats that have a header
    whole: bool = True  # nothing was left out
    first: int | None = None  # where only its beginning was looked at: how many records that has
    damage: str | None = None  # how the compressed data ends wrongly
    encoding: str | None = None  # where it is not UTF-8

    @property
    def looked(self) -> int:
        """Records, unreadable ones too."""
        return len(self.records) + self.unreadable.total()


class Bounded:
    """Chunks up to a number of bytes, and to a line of more than TEXT of them; `cut` tells whether there were more."""

    def __init__(self, chunks: Iterable[bytes], most: int):
        self.chunks, self.left, self.cut = chunks, most, False

    def __iter__(self) -> Iterator[bytes]:
        line = 0
        for chunk in self.chunks:
            if self.left <= 0 or line > TEXT:
                self.cut = True
                return
            end = chunk.rfind(b"\n") + 1
            line = len(chunk) - end if end else line + len(chunk)
            yield chunk[: self.left]
            self.cut = len(chunk) > self.left
            self.left -= len(chunk)


def head(path: Path, codec: str | None, most: int) -> tuple[bytes, str | None]:
    """The first bytes of a file, expanded, and how it is damaged before these end."""
    found = bytearray()
    try:
        for chunk in Bounded(Expanded(path, codec, NO_LIMIT), most):
            found += chunk
    except Damage as damage:
        return bytes(found), str(damage)
    except DataError:
        return b"", "not compressed as its name says"
    except OSError as error:
        raise MachineError(f"{path}: cannot be read: {error.strerror}") from error
    return bytes(found), None


def take(path: Path, format: str, most: int = RECORDS, among: int = 1) -> Sample:  # noqa: A002  the manifest's word
    """A look into one of so many files, as `format` reads it; at most that many records."""
    kind, codec = files.kind(path.name, format)
    sample = Sample(path, kind, codec, path.stat().st_size)
    match kind:
        case "parquet":
            _parquet(sample, most)
        case "text":
            _text(sample)
        case "csv":
            _csv(sample, _stream(sample), most)
        case _:
            _jsonl(sample, _places(sample, among), most)
    return sample


def of_bytes(name: str, data: bytes, format: str, most: int = RECORDS) -> Sample:  # noqa: A002
    """A look into a file that lies in another one."""
    sample = Sample(Path(name), format, None, len(data))
    one = blocks(iter([data]), Place(0, 1), size=PIECE)
    if format == "csv":
        _csv(sample, one, most)
    else:
        _jsonl(sample, one, most)
    return sample


def thin(items: Sequence[T], most: int) -> Sequence[T]:
    """At most that many items, evenly spread, the first among them."""
    return items if len(items) <= most else [items[at * len(items) // most] for at in range(most)]


def runs(items: Sequence[T], most: int) -> Sequence[T]:
    """At most that many items in RUN neighbours each, evenly spread: what repeats often repeats close by."""
    if len(items) <= most:
        return items
    starts = thin(range(0, len(items) - RUN, RUN), max(1, most // RUN))
    return [item for start in starts for item in items[start : start + RUN]][:most]


# where it is read


def _stream(sample: Sample) -> Iterator[Block]:
    """Blocks from the beginning, up to TEXT bytes; a line that the bound cuts is left out."""
    bounded = Bounded(Expanded(sample.path, sample.codec, NO_LIMIT), TEXT)
    try:
        for block in blocks(iter(bounded), Place(0, 1), size=PIECE):
            if bounded.cut and not block.data.endswith(b"\n"):
                block = Block(block.data[: block.data.rfind(b"\n") + 1], block.offset, block.line)
            if block.data:
                yield block
    except Damage as damage:
        sample.damage = str(damage)
    if bounded.cut:
        sample.whole, sample.first = False, 0


def _spread(sample: Sample) -> list[Block]:
    """At most 2 * PLACES blocks in even distances over a text, the first among them; the text is expanded once."""
    bounded = Bounded(Expanded(sample.path, sample.codec, NO_LIMIT), EXPANDED)
    kept: list[Block] = []
    step = 1
    try:
        for number, block in enumerate(blocks(iter(bounded), Place(0, 1), size=PIECE)):
            if number % step:
                sample.whole = False
                continue
            if len(kept) == 2 * PLACES:
                kept, step = kept[::2], 2 * step
                sample.whole = False
            if number % step == 0:
                kept.append(block)
    except Damage as damage:
        sample.damage = str(damage)
    if bounded.cut:
        last = kept.pop()
        data = last.data[: last.data.rfind(b"\n") + 1]
        sample.whole, sample.first = False, last.line + data.count(b"\n") - 1
        kept.append(Block(data, last.offset, last.line))
    return kept


def _places(sample: Sample, among: int) -> Iterator[Block]:
    """Blocks of JSON lines: of a large file those at several places, where these can be reached, else of the stream."""
    if sample.codec is not None and sample.bytes <= min(ONE[sample.codec], ALL[sample.codec] // among):
        yield from _spread(sample)
        return
    if sample.codec is not None or sample.bytes <= TEXT:
        yield from _stream(sample)
        return
    sample.whole = False
    for number in range(PLACES):
        start = number * (sample.bytes // PLACES)
        chunks = Bounded(Expanded(sample.path, None, NO_LIMIT, start=start), 2 * PIECE)
        for block in blocks(iter(chunks), Place(start, 1), inside=number > 0, size=PIECE):
            end = block.data.rfind(b"\n") + 1
            if end:
                yield Block(block.data[:end], block.offset, block.line)
            break


# what is read


def _jsonl(sample: Sample, pieces: Iterator[Block], most: int) -> None:
    lines: list[bytes] = []
    seen = 0
    for block in pieces:
        if block.offset == 0 and (encoding := utf_other(block.data[:4])):
            sample.encoding = encoding
            return
        found = [line for raw in block.data.split(b"\n") if (line := _line(raw))]
        kept = runs(found, most)
        sample.whole = sample.whole and len(kept) == len(found)
        lines += kept
        seen += len(found)
    sample.first = max(sample.first, seen) if sample.first is not None else None
    kept = runs(lines, most)
    sample.whole = sample.whole and len(kept) == len(lines)
    for line in kept:
        try:
            record = jsonl.parse(line)
            if not isinstance(record, dict):
                raise Bad(NOT_AN_OBJECT)
            if isinstance(record, Repeated):  # the reader refuses it only where it asks for that field
                sample.repeated |= record.names
        except Bad as bad:
            sample.unreadable[str(bad)] += 1
        else:
            _add(sample, record, dots=False)


def _line(raw: bytes) -> bytes:
    """A line as the reader has it: without a byte-order mark and blanks around."""
    return raw.removeprefix(jsonl.BOM).strip(jsonl.BLANKS)


def _add(sample: Sample, record: dict[str, Any], *, dots: bool) -> None:
    found, odd = flat(record, dots=dots)
    sample.records.append(found)
    sample.odd |= odd


def _csv(sample: Sample, pieces: Iterator[Block], most: int) -> None:
    tabs = ".tsv" in sample.path.name.lower()
    first = next(pieces, Block(b"", 0, 1))
    if encoding := utf_other(first.data[:4]):
        sample.encoding = encoding
        return
    try:
        columns, lines, at = csv.header(itertools.chain([first], pieces), tabs, sample.path.name)
    except DataError:
        sample.unreadable["the header is not CSV"] += 1
        return
    sample.columns = columns
    asked = [name for name in dict.fromkeys(columns) if columns.count(name) == 1]
    sample.odd = {name for name in columns if name not in asked or not name}
    if not asked:
        return
    found: list[dict[str, Any]] = []
    for rows in csv.rows(columns, lines, at, mapping({"text": asked[0]}, asked), tabs, sample.path.name):
        refused = rows.refused if sample.whole else rows.refused[:-1]  # the bound may have cut the last one
        sample.unreadable.update(one.reason for one in refused)
        found += [dict(zip(asked, values, strict=True)) for values in zip(*rows.extra.values(), strict=True)]
    sample.first = len(found) if sample.first is not None else None
    kept = runs(found, most)
    sample.whole = sample.whole and len(kept) == len(found)
    for record in kept:
        _add(sample, record, dots=True)


def _parquet(sample: Sample, most: int) -> None:
    try:
        with pq.ParquetFile(sample.path, buffer_size=PIECE) as file:
            sample.columns = file.schema_arrow.names
            groups = thin(range(file.num_row_groups), GROUPS)
            rows = min(ROWS, most // max(1, len(groups)))
            sample.whole = file.metadata.num_rows <= rows * len(groups) and len(groups) == file.num_row_groups
            sample.first = rows if len(groups) == 1 and not sample.whole else None
            for group in groups:
                batch = next(file.iter_batches(rows, [group], use_threads=False), None)
                rows_in = file.metadata.row_group(group).num_rows
                sample.whole = sample.whole and batch is not None and len(batch) == rows_in
                for record in [] if batch is None else batch.to_pylist():
                    _add_row(sample, record)
    except (pa.ArrowException, OSError) as error:
        sample.damage = f"cannot be read as Parquet, truncated or none at all: {error}"


def _add_row(sample: Sample, record: dict[str, Any]) -> None:
    """A row of Parquet, its values as the reader makes them: dates as ISO text, bytes as text."""
    found: dict[str, Any] = {}
    for name, value in record.items():
        try:
            found[name] = None if value != value else clean(value)
        except Bad as bad:
            sample.unreadable[str(bad)] += 1
            return
    _add(sample, found, dots=True)


def _text(sample: Sample) -> None:
    data, sample.damage = head(sample.path, sample.codec, PAGE + 1)
    if len(data) > PAGE:
        sample.whole = False
        data = data[: data.rfind(b"\n", 0, PAGE) + 1] or data[:PAGE].decode("utf-8", "ignore").encode()
    rows = texts.rows(data, sample.path.name, mapping({"text": "text"}, []))
    sample.unreadable.update(one.reason for one in rows.refused)
    for text in rows.text.to_pylist():
        _add(sample, {"text": text}, dots=False)
