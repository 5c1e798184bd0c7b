"""datapipe estimate scaling"""

import importlib.util
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from datapipe.cli.command import PATH, Command, Several, json_option, output_option
from datapipe.cli.estimating.options import CHANGES, options
from datapipe.cli.text import say

if TYPE_CHECKING:
    from datapipe.estimate.constants import Constants
    from datapipe.estimate.lifetime import Serving
    from datapipe.estimate.quantities import Problems
    from datapipe.estimate.resample import Evidence
    from datapipe.estimate.runs import Runs
    from datapipe.estimate.scaling import Answer, Question
    from datapipe.estimate.supply import Supply

CONTOURS, LIFETIME = "contours.png", "lifetime.png"
LETTERS = ("E", "A", "B", "alpha", "beta")
SURFACE = (
    ("--constants", {"metavar": "SET", "help": "A published set, or E=,A=,B=,alpha=,beta=.  [default: besiroglu]"}),
    ("--runs", {"type": PATH, "metavar": "FILE", "help": "Fit to runs of a CSV or Parquet file: N, D or C, loss."}),
    ("--drop-highest", {"default": "0", "metavar": "K", "help": "Fit without the K highest losses."}),
    ("--bootstrap", {"default": "500", "metavar": "K", "help": "Resamples for intervals; 0: none.  [default: 500]"}),
    ("--seed", {"default": "17", "metavar": "N", "help": "Of the resamples.  [default: 17]"}),
    ("--leverage", {"default": "5", "metavar": "K", "help": "Fit without the 1 .. K highest losses.  [default: 5]"}),
    ("--leave-largest", {"default": "10%", "metavar": "SHARE", "help": "Runs foretold by the rest.  [default: 10%]"}),
)  # fmt: skip
PLAN = (
    ("--params", {"metavar": "N", "help": "Parameters of a plan."}),
    ("--tokens", {"metavar": "D", "help": "Targets that training consumes."}),
    ("--budget", {"metavar": "FLOP", "help": "Operations of training, 6ND: 1e21, 300EFLOP."}),
    ("--loss", {"metavar": "L", "help": "A loss to reach, nats a target."}),
    ("--build", {"metavar": "BUILD", "help": "D and the different targets are those of a build."}),
    ("--epochs", {"metavar": "X", "help": "Passes over the build.  [default: 1]"}),
    ("--unique", {"metavar": "U", "help": "Different targets that there are; beyond, repeats are worth less."}),
)
SERVING = (
    (
        "--inference-tokens",
        {"metavar": "D", "help": "Tokens that the model will serve, all at the cost of written ones."},
    ),
    ("--input-tokens", {"metavar": "D", "help": "Tokens that it will read."}),
    ("--output-tokens", {"metavar": "D", "help": "Tokens that it will write."}),
    ("--mfu-train", {"metavar": "SHARE", "help": "Share of the peak that training reaches.  [default: 1]"}),
    ("--mfu-input", {"metavar": "SHARE", "help": "... that reading reaches.  [default: that of training]"}),
    ("--mfu-output", {"metavar": "SHARE", "help": "... that writing reaches.  [default: that of reading]"}),
    ("--peak", {"metavar": "FLOP/s", "help": "Peak rate of a device: costs are its seconds."}),
    ("--peak-serve", {"metavar": "FLOP/s", "help": "... of a serving device.  [default: the same]"}),
    ("--price", {"metavar": "X", "help": "Price of a device for an hour, with --peak: costs are money."}),
    ("--price-serve", {"metavar": "X", "help": "... of a serving device.  [default: the same]"}),
)
WHERE = (
    (
        "--pictures",
        {"type": PATH, "metavar": "DIR", "help": f"Write {CONTOURS}, and {LIFETIME} where tokens are served."},
    ),
)


@click.command(cls=Command)
@options(PLAN, SERVING, SURFACE, CHANGES, WHERE)
@click.option("--columns", cls=Several, metavar="N=NAME", help="What N, D, C and loss are called in --runs.")
@output_option
@json_option
def scaling(as_json: bool, output: Path, columns: Sequence[str], **given: Any) -> None:
    """
    What a budget, a model or a build can reach: L = E + A N^-alpha + B D^-beta.

    Constants are published ones, or fitted to --runs.  Every answer says whether such runs were ever made, and how it
    moves with other constants, with tokens that are served (--inference-tokens) and with data that repeat (--unique,
    --build).  --set takes E, A, B, alpha, beta, and the terms of the tables.
    """
    from datapipe.estimate.quantities import Problems

    problems = Problems()
    _installed(given, problems)
    from datapipe.estimate import scaling as asked

    supplied = _supply(given, output, problems)
    question = _question(given, supplied, problems)
    runs = _runs(given, columns, problems)
    constants = _published(given, problems)
    numbers = _numbers(given, problems)
    sets, terms = _split(given["sets"])
    letters = _letters(sets, problems)
    put = _terms(terms, given["without"], question, problems)
    problems.refuse()
    evidence = _evidence(runs, numbers)
    used = _used(evidence.fit.constants if evidence.fit else constants, letters)
    found = asked.answer(question, used, evidence, problems, put, given["without"])
    problems.refuse()
    written = _pictures(given["pictures"], found, runs) if given["pictures"] else []
    if as_json:
        say(json.dumps(_json(found, supplied, written)))
    else:
        from datapipe.cli.estimating.foretold import text

        say(text(found, supplied, letters, written))


