"""``advisor review``: what a meeting decided, read back from its workbook."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from advisor.cli import flags
from advisor.cli.deliver import formats
from advisor.cli.lazy import verb_group
from advisor.cli.messages import message
from advisor.cli.settings import takes
from advisor.config import Settings

app = verb_group("Read decisions back, and follow findings from review to review.")


@app.command("import")
@takes("workbook format output force", files=(), format=formats("Kind of result."))
def import_(
    settings: Settings,
    workbook: Annotated[Path, typer.Argument(metavar="XLSX", hidden=True)],
    output: flags.Output = None,
    force: flags.Force = False,
) -> None:
    """Read owners, decisions, due dates and checklist answers from a workbook of --xlsx.

    A cell that cannot be understood is named on stderr, and the exit code is then 2; the rest is
    read. The next workbook starts from them with: advisor diagnose TRACE --xlsx FILE --review XLSX
    """
    from advisor import __version__
    from advisor.cli.deliver import deliver_one, target_of
    from advisor.reports.review import review as said
    from advisor.reports.workbook import review as workbook_review

    output = target_of(output, force, [workbook])
    found = workbook_review.read(workbook, __version__)
    title = f"Review of {found.workbook}"
    deliver_one(found, partial(said, found), title, settings.format, output, force)
    if not any(d.touched for d in found.decisions):
        message(f"note: {workbook}: nothing is decided in it yet")
    for problem in found.problems:
        message(f"error: {workbook}: {problem.cell}: {problem.text}")
    if found.problems:
        raise typer.Exit(2)
