"""The review workbook, read back: sheets, numbers that are numbers, links, drop-downs, print."""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
import zipfile
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from openpyxl import Workbook, load_workbook
from openpyxl.utils import get_column_letter

from advisor.checklist.items import capture_facts, checklist
from advisor.model.facts import Table
from advisor.model.findings import Diagnosis, Input
from advisor.model.review import DECISIONS, Decision, Review
from advisor.reports.output_file import clean
from advisor.reports.workbook import book as workbook
from advisor.reports.workbook.evidence import Captures
from advisor.reports.workbook.style import FORMATS, lines_of, put
from tests.reports.fixture import DIAGNOSIS, HEALTHY, NASTY

ROOT = Path(__file__).resolve().parents[2]
FORMULAS = ("=1+1", '=HYPERLINK("http://x")', "+1", "-2+3", "@SUM(A1)", "\t=1", "|cmd", "=cmd|' /C'!A0")


def made(*diagnoses: Diagnosis, **more: Any) -> Workbook:
    data = workbook.render(diagnoses, checklist=checklist(capture_facts(diagnoses)), **more)
    return load_workbook(io.BytesIO(data))


@pytest.fixture(scope="module")
def book() -> Workbook:
    return made(DIAGNOSIS)


def table(sheet: Any, first: str) -> list[dict[str, Any]]:
    """The rows of the table whose first head is `first`, as cells by head."""
    rows = list(sheet.iter_rows())
    at = next(i for i, r in enumerate(rows) if any(c.value == first for c in r))
    heads = {c.value: c.column - 1 for c in rows[at] if c.value}
    out = []
    for row in rows[at + 1 :]:
        if all(c.value is None for c in row):
            break
        out.append({h: row[i] for h, i in heads.items()})
    return out


# --- the whole -------------------------------------------------------------------------------


def test_the_sheets(book: Workbook) -> None:
    assert book.sheetnames == [
        "Summary",
        "Findings",
        "Recommendations",
        "Checklist",
        "Evidence",
        "Kernels",
        "Steps",
        "Rules",
        "Facts",
        "Thresholds",
    ]
    assert len(book.sheetnames) <= 10


def test_printed_one_page_wide_and_long_tables_upright(book: Workbook) -> None:
    for sheet in book.worksheets:
        tall = sheet.title in ("Summary", "Evidence", "Facts", "Thresholds")
        assert sheet.page_setup.orientation == ("portrait" if tall else "landscape"), sheet.title
        assert sheet.sheet_properties.pageSetUpPr.fitToPage, sheet.title
        high = int(sheet.title == "Summary")
        assert (sheet.page_setup.fitToWidth, sheet.page_setup.fitToHeight) == (1, high), sheet.title
        assert "&P" in sheet.oddFooter.right.text


def test_every_link_leads_somewhere(book: Workbook) -> None:
    seen = 0
    for sheet in book.worksheets:
        for row in sheet.iter_rows():
            for cell in row:
                if cell.hyperlink is None:
                    continue
                seen += 1
                if cell.hyperlink.location:
                    target = re.fullmatch(r"'(.+)'!A\d+", cell.hyperlink.location)
                    assert target
                    assert target[1] in book.sheetnames
                else:
                    assert cell.hyperlink.target.startswith("https://")
    assert seen > 15


def test_the_same_bytes_twice() -> None:
    script = (
        "import sys\n"
        "from tests.reports.fixture import DIAGNOSIS, HEALTHY\n"
        "from advisor.checklist.items import checklist, capture_facts\n"
        "from advisor.reports.workbook import book as workbook\n"
        "both = [DIAGNOSIS, HEALTHY]\n"
        "sys.stdout.buffer.write(workbook.render(both, checklist=checklist(capture_facts(both))))\n"
    )

    def run(seed: str, zone: str) -> bytes:
        env = {**os.environ, "PYTHONHASHSEED": seed, "TZ": zone, "PYTHONPATH": str(ROOT)}
        return subprocess.run([sys.executable, "-c", script], env=env, capture_output=True, check=True).stdout

    first = run("1", "UTC")
    assert first == run("2", "Asia/Tokyo")
    with zipfile.ZipFile(io.BytesIO(first)) as package:
        assert {i.date_time for i in package.infolist()} == {(1980, 1, 1, 0, 0, 0)}
        assert b"2000-01-01T00:00:00Z" in package.read("docProps/core.xml")


# --- cells -----------------------------------------------------------------------------------


