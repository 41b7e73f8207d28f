"""``advisor export``: the capture's findings for other viewers."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from advisor.cli import flags
from advisor.cli.lazy import verb_group

app = verb_group("Write what was found for other viewers.")


def _text(metavar: str, help: str) -> Any:
    return typer.Option(metavar=metavar, help=help)


@app.command()
def perfetto(
    trace: Annotated[Path, typer.Argument(metavar="TRACE", hidden=True)],
    output: flags.Output = None,
    force: flags.Force = False,
    window: Annotated[str | None, _text("FROM/TO", "As for diagnose.")] = None,
    nvtx: Annotated[str | None, _text("RANGE[@DOMAIN][/N]", "As for diagnose.")] = None,
    phase: Annotated[str | None, _text("PHASE", "As for diagnose.")] = None,
    rules: Annotated[list[str] | None, _text("DIR", "As for diagnose.")] = None,
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
    from advisor.pipeline.diagnose import Options, analyse, assemble

    target = check_output("json", output, force, trace)
    options = Options(
        window=window, nvtx=nvtx, phase=phase, rules=tuple(Path(r) for r in rules or ())
    )
    with Progress(trace.name) as progress, analyse(trace, options, progress) as done:
        data = overlay.render(done.analysis, assemble(done), gaps)
    write_bytes(data, target, force)
