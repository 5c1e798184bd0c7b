"""Loader: every rank, cut and tail gives the rows that the order says, once; threads end with whoever began them."""

import gc
import json
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from itertools import islice
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from feeding import Stub, row_ids
from hypothesis import given, settings
from hypothesis import strategies as st
from synthetic import Doc, build, words

import datapipe
from datapipe.errors import IntegrityError, ManifestError
from datapipe.feed import Loader
from datapipe.feed.order import KINDS

CHECKOUT = Path(__file__).parents[1]


def loader(rows=100, size=12, split=None, **options):
    return Loader(split or Stub(rows), global_batch_rows=size, **options)


@pytest.fixture
def threads():
    """threads() -> those that read ahead now, and did not when the test began."""
    before = set(threading.enumerate())
    return lambda: [t for t in threading.enumerate() if t.name == "datapipe-feed" and t not in before]


def together(parts):
    """Global batches of the batches of all ranks: rank r has rows r, r + world, ..."""
    return [np.stack([batch.row_ids for batch in batches], 1).reshape(-1) for batches in zip(*parts, strict=True)]


@pytest.mark.slow
@given(rows=st.integers(1, 400), size=st.integers(1, 40), tail=st.sampled_from(["drop", "pad", "wrap"]),
       kind=st.sampled_from(KINDS), epochs=st.integers(1, 3), data=st.data())  # fmt: skip
@settings(max_examples=60, deadline=None)
def test_exactly_once_for_any_size_world_cut_and_second_cut(rows, size, tail, kind, epochs, data):
    """Cut twice, each time with other ranks: the global batches are those of the run that nobody stopped."""
    if tail == "drop":
        size = min(size, rows)
    options = {"global_batch_rows": size, "tail": tail, "order": kind, "seed": 5}
    whole = Loader(Stub(rows), prefetch=0, **options)
    expected = list(islice(whole.forever(), epochs * len(whole)))
    first = data.draw(st.integers(0, len(expected)))
    second = data.draw(st.integers(first, len(expected)))
    state, seen = Loader(Stub(rows), **options).state_dict(), []
    for at, stop in ((0, first), (first, second), (second, len(expected))):
        world = data.draw(st.sampled_from([n for n in range(1, size + 1) if size % n == 0]))
        ranks = [Loader(Stub(rows), rank=r, world=world, prefetch=r % 3, **options) for r in range(world)]
        for rank in ranks:
            rank.load_state_dict(json.loads(json.dumps(state)))
        seen += together([list(islice(rank.forever(), stop - at)) for rank in ranks])
        states = [rank.state_dict() for rank in ranks]
        assert all(each == states[0] for each in states)
        state = states[0]
        for rank in ranks:
            rank.close()
    assert np.array_equal(np.concatenate(seen), row_ids(expected))
    assert state == whole.state_dict()
    for epoch in range(epochs):
        got = np.concatenate(seen[epoch * len(whole) : (epoch + 1) * len(whole)])
        extra = whole.tail_rows(epoch)
        stored = np.sort(got[got >= 0])
        if tail == "drop":
            assert np.array_equal(np.sort(np.concatenate((stored, extra))), np.arange(rows))
        else:
            assert np.array_equal(got[:rows][np.argsort(got[:rows])], np.arange(rows))
            assert np.array_equal(got[rows:], extra)
    whole.verify(state)


@pytest.mark.parametrize("world", [1, 2, 3, 4, 6, 12])
@pytest.mark.parametrize("tail", ["drop", "pad", "wrap"])
def test_t4_every_world_gives_the_same_global_batches(world, tail):
    expected = [batch.row_ids for batch in loader(tail=tail)]
    parts = [list(loader(tail=tail, rank=rank, world=world)) for rank in range(world)]
    for got, batch in zip(together(parts), expected, strict=True):
        assert np.array_equal(got, batch)
    for batches in zip(*parts, strict=True):
        assert all(batch.state == batches[0].state for batch in batches)


