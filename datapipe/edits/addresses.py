"""
IP addresses in a text.

An IPv4 address is four decimal numbers of 0 to 255 without leading zeros; an IPv6 address has any of the forms of
RFC 4291, with a zone or without.  A port, a prefix length and brackets stay where they are; in a reversed name
(4.3.2.1.in-addr.arpa) the numbers go.

Only addresses that a host on the public Internet may have are redacted: those of the networks in _SPECIAL stay (IANA's
special-purpose registries: private, loopback, link-local, documentation, shared, multicast, reserved, 0.0.0.0/8,
broadcast).  They are written here because ipaddress.is_global differs between minor releases of Python.

Four numbers are a version, a section or an object identifier, and stay,
* behind a word or a sign that says so: v, version, release, section, OID, a package's name with a dash or a slash
  (Chrome/91.0.44.12), `==`, `>=`, `~>`,
* as part of something longer: 1.3.6.1.4.1, 1.2.3.4-5, 1.2.3.4+dfsg, foo-1.2.3.4.tar.gz,
* where none of them has three digits, unless a word before them speaks of an address (IP, host, server, ping, ...),
  they are a URL's host, or a port or prefix length follows: sections, versions and dates look like that.
12:34:56 and std::vector are no IPv6 by their syntax; MAC addresses, what has letters alone (bad::cafe), and what has
fewer than three groups (2008::, a::b) unless in brackets or with a prefix length, are taken for something else.
"""

import ipaddress
import re
from collections.abc import Iterator

# three dots between four numbers, or colons as IPv6 has them and a time has not
CANDIDATES = (
    r"[0-9]\.[0-9]{1,3}\.[0-9]{1,3}\.[0-9]|(?:[0-9A-Fa-f]{1,4}:){3}|[0-9A-Fa-f]:[0-9A-Fa-f]{1,4}::|"
    r"[0-9A-Fa-f]::[0-9A-Fa-f]{1,4}:|::[0-9A-Fa-f]{1,4}:[0-9A-Fa-f]|\[[0-9A-Fa-f]{1,4}::|[0-9A-Fa-f]::/[0-9]"
)
_SPECIAL = tuple(
    ipaddress.ip_network(network)
    for network in (
        "0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12", "192.0.0.0/24",
        "192.0.2.0/24", "192.88.99.0/24", "192.168.0.0/16", "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24",
        "224.0.0.0/4", "240.0.0.0/4",
    )
)  # fmt: skip
# of IPv6 only 2000::/3 is given out; these lie in it
_SPECIAL_6 = tuple(map(ipaddress.IPv6Network, ("2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20")))
_GIVEN_OUT = ipaddress.IPv6Network("2000::/3")
_MAPPED = tuple(map(ipaddress.IPv6Network, ("::ffff:0:0/96", "64:ff9b::/96")))  # an IPv4 address in its last 32 bits

_FOUR = re.compile(r"(?<![0-9A-Za-z_.])[0-9]{1,3}(?:\.[0-9]{1,3}){3}(?![0-9A-Za-z_])(?!\.[0-9])")
_COLONS = re.compile(r":[0-9A-Fa-f]{0,4}:")
_SIX = re.compile(r"(?<![0-9A-Za-z_:.])(?:[0-9A-Fa-f]{0,4}:){2,7}(?:[0-9]{1,3}(?:\.[0-9]{1,3}){3}|[0-9A-Fa-f]{0,4})"
                  r"(?:%[0-9A-Za-z_.-]+)?(?![0-9A-Za-z_:])(?!\.[0-9A-Za-z_])")  # fmt: skip
_HEX_BEFORE = re.compile(r"[0-9A-Fa-f]{1,4}\Z")

