"""``advisor diagnose``: captures in, ranked advice out."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from advisor.cli import flags
from advisor.cli.flags import Text, Texts
from advisor.config import CHOICES, settle
from advisor.errors import InputError


def _text(metavar: str, help: str) -> Any:
    return typer.Option(metavar=metavar, help=help)


def _one_of(name: str, help: str) -> Any:
    choices = CHOICES[name]
    return typer.Option(metavar="|".join(choices), help=help, autocompletion=lambda: list(choices))


def diagnose(
    traces: Annotated[list[Path] | None, typer.Argument(metavar="TRACE", hidden=True)] = None,
    format: Annotated[Text, _one_of("format", "Kind of report.")] = None,
    output: flags.Output = None,
    html: flags.Html = None,
    xlsx: flags.Xlsx = None,
    review: Annotated[
        Path | None,
        typer.Option("--review", metavar="FILE", help="Start it from an earlier one's decisions."),
    ] = None,
    force: flags.Force = False,
    window: Annotated[Text, _text("FROM/TO", "Analyse this part: 5s/7s, 5s/, 1s2ms/.")] = None,
    nvtx: Annotated[Text, _text("RANGE[@DOMAIN][/N]", "Analyse these NVTX ranges.")] = None,
    phase: Annotated[Text, _one_of("phase", "Analyse this phase.")] = None,
    weight_bytes: Annotated[
        Text, _text("N|config.json", "Size of the weights, for bandwidth.")
    ] = None,
    gpu_metrics: Annotated[
        Text, _text("FILE", "Log of nvidia-smi or dcgmi: alone, or joined to TRACE.")
    ] = None,
    gpu_metrics_offset: Annotated[
        Text, _text("TIME", "Where that log begins in session time: 1.5s.")
    ] = None,
    serving_engine: Annotated[
        Text, _text("NAME", "Serving engine, where the capture hides it.")
    ] = None,
    rules: flags.Rules = None,
    select: Annotated[Texts, _text("CODES", "Show only these: SYN101,LCH (prefixes).")] = None,
    ignore: Annotated[Texts, _text("CODES", "Do not show these.")] = None,
    param: flags.Params = None,
    engine: Annotated[Text, _one_of("engine", "Inference engine of the rules.")] = None,
    baseline: Annotated[
        Text, _text("NAME|FILE", "Saved diagnosis: mark findings as new, known, gone.")
    ] = None,
    folder: Annotated[Text, _text("DIR", "Folder of named baselines (.advisor).")] = None,
    sensitivity: Annotated[
        bool, typer.Option("--sensitivity", help="List verdicts near a threshold.")
    ] = False,
    explain_ranking: Annotated[
        bool, typer.Option("--explain-ranking", help="Show how findings got their order.")
    ] = False,
    fail_on: Annotated[Text, _one_of("fail_on", "Exit 1 from this severity on.")] = None,
    fail_on_new: Annotated[
        bool,
        typer.Option(
            "--fail-on-new", help="Exit 1 for new findings only (from --fail-on, or medium, on)."
        ),
    ] = False,
    ranks: Annotated[
        bool, typer.Option("--ranks", help="The captures are the ranks of one job.")
    ] = False,
    independent: Annotated[
        bool, typer.Option("--independent", help="They are not, whatever their names say.")
    ] = False,
    jobs: Annotated[
        int | None, typer.Option(metavar="N", min=0, help="Processes for ranks (default: cores).")
    ] = None,
    dask: Annotated[Text, _text("ADDRESS|local", "Read ranks on this Dask cluster.")] = None,
    top: Annotated[
        int | None, typer.Option(metavar="N", help="Findings shown in full (default 5).")
    ] = None,
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="Verdict and one line a finding.")
    ] = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="All evidence, facts and overruled causes.")
    ] = False,
) -> None:
    """Find out what holds the GPU back in one or more captures.

    TRACE is an Nsight Systems export (.sqlite, also .xz or .gz; a Parquet or Arrow folder), a
    report (.nsys-rep, where nsys is installed), a PyTorch profiler trace (.json, .json.gz), or a
    folder of these.

    Captures whose names (rank3.sqlite) or metadata say that they are ranks of one job get one
    diagnosis: who comes late, who waits.

    Options may also stand in advisor.toml, or in pyproject.toml under [tool.advisor].
    """
    from advisor.cli.inputs import expand
    from advisor.cli.report import report

    given = {
        "format": format,
        "window": window,
        "nvtx": nvtx,
        "phase": phase,
        "weight_bytes": weight_bytes,
        "gpu_metrics": gpu_metrics,
        "gpu_metrics_offset": gpu_metrics_offset,
        "serving_engine": serving_engine,
        "rules": rules,
        "select": select,
        "ignore": ignore,
        "param": param,
        "engine": engine,
        "baseline": baseline,
        "folder": folder,
        "sensitivity": sensitivity,
        "explain_ranking": explain_ranking,
        "fail_on": fail_on,
        "fail_on_new": fail_on_new,
        "ranks": ranks,
        "independent": independent,
        "jobs": jobs,
        "dask": dask,
        "top": top,
        "quiet": quiet,
        "verbose": verbose,
    }
    settings = settle(given)
    if not traces and settings.gpu_metrics:  # the log alone is what there is to judge
        traces = [Path(settings.gpu_metrics)]
        settings = replace(settings, gpu_metrics=None)
    if not traces:
        raise InputError("no TRACE was given; see 'advisor diagnose --help'")
    files = expand(traces)
    # A folder that nsys exported is one capture; any other one stands for those in it.
    many = len(files) > 1 or any(t.is_dir() and t not in files for t in traces)
    raise typer.Exit(report(files, settings, output, force, many, html, xlsx, review))
