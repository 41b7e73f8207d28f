"""The grid of the summary sheet: twelve equal columns beside a margin, cells that span them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from openpyxl.utils import get_column_letter

from advisor.reports.workbook.sheet import LINE_HEIGHT, Sheet
from advisor.reports.workbook.style import INK, MUTED, UNDER, align, fill, font, lines_of, plain, put

if TYPE_CHECKING:
    from openpyxl.worksheet.worksheet import Worksheet

FIRST, LAST, WIDTH = 2, 13, 11.5


class Board(Sheet):
    """The summary sheet, on its grid."""

    def __init__(self, worksheet: Worksheet) -> None:
        super().__init__(worksheet)
        self.row = 2
        worksheet.column_dimensions["A"].width = 2
        for column in range(FIRST, LAST + 1):
            worksheet.column_dimensions[get_column_letter(column)].width = WIDTH

    def merged(
        self,
        first: int,
        last: int,
        value: Any,
        *,
        unit: str = "",
        size: float = 10.5,
        color: str = INK,
        bold: bool = False,
        ground: str | None = None,
        right: bool = False,
        middle: bool = False,
        height: float | None = None,
        indent: bool = False,
    ) -> None:
        """Columns `first` to `last` of the current row as one cell."""
        cell = put(self.ws.cell(self.row, first), value, unit)
        cell.font = font(size, color, bold=bold)
        cell.alignment = align(wrap=True, right=right, middle=middle, indent=int(right or indent))
        for column in range(first, last + 1):
            if ground:
                self.ws.cell(self.row, column).fill = fill(ground)
        if last > first:
            self.ws.merge_cells(start_row=self.row, end_row=self.row, start_column=first, end_column=last)
        text = plain(value) if isinstance(value, str) else ""
        lines = lines_of(text, (last - first + 1) * WIDTH - 1.5 * indent, size)
        self.tall(height or lines * LINE_HEIGHT * size / 10.5 + 3)

    def tall(self, height: float) -> None:
        """The row is at least this high."""
        now = self.ws.row_dimensions[self.row].height or 0.0
        self.ws.row_dimensions[self.row].height = max(now, height)

    def heading(self, value: str, note: str = "") -> None:
        self.row += 1
        self.merged(FIRST, LAST, value, size=12.5, bold=True)
        self.row += 1
        if note:
            self.merged(FIRST, LAST, note, color=MUTED)
            self.row += 1

    def rule(self) -> None:
        for column in range(FIRST, LAST + 1):
            self.ws.cell(self.row, column).border = UNDER
