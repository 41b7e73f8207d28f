"""``advisor diagnose``: captures in, ranked advice out."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from advisor.cli import flags
from advisor.cli.settings import takes
from advisor.config import Settings
from advisor.errors import InputError


@takes(
    "traces format output html xlsx review force window nvtx phase weight_bytes unprofiled_step "
    "gpu_metrics gpu_metrics_offset serving_engine together rules select ignore param engine baseline folder "
    "sensitivity redact explain_ranking fail_on fail_on_new fail_on_worse ranks independent jobs dask top "
    "quiet verbose"
)
def diagnose(
    settings: Settings,
    traces: Annotated[list[Path] | None, typer.Argument(metavar="TRACE...", hidden=True)] = None,
    output: flags.Output = None,
    html: flags.Html = None,
    xlsx: flags.Xlsx = None,
    review: Annotated[
        Path | None,
        typer.Option(
            "--review", metavar="FILE", help="Start from an earlier one, or a folder with a history."
        ),
    ] = None,
    force: flags.Force = False,
    together: flags.Together = False,
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
    files = expand(traces, together)
    if together and not (len(files) == 1 < len(traces)):
        first, other = as_pair(files, together)
        files, settings = [first], replace(settings, together=other)
    # A folder that nsys exported is one capture; any other one stands for those in it.
    many = len(files) > 1 or any(t.is_dir() and t not in files for t in traces)
    raise typer.Exit(report(files, settings, output, force, many, html, xlsx, review))
