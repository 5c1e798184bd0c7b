"""
Which field is the text, the id, the date and so on: by name and by what the values are, with what was doubtful.

A name alone decides nothing: an id must be distinct, a date must be one that the reader can read, a group must
group.  Where several fields would do, the notes name those that were not taken.
"""

import math
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from datapipe.manifest import FIELDS, SIGNALS
from datapipe.propose import names
from datapipe.propose.values import (
    BOOLEAN,
    INTEGER,
    LIST,
    NULL,
    NUMBER,
    OBJECT,
    STRING,
    Cut,
    Field,
    Record,
    columns,
    head,
)
from datapipe.propose.values import digest as digest_of
from datapipe.propose.values import fields as fields_of
from datapipe.read.fields import instant

MOST_EXTRA = 8
NEARLY = 0.995  # a share that is told as all
OFTEN = 0.5  # share of records from which a field is worth mapping
# dates as people write them, which are no ISO 8601
OTHER_DATE = re.compile(
    r"\d{1,4}[/.]\d{1,2}[/.]\d{2,4}|\b\d{1,2}\.? (jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)"
    r"|\b(jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*\.? \d{1,2}",
    re.IGNORECASE,
)
SECONDS = (10**8, 5 * 10**9)  # 1973 to 2128
POINTS = {names.TEXTS: 100, names.CODES: 75, names.ASKED: 60, names.BESIDE: 40, names.HTML: 35}


@dataclass
class Choice:
    """ours -> theirs, fields to carry along, the snapshot key; what was doubtful, as sentences."""

    fields: dict[str, str]
    extra: list[str] = field(default_factory=list)
    key: str | None = None  # names a thing of which there are several captures
    notes: list[str] = field(default_factory=list)
    sure: bool = True  # of the text

    @property
    def text(self) -> str:
        return self.fields["text"]


