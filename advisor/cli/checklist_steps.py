"""What `advisor checklist` does once its options are read."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from advisor.checklist.session import find, path_of, read, resume_command
from advisor.cli.deliver import deliver_one, show
from advisor.errors import InputError
from advisor.reports.files import STDOUT, check_target, check_targets

if TYPE_CHECKING:
    from advisor.checklist.items import CaptureFacts
    from advisor.config import Settings
    from advisor.model.checklist import Checklist
    from advisor.model.findings import Diagnosis


def check(
    traces: Sequence[Path],
    session: str | None,
    resume: bool,
    output: Path | None,
    xlsx: Path | None,
    force: bool,
    asks: bool,
) -> Path | None:
    """The session's file, if one is to be kept; a bad path fails early."""
    check_targets({"-o": None if output == STDOUT else output, "--xlsx": xlsx}, force, traces)
    if resume:
        return find(session)
    if session is None and not asks:
        return None
    place = path_of(session)
    if place.exists():
        if not force:
            raise InputError(f"{place} exists; add --resume to go on, or --force to start over")
        read(place)  # nothing but a session is replaced
    check_target(place, True, traces)
    return place


def known_from(traces: Sequence[Path], settings: Settings) -> tuple[list[Diagnosis], CaptureFacts]:
    """Diagnose the captures and collect their facts."""
    engine = settings.serving_engine
    from advisor.checklist.items import CaptureFacts, capture_facts
    from advisor.serving.detect import named

    name = None if engine is None else named(engine).name
    if not traces:
        return [], CaptureFacts(engine=name)
    from advisor.cli.inputs import expand
    from advisor.cli.report import diagnosed

    found, _, _ = diagnosed(expand(traces), settings)
    if not found:
        raise InputError("none of the captures could be read")
    return found, capture_facts(found, name)


def start(known: CaptureFacts, place: Path | None, resume: bool) -> Checklist:
    """The checklist before anybody is asked: what facts answer, and what a session holds."""
    from advisor.checklist.items import checklist
    from advisor.checklist.session import restore

    fresh = checklist(known, None if place is None else str(place))
    return restore(place, fresh) if resume and place is not None else fresh


def answered(
    begin: Checklist,
    answers: Path | None,
    no_input: bool,
    every: bool,
    place: Path | None,
    short: bool = False,
) -> Checklist:
    """The questions walked through, whoever answers; every answer is saved at once."""
    from advisor.checklist.prompts import FileAsker, TerminalAsker, shortened, walk
    from advisor.checklist.session import read_answers, save
    from advisor.reports.checklist import welcome

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


def deliver_result(
    done: Checklist, settings: Settings, output: Path | None, force: bool, short: bool = False
) -> None:
    """The checklist, or its eight steps, on stdout or in a file."""
    from advisor.checklist.prompts import shortened
    from advisor.reports.checklist import checklist

    done = shortened(done) if short else done
    output = None if output == STDOUT else output
    blocks = partial(checklist, done, settings.verbosity)
    deliver_one(done, blocks, "Checklist of a performance analysis", settings.format, output, force)


def say_where(place: Path | None) -> None:
    """Where the answers are kept."""
    if place is not None:
        print(f"Saved in {place}.", file=sys.stderr)
