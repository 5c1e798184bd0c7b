"""
Two pictures as PNG: the loss over N and D with the range of the runs, and the optimum against tokens served.
"""

import io
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from datapipe.estimate import lifetime
from datapipe.estimate.constants import Box, Constants
from datapipe.estimate.quantities import show
from datapipe.estimate.runs import Runs
from datapipe.estimate.scaling import Plan

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

INK, QUIET, OPTIMUM, BOX, MARK, SECOND = "#222222", "#8a8a8a", "#c05621", "#2b6cb0", "#97266d", "#2f855a"
WIDE = Box((1e8, 1e11), (1e9, 1e13), (1e18, 1e24), (1, 1e4))  # what is drawn where no runs are known


def contours(constants: Constants, plans: Sequence[Plan], runs: Runs | None = None) -> bytes:
    """Loss over N and D (log, log), lines of equal 6ND, the optimum of each budget, the runs' range, and the plans."""
    figure, (axes,) = _figure(1, (8, 7))
    box = constants.box or WIDE
    n = _span([*box.n, *(plan.n for plan in plans)])
    d = _span([*box.d, *(plan.worth for plan in plans)])
    ns, ds = np.geomspace(*n, 160), np.geomspace(*d, 160)
    surface = constants.E + constants.A * ns[None, :] ** -constants.alpha + constants.B * ds[:, None] ** -constants.beta
    levels = constants.E + np.geomspace(surface.min() - constants.E, surface.max() - constants.E, 13)
    shades = axes.contourf(ns, ds, surface, levels=levels, cmap="YlGnBu_r", alpha=0.75)
    lines = axes.contour(ns, ds, surface, levels=levels[1:-1:2], colors="white", linewidths=0.7)
    axes.clabel(lines, fmt="%.2f", fontsize=8)
    _budgets(axes, n, d)
    _optima(axes, constants, n, d)
    if runs is not None:
        axes.plot(runs.n, runs.d, ".", color=INK, markersize=3, alpha=0.6, label=f"{len(runs)} runs")
    if constants.box:
        (n0, n1), (d0, d1) = box.n, box.d
        axes.plot(
            [n0, n1, n1, n0, n0], [d0, d0, d1, d1, d0], color=BOX, linewidth=1.6, label="range of the runs' N and D"
        )
        _edge(axes, box, n)
    for plan, shape in zip(plans, "o^sDPX", strict=False):
        axes.plot(plan.n, plan.worth, shape, color=MARK, markeredgecolor="white", markersize=9, label=_said(plan))
    axes.set(xscale="log", yscale="log", xlim=n, ylim=d, xlabel="N, parameters", ylabel="D, targets")
    again = "; plans at D', what their repeats are worth" if any(plan.worth < plan.d for plan in plans) else ""
    axes.set_title(f"L(N, D), constants {constants.name}{again}", loc="left", color=INK)
    figure.legend(loc="outside lower center", ncols=2, fontsize=8, frameon=False)
    figure.colorbar(shades, ax=axes, label="loss, nats a target", format="%.2f")
    return _png(figure)


def served(
    constants: Constants, target: float, most: float, unique: float = math.inf, at: float | None = None
) -> bytes:
    """
    N and D/N of the cheapest life at a loss, and what it saves, against tokens served (as many as they cost).

    most: how far the axis goes; at: a number of tokens to mark.
    """
    plain = lifetime.for_loss(constants, target, 0.0, unique)
    assert plain is not None, "the caller has asked for a loss that is reached"
    tokens = np.geomspace(most / 1e5, most, 90)
    choices = [lifetime.for_loss(constants, target, float(dinf), unique) for dinf in tokens]
    assert all(choices), "what is reached without serving is reached with it"
    best = [choice for choice in choices if choice]
    whole = [plain.compute + 2 * plain.n * dinf for dinf in tokens]
    saved = [1 - (c.compute + 2 * c.n * dinf) / all_ for c, dinf, all_ in zip(best, tokens, whole, strict=True)]
    figure, (sizes, ratios, savings) = _figure(3, (8, 7.2))
    sizes.plot(tokens, [choice.n for choice in best], color=OPTIMUM)
    sizes.axhline(plain.n, color=QUIET, linewidth=1, linestyle="--", label="the optimum without serving")
    sizes.set_ylabel("N, parameters")
    ratios.plot(tokens, [choice.d / choice.n for choice in best], color=BOX)
    ratios.axhline(plain.d / plain.n, color=QUIET, linewidth=1, linestyle="--")
    ratios.set_ylabel("D/N, targets a parameter")
    if constants.box:
        ratios.axhline(constants.box.ratio[1], color=SECOND, linewidth=1.2, label="largest D/N of the runs")
        ratios.legend(frameon=False, fontsize=8)
    savings.plot(tokens, [100 * part for part in saved], color=SECOND)
    savings.set_ylabel("saved of all operations, %")
    savings.set_xlabel("Dinf, tokens served over the model's life, each as many as it costs")
    for axes in (sizes, ratios, savings):
        axes.set_xscale("log")
        if at:
            axes.axvline(at, color=MARK, linewidth=1.8, label=f"asked: {show(at, 'number')}" if axes is sizes else None)
    for axes in (sizes, ratios):
        axes.set_yscale("log")
        _plain(axes)
    sizes.legend(frameon=False, fontsize=8)
    title = f"cheapest model of loss {target:.4g} against what it serves, constants {constants.name}"
    sizes.set_title(title, loc="left", color=INK)
    return _png(figure)


