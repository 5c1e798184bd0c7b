"""
A sample of the records, for a dry run: how many of each source, from which pieces, and which.

Hashes of names decide all three, so that the same records come with any number of workers and any memory; more are
read than are taken, for records that lie side by side are alike.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from datapipe import units
from datapipe.documents import Work
from datapipe.keyed import WHOLE, keyed, keyed_each
from datapipe.manifest import Manifest
from datapipe.read.fields import Rows
from datapipe.read.part import PART, task
from datapipe.read.planning import Files, Groups, Input, Piece, Plan, Slice
from datapipe.read.result import ReadResult, gathered

PURPOSE = "dry_run"
LEAST_PIECES = 8  # of a source, where it has so many
SPREAD = 20  # records that are read for each one that is taken, where there are so many
EVENLY = 4  # a quarter of the sample goes to all sources alike, so that a small one is seen too
DOCUMENT = 2000  # bytes of a record where nothing tells how many there are

Sizes = Mapping[Input, tuple[int, int | None]]  # bytes of text and records of each input; None where nothing tells


def sample(
    plan: Plan,
    manifest: Manifest,
    work: Work,
    number: int,
    sizes: Sizes,
    progress: Callable[[int], None] = lambda done: None,
) -> ReadResult:
    """About `number` records, read as the build would read them; `work` is a place that vanishes with the answer."""
    wanted = quotas(plan, number, sizes)
    chosen: list[Piece] = []
    below: dict[str, int] = {}
    for source, quota in wanted.items():
        pieces = [piece for piece in plan.pieces if _inputs(piece)[0].source == source]
        taken, records = _choose(pieces, quota, sizes)
        chosen += taken
        below[source] = _bound(quota, records, manifest.sources[source].sample)
    tasks = [task(plan.specs[_inputs(piece)[0].source], piece, _Thin(below)) for piece in chosen]
    done = units.run(work.store, tasks, work.workers, progress)
    return gathered(plan, manifest, done, chosen, whole=False)


def quotas(plan: Plan, number: int, sizes: Sizes) -> dict[str, int]:
    """
    How many records of each source: a part of them evenly, the rest by bytes of text.  What one does not have is given
    to the others.
    """
    have = {source: sum(_records(one, sizes) for one in inputs) for source, inputs in plan.sources.items()}
    weight = {source: max(1, sum(sizes[one][0] for one in inputs)) for source, inputs in plan.sources.items()}
    found: dict[str, int] = {}
    left = number
    while open_ := [source for source in have if source not in found]:
        even, total = left // EVENLY // len(open_), sum(weight[source] for source in open_)
        rest = left - even * len(open_)
        asked = {source: even + -(-rest * weight[source] // total) for source in open_}
        whole = [source for source in open_ if have[source] <= asked[source]]
        for source in whole or open_:
            found[source] = min(have[source], asked[source])
            left -= found[source]
    return {source: found[source] for source in have}


def _choose(pieces: Iterable[Piece], quota: int, sizes: Sizes) -> tuple[list[Piece], int]:
    """Pieces in the order of the plan, enough of them for the quota, and about how many records they hold."""
    taken: list[tuple[int, Piece]] = []
    records = 0
    for _, place, piece in sorted(
        (keyed(PURPOSE, None, str(piece)), place, piece) for place, piece in enumerate(pieces)
    ):
        if len(taken) >= LEAST_PIECES and records >= SPREAD * quota:
            break
        taken.append((place, piece))
        records += _of_piece(piece, sizes)
    return [piece for _, piece in sorted(taken, key=lambda one: one[0])], records


def _bound(quota: int, records: int, drawn: float | None) -> int:
    """Below it lies the hash of a record that is taken; a source that the manifest samples gives more to draw from."""
    if quota >= records:
        return WHOLE
    return min(WHOLE, int(WHOLE * quota // records / (drawn or 1)))


def _inputs(piece: Piece) -> tuple[Input, ...]:
    return piece.inputs if isinstance(piece, Files) else (piece.input,)


def _records(one: Input, sizes: Sizes) -> int:
    size, records = sizes[one]
    return -(-size // DOCUMENT) if records is None else records


def _of_piece(piece: Piece, sizes: Sizes) -> int:
    """Records of a piece, about; of a stream those of the part that is read."""
    if isinstance(piece, Files):
        return sum(_records(one, sizes) for one in piece.inputs)
    if isinstance(piece, Groups):
        return sum(group.rows for group in piece.groups[piece.first : piece.stop])
    size = max(1, sizes[piece.input][0])
    if isinstance(piece, Slice):
        part = (size if piece.stop is None else piece.stop) - piece.at.offset
    else:
        part = min(PART, size)
    return _records(piece.input, sizes) * part // size


@dataclass(frozen=True)
class _Thin:
    """Takes the records whose hash lies below the bound of their source."""

    below: Mapping[str, int]

    def __call__(self, one: Input, rows: Rows) -> Rows:
        below = self.below[one.source]
        if below >= WHOLE:
            return rows
        drawn = self._drawn(one, rows.line.tolist(), below)
        refused = self._drawn(one, [record.line for record in rows.refused], below)
        places = np.flatnonzero(drawn).tolist()
        return Rows(
            rows.text.filter(pa.array(drawn)),
            rows.line[drawn],
            None if rows.offset is None else rows.offset[drawn],
            {name: [column[place] for place in places] for name, column in rows.mapped.items()},
            {name: [column[place] for place in places] for name, column in rows.extra.items()},
            [record for record, taken in zip(rows.refused, refused, strict=True) if taken],
            record=lambda row: rows.record(places[row]),
            end=rows.end,
            size=rows.size,
        )

    def _drawn(self, one: Input, lines: list[int], below: int) -> np.ndarray:
        names = (f"{one.relative}:{line}" for line in lines)
        return np.array([number < below for number in keyed_each(PURPOSE, one.source, names)], bool)
