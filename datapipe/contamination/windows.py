"""
The second stage: what a window of a document that holds a run of a part has of the whole part.

Of each document and part with a run (or a masked run) but none of the whole part, the 2L units around the best
diagonal are looked at, and nothing else.
"""

import re
from collections.abc import Callable, Iterable
from functools import lru_cache

import numpy as np
import pyarrow as pa

from datapipe.contamination.index import Index, Units
from datapipe.kernels import edit

SHINGLE = 5  # units
GATE = 20  # a long part with a smaller share of its shingles in the window than one in so many is not aligned
CLOSE = 0.4  # identifiers are masked where containment, edit or plain is as much: elsewhere they say nothing
CODE_N = 12  # code units in an n-gram
BUDGET = 4  # substitutions that a run is extended over: Llama 2, A.6
SUBSTRING, STRIDE = 50, 10  # letters and digits
LONG = 4096  # characters; of a longer part all substrings are looked for at once
NOT_BARE = re.compile(r"[\W_]+")  # what str.isalnum is false of
SIGNS_OF_ASCII = bytes(code for code in range(128) if not chr(code).isalnum())

WINDOWS = pa.schema(
    [
        ("doc", pa.int64()),
        ("part", pa.int32()),
        ("doc_unit", pa.int32()),  # the run of units with the fewest edits; else the window
        ("length", pa.int32()),
        ("byte_start", pa.int64()),
        ("byte_end", pa.int64()),
        ("containment", pa.float64()),  # of the part's distinct shingles
        ("edit", pa.float64()),  # 1 - distance / the longer of part and run; null where too little is shared
        ("plain", pa.float64()),  # share of the part's units in n-grams of the window
        ("numbers", pa.float64()),  # the same by number mask; null where the part has no number
        ("identifiers", pa.float64()),  # the same over code units, identifiers masked; null: no code, or not CLOSE
        ("substr50", pa.bool_()),  # 50 letters and digits in a row, at a stride of 10; all of a part with fewer
        ("extended", pa.int32()),  # units that match in the best run extended over BUDGET substitutions
    ]
)
MEASURES = frozenset(WINDOWS.names[6:])

TOKEN = re.compile(r"[^\W\d]\w*|\d[\w.]*|\"[^\"\n]*\"|'[^'\n]*'|[<>=!+\-*/%&|^]=|\*\*|//|->|=>|&&|\|\||\+\+|--|[^\w\s]")
SIGNS = re.compile(r"^\s*(?:def|class|import|from|return|for|while|if|assert|#include|public|function|var|let|const)\b"
                   r"|[;{]\s*$|\w\(.*\)\s*[:{;]?\s*$|^\s*\w+\s*=[^=]", re.MULTILINE)  # fmt: skip
KEPT = frozenset(
    """
    and as assert async await bool boolean break byte case catch char class const continue def default del do double
    elif else enum except extends false False final finally float fn for from func function global goto if implements
    import in include int interface is lambda let long match mut namespace new nil None nonlocal not null or package
    pass private protected public raise return self short signed sizeof static str string struct super switch this
    throw throws trait true True try type typedef union unsigned use using var virtual void while with yield
    """.split()  # noqa: SIM905
)


def windows(index: Index, ours: Units, docs: np.ndarray, runs: np.ndarray, masked: np.ndarray) -> pa.Table:
    """WINDOWS of documents and their proved runs (int64[k, 5], as of scan), in no order."""
    every = np.concatenate([runs, masked])
    kept = every[:, 3] >= index.sizes[every[:, 1]]
    every, plainly = every[kept], (np.arange(len(every)) < len(runs))[kept]
    lengths = index.lengths[every[:, 1]].astype(np.int64)
    whole = {tuple(pair) for pair in runs[runs[:, 3] == index.lengths[runs[:, 1]], :2].tolist()}
    diagonals = every[:, 4] - every[:, 2]
    order = np.lexsort((diagonals, every[:, 1], every[:, 0]))
    every, lengths, diagonals, plainly = every[order], lengths[order], diagonals[order], plainly[order]
    fresh = np.flatnonzero(np.any(np.diff(every[:, :2], axis=0, prepend=-1) != 0, axis=1))
    edges = np.append(fresh, len(every))
    best = np.zeros(len(fresh), np.int64)
    edit.centres(edges, lengths[fresh], diagonals, every[:, 3].copy(), best)
    open_pairs = np.array([tuple(pair) not in whole for pair in every[fresh, :2].tolist()], bool)
    doc, part = every[fresh, 0][open_pairs], every[fresh, 1][open_pairs]
    if len(doc) == 0:
        return WINDOWS.empty_table()
    count = index.lengths[part].astype(np.int64)
    asked = np.column_stack(
        [doc, index.begins[index.rows[part]], count, index.sizes[part].astype(np.int64), best[open_pairs]]
    )
    out = np.empty((len(asked), 8), np.int64)
    edit.measure(ours.units, ours.bounds, index.held, asked, SHINGLE, GATE, out)
    shingles, common, plain, numbers, distance, first, size, aligned = out.T
    extended = np.where(plainly, edit.extended(ours.units, ours.bounds, index.held, _placed(index, every), BUDGET), 0)
    extended = np.maximum.reduceat(extended, fresh)[open_pairs]
    at = ours.bounds[doc] + first
    byte_start, byte_end = ours.starts[at], ours.ends[at + np.maximum(size, 1) - 1]
    longer = np.maximum(count, size)
    close = np.maximum(common / shingles, plain / count) >= CLOSE
    close |= (aligned == 1) & (1 - distance / longer >= CLOSE)
    identifiers, substrings = [], []
    for k, (own, theirs) in enumerate(_texts(index, ours, asked, part)):
        code = close[k] and looks_like_code(own)
        other = theirs() if code or plain[k] or numbers[k] > 0 else ""
        identifiers.append(code_share(own, other) if code else None)
        substrings.append(bool(plain[k] or numbers[k] > 0) and substring(own, other))
    return pa.table(
        [
            docs[doc], part.astype(np.int32), first.astype(np.int32), size.astype(np.int32),
            byte_start.astype(np.int64), byte_end.astype(np.int64), common / shingles,
            pa.array(1 - distance / longer, mask=aligned == 0), plain / count,
            pa.array(numbers / count, mask=numbers < 0), pa.array(identifiers, pa.float64()), substrings,
            extended.astype(np.int32),
        ],
        WINDOWS,
    )  # fmt: skip


