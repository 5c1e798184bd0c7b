"""
Numbers as people write them, and back: `7B` parameters, `80GB`, `80GiB`, `400Gbit/s`, `312 TFLOP/s`, `5us`, `40%`.

A quantity has a kind, and a unit of another kind is refused, never guessed: `80B` of memory may be 80 bytes or 80
billion.  GB is 10^9 bytes, GiB 2^30; b and bit are an eighth of B.
"""

import math
import re
from collections.abc import Mapping
from fractions import Fraction
from typing import Literal

from datapipe.errors import ManifestError

Kind = Literal["count", "number", "bytes", "bytes/s", "FLOP", "FLOP/s", "seconds", "share"]

_SI = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "P": 10**15, "E": 10**18}
_BINARY = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "Pi": 2**50}
_COUNTS = {"": 1, "k": 10**3, "K": 10**3, "M": 10**6, "B": 10**9, "G": 10**9, "T": 10**12, "Ki": 2**10, "Mi": 2**20}
_BYTES = {"": 1} | {f"{p}B": n for p, n in (_SI | _BINARY).items() if p not in ("", "E")} | {"bytes": 1, "byte": 1}
_RATES = {
    f"{p}{unit}{per}": Fraction(n, bits)
    for p, n in (_SI | _BINARY).items()
    for unit, bits in (("B", 1), ("b", 8), ("bit", 8))
    for per in ("/s", "ps")
    if not (p == "" and unit == "b")
}
_FLOP = {f"{p}{unit}": n for p, n in (_SI | {"Z": 10**21, "Y": 10**24}).items() for unit in ("FLOP", "FLOPs")}
_FLOPS = {f"{p}{unit}": n for p, n in _SI.items() for unit in ("FLOP/s", "FLOPS", "FLOPs/s", "flop/s")}
_SECONDS = {
    "s": 1, "ms": Fraction(1, 10**3), "us": Fraction(1, 10**6), "µs": Fraction(1, 10**6), "ns": Fraction(1, 10**9),
    "min": 60, "h": 3600, "d": 86400,
}  # fmt: skip
UNITS: Mapping[Kind, Mapping[str, int | Fraction]] = {
    "count": _COUNTS,
    "number": _COUNTS,
    "bytes": _BYTES,
    "bytes/s": {"": 1} | _RATES,
    "FLOP": {"": 1} | _FLOP,
    "FLOP/s": {"": 1} | _FLOPS,
    "seconds": {"": 1} | _SECONDS,
    "share": {"": 1, "%": Fraction(1, 100)},
}
EXAMPLES: Mapping[Kind, str] = {
    "count": "a whole number such as 4096, 2k (2,000), 2Ki (2,048), 7B, 1e9",
    "number": "a number such as 7B, 1e9, 1.5T",
    "bytes": "a size such as 80GB (10^9) or 80GiB (2^30)",
    "bytes/s": "a bandwidth such as 300GB/s or 400Gbit/s",
    "FLOP": "a number of operations such as 1e21 or 300 EFLOP",
    "FLOP/s": "a rate such as 312TFLOP/s",
    "seconds": "a time such as 5us, 2ms, 1.5s",
    "share": "a share such as 0.4 or 40%",
}
_FORM = re.compile(r"([+-]?(?:\d[\d_,]*)?(?:\.\d+)?(?:[eE][+-]?\d+)?)\s*([A-Za-zµ%/]*)")


class QuantityError(ValueError):
    """What was found and what was expected, without the name of the flag."""


def parse(text: object, kind: Kind, *, least: float = 0, above: bool = False) -> int | float:
    """
    The value of a quantity in its kind's unit (bytes, bytes/s, FLOP/s, seconds); QuantityError otherwise.

    A count and a size are whole numbers, an int.  least: the smallest that is allowed; above: not itself.
    """
    shown = str(text).strip()
    match = _FORM.fullmatch(shown)
    if match is None or not re.search(r"\d", match[1]):
        raise QuantityError(f"found {shown!r}, expected {EXAMPLES[kind]}")
    if match[2] not in UNITS[kind]:
        raise QuantityError(f"found {shown!r}{_other(match[1], match[2], kind)}, expected {EXAMPLES[kind]}")
    value = Fraction(match[1].replace("_", "").replace(",", "")) * UNITS[kind][match[2]]
    if value < Fraction(least) or (above and value == Fraction(least)):
        raise QuantityError(f"found {shown!r}, expected {'more than' if above else 'at least'} {least:g}")
    if kind == "share" and value > 1:
        raise QuantityError(f"found {shown!r}, expected at most 1 (100%)")
    if kind in ("count", "bytes"):
        if value.denominator != 1:
            raise QuantityError(f"found {shown!r}, which is not a whole number, expected {EXAMPLES[kind]}")
        return int(value)
    return float(value)


