"""The review workbook of `diagnose --xlsx`, and what it starts from."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING

from advisor.cli.messages import message
from advisor.cli.output import write_bytes
from advisor.errors import InputError
from advisor.reading import parse_json, read_text, similar

if TYPE_CHECKING:
    from advisor.model.findings import Diagnosis
    from advisor.model.review import History, Review


def read_review(path: Path | None, xlsx: Path | None) -> Review | History | None:
    """Decisions of an earlier review: a workbook, the JSON of `advisor review import`, or a folder
    with a history of reviews."""
    if path is None:
        return None
    if xlsx is None:
        raise InputError("--review fills in a workbook; add --xlsx FILE")
    if not path.is_dir():
        return earlier_review(path)
    from advisor.compare import history

    if not (found := history.read(path)).meetings:
        raise InputError(f"{path}: holds no history of reviews; see 'advisor review record'")
    return found


def earlier_review(path: Path) -> Review:
    """The same, of a file that was given."""
    from advisor import __version__
    from advisor.model.review import Review

    if path.suffix.lower() != ".json":
        from advisor.reports.workbook.review import read

        review = read(path, __version__)
        for problem in review.problems:
            message(f"note: {path}: {problem.cell}: {problem.text}")
        return review
    try:
        return Review.model_validate(parse_json(read_text(path)))
    except FileNotFoundError:
        raise InputError(f"{path}: no such file{similar(path)}") from None
    except (OSError, ValueError) as fault:
        what = " ".join(str(fault).split())[:120]
        raise InputError(f"{path}: not what 'advisor review import' writes ({what})") from fault


def write_workbook(
    done: Sequence[Diagnosis], xlsx: Path, before: Review | History | None, force: bool
) -> None:
    """The workbook, its checklist answered as far as the captures answer it. After an earlier review
    it opens with what has become of the findings, up to the last of the captures."""
    from advisor.checklist.items import capture_facts, checklist
    from advisor.compare import history
    from advisor.model.review import Review
    from advisor.reports.workbook import book as workbook

    listed, since, day = checklist(capture_facts(done)), None, date.today().isoformat()
    review = before if isinstance(before, Review) else None
    if before is not None:
        past = history.of_review(before) if isinstance(before, Review) else before
        since = history.recorded(past, done[-1], day)
    written = workbook.render(done, checklist=listed, review=review, since=since, day=day)
    write_bytes(written, xlsx, force)
