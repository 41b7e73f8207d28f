"""Writes the documentation as a web site with search, which opens without a server.

    python docs/website.py OUT         write the site into the folder OUT; needs the extra `docs`

Pages keep their places (docs/tour.md becomes docs/tour.html, README.md index.html), and files that
they link to are copied. A link to what is not there, or to a heading that a page does not have, ends the
build with exit code 1.
"""

from __future__ import annotations

import argparse
import html
import json
import posixpath
import re
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from headings import anchor
from markdown_it import MarkdownIt
from markdown_it.token import Token

ROOT = Path(__file__).resolve().parents[1]
MARKDOWN = MarkdownIt("commonmark").enable("table")
THEME = Path(__file__).with_name("theme")
#: The pages in the order of the navigation, by group; `*` stands for every page of the folder.
GROUPS = {
    "Start": (
        "README.md",
        "docs/tour.md",
        "docs/questions.md",
        "docs/run.md",
        "docs/engines.md",
        "docs/whatif.md",
        "docs/compare.md",
        "docs/review.md",
    ),
    "Reference": (
        "docs/verbs.md",
        "docs/cli.md",
        "docs/api.md",
        "docs/json.md",
        "docs/server_texts.md",
        "docs/agents.md",
        "docs/glossary.md",
    ),
    "How it judges": (
        "docs/how_it_decides.md",
        "docs/blind_spots.md",
        "docs/definitions.md",
        "docs/limits.md",
        "docs/facts.md",
        "docs/confidence.md",
        "docs/gain_calibration.md",
        "knowledge/calibration.md",
        "docs/own_rules.md",
    ),
    "Project": (
        "examples/README.md",
        "examples/ci/README.md",
        "benchmarks/README.md",
        "benchmarks/*.md",
        "CONTRIBUTING.md",
        "CHANGELOG.md",
        "docs/security.md",
        "SECURITY.md",
        "rules/README.md",
    ),
    "Engines": ("docs/engines/*.md",),
    "Rules": ("docs/rules.md", "docs/rules/*.md"),
}


@dataclass
class Section:
    """A heading with its text up to the next one, for the search."""

    anchor: str
    title: str
    text: list[str] = field(default_factory=list)


@dataclass
class Page:
    """A page by its path from the root; `links` are relative, as written."""

    path: str
    title: str
    tokens: list[Token]
    sections: list[Section]
    links: list[str]

    @property
    def target(self) -> str:
        return "index.html" if self.path == "README.md" else self.path.removesuffix(".md") + ".html"


def pages(root: Path) -> dict[str, list[Page]]:
    """The pages of each group; a page stands in the first group that names it."""
    seen: set[str] = set()
    found: dict[str, list[Page]] = {}
    for group, patterns in GROUPS.items():
        for path in (p for pattern in patterns for p in sorted(root.glob(pattern))):
            name = path.relative_to(root).as_posix()
            if name not in seen:
                seen.add(name)
                found.setdefault(group, []).append(
                    _page(name, MARKDOWN.parse(path.read_text(encoding="utf-8")))
                )
    return found


def _page(name: str, tokens: list[Token]) -> Page:
    sections, links = [Section("", "")], []
    for before, token in zip([None, *tokens], tokens, strict=False):
        words = [t.content for t in token.children or () if t.type in ("text", "code_inline")]
        links += [str(t.attrs[name]) for t, name in _linking([token])]
        if before is not None and before.type == "heading_open":
            title = "".join(words)
            before.attrs["id"] = anchor(title)
            sections.append(Section(anchor(title), title))
        elif token.type in ("inline", "fence"):
            sections[-1].text.append(" ".join(words) if token.type == "inline" else token.content)
    title = next((s.title for s in sections if s.title), name)
    return Page(name, title, tokens, sections, links)


def _linking(tokens: list[Token]) -> Iterator[tuple[Token, str]]:
    """Tokens of links and pictures, each with the attribute that holds its target."""
    for token in (t for block in tokens for t in block.children or ()):
        yield from ((token, name) for name in ("href", "src") if name in token.attrs)


