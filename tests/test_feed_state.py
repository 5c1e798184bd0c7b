"""State: a run that was cut anywhere, any number of times, goes on with exactly the next batch, or says why not."""

import copy
import json
import tracemalloc
from itertools import islice

import numpy as np
import pytest
import xxhash
from feeding import Stub, row_ids
from synthetic import build

import datapipe
from datapipe.build_manifest import consumers
from datapipe.errors import DriftError
from datapipe.feed import Loader, consumed
from datapipe.feed.state import VERSION

EPOCHS = 3


def loader(split=None, **options):
    return Loader(split or Stub(41, masked=True), **{"global_batch_rows": 6, "seed": 2, "tail": "pad"} | options)


@pytest.fixture(scope="module")
def whole():
    """The batches of three epochs that nobody stopped."""
    one = loader()
    return list(islice(one.forever(), EPOCHS * len(one)))


def stopped(state, take, **options):
    """A new loader, gone on from a state through JSON: (the batches it gives, its state then)."""
    one = loader(**options)
    if state is not None:
        one.load_state_dict(json.loads(json.dumps(state)))
    batches = list(islice(one.forever(), take))
    state = one.state_dict()
    one.close()
    return batches, state


def same(batches, expected):
    assert len(batches) == len(expected)
    for one, other in zip(batches, expected, strict=True):
        assert one.step == other.step
        assert one.state == other.state
        for name in (
            "row_ids",
            "input_ids",
            "labels",
            "loss_mask",
            "position_ids",
            "segment_ids",
            "cu_seqlens",
            "sources",
        ):
            assert getattr(one, name).tobytes() == getattr(other, name).tobytes(), name


def test_t1_every_cut_of_three_epochs(whole):
    for cut in range(len(whole) + 1):
        head, state = stopped(None, cut)
        tail, _ = stopped(state, len(whole) - cut)
        same(head + tail, whole)


@pytest.mark.slow
def test_t2_every_pair_of_cuts(whole):
    """A resume of a resume, also with nothing taken between."""
    for first in range(len(whole) + 1):
        _, state = stopped(None, first, prefetch=0)
        for second in range(first, len(whole) + 1):
            _, again = stopped(state, second - first, prefetch=0)
            tail, _ = stopped(again, 2, prefetch=0)
            same(tail[: len(whole) - second], whole[second : second + 2])


@pytest.mark.parametrize("epoch", range(1, EPOCHS))
@pytest.mark.parametrize("off", [-1, 0, 1])
def test_t3_cut_about_the_end_of_an_epoch(whole, epoch, off):
    """The epoch counts on, and what a loop over epochs gives is what it would have been."""
    batches = len(loader())
    cut = epoch * batches + off
    _, state = stopped(None, cut)
    assert (state["epoch"], state["batch"]) == divmod(cut, batches)
    one = loader()
    one.load_state_dict(state)
    rest = []
    for number in range(one.epoch, EPOCHS):
        assert one.epoch == number
        rest += list(one)
    same(rest, whole[cut:])
    assert one.position == (EPOCHS, 0)


def test_a_loop_that_breaks_goes_on_where_it_broke(whole):
    one, seen = loader(), []
    while len(seen) < len(whole):
        for batch in one:
            seen.append(batch)
            if len(seen) % 4 == 0:
                break
    same(seen, whole)


def test_what_a_state_says(whole):
    state = whole[3].state
    assert state["version"] == VERSION
    assert state["datasets"] == {"train": {"dataset_id": "d" * 64, "split": "train", "rows": 41}}
    assert (state["epoch"], state["batch"], state["mix"]) == (0, 4, None)
    assert {name: state[name] for name in ("order", "seed", "global_batch_rows", "tail")} == {
        "order": "block-v1", "seed": 2, "global_batch_rows": 6, "tail": "pad"}  # fmt: skip
    seen = state["consumed"]
    assert seen["rows"] == 24
    assert seen["tokens"] == sum(int((batch.segment_ids > 0).sum()) for batch in whole[:4])
    assert seen["targets"] == sum(int((batch.labels != -100).sum()) for batch in whole[:4])
    for number, name in enumerate("ab"):
        here = [batch.sources == number for batch in whole[:4]]
        assert seen["by_source"][name]["tokens"] == sum(int(each.sum()) for each in here)
        assert seen["by_source"][name]["targets"] == sum(
            int((batch.labels[each] != -100).sum()) for batch, each in zip(whole[:4], here, strict=True)
        )
        assert seen["by_source"][name]["rows"] == sum(int(each.any(axis=1).sum()) for each in here)
    assert len(json.dumps(state)) < 1200
    state["consumed"]["rows"] = 0
    assert whole[3].state["consumed"]["rows"] == 24


def changed(state, path, value):
    state = copy.deepcopy(state)
    *inner, last = path.split(".")
    here = state
    for name in inner:
        here = here[name]
    if value is None:
        del here[last]
    else:
        here[last] = value
    return state


OTHER = [
    ({"split": Stub(41, dataset="e" * 64)}, "datasets.train.dataset_id"),
    ({"split": Stub(42)}, "datasets.train.rows"),
    ({"split": Stub(41, name="validation")}, "datasets"),
    ({"order": "feistel-v1"}, "order"),
    ({"seed": 3}, "seed"),
    ({"global_batch_rows": 3}, "global_batch_rows"),
    ({"tail": "drop"}, "tail"),
    ({"split": Stub(41, length=16)}, "order_id"),
    ({"split": Stub(41, sources=3)}, "consumed.by_source"),
]


