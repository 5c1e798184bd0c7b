"""
One process or several: what is summed over ranks, how a model is wrapped, and a state that depends on neither.

`ddp`: every rank holds the whole model (torch's DistributedDataParallel).  `fsdp`: parameters, gradients and moments
are cut over the ranks (torch's fully_shard).  Both average gradients over ranks, so a step multiplies its part of a
sum by their number.  States are whole tensors by name: a run of two ranks goes on with one, and back.
"""

import json
import os
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, Literal

import torch
import torch.distributed as dist
from torch import Tensor, nn

from datapipe.errors import DriftError, MachineError, ManifestError

Kind = Literal["ddp", "fsdp"]
STORE = "DATAPIPE_STORE"  # a file in which the ranks that datapipe itself started find each other
PATIENCE = timedelta(minutes=30)  # of a rank that waits for another one
MOMENTS = ("exp_avg", "exp_avg_sq", "step")
# weights and moments by the parameter's name: {"weights": {name: tensor}, "exp_avg": {name: tensor}, ...}
State = dict[str, dict[str, Tensor]]


class Parallel:
    """A process that is alone; the base of those that are not."""

    rank, world = 0, 1

    def wrap(self, model: nn.Module) -> nn.Module:
        """The model whose forward pass takes part in what ranks do together."""
        return model

    def sum(self, values: Sequence[float]) -> list[float]:
        """Sums over the ranks, the same on each; float64."""
        return [float(value) for value in values]

    def maximum(self, value: float) -> float:
        """The largest over the ranks."""
        return value

    @contextmanager
    def no_sync(self, model: nn.Module) -> Generator[None]:  # noqa: ARG002  others need it
        """Backward passes in it leave gradients with their rank: the window's last pass brings them together."""
        yield

    def gather(self, value: Any) -> list[Any]:
        """The value of every rank, by rank; what JSON can hold."""
        return [value]

    def barrier(self) -> None:
        """Waits for every rank."""

    def close(self) -> None:
        """Leaves the group."""


class Group(Parallel):
    """Ranks of a process group; gloo, for there is no other on CPUs."""

    def __init__(self) -> None:
        self.rank, self.world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        method = f"file://{os.environ[STORE]}" if STORE in os.environ else "env://"
        try:
            dist.init_process_group("gloo", method, timeout=PATIENCE, rank=self.rank, world_size=self.world)
        except RuntimeError as error:  # also where another one had joined, failed and gone before this one was through
            raise _lost(self, error) from None

    def sum(self, values: Sequence[float]) -> list[float]:
        summed = torch.tensor(values, dtype=torch.float64)
        dist.all_reduce(summed)
        return summed.tolist()

    def maximum(self, value: float) -> float:
        largest = torch.tensor(value, dtype=torch.float64)
        dist.all_reduce(largest, dist.ReduceOp.MAX)
        return float(largest)

    def gather(self, value: Any) -> list[Any]:
        data = json.dumps(value).encode()
        longest = int(self.maximum(float(len(data))))
        ours = torch.frombuffer(bytearray(data.ljust(longest)), dtype=torch.uint8)
        parts = [torch.empty_like(ours) for _ in range(self.world)]
        dist.all_gather(parts, ours)
        return [json.loads(part.numpy().tobytes()) for part in parts]

    def barrier(self) -> None:
        dist.barrier()

    def close(self) -> None:
        dist.destroy_process_group()


class DDP(Group):
    """The whole model on every rank."""

    def wrap(self, model: nn.Module) -> nn.Module:
        return nn.parallel.DistributedDataParallel(model)

    @contextmanager
    def no_sync(self, model: nn.Module) -> Generator[None]:
        with model.no_sync():  # pyright: ignore[reportCallIssue]
            yield


