"""Blocks as a page of HTML. No scripts; light and dark, printable."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby

from advisor import __version__
from advisor.model.comparison import Comparison, ContextScaling, PartChange
from advisor.model.numbers import milliseconds
from advisor.reports.blocks import Block, Gap, Grid, Heading, Report, columns
from advisor.reports.budget_bar import signs, words
from advisor.reports.compare_blocks import change
from advisor.reports.html.budget import Bar, BudgetView, Piece, budget_view, piece_css
from advisor.reports.html.report import environment
from advisor.reports.html.tables import CellView, TableView
from advisor.reports.layout import clean, cut_middle, name_text

#: Names in tables are not longer; the whole one shows on pointing at it.
NAME = 72
#: Columns that blocks count on.
WIDTH = 80
#: Parts smaller than this share of the longer side are in the tables alone.
SMALL = 0.005


@dataclass
class Section:
    """A heading and what follows it; `id` is its place in the page."""

    id: str
    title: str
    note: str = ""
    blocks: list[Block | BudgetView] = field(default_factory=list)


def page(report: Report) -> bytes:
    """One page with every block. A chart of both sides takes the place of the tables under `Budget`."""
    doc = report.documents[0]
    charts: dict[str, BudgetView] = {}
    if isinstance(doc, Comparison | ContextScaling):
        names = ("before", "after") if isinstance(doc, Comparison) else ("short", "long")
        if (view := change_view(doc.budget, names)) is not None:
            charts = {"Budget": view}
    sections = _sections(report.whole() if report.whole else report.blocks(WIDTH), charts)
    known = environment()
    known.globals |= {"runs": runs}
    known.filters |= {"grid": _table, "budgets": budget_view}
    text = known.get_template("blocks.html.j2").render(
        title=report.title, version=__version__, head=sections[0], sections=sections[1:]
    )
    return text.encode("utf-8", "replace")


def _sections(blocks: Iterable[Block], charts: Mapping[str, BudgetView]) -> list[Section]:
    out = [Section("top", "")]
    for block in blocks:
        here = out[-1]
        if isinstance(block, Heading):
            out.append(Section(f"s{len(out)}", block.text, block.note))
            if block.text in charts:
                out[-1].blocks.append(charts[block.text])
        elif not (isinstance(block, Grid) and any(isinstance(b, BudgetView) for b in here.blocks)):
            here.blocks.append(block)
    return out


def runs(blocks: Sequence[Block]) -> list[tuple[str, list[Block]]]:
    """Blocks of one kind that follow each other stand in one list; kind and blocks."""
    grouped = groupby((b for b in blocks if not isinstance(b, Gap)), lambda b: type(b).__name__.lower())
    return [(kind, list(some)) for kind, some in grouped]


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
