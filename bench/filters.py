"""
The filter stage against datatrove's filters: Gopher quality, Gopher repetition and FineWeb, on the same documents.

    python bench/filters.py --data FOLDER [--env FOLDER] [--size 20000000]

FOLDER holds books, specs, debian_docs, code, chinese, manpages and web as NAME.jsonl.zst with `text` (and `lang`).
Ours measures all signals of the three presets, for all documents, and makes the ledger rows of all that fail;
datatrove runs its three filters one behind the other, as a pipeline does (a document that one drops reaches no other,
and is split once for all three): with spaCy's words, as it comes, and with ours.  CPU seconds of one thread, best of
three.  datatrove gets the first megabyte of each kind, and so does the ratio; our own speed is that on --size of it.
What decides, filter and reason, is compared for every document of that megabyte, with our words on both sides.

Then the speed of each module of signals by itself, on all its signals.
"""

import argparse
import json
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from filter_parity import ROOT, bounds_of, environment, patterns, peer_answers, reason_of, splitter, their_filters
from signatures import ENGLISH, KINDS, best, texts_of

# in the order in which FineWeb runs them
PRESETS = ("gopher_repetition", "gopher_quality", "fineweb@datatrove")
PART = 1_000_000
LONGEST = 100_000  # characters of a book on datatrove's part: whole, two of them are more than a megabyte


# --- datatrove's side: this file run by the other Python ---------------------------------------------------------


def peer() -> None:
    """Reads our patterns and texts as JSON lines; writes {splitter: seconds} twice, and what decides each text."""
    from datatrove.data import Document  # pyright: ignore[reportMissingImports]
    from datatrove.utils.text import split_into_parts  # pyright: ignore[reportMissingImports]

    setup, *texts = map(json.loads, sys.stdin)
    ours = splitter(setup["word"], setup["sentence"])

    def chain(filters: Mapping[str, Any]) -> int:
        split_into_parts.cache_clear()  # of the five latest texts
        documents: Iterable[Any] = (Document(text=text, id=str(i)) for i, text in enumerate(texts))
        for name in PRESETS:
            documents = filters[name].run(documents)
        return sum(1 for _ in documents)

    for side, language in (("ours", ours), ("en", "en")):
        filters = their_filters(language)
        next(iter(filters["gopher_quality"].run([Document(text="the first call loads a language", id="")])), None)
        print(json.dumps({side: best(partial(chain, filters))}))
    filters = their_filters(ours)
    for text in texts:
        reasons = {name: filters[name].filter(Document(text=text, id="")) for name in PRESETS}
        print(json.dumps(next(([name, found[1]] for name, found in reasons.items() if found is not True), None)))


# --- our side ----------------------------------------------------------------------------------------------------


def judge(array: Any) -> list[Any]:
    """The ledger rows of the three presets, in their order."""
    import numpy as np

    from datapipe import signals
    from datapipe.stages.filter import failed

    bounds = {name: bounds_of(name) for name in PRESETS}
    names = list(dict.fromkeys(signal for keep in bounds.values() for signal in keep))
    measured = dict(zip(names, signals.measure(array, names), strict=True))
    documents = np.arange(len(array))
    return [list(failed(keep, measured, documents)) for keep in bounds.values()]


def deciding(array: Any) -> list[list[str] | None]:
    """What decides each document: the filter and datatrove's reason; None for those that stay."""
    import pyarrow as pa

    found: list[list[str] | None] = [None] * len(array)
    for name, batches in zip(PRESETS, judge(array), strict=True):
        for row in (row for batch in batches for row in pa.Table.from_batches([batch]).to_pylist()):
            if row["decides"] and found[row["doc"]] is None:
                found[row["doc"]] = [name, reason_of(name, row["rule"])]
    return found


def modules() -> dict[str, list[str]]:
    """The signals of each module of datapipe.signals."""
    from datapipe import signals

    found: dict[str, list[str]] = {}
    for name, signal in signals.SIGNALS.items():
        function = signal.func if isinstance(signal, partial) else signal
        found.setdefault(function.__module__.rpartition(".")[2], []).append(name)
    return found


# --- the tables --------------------------------------------------------------------------------------------------


def megabytes(texts: Sequence[str]) -> float:
    return sum(len(text.encode()) for text in texts) / 1e6


def measure(kinds: Mapping[str, list[str]], python: str) -> dict[str, float]:
    """Prints a line for each kind of text; gives our MB/s by kind."""
    import pyarrow as pa

    speeds: dict[str, float] = {}
    print(f"{'':12} {'ours, all of it':>24}   {'on 1 MB':>7}   {'datatrove':>13}   {'with our words':>14}")
    print(
        f"{'kind':12} {'MB':>6} {'documents':>9} {'MB/s':>7}   {'MB/s':>7}" + f"   {'MB/s':>6} {'ratio':>6}" * 2,
        flush=True,
    )
    for kind, texts in kinds.items():
        few = part_of(kind, texts)
        array, small = pa.array(texts, pa.large_string()), pa.array(few, pa.large_string())
        judge(small[:1])
        ours, same = best(lambda array=array: judge(array)), best(lambda small=small: judge(small), 9)
        plain, own, *theirs = peer_answers(python, __file__, patterns(), few)
        total, part = megabytes(texts), megabytes(few)
        speeds[kind] = total / ours
        equal = sum(a == b for a, b in zip(deciding(small), theirs, strict=True))
        sides = "".join(f"   {part / one:6.2f} {one / same:6.0f}" for one in (own["en"], plain["ours"]))
        print(
            f"{kind:12} {total:6.1f} {len(texts):9} {total / ours:7.0f}   {part / same:7.0f}{sides}   "
            f"equal in {equal} of {len(few)}",
            flush=True,
        )
    return speeds


def part_of(kind: str, texts: Sequence[str]) -> list[str]:
    """The first megabyte."""
    few, size = [], 0
    for text in texts:
        few.append(text[:LONGEST] if kind == "books" else text)
        size += len(few[-1].encode())
        if size >= PART:
            break
    return few


def measure_modules(kinds: Mapping[str, list[str]]) -> None:
    import pyarrow as pa

    from datapipe import signals

    groups = modules()
    print("\nMB/s  " + "".join(f"{group:>14}" for group in groups))
    for kind, texts in kinds.items():
        array = pa.array(texts, pa.large_string())
        cells = []
        for names in groups.values():
            signals.measure(array[:1], names)
            cells.append(megabytes(texts) / best(lambda array=array, names=names: signals.measure(array, names)))
        print(f"{kind:12}" + "".join(f"{speed:10.0f}    " for speed in cells), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=ROOT.parent / "shared" / "data" / "corpus")
    parser.add_argument("--size", type=int, default=20_000_000, help="bytes of each kind for our own speed")
    parser.add_argument("--env", type=Path, help="folder of datatrove's environment, made where it is missing")
    parser.add_argument("--as-peer", action="store_true", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.as_peer:
        peer()
        return
    kinds = {
        kind: texts_of(asked.data / f"{kind}.jsonl.zst", asked.size, "en" if kind == "debian_docs" else None)
        for kind in KINDS
    }
    with tempfile.TemporaryDirectory() as folder:
        speeds = measure(kinds, environment(asked.env or Path(folder)))
    english = max(speeds[kind] for kind in ENGLISH)
    for kind in ("chinese", "manpages", "web"):
        print(f"{kind}: {speeds[kind] / english:.2f} of the fastest English")
    measure_modules(kinds)


if __name__ == "__main__":
    main()