def broken(root: Path, found: list[Page]) -> Iterator[str]:
    """Links to files that are not there and to headings that no page has."""
    known = {p.path: {s.anchor for s in p.sections} for p in found}
    for page in found:
        for link in page.links:
            path, _, part = _local(page, link)
            if path is None:
                continue
            if not (root / path).exists():
                yield f"{page.path}: {link}: no such file"
            elif part and path in known and part not in known[path]:
                yield f"{page.path}: {link}: no such heading"


def _local(page: Page, link: str) -> tuple[str | None, str, str]:
    """(path from the root, `#` or nothing, heading) of a link; without a path where it leads outside."""
    if re.match(r"[a-z]+:", link):
        return None, "", ""
    path, sign, part = link.partition("#")
    whole = posixpath.normpath(posixpath.join(posixpath.dirname(page.path), path)) if path else page.path
    return whole, sign, part


def write(root: Path, out: Path) -> list[str]:
    """Write the site; returns the broken links, and writes nothing where there are any."""
    groups = pages(root)
    found = [page for group in groups.values() for page in group]
    if problems := list(broken(root, found)):
        return problems
    targets = {page.path: page.target for page in found}
    for page in found:
        for token, name in _linking(page.tokens):
            token.attrs[name] = _rewritten(root, out, page, str(token.attrs[name]), targets)
        place = out / page.target
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(_html(page, groups), encoding="utf-8")
    index = [
        [page.target, page.title, s.anchor, s.title, " ".join(" ".join(s.text).split())]
        for page in found
        for s in page.sections
        if s.text or s.title
    ]
    listed = json.dumps(index, ensure_ascii=False).replace("</", "<\\/")
    (out / "search.js").write_text(
        f"const INDEX = {listed};\n{(THEME / 'search.js').read_text(encoding='utf-8')}", encoding="utf-8"
    )
    shutil.copyfile(THEME / "style.css", out / "style.css")
    return []


def _rewritten(root: Path, out: Path, page: Page, link: str, targets: dict[str, str]) -> str:
    """The link within the site; a file that is no page is copied to the same place."""
    path, sign, part = _local(page, link)
    if path is None:
        return link
    if (root / path).is_dir():
        path = posixpath.join(path, "README.md")
        if path not in targets:
            return "#"
    if path not in targets:
        (out / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(root / path, out / path)
    return posixpath.relpath(targets.get(path, path), posixpath.dirname(page.target) or ".") + sign + part


def _html(page: Page, groups: dict[str, list[Page]]) -> str:
    up = "../" * page.target.count("/")
    body = MARKDOWN.renderer.render(page.tokens, MARKDOWN.options, {})
    menu, current = [], " aria-current=page"
    for group, members in groups.items():
        inside = " open" if page in members or group != "Rules" else ""
        entries = "".join(
            f'<li><a href="{up}{p.target}"{current if p is page else ""}>{html.escape(p.title)}</a></li>'
            for p in members
        )
        menu.append(f"<details{inside}><summary>{group}</summary><ul>{entries}</ul></details>")
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{html.escape(page.title)} - advisor</title>"
        f'<link rel="stylesheet" href="{up}style.css"></head><body data-up="{up}">'
        '<header><label>Search <input type="search" id="query" autocomplete="off"></label>'
        '<ol id="results" aria-live="polite"></ol></header>'
        f"<nav>{''.join(menu)}</nav><main>{body}</main>"
        f'<script src="{up}search.js"></script></body></html>\n'
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("out", type=Path, help="folder that the site is written to")
    out = parser.parse_args().out
    problems = write(ROOT, out)
    for problem in problems:
        print(problem, file=sys.stderr)
    if not problems:
        print(f"wrote {out / 'index.html'}")
    return int(bool(problems))


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    sys.exit(main())
