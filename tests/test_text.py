"""Normal forms, units, shingles and signatures."""

import random
import unicodedata
from itertools import pairwise

import naive
import numpy as np
import pyarrow as pa
import pytest
import xxhash
from hypothesis import given, settings
from hypothesis import strategies as st

from datapipe import text
from datapipe.kernels import shingles, unicode, words

needs_twin = pytest.mark.skipif(
    unicodedata.unidata_version != unicode.VERSION, reason="the twin has another Unicode version"
)

TEXTS = [
    ("", "empty"),
    (" \t\n\u3000\u2028", "white space only"),
    ("-- !? …", "no units"),
    ("one", "one unit"),
    ("one two three four", "n - 1 units"),
    ("one two three four five", "n units"),
    ("a b a b a b a b a b", "repeated shingles"),
    ("The QUICK brown Fox, aged 7½, said: “naïve café”.", "case, fractions, accents"),
    ("snake_case CamelCase x+=1; y[0]=x<=y", "code: _ separates"),
    ("我们都是中国人。２０２４年，ＡＢＣ", "Han, wide digits and letters"),
    ("ひらがな カタカナ ﾊﾝｶｸ ㌖ が", "kana, narrow kana, squared words, voiced marks apart"),
    ("ภาษาไทย ພາສາລາວ ភាសាខ្មែរ မြန်မာဘာသာ", "Thai, Lao, Khmer, Myanmar with their marks"),
    ("한국어 \u1112\u1161\u11ab 참고㉼", "Hangul as syllables, as jamo, in a circle"),
    ("हिन्दी বাংলা தமிழ் తెలుగు", "Indic scripts keep their vowel signs"),
    ("العربية ﷺ لا إله", "Arabic, with a ligature of four words"),
    ("שָׁלוֹם Ελληνικά Ὀδυσσεύς русский Straße ﬁn İstanbul", "Hebrew points, Greek, Cyrillic, foldings of two letters"),
    ("a\u0301\u0327 a\u0327\u0301 \u00e1\u0327", "marks in either order are the same"),
    ("\u0301x \u0301", "a mark after a separator begins a unit"),
    ("a≠b a=\u0338b a=\u0301\u0338b a=\u0338\u0338b x=\u200b\u0338", "the stroke belongs to the sign, but only once"),
    ("co\u00adop\u200berate \ufeffbom a\ufe0fb", "ignorables are not there"),
    ("nul\x00in\x00side \x1f", "NUL and other controls separate"),
    ("𝐁𝐨𝐥𝐝 𠀀𠀁 😀 𐐀𐐨", "beyond the first plane"),
    ("x" * 100 + " " + "é" * 100, "long units"),
]
VALUES, CASES = [value for value, _ in TEXTS], [case for _, case in TEXTS]

LETTERS = ["é", "中", "ひ", "가", "각", "\u1100", "\u1161", "\u11a8", "ß", "\u0e33", "𝐀", "½", "㌖", "ﷺ", "①", "≠"]
MARKS = ["\u3099", "\u0301", "\u0327", "\u0338", "\u0334", "\u0345", "\u200b", "\U0001d165"]
PIECES = st.one_of(st.text(max_size=8), st.sampled_from([*"aZ9 _=<>-\n\t", *LETTERS, *MARKS, "word ", "слово"]))
anything = st.lists(PIECES, max_size=20).map("".join)


def units_of(texts: pa.Array) -> list[list[tuple[int, int, int]]]:
    offsets, hashes, starts, ends = text.units(texts)
    rows = list(zip(hashes.tolist(), starts.tolist(), ends.tolist(), strict=True))
    return [rows[low:high] for low, high in pairwise(offsets)]


def twin_units(value: str) -> list[tuple[int, int, int]]:
    pairs = zip(naive.units(value), naive.spans(value), strict=True)
    return [(naive.unit_hash(unit), *span) for unit, span in pairs]


