"""
From a record to our fields: where a value lies, what it is as text, why a record is refused.

All formats end here, so a value is the same text whichever path or format it came by.  Values become canonical:
a float without a fraction is written as an integer, a lone surrogate becomes U+FFFD, null and missing agree.
"""

import base64
import collections.abc
import datetime
import json
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from datapipe.errors import DataError
from datapipe.keyed import text_id
from datapipe.manifest import FIELDS, values

OURS = FIELDS[1:]  # all but the text
EXACT = 2**53  # below it every integer is a double
RAW_BYTES = 256  # of a refused record, where `quarantine.raw` asks for it

REJECTED, QUARANTINED = "rejected", "quarantined"
MISSING_TEXT, NULL_TEXT = "missing text", "null text"
NOT_STRING, EMPTY_TEXT = "text is not a string", "empty text"
NOT_UTF8, NOT_FINITE, REPEATED_KEY = "not UTF-8", "not a finite number", "repeated key"
LONG_NUMBER, TOO_DEEP = "number too long", "nested too deep"

Path = tuple[str, ...]
SURROGATE = re.compile("[\ud800-\udfff]")
DIGITS = re.compile("[0-9]+")
LONG = object()  # stands for an integer of more digits than Python reads


class Bad(Exception):
    """A value that cannot be carried along; its text is the reason for quarantine."""


class Quoting(DataError):
    """An error that quotes the input; `bare` says the same without, for a source that is redacted."""

    def __init__(self, message: str, bare: str):
        super().__init__(message)
        self.bare = bare


class Repeated(dict):
    """A JSON object that gave a key twice; `names` are those keys."""

    def __init__(self, pairs: list[tuple[str, object]]):
        super().__init__(pairs)
        seen: set[str] = set()
        self.names = {name for name, _ in pairs if name in seen or seen.add(name)}


class Refused(NamedTuple):
    """A record that is no document: a row of rejected.parquet or quarantine.parquet."""

    kind: str  # REJECTED | QUARANTINED
    line: int
    offset: int | None
    reason: str
    length: int | None  # bytes of the record, null where it has no bytes of its own
    xxh3_128: str | None
    raw: bytes | None  # its first bytes


def refuse(kind: str, reason: str, line: int, offset: int | None, record: bytes | None) -> Refused:
    """A refused record; `record` is its bytes, null where the format has none."""
    if record is None:
        return Refused(kind, line, offset, reason, None, None, None)
    return Refused(kind, line, offset, reason, len(record), text_id(record), record[:RAW_BYTES])


@dataclass(frozen=True)
class Mapping:
    """Where our fields lie in a record: paths of names, a dot in the manifest goes one level down."""

    text: Path
    mapped: tuple[tuple[str, Path], ...]  # ours -> theirs without text, in the order of OURS
    extra: tuple[tuple[str, Path], ...]

    @property
    def others(self) -> tuple[tuple[str, Path], ...]:
        """All but the text: mapped, then extra."""
        return self.mapped + self.extra


def mapping(fields: collections.abc.Mapping[Any, str], extra: Sequence[str]) -> Mapping:
    """The mapping of a source's `fields` and `extra`."""
    mapped = tuple((ours, _path(fields[ours])) for ours in OURS if ours in fields)
    return Mapping(_path(fields["text"]), mapped, tuple((name, _path(name)) for name in extra))


MEND = "name the right one under fields: text"


def no_text(file: str, names: Mapping, columns: Sequence[str]) -> Quoting:
    """The error for a file without the column of the text.  A file without a header shows a record here."""
    missing = f"{file}: has no column {'.'.join(names.text)!r} for the text"
    return Quoting(
        f"{missing}, its columns are {', '.join(columns)}; {MEND}", f"{missing} among its {len(columns)}; {MEND}"
    )


def _path(name: str) -> Path:
    return tuple(name.split("."))


