"""Tables of the HTML report: finished texts, numbers to sort by, whole names behind short ones."""

from __future__ import annotations

from dataclasses import dataclass

from advisor.model.facts import Cell, Table
from advisor.model.findings import Diagnosis
from advisor.model.numbers import column, fact_unit, heading_parts, value_text
from advisor.reports.layout import clean, cut_middle, name_text

NAME = 84
#: Up to here a text stays on one line; from there on it may break anywhere.
SHORT, LONG = 22, 40


@dataclass(frozen=True)
class CellView:
    """One cell: `text` is short, `full` the whole name where it was cut, `sort` its number."""

    text: str
    full: str = ""
    sort: float | None = None
    bar: float | None = None

    @property
    def is_long(self) -> bool:
        return len(self.text) > LONG

    @property
    def is_short(self) -> bool:
        return len(self.text) <= SHORT


@dataclass(frozen=True)
class TableView:
    title: str
    heads: list[tuple[str, bool]]
    rows: list[list[CellView]]
    key: str = ""

    @property
    def has_long_names(self) -> bool:
        return any(c.full for row in self.rows for c in row)


def table_view(table: Table, key: str = "") -> TableView:
    """A table as it stands, with numbers to sort by and bars under shares."""
    made = [column(h, [r[i] for r in table.rows]) for i, h in enumerate(table.columns)]
    units = [heading_parts(h)[1] for h in table.columns]
    rows = [
        [_cell(table.rows[r][c], made[c][1][r], made[c][2], units[c]) for c in range(len(table.columns))]
        for r in range(len(table.rows))
    ]
    heads = [(clean(m[0]), m[2]) for m in made]
    return TableView(clean(table.title), heads, rows, key)


def _cell(value: Cell, text: str, number: bool, unit: str) -> CellView:
    if number and value is not None and not isinstance(value, str):
        share = float(value) if unit == "ratio" and 0 <= value <= 1 else None
        return CellView(text, sort=float(value), bar=share)
    name = clean(name_text(text))
    short = cut_middle(name, NAME)
    return CellView(short, full=clean(text) if short != clean(text) else "")


def fact_rows(diagnosis: Diagnosis) -> TableView | None:
    if not diagnosis.facts:
        return None
    rows = []
    for f in diagnosis.facts:
        number = isinstance(f.value, int | float) and not isinstance(f.value, bool)
        source = ", ".join(f.tables) + (f" ({f.method})" if f.method else "")
        rows.append(
            [
                CellView(clean(f.name)),
                CellView(
                    clean(value_text(f.value, fact_unit(f.name, f.unit))),
                    sort=float(f.value) if number else None,
                ),
                CellView(clean(f.scope.label()) or "whole capture"),
                CellView(clean(source)),
            ]
        )
    heads = [("fact", False), ("value", True), ("scope", False), ("from", False)]
    return TableView("Facts", heads, rows, "facts")


def threshold_rows(diagnosis: Diagnosis) -> TableView | None:
    if not diagnosis.thresholds:
        return None
    rows = [
        [
            CellView(f"{clean(t.code)}.{clean(t.param)}"),
            CellView(clean(value_text(t.value, t.unit)) + (" *" if t.value != t.default else "")),
            CellView(clean(value_text(t.default, t.unit))),
            CellView(clean(f"{t.origin}, {t.source}" if t.source else t.origin)),
        ]
        for t in diagnosis.thresholds
    ]
    heads = [("parameter", False), ("value", True), ("default", True), ("origin", False)]
    return TableView("Thresholds", heads, rows, "thresholds")
