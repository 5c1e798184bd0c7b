"""
The questions of a claim, one function each: what the build and the run know, and how to find out what they do not.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from datapipe.build_manifest.types import BuildManifest
from datapipe.estimate.claim import SEEDS, Answer, Subject, repeats
from datapipe.estimate.constants import DEFAULT, PUBLISHED
from datapipe.estimate.quantities import show

NO_RUN = "no run: give a run's folder, `datapipe estimate claim runs/NAME`"


def _part(record: Mapping[str, Any] | None, *keys: str) -> Any:
    """A value inside nested objects; None where one is not there."""
    found: Any = record
    for key in keys:
        found = found.get(key) if isinstance(found, Mapping) else None
    return found


def _no_build(subject: Subject) -> str:
    return f"the build is not at hand: {subject.absent}" if subject.absent else "the build is not at hand"


# --- data -------------------------------------------------------------------------------------------------------------


def effective(subject: Subject) -> Answer:
    ask = ("effective_tokens", "How many effective tokens are there, not files, bytes or positions?")
    made, run = subject.build, subject.run
    if made is None:
        told = _part(run, "data", "effective_tokens")
        known = (f"{told:,} effective tokens in one pass, by the run's report",) if told else ()
        return Answer(*ask, known, (_no_build(subject),), {"effective": told})
    train = made.splits.train
    books = train.tokens
    if not books.targets:
        return Answer(*ask, (), ("the build has no tokens: its manifest names no tokenizer",), {"effective": 0})
    positions = books.stored + books.padding
    rest = {"padding": books.padding, "last positions": books.last_positions, "masked": books.masked}
    rest |= {"repeated as context": books.repeated_context}
    known = (
        f"{books.targets:,} targets in one pass over train: tokens whose successor is in the same segment, not masked",
        f"{books.targets / positions:.2%} of {positions:,} positions; besides: {_counts(rest)}",
        f"dropped: {_counts(books.dropped)}; {train.packing.cut_documents:,} documents lie in several rows",
        _shares(made),
    )
    figures: dict[str, Any] = {"effective": books.targets, "positions": positions, "fill": train.packing.fill}
    figures |= {"dropped": dict(books.dropped), "by_source": {name: x.targets for name, x in train.by_source.items()}}
    return Answer(*ask, known, (), figures)


def _counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{number:,} {name}" for name, number in counts.items()) or "none"


def _shares(made: BuildManifest) -> str:
    shares = made.splits.train.by_source.items()
    asked = {name: f" (asked {share.asked:.1%})" if share.asked is not None else "" for name, share in shares}
    return "by source: " + ", ".join(f"{name} {share.realised:.1%}{asked[name]}" for name, share in shares)


def repetition(subject: Subject) -> Answer:
    ask = ("repeats", "How many of them are different, and how often was each learnt from?")
    supplied, run = subject.supply, subject.run
    known: list[str] = []
    missing: list[str] = []
    figures: dict[str, Any] = {}
    if supplied is None:
        missing.append(_no_build(subject))
    elif supplied.effective:
        figures |= {"unique": supplied.unique, "effective": supplied.effective}
        copies = supplied.effective - supplied.unique
        again = f"; {copies:,.0f} are further copies, which the mixture asked for" if copies >= 0.5 else ""
        known.append(f"{supplied.unique:,.0f} different targets of {supplied.effective:,} in one pass{again}")
    consumed = _part(run, "counters", "applied")
    consumed = _part(run, "counters", "targets") if consumed is None else consumed
    if consumed is None:
        missing.append(NO_RUN + "; what it consumes decides how often each target is seen")
    else:
        figures["consumed"] = consumed
        skipped = _part(run, "counters", "skipped") or 0
        known.append(f"{consumed:,} targets were learnt from" + (f", {skipped:,} steps skipped" if skipped else ""))
        unique = supplied.unique if supplied else _part(run, "data", "effective_tokens")
        if unique:
            figures["passes"] = consumed / unique
            known.append(repeats(consumed, unique))
    return Answer(*ask, tuple(known), tuple(missing), figures)


def dedup(subject: Subject) -> Answer:
    ask = ("dedup", "What was removed as a copy, and what could have been missed?")
    made = subject.build
    if made is None:
        return Answer(*ask, (), (_no_build(subject),))
    known: list[str] = []
    missing: list[str] = []
    figures: dict[str, Any] = {}
    stages = {stage.stage: stage for stage in made.stages}
    for name in ("exact_dedup", "near_dedup"):
        stage = stages.get(name)
        if stage is None:
            missing.append(f"no stage {name}: how many copies are left is not known; add it to the manifest")
            continue
        dropped = sum(stage.dropped.values())
        figures[name] = {"in": stage.entered, "dropped": dropped}
        share = f" ({dropped / stage.entered:.1%})" if stage.entered else ""
        known.append(f"{name}: {dropped:,} of {stage.entered:,} documents{share}")
    near = made.near_dedup
    if near:
        figures["recall_at_threshold"] = near.recall_at_threshold
        known.append(
            f"each near copy compared exactly with the one that stays; a pair at the threshold is proposed with "
            f"{near.recall_at_threshold:.2%}; {near.capped:,} documents had more candidates than were compared"
        )
    return Answer(*ask, tuple(known), tuple(missing), figures)


def holdout(subject: Subject) -> Answer:
    ask = ("holdout", "Was what it is tested on set apart before anything was removed as a copy?")
    made = subject.build
    if made is None:
        return Answer(*ask, (), (_no_build(subject),))
    held = made.holdout
    if held is None:
        return Answer(*ask, (), ("no holdout: no validation loss is of unseen text; add a stage holdout",))
    documents = made.splits.validation.documents
    when = "before any dedup" if held.before_dedup else "after dedup or without one"
    known = [
        f"{documents:,} documents of {held.groups:,} groups are validation, set apart {when}, by {held.by or 'text'}"
    ]
    leak = {"exact": held.leak.exact, "near": held.leak.near}
    found = ", ".join(f"{count:,} {kind}" for kind, count in leak.items() if count is not None)
    missing = [
        f"{kind} copies of validation in train were not looked for" for kind, count in leak.items() if count is None
    ]
    if found:
        known.append(f"train lost copies of validation: {found}")
    return Answer(*ask, tuple(known), tuple(missing), {"documents": documents, "leak": leak})


def contamination(subject: Subject) -> Answer:
    ask = ("contamination", "Could the evaluation have been in the data?")
    made = subject.build
    if made is None:
        return Answer(*ask, (), (_no_build(subject),))
    known: list[str] = []
    for stage in made.decontaminate:
        removed = sum(sum(by.values()) for by in stage.removed.values())
        suites = ", ".join(one.suite for one in stage.suites)
        known.append(f"stage {stage.place}:decontaminate took out {removed:,} documents for {suites}; n = {stage.n}")
    figures: dict[str, Any] = {"audits": []}
    missing: list[str] = []
    for audit in subject.audits:
        known.append(_audited(audit))
        figures["audits"].append({key: audit.get(key) for key in ("digest", "verdict", "complete", "flagged")})
        if not audit.get("complete"):
            missing.append(f"audit {str(audit.get('digest'))[:8]} could not see everything: see its report")
    if not subject.audits:
        missing.append("no audit of this build: `datapipe audit --eval FILES` looks for the evaluation in it")
    return Answer(*ask, tuple(known), tuple(missing), figures)


def _audited(audit: Mapping[str, Any]) -> str:
    flagged = _part(audit, "flagged") or {}
    rows = ", ".join(f"{suite} {count:,} flagged" for suite, count in flagged.items()) or "no eval set"
    detector = _part(audit, "detector") or {}
    how = f"profile {detector.get('profile')}, n = {detector.get('n')}"
    return f"audit {str(audit.get('digest'))[:8]} of {audit.get('started')}: {audit.get('verdict')}; {rows}; {how}"


# --- cost -------------------------------------------------------------------------------------------------------------


def compute(subject: Subject) -> Answer:
    ask = ("compute", "What did it cost to train, and would the same operations have bought more otherwise?")
    run, supplied = subject.run, subject.supply
    n = _parameters(subject)
    d = _part(run, "counters", "targets") or (supplied.effective if supplied else None)
    if n is None:
        return Answer(*ask, (), ("the number of parameters: give a run, or --params",))
    if not d:
        return Answer(*ask, (), ("how much is consumed: give a run",), {"N": n})
    what = "consumed" if run else "of one pass"
    known = [f"6ND = {show(6 * n * d, 'FLOP')}: N = {n:,.0f} parameters, D = {d:,} targets {what}; D/N = {d / n:,.3g}"]
    figures: dict[str, Any] = {"N": n, "D": d, "C": 6 * n * d}
    positions = _part(run, "counters", "tokens")
    if positions:
        figures["C_positions"] = 6 * n * positions
        known.append(f"by tokens, which operations follow: {show(6 * n * positions, 'FLOP')} ({positions:,} tokens)")
    constants = PUBLISHED[DEFAULT]
    other, tokens = constants.optimum(6 * n * d)
    known.append(
        f"the optimum of that budget: N = {show(other, 'number')}, D = {show(tokens, 'number')} (constants {DEFAULT}; "
        f"{_inside(n, d)}); `datapipe estimate scaling --budget {6 * n * d:.4g}` says more"
    )
    missing = ("what another run of the same operations and other data reaches: train one on the baseline's build",)
    return Answer(*ask, tuple(known), missing, figures)


def _inside(n: float, d: float) -> str:
    box = PUBLISHED[DEFAULT].box
    beyond = box.outside(n, d) if box else {}
    if not beyond:
        return "inside the range of their runs"
    return "outside the range of their runs: " + ", ".join(
        f"{name} {times:,.3g} times" for name, times in beyond.items()
    )


def _parameters(subject: Subject) -> float | None:
    found = _part(subject.run, "model", "parameters")
    return float(found) if found else subject.params


def deployment(subject: Subject) -> Answer:
    ask = (
        "deployment",
        "What will it cost to serve, and does a smaller model of the same loss cost less over its life?",
    )
    n = _parameters(subject)
    known: list[str] = []
    missing: list[str] = []
    figures: dict[str, Any] = {}
    if n is None:
        missing.append("the number of parameters: give a run, or --params")
    else:
        figures["FLOP_per_token"] = 2 * n
        known.append(f"2N = {show(2 * n, 'FLOP')} a token read or written")
    if subject.served is None:
        missing.append("how many tokens it will serve: give --inference-tokens")
    elif n is not None:
        figures["serving"] = 2 * n * subject.served
        known.append(f"serving {show(subject.served, 'number')} tokens: {show(2 * n * subject.served, 'FLOP')}")
        known.append("`datapipe estimate scaling --params N --tokens D --inference-tokens ...` has the cheapest life")
    return Answer(*ask, tuple(known), tuple(missing), figures)


# --- what it can do ---------------------------------------------------------------------------------------------------


def losses(subject: Subject) -> Answer:
    ask = ("losses", "What are training and validation loss, kept apart, before and after?")
    looks = _looks(subject)
    if not looks:
        return Answer(*ask, (), (NO_RUN,))
    first, last = looks[0], looks[-1]
    known = [f"train, a fixed sample: {_change(first, last, 'train')}"]
    figures: dict[str, Any] = {"train": _part(last, "train", "loss"), "validation": _part(last, "validation", "loss")}
    if _part(last, "validation") is None:
        return Answer(
            *ask, tuple(known), ("validation loss: the build has no validation, or the run did not look",), figures
        )
    known.append(f"validation, sum of losses / sum of targets: {_change(first, last, 'validation')}")
    if bits := _part(last, "validation", "bits_per_byte"):
        known.append(f"bits per byte {bits:.4f}, which other tokenizers can be compared by")
    known += [f"{name}: {one.get('loss'):.4f}" for name, one in (_part(last, "sources") or {}).items()]
    return Answer(*ask, tuple(known), (), figures)


def _looks(subject: Subject) -> Sequence[Mapping[str, Any]]:
    found = _part(subject.run, "looks")
    return [look for look in found if isinstance(look, Mapping)] if isinstance(found, list) else []


def _change(first: Mapping[str, Any], last: Mapping[str, Any], part: str) -> str:
    before, after = _part(first, part, "loss"), _part(last, part, "loss")
    return f"{before:.6g} before, {after:.6g} after" if before is not None and after is not None else f"{after}"


def scope(subject: Subject) -> Answer:
    ask = ("scope", "Better at which tasks, and at which is nothing said?")
    names = [str(one.get("name")) for one in _strata(subject)]
    if subject.run is None:
        return Answer(*ask, (), (NO_RUN,))
    if not names:
        return Answer(*ask, (), ("no task was asked (evaluate.strata): a loss alone names no task",), {"strata": []})
    missing = "whether these stand for the tasks that the claim names; nothing is said of any other"
    return Answer(*ask, (f"asked: {', '.join(names)}",), (missing,), {"strata": names})


def strata(subject: Subject) -> Answer:
    ask = ("strata", "What came of each kind of task, the worst one too?")
    found = _strata(subject)
    if not found:
        return Answer(*ask, (), (NO_RUN if subject.run is None else "the run asked no strata (evaluate.strata)",))
    known: list[str] = []
    missing: list[str] = []
    shares: dict[str, float] = {}
    for one in found:
        if not one.get("of"):
            missing.append(f"{one.get('name')}: not asked, {one.get('note')}")
            continue
        right, of = one["right"], one["of"]
        shares[str(one.get("name"))] = right / of
        interval = f"{one['low']:.1%} .. {one['high']:.1%}, by chance {one['chance']:.2%}"
        known.append(f"{one.get('name')}: {right:,} of {of:,} ({interval})")
    if shares:
        worst = min(shares, key=shares.__getitem__)
        known.append(f"the least: {worst}, {shares[worst]:.1%}")
    return Answer(*ask, tuple(known), tuple(missing), {"shares": shares})


def _strata(subject: Subject) -> Sequence[Mapping[str, Any]]:
    looks = _looks(subject)
    found = looks[-1].get("strata") if looks else None
    return [one for one in found if isinstance(one, Mapping)] if isinstance(found, list) else []


def luck(subject: Subject) -> Answer:
    ask = ("seeds", "How far would another seed have ended up elsewhere?")
    if subject.run is None:
        return Answer(*ask, (), (NO_RUN,))
    seed = _part(subject.run, "config", "seed")
    missing = f"at least {SEEDS} seeds on each side of the comparison: one seed is one draw"
    return Answer(*ask, (f"one seed: {seed}",), (missing,), {"seeds": [seed]})


def baseline(subject: Subject) -> Answer:
    ask = ("baseline", "Better than what, with only the data changed?")
    known: list[str] = []
    figures: dict[str, Any] = {}
    if subject.run is not None:
        held = {key: _part(subject.run, "config", key) for key in ("steps", "objective", "precision", "seed")}
        held |= {
            "tokenizer": str(_part(subject.run, "data", "tokenizer"))[:12],
            "parameters": _part(subject.run, "model", "parameters"),
        }
        known.append("to be the same on the other side: " + ", ".join(f"{key} {value}" for key, value in held.items()))
        figures["fixed"] = held
    missing = "the other run: same model, tokenizer, schedule, operations and evaluation, other data"
    return Answer(*ask, tuple(known), (missing,), figures)


QUESTIONS: Sequence[Callable[[Subject], Answer]] = (
    baseline, effective, repetition, dedup, holdout, contamination, compute, deployment, losses, scope, strata, luck,
)  # fmt: skip
