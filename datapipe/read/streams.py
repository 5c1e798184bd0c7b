"""
Bytes of a file, expanded: members and frames one after the other, damage named, and cut into blocks of whole lines.

A compressed file is a series of members (gzip), frames (zstd) or streams (bz2, xz).  None of Python's readers tells
a truncated file from a short one in all four, so they are driven here member by member: the file may only end
between two of them.
"""

import bz2
import lzma
import mmap
import os
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import zstandard

from datapipe.errors import DataError, PolicyError
from datapipe.kernels.shape import newlines

BLOCK = 8_000_000  # bytes of text that are worked on together
NO_LIMIT = 1 << 60  # bytes that a file may expand to where it was within its limit before, or its beginning is read
CHUNK = 1 << 20  # bytes read or expanded at once, about
WINDOW = 2**31  # the largest zstd window that is read (`--long=31`)

SUFFIXES = {".gz": "gzip", ".zst": "zstd", ".bz2": "bz2", ".xz": "xz"}
# bytes fed at once: what even a bomb makes of them stays small (gzip 1:1032, a zstd block of 4 bytes 128 kB)
FEED = {"gzip": 1 << 16, "zstd": 1 << 12, "bz2": 1 << 16, "xz": 1 << 16}
MAGIC = {
    "gzip": (b"\x1f\x8b",),
    "zstd": (b"\x28\xb5\x2f\xfd", *(bytes([0x50 + n]) + b"\x2a\x4d\x18" for n in range(16))),
    "bz2": (b"BZh",),
    "xz": (b"\xfd7zXZ\x00",),
}
NEW: dict[str, Callable] = {
    "gzip": lambda: zlib.decompressobj(31),
    "zstd": lambda: zstandard.ZstdDecompressor(max_window_size=WINDOW).decompressobj(),
    "bz2": bz2.BZ2Decompressor,
    "xz": lambda: lzma.LZMADecompressor(lzma.FORMAT_XZ),
}
ERRORS = (zlib.error, zstandard.ZstdError, lzma.LZMAError, OSError, EOFError)
TRUNCATED, CHECKSUM, CORRUPT, RUBBISH = "truncated", "wrong checksum", "corrupt", "rubbish after the end"


def bare(name: str) -> str:
    """A name without the suffix of a compression."""
    stem, suffix = os.path.splitext(name)
    return stem if suffix.lower() in SUFFIXES else name


class Damage(Exception):
    """Compressed data that is not what its writer wrote; its text says how."""


@dataclass
class Expanded:
    """
    The chunks of a file from byte `start` on, expanded.  Damage where they end wrongly.

    members: (byte in the file, byte in the text) at which each member began, filled while one iterates
    """

    path: Path
    codec: str | None
    limit: int  # bytes of text that are too many
    start: int = 0
    text: int = 0  # position of `start` in the text
    members: list[tuple[int, int]] = field(default_factory=list)

    def open(self) -> BinaryIO:
        return open(self.path, "rb")

    def __iter__(self) -> Iterator[bytes]:
        with self.open() as file:
            file.seek(self.start)
            if self.codec is None:
                while chunk := file.read(CHUNK):
                    yield chunk
                return
            for chunk in self._members(file, self.codec):
                self.text += len(chunk)
                if self.text > self.limit:
                    raise PolicyError(
                        f"{self.path}: expands to more than {self.limit:,} bytes; where that is meant, "
                        "raise limits.expanded in the manifest"
                    )
                yield chunk

    def _members(self, file: BinaryIO, codec: str) -> Iterator[bytes]:
        data = file.read(FEED[codec])
        while data := self._next_member(file, codec, data):
            decoder = NEW[codec]()
            while not decoder.eof:
                if not data:
                    raise Damage(TRUNCATED)
                yield from _feed(decoder, codec, data)
                data = b"" if decoder.eof else file.read(FEED[codec])
            data = decoder.unused_data
        if not self.members and self.start == 0:
            raise Damage(TRUNCATED)

    def _next_member(self, file: BinaryIO, codec: str, data: bytes) -> bytes:
        """The bytes from the next member's start on, nothing at the end; zeros behind a gzip or xz file are padding."""
        most = max(len(magic) for magic in MAGIC[codec])
        while True:
            if self.members and codec in ("gzip", "xz"):
                data = data.lstrip(b"\0")
            more = b"" if len(data) >= most else file.read(FEED[codec])
            if not more:
                break
            data += more
        if not data:
            return b""
        if not data.startswith(MAGIC[codec]):
            if any(magic.startswith(data) for magic in MAGIC[codec]):
                raise Damage(TRUNCATED)
            raise Damage(RUBBISH) if self.members or self.start else _not_compressed(self.path, codec, data)
        self.members.append((file.tell() - len(data), self.text))
        return data


def _feed(decoder: Any, codec: str, data: bytes) -> Iterator[bytes]:
    """What the decoder makes of the data, in pieces of bounded size."""
    before = decoder.copy() if codec == "gzip" else None  # 2 % of the time
    try:
        if codec in ("gzip", "zstd"):
            if piece := decoder.decompress(data):
                yield piece
            return
        while True:
            if piece := decoder.decompress(data, CHUNK):
                yield piece
            data = b""
            if decoder.needs_input or decoder.eof:
                return
    except ERRORS as error:
        if before is not None:
            yield from _until_error(before, data)
        words = str(error).lower()
        told = any(word in words for word in ("check", "crc", "length"))
        raise Damage(CHECKSUM if told else CORRUPT) from error


