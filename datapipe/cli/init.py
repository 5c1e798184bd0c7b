"""datapipe init"""

import json
from pathlib import Path

import click

from datapipe.cli.command import PATH, Command, json_option


@click.command(cls=Command)
@click.argument("paths", nargs=-1, required=True)
@click.option("--out", type=PATH, metavar="FILE", help="Where the manifest is written.  [default: stdout]")
@click.option("--force", is_flag=True, help="Write over a file that is there.")
@click.option("--name", help="Name of the build.  [default: that of the first path]")
@json_option
def init(paths: tuple[str, ...], out: Path | None, force: bool, name: str | None, as_json: bool) -> None:
    """
    Look at files and propose a manifest for them.

    PATHS are files, folders or patterns.  A sample of their records is read: which field is the text, the id, the
    date, and which filters fit.  What was doubtful is said on stderr, and in the comments of the manifest.
    """
    if out is not None and out.exists() and not force:
        raise click.BadParameter(f"{out} is there already; say --force to write over it", param_hint="--out")
    if out is not None and not out.absolute().parent.is_dir():
        raise click.BadParameter(f"{out.parent} is no folder", param_hint="--out")

    from datapipe.cli.text import safe, say
    from datapipe.propose import propose

    proposal = propose(paths, name=name, folder=None if out is None else out.absolute().parent)
    if out is not None:
        out.write_text(proposal.text, encoding="utf-8")
    for about, doubt in proposal.doubts:
        say(f"not sure: {about}{': ' if about else ''}{safe(doubt)}", err=True)
    if as_json:
        say(json.dumps(proposal.as_json() | {"out": None if out is None else str(out)}))
    elif out is None:
        click.echo(proposal.text, nl=False)
    else:
        say(f"{out} is written; read it, then: datapipe build {out} --dry-run", err=True)
