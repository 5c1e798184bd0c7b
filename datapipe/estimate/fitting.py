"""
Fit of L = E + A N^-alpha + B D^-beta: Huber loss of log L through log-sum-exp, as Hoffmann et al. 2203.15556 (D.2).

The sum is minimised, scaled by 1/delta, never the mean: the mean is so small that optimizers of default tolerance stop
at their start (Besiroglu et al. 2404.10102 found this in the published constants).  That the gradient vanishes is
checked afterwards, whatever the optimizer says of itself.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize, nnls

from datapipe.errors import DataError
from datapipe.estimate.constants import Constants
from datapipe.estimate.runs import Runs

DELTA = 1e-3
FLAT = 1e-4  # largest slope that counts as none, as a share of what it would be if all residuals pulled one way
GRID = np.arange(0.05, 1.51, 0.05)  # of both exponents, for the starts
STARTS = 12  # of the grid that are followed
SOURCE = (
    "fitted here: Huber loss (delta 1e-3) of log L, log-sum-exp, sum over runs, L-BFGS and Newton from several starts"
)

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Fit:
    """
    objective: sum of the Huber losses.  slope: see FLAT.  agreed: starts of `tried` that ended at this minimum.
    """

    constants: Constants
    theta: Floats
    objective: float
    slope: float
    agreed: int
    tried: int
    runs: Runs


class Surface:
    """
    Huber losses of runs at theta = (log A', log B', log E, alpha, beta), A' and B' at the middle of the runs.

    In the middle A' and alpha hardly depend on each other, and the same goes for B' and beta.
    """

    def __init__(self, runs: Runs, weights: Floats | None = None):
        self.x, self.y, self.z = np.log(runs.n), np.log(runs.d), np.log(runs.loss)
        self.mx, self.my = float(self.x.mean()), float(self.y.mean())
        self.weights = np.ones(len(runs)) if weights is None else weights

    def parts(self, theta: Floats) -> tuple[Floats, Floats]:
        """(residuals of log L, their derivatives by theta: runs x 5)."""
        a, b, e, alpha, beta = theta
        dx, dy = self.x - self.mx, self.y - self.my
        logs = np.stack([a - alpha * dx, b - beta * dy, np.full_like(dx, e)])
        top = logs.max(axis=0)
        shares = np.exp(logs - top)
        total = shares.sum(axis=0)
        shares /= total
        jacobian = np.stack([shares[0], shares[1], shares[2], -shares[0] * dx, -shares[1] * dy], axis=1)
        return top + np.log(total) - self.z, jacobian

    def value(self, theta: Floats) -> float:
        return float(np.sum(self.weights * huber(self.parts(theta)[0])))

    def scaled(self, theta: Floats) -> tuple[float, Floats]:
        """What is minimised: the sum over delta, and its gradient; slopes are then about as large as a run's share."""
        residuals, jacobian = self.parts(theta)
        pulls = self.weights * np.clip(residuals, -DELTA, DELTA) / DELTA
        return float(np.sum(self.weights * huber(residuals))) / DELTA, pulls @ jacobian

    def slope(self, theta: Floats) -> float:
        _, jacobian = self.parts(theta)
        most = self.weights @ np.abs(jacobian)
        return float(np.max(np.abs(self.scaled(theta)[1]) / np.where(most > 0, most, 1)))

    def constants(self, theta: Floats, runs: Runs) -> Constants:
        a, b, e, alpha, beta = map(float, theta)
        with np.errstate(over="ignore"):  # of a resample without any slope
            big_a, big_b = float(np.exp(a + alpha * self.mx)), float(np.exp(b + beta * self.my))
        return Constants("fit", float(np.exp(e)), big_a, big_b, alpha, beta, f"{SOURCE}; {runs.source}", runs.box)


def huber(residuals: Floats) -> Floats:
    size = np.abs(residuals)
    return np.where(size <= DELTA, 0.5 * residuals**2, DELTA * (size - 0.5 * DELTA))


