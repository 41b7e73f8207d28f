"""What a fix saves is one number, of any capture: text, JSON, HTML and workbook print that of the finding.
And the parts of a budget add up to its window."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path

import pytest
from openpyxl import load_workbook

from advisor.errors import AdvisorError
from advisor.model.findings import Diagnosis, Finding
from advisor.model.options import format_writer
from advisor.reports import summary
from advisor.reports.diagnosis_blocks import TextOptions, report
from advisor.reports.workbook import book
from tests import captures as captured
from tests.captures import each
from tests.test_ticks import captures

CAPTURES = pytest.mark.parametrize("path", each(captures()))
#: Characters behind the name of a finding in which its row ends.
ROW = 900


def diagnosed(path: Path) -> Diagnosis:
    try:
        return captured.diagnosed(path)
    except AdvisorError as error:
        pytest.skip(f"not a capture of one trace: {error}")


def in_the_table(d: Diagnosis) -> list[Finding]:
    """The first finding of each rule whose row says what its fix saves."""
    first = {f.code: f for f in reversed(d.findings)}.values()
    return [f for f in first if f.severity != "info" and f.kind != "limit" and summary.saves(f)]


def squeezed(text: str) -> str:
    return re.sub(r"\s+", " ", text)


@CAPTURES
def test_all_formats_print_the_same_saves(path: Path) -> None:
    d = diagnosed(path)
    whole = report((d,), TextOptions(), False)
    text = squeezed(format_writer("text")(whole).decode())
    page = squeezed(re.sub(r"<[^>]*>", " ", format_writer("html")(whole).decode()))
    (document,) = [json.loads(format_writer("json")(whole))]
    written = {(f["code"], f["rank"]): f.get("gain") or {} for f in document["findings"]}
    sheet = load_workbook(io.BytesIO(book.render([d])), read_only=True)["Findings"]
    rows = [row for row in sheet.iter_rows(values_only=True) if row and isinstance(row[0], int)]
    for f in in_the_table(d):
        assert f.gain is not None
        assert f.gain.speedup is not None
        saves = summary.saves(f)
        for printed in (text, page):
            beginnings = [m.end() for m in re.finditer(rf"{f.code} ", printed)]
            assert any(f" {saves} " in printed[at : at + ROW] for at in beginnings), f.code
        gain = written[f.code, f.rank]
        assert gain["alone"] == f.gain.alone, f.code
        assert gain["speedup"]["mid"] == f.gain.speedup.mid, f.code
        (row,) = (r for r in rows if r[0] == f.rank)
        numbers = [cell for cell in row if isinstance(cell, float)]
        assert any(n == pytest.approx(f.gain.speedup.mid, rel=1e-6) for n in numbers), f.code


@CAPTURES
def test_the_parts_of_a_budget_add_up_to_its_window(path: Path) -> None:
    for budget in diagnosed(path).budget:
        assert sum(p.ms for p in budget.parts) == pytest.approx(budget.window_ms, rel=1e-6, abs=1e-6), (
            budget.place
        )
        assert sum(p.share for p in budget.parts) == pytest.approx(1.0, abs=1e-6), budget.place
        assert all(p.ms >= 0 for p in budget.parts)
