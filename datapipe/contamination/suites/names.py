"""
Which field of a record is what: by its name, case, blanks, `_` and `-` aside, and by what its values look like.

A field counts where some record has a value in it.  Fields are looked for at the top of a record; where no prompt is
there, in the one object that has one (`doc`, `row`); solution, tests and the like also one level further down.
"""

import difflib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from datapipe.contamination.model import ANSWER, CHOICES, KINDS, PASSAGE, PROMPT, SOLUTION, TESTS, VARIANT
from datapipe.errors import ManifestError

ID, SPLIT, LANG = "id", "split", "lang"
ROLES = (*(kind for kind in KINDS if kind != VARIANT), ID, SPLIT, LANG)
CHATS = ("messages", "conversations", "conversation", "chat", "turns")
# the first group of which a field is there is the prompt, its fields joined; a weak field lets the next group go first
PROMPTS = (
    ("question",), ("problem",), ("problemstatement",), ("instruction", "input"), ("prompt",), ("inputs",),
    ("query",), ("goal",), ("input",), ("ctx",), ("sentence",), ("premise", "hypothesis"), ("sentence1", "sentence2"),
    ("question1", "question2"), ("text1", "text2"), ("claim",), ("story",), ("text",), ("body",), ("statement",),
    ("content",), ("questiontext",), *((name,) for name in CHATS),
)  # fmt: skip
PASSAGES = ("passage", "context", "article", "paragraph", "background", "document", "support", "story", "facts",
            "body", "text", "premise", "input")  # fmt: skip
CHOICE_LISTS = ("choices", "options", "endings", "candidates", "answerchoices", "answeroptions", "alternatives",
                "multiplechoicetargets", "mc1targets", "targetscores", "option", "choice")  # fmt: skip
# of a choice that has a column: option_a, choice1, answerA, sol1, ending0, or A, B, C alone
COLUMN = re.compile(r"(option|choice|answer|ans|solution|sol|ending|opt|op|candidate|)([a-j]|\d{1,2})")
WRONG = re.compile(r"(distractor|incorrectanswer|wronganswer)\d+")
# what may be a text, or the letter or number of a choice
ANSWERS = ("answer", "answers", "target", "targets", "output", "outputs", "completion", "response", "bestanswer",
           "correctanswer", "correctanswers", "goldanswer", "answertext", "answerstext", "answerstexts", "reference",
           "references", "groundtruth", "finalanswer", "expected", "expectedoutput", "expectedanswer", "ideal",
           "labeltext")  # fmt: skip
# what is one of a list of choices or a class, never a number that answers the question
LABELS = ("label", "labels", "gold", "correct", "answerkey", "correctoption", "correctchoice", "answeridx",
          "answerindex", "correctidx", "correctindex", "correctanswerindex", "cop", "goldidx", "goldindex")  # fmt: skip
SOLUTIONS = ("solution", "solutions", "canonicalsolution", "rationale", "explanation", "analysis", "code", "cot",
             "reasoning", "chainofthought", "steps", "workedsolution", "referencesolution")  # fmt: skip
TESTS_NAMES = ("test", "tests", "testlist", "unittests", "unittest", "testcases", "publictests", "privatetests",
               "hiddentests", "challengetestlist", "testcode")  # fmt: skip
IDS = ("id", "taskid", "questionid", "qid", "queryid", "exampleid", "itemid", "problemid", "uid", "uuid", "guid",
       "uniqueid", "nativeid", "docid", "idx", "ind", "index", "name")  # fmt: skip
SPLITS, LANGS = ("split", "subset", "partition"), ("lang", "language", "locale")
NESTS = ("paragraphs", "qas", "qapairs", "questions", "examples")  # lists of objects, each with more questions
PARALLEL = ("questions", "options", "answers")  # lists of one length: as many questions to one passage
DEEPEST = 3  # names of a path that is found or listed
SAMPLE = 5000  # records of a file that are looked at to find the fields
FEW, MANY = 3, 20  # so few different values in so many records are no prompts


