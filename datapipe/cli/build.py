"""datapipe build"""

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from datapipe.cli.command import FILE, PATH, Command, Size, json_option
from datapipe.cli.text import say

if TYPE_CHECKING:
    from datapipe.build_manifest import Built, DryRun


@click.command(cls=Command)
@click.argument("manifest", type=FILE)
@click.option(
    "--workers", type=click.IntRange(1, 1024), help="Threads; the result does not depend on it.  [default: cores]"
)
@click.option(
    "--memory",
    type=Size(),
    default="4GB",
    show_default=True,
    help="What the work may hold, next to the 0.5GB that the libraries take; the same result.",
)
@click.option("--output", type=PATH, help="Where builds lie, in place of the manifest's `output`.")
@click.option("--dry-run", is_flag=True, help="Say what would be done: files, work units, disk, memory, pins.")
@click.option(
    "--documents", type=click.IntRange(1), metavar="N", help="With --dry-run: the holdout fraction for N documents."
)
@click.option(
    "--sample",
    type=click.IntRange(1),
    metavar="N",
    help="With --dry-run: show about N records to the filters, and "
    "say what each of their rules would take from which source.",
)
@json_option
def build(
    manifest: Path,
    workers: int | None,
    memory: int,
    output: Path | None,
    dry_run: bool,
    documents: int | None,
    sample: int | None,
    as_json: bool,
) -> None:
    """
    Build the data set that a manifest describes.

    What earlier builds have done is not done again; the same recipe on the same inputs makes nothing new.
    """
    if documents and not dry_run:
        raise click.UsageError("--documents needs --dry-run")
    if sample and not dry_run:
        raise click.UsageError("--sample needs --dry-run")
    if memory < 256_000_000:
        raise click.BadParameter("needs 256MB or more", param_hint="--memory")

    from datapipe import manifest as manifests
    from datapipe import pipeline
    from datapipe.build_manifest import Built, DryRun
    from datapipe.cli.progress import Progress
    from datapipe.units import cores

    asked = manifests.load(manifest)
    with Progress() as progress:
        answer = pipeline.build(
            asked,
            workers=workers or cores(),
            memory=memory,
            output=output,
            dry_run=dry_run,
            sample=sample,
            progress=progress,
        )
    if isinstance(answer, DryRun):
        _dry(answer, documents, as_json)
    elif isinstance(answer, Built):
        _built(answer, as_json)


def _built(built: "Built", as_json: bool) -> None:
    if as_json:
        say(json.dumps(built.as_json()))
        return
    from datapipe.cli.summary import summary

    say(summary(built))


def _dry(dry: "DryRun", documents: int | None, as_json: bool) -> None:
    fraction = dry.holdout_fraction(documents) if documents else None
    if as_json:
        say(json.dumps(dry.as_json() | ({"holdout_fraction": fraction} if documents else {})))
        return
    from datapipe.cli.summary import plan

    say(plan(dry))
    if documents:
        known = f"fraction: {fraction:.6g}" if fraction is not None else "not known: the number of documents is not"
        say(f"\nholdout of about {documents:,} documents: {known}")
