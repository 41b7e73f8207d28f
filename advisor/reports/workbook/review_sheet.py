"""The checklist as a sheet with room to answer and to sign; decisions and answers read back from a
workbook that a review meeting filled in.

Columns are found by their headers, so that rows may be sorted and columns moved or added.
"""

from __future__ import annotations

import re
import warnings
import zipfile
import zlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from openpyxl import load_workbook
from openpyxl.utils import get_column_letter

from advisor.errors import InputError, near
from advisor.model import review as m
from advisor.model.findings import Tool
from advisor.reading import MOST_BYTES, similar
from advisor.reports.workbook import findings_sheet as h
from advisor.reports.workbook.findings_sheet import DUE_ON, LAST_SHARE, MEETING, MET, NAMES, SINCE, STATE
from advisor.reports.workbook.sheet import Area, Column, Sheet
from advisor.reports.workbook.style import GOOD, GOOD_BG, INK, LEVELS, font

if TYPE_CHECKING:
    from openpyxl import Workbook

#: Headers that `advisor review import` looks for.
QUESTION, ANSWER, NOTE, SIGNED, DAY, ID, MEASURED = (
    "Question",
    "Answer",
    "Note",
    "Signed by",
    "Date",
    "Id",
    "Measured",
)
HINT = "Answer what is open, sign what you checked; 'advisor review import' reads it back."
_COLOURS = {
    "yes": (GOOD, GOOD_BG),
    "no": LEVELS["high"],
    "not applicable": LEVELS["info"],
    "later": LEVELS["medium"],
}


FIELDS = (
    Column("Stage", 17),
    Column("#", 5, unit="id"),
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
)


def checklist(sheet: Sheet, listed: m.Checklist, review: m.Review | None) -> Area:
    """The questions by stage."""
    before = {s.id: s for s in review.checklist} if review is not None else {}
    rows: list[list[Any]] = []
    for number, e in enumerate(listed.entries, 1):
        known = before.get(e.id)
        answer = m.WORDS.get(e.answer or (known and known.answer) or "")
        measured = m.WORDS[e.measured] if e.measured else None
        # The capture's numbers, with its answer if a person's differs.
        differs = e.by == "person" and e.measured is not None and e.measured != e.answer
        proof, note = f"{measured}: {e.proof}" if differs else e.proof, e.note or (known and known.note)
        signed = m.AUTOMATIC if e.by == "capture" else None  # no person has checked it
        about = (listed.stages[e.stage], number, e.question, answer, proof, note, signed, None)
        rows.append([*about, e.why, e.how, e.command, e.id, measured])
    area = sheet.table(FIELDS, rows, filter=True, freeze=True)
    sheet.page(large=True)
    area.to_fill_in(ANSWER, NOTE, SIGNED, DAY, day=DAY, wrapped=NOTE)
    area.choose(ANSWER, [m.WORDS[a] for a in m.ANSWERS])
    area.coloured(ANSWER, _COLOURS)
    sheet.hide(area.at[ID], area.at[MEASURED])
    stages = [None, *(e.stage for e in listed.entries)]
    for row, (before_it, stage) in enumerate(pairwise(stages), area.first):
        begins = stage != before_it  # the name of a stage stands out where it begins
        sheet.ws.cell(row, 1).font = font(color=INK if begins else "9AA4AE", bold=begins)
    return area


def signed(text: str) -> str:
    """An answer in the checklist's spelling: ``not applicable`` is ``not_applicable``."""
    plain = text.strip().lower()
    return next((a for a, word in m.WORDS.items() if plain in (a, word)), "")


FINDINGS, CHECKLIST, ADVICE = "Findings", "Checklist", "Recommendations"
#: Headers are looked for in this many rows.
TOP = 60
#: A review of one capture has some 40 thousand; a cell takes 0.7 KB when its row is read.
_MOST_TAGS = 1_000_000


