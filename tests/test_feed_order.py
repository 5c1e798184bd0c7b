"""Order: bijections for every size, the same for ever, in memory that no size changes."""

import tracemalloc
from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from datapipe.feed.order import KINDS, WINDOW, Blocks, Order, Permutation

ID = "0123456789abcdef" * 4
GOLDEN = {  # rows 0 to 9 and 1,000 to 1,002 of 5,000 in four shards, epoch 1
    "sequential": [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 1000, 1001, 1002],
    "feistel-v1": [325, 1659, 2192, 3253, 507, 4799, 795, 4939, 1246, 4516, 4146, 811, 4547],
    "block-v1": [125, 3690, 2522, 114, 1874, 4683, 1919, 2528, 1158, 3924, 3946, 1506, 893],
}
SHARDS = [1500, 37, 2000, 1463]


def order(kind, shards, *, seed=7, dataset=ID, split="train"):
    return Order(kind, seed, dataset, split, Blocks.of(shards))


def test_every_small_size_is_a_bijection():
    for n in range(1, 700):
        there = Permutation(n, 1000 + n)
        found = there(np.arange(n))
        assert np.array_equal(np.sort(found), np.arange(n)), n
        assert np.array_equal(there.inverse(found), np.arange(n)), n


@given(n=st.integers(1, 1 << 62), key=st.integers(0, (1 << 64) - 1), data=st.data())
@settings(max_examples=150, deadline=None)
def test_any_size_goes_there_and_back(n, key, data):
    there = Permutation(n, key)
    places = np.array(data.draw(st.lists(st.integers(0, n - 1), min_size=1, max_size=20, unique=True)))
    found = there(places)
    assert found.min() >= 0
    assert found.max() < n
    assert len(set(found.tolist())) == len(places)
    assert np.array_equal(there.inverse(found), places)


@pytest.mark.parametrize("n, whole", [(3, 6), (4, 24)])
def test_small_permutations_are_all_as_likely(n, whole):
    """Of 100 x n! keys each permutation gets its share: chi-square far below what a lopsided one gives."""
    rng = np.random.default_rng(3)
    keys = rng.integers(0, 1 << 63, 100 * whole).tolist()
    seen = Counter(tuple(Permutation(n, key)(np.arange(n)).tolist()) for key in keys)
    assert len(seen) == whole
    chi = sum((count - 100) ** 2 / 100 for count in seen.values())
    assert chi < whole + 8 * (2 * whole) ** 0.5


@pytest.mark.parametrize("kind", KINDS)
def test_t10_golden_permutations(kind):
    """Written down once: an order that changes is a new kind, not this one."""
    rows = order(kind, SHARDS)
    assert [*rows.rows(1, 0, 10), *rows.rows(1, 1000, 1003)] == GOLDEN[kind]


def test_t10_golden_permutation_of_a_thousand_million():
    assert Permutation(10**9, 42)(np.array([0, 1, 10**9 - 1])).tolist() == [354605992, 83561338, 336572713]
    rows = order("block-v1", [15_625] * 64_000)
    assert rows.rows(3, 640_000_000, 640_000_003).tolist() == [187481203, 753742200, 759673313]


shards = st.lists(st.one_of(st.integers(1, 200), st.integers(900, 2500)), min_size=1, max_size=6)


@given(shards=shards, kind=st.sampled_from(KINDS), epoch=st.integers(0, 3), data=st.data())
@settings(max_examples=150, deadline=None)
def test_an_epoch_has_every_row_once_however_it_is_cut(shards, kind, epoch, data):
    n = sum(shards)
    whole = order(kind, shards).rows(epoch, 0, n)
    assert np.array_equal(np.sort(whole), np.arange(n))
    cuts = [0, *sorted(data.draw(st.lists(st.integers(0, n), max_size=5))), n]
    again = order(kind, shards)
    parts = [again.rows(epoch, a, b) for a, b in pairwise(cuts)]
    assert np.array_equal(np.concatenate(parts), whole)


@given(shards=shards, epoch=st.integers(0, 2))
@settings(max_examples=100, deadline=None)
def test_a_window_holds_whole_blocks(shards, epoch):
    """16 blocks a window: full row groups of one shard, or a stretch of 64 of the loose rows."""
    blocks = Blocks.of(shards)
    rows = order("block-v1", shards).rows(epoch, 0, blocks.rows)
    ends = np.cumsum([0, *shards])
    loose = [r for s, n in enumerate(shards) for r in range(ends[s] + n // 64 * 64, ends[s + 1])]
    block_of = {row: blocks.number - -(-len(loose) // 64) + place // 64 for place, row in enumerate(loose)}
    full = [r for s, n in enumerate(shards) for r in range(ends[s], ends[s] + n // 64 * 64)]
    block_of |= {row: place // 64 for place, row in enumerate(full)}
    sizes = Counter(block_of.values())
    assert all(size == 64 for block, size in sizes.items() if block != blocks.number - 1)
    seen = list(dict.fromkeys(block_of[row] for row in rows.tolist()))
    at = 0
    while at < len(rows):
        window = {block_of[row] for row in rows[at : at + WINDOW * 64 - blocks.short].tolist()}
        size = sum(sizes[block] for block in window)
        assert len(window) <= WINDOW
        assert {block_of[row] for row in rows[at : at + size].tolist()} == window
        at += size
    assert len(seen) == blocks.number


@pytest.mark.parametrize("kind", KINDS[:2])
def test_what_an_order_depends_on(kind):
    first = order(kind, SHARDS).rows(0, 0, 5000)
    others = [
        order(kind, SHARDS).rows(1, 0, 5000),
        order(kind, SHARDS, seed=8).rows(0, 0, 5000),
        order(kind, SHARDS, dataset="f" * 64).rows(0, 0, 5000),
        order(kind, SHARDS, split="validation").rows(0, 0, 5000),
    ]
    for other in others:
        assert (first != other).mean() > 0.99
    assert np.array_equal(first, order(kind, SHARDS).rows(0, 0, 5000))


def test_rows_are_spread():
    """feistel-v1: neighbours in the order are as far apart as chance has it, 1/3 of the rows on average."""
    rows = order("feistel-v1", [100_000]).rows(0, 0, 100_000)
    assert abs(np.abs(np.diff(rows)).mean() / 100_000 - 1 / 3) < 0.01
    places = order("block-v1", [100_000]).rows(0, 0, 1024) // 64
    assert np.unique(places).size == WINDOW
    assert np.abs(np.diff(np.unique(places))).mean() > 20


@pytest.mark.parametrize("kind", KINDS)
def test_memory_does_not_grow_with_the_rows(kind):
    rows = order(kind, [10**9])
    rows.rows(0, 0, 64)  # what is made once
    tracemalloc.start()
    for at in range(0, 10**9 - 64, 10**8):
        rows.rows(2, at, at + 64)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 300_000


@pytest.mark.parametrize("first, stop", [(-1, 3), (0, 5001), (4, 3)])
def test_positions_outside(first, stop):
    with pytest.raises(IndexError, match="of 5000"):
        order("block-v1", SHARDS).rows(0, first, stop)
