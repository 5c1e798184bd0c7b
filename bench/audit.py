"""
The scan of the audit: MB/s against all eval sets at once, memory, and others in the same run.

    python bench/audit.py --data FOLDER --evals FOLDER [--peer PYTHON | --env FOLDER] [--size 20000000]

--data holds books, specs, debian_docs, code, chinese, manpages and web as NAME.jsonl.zst with `text` (and `lang`);
--evals holds eval sets, as `datapipe audit --eval` takes them. Ours is all of the scan, both stages, on one thread:
from decoded Arrow text, from plain JSON lines and from the compressed file. Beside it a Python set of 13-grams of
words, built here, and datatrove's 12-gram filter, each with its own n-grams of the same parts, on the first megabyte of
each kind with --planted parts put into every tenth document. CPU seconds, best of nine; beside the others best of five,
the set of three, and datatrove, which takes minutes, once. Documents that hit are compared: ours with a proved
run of as many units, and those that only the other side has are counted, with how many of these have a run of our own
n. datatrove takes all numbers for equal, so rows of numbers hit there and not here.
Memory is that of a process of its own: eval sets read, index built, the same texts scanned from compressed files on two
threads (those of --data may ask for large windows, which are no part of the scan).
"""

import argparse
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from filter_parity import ROOT, environment, peer_answers
from signatures import ENGLISH, KINDS, best, texts_of

PART, LONGEST = 1_000_000, 20_000  # bytes of a kind for the others, characters of a text of these
RUNS = 9  # of which the best counts: a machine that others share is seldom quiet for all of three
OURS, PYTHON_N, PEER_N = (8, 12), 13, 12


# --- datatrove's side: this file run by the other Python ---------------------------------------------------------


def peer() -> None:
    """Reads {parts, n} and texts as JSON lines; writes the CPU seconds, and whether each text hits."""
    import numpy as np
    from datatrove.data import Document  # pyright: ignore[reportMissingImports]
    from datatrove.pipeline.decont.n_grams import (  # pyright: ignore[reportMissingImports]
        NGramsDecontConfig,
        NGramsDecontFilter,
    )
    from datatrove.utils.text import ngrams, simplify_text  # pyright: ignore[reportMissingImports]

    setup, *texts = map(json.loads, sys.stdin)
    config = NGramsDecontConfig(n_grams=setup["n"])
    with tempfile.TemporaryDirectory() as folder:
        chosen = NGramsDecontFilter(folder, config)
        hashes: set[int] = set()
        for part in setup["parts"]:
            tokens = chosen.tokenizer.word_tokenize(simplify_text(part, config.norm_config))
            hashes.update(chosen.hash_func(" ".join(gram)) for gram in ngrams(tokens, config.n_grams))
        array = np.array(list(hashes), config.hash_config.np_descr)
        array.tofile(Path(folder) / "parts.index.hashes")
        chosen.load_index_hashes()

        def run() -> list[bool]:
            return [chosen.filter(Document(text=text, id="")) is not True for text in texts]

        seconds = best(run, 1)
        print(json.dumps([seconds, len(hashes)]))
        for hit in run():
            print(json.dumps(hit))


# --- a set of n-grams in Python ----------------------------------------------------------------------------------

WORD = re.compile(r"\w+")


def grams(text: str, n: int) -> Iterator[str]:
    words = WORD.findall(text.lower())
    return (" ".join(words[i : i + n]) for i in range(len(words) - n + 1))


# --- our side ----------------------------------------------------------------------------------------------------


def rss() -> float:
    """Peak megabytes of this process; getrusage would count what its parent had when it began."""
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) / 1024


def read(path: Path, size: int) -> Iterator[Any]:
    """Texts of a file of JSON lines, block by block, up to `size` bytes of them."""
    from datapipe import manifest as manifests
    from datapipe.read import jsonl
    from datapipe.read.files import kind
    from datapipe.read.spec import spec
    from datapipe.read.streams import Expanded, Place, blocks

    how = spec(manifests.parse("name: bench\nsources: {s: {files: [none.jsonl]}}\n"), "s")
    stream = Expanded(path, kind(path.name, "auto")[1], 10**11)
    total = 0
    for block in blocks(iter(stream), Place(0, 1)):
        texts = jsonl.rows(block, how.names).text
        total += texts.nbytes
        yield texts
        if total >= size:
            return
        del block, texts


