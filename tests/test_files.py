"""Which files a pattern means: as Python's glob has it, but nothing is passed over or read twice."""

import glob
import os
import re
from pathlib import Path

import pytest
from reading import load, reading_source

from datapipe.errors import DataError, MachineError
from datapipe.read import files

TREE = (
    "a.txt",
    "b.jsonl",
    "sub/a.txt",
    "sub/deep/c.txt",
    "sub/.hidden/d.txt",
    ".e.txt",
    "x[1]/f.txt",
    "x1/f.txt",
    "é/g.txt",
)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for name in TREE:
        path = tmp_path / "tree" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("some text")
    return tmp_path


def found(folder: Path, *patterns: str, **source) -> list[str]:
    return [relative for relative, _ in files.find(load(folder, {"s": {"files": list(patterns)} | source}), "s")]


@pytest.mark.parametrize(
    "pattern",
    ["*", "*.txt", "**", "**/*.txt", "**/*", "sub/**", "*/a.txt", "**/deep/*", "**/**/c.txt", ".*", "x[[]1]/*",
     "x[0-9]/*", "sub/../*.txt", "./sub/*", "?/g.txt", "a.txt", "[!a]*"],
)  # fmt: skip
def test_patterns_match_what_glob_matches(tree, pattern):
    expected = {
        Path(path).resolve() for path in glob.glob(f"{tree}/tree/{pattern}", recursive=True) if os.path.isfile(path)
    }
    manifest = load(tree, {"s": {"files": [f"tree/{pattern}"]}})
    assert {path.resolve() for _, path in files.find(manifest, "s")} == expected != set()


def test_a_link_that_leads_back_up_is_not_walked_in_circles(tree):
    (tree / "tree/sub/again").symlink_to("..")
    (tree / "tree/sub/deep/again").symlink_to("../..")
    assert found(tree, "tree/**/c.txt") == ["sub/deep/c.txt"]


def test_a_link_to_a_folder_elsewhere_is_followed(tree):
    (tree / "other").mkdir()
    (tree / "other/c.txt").write_text("some text")
    (tree / "tree/other").symlink_to(tree / "other")
    assert found(tree, "tree/**/c.txt") == ["other/c.txt", "sub/deep/c.txt"]


@pytest.fixture
def closed(tree, monkeypatch) -> Path:
    """tree/sub cannot be listed.  (Taking its permission away would not stop root.)"""
    scandir = os.scandir

    def listed(path):
        if str(path).rstrip("/").endswith("/sub"):
            raise PermissionError(13, "Permission denied", str(path))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", listed)
    return tree


@pytest.mark.parametrize("pattern", ["tree/**/*.txt", "tree/sub/*.txt", "tree/*/*.txt"])
def test_a_folder_that_cannot_be_listed_is_no_empty_one(closed, pattern):
    with pytest.raises(MachineError, match=re.escape("tree/sub: cannot be listed: Permission denied")):
        found(closed, pattern)


def test_a_folder_that_is_excluded_need_not_be_listed(closed):
    assert found(closed, "tree/**/f.txt", exclude=["**/sub/**"]) == ["x1/f.txt", "x[1]/f.txt"]


def test_a_name_that_is_not_text_is_refused_by_name(tree):
    path = os.fsencode(tree) + b"/tree/\xff.txt"
    try:
        Path(os.fsdecode(path)).write_text("some text")
    except OSError:
        pytest.skip("this file system takes no such names")
    with pytest.raises(DataError, match=r"\\xff\.txt': the name is not UTF-8; rename the file"):
        found(tree, "tree/*.txt")


def test_names_with_blanks_newlines_and_brackets(tree):
    for name in ("b p.jsonl", "c[1].jsonl", "d\nn.jsonl"):
        (tree / name).write_text('{"text": "some text"}\n')
    with reading_source(tree, ["b p.jsonl", "c[1].jsonl", "d?n.jsonl"]) as read:
        assert [row["path"] for row in read.documents] == ["b p.jsonl", "c[1].jsonl", "d\nn.jsonl"]
