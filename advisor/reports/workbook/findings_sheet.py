"""Findings with room for decisions, their recommendations, and what became of them since the last review."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import date
from typing import NamedTuple

from openpyxl.formatting.rule import FormulaRule
from openpyxl.utils import get_column_letter

from advisor.model.findings import Diagnosis, Finding
from advisor.model.gain import Advice, Option, Verify
from advisor.model.numbers import fact_unit
from advisor.model.review import DECISIONS, SETTLED, History, Review
from advisor.reports import phrases
from advisor.reports.blocks import Number
from advisor.reports.finding_text import verify_text
from advisor.reports.review_blocks import in_order, suppression
from advisor.reports.workbook.evidence import Captures, Row
from advisor.reports.workbook.sheet import LAST, Area, Column, Link, Sheet
from advisor.reports.workbook.style import DATE, GOOD, GOOD_BG, LEVELS, ink, put

#: Headers that `advisor review import` looks for.
CODE, CAUSE, FINDING, SEVERITY, SHARE = "Code", "Cause", "Finding", "Severity", "Share"
OWNER, DECISION, DUE, COMMENT = "Owner", "Decision", "Due", "Comment"
KEY, CAPTURE, SPEED, BASELINE, ACTION = "Key", "Capture file", "Speed-up", "Baseline", "Action"
STEP_MS = "traced ms a step"
NOTE = "Fill in the yellow columns; 'advisor review import' reads them back."

#: The line for the meeting on the sheet Summary: labels that `advisor review import` looks for, and where
#: to fill in.
NAMES, MET = "Present", "Date of the review"
MEETING = {MET: (4, 5), NAMES: (8, LAST)}

DECIDED = {
    "accept": (GOOD, GOOD_BG),
    "done": (GOOD, GOOD_BG),
    "reject": LEVELS["info"],
    "defer": LEVELS["medium"],
    "needs data": LEVELS["low"],
}
_NEW = {"new": ("7A1FA0", "F5E8FB")}


def speedup(finding: Finding) -> tuple[float | None, str]:
    """The speed-up of the fix, and its unit: times for a step, or for throughput."""
    gain = finding.gain
    if gain is None or gain.speedup is None:
        return None, "times"
    return gain.speedup.mid, "throughput" if gain.measure == "throughput" else "times"


#: Cells to fill in come early, visible without scrolling.
FIELDS = (
    Column("#", 4, "finding.rank", "id"),
    Column(SEVERITY, 10, "finding.severity"),
    Column(CODE, 9, "proof"),
    Column(CAUSE, 18, "finding.cause", wrap=True),
    Column(FINDING, 30, "finding.title", wrap=True),
    Column(SHARE, 9, "finding.share", "ratio"),
    *(Column(head, width, lambda _: None) for head, width in ((OWNER, 14), (DECISION, 12), (DUE, 11))),
    Column(COMMENT, 26, lambda _: None, wrap=True),
    Column("Actions", 10, "actions"),
    Column("Fix", 38, "fix", wrap=True),
    Column(SPEED, 13, lambda r: Number(*speedup(r.finding))),
    Column(BASELINE, 10, "finding.baseline"),
    Column("What was measured", 46, "finding.message", wrap=True),
    Column("Where", 14, lambda r: phrases.scope(r.finding) or "whole capture", wrap=True),
    Column(
        STEP_MS, 11, lambda r: r.finding.impact and r.finding.impact.step_ms(bool(r.diagnosis.steps)), "fixed"
    ),
    Column("Confidence", 11, "finding.confidence", "ratio"),
    Column(KEY, 20, "finding.identity"),
    Column(CAPTURE, 20, "capture"),
)


def findings(sheet: Sheet, captures: Captures, rows: Sequence[Row], before: Review | History | None) -> Area:
    """The table, filled in with earlier decisions."""
    marked = any(r.finding.baseline for r in rows)
    fields = [f for f in FIELDS if marked or f.head != BASELINE]
    area = captures.table(sheet, fields, _of(rows), filter=True, freeze=True, empty="nothing was found")
    if rows:
        area.coloured(SEVERITY, LEVELS)
        area.bars(SHARE)
        if marked:
            area.coloured(BASELINE, _NEW)
        area.to_fill_in(OWNER, DECISION, DUE, COMMENT, day=DUE, wrapped=COMMENT)
        area.choose(DECISION, DECISIONS)
        area.coloured(DECISION, DECIDED)
        due, decision = (f"${get_column_letter(area.at[h])}{area.first}" for h in (DUE, DECISION))
        settled = ",".join(f'{decision}<>"{word}"' for word in SETTLED)
        overdue = f"AND(ISNUMBER({due}),{due}<TODAY(),{settled})"
        rule = FormulaRule(formula=[overdue], font=ink(LEVELS["high"][0]))
        sheet.ws.conditional_formatting.add(area.column(DUE), rule)
    for number, row in enumerate(rows, area.first):
        decided = before.of(row.finding.identity) if before is not None else None
        if decided is None:
            continue
        known = {OWNER: decided.owner, DECISION: decided.decision, COMMENT: decided.comment}
        for head, value in known.items():
            put(area.cell(number, head), value)
        if decided.due:
            area.cell(number, DUE).value = day_of(decided.due)
            area.cell(number, DUE).number_format = DATE
    sheet.page(large=True)
    sheet.hide(area.at[KEY], area.at[CAPTURE])
    return area


def _of(rows: Sequence[Row]) -> Callable[[Diagnosis], list[Row]]:
    """The findings of a capture."""
    return lambda d: [r for r in rows if r.diagnosis is d]


def day_of(text: str) -> date | str:
    try:
        return date.fromisoformat(text)
    except ValueError:
        return text


class _Advice(NamedTuple):
    """A recommendation of a finding; the first one carries the estimated speed-up."""

    row: Row
    advice: Advice
    first: bool

    @property
    def verify(self) -> Verify | None:
        return self.advice.verify


ADVICE = (
    Column("#", 5, "row.finding.rank", "id"),
    Column(SEVERITY, 10, "row.finding.severity"),
    Column(CODE, 10, "row.proof"),
    Column(ACTION, 52, "advice.action", wrap=True),
    Column(OWNER, 14, lambda _: None),
    Column(DECISION, 12, lambda _: None),
    Column("Option of the engine", 60, lambda a: "\n".join(map(_option, a.advice.options)), wrap=True),
    Column("Effort", 9, "advice.effort"),
    Column(SHARE, 9, "row.finding.share", "ratio"),
    Column(SPEED, 13, lambda a: Number(*speedup(a.row.finding)) if a.first else None),
    Column("Verify: fact", 26, lambda a: a.verify and a.verify.fact, wrap=True),
    Column("must", 10, lambda a: a.verify and verify_text(a.verify).split(" ")[1].rstrip(",")),
    Column("now", 12, lambda a: a.verify and Number(a.verify.now, fact_unit(a.verify.fact, a.verify.unit))),
    Column(KEY, 20, lambda a: f"{a.row.finding.identity}#{a.advice.id}"),
)


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
    area.coloured(SEVERITY, LEVELS)
    area.bars(SHARE)
    sheet.hide(area.at[KEY])
    if not listed:
        return {}
    area.to_fill_in(OWNER, DECISION)
    area.choose(DECISION, DECISIONS)
    area.coloured(DECISION, DECIDED)
    cells: dict[tuple[str, str], str] = {}
    for number, each in enumerate(listed, area.first):
        cells.setdefault((each.row.label, each.row.finding.identity), f"A{number}")
        decided = before.of(each.row.finding.identity) if before is not None else None
        for choice in decided.recommendations if decided is not None else ():
            if choice.advice == each.advice.id:
                put(area.cell(number, OWNER), choice.owner)
                put(area.cell(number, DECISION), choice.decision)
    return cells


def _option(option: Option) -> str:
    name = "" if option.engine == "any" else f"{option.engine}: "
    return name + option.line + (f" (since {option.since})" if option.since else "")


#: Name of the sheet, and headers that `advisor review import` looks for.
SINCE, STATE, DUE_ON, LAST_SHARE = "Since the last review", "State", "Due on", "Share before"
_STATES = {
    "new": LEVELS["medium"],
    "worse": LEVELS["high"],
    "better": (GOOD, GOOD_BG),
    "closed": (GOOD, GOOD_BG),
    "overdue": LEVELS["high"],
}


def since_review(sheet: Sheet, history: History, day: str) -> None:
    """A row a finding with its state and its decision; today's findings link to their own sheet."""
    fields = (
        Column(STATE, 10, "state"),
        Column("Due", 11, lambda t: "overdue" if t.overdue(day) else None),
        Column(SEVERITY, 10, "severity"),
        Column(CODE, 9, lambda t: t.code if t.state == "closed" else Link(t.code, sheet="Findings")),
        Column(CAUSE, 20, "cause", wrap=True),
        Column(FINDING, 34, "title", wrap=True),
        Column(LAST_SHARE, 10, lambda t: t.share if t.state == "closed" else t.was, "ratio"),
        Column(SHARE, 9, lambda t: None if t.state == "closed" else t.share, "ratio"),
        Column(DECISION, 12, "decision"),
        Column("Was decided", 18, lambda t: f"{t.reopened} (open again)" if t.reopened else None, wrap=True),
        Column(OWNER, 14, "owner"),
        Column(DUE_ON, 11, lambda t: day_of(t.due) if t.due else None),
        Column(COMMENT, 26, "comment", wrap=True),
        Column("Suppressed", 24, lambda t: suppression(t, day) or None, wrap=True),
        Column("Seen since", 11, "since"),
        Column(KEY, 20, "finding"),
    )
    for meeting in history.meetings[-2:-1] or history.meetings:
        names = ", ".join(meeting.names) or "not noted"
        met = f"Last review: {meeting.day or 'day not noted'}; present: {names}; {meeting.capture}"
        sheet.text(1, met, down=2)
    listed = in_order(history, day)
    area = sheet.records(fields, listed, filter=True, freeze=True, empty="there were no findings")
    for head, colours in ((STATE, _STATES), ("Due", _STATES), (SEVERITY, LEVELS), (DECISION, DECIDED)):
        area.coloured(head, colours)
    for row in range(area.first, area.last + 1):
        area.cell(row, DUE_ON).number_format = DATE
    sheet.hide(area.at[KEY])
    sheet.page(large=True)
