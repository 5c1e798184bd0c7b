"""
The eval side, indexed once: the n-grams of all parts, where they stand, and which of them a match is found from.

Units are those of text.units, without HTML's character references and bare tags, here and in training texts.
Equal texts (by their units) are indexed once; `twin` names the first of them.  An n-gram is n units of a part, or
n_unspaced where most of its units are characters of a script written without blanks.  A part of 3 to n - 1 units is
*short*: one gram of its own length.  One of fewer is *tiny*: no gram, found only beside its prompt.

A gram *seeds* where it has at most HOT places, all texts counted once.  A text all of whose grams are hot keeps its
rarest (the first of equally rare ones), so that none is out of reach, and a template in ten thousand items costs no
more than one item.
"""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import xxhash

from datapipe import memory, text
from datapipe.contamination.intervals import Layout, offsets_of, spread
from datapipe.contamination.model import PROMPT, VARIANT
from datapipe.kernels import gram_index, proof, unicode
from datapipe.kernels import grams as kernels
from datapipe.kernels.grams import SHORT, Table
from datapipe.kernels.jit import given

N, N_UNSPACED, SHORTEST = 8, 12, 3
LONGEST = 32  # lengths below it are bits of a word
HOT = 64  # places of a gram from which matches are still found
SHARED = 16  # examples that may share a prompt for it to be a place to look for their answers at
SIEVE = 12  # bits of filter for a key: 8.5 to 17, for its words are a power of two
STARTS = 20  # the same for how short parts begin, of which two are set: less than the second-level cache
PIECE = 1 << 20  # bytes of parts looked at together
PAIRS = 4096  # of equal texts proved together
RANGES = 4  # bits: grams are made and sorted in so many ranges of their keys
_ALL = np.uint64(0xFFFFFFFFFFFFFFFF)
MASKS = (0xFFFFFFFFFFFFFFFF, 0xFFFFFFFFFFFFFFFF)  # bits used of a unit's hash and of a key; fewer in a test


class Units(NamedTuple):
    """Texts and their units: text uint8, offsets, bounds int64[n + 1], starts, ends uint32, units uint64."""

    text: np.ndarray
    offsets: np.ndarray
    bounds: np.ndarray
    starts: np.ndarray
    ends: np.ndarray
    units: np.ndarray


