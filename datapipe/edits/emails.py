"""
E-mail addresses in a text.

An address is a local part, `@`, and a domain of two labels or more that ends in letters.  Both may be of any script;
plus tags, quoted local parts ("john doe"@example.org), VERP (bounce+joe=example.org@example.net), address literals
(joe@[192.0.2.1]) and sets ({joe,ann}@example.org) are known, and `%40` and `&#64;` are an `@` too.  `mailto:`, angle
brackets and the full stop of a sentence stay.  Between letters of a script without blanks only the ASCII part goes.

Obfuscated ones go where brackets or a written dot give them away: `joe [at] example.org`, `joe(at)example(dot)org`,
`joe at example dot org`; `joe at example.org` stays, for "we met at example.org" looks like it.

What looks alike and stays:
* what has nothing before the `@`, or another `@`: decorators, handles (@joe, @joe@social.example), Matrix names,
  instance variables, scoped packages;
* domains of one label (user@localhost, a@b, 10@5), and those that end in no letters (pkg@1.2.3, image@sha256:...);
* file names and units (foo@2x.png, getty@tty1.service), and attributes of a matrix product (a@b.T, w@x.shape);
* git@, hg@, svn@: a login that everybody shares (git@example.org:path).
A message id and a login (joe@host.example.org:path) have the form of an address, often are one, and go.
"""

import re
from collections.abc import Iterator

CANDIDATES = (
    r"[^\s@()<>\[\]{,;:](?:[@\x{ff20}]|%40|&#64;|&#x40;)[^\s@().,;:!?]|"
    r"(?i:[^\s] ?[\[({<] ?at ?[\])}>]|[^\s] at [^\s]+ dot [a-z])"
)
# Letters, marks and digits by blocks: \w differs between versions of Python.  _DENSE: scripts that write no blanks
_LETTER = (
    "A-Za-z\u00aa\u00b5\u00ba\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u02c1"
    "\u0300-\u037d\u0386-\u0dff\u0f00-\u0fff\u10a0-\u177f\u1800-\u1fff"
)
_DENSE = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u2e80-\u2fdf\u3005-\u3007\u3040-\ud7ff\uf900-\ufaff"
    "\uff10-\uff19\uff21-\uff3a\uff41-\uff5a\uff66-\uffdc\U00020000-\U0003ffff"
)
_WORD = f"0-9{_LETTER}"
_ATOM = "_+%&~$!#^*-"  # what RFC 5322 allows beside them, but for what more often stands around an address

_AT = re.compile(r"[@\uff20%&](?:(?<=[@\uff20])|(?<=%)40|(?<=&)#(?:64|x40);)")
_LONGEST = 100  # characters of a local part; RFC 5321 allows 64
_LOCAL = re.compile(
    rf'(?:(?<!["\w])"[^"\n@]{{1,64}}"'
    rf"|[0-9A-Za-z][0-9A-Za-z.]*[+-][0-9A-Za-z.+-]*=[{_WORD}][{_WORD}.{_ATOM}]*"
    rf"|[{_WORD}_+][{_WORD}.{_ATOM}]*(?:'[{_LETTER}][{_WORD}.{_ATOM}]*)*"
    rf"|[{_WORD}{_DENSE}][{_WORD}{_DENSE}.{_ATOM}]*[{_DENSE}]"
    rf"|\{{[{_WORD}][{_WORD}.,;|_ -]{{1,80}}\}})\Z"
)
_NEAR = re.compile(rf"[{_WORD}{_DENSE}.'={_ATOM}]*")  # of the characters before an `@`, from right to left
_LABEL = rf"[{_WORD}](?:[{_WORD}-]{{0,61}}[{_WORD}])?"
_LITERAL = r"\[(?:[0-9]{1,3}(?:\.[0-9]{1,3}){3}|IPv6:[0-9A-Fa-f:.]{2,45})\]"
_DENSE_LABEL = rf"[{_WORD}{_DENSE}](?:[{_WORD}{_DENSE}-]{{0,61}}[{_WORD}{_DENSE}])?"
_DENSE_ENDS = (
    "中国|中國|公司|网络|網絡|网址|网站|商城|在线|中文网|网店|集团|我爱你|政务|公益|机构|组织机构|佛山|广东|香港|台湾|"
    "台灣|新加坡|澳門|商店|商标|企业|娱乐|游戏|移动|世界|みんな|ストア|セール|クラウド|ファッション|コム|한국|삼성|닷컴|닷넷|ไทย|คอม"
)
_DOMAIN = re.compile(
    rf"{_LITERAL}|(?:{_LABEL}\.)+(?:xn--[0-9A-Za-z-]{{2,59}}|[{_LETTER}]{{2,24}})(?![{_WORD}])"
    rf"|(?:{_DENSE_LABEL}[.。．])+(?:{_DENSE_ENDS}|[A-Za-z]{{2,24}}(?![{_WORD}]))"
)
_FILES = """
png jpg jpeg gif svg webp ico bmp tif tiff pdf ps eps js mjs cjs jsx ts tsx css scss less html htm xhtml php rb py pyc
pyi ipynb go java class jar cpp hpp hxx cxx cs swift kt scala lua bash zsh bat json yaml yml toml xml csv tsv txt rst
log ini cfg conf lock zip gz tgz bz2 xz tar deb rpm whl exe dll so dylib mp3 mp4 wav ogg avi mov ttf otf woff woff2 eot
tex bib patch diff map min bin dat db sql sqlite
"""
_UNITS = "service socket timer target mount automount slice scope device path swap"  # of systemd
_ATTRIBUTES = """
shape size dtype ndim real imag flat conj inv dot transpose reshape values value data item items keys length type mean
sum max std var astype copy numpy tolist weight bias grad text prototype constructor alpha beta rc post snapshot final
release next latest self this super cls
"""
_NO_DOMAINS = frozenset(f"{_FILES} {_UNITS} {_ATTRIBUTES}".split())
_COUNTRIES = frozenset({"py", "ps", "so", "zip"})  # ends that a longer domain may have
_SHARED = frozenset({"git", "hg", "svn", "cvs", "anonymous", "anoncvs"})
_RELEASE = re.compile(r"v?[0-9]+(?:\.[0-9]+)+\.", re.IGNORECASE)

