"""Opens what a builder wrote and analyses it."""

from __future__ import annotations

from pathlib import Path

from advisor.metrics.loaded.selection import Selection
from advisor.metrics.profiled.stage import Profiled, measure
from advisor.sources.open import open_trace
from tests.builder import Export


def analysis(export: Export, folder: Path, **selection: str) -> Profiled:
    """The analysis of an export; selections as on the command line."""
    trace = open_trace(export.write(folder / "trace.sqlite"))
    return measure(trace, Selection(**selection))
