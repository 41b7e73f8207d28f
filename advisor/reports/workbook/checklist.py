"""The checklist as a sheet, with room to answer and to sign."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from openpyxl.styles import Font
from openpyxl.utils import get_column_letter

from advisor.model.review import ANSWERS, AUTOMATIC, WORDS, CheckEntry, Checklist, Review, SignOff, Stage
from advisor.reports.workbook.findings import choose, coloured, to_fill_in
from advisor.reports.workbook.sheet import Area, Sheet, field
from advisor.reports.workbook.style import FONT, GOOD, GOOD_BG, LEVELS

#: Headers that `advisor review import` looks for.
QUESTION, ANSWER, NOTE, SIGNED, DAY, ID, MEASURED = (
    "Question", "Answer", "Note", "Signed by", "Date", "Id", "Measured",
)  # fmt: skip
HINT = "Answer what is open, sign what you checked; 'advisor review import' reads it back."
_COLOURS = {
    "yes": (GOOD, GOOD_BG), "no": LEVELS["high"], "not applicable": LEVELS["info"],
    "later": LEVELS["medium"],
}  # fmt: skip


#: Columns of an entry with its number, the listed stages, and what an earlier review says of it.
FIELDS = (
    field("Stage", 17, lambda e: e.stages[e.entry.stage]), field("#", 5, "number", "id"),
    field(QUESTION, 50, "entry.question", wrap=True), field(ANSWER, 14, "answer"),
    field("What the capture says", 40, lambda e: _measured(e.entry), wrap=True),
    field(NOTE, 26, "note", wrap=True), field(SIGNED, 14, "signed"), field(DAY, 11, lambda _: None),
    field("Why", 42, "entry.why", wrap=True), field("How to check", 42, "entry.how", wrap=True),
    field("Command", 36, "entry.command", wrap=True), field(ID, 20, "entry.id"),
    field(MEASURED, 12, lambda e: WORDS[e.entry.measured] if e.entry.measured else None),
)  # fmt: skip


class _Entry(NamedTuple):
    number: int
    entry: CheckEntry
    stages: Mapping[Stage, str]
    before: SignOff | None

    @property
    def answer(self) -> str | None:
        given = self.entry.answer or (self.before and self.before.answer)
        return WORDS.get(given) if given else None

    @property
    def signed(self) -> str | None:
        """Nobody has looked at what the capture answered."""
        return AUTOMATIC if self.entry.by == "capture" else None

    @property
    def note(self) -> str | None:
        return self.entry.note or (self.before.note if self.before else None)


def checklist(sheet: Sheet, listed: Checklist, review: Review | None) -> tuple[Area, int]:
    """The questions by stage; returns the table and the column of the answers."""
    before = {s.id: s for s in review.checklist} if review is not None else {}
    entries = [_Entry(i, e, listed.stages, before.get(e.id)) for i, e in enumerate(listed.entries, 1)]
    area = sheet.records(FIELDS, entries, filter=True, freeze=True)
    at = {f.head: i for i, f in enumerate(FIELDS, 1)}
    sheet.page(large=True)
    to_fill_in(sheet, area, [at[h] for h in (ANSWER, NOTE, SIGNED, DAY)], at[DAY], at[NOTE])
    choose(sheet, area.column(at[ANSWER]), [WORDS[a] for a in ANSWERS], "Answer")
    coloured(sheet, area.column(at[ANSWER]), _COLOURS)
    for head in (ID, MEASURED):
        sheet.ws.column_dimensions[get_column_letter(at[head])].hidden = True
    _stages(sheet, area, listed)
    return area, at[ANSWER]


def _measured(entry: CheckEntry) -> str | None:
    if entry.by == "person" and entry.measured not in (None, entry.answer):
        return f"{WORDS[entry.measured or 'yes']}: {entry.proof}"
    return entry.proof or None


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
