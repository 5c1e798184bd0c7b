"""
Word filter: drops documents whose text holds a listed word or phrase, as C4 did with its list of bad words.

Text and list are compared in lower case.  A word stands for itself alone: a letter, mark, digit or `_` of any script
beside it makes another word of it; lists for texts without blanks are matched anywhere (`match: substring`).
"""

import pyarrow as pa
import pyarrow.compute as pc

from datapipe.derive import Derivation, derive, read
from datapipe.documents import DROPS, Documents, Verdict
from datapipe.keyed import bound, canonical, keyed_each
from datapipe.manifest import WordFilter
from datapipe.scope import condition
from datapipe.stages.filter import FAILED, not_judged
from datapipe.stages.matching import Matcher

RULE = "listed word"
VERSION = 1
PURPOSE = "word_filter"
FOUND = pa.schema([("word", pa.string())])


def judge(spec: WordFilter, docs: Documents) -> Verdict:
    """Drops: the documents that hold a listed word, but for the share that is kept."""
    docs.work.db.execute(f"create or replace table word_drops ({DROPS})")
    where = condition(spec.only)
    alive = {part.number: docs.alive(part, where) for part in docs.parts}
    wanted = {number: rows for number, (rows, _) in alive.items() if len(rows)}
    done = derive(_derivation(spec, docs), docs, wanted)
    for number, rows in wanted.items():
        names = alive[number][1]
        for table in read(done[number], rows):
            table = table.filter(table["word"].is_valid())
            at = rows.searchsorted(table["row"].to_numpy())
            evidence = [canonical({"word": word}).decode("ascii") for word in table["word"].to_pylist()]
            drops = {"doc": names[at], "rule": pa.repeat(RULE, len(at)), "value": pa.nulls(len(at), pa.float64()),
                     "evidence": evidence, "decides": pa.repeat(True, len(at))}  # fmt: skip
            docs.work.insert("word_drops", pa.table(drops, schema=FAILED))
    _keep(spec, docs)
    return Verdict(drops="word_drops", not_judged=not_judged(docs, where), judged=where)


def _keep(spec: WordFilter, docs: Documents) -> None:
    """Takes the share that is kept off the drops."""
    if not spec.keep_fraction:
        return
    db, below = docs.work.db, bound(spec.keep_fraction)
    query = "select doc, hex32(doc_id) from word_drops join documents using (doc) order by doc"
    found = db.execute(query).fetchall()
    drawn = keyed_each(PURPOSE, None, (name for _, name in found))
    kept = [doc for (doc, _), number in zip(found, drawn, strict=True) if number < below]
    db.register("kept", pa.table({"doc": pa.array(kept, pa.int64())}))
    db.execute("delete from word_drops where doc in (select doc from kept)")
    db.unregister("kept")


def _derivation(spec: WordFilter, docs: Documents) -> Derivation:
    """The listed word of each text, null without one."""
    listings = docs.lists[spec]["words"]
    matcher = Matcher([word for listing in listings for word in listing.entries.to_pylist()], spec.match)

    def compute(table: pa.Table) -> list[pa.Array]:
        return [matcher.first(pc.call_function("utf8_lower", [table["text"].combine_chunks()]))]

    settings = {"lists": sorted({listing.sha256 for listing in listings}), "match": spec.match}
    return Derivation("listed_words", VERSION, settings, ["pyarrow"], FOUND, compute)
