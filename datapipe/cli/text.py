"""Plain text for a terminal: tables, numbers, and document text that cannot speak to the terminal."""

import re
import unicodedata
from collections.abc import Iterable, Sequence

import click

NUMBER = re.compile(r"([~+-]?[\d,.]+(e-?\d+)?( ?([kMGTP]?B|%))?)?")  # or nothing

HIDDEN = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}  # categories of characters that a terminal must not get


def count(number: int, what: str) -> str:
    """1 shard, 2,000 shards."""
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Columns under a header; numbers to the right, with separators; the width is that of the widest cell."""
    body = [list(row) for row in rows]
    cells = [[number(value) for value in row] for row in body]
    right = [all(_numeric(row[i]) for row in body) for i in range(len(header))]
    widths = [max(map(width, column)) for column in zip(header, *cells, strict=True)]
    lines = [
        "  ".join(pad(cell, size, right=to_right) for cell, size, to_right in zip(row, widths, right, strict=True))
        for row in [list(header), *cells]
    ]
    return "\n".join("  " + line.rstrip() for line in lines)


def _numeric(value: object) -> bool:
    return value is None or isinstance(value, int | float) or (isinstance(value, str) and bool(NUMBER.fullmatch(value)))


def number(value: object) -> str:
    """A cell: 1,234 for an integer, nothing for None; text as it may be shown."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:.4g}" if isinstance(value, float) else safe(str(value))


def size(count: int) -> str:
    """Bytes as a person says them: 1.5 GB (powers of ten)."""
    if count < 1000:
        return f"{count} B"
    scaled = float(count)
    for unit in ("kB", "MB", "GB", "TB"):
        scaled /= 1000
        if scaled < 999.5:
            return f"{scaled:.3g} {unit}"
    return f"{scaled / 1000:,.3g} PB"


def safe(text: str, *, lines: bool = False) -> str:
    """
    Text in which what a terminal would obey is written out (\\x1b, \\u202e): controls and what turns the text around
    it, what has no picture, other ends of lines.  `lines`: line feeds and tabs stay.
    """
    if text.isprintable():
        return text
    stays = "\n\t" if lines else ""
    return "".join(c if c in stays or unicodedata.category(c) not in HIDDEN else _written(c) for c in text)


def _written(c: str) -> str:
    point = ord(c)
    return f"\\x{point:02x}" if point < 0x100 else f"\\u{point:04x}" if point < 0x10000 else f"\\U{point:08x}"


def say(text: str, *, err: bool = False) -> None:
    """Print what may hold texts, names or paths of data: every command and every error ends here."""
    click.echo("\n".join(safe(line, lines=True) for line in text.split("\n")), err=err)


def width(text: str) -> int:
    """Columns that a text takes on a terminal: wide characters two, combining marks none."""
    return sum(0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)


def pad(text: str, columns: int, *, right: bool = False) -> str:
    blanks = " " * max(0, columns - width(text))
    return blanks + text if right else text + blanks


def wrap(text: str, columns: int) -> list[str]:
    """Lines of at most `columns`, broken at blanks where there are any."""
    lines: list[str] = []
    line = ""
    for word in text.split(" "):
        if line and width(line) + 1 + width(word) > columns:
            lines.append(line)
            line = ""
        while width(word) > columns:
            head = _head(word, columns)
            lines.append(head)
            word = word[len(head) :]
        line = f"{line} {word}" if line else word
    return [*lines, line] if line or not lines else lines


def _head(word: str, columns: int) -> str:
    """As much of a word as fits, one character at least."""
    taken = used = 0
    for c in word:
        used += width(c)
        if used > columns and taken:
            break
        taken += 1
    return word[:taken]