@lru_cache(1 << 16)  # a record names the same fields as the one before it
def plain(name: str) -> str:
    """The name as it is compared: without case, blanks, `_` and `-`."""
    return re.sub(r"[\s_\-]+", "", name).casefold()


_KNOWN = {
    name
    for group in (*PROMPTS, PASSAGES, CHOICE_LISTS, ANSWERS, LABELS, SOLUTIONS, TESTS_NAMES, IDS, SPLITS, LANGS)
    for name in group
}


def known(name: str) -> bool:
    """Whether a name is one that we look for: of a first line of CSV, whether it is a header."""
    return plain(name) in _KNOWN


def nested(record: Mapping) -> str | None:
    """The field of a record that holds a list of further records."""
    return next((name for name, value in record.items() if plain(name) in NESTS and isinstance(value, list) and value
                 and all(isinstance(child, dict) for child in value)), None)  # fmt: skip


def parallel(record: Mapping) -> list[str] | None:
    """The fields of a record that are lists of one length, questions first, each with a place for every question."""
    found = [name for wanted in PARALLEL for name in record if plain(name) == wanted and isinstance(record[name], list)]
    if len(found) < 2 or plain(found[0]) != "questions" or len({len(record[name]) for name in found}) > 1:
        return None
    return found if record[found[0]] else None


@dataclass(frozen=True)
class Fields:
    """Where the roles lie in the records of a file: paths, a dot goes one level down."""

    paths: dict[str, tuple[str, ...]]
    wrong: tuple[str, ...] = ()  # columns of wrong choices, beside which the answer is the right one
    labels: tuple[str, ...] = ()  # of the paths of answers, those that only name a choice or a class
    named: frozenset[str] = frozenset()  # roles that the user mapped
    numbered: bool = False  # choices in columns that count from 1 or A
    inside: str = ""  # the object that holds the record, with a dot behind it

    def mapping(self) -> dict[str, str]:
        """role -> fields, as it is recorded and as `fields` takes it."""
        paths = dict(self.paths)
        if self.wrong:
            paths[CHOICES] = paths.get(CHOICES, ()) + self.wrong
        return {role: ", ".join(paths[role]) for role in ROLES if paths.get(role)}

    def testable(self) -> bool:
        """Whether a prompt is there, or another part that can be looked for alone, at the top or as the user says."""
        alone = [path for role in (SOLUTION, TESTS, PASSAGE) if role in self.named or role != TESTS
                 for path in self.paths.get(role, ()) if role in self.named or "." not in path]  # fmt: skip
        return bool(self.paths.get(PROMPT) or alone)


def get(record: object, path: str) -> object:
    """The value at a path, null where there is none; of a list of objects the list of their values."""
    if isinstance(record, dict):
        if path in record:
            return record[path]
        head, _, rest = path.partition(".")
        return get(record.get(head), rest) if rest else None
    if isinstance(record, list) and record and isinstance(record[0], dict):
        return [get(child, path) for child in record]
    return None


def is_empty(value: object) -> bool:
    """Whether a value is null, white space, or an empty list or object."""
    return not value.strip() if isinstance(value, str) else value is None or value in ([], {})


@dataclass
class _Seen:
    """The fields of a file: path -> values, in the order they came; only fields with a value somewhere."""

    values: dict[str, list] = field(default_factory=dict)
    empty: dict[str, None] = field(default_factory=dict)  # fields without any value

    @classmethod
    def of(cls, records: Iterable[Mapping]) -> "_Seen":
        seen = cls()
        for record in records:
            for path, value in _walk(record, "", 1):
                if is_empty(value):
                    seen.empty.setdefault(path)
                else:
                    seen.values.setdefault(path, []).append(value)
        return seen

    def all(self) -> list[str]:
        return list(dict.fromkeys((*self.values, *self.empty)))

    def below(self, prefix: str) -> dict[str, list[str]]:
        """plain name -> paths of the fields right below a prefix that have values."""
        found: dict[str, list[str]] = {}
        for path in self.values:
            if path.startswith(prefix) and "." not in (name := path[len(prefix) :]):
                found.setdefault(plain(name), []).append(path)
        return found


