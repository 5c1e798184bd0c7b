"""
Which tokens share a row: best-fit-decreasing, concatenation, and the copying of ids into rows.

Best-fit-decreasing as in Ding et al., arXiv 2404.10830, with a counting sort by length and a tree over the free
space of rows: n log(length) steps for n documents, whatever their lengths.
"""

import numpy as np

from datapipe.kernels.jit import given, kernel

Segments = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]  # row, document, start, length: int64, one a segment


def best_fit(lengths: np.ndarray, length: int) -> Segments:
    """
    lengths: int64, tokens of each document, 1 or more; length: tokens of a row, 2 or more.

    A longer document is cut into pieces of `length` that share one token with the piece before.  Pieces, longest
    first (then in order of documents), go into the row with the least space that is enough, of several the one
    changed last, else into a new row.  Segments come in the order in which they were placed.
    """
    return _best_fit(given(lengths), length)


def concat(lengths: np.ndarray, length: int) -> Segments:
    """All documents one after the other, cut every `length` tokens.  Segments come in that order."""
    return _concat(given(lengths), length)


def by_row(row: np.ndarray, rows: int) -> tuple[np.ndarray, np.ndarray]:
    """
    row: int64, the row of each segment.  (offsets int64[rows + 1], order int64[segments]): segments order[offsets[r] :
    offsets[r + 1]] are those of row r, as they were placed.
    """
    return _by_row(given(row), rows)


def fill(
    documents: tuple[np.ndarray, np.ndarray, np.ndarray],
    segments: Segments,
    control: tuple[int, int, int],
    out: np.ndarray,
) -> None:
    """
    Write token ids into rows.

    documents: ids int32, begin and count int64: document d has ids[begin[d] : begin[d] + count[d]], no control tokens
    segments:  offsets int64[rows + 1] into the other three; document, start, length int64
    control:   ids of bos, eos (-1: none) and pad; a start counts bos
    out:       int32[rows, length], filled; the rest of each row is pad
    """
    rows, document, start, piece = (given(part) for part in segments)
    ids, begin, count = (given(part) for part in documents)
    _fill((ids, begin, count), (rows, document, start, piece), control, out)


@kernel
def _pieces(size, length):
    """Pieces of a document: the first gives length - 1 targets, and so does each that repeats one token."""
    return max(1, (size - 1 + length - 2) // (length - 1))


@kernel
def _longest_first(lengths, length):
    """Pieces by length, longest first, those of a length in order of (document, start): counting sort."""
    begin = np.zeros(length + 2, np.int64)  # begin[length - piece + 1] counts, then begins
    for size in lengths:
        cuts = _pieces(size, length) - 1
        begin[1] += cuts
        begin[length - (size - cuts * (length - 1)) + 1] += 1
    for i in range(length + 1):
        begin[i + 1] += begin[i]
    total = begin[length + 1]
    document, start, piece = np.empty(total, np.int64), np.empty(total, np.int64), np.empty(total, np.int64)
    for d in range(lengths.size):
        size, first = lengths[d], 0
        while True:
            here = min(size - first, length)
            at = begin[length - here]
            begin[length - here] += 1
            document[at], start[at], piece[at] = d, first, here
            if first + here == size:
                break
            first += length - 1
    return document, start, piece


@kernel
def _mark(tree, half, space, there):
    """Say whether rows with this much space are there, up to the root."""
    node = half + space
    tree[node] = there
    node //= 2
    while node:
        tree[node] = tree[2 * node] | tree[2 * node + 1]
        node //= 2


@kernel
def _least(tree, half, space):
    """The least space that is there and at least `space`; 0 if none is."""
    node = half + space
    if tree[node]:
        return space
    while node > 1:
        if node % 2 == 0 and tree[node + 1]:
            node += 1
            while node < half:
                node = 2 * node if tree[2 * node] else 2 * node + 1
            return node - half
        node //= 2
    return 0


@kernel
def _best_fit(lengths, length):
    document, start, piece = _longest_first(lengths, length)
    row = np.empty(piece.size, np.int64)
    half = 1
    while half <= length:
        half *= 2
    tree = np.zeros(2 * half, np.uint8)  # leaf half + s: is there a row with s tokens of space
    head = np.full(length + 1, -1, np.int64)  # of each space, the row changed last; after[row]: the one before it
    after = np.empty(piece.size, np.int64)
    rows = 0
    for i in range(piece.size):
        space = _least(tree, half, piece[i])
        if space:
            here = head[space]
            head[space] = after[here]
            if head[space] < 0:
                _mark(tree, half, space, 0)
        else:
            here, space = rows, length
            rows += 1
        row[i] = here
        left = space - piece[i]
        if left:
            after[here] = head[left]
            head[left] = here
            _mark(tree, half, left, 1)
    return row, document, start, piece


@kernel
def _concat(lengths, length):
    total = 0
    for size in lengths:
        total += size
    most = lengths.size + total // length + 1
    row, document = np.empty(most, np.int64), np.empty(most, np.int64)
    start, piece = np.empty(most, np.int64), np.empty(most, np.int64)
    n, rows, used = 0, 0, 0
    for d in range(lengths.size):
        first = 0
        while first < lengths[d]:
            here = min(lengths[d] - first, length - used)
            row[n], document[n], start[n], piece[n] = rows, d, first, here
            n, first, used = n + 1, first + here, used + here
            if used == length:
                rows, used = rows + 1, 0
    return row[:n].copy(), document[:n].copy(), start[:n].copy(), piece[:n].copy()


@kernel
def _by_row(row, rows):
    offsets = np.zeros(rows + 1, np.int64)
    for r in row:
        offsets[r + 1] += 1
    for r in range(rows):
        offsets[r + 1] += offsets[r]
    at = offsets[:rows].copy()
    order = np.empty(row.size, np.int64)
    for i in range(row.size):
        order[at[row[i]]] = i
        at[row[i]] += 1
    return offsets, order


@kernel
def _fill(documents, segments, control, out):
    ids, begin, count = documents
    rows, document, start, piece = segments
    bos, eos, pad = control
    before = 0 if bos < 0 else 1
    for r in range(out.shape[0]):
        at = 0
        for s in range(rows[r], rows[r + 1]):
            base = begin[document[s]]
            size = count[document[s]]
            first = start[s] - before  # of the ids without bos; -1 is bos, `size` is eos
            stop = first + piece[s]
            if first < 0:
                out[r, at] = bos
                at += 1
                first = 0
            here = min(stop, size) - first
            if here > 0:
                out[r, at : at + here] = ids[base + first : base + first + here]
                at += here
            if stop > size:
                out[r, at] = eos
                at += 1
        out[r, at:] = pad
