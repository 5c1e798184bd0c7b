"""The documents that hold an example: which, where in them, with what text around it, and what became of them."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from datapipe.auditing.built import Build
from datapipe.auditing.excerpt import Mark, excerpt
from datapipe.auditing.gather import Side
from datapipe.auditing.packing import Packed, packed
from datapipe.auditing.report import CLASSES, TEXT, WHAT, Class, Evidence, Flagged, Match, Mirror, Part, Span
from datapipe.auditing.sweep import WINDOWED
from datapipe.auditing.training import Corpus, Document
from datapipe.contamination.index import Index
from datapipe.contamination.model import Suites
from datapipe.contamination.scan import Found

SPANS = 50  # of a part in a document
SOURCES = 50
ROWS = 20  # of shards
Row = tuple[int, int, int, int, int]  # start, length in units of the part; unit, byte_start, byte_end in the document


@dataclass(frozen=True)
class _Hold:
    """A row of EVIDENCE: a document of an example."""

    doc: int
    cls: Class
    distance: int | None
    covered: float


class Finder:
    """Looks evidence up; which documents a build must tell more about is asked once, at the end (`finish`)."""

    def __init__(
        self, suites: Suites, index: Index, side: Side, found: Found, evidence: pa.Table, corpora: Sequence[Corpus],
        sources: Sequence[str],
    ):  # fmt: skip
        self.suites, self.index, self.side, self.corpora, self.sources = suites, index, side, corpora, sources
        self.holds = _holds(evidence)
        self.spans, self.masked, self.near = _spans(found, set(side.kept))
        self._names: dict[int, Document] = {}
        self._known: dict[tuple, Evidence] = {}  # of twins a document says the same

    def flagged(
        self, example: int, cls: Class, documents: int, most: int, *, metrics: dict[str, float],
        without: dict[str, float], twins: tuple[str, ...],
    ) -> Flagged:  # fmt: skip
        """A row of the report; documents, most: how many are shown, and how many bytes of each."""
        row = self.suites.examples.slice(example, 1).to_pylist()[0]
        parts = self.suites.parts_of(example).to_pylist()
        held = self.holds.get(example, [])
        told = [hold for hold in held if hold.cls in (cls, *CLASSES[:6])] or held
        best = sorted(
            held, key=lambda hold: (CLASSES.index(hold.cls), hold.doc not in self.side.kept, -hold.covered, hold.doc)
        )
        copies = {hold.doc: self.side.holders[hold.doc] for hold in told}
        names = dict.fromkeys(self.sources[source] for source, _ in sorted(copies.values()))
        also: list[Class] = [other for other in CLASSES if other != cls and any(hold.cls == other for hold in held)]
        shown = [hold for hold in best if hold.doc in self.side.kept][:documents]
        return Flagged(
            suite=row["suite"], id=row["id"], file=row["file"], row=row["row"], lang=row["lang"], cls=cls,
            also=tuple(also), why=_why(cls, best[0] if best else None), parts=_parts(parts), metrics=metrics,
            metrics_without=without, documents=len(copies), exposure=sum(n for _, n in copies.values()),
            sources=tuple(names)[:SOURCES], survived=any(n > 0 for _, n in copies.values()), twins=twins,
            evidence=tuple(self._evidence(parts, hold, most) for hold in shown),
        )  # fmt: skip

    def _evidence(self, parts: Sequence[dict], hold: _Hold, most: int) -> Evidence:
        texts = tuple((int(self.index.twin[row["part"]]), row["kind"], row["ordinal"]) for row in parts)
        key = hold.doc, hold.cls, hold.distance, most, texts
        if key not in self._known:
            self._known[key] = self._told(texts, hold, most)
        return self._known[key]

    def _told(self, texts: Sequence[tuple[int, str, int]], hold: _Hold, most: int) -> Evidence:
        """texts: text, kind, ordinal of each part."""
        corpus, kept = self.side.kept[hold.doc]
        matches: list[Match] = []
        marks: list[Mark] = []
        for text, kind, ordinal in texts:
            match, more = self._match(text, kind, ordinal, hold.doc)
            if match is not None:
                matches.append(match)
                marks += more
        document = kept.document
        return Evidence(
            document=str(hold.doc) if document.place else document.document, corpus=self.corpora[corpus].name,
            source=document.source, role=document.role, cls=hold.cls, url=document.url, path=document.path,
            line=document.line, offset=document.offset, bytes=kept.size, exposure=document.exposure,
            survived=document.exposure > 0, gap=hold.distance, matches=tuple(matches),
            excerpt=excerpt(kept, marks, most),
        )  # fmt: skip

    def _match(self, text: int, kind: str, ordinal: int, doc: int) -> tuple[Match | None, list[Mark]]:
        units = int(self.index.lengths[text])
        plain, masked = (set(of.get((doc, text), ())) for of in (self.spans, self.masked))
        if any(length == units for _, length, *_ in plain):
            masked = set()  # nothing is to be said of numbers elsewhere
        rows = sorted(plain | masked)
        window = self.near.get((doc, text))
        if not rows and window is None:
            return None, []
        figures: dict[str, float] = {}
        if plain:  # what is equal but for numbers is no match of these
            longest = max(length for _, length, *_ in plain)
            figures = {
                "longest": float(longest),
                "longest_ratio": longest / units,
                "covered_ratio": _covered(sorted(plain)) / units,
            }
        if window is not None:
            figures |= {name: float(value) for name in WINDOWED if (value := window[name]) is not None}
        if masked:
            figures["numbers"] = max(figures.get("numbers", 0.0), min(_covered(rows) / units, 1.0))
        how = max(
            (name for name in WINDOWED if name in figures),
            key=lambda name: (figures[name], -WINDOWED.index(name)),
            default=None,
        )
        if not rows and window is not None:
            rows = [(0, units, int(window["doc_unit"]), int(window["byte_start"]), int(window["byte_end"]))]
        spans = [Span(start=low, end=high, part_start=start, units=length) for start, length, _, low, high in rows]
        match = Match(
            kind=kind, ordinal=ordinal, units=units, matched=min(_covered(rows), units), metrics=figures,
            spans=tuple(spans[:SPANS]), spans_total=len(spans), near=how,
        )  # fmt: skip
        return match, [(span.start, span.end, kind) for span in spans]

    def mirror(self, row: dict) -> Mirror:
        """A row of the judge's mirrors."""
        held = self.side.kept.get(row["doc"])
        if held is None:
            source = self.sources[self.side.holders[row["doc"]][0]]
            return Mirror(
                document=str(row["doc"]), source=source, url=None, path="", suite=row["suite"], examples=row["count"]
            )
        one = self.named([row["doc"]])[row["doc"]]
        return Mirror(document=one.document, source=one.source, url=one.url, path=one.path, suite=row["suite"],
                      examples=row["count"])  # fmt: skip

    def named(self, docs: Sequence[int]) -> dict[int, Document]:
        """Documents with all that their corpora know of them."""
        missing = [doc for doc in docs if doc not in self._names]
        for number, corpus in enumerate(self.corpora):
            mine = [doc for doc in missing if self.side.kept[doc][0] == number]
            known = corpus.resolve([self.side.kept[doc][1].document for doc in mine])
            self._names |= dict(zip(mine, known, strict=True))
        return {doc: self._names[doc] for doc in docs}

    def finish(self, rows: Sequence[Flagged]) -> list[Flagged]:
        """The rows with what builds know of their documents: names, fates, places in the shards."""
        waiting: dict[int, list[tuple[int, int]]] = {}
        for one in (one for row in rows for one in row.evidence if _unnamed(one)):
            spans = waiting.setdefault(int(one.document), [])
            spans += [(span.start, span.end) for match in one.matches for span in match.spans]
        names = self.named(sorted(waiting))
        found: dict[int, Packed] = {}
        for number, corpus in enumerate(self.corpora):
            if isinstance(corpus, Build):
                mine = {
                    one.place[2]: doc for doc, one in names.items() if one.place and self.side.kept[doc][0] == number
                }
                spans = {row: sorted(set(waiting[doc])) for row, doc in mine.items()}
                found |= {mine[row]: how for row, how in packed(corpus.books, spans).items()}
        return [
            row.model_copy(update={"evidence": tuple(_filled(one, names, found) for one in row.evidence)})
            for row in rows
        ]  # fmt: skip