@dataclass
class Rows:
    """
    What a block of a file holds: rows with a text (a string that may yet be empty), refused records, blank lines.

    text:    large_string, before edits
    line:    int64; offset: int64, null for formats without one
    mapped:  ours -> texts; extra: theirs -> canonical JSON values (null and missing: None)
    record:  row -> the bytes of its record, where the format has such
    end:     (byte offset, line) at which the next block begins
    size:    bytes that were read for it, all held as long as `record` is
    """

    text: pa.Array
    line: np.ndarray
    offset: np.ndarray | None
    mapped: dict[str, list[str | None]]
    extra: dict[str, list]
    refused: list[Refused] = field(default_factory=list)
    blank: int = 0
    repaired: int = 0
    record: Callable[[int], bytes | None] = lambda row: None
    end: tuple[int, int] = (0, 0)
    size: int = 0

    def __len__(self) -> int:
        return len(self.text)


class Collector:
    """Rows gathered one by one, for the formats and lines that need Python for each record."""

    def __init__(self, names: Mapping):
        self.names = names
        self.texts: list[str] = []
        self.lines: list[int] = []
        self.offsets: list[int] = []
        self.others: list[list] = [[] for _ in names.others]
        self.records: list[bytes | None] = []
        self.refused: list[Refused] = []
        self.blank = self.repaired = 0

    def add(self, text: str, others: Sequence, line: int, offset: int, record: bytes | None) -> None:
        self.texts.append(text)
        self.lines.append(line)
        self.offsets.append(offset)
        self.records.append(record)
        for column, value in zip(self.others, others, strict=True):
            column.append(value)

    def rows(self, end: tuple[int, int], size: int) -> Rows:
        mapped = {ours: column for (ours, _), column in zip(self.names.mapped, self.others, strict=False)}
        extra = {name: self.others[len(mapped) + at] for at, (name, _) in enumerate(self.names.extra)}
        line, offset = np.array(self.lines, np.int64), np.array(self.offsets, np.int64)
        text = pa.array(self.texts, pa.large_string())
        return Rows(text, line, offset, mapped, extra, self.refused, self.blank, self.repaired,
                    self.records.__getitem__, end, size)  # fmt: skip


_encode = json.JSONEncoder(
    sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False, check_circular=False
).encode


def as_json(value: object) -> str:
    """Canonical JSON of a value that `clean` gave."""
    return _encode(value)


def whole(text: str) -> str:
    """Lone surrogates become U+FFFD."""
    return text if text.isascii() else SURROGATE.sub("\ufffd", text)


def clean(value: object) -> object:
    """
    A value as canonical JSON can carry it, the same for 3 and 3.0; Bad where it cannot be.

    Dates become ISO text, bytes their UTF-8 text or else base64 (Parquet has such).
    """
    match value:
        case None | bool() | int():
            return value
        case str():
            return whole(value)
        case float():
            return _number(value)
        case Repeated():
            raise Bad(REPEATED_KEY)
        case dict():
            return {whole(str(name)): clean(inner) for name, inner in value.items()}
        case list() | tuple():
            return [clean(inner) for inner in value]
        case datetime.date() | datetime.time():
            return value.isoformat()
        case bytes():
            return _bytes_text(value)
    if value is LONG:
        raise Bad(LONG_NUMBER)
    return str(value)  # decimals, durations


def _number(value: float) -> int | float:
    if not math.isfinite(value):
        raise Bad(NOT_FINITE)
    return int(value) if value.is_integer() and -EXACT < value < EXACT else value


def _bytes_text(value: bytes) -> str:
    try:
        return value.decode("utf-8")
    except UnicodeDecodeError:
        return base64.b64encode(value).decode("ascii")


def as_text(value: object) -> str | None:
    """A mapped field as text: strings as they are, all else as canonical JSON; Bad where there is none."""
    if value is None:
        return None
    value = clean(value)
    return value if isinstance(value, str) else as_json(value)


def instant(text: str | None) -> int | None:
    """Microseconds since 1970 UTC of an ISO 8601 date or time; null where there is none or it is unparsable."""
    if text is None:
        return None
    text = text.strip()
    return values.instant(text[:-4] if text.endswith((" UTC", " GMT")) else text)


def version_order(version: str | None) -> str | None:
    """A text that sorts by code point as the version sorts naturally: 2 before 10, v1.9 before v1.10."""
    return None if version is None else DIGITS.sub(_padded, version)


def _padded(match: re.Match[str]) -> str:
    digits = match[0].lstrip("0")
    return f"{len(digits):05d}{digits}"
