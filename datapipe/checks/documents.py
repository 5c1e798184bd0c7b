"""The books of documents: every record, fate, stage and ledger row accounts for the others."""

from collections import Counter
from collections.abc import Iterable

from datapipe.books import Books
from datapipe.books.library import SIGNAL_PLACE
from datapipe.build_manifest.types import Stage
from datapipe.checks.check import SHOWN, Check

# sentence about a document -> SQL that is true where it holds; `before` is the doc_id of the row above
WRONG_FATES = {
    "does not come after the row before it": "before >= doc_id",
    "is no 32 hex digits": "not regexp_full_match(doc_id, '[0-9a-f]{32}')",
    "fate is none of kept, dropped, unused": "fate not in ('kept', 'dropped', 'unused')",
    "split is neither train nor validation": "split not in ('train', 'validation')",
    "kept, and yet with a stage or rule": "fate = 'kept' and (stage is not null or rule is not null)",
    "kept without a copy": "fate = 'kept' and coalesce(copies, 0) < 1",
    "not kept, and yet with copies": "fate <> 'kept' and copies <> 0",
    "not kept, and no stage says why": "fate <> 'kept' and stage is null",
    "dropped by a stage that the manifest does not have": "fate = 'dropped' and place is null",
}
# sentence about a document -> SQL that finds those it is true of
WRONG_LEDGER = {
    "not exactly one row decides": """
        select f.doc_id from fates f left join ledger l on l.doc_id = f.doc_id and l.decides
        where f.fate = 'dropped' group by f.doc_id having count(l.doc_id) <> 1""",
    "the deciding row has another stage or rule than its fate": """
        select f.doc_id from fates f join ledger l on l.doc_id = f.doc_id and l.decides
        where l.stage is distinct from f.stage or l.rule is distinct from f.rule""",
    "has rows, but was not dropped": """
        select distinct l.doc_id from ledger l left join fates f using (doc_id)
        where f.fate is distinct from 'dropped'""",
    "the document that it names as kept was itself gone by then": """
        select l.doc_id from ledger l join fates f using (doc_id) left join fates k on k.doc_id = l.evidence->>'$.kept'
        where l.evidence->>'$.kept' is not null and (k.doc_id is null or k.place <= f.place)""",
}


def checks(books: Books) -> list[Check]:
    return [_records(books), _fates(books), _stages(books), _ledger(books), _sides(books)]


def _records(books: Books) -> Check:
    """records = documents + rejected + quarantined + blank, per input; the tables of refused ones have as many rows."""
    made = books.manifest
    differences = [
        f"{entry.source}: {entry.path}: {entry.records} records, but {entry.documents} documents + "
        f"{entry.rejected} rejected + {entry.quarantined} quarantined + {entry.blank} blank"
        for entry in made.inputs
        if entry.records != entry.documents + entry.rejected + entry.quarantined + entry.blank
    ]
    rows = {file.path: file.rows for file in made.files}
    for path, count in (("rejected.parquet", "rejected"), ("quarantine.parquet", "quarantined")):
        told = sum(getattr(entry, count) for entry in made.inputs)
        if rows.get(path, 0) != told:
            differences.append(f"{path}: {rows.get(path, 0)} rows, but the inputs count {told} {count}")
    return Check("records", len(made.inputs), differences)


def _fates(books: Books) -> Check:
    """One fate a document: as many as were read, in order of doc_id, each with what its fate must have; all stored."""
    read: Counter[str] = Counter()
    for entry in books.manifest.inputs:
        read[entry.source] += entry.documents - sum(entry.cut.values())
    found = Counter(dict(books.query("select source, count(*) from fates group by 1 order by 1")))
    differences = [
        f"fates.parquet: {found[source]} documents of {source}, but its inputs gave {read[source]}"
        for source in sorted(read.keys() | found.keys())
        if read[source] != found[source]
    ]
    for sentence, condition in WRONG_FATES.items():
        wrong = books.query(
            "select doc_id from (select *, lag(doc_id) over (order by doc) as before from fates) "
            f"where {condition} order by doc_id limit {SHOWN}"
        )
        differences += [f"fates.parquet: {doc_id}: {sentence}" for (doc_id,) in wrong]
    return Check("fates", found.total(), differences + _stored(books, found.total()))


