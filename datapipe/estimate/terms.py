"""
A table of terms that add up: each with its formula and its source, each may be replaced or left out.

Names have a group before a dot: `optimizer.master`.  `set` and `without` take a term or a whole group.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

from datapipe.estimate import quantities

SOURCES = {
    "ZeRO": "Rajbhandari et al. 2019, arXiv 1910.02054",
    "Korthikanti": "Korthikanti et al. 2022, arXiv 2205.05198",
    "Narayanan": "Narayanan et al. 2021, arXiv 2104.04473",
    "Megatron": "Megatron-LM, theoretical_memory_usage.py and distributed optimizer",
    "DeepSpeed": "DeepSpeed, defaults of zero_optimization",
    "torch": "PyTorch documentation (DistributedDataParallel, fully_shard, cuBLAS workspaces)",
    "Dettmers": "Dettmers et al. 2021, arXiv 2110.02861",
    "Shazeer": "Shazeer and Stern 2018, arXiv 1804.04235",
    "Dao": "Dao et al. 2022, arXiv 2205.14135",
    "PaLM": "Chowdhery et al. 2022, arXiv 2204.02311, appendix B",
    "Kaplan": "Kaplan et al. 2020, arXiv 2001.08361",
    "ring": "ring collectives, Patarasuk and Yuan 2009",
    "GShard": "Lepikhin et al. 2020, arXiv 2006.16668",
    "Sardana": "Sardana et al. 2024, arXiv 2401.00448",
    "Muennighoff": "Muennighoff et al. 2023, arXiv 2305.16264",
    "counted": "counted from the tensors of the shape",
    "eager": "what torch 2.13 keeps, operation by operation; checked by --measure",
    "assumed": "an assumption; measure it and give it",
    "you": "given on the command line",
}


@dataclass(frozen=True)
class Term:
    """
    One addend.

    unit: of quantities.show.  source: a key of SOURCES.  note: what a reader should know, in a few words.
    """

    name: str
    value: float
    unit: str
    formula: str
    source: str
    note: str = ""

    @property
    def group(self) -> str:
        return self.name.split(".", 1)[0]

    def as_json(self) -> dict[str, Any]:
        shown = {"name": self.name, "value": self.value, "unit": self.unit, "formula": self.formula}
        return shown | {"source": SOURCES.get(self.source, self.source), "note": self.note}


@dataclass(frozen=True)
class Table:
    """Terms of one unit, and what is assumed about all of them."""

    title: str
    terms: tuple[Term, ...]
    assumptions: tuple[str, ...] = field(default=())

    @property
    def total(self) -> float:
        return math.fsum(term.value for term in self.terms)

    @property
    def unit(self) -> str:
        return self.terms[0].unit if self.terms else "number"

    def value(self, name: str) -> float:
        """The sum of a term or of a group; 0 where there is none."""
        return math.fsum(term.value for term in self.terms if term.name == name or term.name.startswith(f"{name}."))

    def groups(self) -> dict[str, float]:
        """Sums by group, in order of appearance."""
        return {name: self.value(name) for name in dict.fromkeys(term.group for term in self.terms)}

    def dominant(self) -> Term | None:
        """The largest term."""
        return max(self.terms, key=lambda term: term.value, default=None)

    def names(self) -> set[str]:
        return {term.name for term in self.terms} | {term.group for term in self.terms}

    def changed(self, put: Mapping[str, float], without: Iterable[str] = ()) -> Self:
        """Other values for terms or groups (the group becomes one term), and terms or groups left out."""
        terms: list[Term] = []
        for term in self.terms:
            if _named(term, without):
                continue
            found = _named(term, put)
            if found is None:
                terms.append(term)
            elif all(other.name != found for other in terms):
                terms.append(Term(found, put[found], term.unit, "set", "you", f"instead of {self._was(found)}"))
        return replace(self, terms=tuple(terms))

    def _was(self, name: str) -> str:
        return quantities.show(self.value(name), self.unit)

    def as_json(self) -> dict[str, Any]:
        found = {"title": self.title, "unit": self.unit, "total": self.total, "groups": self.groups()}
        return found | {"terms": [term.as_json() for term in self.terms], "assumptions": list(self.assumptions)}


def _named(term: Term, names: Iterable[str]) -> str | None:
    return next((name for name in names if name == term.name or term.name.startswith(f"{name}.")), None)


def changes(
    sets: Sequence[str], without: Sequence[str], known: Iterable[str], kind: quantities.Kind
) -> dict[str, float]:
    """
    TERM=VALUE settings as values; ManifestError with all that is wrong with them or with the names left out.

    known: names of terms and groups.
    """
    names, problems, put = sorted(known), quantities.Problems(), {}
    for setting in sets:
        name, found, text = setting.partition("=")
        if not found:
            problems.add(f"--set {setting}", "expected TERM=VALUE")
        elif name not in names:
            problems.add(f"--set {setting}", f"there is no term {name!r}; there are {', '.join(names)}")
        elif (value := problems.parse(f"--set {setting}", text, kind)) is not None:
            put[name] = value
    for name in without:
        if name not in names:
            problems.add(f"--without {name}", f"there is no such term; there are {', '.join(names)}")
    problems.refuse()
    return put
