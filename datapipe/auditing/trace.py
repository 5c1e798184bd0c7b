"""
What was really retrieved: a trace file, JSON lines of an example and the documents that the model was shown for it.

    {"id": "gsm8k/17", "retrieved": ["text ...", {"id": "doc-9", "url": "https://...", "text": "..."}, {"id": "doc-3"}]}

The example is named by `id`, `example` or `question_id`, as suite/id or an id that one suite has.  A document has a
text, or an id (or url) by which the --retrieval corpora know it.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np
import pyarrow as pa

from datapipe.auditing import report
from datapipe.auditing.report import (
    CLASSES,
    FLAGGED,
    Class,
    Retrieved,
    Role,
    ScopeFile,
    SetRow,
    SourceScope,
    Trace,
)  # fmt: skip
from datapipe.auditing.sections import set_row
from datapipe.auditing.training import Batch, Books, Document, Seen
from datapipe.contamination.model import Suites
from datapipe.errors import DataError
from datapipe.keyed import text_id
from datapipe.read.fields import whole

EXAMPLE = ("id", "example", "question_id", "qid")
DOCUMENTS = ("retrieved", "documents", "docs", "contexts", "results")
TEXT = ("text", "content", "passage", "snippet", "body")
NAME = ("id", "doc_id", "docid", "url", "uri")
# who publishes eval sets with their labels: search found them for 3 % of the questions of three sets (arXiv 2508.13180)
PUBLISHERS = ("huggingface.co", "hf.co", "hf-mirror.com", "paperswithcode.com", "kaggle.com", "modelscope.cn",
              "datasets-server.huggingface.co", "opencompass.org.cn")  # fmt: skip
NAME_LENGTH = 12  # characters: n of unspaced scripts
SHOWN = 1000
NO_TEXT = "a document without text"


@dataclass(frozen=True)
class Shown:
    """A document of the trace.  text: null where only a name is given."""

    example: int
    line: int
    name: str | None
    url: str | None
    text: str | None


@dataclass(frozen=True)
class Traced:
    """The trace, read; unknown: lines that name no example.  As a corpus it is the texts in it, role `retrieved`."""

    path: Path
    data: bytes
    lines: int
    unknown: int
    shown: tuple[Shown, ...]
    broken: tuple[str, ...]

    @property
    def name(self) -> str:
        return "trace"

    @property
    def roles(self) -> tuple[Role, ...]:
        return ("retrieved",)

    @property
    def sources(self) -> Sequence[str]:
        return ("trace",)

    @property
    def work(self) -> Sequence[int]:
        return (0,)

    @cached_property
    def with_text(self) -> list[Shown]:
        """The documents whose text it holds."""
        return [one for one in self.shown if one.text is not None]

    @cached_property
    def wanted(self) -> set[str]:
        """Names of documents without text."""
        return {one.name for one in self.shown if one.text is None and one.name is not None}

    def read(self, unit: object, books: Books) -> Iterator[Batch]:  # noqa: ARG002  as all corpora
        if self.with_text:
            yield _Texts(self)

    def resolve(self, documents: Sequence[Document]) -> list[Document]:
        return list(documents)

    def names(self, wanted: set[str], books: Books) -> set[str]:  # noqa: ARG002
        return set()

    def scope(self, role: Role, seen: dict[str, Seen], books: Books) -> report.Corpus:  # noqa: ARG002
        sources = tuple(
            SourceScope(source=name, documents=one.documents, units=one.units, bytes=one.bytes, copies=one.documents)
            for name, one in seen.items()
        )
        sha = hashlib.sha256(self.data).hexdigest()
        file = ScopeFile(source="trace", path=self.path.name, bytes=len(self.data), sha256=sha, records=self.lines,
                         documents=len(self.shown), damaged=self.broken[0] if self.broken else None)  # fmt: skip
        failed = tuple(report.Failure(corpus="trace", path=self.path.name, reason=why) for why in self.broken)
        return report.Corpus(name="trace", role=role, kind="trace", path=str(self.path), digest=sha, sources=sources,
                             files=(file,), failures=failed)  # fmt: skip

    def close(self) -> None: ...


@dataclass(frozen=True)
class _Texts:
    """All texts of the trace."""

    trace: Traced

    @property
    def source(self) -> str:
        return "trace"

    @property
    def role(self) -> Role:
        return "retrieved"

    @cached_property
    def texts(self) -> pa.Array:
        return pa.array([one.text for one in self.trace.with_text], pa.large_string())

    @property
    def copies(self) -> np.ndarray:
        return np.ones(len(self.trace.with_text), np.int64)

    def document(self, row: int) -> Document:
        one = self.trace.with_text[row]
        name = text_id((one.text or "").encode("utf-8", "surrogatepass"))
        return Document(name, "trace", "retrieved", one.url or one.name, self.trace.path.name, one.line, None, 1)


def read(path: Path, suites: Suites) -> Traced:
    """The trace file; DataError where no line of it can be understood."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror}") from None
    known = _known(suites)
    shown: list[Shown] = []
    broken: list[str] = []
    lines = unknown = 0
    for number, line in enumerate(data.split(b"\n"), 1):
        if not line.strip():
            continue
        lines += 1
        try:
            found = _line(json.loads(line), known, number)  # of bytes: with or without a byte order mark
        except (ValueError, RecursionError):
            broken.append(f"line {number}: is not an object with an example and its documents")
            continue
        unknown += found is None
        shown += found or []
    if not lines:
        raise DataError(f'{path}: is empty; write {{"id": ..., "retrieved": [...]}} on each line')
    if len(broken) == lines:
        raise DataError(f'{path}: {broken[0]}; write {{"id": ..., "retrieved": [...]}} on each line')
    return Traced(path, data, lines, unknown, tuple(shown), tuple(broken))


