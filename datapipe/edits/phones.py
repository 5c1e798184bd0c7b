"""
Telephone numbers in a text.

The package phonenumbers, the maintained port of Google's libphonenumber, says which numbers there are; what stands
here says which digits are worth asking about.  A number is
* international: `+` and a country's code, any grouping, every country; `00` in its place where groups are separated;
* national, in the ways that ten countries write them, with separators (_FORMS): US and CA, GB, DE, FR, ES, IT, BR, CN,
  JP, IN;
* any digits that are a number in one of the ten, behind a word that says so: tel, phone, call us, fax, 電話 ...
An extension behind it (ext. 12, x12) goes with it.  Digits may be full-width, Arabic-Indic or Devanagari.

What stays:
* bare digits without `+` and without such a word: identifiers, epoch seconds, hashes, and mobile numbers too;
* numbers that the country never gave out, and local ones without an area code (555-0123);
* digits that are part of something longer (1-2-3-4-5, a UUID, a card number), that stand among other numbers (a table,
  pi in groups of five) or in a URL, and dates, prices, ranges of years, versions: no form has them;
* four numbers with dots that are an IPv4 address, whatever stands before them;
* what a word before calls otherwise: ISBN, ISSN, DOI, RFC, bug, page, version, order, account ...; but an area code in
  parentheses says more than such a word: second line (212) 736-5000;
* groups of three parted by blanks or dots (612 345 678), which Spain has in common with any large number, and five
  and five digits with a dash, which India has in common with ranges of pages: unless a word stands before them.
"""

import itertools
import re
from collections.abc import Iterator
from functools import cache, lru_cache
from typing import Any

from datapipe.edits.addresses import is_syntax

_ZEROS = "0\u0660\u06f0\u0966\uff10"
_DIGIT = "".join(f"{zero}-{chr(ord(zero) + 9)}" for zero in _ZEROS)
_BLANKS, _DASHES, _DOTS = " \u00a0\u2009\u202f\u3000", "-\u2010\u2011\u2012\u2013\u2014\u2212\uff0d\u30fc", ".\uff0e"
_BETWEEN = f"/(){_BLANKS}{_DOTS}\uff08\uff09{_DASHES[1:]}-"
# one character for one, so that places stay
_ASCII = str.maketrans({chr(ord(zero) + n): str(n) for zero in _ZEROS for n in range(10)}
                       | dict.fromkeys(_BLANKS, " ") | dict.fromkeys(_DASHES, "-")
                       | {"\uff08": "(", "\uff09": ")", "\uff0e": ".", "\uff0b": "+"})  # fmt: skip


def _re2(characters: str) -> str:
    """What stands in a class of characters, in RE2's spelling."""
    return "".join(c if c == "-" and at else f"\\x{{{ord(c):x}}}" for at, c in enumerate(characters))


# RE2: what may be a number with separators or a plus sign, and any digits with a word before them on the same line
_D = "[" + "".join(f"\\x{{{ord(zero):x}}}-\\x{{{ord(zero) + 9:x}}}" for zero in _ZEROS) + "]"
_MORE = f"(?:[{_re2(_BETWEEN)}]{{0,3}}{_D})"
_THEN = f"[{_re2(_BETWEEN)}]{{1,3}}{_D}{_MORE}"
CANDIDATES = (
    rf"[+\x{{ff0b}}] ?\(?{_D}{_MORE}{{6}}|{_D}{_THEN}{{5}}|{_D}{{3}}{_THEN}{{5}}|"
    rf"{_D}{{4}}{_THEN}{{4}}|{_D}{{5}}{_THEN}{{3}}|"
    r"(?i:t[eé]l|phone|\bph\b|fax|faks|\bfon\b|mob|m[oó]vil|cel|port|handy|whatsapp|sms|line|free|rufnummer|contact|call|"
    r"dial|ring|text|reach|wa\.me|電話|电话|手机|手機|傳真|传真|携帯|ファ|联系|热线|熱線|फ|मो|전화|тел|هاتف)"
    rf"[^\n0-9]*{_D}{_MORE}{{6}}"
)

_RUN = re.compile(rf"[{_DIGIT}](?:[{_BETWEEN}]{{0,3}}[{_DIGIT}]){{6,}}")
_SPLIT = re.compile(r"[ ]{2,}|[ ]*/[ ]*|[ ]-[ ]+|[ ](?=\()")
_ENOUGH, _MOST = 7, 15  # digits
_LONGEST = 4 * (_MOST + 3)  # characters that hold more digits than a number has: what lies behind cannot matter

