"""
What a run leaves: runs/<name>/run.json, metrics.parquet, curve.png, and the same in the terminal.
"""

import json
import math
import platform
import statistics
import textwrap
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import pyarrow as pa
import pyarrow.parquet as pq

from datapipe import feed
from datapipe.build_manifest.consumers import put
from datapipe.train import checkpoint, picture
from datapipe.train.optimizer import table
from datapipe.train.step import Counters, Outcome

if TYPE_CHECKING:
    from datapipe.train.run import Run

RUN, METRICS, CURVE = "run.json", "metrics.parquet", "curve.png"
FORMAT_VERSION = 1
# a row for each window; `loss` is that of the window before its update
SCHEMA = pa.schema(
    [
        ("step", pa.int64()),  # updates of the weights once this window was done
        ("epoch", pa.int64()),  # where the loader stands then
        ("batch", pa.int64()),
        ("loss", pa.float64()),  # null: a window without targets
        ("targets", pa.int64()),
        ("tokens", pa.int64()),
        ("rows", pa.int64()),
        ("norm", pa.float64()),  # of the gradient before it was clipped
        ("lr", pa.float64()),
        ("taken", pa.bool_()),  # false: skipped, or empty
        ("seconds", pa.float64()),  # that the step took, reading and looks left out
    ]
)
NOT_SHOWN = (
    (
        "A falling training loss shows that data, mask, gradients and optimizer work together. It shows nothing about "
        "texts that are not like the training data; only the validation loss and the strata say something about those."
    ),
    "One seed is one draw: how far another seed would end up elsewhere is not in this report (see --experiment).",
)


class Metrics:
    """The curve of a run, a row for each window."""

    def __init__(self, rows: Sequence[dict[str, Any]] = ()):
        self.rows = list(rows)

    def add(self, counters: Counters, position: tuple[int, int], outcome: Outcome, seconds: float) -> None:
        self.rows.append(
            {
                "step": counters.steps,
                "epoch": position[0],
                "batch": position[1],
                "loss": None if math.isnan(outcome.loss) else outcome.loss,
                "targets": outcome.targets,
                "tokens": outcome.tokens,
                "rows": outcome.rows,
                "norm": outcome.norm,
                "lr": outcome.lr,
                "taken": outcome.taken,
                "seconds": seconds,
            }
        )

    def table(self) -> pa.Table:
        return pa.Table.from_pylist(self.rows, SCHEMA)

    @classmethod
    def of(cls, table: pa.Table) -> Self:
        """Out of a checkpoint."""
        return cls(table.to_pylist())


@dataclass(frozen=True)
class Report:
    """run.json of a finished run, and where it lies."""

    folder: Path
    rank: int
    facts: dict[str, Any]
    curve: tuple[tuple[int, float], ...]  # (step, training loss) of every update

    def text(self) -> str:
        """For the terminal."""
        facts, loss = self.facts, self.facts["loss"]
        data, last = facts["data"], facts["looks"][-1]
        lines = [
            (
                f"{facts['name']}: {facts['model']['parameters']:,} parameters, {facts['counters']['steps']:,} updates "
                f"on {data['build']}@{data['version']}"
            ),
            (
                f"  consumed {facts['counters']['targets']:,} targets of {data['effective_tokens']:,} effective tokens "
                f"({facts['epochs']:.2f} epochs), {facts['counters']['skipped']} steps skipped"
            ),
            (
                f"  loss of train: first window {loss['first_window']:.6g}, last window {loss['last_window']:.6g}; "
                f"fixed sample {loss['sample_before']:.6g} before, {loss['sample_after']:.6g} after"
            ),
            *_course(facts["course"]),
        ]
        if last["validation"]:
            lines.append(_validation(facts["looks"]))
            lines += [f"    {line}" for line in _sources(facts["looks"])]
        lines += [f"  {line}" for line in strata(last["strata"])]
        lines += ["", *(f"  {line}" for line in picture.text(self.curve)), ""]
        lines += [
            textwrap.fill(each, 100, initial_indent="  ", subsequent_indent="    ") for each in facts["not_shown"]
        ]
        return "\n".join([*lines, "", f"in {self.folder}: {RUN}, {METRICS}, {CURVE}"])


def _course(course: dict[str, Any] | None) -> list[str]:
    """Norm, rate and speed, each as a range over the run; nothing where no step was taken."""
    if course is None:
        return []
    norm, lr = course["norm"], course["lr"]
    return [
        (
            f"  norm of the gradient {norm['least']:.3g} .. {norm['most']:.3g}, "
            f"clipped in {course['clipped']:,} steps; learning rate {lr['least']:.3g} .. {lr['most']:.3g}; "
            f"{course['targets_per_second']:,.0f} targets a second"
        )
    ]


def _validation(looks: Sequence[dict[str, Any]]) -> str:
    first, last = looks[0]["validation"], looks[-1]["validation"]
    spelt = first["bits_per_byte"] is not None
    bits = f"; bits per byte {first['bits_per_byte']:.4f} before, {last['bits_per_byte']:.4f} after" if spelt else ""
    return (
        f"  loss of validation: {first['loss']:.6g} before, {last['loss']:.6g} after, {last['targets']:,} targets{bits}"
    )


