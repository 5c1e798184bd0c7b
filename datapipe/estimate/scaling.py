"""
What a budget buys: plans of N and D with their loss as a table of terms, whether runs were ever there, and intervals.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from datapipe.estimate import lifetime
from datapipe.estimate.constants import PUBLISHED, Constants
from datapipe.estimate.lifetime import Choice, Serving
from datapipe.estimate.quantities import Problems, show
from datapipe.estimate.resample import Evidence
from datapipe.estimate.terms import Table, Term

ORDINARY = 100  # targets a parameter; beyond, fits to ordinary runs have been found to promise too much
Interval = tuple[float, float] | None


@dataclass(frozen=True)
class Question:
    """
    What is asked; None: not given.

    n, d: a plan; budget: operations of training; loss: to be reached.  unique: different targets that there are.
    serving: tokens of the model's life and their costs; unit: of those costs, FLOP, FLOP at the peak, seconds, money.
    """

    n: float | None = None
    d: float | None = None
    budget: float | None = None
    loss: float | None = None
    unique: float = math.inf
    serving: Serving = field(default_factory=Serving)
    unit: str = "FLOP"

    @property
    def served(self) -> bool:
        return self.serving.read + self.serving.written > 0


@dataclass(frozen=True)
class Plan:
    """
    One N and D.  why: how it was found.  worth: D', D without the repeats that teach nothing.  target: the loss before
    terms were set or left out.  cost: empty where nothing is served.  outside: empty inside of the runs' range, None
    where that is not known.  intervals: of N, D and loss, what resampled runs would have said; None where none were.
    """

    name: str
    why: str
    n: float
    d: float
    worth: float
    target: float
    loss: Table
    cost: Table
    outside: Mapping[str, float] | None
    intervals: tuple[Interval, Interval, Interval]
    notes: tuple[str, ...] = ()

    @property
    def where(self) -> str:
        if self.outside is None:
            return "not known: the set comes without the range of its runs"
        if not self.outside:
            return "inside"
        return "outside: " + ", ".join(f"{name} by {times:,.3g} times" for name, times in self.outside.items())

    def as_json(self) -> dict[str, Any]:
        found = {"name": self.name, "why": self.why, "N": self.n, "D": self.d, "D_worth": self.worth}
        found |= {"C": 6 * self.n * self.d, "D/N": self.d / self.n, "loss": self.loss.as_json()}
        found |= {"cost": self.cost.as_json() if self.cost.terms else None}
        found |= {"inside": None if self.outside is None else not self.outside, "outside": self.outside}
        found |= {"intervals_95": dict(zip(("N", "D", "loss"), self.intervals, strict=True))}
        return found | {"notes": list(self.notes)}


@dataclass(frozen=True)
class Answer:
    """All plans, with the constants that they stand on; others: the plan `compared` under other published sets."""

    question: Question
    constants: Constants
    evidence: Evidence
    plans: tuple[Plan, ...]
    compared: str
    others: tuple[tuple[Constants, Choice], ...]
    assumptions: tuple[str, ...] = field(default=())

    def as_json(self) -> dict[str, Any]:
        others = [{"constants": k.name, "N": c.n, "D": c.d, "D/N": c.d / c.n, "loss": c.loss} for k, c in self.others]
        found: dict[str, Any] = {"constants": self.constants.as_json(), "fit": self.evidence.as_json()}
        found |= {
            "plans": [plan.as_json() for plan in self.plans],
            "other_constants": {"plan": self.compared, "answers": others},
        }
        return found | {"assumptions": list(self.assumptions)}


LOSS_TERMS = ("loss.floor", "loss.parameters", "loss.data")
COST_TERMS = ("cost.training", "cost.reading", "cost.writing")
Finder = Callable[[Constants], Choice | None]


def answer(
    question: Question, constants: Constants, evidence: Evidence, problems: Problems,
    put: Mapping[str, float] | None = None, without: Sequence[str] = (),
) -> Answer:  # fmt: skip
    """Every plan that the question names.  What cannot be found is a problem; put, without: of terms, see terms.py."""
    plans: list[Plan] = []
    found: dict[str, Finder] = {}
    for name, why, find in _asked(question):
        choice = find(constants)
        if choice is None:
            problems.add(name, _why_none(question, constants))
            continue
        found[name] = find
        plan = _plan(name, why, choice, find, question, constants, evidence)
        loss, cost = plan.loss.changed(put or {}, without), plan.cost.changed(put or {}, without)
        plans.append(replace(plan, loss=loss, cost=cost))
    compared = "lifetime" if "lifetime" in found else plans[-1].name if plans else ""
    others: list[tuple[Constants, Choice]] = []
    for one in PUBLISHED.values() if plans else ():
        choice = found[compared](one)
        if choice and one.name != constants.name:
            others.append((one, choice))
    made = tuple(plans)
    return Answer(
        question, constants, evidence, made, compared, tuple(others), _assumptions(question, constants, plans)
    )


def _asked(q: Question) -> list[tuple[str, str, Finder]]:
    """(name, how it is found, finder) of each plan; a finder works for any constants."""
    found: list[tuple[str, str, Finder]] = []
    n, d, budget, loss, unique = q.n, q.d, q.budget, q.loss, q.unique
    if n and d:
        found.append(("asked", "N and D as given", lambda k: _at(k, n, d, unique)))
    elif n:
        why = "the D for which N is the optimum: D = (N/G)^(b/a) / G"
        found.append(("optimal D", why, lambda k: _at(k, n, k.budget_of(n) / (6 * n), unique)))
    elif d:
        why = "the N for which D is the optimum: N = G (G D)^(a/b)"
        found.append(("optimal N", why, lambda k: _at(k, k.G * (k.G * d) ** (k.a / k.b), d, unique)))
    if budget:
        why = "least loss with 6ND = C: N = G (C/6)^a, D = (C/6)^b / G"
        if math.isfinite(unique):
            why += "; by search where repeats are needed"
        found.append(("optimum", why, lambda k: lifetime.for_budget(k, budget, unique)))
    if loss:
        found.append(("cheapest", "least 6ND that reaches the loss", lambda k: lifetime.for_loss(k, loss, 0.0, unique)))
    if q.served:
        dinf, target = q.serving.weight, _quality(loss, found)
        if target:
            why = "least cost at the same loss: alpha A N^-alpha = beta B D^-beta (1 + Dinf/(3D))"
            found.append(("lifetime", why, lambda k: lifetime.for_loss(k, target(k), dinf, unique)))
        if budget:
            why = "least loss with 6ND + 2N Dinf = C: the budget pays for serving too"
            found.append(("one budget", why, lambda k: lifetime.for_budget(k, budget, unique, dinf)))
    return found


def _at(constants: Constants, n: float, d: float, unique: float) -> Choice:
    return Choice(n, d, lifetime.loss(constants, n, d, unique))


def _quality(loss: float | None, found: Sequence[tuple[str, str, Finder]]) -> Callable[[Constants], float] | None:
    """The loss that the model is to have, under any constants: that asked for, or that of the first plan."""
    if loss:
        return lambda _: loss
    if not found:
        return None
    first = found[0][2]

    def quality(constants: Constants) -> float:
        choice = first(constants)
        return choice.loss if choice else math.nan

    return quality


def _why_none(q: Question, constants: Constants) -> str:
    if q.loss and q.loss <= constants.E:
        return f"no model reaches the loss {q.loss:g}: it is not above E = {constants.E:.4g} of {constants.name}"
    if q.budget and 2 * q.serving.weight >= q.budget:
        return f"serving takes more than the budget, {show(q.budget, 'FLOP')}, even of a model of one parameter"
    return (
        f"no model reaches it with {show(q.unique, 'number')} different targets: repeats are worth at most "
        f"{1 + lifetime.R_STAR_D:.1f} times as much; more data are needed"
    )


def names(question: Question) -> set[str]:
    """What --set and --without may name."""
    return {"loss", *LOSS_TERMS} | ({"cost", *COST_TERMS} if question.served else set())


# --- a plan -----------------------------------------------------------------------------------------------------------


def _plan(
    name: str, why: str, choice: Choice, find: Finder, q: Question, constants: Constants, evidence: Evidence
) -> Plan:  # fmt: skip
    n, d = choice.n, choice.d
    worth = lifetime.worth(d, q.unique)
    box = constants.box
    outside = box.outside(n, d) if box else None
    notes = list(_notes(n, d, q, constants))
    return Plan(
        name, why, n, d, worth, choice.loss, loss_table(constants, n, d, q.unique), cost_table(n, d, q), outside,
        _intervals(find, evidence), tuple(notes),
    )  # fmt: skip


def _intervals(find: Finder, evidence: Evidence) -> tuple[Interval, Interval, Interval]:
    boot = evidence.boot
    if boot is None:
        return None, None, None
    choices = {id(one): find(one) for one in boot.surfaces}

    def of(part: str) -> Interval:
        def figure(constants: Constants) -> float:
            choice = choices[id(constants)]
            return getattr(choice, part) if choice else math.nan

        return boot.interval(figure)

    return of("n"), of("d"), of("loss")


def loss_table(constants: Constants, n: float, d: float, unique: float = math.inf) -> Table:
    """E + A N^-alpha + B D'^-beta, nats a target."""
    worth = lifetime.worth(d, unique)
    whole = lifetime.loss(constants, n, d, unique)
    data = constants.B * worth**-constants.beta
    size, different = f"N = {show(n, 'number')}", f"D = {show(d, 'number')}"
    counted = "N'" if constants.excess and math.isfinite(unique) else "N"
    set_, repeats = constants.name, "Muennighoff"
    if worth < d:
        different += f", worth D' = {show(worth, 'number')} different ones"
    return Table(
        "loss, nats a target",
        (
            Term("loss.floor", constants.E, "nats", "E", set_, "of the text itself"),
            Term("loss.parameters", whole - constants.E - data, "nats", f"A {counted}^-alpha", set_, size),
            Term("loss.data", data, "nats", "B D'^-beta", repeats, different)
            if worth < d
            else Term("loss.data", data, "nats", "B D^-beta", set_, different),
        ),
    )


