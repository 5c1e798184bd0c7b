"""A build, opened for training: its rows are what the files say, and files that are not what was made are refused."""

import hashlib
import json
import multiprocessing
import os
import pickle
import shutil
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pyarrow.parquet as pq
import pytest
import synthetic

from datapipe.build_manifest.types import File
from datapipe.errors import DataError, IntegrityError, MachineError, ManifestError
from datapipe.feed import batch, dataset, kept, places, reading

SHARD = "train/shard-00001.parquet"
ROWS = 300  # in shards of 100: row groups of 64 and 36


def docs(number: int = ROWS) -> list[synthetic.Doc]:
    found = [synthetic.Doc(synthetic.words(n, 3 + n * 7 % 60), ("web", "wiki")[n % 2]) for n in range(number)]
    return [*found, synthetic.Doc(synthetic.words(999, 30), split="validation")]


def made(folder: Path, storage: str) -> Path:
    return synthetic.build(folder, docs=docs(), storage=storage, shard_rows=100, masked=True).path


@pytest.fixture(scope="module", params=["list", "binary"])
def build(request, tmp_path_factory) -> Path:
    return made(tmp_path_factory.mktemp("builds"), request.param)


@pytest.fixture
def copy(build, tmp_path) -> Path:
    return Path(shutil.copytree(build, tmp_path / "tiny" / build.name))


def raw(build: Path) -> list[dict]:
    """All rows of train as pyarrow reads them, ids as a list."""
    found = [row for path in sorted((build / "train").glob("*")) for row in pq.read_table(path).to_pylist()]
    for row in found:
        if isinstance(row["input_ids"], bytes):
            row["input_ids"] = np.frombuffer(row["input_ids"], "<u2").tolist()
    return found


def same(rows: batch.Rows, expected: list[dict], *, ids: bool = True) -> None:
    assert rows.row_ids.tolist() == [row["row_id"] for row in expected]
    assert rows.input_ids.tolist() == [row["input_ids"] if ids else [] for row in expected]
    for name in ("seg_len", "seg_doc", "seg_start", "seg_flags", "seg_source"):
        values = getattr(rows, name)
        found = [values[a:b].tolist() for a, b in zip(rows.offsets[:-1], rows.offsets[1:], strict=True)]
        assert found == [row[name] for row in expected], name
    for name in ("n_tokens", "n_targets"):
        assert getattr(rows, name).tolist() == [row[name] for row in expected]
    for number, row in enumerate(expected):
        mask = True if rows.mask is None else np.packbits(rows.mask[number], bitorder="little").tobytes()
        assert mask in ((True, b"\xff" * 8) if row["loss_mask"] is None else (row["loss_mask"],))
    kinds = [getattr(rows, name).dtype.name for name in ("row_ids", "input_ids", "offsets", "seg_doc", "n_tokens")]
    assert kinds == ["int64", "int32", "int64", "int64", "int32"]


@pytest.mark.parametrize("verify", ["full", "lazy", "size"])
def test_rows_by_number(build, verify):
    expected = raw(build)
    rng = np.random.default_rng(3)
    asked = [np.arange(ROWS), np.arange(ROWS)[::-1], rng.integers(0, ROWS, 700), np.array([], np.int64),
             np.array([99, 100, 199, 200, 299]), np.arange(64), np.array([163, 164]), np.array([5, 5])]  # fmt: skip
    with dataset.open(build, verify=verify) as data:
        for rows in asked:
            same(data.train.read(rows), [expected[row] for row in rows])
            same(data.train.narrow(rows), [expected[row] for row in rows], ids=False)
        for wrong in (-1, ROWS):
            with pytest.raises(IndexError):
                data.train.read(np.array([0, wrong]))


def test_rows_as_a_sequence(build):
    expected = raw(build)
    with dataset.open(build) as data:
        assert (len(data), len(data.train), len(data.validation)) == (ROWS, ROWS, 1)
        for at in (0, 17, 299, -1, -300):
            same(data[at].rows, [expected[at]])
        for cut in (slice(3, 9), slice(None, None, -50), slice(290, 999), slice(5, 5)):
            same(data[cut].rows, expected[cut])
        for wrong in (300, -301):
            with pytest.raises(IndexError):
                data[wrong]
        assert data.train.shards == data.made.splits.train.shards
        assert (data.train.length, data.train.pad, data.sources) == (64, 0, ("web", "wiki"))
        with pytest.raises(ManifestError, match="no split 'test': there are train and validation"):
            data.split("test")


