"""Numbers and names as the page shows them."""

from collections.abc import Mapping
from typing import TypeVar

from datapipe.auditing.report import Corpus, Evidence, Match, Part, Rate

Value = TypeVar("Value")
UNIT = "\N{NO-BREAK SPACE}%"
ROLES = {
    "train": "Training data",
    "validation": "Validation split",
    "retrieval": "Retrieval corpus",
    "retrieved": "What was retrieved",
}
# keys of a report's dicts in the order in which they are read: metrics, parts, classes
ORDER = (
    "longest_ratio", "best_doc_ratio", "token_ratio", "ngram_ratio",
    "prompt", "choices", "answer", "solution", "tests", "passage", "variant",
)  # fmt: skip
PACKED = {
    "whole": "whole: no span is cut",
    "cut": "cut: a span is spread over rows",
    "dropped": "dropped: a span lies in a tail that was cut off",
}
RESULTS = {"found": "Contamination found", "nothing found": "Nothing found", "incomplete": "Incomplete"}


def count(number: int | None) -> str:
    """1,234; a dash for nothing known."""
    return "–" if number is None else f"{number:,}"


def percent(share: float | None) -> str:
    """A share of 1 as 8.00 %; what is not zero does not read as zero, what is not all does not read as all."""
    if share is None:
        return "–"
    if 0 < share < 0.00005:
        return f"<0.01{UNIT}"
    if 0.99995 <= share < 1:
        return f">99.99{UNIT}"
    return f"{100 * share:.2f}{UNIT}"


def interval(low: float, high: float) -> str:
    """4.64–13.46 %, as percent says its ends."""
    return f"{percent(low).removesuffix(UNIT)}–{percent(high)}"


def rate(value: Rate) -> str:
    """8.00 % of 150, 4.64–13.46 %: in a sentence."""
    return f"{percent(value.share)} of {count(value.of)} ({interval(value.low, value.high)})"


def figure(value: float | None) -> str:
    """A metric or a score: four digits at most behind the point, none that says nothing."""
    if value is None:
        return "–"
    return f"{value:,.4f}".rstrip("0").rstrip(".") if value % 1 else f"{int(value):,}"


def score(value: float | None) -> str:
    """A mean of scores, in a column: 0.6178."""
    return "–" if value is None else f"{value:.4f}"


def size(number: int) -> str:
    """Bytes as a person says them: 1.5 GB (powers of ten)."""
    scaled, unit = float(number), "B"
    for larger in ("kB", "MB", "GB", "TB"):
        if scaled < 999.5:
            break
        scaled, unit = scaled / 1000, larger
    return f"{number} B" if unit == "B" else f"{scaled:,.3g} {unit}"


def plural(number: int, noun: str) -> str:
    """1 example, 2 examples."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def ordered(values: Mapping[str, Value]) -> list[tuple[str, Value]]:
    """Items in the order of ORDER, others by name behind them: how a dict was filled must not show."""
    return sorted(values.items(), key=lambda item: (ORDER.index(item[0]) if item[0] in ORDER else len(ORDER), item[0]))


def metrics(values: dict[str, float]) -> str:
    """longest_ratio 0.9 · best_doc_ratio 1"""
    return " · ".join(f"{name} {figure(value)}" for name, value in ordered(values))


def origin(found: Evidence) -> str:
    """web/part-0.jsonl line 12, byte 4,096"""
    places = [f"line {found.line:,}"] if found.line is not None else []
    places += [f"byte {found.offset:,}"] if found.offset is not None else []
    return f"{found.path} {', '.join(places)}".rstrip()


def fate(found: Evidence) -> str | None:
    """dropped by filter (word_count < 50); null where no build says."""
    by = f" by {found.stage}" if found.stage else ""
    rule = f" ({found.rule})" if found.rule else ""
    return f"{found.fate}{by}{rule}" if found.fate else None


def spans(match: Match) -> str:
    """bytes 120–480, 600–650 and 3 more"""
    shown = ", ".join(f"{span.start:,}–{span.end:,}" for span in match.spans[:4])
    more = match.spans_total - min(len(match.spans), 4)
    return shown + (f" and {more:,} more" if more > 0 else "")


def part(value: Part) -> str:
    """choices 2, correct, cut"""
    ordinal = f" {value.ordinal + 1}" if value.ordinal or value.kind in {"choices", "variant"} else ""
    return f"{value.kind}{ordinal}{', correct' if value.correct else ''}{', cut' if value.cut else ''}"


def size_of(corpora: tuple[Corpus, ...], role: str) -> str:
    """5.6 MB: the text of the corpora of a role."""
    return size(sum(corpus.bytes for corpus in corpora if corpus.role == role))


def files(corpora: tuple[Corpus, ...]) -> str:
    """1,234: files of all corpora."""
    return count(sum(len(corpus.files) for corpus in corpora))


def counts(values: dict[str, int]) -> str:
    """prompt 1,319, answer 1,319"""
    return ", ".join(f"{name} {number:,}" for name, number in ordered(values) if number)


def packing(how: str | None) -> str | None:
    """What packing did to the spans, in words."""
    return None if how is None else PACKED.get(how, how)


def scored_z(values: dict[str, float | None]) -> str:
    """clean −2.66, dirty +2.66: Z of each group"""
    return ", ".join(f"{name} {'–' if z is None else f'{z:+.2f}'.replace('-', '−')}" for name, z in ordered(values))


def short(text: str, length: int) -> str:
    """A name or path of any length in a table: its beginning."""
    return text if len(text) <= length else f"{text[:length]} …"
