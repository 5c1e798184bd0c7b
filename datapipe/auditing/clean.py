"""
A corpus of files without the documents that hold examples: `audit --train FILES --clean-out DIR`.

The files lie in DIR under their relative paths, in their formats and compressions; what stays of a file is the same
byte for byte, records that are no documents too, and a file that loses nothing is copied as it is.  What leaves is
decided as by the stage `decontaminate`.  All is written beside DIR, looked through once more, and renamed when nothing
is found: DIR is whole or not there.  DIR/.receipt has what was removed; nobody reads it as a document.
"""

import glob
import os
import re
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from datapipe import __version__
from datapipe.auditing import evals, outside, receipt, rewrite
from datapipe.auditing.audit import Progress, Question, audit
from datapipe.auditing.gather import UNIT
from datapipe.auditing.outside import Files
from datapipe.auditing.report import FLAGGED, Report
from datapipe.auditing.training import UNSEEN, Asked, Books, Document, joined
from datapipe.contamination import holding
from datapipe.contamination.index import Index
from datapipe.contamination.model import Suites
from datapipe.contamination.scan import Found
from datapipe.errors import IncompleteError, MachineError, ManifestError


@dataclass(frozen=True)
class Cleaned:
    """
    What lies in `folder` now.

    files, unchanged:   files there, and how many of them are copies;  gone: files that were one document, and left
    documents, removed: that were looked through, and that left;  by: suite -> class -> documents that hold such
    left_out:           path -> why it could not be read whole, so nothing of it is there
    unseen:             path -> records that are there as they were, and that nobody could look through
    notes:              what was not read and is not there, and is no failure: hidden files
    report:             the audit of the folder; None where no file is left
    """

    folder: Path
    files: int
    unchanged: int
    gone: int
    documents: int
    removed: int
    by: dict[str, dict[str, int]]
    left_out: dict[str, str]
    unseen: dict[str, int]
    notes: tuple[str, ...]
    report: Report | None = field(repr=False)

    def as_json(self) -> dict[str, object]:
        """summary.json of the receipt, and the object of --json."""
        figures = ("files", "unchanged", "gone", "documents", "removed", "by", "left_out", "unseen", "notes")
        told: dict[str, object] = {name: getattr(self, name) for name in figures}
        return told | {"audit": None if self.report is None else _told(self.report)}


def _told(report: Report) -> dict[str, object]:
    """What the audit of the clean files says."""
    return {
        "flagged": sum(section.total.flagged for section in report.sections),
        "documents": sum(section.documents for section in report.sections),
        "tested": sum(section.total.tested for section in report.sections),
        "complete": report.verdict.complete,
        "files": report.scope[0].digest,
    }


def clean(
    asked: Question, out: Path, *, workers: int, memory: int,
    progress: Progress = lambda what, done, total: None,
) -> Cleaned:  # fmt: skip
    """
    Write the files of asked.train without the documents that hold examples of asked.evals into `out`, new or empty.

    workers: threads;  memory: bytes, of the audit of what is written
    """
    out = Path(os.path.abspath(out))
    _check(asked, out)
    suites = evals.load(asked)
    if failed := suites.failed():
        lines = "\n".join(f"  {path}: {why}" for path, why in failed)
        raise IncompleteError(f"--eval: not all of it can be looked for, so nothing was written:\n{lines}")
    index = Index.build(suites.parts, *asked.sizes)
    corpus = outside.files(
        "--train", "train", asked.train.files, text_field=asked.text_field, workers=workers, once=False
    )
    held, books = _held(corpus, suites, index, workers, progress)
    left_out = {path: why for _, path, why in corpus.failed} | {path: why for (_, path), why in books.damaged.items()}
    removed = {path: mine for path, mine in _removed(corpus, held, workers).items() if path not in left_out}
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        partial = Path(tempfile.mkdtemp(prefix=f".{out.name}.", dir=out.parent))
    except OSError as error:
        raise MachineError(f"{out.parent}: cannot be written: {error.strerror}") from error
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, partial, ignore_errors=True)
        wanted = [one for one in corpus.plan.inputs if one.relative not in left_out]
        lines = {path: {one.line or 1 for one in mine.values()} for path, mine in removed.items()}
        written = rewrite.write(wanted, lines, partial, workers, progress)
        progress("looking through what is clean", 0, None)
        report = _audit(asked, [partial / path for path, how in written.items() if how != "gone"], workers, memory)
        rows = _rows(suites, removed, held, {one.relative: one.format for one in corpus.plan.inputs})
        ways = list(written.values())
        made = Cleaned(
            out, len(ways) - ways.count("gone"), ways.count("copied"), ways.count("gone"),
            sum(counts.get("documents", 0) for counts in books.files.values()),
            sum(len(mine) for mine in removed.values()), _by(rows), dict(sorted(left_out.items())),
            _unseen(books), corpus.notes, report,
        )  # fmt: skip
        receipt.write(partial, _summary(asked, suites, index, made), rows)
        partial.chmod(0o777 & ~_umask())
        if out.exists():
            out.rmdir()
        partial.rename(out)
    return made


def _check(asked: Question, out: Path) -> None:
    if asked.train.builds:
        raise ManifestError(
            f"--clean-out writes files again, and {asked.train.builds[0]} is a build: name files with --train, or take "
            "documents out of a build by a stage `decontaminate` in its manifest"
        )
    if asked.against_validation:
        raise ManifestError("--clean-out goes without --against-validation, which is about a build")
    if out.exists() and not (out.is_dir() and not any(out.iterdir())):
        raise ManifestError(f"--clean-out {out}: is there and not an empty folder; name a new one")
    for pattern in asked.train.files:
        folder = pattern.removesuffix("/**")
        if folder != pattern and out.is_relative_to(os.path.abspath(_literal(folder))):
            raise ManifestError(
                f"--clean-out {out}: lies in {_literal(folder)}, which is read; name a folder elsewhere"
            )


