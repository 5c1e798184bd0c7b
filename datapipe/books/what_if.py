"""
Other bounds, answered from the stored signals: what would leave instead, and what that cannot know.

Filters are judged again for every document that would reach them.  What stands between or after them (dedup) is
taken as it was: which of the documents that newly arrive it would drop is not known, and is counted as such.
"""

import math
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from datapipe.books.library import DEDUP, Books
from datapipe.documents import literal, shown
from datapipe.errors import ManifestError
from datapipe.manifest import LANG, Only
from datapipe.scope import condition, without_language

SCOPES = ("source", "lang", "snapshot")
# 2:word_count.min=30; the place may have the label that tables show, 2:gopher_quality
PLACE = r"(?:(\d+):)?"
EXPRESSION = re.compile(PLACE + r"([^=]+)\.(min|max)\s*=\s*(.+)")
GONE = re.compile(PLACE + r"([^=]+?)\s*=\s*(?:none|null)")
SCOPE = re.compile(PLACE + r"(only\.source|only\.lang|only\.snapshot|languages|lang\.in)\s*=\s*(.*)")


@dataclass
class Entry:
    """A filter stage: its bounds (signal -> {min, max} or {in}), and whom it judges, as the manifest says it."""

    place: int
    keep: dict[str, dict[str, Any]]
    only: dict[str, list[str]]
    languages: list[str]
    preset: str | None = None

    def judged(self, unlabelled: frozenset[str]) -> str:
        """SQL for whom it judges, as the stage has it."""
        source, lang, snapshot = (tuple(self.only.get(key) or ()) for key in SCOPES)
        only = Only.model_construct(source=source, lang=lang, snapshot=snapshot)
        return condition(only, self.languages, unlabelled, table="b.")


@dataclass(frozen=True)
class Change:
    """A source at a filter: dropped there now and then; `added` leave that did not, `rescued` the other way round."""

    stage: str
    source: str
    now: int
    then: int
    added: int
    rescued: int


@dataclass(frozen=True)
class WhatIf:
    """
    asked:     (filter, what of it, as it is, as it would be)
    bounds:    all bounds, the asked ones laid over them
    changes:   by filter and source
    lost:      of the documents kept or unused now, those that would leave: documents, bytes, tokens, by source
    unknown:   what stored signals cannot say, a sentence each
    """

    asked: list[tuple[str, str, str, str]]
    bounds: dict[str, dict[str, dict[str, Any]]]
    changes: list[Change]
    lost: dict[str, dict[str, int]]
    arriving: dict[str, int]
    unknown: list[str] = field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def what_if(books: Books, expressions: Sequence[str]) -> WhatIf:
    """
    What `word_count.min=30` would change; `none` takes a bound away, `2:word_count.min=30` names the filter's place.
    `2:only.source=web,wiki` has it judge these sources, `2:languages=none` every language, `lang.in=en,de` keeps these.
    """
    filters, stored = _filters(books), _stored(books)
    titles = {stage.place: stage.title for stage in books.manifest.stages}
    asked: list[tuple[str, str, str, str]] = []
    for expression in expressions:
        plain = _plain(expression.strip(), filters)
        if scope := SCOPE.fullmatch(plain):
            place, what, before, after = _scope(expression, scope, filters, books.manifest.sources)
        elif not EXPRESSION.fullmatch(plain) and (gone := GONE.fullmatch(plain)):
            place, what, before, after = _remove(expression, gone, filters)
        else:
            place, what, before, after = _set(expression, plain, filters, stored)
        asked.append((titles[place], what, before, after))
    _simulate(books, filters)
    return WhatIf(
        asked,
        {titles[place]: entry.keep for place, entry in filters.items()},
        _changes(books, filters, titles),
        _lost(books),
        dict(
            books.query(
                "select source, count(*) from sim where later is null and place is not null group by 1 order by 1"
            )
        ),
        _unknown(books, titles),
    )


def _filters(books: Books) -> dict[int, Entry]:
    stages = books.manifest.manifest.get("stages") or []
    filters = {
        place: Entry(
            place,
            {signal: dict(ends) for signal, ends in stage["keep"].items() if ends},
            {key: list(values) for key, values in (stage.get("only") or {}).items()},
            list(stage.get("languages") or ()),
            stage.get("preset"),
        )
        for place, stage in enumerate(stages, 1)
        if stage["stage"] == "filter"
    }
    if not filters:
        raise ManifestError("--what-if: this build has no filter stage")
    return filters


