"""``advisor baseline``: keep diagnoses by name, for `compare` and `--baseline`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from advisor.cli.lazy import verb_group
from advisor.cli.settings import takes
from advisor.config import Settings
from advisor.errors import InputError

app = verb_group("Keep diagnoses by name.")
Folder = Annotated[
    Path | None, typer.Option(metavar="DIR", help="Folder that holds the baselines (.advisor).")
]


@app.command()
@takes(
    "name",
    "source",
    "folder",
    "window",
    "nvtx",
    "phase",
    "force",
    files=False,
    window="Part to analyse.",
    nvtx="Ranges to analyse.",
    phase="Phase.",
)
def save(
    settings: Settings,
    name: Annotated[str, typer.Argument(metavar="NAME", hidden=True)],
    source: Annotated[str, typer.Argument(metavar="TRACE", hidden=True)],
    folder: Folder = None,
    force: Annotated[bool, typer.Option("--force", help="Replace what has this name.")] = False,
) -> None:
    """Save the diagnosis of TRACE (a capture, or a diagnosis saved before) under NAME."""
    from advisor.cli import compare_options as chosen
    from advisor.cli.output import make_page, print_page
    from advisor.cli.progress import Progress
    from advisor.compare import store
    from advisor.pipeline.compare import load
    from advisor.reports import json_report
    from advisor.reports.baseline_text import entry
    from advisor.reports.files import check_target, write_atomic

    folder = chosen.baseline_folder(folder)
    path = store.path_of(name, folder)
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{folder} is a file; baselines lie in a folder")
    if path.is_file() and not force:
        raise InputError(f"{path} exists; add --force to replace it")
    with Progress(name) as progress:
        found = load(source, chosen.options(settings, folder), progress)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{folder}: cannot be made ({error.strerror or error})") from error
    check_target(path, force)
    write_atomic(path, json_report.render(found), force)
    page = make_page()
    entry(page, f"{name}, saved as {path}", found)
    print_page(page)


@app.command("list")
def list_(folder: Folder = None) -> None:
    """One line a baseline: name, capture, steps, verdict."""
    from advisor.cli import compare_options as chosen
    from advisor.cli.output import make_page, print_page
    from advisor.compare import store
    from advisor.reports.baseline_text import listing

    folder = chosen.baseline_folder(folder)
    page = make_page()
    found = store.entries(folder)
    listing(page, str(folder), [(e.name, e.diagnoses, e.fault) for e in found])
    print_page(page)


@app.command()
def show(
    name: Annotated[str, typer.Argument(metavar="NAME", hidden=True)],
    folder: Folder = None,
    format: Annotated[str, typer.Option(metavar="text|json", help="Kind of report.")] = "text",
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="As for diagnose.")] = False,
) -> None:
    """Print the diagnosis that is saved under NAME."""
    from advisor.cli import compare_options as chosen
    from advisor.cli.deliver import check_format
    from advisor.cli.output import make_console, print_lines, write_bytes
    from advisor.compare import store
    from advisor.reports import json_report
    from advisor.reports.terminal import TextOptions, render

    found = store.named(name, chosen.baseline_folder(folder))
    check_format(format)
    if format == "json":
        write_bytes(json_report.render(found.diagnoses), None)
        return
    console = make_console()
    options = TextOptions(
        width=console.width, unicode=console.encoding.lower().startswith("utf"), verbosity=int(verbose)
    )
    for diagnosis in found.diagnoses:
        print_lines(console, render([diagnosis], options))
