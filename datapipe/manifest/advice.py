"""What a manifest may say, and hardly means: a sentence each, for a build to warn with."""

from collections.abc import Iterator

from datapipe.keyed import stage_name
from datapipe.manifest import presets
from datapipe.manifest.stages import Filter
from datapipe.manifest.types import Manifest


def warnings(manifest: Manifest) -> tuple[str, ...]:
    """Presets whose rules count on edits that a judged source does not have."""
    return tuple(
        f"{stage_name(place, stage.stage)}: preset {stage.preset} counts on {edit}, which source {source} does not "
        "have under edits"
        for place, stage in enumerate(manifest.stages, 1)
        if isinstance(stage, Filter) and stage.preset is not None
        for source, edit in _missing(stage, stage.preset, manifest)
    )


def _missing(stage: Filter, preset: str, manifest: Manifest) -> Iterator[tuple[str, str]]:
    """(source, edit) of the sources that a filter may judge."""
    judged = stage.only.source if stage.only and stage.only.source else manifest.sources
    for name in judged:
        own = manifest.sources[name].edits
        for edit in presets.load(preset).edits:
            if edit not in own and f"{edit}_relaxed" not in own:
                yield name, edit
