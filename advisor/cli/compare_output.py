"""Comparisons on stdout or in a file, and the exit code of a gate."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from advisor.cli.deliver import check_format
from advisor.cli.messages import message
from advisor.cli.output import write_bytes, write_page
from advisor.reports.files import STDOUT, check_targets

if TYPE_CHECKING:
    from advisor.model.comparison import Comparison
    from advisor.reports.compare_formats import Document

FORMATS = ("text", "json", "markdown")
#: Of these a gate in CI can make something; they need a verdict on step times.
GATE_FORMATS = (*FORMATS, "sarif", "junit", "github")


class Target(NamedTuple):
    """Where a document goes: `output` (None: stdout) in `format`, and files beside it."""

    format: str
    output: Path | None = None
    html: Path | None = None
    xlsx: Path | None = None
    force: bool = False


def check(target: Target, inputs: Sequence[str], formats: Sequence[str] = FORMATS) -> Target:
    """Validate the target before the analysis starts."""
    check_format(target.format, formats)
    if target.output == STDOUT:
        target = target._replace(output=None)
    files = {"-o": target.output, "--html": target.html, "--xlsx": target.xlsx}
    check_targets(files, target.force, [Path(i) for i in inputs], target.format)
    return target


def deliver(document: Document, target: Target, verbosity: int = 0) -> None:
    """Print a document of this family, or write it to its files."""
    from advisor.reports import blocks, compare_formats, markdown
    from advisor.reports.json_report import document_bytes

    format, output, force = target.format, target.output, target.force
    if target.html is not None:
        write_bytes(compare_formats.html(document), target.html, force)
    if target.xlsx is not None:
        write_bytes(compare_formats.workbook(document), target.xlsx, force)
    if STDOUT in (target.html, target.xlsx):
        return
    shown = compare_formats.blocks_of(document, verbosity)
    if format == "json":
        write_bytes(document_bytes(document), output, force)
    elif format in ("sarif", "junit", "github"):
        assert document.kind == "comparison"  # by `check`
        write_bytes(getattr(compare_formats, format)(document), output, force)
    elif format == "markdown":
        write_bytes(markdown.write(shown, 1).encode("utf-8", "replace"), output, force)
    else:
        write_page(lambda page: blocks.write(page, shown), output, force)


def gate(document: Comparison, fail_on: str | None) -> int:
    """1 for a regression, and where nothing can be said: a gate never passes in silence."""
    if fail_on is None:
        return 0
    if document.verdict in ("regression", "not-comparable"):
        message(f"gate failed: {document.summary}")
        return 1
    for doubt in document.doubts:
        message(f"gate passed, but weakly: {doubt}")
    return 0