def _known(suites: Suites) -> dict[str, int]:
    """Names of examples -> their number; an id that several suites have is known only with its suite."""
    rows = suites.examples.select(["suite", "id"]).to_pylist()
    times = Counter(row["id"] for row in rows)
    alone = {row["id"]: at for at, row in enumerate(rows) if times[row["id"]] == 1}
    return alone | {f"{row['suite']}/{row['id']}": at for at, row in enumerate(rows)}


def _line(value: object, known: dict[str, int], number: int) -> list[Shown] | None:
    if not isinstance(value, dict):
        raise ValueError(value)  # noqa: TRY004  one kind of trouble
    record: dict[str, object] = {str(key): one for key, one in value.items()}
    names = [str(record[key]) for key in EXAMPLE if record.get(key) is not None]
    documents = next((record[key] for key in DOCUMENTS if isinstance(record.get(key), list)), None)
    if not names or not isinstance(documents, list):
        raise ValueError(value)
    example = known.get(names[0])
    if example is None:
        return None
    return [_document(one, example, number) for one in documents]


def _document(value: object, example: int, line: int) -> Shown:
    if isinstance(value, dict):
        record: dict[str, object] = {str(key): one for key, one in value.items()}
        text = next((one for key in TEXT if isinstance(one := record.get(key), str)), None)
        name = next((str(record[key]) for key in NAME if record.get(key) is not None), None)
        known = (record.get(key) for key in ("url", "uri"))
        url = next((one for one in known if isinstance(one, str)), name if name and "://" in name else None)
        return Shown(example, line, name and whole(name), url and whole(url), None if text is None else whole(text))
    if isinstance(value, str) and _is_name(value):
        value = whole(value)
        return Shown(example, line, value, value if "://" in value else None, None)
    if isinstance(value, str):
        return Shown(example, line, None, None, whole(value))
    return Shown(example, line, str(value), None, None)


def _is_name(value: str) -> bool:
    """A word alone is a name; a passage of a script without blanks is one word and longer."""
    return len(value.split()) < 2 and (value.isascii() or "://" in value or len(value) < NAME_LENGTH)


def told(
    trace: Traced,
    suites: Suites,
    pairs: Iterable[tuple[int, str, Class]],
    there: set[str],
    reasons: Sequence[str | None],
    recall: float | None,
) -> Trace:
    """
    What the trace says.  pairs: (example, name of a document that was shown for it, class);  there: names that the
    retrieval corpora have;  reasons: why each example of the suites could not be tested;  recall: of the detector

    An example that was shown a document without text is not tested: what is not seen is not clean.
    """
    rows = suites.examples.select(["suite", "id"]).to_pylist()
    by: dict[int, list[tuple[int, str]]] = {}
    for example, name, cls in pairs:
        by.setdefault(example, []).append((CLASSES.index(cls), name))
    shown = Counter(one.example for one in trace.shown)
    best: dict[int, Class] = {example: CLASSES[min(found)[0]] for example, found in by.items()}
    lost = [one.text is None and one.name not in there for one in trace.shown]
    blind = {one.example for one, gone in zip(trace.shown, lost, strict=True) if gone}
    why = {example: NO_TEXT if example in blind else reasons[example] for example in shown}
    cls = {example: best.get(example, "untested" if why[example] else "clean") for example in shown}
    by_suite: dict[str, list[int]] = {}
    for example in sorted(shown):
        by_suite.setdefault(rows[example]["suite"], []).append(example)

    def row(name: str, own: Sequence[int]) -> SetRow:
        found = np.array([cls[example] for example in own], object)
        return set_row(name, found, np.array([why[example] is not None for example in own], bool),
                       int(np.isin(found, FLAGGED).sum()), recall)  # fmt: skip

    total = row("*", sorted(shown))
    flagged = [
        Retrieved(suite=rows[example]["suite"], id=rows[example]["id"], documents=shown[example], cls=best[example],
                  by=tuple(dict.fromkeys(name for _, name in sorted(found))))
        for example, found in sorted(by.items())
    ]  # fmt: skip
    denied = Counter(host for one in trace.shown if (host := publisher(one.url)))
    return Trace(
        path=str(trace.path), sha256=hashlib.sha256(trace.data).hexdigest(), lines=trace.lines, examples=len(shown),
        documents=len(trace.shown), unknown=trace.unknown, missing=sum(lost), denied=dict(sorted(denied.items())),
        classes=total.classes, flagged=tuple(flagged[:SHOWN]),
        untested=dict(sorted(Counter(why[one] or "" for one in shown if cls[one] == "untested").items())),
        sets=tuple(row(name, own) for name, own in by_suite.items()), total=total,
    )  # fmt: skip


def publisher(url: str | None) -> str | None:
    """The host of an address, if it publishes eval sets."""
    try:
        host = (urlsplit(url).hostname or "") if url else ""
    except ValueError:
        return None
    return next((name for name in PUBLISHERS if host == name or host.endswith(f".{name}")), None)
