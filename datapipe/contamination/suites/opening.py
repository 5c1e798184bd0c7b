"""
From paths to bytes: plain and compressed files, members of tar archives, folders.

Nothing is written to disk and no name in an archive is opened as a path.  What a file or an archive expands to is
bounded; damage is a reason beside the bytes before it, so that what is whole can still be read.
"""

import glob
import hashlib
import io
import os
import tarfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO, NamedTuple

from datapipe.errors import DataError, PolicyError
from datapipe.read.opening import TAR, TAR_SHORT, is_archive
from datapipe.read.streams import CHUNK, MAGIC, SUFFIXES, Damage, Expanded, bare

EXPANDED = 1_000_000_000  # bytes of text that a file, or all members of an archive together, may have
MEMBERS = 100_000  # of an archive
FORMS = {
    ".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "json", ".csv": "csv", ".tsv": "tsv", ".parquet": "parquet",
    ".pq": "parquet", ".arrow": "arrow", ".feather": "arrow", ".ipc": "arrow", ".txt": "text",
}  # fmt: skip
# what lies beside eval files and is none: left out below a folder and in an archive, read where it is named itself
BESIDE = {
    "", ".md", ".rst", ".py", ".ipynb", ".html", ".yaml", ".yml", ".toml", ".cfg", ".ini", ".sh", ".pdf", ".png",
    ".jpg", ".gif", ".svg", ".bib", ".tex", ".css", ".js", ".lock", ".log", ".sha256", ".md5",
}  # fmt: skip
BESIDE_NAMES = {"dataset_info.json", "dataset_dict.json", "dataset_infos.json", "state.json"}
TAR_BLOCK = 512


class Opened(NamedTuple):
    """A file, or a member of an archive, in memory."""

    path: str  # as given; "archive/member"
    data: bytes  # expanded
    size: int  # bytes as stored; of a member, as the archive holds it
    sha256: str | None
    failed: str | None  # why `data` is not all


def opened(paths: Sequence[str], expanded: int) -> Iterator[Opened]:
    """Every file that the paths mean, each once, sorted by path; folders and archives give what they hold."""
    for path, failed in _files(paths):
        if failed:
            yield Opened(path, b"", 0, None, failed)
            continue
        try:
            yield from _open(path, expanded)
        except OSError as error:
            yield Opened(path, b"", 0, None, f"cannot be read: {error.strerror or error}")


def form(name: str) -> str | None:
    """The form that a name tells, without the suffixes of compression; null for an unknown one."""
    return FORMS.get(os.path.splitext(bare(name))[1].lower())


def _files(paths: Sequence[str]) -> list[tuple[str, str | None]]:
    """(path, why it is no file) of all that is named, or lies below a named folder."""
    found: dict[str, tuple[str, str | None]] = {}
    for path in paths:
        for file, failed in _meant(path):
            found.setdefault(os.path.realpath(file), (file, failed))
    return sorted(found.values())


def _meant(path: str) -> list[tuple[str, str | None]]:
    """What a path means: itself, the files below a folder, or what a pattern matches that no shell has expanded."""
    if os.path.isdir(path):
        return _below(path) or [(path, "no file below this folder")]
    if os.path.exists(path):
        return [(path, None)]
    if not glob.has_magic(path):
        return [(path, "no such file")]
    matches = sorted(glob.glob(path, recursive=True))
    return [one for match in matches for one in _meant(match)] or [(path, "no file matches this pattern")]


def _below(folder: str) -> list[tuple[str, str | None]]:
    found: list[tuple[str, str | None]] = []

    def unlisted(error: OSError) -> None:
        found.append((str(error.filename), f"cannot be listed: {error.strerror}"))

    for where, folders, names in os.walk(folder, onerror=unlisted):
        folders[:] = [name for name in folders if not name.startswith(".")]
        found += [(os.path.join(where, name), None) for name in names if not _beside(name)]
    return found


def _beside(name: str) -> bool:
    return name.startswith(".") or name in BESIDE_NAMES or os.path.splitext(bare(name))[1].lower() in BESIDE


