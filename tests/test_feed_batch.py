"""Batch: labels, positions and segments equal a slow twin that walks over every token."""

import pickle

import naive
import numpy as np
import pytest
import torch
from feeding import Stub
from hypothesis import given, settings
from hypothesis import strategies as st

from datapipe.errors import ManifestError
from datapipe.feed import Batch, Loader, Rows

LENGTH = 8


@st.composite
def packed(draw):
    """Rows of up to four segments, with or without masks, some of padding alone."""
    sizes = []
    for _ in range(draw(st.integers(1, 5))):
        row, room = [], LENGTH
        for _ in range(draw(st.integers(0, 4))):
            if room:
                row.append(draw(st.integers(1, room)))
                room -= row[-1]
        sizes.append(row)
    mask = draw(st.one_of(st.none(), st.integers(0, 2 ** (LENGTH * len(sizes)) - 1)))
    return sizes, mask


def rows_of(sizes, mask=None):
    number, flat = len(sizes), [size for row in sizes for size in row]
    bits = None if mask is None else np.array([mask >> i & 1 for i in range(number * LENGTH)], bool).reshape(number, -1)
    ids = np.arange(number * LENGTH, dtype=np.int32).reshape(number, LENGTH) + 100
    ids.flags.writeable = False
    twin = [naive.row(ids[r].tolist(), row, row, None if bits is None else bits[r].tolist())["loss_mask"]
            for r, row in enumerate(sizes)]  # fmt: skip
    return Rows(np.arange(number), ids, np.cumsum([0, *(len(row) for row in sizes)]), np.array(flat, np.int32),
                np.arange(len(flat)), np.zeros(len(flat), np.int32), np.full(len(flat), 3, np.uint8),
                (np.arange(len(flat)) % 3).astype(np.int16), bits, np.array([sum(row) for row in sizes], np.int32),
                np.array([sum(each) for each in twin], np.int32))  # fmt: skip


def test_what_two_rows_mean():
    """By hand: segments of 3 and 2 with a token of padding, and one of 6 whose third token may not be predicted."""
    ids = np.array([[11, 12, 13, 21, 22, 0], [31, 32, 33, 34, 35, 36]], np.int32)
    mask = np.array([[True] * 6, [True, True, False, True, True, True]])
    wanted = {
        "labels": [[12, 13, -100, 22, -100, -100], [32, -100, 34, 35, 36, -100]],
        "loss_mask": [[True, True, False, True, False, False], [True, False, True, True, True, False]],
        "position_ids": [[0, 1, 2, 0, 1, 0], [0, 1, 2, 3, 4, 5]],
        "segment_ids": [[1, 1, 1, 2, 2, 0], [1] * 6],
        "sources": [[4, 4, 4, 7, 7, -1], [7] * 6],
    }
    batch = Batch(Rows(np.arange(2), ids, np.array([0, 2, 3]), np.array([3, 2, 6], np.int32), np.arange(3),
                       np.zeros(3, np.int32), np.full(3, 3, np.uint8), np.array([4, 7, 7], np.int16), mask,
                       np.array([5, 6], np.int32), np.array([3, 4], np.int32)))  # fmt: skip
    twins = [naive.row(ids[0].tolist(), [3, 2], [4, 7]), naive.row(ids[1].tolist(), [6], [7], mask[1].tolist())]
    for name, values in wanted.items():
        assert getattr(batch, name).tolist() == values, name
        assert [twin[name] for twin in twins] == values, f"{name} of the twin"
    assert batch.cu_seqlens.tolist() == [0, 3, 5, 6, 12]
    assert [twin["ends"] for twin in twins] == [[0, 3, 5, 6], [0, 6]]


@given(packed())
@settings(max_examples=200, deadline=None)
def test_all_columns_equal_a_slow_twin(case):
    sizes, mask = case
    batch = Batch(rows_of(sizes, mask))
    cuts, segment = [0], 0
    for r, row in enumerate(sizes):
        sources = [(segment + k) % 3 for k in range(len(row))]
        segment += len(row)
        allowed = None if batch.rows.mask is None else batch.rows.mask[r].tolist()
        told = naive.row(batch.input_ids[r].tolist(), row, sources, allowed)
        for name in ("labels", "loss_mask", "position_ids", "segment_ids", "sources"):
            assert getattr(batch, name)[r].tolist() == told[name], name
        cuts += [r * LENGTH + end for end in told["ends"][1:]]
    assert batch.cu_seqlens.tolist() == cuts
    assert batch.max_seqlen == max(np.diff(cuts))
    assert batch.n_targets.sum() == batch.loss_mask.sum()
    for name in ("labels", "position_ids", "segment_ids", "cu_seqlens"):
        assert getattr(batch, name).dtype == np.int32, name


