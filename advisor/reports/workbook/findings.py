"""Findings with room for decisions, and the recommendations that follow from them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from typing import Any

from openpyxl.formatting.rule import CellIsRule, DataBarRule, FormulaRule
from openpyxl.styles import Font
from openpyxl.utils import get_column_letter
from openpyxl.worksheet.datavalidation import DataValidation

from advisor.model.findings import Finding
from advisor.model.review import DECISIONS, Decision, Review
from advisor.reports import phrases
from advisor.reports.finding_text import verify_text
from advisor.reports.numbers import fact_unit
from advisor.reports.workbook.captures import Captures, Row
from advisor.reports.workbook.sheet import Area, Column, Link, Number, Sheet
from advisor.reports.workbook.style import DATE, FILL_IN, FONT, GOOD, GOOD_BG, LEVELS, MUTED, align, fill, put

#: Heads that `advisor review import` looks for.
CODE, CAUSE, FINDING, SEVERITY, SHARE = "Code", "Cause", "Finding", "Severity", "Share"
OWNER, DECISION, DUE, COMMENT = "Owner", "Decision", "Due", "Comment"
KEY, CAPTURE, SPEED = "Key", "Capture file", "Speed-up"
#: Rows below the table that take decisions on findings added by hand.
NOTE = "Fill in the yellow columns; 'advisor review import' reads them back."


def findings(
    sheet: Sheet, captures: Captures, rows: Sequence[Row], evidence: dict[str, str], review: Review | None
) -> tuple[Area, dict[str, int]]:
    """The table; returns where it stands and the column of each head."""
    marked = any(r.finding.baseline for r in rows)
    columns = [
        *captures.column(),
        Column("#", 4, "id"),
        Column(SEVERITY, 10),
        Column(CODE, 9),
        Column(CAUSE, 18, wrap=True),
        Column(FINDING, 30, wrap=True),
        Column("What was measured", 46, wrap=True),
        Column("Where", 14, wrap=True),
        Column(SHARE, 9, "ratio"),
        Column("ms a step", 9, "fixed"),
        Column("Sure", 8, "ratio"),
        Column(SPEED, 13),
        *([Column("Baseline", 10)] if marked else []),
        Column("Do first", 38, wrap=True),
        Column(OWNER, 14),
        Column(DECISION, 12),
        Column(DUE, 11),
        Column(COMMENT, 26, wrap=True),
        Column(KEY, 20),
        Column(CAPTURE, 20),
    ]
    at = {c.head: i for i, c in enumerate(columns, 1)}
    cells = [_row(r, evidence, captures, marked) for r in rows]
    area = sheet.table(columns, cells, filter=True, freeze=True, empty="nothing was found")
    if rows:
        levels(sheet, area.column(at[SEVERITY]))
        bars(sheet, area.column(at[SHARE]))
        if marked:
            _baseline(sheet, area.column(at["Baseline"]))
        _fill_in(sheet, area, at, [_decided(review, r) for r in rows])
    sheet.page(large=True)
    for head in (KEY, CAPTURE):
        sheet.ws.column_dimensions[get_column_letter(at[head])].hidden = True
    return area, at


def _row(row: Row, evidence: dict[str, str], captures: Captures, marked: bool) -> list[Any]:
    f = row.finding
    impact = f.impact
    first = f.recommendations[0].action if f.recommendations else None
    return [
        *captures.lead(row.label),
        f.rank,
        f.severity,
        Link(f.code, sheet=evidence.get(f.code)),
        f.cause,
        f.title,
        f.message,
        phrases.scope(f) or "whole capture",
        None if impact is None else impact.share,
        None if impact is None else impact.ms,
        f.confidence,
        Number(*speedup(f)),
        *([f.baseline] if marked else []),
        first,
        None,
        None,
        None,
        None,
        f.identity,
        row.capture,
    ]


def speedup(finding: Finding) -> tuple[float | None, str]:
    """What a fix would win and the unit that says of what: of a step, or of throughput."""
    gain = finding.gain
    if gain is None or gain.speedup is None:
        return None, "times"
    return gain.speedup.mid, "throughput" if gain.measure == "throughput" else "times"


def _decided(review: Review | None, row: Row) -> Decision | None:
    return None if review is None else review.of(row.finding.identity)


def _fill_in(sheet: Sheet, area: Area, at: dict[str, int], before: Sequence[Decision | None]) -> None:
    """Yellow cells with drop-down and date check, filled with what was decided before."""
    ws = sheet.ws
    for row, decision in zip(range(area.first, area.last + 1), before, strict=True):
        for head in (OWNER, DECISION, DUE, COMMENT):
            cell = ws.cell(row, at[head])
            cell.fill = fill(FILL_IN)
            cell.alignment = align(wrap=head == COMMENT, indent=1)
        ws.cell(row, at[DUE]).number_format = DATE
        if decision is None:
            continue
        for head, value in (
            (OWNER, decision.owner),
            (DECISION, decision.decision),
            (COMMENT, decision.comment),
        ):
            put(ws.cell(row, at[head]), value)
        if decision.due:
            ws.cell(row, at[DUE]).value = _date(decision.due)
            ws.cell(row, at[DUE]).number_format = DATE
    choose(sheet, area.column(at[DECISION]), DECISIONS, "Decision")
    day = DataValidation(
        type="date",
        operator="greaterThan",
        formula1="36526",
        allow_blank=True,
        errorTitle="Due",
        error="A date, please.",
        showErrorMessage=True,
    )
    ws.add_data_validation(day)
    day.add(area.column(at[DUE]))
    decided = area.column(at[DECISION])
    for word, (ink, ground) in (
        ("accept", (GOOD, GOOD_BG)),
        ("done", (GOOD, GOOD_BG)),
        ("reject", LEVELS["info"]),
        ("defer", LEVELS["medium"]),
        ("needs data", LEVELS["low"]),
    ):
        rule = CellIsRule(
            operator="equal", formula=[f'"{word}"'], font=Font(name=FONT, color=ink), fill=fill(ground)
        )
        ws.conditional_formatting.add(decided, rule)


def _date(text: str) -> date | str:
    try:
        return date.fromisoformat(text)
    except ValueError:
        return text


def choose(sheet: Sheet, cells: str, words: Sequence[str], title: str) -> None:
    """A drop-down list."""
    listed = DataValidation(
        type="list",
        formula1=f'"{",".join(words)}"',
        allow_blank=True,
        showErrorMessage=True,
        errorTitle=title,
        error=f"One of: {', '.join(words)}.",
    )
    sheet.ws.add_data_validation(listed)
    listed.add(cells)


def levels(sheet: Sheet, cells: str) -> None:
    """Severity as a conditional format, so that it follows an edit."""
    for level, (ink, ground) in LEVELS.items():
        rule = CellIsRule(
            operator="equal",
            formula=[f'"{level}"'],
            font=Font(name=FONT, color=ink, bold=True),
            fill=fill(ground),
        )
        sheet.ws.conditional_formatting.add(cells, rule)


def bars(sheet: Sheet, cells: str, color: str = "A9C7E8") -> None:
    """Shares with a bar behind the number, from 0 to 100 %."""
    rule = DataBarRule(
        start_type="num", start_value=0, end_type="num", end_value=1, color=color, minLength=0, maxLength=100
    )
    sheet.ws.conditional_formatting.add(cells, rule)


def _baseline(sheet: Sheet, cells: str) -> None:
    first = cells.split(":")[0]
    rule = FormulaRule(
        formula=[f'{first}="new"'], font=Font(name=FONT, color="7A1FA0", bold=True), fill=fill("F5E8FB")
    )
    sheet.ws.conditional_formatting.add(cells, rule)


def recommendations(sheet: Sheet, captures: Captures, rows: Sequence[Row], evidence: dict[str, str]) -> Area:
    """One row a recommendation, with the line of the engine in use and how to verify."""
    columns = [
        *captures.column(),
        Column("#", 5, "id"),
        Column(SEVERITY, 10),
        Column(CODE, 10),
        Column("Action", 52, wrap=True),
        Column("Option of the engine", 60, wrap=True),
        Column("Effort", 9),
        Column(SHARE, 9, "ratio"),
        Column(SPEED, 13),
        Column("Verify: fact", 26, wrap=True),
        Column("must", 10),
        Column("now", 12),
    ]
    cells = []
    for row in rows:
        f = row.finding
        for i, advice in enumerate(f.recommendations):
            verify = advice.verify
            change = verify_text(verify).split(" ")[1].rstrip(",") if verify else None
            unit = fact_unit(verify.fact, verify.unit) if verify else ""
            cells.append(
                [
                    *captures.lead(row.label),
                    f.rank,
                    f.severity,
                    Link(f.code, sheet=evidence.get(f.code)),
                    advice.action,
                    "\n".join(_option(o.engine, o.line, o.since) for o in advice.options) or None,
                    advice.effort,
                    f.impact.share if f.impact else None,
                    Number(*speedup(f)) if i == 0 else None,
                    verify.fact if verify else None,
                    change,
                    Number(verify.now if verify else None, unit),
                ]
            )
    area = sheet.table(columns, cells, filter=True, freeze=True, empty="nothing to recommend")
    at = {c.head: i for i, c in enumerate(columns, 1)}
    if cells:
        levels(sheet, area.column(at[SEVERITY]))
        bars(sheet, area.column(at[SHARE]))
    sheet.text(
        1, "The first piece of advice of a finding carries its estimated speed-up.", color=MUTED, italic=True
    )
    return area


def _option(engine: str, line: str, since: str | None) -> str:
    name = "" if engine == "any" else f"{engine}: "
    return f"{name}{line}{f' (since {since})' if since else ''}"
