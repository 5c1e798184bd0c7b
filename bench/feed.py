"""
Tokens per second into a training job: our loader, mosaicml-streaming, litdata and a memory map, of the same rows.

    python bench/feed.py [--tokens 40] [--build LIST BINARY] [--env FOLDER] [--rounds 3] [--only SIDE ...]

Rows of 2,048 ids (Zipf, of 50,257; documents of about 800 tokens, packed) are built in both storages, or two builds of
the same documents are given.  Every side gives batches of 16 rows as torch tensors of int64, inputs and labels, in
shuffled order, from the page cache.  Each runs in a process of its own with one thread, the peers in environments as
those of bench/exports.py; rounds alternate the sides, the best counts.  CPU seconds are of a process and its workers;
batches/s are by the clock, from the first batch to the last.  Before it is timed each side gives all ids of an epoch,
and they must be the same multiset.

list, binary          our loader in block-v1, and with its thread one batch ahead; "all": the nine tensors of Batch
feistel               the same over `binary` in feistel-v1
mds                   StreamingDataset, uint16 uncompressed, py1e, under DataLoader
litdata               TokensLoader over uint16, under StreamingDataLoader
memmap                nanoGPT's get_batch, but each row once; labels cross documents and padding
memmap, derived       the same, with labels that end with their document, and positions

Labels of mds, litdata and memmap are the ids shifted by one; ours end with each document.
"""

import argparse
import contextlib
import hashlib
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / folder) for folder in (".", "tests", "bench")]

LENGTH, BATCH, VOCABULARY, SHARD = 2048, 64, 50_257, 2048  # SHARD: rows in one
PEERS = ("mds", "litdata")  # with ", borders": they store the lengths of segments too, and give the labels that we give
PAIR = ("input_ids", "labels")
Batches = Iterator[tuple[Any, Any]]  # of inputs and labels


# --- the sides: this file run once for each, perhaps by another Python --------------------------------------------


def ours(data: Path, order: str, output: Any) -> Callable[[int], Batches]:
    """0: no thread; -1: our thread; 1 or more: torch's workers."""
    import datapipe
    from datapipe.feed import reading
    from datapipe.feed.torch import DataLoader

    reading.KEPT_NARROW = 400_000  # as of data that are too large to keep anything from epoch to epoch
    split = datapipe.open(data).train

    def run(workers: int) -> Batches:
        from datapipe.feed.loader import Loader

        ahead = 2 if workers < 0 else 0
        loader = Loader(split, global_batch_rows=BATCH, order=order, tail="wrap", output=output, prefetch=ahead)
        for batch in DataLoader(loader, num_workers=workers) if workers > 0 else loader:
            yield batch["input_ids"], batch["labels"]

    return run


def shifted(rows: Sequence[np.ndarray]) -> tuple[Any, Any]:
    """uint16 rows -> inputs and labels."""
    import torch

    ids = torch.from_numpy(np.stack(rows).astype(np.int64))
    labels = torch.empty_like(ids)
    labels[:, :-1] = ids[:, 1:]
    labels[:, -1] = -100
    return ids, labels


def bordered(samples: Sequence[Any]) -> tuple[Any, Any]:
    """Samples with uint16 ids and seg_len -> inputs and our labels: none across a border or in padding."""
    import torch

    ids = np.stack([sample["ids"] for sample in samples]).astype(np.int64)
    ends = [np.cumsum(sample["seg_len"]) for sample in samples]
    learnt = np.arange(LENGTH) < np.array([end[-1] for end in ends])[:, None]
    learnt.reshape(-1)[np.concatenate([end - 1 + row * LENGTH for row, end in enumerate(ends)])] = False
    labels = np.full_like(ids, -100)
    np.copyto(labels[:, :-1], ids[:, 1:], where=learnt[:, :-1])
    return torch.from_numpy(ids), torch.from_numpy(labels)


