"""
What a file is whose name does not tell it, by its first lines: JSON lines under any name are JSON lines, and a tar
archive or a JSON array is no series of records.
"""

import os
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from datapipe.errors import DataError
from datapipe.read.fields import Bad
from datapipe.read.fields import Path as Field
from datapipe.read.jsonl import BLANKS, BOM, parse
from datapipe.read.streams import Damage, Expanded, Place, bare, blocks

PIECE = 1 << 16  # bytes of lines looked at together; a longer line is looked at whole
NO_LIMIT = 1 << 60  # bytes: a piece is read, not the file
TAR, TAR_SHORT = ".tar", {".tgz": "gzip", ".tbz2": "bz2", ".txz": "xz", ".tzst": "zstd"}
USTAR = slice(257, 262)  # where a tar archive says that it is one
MISSING = object()


def is_archive(name: str) -> bool:
    """Whether a name is that of a tar archive, compressed or not."""
    return bare(name).lower().endswith(TAR) or os.path.splitext(name)[1].lower() in TAR_SHORT


def form(path: Path, codec: str | None, text: Field) -> str:
    """
    jsonl or text, of a file that the name alone would make a text; DataError for a tar archive.

    text: where the text lies in a record
    Two lines that are objects make JSON lines.  A single one may be any JSON document, so it must have the text.
    """
    first = _first(path, codec)
    if is_archive(path.name) or first[USTAR] == b"ustar":
        raise DataError(f"{path}: a tar archive: unpack it, or leave it out")
    if not _body(first).startswith(b"{"):
        return "text"
    found = [_value(line) for line in islice(_lines(path, codec), 2)]
    if not all(isinstance(value, dict) for value in found):
        return "text"
    return "jsonl" if len(found) == 2 or isinstance(_get(found[0], text), str) else "text"


def is_array(path: Path, codec: str | None) -> bool:
    """Whether a file named as JSON lines is one JSON array, over one line or many."""
    if not _body(_first(path, codec)).startswith(b"["):
        return False
    found = list(islice(_lines(path, codec), 2))
    return bool(found) and (len(found) == 1 or not isinstance(_value(found[0]), list))


def _first(path: Path, codec: str | None) -> bytes:
    """The first bytes, expanded; of a file that is damaged from its start none: who reads it will say so."""
    try:
        return next(iter(Expanded(path, codec, NO_LIMIT)), b"")
    except (Damage, DataError):
        return b""


def _body(data: bytes) -> bytes:
    return data.removeprefix(BOM).lstrip(BLANKS + b"\n")


def _lines(path: Path, codec: str | None) -> Iterator[bytes]:
    """Lines that are not blank, to the first damage."""
    try:
        for block in blocks(iter(Expanded(path, codec, NO_LIMIT)), Place(0, 1), size=PIECE):
            for line in block.data.split(b"\n"):
                if body := line.removeprefix(BOM).strip(BLANKS):
                    yield body
    except (Damage, DataError):
        return


def _value(line: bytes) -> object:
    """The JSON value of a line; MISSING where it is none."""
    try:
        return parse(line)
    except Bad:
        return MISSING


def _get(found: object, at: Field) -> object:
    for name in at:
        found = found.get(name, MISSING) if isinstance(found, dict) else MISSING
    return found
