"""Runs `advisor stats` in this process and reads back what it printed."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import pytest

from advisor.cli.main import main
from advisor.metrics.loaded.selection import Selection
from advisor.metrics.profiled.stage import measure
from advisor.metrics.stats.reports import make_report
from advisor.metrics.stats.summaries import NameStyle
from advisor.model.stats_table import StatsTable
from advisor.sources.open import open_trace
from tests.builder import Export

Captured = pytest.CaptureFixture[str]


def table(
    export: Export, folder: Path, report: str, names: NameStyle = "full", **selection: str
) -> StatsTable:
    """One report of an export."""
    path = folder / "trace.sqlite"
    path.unlink(missing_ok=True)
    trace = open_trace(export.write(path))
    return make_report(measure(trace, Selection(**selection)), report, names)


def rows(found: StatsTable, *columns: str) -> list[tuple[object, ...]]:
    """Chosen columns (without their units) as tuples; empty cells are None."""
    heads = {heading.partition(" (")[0]: heading for heading in found.frame}
    picked = found.frame[[heads[name] for name in columns]].astype(object)
    return list(picked.where(picked.notna(), None).itertuples(index=False, name=None))


def printed(capsys: Captured, *args: object) -> str:
    """Stdout of `advisor stats`, which must succeed."""
    code = main(["stats", *map(str, args)])
    out, err = capsys.readouterr()
    assert code == 0, err
    return out


def csv_rows(text: str) -> list[list[str]]:
    return list(csv.reader(io.StringIO(text)))
