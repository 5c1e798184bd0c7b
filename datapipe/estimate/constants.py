"""
The loss surface L(N, D) = E + A N^-alpha + B D^-beta: published constants by name, and what follows in closed form.

N: parameters; D: targets that training consumes; L: nats a target; C = 6ND: operations of training.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from datapipe.estimate.quantities import Problems


@dataclass(frozen=True)
class Box:
    """
    Where runs were: least and most of N, D, C and D/N.  Outside of it a fit is a guess.

    of: whose runs.
    """

    n: tuple[float, float]
    d: tuple[float, float]
    c: tuple[float, float]
    ratio: tuple[float, float]
    of: str = "the runs"

    def outside(self, n: float, d: float) -> dict[str, float]:
        """By how many times N, D, C or D/N lie beyond the box; empty: inside."""
        found = {"N": (n, self.n), "D": (d, self.d), "C": (6 * n * d, self.c), "D/N": (d / n, self.ratio)}
        beyond = {name: max(low / value, value / high) for name, (value, (low, high)) in found.items()}
        return {name: times for name, times in beyond.items() if times > 1 + 1e-9}

    def as_json(self) -> dict[str, Any]:
        return {"N": self.n, "D": self.d, "C": self.c, "D/N": self.ratio, "of": self.of}


@dataclass(frozen=True)
class Constants:
    """
    One surface.  source: who says so; box: where it was fitted, None where that is not known to us.

    excess: too many parameters for the unique data count less, too, as in Muennighoff et al.
    """

    name: str
    E: float
    A: float
    B: float
    alpha: float
    beta: float
    source: str
    box: Box | None = None
    excess: bool = False

    def loss(self, n: float, d: float) -> float:
        return self.E + self.A * n**-self.alpha + self.B * d**-self.beta

    # --- of one budget ----------------------------------------------------------------------------------------------

    @property
    def G(self) -> float:  # noqa: N802  the paper's name
        return (self.alpha * self.A / (self.beta * self.B)) ** (1 / (self.alpha + self.beta))

    @property
    def a(self) -> float:
        """The optimum's N grows as C^a."""
        return self.beta / (self.alpha + self.beta)

    @property
    def b(self) -> float:
        """The optimum's D grows as C^b; a + b = 1."""
        return self.alpha / (self.alpha + self.beta)

    def optimum(self, budget: float) -> tuple[float, float]:
        """(N, D) of the least loss with 6ND = budget: N = G (C/6)^a, D = (C/6)^b / G."""
        return self.G * (budget / 6) ** self.a, (budget / 6) ** self.b / self.G

    def budget_of(self, n: float) -> float:
        """The budget whose optimum has N parameters."""
        return 6 * (n / self.G) ** (1 / self.a)

    def tokens_for(self, n: float, loss: float) -> float:
        """Targets that take N parameters to a loss; inf where none do."""
        left = loss - self.E - self.A * n**-self.alpha
        return (self.B / left) ** (1 / self.beta) if left > 0 else math.inf

    def as_json(self) -> dict[str, Any]:
        values = {"E": self.E, "A": self.A, "B": self.B, "alpha": self.alpha, "beta": self.beta}
        return {
            "name": self.name, **values, "a": self.a, "source": self.source, "box": self.box and self.box.as_json()
        }  # fmt: skip


# the points that Besiroglu et al. read off figure 4 of Hoffmann et al., the five of the highest loss left out
FIGURE_4 = Box(
    (5.7e7, 1.6e10),
    (8.2e8, 3.2e11),
    (1.4e18, 1.3e22),
    (0.46, 341),
    "the 240 points read off figure 4 of arXiv 2203.15556",
)
_HERE = "refit of the points that arXiv 2404.10102 read off figure 4 of arXiv 2203.15556"
PUBLISHED = {
    one.name: one
    for one in (
        Constants(
            "besiroglu", 1.8169, 482.01, 2085.43, 0.34781, 0.36585,
            "Besiroglu et al. 2024, arXiv 2404.10102, output of their notebook", FIGURE_4,
        ),
        Constants(
            "hoffmann_rounded", 1.69, 406.4, 410.7, 0.34, 0.28,
            "Hoffmann et al. 2022, arXiv 2203.15556, approach 3 as printed", FIGURE_4,
        ),
        Constants(
            "hoffmann_tex", 1.6934, 406.40, 410.72, 0.33917, 0.28491,
            "Hoffmann et al. 2022, arXiv 2203.15556, approach 3, digits of the TeX source", FIGURE_4,
        ),
        Constants(
            "sardana", 1.69, 406.4, 410.7, 0.336, 0.283,
            "Sardana et al. 2024, arXiv 2401.00448, exponents of Hoffmann et al. with three digits", FIGURE_4,
        ),
        Constants(
            "refit240", 1.81722, 477.826, 2143.42, 0.34731, 0.36717, f"{_HERE}, without the 5 highest losses", FIGURE_4
        ),
        Constants(
            "refit245", 1.89134, 495.73, 12845.6, 0.34931, 0.45305, f"{_HERE}, all 245: 5 of them move beta from 0.367"
        ),
        Constants(
            "muennighoff", math.exp(0.6254804), math.exp(6.255414), math.exp(7.3049974), 0.3526596, 0.3526596,
            "Muennighoff et al. 2023, arXiv 2305.16264", excess=True,
        ),
    )
}  # fmt: skip
DEFAULT = "besiroglu"
_KEYS = ("E", "A", "B", "alpha", "beta")


def named(text: str, problems: Problems, flag: str = "--constants") -> Constants | None:
    """A published set by its name, or `E=1.7,A=400,B=2000,alpha=0.35,beta=0.36`."""
    if text in PUBLISHED:
        return PUBLISHED[text]
    if "=" not in text:
        problems.add(
            flag,
            f"there is no set {text!r}, expected one of {', '.join(PUBLISHED)}, or E=..,A=..,B=..,alpha=..,beta=..",
        )
        return None
    pairs = [part.partition("=") for part in text.split(",")]
    given = {key.strip(): value.strip() for key, _, value in pairs}
    if wrong := sorted(set(given) ^ set(_KEYS)):
        problems.add(flag, f"found {text!r}, expected each of {', '.join(_KEYS)}; look at {', '.join(wrong)}")
        return None
    return _given(given, problems, flag)


def _given(given: Mapping[str, str], problems: Problems, flag: str) -> Constants | None:
    values: dict[str, float] = {}
    for key, value in given.items():
        found = problems.parse(f"{flag} {key}", value, "number", above=key != "E")
        if found is not None:
            values[key] = float(found)
    if len(values) < len(_KEYS):
        return None
    E, A, B, alpha, beta = (values[key] for key in _KEYS)  # noqa: N806  the letters of the formula
    return Constants("given", E, A, B, alpha, beta, "given on the command line")
