"""
The documents of a build as they are trained on: what was kept, with its copies; with `everything` also what was read
and left out, with exposure 0.  Validation documents have a role of their own and never count as training.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa

from datapipe.auditing import receipt
from datapipe.auditing.report import Corpus, Role, ScopeFile, SourceScope
from datapipe.auditing.training import Batch, Books, Document, Seen
from datapipe.books import Books as BuildBooks
from datapipe.books.texts import fetch, part_path, stored
from datapipe.errors import DataError

REDACT = "redact_"
TRAINED: tuple[Role, ...] = ("train", "validation")
ROWS = "select part, row, doc, source, split, fate, copies from fates where ({}) order by part, row"
KEPT = "fate = 'kept'"


class Build:
    """A build in the role it was asked for: train (and validation, apart), or retrieval."""

    def __init__(self, path: Path, role: Role = "train", *, everything: bool = False, memory: int = 1_000_000_000):
        self.path, self.everything = path, everything
        self.notes: tuple[str, ...] = ()
        self.role: Role = role
        self.books = BuildBooks(path, memory=memory)
        made = self.books.manifest
        self.name = f"{made.name}@{made.version}"
        stored = made.manifest.get("documents", "all")
        if stored == "none" or not self.books.has("documents"):
            self.books.close()
            raise DataError(
                f"{path}: the texts of this build are not stored (`documents: {stored}`), so they cannot be looked "
                "through; build it with `documents: kept` or `all`"
            )
        if everything and stored != "all":
            self.books.close()
            raise DataError(
                f"{path}: --all-read needs the texts of all documents, and this build has `documents: {stored}`; "
                "build it with `documents: all`, or leave --all-read away"
            )
        self.books.db.execute(f"create table places as {ROWS.format('true' if everything else KEPT)}")
        self._parts = [int(part) for (part,) in self.books.query("select distinct part from places order by part")]

    @property
    def roles(self) -> tuple[Role, ...]:
        return TRAINED if self.role == "train" else (self.role,)

    @property
    def sources(self) -> Sequence[str]:
        return self.books.manifest.sources

    @property
    def work(self) -> Sequence[int]:
        """Numbers of parts of documents."""
        return self._parts

    def read(self, unit: object, books: Books) -> Iterator[Batch]:  # noqa: ARG002  a build reads, or it is damaged
        """The documents of a part, a row group at a time."""
        assert isinstance(unit, int)
        found = self.books.db.cursor().execute(
            "select row, doc, source, split, fate, copies from places where part = ? order by row", [unit]
        ).fetchnumpy()  # fmt: skip
        rows = np.asarray(found["row"], np.int64)
        names, splits, fates = (np.asarray(found[name]).astype(str) for name in ("source", "split", "fate"))
        train = splits == "train"
        copies = np.where(fates == "kept", np.asarray(found["copies"], np.int64), 0)
        start = 0
        with stored(part_path(self.path, unit)) as file:
            for group in range(file.num_row_groups):
                stop = start + file.metadata.row_group(group).num_rows
                low, high = np.searchsorted(rows, [start, stop])
                if high > low:
                    column = file.read_row_group(group, columns=["text"])["text"].combine_chunks()
                    for role, wanted in (("train", True), ("validation", False)):
                        chosen = low + np.flatnonzero(train[low:high] == wanted)
                        for source in np.unique(names[chosen]).tolist():
                            mine = chosen[names[chosen] == source]
                            texts = column.take(pa.array(rows[mine] - start))
                            places = [(unit, int(rows[at]), int(found["doc"][at])) for at in mine.tolist()]
                            yield BuildBatch(source, self._role(role), texts, copies[mine], places)
                start = stop

    def _role(self, split: str) -> Role:
        return TRAINED[split != "train"] if self.role == "train" else self.role

    def resolve(self, documents: Sequence[Document]) -> list[Document]:
        """Names and fates from the tables of the build."""
        if not documents:
            return []
        places = [one.place for one in documents if one.place]
        docs = [place[2] for place in places]
        rows = self.books.query(
            "select doc, doc_id, fate, stage, rule from fates where doc in (select unnest(?::bigint[]))", [docs]
        )
        fates = {doc: rest for doc, *rest in rows}
        origins = fetch(self.path, [place[:2] for place in places], ("path", "offset", "line", "id"))
        found: list[Document] = []
        for one, place, origin in zip(documents, places, origins, strict=True):
            doc_id, fate, stage, rule = fates[place[2]]
            found.append(replace(
                one, document=doc_id, url=origin["id"], path=origin["path"], line=origin["line"],
                offset=origin["offset"], fate=fate, stage=stage, rule=rule,
            ))  # fmt: skip
        return found

    def names(self, wanted: set[str], books: Books) -> set[str]:  # noqa: ARG002  as all corpora
        known = "select distinct id from documents where id in (select unnest(?::varchar[]))"
        rows = self.books.query(known, [sorted(wanted)])
        return {name for (name,) in rows}

    def scope(self, role: Role, seen: dict[str, Seen], books: Books) -> Corpus:  # noqa: ARG002  as all corpora
        made = self.books.manifest
        split = "" if self.role != "train" else f" and split = '{role}'"
        there = dict(self.books.query(f"select source, count(*) from fates where true{split} group by source"))
        sources = tuple(
            SourceScope(
                source=name, documents=one.documents, units=one.units, bytes=one.bytes, copies=one.copies,
                left_out=max(0, there.get(name, 0) - one.documents),
            )
            for name, one in sorted({**dict.fromkeys(there, Seen()), **seen}.items())
        )  # fmt: skip
        files = tuple(
            ScopeFile(
                source=one.source, path=one.path, bytes=one.bytes, sha256=one.sha256, records=one.records,
                documents=one.documents, damaged=one.damaged,
                refused={reason: n for kind in one.reasons.values() for reason, n in kind.items()},
            )
            for one in made.inputs
        )  # fmt: skip
        redacted = tuple(
            name for name, source in made.manifest["sources"].items()
            if any(str(edit).startswith(REDACT) for edit in source.get("edits", ()))
        )  # fmt: skip
        return Corpus(
            name=self.name, role=role, kind="build", path=str(self.path), digest=made.build_digest, redacted=redacted,
            sources=sources, files=files, notes=self.notes if role == self.roles[0] else (),
            receipts=receipt.of_build(made.stages) if role != "validation" else (),
        )  # fmt: skip

    def close(self) -> None:
        self.books.close()


@dataclass(frozen=True)
class BuildBatch:
    """Documents of one source and split of a part; places: (part, row, row of fates)."""

    source: str
    role: Role
    texts: pa.Array
    copies: np.ndarray
    places: list[tuple[int, int, int]]

    def document(self, row: int) -> Document:
        part, at, doc = self.places[row]
        return Document("", self.source, self.role, None, "", None, None, int(self.copies[row]), (part, at, doc))
