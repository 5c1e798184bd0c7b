"""
The filters against datatrove 0.10.1: the same decision and the same first reason for every document.

    python bench/filter_parity.py --data FOLDER [--documents 8000] [--env FOLDER] [--own 3000]

FOLDER holds NAME.jsonl.zst files with `id`, `text` and `lang`.  Documents are taken evenly from every file and
language, and all of fixtures/docs.  datatrove runs in an environment of its own with REQUIREMENTS, made in a temporary
folder, or in --env, which is made where it is missing; it gets the documents as JSON lines and answers with one each.

1. Parity.  datatrove splits with our words and our sentences (it takes an object for its `language`), so all that is
   compared is the rules: decision, first reason, and the text C4 leaves.  Every disagreement is printed with both
   values and its cause; one that CAUSES does not explain is exit status 1.  How often each reason decided is printed
   too: a reason that never decides is not compared.
2. Words.  datatrove splits as it does by itself, with spaCy's blank `en`, which makes words of punctuation marks.
   Printed is how many decisions differ from ours, per filter and kind of text.  That is no error; it is what another
   definition of a word does.  For other languages datatrove takes what its `language` says: spaCy's blank de, es, fr,
   it, pl, pt, ru and others, which come with spaCy; jieba for cmn_Hani (its key `zh` gives spaCy's xx), sudachipy for
   ja, kiwipiepy for ko, stanza for lzh, each a package more.  They are not compared.
"""

import argparse
import hashlib
import io
import json
import re
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

LONGEST = 100_000  # characters of a text that datatrove splits with its own words, which takes seconds a megabyte
FEW = 30  # documents of a language below which it has no row of its own
REQUIREMENTS = ["datatrove==0.10.1", "spacy==3.8.18", "regex==2026.11.19"]
ROOT = Path(__file__).parents[1]

FILTERS = ("gopher_quality", "gopher_repetition", "c4", "c4_relaxed", "c4_paragraphs", "fineweb", "fineweb@datatrove")


# --- datatrove's side: this file run by the other Python ---------------------------------------------------------


def splitter(word: str, sentence: str) -> Any:
    """Our words and sentences as a WordTokenizer of datatrove's."""
    from datatrove.utils.word_tokenizers import WordTokenizer  # pyright: ignore[reportMissingImports]

    words, sentences = re.compile(word), re.compile(sentence)

    class Splitter(WordTokenizer):
        def word_tokenize(self, text: str) -> list[str]:
            return words.findall(text)

        def sent_tokenize(self, text: str) -> list[str]:
            return sentences.findall(text)

        def span_tokenize(self, text: str) -> list[tuple[int, int]]:
            return [found.span() for found in sentences.finditer(text)]

    return Splitter()


def their_filters(language: Any) -> dict[str, Any]:
    """datatrove's filters by our names, with its defaults."""
    from datatrove.pipeline import filters  # pyright: ignore[reportMissingImports]
    from datatrove.pipeline.filters.c4_filters import C4ParagraphFilter  # pyright: ignore[reportMissingImports]

    return {
        "gopher_quality": filters.GopherQualityFilter(language=language),
        "gopher_repetition": filters.GopherRepetitionFilter(language=language),
        "c4": filters.C4QualityFilter(language=language),
        "c4_relaxed": filters.C4QualityFilter(filter_no_terminal_punct=False, language=language),
        "c4_paragraphs": C4ParagraphFilter(),
        "fineweb": filters.FineWebQualityFilter(char_duplicates_ratio=0.1, language=language),
        "fineweb@datatrove": filters.FineWebQualityFilter(language=language),
    }


def peer() -> None:
    """
    Reads patterns, then documents {text, splitters, explain}; writes {splitter: {filter: [reason or null, digest of
    the text]}}, and with `explain` the text itself and the value of every rule.
    """
    setup = json.loads(sys.stdin.readline())
    ours = splitter(setup["word"], setup["sentence"])
    sides = {"ours": their_filters(ours), "en": their_filters("en")}
    for line in sys.stdin:
        document = json.loads(line)
        answer: dict[str, Any] = {
            side: {name: _judged(one, document["text"], document["explain"]) for name, one in sides[side].items()}
            for side in document["splitters"]
        }
        if document["explain"]:
            answer["values"] = their_values(document["text"], ours)
        print(json.dumps(answer), flush=True)


