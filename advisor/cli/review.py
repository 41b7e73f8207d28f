"""``advisor review``: what a meeting decided, read back from its workbook, and reviews that build on
each other."""

from __future__ import annotations

from datetime import date
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from advisor.cli.app import verb_group
from advisor.cli.deliver import check_output, deliver_one, formats
from advisor.cli.messages import message
from advisor.cli.settings import argument, option, takes
from advisor.config import Settings
from advisor.errors import InputError

if TYPE_CHECKING:
    from advisor.model.findings import Diagnosis
    from advisor.model.review import History

app = verb_group("Read decisions back, and follow findings from review to review.")
FOLDER = "Folder of the history (.advisor)."
TODAY = "2026-11-22 (default: today)."


@app.command("import")
@takes("workbook format output force", files=(), format=formats("Kind of result."))
def import_(settings: Settings, workbook: Path = argument("XLSX")) -> None:
    """Read owners, decisions, due dates and checklist answers from a workbook of --xlsx.

    A cell that cannot be understood is named on stderr, and the exit code is then 2; the rest is
    read. The next workbook starts from them with: advisor diagnose TRACE --xlsx FILE --review XLSX
    """
    from advisor import __version__
    from advisor.reports.review import review
    from advisor.reports.workbook.review import read

    check_output(settings, [workbook])
    found = read(workbook, __version__)
    deliver_one(found, partial(review, found), f"Review of {found.workbook}", settings)
    if not any(d.touched for d in found.decisions):
        message(f"note: {workbook}: nothing is decided in it yet")
    for problem in found.problems:
        message(f"error: {workbook}: {problem.cell}: {problem.text}")
    if found.problems:
        raise typer.Exit(2)


def day_of(text: str | None, option: str = "--date") -> str:
    """The day as 2026-11-22; today where none is given."""
    try:
        return (date.fromisoformat(text) if text else date.today()).isoformat()
    except ValueError:
        raise InputError(f"{option}: invalid value '{text}'; expected a day like 2026-11-22") from None


@app.command()
@takes("sources review names day folder", files=("folder",), folder=FOLDER)
def record(
    settings: Settings,
    sources: list[str] = argument("TRACE..."),
    review: Path | None = option("FILE", "Workbook or JSON with what was decided."),
    names: str = option("A,B", "Who was there.", ""),
    day: str | None = option("DAY", TODAY, None, "--date"),
) -> None:
    """Record a review of TRACE... (captures, or saved diagnoses) in the history.

    A finding is identified by code and scope, so keep one history for each workload. A finding that
    several captures have counts where its share is largest. One that has become worse, or is back,
    opens its decision again.
    """
    from advisor.cli.diagnose import earlier_review
    from advisor.cli.progress import Progress
    from advisor.compare import history
    from advisor.pipeline.compare import CompareOptions, load

    folder, today = settings.folder, day_of(day)
    before = history.read(folder)
    decided = earlier_review(review) if review is not None else None
    found: list[Diagnosis] = []
    for source in dict.fromkeys(sources):
        with Progress(source) as progress:
            found += load(source, CompareOptions(folder=folder), progress)
    present = [n.strip() for n in names.split(",") if n.strip()] or (decided.names if decided else ())
    _write(folder, history.recorded(before, found[0], today, present, decided, found[1:]))
    _show(settings, today)


@app.command()
@takes("day folder format output force", files=("folder",), folder=FOLDER, format=formats("Kind of result."))
def status(settings: Settings, day: str | None = option("DAY", TODAY, None, "--date")) -> None:
    """Print what is new, worse, better, closed and overdue since the last review."""
    check_output(settings)
    _show(settings, day_of(day))


@app.command()
@takes("finding reason until folder", files=("folder",), folder=FOLDER)
def suppress(
    settings: Settings,
    finding: str = argument("FINDING"),
    reason: str = option("TEXT", "Why it can be ignored.", ...),
    until: str = option("DAY", "Last day: 2027-01-31.", ...),
) -> None:
    """Let FINDING (LCH101@device=0, as status prints it) fail no gate until a day."""
    from advisor.compare import history

    folder = settings.folder
    if not reason.strip():
        raise InputError("--reason: say why")
    _write(folder, history.suppressed(history.read(folder), finding, reason, day_of(until, "--until")))
    _show(settings, day_of(None))


def _write(folder: Path, found: History) -> None:
    from advisor.compare.history import path_of
    from advisor.reports.files import write_atomic
    from advisor.reports.json_report import document_bytes

    path = path_of(folder)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{path.parent}: cannot be made ({error.strerror or error})") from error
    write_atomic(path, document_bytes(found), force=True)


def _show(settings: Settings, day: str) -> None:
    from advisor.compare import history
    from advisor.reports.review import history as blocks

    found = history.read(settings.folder)
    if not found.meetings:
        where = history.path_of(settings.folder)
        raise InputError(f"{where}: no review is recorded; see 'advisor review record'")
    deliver_one(found, partial(blocks, found, day), "Findings from review to review", settings)
