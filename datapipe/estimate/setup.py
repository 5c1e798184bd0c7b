"""
How a model would be trained: number types, optimizer, length and batch, and how it is split over devices.

Devices = dp x tp x pp.  tp ranks are neighbours, then dp, then pp; experts are spread over ep of the dp ranks.
"""

from dataclasses import dataclass
from typing import Literal

from datapipe.estimate.quantities import Problems
from datapipe.estimate.shape import Shape

Recompute = Literal["none", "selective", "full"]
Optimizer = Literal["adamw", "adamw8bit", "adafactor", "sgd", "momentum"]
Counting = Literal["published", "eager"]
OPTIMIZERS: tuple[Optimizer, ...] = ("adamw", "adamw8bit", "adafactor", "sgd", "momentum")
RECOMPUTE: tuple[Recompute, ...] = ("none", "selective", "full")
DTYPES = {"fp32": 4, "tf32": 4, "bf16": 2, "fp16": 2, "fp8": 1, "float32": 4, "bfloat16": 2, "float16": 2}
ZERO = ("0", "1", "2", "3", "fsdp")


@dataclass(frozen=True)
class Setup:
    """
    weights, gradients, activations: bytes of a number.  master: a float32 copy of the weights beside them.

    zero: 0 nothing is sharded over dp, 1 the optimizer's states, 2 and gradients, 3 and weights; fsdp: 3 as torch's
    fully_shard does it, block by block.
    length, microbatch: s and b, of one device and pass.  microbatches: m, passes before an update.
    interleave: v, chunks of layers a device has (1: 1F1B).  recompute: what of a layer is computed again.
    fused: attention that never stores scores.  mask: it is given a mask a row (packed rows), eager counting alone.
    counting: published: Korthikanti's, of a mixed-precision Megatron layer; eager: what torch keeps, by operation.
    bucket, live: numbers in DeepSpeed's buckets and gathered weights.  bucket_view: gradients lie in DDP's buckets.
    regather: weights sharded over dp are gathered for every microbatch.  flat: numbers in fused float32 buffers.
    gemm: bytes of the matrix library.
    fragmentation: share of activations, workspace and communication that the allocator cannot use.
    """

    length: int = 2048
    microbatch: int = 1
    microbatches: int = 1
    weights: int = 2
    gradients: int = 2
    activations: int = 2
    optimizer: Optimizer = "adamw"
    master: bool = True
    dp: int = 1
    tp: int = 1
    pp: int = 1
    ep: int = 1
    sequence_parallel: bool = False
    interleave: int = 1
    zero: int = 0
    fsdp: bool = False
    recompute: Recompute = "none"
    fused: bool = True
    dropout: bool = False
    mask: bool = False
    counting: Counting = "published"
    bucket: int = 500_000_000
    live: int = 1_000_000_000
    bucket_view: bool = False
    regather: bool = True
    flat: int = 0
    gemm: int = 32 * 2**20
    fragmentation: float = 0.05

    @property
    def devices(self) -> int:
        return self.dp * self.tp * self.pp

    @property
    def rows(self) -> int:
        """Of one update, over all devices."""
        return self.dp * self.microbatch * self.microbatches

    def split(self) -> str:
        """One line: dp 8, tp 4 with sequences, pp 2."""
        parts = [f"dp {self.dp}"] + [f"tp {self.tp}{' + sp' if self.sequence_parallel else ''}"] * (self.tp > 1)
        parts += [f"pp {self.pp}" + (f" x {self.interleave}" if self.interleave > 1 else "")] * (self.pp > 1)
        parts += [f"ep {self.ep}"] * (self.ep > 1) + [self.sharding] * bool(self.zero)
        return ", ".join(parts)

    @property
    def sharding(self) -> str:
        return "FSDP" if self.fsdp else f"ZeRO-{self.zero}"

    def check(self, shape: Shape, problems: Problems) -> None:
        """List everything that does not fit, under the names of the flags."""
        for flag, value in (
            ("dp", self.dp), ("tp", self.tp), ("pp", self.pp), ("ep", self.ep), ("length", self.length),
            ("microbatch", self.microbatch), ("microbatches", self.microbatches), ("interleave", self.interleave),
        ):  # fmt: skip
            if value < 1:
                problems.add(f"--{flag}", f"found {value}, expected at least 1")
        if min(self.dp, self.tp, self.pp, self.ep, self.interleave, self.length) < 1:
            return
        self._tensor(shape, problems)
        if shape.layers % (self.pp * self.interleave):
            chunks = f" x {self.interleave} chunks" if self.interleave > 1 else ""
            problems.add("--pp", f"{self.pp} stages{chunks} do not divide {shape.layers} layers")
        if self.interleave > 1 and self.pp == 1:
            problems.add("--interleave", f"found {self.interleave}, which needs --pp of 2 or more")
        if self.interleave > 1 and self.microbatches % self.pp:
            problems.add(
                "--interleave", f"needs --microbatches ({self.microbatches}) to be a multiple of --pp ({self.pp})"
            )
        if self.ep > 1 and not shape.experts:
            problems.add("--ep", f"found {self.ep}, and the model has no experts")
        elif shape.experts % self.ep:
            problems.add("--ep", f"{self.ep} ranks do not divide {shape.experts} experts")
        if self.dp % self.ep:
            problems.add("--ep", f"{self.ep} does not divide --dp {self.dp}, whose ranks hold the experts")
        if shape.positions and self.length > shape.positions:
            problems.add("--length", f"found {self.length}, expected at most the {shape.positions} learnt positions")

    def _tensor(self, shape: Shape, problems: Problems) -> None:
        if self.tp > 1:
            for what, number in (("heads", shape.heads), ("hidden", shape.hidden)):
                if number % self.tp:
                    problems.add("--tp", f"{self.tp} does not divide {what} {number}")
            if shape.keys % self.tp and self.tp % shape.keys:
                problems.add("--tp", f"{self.tp} neither divides nor is a multiple of kv_heads {shape.keys}")
            if shape.experts and shape.expert_width % self.tp:
                problems.add("--tp", f"{self.tp} does not divide the experts' hidden {shape.expert_width}")
            if self.sequence_parallel and self.length % self.tp:
                problems.add("--sp", f"--tp {self.tp} does not divide the length {self.length}")
        elif self.sequence_parallel:
            problems.add("--sp", "needs --tp of 2 or more")
