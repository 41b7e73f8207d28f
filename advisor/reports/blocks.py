"""A document as a tree of blocks, said once and written by each format; here the writer of text."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from advisor.model.facts import Cell
from advisor.model.findings import Budget
from advisor.model.numbers import column
from advisor.reports import budget_bar
from advisor.reports.layout import Glyphs, Page, cut_middle, pad
from advisor.reports.shell import shell_lines

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
    """Budgets of devices: bars with the largest parts, or not `brief` with all of them."""

    budgets: tuple[Budget, ...]
    brief: bool = True


@dataclass(frozen=True)
class Item:
    """One of a list: a sign (ok, no, partly or none), a code, a text and remarks on it."""

    text: str
    sign: str = ""
    code: str = ""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Do:
    """Advice: what to do, lines that carry it out (engine, line, remark), how to verify it."""

    text: str
    lines: tuple[tuple[str, str, str], ...] = ()
    note: str = ""
    verify: str = ""
    label: str = "do"


@dataclass(frozen=True)
class Gap:
    """An empty line on a page of text."""


@dataclass(frozen=True)
class Next:
    """The one thing to type next."""

    text: str


@dataclass(frozen=True)
class Entry:
    """A finding: number, level and name, and what belongs to it, which opens on demand."""

    number: int
    level: str
    name: str
    note: str
    state: str
    blocks: tuple[Block, ...]


@dataclass(frozen=True)
class Fold:
    """A part with a heading of its own, which opens on demand where a format can do that."""

    text: str
    note: str
    blocks: tuple[Block, ...]


Block = Title | Heading | Paragraph | Labelled | Command | Grid | Bars | Item | Do | Gap | Next | Entry | Fold
#: Levels of findings, and the word for what is no fault.
LEVEL_STYLE = {"high": "bold red", "medium": "yellow", "low": "cyan", "info": "dim", "limit": "bold blue"}
STATE_STYLE = {"new": "bold magenta", "worse": "bold magenta"}


def write(page: Page, blocks: Iterable[Block], indent: int = 2) -> None:
    """Blocks as lines of a page; consecutive labels share one indent."""
    before: Block | None = None
    listed = list(blocks)
    for i, block in enumerate(listed):
        match block:
            case Title(text):
                page.line((cut_middle(text, page.width, page.glyphs.ellipsis), "bold"))
            case Heading(text, note):
                page.heading(text, note)
            case Paragraph(text, strong, dense):
                if before is not None and not isinstance(before, Heading) and not dense:
                    page.blank()
                page.wrapped(text, style="bold" if strong else "")
            case Labelled(label, text):
                page.labelled(label, text, indent, _hang(listed, i))
            case Command(text):
                for line in shell_lines(text, page.width, 2):
                    page.line((line, "bold"))
            case Bars(budgets, brief):
                (budget_bar.brief if brief else budget_bar.full)(page, budgets)
            case Gap():
                page.blank()
            case Next(text):
                page.line(("Next: ", "dim"), (text, "bold"))
            case Item():
                _item(page, block)
            case Do():
                _do(page, block, indent)
            case Entry():
                _entry(page, block)
            case Fold(text, note, inside):
                page.heading(text, note)
                write(page, inside)
            case Grid():
                _grid(page, block)
        before = block


def _item(page: Page, item: Item) -> None:
    glyphs = page.glyphs
    sign = {"ok": glyphs.ok, "no": glyphs.no, "partly": glyphs.partly}.get(item.sign, item.sign)
    lead = f"{sign} " if sign else ""
    page.wrapped(item.text, ["  ", lead, (f"{item.code}: " if item.code else "", "bold")], 4)
    for note in item.notes:
        page.wrapped(note, ["      "], 8, "dim")


def _do(page: Page, do: Do, indent: int) -> None:
    margin = indent + LABEL
    page.wrapped(do.text, [(" " * indent + pad(do.label, LABEL), "bold green")], margin)
    for engine, line, remark in do.lines:
        text = f"{line} ({remark})" if remark else line
        page.wrapped(text, [" " * (margin + 2), (f"{engine}: " if engine else "", "dim")], margin + 4)
    if do.note:
        page.line(" " * (margin + 2), (do.note, "dim"))
    if do.verify:
        page.wrapped(do.verify, [" " * margin, ("verify: ", "dim")], margin + 2)


def _entry(page: Page, entry: Entry) -> None:
    page.blank()
    sign = page.glyphs.levels.get(entry.level, page.glyphs.levels["info"])
    page.line(
        (f"{entry.number}. ", "bold"),
        (f"{sign} {entry.level.upper():<6} ", LEVEL_STYLE[entry.level]),
        (entry.name, "bold"),
        (f"  {entry.note}" if entry.note else "", "dim"),
        (f"  [{entry.state}]" if entry.state else "", STATE_STYLE.get(entry.state, "dim")),
    )
    with page.indented(3):
        write(page, entry.blocks, 0)


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


def first(rows: Sequence[tuple[Cell, ...]], limit: int | None) -> tuple[tuple[tuple[Cell, ...], ...], int]:
    """The first rows, and how many are left out."""
    kept = rows if limit is None else rows[:limit]
    return tuple(kept), len(rows) - len(kept)