@pytest.mark.parametrize(
    "world, size, tail, batches, extra",
    [(3, 6, "drop", 1, 4), (3, 6, "pad", 2, 2), (3, 6, "wrap", 2, 2), (4, 4, "drop", 2, 2), (4, 4, "pad", 3, 2),
     (16, 16, "pad", 1, 6), (16, 16, "wrap", 1, 6), (16, 32, "wrap", 1, 22)],
)  # fmt: skip
def test_t5_every_rank_has_as_many_batches(world, size, tail, batches, extra):
    """Ten rows: the ranks end together, what is left out or comes twice is listed."""
    parts = [list(loader(10, size, tail=tail, rank=rank, world=world)) for rank in range(world)]
    assert {len(part) for part in parts} == {batches}
    assert {len(batch) for part in parts for batch in part} == {size // world}
    one = loader(10, size, tail=tail, world=world)
    listed, got = one.tail_rows(), np.concatenate(together(parts))
    assert len(listed) == extra
    if tail == "drop":
        assert sorted([*got.tolist(), *listed.tolist()]) == list(range(10))
    else:
        assert np.array_equal(np.sort(got[:10]), np.arange(10))
        assert np.array_equal(got[10:], listed)
        assert (listed == -1).all() == (tail == "pad")
    if tail == "pad":
        padded = [batch for part in parts for batch in part if (batch.row_ids < 0).any()]
        assert all((batch.labels[batch.row_ids < 0] == -100).all() for batch in padded)
        assert all(not batch.n_targets[batch.row_ids < 0].any() for batch in padded)


def test_t5_more_ranks_than_rows_are_told():
    with pytest.raises(
        ManifestError, match=r"global_batch_rows: 16, but train has 10 rows.*at most 10 or tail pad or wrap"
    ):
        loader(10, 16, world=16)


@pytest.mark.parametrize("prefetch", [0, 1, 7])
def test_t6_the_state_is_of_what_was_delivered(prefetch):
    """However much is read ahead, and whenever it is asked."""
    split = Stub(600)
    one, slow = loader(split=split, prefetch=prefetch), loader(600, prefetch=0)
    for taken, (batch, same) in enumerate(zip(one, slow, strict=True), 1):
        if prefetch and taken == 3:
            _wait(lambda: split.read_rows >= 12 * (3 + prefetch))
        assert one.state_dict() == batch.state == slow.state_dict() == same.state
        assert one.state_dict()["consumed"]["rows"] == 12 * taken
        if taken == 20:
            break
    assert one.position == (0, 20)


def _wait(true, seconds=120):
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end
        time.sleep(0.005)


def test_an_iteration_is_the_rest_of_the_epoch():
    one = loader()
    head = list(islice(one, 3))
    assert one.position == (0, 3)
    tail = list(one)
    assert len(head) + len(tail) == len(one) == 8
    assert one.position == (1, 0)
    assert [batch.step for batch in one] == [(1, g) for g in range(8)]
    assert one.position == (2, 0)
    assert not np.array_equal(row_ids(head + tail), row_ids(loader().batch_at(g, 1) for g in range(8)))


def test_any_batch_at_any_time():
    one = loader(tail="pad")
    batches = list(islice(one.forever(), 20))
    assert one.position == (2, 2)
    for batch in batches:
        epoch, g = batch.step
        again = one.batch_at(g, epoch)
        assert np.array_equal(again.input_ids, batch.input_ids)
        assert again.state is None
    assert one.position == (2, 2)
    for g, epoch in ((9, 0), (-1, 0), (0, -1)):
        with pytest.raises(IndexError, match="an epoch has 9 batches"):
            one.batch_at(g, epoch)


def test_the_plan_is_what_is_seen():
    one = loader(50, 6, tail="pad", world=2)
    plan = one.plan(0, 9)
    assert plan.column_names == ["step", "position", "row_id", "doc", "doc_id", "source", "start", "tokens"]
    whole = loader(50, 6, tail="pad")
    for g, batch in enumerate(whole):
        here = plan.filter(np.array(plan["step"]) == g)
        assert here["doc"].to_pylist() == batch.rows.seg_doc.tolist()
        assert here["tokens"].to_pylist() == batch.rows.seg_len.tolist()
        assert here["row_id"].to_pylist() == np.repeat(batch.row_ids, np.diff(batch.rows.offsets)).tolist()
        assert here["source"].to_pylist() == [whole.sources[s] for s in batch.rows.seg_source]
    assert plan["doc_id"][0].as_py() == f"{plan['doc'][0].as_py():032x}"
    assert plan["position"].to_pylist() == sorted(plan["position"].to_pylist())
    assert one.position == (0, 0)
    assert one.plan(4, 4).num_rows == 0
    with pytest.raises(IndexError):
        one.plan(3, 10)


class Broken(Stub):
    """Cannot read one row."""

    bad = -5

    def read(self, rows):
        if self.bad in rows:
            raise IntegrityError(f"row {self.bad}")
        return super().read(rows)


@pytest.mark.parametrize("prefetch", [0, 1, 5])
def test_an_error_comes_where_its_batch_would(prefetch, threads):
    split = Broken(100)
    split.bad = int(loader().batch_at(4).row_ids[0])
    one, seen = loader(split=split, prefetch=prefetch), []
    with pytest.raises(IntegrityError, match=f"row {split.bad}"):
        seen.extend(one)
    assert [batch.step[1] for batch in seen] == [0, 1, 2, 3]
    assert one.position == (0, 4)
    split.bad = -5
    assert [batch.step[1] for batch in one] == [4, 5, 6, 7]
    assert not threads()


def test_threads_end_with_the_iteration(threads):
    one = loader(10_000, prefetch=3)
    turn = iter(one)
    next(turn)
    assert len(threads()) == 1
    one.close()
    assert not threads()
    with pytest.raises(RuntimeError, match="is over"):
        next(turn)
    with pytest.raises(StopIteration):
        next(turn)
    turn = iter(one)
    assert next(turn).step == (0, 1)
    del turn  # collected
    gc.collect()
    assert not threads()
    turn = iter(one)
    next(turn)
    assert next(iter(one)).step == (0, 3)  # ends the turn before
    with pytest.raises(RuntimeError, match="is over"):
        next(turn)
    one.load_state_dict(one.state_dict())
    gc.collect()
    assert not threads()


def test_a_loader_pickles_without_its_thread():
    one = loader(prefetch=2)
    turn = iter(one)
    next(turn)
    other = pickle.loads(pickle.dumps(one))
    assert other.state_dict() == one.state_dict()
    assert np.array_equal(row_ids(other), row_ids(turn))


@pytest.mark.parametrize(
    "options, message",
    [
        ({"size": 0}, "global_batch_rows: 0 is no whole number of 1 or more"),
        ({"size": 2.0}, "global_batch_rows: 2.0"),
        ({"world": 5}, "world: 5 does not divide global_batch_rows 12"),
        ({"world": 0}, "world: 0"),
        ({"rank": 3, "world": 3}, "rank: 3 is not below world 3"),
        ({"rank": -1}, "rank: -1"),
        ({"order": "random"}, "order: 'random' is none of block-v1, feistel-v1, sequential"),
        ({"tail": "repeat"}, "tail: 'repeat' is none of drop, pad, wrap"),
        ({"mix_unit": "bytes"}, "mix_unit: 'bytes' is none of tokens, rows, documents"),
        ({"output": "jax"}, "output: 'jax' is none of numpy, torch, hf"),
        ({"prefetch": -1}, "prefetch: -1"),
        ({"seed": "1"}, "seed: '1' is no whole number"),
        ({"rows": 7}, "global_batch_rows: 12, but train has 7 rows"),
        ({"rows": 0, "tail": "pad"}, "train has no rows"),
    ],
)
def test_options_that_are_none(options, message):
    with pytest.raises(ManifestError, match=message):
        loader(**options)


def test_numbers_of_numpy_are_numbers():
    options: dict = {"size": np.int64(12), "seed": np.int32(3), "rank": np.int8(1), "world": np.uint8(2)}
    one = loader(**options)
    other = loader(size=12, seed=3, rank=1, world=2)
    assert np.array_equal(row_ids(one), row_ids(other))
    assert json.dumps(one.state_dict()) == json.dumps(other.state_dict())


def test_feistel_over_lists_says_what_it_costs(caplog):
    split = Stub(100)
    split.storage = "list"
    loader(split=split)
    assert not caplog.records
    loader(split=split, order="feistel-v1")
    assert "decodes a row group of 64 rows for each row" in caplog.text


KILLED = """
import sys
sys.path[:0] = {path!r}
from feeding import Stub
from datapipe.feed import Loader
one = Loader(Stub(100_000), global_batch_rows=64, prefetch=4)
turn = one.forever()
if {workers}:
    from datapipe.feed.torch import DataLoader
    turn = iter(DataLoader(one, num_workers={workers}))
for batch in turn:
    print(batch.step, flush=True)
"""


@pytest.mark.slow
@pytest.mark.parametrize("workers", [0, 2])
def test_t9_a_killed_run_leaves_nothing(workers, tmp_path):
    """SIGKILL with threads and workers under way: no process, no name in shared memory; the next run starts."""
    here = Path(__file__).parent
    script = tmp_path / "run.py"
    script.write_text(KILLED.format(path=[str(here), str(here.parent)], workers=workers))
    shared = Path("/dev/shm")
    for _ in range(2):
        run = subprocess.Popen([sys.executable, script], stdout=subprocess.PIPE, text=True, start_new_session=True)
        assert run.stdout is not None
        with run.stdout:
            assert [run.stdout.readline().strip() for _ in range(3)] == ["(0, 0)", "(0, 1)", "(0, 2)"]
            children = _children(run.pid)
            assert len(children) >= workers
            owners = tuple(f"torch_{pid}_" for pid in (run.pid, *children))  # others on this machine have names there
            run.send_signal(signal.SIGKILL)
            run.wait()
        _wait(lambda: not any(_alive(child) for child in children))  # noqa: B023
        if shared.is_dir():
            assert not [name for name in os.listdir(shared) if name.startswith(owners) or "datapipe" in name]


def _children(pid):
    text = Path(f"/proc/{pid}/task/{pid}/children")
    return [int(child) for child in text.read_text().split()] if text.exists() else []


def _alive(pid):
    stat = Path(f"/proc/{pid}/stat")
    try:
        return stat.read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def test_a_process_ends_with_batches_read_ahead(tmp_path):
    """No close(), the iteration kept in a global: nothing hangs at the end."""
    here = Path(__file__).parent
    code = (f"import sys; sys.path[:0] = {[str(here), str(here.parent)]!r}\n"
            "from feeding import Stub\nfrom datapipe.feed import Loader\n"
            "turn = Loader(Stub(10_000), global_batch_rows=8, prefetch=4).forever()\n"
            "print(next(turn).step)\n")  # fmt: skip
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True)
    assert (done.stdout, done.stderr) == ("(0, 0)\n", "")


