"""The collateral tables of manifest.json, counted anew from fates, ledger and stored documents."""

from collections import Counter
from collections.abc import Iterable, Sequence

from datapipe.books import Books
from datapipe.build_manifest.types import Stage
from datapipe.checks.check import SHOWN, Check
from datapipe.collateral import FIGURES

# of each rule and source what FIGURES name; {lang} is a column of documents, or null where they are not stored
COUNTED = """
with broken as (
    select doc_id, rule, decides, count(*) over (partition by doc_id) as rules from ledger where stage = ?
)
select b.rule, f.source, {lang}, count(*), sum(f.bytes)::bigint,
       count(*) filter (b.rules = 1), coalesce(sum(f.bytes) filter (b.rules = 1), 0)::bigint,
       count(*) filter (b.decides), coalesce(sum(f.bytes) filter (b.decides), 0)::bigint
from broken b join fates f on f.doc_id = b.doc_id {join}
group by all order by all
"""
DOCUMENTS = "join documents d on d.part = f.part and d.row = f.row"


def checks(books: Books) -> list[Check]:
    """Each figure is that of the ledger, and what was judged and what was not is what came in."""
    stages = [stage for stage in books.manifest.stages if stage.judged or stage.collateral]
    differences = [sentence for stage in stages for sentence in [*_came(stage), *_taken(books, stage)]]
    return [Check("collateral", sum(len(stage.collateral) for stage in stages), differences[:SHOWN])]


def _came(stage: Stage) -> Iterable[str]:
    judged, not_judged = sum(row.documents for row in stage.judged), sum(stage.not_judged.values())
    if judged + not_judged != stage.entered:
        yield f"{stage.title}: {stage.entered} in, but {judged} judged and {not_judged} not judged"


def _taken(books: Books, stage: Stage) -> Iterable[str]:
    """By language where documents are stored and none of their languages was counted among others."""
    whole = books.has("documents") and all(row.lang != "*" for row in stage.judged)
    query = COUNTED.format(lang="d.lang", join=DOCUMENTS) if whole else COUNTED.format(lang="null", join="")
    found = {tuple(row[:3]): tuple(row[3:]) for row in books.query(query, [stage.title])}
    told: dict[tuple[str, str, str | None], Counter[str]] = {}
    for row in stage.collateral:
        figures = told.setdefault((row.rule, row.source, row.lang if whole else None), Counter())
        figures.update({name: getattr(row, name) for name in FIGURES})
    for key in sorted(found.keys() | told.keys(), key=str):
        ours, theirs = _figures(told.get(key)), found.get(key, (0,) * len(FIGURES))
        if ours != theirs:
            where = f" in {key[2]}" if key[2] is not None else ""
            yield f"{stage.title}: {key[0]} takes {ours} of {key[1]}{where}, the ledger says {tuple(theirs)}"


def _figures(counted: Counter[str] | None) -> Sequence[int]:
    return tuple((counted or Counter())[name] for name in FIGURES)
