"""`advisor stats` for programs and pages: CSV with the headings of `nsys stats`, and every other format."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pandas as pd

from advisor.model.capture import Frozen
from advisor.model.stats import StatsTable, rounded, unit_of
from advisor.reports.blocks import Block, Grid, Heading, Paragraph, Report, Title

SCHEMA_VERSION = 1
#: --timeunit -> its sign and how many ns it holds, as a power of ten.
TIME_UNITS = {"nsec": ("ns", 0), "usec": ("us", 3), "msec": ("ms", 6), "sec": ("s", 9)}
#: Decimals of a number with a fraction, by its unit.
DECIMALS = {"ns": 1, "%": 1, "MB": 3, "MB/s": 3, "x": 2}


def scaled(values: pd.Series, timeunit: str = "nsec") -> tuple[str, pd.Series, int]:
    """Heading, numbers as they are printed, and their decimals. Whole ns stay whole; in a larger unit
    a time keeps all its digits."""
    heading, unit = str(values.name), unit_of(str(values.name))
    places = DECIMALS.get(unit, 0) if pd.api.types.is_float_dtype(values) else 0
    if places:
        exact = rounded(values.to_numpy(float, na_value=float("nan")), places)
        values = pd.Series(exact, values.index)
    if unit != "ns" or timeunit == "nsec":
        return heading, values, places
    sign, power = TIME_UNITS[timeunit]
    return heading.replace("(ns)", f"({sign})"), values / 10.0**power, places + power


def _inert(cell: object) -> object:
    """The cell, marked as text where a spreadsheet would take a name of the capture for a formula."""
    return f"'{cell}" if isinstance(cell, str) and cell.startswith(tuple("=+-@\t\r")) else cell


def csv_text(tables: Sequence[StatsTable], timeunit: str = "nsec", raw: bool = False) -> str:
    """One bare table; several are separated by an empty line and a line that begins with #. `raw`
    keeps texts that spreadsheets would run as formulas."""
    parts = []
    for table in tables:
        shown = {}
        for name in table.frame:
            heading, values, places = scaled(table.frame[name], timeunit)
            form = f"{{:.{places}f}}".format
            if not (raw or pd.api.types.is_numeric_dtype(values)):
                values = values.map(_inert, na_action="ignore")
            shown[heading] = values.map(form, na_action="ignore") if places else values
        note = f"; {table.note}" if table.note else ""
        head = f"# {table.report}: {table.scope}{note}\n" if len(tables) > 1 else ""
        parts.append(head + pd.DataFrame(shown).to_csv(index=False, lineterminator="\n"))
    return "\n".join(parts)


class Tables(Frozen):
    """The document of `advisor stats`; the keys of a row are the headings of the CSV."""

    schema_version: int = SCHEMA_VERSION
    input: str
    reports: tuple[dict[str, Any], ...]


def report(path: str, tables: Sequence[StatsTable], timeunit: str = "nsec") -> Report:
    """The tables as they are delivered in every format but text and CSV, which have layouts of their own."""
    reports = []
    for table in tables:
        shown = {}
        for name in table.frame:
            heading, values, places = scaled(table.frame[name], timeunit)
            if unit_of(heading) == "MB":  # to the byte: three decimals say nothing of small copies
                values, places = table.frame[name], 9
            values = values.round(places) if places else values
            shown[heading] = values.astype(object).where(values.notna(), None)
        about = {"report": table.report, "title": table.title, "scope": table.scope, "note": table.note}
        reports.append(about | {"rows": pd.DataFrame(shown).to_dict("records")})
    document = Tables(input=path, reports=tuple(reports))
    return Report((document,), lambda _: _blocks(document), "Tables of a capture")


def _blocks(document: Tables) -> Iterator[Block]:
    yield Title(document.input)
    for table in document.reports:
        yield Heading(table["title"], table["report"])
        yield Paragraph("; ".join(t for t in (table["scope"], table["note"]) if t))
        if table["rows"]:
            yield Grid(tuple(table["rows"][0]), tuple(tuple(row.values()) for row in table["rows"]))
