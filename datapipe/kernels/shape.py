"""
The shape of a block of JSON lines, seen before a parser runs: is every line one object, and how deep does it nest.
"""

from typing import NamedTuple

import numpy as np

from datapipe.kernels.jit import given, kernel

STEP = 64  # bytes looked at together while no line ends; the compiler makes vector code of it
SHALLOW = 128  # a line with no more opening brackets than this is not looked at closer


class Shape(NamedTuple):
    r"""
    starts, numbers, sizes (int64): of each line with a byte other than blank, TAB and CR where it starts, its number
    from 0, its bytes without the newline.  objects: lines of these whose first such byte is `{` and whose last is `}`.
    newlines: bytes that are one.  spelled: whether some \u is there, which may stand for a character.  deepest: a
    bound on the nesting of [ and { in any line: its opening brackets where there are at most 128, else the exact depth
    outside of strings.  (Text is full of brackets, so counting them all would say nothing, and taking closing ones off
    without regard to strings would let `["]",["]",[...` through at any depth.)
    """

    starts: np.ndarray
    numbers: np.ndarray
    sizes: np.ndarray
    objects: int
    newlines: int
    spelled: bool
    deepest: int


def shape(block: bytes) -> Shape:
    """Of whole lines; the last newline may be missing."""
    count = newlines(block)
    rows = np.empty((3, count + 1), np.int64)
    lines, objects, spelled, deepest = _shape(given(np.frombuffer(block, np.uint8)), *rows)
    starts, numbers, sizes = rows[:, :lines]
    return Shape(starts, numbers, sizes, int(objects), count, bool(spelled), int(deepest))


def newlines(data: bytes) -> int:
    """bytes.count takes ten times as long."""
    return int(_newlines(given(np.frombuffer(data, np.uint8))))


@kernel
def _newlines(block):
    step, size = np.uint64(STEP), np.uint64(block.size)
    whole, found = size // step * step, 0
    for start in range(np.uint64(0), whole, step):
        some = np.uint8(0)
        for i in range(start, start + step):
            some += np.uint8(block[i] == 10)
        found += np.int64(some)
    for i in range(whole, size):
        found += np.int64(block[i] == 10)
    return found


@kernel
def _shape(block, starts, numbers, sizes):
    size, start = np.uint64(block.size), np.uint64(0)
    lines, objects, number, deepest, escaped = 0, 0, 0, 0, False
    while start < size:
        end, opened, spelled = _line_end(block, start, size)
        some, whole = _judge(block, start, end)
        starts[lines], numbers[lines], sizes[lines] = start, number, end - start
        lines += some
        objects += whole
        if opened > SHALLOW:
            opened = _depth(block, start, end)
        deepest = max(deepest, opened)
        escaped |= spelled
        number += 1
        start = end + np.uint64(1)
    return lines, objects, escaped, deepest


@kernel
def _line_end(block, start, size):
    """Where the line ends (its newline, or `size`), how many [ and { it holds, and whether a \\u."""
    step, one = np.uint64(STEP), np.uint64(1)
    opened, spelled = 0, np.uint8(0)
    while start + step < size:
        breaks, more, escaped = np.uint8(0), np.uint8(0), np.uint8(0)
        for i in range(start, start + step):
            breaks |= np.uint8(block[i] == 10)
            more += np.uint8((block[i] | 32) == 123)
            escaped |= np.uint8(block[i] == 92) & np.uint8(block[i + one] == 117)
        if breaks:
            break
        opened += np.int64(more)
        spelled |= escaped
        start += step
    while start < size and block[start] != 10:
        opened += np.int64((block[start] | 32) == 123)
        if start + one < size:
            spelled |= np.uint8(block[start] == 92) & np.uint8(block[start + one] == 117)
        start += one
    return start, opened, spelled != 0


@kernel
def _blank(byte):
    return byte == 32 or byte == 9 or byte == 13


@kernel
def _judge(block, start, end):
    """Whether a line holds anything, and whether what it holds begins with { and ends with }."""
    one = np.uint64(1)
    while start < end and _blank(block[start]):
        start += one
    while start < end and _blank(block[end - one]):
        end -= one
    if start == end:
        return 0, 0
    return 1, np.int64(block[start] == 123 and block[end - one] == 125)


@kernel
def _depth(block, start, end):
    """The deepest nesting in a line, brackets in strings left out."""
    depth, deepest, inside, escaped = 0, 0, False, False
    for i in range(start, end):
        byte = block[i]
        if inside:
            if escaped:
                escaped = False
            elif byte == 92:
                escaped = True
            elif byte == 34:
                inside = False
        elif byte == 34:
            inside = True
        elif (byte | 32) == 123:
            depth += 1
            deepest = max(deepest, depth)
        elif (byte | 32) == 125:
            depth -= 1
    return deepest
