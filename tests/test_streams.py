"""Compressed files member by member, what damage they tell, and blocks of whole lines."""

import bz2
import gzip
import itertools
import lzma
import random
import struct
import zlib

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from datapipe.errors import DataError, PolicyError
from datapipe.read import streams
from datapipe.read.streams import Damage, Expanded, Place, blocks, members

LIMIT = 10**9
TEXT = b"".join(b"line %d %s\n" % (n, b"ab" * (n % 50)) for n in range(2000))


def zstd(data: bytes) -> bytes:
    return zstandard.ZstdCompressor(write_checksum=True).compress(data)


PACK = {"gzip": lambda data: gzip.compress(data, mtime=0), "zstd": zstd, "bz2": bz2.compress, "xz": lzma.compress}
CODECS = list(PACK)


@pytest.fixture
def file(tmp_path):
    """A function that writes bytes into a file and gives its path."""

    def write(data: bytes):
        path = tmp_path / "f"
        path.write_bytes(data)
        return path

    return write


def expand(path, codec, limit=LIMIT) -> bytes:
    return b"".join(Expanded(path, codec, limit))


def damage(path, codec) -> tuple[bytes, str]:
    """What comes before the damage, and its words."""
    found = []
    with pytest.raises(Damage) as told:
        found.extend(Expanded(path, codec, LIMIT))
    return b"".join(found), str(told.value)


@pytest.mark.parametrize("codec", CODECS)
def test_members_one_after_the_other_are_one_text(codec, file):
    cuts = [0, 100, 101, 30_000, len(TEXT)]  # not at line ends
    packed = b"".join(PACK[codec](TEXT[a:b]) for a, b in itertools.pairwise(cuts))
    assert expand(file(packed), codec) == TEXT


@pytest.mark.parametrize("codec", CODECS)
def test_a_file_cut_anywhere_is_truncated(codec, file):
    packed = PACK[codec](TEXT) + PACK[codec](TEXT)
    first = len(PACK[codec](TEXT))
    for cut in {0, 1, 3, 10, len(packed) // 3, first - 1, first + 1, first + 4, len(packed) - 4, len(packed) - 1}:
        before, words = damage(file(packed[:cut]), codec)
        assert words == "truncated", f"cut at {cut} of {len(packed)}"
        assert (TEXT + TEXT).startswith(before)


def test_a_gzip_or_xz_file_may_be_padded_with_zeros(file):
    for codec in ("gzip", "xz"):
        assert expand(file(PACK[codec](TEXT) + bytes(64)), codec) == TEXT
        assert expand(file(PACK[codec](TEXT) + bytes(70_000) + PACK[codec](TEXT)), codec) == TEXT + TEXT


def test_zstd_frames_to_be_skipped_are(file):
    skipped = struct.pack("<II", 0x184D2A50, 5) + b"12345"
    assert expand(file(skipped + zstd(TEXT) + skipped + zstd(TEXT) + skipped), "zstd") == TEXT + TEXT


@pytest.mark.parametrize("codec", CODECS)
def test_rubbish_after_the_end_is_damage(codec, file):
    assert damage(file(PACK[codec](TEXT) + b"rubbish"), codec) == (TEXT, "rubbish after the end")


@pytest.mark.parametrize("codec", CODECS)
def test_another_file_under_the_name_is_an_error_that_names_it(codec, file):
    with pytest.raises(DataError, match=f"the name says {codec}, but the file begins otherwise") as caught:
        expand(file(b'{"text": 1}\n'), codec)
    assert "text" not in str(caught.value), "what is in the file may be private"


def test_a_wrong_checksum_is_told_and_gzip_gives_all_before_it(file):
    packed = bytearray(PACK["gzip"](TEXT))
    packed[-8] ^= 1
    assert damage(file(packed), "gzip") == (TEXT, "wrong checksum")
    packed = bytearray(zstd(TEXT))
    packed[-1] ^= 1
    assert damage(file(packed), "zstd")[1] == "wrong checksum"


@pytest.mark.parametrize("codec", CODECS)
def test_flipped_bits_never_pass(codec, file):
    packed = PACK[codec](TEXT)
    for at in random.Random(1).sample(range(12, len(packed)), 20):
        wrong = bytearray(packed)
        wrong[at] ^= 16
        try:
            found = expand(file(wrong), codec)
        except (Damage, DataError):
            continue
        assert found == TEXT  # a bit that says nothing, such as a reserved one


def test_a_bomb_ends_at_the_limit_with_little_memory(file):
    path = file(gzip.compress(bytes(50_000_000)))
    with pytest.raises(PolicyError, match=r"more than 1,000,000 bytes.*limits.expanded"):
        expand(path, "gzip", limit=1_000_000)
    path = file(zstd(bytes(50_000_000)))
    with pytest.raises(PolicyError, match=r"limits.expanded"):
        expand(path, "zstd", limit=1_000_000)


def test_a_zstd_window_beyond_the_usual_is_read(file):
    parameters = zstandard.ZstdCompressionParameters.from_level(1, window_log=28, enable_ldm=True)
    packed = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
    assert expand(file(packed.compress(TEXT) + packed.flush()), "zstd") == TEXT


def chunked(data: bytes, size: int):
    return iter([data[at : at + size] for at in range(0, len(data), size)])


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.integers(0, 12), max_size=12), st.booleans(), st.integers(1, 20), st.integers(1, 9), st.integers(1, 40)
)
def test_ranges_and_blocks_hold_every_line_once(lengths, ended, size, chunk, step):
    """The lines of all ranges together are those of the file, with their offsets and numbers, however it is cut."""
    data = b"\n".join(b"%x" % (n % 16) * length for n, length in enumerate(lengths)) + (b"\n" if ended else b"")
    whole = [
        (block.offset, block.line, block.data) for block in blocks(iter([data] if data else []), Place(0, 1), size=1)
    ]
    found = []
    for start in range(0, max(1, len(data)), step):
        early = max(0, start - 1)
        at = Place(early, data.count(b"\n", 0, early) + 1)
        for block in blocks(chunked(data[early:], chunk), at, inside=start > 0, stop=start + step, size=size):
            ones = blocks(iter([block.data]), Place(block.offset, block.line), size=1)
            found += [(one.offset, one.line, one.data) for one in ones]
    assert found == whole
    assert b"".join(line for _, _, line in found) == data


