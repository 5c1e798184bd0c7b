"""What a check answers, and what they share."""

from collections.abc import Callable
from dataclasses import dataclass, field

SHOWN = 20  # differences of one kind that are named

# told what is being done, how much of it, of how much (None: not known)
Progress = Callable[[str, int, int | None], None]


@dataclass(frozen=True)
class Check:
    """
    One question: what was asked, how many things were looked at, every difference in a sentence.

    not_possible: why it could not be answered (the text is not stored), None where it was
    """

    name: str
    seen: int = 0
    differences: list[str] = field(default_factory=list[str])
    not_possible: str | None = None

    @property
    def state(self) -> str:
        return "not possible" if self.not_possible else "differs" if self.differences else "ok"
