"""
URLs as block lists see them: host, registered domain, and one form for what is the same address.

* A *host* is lower case, without user, port and last dots; a name of other letters is in punycode (UTS #46), so
  `bücher.example` and `xn--bcher-kva.example` are one.  An address of digits is a host without a domain.
* The *registered domain* is what somebody registered: a label below a public suffix.  Where a company lets others
  register below its own domain (`github.io`, `blogspot.com`), a host has two: that of the company, by the ICANN part of
  the list, and that of its customer, by the whole list.  Both count.
* A *URL* is compared without scheme, user, port, fragment and last `/`; other letters in it are escaped (`%C3%BC`),
  ASCII letters and digits are not (`%63asino`), in its words neither.
"""

import hashlib
import importlib.metadata
import importlib.resources
import re
from functools import cache, lru_cache
from urllib.parse import quote

import idna
from publicsuffixlist import PublicSuffixList

SUFFIXES = "public_suffix_list.dat"
SCHEME = re.compile(r"https?:[/\\]*|[a-z][a-z0-9+.-]*://|//", re.ASCII | re.IGNORECASE)
BREAK = re.compile(r"[\t\n\r]+")  # browsers read on over these
AUTHORITY_END = re.compile(r"[/?#\\]")
PORT = re.compile(r":[0-9]*$")
NAME = re.compile(r"[a-z0-9_-]+(\.[a-z0-9_-]+)*", re.ASCII)
IPV4 = re.compile(r"[0-9]{1,3}(\.[0-9]{1,3}){3}", re.ASCII)
IPV6 = re.compile(r"\[[0-9a-f:.]+(%[0-9a-z._~-]+)?\]", re.ASCII)
ESCAPE = re.compile("%[0-9a-fA-F]{2}")
ASCII = "".join(map(chr, range(128)))
NOT_ALNUM = re.compile("[^a-z0-9]+")
CACHED = 1 << 16  # hosts whose answers are remembered


def split(url: str) -> tuple[str | None, str]:
    """(host, the rest of the URL with path and query); null where there is no host."""
    url = BREAK.sub("", url.strip())
    scheme = SCHEME.match(url)
    rest = url[scheme.end() :] if scheme else url
    end = AUTHORITY_END.search(rest)
    authority, rest = (rest[: end.start()], rest[end.start() :]) if end else (rest, "")
    return _host(authority), rest


@lru_cache(CACHED)
def _host(authority: str) -> str | None:
    name = PORT.sub("", authority.rpartition("@")[2]).lower()
    if not name.isascii():
        try:
            name = idna.encode(name.rstrip(".。．｡"), uts46=True).decode("ascii").lower()
        except (idna.IDNAError, UnicodeError):
            return None
    name = name.rstrip(".")
    return name if NAME.fullmatch(name) or IPV6.fullmatch(name) else None


def canonical(url: str) -> str | None:
    """The form in which URLs are compared; null where there is no host."""
    host, rest = split(url)
    if host is None:
        return None
    rest = ESCAPE.sub(_unescaped, rest.partition("#")[0])
    return host + quote(rest, safe=ASCII).rstrip("/")


def _unescaped(escape: re.Match[str]) -> str:
    """An escape that need not be one as its letter or digit, another in capitals."""
    char = chr(int(escape[0][1:], 16))
    return char if char.isascii() and char.isalnum() else escape[0].upper()


@lru_cache(CACHED)
def registered(host: str) -> tuple[str, ...]:
    """The registered domains of a host, that of the customer first; none of an address or of a suffix itself."""
    if IPV4.fullmatch(host) or host.startswith("["):
        return ()
    found = [suffixes.privatesuffix(host) for suffixes in _suffixes()]
    return tuple(dict.fromkeys(domain for domain in found if domain))


@cache
def _suffixes() -> tuple[PublicSuffixList, PublicSuffixList]:
    """The whole list, and the ICANN part of it; a suffix that is in neither is none."""
    return PublicSuffixList(accept_unknown=False), PublicSuffixList(accept_unknown=False, only_icann=True)


def is_suffix(host: str) -> bool:
    """Whether everybody may register below a host, which is no registered domain of anybody: co.uk, not github.io."""
    return not registered(host) and _suffixes()[1].publicsuffix(host) == host


@cache
def _list() -> bytes:
    return importlib.resources.files("publicsuffixlist").joinpath(SUFFIXES).read_bytes()


@cache
def maybe_suffixes() -> tuple[list[str], str]:
    """Hosts that are public suffixes, and an RE2 pattern of those that a rule with a star makes some."""
    text = _list().decode("utf-8").partition("===END ICANN")[0]
    rules = [line.strip() for line in text.splitlines() if line.strip() and not line.startswith(("//", "!"))]
    names = [idna.encode(rule.removeprefix("*."), uts46=True).decode("ascii") for rule in rules]
    stars = [re.escape(name) for rule, name in zip(rules, names, strict=True) if rule.startswith("*.")]
    return names, rf"^[^.]+\.(?:{'|'.join(stars)})$"


@cache
def decided_by() -> dict[str, str]:
    """What else decides about URLs: sha256 of the public suffix list, version of the library for punycode."""
    return {"public suffixes": hashlib.sha256(_list()).hexdigest(), "idna": importlib.metadata.version("idna")}


def _read(url: str) -> str:
    """A URL in lower case with escapes as what they stand for: ASCII letters and digits, else nothing of a word."""
    return ESCAPE.sub(lambda escape: found if len(found := _unescaped(escape)) == 1 else " ", url).lower()


def words(url: str) -> set[str]:
    """The runs of ASCII letters and digits of a URL, in lower case."""
    return set(NOT_ALNUM.split(_read(url))) - {""}


def squeezed(text: str) -> str:
    """The ASCII letters and digits alone, in lower case."""
    return NOT_ALNUM.sub("", _read(text))
