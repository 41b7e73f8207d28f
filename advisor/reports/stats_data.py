"""`advisor stats` for programs: CSV with the headings of `nsys stats`, and JSON."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from typing import Any

import numpy as np

from advisor.model.stats import Column, StatsTable, rounded

SCHEMA_VERSION = 1
#: --timeunit -> its sign and how many ns it holds, as a power of ten.
TIME_UNITS = {"nsec": ("ns", 0), "usec": ("us", 3), "msec": ("ms", 6), "sec": ("s", 9)}

#: Rows written at once; the texts of a million rows would take a gigabyte.
_CHUNK = 1 << 16


def heading(column: Column, timeunit: str = "nsec") -> str:
    """``Total Time (us)``: the heading with the unit that times are given in."""
    if column.unit != "ns":
        return column.heading
    return f"{column.name} ({TIME_UNITS[timeunit][0]})"


def numbers(column: Column, timeunit: str = "nsec") -> tuple[list[float], int]:
    """The numbers as they are printed, and how many decimals they have. Whole ns stay whole; in a
    larger unit a time keeps all its digits."""
    values, places = np.asarray(column.values), column.decimals
    if places:
        values = rounded(values, places)
    power = TIME_UNITS[timeunit][1] if column.unit == "ns" else 0
    if power:
        return (values / 10.0**power).tolist(), places + power
    return values.tolist(), places


def csv_text(tables: Sequence[StatsTable], timeunit: str = "nsec") -> str:
    """One bare table; several are told apart by an empty line and a line that begins with #."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    for i, table in enumerate(tables):
        if len(tables) > 1:
            note = f"; {table.note}" if table.note else ""
            out.write("\n" if i else "")
            out.write(f"# {table.report}: {table.scope}{note}\n")
        writer.writerow([heading(c, timeunit) for c in table.columns])
        for start in range(0, len(table), _CHUNK):
            part = table.take(np.arange(start, min(start + _CHUNK, len(table))))
            writer.writerows(zip(*(_cells(c, timeunit) for c in part.columns), strict=True))
    return out.getvalue()


def _cells(column: Column, timeunit: str) -> list[str]:
    if column.is_text:
        return list(column.values)
    values, places = numbers(column, timeunit)
    cells = [f"{v:.{places}f}" for v in values] if places else [str(v) for v in values]
    return _blank(cells, column, "")


def _blank(cells: list[Any], column: Column, empty: Any) -> list[Any]:
    if column.absent is not None:
        for i in np.flatnonzero(column.absent).tolist():
            cells[i] = empty
    return cells


def json_text(path: str, tables: Sequence[StatsTable], timeunit: str = "nsec") -> str:
    """``{schema_version, input, reports: [{report, title, scope, note, rows: [{...}]}]}``; the
    keys of a row are the headings of the CSV."""
    reports = []
    for table in tables:
        keys = [heading(c, timeunit) for c in table.columns]
        columns = [_values(c, timeunit) for c in table.columns]
        reports.append(
            {
                "report": table.report,
                "title": table.title,
                "scope": table.scope,
                "note": table.note,
                "rows": [dict(zip(keys, row, strict=True)) for row in zip(*columns, strict=True)],
            }
        )
    document = {"schema_version": SCHEMA_VERSION, "input": path, "reports": reports}
    return f"{json.dumps(document, indent=1, ensure_ascii=False, allow_nan=False)}\n"


def _values(column: Column, timeunit: str) -> list[Any]:
    if column.is_text:
        return list(column.values)
    values, places = numbers(column, timeunit)
    if column.unit == "MB":  # to the byte: three decimals say nothing of small copies
        values = [round(v, 9) for v in np.asarray(column.values).tolist()]
    elif places:
        values = [round(v, places) for v in values]
    return _blank(list(values), column, None)
