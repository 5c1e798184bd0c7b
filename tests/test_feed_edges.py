"""Feed against an oracle in plain Python, on odd builds; and what users do that nobody meant."""

import itertools
import json
import multiprocessing
import os
import random
import struct
import threading
import time
import warnings
from itertools import islice
from pathlib import Path
from typing import Any

import naive
import numpy as np
import pyarrow.parquet as pq
import pytest
from exported import Doc, build, some
from feeding import Stub, row_ids

import datapipe
from datapipe.errors import DriftError, IntegrityError, ManifestError
from datapipe.feed import Batch, Loader, mix, reading
from datapipe.feed import torch as feed_torch
from datapipe.feed.order import KINDS

# -- the oracle: every array worked out token by token from the columns of the shards, as tables.SHARD names them


def stored(path: Path, split: str) -> tuple[list[dict[str, Any]], int, list[str]]:
    """All rows of a split in order, ids as numbers; their length; the names of sources."""
    made = json.loads((path / "manifest.json").read_bytes())
    length = made["manifest"]["sequences"]["length"]
    rows: list[dict[str, Any]] = []
    for shard in made["splits"][split]["shards"]:
        for row in pq.ParquetFile(path / shard["path"]).read().to_pylist():
            if isinstance(row["input_ids"], bytes):
                code = "H" if len(row["input_ids"]) == 2 * length else "i"
                row["input_ids"] = list(struct.unpack(f"<{length}{code}", row["input_ids"]))
            rows.append(row)
    return rows, length, made["sources"]


