"""Which part of the package may know which: read from the source, so that no import hides inside a function."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "datapipe"

# from the bottom up: a room imports from its own row and from rows above it in this list, and from no other
ROWS = [
    {"", "errors", "memory"},  # "" is datapipe/__init__.py, which holds the version
    {"keyed", "kernels", "manifest"},
    {
        "tables",
        "units",
        "spill",
        "text",
        "language",
        "urls",
        "lists",
        "edits",
        "signals",
        "collateral",
        "pieces",
        "pack",
        "rows",
    },
    {"documents"},
    {"derive", "record", "scope"},
    {"read"},
    {"contamination"},
    {"stages"},
    {"mix", "tokens", "shards", "limits"},
    {"build_manifest"},
    {"feed"},
    {"books"},
    {"checks", "dry_run", "propose"},
    {"pipeline"},
    {"auditing"},
    {"train"},
    {"estimate"},
    {"api"},
    {"cli"},
    {"__main__"},
]
LEVEL = {room: level for level, rooms in enumerate(ROWS) for room in rooms}
# rooms that know nothing of datapipe but these
ALONE = {"kernels": {"kernels"}, "manifest": {"manifest", "errors", "keyed"}, "errors": set(), "keyed": set()}
# what only these may import
ONLY = {
    "tokenizers": {"tokens", "pieces"},
    "click": {"cli"},
    "rich": {"cli"},
    "ruamel": {"manifest"},
    "scipy": {"estimate"},
    "jinja2": {"auditing"},
    "markupsafe": {"auditing"},
    "torch": {"feed", "train", "estimate"},
    "torchdata": {"feed"},
    "safetensors": {"train"},
    "matplotlib": {"train", "estimate"},
}
# the verbs are named by datapipe/__init__.py for type checkers and on first use; nothing else looks up
UPWARD = {("", "api"), ("", "feed")}


def modules() -> list[Path]:
    return sorted(path for path in PACKAGE.rglob("*.py") if "__pycache__" not in path.parts)


def room(path: Path) -> str:
    first = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
    return "" if first == "__init__" else first


def imported(path: Path) -> Iterator[str]:
    """Full names of all that a module imports, inside functions too; `from datapipe import x` gives datapipe.x."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: a relative import"
            if node.module == "datapipe":
                yield from (f"datapipe.{alias.name}" for alias in node.names)
            else:
                yield node.module or ""


def rooms_of(path: Path) -> set[str]:
    names = [name.split(".") for name in imported(path)]
    return {parts[1] if len(parts) > 1 and parts[1] in LEVEL else "" for parts in names if parts[0] == "datapipe"}


@pytest.mark.parametrize("path", modules(), ids=lambda path: path.relative_to(PACKAGE).as_posix())
def test_imports_point_one_way(path):
    own = room(path)
    assert own in LEVEL, f"{own} has no row: say in ROWS where it stands"
    for other in rooms_of(path):
        assert LEVEL[other] <= LEVEL[own] or (own, other) in UPWARD, f"{own} must not know {other}"
        assert own not in ALONE or other in ALONE[own] | {own}, f"{own} must not know {other}"


@pytest.mark.parametrize("library", ONLY)
def test_who_may_import_what(library):
    users = {room(path) for path in modules() if any(name.split(".")[0] == library for name in imported(path))}
    assert users <= ONLY[library]


def test_rooms_of_one_row_know_each_other_one_way():
    knows = {}
    for path in modules():
        knows.setdefault(room(path), set()).update(rooms_of(path) - {room(path)})
    for own, others in knows.items():
        for other in others:
            assert own not in knows.get(other, set()) or (own, other) in UPWARD or (other, own) in UPWARD, (own, other)


def test_files_have_one_subject():
    """No file much above 400 lines."""
    long = {path.name: n for path in modules() if (n := len(path.read_text("utf-8").splitlines())) > 430}
    assert long == {}


LIGHT = {
    "datapipe": ("numba", "duckdb", "pyarrow", "tokenizers", "datasketch", "numpy", "pydantic", "click"),
    "datapipe.cli": ("numba", "duckdb", "pyarrow", "tokenizers", "datasketch", "numpy", "pydantic"),
    "datapipe.manifest": ("numba", "duckdb", "pyarrow", "tokenizers", "datasketch", "numpy"),
    "datapipe.build_manifest": ("numba", "duckdb", "pyarrow", "tokenizers", "datasketch", "numpy"),
    "datapipe.rows": ("numba", "duckdb", "tokenizers", "datasketch"),
    "datapipe.books": ("numba", "tokenizers", "datasketch"),
    "datapipe.checks": ("numba", "tokenizers", "datasketch"),
    "datapipe.estimate.questions": ("numba", "duckdb", "tokenizers", "datasketch", "torch", "scipy", "matplotlib"),
    "datapipe.estimate.parallel": ("numba", "duckdb", "tokenizers", "datasketch", "torch", "scipy", "matplotlib"),
}


@pytest.mark.parametrize("module, heavy", LIGHT.items(), ids=LIGHT)
def test_light_modules(module, heavy):
    code = f"import sys, {module}; print(*[name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "\n"


def test_the_verbs_are_there_by_name():
    import datapipe

    assert {"build", "consumed", "load", "open", "show", "verify", "__version__"} <= set(dir(datapipe))
    with pytest.raises(AttributeError, match="no attribute 'nope'"):
        _ = datapipe.nope


def test_the_whole_path_fits_on_one_screen():
    tree = ast.parse((PACKAGE / "pipeline.py").read_text("utf-8"))
    (build,) = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == "build"]
    assert build.end_lineno is not None
    assert build.end_lineno - build.lineno < 50
