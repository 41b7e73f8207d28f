"""``advisor review``: what a meeting decided, read back from its workbook."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from advisor.cli import flags
from advisor.cli.lazy import HELP
from advisor.errors import InputError

FORMATS = ("text", "json", "markdown")
app = typer.Typer(rich_markup_mode=None, add_completion=False, context_settings=HELP)


@app.callback(invoke_without_command=True)
def _group(ctx: typer.Context) -> None:
    """Read decisions back from a review workbook."""
    if ctx.invoked_subcommand is None:
        typer.echo(ctx.get_help(), err=True)
        raise typer.Exit(2)


@app.command("import")
def import_(
    workbook: Annotated[Path, typer.Argument(metavar="XLSX", hidden=True)],
    format: Annotated[
        str, typer.Option(metavar="|".join(FORMATS), help="Kind of result.")
    ] = "text",
    output: flags.Output = None,
    force: flags.Force = False,
) -> None:
    """Read owners, decisions, due dates and checklist answers from a workbook of --xlsx.

    The next workbook starts from them with: advisor diagnose TRACE --xlsx FILE --review XLSX
    """
    from advisor import __version__
    from advisor.cli.deliver import deliver
    from advisor.cli.output import STDOUT, write_bytes
    from advisor.reports import review_text
    from advisor.reports.files import check_target
    from advisor.reports.workbook import review as workbook_review

    if format not in FORMATS:
        raise InputError(f"--format: '{format}' is none of {', '.join(FORMATS)}")
    output = None if output == STDOUT else output
    if output is not None:
        check_target(output, force, [workbook])
    found = workbook_review.read(workbook, __version__)
    if format == "markdown":
        write_bytes(review_text.markdown(found), output, force)
        return
    deliver(found, lambda page: review_text.render(page, found), format, output, force)