def cost_table(n: float, d: float, q: Question) -> Table:
    """Training and serving; no terms where nothing is served."""
    if not q.served:
        return Table("cost", ())
    serving = q.serving
    training, reading, writing = serving.costs(n, d)
    price = "" if q.unit == "FLOP" else " x price / (peak x MFU)"
    unit = {"money": "number", "FLOP at the peak": "FLOP"}.get(q.unit, q.unit)
    read = f"D_in = {show(serving.read, 'number')}, MFU {serving.mfu_read:g}"
    written = f"D_out = {show(serving.written, 'number')}, MFU {serving.mfu_written:g}"
    return Table(
        f"cost of the model's life, {q.unit}",
        (
            Term("cost.training", training, unit, f"6 N D{price}", "Sardana", f"MFU {serving.mfu_train:g}"),
            Term("cost.reading", reading, unit, f"2 N D_in{price}", "Sardana", read),
            Term("cost.writing", writing, unit, f"2 N D_out{price}", "Sardana", written),
        ),
    )


def _notes(n: float, d: float, q: Question, constants: Constants) -> list[str]:
    notes: list[str] = []
    if d > q.unique:
        share = lifetime.worth(d, q.unique) / d
        notes.append(
            f"{d / q.unique:.2f} passes over {show(q.unique, 'number')} different targets, worth "
            f"{share:.1%} of as many new ones"
        )
    if d / n > ORDINARY and (constants.box is None or d / n > constants.box.ratio[1]):
        notes.append(
            f"{d / n:,.0f} targets a parameter: fits to runs of ordinary ratios overrate what more tokens bring "
            "(Sardana et al. 2401.00448, table 1: alpha, beta .08, .13 of runs up to 100 a parameter, .18, .24 of all)"
        )
    return notes


def _assumptions(q: Question, constants: Constants, plans: Sequence[Plan]) -> tuple[str, ...]:
    found = [
        "C = 6ND: N all parameters that a token meets, embeddings included, unless the fit's runs count otherwise",
        "D counts targets, which loss follows; operations follow positions, a few more (ends of documents, padding)",
        "one kind of text and tokenizer, hyperparameters tuned at each size: the loss of the fit's data, not of yours",
    ]
    if math.isfinite(q.unique):
        others = (
            ""
            if constants.excess
            else "; they come from other runs than this set's constants, which is itself an assumption"
        )
        star = f"R* = {lifetime.R_STAR_D:g}" + (f", {lifetime.R_STAR_N:g} of parameters" if constants.excess else "")
        found.append(
            f"repeats: D' = U + U R*(1 - exp(-R/R*)), R = D/U - 1, {star} (Muennighoff et al. 2305.16264){others}"
        )
    if q.served:
        found.append("serving: 2N operations a token, no attention over the context, no reuse of what was read before")
    if any(plan.outside for plan in plans):
        found.append("outside of the runs' range a figure is an extrapolation, whatever its interval says")
    return tuple(found)
