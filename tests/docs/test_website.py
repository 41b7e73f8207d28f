"""The documentation as a web site: every page, links that lead somewhere, and a search that finds."""

from __future__ import annotations

import json
import re
from os.path import normpath
from pathlib import Path

import pytest

from tests.docs.scripts import ROOT, script
from tests.reports import browser

website = script("docs/website.py")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("site")
    assert website.write(ROOT, out) == []
    return out


def test_every_page_is_there(site: Path) -> None:
    wanted = [p.relative_to(ROOT).with_suffix(".html") for p in (ROOT / "docs").rglob("*.md")]
    assert not [p for p in wanted if not (site / p).is_file()]
    assert "<h1" in (site / "index.html").read_text(encoding="utf-8")


def test_links_within_the_site_lead_to_files_and_headings(site: Path) -> None:
    ids = {p: set(re.findall(r' id="([^"]+)"', p.read_text(encoding="utf-8"))) for p in site.rglob("*.html")}
    files = set(site.rglob("*"))
    lost = []
    for page in ids:
        for link in re.findall(r'(?:href|src)="([^"]+)"', page.read_text(encoding="utf-8")):
            path, _, part = link.partition("#")
            target = Path(normpath(page.parent / path)) if path else page
            outside = re.match("[a-z]+:", link) or link == "#"
            if not outside and not (target in files and (not part or part in ids.get(target, {part}))):
                lost.append((page.name, link))
    assert not lost


def test_the_glossary_is_sorted_and_its_words_are_used() -> None:
    text = (ROOT / "docs/glossary.md").read_text(encoding="utf-8")
    words = re.findall(r"^\| ([^|]+?) \|", text, re.MULTILINE)[2:]
    assert words == sorted(words, key=str.lower)
    others = " ".join(
        p.read_text(encoding="utf-8").lower()
        for folder in ("docs", "rules", "advisor/reports")
        for p in (ROOT / folder).rglob("*")
        if p.suffix in (".md", ".yaml", ".py") and p.name != "glossary.md"
    )
    parts = [part for word in words for part in word.lower().split(", ")]
    assert not [p for p in parts if p not in others and p.replace(" ", "-") not in others]


@pytest.mark.parametrize(
    ("link", "problem"), [("gone.md", "no such file"), ("cli.md#far", "no such heading")]
)
def test_a_broken_link_ends_the_build(tmp_path: Path, link: str, problem: str) -> None:
    tour, out = tmp_path / "docs/tour.md", tmp_path / "site"
    tour.parent.mkdir()
    (tmp_path / "docs/cli.md").write_text("# Commands\n", encoding="utf-8")
    tour.write_text(f"# Tour\n\n[x]({link})\n", encoding="utf-8")
    assert website.write(tmp_path, out) == [f"docs/tour.md: {link}: {problem}"]
    assert not out.exists()
    tour.write_text("# Tour\n\n[x](cli.md#commands)\n", encoding="utf-8")
    assert website.write(tmp_path, out) == []


def test_the_index_holds_the_text_of_rules(site: Path) -> None:
    first, _, _ = (site / "search.js").read_text(encoding="utf-8").partition(";\n")
    index = json.loads(first.removeprefix("const INDEX = ").replace("<\\/", "</"))
    assert {"docs/rules/LCH101.html", "docs/glossary.html", "index.html"} <= {entry[0] for entry in index}
    assert any(entry[0] == "docs/rules/HST103.html" and "GIL" in entry[4] for entry in index)


@pytest.mark.slow
@pytest.mark.skipif(browser.find() is None, reason="no Chromium")
def test_search_in_a_browser(site: Path) -> None:
    with browser.Browser() as page:
        page.open(site / "docs/tour.html")
        found = page.ask(
            "(() => { query.value = 'cuda graphs launch-bound'; query.dispatchEvent(new Event('input'));"
            " return [...results.querySelectorAll('a')].map((a) => a.getAttribute('href')); })()"
        )
        assert any(href.startswith("../docs/rules/LCH101.html") for href in found)
        assert not page.errors