def _unseen(books: Books) -> dict[str, int]:
    found = {path: sum(counts.get(what, 0) for what in UNSEEN) for (_, path), counts in sorted(books.files.items())}
    return {path: n for path, n in found.items() if n}


def _literal(pattern: str) -> str:
    """What glob.escape was given."""
    return re.sub(r"\[(.)\]", r"\1", pattern)


# --- which documents ------------------------------------------------------------------------------------------------


def _held(
    corpus: Files, suites: Suites, index: Index, workers: int, progress: Progress
) -> tuple[dict[int, list[dict[str, Any]]], Books]:
    """Number of a document, (unit << 32) + row -> the rows of HELD for which it leaves."""
    books, work = Books(), corpus.work
    founds: list[Found] = []
    with ThreadPoolExecutor(max_workers=workers) as pool:
        for number, (found, mine) in enumerate(pool.map(lambda at: _look(corpus, at, index), range(len(work)))):
            progress("looking through", number + 1, len(work))
            founds.append(found)
            books.add(mine)
    table, _ = holding.held(suites, index, holding.joined(founds))
    held: dict[int, list[dict[str, Any]]] = {}
    for row in table.to_pylist():
        if row["class"] in FLAGGED:
            held.setdefault(row["doc"], []).append(row)
    return held, books


def _look(corpus: Files, number: int, index: Index) -> tuple[Found, Books]:
    books = Books()
    founds: list[Found] = []
    row = number << UNIT
    for batch in joined(corpus.read(corpus.work[number], books)):
        founds.append(holding.look(index, batch.texts, np.arange(row, row + len(batch.texts), dtype=np.int64)))
        row += len(batch.texts)
    return holding.joined(founds), books


def _removed(corpus: Files, held: Mapping[int, object], workers: int) -> dict[str, dict[int, Document]]:
    """Relative path -> number of a document that leaves -> who it is: its units are read once more."""
    rows: dict[int, list[int]] = {}
    for doc in sorted(held):
        rows.setdefault(doc >> UNIT, []).append(doc & ((1 << UNIT) - 1))

    def named(number: int) -> list[tuple[int, Document]]:
        found: list[tuple[int, Document]] = []
        wanted, at = np.array(rows[number], np.int64), 0
        for batch in corpus.read(corpus.work[number], Books()):
            low, high = np.searchsorted(wanted, [at, at + len(batch.texts)])
            found += [((number << UNIT) + row, batch.document(row - at)) for row in wanted[low:high].tolist()]
            at += len(batch.texts)
        return found

    removed: dict[str, dict[int, Document]] = {}
    with ThreadPoolExecutor(max_workers=workers) as pool:
        for found in pool.map(named, sorted(rows)):
            for doc, one in found:
                removed.setdefault(one.path, {})[doc] = one
    return removed


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


# --- the receipt ----------------------------------------------------------------------------------------------------


def _audit(asked: Question, paths: Sequence[Path], workers: int, memory: int) -> Report | None:
    """The audit of what was written; it must find nothing."""
    if not paths:
        return None
    question = replace(
        asked, train=Asked((), tuple(glob.escape(str(path)) for path in paths)), retrieval=None, trace=None,
        scores=None, fail_on=(),
    )  # fmt: skip
    report = audit(question, workers=workers, memory=memory).report
    found = [one for section in report.sections for one in section.flagged if one.cls in FLAGGED]
    assert not sum(section.total.flagged for section in report.sections), "clean files hold examples"
    assert not found, f"clean files hold {found[0].suite}/{found[0].id} ({found[0].cls}) and {len(found) - 1} more"
    return report


def _rows(
    suites: Suites, removed: Mapping[str, Mapping[int, Document]], held: Mapping[int, Sequence[Mapping[str, Any]]],
    formats: Mapping[str, str],
) -> list[dict[str, Any]]:  # fmt: skip
    """removed.jsonl: a row for each example that a removed document holds, by path, line and example."""
    suite, own = (suites.examples[name].to_pylist() for name in ("suite", "id"))
    rows: list[dict[str, Any]] = []
    for path, mine in sorted(removed.items()):
        place = {"parquet": "row", "text": None}.get(formats[path], "line")
        for doc, one in sorted(mine.items(), key=lambda item: item[1].line or 0):
            rows += [
                {"path": path, "line": None, "row": None, "id": one.url, "document": one.document,
                 "suite": suite[row["example"]], "example": own[row["example"]], **({place: one.line} if place else {}),
                 **{name: row[name] for name in ("class", "part", "start", "end", "metric", "value")}}
                for row in held[doc]
            ]  # fmt: skip
    return rows


def _by(rows: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, int]]:
    """suite -> class -> documents."""
    pairs = {(row["suite"], row["class"], row["path"], row["line"] or row["row"]) for row in rows}
    found: dict[str, dict[str, int]] = {}
    for suite, cls, *_ in sorted(pairs, key=str):
        mine = found.setdefault(suite, {})
        mine[cls] = mine.get(cls, 0) + 1
    return found


def _summary(asked: Question, suites: Suites, index: Index, made: Cleaned) -> dict[str, object]:
    """What was asked for, and what came of it."""
    files = suites.files.select(["suite", "sha256", "examples", "failed"]).to_pylist()
    return {
        "tool": f"datapipe {__version__}", "text_field": asked.text_field, "n": index.n, "n_unspaced": index.n_unspaced,
        "classes": list(FLAGGED), "suites": files, **made.as_json(),
    }  # fmt: skip
