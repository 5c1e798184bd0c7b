"""
Recall and precision of the audit on a corpus with planted eval items, beside what its own controls say.

    python bench/audit_planted.py FOLDER --evals FILES [--out DIR] [--show 20]

FOLDER is made by make_planted.py with --eval-rate 300 or more: train-*.jsonl and truth.jsonl, which names each planted
item, its document, mode and the script of the document it was put in.  FILES are the eval sets the items come from,
with the ids that the truth names.  --out keeps the audit's own report and tables; where it has them they are read.

A planted item is *found* where it flags in its document, a number variant ("near miss") where its class there is
variant; one whose question was planted as it is, and only passage or answer with other numbers, where it flags.  What
flags in a document and was not planted in it is a false alarm, but for twins that the truth names, and *editions*:
items that share half of the rare 5-unit shingles of a text of theirs (at least 4, each in at most 5 texts of all sets)
with what was planted, for the sets hold the same item in other words, and pieces of one text.  They are counted apart.
Intervals are Wilson's, 95 %.  Required: a lower end of 0.97 for the forms of REQUIRED, by form and by script.
"""

import argparse
import dataclasses
import json
import re
import sys
import tempfile
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

sys.path.insert(0, str(Path(__file__).parents[1]))

from datapipe import api
from datapipe.auditing.report import FLAGGED, from_json
from datapipe.auditing.statistics import wilson
from datapipe.contamination.model import Suites
from datapipe.contamination.suites import load

REQUIRED = (
    "verbatim", "rewrapped", "quoted", "punct", "case", "nfd", "fullwidth", "digits_fullwidth", "html_escape",
    "embedded",
)  # fmt: skip
LEAST = 0.97
VARIANT, ANSWERS = "near_miss_numbers", "near_miss_beside"
RARE, SHINGLE, FEWEST = 5, 5, 4
UNIT = re.compile(
    "[\u3005\u3007\u3041-\u309f\u30a1-\u30ff\u3400-\u4dbf\u4e00-\u9fff\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff]"
    "|[^\\W_\u3005\u3007\u3041-\u309f\u30a1-\u30ff\u3400-\u4dbf\u4e00-\u9fff\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff]+"
)
# the control whose copies are made alike
ALIKE = {
    "verbatim": "verbatim", "rewrapped": "wrapped", "embedded": "inline", "prompt_only": "prompt only",
    "answer_only": "answer only", "far_apart": "template", VARIANT: "numbers",
}  # fmt: skip


@dataclass
class Cell:
    """Of a mode and a script: items planted, found, and pairs that flagged falsely; class -> items."""

    planted: int = 0
    found: int = 0
    false: int = 0
    editions: int = 0
    classes: Counter[str] = field(default_factory=Counter[str])

    def add(self, other: "Cell") -> None:
        self.planted += other.planted
        self.found += other.found
        self.false += other.false
        self.editions += other.editions
        self.classes += other.classes

    @property
    def recall(self) -> tuple[float, float]:
        return wilson(self.found, self.planted)

    @property
    def precision(self) -> tuple[float, float]:
        return wilson(self.found, self.found + self.false)


@dataclass(frozen=True)
class Odd:
    """A miss or a false alarm."""

    what: str
    mode: str
    host: str
    example: str
    document: str
    cls: str


Flags = dict[tuple[str, str], str]  # (example, document) -> class


def truth_of(folder: Path) -> Iterator[dict[str, Any]]:
    with (folder / "truth.jsonl").open(encoding="utf-8") as lines:
        for line in lines:
            record = json.loads(line)
            if record["type"] in ("eval", "near_miss"):
                yield record


class Editions:
    """Which items share their rare shingles with another: cut and hashed without the project's code."""

    def __init__(self, texts: Iterable[tuple[str, str]]):
        """texts: (item, text), each part of each item."""
        self.of: dict[str, list[frozenset[int]]] = defaultdict(list)
        times: Counter[int] = Counter()
        for item, text in texts:
            shingles = self.shingles(text)
            if shingles not in self.of[item]:
                self.of[item].append(shingles)
                times.update(shingles)
        self.common = {shingle for shingle, count in times.items() if count > RARE}

    @staticmethod
    def shingles(text: str) -> frozenset[int]:
        units = units_of(text)
        return frozenset(hash(tuple(units[at : at + SHINGLE])) for at in range(len(units) - SHINGLE + 1))

    def akin(self, item: str, planted: str) -> bool:
        there = frozenset[int]().union(*self.of[planted])
        return any(
            len(rare & there) >= max(FEWEST, len(rare) / 2) for rare in (own - self.common for own in self.of[item])
        )


def asked_in(
    folder: Path, records: Iterable[dict[str, Any]], ids: Iterable[str], suites: Suites
) -> set[tuple[str, str]]:
    """(item, document) of the near misses whose question has the same units there."""
    wanted = {record["doc"]: record for record in records if record["mode"] == VARIANT}
    rows = {name: row for row, name in enumerate(ids)}
    out: set[tuple[str, str]] = set()
    for path in sorted(folder.glob("train-*.jsonl")):
        with path.open(encoding="utf-8") as lines:
            for document in map(json.loads, lines):
                if (record := wanted.get(document["id"])) is None:
                    continue
                there = {
                    tuple(units_of(document["text"][start:end]))
                    for part, start, end, _ in record["spans"] if part == "question"
                }  # fmt: skip
                own = suites.parts_of(rows[record["eval_id"]]).to_pylist()
                if any(row["kind"] == "prompt" and tuple(units_of(row["text"])) in there for row in own):
                    out.add((record["eval_id"], record["doc"]))
    return out


def units_of(text: str) -> list[str]:
    return UNIT.findall(unicodedata.normalize("NFKC", text).casefold())


