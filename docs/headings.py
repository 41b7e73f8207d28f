"""Markdown that only the documentation needs: rows of tables, anchors, links from names."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping


def linked(source: str, links: Mapping[str, str], own: str = "") -> str:
    """Names of `links` but the page's own as links, in text and if one fills a code span; not in headings."""
    names = "|".join(sorted(map(re.escape, links), key=len, reverse=True))
    found = re.compile(  # which Python keeps: many pages have the same names
        rf"\[[^\]]*\]\([^)]*\)|`(?P<code>{names})`|`[^`]*`|(?<![\w/#-])(?P<text>{names})(?![\w/-])"
    )

    def link(match: re.Match[str]) -> str:
        name = match["code"] or match["text"]
        return f"[{match[0]}]({links[name]})" if name and name != own else match[0]

    lines = source.split("\n")
    return "\n".join(line if line.startswith("#") else found.sub(link, line) for line in lines)


def row(cells: Iterable[str]) -> str:
    """A row of a table; what would end a cell is escaped."""
    return "| " + " | ".join(" ".join(c.split()).replace("|", "\\|") for c in cells) + " |"


def anchor(heading: str) -> str:
    """The anchor that GitHub gives a heading."""
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")
