"""
Where the time of reading goes: CPU milliseconds for a megabyte of text, one thread, best of three.

    python bench/reading.py FILE.jsonl.zst ...

Each file is expanded into memory first.  `fast` and `exact` are the two paths, on the same blocks, and what they gave
is compared; `settle` is everything from texts to columns, of which the normal form and its hash are shown; `write` is
Parquet with zstd at the level that reading uses, and at level 3.
"""

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import numpy as np
import pyarrow as pa

from datapipe import manifest as manifests
from datapipe import tables, text
from datapipe.read import jsonl, part
from datapipe.read.fields import Rows
from datapipe.read.files import kind
from datapipe.read.settle import settle
from datapipe.read.spec import Spec, spec
from datapipe.read.streams import Block, Expanded, Place, blocks

BYTES = 64_000_000  # of each file, repeated or cut to this
RUNS = 3
T = TypeVar("T")


def best(work: Callable[[], T]) -> tuple[float, T]:
    """Least CPU seconds of some runs, and what the first one gave."""
    seconds: list[float] = []
    found: list[T] = []
    for _ in range(RUNS):
        start = time.process_time()
        given = work()
        seconds.append(time.process_time() - start)
        found = found or [given]
    return min(seconds), found[0]


def cut(path: Path) -> list[Block]:
    """BYTES of a file as blocks of whole lines."""
    data = b"".join(Expanded(path, kind(path.name, "auto")[1], 10**11))
    data = data * (BYTES // max(1, len(data)) + 1)
    return list(blocks(iter([data[: data.rfind(b"\n", 0, BYTES) + 1]]), Place(0, 1)))


def agree(fast: Rows, exact: Rows) -> bool:
    return fast.text.equals(exact.text) and fast.mapped == exact.mapped and fast.refused == exact.refused


def write(folder: Path, settled: list[pa.Table], **options) -> None:
    with tables.writer(folder / "documents.parquet", tables.DOCUMENTS, **options) as out:
        for table in settled:
            out.write_table(table, row_group_size=len(table))


def measure(path: Path, how: Spec, folder: Path) -> None:
    """Print the table of one file."""
    found = cut(path)
    size = sum(len(block.data) for block in found)
    spent: dict[str, float] = {}
    spent["cut into blocks"], _ = best(lambda: list(blocks(iter([block.data for block in found]), Place(0, 1))))
    spent["fast"], fast = best(lambda: [jsonl.fast(block, how.names) for block in found])
    spent["exact"], exact = best(lambda: [jsonl.exact(block, how.names) for block in found])
    same = [one is None or agree(one, other) for one, other in zip(fast, exact, strict=True)]
    rows = [other if one is None else one for one, other in zip(fast, exact, strict=True)]
    spent["normal form and hash"], _ = best(lambda: [text.text_hashes(one.text) for one in rows])
    spent["settle"], done = best(lambda: [settle(how, one, np.zeros(len(one), np.int32), [path.name]) for one in rows])
    tables_ = [one.documents.combine_chunks() for one in done]
    spent["write"], _ = best(lambda: write(folder, tables_, **part.TEXT))
    spent["write, level 3"], _ = best(lambda: write(folder, tables_))
    megabytes = sum(one.text.nbytes for one in rows) / 1e6
    taken = sum(one is not None for one in fast)
    print(f"{path.name}: {size / 1e6:.0f} MB, {megabytes:.0f} MB of text, {sum(map(len, rows)):,} documents; "
          f"fast path: {taken} of {len(found)} blocks; both agree: {all(same)}")  # fmt: skip
    for name, seconds in spent.items():
        print(f"  {name:22}{seconds * 1000 / megabytes:8.2f} ms/MB{megabytes / seconds:8.0f} MB/s")
    whole = spent["cut into blocks"] + spent["fast"] + spent["settle"]
    print(f"  {'without writing':22}{whole * 1000 / megabytes:8.2f} ms/MB{megabytes / whole:8.0f} MB/s")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", type=Path)
    how = spec(manifests.parse("name: bench\nsources: {s: {files: [none.jsonl]}}\n"), "s")
    paths = parser.parse_args().files
    with tempfile.TemporaryDirectory() as folder:
        for path in paths:
            measure(path, how, Path(folder))


if __name__ == "__main__":
    main()
