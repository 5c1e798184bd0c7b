"""A group whose commands are loaded when they are asked for; a file each."""

import importlib
from collections.abc import Sequence

import click


class Lazy(click.Group):
    """`names`: the commands, in the order of --help;  `package`: where the file of each lies, named as it is."""

    names: Sequence[str] = ()
    package = ""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002  click's signature
        return list(self.names)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in self.names:
            return None
        return getattr(importlib.import_module(f"{self.package}.{cmd_name}"), cmd_name)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command that is asked for; click looks for the nearest only among commands that are loaded."""
        if args and args[0] not in self.names and not args[0].startswith("-"):
            raise click.exceptions.NoSuchCommand(args[0], possibilities=self.names, ctx=ctx)
        return super().resolve_command(ctx, args)
