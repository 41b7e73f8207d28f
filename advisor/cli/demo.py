"""``advisor demo``: the bundled capture, an LLM decode without CUDA graphs."""

from __future__ import annotations

import os
from pathlib import Path

import typer

from advisor.cli.settings import takes
from advisor.config import Settings


@takes("format engine quiet verbose")
def demo(settings: Settings) -> None:
    """Diagnose the capture that ships with advisor."""
    from advisor.cli.report import report
    from advisor.knowledge.files import demo_capture

    # The shorter of both: the path is the title of the report, and part of the next command.
    path = str(demo_capture())
    raise typer.Exit(report([Path(min(os.path.relpath(path), path, key=len))], settings))