# --- normal form -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", VALUES, ids=CASES)
def test_normal_form(value: str) -> None:
    assert text.normal_forms(pa.array([value])).to_pylist() == [naive.normal_form(value).encode()]


@needs_twin
@settings(deadline=None)
@given(st.lists(anything))
def test_normal_form_of_anything(values: list[str]) -> None:
    wanted = [naive.normal_form(value).encode() for value in values]
    texts = pa.array(values, pa.large_string())
    assert text.normal_forms(texts).to_pylist() == wanted
    assert text.text_hashes(texts).to_pylist() == [xxhash.xxh3_128_hexdigest(form) for form in wanted]


@needs_twin
def test_normal_form_of_every_assigned_code_point() -> None:
    # every assigned one, and one of fifty of those to which no version has given a meaning
    every = map(chr, [*range(0xD800), *range(0xE000, 0x110000)])
    points = [c for c in every if unicodedata.category(c) not in ("Cn", "Co") or ord(c) % 50 == 0]
    values = ["".join(f"x{c} {c}\u0301 " for c in points[i : i + 500]) for i in range(0, len(points), 500)]
    assert text.normal_forms(pa.array(values)).to_pylist() == [naive.normal_form(value).encode() for value in values]


@needs_twin
def test_normal_form_under_another_interpreter_cuts_at_unassigned_code_points(monkeypatch: pytest.MonkeyPatch) -> None:
    values = ["e\u0301\U000323b0e\u0301", "\u0378a\u030a", "\U0010ffffo\u0308"]
    wanted = text.normal_forms(pa.array(values))
    monkeypatch.setattr(text, "UNICODE", "another")
    assert text.normal_forms(pa.array(values)) == wanted


def test_a_text_of_marks_takes_linear_time() -> None:
    count = 200_000  # unicodedata alone: minutes
    form = text.normal_forms(pa.array(["a" + "\u0301\u0327" * count]))[0].as_py().decode()
    assert form == "\u00e1" + "\u0327" * count + "\u0301" * (count - 1)
    assert text.unit_counts(pa.array(["a" + "\u0301\u0327" * count])).tolist() == [1]


# --- units -----------------------------------------------------------------------------------------------------


@needs_twin
@pytest.mark.parametrize("value", VALUES, ids=CASES)
def test_units(value: str) -> None:
    assert units_of(pa.array([value])) == [twin_units(value)]


@needs_twin
@settings(deadline=None)
@given(st.lists(anything))
def test_units_of_anything(values: list[str]) -> None:
    assert units_of(pa.array(values, pa.large_string())) == [twin_units(value) for value in values]


@needs_twin
def test_units_of_marks_and_letters_of_every_script() -> None:
    rng = random.Random(5)
    points = [chr(cp) for cp in range(0x20000) if unicodedata.category(chr(cp))[0] in "LMNS"]
    marks = [c for c in points if unicodedata.category(c)[0] == "M"]
    values = ["".join(rng.choice(rng.choice([marks, points, "a =中\u0338"])) for _ in range(15)) for _ in range(3000)]
    assert units_of(pa.array(values)) == [twin_units(value) for value in values]


def test_equivalent_texts_have_equal_units() -> None:
    values = ["Ångström ﬁle café ｶﾞ 한", unicodedata.normalize("NFD", "ÅNGSTRÖM FILE CAFÉ ガ 한")]
    first, second = ([hashed for hashed, _, _ in found] for found in units_of(pa.array(values)))
    assert first == second


def test_more_units_than_are_fetched_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text, "_ROUND", 40)
    values = ["½" * 300, "㌖a" * 50, "Été " * 100, "", "x" * 500]
    assert units_of(pa.array(values)) == [twin_units(value) for value in values]


