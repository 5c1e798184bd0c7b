"""What `datapipe estimate scaling` says on a terminal."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from datapipe.cli.estimating import shown
from datapipe.cli.text import count, safe
from datapipe.estimate.quantities import show
from datapipe.estimate.resample import FIGURES, shift
from datapipe.estimate.scaling import Answer, Interval, Plan

if TYPE_CHECKING:
    from datapipe.estimate.constants import Box, Constants
    from datapipe.estimate.resample import Evidence, Without
    from datapipe.estimate.supply import Supply

EACH = 5  # runs whose pull is shown


def text(found: Answer, supplied: "Supply | None", letters: Mapping[str, float], written: Sequence[str]) -> str:
    """Constants first, then the fit, the plans, each plan's terms, other constants, what is assumed."""
    parts = [_constants(found.constants, letters), _fit(found.evidence), _build(supplied)]
    if found.plans:
        parts += [_plans(found), *(_terms(plan) for plan in found.plans), _saved(found), _others(found)]
    parts.append(shown.listed("assumed", found.assumptions))
    if found.plans:
        parts.append(shown.sources(*(table for plan in found.plans for table in (plan.loss, plan.cost))))
    parts.append("\n".join(f"written: {path}" for path in written))
    return shown.joined(parts)


def _constants(constants: "Constants", letters: Mapping[str, float]) -> str:
    k = constants
    values = f"E {k.E:.5g}, A {k.A:.6g}, B {k.B:.6g}, alpha {k.alpha:.5g}, beta {k.beta:.5g}"
    said = f"; set by you: {', '.join(letters)}" if letters else ""
    lines = [f"constants {safe(k.name)}: {values}{said}", f"  {safe(k.source)}"]
    lines.append(f"  L = E + A N^-alpha + B D^-beta; optimum N ~ C^{k.a:.3f}, D ~ C^{k.b:.3f}; {_box(k.box)}")
    return "\n".join(lines)


def _box(box: "Box | None") -> str:
    if box is None:
        return "the range of their runs is not known"
    spans = (("N", box.n), ("D", box.d), ("C", box.c), ("D/N", box.ratio))
    return "runs " + ", ".join(f"{name} {low:.2g} .. {high:.2g}" for name, (low, high) in spans)


# --- a fit ------------------------------------------------------------------------------------------------------------


def _fit(evidence: "Evidence") -> str:
    fitted, boot = evidence.fit, evidence.boot
    if fitted is None:
        return ""
    notes = "".join(f"; {safe(note)}" for note in fitted.runs.assumptions)
    ends = f"{fitted.agreed} of {fitted.tried} starts ended there"
    flat = f"objective {fitted.objective:.6g}, relative gradient {fitted.slope:.1e}"
    lines = [f"fit of {count(len(fitted.runs), 'run')}: {flat}, {ends}{notes}"]
    if boot:
        rows = []
        for name, of in FIGURES.items():
            found = boot.interval(of)
            low, high = (f"{found[0]:.5g}", f"{found[1]:.5g}") if found else ("not known", "")
            rows.append([name, f"{of(fitted.constants):.5g}", f"{boot.error(of):.3g}", low, high])
        lines.append(shown.columns(["", "fitted", "SE", "95 % from", "to"], rows, (1, 2, 3, 4)))
        lines.append(f"  {len(boot.surfaces):,} of {boot.asked:,} resamples of the runs, seed {boot.seed}")
    else:
        lines.append("  no resamples were asked for, so there are no intervals")
    lines += [_highest(evidence, fitted.constants), _each(evidence, fitted.constants), _beyond(evidence)]
    return "\n".join(line for line in lines if line)


def _highest(evidence: "Evidence", all_runs: "Constants") -> str:
    if not evidence.highest:
        return ""
    rows = [["none", *_row(all_runs)], *([f"{one.left_out}", *_row(one.constants)] for one in evidence.highest)]
    title = "leverage: the fit without the highest losses (early, unstable or diverged runs pull most)"
    return title + "\n" + shown.columns(["left out", "alpha", "beta", "E", "a"], rows, (0, 1, 2, 3, 4))


