"""datapipe estimate claim"""

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from datapipe.cli.command import PATH, json_option, output_option
from datapipe.cli.text import say

if TYPE_CHECKING:
    from datapipe.estimate.claim import Claim

WIDTH = 116


@click.command
@click.argument("subject", required=False, metavar="[BUILD|RUN]")
@click.option("--params", metavar="N", help="Parameters of the model, where there is no run yet.")
@click.option("--inference-tokens", metavar="D", help="Tokens that the model will serve.")
@click.option("--runs", type=PATH, default=Path("runs"), show_default=True, help="The folder that holds the runs.")
@output_option
@json_option
def claim(
    subject: str | None, params: str | None, inference_tokens: str | None, runs: Path, output: Path, as_json: bool
) -> None:  # fmt: skip
    """
    What "more data, better model" must answer: the questions, the answers that a build or a run knows, and what is
    missing.

    A run is a folder with run.json, or a name under --runs; anything else is a build, the newest by default.
    """
    from datapipe.estimate.claim import claim as asked
    from datapipe.estimate.claim import find
    from datapipe.estimate.quantities import Problems

    problems = Problems()
    n = problems.parse("--params", params, "number", above=True)
    served = problems.parse("--inference-tokens", inference_tokens, "number")
    problems.refuse()
    found = find(subject, output, runs, None if n is None else float(n), None if served is None else float(served))
    answered = asked(found)
    say(json.dumps(answered.as_json()) if as_json else text(answered))


def text(found: "Claim") -> str:
    """Each question with what is known (=) and what is missing (?)."""
    from datapipe.cli.text import count, safe, wrap

    lines = [f'{safe(found.subject.name)}: what "more data, better model" must answer']
    for number, one in enumerate(found.answers, 1):
        lines += ["", f"{number:>2}. {one.question}"]
        for mark, said in (("=", one.known), ("?", one.missing)):
            for line in said:
                first, *rest = wrap(safe(line), WIDTH - 6)
                lines += [f"    {mark} {first}", *(f"      {more}" for more in rest)]
    whole = len(found.answers) - found.open
    lines += ["", f"{count(whole, 'question')} answered, {found.open} open: = known, ? missing"]
    return "\n".join(lines)
