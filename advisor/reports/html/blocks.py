"""Blocks as a page of HTML: comparisons and their kin. No scripts; light and dark, printable."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from advisor.model.comparison import PartChange
from advisor.model.numbers import milliseconds
from advisor.reports.blocks import Block, Grid, Heading, Paragraph, columns
from advisor.reports.budget_bar import signs, words
from advisor.reports.compare_blocks import change
from advisor.reports.html.budget import Bar, BudgetView, Piece, piece_css
from advisor.reports.html.report import environment
from advisor.reports.html.tables import CellView, TableView
from advisor.reports.layout import clean, cut_middle, name_text

#: Names in tables are not longer; the whole one shows on pointing at it.
NAME = 72
#: Parts smaller than this share of the longer side are in the tables alone.
SMALL = 0.005


@dataclass
class Section:
    """A heading and what follows it; `id` is its place in the page."""

    id: str
    title: str
    note: str = ""
    items: list[tuple[str, object]] = field(default_factory=list)


def render(title: str, version: str, blocks: Iterable[Block], charts: Mapping[str, BudgetView]) -> bytes:
    """One page. A chart of `charts` takes the place of the tables under its heading."""
    sections = _sections(blocks, charts)
    text = (
        environment()
        .get_template("blocks.html.j2")
        .render(title=title, version=version, head=sections[0], sections=sections[1:])
    )
    return text.encode("utf-8", "replace")


def _sections(blocks: Iterable[Block], charts: Mapping[str, BudgetView]) -> list[Section]:
    out = [Section("top", "")]
    for block in blocks:
        here = out[-1]
        if isinstance(block, Heading):
            out.append(Section(f"s{len(out)}", block.text, block.note))
            if block.text in charts:
                out[-1].items.append(("chart", charts[block.text]))
        elif isinstance(block, Grid):
            if not any(kind == "chart" for kind, _ in here.items):  # which says the same
                here.items.append(("table", _table(block)))
        elif isinstance(block, Paragraph):
            here.items.append(("strong" if block.strong else "text", block.text))
        else:
            here.items.append((type(block).__name__.lower(), block))
    return out


def _table(grid: Grid) -> TableView:
    made = columns(grid)
    rows = [[_cell(cells[r], number) for _, cells, number in made] for r in range(len(grid.rows))]
    return TableView("", [(clean(head), number) for head, _, number in made], rows)


def _cell(text: str, number: bool) -> CellView:
    if number:
        return CellView(clean(text))
    name = clean(name_text(text))
    short = cut_middle(name, NAME)
    return CellView(short, full=clean(text) if short != clean(text) else "")


# ---------------------------------------------------------------- the budget of both sides


def change_view(parts: Iterable[PartChange], names: tuple[str, str]) -> BudgetView | None:
    """A bar for each side, both to the scale of the longer one; None without parts."""
    rows = [p for p in parts if p.phase is None]
    whole = [sum(p.before_ms for p in rows), sum(p.after_ms for p in rows)]
    longest = max(whole, default=0.0)
    if longest <= 0:
        return None
    order = [p.part for p in rows]
    given = signs(order, "C")

    def piece(part: str, ms: float) -> Piece:
        return Piece(
            part,
            words(part),
            given[part][0],
            piece_css(part),
            ms / longest,
            f"{milliseconds(ms)} ms",
            "a step",
        )

    bars = []
    for i, name in enumerate(names):
        pieces = [piece(p.part, (p.before_ms, p.after_ms)[i]) for p in rows]
        rest = longest - whole[i]
        if rest > SMALL * longest:
            pieces.append(
                Piece(
                    "", "shorter by", "", "p-none", rest / longest, f"{milliseconds(rest)} ms less", "a step"
                )
            )
        shown = [p for p in pieces if p.share > 0]
        bars.append(Bar(name, f"{milliseconds(whole[i])} ms a step", shown))
    kept = [p for p in rows if max(p.before_ms, p.after_ms) >= SMALL * longest]
    kept.sort(key=lambda p: -abs(p.change_ms))
    legend = [
        (
            piece(p.part, 0.0),
            [
                milliseconds(p.before_ms),
                milliseconds(p.after_ms),
                f"{p.change_ms:+,.2f}",
                change(p.before_ms, p.after_ms),
            ],
        )
        for p in kept
    ]
    heads = [f"{names[0]}, ms a step", names[1], "change", ""]
    return BudgetView(bars, heads, legend, "")
