"""One document of a verb: as JSON or as text, on stdout or in a file."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from advisor.cli.inputs import check_exists
from advisor.cli.output import write_bytes, write_page
from advisor.errors import InputError, invalid_choice
from advisor.reports.files import STDOUT, check_target

if TYPE_CHECKING:
    from pydantic import BaseModel

    from advisor.reports.layout import Page

FORMATS = ("text", "json")


def check_format(format: str, formats: Sequence[str] = FORMATS) -> None:
    """Raises InputError for any other format."""
    if format not in formats:
        raise invalid_choice("--format", format, formats)


def target_of(output: Path | None, force: bool, inputs: Sequence[Path] = ()) -> Path | None:
    """The file to write, or None for stdout. A bad path fails early."""
    if output is None or output == STDOUT:
        return None
    check_target(output, force, inputs)
    return output


def check_output(output: Path | None, force: bool, trace: Path) -> Path | None:
    """Check capture and target of a verb that reads one capture; returns the target."""
    check_exists(trace)
    if trace.is_dir():
        raise InputError(f"{trace} is a folder; name one capture")
    return target_of(output, force, [trace])


def deliver(
    document: BaseModel, write: Callable[[Page], None], format: str, output: Path | None, force: bool
) -> None:
    """Print the document, or write it to `output`."""
    if format == "json":
        from advisor.reports.json_report import document_bytes

        write_bytes(document_bytes(document), output, force)
    else:
        write_page(write, output, force)
