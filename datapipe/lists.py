"""
Lists of what is not wanted, from files that the user names: a line is an entry.

Plain text in UTF-8, gzip too.  A line that begins with `#` is a remark, and so is what follows ` #`; blanks around an
entry do not count.  Files are read once, before any work: what recipe_id names is what decides.  A list is known by
the last parts of its path (`adult/domains`), so no rule says where a machine keeps it.
"""

import gzip
import hashlib
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from datapipe import urls
from datapipe.errors import ManifestError
from datapipe.manifest import Manifest, UrlFilter, WordFilter

GZIP = b"\x1f\x8b"
BOM = b"\xef\xbb\xbf"
# hosts that are written as they are compared: nearly all, and no Python need look at them
PLAIN_HOST = r"^[a-z0-9_-]+(\.[a-z0-9_-]+)*$"
PLAIN_ALNUM = "^[a-z0-9]+$"


def _host(entry: str) -> str | None:
    """The host that a line names; one with a path is a URL, and would take more than it says."""
    host, rest = urls.split(entry)
    return host if rest in ("", "/") else None


def _domain(entry: str) -> str | None:
    """
    The domain that a line names; `*.spam.co.uk` and `.spam.co.uk` are written for it.  Below one they would mean the
    hosts below a host, which no rule has; a public suffix (co.uk) is nobody's domain.
    """
    bare = entry.removeprefix("*.").removeprefix(".")
    host = _host(bare)
    if host is None or urls.is_suffix(host) or (bare != entry and host not in urls.registered(host)):
        return None
    return host


def _maybe_suffix(entries: pa.Array) -> pa.Array:
    names, pattern = urls.maybe_suffixes()
    listed = pc.call_function("is_in", [entries], pc.SetLookupOptions(pa.array(names, entries.type)))
    starred = pc.call_function("match_substring_regex", [entries], pc.MatchSubstringOptions(pattern))
    return pc.call_function("or", [listed, starred])


# stage, key -> (RE2 pattern of entries that stay as they are, how the others are written; null: it can match nothing)
Form = tuple[str | None, Callable[[str], str | None]]
FORMS: Mapping[tuple[str, str], Form] = {
    ("url_filter", "domains"): (PLAIN_HOST, _domain),
    ("url_filter", "hosts"): (PLAIN_HOST, _host),
    ("url_filter", "urls"): (None, urls.canonical),
    ("url_filter", "words"): (PLAIN_ALNUM, lambda entry: urls.squeezed(entry) or None),
    ("url_filter", "soft_words"): (PLAIN_ALNUM, lambda entry: urls.squeezed(entry) or None),
    ("url_filter", "substrings"): (PLAIN_ALNUM, lambda entry: urls.squeezed(entry) or None),
}
FOLDERS = ("domains", "urls")  # keys for which a folder stands for its file of that name


@dataclass(frozen=True)
class Listing:
    """
    A list as it is looked up.

    name:     the end of its path, by which rules call it;  sha256: of the file, uncompressed
    entries:  large_string, distinct or not
    unusable: lines that can match nothing, and the first of them
    """

    name: str
    sha256: str
    entries: pa.Array = field(repr=False)
    unusable: tuple[int, str] | None = None


# stage as the manifest has it -> key -> its lists, in the manifest's order
Lists = Mapping[UrlFilter | WordFilter, Mapping[str, Sequence[Listing]]]


def check(manifest: Manifest) -> Lists:
    """All lists of a manifest, found fit before any work."""
    asked = list(_asked(manifest))
    names = _names([written for *_, written in asked])
    read: dict[Path, bytes] = {}
    found: dict[UrlFilter | WordFilter, dict[str, list[Listing]]] = {}
    for place, stage, key, number, written in asked:
        if number == 0:
            found.setdefault(stage, {})[key] = []
        where = f"{manifest.path}: stages[{place}].{key}[{number}]"
        path = manifest.resolve(written)
        zipped = path.with_name(f"{path.name}.gz")
        path = zipped if key in FOLDERS and not path.exists() and zipped.exists() else path
        if path not in read:
            read[path] = _read(path, where)
        listing = _listing(read[path], FORMS.get((stage.stage, key)), names[written], f"{where}: {path}")
        found[stage][key].append(listing)
    return found


def _asked(manifest: Manifest) -> Iterator[tuple[int, UrlFilter | WordFilter, str, int, str]]:
    """(position of a stage, the stage, key, number in the list, path as written) of every file."""
    for place, stage in enumerate(manifest.stages):
        if isinstance(stage, UrlFilter | WordFilter):
            for key in stage.LISTS:
                for number, written in enumerate(getattr(stage, key)):
                    folder = key in FOLDERS and manifest.resolve(written).is_dir()
                    yield place, stage, key, number, f"{written.rstrip('/')}/{key}" if folder else written


