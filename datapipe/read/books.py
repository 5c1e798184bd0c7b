"""
What became of every record of an input: counted where it is read, summed over the units that share the input.

records = documents + rejected + quarantined + blank, and of the documents `cut` were not stored.
"""

from collections.abc import Iterable


def book() -> dict:
    """An empty book of one input, or of a piece of it; `rows` are the documents that were stored."""
    return {"records": 0, "documents": 0, "rejected": {}, "quarantined": {}, "blank": 0, "repeated": 0, "cut": {},
            "repaired": 0, "damaged": None, "rows": 0}  # fmt: skip


def count(reasons: dict[str, int], reason: str, n: int = 1) -> None:
    """Add n to a reason."""
    if n:
        reasons[reason] = reasons.get(reason, 0) + n


def add(total: dict, part: dict) -> None:
    """Add the book of a piece to that of its input."""
    for key, value in part.items():
        if isinstance(value, dict):
            for reason, n in value.items():
                count(total[key], reason, n)
        elif isinstance(value, int):
            total[key] += value
        else:
            total[key] = total[key] or value


def close(book: dict, name: str) -> None:
    """The books of an input must balance."""
    told = book["documents"] + sum(book["rejected"].values()) + sum(book["quarantined"].values()) + book["blank"]
    assert book["records"] == told, f"the books of {name} do not balance: {book}"
    assert book["documents"] == book["rows"] + sum(book["cut"].values()), f"{name}: documents got lost: {book}"


def total(books: Iterable[dict], key: str) -> int:
    """The sum of a figure over books, over all its reasons where it has such."""
    return sum(sum(value.values()) if isinstance(value := book[key], dict) else value for book in books)
