"""
MinHash signatures from raw text: ours against the first MinHash step of datatrove, on the same documents.

    python bench/signatures.py --data FOLDER [--peer PYTHON]

FOLDER holds books, specs, debian_docs, code, chinese, manpages and web as NAME.jsonl.zst with `text` (and `lang`).
datatrove wants other versions of our libraries, so it gets an environment of its own, made in a temporary folder
(see REQUIREMENTS) unless --peer names a Python that has it.  Both sides take 5-grams
and 128 hashes a document, on one thread; CPU seconds, best of three.  datatrove is measured on the first megabyte of
each kind, as it would take minutes otherwise, and so is the ratio; our own speed on up to --size of it.
"""

import argparse
import io
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[variable] = "1"  # read when the libraries are loaded: one thread for both sides

KINDS = ["books", "specs", "debian_docs", "code", "chinese", "manpages", "web"]
ENGLISH = ["books", "specs", "debian_docs"]
NGRAM, BUCKETS, ROWS = 5, 16, 8
REQUIREMENTS = ["datatrove[processing]==0.10.1", "spacy<4", "orjson", "xxhash<4"]


def best(run: Callable[[], object], times: int = 3) -> float:
    """CPU seconds of the fastest of several runs."""
    seconds = []
    for _ in range(times):
        start = time.process_time()
        run()
        seconds.append(time.process_time() - start)
    return min(seconds)


# --- datatrove's side: this file run by the other Python ---------------------------------------------------------


def peer(path: str) -> None:
    """CPU seconds of datatrove for the texts of a JSON file, on stdout."""
    from datatrove.data import Document  # pyright: ignore[reportMissingImports]
    from datatrove.pipeline.dedup import MinhashDedupSignature  # pyright: ignore[reportMissingImports]
    from datatrove.pipeline.dedup.minhash import MinhashConfig  # pyright: ignore[reportMissingImports]
    from datatrove.utils.hashing import HashConfig  # pyright: ignore[reportMissingImports]

    texts = json.loads(Path(path).read_text())
    config = MinhashConfig(
        n_grams=NGRAM, num_buckets=BUCKETS, hashes_per_bucket=ROWS, hash_config=HashConfig(hash_fc="xxhash")
    )

    def sign(some: list[str]) -> None:
        documents = [Document(text=text, id=str(i)) for i, text in enumerate(some)]
        with tempfile.TemporaryDirectory() as folder:
            MinhashDedupSignature(output_folder=folder, config=config).run(iter(documents))

    sign(["the first call loads a tokenizer and compiles, which is not to be counted"])
    print(json.dumps(best(lambda: sign(texts))))


def peer_seconds(python: str, texts: list[str]) -> float:
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump(texts, file)
        file.flush()
        command = [python, __file__, "--as-peer", file.name]
        done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"datatrove failed:\n{done.stderr}")
    return json.loads(done.stdout.splitlines()[-1])


def peer_python(folder: str) -> str:
    """A Python with datatrove, in an environment made for it."""
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    python = str(Path(folder) / "bin" / "python")
    subprocess.run([python, "-m", "pip", "install", "--quiet", *REQUIREMENTS], check=True)
    return python


# --- our side ----------------------------------------------------------------------------------------------------


def texts_of(path: Path, size: int, lang: str | None) -> list[str]:
    """Texts of about `size` bytes from the beginning of a file."""
    found, total = [], 0
    for record in _records(path):
        if lang is not None and record.get("lang") != lang:
            continue
        found.append(record["text"])
        total += len(found[-1].encode())
        if total >= size:
            break
    return found


def _records(path: Path) -> Iterator[dict]:
    import pyarrow as pa

    with pa.input_stream(str(path)) as stream, io.TextIOWrapper(stream, "utf-8") as lines:
        yield from map(json.loads, lines)


def agree(texts: list[str]) -> int:
    """How many of the texts have the very signature datasketch makes of their shingles; it must be all."""
    import numpy as np
    import pyarrow as pa
    from datasketch import MinHash

    from datapipe import text

    array = pa.array(texts, pa.large_string())
    signatures, _ = text.signatures(array, NGRAM, BUCKETS * ROWS)
    offsets, hashes = text.shingle_sets(array, NGRAM)
    equal = 0
    for i, ours in enumerate(signatures):
        theirs = MinHash(BUCKETS * ROWS, seed=1, scheme="affine32", hashfunc=lambda value: value)
        values = hashes[offsets[i] : offsets[i + 1]].astype(np.uint32)
        if len(values):
            theirs.update_batch(values)
        equal += bool((theirs.hashvalues == ours).all())
    return equal


def measure(folder: Path, size: int, python: str) -> dict[str, float]:
    """Prints a line for each kind of text; gives our MB/s by kind."""
    import pyarrow as pa

    from datapipe import text

    speeds: dict[str, float] = {}
    print("kind            MB documents ours MB/s 1 MB: ours datatrove  ratio  equal to datasketch")
    for kind in KINDS:
        lang = "en" if kind == "debian_docs" else None
        texts, few = (texts_of(folder / f"{kind}.jsonl.zst", limit, lang) for limit in (size, 1_000_000))
        if kind == "books":
            few = [one[:100_000] for one in texts[:10]]  # whole, two books are more than a megabyte
        array, small = pa.array(texts, pa.large_string()), pa.array(few, pa.large_string())
        text.signatures(small[:1], NGRAM, BUCKETS * ROWS)
        ours = best(lambda array=array: text.signatures(array, NGRAM, BUCKETS * ROWS))
        same = best(lambda small=small: text.signatures(small, NGRAM, BUCKETS * ROWS), 9)
        theirs = peer_seconds(python, few)
        total, part = (sum(len(one.encode()) for one in some) / 1e6 for some in (texts, few))
        speeds[kind] = total / ours
        equal = agree(few[:50])
        print(
            f"{kind:12} {total:5.1f} {len(texts):9} {total / ours:9.0f} {part / same:10.0f} {part / theirs:9.2f} "
            f"{theirs / same:6.0f}  {equal} of {len(few[:50])}",
            flush=True,
        )
    return speeds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path(__file__).parents[2] / "shared" / "data" / "corpus")
    parser.add_argument("--size", type=int, default=20_000_000, help="bytes of each kind for our own speed")
    parser.add_argument("--peer", help="a Python that has datatrove")
    parser.add_argument("--as-peer", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.as_peer:
        peer(asked.as_peer)
        return
    with tempfile.TemporaryDirectory() as folder:
        speeds = measure(asked.data, asked.size, asked.peer or peer_python(folder))
    english = max(speeds[kind] for kind in ENGLISH)
    for kind in ("chinese", "manpages", "web"):
        print(f"{kind}: {speeds[kind] / english:.2f} of the fastest English")


if __name__ == "__main__":
    main()
