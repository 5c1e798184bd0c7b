"""What every entry of a manifest has in common."""

from collections.abc import Mapping
from typing import ClassVar

from pydantic import BaseModel, ConfigDict


class Entry(BaseModel):
    """
    A mapping of the manifest: strict types, no unknown key, never changed.

    LATER: keys that have a meaning, but not in this version -> that meaning.
    LATER_VALUES: key -> values of that kind.
    """

    model_config = ConfigDict(strict=True, frozen=True, extra="forbid", allow_inf_nan=False)

    LATER: ClassVar[Mapping[str, str]] = {}
    LATER_VALUES: ClassVar[Mapping[str, Mapping[str, str]]] = {}
