"""Runs that were never made: losses of known constants on budgets of equal compute, with noise of a known seed."""

import numpy as np

from datapipe.estimate.constants import PUBLISHED, Constants
from datapipe.estimate.runs import Runs

BUDGETS = np.geomspace(6e18, 3e21, 9)


def runs(constants: Constants = PUBLISHED["besiroglu"], noise: float = 0.0, seed: int = 0, each: int = 26) -> Runs:
    """`each` sizes on every budget, from 0.15 to 6 times the optimum; noise: of log L, with heavy tails."""
    generator = np.random.default_rng(seed)
    plans = [
        (constants.optimum(budget)[0] * times, budget) for budget in BUDGETS for times in np.geomspace(0.15, 6, each)
    ]
    n, c = np.array(plans).T
    d = c / (6 * n)
    loss = constants.loss(n, d) * np.exp(noise * generator.standard_t(3, len(n)))  # pyright: ignore[reportArgumentType]
    return Runs(n, d, np.asarray(loss), tuple(f"row {i + 2}" for i in range(len(n))), "made.csv")


def csv(made: Runs, names: tuple[str, str, str] = ("N", "D", "loss")) -> str:
    rows = [
        f"{n!r},{d!r},{loss!r}" for n, d, loss in zip(*(x.tolist() for x in (made.n, made.d, made.loss)), strict=True)
    ]
    return "\n".join([",".join(names), *rows]) + "\n"
