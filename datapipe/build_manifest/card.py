"""README.md of a build: what it is in a minute, and the block that datasets.load_dataset reads."""

import json
from collections.abc import Iterable, Sequence

from datapipe.build_manifest.types import BuildManifest


def card(made: BuildManifest) -> str:
    """The card.  It shows name, version and run, so build_digest leaves it out."""
    parts = [_configs(made), _title(made), _sources(made), _stages(made), _tokens(made), _reading(made)]
    return "\n\n".join(part for part in parts if part) + "\n"


def _configs(made: BuildManifest) -> str:
    """Front matter: `default` is the shards; documents and fates are configs of their own."""
    lines = ["---", f"pretty_name: {json.dumps(made.name)}", "configs:"]
    splits = [(name, f"{name}/*.parquet") for name, split in made.splits.items() if split.shards]
    configs = [("default", splits)] if splits else []
    if any(file.path.startswith("documents/") for file in made.files):
        # datasets reserves `all`, so the only split is named like its config
        configs.append(("documents", [("documents", "documents/*.parquet")]))
    configs.append(("fates", [("fates", "fates.parquet")]))
    for config, files in configs:
        lines += [f"- config_name: {config}", "  data_files:"]
        for split, path in files:
            lines += [f"  - split: {split}", f"    path: {path}"]
    return "\n".join([*lines, "---"])


def _title(made: BuildManifest) -> str:
    return (
        f"# {made.name} {made.version}\n\n"
        f"Made by {made.tool} at {made.run.started}. `manifest.json` is the record that this page is taken from.\n\n"
        f"- dataset_id `{made.dataset_id}`: what a trainer sees\n"
        f"- recipe_id `{made.recipe_id}`: the manifest and the inputs"
    )


def _sources(made: BuildManifest) -> str:
    licences = {name: _licence(made, name) for name in made.sources}
    rows = [
        (
            name,
            licences[name],
            sum(i.source == name for i in made.inputs),
            sum(i.records for i in made.inputs if i.source == name),
            sum(i.documents - sum(i.cut.values()) for i in made.inputs if i.source == name),
            _snapshot(made, name),
        )
        for name in made.sources
    ]
    return "## Sources\n\n" + _table(("source", "licence", "files", "records", "documents", "snapshots"), rows)


def _licence(made: BuildManifest, source: str) -> str:
    sources = made.manifest.get("sources")
    entry = sources.get(source) if isinstance(sources, dict) else None  # pyright: ignore[reportUnknownVariableType, reportUnknownMemberType]
    licence = entry.get("licence") if isinstance(entry, dict) else None  # pyright: ignore[reportUnknownVariableType, reportUnknownMemberType]
    return str(licence or "not stated")  # pyright: ignore[reportUnknownArgumentType]


def _snapshot(made: BuildManifest, source: str) -> str:
    books = made.snapshots.get(source)
    names = sorted(books.documents) if books else []
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def _stages(made: BuildManifest) -> str:
    rows = [
        (stage.title, stage.entered, stage.left, "; ".join(f"{rule}: {n:,}" for rule, n in stage.dropped.items()))
        for stage in made.stages
    ]
    return "## Stages\n\n" + _table(("stage", "documents in", "out", "dropped"), rows)


def _tokens(made: BuildManifest) -> str:
    if made.tokenizer is None:
        return ""
    books = [
        (
            name,
            split.documents,
            split.sequences,
            split.tokens.targets,
            split.tokens.stored,
            split.tokens.padding,
            f"{split.packing.fill:.2%}",
        )
        for name, split in made.splits.items()
    ]
    header = ("split", "documents", "sequences", "targets", "stored", "padding", "fill")
    tokenizer = made.tokenizer
    eos = json.dumps(tokenizer.eos.token) if tokenizer.eos else "none"
    return (
        f"## Tokens\n\n{_table(header, books)}\n\n"
        f"Tokenizer sha256 `{tokenizer.sha256}`, {tokenizer.vocab_size:,} entries, EOS {eos}. {made.token_definition}"
    )


def _reading(made: BuildManifest) -> str:
    if made.tokenizer is None:
        return ""
    rows = 'rows = datasets.load_dataset("path/of/this/folder", split="train")  # input_ids, seg_len, ...'
    shards = made.manifest.get("shards")
    if isinstance(shards, dict) and shards.get("storage") == "binary":  # pyright: ignore[reportUnknownMemberType]
        kind = "<u2" if made.tokenizer.max_id < 1 << 16 else "<i4"
        rows += f'\nids = numpy.frombuffer(rows[0]["input_ids"], "{kind}")  # bytes: storage is `binary`'
        rows = f"import numpy\n\n{rows}"
    return (
        "## Reading it\n\nAs batches of a training job:\n\n```python\nimport datapipe\n\n"
        'data = datapipe.open("path/of/this/folder")\n'
        'for batch in data.loader("train", global_batch_rows=64):\n'
        "    batch.input_ids, batch.labels, batch.segment_ids\n```\n\n"
        f"As rows:\n\n```python\nimport datasets\n{rows}\n```"
    )


def _table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A Markdown table; numbers with separators, and no cell can end its row."""
    lines = ["| " + " | ".join(header) + " |", "|" + " --- |" * len(header)]
    lines += ["| " + " | ".join(_cell(value) for value in row) + " |" for row in rows]
    return "\n".join(lines)


def _cell(value: object) -> str:
    if isinstance(value, int):
        return f"{value:,}"
    return str(value).replace("|", "\\|").replace("\n", " ").replace("<", "&lt;")