def _sources(looks: Sequence[dict[str, Any]]) -> list[str]:
    """A line a source: its loss, and bits per byte where ids spell bytes, before and after."""
    first, lines = looks[0]["sources"], list[str]()
    for name, last in looks[-1]["sources"].items():
        bits = [sums["bits_per_byte"] for sums in (first[name], last)]
        spelt = f", bits per byte {bits[0]:.4f} before, {bits[1]:.4f} after" if None not in bits else ""
        loss = f"{first[name]['loss']:.4f} before, {last['loss']:.4f} after"
        lines.append(f"{name}: {loss}, {last['targets']:,} targets{spelt}")
    return lines


def strata(found: Sequence[dict[str, Any]]) -> list[str]:
    """A line a stratum: successes of tries with their Wilson interval, and the loss; never one figure of all."""
    return [f"{one['name']}: {_stratum(one)}" for one in found]


def _stratum(one: dict[str, Any]) -> str:
    if not one["of"]:
        return f"not asked: {one['note']}"
    return (
        f"{one['right']:,} of {one['of']:,} right ({one['low']:.1%} .. {one['high']:.1%}, by chance "
        f"{one['chance']:.2%}), loss {one['loss']:.3f}"
    )


def finish(run: "Run") -> Report:
    """Write the report of a run that has all its steps; the first rank does, the others hand it back alone."""
    facts = _facts(run)
    curve = tuple((row["step"], row["loss"]) for row in run.metrics.rows if row["taken"])
    if run.parallel.rank == 0:
        put(run.folder / METRICS, _parquet(run.metrics.table()))
        put(run.folder / CURVE, picture.png(run.metrics.rows, run.looks, run.config.name))
        put(run.folder / RUN, (json.dumps(facts, indent=1, ensure_ascii=False) + "\n").encode())
        feed.consumed(run.dataset.path, run.loader.state_dict(), run.folder, kind="run", steps=run.done, seen=run.spans)
    run.parallel.barrier()
    return Report(run.folder, run.parallel.rank, facts, curve)


def _parquet(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression="zstd")
    return sink.getvalue().to_pybytes()


def _facts(run: "Run") -> dict[str, Any]:
    made, counters = run.dataset.made, run.step.counters
    split = made.splits.train
    lines = table(run.model, run.config.optimizer.decay)
    return {
        "format_version": FORMAT_VERSION,
        "name": run.config.name,
        "finished": datetime.now(UTC).isoformat(timespec="seconds"),
        "config": run.config.model_dump(mode="json"),
        "data": {
            "build": made.name,
            "version": made.version,
            "dataset_id": made.dataset_id,
            "recipe_id": made.recipe_id,
            "tokenizer": made.tokenizer and made.tokenizer.sha256,
            "sources": list(made.sources),
            "rows": split.sequences,
            "effective_tokens": split.tokens.targets,
        },
        "model": {
            "parameters": sum(line.numel for line in lines),
            "vocabulary": run.model.token.num_embeddings,  # pyright: ignore[reportAttributeAccessIssue]
            "table": [line.as_json() for line in lines],
        },
        "objective": run.config.objective,
        "counters": counters.as_json(),
        "consumed": run.loader.state_dict()["consumed"],
        "epochs": counters.targets / split.tokens.targets if split.tokens.targets else None,
        "seen": run.spans,
        "loss": _ends(run),
        "looks": [look.as_json() for look in run.looks],
        "resumed": run.resumed,
        "course": _ranges(run),
        "seconds": time.monotonic() - run.started,
        "software": checkpoint.software(run.parallel.world),
        "system": platform.platform(terse=True),
        "not_shown": list(NOT_SHOWN),
    }


def _ranges(run: "Run") -> dict[str, Any] | None:
    """
    What the steps were like.

    clipped: how many had a norm above `clip`;  targets_per_second: of the median step, looks and checkpoints left out
    """
    taken = [row for row in run.metrics.rows if row["taken"]]
    if not taken:
        return None
    norms, rates = [row["norm"] for row in taken], [row["lr"] for row in taken]
    return {
        "norm": {"least": min(norms), "most": max(norms)},
        "clipped": sum(norm > (run.config.clip or math.inf) for norm in norms),
        "lr": {"least": min(rates), "most": max(rates)},
        "targets_per_second": statistics.median(row["targets"] / row["seconds"] for row in taken),
    }


def _ends(run: "Run") -> dict[str, float | None]:
    """The training loss of the first and last window, each before its update; of the sample, before and after all."""
    losses = [row["loss"] for row in run.metrics.rows if row["taken"]]
    return {
        "first_window": losses[0] if losses else None,
        "last_window": losses[-1] if losses else None,
        "sample_before": run.looks[0].train.loss,
        "sample_after": run.looks[-1].train.loss,
    }