def _judged(one: Any, text: str, explain: bool) -> tuple[str | None, str]:
    from datatrove.data import Document  # pyright: ignore[reportMissingImports]

    document = Document(text=text, id="")
    try:
        verdict = one.filter(document)
    except (ZeroDivisionError, AssertionError, ValueError, IndexError) as error:
        verdict = (False, f"{type(error).__name__}: {error}")
    reason = None if verdict is True else verdict[1]
    return reason, document.text if explain else digest(document.text)


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def their_values(text: str, ours: Any) -> dict[str, dict[str, float]]:
    """What each rule measures, by datatrove's helpers: for the messages, and no part of a verdict."""
    import numpy as np
    from datatrove.pipeline.filters import gopher_quality_filter as quality  # pyright: ignore[reportMissingImports]
    from datatrove.pipeline.filters import gopher_repetition_filter as repetition  # pyright: ignore[reportMissingImports]
    from datatrove.utils.text import TERMINAL_PUNCTUATION  # pyright: ignore[reportMissingImports]

    words, lines, size = ours.word_tokenize(text), text.splitlines(), len(text) or 1
    symbolless = [word for word in words if any(c not in quality.PUNCTUATION_SET for c in word)]
    length, many, rows = float(np.mean([len(word) for word in symbolless or [""]])), len(words) or 1, len(lines) or 1
    filled = [line for line in text.split("\n") if line.strip()]
    paragraphs, broken = re.split(r"\n{2,}", text.strip()), re.split(r"\n+", text)
    twice = {name: repetition.find_duplicates(part) for name, part in (("para", paragraphs), ("line", broken))}
    plain = len(text.replace("\n", "")) or 1
    of_lines = {
        "line_punct_ratio": sum(line.endswith(tuple(TERMINAL_PUNCTUATION)) for line in filled) / (len(filled) or 1),
        "short_line_ratio": sum(len(line) <= 30 for line in filled) / (len(filled) or 1),
        "char_dup_ratio": repetition.find_duplicates(filled)[1] / plain,
        "list_ratio": text.count("\n") / many,
    }
    return {
        "gopher_quality": {
            "gopher_short_doc": len(symbolless),
            "gopher_long_doc": len(symbolless),
            "gopher_below_avg_threshold": length,
            "gopher_above_avg_threshold": length,
            "gopher_too_many_hashes": text.count("#") / many,
            "gopher_too_many_ellipsis": (text.count("...") + text.count("…")) / many,
            "gopher_too_many_bullets": sum(line.lstrip().startswith(("•", "-")) for line in lines) / rows,
            "gopher_too_many_end_ellipsis": sum(line.rstrip().endswith(("...", "…")) for line in lines) / rows,
            "gopher_below_alpha_threshold": sum(any(c.isalpha() for c in word) for word in words) / many,
            "gopher_enough_stop_words": len(set(quality.STOP_WORDS) & set(words)),
        },
        "gopher_repetition": {
            "dup_para_frac": twice["para"][0] / len(paragraphs),
            "dup_para_char_frac": twice["para"][1] / size,
            "dup_line_frac": twice["line"][0] / len(broken),
            "dup_line_char_frac": twice["line"][1] / size,
        }
        | {
            f"top_{n}_gram": repetition.find_top_duplicate(repetition.get_n_grams(words, n)) / size
            for n in range(2, 5)
            if len(words) >= n
        }
        | {f"duplicated_{n}_n_grams": repetition.find_all_duplicate(words, n) / size for n in range(5, 11)},
        "fineweb": of_lines,
        "fineweb@datatrove": of_lines,
    }


# --- the environment it runs in ----------------------------------------------------------------------------------


def environment(folder: Path) -> str:
    """A Python with REQUIREMENTS in a folder: the one that is there, else one made for it."""
    python = folder / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
        subprocess.run([str(python), "-m", "pip", "install", "--quiet", *REQUIREMENTS], check=True)
    return str(python)


