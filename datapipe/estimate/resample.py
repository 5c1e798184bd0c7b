"""
How far a fit can be trusted: bootstrap intervals, what single runs and the highest losses do, error on larger runs.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from datapipe.errors import DataError
from datapipe.estimate.constants import Constants
from datapipe.estimate.fitting import FLAT, Fit, Surface, again, fit
from datapipe.estimate.runs import LEAST, Runs

Floats = NDArray[np.float64]
LEVEL = 0.95
ALIKE = 1.05  # budgets that differ by less are the same
EACH = 300  # runs that are left out one at a time; of more runs those that pull most
FIGURES: dict[str, Callable[[Constants], float]] = {
    "E": lambda k: k.E, "A": lambda k: k.A, "B": lambda k: k.B, "alpha": lambda k: k.alpha, "beta": lambda k: k.beta,
    "a": lambda k: k.a,
}  # fmt: skip
OFTEN = 0.5  # share of resamples whose fit must be usable for an interval


@dataclass(frozen=True)
class Bootstrap:
    """Surfaces of resampled runs; asked: how many were drawn, those without a minimum or exponents above 0 too."""

    surfaces: tuple[Constants, ...]
    asked: int
    seed: int

    def interval(self, of: Callable[[Constants], float]) -> tuple[float, float] | None:
        """The middle 95 % of a figure; None where fewer than half of the resamples gave one."""
        values = np.array([of(one) for one in self.surfaces])
        values = values[np.isfinite(values)]
        if len(values) < max(2, OFTEN * self.asked):
            return None
        low, high = np.quantile(values, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
        return float(low), float(high)

    def error(self, of: Callable[[Constants], float]) -> float:
        """Standard error; nan where there is none."""
        values = np.array([of(one) for one in self.surfaces])
        values = values[np.isfinite(values)]
        return float(values.std(ddof=1)) if len(values) > 1 else float("nan")


def bootstrap(fitted: Fit, count: int, seed: int) -> Bootstrap:
    """Runs drawn with replacement, `count` times, each fitted from the minimum of all runs."""
    generator, size = np.random.default_rng(seed), len(fitted.runs)
    surfaces: list[Constants] = []
    for _ in range(count):
        weights = generator.multinomial(size, np.full(size, 1 / size)).astype(np.float64)
        surface = Surface(fitted.runs, weights)
        found = _usable(surface, again(surface, fitted.theta), fitted.runs)
        if found:
            surfaces.append(found)
    return Bootstrap(tuple(surfaces), count, seed)


def _usable(surface: Surface, theta: Floats, runs: Runs) -> Constants | None:
    usable = surface.slope(theta) <= FLAT and theta[3] > 0 and theta[4] > 0
    return surface.constants(theta, runs) if usable else None


# --- leverage ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Without:
    """The surface without some runs; None where the rest has none.  names: at most ten of them."""

    left_out: int
    names: tuple[str, ...]
    constants: Constants | None

    def as_json(self) -> dict[str, Any]:
        return {
            "left_out": self.left_out,
            "names": self.names,
            "constants": self.constants and self.constants.as_json(),
        }


def without_highest(fitted: Fit, most: int) -> list[Without]:
    """The fit without the 1, 2, ... `most` highest losses: often early, unstable or diverged runs."""
    order = np.argsort(-fitted.runs.loss, kind="stable")
    return [_without(fitted, order[:k], afresh=True) for k in range(1, most + 1) if len(fitted.runs) - k >= LEAST]


def without_each(fitted: Fit) -> list[Without]:
    """The fit without each run, the one that moves `a` most first; of many runs only those that pull most."""
    residuals, jacobian = Surface(fitted.runs).parts(fitted.theta)
    hat = np.einsum("ij,jk,ik->i", jacobian, np.linalg.pinv(jacobian.T @ jacobian), jacobian)
    pull = np.sqrt(np.maximum(hat, 0)) * np.minimum(np.abs(residuals), np.quantile(np.abs(residuals), 0.9))
    rows = np.argsort(-pull, kind="stable")[:EACH]
    found = [_without(fitted, rows[i : i + 1], afresh=False) for i in range(len(rows))]
    return sorted(found, key=lambda one: -shift(one, fitted.constants))


def shift(one: Without, all_runs: Constants) -> float:
    """How far `a` moves."""
    return abs(one.constants.a - all_runs.a) if one.constants else float("inf")


def _without(fitted: Fit, rows: NDArray[np.intp], *, afresh: bool) -> Without:
    """afresh: from several starts, for groups of runs that may have held the fit where it was."""
    weights = np.ones(len(fitted.runs))
    weights[rows] = 0
    if afresh:
        try:
            found = fit(fitted.runs.take(weights > 0)).constants
        except DataError:  # no minimum without them
            found = None
    else:
        surface = Surface(fitted.runs, weights)
        found = _usable(surface, again(surface, fitted.theta), fitted.runs)
    return Without(len(rows), tuple(fitted.runs.names[i] for i in rows[:10]), found)


# --- larger runs ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Beyond:
    """
    What the fit of the smaller runs says of the largest ones, that it has not seen.

    error: mean of |foretold/found - 1|; bias: mean of foretold/found - 1; times: their largest C over that of the rest.
    """

    left_out: int
    kept: int
    error: float
    bias: float
    worst: float
    times: float

    def as_json(self) -> dict[str, Any]:
        return dict(self.__dict__)


def beyond(runs: Runs, share: float) -> Beyond | None:
    """
    Fit without the runs of most compute, `share` of all, at least one; None where too few are left to fit.

    Runs of the same budget stay together: half a budget says little about the other half's error.
    """
    most = np.sort(runs.c)[::-1][max(1, round(share * len(runs))) - 1] / ALIKE
    large = runs.c >= most
    if np.sum(~large) < LEAST:
        return None
    kept, held = runs.take(~large), runs.take(large)
    surface = fit(kept).constants
    errors = np.array([surface.loss(n, d) for n, d in zip(held.n, held.d, strict=True)]) / held.loss - 1
    return Beyond(
        len(held), len(kept), float(np.abs(errors).mean()), float(errors.mean()), float(np.abs(errors).max()),
        float(held.c.max() / kept.c.max()),
    )  # fmt: skip


@dataclass(frozen=True)
class Evidence:
    """Where constants come from and how far they can be trusted; all of it empty for a published set."""

    fit: Fit | None = None
    boot: Bootstrap | None = None
    highest: tuple[Without, ...] = ()
    each: tuple[Without, ...] = ()
    beyond: Beyond | None = None

    def as_json(self) -> dict[str, Any] | None:
        if self.fit is None:
            return None
        fitted, boot = self.fit, self.boot
        intervals = {name: boot.interval(of) for name, of in FIGURES.items()} if boot else None
        errors = {name: boot.error(of) for name, of in FIGURES.items()} if boot and len(boot.surfaces) > 1 else None
        drawn = {"asked": boot.asked, "usable": len(boot.surfaces), "seed": boot.seed} if boot else None
        return {
            "runs": len(fitted.runs), "of": fitted.runs.source, "notes": list(fitted.runs.assumptions),
            "objective": fitted.objective, "relative_gradient": fitted.slope,
            "starts": fitted.tried, "starts_that_agree": fitted.agreed,
            "bootstrap": drawn, "intervals_95": intervals, "standard_errors": errors,
            "without_highest": [one.as_json() for one in self.highest],
            "without_one": [one.as_json() for one in self.each[:10]],
            "largest_foretold": self.beyond and self.beyond.as_json(),
        }  # fmt: skip


def examine(fitted: Fit, count: int, seed: int, highest: int, share: float) -> Evidence:
    """All of it; count 0: no intervals."""
    return Evidence(
        fitted, bootstrap(fitted, count, seed) if count else None, tuple(without_highest(fitted, highest)),
        tuple(without_each(fitted)), beyond(fitted.runs, share),
    )  # fmt: skip
