"""``advisor whatif TRACE --fix NAME``: what a change would win, on the captured timeline."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from advisor.cli import complete, flags
from advisor.cli.flags import Texts
from advisor.cli.settings import takes
from advisor.config import Settings
from advisor.errors import InputError
from advisor.model.options import one_of

if TYPE_CHECKING:
    from advisor.reports.layout import Page


@takes(
    "trace fix list_ format output force window phase weight_bytes unprofiled_step rules",
    files=(),
    format=one_of("Kind of report.", "text", "json"),
)
def whatif(
    settings: Settings,
    trace: Annotated[Path | None, typer.Argument(metavar="TRACE", hidden=True)] = None,
    fix: Annotated[
        Texts,
        typer.Option(
            metavar="NAME[:param=value]",
            help="A what-if, a code or a cause, in order.",
            autocompletion=complete.fixes,
        ),
    ] = None,
    list_: Annotated[bool, typer.Option("--list", help="Show the what-ifs.")] = False,
    output: flags.Output = None,
    force: flags.Force = False,
) -> None:
    """Predict the step time after a change, by replaying the capture without the cause.

    Several --fix are applied in order, and each shows what it wins after those before it.
    """
    from advisor.cli.deliver import deliver, target_of

    if list_:
        _known(settings.format, target_of(output, force), force)
        return
    if trace is None or not fix:
        raise InputError("whatif needs TRACE and at least one --fix NAME; see 'advisor whatif --list'")
    output = target_of(output, force, [trace])
    from advisor.cli.progress import Progress
    from advisor.pipeline.whatif import whatif as ask
    from advisor.reports import gain_text
    from advisor.reports.blocks import write

    with Progress(trace.name) as progress:
        report = ask(trace, fix, settings, progress)
    deliver(report, lambda page: write(page, gain_text.whatif(report)), settings.format, output, force)


def _known(format: str, output: Path | None, force: bool) -> None:
    """The what-ifs, as text or JSON."""
    from advisor.cli.output import write_bytes, write_page

    if format == "json":
        write_bytes(f"{_json_list()}\n".encode(), output, force)
    else:
        write_page(_list, output, force)


def _json_list() -> str:
    import json

    from advisor.gain.catalog import catalogue

    known = {name: spec.model_dump() for name, spec in catalogue().whatifs.items()}
    return json.dumps({"schema_version": 1, "whatifs": known}, indent=2)


def _list(page: Page) -> None:
    from advisor.gain.catalog import catalogue
    from advisor.reports.gain_text import whatif_list

    entries = []
    for name, spec in catalogue().whatifs.items():
        params = [
            f":{key}={p.default:g}" if isinstance(p.default, float) else f":{key}={p.default}"
            for key, p in spec.params.items()
        ]
        lines = [
            f"{head}  {p.meaning} ({'|'.join(p.choices) if p.choices else p.unit})"
            for head, p in zip(params, spec.params.values(), strict=True)
        ]
        entries.append((name, spec.title, spec.measure, spec.changes, lines))
    whatif_list(page, entries)
