"""
A redacting source in all but its text: what of its records is stored, and what an error may say of them.

Every string of mapped and extra fields, nested ones and the names in JSON objects too, is redacted as the text is
(edits.redact.pseudonym); so is an integer that is a telephone number in a field of such a name.  Decisions are made on
the values as read: doc_id, select, the sample of a key, the instant of a date, the names of snapshots.  Path names
stay, and an own id that is one: they are the user's.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from datapipe.edits.redact import Redaction, pseudonym
from datapipe.edits.replace import matching
from datapipe.read.fields import Rows

LEAST = 1_000_000  # integers below have too few digits to be a telephone number


def private(rows: Rows, paths: Sequence[str], labels: Sequence[str], by: Sequence[Redaction]) -> Rows:
    """
    Rows as they may be stored.

    paths: the relative path of each row's file;  labels: snapshots that the manifest itself names, which stay
    """
    if not by:
        return rows
    mapped = {name: _column(name, values, by) for name, values in rows.mapped.items()}
    stays = {"id": paths, "snapshot": [label if label in labels else None for label in rows.mapped.get("snapshot", [])]}
    for name in mapped.keys() & stays.keys():
        read = zip(rows.mapped[name], mapped[name], stays[name], strict=True)
        mapped[name] = [old if old == known else new for old, new, known in read]
    return replace(rows, mapped=mapped, extra={name: _column(name, values, by) for name, values in rows.extra.items()})


def _column(name: str, values: list, by: Sequence[Redaction]) -> list:
    """The values of a field; one scan a redaction finds those that may need more."""
    plain = [f"{name}: {value}" if isinstance(value, str | int) else name for value in values]
    texts = pa.array(plain, pa.large_string())
    doubtful = np.array([isinstance(value, dict | list) for value in values], bool)
    for redaction in by:
        doubtful |= matching(texts, redaction.candidates)
    found = list(values)
    for row in np.flatnonzero(doubtful).tolist():
        found[row] = _value(name, values[row], by)
    return found


def _value(name: str, value: Any, by: Sequence[Redaction]) -> Any:
    match value:
        case str():
            return pseudonym(name, value, by)
        case bool():
            return value
        case int() if abs(value) >= LEAST:
            written = str(value)
            new = pseudonym(name, written, by)
            return value if new == written else new
        case list():
            return [_value(name, inner, by) for inner in value]
        case dict():
            return {pseudonym(name, key, by): _value(key, inner, by) for key, inner in value.items()}
    return value
