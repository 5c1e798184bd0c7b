"""
Two million documents of about 150 bytes through both dedups, with little memory: seconds and peak memory.

    python bench/two_million.py [--documents 2000000] [--memory 1000000000] [--workers 2] [--seed 1]

The texts are seeded: six of ten are sentences of words drawn by Zipf's law; two fill the slots of one of 200 templates,
so that hundreds of thousands share shingles and buckets without being near duplicates; one is a copy of an earlier
text with a word or two replaced; one is an exact copy.
"""

import argparse
import resource
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np

sys.path[:0] = [str(Path(__file__).parents[1] / folder) for folder in (".", "tests")]

import builders

from datapipe import stages
from datapipe.documents import Work
from datapipe.manifest import ExactDedup, NearDedup
from datapipe.stages import bands

PIECE = 25_000
UNITS = 24  # words of a text


def made(documents: int, seed: int) -> Iterator[list[dict]]:
    """Records {id, text}, a piece at a time."""
    rng = np.random.default_rng(seed)
    words = np.array(["".join(w) for w in rng.choice(list("abcdefghiklmnoprstuvw"), (50_000, 5))], object)
    zipf = 1 / np.arange(1, len(words) + 1)
    chance = np.cumsum(zipf / zipf.sum())
    templates = rng.integers(0, len(words), (200, UNITS))
    for start in range(0, documents, PIECE):
        yield [
            {"id": str(start + i), "text": " ".join(words[row])}
            for i, row in enumerate(_texts(rng, chance, templates, min(PIECE, documents - start)))
        ]


def _texts(rng: np.random.Generator, chance: np.ndarray, templates: np.ndarray, n: int) -> np.ndarray:
    """Word numbers int64[n, UNITS]."""
    texts = np.minimum(np.searchsorted(chance, rng.random((n, UNITS))), len(chance) - 1)
    kind = rng.random(n)
    filled = np.flatnonzero((kind > 0.6) & (kind < 0.8))
    template = templates[rng.integers(0, len(templates), len(filled))]
    slots = rng.random(template.shape) < 0.12
    texts[filled] = np.where(slots, texts[filled], template)
    for row in np.flatnonzero((kind > 0.8) & (np.arange(n) > 0)).tolist():
        texts[row] = texts[rng.integers(0, row)]
        if kind[row] < 0.9:
            texts[row, rng.integers(0, UNITS, 2)] = rng.integers(0, len(chance), 2)
    return texts


def peak() -> float:
    """The most memory this process had so far, GB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1e9 if sys.platform == "darwin" else 1e6)


def run(pieces: Iterable[Sequence[dict]], memory: int, workers: int) -> None:
    """Both dedups and both tables, with the time and the peak after each."""
    with tempfile.TemporaryDirectory() as scratch, Work(Path(scratch), "b", workers=workers, memory=memory) as work:
        begun = time.perf_counter()

        def step(name: str) -> None:
            print(f"{time.perf_counter() - begun:8.1f} s  peak {peak():5.2f} GB  {name}", flush=True)

        docs = builders.from_pieces(work, pieces, row_group=PIECE, unique=True)
        step("{} documents, {} bytes stored".format(*docs.count()))
        report = docs.apply("exact_dedup", 1, stages.judge(ExactDedup(stage="exact_dedup"), docs))
        step(f"exact dedup: {report.dropped}")
        report = docs.apply("near_dedup", 2, stages.judge(NearDedup(stage="near_dedup"), docs))
        step(f"near dedup: {report.dropped} {report.notes}")
        bands.write_signatures(docs, Path(scratch) / "signatures.parquet")
        bands.write_bands(docs, Path(scratch) / "bands.parquet")
        step("signatures.parquet and bands.parquet written")


def options(description: str | None) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--memory", type=int, default=1_000_000_000)
    parser.add_argument("--workers", type=int, default=2)
    return parser


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--documents", type=int, default=2_000_000)
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    run(made(asked.documents, asked.seed), asked.memory, asked.workers)


if __name__ == "__main__":
    main()