@pytest.mark.parametrize("text", FORMULAS)
def test_text_that_looks_like_a_formula_stays_text(text: str) -> None:
    sheet = Workbook().active
    cell = put(sheet.cell(1, 1), text)
    assert cell.data_type == "s"
    assert cell.quotePrefix


def test_no_cell_of_a_capture_is_a_formula() -> None:
    rows = tuple((name, 1.0) for name in (*FORMULAS, NASTY))
    evil = DIAGNOSIS.replaced(
        verdict="=1+1",
        tables={"kernels": Table(title="=2", columns=("kernel", "share"), rows=rows)},
        inputs=(Input(path="=x/+y.sqlite", format="-f", warnings=("=w",)),),
    )
    found = made(evil)
    formulas = {
        f"{s.title}!{c.coordinate}": c.value
        for s in found.worksheets
        for row in s.iter_rows()
        for c in row
        if c.data_type == "f"
    }
    # Only ours: the counters of the review.
    assert {v.split("(")[0] for v in formulas.values()} == {"=COUNTA", "=COUNTIF"}
    assert {name.split("!")[0] for name in formulas} == {"Summary"}
    assert table(found["Kernels"], "kernel")[0]["kernel"].value == "=1+1"


@pytest.mark.parametrize(
    ("value", "unit", "format"),
    [
        (0.123, "ratio", "0.0%"),
        (12, "count", "#,##0"),
        (1.5, "count", "#,##0.0##"),
        (2112, "ns", FORMATS["ns"]),
        (3.2, "times", FORMATS["times"]),
        (True, "flag", "General"),
    ],
)
def test_numbers_are_numbers_with_formats(value: Any, unit: str, format: str) -> None:
    cell = put(Workbook().active.cell(1, 1), value, unit)
    assert cell.number_format == format
    assert cell.value == ("yes" if value is True else value)


def test_what_no_cell_can_hold() -> None:
    sheet = Workbook().active
    assert put(sheet.cell(1, 1), float("nan")).value == "nan"
    assert put(sheet.cell(2, 1), None).value is None
    assert len(put(sheet.cell(3, 1), "x" * 40_000).value) == 32_767
    assert put(sheet.cell(4, 1), "a\x00\x1bb\nc `d`").value == "a??b\nc d"


def test_lines_are_counted_as_they_wrap() -> None:
    assert lines_of("short", 20) == 1
    assert lines_of("one\ntwo", 20) == 2
    assert lines_of("word " * 40, 20) in range(9, 15)
    assert lines_of("x" * 200, 20) >= 9


# --- the sheets ------------------------------------------------------------------------------


def test_summary(book: Workbook) -> None:
    sheet = book["Summary"]
    values = [c.value for row in sheet.iter_rows() for c in row if c.value is not None]
    assert values[0] == "decode_[eager]_batch_size_1"
    assert any(str(v).startswith("Launch-bound decode") for v in values)
    assert 9.92 in values
    assert 0.553 in values
    assert "=COUNTA(Findings!$R$6:$R$8)" in values
    assert any("capture with --gpu-metrics-devices=all for 2 of them" in str(v) for v in values)
    (chart,) = sheet._charts
    assert [s.tx.strRef.f for s in chart.series]
    assert chart.grouping == "percentStacked"


def test_the_first_sheet_has_the_findings_in_the_order_of_the_report(book: Workbook) -> None:
    codes = [f.code for f in DIAGNOSIS.findings]
    shown = [c.value for row in book["Summary"].iter_rows() for c in row if c.value in codes]
    assert shown[: len(codes)] == codes[: len(shown)]
    assert len(shown) >= 3


def test_one_bar_is_a_chart_by_part() -> None:
    one = DIAGNOSIS.replaced(budget=DIAGNOSIS.budget[:1])
    (chart,) = made(one)["Summary"]._charts
    assert chart.grouping == "clustered"
    assert len(chart.series[0].dPt) == 4
    assert chart.legend is None


def test_findings(book: Workbook) -> None:
    sheet = book["Findings"]
    rows = table(sheet, "#")
    assert [r["Code"].value for r in rows] == ["LCH101", "SYN103", "CAP109"]
    assert rows[0]["Share"].value == 0.553
    assert rows[0]["Share"].number_format == "0.0%"
    assert rows[0]["Speed-up"].value == 4.29
    assert rows[0]["Key"].value == "LCH101@device=0,phase=decode"
    head = rows[0]["#"].row - 1
    assert sheet.freeze_panes == f"A{head + 1}"
    assert sheet.print_title_rows == f"${head}:${head}"
    assert sheet.auto_filter.ref.startswith(f"A{head}:")
    lists = {v.formula1: str(v.sqref) for v in sheet.data_validations.dataValidation}
    assert lists[f'"{",".join(DECISIONS)}"'] == _cells(rows, "Decision")
    assert "36526" in lists
    rules = {str(k.sqref) for k in sheet.conditional_formatting}
    assert _cells(rows, "Severity") in rules
    assert sheet.column_dimensions[get_column_letter(rows[0]["Key"].column)].hidden


