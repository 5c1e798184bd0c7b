"""
Of which kind the texts of a source are, as far as it decides the rules that fit: code, English web pages, or other.

A language is never guessed: it comes from a mapped field.  Without one the share of letters that are not Latin is
told, by the project's own table of code points.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from datapipe.kernels import unicode
from datapipe.propose import names
from datapipe.propose.judge import Choice, percent
from datapipe.propose.values import Field, Record, fields, head, units

CODE, WEB, OTHER = "code", "web", "other"
MOST_TEXTS = 500
MOSTLY = 0.5
MOST_LANGUAGES = 40  # that are named in a filter
FOREIGN = 0.05  # share of letters that are not Latin from which it is told


@dataclass(frozen=True)
class Texts:
    """What the texts of a source are like."""

    kind: str
    code: float  # share of records that are code
    not_latin: float  # share of letters
    units: tuple[int, ...]  # of each text
    code_langs: tuple[str, ...]  # languages that are code, the commonest first
    others: tuple[str, ...]  # those that are neither English nor code
    prose: tuple[str, ...]  # those that are no code

    def short(self, least: float) -> float:
        """Share of the texts with fewer units."""
        return sum(count < least for count in self.units) / len(self.units) if self.units else 0.0


def texts(records: Sequence[Record], choice: Choice, paths: Sequence[Path]) -> Texts:
    """The kind of a source's texts; `paths` are its files where a file is a document."""
    found = fields(records)
    lang = found.get(choice.fields.get("lang", ""))
    code = max(_code_by_lang(lang), _code_by_path(found, choice, records), _code_by_suffix(paths))
    english = 0.0 if lang is None else sum(_english(value) for value in lang.plain) / max(1, len(records))
    text = found[choice.text]
    web = any(names.rank(name, (*names.URLS, "domain", "host", "warcdate")) is not None and one.share >= MOSTLY
              for name, one in found.items())  # fmt: skip
    kind = CODE if code >= MOSTLY else WEB if web and english >= MOSTLY else OTHER
    langs = [] if lang is None else [value for value, _ in lang.commonest(MOST_LANGUAGES)]
    prose = tuple(value for value in langs if not _is_code(value))
    return Texts(
        kind,
        code,
        not_latin(text),
        tuple(units(value) for value in text.texts),
        tuple(value for value in langs if _is_code(value)),
        tuple(value for value in prose if not _english(value)),
        prose,
    )


def _english(lang: str) -> bool:
    return lang.casefold().replace("_", "-").split("-")[0] in names.ENGLISH


def _is_code(lang: str) -> bool:
    lang = lang.casefold()
    return lang.startswith(("code:", "code/")) or lang in names.LANGUAGES_OF_CODE


def _code_by_lang(lang: Field | None) -> float:
    return 0.0 if lang is None else sum(_is_code(value) for value in lang.plain) / max(1, lang.records)


def _code_by_path(found: dict[str, Field], choice: Choice, records: Sequence[Record]) -> float:
    """Share of records that a field tells a path of with the suffix of a programming language."""
    shares = [
        sum(Path(value).suffix.casefold() in names.SUFFIXES_OF_CODE for value in one.plain) / max(1, len(records))
        for name, one in found.items()
        if names.rank(name, names.PATHS) is not None or name == choice.fields.get("id")
    ]
    return max(shares, default=0.0)


def _code_by_suffix(paths: Sequence[Path]) -> float:
    known = [path for path in paths if path.suffix.casefold() in names.SUFFIXES_OF_CODE]
    return len(known) / len(paths) if paths else 0.0


def not_latin(text: Field) -> float:
    """Share of the letters that are of another script than Latin; 0 without letters."""
    step = max(1, len(text.texts) // MOST_TEXTS)
    joined = "".join(head(value) for value in text.texts[::step])
    points = np.frombuffer(joined.encode("utf-32-le", "replace"), np.uint32)
    page, entry, *_ = unicode.tables()
    words = entry[(page[points >> 7].astype(np.int64) << 7) | (points & 127)]
    letters = int((words >> np.uint32(unicode.LETTER) & 1).sum())
    latin = int((words >> np.uint32(unicode.LETTER) & words >> np.uint32(unicode.LATIN) & 1).sum())
    return 1 - latin / letters if letters else 0.0


def languages(lang: Field) -> str:
    """The commonest languages for people."""
    shown = lang.commonest(6)
    more = f" and {lang.distinct - len(shown)} more" if lang.distinct > len(shown) else ""
    return ", ".join(f"{value} {percent(share)}" for value, share in shown) + more
