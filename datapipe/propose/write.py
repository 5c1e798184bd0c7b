"""
The manifest as text: YAML by hand, for the comments are half of it.  What is not plain is quoted.
"""

import json
import math
import os
import re
import textwrap
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from datapipe.manifest import presets
from datapipe.propose import kinds, patterns
from datapipe.propose.judge import percent
from datapipe.propose.sample import Sample
from datapipe.propose.sources import Found, Source
from datapipe.propose.values import Field, fields, size
from datapipe.read.fields import instant

WIDTH = 110  # columns of a comment
LINE = 118  # columns of a list that stands on one line
PLAIN = re.compile(r"[A-Za-z_/][\w/.*+@-]*(?<![.:])|\.{1,2}/[\w/.*+@-]+", re.ASCII)
# read as true, false or null by some YAML
WORDS = frozenset(("true", "false", "yes", "no", "on", "off", "y", "n", "null", "nan", "inf"))
EDITS = "[nfc, strip_control, fix_newlines]"
MOSTLY_SHORT = 0.5  # share of texts from which a preset is not proposed, for it would drop them
# the presets that are proposed, in the order in which they stand
WHY = {
    "code": "code: no minified, generated and data files",
    "gopher_quality": "English pages by their words; documents of other languages are not judged by this",
    "gopher_repetition": "and by lines, paragraphs and words that come again and again",
    "quality_units": "bounds in units and characters, for any language",
}
FEW_FILES = 20  # text files that may be sets of records rather than documents
WHY_EDITS = "the edits make equal texts equal, and keep control characters from a tokenizer"
MOST_FIELDS = 12  # that are told though nothing is made of them


def scalar(text: str) -> str:
    """A text as YAML, bare where nothing can take it for anything else."""
    return text if PLAIN.fullmatch(text) and text.casefold() not in WORDS else quoted(text)


def quoted(text: str) -> str:
    """A text in double quotes, with escapes for all that does not print."""
    return '"' + "".join(_escaped(c) for c in text) + '"'


def _escaped(c: str) -> str:
    if c in '"\\':
        return "\\" + c
    if c.isprintable():
        return c
    code = ord(c)
    return f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def shown(text: str) -> str:
    """A text as a comment may have it: on one line, nothing that does not print."""
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)


def comment(text: str, indent: int, mark: str = "#") -> Iterator[str]:
    """A comment of as many lines as it takes."""
    head = " " * indent + mark + " "
    later = " " * indent + "#" + " " * (len(mark))
    yield from textwrap.wrap(
        shown(text), WIDTH, initial_indent=head, subsequent_indent=later, break_long_words=False, break_on_hyphens=False
    )


def manifest(found: Found, name: str, folder: Path) -> str:
    """The manifest of what was found; paths are relative to `folder`, where it is to lie."""
    lines = [
        "# A proposal of `datapipe init`, made from a sample of the records: read it and mend it.  Behind #? stands",
        "# what was doubtful.  `datapipe build THIS_FILE --dry-run --sample 10000` says what its filters would take.",
    ]
    for note in found.notes:
        lines += comment(note, 0, "#?")
    for path, said in unreadable(found):
        lines += comment(f"left out: {path} {said}", 0, "#?")
    lines.append(f"name: {scalar(name)}")
    lines += _limits(found.sources)
    lines += ["", "sources:"]
    if any(source.texts.kind != kinds.CODE for source in found.sources):
        lines += comment(WHY_EDITS, 2)
    for source in found.sources:
        lines += _source(source, folder)
    lines += ["", "stages:"]
    lines += _stages(found.sources)
    lines += [
        "",
        "# without a tokenizer the build ends after the stages; with one it makes shards of packed sequences:",
        '# tokenizer: {file: tokenizer.json, eos: "<|endoftext|>"}',
    ]
    return "\n".join(lines) + "\n"


def unreadable(found: Found) -> list[tuple[str, str]]:
    """(path, why) of what cannot be read; many of one folder that are the same together."""
    same: dict[tuple[Path, str], list[Path]] = {}
    for one in found.unreadable:
        same.setdefault((one.path.parent, str(one)), []).append(one.path)
    told = []
    for (folder, said), paths in same.items():
        shown_path = str(paths[0]) if len(paths) == 1 else f"{folder}: {paths[0].name} and {len(paths) - 1} more, each"
        told.append((_near(shown_path), said))
    return told


def _near(path: str) -> str:
    """A path as seen from here, where it lies below."""
    here = os.getcwd() + os.sep
    return path.removeprefix(here)


# limits


