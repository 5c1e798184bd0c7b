"""
Flags that say what is trained, how, and on which machine; read at once, so that all that is wrong is said at once.

They come as text: a quantity has a unit, and click would stop at the first that is wrong.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from datapipe.cli.command import PATH

if TYPE_CHECKING:
    from datapipe.estimate.parallel import Machine
    from datapipe.estimate.quantities import Problems
    from datapipe.estimate.setup import Setup
    from datapipe.estimate.shape import Shape

F = TypeVar("F", bound=Callable[..., Any])
Given = Mapping[str, Any]

MODEL = (
    ("--model", {"type": PATH, "help": "Hugging Face's config.json, a train manifest or checkpoint, a YAML of keys."}),
    ("--params", {"metavar": "N", "help": "Parameters (7B, 7e9); alone: a llama-like shape is assumed, and said."}),
    ("--layers", {"metavar": "N", "help": "Layers (blocks)."}),
    ("--width", {"metavar": "N", "help": "Width of the stream between layers."}),
    ("--heads", {"metavar": "N", "help": "Heads of attention.  [default: width / 128]"}),
    ("--kv-heads", {"metavar": "N", "help": "Heads of keys and values.  [default: heads]"}),
    ("--head-width", {"metavar": "N", "help": "Width of one head.  [default: width / heads]"}),
    ("--hidden", {"metavar": "N", "help": "Width inside the MLP.  [default: 4 x width, gated 8/3]"}),
    ("--gated/--no-gated", {"default": None, "help": "The MLP has a gate (SwiGLU)."}),
    ("--vocabulary", {"metavar": "N", "help": "Tokens of the tokenizer.  [default: 32,000, and said]"}),
    ("--tied/--untied", {"default": None, "help": "The head shares the embedding's weights."}),
    ("--positions", {"metavar": "N", "help": "Learnt positions, where there are any."}),
    ("--experts", {"metavar": "N", "help": "Experts of a sparse MLP."}),
    ("--active", {"metavar": "N", "help": "Experts chosen for a token."}),
)  # fmt: skip
SETUP = (
    ("--dtype", {"help": "Of weights and activations: bf16, fp16, fp32, fp8.  [default: bf16, or as the model]"}),
    ("--gradients", {"help": "Type of gradients.  [default: that of weights]"}),
    ("--activation-dtype", {"help": "Type of activations.  [default: that of weights]"}),
    ("--master/--no-master", {"default": None, "help": "Float32 copies of weights.  [default: if dtype is smaller]"}),
    ("--optimizer", {"default": "adamw", "show_default": True, "help": "adamw, adamw8bit, adafactor, momentum, sgd."}),
    ("--zero", {"default": "0", "show_default": True, "help": "What dp shards: 0, 1, 2, 3, fsdp."}),
    ("--dp", {"default": "1", "help": "Data-parallel ranks."}),
    ("--tp", {"default": "1", "help": "Tensor-parallel ranks."}),
    ("--sp", {"is_flag": True, "help": "Sequence parallelism in the tensor-parallel group."}),
    ("--pp", {"default": "1", "help": "Pipeline stages."}),
    ("--interleave", {"default": "1", "help": "Chunks of layers a stage has (1: plain 1F1B)."}),
    ("--ep", {"default": "1", "help": "Ranks of dp that the experts are spread over."}),
    ("--length", {"metavar": "N", "help": "Tokens of a row.  [default: 2,048]"}),
    ("--microbatch", {"default": "1", "help": "Rows of one pass on one device."}),
    ("--microbatches", {"default": "1", "help": "Passes before an update."}),
    ("--recompute", {"help": "Made again, not kept: none, selective, full.  [default: none, or as the model]"}),
    ("--fused/--unfused", {"default": True, "show_default": True, "help": "Attention that never stores its scores."}),
    ("--dropout", {"metavar": "SHARE", "help": "Above 0 masks are kept.  [default: 0, or as the model]"}),
)  # fmt: skip
FINE = (
    ("--counting", {"help": "Activations as `published`, or as torch keeps them: `eager`.  [default: by model]"}),
    ("--packed", {"is_flag": True, "help": "Rows of several documents, with a mask a row (eager counting)."}),
    ("--bucket", {"default": "500M", "show_default": True, "help": "Numbers in a ZeRO bucket."}),
    ("--live", {"default": "1B", "show_default": True, "help": "Weights gathered at once by ZeRO-3."}),
    ("--bucket-view", {"is_flag": True, "help": "DDP's gradients lie in its buckets."}),
    ("--no-regather", {"is_flag": True, "help": "Weights sharded over dp are gathered once a step, not once a pass."}),
    ("--flat-buffer", {"default": "0", "help": "Numbers in fused float32 buffers."}),
    ("--gemm", {"default": "32MiB", "show_default": True, "help": "Workspace of the matrix library."}),
    ("--fragmentation", {"default": "5%", "show_default": True, "help": "Lost by the allocator of what changes."}),
)  # fmt: skip
MACHINE = (
    ("--flops", {"default": "312TFLOP/s", "show_default": True, "help": "Peak rate of a device."}),
    ("--efficiency", {"default": "50%", "show_default": True, "help": "Share of it that matrix products reach."}),
    ("--per-node", {"default": "8", "show_default": True, "help": "Devices in a node."}),
    ("--bandwidth", {"default": "300GB/s", "show_default": True, "help": "What a device sends inside a node."}),
    ("--node-bandwidth", {"default": "25GB/s", "show_default": True, "help": "What a device sends between nodes."}),
    ("--latency", {"default": "5us", "show_default": True, "help": "Of a message inside a node."}),
    ("--node-latency", {"default": "15us", "show_default": True, "help": "Of a message between nodes."}),
)  # fmt: skip
CHANGES = (
    ("--set", {"multiple": True, "metavar": "TERM=VALUE", "help": "Another value for a term or a whole group."}),
    ("--without", {"multiple": True, "metavar": "TERM", "help": "Leave a term or a whole group out."}),
)


def options(*groups: tuple[tuple[str, dict[str, Any]], ...]) -> Callable[[F], F]:
    """The flags of several groups, in this order in --help."""

    def decorate(function: F) -> F:
        for name, settings in reversed([option for group in groups for option in group]):
            names = (name, "sets") if name == "--set" else (name,)
            function = click.option(*names, **settings)(function)
        return function

    return decorate


# --- reading them ---------------------------------------------------------------------------------------------------


def shape_of(given: Given, problems: "Problems") -> "tuple[Shape | None, Mapping[str, Any] | None]":
    """(the shape, `model` of a train manifest if it comes from one); None where a problem stands in the way."""
    from datapipe.estimate import read
    from datapipe.estimate.shape import Shape, typical

    counts = (
        "layers",
        "width",
        "heads",
        "kv_heads",
        "head_width",
        "hidden",
        "vocabulary",
        "positions",
        "experts",
        "active",
    )
    numbers = {
        key: value for key in counts
        if (value := problems.parse(f"--{key.replace('_', '-')}", given[key], "count", least=1)) is not None
    }  # fmt: skip
    switches = {key: given[key] for key in ("gated", "tied") if given[key] is not None}
    parameters = problems.parse("--params", given["params"], "number", least=1)
    model: Mapping[str, Any] | None = None
    if given["model"] is not None:
        vocabulary = numbers_of(given, "vocabulary")
        positions = numbers_of(given, "positions") or numbers_of(given, "length")
        shape, model = read.read(Path(given["model"]), vocabulary, positions)
        shape = replace(shape, **numbers | switches)
        model = None if set(numbers) - {"vocabulary", "positions"} or switches else model
    elif "layers" in numbers and "width" in numbers:
        shape = Shape(**_filled(numbers, switches))
    elif parameters and not numbers and not switches:
        return typical(parameters), None
    else:
        asked = [f"--{key}" for key in ("layers", "width") if given[key] is None]
        if asked:
            problems.add(
                "the model",
                f"give --model FILE, --params N alone, or --layers and --width ({' and '.join(asked)} missing)",
            )
        return None, None
    return (replace(shape, given=float(parameters)) if parameters else shape), model


def numbers_of(given: Given, key: str) -> int | None:
    """A count that is read a second time elsewhere, where its problem is said."""
    from datapipe.estimate.quantities import QuantityError, parse

    try:
        return None if given.get(key) is None else int(parse(given[key], "count", least=1))
    except QuantityError:
        return None


def _filled(numbers: Mapping[str, Any], switches: Mapping[str, bool]) -> dict[str, Any]:
    """What is not given, from what is; each assumption is said."""
    made, assumed = dict(numbers), []
    width, gated = made["width"], switches.get("gated", False)
    if "heads" not in made:
        made["heads"] = max(1, width // 128)
        assumed.append(f"{made['heads']} heads are assumed: width / 128")
    if "hidden" not in made:
        made["hidden"] = -(-8 * width // (3 * 256)) * 256 if gated else 4 * width
        assumed.append(f"hidden {made['hidden']:,} is assumed: {'8/3' if gated else '4'} x width")
    if "vocabulary" not in made:
        made["vocabulary"] = 32_000
        assumed.append("a vocabulary of 32,000 is assumed; give --vocabulary")
    return made | dict(switches) | {"norm": "rms" if gated else "layer", "assumed": tuple(assumed)}


def setup_of(given: Given, shape: "Shape | None", model: Mapping[str, Any] | None, problems: "Problems") -> "Setup":
    """How it is trained."""
    from datapipe.estimate.setup import DTYPES, OPTIMIZERS, RECOMPUTE, ZERO, Setup

    def chosen(flag: str, value: str, known: Any) -> str:
        if value not in known:
            problems.add(flag, f"found {value!r}, expected one of {', '.join(known)}")
            return next(iter(known))
        return value

    def number(flag: str, kind: Any = "count", least: float = 1) -> Any:
        value = problems.parse(f"--{flag}", given[flag.replace("-", "_")], kind, least=least)
        return 1 if value is None else value

    trained = model or {}  # datapipe train's models say a part of it themselves
    weights = DTYPES[chosen("--dtype", given["dtype"] or ("fp32" if model else "bf16"), DTYPES)]
    gradients = DTYPES[chosen("--gradients", given["gradients"], DTYPES)] if given["gradients"] else weights
    recompute = given["recompute"] or ("none" if trained.get("recompute", "none") == "none" else "full")
    dropout = number("dropout", "share", 0) if given["dropout"] is not None else trained.get("dropout", 0)
    kept = given["activation_dtype"]
    zero = chosen("--zero", given["zero"], ZERO)
    counting = chosen(
        "--counting", given["counting"] or ("eager" if model is not None else "published"), ("published", "eager")
    )
    longest = shape.positions if shape is not None and shape.positions else 2048
    return Setup(
        length=number("length") if given["length"] is not None else min(2048, longest),
        weights=weights,
        gradients=gradients,
        activations=DTYPES[chosen("--activation-dtype", kept, DTYPES)] if kept else weights,
        optimizer=chosen("--optimizer", given["optimizer"], OPTIMIZERS),  # pyright: ignore[reportArgumentType]
        master=weights < 4 if given["master"] is None else given["master"],
        zero=3 if zero == "fsdp" else int(zero),
        fsdp=zero == "fsdp",
        sequence_parallel=given["sp"],
        recompute=chosen("--recompute", recompute, RECOMPUTE),  # pyright: ignore[reportArgumentType]
        fused=given["fused"],
        dropout=dropout > 0,
        mask=given["packed"],
        counting=counting,  # pyright: ignore[reportArgumentType]
        bucket_view=given["bucket_view"],
        regather=not given["no_regather"],
        flat=number("flat-buffer", least=0),
        gemm=number("gemm", "bytes", 0),
        fragmentation=number("fragmentation", "share", 0),
        **{
            name: number(name)
            for name in ("dp", "tp", "pp", "ep", "interleave", "microbatch", "microbatches", "bucket", "live")
        },
    )


def machine_of(given: Given, problems: "Problems") -> "Machine":
    """What the devices do."""
    from datapipe.estimate.parallel import Machine

    def number(flag: str, kind: Any, *, above: bool = True) -> Any:
        value = problems.parse(f"--{flag}", given[flag.replace("-", "_")], kind, above=above)
        return 1.0 if value is None else value

    return Machine(
        rate=number("flops", "FLOP/s"), efficiency=number("efficiency", "share"), per_node=number("per-node", "count"),
        inside=number("bandwidth", "bytes/s"), between=number("node-bandwidth", "bytes/s"),
        latency_inside=number("latency", "seconds", above=False),
        latency_between=number("node-latency", "seconds", above=False),
    )  # fmt: skip


def devices_of(given: Given, setup: "Setup", problems: "Problems") -> int:
    """How many a search may use."""
    value = problems.parse("--devices", given["devices"], "count", least=1)
    return setup.devices if value is None else int(value)


def batch_of(given: Given, setup: "Setup", devices: int, problems: "Problems") -> int:
    """Rows of one update in a search; said if it cannot be spread."""
    value = problems.parse("--batch", given["batch"], "count", least=1)
    return max(setup.rows, devices) if value is None else int(value)


def checked(shape: "Shape | None", setup: "Setup", problems: "Problems") -> None:
    """Everything that does not fit together, beside what is wrong by itself."""
    if shape is not None:
        shape.check(problems)
        setup.check(shape, problems)
    problems.refuse()
