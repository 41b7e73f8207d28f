"""A line of headings, and how it divides the lines below it."""

from __future__ import annotations

import re
from typing import NamedTuple

from advisor.sources.pasted.headings import HEADING, Column, cells_of, column_of, spaced
from advisor.sources.pasted.locales import joined

_MAYBE = re.compile(r"(?i)avg|average|instances|count|calls|duration|total")
_LONGEST_HEADER = 2_000


class Header(NamedTuple):
    columns: tuple[Column | None, ...]
    delimiter: str  # empty: text in columns

    @property
    def fields(self) -> set[str]:
        return {c.field for c in self.columns if c}

    @property
    def is_known(self) -> bool:
        """True if these are the columns of a report."""
        numbers = self.fields & {"total", "average", "count", "duration", "kernels.average"}
        return bool(self.fields & {"name", "range"}) and len(numbers) > ("duration" not in self.fields)

    def cells(self, line: str) -> list[str] | None:
        if self.delimiter:
            return cells_of(line, self.delimiter)
        cells = spaced(line, self.columns)
        if cells is not None and re.search(r"\b\d{1,3} \d{3}\b", line):
            wide = len(re.split(r"\s{2,}|\t", line.strip())) == len(self.columns)
            return cells if wide else joined(line.split(), self.columns) or cells
        return cells


def header_of(line: str) -> Header | None:
    """The columns of a line of headings; None for any other line."""
    if len(line) > _LONGEST_HEADER or not _MAYBE.search(line):
        return None
    line = line.replace("│", "|")
    for delimiter in ("|", "\t", ";", ","):
        if line.count(delimiter) > 1:
            header = Header(tuple(map(column_of, cells_of(line, delimiter))), delimiter)
            if header.is_known and header.columns.count(None) <= 2:
                return header
    hits = list(HEADING.finditer(line))
    header = Header(tuple(column_of(h[0]) for h in hits), "")
    return header if header.is_known and not HEADING.sub("", line).strip() else None
