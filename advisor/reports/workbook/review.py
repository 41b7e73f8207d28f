"""Decisions and answers read back from a workbook that a review meeting filled in.

Columns are found by their heads, so that rows may be sorted and columns moved or added.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from datetime import date, datetime
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any

from advisor.errors import InputError
from advisor.model.findings import Tool
from advisor.model.review import DECISIONS, Decision, Review, SignOff
from advisor.reports.workbook.checklist import (
    ANSWER,
    DAY,
    ID,
    MEASURED,
    NOTE,
    QUESTION,
    SIGNED,
    signed,
)
from advisor.reports.workbook.findings import (
    CAPTURE,
    CAUSE,
    CODE,
    COMMENT,
    DECISION,
    DUE,
    FINDING,
    KEY,
    OWNER,
    SEVERITY,
    SHARE,
)

if TYPE_CHECKING:
    from openpyxl import Workbook
    from openpyxl.worksheet.worksheet import Worksheet

FINDINGS, CHECKLIST = "Findings", "Checklist"
#: Heads are looked for in this many rows.
TOP = 60


def read(path: Path, version: str) -> Review:
    """The review in a workbook; raises InputError for anything that is none of ours."""
    book = _open(path)
    decisions = tuple(_decisions(path, book))
    answers = tuple(_answers(path, book))
    captures = dict.fromkeys(d.capture for d in decisions if d.capture)
    return Review(
        tool=Tool(version=version, engine="review"),
        workbook=path.name,
        captures=tuple(captures),
        decisions=decisions,
        checklist=answers,
    )


def _open(path: Path) -> Workbook:
    from openpyxl import load_workbook

    if not path.is_file():
        raise InputError(f"{path}: no such file")
    try:
        with warnings.catch_warnings():
            # Extensions that other programs write and that we do not need.
            warnings.simplefilter("ignore")
            book = load_workbook(path, data_only=True)
    except Exception as fault:
        # openpyxl lets through whatever a broken package makes it stumble over.
        what = " ".join(str(fault).split())[:120]
        raise InputError(f"{path}: not a workbook that can be read ({what})") from fault
    if FINDINGS not in book.sheetnames and CHECKLIST not in book.sheetnames:
        raise InputError(
            f"{path}: has no sheet {FINDINGS} or {CHECKLIST}; it was not written by advisor --xlsx"
        )
    return book


def _rows(path: Path, sheet: Worksheet, wanted: Sequence[str]) -> list[dict[str, Any]]:
    """The rows below the heads, as tables of head and value."""
    heads: dict[str, int] = {}
    found = []
    for number, row in enumerate(sheet.iter_rows(values_only=True), 1):
        if heads:
            if any(v is not None for v in row):
                found.append({name: row[i] for name, i in heads.items()})
            continue
        named = {str(v).strip(): i for i, v in enumerate(row) if v is not None}
        if all(name in named for name in wanted):
            heads = named
        elif number > TOP:
            break
    if not heads:
        raise InputError(
            f"{path}: the sheet {sheet.title} has lost its heads ({', '.join(wanted)})"
        )
    return found


def _decisions(path: Path, book: Workbook) -> Iterator[Decision]:
    if FINDINGS not in book.sheetnames:
        return
    for row in _rows(path, book[FINDINGS], (CODE, DECISION, KEY)):
        key = _text(row.get(KEY))
        if not key:
            continue
        share = row.get(SHARE)
        yield Decision(
            capture=_text(row.get(CAPTURE)),
            finding=key,
            code=_text(row.get(CODE)),
            cause=_text(row.get(CAUSE)),
            title=_text(row.get(FINDING)),
            severity=_text(row.get(SEVERITY)),
            share=float(share) if isinstance(share, int | float) else None,
            owner=_text(row.get(OWNER)),
            decision=_decision(path, key, _text(row.get(DECISION))),
            due=_day(row.get(DUE)),
            comment=_text(row.get(COMMENT)),
        )


def _decision(path: Path, key: str, word: str) -> str:
    """A decision as the drop-down spells it."""
    if not word or word.lower() in DECISIONS:
        return word.lower()
    near = get_close_matches(word.lower(), DECISIONS, 1)
    hint = f"did you mean '{near[0]}'?" if near else f"known are {', '.join(DECISIONS)}"
    raise InputError(f"{path}: {key}: '{word}' is no decision; {hint}")


def _answers(path: Path, book: Workbook) -> Iterator[SignOff]:
    if CHECKLIST not in book.sheetnames:
        return
    for row in _rows(path, book[CHECKLIST], (QUESTION, ANSWER, ID)):
        name = _text(row.get(ID))
        if name:
            yield SignOff(
                id=name,
                question=_text(row.get(QUESTION)),
                answer=signed(_text(row.get(ANSWER))),
                measured=signed(_text(row.get(MEASURED))),
                note=_text(row.get(NOTE)),
                signed_by=_text(row.get(SIGNED)),
                signed_on=_day(row.get(DAY)),
            )


def _text(value: Any) -> str:
    return "" if value is None else str(value).strip()


def _day(value: Any) -> str | None:
    """A date as text; what somebody typed in place of one stays as it is."""
    if isinstance(value, datetime):
        return value.date().isoformat()
    if isinstance(value, date):
        return value.isoformat()
    return _text(value) or None
