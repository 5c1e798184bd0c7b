"""
The judging of an audit in obvious code: from what a scan found to a class an example, straight from the definitions.

Sets of units, nested loops, one text and one document at a time; only bounds are the tool's own.  `judged` is the twin
of classes.judge.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import naive

from datapipe.contamination import classes, nearby, said, template
from datapipe.contamination.beside import TOGETHER
from datapipe.contamination.hits import SHORTEST, Bounds
from datapipe.contamination.windows import looks_like_code

BOUNDS = Bounds()
Text = tuple[str, ...]  # units


@dataclass(frozen=True)
class Part:
    """A part of an example.  units as of the index, which knows what is markup."""

    example: int
    kind: str
    correct: bool
    units: Text
    n: int
    raw: str = field(compare=False, default="")

    @property
    def long(self) -> bool:
        return len(self.units) >= self.n

    @property
    def answering(self) -> bool:
        return self.kind in ("answer", "solution", "tests") or (self.kind == "choices" and self.correct)

    def grams(self) -> list[Text]:
        return [self.units[i : i + self.n] for i in range(len(self.units) - self.n + 1)]


@dataclass(frozen=True)
class Run:
    start: int
    length: int
    unit: int


@dataclass
class Seen:
    """What a scan found of one text in one document."""

    runs: list[Run] = field(default_factory=list)
    short: list[Run] = field(default_factory=list)
    masked: list[Run] = field(default_factory=list)
    window: dict | None = None


@dataclass
class Hit:
    """One text in one document."""

    plain: bool = False
    varied: bool = False
    alike: bool = False
    whole: bool = False
    there: bool = False
    entire: bool = False
    few: bool = False  # fewer units than a phrase may have
    idle: bool = False  # too few words for an answer that stands alone
    quotes: bool = False  # hardly anything but one quotation
    place: Run | None = None
    likeness: float = 0.0


def number(unit: str) -> bool:
    return all(c.isnumeric() and not c.isalpha() for c in unit)


def units_at(text: Text, n: int, positions: Iterable[int]) -> set[int]:
    return {unit for at in positions for unit in range(at, min(at + n, len(text)))}


class Judging:
    """
    suites: a suite an example; parts: of all examples, in order; seen: (text, document) -> what was found;
    common: n-grams that document frequency leaves out
    """

    def __init__(
        self, suites: Sequence[str], parts: Sequence[Part], seen: dict[tuple[Text, int], Seen], common: set[Text],
        *, share: bool = True,
    ):  # fmt: skip
        self.suites, self.parts, self.seen, self.common, self.share = suites, parts, seen, common, share
        self.of: dict[int, list[Part]] = defaultdict(list)
        for part in parts:
            self.of[part.example].append(part)
        self.n = {part.units: part.n for part in parts}
        self.raw = {part.units: part.raw for part in reversed(parts)}  # the first part that has the text

    # --- what is no evidence ---------------------------------------------------------------------------------------

    def same(self, example: int) -> object:
        """Equal for examples with the same texts in the same kinds."""
        own = sorted((part.kind, part.units) for part in self.of[example])
        return tuple(own) or example

    def twins(self, example: int) -> list[int]:
        return [
            other for other in range(len(self.suites)) if other != example and self.same(other) == self.same(example)
        ]

    def counted(self, example: int) -> bool:
        return not any(other < example and self.suites[other] == self.suites[example] for other in self.twins(example))

    @cached_property
    def groups(self) -> dict[tuple[str, str], list[Part]]:
        """The parts of each suite and kind."""
        found = defaultdict(list)
        for part in self.parts:
            found[self.suites[part.example], part.kind].append(part)
        return found

    @cached_property
    def stock(self) -> set[Text]:
        """Texts that many differing examples have, and shorter ones all of whose n-grams others have."""
        if not self.share:
            return set()
        found = {
            text
            for (_, kind), parts in self.groups.items()
            if kind != "passage"
            for text in {part.units for part in parts}
            if len({self.same(part.example) for part in parts if part.units == text}) >= template.STOCK
        }
        short = {
            part.units
            for part in self.parts
            if part.long and len(part.units) < template.SURE * part.n and self.shared[part.units] >= set(part.grams())
        }
        return found | short

    @cached_property
    def shared(self) -> dict[Text, set[Text]]:
        """Of each text the n-grams that other examples of a suite hold, or many prompts of any."""
        found: dict[Text, set[Text]] = {part.units: set() for part in self.parts}
        if not self.share:
            return found
        for (_, kind), parts in self.groups.items():
            if kind == "passage":
                continue
            owner: dict[Text, object] = {}
            for part in parts:
                owner.setdefault(part.units, part.units if kind == "choices" else part.example)
            for text in owner:
                for gram in self.grams(text):
                    if len({own for other, own in owner.items() if gram in self.grams(other)}) >= template.SHARED:
                        found[text].add(gram)
        prompts = {part.units for part in self.parts if part.kind == "prompt"}
        for text in prompts:
            for gram in self.grams(text):
                if sum(gram in self.grams(other) for other in prompts) >= template.ANYWHERE:
                    found[text].add(gram)
        return found

    @cached_property
    def told(self) -> dict[Text, set[Text]]:
        """Of each text the n-grams that an example shows with its question, and those of numbers alone."""
        found: dict[Text, set[Text]] = {
            part.units: {gram for gram in part.grams() if all(map(number, gram))} for part in self.parts
        }
        for parts in self.of.values():
            asked = {
                gram
                for part in parts
                if part.kind in ("prompt", "passage") or (part.kind == "choices" and not part.correct)
                for gram in part.grams()
            }
            for part in parts:
                if part.answering:
                    found[part.units] |= asked & set(part.grams())
        return found

    def grams(self, text: Text) -> list[Text]:
        n = self.n[text]
        return [text[i : i + n] for i in range(len(text) - n + 1)]

    def excluded(self, text: Text) -> set[Text]:
        own = set(self.grams(text))
        return own if text in self.stock else own & (self.shared[text] | self.told[text])

    def told_whole(self, text: Text) -> bool:
        own = self.grams(text)
        return bool(own) and set(own) <= self.told[text]

    # --- what is found in a document -------------------------------------------------------------------------------

    def figures(self, text: Text, runs: Sequence[Run], excluded: set[Text]) -> tuple[int, int, int]:
        """(live units, units covered, most of them in one run)."""
        n = self.n[text]
        live = [at for at, gram in enumerate(self.grams(text)) if gram not in excluded]
        covered: set[int] = set()
        longest = 0
        for run in runs:
            inside = units_at(text, n, (at for at in live if run.start <= at <= run.start + run.length - n))
            covered |= inside
            longest = max(longest, len(inside))
        return len(units_at(text, n, live)), len(covered), longest

    def enough(self, text: Text, figures: tuple[int, int, int]) -> bool:
        live, covered, longest = figures
        if not covered:
            return False
        half = longest / live >= BOUNDS.longest or covered / live > BOUNDS.best_doc
        return half and (covered >= BOUNDS.sure * self.n[text] or covered / live >= BOUNDS.most)

    @cached_property
    def void(self) -> set[Text]:
        """Texts of whose own units a match covers half, or those at one place three quarters: common n-grams count."""
        found = set()
        for (text, _), seen in self.seen.items():
            runs = [run for run in seen.runs if run.length >= self.n[text]]
            own = [self.figures(text, [run], self.excluded(text))[1] for run in runs]
            if not any(own):
                continue
            best = runs[own.index(max(own))]
            near = [run for run in runs if abs(run.unit - run.start - (best.unit - best.start)) <= len(text)]
            live, covered, _ = self.figures(text, near, self.excluded(text))
            one = max(self.figures(text, [run], self.excluded(text))[2] for run in runs)
            if one / live >= BOUNDS.void or covered / live >= BOUNDS.together:
                found.add(text)
        return found

    def final(self, text: Text) -> set[Text]:
        return self.excluded(text) | (set() if text in self.void else self.common & set(self.grams(text)))

    def hit(self, text: Text, seen: Seen) -> Hit:
        n, size = self.n[text], len(text)
        own = self.figures(text, seen.runs, self.excluded(text))
        raw = self.figures(text, seen.runs, set())
        final = self.figures(text, seen.runs, self.final(text))
        look = seen.window or {}
        spelled = bool(look.get("letters"))  # letters and digits are those of the text
        entire = any(run.start == 0 and run.length == size for run in seen.runs) or spelled
        bare = text in self.stock or self.told_whole(text)
        copied = entire and size >= n and not bare
        stands, its_own = self.enough(text, raw), self.enough(text, own)
        there = (stands and (its_own or (entire and size >= n))) or spelled
        plain = (stands and (its_own or copied)) or (spelled and not bare)
        plain = plain and (self.enough(text, final) or copied)

        def of_own(share: float | None) -> float:
            """Every difference is one of the units that are the text's own."""
            if share is None:
                return -1.0
            if own[0]:
                return 1 - (1 - share) * size / own[0]
            return 0.0 if bare or size >= n else share

        shares = {name: look.get(name) for name in ("containment", "edit", "numbers", "identifiers", "plain")}
        blurred = self.figures(text, [*seen.runs, *seen.masked], set())
        by_mask = blurred[1] / blurred[0] if blurred[1] else None
        numbers = largest(shares["numbers"], by_mask if seen.masked else None)
        differs = bool(seen.masked) or above(shares["numbers"], shares["plain"])
        renamed = above(shares["identifiers"], shares["plain"]) and of_own(shares["identifiers"]) >= BOUNDS.identifiers
        varied = (differs and (of_own(numbers) >= BOUNDS.variant or plain)) or (renamed and not plain)
        asked = BOUNDS.most if size < BOUNDS.sure * n else BOUNDS.equal
        varied = varied and ((shares["edit"] or 0.0) >= asked or plain or seen.window is None)
        varied = varied and not (entire and size >= n)
        alike = of_own(largest(shares["containment"], shares["edit"])) >= BOUNDS.near
        alike = alike and (own[1] > 0 or not (raw[1] or seen.masked))  # another fact, of other numbers and names
        alike = alike and not plain and not varied
        likely = largest(shares["containment"], shares["edit"], numbers, shares["identifiers"]) or 0.0
        small = [run for run in seen.runs if size < n and run.length == size]
        return Hit(
            plain=plain and not varied,
            varied=varied,
            alike=alike,
            whole=(size >= SHORTEST and bool(small or seen.short)) or (entire and size >= n and bare),
            there=there,
            entire=entire and size >= n,
            few=max(raw[1], likely * size if alike or varied else 0) < BOUNDS.sure * n,
            place=self.place(text, seen, small),
            likeness=(largest(shares["edit"], shares["containment"]) or 0.0) + (by_mask or 0.0),
        )

    def place(self, text: Text, seen: Seen, small: list[Run]) -> Run | None:
        """The longest and first of: runs, else masked runs, else the window."""
        long = [run for run in seen.runs if run.length >= self.n[text]]
        for some in (long, small if len(text) >= SHORTEST else [], seen.masked, seen.short):
            if some:
                return min(some, key=lambda run: (-run.length, run.start if some is long else run.unit))
        return Run(0, len(text), seen.window["doc_unit"]) if seen.window else None

    @cached_property
    def hits(self) -> dict[tuple[Text, int], Hit]:
        found = {(text, doc): self.hit(text, seen) for (text, doc), seen in self.seen.items()}
        out = dict(found)
        for (text, doc), hit in found.items():
            if not (hit.varied or hit.alike):
                continue
            others = [(t, own) for (t, d), own in found.items() if d == doc and (own.plain or own.varied or own.alike)]
            if any(self.echoes(text, hit, other, own) for other, own in others):
                out[text, doc] = replace(hit, varied=False, alike=False)
        return {(text, doc): self.worded(text, doc, hit) for (text, doc), hit in out.items()}

    def worded(self, text: Text, doc: int, hit: Hit) -> Hit:
        """What the words say that were found: formulas vary in nothing, quotations and idioms are no items."""
        n = self.n[text]
        held = {unit for run in self.seen[text, doc].runs for unit in range(run.start, run.start + run.length)}
        idle = (hit.plain or hit.alike) and words(text[unit] for unit in held) < min(n, len(held) / 2)
        if hit.entire and len(text) >= 2 * n and words(text) >= SHORTEST and not looks_like_code(self.raw[text]):
            idle = False
        quotations = quoted(self.raw[text])
        inside = set().union(*quotations) if quotations else set()
        others = self.grams(text) if text in self.stock else self.shared[text]
        shared = units_at(text, n, (at for at, gram in enumerate(self.grams(text)) if gram in others))
        quotes = False
        if (hit.plain or hit.alike or hit.varied) and not hit.entire and len(inside) >= n:
            beyond = len(held) - max(len(held & own) for own in quotations)
            quotes = len(set(range(len(text))) - inside - shared) >= SHORTEST and beyond < n / 2
        return replace(hit, varied=hit.varied and words(text) > n / 2, idle=idle, quotes=quotes)

    @staticmethod
    def echoes(text: Text, hit: Hit, other: Text, own: Hit) -> bool:
        """Whether the other is at the place of this one, of about its length, and more surely there."""
        assert hit.place is not None
        assert own.place is not None
        if not own.plain and own.likeness <= hit.likeness:
            return False
        low, at = hit.place.unit - hit.place.start, own.place.unit - own.place.start
        size, many = len(text), len(other)
        shared = min(low + size, at + many) - max(low, at)
        return size / 2 <= many <= 2 * size and shared >= size / 2 and (other, own) != (text, hit)

    # --- what a hit says of an example -----------------------------------------------------------------------------

    def in_list(self, part: Part) -> bool:
        choices = {own.units for own in self.of[part.example] if own.kind == "choices"}
        return part.answering and part.units in choices

    def speaks(self, part: Part, doc: int) -> bool:
        """A text that a crowd shares is looked for only beside another text of the example."""
        sharing = sum(own.units == part.units for own in self.parts)
        if part.units not in self.stock or sharing <= said.CROWD:
            return True
        others = (self.hits.get((own.units, doc)) for own in self.of[part.example] if own.units not in self.crowds)
        return self.hits[part.units, doc].whole and any(hit.plain for hit in others if hit)

    @cached_property
    def crowds(self) -> set[Text]:
        many = Counter(part.units for part in self.parts)
        return {text for text in self.stock if many[text] > said.CROWD}

    def bits(self, example: int, doc: int) -> tuple[set[str], bool]:
        """(what is said, whether any part is found at all)."""
        found: set[str] = set()
        named = False
        parts = [part for part in self.of[example] if (part.units, doc) in self.hits and self.speaks(part, doc)]
        wrong = any(
            part.kind == "choices" and not part.correct
            and (hit.plain or hit.alike or hit.varied or hit.there)
            for part in parts for hit in [self.hits[part.units, doc]]
        )  # fmt: skip
        for part in parts:
            hit, stock = self.hits[part.units, doc], part.units in self.stock
            mine = set()
            if part.kind == "prompt":
                about = any(own.kind in ("passage", "choices") for own in self.of[example])
                shared = bool(self.shared[part.units]) or (stock and part.long)
                if hit.quotes:
                    mine.add("passage")
                elif (hit.plain or hit.alike) and hit.few and not hit.entire and shared and about:
                    mine.add("prompt part")
                else:
                    mine = {f"prompt {name}" for name in ("plain", "alike", "varied") if getattr(hit, name)}
                    if hit.whole and stock:
                        mine.add("prompt stock")
                    elif hit.whole and not part.long:
                        mine.add("prompt whole")
            if part.answering:
                for name in ("plain", "alike", "varied"):
                    if getattr(hit, name) and (name == "plain" or part.kind != "tests"):
                        alone = name == "varied" or not (hit.idle or (hit.few and self.in_list(part)))
                        mine.add(f"answer {name}" if alone else "stated")
                if wrong and self.in_list(part):
                    mine = set()
            if part.kind == "variant" and (hit.plain or hit.alike or hit.varied):
                mine.add("supplied")
            if part.kind == "passage" and hit.plain:
                mine.add("passage")
            found |= mine
            named |= bool(mine)
        return found, named or wrong

    # --- what stands beside what -----------------------------------------------------------------------------------

    def places(self, text: Text, doc: int) -> list[Run]:
        seen = self.seen.get((text, doc))
        if seen and (seen.runs or seen.short):
            return list({(run.start, run.length, run.unit): run for run in [*seen.runs, *seen.short]}.values())
        hit = self.hits.get((text, doc))
        return [hit.place] if hit and hit.place and (hit.alike or hit.varied) else []

    def answer(self, example: int, doc: int, bits: set[str], completed: bool) -> bool:
        """Whether an answer lies beside the prompt."""
        parts = self.of[example]
        prompts = [(part.units, at) for part in parts if part.kind == "prompt" for at in self.places(part.units, doc)]
        choices = [part for part in parts if part.kind == "choices"]
        wrong = [(len(part.units), self.places(part.units, doc)) for part in choices if not part.correct]
        right = {part.units for part in choices if part.correct}
        between = (
            [at for part in choices for at in self.places(part.units, doc)] if any(own for _, own in wrong) else []
        )
        for part in parts:
            if not part.answering or not self.counts(part, doc, bits, completed):
                continue
            places = self.places(part.units, doc)
            if self.in_list(part):
                mine = (len(part.units), places)  # of another length it ends elsewhere, as far as it is there
                lists = wrong if part.units in right else [own for own in wrong if own != mine]
                if not self.told_apart(prompts, places, [own for _, own in lists]):
                    continue
            for at in places:
                first, last = at.unit - at.start, at.unit - at.start + len(part.units)
                for text, prompt in prompts:
                    end = prompt.unit - prompt.start + len(text)
                    behind = prompt.unit + prompt.length <= at.unit
                    if len(part.units) < nearby.TINY:
                        behind = behind and at.unit < self.next_item(example, doc, prompt.unit + prompt.length)
                    if behind and first - chain(end, between) <= nearby.WINDOW:
                        return True
                    ahead = prompt.unit - prompt.start - last
                    if self.stands(part, doc) and at.unit + at.length <= prompt.unit and ahead <= nearby.WINDOW:
                        return True
        return False

    def next_item(self, example: int, doc: int, after: int) -> float:
        """Where behind a place the next prompt of the suite begins that is another text."""
        own = {part.units for part in self.of[example] if part.kind == "prompt"}
        others = {part.units for part in self.groups[self.suites[example], "prompt"]} - own
        runs = [(run, text) for text in others for run in self.seen.get((text, doc), Seen()).runs]
        begins = [run.unit - run.start for run, text in runs if run.start == 0 or 2 * run.length >= len(text)]
        return min((begin for begin in begins if begin >= after), default=float("inf"))

    def counts(self, part: Part, doc: int, bits: set[str], completed: bool) -> bool:
        """Whether an answer of this length can count beside such a prompt."""
        sure = bits & {"prompt whole", "prompt plain", "prompt alike"}
        entire = sure and any(at.length == len(part.units) for at in self.places(part.units, doc))
        if part.long and not entire and not self.stands(part, doc):
            return False
        if completed or bits & {"prompt plain", "prompt alike", "prompt part"}:
            return True
        if "prompt stock" in bits and nearby.TINY <= len(part.units) < part.n:
            return True
        if bits & {"prompt varied", "prompt stock"}:
            if self.in_list(part) and "prompt stock" not in bits:
                return False
            return self.stands(part, doc) and self.hits[part.units, doc].plain
        prompt = max(len(own.units) for own in self.of[part.example] if own.kind == "prompt")
        return len(part.units) >= 2 and len(part.units) + prompt >= TOGETHER

    def stands(self, part: Part, doc: int) -> bool:
        """Whether it is an answer of n units or more that is found for itself."""
        hit = self.hits.get((part.units, doc), Hit())
        return part.long and (hit.plain or hit.alike)

    def told_apart(self, prompts: list[tuple[Text, Run]], right: list[Run], wrong: list[list[Run]]) -> bool:
        """Whether the right choice stands more often behind the prompt than each wrong one, which the list has once."""
        every = [*right, *(at for own in wrong for at in own)]

        def piece(one: Run) -> bool:
            return any(
                at.unit <= one.unit and one.unit + one.length <= at.unit + at.length and at.length > one.length
                for at in every
            )

        for text, prompt in prompts:
            low, high = (
                prompt.unit + prompt.length,
                chain(prompt.unit - prompt.start + len(text), every) + nearby.WINDOW,
            )
            times = [
                len({at.unit for at in own if low <= at.unit <= high})
                for own in ([at for at in own if not piece(at)] for own in [right, *wrong])
            ]
            if times[0] > max(times[1:], default=0):
                return True
        return False

    def completed(self, example: int, doc: int, bits: set[str]) -> bool:
        """Whether a prompt that is no evidence alone stands beside half of its choices, or beside its passage."""
        if not bits & {"prompt whole", "prompt stock", "prompt part"}:
            return False
        parts = self.of[example]
        asks = [part for part in parts if part.kind == "prompt"]
        prompts = [at for part in asks for at in self.places(part.units, doc)]

        def near(part: Part) -> bool:
            return any(
                max(a.unit, b.unit) - min(a.unit + a.length, b.unit + b.length) <= nearby.WINDOW
                for a in prompts
                for b in self.places(part.units, doc)
            )

        if "passage" in bits and any(near(part) for part in parts if part.kind == "passage"):
            return True
        choices = [part for part in parts if part.kind == "choices"]
        found = sum(len(part.units) for part in choices if near(part))
        enough = min(len(part.units) for part in asks) + found >= max(part.n for part in asks)
        return 0 < found >= sum(len(part.units) for part in choices) / 2 and enough

    # --- classes ---------------------------------------------------------------------------------------------------

    def cls(self, example: int, doc: int) -> str | None:
        """The class of an example by one document."""
        bits, named = self.bits(example, doc)
        if not named:
            return None
        prompted = any(bit.startswith("prompt") for bit in bits)
        completed = prompted and self.completed(example, doc, bits)
        if prompted and self.answer(example, doc, bits, completed):
            return "adjacent"
        for cls, wanted in (
            ("solution", {"answer plain"}), ("prompt", {"prompt plain"}),
            ("near", {"prompt alike", "answer alike", "supplied"}), ("variant", {"prompt varied", "answer varied"}),
            ("short", {"prompt whole"}), ("passage", {"passage", "prompt part", "stated"}),
        ):  # fmt: skip
            if bits & wanted or (cls == "prompt" and completed):
                return cls
        return None

    @cached_property
    def evidence(self) -> dict[tuple[int, int], str]:
        """(example, document) -> class."""
        docs = sorted({doc for _, doc in self.seen})
        every = ((example, doc) for example in range(len(self.suites)) for doc in docs)
        return {pair: cls for pair in every if (cls := self.cls(*pair)) is not None}

    def classes(self, problems: Sequence[str | None]) -> list[tuple[str, str | None]]:
        """(class, why it could not be tested) of each example: its most telling document, else untested or clean."""
        found: list[tuple[str, str | None]] = []
        for example, problem in enumerate(problems):
            best = [classes.CLASSES.index(cls) for (own, _), cls in self.evidence.items() if own == example]
            reason = self.untested(example, problem)
            cls = classes.CLASSES[min(best)] if best else "untested" if reason else "clean"
            found.append((cls, reason))
        return found

    def untested(self, example: int, problem: str | None) -> str | None:
        """Why an example could not be tested."""
        if problem is not None:
            return problem
        parts = self.of[example]
        asks = [part for part in parts if (part.kind in ("prompt", "variant") or part.answering) and part.long]
        if any(set(part.grams()) - self.final(part.units) for part in asks):
            return None
        if not asks:
            prompts = [part for part in parts if part.kind == "prompt"]
            some = [part for part in prompts if len(part.units) >= 3 and part.units not in self.stock]
            choices = [part for part in parts if part.kind == "choices"]
            units = sum(len(part.units) for part in [*some, *choices])
            return None if some and choices and units >= sum(part.n for part in some) else "short"
        stock = any(part.grams() and not set(part.grams()) - self.without_told(part.units) for part in asks)
        return "template" if stock else "common"

    def without_told(self, text: Text) -> set[Text]:
        return self.excluded(text)

    def mirrors(self) -> dict[tuple[int, str], list[int]]:
        """(document, suite) -> examples, where it flags for five or more of the suite that are counted."""
        found = defaultdict(list)
        for (example, doc), cls in sorted(self.evidence.items()):
            if cls in classes.FLAGGED and self.counted(example):
                found[doc, self.suites[example]].append(example)
        return {key: own for key, own in found.items() if len(own) >= classes.MIRROR}


