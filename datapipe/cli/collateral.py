"""The collateral table for a terminal: what no one should miss, the worst rows, and each source by language."""

from collections.abc import Mapping

from datapipe.cli.text import safe, size, table
from datapipe.collateral import Table, Taken, percent, sentence, striking, worst

SENTENCES = 6  # that stand above the table
ROWS = 12  # of the table in an overview
MANY = 40  # of the table after a dry run, which nobody can ask for more
RULES = 12  # of a table by language after a dry run
LANGUAGES = 8  # of a source, the most common ones; --json has all


def warnings(found: Table) -> list[str]:
    """A line for each rule that takes a striking share of a source; the worst ones."""
    rows = striking(found)
    lines = [f"! {safe(sentence(row))}" for row in rows[:SENTENCES]]
    return [*lines, f"  and {len(rows) - len(lines)} more"] if len(rows) > len(lines) else lines


def collateral(found: Table, names: Mapping[str, str], limit: int | None, whole: str) -> str:
    """The worst `limit` rows under the sentences; `whole`: what shows the rest.  Empty without a filter."""
    if not found.judged:
        return ""
    rows = found.by_source()
    head = "collateral: documents that break a rule; alone: no other rule of that filter"
    if not rows:
        return f"{head}\n  no filter takes anything"
    shown = rows[:limit]
    more = f"\n  and {len(rows) - len(shown)} more rows{whole}" if len(rows) > len(shown) else ""
    header = ("filter", "rule", "source", "judged", "takes", "bytes", "share", "alone", "together", "decides")
    lines = [head, *warnings(found), table(header, (_row(row, names) for row in shown))]
    return "\n".join(lines) + more


def _row(row: Taken, names: Mapping[str, str]) -> tuple[object, ...]:
    return (
        names.get(row.stage, row.stage),
        row.rule,
        row.source,
        row.judged,
        row.documents,
        size(row.bytes),
        percent(row.documents, row.judged),
        row.alone,
        row.together,
        row.decides,
    )


def by_language(found: Table, names: Mapping[str, str], limit: int | None) -> str:
    """
    A table for each filter and source in which it judged several languages: the share each rule takes of each.

    limit: the rules of a table, those that take the largest shares of a language
    """
    parts = []
    for stage in found.judged:
        for source in found.sources(stage):
            languages = found.languages(stage, source)
            rows = [row for row in found.rows if row.stage == stage and row.source == source]
            if len(languages) > 1 and rows:
                parts.append(_languages(found, names.get(stage, stage), stage, source, languages, rows, limit))
    return "\n\n".join(parts)


def _languages(
    found: Table,
    name: str,
    stage: str,
    source: str,
    languages: list[str | None],
    rows: list[Taken],
    limit: int | None,
) -> str:
    shown = languages[:LANGUAGES]
    cells: dict[str, dict[str | None, Taken]] = {}
    for row in worst(rows):
        cells.setdefault(row.rule, {})[row.lang] = row
    body = [(rule, *(_shares(of.get(lang)) for lang in shown)) for rule, of in list(cells.items())[:limit]]
    judged = ("judged", *(f"{found.judged[stage][source, lang][0]:,}" for lang in shown))
    most = [f"{len(body)} of {len(cells)} rules"] if len(cells) > len(body) else []
    most += [f"{len(shown)} of {len(languages)} languages"] if len(languages) > len(shown) else []
    head = f"{name}, {safe(source)}: % of the judged that break a rule / that one alone"
    header = ("rule", *(_named(lang) for lang in shown))
    return "; ".join([head, *most]) + "\n" + table(header, [judged, *body])


def _named(lang: str | None) -> str:
    return "no lang" if lang is None else "others" if lang == "*" else safe(lang)


def _shares(row: Taken | None) -> str:
    if row is None:
        return ""
    return " / ".join(percent(n, row.judged).removesuffix("%") for n in (row.documents, row.alone))


def not_judged(figures: Mapping[str, Mapping[str, int]], names: Mapping[str, str]) -> str:
    """What each filter did not judge, a line a filter; empty where all judged all."""
    lines = [
        f"  {names.get(stage, stage)}: " + ", ".join(f"{n:,} of {safe(source)}" for source, n in by_source.items())
        for stage, by_source in figures.items()
        if by_source
    ]
    return "not judged\n" + "\n".join(lines) if lines else ""
