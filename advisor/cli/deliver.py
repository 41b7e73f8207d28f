"""One document of a verb: as JSON or as text, on stdout or in a file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from advisor.cli.output import STDOUT, make_page, print_page, write_bytes
from advisor.errors import InputError
from advisor.reports.files import check_target

if TYPE_CHECKING:
    from pydantic import BaseModel

    from advisor.reports.layout import Page

FORMATS = ("text", "json")


def check_output(format: str, output: Path | None, force: bool, trace: Path) -> Path | None:
    """The file to write, if any; what is wrong with it is told before a long analysis."""
    if format not in FORMATS:
        raise InputError(f"--format: '{format}' is none of {', '.join(FORMATS)}")
    if not trace.exists():
        raise InputError(f"{trace}: no such file or folder")
    if trace.is_dir():
        raise InputError(f"{trace} is a folder; name one capture")
    output = None if output == STDOUT else output
    if output is not None:
        check_target(output, force, [trace])
    return output


def deliver(
    document: BaseModel,
    write: Callable[[Page], None],
    format: str,
    output: Path | None,
    force: bool,
) -> None:
    """Print the document, or write it to `output`."""
    from advisor.reports.json_report import document_bytes
    from advisor.reports.layout import Page

    if format == "json":
        write_bytes(document_bytes(document), output, force)
        return
    page = make_page() if output is None else Page()
    write(page)
    if output is None:
        print_page(page)
    else:
        text = "".join(f"{line.plain}\n" for line in page.lines)
        write_bytes(text.encode("utf-8", "replace"), output, force)
