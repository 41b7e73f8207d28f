"""``advisor show TRACE N|CODE``: one finding in full."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from advisor.cli import complete, flags
from advisor.cli.deliver import formats
from advisor.cli.settings import takes
from advisor.config import Settings
from advisor.errors import InputError


@takes(
    "trace code last window nvtx phase weight_bytes unprofiled_step serving_engine rules param engine redact "
    "together format output force verbose",
    format=formats("Kind of answer."),
    verbose="How sure, and why, as well.",
)
def show(
    settings: Settings,
    trace: Annotated[Path, typer.Argument(metavar="TRACE", hidden=True)],
    code: Annotated[
        str | None, typer.Argument(metavar="[N|CODE]", hidden=True, autocompletion=complete.rules)
    ] = None,
    last: Annotated[
        str | None, typer.Argument(metavar="", hidden=True, autocompletion=complete.rules)
    ] = None,
    together: flags.Together = False,
    output: flags.Output = None,
    force: flags.Force = False,
) -> None:
    """Show one finding of a capture in full: its numbers, what proves it, where it is, what to do
    about it and how to verify that.

    N is the number of the finding in the diagnosis (1 without it), CODE a rule or cause; of one
    that found nothing the answer says why not, as `advisor explain CODE --trace TRACE`.
    """
    from advisor.cli.explain import answer

    if last is not None and not together:
        raise InputError(
            "takes one capture and one N or CODE; for two recordings of one program add --together"
        )
    traces = [trace, *map(Path, [code] if together and code else [])]
    answer((last if together else code) or "1", traces, settings, output, force, full=True, together=together)
