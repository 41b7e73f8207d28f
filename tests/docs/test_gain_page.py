"""docs/gain_calibration.md shows the steps that `diagnose` estimates today."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.captures import diagnosed

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "gain_calibration.md").read_text(encoding="utf-8")
PAIRS = PAGE.split("## Measured pairs")[1].split("### For information")[0]
ROW = re.compile(r"^\| (\w+) \| ([\w/-]+): [^|]+\| \w+ \| ([\d.]+) / ([\d.]+) / ([\d.]+) \|", re.MULTILINE)
CAPTURES = {p.name.split(".")[0]: p for p in (ROOT / "examples" / "captures").glob("*.sqlite.xz")}
COMMITTED = [row for row in ROW.findall(PAIRS) if row[0] in CAPTURES]


def test_the_page_has_pairs_of_committed_captures() -> None:
    assert len(COMMITTED) >= 4


@pytest.mark.parametrize("row", COMMITTED, ids=lambda row: f"{row[0]}-{row[1].replace('/', '-or-')}")
def test_the_step_before_the_fix_is_the_estimate_of_today(row: tuple[str, ...]) -> None:
    capture, causes, *before = row
    found = diagnosed(CAPTURES[capture]).findings
    gain = next(f.gain for f in found if f.cause in causes.split("/"))
    assert gain is not None
    assert gain.step_before_ms is not None
    said = gain.step_before_ms
    assert [f"{ms:.2f}" for ms in (said.low, said.mid, said.high)] == before
