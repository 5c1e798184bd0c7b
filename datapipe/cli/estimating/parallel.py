"""datapipe estimate parallel"""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from datapipe.cli.command import json_option, output_option
from datapipe.cli.estimating.options import (
    CHANGES,
    FINE,
    MACHINE,
    MODEL,
    SETUP,
    batch_of,
    checked,
    devices_of,
    machine_of,
    options,
    setup_of,
    shape_of,
)  # fmt: skip
from datapipe.cli.text import say

if TYPE_CHECKING:
    from datapipe.estimate.parallel import Cost, Load
    from datapipe.estimate.quantities import Problems
    from datapipe.estimate.search import Candidate
    from datapipe.estimate.terms import Table

SHOWN = 10  # splits
LOAD = (
    ("--tokens", {"metavar": "N", "help": "Tokens to train on: how long it takes."}),
    ("--build", {"metavar": "BUILD", "help": "Packed rows of a build: work by squares of document lengths."}),
    ("--stage-costs", {"metavar": "N,N,...", "help": "Of each stage, in any unit.  [default: from the shape]"}),
    ("--expert-loads", {"metavar": "N,N,...", "help": "Tokens of each expert, in any unit."}),
    ("--capacity", {"metavar": "FACTOR", "help": "Of an expert, over the mean load; what is more is dropped."}),
    ("--search", {"is_flag": True, "help": "All splits of --devices, the fastest first."}),
    ("--devices", {"metavar": "N", "help": "With --search: how many.  [default: dp x tp x pp]"}),
    ("--batch", {"metavar": "ROWS", "help": "With --search: rows of an update.  [default: as given, or one a device]"}),
    ("--memory", {"metavar": "SIZE", "help": "With --search: only splits that fit a device of this size."}),
)  # fmt: skip


@click.command
@options(MODEL, SETUP, LOAD, MACHINE, CHANGES, FINE)
@output_option
@json_option
def parallel(as_json: bool, output: Path, **given: Any) -> None:
    """
    What a step sends and how long it takes: computation, communication, the pipeline's bubble, imbalance.

    The bottleneck comes first.  Rates and bandwidths are flags; their defaults are those of no machine of yours.
    """
    from datapipe.estimate import flops, search
    from datapipe.estimate import parallel as model_of_cost
    from datapipe.estimate.quantities import Problems
    from datapipe.estimate.terms import changes

    problems = Problems()
    load = _load(given, output, problems)
    if load.rows is not None and given["length"] is None:
        given["length"] = str(load.rows.length)
    shape, model = shape_of(given, problems)
    setup, machine = setup_of(given, shape, model, problems), machine_of(given, problems)
    tokens = problems.parse("--tokens", given["tokens"], "number", above=True)
    size = problems.parse("--memory", given["memory"], "bytes", above=True)
    devices = devices_of(given, setup, problems)
    rows = batch_of(given, setup, devices, problems)
    for flag in ("devices", "batch", "memory"):
        if given[flag] is not None and not given["search"]:
            problems.add(f"--{flag}", "needs --search")
    if shape is not None:
        load.check(shape, setup, problems)
    checked(shape, setup, problems)
    assert shape is not None
    plain = model_of_cost.cost(shape, setup, machine, load)
    put = changes(given["sets"], given["without"], plain.times.names(), "seconds")
    cost = model_of_cost.cost(shape, setup, machine, load, put, given["without"])
    found = search.splits(shape, setup, devices, rows, machine, size, load) if given["search"] else None
    operations = flops.table(shape, setup.length)
    if as_json:
        say(json.dumps(_json(cost, operations, tokens, found)))
    else:
        say(_text(cost, operations, tokens, found, devices, rows, size))


def _load(given: dict[str, Any], output: Path, problems: "Problems") -> "Load":
    from datapipe.estimate.parallel import Load

    def numbers(flag: str) -> tuple[float, ...]:
        text = given[flag.replace("-", "_")]
        parts = [] if text is None else text.split(",")
        return tuple(v for part in parts if (v := problems.parse(f"--{flag}", part.strip(), "number")) is not None)

    rows = None
    if given["build"] is not None:
        from datapipe.build_manifest import resolve
        from datapipe.estimate import rows as rows_of

        rows = rows_of.read(resolve(given["build"], output))
    capacity = problems.parse("--capacity", given["capacity"], "number", above=True)
    return Load(numbers("stage-costs"), numbers("expert-loads"), capacity or 0.0, rows)


