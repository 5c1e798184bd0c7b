"""
The walk of near dedup: documents in order of staying, each compared with those that stay and share a bucket with it.

`link` and `roots` find which documents can meet at all (link groups), `number` names the buckets of some documents,
`place` puts lists where they belong, and `walk` decides.  All take arrays and give arrays.
"""

import numpy as np

from datapipe.kernels.jit import kernel

CANDIDATES, COMPARED, CAPPED = 0, 1, 2  # places in `counts`
WINDOW = 16  # a mapped file comes into memory in windows of 2^16 bytes (Linux maps 16 pages around a fault)


@kernel
def _root(parent, x):
    while parent[x] != x:
        parent[x] = parent[parent[x]]  # halve the path
        x = parent[x]
    return x


@kernel
def link(band, bucket, doc, parent) -> None:
    """
    Join documents that follow each other in a bucket.

    band, bucket, doc: rows sorted by them;  parent int64[documents]: -1 where a document has no link yet
    """
    for i in range(1, len(doc)):
        if band[i] != band[i - 1] or bucket[i] != bucket[i - 1]:
            continue
        x, y = doc[i - 1], doc[i]
        if parent[x] < 0:
            parent[x] = x
        if parent[y] < 0:
            parent[y] = y
        x, y = _root(parent, x), _root(parent, y)
        parent[max(x, y)] = min(x, y)  # the smallest number names the group


@kernel
def roots(parent) -> None:
    """Let every linked document point at the smallest of its link group."""
    for x in range(len(parent)):
        if parent[x] >= 0:
            parent[x] = _root(parent, x)


@kernel
def number(keys, order, remember, base, buckets, first) -> int:
    """
    Number the buckets of one band that hold two documents or more, from `base` on; the next free number.

    keys uint64[n], order int64[n] sorts them;  buckets int32[n] out: a document's bucket, -1 where it is alone
    first int64[...] out: first[b + 1] - first[b] is how many a bucket b remembers, its size or at most `remember`
    """
    start, n = 0, len(order)
    while start < n:
        stop = start + 1
        while stop < n and keys[order[stop]] == keys[order[start]]:
            stop += 1
        alone = stop - start < 2
        for i in range(start, stop):
            buckets[order[i]] = -1 if alone else base
        if not alone:
            first[base + 1] = first[base] + min(stop - start, remember)
            base += 1
        start = stop
    return base


@kernel
def place(rows, offsets, values, begin, out) -> None:
    """Copy list i, values[offsets[i]:offsets[i + 1]], to out[begin[rows[i]]:...]."""
    for i in range(len(rows)):
        source, target = values[offsets[i] : offsets[i + 1]], out[begin[rows[i]] :]
        for k in range(len(source)):
            target[k] = source[k]


@kernel
def _agreement(a, b):
    same = 0
    for p in range(len(a)):
        same += a[p] == b[p]
    return same


@kernel
def intersection(a, b, least) -> int:
    """Values in both of two sorted sets; -1 as soon as it is clear that they are fewer than `least`."""
    i, j, same, n, m = 0, 0, 0, len(a), len(b)
    spare_a, spare_b = n - least, m - least
    while i < n and j < m:
        x, y = a[i], b[j]
        same += x == y
        i += x <= y
        j += y <= x
        if i - same > spare_a or j - same > spare_b:
            return -1
    return same if same >= least else -1


@kernel
def _best(found, agreement, k):
    """The candidate with the highest agreement; of equal ones the first in order of staying."""
    best = 0
    for i in range(1, k):
        if agreement[i] > agreement[best] or (agreement[i] == agreement[best] and found[i] < found[best]):
            best = i
    return best


@kernel
def _touch(start, stop, windows, pause):
    """Bytes that come into memory with bytes start:stop of a file, by the windows touched since the last pause."""
    fresh = 0
    for w in range(start >> WINDOW, (stop >> WINDOW) + 1):
        if windows[w] != pause:
            windows[w] = pause
            fresh += 1 << WINDOW
    return fresh


@kernel
def walk(
    start,
    allowance,
    pause,
    windows,
    buckets,
    first,
    signature,
    offsets,
    sets,
    filled,
    remembered,
    seen,
    part,
    whole,
    least,
    most,
    kept,
    shared,
    counts,
) -> int:
    """
    Walk documents start, start + 1, ... in order of staying; the document to go on with (n at the end).

    A document is compared with those its buckets remember, best signature agreement first.  At the first whose
    Jaccard similarity is part / whole or more it leaves; else it stays, and its buckets remember it if they have room.

    allowance: bytes of signatures and sets that may come into memory before the caller gets a say;  pause: the number
    of this call, from 1;  windows int32[2, ...] 0 at first: in which call a window of either was touched
    buckets int32[bands, n] -1: nobody else there;  signature uint32[n, num_perm]
    offsets int64[n + 1], sets uint64: the sorted distinct shingles
    first int64[buckets + 1], filled int32[buckets], remembered int32[first[-1]]: who is remembered in a bucket
    seen int32[n];  filled and seen are 0 at first
    least: the agreement from which a pair is worth a comparison;  most: comparisons of a document
    kept int64[n] out: the document that makes it leave, or -1;  shared int64[n] out: shingles in both
    counts int64[3]: += pairs that met, comparisons, documents that had more than `most` to compare with
    """
    bands, n = buckets.shape
    width = 4 * signature.shape[1]
    limit = 1
    for b in range(len(filled)):
        limit = max(limit, first[b + 1] - first[b])
    found, agreement = np.empty(limit * bands, np.int64), np.empty(limit * bands, np.int64)
    touched = 0
    for d in range(start, n):
        own = sets[offsets[d] : offsets[d + 1]]
        touched += _touch(width * d, width * d, windows[0], pause)
        touched += _touch(8 * offsets[d], 8 * offsets[d + 1], windows[1], pause)
        k = 0
        for band in range(bands):
            b = buckets[band, d]
            if b < 0:
                continue
            for at in range(first[b], first[b] + filled[b]):
                c = remembered[at]
                if seen[c] == d + 1:
                    continue
                seen[c] = d + 1
                counts[CANDIDATES] += 1
                size = offsets[c + 1] - offsets[c]
                if _needed(len(own), size, part, whole) > min(len(own), size):
                    continue  # lengths alone say no
                touched += _touch(width * c, width * c, windows[0], pause)
                same = _agreement(signature[d], signature[c])
                if same >= least:
                    found[k], agreement[k] = c, same
                    k += 1
        kept[d], compared = -1, 0
        while k > 0:
            if compared == most:
                counts[CAPPED] += 1
                break
            best = _best(found, agreement, k)
            c = found[best]
            k -= 1
            found[best], agreement[best] = found[k], agreement[k]
            touched += _touch(8 * offsets[c], 8 * offsets[c + 1], windows[1], pause)
            other = sets[offsets[c] : offsets[c + 1]]
            compared += 1
            common = intersection(own, other, _needed(len(own), len(other), part, whole))
            if common >= 0:
                kept[d], shared[d] = c, common
                break
        counts[COMPARED] += compared
        if kept[d] < 0:
            for band in range(bands):
                b = buckets[band, d]
                if b >= 0 and first[b] + filled[b] < first[b + 1]:
                    remembered[first[b] + filled[b]] = d
                    filled[b] += 1
        if touched >= allowance:
            return d + 1
    return n


@kernel
def _needed(a, b, part, whole):
    """The fewest shared shingles s of sets of a and b shingles for s / (a + b - s) >= part / whole."""
    return (part * (a + b) + part + whole - 1) // (part + whole)
