"""
The eval suites that the manifest's stages look for, read once, before any work: what recipe_id names is what is found.

A suite that is missing, or of which a part cannot be read, ends the build here: what was not looked for would read as
clean.
"""

import glob
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

import pyarrow as pa
import pyarrow.compute as pc

from datapipe.contamination.index import N_UNSPACED, Index
from datapipe.contamination.model import Suites
from datapipe.contamination.suites import load
from datapipe.errors import DataError, ManifestError
from datapipe.keyed import canonical
from datapipe.manifest import Decontaminate, Manifest
from datapipe.units import digest

AT_ONCE = 10_000  # parts whose digest is taken together


@dataclass(frozen=True)
class Looked:
    """What a stage looks for: suites, and n-grams of n units (n_unspaced in scripts without blanks)."""

    suites: Suites
    n: int

    @property
    def n_unspaced(self) -> int:
        return max(self.n, N_UNSPACED)

    @cached_property
    def index(self) -> Index:
        return Index.build(self.suites.parts, self.n, self.n_unspaced)

    @cached_property
    def digest(self) -> str:
        """sha256 of all that the index is made of: which example a text is a part of, and as what."""
        columns = self.suites.parts.select(["example", "kind", "text"])
        return digest([self.n, self.n_unspaced, *(digest(batch.to_pydict()) for batch in columns.to_batches(AT_ONCE))])


Evals = Mapping[str, Looked]  # by key(stage)


def key(spec: Decontaminate) -> str:
    """What a stage looks for, as text."""
    return canonical(spec.model_dump(include={"suites", "fields", "n"})).decode("ascii")


def check(manifest: Manifest) -> Evals:
    """All suites of a manifest.  ManifestError for what is not there, DataError for what is and cannot be used."""
    found: dict[str, Looked] = {}
    for place, stage in _stages(manifest):
        if key(stage) not in found:
            found[key(stage)] = Looked(_load(manifest, f"{manifest.path}: stages[{place}].suites", stage), stage.n)
    return found


def _stages(manifest: Manifest) -> Iterator[tuple[int, Decontaminate]]:
    for place, stage in enumerate(manifest.stages):
        if isinstance(stage, Decontaminate):
            yield place, stage


def _load(manifest: Manifest, where: str, stage: Decontaminate) -> Suites:
    paths = [
        path for number, written in enumerate(stage.suites) for path in _paths(manifest, f"{where}[{number}]", written)
    ]
    try:
        suites = load(paths, fields=stage.fields)
    except ManifestError as error:
        raise ManifestError(f"{where}: {error}") from None
    if failed := suites.failed():
        lines = "\n".join(f"  {path}: {reason}" for path, reason in failed)
        raise DataError(f"{where}: not all of it can be looked for; mend these files, or name the others:\n{lines}")
    return _below(suites, paths)


def _paths(manifest: Manifest, where: str, written: str) -> list[str]:
    """The files and folders that a path or pattern means."""
    literal = manifest.resolve(written)
    found = [str(literal)] if literal.exists() else sorted(glob.glob(manifest.pattern(written), recursive=True))
    if not found:
        raise ManifestError(f"{where}: {written!r} matches no file (looked for {literal})")
    for path in found:
        if not os.access(path, os.R_OK):
            raise ManifestError(f"{where}: cannot read {path}: permission denied")
    return found


def _below(suites: Suites, paths: list[str]) -> Suites:
    """Names of suites that had to name folders, without the folders above all of them."""
    above = (
        os.path.dirname(paths[0]) if len(paths) == 1 else os.path.commonpath([os.path.dirname(path) for path in paths])
    )
    prefix = above.strip("/") + "/"

    def cut(table: pa.Table) -> pa.Table:
        starts = pc.call_function("starts_with", [table["suite"]], pc.MatchSubstringOptions(prefix))
        short = pc.call_function("utf8_slice_codeunits", [table["suite"]], pc.SliceOptions(len(prefix)))
        at = table.column_names.index("suite")
        return table.set_column(at, table.field(at), pc.call_function("if_else", [starts, short, table["suite"]]))

    return Suites(cut(suites.examples), suites.parts, cut(suites.files))


def warnings(evals: Evals) -> tuple[str, ...]:
    """A sentence for each suite with examples that have nothing to look for."""
    told: dict[str, None] = {}
    for looked in evals.values():
        suite, problem = (looked.suites.examples[name].to_pylist() for name in ("suite", "problem"))
        for name in looked.suites.names:
            mine = [why for of, why in zip(suite, problem, strict=True) if of == name]
            reasons = dict.fromkeys(why for why in mine if why is not None)
            if reasons:
                many = sum(why is not None for why in mine)
                why = "; ".join(list(reasons)[:3])
                told[f"eval suite {name}: {many:,} of {len(mine):,} examples cannot be looked for: {why}"] = None
    return tuple(told)


def digests(manifest: Manifest, evals: Evals) -> dict[str, str]:
    """For recipe_id: where a suite is named, and its name -> sha256 of its file."""
    found: dict[str, str] = {}
    for place, stage in _stages(manifest):
        for row in evals[key(stage)].suites.files.to_pylist():
            found[f"stages[{place}].suites {row['suite']}"] = row["sha256"]
    return found
