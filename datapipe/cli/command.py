"""Commands whose options can take several values, and the types of values that only a command line has."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click


class Several(click.Option):
    """An option that takes all arguments up to the next option: `--eval a.jsonl b.jsonl`, `--eval evals/*.jsonl`."""

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs | {"multiple": True})

    def make_metavar(self, ctx: click.Context) -> str:
        return f"{super().make_metavar(ctx)}..."


class Command(click.Command):
    """A command that knows Several.  Arguments come before such an option, or after `--`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        names = {name for param in self.params if isinstance(param, Several) for name in param.opts}
        return super().parse_args(ctx, spread(args, names))


def spread(args: Sequence[str], names: set[str]) -> list[str]:
    """`--eval a b` as `--eval a --eval b`, for the options in `names`."""
    found: list[str] = []
    current: str | None = None  # the option that takes what comes
    waiting = False  # it has no value yet
    for number, arg in enumerate(args):
        if arg == "--":
            return [*found, *args[number:]]
        if arg.split("=", 1)[0] in names and arg.startswith("--") and not waiting:
            current, waiting = arg.split("=", 1)[0], "=" not in arg
            found.append(arg)
        elif arg.startswith("-") and arg != "-":
            if waiting:  # click would take the option for its value
                raise click.UsageError(f"Option {current!r} requires an argument.")
            current, waiting = None, False
            found.append(arg)
        else:
            found += [arg] if current is None or waiting else [current, arg]
            waiting = False
    return found


class Size(click.ParamType):
    """Bytes: 64MB, 4GB, 512MiB or a whole number."""

    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int) or str(value).isdecimal():
            return int(value)
        from pydantic_core import PydanticCustomError

        from datapipe.manifest.values import size

        try:
            return size(value)
        except PydanticCustomError as error:
            self.fail(error.message(), param, ctx)


PATH = click.Path(path_type=Path)
FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
output_option = click.option(
    "--output", type=PATH, default=Path("builds"), show_default=True, help="The folder that holds the builds."
)
json_option = click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout, and nothing else.")