def test_a_gain_of_throughput_says_so() -> None:
    first = DIAGNOSIS.findings[0]
    assert first.gain is not None
    assert first.gain.speedup is not None
    gain = first.gain.replaced(measure="throughput")
    findings = (first.replaced(gain=gain), *DIAGNOSIS.findings[1:])
    made_of = made(DIAGNOSIS.replaced(findings=findings))
    for sheet, head in (("Findings", "Speed-up"), ("Summary", "speed-up")):
        cell = table(made_of[sheet], "#")[0][head]
        assert cell.value == first.gain.speedup.mid
        assert cell.number_format == FORMATS["throughput"]
        assert "tok/s" in cell.number_format


def test_the_longest_text_of_a_proof_gets_the_room() -> None:
    first = DIAGNOSIS.findings[0]
    proof = Table(
        title="Activity",
        columns=("family", "kernel", "share ratio"),
        rows=(("gemm", "nvjet_sm90_tst_128x8_64x12_2x1_v_bz_TNT", 0.5),),
    )
    findings = (first.replaced(evidence=(proof,)),)
    sheet = made(DIAGNOSIS.replaced(findings=findings))["Evidence"]
    at = next(c for row in sheet.iter_rows() for c in row if c.value == "nvjet 128x8 64x12 2x1 TNT")
    spans = [m for m in sheet.merged_cells.ranges if at.coordinate in m]
    assert [(m.min_col, m.max_col) for m in spans] == [(2, 3)]


def _cells(rows: list[dict[str, Any]], head: str) -> str:
    return f"{rows[0][head].coordinate}:{rows[-1][head].coordinate}"


def test_recommendations(book: Workbook) -> None:
    rows = table(book["Recommendations"], "#")
    assert rows[0]["Option of the engine"].value.splitlines()[0].startswith("vLLM: drop")
    assert (rows[0]["must"].value, rows[0]["now"].value) == ("falls", 0.553)
    assert rows[0]["now"].number_format == "0.0%"
    assert len(rows) == 3


def test_evidence(book: Workbook) -> None:
    sheet = book["Evidence"]
    because = table(sheet, "fact")
    assert (because[1]["value"].value, because[1]["threshold"].value) == (2_112, 10_000)
    assert because[1]["value"].number_format == FORMATS["ns"]
    calls = table(sheet, "call")
    assert calls[0]["idle"].value == 98_412_000
    assert calls[2]["call"].value == clean(NASTY)
    where = table(sheet, "what")
    assert where[0]["at"].value == 1.234567
    assert where[0]["for"].value == 124_000
    assert where[0]["thread"].value == "41873"
    gain = table(sheet, "estimate")
    assert [gain[2][h].value for h in ("low", "middle", "high")] == [3.1, 4.29, 4.7]


def test_tables(book: Workbook) -> None:
    kernels = table(book["Kernels"], "kernel")
    assert kernels[0]["calls"].value == 352
    assert kernels[0]["share"].number_format == "0.0%"
    assert "\x1b" not in kernels[2]["kernel"].value
    steps = table(book["Steps"], "phase")
    assert (steps[0]["phase"].value, steps[0]["median (ms)"].value) == ("decode", 9.92)
    facts = table(book["Facts"], "Fact")
    assert [(f["Value"].value, f["Value"].number_format) for f in facts] == [
        (0.553, "0.0%"),
        (2112, FORMATS["ns"]),
        ("yes", "General"),
        (3.217, FORMATS["times"]),
    ]
    (limit,) = table(book["Thresholds"], "Code")
    assert [limit[h].value for h in ("Value", "Default", "Fact", "Measured", "Outcome")] == [
        0.1,
        0.15,
        "launch.idle_ratio",
        0.553,
        "fired",
    ]


