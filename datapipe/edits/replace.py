"""
How an edit replaces some of the texts it is given: the others are not touched.
"""

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc


def matching(texts: pa.LargeStringArray, pattern: str) -> np.ndarray:
    """Whether each text has a match of an RE2 pattern (bool); about 700 MB/s, whatever the pattern."""
    found = pc.call_function("match_substring_regex", [texts], pc.MatchSubstringOptions(pattern))
    return found.to_numpy(zero_copy_only=False)


def substituted(texts: pa.LargeStringArray, pattern: str, replacement: str) -> pa.LargeStringArray:
    """Every match of an RE2 pattern replaced; texts without one are only copied, or not even that."""
    mask = matching(texts, pattern)
    found = texts.filter(pa.array(mask))
    new = pc.call_function("replace_substring_regex", [found], pc.ReplaceSubstringOptions(pattern, replacement))
    return replaced(texts, mask, new)


def rewritten(texts: pa.LargeStringArray, pattern: str, rewrite: Callable[[str], str]) -> pa.LargeStringArray:
    """Texts with a match of an RE2 pattern go through a function of Python, one call a text."""
    mask = matching(texts, pattern)
    new = [rewrite(found) for found in texts.filter(pa.array(mask)).to_pylist()]
    return replaced(texts, mask, pa.array(new, texts.type))


def replaced(texts: pa.LargeStringArray, mask: np.ndarray, new: pa.LargeStringArray) -> pa.LargeStringArray:
    """Texts with those of the mask replaced by the new ones, in order."""
    return pc.call_function("replace_with_mask", [texts, pa.array(mask), new]) if len(new) else texts
