"""``advisor checklist``: what to make sure of, answered from captures where possible. ``advisor review``:
what a meeting decided, read back from its workbook, and reviews that build on each other."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING

import click

from advisor.cli.deliver import Progress, check_files, deliver_one, formats, show
from advisor.cli.messages import errors, message
from advisor.cli.options import NAME_OR_FILE, PATH, Verb, Verbs, takes
from advisor.cli.paths import hold_pipes
from advisor.config import Settings
from advisor.errors import InputError
from advisor.reports.output_file import check_target, write_atomic, write_into_folder

if TYPE_CHECKING:
    from advisor.checklist.items import CaptureFacts
    from advisor.checklist.session import Reply
    from advisor.model.findings import Diagnosis
    from advisor.model.review import Checklist, History


@click.command(cls=Verb)
@click.argument("traces", metavar="[TRACE...]", nargs=-1, type=PATH)
@click.option(
    "--session", type=NAME_OR_FILE, metavar="NAME|FILE", help="Keep the answers here (default: advisor)."
)
@click.option("--resume", is_flag=True, help="Go on with a session.")
@click.option("--answers", type=PATH, metavar="FILE", help="Answers: id: yes|no|n/a|later.")
@click.option("--no-input", is_flag=True, help="Ask nothing.")
@click.option("--all", "every", is_flag=True, help="Ask also what the capture answers.")
@click.option("--short", is_flag=True, help="The eight steps that matter most.")
@click.option("--list", "listed", is_flag=True, help="List the questions and stop.")
@takes(
    "serving_engine rules param redact format output xlsx force verbose",
    format=formats("Kind of result."),
    force="Replace FILE, or start a session over.",
    verbose="Why and how of all.",
)
def checklist(
    settings: Settings,
    traces: Sequence[Path],
    session: str | None,
    resume: bool,
    answers: Path | None,
    no_input: bool,
    every: bool,
    short: bool,
    listed: bool,
) -> None:
    """Go through what a sound performance analysis takes, before, during and after a capture.

    With TRACE questions that the capture answers get its number; the rest is asked. Every
    answer is kept at once: stop with q or Ctrl-C and go on with --resume. Without a terminal use
    --answers FILE --no-input.
    """
    from advisor.checklist import items
    from advisor.checklist.session import need_terminal, restore, shortened
    from advisor.reports import review_blocks as reports

    asks = not (no_input or listed)
    if asks:
        need_terminal("add --no-input, and --answers FILE if there are answers")
    place = _place(traces, settings, session, resume, asks)
    diagnoses, known = _known_from(traces, settings)
    named = None if place is None else place.name if settings.redact else str(place)
    done = items.checklist(known, named, settings.rules)
    if resume and place is not None:
        done = restore(place, done)
    if not listed:
        begins = place is not None and not resume
        done = _answered(done, answers, no_input, every, place, short, settings.force if begins else None)
        if settings.xlsx is not None:
            from advisor.reports.workbook import book as workbook

            write_atomic(settings.xlsx, workbook.render(diagnoses, checklist=done), settings.force)
    shown = shortened(done) if short else done
    title = "Checklist of a performance analysis"
    deliver_one(shown, reports.checklist, title, settings, settings.verbosity)
    if place is not None and not listed:
        print(f"Saved in {place}.", file=sys.stderr)


def _place(
    traces: Sequence[Path], settings: Settings, session: str | None, resume: bool, asks: bool
) -> Path | None:
    """The session's file, if there is one; a bad path fails early."""
    from advisor.checklist.session import exists, find, path_of, read

    check_files(settings, traces)
    if resume:
        return find(session)
    if session is None and not asks:
        return None
    place = path_of(session)
    if place.exists():
        if not settings.force:
            raise exists(place)
        read(place)  # only a session is overwritten
    check_target(place, True, traces)
    return place


def _known_from(traces: Sequence[Path], settings: Settings) -> tuple[list[Diagnosis], CaptureFacts]:
    """Diagnose the captures and collect their facts."""
    from advisor.checklist.items import CaptureFacts, capture_facts
    from advisor.knowledge.engine_signs import named

    name = None if settings.serving_engine is None else named(settings.serving_engine).name
    if not traces:
        return [], CaptureFacts(engine=name)
    from advisor.cli.diagnosis import how_of
    from advisor.pipeline.captures import diagnose_all
    from advisor.pipeline.inputs import several

    hold_pipes(traces)
    found = diagnose_all(several(traces).inputs, how_of(settings))
    errors(found.errors)
    if not found.diagnoses:
        raise InputError("none of the captures could be read")
    return found.diagnoses, capture_facts(found.diagnoses, name)


def _answered(
    begin: Checklist,
    answers: Path | None,
    no_input: bool,
    every: bool,
    place: Path | None,
    short: bool,
    force: bool | None,
) -> Checklist:
    """The questions, answered by a person or a file; every answer is saved at once. `force`: whether a new
    session may replace one; None if none is begun."""
    from advisor.checklist import session
    from advisor.checklist.session import at_terminal, read_answers, resume_command, shortened, walk
    from advisor.reports.review_blocks import welcome

    replies = read_answers(answers, begin) if answers is not None else {}
    person = None if no_input else at_terminal(show)
    also = frozenset(e.id for e in begin.entries) if every else frozenset(replies)

    shared = None if place is None else session.Shared(place, message)

    def keep(so_far: Checklist, own: Mapping[str, Reply]) -> Checklist:
        return so_far if shared is None else shared.keep(so_far, own)

    if place is not None and force is not None:
        session.start(place, begin, force)
    else:
        begin = keep(begin, {})  # with what the captures say now
    if person is not None:
        show(welcome(shortened(begin) if short else begin, str(place)))
    try:
        return walk(begin, person, keep, also, short, replies)
    except (KeyboardInterrupt, EOFError):
        if place is not None:
            again = resume_command(place) + " --short" * short
            print(f"\nSaved. Go on with: {again}", file=sys.stderr)
        raise KeyboardInterrupt from None


