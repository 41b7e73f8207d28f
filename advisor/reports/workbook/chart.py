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
from advisor.reports.budget_bar import words
from advisor.reports.workbook.evidence import Captures
from advisor.reports.workbook.sheet import FIRST, LAST, GridSheet
from advisor.reports.workbook.style import HEAD, HEADER, LINE, MUTED, SPARE_COLOURS

if TYPE_CHECKING:
    from openpyxl.worksheet.worksheet import Worksheet

#: Parts below this share of every bar are only on the sheet Steps.
LEAST = 0.005
MOST_BARS = 12
#: Size of a cell of the grid.
COLUMN_CM, ROW_CM = 2.2, 0.58


def budget(grid: GridSheet, captures: Captures) -> None:
    """The table of shares and the chart beside it."""
    ws, first, last = grid.ws, FIRST, LAST
    named = _bars(captures)
    if not named:
        return
    parts = _parts([b for _, b in named])
    grid.heading("Where the time of the GPU goes", "exclusive parts of the window, which add up")
    head = grid.row
    wide = len(named) > 1
    if wide:
        _table(grid, named, parts, first)
        chart = _stacked(ws, head, parts, len(named), first)
    else:
        _short(grid, named[0][1], parts, first)
        chart = _single(ws, head, parts, first)
    chart.height = 2.8 + 1.0 * len(named) if wide else max(6.5, 0.62 * (len(parts) + 2))
    if wide:
        # Below its table, over the whole width.
        chart.anchor = ws.cell(grid.row, first).coordinate
        chart.width = (last - first + 1) * COLUMN_CM
        grid.row += int(chart.height / ROW_CM) + 2
    else:
        # To the right of its table.
        chart.anchor = ws.cell(head, first + 5).coordinate
        chart.width = (last - first - 4) * COLUMN_CM
        grid.row = max(grid.row, head + int(chart.height / ROW_CM) + 1)
    ws.add_chart(chart)


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


def _parts(budgets: Sequence[Budget]) -> list[str]:
    """Parts large enough for a line, in the order of the document."""
    order = dict.fromkeys(p.part for b in budgets for p in b.parts)
    share = {p: max((q.share for b in budgets for q in b.parts if q.part == p), default=0.0) for p in order}
    kept = [p for p in order if share[p] >= LEAST]
    # A single bar is easiest to read from its largest part down.
    return kept if len(budgets) > 1 else sorted(kept, key=lambda p: -share[p])


def _short(grid: GridSheet, budget: Budget, parts: Sequence[str], first: int) -> None:
    """Part, share and time, largest first; the chart stands to the right."""
    by = {p.part: p for p in budget.parts}
    for column, text in ((first, "part"), (first + 2, "share"), (first + 3, "ms")):
        grid.merged(column, column + (column == first), text, **HEADER, right=column != first)
    for part in parts:
        grid.row += 1
        grid.merged(first, first + 1, words(part))
        grid.merged(first + 2, first + 2, by[part].share, unit="ratio", right=True)
        grid.merged(first + 3, first + 3, by[part].ms, unit="fixed", right=True)
    rest = 1.0 - sum(by[p].share for p in parts)
    if rest > 0.0005:
        grid.row += 1
        grid.merged(first, first + 1, "smaller parts", color=MUTED)
        grid.merged(first + 2, first + 2, rest, unit="ratio", right=True)
    grid.row += 1


def _table(grid: GridSheet, named: Sequence[tuple[str, Budget]], parts: Sequence[str], first: int) -> None:
    """A row a bar, a column a part."""
    grid.merged(first, first + 1, "", ground=HEAD)
    for i, part in enumerate(parts):
        grid.merged(first + 2 + i, first + 2 + i, words(part), **(HEADER | {"size": 8}), right=True)
    for name, b in named:
        grid.row += 1
        by = {p.part: p.share for p in b.parts}
        grid.merged(first, first + 1, name)
        for i, part in enumerate(parts):
            grid.merged(first + 2 + i, first + 2 + i, by.get(part, 0.0), unit="ratio", right=True)
        grid.rule()
    grid.row += 1


def _colour(part: str, number: int) -> str:
    known = PARTS.get(part)
    return known.plain if known else SPARE_COLOURS[number % len(SPARE_COLOURS)]


def _single(ws: Worksheet, head: int, parts: Sequence[str], first: int) -> BarChart:
    """One bar a part, each in its colour, with its share as a label."""
    chart = _chart("clustered")
    last = head + len(parts)
    chart.add_data(Reference(ws, min_col=first + 2, min_row=head + 1, max_row=last))
    chart.set_categories(Reference(ws, min_col=first, min_row=head + 1, max_row=last))
    series = chart.series[0]
    for i, part in enumerate(parts):
        point = DataPoint(idx=i)
        point.graphicalProperties = _filled(_colour(part, i))
        series.dPt.append(point)
    series.dLbls = _labels()
    series.dLbls.dLblPos = "outEnd"
    chart.legend = None
    chart.gapWidth = 35
    # The labels contain the numbers; room is left for the one of the longest bar.
    chart.y_axis.delete = True
    chart.y_axis.majorGridlines = None
    chart.y_axis.scaling.max = 1.15 * float(ws.cell(head + 1, first + 2).value or 1.0)
    chart.x_axis.scaling.orientation = "maxMin"
    chart.y_axis.crosses = "max"
    return chart


def _stacked(ws: Worksheet, head: int, parts: Sequence[str], bars: int, first: int) -> BarChart:
    """One stacked bar a device or capture."""
    chart = _chart("percentStacked")
    chart.overlap = 100
    for i, part in enumerate(parts):
        column = first + 2 + i
        values = Reference(ws, min_col=column, min_row=head, max_row=head + bars)
        chart.add_data(values, titles_from_data=True)
        chart.series[i].graphicalProperties = _filled(_colour(part, i))
    chart.set_categories(Reference(ws, min_col=first, min_row=head + 1, max_row=head + bars))
    chart.legend.position = "b"
    chart.gapWidth = 45
    chart.y_axis.scaling.max = 1.0
    chart.x_axis.scaling.orientation = "maxMin"
    chart.y_axis.crosses = "max"
    return chart


def _chart(grouping: str) -> BarChart:
    chart = BarChart()
    chart.type = "bar"
    chart.grouping = grouping
    chart.style = 10
    chart.y_axis.numFmt = "0%"
    chart.y_axis.number_format = "0%"
    chart.y_axis.scaling.min = 0.0
    chart.y_axis.majorGridlines.spPr = GraphicalProperties(ln=LineProperties(solidFill=LINE))
    for axis in (chart.x_axis, chart.y_axis):
        axis.delete = False
        axis.title = None
        axis.txPr = _text(900)
        axis.spPr = GraphicalProperties(ln=LineProperties(solidFill=LINE))
    chart.graphical_properties = GraphicalProperties(ln=LineProperties(noFill=True))
    return chart


def _filled(color: str) -> GraphicalProperties:
    shape = GraphicalProperties(solidFill=color)
    shape.line.solidFill = "FFFFFF"
    shape.line.width = 6350
    return shape


def _labels() -> DataLabelList:
    labels = DataLabelList()
    labels.showVal = True
    for other in ("showSerName", "showCatName", "showLegendKey", "showPercent"):
        setattr(labels, other, False)
    labels.numFmt = "0.0%"
    labels.txPr = _text(900)
    return labels


def _text(size: int) -> RichText:
    look = CharacterProperties(sz=size, solidFill="1C2127")
    return RichText(p=[Paragraph(pPr=ParagraphProperties(defRPr=look), endParaRPr=look)])
