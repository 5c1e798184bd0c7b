"""
What a user asks for: the manifest's types, and how one is read from YAML.

Light on purpose: pydantic and ruamel.yaml, nothing that computes.
"""

from datapipe.manifest.load import load, parse
from datapipe.manifest.signals import SIGNALS
from datapipe.manifest.stages import (
    LANG,
    Bound,
    Decontaminate,
    ExactDedup,
    Filter,
    Holdout,
    NearDedup,
    Only,
    Stage,
    UrlFilter,
    WordFilter,
)
from datapipe.manifest.types import (
    FIELDS,
    LANG_SCORE,
    Language,
    Limits,
    Manifest,
    Quarantine,
    Select,
    Sequences,
    Shards,
    Share,
    Snapshot,
    Source,
    TokenizerFile,
    TokenizerTrain,
    Train,
)

__all__ = [
    "FIELDS",
    "LANG",
    "LANG_SCORE",
    "SIGNALS",
    "Bound",
    "Decontaminate",
    "ExactDedup",
    "Filter",
    "Holdout",
    "Language",
    "Limits",
    "Manifest",
    "NearDedup",
    "Only",
    "Quarantine",
    "Select",
    "Sequences",
    "Shards",
    "Share",
    "Snapshot",
    "Source",
    "Stage",
    "TokenizerFile",
    "TokenizerTrain",
    "Train",
    "UrlFilter",
    "WordFilter",
    "load",
    "parse",
]
