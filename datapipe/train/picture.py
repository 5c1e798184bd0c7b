"""
The curve of a run, a PNG and a few lines of characters for the terminal; and strata of several seeds as a PNG.
"""

import io
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from datapipe.train.evaluate import Look
    from datapipe.train.tasks import Stratum

INK, TRAIN, VALIDATION, QUIET = "#222222", "#2b6cb0", "#c05621", "#8a8a8a"
SEEDS = ("#2b6cb0", "#c05621", "#2f855a", "#805ad5", "#b7791f", "#319795", "#97266d", "#4a5568")
DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))  # of a braille character, by row and column
BRAILLE = 0x2800


def png(rows: Sequence[dict[str, Any]], looks: Sequence["Look"], name: str) -> bytes:
    """Loss with validation points above, norm of the gradient and learning rate below; rows: of metrics.parquet."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    taken = [row for row in rows if row["taken"]]
    steps = [row["step"] for row in taken]
    figure = Figure(figsize=(8, 6), dpi=120, layout="constrained")
    FigureCanvasAgg(figure)
    loss, norm, rate = figure.subplots(3, 1, sharex=True, height_ratios=(3, 1, 1))
    losses = [row["loss"] for row in taken]
    loss.plot(steps, losses, color=TRAIN, linewidth=1.3, label="train, the step's window before its update")
    seen = [(look.step, look.validation.loss) for look in looks if look.validation]
    if seen:
        loss.plot(*zip(*seen, strict=True), "o", color=VALIDATION, markersize=4.5, label="validation, all targets")
    if losses and min(losses) > 0 and max(losses) / min(losses) > 30:
        loss.set_yscale("log")
    loss.set_ylabel("cross-entropy, nats per target")
    loss.legend(frameon=False)
    loss.set_title(f"{name}: {len(steps):,} updates", loc="left", color=INK)
    norm.plot(steps, [row["norm"] for row in taken], color=QUIET, linewidth=1.0)
    norm.set_ylabel("gradient norm")
    rate.plot(steps, [row["lr"] for row in taken], color=QUIET, linewidth=1.0)
    rate.set_ylabel("learning rate")
    rate.set_xlabel("updates of the weights")
    for axes in (loss, norm, rate):
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(axis="y", color="#e6e6e6", linewidth=0.6)
        axes.set_axisbelow(True)
    figure.align_ylabels()
    sink = io.BytesIO()
    figure.savefig(sink, format="png", metadata={"Software": None})
    return sink.getvalue()


def text(points: Sequence[tuple[float, float]], width: int = 60, height: int = 10) -> list[str]:
    """Lines of a curve in braille characters with its range at the left; logarithmic over more than 30-fold."""
    points = [(x, y) for x, y in points if math.isfinite(y)]
    if not points:
        return ["nothing to draw"]
    low, high = min(y for _, y in points), max(y for _, y in points)
    bend = math.log if low > 0 and high / low > 30 else float
    first, last = points[0][0], points[-1][0]
    cells = [[0] * width for _ in range(height)]
    for x, y in points:
        column = round((x - first) / max(last - first, 1) * (2 * width - 1))
        row = round((bend(high) - bend(y)) / max(bend(high) - bend(low), 1e-12) * (4 * height - 1))
        cells[row // 4][column // 2] |= DOTS[row % 4][column % 2]
    margin = [f"{high:.4g}", *[""] * (height - 2), f"{low:.4g}"]
    wide = max(len(label) for label in margin)
    drawn = ["".join(chr(BRAILLE + dots) for dots in line) for line in cells]
    lines = [f"{label:>{wide}} {line}" for label, line in zip(margin, drawn, strict=True)]
    return [*lines, f"{'':>{wide}} {first:<{width // 2}g}{last:>{width - width // 2}g}"]


def strata(seeds: Sequence[dict[str, "Stratum"]], names: Sequence[int], title: str) -> bytes:
    """A PNG: share of right answers by stratum, a dot and a Wilson interval for each seed; at the right the losses."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    asked = [name for name in seeds[0] if seeds[0][name].of]
    figure = Figure(figsize=(10, 1.2 + 0.55 * len(asked)), dpi=120, layout="constrained")
    FigureCanvasAgg(figure)
    share, loss = figure.subplots(1, 2, sharey=True, width_ratios=(3, 2))
    apart = min(0.12, 0.6 / len(seeds))
    for number, (found, seed) in enumerate(zip(seeds, names, strict=True)):
        shade = SEEDS[number % len(SEEDS)]
        places = [place + (number - (len(seeds) - 1) / 2) * apart for place in range(len(asked))]
        right = [found[name].right / found[name].of for name in asked]
        low = [max(0.0, at - found[name].low) for name, at in zip(asked, right, strict=True)]
        high = [max(0.0, found[name].high - at) for name, at in zip(asked, right, strict=True)]
        share.errorbar(right, places, xerr=[low, high], fmt="o", color=shade, markersize=4, linewidth=1.0)
        loss.plot([found[name].loss for name in asked], places, "o", color=shade, markersize=4, label=f"seed {seed}")
    chance = seeds[0][asked[0]].chance
    share.axvline(chance, color=QUIET, linestyle="--", linewidth=1.0, label=f"chance, {chance:.2%}")
    loss.axvline(-math.log(chance), color=QUIET, linestyle="--", linewidth=1.0)
    loss.set_xscale("log")
    share.set_yticks(range(len(asked)), asked)
    share.invert_yaxis()
    share.set_xlim(-0.02, 1.02)
    share.set_xlabel("share of right answers, with Wilson's 95 % interval")
    loss.set_xlabel("cross-entropy, nats per target")
    share.set_title(title, loc="left", color=INK)
    for axes in (share, loss):
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(axis="x", color="#e6e6e6", linewidth=0.6)
        axes.set_axisbelow(True)
    figure.legend(loc="outside lower right", ncols=len(seeds) + 1, frameon=False, fontsize="small")
    sink = io.BytesIO()
    figure.savefig(sink, format="png", metadata={"Software": None})
    return sink.getvalue()
