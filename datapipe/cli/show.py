"""datapipe show"""

import json
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from datapipe.cli.command import PATH, Command, Several, json_option, output_option
from datapipe.cli.text import say

if TYPE_CHECKING:
    from datapipe.books import Books

SHOWN = 5  # documents or pairs, unless -n says otherwise
CHARACTERS = 600  # of a text on the screen; --out has all


@click.command(cls=Command)
@click.argument("build", required=False)
@click.option("--dropped", metavar="RULE", help="Texts that a rule or stage left out ('word_count < 50', near_dedup).")
@click.option("--source", metavar="NAME", help="With --dropped: documents of this source.")
@click.option("--duplicates", is_flag=True, help="Pairs of near duplicates, the words that differ marked.")
@click.option(
    "--what-if", cls=Several, metavar="BOUND", help="Other bounds ('word_count.min=30'): what would leave instead."
)
@click.option("--collateral", is_flag=True, help="What each rule of a filter takes from each source and language.")
@click.option("--preset", metavar="NAME", help="A published set of bounds, as a filter's `preset` names it: its file.")
@click.option("--document", metavar="ID", help="What became of one document, by the first digits of its doc_id.")
@click.option("-n", "number", type=click.IntRange(1), help=f"How many of them.  [default: {SHOWN}; all into --out]")
@click.option("--out", type=PATH, help="With --dropped: write JSON lines into this file.")
@output_option
@json_option
def show(
    build: str | None,
    dropped: str | None,
    source: str | None,
    duplicates: bool,
    what_if: tuple[str, ...],
    collateral: bool,
    preset: str | None,
    document: str | None,
    number: int | None,
    out: Path | None,
    output: Path,
    as_json: bool,
) -> None:
    """
    The books of a build: what came in, what became of it, and why.

    BUILD is a path, `name`, `name@3`, `name@9f2c`, or nothing for the newest.
    """
    if sum(map(bool, (dropped, duplicates, what_if, collateral, preset, document))) > 1:
        raise click.UsageError("choose one of --dropped, --duplicates, --what-if, --collateral, --preset, --document")
    for option, value in (("--out", out), ("--source", source)):
        if value and not dropped:
            raise click.UsageError(f"{option} needs --dropped")
    if preset:
        _preset(preset, as_json)
        return

    from datapipe.books import Books
    from datapipe.build_manifest import resolve

    with Books(resolve(build, output, failed=True)) as books:
        if dropped:
            _dropped(books, dropped, source, number, out, as_json)
        elif duplicates:
            _duplicates(books, number or SHOWN, as_json)
        elif what_if:
            _what_if(books, what_if, as_json)
        elif collateral:
            _collateral(books, number, as_json)
        elif document:
            _document(books, document, as_json)
        else:
            _overview(books, as_json)


def _answer(as_json: bool, value: Callable[[], Any], text: Callable[[], str]) -> None:
    say(json.dumps(value()) if as_json else text())


def _collateral(books: "Books", number: int | None, as_json: bool) -> None:
    from datapipe.cli.summary import collateral_table

    _answer(
        as_json,
        lambda: {"not_judged": books.not_judged(), **books.collateral().as_json()},
        lambda: collateral_table(books, number),
    )


def _preset(name: str, as_json: bool) -> None:
    from dataclasses import asdict

    from datapipe.manifest import presets

    if name not in presets.names():
        raise click.BadParameter(f"no such preset; there are {', '.join(presets.names())}", param_hint="--preset")
    _answer(as_json, lambda: {"name": name} | asdict(presets.load(name)), lambda: presets.text(name).rstrip())


def _overview(books: "Books", as_json: bool) -> None:
    from datapipe.cli.summary import overview

    _answer(as_json, books.as_json, lambda: overview(books))


def _what_if(books: "Books", expressions: tuple[str, ...], as_json: bool) -> None:
    from datapipe.books import what_if
    from datapipe.cli.summary import changes

    found = what_if(books, expressions)
    _answer(as_json, found.as_json, lambda: changes(found))


