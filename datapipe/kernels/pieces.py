"""
Texts cut into chunks at borders that a rule calls safe, and each distinct chunk looked up in a table.

What a border is, and why ids may be put together from chunks, is said in datapipe/pieces.py.
"""

import numpy as np

from datapipe.kernels.jit import given, kernel

# classes of characters: of ASCII by byte; SOLID is a character beyond ASCII that is certainly no white space
NONE, LETTER, DIGIT, UNDERSCORE, APOSTROPHE, MARK, BLANK, BREAK, SOLID = range(9)
CLASSES = 9
LONGEST = 64  # bytes; a longer chunk is not kept in the table: it hardly ever comes again

Ids = tuple[np.ndarray, np.ndarray]
Table = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]


def ascii_classes() -> np.ndarray:
    """uint8[256]: the class of each ASCII byte; NONE of control characters and of bytes beyond ASCII."""
    classes = np.zeros(256, np.uint8)
    for byte in range(0x21, 0x7F):
        char = chr(byte)
        classes[byte] = LETTER if char.isalpha() else DIGIT if char.isdigit() else MARK
    for chars, kind in (("_", UNDERSCORE), ("'", APOSTROPHE), (" \t", BLANK), ("\n\r", BREAK)):
        for char in chars:
            classes[ord(char)] = kind
    return classes


def chunks(data: np.ndarray, offsets: np.ndarray, border: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """
    data, offsets: uint8 and int64[n + 1], valid UTF-8; border: uint8[CLASSES, CLASSES], class before, class after.

    (starts int64[m + 1], first int64[n + 1]): chunk c is data[starts[c] : starts[c + 1]], text t has the chunks from
    first[t] to first[t + 1].  A border lies between two characters of which the second is ASCII.
    """
    return _chunks(given(data), given(offsets), given(ascii_classes()), given(border))


def lines(data: np.ndarray, starts: np.ndarray, border: np.ndarray, most: int) -> np.ndarray:
    """
    starts: int64[m + 1], chunks of `data`, which may come from anywhere.  int64[k + 1] chunk numbers: the chunks of a
    line have borders between them, and all but its last are at most `most` bytes together.
    """
    return _lines(given(data), given(starts), given(ascii_classes()), given(border), most)


def look_up(
    data: np.ndarray, starts: np.ndarray, table: Table, used: int, room: np.ndarray
) -> tuple[np.ndarray, int, int]:
    """
    starts: int64[m + 1], chunks of `data`; table: slots int32[power of 2], hashes uint64, begin int64[+ 1] and bytes.

    (which int32[m], entries, direct): the entry of each chunk; those that were not there are added (entries are used
    now).  Chunks longer than LONGEST get -1, -2, ... (`direct` of them), and room[k - 1] is the number of chunk -k.
    """
    return _look_up(given(data), given(starts), table, used, room)


def expand(which: np.ndarray, kept: Ids, direct: Ids, out: np.ndarray, ends: np.ndarray) -> None:
    """
    which: int32[m]; kept, direct: (ids int32, begin int64[+ 1]) of entries and of direct chunks.

    Writes the ids of all chunks to `out` (int32) and to ends[c] how many there are up to chunk c, it included.
    """
    ids, begin = kept
    direct_ids, direct_begin = direct
    _expand(given(which), (given(ids), given(begin)), (given(direct_ids), given(direct_begin)), out, ends)


@kernel
def _solid(data, stop):
    """The class of the character beyond ASCII that ends before `stop`."""
    at = stop - 1
    while data[at] & 0xC0 == 0x80:
        at -= 1
    lead = data[at]
    # Unicode's white space beyond ASCII lies behind these; whoever else does is left alone with it
    if lead in (0xC2, 0xE1, 0xE2) or (lead == 0xE3 and data[at + 1] == 0x80 and data[at + 2] == 0x80):
        return np.int64(NONE)
    return np.int64(SOLID)


@kernel
def _chunks(data, offsets, classes, border):
    count = 0
    starts = np.empty(1024, np.int64)
    first = np.empty(offsets.size, np.int64)
    for t in range(offsets.size - 1):
        first[t] = count
        begin, stop = offsets[t], offsets[t + 1]
        for i in range(begin, stop):
            if i == begin or _border(data, i, classes, border):
                if count == starts.size:
                    more = np.empty(2 * count, np.int64)
                    more[:count] = starts
                    starts = more
                starts[count] = i
                count += 1
    first[offsets.size - 1] = count
    found = np.empty(count + 1, np.int64)
    found[:count] = starts[:count]
    found[count] = offsets[offsets.size - 1]
    return found, first


@kernel
def _border(data, at, classes, border):
    """Whether a border lies before data[at]; there is a byte before it."""
    if data[at] >= 128:
        return False
    before = np.int64(classes[data[at - 1]]) if data[at - 1] < 128 else _solid(data, at)
    return border[before, classes[data[at]]] != 0


@kernel
def _lines(data, starts, classes, border, most):
    found = np.empty(starts.size, np.int64)
    count, begin = 0, 0
    for c in range(starts.size - 1):
        if c == 0 or starts[c] - begin >= most or not _border(data, starts[c], classes, border):
            found[count] = c
            count += 1
            begin = starts[c]
    found[count] = starts.size - 1
    return found[: count + 1].copy()


@kernel
def _hash(data, start, stop):
    """FNV-1a, with its bits mixed once more; equal hashes are compared byte by byte."""
    value = np.uint64(0xCBF29CE484222325)
    for i in range(start, stop):
        value = (value ^ np.uint64(data[i])) * np.uint64(0x100000001B3)
    return value ^ (value >> np.uint64(29))


@kernel
def _equal(data, start, stored, begin, size):
    i = 0
    while i < size and data[start + i] == stored[begin + i]:
        i += 1
    return i == size


@kernel
def _look_up(data, starts, table, used, room):
    slots, hashes, begin, stored = table
    which = np.empty(starts.size - 1, np.int32)
    mask = np.uint64(slots.size - 1)
    direct = 0
    for c in range(starts.size - 1):
        start, size = starts[c], starts[c + 1] - starts[c]
        if size > LONGEST:
            room[direct] = c
            direct += 1
            which[c] = -direct
            continue
        value = _hash(data, start, start + size)
        slot = value & mask
        while True:
            entry = np.int64(slots[slot]) - 1
            if entry < 0:
                slots[slot] = used + 1
                hashes[used] = value
                for i in range(size):
                    stored[begin[used] + i] = data[start + i]
                begin[used + 1] = begin[used] + size
                entry = used
                used += 1
                break
            same = hashes[entry] == value and begin[entry + 1] - begin[entry] == size
            if same and _equal(data, start, stored, begin[entry], size):
                break
            slot = (slot + np.uint64(1)) & mask
        which[c] = entry
    return which, used, direct


@kernel
def _expand(which, kept, direct, out, ends):
    ids, begin = kept
    direct_ids, direct_begin = direct
    at = 0
    for c in range(which.size):
        w = which[c]
        if w >= 0:
            for i in range(begin[w], begin[w + 1]):
                out[at] = ids[i]
                at += 1
        else:
            for i in range(direct_begin[-w - 1], direct_begin[-w]):
                out[at] = direct_ids[i]
                at += 1
        ends[c] = at
