"""``advisor doctor TRACE``: capture quality alone, and the command that records a better one."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import typer

from advisor.cli.deliver import formats
from advisor.cli.settings import argument, switch, takes
from advisor.config import Settings


@takes(
    "trace serving_engine rules param strict redact format output force verbose",
    format=formats("Kind of report."),
    verbose="Every option, reason and advice.",
)
def doctor(
    settings: Settings,
    trace: Path = argument("TRACE"),
    strict: bool = switch("--strict", "Exit 1 on a finding of medium or above."),
) -> None:
    """Check a capture: what it can and cannot answer, which rules cannot run on it and why, and
    the one command that records what most of them need.
    """
    from advisor.cli.deliver import check_one, deliver_one
    from advisor.cli.progress import Progress
    from advisor.pipeline.doctor import doctor as examine
    from advisor.reports.checkup import checkup

    check_one(settings, trace)
    with Progress(trace.name) as progress:
        found = examine(trace, settings, progress)
    deliver_one(found, partial(checkup, found, settings.verbosity), "Checkup of a capture", settings)
    if strict and any(f.severity in ("medium", "high") for f in found.findings):
        raise typer.Exit(1)
