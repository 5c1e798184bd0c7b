"""torch: any number of workers gives the loader's own order, epochs and state; torchdata restores it mid-epoch."""

import json
import re
import runpy
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
import torch
from feeding import Stub, row_ids
from synthetic import Doc, build, words
from torch.utils import data
from torchdata.stateful_dataloader import StatefulDataLoader

from datapipe.build_manifest import consumers
from datapipe.errors import DriftError
from datapipe.feed import Loader, mix
from datapipe.feed.torch import DataLoader, TorchDataset

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:'set_vital' is deprecated"),  # torchdata calls it
    pytest.mark.filterwarnings("ignore:This DataLoader will create"),  # more workers than cores
]


@pytest.fixture(scope="module", autouse=True)
def _one_thread():
    """Small tensors: threads of torch would wait for each other."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def loader(**options):
    return Loader(Stub(50, masked=True), **{"global_batch_rows": 6, "seed": 4, "tail": "pad"} | options)


@pytest.fixture(scope="module")
def whole():
    """Three epochs of nine batches, without workers."""
    one = loader()
    return list(islice(one.forever(), 27))


def same(batches, expected):
    assert [batch.step for batch in batches] == [batch.step for batch in expected]
    for one, other in zip(batches, expected, strict=True):
        assert np.array_equal(one.input_ids, other.input_ids)
        assert np.array_equal(one.labels, other.labels)
        assert one.state == other.state


@pytest.mark.slow
@pytest.mark.parametrize(
    "workers, context, epochs", [(0, None, 3), (1, "fork", 3), (2, "fork", 3), (4, "fork", 3), (2, "spawn", 1)]
)
def test_t4_any_number_of_workers_gives_the_same_batches(workers, context, epochs, whole):
    """And the epochs follow each other, though workers start anew for each."""
    one = loader()
    given = DataLoader(one, num_workers=workers, multiprocessing_context=context)
    assert len(given) == 9
    for epoch in range(epochs):
        same(list(given), whole[epoch * 9 : (epoch + 1) * 9])
        assert one.position == (epoch + 1, 0)
    assert given.state_dict() == whole[epochs * 9 - 1].state


@pytest.mark.slow
def test_t6_the_main_process_knows_what_was_delivered(whole):
    """A loop that breaks, whatever workers have made by then; then another number of workers and ranks."""
    one = loader()
    first = DataLoader(one, num_workers=2, prefetch_factor=3)
    seen = list(islice(first, 4))
    assert first.state_dict() == one.state_dict() == whole[3].state
    seen += list(islice(first, 3))
    same(seen, whole[:7])
    state = json.loads(json.dumps(first.state_dict()))
    parts = []
    for rank in range(2):
        other = loader(rank=rank, world=2)
        other.load_state_dict(state)
        parts.append(list(DataLoader(other, num_workers=1 + rank)))
    for g, (even, odd) in enumerate(zip(*parts, strict=True), 7):
        assert np.array_equal(np.stack((even.row_ids, odd.row_ids), 1).reshape(-1), whole[g].row_ids)
        assert even.state == odd.state == whole[g].state
    first.load_state_dict(whole[2].state)
    same(list(first), whole[3:9])


@pytest.mark.slow
def test_workers_that_stay(whole):
    given = DataLoader(loader(), num_workers=2, persistent_workers=True)
    same(list(given), whole[:9])
    same(list(given), whole[9:18])
    same(list(islice(given, 5)), whole[18:23])
    same(list(given), whole[23:])


@pytest.mark.slow
def test_a_mix_with_workers_and_tensors():
    def mixed(output):
        splits = {"a": (Stub(40), 0.7), "b": (Stub(31, dataset="b" * 64), 0.3)}
        return mix(splits, global_batch_rows=4, output=output)

    expected = list(islice(mixed("numpy").forever(), 17))
    given = DataLoader(mixed("torch"), num_workers=2)
    for got, batch in zip(given, expected, strict=True):
        assert torch.equal(got["input_ids"], torch.from_numpy(batch.input_ids).long())
        assert (got.step, got.state) == (batch.step, batch.state)


@pytest.mark.slow
def test_torch_s_own_loader_repeats_nothing_in_silence(whole):
    dataset = TorchDataset(loader())
    given = data.DataLoader(dataset, batch_size=None, num_workers=2)
    batches = list(given)
    same(batches, whole[:9])
    with pytest.raises(RuntimeError, match="would begin at epoch 0, batch 0 once more"):
        list(given)
    dataset.load_state_dict(batches[-1].state)
    same(list(given), whole[9:18])


def test_torch_s_own_loader_without_workers(whole):
    dataset = TorchDataset(loader())
    given = data.DataLoader(dataset, batch_size=None)
    for epoch in range(3):
        same(list(given), whole[epoch * 9 : (epoch + 1) * 9])
    assert dataset.state_dict() == whole[-1].state


@pytest.mark.slow
@pytest.mark.parametrize("workers", [0, 1, 2, 3])
@pytest.mark.parametrize("cut", [0, 1, 4, 8])
def test_stateful_data_loader_restores_mid_epoch(workers, cut, whole):
    first = StatefulDataLoader(TorchDataset(loader()), batch_size=None, num_workers=workers)
    turn = iter(first)
    same(list(islice(turn, cut)), whole[:cut])
    state = first.state_dict()
    del turn
    second = StatefulDataLoader(TorchDataset(loader()), batch_size=None, num_workers=workers)
    second.load_state_dict(state)
    turn = iter(second)
    more = list(islice(turn, 1))
    again = second.state_dict()
    del turn
    third = StatefulDataLoader(TorchDataset(loader()), batch_size=None, num_workers=workers)
    third.load_state_dict(again)
    rest = list(third) if cut < 8 else []
    same(more + rest, whole[cut:9])


@pytest.mark.slow
@pytest.mark.parametrize("workers", [0, 2])
def test_stateful_data_loader_after_an_epoch(workers, whole):
    """Without workers it goes on by itself; with them it is told what was delivered, or refuses to repeat."""
    dataset = TorchDataset(loader())
    given = StatefulDataLoader(dataset, batch_size=None, num_workers=workers)
    batches = list(given)
    state = given.state_dict()
    if workers:
        dataset.load_state_dict(batches[-1].state)
    same(list(given), whole[9:18])
    fresh = TorchDataset(loader())
    after = StatefulDataLoader(fresh, batch_size=None, num_workers=workers)
    after.load_state_dict(state)
    if workers:
        with pytest.raises(RuntimeError, match="would begin at epoch 0, batch 0 once more"):
            list(after)
        fresh.load_state_dict(batches[-1].state)
    same(list(after), whole[9:18])


@pytest.mark.slow
def test_a_worker_s_state_is_of_one_number_of_workers():
    first = StatefulDataLoader(TorchDataset(loader()), batch_size=None, num_workers=2)
    turn = iter(first)
    next(turn)
    state = first.state_dict()
    del turn
    other = StatefulDataLoader(TorchDataset(loader(seed=5)), batch_size=None, num_workers=2)
    other.load_state_dict(state)
    with pytest.raises(DriftError, match="seed: the state says 4, this loader has 5"):
        list(other)


def test_no_batch_is_read_twice():
    """Each worker reads the ids of its own batches alone."""
    dataset = TorchDataset(loader())
    made = [list(dataset._work(worker, 3)) for worker in range(1, 3)]
    (split,) = dataset.loader.course.splits
    assert isinstance(split, Stub)
    assert split.read_rows == sum(int((row_ids(batches) >= 0).sum()) for batches in made)


EXAMPLES = re.findall(
    r"```python\n(.*?)```",
    (Path(__file__).parents[1] / "README.md")
    .read_text("utf-8")
    .split("## Feeding a training job")[1]
    .split("\n## ")[0],
    re.DOTALL,
)


@pytest.mark.slow
@pytest.mark.parametrize("number", [0, 1], ids=["torch", "datasets"])
def test_the_examples_of_the_readme_train(number, tmp_path, monkeypatch):
    """About twenty lines each, as they stand there: the loss falls, the state in the checkpoint goes on."""
    assert len(EXAMPLES[number].splitlines()) <= 22
    docs = [Doc(words(0, 30 + n % 9), copies=8) for n in range(12)]
    built = build(tmp_path / "builds", name="demo", docs=docs, max_id=299)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
    (tmp_path / "example.py").write_text(EXAMPLES[number])
    torch.manual_seed(0)
    found = runpy.run_path("example.py")
    assert found["loss"].item() < 1 < np.log(300)
    if number == 0:
        state = torch.load("checkpoint.pt")["loader"]
        assert (state["epoch"], state["batch"]) == found["loader"].position == (2, 0)
        fresh = found["data"].loader("train", global_batch_rows=4, seed=1)
        fresh.load_state_dict(state)
        fresh.verify(state)
        assert consumers.read(built.path, "checkpoint")[0]["state"] == state
    found["data"].close()