@pytest.fixture(scope="module", params=["B37", "B39"])
def case(request, shared, tmp_path_factory):
    """A case of peers, built: (what it expects, its data set opened)."""
    folder, home = shared / "cases" / request.param, tmp_path_factory.mktemp(request.param)
    manifest = home / "manifest.yaml"
    manifest.write_text(json.dumps({
        "name": request.param.lower(), "output": str(home / "builds"),
        "sources": {"docs": {"files": [str(folder / "docs.jsonl")], "fields": {"text": "text", "id": "id"}}},
        "tokenizer": {"file": str(folder / "toy_tokenizer.json"), "eos": "<eos>", "pad": "<pad>"},
        "sequences": {"length": 8},
    }))  # fmt: skip
    built = datapipe.build(datapipe.load(manifest))
    with datapipe.open(built.path) as data:
        yield request.param, json.loads((folder / "EXPECT.json").read_text())["expect"], data


def firsts(batches):
    """The first token of every row: one a document in these cases."""
    return [int(row[0]) for batch in batches for row in batch.input_ids]


def test_cases_of_peers(case):
    name, expect, data = case
    tokens = set(expect["first_token_id_of_sequence"].values())
    assert len(data) == expect["sequences"] == len(tokens)
    (_b37 if name == "B37" else _b39)(expect, data, tokens)