class FSDP(Group):
    """A part of every parameter on each rank, block by block."""

    def wrap(self, model: nn.Module) -> nn.Module:
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard

        mesh = init_device_mesh("cpu", (self.world,))
        for block in model.blocks:  # pyright: ignore[reportGeneralTypeIssues]
            fully_shard(block, mesh=mesh)
        # cut again after a forward pass, too: else parameters are whole after one without a backward, and not the
        # optimizer's, whose moments state() would not find
        fully_shard(model, mesh=mesh, reshard_after_forward=True)
        return model

    @contextmanager
    def no_sync(self, model: nn.Module) -> Generator[None]:
        model.set_requires_gradient_sync(False)  # pyright: ignore[reportCallIssue]
        try:
            yield
        finally:
            model.set_requires_gradient_sync(True)  # pyright: ignore[reportCallIssue]


def start(kind: Kind) -> Parallel:
    """What the environment says: alone, or a rank of those that torchrun (or `--ranks`) has started."""
    world = os.environ.get("WORLD_SIZE", "1")
    if not world.isdecimal() or not os.environ.get("RANK", "0").isdecimal():
        raise ManifestError(f"WORLD_SIZE is {world!r}, RANK {os.environ.get('RANK')!r}: torchrun sets numbers")
    if int(world) == 1:
        return Parallel()
    return DDP() if kind == "ddp" else FSDP()


@contextmanager
def together(group: Parallel) -> Generator[None]:
    """Leaves the group at the end.  MachineError where another rank has gone: nothing goes on without it."""
    try:
        yield
    except RuntimeError as error:
        if group.world == 1 or "gloo" not in str(error):
            raise
        raise _lost(group, error) from None
    finally:
        group.close()


def _lost(group: Parallel, error: RuntimeError) -> MachineError:
    return MachineError(
        f"rank {group.rank} of {group.world} lost the others: {str(error).splitlines()[0]}; what they say comes "
        "first, then go on with --resume"
    )


# --- states ----------------------------------------------------------------------------------------------------


def state(model: nn.Module, optimizer: torch.optim.Optimizer) -> State:
    """Whole tensors of a model and its moments, by name.  Every rank has to ask, for each holds a part (fsdp)."""
    found: State = {"weights": {}} | {moment: {} for moment in MOMENTS}
    for name, parameter in model.named_parameters(remove_duplicate=True):
        found["weights"][name] = whole(parameter.detach())
        for moment in MOMENTS:
            if moment in optimizer.state[parameter]:
                found[moment][name] = whole(optimizer.state[parameter][moment])
    return found


def restore(model: nn.Module, optimizer: torch.optim.Optimizer | None, saved: State) -> None:
    """Puts a state into a model and its optimizer (None: weights alone); DriftError where names or shapes differ."""
    by_name = dict(model.named_parameters(remove_duplicate=True))
    _same(by_name, saved["weights"])
    with torch.no_grad():
        for name, parameter in by_name.items():
            parameter.copy_(_part(saved["weights"][name], parameter))
            if optimizer is not None and name in saved["exp_avg"]:
                optimizer.state[parameter] = {
                    "step": saved["step"][name].clone(),
                    "exp_avg": _part(saved["exp_avg"][name], parameter),
                    "exp_avg_sq": _part(saved["exp_avg_sq"][name], parameter),
                }


def _same(by_name: dict[str, nn.Parameter], weights: dict[str, Tensor]) -> None:
    ours = {name: tuple(parameter.shape) for name, parameter in by_name.items()}
    theirs = {name: tuple(tensor.shape) for name, tensor in weights.items()}
    if ours != theirs:
        wrong = sorted(name for name in ours.keys() | theirs.keys() if ours.get(name) != theirs.get(name))
        raise DriftError(
            f"the checkpoint holds another model: {wrong[0]} is {theirs.get(wrong[0], 'not there')} in it and "
            f"{ours.get(wrong[0], 'not there')} here ({len(wrong)} parameters differ)"
        )


def whole(tensor: Tensor) -> Tensor:
    """A copy of a tensor that may be cut over ranks."""
    full = tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor  # pyright: ignore[reportAttributeAccessIssue]
    return full.clone()


def _part(full: Tensor, like: Tensor) -> Tensor:
    """This rank's part of a whole tensor."""
    if not hasattr(like, "device_mesh"):
        return full.clone()
    from torch.distributed.tensor import distribute_tensor

    return distribute_tensor(full, like.device_mesh, like.placements)  # pyright: ignore[reportAttributeAccessIssue]