def _parts(rows: Sequence[dict]) -> tuple[Part, ...]:
    return tuple(
        Part(kind=row["kind"], ordinal=row["ordinal"], correct=row["correct"], text=row["text"][:TEXT],
             cut=len(row["text"]) > TEXT)
        for row in rows
    )  # fmt: skip


def _unnamed(one: Evidence) -> bool:
    """Whether a build must yet say which document it is: until then it is named by its number."""
    return not one.path


def _filled(one: Evidence, names: dict[int, Document], found: dict[int, Packed]) -> Evidence:
    if not _unnamed(one):
        return one
    doc = int(one.document)
    known, how = names[doc], found.get(doc)
    return one.model_copy(update={
        "document": known.document, "url": known.url, "path": known.path, "line": known.line, "offset": known.offset,
        "fate": known.fate, "stage": known.stage, "rule": known.rule, "packed": how and how.how,
        "shards": how.rows[:ROWS] if how else (),
    })  # fmt: skip


def _holds(evidence: pa.Table) -> dict[int, list[_Hold]]:
    found: dict[int, list[_Hold]] = {}
    names = ("example", "doc", "class", "distance", "covered_ratio")
    for example, doc, cls, distance, covered in zip(*(evidence[name].to_pylist() for name in names), strict=True):
        found.setdefault(example, []).append(_Hold(doc, cls, distance, covered or 0.0))
    return found


Rows = dict[tuple[int, int], list[Row]]


def _spans(found: Found, docs: set[int]) -> tuple[Rows, Rows, dict[tuple[int, int], dict]]:
    """(document, text) -> its runs; -> those in which a number differs; -> its window; of documents kept with text."""
    wanted = np.fromiter(docs, np.int64, len(docs))
    columns = ("doc", "part", "start", "length", "doc_unit", "byte_start", "byte_end")

    def rows(*tables: pa.Table) -> Rows:
        spans: Rows = {}
        for table in tables:
            mine = table.filter(pa.array(np.isin(table["doc"].to_numpy(), wanted)))
            for doc, part, *rest in zip(*(mine[name].to_pylist() for name in columns), strict=True):
                spans.setdefault((doc, part), []).append((rest[0], rest[1], rest[2], rest[3], rest[4]))
        return spans

    mine = found.windows.filter(pa.array(np.isin(found.windows["doc"].to_numpy(), wanted)))
    windows = {(row["doc"], row["part"]): row for row in mine.to_pylist()}
    return rows(found.runs, found.short), rows(found.masked), windows


def _covered(rows: Sequence[Row]) -> int:
    """Units of the part in any span."""
    total = reach = 0
    for start, length, *_ in sorted(rows):
        total += max(0, start + length - max(start, reach))
        reach = max(reach, start + length)
    return total


def _why(cls: Class, best: _Hold | None) -> str:
    if best is None:
        return WHAT[cls]
    beside = f", {best.distance:,} units apart" if best.distance is not None else ""
    return f"{WHAT[cls]}{beside}"
