"""Tables of the HTML report: finished texts, numbers to sort by, whole names behind short ones."""

from __future__ import annotations

from dataclasses import dataclass

from advisor.model.facts import Cell
from advisor.model.numbers import heading_parts
from advisor.reports.blocks import Grid, Number, columns
from advisor.reports.layout import clean, cut_middle, name_text

NAME = 84
#: Up to here a text stays on one line; from there on it may break anywhere.
SHORT, LONG = 22, 40


@dataclass(frozen=True)
class CellView:
    """One cell: `text` is short, `full` the whole name where it was cut, `sort` its number, `bar` its
    share; `link` is the place in the page that it leads to."""

    text: str
    full: str = ""
    sort: float | None = None
    bar: float | None = None
    link: str = ""

    @property
    def is_long(self) -> bool:
        return len(self.text) > LONG

    @property
    def is_short(self) -> bool:
        return len(self.text) <= SHORT


@dataclass(frozen=True)
class TableView:
    """`heads` with whether their cells are numbers."""

    grid: Grid
    heads: list[tuple[str, bool]]
    rows: list[list[CellView]]

    @property
    def has_long_names(self) -> bool:
        return any(c.full for row in self.rows for c in row)


def table_view(grid: Grid) -> TableView:
    """A table as it stands, with numbers to sort by and bars under shares."""
    made = columns(grid)
    rows = [
        [
            _cell(cell, made[c][1][r], made[c][2], heading_parts(grid.heads[c])[1])
            for c, cell in enumerate(row)
        ]
        for r, row in enumerate(grid.rows)
    ]
    return TableView(grid, [(clean(head), number) for head, _, number in made], rows)


def _cell(value: Cell | Number, text: str, number: bool, unit: str) -> CellView:
    if isinstance(value, Number):
        value = value.value
    if isinstance(value, int | float) and not isinstance(value, bool):
        share = float(value) if unit == "ratio" and 0 <= value <= 1 else None
        return CellView(clean(text), sort=float(value), bar=share)
    name = clean(text if number else name_text(text))
    short = cut_middle(name, NAME)
    return CellView(short, full=clean(text) if short != clean(text) else "")
