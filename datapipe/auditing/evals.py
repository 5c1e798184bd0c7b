"""The eval side: suites from files, or a build's own validation split; and what the report says of it."""

import json
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from datapipe.auditing.built import Build
from datapipe.auditing.report import EvalFile, Evals, EvalSuite, Untested
from datapipe.auditing.training import Books, Corpus, Document
from datapipe.contamination import suites as readers
from datapipe.contamination.model import EXAMPLES, FILES, KINDS, PARTS, PROMPT, Suites
from datapipe.contamination.template import grouped
from datapipe.errors import DataError, ManifestError

if TYPE_CHECKING:
    from datapipe.auditing.audit import Question
    from datapipe.auditing.sections import Eval, Judgement

SHOWN = 1000
GROUPS = 200
VALIDATION = "validation"


def load(asked: "Question") -> Suites:
    """The suites in the files that were named."""
    return readers.load(list(asked.evals), fields=dict(asked.fields), variants=list(asked.variants))


def of_build(corpora: Sequence[Corpus]) -> Suites:
    """
    The validation documents of the builds as a suite: an example a document, its text the one part.  DataError where
    there is none.
    """
    builds = [corpus for corpus in corpora if isinstance(corpus, Build) and corpus.role == "train"]
    if not builds:
        raise ManifestError("--against-validation: needs a build, which has a validation split; --train names files")
    examples: list[dict[str, object]] = []
    parts: list[dict[str, object]] = []
    files: list[dict[str, object]] = []
    for build in builds:
        before = len(examples)
        for row, (document, text) in enumerate(_held_out(build), 1):
            example = {
                "suite": VALIDATION,
                "id": document.document,
                "file": build.name,
                "row": row,
                "split": VALIDATION,
            }
            parts.append({"part": len(parts), "example": len(examples), "kind": PROMPT, "ordinal": 0, "text": text})
            examples.append({"example": len(examples), "lang": None, "problem": None} | example)
        size, count = sum(len(str(part["text"]).encode()) for part in parts[before:]), len(examples) - before
        files.append({
            "path": build.name, "suite": VALIDATION, "bytes": size, "sha256": build.books.manifest.build_digest,
            "records": count, "examples": count, "mapping": json.dumps({PROMPT: "text"}), "failed": None,
        })  # fmt: skip
    if not examples:
        names = ", ".join(build.name for build in builds)
        raise DataError(f"{names}: has no validation documents; a `holdout` stage sets some apart")
    return Suites(pa.Table.from_pylist(examples, EXAMPLES), pa.Table.from_pylist(parts, PARTS),
                  pa.Table.from_pylist(files, FILES))  # fmt: skip


def _held_out(build: Build) -> list[tuple[Document, str]]:
    """Validation documents and their texts, by doc_id."""
    found: list[tuple[Document, str]] = []
    for unit in build.work:
        for batch in build.read(unit, Books()):
            if batch.role == VALIDATION:
                rows = build.resolve([batch.document(row) for row in range(len(batch.texts))])
                found += zip(rows, batch.texts.to_pylist(), strict=True)
    return sorted(found, key=lambda one: one[0].document)


def described(asked: "Question", eval_: "Eval", main: "Judgement") -> Evals:
    """What was looked for; untested with reasons, twins as groups."""
    table = main.judged.classes
    suite, cls, reasons, own = (table[name].to_pylist() for name in ("suite", "class", "reason", "id"))
    counted, splits = table["counted"].to_pylist(), eval_.suites.examples["split"].to_pylist()
    missed = [at for at, name in enumerate(cls) if name == "untested"]
    owner = eval_.suite_of[eval_.suites.example_of]
    rows = []
    members: dict[str, list[int]] = {name: [] for name in eval_.suites.names}
    for at, of in enumerate(suite):
        members[of].append(at)
    by_kind = Counter(zip(owner.tolist(), eval_.known[0].kind.tolist(), strict=True))
    for name, mine in members.items():
        untested = Counter(reasons[at] or "" for at in mine if cls[at] == "untested")
        named = Counter(splits[at] for at in mine if splits[at])
        rows.append(EvalSuite(
            suite=name, examples=len(mine), tested=sum(reasons[at] is None for at in mine),
            parts={kind: n for kind in KINDS if (n := by_kind[name, kind])}, untested=dict(sorted(untested.items())),
            splits=dict(sorted(named.items())),
            twins=sum(not counted[at] for at in mine), ids=tuple(own[at] for at in mine),
        ))  # fmt: skip
    groups = [group for group in grouped(eval_.known[0].whole) if len(group) > 1]
    return Evals(
        files=tuple(
            EvalFile(
                path=row["path"], suite=row["suite"], bytes=row["bytes"] or 0, sha256=row["sha256"],
                records=row["records"] or 0, examples=row["examples"] or 0,
                mapping={str(part): str(where) for part, where in json.loads(row["mapping"] or "{}").items()},
                failed=row["failed"],
            )
            for row in eval_.suites.files.to_pylist()
        ),
        suites=tuple(rows),
        untested=tuple(Untested(suite=suite[at], id=own[at], reason=reasons[at] or "") for at in missed[:SHOWN]),
        untested_total=len(missed),
        twins=tuple(tuple(eval_.names[at] for at in group[:20].tolist()) for group in groups[:GROUPS]),
        twins_total=len(groups),
        fields=dict(asked.fields),
    )  # fmt: skip