def scanned(index: Any, batches: Iterable[Any]) -> int:
    """Bytes of text of all batches, scanned."""
    import numpy as np

    from datapipe.contamination.scan import scan

    size = at = 0
    for texts in batches:
        found = scan(index, texts, np.arange(at, at + len(texts), dtype=np.int64))
        size += sum(found.seen["bytes"].to_pylist())
        at += len(texts)
        del texts, found
    return size


def longest(index: Any, texts: Sequence[str]) -> list[int]:
    """Units of the longest proved run in each text."""
    import numpy as np
    import pyarrow as pa

    from datapipe.contamination.scan import scan

    runs = scan(index, pa.array(texts, pa.large_string()), np.arange(len(texts)), second=False).runs
    found = [0] * len(texts)
    for doc, length in zip(runs["doc"].to_pylist(), runs["length"].to_pylist(), strict=True):
        found[doc] = max(found[doc], length)
    return found


def compared(ours: Sequence[int], theirs: Sequence[bool], least: int) -> str:
    """Documents that both have with at least so many units, that one has alone; of theirs, with our own n."""
    both = sum(a >= least and b for a, b in zip(ours, theirs, strict=True))
    alone = sum(a >= least and not b for a, b in zip(ours, theirs, strict=True))
    missed = [a for a, b in zip(ours, theirs, strict=True) if b and a < least]
    shorter = sum(a > 0 for a in missed)
    return f"{both} both, {alone} ours alone, {len(missed)} theirs alone ({shorter} with a shorter run)"


def memory(data: Path, evals: Sequence[str]) -> None:
    """Of a fresh process on two threads: prints its peak megabytes step by step, as JSON."""
    from concurrent.futures import ThreadPoolExecutor

    import numpy as np

    from datapipe.contamination import suites
    from datapipe.contamination.index import Index
    from datapipe.contamination.scan import scan

    start, suite = rss(), suites.load(evals)
    parts = suite.parts
    del suite
    loaded, index = rss(), Index.build(parts)
    built = rss()

    def one(kind: str) -> None:
        at = 0
        for texts in read(data / f"{kind}.jsonl.zst", 10**12):
            scan(index, texts, np.arange(at, at + len(texts)))
            at += len(texts)
            del texts

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(one, KINDS))
    print(json.dumps({"start": start, "loaded": loaded, "built": built, "scanned": rss()}))


def speeds(index: Any, data: Path, size: int, folder: Path) -> dict[str, list[float]]:
    """Prints a line for each kind of text; gives MB/s from Arrow, JSON lines and zstd.  Leaves its files in folder."""
    import pyarrow as pa

    found: dict[str, list[float]] = {}
    print(f"{'kind':12} {'MB':>5} {'documents':>9} {'Arrow':>6} {'JSONL':>6} {'jsonl.zst':>9}   MB/s of text")
    for kind in KINDS:
        texts = texts_of(data / f"{kind}.jsonl.zst", size, "en" if kind == "debian_docs" else None)
        array = pa.array(texts, pa.large_string())
        total = scanned(index, [array]) / 1e6
        cells = [total / best(lambda array=array: scanned(index, [array]), RUNS)]
        plain, packed = folder / f"{kind}.jsonl", folder / f"{kind}.jsonl.zst"
        lines = b"".join(json.dumps({"text": text}, ensure_ascii=False).encode() + b"\n" for text in texts)
        plain.write_bytes(lines)
        packed.write_bytes(pa.compress(lines, "zstd", asbytes=True))
        for path in (plain, packed):
            seconds = best(lambda path=path: scanned(index, read(path, 10**12)), RUNS)
            cells.append(total / seconds)
        found[kind] = cells
        print(f"{kind:12} {total:5.1f} {len(texts):9} {cells[0]:6.0f} {cells[1]:6.0f} {cells[2]:9.0f}", flush=True)
    return found