def ask(python: str, texts: Sequence[str], own: int = 0, explain: bool = False) -> list[Any]:
    """What the peer answers to each text; for about `own` of them, none too long, with datatrove's words too."""
    step = max(len(texts) / own, 1) if own else 1
    twice = {int(i * step) for i in range(min(own, len(texts)))}
    questions = (
        {
            "text": text,
            "splitters": ["ours", "en"] if i in twice and len(text) <= LONGEST else ["ours"],
            "explain": explain,
        }
        for i, text in enumerate(texts)
    )
    return peer_answers(python, __file__, patterns(), questions)


def peer_answers(python: str, script: str, setup: Mapping[str, object], questions: Iterable[object]) -> list[Any]:
    """The lines that a script of this folder, run as peer by datatrove's Python, answers with."""
    with tempfile.TemporaryFile("w+") as given, tempfile.TemporaryFile("w+") as answers:
        given.writelines(json.dumps(line) + "\n" for line in (setup, *questions))
        given.seek(0)
        done = subprocess.run(
            [python, script, "--as-peer"], stdin=given, stdout=answers, stderr=subprocess.PIPE, check=False
        )
        if done.returncode:
            sys.exit(f"datatrove failed:\n{done.stderr.decode()}")
        answers.seek(0)
        return [json.loads(line) for line in answers]


# --- documents ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Document:
    id: str
    kind: str  # file and language
    text: str


def documents(folder: Path, wanted: int) -> list[Document]:
    """About `wanted` documents: as many of each file and language, evenly spread over it; the fixtures, and EDGES."""
    groups: dict[str, list[Document]] = defaultdict(list)
    for path in sorted(folder.glob("*.jsonl.zst")):
        for record in _records(path):
            kind = f"{path.name.split('.')[0]} {record.get('lang') or '-'}"
            groups[kind].append(Document(record["id"], kind, record["text"]))
    if not groups:
        sys.exit(f"{folder}: no *.jsonl.zst here")
    most = next(
        n for n in range(1, wanted + 1) if n == wanted or sum(min(n, len(g)) for g in groups.values()) >= wanted
    )
    chosen = [one for _, group in sorted(groups.items()) for one in _spread(group, most)]
    return [*chosen, *fixtures(), *(Document(repr(text), "edges", text) for text in EDGES)]