def test_what_is_kept_in_memory_changes_nothing(build, monkeypatch):
    """A cache smaller than a row group, and threads that all want the same."""
    monkeypatch.setattr(reading, "KEPT_IDS", 1)
    monkeypatch.setattr(reading, "KEPT_NARROW", 1)
    monkeypatch.setattr(reading, "OPEN", 1)
    expected = raw(build)
    asked = [np.random.default_rng(seed).integers(0, ROWS, 40) for seed in range(20)]
    with dataset.open(build) as data, ThreadPoolExecutor(8) as pool:
        for rows, found in zip(asked, pool.map(data.train.read, asked), strict=True):
            same(found, [expected[row] for row in rows])


def test_one_thread_makes_what_several_want():
    made, room = [], kept.Kept[str, int](10, lambda size: size)

    def make(value: int) -> int:
        made.append(value)
        time.sleep(0.05)
        return value

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(lambda _: room.get("a", lambda: make(4)), range(4))) == [4] * 4
    assert made == [4]
    with pytest.raises(ZeroDivisionError):
        room.get("b", lambda: 1 // 0)
    assert room.get("b", lambda: make(5)) == 5, "a failure is not kept"
    room.get("c", lambda: make(6))
    room.get("b", lambda: make(5))
    room.get("a", lambda: make(4))
    assert made == [4, 5, 6, 5, 4], "the oldest went, and came anew"


def test_over_a_pickle_and_a_fork(build):
    expected = raw(build)
    with dataset.open(build) as data:
        data.train.read(np.arange(ROWS))
        same(pickle.loads(pickle.dumps(data)).train.read(np.arange(9)), expected[:9])
        data.train._guard._lock.acquire()
        data.train._reader._open._lock.acquire()  # as if another thread were in there when it forks
        out, into = multiprocessing.Pipe(duplex=False)
        child = os.fork()
        if not child:
            try:
                into.send(data.train.read(np.arange(200, 210)).input_ids.tolist())
            finally:
                os._exit(0)  # whatever happens: no second pytest goes on from here
        try:
            assert out.poll(120)
            assert out.recv() == [row["input_ids"] for row in expected[200:210]]
        finally:
            os.kill(child, signal.SIGKILL)  # one that waits for the lock would stay
            os.waitpid(child, 0)


def test_doc_ids(build):
    names = pq.read_table(build / "fates.parquet")["doc_id"].to_pylist()
    with dataset.open(build) as data:
        found = data.train.read(np.arange(ROWS))
        assert data.train.doc_ids(found.seg_doc) == [names[doc] for doc in found.seg_doc]
        assert data.train.doc_ids(np.array([], np.int64)) == []


def test_books(build):
    with dataset.open(build) as data:
        books = data.books()
        assert data.made.splits.train.tokens.model_dump() == {
            key: books["train"][key] for key in data.made.splits.train.tokens.model_dump()
        }
    train = books["train"]
    assert train["masked"] == 100 == sum(shard["masked"] for shard in train["shards"])
    assert train["stored"] == train["targets"] + train["last_positions"] + train["masked"]
    assert train["stored"] + train["padding"] == ROWS * 64
    for key in ("stored", "targets", "last_positions", "masked", "repeated_context"):
        assert train[key] == sum(line[key] for line in train["by_source"].values())
        assert train[key] == sum(shard[key] for shard in train["shards"])
    rows = raw(build)
    assert train["by_source"]["wiki"]["targets"] == sum(r["n_targets"] for r in rows if r["seg_source"] == [1])
    assert train["shards"][1]["stored"] == sum(row["n_tokens"] for row in rows[100:200])


def test_books_that_do_not_add_up(copy):
    rewrite(copy, lambda record: record["splits"]["train"]["tokens"].update(targets=1))
    with dataset.open(copy) as data, pytest.raises(IntegrityError, match=r"splits\.train\.tokens: targets is 1, its "):
        data.books()


def rewrite(build: Path, change) -> None:
    """Change manifest.json, and let it say that it was always so."""
    from datapipe.build_manifest import digests

    record = json.loads((build / "manifest.json").read_bytes())
    change(record)
    record["build_digest"] = digests.build_digest(record)
    (build / "manifest.json").write_text(json.dumps(record))


# -- what was changed is refused


def read_all(build: Path | str, verify: Any, **options) -> None:
    with dataset.open(build, verify=verify, **options) as data:
        data.train.read(np.arange(ROWS))


def flipped(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 4
    path.write_bytes(data)


def spots(path: Path) -> tuple[list[int], list[int]]:
    """Bytes of a shard: in data pages that are read; elsewhere (magic, page headers, footer, its length)."""
    size = path.stat().st_size
    pages, elsewhere = [], [0, 3, size - 1, size - 5, size - 8]
    with pq.ParquetFile(path) as file:
        for group in range(file.num_row_groups):
            for number in range(7):  # row_id, input_ids, seg_*
                chunk = file.metadata.row_group(group).column(number)
                elsewhere.append(chunk.data_page_offset + 2)
                pages.append(chunk.data_page_offset + chunk.total_compressed_size - 3)
        elsewhere += [size - 8 - file.metadata.serialized_size + n for n in (1, 40, 300)]
    return pages, elsewhere


@pytest.mark.parametrize("verify", ["full", "lazy", "size"])
def test_one_flipped_byte(copy, verify):
    """T7b, T8.  The sha256 sees each; without it, checksums see those of pages."""
    path = copy / SHARD
    good = path.read_bytes()
    pages, elsewhere = spots(path)
    for at in pages if verify == "size" else [*pages, *elsewhere]:
        flipped(path, at)
        with pytest.raises(IntegrityError, match=f"{copy.name}/{SHARD}: "):
            read_all(copy, verify)
        path.write_bytes(good)
    read_all(copy, verify)
    assert IntegrityError.status == 4


def test_when_a_flipped_byte_is_seen(copy):
    flipped(copy / SHARD, 1000)
    with pytest.raises(IntegrityError, match="sha256 differs"):
        dataset.open(copy, verify="full")
    with dataset.open(copy) as data:
        data.train.read(np.arange(100))
        with pytest.raises(IntegrityError, match="sha256 differs"):
            data.train.narrow(np.array([100]))


def swap(build: Path) -> None:
    first, second = build / "train/shard-00000.parquet", build / SHARD
    first.rename(build / "x")
    second.rename(first)
    (build / "x").rename(second)


CHANGES = {
    "truncated": (lambda build: os.truncate(build / SHARD, 4000), f"{SHARD}: 4,000 bytes, recorded were"),
    "empty": (lambda build: os.truncate(build / SHARD, 0), f"{SHARD}: 0 bytes"),
    "longer": (
        lambda build: (build / SHARD).write_bytes((build / SHARD).read_bytes() + b"x"),
        f"{SHARD}: .* bytes, recorded were",
    ),
    "missing": (lambda build: (build / SHARD).unlink(), f"{SHARD}: missing"),
    "a folder gone": (lambda build: shutil.rmtree(build / "validation"), "validation/shard-00000.parquet: missing"),
    "extra": (
        lambda build: shutil.copy(build / SHARD, build / "train/shard-00003.parquet"),
        r"train/shard-00003\.parquet: is not in files",
    ),
    "extra and hidden": (lambda build: (build / "train/.x").touch(), r"train/\.x: is not in files"),
    "extra in validation": (lambda build: (build / "validation/x").touch(), "validation/x: is not in files"),
    "manifest.json edited": (lambda build: synthetic.change(build, sources=["wiki", "web"]), "build_digest is"),
    "shards reordered in manifest.json": (
        lambda build: rewrite(build, lambda record: record["splits"]["train"]["shards"].reverse()),
        "manifest.json: dataset_id is",
    ),
}


@pytest.mark.parametrize("verify", ["full", "lazy", "size"])
@pytest.mark.parametrize("change, message", CHANGES.values(), ids=CHANGES)
def test_what_is_seen_at_once(copy, verify, change, message):
    change(copy)
    with pytest.raises(IntegrityError, match=message):
        dataset.open(copy, verify=verify)


def adopted(record: dict, build: Path) -> None:
    """manifest.json takes bytes and sha256 of the shards as they lie there: what is left to see is in the rows."""
    for file in record["files"]:
        if file["path"].startswith("train/"):
            data = (build / file["path"]).read_bytes()
            file |= {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}


@pytest.mark.parametrize("verify", ["full", "lazy", "size"])
def test_shards_that_changed_places(copy, verify):
    swap(copy)
    rewrite(copy, lambda record: adopted(record, copy))
    with pytest.raises(IntegrityError, match=r"train/shard-0000[01]\.parquet: its rows are \d+ to \d+ in row group 0"):
        read_all(copy, verify)


@pytest.mark.parametrize("verify", ["full", "lazy"])
def test_a_file_that_is_replaced_while_it_is_used(copy, verify):
    """The same size, good pages, a good footer: but not what was made."""
    with dataset.open(copy, verify=verify) as data:
        data.train.read(np.array([100]))
        table = pq.read_table(copy / SHARD)
        assert table.num_rows
        flipped(copy / SHARD, 900)
        data.close()
        with pytest.raises(IntegrityError, match=f"{SHARD}: sha256 differs"):
            data.train.read(np.array([100]))


def test_a_shard_that_goes_away(copy):
    with dataset.open(copy) as data:
        (copy / SHARD).unlink()
        with pytest.raises(IntegrityError, match=f"{SHARD}: missing"):
            data.train.read(np.array([100]))


def test_what_cannot_be_opened(tmp_path, build):
    with pytest.raises(DataError, match="manifest names no `tokenizer`"):
        dataset.open(synthetic.build(tmp_path, tokenizer=False).path)
    assert DataError.status == 3
    with pytest.raises(ManifestError, match="verify is 'sometimes', expected one of full, lazy, size"):
        dataset.open(build, verify="sometimes")  # pyright: ignore[reportArgumentType]
    with pytest.raises(ManifestError, match="no build 'nobody'"):
        dataset.open("nobody", output=tmp_path)
    assert dataset.open(output=build.parents[1]).path == str(build)
    assert dataset.open("tiny@1", output=build.parents[1]).path == str(build)


# -- from elsewhere


@pytest.fixture
def memory(build):
    """The URL of a build in fsspec's memory."""
    system = fsspec.filesystem("memory")
    system.put(str(build), "/there/tiny/v1", recursive=True)
    system.pipe_file("/there/tiny/latest", b"v1\n")
    yield "memory://there/tiny/v1"
    system.rm("/there", recursive=True)


@pytest.fixture
def served(copy):
    """The URL of a build on a web server of this machine, and its folder."""
    handler = partial(Quiet, directory=str(copy.parent))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}/{copy.name}", copy
        finally:
            server.shutdown()
            thread.join()


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format, *args):  # noqa: A002  its name there
        pass


