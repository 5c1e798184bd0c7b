"""Packing: golden cases by hand, slow twins of the kernels, and what must hold for any lengths."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from datapipe.kernels import packing
from datapipe.pack import METHODS, Packed, pack


def segments(packed: Packed) -> list[list[tuple[int, int, int]]]:
    """(document, start, size) of each segment, row by row."""
    rows = zip(packed.offsets, packed.offsets[1:], strict=False)
    columns = (packed.document.tolist(), packed.start.tolist(), packed.size.tolist())
    return [list(zip(*(column[a:b] for column in columns), strict=True)) for a, b in rows]


def fill(packed: Packed) -> tuple[int, int]:
    """Stored tokens and places for them."""
    return int(packed.size.sum()), packed.rows * packed.length


# What Figure 1 of Ding et al. (arXiv 2404.10830) packs: documents of 14, 7, 5, 2 and 3 tokens into rows of 8.  Without
# repeated context the paper cuts 14 into 8 + 6 and needs 4 rows, 31 of 32 places filled.  Ours repeats a token at the
# cut, so 14 becomes 8 + 7 (tokens 7 to 13): 8 | 7 | 7 | 5 + 3 | 2, five rows and 32 tokens, and no target is lost.  A
# document of 13 becomes the paper's 8 + 6, and packs as there.
GOLDEN = [
    pytest.param(
        [14, 7, 5, 2, 3],
        [[(0, 0, 8)], [(0, 7, 7)], [(1, 0, 7)], [(2, 0, 5), (4, 0, 3)], [(3, 0, 2)]],
        (32, 40),
        id="Figure 1 with a repeated token",
    ),
    pytest.param(
        [13, 7, 5, 2, 3],
        [[(0, 0, 8)], [(1, 0, 7)], [(0, 7, 6), (3, 0, 2)], [(2, 0, 5), (4, 0, 3)]],
        (31, 32),
        id="the pieces of Figure 1: 4 rows, 31 of 32",
    ),
    pytest.param([8, 8], [[(0, 0, 8)], [(1, 0, 8)]], (16, 16), id="documents of a row each are not cut"),
    pytest.param([9], [[(0, 0, 8)], [(0, 7, 2)]], (10, 16), id="one token too many: it needs the one before it"),
    pytest.param([15], [[(0, 0, 8)], [(0, 7, 8)]], (16, 16), id="two pieces that share a token, both full"),
    pytest.param([1, 1, 1], [[(0, 0, 1), (1, 0, 1), (2, 0, 1)]], (3, 8), id="documents of one token"),
    pytest.param([5, 6, 3, 2], [[(1, 0, 6), (3, 0, 2)], [(0, 0, 5), (2, 0, 3)]], (16, 16), id="the least space wins"),
    pytest.param([], [], (0, 0), id="no documents"),
]


@pytest.mark.parametrize("lengths, expected, filled", GOLDEN)
def test_best_fit_by_hand(lengths, expected, filled):
    packed = pack(np.array(lengths), 8, "best_fit")
    assert segments(packed) == expected
    assert fill(packed) == filled


def test_figure_1_cuts_one_document_where_concatenation_cuts_three():
    lengths = np.array([14, 7, 5, 2, 3])
    cut = {method: int((np.bincount(pack(lengths, 8, method).document) > 1).sum()) for method in METHODS}
    assert cut == {"best_fit": 1, "concat": 3}


def test_a_sequence_that_ends_at_a_document_border(shared):
    """B25: no empty segment, and ids by hand; 49 tokens are six rows and one token in the last, padded row."""
    case = shared / "cases" / "B25"
    expect = json.loads((case / "EXPECT.json").read_bytes())["expect"]
    vocab = json.loads((case / "toy_tokenizer.json").read_bytes())["model"]["vocab"]
    texts = [json.loads(line)["text"] for line in (case / "border.jsonl").read_text("utf-8").splitlines()]
    ids = [[vocab[word] for word in text.split()] for text in texts]
    packed = pack(np.array([len(one) + 1 for one in ids]), 8, "concat")
    rows = written(packed, ids, (-1, vocab["<eos>"], vocab["<pad>"]))
    sizes = [[size for _, _, size in row] for row in segments(packed)]
    assert sizes == [*expect["segments"], [expect["left_over"]]]
    assert rows[:-1].tolist() == expect["sequences_concat_and_chunk"]
    assert rows[-1].tolist() == expect["left_over_ids"] + [vocab["<pad>"]] * 7


def written(packed: Packed, ids: list[list[int]], control: tuple[int, int, int]) -> np.ndarray:
    """The rows that the kernel fills."""
    count = np.array([len(one) for one in ids], np.int64)
    values = np.array([number for one in ids for number in one], np.int32)
    out = np.full((packed.rows, packed.length), -7, np.int32)
    rows = (packed.offsets, packed.document, packed.start, packed.size)
    packing.fill((values, np.cumsum(count) - count, count), rows, control, out)
    return out


def naive_best_fit(lengths: list[int], length: int) -> list[list[tuple[int, int, int]]]:
    pieces = []
    for document, size in enumerate(lengths):
        start = 0
        while True:
            pieces.append((document, start, min(size - start, length)))
            if start + length >= size:
                break
            start += length - 1
    rows: list[list[tuple[int, int, int]]] = []
    changed: list[int] = []
    for step, piece in enumerate(sorted(pieces, key=lambda piece: -piece[2])):
        spaces = [(length - sum(size for *_, size in row), -changed[r], r) for r, row in enumerate(rows)]
        fitting = [one for one in spaces if one[0] >= piece[2]]
        if fitting:
            best = min(fitting)[2]
            rows[best].append(piece)
            changed[best] = step
        else:
            rows.append([piece])
            changed.append(step)
    return rows


def naive_concat(lengths: list[int], length: int) -> list[list[tuple[int, int, int]]]:
    tokens = [(document, at) for document, size in enumerate(lengths) for at in range(size)]
    rows = []
    for begin in range(0, len(tokens), length):
        row: list[tuple[int, int, int]] = []
        for document, at in tokens[begin : begin + length]:
            if row and row[-1][0] == document:
                row[-1] = (document, row[-1][1], row[-1][2] + 1)
            else:
                row.append((document, at, 1))
        rows.append(row)
    return rows


NAIVE = {"best_fit": naive_best_fit, "concat": naive_concat}
LENGTHS = st.lists(st.integers(1, 40), max_size=30)


@pytest.mark.parametrize("method", METHODS)
@given(lengths=LENGTHS, length=st.integers(2, 17))
@settings(deadline=None)
def test_kernels_pack_like_their_twins(method, lengths, length):
    assert segments(pack(np.array(lengths, np.int64), length, method)) == NAIVE[method](lengths, length)


@pytest.mark.parametrize("method", METHODS)
@given(lengths=LENGTHS, length=st.integers(2, 17))
@settings(deadline=None)
def test_nothing_is_lost_and_no_row_holds_a_document_twice(method, lengths, length):
    packed = pack(np.array(lengths, np.int64), length, method)
    rows = segments(packed)
    found = sorted((d, at) for row in rows for d, start, size in row for at in range(start, start + size))
    wanted = [(document, at) for document, size in enumerate(lengths) for at in range(size)]
    assert sorted(set(found)) == wanted
    assert len(found) - len(wanted) == packed.again.sum()
    assert all(len({document for document, *_ in row}) == len(row) for row in rows)
    assert all(size > 0 for row in rows for *_, size in row)
    assert packed.ends.sum() == len(lengths)
    totals = [sum(size for *_, size in row) for row in rows]
    assert all(total <= length for total in totals)
    if method == "concat":
        assert all(total == length for total in totals[:-1])
    else:
        assert (packed.size - 1).sum() == sum(size - 1 for size in lengths), "a cut document loses no target"
        two = sorted(totals)[:2]
        assert len(two) < 2 or sum(two) > length, "two rows that would fit into one"


@pytest.mark.parametrize("control", [(-1, -1, 0), (900, -1, 901), (-1, 902, 902), (900, 902, 0)])
@pytest.mark.parametrize("method", METHODS)
@given(sizes=st.lists(st.integers(1, 30), max_size=12), length=st.integers(2, 9), cut=st.integers(2, 40))
@settings(deadline=None, max_examples=30)
def test_rows_are_filled_with_the_right_tokens(method, control, sizes, length, cut):
    """Against slices of Python lists, with and without bos and eos, documents cut at a limit."""
    bos, eos, pad = control
    ids = [[1000 * document + at for at in range(size)] for document, size in enumerate(sizes)]
    whole = [[bos] * (bos >= 0) + one + [eos] * (eos >= 0) for one in ids]
    packed = pack(np.array([min(len(one), cut) for one in whole], np.int64), length, method)
    for row, filled in zip(segments(packed), written(packed, ids, control).tolist(), strict=True):
        expected = [number for document, start, size in row for number in whole[document][start : start + size]]
        assert filled == expected + [pad] * (length - len(expected))


def test_rows_in_another_order_keep_their_segments():
    packed = pack(np.array([13, 7, 5, 2, 3]), 8, "best_fit")
    order = np.array([3, 0, 2, 1])
    moved = packed.in_order(order)
    assert segments(moved) == [segments(packed)[row] for row in order]
    assert packed.in_order(np.arange(0)).rows == 0


@pytest.mark.parametrize("lengths, length", [([3, 0], 8), ([3], 1)])
def test_impossible_lengths_are_refused(lengths, length):
    with pytest.raises(ValueError, match="a row needs 2 tokens or more and a document 1"):
        pack(np.array(lengths), length, "concat")
