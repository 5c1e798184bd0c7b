"""
The stages of a manifest: each judges the documents that are alive, and says which leave and why.

A stage does not delete, edit or print; `Documents.apply` writes its verdict into the books.  To add one, write a file
here with judge(spec, docs) -> Verdict, and name it and its manifest entry in JUDGES.
"""

from collections.abc import Callable
from typing import Any

from datapipe.documents import Documents, Verdict
from datapipe.manifest import Decontaminate, ExactDedup, Filter, Holdout, NearDedup, Stage, UrlFilter, WordFilter
from datapipe.stages import decontaminate, exact_dedup, holdout, near_dedup, url_filter, word_filter
from datapipe.stages import filter as filters

JUDGES: dict[type, Callable[[Any, Documents], Verdict]] = {
    Filter: filters.judge,
    UrlFilter: url_filter.judge,
    WordFilter: word_filter.judge,
    Holdout: holdout.judge,
    ExactDedup: exact_dedup.judge,
    NearDedup: near_dedup.judge,
    Decontaminate: decontaminate.judge,
}


def judge(spec: Stage, docs: Documents) -> Verdict:
    """What a stage of the manifest says about the documents that are alive."""
    return JUDGES[type(spec)](spec, docs)
