"""``advisor whatif TRACE --fix NAME``: what a change would win, on the captured timeline."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from advisor.cli import complete, flags
from advisor.cli.deliver import formats
from advisor.cli.flags import Texts
from advisor.cli.settings import takes
from advisor.config import Settings
from advisor.errors import InputError


@takes(
    "traces fix list_ together format output force window phase weight_bytes unprofiled_step rules redact",
    files=(),
    format=formats("Kind of report."),
)
def whatif(
    settings: Settings,
    traces: Annotated[list[Path] | None, typer.Argument(metavar="TRACE", hidden=True)] = None,
    fix: Annotated[
        Texts,
        typer.Option(
            metavar="NAME[:param=value]",
            help="A what-if, a code or a cause, in order.",
            autocompletion=complete.fixes,
        ),
    ] = None,
    list_: Annotated[bool, typer.Option("--list", help="Show the what-ifs.")] = False,
    together: flags.Together = False,
    output: flags.Output = None,
    force: flags.Force = False,
) -> None:
    """Predict the step time after a change, by replaying the capture without the cause.

    Several --fix are applied in order, and each shows what it wins after those before it.
    """
    from advisor.cli.deliver import deliver_one, target_of

    if list_:
        _known(settings.format, target_of(output, force), force)
        return
    if not traces or not fix:
        raise InputError("whatif needs TRACE and at least one --fix NAME; see 'advisor whatif --list'")
    output = target_of(output, force, traces)
    from advisor.cli.inputs import as_pair
    from advisor.cli.progress import Progress
    from advisor.pipeline.whatif import whatif as ask
    from advisor.reports.gain_text import whatif as said

    trace, other = as_pair(traces, together)
    settings = replace(settings, together=other)
    with Progress(trace.name) as progress:
        report = ask(trace, fix, settings, progress)
    deliver_one(report, partial(said, report), "What a change wins", settings.format, output, force)


def _known(format: str, output: Path | None, force: bool) -> None:
    """The what-ifs that there are."""
    from advisor.cli.deliver import deliver_one
    from advisor.gain.catalog import catalogue
    from advisor.model.whatif import WhatIfList
    from advisor.reports.listings import whatifs

    known = catalogue().whatifs
    entries = []
    for name, spec in known.items():
        params = [
            f":{key}={f'{p.default:g}' if isinstance(p.default, float) else p.default}  {p.meaning} "
            f"({'|'.join(p.choices) if p.choices else p.unit})"
            for key, p in spec.params.items()
        ]
        entries.append((name, spec.title, spec.measure, spec.changes, params))
    document = WhatIfList(whatifs={name: spec.model_dump() for name, spec in known.items()})
    deliver_one(document, partial(whatifs, entries), "What-ifs", format, output, force)