def bordered_rows(data: Path) -> Iterator[dict[str, np.ndarray]]:
    """All rows with the lengths of their segments."""
    books = np.load(data / "books.npz")
    parts = np.split(books["seg_len"].astype(np.int32), books["offsets"][1:-1])
    for row, part in zip(stored(data), parts, strict=True):
        yield {"ids": row, "seg_len": part}


def mds(data: Path, *, borders: bool = False) -> Callable[[int], Batches]:
    from exports import without_torchvision

    without_torchvision()
    from streaming import MDSWriter, StreamingDataset  # pyright: ignore[reportMissingImports]
    from torch.utils.data import DataLoader

    home = data / ("mds-borders" if borders else "mds")
    if not home.exists():
        columns = {"ids": f"ndarray:uint16:{LENGTH}"} | ({"seg_len": "ndarray:int32"} if borders else {})
        with MDSWriter(out=str(home), columns=columns) as out:
            for row in bordered_rows(data) if borders else ({"ids": row} for row in stored(data)):
                out.write(row)
    rows = StreamingDataset(local=str(home), shuffle=True, batch_size=BATCH, num_canonical_nodes=1)

    def collate(samples: Sequence[Any]) -> tuple[Any, Any]:
        return shifted([sample["ids"] for sample in samples])

    form = bordered if borders else collate
    return lambda workers: iter(DataLoader(rows, batch_size=BATCH, num_workers=workers, collate_fn=form))


def litdata_borders(data: Path) -> Callable[[int], Batches]:
    from litdata import StreamingDataLoader, StreamingDataset  # pyright: ignore[reportMissingImports]
    from litdata.streaming.writer import BinaryWriter  # pyright: ignore[reportMissingImports]

    home = data / "litdata-borders"
    if not home.exists():
        home.mkdir()
        out = BinaryWriter(str(home), chunk_bytes=16 << 20)
        for number, row in enumerate(bordered_rows(data)):
            out.add_item(number, row)
        out.done()
        out.merge()
    rows = StreamingDataset(str(home), shuffle=True)
    return lambda workers: iter(StreamingDataLoader(rows, batch_size=BATCH, num_workers=workers, collate_fn=bordered))


def litdata(data: Path) -> Callable[[int], Batches]:
    from litdata import StreamingDataLoader, StreamingDataset, TokensLoader  # pyright: ignore[reportMissingImports]
    from litdata.streaming.writer import BinaryWriter  # pyright: ignore[reportMissingImports]

    if not (data / "litdata").exists():
        (data / "litdata").mkdir()
        size = 4096 * LENGTH  # tokens of a chunk: 16 MB
        out = BinaryWriter(str(data / "litdata"), chunk_size=size, item_loader=TokensLoader(LENGTH))
        for number, row in enumerate(stored(data)):
            out.add_item(number, row)
        out.done()
        out.merge()
    rows = StreamingDataset(str(data / "litdata"), item_loader=TokensLoader(LENGTH), shuffle=True)
    return lambda workers: iter(StreamingDataLoader(rows, batch_size=BATCH, num_workers=workers, collate_fn=shifted))