@dataclass(frozen=True, eq=False)
class Index:
    """
    parts: PARTS as given.  twin int32[parts]: the first part of equal units; what is found names only firsts.
    lengths int32[parts]: units.  sizes int32[parts]: the n of the part.  n_grams: distinct grams, 0 to n_grams - 1.
    """

    parts: pa.Table
    n: int
    n_unspaced: int
    twin: np.ndarray
    lengths: np.ndarray
    sizes: np.ndarray
    held: np.ndarray  # uint64: the units of the firsts, a 0 before each and at the end
    firsts: np.ndarray  # int32: the part of each text held
    rows: np.ndarray  # int32[parts]: the row of the part's text in `firsts`; 0 where it has no unit
    begins: np.ndarray  # int64[firsts + 1]: where its units begin in `held`, and one behind the end
    table: Table
    masked: Table
    sieves: tuple[np.ndarray, ...]  # filters, as of kernels.grams.search
    masked_sieves: tuple[np.ndarray, ...]
    wanted: np.ndarray  # uint32: by start of three units, as bits how long the short parts are that begin so
    anchors: np.ndarray  # int32[parts]: row of beside_offsets of a prompt, -1 where it is none
    beside: tuple[np.ndarray, np.ndarray, np.ndarray]  # int64: offsets; places in `held`, lengths of short, tiny parts
    masks: tuple[np.uint64, np.uint64]

    @property
    def n_grams(self) -> int:
        return len(self.table.keys)

    @classmethod
    def build(cls, parts: pa.Table, n: int = N, n_unspaced: int = N_UNSPACED) -> Self:
        """Of a table of PARTS.  n and n_unspaced: 2 to 32."""
        if not 2 <= n <= LONGEST or not 2 <= n_unspaced <= LONGEST:
            raise ValueError(f"n-grams of {n} and {n_unspaced} units, expected 2 to {LONGEST}")
        masks = np.uint64(MASKS[0]), np.uint64(MASKS[1])
        parts = parts.combine_chunks()
        units, lengths, loose = _units(parts["text"], masks[0])
        sizes = np.where(2 * loose > lengths, n_unspaced, n).astype(np.int32)
        twin = _twins(_text(parts), units, lengths)
        held, firsts, begins = _held(units, lengths, twin)
        del units
        rows_of = np.searchsorted(firsts, twin).astype(np.int32) % max(len(firsts), 1)
        rows = held, begins, lengths[firsts], sizes[firsts], masks[1]
        low, high = sorted([n, n_unspaced])
        table, masked = _table(*rows, False), _table(*rows, True)
        anchors, offsets, near = _beside(parts, twin, lengths, sizes)
        beside = offsets, begins[rows_of[near]], lengths[near].astype(np.int64)
        sieves, wanted = _sieves(table, low, high, held, False, masks[1])
        masked_sieves, _ = _sieves(masked, low, high, held, True, masks[1])
        memory.release()
        return cls(
            parts, n, n_unspaced, twin, lengths, sizes, held, firsts, given(rows_of), begins, table, masked,
            sieves, masked_sieves, wanted, anchors, beside, masks,
        )  # fmt: skip

    @property
    def text(self) -> pa.Array:
        """The texts of the parts, in one piece."""
        return _text(self.parts)

    @cached_property
    def layout(self) -> Layout:
        """The parts as metrics and classes read them; twins repeat the grams of their first."""
        positions = np.maximum(self.lengths - self.sizes + 1, 0)
        positions[self.lengths < self.sizes] = 0
        offsets, begins = offsets_of(positions), self.begins[self.rows]
        grams, numeric = np.empty(int(offsets[-1]), np.int32), np.empty(int(offsets[-1]), np.bool_)
        at = np.full(len(self.held), -1, np.int32)  # the gram at each place; of hot ones the table has few places
        at[self.table.places] = np.repeat(np.arange(self.n_grams, dtype=np.int32), np.diff(self.table.starts))
        numbers = np.zeros(len(self.held) + 1, np.uint32)
        np.cumsum(self.held.astype(np.uint8) & 1, dtype=np.uint32, out=numbers[1:])
        made = Layout(self.lengths, self.sizes, self.twin, offsets, grams, numeric)
        for low, high in made.pieces():
            row, places = spread(begins[low:high], begins[low:high] + positions[low:high])
            sizes, mine = self.sizes[low:high][row], slice(int(offsets[low]), int(offsets[high]))
            grams[mine] = at[places]
            self._hot(grams[mine], places, sizes)
            numeric[mine] = numbers[places + sizes] - numbers[places] == sizes
        return made

    def _hot(self, grams: np.ndarray, places: np.ndarray, sizes: np.ndarray) -> None:
        """Fill in the grams that are below 0.  places: of each in `held`;  sizes: units of each."""
        shift = kernels.shift_of(self.table.bucket)
        for size in {self.n, self.n_unspaced}:
            asked = np.flatnonzero((grams < 0) & (sizes == size))
            for some in np.array_split(asked, 1 + len(asked) * (size + 1) // PIECE):
                text = np.zeros((len(some), size + 1), np.uint64)  # the windows, a 0 behind each
                text[:, :size] = self.held[places[some, None] + np.arange(size)]
                found = np.empty(max(text.size - size + 1, 0), np.int32)
                kernels.grams_of(self.table, shift, text.ravel(), self.held, size, self.masks[1], found)
                grams[some] = found[:: size + 1]

    # --- of one part ---------------------------------------------------------------------------------------------

    def held_of(self, part: int) -> np.ndarray:
        """The units of a part as they are compared: hashes, bit 0 set in numbers."""
        begin = self.begins[self.rows[part]]
        return self.held[begin : begin + self.lengths[part]]

    def units(self, part: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Of the part's own text: hashes uint64[L]; starts, ends int64[L], bytes."""
        one = self.text.slice(part, 1)
        bounds, hashes, starts, ends = text.units(one)
        filled = proof.without_markup(*text.buffers(one), bounds, starts, ends, hashes)
        return hashes[:filled], starts[:filled], ends[:filled]

    def grams(self, part: int) -> np.ndarray:
        """int32: the gram at each of the L - n + 1 positions; one for a short part, none for a tiny one."""
        units, size = self.held_of(part), int(self.sizes[part])
        if len(units) < min(size, SHORTEST):
            return np.empty(0, np.int32)
        length = min(size, len(units))
        out = np.empty(len(units) - length + 1, np.int32)
        code = length if len(units) >= size else length | SHORT
        kernels.grams_of(self.table, kernels.shift_of(self.table.bucket), units, self.held, code, self.masks[1], out)
        return out


def units_of_parts(index: Index, parts: np.ndarray) -> Units:
    """Of the texts of some parts."""
    return _as_units(index.text.take(pa.array(parts)), index.masks[0])


def _text(parts: pa.Table) -> pa.Array:
    """Of a table in one piece; a column's combine_chunks would copy it."""
    column = parts["text"]
    return column.chunk(0) if column.num_chunks else pa.array([], pa.large_string())


def _as_units(texts: pa.Array, bits: np.uint64) -> Units:
    data, offsets = text.buffers(texts)
    bounds, hashes, starts, ends = text.units(texts)
    starts, ends = starts.astype(np.uint32), ends.astype(np.uint32)
    proof.without_markup(data, offsets, bounds, starts, ends, hashes)
    proof.mark(data, offsets, bounds, starts, ends, *unicode.tables(), bits, hashes)
    return Units(data, offsets, bounds, starts, ends, hashes)


def _units(texts: pa.ChunkedArray, bits: np.uint64) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The units of all parts end to end, how many each has, and how many of these are of scripts without blanks."""
    tables = unicode.tables()
    units, total = np.empty(2 * texts.nbytes + 64, np.uint64), 0  # what is not filled costs no memory
    lengths, loose = [np.empty(0, np.int32)], [np.empty(0, np.int64)]
    for chunk in texts.chunks:
        _, edges = text.buffers(chunk)
        for low, high in text.pieces(edges, PIECE):
            piece = chunk.slice(low, high - low)
            bounds, hashes, starts, ends = text.units(piece)
            data, offsets = text.buffers(piece)
            counts, starts, ends = np.zeros(high - low, np.int64), starts.astype(np.uint32), ends.astype(np.uint32)
            filled = proof.without_markup(data, offsets, bounds, starts, ends, hashes)
            proof.mark(data, offsets, bounds, starts, ends, *tables, bits, hashes)
            proof.unspaced(data, offsets, bounds, starts, *tables[:2], counts)
            units[total : total + filled] = hashes[:filled]
            total += filled
            lengths.append(np.diff(bounds).astype(np.int32))
            loose.append(counts)
    return units[:total], np.concatenate(lengths), np.concatenate(loose)


def _twins(texts: pa.Array, units: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """int32[parts]: the first part with equal units, and whose text says that they are."""
    if not len(lengths):
        return np.empty(0, np.int32)
    edges, keys = 0, np.empty(len(lengths), np.uint64)
    for part, count in enumerate(lengths.tolist()):
        keys[part] = xxhash.xxh3_64_intdigest(units[edges : edges + count].data) if count else 0
        edges += count
    _, first, which = np.unique(keys, return_index=True, return_inverse=True)
    twin = first[which].astype(np.int32)
    data, offsets = text.buffers(texts)
    unlike = np.zeros(len(twin), np.bool_)
    proof.unlike(data, offsets, twin, unlike)
    asked = np.flatnonzero(unlike & (lengths > 0))
    for some in np.array_split(asked, 1 + len(asked) // PAIRS):
        whole, rows = lengths[some].astype(np.int64), np.arange(len(some), dtype=np.int64)
        pair = [_as_units(texts.take(pa.array(which)), _ALL) for which in (some, twin[some])]
        runs = np.column_stack([rows, rows, 0 * rows, 0 * rows, whole])
        out = np.empty((len(some) + 1, 3), np.int64)
        alike = out[: proof.prove(pair[0], pair[1], runs, whole, unicode.tables(), False, out), 0]
        apart = np.delete(some, alike)
        twin[apart] = apart  # a hash that two texts share; further texts of it stay apart too
    return twin


def _held(units: np.ndarray, lengths: np.ndarray, twin: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    firsts = np.flatnonzero((twin == np.arange(len(twin))) & (lengths > 0)).astype(np.int32)
    sizes = lengths[firsts].astype(np.int64)
    begins = np.concatenate([np.ones(1, np.int64), 1 + np.cumsum(sizes + 1)])
    if begins[-1] >= 1 << 32:
        raise ValueError(f"{begins[-1]} units of eval parts, expected fewer than 2^32")
    held = _zeros(int(begins[-1]))
    edges = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths, dtype=np.int64)])
    gram_index.gather(units, edges[firsts], sizes, begins, held)
    return given(held), firsts, begins


def _table(held, begins, lengths, sizes, mask, by_mask: bool) -> Table:  # noqa: ANN001
    """The grams of all texts; under the number mask only those with numbers, and not more of them than of others."""
    rows, longest = (held, begins, lengths, sizes, SHORTEST, by_mask, mask, RANGES), int(lengths.max(initial=0))
    sums, scratch = np.zeros(1 << RANGES, np.int64), (np.empty(longest, np.uint64), np.empty(longest, np.uint32))
    gram_index.count_keys(*rows, *scratch, sums)
    room = int(sums.sum())  # what is not filled of the following costs no memory
    keys, codes, counts = np.empty(room, np.uint32), np.empty(room, np.uint8), np.empty(room, np.uint32)
    places, grams, at = np.empty(room, np.uint32), 0, 0
    bits = max(RANGES, room.bit_length() - 2)
    bucket = np.empty((1 << bits) + 1, np.uint32)
    for value, count in enumerate(sums.tolist()):  # range after range of keys: few are whole in memory at a time
        own, there, size = np.empty(count, np.uint64), np.empty(count, np.uint32), np.empty(count, np.uint8)
        gram_index.all_keys(*rows, value, *scratch, own, there, size)
        order, fresh = np.argsort(own), np.zeros(count, np.bool_)
        gram_index.group(own, order, there, size, held, by_mask, fresh)
        heads = np.flatnonzero(fresh)
        first, found = order[heads], slice(grams, grams + len(heads))
        tops = (own[first] >> np.uint64(64 - bits)).astype(np.int64)
        wide = 1 << bits - RANGES
        bucket[value * wide : (value + 1) * wide] = grams + np.searchsorted(tops, np.arange(wide) + value * wide)
        keys[found], codes[found], places[at : at + count] = own[first].astype(np.uint32), size[first], there[order]
        counts[found] = np.diff(heads, append=count)
        grams, at = grams + len(heads), at + count
    bucket[-1] = grams
    keys, codes, counts = keys[:grams], codes[:grams], counts[:grams]
    starts = np.concatenate([np.zeros(1, np.uint32), np.cumsum(counts, dtype=np.uint32)])
    seeds = np.zeros((len(held) + 8) // 8, np.uint8)
    rarest = np.full((len(lengths), 2), np.iinfo(np.int64).max, np.int64)  # how many places, and which
    gram_index.choose(starts, places, codes, begins, HOT, rarest, seeds)
    del counts, rarest
    starts, places = gram_index.thin(starts, places, HOT, seeds)
    return Table(*map(given, (keys, bucket, codes, starts, places, seeds)))


def sample_of(low: int) -> int:
    """Units of a sample: each n-gram of `low` units or more holds one of those at every (low - sample + 1)-th place."""
    return low // 2 + 1


def _sieves(table: Table, low: int, high: int, held, by_mask: bool, mask):  # noqa: ANN001, ANN202
    """The filters, and for starts of short parts how long these are; one word where there is none."""
    sample, codes = sample_of(low), np.arange(256)
    short, count = codes & SHORT > 0, np.bincount(table.lengths, minlength=256)

    def sieve(of: np.ndarray, length: int, stride: int = 1) -> np.ndarray:
        words = _words(int(count[of].sum()), SIEVE)
        gram_index.sift(words, kernels.shift_of(words), table, of, length, stride, held, by_mask, mask)
        return given(words)

    shorts = int(count[short].sum())
    starts = _words(shorts, STARTS)
    wanted = np.zeros(1 << (shorts.bit_length() + 1 if shorts else 0), np.uint32)
    gram_index.sift_starts(starts, table, held, mask, wanted)
    every = (codes == low) | (codes == high)
    sieves = sieve(every, sample, low - sample + 1), sieve(every, low), sieve(codes == high, high), sieve(short, 0)
    return (*sieves, given(starts)), given(wanted)


def _words(count: int, bits: int) -> np.ndarray:
    """Of a filter with about so many bits for each of `count` keys."""
    return _zeros(1 << max(4, round(math.log2(1 + bits * count / 64))))


def _zeros(count: int) -> np.ndarray:
    """uint64.  Unlike those of numpy.zeros large ones get huge pages, where there are any: a scan is a tenth faster."""
    made = np.empty(count, np.uint64)
    made[:] = 0
    return made


def _of(kinds: pa.Array, *wanted: str) -> np.ndarray:
    return pc.call_function("is_in", [kinds], pc.SetLookupOptions(pa.array(wanted))).to_numpy(zero_copy_only=False)


def _beside(parts: pa.Table, twin, lengths, sizes):  # noqa: ANN001, ANN202
    """Which parts to look for behind a prompt: the short and tiny ones of its examples, but prompts and passages."""
    kinds, examples = parts["kind"].combine_chunks(), parts["example"].to_numpy()
    small = (lengths > 0) & (lengths < sizes) & _of(kinds, "answer", "solution", "choices", "tests")
    prompts = (lengths > 0) & _of(kinds, PROMPT, VARIANT)
    of_example: dict[int, list[int]] = {}
    for part in np.flatnonzero(small).tolist():
        of_example.setdefault(int(examples[part]), []).append(int(twin[part]))
    pairs = np.unique(twin[prompts].astype(np.int64) << 32 | examples[prompts])
    of_prompt = np.split(pairs & 0xFFFFFFFF, np.flatnonzero(np.diff(pairs >> 32)) + 1) if len(pairs) else []
    anchors = np.full(len(twin), -1, np.int32)
    offsets, found = [0], []
    for prompt, whose in zip(np.unique(pairs >> 32).tolist(), map(np.ndarray.tolist, of_prompt), strict=True):
        near = sorted({part for example in whose for part in of_example.get(example, ())} - {prompt})
        if near and len(whose) <= SHARED:
            anchors[prompt] = len(offsets) - 1
            found += near
            offsets.append(len(found))
    return anchors, np.asarray(offsets, np.int64), np.asarray(found, np.int64)
