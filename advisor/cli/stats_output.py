"""Tables of `advisor stats` on stdout or in a file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from advisor.cli.output import write_bytes, write_page
from advisor.model.stats import StatsTable

if TYPE_CHECKING:
    from advisor.reports.layout import Page


def write(
    trace: Path,
    tables: Sequence[StatsTable],
    format: str,
    timeunit: str | None,
    limit: int | None,
    output: Path | None,
    force: bool,
) -> None:
    """Write the tables; `limit` rows of each where given, 0 for all."""
    if format == "text":
        _text(tables, timeunit, limit, output, force)
        return
    from advisor.reports.stats_data import csv_text, json_text

    kept = [t.head(limit or None) for t in tables]
    unit = timeunit or "nsec"
    text = csv_text(kept, unit) if format == "csv" else json_text(str(trace), kept, unit)
    write_bytes(text.encode("utf-8", "backslashreplace"), output, force)


def _text(
    tables: Sequence[StatsTable], timeunit: str | None, limit: int | None, output: Path | None, force: bool
) -> None:
    from advisor.reports.stats_text import render

    def write(page: Page) -> None:
        for table in tables:
            render(page, table, timeunit, limit)

    write_page(write, output, force)
