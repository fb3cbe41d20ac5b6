"""The site in a browser: no error in the console, no page that scrolls sideways, text that can be read.

One process of Chromium loads every page into a frame, as wide as a phone and as a desktop, light and dark, and sends
what it finds to a server of the test.
"""

import json
from typing import Any

import pytest

from tests.chromium import run_page
from tests.docs.conftest import Site

PHONE, DESKTOP = 400, 1600
_HARNESS = """<!doctype html><title>check</title><link rel="icon" href="data:,">
<iframe id="frame" style="border:0" height="900"></iframe>
<script type="module">
const frame = document.getElementById("frame"), found = [];
const numbers = colour => colour.match(/[0-9.]+/g).slice(0, 3).map(Number);
const luminance = colour => numbers(colour).map(c => c / 255)
  .map(c => c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4)
  .reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
for (const page of PAGES) {
  frame.width = PHONE;
  await new Promise(done => { frame.onload = done; frame.src = page; });
  const view = frame.contentWindow, root = view.document.documentElement, body = view.document.body;
  const entry = {page, errors: [], width: {}, contrast: {}};
  for (const width of [PHONE, DESKTOP]) {
    frame.width = width;
    entry.width[width] = root.scrollWidth;
  }
  for (const theme of ["light", "dark"]) {
    body.dataset.theme = theme;
    const style = name => view.getComputedStyle(view.document.querySelector(name) || body);
    const contrast = (text, paper) => {
      const [a, b] = [luminance(style(text).color), luminance(style(paper).backgroundColor)];
      return (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    };
    entry.contrast[theme] = Math.min(contrast("article p", "body"), contrast(".go", ".highlight:has(.go)"));
    entry.size = parseFloat(style("article p").fontSize);
  }
  found.push(entry);
}
await fetch("/found", {method: "POST", body: JSON.stringify(found)});
</script>"""


@pytest.fixture(scope="module")
def report(site: Site, tmp_path_factory: pytest.TempPathFactory) -> tuple[list[dict[str, Any]], str]:
    """What the pages look like, and the log of the browser."""
    pages = [page for page in site.pages() if not page.startswith(("_", "search", "genindex"))]
    harness = _HARNESS.replace("PAGES", json.dumps(pages)).replace("PHONE", str(PHONE)).replace("DESKTOP", str(DESKTOP))
    return run_page(site.folder, harness, tmp_path_factory.mktemp("profile"))


def test_console_has_no_error(report: tuple[list[dict[str, Any]], str]) -> None:
    assert [line for line in report[1].splitlines() if "CONSOLE" in line] == []


def test_pages_do_not_scroll_sideways(report: tuple[list[dict[str, Any]], str]) -> None:
    widths = {entry["page"]: entry["width"] for entry in report[0]}
    assert {page: width for page, width in widths.items() if any(int(k) < v for k, v in width.items())} == {}


def test_text_can_be_read(report: tuple[list[dict[str, Any]], str]) -> None:
    assert [e["page"] for e in report[0] if min(e["contrast"].values()) < 4.5 or e["size"] < 14] == []
