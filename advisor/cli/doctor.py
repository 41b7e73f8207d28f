"""``advisor doctor TRACE``: capture quality alone, and the command that records a better one."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from advisor.cli import flags
from advisor.cli.deliver import formats
from advisor.cli.settings import takes
from advisor.config import Settings


@takes(
    "trace serving_engine rules param strict redact format output force verbose",
    format=formats("Kind of report."),
    verbose="Every option, reason and advice.",
)
def doctor(
    settings: Settings,
    trace: Annotated[Path, typer.Argument(metavar="TRACE", hidden=True)],
    strict: Annotated[bool, typer.Option("--strict", help="Exit 1 on a finding of medium or above.")] = False,
    output: flags.Output = None,
    force: flags.Force = False,
) -> None:
    """Check a capture: what it can and cannot answer, which rules cannot run on it and why, and
    the one command that records what most of them need.
    """
    from advisor.cli.deliver import check_output, deliver_one
    from advisor.cli.progress import Progress
    from advisor.pipeline.doctor import doctor as examine
    from advisor.reports.checkup import checkup

    output = check_output(output, force, trace)
    with Progress(trace.name) as progress:
        found = examine(trace, settings, progress)
    blocks = partial(checkup, found, settings.verbosity)
    deliver_one(found, blocks, "Checkup of a capture", settings.format, output, force)
    if strict and any(f.severity in ("medium", "high") for f in found.findings):
        raise typer.Exit(1)
