"""
What a model scored, on what was in its data and on what was not.

A file of scores (JSONL, CSV or TSV) has an id, a score from 0 to 1, and a suite where ids alone do not say which.  The
scores of one example, several attempts, are averaged, however each of them names it.  Where records of a suite share an
id, they are named id#row, as the audit names all but the first of them.

epg   score of all minus score of the examples below a bound, in points of 100 (ConTAM 4.1); by class: the clean ones
z     (mean of a group - mean of all) / sigma, sigma^2 = p (1 - p) / n x (N - n) / (N - 1), for the groups of Llama 2:
      clean, dirty and their complements, by token_ratio; evidence that contamination moves the score needs all four
      beyond 2.  Null where a group is empty or is all, or every score is the same.
quote the score without adjacent, solution, near and variant: what to publish
"""

import csv
import hashlib
import io
import json
import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from datapipe.auditing.report import CLASSES, THRESHOLDS, ScoreRow, Scores, ScoreSet
from datapipe.contamination.metrics import CLEAN, DIRTY
from datapipe.errors import DataError, ManifestError

IDS = ("id", "example", "example_id", "doc_id", "key")
SCORES = ("score", "acc", "accuracy", "correct", "exact_match", "pass", "value")
SUITES = ("suite", "task", "set", "dataset")
TOLD = ("adjacent", "solution", "near", "variant")  # left out of the score to publish
EVIDENCE = 2.0  # |z|
POINTS = 100


@dataclass(frozen=True)
class Given:
    """The scores of a file, by (suite or None, id): all attempts."""

    path: str
    sha256: str
    scores: Mapping[tuple[str | None, str], Sequence[float]]


@dataclass(frozen=True)
class Example:
    """What an audit says of an example.  ratios: of the EPG curve and of the bins, None where not tested."""

    suite: str
    id: str
    cls: str
    longest_ratio: float | None = None
    token_ratio: float | None = None


def read(path: str | Path) -> Given:
    """ManifestError: no such fields, naming those that exist.  DataError: a line that holds no score, naming it."""
    path = Path(path)
    try:
        data = path.read_bytes()
        text = data.decode("utf-8-sig")
    except OSError as error:
        raise DataError(f"{path}: {error.strerror or error}") from None
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: byte {error.start} is not UTF-8") from None
    found: dict[tuple[str | None, str], list[float]] = defaultdict(list)
    for line, row in _rows(path, text):
        name, score, suite = _fields(path, line, row)
        of = row[suite] if suite else None
        key = (None if of in (None, "") else str(of), _id(path, line, row[name]))
        found[key].append(_score(path, line, row[score]))
    if not found:
        raise DataError(f"{path}: no scores in it")
    return Given(str(path), hashlib.sha256(data).hexdigest(), dict(found))


def _rows(path: Path, text: str) -> Iterator[tuple[int, dict]]:
    """(line from 1, record)."""
    if path.suffix.lower() in (".csv", ".tsv"):
        reader = csv.DictReader(
            io.StringIO(text, newline=""), dialect="excel-tab" if path.suffix.lower() == ".tsv" else "excel"
        )
        try:
            for row in reader:
                yield reader.line_num, row
        except csv.Error as error:
            raise DataError(f"{path}:{reader.line_num}: {error}") from None
        return
    for line, content in enumerate(text.split("\n"), 1):
        if not content.strip():
            continue
        try:
            row = json.loads(content)
        except (ValueError, RecursionError):
            raise DataError(f"{path}:{line}: no JSON; expected an object a line, or a .csv or .tsv file") from None
        if not isinstance(row, dict):
            raise DataError(f"{path}:{line}: expected an object with an id and a score")
        yield line, row


def _fields(path: Path, line: int, row: Mapping[str, object]) -> tuple[str, str, str | None]:
    chosen = [next((name for name in names if name in row), None) for names in (IDS, SCORES, SUITES)]
    for what, name, names in (("an id", chosen[0], IDS), ("a score", chosen[1], SCORES)):
        if name is None:
            there = ", ".join(str(key) for key in row)
            raise ManifestError(f"--scores {path}:{line}: no field for {what} ({', '.join(names)}); it has: {there}")
    return str(chosen[0]), str(chosen[1]), chosen[2]


