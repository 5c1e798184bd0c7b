"""
What a file is whose name does not tell it, by its first lines: JSON lines under any name are JSON lines, and a tar
archive or a JSON document is no series of records.  An audit asks; a build goes by names and the manifest alone.
"""

import json
import os
import re
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from datapipe.errors import DataError
from datapipe.read.fields import Bad
from datapipe.read.fields import Path as Field
from datapipe.read.jsonl import BLANKS, BOM, parse
from datapipe.read.streams import NO_LIMIT, Damage, Expanded, bare

LOOK = 1 << 20  # bytes that are looked at: no longer line is ever parsed
LINES = 100  # of them
TAR, TAR_SHORT = ".tar", {".tgz": "gzip", ".tbz2": "bz2", ".txz": "xz", ".tzst": "zstd"}
USTAR = slice(257, 262)  # where a tar archive says that it is one
SEPARATOR = b"\x1e"  # before each record of a JSON text sequence
MISSING = object()
DOCUMENT = "a JSON document; convert it to JSON lines"
BESIDE = "holds lines of JSON beside others; name it .jsonl, or take the others out"
STRING = rb'"(?:[^"\\\n]|\\.)*"'
# how JSON begins and prose does not: {about}, [1] and [[a link]] are prose
BEGINS = re.compile(rb"(?:\[\s*)*\{\s*" + STRING + rb"\s*:|(?:\[\s*)+" + STRING + rb"\s*,|\[[ \t\r]*\n\s*[\[{\"\d-]")


class _Head(NamedTuple):
    """The first bytes of a file: lines that are not blank, and what is there of one that ends behind the look."""

    data: bytes
    lines: list[bytes]
    cut: bytes


def is_archive(name: str) -> bool:
    """Whether a name is that of a tar archive, compressed or not."""
    return bare(name).lower().endswith(TAR) or os.path.splitext(name)[1].lower() in TAR_SHORT


def form(path: Path, codec: str | None, text: Field) -> tuple[str, str | None]:
    """
    (jsonl or text, why a text may hold records) of a file that the name alone would make a text; DataError for a tar
    archive.

    text: where the text lies in a record
    Two lines that are objects make JSON lines.  A single one may be any JSON document, so it must have the text.
    """
    head = _head(path, codec)
    if is_archive(path.name) or head.data[USTAR] == b"ustar":
        raise DataError(f"{path}: a tar archive: unpack it, or leave it out")
    first = [line.lstrip(BLANKS) for line in head.lines[:2]]
    found = [_value(line) if line.startswith(b"{") else MISSING for line in first]
    if not found or not all(isinstance(value, dict) for value in found):
        return "text", _doubt(head)
    both = len(found) == 2 or head.cut.startswith(b"{")
    if both or (not head.cut and isinstance(_get(found[0], text), str)):
        return "jsonl", None
    return "text", _doubt(head)


def is_array(path: Path, codec: str | None) -> bool:
    """Whether a file named as JSON lines is one JSON array, over one line or many."""
    _, lines, cut = _head(path, codec)
    first = lines[0].lstrip(BLANKS) if lines else cut
    if not first.startswith(b"["):
        return False
    more = len(lines) > 1 or (lines and cut)
    return not more or not isinstance(_value(first), list)


def _doubt(head: _Head) -> str | None:
    """Why what is read as text may hold records, by lines of it or as one JSON document."""
    if not head.lines:
        return DOCUMENT if head.cut.startswith((b"{", b"[")) else None
    body = _body(head.data)
    if body.startswith((b"{", b"[")):
        over_lines = BEGINS.match(body) and _decoded(_bare(head.lines[0])) is None
        if over_lines or (not head.cut and _value(body.rstrip()) is not MISSING):
            return DOCUMENT
    found = [_is_record(line) for line in head.lines]
    if head.cut and len(found) < LINES:
        found.append(BEGINS.match(_bare(head.cut)) is not None)
    return BESIDE if 2 * sum(found) >= len(found) else None  # code and prose quote a record now and then


def _is_record(line: bytes) -> bool:
    """
    Whether a line is an object, behind what formats put before it, or several.  One with a comma behind it is a record
    of an array where it is not indented; code is.
    """
    body = _bare(line)
    found = _decoded(body) if body.startswith(b"{") else None
    if found is None or not isinstance(found[0], dict) or not found[0]:
        return False
    return found[1][:1] in ("", "{") or (found[1] == "," and line.startswith(b"{"))


def _bare(line: bytes) -> bytes:
    return line.lstrip(SEPARATOR + BLANKS).removeprefix(b"data:").lstrip(BLANKS)


def _decoded(line: bytes) -> tuple[object, str] | None:
    """The JSON value that a line begins with, and the rest; None where it begins with none."""
    body = line.decode("utf-8", "replace")
    try:
        found, end = json.JSONDecoder().raw_decode(body)
    except (ValueError, RecursionError):
        return None
    return found, body[end:].strip(" \t\r\x1e")


def _head(path: Path, codec: str | None) -> _Head:
    """The beginning of a file, expanded; of one that is damaged what is before it: who reads it will say so."""
    data, whole = bytearray(), True
    try:
        for chunk in Expanded(path, codec, NO_LIMIT):
            data += chunk
            if len(data) > LOOK:
                break
    except (Damage, DataError):
        whole = False
    whole = whole and len(data) <= LOOK
    first = bytes(data[:LOOK])
    lines, _, cut = (first, b"", b"") if whole else first.rpartition(b"\n")
    bodies = (body for line in lines.split(b"\n") if (body := line.removeprefix(BOM).rstrip(BLANKS)))
    return _Head(first, list(islice(bodies, LINES)), cut.removeprefix(BOM).strip(BLANKS))


def _body(data: bytes) -> bytes:
    return data.removeprefix(BOM).lstrip(SEPARATOR + BLANKS + b"\n")


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
