"""``advisor facts [TRACE]``: the catalogue of facts, or their values in one capture."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from advisor.cli.output import make_page, print_page


def facts(
    trace: Annotated[Path | None, typer.Argument(metavar="[TRACE]", hidden=True)] = None,
    match: Annotated[
        str, typer.Option(metavar="TEXT", help="Only facts whose name holds TEXT: sync., _p50.")
    ] = "",
    window: Annotated[str, typer.Option(metavar="FROM/TO", help="As for diagnose.")] = "",
) -> None:
    """List the facts that rules may use; with TRACE, their values and where those come from."""
    from advisor.compare.catalog import EVERY_FACT
    from advisor.reports.facts_text import catalogue, values

    page = make_page()
    if trace is None:
        entries = [s for name, s in EVERY_FACT.items() if match in name]
        catalogue(page, [(s.name, s.unit, s.level, s.meaning, s.how, s.flag) for s in entries])
    else:
        from advisor.pipeline.diagnose import Options, diagnose

        diagnosis = diagnose(trace, Options(window=window or None))
        values(page, [f for f in diagnosis.facts if match in f.name])
    print_page(page)