# ways to write a national number, by country; \1 repeats a separator
_DE_AREA = r"0(?:[2-9]\d{1,4}|1[567]\d{1,2})"
_FORMS = {
    "US": (
        r"(?:1[ .-]?)?\(\d{3}\)[ .-]?\d{3}[ .-]?\d{4}",
        r"(?:1[.-])?\d{3}([.-])\d{3}\1\d{4}",
        r"(?:1[ -])?\d{3}[ /-]\d{3}[ -]\d{4}",
    ),
    "GB": (
        r"(?:\(0\d{2,4}\) ?|0\d{2,4}[ -])\d{3,4}[ -]\d{3,4}",
        r"(?:\(0\d{3,4}\) ?|0\d{3,4}[ -])\d{5,6}",
    ),
    "DE": (rf"(?:\({_DE_AREA}\) ?|{_DE_AREA}(?:[ -]| ?/ ?))\d{{2,9}}(?:[ -]\d{{1,5}}){{0,4}}",),
    "FR": (r"0[1-9]([ .-])\d{2}(?:\1\d{2}){3}",),
    "ES": (
        r"[6-9]\d{2}([ .-])\d{2}\1\d{2}\1\d{2}",
        r"9\d[ .-]\d{3}[ .-]\d{2}[ .-]\d{2}",
        r"[6-9]\d{2}-\d{3}-\d{3}",
    ),
    "IT": (
        r"0\d{1,3}[ /.-]\d{5,8}",
        r"0\d{1,3} \d{3,4} \d{3,4}",
        r"3\d{2}[ /-]\d{6,7}",
        r"3\d{2}([ .-])\d{3}\1\d{4}",
        r"3\d{2} \d{2} \d{2} \d{3}",
    ),
    "BR": (r"\(0?\d{2}\) ?9?[ .]?\d{4}[ .-]\d{4}", r"0?\d{2} 9[ .]?\d{4}-\d{4}"),
    "CN": (
        r"(?:\(0\d{2,3}\)[ -]?|0\d{2,3}[ -])\d{4}[ -]?\d{3,4}",
        r"1[3-9]\d([ -])\d{4}\1\d{4}",
        r"400-(?:\d{3}-\d{4}|\d{4}-\d{3})",
    ),
    "JP": (
        r"0\d{1,4}-\d{1,4}-\d{3,4}",
        r"\(0\d{1,4}\) ?\d{1,4}-\d{4}",
        r"0\d{1,4}\(\d{1,4}\)\d{4}",
        r"0\d{1,3} \d{3,4} \d{4}",
    ),
    "IN": (r"0?[6-9]\d{4} \d{5}", r"(?:\(0\d{2,4}\) ?|0\d{2,4}[ -])(?:\d{6,8}|\d{3,4}[ -]\d{4})"),
}
_PATTERNS = tuple((region, re.compile(form)) for region, forms in _FORMS.items() for form in forms)

# postal codes of the north-east of the US; modes of files
_NEITHER = re.compile(r"0\d{4}-\d{4}|0\d{3}(?: 0\d{3})+")
_DATE = re.compile(r"(?:19|20)\d\d([-/. ])\d\d?\1\d\d?(?!\d)|\d\d?([-/.])\d\d?\2(?:19|20)\d\d(?!\d)")

