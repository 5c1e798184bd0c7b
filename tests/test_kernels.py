"""Kernels against their slow twins."""

import unicodedata
from pathlib import Path

import naive
import numpy as np
import pyarrow as pa
import pytest
import xxhash
from hypothesis import given, settings
from hypothesis import strategies as st

from datapipe import text
from datapipe.kernels import jit, unicode, xxh64
from datapipe.kernels.shape import shape

SHAPES = [
    (b"", "nothing"),
    (b"\n", "one empty line"),
    (b'{"a":1}', "the last newline is missing"),
    (b'{"a":1}\n{"b":2}\n', "two objects"),
    (b' \t{"a":1} \r\n', "blanks around an object, and CR LF"),
    (b"{}\n\n \t\r\n{}\n", "blank lines between"),
    (b"{} {}\n", "two objects on a line look like one: the row count tells"),
    (b"null\n{}\n", "null first"),
    (b'[1]\n"x"\n7\n', "no objects"),
    (b'{"a":\n1}\n', "an object over two lines"),
    (b"}\n{\n", "the wrong way round"),
    (b"{" + b"x" * 300 + b"}\n{}", "longer than a step of the scanner"),
    (b"[" * 128 + b"\n", "as many brackets as are taken at their word"),
    (b"[" * 129 + b"]" * 129 + b"\n", "one more: really that deep"),
    (b"[]" * 200 + b"\n", "many brackets, not deep"),
    (b'{"a":"' + b"[" * 500 + b'"}\n', "deep in a string only"),
    (b'["]",' * 300 + b"1" + b"]" * 300, "closing brackets in strings do not make it shallow"),
    (rb'{"a":"\"[[", "b":"\\"}' + b"[" * 200, "escaped quotes, an escaped backslash before a quote"),
    (b'"' + b"x" * 62 + rb"\u" + b"x" * 70, "an escape over the border of a step"),
    (b"x" * 70 + b"\\", "a backslash at the end"),
    (b'"' + b"[" * 200 + b"\n" + b"[" * 150, "a string that does not end ends with its line"),
]


@pytest.mark.parametrize("block,case", SHAPES, ids=[case for _, case in SHAPES])
def test_shape(block: bytes, case: str) -> None:
    assert _shape(block) == naive.shape(block), case


@settings(deadline=None)
@given(st.lists(st.sampled_from([b"{", b"}", b"\n", b" ", b"\r", b"[" * 40, b"]", b'"', b"\\", b"u", b"x" * 70])))
def test_shape_of_anything(pieces: list[bytes]) -> None:
    block = b"".join(pieces)
    assert _shape(block) == naive.shape(block)


def _shape(block: bytes) -> tuple[list[tuple[int, int, int]], int, int, bool, int]:
    found = shape(block)
    lines = list(zip(found.starts.tolist(), found.numbers.tolist(), found.sizes.tolist(), strict=True))
    return lines, found.objects, found.newlines, found.spelled, found.deepest


def test_xxh64_of_bytes_is_xxhash() -> None:
    data = np.random.default_rng(1).integers(0, 256, 200, np.uint8)
    for size in range(100):
        for start in (0, 1, 7):
            hashed = xxh64.xxh64(data, np.uint64(start), np.uint64(start + size), 0)
            assert hashed == xxhash.xxh64_intdigest(data[start : start + size].tobytes())


def test_xxh64_makes_ascii_small_as_it_goes() -> None:
    data = np.frombuffer(b"ABCdef0123456789XYZ" * 3, np.uint8).copy()
    for size in range(len(data)):
        want = xxhash.xxh64_intdigest(data[:size].tobytes().lower())
        assert xxh64.xxh64(data, np.uint64(0), np.uint64(size), 32) == want


def test_xxh64_of_words_is_xxhash() -> None:
    data = np.random.default_rng(2).integers(0, 1 << 63, 40, np.uint64) * np.uint64(2)
    for count in range(20):
        want = xxhash.xxh64_intdigest(data[3 : 3 + count].astype("<u8").tobytes())
        assert xxh64.xxh64_words(data, np.uint64(3), np.uint64(count)) == want


# --- units: every code point -----------------------------------------------------------------------------------

SCALARS = [*range(0xD800), *range(0xE000, 0x110000)]
PLAIN = ("Cn", "Co")  # unassigned and private: over 900,000
FORMS = [
    ("{}", "alone"),
    ("a{}b", "between letters"),
    ("Z{}", "after a letter"),
    ("中{}\u0301\u0327", "between a Han character and marks in the wrong order"),
    ("={}\u0338x", "between a sign and the stroke that composes with it"),
]


@pytest.mark.skipif(unicodedata.unidata_version != unicode.VERSION, reason="the twin has another Unicode version")
@pytest.mark.parametrize("half", [0, 1])
@pytest.mark.parametrize("form,case", FORMS, ids=[case for _, case in FORMS])
def test_units_of_every_assigned_code_point(form: str, case: str, half: int) -> None:
    ideograph = range(0x20000, 0x323B0)  # one in seven of the rare ones is enough for each form; all for "alone"
    wanted = [cp for cp in SCALARS[half::2] if cp not in ideograph or cp % 7 == 0 or form == "{}"]
    texts = [form.format(chr(cp)) for cp in wanted if unicodedata.category(chr(cp)) not in PLAIN]
    assert not _differing(texts), case


@pytest.mark.skipif(unicodedata.unidata_version != unicode.VERSION, reason="the twin has another Unicode version")
def test_unassigned_and_private_code_points_separate_unless_ignorable() -> None:
    points = [cp for cp in SCALARS if unicodedata.category(chr(cp)) in PLAIN]
    texts = pa.array([f"a{chr(cp)}b {chr(cp)}" for cp in points])
    counts = text.unit_counts(texts).tolist()
    assert counts == [1 if naive.IGNORABLE.match(chr(cp)) else 2 for cp in points]


def _differing(texts: list[str]) -> list[tuple[str, list[str]]]:
    """Texts whose unit hashes are not their twin's."""
    offsets, hashes, _, _ = text.units(pa.array(texts, pa.large_string()))
    ends, values = offsets.tolist(), hashes.tolist()
    found = []
    for i, one in enumerate(texts):
        units = naive.units(one)
        if values[ends[i] : ends[i + 1]] != [naive.unit_hash(unit) for unit in units]:
            found.append((one, units))
    return found


# --- where compiled code is kept -------------------------------------------------------------------------------


def test_cache_folder_can_be_moved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "here"))
    assert Path(jit._folder() or "").parent == tmp_path / "here"
    monkeypatch.delenv("NUMBA_CACHE_DIR")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "there"))
    assert Path(jit._folder() or "").parent == tmp_path / "there" / "datapipe"


def test_no_cache_folder_where_nothing_can_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "file" / "below"))
    (tmp_path / "file").write_text("in the way")
    assert jit._folder() is None
