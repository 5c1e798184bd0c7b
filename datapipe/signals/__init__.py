"""
Signals: numbers about a text that filters put bounds on.  A signal is null where it has no meaning.

A new signal is a function in one of these modules and a line in SIGNALS; VERSION goes up whenever the output of any of
them changes.  Signals named word_* go by words, unit_* by units, both as text.py defines them.
"""

import json
from collections.abc import Callable, Iterator, Sequence

import pyarrow as pa

from datapipe import text
from datapipe.signals import c4, characters, code, lines, repetition, words
from datapipe.signals.measured import Measured

VERSION = 3
BATCH = 1 << 20  # bytes of text that are measured together: they stay in the cache from the first signal to the last

Signal = Callable[[pa.Array | Measured], pa.Array]
SIGNALS: dict[str, Signal] = {
    "word_count": words.word_count,
    "unit_count": words.unit_count,
    "mean_word_length": words.mean_word_length,
    "alpha_ratio": words.alpha_ratio,
    "max_word_length": words.max_word_length,
    "non_symbol_word_count": words.non_symbol_word_count,
    "mean_non_symbol_word_length": words.mean_non_symbol_word_length,
    "english_stop_words": words.english_stop_words,
    "hash_ratio": lines.hash_ratio,
    "ellipsis_ratio": lines.ellipsis_ratio,
    "bullet_line_ratio": lines.bullet_line_ratio,
    "ellipsis_line_ratio": lines.ellipsis_line_ratio,
    "line_punct_ratio": lines.line_punct_ratio,
    "short_line_ratio": lines.short_line_ratio,
    "list_ratio": lines.list_ratio,
    "third_line_length": lines.third_line_length,
    "sentence_count": lines.sentence_count,
    "lorem_ipsum_lines": c4.lorem_ipsum_lines,
    "curly_bracket_lines": c4.curly_bracket_lines,
    "lorem_ipsum_first": c4.lorem_ipsum_first,
    "c4_long_word_lines": c4.c4_long_word_lines,
    "c4_no_terminal_lines": c4.c4_no_terminal_lines,
    "c4_few_word_lines": c4.c4_few_word_lines,
    "c4_javascript_lines": c4.c4_javascript_lines,
    "c4_policy_lines": c4.c4_policy_lines,
    "char_count": characters.char_count,
    "letter_count": characters.letter_count,
    "latin_letter_count": characters.latin_letter_count,
    "letter_ratio": characters.letter_ratio,
    "unit_char_ratio": characters.unit_char_ratio,
    "digit_ratio": characters.digit_ratio,
    "punctuation_ratio": characters.punctuation_ratio,
    "alnum_ratio": characters.alnum_ratio,
    "newline_char_ratio": characters.newline_char_ratio,
    "replacement_ratio": characters.replacement_ratio,
    "control_ratio": characters.control_ratio,
    "mean_line_length": characters.mean_line_length,
    "max_line_length": characters.max_line_length,
    "mean_unit_length": characters.mean_unit_length,
    "hash_unit_ratio": characters.hash_unit_ratio,
    "ellipsis_unit_ratio": characters.ellipsis_unit_ratio,
    "auto_generated": code.auto_generated,
    "encoded_ratio": code.encoded_ratio,
    "encoded_longest": code.encoded_longest,
    **repetition.SIGNALS,
}


def measure(texts: pa.Array, names: Sequence[str]) -> list[pa.ChunkedArray]:
    """The named signals of texts, in one pass over the text; what several signals count is counted once."""
    batches = map(Measured, _pieces(texts)) if len(texts) else [Measured(texts)]  # one at a time in memory
    columns = [[SIGNALS[name](batch) for name in names] for batch in batches]
    return [pa.chunked_array(column) for column in zip(*columns, strict=True)]


def _pieces(texts: pa.Array) -> Iterator[pa.Array]:
    """Slices of about BATCH bytes, at least one text each."""
    yield from (texts[low:high] for low, high in text.pieces(text.buffers(texts)[1], BATCH))


def extra_numbers(extra: pa.Array, names: Sequence[str]) -> list[pa.Array]:
    """
    Extra fields as double, for filters: extra is a JSON object a document, or null; a JSON number is its value, and
    anything else (a string, a boolean, null, no such field) is null.
    """
    objects = [json.loads(value) if value else {} for value in extra.to_pylist()]
    return [pa.array([_number(one.get(name)) for one in objects], pa.float64()) for name in names]


def _number(value: object) -> float | None:
    """A JSON number as a float; one that no float can hold is as far out as its sign."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value)
    except OverflowError:
        return float("inf") if value > 0 else float("-inf")