def test_text_that_is_not_utf8_is_not_read_beyond_its_end() -> None:
    data = [b"abc\xe4", b"\xf0\x9f\x98", b"\xff\xfe\x80", b"a\xc3", b"\xf7\xbf\xbf\xbf", b"ok"]
    texts = pa.array(data, pa.large_binary()).view(pa.large_string())
    assert text.unit_counts(texts).tolist() == [1, 0, 0, 1, 0, 1]


# --- arrays ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("type_", [pa.string(), pa.large_string()], ids=str)
@pytest.mark.parametrize("low,high", [(0, 0), (3, 3), (1, 9), (5, len(VALUES)), (0, len(VALUES))])
def test_slices_give_what_copies_give(type_: pa.DataType, low: int, high: int) -> None:
    part, copy = pa.array(VALUES, type_)[low:high], pa.array(VALUES[low:high], type_)
    assert units_of(part) == units_of(copy)
    assert text.normal_forms(part) == text.normal_forms(copy)
    assert text.text_hashes(part) == text.text_hashes(copy)
    for function in (lambda x: text.shingle_sets(x, 5), lambda x: text.signatures(x, 5, 16)):
        for ours, theirs in zip(function(part), function(copy), strict=True):
            assert ours.dtype == theirs.dtype
            assert np.array_equal(ours, theirs)


def test_kernels_are_compiled_once_whatever_the_texts_come_in() -> None:
    """Counted from the first texts on: the audit runs `units_of` with narrower offsets, compiled for itself."""
    kernels = [getattr(shingles, name) for name in ("signatures", "units_of", "shingles_of", "distinct", "buckets")]
    kernels.append(words.collapse)
    compiled = []
    for texts in (pa.array(VALUES), pa.array(VALUES, pa.large_string())[2:], pa.array([], pa.string())):
        rows, _ = text.signatures(texts, 5, 128)
        text.band_buckets(rows, 21, 6)
        text.shingle_sets(texts, 5)
        text.text_hashes(texts)
        compiled.append([len(kernel.signatures) for kernel in kernels])
    assert compiled[0] == compiled[1] == compiled[2]


def test_chunks_are_one_array() -> None:
    chunks = pa.chunked_array([VALUES[:4], VALUES[4:]])
    assert np.array_equal(text.unit_counts(chunks), text.unit_counts(pa.array(VALUES)))


def test_nulls_and_other_types_are_refused() -> None:
    with pytest.raises(ValueError, match="1 of 2 texts are null"):
        text.text_hashes(pa.array(["a", None]))
    with pytest.raises(TypeError, match="texts are int64"):
        text.unit_counts(pa.array([1]))
    with pytest.raises(ValueError, match="shingles of 0 units"):
        text.signatures(pa.array(["a"]), 0, 16)


# --- shingles and signatures -----------------------------------------------------------------------------------


@needs_twin
@pytest.mark.parametrize("n", [1, 2, 3, 4, 5, 6, 7, 8, 13])
def test_shingle_sets(n: int) -> None:
    offsets, hashes = text.shingle_sets(pa.array(VALUES), n)
    for i, value in enumerate(VALUES):
        assert hashes[offsets[i] : offsets[i + 1]].tolist() == sorted(naive.shingles(value, n)), value


@needs_twin
@pytest.mark.parametrize("n,num_perm", [(5, 128), (1, 7), (9, 64)])
def test_signatures_are_those_of_datasketch(n: int, num_perm: int) -> None:
    from datasketch import MinHash

    rows, counts = text.signatures(pa.array(VALUES), n, num_perm)
    for row, count, value in zip(rows, counts, VALUES, strict=True):
        theirs = MinHash(num_perm, seed=1, scheme="affine32", hashfunc=lambda x: x)
        found = naive.shingles(value, n)
        for shingle in found:
            theirs.update(shingle & 0xFFFFFFFF)
        assert np.array_equal(row, theirs.hashvalues), value
        assert count == len(found)


def test_a_text_without_units_has_the_empty_signature() -> None:
    rows, counts = text.signatures(pa.array(["", "?!"]), 5, 8)
    assert (rows == 2**32 - 1).all()
    assert counts.tolist() == [0, 0]


