"""
The worked examples of the contamination metrics, as data: texts, and what each measure must say of them.

Values were computed apart from the code, with a small script.  An example that is about one part against documents is
a Case; the others are figures of their own.  `match` is the matcher in obvious code that makes runs of them.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import naive
import numpy as np
import pyarrow as pa

from datapipe.contamination.metrics import Grams, Layout


@dataclass(frozen=True)
class Case:
    """
    A part against documents.  expected: measure -> value, None for null.

    excluded: n-grams that are common, as text;  cut: text -> units
    """

    number: int
    about: str
    part: str
    documents: Sequence[str]
    n: int
    expected: dict[str, float | int | bool | None]
    excluded: Sequence[str] = ()
    cut: Callable[[str], list[str]] = field(default=naive.units, repr=False)
    eval_df: dict[str, int] = field(default_factory=dict)  # of n-grams, where other examples hold them
    examples: int = 1


E10 = "a b c d e f g h i j"
L12 = "a b c d e f g h i j k l"
FORTY = [f"w{i}" for i in range(40)]
TWENTY = [f"v{i}" for i in range(20)]
BOILERPLATE = "answer the following question which river flows through old lima city"
PLEASE = "please answer the following question what is two plus two"


def some(units: Sequence[str], low: int, high: int) -> str:
    return " ".join(["so", *units[low:high], "no"])


def digits_masked(text: str) -> list[str]:
    return ["#" if unit.isdigit() else unit for unit in naive.units(text)]


def no_marks(text: str) -> list[str]:
    import unicodedata

    plain = "".join(c for c in unicodedata.normalize("NFKD", text) if not unicodedata.combining(c))
    return naive.units(plain)


CASES = [
    Case(1, "whole", E10, [f"x {E10} y"], 4, {"any": True, "ngram_ratio": 1.0, "token_ratio": 1.0, "longest": 10}),
    Case(2, "a unit is changed", E10, ["a b c d Z f g h i j"], 4,
         {"ngram_ratio": 3 / 7, "token_ratio": 0.9, "run_union": 5, "longest": 5, "longest_ratio": 0.5}),
    Case(3, "two documents chain", "a b c d e", ["a b c d", "b c d e"], 3,
         {"ngram_ratio": 1.0, "token_ratio": 1.0, "run_union": 5, "longest": 4, "longest_ratio": 0.8,
          "best_doc_ratio": 0.8}),
    Case(4, "three documents", " ".join(FORTY), [some(FORTY, 0, 8), some(FORTY, 12, 20), some(FORTY, 30, 38)], 8,
         {"token_ratio": 0.6, "ngram_ratio": 3 / 33, "longest": 8, "longest_ratio": 0.2, "best_doc_ratio": 0.2}),
    Case(5, "one run of nine", " ".join(TWENTY), [some(TWENTY, 3, 12)], 8,
         {"ngram_ratio": 2 / 13, "token_ratio": 0.45}),
    Case(6, "a part that repeats itself", "ha ha ha ha ha", ["so ha ha ha no"], 3,
         {"ngram_ratio": 1.0, "unique_ratio": 1.0, "token_ratio": 1.0, "longest": 3, "longest_ratio": 0.6,
          "best_doc_ratio": 1.0}),
    Case(7, "two lengths", L12, ["a b c d e f", "e f g h"], 4,
         {"ngram_ratio": 4 / 9, "token_ratio": 8 / 12, "run_union": 6, "longest": 6, "longest_ratio": 0.5,
          "best_doc_ratio": 0.5}),
    Case(10, "boilerplate", BOILERPLATE, [PLEASE], 3, {"ngram_ratio": 2 / 9, "token_ratio": 4 / 11}),
    Case(10, "boilerplate excluded", BOILERPLATE, [PLEASE], 3,
         {"ngram_ratio": 0.0, "token_ratio": 0.0, "positions": 7, "live_units": 9},
         excluded=("answer the following", "the following question")),
    Case(10, "all excluded", BOILERPLATE, [PLEASE], 3,
         {"ngram_ratio": None, "token_ratio": None, "any": None, "longest_ratio": None, "positions": 0},
         excluded=[" ".join(BOILERPLATE.split()[i : i + 3]) for i in range(9)]),
    Case(11, "weights by examples", "a b c d", ["a b c"], 2,
         {"unique_ratio": 2 / 3, "idf_decon": 0.5, "idf": 0.53240}, eval_df={"a b": 4}, examples=4),
    Case(11, "one example", "a b c d", ["a b c d"], 2, {"idf_decon": None, "idf": 1.0}),
    Case(12, "weights by count", "a b c d e f", ["a b x b c x b c x c d x c d x c d x c d"], 2,
         {"ngram_ratio": 0.6, "weighted": 0.35}),
    Case(13, "unspaced", "中国的首都是哪里", ["问：中国的首都是哪里？答：北京"], 5,
         {"units": 8, "ngram_ratio": 1.0, "token_ratio": 1.0}),
    Case(13, "unspaced, as words", "中国的首都是哪里", ["问：中国的首都是哪里？答：北京"], 5,
         {"units": 1, "ngram_ratio": None, "token_ratio": None}, cut=str.split),
    Case(14, "compatibility and case", "Don’t use naïve ﬁlters.", ["don't use naive filters"], 3,
         {"units": 5, "ngram_ratio": 1 / 3, "token_ratio": 3 / 5}),
    Case(14, "marks stripped", "Don’t use naïve ﬁlters.", ["don't use naive filters"], 3,
         {"ngram_ratio": 1.0, "token_ratio": 1.0}, cut=no_marks),
    Case(15, "wrapped", "the quick brown fox jumps", ["the quick\nbrown fox\njumps"], 3, {"ngram_ratio": 1.0}),
    Case(15, "wrapped, cut at blanks", "the quick brown fox jumps", ["the quick\nbrown fox\njumps"], 3,
         {"ngram_ratio": 0.0}, cut=lambda text: text.split(" ")),
    Case(16, "numbers", "tom has 12 apples and buys 7 more how many apples",
         ["tom has 15 apples and buys 9 more how many apples"], 5, {"positions": 7, "ngram_ratio": 0.0}),
    Case(16, "numbers masked", "tom has 12 apples and buys 7 more how many apples",
         ["tom has 15 apples and buys 9 more how many apples"], 5, {"positions": 7, "ngram_ratio": 1.0},
         cut=digits_masked),
    Case(17, "short", "what is 2 2", ["so what is 2 2"], 8, {"units": 4, "ngram_ratio": None, "longest_ratio": None}),
]  # fmt: skip

# 8. part of 20 units, n = 8: (units of the document, best_doc_ratio, flagged by tulu3)
CHANGED = [*TWENTY[:7], "other", *TWENTY[8:15]]
TULU = [
    (TWENTY[:15], 0.75, True),
    (TWENTY[:10], 0.5, False),
    (CHANGED, 0.0, False),
]

# 9. extension of a..l over substitutions: budget -> (span, matched)
EXTENDED = {0: (4, 4), 1: (7, 6), 2: (10, 8), 3: (12, 9)}
SUBSTITUTED = "a b c d X f g Y i j Z l"

# 12. occurrences of the matched n-grams, filter
RARE = 2, 0.4

# 18. documents by what they hold -> class; W = 100
PAIRS = [
    ("prompt only", "prompt"),
    ("prompt, answer 6 units later", "adjacent"),
    ("prompt, answer 500 units later", "prompt"),
    ("solution only", "solution"),
    ("passage only", "passage"),
]

# 19. 200 examples, 50 untested, 12 flagged
SET = {"clean": 138, "prompt": 12, "untested": 50}
SET_RATE, SET_WILSON, SET_BOUNDS = 0.08, (0.0464, 0.1346), (0.06, 0.31)
NOTHING_OF_150 = 0.025, 0.02  # Wilson's upper end, rule of three

# 20. (correct, of) of all and of flagged
ALL, DIRTY = (70, 100), (34, 40)
EPG, Z_CLEAN, Z_DIRTY = 10.0, -2.66, 2.66

# 21. a probe every s positions, n: the shortest run that is always hit; an offset at which one shorter is missed
STRIDE, PROBED_N, ALWAYS, MISSED = 10, 5, 14, 1

# 22. question overlap, its n-grams, answer overlap, units of question and of both
DECON = {"question": 0.9, "question_grams": 10, "answer": 1.0}
DECON_SCORE, DECON_GATE = 0.8389, 0.9048

# 23. shingles of the part, found, of the document: containment, Jaccard
CONTAINED = 10, 8, 1000, 0.8, 0.008

# 24. n, units of the item, units of its block: ratio of the block's n-grams, of the part's
DILUTED = 13, 30, 60, 18 / 48, 1.0


# --- the matcher ------------------------------------------------------------------------------------------------


def match(part: Sequence[str], document: Sequence[str], n: int) -> list[tuple[int, int, int]]:
    """[(start, length, doc_unit)]: maximal contiguous matches of n units and more; a shorter part as a whole."""
    found = []
    least = min(n, len(part))
    for start in range(len(part)):
        for at in range(len(document)):
            if part[start] != document[at] or (start and at and part[start - 1] == document[at - 1]):
                continue
            length = 0
            while (
                start + length < len(part)
                and at + length < len(document)
                and part[start + length] == document[at + length]
            ):
                length += 1
            if length >= least and length:
                found.append((start, length, at))
    return found


RUNS = pa.schema(
    [("doc", pa.int64()), ("part", pa.int32()), ("start", pa.int32()), ("length", pa.int32()), ("doc_unit", pa.int32())]
)


def runs_of(
    parts: Sequence[Sequence[str]], documents: Sequence[Sequence[str]], n: int, firsts: Sequence[int] | None = None
) -> pa.Table:
    """RUNS of the first of equal parts; whole short ones too.  firsts: where it is not to be seen from the parts."""
    firsts = firsts or first_of(parts)
    rows = [
        (doc, number, *place)
        for doc, document in enumerate(documents)
        for number, part in enumerate(parts)
        if firsts[number] == number
        for place in match(part, document, n)
    ]
    return pa.Table.from_arrays(
        [pa.array(column, kind.type) for column, kind in zip(zip(*rows, strict=True), RUNS, strict=True)]
        if rows
        else [pa.array([], kind.type) for kind in RUNS],
        schema=RUNS,
    )


def first_of(parts: Sequence[Sequence[str]]) -> list[int]:
    return [next(i for i, other in enumerate(parts) if list(other) == list(part)) for part in parts]


def grams_in(units: Sequence[str], n: int) -> list[tuple[str, ...]]:
    return [tuple(units[i : i + n]) for i in range(len(units) - n + 1)]


def layout_of(parts: Sequence[Sequence[str]], n: int) -> tuple[Layout, list[tuple[str, ...]]]:
    """(layout, the n-gram of each number)."""
    own = [grams_in(part, n) for part in parts]
    names = list(dict.fromkeys(gram for grams in own for gram in grams))
    number = {gram: i for i, gram in enumerate(names)}
    layout = Layout(
        np.array([len(part) for part in parts], np.int32),
        np.full(len(parts), n, np.int32),
        np.array(first_of(parts), np.int32),
        np.concatenate([[0], np.cumsum([len(grams) for grams in own])]).astype(np.int64),
        np.array([number[gram] for grams in own for gram in grams], np.int32),
    )
    return layout, names


def counts_of(
    names: Sequence[tuple[str, ...]], documents: Sequence[Sequence[str]], n: int, eval_df: dict[str, int], examples: int
) -> Grams:
    held = [grams_in(document, n) for document in documents]
    return Grams(
        np.array([sum(name in grams for grams in held) for name in names], np.int64),
        np.array([sum(grams.count(name) for grams in held) for name in names], np.int64),
        np.array([eval_df.get(" ".join(name), 1) for name in names], np.int64),
        len(documents),
        examples,
    )
