"""The look of a workbook: colours, fonts, number formats, cells that are not reinterpreted; and its file."""

from __future__ import annotations

import gc
import io
import re
import sys
import tempfile
import zipfile
from datetime import datetime
from functools import cache
from typing import TYPE_CHECKING, Any

from openpyxl.styles import Alignment, Border, Font, PatternFill, Side

from advisor.errors import InputError
from advisor.model.kernel_labels import kernel_label
from advisor.reports.output_file import clean

if TYPE_CHECKING:
    from openpyxl import Workbook
    from openpyxl.cell.cell import Cell as XlsxCell

FONT = "Calibri"
INK, MUTED, LINK, LINE = "1C2127", "59636E", "0A58AE", "D9DFE5"
SOFT, HEAD, BAND = "F5F7F9", "E3E8EE", "1F3A57"
FILL_IN = "FFF9E5"
#: Level -> ink and ground; the word is there too, so that it is readable without colour.
LEVELS = {
    "high": ("A81C12", "FDECEA"),
    "medium": ("7D4B00", "FDF1D8"),
    "low": ("174F95", "E6F0FB"),
    "info": ("4D5761", "EEF1F4"),
}
GOOD, GOOD_BG = "17734A", "E4F5EC"
SPARE_COLOURS = ("4D84BD", "7A1FA0", "11845B", "B4532A", "3F7078")

#: Unit -> number format. Times and sizes pick their unit by the format; the value is unchanged.
FORMATS = {
    "ratio": "0.0%",
    "times": '0.00" x "',
    # A speed-up of throughput, not of a step.
    "throughput": '[>=100]0" x tok/s";[>=10]0.0" x tok/s";0.00" x tok/s"',
    "ns": '[>=1000000000]0.000,,," s";[>=1000000]0.00,," ms";0.00," us"',
    "us": '#,##0.00" us"',
    "ms": '#,##0.00" ms"',
    "s": '0.000000" s"',
    # Times whose unit is in the head of their column.
    "fixed": "#,##0.00",
    "bytes": '[>=1000000000]0.00,,," GB";[>=1000000]0.00,," MB";#,##0" B"',
    "bytes_per_s": '[>=1000000000]0.0,,," GB/s";[>=1000000]0.0,," MB/s";#,##0" B/s"',
    "count_per_s": '#,##0"/s"',
    "hz": '#,##0" Hz"',
    # Numbers that are names: of a rank, a device, a stream; and a place on the timeline.
    "id": "0",
    "place": "0.000000",
}
#: Units of numbers that stand to the left, as names do.
LEFT = ("id", "place")
INTEGER, DECIMAL, DATE = "#,##0", "#,##0.0##", "yyyy-mm-dd"
#: The longest text that a cell may hold.
LONGEST = 32_767
_FORMULA = re.compile(r"^\s*[=+\-@|%]")

#: How `GridSheet.merged` formats the header of a table, and the label of a number.
HEADER: dict[str, Any] = {"size": 9.5, "color": MUTED, "bold": True, "ground": HEAD}
LABEL: dict[str, Any] = {"size": 9.5, "color": MUTED, "ground": SOFT, "height": 16}

THIN = Side(style="thin", color=LINE)
UNDER = Border(bottom=THIN)


@cache
def font(size: float = 10.5, color: str = INK, **more: Any) -> Font:
    return Font(name=FONT, size=size, color=color, **more)


def ink(color: str) -> Font:
    """The font of a conditional format."""
    return Font(name=FONT, color=color, bold=True)


@cache
def fill(color: str) -> PatternFill:
    return PatternFill("solid", start_color=color, end_color=color)


@cache
def align(wrap: bool = False, right: bool = False, middle: bool = False, indent: int = 0) -> Alignment:
    return Alignment(
        wrap_text=wrap,
        horizontal="right" if right else "left",
        vertical="center" if middle else "top",
        indent=indent,
    )