class _Held(Expanded):
    """Expanded bytes of a file that is in memory."""

    def __init__(self, data: bytes, codec: str | None, limit: int):
        super().__init__(Path("member"), codec, limit)
        self.data = data

    def open(self) -> BinaryIO:
        return io.BytesIO(self.data)


def _codec(name: str, head: bytes) -> str | None:
    """By the name; of a name without a known suffix, by the first bytes."""
    suffix = os.path.splitext(name)[1].lower()
    if codec := SUFFIXES.get(suffix) or TAR_SHORT.get(suffix):
        return codec
    if suffix in FORMS or suffix == TAR:
        return None
    return next((codec for codec, magic in MAGIC.items() if head.startswith(magic)), None)


def _open(path: str, expanded: int) -> Iterator[Opened]:
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        head = file.read(8)
        file.seek(0)
        while chunk := file.read(CHUNK):
            digest.update(chunk)
        size = file.tell()
    stream = Expanded(Path(path), _codec(path, head), expanded)
    if is_archive(path):
        yield from _members(path, stream, size, digest.hexdigest())
    else:
        data, failed = _all(stream)
        yield Opened(path, data, size, digest.hexdigest(), failed)


def _all(stream: Expanded) -> tuple[bytes, str | None]:
    """All that a stream gives, and how it failed."""
    held = bytearray()
    try:
        for chunk in stream:
            held += chunk
            if len(held) > stream.limit:  # of a file that is not compressed
                raise PolicyError
    except Damage as damage:
        return bytes(held), str(damage)
    except PolicyError:
        return b"", f"more than {stream.limit:,} bytes when expanded"
    except DataError as error:
        return b"", str(error).partition(": ")[2]
    return bytes(held), None


class _Chunks(io.RawIOBase):
    """Chunks as a file that only reads on; it keeps the last bytes, for an archive ends in zeros."""

    def __init__(self, chunks: Iterator[bytes]):
        self._chunks, self._held, self.tail = chunks, b"", b""

    def read(self, size: int = -1) -> bytes:
        """At least one byte, at most `size`; nothing at the end."""
        if not self._held:
            self._held = next((chunk for chunk in self._chunks if chunk), b"")
        data, self._held = self._held[:size], self._held[size:]
        self.tail = (self.tail + data)[-TAR_BLOCK:]
        return data


def _members(path: str, stream: Expanded, size: int, sha256: str) -> Iterator[Opened]:
    """The files in an archive; where it does not end well, a row for the archive itself."""
    source = _Chunks(iter(stream))
    left, count, failed = stream.limit, 0, None
    try:
        with tarfile.open(fileobj=source, mode="r|", errorlevel=1) as archive:
            for member in archive:
                count += 1
                if count > MEMBERS:
                    raise PolicyError(f"more than {MEMBERS:,} members")
                if not member.isfile() or _beside(os.path.basename(member.name)):
                    continue
                if member.size > left:  # a sparse member claims what it likes
                    raise PolicyError(f"more than {stream.limit:,} bytes when expanded")
                left -= member.size
                file = archive.extractfile(member)
                found = _member(path, member.name, file.read() if file else b"", left)
                left -= max(0, len(found.data) - member.size)
                yield found
        while source.read(CHUNK):
            pass
        if source.tail.strip(b"\0"):
            failed = "truncated: the archive has no end mark"
    except Damage as damage:
        failed = str(damage)
    except PolicyError as error:
        message = str(error)
        failed = f"more than {stream.limit:,} bytes when expanded" if message.startswith(path) else message
    except DataError as error:
        failed = str(error).partition(": ")[2]
    except tarfile.TarError as error:
        failed = "truncated" if "end of" in str(error) else f"not a tar archive: {error}"
    if failed is None and not count:
        failed = "an archive without members"
    if failed is not None:
        yield Opened(path, b"", size, sha256, failed)


def _member(archive: str, name: str, stored: bytes, limit: int) -> Opened:
    path, sha256 = f"{archive}/{name}", hashlib.sha256(stored).hexdigest()
    if is_archive(name):
        return Opened(path, b"", len(stored), sha256, "an archive in an archive: take it out first")
    codec = _codec(name, stored[:8])
    data, failed = (stored, None) if codec is None else _all(_Held(stored, codec, limit))
    return Opened(path, data, len(stored), sha256, failed)
