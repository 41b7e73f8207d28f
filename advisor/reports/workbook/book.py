"""The review workbook: one file that people who did not run the tool can read, sort and sign.

It contains nothing but the contents of its documents. Text from a capture stays text. Ten sheets at most:
Summary, Findings and Checklist are designed, the others declared as tables.
"""

from __future__ import annotations

import gc
import io
import re
import sys
import tempfile
import zipfile
from collections.abc import Sequence
from datetime import datetime

from openpyxl import Workbook

from advisor.errors import InputError
from advisor.model.findings import Diagnosis
from advisor.model.review import Checklist, History, Review
from advisor.reports.header import CAPTION
from advisor.reports.review_blocks import sentence as history_sentence
from advisor.reports.workbook import findings_sheet as decided
from advisor.reports.workbook import review_sheet as answers
from advisor.reports.workbook import table_sheets
from advisor.reports.workbook.evidence import Captures, evidence, rows_of
from advisor.reports.workbook.sheet import Sheet, shown
from advisor.reports.workbook.summary_sheet import Tally, summary

#: Sheets of diagnoses, in order: the note below the title, and the colour of the tab.
SHEETS = {
    "Comparison": ("", "1F3A57"),
    "Ranks": (CAPTION, "1F3A57"),
    "Findings": (decided.NOTE, "A81C12"),
    "Recommendations": ("", None),
    "Checklist": (answers.HINT, "B8860B"),
    "Evidence": ("what each finding rests on", None),
    "Kernels": ("share of kernel time, in the window", None),
    "Steps": ("", None),
    "Rules": ("each rule that fired, is in order, or could not be judged, with the reason", None),
    "Facts": ("what the rules compare", None),
    "Thresholds": ("changed ones stand out; Measured is what was compared with them", None),
}


def render(
    diagnoses: Sequence[Diagnosis],
    checklist: Checklist | None = None,
    review: Review | None = None,
    since: History | None = None,
    day: str = "",
) -> bytes:
    """The workbook of these diagnoses; `review` fills in earlier answers and decisions. With `since`,
    what became of findings until the last of them, it begins with that; `day` says which of them are
    overdue."""
    book = Workbook()
    captures = Captures(tuple(diagnoses))
    first = book.active
    assert first is not None
    first.title = "Summary"
    first.sheet_properties.tabColor = "1F3A57"
    made: dict[str, Sheet] = {}
    ranks = len(diagnoses) == 1 and "ranks" in diagnoses[0].tables
    if since is not None:
        tracked = book.create_sheet(decided.SINCE, 0)
        tracked.sheet_properties.tabColor = "7A1FA0"
        decided.since_review(Sheet(tracked, tracked.title, history_sentence(since, day)), since, day)
        book.active = 0
    for name, (note, color) in SHEETS.items():
        # Ten sheets at most: steps stand below a comparison or ranks, thresholds below the rules.
        wanted = {
            "Ranks": ranks,
            "Steps": len(diagnoses) == 1 and not ranks,
            "Comparison": captures.many,
            "Checklist": bool(checklist),
            "Thresholds": bool(diagnoses) and since is None,
        }
        if wanted.get(name, bool(diagnoses)):
            made[name] = Sheet(book.create_sheet(name), name, note)
            made[name].ws.sheet_properties.tabColor = color
    before = since or review
    cells: dict[str, str] = {}
    advice: dict[tuple[str, str], str] = {}
    rows = rows_of(captures, cells, advice)
    tally: dict[str, str] = {}
    if diagnoses:
        cells |= evidence(made["Evidence"], rows, captures.many)
        advice |= decided.recommendations(made["Recommendations"], captures, rows, before)
        area, at = decided.findings(made["Findings"], captures, rows, before)
        for name, head in (("decisions", decided.DECISION), ("keys", decided.KEY)):
            tally[name] = f"Findings!{area.column(at[head], absolute=True)}"
        table_sheets.kernels(made["Kernels"], captures)
        if captures.many:
            table_sheets.comparison(made["Comparison"], captures)
        if ranks:
            made["Ranks"].table(*shown(diagnoses[0].tables["ranks"]), filter=True, freeze=True)
        table_sheets.steps(made["Comparison" if captures.many else "Ranks" if ranks else "Steps"], captures)
        table_sheets.rules(made["Rules"], captures)
        table_sheets.facts(made["Facts"], captures)
        table_sheets.thresholds(made.get("Thresholds"), made["Rules"], captures)
    if checklist is not None:
        area, column = answers.checklist(made["Checklist"], checklist, review)
        tally["answers"] = f"Checklist!{area.column(column, absolute=True)}"
    summary(first, captures, rows, Tally(**tally))
    return package(book)


#: The time stamp in the package; the workbook does not contain the time of its making.
EPOCH = datetime(2000, 1, 1)
_STAMP = re.compile(rb"(<dcterms:(?:created|modified)[^>]*>)[^<]*(<)")
_ZIP_TIME = (1980, 1, 1, 0, 0, 0)


def package(workbook: Workbook) -> bytes:
    """The workbook as a file; time stamps are fixed."""
    workbook.properties.creator = "advisor"
    workbook.properties.created = EPOCH
    written = io.BytesIO()
    _save(workbook, written)
    out = io.BytesIO()
    stamp = EPOCH.strftime("%Y-%m-%dT%H:%M:%SZ").encode()
    with zipfile.ZipFile(written) as source, zipfile.ZipFile(out, "w") as target:
        for name in source.namelist():
            content = source.read(name)
            if name == "docProps/core.xml":
                content = _STAMP.sub(rb"\g<1>" + stamp + rb"\g<2>", content)
            entry = zipfile.ZipInfo(name, _ZIP_TIME)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = 0o600 << 16
            target.writestr(entry, content)
    return out.getvalue()


def _save(workbook: Workbook, written: io.BytesIO) -> None:
    """openpyxl writes sheets to temporary files first, and complains a second time from a generator."""
    try:
        workbook.save(written)
    except OSError as error:
        complain, sys.unraisablehook = sys.unraisablehook, lambda _: None
        why, error.__traceback__ = error.strerror, None
        gc.collect()
        sys.unraisablehook = complain
        room = f"make room in {tempfile.gettempdir()}, or set TMPDIR"
        raise InputError(f"the workbook cannot be written ({why}); {room}") from None
