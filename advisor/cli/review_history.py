"""``advisor review record``, ``status`` and ``suppress``: reviews that build on each other."""

from __future__ import annotations

from datetime import date
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from advisor.cli import flags
from advisor.cli.deliver import formats
from advisor.cli.review import app
from advisor.cli.settings import takes
from advisor.config import Settings
from advisor.errors import InputError

if TYPE_CHECKING:
    from advisor.model.review import History

Day = Annotated[str | None, typer.Option("--date", metavar="DAY", help="2026-11-22 (default: today).")]


def day_of(text: str | None, option: str = "--date") -> str:
    """The day as 2026-11-22; today where none is given."""
    try:
        return (date.fromisoformat(text) if text else date.today()).isoformat()
    except ValueError:
        raise InputError(f"{option}: invalid value '{text}'; expected a day like 2026-11-22") from None


@app.command()
@takes("source review names day folder", files=("folder",), folder="Folder of the history (.advisor).")
def record(
    settings: Settings,
    source: Annotated[str, typer.Argument(metavar="TRACE", hidden=True)],
    review: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Workbook or JSON with what was decided.")
    ] = None,
    names: Annotated[str, typer.Option(metavar="A,B", help="Who was there.")] = "",
    day: Day = None,
) -> None:
    """Record a review of TRACE (a capture, or a saved diagnosis) in the history.

    A finding is identified by code and scope, so keep one history for each workload. A finding that
    has become worse, or is back, opens its decision again.
    """
    from advisor.cli.progress import Progress
    from advisor.cli.workbook_output import earlier_review
    from advisor.compare import history
    from advisor.pipeline.compare import CompareOptions, load

    folder, today = settings.folder, day_of(day)
    before = history.read(folder)
    decided = earlier_review(review) if review is not None else None
    with Progress(source) as progress:
        found = load(source, CompareOptions(folder=folder), progress)
    if len(found) != 1:
        raise InputError(f"{source}: holds {len(found)} diagnoses; record one")
    present = [n.strip() for n in names.split(",") if n.strip()] or (decided.names if decided else ())
    _write(folder, history.recorded(before, found[0], today, present, decided))
    _show(folder, today)


@app.command()
@takes(
    "day folder format output force",
    files=("folder",),
    folder="Folder of the history (.advisor).",
    format=formats("Kind of result."),
)
def status(
    settings: Settings, day: Day = None, output: flags.Output = None, force: flags.Force = False
) -> None:
    """Print what is new, worse, better, closed and overdue since the last review."""
    from advisor.cli.deliver import target_of

    _show(settings.folder, day_of(day), settings.format, target_of(output, force), force)


@app.command()
@takes("finding reason until folder", files=("folder",), folder="Folder of the history (.advisor).")
def suppress(
    settings: Settings,
    finding: Annotated[str, typer.Argument(metavar="FINDING", hidden=True)],
    reason: Annotated[str, typer.Option(metavar="TEXT", help="Why it can be ignored.")],
    until: Annotated[str, typer.Option(metavar="DAY", help="Last day: 2027-01-31.")],
) -> None:
    """Let FINDING (LCH101@device=0, as status prints it) fail no gate until a day."""
    from advisor.compare import history

    folder = settings.folder
    if not reason.strip():
        raise InputError("--reason: say why")
    _write(folder, history.suppressed(history.read(folder), finding, reason, day_of(until, "--until")))
    _show(folder, day_of(None))


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


def _show(
    folder: Path, day: str, format: str = "text", output: Path | None = None, force: bool = False
) -> None:
    from advisor.cli.deliver import deliver_one
    from advisor.compare import history
    from advisor.reports.review import history as said

    found = history.read(folder)
    if not found.meetings:
        raise InputError(f"{history.path_of(folder)}: no review is recorded; see 'advisor review record'")
    deliver_one(found, partial(said, found, day), "Findings from review to review", format, output, force)
