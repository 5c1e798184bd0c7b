"""
Edits: the lines of a text that C4 keeps.

Per line, in this order: white space is trimmed; a line with a word of more than 1,000 code points goes; citations
([3], [], [edit], [citation needed]) are taken out; a line goes that ends without one of . ? ! " ' or with three dots,
that had fewer than three words, that holds javascript, that holds terms of use, privacy policy, cookie policy, uses
cookies, use of cookies or use cookies (these in whatever case).  What stays is joined by LF and trimmed.  A line that
passed as far as the words and holds lorem ipsum, or { without javascript, stays: documents are judged by it.

A second run may take more: what a citation leaves at the end of a line is not trimmed, as in the published code.
"""

import numpy as np
import pyarrow as pa

from datapipe import text
from datapipe.kernels import c4, unicode
from datapipe.kernels.jit import given

_PIECE = 1 << 24  # bytes of text that are edited at a time


def c4_lines(texts: pa.LargeStringArray) -> pa.LargeStringArray:
    """The lines that C4 keeps (Raffel et al. 2019, section 2.2, with what its code adds)."""
    return _cleaned(texts, True)


def c4_lines_relaxed(texts: pa.LargeStringArray) -> pa.LargeStringArray:
    """The same without the rule on the end of a line, as FineWeb was made (Penedo et al. 2024)."""
    return _cleaned(texts, False)


def _cleaned(texts: pa.LargeStringArray, strict: bool) -> pa.LargeStringArray:
    data, offsets = text.buffers(texts)
    page, entry, *_ = unicode.tables()
    parts = [texts[:0]]
    for low, high in text.pieces(offsets, _PIECE):
        count = high - low
        out = np.empty(int(offsets[high] - offsets[low]) + count, np.uint8)
        bounds, taken = np.zeros(count + 1, np.int64), np.zeros((count, c4.RULES), np.int64)
        c4.clean(data, given(offsets[low : high + 1]), page, entry, strict, out, bounds, taken)
        whole = pa.py_buffer(out[: bounds[-1]].tobytes())
        parts.append(pa.LargeStringArray.from_buffers(count, pa.py_buffer(bounds), whole))
    return pa.concat_arrays(parts)
