"""datapipe estimate memory"""

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from datapipe.cli.command import json_option
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
    from datapipe.estimate.measure import Measured
    from datapipe.estimate.memory import Memory
    from datapipe.estimate.parallel import Machine
    from datapipe.estimate.quantities import Problems
    from datapipe.estimate.search import Candidate, Change

SHOWN = 10  # configurations that fit
RUNNABLE = 4 * 10**9  # bytes that --measure may need
FIT = (
    ("--fit", {"metavar": "SIZE", "help": "Memory of a device: what to change, what fits, fastest first."}),
    ("--devices", {"metavar": "N", "help": "With --fit: how many devices there are.  [default: dp x tp x pp]"}),
    ("--batch", {"metavar": "ROWS", "help": "With --fit: rows of an update.  [default: as given, or one a device]"}),
    ("--measure", {"is_flag": True, "help": "Run the bundled model here and compare each term with what is kept."}),
)  # fmt: skip


@click.command
@options(MODEL, SETUP, FIT, CHANGES, FINE, MACHINE)
@json_option
def memory(as_json: bool, **given: Any) -> None:
    """
    The memory of a device: weights, gradients, optimizer, activations, workspace, communication.

    Of a pipeline the stage that needs most is shown.  --measure without a model runs the reference model of 18,320
    parameters.
    """
    from datapipe.estimate import search
    from datapipe.estimate.memory import estimate
    from datapipe.estimate.quantities import Problems
    from datapipe.estimate.terms import changes

    problems = Problems()
    if given["measure"] and all(given[key] is None for key in ("model", "params", "layers", "width")):
        given = _reference(given)
        shape, model = given.pop("shape")
    else:
        shape, model = shape_of(given, problems)
    setup, machine = setup_of(given, shape, model, problems), machine_of(given, problems)
    size = problems.parse("--fit", given["fit"], "bytes", above=True)
    devices = devices_of(given, setup, problems)
    rows = batch_of(given, setup, devices, problems)
    for flag in ("devices", "batch"):
        if given[flag] is not None and given["fit"] is None:
            problems.add(f"--{flag}", "needs --fit")
    if given["measure"] and model is None and shape is not None:
        problems.add(
            "--measure", "runs the models of datapipe train: name one by --model, or give none for the reference"
        )
    checked(shape, setup, problems)
    assert shape is not None
    if given["measure"]:
        from datapipe.estimate.measure import own

        assert model is not None
        setup = own(setup, model.get("recompute", "none") != "none", bool(model.get("dropout", 0)))
    known = {name for n in range(setup.pp) for name in _names(shape, setup, n)}
    put = changes(given["sets"], given["without"], known, "bytes")
    found = estimate(shape, setup, put, given["without"])
    measured = _measure(model, found, problems) if given["measure"] and model is not None else None
    candidates = search.splits(shape, setup, devices, rows, machine, size) if size else []
    advice = search.advice(shape, setup, machine) if size and found.total > size else []
    if as_json:
        say(json.dumps(_json(found, size, advice, candidates, measured)))
    else:
        say(_text(found, machine, size, devices, rows, advice, candidates, measured))


def _measure(model: Mapping[str, Any], found: "Memory", problems: "Problems") -> "Measured":
    from datapipe.estimate.measure import measure

    if found.total > RUNNABLE:
        needs = f"would need {found.total / 1e9:.1f} GB, more than {RUNNABLE / 1e9:.0f} GB; give a smaller --microbatch"
        problems.add("--measure", needs)
        problems.refuse()
    return measure(model, found.shape, found.setup)


def _reference(given: dict[str, Any]) -> dict[str, Any]:
    """The reference model on its task: 16 rows of 12 tokens of 16 symbols."""
    from datapipe.estimate import read

    model = {"kind": "reference", "width": 32, "heads": 4, "layers": 2, "hidden": 64, "positions": 12}
    if given["recompute"] not in (None, "none"):
        model["recompute"] = "blocks"
    shape = read.of({"model": model, "vocabulary": 16}, "the reference model")
    return given | {"shape": (shape, model), "microbatch": "16" if given["microbatch"] == "1" else given["microbatch"]}


def _names(shape: Any, setup: Any, number: int) -> set[str]:
    from datapipe.estimate.memory import stage

    return stage(shape, setup, number).names()


def _json(
    found: "Memory",
    size: float | None,
    advice: "list[Change]",
    candidates: "list[Candidate]",
    measured: "Measured | None",
) -> dict[str, Any]:
    from datapipe.estimate.shape import describe

    worst = found.worst
    made: dict[str, Any] = {
        "model": {"name": found.shape.name, "shape": describe(found.shape), "parameters": found.shape.parameters},
        "split": found.setup.split(), "devices": found.setup.devices, "device": worst.as_json(),
        "stages": [table.total for table in found.stages],
    }  # fmt: skip
    if size is not None:
        made |= {"fit": size, "fits": found.total <= size, "configurations": [one.as_json() for one in candidates]}
        made["changes"] = [
            {"change": c.name, "bytes": c.bytes, "saved": c.saved, "price": c.price, "device_time": c.longer}
            for c in advice
        ]
    return made | ({"measured": measured.as_json()} if measured else {})