def compare(
    records: Iterable[dict[str, Any]], flags: Flags, editions: Editions, asked: Callable[[dict[str, Any]], bool]
) -> tuple[dict[tuple[str, str], Cell], list[Odd]]:
    """
    Cells by (mode, host), false alarms in documents without a planted item as ("none", "none"); what is odd.
    asked: whether the question of a near miss stands in its document as it is.
    """
    cells: dict[tuple[str, str], Cell] = defaultdict(Cell)
    odd: list[Odd] = []
    expected: dict[str, set[str]] = defaultdict(set)
    kind: dict[str, tuple[str, str, str]] = {}
    for record in records:
        example, document, mode, host = (record[name] for name in ("eval_id", "doc", "mode", "host"))
        if mode == VARIANT and asked(record):
            mode = ANSWERS
        cell = cells[mode, host]
        cls = flags.get((example, document), "clean")
        right = cls == "variant" if mode == VARIANT else cls in FLAGGED
        cell.planted += 1
        cell.found += right
        cell.classes[cls] += 1
        if not right:
            odd.append(Odd("missed", mode, host, example, document, cls))
            if mode == VARIANT and cls in FLAGGED:
                cell.false += 1
        expected[document] |= {example, *(twin for twins in record["twins"].values() for twin in twins)}
        kind[document] = mode, host, example
    for (example, document), cls in flags.items():
        if cls in FLAGGED and example not in expected[document]:
            mode, host, planted = kind.get(document, ("none", "none", None))
            if planted and editions.akin(example, planted):
                cells[mode, host].editions += 1
                continue
            cells[mode, host].false += 1
            odd.append(Odd("false", mode, host, example, document, cls))
    return cells, odd


def audited(folder: Path, evals: Sequence[str], out: Path) -> tuple[Flags, Any]:
    if not (out / "report.json").exists():
        api.audit(evals, train=[str(path) for path in sorted(folder.glob("train-*.jsonl"))], out=out)
    ids: dict[tuple[str, int], str] = {}
    for path in sorted(folder.glob("train-*.jsonl")):
        with path.open(encoding="utf-8") as lines:
            ids |= {(path.name, number): json.loads(line)["id"] for number, line in enumerate(lines, start=1)}
    table = pq.read_table(out / "evidence.parquet", columns=["role", "id", "path", "line", "class"])
    rows = zip(*(table[name].to_pylist() for name in table.column_names), strict=True)
    flags = {(example, ids[Path(path).name, line]): cls for role, example, path, line, cls in rows if role == "train"}
    return flags, from_json((out / "report.json").read_text(encoding="utf-8"))


# --- tables ------------------------------------------------------------------------------------------------------


def _line(name: str, cell: Cell) -> str:
    def share(found: int, of: int, low: float) -> str:
        return f"{found:5d}/{of:<5d} >= {low:.3f}" if of else " " * 20

    classes = ", ".join(f"{cls} {count}" for cls, count in cell.classes.most_common())
    precision = share(cell.found, cell.found + cell.false, cell.precision[0])
    return f"{name:24s} {share(cell.found, cell.planted, cell.recall[0])}   {precision}  {cell.editions:4d}   {classes}"


def report(cells: dict[tuple[str, str], Cell], odd: list[Odd], controls: dict[str, Any], show: int) -> bool:
    """Prints all; whether what is required holds."""
    hosts = sorted({host for _, host in cells})
    modes = sorted({mode for mode, _ in cells}, key=lambda mode: (mode not in REQUIRED, mode))
    whole: dict[str, Cell] = {}
    print(f"{'':24s} recall                 precision              editions  classes")
    for mode in modes:
        whole[mode] = Cell()
        for host in hosts:
            if (mode, host) in cells:
                whole[mode].add(cells[mode, host])
        print(_line(mode, whole[mode]))
        for host in hosts if mode != "none" else ():
            print(_line(f"    {host}", cells.get((mode, host), Cell())))
        if (form := controls.get(ALIKE.get(mode, ""))) is not None:
            print(f"    the audit's control {form.form!r}: {form.recall.found}/{form.recall.of}"
                  f" [{form.recall.low:.3f}, {form.recall.high:.3f}]")  # fmt: skip
    holds = True
    print()
    for name, chosen in [
        *((mode, [(mode, host) for host in hosts]) for mode in REQUIRED),
        *((f"all of these, {host}", [(mode, host) for mode in REQUIRED]) for host in hosts if host != "none"),
    ]:
        cell = Cell()
        for key in chosen:
            cell.add(cells.get(key, Cell()))
        good = not cell.planted or min(cell.recall[0], cell.precision[0]) >= LEAST
        holds &= good
        print(_line(name, dataclasses.replace(cell, classes=Counter())), "" if good else f"  BELOW {LEAST}")
    for one in [one for one in odd if one.mode != "short"][:show]:
        print(f"{one.what:7s} {one.mode:18s} {one.host:6s} {one.cls:9s} {one.example}  in {one.document}")
    return holds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--evals", nargs="+", required=True)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--show", type=int, default=20, help="misses and false alarms named")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        flags, made = audited(args.folder, args.evals, args.out or Path(temporary) / "out")
    suites = load(args.evals)
    ids = suites.examples["id"].to_pylist()
    parts = zip(suites.parts["example"].to_pylist(), suites.parts["text"].to_pylist(), strict=True)
    editions = Editions((ids[example], text) for example, text in parts)
    same = asked_in(args.folder, truth_of(args.folder), ids, suites)
    cells, odd = compare(
        truth_of(args.folder), flags, editions, lambda record: (record["eval_id"], record["doc"]) in same
    )
    controls = {form.form: form for form in made.controls.forms}
    sys.exit(0 if report(cells, odd, controls, args.show) else 1)


if __name__ == "__main__":
    main()
