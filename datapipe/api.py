"""The verbs of the command line for Python: load, build, verify, open."""

from pathlib import Path

from datapipe import manifest as manifests
from datapipe import pipeline
from datapipe.books import Books
from datapipe.build_manifest import Built, resolve
from datapipe.checks import Verified
from datapipe.checks import verify as check
from datapipe.manifest import Manifest
from datapipe.units import cores

MEMORY = 4_000_000_000


def load(path: str | Path) -> Manifest:
    """The manifest in a YAML file, validated; a ManifestError lists all that is wrong with it."""
    return manifests.load(Path(path))


def build(manifest: Manifest, *, workers: int | None = None, memory: int = MEMORY, output: Path | None = None) -> Built:
    """
    Build what the manifest describes: a new version, or the one that the same recipe and inputs have made before.

    workers: threads, as many as there are cores to run on by default;  memory: bytes;  neither decides what is made
    output:  where builds lie, in place of the manifest's `output`
    """
    built = pipeline.build(manifest, workers=workers or cores(), memory=memory, output=output)
    assert isinstance(built, Built), "only a dry run answers otherwise"
    return built


def open(build: str | Path | None = None, output: str | Path = "builds") -> Books:  # noqa: A001  the verb of the API
    """The books of a build: a path, `name`, `name@3`, `name@9f2c`, or None for the newest under `output`."""
    return Books(resolve(None if build is None else str(build), Path(output)))


def verify(build: str | Path | None = None, *, everything: bool = False, output: str | Path = "builds") -> Verified:
    """Recompute what can be recomputed of a build; `everything`: each similarity, not 1 %."""
    path = resolve(None if build is None else str(build), Path(output))
    return check(path, everything=everything)
