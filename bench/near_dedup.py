"""
Recall and precision of near dedup on real and planted text, judged by a twin that shares no code with it.

    python bench/near_dedup.py [--size 50MB]           a planted corpus, then real code and specifications
    python bench/near_dedup.py FOLDER                  a corpus of make_planted.py
    python bench/near_dedup.py code.jsonl.zst specs.jsonl.zst [--natural natural_pairs.jsonl.zst]

The twin cuts units with regular expressions over unicodedata, and hashes shingles in its own way.  Its oracle: all
pairs of documents that share a bucket of any band, and all pairs that the truth of a planted corpus names.  A pair is
*caught* if not both stay.  Beside the walk stand the walk with one remembered document a bucket, and 14 x 8 banding
whose links are closed transitively and never verified.
"""

import argparse
import dataclasses
import functools
import json
import re
import subprocess
import sys
import tempfile
import time
import unicodedata
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

sys.path[:0] = [str(Path(__file__).parents[1] / folder) for folder in (".", "tests")]

import builders

from datapipe import stages, text
from datapipe.documents import Work
from datapipe.manifest import ExactDedup, NearDedup
from datapipe.stages import bands, near_dedup

NGRAM, THRESHOLD = 5, 0.8
ALONE = (
    "\u3005\u3007\u3021-\u3029\u3038-\u303b\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U000323af"
    "\u3041-\u309f\u30a1-\u30ff\u31f0-\u31ff\uff66-\uff9d\U0001aff0-\U0001b16f"
    "\u0e00-\u0eff\u1780-\u17ff\u1000-\u109f\ua9e0-\ua9ff\uaa60-\uaa7f"
)


# --- the twin ----------------------------------------------------------------------------------------------------


@functools.cache
def unit_pattern() -> re.Pattern[str]:
    """A character that is a unit alone and the marks after it, or a run of other letters, marks and digits."""
    alone = re.compile(f"[{ALONE}]")
    kinds: dict[str, list[str]] = {"one": [], "mark": [], "rest": []}
    for code in range(0x110000):
        kind = unicodedata.category(chr(code))
        if kind[0] in "LM" or kind == "Nd" or (kind == "Nl" and alone.match(chr(code))):
            kinds["mark" if kind[0] == "M" else "one" if alone.match(chr(code)) else "rest"].append(chr(code))
    one, mark, rest = (_ranges(characters) for characters in kinds.values())
    return re.compile(f"[{one}][{mark}]*|[{rest}{mark}]+")


def _ranges(characters: Sequence[str]) -> str:
    codes = np.array([ord(c) for c in characters])
    edges = np.flatnonzero(np.diff(codes) > 1)
    starts, stops = codes[np.r_[0, edges + 1]], codes[np.r_[edges, len(codes) - 1]]
    return "".join(f"\\U{a:08x}-\\U{b:08x}" for a, b in zip(starts.tolist(), stops.tolist(), strict=True))


