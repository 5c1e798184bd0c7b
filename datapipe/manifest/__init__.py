"""
What a user asks for: the manifest's types, and how one is read from YAML.

Light on purpose: pydantic and ruamel.yaml, nothing that computes.
"""

from datapipe.manifest.load import load, parse
from datapipe.manifest.stages import SIGNALS, Bound, ExactDedup, Filter, Holdout, NearDedup, Only, Stage
from datapipe.manifest.types import (
    FIELDS,
    Limits,
    Manifest,
    Quarantine,
    Select,
    Sequences,
    Shards,
    Share,
    Snapshot,
    Source,
    Tokenizer,
    TokenizerFile,
    TokenizerTrain,
    Train,
)

__all__ = [
    "FIELDS",
    "SIGNALS",
    "Bound",
    "ExactDedup",
    "Filter",
    "Holdout",
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
    "Tokenizer",
    "TokenizerFile",
    "TokenizerTrain",
    "Train",
    "load",
    "parse",
]