def _id(path: Path, line: int, value: object) -> str:
    if value is None or value == "" or isinstance(value, (dict, list, bool)):
        raise DataError(f"{path}:{line}: an id is {value!r}, expected text or a number")
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def _score(path: Path, line: int, value: object) -> float:
    words = {"true": 1.0, "false": 0.0}
    if isinstance(value, str):
        value = words.get(value.strip().lower(), value)
    try:
        number = float(value) if isinstance(value, (str, int, float)) else math.nan
    except (ValueError, OverflowError):
        number = math.nan
    if not 0 <= number <= 1:
        raise DataError(f"{path}:{line}: a score is {value!r}, expected 0 to 1")
    return number


# --- scores against classes ---------------------------------------------------------------------------------------


def check(given: Given, examples: Sequence[tuple[str, str, int]]) -> Given:
    """
    The scores under the ids that the examples (suite, id, row) have.

    DataError where none is about one of them alone: figures of nothing would be told.  ManifestError: an id that
    several examples of a suite share.
    """
    there = [(suite, own) for suite, own, _ in examples]
    given = _told_apart(given, examples)
    suites = Counter(own for _, own in there)
    alone = ((None, own) for own, number in suites.items() if number == 1)
    if not {*there, *alone, *((None, f"{suite}/{own}") for suite, own in there)}.isdisjoint(given.scores):
        return given
    shared = next((own for suite, own in given.scores if suite is None and suites[own] > 1), None)
    if shared is not None:
        raise DataError(
            f"{given.path}: no score says which suite it is of, and {shared!r} is an id of {suites[shared]}; add a "
            f"field {SUITES[0]!r}, or write SUITE/{shared}"
        )
    of, name = next(iter(given.scores))
    wanted = repr(name) if of is None else f"{name!r} of {of!r}"
    raise DataError(
        f"{given.path}: no score is about an example of the eval sets; it has {wanted}, they have "
        f"{there[0][1]!r} of {there[0][0]!r}"
    )


def _told_apart(given: Given, examples: Sequence[tuple[str, str, int]]) -> Given:
    """
    With the first of several examples that share an id under that id, where the file has id#row of it.  ManifestError
    where the file has the bare id, and names none of the others by its row: it may mean any of them.
    """
    rows = {(suite, own): row for suite, own, row in examples}
    sharing: dict[tuple[str, str], list[int]] = defaultdict(list)
    for suite, own, row in examples:
        base = own.removesuffix(f"#{row}")
        if base != own and (suite, base) in rows:
            sharing[suite, base].append(row)
    scores = {key: list(values) for key, values in given.scores.items()}
    for (suite, own), others in sharing.items():
        for of, name in ((suite, own), (None, own), (None, f"{suite}/{own}")):
            if (of, name) in scores and not any((of, f"{name}#{row}") in scores for row in others):
                every = [rows[suite, own], *others]
                ways = ", ".join(f"{own}#{row}" for row in every[:3]) + (", ..." if len(every) > 3 else "")
                raise ManifestError(
                    f"--scores {given.path}: {own!r} is the id of {len(every):,} examples of {suite!r}; name them by "
                    f"their rows: {ways}"
                )
            if first := scores.pop((of, f"{name}#{rows[suite, own]}"), None):
                scores[of, name] = [*scores.get((of, name), ()), *first]
    return Given(given.path, given.sha256, scores)


