"""
What must hold between the entries of a manifest.

They are checked on whatever could be read, so that a misspelt key elsewhere hides nothing.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from datapipe.manifest.messages import Problem, instead
from datapipe.manifest.shape import Place
from datapipe.manifest.signals import SIGNALS
from datapipe.manifest.stages import LANG, Filter, Holdout, Only, Stage, UrlFilter, WordFilter
from datapipe.manifest.types import (
    DEFAULT_FIELDS,
    FIELDS,
    LANG_SCORE,
    Language,
    Select,
    Sequences,
    Shards,
    Share,
    Source,
)
from datapipe.manifest.values import found, instant

DEDUP = ("exact_dedup", "near_dedup")
ONCE = ("holdout", *DEDUP)
BEFORE_HOLDOUT = (
    "holdout comes after decontaminate: validation documents are counted there and stay, so they must be known; put "
    "holdout before decontaminate"
)
AFTER_DEDUP = (
    "holdout comes after {dedup}: dedup must know the validation documents, to take their copies out of train; "
    "put holdout before {dedup}"
)


@dataclass(frozen=True)
class Readable:
    """
    The parts of a manifest that are right by themselves.

    names: all sources that were written, right or not; written: the keys at the top level
    order: the names of all stages, None for what has none; stages: (position in the list from 0, stage)
    """

    written: frozenset[str]
    names: tuple[str, ...]
    sources: Mapping[str, Source]
    order: Sequence[str | None]
    stages: Sequence[tuple[int, Stage]]
    mixture: Mapping[str, Share | None]
    sequences: Sequences | None
    shards: Shards | None
    language: Language | None

    def modelled(self, source: str) -> bool:
        """Whether a language model is shown the texts of a source; one that is written wrongly may cover any."""
        return "language" in self.written if self.language is None else self.language.covers(source)

    def with_lang(self, source: str) -> bool:
        """Whether documents of a source may have a language."""
        return LANG in self.sources[source].fields or self.modelled(source)

    @property
    def all_sources(self) -> bool:
        return len(self.names) == len(self.sources)


def problems(parts: Readable) -> Iterator[Problem]:
    """Every contradiction between entries."""
    for name, source in parts.sources.items():
        yield from _source(("sources", name), source)
        if LANG_SCORE in source.extra and parts.modelled(name):
            place = ("sources", name, "extra", source.extra.index(LANG_SCORE))
            yield place, f"`{LANG_SCORE}` is what the language model gives; carry the field under another name"
    yield from _language(parts)
    yield from _order(parts.order)
    for position, stage in parts.stages:
        if isinstance(stage, Holdout):
            yield from _holdout(("stages", position), stage, parts)
        elif isinstance(stage, Filter):
            yield from _filter(("stages", position), stage, parts)
        elif isinstance(stage, UrlFilter | WordFilter):
            yield from _lists(("stages", position), stage, parts)
    if "mixture" in parts.written:
        yield from _mixture(parts)
    if "tokenizer" in parts.written:
        yield from _shards(parts)
    else:
        for key in ("mixture", "sequences", "shards"):
            if key in parts.written:
                yield (key,), "counts tokens, so it needs a tokenizer; add one, or leave this key out"


def _source(place: Place, source: Source) -> Iterator[Problem]:
    for position, name in enumerate(source.extra):
        if name in FIELDS:
            yield (*place, "extra", position), f"`{name}` is a field of ours; write `{name}: {name}` under fields"
        elif name in SIGNALS:
            yield (*place, "extra", position), f"`{name}` is the name of a signal; carry the field under another name"
    if source.format == "text":
        for key, used in (("fields", source.fields != DEFAULT_FIELDS), ("extra", source.extra)):
            if used:
                yield (*place, key), "a text file is one document and has no fields; leave this key out"
    for name, select in source.select.items():
        yield from _select((*place, "select", name), name, select, source)
    if source.snapshot:
        yield from _snapshot((*place, "snapshot"), source)


def _select(place: Place, name: str, select: Select, source: Source) -> Iterator[Problem]:
    if name not in source.names:
        yield place, f"no such field; {_mapped(name, source.names)}"
    if name == "date":
        ends = [(("min",), select.min), (("max",), select.max)]
        values = [*ends, *((("in", n), value) for n, value in enumerate(select.in_ or ()))]
        for below, value in values:
            if value is not None and instant(str(value)) is None:
                yield (*place, *below), f"found {found(value)}, expected a date or time such as 2024-03-01"


def _mapped(name: str, names: Sequence[str]) -> str:
    if name in FIELDS:
        return f"map it: fields: {{{name}: <name in the file>}}"
    return f"{instead(name, names)}; further fields are named in extra" if names else "name it in extra"


def _snapshot(place: Place, source: Source) -> Iterator[Problem]:
    snapshot = source.snapshot
    assert snapshot
    if snapshot.key and snapshot.key not in source.names:
        yield (*place, "key"), f"no such field; {_mapped(snapshot.key, source.names)}"
    if snapshot.key and not {"date", "version"} & set(source.fields):
        yield (*place, "key"), f"{snapshot.keep} by what? map `date` or `version` under fields"
    if snapshot.as_of and "date" not in source.fields:
        yield (*place, "as_of"), "compares `date`, which this source does not map; add it under fields"
    if len(snapshot.names) > 1 and "snapshot" not in source.fields:
        yield (*place, "name"), "a list of names needs the field that holds them; map `snapshot` under fields"


def _order(order: Sequence[str | None]) -> Iterator[Problem]:
    first: dict[str, int] = {}
    for position, name in enumerate(order):
        dedup = next((each for each in first if each in DEDUP), None)
        if name in ONCE and name in first:
            yield ("stages", position), f"{name} stands there twice; the first is stages[{first[name]}]"
        elif name == "holdout" and dedup:
            yield ("stages", position), AFTER_DEDUP.format(dedup=dedup)
        elif name == "holdout" and "decontaminate" in first:
            yield ("stages", position), BEFORE_HOLDOUT
        if name is not None:
            first.setdefault(name, position)


def _holdout(place: Place, stage: Holdout, parts: Readable) -> Iterator[Problem]:
    names = _names(parts)
    if stage.by and stage.by not in names and parts.all_sources:
        yield (*place, "by"), f"no source has such a field; {_mapped(stage.by, names)}"


def _names(parts: Readable) -> list[str]:
    modelled = [LANG for source in parts.sources if parts.modelled(source)]
    return list(dict.fromkeys([*(name for source in parts.sources.values() for name in source.names), *modelled]))


def _language(parts: Readable) -> Iterator[Problem]:
    for position, name in enumerate(parts.language.sources if parts.language else ()):
        if name not in parts.names:
            yield ("language", "sources", position), f"no such source; {instead(name, parts.names)}"


def _lists(place: Place, stage: UrlFilter | WordFilter, parts: Readable) -> Iterator[Problem]:
    yield from _scope(place, stage.only, parts)
    judged = _judged(stage.only, parts)
    if isinstance(stage, UrlFilter) and judged and parts.all_sources:
        names = list(dict.fromkeys(name for source in judged for name in parts.sources[source].names))
        if stage.field not in names:
            yield (
                (*place, "field"),
                f"no source that is judged has the field `{stage.field}`; " + _mapped(stage.field, names),
            )


def _scope(place: Place, only: Only | None, parts: Readable) -> Iterator[Problem]:
    """What is wrong with `only`."""
    only = only or Only.model_construct()
    for position, name in enumerate(only.source):
        if name not in parts.names:
            yield (*place, "only", "source", position), f"no such source; {instead(name, parts.names)}"
    if parts.all_sources:
        yield from _only((*place, "only"), only, parts)


def _judged(only: Only | None, parts: Readable) -> list[str]:
    """The sources of which some document can be one that a stage judges."""
    only = only or Only.model_construct()
    return [name for name in parts.sources if _named(only, name) and _may_judge(only, name, parts)]


def _named(only: Only, source: str) -> bool:
    return not only.source or source in only.source


def _filter(place: Place, stage: Filter, parts: Readable) -> Iterator[Problem]:
    yield from _scope(place, stage.only, parts)
    if not parts.all_sources:
        return
    judged = _judged(stage.only, parts)
    if LANG in stage.keep:
        yield from _lang((*place, "keep", LANG), judged, parts)
    for name in stage.numbers:
        if name not in SIGNALS:
            yield from _extra((*place, "keep", name), name, judged, parts)


def _may_judge(only: Only, name: str, parts: Readable) -> bool:
    """Whether some document of a source can be one that a stage judges."""
    source = parts.sources[name]
    labelled = "snapshot" in source.fields or bool(source.snapshot and set(source.snapshot.names) & set(only.snapshot))
    return not (only.lang and not parts.with_lang(name)) and not (only.snapshot and not labelled)


def _lang(place: Place, judged: Sequence[str], parts: Readable) -> Iterator[Problem]:
    """A bound on `lang`: a source without languages would lose all it has."""
    for source in judged:
        if not parts.with_lang(source):
            yield place, f"source {source} maps no `lang`, so all its documents would leave; add it under its fields"


def _extra(place: Place, name: str, judged: Sequence[str], parts: Readable) -> Iterator[Problem]:
    """A bound on an extra field: null is outside every bound, so a source without it would lose all it has."""
    having = [
        source
        for source, entry in parts.sources.items()
        if name in entry.extra or (name == LANG_SCORE and parts.modelled(source))
    ]
    missing = [source for source in judged if source not in having]
    if not having:
        extras = dict.fromkeys(extra for source in parts.sources.values() for extra in source.extra)
        if name == LANG_SCORE:
            yield place, "is what a language model gives; name one at the top level: language: {model: lid.176.ftz}"
            return
        yield place, f"no such signal or extra field; {instead(name, [*SIGNALS, *extras])}"
    elif missing:
        only = f"only: {{source: [{', '.join(having)}]}}"
        problem = f"source {missing[0]} has no extra field {name}, so all its documents would leave"
        yield place, f"{problem}; add the field there, or judge with {only}"


def _only(place: Place, only: Only, parts: Readable) -> Iterator[Problem]:
    named = {name: source for name, source in parts.sources.items() if _named(only, name)}
    if only.lang and not any(map(parts.with_lang, named)):
        yield (*place, "lang"), "no source that is judged maps `lang`, so nothing would be; add it under fields"
    labels = [source.snapshot.names for source in named.values() if source.snapshot]
    mapped = any("snapshot" in source.fields for source in named.values())
    if only.snapshot and not mapped and not any(labels):
        yield (*place, "snapshot"), "no source that is judged has a snapshot, so nothing would be judged"
    elif only.snapshot and not mapped:
        known = [name for names in labels for name in names]
        for position, name in enumerate(only.snapshot):
            if name not in known:
                yield (*place, "snapshot", position), f"no such snapshot; {instead(name, known)}"


def _shards(parts: Readable) -> Iterator[Problem]:
    if parts.sequences and parts.shards and parts.shards.tokens < parts.sequences.length:
        least = f"expected at least one row: sequences.length is {parts.sequences.length}"
        yield ("shards", "tokens"), f"found {parts.shards.tokens}, {least}"


def _mixture(parts: Readable) -> Iterator[Problem]:
    for name in parts.mixture:
        if name not in parts.names:
            yield ("mixture", name), f"no such source; {instead(name, parts.names)}"
    if missing := [name for name in parts.names if name not in parts.mixture]:
        yield ("mixture",), f"names every source; missing: {', '.join(missing)} (weight 0 leaves one out)"
    if parts.mixture and all(share and share.weight == 0 for share in parts.mixture.values()):
        yield ("mixture",), "all weights are 0: nothing would be taken"
