"""
Filter: drops documents whose signals lie outside the manifest's bounds.

The reason is made from the signal and the bound ("word_count < 50").  A signal is null where it has no meaning, and
null is outside every bound ("mean_word_length is null").
"""

from collections.abc import Iterator, Mapping

import numpy as np
import pyarrow as pa

from datapipe.documents import DROPS, Documents, Verdict, literal, shown
from datapipe.keyed import canonical
from datapipe.manifest import Bound, Filter, Only
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


def judge(spec: Filter, docs: Documents) -> Verdict:
    """Drops: every bound that a document fails; the first in the manifest's order decides."""
    where = condition(spec.only)
    docs.work.db.execute(f"create or replace table filter_drops ({DROPS})")
    found = signals_of(docs, list(spec.keep))
    for part in docs.parts:
        rows, names = docs.alive(part, where)
        if len(rows):
            measured = read_signals(found[part.number]).take(pa.array(rows))
            docs.work.insert("filter_drops", pa.Table.from_batches(failed(spec.keep, measured, names), FAILED))
    return Verdict(drops="filter_drops", not_judged=_not_judged(docs, where))


def failed(keep: Mapping[str, Bound], measured: pa.Table, docs: np.ndarray) -> Iterator[pa.RecordBatch]:
    """Ledger rows of the documents `docs`, whose signals `measured` holds row by row."""
    decided = np.zeros(len(docs), bool)
    for name, bound in keep.items():
        number = measured[name].cast(pa.float64()).to_numpy()  # null becomes NaN
        evidence = canonical(_limits(bound)).decode("ascii")
        bad = np.zeros(len(docs), bool)
        for rule, fails in _rules(name, bound, number):
            n = int(fails.sum())
            value = pa.array(number[fails], from_pandas=True)  # NaN becomes null
            columns = [docs[fails], pa.repeat(rule, n), value, pa.repeat(evidence, n), ~decided[fails]]
            yield pa.record_batch([pa.array(column) for column in columns], schema=FAILED)
            bad |= fails
        decided |= bad


def _limits(bound: Bound) -> dict[str, float]:
    return {key: value for key, value in (("min", bound.min), ("max", bound.max)) if value is not None}


def _rules(name: str, bound: Bound, number: np.ndarray) -> Iterator[tuple[str, np.ndarray]]:
    """Each rule of a bound, and the documents that fail it."""
    yield f"{name} is null", np.isnan(number)
    if bound.min is not None:
        yield f"{name} < {shown(bound.min)}", number < bound.min
    if bound.max is not None:
        yield f"{name} > {shown(bound.max)}", number > bound.max


def condition(only: Only | None) -> str:
    """SQL over `documents` for those that a filter judges."""
    if only is None:
        return "true"
    lists = {"source": only.source, "lang": only.lang, "snapshot": only.snapshot}
    terms = [
        f"coalesce({name} in ({', '.join(map(literal, values))}), false)" for name, values in lists.items() if values
    ]
    return " and ".join(terms) or "true"


def _not_judged(docs: Documents, where: str) -> dict[str, int]:
    query = f"select source, count(*) from documents where place is null and not ({where}) group by all order by all"
    return dict(docs.work.db.execute(query).fetchall())