def _limits(sources: Sequence[Source]) -> Iterator[str]:
    """Where the sample alone would trip a limit, the limit that lets it pass, with why."""
    limits: list[str] = []
    for key, count, what in (
        ("rejected", _rejected, "no usable text"),
        ("quarantined", _quarantined, "are unreadable"),
    ):
        worst = max(sources, key=lambda source: count(source) / max(1, _looked(source)))
        share = count(worst) / max(1, _looked(worst))
        if share > 0.01:
            said = f"in {worst.name} {count(worst):,} of {_looked(worst):,} records "
            said += f"have {what}" if key == "rejected" else what
            yield from comment(f"{said}: the limit is raised so that a build passes; look at them first", 0, "#?")
            limits.append(f"{key}: {min(1.0, math.ceil(share * 120) / 100):.2f}")
    if limits:
        yield f"limits: {{{', '.join(limits)}}}"


def _looked(source: Source) -> int:
    return sum(sample.looked for sample in source.samples)


def _quarantined(source: Source) -> int:
    return sum(sample.unreadable.total() for sample in source.samples)


def _rejected(source: Source) -> int:
    text = fields(source.records)[source.choice.text]
    return text.records - len(text.texts)


# a source


def _source(source: Source, folder: Path) -> Iterator[str]:
    yield f"  {scalar(source.name)}:"
    for said in (_files(source.samples, source), *_seen(source)):
        yield from comment(said, 4)
    for note in doubts(source):
        yield from comment(note, 4, "#?")
    yield from _list("files", [patterns.written(pattern, folder) for pattern in source.patterns])
    if source.exclude:
        yield from _list("exclude", [patterns.excluded(path, folder) for path in source.exclude])
    if source.format != "auto":
        yield f"    format: {source.format}"
    if not _is_text(source):
        yield from _mapping(source)
    if source.choice.key is not None:
        yield f"    snapshot: {{key: {scalar(source.choice.key)}, keep: newest}}"
    if source.texts.kind == kinds.CODE:
        yield "    # no edits: in code every character may matter"
    else:
        yield f"    edits: {EDITS}"


def _is_text(source: Source) -> bool:
    return source.samples[0].format == "text"


def _mapping(source: Source) -> Iterator[str]:
    mapped = dict(source.choice.fields)
    there = "id" in fields(source.records)
    pairs = [f"{ours}: {scalar(theirs)}" for ours, theirs in mapped.items()]
    if "id" not in mapped and there:
        pairs.insert(1, "id: null")  # else the field of that name would be taken
    yield f"    fields: {{{', '.join(pairs)}}}"
    if source.choice.extra:
        yield from _list("extra", source.choice.extra)


def _list(key: str, values: Sequence[str]) -> Iterator[str]:
    line = f"    {key}: [{', '.join(scalar(value) for value in values)}]"
    if len(line) <= LINE:
        yield line
        return
    yield f"    {key}:"
    yield from (f"      - {scalar(value)}" for value in values)


# what was seen


def _files(samples: Sequence[Sample], source: Source) -> str:
    count = len(source.files)
    codecs = sorted({sample.codec for sample in samples if sample.codec})
    total = sum(path.stat().st_size for path in source.files)
    whole = all(sample.whole for sample in samples)
    looked = "all" if whole else "a sample of"
    form = samples[0].format + (f" in {', '.join(codecs)}" if codecs else "")
    what = "documents" if _is_text(source) else "records"
    number = f"{count:,} {'file' if count == 1 else 'files'}"
    heads = [sample.first for sample in samples if sample.first is not None]
    begin = f", {len(heads):,} of {len(samples):,} files" if len(heads) < len(samples) else ""
    first = f" from the first {sum(heads):,}{begin}: it stands for the beginning alone" if heads else ""
    return f"{number} of {form}, {_bytes(total)}; {looked} {_looked(source):,} {what}{first}"


def _bytes(count: int) -> str:
    for unit, factor in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if count >= factor:
            return f"{count / factor:.3g} {unit}"
    return f"{count} B"


