"""
Token ids put together from chunks, so that the tokenizer sees each distinct chunk once.

A pre-tokenizer cuts a text into pieces, and the model encodes each piece by itself.  Where a border of pieces lies
between two characters whatever stands around them, a text may be cut there: the ids of the two halves, one after the
other, are the ids of the whole.  For the pre-tokenizers below such pairs of characters are known; their patterns look
ahead only, and only over white space, so what stands before a border cannot matter behind it:

gpt2   ByteLevel's own pattern.  A run of letters, of digits, or of other marks ends where another kind begins; an
       apostrophe may belong to either side (`'s`, `"'`).  In a piece nothing comes before white space but white space:
       so a border lies before it, but perhaps not behind it.
cl100k The same, but one mark may stand before letters, and line breaks behind marks.
words  Whitespace: `\\w+|[^\\w\\s]+`, white space dropped; the underscore is a letter.
blanks WhitespaceSplit.

Both characters are ASCII, or the second is, and the first is no white space in any version of Unicode.  NFC is safe
here: ASCII before ASCII never composes, and what a mark behind the second makes of it is of the same kind.
Any other tokenizer gets whole texts.
"""

import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from datapipe.kernels import pieces as kernels
from datapipe.kernels.pieces import APOSTROPHE, BLANK, BREAK, CLASSES, DIGIT, LETTER, MARK, SOLID, UNDERSCORE

GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
CL100K = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
QWEN2 = CL100K.replace("{1,3}", "")
MARKS = (MARK, UNDERSCORE)
SOLIDS = (LETTER, DIGIT, APOSTROPHE, SOLID, *MARKS)
ENTRIES = 1 << 19  # a power of 2
STORED = 1 << 24
WINDOW = 1 << 17  # chunks that are looked up at a time
WINDOW_BYTES = 1 << 20
LINE = 1 << 14  # bytes of chunks that the tokenizer gets as one text: a call costs as much as some 20 bytes
Ids = tuple[np.ndarray, np.ndarray]  # offsets int64[n + 1], ids int32


def borders(spec: dict[str, Any]) -> np.ndarray | None:
    """uint8[CLASSES, CLASSES] for the tokenizer.json, or None where no border is known to be safe."""
    added = any(not token["special"] for token in spec["added_tokens"])
    normalizer = spec.get("normalizer")
    if added or normalizer not in (None, {"type": "NFC"}) or not _leaves_ids(spec.get("post_processor")):
        return None
    kind = _kind(spec.get("pre_tokenizer"))
    return None if kind is None else _table(PAIRS[kind])


def _table(pairs: Iterable[tuple[Iterable[int], Iterable[int]]]) -> np.ndarray:
    table = np.zeros((CLASSES, CLASSES), np.uint8)
    for before, after in pairs:
        for one in before:
            table[one, list(after)] = 1
    return table


# kind -> (classes before, classes after) with a border between
PAIRS = {
    "gpt2": [
        ((LETTER,), (DIGIT, APOSTROPHE, *MARKS)),
        ((DIGIT,), (LETTER, APOSTROPHE, *MARKS)),
        (MARKS, (LETTER, DIGIT)),
        (SOLIDS, (BLANK, BREAK)),
    ],
    "cl100k": [
        ((LETTER,), (DIGIT, APOSTROPHE, BREAK, *MARKS)),
        ((DIGIT,), (LETTER, APOSTROPHE, BREAK, *MARKS)),
        ((APOSTROPHE, *MARKS), (DIGIT,)),
        (SOLIDS, (BLANK,)),
    ],
    "words": [
        ((LETTER, DIGIT, UNDERSCORE), (MARK, APOSTROPHE)),
        ((MARK, APOSTROPHE), (LETTER, DIGIT, UNDERSCORE)),
        (SOLIDS, (BLANK, BREAK)),
    ],
    "blanks": [(SOLIDS, (BLANK, BREAK))],
}


def _kind(pre: dict[str, Any] | None) -> str | None:
    match pre:
        case {"type": "ByteLevel", "add_prefix_space": False} if pre.get("use_regex", True):
            return "gpt2"
        case {"type": "Whitespace"}:
            return "words"
        case {"type": "WhitespaceSplit"}:
            return "blanks"
        case {
            "type": "Sequence",
            "pretokenizers": [
                {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False},
                {"type": "ByteLevel", "add_prefix_space": False, "use_regex": False},
            ],
        }:
            return {GPT2: "gpt2", CL100K: "cl100k", QWEN2: "cl100k"}.get(pattern)
    return None


def widths(spec: dict[str, Any], vocab: dict[str, int]) -> np.ndarray | None:
    """int32, bytes of text that each id stands for, or None where ids do not spell the text's bytes one by one."""
    if spec.get("normalizer") is not None or _kind(spec.get("pre_tokenizer")) not in ("gpt2", "cl100k"):
        return None
    found = np.zeros(max(vocab.values(), default=0) + 1, np.int32)
    for token, number in vocab.items():
        found[number] = len(token)  # ByteLevel writes each byte as one character
    return found