_BEFORE = 40  # characters before four numbers that may say what they are
_VERSION = re.compile(
    r"(?:\b(?:v|ver|vers|version\w*|release\w*|rev|revision|build|firmware|kernel|driver|patch|update|upgrade\w*|"
    r"section|sect?|chapter|clause|para(?:graph)?|appendix|figure|fig|table|item|note|rule|oid|edition|"
    r"copyright|dated?)\b[\s.:=#'\"(v-]*|§+\s*|(?:[=<>~!]=|~>|\^|(?<!-)[<>](?=\s))\s*|[0-9A-Za-z_)][-/_+~]|(?<![/:])/)\Z",
    re.IGNORECASE,
)
_ADDRESS = re.compile(
    r"(?:\b(?:ip|ipv4|ips|addr|addrs|address|addresses|inet|host|hosts|hostname|server|servers|dns|resolver|nameserver|"
    r"nameservers|ping|traceroute|gateway|gw|router|client|clients|peer|remote|remote_addr|src|dst|"
    r"ssh|telnet|curl|nmap|whois|connect|connected|connection|login|banned?|block|blocked|"
    r"x-forwarded-for|x-real-ip)\b[\s:=,'\"(\[{<>to-]*|://(?:[^\s/@]*@)?)\Z",
    re.IGNORECASE,
)
_JOINED = re.compile(r"[+~_@]|-(?![0-9]{1,3}\.[0-9]{1,3}\.)[0-9A-Za-z]|\.[A-Za-z_*]")
_REVERSED = re.compile(r"\.in-addr\.arpa\b", re.IGNORECASE)
_RANGE = re.compile(r"[0-9]{1,3}(?:\.[0-9]{1,3}){3}-\Z")
_SUFFIX = re.compile(r":[0-9]{2,5}\b|/(?:[89]|[12][0-9]|3[0-2])\b(?!/)")
_MAC = re.compile(r"(?:[0-9A-Fa-f]{2}:){5,7}[0-9A-Fa-f]{2}\Z")


def spans(text: str) -> list[tuple[int, int]]:
    """(start, end) of the addresses in a text."""
    found = list(_six(text))
    taken = dict.fromkeys(place for start, end in found for place in range(start, end))
    return sorted([*found, *((start, end) for start, end in _four(text) if start not in taken)])


def _four(text: str) -> Iterator[tuple[int, int]]:
    for match in _FOUR.finditer(text):
        start, end = match.span()
        try:
            address = ipaddress.IPv4Address(match[0])
        except ValueError:
            continue
        if _REVERSED.match(text, end):
            address = ipaddress.IPv4Address(".".join(match[0].split(".")[::-1]))
            if is_public(address):
                yield start, end
        elif is_public(address) and _is_address(text, start, end):
            yield start, end


def _is_address(text: str, start: int, end: int) -> bool:
    """Whether four numbers are no version: by what stands around them, and by their size."""
    before = text[max(0, start - _BEFORE) : start]
    if _JOINED.match(text, end):
        return False
    if _ADDRESS.search(before) or _RANGE.search(before):
        return True
    if _VERSION.search(before):
        return False
    return max(map(int, text[start:end].split("."))) > 99 or _has_suffix(text, start, end)


def _has_suffix(text: str, start: int, end: int) -> bool:
    """Whether a port follows, or the length of a prefix that the address has."""
    suffix = _SUFFIX.match(text, end)
    if suffix is None or suffix[0][0] == ":":
        return suffix is not None
    try:
        return ipaddress.IPv4Network(text[start:end] + suffix[0]).prefixlen > 0
    except ValueError:
        return False


def _six(text: str) -> Iterator[tuple[int, int]]:
    last = 0
    for colons in _COLONS.finditer(text):
        if colons.start() < last:
            continue
        low = max(last, colons.start() - 4)
        group = _HEX_BEFORE.search(text[low : colons.start()])
        match = _SIX.match(text, low + group.start() if group else colons.start())
        if match is None:
            continue
        bare, last = match[0].partition("%")[0], match.end()
        if bare.endswith(":") and not bare.endswith("::"):  # a sentence's own colon
            bare, last = bare[:-1], last - 1
        try:
            address = ipaddress.IPv6Address(bare)
        except ValueError:
            continue
        if is_public(address) and _is_written_out(text, match.start(), last, bare):
            yield match.start(), last


def _is_written_out(text: str, start: int, end: int, bare: str) -> bool:
    """Whether it is no MAC address, no name with colons in it (bad::cafe) and no year before a block (2008::)."""
    if _MAC.match(bare) or not any(digit in "0123456789" for digit in bare):
        return False
    groups = sum(map(bool, bare.split(":")))
    return groups > 2 or "." in bare or text[max(0, start - 1) : start] == "[" or text[end : end + 1] == "/"


def is_public(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> bool:
    """Whether a host on the public Internet may have the address."""
    if isinstance(address, ipaddress.IPv4Address):
        return not any(address in network for network in _SPECIAL)
    if any(address in network for network in _MAPPED):
        return is_public(ipaddress.IPv4Address(int(address) & 0xFFFFFFFF))
    return address in _GIVEN_OUT and not any(address in network for network in _SPECIAL_6)
