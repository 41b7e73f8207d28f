"""``advisor stats``, ``facts`` and ``whatif``: tables and facts of a capture, and what a change would win.
``export``, ``redact`` and ``mcp``: findings for Perfetto, a copy without private data, tools for agents."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from advisor.cli import deliver
from advisor.cli.completion import fix_names, offer
from advisor.cli.messages import message
from advisor.cli.options import PATH, OneOf, Verb, Verbs, WholeNumber, takes, typed
from advisor.cli.paths import hold_pipes
from advisor.config import Settings
from advisor.errors import InputError
from advisor.model.options import format_names, one_of
from advisor.reading import READING, read_text
from advisor.reports.output_file import STDOUT, SUFFIXES, check_ending, check_target

if TYPE_CHECKING:
    from advisor.metrics.stats.summaries import NameStyle
    from advisor.reports.layout import Page


REPORTS = (
    "kernels",
    "tail",
    "api",
    "api-gpu",
    "launch",
    "launch-trace",
    "copies",
    "copy-sizes",
    "unified",
    "collectives",
    "operators",
    "nvtx",
    "nvtx-pushpop",
    "nvtx-kernels",
    "nvtx-gpu",
    "nvtx-gpu-trace",
    "osrt",
    "trace",
    "longest",
    "histogram",
    "pace",
    "heatmap",
    "modules",
    "layers",
    "budget",
)
_REPORT = f"Any of {', '.join(REPORTS)}, or nsys' name of one; kernels:base has base names"


@click.command(cls=Verb)
@click.argument("traces", metavar="TRACE", nargs=-1, required=True, type=PATH)
@click.option(
    "--report",
    "-r",
    "reports",
    multiple=True,
    metavar="NAME",
    help=f"{_REPORT} (default: kernels).",
    shell_complete=offer(lambda: REPORTS),
)
@click.option(
    "--names",
    type=OneOf(["full", "base", "mangled", "operation"]),
    default="full",
    help="How kernels are named (default full).",
)
@click.option(
    "--timeunit",
    type=OneOf(["nsec", "usec", "msec", "sec"]),
    help="Unit of times (default: nsec, in text what suits).",
)
@click.option("--limit", type=WholeNumber(0), metavar="N", help="First N rows; 0: all, as csv and json.")
@click.option("--raw", is_flag=True, help="Keep names in csv as they are: formulas, control characters.")
@takes(
    "format window nvtx phase together redact output force",
    files=(),
    format=one_of("Kind of output.", *format_names("document"), "csv"),
)
def stats(
    settings: Settings,
    traces: Sequence[Path],
    reports: Sequence[str],
    names: NameStyle,
    timeunit: str | None,
    limit: int | None,
    raw: bool,
) -> None:
    """Print tables of a capture.

    Without a window the reports that nsys has count the whole capture, as nsys does; tail,
    histogram, pace and budget look at the steady window.
    """
    from advisor.pipeline.stats import stats_tables
    from advisor.reports import stats_tables as printed

    given = deliver.one_trace(settings, traces)
    trace, settings = given.path, given.options(settings)
    with deliver.Progress(trace.name) as progress:
        tables = stats_tables(trace, list(reports) or ["kernels"], settings, names, progress)
    if settings.format == "text":

        def write(page: Page) -> None:
            for table in tables:
                printed.render(page, table, timeunit, limit)

        deliver.write_page(write, settings.output, settings.force)
        return
    kept = [t.head(limit or None) for t in tables]
    unit = timeunit or "nsec"
    if settings.format == "csv":
        text = printed.csv_text(kept, unit, raw)
        deliver.write_bytes(text.encode("utf-8", "backslashreplace"), settings.output, settings.force)
    else:
        deliver.deliver(printed.report(kept[0].capture, kept, unit), settings)


@click.command(cls=Verb)
@click.argument("traces", metavar="[TRACE...]", nargs=-1, type=PATH)
@click.option("--match", default="", metavar="TEXT", help="Only facts whose name holds TEXT: sync., _p50.")
@takes(
    "window nvtx phase weight_bytes jobs redact format output force",
    files=(),
    format=deliver.formats("Kind of list."),
)
def facts(settings: Settings, traces: Sequence[Path], match: str) -> None:
    """List the facts that rules may use; with TRACE, their values and where those come from. Of the ranks of
    a job the values of each, and those of the job."""
    from advisor.comparison.change_facts import EVERY_FACT
    from advisor.reports.listings import FactList, FactValues, catalogue, values

    deliver.check_files(settings, traces)
    if traces:
        hold_pipes(traces)
        from advisor.pipeline.inputs import of_one, quietly

        with deliver.Progress(traces[0].name) as progress:
            done = of_one(traces).read(quietly(settings, progress, settings.jobs)).diagnoses[0]
        path = done.inputs[0].path
        found = FactValues(capture=path, facts=tuple(f for f in done.facts if match in f.name))
        deliver.deliver_one(found, values, f"Facts of {Path(path).name}", settings)
        return
    if needing := typed("match", "format", "output", "force"):
        raise InputError(f"{needing[0]} needs a TRACE")
    listed = FactList.of(s for name, s in EVERY_FACT.items() if match in name)
    deliver.deliver_one(listed, catalogue, "Facts", settings)


@click.command(cls=Verb)
@click.argument("traces", metavar="TRACE", nargs=-1, type=PATH)
@click.option(
    "--fix",
    "fixes",
    multiple=True,
    metavar="NAME[:param=value]",
    help="A what-if, a code or a cause, in order.",
    shell_complete=offer(fix_names),
)
@click.option("--list", "listed", is_flag=True, help="Show the what-ifs.")
@takes(
    "together jobs format output force window phase weight_bytes unprofiled_step rules redact",
    files=(),
    format=deliver.formats("Kind of report."),
)
def whatif(settings: Settings, traces: Sequence[Path], fixes: Sequence[str], listed: bool) -> None:
    """Predict the step time after a change, by replaying the capture without the cause.

    Several --fix are applied in order, and each shows what it wins after those before it.
    """
    deliver.check_files(settings, traces)
    if listed:
        from advisor.gain.whatifs import catalogue
        from advisor.model.explanation import WhatIfList
        from advisor.reports.listings import whatifs

        known = catalogue().whatifs
        every = WhatIfList(whatifs={name: spec.shown for name, spec in known.items()})
        deliver.deliver_one(every, whatifs, "What-ifs", settings)
        return
    if not traces or not fixes:
        raise InputError("whatif needs TRACE and at least one --fix NAME; see 'advisor whatif --list'")
    from advisor.pipeline.explain import whatif as ask
    from advisor.reports.finding_text import whatif as said

    hold_pipes(traces)
    given, settings = deliver.with_pair(settings, traces)
    with deliver.Progress(traces[0].name) as progress:
        report = ask(given, fixes, settings, progress, settings.jobs)
    deliver.deliver_one(report, said, "What a change wins", settings)


@click.group(cls=Verbs)
def export() -> None:
    """Write what was found for other viewers."""


@export.command()
@click.argument("traces", metavar="TRACE", nargs=-1, required=True, type=PATH)
@takes("output force window nvtx phase rules redact", files=())
@click.option(
    "--gaps", type=WholeNumber(0), default=1_000, metavar="N", help="Idle gaps to draw (default 1000)."
)
@click.option("--with-trace", is_flag=True, help="Write the capture itself as well, as one trace.")
def perfetto(settings: Settings, traces: Sequence[Path], gaps: int, with_trace: bool) -> None:
    """Write what Perfetto (ui.perfetto.dev) opens: an overlay, or the whole capture.

    Findings as named ranges, the largest idle gaps cut into the parts of the budget, steps, and
    GPU metrics as counters. Times are those of the capture's file, exact to the nanosecond.

    With --with-trace in one file with the capture: kernels, copies and CUDA calls by stream and
    thread, arrows from call to kernel, NVTX ranges, counters. Name it *.perfetto-trace.
    """
    given = deliver.one_trace(settings, traces)
    trace, settings = given.path, given.options(settings)
    target = settings.output
    ending = ".perfetto-trace" if with_trace else ".json"
    if target in (None, STDOUT) and sys.stdout.isatty():
        name = f"{trace.name.split('.')[0]}{ending}"
        raise InputError(f"a trace is not printed to a terminal; write it to a file: -o {name}")
    if target is not None and target.suffix.lower() in (*SUFFIXES, ".pdf"):
        check_ending("-o", target, [ending])

    from advisor.export.capture_tracks import trace_packets
    from advisor.export.overlay import render
    from advisor.model.numbers import value_text
    from advisor.pipeline.diagnose import analyse, assemble

    READING.saves_memory = True  # the written trace needs memory on top of the analysis
    with deliver.Progress(trace.name) as progress, analyse(trace, settings, progress) as done:
        diagnosis = assemble(done)
        done.gains.forget()
        READING.give_back()
        progress("writing")
        make = trace_packets if with_trace else render
        deliver.write_bytes(make(done.analysis, diagnosis, gaps), target, settings.force)
    if target is not None and target.is_file():
        size = value_text(target.stat().st_size, "bytes")
        message(f"wrote {target} ({size}): open it at https://ui.perfetto.dev, which reads it locally")


@click.command(cls=Verb)
@click.argument("source", metavar="IN", type=PATH)
@click.argument("target", metavar="OUT", type=PATH)
@click.option("--check", type=PATH, metavar="FILE", help="Fail where a line of FILE is still in the copy.")
@takes("force quiet", files=(), force="Replace an existing OUT.", quiet="Say nothing.")
def redact(settings: Settings, source: Path, target: Path, check: Path | None) -> None:
    """Copy the nsys SQLite export IN to OUT without what is private in it; IN stays as it is.

    Environment variables, the list of processes, program output, attached files, folders, names of
    hosts and users, addresses, and what looks like a secret are taken out, wherever the export keeps
    them; tables, views and columns that no export has are dropped; ids of GPUs become others. Kernel
    names, NVTX ranges, times and devices stay: the copy is diagnosed alike.
    OUT may end in .xz or .gz.
    """
    from advisor.capture.redact import redact as run
    from advisor.pipeline.inputs import check_exists, one_capture
    from advisor.reports.listings import redacted

    check_exists(source)
    source = one_capture([source], verb="advisor redact").path
    check_target(target, settings.force, [source])
    try:
        strings = read_text(check).splitlines() if check else []
    except (OSError, UnicodeDecodeError) as fault:
        reason = getattr(fault, "strerror", None) or "not UTF-8 text"
        raise InputError(f"--check: {check}: cannot be read ({reason})") from fault
    if check and not any(map(str.strip, strings)):  # an empty list would pass for a clean copy
        raise InputError(f"--check: {check}: holds no line to look for; write one name a line")
    with deliver.Progress(source.name) as progress:
        progress("redacting")
        done = run(source, target, settings.force, strings)
    if not settings.quiet:
        deliver.show(redacted(str(source), str(target), done))


@click.command(cls=Verb)
@click.option(
    "--root",
    "roots",
    multiple=True,
    type=PATH,
    metavar="DIR",
    help="Folder that may be read (repeatable; here).",
)
@click.option("--redact", is_flag=True, help="Take paths, names and secrets out of every answer.")
def mcp(roots: Sequence[Path], redact: bool) -> None:
    """Serve diagnose, show, explain, whatif, compare, doctor, plan and stats to agents.

    Speaks the Model Context Protocol on standard input and output; an agent starts it. Reads only,
    and only below --root. Needs `pip install -e '.[mcp]'` in a checkout.
    """
    from advisor.agents.server import serve
    from advisor.agents.tools import Tools

    folders = list(roots) or [Path.cwd()]
    for folder in folders:
        if not folder.is_dir():
            raise InputError(f"--root: {folder} is not a folder")
    serve(Tools(folders, redact))
