"""Units are done once, committed whole, found by what decides their bytes, and damaged ones are done again."""

import errno
import threading
from pathlib import Path

import pytest

from datapipe import units
from datapipe.documents import Work
from datapipe.units import Store, Unit


@pytest.fixture
def store(tmp_path: Path) -> Store:
    (tmp_path / "scratch").mkdir()
    (tmp_path / "units").mkdir()
    return Store(tmp_path / "units", tmp_path / "scratch")


def unit(text: str = "hello", *, calls: list | None = None, **changes) -> Unit:
    def work(folder: Path) -> dict:
        (folder / "a.txt").write_text(text)
        if calls is not None:
            calls.append(text)
        return {"letters": len(text)}

    given = {"function": "spell", "version": 1, "settings": {"text": text}, "inputs": ["x"], "libraries": ["numpy"]}
    return Unit(**(given | changes), work=work)


def again(store: Store) -> Store:
    return Store(store.folder, store.scratch)


def test_a_unit_runs_once_and_is_found_again(store):
    calls: list = []
    first = unit(calls=calls).run(store)[0]
    second = unit(calls=calls).run(again(store))[0]
    assert calls == ["hello"]
    assert (first.reused, second.reused) == (False, True)
    assert first.counts == second.counts == {"letters": 5}
    assert second.path("a.txt").read_text() == "hello"


@pytest.mark.parametrize(
    "change",
    [{"function": "other"}, {"version": 2}, {"settings": {}}, {"inputs": ["y"]}, {"libraries": ["pyarrow"]}],
    ids=lambda change: next(iter(change)),
)
def test_the_key_follows_all_that_decides_the_bytes(change):
    assert unit().key != unit(**change).key


def test_a_flipped_byte_makes_the_unit_run_again(store):
    calls: list = []
    done = unit(calls=calls).run(store)[0]
    done.path("a.txt").write_text("jello")
    mended = unit(calls=calls).run(again(store))[0]
    assert calls == ["hello", "hello"]
    assert mended.path("a.txt").read_text() == "hello"


@pytest.mark.parametrize("damage", ["missing file", "torn sidecar", "flipped count", "rubbish in it", "no sidecar"])
def test_a_folder_without_a_valid_sidecar_does_not_exist(store, damage):
    done = unit().run(store)[0]
    match damage:
        case "missing file":
            done.path("a.txt").unlink()
        case "torn sidecar":
            done.path(units.SIDECAR).write_bytes(done.path(units.SIDECAR).read_bytes()[:-5])
        case "flipped count":
            done.path(units.SIDECAR).write_bytes(
                done.path(units.SIDECAR).read_bytes().replace(b'"letters":5', b'"letters":4')
            )
        case "rubbish in it":
            done.path(units.SIDECAR).write_bytes(b"\xff[]")
        case "no sidecar":
            done.path(units.SIDECAR).unlink()
    assert again(store).find(unit().key) is None
    assert again(store).family("words") == []
    assert unit().run(again(store))[0].path("a.txt").read_text() == "hello"


def test_a_family_is_found_whatever_lies_beside_it(store):
    """One torn sidecar of another unit is that unit's trouble."""
    done = unit(family="words").run(store)[0]
    (store.folder / "torn").mkdir()
    (store.folder / "torn" / units.SIDECAR).write_text('{"key": "torn", "fam')
    assert [found.key for found in again(store).family("words")] == [done.key]


def test_a_unit_that_fails_leaves_nothing(store):
    def work(folder: Path) -> dict:
        (folder / "half.txt").write_text("half")
        raise RuntimeError("no more")

    with pytest.raises(RuntimeError, match="no more"):
        Unit("fail", 1, {}, [], [], work).run(store)
    assert list(store.folder.iterdir()) == []
    assert list(store.scratch.iterdir()) == []


@pytest.mark.parametrize("workers", [1, 4])
def test_results_come_in_the_order_of_the_tasks(store, workers):
    texts = [str(n) for n in range(20)]
    done = units.run(store, [unit(text) for text in texts], workers)
    assert [d.path("a.txt").read_text() for d in done] == texts


def test_the_first_error_stops_the_rest(store):
    started: list[int] = []

    def task(n: int) -> Unit:
        def work(folder: Path) -> dict:
            started.append(n)
            if n == 1:
                raise RuntimeError("unit 1")
            return {}

        return Unit("count", 1, n, [], [], work)

    with pytest.raises(RuntimeError, match="unit 1"):
        units.run(store, [task(n) for n in range(100)], 1)
    assert len(started) < 100


def test_two_threads_that_commit_the_same_unit_agree(store):
    barrier = threading.Barrier(2)

    def work(folder: Path) -> dict:
        barrier.wait(timeout=120)
        (folder / "a.txt").write_text("same")
        return {}

    twins = [Unit("twin", 1, {}, [], [], work) for _ in range(2)]
    keys = {done.key for done in units.run(store, twins, 2)}
    assert len(keys) == 1
    assert [path.name for path in store.folder.iterdir()] == list(keys)


def test_a_killed_builds_scratch_is_swept_and_a_living_ones_is_not(tmp_path):
    with Work(tmp_path, "alive") as alive:
        dead = alive.store.folder / ".work-dead"
        dead.mkdir()
        (dead / ".lock").touch()
        with Work(tmp_path, "next"):
            assert not dead.exists()
            assert alive.scratch.exists()
    assert not alive.scratch.exists()


def test_an_error_of_the_disk_names_the_folder(tmp_path):
    with pytest.raises(OSError, match=r"out/\.units"), Work(tmp_path / "out", "build"):
        raise OSError(errno.ENOSPC, "No space left on device")
