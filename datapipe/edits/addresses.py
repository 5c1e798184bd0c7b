"""
IP addresses in a text.

An IPv4 address is four decimal numbers of 0 to 255 without leading zeros; an IPv6 address has any of the forms of
RFC 4291, with a zone or without.  A port, a prefix length and brackets stay where they are; in a reversed name
(4.3.2.1.in-addr.arpa) the numbers go.

Only addresses that a host on the public Internet may have are redacted: those of the networks in _SPECIAL stay (IANA's
special-purpose registries: private, loopback, link-local, documentation, shared, multicast, reserved, 0.0.0.0/8,
broadcast).  They are written here because ipaddress.is_global differs between minor releases of Python.

Four numbers may be a version, a section or an object identifier just as well.  What says so wins: a word or a sign
before them (v, version, release, section, OID; `==`, `>=`, `~>`), a package's name with a dash or a slash
(Chrome/91.0.44.12), and that they are a part of something longer (1.3.6.1.4.1, 1.2.3.4-5, 1.2.3.4+dfsg,
foo-1.2.3.4.tar.gz).  Else they are an address
* by their size: one has three digits, or all four have two and do not read as a date;
* by a word before them: IP, host, address, server, DNS, ping, client ..., of `from`, `by`, `to`, `via` only where the
  first is over 23 or the line is one of a log or a mail's head: "bumps rails from 7.0.4.3 to 7.0.7.2";
* as a URL's host, in an `IN A` record, with a port or a prefix length behind them;
* in `[...]` or `(...)` alone, behind a host's name or in a line of a log or a mail's head, and at the beginning of a
  line of an access log;
* right behind an address (8.8.8.8, 8.8.4.4), and where they are an address at another place of the same text.
So `8.8.8.8` in prose, with nothing around it that tells, stays: what looks like it there is a version or a section.
12:34:56 and std::vector are no IPv6 by their syntax; MAC addresses, what has letters alone (bad::cafe), and what has
fewer than three groups (2008::, a::b) unless in brackets or with a prefix length, are taken for something else.
"""

import ipaddress
import re
from collections.abc import Iterator
from functools import lru_cache

