"""
The collateral table: what each rule of a filter takes from each source, in each of its languages.

A rule takes a document when the document breaks it: `alone` where it breaks no other rule of that filter, and would
have passed without this one; `decides` where it is the first broken rule in the manifest's order, which the document
is counted under everywhere else.  Shares are of the documents that the filter judged.
"""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from importlib import resources
from typing import TYPE_CHECKING, Any, Protocol

from datapipe.keyed import stage_name

if TYPE_CHECKING:
    import duckdb

LANGUAGES = 100  # of a source that are counted each for itself; the others are `*` together
STRIKING = 0.2  # share of a source's documents from which a rule is worth a sentence
LEAST = 10  # documents that a sentence needs: shares of a handful say nothing

FIGURES = ("documents", "bytes", "alone", "alone_bytes", "decides", "decides_bytes")


class Report(Protocol):
    """The books of a stage, as documents.StageReport has them."""

    @property
    def stage(self) -> str: ...
    @property
    def place(self) -> int: ...
    @property
    def notes(self) -> Mapping[str, Any]: ...


@dataclass(frozen=True)
class Taken:
    """
    What a rule takes from a source, or from one language of it.

    stage:     "1:filter"
    lang:      the documents' `lang`, null for those without one
    documents: that break the rule; alone: no other rule of the filter; decides: it is the first
    judged:    documents of the source (and language) that the filter judged
    """

    stage: str
    rule: str
    source: str
    lang: str | None
    documents: int
    bytes: int
    alone: int
    alone_bytes: int
    decides: int
    decides_bytes: int
    judged: int
    judged_bytes: int

    @property
    def together(self) -> int:
        """Documents that break other rules of the filter, too."""
        return self.documents - self.alone

    @property
    def share(self) -> float:
        """Of the judged documents."""
        return self.documents / self.judged if self.judged else 0.0


def count(db: "duckdb.DuckDBPyConnection", place: int, judged: str) -> dict[str, list[dict[str, Any]]]:
    """
    The tables of a stage that has just been applied, for manifest.json: `judged` (source, lang, documents, bytes) and
    `collateral` (rule, source, lang, FIGURES).

    judged: SQL over `documents` for those that the stage judged, of all that reached it
    """
    here = f"(place is null or place = {place})"
    text = resources.files("datapipe").joinpath("collateral.sql").read_text("utf-8")
    statements = dict(piece.split("\n", 1) for piece in text.split("-- name: ")[1:])
    for name, statement in statements.items():
        statements[name] = statement.replace("{here}", here).replace("{judged}", judged)
    db.execute(statements["languages"], {"most": LANGUAGES})
    found = {
        "judged": _rows(db.execute(statements["judged"])),
        "collateral": _rows(db.execute(statements["collateral"], {"place": place})),
    }
    db.execute("drop table collateral_languages")
    return found


def _rows(found: "duckdb.DuckDBPyConnection") -> list[dict[str, Any]]:
    names = [str(column[0]) for column in found.description or []]
    return [dict(zip(names, row, strict=True)) for row in found.fetchall()]