def _leaves_ids(post: dict[str, Any] | None) -> bool:
    """Whether a post-processor leaves the ids of a text as they are when it may add no special tokens."""
    match post:
        case None | {"type": "ByteLevel" | "BertProcessing" | "RobertaProcessing"}:
            return True
        case {"type": "TemplateProcessing", "single": single}:
            return [piece["Sequence"]["id"] for piece in single if "Sequence" in piece] == ["A"]
        case {"type": "Sequence", "processors": processors}:
            return all(_leaves_ids(one) for one in processors)
    return False


class Pieces:
    """
    The chunks met so far and their ids.  Of one thread; bounded, and begun anew when full: ids never depend on it.

    encode: texts -> offsets and ids, by the tokenizer itself
    widths: what `widths` gives
    """

    def __init__(self, border: np.ndarray, encode: Callable[[Sequence[str]], Ids], widths: np.ndarray | None = None):
        self._border, self._encode, self._widths = border, encode, widths
        self._hashes = np.empty(ENTRIES, np.uint64)
        self._begin = np.zeros(ENTRIES + 1, np.int64)
        self._stored = np.empty(STORED, np.uint8)
        self._forget()

    def _forget(self) -> None:
        self._used = 0
        self._slots = np.zeros(2 * ENTRIES, np.int32)
        self._ids = np.empty(1 << 16, np.int32)
        self._id_begin = np.zeros(ENTRIES + 1, np.int64)

    def encode(self, data: np.ndarray, offsets: np.ndarray) -> Ids:
        """data uint8, offsets int64[n + 1]: valid UTF-8; offsets int64[n + 1] and ids int32 of the texts."""
        starts, first = kernels.chunks(data, offsets, self._border)
        number = len(starts) - 1
        ends = np.zeros(number + 1, np.int64)
        found = []
        begin = total = 0
        while begin < number:
            stop = int(np.searchsorted(starts, starts[begin] + WINDOW_BYTES, "right")) - 1
            stop = min(max(stop, begin + 1), begin + WINDOW, number)
            ids, here = self._window(data, starts[begin : stop + 1])
            ends[begin + 1 : stop + 1] = here + total
            found.append(ids)
            begin, total = stop, total + len(ids)
        return ends[first], np.concatenate(found) if found else np.empty(0, np.int32)

    def _window(self, data: np.ndarray, starts: np.ndarray) -> Ids:
        """(ids, how many up to each chunk)."""
        number = len(starts) - 1
        if self._used + number > ENTRIES or self._begin[self._used] + WINDOW_BYTES > STORED:
            self._forget()
        table = (self._slots, self._hashes, self._begin, self._stored)
        room = np.empty(number, np.int64)
        before = self._used
        which, used, direct = kernels.look_up(data, starts, table, before, room)
        try:
            self._learn(before, used)
        except BaseException:
            self._forget()  # the table names entries that have no ids
            raise
        sizes = np.diff(starts)[room[:direct]]
        long = [data[starts[c] : starts[c + 1]] for c in room[:direct]]
        direct_begin, direct_ids = self._ids_of(
            np.concatenate(long) if long else data[:0], np.concatenate(([0], np.cumsum(sizes)))
        )
        entry = np.maximum(which, 0)
        counts = self._id_begin[entry + 1] - self._id_begin[entry]
        counts[room[:direct]] = np.diff(direct_begin)
        out, ends = np.empty(int(counts.sum()), np.int32), np.empty(number, np.int64)
        kernels.expand(which, (self._ids, self._id_begin), (direct_ids, direct_begin), out, ends)
        return out, ends

    def _learn(self, before: int, used: int) -> None:
        """Encode the entries from `before` to `used`."""
        first = self._begin[before]
        offsets, ids = self._ids_of(self._stored[first : self._begin[used]], self._begin[before : used + 1] - first)
        have = int(self._id_begin[before])
        if have + len(ids) > len(self._ids):
            more = np.empty(2 * (have + len(ids)), np.int32)
            more[:have] = self._ids[:have]
            self._ids = more
        self._ids[have : have + len(ids)] = ids
        self._id_begin[before + 1 : used + 1] = have + offsets[1:]
        self._used = used

    def _ids_of(self, data: np.ndarray, starts: np.ndarray) -> Ids:
        """data, starts: chunks laid end to end; each encoded by itself, or in lines whose ids tell where chunks end."""
        if self._widths is not None and len(starts) > 1:
            lines = starts[kernels.lines(data, starts, self._border, LINE)]
            _, ids = self._encode(_cut(data, lines))
            ends = np.cumsum(self._widths[ids])
            last = np.searchsorted(ends, starts[1:])
            if ends[-1:] == starts[-1] and np.array_equal(ends[last], starts[1:]):
                return np.concatenate(([0], last + 1)), ids
        return self._encode(_cut(data, starts))


def _cut(data: np.ndarray, starts: np.ndarray) -> list[str]:
    raw, borders = data.tobytes(), starts.tolist()
    return [raw[start:stop].decode() for start, stop in itertools.pairwise(borders)]
