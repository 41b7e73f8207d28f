"""The verbs as one typer application."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Annotated, Any

import typer

from advisor import __version__
from advisor.cli.lazy import HELP, LazyGroup, Stopped
from advisor.cli.main import VERBS, help_text
from advisor.cli.messages import message


class Advisor(LazyGroup):
    verbs = VERBS
    default = "diagnose"

    def get_help(self, ctx: Any) -> str:  # noqa: ARG002
        return help_text()


app = typer.Typer(
    cls=Advisor, rich_markup_mode=None, pretty_exceptions_enable=False, context_settings=HELP,
    subcommand_metavar="[VERB] TRACE...",
)  # fmt: skip


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"advisor {__version__}")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def _group(
    ctx: typer.Context,
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True)] = False,  # noqa: ARG001
    debug: Annotated[bool, typer.Option("--debug")] = False,  # noqa: ARG001
) -> None:
    if ctx.invoked_subcommand is None:
        typer.echo(ctx.get_help(), err=True)
        raise typer.Exit(2)


def run_verb(words: Sequence[str]) -> int:
    """Run a command line; the exit code."""
    try:
        result = app(words, "advisor", standalone_mode=False)
        sys.stdout.flush()
        return result if isinstance(result, int) else 0
    except Stopped as stopped:
        if stopped.exit_code:
            message("interrupted")
        return stopped.exit_code
    except typer.Abort:
        return 130