def _spread(group: list[Document], most: int) -> Iterator[Document]:
    count = min(most, len(group))
    return (group[i * len(group) // count] for i in range(count))


def _records(path: Path) -> Iterator[dict[str, Any]]:
    import pyarrow as pa

    compression = {".zst": "zstd", ".gz": "gzip"}.get(path.suffix)
    with pa.input_stream(str(path), compression=compression) as stream:
        for line in io.BufferedReader(stream):  # pyright: ignore[reportArgumentType]
            try:
                record = json.loads(line)
                record["text"].encode()
            except (ValueError, KeyError, TypeError, AttributeError):
                continue  # fixtures have broken records too
            yield record


# texts with nothing in them, and what str calls white space where Unicode does not
EDGES = (
    "",
    " ",
    "\n",
    " \n\n\t",
    "\x1c",
    "\x1c\n\x1f",
    "\x85\u2028",
    "\ufeff",
    "\u200b",
    ".",
    "...",
    "{",
    "[1]",
    "\0\x7f",
)
EDGES += (
    "a",
    "a\n",
    "\na\n\na",
    "a\x1ca",
    "a\x1fa " * 60,
    "the of " * 60,
    "lorem ipsum\n{",
    "One two {.\nLorem ipsum a.",
)


def fixtures() -> Iterator[Document]:
    import pyarrow.parquet as pq

    for path in sorted((ROOT / "fixtures" / "docs").iterdir()):
        rows = pq.read_table(path).to_pylist() if path.suffix == ".parquet" else _records(path)
        yield from (Document(str(row.get("id")), "fixtures", row["text"]) for row in rows if row["text"])


# --- our side ----------------------------------------------------------------------------------------------------

# our rule, without its number -> datatrove's reason
REASONS: dict[str, dict[str, str]] = {
    "gopher_quality": {
        "non_symbol_word_count <": "gopher_short_doc",
        "non_symbol_word_count >": "gopher_long_doc",
        "mean_non_symbol_word_length <": "gopher_below_avg_threshold",
        "mean_non_symbol_word_length >": "gopher_above_avg_threshold",
        "hash_ratio >": "gopher_too_many_hashes",
        "ellipsis_ratio >": "gopher_too_many_ellipsis",
        "bullet_line_ratio >": "gopher_too_many_bullets",
        "ellipsis_line_ratio >": "gopher_too_many_end_ellipsis",
        "alpha_ratio <": "gopher_below_alpha_threshold",
        "english_stop_words <": "gopher_enough_stop_words",
    },
    "gopher_repetition": {
        "dup_para_frac is null": "empty",
        "dup_para_frac >": "dup_para_frac",
        "dup_para_char_frac >": "dup_para_char_frac",
        "dup_line_frac >": "dup_line_frac",
        "dup_line_char_frac >": "dup_line_char_frac",
    }
    | {f"top_{n}gram_char_frac >": f"top_{n}_gram" for n in range(2, 5)}
    | {f"dup_{n}gram_char_frac >": f"duplicated_{n}_n_grams" for n in range(5, 11)},
    "c4": {
        "lorem_ipsum_first >": "lorem_ipsum",
        "lorem_ipsum_lines >": "lorem_ipsum",
        "curly_bracket_lines >": "curly_bracket",
        "sentence_count <": "too_few_sentences",
    },
    "c4_paragraphs": {"third_line_length <": "< 3 paragraphs"},
    "fineweb": {
        "line_punct_ratio is null": "empty",
        "line_punct_ratio <": "line_punct_ratio",
        "short_line_ratio >": "short_line_ratio",
        "char_dup_ratio >": "char_dup_ratio",
        "list_ratio >": "list_ratio",
    },
}
REASONS |= {"c4_relaxed": REASONS["c4"], "fineweb@datatrove": REASONS["fineweb"]}
EDITS = {"c4": "c4_lines", "c4_relaxed": "c4_lines_relaxed"}
CLOSING = "\"')]}‘’‚‛“”„‟«»‹›〉》」』】〕〗〙〛）］｝｠｣"  # text.py: what closes on the marks that end a sentence
WIDE = "。！？｡"


@dataclass(frozen=True)
class Answer:
    """A first reason in datatrove's words (None: stays), the value behind it and the text as it is left."""

    reason: str | None
    value: float | None
    text: str


def bounds_of(name: str) -> Mapping[str, Any]:
    """Signal -> bound of the preset that a filter of datatrove stands beside."""
    from datapipe.manifest import Bound, Filter

    if name == "c4_paragraphs":
        return {"third_line_length": Bound(min=200)}
    return Filter.model_validate({"stage": "filter", "preset": name.removesuffix("_relaxed")}).numbers


def our_answers(name: str, texts: Sequence[str]) -> list[Answer]:
    """What the edit and the preset of that name make of each text."""
    import numpy as np
    import pyarrow as pa

    from datapipe import edits, signals
    from datapipe.stages.filter import FAILED, failed

    array = pa.array(texts, pa.large_string())
    if name in EDITS:
        array, _ = edits.apply(array, [EDITS[name]])
    keep = bounds_of(name)
    measured = dict(zip(keep, signals.measure(array, list(keep)), strict=True))
    rows = pa.Table.from_batches(failed(keep, measured, np.arange(len(texts))), FAILED).to_pylist()
    first = {row["doc"]: (reason_of(name, row["rule"]), row["value"]) for row in rows if row["decides"]}
    return [Answer(*first.get(i, (None, None)), text) for i, text in enumerate(array.to_pylist())]


def reason_of(name: str, rule: str) -> str:
    """datatrove's reason for a rule of ours."""
    bare = rule if rule.endswith("is null") else rule.rpartition(" ")[0]
    return REASONS[name].get(bare, rule)


def patterns() -> dict[str, str]:
    """Regular expressions of our words, and of the sentences of a line, by our table of code points."""
    import numpy as np

    from datapipe.kernels import unicode

    page, entry, *_ = unicode.tables()
    words = entry.reshape(-1, 128)[page].ravel()[:0x110000]

    def members(bit: int) -> str:
        points = np.flatnonzero(words >> np.uint32(bit) & 1)
        parts = np.split(points, np.flatnonzero(np.diff(points) != 1) + 1)
        return "".join(f"\\U{part[0]:08x}-\\U{part[-1]:08x}" for part in parts)

    white, marks, terminal = (members(bit) for bit in (unicode.WHITE, unicode.PUNCTUATION, unicode.TERMINAL))
    closing, blank = re.escape(CLOSING), white + "\x1f"
    run = f"[{terminal}][{terminal}{closing}]*+"
    narrow = f"(?![{WIDE}])"
    inside = f"{narrow}[{terminal}](?:{narrow}[{terminal}{closing}])*+(?![{terminal}{closing}{blank}]|\\Z)"
    sentence = f"[^{blank}{marks}{terminal}](?:[^{terminal}]++|{inside})*+(?:{run})?"
    return {"word": f"[^{white}]+", "sentence": sentence}


# --- the comparison ----------------------------------------------------------------------------------------------


# filters, what a disagreement looks like, why: causes that are known; none is left
CAUSES: list[tuple[set[str], Callable[[Answer, Answer], bool], str]] = []


def cause(name: str, ours: Answer, theirs: Answer) -> str | None:
    return next((why for names, fits, why in CAUSES if name in names and fits(ours, theirs)), None)


def compare(
    chosen: Sequence[Document], given: Mapping[str, list[Answer]], answers: Sequence[Mapping], python: str
) -> int:
    """Prints every disagreement and how often each reason decided; how many disagreements nothing explains."""
    apart: dict[int, list[str]] = defaultdict(list)
    decided = {name: Counter[str | None]() for name in FILTERS}
    for i, answer in enumerate(answers):
        for name in FILTERS:
            ours, (reason, text) = given[name][i], answer["ours"][name]
            decided[name][reason] += 1
            if ours.reason != reason or (reason is None and digest(ours.text) != text):
                apart[i].append(name)
    unexplained = 0
    explained = ask(python, [chosen[i].text for i in apart], explain=True)
    for (i, names), answer in zip(apart.items(), explained, strict=True):
        for name in names:
            ours, values = given[name][i], answer["values"].get(name, {})
            reason, text = answer["ours"][name]
            theirs = Answer(reason, values.get(reason), text)
            why = cause(name, ours, theirs)
            unexplained += why is None
            print(f"{name}: {chosen[i].kind}, {chosen[i].id}: {why or 'NOT EXPLAINED'}")
            print(f"    ours       {ours.reason} ({ours.value}; there {values.get(ours.reason or '')})")
            print(f"    datatrove  {theirs.reason} ({theirs.value})")
            if ours.reason is None and theirs.reason is None:
                print(f"    texts part at: {_parting(ours.text, theirs.text)}")
    for name in FILTERS:
        equal = len(answers) - sum(name in names for names in apart.values())
        print(f"\n{name}: {equal} of {len(answers)} equal")
        for reason in dict.fromkeys([*REASONS[name].values(), *decided[name]]):
            print(f"    {decided[name][reason]:6} {reason or 'kept'}")
    return unexplained


def compare_values(chosen: Sequence[Document], python: str) -> int:
    """Prints every signal that differs from what datatrove's helpers give, for rules that seldom decide; how many."""
    import pyarrow as pa

    from datapipe import signals

    answers = ask(python, [one.text for one in chosen], explain=True)
    array = pa.array([one.text for one in chosen], pa.large_string())
    same = different = 0
    for name in ("gopher_quality", "gopher_repetition", "fineweb"):
        reasons = {rule.split()[0]: reason for rule, reason in REASONS[name].items() if reason != "empty"}
        for (signal, reason), column in zip(reasons.items(), signals.measure(array, list(reasons)), strict=True):
            for one, ours, answer in zip(chosen, column.to_pylist(), answers, strict=True):
                theirs = answer["values"][name].get(reason)
                if ours is not None and theirs is not None and ours != theirs:
                    different += 1
                    print(f"{signal}: {one.kind}, {one.id}: ours {ours}, datatrove {reason} {theirs}")
                same += ours == theirs
    print(f"\nvalues of all rules, {len(chosen)} of the documents: {same} equal, {different} not")
    return different


def _parting(ours: str, theirs: str) -> str:
    at = next((i for i, (a, b) in enumerate(zip(ours, theirs, strict=False)) if a != b), min(len(ours), len(theirs)))
    return f"{ours[max(at - 20, 0) : at + 20]!r} / {theirs[max(at - 20, 0) : at + 20]!r}"


def words_table(chosen: Sequence[Document], given: Mapping[str, list[Answer]], answers: Sequence[Mapping]) -> None:
    """Prints, per file and language, how many decisions differ between our words and datatrove's own."""
    named = [name for name in FILTERS if name != "c4_paragraphs"]
    table: dict[str, Counter[str]] = defaultdict(Counter)
    for i, answer in enumerate(answers):
        if "en" not in answer:
            continue
        for name in named:
            ours, theirs = given[name][i].reason, answer["en"][name][0]
            for row in (chosen[i].kind, "all"):
                table[row][f"{name} more"] += ours is not None and theirs is None
                table[row][f"{name} fewer"] += ours is None and theirs is not None
                table[row][f"{name} reason"] += ours != theirs and None not in {ours, theirs}
        for row in (chosen[i].kind, "all"):
            table[row]["documents"] += 1
    few = [row for row in table if table[row]["documents"] < FEW]
    for row in few:
        table[f"{row.split()[0]} other languages"] += table.pop(row)
    print("\nour words against datatrove's own (spaCy, blank en): decisions that differ, in per cent of the documents;")
    print("+ we drop and it keeps, - we keep and it drops, = both drop, for another first reason")
    print(f"{'kind':28} {'docs':>5}" + "".join(f"{name:>20}" for name in named))
    for row, counts in sorted(table.items(), key=lambda item: (item[0] == "all", item[0])):
        cells = (
            " ".join(
                f"{sign}{100 * counts[f'{name} {way}'] / counts['documents']:.1f}"
                for sign, way in (("+", "more"), ("-", "fewer"), ("=", "reason"))
                if counts[f"{name} {way}"]
            )
            for name in named
        )
        print(f"{row:28} {counts['documents']:5}" + "".join(f"{cell or '0':>20}" for cell in cells))
    for name in named:
        both = [(given[name][i].reason, answer["en"][name][0]) for i, answer in enumerate(answers) if "en" in answer]
        fewer = Counter(theirs for ours, theirs in both if ours is None and theirs)
        more = Counter(ours for ours, theirs in both if theirs is None and ours)
        print(f"{name}: we keep what it drops for {_listed(fewer)}; it keeps what we drop for {_listed(more)}")


def _listed(counts: Counter[str]) -> str:
    return ", ".join(f"{reason} ({count})" for reason, count in counts.most_common()) or "nothing"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=ROOT.parent / "shared" / "data" / "corpus")
    parser.add_argument("--documents", type=int, default=8000)
    parser.add_argument("--env", type=Path, help="folder of datatrove's environment, made where it is missing")
    parser.add_argument("--own", type=int, default=3000, help="documents of part 2; 0: without it")
    parser.add_argument("--as-peer", action="store_true", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.as_peer:
        peer()
        return
    with tempfile.TemporaryDirectory() as folder:
        python = environment(asked.env or Path(folder))
        chosen = documents(asked.data, asked.documents)
        texts = [one.text for one in chosen]
        size, kinds = sum(len(text.encode()) for text in texts), {one.kind for one in chosen}
        print(f"{len(chosen)} documents of {len(kinds)} files and languages, {size / 1e6:.1f} MB", flush=True)
        answers = ask(python, texts, asked.own)
        given = {name: our_answers(name, texts) for name in FILTERS}
        unexplained = compare(chosen, given, answers, python)
        unexplained += compare_values(chosen[::4], python)
    if asked.own:
        words_table(chosen, given, answers)
    print(f"\n{unexplained} disagreements that nothing explains")
    sys.exit(unexplained > 0)


if __name__ == "__main__":
    main()