@pytest.mark.parametrize("options, field", OTHER, ids=[field for _, field in OTHER])
def test_t7_another_data_set_or_order_is_refused_by_name(options, field):
    _, state = stopped(None, 5)
    one = loader(**options)
    with pytest.raises(DriftError, match=rf"^{field}: the state says .*, this loader has ") as error:
        one.load_state_dict(state)
    assert error.value.status == 5
    assert one.position == (0, 0)


@pytest.mark.parametrize(
    "path, value, field",
    [
        ("version", 2, "version"),
        ("version", None, "version"),
        ("epoch", -1, "epoch"),
        ("epoch", "1", "epoch"),
        ("batch", 7, "batch"),
        ("batch", None, "batch"),
        ("consumed.rows", 1.5, "consumed.rows"),
        ("consumed.by_source.a.tokens", -3, "consumed.by_source.a.tokens"),
        ("digest", "0", "digest"),
        ("seed", True, "seed"),
        ("order_id", "0" * 64, "order_id"),
        ("also", 1, "also"),
        ("mix", {"unit": "rows", "weights": [], "positions": {}, "amounts": {}}, "mix"),
    ],
)
def test_what_is_no_state_is_refused_by_name(path, value, field):
    _, state = stopped(None, 5)
    with pytest.raises(DriftError, match=rf"^{field}"):
        loader().load_state_dict(changed(state, path, value))


@pytest.mark.parametrize("state", [None, [], "x", {}])
def test_what_is_nothing_like_a_state(state):
    with pytest.raises(DriftError, match=r"^version: "):
        loader().load_state_dict(state)


def test_the_digest_tells_which_rows_were_delivered(whole):
    one = loader()
    for cut in (0, 1, 7, 20):
        state = whole[cut].state
        one.verify(state)
        with pytest.raises(DriftError, match=rf"^digest: .* epoch {state['epoch']}, batch {state['batch']} give"):
            one.verify(changed(state, "digest", "0" * 32))
        with pytest.raises(DriftError, match=r"^digest: "):
            one.verify(changed(state, "batch", (state["batch"] + 1) % 7))
    assert one.position == (0, 0)


def test_the_digest_rolls_over_the_row_ids(whole):
    """xxh3_128 of the digest before, the number of each row's split (int16) and the row ids (int64), little-endian."""
    digest = xxhash.xxh3_128_hexdigest(b"")
    for batch in whole:
        split = np.zeros(len(batch), "<i2")
        digest = xxhash.xxh3_128_hexdigest(digest.encode() + split.tobytes() + batch.row_ids.astype("<i8").tobytes())
        assert batch.state["digest"] == digest


def test_a_step_of_a_million_costs_what_the_first_does():
    """10^9 rows, step 10^6: neither the state nor what goes on from it knows how long the road was."""
    rows = 10**9
    split = Stub(rows, full=True)
    one = Loader(split, global_batch_rows=64, prefetch=0, seed=1)
    next(iter(one))
    state = changed(changed(one.state_dict(), "batch", 10**6), "consumed.rows", 64 * 10**6)
    first = len(json.dumps(one.state_dict()))
    two = Loader(split, global_batch_rows=64, prefetch=0, seed=1)
    split.read_rows = 0
    tracemalloc.start()
    two.load_state_dict(state)
    batch = next(iter(two))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert batch.step == (0, 10**6)
    assert split.read_rows == 64
    assert peak < 500_000
    assert len(json.dumps(batch.state)) < first + 50
    assert np.array_equal(batch.row_ids, one.batch_at(10**6).row_ids)
    assert not set(batch.row_ids) & set(row_ids(one.batch_at(g) for g in range(10**6 - 20, 10**6)))


@pytest.fixture
def built(tmp_path):
    """A tiny build; (its folder, a loader of it)."""
    folder = build(tmp_path / "builds").path
    with datapipe.open(folder) as data:
        yield folder, data.loader(global_batch_rows=1)


def test_a_checkpoint_is_registered_as_a_consumer(built, tmp_path):
    folder, one = built
    state = next(iter(one)).state
    record = consumed(folder, state, tmp_path / "step-1.pt", kind="checkpoint", host="a")
    assert record.parent == folder.parent / "consumers"
    assert consumed(str(folder), state, tmp_path / "step-1.pt", kind="checkpoint", host="b") == record
    assert datapipe.consumed(folder, state, "s3://bucket/run") != record
    (found,) = consumers.read(folder, "checkpoint")
    assert (found["path"], found["notes"]) == (str(tmp_path / "step-1.pt"), {"host": "b"})
    assert found["dataset_id"] == state["datasets"]["train"]["dataset_id"]
    assert (found["splits"], found["epoch"], found["batch"]) == (["train"], state["epoch"], state["batch"])
    assert found["consumed"] == state["consumed"]
    assert found["state"] == state
    (run,) = consumers.read(folder, "run")
    assert run["path"] == "s3://bucket/run"
    one.load_state_dict(found["state"])


def test_a_state_of_another_data_set_is_no_consumer(built):
    folder, _ = built
    _, state = stopped(None, 1)
    with pytest.raises(DriftError, match=r"^dataset_id: the state says dddd"):
        consumed(folder, state, "run")
    assert not consumers.read(folder, "run")
