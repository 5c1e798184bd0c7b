"""
The eval side as tables: what an eval suite asks, part by part; and the classes that its examples get.

A *suite* is a file of examples, an *example* has *parts* (its prompt, choices, answer, ...), a part is one text.  A
part without text is no row.  Rows are in the order of the running numbers, and these follow (suite, file, row), so
equal files give equal tables whatever order they were named in.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Literal, get_args

import numpy as np
import pyarrow as pa

PROMPT, CHOICES, ANSWER, SOLUTION, TESTS, PASSAGE, VARIANT = KINDS = (
    "prompt",  # what is asked; of a chat, what the user says
    "choices",  # one part an offered answer; `correct` where it is the right one
    "answer",  # the short right answer, as text; never the bare letter or number of a choice
    "solution",  # how one gets there, or an answer that is itself long or code
    "tests",  # code that judges a solution
    "passage",  # a text that the question is about; many questions share one, and it is often public
    "variant",  # a rewrite or translation of the example that somebody supplied
)
Class = Literal["adjacent", "solution", "prompt", "near", "variant", "short", "passage", "untested", "clean"]
CLASSES: tuple[Class, ...] = get_args(Class)  # the most telling first
FLAGGED = CLASSES[:5]  # short is told apart, a passage alone is no leak, and untested is not clean
ORDER = {kind: place for place, kind in enumerate(KINDS)}  # parts of an example lie in this order

EXAMPLES = pa.schema(
    [
        ("example", pa.int32()),  # row number
        ("suite", pa.string()),
        ("id", pa.string()),  # own id, else "row-<n>"; one that occurred before in the suite has "#<n>" behind it
        ("file", pa.string()),  # path as given; a member of an archive is "archive/member"
        ("row", pa.int64()),  # 1-based place among the records of the file
        ("split", pa.string()),
        ("lang", pa.string()),
        ("problem", pa.string()),  # why it cannot be tested at all; null where it can
    ]
)
PARTS = pa.schema(
    [
        ("part", pa.int32()),  # row number
        ("example", pa.int32()),
        ("kind", pa.string()),
        ("ordinal", pa.int32()),  # 0-based, among the parts of its kind as published
        ("correct", pa.bool_()),  # of a choice, where the right one is known; else null
        ("text", pa.large_string()),
    ]
)
FILES = pa.schema(
    [
        ("path", pa.string()),
        ("suite", pa.string()),  # null for a file of variants, and where nothing could be opened
        ("bytes", pa.int64()),  # as stored; of a member of an archive, as expanded
        ("sha256", pa.string()),  # of these bytes; null where they could not be read
        ("records", pa.int64()),
        ("examples", pa.int64()),
        ("mapping", pa.string()),  # canonical JSON {part or id, split, lang: field, several joined by ", "}
        ("failed", pa.string()),  # why it, or the rest of it, did not load; of variants, what belongs to no example
    ]
)


@dataclass(frozen=True)
class Suites:
    """All eval suites of a run."""

    examples: pa.Table
    parts: pa.Table
    files: pa.Table

    @cached_property
    def names(self) -> list[str]:
        """The suites that have examples, sorted."""
        return sorted(set(self.examples["suite"].to_pylist()))

    @cached_property
    def example_of(self) -> np.ndarray:
        """int32 a part: its example."""
        return self.parts["example"].to_numpy()

    @cached_property
    def bounds(self) -> np.ndarray:
        """int64 an example and one: the parts of example e are the rows bounds[e] to bounds[e + 1] of `parts`."""
        return np.searchsorted(self.example_of, np.arange(len(self.examples) + 1))

    def parts_of(self, example: int) -> pa.Table:
        """The parts of one example, prompt first."""
        return self.parts.slice(int(self.bounds[example]), int(self.bounds[example + 1] - self.bounds[example]))

    def failed(self) -> list[tuple[str, str]]:
        """(path, reason) of each file that did not load, or not whole."""
        rows = self.files.select(["path", "failed"]).to_pylist()
        return [(row["path"], row["failed"]) for row in rows if row["failed"] is not None]
