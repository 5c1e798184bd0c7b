"""
`--variants FILE`: rewrites and translations of examples that the user supplies.

A record names an example (`id`, and `suite` where several suites have it) and holds texts: each is a part of kind
variant of that example.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from datapipe.contamination.suites.names import IDS, PROMPTS, SOLUTIONS, get, plain
from datapipe.contamination.suites.values import strings

IDS_THERE = ("example", "exampleid", "evalid", "originalid", "of", *IDS)
SUITES = ("suite", "set", "dataset", "eval")
TEXTS = ("variant", "variants", "rewrite", "rewrites", "rewritten", "rephrased", "paraphrase", "paraphrases",
         "translation", "translations", "translated", "texts",
         *dict.fromkeys(name for group in PROMPTS for name in group), *SOLUTIONS, "answer")  # fmt: skip
SHOWN = 5  # ids that a message names


def matched(records: Sequence[Mapping[str, Any] | str], known: Mapping[str, Mapping[str, int]]) -> tuple[
    list[tuple[int, str]], str | None, dict[str, str]
]:  # fmt: skip
    """
    ((example, text) of each variant, what could not be used, the fields that were read).

    known: id -> suite -> example
    """
    found: list[tuple[int, str]] = []
    unknown: list[str] = []
    troubles: dict[str, int] = {}
    mapping: dict[str, dict[str, None]] = {}
    for record in records:
        if isinstance(record, str):
            troubles[record] = troubles.get(record, 0) + 1
            continue
        names = {plain(name): name for name in record}
        id_at = next((names[name] for name in IDS_THERE if name in names), None)
        suite_at = next((names[name] for name in SUITES if name in names), None)
        there = [names[name] for name in TEXTS if name in names and names[name] != id_at]
        texts = [body for name in there for body in strings(get(record, name))]
        own = strings(record.get(id_at)) if id_at else []
        example = _example(own[0], record.get(suite_at) if suite_at else None, known) if own else "no id"
        if isinstance(example, str):
            unknown.append(f"{own[0]!r} {example}" if own else example)
        elif not texts:
            troubles["no text"] = troubles.get("no text", 0) + 1
        else:
            found += [(example, body) for body in dict.fromkeys(texts)]
        for role, fields in (("id", [id_at]), ("suite", [suite_at]), ("variant", there)):
            mapping.setdefault(role, {}).update(dict.fromkeys(name for name in fields if name))
    reasons = [f"{len(unknown):,} of {len(records):,} records belong to no example: {', '.join(unknown[:SHOWN])}"
               + (", ..." if len(unknown) > SHOWN else "")] if unknown else []  # fmt: skip
    reasons += [f"{n:,} records: {reason}" for reason, n in sorted(troubles.items())]
    return found, "; ".join(reasons) or None, {role: ", ".join(names) for role, names in mapping.items() if names}


def _example(own: str, suite: object, known: Mapping[str, Mapping[str, int]]) -> int | str:
    """The example that an id names, or why it names none."""
    suites = known.get(own)
    if not suites:
        return "is no id of an example"
    if suite is not None:
        return suites.get(str(suite), f"is no id in the suite {suite!s}")
    return next(iter(suites.values())) if len(suites) == 1 else f"is in {', '.join(sorted(suites))}: name the suite"
