"""``advisor review``: what a meeting decided, read back from its workbook."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from advisor.cli import flags
from advisor.cli.lazy import verb_group
from advisor.cli.messages import message
from advisor.cli.settings import takes
from advisor.config import Settings
from advisor.model.options import one_of

app = verb_group("Read decisions back, and follow findings from review to review.")


@app.command("import")
@takes("workbook format output force", files=(), format=one_of("Kind of result.", "text", "json", "markdown"))
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
    from advisor.cli.deliver import deliver, target_of
    from advisor.cli.output import write_bytes
    from advisor.reports import review_text
    from advisor.reports.workbook import review as workbook_review

    output = target_of(output, force, [workbook])
    found = workbook_review.read(workbook, __version__)
    if settings.format == "markdown":
        write_bytes(review_text.markdown(found), output, force)
    else:
        deliver(found, lambda page: review_text.render(page, found), settings.format, output, force)
    for problem in found.problems:
        message(f"error: {workbook}: {problem.cell}: {problem.text}")
    if found.problems:
        raise typer.Exit(2)