def _walk(record: Mapping, prefix: str, depth: int) -> Iterator[tuple[str, object]]:
    for name, value in record.items():
        path = f"{prefix}{name}"
        yield path, value
        if isinstance(value, dict) and depth < DEEPEST:
            yield from _walk(value, f"{path}.", depth + 1)


def find(file: str, records: Sequence[Mapping], asked: Mapping[str, str]) -> tuple[Fields, list[str]]:
    """
    (the fields of a file, all names of fields that it has).  asked: role -> path, or several with commas between.

    ManifestError for a role that is none, and for an asked field that no record has.
    """
    seen = _Seen.of(records[:SAMPLE])
    named = {role: tuple(part.strip() for part in paths.split(",") if part.strip()) for role, paths in asked.items()}
    for role, paths in named.items():
        for path in paths:
            if path not in seen.values and path not in seen.empty and not any(_has(record, path) for record in records):
                raise ManifestError(no_field(file, f"fields: {role}: no record has a field {path!r}", seen.all(), path))
    found = _headerless(seen) or _found(seen)
    paths = {**found.paths, **named}
    labels = tuple(path for path in paths.get(ANSWER, ()) if plain(path.rpartition(".")[2]) in LABELS)
    if CHOICES in named:
        found = Fields({}, (), (), frozenset(), _is_numbered(named[CHOICES]), found.inside)
    taken = {path for role in named for path in named[role]}
    for role in set(paths) - set(named):  # a field that the user gave a role has no other
        paths[role] = tuple(path for path in paths[role] if path not in taken)
    wrong = tuple(path for path in found.wrong if path not in taken)
    return Fields(paths, wrong, labels, frozenset(named), found.numbered, found.inside), seen.all()


def _has(record: object, path: str) -> bool:
    return get(record, path) is not None


def check_roles(asked: Mapping[str, str]) -> None:
    """ManifestError for a key of `fields` that is no role."""
    for role in asked:
        if role.rpartition(":")[2] not in ROLES:
            near = difflib.get_close_matches(role, ROLES, 1)
            raise ManifestError(f"fields: {role!r} is no part of an example{f', {near[0]!r} is near' if near else ''}; "
                                f"expected one of {', '.join(ROLES)}")  # fmt: skip


def no_field(file: str, what: str, fields: Sequence[str], wanted: str = "") -> str:
    near = difflib.get_close_matches(wanted, fields, 1) if wanted else []
    there = ", ".join(fields) or "none"
    return f"{file}: {what}{f', {near[0]!r} is near' if near else ''}; the fields that exist: {there}"


def _headerless(seen: _Seen) -> Fields | None:
    """Columns without names: the question, choices where the last one names one of them, the answer."""
    columns = [path for path in seen.all() if path.isdecimal()]
    if len(columns) < len(seen.all()) or not columns:
        return None
    columns.sort(key=int)
    first, *middle, last = columns if len(columns) > 1 else (*columns, "")
    if not middle:
        return Fields({PROMPT: (first,), ANSWER: (last,) if last else ()})
    letters = "ABCDEFGHIJ"[: len(middle)]
    if all(str(value).strip().upper() in tuple(letters) for value in seen.values.get(last, [""])):
        return Fields({PROMPT: (first,), CHOICES: tuple(middle), ANSWER: (last,)})
    return Fields({})