def test_signatures_load_into_datasketch_lsh() -> None:
    from datasketch import MinHash, MinHashLSH

    rng = random.Random(3)
    base = [str(rng.random()) for _ in range(300)]
    values = [" ".join(base), " ".join([*base[:290], "other", *base[291:]]), " ".join(reversed(base))]
    rows, _ = text.signatures(pa.array(values), 5, 128)
    hashes = [MinHash(128, seed=1, scheme="affine32", hashvalues=row) for row in rows]
    lsh = MinHashLSH(num_perm=128, params=(21, 6))
    for i, one in enumerate(hashes):
        lsh.insert(i, one)
    assert set(lsh.query(hashes[0])) == {0, 1}
    assert hashes[0].jaccard(hashes[1]) > 0.9


def test_many_rounds_and_a_growing_set_give_the_same() -> None:
    rng = random.Random(4)
    han = "".join(chr(rng.randrange(0x4E00, 0x9FA0)) for _ in range(30_000))
    values = [han, han[:9000] * 3, "½" * 9000, " ".join(str(i) for i in range(10_000)), "x y " * 9000]
    rows, counts = text.signatures(pa.array(values), 5, 16)
    offsets, hashes = text.shingle_sets(pa.array(values), 5)
    assert counts.tolist() == np.diff(offsets).tolist()
    a, b = text.permutations(16)
    for i in range(len(values)):
        x = hashes[offsets[i] : offsets[i + 1]].astype(np.uint32)
        for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35), (16, 1)):
            x = (x ^ x >> np.uint32(shift)) * np.uint32(factor)
        assert np.array_equal(rows[i], (x[:, None] * a + b).min(axis=0))


def test_a_text_of_20_megabytes() -> None:
    numbers = np.random.default_rng(6).integers(10**8, 10**9, 2_000_000).astype("<u4")
    value = pa.array([" ".join(map(str, numbers.tolist()))], pa.large_string())
    _, counts = text.signatures(value, 5, 8)
    assert counts.tolist() == [len(numbers) - 4]


def test_band_buckets() -> None:
    rows = np.random.default_rng(7).integers(0, 2**32, (5, 128), np.uint64).astype(np.uint32)
    found = text.band_buckets(rows, 21, 6)
    wanted = [
        [xxhash.xxh64_intdigest(row[6 * b : 6 * b + 6].astype("<u4").tobytes()) for b in range(21)] for row in rows
    ]
    assert found.tolist() == wanted
    assert text.band_buckets(rows[:0], 21, 6).shape == (0, 21)
    assert np.array_equal(text.band_buckets(rows[::2], 9, 13), text.band_buckets(rows, 9, 13)[::2])
    with pytest.raises(ValueError, match="22 bands of 6 rows"):
        text.band_buckets(rows, 22, 6)


BANDS = [(0.8, 128, (21, 6)), (0.7, 128, (32, 4)), (0.9, 128, (12, 10)), (1.0, 128, (1, 128)), (0.01, 16, (16, 1))]


@pytest.mark.parametrize("threshold,num_perm,wanted", BANDS)
def test_bands_for(threshold: float, num_perm: int, wanted: tuple[int, int]) -> None:
    assert text.bands_for(threshold, num_perm) == wanted


def test_golden_digest() -> None:
    """Whoever changes this digest raises text.VERSION with it."""
    texts = pa.array(VALUES)
    rows, counts = text.signatures(texts, 5, 128)
    parts = [*text.units(texts), *text.shingle_sets(texts, 5), rows, counts, text.band_buckets(rows, 21, 6)]
    state = xxhash.xxh3_128()
    for part in parts:
        state.update(part.tobytes())
    state.update("".join(text.text_hashes(texts).to_pylist()).encode())
    assert (text.VERSION, state.hexdigest()) == (1, "86c2d62377c1f7755f648bb26b836025")
