"""What `pipeline.build` answers: a build, or what a build would be."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

from datapipe.build_manifest.types import BuildManifest


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
class DryRun:
    """
    What a build would do.

    documents:  about how many there are (newlines counted, text files), None where nothing tells
    units:      work units by function, as far as the plan knows them
    disk:       bytes that the build and the unit store would take, estimated;  memory: bytes, the peak estimated
    existing:   the version that this recipe on these inputs has made before
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
        record: dict[str, object] = asdict(self)
        return record | {
            "existing": str(self.existing) if self.existing else None,
            "files": self.files,
            "bytes": self.bytes,
            "pins": {source.source: source.pin for source in self.sources},
        }