def test_from_a_url_through_a_cache(build, memory, tmp_path):
    cache = tmp_path / "cache"
    expected = raw(build)
    for url in (memory, f"{memory}/", f"{memory}/manifest.json", "memory://there/tiny"):
        with dataset.open(url, cache=cache) as data:
            assert data.path == memory
            same(data.train.read(np.arange(ROWS)), expected)
    names = {file.sha256 + ".parquet" for file in data.made.files if file.path.startswith("train/")}
    assert {path.name for path in cache.iterdir()} == names | {".locks"}, "what was used, by what it holds"
    fsspec.filesystem("memory").rm("/there/tiny/v1/train/shard-00000.parquet")
    with pytest.raises(IntegrityError, match=r"v1/train/shard-00000\.parquet: missing"):
        dataset.open(memory, cache=cache)


@pytest.mark.parametrize("verify", ["full", "lazy", "size"])
def test_a_damaged_copy_in_the_cache_is_fetched_again(build, memory, tmp_path, verify):
    read_all(memory, "lazy", cache=tmp_path)
    (one,) = (path for path in tmp_path.glob("*.parquet") if path.stem == sha256(build / SHARD))
    flipped(one, spots(one)[0][0])
    if verify == "size":
        with pytest.raises(IntegrityError, match=f"{SHARD}: "):
            read_all(memory, verify, cache=tmp_path)
    else:
        read_all(memory, verify, cache=tmp_path)
        assert sha256(one) == one.stem
    os.truncate(one, 10)
    read_all(memory, "lazy", cache=tmp_path)
    assert sha256(one) == one.stem


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_a_url_without_a_cache_says_what_it_does_not_see(build, memory):
    with pytest.warns(UserWarning, match="without a cache the sha256 of shards are not checked"):
        dataset.open(memory)
    with dataset.open(memory, verify="size") as data:
        same(data.train.read(np.arange(ROWS)), raw(build))
        assert data.train.doc_ids(np.array([0])) == pq.read_table(build / "fates.parquet")["doc_id"].to_pylist()[:1]
    system = fsspec.filesystem("memory")
    good = system.cat_file(f"/there/tiny/v1/{SHARD}")
    system.pipe_file(f"/there/tiny/v1/{SHARD}", good[:900] + bytes([good[900] ^ 1]) + good[901:])
    with pytest.raises(IntegrityError, match=f"{SHARD}: sha256 differs"):
        dataset.open(memory, verify="full")
    system.pipe_file(f"/there/tiny/v1/{SHARD}", good[:-1])
    with pytest.raises(IntegrityError, match=f"{SHARD}: .* bytes, recorded"):
        dataset.open(memory, verify="size")
    system.pipe_file(f"/there/tiny/v1/{SHARD}", good)
    system.pipe_file("/there/tiny/v1/train/more.parquet", good)
    with pytest.raises(IntegrityError, match=r"train/more\.parquet: is not in files"):
        dataset.open(memory, verify="size")