def _b37(expect, data, tokens):
    """Stopped after each number of batches, and again one later: three epochs are what they would have been."""
    whole = data.loader(global_batch_rows=6, seed=1)
    assert len(whole) == expect["batches_per_epoch_at_6"] == 14
    assert data.train.length == expect["tokens_per_sequence"]
    expected = firsts(islice(whole.forever(), 42))
    for epoch in range(3):
        assert set(expected[epoch * 84 : (epoch + 1) * 84]) == tokens
    for stop in expect["stop_after"]:
        for again in (stop, stop + 1):
            first = data.loader(global_batch_rows=6, seed=1)
            seen = firsts(islice(first.forever(), stop))
            second = data.loader(global_batch_rows=6, seed=1)
            second.load_state_dict(json.loads(json.dumps(first.state_dict())))
            seen += firsts(islice(second.forever(), again - stop))
            third = data.loader(global_batch_rows=6, seed=1)
            third.load_state_dict(json.loads(json.dumps(second.state_dict())))
            seen += firsts(islice(third.forever(), 42 - again))
            assert seen == expected
            assert third.position == (3, 0)


def _b39(expect, data, tokens):
    for world, rows in ((3, 2), (4, 1)):
        told = expect[f"ws{world}_b{rows}"]
        ranks = [data.loader(global_batch_rows=world * rows, rank=r, world=world) for r in range(world)]
        assert {len(list(rank)) for rank in ranks} == {told["drop_last"]["batches_per_rank"]}
        assert len(ranks[0].tail_rows(0)) == told["drop_last"]["dropped"]
        ranks = [data.loader(global_batch_rows=world * rows, rank=r, world=world, tail="pad") for r in range(world)]
        batches = [batch for rank in ranks for batch in rank]
        assert len(batches) == world * told["pad"]["batches_per_rank"]
        stored = np.concatenate([batch.input_ids[batch.row_ids >= 0, 0] for batch in batches])
        assert sorted(stored.tolist()) == sorted(tokens)
        assert sum(int((batch.row_ids < 0).sum()) for batch in batches) == told["pad"]["extra_slots"]
    ranks = [data.loader(global_batch_rows=16, rank=r, world=16, tail="wrap") for r in range(16)]
    assert [len(list(rank)) for rank in ranks] == [1] * 16
    with pytest.raises(ManifestError, match="16, but train has 10 rows"):
        data.loader(global_batch_rows=16, world=16)


