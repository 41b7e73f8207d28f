"""``advisor demo``: the bundled capture, an LLM decode without CUDA graphs."""

from __future__ import annotations

from typing import Annotated

import typer

from advisor.config import CHOICES, settle


def demo(
    format: Annotated[
        str | None, typer.Option(metavar="|".join(CHOICES["format"]), help="Kind of report.")
    ] = None,
    engine: Annotated[
        str | None, typer.Option(metavar="|".join(CHOICES["engine"]), help="Inference engine.")
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Verdict and findings.")] = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="All evidence.")] = False,
) -> None:
    """Diagnose the capture that ships with advisor."""
    from advisor.cli.report import report
    from advisor.knowledge.files import demo_capture

    flags = {"format": format, "engine": engine, "quiet": quiet, "verbose": verbose}
    raise typer.Exit(report([demo_capture()], settle(flags)))
