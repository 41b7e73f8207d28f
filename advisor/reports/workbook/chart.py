"""The budget of the window as a native chart beside its numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from openpyxl.chart import BarChart, Reference
from openpyxl.chart.label import DataLabelList
from openpyxl.chart.series import DataPoint
from openpyxl.chart.shapes import GraphicalProperties
from openpyxl.chart.text import RichText
from openpyxl.drawing.line import LineProperties
from openpyxl.drawing.text import CharacterProperties, Paragraph, ParagraphProperties

from advisor.model.findings import Budget
from advisor.model.parts import PARTS
from advisor.reports.budget_bar import shares, words
from advisor.reports.workbook.evidence import Captures
from advisor.reports.workbook.sheet import FIRST, LAST, GridSheet
from advisor.reports.workbook.style import HEAD, HEADER, INK, LINE, MUTED, SPARE_COLOURS

if TYPE_CHECKING:
    from openpyxl.worksheet.worksheet import Worksheet

#: Parts below this share of every bar are only on the sheet Steps.
LEAST = 0.005
MOST_BARS = 12
#: Size of a cell of the grid.
COLUMN_CM, ROW_CM = 2.2, 0.58


def budget(grid: GridSheet, captures: Captures) -> None:
    """The table of shares and the chart beside it."""
    named = _bars(captures)
    if not named:
        return
    held = shares([b for _, b in named], LEAST)
    # A single bar is easiest to read from its largest part down.
    parts = held.parts if len(named) == 1 else [p for p in held.cells if p in held.parts]
    grid.heading("Where the time of the GPU goes", "exclusive parts of the window, which add up")
    head = grid.row
    if len(named) > 1:
        _table(grid, named, parts)
        chart = _stacked(grid.ws, head, parts, len(named))
        # Below its table, over the whole width.
        chart.height = 2.8 + 1.0 * len(named)
        chart.anchor = grid.ws.cell(grid.row, FIRST).coordinate
        chart.width = (LAST - FIRST + 1) * COLUMN_CM
        grid.row += int(chart.height / ROW_CM) + 2
    else:
        _short(grid, named[0][1], parts)
        chart = _single(grid.ws, head, parts)
        # To the right of its table.
        chart.height = max(6.5, 0.62 * (len(parts) + 2))
        chart.anchor = grid.ws.cell(head, FIRST + 5).coordinate
        chart.width = (LAST - FIRST - 4) * COLUMN_CM
        grid.row = max(grid.row, head + int(chart.height / ROW_CM) + 1)
    grid.ws.add_chart(chart)


def _bars(captures: Captures) -> list[tuple[str, Budget]]:
    """One bar a device, one for each phase where there is room."""
    many = captures.many
    found = []
    for label, d in captures:
        whole = [b for b in d.budget if b.phase is None]
        for b in whole:
            name = label if many else b.place
            found.append((f"{name}, {b.place}" if many and len(whole) > 1 else name, b))
        phases = [b for b in d.budget if b.phase is not None]
        if not many and len(whole) + len(phases) <= MOST_BARS:
            found += [(f"{b.place}, {b.phase}", b) for b in phases]
    return found[:MOST_BARS]


#: Columns of the name of a part or bar (two of the grid), and of its first number.
NAME, VALUE = FIRST, FIRST + 2


def _short(grid: GridSheet, budget: Budget, parts: Sequence[str]) -> None:
    """Part, share and time, largest first; the chart stands to the right."""
    by = {p.part: p for p in budget.parts}
    grid.merged(NAME, NAME + 1, "part", **HEADER)
    for column, text in ((VALUE, "share"), (VALUE + 1, "ms")):
        grid.merged(column, column, text, **HEADER, right=True)
    for part in parts:
        grid.row += 1
        grid.merged(NAME, NAME + 1, words(part))
        grid.merged(VALUE, VALUE, by[part].share, unit="ratio", right=True)
        grid.merged(VALUE + 1, VALUE + 1, by[part].ms, unit="fixed", right=True)
    rest = 1.0 - sum(by[p].share for p in parts)
    if rest > 0.0005:
        grid.row += 1
        grid.merged(NAME, NAME + 1, "smaller parts", color=MUTED)
        grid.merged(VALUE, VALUE, rest, unit="ratio", right=True)
    grid.row += 1


def _table(grid: GridSheet, named: Sequence[tuple[str, Budget]], parts: Sequence[str]) -> None:
    """A row a bar, a column a part."""
    grid.merged(NAME, NAME + 1, "", ground=HEAD)
    for column, part in enumerate(parts, VALUE):
        grid.merged(column, column, words(part), **(HEADER | {"size": 8}), right=True)
    for name, b in named:
        grid.row += 1
        by = {p.part: p.share for p in b.parts}
        grid.merged(NAME, NAME + 1, name)
        for column, part in enumerate(parts, VALUE):
            grid.merged(column, column, by.get(part, 0.0), unit="ratio", right=True)
        grid.rule()
    grid.row += 1


def _single(ws: Worksheet, head: int, parts: Sequence[str]) -> BarChart:
    """One bar a part, each in its colour, with its share as a label."""
    chart = _chart("clustered", gap=35)
    last = head + len(parts)
    chart.add_data(Reference(ws, min_col=VALUE, min_row=head + 1, max_row=last))
    chart.set_categories(Reference(ws, min_col=NAME, min_row=head + 1, max_row=last))
    series = chart.series[0]
    for i, part in enumerate(parts):
        point = DataPoint(idx=i)
        point.graphicalProperties = _filled(part, i)
        series.dPt.append(point)
    hidden = dict.fromkeys(("showSerName", "showCatName", "showLegendKey", "showPercent"), False)
    series.dLbls = DataLabelList(numFmt="0.0%", txPr=_text(), dLblPos="outEnd", showVal=True, **hidden)
    chart.legend = None
    # The labels contain the numbers; room is left for the one of the longest bar.
    chart.y_axis.delete = True
    chart.y_axis.majorGridlines = None
    chart.y_axis.scaling.max = 1.15 * float(ws.cell(head + 1, VALUE).value or 1.0)
    return chart


def _stacked(ws: Worksheet, head: int, parts: Sequence[str], bars: int) -> BarChart:
    """One stacked bar a device or capture."""
    chart = _chart("percentStacked", gap=45)
    chart.overlap = 100
    for i, part in enumerate(parts):
        values = Reference(ws, min_col=VALUE + i, min_row=head, max_row=head + bars)
        chart.add_data(values, titles_from_data=True)
        chart.series[i].graphicalProperties = _filled(part, i)
    chart.set_categories(Reference(ws, min_col=NAME, min_row=head + 1, max_row=head + bars))
    chart.legend.position = "b"
    chart.y_axis.scaling.max = 1.0
    return chart


def _chart(grouping: str, gap: int) -> BarChart:
    """Horizontal bars, the first one on top."""
    chart = BarChart(grouping=grouping, gapWidth=gap)
    chart.type = "bar"
    chart.style = 10
    chart.y_axis.numFmt = "0%"
    chart.y_axis.number_format = "0%"
    chart.y_axis.scaling.min = 0.0
    chart.y_axis.majorGridlines.spPr = GraphicalProperties(ln=LineProperties(solidFill=LINE))
    for axis in (chart.x_axis, chart.y_axis):
        axis.delete = False
        axis.title = None
        axis.txPr = _text()
        axis.spPr = GraphicalProperties(ln=LineProperties(solidFill=LINE))
    chart.x_axis.scaling.orientation = "maxMin"
    chart.y_axis.crosses = "max"
    chart.graphical_properties = GraphicalProperties(ln=LineProperties(noFill=True))
    return chart


def _filled(part: str, number: int) -> GraphicalProperties:
    """The colour of a part, with a white edge."""
    colour = PARTS[part].plain if part in PARTS else SPARE_COLOURS[number % len(SPARE_COLOURS)]
    return GraphicalProperties(solidFill=colour, ln=LineProperties(solidFill="FFFFFF", w=6350))


def _text() -> RichText:
    look = CharacterProperties(sz=900, solidFill=INK)
    return RichText(p=[Paragraph(pPr=ParagraphProperties(defRPr=look), endParaRPr=look)])
