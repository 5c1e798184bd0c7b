"""Junk of many kinds, as crawls bring it home, for filters to fire on: made, not gathered, and the same every time."""

import base64
import random
from collections.abc import Callable

ENGLISH = "shop sale best cheap shoes online free shipping order today offer price home bag luxury watch deal new"
GERMAN = "Schuhe günstig kaufen Angebot Größe für Männer täglich neue Taschen über Preis Käufer schön"
RUSSIAN = "купить обувь дешево онлайн скидка доставка сегодня новая цена сумка часы дом лучший"
WORDS = {"en": ENGLISH.split(), "de": GERMAN.split(), "ru": RUSSIAN.split()}
HAN = "买好鞋店新品优惠包邮今天下单价格便宜时尚名牌手表家居特卖促销限时抢购正品保证"
FOREST_IN_FRENCH = (
    "La forêt était déjà très sombre à l'été où nous sommes allés là-bas, et personne ne s'en est étonné. "
)
SEA_IN_RUSSIAN = "Каждую осень мы ездили к морю, и каждую осень оно было другим, а мы думали, что это мы изменились. "
SEA_IN_CHINESE = "每年秋天我们都去海边，海每年都不一样，我们却以为变的是自己。"
NEAR_EMPTY = [
    "Loading...",
    "404 Not Found",
    "Sold out, sorry, try again",
    "Moved Permanently\n\nThe document has moved here.",
    "Access denied",
    "Test Case 1\n\nTest Case 2",
    "页面不存在",
    "Страница не найдена",
    "Under construction",
]


def _sentence(r: random.Random, lang: str) -> str:
    if lang == "zh":
        return "".join(r.choices(HAN, k=r.randint(8, 20))) + "。"
    return " ".join(r.choices(WORDS[lang], k=r.randint(6, 14))).capitalize() + ". "


def _spam(r: random.Random) -> str:
    return _sentence(r, r.choice(["en", "de", "ru", "zh"])) * r.randint(15, 60)


def _repeated_lines(r: random.Random) -> str:
    lines = [_sentence(r, "en").strip() for _ in range(3)]
    return "\n".join(r.choice(lines) for _ in range(r.randint(30, 80)))


def _cries(r: random.Random) -> str:
    cry = " ".join(r.sample(WORDS[r.choice(["en", "de", "ru"])], r.randint(2, 4)))
    return f"{cry}! " * r.randint(10, 100)


def _repeated_paragraphs(r: random.Random) -> str:
    paragraphs = ["\n".join(_sentence(r, r.choice(["en", "ru", "zh"])).strip() for _ in range(3)) for _ in range(3)]
    return "\n\n".join(paragraphs * r.randint(2, 6))


def _keywords(r: random.Random) -> str:
    first, second = r.sample(WORDS[r.choice(["en", "de", "ru"])], 2)
    return ", ".join(f"{r.choice([first, second])} {other}" for other in r.choices(WORDS["en"], k=r.randint(40, 150)))


def _menu(r: random.Random) -> str:
    items = [
        "Home",
        "About us",
        "Contact",
        "Login",
        "Register",
        "Cart (0)",
        "Search",
        "Help",
        "FAQ",
        "Terms",
        "Privacy",
    ]
    return "\n".join(r.sample(items, 8) * r.randint(2, 6))


def _lost_letters(r: random.Random) -> str:
    text = r.choice(
        [FOREST_IN_FRENCH.encode("cp1252"), SEA_IN_RUSSIAN.encode("cp1251"), SEA_IN_CHINESE.encode("gb18030")]
    )
    return text.decode("utf-8", "replace") * r.randint(1, 3) + _sentence(r, "en")


def _misread(r: random.Random) -> str:
    return r.choice([SEA_IN_RUSSIAN, SEA_IN_CHINESE]).encode().decode("latin-1") + _sentence(r, "en")


def _binary(r: random.Random) -> str:
    return "".join(chr(r.choice([*range(9), *range(14, 127)])) for _ in range(r.randint(200, 2000)))