def beside(parts: Any, python: str, data: Path, planted: int) -> None:
    """Prints ours, the Python set and datatrove on the same megabyte against the same parts."""
    import numpy as np
    import pyarrow as pa

    from datapipe.contamination.index import Index

    long = [text for text in parts["text"].to_pylist() if 20 <= len(text.split()) <= 200]
    some = long[:: max(1, len(long) // planted)][:planted]
    table = pa.table(
        [
            np.arange(len(some), dtype=np.int32), np.arange(len(some), dtype=np.int32),
            pa.array(["prompt"] * len(some)), np.zeros(len(some), np.int32), pa.nulls(len(some), pa.bool_()),
            pa.array(some, pa.large_string()),
        ],
        parts.schema,
    )  # fmt: skip
    index = Index.build(table)
    held = {gram for text in some for gram in grams(text, PYTHON_N)}
    print(f"\n{len(some)} parts; MB/s, and documents that hit: ours with {PYTHON_N} and {PEER_N} units")
    print(f"{'kind':12} {'ours':>6} {'set':>6} {'ratio':>6} {'datatrove':>9} {'ratio':>6}")
    for kind in KINDS:
        whole = texts_of(data / f"{kind}.jsonl.zst", PART, None)
        texts = [text[at : at + LONGEST] for text in whole for at in range(0, len(text), LONGEST)]
        for i in range(0, len(texts), 10):
            texts[i] += "\n" + some[i % len(some)]
        size, array = sum(len(text.encode()) for text in texts) / 1e6, pa.array(texts, pa.large_string())
        ours = best(lambda array=array: scanned(index, [array]), 5)
        simple = best(lambda texts=texts: [any(gram in held for gram in grams(text, PYTHON_N)) for text in texts])
        found = [any(gram in held for gram in grams(text, PYTHON_N)) for text in texts]
        (seconds, _), *theirs = peer_answers(python, __file__, {"parts": some, "n": PEER_N}, texts)
        runs = longest(index, texts)
        print(
            f"{kind:12} {size / ours:6.0f} {size / simple:6.2f} {simple / ours:6.0f} {size / seconds:9.2f} "
            f"{seconds / ours:6.0f}\n    of {len(texts)} documents the set: {compared(runs, found, PYTHON_N)}\n"
            f"    datatrove: {compared(runs, theirs, PEER_N)}",
            flush=True,
        )


def goals(found: dict[str, list[float]], peak: float, allowed: float) -> None:
    """Prints what is asked for, and whether it holds."""
    print()
    for column, (name, least) in enumerate((("Arrow", 150), ("JSON lines", 100), ("jsonl.zst", 80))):
        below = [f"{kind} {cells[column]:.0f}" for kind, cells in found.items() if cells[column] < least]
        print(f"{name}: {least} MB/s or more: {'all but ' + ', '.join(below) if below else 'all kinds'}")
    english = max(found[kind][0] for kind in ENGLISH)
    lowest = min(found[kind][0] for kind in ENGLISH)
    chinese = found["chinese"][0]
    print(
        f"Chinese: {chinese / english:.2f} of the fastest English, {chinese / lowest:.2f} of the slowest; half or more"
    )
    print(f"memory: {peak:.0f} MB of {allowed:.0f} allowed")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=ROOT.parent / "shared" / "data" / "corpus")
    parser.add_argument("--evals", type=Path, default=ROOT.parent / "shared" / "data" / "evals")
    parser.add_argument("--size", type=int, default=20_000_000, help="bytes of each kind for our own speed")
    parser.add_argument("--planted", type=int, default=300, help="parts that the others are given")
    parser.add_argument("--peer", help="a Python that has datatrove")
    parser.add_argument("--env", type=Path, help="folder of datatrove's environment, made where it is missing")
    parser.add_argument("--as-peer", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--as-fresh", action="store_true", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.as_peer:
        peer()
        return
    files = sorted(map(str, asked.evals.rglob("normalized.jsonl.zst"))) or [str(asked.evals)]
    if asked.as_fresh:
        from datapipe.cli import lean

        lean()  # as a command does it
        from datapipe.memory import steady

        steady()
        memory(asked.data, files)
        return
    from datapipe.contamination import suites
    from datapipe.contamination.index import Index

    parts = suites.load(files).parts
    Index.build(parts.slice(0, 100).combine_chunks())  # the kernels are loaded
    built = []
    seconds = best(lambda: built.append(Index.build(parts)), 1)
    index = built[0]
    places = int((index.lengths[index.firsts].astype("int64") - index.sizes[index.firsts] + 1).clip(1).sum())
    allowed = 400 + 40 * places / 1e6
    print(
        f"{len(files)} eval files, {len(parts):,} parts, {places:,} n-grams, {index.n_grams:,} distinct; built in "
        f"{seconds:.1f} s"
    )
    with tempfile.TemporaryDirectory() as folder:
        found = speeds(index, asked.data, asked.size, Path(folder))
        command = [sys.executable, __file__, "--as-fresh", "--data", folder, "--evals", str(asked.evals)]
        peaks = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    steps = ", ".join(f"{name} {size:.0f}" for name, size in peaks.items())
    print(f"\npeak memory of a fresh process, MB: {steps}; allowed {allowed:.0f}", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        beside(parts, asked.peer or environment(asked.env or Path(folder)), asked.data, asked.planted)
    goals(found, peaks["scanned"], allowed)


if __name__ == "__main__":
    main()
