"""The wheel holds the whole package, and works where nothing else of the project is."""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).parents[1]
BUILD = "import sys; from hatchling.build import build_wheel; print(build_wheel(sys.argv[1]))"


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of this checkout, built offline by the build backend alone."""
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-c", BUILD, str(folder)]
    done = subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True, check=True)
    return folder / done.stdout.split()[-1]


def test_the_wheel_holds_every_file_of_the_package(wheel):
    files = {p.relative_to(CHECKOUT).as_posix() for p in (CHECKOUT / "datapipe").rglob("*") if p.is_file()}
    files = {name for name in files if "__pycache__" not in name}
    with zipfile.ZipFile(wheel) as archive:
        inside = {name for name in archive.namelist() if ".dist-info/" not in name}
    assert inside == files
    assert "datapipe/py.typed" in inside


def test_the_wheel_carries_licence_notice_and_command(wheel):
    with zipfile.ZipFile(wheel) as archive:
        info = {
            name.split(".dist-info/")[1]: archive.read(name).decode()
            for name in archive.namelist()
            if ".dist-info/" in name
        }
    assert {"licenses/LICENSE", "licenses/datapipe/kernels/NOTICE"} <= set(info)
    assert "datapipe = datapipe.cli:main" in info["entry_points.txt"]


@pytest.mark.slow
def test_an_installed_wheel_builds_from_another_folder(wheel, tmp_path):
    python = tmp_path / "venv/bin/python"
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "venv"], check=True)
    install = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*install, "--constraint", CHECKOUT / "constraints.txt", wheel], check=True)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    for arguments in (
        ["build", CHECKOUT / "manifests/demo.yaml", "--output", "builds"],
        ["verify", "demo"],
        ["show", "demo"],
    ):
        done = subprocess.run(
            [tmp_path / "venv/bin/datapipe", *arguments], cwd=elsewhere, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
    assert (elsewhere / "builds/demo/latest").is_file()
