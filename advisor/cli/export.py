"""``advisor export``: the capture's findings for other viewers."""

from __future__ import annotations

import sys
from pathlib import Path

from advisor.cli.app import verb_group
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
    from advisor.reports.files import STDOUT, SUFFIXES

    check_one(settings, trace)
    target = settings.output
    ending = ".perfetto-trace" if with_trace else ".json"
    if target in (None, STDOUT) and sys.stdout.isatty():
        name = f"{trace.name.split('.')[0]}{ending}"
        raise InputError(f"a trace is not printed to a terminal; write it to a file: -o {name}")
    if target is not None and target.suffix != ending and target.suffix.lower() in (*SUFFIXES, ".pdf"):
        raise InputError(f"-o {target}: what Perfetto opens is no such file; name it {target.stem}{ending}")

    from advisor.cli.progress import Progress
    from advisor.export.capture_tracks import trace_packets
    from advisor.export.perfetto import render
    from advisor.model.numbers import value_text
    from advisor.pipeline.diagnose import analyse, assemble
    from advisor.reading import READING

    # The trace to write comes on top of what the analysis takes.
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