def _dropped(
    books: "Books", rule: str, source: str | None, number: int | None, out: Path | None, as_json: bool
) -> None:
    from datapipe.books import dropped

    rows = dropped(books, rule, number if number or out else SHOWN, source)
    if out:
        count = _write(out, rows)
        _answer(as_json, lambda: {"file": str(out), "documents": count}, lambda: f"{count:,} documents in {out}")
        return
    found = list(rows)
    _answer(as_json, lambda: {"dropped": found}, lambda: "\n\n".join(map(_text, found)) or "no such document")


def _write(out: Path, rows: Iterable[dict[str, Any]]) -> int:
    count = 0
    try:
        file = open(out, "w", encoding="utf-8")  # noqa: SIM115  only the opening may be the flag's fault
    except (FileNotFoundError, IsADirectoryError, NotADirectoryError) as error:
        raise click.BadParameter(f"{out}: {error.strerror}", param_hint="--out") from None
    with file:
        for row in rows:
            file.write(json.dumps(row, ensure_ascii=False) + "\n")
            count += 1
    return count


def _text(row: dict[str, Any]) -> str:
    from datapipe.cli.text import safe

    value = "" if row["value"] is None else f" ({row['value']:g})"
    also = "" if row["decides"] else ", where another rule decides"
    head = f"{row['doc_id']}  {safe(str(row['stage']))}: {safe(str(row['rule']))}{value}{also}\n  {_origin(row)}"
    if row["text"] is None:
        return f"{head}\n  its text is not stored in this build"
    text = row["text"]
    more = f"\n  ... {len(text) - CHARACTERS:,} more characters" if len(text) > CHARACTERS else ""
    return head + "\n" + _indent(safe(text[:CHARACTERS], lines=True)) + more


def _indent(text: str) -> str:
    return "\n".join(f"  | {line}" for line in text.split("\n"))


def _origin(row: dict[str, Any]) -> str:
    from datapipe.cli.text import safe, size

    where = f" {row['path']}" if row["path"] is not None else ""
    line = f":{row['line']}" if row["line"] is not None else ""
    own = f", id {row['id']}" if row["id"] is not None and row["id"] != row["path"] else ""
    return safe(f"{row['source']}{where}{line}{own}, {size(row['bytes'])}")


def _duplicates(books: "Books", number: int, as_json: bool) -> None:
    from dataclasses import asdict

    from datapipe.books import duplicates
    from datapipe.cli.sides import pair

    found = duplicates(books, number)
    columns = shutil.get_terminal_size((100, 24)).columns
    _answer(
        as_json,
        lambda: {"duplicates": [asdict(one) for one in found]},
        lambda: "\n\n".join(pair(one, columns) for one in found) or "no duplicates were dropped",
    )


def _document(books: "Books", prefix: str, as_json: bool) -> None:
    from datapipe.books import life

    found = life(books, prefix)
    _answer(as_json, lambda: found, lambda: _life(found))


def _life(found: dict[str, Any]) -> str:
    from datapipe.cli.text import safe

    lines = [
        f"{found['doc_id']}",
        f"  {_origin(found)}",
        f"  split {found['split']}, group {safe(str(found['group']))}",
    ]
    lines.append(
        f"  {found['fate']}" + (f" by {safe(found['stage'])}: {safe(str(found['rule']))}" if found["stage"] else "")
    )
    for row in found["ledger"]:
        mark = "decides" if row["decides"] else "also"
        lines.append(f"  {row['stage']}: {safe(row['rule'])}, {mark}, value {row['value']}, evidence {row['evidence']}")
    if found["stands_for"]:
        lines.append(f"  stands for {len(found['stands_for']):,} duplicates: {', '.join(found['stands_for'][:SHOWN])}")
    if found["tokens"] is not None:
        lines.append(f"  {found['tokens']:,} tokens, {found['copies']} copies")
    lines += [f"  in {place['file']}, row {place['row_id']}" for place in found["shards"][:20]]
    if found["text"] is not None:
        lines.append(_indent(safe(found["text"][:CHARACTERS], lines=True)))
    return "\n".join(lines)