def chain(after: int, places: Iterable[Run]) -> int:
    """Where a list of choices ends that begins within the window behind `after`."""
    for at in sorted(places, key=lambda run: (run.unit, run.unit + run.length, run.unit - run.start)):
        if at.unit <= after + nearby.WINDOW:
            after = max(after, at.unit + at.length)
    return after


def words(units: Iterable[str]) -> int:
    """Different units with two letters; the corpora have no unspaced scripts."""
    return sum(re.search(r"[^\W\d_]{2}", unit) is not None for unit in set(units))


def quoted(text: str) -> list[set[int]]:
    """The units of each quotation in “ ”, which open before a word and close behind one."""
    found: list[set[int]] = []
    inside = False
    for at, word in enumerate(text.split()):
        if word.startswith("“"):
            found.append(set())
            inside = True
        if inside:
            found[-1].add(at)
        inside = inside and not word.endswith("”")
    return found


def largest(*values: float | None) -> float | None:
    known = [value for value in values if value is not None]
    return max(known) if known else None


def above(one: float | None, other: float | None) -> bool:
    return one is not None and other is not None and one > other


def parts_of(rows: Iterable[dict], n: Iterable[int]) -> list[Part]:
    """From rows of PARTS, and the n of each."""
    return [
        Part(row["example"], row["kind"], row["correct"] is True, tuple(naive.units(row["text"])), own, row["text"])
        for row, own in zip(rows, n, strict=True)
    ]


def seen_of(parts: Sequence[Part], runs, short, masked, windows) -> dict[tuple[Text, int], Seen]:
    """From rows of a scan's tables, in which texts are named by their first part."""
    found: dict[tuple[Text, int], Seen] = defaultdict(Seen)
    for name, rows in (("runs", runs), ("short", short), ("masked", masked)):
        for row in rows:
            own = found[parts[row["part"]].units, row["doc"]]
            getattr(own, name).append(Run(row["start"], row["length"], row["doc_unit"]))
    for row in windows:
        found[parts[row["part"]].units, row["doc"]].window = row
    return dict(found)
