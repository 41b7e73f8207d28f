"""The durations that tables of tails print are rows of the capture."""

from __future__ import annotations

from pathlib import Path

import pytest

from advisor.facts.catalog import build_facts
from advisor.metrics.profiled.stage import measure
from advisor.pipeline.diagnose import open_trace
from tests.captures import smaller_of

EXAMPLES = sorted((Path(__file__).resolve().parents[2] / "examples" / "captures").glob("*.sqlite.xz"))


@pytest.mark.parametrize("path", smaller_of(EXAMPLES))
def test_median_99th_percentile_and_slowest_call_were_recorded(path: Path) -> None:
    with open_trace(path) as trace:
        a = measure(trace)
        lengths = {ns / 1e3 for ns in a.ops.length.tolist()}
        tables = [table for (name, _), table in build_facts(a).tables.items() if name == "operations.tail"]
        printed = {us for table in tables for row in table.rows for us in row[3:6]}
    assert printed <= lengths
