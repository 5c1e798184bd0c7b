"""
Is a build what its manifest.json says, and do its books close?

Everything is recomputed from the files: digests, schemas, the books of documents and tokens, and the similarities
that dedup claimed, of a hash-chosen 1 % of the dropped documents or of each.

files.py      digests, sha256 of every file, columns of every table
documents.py  records, fates, stages, ledger, the two sides
collateral.py what each rule of a filter takes
tokens.py     content digests and token books, counted from the shards
signatures.py signatures and bands
texts.py      text hashes and similarities
"""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from datapipe.books import Books
from datapipe.build_manifest import load
from datapipe.checks import collateral, documents, files, signatures, texts, tokens
from datapipe.checks.check import Check, Progress

__all__ = ["Check", "Progress", "Verified", "verify"]


@dataclass(frozen=True)
class Verified:
    """All checks of a build."""

    build: Path
    checks: list[Check]

    @property
    def ok(self) -> bool:
        return not any(check.differences for check in self.checks)

    @property
    def complete(self) -> bool:
        return not any(check.not_possible for check in self.checks)

    def as_json(self) -> dict[str, Any]:
        checks = [asdict(check) | {"state": check.state} for check in self.checks]
        return {"build": str(self.build), "ok": self.ok, "complete": self.complete, "checks": checks}


def verify(build: Path, *, everything: bool = False, workers: int = 2, progress: Progress | None = None) -> Verified:
    """
    Check a build.  `everything`: each similarity, not a hash-chosen 1 %.  Unreadable files are differences, too.

    Where files are missing or changed, the tables are not opened: what they say would not be the build's word.
    """
    told = progress or (lambda *_: None)
    made = load(build)
    checks = [files.digested(made, build), files.present(made, build, workers, told)]
    if not checks[-1].differences:
        checks.append(files.schemas(made, build))
    if not any(check.differences for check in checks[1:]):
        with Books(build, threads=workers) as books:
            checks += documents.checks(books)
            checks += collateral.checks(books)
            checks += tokens.checks(books, workers, told)
            checks += signatures.checks(books)
            checks += texts.checks(books, everything, told)
    return Verified(build, checks)
