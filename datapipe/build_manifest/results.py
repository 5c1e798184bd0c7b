"""What `pipeline.build` answers: a build, or what a build would be."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from datapipe.build_manifest.types import BuildManifest
from datapipe.collateral import Table


@dataclass(frozen=True)
class Built:
    """
    A version that is there now.  `existing`: the same recipe on the same inputs had made it before.

    warnings:    what a user should look at, a sentence each
    ran, reused: work units by function
    """

    path: Path
    manifest: BuildManifest
    existing: bool = False
    warnings: tuple[str, ...] = ()
    ran: Mapping[str, int] = field(default_factory=dict[str, int])
    reused: Mapping[str, int] = field(default_factory=dict[str, int])

    @property
    def version(self) -> str:
        return self.manifest.version

    def as_json(self) -> dict[str, object]:
        """The one object of `datapipe build --json`."""
        record = self.manifest.as_json()
        return {
            "build": str(self.path),
            "version": self.version,
            "dataset_id": record["dataset_id"],
            "recipe_id": record["recipe_id"],
            "existing": self.existing,
            "splits": record["splits"],
            "dropped": {stage.title: stage.dropped for stage in self.manifest.stages},
            "warnings": list(self.warnings),
            "units": {"ran": dict(self.ran), "reused": dict(self.reused)},
        }


@dataclass(frozen=True)
class SourceInput:
    """A source as planned; `pin` is the digest that a manifest's `pin` compares with."""

    source: str
    files: int
    bytes: int
    pin: str


@dataclass(frozen=True)
class Sampled:
    """
    What the filters of a manifest take from a sample of its records; all but `asked` by source.

    records:    that were read and taken into the sample;  documents: of which so many are documents
    left:       documents that pass every filter;  edits: documents that each edit changed
    not_judged: stage -> documents that it did not judge
    skipped:    stages that say nothing about a sample, dedup above all;  warnings: limits that the sample is over
    labels:     "1:filter" -> "1:gopher_quality", where a filter has a preset
    """

    asked: int
    records: Mapping[str, int]
    documents: Mapping[str, int]
    left: Mapping[str, int]
    edits: Mapping[str, Mapping[str, int]]
    not_judged: Mapping[str, Mapping[str, int]]
    skipped: tuple[str, ...]
    collateral: Table
    warnings: tuple[str, ...]
    labels: Mapping[str, str] = field(default_factory=dict[str, str])

    def as_json(self) -> dict[str, object]:
        """Under `sample` in `datapipe build --dry-run --sample N --json`."""
        figures = ("asked", "records", "documents", "left", "edits", "not_judged", "skipped", "labels", "warnings")
        told: dict[str, object] = {name: getattr(self, name) for name in figures}
        return told | self.collateral.as_json()


@dataclass(frozen=True)
class DryRun:
    """
    What a build would do.

    documents:  about how many there are (newlines counted, text files), None where nothing tells
    units:      work units by function, as far as the plan knows them
    disk:       bytes that the build and the unit store would take, estimated;  memory: bytes, the peak estimated
    existing:   the version that this recipe on these inputs has made before
    sample:     what the filters take from a sample, where one was asked for
    """

    name: str
    recipe_id: str
    sources: tuple[SourceInput, ...]
    units: Mapping[str, int]
    stages: tuple[str, ...]
    disk: int
    memory: int
    documents: int | None = None
    existing: Path | None = None
    sample: Sampled | None = None

    @property
    def files(self) -> int:
        return sum(source.files for source in self.sources)

    @property
    def bytes(self) -> int:
        return sum(source.bytes for source in self.sources)

    def holdout_fraction(self, documents: int) -> float | None:
        """The `fraction` that sets about so many documents apart; None where their number is not known."""
        return min(1.0, documents / self.documents) if self.documents else None

    def as_json(self) -> dict[str, object]:
        """The one object of `datapipe build --dry-run --json`."""
        record: dict[str, object] = asdict(replace(self, sample=None))
        return record | {
            "sample": self.sample and self.sample.as_json(),
            "existing": str(self.existing) if self.existing else None,
            "files": self.files,
            "bytes": self.bytes,
            "pins": {source.source: source.pin for source in self.sources},
        }
