"""Findings with room for decisions, their recommendations, and what became of them since the last review."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import date
from typing import NamedTuple

from openpyxl.formatting.rule import CellIsRule, DataBarRule, FormulaRule
from openpyxl.styles import Font
from openpyxl.utils import get_column_letter
from openpyxl.worksheet.datavalidation import DataValidation

from advisor.model.findings import Diagnosis, Finding
from advisor.model.gain import Advice, Option, Verify
from advisor.model.numbers import fact_unit
from advisor.model.review import DECISIONS, SETTLED, History, Review
from advisor.reports import phrases
from advisor.reports.blocks import Number
from advisor.reports.finding_text import verify_text
from advisor.reports.review_blocks import in_order, suppression
from advisor.reports.workbook.evidence import Captures, Row
from advisor.reports.workbook.sheet import Area, Column, Link, Sheet
from advisor.reports.workbook.style import DATE, FILL_IN, FONT, GOOD, GOOD_BG, LEVELS, align, fill, put

#: Headers that `advisor review import` looks for.
CODE, CAUSE, FINDING, SEVERITY, SHARE = "Code", "Cause", "Finding", "Severity", "Share"
OWNER, DECISION, DUE, COMMENT = "Owner", "Decision", "Due", "Comment"
KEY, CAPTURE, SPEED, BASELINE, ACTION = "Key", "Capture file", "Speed-up", "Baseline", "Action"
NOTE = "Fill in the yellow columns; 'advisor review import' reads them back."

DECIDED = {
    "accept": (GOOD, GOOD_BG), "done": (GOOD, GOOD_BG), "reject": LEVELS["info"],
    "defer": LEVELS["medium"], "needs data": LEVELS["low"],
}  # fmt: skip
_NEW = {"new": ("7A1FA0", "F5E8FB")}


def speedup(finding: Finding) -> tuple[float | None, str]:
    """The speed-up of the fix, and its unit: times for a step, or for throughput."""
    gain = finding.gain
    if gain is None or gain.speedup is None:
        return None, "times"
    return gain.speedup.mid, "throughput" if gain.measure == "throughput" else "times"


#: Cells to fill in come early, visible without scrolling.
FIELDS = (
    Column("#", 4, "finding.rank", "id"), Column(SEVERITY, 10, "finding.severity"), Column(CODE, 9, "proof"),
    Column(CAUSE, 18, "finding.cause", wrap=True), Column(FINDING, 30, "finding.title", wrap=True),
    Column(SHARE, 9, "finding.share", "ratio"),
    *(Column(head, width, lambda _: None) for head, width in ((OWNER, 14), (DECISION, 12), (DUE, 11))),
    Column(COMMENT, 26, lambda _: None, wrap=True), Column("Actions", 10, "actions"),
    Column("Fix", 38, lambda r: next((a.action for a in r.finding.recommendations), None), wrap=True),
    Column(SPEED, 13, lambda r: Number(*speedup(r.finding))), Column(BASELINE, 10, "finding.baseline"),
    Column("What was measured", 46, "finding.message", wrap=True),
    Column("Where", 14, lambda r: phrases.scope(r.finding) or "whole capture", wrap=True),
    Column("ms a step", 9, lambda r: r.finding.impact and r.finding.impact.ms, "fixed"),
    Column("Confidence", 11, "finding.confidence", "ratio"), Column(KEY, 20, "finding.identity"),
    Column(CAPTURE, 20, "capture"),
)  # fmt: skip


def findings(
    sheet: Sheet, captures: Captures, rows: Sequence[Row], before: Review | History | None
) -> tuple[Area, dict[str, int]]:
    """The table, filled in with earlier decisions; returns its place and the column of each header."""
    marked = any(r.finding.baseline for r in rows)
    fields = [f for f in FIELDS if marked or f.head != BASELINE]
    area = captures.table(sheet, fields, _of(rows), filter=True, freeze=True, empty="nothing was found")
    at = {c.head: i for i, c in enumerate([*captures.column(), *fields], 1)}
    if rows:
        coloured(sheet, area.column(at[SEVERITY]), LEVELS)
        bars(sheet, area.column(at[SHARE]))
        if marked:
            coloured(sheet, area.column(at[BASELINE]), _NEW)
        to_fill_in(sheet, area, [at[h] for h in (OWNER, DECISION, DUE, COMMENT)], at[DUE], at[COMMENT])
        choose(sheet, area.column(at[DECISION]), DECISIONS, "Decision")
        coloured(sheet, area.column(at[DECISION]), DECIDED)
        due, decision = (f"${get_column_letter(at[h])}{area.first}" for h in (DUE, DECISION))
        settled = ",".join(f'{decision}<>"{word}"' for word in SETTLED)
        overdue = FormulaRule(
            formula=[f"AND(ISNUMBER({due}),{due}<TODAY(),{settled})"], font=_ink(LEVELS["high"][0])
        )
        sheet.ws.conditional_formatting.add(area.column(at[DUE]), overdue)
    for number, row in enumerate(rows, area.first):
        decided = before.of(row.finding.identity) if before is not None else None
        if decided is None:
            continue
        known = {OWNER: decided.owner, DECISION: decided.decision, COMMENT: decided.comment}
        for head, value in known.items():
            put(sheet.ws.cell(number, at[head]), value)
        if decided.due:
            sheet.ws.cell(number, at[DUE]).value = day_of(decided.due)
            sheet.ws.cell(number, at[DUE]).number_format = DATE
    sheet.page(large=True)
    sheet.hide(at[KEY], at[CAPTURE])
    return area, at


def _of(rows: Sequence[Row]) -> Callable[[Diagnosis], list[Row]]:
    """The findings of a capture."""
    return lambda d: [r for r in rows if r.diagnosis is d]


def day_of(text: str) -> date | str:
    try:
        return date.fromisoformat(text)
    except ValueError:
        return text


def to_fill_in(sheet: Sheet, area: Area, columns: Sequence[int], day: int = 0, wrapped: int = 0) -> None:
    """Yellow cells for people; the column `day` takes dates, if there is one."""
    for row in range(area.first, area.last + 1):
        for column in columns:
            cell = sheet.ws.cell(row, column)
            cell.fill = fill(FILL_IN)
            cell.alignment = align(wrap=column == wrapped, indent=1)
        if day:
            sheet.ws.cell(row, day).number_format = DATE
    if day:
        dates = DataValidation(
            "date", operator="greaterThan", formula1="36526", allow_blank=True, showErrorMessage=True,
            errorTitle="Date", error="Expected a date.",
        )  # fmt: skip
        sheet.ws.add_data_validation(dates)
        dates.add(area.column(day))


def choose(sheet: Sheet, cells: str, words: Sequence[str], title: str) -> None:
    """A drop-down list."""
    listed = DataValidation("list", f'"{",".join(words)}"', allow_blank=True, showErrorMessage=True)
    listed.errorTitle, listed.error = title, f"One of: {', '.join(words)}."
    sheet.ws.add_data_validation(listed)
    listed.add(cells)


def coloured(sheet: Sheet, cells: str, colours: Mapping[str, tuple[str, str]]) -> None:
    """Words (-> ink and ground) as conditional formats, so that they follow an edit."""
    for word, (ink, ground) in colours.items():
        rule = CellIsRule(operator="equal", formula=[f'"{word}"'], font=_ink(ink), fill=fill(ground))
        sheet.ws.conditional_formatting.add(cells, rule)


def _ink(color: str) -> Font:
    return Font(name=FONT, color=color, bold=True)


def bars(sheet: Sheet, cells: str) -> None:
    """Shares with a bar behind the number, from 0 to 100 %."""
    rule = DataBarRule("num", 0, "num", 1, "A9C7E8", minLength=0, maxLength=100)
    sheet.ws.conditional_formatting.add(cells, rule)


class _Advice(NamedTuple):
    """A recommendation of a finding."""

    row: Row
    advice: Advice
    first: bool

    @property
    def verify(self) -> Verify | None:
        return self.advice.verify


#: The first recommendation of a finding carries the estimated speed-up.
ADVICE = (
    Column("#", 5, "row.finding.rank", "id"), Column(SEVERITY, 10, "row.finding.severity"),
    Column(CODE, 10, "row.proof"), Column(ACTION, 52, "advice.action", wrap=True),
    Column(OWNER, 14, lambda _: None), Column(DECISION, 12, lambda _: None),
    Column("Option of the engine", 60, lambda a: "\n".join(map(_option, a.advice.options)), wrap=True),
    Column("Effort", 9, "advice.effort"),
    Column(SHARE, 9, "row.finding.share", "ratio"),
    Column(SPEED, 13, lambda a: Number(*speedup(a.row.finding)) if a.first else None),
    Column("Verify: fact", 26, lambda a: a.verify and a.verify.fact, wrap=True),
    Column("must", 10, lambda a: a.verify and verify_text(a.verify).split(" ")[1].rstrip(",")),
    Column("now", 12, lambda a: a.verify and Number(a.verify.now, fact_unit(a.verify.fact, a.verify.unit))),
    Column(KEY, 20, lambda a: f"{a.row.finding.identity}#{a.advice.id}"),
)  # fmt: skip


def recommendations(
    sheet: Sheet, captures: Captures, rows: Sequence[Row], before: Review | History | None
) -> dict[tuple[str, str], str]:
    """One row a recommendation with its option, how to verify it, and room for a decision; returns the cell
    of the first of each finding, by capture and finding."""
    of = _of(rows)
    listed: list[_Advice] = []

    def advice(d: Diagnosis) -> list[_Advice]:
        found = [_Advice(r, a, i == 0) for r in of(d) for i, a in enumerate(r.finding.recommendations)]
        listed.extend(found)
        return found

    area = captures.table(sheet, ADVICE, advice, filter=True, freeze=True, empty="nothing to recommend")
    at = {c.head: i for i, c in enumerate([*captures.column(), *ADVICE], 1)}
    coloured(sheet, area.column(at[SEVERITY]), LEVELS)
    bars(sheet, area.column(at[SHARE]))
    sheet.hide(at[KEY])
    if not listed:
        return {}
    to_fill_in(sheet, area, [at[OWNER], at[DECISION]])
    choose(sheet, area.column(at[DECISION]), DECISIONS, "Decision")
    coloured(sheet, area.column(at[DECISION]), DECIDED)
    cells: dict[tuple[str, str], str] = {}
    for number, each in enumerate(listed, area.first):
        cells.setdefault((each.row.label, each.row.finding.identity), f"A{number}")
        decided = before.of(each.row.finding.identity) if before is not None else None
        for choice in decided.recommendations if decided is not None else ():
            if choice.advice == each.advice.id:
                put(sheet.ws.cell(number, at[OWNER]), choice.owner)
                put(sheet.ws.cell(number, at[DECISION]), choice.decision)
    return cells


def _option(option: Option) -> str:
    name = "" if option.engine == "any" else f"{option.engine}: "
    return f"{name}{option.line}{f' (since {option.since})' if option.since else ''}"


#: Name of the sheet, and headers that `advisor review import` looks for.
SINCE, STATE, DUE_ON, LAST_SHARE = "Since the last review", "State", "Due on", "Share before"
_STATES = {
    "new": LEVELS["medium"], "worse": LEVELS["high"], "better": (GOOD, GOOD_BG), "closed": (GOOD, GOOD_BG),
    "overdue": LEVELS["high"],
}  # fmt: skip


def since_review(sheet: Sheet, history: History, day: str) -> None:
    """A row a finding with its state and its decision; today's findings link to their own sheet."""
    fields = (
        Column(STATE, 10, "state"), Column("Due", 11, lambda t: "overdue" if t.overdue(day) else None),
        Column(SEVERITY, 10, "severity"),
        Column(CODE, 9, lambda t: t.code if t.state == "closed" else Link(t.code, sheet="Findings")),
        Column(CAUSE, 20, "cause", wrap=True), Column(FINDING, 34, "title", wrap=True),
        Column(LAST_SHARE, 10, lambda t: t.share if t.state == "closed" else t.was, "ratio"),
        Column(SHARE, 9, lambda t: None if t.state == "closed" else t.share, "ratio"),
        Column(DECISION, 12, "decision"),
        Column("Was decided", 18, lambda t: f"{t.reopened} (open again)" if t.reopened else None, wrap=True),
        Column(OWNER, 14, "owner"),
        Column(DUE_ON, 11, lambda t: day_of(t.due) if t.due else None),
        Column(COMMENT, 26, "comment", wrap=True),
        Column("Suppressed", 24, lambda t: suppression(t, day) or None, wrap=True),
        Column("Seen since", 11, "since"), Column(KEY, 20, "finding"),
    )  # fmt: skip
    for meeting in history.meetings[-2:-1] or history.meetings:
        names = ", ".join(meeting.names) or "not noted"
        met = f"Last review: {meeting.day or 'day not noted'}; present: {names}; {meeting.capture}"
        sheet.text(1, met, down=2)
    listed = in_order(history, day)
    area = sheet.records(fields, listed, filter=True, freeze=True, empty="there were no findings")
    at = {f.head: i for i, f in enumerate(fields, 1)}
    for head, colours in ((STATE, _STATES), ("Due", _STATES), (SEVERITY, LEVELS), (DECISION, DECIDED)):
        coloured(sheet, area.column(at[head]), colours)
    for row in range(area.first, area.last + 1):
        sheet.ws.cell(row, at[DUE_ON]).number_format = DATE
    sheet.hide(at[KEY])
    sheet.page(large=True)
