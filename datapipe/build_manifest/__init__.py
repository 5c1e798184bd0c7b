"""
The build manifest: what was made.  `manifest.json` is written last; a folder without it is no data set.

types.py    every key of manifest.json
digests.py  recipe_id, dataset_id, build_digest
store.py    versions of a build: find, resolve, load
commit.py   a finished staging folder becomes a version
card.py     the README.md beside it
"""

from datapipe.build_manifest.commit import Committed, Record, commit, fail
from datapipe.build_manifest.digests import build_digest, dataset_id, recipe_id
from datapipe.build_manifest.results import Built, DryRun, Sampled, SourceInput
from datapipe.build_manifest.store import FAILED_FOLDER, find, load, resolve, versions
from datapipe.build_manifest.types import FORMAT_VERSION, BuildManifest

__all__ = [
    "FAILED_FOLDER",
    "FORMAT_VERSION",
    "BuildManifest",
    "Built",
    "Committed",
    "DryRun",
    "Record",
    "Sampled",
    "SourceInput",
    "build_digest",
    "commit",
    "dataset_id",
    "fail",
    "find",
    "load",
    "recipe_id",
    "resolve",
    "versions",
]
