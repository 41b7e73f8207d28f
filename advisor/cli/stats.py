"""``advisor stats``: tables of a capture, as `nsys stats` prints them and beyond."""

from __future__ import annotations

from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from advisor.cli import flags
from advisor.cli.settings import takes
from advisor.config import Settings
from advisor.model.options import format_names, one_of

if TYPE_CHECKING:
    from advisor.reports.layout import Page


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


REPORTS = (
    "kernels", "tail", "api", "api-gpu", "launch", "launch-trace", "copies", "copy-sizes", "unified",
    "collectives", "nvtx", "nvtx-pushpop", "nvtx-kernels", "nvtx-gpu", "nvtx-gpu-trace", "osrt",
    "trace", "longest", "histogram", "pace", "heatmap", "modules", "layers", "budget",
)  # fmt: skip


@takes(
    "traces report names timeunit format limit raw window nvtx phase together redact output force",
    files=(),
    format=one_of("Kind of output.", *format_names("document"), "csv"),
)
def stats(
    settings: Settings,
    traces: Annotated[list[Path], typer.Argument(metavar="TRACE", hidden=True)],
    report: Annotated[
        list[str] | None,
        typer.Option(
            "--report",
            "-r",
            metavar="NAME",
            autocompletion=lambda: list(REPORTS),
            help=f"Any of {', '.join(REPORTS)}, or nsys' name of one; kernels:base has base names "
            "(default: kernels).",
        ),
    ] = None,
    names: Annotated[Names, typer.Option(help="How kernels are named.")] = Names.full,
    timeunit: Annotated[
        TimeUnit | None, typer.Option(help="Unit of times (default: nsec, in text what suits).")
    ] = None,
    limit: Annotated[
        int | None, typer.Option(min=0, metavar="N", help="First N rows; 0: all, as csv and json.")
    ] = None,
    raw: Annotated[
        bool, typer.Option("--raw", help="Keep names in csv that a spreadsheet takes for formulas.")
    ] = False,
    output: flags.Output = None,
    force: flags.Force = False,
    together: flags.Together = False,
) -> None:
    """Print tables of a capture.

    Without a window the reports that nsys has count the whole capture, as nsys does; tail,
    histogram, pace and budget look at the steady window.
    """
    from advisor.cli.deliver import deliver, target_of
    from advisor.cli.inputs import as_pair
    from advisor.cli.output import write_bytes, write_page
    from advisor.cli.progress import Progress
    from advisor.pipeline.stats import stats_tables
    from advisor.reports import stats_tables as printed

    output = target_of(output, force, traces)
    trace, other = as_pair(traces, together)
    settings = replace(settings, together=other)
    with Progress(trace.name) as progress:
        tables = stats_tables(trace, report or ["kernels"], settings, names.value, progress)
    if settings.format == "text":

        def write(page: Page) -> None:
            for table in tables:
                printed.render(page, table, timeunit and timeunit.value, limit)

        write_page(write, output, force)
        return
    kept = [t.head(limit or None) for t in tables]
    unit = timeunit.value if timeunit else "nsec"
    if settings.format == "csv":
        text = printed.csv_text(kept, unit, raw)
        write_bytes(text.encode("utf-8", "backslashreplace"), output, force)
    else:
        name = trace.name if settings.redact else str(trace)
        deliver(printed.report(name, kept, unit), settings.format, output, force)
