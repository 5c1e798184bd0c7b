"""
How one source is read: what of the manifest decides the bytes of its units, and nothing else.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from datapipe import edits, text
from datapipe.edits.redact import Redaction, redactions
from datapipe.errors import DataError
from datapipe.keyed import bound, keyed
from datapipe.language import VERSION as LANGUAGE_VERSION
from datapipe.language import Language
from datapipe.manifest import Manifest
from datapipe.manifest.types import Select, Source
from datapipe.read.fields import Mapping, Quoting, as_json, as_text, instant, mapping

# the value of a field in every row: texts of mapped fields, JSON values of extra ones
Columns = Callable[[str], Sequence]
NUMBER = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?", re.ASCII)


@dataclass(frozen=True)
class Spec:
    """A source's part of the manifest, made ready for reading."""

    name: str
    source: Source
    names: Mapping
    expanded: int  # bytes that a compressed file may grow to
    raw: bool  # keep the first bytes of refused records; never of a source that is redacted
    language: Language | None = None  # the model that says which language a text is in

    @property
    def labels(self) -> tuple[str, ...]:
        """snapshot.name: a label, or the accepted values where the snapshot is a mapped field."""
        return self.source.snapshot.names if self.source.snapshot else ()

    @property
    def key(self) -> str | None:
        """The field that names a thing of which there are several captures."""
        return self.source.snapshot.key if self.source.snapshot else None

    @property
    def redactions(self) -> tuple[Redaction, ...]:
        """What its edits take away, in its other fields too."""
        return redactions(self.source.edits)

    def discreet(self, error: Quoting) -> DataError:
        """The error as it may be shown."""
        return DataError(error.bare) if self.redactions else error

    def settings(self) -> dict:
        """What a unit of reading depends on, for its key."""
        source = self.source
        return {
            "source": self.name,
            "tolerant": source.tolerant,
            "fields": source.fields,
            "extra": source.extra,
            "labels": self.labels,
            "key": self.key,
            # pairs, for their order decides by which rule a record is cut
            "select": [[name, rule.model_dump(mode="json")] for name, rule in source.select.items()],
            "sample": source.sample,
            "edits": [[name, edits.VERSIONS[name]] for name in source.edits],
            "raw": self.raw,
            "text": text.VERSION,
        } | ({"language": [self.language.sha256, LANGUAGE_VERSION]} if self.language else {})

    @property
    def libraries(self) -> list[str]:
        """The libraries that decide the bytes of its units, beside those that every unit needs."""
        mine = {library for name in self.source.edits for library in edits.LIBRARIES.get(name, ())}
        return sorted(mine | ({self.language.library} if self.language else set()))


def spec(manifest: Manifest, name: str, language: Language | None = None) -> Spec:
    """How the source of that name is read; `language`: the manifest's model."""
    source = manifest.sources[name]
    names = mapping(source.fields, source.extra)
    covered = manifest.language is not None and manifest.language.covers(name)
    raw = manifest.quarantine.raw and not redactions(source.edits)
    return Spec(name, source, names, manifest.limits.expanded, raw, language if covered else None)


def cuts(spec: Spec, values: Columns, rows: int) -> list[str | None]:
    """
    The rule that cuts each row before anything is stored, null where it stays: select, then snapshot, then sample.

    A row without a key is sampled by its doc_id, when that is known (admit.py).
    """
    rules: list[str | None] = [None] * rows
    if spec.key is not None and spec.source.sample is not None:
        below = bound(spec.source.sample)
        for row, key in enumerate(values(spec.key)):
            if key is not None and keyed("sample", None, key_text(key)) >= below:
                rules[row] = "sample"
    if spec.labels and "snapshot" in spec.source.fields:
        accepted = set(spec.labels)
        for row, label in enumerate(values("snapshot")):
            if label not in accepted:
                rules[row] = "snapshot"
    for name, rule in reversed(spec.source.select.items()):
        taken = test(name, rule)
        for row, value in enumerate(values(name)):
            if not taken(value):
                rules[row] = f"select: {name}"
    return rules


def key_text(key: object) -> str:
    """A key as text: of a mapped field it is one, of an extra field its canonical JSON unless a string."""
    return key if isinstance(key, str) else as_json(key)


def test(field: str, rule: Select) -> Callable[[object], bool]:
    """
    Whether a value is taken.  Null never is; a number is compared with numbers (also with those that a mapped field
    holds as text), a date by its instant, all else as text.
    """
    read = instant_of if field == "date" else as_text
    accepted = None if rule.in_ is None else {read(value) for value in rule.in_}
    low, high = _side(field, rule.min), _side(field, rule.max)

    def taken(value: object) -> bool:
        if value is None or (accepted is not None and read(value) not in accepted):
            return False
        return (low is None or low(value, -1)) and (high is None or high(value, 1))

    return taken


def _side(field: str, limit: str | int | float | None) -> Callable[[object, int], bool] | None:
    """Whether a value lies at a bound or on its right side; `wrong` is -1 for a minimum, 1 for a maximum."""
    if limit is None:
        return None
    read = _reader(field, limit)
    border = read(limit)

    def inside(value: object, wrong: int) -> bool:
        found = read(value)
        if found is None:
            return False
        return found >= border if wrong < 0 else found <= border

    return inside


def _reader(field: str, limit: str | int | float) -> Callable:
    if isinstance(limit, int | float):
        return number
    dated = "-" in limit and instant(limit) is not None  # 2020-01-01; a bare 2020 may be a version
    return instant_of if field == "date" or dated else as_text


def instant_of(value: object) -> int | None:
    return instant(as_text(value))


def number(value: object) -> int | float | None:
    """A JSON number, or the number that a text spells as JSON does."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float):
        return value
    return spelled(value) if isinstance(value, str) else None


def spelled(text: str) -> int | float | None:
    """The number that a text spells as JSON does; 0042, +1 and nan are none."""
    if len(text) > 300 or not NUMBER.fullmatch(text):
        return None
    value = int(text) if text.lstrip("-").isdigit() else float(text)
    return value if abs(value) != float("inf") else None
