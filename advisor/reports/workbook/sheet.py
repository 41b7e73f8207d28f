"""One sheet of the workbook: declared columns, tables, links, print set-up."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from itertools import accumulate, pairwise
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from openpyxl.formatting.rule import CellIsRule, DataBarRule
from openpyxl.utils import get_column_letter
from openpyxl.worksheet.datavalidation import DataValidation
from openpyxl.worksheet.hyperlink import Hyperlink

from advisor.model.facts import Table
from advisor.model.kernel_labels import kernel_label
from advisor.model.numbers import IDS, IN_NS, UNKNOWN, heading_parts
from advisor.reports.blocks import Number
from advisor.reports.layout import cut_middle
from advisor.reports.workbook import style

if TYPE_CHECKING:
    from openpyxl.cell.cell import Cell as XlsxCell
    from openpyxl.worksheet.worksheet import Worksheet

NARROW, WIDE, LONG_NAME = 9.0, 60.0, 110
LINE_HEIGHT = 14.0
#: First and last column of the grid of the summary, and how wide each is.
FIRST, LAST, GRID_WIDTH = 2, 13, 11.5


class Column(Struct, frozen=True):
    """A column of a table: its head, its width, what fills it from a record (an attribute, dotted, or a
    function), the unit of its numbers, and whether its texts wrap."""

    head: str
    width: float = 14.0
    get: str | Callable[[Any], Any] = ""
    unit: str = ""
    wrap: bool = False

    def of(self, record: Any) -> Any:
        return attrgetter(self.get)(record) if isinstance(self.get, str) else self.get(record)


class Link(Struct, frozen=True):
    """Text that leads to a sheet, a cell of it, or an address."""

    text: str
    sheet: str | None = None
    cell: str = "A1"
    url: str | None = None


class Area(Struct, frozen=True):
    """The place of a table: the row of its heads, its first and last row, its columns by head. The formats
    are conditional, so that they follow an edit."""

    ws: Any
    head: int
    first: int
    last: int
    at: Mapping[str, int]

    def column(self, head: str, absolute: bool = False) -> str:
        """``D5:D20``, the cells of one column; ``$D$5:$D$20`` if `absolute`."""
        letter = get_column_letter(self.at[head])
        at = f"${letter}$" if absolute else letter
        return f"{at}{self.first}:{at}{self.last}"

    def cell(self, row: int, head: str) -> XlsxCell:
        cell: XlsxCell = self.ws.cell(row, self.at[head])
        return cell

    def bars(self, head: str) -> None:
        """Shares with a bar behind the number, from 0 to 100 %."""
        rule = DataBarRule("num", 0, "num", 1, "A9C7E8", minLength=0, maxLength=100)
        self.ws.conditional_formatting.add(self.column(head), rule)

    def coloured(self, head: str, colours: Mapping[str, tuple[str, str]]) -> None:
        """Words (-> ink and ground) in colours."""
        for word, (ink, ground) in colours.items():
            look = {"font": style.ink(ink), "fill": style.fill(ground)}
            rule = CellIsRule(operator="equal", formula=[f'"{word}"'], **look)
            self.ws.conditional_formatting.add(self.column(head), rule)

    def choose(self, head: str, words: Sequence[str]) -> None:
        """A drop-down list."""
        listed = DataValidation("list", f'"{",".join(words)}"', allow_blank=True, showErrorMessage=True)
        listed.errorTitle, listed.error = head, f"One of: {', '.join(words)}."
        self.ws.add_data_validation(listed)
        listed.add(self.column(head))

    def to_fill_in(self, *heads: str, day: str = "", wrapped: str = "") -> None:
        """Yellow cells for people; the column `day` takes dates, if there is one."""
        for row in range(self.first, self.last + 1):
            for head in heads:
                cell = self.cell(row, head)
                cell.fill = style.fill(style.FILL_IN)
                cell.alignment = style.align(wrap=head == wrapped, indent=1)
            if day:
                self.cell(row, day).number_format = style.DATE
        if day:
            dates = DataValidation(
                "date",
                operator="greaterThan",
                formula1="36526",
                allow_blank=True,
                showErrorMessage=True,
                errorTitle="Date",
                error="Expected a date.",
            )
            self.ws.add_data_validation(dates)
            dates.add(self.column(day))


class Sheet:
    """A worksheet that is filled from the top; `row` is the next free one."""

    def __init__(self, worksheet: Worksheet, title: str = "", note: str = "", back: bool = True) -> None:
        self.ws = worksheet
        self.row = 1
        self._widths: dict[int, float] = {}
        self._head = 1
        self._looks: dict[tuple[Any, ...], Any] = {}  # styles made by `look`
        worksheet.sheet_view.showGridLines = False
        worksheet.sheet_view.zoomScale = 100
        self.page()
        if not title:
            return
        self.text(1, title, size=15, bold=True, down=1)
        worksheet.row_dimensions[1].height = 24
        if back:
            self.link(self.row, 1, Link("Back to Summary", sheet="Summary"))
            self.row += 1
        if note:
            self.text(1, note, color=style.MUTED, down=1)
        self.row += 1

    def look(self, cell: XlsxCell, **parts: Any) -> None:
        """Give a cell a font, fill, border or alignment. Assigning one makes openpyxl search all of the
        workbook, so each combination is assigned once."""
        looks = (*(cell._style or ()), *((name, id(part)) for name, part in parts.items()))
        if looks not in self._looks:
            for name, part in parts.items():
                setattr(cell, name, part)
            self._looks[looks] = cell._style
        cell._style = copy(self._looks[looks])

    def text(
        self,
        column: int,
        value: Any,
        *,
        size: float = 10.5,
        color: str = style.INK,
        bold: bool = False,
        italic: bool = False,
        wrap: bool = False,
        down: int = 0,
    ) -> None:
        """A free text in the current row; the next one is `down` rows below."""
        cell = style.put(self.ws.cell(self.row, column), value)
        self.look(cell, font=style.font(size, color, bold=bold, italic=italic), alignment=style.align(wrap))
        self.row += down

    def paragraph(self, value: str, columns: int, *, color: str = style.INK) -> None:
        """A text over several columns, wrapped; the row fits it."""
        self.text(1, value, color=color, wrap=True)
        self.ws.merge_cells(start_row=self.row, end_row=self.row, start_column=1, end_column=columns)
        room = sum(self._widths.get(c, NARROW) for c in range(1, columns + 1))
        lines = style.lines_of(style.plain(value), room)
        self.ws.row_dimensions[self.row].height = LINE_HEIGHT * lines + 3
        self.row += 1

    def heading(self, value: str, note: str = "") -> None:
        """The title of a section, after an empty row."""
        self.text(1, value, size=12, bold=True, down=1)
        if note:
            self.text(1, note, color=style.MUTED, down=1)

    def link(self, row: int, column: int, link: Link) -> None:
        cell = style.put(self.ws.cell(row, column), link.text)
        place = None if link.url else f"'{link.sheet}'!{link.cell}"
        cell.hyperlink = Hyperlink(ref=cell.coordinate, target=link.url, location=place)
        font = style.font(color=style.LINK, underline="single")
        self.look(cell, font=font, alignment=style.align(indent=int(row > self._head > 1)))

    def value(self, row: int, column: int, value: Any, unit: str = "", wrap: bool = False) -> None:
        """One cell of a table."""
        if isinstance(value, Link):
            self.link(row, column, value)
            self.look(self.ws.cell(row, column), border=style.UNDER)
            return
        if isinstance(value, Number):
            value, unit = value.value, value.unit
        cell = style.put(self.ws.cell(row, column), value, unit)
        right = _is_number(value) and unit not in style.LEFT
        self.look(cell, font=style.font(), alignment=style.align(wrap, right, indent=1), border=style.UNDER)

    def table(
        self,
        columns: Sequence[Column],
        rows: Sequence[Sequence[Any]],
        *,
        filter: bool = False,
        freeze: bool = False,
        empty: str = "none",
        spans: Sequence[int] = (),
    ) -> Area:
        """A table from the current row on; with `freeze` its head stays and is printed on every page.
        `spans` says how many columns of the sheet each column takes (1 by default); widths are then those
        of the sheet."""
        head = self._head = self.row
        at = list(accumulate(spans or [1] * len(columns), initial=1))
        within = [range(*ends) for ends in pairwise(at)]
        for i, column in enumerate(columns):
            cell = style.put(self.ws.cell(head, at[i]), column.head)
            for each in within[i]:
                self.look(self.ws.cell(head, each), fill=style.fill(style.HEAD))
            numbers = column.unit not in style.LEFT and any(_is_number(row[i]) for row in rows)
            alignment = style.align(wrap=True, right=numbers, middle=True, indent=1)
            self.look(cell, font=style.font(10, style.MUTED, bold=True), alignment=alignment)
            if not spans:
                self.widen(at[i], column.width)
        self._merge(head, within)
        heads = max(style.lines_of(c.head, c.width - 1.5, 10) for c in columns) if not spans else 1
        self.ws.row_dimensions[head].height = LINE_HEIGHT * heads + 8
        for row in rows:
            self.row += 1
            lines = 1
            for i, (column, value) in enumerate(zip(columns, row, strict=True)):
                self.value(self.row, at[i], value, column.unit, column.wrap)
                if column.wrap and isinstance(value, str):
                    room = sum(self._widths.get(c, NARROW) for c in within[i]) if spans else column.width
                    lines = max(lines, style.lines_of(style.plain(value), room - 1.5))
            self._merge(self.row, within)
            # Some programs do not fit rows to wrapped text.
            self.ws.row_dimensions[self.row].height = LINE_HEIGHT * lines + 3
        if not rows:
            self.row += 1
            self.text(1, empty, color=style.MUTED, italic=True)
        heads_at = {column.head: at[i] for i, column in enumerate(columns)}
        area = Area(self.ws, head, head + 1, max(head + len(rows), head + 1), heads_at)
        if freeze:
            self.ws.freeze_panes = self.ws.cell(head + 1, 1)
            self.ws.print_title_rows = f"{head}:{head}"
        if filter and rows:
            self.ws.auto_filter.ref = f"A{head}:{get_column_letter(at[-1] - 1)}{area.last}"
        self.row += 2
        return area

    def records(self, columns: Sequence[Column], records: Iterable[Any], **options: Any) -> Area:
        """A table of declared columns, a row a record; `options` as for :meth:`table`."""
        return self.table(columns, [[c.of(record) for c in columns] for record in records], **options)

    def _merge(self, row: int, within: Iterable[range]) -> None:
        """Cells that span several columns of the sheet become one."""
        for columns in within:
            if len(columns) > 1:
                for column in columns:
                    self.look(self.ws.cell(row, column), border=style.UNDER)
                first, last = columns[0], columns[-1]
                self.ws.merge_cells(start_row=row, end_row=row, start_column=first, end_column=last)

    def widen(self, column: int, width: float) -> None:
        """Make a column at least this wide; the widest table wins."""
        self._widths[column] = max(width, self._widths.get(column, 0.0))
        self.ws.column_dimensions[get_column_letter(column)].width = self._widths[column]

    def hide(self, *columns: int) -> None:
        """Hide columns; a reader of the workbook still finds them."""
        for column in columns:
            self.ws.column_dimensions[get_column_letter(column)].hidden = True

    def page(self, large: bool = False, tall: bool = False) -> None:
        """One page wide, with the sheet's name and page numbers below; `large` for tables that would be
        too small to read on A4, `tall` for long ones, which take half as many pages upright."""
        ws = self.ws
        ws.page_setup.orientation = "portrait" if tall else "landscape"
        ws.page_setup.paperSize = ws.PAPERSIZE_A3 if large else ws.PAPERSIZE_A4
        ws.page_setup.fitToWidth = 1
        ws.page_setup.fitToHeight = 0
        ws.sheet_properties.pageSetUpPr.fitToPage = True
        ws.page_margins.left = ws.page_margins.right = 0.4
        ws.page_margins.top, ws.page_margins.bottom = 0.5, 0.6
        for part, text in ((ws.oddFooter.left, "&A"), (ws.oddFooter.right, "&P / &N")):
            part.text, part.size, part.color = text, 8, style.MUTED


class GridSheet(Sheet):
    """The summary sheet: twelve equal columns beside a margin, and cells that span them."""

    def __init__(self, worksheet: Worksheet) -> None:
        super().__init__(worksheet)
        self.row = 2
        worksheet.column_dimensions["A"].width = 2
        for column in range(FIRST, LAST + 1):
            worksheet.column_dimensions[get_column_letter(column)].width = GRID_WIDTH

    def merged(
        self,
        first: int,
        last: int,
        value: Any,
        *,
        unit: str = "",
        size: float = 10.5,
        color: str = style.INK,
        bold: bool = False,
        ground: str | None = None,
        right: bool = False,
        middle: bool = False,
        height: float | None = None,
        indent: bool = False,
    ) -> None:
        """Columns `first` to `last` of the current row as one cell."""
        cell = style.put(self.ws.cell(self.row, first), value, unit)
        alignment = style.align(wrap=True, right=right, middle=middle, indent=int(right or indent))
        self.look(cell, font=style.font(size, color, bold=bold), alignment=alignment)
        for column in range(first, last + 1) if ground else ():
            self.look(self.ws.cell(self.row, column), fill=style.fill(ground))
        if last > first:
            self.ws.merge_cells(start_row=self.row, end_row=self.row, start_column=first, end_column=last)
        text = style.plain(value) if isinstance(value, str) else ""
        lines = style.lines_of(text, (last - first + 1) * GRID_WIDTH - 1.5 * indent, size)
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
            self.merged(FIRST, LAST, note, color=style.MUTED)
            self.row += 1

    def rule(self) -> None:
        for column in range(FIRST, LAST + 1):
            self.look(self.ws.cell(self.row, column), border=style.UNDER)


def _is_number(value: Any) -> bool:
    value = value.value if isinstance(value, Number) else value
    return isinstance(value, int | float) and not isinstance(value, bool)


def shown(table: Table) -> tuple[list[Column], list[list[Any]]]:
    """Columns and rows of a table of the diagnosis; names are cut in the middle (JSON has them in full)."""
    rows = [
        [cut_middle(kernel_label(v), LONG_NAME) if isinstance(v, str) else v for v in row]
        for row in table.rows
    ]
    columns = [column_of(h, [r[i] for r in rows]) for i, h in enumerate(table.columns)]
    return columns, [[UNKNOWN if value is None else value for value in row] for row in rows]


def column_of(heading: str, cells: Sequence[Any]) -> Column:
    """How a column of the diagnosis is shown."""
    name, unit = heading_parts(heading)
    if texts := [c for c in cells if isinstance(c, str)]:
        longest = max(len(t) for t in texts)
        return Column(name, min(max(longest + 3.0, len(name) + 4.0, NARROW), WIDE), wrap=True)
    if name in IDS:
        return Column(name, NARROW, unit="id")
    if unit == "s" and name in ("at", "start", "end"):
        return Column(f"{name} (s)", 14.0, unit="place")
    if unit in IN_NS and unit != "ns":
        # The unit is in the head, so that the numbers of a column can be compared.
        name, unit = f"{name} ({unit})", "fixed"
    return Column(name, max(len(name) + 4.0, 11.0), unit=unit)
