"""
How fast the page of an audit opens: headless Chromium on a report with many flagged examples, from a file.

    python bench/page.py [--examples 10000] [--runs 3]

Prints the size of the page and, best of --runs: seconds to write it, to DOMContentLoaded (parsed, lists drawn), to the
first paint; then of single interactions: opening an example, sorting, a filter, text searches at once after opening
and later, each until the last row is found; and how long the page did not answer meanwhile at most.  Needs
playwright and a Chromium on PATH.
"""

import argparse
import shutil
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

import pages

from datapipe.auditing.page import render

FLAGS = ("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking")
# `place`: the list; `look(words)`: types them and waits for the rows
INTERACTIONS = {
    "text, at once (with 0.12 s of waiting for more)": "await look('grey stone')",
    "open an example": "place.querySelector('button.open').click()",
    "sort": "place.querySelectorAll('thead button')[3].click()",
    "filter": "choose(1)",
    "no filter": "choose(0)",
    "text, later (with 0.12 s of waiting for more)": "await look('forty')",
}
MEASURE = """async () => {
  const place = document.querySelector('[data-list=flagged-train]');
  const choose = (at) => {
    const select = place.querySelector('select[name=class]');
    select.selectedIndex = at;
    select.dispatchEvent(new Event('change'));
  };
  const look = (words) => {
    const input = place.querySelector('input[name=text]');
    input.value = words;
    input.dispatchEvent(new Event('input'));
    const region = place.querySelector('.scroll');
    return new Promise((done) => new MutationObserver((_, o) => {
      if (region.getAttribute('aria-busy') === 'true') return;
      o.disconnect();
      done();
    }).observe(region, { attributes: true }));
  };
  let blocked = 0;
  let last = performance.now();
  const timer = setInterval(() => {
    blocked = Math.max(blocked, performance.now() - last);
    last = performance.now();
  }, 0);
  const from = performance.now();
  CODE;
  await new Promise((done) => requestAnimationFrame(() => setTimeout(done)));
  clearInterval(timer);
  return [(performance.now() - from) / 1000, blocked / 1000];
}"""


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 2)[1])
    parser.add_argument("--examples", type=int, default=10_000)
    parser.add_argument("--runs", type=int, default=3)
    given = parser.parse_args()
    browser = next((p for name in ("chromium", "chromium-browser", "google-chrome") if (p := shutil.which(name))), None)
    if browser is None:
        sys.exit("no chromium on PATH")
    from playwright.sync_api import sync_playwright

    report = pages.report(given.examples)
    start = time.perf_counter()
    page = render(report).encode("utf-8")
    print(
        f"{given.examples:,} flagged examples, {len(page) / 1e6:.1f} MB, written in {time.perf_counter() - start:.2f} s"
    )
    best: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as started:
        file = Path(folder) / "report.html"
        file.write_bytes(page)
        for _ in range(given.runs):
            running = started.chromium.launch(executable_path=browser, headless=True, args=list(FLAGS))
            for width in (1280, 390):
                tab = running.new_page(viewport={"width": width, "height": 900})
                tab.goto(file.as_uri(), wait_until="load")
                timing = tab.evaluate(
                    "() => [performance.getEntriesByType('navigation')[0].domContentLoadedEventEnd,"
                    " performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? null]"
                )
                figures = {"DOMContentLoaded": timing[0] / 1000}
                if timing[1] is not None:
                    figures["first paint"] = timing[1] / 1000
                for name, code in INTERACTIONS.items():
                    figures[name], figures[f"{name}: not answering"] = tab.evaluate(MEASURE.replace("CODE", code))
                for name, seconds in figures.items():
                    key = f"{name}, {width} px"
                    best[key] = min(best.get(key, seconds), seconds)
                tab.close()
            running.close()
    for name, seconds in best.items():
        print(f"  {seconds:7.3f} s  {name}")


if __name__ == "__main__":
    main()
