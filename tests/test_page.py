"""The page of an audit: what it shows, that no text of a document acts in it, that it works in a browser."""

import base64
import hashlib
import json
import re
import shutil
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

import pages
import pytest

from datapipe.auditing import report as r
from datapipe.auditing.page import MANY, figures, lists, render, words
from datapipe.auditing.page.safe import breaking, script_json, visible

RAW = ("<script>document.title", "<img src=x", '" onmouseover=', "<b>item</b>")  # must not be in a page but escaped
VOID = {"meta", "link", "line", "polyline", "br", "input", "wbr"}
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
WAIT = 120_000  # milliseconds that the browser gets for anything, on a machine however busy
FLAGS = (
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
)  # fmt: skip


class Parsed(HTMLParser):
    """Tags with their attributes; text of scripts and styles by id or tag; what is not closed in order is an error."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.text: list[str] = []
        self.inside: dict[str, str] = {}
        self.at = ""
        self.feed(page)
        self.close()

    def handle_starttag(self, tag, attrs):
        assert len({name for name, _ in attrs}) == len(attrs), f"{tag} has an attribute twice"
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)
        if tag in {"script", "style"}:
            self.at = dict(attrs).get("id") or tag

    def handle_startendtag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag, f"{tag} is not the one that is open"
        self.at = ""

    def handle_data(self, data):
        if self.at:
            self.inside[self.at] = self.inside.get(self.at, "") + data
        else:
            self.text.append(data)


REPORTS = {
    "everything": {"n": 60},
    "hostile": {"n": 12, "hostile": pages.HOSTILE},
    "nothing found": {"n": 0, "everything": False, "untested": 0},
    "incomplete": {"n": 0},
}


@pytest.fixture(scope="module")
def made() -> dict[str, str]:
    return {name: render(pages.report(**settings)) for name, settings in REPORTS.items()}


def without_sections() -> r.Report:
    return pages.report(0, everything=False).model_copy(update={"sections": (), "scope": ()})


# --- without a browser ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [*REPORTS, "no section"])
def test_structure(made, name):
    """Closed tags, each id once, each link and each list leads somewhere, nothing acts but the one script."""
    page = Parsed(made.get(name) or render(without_sections()))
    assert page.open == []
    ids = [attributes["id"] for _, attributes in page.tags if "id" in attributes]
    assert len(set(ids)) == len(ids)
    for tag, attributes in page.tags:
        assert not [key for key in attributes if key.startswith("on") or key in {"style", "src", "srcset", "action"}]
        href = attributes.get("href")
        assert href is None or href == "data:," or (href.startswith("#") and href[1:] in ids), (tag, href)
        if "data-list" in attributes:
            assert f"data-{attributes['data-list']}" in ids
    scripts = [attributes for tag, attributes in page.tags if tag == "script"]
    assert [s for s in scripts if s.get("type") != "application/json"] == [{}]
    for at, text in page.inside.items():
        if at.startswith("data-"):
            json.loads(text)


def test_the_policy_allows_the_own_script_and_style_alone(made):
    page = Parsed(made["hostile"])
    (policy,) = [a["content"] for t, a in page.tags if t == "meta" and a.get("http-equiv") == "Content-Security-Policy"]
    assert policy is not None
    assert policy.startswith("default-src 'none';")
    assert "unsafe" not in policy
    assert "http" not in policy
    for part in ("script", "style"):
        own = base64.b64encode(hashlib.sha256(page.inside[part].encode()).digest()).decode()
        assert f"{part}-src 'sha256-{own}';" in policy


def test_what_decides_a_score_comes_first(made):
    text = " ".join(" ".join(Parsed(made["everything"]).text).split())
    order = [
        "Contamination found , and not everything was seen",
        "43 of 8,135 tested examples are in the training data",
        "What could not be seen",
        "gsm8k.adjacent>0 violated",
        "Each example is counted once",
        "Controls the same detector",
        "Flagged examples in training data",
        "Thresholds how many examples",
        "Source by set",
        "Mirrors",
        "Common n-grams",
        "Scores on clean",
        "Retrieval corpus wiki-index",
        "Trace what was really shown",
        "Untested not known to be clean",
        "Detector",
        "What this run cannot see",
        "Receipt",
        "Record digest",
    ]
    at = [text.find(words) for words in order]
    assert -1 not in at, dict(zip(order, at, strict=True))
    assert at == sorted(at)


def test_a_profile_other_than_the_default_has_a_column():
    report = pages.report(20, everything=False)
    (section,) = report.sections
    rows = [row.model_copy(update={"by_profile": pages.rate(3, 77)}) for row in (*section.sets, section.total)]
    section = section.model_copy(update={"sets": tuple(rows[:-1]), "total": rows[-1]})
    text = " ".join(" ".join(Parsed(render(report.model_copy(update={"sections": (section,)}))).text).split())
    assert "by contam" in text
    assert text.count("3 of 77") == len(rows)
    assert "of 77" not in " ".join(Parsed(render(report)).text)


def test_of_many_sets_those_that_say_nothing_are_folded_away():
    report = pages.report(20, everything=False)
    (section,) = report.sections
    quiet = section.sets[0].model_copy(update={"flagged": 0})
    few = tuple(quiet.model_copy(update={"suite": f"quiet{at:03d}"}) for at in range(MANY - len(section.sets)))
    one, untested = (
        quiet.model_copy(update={"suite": name, "tested": tested}) for name, tested in (("a", 5), ("b", 0))
    )
    silent = sum(not row.flagged and row.tested > 0 for row in (*section.sets, *few, one))
    for more, folded in ((few, None), ((*few, one, untested), silent)):
        made = section.model_copy(update={"sets": (*section.sets, *more)})
        page = render(report.model_copy(update={"sections": (made,)}))
        for row in made.sets:
            assert page.count(f'<span class="set-name">{breaking(row.suite)}</span>') == 1, row.suite
        before, _, behind = page.partition("Sets in which nothing flags: ")
        assert behind.startswith(str(folded)) or folded is None
        assert (">quiet000<" in before, ">b<" in before, ">all sets<" in before) == (
            folded is None,
            folded is not None,
            True,
        )


def test_equal_reports_give_equal_pages(made):
    report = pages.report(12, hostile=pages.HOSTILE)
    assert render(report) == made["hostile"]
    assert render(r.from_json(report.dumped())) == made["hostile"]


def test_hostile_text_occurs_only_escaped(made):
    page = made["hostile"]
    assert [raw for raw in RAW if raw in page] == []
    assert re.findall("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]", page) == []
    page.encode("utf-8")
    parsed = Parsed(page)
    assert {tag for tag, _ in parsed.tags} == {tag for tag, _ in Parsed(made["everything"]).tags}
    # and it is all there, unchanged
    rows = json.loads(parsed.inside["data-flagged-train"])["rows"]
    assert [row[0] for row in rows[: len(pages.HOSTILE)]] == [text[:60] for text in pages.HOSTILE]
    behind = json.loads(parsed.inside["data-flagged-train-0"])
    assert [[part[2] for part in item["parts"]][1] for item in behind[:10]] == [
        text[: r.TEXT] for text in pages.HOSTILE
    ]


def test_peers_case_of_text_that_closes_the_script(shared):
    case = shared / "cases/B45"
    files = [(case / name).read_text("utf-8") for name in ("docs.jsonl", "eval.jsonl")]
    texts = [text for file in files for line in file.split("\n") if line for text in json.loads(line).values()]
    page = render(pages.report(len(texts), hostile=texts))
    forbidden = json.loads((case / "EXPECT.json").read_text("utf-8"))["expect"]["must_not_occur_raw_in_html"]
    assert [raw for raw in forbidden if raw in page] == []
    assert "\x1b" not in page
    assert "</" not in Parsed(page).inside["data-flagged-train-0"]
    assert texts[0] in json.dumps(json.loads(Parsed(page).inside["data-flagged-train-0"]), ensure_ascii=False)


@pytest.mark.parametrize(
    "value, text",
    [
        ("plain", '"plain"'),
        ("中文 é", '"中文 é"'),
        ("</script><!--", '"\\u003c/script\\u003e\\u003c!--"'),
        ("a & b", '"a \\u0026 b"'),
        ("\u2028\u2029", '"\\u2028\\u2029"'),
        ("\u202e\ufeff\x9b\x7f", '"\\u202e\\ufeff\\u009b\\u007f"'),
        ('say "no" \\" \\', '"say \\u0022no\\u0022 \\u005c\\u0022 \\u005c"'),
        ("\0\x1b\n", '"\\u0000\\u001b\\n"'),
        ("\ud800x\udfff", '"\\ud800x\\udfff"'),
        ({"<k>": [1, None, 0.5]}, '{"\\u003ck\\u003e":[1,null,0.5]}'),
    ],
)
def test_script_json(value, text):
    made = script_json(value)
    assert str(made) == text
    assert json.loads(made) == value
    made.encode("utf-8")


@pytest.mark.parametrize(
    "text, html",
    [
        ("plain", "plain"),
        ("a/b_c-d.e", "a/<wbr>b_<wbr>c-<wbr>d.<wbr>e"),
        ("//a__", "//<wbr>a__"),
        ("<b>/\u202e", "&lt;b&gt;/<wbr>⟨U+202E⟩"),
    ],
)
def test_breaking(text, html):
    assert breaking(text) == html


def test_no_json_without_nan():
    with pytest.raises(ValueError, match="JSON compliant"):
        script_json(float("nan"))


@pytest.mark.parametrize(
    "text, seen",
    [
        ("as it is\n\tعربي 中文", "as it is\n\tعربي 中文"),
        ("\x1b[2J", "⟨U+001B⟩[2J"),
        ("a\u202eb", "a⟨U+202E⟩b"),
        ("\0\ud800", "⟨U+0000⟩⟨U+D800⟩"),
        (7, 7),
    ],
)
def test_visible(text, seen):
    assert visible(text) == seen


@pytest.mark.parametrize(
    "share, text",
    [
        (0.0, "0.00 %"), (0.08, "8.00 %"), (1.0, "100.00 %"), (0.00001, "<0.01 %"), (0.999999, ">99.99 %"), (None, "–"),
    ],
)  # fmt: skip
def test_percent(share, text):
    assert words.percent(share).replace("\N{NO-BREAK SPACE}", " ") == text


def test_interval_and_size():
    assert words.interval(0.0464, 0.1346).replace("\N{NO-BREAK SPACE}", " ") == "4.64–13.46 %"
    assert [words.size(n) for n in (0, 999, 1000, 999_600, 3_060_020_560)] == [
        "0 B",
        "999 B",
        "1 kB",
        "1 MB",
        "3.06 GB",
    ]
    assert [words.figure(v) for v in (0.5, 1.0, 0.83333, -2.66, 1234.0, None)] == [
        "0.5",
        "1",
        "0.8333",
        "-2.66",
        "1,234",
        "–",
    ]


def test_a_bar_is_full_and_shows_the_smallest_part():
    blocks = figures.bar(pages.set_row("x", {"adjacent": 1, "prompt": 500, "untested": 99_999, "clean": 10}))
    assert [block.cls for block in blocks] == ["adjacent", "prompt", "untested"]
    assert sum(block.width for block in blocks) == pytest.approx(1000, abs=0.1)
    assert min(block.width for block in blocks) > 10
    assert [b.x for b in blocks[1:]] == [pytest.approx(a.x + a.width, abs=0.1) for a in blocks[:-1]]
    assert figures.bar(pages.set_row("x", {"clean": 5})) == []


def test_whisker():
    assert figures.whisker(pages.rate(12, 150), 0.2) == (23.18, 40.0, 67.31)
    assert figures.whisker(pages.rate(0, 0), 0.2) is None
    assert figures.top_rate([pages.set_row("x", {"prompt": 12, "clean": 138})]) == 0.2


def test_sweep_of_all_sets_is_the_sum_of_them():
    one = r.Sweep(suite="a", metric="longest_ratio", n=8, exclusion=True, flagged=tuple(range(19, 0, -1)))
    two = one.model_copy(update={"suite": "b", "flagged": (1,) * 19})
    detector = pages.report(1).detector
    ((panel,),) = figures.panels([one, two], detector, whole=True)
    assert panel.lines[0].flagged == tuple(range(20, 1, -1))
    assert panel.top == 20
    assert panel.at == 50
    assert panel.lines[0].points.split()[0] == "5,0"
    assert [row[0].suite for row in figures.panels([one, two], detector, whole=False)] == ["a", "b"]


def test_segments_say_what_is_left_out():
    one = pages.flagged(1)[0].evidence[0]
    pieces = (
        r.Piece(start=10, end=13, kind=None, text="abc"),
        r.Piece(start=13, end=15, kind="prompt", text="de"),
        r.Piece(start=115, end=117, kind="answer", text="fg"),
    )
    found = one.model_copy(update={"excerpt": pieces, "bytes": 120})
    assert lists.segments(found) == [10, "abc", ("prompt", "de"), 100, ("answer", "fg"), 3]
    assert lists.segments(one.model_copy(update={"excerpt": ()})) == []


# --- in a browser --------------------------------------------------------------------------------------------

LIST = "[data-list=flagged-train]"


@pytest.fixture(scope="module")
def browser() -> Iterator:
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    path = next((found for name in BROWSERS if (found := shutil.which(name))), None)
    if path is None:
        pytest.skip(f"no browser: none of {', '.join(BROWSERS)} is on PATH")
    with playwright.sync_playwright() as started:
        running = started.chromium.launch(executable_path=path, headless=True, args=list(FLAGS), timeout=WAIT)
        yield running
        running.close()


@pytest.fixture(scope="module")
def files(made, tmp_path_factory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("pages")
    for name, page in made.items():
        (folder / f"{name}.html").write_bytes(page.encode("utf-8"))
    return {name: folder / f"{name}.html" for name in made}


@pytest.fixture
def opened(browser, files):
    """open(name, width) -> a page; what the console said and what was fetched must be nothing at the end."""
    said, fetched, contexts = [], [], []

    def open_page(name, width=1280):
        context = browser.new_context(viewport={"width": width, "height": 900})
        context.set_default_timeout(WAIT)
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: said.append(message.text))
        page.on("pageerror", lambda error: said.append(str(error)))
        page.on("dialog", lambda dialog: said.append(dialog.message))
        page.on("request", lambda request: fetched.append(request.url))
        page.goto(files[name].as_uri())
        page.wait_for_selector("html.ready", state="attached")
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert said == []
    assert [url for url in fetched if not url.startswith(("file:", "data:"))] == []


def cells(page, column):
    return page.locator(f'{LIST} .list > tbody > tr.opens > td[data-label="{column}"]').all_inner_texts()


@pytest.mark.slow
@pytest.mark.parametrize("name", REPORTS)
@pytest.mark.parametrize("width", [1280, 390, 320])
def test_opens_without_a_word_and_fits(opened, name, width):
    page = opened(name, width)
    for details in page.locator("details > summary").all():
        details.click()
    for button in page.locator("button.open").all()[:10]:
        button.click()
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert "PWNED" not in page.title()


@pytest.mark.slow
def test_hostile_text_stays_text(opened):
    page = opened("hostile")
    buttons = page.locator(f"{LIST} button.open")
    for at in range(len(pages.HOSTILE)):
        buttons.nth(at).click()
    shown = page.locator(LIST).inner_text()
    for text in pages.HOSTILE[:4]:
        assert text in shown
    for code in ("U+2028", "U+001B", "U+202E", "U+0000", "U+009B"):
        assert code in shown
    assert page.evaluate("document.images.length") == 0
    assert (
        page.evaluate(
            "[...document.querySelectorAll('*')].flatMap(n => n.getAttributeNames()).filter(a => a.startsWith('on'))"
        )
        == []
    )
    # a long text is cut, and there on demand
    before = page.locator(LIST).evaluate("node => node.textContent.length")
    page.locator(f"{LIST} button.more").last.click()
    assert page.locator(LIST).evaluate("node => node.textContent.length") > before + 30_000


@pytest.mark.slow
def test_sorting(opened):
    page = opened("everything")
    header = page.locator(f"{LIST} .list thead")
    header.get_by_role("button", name="exposure").click()
    assert header.locator('th[aria-sort="descending"]').inner_text().startswith("exposure")
    down = [int(text) for text in cells(page, "exposure")]
    assert down == sorted(down, reverse=True)
    header.get_by_role("button", name="exposure").press("Enter")
    up = [int(text) for text in cells(page, "exposure")]
    assert up == sorted(up)
    assert up[0] < down[0]
    header.get_by_role("button", name="class").click()
    order = [r.CLASSES.index(text) for text in cells(page, "class")]
    assert order == sorted(order)
    page.locator("#train .sets thead").get_by_role("button", name="flagged").click()
    flagged = [int(text) for text in page.locator('#train .sets tbody td[data-label="flagged"]').all_inner_texts()]
    assert flagged == sorted(flagged, reverse=True)


@pytest.mark.slow
def test_filters(opened):
    page = opened("everything")
    filters, count = page.locator(f"{LIST} .filters"), page.locator(f"{LIST} .count")
    all_rows = count.inner_text()
    filters.locator('select[name="set"]').select_option("=gsm8k")
    filters.locator('select[name="class"]').select_option("=adjacent")
    assert set(cells(page, "set")) == {"gsm8k"}
    assert set(cells(page, "class")) == {"adjacent"}
    filters.locator('select[name="set"]').select_option("")
    filters.locator('select[name="class"]').select_option("")
    filters.locator('select[name="source"]').select_option("=wiki.zh")
    assert all("wiki.zh" in text for text in cells(page, "sources"))
    filters.locator('select[name="source"]').select_option("")
    assert count.inner_text() == all_rows
    # a text is looked for in what lies behind the rows too
    filters.locator('input[name="text"]').fill("行政许可实施满一年")
    page.locator(f"{LIST} .count", has_text=re.compile(r"filtered from \d+$")).wait_for()  # nothing more is looked for
    assert set(cells(page, "set")) == {"ceval/法律"}
    filters.locator('input[name="text"]').fill("nowhere to be found")
    page.locator(f"{LIST} tbody", has_text="nothing matches").wait_for()
    assert page.locator(f"{LIST} .scroll").get_attribute("aria-busy") == "false"
    # a number in the table of sets leads to its rows
    page.locator('#train .sets a[data-set="mmlu"][data-class="solution"]').click()
    assert set(cells(page, "set")) == {"mmlu"}
    assert set(cells(page, "class")) == {"solution"}
    assert filters.locator('input[name="text"]').input_value() == ""


@pytest.mark.slow
def test_a_search_reads_a_slice_after_the_other_and_finds_the_last_row(browser, tmp_path):
    """The page answers meanwhile; a search that another one follows stops."""
    file = tmp_path / "many.html"
    file.write_bytes(render(pages.report(1500)).encode())
    page = browser.new_page()
    page.set_default_timeout(WAIT)
    # a slow reader: each chunk takes longer than a slice, and nothing is read before it is asked for
    page.add_init_script(
        """window.requestIdleCallback = () => 0;
        const parse = JSON.parse;
        let reads = 0;
        window.reads = () => reads;
        JSON.parse = (text) => {
            const end = performance.now() + 50;
            while (performance.now() < end);
            reads++;
            return parse(text);
        };"""
    )
    page.goto(file.as_uri())
    page.wait_for_selector("html.ready", state="attached")
    before = page.evaluate("reads()")
    last = page.evaluate(
        "JSON.parse(document.getElementById('data-flagged-train-14').textContent)[99].documents[0].facts[1]"
    )
    look = """(words) => new Promise((done) => {
        const place = document.querySelector('[data-list=flagged-train]');
        const input = place.querySelector('input[name=text]');
        const seen = [];
        new MutationObserver(() => {
            seen.push(place.querySelector('.count').textContent);
            if (place.querySelector('.scroll').getAttribute('aria-busy') === 'false') done(seen);
        }).observe(place.querySelector('.scroll'), { attributes: true });
        setTimeout(() => done(seen), 120_000);
        input.value = 'no such words';
        input.dispatchEvent(new Event('input'));
        setTimeout(() => { input.value = words; input.dispatchEvent(new Event('input')); }, 300);
    })"""
    seen = page.evaluate(look, last)
    assert "looking for more" in seen[0]
    assert len(seen) > 5
    assert seen[-1] == "1 row, filtered from 1,500"
    assert page.evaluate("reads()") - before <= 15 + 1  # each chunk once, and ours
    page.close()


@pytest.mark.slow
def test_evidence_opens_by_keyboard_and_pages_turn(opened):
    page = opened("everything")
    button = page.locator(f"{LIST} button.open").first
    button.focus()
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.getAttribute('aria-expanded')") == "true"
    behind = page.locator(f"{LIST} tr.behind")
    example = pages.flagged(60)[0]
    (prompt, answer) = (part.text for part in example.parts)
    marks = [mark.inner_text() for mark in behind.locator("mark").all()]
    assert marks[:2] == [prompt, answer.rstrip()]
    assert example.evidence[0].document in behind.inner_text()
    page.keyboard.press("Enter")
    assert behind.count() == 0
    page.locator(f"{LIST} .pager").get_by_role("button", name="last page").click()
    assert page.locator(f"{LIST} .count").inner_text() == "51–60 of 60 rows"
    assert len(cells(page, "set")) == 10
