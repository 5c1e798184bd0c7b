"""Where reports lie: what --out writes, the consumer record of a build, and reading them back."""

import glob
import os
from collections.abc import Sequence
from pathlib import Path

import zstandard

from datapipe.auditing import outside, tables
from datapipe.auditing.audit import Audited, Question
from datapipe.auditing.report import Report, from_json
from datapipe.auditing.tables import REPORT
from datapipe.build_manifest import consumers, resolve
from datapipe.build_manifest.store import MANIFEST
from datapipe.errors import DataError, IntegrityError, MachineError, ManifestError
from datapipe.read import files

KIND = "audit"
KEPT = ".report.json.zst"
FATES = "fates.parquet"  # what every build has beside its manifest


def check(out: Path | None, page: Path | None, asked: Question | None = None) -> None:
    """
    Before any work: whether --out can be a folder and --report a file, and neither takes the place of what is read.
    MachineError where they may not be written.
    """
    if out and out.exists() and not out.is_dir():
        raise ManifestError(f"--out {out}: is a file, expected a folder")
    if page and page.exists() and not page.is_file():  # a device would be replaced by a file
        raise ManifestError(f"--report {page}: is {'a folder' if page.is_dir() else 'no file'}, expected a file")
    written = tables.written(out) if out else []
    if page and out:
        _beside(page, out, written)
    if asked and (page or out):
        read = _inputs(asked)
        if page:
            apart(f"--report {page}", page, asked, read)
        for path in written:
            apart(f"--out {out}: {path}", path, asked, read)
    for folder in filter(None, (out, page and page.parent)):
        there = next(one for one in (folder, *folder.absolute().parents) if one.exists())
        if not there.is_dir() or not os.access(there, os.W_OK | os.X_OK):
            why = "permission denied" if there.is_dir() else "is a file, expected a folder"
            raise MachineError(f"{there}: cannot be written: {why}")


def _beside(page: Path, out: Path, written: Sequence[Path]) -> None:
    """ManifestError where --report and --out would write one file."""
    real = Path(os.path.realpath(page))
    lists = real.suffix == ".txt" and str(real.parent) == os.path.realpath(out / "clean")
    if lists or str(real) in {os.path.realpath(path) for path in written}:
        raise ManifestError(f"--report {page}: is what --out {out} writes; name another place")
    if Path(os.path.realpath(out)).is_relative_to(real):
        raise ManifestError(f"--report {page}: --out {out} is a folder there; name another place")


def _inputs(asked: Question) -> set[str]:
    """Where all that is read really lies: links in folders, and what patterns match, lead elsewhere."""
    sides = [side for side in (asked.train, asked.retrieval) if side]
    found = [str(path) for side in sides if side.files for path in outside.paths(side.files)]
    for named in (*asked.evals, *asked.variants):
        for path in [named] if os.path.exists(named) else glob.glob(named, recursive=True):
            found += [path, *_below(path)]
    for build in (build for side in sides for build in side.builds):
        found += [path for path in _below(build) if os.path.islink(path)]
    return {os.path.realpath(path) for path in found}


def _below(folder: str | Path) -> list[str]:
    return [os.path.join(where, name) for where, _, names in os.walk(folder) for name in names]


def apart(said: str, target: Path, asked: Question, read: set[str]) -> None:
    """
    ManifestError where a path that is to be written is read, or lies in a folder that is.

    read: where all that is read really lies
    """
    sides = [side for side in (asked.train, asked.retrieval) if side]
    named = (*asked.evals, *asked.variants, *filter(None, (asked.trace, asked.scores)),
             *(build for side in sides for build in side.builds))  # fmt: skip
    for one in named:
        if Path(os.path.realpath(target)).is_relative_to(os.path.realpath(one)):
            where = "is" if os.path.realpath(target) == os.path.realpath(one) else "lies in"
            raise ManifestError(f"{said}: {where} {one}, which is read; name another place")
    for folder in Path(os.path.abspath(target)).parents:
        if (folder / MANIFEST).is_file() and (folder / FATES).is_file():
            raise ManifestError(f"{said}: lies in the build {folder}; name another place")
    for pattern in (*asked.evals, *(pattern for side in sides for pattern in side.files)):
        if files.means(pattern, str(target)):
            raise ManifestError(f"{said}: is read as one of {pattern}; name another place")
    if os.path.realpath(target) in read:
        raise ManifestError(f"{said}: is one of the files that are read; name another place")


def deliver(made: Audited, builds: Sequence[Path], out: Path | None, page: Path | None) -> None:
    """Write what was asked for, and a record into each build that was looked through."""
    try:
        if out:
            tables.write(made.report, made.judgements, out)
            write(made.report, out)
        if page:
            from datapipe.auditing.page import render  # jinja2 is for pages only

            consumers.put(page, render(made.report).encode())
        for build in builds:
            keep(made.report, build, out, page)
    except OSError as error:
        where = error.filename or " and ".join(str(one) for one in (out, page) if one)
        raise MachineError(f"{where}: cannot be written: {error.strerror}") from error


def keep(report: Report, build: Path, out: Path | None, page: Path | None) -> Path:
    """The consumer record of a build, and beside it the whole report, for `audit explain`."""
    train = report.section("train") or report.sections[0]
    data = report.dumped()
    consumers.put(consumers.path(build, KIND, report.digest, KEPT), zstandard.ZstdCompressor(level=6).compress(data))
    return consumers.write(build, KIND, report.digest, {
        "started": report.run.started,
        "verdict": report.verdict.result,
        "complete": report.verdict.complete,
        "evals": [{"suite": one.suite, "path": one.path, "sha256": one.sha256} for one in report.evals.files],
        "detector": {"profile": report.detector.profile, "n": report.detector.n},
        "flagged": {row.suite: row.flagged for row in train.sets},
        "report": str(consumers.path(build, KIND, report.digest, KEPT).name),
        "out": str(out.resolve()) if out else None,
        "page": str(page.resolve()) if page else None,
    })  # fmt: skip


def load(source: Path | None, output: Path) -> Report:
    """A report: a report.json, the folder of one, or the newest audit of a build; None: of the newest build."""
    if source is not None:
        for path in (source, source / REPORT):
            if path.is_file() and path.name != MANIFEST:
                return _read(path)
    build = resolve(None if source is None else str(source), output)
    for record in consumers.read(build, KIND):
        path = consumers.path(build, KIND, str(record["digest"]), KEPT)
        if path.is_file():
            return _read(path)
    raise ManifestError(f"{build}: no audit of this build is kept; run `datapipe audit --eval ...` first")


def _read(path: Path) -> Report:
    try:
        data = path.read_bytes()
        if path.suffix == ".zst":
            data = zstandard.ZstdDecompressor().decompress(data, max_output_size=1 << 32)
        return from_json(data)
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror}") from None
    except (ValueError, zstandard.ZstdError) as error:
        wrong = str(error).split("\n", 1)[0]
        raise IntegrityError(f"{path}: is no report of this version of datapipe ({wrong}); audit again") from None


def write(report: Report, folder: Path) -> None:
    """report.json in a folder: readable by people, the same bytes for equal audits but for `run`."""
    consumers.put(folder / REPORT, report.readable())
