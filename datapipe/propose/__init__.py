"""
A manifest proposed for files: looked at, judged, and written with comments.

    propose(paths, name=None, folder=here) -> Proposal      the text, its sources, and what was doubtful

sample.py looks into a file, forms.py tells what cannot be read, judge.py chooses the fields, kinds.py what the texts
are like, sources.py which files belong together, write.py makes the text.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from datapipe.errors import DataError
from datapipe.propose import sources, write

__all__ = ["Proposal", "propose"]


@dataclass(frozen=True)
class Proposal:
    """A manifest to be read and mended; `doubts` are what it was not sure of, (source or path, sentence)."""

    text: str
    name: str
    sources: tuple[sources.Source, ...]
    doubts: tuple[tuple[str, str], ...]

    def as_json(self) -> dict:
        """The answer of `init --json`."""
        return {
            "name": self.name,
            "sources": {
                source.name: {
                    "files": [str(path) for path in source.files],
                    "format": source.samples[0].format,
                    "records": sum(sample.looked for sample in source.samples),
                    "fields": source.choice.fields,
                    "extra": source.choice.extra,
                    "snapshot_key": source.choice.key,
                    "kind": source.texts.kind,
                }
                for source in self.sources
            },
            "doubts": [{"about": about, "doubt": doubt} for about, doubt in self.doubts],
            "manifest": self.text,
        }


def propose(paths: Sequence[str | Path], *, name: str | None = None, folder: Path | None = None) -> Proposal:
    """
    A manifest for files, folders and patterns.  DataError where nothing of them can be read.

    name:    of the build, else that of the first path;  folder: where the manifest is to lie, else here
    """
    found = sources.find([str(path) for path in paths])
    unreadable = write.unreadable(found)
    if not found.sources:
        raise DataError(_nothing(paths, unreadable, found.notes))
    named = sources.build_name(name or Path(os.path.abspath(str(paths[0]))).name.split(".")[0])
    where = Path(os.path.realpath(folder or Path.cwd()))
    doubts = [("", note) for note in found.notes] + unreadable
    doubts += [(source.name, note) for source in found.sources for note in write.doubts(source)]
    return Proposal(write.manifest(found, named, where), named, tuple(found.sources), tuple(doubts))


def _nothing(paths: Sequence[str | Path], unreadable: Sequence[tuple[str, str]], notes: Sequence[str]) -> str:
    asked = ", ".join(str(path) for path in paths)
    said = [f"{path} {why}" for path, why in unreadable] or list(notes) or ["there are no files"]
    return f"{asked}: nothing that can be read as a source\n" + "\n".join(f"  {one}" for one in said)
