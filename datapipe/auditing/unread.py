"""
Fields of training records that hold text and are not the text: what an audit of one field does not look through.

An instruction and its output, a question and its answer lie in two fields of many published files.  Looked for in the
one, an answer in the other is not there: a reader of the report must be told.
"""

import contextlib
import csv
import io
import itertools
from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa
import pyarrow.parquet as pq

from datapipe.errors import DataError, MachineError, PolicyError
from datapipe.read import Input
from datapipe.read.fields import Bad
from datapipe.read.jsonl import BLANKS, BOM, parse
from datapipe.read.streams import Damage, Expanded, Place, blocks

RECORDS = 20  # of a file, from its beginning
FILES = 20  # one of each source
DEEP = 4  # names of a path
WORDS, CHARACTERS = 12, 18  # of a value that is text: words, or characters of a script without blanks
EXPANDED = 1 << 60  # bytes: the files have been read once, within the limit


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
        found.extend(itertools.islice(_records(one), RECORDS))
    return found


def _records(one: Input) -> Iterator[dict]:
    if one.format == "parquet":
        with pq.ParquetFile(one.path) as file:
            yield from next(file.iter_batches(RECORDS)).to_pylist() if file.metadata.num_rows else ()
    elif one.format != "text":
        first = next(blocks(iter(Expanded(one.path, one.codec, EXPANDED)), Place(0, 1)), None)
        data = first.data.removeprefix(BOM) if first else b""
        if one.format == "csv":
            tabs = ".tsv" in one.relative.lower()
            yield from csv.DictReader(io.StringIO(data.decode(errors="replace")), delimiter="\t" if tabs else ",")
            return
        for line in data.split(b"\n"):
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