def _row(constants: "Constants | None") -> list[str]:
    if constants is None:
        return ["no fit", "", "", ""]
    return [f"{constants.alpha:.4f}", f"{constants.beta:.4f}", f"{constants.E:.4f}", f"{constants.a:.4f}"]


def _each(evidence: "Evidence", all_runs: "Constants") -> str:
    if not evidence.each:
        return ""

    def said(one: "Without") -> str:
        if one.constants is None:
            return f"{one.names[0]} (no fit without it)"
        return f"{one.names[0]} (a {one.constants.a - all_runs.a:+.4f})"

    most = shift(evidence.each[0], all_runs)
    size = f"at most {most:.4f}" if most < float("inf") else "all of it"
    return f"one run left out moves a by {size}: " + ", ".join(said(one) for one in evidence.each[:EACH])


def _beyond(evidence: "Evidence") -> str:
    found = evidence.beyond
    if found is None:
        return "largest runs left out: too few would stay to fit"
    return (
        f"largest runs left out: the {found.left_out} of most compute, up to {found.times:.3g} times that of the other "
        f"{found.kept}, foretold; mean error {found.error:.2%} (bias {found.bias:+.2%}, worst {found.worst:.2%})"
    )


# --- plans ------------------------------------------------------------------------------------------------------------


def _build(supplied: "Supply | None") -> str:
    if supplied is None:
        return ""
    repeats = supplied.effective / supplied.unique - 1
    again = f"; copies of its mixture make {repeats:.1%} of them again" if repeats > 1e-9 else ""
    return (
        f"{safe(supplied.build)}: {supplied.effective:,} effective tokens (targets of one pass), "
        f"{supplied.unique:,.0f} different{again}"
    )


def _plans(found: Answer) -> str:
    rows = []
    for plan in found.plans:
        values = (plan.n, plan.d)
        cells = [
            _with(show(value, "number"), interval) for value, interval in zip(values, plan.intervals, strict=False)
        ]
        ratio = f"{plan.d / plan.n:,.3g}"
        loss = _with(f"{plan.loss.total:.4f}", plan.intervals[2], digits=True)
        rows.append([plan.name, *cells, ratio, show(6 * plan.n * plan.d, "FLOP"), loss, plan.where])
    header = ["plan", "N", "D", "D/N", "6ND", "loss", "range of the runs"]
    table = shown.columns(header, rows, (1, 2, 3, 4, 5))
    if found.evidence.boot is None:
        missing = "a published set comes without its resamples" if found.evidence.fit is None else "see --bootstrap"
        table += f"\n  no intervals: {missing}"
    return table


def _with(value: str, interval: Interval, *, digits: bool = False) -> str:
    if interval is None:
        return value
    low, high = (f"{end:.4f}" if digits else show(end, "number") for end in interval)
    return f"{value} ({low} .. {high})"


def _terms(plan: Plan) -> str:
    lines = [f"{plan.name}: {plan.why}", *(f"  ! {note}" for note in plan.notes), shown.terms(plan.loss)]
    if plan.cost.terms:
        lines += [f"  {plan.cost.title}", shown.terms(plan.cost)]
    return "\n".join(lines)


def _saved(found: Answer) -> str:
    """What the lifetime plan costs beside the one that only training would choose."""
    plans = {plan.name: plan for plan in found.plans}
    first, life = found.plans[0], plans.get("lifetime")
    if life is None or first is life or not first.cost.terms:
        return ""
    before, after = first.cost.total, life.cost.total
    unit = life.cost.unit
    served = found.question.serving.weight
    weight = f"; served tokens cost as much as {show(served, 'number')} at the rate of training"
    return (
        f"life at the loss of {first.name}: N {life.n / first.n:.3f} times, D {life.d / first.d:.3f} times; "
        f"{show(after, unit)} instead of {show(before, unit)}, {1 - after / before:.1%} saved{weight}"
    )


def _others(found: Answer) -> str:
    if not found.others:
        return ""
    name = found.compared
    rows = [
        [k.name, show(c.n, "number"), show(c.d, "number"), f"{c.d / c.n:,.3g}", f"{c.loss:.4f}"]
        for k, c in found.others
    ]
    title = f"{name} with other published constants: how much hangs on them"
    return title + "\n" + shown.columns(["constants", "N", "D", "D/N", "loss"], rows, (1, 2, 3, 4))