@pytest.fixture(scope="module", params=[("list", False), ("list", True), ("binary", True)], ids=str)
def tiny(request, tmp_path_factory):
    """A tiny build of several shards, opened; with and without loss masks."""
    storage, masked = request.param
    docs = [Doc(words(n, 2 + n % 40), ("web", "wiki")[n % 3 == 0], copies=1 + n % 2) for n in range(60)]
    built = build(tmp_path_factory.mktemp("tiny"), docs=docs, storage=storage, masked=masked, shard_rows=13)
    with datapipe.open(built.path) as data:
        yield data


@pytest.mark.parametrize("world", [1, 2])
def test_t12_an_epoch_delivers_the_books(tiny, world):
    """Tokens, targets and rows of an epoch, of all and of each source, are those of manifest.json."""
    ranks = [tiny.loader(global_batch_rows=4, tail="pad", seed=2, rank=r, world=world) for r in range(world)]
    batches = [batch for rank in ranks for batch in rank]
    split, seen = tiny.made.splits.train, ranks[0].state_dict()["consumed"]
    assert (seen["rows"], seen["tokens"], seen["targets"]) == (split.sequences, split.tokens.stored,
                                                               split.tokens.targets)  # fmt: skip
    assert not split.tokens.repeated_context
    for name, share in split.by_source.items():
        assert (seen["by_source"][name]["tokens"], seen["by_source"][name]["targets"]) == (share.tokens, share.targets)
    assert sum(int((batch.labels != -100).sum()) for batch in batches) == split.tokens.targets
    assert sum(int((batch.segment_ids > 0).sum()) for batch in batches) == split.tokens.stored
    assert sum(batch.input_ids.size for batch in batches if (batch.row_ids >= 0).all()) <= (
        split.tokens.stored + split.tokens.padding)  # fmt: skip


def test_a_build_is_cut_and_goes_on_in_every_order(tiny):
    for order in KINDS:
        options = {"global_batch_rows": 8, "order": order, "seed": 1}
        whole = list(islice(tiny.loader(**options).forever(), 24))
        first = tiny.loader(**options)
        head = list(islice(first.forever(), 5))
        second = tiny.loader(**options)
        second.load_state_dict(json.loads(json.dumps(first.state_dict())))
        again = head + list(islice(second.forever(), 19))
        for one, other in zip(again, whole, strict=True):
            assert one.input_ids.tobytes() == other.input_ids.tobytes()
            assert one.labels.tobytes() == other.labels.tobytes()
            assert one.state == other.state


def test_the_plan_names_documents_of_the_build(tiny):
    fates = pq.read_table(Path(tiny.path) / "fates.parquet")
    plan = tiny.loader(global_batch_rows=4, seed=1).plan(0, 10)
    assert plan["doc_id"].to_pylist() == [fates["doc_id"][doc].as_py() for doc in plan["doc"].to_pylist()]
    assert plan["source"].to_pylist() == [fates["source"][doc].as_py() for doc in plan["doc"].to_pylist()]


def test_a_training_node_needs_neither_torch_nor_the_builder():
    names = ("ahead", "batch", "course", "loader", "mixture", "order", "state")
    heavy = ("torch", "numba", "duckdb", "tokenizers", "datasets", "fsspec")
    code = f"import sys, {', '.join(f'datapipe.feed.{name}' for name in names)}\n"
    code += f"print(*[name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=CHECKOUT)
    assert done.stdout == "\n"