def test_blocks_do_not_depend_on_chunks():
    cut = [list(blocks(chunked(TEXT, size), Place(0, 1), size=1000)) for size in (1, 7, 999, 10**6)]
    assert cut[0] == cut[1] == cut[2] == cut[3]
    assert all(len(block.data) <= 1000 and block.data.endswith(b"\n") for block in cut[0])
    assert b"".join(block.data for block in cut[0]) == TEXT


def test_a_line_longer_than_a_block_is_a_block():
    data = b"a\n" + b"b" * 5000 + b"\nc\n"
    assert [len(block.data) for block in blocks(chunked(data, 64), Place(0, 1), size=100)] == [2, 5001, 2]


def test_damage_leaves_the_whole_lines_before_it():
    def broken():
        yield b"one\ntwo\nthr"
        raise Damage("truncated")

    found = blocks(broken(), Place(0, 1))
    assert next(found).data == b"one\ntwo\n"
    with pytest.raises(Damage, match="truncated"):
        next(found)


@pytest.mark.parametrize("codec", ["gzip", "zstd"])
def test_members_are_found_with_their_place_in_the_text(codec, file):
    cuts = [0, 100, 100, 101, 30_000, len(TEXT)]  # one is empty
    packed = [PACK[codec](TEXT[a:b]) for a, b in itertools.pairwise(cuts)]
    path = file(b"".join(packed))
    found, size = members(path, codec, LIMIT)
    assert size == len(TEXT)
    assert [one.text for one in found] == cuts[:-1]
    assert [one.start for one in found] == [len(b"".join(packed[:n])) for n in range(len(packed))]
    for one in found:
        assert one.line == TEXT.count(b"\n", 0, one.text) + 1
        assert one.inside == (one.text > 0 and TEXT[one.text - 1] != 10)
        assert b"".join(Expanded(path, codec, LIMIT, one.start, one.text)) == TEXT[one.text :]
    assert streams.many_members(path, codec)
    assert not streams.many_members(file(PACK[codec](b"a")), codec)


def test_peers_gzip_files(shared):
    """B01: glued members, padding with zeros, a cut file, a wrong checksum."""
    folder = shared / "cases/B01"
    assert expand(folder / "ok_multi_member.jsonl.gz", "gzip").count(b"\n") == 6
    assert expand(folder / "ok_zero_padded.jsonl.gz", "gzip").count(b"\n") == 4
    before, words = damage(folder / "truncated.jsonl.gz", "gzip")
    assert (before.count(b"\n"), words) == (116, "truncated")
    before, words = damage(folder / "bad_crc.jsonl.gz", "gzip")
    assert (before.count(b"\n"), words) == (5, "wrong checksum")
    assert zlib.crc32(before) != int.from_bytes((folder / "bad_crc.jsonl.gz").read_bytes()[-8:-4], "little")
