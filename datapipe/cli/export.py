"""datapipe export"""

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from datapipe.cli.command import PATH, Command, json_option, output_option
from datapipe.cli.text import say

if TYPE_CHECKING:
    from datapipe.feed.exports import Exported


@click.command(cls=Command)
@click.argument("build", required=False)
@click.option("--to", "form", metavar="FORMAT", required=True,
              help="nanogpt, megatron, olmo, datatrove, mds or litdata.")  # fmt: skip
@click.option("--out", type=PATH, required=True, help="The folder to write; whole in the end, or not there.")
@click.option("--split", "splits", metavar="NAMES", help="train, validation or both, by comma; default: all with rows.")
@click.option("--cache", type=PATH, help="Where shards of a build at a URL are kept.")
@click.option("--force", is_flag=True, help="Replace an export that lies there.")
@output_option
@json_option
def export(
    build: str | None,
    form: str,
    out: Path,
    splits: str | None,
    cache: Path | None,
    force: bool,
    output: Path,
    as_json: bool,
) -> None:
    """
    Write a build's documents in the format of another trainer, and say what that format cannot hold.

    Documents that packing cut are whole again.  mds and litdata keep the packed rows; their packages write them.
    Hugging Face datasets reads a build's folder as it is.  The build records where its exports are.
    """
    from datapipe.cli.progress import Progress
    from datapipe.feed.exports import export as write

    chosen = [name.strip() for name in splits.split(",")] if splits is not None else None
    with Progress() as progress:
        made = write(build, form, out, splits=chosen, force=force, cache=cache, output=output, progress=progress)
    say(json.dumps(made.as_json()) if as_json else _text(made))


def _text(made: "Exported") -> str:
    from datapipe.cli.text import count, safe, size, table

    rows = [
        (name, books["documents"], books["tokens"], books["targets"], books["masked"], books["dtype"])
        for name, books in made.splits.items()
    ]
    total = sum(file["bytes"] for file in made.files)
    what = f"{count(len(made.files), 'file')}, {size(total)}"
    lines = [
        f"{safe(made.build)} {made.version} in {safe(made.out)}, for {made.format}: {what}",
        table(("split", "documents", "tokens", "targets", "masked", "ids"), rows),
    ]
    for name, books in made.splits.items():
        if (more := books["targets"] - books["targets_in_rows"]) > 0:
            lines.append(f"{name}: {more:,} targets more than in the build's rows, where packing cut documents")
    lost: dict[str, list[str]] = {}
    for name, some in made.loses.items():
        for one in some:
            lost.setdefault(one, []).append(name)
    if lost:
        lines.append("not in these files, or not seen by who reads them:")
        lines += [f"  {', '.join(names)}: {safe(one)}" for one, names in lost.items()]
    if made.consumer is None:
        lines.append("! the build is not on this machine, so nothing there says where this export is")
    return "\n".join(lines)