def _plain(expression: str, filters: dict[int, Entry]) -> str:
    """An expression without the label that tables give a filter: 2:gopher_quality.word_count.min=30."""
    for place, entry in filters.items():
        for label in ("filter", entry.preset):
            if label and expression.startswith(f"{place}:{label}."):
                return f"{place}:{expression.removeprefix(f'{place}:{label}.')}"
    return expression


def _stored(books: Books) -> list[str]:
    if not books.has("signals"):
        return []  # a filter on `lang` alone needs none
    columns = books.db.execute('select * exclude ("#part", "#row") from signals limit 0').description or []
    return [str(column[0]) for column in columns]


def _scope(
    expression: str, match: re.Match[str], filters: dict[int, Entry], sources: Sequence[str]
) -> tuple[int, str, str, str]:
    """Lay one expression over whom a filter judges; its place, what was changed, from what, to what."""
    if match[1] is None and len(filters) > 1:
        raise ManifestError(f"--what-if {expression}: which filter? write its place before it: {_names(filters)}")
    entry = filters[_place(expression, match[1], "", filters)]
    whole = match[3].strip().lower() in ("", "none", "null")
    values = [] if whole else [value.strip() for value in match[3].split(",")]
    if match[2] == "only.source" and (unknown := [value for value in values if value not in sources]):
        raise ManifestError(f"--what-if {expression}: no source {unknown[0]}; there are: {', '.join(sources)}")
    if match[2] == "lang.in":
        before = entry.keep.get(LANG, {}).get("in") or []
        entry.keep[LANG] = {"in": values}
    elif match[2] == "languages":
        before, entry.languages = entry.languages, values
    else:
        key = match[2].removeprefix("only.")
        before, entry.only[key] = entry.only.get(key) or [], values
    return entry.place, match[2], ", ".join(before) or "all", ", ".join(values) or "all"


def _remove(expression: str, match: re.Match[str], filters: dict[int, Entry]) -> tuple[int, str, str, str]:
    """Take a bound away; its place, what was changed, from what, to what."""
    signal = match[2].strip()
    bounded = {place: entry for place, entry in filters.items() if signal in entry.keep}
    if not bounded:
        raise ManifestError(f"--what-if {expression}: no filter bounds {signal}; filters: {_names(filters)}")
    entry = filters[_place(expression, match[1], signal, filters)]
    before = entry.keep.pop(signal, {})
    ends = ", ".join(f"{end} {_shown(bound)}" for end, bound in before.items() if bound is not None and end != "in")
    return entry.place, signal, ends or ", ".join(before.get("in") or []) or "none", "none"


def _set(expression: str, plain: str, filters: dict[int, Entry], stored: list[str]) -> tuple[int, str, str, str]:
    """Lay one expression over the bounds; its place, what was changed, from what, to what."""
    match = EXPRESSION.fullmatch(plain)
    if not match:
        raise ManifestError(
            f"--what-if {expression}: expected SIGNAL.min=NUMBER or SIGNAL.max=NUMBER (or =none), or "
            "only.source=NAME,NAME, or languages=en"
        )
    place, signal, end, value = match[1], match[2].strip(), match[3], match[4].strip()
    if signal not in stored:
        known = ", ".join(stored) or "none"
        raise ManifestError(f"--what-if {expression}: no signal {signal} is stored; there are: {known}")
    entry, bound = filters[_place(expression, place, signal, filters)], _number(expression, value)
    ends = entry.keep.setdefault(signal, {"min": None, "max": None})
    before, ends[end] = ends.get(end), bound
    return entry.place, f"{signal}.{end}", _shown(before), _shown(bound)


def _shown(bound: float | None) -> str:
    return "none" if bound is None else shown(bound)


def _number(expression: str, value: str) -> float | None:
    if value.lower() in ("none", "null"):
        return None
    try:
        number = float(value)
    except ValueError:
        number = float("nan")
    if not math.isfinite(number):
        raise ManifestError(f"--what-if {expression}: {value} is no number, and not `none`")
    return number


def _place(expression: str, place: str | None, signal: str, filters: dict[int, Entry]) -> int:
    """Which filter is meant: the one named, the one that bounds the signal, or the only one."""
    if place is not None:
        if int(place) not in filters:
            raise ManifestError(f"--what-if {expression}: stage {place} is no filter; filters: {_names(filters)}")
        return int(place)
    fits = [number for number, entry in filters.items() if signal in entry.keep] or list(filters)
    if len(fits) > 1:
        raise ManifestError(
            f"--what-if {expression}: which filter? write {fits[0]}:{expression}; filters: {_names(filters)}"
        )
    return fits[0]


