"""
URLs as block lists see them: host, registered domain, and one form for what is the same address.

* A *host* is lower case, without user, port and last dots; a name of other letters is in punycode (UTS #46), so
  `bücher.example` and `xn--bcher-kva.example` are one.  An address of digits is a host without a domain.
* The *registered domain* is what somebody registered: a label below a public suffix.  Where a company lets others
  register below its own domain (`github.io`, `blogspot.com`), a host has two: that of the company, by the ICANN part of
  the list, and that of its customer, by the whole list.  Both count.
* A *URL* is compared without scheme, user, port, fragment and last `/`; other letters in it are escaped (`%C3%BC`).
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
    rest = ESCAPE.sub(lambda found: found[0].upper(), rest.partition("#")[0])
    return host + quote(rest, safe=ASCII).rstrip("/")


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


@cache
def decided_by() -> dict[str, str]:
    """What else decides about URLs: sha256 of the public suffix list, version of the library for punycode."""
    suffixes = importlib.resources.files("publicsuffixlist").joinpath(SUFFIXES).read_bytes()
    return {"public suffixes": hashlib.sha256(suffixes).hexdigest(), "idna": importlib.metadata.version("idna")}


def words(url: str) -> set[str]:
    """The runs of ASCII letters and digits of a URL, in lower case."""
    return set(NOT_ALNUM.split(url.lower())) - {""}


def squeezed(text: str) -> str:
    """The ASCII letters and digits alone, in lower case."""
    return NOT_ALNUM.sub("", text.lower())
