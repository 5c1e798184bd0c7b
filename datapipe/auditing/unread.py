"""
Fields of training records that hold text and are not the text: what an audit of one field does not look through.

An instruction and its output, a question and its answer lie in two fields of many published files.  Looked for in the
one, an answer in the other is not there: a reader of the report must be told.
"""

import contextlib
import csv
import itertools
from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa
import pyarrow.parquet as pq

from datapipe.errors import DataError, MachineError, PolicyError
from datapipe.read import Input
from datapipe.read.csv import header, is_tabs, reader
from datapipe.read.fields import Bad
from datapipe.read.jsonl import BLANKS, BOM, parse
from datapipe.read.streams import NO_LIMIT, Damage, Expanded, Place, blocks

RECORDS = 20  # of a file, from its beginning
FILES = 20  # one of each source
DEEP = 4  # names of a path
WORDS, CHARACTERS = 12, 18  # of a value that is text: words, or characters of a script without blanks
PIECE = 1 << 16  # bytes of lines looked at together


def unread(inputs: Iterable[Input], text: Sequence[str]) -> str | None:
    """What the report says of such fields, null where there are none.  text: the path of the field that was read."""
    fields: dict[str, str] = {}  # -> the first file that has it
    for one in itertools.islice(inputs, FILES):
        names = itertools.chain.from_iterable(_texts(record, ()) for record in _beginning(one))
        for name in names:
            if name != tuple(text):
                fields.setdefault(".".join(name), one.relative)
    if not fields:
        return None
    named = ", ".join(f"{name} ({file})" for name, file in sorted(fields.items()))
    return f"looked through {'.'.join(text)} alone; other fields hold text, too: {named}"


def _beginning(one: Input) -> list[dict]:
    """The first records; what cannot be read is a failure of the file, and told as such."""
    found: list[dict] = []
    with contextlib.suppress(Damage, DataError, PolicyError, MachineError, OSError, pa.ArrowException, csv.Error):
        found.extend(itertools.islice(records(one), RECORDS))
    return found


def records(one: Input) -> Iterator[dict]:
    """The records of a file that can be read as such; a text has none."""
    if one.format == "parquet":
        with pq.ParquetFile(one.path) as file:
            for batch in file.iter_batches(RECORDS):
                yield from batch.to_pylist()
    elif one.format != "text":
        lines = blocks(iter(Expanded(one.path, one.codec, NO_LIMIT)), Place(0, 1), size=PIECE)
        if one.format == "csv":
            tabs = is_tabs(one.relative)
            columns, behind, _ = header(lines, tabs, one.relative)
            yield from (dict(zip(columns, cells, strict=False)) for cells in reader(behind, tabs))
            return
        for line in (line for block in lines for line in block.data.removeprefix(BOM).split(b"\n")):
            try:
                found = parse(line.strip(BLANKS))
            except Bad:
                continue
            if isinstance(found, dict):
                yield found


def _texts(value: object, path: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """The path of each text in a value; of lists the elements, by the path of the list."""
    if len(path) > DEEP:
        return
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from _texts(inner, (*path, str(name)))
    elif isinstance(value, list):
        for inner in value:
            if isinstance(inner, dict | str):  # lists of lists are no texts
                yield from _texts(inner, path)
    elif isinstance(value, str) and (
        len(value.split()) >= WORDS or sum(character > "\u2e7f" for character in value) >= CHARACTERS
    ):
        yield path
