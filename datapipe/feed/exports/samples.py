"""Rows as samples, for formats that keep the packing: a dict a row, with its ids and its segment columns."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from datapipe.feed.batch import Rows

# of a sample -> its type; loss_mask is bytes, empty where all tokens may be predicted
SCALARS = ("row_id", "n_tokens")
ARRAYS = {"input_ids": "int32", "seg_len": "int32", "seg_doc": "int64", "seg_start": "int32", "seg_flags": "uint8",
          "seg_source": "int16"}  # fmt: skip
MASK = "loss_mask"


def samples(rows: Rows) -> Iterator[dict[str, Any]]:
    """The rows one by one; arrays own their memory."""
    bits = None if rows.mask is None else np.packbits(rows.mask, axis=1, bitorder="little")
    for n in range(len(rows)):
        segments = slice(int(rows.offsets[n]), int(rows.offsets[n + 1]))
        yield {
            "row_id": int(rows.row_ids[n]),
            "n_tokens": int(rows.n_tokens[n]),
            "input_ids": rows.input_ids[n].copy(),
            **{name: getattr(rows, name)[segments].copy() for name in ARRAYS if name != "input_ids"},
            MASK: b"" if bits is None else bits[n].tobytes(),
        }