class Row(NamedTuple):
    """A row below the headers: value and place of each cell by header."""

    sheet: str
    number: int
    columns: Mapping[str, int]
    values: Sequence[Any]

    def text(self, header: str) -> str:
        value = self.value(header)
        return "" if value is None else str(value).strip()

    def value(self, header: str) -> Any:
        at = self.columns.get(header, len(self.values))
        return self.values[at] if at < len(self.values) else None

    def day(self, header: str) -> str | None:
        return day_text(self.value(header))

    def problem(self, header: str, text: str) -> m.CellProblem:
        column = get_column_letter(self.columns[header] + 1)
        return m.CellProblem(cell=f"{self.sheet}!{column}{self.number}", text=text)


def day_text(value: Any) -> str | None:
    """A date as text; other text typed in its place is unchanged."""
    return str((value.date() if isinstance(value, datetime) else value) or "").strip() or None


def read(path: Path, version: str) -> m.Review:
    """The review in a workbook. Unreadable entries are among its `problems`, and the rest is read; raises
    InputError for any file but a review workbook."""
    book = _open(path)
    problems: list[m.CellProblem] = []
    try:
        decisions = tuple(_decisions(book, problems))
        filled: dict[str, Any] = {}
        for cells in book["Summary"].iter_rows(values_only=True) if "Summary" in book.sheetnames else ():
            known = [(label, at) for label, (at, _) in MEETING.items() if label in cells and len(cells) >= at]
            filled |= {label: cells[at - 1] for label, at in known}
        answers = tuple(_answers(book, problems))
    except (ValueError, KeyError, TypeError, SyntaxError, zipfile.BadZipFile, zlib.error, EOFError) as fault:
        # A sheet is parsed as it is read.
        raise _unreadable(path, fault) from fault
    finally:
        book.close()
    if problems and not decisions and not answers:
        raise InputError(f"{path}: " + "; ".join(f"{p.cell}: {p.text}" for p in problems))
    return m.Review(
        tool=Tool(version=version, engine="review"),
        workbook=path.name,
        captures=tuple(dict.fromkeys(d.capture for d in decisions if d.capture)),
        names=tuple(filter(None, map(str.strip, re.split("[,;\n]", str(filled.get(NAMES) or ""))))),
        day=day_text(filled.get(MET)),
        decisions=decisions,
        checklist=answers,
        problems=tuple(problems),
    )


def _open(path: Path) -> Workbook:
    if path.is_dir():
        raise InputError(f"{path}: a folder; name the workbook in it")
    if not path.is_file():
        what = "not a regular file; save it to disk first"
        raise InputError(f"{path}: {what if path.exists() else f'no such file{similar(path)}'}")
    try:
        with zipfile.ZipFile(path) as package:
            size = sum(member.file_size for member in package.infolist())
            if size > MOST_BYTES:
                raise ValueError(f"{-(-size >> 20)} MB when unpacked, at most {MOST_BYTES >> 20}")
            tags = sum(package.read(name).count(b"<") for name in package.namelist())
        if tags > _MOST_TAGS:
            raise ValueError(f"{tags:,} tags of XML, at most {_MOST_TAGS:,}")
        with warnings.catch_warnings():
            # Extensions of other programs that are not needed.
            warnings.simplefilter("ignore")
            book = load_workbook(path, read_only=True, data_only=True)
    except Exception as fault:
        # openpyxl raises whatever a broken package causes.
        raise _unreadable(path, fault) from fault
    if FINDINGS not in book.sheetnames and CHECKLIST not in book.sheetnames:
        raise InputError(
            f"{path}: has no sheet {FINDINGS} or {CHECKLIST}; it was not written by advisor --xlsx"
        )
    return book


def _unreadable(path: Path, fault: Exception) -> InputError:
    if isinstance(fault, zipfile.BadZipFile):
        return InputError(f"{path}: not an Excel workbook (.xlsx); give the one that --xlsx wrote")
    if isinstance(fault, PermissionError):
        return InputError(f"{path}: permission denied; make it readable: chmod u+r FILE")
    what = " ".join(str(fault).split())[:120]
    return InputError(f"{path}: the workbook cannot be read ({what}); save it again as .xlsx")