def _text(
    found: "Memory", machine: "Machine", size: float | None, devices: int, rows: int, advice: "list[Change]",
    candidates: "list[Candidate]", measured: "Measured | None",
) -> str:  # fmt: skip
    from datapipe.cli.estimating import shown
    from datapipe.estimate.memory import letters

    worst = found.worst
    parts = [
        _head(found),
        f"{shown.terms(worst)}\n  {letters(found.shape, found.setup)}",
        _sum(found, size),
        _stages(found),
    ]
    if measured:
        parts.append(_measured(measured))
    if size is not None:
        parts += [_advice(found, size, advice), _fits(candidates, size, devices, rows)]
    assumptions = list(worst.assumptions)
    if size is not None:
        assumptions += [
            f"ranked on this machine: {machine.describe()}",
            "ranked without overlap of communication and computation",
        ]
    parts += [shown.listed("assumed", assumptions), shown.sources(worst)]
    return shown.joined(parts)


def _head(found: "Memory") -> str:
    from datapipe.cli.text import safe
    from datapipe.estimate.quantities import show
    from datapipe.estimate.shape import describe

    shape, setup = found.shape, found.setup
    active = f" ({show(shape.active_parameters, 'count')} met by a token)" if shape.experts else ""
    whole = setup.weights * shape.parameters
    return (
        f"{safe(shape.name)}: {shape.parameters:,.0f} parameters{active}, {describe(shape)}\n"
        f"{setup.split()}; rows of {setup.length:,} tokens, {setup.microbatch} a pass; recompute {setup.recompute}\n"
        f"{show(shape.parameters, 'count')} x {setup.weights} bytes = {show(whole, 'bytes')} is only the weights, "
        f"over all devices; a {found.worst.title} holds"
    )


def _sum(found: "Memory", size: float | None) -> str:
    from datapipe.estimate.quantities import both

    said = f"a device needs {both(found.total)}"
    if size is not None:
        over = found.total - size
        said += f" and has {both(size)}: " + (
            f"{both(over)} too much" if over > 0 else f"it fits, {both(-over)} are left"
        )
    largest, groups = found.worst.dominant(), found.worst.groups()
    if largest is None or not found.total:
        return said
    group = max(groups, key=lambda name: groups[name])
    said += f"\nthe largest part is {group}, {100 * groups[group] / found.total:.0f} %"
    return f"{said}; the largest term {largest.name}, {100 * largest.value / found.total:.0f} %"


def _stages(found: "Memory") -> str:
    from datapipe.estimate.quantities import show

    if len(found.stages) == 1:
        return ""
    return "stages: " + ", ".join(f"{n} {show(table.total, 'bytes')}" for n, table in enumerate(found.stages, 1))


def _advice(found: "Memory", size: float, advice: "list[Change]") -> str:
    from datapipe.cli.estimating import shown
    from datapipe.estimate.quantities import show

    if found.total <= size:
        return ""
    rows = [
        [
            c.name,
            show(c.saved, "bytes"),
            show(c.bytes, "bytes"),
            "yes" if c.bytes <= size else "",
            shown.change(c.longer),
            c.price,
        ]
        for c in advice
    ]
    header = ["change", "saves", "leaves", "fits", "device time", "price"]
    title = "what to change first: one at a time, the cheapest first, the batch last"
    return "\n".join([title, *shown.ranked(rows, header, (1, 2, 4))])


def _fits(candidates: "list[Candidate]", size: float, devices: int, rows: int) -> str:
    from datapipe.cli.estimating import shown
    from datapipe.cli.text import count
    from datapipe.estimate.quantities import both, show

    title = f"configurations of {count(devices, 'device')} that fit {both(size)}, {count(rows, 'row')} an update, "
    title += "the fastest first"
    if not candidates:
        return f"{title}\n  none: more devices, fewer rows, or shorter ones"
    shown_rows = [
        [c.setup.split(), c.setup.recompute, f"{c.setup.microbatch} x {c.setup.microbatches}", show(c.bytes, "bytes"),
         show(c.seconds, "seconds"), f"{100 * c.cost.mfu:.0f} %"]
        for c in candidates[:SHOWN]
    ]  # fmt: skip
    more = f"\n  ... {len(candidates) - SHOWN} more" if len(candidates) > SHOWN else ""
    return (
        "\n".join(
            [
                title,
                *shown.ranked(
                    shown_rows, ["split", "recompute", "rows x passes", "memory", "step", "MFU"], (2, 3, 4, 5)
                ),
            ]
        )
        + more
    )


def _measured(measured: "Measured") -> str:
    from datapipe.cli.estimating import shown

    rows = [
        [row.name, f"{row.estimated:,.0f}", f"{row.measured:,.0f}", f"{100 * row.error:+.2f} %"]
        for row in (*measured.states, *measured.saved, measured.activations)
    ]
    title = "measured here: bytes that torch kept between forward and backward, each storage once, without parameters"
    return f"{title}\n" + shown.columns(["part", "estimated", "measured", "error"], rows, (1, 2, 3))
