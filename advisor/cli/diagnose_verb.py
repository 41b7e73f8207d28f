"""``advisor diagnose`` and ``advisor demo`` (the bundled capture), for typer."""

from __future__ import annotations

import os
from pathlib import Path

import typer

from advisor.cli.diagnosis import OPTIONS, report
from advisor.cli.diagnosis import diagnose as run
from advisor.cli.settings import argument, option, takes
from advisor.config import Settings


@takes(OPTIONS)
def diagnose(
    settings: Settings,
    traces: list[Path] | None = argument("TRACE...", None),
    review: Path | None = option("FILE", "Start from an earlier one, or a folder with a history."),
) -> None:
    """Find out what holds the GPU back in one or more captures.

    TRACE is an Nsight Systems export (.sqlite, also .xz or .gz; a Parquet or Arrow folder), a
    report (.nsys-rep, where nsys is installed), a PyTorch profiler trace (.json, .json.gz), tables
    that `nsys stats` printed (text, CSV or JSON, several in one), a folder of these, or a diagnosis
    saved with --format json, to show it in another format; - reads standard input.

    Captures whose names (rank3.sqlite) or metadata say that they are ranks of one job get one
    diagnosis: who comes late, who waits. With --together an nsys capture gives the times, and a
    PyTorch trace of the same model the operators, sizes, modules and lines.

    Options may also stand in advisor.toml, or in pyproject.toml under [tool.advisor].
    """
    raise typer.Exit(run(settings, traces, review))


@takes("format output engine force quiet verbose")
def demo(settings: Settings) -> None:
    """Diagnose the capture that ships with advisor."""
    from advisor.knowledge.files import demo_capture

    # The shorter of both: the path is the title of the report, and part of the next command.
    path = str(demo_capture())
    raise typer.Exit(report([Path(min(os.path.relpath(path), path, key=len))], settings))