IGNORED = re.compile(
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f"
    "\ufeff\uffa0\ufff0-\ufff8\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)
WORDS: dict[str, int] = {}
RANDOM = np.random.default_rng(20260101)
FACTORS = RANDOM.integers(1, 1 << 63, NGRAM, dtype=np.uint64) * np.uint64(2) + np.uint64(1)


def twin_units(value: str) -> list[str]:
    if value.isascii():
        return re.findall("[0-9a-z]+", value.lower())
    folded = unicodedata.normalize("NFKC", IGNORED.sub("", unicodedata.normalize("NFKC", value)).casefold())
    return unit_pattern().findall(folded)


def twin_set(value: str, table: np.ndarray) -> np.ndarray:
    """Sorted distinct hashes of the shingles of a text."""
    numbers = [WORDS.setdefault(unit, len(WORDS)) for unit in twin_units(value)]
    if not numbers:
        return np.empty(0, np.uint64)
    words = table[np.array(numbers) % len(table)] ^ np.array(numbers, np.uint64) * FACTORS[0]
    n = min(NGRAM, len(words))
    hashes = np.zeros(len(words) - n + 1, np.uint64)
    for k in range(n):
        hashes = (hashes ^ hashes >> np.uint64(29)) * FACTORS[k] + words[k : len(words) - n + 1 + k]
    return np.unique(hashes)


def jaccard(a: np.ndarray, b: np.ndarray) -> float:
    common = len(np.intersect1d(a, b, assume_unique=True))
    return common / (len(a) + len(b) - common) if len(a) and len(b) else 0.0


class Twin:
    """True similarities of documents, by own id."""

    def __init__(self, texts: dict[str, str]):
        table = RANDOM.integers(0, 1 << 63, 1 << 16, dtype=np.uint64)
        with np.errstate(over="ignore"):
            self.sets = {name: twin_set(value, table) for name, value in texts.items()}
        self._known: dict[tuple[str, str], float] = {}

    def __call__(self, a: str, b: str) -> float:
        pair = (min(a, b), max(a, b))
        if pair not in self._known:
            small, large = sorted((len(self.sets[a]), len(self.sets[b])))
            self._known[pair] = jaccard(self.sets[a], self.sets[b]) if small * 10 >= large * 7 else 0.0
        return self._known[pair]


# --- corpora -----------------------------------------------------------------------------------------------------


def pieces(paths: Sequence[Path]) -> Iterator[list[dict]]:
    for path in paths:
        for records in builders.read_jsonl(path):
            split = "validation" if path.name.startswith("valid") else "train"
            yield [{"id": f"{path.stem}:{r['id']}", "text": r["text"], "split": split} for r in records if r["text"]]


def planted_pairs(folder: Path, names: dict[str, str]) -> set[tuple[str, str]]:
    """Pairs of own ids that a planted corpus names, whatever their similarity."""
    pairs, original, variants = set(), {}, []
    for line in (folder / "truth.jsonl").read_text("utf-8").split("\n")[:-1]:
        record = json.loads(line)
        if record["type"] == "pair":
            pairs.add((names[record["a"]], names[record["b"]]))
        elif record["type"] == "doc" and record["role"] == "original":
            original[record["cluster"]] = record["id"]
        elif record["type"] == "doc" and record["role"] == "variant":
            variants.append(record)
    return pairs | {(names[original[v["cluster"]]], names[v["id"]]) for v in variants}


def natural_pairs(file: Path, names: set[str]) -> set[tuple[str, str]]:
    """Pairs of real versions, as own ids of the documents that were read."""
    records = [record for piece in builders.read_jsonl(file) for record in piece]
    stems = {record["corpus"]: Path(record["corpus"]).stem for record in records}
    pairs = {tuple(f"{stems[record['corpus']]}:{record[end]}" for end in "ab") for record in records}
    return {(a, b) for a, b in pairs if a in names and b in names}


def bucket_pairs(path: Path, names: Sequence[str], most: int = 2000) -> set[tuple[str, str]]:
    """All pairs of own ids that share a bucket; of a bucket larger than `most`, neighbours and the first with all."""
    rows = pq.read_table(path)
    band, bucket, doc = (rows[name].to_numpy() for name in ("band", "bucket", "doc"))
    edges = np.flatnonzero((np.diff(band) != 0) | (np.diff(bucket) != 0)) + 1
    found: set[int] = set()
    for start, stop in zip([0, *edges.tolist()], [*edges.tolist(), len(doc)], strict=True):
        if 2 <= stop - start <= most:
            inside = np.sort(doc[start:stop])
            x, y = np.triu_indices(len(inside), 1)
            found.update((inside[x] * len(names) + inside[y]).tolist())
        elif stop - start > most:
            inside = np.sort(doc[start:stop])
            found.update((inside[0] * len(names) + inside[1:]).tolist())
            found.update((inside[:-1] * len(names) + inside[1:]).tolist())
    return {(names[code // len(names)], names[code % len(names)]) for code in found}


# --- runs --------------------------------------------------------------------------------------------------------


def run(paths: Sequence[Path], folder: Path, memory: int, workers: int, remember: int = 64) -> dict:
    """Exact and near dedup of a corpus: who stays, the near drops, the report; signatures and bands in `folder`."""
    with Work(folder / "store", "bench", workers=workers, memory=memory) as work:
        docs = builders.from_pieces(work, pieces(paths))
        docs.apply("exact_dedup", 1, stages.judge(ExactDedup(stage="exact_dedup"), docs))
        begun = time.perf_counter()
        with remembering(remember):
            report = docs.apply("near_dedup", 2, stages.judge(NearDedup(stage="near_dedup"), docs))
        seconds = time.perf_counter() - begun
        bands.write_bands(docs, folder / f"bands-{remember}.parquet")
        bands.write_signatures(docs, folder / f"signatures-{remember}.parquet")
        ids = builders.ids(docs)
        return {
            "report": report,
            "seconds": seconds,
            "stays": set(builders.alive(docs)),
            "near": [row for row in builders.ledger(docs) if row[1].startswith("jaccard")],
            "exact": [row for row in builders.ledger(docs) if row[1] == "same text"],
            "names": [ids[name] for name in sorted(ids)],
            "ids": ids,
            "bytes": docs.count("true")[1],
        }


class remembering:  # noqa: N801  reads as what it does: with remembering(1)
    """Let buckets remember another number of documents."""

    def __init__(self, remember: int):
        self._remember, self._rule_of = remember, near_dedup.rule_of

    def __enter__(self) -> None:
        rule_of, remember = self._rule_of, self._remember
        near_dedup.rule_of = lambda *of: dataclasses.replace(rule_of(*of), remember=remember)

    def __exit__(self, *_: object) -> None:
        near_dedup.rule_of = self._rule_of


def closure(made: dict, folder: Path) -> tuple[set[str], list[tuple[str, str]]]:
    """(who stays, dropped and kept) of 14 x 8 banding with links closed transitively and not verified."""
    table = pq.read_table(folder / "signatures-64.parquet")
    values = table["signature"].combine_chunks().flatten().to_numpy().reshape(len(table), -1)
    some = np.flatnonzero(table["n_shingles"].to_numpy() > 0)
    buckets = text.band_buckets(values[some], 14, 8)
    parent = np.arange(len(table))

    def root(x: int) -> int:
        while parent[x] != x:
            parent[x] = parent[parent[x]]
            x = parent[x]
        return x

    for band in range(14):
        order = np.argsort(buckets[:, band], kind="stable")
        same = np.flatnonzero(np.diff(buckets[order, band]) == 0)
        for x, y in zip(some[order[same]].tolist(), some[order[same + 1]].tolist(), strict=True):
            a, b = root(x), root(y)
            parent[max(a, b)] = min(a, b)
    name = [made["ids"][doc] for doc in table["doc_id"].to_pylist()]
    drops = [(name[x], name[root(x)]) for x in range(len(name)) if root(x) != x]
    return set(name) - {dropped for dropped, _ in drops}, drops


def figures(title: str, stays: set[str], drops: Sequence[tuple[str, str]], true: Sequence, twin: Twin) -> None:
    below = [pair for pair in drops if twin(*pair) < THRESHOLD]
    line = f"{title:34} dropped {len(drops):6}  of these below {THRESHOLD}: {len(below):5} "
    for least in (0.8, 0.85, 0.9):
        pairs = [pair for pair, similarity in true if similarity >= least]
        caught = sum(not (a in stays and b in stays) for a, b in pairs)
        line += f"  recall >= {least}: {caught / max(1, len(pairs)):.5f} of {len(pairs)}"
    print(line)


def compare(paths: Sequence[Path], folder: Path | None, natural: Path | None, memory: int, workers: int) -> None:
    """Print the figures of one corpus; `folder` holds the truth of a planted one, `natural` pairs of real versions."""
    with tempfile.TemporaryDirectory() as scratch:
        made = run(paths, Path(scratch), memory, workers)
        print(f"{len(made['names'])} documents, {made['bytes'] / 1e6:.1f} MB; near dedup {made['seconds']:.1f} s")
        print(made["report"].notes)
        texts = {record["id"]: record["text"] for piece in pieces(paths) for record in piece}
        twin = Twin(texts)
        pairs = bucket_pairs(Path(scratch) / "bands-64.parquet", made["names"])
        if folder:
            pairs |= planted_pairs(folder, {name.partition(":")[2]: name for name in texts})
        if natural:
            real = [(pair, twin(*pair)) for pair in natural_pairs(natural, set(texts))]
            figures("real versions, ours", made["stays"], [], real, twin)
            pairs |= {pair for pair, _ in real}
        true = [(pair, twin(*pair)) for pair in pairs]
        print(f"{len(pairs)} pairs, {sum(s >= 0.85 for _, s in true)} of 0.85 or more, by the twin")
        wrong = [row for row in made["near"] if abs(twin(row[0], row[3]["kept"]) - row[2]) > 1e-12]
        print(f"evidence that the twin computes otherwise: {len(wrong)} of {len(made['near'])} {wrong[:3] or ''}")
        copies = {row[0] for row in made["exact"]} & made["stays"]
        print(f"exact copies removed: {len(made['exact'])}, of these still there: {len(copies)}")
        figures("walk, 64 remembered (ours)", made["stays"], named(made), true, twin)
        once = run(paths, Path(scratch), memory, workers, remember=1)
        figures("walk, 1 remembered", once["stays"], named(once), true, twin)
        figures("14 x 8, closed, not verified", *closure(made, Path(scratch)), true, twin)


def named(made: dict) -> list[tuple[str, str]]:
    """(dropped, kept) of the near drops."""
    return [(row[0], row[3]["kept"]) for row in made["near"]]


def planted(shared: Path, folder: Path, *options: str) -> Path:
    """Make a planted corpus."""
    subprocess.run([sys.executable, shared / "make_planted.py", "--out", folder, *options], check=True)
    return folder


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paths", nargs="*", type=Path)
    parser.add_argument("--natural", type=Path, help="pairs of real versions in these corpora")
    parser.add_argument("--size", default="50MB", help="of the planted corpus that is made where no path is given")
    parser.add_argument("--memory", type=int, default=1_000_000_000)
    parser.add_argument("--workers", type=int, default=1)
    asked = parser.parse_args()
    how = (asked.memory, asked.workers)
    if asked.paths and not asked.paths[0].is_dir():
        compare(asked.paths, None, asked.natural, *how)
        return
    shared = Path(__file__).resolve().parents[2] / "shared" / "data"
    with tempfile.TemporaryDirectory() as scratch:
        folder = asked.paths[0] if asked.paths else planted(shared, Path(scratch) / "planted", "--size", asked.size)
        compare(sorted(folder.glob("*-*.jsonl")), folder, None, *how)
    if not asked.paths:
        real = [shared / "corpus" / f"{name}.jsonl.zst" for name in ("code", "specs")]
        compare(real, None, shared / "natural_pairs.jsonl.zst", *how)


if __name__ == "__main__":
    main()