def memmap(data: Path, *, derive: bool = False) -> Callable[[int], Batches]:
    import torch
    from torch.utils.data import DataLoader, IterableDataset, get_worker_info

    ids = np.memmap(data / "ids.bin", np.uint16, "r")
    books = dict(np.load(data / "books.npz"))

    def batch(numbers: np.ndarray) -> tuple[Any, Any]:
        """As nanoGPT's get_batch."""
        places = numbers * LENGTH
        x = torch.stack([torch.from_numpy(ids[i : i + LENGTH].astype(np.int64)) for i in places])
        y = torch.stack([torch.from_numpy(ids[i + 1 : i + 1 + LENGTH].astype(np.int64)) for i in places])
        return x, y

    def derived(numbers: np.ndarray) -> tuple[Any, Any]:
        """The same with what a document's borders say."""
        from datapipe import rows

        places = numbers * LENGTH
        x = np.stack([ids[i : i + LENGTH].astype(np.int32) for i in places])
        parts = [books["seg_len"][books["offsets"][n] : books["offsets"][n + 1]] for n in numbers]
        offsets = np.cumsum([0, *(len(part) for part in parts)])
        sizes = np.concatenate(parts)
        y = np.full_like(x, -100)
        np.copyto(y[:, :-1], x[:, 1:], where=rows.targets(offsets, sizes, LENGTH)[:, :-1])
        filled = np.arange(LENGTH) < np.array([part.sum() for part in parts])[:, None]
        positions = np.zeros(x.shape, np.int64)
        positions[filled] = np.arange(sizes.sum()) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        torch.from_numpy(positions)
        return torch.from_numpy(x.astype(np.int64)), torch.from_numpy(y.astype(np.int64))

    class Stream(IterableDataset):
        def __iter__(self) -> Batches:
            worker = get_worker_info()
            order = np.random.default_rng(0).permutation(len(books["offsets"]) - 1)
            share = slice(worker and worker.id, None, worker and worker.num_workers)
            for first in range(0, len(order), BATCH)[share]:
                yield (derived if derive else batch)(order[first : first + BATCH])

    return lambda workers: iter(DataLoader(Stream(), batch_size=None, num_workers=workers) if workers else Stream())


def stored(data: Path) -> Iterator[np.ndarray]:
    """All rows, uint16[LENGTH]."""
    for row in np.fromfile(data / "ids.bin", np.uint16)[:-1].reshape(-1, LENGTH):
        yield row.copy()


SIDES: dict[str, Callable[[Path], Callable[[int], Batches]]] = {
    "list": lambda data: ours(data / "list", "block-v1", PAIR),
    "list, all": lambda data: ours(data / "list", "block-v1", "torch"),
    "binary": lambda data: ours(data / "binary", "block-v1", PAIR),
    "binary, all": lambda data: ours(data / "binary", "block-v1", "torch"),
    "feistel": lambda data: ours(data / "binary", "feistel-v1", PAIR),
    "mds": mds,
    "mds, borders": lambda data: mds(data, borders=True),
    "litdata": litdata,
    "litdata, borders": litdata_borders,
    "memmap": memmap,
    "memmap, derived": lambda data: memmap(data, derive=True),
}
WORKERS = {name: (0, 1, 2) if "," not in name else (0,) for name in SIDES}
WORKERS |= dict.fromkeys(("list", "binary", "feistel"), (0, -1, 1, 2))


def side(name: str, data: Path) -> None:
    """Answer the lines that come: "all" or a number of workers."""
    import torch

    torch.set_num_threads(1)
    with contextlib.suppress(ImportError):
        import pyarrow as pa

        pa.set_cpu_count(1)
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what peers print is no answer
    run = SIDES[name](data)
    for line in sys.stdin:
        print(json.dumps(everything(run) if line == "all\n" else timed(run, int(line))), file=answers, flush=True)


def everything(run: Callable[[int], Batches]) -> dict[str, Any]:
    """How often each id comes in an epoch."""
    counts, targets = np.zeros(VOCABULARY, np.int64), 0
    for ids, labels in run(0):
        assert ids.shape == labels.shape == (len(ids), LENGTH)
        assert str(ids.dtype) == str(labels.dtype) == "torch.int64"
        assert bool((labels[:, :-1][labels[:, :-1] >= 0] == ids[:, 1:][labels[:, :-1] >= 0]).all())
        counts += np.bincount(ids.numpy().reshape(-1), minlength=VOCABULARY)
        targets += int((labels >= 0).sum())
    return {"tokens": int(counts.sum()), "digest": hashlib.sha256(counts.tobytes()).hexdigest(), "targets": targets}