_BEFORE = 40  # characters before a number that may say what it is
_SAYS_PHONE = re.compile(
    r"(?:\b(?:tel|tél|ph|telephones?|telefon\w*|teléfonos?|telefones?|téléphones?|telefoni|phones?|fax|faks|telefax|mobiles?|"
    r"mob|mobil|móvil|celular|cellulare|cell|cel|portable|handy|whatsapp|sms|hotline|helpline|toll[ -]?free|fon|"
    r"rufnummer|contact|(?:call|dial|ring|text|reach)(?= +(?:me|us|him|her|them|at|on|now|today)\b|:))\b"
    r"[ .:()#=\"'\[\]/*>-]{0,5}(?:\b(?:nos?|nr|num|numbers?|numéro|nummer|me|us|him|her|them|at|on|now|today|is|to|are|"
    r"office|home|work|cell|mobile|direct|day|evening|and|or|uk|usa?|tel|phone|fax)\b[ .:()#=\"'\[\]/*>-]{0,5}){0,4}"
    r"|(?:電話|电话|手机|手機|傳真|传真|携帯|ファックス|ファクス|联系方式|热线|熱線|फ़ोन|फोन|मोबाइल|전화|тел|هاتف)"
    r"(?:番号|号码|號碼)?[ .:()：（は是]{0,3})\Z",
    re.IGNORECASE,
)
# a piece of every word there, cheap to look for: few runs stand behind one
_HINTS = (
    "tel", "tél", "ph", "fax", "faks", "mob", "móv", "cel", "portable", "handy", "whats", "sms", "line", "free", "fon",
    "ruf", "cont", "call", "dial", "ring", "text", "reach", "wa.me", "電", "电", "手", "傳", "传", "携", "ファ", "联",
    "热", "熱", "फ", "मो", "전화", "те", "هاتف",
)  # fmt: skip
_OTHER_WORDS = """
isbn issn doi rfc ver version v bug bugs issue issues id ids no nr num article art sku serial order orders ref reference
uuid guid card account acct kto konto iban vat ust tax ein ssn patent patents pat case docket lot part parts model pmid
pmcid arxiv zip plz port ports page pages line lines vol volume section figure fig table eq step size offset address
seed hash commit md5 invoice tracking ticket ean upc gtin asin oclc lccn cas range from between chapter build release
copyright pin pins swift bic routing license licence product item
"""
_SAYS_OTHERWISE = frozenset(_OTHER_WORDS.split())
_BEGIN_OTHERWISE = re.compile(r"sha[0-9]*\Z|version|catalog|\w*_id\Z|pp?\Z")
_LAST = re.compile(r"([ .:#=\"'(\[-]{0,4})(\w*)")  # backwards from a number: signs, a word
_SIGN = re.compile(r"[$€£¥₹#№§©±≈]\s?\Z")
_MONEY = re.compile(r"[$€£¥₹]\s?\Z")
_AREA = re.compile(r"(?:1[ .-]?)?\(")
_POSTAL = re.compile(r"[0-9]{3}-[0-9]{4} +(?=0[0-9])")  # of Japan, with a number behind it
_QUAD = re.compile(r"(?<![0-9.])[0-9]{1,3}(?:\.[0-9]{1,3}){3}(?!\.?[0-9])")
_PLUS = re.compile(r"[+\uff0b](?:(?<=\+) )?\Z")
_URL = re.compile(r"(?:://|www\.|[?&]\w+=)[^\s\"'<>]*\Z")
_CHAT = re.compile(r"(?:wa\.me/|phone=|tel:)\+?\Z", re.IGNORECASE)
_TOUCHES = re.compile(r"(?:[0-9A-Za-z_\u00c0-\u024f][-/~*^]?|[0-9A-Za-z_\u00c0-\u024f]\.|[0-9][:,]|[-/\\=<*^~_%+@&])\Z")
_RUNS_ON = re.compile(r"[0-9A-Za-z_\u00c0-\u024f%°]|[-~*^/\\@=][0-9A-Za-z_(]|[.,:][0-9]|-[>]| ?[=*^×] ?[0-9]")
_EXTENSION = re.compile(
    r",?[ ]?(?:ext(?:ension|n)?\.?|x|durchwahl|poste|ramal|内線|分机|转)[ .:]{0,2}[0-9]{1,6}(?![0-9])", re.IGNORECASE
)


def spans(text: str) -> list[tuple[int, int]]:
    """(start, end) of the numbers in a text."""
    found: list[tuple[int, int]] = []
    for run in _RUN.finditer(text):
        first = run.start()
        if first and text[first - 1] in "(\uff08":
            first -= 1
        for start, end in _between_quads(text, first, run.end()):
            extension = _EXTENSION.match(text, end)
            found.append((start, extension.end() if extension else end))
    return found