@given(packed(), st.data())
@settings(max_examples=60, deadline=None)
def test_rows_are_taken_and_joined(case, data):
    rows = rows_of(*case)
    index = np.array(data.draw(st.lists(st.integers(0, len(rows) - 1), min_size=1, max_size=6)))
    taken = rows.take(index)
    singles = Rows.concat([rows.take(np.array([i])) for i in index])
    for name in vars(taken):
        ours, theirs = getattr(taken, name), getattr(singles, name)
        assert (ours is None) == (theirs is None), name
        assert ours is None or np.array_equal(ours, theirs), name
    empty = Rows.empty(2, LENGTH, pad=7)
    both = Rows.concat([empty, taken])
    assert both.row_ids.tolist() == [-1, -1, *index.tolist()]
    assert (both.input_ids[:2] == 7).all()
    assert both.take(np.arange(2, len(both))).seg_len.tolist() == taken.seg_len.tolist()
    assert not Batch(both).n_targets[:2].any()


def test_what_is_derived_is_made_once_and_lazily():
    batch = Batch(rows_of([[3, 5], [4]]))
    assert set(vars(batch)) == {"rows", "step", "progress"}
    assert batch.labels is batch.labels
    assert "position_ids" not in vars(batch)
    assert batch.state is None


def test_tensors_share_memory_where_the_type_allows():
    batch = Batch(rows_of([[3, 5], [4]]))
    tensors = batch.torch()
    assert {name: str(tensor.dtype).removeprefix("torch.") for name, tensor in tensors.items()} == {
        "input_ids": "int64", "labels": "int64", "loss_mask": "bool", "position_ids": "int64", "segment_ids": "int32",
        "cu_seqlens": "int32", "sources": "int16", "row_ids": "int64", "n_targets": "int32"}  # fmt: skip
    for name, tensor in tensors.items():
        assert np.array_equal(tensor.numpy(), getattr(batch, name)), name
    assert tensors["segment_ids"].data_ptr() == batch.segment_ids.ctypes.data
    assert tensors["loss_mask"].data_ptr() == batch.loss_mask.ctypes.data
    assert tensors.max_seqlen == batch.max_seqlen
    assert {tensor.device.type for tensor in batch.torch("meta").values()} == {"meta"}


def test_hugging_face_shifts_by_itself():
    """Its loss compares logits[i - 1] with labels[i]: the same pairs as logits[i] with our labels[i]."""
    batch = Batch(rows_of([[3, 5], [4], []], mask=0b10110111_01101110_11110101))
    found = batch.hf()
    assert set(found) == {"input_ids", "labels", "position_ids"}
    shifted = torch.nn.functional.pad(found["labels"], (0, 1), value=-100)[:, 1:]
    assert torch.equal(shifted, torch.from_numpy(batch.labels.astype(np.int64)))
    learnt = found["labels"] != -100
    assert torch.equal(found["labels"][learnt], found["input_ids"][learnt])


def test_micro_batches():
    one = Loader(Stub(40, masked=True), global_batch_rows=7)
    batch = next(iter(one))
    parts = batch.split(3)
    assert [len(part) for part in parts] == [3, 3, 1]
    for name in ("row_ids", "labels", "position_ids", "n_targets", "sources"):
        assert np.array_equal(np.concatenate([getattr(part, name) for part in parts]), getattr(batch, name))
    assert all(part.state == batch.state and part.step == batch.step for part in parts)


@pytest.mark.parametrize("output", ["numpy", "torch", "hf"])
def test_a_batch_pickles_with_its_state(output):
    batch = next(iter(Loader(Stub(40), global_batch_rows=7, output=output)))
    again = pickle.loads(pickle.dumps(batch))
    assert (again.step, again.state, again.max_seqlen) == (batch.step, batch.state, batch.max_seqlen)
    ids = (batch.input_ids, again.input_ids) if output == "numpy" else (batch["input_ids"], again["input_ids"])
    assert np.array_equal(*ids)


@pytest.mark.parametrize("prefetch", [0, 2])
def test_an_output_of_names_is_those_tensors_of_the_whole_one(prefetch):
    options = {"global_batch_rows": 4, "prefetch": prefetch}
    whole, pair = (list(Loader(Stub(40, masked=True), **options, output=output))
                   for output in ("torch", ["labels", "position_ids"]))  # fmt: skip
    for one, other in zip(whole, pair, strict=True):
        assert list(other) == ["labels", "position_ids"]
        assert all(torch.equal(one[name], other[name]) and other[name].dtype == torch.int64 for name in other)
        assert (one.step, one.state) == (other.step, other.state)
    with pytest.raises(ManifestError, match="output: 'ids' is none of input_ids, labels"):
        Loader(Stub(40), **options, output=["ids"])