def test_every_rule_is_listed_with_its_state(book: Workbook) -> None:
    rows = table(book["Rules"], "State")
    states = Counter(r["State"].value for r in rows)
    assert states["fired"] == len(DIAGNOSIS.findings)
    assert states["in order"] + states["close"] == len(DIAGNOSIS.healthy) == 2
    assert states["not judged"] == len(DIAGNOSIS.not_evaluated)
    missing = [r for r in rows if r["State"].value == "not judged"]
    assert all(r["Result or reason"].value for r in rows)
    assert missing[0]["To judge it"].value == "capture with --gpu-metrics-devices=all"
    assert missing[3]["To judge it"].value == "no option helps"


def test_a_link_of_a_finding_leads_to_its_evidence(book: Workbook) -> None:
    for row in table(book["Findings"], "#"):
        cell = row["Code"].hyperlink.location.rpartition("!")[2]
        assert f" {row['Code'].value} " in book["Evidence"][cell].value


def test_the_checklist(book: Workbook) -> None:
    rows = table(book["Checklist"], "Stage")
    by_id = {r["Id"].value: r for r in rows}
    assert by_id["launches-analysed"]["Answer"].value == "yes"
    assert "55.3 % of the window" in by_id["launches-analysed"]["What the capture says"].value
    assert by_id["load-levels"]["Answer"].value is None
    lists = {v.formula1 for v in book["Checklist"].data_validations.dataValidation}
    assert '"yes,no,not applicable,later"' in lists


def test_decisions_of_an_earlier_review_are_filled_in() -> None:
    known = Decision(
        capture="old",
        finding="LCH101@device=0,phase=decode",
        code="LCH101",
        owner="Ada",
        decision="accept",
        due="2026-12-01",
        comment="=soon",
    )
    review = Review(tool=DIAGNOSIS.tool, workbook="old.xlsx", decisions=(known,))
    rows = table(made(DIAGNOSIS, review=review)["Findings"], "#")
    first = rows[0]
    assert (first["Owner"].value, first["Decision"].value) == ("Ada", "accept")
    assert first["Due"].value.date().isoformat() == "2026-12-01"
    assert first["Due"].is_date
    assert (first["Comment"].value, first["Comment"].data_type) == ("=soon", "s")
    assert rows[1]["Decision"].value is None


# --- several captures ------------------------------------------------------------------------


def test_several_captures_are_compared() -> None:
    book = made(DIAGNOSIS, HEALTHY)
    assert book.sheetnames[:3] == ["Summary", "Comparison", "Findings"]
    assert len(book.sheetnames) <= 10
    sheet = book["Comparison"]
    captures = table(sheet, "Capture")
    assert [r["Capture"].value for r in captures] == ["decode_[eager]_batch_size_1", "well"]
    assert captures[1]["First finding"].value == "nothing to fix"
    matrix = table(sheet, "Code and cause")
    assert matrix[0]["decode_[eager]_batch_size_1"].value == 0.553
    facts = table(sheet, "Fact")
    changes = {f["Fact"].value: f["well: change"] for f in facts}
    assert all(c.value.startswith("=IF(AND(ISNUMBER($B") for c in changes.values())
    # A share changes by points, whatever it was before; anything else by a part of itself.
    points = {n for n, c in changes.items() if "pts" in c.number_format and "100*" in c.value}
    assert points == {n for n in changes if n.endswith("_ratio")} != set()
    assert table(book["Findings"], "Capture")[0]["Capture"].value == "decode_[eager]_batch_size_1"


def test_names_of_captures_tell_them_apart() -> None:
    def named(*paths: str) -> tuple[str, ...]:
        found = [HEALTHY.replaced(inputs=(Input(path=p, format="f"),)) for p in paths]
        return Captures(tuple(found)).labels

    assert named("a/x.sqlite.xz", "a/y.sqlite") == ("x", "y")
    assert named("a/x.sqlite", "b/x.sqlite") == ("a/x", "b/x")
    assert named("x.sqlite", "x.sqlite", "x.sqlite") == ("x", "x #2", "x #3")


def test_a_capture_without_anything() -> None:
    empty = Diagnosis(
        tool=DIAGNOSIS.tool,
        inputs=(Input(path="e.sqlite", format="f"),),
        verdict="No GPU work was recorded, so nothing can be judged.",
    )
    book = made(empty)
    assert "nothing was found" in {c.value for row in book["Findings"].iter_rows() for c in row}
    assert not book["Summary"]._charts


def test_an_interrupted_writer_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from advisor.reports.output_file import write_atomic

    def stopped(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("advisor.writing.rename", stopped)
    with pytest.raises(KeyboardInterrupt):
        write_atomic(tmp_path / "x.xlsx", workbook.render([HEALTHY]))
    assert list(tmp_path.iterdir()) == []
