"""``advisor whatif TRACE --fix NAME``: what a change would win, on the captured timeline."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from advisor.cli import complete
from advisor.cli.deliver import formats
from advisor.cli.settings import argument, option, switch, takes
from advisor.config import Settings
from advisor.errors import InputError


@takes(
    "traces fix list_ together format output force window phase weight_bytes unprofiled_step rules redact",
    files=(),
    format=formats("Kind of report."),
)
def whatif(
    settings: Settings,
    traces: list[Path] | None = argument("TRACE", None),
    fix: list[str] | None = option(
        "NAME[:param=value]", "A what-if, a code or a cause, in order.", autocompletion=complete.fixes
    ),
    list_: bool = switch("--list", "Show the what-ifs."),
) -> None:
    """Predict the step time after a change, by replaying the capture without the cause.

    Several --fix are applied in order, and each shows what it wins after those before it.
    """
    from advisor.cli.deliver import check_output, deliver_one

    check_output(settings, traces or ())
    if list_:
        from advisor.gain.catalog import catalogue
        from advisor.model.explanation import WhatIfList
        from advisor.reports.listings import whatifs

        known = catalogue().whatifs
        listed = WhatIfList(whatifs={name: spec.model_dump() for name, spec in known.items()})
        deliver_one(listed, partial(whatifs, listed), "What-ifs", settings)
        return
    if not traces or not fix:
        raise InputError("whatif needs TRACE and at least one --fix NAME; see 'advisor whatif --list'")
    from advisor.cli.inputs import as_pair
    from advisor.cli.progress import Progress
    from advisor.pipeline.whatif import whatif as ask
    from advisor.reports.gain_text import whatif as said

    trace, settings = as_pair(traces, settings)
    with Progress(trace.name) as progress:
        report = ask(trace, fix, settings, progress)
    deliver_one(report, partial(said, report), "What a change wins", settings)