def _json(cost: "Cost", operations: "Table", tokens: float | None, found: "list[Candidate] | None") -> dict[str, Any]:
    from datapipe.estimate.shape import describe

    name, seconds = cost.bottleneck()
    made: dict[str, Any] = {
        "model": {"name": cost.shape.name, "shape": describe(cost.shape), "parameters": cost.shape.parameters},
        "split": cost.setup.split(), "devices": cost.setup.devices, "bottleneck": {"name": name, "seconds": seconds},
        "seconds": cost.seconds, "tokens_per_second": cost.tokens_per_second, "mfu": cost.mfu, "dropped": cost.dropped,
        "times": cost.times.as_json(), "volumes": cost.volumes.as_json(), "flops": operations.as_json(),
        "notes": list(cost.notes),
    }  # fmt: skip
    if tokens is not None:
        made["training_seconds"] = tokens / cost.tokens_per_second
    return made | ({} if found is None else {"splits": [one.as_json() for one in found]})


def _text(
    cost: "Cost", operations: "Table", tokens: float | None, found: "list[Candidate] | None", devices: int, rows: int,
    size: float | None,
) -> str:  # fmt: skip
    from datapipe.cli.estimating import shown

    parts = [
        _head(cost, tokens),
        f"{cost.times.title}\n{shown.terms(cost.times)}",
        f"{cost.volumes.title}\n{shown.terms(cost.volumes, share=False)}"
        if cost.volumes.terms
        else "nothing is sent: one device",
        f"{operations.title}\n{shown.terms(operations)}",
    ]
    if found is not None:
        parts.append(_splits(found, devices, rows, size))
    parts += [
        shown.listed("what is modelled", [*cost.notes, *operations.assumptions]),
        shown.sources(cost.times, operations),
    ]
    return shown.joined(parts)


def _head(cost: "Cost", tokens: float | None) -> str:
    from datapipe.cli.text import count, safe
    from datapipe.estimate.quantities import show
    from datapipe.estimate.shape import describe

    setup, (name, seconds), lost = cost.setup, cost.bottleneck(), cost.lost()
    what = "computation" if name == "compute" else name
    first = f"bottleneck: {what}, {100 * seconds / cost.seconds:.0f} % of a step"
    if lost is not None and lost[0] != name:
        first += f"; of the rest most is {lost[0]}, {100 * lost[1] / cost.seconds:.0f} %"
    rate = f"{show(cost.tokens_per_second, 'number')} tokens/s, MFU {show(cost.mfu, 'share')}"
    speed = (
        f"a step of {count(setup.rows, 'row')} ({setup.rows * setup.length:,} tokens) takes "
        f"{show(cost.seconds, 'seconds')}: {rate}"
    )
    passes = f"{setup.microbatch} x {setup.microbatches} passes"
    lines = [
        first,
        f"{safe(cost.shape.name)}: {cost.shape.parameters:,.0f} parameters, {describe(cost.shape)}",
        f"{count(setup.devices, 'device')}: {setup.split()}; rows of {setup.length:,}, {passes}",
        speed,
    ]
    if tokens is not None:
        whole = tokens / cost.tokens_per_second
        lines.append(
            f"{show(tokens, 'number')} tokens take {show(whole, 'seconds')}, "
            f"{whole * setup.devices / 3600:,.0f} hours of a device"
        )
    return "\n".join(lines)


def _splits(found: "list[Candidate]", devices: int, rows: int, size: float | None) -> str:
    from datapipe.cli.estimating import shown
    from datapipe.cli.text import count
    from datapipe.estimate.quantities import both, show

    fitting = f" that fit {both(size)}" if size is not None else ""
    title = f"splits of {count(devices, 'device')}{fitting}, {count(rows, 'row')} an update, the fastest first"
    if not found:
        return f"{title}\n  none"
    lines = []
    for one in found[:SHOWN]:
        lost = one.cost.lost()
        lines.append([
            one.setup.split(), one.setup.recompute, f"{one.setup.microbatch} x {one.setup.microbatches}",
            show(one.seconds, "seconds"),
            f"{100 * one.cost.mfu:.0f} %", show(one.bytes, "bytes"),
            f"{lost[0]} {100 * lost[1] / one.seconds:.0f} %" if lost else "",
        ])  # fmt: skip
    more = f"\n  ... {len(found) - SHOWN} more" if len(found) > SHOWN else ""
    header = ["split", "recompute", "rows x passes", "step", "MFU", "memory", "largest loss"]
    return "\n".join([title, *shown.ranked(lines, header, (2, 3, 4, 5))]) + more
