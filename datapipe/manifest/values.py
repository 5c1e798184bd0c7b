"""
The values a manifest is made of: names, shares, sizes, limits, dates, paths, and how each is written.

A `Kind` says in words what is expected; messages and manifests/README.md are made from it.
"""

import datetime
import glob
import math
import os
import re
import sysconfig
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, TypeVar

from pydantic import AfterValidator, BeforeValidator, Field, Strict
from pydantic_core import PydanticCustomError

T = TypeVar("T")

UNITS = {"B": 1} | {
    letter + suffix: base**power
    for power, letter in enumerate("KMGT", start=1)
    for suffix, base in (("B", 1000), ("iB", 1024))
}
EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
SIZE = re.compile(r"([0-9]+(?:\.[0-9]+)?) *([A-Za-z]+)")
VARIABLE = re.compile(r"\$\{([^{}]*)\}")
PARTIAL_DATE = re.compile(r"[0-9]{4}(-[0-9]{2})?")
DIGITS = re.compile(r"([0-9]{4})([0-9]{2})([0-9]{2})([0-9]{2})([0-9]{2})([0-9]{2})")


@dataclass(frozen=True)
class Kind:
    """What is expected of a value, in words that follow "expected"."""

    words: str


def refused(problem: str, key: str | None = None) -> PydanticCustomError:
    """An error whose text is `problem`; `key` names the key of the entry that it is about."""
    return PydanticCustomError("refused", "{problem}", {"problem": problem, "key": key})


def found(value: object) -> str:
    """A value as messages show it: short, on one line, never a whole mapping."""
    match value:
        case None:
            return "nothing (null)"
        case bool():
            return "true" if value else "false"
        case int() | float():
            return _cut(repr(value))
        case str():
            return _cut(repr(value)) if value else "empty text"
        case list() | tuple() | dict() if not value:
            return "an empty mapping" if isinstance(value, dict) else "an empty list"
        case list() | tuple():
            return "a list"
        case dict():
            return "a mapping"
        case _:
            return "a tagged value"


def _cut(text: str) -> str:
    return text if len(text) <= 60 else f"{text[:57]}..."


def size(value: object) -> int:
    """Bytes from 64MB, 4GB (powers of ten), 64MiB (powers of two) or a whole number of bytes."""
    if isinstance(value, int) and not isinstance(value, bool) and value > 0:
        return value
    match = SIZE.fullmatch(value) if isinstance(value, str) else None
    # int(float) would lose bytes above 2^53: split the fraction off
    if match and match[2] in UNITS:
        whole, _, part = match[1].partition(".")
        scaled = int(whole + part) * UNITS[match[2]]
        amount, rest = divmod(scaled, 10 ** len(part))
        if amount > 0 and rest == 0:
            return amount
    raise refused(f"found {found(value)}, expected a size such as 64MB, 1.5GB, 512MiB or a whole number of bytes")


def limit(value: object) -> int | float | None:
    """A whole number is a count of records, a fraction a share of the source's records."""
    if value is None or (isinstance(value, int) and not isinstance(value, bool) and value >= 0):
        return value
    if isinstance(value, float) and 0.0 <= value <= 1.0:
        return value
    raise refused(f"found {found(value)}, expected a count (a whole number, 0 or more) or a share from 0.0 to 1.0")