def choose(records: Sequence[Record]) -> Choice | None:
    """What a source of these records maps; null where nothing can be its text."""
    found = fields_of(records)
    text = _text(found)
    if text is None:
        return None
    choice = Choice({"text": text.name})
    _doubts_of_text(choice, text, found)
    _id(choice, found, records)
    _date(choice, found)
    _lang(choice, found)
    _group(choice, found, len(records))
    _simple(choice, found, "version", names.VERSIONS, lambda one: one.types[STRING] + one.types[INTEGER] > 0)
    _simple(choice, found, "snapshot", names.SNAPSHOTS, lambda one: one.distinct <= max(50, len(one.values) // 10))
    _extra(choice, found)
    _key(choice, found, records)
    for ours, theirs in choice.fields.items():
        if ours != "text":
            _missing(choice, ours, found[theirs])
    choice.fields = {ours: choice.fields[ours] for ours in FIELDS if ours in choice.fields}
    return choice


def percent(share: float) -> str:
    """A share for people; what is not all or nothing never looks like it."""
    shown = min(99, max(1, round(100 * share))) if 0 < share < 1 else round(100 * share)
    return f"{shown} %"


def _taken(choice: Choice) -> set[str]:
    return {*choice.fields.values(), *choice.extra}


# the text


def _text(found: Mapping[str, Field]) -> Field | None:
    scored = [(score, one) for one in found.values() if (score := _score(one, found)) > 0]
    if not scored:
        nulls = [one for one in found.values() if one.type == NULL and names.rank(one.name, names.TEXTS) is not None]
        return nulls[0] if nulls else None
    return max(scored, key=lambda each: each[0])[1]  # the first of equal ones


def _score(one: Field, found: Mapping[str, Field]) -> float:
    """
    How much a field looks like the text: by its name, lowered where it is not always there or the same again and
    again, and by its length.  0 where it is none.
    """
    if not one.texts or one.stringy < 0.5 or names.rank(one.name, names.NEVER_TEXT) is not None:
        return 0.0
    points = next((points for words, points in POINTS.items() if names.rank(one.name, words) is not None), 0)
    if points == 0 and (one.units < 5 or one.dated > 0.5 or names.rank(one.name, names.IDS + names.PATHS) is not None):
        return 0.0
    if names.bare(one.name) in ("code", "document", "md", "input") and one.size < 30:
        return 0.0  # an abbreviation, the name of a file
    most = max(other.distinctness for other in found.values() if other.stringy >= 0.5)
    again = 0.5 + 0.5 * min(1.0, one.distinctness / most if most else 1.0)
    score = (points + 5 * min(6.0, math.log2(1 + one.units))) * min(1.0, one.share * one.stringy + 0.1) * again
    return score - 5 * names.depth(one.name, found)


def _doubts_of_text(choice: Choice, text: Field, found: Mapping[str, Field]) -> None:
    others = [one for one in found.values() if one is not text and _score(one, found) > 0 and one.units >= 5]
    others.sort(key=lambda one: (-one.size, one.name))
    if names.rank(text.name, names.TEXTS + names.CODES) is None:
        choice.sure = False
        beside = f"; other long texts: {_listed(others)}" if others else ""
        choice.notes.append(f"text: no field is called so; {text.name} is the likeliest{beside}")
    elif longer := [one for one in others if one.size > text.size]:
        choice.notes.append(f"text: {text.name} was taken by its name; longer is {_listed(longer)}")
    if text.type == NULL:
        choice.notes.append(f"text: every value of {text.name} is null")
        return
    wrong = {kind: n for kind, n in text.types.items() if kind != STRING}
    if wrong:
        kinds = ", ".join(f"{n:,} {kind}" for kind, n in sorted(wrong.items()))
        choice.notes.append(f"text: not all values of {text.name} are strings ({kinds}); such records are rejected")
    if text.share < NEARLY:
        gone = percent(1 - text.share)
        choice.notes.append(f"text: {text.name} is missing or null in {gone} of the records; these are rejected")
    empty = text.types[STRING] - len(text.texts)
    if empty:
        choice.notes.append(f"text: {text.name} is empty in {empty:,} of {text.records:,} records; these are rejected")
    if names.rank(text.name, names.HTML) is not None or _marked_up(text):
        choice.notes.append(f"text: {text.name} holds HTML, which is kept as it is; extract the text before, if meant")


def _marked_up(text: Field) -> bool:
    starts = sum(
        head(value).lstrip()[:100].casefold().startswith(("<!doctype", "<html", "<?xml")) for value in text.texts
    )
    return starts > len(text.texts) / 2


def _listed(some: Sequence[Field]) -> str:
    shown = [f"{one.name} ({one.size:,} characters, in {percent(one.share)})" for one in some[:3]]
    return ", ".join(shown) + (f" and {len(some) - 3} more" if len(some) > 3 else "")


# id, date, language, group, version, snapshot


def _ranked(found: Mapping[str, Field], words: Sequence[str], taken: set[str]) -> Iterator[Field]:
    """Fields whose name is one of the words: first those that lie high, then in the order of the words."""
    ranked = [
        (names.depth(one.name, found), rank, place, one)
        for place, one in enumerate(found.values())
        if (rank := names.rank(one.name, words)) is not None and one.name not in taken and one.values
    ]
    return (one for *_, one in sorted(ranked, key=lambda each: each[:3]))


def _id(choice: Choice, found: Mapping[str, Field], records: Sequence[Record]) -> None:
    whole = len({digest_of(record) for record in records})
    refused: list[str] = []
    for one in _ranked(found, names.IDS + names.URLS, _taken(choice)):
        if set(one.types) - {STRING, INTEGER} or any(isinstance(value, Cut) for value in one.values):
            refused.append(f"{one.name} is not always a short text or an integer")
        elif one.share < NEARLY:
            refused.append(f"{one.name} is missing or null in {percent(1 - one.share)} of the records")
        elif one.distinct < min(whole, len(records)) and not _nearly_distinct(one):
            refused.append(f"{one.name} repeats ({said_of(one)}), so it names no record")
        else:
            choice.fields["id"] = one.name
            _doubts_of_id(choice, one, whole, len(records))
            return
    choice.notes += [f"id: {why}: not taken" for why in refused[:3]]


def _doubts_of_id(choice: Choice, one: Field, whole: int, records: int) -> None:
    if whole <= one.distinct < records:
        choice.notes.append(f"id: {one.name} repeats only where a whole record does ({said_of(one)})")
    elif one.distinct < records:
        choice.notes.append(f"id: {one.name} repeats here and there ({said_of(one)}); was it meant to?")
    if names.rank(one.name, names.IDS) is None or names.bare(one.name) in ("idx", "index", "key"):
        choice.notes.append(f"id: {one.name} is distinct in the sample; make sure that it is in all files")


def _nearly_distinct(one: Field) -> bool:
    return len(one.values) >= 100 and one.distinctness >= 0.99 and bool(set(one.types) == {STRING} or one.name == "id")


def said_of(one: Field) -> str:
    return f"{one.distinct:,} values in {len(one.values):,} records"


def _date(choice: Choice, found: Mapping[str, Field]) -> None:
    candidates: list[Field] = []
    for one in _ranked(found, names.DATES, _taken(choice)):
        if one.dated >= 0.5:
            candidates.append(one)
            continue
        if ticks := _ticks(one):
            choice.notes.append(
                f"date: {one.name} holds {ticks} since 1970, which is not read as a date; write ISO 8601 to use it"
            )
        elif example := next((text for text in one.plain if OTHER_DATE.search(text)), None):
            choice.notes.append(f"date: {one.name} is no ISO 8601 ({example[:40]!r}), so it was not taken")
    if not candidates:
        candidates = [one for one in found.values() if _looks_dated(one) and one.name not in _taken(choice)]
    if not candidates:
        return
    date, *others = sorted(candidates, key=lambda one: one.share < OFTEN)  # a sparse one only where there is no other
    choice.fields["date"] = date.name
    if others:
        more = ", ".join(one.name for one in others[:5])
        choice.notes.append(f"date: {date.name} was taken; also dates: {more}")
    if names.rank(date.name, names.DATES) is None:
        choice.notes.append(f"date: {date.name} is taken for its values, not for its name")
    if names.bare(date.name) == "year":
        choice.notes.append(f"date: {date.name} is a year, which stands for its first instant")
    if date.dated < 1:
        example = next(text for text in [*date.plain, "a long text"] if instant(text) is None)
        choice.notes.append(
            f"date: {percent(1 - date.dated)} of the values of {date.name} are no ISO 8601 ({example[:40]!r}): "
            "such a document has no date"
        )


def _ticks(one: Field) -> str | None:
    """Seconds or milliseconds, where a number says an instant of our days."""
    if not one.numeric:
        return None
    for name, factor in (("seconds", 1), ("milliseconds", 1000), ("microseconds", 10**6)):
        if all(SECONDS[0] * factor <= value < SECONDS[1] * factor for value in one.values if _is_number(value)):
            return name
    return None


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _looks_dated(one: Field) -> bool:
    """Whole dates in nearly all values; a year or a number alone may be anything."""
    return (
        one.share >= OFTEN
        and one.stringy > 0.95
        and one.dated >= 0.9
        and all("-" in text and len(text) >= 10 for text in one.plain[:20])
    )


def _lang(choice: Choice, found: Mapping[str, Field]) -> None:
    for one in _ranked(found, names.LANGS, _taken(choice)):
        if one.share < OFTEN:
            choice.notes.append(f"lang: {one.name} has a value in only {percent(one.share)} of the records: not taken")
        elif one.stringy < 0.95 or one.distinct > 300 or one.size > 25:
            choice.notes.append(f"lang: {one.name} does not hold names of languages: not taken")
        elif "lang" not in choice.fields:
            choice.fields["lang"] = one.name
        else:
            choice.notes.append(f"lang: {choice.fields['lang']} was taken; {one.name} would be another")


def _group(choice: Choice, found: Mapping[str, Field], records: int) -> None:
    for one in _ranked(found, names.GROUPS, _taken(choice)):
        if set(one.types) - {STRING, INTEGER}:
            continue
        largest = max(Counter(one.plain).values(), default=0)
        if one.share < OFTEN:
            choice.notes.append(f"group: {one.name} has a value in only {percent(one.share)} of the records: not taken")
        elif records >= 50 and (one.distinct < 10 or largest > records / 5):
            few = f"{one.distinct:,} groups, the largest {percent(largest / records)} of the records"
            choice.notes.append(f"group: {one.name} makes {few}, too coarse for a holdout: not taken")
        elif "group" not in choice.fields:
            choice.fields["group"] = one.name
        else:
            choice.notes.append(f"group: {choice.fields['group']} was taken; {one.name} would be another")


def _simple(
    choice: Choice, found: Mapping[str, Field], ours: str, words: Sequence[str], fits: Callable[[Field], bool]
) -> None:
    fitting = [
        one
        for one in _ranked(found, words, _taken(choice))
        if not set(one.types) & {OBJECT, LIST, BOOLEAN, NUMBER} and one.size <= 100 and one.share >= OFTEN and fits(one)
    ]
    if not fitting:
        return
    choice.fields[ours] = fitting[0].name
    if len(fitting) > 1:
        more = ", ".join(one.name for one in fitting[1:])
        choice.notes.append(f"{ours}: {fitting[0].name} was taken; {more} would be another")


# what is carried along, and the snapshot key


def _extra(choice: Choice, found: Mapping[str, Field]) -> None:
    scores = [one for one in found.values() if one.numeric and names.SCORE.search(one.name)]
    urls = [one for one in _ranked(found, names.URLS, set()) if one.stringy > 0.95][:1]
    licences = [one for one in _ranked(found, names.LICENCES, set()) if one.stringy > 0.95 and one.distinct > 1][:1]
    for one in [*urls, *scores, *licences]:
        if one.name in _taken(choice):
            continue
        if one.name in FIELDS or one.name in SIGNALS:
            kind = "field of ours" if one.name in FIELDS else "signal"
            choice.notes.append(f"extra: {one.name} is the name of a {kind}; rename it in the files to carry it along")
        elif len(choice.extra) < MOST_EXTRA:
            choice.extra.append(one.name)
        else:
            choice.notes.append(f"extra: {one.name} is one more score, left out to keep the list short")


def _key(choice: Choice, found: Mapping[str, Field], records: Sequence[Record]) -> None:
    """A URL that repeats with another date is captured several times."""
    date = choice.fields.get("date")
    for one in _ranked(found, names.URLS, set()):
        if one.distinct == len(one.values) or one.share < OFTEN or one.name not in _taken(choice):
            continue
        if date is not None and _captured(records, one.name, date):
            choice.key = next((ours for ours, theirs in choice.fields.items() if theirs == one.name), one.name)
            choice.notes.append(
                f"snapshot: {one.name} repeats ({said_of(one)}) with other values of {date}: taken for captures of one "
                "page, of which the newest stays"
            )
            return
        choice.notes.append(
            f"snapshot: {one.name} repeats ({said_of(one)}), and no date tells which is newer: not a key"
        )
        return


def _captured(records: Sequence[Record], key: str, date: str) -> bool:
    """Whether most of the keys that repeat come with different dates."""
    dates: dict[str, list[str]] = {}
    for name, when in columns(records, [key, date]):
        if isinstance(name, str):
            dates.setdefault(name, []).append(repr(when))
    repeated = [some for some in dates.values() if len(some) > 1]
    return sum(len(set(some)) > 1 for some in repeated) >= len(repeated) / 2


def _missing(choice: Choice, ours: str, one: Field) -> None:
    if one.share < NEARLY:
        choice.notes.append(f"{ours}: {one.name} is missing or null in {percent(1 - one.share)} of the records")
    kinds = {kind for kind in one.types if kind != NULL}
    if len(kinds) > 1:
        choice.notes.append(f"{ours}: {one.name} is of several types ({', '.join(sorted(kinds))}); all become text")
