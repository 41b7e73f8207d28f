"""``advisor export``: the capture's findings for other viewers."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from advisor.cli import flags
from advisor.cli.lazy import verb_group
from advisor.cli.settings import takes
from advisor.config import Settings

app = verb_group("Write what was found for other viewers.")


_HELP = "As for diagnose."


@app.command()
@takes(
    "trace",
    "output",
    "force",
    "window",
    "nvtx",
    "phase",
    "rules",
    "gaps",
    files=False,
    window=_HELP,
    nvtx=_HELP,
    phase=_HELP,
    rules=_HELP,
)
def perfetto(
    settings: Settings,
    trace: Annotated[Path, typer.Argument(metavar="TRACE", hidden=True)],
    output: flags.Output = None,
    force: flags.Force = False,
    gaps: Annotated[int, typer.Option(metavar="N", min=0, help="Idle gaps to draw.")] = 1_000,
) -> None:
    """Write an overlay that Perfetto (ui.perfetto.dev) or chrome://tracing opens.

    Findings as named ranges, the largest idle gaps cut into the parts of the budget, steps, and
    GPU metrics as counters. Times are those of the capture's file, exact to the nanosecond.
    """
    from advisor.cli.deliver import check_output
    from advisor.cli.output import write_bytes
    from advisor.cli.progress import Progress
    from advisor.export import perfetto as overlay
    from advisor.pipeline.diagnose import analyse, assemble

    target = check_output("json", output, force, trace)
    options = settings.options()
    with Progress(trace.name) as progress, analyse(trace, options, progress) as done:
        data = overlay.render(done.analysis, assemble(done), gaps)
    write_bytes(data, target, force)
