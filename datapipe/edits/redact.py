"""
Edits that take personal data away: e-mail addresses, IP addresses, telephone numbers.

Each becomes a placeholder, `<EMAIL>`, `<IP_ADDRESS>` or `<PHONE_NUMBER>`: the first two are those of StarCoder's data,
the third is Presidio's.  One fixed word in angle brackets is a few tokens in every vocabulary, always the same ones, it
cannot be read as a datum (a made-up address can), and a model's user can find and forbid it.  What stands around it
stays: `<a@example.org>` becomes `<<EMAIL>>`, a port or a prefix length stays behind the address.

What is one and what is not is said in emails.py, addresses.py and phones.py.  A text without a candidate costs one scan
by RE2; the others are read by Python, until nothing changes: a second run finds nothing.

A redacting source is redacted in its other fields, too: see `pseudonym`.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pyarrow as pa
import xxhash

from datapipe.edits import addresses, emails, phones
from datapipe.edits.replace import rewritten
from datapipe.keyed import canonical

LOGIN = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*://)[^/?#\s]*@(?=[^/?#\s@])")  # of a URL: who asks is not where
TAIL = re.compile(r"~[0-9a-f]{16}$")


@dataclass(frozen=True)
class Redaction:
    """candidates: RE2 pattern that every text with a hit matches;  spans: text -> (start, end) of hits, in order."""

    placeholder: str
    candidates: str
    spans: Callable[[str], Sequence[tuple[int, int]]]

    def __call__(self, text: str) -> str:
        """The text without its hits."""
        while spans := self.spans(text):
            pieces, at = [], 0
            for start, end in spans:
                pieces += [text[at:start], self.placeholder]
                at = end
            text = "".join([*pieces, text[at:]])
        return text


REDACTIONS: dict[str, Redaction] = {
    "redact_email": Redaction("<EMAIL>", emails.CANDIDATES, emails.spans),
    "redact_ip": Redaction("<IP_ADDRESS>", addresses.CANDIDATES, addresses.spans),
    "redact_phone": Redaction("<PHONE_NUMBER>", phones.CANDIDATES, phones.spans),
}


def redact_email(texts: pa.LargeStringArray) -> pa.LargeStringArray:
    """E-mail addresses become `<EMAIL>` (emails.py)."""
    return _redacted(texts, REDACTIONS["redact_email"])


def redact_ip(texts: pa.LargeStringArray) -> pa.LargeStringArray:
    """Public IPv4 and IPv6 addresses become `<IP_ADDRESS>` (addresses.py)."""
    return _redacted(texts, REDACTIONS["redact_ip"])


def redact_phone(texts: pa.LargeStringArray) -> pa.LargeStringArray:
    """Telephone numbers become `<PHONE_NUMBER>` (phones.py)."""
    return _redacted(texts, REDACTIONS["redact_phone"])


def _redacted(texts: pa.LargeStringArray, redaction: Redaction) -> pa.LargeStringArray:
    return rewritten(texts, redaction.candidates, redaction)


def redactions(names: Sequence[str]) -> tuple[Redaction, ...]:
    """Those among the named edits that redact, in their order."""
    return tuple(REDACTIONS[name] for name in names if name in REDACTIONS)


def redacted(text: str, by: Sequence[Redaction]) -> str:
    """A text without the hits of some redactions."""
    for redaction in by:
        text = redaction(text)
    return text


def pseudonym(name: str, value: str, by: Sequence[Redaction]) -> str:
    """
    The value of a field without personal data: itself where there is none in it, else the redacted value, `~`, and
    sixteen hex digits of a keyed hash of what it was, so that distinct values stay distinct and equal ones equal.

    The field's name is read before it, as a text would have it: in `phone`, bare digits are a telephone number.
    The hash hides nothing from who can guess the value and try: it keeps identities apart, as doc_id does.
    """
    head = f"{name}: "
    new = redacted(head + value, by)
    new = new[len(head) :] if new.startswith(head) else redacted(value, by)
    if new == value:
        return value
    if login := LOGIN.match(value):  # `joe@host` is an address as a whole, and a URL keeps its host
        new = f"{login[1]}{REDACTIONS['redact_email'].placeholder}@{redacted(value[login.end() :], by)}"
    return f"{new}~{xxhash.xxh3_64_hexdigest(canonical(['redact', None, value]))}"


def without_pseudonym(value: str) -> str:
    """A field's value without what redaction put into it: login, placeholders, the hash at its end."""
    placeholders = [redaction.placeholder for redaction in REDACTIONS.values()]
    if not any(placeholder in value for placeholder in placeholders):
        return value
    value = TAIL.sub("", value).replace(f"://{REDACTIONS['redact_email'].placeholder}@", "://")
    for placeholder in placeholders:
        value = value.replace(placeholder, "")
    return value