def _placed(index: Index, runs: np.ndarray) -> np.ndarray:
    """Of runs int64[k, 6]: document, place and number of the part's units, then unit, length, unit of the document."""
    begins, lengths = index.begins[index.rows[runs[:, 1]]], index.lengths[runs[:, 1]]
    return np.column_stack([runs[:, 0], begins, lengths, runs[:, 2], runs[:, 3], runs[:, 4]]).astype(np.int64)


def _texts(index: Index, ours: Units, asked: np.ndarray, parts: np.ndarray) -> Iterable[tuple[str, Callable[[], str]]]:
    """The text of each part, and of the window around it, where that is wanted."""
    some, which = np.unique(parts, return_inverse=True)
    owns = index.text.take(pa.array(some)).to_pylist()
    for (doc, _, count, _, diagonal), own in zip(asked.tolist(), which.tolist(), strict=True):

        def theirs(doc: int = doc, count: int = count, diagonal: int = diagonal) -> str:
            low, high, first = int(ours.bounds[doc]), int(ours.bounds[doc + 1]), int(ours.offsets[doc])
            begin = max(low, low + diagonal - count // 2)
            end = min(high, low + diagonal + count + count // 2)
            raw = ours.text[first + int(ours.starts[begin]) : first + int(ours.ends[end - 1])]
            return raw.tobytes().decode("utf-8", "replace")

        yield owns[own], theirs


# --- code --------------------------------------------------------------------------------------------------------


@lru_cache(1 << 12)
def looks_like_code(value: str) -> bool:
    """At least half of the lines that are not blank look like code."""
    lines = [line for line in value.splitlines() if line.strip()]
    return bool(lines) and 2 * sum(1 for line in lines if SIGNS.search(line)) >= len(lines)


def code_units(value: str) -> list[str]:
    """Identifiers, numbers, strings, operators; the first three masked by one sign each, words of languages kept."""
    return [_mask(token) for token in TOKEN.findall(value)]


@lru_cache(1 << 16)
def _mask(token: str) -> str:
    if token[0] in "\"'" and len(token) > 1:
        return '""'
    if token[0].isdigit():
        return "0"
    return "i" if (token[0].isalpha() or token[0] == "_") and token not in KEPT else token


_code_units = lru_cache(1 << 10)(code_units)  # of parts


class _Signs(dict[str, str]):
    """A character for each unit: slices of a string are made and compared faster than lists."""

    def __missing__(self, unit: str) -> str:
        self[unit] = sign = chr(len(self))
        return sign


def code_share(own: str, theirs: str, n: int = CODE_N) -> float:
    """Share of the code units of a part that lie in n-grams of them which the other text has; 0 if it has fewer."""
    signs = _Signs()
    units, others = ("".join(map(signs.__getitem__, found)) for found in (_code_units(own), code_units(theirs)))
    held = {others[i : i + n] for i in range(len(others) - n + 1)}
    covered, reached = 0, 0
    for i in range(len(units) - n + 1):
        if units[i : i + n] in held:
            covered += i + n - max(reached, i)
            reached = i + n
    return covered / len(units) if units else 0.0


# --- substrings --------------------------------------------------------------------------------------------------


def substring(own: str, theirs: str) -> bool:
    """Whether 50 letters and digits of a part, from 0, 10, 20..., occur in a text, all else taken out of both."""
    other = _bare(theirs)
    if len(own) <= LONG:
        return any(piece in other and any(wanted in other for wanted in those) for piece, those in _wanted(own))
    wanted, size = _substrings(_bare(own)), min(SUBSTRING, len(_bare(own)))
    return size > 0 and any(other[at : at + size] in wanted for at in range(len(other) - size + 1))


def _substrings(bare: str) -> frozenset[str]:
    last = max(len(bare) - SUBSTRING, 0)
    return frozenset(bare[at : at + SUBSTRING] for at in (*range(0, last, STRIDE), last))


def _bare(value: str) -> str:
    return NOT_BARE.sub("", value) if not value.isascii() else value.encode().translate(None, SIGNS_OF_ASCII).decode()


@lru_cache(1 << 10)
def _wanted(value: str) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """What of a part is looked for, by a piece that it shares with others and that is looked for first."""
    bare = _bare(value)
    last, many = max(len(bare) - SUBSTRING, 0), SUBSTRING // STRIDE
    groups: dict[str, list[str]] = {}
    for at in range(0, last, STRIDE):
        middle = at // SUBSTRING * SUBSTRING + (many - 1) * STRIDE  # the one of these places that all hold
        groups.setdefault(bare[middle : middle + STRIDE], []).append(bare[at : at + SUBSTRING])
    if bare:
        groups.setdefault(bare[last:], []).append(bare[last:])
    return tuple((piece, tuple(those)) for piece, those in groups.items())
