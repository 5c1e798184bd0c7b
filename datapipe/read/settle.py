"""
From rows to documents: edits, hashes, names, and what is cut; blocks of one or of many files alike.
"""

import itertools
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import xxhash

from datapipe import edits, tables, text
from datapipe.keyed import doc_ids, quoted, text_id
from datapipe.language import Language
from datapipe.manifest import LANG_SCORE
from datapipe.read.fields import EMPTY_TEXT, OURS, REJECTED, Refused, Rows, as_json, instant, refuse, version_order
from datapipe.read.private import private
from datapipe.read.spec import Spec, cuts, key_text

EMPTY = text_id(b"")


@dataclass(frozen=True)
class Settled:
    """What a block of rows became: tables of tables.py, and figures by the number of the input."""

    documents: pa.Table
    narrow: pa.Table
    cut: pa.Table
    refused: list[tuple[int, Refused]]  # (input, record)
    stored: np.ndarray  # input of each stored row
    cut_by: Counter  # (input, rule) -> documents
    edited: dict[str, int]
    labels: Counter  # snapshot label -> documents


def gather(pending: Sequence[tuple[int, Rows]]) -> tuple[Rows, np.ndarray]:
    """Rows of several files or blocks as one, and the input of each row (int32)."""
    inputs = np.repeat(np.array([at for at, _ in pending], np.int32), [len(rows) for _, rows in pending])
    if len(pending) == 1:
        return pending[0][1], inputs
    first = pending[0][1]
    starts = np.cumsum([0] + [len(rows) for _, rows in pending])

    def record(row: int) -> bytes | None:
        at = int(np.searchsorted(starts, row, "right")) - 1
        return pending[at][1].record(row - int(starts[at]))

    def columns(name: str) -> dict[str, list]:
        return {
            key: [value for _, rows in pending for value in getattr(rows, name)[key]] for key in getattr(first, name)
        }

    offsets = [rows.offset for _, rows in pending if rows.offset is not None]
    merged = Rows(
        pa.concat_arrays([rows.text for _, rows in pending]),
        np.concatenate([rows.line for _, rows in pending]),
        np.concatenate(offsets) if offsets else None,
        columns("mapped"),
        columns("extra"),
        record=record,
    )
    return merged, inputs


def settle(spec: Spec, rows: Rows, inputs: np.ndarray, paths: Sequence[str]) -> Settled:
    """Documents of rows; `inputs` says of which input each row is, `paths` are the relative paths of inputs."""
    raw = _hashes(rows.text)
    edited, changed = edits.apply(rows.text, spec.source.edits)
    edited, hashes, empty = _blank(rows.text, edited)
    own = doc_ids(spec.name, rows.mapped.get("id", [None] * len(rows)), raw)
    rules = cuts(spec, lambda name: _values(rows, name), len(rows))
    cut = np.array([rule is not None for rule in rules], bool) & ~empty
    kept = ~empty & ~cut
    read, rows = rows, private(rows, [paths[int(at)] for at in inputs], spec.labels, spec.redactions)
    extra = _extra(rows.extra) if rows.extra else None
    fields = _fields(rows, extra)
    columns = _columns(spec, rows, extra, inputs, paths)
    if "date" in read.mapped:
        columns["instant"] = [instant(value) for value in read.mapped["date"]]
    if spec.language:
        columns["lang"], columns["extra"] = _languages(spec.language, edited, kept, rows)
    columns |= {
        "raw_hash": raw,
        "text": edited,
        "own": own,
        "fields": fields,
        "text_hash": hashes,
        "bytes": _sizes(edited),
    }
    names = "snapshot" in read.mapped
    return Settled(
        _table(tables.DOCUMENTS, columns, kept),
        _table(tables.NARROW, columns, kept),
        _table(tables.CUT, columns, cut),
        [(int(inputs[row]), _empty(rows, row)) for row in np.flatnonzero(empty).tolist()],
        inputs[kept],
        Counter((int(inputs[row]), rules[row]) for row in np.flatnonzero(cut).tolist()),
        changed,
        Counter(label for label, gone in zip(read.mapped["snapshot"], empty, strict=True) if not gone)
        if names
        else Counter(),
    )


