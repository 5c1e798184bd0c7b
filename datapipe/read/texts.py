"""
Trees of text files: a file is a document, its relative path is its own id.
"""

import numpy as np
import pyarrow as pa

from datapipe.read.fields import NOT_UTF8, QUARANTINED, Mapping, Rows, refuse
from datapipe.read.jsonl import BOM
from datapipe.read.streams import utf_other


def rows(data: bytes, relative: str, names: Mapping) -> Rows:
    """The one document that a file is; quarantined where it is not UTF-8, with the encoding where its bytes tell it."""
    body = data.removeprefix(BOM)
    mapped: dict[str, list] = {ours: [] for ours, _ in names.mapped} | {"id": []}
    extra: dict[str, list] = {name: [] for name, _ in names.extra}
    try:
        text = [body.decode("utf-8")] if utf_other(data[:4]) is None else None
    except UnicodeDecodeError:
        text = None
    if text is None:
        reason = f"{utf_other(data[:4])}, {NOT_UTF8}" if utf_other(data[:4]) else NOT_UTF8
        refused = [refuse(QUARANTINED, reason, 1, 0, data)]
        return Rows(
            pa.array([], pa.large_string()), np.empty(0, np.int64), np.empty(0, np.int64), mapped, extra, refused
        )
    for column in (*mapped.values(), *extra.values()):
        column.append(None)
    mapped["id"] = [relative]
    one = np.ones(1, np.int64)
    return Rows(pa.array(text, pa.large_string()), one, one - 1, mapped, extra, record=lambda row: data, size=len(data))
