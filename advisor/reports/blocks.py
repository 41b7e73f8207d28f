"""A report as a list of blocks, written once and rendered as text or Markdown.

Comparisons have one shape in every format: headings, sentences, labelled lines and tables.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from advisor.model.facts import Cell
from advisor.model.findings import Budget
from advisor.reports import budget_bar
from advisor.reports.layout import Glyphs, Page, clean, cut_middle, name_text
from advisor.reports.numbers import column

#: A name in a Markdown table is not longer than this.
NAME_WIDTH = 60
#: Texts hang this far behind their labels.
LABEL = 10
#: Finished texts that are lined up like numbers, and those that may stand among them.
_AMOUNT = re.compile(r"[+-]?[\d,]+(?:\.\d+)?(?: (?:%|x|[num]?s|[kMGT]?i?B|tok/s))?")
_NONE = frozenset(("", "-", "new", "gone"))


@dataclass(frozen=True)
class Title:
    """The name of what follows, on one line: a path is cut in the middle."""

    text: str


@dataclass(frozen=True)
class Heading:
    text: str
    note: str = ""


@dataclass(frozen=True)
class Paragraph:
    """Sentences. Where they are `dense` no empty line comes before them."""

    text: str
    strong: bool = False
    dense: bool = False


@dataclass(frozen=True)
class Labelled:
    """A label and what hangs behind it."""

    label: str
    text: str


@dataclass(frozen=True)
class Command:
    """A line for the shell."""

    text: str


@dataclass(frozen=True)
class Grid:
    """A table; heads carry units as those of evidence do: ``before:ms``, ``share:ratio``. A column
    `severity` shows levels with their sign, `level` the sign alone; `wrapped`: the last column may
    take several lines."""

    heads: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    more: int = 0
    wrapped: bool = False


@dataclass(frozen=True)
class Bars:
    """Budgets of devices as bars, with the largest parts."""

    budgets: tuple[Budget, ...]


@dataclass(frozen=True)
class Gap:
    """An empty line on a page of text."""


@dataclass(frozen=True)
class Next:
    """The one thing to type next."""

    text: str


Block = Title | Heading | Paragraph | Labelled | Command | Grid | Bars | Gap | Next
#: Levels of findings, and the word for what is no fault.
LEVEL_STYLE = {"high": "bold red", "medium": "yellow", "low": "cyan", "info": "dim", "limit": "bold blue"}


def write(page: Page, blocks: Iterable[Block]) -> None:
    """Blocks as lines of a page; consecutive labels share one indent."""
    before: Block | None = None
    listed = list(blocks)
    for i, block in enumerate(listed):
        if isinstance(block, Title):
            page.line((cut_middle(block.text, page.width, page.glyphs.ellipsis), "bold"))
        elif isinstance(block, Heading):
            page.heading(block.text, block.note)
        elif isinstance(block, Paragraph):
            if before is not None and not isinstance(before, Heading) and not block.dense:
                page.blank()
            page.wrapped(block.text, style="bold" if block.strong else "")
        elif isinstance(block, Labelled):
            page.labelled(block.label, block.text, 2, _hang(listed, i))
        elif isinstance(block, Command):
            for line in _shell(block.text, page.width):
                page.line(line)
        elif isinstance(block, Bars):
            budget_bar.brief(page, block.budgets)
        elif isinstance(block, Gap):
            page.blank()
        elif isinstance(block, Next):
            page.line(("Next: ", "dim"), (block.text, "bold"))
        else:
            _grid(page, block)
        before = block


def level_text(glyphs: Glyphs, level: str) -> str:
    """``▲ HIGH``: a sign and a word, so that it reads without colour."""
    return f"{glyphs.levels.get(level, glyphs.levels['info'])} {level.upper()}"


def _hang(blocks: Sequence[Block], at: int) -> int:
    """How far the text of a label hangs: as far as the longest label around it wants."""
    widest = LABEL - 2
    for step in (-1, 1):
        i = at
        while 0 <= i < len(blocks) and isinstance(block := blocks[i], Labelled):
            widest = max(widest, len(block.label))
            i += step
    return widest + 2


def _shell(command: str, width: int) -> list[str]:
    from advisor.reports.shell import shell_lines

    return shell_lines(command, width, 2)


def columns(grid: Grid) -> list[tuple[str, list[str], bool]]:
    """Head, cells and whether they are numbers (or texts of numbers) of each column."""
    made = [column(h, [r[i] for r in grid.rows]) for i, h in enumerate(grid.heads)]
    return [
        (head, cells, number or all(c in _NONE or _AMOUNT.fullmatch(c) for c in cells))
        for head, cells, number in made
    ]


def _grid(page: Page, grid: Grid) -> None:
    if not grid.rows:
        return
    made = columns(grid)
    signs = page.glyphs.levels
    shown = {"severity": {v: level_text(page.glyphs, v) for v in LEVEL_STYLE}, "level": signs}
    cells = [[shown.get(head, {}).get(c, c) for c in texts] for head, texts, _ in made]
    styles = {said[v]: LEVEL_STYLE[v] for said in shown.values() for v in said}
    heads = ["" if m[0] == "level" else m[0] for m in made]
    page.table(heads, [(c, m[2]) for c, m in zip(cells, made, strict=True)], 2, styles, grid.wrapped)
    if grid.more:
        page.line("  ", (f"... and {grid.more} more (-v)", "dim"))


def markdown(blocks: Iterable[Block]) -> str:
    """Blocks as GitHub Markdown."""
    lines: list[str] = []
    before: Block | None = None
    for block in blocks:
        if not (isinstance(block, Labelled) and isinstance(before, Labelled)) and lines:
            lines.append("")
        if isinstance(block, Title):
            lines.append(f"## {_escape(block.text)}")
        elif isinstance(block, Heading):
            note = f" ({_escape(block.note)})" if block.note else ""
            lines.append(f"## {_escape(block.text)}{note}")
        elif isinstance(block, Paragraph):
            text = _escape(block.text)
            lines.append(f"**{text}**" if block.strong else text)
        elif isinstance(block, Labelled):
            label = f"**{_escape(block.label)}**: " if block.label else ""
            lines.append(f"- {label}{_escape(block.text)}")
        elif isinstance(block, Command):
            lines += ["```sh", clean(block.text), "```"]
        elif isinstance(block, Grid):
            lines += _md_grid(block)
        elif isinstance(block, Next):
            lines.append(f"Next: `{clean(block.text)}`")
        before = block
    return "\n".join([*lines, ""])


def _md_grid(grid: Grid) -> list[str]:
    if not grid.rows:
        return []
    made = columns(grid)
    lines = [_row(m[0] for m in made), _row("---:" if m[2] else "---" for m in made)]
    for i in range(len(grid.rows)):
        cells = (m[1][i] if m[2] else cut_middle(name_text(m[1][i]), NAME_WIDTH) for m in made)
        lines.append(_row(_escape(c) for c in cells))
    if grid.more:
        lines += ["", f"... and {grid.more} more"]
    return lines


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _escape(text: str) -> str:
    """Names of kernels and ranges are data: nothing in them is Markdown or HTML."""
    out = clean(text)
    for sign in ("\\", "`", "*", "_", "|", "<", ">", "[", "]"):
        out = out.replace(sign, f"\\{sign}" if sign not in "<>" else {"<": "&lt;", ">": "&gt;"}[sign])
    return out


def first(rows: Sequence[tuple[Cell, ...]], limit: int | None) -> tuple[tuple[tuple[Cell, ...], ...], int]:
    """The first rows, and how many are left out."""
    kept = rows if limit is None else rows[:limit]
    return tuple(kept), len(rows) - len(kept)
