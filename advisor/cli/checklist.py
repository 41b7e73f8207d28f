"""``advisor checklist``: what to make sure of, answered from captures where possible."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from advisor.cli import flags
from advisor.cli.deliver import formats
from advisor.cli.settings import takes
from advisor.config import Settings


@takes(
    "traces session resume answers no_input every short show serving_engine rules param format output xlsx "
    "force verbose",
    format=formats("Kind of result."),
    verbose="Why and how of all.",
)
def checklist(
    settings: Settings,
    traces: Annotated[list[Path] | None, typer.Argument(metavar="[TRACE...]", hidden=True)] = None,
    session: Annotated[
        str | None, typer.Option(metavar="NAME|FILE", help="Keep the answers here (default: advisor).")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with a session.")] = False,
    answers: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Answers: id: yes|no|n/a|later.")
    ] = None,
    no_input: Annotated[bool, typer.Option("--no-input", help="Ask nothing.")] = False,
    every: Annotated[bool, typer.Option("--all", help="Ask also what the capture answers.")] = False,
    short: Annotated[bool, typer.Option("--short", help="The eight steps that matter most.")] = False,
    show: Annotated[bool, typer.Option("--list", help="List the questions and stop.")] = False,
    output: flags.Output = None,
    xlsx: flags.Xlsx = None,
    force: Annotated[bool, typer.Option("--force", help="Replace FILE, or start a session over.")] = False,
) -> None:
    """Go through what a sound performance analysis takes, before, during and after a capture.

    With TRACE questions that the capture answers get its number; the rest is asked. Every
    answer is kept at once: stop with q or Ctrl-C and go on with --resume. Without a terminal use
    --answers FILE --no-input.
    """
    from advisor.cli import checklist_steps as steps

    asks = not (no_input or show)
    if asks:
        from advisor.checklist.prompts import need_terminal

        need_terminal("add --no-input, and --answers FILE if there are answers")
    given = traces or []
    place = steps.check(given, session, resume, output, xlsx, force, asks)
    diagnoses, known = steps.known_from(given, settings)
    start = steps.start(known, place, resume)
    if show:
        steps.deliver_result(start, settings, output, force, short)
        return
    done = steps.answered(start, answers, no_input, every, place, short)
    if xlsx is not None:
        from advisor.reports.files import write_atomic
        from advisor.reports.workbook import book as workbook

        write_atomic(xlsx, workbook.render(diagnoses, checklist=done), force)
    steps.deliver_result(done, settings, output, force, short)
    steps.say_where(place)
