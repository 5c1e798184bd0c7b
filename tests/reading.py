"""What the tests of reading share: a manifest made of a source, and what reading it gives."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyarrow.parquet as pq

from datapipe import manifest as manifests
from datapipe import read
from datapipe.documents import Documents, Work
from datapipe.manifest import Manifest


def load(folder: Path, sources: dict, **top) -> Manifest:
    """A manifest of these sources, written to and loaded from a file (JSON is YAML)."""
    path = folder / "manifest.yaml"
    path.write_text(json.dumps({"name": "test", "sources": sources} | top), encoding="utf-8")
    return manifests.load(path)


def lines(*records: object) -> bytes:
    """JSON lines; bytes are taken as they are."""
    return b"".join((r if isinstance(r, bytes) else json.dumps(r).encode()) + b"\n" for r in records)


@dataclass
class Read:
    """A plan that was run: its documents, books and refused records as plain values."""

    manifest: Manifest
    work: Work
    result: read.ReadResult

    @property
    def documents(self) -> list[dict]:
        """Stored documents in order."""
        return [row for part in self.result.parts for row in pq.read_table(part.path).to_pylist()]

    @property
    def narrow(self) -> list[dict]:
        return [
            row for part in self.result.parts for row in pq.read_table(part.done.path("narrow.parquet")).to_pylist()
        ]

    @property
    def book(self) -> dict:
        """The book of the only input."""
        (book,) = self.result.inputs
        return book

    def refused(self, name: str) -> list[dict]:
        """The rows of rejected.parquet or quarantine.parquet."""
        read.write_refused(self.result, self.work.scratch)
        return pq.read_table(self.work.scratch / f"{name}.parquet").to_pylist()

    def admit(self) -> Documents:
        return read.admit(self.result, self.manifest, self.work)


@contextmanager
def reading(manifest: Manifest, *, workers: int = 1) -> Iterator[Read]:
    """Plan and read a manifest; the unit store lies in its output folder."""
    plan = read.plan(manifest, workers=workers)
    with Work(manifest.output, manifest.name, workers=workers) as work:
        yield Read(manifest, work, read.run(plan, manifest, work))


@contextmanager
def reading_source(folder: Path, files: list | str, *, workers: int = 1, **source) -> Iterator[Read]:
    """Read one source `s`, with more keys of it as given."""
    with reading(load(folder, {"s": {"files": files} | source}), workers=workers) as found:
        yield found


def same_things(found: Read) -> set[tuple]:
    """What must not depend on the layout of files: (doc_id, text_hash) of all admitted documents."""
    docs = found.admit()
    return set(docs.work.db.execute("select doc_id::varchar, text_hash::varchar from documents").fetchall())
