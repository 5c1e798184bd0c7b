"""A pair of duplicates, side by side: the kept document left, the dropped one right, differing words marked."""

from typing import Literal

from datapipe.books import Pair
from datapipe.books.differ import Hunk, Run
from datapipe.cli.text import pad, safe, size, wrap

WORDS = 40  # of one side of one difference
CHARACTERS = 400  # the same, of a script without blanks between words
MARKS = "[{}]"


def pair(found: Pair, columns: int) -> str:
    """The pair in at most `columns` columns."""
    half = max(20, (columns - 3) // 2)
    similar = "" if found.jaccard is None else f", similarity {found.jaccard:.4f}"
    lines = [f"{found.stage}{similar}", *_beside(_name("kept", found.kept), _name("dropped", found.dropped), half)]
    if found.hunks is None:
        return "\n".join([*lines, "  a text is not stored in this build"])
    if not found.hunks:
        lines.append("  the same words; white space differs, or nothing")
    for hunk in found.hunks:
        lines.append(f"  line {hunk.line}")
        lines += _beside(_side(hunk, "left"), _side(hunk, "right"), half)
    return "\n".join([*lines, "  ... more differences"] if found.more else lines)


def _name(what: str, side: dict[str, object]) -> str:
    place = f" {side['path']}" if side["path"] is not None else ""
    line = f":{side['line']}" if side["line"] is not None else ""
    count = side["bytes"]
    return f"{what} {side['doc_id']} {side['source']}{place}{line} {size(count) if isinstance(count, int) else ''}"


def _side(hunk: Hunk, side: Literal["left", "right"]) -> str:
    """The words of one side, those that differ marked."""
    return " ".join(_run(run, run.left if side == "left" else run.right) for run in hunk.runs)


def _run(run: Run, words: str) -> str:
    return words if run.equal else MARKS.format(_short(words) or "-")


def _short(words: str) -> str:
    parts = words.split(" ")
    if len(parts) > WORDS:
        return " ".join(parts[:WORDS]) + f" ... {len(parts) - WORDS} more"
    return words if len(words) <= CHARACTERS else words[:CHARACTERS] + f" ... {len(words) - CHARACTERS} characters more"


def _beside(left: str, right: str, half: int) -> list[str]:
    a, b = wrap(safe(left), half), wrap(safe(right), half)
    rows = max(len(a), len(b))
    a, b = a + [""] * (rows - len(a)), b + [""] * (rows - len(b))
    return [f"{pad(x, half)} | {y}".rstrip() for x, y in zip(a, b, strict=True)]
