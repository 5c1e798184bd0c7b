"""
Files that datapipe cannot read as a source: of which form they are, what to make of them, and what is in them.
"""

import json
import tarfile
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from datapipe.propose.judge import choose
from datapipe.propose.sample import NOT_AN_OBJECT, Sample, head, of_bytes, take, thin
from datapipe.propose.values import flat
from datapipe.read import files
from datapipe.read.fields import Bad, clean
from datapipe.read.streams import MAGIC, utf_other

WHOLE = 64_000_000  # bytes of a file that is no series of records, at most, that are looked into
MEMBERS = 5  # of an archive that are looked into
LEVELS = 6  # of lists in a JSON document
LONG_HEADER = 80  # characters of a cell that is no name
BINARY = (
    (b"%PDF", "PDF"),
    (b"SQLite format 3", "an SQLite database"),
    (b"\x89PNG", "a picture"),
    (b"\xff\xd8\xff", "a picture"),
    (b"GIF8", "a picture"),
    (b"\x93NUMPY", "a NumPy array"),
    (b"\x7fELF", "a program"),
    (b"\x80\x04", "a Python pickle"),
    (b"\x89HDF", "HDF5"),
    (b"Obj\x01", "Avro"),
    (b"ORC", "ORC"),
)
TO_JSONL = "convert it to JSON lines, an object a record"


@dataclass(frozen=True)
class Unreadable:
    """A file that is no source as it lies there."""

    path: Path
    form: str
    remedy: str
    inside: tuple[str, ...] = ()  # what could be seen of its fields

    def __str__(self) -> str:
        inside = "".join(f"; {what}" for what in self.inside)
        return f"is {self.form}; {self.remedy}{inside}"


def look(path: Path, most: int, among: int = 1) -> Sample | Unreadable:
    """A look into one of so many files, or why it cannot be read as a source."""
    kind, codec = files.kind(path.name, "auto")
    if path.stat().st_size == 0 and (kind == "parquet" or codec):
        return Unreadable(path, "an empty file", "get it again, or remove it")
    beginning, damage = head(path, codec, 4096)
    if damage and not beginning:
        return Unreadable(path, f"no whole {codec} file ({damage})", "get it again")
    if form := _by_bytes(path, codec, beginning, kind):
        return form
    if kind == "text" and _is_jsonl(path, beginning):
        kind = "jsonl"
    sample = take(path, kind, most, among)
    return _refused(sample, beginning) or sample


def _by_bytes(path: Path, codec: str | None, data: bytes, kind: str) -> Unreadable | None:
    if codec is None:
        for name, magics in MAGIC.items():
            if data.startswith(magics):
                return Unreadable(path, f"{name}, and its name does not end so", "rename it, so that it is expanded")
    if data.startswith(b"ARROW1") or (data.startswith(b"\xff\xff\xff\xff") and len(data) > 8):
        return _arrow(path, _whole(path, codec))
    if data[257:262] == b"ustar":
        return _archive(path, "a tar archive", _tar_members(path))
    if data.startswith(b"PK\x03\x04"):
        return _archive(path, "a zip archive", _zip_members(path))
    if data.startswith((b"WARC/1", b"WARC/0")):
        return Unreadable(path, "WARC", "extract the texts of its pages into JSON lines (url, date, text)")
    if data.startswith(b"PAR1") and kind != "parquet":
        return Unreadable(path, "Parquet, and its name does not end so", "rename it to .parquet")
    for magic, name in BINARY:
        if data.startswith(magic):
            return Unreadable(path, name, TO_JSONL)
    if kind == "text" and b"\0" in data and utf_other(data[:4]) is None:
        return Unreadable(path, "binary", "leave it out")
    return None


def _is_jsonl(path: Path, beginning: bytes) -> bool:
    """Whether a file with the name of a text holds JSON lines."""
    if not beginning.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b'{"'):
        return False
    sample = take(path, "jsonl", 20)
    return len(sample.records) > sample.unreadable.total()