def _seen(source: Source) -> Iterator[str]:
    """The length of texts, languages or scripts, dates, and the fields of which nothing is made."""
    seen = fields(source.records)
    text = seen[source.choice.text]
    sizes = sorted(_sizes(text))
    if sizes:
        low, high = sizes[len(sizes) // 10], sizes[len(sizes) * 9 // 10]
        yield f"texts: median {text.size:,} characters (most {low:,} to {high:,}), about {text.units:,} words or signs"
    if "lang" in source.choice.fields:
        yield f"languages: {kinds.languages(seen[source.choice.fields['lang']])}"
    if source.texts.not_latin > kinds.FOREIGN and "lang" in source.choice.fields:
        yield f"{percent(source.texts.not_latin)} of the letters are not Latin"
    if "date" in source.choice.fields:
        dates = sorted(_dates(seen[source.choice.fields["date"]]))
        if dates:
            yield f"dates: {dates[0]} to {dates[-1]}"
    taken = {*source.choice.fields.values(), *source.choice.extra}
    rest = [one for one in seen.values() if one.name not in taken]
    if rest:
        more = f" and {len(rest) - MOST_FIELDS} more" if len(rest) > MOST_FIELDS else ""
        yield f"not used: {', '.join(_described(one) for one in rest[:MOST_FIELDS])}{more}"


def _sizes(text: Field) -> list[int]:
    return [size(value) for value in text.texts]


def _dates(date: Field) -> list[str]:
    return [text for text in date.plain if instant(text) is not None]


def _described(one: Field) -> str:
    share = "" if one.share >= 0.995 else f" in {percent(one.share)}"
    few = f", {one.distinct} values" if 0 < one.distinct <= 20 and len(one.values) > one.distinct else ""
    return f"{one.name} ({one.type}{few}{share})"


def doubts(source: Source) -> list[str]:
    """All that was doubtful about a source."""
    told = [*source.choice.notes, *source.notes]
    refused: Counter[str] = sum((sample.unreadable for sample in source.samples), start=Counter())
    if refused:
        order = sorted(refused.items(), key=lambda item: (-item[1], item[0]))
        reasons = ", ".join(f"{reason}: {n:,}" for reason, n in order[:3])
        told.append(f"{refused.total():,} of {_looked(source):,} records are unreadable, so quarantined ({reasons})")
    told += [
        f"{sample.path.name} is damaged ({sample.damage}): get it again, or add `tolerant: true` for its whole records"
        for sample in source.samples
        if sample.damage
    ]
    taken = {*source.choice.fields.values(), *source.choice.extra}
    if twice := sorted(taken & {name for sample in source.samples for name in sample.repeated}):
        told.append(f"some records give {', '.join(twice)} twice; they are quarantined")
    if odd := sorted({name for sample in source.samples for name in sample.odd}):
        told.append(f"fields with names that a manifest cannot say: {', '.join(json.dumps(name) for name in odd[:5])}")
    told += kinds_doubts(source)
    return told


def kinds_doubts(source: Source) -> Iterator[str]:
    texts = source.texts
    if "lang" not in source.choice.fields and texts.kind != kinds.CODE:
        foreign = f"{percent(texts.not_latin)} of the letters are not Latin"
        yield f"lang: no field tells the language, and none was guessed; {foreign}"
    if _is_text(source) and len(source.files) < FEW_FILES and texts.kind != kinds.CODE:
        yield "text: each file is one document; where its lines or blocks are the records, make JSON lines of them"
    if 0.02 < texts.code < 0.98:
        yield f"{percent(texts.code)} of the records look like code; a source of its own would be better for them"


# stages


def _stages(sources: Sequence[Source]) -> Iterator[str]:
    filters: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for source in sources:
        for preset, langs in _presets(source):
            least = _least_units(preset)
            if (short := source.texts.short(least)) > MOSTLY_SHORT:
                said = f"{source.name}: {percent(short)} of the texts have fewer than {least:g} words or signs, which "
                yield from comment(f"{said}{preset} would drop; it is not proposed", 2, "#?")
            else:
                filters.setdefault((preset, langs), []).append(source.name)
    told: set[str] = set()
    for (preset, langs), named in sorted(filters.items(), key=lambda item: list(WHY).index(item[0][0])):
        if preset not in told:
            yield f"  # {WHY[preset]}"
        told.add(preset)
        yield from _filter(preset, named, langs)
    by = ", by: group" if all("group" in source.choice.fields for source in sources) else ""
    yield "  # before any dedup, so that copies of validation documents leave train; a group stays on one side"
    yield f"  - {{stage: holdout, fraction: 0.01{by}, salt: holdout-1}}"
    yield "  - {stage: exact_dedup}  # prefer: [priority, longest, newest]"
    yield "  - {stage: near_dedup, threshold: 0.8}"


def _presets(source: Source) -> list[tuple[str, tuple[str, ...]]]:
    """The presets that fit the texts of a source, each with the languages that it is to judge, none: all."""
    texts = source.texts
    match texts.kind:
        case kinds.CODE if texts.prose and texts.code_langs:
            return [("code", texts.code_langs), ("quality_units", texts.prose)]
        case kinds.CODE:
            return [("code", ())]
        case kinds.WEB:
            rest = [("quality_units", texts.others)] if texts.others else []
            return [("gopher_quality", ()), ("gopher_repetition", ()), *rest]
    return [("quality_units", ())]


def _filter(preset: str, sources: Sequence[str], langs: Sequence[str]) -> Iterator[str]:
    only = {"source": sources} | ({"lang": langs} if langs else {})
    inside = ", ".join(f"{key}: [{', '.join(map(scalar, values))}]" for key, values in only.items())
    line = f"  - {{stage: filter, preset: {preset}, only: {{{inside}}}}}"
    if len(line) <= LINE:
        yield line
        return
    yield from ("  - stage: filter", f"    preset: {preset}", "    only:")
    for key, values in only.items():
        yield f"      {key}:"
        yield from (f"        - {scalar(value)}" for value in values)


def _least_units(preset: str) -> float:
    """Units or words that a preset asks of a text."""
    keep = presets.load(preset).keep
    return max((keep[name].get("min", 0) for name in ("unit_count", "word_count") if name in keep), default=0)