@dataclass
class Table:
    """
    The collateral of the filters of a build, or of a sample.

    rows:   by stage, rule, source and language
    judged: stage -> (source, language) -> documents, bytes that it judged
    """

    rows: list[Taken] = field(default_factory=list)
    judged: dict[str, dict[tuple[str, str | None], tuple[int, int]]] = field(default_factory=dict)

    def add(self, stage: str, judged: Iterable[Mapping[str, Any]], collateral: Iterable[Mapping[str, Any]]) -> None:
        """The tables of one stage, as manifest.json has them."""
        whole = {(row["source"], row["lang"]): (row["documents"], row["bytes"]) for row in judged}
        self.judged[stage] = whole
        for row in collateral:
            source, lang = row["source"], row["lang"]
            figures = {name: row[name] for name in FIGURES}
            self.rows.append(_taken(stage, row["rule"], source, lang, figures, whole[source, lang]))

    @classmethod
    def of_reports(cls, reports: Iterable[Report]) -> "Table":
        """The tables of all filters among the stages that were applied."""
        table = cls()
        for report in reports:
            if "collateral" in report.notes:
                title = stage_name(report.place, report.stage)
                table.add(title, report.notes["judged"], report.notes["collateral"])
        return table

    def sources(self, stage: str) -> dict[str, tuple[int, int]]:
        """Documents and bytes of each source that a stage judged."""
        found: dict[str, tuple[int, int]] = {}
        for (source, _), (documents, size) in self.judged[stage].items():
            before = found.get(source, (0, 0))
            found[source] = (before[0] + documents, before[1] + size)
        return found

    def by_source(self) -> list[Taken]:
        """All languages of a source together, the largest shares first."""
        groups: dict[tuple[str, str, str], list[Taken]] = {}
        for row in self.rows:
            groups.setdefault((row.stage, row.rule, row.source), []).append(row)
        whole = {stage: self.sources(stage) for stage in self.judged}
        found: list[Taken] = []
        for (stage, rule, source), group in groups.items():
            figures = {name: sum(getattr(row, name) for row in group) for name in FIGURES}
            found.append(_taken(stage, rule, source, None, figures, whole[stage][source]))
        return worst(found)

    def as_json(self) -> dict[str, list[dict[str, Any]]]:
        """`judged`: what each filter judged by source and language; `collateral`: every row, largest shares first."""
        judged: list[dict[str, Any]] = [
            {"stage": stage, "source": source, "lang": lang, "documents": documents, "bytes": size}
            for stage, found in self.judged.items()
            for (source, lang), (documents, size) in found.items()
        ]
        rows: list[dict[str, Any]] = [
            asdict(row) | {"share": row.share, "together": row.together} for row in worst(self.rows)
        ]
        return {"judged": judged, "collateral": rows}

    def languages(self, stage: str, source: str) -> list[str | None]:
        """The languages of a source that a stage judged, the most documents first."""
        ours = [(lang, n) for (name, lang), (n, _) in self.judged[stage].items() if name == source]
        return [lang for lang, _ in sorted(ours, key=lambda one: (-one[1], one[0] or ""))]


def _taken(
    stage: str, rule: str, source: str, lang: str | None, figures: Mapping[str, int], judged: tuple[int, int]
) -> Taken:
    return Taken(stage=stage, rule=rule, source=source, lang=lang, **figures, judged=judged[0], judged_bytes=judged[1])


def labels(stages: Iterable[tuple[str, str | None]]) -> dict[str, str]:
    """How people read the filters of a manifest, of (stage, preset): "1:filter" is "1:gopher_quality" by its preset."""
    return {stage_name(place, stage): f"{place}:{preset}" for place, (stage, preset) in enumerate(stages, 1) if preset}


def worst(rows: Iterable[Taken]) -> list[Taken]:
    """The largest shares first; where they are equal, what would have passed without the rule, then by name."""
    return sorted(rows, key=lambda row: (-row.share, -row.alone, row.stage, row.rule, row.source, row.lang or ""))


def striking(table: Table) -> list[Taken]:
    """
    What no one should miss: a rule that takes a large share of a source, or of one of its languages where that is
    another story than the source's; the largest shares first.
    """
    sources = {(row.stage, row.rule, row.source): row for row in table.by_source()}
    found = [row for row in sources.values() if _strikes(row)]
    for row in table.rows:
        whole = sources[row.stage, row.rule, row.source]
        if row.rule.startswith("lang "):
            continue  # of a language that is not listed everything goes, and is meant to
        if _strikes(row) and row.lang is not None and (row.share >= 2 * whole.share or not _strikes(whole)):
            found.append(row)
    return worst(found)


def _strikes(row: Taken) -> bool:
    return row.share >= STRIKING and row.documents >= LEAST


def sentence(row: Taken) -> str:
    """ "short_line_ratio > 0.67 takes 41% of code (82 of 200 judged), 20% alone"."""
    what = row.source if row.lang is None else f"{row.source} in {'other languages' if row.lang == '*' else row.lang}"
    taken, alone = percent(row.documents, row.judged), percent(row.alone, row.judged)
    return f"{row.rule} takes {taken} of {what} ({row.documents:,} of {row.judged:,} judged), {alone} alone"


def percent(part: int, whole: int) -> str:
    """A share as a person says it: 41%, 0.3%, 0%, and 0.01% for all that is less."""
    if not part or not whole:
        return "0%"
    share = 100 * part / whole
    if share < 0.095:
        return f"{max(share, 0.01):.2f}%"
    return f"{share:.0f}%" if share >= 9.95 else f"{share:.1f}%"
