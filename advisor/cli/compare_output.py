"""Comparisons on stdout or in a file, and the exit code of a gate."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from advisor.cli.output import STDOUT, write_bytes, write_page
from advisor.errors import InputError
from advisor.reports.files import check_target

if TYPE_CHECKING:
    from advisor.model.comparison import Comparison

FORMATS = ("text", "json", "markdown")
#: Of these a gate in CI can make something; they need a verdict on step times.
GATE_FORMATS = (*FORMATS, "junit", "github")


def check(
    format: str, output: Path | None, force: bool, inputs: Sequence[str],
    formats: Sequence[str] = FORMATS,
) -> Path | None:  # fmt: skip
    """The file to write, if any; what is wrong is told before a long analysis."""
    if format not in formats:
        raise InputError(f"--format: '{format}' is none of {', '.join(formats)}")
    output = None if output == STDOUT else output
    if output is not None:
        check_target(output, force, [Path(i) for i in inputs])
    return output


def deliver(
    document: Any, format: str, output: Path | None, force: bool, verbosity: int = 0
) -> None:
    """Print a document of this family, or write it to `output`."""
    from advisor.reports import blocks
    from advisor.reports.compare_formats import blocks_of, github, junit
    from advisor.reports.json_report import document_bytes

    if format == "json":
        write_bytes(document_bytes(document), output, force)
    elif format in ("junit", "github"):
        write_bytes((junit if format == "junit" else github)(document), output, force)
    elif format == "markdown":
        text = blocks.markdown(blocks_of(document, verbosity))
        write_bytes(text.encode("utf-8", "replace"), output, force)
    else:
        write_page(lambda page: blocks.write(page, blocks_of(document, verbosity)), output, force)


def gate(document: Comparison, fail_on: str | None) -> int:
    """1 for a regression, and where nothing can be said: a gate never passes in silence."""
    if fail_on is None:
        return 0
    if document.verdict in ("regression", "not-comparable"):
        print(f"advisor: gate failed: {document.summary}", file=sys.stderr)
        return 1
    for note in document.notes:
        if "would have shown" in note:
            print(f"advisor: gate passed, but weakly: {note}", file=sys.stderr)
    return 0