def _refused(sample: Sample, beginning: bytes) -> Unreadable | None:
    """Why a file of the right name holds no records after all."""
    path = sample.path
    if sample.encoding:
        return Unreadable(path, f"{sample.encoding}, and no UTF-8", f"convert it: iconv -f {sample.encoding} -t UTF-8")
    if sample.damage and not sample.records:
        return Unreadable(path, f"damaged ({sample.damage})", "get it again")
    if sample.format == "csv":
        return _headless(sample)
    if sample.format == "text" and sample.unreadable:
        return Unreadable(path, f"text in another encoding ({next(iter(sample.unreadable))})", "convert it to UTF-8")
    if sample.format != "jsonl":
        return None
    body = beginning.removeprefix(b"\xef\xbb\xbf").lstrip()
    if body.startswith(b"[") and (not sample.records or sample.unreadable[NOT_AN_OBJECT]):
        return _document(sample, "a JSON array")
    if not sample.records and body.startswith(b"{"):
        return _document(sample, "one JSON object over several lines")
    if len(sample.records) == 1 and sample.whole and not sample.unreadable and choose(sample.records) is None:
        return _document(sample, "one JSON object that holds all records")
    if sample.unreadable and not sample.records:
        return Unreadable(path, f"no JSON lines ({sample.unreadable.most_common(1)[0][0]})", TO_JSONL)
    return None


def _headless(sample: Sample) -> Unreadable | None:
    """A table whose first line is a record, not the names of its columns."""
    names = sample.columns
    if not any(len(name) > LONG_HEADER or name.replace(".", "", 1).isdigit() for name in names):
        return None
    at = max(range(len(names)), key=lambda n: len(names[n]))
    return Unreadable(
        sample.path,
        "a table without a line of column names",
        f"put one before the first record, {len(names)} names",
        (f"column {at + 1} would be the text",),
    )


# JSON documents


def _document(sample: Sample, form: str) -> Unreadable:
    inside: list[str] = []
    data = _whole(sample.path, sample.codec)
    try:
        found = json.loads(data.decode("utf-8-sig")) if data is not None else None
    except (ValueError, RecursionError):
        found = None
    if isinstance(found, dict) and (said := _named("it", [found], sure=True)):
        inside.append(said)
    for place, records in _lists(found, "", LEVELS):
        if said := _named("its objects" if place == "[]" else place, records):
            inside.append(said)
    return Unreadable(sample.path, form, TO_JSONL, tuple(inside[:4]))


