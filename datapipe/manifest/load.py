"""
From a YAML file to a Manifest, or to all that is wrong with it as `file:line: key: problem`.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar, cast

from pydantic import TypeAdapter, ValidationError

from datapipe.manifest import checks, files, messages
from datapipe.manifest.stages import AnyStage, Stage
from datapipe.manifest.types import Language, Manifest, Sequences, Shards, Share, Source

T = TypeVar("T")

SOURCE: TypeAdapter[Source] = TypeAdapter(Source)
STAGE: TypeAdapter[Stage] = TypeAdapter(AnyStage)
SHARE: TypeAdapter[Share] = TypeAdapter(Share)
SEQUENCES: TypeAdapter[Sequences] = TypeAdapter(Sequences)
SHARDS: TypeAdapter[Shards] = TypeAdapter(Shards)
LANGUAGE: TypeAdapter[Language] = TypeAdapter(Language)


def load(path: str | Path) -> Manifest:
    """The manifest in a YAML file; ManifestError with every mistake, a line each."""
    return parse(files.read(path), path)


def parse(data: bytes | str, path: str | Path = "manifest.yaml") -> Manifest:
    """The manifest in YAML text; `path` is what messages name, and relative paths begin in its folder."""
    document = files.document(data, path)
    manifest, problems = validate(document.values, Path(path))
    files.refuse(document, problems, path)
    assert manifest is not None, "what is wrong was refused"
    return manifest


def validate(raw: Mapping[str, Any], path: Path) -> tuple[Manifest | None, list[messages.Problem]]:
    """The manifest in plain values if it is one, and all that is wrong with it."""
    try:
        manifest = Manifest.model_validate(raw, context=path)
    except ValidationError as error:
        problems = list(messages.problems(error))
        return None, [*problems, *checks.problems(_readable(raw))]
    return manifest, list(checks.problems(_readable(raw)))


def _readable(raw: Mapping[str, Any]) -> checks.Readable:
    """What is right by itself in a manifest, be it right as a whole or not."""
    sources, stages, mixture = raw.get("sources"), raw.get("stages"), raw.get("mixture")
    named = cast("dict[str, Any]", sources) if isinstance(sources, dict) else {}
    listed = cast("list[Any]", stages) if isinstance(stages, list) else []
    shares = cast("dict[str, Any]", mixture) if isinstance(mixture, dict) else {}
    valid = {name: source for name, entry in named.items() if (source := _valid(SOURCE, entry))}
    return checks.Readable(
        frozenset(key for key, value in raw.items() if value is not None),
        tuple(named),
        valid,
        [_stage_name(entry) for entry in listed],
        [(n, stage) for n, entry in enumerate(listed) if (stage := _valid(STAGE, entry))],
        {name: _valid(SHARE, entry) for name, entry in shares.items()},
        _valid(SEQUENCES, raw.get("sequences", {})),
        _valid(SHARDS, raw.get("shards", {})),
        _valid(LANGUAGE, raw.get("language")),
    )


def _stage_name(entry: Any) -> str | None:
    name = cast("dict[str, Any]", entry).get("stage") if isinstance(entry, dict) else None
    return name if isinstance(name, str) else None


def _valid(adapter: TypeAdapter[T], value: Any) -> T | None:
    try:
        return adapter.validate_python(value)
    except ValidationError:
        return None
