"""``advisor facts [TRACE]``: the catalogue of facts, or their values in one capture."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from advisor.cli.output import make_page, print_page
from advisor.config import CHOICES
from advisor.errors import InputError

Text = str | None


def _as_for_diagnose(metavar: str) -> Any:
    return typer.Option(metavar=metavar, help="As for diagnose.")


def facts(
    trace: Annotated[Path | None, typer.Argument(metavar="[TRACE]", hidden=True)] = None,
    match: Annotated[
        str, typer.Option(metavar="TEXT", help="Only facts whose name holds TEXT: sync., _p50.")
    ] = "",
    window: Annotated[Text, _as_for_diagnose("FROM/TO")] = None,
    nvtx: Annotated[Text, _as_for_diagnose("RANGE[@DOMAIN][/N]")] = None,
    phase: Annotated[Text, _as_for_diagnose("|".join(CHOICES["phase"]))] = None,
    weight_bytes: Annotated[Text, _as_for_diagnose("N|config.json")] = None,
) -> None:
    """List the facts that rules may use; with TRACE, their values and where those come from."""
    from advisor.compare.catalog import EVERY_FACT
    from advisor.reports.facts_text import catalogue, values

    page = make_page()
    chosen = {"window": window, "nvtx": nvtx, "phase": phase, "weight-bytes": weight_bytes}
    if trace is None:
        if given := next((name for name, value in chosen.items() if value), None):
            raise InputError(f"--{given} needs a TRACE")
        entries = [s for name, s in EVERY_FACT.items() if match in name]
        catalogue(page, [(s.name, s.unit, s.level, s.meaning, s.how, s.flag) for s in entries])
    else:
        from advisor.pipeline.diagnose import Options, diagnose

        options = Options(window=window, nvtx=nvtx, phase=phase, weight_bytes=weight_bytes)
        diagnosis = diagnose(trace, options)
        values(page, [f for f in diagnosis.facts if match in f.name])
    print_page(page)