def test_from_a_web_server(served, tmp_path):
    url, build = served
    expected = raw(build)
    with dataset.open(url, verify="size") as data:
        same(data.train.read(np.arange(50, 150)), expected[50:150])
    with dataset.open(url, cache=tmp_path / "cache") as data:
        same(data.train.read(np.arange(150)), expected[:150])
        flipped(build / "train/shard-00002.parquet", 500)
        with pytest.raises(IntegrityError, match=r"http://.*/train/shard-00002\.parquet: sha256 differs"):
            data.train.read(np.array([250]))
    assert not list((tmp_path / "cache").glob(".*.part")), "what was refused is not left"
    (build / SHARD).unlink()
    with pytest.raises(IntegrityError, match=f"{SHARD}: missing"):
        dataset.open(url, verify="size")


def test_urls_that_cannot_be_opened(tmp_path):
    with pytest.raises(DataError, match=r"memory://nowhere: no manifest\.json"):
        dataset.open("memory://nowhere")
    with pytest.raises(DataError, match="nope://x: cannot be opened"):
        dataset.open("nope://x")
    with pytest.raises(MachineError, match=r"http://127\.0\.0\.1:9/x/manifest\.json: cannot be read"):
        dataset.open("http://127.0.0.1:9/x")
    (tmp_path / "file").touch()
    with pytest.raises(MachineError, match="the cache cannot be written"):
        dataset.open("memory://nowhere", cache=tmp_path / "file/cache")


