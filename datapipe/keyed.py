"""
Keyed decisions, names and canonical JSON: where nothing may depend on order, host, clock or chance.

Every decision (sample, word_filter, holdout, copies, bucket, row, verify, tokenizer, order) is the xxh3_64 of a
canonical list that starts with its purpose, so no decision follows another.
"""

import datetime
import json
from collections.abc import Iterable, Iterator
from fractions import Fraction
from json.encoder import encode_basestring_ascii as quoted

import xxhash

WHOLE = 1 << 64


def canonical(value: object) -> bytes:
    """Canonical JSON: sorted keys, no spaces, ASCII, ISO dates; NaN and infinities raise ValueError."""
    return json.dumps(
        value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False, default=_date
    ).encode("ascii")


def _date(value: object) -> str:
    if isinstance(value, datetime.date):
        return value.isoformat()
    raise TypeError(f"no canonical JSON for {type(value).__name__}")


def keyed(purpose: str, salt: str | int | None, *key: object) -> int:
    """64 bits that decide: xxh3_64 (seed 0) of the canonical JSON [purpose, salt, key...]."""
    return xxhash.xxh3_64_intdigest(canonical([purpose, salt, *key]))


def keyed_each(purpose: str, salt: str | int | None, keys: Iterable[str]) -> Iterator[int]:
    """keyed(purpose, salt, key) of many texts; nine times faster, for only the key is written anew each time."""
    head = canonical([purpose, salt])[:-1].decode("ascii")
    for key in keys:
        yield xxhash.xxh3_64_intdigest(f"{head},{quoted(key)}]".encode("ascii"))


def bound(fraction: float) -> int:
    """keyed(...) < bound(f) holds for a share f of all keys: floor(f x 2^64), exactly."""
    return int(Fraction(fraction) * WHOLE)


def text_id(data: bytes) -> str:
    """32 hex digits that name bytes: xxh3_128, big-endian as xxHash prints it."""
    return xxhash.xxh3_128_hexdigest(data)


def doc_id(source: str, own_id: str | None, raw_hash: str, n: int) -> str:
    """The name of a document: the same in every build and every layout of files."""
    return text_id(canonical([source, own_id, raw_hash, n]))


def stage_name(place: int, stage: str) -> str:
    """How fates and ledger name a stage: "2:near_dedup"; mixture and tokens are no stages of the manifest."""
    return stage if stage in ("mixture", "tokens") else f"{place}:{stage}"


def doc_ids(source: str, own_ids: Iterable[str | None], raw_hashes: Iterable[str]) -> list[str]:
    """doc_id(source, own_id, raw_hash, 0) of many documents; four times faster."""
    head = canonical([source])[:-1].decode("ascii")
    named = zip(("null" if own is None else quoted(own) for own in own_ids), raw_hashes, strict=True)
    return [text_id(f'{head},{own},"{raw}",0]'.encode("ascii")) for own, raw in named]
