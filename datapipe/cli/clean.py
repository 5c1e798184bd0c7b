"""datapipe clean"""

import json
from dataclasses import asdict
from pathlib import Path

import click

from datapipe.cli.command import Command, Size, json_option, output_option
from datapipe.cli.text import say


@click.command(cls=Command)
@click.option("--keep", type=Size(), default="20GB", show_default=True, help="How much of the unit store stays.")
@click.option("--dry-run", is_flag=True, help="Say what would go.")
@output_option
@json_option
def clean(keep: int, dry_run: bool, output: Path, as_json: bool) -> None:
    """
    Remove work units that were not used for longest, and what killed builds left behind.

    Finished builds do not need the units; a later build that needs one makes it again.  Waits for no build: while
    one runs, nothing is removed (status 8).
    """
    from datapipe.build_manifest.sweep import sweep
    from datapipe.cli.text import count, size

    found = sweep(output, keep, dry_run=dry_run)
    if as_json:
        say(json.dumps(asdict(found)))
        return
    would = "would be " if dry_run else ""
    shared = (
        f"; {size(found.shared_bytes)} more stay on the disk, because builds hold the same files"
        if found.shared_bytes
        else ""
    )
    say(
        f"{count(found.removed_units, 'work unit')} and {count(found.removed_leftovers, 'leftover')} {would}removed, "
        f"{size(found.freed_bytes)} {would}freed{shared}\n"
        f"{count(found.kept_units, 'work unit')} kept, {size(found.kept_bytes)}"
    )
