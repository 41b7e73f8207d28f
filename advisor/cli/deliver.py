"""What a verb found, in the format asked for, on stdout or in a file."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from advisor.cli.inputs import check_exists
from advisor.cli.output import make_page, print_page, write_bytes
from advisor.errors import InputError, invalid_choice
from advisor.model.options import Flag, Kind, format_module, format_names, one_of
from advisor.reports.files import STDOUT, check_target

if TYPE_CHECKING:
    from pydantic import BaseModel

    from advisor.reports.blocks import Block, Report


def formats(help: str, kind: Kind = "document") -> Flag:
    """The flag for the formats of a kind of document."""
    return one_of(help, *format_names(kind))


def check_format(format: str, kind: Kind) -> None:
    """Raises InputError for a format that shows something else."""
    if format not in format_names(kind):
        raise invalid_choice("--format", format, format_names(kind))


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


def deliver(report: Report, format: str, output: Path | None = None, force: bool = False) -> None:
    """Print the report, or write it to `output`."""
    if format == "text" and output is None:
        show(report.blocks)
    else:
        write_bytes(import_module(format_module(format)).document(report), output, force)


def deliver_one(
    document: BaseModel,
    blocks: Callable[[], Iterable[Block]],
    title: str,
    format: str,
    output: Path | None = None,
    force: bool = False,
) -> None:
    """The same of one document, whose blocks suit a page of any width."""
    from advisor.reports.blocks import Report

    deliver(Report((document,), lambda _: blocks(), title), format, output, force)


def save(report: Report, format: str, path: Path | None, force: bool) -> None:
    """The report in a file beside what is printed, if one was asked for."""
    if path is not None:
        write_bytes(import_module(format_module(format)).document(report), path, force)


def show(blocks: Iterable[Block] | Callable[[int], Iterable[Block]]) -> None:
    """Blocks as text on stdout, in the columns and colours of the terminal."""
    from advisor.reports.text import write

    page = make_page()
    write(page, blocks(page.width) if callable(blocks) else blocks)
    print_page(page)