_BRACKETED_AT = re.compile(r"[\[({<] ?[Aa][Tt] ?[\])}>] ?")
_SPOKEN_AT = re.compile(r" [Aa][Tt] (?=\S+ [Dd][Oo][Tt] )")
_WRITTEN_LOCAL = re.compile(rf"[{_WORD}][{_WORD}._+-]* ?\Z")
_WRITTEN_DOT = r"(?:\.| ?[\[({<] ?(?:dot|\.|punkt) ?[\])}>] ?| dot )"
_WRITTEN_DOMAIN = re.compile(rf"(?:{_LABEL}{_WRITTEN_DOT})+(?P<end>[A-Za-z]{{2,12}})(?![{_WORD}])", re.IGNORECASE)
_SPOKEN = """
com org net edu gov mil int info biz io ac co me ai app dev us uk de fr es it ch at nl be se no dk fi pl cz hu ru ua tr
br mx ar ca au nz jp cn kr in tw hk sg za pt gr ie eu il
"""
_SPOKEN_ENDS = frozenset(_SPOKEN.split())
_ARTICLES = frozenset({"the", "a", "an", "this", "that", "these", "each", "every", "one", "some", "any", "all"})


def spans(text: str) -> list[tuple[int, int]]:
    """(start, end) of the addresses in a text."""
    found: list[tuple[int, int]] = []
    last = 0
    for start, end in sorted([*_plain(text), *_written(text)]):
        if start >= last:
            found.append((start, end))
            last = end
    return found


def _plain(text: str) -> Iterator[tuple[int, int]]:
    last = 0
    for at in _AT.finditer(text):
        domain = _DOMAIN.match(text, at.end())
        if domain is None:
            continue
        low = max(last, at.start() - _LONGEST)
        if text[at.start() - 1 : at.start()] not in ('"', "}"):
            near = _NEAR.match(text[low : at.start()][::-1])
            low = at.start() - (near.end() if near else 0)
        local = _LOCAL.search(text[low : at.start()])
        if local is None or not _is_domain(domain[0]) or local[0].lower() in _SHARED:
            continue
        start = low + local.start()
        if start and text[start - 1] == "@" and not (start > 1 and text[start - 2].isalnum()):
            continue  # @joe@social.example
        last = domain.end()
        yield start, last


def _is_domain(domain: str) -> bool:
    end = domain.rpartition(".")[2].lower()
    if end in _NO_DOMAINS and not (end in _COUNTRIES and domain.count(".") > 1):
        return False
    return _RELEASE.match(domain) is None


def _written(text: str) -> Iterator[tuple[int, int]]:
    """Addresses with a written `at`."""
    last = 0
    spoken_too = any(dot in text for dot in (" dot ", " DOT ", " Dot "))
    found = [*_BRACKETED_AT.finditer(text), *(_SPOKEN_AT.finditer(text) if spoken_too else ())]
    for at in sorted(found, key=re.Match.start):
        domain = _WRITTEN_DOMAIN.match(text, at.end())
        low = max(last, at.start() - _LONGEST)
        local = _WRITTEN_LOCAL.search(text[low : at.start()])
        if domain is None or local is None:
            continue
        end = domain["end"].lower()
        if at[0].lower() != " at ":
            is_address = _is_domain(f"a.{end}")
        else:
            is_address = end in _SPOKEN_ENDS and domain[0].split(None, 1)[0].lower() not in _ARTICLES
        if is_address:
            last = domain.end()
            yield low + local.start(), last
