"""``advisor baseline``: keep diagnoses by name, for `compare` and `--baseline`."""

from __future__ import annotations

from advisor.cli import deliver as out
from advisor.cli.app import verb_group
from advisor.cli.settings import argument, takes
from advisor.config import Settings
from advisor.errors import InputError

app = verb_group("Keep diagnoses by name.")


@app.command()
@takes("name source folder window nvtx phase force", files=("folder",), force="Replace what has this name.")
def save(settings: Settings, name: str = argument("NAME"), source: str = argument("TRACE")) -> None:
    """Save the diagnosis of TRACE (a capture, or a diagnosis saved before) under NAME."""
    from advisor.cli.progress import Progress
    from advisor.compare import store
    from advisor.pipeline.compare import CompareOptions, load
    from advisor.reports import json_report
    from advisor.reports.files import check_target, write_atomic
    from advisor.reports.listings import baseline

    folder, force = settings.folder, settings.force
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
    out.show(baseline(f"{name}, saved as {path}", found))


@app.command("list")
@takes("folder", files=("folder",))
def list_(settings: Settings) -> None:
    """One line a baseline: name, capture, steps, verdict."""
    from advisor.compare import store
    from advisor.reports.listings import baselines

    entries = [(e.name, e.diagnoses, e.fault) for e in store.entries(settings.folder)]
    out.show(baselines(str(settings.folder), entries))


@app.command()
@takes("name folder format verbose", files=("folder",), format=out.formats("Kind of report.", "findings"))
def show(settings: Settings, name: str = argument("NAME")) -> None:
    """Print the diagnosis that is saved under NAME."""
    from advisor.compare import store
    from advisor.reports.diagnosis import TextOptions, report

    found = store.named(name, settings.folder).diagnoses
    out.deliver(report(found, TextOptions(verbosity=settings.verbosity)), settings)