def _other(number: str, unit: str, kind: Kind) -> str:
    """What a unit means elsewhere, for who mixed two up."""
    if kind == "bytes" and unit in _COUNTS:
        return f", which is a count and no size; write {number}{'GB' if unit == 'B' else unit + 'B'}"
    if kind in ("count", "number") and unit in _BYTES:
        return f", which is a size in bytes and no count; write {number}{unit.removesuffix('B')[:1].replace('G', 'B')}"
    for other, units in UNITS.items():
        if unit in units:
            return f", whose unit is one of {other}"
    return f", whose unit {unit} is not known here"


class Problems:
    """All that is wrong with the input; raised at once, one a line, each naming its flag."""

    def __init__(self) -> None:
        self.found: list[str] = []

    def add(self, flag: str, problem: str) -> None:
        self.found.append(f"{flag}: {problem}")

    def parse(
        self, flag: str, text: object, kind: Kind, *, least: float = 0, above: bool = False
    ) -> int | float | None:
        """The value, or None where there is none or it is a problem, which is then listed."""
        if text is None:
            return None
        try:
            return parse(text, kind, least=least, above=above)
        except QuantityError as error:
            self.add(flag, str(error))
            return None

    def refuse(self) -> None:
        """ManifestError with every problem; nothing where there is none."""
        if self.found:
            raise ManifestError("\n".join(dict.fromkeys(self.found)))


# --- how they are shown ---------------------------------------------------------------------------------------------


def show(value: float, kind: str) -> str:
    """14.0 GB, 7.00B, 312 TFLOP/s, 5.00 us, 37.5 %: three digits, four below 10^4 of a unit's next."""
    if kind == "bytes":
        return _scaled(value, "B", 1000, ("", "k", "M", "G", "T", "P", "E"))
    if kind in ("bytes/s", "FLOP", "FLOP/s"):
        return _scaled(value, kind.replace("bytes", "B"), 1000, ("", "k", "M", "G", "T", "P", "E", "Z", "Y"))
    if kind == "seconds":
        return _seconds(value)
    if kind == "share":
        return f"{100 * value:.1f} %"
    if kind in ("count", "number") and value >= 1e5:
        return _scaled(value, "", 1000, ("", "k", "M", "B", "T")).replace(" ", "")
    return f"{value:,.0f}" if float(value).is_integer() else f"{value:,.4g}"


def both(value: float) -> str:
    """A device's memory, in powers of ten and of two: 80.0 GB (74.5 GiB)."""
    size, unit = (value / 2**30, "GiB") if abs(value) >= 2**29 else (value / 2**20, "MiB")
    return f"{show(value, 'bytes')} ({size:,.1f} {unit})"


def _scaled(value: float, unit: str, step: int, prefixes: tuple[str, ...]) -> str:
    place, size = 0, abs(value)
    while size >= step * 0.9995 and place + 1 < len(prefixes):
        size, place = size / step, place + 1
    number = math.copysign(size, value)
    if place == 0:
        return f"{number:,.3g} {unit}" if number != int(number) else f"{int(number):,} {unit}"
    return f"{_three(number)} {prefixes[place]}{unit}"


def _three(number: float) -> str:
    size = abs(number)
    return f"{number:,.0f}" if size >= 99.95 else f"{number:.1f}" if size >= 9.995 else f"{number:.2f}"


def _seconds(value: float) -> str:
    if value >= 2 * 86400:
        return f"{_three(value / 86400)} d"
    if value >= 2 * 3600:
        return f"{_three(value / 3600)} h"
    for least, unit in ((1, "s"), (1e-3, "ms"), (1e-6, "us")):
        if value >= least * 0.9995:
            return f"{_three(value / least)} {unit}"
    return "0 s" if value == 0 else f"{_three(value * 1e9)} ns"
