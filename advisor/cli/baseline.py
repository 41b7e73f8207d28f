"""``advisor baseline``: keep diagnoses by name, for `compare` and `--baseline`."""

from __future__ import annotations

from typing import Annotated

import typer

from advisor.cli.lazy import verb_group
from advisor.cli.settings import takes
from advisor.config import Settings
from advisor.errors import InputError
from advisor.model.options import one_of

app = verb_group("Keep diagnoses by name.")


@app.command()
@takes("name source folder window nvtx phase force", files=("folder",))
def save(
    settings: Settings,
    name: Annotated[str, typer.Argument(metavar="NAME", hidden=True)],
    source: Annotated[str, typer.Argument(metavar="TRACE", hidden=True)],
    force: Annotated[bool, typer.Option("--force", help="Replace what has this name.")] = False,
) -> None:
    """Save the diagnosis of TRACE (a capture, or a diagnosis saved before) under NAME."""
    from advisor.cli.output import make_page, print_page
    from advisor.cli.progress import Progress
    from advisor.compare import store
    from advisor.pipeline.compare import CompareOptions, load
    from advisor.reports import json_report
    from advisor.reports.baseline_text import entry
    from advisor.reports.files import check_target, write_atomic

    folder = settings.folder
    path = store.path_of(name, folder)
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{folder} is a file; expected a folder of baselines")
    if path.is_file() and not force:
        raise InputError(f"{path} exists; add --force to replace it")
    with Progress(name) as progress:
        found = load(source, CompareOptions(settings, folder), progress)
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
@takes("folder", files=("folder",))
def list_(settings: Settings) -> None:
    """One line a baseline: name, capture, steps, verdict."""
    from advisor.cli.output import make_page, print_page
    from advisor.compare import store
    from advisor.reports.baseline_text import listing

    page = make_page()
    found = store.entries(settings.folder)
    listing(page, str(settings.folder), [(e.name, e.diagnoses, e.fault) for e in found])
    print_page(page)


@app.command()
@takes("name folder format verbose", files=("folder",), format=one_of("Kind of report.", "text", "json"))
def show(settings: Settings, name: Annotated[str, typer.Argument(metavar="NAME", hidden=True)]) -> None:
    """Print the diagnosis that is saved under NAME."""
    from advisor.cli.output import make_console, print_lines, write_bytes
    from advisor.compare import store
    from advisor.reports import json_report
    from advisor.reports.terminal import TextOptions, render

    found = store.named(name, settings.folder)
    if settings.format == "json":
        write_bytes(json_report.render(found.diagnoses), None)
        return
    console = make_console()
    options = TextOptions(
        width=console.width, unicode=console.encoding.lower().startswith("utf"), verbosity=settings.verbosity
    )
    for diagnosis in found.diagnoses:
        print_lines(console, render([diagnosis], options))
