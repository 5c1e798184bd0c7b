"""
Token ids from chunks against the library's encode_batch_fast: same tokenizer, same texts, one thread each.

    python bench/tokenizing.py FILE.jsonl.zst ... [--megabytes 16]

Trains a byte-level BPE of 8192 entries on the first 2 MB of each file, encodes each file both ways (best of three,
CPU seconds, the table of chunks empty at the start of each run), compares the ids, and prints MB/s and their ratio.
"""

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa

from datapipe import tokens
from datapipe.manifest import TokenizerFile

ROUNDS = 3


def texts(path: Path, limit: int) -> list[str]:
    """Texts of a JSONL file until they have `limit` bytes."""
    found, held = [], 0
    with pa.input_stream(str(path), compression="zstd" if path.suffix == ".zst" else None) as file:
        for line in file.read().splitlines():
            text = json.loads(line).get("text")
            if text:
                found.append(text)
                held += len(text.encode())
            if held >= limit:
                break
    return found


def best(run: Callable[[], tuple[np.ndarray, np.ndarray]]) -> tuple[float, tuple[np.ndarray, np.ndarray]]:
    """CPU seconds of the fastest run, and what it gave."""
    seconds, found = [], (np.empty(0), np.empty(0))
    for _ in range(ROUNDS):
        start = time.process_time()
        found = run()
        seconds.append(time.process_time() - start)
    return min(seconds), found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--megabytes", type=int, default=16)
    asked = parser.parse_args()
    data = tokens.train((text for path in asked.files for text in texts(path, 2_000_000)), 8192, ["<|endoftext|>"])
    control = TokenizerFile(file="trained", eos="<|endoftext|>")
    tokens.load(data, control, "trained").encode(["compile the kernels first; it's no part of the race"])
    print(f"{'file':24} {'MB':>6} {'chunks':>8} {'library':>8} {'ratio':>6}")
    for path in asked.files:
        chosen = texts(path, asked.megabytes * 1_000_000)
        size = sum(len(text.encode()) for text in chosen) / 1e6
        ours, found = best(lambda chosen=chosen: tokens.load(data, control, "trained").encode(chosen))
        library, plain = best(lambda chosen=chosen: tokens.load(data, control, "trained").encoder.plain(chosen))
        assert all(np.array_equal(a, b) for a, b in zip(found, plain, strict=True)), path
        print(f"{path.name:24} {size:6.1f} {size / ours:8.1f} {size / library:8.1f} {library / ours:6.1f}")


if __name__ == "__main__":
    main()
