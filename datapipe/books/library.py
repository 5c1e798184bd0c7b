"""
The tables of a build in DuckDB, and the questions that `datapipe show` asks them.

Views: fates (with `doc`, its row number, and `place`, the number of the stage that dropped it), ledger, documents
(with `part` and `row`), signals (with `#part` and `#row`), signatures, bands, and the shards of both splits (with
`file`).  DuckDB may read this build and nothing else.
"""

import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any, Self

import duckdb

from datapipe.build_manifest import BuildManifest, load
from datapipe.collateral import Table
from datapipe.documents import literal
from datapipe.errors import IntegrityError

QUANTILES = {"p1": 0.01, "p50": 0.5, "p90": 0.9, "p99": 0.99, "max": 1.0}
DEDUP = ("exact_dedup", "near_dedup")
SIGNAL_PLACE = ("#part", "#row")  # no signal has such a name; an extra field may well be called `row`


@dataclass(frozen=True)
class Step:
    """
    A line of the funnel: what is left after a step, and how many documents it took.

    tokens:  exact where `estimated` is false; else from the source's tokens per byte of kept and unused documents
    """

    name: str
    documents: int
    lost: int
    bytes: int | None
    tokens: int | None
    estimated: bool


@dataclass(frozen=True)
class Drop:
    """Documents of a source that a rule dropped; `failed`: all that broke it in that stage, another rule deciding."""

    stage: str
    rule: str
    source: str
    documents: int
    bytes: int
    failed: int