def judge(given: Given, examples: Sequence[Example]) -> Scores:
    """The scores of each suite that has any.  Ids that name no example, or examples of two suites, are counted."""
    by_suite: dict[str, dict[str, Example]] = defaultdict(dict)
    by_id: dict[str, list[Example]] = defaultdict(list)
    for example in examples:
        by_suite[example.suite][example.id] = example
        by_id[example.id].append(example)
    for example in examples:
        by_id.setdefault(f"{example.suite}/{example.id}", [example])
    attempts: dict[tuple[str, str], list[float]] = defaultdict(list)
    unknown = ambiguous = 0
    for (suite, name), values in given.scores.items():
        own = by_suite.get(suite, {}).get(name) if suite is not None else None
        candidates = [own] if own else by_id.get(name, []) if suite is None else []
        if len(candidates) == 1:
            attempts[candidates[0].suite, candidates[0].id] += values
        elif candidates:
            ambiguous += 1
        else:
            unknown += 1
    scored = {key: math.fsum(values) / len(values) for key, values in attempts.items()}
    sets = []
    for suite in sorted(by_suite):
        pairs = [(own, scored[suite, own.id]) for own in by_suite[suite].values() if (suite, own.id) in scored]
        if pairs:
            sets.append(_of_suite(suite, pairs))
    return Scores(
        path=given.path,
        sha256=given.sha256,
        scored=len(scored),
        unknown=unknown,
        ambiguous=ambiguous,
        missing=len(examples) - len(scored),
        sets=tuple(sets),
    )


def _of_suite(suite: str, pairs: Sequence[tuple[Example, float]]) -> ScoreSet:
    every = [score for _, score in pairs]
    clean = [score for own, score in pairs if own.cls == "clean"]
    classes = [row(name, [s for own, s in pairs if own.cls == name]) for name in CLASSES]
    z = _groups(pairs)
    return ScoreSet(
        suite=suite,
        all=row("all", every),
        rows=tuple(one for one in classes if one.examples),
        quote=row("quote", [score for own, score in pairs if own.cls not in TOLD]),
        epg=epg(every, clean),
        epg_curve=tuple((bound, _below(pairs, bound)) for bound in THRESHOLDS),
        z=z,
        evidence=evidence(z.values()),
        clean_ids=tuple(own.id for own, _ in pairs if own.cls == "clean"),
    )


def row(name: str, scores: Sequence[float]) -> ScoreRow:
    return ScoreRow(name=name, examples=len(scores), score=mean(scores))


def mean(scores: Sequence[float]) -> float | None:
    return math.fsum(scores) / len(scores) if scores else None


def epg(every: Sequence[float], rest: Sequence[float]) -> float | None:
    """Estimated performance gain, in points of 100; None where nothing is left."""
    whole, left = mean(every), mean(rest)
    return None if whole is None or left is None else POINTS * (whole - left)


def _below(pairs: Sequence[tuple[Example, float]], bound: float) -> float | None:
    """EPG of the tested examples, those whose longest match is below the bound against all of them."""
    tested = [(own.longest_ratio, score) for own, score in pairs if own.longest_ratio is not None]
    return epg([score for _, score in tested], [score for ratio, score in tested if ratio < bound])


def z_score(group: Sequence[float], every: Sequence[float]) -> float | None:
    """How far a group's mean lies from that of all it was drawn from, in standard deviations."""
    share, own, n, whole = mean(every), mean(group), len(group), len(every)
    if share is None or own is None or n == whole or not 0 < share < 1:
        return None
    return (own - share) / math.sqrt(share * (1 - share) / n * (whole - n) / (whole - 1))


def _groups(pairs: Sequence[tuple[Example, float]]) -> dict[str, float | None]:
    known = [(own.token_ratio, score) for own, score in pairs if own.token_ratio is not None]
    every = [score for _, score in known]
    groups = {
        "clean": [score for ratio, score in known if ratio < CLEAN],
        "not clean": [score for ratio, score in known if ratio >= CLEAN],
        "not dirty": [score for ratio, score in known if ratio < DIRTY],
        "dirty": [score for ratio, score in known if ratio >= DIRTY],
    }
    return {name: z_score(scores, every) for name, scores in groups.items()}


def evidence(z: Iterable[float | None]) -> bool | None:
    """Whether every group lies beyond 2; None where one is not known."""
    values = list(z)
    return None if any(value is None for value in values) else all(abs(value or 0) > EVIDENCE for value in values)
