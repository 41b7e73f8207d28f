"""What has become of findings since the last review, as the sheet with which a workbook opens."""

from __future__ import annotations

from openpyxl.utils import get_column_letter

from advisor.model.review import History, Tracked
from advisor.reports.review import in_order, suppression
from advisor.reports.workbook.findings import (
    CAUSE,
    CODE,
    COMMENT,
    DECIDED,
    DECISION,
    FINDING,
    KEY,
    OWNER,
    SEVERITY,
    SHARE,
    coloured,
    day_of,
)
from advisor.reports.workbook.sheet import Link, Sheet, field
from advisor.reports.workbook.style import DATE, GOOD, GOOD_BG, LEVELS

#: Name of the sheet, and headers that `advisor review import` looks for.
SINCE, STATE, DUE_ON, LAST_SHARE = "Since the last review", "State", "Due on", "Share before"
_STATES = {
    "new": LEVELS["medium"], "worse": LEVELS["high"], "better": (GOOD, GOOD_BG), "closed": (GOOD, GOOD_BG),
    "overdue": LEVELS["high"],
}  # fmt: skip


def _was(tracked: Tracked) -> str | None:
    return f"{tracked.reopened} (open again)" if tracked.reopened else None


def since_review(sheet: Sheet, history: History, day: str) -> None:
    """A row a finding with its state and what was decided about it; those of today are decided anew on
    the sheet of findings, to which they lead."""
    fields = (
        field(STATE, 10, "state"), field("Due", 11, lambda t: "overdue" if t.overdue(day) else None),
        field(SEVERITY, 10, "severity"),
        field(CODE, 9, lambda t: t.code if t.state == "closed" else Link(t.code, sheet="Findings")),
        field(CAUSE, 20, "cause", wrap=True), field(FINDING, 34, "title", wrap=True),
        field(LAST_SHARE, 10, lambda t: t.share if t.state == "closed" else t.was, "ratio"),
        field(SHARE, 9, lambda t: None if t.state == "closed" else t.share, "ratio"),
        field(DECISION, 12, "decision"), field("Was decided", 18, _was, wrap=True), field(OWNER, 14, "owner"),
        field(DUE_ON, 11, lambda t: day_of(t.due) if t.due else None),
        field(COMMENT, 26, "comment", wrap=True),
        field("Suppressed", 24, lambda t: suppression(t, day) or None, wrap=True),
        field("Seen since", 11, "since"), field(KEY, 20, "finding"),
    )  # fmt: skip
    met = history.meetings[-2:-1] or history.meetings
    for meeting in met:
        names = ", ".join(meeting.names) or "not noted"
        sheet.text(1, f"Last review: {meeting.day or 'day not noted'}; present: {names}; {meeting.capture}")
        sheet.row += 2
    area = sheet.records(
        fields, in_order(history, day), filter=True, freeze=True, empty="there were no findings"
    )
    at = {f.head: i for i, f in enumerate(fields, 1)}
    for head, colours in ((STATE, _STATES), ("Due", _STATES), (SEVERITY, LEVELS), (DECISION, DECIDED)):
        coloured(sheet, area.column(at[head]), colours)
    for row in range(area.first, area.last + 1):
        sheet.ws.cell(row, at[DUE_ON]).number_format = DATE
    sheet.ws.column_dimensions[get_column_letter(at[KEY])].hidden = True
    sheet.page(large=True)