def timed(run: Callable[[int], Batches], workers: int) -> dict[str, float]:
    begin, first, batches, rows = cpu(), 0.0, 0, 0
    for ids, _ in run(workers):
        first = first or time.perf_counter()
        batches, rows = batches + 1, rows + len(ids)
    wall = time.perf_counter() - first
    return {"cpu": cpu() - begin, "tokens": rows * LENGTH, "pace": (batches - 1) / wall}


def cpu() -> float:
    """Seconds of this process and of its workers that have ended."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


# --- the data -----------------------------------------------------------------------------------------------------


def build(folder: Path, tokens: int) -> dict[str, Path]:
    """The same synthetic rows as a build of each storage, and as `folder`/ids.bin and books.npz."""
    import pyarrow as pa

    from datapipe import rows, shards, tables
    from datapipe.build_manifest import Record, commit

    share = 1 / np.arange(1, VOCABULARY + 1) ** 1.05
    ladder = np.cumsum(share / share.sum())
    rng = np.random.default_rng(1)
    number = -(-tokens // LENGTH // BATCH) * BATCH  # whole batches alone, so that no side drops or repeats a row
    starts = range(0, number, SHARD)
    staging = {storage: folder / f".{storage}" for storage in ("list", "binary")}
    for path in staging.values():
        (path / "train").mkdir(parents=True)
        tables.write(path / "fates.parquet", tables.FATES.empty_table())
    written: list[dict[str, Any]] = []
    for at, start in enumerate(starts):
        table = _rows(rng, ladder, start, min(SHARD, number - start))
        ids = table["input_ids"].combine_chunks().flatten().to_numpy().reshape(-1, LENGTH)
        name = f"train/shard-{at:05d}.parquet"
        for storage, path in staging.items():
            schema = tables.shard_schema(storage, LENGTH, VOCABULARY - 1)
            column = pa.chunked_array([rows.id_column(ids, schema)])
            batches = table.set_column(1, schema.field(1), column).combine_chunks().to_batches()
            tables.write_stream(path / name, schema, batches, row_group=tables.SHARD_ROW_GROUP,
                                **shards.options(schema))  # fmt: skip
        one = rows.recount(staging["list"] / name)
        written.append({"path": name, "rows": one.rows, "row_start": start, "tokens": one.stored,
                        "targets": one.targets, "content_sha256": one.content_sha256})  # fmt: skip
    found = {}
    for storage, path in staging.items():
        record = Record(
            name=storage, recipe_id="1" * 64, inputs=[], reports=[], sources=("web",), edits={},
            manifest={"name": storage, "sources": {"web": {}}, "sequences": {"length": LENGTH},
                      "shards": {"storage": storage}},
            splits={"train": _split(written), "validation": _split([])}, libraries=("pyarrow",),
            tokenizer={"sha256": "5" * 64, "vocab_size": VOCABULARY, "max_id": VOCABULARY - 1, "eos": None, "bos": None,
                       "pad": None, "added_tokens": []},
        )  # fmt: skip
        run = {"started": "2026-01-01T00:00:00+00:00", "seconds": 1.0, "workers": 1, "peak_rss_bytes": 1,
               "throughput": {}, "host": "here"}  # fmt: skip
        found[storage] = commit(record, path, folder / "builds" / storage, lambda run=run: run).path
    return found


def _rows(rng: np.random.Generator, ladder: np.ndarray, start: int, number: int) -> Any:
    """Rows of a shard: pieces of documents, four in five rows full."""
    import pyarrow as pa

    from datapipe import tables

    parts = []
    for _ in range(number):
        sizes = np.maximum(rng.lognormal(6.2, 1.0, 40).astype(np.int64), 1)
        ends = np.cumsum(sizes)
        room = LENGTH if rng.random() < 0.8 else int(rng.integers(LENGTH // 2, LENGTH))
        last = int(np.searchsorted(ends, room))
        parts.append(np.diff(np.concatenate(([0], ends[:last], [room]))))
    counts = np.array([len(part) for part in parts])
    sizes = np.concatenate(parts)
    n_tokens = np.array([part.sum() for part in parts])
    ids = np.searchsorted(ladder, rng.random((number, LENGTH))).clip(0, VOCABULARY - 1).astype(np.int32)
    ids[np.arange(LENGTH) >= n_tokens[:, None]] = 0
    offsets = np.concatenate(([0], np.cumsum(counts))).astype(np.int32)
    squares = np.add.reduceat(sizes**2, offsets[:-1])
    columns = {
        "row_id": np.arange(start, start + number), "seg_len": sizes, "seg_doc": start * 40 + np.arange(len(sizes)),
        "seg_start": np.zeros(len(sizes), np.int32), "seg_flags": np.full(len(sizes), 3),
        "seg_source": np.zeros(len(sizes), np.int16), "n_tokens": n_tokens, "n_targets": n_tokens - counts,
        "n_pad": LENGTH - n_tokens, "sum_len_sq": squares,
    }  # fmt: skip
    arrays: dict[str, Any] = {"loss_mask": pa.nulls(number, pa.binary())}
    for name, values in columns.items():
        kind = tables.SHARD.field(name).type
        if pa.types.is_list(kind):
            arrays[name] = pa.ListArray.from_arrays(pa.array(offsets), pa.array(values).cast(kind.value_type))
        else:
            arrays[name] = pa.array(values).cast(kind)
    edges = np.arange(0, number * LENGTH + 1, LENGTH, dtype=np.int32)
    arrays["input_ids"] = pa.ListArray.from_arrays(pa.array(edges), pa.array(ids.reshape(-1)))
    return pa.table({name: arrays[name] for name in tables.SHARD.names}, schema=tables.SHARD)


def _split(shards: list[dict[str, Any]]) -> dict[str, Any]:
    """What manifest.json says of a split of those shards, as far as a loader asks."""
    sums = dict.fromkeys(("stored", "targets", "last_positions", "masked", "repeated_context", "padding"), 0)
    sums |= {name: sum(one[key] for one in shards) for name, key in (("stored", "tokens"), ("targets", "targets"))}
    counts = {"documents": 1, "copies": 1, "tokens": sums["stored"], "targets": sums["targets"], "asked": None,
              "realised": 0.0}  # fmt: skip
    return {
        "documents": 1, "sequences": sum(one["rows"] for one in shards), "tokens": {**sums, "dropped": {}},
        "by_source": {"web": counts}, "packing": {"fill": 0.0, "cut_documents": 0, "cut_tokens": 0}, "shards": shards,
        "lengths": {"histogram": {}, **dict.fromkeys(("p1", "p50", "p90", "p99", "max"), 0), "over_length_share": 0.0},
    }  # fmt: skip


def flat(folder: Path, made: Path) -> None:
    """A build's rows for the other sides: ids.bin, and one id more for the last label; books.npz."""
    import datapipe

    with datapipe.open(made) as data, open(folder / "ids.bin", "wb") as out:
        offsets, sizes = [np.zeros(1, np.int64)], []
        for first in range(0, len(data), 64):
            rows = data.train.read(np.arange(first, min(first + 64, len(data))))
            rows.input_ids.astype("<u2").tofile(out)
            offsets.append(rows.offsets[1:] + offsets[-1][-1])
            sizes.append(rows.seg_len)
        out.write(b"\0\0")
    np.savez(folder / "books.npz", offsets=np.concatenate(offsets), seg_len=np.concatenate(sizes))


