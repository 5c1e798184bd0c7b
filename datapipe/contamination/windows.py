"""
The second stage: what a window of a document that holds a run of a part has of the whole part.

Of each document and part with a run (or a masked run) but none of the whole part, the 2L units around the best
diagonal are looked at, and nothing else.
"""

import re
from functools import lru_cache
from itertools import pairwise

import numpy as np
import pyarrow as pa

from datapipe import text
from datapipe.contamination.index import Index, Units
from datapipe.kernels import edit, proof, unicode
from datapipe.kernels.jit import given

SHINGLE = 5  # units
GATE = 20  # a long part with a smaller share of its shingles in the window than one in so many is not aligned
CLOSE = 0.4  # identifiers are masked where containment, edit or plain is as much: elsewhere they say nothing
CODE_N = 12  # code units in an n-gram
BUDGET = 4  # substitutions that a run is extended over: Llama 2, A.6
SUBSTRING, STRIDE = 50, 10  # letters and digits
DIGITS, THOUSANDS = re.compile(r"\d+"), re.compile(r"(?<=\d)[,'’_ \u00a0\u2009\u202f](?=\d{3}(?!\d))")
LONG = 4096  # letters and digits; of a longer part all substrings are looked for at once

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
        ("letters", pa.bool_()),  # all letters and numbers of the part in a row, in their case: 1,000 is 1000
    ]
)
MEASURES = frozenset(WINDOWS.names[6:])

OPERATORS = (*(sign + "=" for sign in "<>=!+-*/%&|^"), "**", "//", "->", "=>", "&&", "||", "++", "--")
TOKEN = re.compile(rf"[^\W\d]\w*|\d[\w.]*|\"[^\"\n]*\"|'[^'\n]*'|{'|'.join(map(re.escape, OPERATORS))}|[^\w\s]")
MOST_TOKENS = 1 << 16  # whose signs are remembered
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
    some, which = np.unique(part, return_inverse=True)
    owns = index.text.take(pa.array(some))
    spans = _spans(ours, asked)
    identifiers = _identifiers(ours, spans, owns.take(pa.array(which[close])).to_pylist(), close)
    substrings, letters = _substrings_in(ours, spans, owns, which, (plain > 0) | (numbers > 0))
    return pa.table(
        [
            docs[doc], part.astype(np.int32), first.astype(np.int32), size.astype(np.int32),
            byte_start.astype(np.int64), byte_end.astype(np.int64), common / shingles,
            pa.array(1 - distance / longer, mask=aligned == 0), plain / count,
            pa.array(numbers / count, mask=numbers < 0), identifiers, substrings,
            extended.astype(np.int32), letters,
        ],
        WINDOWS,
    )  # fmt: skip


def _placed(index: Index, runs: np.ndarray) -> np.ndarray:
    """Of runs int64[k, 6]: document, place and number of the part's units, then unit, length, unit of the document."""
    begins, lengths = index.begins[index.rows[runs[:, 1]]], index.lengths[runs[:, 1]]
    return np.column_stack([runs[:, 0], begins, lengths, runs[:, 2], runs[:, 3], runs[:, 4]]).astype(np.int64)


