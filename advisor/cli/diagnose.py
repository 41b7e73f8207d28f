"""``advisor diagnose``: captures in, ranked advice out."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from advisor.config import CHOICES, settle


def _text(metavar: str, help: str) -> Any:
    return typer.Option(metavar=metavar, help=help)


def _one_of(name: str, help: str) -> Any:
    choices = CHOICES[name]
    return typer.Option(metavar="|".join(choices), help=help, autocompletion=lambda: list(choices))


Text = str | None
Texts = list[str] | None


def diagnose(
    traces: Annotated[list[Path], typer.Argument(metavar="TRACE", hidden=True)],
    format: Annotated[Text, _one_of("format", "Kind of report.")] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="Write the report here.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace an existing FILE.")] = False,
    window: Annotated[Text, _text("FROM/TO", "Analyse this part: 5s/7s, 5s/, 1s2ms/.")] = None,
    nvtx: Annotated[Text, _text("RANGE[@DOMAIN][/N]", "Analyse these NVTX ranges.")] = None,
    phase: Annotated[Text, _one_of("phase", "Analyse this phase.")] = None,
    weight_bytes: Annotated[
        Text, _text("N|config.json", "Size of the weights, for bandwidth.")
    ] = None,
    serving_engine: Annotated[
        Text, _text("NAME", "Serving engine, where the capture hides it.")
    ] = None,
    rules: Annotated[Texts, _text("DIR", "Rules to add or replace (repeatable).")] = None,
    select: Annotated[Texts, _text("CODES", "Show only these: SYN101,LCH (prefixes).")] = None,
    ignore: Annotated[Texts, _text("CODES", "Do not show these.")] = None,
    param: Annotated[Texts, _text("CODE.NAME=VALUE", "Change a threshold (repeatable).")] = None,
    engine: Annotated[Text, _one_of("engine", "Inference engine of the rules.")] = None,
    fail_on: Annotated[Text, _one_of("fail_on", "Exit 1 from this severity on.")] = None,
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

    TRACE is an Nsight Systems export (.sqlite, also .xz or .gz), or a folder of such files.

    Options may also stand in advisor.toml, or in pyproject.toml under [tool.advisor].
    """
    from advisor.cli.inputs import expand
    from advisor.cli.output import report

    flags = {
        "format": format,
        "window": window,
        "nvtx": nvtx,
        "phase": phase,
        "weight_bytes": weight_bytes,
        "serving_engine": serving_engine,
        "rules": rules,
        "select": select,
        "ignore": ignore,
        "param": param,
        "engine": engine,
        "fail_on": fail_on,
        "top": top,
        "quiet": quiet,
        "verbose": verbose,
    }
    settings, files = settle(flags), expand(traces)
    many = len(files) > 1 or any(trace.is_dir() for trace in traces)
    raise typer.Exit(report(files, settings, output, force, many))