def _names(paths: Sequence[str]) -> dict[str, str]:
    """For each path its last two parts, or as many as tell it from the others."""
    steps = ("", ".", "..")
    parts = {path: [part for part in path.removesuffix(".gz").split("/") if part not in steps] for path in paths}
    names: dict[str, str] = {}
    for path, mine in parts.items():
        others = [each for each in parts.values() if each != mine]
        length = 2
        while length < len(mine) and any(each[-length:] == mine[-length:] for each in others):
            length += 1
        names[path] = "/".join(mine[-length:])
    return names


def _read(path: Path, where: str) -> bytes:
    try:
        data = path.read_bytes()
        return gzip.decompress(data) if data.startswith(GZIP) else data
    except IsADirectoryError:
        raise ManifestError(f"{where}: {path} is a folder; name the file in it") from None
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise ManifestError(f"{where}: {path} is damaged gzip: {error}") from error
    except OSError as error:
        raise ManifestError(f"{where}: cannot read {path}: {error.strerror}") from error


def _listing(data: bytes, form: Form | None, name: str, where: str) -> Listing:
    try:
        text = data.removeprefix(BOM).decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ManifestError(f"{where}: line {line} is not UTF-8; save the list as UTF-8") from None
    lines = _lines(text)
    if not len(lines):
        raise ManifestError(f"{where}: the list is empty; leave it out, or fill it")
    entries, unusable = _formed(lines, *form) if form else (pc.call_function("utf8_lower", [lines]), None)
    if not len(entries):
        raise ManifestError(f"{where}: no line of it can match anything; the first is {lines[0].as_py()[:60]!r}")
    return Listing(name, hashlib.sha256(data).hexdigest(), entries, unusable)


def _lines(text: str) -> pa.Array:
    """The entries of a file, large_string."""
    whole = pa.array([text], pa.large_string())
    lines = pc.call_function("split_pattern", [whole], pc.SplitPatternOptions("\n")).values
    if "#" in text:
        remark = pc.ReplaceSubstringOptions(r"(^|\s)#.*$", "")
        lines = pc.call_function("replace_substring_regex", [lines], remark)
    lines = pc.call_function("utf8_trim_whitespace", [lines])
    return lines.filter(pc.call_function("not_equal", [lines, pa.scalar("", lines.type)]))


def _formed(
    lines: pa.Array, plain: str | None, formed: Callable[[str], str | None]
) -> tuple[pa.Array, tuple[int, str] | None]:
    """Entries in the form in which they are compared, and what could not be."""
    ready, rest = lines.slice(0, 0), lines
    if plain is not None:
        mask = pc.call_function("match_substring_regex", [lines], pc.MatchSubstringOptions(plain))
        if formed is _domain:
            mask = pc.call_function("and_not", [mask, _maybe_suffix(lines)])
        ready, rest = lines.filter(mask), lines.filter(pc.call_function("invert", [mask]))
    made, lost = [], []
    for entry in rest.to_pylist():
        form = formed(entry)
        (lost if form is None else made).append(entry if form is None else form)
    entries = pa.concat_arrays([ready, pa.array(made, lines.type)])
    return entries, (len(lost), lost[0]) if lost else None


def _listings(manifest: Manifest, lists: Lists) -> Iterator[tuple[str, Listing]]:
    """Every list, and where the manifest names it."""
    for place, stage in enumerate(manifest.stages):
        if isinstance(stage, UrlFilter | WordFilter):
            for key, listings in lists[stage].items():
                for number, listing in enumerate(listings):
                    yield f"stages[{place}].{key}[{number}]", listing


def digests(manifest: Manifest, lists: Lists) -> dict[str, str]:
    """For recipe_id: what each stage looks up and by which name; and what else decides about URLs."""
    found = {f"{where} {listing.name}": listing.sha256 for where, listing in _listings(manifest, lists)}
    looked_up = any(isinstance(stage, UrlFilter) for stage in lists)
    return found | (urls.decided_by() if looked_up else {})


def warnings(manifest: Manifest, lists: Lists) -> tuple[str, ...]:
    """A sentence for each list with lines that can match nothing."""
    return tuple(
        f"{where}: {listing.unusable[0]:,} lines of list {listing.name} can match nothing; the first is "
        f"{listing.unusable[1][:60]!r}"
        for where, listing in _listings(manifest, lists)
        if listing.unusable
    )