def _found(seen: _Seen) -> Fields:
    inside = next((prefix for prefix in ("", *_objects(seen)) if _prompt(seen, prefix)), "")
    prompt = _prompt(seen, inside)
    here = seen.below(inside)
    choices, wrong, numbered = _choices(here, seen)
    taken = {*prompt, *choices, *wrong}
    paths: dict[str, tuple[str, ...]] = {PROMPT: prompt, CHOICES: choices}
    deeper = [prefix for prefix in _objects(seen, inside) if plain(prefix[len(inside) :].rstrip(".")) not in _KNOWN]

    def all_of(names: Sequence[str], places: Sequence[str] = ("",)) -> tuple[str, ...]:
        for place in places:
            there = seen.below(place)
            paths = [path for name in names for path in there.get(name, []) if path not in taken]
            if len(place) > len(inside):  # a number or an object down there is about the set, not a part
                paths = [path for path in paths if isinstance(seen.values[path][0], str | list)]
            if paths:
                return tuple(paths)
        return ()

    paths[SOLUTION] = all_of(SOLUTIONS, (inside, *deeper))
    paths[TESTS] = all_of(TESTS_NAMES, (inside, *deeper))
    labels = all_of(LABELS, (inside,))
    answers = all_of(ANSWERS, (inside,) if labels else (inside, *deeper))
    paths[ANSWER] = answers + labels
    if not choices and not wrong:
        paths[CHOICES] = all_of(CHOICE_LISTS, deeper)[:1]
    paths[PASSAGE] = all_of(PASSAGES, (inside,))[:1] if prompt else all_of(PASSAGES, (inside, *deeper))[:1]
    for role, names in ((ID, IDS), (SPLIT, SPLITS), (LANG, LANGS)):
        paths[role] = (all_of(names, (inside,)) or all_of(names, ("",)))[:1]
    return Fields({role: found for role, found in paths.items() if found}, wrong, labels, frozenset(), numbered, inside)


def _objects(seen: _Seen, prefix: str = "") -> list[str]:
    """The prefixes of the objects right below a prefix."""
    return [f"{path}." for paths in seen.below(prefix).values() for path in paths
            if any(isinstance(value, dict) for value in seen.values[path])]  # fmt: skip


def _prompt(seen: _Seen, prefix: str) -> tuple[str, ...]:
    here = seen.below(prefix)
    groups = [tuple(path for name in group for path in here.get(name, [])[:1]) for group in PROMPTS if group[0] in here]
    groups = [group for group in groups if not all(_is_no_text(seen.values[path][0]) for path in group)]
    strong = [group for group in groups if not _is_weak(seen.values[group[0]])]
    return (strong or groups or [()])[0]


def _is_no_text(value: object) -> bool:
    """Whether a value is neither text nor a chat: an object that is called `prompt`, a number called `problem`."""
    return isinstance(value, dict | bool | int | float)


def _is_weak(values: Sequence) -> bool:
    """A single word each (`cause`), or the same few texts again and again: what is asked is elsewhere, if anywhere."""
    if all(isinstance(value, str) and value.isascii() and len(value.split()) < 2 for value in values):
        return True
    return len(values) >= MANY and len({str(value) for value in values}) <= FEW


def _choices(here: Mapping[str, list[str]], seen: _Seen) -> tuple[tuple[str, ...], tuple[str, ...], bool]:
    """(fields of choices, columns of wrong ones, whether columns count from 1 or A)."""
    wrong = tuple(here[name][0] for name in sorted(here) if WRONG.fullmatch(name))
    for name in CHOICE_LISTS:
        if any(isinstance(value, list | dict) or _is_listing(value) for path in here.get(name, [])
               for value in seen.values[path]):  # fmt: skip
            return (here[name][0],), wrong, False
    stems: dict[str, list[tuple[str, str]]] = {}
    for name, paths in here.items():
        if match := COLUMN.fullmatch(name):
            stems.setdefault(match[1], []).append((match[2], paths[0]))
    for columns in stems.values():
        columns.sort(key=lambda column: (len(column[0]), column[0]))
        places = [place for place, _ in columns]
        if len(columns) > 1 and places[0] in ("a", "0", "1") and _in_a_row(places):
            paths = tuple(path for _, path in columns)
            return paths, wrong, _is_numbered(paths)
    return (), wrong, False


def _in_a_row(places: Sequence[str]) -> bool:
    at = [ord(place) if place.isalpha() else int(place) for place in places]
    return at == list(range(at[0], at[0] + len(at)))


def _is_numbered(paths: Sequence[str]) -> bool:
    return len(paths) > 1 and plain(paths[0])[-1] in "1a"


def _is_listing(value: object) -> bool:
    """A list as a string, as CSV has it: JSON or Python, or `a ) 38 , b ) 27`."""
    return isinstance(value, str) and bool(re.match(r"\s*[\[{]|\s*\(?[aA]\s*[).]", value))
