"""What is passed on. ``advisor export``: the capture's findings for other viewers. ``advisor redact``: a
copy of a capture without what is private. ``advisor mcp``: the verbs as tools for agents."""

from __future__ import annotations

import gc
import sys
from pathlib import Path

from advisor.cli.app import verb_group
from advisor.cli.deliver import Progress
from advisor.cli.settings import argument, option, switch, takes
from advisor.config import Settings
from advisor.errors import InputError

app = verb_group("Write what was found for other viewers.")


@app.command()
@takes("trace output force window nvtx phase rules redact gaps with_trace", files=())
def perfetto(
    settings: Settings,
    trace: Path = argument("TRACE"),
    gaps: int = option("N", "Idle gaps to draw.", 1_000, min=0),
    with_trace: bool = switch("--with-trace", "Write the capture itself as well, as one trace."),
) -> None:
    """Write what Perfetto (ui.perfetto.dev) opens: an overlay, or the whole capture.

    Findings as named ranges, the largest idle gaps cut into the parts of the budget, steps, and
    GPU metrics as counters. Times are those of the capture's file, exact to the nanosecond.

    With --with-trace in one file with the capture: kernels, copies and CUDA calls by stream and
    thread, arrows from call to kernel, NVTX ranges, counters. Name it *.perfetto-trace.
    """
    from advisor.cli.deliver import check_one, write_bytes
    from advisor.cli.messages import message
    from advisor.reports.files import STDOUT, SUFFIXES, check_ending

    check_one(settings, trace)
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
    from advisor.reading import READING

    # The written trace needs memory on top of the analysis.
    READING.saves_memory = True
    with Progress(trace.name) as progress, analyse(trace, settings, progress) as done:
        diagnosis = assemble(done)
        done.gains.forget()
        READING.give_back()
        progress("writing")
        make = trace_packets if with_trace else render
        write_bytes(make(done.analysis, diagnosis, gaps), target, settings.force)
    if target is not None and target.is_file():
        size = value_text(target.stat().st_size, "bytes")
        message(f"wrote {target} ({size}): open it at https://ui.perfetto.dev, which reads it locally")


@takes("source target check force quiet", files=(), force="Replace an existing OUT.", quiet="Say nothing.")
def redact(
    settings: Settings,
    source: Path = argument("IN"),
    target: Path = argument("OUT"),
    check: Path | None = option("FILE", "Fail where a line of FILE is still in the copy."),
) -> None:
    """Copy the nsys SQLite export IN to OUT without what is private in it; IN stays as it is.

    Environment variables, the list of processes, program output, attached files, folders, names of
    hosts and users, addresses, and what looks like a secret are taken out, wherever the export keeps
    them; tables, views and columns that no export has are dropped; ids of GPUs become others. Kernel
    names, NVTX ranges, times and devices stay: the copy is diagnosed alike.
    OUT may end in .xz or .gz.
    """
    from advisor.capture.redact import redact as run
    from advisor.cli.deliver import Progress, show
    from advisor.cli.inputs import check_exists
    from advisor.errors import InputError
    from advisor.reading import read_text
    from advisor.reports.files import check_target
    from advisor.reports.listings import redacted

    check_exists(source)
    if source.is_dir():
        raise InputError(f"{source} is a folder; name one export")
    check_target(target, settings.force, [source])
    try:
        strings = read_text(check).splitlines() if check else []
    except (OSError, UnicodeDecodeError) as fault:
        reason = getattr(fault, "strerror", None) or "not UTF-8 text"
        raise InputError(f"--check: {check}: cannot be read ({reason})") from fault
    with Progress(source.name) as progress:
        progress("redacting")
        done = run(source, target, settings.force, strings)
    if not settings.quiet:
        entries = [(r.what, r.table, r.count) for r in done.removed]
        sizes = (done.bytes_before, done.bytes_after)
        show(redacted(str(source), str(target), sizes, entries, done.kept))


def mcp(
    root: list[Path] | None = option("DIR", "Folder that may be read (repeatable; here)."),
    redact: bool = switch("--redact", "Take paths, names and secrets out of every answer."),
) -> None:
    """Serve diagnose, show, explain, whatif, compare, doctor, plan and stats to agents.

    Speaks the Model Context Protocol on standard input and output; an agent starts it. Reads only,
    and only below --root. Needs `pip install 'inference-advisor[mcp]'`.
    """
    from advisor.agents.server import serve
    from advisor.agents.tools import Tools

    roots = root or [Path.cwd()]
    for folder in roots:
        if not folder.is_dir():
            raise InputError(f"--root: {folder} is not a folder")
    gc.enable()  # a server lives long
    serve(Tools(roots, redact))
