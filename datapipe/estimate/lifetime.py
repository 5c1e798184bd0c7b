"""
What is cheapest over a model's life, training and serving; and what targets are worth that are seen again.

Serving a token takes 2N operations, training one 6N.  Sardana et al. 2401.00448 minimise 6ND + 2N Dinf at a fixed loss;
with rates and prices a served token weighs `weight` trained ones less or more.  The condition of the optimum,
alpha A N^-alpha = beta B D^-beta (1 + Dinf/(3D)), is Chinchilla's at Dinf = 0.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from datapipe.estimate.constants import Constants

R_STAR_D, R_STAR_N = 15.387756, 5.309743  # Muennighoff et al. 2305.16264
DECADES = 4  # N is looked for within 10^4 of the smallest that reaches the loss, or of the optimum


# --- what a served token costs ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Serving:
    """
    Tokens that the model will read and write, and what an operation costs, in training and in serving.

    mfu: share of the peak that is reached; price: of a device for a second; peak: operations of a device a second.
    The defaults make costs operations.
    """

    read: float = 0.0
    written: float = 0.0
    mfu_train: float = 1.0
    mfu_read: float = 1.0
    mfu_written: float = 1.0
    price_train: float = 1.0
    price_serve: float = 1.0
    peak_train: float = 1.0
    peak_serve: float = 1.0

    @property
    def of_training(self) -> float:
        """Cost of an operation of training."""
        return self.price_train / (self.peak_train * self.mfu_train)

    def of_serving(self, mfu: float) -> float:
        return self.price_serve / (self.peak_serve * mfu)

    @property
    def weight(self) -> float:
        """Dinf: served tokens, each as many as its operations cost in operations of training."""
        cost = self.read * self.of_serving(self.mfu_read) + self.written * self.of_serving(self.mfu_written)
        return cost / self.of_training

    def costs(self, n: float, d: float) -> tuple[float, float, float]:
        """(training, reading, writing): 6ND, 2N D_in, 2N D_out, each at its cost."""
        serve = 2 * n
        return (
            6 * n * d * self.of_training,
            serve * self.read * self.of_serving(self.mfu_read),
            serve * self.written * self.of_serving(self.mfu_written),
        )


# --- repeated data ----------------------------------------------------------------------------------------------------


def worth(d: float, unique: float, star: float = R_STAR_D) -> float:
    """What d targets, of which `unique` are different, are worth in different ones: D' = U + U R*(1 - exp(-R/R*))."""
    if d <= unique:
        return d
    return unique + unique * star * -math.expm1(-(d / unique - 1) / star)


def needed(worth_of: float, unique: float, star: float = R_STAR_D) -> float:
    """How many targets are worth that many different ones; inf where no number of repeats is."""
    if worth_of <= unique:
        return worth_of
    left = 1 - (worth_of - unique) / (unique * star)
    return unique * (1 - star * math.log(left)) if left > 0 else math.inf


def loss(constants: Constants, n: float, d: float, unique: float = math.inf) -> float:
    """
    The surface at D'; where constants.excess, also at N': parameters beyond what the unique targets are optimal for.
    """
    if constants.excess and math.isfinite(unique):
        seen = min(d, unique)
        fitting = constants.G * (seen * constants.G) ** (constants.a / constants.b)
        n = worth(n, fitting, R_STAR_N)
    return constants.loss(n, worth(d, unique))


# --- optima -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Choice:
    """A model and its training: loss at the given constants."""

    n: float
    d: float
    loss: float

    @property
    def compute(self) -> float:
        return 6 * self.n * self.d


def for_budget(constants: Constants, budget: float, unique: float = math.inf, dinf: float = 0.0) -> Choice | None:
    """
    The least loss with 6ND + 2N Dinf = budget; None where serving one parameter takes all of it.

    In closed form where nothing is served or repeated, else by search over N.
    """
    if budget <= 2 * dinf:
        return None
    n, d = constants.optimum(budget)
    if dinf == 0 and d <= unique:
        return Choice(n, d, constants.loss(n, d))

    def tokens(log_n: float) -> float:
        return budget / (6 * math.exp(log_n)) - dinf / 3

    def of(log_n: float) -> float:
        left = tokens(log_n)
        return math.log(loss(constants, math.exp(log_n), left, unique)) if left > 0 else math.inf

    reach = DECADES * math.log(10)
    middle = math.log(n)
    top = min(middle + reach, math.log(budget / (2 * dinf)) - 1e-9 if dinf else math.inf)
    found = _least(of, min(middle, top) - reach, top)
    return None if found is None else Choice(math.exp(found), tokens(found), math.exp(of(found)))


def for_loss(constants: Constants, target: float, dinf: float = 0.0, unique: float = math.inf) -> Choice | None:
    """
    The least 6ND + 2N Dinf that reaches a loss; None where no model does.

    Without repeats the root of the first-order condition, which has exactly one; with them a search over N.
    """
    if target <= constants.E:
        return None
    least = math.log((constants.A / (target - constants.E)) ** (1 / constants.alpha))  # log N; smaller models never do

    if math.isinf(unique):

        def condition(above: float) -> float:
            n = math.exp(least + above)
            d = constants.tokens_for(n, target)
            left = math.log(constants.alpha * constants.A) - constants.alpha * (least + above)
            right = math.log(constants.beta * constants.B) - constants.beta * math.log(d)
            return left - right - math.log1p(dinf / (3 * d))

        high = 1.0
        while condition(high) > 0:
            high *= 2
        above = _root(condition, 1e-9, high)
        n = math.exp(least + above)
        return Choice(n, constants.tokens_for(n, target), target)

    def tokens(log_n: float) -> float:
        return _tokens(constants, math.exp(log_n), target, unique)

    def of(log_n: float) -> float:
        d = tokens(log_n)
        return log_n + math.log(6 * d + 2 * dinf) if math.isfinite(d) else math.inf

    found = _least(of, least, least + DECADES * math.log(10) * 1.5)
    return None if found is None else Choice(math.exp(found), tokens(found), target)


def _tokens(constants: Constants, n: float, target: float, unique: float) -> float:
    """Targets, repeats counted, that take N parameters to a loss; inf where none do."""
    if not constants.excess:
        return needed(constants.tokens_for(n, target), unique)
    most = unique * (1 + 60 * R_STAR_D)
    if loss(constants, n, most, unique) > target:
        return math.inf
    return math.exp(_root(lambda log_d: loss(constants, n, math.exp(log_d), unique) - target, 0, math.log(most)))


def _root(of: Callable[[float], float], low: float, high: float) -> float:
    from scipy.optimize import brentq  # what a repeat is worth needs no scipy

    return float(brentq(of, low, high, xtol=1e-13))  # pyright: ignore[reportArgumentType]  no full output is asked for


def _least(of: Callable[[float], float], low: float, high: float) -> float | None:
    """Where a function with one valley is least: a grid, then Brent's search around its best point."""
    from scipy.optimize import minimize_scalar

    grid = [low + (high - low) * i / 800 for i in range(801)]
    values = [of(at) for at in grid]
    best = min(range(len(grid)), key=values.__getitem__)
    if math.isinf(values[best]):
        return None
    most = values[best] + 10  # what cannot be reached costs much, not infinitely: the search subtracts
    around = (grid[max(best - 1, 0)], grid[min(best + 1, len(grid) - 1)])
    result: Any = minimize_scalar(
        lambda at: min(of(at), most), bounds=around, method="bounded", options={"xatol": 1e-11}
    )
    found = float(result.x)
    return found if of(found) <= values[best] else grid[best]