def _rows(book: Workbook, title: str, wanted: Sequence[str], problems: list[m.CellProblem]) -> Iterator[Row]:
    """The rows below the headers of a sheet, if the workbook has it."""
    if title not in book.sheetnames:
        return
    columns: dict[str, int] = {}
    sheet = book[title]
    sheet.reset_dimensions()  # other programs state them wrongly
    for number, row in enumerate(sheet.iter_rows(values_only=True), 1):
        if columns:
            if any(value is not None for value in row):
                yield Row(title, number, columns, row)
            continue
        named = {str(v).strip(): i for i, v in enumerate(row) if v is not None}
        if all(name in named for name in wanted):
            columns = named
        elif number > TOP:
            break
    if not columns:
        text = f"the sheet is missing its header row ({', '.join(wanted)})"
        problems.append(m.CellProblem(cell=title, text=text))


def _decisions(book: Workbook, problems: list[m.CellProblem]) -> Iterator[m.Decision]:
    """Those about findings, then those about findings that were already gone."""
    chosen = _choices(book, problems)
    for row in _rows(book, FINDINGS, (h.CODE, h.DECISION, h.KEY), problems):
        if row.text(h.KEY):
            word = _word(row, h.DECISION, row.text(h.DECISION).lower(), m.DECISIONS, problems)
            yield _decision(row, h.DUE, decision=word, recommendations=tuple(chosen.get(row.text(h.KEY), ())))
    for row in _rows(book, SINCE, (STATE, h.KEY), []):
        if row.text(STATE) == "closed":
            yield _decision(row, DUE_ON, decision=row.text(h.DECISION), closed=True)


def _decision(row: Row, due: str, **known: Any) -> m.Decision:
    share, ms = row.value(h.SHARE) or row.value(LAST_SHARE), row.value(h.STEP_MS)
    return m.Decision(
        capture=row.text(h.CAPTURE),
        finding=row.text(h.KEY),
        code=row.text(h.CODE),
        cause=row.text(h.CAUSE),
        title=row.text(h.FINDING),
        severity=row.text(h.SEVERITY),
        share=float(share) if isinstance(share, int | float) else None,
        ms=float(ms) if isinstance(ms, int | float) else None,
        owner=row.text(h.OWNER),
        due=row.day(due),
        comment=row.text(h.COMMENT),
        **known,
    )


def _choices(book: Workbook, problems: list[m.CellProblem]) -> dict[str, list[m.Choice]]:
    """Decisions about single recommendations, by finding."""
    found: dict[str, list[m.Choice]] = {}
    for row in _rows(book, ADVICE, (h.ACTION, h.DECISION, h.KEY), []):
        finding, _, advice = row.text(h.KEY).rpartition("#")
        word = _word(row, h.DECISION, row.text(h.DECISION).lower(), m.DECISIONS, problems)
        owner = row.text(h.OWNER)
        if advice and (word or owner):
            choice = m.Choice(advice=advice, action=row.text(h.ACTION), owner=owner, decision=word)
            found.setdefault(finding, []).append(choice)
    return found


def _answers(book: Workbook, problems: list[m.CellProblem]) -> Iterator[m.SignOff]:
    for row in _rows(book, CHECKLIST, (QUESTION, ANSWER, ID), problems):
        if not (name := row.text(ID)):
            continue
        answer = row.text(ANSWER)
        yield m.SignOff(
            id=name,
            question=row.text(QUESTION),
            answer=_word(row, ANSWER, signed(answer) or answer.lower(), m.WORDS, problems),
            measured=signed(row.text(MEASURED)),
            note=row.text(NOTE),
            signed_by=row.text(SIGNED),
            signed_on=row.day(DAY),
        )


def _word(row: Row, header: str, word: str, known: Collection[str], problems: list[m.CellProblem]) -> str:
    """The word as spelled in the drop-down; empty, with a problem, for any other."""
    if not word or word in known:
        return word
    hint = near(word, known, f"expected one of {', '.join(n.replace('_', ' ') for n in known)}")
    problems.append(row.problem(header, f"invalid {header.lower()} '{row.text(header)}'; {hint}"))
    return ""
