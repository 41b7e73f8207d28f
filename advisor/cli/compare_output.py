"""Comparisons on stdout or in a file, and the exit code of a gate."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from advisor.cli.deliver import check_format, save
from advisor.cli.deliver import deliver as deliver_report
from advisor.cli.messages import message
from advisor.cli.output import write_bytes
from advisor.model.options import Kind
from advisor.reports.files import STDOUT, check_targets

if TYPE_CHECKING:
    from advisor.model.comparison import Comparison
    from advisor.reports.experiment_blocks import Document


class Target(NamedTuple):
    """Where a document goes: `output` (None: stdout) in `format`, and files beside it."""

    format: str
    output: Path | None = None
    html: Path | None = None
    xlsx: Path | None = None
    force: bool = False


def check(target: Target, inputs: Sequence[str], kind: Kind = "document") -> Target:
    """Validate the target before the analysis starts."""
    check_format(target.format, kind)
    if target.output == STDOUT:
        target = target._replace(output=None)
    files = {"-o": target.output, "--html": target.html, "--xlsx": target.xlsx}
    check_targets(files, target.force, [Path(i) for i in inputs], target.format)
    return target


def deliver(document: Document, target: Target, verbosity: int = 0) -> None:
    """Print a document of this family, or write it to its files."""
    from advisor.reports.experiment_blocks import report, workbook

    made = report(document, verbosity)
    save(made, "html", target.html, target.force)
    if target.xlsx is not None:
        write_bytes(workbook(document), target.xlsx, target.force)
    if STDOUT not in (target.html, target.xlsx):
        deliver_report(made, target.format, target.output, target.force)


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
