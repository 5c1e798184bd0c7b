"""
Whom a filter judges, as SQL over `documents`: what the stages do, and what another bound would do, goes by the same.
"""

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from datapipe.documents import literal
from datapipe.manifest import Only

if TYPE_CHECKING:
    import duckdb


def without_language(db: "duckdb.DuckDBPyConnection") -> frozenset[str]:
    """Sources no document of which names a language; `db` has a table or view `documents` (source, lang)."""
    found = db.execute("select source from documents group by source having count(lang) = 0 order by source").fetchall()
    return frozenset(source for (source,) in found)


def condition(
    only: Only | None, languages: Sequence[str] | None = None, unlabelled: Collection[str] = (), *, table: str = ""
) -> str:
    """
    SQL over `documents` (source, lang, snapshot) for those that are judged.

    only:       all its conditions hold
    languages:  their language is one of these or a variety of one (`en` is also `en-GB`, `zh-Hant` not `zh`), or
                their source is `unlabelled`; empty: any
    table:      "" or "d.", how the columns are reached
    """
    lists: dict[str, Sequence[str]] = {}
    if only is not None:
        lists = {"source": only.source, "lang": only.lang, "snapshot": only.snapshot}
    terms = [_among(table + name, values) for name, values in lists.items() if values]
    if languages:
        whole = f"replace(lower({table}lang), '_', '-') || '-'"
        begins = " or ".join(f"starts_with({whole}, {literal(tag(language) + '-')})" for language in languages)
        known = f"coalesce({begins}, false)"
        terms.append(f"({known} or {_among(table + 'source', sorted(unlabelled))})" if unlabelled else known)
    return " and ".join(terms) or "true"


def tag(language: str) -> str:
    """A name of a language as it is compared: `en_GB` and `EN-gb` are `en-gb`."""
    return language.lower().replace("_", "-")


def _among(what: str, values: Sequence[str]) -> str:
    return f"coalesce({what} in ({', '.join(map(literal, values))}), false)"
