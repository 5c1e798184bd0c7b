"""
Runs for a fit, from CSV or Parquet: a row is a run with its N, D (or C, then D = C/6N) and final loss.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
from numpy.typing import NDArray

from datapipe.estimate.constants import Box
from datapipe.estimate.quantities import Problems

LEAST = 7  # five constants, and two rows that can contradict them
SHOWN = 20  # bad rows that are named one by one
PARTS = ("N", "D", "C", "loss")
ALIKE = 0.999  # correlation of log N and log D above which no fit can tell them apart

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Runs:
    """Columns of equal length; names: how each row is called in messages."""

    n: Floats
    d: Floats
    loss: Floats
    names: tuple[str, ...]
    source: str
    assumptions: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.n)

    @property
    def c(self) -> Floats:
        return 6 * self.n * self.d

    @property
    def box(self) -> Box:
        def span(values: Floats) -> tuple[float, float]:
            return float(values.min()), float(values.max())

        return Box(
            span(self.n), span(self.d), span(self.c), span(self.d / self.n), f"the {len(self)} runs of {self.source}"
        )

    def take(self, rows: Any) -> Self:
        """The runs at these indices, or where a mask is true; a row may come twice."""
        indices = np.arange(len(self))[rows]
        names = tuple(self.names[i] for i in indices)
        return replace(self, n=self.n[rows], d=self.d[rows], loss=self.loss[rows], names=names)

    def without_highest(self, count: int) -> Self:
        """Without that many of the highest losses."""
        kept = np.sort(np.argsort(self.loss, kind="stable")[: max(len(self) - count, 0)])
        note = f"without the {count} highest losses"
        return replace(self.take(kept), assumptions=(*self.assumptions, note), source=f"{self.source} {note}")


def read(path: Path, columns: Sequence[str], problems: Problems) -> Runs | None:
    """
    The runs of a file.  columns: `N=params`, `C=flops`: what our parts are called there, their own names by default.

    None where something is wrong; everything that is goes into problems, bad rows by number (the header is row 1 of
    a CSV; rows of a Parquet file count from 1).
    """
    mapping = _mapping(columns, problems)
    table = _table(path, problems)
    if table is None or mapping is None:
        return None
    found = {part: mapping.get(part, part) for part in PARTS}
    size = "C" if ("C" in mapping and "D" not in mapping) or found["D"] not in table.column_names else "D"
    wanted = ("N", size, "loss")
    missing = [part for part in wanted if found[part] not in table.column_names]
    for part in missing:
        also = " (or D)" if part == "C" else ""
        problems.add(
            "--runs", f"{path}: no column {found[part]!r} for {part}{also}, found {', '.join(table.column_names)}; "
            f"name it by --columns {part}=NAME"
        )  # fmt: skip
    if missing:
        return None
    first = 2 if path.suffix.lower() in (".csv", ".tsv") else 1
    values = _values(table, {part: found[part] for part in wanted}, first, path, problems)
    if values is None:
        return None
    d = values["D"] if size == "D" else values["C"] / (6 * values["N"])
    names = tuple(f"row {first + i}" for i in range(table.num_rows))
    notes = () if size == "D" else (f"D = C/(6N), C is column {found['C']!r}",)
    runs = Runs(values["N"], d, values["loss"], names, path.name, notes)
    return runs if enough(runs, path, problems) else None


def enough(runs: Runs, path: Path, problems: Problems) -> bool:
    """Whether five constants can be told from these runs at all."""
    before = len(problems.found)
    if len(runs) < LEAST:
        problems.add("--runs", f"{path}: found {len(runs)} runs, expected at least {LEAST} for five constants")
    else:
        for part, column in (("N", runs.n), ("D", runs.d)):
            if len(np.unique(np.round(np.log(column), 3))) < 3:
                problems.add("--runs", f"{path}: fewer than 3 values of {part} differ, expected more for an exponent")
        if len(problems.found) == before and abs(np.corrcoef(np.log(runs.n), np.log(runs.d))[0, 1]) > ALIKE:
            problems.add(
                "--runs", f"{path}: N and D grow together in all runs, so no fit can tell their parts; vary D/N"
            )
    return len(problems.found) == before


def _mapping(columns: Sequence[str], problems: Problems) -> dict[str, str] | None:
    before, mapping = len(problems.found), {}
    for text in columns:
        part, found, name = text.partition("=")
        if part not in PARTS or not found or not name:
            problems.add(f"--columns {text}", f"expected PART=NAME, PART one of {', '.join(PARTS)}")
        elif part in mapping:
            problems.add(f"--columns {text}", f"{part} is {mapping[part]!r} already")
        mapping[part] = name
    return mapping if len(problems.found) == before else None


def _table(path: Path, problems: Problems) -> pa.Table | None:
    suffix = path.suffix.lower()
    try:
        if suffix == ".parquet":
            return pq.read_table(path)
        if suffix in (".csv", ".tsv"):
            options = pyarrow.csv.ParseOptions(delimiter="\t" if suffix == ".tsv" else ",")
            reading = pyarrow.csv.ReadOptions(use_threads=False)
            return pyarrow.csv.read_csv(path, reading, options, pyarrow.csv.ConvertOptions(strings_can_be_null=True))
        problems.add("--runs", f"{path}: expected a file ending in .csv, .tsv or .parquet")
    except FileNotFoundError:
        problems.add("--runs", f"{path}: there is no such file")
    except (pa.ArrowInvalid, OSError) as error:
        problems.add("--runs", f"{path}: cannot be read: {str(error).splitlines()[0]}")
    return None


def _values(
    table: pa.Table, columns: Mapping[str, str], first: int, path: Path, problems: Problems
) -> dict[str, Floats] | None:
    """Positive finite numbers of each column; a row that has none is named."""
    values: dict[str, Floats] = {}
    bad: list[tuple[int, str]] = []
    for part, name in columns.items():
        cells = table[name].to_pylist()
        numbers = [_number(cell) for cell in cells]
        for i, cell in enumerate(cells):
            if numbers[i] is None:
                what = "nothing" if cell is None else repr(cell)
                bad.append((i, f"{path}: row {first + i}, {name}: found {what}, expected a number above 0"))
        values[part] = np.array([math.nan if number is None else number for number in numbers], dtype=np.float64)
    for _, problem in sorted(bad, key=lambda one: one[0])[:SHOWN]:
        problems.add("--runs", problem)
    if len(bad) > SHOWN:
        problems.add("--runs", f"{path}: and {len(bad) - SHOWN:,} more such cells")
    return None if bad else values


def _number(cell: object) -> float | None:
    try:
        value = float(cell)  # pyright: ignore[reportArgumentType]  whatever a file holds
    except (TypeError, ValueError):
        return None
    return value if math.isfinite(value) and value > 0 and not isinstance(cell, bool) else None