def _spans(ours: Units, asked: np.ndarray) -> np.ndarray:
    """int64[k, 2]: the bytes of the window around each part."""
    doc, _, count, _, diagonal = asked.T
    low, high, first = ours.bounds[doc], ours.bounds[doc + 1], ours.offsets[doc]
    begin = np.maximum(low, low + diagonal - count // 2)
    end = np.minimum(high, low + diagonal + count + count // 2)
    return np.column_stack([first + ours.starts[begin], first + ours.ends[end - 1]]).astype(np.int64)


def _identifiers(ours: Units, spans: np.ndarray, owns: list[str], close: np.ndarray) -> pa.Array:
    """code_share of parts and their windows; null where the part is not close, or no code."""
    found: list[float | None] = [None] * len(spans)
    for k, own in zip(np.flatnonzero(close).tolist(), owns, strict=True):
        if looks_like_code(own):
            found[k] = code_share(own, ours.text[slice(*spans[k])].tobytes().decode("utf-8", "replace"))
    return pa.array(found, pa.float64())


def _substrings_in(
    ours: Units, spans: np.ndarray, owns: pa.Array, which: np.ndarray, asked: np.ndarray
) -> tuple[list[bool], list[bool]]:
    """Of parts and their windows: substring, and whether all of the part is one; false where it is not asked for."""
    data, offsets = text.buffers(owns)
    bares, others = bare(data, offsets[:-1], offsets[1:]), bare(ours.text, *spans[asked].T)
    found, whole = [False] * len(spans), [False] * len(spans)
    for k, other in zip(np.flatnonzero(asked).tolist(), others, strict=True):
        found[k] = substring(bares[which[k]], other)
        if found[k] and bares[which[k]] in other:  # hardly ever
            theirs = ours.text[slice(*spans[k])].tobytes().decode("utf-8", "replace")
            whole[k] = lettered(owns[int(which[k])].as_py()) in lettered(theirs)
    return found, whole


# --- code --------------------------------------------------------------------------------------------------------


@lru_cache(1 << 12)
def looks_like_code(value: str) -> bool:
    """At least half of the lines that are not blank look like code."""
    lines = [line for line in value.splitlines() if line.strip()]
    return bool(lines) and 2 * sum(1 for line in lines if SIGNS.search(line)) >= len(lines)


def code_units(value: str) -> str:
    """A sign for each identifier, number, string (one for all of a kind), word of a language and operator."""
    return "".join(map(_signs.__getitem__, TOKEN.findall(value)))


SIGN_OF = {unit: chr(0xD800 + at) for at, unit in enumerate(("i", "0", '""', *OPERATORS, *sorted(KEPT)))}


class _Signs(dict[str, str]):
    """The sign of a token: what is one character is its own; others have surrogates, which no text holds."""

    def __missing__(self, token: str) -> str:
        if token[0] in "\"'" and len(token) > 1:
            sign = SIGN_OF['""']
        elif token[0].isdigit():
            sign = SIGN_OF["0"]
        elif (token[0].isalpha() or token[0] == "_") and token not in KEPT:
            sign = SIGN_OF["i"]
        else:
            sign = SIGN_OF.get(token, token)
        if len(self) >= MOST_TOKENS:
            self.clear()
        self[token] = sign
        return sign


_signs = _Signs()


def code_share(own: str, theirs: str, n: int = CODE_N) -> float:
    """Share of the code units of a part that lie in n-grams of them which the other text has; 0 if it has fewer."""
    grams, count = _code_grams(own, n)
    others = code_units(theirs)
    held = {gram for gram in set(grams) if gram in others}
    covered, reached = 0, 0
    for i, gram in enumerate(grams):
        if gram in held:
            covered += i + n - max(reached, i)
            reached = i + n
    return covered / count if count else 0.0


@lru_cache(1 << 10)
def _code_grams(own: str, n: int) -> tuple[tuple[str, ...], int]:
    """Of a part, in order; and how many code units it has."""
    units = code_units(own)
    return tuple(units[i : i + n] for i in range(len(units) - n + 1)), len(units)


# --- substrings --------------------------------------------------------------------------------------------------


def bare(data: np.ndarray, begins: np.ndarray, ends: np.ndarray) -> list[str]:
    """The letters and numerals of each data[begins[k]:ends[k]], UTF-8, all else taken out."""
    out, bounds = np.empty(int((ends - begins).sum()), np.uint8), np.zeros(len(begins) + 1, np.int64)
    proof.bare(data, given(begins), given(ends), *unicode.tables()[:2], out, bounds)
    whole, edges = out.tobytes(), bounds.tolist()
    return [whole[begin:end].decode("utf-8", "replace") for begin, end in pairwise(edges)]


def lettered(value: str) -> str:
    """Letters and numerals alone, digits that stand together apart from others; without separators of thousands."""
    apart = DIGITS.sub("\ue000\\g<0>\ue001", THOUSANDS.sub("", value))
    return "".join(sign for sign in apart if sign.isalnum() or sign in "\ue000\ue001")


def substring(own: str, theirs: str) -> bool:
    """Whether 50 characters of a bare part, from 0, 10, 20..., occur in a bare text."""
    if len(own) <= LONG:
        return any(piece in theirs and any(wanted in theirs for wanted in those) for piece, those in _wanted(own))
    wanted = _substrings(own)
    return any(theirs[at : at + SUBSTRING] in wanted for at in range(len(theirs) - SUBSTRING + 1))


def _substrings(own: str) -> frozenset[str]:
    last = max(len(own) - SUBSTRING, 0)
    return frozenset(own[at : at + SUBSTRING] for at in (*range(0, last, STRIDE), last))


@lru_cache(1 << 10)
def _wanted(own: str) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """What of a part is looked for, by a piece that it shares with others and that is looked for first."""
    last, many = max(len(own) - SUBSTRING, 0), SUBSTRING // STRIDE
    groups: dict[str, list[str]] = {}
    for at in range(0, last, STRIDE):
        middle = at // SUBSTRING * SUBSTRING + (many - 1) * STRIDE  # the one of these places that all hold
        groups.setdefault(own[middle : middle + STRIDE], []).append(own[at : at + SUBSTRING])
    if own:
        groups.setdefault(own[last:], []).append(own[last:])
    return tuple((piece, tuple(those)) for piece, those in groups.items())