def worked_out(row: dict[str, Any], length: int) -> dict[str, list]:
    bits = row["loss_mask"]
    allowed = None if bits is None else [bool(bits[i // 8] >> i % 8 & 1) for i in range(length)]
    return naive.row(row["input_ids"], row["seg_len"], row["seg_source"], allowed)


def padding(length: int, pad: int) -> dict[str, Any]:
    return {"input_ids": [pad] * length, "seg_len": [], "seg_source": [], "loss_mask": None}


def epoch_of(order: list[int], size: int, tail: str) -> tuple[list[list[int]], list[int]]:
    """Row ids of each global batch, and of the tail."""
    batches = [order[first : first + size] for first in range(0, len(order), size)]
    missing = size - len(batches[-1])
    if tail == "drop":
        return (batches[:-1], batches[-1]) if missing else (batches, [])
    fill = [-1] * missing if tail == "pad" else [order[n % len(order)] for n in range(missing)]
    batches[-1] = batches[-1] + fill
    return batches, fill


def check(batch: Batch, rows: list[dict[str, Any]], length: int, pad: int) -> None:
    each = [worked_out(rows[n] if n >= 0 else padding(length, pad), length) for n in batch.row_ids.tolist()]
    for name in ("input_ids", "labels", "loss_mask", "position_ids", "segment_ids", "sources"):
        assert getattr(batch, name).tolist() == [one[name] for one in each], name
    flat = [0, *(n * length + end for n, one in enumerate(each) for end in one["ends"][1:])]
    assert batch.cu_seqlens.tolist() == flat
    assert batch.max_seqlen == max(b - a for a, b in itertools.pairwise(flat))
    assert batch.n_targets.tolist() == [sum(one["loss_mask"]) for one in each]
    assert batch.n_tokens.tolist() == [sum(n > 0 for n in one["segment_ids"]) for one in each]


def counted(delivered: list[int], rows: list[dict[str, Any]], length: int, names: list[str]) -> dict[str, Any]:
    found = {name: {"rows": 0, "tokens": 0, "targets": 0} for name in [None, *names]}
    for row in (rows[n] for n in delivered if n >= 0):
        one = worked_out(row, length)
        for name in [None, *{names[n] for n in row["seg_source"]}]:
            found[name]["rows"] += 1
        for source, target in zip(one["sources"], one["loss_mask"], strict=True):
            for name in [None, names[source]] if source >= 0 else []:
                found[name]["tokens"] += 1
                found[name]["targets"] += target
    return {**found.pop(None), "by_source": found}


BUILDS: dict[str, Any] = {
    "one row": lambda out, **o: build(out, [Doc((1, 5, 6, 2))], **o),
    "length 2": lambda out, **o: build(out, some(20, longest=7, masks=True), length=2, shards=2, **o),
    "one shard": lambda out, **o: build(out, some(50, masks=True), shards=1, **o),
    "many short shards": lambda out, **o: build(out, some(60, longest=30, bos=None), length=8, shards=9, **o),
    "short last groups": lambda out, **o: build(out, some(120, masks=True), length=16, shards=4, packing="concat", **o),
    "no eos, four bytes": lambda out, **o: build(out, some(40, vocabulary=70_000), eos=None, vocabulary=70_000, **o),
}


@pytest.fixture(scope="module", params=[(name, storage) for name in BUILDS for storage in ("list", "binary")], ids=str)
def made(request, tmp_path_factory) -> Path:
    name, storage = request.param
    return BUILDS[name](tmp_path_factory.mktemp("edges"), storage=storage).path


@pytest.mark.parametrize("kind", KINDS)
def test_every_array_and_count_of_two_epochs(made, kind):
    """All splits, tails and worlds, against the oracle; what an epoch's order is, the loader of single rows says."""
    rng = random.Random(3)
    with datapipe.open(made) as data:
        for name in ("train", "validation"):
            rows, length, names = stored(made, name)
            if not rows:
                with pytest.raises(ManifestError, match="validation has no rows"):
                    data.loader(name, global_batch_rows=1)
                assert len(data.validation[:5]) == 0
                assert data.books()[name]["stored"] == 0
                continue
            single = data.loader(name, global_batch_rows=1, order=kind, seed=-7)
            orders = [row_ids(list(single)).tolist() for _ in range(2)]
            assert all(sorted(order) == list(range(len(rows))) for order in orders)
            assert (orders[0] == list(range(len(rows)))) == (kind == "sequential" or len(rows) == 1)
            cases = [(6, "drop"), (16, "pad"), (16, "wrap"), (len(rows) + 3, "wrap")]
            for size, tail in cases if kind == "block-v1" else cases[::2]:
                if tail == "drop" and len(rows) < size:
                    continue
                world = rng.choice([world for world in (1, 2, 3, 16) if size % world == 0])
                ranks = [data.loader(name, global_batch_rows=size, order=kind, seed=-7, tail=tail, rank=rank,
                                     world=world, prefetch=rng.randrange(3)) for rank in range(world)]  # fmt: skip
                delivered: list[int] = []
                said = None
                for epoch, order in enumerate(orders):
                    expected, left = epoch_of(order, size, tail)
                    assert ranks[0].tail_rows(epoch).tolist() == left
                    assert [len(rank) for rank in ranks] == [len(expected)] * world
                    for batches, want in zip(zip(*ranks, strict=True), expected, strict=True):
                        delivered += want
                        for rank, batch in enumerate(batches):
                            assert batch.row_ids.tolist() == want[rank::world]
                            check(batch, rows, length, data.split(name).pad)
                            assert batch.state == batches[0].state
                        said = batches[-1].state
                assert ranks[0].state_dict() == ranks[-1].state_dict() == said
                assert ranks[0].state_dict()["consumed"] == counted(delivered, rows, length, names)


def test_resumed_again_and_again_by_others(tmp_path):
    """Of every resume, world, rank count of workers, prefetching and output are others; nothing else changes."""
    made = build(tmp_path, some(120, masks=True), shards=3)
    rng = random.Random(1)
    with datapipe.open(made.path) as data:
        options = {"global_batch_rows": 12, "tail": "pad", "seed": 4}
        whole = list(islice(data.loader(**options).forever(), 90))
        state, at = None, 0
        while at < len(whole):
            world, take = rng.choice([1, 2, 3, 4, 6, 12]), rng.randrange(9)
            ranks = [data.loader(**options, world=world, rank=rank, prefetch=rng.randrange(4),
                                 output=rng.choice(["numpy", "torch"])) for rank in range(world)]  # fmt: skip
            for rank in ranks:
                if state is not None:
                    rank.load_state_dict(json.loads(json.dumps(state)))
            for number, batches in enumerate(zip(*(islice(rank.forever(), take) for rank in ranks), strict=True), at):
                for rank, batch in enumerate(batches[: len(whole) - number and None]):
                    if number < len(whole):
                        ids = batch.input_ids if isinstance(batch, Batch) else batch["input_ids"].numpy()
                        assert np.array_equal(ids, whole[number].input_ids[rank::world])
                        assert batch.state == whole[number].state
            states = [rank.state_dict() for rank in ranks]
            assert all(one == states[0] for one in states)
            state, at = states[0], at + take
            for rank in ranks:
                rank.close()
        workers = data.loader(**options)
        workers.load_state_dict(whole[4].state)
        torches = feed_torch.DataLoader(workers, num_workers=2)
        for batch, want in zip(islice(torches, 5), whole[5:], strict=False):
            assert batch.state == want.state
            assert np.array_equal(batch.input_ids, want.input_ids)
        workers.verify(whole[9].state)


# -- loops


def test_an_iteration_counts_from_where_it_begins():
    """Made before a state is loaded, it still ends with the epoch."""
    loader, other = Loader(Stub(40), global_batch_rows=4), Loader(Stub(40), global_batch_rows=4)
    early = iter(loader)
    list(islice(other, 7))
    loader.load_state_dict(other.state_dict())
    assert [batch.step for batch in early] == [(0, 7), (0, 8), (0, 9)]
    assert loader.position == (1, 0)


def test_weights_that_change_within_the_loop_say_what_to_do():
    loader = mix({"x": (Stub(40), 1), "y": (Stub(40, dataset="e" * 64), 1)}, global_batch_rows=4)
    loop = iter(loader)
    next(loop)
    loader.reweight({"x": 0, "y": 1})
    with pytest.raises(RuntimeError, match="weights changed; iterate over it again, and it goes on"):
        next(loop)
    assert next(iter(loader)).step == (0, 1)


@pytest.mark.parametrize("prefetch", [0, 2])
def test_a_state_that_is_loaded_within_the_loop_holds(prefetch):
    loader, other = (Loader(Stub(40), global_batch_rows=4, prefetch=prefetch) for _ in range(2))
    list(islice(other, 7))
    loop = iter(loader)
    next(loop)
    loader.load_state_dict(other.state_dict())
    with pytest.raises(RuntimeError, match="this iteration is over"):
        next(loop)
    assert loader.position == (0, 7)
    assert loader.state_dict() == other.state_dict()


def test_nothing_is_read_ahead_of_an_error():
    class Damaged(Stub):
        failed = 0

        def read(self, rows):
            if self.read_rows >= 8:
                self.failed += 1
                raise OSError("damaged")
            return super().read(rows)

    split = Damaged(400)
    loop = iter(Loader(split, global_batch_rows=4, prefetch=9))
    assert [next(loop).step for _ in range(2)] == [(0, 0), (0, 1)]
    until = time.monotonic() + 120
    while not split.failed and time.monotonic() < until:
        time.sleep(0.002)
    time.sleep(0.2)  # in which a thread that went on would have read again
    assert split.failed == 1
    with pytest.raises(OSError, match="damaged"):
        next(loop)


@pytest.mark.parametrize("g", [1.5, "1", None])
def test_a_batch_has_a_whole_number(g):
    loader = Loader(Stub(40), global_batch_rows=4)
    with pytest.raises(TypeError):
        loader.batch_at(g)
    with pytest.raises(TypeError):
        loader.plan(0, g)
    assert type(loader.batch_at(np.int64(3)).step[1]) is int  # pyright: ignore[reportArgumentType]


def test_two_iterations_of_workers_at_once():
    loader = Loader(Stub(40), global_batch_rows=4)
    first, second = (iter(feed_torch.DataLoader(loader, num_workers=1)) for _ in range(2))
    assert next(first).step == (0, 0)
    assert next(second).step == (0, 1)
    with pytest.raises(RuntimeError, match="this iteration is over"):
        next(first)
    assert next(second).step == (0, 2)
    loader.load_state_dict(loader.state_dict())
    with pytest.raises(RuntimeError, match="this iteration is over"):
        next(second)


# -- mixes that mean nothing


class Other(Stub):
    def __init__(self, *args, tokenizer="7" * 64, **options):
        super().__init__(*args, **options)
        self.tokenizer = tokenizer


@pytest.mark.parametrize(
    "splits, message",
    [
        ({"x": (Stub(9), 1), "y": (Other(9, dataset="e" * 64), 1)}, "one tokenizer, these have x 5{12}, y 7{12}"),
        ({"x": (Stub(9), 1), "y": (Stub(9), 1)}, "x and y are both train of data set dddddddddddd"),
        ({"x": Stub(9)}, r"x: expected \(split, weight\), not Stub"),
        ({"x": (Stub(9), 1, 2)}, r"x: expected \(split, weight\)"),
        ({"x": ("train", 1)}, "x: a loader reads a split of a build, not a str"),
        ({1: (Stub(9), 1)}, "1: the name of a split in a mix is a string"),
        ([(Stub(9), 1)], "a loader reads a split of a build, not a list"),
        ({"x": (Stub(9), 10**400)}, "is no finite number of 0 or more"),
    ],
)
def test_what_cannot_be_mixed(splits, message):
    with pytest.raises(ManifestError, match=message):
        mix(splits, global_batch_rows=2)


def test_two_sides_of_a_build_mix_and_a_dataset_is_no_split(tmp_path):
    with datapipe.open(build(tmp_path, some(60)).path) as data:
        weights: Any = np.float32(1), np.int64(1)
        loader = mix({"x": (data.train, weights[0]), "y": (data.validation, weights[1])}, global_batch_rows=4)
        assert {name.split("/")[0] for name in loader.sources} == {"x", "y"}
        with pytest.raises(ManifestError, match=r"not a Dataset; its splits are \.train and \.validation"):
            Loader(data, global_batch_rows=4)  # pyright: ignore[reportArgumentType]


def test_a_mix_has_no_tail():
    with pytest.raises(ManifestError, match="tail: 'pad', but a mix has none"):
        mix({"x": (Stub(9), 1)}, global_batch_rows=2, tail="pad")


# -- states that somebody edited


def a_mix() -> Loader:
    return mix({"x": (Stub(40), 0.3), "y": (Stub(40, dataset="e" * 64), 0.7)}, global_batch_rows=4)


@pytest.mark.parametrize(
    "path, value, field",
    [
        (("epoch",), 1 << 62, "epoch"),
        (("consumed", "rows"), 10**30, "consumed.rows"),
        (("consumed", "by_source", "x/a", "tokens"), 1 << 62, "consumed.by_source.x/a.tokens"),
        (("mix", "weights"), [], "mix.weights"),
        (("mix", "weights", 0, 0), 1, "mix.weights"),
        (("mix", "weights"), [[0, {"x": 0.3, "y": 0.7}]] * 2, "mix.weights"),
        (("mix", "weights"), [[0, {"x": 0.3, "y": 0.7}], [4, {"x": 1.0, "y": 1.0}]], "mix.weights"),
        (("mix", "weights", 0, 1), {"x": 0.0, "y": 0.0}, "mix.weights"),
        (("mix", "weights", 0, 1, "x"), 0.0, "mix.amounts.x"),
        (("mix", "amounts", "x"), 10**30, "mix.amounts.x"),
        (("mix", "positions", "x", 0), 10**30, "mix.positions.x.0"),
    ],
)
def test_an_edited_state_is_refused_by_name(path, value, field):
    loader = a_mix()
    list(islice(loader, 3))
    state = inner = json.loads(json.dumps(loader.state_dict()))
    a_mix().load_state_dict(state)
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    with pytest.raises(DriftError, match=f"^{field}: "):
        a_mix().load_state_dict(state)


@pytest.mark.parametrize(
    "where, options, message",
    [
        (None, {"kind": "thing"}, "kind: 'thing' is none of run, checkpoint"),
        (None, {"note": object()}, "notes: they are kept as JSON"),
        (None, {"note": float("nan")}, "notes: they are kept as JSON"),
        ("memory://builds/x", {}, "which must be one of this machine"),
    ],
)
def test_what_is_no_consumer(tmp_path, where, options, message):
    made = build(tmp_path, some(20))
    with datapipe.open(made.path) as data:
        state = data.loader(global_batch_rows=2).state_dict()
    with pytest.raises(ManifestError, match=message):
        datapipe.consumed(where or made.path, state, "run", **options)
    assert not (made.path.parent / "consumers").exists()


# -- rows by number, threads, forks


@pytest.mark.parametrize("rows", [[True, False], [0.0, 1.0], ["1"]])
def test_rows_are_whole_numbers(tmp_path, rows):
    with datapipe.open(build(tmp_path, some(20)).path) as data:
        for read in (data.train.read, data.train.narrow):
            with pytest.raises(IndexError, match="rows are whole numbers"):
                read(np.array(rows))
        assert data.train.read(np.array([], float)).input_ids.shape[0] == 0


def test_books_of_shards_that_are_not_theirs_though_the_sums_are(tmp_path):
    with datapipe.open(build(tmp_path, some(60)).path) as data:
        one, other, *rest = data.train.shards
        given = {"tokens": one.tokens + 1}, {"tokens": other.tokens - 1}
        data.train.shards = (one.model_copy(update=given[0]), other.model_copy(update=given[1]), *rest)
        with pytest.raises(IntegrityError, match=f"{one.path}: stored is {one.tokens + 1}, "):
            data.books()


def names_in_child(split, queue):
    queue.put(split.doc_ids(np.arange(5)))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_fork_while_another_thread_names_documents(tmp_path):
    """The thread, which the child does not have, holds the lock and makes what the child wants."""
    with datapipe.open(build(tmp_path, some(20)).path) as data:
        split, going, go = data.train, threading.Event(), threading.Event()
        expected = split.doc_ids(np.arange(5))
        split.close()
        split.doc_ids(np.array([], np.int64))
        assert split._fates is not None
        read = split._fates._read

        def slow(group):
            going.set()
            go.wait(240)  # longer than the child is waited for
            return read(group)

        split._fates._read = slow
        thread = threading.Thread(target=split.doc_ids, args=(np.arange(5),))
        thread.start()
        assert going.wait(120)
        split._fates._read = read
        context = multiprocessing.get_context("fork")
        queue = context.Queue()
        child = context.Process(target=names_in_child, args=(split, queue))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of a fork beside threads: that is the point
            child.start()
        try:
            assert queue.get(timeout=120) == expected
        finally:
            child.kill()
            child.join()
            go.set()
            thread.join()


def taken_in_child(loop, queue):
    try:
        queue.put(next(loop).step)
    except RuntimeError as error:
        queue.put(str(error))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_an_iteration_does_not_go_on_in_a_fork():
    """Its thread is not there: told, not waited for."""
    loop = iter(Loader(Stub(400), global_batch_rows=4, prefetch=2))
    next(loop)
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    child = context.Process(target=taken_in_child, args=(loop, queue))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        child.start()
    try:
        assert "does not go on in a forked process" in queue.get(timeout=120)
        assert next(loop).step == (0, 1)
    finally:
        child.kill()
        child.join()


def test_narrow_columns_are_let_go_of(tmp_path, monkeypatch):
    monkeypatch.setattr(reading, "KEPT_NARROW", 1)
    with datapipe.open(build(tmp_path, some(200)).path) as data:
        whole = data.train.narrow(np.arange(data.train.rows))
        for row in range(0, data.train.rows, 50):
            found = data.train.narrow(np.array([row]))
            assert found.seg_len.tolist() == whole.take(np.array([row])).seg_len.tolist()
            assert len(data.train._reader._narrow._held.first) <= 1
