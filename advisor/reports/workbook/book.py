"""The review workbook: one file that people who did not run the tool can read, sort and sign.

Nothing is in it that is not in the documents it is made from. Text from a capture stays text.
Ten sheets at most: Summary, Findings and Checklist are designed, the others declared as tables.
"""

from __future__ import annotations

from collections.abc import Sequence

from openpyxl import Workbook

from advisor.model.checklist import Checklist
from advisor.model.findings import Diagnosis
from advisor.model.review import Review
from advisor.reports.workbook import checklist as workbook_checklist
from advisor.reports.workbook import tables
from advisor.reports.workbook.captures import captures_of, rows_of
from advisor.reports.workbook.compare import comparison
from advisor.reports.workbook.evidence import evidence
from advisor.reports.workbook.findings import DECISION, KEY, NOTE, findings, recommendations
from advisor.reports.workbook.package import package
from advisor.reports.workbook.sheet import Sheet
from advisor.reports.workbook.summary import Tally, summary

#: Sheets of diagnoses, in order: the note below the title, and the colour of the tab.
SHEETS = {
    "Comparison": ("", "1F3A57"),
    "Findings": (NOTE, "A81C12"),
    "Recommendations": ("", None),
    "Checklist": (workbook_checklist.HINT, "B8860B"),
    "Evidence": ("what each finding rests on", None),
    "Kernels": ("share of kernel time, in the window", None),
    "Steps": ("", None),
    "Rules": ("each rule that fired, is in order, or could not be judged, with the reason", None),
    "Facts": ("what the rules compare", None),
    "Thresholds": ("changed ones stand out; Measured is what was compared with them", None),
}


def render(
    diagnoses: Sequence[Diagnosis],
    many: bool = False,  # noqa: ARG001
    checklist: Checklist | None = None,
    review: Review | None = None,
) -> bytes:
    """The workbook of these diagnoses; `review` fills in what was decided before."""
    book = Workbook()
    captures = captures_of(diagnoses)
    first = book.active
    assert first is not None
    first.title = "Summary"
    first.sheet_properties.tabColor = "1F3A57"
    made: dict[str, Sheet] = {}
    for name, (note, color) in SHEETS.items():
        # The steps of several captures stand below their comparison.
        wanted = {"Steps": len(diagnoses) == 1, "Comparison": captures.many, "Checklist": bool(checklist)}
        if wanted.get(name, bool(diagnoses)):
            made[name] = Sheet(book.create_sheet(name), name, note)
            made[name].ws.sheet_properties.tabColor = color
    cells: dict[str, str] = {}
    rows = rows_of(captures, cells)
    tally: dict[str, str] = {}
    if diagnoses:
        cells |= evidence(made["Evidence"], rows, captures.many)
        area, at = findings(made["Findings"], captures, rows, review)
        for name, head in (("decisions", DECISION), ("keys", KEY)):
            tally[name] = f"Findings!{area.column(at[head], absolute=True)}"
        recommendations(made["Recommendations"], captures, rows)
        tables.kernels(made["Kernels"], captures)
        if captures.many:
            comparison(made["Comparison"], captures)
        tables.steps(made["Comparison" if captures.many else "Steps"], captures)
        tables.rules(made["Rules"], captures)
        tables.facts(made["Facts"], captures)
        tables.thresholds(made["Thresholds"], captures)
    if checklist is not None:
        area, column = workbook_checklist.checklist(made["Checklist"], checklist, review)
        tally["answers"] = f"Checklist!{area.column(column, absolute=True)}"
    summary(first, captures, rows, Tally(**tally))
    return package(book)
