"""``advisor diagnose``: captures in, ranked advice out; ``advisor demo``: the bundled capture."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import typer

from advisor.cli.settings import argument, option, takes
from advisor.config import Settings
from advisor.errors import InputError


@takes(
    "traces format output html xlsx review force window nvtx phase weight_bytes unprofiled_step acceptance "
    "gpu_metrics gpu_metrics_offset serving_engine together rules select ignore param engine baseline folder "
    "sensitivity redact explain_ranking fail_on fail_on_new fail_on_worse ranks independent jobs dask top "
    "quiet verbose"
)
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
    from advisor.cli.inputs import as_pair, expand
    from advisor.cli.report import report

    if not traces and settings.gpu_metrics:  # the log alone is what there is to judge
        traces = [settings.gpu_metrics]
        settings = replace(settings, gpu_metrics=None)
    if not traces:
        raise InputError("no TRACE was given; see 'advisor diagnose --help'")
    files = expand(traces, settings.pair)
    if settings.pair and not (len(files) == 1 < len(traces)):
        first, settings = as_pair(files, settings)
        files = [first]
    # A folder that nsys exported is one capture; any other one stands for those in it.
    many = len(files) > 1 or any(t.is_dir() and t not in files for t in traces)
    raise typer.Exit(report(files, settings, many, review))


@takes("format engine quiet verbose")
def demo(settings: Settings) -> None:
    """Diagnose the capture that ships with advisor."""
    from advisor.cli.report import report
    from advisor.knowledge.files import demo_capture

    # The shorter of both: the path is the title of the report, and part of the next command.
    path = str(demo_capture())
    raise typer.Exit(report([Path(min(os.path.relpath(path), path, key=len))], settings))
