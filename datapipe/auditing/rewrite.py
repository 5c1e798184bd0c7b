"""
Files without some of their records: the others byte for byte, in the same format and compression.

A file that loses nothing is copied as it is; a text file is one document, so it is there or not.
"""

import bz2
import csv
import gzip
import lzma
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import IO, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import zstandard

from datapipe.errors import DriftError
from datapipe.read import Input
from datapipe.read.csv import Lines, is_tabs, reader
from datapipe.read.jsonl import BOM
from datapipe.read.streams import NO_LIMIT, Block, Expanded, Place, blocks

VERSIONS = ("1.0", "2.4", "2.6")  # of Parquet that can be written
CODECS = {"UNCOMPRESSED": "NONE", "LZ4_RAW": "LZ4"}  # as they are read -> as they are asked for


def write(
    inputs: Sequence[Input],
    lines: Mapping[str, set[int]],
    folder: Path,
    workers: int,
    progress: Callable[[str, int, int | None], None],
) -> dict[str, str]:
    """Relative path -> "copied", "written" or "gone"."""

    def one(given: Input) -> str:
        target = folder / given.relative
        target.parent.mkdir(parents=True, exist_ok=True)
        how = _file(given, lines.get(given.relative, set()), target)
        _unchanged(given)
        return how

    found: dict[str, str] = {}
    with ThreadPoolExecutor(max_workers=workers) as pool:
        for number, (given, how) in enumerate(zip(inputs, pool.map(one, inputs), strict=True), 1):
            progress("writing", number, len(inputs))
            found[given.relative] = how
    return found


def _unchanged(one: Input) -> None:
    stat = one.path.stat()
    if (stat.st_size, stat.st_mtime_ns, stat.st_ino) != one.stat:
        raise DriftError(f"{one.path}: was changed while it was read; start again when nothing writes to it")


def _file(one: Input, lines: set[int], target: Path) -> str:
    """One file without the records that begin in these lines (rows of Parquet, from 1)."""
    if not lines:
        shutil.copyfile(one.path, target)
        return "copied"
    if one.format == "text":
        return "gone"
    if one.format == "parquet":
        _parquet(one.path, lines, target)
        return "written"
    found = blocks(iter(Expanded(one.path, one.codec, NO_LIMIT)), Place(0, 1))
    kept = _csv(found, lines, is_tabs(one.relative)) if one.format == "csv" else _jsonl(found, lines)
    with ExitStack() as stack:
        file = _compressed(stack.enter_context(open(target, "wb")), one.codec, stack)
        for data in kept:
            file.write(data)
    return "written"


def _jsonl(found: Iterator[Block], lines: set[int]) -> Iterator[bytes]:
    for block in found:
        count = block.data.count(b"\n") + (not block.data.endswith(b"\n"))
        if lines.isdisjoint(range(block.line, block.line + count)):
            yield block.data
        else:
            records = block.data.split(b"\n")
            ends = [b"\n"] * (len(records) - 1) + [b""]
            yield b"".join(
                record + end
                for line, (record, end) in enumerate(zip(records, ends, strict=True), block.line)
                if line not in lines
            )


def _csv(found: Iterator[Block], lines: set[int], tabs: bool) -> Iterator[bytes]:
    """The header and what stays, by records as read/csv.py cuts them."""
    first = next(found, None)
    if first is None:
        return
    if first.data.startswith(BOM):
        yield BOM
        first = Block(first.data.removeprefix(BOM), 0, 1)

    def every() -> Iterator[Block]:
        if first.data:
            yield first
        yield from found

    physical = Lines(every())
    records = reader(physical, tabs)
    line, header = 1, True
    while True:
        try:
            cells = next(records, None)
        except csv.Error:
            cells = []
        record = physical.take()
        if cells is None and not record:
            return
        if header or line not in lines:
            yield record
        line, header = line + record.count(b"\n"), False


def _parquet(path: Path, lines: set[int], target: Path) -> None:
    """Row groups, columns, compression and metadata as they are, fewer rows."""
    with pq.ParquetFile(path) as file:
        made = file.metadata
        groups = [made.row_group(number) for number in range(made.num_row_groups)]
        columns = [groups[0].column(number) for number in range(made.num_columns)] if groups else []
        codecs = {one.path_in_schema: CODECS.get(one.compression, one.compression) for one in columns}
        options: dict[str, Any] = {
            "version": made.format_version if made.format_version in VERSIONS else VERSIONS[-1],
            "compression": codecs or "NONE",
            "use_dictionary": [one.path_in_schema for one in columns if one.has_dictionary_page],
            "store_schema": b"ARROW:schema" in (made.metadata or {}),
        }
        with pq.ParquetWriter(target, file.schema_arrow, **options) as out:
            start = 1
            for number, group in enumerate(groups):
                stop = start + group.num_rows
                kept = np.ones(group.num_rows, bool)
                kept[[line - start for line in lines if start <= line < stop]] = False
                if kept.any():
                    table = file.read_row_group(number)
                    out.write_table(
                        table if kept.all() else table.filter(pa.array(kept)), row_group_size=int(kept.sum())
                    )
                start = stop


def _compressed(file: IO[bytes], codec: str | None, stack: ExitStack) -> IO[bytes]:
    """The file as one that compresses what is written to it."""
    ways: dict[str, Callable[[], Any]] = {
        "gzip": lambda: gzip.GzipFile("", "wb", 6, file, 0),
        "zstd": lambda: zstandard.ZstdCompressor(level=9, write_checksum=True).stream_writer(file, closefd=False),
        "bz2": lambda: bz2.BZ2File(file, "wb"),
        "xz": lambda: lzma.LZMAFile(file, "wb"),  # noqa: SIM115  the stack closes it
    }
    return file if codec is None else stack.enter_context(ways[codec]())
