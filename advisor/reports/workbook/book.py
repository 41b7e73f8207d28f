"""The review workbook: one file that people who did not run the tool can read, sort and sign.

Nothing is in it that is not in the documents it is made from. Text from a capture stays text.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from openpyxl import Workbook

from advisor.model.checklist import Checklist
from advisor.model.findings import Diagnosis
from advisor.model.review import Review
from advisor.reports.workbook import checklist as workbook_checklist
from advisor.reports.workbook import compare as workbook_compare
from advisor.reports.workbook import evidence as workbook_evidence
from advisor.reports.workbook import findings as workbook_findings
from advisor.reports.workbook import summary as workbook_summary
from advisor.reports.workbook import tables as workbook_tables
from advisor.reports.workbook.captures import Captures, Row, captures_of, rows_of
from advisor.reports.workbook.package import Names, package
from advisor.reports.workbook.sheet import Sheet
from advisor.reports.workbook.summary import Tally


def render(
    diagnoses: Sequence[Diagnosis],
    many: bool = False,  # noqa: ARG001
    checklist: Checklist | None = None,
    review: Review | None = None,
) -> bytes:
    """The workbook of these diagnoses; `review` fills in what was decided before."""
    book = Workbook()
    names = Names()
    captures = captures_of(diagnoses)
    rows = rows_of(captures)
    evidence = {c: names.take(f"Evidence-{c}") for c in dict.fromkeys(r.finding.code for r in rows)}
    first = book.active
    assert first is not None
    first.title = names.take("Summary")
    tally: dict[str, str] = {}
    sheets: dict[str, str] = {}

    def sheet(name: str, note: str = "", color: str | None = None) -> Sheet:
        made = Sheet(book.create_sheet(names.take(name)), name, note)
        made.ws.sheet_properties.tabColor = color
        return made

    if captures.many:
        workbook_compare.comparison(sheet("Comparison", color="1F3A57"), captures)
    if diagnoses:
        _findings(sheet, captures, rows, evidence, review, tally, sheets)
        workbook_findings.recommendations(sheet("Recommendations"), captures, rows, evidence)
    if checklist is not None:
        made = sheet("Checklist", workbook_checklist.HINT, "B8860B")
        area, column = workbook_checklist.checklist(made, checklist, review)
        tally["answers"] = f"Checklist!{area.column(column, absolute=True)}"
        sheets["checklist"] = "Checklist"
    if diagnoses:
        _tables(book, sheet, captures, rows, evidence)
    workbook_tables.about(sheet("About"), captures)
    workbook_summary.summary(first, captures, rows, evidence, Tally(**tally), sheets)
    first.sheet_properties.tabColor = "1F3A57"
    return package(book)


class _Make(Protocol):
    """Makes a sheet."""

    def __call__(self, name: str, note: str = "", color: str | None = None) -> Sheet: ...


def _findings(
    sheet: _Make,
    captures: Captures,
    rows: Sequence[Row],
    evidence: dict[str, str],
    review: Review | None,
    tally: dict[str, str],
    sheets: dict[str, str],
) -> None:
    made = sheet("Findings", workbook_findings.NOTE, "A81C12")
    area, at = workbook_findings.findings(made, captures, rows, evidence, review)
    decisions = area.column(at[workbook_findings.DECISION], absolute=True)
    keys = area.column(at[workbook_findings.KEY], absolute=True)
    tally["decisions"], tally["keys"] = f"Findings!{decisions}", f"Findings!{keys}"
    sheets["findings"] = "Findings"


def _tables(
    book: Workbook, sheet: _Make, captures: Captures, rows: Sequence[Row], evidence: dict[str, str]
) -> None:
    workbook_tables.kernels(sheet("Kernels", "share of kernel time, in the window"), captures)
    workbook_tables.steps(sheet("Steps"), captures)
    for code, name in evidence.items():
        of = [r for r in rows if r.finding.code == code]
        made = Sheet(book.create_sheet(name), f"{code} {of[0].finding.cause}")
        workbook_evidence.evidence(made, of, captures.many)
    workbook_tables.facts(sheet("Facts", "what the rules saw"), captures)
    note = "changed ones stand out; Measured is what was held against them"
    workbook_tables.thresholds(sheet("Thresholds", note), captures)
    note = "silence is not health: these rules could not look"
    workbook_tables.not_evaluated(sheet("Not evaluated", note), captures)
    workbook_tables.in_order(sheet("In order", "looked at and found well"), captures)
    if any(k not in workbook_tables.OWN for d in captures.diagnoses for k in d.tables):
        workbook_tables.other_tables(sheet("Other tables"), captures)