def _until_error(decoder: Any, data: bytes) -> Iterator[bytes]:
    """What zlib had made of the data when it met an error: it gives nothing back of a call that fails."""
    for at in range(len(data)):
        try:
            if piece := decoder.decompress(data[at : at + 1]):
                yield piece
        except zlib.error:
            return


def _not_compressed(path: Path, codec: str, data: bytes) -> DataError:
    found = next((f"as {name} does" for name, magic in MAGIC.items() if data.startswith(magic)), "otherwise")
    return DataError(f"{path}: the name says {codec}, but the file begins {found}; rename it, or name the right file")


class Place(NamedTuple):
    """Where text begins: byte offset in the expanded file, 1-based number of its line."""

    offset: int
    line: int


class Block(NamedTuple):
    """Whole lines (only the last of a file may lack its newline), and where they begin."""

    data: bytes
    offset: int
    line: int


def blocks(
    chunks: Iterator[bytes], at: Place, *, inside: bool = False, stop: int | None = None, size: int | None = None
) -> Iterator[Block]:
    """
    Cut chunks into blocks of whole lines of at most `size` bytes (a longer line is a block of its own).

    at:      where the chunks begin; `inside`: in the middle of a line that belongs to somebody else
    stop:    lines that begin here or later belong to somebody else
    Blocks depend on the text alone, not on how it came in chunks.  With damage the whole lines before it come first.
    """
    size = size or BLOCK
    held = bytearray()
    offset, line = at
    skip = inside
    ended: Damage | None = None
    while stop is None or offset < stop:
        cut, ended = _line_end(held, chunks, 0 if skip else _aim(size, offset, stop), bound=None if skip else size)
        if cut == 0:
            break
        with memoryview(held) as view:
            block = Block(bytes(view[:cut]), offset, line)
        del held[:cut]
        offset += cut
        line += newlines(block.data)
        if not skip:
            yield block
        del block  # who took it may have let it go: the next one needs the room
        skip = False
        if ended:
            break
    if ended:
        raise ended


def _aim(size: int, offset: int, stop: int | None) -> int:
    """The byte that a block should reach: the last one before `stop` must lie in a whole line."""
    return size if stop is None or stop - offset > size else stop - offset - 1


def _line_end(held: bytearray, chunks: Iterator[bytes], aim: int, bound: int | None) -> tuple[int, Damage | None]:
    """
    How many bytes of `held`, filled from chunks, are the next block.

    Where `aim` is the bound: to the last newline before it, or else the first one behind; elsewhere to the first
    newline from `aim` on.  At the end of the text: all; at a damage: to the last newline.
    """
    searched = aim
    while True:
        if bound is not None and aim == bound and len(held) >= bound and (cut := held.rfind(b"\n", 0, bound) + 1):
            return cut, None
        if len(held) > searched:
            if cut := held.find(b"\n", searched) + 1:
                return cut, None
            searched = len(held)
        try:
            chunk = next(chunks, None)
        except Damage as damage:
            return held.rfind(b"\n") + 1, damage
        if chunk is None:
            return len(held), None
        held += chunk


def discard(chunks: Iterator[bytes], count: int) -> Iterator[bytes]:
    """The chunks without their first `count` bytes."""
    for chunk in chunks:
        if count < len(chunk):
            yield chunk[count:] if count else chunk
        count = max(0, count - len(chunk))


class Member(NamedTuple):
    """A place in a compressed file at which reading may begin."""

    start: int  # byte in the file
    text: int  # byte in the text
    line: int  # newlines before it + 1
    inside: bool  # in the middle of a line


def members(path: Path, codec: str, limit: int) -> tuple[list[Member], int]:
    """
    Every member of a multi-member gzip or multi-frame zstd file, and the bytes of its text.  Damage as when reading.

    This expands the file once: where a member begins, and in which line, nothing else tells.
    """
    stream = Expanded(path, codec, limit)
    found: list[Member] = []
    line, last = 1, b"\n"
    for chunk in stream:
        for start, text in stream.members[len(found) :]:
            found.append(Member(start, text, line, last != b"\n"))
        line += newlines(chunk)
        last = chunk[-1:]
    return found, stream.text


def many_members(path: Path, codec: str | None) -> bool:
    """Whether a file looks as if it had several members: worth expanding it to find them."""
    if path.stat().st_size == 0 or codec not in ("gzip", "zstd"):
        return False
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        return data.find(b"\x1f\x8b\x08", 10) > 0 if codec == "gzip" else data.find(MAGIC["zstd"][0], 4) > 0


def utf_other(head: bytes) -> str | None:
    """The encoding that the first bytes of a text tell, where it is not UTF-8; a BOM, or NULs where ASCII would be."""
    for mark, name in ((b"\xff\xfe\0\0", "UTF-32LE"), (b"\0\0\xfe\xff", "UTF-32BE"), (b"\xff\xfe", "UTF-16LE"),
                       (b"\xfe\xff", "UTF-16BE")):  # fmt: skip
        if head.startswith(mark):
            return name
    nuls = "".join("0" if byte == 0 else "x" for byte in head[:4])
    return {"x000": "UTF-32LE", "000x": "UTF-32BE", "x0x0": "UTF-16LE", "0x0x": "UTF-16BE"}.get(nuls)