def fit(runs: Runs) -> Fit:
    """The best of several starts; DataError where no start ends in a minimum, or the exponents are no exponents."""
    surface = Surface(runs)
    ends = sorted((polish(surface, start) for start in starts(surface, runs)), key=surface.value)
    best = ends[0]
    slope = surface.slope(best)
    if slope > FLAT:
        raise DataError(
            f"--runs: {runs.source}: no minimum was found (relative gradient {slope:.1e}, expected below {FLAT:.0e}); "
            "the runs do not determine five constants: vary N and D/N more"
        )
    if best[3] <= 0 or best[4] <= 0:
        raise DataError(
            f"--runs: {runs.source}: the best fit has alpha {best[3]:.3g}, beta {best[4]:.3g}: in these runs "
            "loss does not fall with both N and D, so nothing can be foretold from them"
        )
    value = surface.value(best)
    agreed = sum(surface.value(end) < value + max(1e-4 * value, 1e-12) for end in ends)
    return Fit(surface.constants(best, runs), best, value, slope, agreed, len(ends), runs)


def starts(surface: Surface, runs: Runs) -> list[Floats]:
    """
    The best points of a grid of exponents, at each of which E, A, B are linear (variable projection, 2603.22339).

    Least squares of L relative to itself, none negative; no two neighbours of the grid are both taken.
    """
    dx, dy = surface.x - surface.mx, surface.y - surface.my
    ones = np.ones(len(runs))
    found: list[tuple[float, int, int, Floats]] = []
    for i, alpha in enumerate(GRID):
        for j, beta in enumerate(GRID):
            columns = np.stack([np.exp(-alpha * dx), np.exp(-beta * dy), ones], axis=1) / runs.loss[:, None]
            solved, _ = nnls(columns, ones)
            theta = np.array([*np.log(np.maximum(solved, 1e-9)), alpha, beta])
            found.append((surface.value(theta), i, j, theta))
    found.sort(key=lambda one: one[:3])
    taken: list[tuple[float, int, int, Floats]] = []
    for one in found:
        if all(max(abs(one[1] - other[1]), abs(one[2] - other[2])) > 1 for other in taken):
            taken.append(one)
        if len(taken) == STARTS:
            break
    return [one[3] for one in taken]


def polish(surface: Surface, theta: Floats, rounds: int = 40) -> Floats:
    """L-BFGS, then Newton steps on the runs that lie within delta, until the slope is gone."""
    options = {"ftol": 1e-15, "gtol": 1e-10, "maxiter": 2000, "maxfun": 5000, "maxcor": 20}
    for _ in range(3):
        theta = minimize(surface.scaled, theta, jac=True, method="L-BFGS-B", options=options).x
        theta = _newton(surface, theta, rounds)
        if surface.slope(theta) < FLAT / 10:
            break
    return theta


def again(surface: Surface, theta: Floats) -> Floats:
    """The minimum of nearly the same runs, from that of all of them."""
    near = _newton(surface, theta, 60)
    return near if surface.slope(near) < FLAT / 10 else polish(surface, near)


def _newton(surface: Surface, theta: Floats, rounds: int) -> Floats:
    """Damped Newton: curvature of the quadratic runs, made large enough to fall; ends where nothing falls."""
    value, gradient = surface.scaled(theta)
    damping = 1e-3
    for _ in range(rounds):
        residuals, jacobian = surface.parts(theta)
        inner = surface.weights * (np.abs(residuals) <= DELTA) / DELTA
        curvature = (jacobian * inner[:, None]).T @ jacobian
        size = np.diag(curvature) + 1e-6 * float(np.trace(curvature)) + 1e-9
        for _ in range(12):
            step = np.linalg.solve(curvature + damping * np.diag(size), -gradient)
            reached, slope = surface.scaled(theta + step)
            if reached < value:
                theta, damping = theta + step, max(damping / 5, 1e-12)
                break
            damping *= 5
        else:
            return theta
        if value - reached <= 1e-15 * abs(value):
            return theta
        value, gradient = reached, slope
    return theta