def put(cell: XlsxCell, value: Any, unit: str = "") -> XlsxCell:
    """Put a value into a cell: numbers as numbers, text as text and never as a formula."""
    if value is None or value == "":
        return cell
    if isinstance(value, bool):
        value = "yes" if value else "no"
    if isinstance(value, int | float):
        if value != value or value in (float("inf"), float("-inf")):
            return put(cell, str(value))
        cell.value = value
        cell.number_format = FORMATS.get(unit) or (INTEGER if float(value).is_integer() else DECIMAL)
        return cell
    text = plain(str(value))
    cell.value = text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"
    cell.data_type = "s"  # openpyxl takes text that begins with = for a formula
    if _FORMULA.match(text):
        cell.quotePrefix = True  # so that it stays text when somebody edits the cell
    return cell


def plain(text: str) -> str:
    """Text without control characters, and without the backticks that rules quote commands in."""
    return "\n".join(clean(kernel_label(line)) for line in text.replace("`", "").split("\n"))


#: Widths of signs in Calibri, in em; all others are about half an em.
_WIDTHS = {
    **dict.fromkeys("ijl'|!", 0.23),
    **dict.fromkeys(" .,:;`", 0.25),
    **dict.fromkeys("()-frt[]", 0.32),
    **dict.fromkeys("/\\csvxyz_", 0.43),
    **dict.fromkeys("ABCDEFGHKNOPQRSTUVXYZ&", 0.6),
    **dict.fromkeys("mwMW%@", 0.82),
}
#: A unit of width is a digit of the default font; text is set a little smaller.
_UNIT = 0.507 * 11 / 10.5


def lines_of(text: str, width: float, size: float = 10.5) -> int:
    """Lines of a text in a column: not every program fits rows itself, none fits merged cells."""
    room = (width - 0.5) * _UNIT * 10.5 / size
    count = 0
    for paragraph in text.split("\n"):
        used = 0.0
        count += 1
        for word in paragraph.replace("-", "- ").split(" "):
            wide = sum(_WIDTHS.get(c, 0.51) for c in word)
            if used and used + wide > room:
                count, used = count + 1, 0.0
            while wide > room:
                count, wide = count + 1, wide - room
            used += wide + (0.0 if word.endswith("-") else 0.23)
    return count


#: The time stamp in the package; the workbook does not contain the time of its making.
EPOCH = datetime(2000, 1, 1)
_STAMP = re.compile(rb"(<dcterms:(?:created|modified)[^<>]*>)[^<]*(<)")
_ZIP_TIME = (1980, 1, 1, 0, 0, 0)


def package(workbook: Workbook) -> bytes:
    """The workbook as a file; time stamps are fixed."""
    workbook.properties.creator = "advisor"
    workbook.properties.created = EPOCH
    written = io.BytesIO()
    _save(workbook, written)
    out = io.BytesIO()
    stamp = EPOCH.strftime("%Y-%m-%dT%H:%M:%SZ").encode()
    with zipfile.ZipFile(written) as source, zipfile.ZipFile(out, "w") as target:
        for name in source.namelist():
            content = source.read(name)
            if name == "docProps/core.xml":
                content = _STAMP.sub(rb"\g<1>" + stamp + rb"\g<2>", content)
            entry = zipfile.ZipInfo(name, _ZIP_TIME)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = 0o600 << 16
            target.writestr(entry, content)
    return out.getvalue()


def _save(workbook: Workbook, written: io.BytesIO) -> None:
    """openpyxl writes sheets to temporary files first, and complains a second time from a generator."""
    try:
        workbook.save(written)
    except OSError as error:
        complain, sys.unraisablehook = sys.unraisablehook, lambda _: None
        why, error.__traceback__ = error.strerror, None
        gc.collect()
        sys.unraisablehook = complain
        room = f"make room in {tempfile.gettempdir()}, or set TMPDIR"
        raise InputError(f"the workbook cannot be written ({why}); {room}") from None
