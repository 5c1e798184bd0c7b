"""datapipe audit, audit explain, audit diff"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from datapipe.cli.command import FILE, PATH, Several, Size, json_option, output_option, spread
from datapipe.cli.text import say

# what a cleaning does not look at
NOT_CLEANED = {"retrieval", "trace", "profile", "all_read", "against_validation", "scores", "fail_on", "page", "out"}


class Audit(click.Group):
    """A group that is a command itself, and knows options that take several values."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        names = {name for param in self.params if isinstance(param, Several) for name in param.opts}
        if not args or args[0] not in self.commands:
            args = spread(args, names)
        return super().parse_args(ctx, args)


@click.group(cls=Audit, invoke_without_command=True, no_args_is_help=False)
@click.option("--eval", "evals", cls=Several, metavar="PATH", help="Files of eval sets, in their published form.")
@click.option(
    "--train", cls=Several, metavar="BUILD|PATH", help="A build, or files of training text.  [default: newest build]"
)
@click.option("--retrieval", cls=Several, metavar="BUILD|PATH", help="What a retrieval system could show the model.")
@click.option("--trace", type=FILE, help="What it really showed: JSON lines with an example's id and documents.")
@click.option("--fields", cls=Several, metavar="K=V", help="Where parts lie in eval records: prompt=doc.query.")
@click.option("--variants", type=FILE, help="Rewrites or translations of examples: JSON lines with id and text.")
@click.option("--text-field", default="text", show_default=True, help="Where the text lies in records of files.")
@click.option(
    "--profile",
    default="contam",
    show_default=True,
    metavar="NAME",
    help="Count by this rule beside the classes: gpt3, palm, ...",
)
@click.option("--n", "n", type=click.IntRange(3, 32), help="Units of an n-gram.  [default: 8; 12 in unspaced scripts]")
@click.option("--all-read", is_flag=True, help="Documents that the build left out, too, with exposure 0.")
@click.option("--against-validation", is_flag=True, help="The build's own validation split is the eval side.")
@click.option("--scores", type=FILE, help="A score an example: what clean and dirty parts say of the figure.")
@click.option(
    "--fail-on", cls=Several, metavar="EXPR", help="Status 6 where it holds: 'gsm8k.adjacent>0', 'rate>0.01'."
)
@click.option("--report", "page", type=PATH, metavar="FILE.html", help="Write the report as one page.")
@click.option("--out", type=PATH, metavar="DIR", help="Write report.json and tables in Parquet.")
@click.option(
    "--clean-out", type=PATH, metavar="DIR", help="Write the --train files without documents that hold examples."
)
@click.option("--workers", type=click.IntRange(1), help="Threads.  [default: cores]")
@click.option("--memory", type=Size(), default="4GB", show_default=True, help="What the work may hold.")
@output_option
@json_option
@click.pass_context
def audit(ctx: click.Context, **flags: Any) -> None:
    """
    Could the evaluation have been in the data?

    Looks through the newest build (or --train) for every example of the eval sets: prompts, answers, solutions and
    passages, whole or in part, reformatted or nearly the same; and measures in the same run what it would have missed.

    Status 6 where a --fail-on holds, 7 where not everything could be seen, whatever was found.
    """
    if ctx.invoked_subcommand:
        return
    if not flags["evals"] and not flags["against_validation"]:
        raise click.UsageError("name the eval sets: --eval PATHS..., or --against-validation")
    from datapipe.memory import steady

    steady()
    fields = _fields(flags["fields"])
    if flags["clean_out"]:
        _clean(ctx, flags, fields)
        return

    from datapipe import api
    from datapipe.auditing.policy import parse
    from datapipe.cli.progress import Progress
    from datapipe.errors import IncompleteError, PolicyError

    for expression in flags["fail_on"]:
        parse(expression)
    with Progress() as progress:
        found = api.audit(
            flags["evals"],
            train=flags["train"],
            retrieval=flags["retrieval"],
            trace=flags["trace"],
            fields=fields,
            variants=[str(flags["variants"])] if flags["variants"] else [],
            text_field=flags["text_field"],
            profile=flags["profile"],
            n=flags["n"],
            all_read=flags["all_read"],
            against_validation=flags["against_validation"],
            scores=flags["scores"],
            fail_on=flags["fail_on"],
            workers=flags["workers"],
            memory=flags["memory"],
            output=flags["output"],
            out=flags["out"],
            report=flags["page"],
            progress=progress,
        )
    if flags["as_json"]:
        say(json.dumps(found.as_json()))
    else:
        from datapipe.cli.audited import summary

        say(summary(found))
        for path in filter(None, (flags["page"], flags["out"])):
            say(f"written: {path}")
    violated = [policy.expression for policy in found.policies if policy.violated]
    if violated:
        raise PolicyError(f"--fail-on {', '.join(violated)}: holds")
    if not found.verdict.complete:
        raise IncompleteError("; ".join(found.verdict.reasons[:3]) + _more(len(found.verdict.reasons) - 3))


