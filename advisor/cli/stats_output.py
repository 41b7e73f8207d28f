"""Tables of `advisor stats` on stdout or in a file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from advisor.cli.output import make_page, print_page, write_bytes
from advisor.model.stats import StatsTable


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
    tables: Sequence[StatsTable],
    timeunit: str | None,
    limit: int | None,
    output: Path | None,
    force: bool,
) -> None:
    from advisor.reports.layout import Page
    from advisor.reports.stats_text import render

    page = make_page() if output is None else Page()
    for table in tables:
        render(page, table, timeunit, limit)
    if output is not None:
        text = "".join(f"{line.plain}\n" for line in page.lines)
        write_bytes(text.encode("utf-8", "replace"), output, force)
    else:
        print_page(page)