def _stored(books: Books, documents: int) -> list[str]:
    """documents and signals join to fates by (part, row), one to one."""
    wrong: list[str] = []
    for table, (part, row) in (("documents", ("part", "row")), ("signals", SIGNAL_PLACE)):
        if books.has(table):
            stored = books.query(f"select count(*) from {table}")[0][0]
            join = f'select count(*) from fates f join {table} t on t."{part}" = f.part and t."{row}" = f.row'
            joined = books.query(join)[0][0]
            if not joined == stored == documents:
                wrong.append(f"{table}/: {stored} rows, {joined} of them with a fate; fates has {documents}")
    return wrong


def _stages(books: Books) -> Check:
    """in = out + dropped for each stage; out is the next one's in; rules and sources are those of fates."""
    found: dict[int, dict[str, dict[str, int]]] = {}
    for place, source, rule, n in books.query(
        "select place, source, rule, count(*) from fates where place is not null group by all order by all"
    ):
        found.setdefault(place, {}).setdefault(source, {})[rule] = n
    stages = sorted(books.manifest.stages, key=lambda stage: stage.place)
    left = books.query("select count(*) from fates")[0][0]
    differences: list[str] = []
    for stage in stages:
        differences += _stage(stage, left, found.get(stage.place, {}))
        left = stage.left
    alive = books.query("select count(*) from fates where place is null")[0][0]
    if alive != left:
        differences.append(f"fates.parquet: {alive} documents kept or unused, but the last stage left {left}")
    return Check("stages", len(stages), differences + _kept(books))


def _stage(stage: Stage, came: int, fates: dict[str, dict[str, int]]) -> list[str]:
    wrong: list[str] = []
    dropped = sum(stage.dropped.values())
    if stage.entered != came:
        wrong.append(f"{stage.title}: {stage.entered} documents in, but {came} came")
    if stage.entered != stage.left + dropped:
        wrong.append(f"{stage.title}: {stage.entered} in, {stage.left} out, {dropped} dropped")
    by_source = {source: rules for source, rules in stage.dropped_by_source.items() if rules}
    if by_source != fates:
        wrong.append(f"{stage.title}: dropped_by_source is {by_source}, fates say {fates}")
    if _summed(by_source.values()) != Counter(stage.dropped):
        wrong.append(f"{stage.title}: dropped is not the sum of dropped_by_source")
    return wrong


def _summed(parts: Iterable[dict[str, int]]) -> Counter[str]:
    whole: Counter[str] = Counter()
    for rules in parts:
        whole.update(rules)
    return whole


def _kept(books: Books) -> list[str]:
    kept = dict(books.query("select split, count(*) from fates where fate = 'kept' group by 1"))
    return [
        f"splits.{name}.documents is {split.documents}, fates say {kept.get(name, 0)}"
        for name, split in books.manifest.splits.items()
        if kept.get(name, 0) != split.documents
    ]


def _ledger(books: Books) -> Check:
    """Each dropped document has one deciding row, with its stage and rule; nobody else has rows."""
    rows = books.query("select count(*) from ledger")[0][0]
    differences = [
        f"ledger.parquet: {doc_id}: {sentence}"
        for sentence, query in WRONG_LEDGER.items()
        for (doc_id,) in books.query(f"{query} order by 1 limit {SHOWN}")
    ]
    return Check("ledger", rows, differences)


def _sides(books: Books) -> Check:
    """No group is kept on both sides."""
    groups = books.query("select count(distinct \"group\") from fates where fate = 'kept'")[0][0]
    both = books.query(
        'select "group" from fates where fate = \'kept\' and "group" is not null '
        f'group by "group" having count(distinct split) > 1 order by 1 limit {SHOWN}'
    )
    return Check("sides", groups, [f"group {group!r} is in train and in validation" for (group,) in both])
