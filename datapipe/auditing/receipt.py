"""
What was taken out of a corpus before it is looked through: DIR/.receipt, which `--clean-out` leaves beside the files it
writes, and what the stage `decontaminate` took out of a build.  An audit tells it beside what it finds of the rest.

summary.json    what was asked for, what was found, and what an audit of the files says
removed.jsonl   a row for each example that a removed document holds, by path, line and example
"""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from datapipe.auditing.report import Receipt, Removed
from datapipe.build_manifest.types import Stage
from datapipe.contamination.classes import RANK

FOLDER, SUMMARY, REMOVED = ".receipt", "summary.json", "removed.jsonl"


def write(parent: Path, summary: Mapping[str, object], removed: Iterable[Mapping[str, Any]]) -> None:
    """`parent`/.receipt, which is not there yet."""
    folder = parent / FOLDER
    folder.mkdir()
    with open(folder / REMOVED, "w", encoding="utf-8") as file:
        file.writelines(json.dumps(row) + "\n" for row in removed)
    (folder / SUMMARY).write_text(json.dumps(summary, indent=1) + "\n", "utf-8")


def read(parent: Path, source: Callable[[str], str]) -> Receipt | None:
    """
    The receipt in a folder: documents by source of their path, and by the class that tells most of each, as a stage
    would.  None where there is none, ValueError where it is none of ours.
    """
    try:
        with open(parent / FOLDER / REMOVED, encoding="utf-8") as file:
            rows = [json.loads(line) for line in file]
        strongest: dict[tuple[str, object, object], tuple[int, float, str, str]] = {}
        for row in rows:
            document = row["path"], row["line"], row["row"]
            reason = RANK[row["class"]], -row["value"], row["suite"], row["class"]
            strongest[document] = min(reason, strongest.get(document, reason))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise ValueError(f"{parent / FOLDER / REMOVED} is not as --clean-out writes it: {error}") from None
    found = Counter((source(path), f"holds {suite} ({cls})") for (path, *_), (*_, suite, cls) in strongest.items())
    return Receipt(by=f"--clean-out {parent}", removed=_removed(found))


def of_build(stages: Sequence[Stage]) -> tuple[Receipt, ...]:
    """What the stages `decontaminate` of a build took out of train."""
    return tuple(
        Receipt(by=f"stage {stage.title}", removed=_removed({
            (source, reason): n for source, reasons in stage.dropped_by_source.items() for reason, n in reasons.items()
        }))
        for stage in stages if stage.stage == "decontaminate"
    )  # fmt: skip


def _removed(found: Mapping[tuple[str, str], int]) -> tuple[Removed, ...]:
    return tuple(
        Removed(source=source, reason=reason, documents=n) for (source, reason), n in sorted(found.items()) if n
    )
