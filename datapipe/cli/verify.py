"""datapipe verify"""

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from datapipe.cli.command import Command, json_option, output_option
from datapipe.cli.text import say

if TYPE_CHECKING:
    from datapipe.checks import Verified


@click.command(cls=Command)
@click.argument("build", required=False)
@click.option("--all", "everything", is_flag=True, help="Recompute each text hash and similarity, not a chosen 1 %.")
@output_option
@json_option
def verify(build: str | None, everything: bool, output: Path, as_json: bool) -> None:
    """
    Check a build: digests, every file, columns, the books of documents and tokens, similarities.

    Status 4 where something differs; with --all, 7 where something could not be checked.
    """
    from datapipe.build_manifest import resolve
    from datapipe.checks import verify as check
    from datapipe.cli.progress import Progress
    from datapipe.errors import IncompleteError, IntegrityError
    from datapipe.units import cores

    path = resolve(build, output)
    with Progress() as progress:
        found = check(path, everything=everything, workers=cores(), progress=progress)
    say(json.dumps(found.as_json()) if as_json else _text(found))
    if not found.ok:
        raise IntegrityError(f"{path} is not what its manifest.json says: {_count(found)} differences")
    if everything and not found.complete:
        names = ", ".join(check.name for check in found.checks if check.not_possible)
        raise IncompleteError(f"{path}: not everything could be checked: {names}")


def _count(found: "Verified") -> int:
    return sum(len(check.differences) for check in found.checks)


def _text(found: "Verified") -> str:
    from datapipe.checks.check import SHOWN
    from datapipe.cli.text import safe, table

    rows = [(check.name, check.state, check.seen, check.not_possible or "") for check in found.checks]
    lines = [str(found.build), table(("check", "result", "looked at", ""), rows)]
    for check in found.checks:
        lines += [f"  {check.name}: {safe(difference)}" for difference in check.differences[:SHOWN]]
        if len(check.differences) > SHOWN:
            lines.append(f"  {check.name}: and {len(check.differences) - SHOWN:,} more")
    return "\n".join(lines)
