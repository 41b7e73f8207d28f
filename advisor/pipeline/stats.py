"""``advisor.stats``: tables of a capture as pandas frames."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from advisor import __version__
from advisor.engine.infer import default_engine
from advisor.engine.load import builtin_dir, load_rules
from advisor.gain.question import answer, parse_fixes
from advisor.metrics.analysis import Analysis
from advisor.metrics.stats.reports import make_report, report_names
from advisor.metrics.stats.sums import NameStyle
from advisor.metrics.window import Selection
from advisor.model.findings import Tool
from advisor.model.stats import StatsTable
from advisor.model.whatif import WhatIfReport
from advisor.pipeline import document
from advisor.pipeline.diagnose import Options, Progress, analysis_of, opened
from advisor.pipeline.given import given_step_ns, given_weights

if TYPE_CHECKING:
    import pandas as pd


def stats(
    path: str | Path, *reports: str, options: Options | None = None, names: NameStyle = "full"
) -> dict[str, pd.DataFrame]:
    """Reports of `advisor stats` (default: kernels) by name, with the headings of `nsys stats`.

    `attrs` of a frame hold its title, scope and note. Raises InputError as :func:`stats_tables`.
    """
    found = {}
    for table in stats_tables(path, list(reports) or ["kernels"], options or Options(), names):
        found[table.report] = table.frame
        table.frame.attrs = {"title": table.title, "scope": table.scope, "note": table.note}
    return found


def stats_tables(
    path: str | Path, reports: list[str], options: Options, names: NameStyle, progress: Progress | None = None
) -> list[StatsTable]:
    """The reports in the order given. Raises InputError for an unknown report, and for a capture or
    a selection that cannot be used."""
    wanted = report_names(reports)
    with analysis_of(path, options) as analysis:
        tables = []
        for name in wanted:
            if progress is not None:
                progress(name)
            tables.append(make_report(analysis, name, names))
    return tables


# --- ``advisor.whatif``: what changes that the user names would win in a capture ------------------


def whatif(
    path: str | Path,
    fixes: str | Sequence[str],
    options: Options | None = None,
    progress: Progress | None = None,
) -> WhatIfReport:
    """What a change would win, or several, applied in order: ``whatif("t.sqlite", "batch:n=8")``.

    Raises InputError for an unknown fix, and for a capture that allows no estimate.
    """
    chosen = options or Options()
    say = progress or (lambda _: None)
    fixes = [fixes] if isinstance(fixes, str) else fixes
    parsed = parse_fixes(fixes, load_rules(builtin_dir(), *chosen.rules).by_code)
    weights = given_weights(chosen.weight_bytes)
    unprofiled = given_step_ns(chosen.unprofiled_step)
    say("reading")
    with opened(path, chosen) as trace:
        analysis = Analysis(trace, Selection(chosen.window, chosen.nvtx, chosen.phase))
        serving = document.serving_engine(analysis, chosen.serving_engine)
        source = document.input_of(analysis, serving)
        say("replaying")
        tool = Tool(version=__version__, engine=chosen.engine or default_engine())
        return answer(analysis, parsed, tool, source, weights, unprofiled)