def _installed(given: dict[str, Any], problems: "Problems") -> None:
    """Said before anything else: the extra that holds what this command needs."""
    for flag, library in (("scaling", "scipy"), ("--pictures", "matplotlib")):
        if (flag == "scaling" or given["pictures"]) and importlib.util.find_spec(library) is None:
            problems.add(flag, f"needs {library}: pip install 'datapipe[estimate]'")
    problems.refuse()


# --- reading the flags ------------------------------------------------------------------------------------------------


def _supply(given: dict[str, Any], output: Path, problems: "Problems") -> "Supply | None":
    from datapipe.build_manifest import load, resolve
    from datapipe.errors import ManifestError
    from datapipe.estimate.supply import supply

    if given["build"] is None:
        if given["epochs"] is not None:
            problems.add("--epochs", "needs --build; give --tokens and --unique")
        return None
    try:
        found = supply(load(resolve(given["build"], output)))
    except ManifestError as error:
        problems.add("--build", str(error))
        return None
    if not found.effective:
        problems.add("--build", f"{found.build} has no tokens: its manifest names no tokenizer")
    return found


def _question(given: dict[str, Any], supplied: "Supply | None", problems: "Problems") -> "Question":
    from datapipe.estimate.scaling import Question

    n = problems.parse("--params", given["params"], "number", above=True)
    d = problems.parse("--tokens", given["tokens"], "number", above=True)
    budget = problems.parse("--budget", given["budget"], "FLOP", above=True)
    loss = problems.parse("--loss", given["loss"], "number", above=True)
    unique = problems.parse("--unique", given["unique"], "number", above=True)
    epochs = problems.parse("--epochs", given["epochs"], "number", above=True)
    if given["tokens"] is not None and given["epochs"] is not None:
        problems.add("--epochs", "expected --tokens or --epochs, not both: each says how much training consumes")
    if given["build"] is not None and given["unique"] is not None:
        problems.add("--unique", "expected --build or --unique, not both: a build says what is different")
    if supplied and supplied.effective:
        unique = supplied.unique
        if (d is None and not (budget or loss)) or epochs is not None:
            d = supplied.effective * (epochs or 1.0)
    if budget and n and d:
        problems.add("--budget", "expected at most two of --params, --tokens, --budget: 6ND is the budget")
        budget = None
    elif budget and (n or d):
        n, d, budget = n or budget / (6 * (d or 1)), d or budget / (6 * (n or 1)), None
    if loss and (n or d or budget):
        problems.add("--loss", "expected alone (with what is served): a plan or a budget has its own loss")
    if not any(given[key] is not None for key in ("params", "tokens", "budget", "loss", "build", "runs")):
        problems.add("the question", "give --params, --tokens, --budget, --loss or --build, or --runs alone for a fit")
    serving, unit = _serving(given, problems)
    numbers = [None if x is None else float(x) for x in (n, d, budget, loss)]
    question = Question(*numbers, unique=math.inf if unique is None else float(unique), serving=serving, unit=unit)
    if question.served and not any(numbers):
        problems.add("--inference-tokens", "needs a model: --params, --tokens, --budget, --loss or --build")
    return question