def _symbols(r: random.Random) -> str:
    return "".join(r.choices("!@$%^&*()_+|~-=\\`{}[]:;<>?,./★☆♥•─═ ab1", k=r.randint(100, 1000)))


def _rulers(r: random.Random) -> str:
    return "\n".join(r.choice("-=*_~") * 60 + f"\n| {_sentence(r, 'en')[:20]:56} |" for _ in range(r.randint(4, 12)))


def _base64(r: random.Random) -> str:
    return base64.encodebytes(r.randbytes(r.randint(200, 3000))).decode()


def _hex_dump(r: random.Random) -> str:
    return "\n".join(r.randbytes(16).hex(" ") for _ in range(r.randint(10, 60)))


def _escapes(r: random.Random) -> str:
    return "".join(f"\\u{ord(c):04x}" for c in r.choices(HAN, k=r.randint(40, 400)))


def _long_hashes(r: random.Random) -> str:
    return "\n".join(f"{r.randbytes(32).hex()}  {r.choice(WORDS['en'])}.zip" for _ in range(r.randint(12, 60)))


def _numbers(r: random.Random) -> str:
    return "\n".join("\t".join(f"{r.uniform(0, 999):.3f}" for _ in range(6)) for _ in range(r.randint(10, 80)))


def _log(r: random.Random) -> str:
    return "\n".join(
        f"2024-03-{r.randint(1, 28):02} 12:{r.randint(0, 59):02}:{r.randint(0, 59):02},{r.randint(0, 999):03} "
        f"10.0.{r.randint(0, 255)}.{r.randint(0, 255)} INFO GET /item/{r.randint(1, 99999)} 200 {r.randint(1, 9999)}"
        for _ in range(r.randint(20, 80))
    )


def _near_empty(r: random.Random) -> str:
    return r.choice(NEAR_EMPTY)


def _hashtags(r: random.Random) -> str:
    return " ".join("#" + r.choice(WORDS[r.choice(["en", "ru"])]) for _ in range(r.randint(15, 60)))


def _headings(r: random.Random) -> str:
    return "\n".join(f"{'#' * r.randint(2, 6)} {r.choice(WORDS['en'])} {r.choice(WORDS['de'])}" for _ in range(20))


def _bullets(r: random.Random) -> str:
    return "\n".join(f"{r.choice('-•')} {' '.join(r.choices(WORDS['de'], k=3))}" for _ in range(r.randint(10, 40)))


def _teasers(r: random.Random) -> str:
    dots = r.choice(["...", "…"])
    return "\n".join(" ".join(r.choices(WORDS["en"], k=4)) + dots for _ in range(r.randint(10, 40)))


def _leaders(r: random.Random) -> str:
    return "\n".join(f"{r.choice(WORDS['en'])} {'.' * r.randint(20, 50)} {i}" for i in range(r.randint(10, 40)))


def _upright(r: random.Random) -> str:
    return "\n".join(r.choices(HAN + "abc123", k=r.randint(30, 200)))


KINDS: dict[str, Callable[[random.Random], str]] = {
    "a sentence again and again": _spam,
    "three lines again and again": _repeated_lines,
    "a cry again and again": _cries,
    "three paragraphs again and again": _repeated_paragraphs,
    "keyword lists": _keywords,
    "menus": _menu,
    "letters lost in decoding": _lost_letters,
    "UTF-8 read as Latin-1": _misread,
    "binary": _binary,
    "symbols": _symbols,
    "rulers and frames": _rulers,
    "base64": _base64,
    "hexadecimal dumps": _hex_dump,
    "escapes": _escapes,
    "checksums": _long_hashes,
    "tables of numbers": _numbers,
    "log lines": _log,
    "near-empty pages": _near_empty,
    "hashtags": _hashtags,
    "headings without text": _headings,
    "lists of links": _bullets,
    "teasers": _teasers,
    "dot leaders": _leaders,
    "one character a line": _upright,
}

CAUGHT = {"keyword lists": 0.0}  # what share of a kind quality_units catches at least, where that is not all


def documents(kind: str, count: int) -> list[str]:
    """`count` documents of a kind."""
    r = random.Random(kind)
    return [KINDS[kind](r) for _ in range(count)]
