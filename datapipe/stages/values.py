"""A mapped or extra field of documents, read from their part."""

import json
from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from datapipe.documents import Part
from datapipe.keyed import canonical
from datapipe.read.fields import OURS


def field_values(part: Part, name: str, rows: np.ndarray) -> Iterator[tuple[np.ndarray, pa.Array]]:
    """(rows int32, values as text) of a field in `rows` (sorted); null where a document has none."""
    column = name if name in OURS else "extra"
    for here, table in part.batches([column], rows):
        values = table[column].combine_chunks()
        if column == "extra":
            values = pa.array([_text(extra, name) for extra in values.to_pylist()], pa.string())
        yield here, values


def _text(extra: str | None, name: str) -> str | None:
    """An extra field as text: a string as it is, null as none, anything else as canonical JSON."""
    value = json.loads(extra).get(name) if extra else None
    return value if value is None or isinstance(value, str) else canonical(value).decode("ascii")