# --- resuming -----------------------------------------------------------------------------------------------------


def resume(rows: int = 10**9, step: int = 10**6) -> str:
    """A loader of so many rows that exist nowhere, at step `step`: until its next batch is there."""
    from feeding import Stub

    from datapipe.feed.loader import Loader

    def fresh() -> Loader:
        return Loader(Stub(rows, length=LENGTH, full=True), global_batch_rows=BATCH, prefetch=0)

    state = fresh().state_dict() | {"batch": step}
    before, seconds = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, []
    for _ in range(3):
        begin, loader = time.perf_counter(), fresh()
        loader.load_state_dict(state)
        batch = next(iter(loader))
        seconds.append(time.perf_counter() - begin)
        assert batch.step == (0, step)
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    return (
        f"{rows:.0e} rows, step {step:.0e}: {1000 * min(seconds):.1f} ms to the next batch, {grown / 1024:.1f} MB more"
    )


# --- the job ------------------------------------------------------------------------------------------------------


def peer(side: str) -> str:
    """Whose side it is."""
    return side.partition(",")[0]


class Running(NamedTuple):
    process: subprocess.Popen[str]

    def ask(self, line: str) -> dict[str, Any]:
        assert self.process.stdin
        assert self.process.stdout
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        if not answer:
            raise SystemExit(f"{self.process.args}: ended")
        return json.loads(answer)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=float, default=40, help="millions")
    parser.add_argument("--build", type=Path, nargs=2, metavar=("LIST", "BINARY"), help="folders of two builds")
    parser.add_argument("--env", type=Path, help="environments of the peers, by name")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", nargs="+", choices=list(SIDES), default=list(SIDES))
    parser.add_argument("--as-side", nargs=2, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.as_side:
        side(asked.as_side[0], Path(asked.as_side[1]))
        return 0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        made = asked.build or build(folder, int(asked.tokens * 1e6)).values()
        builds = dict(zip(("list", "binary"), made, strict=True))
        for storage, path in builds.items():
            (folder / storage).symlink_to(path.resolve())
        return compare(asked, folder)


def compare(asked: argparse.Namespace, folder: Path) -> int:
    flat(folder, folder / "list")
    env = asked.env or folder / "env"
    best: dict[tuple[str, int], list[dict[str, float]]] = {}
    with contextlib.ExitStack() as stack:
        running = {name: start(name, env, folder, stack) for name in asked.only}
        seen = {name: one.ask("all") for name, one in running.items()}
        for name, found in seen.items():
            print(
                f"{name:<16} {found['tokens']:>12,} ids {found['digest'][:16]} {found['targets']:>12,} labels",
                flush=True,
            )
        for _ in range(asked.rounds):
            for name, workers in [(side, workers) for side in asked.only for workers in WORKERS[side]]:
                with contextlib.ExitStack() as alone:  # the threads of mds do not outlive a fork
                    fresh = peer(name) in PEERS and workers > 0
                    one = start(name, env, folder, alone) if fresh else running[name]
                    best.setdefault((name, workers), []).append(one.ask(str(workers)))
    print(f"\n{'':<24} {'Mtok/s':>6} {'batches/s':>10}", flush=True)
    for (name, workers), found in best.items():
        how = {0: "", -1: ", thread"}.get(workers, f", {workers} worker{'s'[: workers - 1]}")
        speed = max(one["tokens"] / one["cpu"] for one in found) / 1e6
        print(f"{name + how:<24} {speed:>6.0f} {max(one['pace'] for one in found):>10.0f}")
    begin = cpu()
    import datapipe

    datapipe.open(folder / "list", verify="full").close()
    print(f"\nsha256 of all shards of `list`: {cpu() - begin:.2f} s, once\n{resume()}")
    same = len({(found["tokens"], found["digest"]) for found in seen.values()}) == 1
    print("the same ids on all sides" if same else "the ids DIFFER")
    return not same


def start(name: str, env: Path, folder: Path, stack: contextlib.ExitStack) -> Running:
    """A side in its process."""
    from exports import environment

    python = environment(env, peer(name)) if peer(name) in PEERS else sys.executable
    settings = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
    command = [python, __file__, "--as-side", name, str(folder)]
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=os.environ | settings
    )
    stack.enter_context(process)  # at its end the pipe is closed, and so the process ends
    return Running(process)


if __name__ == "__main__":
    sys.exit(main())
