"""
manifests/README.md from the types: every key, its type, its default, its meaning.

`python -m datapipe.manifest.describe manifests` writes it anew.
"""

import sys
from pathlib import Path
from typing import Any, cast, get_args

from pydantic.fields import FieldInfo

from datapipe.manifest import presets, shape
from datapipe.manifest.entry import Entry
from datapipe.manifest.messages import LATER
from datapipe.manifest.signals import SIGNALS
from datapipe.manifest.stages import LATER_STAGES
from datapipe.manifest.types import Manifest
from datapipe.manifest.values import UNITS

FILE = "README.md"
HEAD = """\
# Manifests

One YAML file says what a data set is made of, what judges its documents, and how they become sequences. What says
how to train on it (`train-*.yaml`) has its keys in [TRAINING.md](TRAINING.md).

<!-- written by `python -m datapipe.manifest.describe manifests`; a test compares it with the types -->

## Here

"""
RULES = """
## How values are written

* Required are `name` and `sources`; every other key has a default. Without a `tokenizer` the build ends after the
  stages.
* A key that is not listed here is a mistake, and so is an equal key twice. All mistakes are reported at once, as
  `file:line: key: problem`, with the nearest known key; the exit status is 2 and nothing is written.
* Paths are relative to the manifest's folder. `~` and `${VAR}` expand; a variable that is not set is a mistake;
  `${stdlib}` is the library folder of the Python that runs.
* Sizes are powers of ten (`64MB`, `1.5GB`) or of two (`512MiB`), or a whole number of bytes.
* Dates are ISO 8601; without a zone they are UTC, and a date is its first instant. They stay the text you wrote.
* YAML 1.2: `no` and `on` are text, `2024` and `1e3` are numbers (quote them where text is meant). Anchors, aliases
  and `<<` work; tags do not.
* Bounds and ranges include their ends.

## What must fit together

* `holdout` stands before every dedup stage and before `decontaminate`. `holdout`, `exact_dedup` and `near_dedup` stand
  there once at most.
* `mixture` names every source, and some weight is above 0. `mixture`, `sequences` and `shards` need a `tokenizer`.
* `select`, `snapshot.key` and `by` name mapped or extra fields. A filter names signals, or extra fields that every
  source it judges carries: a document without the value lies outside every bound.
* `snapshot.key` needs `date` or `version` among the mapped fields, `as_of` needs `date`.
"""


def readme(folder: Path) -> str:
    """The whole text; `folder` holds the manifests that it lists."""
    listed = "\n".join(f"* [{path.name}]({path.name}): {_subject(path)}" for path in sorted(folder.glob("*.yaml")))
    sections = [section(*each) for each in shape.every_entry(Manifest)]
    return HEAD + listed + "\n" + RULES + "\n" + "\n".join([*sections, _signals(), _presets()])


def _signals() -> str:
    rows = [f"| `{name}` | {meaning} |" for name, meaning in SIGNALS.items()]
    head = (
        "## Signals\n\nWhat `keep` of a filter can bound, beside numeric extra fields. The terms are those of "
        "`datapipe/text.py`; a signal is null where it has no meaning, and null is outside every bound.\n"
    )
    return "\n".join([head, "| signal | meaning |", "|---|---|", *rows]) + "\n"


def _presets() -> str:
    found = {name: presets.load(name) for name in presets.names()}
    rows = [f"| `{name}` | {', '.join(preset.languages) or 'all'} | {preset.about} |" for name, preset in found.items()]
    head = (
        "## Presets\n\nSets of bounds by name, `datapipe show --preset NAME` prints one with the source of every rule. "
        "What is written under `keep` is laid over it.\n"
    )
    return "\n".join([head, "| preset | languages | what it is |", "|---|---|---|", *rows]) + "\n"


def _subject(path: Path) -> str:
    """The first comment of a manifest: its lines up to the first that is bare."""
    lines: list[str] = []
    for line in path.read_text("utf-8").splitlines():
        if not line.startswith("# "):
            break
        lines.append(line.removeprefix("# "))
    return " ".join(lines)


def section(path: str, entry: type[Entry]) -> str:
    """The keys of an entry as a table, below its place and what it is."""
    rows = [f"| `{key}` | {_type(hint)} | {_default(field, hint)} | {_meaning(key, field, entry)} |"
            for key, (field, hint) in shape.fields(entry).items()]  # fmt: skip
    rows += [f"| `{key}` | | | {LATER}: {meaning} |" for key, meaning in entry.LATER.items()]
    head = f"## {_title(path, entry)}\n\n{(entry.__doc__ or '').strip()}\n"
    return (
        "\n".join([head, "| key | type | default | meaning |", "|---|---|---|---|", *rows]) + "\n" + _later(path, entry)
    )


def _title(path: str, entry: type[Entry]) -> str:
    if not path:
        return "The top level"
    stage = shape.fields(entry).get("stage")
    return f"`{path}` with `stage: {get_args(shape.bare(stage[1]))[0]}`" if stage else f"`{path}`{_variant(entry)}"


def _variant(entry: type[Entry]) -> str:
    """Which of the two tokenizers."""
    own = [key for key in ("file", "train") if key in shape.fields(entry)]
    return f" with `{own[0]}`" if own and "eos" in shape.fields(entry) else ""


def _later(path: str, entry: type[Entry]) -> str:
    last = path == "stages[]" and "ngram" in shape.fields(entry)
    return (
        "".join(f"\n`stage: {name}` is {LATER}: {meaning}.\n" for name, meaning in LATER_STAGES.items()) if last else ""
    )


def _type(hint: Any) -> str:
    null = " · `null`" if type(None) in get_args(shape.bare(hint)) else ""
    choices = shape.choices(hint)
    if choices:
        return " · ".join(f"`{choice}`" for choice in choices) + null
    return shape.words(hint).replace("|", "\\|") + null


def _default(field: FieldInfo, hint: Any) -> str:
    if field.is_required():
        return "required"
    value = field.get_default(call_default_factory=True, validated_data={})
    if isinstance(value, Entry):
        return "the defaults below"
    return f"`{_written(value, size='a size' in shape.words(hint))}`"


def _written(value: Any, *, size: bool = False) -> str:
    """A default as one would write it in YAML."""
    match value:
        case None:
            return "null"
        case bool():
            return str(value).lower()
        case int() if size:
            unit = max((unit for unit, n in UNITS.items() if "i" not in unit and value % n == 0), key=UNITS.__getitem__)
            return f"{value // UNITS[unit]}{unit}"
        case int():
            return f"{value:_}" if value >= 10_000 else str(value)
        case tuple():
            return "[" + ", ".join(_written(item) for item in cast("tuple[Any, ...]", value)) + "]"
        case dict():
            mapping = cast("dict[str, Any]", value)
            return "{" + ", ".join(f"{key}: {_written(inner)}" for key, inner in mapping.items()) + "}"
        case _:
            return str(value)


def _meaning(key: str, field: FieldInfo, entry: type[Entry]) -> str:
    later = entry.LATER_VALUES.get(key, {})
    named = ", ".join("leave it empty" if value == "*" else f"`{value}` ({what})" for value, what in later.items())
    return f"{field.description}; {LATER}: {named}" if named else f"{field.description}"


if __name__ == "__main__":
    target = Path(sys.argv[1])
    (target / FILE).write_text(readme(target), "utf-8")
