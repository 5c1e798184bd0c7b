"""
Presets: published sets of bounds, a YAML file each in datapipe/presets, to be named in a filter, printed and copied.

about: one line;  languages: those it is made for, none: all;  edits: those its rules count on;  keep: signal -> bound
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

from datapipe.manifest import tree

SUFFIX = ".yaml"


@dataclass(frozen=True)
class Preset:
    """A preset as it stands in its file."""

    about: str
    keep: Mapping[str, Mapping[str, float]]
    languages: tuple[str, ...] = ()
    edits: tuple[str, ...] = ()


@cache
def names() -> tuple[str, ...]:
    """All presets, in order of name."""
    files = (file.name for file in resources.files("datapipe").joinpath("presets").iterdir())
    return tuple(sorted(name.removesuffix(SUFFIX) for name in files if name.endswith(SUFFIX)))


@cache
def text(name: str) -> str:
    """The file of a preset, comments and all."""
    return resources.files("datapipe").joinpath("presets", name + SUFFIX).read_text("utf-8")


@cache
def load(name: str) -> Preset:
    """A preset by its name, one of `names`."""
    values: dict[str, Any] = tree.parse(text(name)).values
    return Preset(
        values["about"], values["keep"], tuple(values.get("languages") or ()), tuple(values.get("edits") or ())
    )
