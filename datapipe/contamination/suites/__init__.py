"""
Eval suites: from published files to examples and their parts.

    load(paths, fields={...}, variants=[...]) -> Suites

A file becomes bytes (opening), records (forms), fields with a meaning (names), parts (parts), numbered rows (load).
"""

from datapipe.contamination.suites.load import load
from datapipe.contamination.suites.opening import EXPANDED

__all__ = ["EXPANDED", "load"]