@click.group(cls=Verbs)
def review() -> None:
    """Read decisions back, and follow findings from review to review."""


FOLDER = "Folder of the history (.advisor)."
TODAY = "2026-11-22 (default: today)."


@review.command("import")
@click.argument("workbook", metavar="XLSX", type=PATH)
@takes("format output force", files=(), format=formats("Kind of result."))
def import_(settings: Settings, workbook: Path) -> int:
    """Read owners, decisions, due dates and checklist answers from a workbook of --xlsx.

    A cell that cannot be understood is named on stderr, and the exit code is then 2; the rest is
    read. The next workbook starts from them with: advisor diagnose TRACE --xlsx FILE --review XLSX
    """
    from advisor import __version__
    from advisor.pipeline.inputs import check_exists
    from advisor.reports import review_blocks
    from advisor.reports.workbook.review_sheet import read

    check_files(settings, [workbook])
    check_exists(workbook)
    found = read(workbook, __version__)
    deliver_one(found, review_blocks.review, f"Review of {found.workbook}", settings)
    if not any(d.touched for d in found.decisions):
        message(f"note: {workbook}: it holds no decisions yet")
    for problem in found.problems:
        message(f"error: {workbook}: {problem.cell}: {problem.text}")
    return 2 if found.problems else 0


def day_of(text: str | None, option: str = "--date") -> str:
    """The day as 2026-11-22; today if none is given."""
    try:
        return (date.fromisoformat(text) if text else date.today()).isoformat()
    except ValueError:
        raise InputError(f"{option}: invalid value '{text}'; expected a day like 2026-11-22") from None


@review.command()
@click.argument("sources", metavar="TRACE...", nargs=-1, required=True, type=NAME_OR_FILE)
@click.option(
    "--review", "decisions", type=PATH, metavar="FILE", help="Workbook or JSON with what was decided."
)
@click.option("--names", default="", metavar="A,B", help="Who was there.")
@click.option("--date", "day", metavar="DAY", help=TODAY)
@takes("redact folder", files=("folder",), folder=FOLDER)
def record(
    settings: Settings, sources: Sequence[str], decisions: Path | None, names: str, day: str | None
) -> None:
    """Record a review of TRACE... (captures, or saved diagnoses) in the history.

    A finding is identified by code and scope, so keep one history for each workload. A finding that
    several captures have counts where its share is largest. One that has become worse, or is back,
    opens its decision again.
    """
    from advisor.cli.diagnosis import earlier_review
    from advisor.comparison import baseline
    from advisor.pipeline.compare import CompareOptions, load

    folder, today = settings.folder, day_of(day)
    baseline.read_history(folder)  # a bad one is reported before a long analysis
    decided = earlier_review(decisions) if decisions is not None else None
    found: list[Diagnosis] = []
    hold_pipes(sources)
    for source in dict.fromkeys(sources):
        with Progress(source) as progress:
            found += load(source, CompareOptions(settings, folder), progress)
    present = [n.strip() for n in names.split(",") if n.strip()] or (decided.names if decided else ())
    _change(folder, lambda before: baseline.recorded(before, found[0], today, present, decided, found[1:]))
    _show(settings, today)


@review.command()
@click.option("--date", "day", metavar="DAY", help=TODAY)
@takes("folder format output force", files=("folder",), folder=FOLDER, format=formats("Kind of result."))
def status(settings: Settings, day: str | None) -> None:
    """Print what is new, worse, better, closed and overdue since the last review."""
    check_files(settings)
    _show(settings, day_of(day))


@review.command()
@click.argument("finding", metavar="FINDING")
@click.option("--reason", required=True, metavar="TEXT", help="Why it can be ignored.")
@click.option("--until", required=True, metavar="DAY", help="Last day: 2027-01-31.")
@takes("folder", files=("folder",), folder=FOLDER)
def suppress(settings: Settings, finding: str, reason: str, until: str) -> None:
    """Let FINDING (LCH101@device=0, as status prints it) fail no gate until a day."""
    from advisor.comparison import baseline

    folder = settings.folder
    if not reason.strip():
        raise InputError("--reason: say why")
    last = day_of(until, "--until")
    _change(folder, lambda before: baseline.suppressed(before, finding, reason, last))
    _show(settings, day_of(None))


def _change(folder: Path, change: Callable[[History], History]) -> None:
    """Read the history, change and write it, while no other process does."""
    from advisor.comparison.baseline import path_of, read_history
    from advisor.locks import locked
    from advisor.reports.json_report import document_bytes

    with locked(path_of(folder)):
        write_into_folder(path_of(folder), document_bytes(change(read_history(folder))), force=True)


def _show(settings: Settings, day: str) -> None:
    from advisor.comparison import baseline
    from advisor.reports.review_blocks import history as blocks

    found = baseline.read_history(settings.folder)
    if not found.meetings:
        where = baseline.path_of(settings.folder)
        raise InputError(f"{where}: no review is recorded; see 'advisor review record'")
    deliver_one(found, blocks, "Findings from review to review", settings, day)
