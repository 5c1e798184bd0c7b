"""
What "more data, better model" must answer, and what a build and a run know of it.

A claim is about two things that differ in their data: tokens that were really learnt from, how often, from how many
different texts, tested on what the training has not seen, at the same cost, for tasks that are named.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from datapipe.build_manifest import BuildManifest, consumers, load, resolve
from datapipe.errors import DatapipeError, DriftError, IntegrityError, ManifestError
from datapipe.estimate import lifetime
from datapipe.estimate.quantities import show
from datapipe.estimate.supply import Supply, supply

RUN = "run.json"
SEEDS = 5
FORMAT_VERSION = 1


@dataclass(frozen=True)
class Answer:
    """
    One question.  known: what is known, a line each; missing: what is not, and how to find out.  Both may be there.
    """

    key: str
    question: str
    known: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    figures: Mapping[str, Any] | None = None

    def as_json(self) -> dict[str, Any]:
        return {
            "key": self.key, "question": self.question, "known": list(self.known), "missing": list(self.missing),
            "figures": dict(self.figures or {}),
        }  # fmt: skip


@dataclass(frozen=True)
class Subject:
    """
    What the claim is about.  build: None where it is not at hand; absent: why.  run: run.json of a run on it, or None.
    """

    name: str
    build: BuildManifest | None
    absent: str = ""
    audits: tuple[Mapping[str, Any], ...] = ()
    run: Mapping[str, Any] | None = None
    params: float | None = None
    served: float | None = None

    @property
    def supply(self) -> Supply | None:
        return supply(self.build) if self.build else None


@dataclass(frozen=True)
class Claim:
    """All questions in order."""

    subject: Subject
    answers: tuple[Answer, ...]

    @property
    def open(self) -> int:
        return sum(bool(one.missing) for one in self.answers)

    def as_json(self) -> dict[str, Any]:
        made, run = self.subject.build, self.subject.run
        return {
            "subject": self.subject.name,
            "build": made and {"name": made.name, "version": made.version, "dataset_id": made.dataset_id},
            "run": run and {"name": run.get("name"), "finished": run.get("finished")},
            "answered": len(self.answers) - self.open, "open": self.open,
            "questions": [one.as_json() for one in self.answers],
        }  # fmt: skip


# --- finding ----------------------------------------------------------------------------------------------------------


def find(
    ref: str | None, output: Path, runs: Path, params: float | None = None, served: float | None = None
) -> Subject:  # fmt: skip
    """
    A build or a run: a path, a run's name under `runs`, a build's name as everywhere; None: the newest build.

    A folder with run.json is a run.  Its build is looked for under `output` and where the run says it was.
    """
    if ref is not None:
        for path in (Path(ref).expanduser(), Path(ref).expanduser() / RUN, runs / ref / RUN):
            if path.name == RUN and path.is_file():
                return _of_run(path, output, params, served)
    try:
        path = resolve(ref, output)
    except ManifestError as error:
        raise ManifestError(f"{error}; nor is there a run {runs / (ref or '')}/{RUN}") from None
    made = load(path)
    audits = tuple(consumers.read(path, "audit"))
    return Subject(f"build {made.name}@{made.version}", made, audits=audits, params=params, served=served)


def _of_run(path: Path, output: Path, params: float | None, served: float | None) -> Subject:
    try:
        run = json.loads(path.read_bytes())
    except (ValueError, RecursionError):
        raise IntegrityError(f"{path} is not JSON; train again") from None
    if not isinstance(run, dict) or run.get("format_version") != FORMAT_VERSION:
        found = run.get("format_version") if isinstance(run, dict) else None
        raise DriftError(f"{path}: format_version is {found!r}, this version of datapipe reads {FORMAT_VERSION}")
    data = _map(run, "data")
    if not {"build", "version", "dataset_id"} <= set(data) or not _map(run, "counters"):
        raise IntegrityError(f"{path} is no report of a run: it lacks its data or counters")
    name = f"run {run.get('name')} on {data['build']}@{data['version']}"
    found, absent, audits = None, "", ()
    try:
        folder = resolve(f"{data['build']}@{data['version']}", _builds(run, path, output))
        found = load(folder)
        audits = tuple(consumers.read(folder, "audit"))
    except DatapipeError as error:
        absent = str(error)
    if found and found.dataset_id != data["dataset_id"]:
        absent = (
            f"{found.name}@{found.version} there has dataset_id {found.dataset_id[:12]}, not {data['dataset_id'][:12]}"
        )
        found, audits = None, ()
    return Subject(name, found, absent, audits, run, params, served)


def _builds(run: Mapping[str, Any], path: Path, output: Path) -> Path:
    """The folder of builds: `output` if the build is there, else the run's own, relative to where it was started."""
    data = _map(run, "data")
    own = Path(str(_map(run, "config").get("builds", output)))
    started = path.resolve().parent.parent.parent  # <started>/<runs>/<name>/run.json
    places = [output, own if own.is_absolute() else started / own]
    return next((place for place in places if (place / str(data["build"])).is_dir()), output)


def _map(record: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = record.get(key)
    return value if isinstance(value, Mapping) else {}


# --- the questions ----------------------------------------------------------------------------------------------------


def claim(subject: Subject) -> Claim:
    """Each question, in the order in which they decide whether the next is worth asking."""
    from datapipe.estimate.questions import QUESTIONS

    return Claim(subject, tuple(ask(subject) for ask in QUESTIONS))


def repeats(consumed: float, unique: float) -> str:
    """How often different targets were seen, and what that is worth."""
    worth = lifetime.worth(consumed, unique)
    passes = f"{consumed / unique:.2f} passes over {show(unique, 'number')} different targets"
    if consumed <= unique or math.isclose(consumed, unique):
        return f"{passes}: none is seen twice on the whole"
    share = f"{worth / consumed:.1%} of what was consumed; Muennighoff et al. 2305.16264"
    return f"{passes}, worth {show(worth, 'number')} new ones ({share})"
