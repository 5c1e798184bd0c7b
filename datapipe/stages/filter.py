"""
Filter: drops documents whose signals lie outside the manifest's bounds.

The reason is made from the signal and the bound ("word_count < 50").  A signal is null where it has no meaning, and
null is outside every bound ("mean_word_length is null").

Bounds that are made for some languages judge documents of these alone.  A source whose documents name no language is
judged as a whole, unless what it says is plainly not English and the manifest does not name it.
"""

from collections.abc import Collection, Iterator, Mapping

import numpy as np
import pyarrow as pa

from datapipe.documents import DROPS, Documents, Verdict, shown
from datapipe.errors import ManifestError
from datapipe.keyed import canonical
from datapipe.manifest import LANG, Bound, Filter
from datapipe.scope import condition, tag, without_language
from datapipe.stages.signal_units import read_signals, signals_of

FAILED = pa.schema(
    [
        ("doc", pa.int64()),
        ("rule", pa.string()),
        ("value", pa.float64()),
        ("evidence", pa.string()),
        ("decides", pa.bool_()),
    ]
)
ENGLISH = frozenset({"en", "eng"})
FOREIGN = 0.05  # share of letters that are not Latin, above which a text is not taken for English
LETTERS = ("letter_count", "latin_letter_count")


def judge(spec: Filter, docs: Documents) -> Verdict:
    """Drops: every bound that a document fails; the first in the manifest's order decides."""
    unlabelled = without_language(docs.work.db)
    where = condition(spec.only, spec.languages, unlabelled)
    _refuse_foreign(spec, docs, where, unlabelled)
    docs.work.db.execute(f"create or replace table filter_drops ({DROPS})")
    found = signals_of(docs, list(spec.numbers))
    for part in docs.parts:
        rows, names = docs.alive(part, where)
        if len(rows):
            columns = {}
            if spec.numbers:
                measured = read_signals(found[part.number]).take(pa.array(rows))
                columns = {name: measured[name] for name in spec.numbers}
            if LANG in spec.keep:
                columns[LANG] = _languages(docs, part.number, where)
            docs.work.insert("filter_drops", pa.Table.from_batches(failed(spec.keep, columns, names), FAILED))
    return Verdict(drops="filter_drops", not_judged=not_judged(docs, where), judged=where)


def failed(
    keep: Mapping[str, Bound], measured: Mapping[str, pa.ChunkedArray], docs: np.ndarray
) -> Iterator[pa.RecordBatch]:
    """Ledger rows (FAILED) of the documents `docs`, whose signals `measured` holds row by row, `lang` as text."""
    decided = np.zeros(len(docs), bool)
    for name, bound in keep.items():
        evidence = canonical(_limits(bound)).decode("ascii")
        bad = np.zeros(len(docs), bool)
        for rule, fails, number in _rules(name, bound, measured[name]):
            n = int(fails.sum())
            value = pa.array(number[fails], from_pandas=True)  # NaN becomes null
            columns = [docs[fails], pa.repeat(rule, n), value, pa.repeat(evidence, n), ~decided[fails]]
            yield pa.record_batch([pa.array(column) for column in columns], schema=FAILED)
            bad |= fails
        decided |= bad


def _limits(bound: Bound) -> dict[str, float | list[str]]:
    if bound.in_ is not None:
        return {"in": list(bound.in_)}
    return {key: value for key, value in (("min", bound.min), ("max", bound.max)) if value is not None}


def _rules(name: str, bound: Bound, column: pa.ChunkedArray) -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
    """Each rule of a bound, the documents that fail it, and what number each has (NaN: none)."""
    null = column.is_null().to_numpy()
    if bound.in_ is not None:
        none = np.full(len(column), np.nan)
        listed = np.isin(column.fill_null("").to_numpy().astype(object), bound.in_)
        yield f"{name} is null", null, none
        yield f"{name} not in {', '.join(bound.in_)}", ~listed & ~null, none
        return
    number = column.cast(pa.float64()).to_numpy()  # null becomes NaN
    yield f"{name} is null", np.isnan(number), number
    if bound.min is not None:
        yield f"{name} < {shown(bound.min)}", number < bound.min, number
    if bound.max is not None:
        yield f"{name} > {shown(bound.max)}", number > bound.max, number


def _refuse_foreign(spec: Filter, docs: Documents, where: str, unlabelled: Collection[str]) -> None:
    """ManifestError where bounds made for English would judge a source that is written in another script."""
    named = spec.only.source if spec.only else ()
    suspects = {source for source in unlabelled if source not in named}
    english = any(tag(language).split("-")[0] in ENGLISH for language in spec.languages or ())
    if not english or not suspects:
        return
    letters: dict[str, np.ndarray] = {}
    found = signals_of(docs, LETTERS, suspects)
    for part in docs.parts:
        if part.number in found:
            rows, _ = docs.alive(part, where)
            counted = read_signals(found[part.number]).take(pa.array(rows))
            here = np.array([counted[name].to_numpy().sum() for name in LETTERS], np.int64)
            letters[part.source] = letters.get(part.source, np.zeros(2, np.int64)) + here
    refuse_foreign(spec, {source: (int(every), int(latin)) for source, (every, latin) in letters.items()})


def refuse_foreign(spec: Filter, letters: Mapping[str, tuple[int, int]]) -> None:
    """The same of sources without a language that `only` does not name: letters, and Latin ones among them, of each."""
    what = f"preset {spec.preset} is" if spec.preset else "a filter's bounds are"
    told = [
        f"{what} made for {', '.join(spec.languages or ())}, and source {source} names no language: "
        f"{1 - latin / every:.0%} of its letters are not Latin; map its `lang` under fields, name a model "
        f"(language: {{model: ...}}), or if the rules are meant for it, say so: only: {{source: [{source}]}}"
        for source, (every, latin) in sorted(letters.items())
        if every - latin > FOREIGN * every
    ]
    if told:
        raise ManifestError("\n".join(told))


def _languages(docs: Documents, part: int, where: str) -> pa.ChunkedArray:
    """`lang` of the documents of a part that are judged, in order of row."""
    query = f"select lang from documents where part = ? and place is null and ({where}) order by row"
    found = docs.work.db.cursor().execute(query, [part]).fetchall()
    return pa.chunked_array([pa.array([lang for (lang,) in found], pa.string())])


def not_judged(docs: Documents, where: str) -> dict[str, int]:
    query = f"select source, count(*) from documents where place is null and not ({where}) group by all order by all"
    return dict(docs.work.db.execute(query).fetchall())
