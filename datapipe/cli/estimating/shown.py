"""How a table of terms looks on a terminal: groups with their sums, formulas, sources below."""

from collections.abc import Iterable, Iterator, Sequence

from datapipe.cli.text import pad, width
from datapipe.estimate.quantities import show
from datapipe.estimate.terms import SOURCES, Table, Term


def columns(header: Sequence[str], rows: Iterable[Sequence[str]], right: Sequence[int]) -> str:
    """Columns under a header; those numbered in `right` end at the same place."""
    cells = [list(header), *map(list, rows)]
    widths = [max(map(width, column)) for column in zip(*cells, strict=True)]
    lines = (
        "  ".join(pad(cell, size, right=n in right) for n, (cell, size) in enumerate(zip(row, widths, strict=True)))
        for row in cells
    )
    return "\n".join("  " + line.rstrip() for line in lines)


def terms(table: Table, *, share: bool = True) -> str:
    """A table with the sum of each group, the largest term marked, and the total."""
    total, largest = table.total, table.dominant()
    rows: list[list[str]] = []
    for group, value in table.groups().items():
        inner = [term for term in table.terms if term.group == group]
        if len(inner) == 1 and inner[0].name == group:
            rows.append(_row(inner[0], group, total, largest))
            continue
        rows.append([group, show(value, table.unit), _share(value, total), "", "", ""])
        rows += [_row(term, "  " + term.name.partition(".")[2], total, largest) for term in inner]
    rows.append(["total", show(total, table.unit), "", "", "", ""])
    keep = [0, 1, *([2] if share else []), 3, 4, 5]
    header = [
        "term",
        table.unit if table.unit in ("bytes", "seconds", "FLOP") else "",
        "share",
        "formula",
        "source",
        "",
    ]
    return columns([header[n] for n in keep], [[row[n] for n in keep] for row in rows], (1, 2) if share else (1,))


def _row(term: Term, name: str, total: float, largest: Term | None) -> list[str]:
    mark = "<- largest" if term is largest else ""
    note = "; ".join(part for part in (term.note, mark) if part)
    return [name, show(term.value, term.unit), _share(term.value, total), term.formula, term.source, note]


def _share(value: float, total: float) -> str:
    return f"{100 * value / total:.1f} %" if total else ""


def change(share: float) -> str:
    """+31 %, -4 %, or `same` within half a percent."""
    return "same" if abs(share) < 0.005 else f"{100 * share:+.0f} %"


def sources(*tables: Table) -> str:
    """The sources that the terms name, in full."""
    named = dict.fromkeys(term.source for table in tables for term in table.terms)
    return "\n".join(["sources", *(f"  {name}: {SOURCES[name]}" for name in named if name in SOURCES)])


def listed(title: str, lines: Iterable[str]) -> str:
    """A heading and its lines; nothing without lines."""
    found = list(dict.fromkeys(lines))
    return "\n".join([title, *(f"  {line}" for line in found)]) if found else ""


def joined(parts: Iterable[str]) -> str:
    return "\n\n".join(part for part in parts if part)


def ranked(rows: Sequence[Sequence[str]], header: Sequence[str], right: Sequence[int]) -> Iterator[str]:
    """Rows with their place in front."""
    yield columns(["", *header], [[f"{n}.", *row] for n, row in enumerate(rows, 1)], (0, *(n + 1 for n in right)))