def _blank(raw: pa.Array, edited: pa.Array) -> tuple[pa.Array, pa.Array, np.ndarray]:
    """
    Texts, their hashes, and which of them are no documents, for they were blank before any edit.

    What edits alone made blank is a document with the text "", that stage 0 drops.
    """
    hashes = text.text_hashes(edited)
    blank = pc.call_function("equal", [hashes, pa.scalar(EMPTY)])
    empty = np.array(blank.to_numpy(zero_copy_only=False), bool)
    if not empty.any():
        return edited, hashes, empty
    edited = pc.call_function("replace_with_mask", [edited, blank, pa.scalar("", edited.type)])
    empty[empty] = [one == EMPTY for one in text.text_hashes(raw.filter(blank)).to_pylist()]
    return edited, hashes, empty


def _extra(columns: dict[str, list]) -> list[str]:
    """Canonical JSON of the extra fields of each row, without those that it lacks."""
    return [
        as_json({name: value for name, value in zip(columns, row, strict=True) if value is not None})
        for row in zip(*columns.values(), strict=True)
    ]


def _languages(language: Language, texts: pa.Array, kept: np.ndarray, rows: Rows) -> tuple[list, list[str]]:
    """
    `lang` and `extra` of each row by the model, which is shown the kept texts alone.  A doc_id knows the record's own
    fields, not these, so it is the same with any model.
    """
    labels: list[str | None] = [None] * len(rows)
    scores: list[float | None] = [None] * len(rows)
    found = language.classify(texts.filter(pa.array(kept)))
    for row, label, score in zip(np.flatnonzero(kept).tolist(), *found, strict=True):
        labels[row], scores[row] = label, score
    return labels, _extra(rows.extra | {LANG_SCORE: scores})


def _empty(rows: Rows, row: int) -> Refused:
    offset = None if rows.offset is None else int(rows.offset[row])
    return refuse(REJECTED, EMPTY_TEXT, int(rows.line[row]), offset, rows.record(row))


def _table(schema: pa.Schema, columns: dict, mask: np.ndarray) -> pa.Table:
    """The masked rows of columns as a table."""
    arrays = [columns[field.name] for field in schema]
    arrays = [
        a if isinstance(a, pa.Array) else pa.array(a, field.type) for a, field in zip(arrays, schema, strict=True)
    ]
    table = pa.Table.from_arrays([a.cast(field.type) for a, field in zip(arrays, schema, strict=True)], schema=schema)
    return table if mask.all() else table.filter(pa.array(mask))


def _columns(spec: Spec, rows: Rows, extra: list[str] | None, inputs: np.ndarray, paths: Sequence[str]) -> dict:
    """Columns that the mapped fields give; those that are not there are null."""
    nulls = pa.nulls(len(rows), pa.string())
    mapped = {ours: rows.mapped.get(ours, nulls) for ours in OURS}
    if "snapshot" not in rows.mapped and spec.labels:
        mapped["snapshot"] = pa.repeat(spec.labels[0], len(rows))
    version = rows.mapped.get("version")
    key = None if spec.key is None else [None if v is None else key_text(v) for v in _values(rows, spec.key)]
    return mapped | {
        "source": pa.repeat(spec.name, len(rows)),
        "path": pa.array(paths, pa.string()).take(pa.array(inputs)),
        "offset": pa.nulls(len(rows), pa.int64()) if rows.offset is None else rows.offset,
        "line": rows.line,
        "extra": nulls if extra is None else extra,
        "key": nulls if key is None else key,
        "instant": pa.nulls(len(rows), pa.int64()),
        "version_order": nulls if version is None else [version_order(value) for value in version],
    }


def _values(rows: Rows, name: str) -> list:
    """A mapped or extra field's values."""
    return rows.mapped[name] if name in rows.mapped else rows.extra[name]


def _sizes(array: pa.Array) -> np.ndarray:
    """UTF-8 bytes of each text, int64."""
    return np.diff(text.buffers(array)[1])


def _hashes(array: pa.Array) -> list[str]:
    """xxh3_128 of each text, in hex."""
    data, offsets = text.buffers(array)
    digest, view = xxhash.xxh3_128_hexdigest, data.data
    return [digest(view[start:stop]) for start, stop in itertools.pairwise(offsets.tolist())]


def _fields(rows: Rows, extra: list[str] | None) -> list[str]:
    """Canonical JSON of all mapped and extra fields but the text: {"extra": {...}, ours: text, ...}."""
    columns = {} if extra is None else {"extra": extra}
    for ours in sorted(rows.mapped):
        columns[ours] = ["null" if value is None else quoted(value) for value in rows.mapped[ours]]
    form = "{{" + ",".join(f'"{name}":{{}}' for name in sorted(columns)) + "}}"
    return [form.format(*row) for row in zip(*(columns[name] for name in sorted(columns)), strict=True)] or (
        ["{}"] * len(rows)
    )
