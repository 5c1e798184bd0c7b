"""Bytes and hashes many at a time, against one at a time."""

import unicodedata
from itertools import pairwise

import naive
import numpy as np
import pyarrow as pa
import pytest
import xxhash
from hypothesis import given, settings
from hypothesis import strategies as st

from datapipe import text
from datapipe.kernels import blocks
from datapipe.kernels.jit import kernel

ALPHABET = "aZ09 _\n<>=&éü中あ，가ก\u0301\u0338\u200dﬃ㎏İ😀"
LENGTHS = [1, 2, 3, 4, 5, 7, 8, 9, 11, 12, 13, 15, 16, 17, 31, 32, 33, 62, 63, 64, 65, 66, 80, 130]


@kernel
def flags_of(data):
    return blocks.flags(data, np.uint64(0))


def test_flags_are_those_of_every_byte() -> None:
    for first in range(0, 256, 64):
        data = np.arange(first, first + 64, dtype=np.uint8)
        words, beyond = map(int, flags_of(data))
        for i, byte in enumerate(data.tolist()):
            assert words >> i & 1 == (byte < 128 and chr(byte).isalnum())
            assert beyond >> i & 1 == (byte >= 128)


@settings(deadline=None)
@given(st.lists(st.binary(max_size=40), max_size=60))
def test_brief_units_are_hashed_and_others_left(found: list[bytes]) -> None:
    """What lies behind a unit in its words does not count."""
    sizes, rest = blocks.scratch()
    words = np.array([int.from_bytes(one.ljust(16, b"\xa5")[:8], "little") for one in found], np.uint64)
    rest[: len(found)] = [int.from_bytes(one.ljust(16, b"\xa5")[8:16], "little") for one in found]
    sizes[: len(found)] = [len(one) for one in found]
    before = words.tolist()
    blocks.hash_brief(words, sizes, rest, len(found))
    assert words.tolist() == [
        xxhash.xxh64_intdigest(one) if len(one) < blocks.BRIEF else word
        for one, word in zip(found, before, strict=True)
    ]
    assert (sizes == blocks.DONE).all()


needs_twin = pytest.mark.skipif(
    unicodedata.unidata_version != text.UNICODE, reason="this interpreter has another Unicode version"
)


def check(texts: list[str]) -> None:
    bounds, hashes, starts, ends = text.units(pa.array(texts, pa.large_string()))
    rows = list(zip(hashes.tolist(), starts.tolist(), ends.tolist(), strict=True))
    for value, (low, high) in zip(texts, pairwise(bounds.tolist()), strict=True):
        pairs = zip(naive.units(value), naive.spans(value), strict=True)
        assert rows[low:high] == [(naive.unit_hash(unit), *span) for unit, span in pairs]


@needs_twin
@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("behind", ["", " ", ".", "é", "中", "\u0301", "=\u0338", " b"])
def test_words_at_the_edges_of_blocks(length: int, behind: str) -> None:
    """Words of every length at every place of a block, with what ends them or goes on, and far from the end or not."""
    texts = [" " * place + "Ab1" * (length // 3) + "x" * (length % 3) + behind for place in (0, 1, 7, 55, 62, 63, 64)]
    check([*texts, "-" * 200])
    check(texts)


@needs_twin
@settings(deadline=None)
@given(st.lists(st.text(ALPHABET, max_size=400), max_size=5))
def test_units_of_mixed_scripts(texts: list[str]) -> None:
    check([*texts, "-" * 200])
