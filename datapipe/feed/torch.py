"""
A loader under torch's DataLoader, with any number of workers, in the loader's own order.

With batch_size=None torch asks its n workers in turn for a batch each, so worker w makes batches w, w + n, ... from
where the iteration begins.  Workers have copies of the loader; what was delivered is known only to whoever takes the
batches: `DataLoader` here keeps the loader in the main process at what it has handed out.  Under another DataLoader
with workers, say what was delivered before the next iteration: `dataset.load_state_dict(batch.state)`.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch.utils import data

from datapipe.errors import DriftError
from datapipe.feed.loader import Loader
from datapipe.feed.state import Progress, restore


class TorchDataset(data.IterableDataset):
    """
    The rest of a loader's epoch, for DataLoader(dataset, batch_size=None, num_workers=n); a Stateful of torchdata.

    An iteration by workers that would begin where an earlier one began is refused: it would repeat batches.
    """

    def __init__(self, loader: Loader):
        super().__init__()
        self.loader = loader
        self._begun = torch.full((1,), -1).share_memory_()  # where workers began last: epoch x batches + batch
        self._restored: tuple[Progress, int, int] | None = None
        self._state: dict[str, Any] | None = None

    def __len__(self) -> int:
        return len(self.loader)

    def __iter__(self) -> Iterator[Any]:
        worker = data.get_worker_info()
        if worker is None:
            return iter(self.loader)
        return self._work(worker.id, worker.num_workers)

    def _work(self, worker: int, workers: int) -> Iterator[Any]:
        """A worker's batches: each as the loader's own, made with the batches between them counted, not read."""
        course, at, skip = self.loader.course, self.loader.progress, worker
        epoch = at.epoch
        if self._restored is not None:
            (at, skip, epoch), self._restored = self._restored, None
        elif worker == 0:
            self._begin(at)
        while True:
            while skip and at.epoch == epoch:
                at, skip = course.passed(at), skip - 1
            if at.epoch != epoch:
                break
            batch = course.batch(at)
            at, skip = batch.after, workers - 1
            self._state = _share(at, skip, epoch, worker, workers)
            yield self.loader.form(batch)
        self._state = _share(at, skip, epoch, worker, workers)
        self.loader.move(at)  # a persistent worker goes on with the next epoch

    def _begin(self, at: Progress) -> None:
        place = self._place(at)
        if int(self._begun) >= place:
            raise RuntimeError(
                f"this iteration would begin at epoch {at.epoch}, batch {at.batch} once more: an earlier one did. Say "
                "what was delivered, by dataset.load_state_dict(batch.state), or use datapipe.feed.torch.DataLoader"
            )
        self._begun.fill_(place)

    def _place(self, at: Progress) -> int:
        return at.epoch * len(self.loader) + at.batch

    def move(self, at: Progress) -> None:
        """Go on from what was delivered."""
        self.loader.move(at)
        self._begun.fill_(-1)

    def state_dict(self) -> dict[str, Any]:
        """The loader's; in a worker, where that worker stands."""
        worker = data.get_worker_info()
        if worker is None:
            return self.loader.state_dict()
        if self._state is None:
            at = self.loader.progress
            self._state = _share(at, worker.id, at.epoch, worker.id, worker.num_workers)
        return self._state

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        worker = data.get_worker_info()
        if worker is None:
            self.loader.load_state_dict(state_dict)
            self._begun.fill_(-1)
            return
        if state_dict["workers"] != [worker.id, worker.num_workers]:
            raise DriftError(f"workers: the state is of worker {state_dict['workers']}, "
                             f"this is {[worker.id, worker.num_workers]} (number, of how many)")  # fmt: skip
        at = restore(state_dict["loader"], self.loader.course.identity, len(self.loader))
        self._restored, self._state = (at, state_dict["skip"], state_dict["epoch"]), dict(state_dict)
        self._begun.fill_(max(int(self._begun), self._place(at)))


def _share(at: Progress, skip: int, epoch: int, worker: int, workers: int) -> dict[str, Any]:
    """Where a worker stands: after its last batch of an epoch, with `skip` batches of others before its next."""
    return {"loader": at.state(), "skip": skip, "epoch": epoch, "workers": [worker, workers]}


class DataLoader(data.DataLoader):
    """
    torch's DataLoader over a loader; options are torch's (num_workers, pin_memory, multiprocessing_context, ...).

    The loader given moves as batches are taken, so that epochs follow each other and state_dict() is always the
    loader's own: it loads into any number of workers and ranks.
    """

    def __init__(self, loader: Loader, **options: Any):
        super().__init__(TorchDataset(loader), batch_size=None, **options)
        self.loader = loader

    def __iter__(self) -> Iterator[Any]:  # pyright: ignore[reportIncompatibleMethodOverride]  torch names a class
        return super().__iter__() if self.num_workers == 0 else self._taken()

    def _taken(self) -> Iterator[Any]:
        if self._iterator is not None and self._left != self.loader.position:
            self._iterator = None  # persistent workers stand elsewhere
        self._left = None
        assert isinstance(self.dataset, TorchDataset)
        stood = self.loader.progress
        for batch in super().__iter__():
            if self.loader.progress is not stood:  # what these workers have ready is not what comes next
                raise RuntimeError("this iteration is over: another one has moved the loader, or its state or weights "
                                   "changed; iterate again, and it goes on")  # fmt: skip
            self.dataset.move(stood := batch.progress)
            yield batch
        self._left = self.loader.position

    _left: tuple[int, int] | None = None

    def state_dict(self) -> dict[str, Any]:
        return self.loader.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        assert isinstance(self.dataset, TorchDataset)
        self.dataset.load_state_dict(state)