# --- parts ------------------------------------------------------------------------------------------------------------


def _figure(rows: int, size: tuple[float, float]) -> "tuple[Figure, Sequence[Axes]]":
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=size, dpi=120, layout="constrained")
    FigureCanvasAgg(figure)
    found: Any = figure.subplots(rows, 1, sharex=True, squeeze=False)
    for axes in found[:, 0]:
        axes.spines[["top", "right"]].set_visible(False)
        if rows > 1:
            axes.grid(color="#e6e6e6", linewidth=0.6)
        axes.set_axisbelow(True)
    return figure, list(found[:, 0])


def _png(figure: "Figure") -> bytes:
    sink = io.BytesIO()
    figure.savefig(sink, format="png", metadata={"Software": None})
    return sink.getvalue()


def _span(values: Sequence[float]) -> tuple[float, float]:
    """A bit more than the values on a logarithmic axis."""
    return min(values) / 1.8, max(values) * 1.8


def _budgets(axes: "Axes", n: tuple[float, float], d: tuple[float, float]) -> None:
    """Lines of equal 6ND for each power of ten, with their C where they come in from the left or the top."""
    low, high = math.ceil(math.log10(6 * n[0] * d[0])), math.floor(math.log10(6 * n[1] * d[1]))
    ends = np.array(n)
    for power in range(low, high + 1):
        axes.plot(
            ends,
            10.0**power / (6 * ends),
            color=INK,
            linewidth=0.5,
            linestyle=":",
            label="6ND, operations" if power == low else None,
        )
        at = max(n[0] * 1.15, 10.0**power / (6 * d[1] / 1.25))
        height = 10.0**power / (6 * at)
        if at < n[1] / 1.5 and height > d[0] * 1.3:
            axes.annotate(f"$10^{{{power}}}$", (at, height), fontsize=7, color=INK, ha="left", va="bottom")


def _optima(axes: "Axes", constants: Constants, n: tuple[float, float], d: tuple[float, float]) -> None:
    """The optimum of every budget; broken where no run was."""
    budgets = np.geomspace(6 * n[0] * d[0], 6 * n[1] * d[1], 300)
    points = np.array([constants.optimum(float(budget)) for budget in budgets])
    inside = np.array([bool(constants.box) and not constants.box.outside(*map(float, point)) for point in points])  # pyright: ignore[reportOptionalMemberAccess]
    axes.plot(
        points[:, 0], points[:, 1], color=OPTIMUM, linewidth=1.3, linestyle="--", label="optimum of a budget, outside"
    )
    if inside.any():
        axes.plot(points[inside, 0], points[inside, 1], color=OPTIMUM, linewidth=2.6, label="the same, inside")


def _edge(axes: "Axes", box: Box, n: tuple[float, float]) -> None:
    """Where C or D/N leave the range although N and D are inside."""
    ns = np.geomspace(max(n[0], box.n[0]), min(n[1], box.n[1]), 200)
    for at, edge in enumerate((box.c[1] / (6 * ns), box.c[0] / (6 * ns), box.ratio[0] * ns, box.ratio[1] * ns)):
        kept = np.where((edge >= box.d[0]) & (edge <= box.d[1]), edge, np.nan)
        label = "range of their C and D/N" if at == 0 else None
        axes.plot(ns, kept, color=BOX, linewidth=1.0, linestyle="--", label=label)


def _plain(axes: "Axes") -> None:
    """Ticks of a logarithmic axis as people say them, also where it spans less than a power of ten."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    low, high = axes.get_ylim()
    decades = math.log10(high / low)
    subs = (1.0,) if decades > 3 else (1.0, 3.0) if decades > 1.5 else (1.0, 2.0, 3.0, 5.0, 7.0)
    axes.yaxis.set_major_locator(LogLocator(subs=subs, numticks=12))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: show(value, "number")))
    axes.yaxis.set_minor_formatter(NullFormatter())


def _said(plan: Plan) -> str:
    outside = "" if plan.outside is None else " (inside)" if not plan.outside else " (outside)"
    return f"{plan.name}: N {show(plan.n, 'number')}, D {show(plan.d, 'number')}, loss {plan.loss.total:.3f}{outside}"