class Books:
    """A finished build, opened for questions.  Close it, or use it in a `with`."""

    def __init__(self, build: Path, *, memory: int = 1_000_000_000, threads: int = 2):
        self.build = build.resolve()
        self.manifest: BuildManifest = load(self.build)
        self._spill = Path(tempfile.mkdtemp(prefix="datapipe-show-"))
        # DuckDB reads a path as a pattern, so it gets one that has none of a pattern's characters
        self._door = self._spill / "build"
        self._door.symlink_to(self.build)
        self.db = duckdb.connect(config=_CONFIG | {"threads": threads})
        try:
            self._restrict(memory)
            self._views()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self.db.close()
        shutil.rmtree(self._spill, ignore_errors=True)

    def query(self, query: str, values: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        """All rows of a query."""
        return self.db.execute(query, list(values)).fetchall()

    def has(self, table: str) -> bool:
        """Whether the build has files of that table: "documents", "signals", "train", "fates"..."""
        return any(file.path == f"{table}.parquet" or file.path.startswith(f"{table}/") for file in self.manifest.files)

    def _restrict(self, memory: int) -> None:
        """In this order: what a setting opens must be set before the door is shut."""
        self.db.execute(f"set memory_limit = '{max(1, memory // 1_000_000)}MB'")
        self.db.execute(f"set temp_directory = {literal(str(self._spill))}")
        self.db.execute(f"set allowed_directories = [{literal(f'{self._door}/')}]")
        self.db.execute("set enable_external_access = false")
        self.db.execute("set lock_configuration = true")

    def _views(self) -> None:
        places = [(stage.title, stage.place) for stage in self.manifest.stages]
        cases = " ".join(f"when {literal(title)} then {place}" for title, place in places)
        self._view(
            "fates",
            f"select * exclude (file_row_number), file_row_number as doc, case stage {cases} end::integer as place"
            if places
            else "select * exclude (file_row_number), file_row_number as doc, null::integer as place",
            ["fates.parquet"],
            "hive_partitioning = false, file_row_number = true",
        )
        for name in ("signatures", "bands"):
            self._view(name, "select *", [f"{name}.parquet"] if self.has(name) else [], "hive_partitioning = false")
        self._view("ledger", "select *", ["ledger.parquet"], "hive_partitioning = false")
        for name, ours in (("documents", ("part", "row")), ("signals", SIGNAL_PLACE)):
            part = f"regexp_extract(filename, 'part-([0-9]+)[.]parquet$', 1)::integer as \"{ours[0]}\""
            row = f'file_row_number::integer as "{ours[1]}"'
            columns = f"select * exclude (filename, file_row_number), {part}, {row}"
            self._view(
                name, columns, self._files(name), "hive_partitioning = false, file_row_number = true, filename = true"
            )
        shards = [*self._files("train"), *self._files("validation")]
        file = f"substr(filename, {len(str(self._door)) + 2})"
        self._view(
            "shards",
            f"select * exclude (filename), {file} as file",
            shards,
            "hive_partitioning = false, filename = true",
        )

    def _files(self, folder: str) -> list[str]:
        return [file.path for file in self.manifest.files if file.path.startswith(f"{folder}/")]

    def _view(self, name: str, columns: str, files: list[str], options: str) -> None:
        """A view over the files of a table that the build has; without files, no view."""
        if not files:
            return
        paths = ", ".join(literal(f"{self._door}/{file}") for file in files)
        try:
            self.db.execute(f"create view {name} as {columns} from read_parquet([{paths}], {options})")
        except (duckdb.IOException, duckdb.InvalidInputException) as error:
            what = str(error).split("\n", 1)[0].replace(str(self._door), str(self.build))
            raise IntegrityError(f"{self.build}: {name} cannot be read ({what}); `datapipe verify` says more") from None

    def funnel(self) -> list[Step]:
        """Documents, bytes and tokens: records, documents read, after each stage, after the mixture."""
        rows = self.query(
            "select source, place, fate, count(*), sum(bytes)::bigint, sum(tokens)::bigint "
            "from fates group by all order by all"
        )
        made = self.manifest
        records = sum(entry.records for entry in made.inputs)
        rates = _rates(rows)
        steps = [Step("records", records, 0, None, None, estimated=False)]
        documents = sum(row[3] for row in rows)
        steps.append(_step("documents", records, rows, rates))
        for stage in made.stages:
            alive = [row for row in rows if row[1] is None or row[1] > stage.place]
            steps.append(_step(stage.title, documents, alive, rates))
            documents = steps[-1].documents
        kept = [row for row in rows if row[2] == "kept"]
        return [*steps, _step("mixture", documents, kept, rates)]

    def drops(self) -> list[Drop]:
        """Drops and unused documents by stage, rule and source; the most first within a stage."""
        decided = self.query(
            "select coalesce(place, 1000000), stage, rule, source, count(*) as n, sum(bytes)::bigint from fates "
            "where fate <> 'kept' group by all order by 1, n desc, rule, source"
        )
        failed = self.query(
            "select l.stage, l.rule, f.source, count(*) from ledger l join fates f using (doc_id) group by all"
        )
        broke = {(stage, rule, source): n for stage, rule, source, n in failed}
        return [
            Drop(stage, rule or "", source, n, size, max(n, broke.get((stage, rule, source), 0)))
            for _, stage, rule, source, n, size in decided
        ]

    def collateral(self) -> Table:
        """What each rule of each filter takes from each source and language; empty for a build that did not count."""
        table = Table()
        for stage in self.manifest.stages:
            if stage.judged:
                judged, taken = ([row.model_dump() for row in rows] for rows in (stage.judged, stage.collateral))
                table.add(stage.title, judged, taken)
        return table

    def not_judged(self) -> dict[str, dict[str, int]]:
        """Documents that each stage did not judge, by source; stages that judged all are left out."""
        return {stage.title: dict(stage.not_judged) for stage in self.manifest.stages if stage.not_judged}

    def clusters(self, limit: int = 10) -> list[dict[str, Any]]:
        """The largest clusters: kept document, source, how many belong to it, the least similarity to a kept one."""
        self.db.execute(CLUSTERS)
        changed = 1
        while changed:
            changed = self.query(FOLLOW)[0][0]
        rows = self.query(
            "select c.root, f.source, count(*) + 1 as size, min(c.jaccard) "
            "from clusters c join fates f on f.doc_id = c.root group by all order by size desc, c.root limit ?",
            [limit],
        )
        return [{"kept": kept, "source": source, "documents": n, "jaccard": low} for kept, source, n, low in rows]

    def lengths(self) -> dict[str, dict[str, Any]]:
        """By source: quantiles of bytes, and of tokens where there are any, of kept documents (discrete quantiles)."""
        shares = list(QUANTILES.values())
        rows = self.query(
            f"select source, quantile_disc(bytes, {shares}), quantile_disc(tokens, {shares}) from fates "
            "where fate = 'kept' group by source order by source"
        )
        return {
            source: {
                "bytes": dict(zip(QUANTILES, sizes, strict=True)),
                "tokens": dict(zip(QUANTILES, tokens, strict=True)) if tokens and tokens[0] is not None else None,
            }
            for source, sizes, tokens in rows
        }

    def as_json(self) -> dict[str, Any]:
        """The one object of `datapipe show --json`."""
        record = self.manifest.as_json()
        named = ("name", "version", "dataset_id", "recipe_id", "inputs", "snapshots", "holdout", "near_dedup")
        return {
            "build": str(self.build),
            **{key: record[key] for key in named},
            "funnel": [asdict(step) for step in self.funnel()],
            "drops": [asdict(drop) for drop in self.drops()],
            "not_judged": self.not_judged(),
            **self.collateral().as_json(),
            "clusters": self.clusters(),
            "lengths": self.lengths(),
            "splits": record["splits"],
            "edits": record["edits"],
        }


_CONFIG: dict[str, Any] = {
    "autoinstall_known_extensions": False,
    "autoload_known_extensions": False,
    "python_enable_replacements": False,
}

# every dropped duplicate, and where its evidence leads: first to its kept document, in the end to the cluster's
CLUSTERS = """
create or replace temp table clusters as
select doc_id, evidence->>'$.kept' as root, value as jaccard
from ledger where decides and split_part(stage, ':', 2) in ('exact_dedup', 'near_dedup')
"""
FOLLOW = (
    "update clusters set root = up.root from clusters up where clusters.root = up.doc_id and clusters.root <> up.root"
)


def _rates(rows: list[tuple[Any, ...]]) -> dict[str | None, Fraction]:
    """Tokens per byte by source, from kept and unused documents; under None, of all sources together."""
    tokens: dict[str | None, int] = {}
    sizes: dict[str | None, int] = {}
    for source, place, _, _, size, counted in rows:
        if place is None and counted is not None:
            for key in (source, None):
                tokens[key] = tokens.get(key, 0) + counted
                sizes[key] = sizes.get(key, 0) + size
    return {key: Fraction(tokens[key], sizes[key]) for key in tokens if sizes[key]}


def _step(name: str, before: int, rows: list[tuple[Any, ...]], rates: dict[str | None, Fraction]) -> Step:
    """What is left: rows of (source, place, fate, documents, bytes, tokens)."""
    documents = sum(row[3] for row in rows)
    size = sum(row[4] for row in rows)
    estimated = any(row[1] is not None for row in rows)
    tokens: int | None = None
    if rates:
        tokens = sum(
            round(row[4] * rates.get(row[0], rates[None])) if row[1] is not None else (row[5] or 0) for row in rows
        )
    return Step(name, documents, before - documents, size, tokens, estimated and tokens is not None)
