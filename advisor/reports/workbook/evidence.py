"""What proves each finding: one sheet a code, with conditions, tables, places and references."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from advisor.model.facts import Interval
from advisor.model.findings import ConditionDoc, Finding, Gain
from advisor.reports import phrases
from advisor.reports.numbers import OPS, fact_unit
from advisor.reports.workbook.captures import Row
from advisor.reports.workbook.sheet import Column, Link, Number, Sheet, shown
from advisor.reports.workbook.style import LEFT, LEVELS, MUTED, align, fill, font

#: Tables of all kinds stand below each other: three columns for texts, the rest for numbers.
TEXTS = (42.0, 22.0, 14.0)
NUMBERS = 12.0
#: Columns that a paragraph spans.
ACROSS = 6


def evidence(sheet: Sheet, rows: Sequence[Row], many: bool) -> None:
    """The findings of one code, one below the other."""
    most = max((len(t.columns) for r in rows for t in r.finding.evidence), default=6)
    for column, width in enumerate((*TEXTS, *[NUMBERS] * max(most, 6)), 1):
        sheet.widen(column, width)
    for row in rows:
        _finding(sheet, row, many)


def _finding(sheet: Sheet, row: Row, many: bool) -> None:
    f = row.finding
    where = phrases.scope(f) or "whole capture"
    capture = f"{row.label}, " if many else ""
    sheet.text(1, f"{f.rank}. {f.title}", size=12, bold=True)
    sheet.row += 1
    ink, ground = LEVELS[f.severity]
    cell = sheet.ws.cell(sheet.row, 1, f.severity)
    cell.font, cell.fill = font(10.5, ink, bold=True), fill(ground)
    cell.alignment = align(indent=1)
    sheet.text(2, f"{capture}{where}, sure to {f.confidence:.0%}", color=MUTED)
    sheet.row += 1
    sheet.paragraph(f.message, ACROSS)
    sheet.row += 1
    _conditions(sheet, f.conditions)
    if f.impact is not None and f.impact.share is not None:
        cost = phrases.cost_text(f, bool(row.diagnosis.steps))
        sheet.text(1, f"Cost: {cost}")
        sheet.row += 2
    _gain(sheet, f)
    for table in f.evidence:
        if table.rows:
            sheet.heading(table.title)
            _lay(sheet, *shown(table))
    _places(sheet, f.time_ranges, phrases.clock(*row.diagnosis.inputs))
    _explains(sheet, f)
    _references(sheet, f)


def _lay(sheet: Sheet, columns: Sequence[Column], rows: Sequence[Sequence[Any]]) -> None:
    """A table on the grid: its leading texts fill the first three columns."""
    texts = 0
    for i in range(min(len(columns), len(TEXTS))):
        if columns[i].unit in LEFT or all(isinstance(row[i], str | None) for row in rows):
            texts += 1
        else:
            break
    spans = [1] * len(columns)
    longest = [max((len(str(row[i] or "")) for row in rows), default=0) for i in range(texts)]
    # What room is left goes to the longest of them.
    spans[longest.index(max(longest)) if longest else 0] += len(TEXTS) - max(texts, 1)
    sheet.table(columns, rows, spans=spans)


def _conditions(sheet: Sheet, conditions: Sequence[ConditionDoc]) -> None:
    if not conditions:
        return
    sheet.heading("Because", "every inequality of the rule with both its numbers")
    columns = [
        Column("fact"),
        Column("parameter"),
        Column("holds"),
        Column("value"),
        Column("is"),
        Column("threshold"),
    ]
    rows: list[list[Any]] = []
    for c in conditions:
        unit = fact_unit(c.fact, c.unit)
        limit: Any = c.threshold
        if isinstance(limit, tuple):
            limit = ", ".join(str(t) for t in limit)
        holds = {True: "yes", False: "no"}.get(c.holds) if c.holds is not None else "unknown"
        rows.append([c.fact, c.param, holds, Number(c.value, unit), OPS.get(c.op, c.op), Number(limit, unit)])
    _lay(sheet, columns, rows)


def _gain(sheet: Sheet, finding: Finding) -> None:
    gain = finding.gain
    if gain is None:
        return
    if gain.speedup is None and gain.step_after_ms is None:
        if gain.reason:
            sheet.text(1, f"Gain: not estimated, {gain.reason}", color=MUTED)
            sheet.row += 2
        return
    sheet.heading("What a fix would win", _what_if(gain))
    columns = [Column("estimate"), Column("low"), Column("middle"), Column("high")]
    tokens = gain.measure == "throughput"
    rows = [
        [name, *(Number(v, unit) for v in (span.low, span.mid, span.high))]
        for name, span, unit in (
            ("step before", gain.step_before_ms, "ms"),
            ("step after", gain.step_after_ms, "ms"),
            (
                "tokens a second" if tokens else "speed-up of a step",
                gain.speedup,
                "throughput" if tokens else "times",
            ),
        )
        if span is not None
    ]
    _lay(sheet, columns, rows)
    sheet.row -= 1
    for assumption in gain.assumptions:
        sheet.paragraph(f"assumes: {assumption}", ACROSS, color=MUTED)
    sheet.row += 1


def _what_if(gain: Gain) -> str:
    if not gain.what_if:
        return ""
    params = "".join(f":{k}={v}" for k, v in sorted(gain.params.items()))
    return f"what-if {gain.what_if}{params}"


def _places(sheet: Sheet, places: Sequence[Interval], clock: str) -> None:
    """Where on the timeline, in the times that the viewer shows."""
    if not places:
        return
    sheet.heading("Where", clock)
    columns = [
        Column("what"),
        Column("stream"),
        Column("thread"),
        Column("at", unit="s"),
        Column("for", unit="ns"),
    ]
    rows = [
        [p.label or None, _plain(p.stream), _plain(p.thread), p.start_ns / 1e9, p.end_ns - p.start_ns]
        for p in places
    ]
    _lay(sheet, columns, rows)


def _plain(number: int | None) -> str | None:
    """A number that is a name is no amount: without thousands separators."""
    return None if number is None else str(number)


def _explains(sheet: Sheet, finding: Finding) -> None:
    if not finding.explains:
        return
    sheet.heading("Explains", "symptoms that this cause accounts for")
    for symptom in finding.explains:
        sheet.text(1, f"{symptom.code} {symptom.cause}")
        sheet.text(2, symptom.message)
        sheet.row += 1
    sheet.row += 1


def _references(sheet: Sheet, finding: Finding) -> None:
    if not finding.references:
        return
    sheet.heading("References")
    for reference in finding.references:
        url = reference.url if (reference.url or "").startswith(("https://", "http://")) else None
        if url:
            sheet.link(sheet.row, 1, Link(reference.title or reference.id, url=url))
        else:
            sheet.text(1, reference.title or reference.id)
        sheet.row += 1
    sheet.row += 1
