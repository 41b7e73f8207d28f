"""``advisor checklist``: what to make sure of, answered from captures where possible."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from advisor.cli.deliver import check_files, deliver_one, formats, show
from advisor.cli.settings import argument, option, switch, takes
from advisor.config import Settings
from advisor.errors import InputError

if TYPE_CHECKING:
    from advisor.checklist.items import CaptureFacts
    from advisor.model.findings import Diagnosis
    from advisor.model.review import Checklist


@takes(
    "traces session resume answers no_input every short list_ serving_engine rules param format output xlsx "
    "force verbose",
    format=formats("Kind of result."),
    force="Replace FILE, or start a session over.",
    verbose="Why and how of all.",
)
def checklist(
    settings: Settings,
    traces: list[Path] | None = argument("[TRACE...]", None),
    session: str | None = option("NAME|FILE", "Keep the answers here (default: advisor)."),
    resume: bool = switch("--resume", "Go on with a session."),
    answers: Path | None = option("FILE", "Answers: id: yes|no|n/a|later."),
    no_input: bool = switch("--no-input", "Ask nothing."),
    every: bool = switch("--all", "Ask also what the capture answers."),
    short: bool = switch("--short", "The eight steps that matter most."),
    list_: bool = switch("--list", "List the questions and stop."),
) -> None:
    """Go through what a sound performance analysis takes, before, during and after a capture.

    With TRACE questions that the capture answers get its number; the rest is asked. Every
    answer is kept at once: stop with q or Ctrl-C and go on with --resume. Without a terminal use
    --answers FILE --no-input.
    """
    asks = not (no_input or list_)
    if asks:
        from advisor.checklist.prompts import need_terminal

        need_terminal("add --no-input, and --answers FILE if there are answers")
    from advisor.checklist import items
    from advisor.checklist.prompts import shortened
    from advisor.checklist.session import restore
    from advisor.reports.review import checklist as blocks

    place = _place(traces or [], settings, session, resume, asks)
    diagnoses, known = _known_from(traces or [], settings)
    done = items.checklist(known, None if place is None else str(place), settings.rules)
    if resume and place is not None:
        done = restore(place, done)
    if not list_:
        done = _answered(done, answers, no_input, every, place, short)
        if settings.xlsx is not None:
            from advisor.reports.files import write_atomic
            from advisor.reports.workbook import book as workbook

            write_atomic(settings.xlsx, workbook.render(diagnoses, checklist=done), settings.force)
    shown = shortened(done) if short else done
    deliver_one(
        shown, partial(blocks, shown, settings.verbosity), "Checklist of a performance analysis", settings
    )
    if place is not None and not list_:
        print(f"Saved in {place}.", file=sys.stderr)


def _place(
    traces: Sequence[Path], settings: Settings, session: str | None, resume: bool, asks: bool
) -> Path | None:
    """The session's file, if one is to be kept; a bad path fails early."""
    from advisor.checklist.session import find, path_of, read
    from advisor.reports.files import check_target

    check_files(settings, traces)
    if resume:
        return find(session)
    if session is None and not asks:
        return None
    place = path_of(session)
    if place.exists():
        if not settings.force:
            raise InputError(f"{place} exists; add --resume to go on, or --force to start over")
        read(place)  # nothing but a session is replaced
    check_target(place, True, traces)
    return place


def _known_from(traces: Sequence[Path], settings: Settings) -> tuple[list[Diagnosis], CaptureFacts]:
    """Diagnose the captures and collect their facts."""
    from advisor.checklist.items import CaptureFacts, capture_facts
    from advisor.knowledge.serving import named

    name = None if settings.serving_engine is None else named(settings.serving_engine).name
    if not traces:
        return [], CaptureFacts(engine=name)
    from advisor.cli.diagnose import diagnosed
    from advisor.cli.inputs import expand

    found, _, _ = diagnosed(expand(traces), settings)
    if not found:
        raise InputError("none of the captures could be read")
    return found, capture_facts(found, name)


def _answered(
    begin: Checklist, answers: Path | None, no_input: bool, every: bool, place: Path | None, short: bool
) -> Checklist:
    """The questions walked through, whoever answers; every answer is saved at once."""
    from advisor.checklist.prompts import FileAsker, TerminalAsker, shortened, walk
    from advisor.checklist.session import read_answers, resume_command, save
    from advisor.reports.review import welcome

    replies = read_answers(answers, begin) if answers is not None else {}
    person = None if no_input else TerminalAsker(show)
    also = {e.id for e in begin.entries} if every else set(replies)

    def keep(so_far: Checklist) -> None:
        if place is not None:
            save(place, so_far)

    keep(begin)
    if person is not None:
        show(welcome(shortened(begin) if short else begin, str(place)))
    try:
        return walk(begin, FileAsker(replies, person), keep, frozenset(also), short)
    except (KeyboardInterrupt, EOFError):
        if place is not None:
            again = resume_command(place) + " --short" * short
            print(f"\nSaved. Go on with: {again}", file=sys.stderr)
        raise KeyboardInterrupt from None
