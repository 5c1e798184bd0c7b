"""URL rules and word rules by lists: what an address is, what a list may hold, who leaves and why."""

import gzip
import random
import re
import unicodedata
from pathlib import Path

import builders
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reading import lines, load

from datapipe import lists, pipeline, stages, urls
from datapipe.documents import Documents, Work
from datapipe.edits.redact import pseudonym, redactions
from datapipe.errors import ManifestError
from datapipe.keyed import bound, keyed, text_id
from datapipe.stages.matching import WORDS, Matcher

BY = redactions(("redact_email", "redact_ip", "redact_phone"))


@pytest.fixture
def work(tmp_path):
    with Work(tmp_path, "made", workers=2, memory=200_000_000) as made:
        yield made


def judged(work: Work, folder: Path, files: dict[str, str], stage: dict, records: list[dict]) -> Documents:
    """The documents of `records` after one stage whose lists are `files`."""
    for name, data in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(data, encoding="utf-8")
    manifest = load(folder, {"web": {"files": ["x"], "extra": ["url"], "fields": {"lang": "l"}}}, stages=[stage])
    docs = builders.documents(work, records, parts=2, row_group=max(3, len(records) // 5))
    docs.lists = lists.check(manifest)
    docs.apply(stage["stage"], 1, stages.judge(manifest.stages[0], docs))
    return docs


# --- what an address is ----------------------------------------------------------------------------------------

# URL: host, registered domains, form in which it is compared
ADDRESSES = {
    "http://www.Example.CO.UK:8080/a/?q=1#x": (
        "www.example.co.uk", ("example.co.uk",), "www.example.co.uk/a/?q=1"),
    "https://user:pw@host.com./": ("host.com", ("host.com",), "host.com"),
    "http://user@evil.com@good.com/": ("good.com", ("good.com",), "good.com"),
    "http://[::1]:80/x": ("[::1]", (), "[::1]/x"),
    "http://[2001:DB8::1]/": ("[2001:db8::1]", (), "[2001:db8::1]"),
    "http://1.2.3.4:80": ("1.2.3.4", (), "1.2.3.4"),
    "//cdn.foo.github.io/y": ("cdn.foo.github.io", ("foo.github.io", "github.io"), "cdn.foo.github.io/y"),
    "https://github.io/": ("github.io", ("github.io",), "github.io"),
    "http://a.foo.blogspot.com": ("a.foo.blogspot.com", ("foo.blogspot.com", "blogspot.com"), "a.foo.blogspot.com"),
    "example.com": ("example.com", ("example.com",), "example.com"),
    "example.com:443/a": ("example.com", ("example.com",), "example.com/a"),
    "http:/example.com/a": ("example.com", ("example.com",), "example.com/a"),
    "HTTPS:\\\\example.com\\a": ("example.com", ("example.com",), "example.com\\a"),
    "http://Bücher.de/ü?ä": ("xn--bcher-kva.de", ("xn--bcher-kva.de",), "xn--bcher-kva.de/%C3%BC?%C3%A4"),
    "http://xn--bcher-kva.de/%c3%bc": ("xn--bcher-kva.de", ("xn--bcher-kva.de",), "xn--bcher-kva.de/%C3%BC"),
    "http://straße.de": ("xn--strae-oqa.de", ("xn--strae-oqa.de",), "xn--strae-oqa.de"),
    "http://例え。jp/": ("xn--r8jz45g.jp", ("xn--r8jz45g.jp",), "xn--r8jz45g.jp"),
    "http://example.com..": ("example.com", ("example.com",), "example.com"),
    "http://exam\nple.com/a\tb": ("example.com", ("example.com",), "example.com/ab"),
    "  http://example.com  ": ("example.com", ("example.com",), "example.com"),
    "http://under_score.example.org": ("under_score.example.org", ("example.org",), "under_score.example.org"),
    "http://co.uk/": ("co.uk", (), "co.uk"),
    "http://localhost:3000/": ("localhost", (), "localhost"),
    "http://a.b.unknownsuffix/": ("a.b.unknownsuffix", (), "a.b.unknownsuffix"),
    "http://a..b.com": (None, (), None),
    "http://": (None, (), None),
    "http:///path": ("path", (), "path"),
    "http://[::1": (None, (), None),
    "not a url": (None, (), None),
    "http://exa mple.com/": (None, (), None),
    "": (None, (), None),
}  # fmt: skip


@pytest.mark.parametrize("url, expected", ADDRESSES.items(), ids=map(ascii, ADDRESSES))
def test_what_an_address_is(url, expected):
    host, _ = urls.split(url)
    assert (host, urls.registered(host) if host else (), urls.canonical(url)) == expected


@settings(max_examples=300, deadline=None)
@given(st.text(max_size=40))
def test_any_text_is_an_address_or_none(url):
    whole = urls.canonical(url)
    assert whole is None or urls.canonical(whole) in (whole, None) or "/" in whole
    assert all(re.fullmatch("[a-z0-9]+", word) for word in urls.words(url))


# --- what a list may hold --------------------------------------------------------------------------------------


def entries(folder: Path, key: str, data: bytes, name: str = "lists/l.txt", **stage) -> lists.Listing:
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(data)
    kind = {"stage": "url_filter", key: [name]} | stage
    manifest = load(folder, {"w": {"files": ["x"], "extra": ["url"]}}, stages=[kind])
    (found,) = lists.check(manifest).values()
    return found[key][0]


HELD = {
    "domains": (
        "domains",
        "a.com\r\nB.COM.\n\n# remark\n  c.com  # seen twice\nhttps://d.com:80/\nuser@e.com\nbücher.de\n1.2.3.4\nx.com/y\n",
        ["a.com", "b.com", "c.com", "d.com", "e.com", "xn--bcher-kva.de", "1.2.3.4"],
        (1, "x.com/y"),
    ),
    "domains with what stands for any host": (
        "domains",
        "*.spam.co.uk\n.spam3.net\n*.bücher.de\n*.me.github.io\n*.a.spam.com\n*spam.com\n*.co.uk\n*.\n",
        ["spam.co.uk", "spam3.net", "xn--bcher-kva.de", "me.github.io"],
        (4, "*.a.spam.com"),
    ),
    "public suffixes are nobody's domain": (
        "domains",
        "co.uk\ncom\nfoo.ck\n公司.cn\nCO.UK\nwww.ck\ngithub.io\nlocalhost\na.unknownsuffix\nspam2.org/path\n",
        ["www.ck", "github.io", "localhost", "a.unknownsuffix"],
        (6, "co.uk"),
    ),
    "a suffix is a host": ("hosts", "co.uk\n.x.de\n*.y.de\n", ["co.uk"], (2, ".x.de")),
    "escapes in URLs": ("urls", "a.com/b%61d\na.com/%2f\n", ["a.com/bad", "a.com/%2F"], None),
    "a mark at the beginning": ("hosts", "\ufeffa.com\nb.com", ["a.com", "b.com"], None),
    "urls": ("urls", "http://A.com/X/#y\na.com:80\n/none\n", ["a.com/X", "a.com"], (1, "/none")),
    "words of a URL": ("words", "Casino\nhot-girls\n酒\n", ["casino", "hotgirls"], (1, "酒")),
    "substrings": ("substrings", "x y\n", ["xy"], None),
}


@pytest.mark.parametrize("key, text, expected, unusable", HELD.values(), ids=HELD)
def test_what_a_list_holds(tmp_path, key, text, expected, unusable):
    for data, name in ((text.encode(), "l/a.txt"), (gzip.compress(text.encode()), "l/a.txt.gz")):
        found = entries(tmp_path, key, data, name)
        assert sorted(found.entries.to_pylist()) == sorted(expected)
        assert (found.unusable, found.name) == (unusable, "l/a.txt")


def test_a_folder_stands_for_its_file(tmp_path):
    (tmp_path / "ut1" / "adult").mkdir(parents=True)
    (tmp_path / "ut1" / "adult" / "domains").write_text("a.com\n")
    (tmp_path / "ut1" / "adult" / "urls.gz").write_bytes(gzip.compress(b"b.com/x\n"))
    stage = {"stage": "url_filter", "domains": ["ut1/adult"], "urls": ["ut1/adult/"]}
    manifest = load(tmp_path, {"w": {"files": ["x"], "extra": ["url"]}}, stages=[stage])
    (found,) = lists.check(manifest).values()
    assert {key: [(one.name, one.entries.to_pylist()) for one in each] for key, each in found.items()} == {
        "domains": [("adult/domains", ["a.com"])],
        "urls": [("adult/urls", ["b.com/x"])],
    }


def test_lists_are_named_apart(tmp_path):
    names = ["a/adult/domains", "b/adult/domains", "b/gambling/domains", "x.txt", "y.txt"]
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("a.com\n")
    stage = {"stage": "url_filter", "domains": [*names[:3], str(tmp_path / "x.txt"), "./a/../y.txt"]}
    manifest = load(tmp_path, {"w": {"files": ["x"], "extra": ["url"]}}, stages=[stage])
    (found,) = lists.check(manifest).values()
    assert [one.name for one in found["domains"][:3]] == [
        "a/adult/domains", "b/adult/domains", "gambling/domains"
    ]  # fmt: skip
    assert [one.name for one in found["domains"][3:]] == [f"{tmp_path.name}/x.txt", "a/y.txt"]


REFUSED = {
    "no file": (None, "cannot read .*/l.txt: No such file or directory"),
    "an empty file": (b"", "the list is empty; leave it out, or fill it"),
    "only remarks": (b"# a\n\n  # b\n", "the list is empty"),
    "not UTF-8": (b"a.com\nb\xff.com\n", "line 2 is not UTF-8; save the list as UTF-8"),
    "damaged gzip": (gzip.compress(b"a.com\n" * 100)[:-9], "is damaged gzip"),
    "nothing that could match": (b"x/y z\n", "no line of it can match anything; the first is 'x/y z'"),
}


@pytest.mark.parametrize("data, problem", REFUSED.values(), ids=REFUSED)
def test_lists_that_are_refused(tmp_path, data, problem):
    if data is not None:
        (tmp_path / "l.txt").write_bytes(data)
    stage = {"stage": "url_filter", "domains": ["l.txt"]}
    manifest = load(tmp_path, {"w": {"files": ["x"], "extra": ["url"]}}, stages=[stage])
    with pytest.raises(ManifestError, match=rf"stages\[0\]\.domains\[0\]: .*{problem}") as caught:
        lists.check(manifest)
    assert caught.value.status == 2
    assert "l.txt" in str(caught.value)


def test_a_folder_of_words_is_refused(tmp_path):
    (tmp_path / "words").mkdir()
    stage = {"stage": "word_filter", "words": ["words"]}
    with pytest.raises(ManifestError, match="is a folder; name the file in it"):
        lists.check(load(tmp_path, {"w": {"files": ["x"]}}, stages=[stage]))


# --- URL rules -------------------------------------------------------------------------------------------------

FILES = {
    "ut1/adult/domains": "bad.com\nfoo.github.io\nsub.host.co.uk\n9.9.9.9\nblogspot.com\n",
    "hosts.txt": "www.exact.org\n",
    "ut1/adult/urls": "ok.com/bad\n",
    "hard.txt": "casino\nxxx\n",
    "soft.txt": "poker\nbet\nslots\n",
    "sub.txt": "hot-girls\nxrated\n",
}
STAGE = {
    "stage": "url_filter", "domains": ["ut1/adult"], "hosts": ["hosts.txt"], "urls": ["ut1/adult"],
    "words": ["hard.txt"], "soft_words": ["soft.txt"], "substrings": ["sub.txt"],
}  # fmt: skip
DOMAIN, HOST, LISTED = "domain in adult/domains", "host in adult/domains", "host in {}/hosts.txt"
URL, WORD, SOFT, INSIDE = "url in adult/urls", "word in hard.txt", "soft words >= 2", "substring in sub.txt"
# URL: the rules it breaks, with what it matched; the first decides
RULES = {
    "http://bad.com/": [(DOMAIN, {"entry": "bad.com"})],
    "HTTPS://a.b.BAD.com:8443/x": [(DOMAIN, {"entry": "bad.com"})],
    "http://notbad.com/": [],
    "http://bad.com.org/": [],
    "http://a.foo.github.io/": [(DOMAIN, {"entry": "foo.github.io"})],
    "http://bar.github.io/": [],
    "http://me.blogspot.com/": [(DOMAIN, {"entry": "blogspot.com"})],
    "http://sub.host.co.uk./": [(HOST, {"entry": "sub.host.co.uk"})],
    "http://deep.sub.host.co.uk/": [],
    "http://host.co.uk/": [],
    "http://9.9.9.9:80/": [(HOST, {"entry": "9.9.9.9"})],
    "www.exact.org/page": [("host in hosts.txt", {"entry": "www.exact.org"})],
    "exact.org/page": [],
    "http://ok.com/bad/": [(URL, {"entry": "ok.com/bad"})],
    "ftp://ok.com:21/bad#top": [(URL, {"entry": "ok.com/bad"})],
    "http://ok.com/bad/x": [],
    "http://ok.com/CASINO/x.html": [(WORD, {"entry": "casino"})],
    "http://ok.com/casinos": [],
    "http://ok.com/%63asin%6F": [(WORD, {"entry": "casino"})],
    "http://ok.com/%43asino": [(WORD, {"entry": "casino"})],
    "http://ok.com/a%2fpoker%2Fbet%C3%BC": [(SOFT, {"entries": ["bet", "poker"]})],
    "http://ok.com/xr%61ted": [(INSIDE, {"entry": "xrated"})],
    "http://ok.com/%62ad": [(URL, {"entry": "ok.com/bad"})],
    "http://ok.com/%2563asino": [],
    "http://ok.com/poker-BET": [(SOFT, {"entries": ["bet", "poker"]})],
    "http://ok.com/poker-poker": [],
    "http://ok.com/my/Hot/Girls/": [(INSIDE, {"entry": "hotgirls"})],
    "http://bad.com/casino/poker/bet/hot_girls": [
        (DOMAIN, {"entry": "bad.com"}), (WORD, {"entry": "casino"}), (SOFT, {"entries": ["bet", "poker"]}),
        (INSIDE, {"entry": "hotgirls"}),
    ],
    "xxx and no address": [(WORD, {"entry": "xxx"})],
    "http://[::1/": [],
}  # fmt: skip


def test_url_rules(work, tmp_path):
    records = [{"id": url, "text": "x", "extra": {"url": url}} for url in RULES]
    records += [{"id": "none", "text": "x"}, {"id": "blank", "text": "x", "extra": {"url": " "}},
                {"id": "null", "text": "x", "extra": {"url": None}}]  # fmt: skip
    docs = judged(work, tmp_path, FILES, STAGE, records)
    expected = [
        (url, rule, float(len(evidence["entries"])) if rule == SOFT else None, evidence, place == 0)
        for url, rules in RULES.items()
        for place, (rule, evidence) in enumerate(rules)
    ]
    assert builders.ledger(docs) == sorted(expected, key=str)
    report = docs.reports[-1]
    assert report.not_judged == {"web": 3}
    assert sum(row["documents"] for row in report.notes["judged"]) == len(RULES)
    alone = {row["rule"]: row["alone"] for row in report.notes["collateral"]}
    assert (alone[DOMAIN], alone[SOFT]) == (4, 2)


SITE, WORDED = "host in sites", "word in words"
# URL of a source that redacts: the rule it breaks; not judged: its host is not known any more
REDACTED = {
    "http://joe@evil.example/x": SITE,
    "http://joe:pw@evil.example/": SITE,
    "https://joe@evil.example:8080/y?z=ann@example.org": SITE,
    "evil.example/joe@example.org": SITE,
    "http://93.184.216.34/x": "not judged",
    "http://93.184.216.34:8080/evil/x": "not judged",
    "http://joe@93.184.216.34/": "not judged",
    "http://93.184.216.34/evil.example/": "not judged",
    "http://joe@evil.example": SITE,
    "http://[2606:2800:220:1::1946]/": "not judged",
    "http://ok.example/93.184.216.34/x": None,
    "http://ok.example/?mail=ann@example.org": None,
    "http://ok.example/evil/?mail=ann@example.org": WORDED,
    "http://ok.example/202-555-0143": None,
    "http://joe@ok.example/x": None,
    "http://10.0.0.1/x": None,
    "joe@evil.example": "not judged",
    "93.184.216.34": "not judged",
    "+1 202 555 0143": "not judged",
}


def test_urls_of_a_redacting_source(tmp_path):
    """A login and an address are gone; the host behind a login is not, and what replaced them says no word."""
    names = ["email", "ip", "address", "phone", "number"]
    tails = {redacted.rpartition("~")[2] for url in REDACTED if "~" in (redacted := pseudonym("url", url, BY))}
    assert len(tails) > 12
    (tmp_path / "a.jsonl").write_bytes(lines(*({"text": f"text {n}", "url": url} for n, url in enumerate(REDACTED))))
    (tmp_path / "sites").write_text("evil.example\n93.184.216.34\n")
    (tmp_path / "words").write_text("\n".join([*names, *sorted(tails), "evil"]) + "\n")
    manifest = load(
        tmp_path,
        {"web": {"files": ["a.jsonl"], "extra": ["url"], "edits": ["redact_email", "redact_ip", "redact_phone"]}},
        stages=[{"stage": "url_filter", "domains": ["sites"], "words": ["words"]}],
        limits={"removed_per_source": 1.0},
    )
    built = pipeline.build(manifest, workers=1, memory=400_000_000)
    assert isinstance(built, pipeline.Built)
    (stage,) = (one for one in built.manifest.stages if one.stage == "url_filter")
    assert stage.dropped == {rule: list(REDACTED.values()).count(rule) for rule in (SITE, WORDED)}
    assert stage.not_judged == {"web": list(REDACTED.values()).count("not judged")}
    kept = {
        row["text_hash"] for row in pq.read_table(built.path / "fates.parquet").to_pylist() if row["fate"] == "kept"
    }
    stay = {n for n, rule in enumerate(REDACTED.values()) if rule in (None, "not judged")}
    assert kept == {text_id(f"text {n}".encode()) for n in stay}


def test_url_rules_judge_only_what_they_are_asked_to(work, tmp_path):
    records = [
        {"id": "a", "text": "x", "lang": "en", "extra": {"url": "bad.com"}},
        {"id": "b", "text": "x", "lang": "fr", "extra": {"url": "bad.com"}},
        {"id": "c", "text": "x", "extra": {"url": "bad.com"}},
        {"id": "d", "text": "x", "lang": "en"},
    ]
    docs = judged(work, tmp_path, FILES, STAGE | {"only": {"lang": ["en"]}}, records)
    assert (builders.alive(docs), docs.reports[-1].not_judged) == (["b", "c", "d"], {"web": 3})


def test_a_url_in_a_field_of_ours(work, tmp_path):
    records = [{"id": "http://bad.com/1", "text": "x"}, {"id": "http://good.com/1", "text": "x"}]
    docs = judged(work, tmp_path, FILES, STAGE | {"field": "id"}, records)
    assert builders.alive(docs) == ["http://good.com/1"]


def twin(url: str, files: dict[str, set[str]], least: int) -> str | None:
    """The first rule that a URL of plain parts breaks, by sets and splits."""
    host = re.sub(r"^.*@|:[0-9]+$", "", url.split("//")[1].partition("/")[0]).lower()
    labels = host.split(".")
    size = 3 if labels[-2:] in (["co", "uk"], ["github", "io"]) else 2
    domains = {".".join(labels[-size:])} | ({"github.io"} if labels[-2:] == ["github", "io"] else set())
    domains = {domain for domain in domains if len(labels) >= size or domain == "github.io"}
    path = url.split("//")[1].split("/", 1)
    whole = (host + ("/" + path[1] if len(path) > 1 else "")).rstrip("/")
    words = set(re.split("[^a-z0-9]+", url.lower()))
    if domains & files["domains"]:
        return DOMAIN
    if host in files["domains"]:
        return HOST
    if host in files["hosts"]:
        return "host in hosts.txt"
    if whole in files["urls"]:
        return URL
    if words & files["words"]:
        return WORD
    if len(words & files["soft"]) >= least:
        return f"soft words >= {least}"
    if any(part in re.sub("[^a-z0-9]", "", url.lower()) for part in files["sub"]):
        return INSIDE
    return None


def test_url_rules_equal_a_slow_twin(work, tmp_path):
    chance = random.Random(5)
    parts = ["bad", "ok", "hot", "girls", "casino", "Poker", "BET", "x", "co", "uk", "github"]
    suffixes = ["fr", "co.uk", "github.io", "de"]

    def address() -> str:
        host = ".".join([*chance.choices(parts, k=chance.randint(1, 3)), chance.choice(suffixes)])
        user, port = chance.choice(["", "", "u:p@"]), chance.choice(["", "", ":8080"])
        path = "".join(
            "/" + "-".join(chance.choices(parts, k=chance.randint(1, 2))) for _ in range(chance.randint(0, 3))
        )
        return f"{chance.choice(['http', 'https', 'HTTP'])}://{user}{host}{port}{path}{chance.choice(['', '/'])}"

    some = [address() for _ in range(3000)]
    hosts = [urls.split(url)[0] or "" for url in some]
    files = {
        "domains": {*chance.sample(hosts, 60), "hot.fr", "bad.co.uk", "x.github.io"},
        "hosts": set(chance.sample(hosts, 60)),
        "urls": {urls.canonical(url) or "" for url in chance.sample(some, 100)},
        "words": {"casino"},
        "soft": {"poker", "bet", "girls"},
        "sub": {"hotgirls", "ukx"},
    }
    names = {"domains": "ut1/adult/domains", "hosts": "hosts.txt", "urls": "ut1/adult/urls", "words": "hard.txt",
             "soft": "soft.txt", "sub": "sub.txt"}  # fmt: skip
    written = {names[key]: "\n".join(sorted(each)) for key, each in files.items()}
    records = [{"id": str(n), "text": "x", "extra": {"url": url}} for n, url in enumerate(some)]
    docs = judged(work, tmp_path, written, STAGE, records)
    decided = {name: rule for name, rule, _, _, decides in builders.ledger(docs) if decides}
    wrong = {
        url: (decided.get(str(n)), expected)
        for n, url in enumerate(some)
        if decided.get(str(n)) != (expected := twin(url, files, 2))
    }
    assert wrong == {}
    assert len(set(decided.values())) == 7, "every rule decided somewhere"


def test_lists_decide_the_recipe_by_what_they_hold(tmp_path):
    def built(folder: str, name: str, data: str) -> pipeline.Built:
        home = tmp_path / folder
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text(data)
        (home / "a.jsonl").write_bytes(lines({"text": "one", "url": "http://a.com"}, {"text": "two", "url": "b.com"}))
        stage = {"stage": "url_filter", "domains": [str(home / name)]}
        manifest = load(home, {"w": {"files": ["a.jsonl"], "extra": ["url"]}}, stages=[stage])
        made = pipeline.build(manifest, workers=1, memory=400_000_000)
        assert isinstance(made, pipeline.Built)
        return made

    first = built("x", "deep/l/domains", "a.com\nx/y z\n")
    same = built("y", "l/domains", "a.com\nx/y z\n")
    other = built("z", "l/domains", "b.com\n")
    assert first.manifest.recipe_id == same.manifest.recipe_id != other.manifest.recipe_id
    assert first.manifest.stages[1].dropped == {"domain in l/domains": 1}
    (where, *_) = first.manifest.lists
    assert set(first.manifest.lists) == {"stages[0].domains[0] l/domains", "public suffixes", "idna"}, where
    (warning,) = first.warnings
    assert "1 lines of list l/domains can match nothing; the first is 'x/y z'" in warning
    ledger = (first.path / "ledger.parquet").read_bytes()
    assert ledger == (same.path / "ledger.parquet").read_bytes()
    assert str(tmp_path).encode() not in ledger


# --- words -----------------------------------------------------------------------------------------------------

BAD = "slur\nVery Bad\ns&m\n🖕\nनर\nécole\n"
# text: the word it holds, as `word` and as `substring`
TEXTS = {
    "a Slur, here": ("slur", "slur"),
    "slur": ("slur", "slur"),
    "(SLUR)": ("slur", "slur"),
    "slurs": (None, "slur"),
    "slur_1": (None, "slur"),
    "4slur": (None, "slur"),
    "it is very bad.": ("very bad", "very bad"),
    "it is very  bad": (None, None),
    "very badly": (None, "very bad"),
    "say s&m!": ("s&m", "s&m"),
    "s and m": (None, None),
    "🖕": ("🖕", "🖕"),
    "a नर b": ("नर", "नर"),
    "नरी": (None, "नर"),  # a vowel sign makes another word of it
    "ÉCOLE": ("école", "école"),
    "中文slur中文": (None, "slur"),
    "nothing": (None, None),
    "": (None, None),
}


@pytest.mark.parametrize("at, match", [(0, "word"), (1, "substring")])
def test_word_rules(work, tmp_path, at, match):
    records = [{"id": text, "text": text} for text in TEXTS]
    docs = judged(
        work, tmp_path, {"l/en.txt": BAD}, {"stage": "word_filter", "words": ["l/en.txt"], "match": match}, records
    )
    expected = [
        (text, "listed word", None, {"word": found[at]}, True) for text, found in TEXTS.items() if found[at] is not None
    ]
    assert builders.ledger(docs) == sorted(expected, key=str)


def wordlike(c: str) -> bool:
    return c == "_" or unicodedata.category(c)[0] in "LMN"


def holds(text: str, word: str) -> bool:
    """Whether a word stands in a text with no letter, mark, digit or _ beside it."""
    places = [n for n in range(len(text)) if text.startswith(word, n)]
    return any(
        not (n and wordlike(text[n - 1])) and not (n + len(word) < len(text) and wordlike(text[n + len(word)]))
        for n in places
    )


@settings(max_examples=300, deadline=None)
@given(
    st.lists(st.text("ab_ \n.*+\\E中é\u0301", min_size=1, max_size=4), min_size=1, max_size=6),
    st.lists(st.text("ab_ \n.*+\\E中é\u0301", max_size=12), max_size=6),
)
def test_matching_equals_a_slow_twin(words, texts):
    array = pa.array(texts, pa.large_string())
    for matcher, test in (
        (Matcher(words, "word"), holds),
        (Matcher(words, "substring"), lambda text, word: word in text),
    ):
        found = matcher.first(array).to_pylist()
        assert [one is not None for one in found] == [any(test(text, word) for word in words) for text in texts]
        assert all(one is None or (one in words and test(text, one)) for one, text in zip(found, texts, strict=True))


def test_long_lists_are_matched_in_groups():
    words = [f"w{n}" for n in range(3 * WORDS)] + ["x" * 9000]
    matcher = Matcher(words, "word")
    texts = [*(f"a {word} b" for word in words), "w", "none", "x" * 9001]
    assert matcher.first(pa.array(texts, pa.large_string())).to_pylist() == [*words, None, None, None]


def test_a_share_of_them_is_kept(work, tmp_path):
    records = [{"id": str(n), "text": f"slur {n}"} for n in range(400)]
    stage = {"stage": "word_filter", "words": ["l.txt"], "keep_fraction": 0.25}
    docs = judged(work, tmp_path, {"l.txt": "slur\n"}, stage, records)
    names = builders.ids(docs)
    expected = sorted(own for name, own in names.items() if keyed("word_filter", None, name) < bound(0.25))
    assert builders.alive(docs) == expected
    assert 70 < len(expected) < 130


def test_word_rules_read_a_text_once_for_a_list(work, tmp_path):
    records = [{"id": str(n), "text": "slur" if n % 2 else "fine", "lang": "en" if n < 6 else "fr"} for n in range(12)]
    stage = {"stage": "word_filter", "words": ["l.txt"], "only": {"lang": ["en"]}}
    docs = judged(work, tmp_path, {"l.txt": "slur\n"}, stage, records)
    assert docs.reports[-1].not_judged == {"web": 6}
    assert work.store.ran["listed_words"] == 1, "only of the part that is judged"
    assert builders.alive(docs) == sorted(str(n) for n in range(12) if n >= 6 or n % 2 == 0)