def _lists(found: Any, place: str, levels: int) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Every list of objects in a JSON document, as (its place, its objects, those of equal lists together)."""
    waiting: list[tuple[str, list[Any]]] = [(place, [found])]
    for _ in range(levels):
        below: dict[str, list[Any]] = {}
        for at, nodes in waiting:
            for node in nodes:
                if isinstance(node, list):
                    below.setdefault(f"{at}[]", []).extend(one for one in node if isinstance(one, dict | list))
                elif isinstance(node, dict):
                    for name, value in node.items():
                        if isinstance(value, dict | list):
                            below.setdefault(f"{at}.{name}".lstrip("."), []).append(value)
        for at, nodes in below.items():
            objects = [one for one in nodes if isinstance(one, dict)]
            if at.endswith("[]") and objects:
                yield at, objects
        waiting = list(below.items())


def _named(place: str, records: Sequence[dict[str, Any]], *, sure: bool = False) -> str | None:
    """What a source of these records would map, in words; null where none has a text, or `sure` and it is doubtful."""
    choice = choose([flat(_cleaned(record), dots=False)[0] for record in thin(records, 500)])
    if choice is None or (sure and not choice.sure):
        return None
    fields = ", ".join(f"{ours} {theirs}" for ours, theirs in choice.fields.items())
    return f"in {place}: {fields}"


def _cleaned(record: dict[str, Any]) -> dict[str, Any]:
    """What the readers can carry of a record."""
    found: dict[str, Any] = {}
    for name, value in record.items():
        try:
            found[name] = clean(value)
        except Bad:
            found[name] = None
    return found


# Arrow and archives


def _whole(path: Path, codec: str | None) -> bytes | None:
    """All bytes of a file that is no larger than WHOLE."""
    data, _ = head(path, codec, WHOLE + 1)
    return data if len(data) <= WHOLE else None


def _arrow(path: Path, data: bytes | None) -> Unreadable:
    form = "an Arrow stream" if data is None or not data.startswith(b"ARROW1") else "an Arrow file"
    inside: tuple[str, ...] = ()
    if data is not None and (said := _arrow_fields(data)):
        inside = (said,)
    return Unreadable(path, form, "convert it to Parquet (pyarrow.ipc, pyarrow.parquet.write_table)", inside)


def _arrow_fields(data: bytes) -> str | None:
    try:
        if data.startswith(b"ARROW1"):
            file = pa.ipc.open_file(data)
            batch = file.get_batch(0) if file.num_record_batches else None
        else:
            batch = next(iter(pa.ipc.open_stream(data)), None)
    except (pa.ArrowException, OSError):
        return None
    return _named("its rows", batch.slice(0, 500).to_pylist()) if batch is not None else None


def _archive(path: Path, form: str, found: tuple[list[str], list[tuple[str, bytes]]] | None) -> Unreadable:
    """An archive by the names of its members and what the first of them hold."""
    if found is None:
        return Unreadable(path, f"{form}, damaged", "get it again")
    members, first = found
    inside = [f"it holds {', '.join(members[:3])}{' and more' if len(members) > 3 else ''}"]
    inside += [f"{name} {said}" for name, data in first if (said := _member(name, data))][:2]
    return Unreadable(path, form, "unpack it and name the folder", tuple(inside))


def _tar_members(path: Path) -> tuple[list[str], list[tuple[str, bytes]]] | None:
    members: list[str] = []
    first: list[tuple[str, bytes]] = []
    try:
        with tarfile.open(path, "r:*" if path.suffix != ".zst" else "r:") as tar:
            for member in tar:
                if not member.isfile():
                    continue
                members.append(member.name)
                if len(members) > MEMBERS:
                    break
                if member.size <= WHOLE and (file := tar.extractfile(member)):
                    first.append((member.name, file.read()))
    except (tarfile.TarError, OSError, EOFError):
        return (members, first) if members else None
    return members, first


def _zip_members(path: Path) -> tuple[list[str], list[tuple[str, bytes]]] | None:
    try:
        with zipfile.ZipFile(path) as file:
            infos = [info for info in file.infolist() if not info.is_dir()]
            small = [info for info in infos[:MEMBERS] if info.file_size <= WHOLE]
            return [info.filename for info in infos], [(info.filename, file.read(info)) for info in small]
    except (zipfile.BadZipFile, OSError, RuntimeError, NotImplementedError):
        return None


def _member(name: str, data: bytes) -> str | None:
    """What a file in an archive holds, in words."""
    if data.startswith((b"ARROW1", b"\xff\xff\xff\xff")):
        said = _arrow_fields(data)
        return f"is Arrow: {said}" if said else None
    kind, codec = files.kind(name, "auto")
    if codec or kind not in ("jsonl", "csv"):
        return None
    sample = of_bytes(name, data, kind)
    if form := _refused_member(sample, data):
        return form
    return _named_sample(sample)


def _refused_member(sample: Sample, data: bytes) -> str | None:
    if sample.format != "jsonl" or len(sample.records) > 1:
        return None
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        return None
    said = [said for place, records in _lists(found, "", LEVELS) if (said := _named(place, records))]
    return f"is a JSON document: {said[0]}" if said else None


def _named_sample(sample: Sample) -> str | None:
    choice = choose(sample.records)
    return None if choice is None else f"has {', '.join(f'{ours} {theirs}' for ours, theirs in choice.fields.items())}"
