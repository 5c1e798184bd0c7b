"""Small drawings: where their marks lie.  Numbers only; the templates write the SVG."""

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from datapipe.auditing.page.words import ordered
from datapipe.auditing.report import CLASSES, FLAGGED, THRESHOLDS, Cell, Detector, Rate, Section, SetRow, Sweep

SHADES = 8  # of the heat map, beside none
_DIGITS = 2  # of a coordinate


class Block(NamedTuple):
    """A stretch of a bar, in 1000ths of its length."""

    cls: str
    examples: int
    x: float
    width: float


class Line(NamedTuple):
    """Points of a line of a chart; n and exclusion say how it is drawn."""

    n: int
    exclusion: bool
    points: str
    flagged: tuple[int, ...]


class Panel(NamedTuple):
    """A metric of a suite over THRESHOLDS; at: x of the threshold in use."""

    suite: str
    metric: str
    top: int
    at: float | None
    threshold: float | None
    lines: tuple[Line, ...]


class Curve(NamedTuple):
    """Points of a line; y of zero, the least and the most value."""

    points: str
    zero: float
    low: float
    high: float


class Heat(NamedTuple):
    """Suites and sources, the longer list as rows; cells[row][column] is (cell, shade), or null."""

    rows_are: str
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    cells: tuple[tuple[tuple[Cell, int] | None, ...], ...]


def bar(row: SetRow) -> list[Block]:
    """What is not clean in a suite, classes side by side; what is there is wide enough to be seen."""
    there = [(cls, row.classes.get(cls, 0)) for cls in CLASSES if cls != "clean" and row.classes.get(cls, 0)]
    total = sum(n for _, n in there)
    widths = [max(1000 * n / total, 15.0) for _, n in there] if total else []
    scale = 1000 / sum(widths) if widths else 1.0
    blocks, x = [], 0.0
    for (cls, n), width in zip(there, widths, strict=True):
        blocks.append(Block(cls, n, round(x, _DIGITS), round(width * scale, _DIGITS)))
        x += width * scale
    return blocks


def whisker(value: Rate, top: float) -> tuple[float, float, float] | None:
    """low, share, high of an interval in 100ths of the width, which stands for `top`."""
    if value.share is None or not top:
        return None
    low, share, high = (round(100 * min(part / top, 1), _DIGITS) for part in (value.low, value.share, value.high))
    return low, share, high


def top_rate(rows: Iterable[SetRow]) -> float:
    """What the width of all whiskers of a table stands for: the next round share above all intervals."""
    most = max((row.rate.high for row in rows if row.rate.share is not None), default=0.0)
    return next((share for share in (0.01, 0.02, 0.05, 0.1, 0.2, 0.5) if most <= share), 1.0)


def told(rows: Iterable[SetRow]) -> list[SetRow]:
    """Of many sets those of which there is something to tell: what flags, and what could not be looked for at all."""
    return [row for row in rows if row.flagged or not row.tested]


def classes(rows: Iterable[SetRow]) -> list[str]:
    """The classes that a table has a column for: the flagged ones that occur, and all others."""
    rows = tuple(rows)
    return [c for c in CLASSES if c not in FLAGGED or any(row.classes.get(c, 0) for row in rows)]


def panels(sweeps: Sequence[Sweep], detector: Detector, *, whole: bool) -> list[list[Panel]]:
    """Charts in rows of one suite each; whole: one row, of all suites together."""
    suites = ["*"] if whole else list(dict.fromkeys(sweep.suite for sweep in sweeps if sweep.suite != "*"))
    names = [name for name, _ in ordered(dict.fromkeys(sweep.metric for sweep in sweeps))]
    rows = []
    for suite in suites:
        own = _all(sweeps) if whole else [sweep for sweep in sweeps if sweep.suite == suite]
        top = max((n for sweep in own for n in sweep.flagged), default=0)
        if top or whole:
            rows.append([_panel(suite, metric, own, top, detector) for metric in names])
    return rows


def _all(sweeps: Sequence[Sweep]) -> list[Sweep]:
    """Sums over the suites, where the report has none of its own."""
    own = [sweep for sweep in sweeps if sweep.suite == "*"]
    if own:
        return own
    sums: dict[tuple[str, int, bool], list[int]] = {}
    for sweep in sweeps:
        total = sums.setdefault((sweep.metric, sweep.n, sweep.exclusion), [0] * len(THRESHOLDS))
        for at, n in enumerate(sweep.flagged):
            total[at] += n
    return [
        Sweep(suite="*", metric=metric, n=n, exclusion=exclusion, flagged=tuple(total))
        for (metric, n, exclusion), total in sums.items()
    ]


def _panel(suite: str, metric: str, sweeps: Sequence[Sweep], top: int, detector: Detector) -> Panel:
    threshold = detector.thresholds.get(metric)
    lines = tuple(
        Line(sweep.n, sweep.exclusion, _points(sweep.flagged, top), sweep.flagged)
        for sweep in sorted(sweeps, key=lambda sweep: (sweep.n, not sweep.exclusion))
        if sweep.metric == metric
    )
    at = None if threshold is None else round(100 * threshold, _DIGITS)
    return Panel(suite, metric, top, at, threshold, lines)


def _points(flagged: Sequence[int], top: int) -> str:
    """In a box of 100 x 50, y downwards."""
    return " ".join(
        f"{100 * threshold:g},{50 - 50 * n / max(top, 1):.4g}"
        for threshold, n in zip(THRESHOLDS, flagged, strict=False)
    )


def curve(points: Sequence[tuple[float, float | None]]) -> Curve | None:
    """(threshold, points of 100) in a box of 100 x 50; null without values."""
    known = [(x, y) for x, y in points if y is not None]
    if len(known) < 2:
        return None
    low, high = min(0.0, *(y for _, y in known)), max(0.0, *(y for _, y in known))
    scale = 50 / ((high - low) or 1)
    line = " ".join(f"{100 * x:g},{50 - scale * (y - low):.4g}" for x, y in known)
    return Curve(line, round(50 + scale * low, _DIGITS), low, high)


def heat(section: Section) -> Heat | None:
    """The matrix of a section; shades grow with the logarithm, so that 3 can be told from 300."""
    cells = {(cell.source, cell.suite): cell for cell in section.matrix if cell.examples}
    if not cells:
        return None
    sources = tuple(dict.fromkeys(cell.source for cell in section.matrix if (cell.source, cell.suite) in cells))
    suites = tuple(dict.fromkeys(cell.suite for cell in section.matrix if (cell.source, cell.suite) in cells))
    most = math.log1p(max(20, *(cell.examples for cell in cells.values())))  # a matrix of ones is pale
    by_suite = len(suites) >= len(sources)
    rows, columns = (suites, sources) if by_suite else (sources, suites)

    def shaded(row: str, column: str) -> tuple[Cell, int] | None:
        cell = cells.get((column, row) if by_suite else (row, column))
        return cell and (cell, max(1, round(SHADES * math.log1p(cell.examples) / most)))

    grid = tuple(tuple(shaded(row, column) for column in columns) for row in rows)
    return Heat("set" if by_suite else "source", rows, columns, grid)