def _names(filters: dict[int, Entry]) -> str:
    return ", ".join(f"{place} ({', '.join(entry.keep)})" for place, entry in filters.items())


def _fails(entry: Entry, unlabelled: frozenset[str]) -> str:
    """SQL: the document is judged by the filter, and outside a bound; null is outside of every bound."""
    outside = [
        f"not coalesce({column} {sign} {value!r}::double and not isnan({column}), false)"
        for signal, bound in entry.keep.items()
        for end, sign in (("min", ">="), ("max", "<="))
        if (value := bound.get(end)) is not None and (column := f"{_name('s', signal)}::double")
    ]
    if languages := entry.keep.get(LANG, {}).get("in"):
        outside.append(f"not coalesce(b.lang in ({', '.join(map(literal, languages))}), false)")
    return f"{entry.judged(unlabelled)} and ({' or '.join(outside) or 'false'})"


def _name(table: str, column: str) -> str:
    return f'{table}."' + column.replace('"', '""') + '"'


def _simulate(books: Books, filters: dict[int, Entry]) -> None:
    """
    Table `sim`: a row a document: source, place (now, null: kept or unused), later (the same with the new bounds).

    Walks the stages in order; a stage that is no filter drops whom it dropped, of those that reach it.
    """
    unlabelled = without_language(books.db)
    fails = ", ".join(f"{_fails(entry, unlabelled)} as fails_{place}" for place, entry in filters.items())
    later = ["case"]
    for stage in books.manifest.stages:
        condition = f"fails_{stage.place}" if stage.place in filters else f"place = {stage.place}"
        later.append(f"when {condition} then {stage.place}")
    books.db.execute(
        f"create or replace temp table sim as select *, {' '.join(later)} end::integer as later from ("
        f"select b.doc_id, b.source, b.bytes, b.tokens, b.place, {fails} "
        "from (select f.*, d.lang from fates f join documents d using (part, row)) b "
        + ('join signals s on s."#part" = b.part and s."#row" = b.row)' if books.has("signals") else ")")
    )


def _changes(books: Books, filters: dict[int, Entry], titles: dict[int, str]) -> list[Change]:
    rows = [
        (titles[place], *row)
        for place in filters
        for row in books.query(
            "select source, count(*) filter (place = $p), count(*) filter (later = $p), "
            "count(*) filter (later = $p and place is distinct from $p), "
            "count(*) filter (place = $p and later is distinct from $p) from sim "
            "where place = $p or later = $p group by source order by source".replace("$p", str(place))
        )
    ]
    return [Change(*row) for row in rows]


def _lost(books: Books) -> dict[str, dict[str, int]]:
    rows = books.query(
        "select source, count(*), sum(bytes)::bigint, coalesce(sum(tokens), 0)::bigint from sim "
        "where place is null and later is not null group by source order by source"
    )
    return {source: {"documents": n, "bytes": size, "tokens": tokens} for source, n, size, tokens in rows}


def _unknown(books: Books, titles: dict[int, str]) -> list[str]:
    """Who newly arrives at what is no filter, and who was dropped as a duplicate of one that would leave."""
    places = [stage.place for stage in books.manifest.stages if stage.stage in (*DEDUP, "url_filter", "word_filter")]
    arriving: dict[int, list[str]] = {}
    freed: list[str] = []
    for place in places:
        ((n,),) = books.query(f"select count(*) from sim where place < {place} and (later is null or later > {place})")
        if n:
            arriving.setdefault(n, []).append(titles[place])
        ((n,),) = books.query(
            "select count(*) from ledger l join sim kept on kept.doc_id = l.evidence->>'$.kept' "
            "join sim s on s.doc_id = l.doc_id "
            f"where l.decides and l.stage = ? and s.later = {place} and kept.later < {place}",
            [titles[place]],
        )
        if n:
            freed.append(
                f"{n:,} documents were dropped by {titles[place]} for one that would leave before it; "
                "some of them would stay instead"
            )
    reached = [
        f"{n:,} documents would newly reach {' and '.join(names)}; how many of them would be dropped there, "
        "or would drop others, only a build can say"
        for n, names in arriving.items()
    ]
    return [*reached, *freed]
