"""``advisor stats``: tables of a capture, as `nsys stats` prints them and beyond."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

from advisor.cli.settings import argument, option, switch, takes
from advisor.config import Settings
from advisor.model.options import format_names, one_of

if TYPE_CHECKING:
    from advisor.reports.layout import Page


class Names(StrEnum):
    full = "full"
    base = "base"
    mangled = "mangled"
    operation = "operation"


TimeUnit = StrEnum("TimeUnit", ["nsec", "usec", "msec", "sec"])
REPORTS = (
    "kernels", "tail", "api", "api-gpu", "launch", "launch-trace", "copies", "copy-sizes", "unified",
    "collectives", "nvtx", "nvtx-pushpop", "nvtx-kernels", "nvtx-gpu", "nvtx-gpu-trace", "osrt",
    "trace", "longest", "histogram", "pace", "heatmap", "modules", "layers", "budget",
)  # fmt: skip
_REPORT = f"Any of {', '.join(REPORTS)}, or nsys' name of one; kernels:base has base names"


@takes(
    "traces report names timeunit format limit raw window nvtx phase together redact output force",
    files=(),
    format=one_of("Kind of output.", *format_names("document"), "csv"),
)
def stats(
    settings: Settings,
    traces: list[Path] = argument("TRACE"),
    report: list[str] | None = option(
        "NAME", f"{_REPORT} (default: kernels).", None, "--report", "-r", autocompletion=lambda: list(REPORTS)
    ),
    names: Names = option(None, "How kernels are named.", Names.full),
    timeunit: TimeUnit | None = option(None, "Unit of times (default: nsec, in text what suits)."),
    limit: int | None = option("N", "First N rows; 0: all, as csv and json.", min=0),
    raw: bool = switch("--raw", "Keep names in csv that a spreadsheet takes for formulas."),
) -> None:
    """Print tables of a capture.

    Without a window the reports that nsys has count the whole capture, as nsys does; tail,
    histogram, pace and budget look at the steady window.
    """
    from advisor.cli.deliver import check_output, deliver, write_bytes, write_page
    from advisor.cli.inputs import as_pair
    from advisor.cli.progress import Progress
    from advisor.pipeline.stats import stats_tables
    from advisor.reports import stats_tables as printed

    check_output(settings, traces)
    trace, settings = as_pair(traces, settings)
    with Progress(trace.name) as progress:
        tables = stats_tables(trace, report or ["kernels"], settings, names.value, progress)
    if settings.format == "text":

        def write(page: Page) -> None:
            for table in tables:
                printed.render(page, table, timeunit and timeunit.value, limit)

        write_page(write, settings.output, settings.force)
        return
    kept = [t.head(limit or None) for t in tables]
    unit = timeunit.value if timeunit else "nsec"
    if settings.format == "csv":
        text = printed.csv_text(kept, unit, raw)
        write_bytes(text.encode("utf-8", "backslashreplace"), settings.output, settings.force)
    else:
        name = trace.name if settings.redact else str(trace)
        deliver(printed.report(name, kept, unit), settings)
