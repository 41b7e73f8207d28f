"""Blocks as text: lines of a page."""

from __future__ import annotations

import math
from collections.abc import Iterable
from itertools import takewhile

from rich.cells import cell_len

from advisor.reports import blocks as b
from advisor.reports import budget_bar
from advisor.reports.layout import Page, cut_middle, pad

#: Columns of a label before its text.
LABEL = 10
#: Signs of a heat map: nothing, then a quarter more each.
SHADES, PLAIN_SHADES = " ░▒▓█", " .:=#"
#: Columns of kernels that only documents, pages and workbooks have: the operation and the median say most.
OF_KERNELS = frozenset(("family", "p95", "p99", "max"))


def document(report: b.Report) -> bytes:
    """Plain text of 80 columns."""
    return f"{plain(report.blocks(Page().width))}\n".encode("utf-8", "replace")


def plain(blocks: Iterable[b.Block], indent: int = 2) -> str:
    """Blocks as lines of 80 columns without colours."""
    page = Page()
    write(page, blocks, indent)
    return "\n".join(line.plain for line in page.lines)


def write(page: Page, blocks: Iterable[b.Block], indent: int = 2) -> None:
    """Blocks as lines of a page; consecutive labels share one indent."""
    before: b.Block | None = None
    listed, hang = list(blocks), LABEL
    for i, block in enumerate(listed):
        match block:
            case b.Title(text):
                page.line((cut_middle(text, page.width, page.glyphs.ellipsis), "bold"))
            case b.Heading(text, note):
                page.heading(text, note)
            case b.Paragraph(text, strong, dense):
                if before is not None and not isinstance(before, b.Heading) and not dense:
                    page.blank()
                page.wrapped(text, style="bold" if strong else "")
            case b.Labelled(label):
                if not isinstance(before, b.Labelled):  # labels that follow each other share one indent
                    run = takewhile(lambda x: isinstance(x, b.Labelled), listed[i:])
                    hang = max(LABEL, *(len(getattr(x, "label", "")) + 2 for x in run))
                page.labelled(label, block.shown, indent, hang)
            case b.Places():
                write(page, block.labelled, indent)
            case b.Command(text):
                page.command(text)
            case b.Bars(budgets, False):
                budget_bar.full(page, budgets)
            case b.Bars(budgets, _, ranks):
                budget_bar.brief(page, budgets, ranks)
            case b.Heat():
                heat(page, block)
            case b.Rule():
                page.blank()
                page.line(page.glyphs.rule * page.width)
                page.blank()
            case b.Gap():
                page.blank()
            case b.Next(text, when):
                page.line((f"{when} ", "dim"), (text, "bold"))
            case b.Item():
                _item(page, block)
            case b.Do():
                _do(page, block, indent)
            case b.Entry():
                _entry(page, block)
            case b.Fold(text, note, inside):
                page.heading(text, note)
                write(page, inside)
            case b.Grid():
                if block.title:
                    page.labelled("evidence", block.title, indent, LABEL)
                _grid(page, block)
        before = block


def heat(page: Page, block: b.Heat) -> None:
    """A line a lane, darker where more of a bin is busy."""
    shades = SHADES if page.glyphs.bar == "█" else PLAIN_SHADES
    wide = max(cell_len(name) for name, _, _ in block.lanes)
    for name, mean, shares in block.lanes:
        signs = "".join(shades[math.ceil((share or 0) * (len(shades) - 1))] for share in shares)
        page.line(f"  {pad(name, wide)}  ", (signs, "green"), f"  {mean:>5} %")
    page.wrapped(f"{block.begin} to {block.end}", [" " * (wide + 4)], wide + 4, "dim")


def _item(page: Page, item: b.Item) -> None:
    glyphs = page.glyphs
    sign, style = {
        "ok": (glyphs.ok, "green"),
        "no": (glyphs.no, "red"),
        "partly": (glyphs.partly, "yellow"),
        "?": ("?", "yellow"),
        **{v: (g, b.LEVEL_STYLE[v]) for v, g in glyphs.levels.items()},
    }.get(item.sign, (item.sign, ""))
    lead = (f"{sign} " if sign else "", style)
    page.wrapped(item.text, ["  ", lead, (f"{item.code}: " if item.code else "", "bold")], 4)
    for note in item.notes:
        page.wrapped(note, ["      "], 8, "dim")
    if item.url:
        page.wrapped(item.url, ["    "], 4, "dim")
    with page.indented(2):
        write(page, item.below)


def _do(page: Page, do: b.Do, indent: int) -> None:
    margin = indent + LABEL
    page.wrapped(do.text, [(" " * indent + pad(do.label, LABEL), "bold green")], margin)
    for engine, line, remark in do.lines:
        text = f"{line} ({remark})" if remark else line
        page.wrapped(text, [" " * (margin + 2), (f"{engine}: " if engine else "", "dim")], margin + 4)
    if do.note:
        page.line(" " * (margin + 2), (do.note, "dim"))
    if do.verify:
        page.wrapped(do.verify, [" " * margin, ("verify: ", "dim")], margin + 2)


def _entry(page: Page, entry: b.Entry) -> None:
    page.blank()
    sign = page.glyphs.levels.get(entry.level, page.glyphs.levels["info"])
    page.line(
        (f"{entry.number}. ", "bold"),
        (f"{sign} {entry.level.upper():<6} ", b.LEVEL_STYLE[entry.level]),
        (entry.name, "bold"),
        (f"  {entry.note}" if entry.note else "", "dim"),
        (f"  [{entry.state}]" if entry.state else "", b.STATE_STYLE.get(entry.state, "dim")),
    )
    with page.indented(3):
        write(page, entry.blocks, 0)


def _grid(page: Page, grid: b.Grid) -> None:
    if not grid.rows:
        return
    made = b.columns(grid)
    kernels = made[0][0] == "kernel"
    if kernels:  # names need the room
        made = [column for column in made if column[0].split(" ")[0] not in OF_KERNELS]
    signs = page.glyphs.levels
    # A sign and a word, readable without colour.
    words = {v: f"{signs.get(v, signs['info'])} {v.upper()}" for v in b.LEVEL_STYLE}
    shown = {"severity": words, "level": signs}
    cells = [[shown.get(head, {}).get(c, c) for c in texts] for head, texts, _ in made]
    styles = {own[v]: b.LEVEL_STYLE[v] for own in shown.values() for v in own}
    heads = ["" if m[0] == "level" else m[0] for m in made]
    whole = heads[0] == "called from"  # the functions are what a reader looks for
    page.table(
        heads, [(c, m[2]) for c, m in zip(cells, made, strict=True)], 2, styles, grid.wrapped, whole, kernels
    )
    if grid.more:
        page.line("  ", (f"... and {grid.more} more ({'-vv' if grid.title else '-v'})", "dim"))
