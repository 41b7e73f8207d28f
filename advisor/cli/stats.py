"""``advisor stats``: tables of a capture, as `nsys stats` prints them and beyond."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from advisor.cli import flags
from advisor.cli.settings import takes
from advisor.config import Settings


class Names(StrEnum):
    full = "full"
    base = "base"
    mangled = "mangled"
    operation = "operation"


class TimeUnit(StrEnum):
    nsec = "nsec"
    usec = "usec"
    msec = "msec"
    sec = "sec"


class Format(StrEnum):
    text = "text"
    json = "json"
    csv = "csv"


REPORTS = (
    "kernels", "tail", "api", "launch", "copies", "copy-sizes", "nvtx", "nvtx-kernels", "osrt",
    "trace", "histogram", "pace", "budget",
)  # fmt: skip


@takes(
    "trace",
    "report",
    "names",
    "timeunit",
    "format",
    "limit",
    "window",
    "nvtx",
    "phase",
    "output",
    "force",
    files=False,
    window="Count this part: 5s/7s, 5s/, 1s2ms/.",
    nvtx="Count these NVTX ranges.",
    phase="Count steps of this phase.",
)
def stats(
    settings: Settings,
    trace: Annotated[Path, typer.Argument(metavar="TRACE", hidden=True)],
    report: Annotated[
        list[str] | None,
        typer.Option(
            "--report",
            "-r",
            metavar="NAME",
            autocompletion=lambda: list(REPORTS),
            help=f"Any of {', '.join(REPORTS)}, or nsys' name of one (default: kernels).",
        ),
    ] = None,
    names: Annotated[Names, typer.Option(help="How kernels are named.")] = Names.full,
    timeunit: Annotated[
        TimeUnit | None, typer.Option(help="Unit of times (default: nsec, in text what suits).")
    ] = None,
    format: Annotated[Format, typer.Option(help="Kind of output.")] = Format.text,
    limit: Annotated[
        int | None, typer.Option(min=0, metavar="N", help="First N rows; 0: all, as csv and json.")
    ] = None,
    output: flags.Output = None,
    force: flags.Force = False,
) -> None:
    """Print tables of a capture.

    Without a window the reports that nsys has count the whole capture, as nsys does; tail,
    histogram, pace and budget look at the steady window.
    """
    from advisor.cli.deliver import target_of
    from advisor.cli.progress import Progress
    from advisor.cli.stats_output import write
    from advisor.metrics.analysis import Analysis
    from advisor.metrics.stats.reports import make_report, report_names
    from advisor.metrics.window import Selection
    from advisor.sources.open import open_trace

    wanted = report_names(report or ["kernels"])
    output = target_of(output, force, [trace])
    with Progress(trace.name) as progress, open_trace(trace) as source:
        analysis = Analysis(source, Selection(settings.window, settings.nvtx, settings.phase))
        tables = []
        for name in wanted:
            progress(name)
            tables.append(make_report(analysis, name, names.value))
    write(trace, tables, format.value, timeunit and timeunit.value, limit, output, force)
