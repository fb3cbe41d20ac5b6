"""The documentation site builds without a warning, and its links, pictures and search lead somewhere."""

import json
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urldefrag, urljoin

import pytest

from scripts.pictures import __main__ as pictures
from scripts.pictures.examples import EXAMPLES, runs
from tests.docs.conftest import ROOT, Site

MEASURED = re.compile(r"\b20\d\d-\d\d-\d\d\b|\b(?:Xeon|EPYC|H200|Zen \d)\b")
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


class Links(HTMLParser):
    """The targets of links, and the names that links may lead to, of a page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.targets: list[str] = []
        self.names: set[str] = set()
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for key, value in attrs:
            if key in ("href", "src") and value:
                self.targets.append(value)
            elif key in ("id", "name") and value:
                self.names.add(value)


def dead_links(pages: dict[str, str], folder: Path) -> Iterator[str]:
    links = {path: Links(text) for path, text in pages.items()}
    for path, page in links.items():
        for target in page.targets:
            if re.match(r"[a-z]+:|//", target) or target == "#":
                continue
            file, name = urldefrag(urljoin(path, target))
            file = unquote(file).partition("?")[0]
            missing = not (folder / file).exists() or (
                file in links and name and unquote(name) not in links[file].names
            )
            if missing:
                yield f"{path}: {target}"


def test_site_builds_without_warnings(site: Site) -> None:
    assert site.status == 0, site.warnings


def test_links_lead_somewhere(site: Site) -> None:
    assert list(dead_links(site.pages(), site.folder)) == []


def test_dead_links_are_found(tmp_path: Path) -> None:
    pages = {"a.html": '<a href="b.html#x">', "b.html": '<a id="y"><a href="missing.html">'}
    for name, text in pages.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    assert list(dead_links(pages, tmp_path)) == ["a.html: b.html#x", "b.html: missing.html"]


def test_public_functions_are_documented(site: Site) -> None:
    assert {"meta.Model", "meta.vm.compile"} <= Links(site.pages()["api.html"]).names


@pytest.mark.parametrize(
    ("words", "page"),
    [("checkpoint", "train"), ("freez", "train"), ("gradient clip", "train"), ("checkpoint", "distributed")],
)
def test_search_finds(words: str, page: str, site: Site) -> None:
    text = (site.folder / "searchindex.js").read_text(encoding="utf-8")
    index = json.loads(text[text.index("{") : text.rindex("}") + 1])
    number = index["docnames"].index(page)
    for word in words.split():
        found = index["terms"].get(word, []), index["titleterms"].get(word, [])
        assert any(number == each or (isinstance(each, list) and number in each) for each in found), word


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_measurements_are_in_their_section(page: Path) -> None:
    lines = page.read_text(encoding="utf-8").splitlines()
    measured = [line for line in lines if MEASURED.search(line)]
    assert "measurements" in page.parts or measured == []


def test_pictures_are_fresh() -> None:
    assert pictures.stale() == []
    assert {path.stem for path in pictures.FOLDER.glob("*.svg")} == set(pictures.PICTURES)


def test_the_gallery_has_what_examples_printed() -> None:
    gallery = (ROOT / "docs/gallery.md").read_text(encoding="utf-8")
    lines = [(name, line) for name, run in runs().items() for line in run["printed"].splitlines()]
    assert len(runs()) == len(EXAMPLES)
    assert [(name, line) for name, line in lines if line not in gallery and "drawn in" not in line] == []


def test_pictures_have_alternative_texts() -> None:
    shown = [
        (alternative, target)
        for page in PAGES
        for alternative, target in re.findall(r"!\[([^]]*)\]\(([^)]+)\)", page.read_text(encoding="utf-8"))
    ]
    assert [target for alternative, target in shown if len(alternative.split()) < 4] == []
    assert {Path(target).stem for _, target in shown} == set(pictures.PICTURES)