def _clean(ctx: click.Context, flags: dict[str, Any], fields: dict[str, str]) -> None:
    """--clean-out: files in, clean files out; status 7 where one could not be read whole, so it is not there."""
    if not flags["train"]:
        raise click.UsageError("--clean-out writes the files of --train; name them")
    for option in ctx.command.params:
        if option.name in NOT_CLEANED and ctx.get_parameter_source(option.name) is not ParameterSource.DEFAULT:
            raise click.UsageError(f"--clean-out goes without {option.opts[0]}: audit what was written")

    from datapipe import api
    from datapipe.cli.audited import cleaned
    from datapipe.cli.progress import Progress
    from datapipe.cli.text import count
    from datapipe.errors import IncompleteError

    named = ("evals", "train", "text_field", "n", "workers", "memory", "output")
    with Progress() as progress:
        found = api.clean_files(
            **{name: flags[name] for name in named},
            out=flags["clean_out"],
            fields=fields,
            variants=[str(flags["variants"])] if flags["variants"] else [],
            progress=progress,
        )
    say(json.dumps(found.as_json()) if flags["as_json"] else cleaned(found))
    if found.left_out:
        path, why = next(iter(found.left_out.items()))
        raise IncompleteError(f"{path}: {why}; it was left out" + _more(len(found.left_out) - 1))
    if found.unseen:
        path, records = next(iter(found.unseen.items()))
        raise IncompleteError(
            f"{path}: {count(records, 'record')} that could not be understood stay as they are"
            + _more(len(found.unseen) - 1)
        )


def _more(number: int) -> str:
    return f"; and {number:,} more" if number > 0 else ""


def _fields(texts: Sequence[str]) -> dict[str, str]:
    pairs = [_pair(text) for text in texts]
    found = dict(pairs)
    if len(found) < len(pairs):
        twice = next(name for name in found if sum(name == other for other, _ in pairs) > 1)
        told = f"{twice} is given twice; several fields of a part: {twice}=a,b"
        raise click.BadParameter(told, param_hint="--fields")
    return found


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name or not value:
        raise click.BadParameter(f"{text!r}: expected part=field, as in answer=target", param_hint="--fields")
    return name, value


@audit.command()
@click.argument("example")
@click.option("--from", "source", type=PATH, help="A report.json, its folder, or a build.  [default: the newest audit]")
@output_option
@json_option
def explain(example: str, source: Path | None, output: Path, as_json: bool) -> None:
    """
    The evidence for one example: which documents hold it, where, and what became of them.

    EXAMPLE is suite/id, or an id that only one suite has.
    """
    from datapipe.auditing.explain import explain as answer
    from datapipe.auditing.keeping import load
    from datapipe.cli.audited import evidence

    found = answer(load(source, output), example)
    say(json.dumps(found.as_json()) if as_json else evidence(found))


@audit.command()
@click.argument("old", type=PATH)
@click.argument("new", type=PATH)
@output_option
@json_option
def diff(old: Path, new: Path, output: Path, as_json: bool) -> None:
    """
    What changed between two audits: scope, detector, rates, and examples whose class is another.

    OLD and NEW are report.json files, folders that --out wrote, or builds: the newest audit of each.
    """
    from datapipe.auditing.differ import diff as compare
    from datapipe.auditing.keeping import load
    from datapipe.cli.audited import changes

    found = compare(load(old, output), load(new, output))
    say(json.dumps(found.as_json()) if as_json else changes(found))
