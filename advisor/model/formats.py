"""The formats of reports: one entry serves every verb."""

from __future__ import annotations

from typing import Literal, NamedTuple

#: What a verb delivers: any document, or one whose findings a CI server can show.
Kind = Literal["document", "findings"]


class Format(NamedTuple):
    """`module` of `advisor.reports` has a function `document`, which turns a report into bytes; files
    with one of `suffixes` are of this format."""

    name: str
    module: str
    suffixes: tuple[str, ...] = ()
    serves: tuple[Kind, ...] = ("document", "findings")


FORMATS = (
    Format("text", "text"),
    Format("json", "json_report", (".json",)),
    Format("markdown", "markdown", (".md",)),
    Format("html", "html.report", (".html", ".htm")),
    Format("sarif", "sarif", (".json", ".sarif"), ("findings",)),
    Format("junit", "junit", (".xml",), ("findings",)),
    Format("github", "github", (), ("findings",)),
    Format("concise", "concise", (), ("findings",)),
)


def names(kind: Kind) -> tuple[str, ...]:
    """The formats of a kind of document."""
    return tuple(f.name for f in FORMATS if kind in f.serves)


def module(name: str) -> str:
    """The module that writes a format."""
    return next(f"advisor.reports.{f.module}" for f in FORMATS if f.name == name)
