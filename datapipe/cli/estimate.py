"""datapipe estimate: a group; each of its commands has a file in cli/estimating, loaded when it is asked for."""

import click

from datapipe.cli.lazy import Lazy

COMMANDS = ("memory", "parallel", "scaling", "claim")


class Estimates(Lazy):
    names, package = COMMANDS, "datapipe.cli.estimating"


@click.group(cls=Estimates)
def estimate() -> None:
    """
    What a training run would need: tables of terms, each with its formula and its source.

    Quantities are written as people do: 7B or 7e9 parameters, 80GB (10^9) or 80GiB (2^30), 400Gbit/s, 312TFLOP/s, 5us.
    `--set TERM=VALUE` puts another value in, `--without TERM` leaves a term or a group out.
    """
