"""``advisor demo``: the bundled capture, an LLM decode without CUDA graphs."""

from __future__ import annotations

import typer

from advisor.cli.settings import takes
from advisor.config import Settings


@takes("format engine quiet verbose")
def demo(settings: Settings) -> None:
    """Diagnose the capture that ships with advisor."""
    from advisor.cli.report import report
    from advisor.knowledge.files import demo_capture

    raise typer.Exit(report([demo_capture()], settings))
