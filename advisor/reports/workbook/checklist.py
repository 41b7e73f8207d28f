"""The checklist as a sheet, with room to answer and to sign."""

from __future__ import annotations

from typing import Any

from openpyxl.formatting.rule import CellIsRule
from openpyxl.styles import Font
from openpyxl.utils import get_column_letter
from openpyxl.worksheet.datavalidation import DataValidation

from advisor.model.checklist import ANSWERS, WORDS, CheckEntry, Checklist
from advisor.model.review import Review
from advisor.reports.workbook.findings import choose
from advisor.reports.workbook.sheet import Area, Column, Sheet
from advisor.reports.workbook.style import DATE, FILL_IN, FONT, GOOD, GOOD_BG, LEVELS, align, fill

#: Heads that `advisor review import` looks for.
QUESTION, ANSWER, NOTE, SIGNED, DAY, ID, MEASURED = (
    "Question", "Answer", "Note", "Signed by", "Date", "Id", "Measured",
)  # fmt: skip
HINT = "Answer what is open, sign what you checked; 'advisor review import' reads it back."
_COLOURS = {
    "yes": (GOOD, GOOD_BG), "no": LEVELS["high"], "not applicable": LEVELS["info"],
    "later": LEVELS["medium"],
}  # fmt: skip


def checklist(sheet: Sheet, listed: Checklist, review: Review | None) -> tuple[Area, int]:
    """The questions by stage; returns the table and the column of the answers."""
    columns = [
        Column("Stage", 17),
        Column("#", 5, "id"),
        Column(QUESTION, 50, wrap=True),
        Column(ANSWER, 14),
        Column("What the capture says", 40, wrap=True),
        Column(NOTE, 26, wrap=True),
        Column(SIGNED, 14),
        Column(DAY, 11),
        Column("Why", 42, wrap=True),
        Column("How to check", 42, wrap=True),
        Column("Command", 36, wrap=True),
        Column(ID, 20),
        Column(MEASURED, 12),
    ]
    before = {s.id: s for s in review.checklist} if review is not None else {}
    rows: list[list[Any]] = []
    for number, entry in enumerate(listed.entries, 1):
        signed = before.get(entry.id)
        answer = WORDS[entry.answer] if entry.answer else None
        if signed is not None and answer is None:
            answer = WORDS.get(signed.answer)
        rows.append(
            [
                listed.stages[entry.stage],
                number,
                entry.question,
                answer,
                _measured(entry),
                entry.note or (signed.note if signed else None),
                None,
                None,
                entry.why,
                entry.how,
                entry.command,
                entry.id,
                WORDS[entry.measured] if entry.measured else None,
            ]
        )
    at = {c.head: i for i, c in enumerate(columns, 1)}
    area = sheet.table(columns, rows, filter=True, freeze=True)
    sheet.page(large=True)
    _fill_in(sheet, area, at)
    for head in (ID, MEASURED):
        sheet.ws.column_dimensions[get_column_letter(at[head])].hidden = True
    _stages(sheet, area, listed)
    return area, at[ANSWER]


def _measured(entry: CheckEntry) -> str | None:
    if entry.by == "person" and entry.measured not in (None, entry.answer):
        return f"{WORDS[entry.measured or 'yes']}: {entry.proof}"
    return entry.proof or None


def _fill_in(sheet: Sheet, area: Area, at: dict[str, int]) -> None:
    ws = sheet.ws
    for row in range(area.first, area.last + 1):
        for head in (ANSWER, NOTE, SIGNED, DAY):
            cell = ws.cell(row, at[head])
            cell.fill = fill(FILL_IN)
            cell.alignment = align(wrap=head == NOTE, indent=1)
        ws.cell(row, at[DAY]).number_format = DATE
    choose(sheet, area.column(at[ANSWER]), [WORDS[a] for a in ANSWERS], "Answer")
    day = DataValidation(
        type="date",
        operator="greaterThan",
        formula1="36526",
        allow_blank=True,
        errorTitle="Date",
        error="A date, please.",
        showErrorMessage=True,
    )
    ws.add_data_validation(day)
    day.add(area.column(at[DAY]))
    for word, (ink, ground) in _COLOURS.items():
        rule = CellIsRule(
            operator="equal",
            formula=[f'"{word}"'],
            font=Font(name=FONT, color=ink, bold=True),
            fill=fill(ground),
        )
        ws.conditional_formatting.add(area.column(at[ANSWER]), rule)


def _stages(sheet: Sheet, area: Area, listed: Checklist) -> None:
    """The name of a stage stands out where it begins."""
    stages = [e.stage for e in listed.entries]
    for i, row in enumerate(range(area.first, area.last + 1)):
        first = i == 0 or stages[i] != stages[i - 1]
        cell = sheet.ws.cell(row, 1)
        cell.font = Font(name=FONT, size=10.5, bold=first, color="1C2127" if first else "9AA4AE")


def signed(text: str) -> str:
    """An answer as the checklist knows it: ``not applicable`` is ``not_applicable``."""
    plain = text.strip().lower()
    return next((a for a, word in WORDS.items() if plain in (a, word)), "")