def scalar(value: object) -> str | int | float:
    """A value that a field is compared with; true and false as their JSON text."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str | int) or (isinstance(value, float) and math.isfinite(value)):
        return value
    raise refused(f"found {found(value)}, expected text, a number or a date")


def instant(text: str) -> int | None:
    """
    Microseconds since 1970 UTC of an ISO 8601 date or time, null where it is none.

    YYYY, YYYY-MM and YYYYMMDDhhmmss too; a date is its first instant, no zone is UTC.
    """
    try:
        if PARTIAL_DATE.fullmatch(text):
            text = f"{text}-01-01"[:10]
        elif match := DIGITS.fullmatch(text):
            text = "{}-{}-{}T{}:{}:{}".format(*match.groups())
        moment = datetime.datetime.fromisoformat(text.upper())
    except ValueError:
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=datetime.UTC)
    return (moment - EPOCH) // datetime.timedelta(microseconds=1)


def date_text(value: object) -> str:
    """The text of a date; YAML reads 2024 and 20240301 as numbers."""
    text = str(value) if isinstance(value, int) and not isinstance(value, bool) else value
    if isinstance(text, str) and instant(text) is not None:
        return text
    raise refused(f"found {found(value)}, expected a date or time such as 2024-03-01 or 2024-03-01T12:00:00Z")


def expand(text: str, quote: Callable[[str], str] = str) -> str:
    """
    A path with `~`, `${VAR}` and `${stdlib}` replaced; `quote` is put around what they stand for.

    ValueError names the variable that is not set.
    """

    def replace(match: re.Match[str]) -> str:
        return quote(_variable(match[1]))

    if "${" in VARIABLE.sub("", text):
        raise ValueError("`${` has no closing `}`")
    head, slash, tail = text.partition("/")
    if head.startswith("~"):
        try:
            home = str(Path(head).expanduser())
        except RuntimeError:
            raise ValueError(f"`{head}` has no home folder") from None
        return quote(home) + slash + VARIABLE.sub(replace, tail)
    return VARIABLE.sub(replace, text)


def _variable(name: str) -> str:
    if name == "stdlib":
        return sysconfig.get_path("stdlib")
    value = os.environ.get(name, "")
    if not value:
        raise ValueError(f"${{{name}}} is not set, or empty, in the environment")
    return value


def absolute(text: str, folder: Path) -> Path:
    """A path as written -> an absolute one; what is relative is below `folder`."""
    return Path(os.path.normpath(folder / expand(text)))


def absolute_pattern(text: str, folder: Path) -> str:
    """A file pattern as written -> an absolute glob; only what the user wrote himself counts as a wildcard."""
    return os.path.normpath(Path(glob.escape(str(folder))) / expand(text, glob.escape))


def _path(text: str) -> str:
    if not text or "\0" in text:
        raise refused(f"found {found(text)}, expected a path")
    try:
        expand(text)
    except ValueError as error:
        raise refused(f"found {found(text)}: {error}") from None
    return text


def _distinct(values: tuple[T, ...]) -> tuple[T, ...]:
    for place, value in enumerate(values):
        if value in values[:place]:
            raise refused(f"{found(value)} stands there twice")
    return values


# YAML gives lists; a frozen entry holds tuples
Listed = Annotated[tuple[T, ...], Strict(False)]
Distinct = Annotated[tuple[T, ...], Strict(False), AfterValidator(_distinct)]

Text = Annotated[str, Field(min_length=1), Kind("text")]
PathText = Annotated[str, AfterValidator(_path), Kind("a path")]
BuildName = Annotated[
    str,
    Field(pattern=r"^[a-z0-9][a-z0-9._-]*$", max_length=100),
    Kind("a name of a-z, 0-9, `.`, `_`, `-` that starts with a letter or digit"),
]
SourceName = Annotated[
    str,
    Field(pattern=r"^\w[\w.-]*$", max_length=100),
    Kind("a name of letters, digits, `.`, `_`, `-` that starts with a letter or digit"),
]
Bytes = Annotated[int, BeforeValidator(size), Kind("a size such as 64MB, 4GB or 512MiB")]
Limit = Annotated[int | float | None, BeforeValidator(limit), Kind("a count (whole number) or a share (0.0 to 1.0)")]
Scalar = Annotated[str | int | float, BeforeValidator(scalar), Kind("text, a number or a date")]
DateText = Annotated[str, BeforeValidator(date_text), Kind("a date or time such as 2024-03-01")]
Share = Annotated[float, Field(ge=0, le=1), Kind("a share from 0 to 1")]
OpenShare = Annotated[float, Field(gt=0, lt=1), Kind("a share above 0 and below 1")]
PositiveShare = Annotated[float, Field(gt=0, le=1), Kind("a share above 0, at most 1")]
Positive = Annotated[float, Field(gt=0), Kind("a number above 0")]
NotNegative = Annotated[float, Field(ge=0), Kind("a number of 0 or more")]
Number = Annotated[float, Kind("a number")]
Switch = Annotated[bool, Kind("true or false")]
Seed = Annotated[int, Field(ge=0, lt=2**63), Kind("a whole number, 0 or more")]
Int32 = Annotated[int, Field(ge=-(2**31), lt=2**31), Kind("a whole number")]
Count = Annotated[int, Field(ge=1, lt=2**31), Kind("a whole number of 1 or more")]
Permutations = Annotated[int, Field(ge=1, le=4096), Kind("a whole number from 1 to 4096")]
TwoOrMore = Annotated[int, Field(ge=2, lt=2**31), Kind("a whole number of 2 or more")]
NGram = Annotated[int, Field(ge=2, le=32), Kind("a whole number from 2 to 32")]
Tokens = Annotated[int, Field(ge=2, lt=2**40), Kind("a whole number of 2 or more")]
Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$"), Kind("a sha256 of 64 hex digits, a-f in lower case")]
