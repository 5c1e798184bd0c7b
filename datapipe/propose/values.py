"""
What a record holds, small enough to keep thousands of: names with their values, long texts cut.
"""

import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

from datapipe.read.fields import LONG, Bad, as_text, instant

DEEPEST = 4  # levels of objects that are looked into
SHORT = 300  # characters of a value that is kept whole
HEAD = 1000  # characters kept of a longer one
# a run of letters, digits and marks; a character of a script that writes no blanks counts alone, about as units do
UNIT = re.compile(r"[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff]|[^\W_]+")
STRING, INTEGER, NUMBER, BOOLEAN, LIST, OBJECT, NULL = (
    "string", "integer", "number", "boolean", "list", "object", "null",
)  # fmt: skip


class Cut(NamedTuple):
    """A long text: its beginning, its characters, and a digest that tells it from others."""

    head: str
    size: int
    digest: bytes


Record = Mapping[str, Any]  # dotted name -> scalar, Cut, or the type's name in a Kind


class Kind(NamedTuple):
    """A value of which only the type is kept: a list or an object."""

    type: str


def flat(record: Mapping[str, Any], *, dots: bool) -> tuple[dict[str, Any], set[str]]:
    """
    A record as (dotted name -> value, names that no manifest can say).

    dots: whether a name with a dot in it can be said, as in CSV and Parquet; in JSON a dot goes one level down
    """
    found: dict[str, Any] = {}
    odd: set[str] = set()
    _flat(record, (), dots, found, odd)
    return found, odd


def _flat(node: Mapping[str, Any], above: tuple[str, ...], dots: bool, found: dict[str, Any], odd: set[str]) -> None:
    for name, value in node.items():
        if not _sayable(name, dots=dots and not above):
            odd.add(name)
            continue
        path = (*above, name)
        if isinstance(value, dict) and value and len(path) < DEEPEST and "." not in name:
            _flat(value, path, dots, found, odd)
        found.setdefault(".".join(path), _kept(value))


def _sayable(name: str, *, dots: bool) -> bool:
    if not name or (not dots and "." in name):
        return False
    return name.isascii() or not any("\ud800" <= c <= "\udfff" for c in name)


def _kept(value: object) -> object:
    if isinstance(value, str) and len(value) > SHORT:
        return Cut(value[:HEAD], len(value), hashlib.blake2b(value.encode("utf-8", "replace"), digest_size=12).digest())
    if isinstance(value, dict):
        return Kind(OBJECT)
    if isinstance(value, list | tuple):
        return Kind(LIST)
    return value


def digest(record: Record) -> bytes:
    """Tells a record from others."""
    text = repr(sorted(record.items(), key=lambda item: item[0]))
    return hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=12).digest()


def type_of(value: object) -> str:
    match value:
        case None:
            return NULL
        case bool():
            return BOOLEAN
        case int():
            return INTEGER
        case float():
            return NUMBER
        case Kind():
            return value.type
        case str() | Cut():
            return STRING
    return INTEGER if value is LONG else STRING  # dates, decimals, bytes of Parquet become text


def head(value: object) -> str:
    """A value as text, its beginning where it is long."""
    if isinstance(value, Cut):
        return value.head
    return value if isinstance(value, str) else as_plain(value) or ""


def as_plain(value: object) -> str | None:
    """The text that a mapped field would have; null where there is none."""
    if isinstance(value, Cut | Kind):
        return None
    try:
        return as_text(value)
    except Bad:
        return None


def size(value: object) -> int:
    """Characters of a value as text."""
    return value.size if isinstance(value, Cut) else len(head(value))


def units(value: object) -> int:
    """Units of a text, about; of a long one reckoned from its beginning."""
    text = head(value)
    count = sum(1 for _ in UNIT.finditer(text))
    return count * value.size // len(value.head) if isinstance(value, Cut) else count


def median(numbers: Iterable[int]) -> int:
    """The middle one, the lower of two; 0 of none."""
    ordered = sorted(numbers)
    return ordered[(len(ordered) - 1) // 2] if ordered else 0


@dataclass
class Field:
    """All that was seen of one field; `records` is how many records might have had it."""

    name: str
    records: int
    values: list[Any] = field(default_factory=list)  # those that are not null
    nulls: int = 0

    @property
    def share(self) -> float:
        """Share of the records in which it has a value."""
        return len(self.values) / self.records if self.records else 0.0

    @cached_property
    def types(self) -> Counter[str]:
        return Counter(type_of(value) for value in self.values)

    @property
    def type(self) -> str:
        """The commonest type, null where every value is."""
        return min(self.types, key=lambda name: (-self.types[name], name)) if self.types else NULL

    @cached_property
    def texts(self) -> list[Any]:
        """Values that are strings and not blank."""
        return [value for value in self.values if type_of(value) == STRING and head(value).strip()]

    @property
    def stringy(self) -> float:
        """Share of the values that are strings."""
        return self.types[STRING] / len(self.values) if self.values else 0.0

    @property
    def numeric(self) -> bool:
        """Whether nearly all values are numbers."""
        return bool(self.values) and (self.types[INTEGER] + self.types[NUMBER]) >= 0.95 * len(self.values)

    @cached_property
    def distinct(self) -> int:
        return len({value.digest if isinstance(value, Cut) else repr(value) for value in self.values})

    @property
    def distinctness(self) -> float:
        return self.distinct / len(self.values) if self.values else 0.0

    @cached_property
    def size(self) -> int:
        """Characters of a text, the median."""
        return median(size(value) for value in self.texts)

    @cached_property
    def units(self) -> int:
        """Units of a text, the median."""
        return median(units(value) for value in self.texts)

    @cached_property
    def plain(self) -> list[str]:
        """The values as a mapped field would have them; without long ones."""
        return [text for value in self.values if (text := as_plain(value)) is not None]

    @cached_property
    def dated(self) -> float:
        """Share of the values that the reader takes for a date or time."""
        return sum(instant(text) is not None for text in self.plain) / len(self.values) if self.values else 0.0

    def commonest(self, most: int) -> list[tuple[str, float]]:
        """The commonest values as text, with their shares of all values."""
        counts = Counter(self.plain)
        order = sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:most]
        return [(text, n / len(self.values)) for text, n in order]


def fields(records: Sequence[Record]) -> dict[str, Field]:
    """Every field of the records, in the order in which they appear."""
    found: dict[str, Field] = {}
    for record in records:
        for name, value in record.items():
            seen = found.get(name) or found.setdefault(name, Field(name, len(records)))
            if value is None:
                seen.nulls += 1
            else:
                seen.values.append(value)
    return found


def columns(records: Iterable[Record], names: Sequence[str]) -> Iterator[tuple[Any, ...]]:
    """The values of some fields, record by record."""
    return (tuple(record.get(name) for name in names) for record in records)
