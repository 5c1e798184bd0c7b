"""
What a hit says of an example: one bit for each thing that the rules of classes.py ask for.

A text that several examples have speaks for each of them.  Tests speak only where they are found as they are: with
other numbers and names they are any calls of any function.
"""

import numpy as np

from datapipe.contamination.hits import Hits
from datapipe.contamination.intervals import spread
from datapipe.contamination.model import CHOICES, PASSAGE, PROMPT, TESTS, VARIANT
from datapipe.contamination.template import Side, Template, dense

CROWD = 64  # examples that share a text which is no evidence alone: more are not looked for beside other parts

(
    PROMPT_FOUND,
    PROMPT_ALIKE,  # nearly the same text
    PROMPT_VARIED,  # other numbers or identifiers
    PROMPT_WHOLE,  # shorter than n, from end to end
    PROMPT_STOCK,  # many examples have it, from end to end
    ANSWER_FOUND,
    ANSWER_ALIKE,
    ANSWER_VARIED,
    SUPPLIED,  # a variant that somebody supplied
    PASSAGE_FOUND,
    ANSWERED,  # an answer lies beside the prompt
    COMPLETED,  # choices or passage lie beside a prompt that is no evidence alone
    PROMPT_PART,  # a piece of a short question about something else
    STATED,  # an answer too short, or of too few words, to be evidence alone
) = (1 << place for place in range(14))
PROMPTED = PROMPT_FOUND | PROMPT_ALIKE | PROMPT_VARIED | PROMPT_WHOLE | PROMPT_STOCK | PROMPT_PART


def said_of(
    side: Side, hit: Hits, shared: Template, only: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """
    (row of hits, part, bits): each hit for every part that has the text, where it says something.  only: int64 a
    document, numbered from 0: the one example that is asked about there, -1: all.
    """
    by = np.argsort(side.same, kind="stable")
    begins, ends = whose(side, by, hit, only)
    # a text that a crowd shares is looked for only where it flags by itself, which stock never does
    crowd = shared.stock[hit.part] & (np.bincount(side.same, minlength=len(side.same))[hit.part] > CROWD)
    row, place = spread(begins, np.where(crowd, begins, ends))
    part, stock = by[place], shared.stock[hit.part]
    row, part = _crowded(side, hit, by, begins, ends, crowd, row, part)
    prompt, passage, supplied = (side.of_kind(kind)[part] for kind in (PROMPT, PASSAGE, VARIANT))
    answering, checks = side.answering[part], side.of_kind(TESTS)[part]
    found, alike, varied, whole = (column[row] for column in (hit.plain, hit.alike, hit.varied, hit.whole))
    bits = np.zeros(len(row), np.int64)
    short = (side.layout.units < side.layout.n)[part]
    asked = found | alike | varied
    quoted = prompt & asked & hit.quotes[row]
    # a question of few units about a passage or choices is asked of others too: a piece of it is not the item
    about = np.bincount(side.example, side.of_kind(PASSAGE, CHOICES), len(side.whole)) > 0
    common = shared.shared_in(side.layout)[hit.part[row]]
    piece = prompt & (found | alike) & hit.few[row] & ~hit.entire[row] & common & about[side.example[part]] & ~quoted
    prompt &= ~quoted & ~piece
    # a choice is a statement, and any answer may be an idiom
    choice = listed(side)[part]
    alone = ~hit.idle[row] & ~(choice & hit.few[row])
    for chosen, bit in (
        (prompt & found, PROMPT_FOUND), (prompt & alike, PROMPT_ALIKE), (prompt & varied, PROMPT_VARIED),
        (prompt & whole & short & ~stock[row], PROMPT_WHOLE), (prompt & whole & stock[row], PROMPT_STOCK),
        (piece, PROMPT_PART), (answering & found & alone, ANSWER_FOUND),
        (answering & alike & alone & ~checks, ANSWER_ALIKE), (answering & varied & ~checks, ANSWER_VARIED),
        (answering & (found | (alike & ~checks)) & ~alone, STATED),
        (supplied & (found | alike | varied), SUPPLIED), ((passage & found) | quoted, PASSAGE_FOUND),
    ):  # fmt: skip
        bits[chosen] |= bit
    # a right choice among wrong ones is a choice list
    wrong = side.of_kind(CHOICES)[part] & ~side.correct[part] & (found | alike | varied | hit.there[row])
    pair, first = dense(side.example[part], hit.doc[row])
    lists = np.zeros(len(first), bool)
    lists[pair[wrong]] = True
    bits[lists[pair] & choice] = 0
    kept = (bits != 0) | wrong
    return row[kept], part[kept], bits[kept]


def whose(side: Side, by: np.ndarray, hit: Hits, only: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
    """Of each hit the parts that have the text, as begins and ends in `by`, where parts stand by text and example."""
    if only is None:
        return np.searchsorted(side.same[by], hit.part, "left"), np.searchsorted(side.same[by], hit.part, "right")
    size, one = len(side.whole), only[hit.doc]
    keys, first = side.same[by].astype(np.int64) * size + side.example[by], hit.part.astype(np.int64) * size
    begins = np.searchsorted(keys, first + np.maximum(one, 0), "left")
    return begins, np.searchsorted(keys, first + np.where(one < 0, size, one + 1), "left")


def _crowded(
    side: Side, hit: Hits, by: np.ndarray, begins: np.ndarray, ends: np.ndarray, crowd: np.ndarray, row: np.ndarray,
    part: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:  # fmt: skip
    """With the texts of crowds for those examples that the same document holds another part of."""
    crowds = np.flatnonzero(crowd & hit.whole)
    size = len(side.whole)
    more: list[tuple[np.ndarray, np.ndarray]] = [(row, part)]
    told = hit.plain[row]
    docs, examples = hit.doc[row[told]], side.example[part[told]]
    order = np.argsort(docs, kind="stable")
    docs, examples = docs[order], examples[order]
    for one in crowds.tolist():
        mine = by[begins[one] : ends[one]]
        low, high = np.searchsorted(docs, [hit.doc[one], hit.doc[one] + 1])
        held = np.zeros(size, bool)
        held[examples[low:high]] = True
        mine = mine[held[side.example[mine]]] if high > low else mine[:0]
        more.append((np.full(len(mine), one), mine))
    rows, parts = (np.concatenate(column) for column in zip(*more, strict=True))
    order = np.lexsort((parts, rows))
    return rows[order], parts[order]


def listed(side: Side) -> np.ndarray:
    """bool a part: an answer that is one of the choices of its example, as a right choice is."""
    size = len(side.same) + 1
    key = side.example * size + side.same
    return side.answering & np.isin(key, key[side.of_kind(CHOICES)])
