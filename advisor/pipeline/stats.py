"""``advisor.stats``: tables of a capture as pandas frames."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from advisor.metrics.stats.reports import make_report, report_names
from advisor.metrics.stats.summaries import NameStyle
from advisor.model.options import Options
from advisor.model.stats_table import StatsTable
from advisor.pipeline.diagnose import Progress, analysis_of
from advisor.pipeline.inputs import Paths, listed, one_capture


def stats(
    path: Paths, *reports: str, options: Options | None = None, names: NameStyle = "full"
) -> dict[str, pd.DataFrame]:
    """Reports of `advisor stats` (default: kernels) by name, with the headings of `nsys stats`.

    `attrs` of a frame hold its title, scope and note. Raises InputError as :func:`stats_tables`, and for the
    ranks of a job, of which it names one.
    """
    found = {}
    given, chosen = one_capture(listed(path)), options or Options()
    for table in stats_tables(given.path, list(reports) or ["kernels"], given.options(chosen), names):
        found[table.report] = table.frame
        table.frame.attrs = {"title": table.title, "scope": table.scope, "note": table.note}
    return found


def stats_tables(
    path: str | Path, reports: list[str], options: Options, names: NameStyle, progress: Progress | None = None
) -> list[StatsTable]:
    """The reports in order. Raises InputError for an unknown one, and for a capture that cannot be used."""
    wanted = report_names(reports)
    tables = []
    with analysis_of(path, options) as analysis:
        for name in wanted:
            if progress is not None:
                progress(name)
            tables.append(make_report(analysis, name, names))
    return tables
