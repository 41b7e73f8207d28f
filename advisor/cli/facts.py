"""``advisor facts [TRACE]``: the catalogue of facts, or their values in one capture."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from advisor.cli.deliver import show
from advisor.cli.settings import takes
from advisor.config import Settings
from advisor.errors import InputError


@takes("trace match window nvtx phase weight_bytes", files=())
def facts(
    settings: Settings,
    given: list[str],
    trace: Annotated[Path | None, typer.Argument(metavar="[TRACE]", hidden=True)] = None,
    match: Annotated[
        str, typer.Option(metavar="TEXT", help="Only facts whose name holds TEXT: sync., _p50.")
    ] = "",
) -> None:
    """List the facts that rules may use; with TRACE, their values and where those come from."""
    from advisor.compare.facts import EVERY_FACT
    from advisor.reports.listings import catalogue, values

    if trace is None:
        if given:
            raise InputError(f"--{given[0].replace('_', '-')} needs a TRACE")
        entries = [s for name, s in EVERY_FACT.items() if match in name]
        show(catalogue([(s.name, s.unit, s.level, s.meaning, s.how, s.flag) for s in entries]))
    else:
        from advisor.pipeline.diagnose import diagnose

        diagnosis = diagnose(trace, settings)
        show(values([f for f in diagnosis.facts if match in f.name]))