# three dots between four numbers, or colons as IPv6 has them and a time has not
CANDIDATES = (
    r"[0-9]\.[0-9]{1,3}\.[0-9]{1,3}\.[0-9]|(?:[0-9A-Fa-f]{1,4}:){3}|[0-9A-Fa-f]:[0-9A-Fa-f]{1,4}::|"
    r"[0-9A-Fa-f]::[0-9A-Fa-f]{1,4}:|::[0-9A-Fa-f]{1,4}:[0-9A-Fa-f]|\[[0-9A-Fa-f]{1,4}::|"
    r"[0-9A-Fa-f]::[0-9A-Fa-f]{0,4}(?:%[0-9A-Za-z_.-]+)?/"
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

_BEFORE = 60  # characters before four numbers that may say what they are
_AROUND = 300  # of a line, before and behind them
_OVER = 23  # versions, sections and the years of dates begin with less
_VERSION_WORDS = """
v ver vers rev revision build firmware kernel driver patch section sect sec chapter clause para paragraph
appendix figure fig table item note rule oid edition copyright date dated since abschnitt kapitel
seção sección sezione раздел
"""
_VERSIONS = frozenset(_VERSION_WORDS.split())
_VERSIONS_BEGIN = ("version", "release", "upgrad", "downgrad", "backport", "migrat", "bump", "updat")
_ADDRESS_WORDS = """
ip ipv4 ips addr addrs address addresses ipaddress ipaddr inet host hosts hostname rhost server servers dns resolver
resolvers nameserver nameservers ping traceroute gateway gw router routers client clients peer peers remote src dst ssh
sshd telnet curl wget nmap whois nslookup dig http https ftp sftp rsync rdp vpn proxy smtp imap helo ehlo relay connect
connected connecting connection connections login logins ban banned block blocked attacker visitor forwarded-for
x-forwarded-for real-ip x-real-ip endpoint listen bind adresse adresses ipadresse serveur dirección direccion indirizzo
endereço servidor адрес адреса сервер
"""
_ADDRESSES = frozenset(_ADDRESS_WORDS.split())
# between such a word and the numbers; those that a version has not have a say of their own
_LINK_WORDS = "to at is was are be of on from by via for the this with ist es est und and my your as von desde"
_LINKS = frozenset(_LINK_WORDS.split())
_WEAK = frozenset(("from", "by", "to", "at", "via", "von", "desde"))
# backwards from four numbers: signs, a word
_LAST = re.compile(r"([\s.:=,#@'\"`*|(\[{<>-]*)([^\W_](?:[\w-]*\w)?|\w?)")
_NO_ADDRESS, _NO_VERSION = frozenset(".#*|"), frozenset(",[{<>|*@")  # signs that part a word from the numbers
_DENSE = re.compile(r"(?:地址|服务器|伺服器|アドレス|サーバー?|ホスト|주소|서버)[\s:：=はがをの是为為「'\"(]{0,4}\Z")
_SIGNS = frozenset("-/_+~^§=<>!")
_SIGN = re.compile(r"(?:§+\s*|(?:[=<>~!]=|~>|\^|(?<!-)[<>](?=\s))\s*|[0-9A-Za-z_)][-/_+~]|(?<![/:])/)\Z")
_URL = re.compile(r"://(?:[^\s/@]*@)?\Z")
_RECORD = re.compile(r"\b(?:IN|[0-9]{2,6})\s+A\s+\Z")
_HOST = re.compile(r"(?:[a-z0-9_-]+\.)+(?:com|org|net|edu|gov|mil|int|info|biz|arpa|[a-z]{2}(?<!js|py|so|sh|rs|pl))\.?"
                   r"\s?[\[(]\Z", re.IGNORECASE)  # fmt: skip
_LOG = re.compile(r"^[>\s]*(?:Received\b|X-[\w-]+:|Return-Path:)|\b[0-9]{2}:[0-9]{2}:[0-9]{2}\b|"
                  r"\b(?:e?smtps?a?d?|sshd|helo|ehlo|postfix|sendmail|exim|dovecot|nginx|fail2ban|rdns)\b",
                  re.IGNORECASE)  # fmt: skip
_ENTRY = re.compile(r"[ \t]- -[ \t]|[ \t]+(?:\S{1,40}[ \t]+){0,2}\[?(?:[0-9]{1,2}/[A-Z][a-z]{2}/[0-9]{4}|"
                    r"[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}|[A-Z][a-z]{2} [ 0-3][0-9] [0-9]{2}:[0-9]{2}:)"
                    )  # fmt: skip
_NEXT = re.compile(r"(?:[\s,;/|&'\"`()\[\]<>-]|=>|\b(?:and|or|und|et|y|e)\b(?=\s)){1,60}\Z")
_UP_TO = re.compile(r"['\"`)]*\s+(?:to|->|=>|bis|a|à)\s+['\"`(]*")
_LINE_ENDS = re.compile(r"[\s,;'\"`)\]]*(?:\n|\Z)")
_JOINED = re.compile(r"[+~_@]|-(?![0-9]{1,3}\.[0-9]{1,3}\.)[0-9A-Za-z]|\.[A-Za-z_*]")
_REVERSED = re.compile(r"\.in-addr\.arpa\b", re.IGNORECASE)
_SUFFIX = re.compile(r":[0-9]{2,5}\b|#[0-9]{2,5}\b| port [0-9]{1,5}\b|/(?:[89]|[12][0-9]|3[0-2])\b(?!/)")
_MAC = re.compile(r"(?:[0-9A-Fa-f]{2}:){5,7}[0-9A-Fa-f]{2}\Z")


def spans(text: str) -> list[tuple[int, int]]:
    """(start, end) of the addresses in a text."""
    found = list(_six(text))
    taken = {place for start, end in found if "." in text[start:end] for place in range(start, end)}
    return sorted([*found, *((start, end) for start, end in _four(text) if start not in taken)])


def _four(text: str) -> list[tuple[int, int]]:
    """Of those that no place tells, the ones that another place of the text does are taken, too."""
    found: list[tuple[int, int]] = []
    bare: list[tuple[int, int]] = []
    known: set[str] = set()
    last = version = -_BEFORE  # where the last address ended, a private one too, and the last version
    for match in _FOUR.finditer(text):
        start, end = match.span()
        numbers = _numbers(match[0])
        if numbers is None:
            continue
        if text.startswith(".in", end) and _REVERSED.match(text, end):
            if _is_public_four(".".join(match[0].split(".")[::-1])):
                found.append((start, end))
            continue
        upto = start - version < 12 and _UP_TO.fullmatch(text, version, start)
        told = False if upto else _is_address(text, start, end, numbers, last)
        public = _is_public_four(match[0])
        if told:
            last = end
        elif told is False:
            version = end
        if told and public:
            found.append((start, end))
            known.add(match[0])
        elif told is None and public:
            bare.append((start, end))
    return found + [(start, end) for start, end in bare if text[start:end] in known]


def is_syntax(quad: str) -> bool:
    """Whether four numbers of one to three digits with dots are an IPv4 address by its syntax."""
    return _numbers(quad) is not None


def _numbers(quad: str) -> list[int] | None:
    """The four numbers; null where they are no address by its syntax."""
    parts = quad.split(".")
    numbers = list(map(int, parts))
    return None if max(numbers) > 255 or any(part[0] == "0" < part[1:] for part in parts) else numbers


def _is_address(text: str, start: int, end: int, numbers: list[int], last: int) -> bool | None:
    """Whether four numbers are an address (false: a version) by what stands around them and by their size."""
    if _JOINED.match(text, end):
        return False
    before = text[max(0, start - _BEFORE) : start]
    near = before[-1:]
    told = _by_words(before)
    if told or (near in ("/", "@") and _URL.search(before)):
        return True
    if start - last <= 60 and _NEXT.match(text, last, start) and _is_next(text, last, start, end):
        return True
    if told is False or ((near.isspace() or near in _SIGNS) and _SIGN.search(before[-5:])):
        return False
    if max(numbers) > 99 or (min(numbers) > 9 and not _is_date(numbers)) or _has_suffix(text, start, end):
        return True
    return _by_place(text, start, end, before, numbers) or None


def _by_words(before: str) -> bool | None:
    """Whether the words before four numbers call them an address (true) or a version (false)."""
    backwards = before[::-1]
    at, links = 0, 0
    while match := _LAST.match(backwards, at):
        signs, word = set(match[1]), match[2][::-1].lower().strip("_")
        if not word:
            break
        pieces = {word, *re.split("[_-]", word)}
        if (not links and pieces & _VERSIONS) or any(piece.startswith(_VERSIONS_BEGIN) for piece in pieces):
            return None if signs & _NO_VERSION else False
        if word in _ADDRESSES or word.replace("-", "_").rpartition("_")[2] in _ADDRESSES:
            return None if signs & _NO_ADDRESS else True
        if word not in _LINKS or links == 3:
            break
        at, links = match.end(), links + 1
    return True if not before.isascii() and _DENSE.search(before) else None


def _is_next(text: str, last: int, start: int, end: int) -> bool:
    """Whether what stands behind an address goes on a list of them; on a new line it has that line for itself."""
    return "\n" not in text[last:start] or _LINE_ENDS.match(text, end) is not None


def _is_date(numbers: list[int]) -> bool:
    return numbers[1] <= 12 and (numbers[0] <= 31 or numbers[2] <= 31)


def _by_place(text: str, start: int, end: int, before: str, numbers: list[int]) -> bool:
    """Whether four small numbers stand where addresses do."""
    if _RECORD.search(before):
        return True
    near, then = before[-1:], text[end : end + 1]
    if near in ("[", "(") and then in ("]", ")"):
        return _HOST.search(before) is not None or _in_log(text, start, end)
    if near in ("", "\n") and then in (" ", "\t") and _ENTRY.match(text, end):
        return True
    words = before.split()
    if near.isspace() and words and words[-1].lower().strip("(,:") in _WEAK:
        return numbers[0] > _OVER or _in_log(text, start, end)
    return False


def _in_log(text: str, start: int, end: int) -> bool:
    """Whether a line is one of a log, or of the head of a mail."""
    low = text.rfind("\n", max(0, start - _AROUND), start) + 1 or max(0, start - _AROUND)
    high = text.find("\n", end, end + _AROUND)
    return _LOG.search(text[low : high if high >= 0 else end + _AROUND]) is not None


def _has_suffix(text: str, start: int, end: int) -> bool:
    """Whether a port follows, or the length of a prefix that the address has."""
    suffix = _SUFFIX.match(text, end)
    if suffix is None or suffix[0][0] != "/":
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


_MIXED = frozenset(n for n in range(256) if any(ipaddress.ip_network(f"{n}.0.0.0/8").overlaps(one) for one in _SPECIAL))


@lru_cache(1 << 12)
def _is_special(quad: str) -> bool:
    address = ipaddress.IPv4Address(quad)
    return any(address in network for network in _SPECIAL)


def _is_public_four(quad: str) -> bool:
    return int(quad.partition(".")[0]) not in _MIXED or not _is_special(quad)


def is_public(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> bool:
    """Whether a host on the public Internet may have the address."""
    if isinstance(address, ipaddress.IPv4Address):
        return _is_public_four(str(address))
    if any(address in network for network in _MAPPED):
        return is_public(ipaddress.IPv4Address(int(address) & 0xFFFFFFFF))
    return address in _GIVEN_OUT and not any(address in network for network in _SPECIAL_6)
