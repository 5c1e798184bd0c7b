"""
YAML text to plain values, and the line where each of them stands.

Nothing of YAML but mappings, lists, text, numbers, true, false and null: dates stay text as written, tags are
refused, an equal key is a mistake.  Anchors, aliases and `<<` work; shared nodes become shared values.
"""

from dataclasses import dataclass, field
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError

from datapipe.manifest.shape import Place
from datapipe.manifest.values import found

TAG = "tag:yaml.org,2002:"
MERGE = TAG + "merge"
MAPPING, SEQUENCE, SCALAR = "mapping", "sequence", "scalar"  # ids of ruamel's nodes
TEXT_TAGS = (TAG + "str", TAG + "timestamp")


@dataclass(frozen=True)
class Mistake:
    """What is wrong at a place of the manifest; line is 1-based."""

    line: int
    place: Place
    problem: str

    def __str__(self) -> str:
        return f"{self.line}: {key_of(self.place)}: {self.problem}" if self.place else f"{self.line}: {self.problem}"


def key_of(place: Place) -> str:
    """A place as messages show it: sources.web.files[0]."""
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in place).removeprefix(".")


class BrokenError(Exception):
    """The text is no YAML mapping: there is this one mistake, and nothing else can be found."""

    def __init__(self, line: int, problem: str):
        super().__init__(problem)
        self.mistake = Mistake(line, (), problem)


@dataclass
class Tree:
    """A YAML document: its root node, its plain values, and the mistakes met on the way."""

    root: Any
    values: dict[str, Any]
    mistakes: list[Mistake]

    def line(self, place: Place) -> int:
        """The line of the deepest part of a place that is there."""
        node: Any = self.root
        line: int = self.root.start_mark.line
        for part in place:
            step = _step(node, part)
            if step is None:
                break
            line, node = step
        return line + 1


def decode(data: bytes) -> str:
    """The bytes of a manifest as text; BrokenError where they are not UTF-8."""
    for mark, encoding in ((b"\xff\xfe", "UTF-16"), (b"\xfe\xff", "UTF-16")):
        if data.startswith(mark):
            raise BrokenError(1, f"the file is {encoding}; save it as UTF-8")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise BrokenError(line, f"byte 0x{data[error.start]:02x} is not UTF-8; save the file as UTF-8") from None


def parse(text: str) -> Tree:
    """The tree of one YAML document that is a mapping; BrokenError otherwise."""
    try:
        root = _yaml().compose(text)
        if root is None:
            raise BrokenError(1, "the file is empty; a manifest needs at least name and sources")
        if root.id != MAPPING:
            raise BrokenError(root.start_mark.line + 1, "expected a mapping of keys such as name and sources")
        reader = _Reader()
        return Tree(root, reader.value(root, ()), reader.mistakes)
    except RecursionError:
        raise BrokenError(1, "nested too deep to be a manifest") from None
    except MarkedYAMLError as error:
        shown: Any = error
        mark = shown.problem_mark or shown.context_mark
        problem = f"{shown.context} {shown.problem}" if str(shown.problem).startswith("but ") else shown.problem
        raise BrokenError(mark.line + 1 if mark else 1, f"not YAML: {problem or shown.context}") from None
    except YAMLError as error:
        position = getattr(error, "position", 0)
        line = text.count("\n", 0, position) + 1
        raise BrokenError(
            line, f"not YAML: character U+{ord(text[position]):04X} may not stand in a YAML file"
        ) from None


def _yaml() -> Any:
    return YAML(typ="safe", pure=True)


@dataclass
class _Reader:
    """Turns nodes into values: each node once, however often an alias names it."""

    mistakes: list[Mistake] = field(default_factory=list[Mistake])
    made: dict[int, Any] = field(default_factory=dict[int, Any])
    open: set[int] = field(default_factory=set[int])
    scalars: Any = field(default_factory=lambda: _yaml().constructor)

    def value(self, node: Any, place: Place) -> Any:
        if id(node) in self.open:
            self._mistake(node, place, f"the alias `*{node.anchor}` contains itself")
            return None
        if id(node) not in self.made:
            self.open.add(id(node))
            self.made[id(node)] = self._value(node, place)
            self.open.remove(id(node))
        return self.made[id(node)]

    def _mistake(self, node: Any, place: Place, problem: str) -> None:
        self.mistakes.append(Mistake(node.start_mark.line + 1, place, problem))

    def _value(self, node: Any, place: Place) -> Any:
        if node.id == MAPPING and node.tag == TAG + "map":
            return self._mapping(node, place)
        if node.id == SEQUENCE and node.tag == TAG + "seq":
            return [self.value(each, (*place, n)) for n, each in enumerate(node.value)]
        if node.id == SCALAR:
            return self._scalar(node, place)
        self._mistake(node, place, f"the tag `{node.tag}` has no meaning here; leave it out")
        return None

    def _scalar(self, node: Any, place: Place) -> Any:
        if node.tag in TEXT_TAGS:
            return str(node.value)
        if node.tag.removeprefix(TAG) in ("null", "bool", "int", "float"):
            try:
                return self.scalars.construct_object(node)
            except ValueError:
                self._mistake(node, place, f"found {found(str(node.value))}, which is no number")
                return None
        self._mistake(node, place, f"the tag `{node.tag}` has no meaning here; leave it out")
        return None

    def _mapping(self, node: Any, place: Place) -> dict[str, Any]:
        values: dict[str, Any] = {}
        lines: dict[str, int] = {}
        merged: dict[str, Any] = {}
        for key_node, value_node in node.value:
            if key_node.tag == MERGE:
                merged = self._merged(value_node, place) | merged
                continue
            key = self._key(key_node, place)
            if key is None:
                continue
            if key in lines:
                self._mistake(key_node, (*place, key), f"stands there twice; first on line {lines[key]}")
                continue
            lines[key] = key_node.start_mark.line + 1
            values[key] = self.value(value_node, (*place, key))
        return merged | values

    def _key(self, node: Any, place: Place) -> str | None:
        if node.id == SCALAR and node.tag in TEXT_TAGS:
            return str(node.value)
        shown = found(self.value(node, place))
        self._mistake(node, place, f"found {shown} as a key, expected text; put it in quotes")
        return None

    def _merged(self, node: Any, place: Place) -> dict[str, Any]:
        nodes: list[Any] = node.value if node.id == SEQUENCE else [node]
        merged: dict[str, Any] = {}
        for each in nodes:
            value = self.value(each, place) if each.id == MAPPING else None
            if value is None:
                self._mistake(each, place, "`<<` needs the alias of a mapping")
            else:
                merged = value | merged
        return merged


def _step(node: Any, part: str | int) -> tuple[int, Any] | None:
    """(0-based line, node) one part further down, None where there is nothing."""
    if node.id == SEQUENCE and isinstance(part, int) and part < len(node.value):
        below = node.value[part]
        return below.start_mark.line, below
    if node.id != MAPPING:
        return None
    for key, value in node.value:
        if key.value == part and key.tag != MERGE:
            return key.start_mark.line, value
    for key, value in node.value:
        if key.tag == MERGE:
            for each in value.value if value.id == SEQUENCE else [value]:
                if step := _step(each, part):
                    return step
    return None
