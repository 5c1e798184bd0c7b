"""
The shape of a block of JSON lines, seen before a parser runs: is every line one object, and how deep does it nest.
"""

import numpy as np

from datapipe.kernels.jit import given, kernel

STEP = 64  # bytes looked at together while no line ends; the compiler makes vector code of it
SHALLOW = 128  # a line with no more opening brackets than this is not looked at closer


def shape(block: np.ndarray) -> tuple[int, int, int, int]:
    """
    block: uint8, whole lines; the last newline may be missing.  Gives four counts:

    * lines with a byte other than blank, TAB and CR
    * of these, lines whose first such byte is `{` and whose last is `}`
    * newline bytes
    * a bound on the nesting of [ and { in any line: its opening brackets where there are at most 128, else the
      exact depth outside of strings.  (Text is full of brackets, so counting them all would say nothing, and taking
      closing ones off without regard to strings would let `["]",["]",[...` through at any depth.)
    """
    lines, objects, newlines, deepest = _shape(given(block))
    return int(lines), int(objects), int(newlines), int(deepest)


@kernel
def _shape(block):
    size = np.uint64(block.size)
    lines, objects, newlines, deepest = 0, 0, 0, 0
    start = np.uint64(0)
    while start < size:
        end, opened = _line_end(block, start, size)
        newlines += np.int64(end < size)
        one, whole = _judge(block, start, end)
        lines += one
        objects += whole
        if opened > SHALLOW:
            opened = _depth(block, start, end)
        deepest = max(deepest, opened)
        start = end + np.uint64(1)
    return lines, objects, newlines, deepest


@kernel
def _line_end(block, start, size):
    """Where the line ends (its newline, or `size`), and how many [ and { it holds."""
    step = np.uint64(STEP)
    opened = 0
    while start + step <= size:
        breaks, more = np.uint8(0), np.uint8(0)
        for i in range(start, start + step):
            breaks |= np.uint8(block[i] == 10)
            more += np.uint8((block[i] | 32) == 123)
        if breaks:
            break
        opened += np.int64(more)
        start += step
    while start < size and block[start] != 10:
        opened += np.int64((block[start] | 32) == 123)
        start += np.uint64(1)
    return start, opened


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