def _serving(given: dict[str, Any], problems: "Problems") -> "tuple[Serving, str]":
    from datapipe.estimate.lifetime import Serving

    def number(key: str, kind: Any, default: float) -> float:
        found = problems.parse(f"--{key.replace('_', '-')}", given[key], kind, above=not key.endswith("tokens"))
        return default if found is None else float(found)

    if given["inference_tokens"] is not None and (given["input_tokens"] or given["output_tokens"]) is not None:
        problems.add("--inference-tokens", "expected alone, or --input-tokens and --output-tokens")
    read = number("input_tokens", "number", 0.0)
    written = number("output_tokens", "number", 0.0) + number("inference_tokens", "number", 0.0)
    mfu = number("mfu_train", "share", 1.0)
    mfu_read = number("mfu_input", "share", mfu)
    peak, price = number("peak", "FLOP/s", 1.0), number("price", "number", 1.0)
    for flag, needs in (("peak_serve", "peak"), ("price", "peak"), ("price_serve", "price")):
        if given[flag] is not None and given[needs] is None:
            problems.add(f"--{flag.replace('_', '-')}", f"needs --{needs}")
    if not read and not written:
        for key in ("mfu_train", "mfu_input", "mfu_output", "peak", "price"):
            if given[key] is not None:
                problems.add(
                    f"--{key.replace('_', '-')}", "needs --inference-tokens, --input-tokens or --output-tokens"
                )
    hour = 3600.0 if given["price"] is not None else 1.0
    serving = Serving(
        read, written, mfu, mfu_read, number("mfu_output", "share", mfu_read), price / hour,
        number("price_serve", "number", price) / hour, peak, number("peak_serve", "FLOP/s", peak),
    )  # fmt: skip
    plain = all(given[key] is None for key in ("mfu_train", "mfu_input", "mfu_output", "peak"))
    unit = "money" if given["price"] is not None else "seconds" if given["peak"] is not None else "FLOP"
    return serving, unit if plain or unit != "FLOP" else "FLOP at the peak"


def _runs(given: dict[str, Any], columns: Sequence[str], problems: "Problems") -> "Runs | None":
    from datapipe.estimate import runs

    if given["runs"] is None:
        if columns:
            problems.add("--columns", "needs --runs")
        return None
    found = runs.read(Path(given["runs"]), columns, problems)
    drop = problems.parse("--drop-highest", given["drop_highest"], "count")
    if found is None or not drop:
        return found
    kept = found.without_highest(int(drop))
    return kept if runs.enough(kept, Path(given["runs"]), problems) else None


def _published(given: dict[str, Any], problems: "Problems") -> "Constants":
    from datapipe.estimate.constants import DEFAULT, PUBLISHED, named

    if given["runs"] is not None and given["constants"] is not None:
        problems.add("--constants", "expected --runs or --constants, not both")
    return named(given["constants"] or DEFAULT, problems) or PUBLISHED[DEFAULT]


def _numbers(given: dict[str, Any], problems: "Problems") -> tuple[int, int, int, float]:
    counts = [problems.parse(f"--{key}", given[key], "count") for key in ("bootstrap", "seed", "leverage")]
    share = problems.parse("--leave-largest", given["leave_largest"], "share")
    bootstrap, seed, leverage = (int(count or 0) for count in counts)
    return bootstrap, seed, leverage, float(share or 0)


def _split(sets: Sequence[str]) -> tuple[list[str], list[str]]:
    """--set of constants, --set of terms."""
    letters = [one for one in sets if one.partition("=")[0] in LETTERS]
    return letters, [one for one in sets if one not in letters]


def _letters(sets: Sequence[str], problems: "Problems") -> dict[str, float]:
    found: dict[str, float] = {}
    for text in sets:
        name, _, value = text.partition("=")
        number = problems.parse(f"--set {text}", value, "number", above=name != "E")
        if number is not None:
            found[name] = float(number)
    return found


def _terms(sets: Sequence[str], without: Sequence[str], question: "Question", problems: "Problems") -> dict[str, float]:
    from datapipe.errors import ManifestError
    from datapipe.estimate.scaling import names
    from datapipe.estimate.terms import changes

    try:
        return changes(sets, without, names(question), "number")
    except ManifestError as error:
        problems.found += str(error).splitlines()
        return {}


def _evidence(runs: "Runs | None", numbers: tuple[int, int, int, float]) -> "Evidence":
    from datapipe.estimate.resample import Evidence, examine

    if runs is None:
        return Evidence()
    from datapipe.estimate.fitting import fit

    return examine(fit(runs), *numbers)


def _used(constants: "Constants", letters: dict[str, float]) -> "Constants":
    from dataclasses import replace

    if not letters:
        return constants
    changed = ", ".join(letters)
    return replace(constants, **letters, name=f"{constants.name}*", source=f"{constants.source}; {changed} set by you")  # pyright: ignore[reportArgumentType]


# --- what is made -----------------------------------------------------------------------------------------------------


def _pictures(folder: Path, found: "Answer", runs: "Runs | None") -> list[str]:
    from datapipe.build_manifest.consumers import put
    from datapipe.estimate import pictures

    written = [put(folder / CONTOURS, pictures.contours(found.constants, found.plans, runs))]
    life = next((plan for plan in found.plans if plan.name == "lifetime"), None)
    if life:
        dinf, unique = found.question.serving.weight, found.question.unique
        data = pictures.served(found.constants, life.target, 100 * dinf, unique, dinf)
        written.append(put(folder / LIFETIME, data))
    return [str(path) for path in written]


def _json(found: "Answer", supplied: "Supply | None", written: list[str]) -> dict[str, Any]:
    return found.as_json() | {"build": supplied and supplied.as_json(), "pictures": written}
