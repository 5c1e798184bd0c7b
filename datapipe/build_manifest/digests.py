"""The three digests of a build: what was asked, what a trainer sees, what was written."""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from datapipe.keyed import canonical
from datapipe.units import digest

CARD = "README.md"
NOT_IN_DIGEST = ("name", "version", "parents", "run", "build_digest")


def recipe_id(
    recipe: Mapping[str, object],
    inputs: Mapping[str, Iterable[Sequence[str]]],
    *,
    tokenizer: str | None,
    versions: Mapping[str, int],
    unicode: str,
    libraries: Mapping[str, str] | None = None,
    lists: Mapping[str, str] | None = None,
    suites: Mapping[str, str] | None = None,
    models: Mapping[str, str] | None = None,
    tombstones: Iterable[str] = (),
    expired: Iterable[str] = (),
) -> str:
    """
    Known before work: the sha256 of everything that decides what will be made.

    recipe:    manifest.recipe(): the validated manifest without name, output, files, exclude and every path
    inputs:    source -> [relative path, sha256] of each file; they stand for the patterns
    tokenizer: sha256 of the tokenizer file, None for a trained one or none
    versions:  function -> its VERSION; unicode: version of the Unicode tables
    libraries: library -> version, of those that decide what a text, a language or a drop is
    lists, suites, models: where each is named -> sha256 of what it holds
    """
    return digest(
        {
            "recipe": recipe,
            "inputs": {source: sorted(list(file) for file in files) for source, files in inputs.items()},
            "tokenizer": tokenizer,
            "libraries": dict(libraries or {}),
            "lists": dict(lists or {}),
            "suites": dict(suites or {}),
            "models": dict(models or {}),
            "tombstones": sorted(tombstones),
            "expired": sorted(expired),
            "versions": dict(versions),
            "unicode": unicode,
        }
    )


def dataset_id(tokenizer: str, shards: Mapping[str, Sequence[str]]) -> str:
    """What a trainer sees: the tokenizer's sha256 and, by split, the content_sha256 of its shards in order."""
    return digest([tokenizer, {split: list(shards.get(split, ())) for split in ("train", "validation")}])


def dataset_id_of_documents(kept: Iterable[tuple[str, str]]) -> str:
    """The same without a tokenizer: sha256 of the canonical JSON of [[doc_id, split]...] of kept documents, sorted."""
    sha, last = hashlib.sha256(b"["), ""
    for doc_id, split in kept:
        assert doc_id > last, "documents come in order of doc_id, each once"
        sha.update((b"," if last else b"") + canonical([doc_id, split]))
        last = doc_id
    sha.update(b"]")
    return sha.hexdigest()


def build_digest(record: Mapping[str, Any]) -> str:
    """
    sha256 of manifest.json as JSON, without what two equal builds may differ in.

    That is name, version, parents and run; this digest; the card, which shows them; and the name and output folder
    inside the manifest as written.
    """
    counted = {key: value for key, value in record.items() if key not in NOT_IN_DIGEST}
    counted["manifest"] = {k: v for k, v in record["manifest"].items() if k not in ("name", "output")}
    counted["files"] = [file for file in record["files"] if file["path"] != CARD]
    return digest(counted)