FETCH = """
import sys, numpy
from datapipe.feed import places
places.PIECE = 1024
most = int(sys.argv[3])
slow = places.Remote._pieces
def pieces(self, file):
    import time
    for at, piece in enumerate(slow(self, file), 1):
        time.sleep(0.002 if at < most else 600)
        print("piece", flush=True)
        yield piece
places.Remote._pieces = pieces
from datapipe.feed import dataset
with dataset.open(sys.argv[1], cache=sys.argv[2]) as data:
    print(int(data.train.read(numpy.arange(300)).input_ids.sum()))
"""


def fetch(url: str, cache: Path, most: int = 1_000_000) -> subprocess.Popen:
    """A process that fetches all shards, and of each at most so many pieces: then it waits."""
    command = [sys.executable, "-c", FETCH, url, str(cache), str(most)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_two_processes_fetch_at_once(served, tmp_path):
    url, build = served
    total = sum(sum(row["input_ids"]) for row in raw(build))
    running = [fetch(url, tmp_path) for _ in range(2)]
    printed = [process.communicate(timeout=240) for process in running]
    assert [out.split("\n")[-2] for out, _ in printed] == [str(total)] * 2, printed
    size = sum((build / f"train/shard-0000{n}.parquet").stat().st_size for n in range(3))
    assert sum(out.count("piece") for out, _ in printed) <= size // 1024 + 3, "each shard came once"
    assert not list(tmp_path.glob(".*.part"))


def test_killed_while_it_fetches(served, tmp_path):
    """T9: what is left is not taken for a shard, and stops nobody."""
    url, build = served
    process = fetch(url, tmp_path, most=5)
    assert process.stdout is not None
    assert [process.stdout.readline() for _ in range(4)] == ["piece\n"] * 4
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=120)
    assert list(tmp_path.glob(".*.part"))
    with dataset.open(url, cache=tmp_path) as data:
        same(data.train.read(np.arange(ROWS)), raw(build))
    (left,) = tmp_path.glob(".*.part")
    os.utime(left, (0, 0))
    dataset.open(url, cache=tmp_path)
    assert not left.exists(), "taken away a day later"


def test_a_cache_without_room(memory, tmp_path, monkeypatch):
    def full(self: places.Remote, file: File):
        yield b"x"
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(places.Remote, "_pieces", full)
    with dataset.open(memory, cache=tmp_path) as data, pytest.raises(MachineError, match="No space left on device"):
        data.train.read(np.array([0]))
    assert not list(tmp_path.glob(".*.part"))


def test_a_training_node_has_neither_numba_nor_duckdb(build):
    code = (
        "import sys, datapipe, numpy\n"
        f"with datapipe.open({str(build)!r}) as data:\n"
        "    data.train.read(numpy.arange(9)); data[3]; data.books()\n"
        "print([name for name in ('numba', 'duckdb', 'torch', 'fsspec', 'tokenizers', 'datapipe.api', "
        "'datapipe.pipeline', 'datapipe.kernels') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
