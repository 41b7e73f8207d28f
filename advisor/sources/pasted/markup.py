"""Tables of web pages and notebooks -> text: each `<table>` as lines of cells with tabs between them, what
stands in `<pre>` as it is, and of other markup the text alone.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import suppress
from html.parser import HTMLParser
from typing import Any

_MARKUP = re.compile(r"(?i)<(?:table|pre|t[rdh])\b[^<>]*>")
_NOTEBOOK = re.compile(r'\{\s*"cells"\s*:')
#: Tags behind which a line ends, outside of tables.
_BLOCKS = frozenset(("p", "div", "br", "li", "h1", "h2", "h3", "h4", "pre", "table", "tr", "caption"))
#: What a browser does not show.
_HIDDEN = frozenset(("script", "style", "head", "template"))


def is_markup(text: str) -> bool:
    """True for text with a table of HTML, and for a Jupyter notebook."""
    return _MARKUP.search(text) is not None or _is_notebook(text)


def _is_notebook(text: str) -> bool:
    return _NOTEBOOK.match(text.lstrip()) is not None


def as_text(text: str) -> str:
    """The text without markup; any other text as it is."""
    if _is_notebook(text) and (outputs := _outputs(text)) is not None:
        text = outputs
    if not _MARKUP.search(text):
        return text
    page = _Page()
    with suppress(AssertionError):  # what the parser raises for declarations that it does not know
        page.feed(text)
        page.close()
    return page.text()


def _outputs(text: str) -> str | None:
    """What the cells of a notebook printed; None if it is none. Of an output in several forms, tables go
    first."""
    try:
        cells = json.loads(text).get("cells")
    except (ValueError, AttributeError, RecursionError):
        return None
    if not isinstance(cells, list):
        return None
    return "\n\n".join(part for cell in cells if isinstance(cell, dict) for part in _of_cell(cell))


def _of_cell(cell: dict[str, Any]) -> Iterator[str]:
    for output in cell.get("outputs") or ():
        if not isinstance(output, dict):
            continue
        data = output.get("data")
        data = data if isinstance(data, dict) else {}
        html, plain = _lines(data.get("text/html")), _lines(data.get("text/plain") or output.get("text"))
        yield html if _MARKUP.search(html) else plain


def _lines(value: object) -> str:
    """Notebooks hold texts whole or as a list of lines."""
    return "".join(map(str, value)) if isinstance(value, list) else str(value or "")


class _Page(HTMLParser):
    """Collects lines; cells of a row are joined by tabs, and an empty heading, as pandas writes it over its
    index, gets a name."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self._lines: list[str] = []
        self._line = ""
        self._row: list[str] | None = None
        self._cell: str | None = None
        self._hidden = self._preformatted = 0

    def text(self) -> str:
        self._end()
        return "\n".join(self._lines) + "\n"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:  # noqa: ARG002
        self._hidden += tag in _HIDDEN
        self._preformatted += tag == "pre"
        if tag == "tr":
            self._end()
            self._row = []
        elif tag in ("td", "th"):
            self._end_cell()
            self._cell = ""
        elif tag == "br" and self._cell is not None:
            self._cell += " "
        elif tag in _BLOCKS:
            self._end()

    def handle_endtag(self, tag: str) -> None:
        self._hidden -= tag in _HIDDEN and self._hidden > 0
        self._preformatted -= tag == "pre" and self._preformatted > 0
        if tag in ("td", "th"):
            self._end_cell()
        elif tag in _BLOCKS:
            self._end()

    def handle_data(self, data: str) -> None:
        if self._hidden:
            return
        if self._cell is not None:
            self._cell += data
        elif self._row is None and (data.strip() or self._preformatted):
            # A Markdown text around a table keeps its lines.
            *whole, self._line = (self._line + data).split("\n")
            self._lines += whole

    def _end_cell(self) -> None:
        if self._cell is not None and self._row is not None:
            self._row.append(" ".join(self._cell.split()))
        self._cell = None

    def _end(self) -> None:
        """End the row, or the line of text."""
        self._end_cell()
        if self._row:
            self._lines.append("\t".join(cell or "-" for cell in self._row))
        elif self._line:
            self._lines.append(self._line)
        self._row, self._line = None, ""
