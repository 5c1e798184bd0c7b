"""
URL filter: drops documents whose URL, or a part of it, stands on a list.

The rules, in this order: the registered domain, the host, the whole URL, a word of it, several soft words, a text
anywhere in its letters and digits.  That is the order of datatrove's URLFilter.  Where the two differ it is meant:
words are compared in lower case; what customers of a public suffix register counts (`me.github.io`); hosts without a
known suffix are looked up, too; and URLs are compared without scheme, port, fragment and last `/`.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from datapipe import urls
from datapipe.documents import Documents, Verdict, sql
from datapipe.edits.redact import TAIL, without_pseudonym
from datapipe.keyed import canonical
from datapipe.lists import Listing
from datapipe.manifest import UrlFilter
from datapipe.scope import condition
from datapipe.stages.filter import not_judged
from datapipe.stages.matching import Matcher
from datapipe.stages.values import field_values

TABLES = """
create or replace table url_judged (doc bigint);
create or replace table url_keys (doc bigint, kind varchar, key varchar);
create or replace table url_words (doc bigint, rank integer, rule varchar, value double, evidence varchar);
create or replace table url_rules (rank integer, kind varchar, list integer, rule varchar);
create or replace table url_entries (list integer, key varchar);
"""
AT_ONCE = 16_384  # documents that are looked up together
JUDGED = pa.schema([("doc", pa.int64())])
KEYS = pa.schema([("doc", pa.int64()), ("kind", pa.string()), ("key", pa.string())])
WORDS = pa.schema(
    [("doc", pa.int64()), ("rank", pa.int32()), ("rule", pa.string()), ("value", pa.float64()),
     ("evidence", pa.string())]
)  # fmt: skip
# the lookups in their order: (kind of key, which lists, how the rule begins)
LOOKUPS = (
    ("domain", "domains", "domain"),
    ("subdomain", "domains", "host"),
    ("host", "hosts", "host"),
    ("url", "urls", "url"),
)
Row = tuple[int, int, str, float | None, str]  # of WORDS


def judge(spec: UrlFilter, docs: Documents) -> Verdict:
    """
    Drops: every rule that a document's URL breaks.  A document without a URL is not judged, nor is one of a redacting
    source whose host was an address.
    """
    db, lists = docs.work.db, docs.lists[spec]
    db.execute(TABLES)
    words = _Words.of(spec, lists, _prepare(docs, lists))
    scope = condition(spec.only)
    waiting: list[tuple[int, str]] = []
    for found in _found(spec, docs, scope):
        waiting += found
        if len(waiting) >= AT_ONCE:
            _look_up(docs, waiting, words)
            waiting = []
    _look_up(docs, waiting, words)
    db.execute(sql("datapipe.stages", "url_filter.sql"))
    for table in ("url_keys", "url_words", "url_rules", "url_entries"):
        db.execute(f"drop table {table}")
    judged = f"({scope}) and doc in (select doc from url_judged)"
    return Verdict(drops="url_drops", not_judged=not_judged(docs, judged), judged=judged)


def _prepare(docs: Documents, lists: Mapping[str, Sequence[Listing]]) -> int:
    """Tables url_rules and url_entries; how many rules there are."""
    numbers: dict[tuple[str, int], int] = {}
    rank = 0
    for kind, key, says in LOOKUPS:
        for place, listing in enumerate(lists.get(key, ())):
            if (key, place) not in numbers:
                number = numbers[key, place] = len(numbers)
                entries = pa.table({"key": listing.entries})
                docs.work.insert("url_entries", entries.append_column("list", pa.repeat(number, len(entries))))
            values = [rank, kind, numbers[key, place], f"{says} in {listing.name}"]
            docs.work.db.execute("insert into url_rules values (?, ?, ?, ?)", values)
            rank += 1
    return rank


def _found(spec: UrlFilter, docs: Documents, scope: str) -> Iterator[list[tuple[int, str]]]:
    """(doc, URL) of the documents that have one, a row group at a time."""
    for part in docs.parts:
        rows, names = docs.alive(part, scope)
        for here, values in field_values(part, spec.field, rows) if len(rows) else ():
            pairs = zip(names[rows.searchsorted(here)].tolist(), values.to_pylist(), strict=True)
            yield [(doc, plain) for doc, url in pairs if url and (plain := _plain(url))]


def _plain(url: str) -> str | None:
    """A URL as it was but for what a redaction took; null where that was its host, or nothing is left."""
    url = url.strip()
    plain = without_pseudonym(url)
    # asked with the placeholder in it: without one `http:///x` is read as browsers do, and its path as a host
    gone = plain != url and urls.split(TAIL.sub("", url))[0] is None
    return None if gone else plain or None


def _look_up(docs: Documents, found: Sequence[tuple[int, str]], words: "_Words") -> None:
    """Rows of url_judged, url_keys and url_words for documents and their URLs."""
    judged = [doc for doc, _ in found]
    for table, schema, rows in (
        ("url_judged", JUDGED, [(doc,) for doc in judged]),
        ("url_keys", KEYS, [(doc, *key) for doc, url in found for key in _keys(url)]),
        ("url_words", WORDS, list(words.broken(judged, [url for _, url in found]))),
    ):
        if rows:
            columns = dict(zip(schema.names, zip(*rows, strict=True), strict=True))
            docs.work.insert(table, pa.table(columns, schema=schema))


def _keys(url: str) -> Iterator[tuple[str, str]]:
    """(kind, key) of all that a URL is looked up by; a host that is a registered domain is no subdomain."""
    host, _ = urls.split(url)
    if host is None:
        return
    domains = urls.registered(host)
    for domain in domains:
        yield "domain", domain
    if host not in domains:
        yield "subdomain", host
    yield "host", host
    whole = urls.canonical(url)
    assert whole is not None, "it has a host"
    yield "url", whole


@dataclass(frozen=True)
class _Words:
    """
    The rules on words of a URL; ranks count on from `rank`.

    hard, inside: (rule, entries) of each list
    """

    rank: int
    hard: list[tuple[str, frozenset[str]]]
    soft: frozenset[str]
    least: int
    inside: list[tuple[str, Matcher]]

    @classmethod
    def of(cls, spec: UrlFilter, lists: Mapping[str, Sequence[Listing]], rank: int) -> "_Words":
        def entries(key: str) -> list[tuple[str, list[str]]]:
            return [(one.name, one.entries.to_pylist()) for one in lists.get(key, ())]

        return cls(
            rank,
            [(f"word in {name}", frozenset(words)) for name, words in entries("words")],
            frozenset(word for _, words in entries("soft_words") for word in words),
            spec.soft_words_min,
            [(f"substring in {name}", Matcher(words, "substring")) for name, words in entries("substrings")],
        )

    def broken(self, names: Sequence[int], found: Sequence[str]) -> Iterator[Row]:
        """Rows of WORDS."""
        rank = self.rank
        mine = [urls.words(url) for url in found] if self.hard or self.soft else []
        for rule, listed in self.hard:
            for doc, words in zip(names, mine, strict=True):
                if hit := listed & words:
                    yield doc, rank, rule, None, _evidence(entry=min(hit))
            rank += 1
        for doc, words in zip(names, mine, strict=True) if self.soft else ():
            if len(hit := self.soft & words) >= self.least:
                yield doc, rank, f"soft words >= {self.least}", float(len(hit)), _evidence(entries=sorted(hit))
        rank += 1
        squeezed = pa.array([urls.squeezed(url) for url in found] if self.inside else [], pa.string())
        for rule, matcher in self.inside:
            for doc, entry in zip(names, matcher.first(squeezed).to_pylist(), strict=True):
                if entry is not None:
                    yield doc, rank, rule, None, _evidence(entry=entry)
            rank += 1


def _evidence(**values: object) -> str:
    return canonical(values).decode("ascii")