def _between_quads(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    """The numbers in a run, which is parted where an IPv4 address stands in it."""
    if text.count(".", start, end) > 2:
        for quad in _QUAD.finditer(text, start, end):
            if quad.start() >= start and is_syntax(quad[0]):
                yield from _numbers(text, start, quad.start())
                start = quad.end()
    yield from _numbers(text, start, end)


def _numbers(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    """The numbers in a run of digits and what may stand between them."""
    while start < end and not (text[start].isdecimal() or text[start] in "(\uff08"):
        start += 1
    while end > start and not text[end - 1].isdecimal():
        end -= 1
    run = text[start:end].translate(_ASCII)
    if postal := _POSTAL.match(run):
        rest = start + postal.end()
        if _is_national(run[postal.end() :]) and _stands_alone(text, rest, end):
            yield rest, end
            return
    sign = _PLUS.search(text, max(0, start - 2), start)
    if sign:
        plus = sign.start()
        if (size := _international(run)) and not _glued(text, plus):
            if not _RUNS_ON.match(text, start + size):
                yield plus, start + size
            return
    before = text[max(0, start - _BEFORE) : start]
    if _is_told(before):
        if size := _told(run):
            yield start, start + size
            return
    elif sign:
        return
    alone = [(start, end)] if _is_national(run) and _stands_alone(text, start, end) else _pieces(text, start, run)
    if alone and not _in_url(before):
        words = "" if _AREA.match(run) and not _MONEY.search(before) else before
        if not _is_otherwise(words) or _is_told(words):
            yield from alone


def _in_url(before: str) -> bool:
    return ("www." in before or "=" in before or "://" in before) and _URL.search(before) is not None


def _is_otherwise(before: str) -> bool:
    """Whether a word or a sign before a number says that it is something else."""
    signs, word = _backwards(before)
    if word in _SAYS_OTHERWISE or (word and _BEGIN_OTHERWISE.match(word)):
        return not word.startswith("p") or word in _SAYS_OTHERWISE or "." in signs
    return _SIGN.search(before[-2:]) is not None


def _backwards(before: str) -> tuple[str, str]:
    """The signs right before a number, and the word before them in lower case."""
    last = _LAST.match(before[::-1])
    assert last is not None, "both may be empty"
    return last[1], last[2][::-1].lower()


def _is_told(before: str) -> bool:
    """Whether a word before a number says that it is one."""
    low = before.lower()
    if not any(hint in low for hint in _HINTS):
        return False
    return bool(_CHAT.search(before) or (_SAYS_PHONE.search(before) and not _in_url(before)))


def _pieces(text: str, start: int, run: str) -> list[tuple[int, int]]:
    """Numbers that are parts of a run, such as two with a stroke between them; among other digits they are none."""
    borders = [0, *(at for match in _SPLIT.finditer(run) for at in match.span()), len(run)]
    pieces = [(low, high) for low, high in zip(borders[::2], borders[1::2], strict=True) if high > low]
    if len(pieces) < 2:
        return []
    numbers = [
        (start + low, start + high)
        for low, high in pieces
        if _is_national(run[low:high]) and _stands_alone(text, start + low, start + high, inside=True)
    ]
    digits = sum(any(c.isdigit() for c in run[low:high]) for low, high in pieces)
    return numbers if 2 * len(numbers) >= digits else []


def _glued(text: str, plus: int) -> bool:
    """Whether a plus sign adds something to what stands before it."""
    return (
        plus > 0
        and (text[plus - 1].isalnum() or text[plus - 1] in "_)]+$")
        and not _CHAT.search(text[max(0, plus - 20) : plus])
    )


def _stands_alone(text: str, start: int, end: int, *, inside: bool = False) -> bool:
    if _RUNS_ON.match(text, end) and not inside and not _EXTENSION.match(text, end):
        return False
    return inside or _TOUCHES.search(text[max(0, start - 2) : start]) is None


def _international(run: str) -> int:
    """How many characters of a run are the number that begins with a plus sign; 0 where there is none."""
    return next((size for size in _sizes(run) if _valid("+" + run[:size], None)), 0)


def _told(run: str) -> int:
    """How many characters of a run are a number of any of the ten countries."""
    if _DATE.match(run):
        return 0
    return next((size for size in _sizes(run) if any(_valid(run[:size], region) for region in _FORMS)), 0)


def _sizes(run: str) -> Iterator[int]:
    """The run whole, and without its last groups, as long as it may be a number."""
    size = min(len(run), _LONGEST)
    while size:
        digits = sum(c.isdigit() for c in run[:size])
        if digits < _ENOUGH:
            return
        if digits <= _MOST + 2:
            yield size
        body = run[:size].rstrip("0123456789")
        size = len(body.rstrip(" ./()-"))


def _is_national(run: str) -> bool:
    """Whether a run is a number as one of the ten countries writes it, or one that begins with 00."""
    digits = [c for c in run if c.isdigit()]
    if not 9 <= len(digits) <= _MOST or len(set(digits)) < 3 or _NEITHER.fullmatch(run) or _counts(run):
        return False
    if run.startswith("00"):
        return len(digits) > 10 and run != "".join(digits) and _valid("+" + run[2:].lstrip(" -/.("), None)
    return any(form.fullmatch(run) is not None and _valid(run, region) for region, form in _PATTERNS)


def _counts(run: str) -> bool:
    """Whether the groups go up or down in even steps: 01 02 03 04 05."""
    groups = [int(group) for group in re.findall(r"\d+", run)]
    steps = {b - a for a, b in itertools.pairwise(groups)}
    return len(groups) > 3 and len(steps) == 1


@cache
def _phonenumbers() -> Any:
    import phonenumbers  # 30 MB of metadata: only a source that redacts pays for them

    return phonenumbers


def _valid(number: str, region: str | None) -> bool:
    """Whether a number has been given out in a region (null: in the country that it names)."""
    return _is_given_out("".join(c for c in number if c.isdigit() or c == "+"), region)


@lru_cache(1 << 12)
def _is_given_out(number: str, region: str | None) -> bool:
    library = _phonenumbers()
    try:
        parsed = library.parse(number, region)
    except library.NumberParseException:
        return False
    if region is None:
        return library.is_valid_number(parsed)
    return library.is_valid_number_for_region(parsed, region) or (
        region == "US" and library.is_valid_number_for_region(parsed, "CA")
    )
